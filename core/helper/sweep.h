/* Taking away, by name, whatever a slot may have left on the host. */
#ifndef SP_HELPER_SWEEP_H
#define SP_HELPER_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "os/cgroup.h"
#include "os/poller.h"

struct sweep {
	uint32_t slot;
	bool has_net; /* it may have had a link, a table, conntrack entries */
	const int *cgroups; /* parents, by enum cgroup_hierarchy; borrowed */
	const bool *cgroups_v1;
	int disk_fd; /* directory of the slots' upper layers, or -1 */
	uint64_t timeout_ms;
	unsigned side; /* that one's leaf and nothing else; 0: all of it */
};

/* "slot-3-agent"; side as in enum sandbox_side. */
void sweep_leaf(uint32_t slot, unsigned side, char out[65]);
/*
 * Slots from first on, n of them, that have a leaf in one of the trees though
 * no journal tells of them: of a daemon whose state is gone.
 * Parameters: found, called for each, maybe more than once.
 * Returns: 0; what found() returned; SP_E_*.
 */
int sweep_find(const int cgroups[CGROUP_HIERARCHIES], uint32_t first,
    uint32_t n, int (*found)(void *arg, uint32_t slot), void *arg) must_check;
/*
 * Kills what lives in the slot's leaves and waits for it, removes them, the
 * link, conntrack entries, table and files.  What is not there is fine, and
 * doing it twice is.
 * Context: a child of the helper, or before its loop; blocks.
 * Returns: 0; the first error with *why, after all else was tried.
 */
int sweep_run(const struct sweep *sw, struct buf *why) must_check;

/*
 * The same in a child.  done() is called once from the poller, after which
 * the job is gone.
 */
struct sweep_job;
struct sweep_job *sweep_start(struct poller *p, const struct sweep *sw,
    void (*done)(void *arg, int rc, struct view why), void *arg) must_check;
void sweep_job_drop(struct sweep_job *j); /* NULL allowed; unheard */

#endif
