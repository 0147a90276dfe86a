/* Work that blocks, in a short-lived child of the helper. */
#ifndef SP_HELPER_JOB_H
#define SP_HELPER_JOB_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "os/poller.h"

enum { JOB_WHY_MAX = 2048, JOB_KEEP_MAX = 16 };

struct job;

struct job_plan {
	uint64_t timeout_ms;
	int (*work)(void *arg, struct buf *why);
	void (*done)(void *arg, int rc, struct view why);
	void *arg;
	const int *keep;
	size_t keep_n;
};

/*
 * Runs work() in a child, which dies with the helper and is killed when it
 * takes longer than it may.
 * Context: helper's loop; the child is reaped by whoever waits for all.
 * Parameters: work, gets arg, which it must not free; its result and text
 *          are handed to done(), once, from the poller: SP_E_TIMEOUT, or
 *          SP_E_GONE when the child died.  keep, keep_n: the descriptors
 *          that it needs (at most JOB_KEEP_MAX, -1 allowed); all others but
 *          the standard ones are closed in it, as they hold open what others
 *          wait for.
 * Owner:   the job is gone after done(), or with job_drop(), which kills it.
 * Returns: NULL: no memory or no process to be had.
 */
struct job *job_start(struct poller *p, const struct job_plan *plan) must_check;
void job_drop(struct job *j); /* NULL allowed */

#endif
