/* How many slots this host may still have something of. */
#ifndef SP_HELPER_SLOT_JOURNAL_H
#define SP_HELPER_SLOT_JOURNAL_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "os/cgroup.h"

/*
 * All names derive from a slot's number, so that the journal needs to hold
 * the highest number that was ever used, and where the cgroups are.
 */
struct slot_journal {
	int dir_fd; /* state_dir, borrowed */
	uint32_t block; /* slot_block.h */
	uint32_t slots; /* so many of the block's are covered */
	struct buf cgroups[CGROUP_HIERARCHIES]; /* paths; empty: none */
};

/*
 * Reads it.  With dir_fd -1 there is none, and nothing is written.
 * Context: helper, at start.
 * Owner:   slot_journal_clear(), also after a failure.
 * Returns: 0, also when there is none (slots 0); SP_E_SYNTAX it cannot be
 *          understood: the start is refused, nothing is guessed; SP_E_*.
 */
int slot_journal_open(struct slot_journal *j, int dir_fd) must_check;
/* Where cgroups are from now on; written with the next cover(). */
int slot_journal_place(struct slot_journal *j,
    const struct cgroup_root *r) must_check;
/*
 * Makes sure that the first `slots` of the block are covered, before the first change
 * of a slot: temporary file, fsync, rename, fsync of the directory.
 * Returns: 0; SP_E_NOSPC and others: the slot is not to be used.
 */
int slot_journal_cover(struct slot_journal *j, uint32_t slots) must_check;
/* Everything is swept: none is covered. */
int slot_journal_reset(struct slot_journal *j) must_check;
void slot_journal_clear(struct slot_journal *j);

#endif
