/* The table of system calls that a workload is refused. */
#ifndef SP_INIT_SBOX_FILTER_ROWS_H
#define SP_INIT_SBOX_FILTER_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum sbox_filter_when {
	SBOX_FILTER_ALWAYS,
	SBOX_FILTER_EQUAL, /* the argument is value */
	SBOX_FILTER_PAIR, /* and the next one is second */
	SBOX_FILTER_ANY_BIT, /* it has any bit of value */
	SBOX_FILTER_FAMILY, /* it is no number whose bit is in value */
	SBOX_FILTER_SOCKET, /* of domain value: type is second, or (second 0)
			       protocol is not 0 */
};

struct sbox_filter_row {
	const char *call;
	enum sbox_filter_when when;
	unsigned arg;
	uint32_t value, second;
	int en; /* what it fails with */
	const char *condition; /* in words; NULL: whatever its arguments */
	const char *reason;
};

/* Everything that no row matches is allowed; *n rows. */
const struct sbox_filter_row *sbox_filter_rows(size_t *n);

/*
 * The table as text: call, condition, errno, reason, with tabs between.
 * Returns: 0; SP_E_SYS it could not be written.
 */
int sbox_filter_rows_print(FILE *to) must_check;

#endif
