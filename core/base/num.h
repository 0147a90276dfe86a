/* Strict numbers: no sign, space, octal or trailing byte unless said. */
#ifndef SP_BASE_NUM_H
#define SP_BASE_NUM_H

#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

/*
 * Context: any, does not block, no allocation.
 * Returns: 0; SP_E_SYNTAX when v is not such a number; SP_E_RANGE when it is
 *          outside [min, max] or does not fit.  *out is set only on 0.
 */
int num_u64(struct view v, uint64_t min, uint64_t max,
    uint64_t *out) must_check;
int num_i64(struct view v, int64_t min, int64_t max,
    int64_t *out) must_check; /* may begin with '-' */
int num_hex(struct view v, uint64_t max, uint64_t *out) must_check;
/*
 * A finite decimal as in JSON ("0.7", "-1e3"); the C locale whatever the
 * process's.
 */
int num_double(struct view v, double *out) must_check;
/* 500ms 30s 5m 2h 14d, plain digits are seconds; out in milliseconds. */
int num_duration_ms(struct view v, uint64_t *out) must_check;
/* 512 64k 16m 1g (powers of 1,024, either case); out in bytes. */
int num_size(struct view v, uint64_t *out) must_check;
/* Decimal digits of v into out (at least 20 bytes); returns the length. */
size_t num_format_u64(uint64_t v, char *out);

#endif
