/* Which numbers of slots this daemon has, among all on this host. */
#ifndef SP_HELPER_SLOT_BLOCK_H
#define SP_HELPER_SLOT_BLOCK_H

#include <stdint.h>

#include "base/err.h"
#include "os/cgroup.h"

enum {
	SLOT_BLOCK_N = 2048, /* slots of a block */
	SLOT_BLOCKS = 15, /* a /30 of 198.18.0.0/15 for each slot */
};

struct slot_block {
	uint32_t block; /* its slots: block * SLOT_BLOCK_N and up */
	int net_fd, cgroup_fd; /* what holds it; -1 none */
};

/*
 * Names of links and tables are those of a network namespace, names of
 * control groups those of a tree: a block is held in both, as long as this
 * process lives.
 * Source:  unix(7) abstract addresses, flock(2).
 * Context: helper, at start.
 * Parameters: wanted, tried first: that of the last run.
 * Owner:   slot_block_release().
 * Returns: 0; SP_E_EXISTS all are taken; SP_E_*.
 */
int slot_block_claim(struct slot_block *b, const struct cgroup_root *r,
    uint32_t wanted) must_check;
void slot_block_release(struct slot_block *b);

#endif
