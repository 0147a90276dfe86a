/* Turns of a trace that were given a number and have no record. */
#ifndef SP_CTL_MISSING_H
#define SP_CTL_MISSING_H

#include <stddef.h>

#include "ctl/ctl_record.h"

enum { CTL_MISSING_RANGES = 32 };

struct ctl_missing {
	uint64_t *seen; /* numbers of records, as they came */
	size_t n, cap;
	uint64_t low; /* the lowest of them */
	uint64_t high; /* the highest number that was given out */
	/* what ctl_missing_find() finds: */
	uint64_t turns; /* how many have no record */
	struct {
		uint64_t from, to;
	} range[CTL_MISSING_RANGES]; /* the first of them */
	size_t ranges_n;
	uint64_t more; /* turns that are in none of these */
	bool in_use; /* a recorder has the file open: some may come yet */
};

/*
 * A record of the file.
 * Owner:   ctl_missing_clear().
 * Returns: 0; SP_E_NOMEM.
 */
int ctl_missing_add(struct ctl_missing *m,
    const struct ctl_record *r) must_check;
/*
 * Before the file, open as fd, is read: a recorder that has it open holds a
 * lock of it.
 */
void ctl_missing_look(struct ctl_missing *m, int fd);
/*
 * Looks for the numbers from `low` up to the highest that have none, also
 * among the records of the rolls behind `name` in the directory, as a turn
 * is written where it ends; low 0: from the lowest that is there.
 * Returns: 0; SP_E_NOMEM; the error of reading.
 */
int ctl_missing_find(struct ctl_missing *m, int dir, const char *name,
    uint64_t low) must_check;
void ctl_missing_clear(struct ctl_missing *m);

#endif
