/* The capture of a workspace by a child, while the helper's loop goes on. */
#ifndef SP_HELPER_SEED_JOB_H
#define SP_HELPER_SEED_JOB_H

#include "base/err.h"
#include "base/view.h"
#include "os/poller.h"

struct seed_job;

/*
 * Captures as seed_capture() does.
 * Context: helper's loop; does not block.
 * Parameters: state, directory, borrowed until done(); name, workspace,
 *          copied.  done() is called once, from the poller: rc 0 with fd, the
 *          seed, which it takes; else SP_E_* with why, for people.
 * Owner:   the job is gone after done(), or with seed_job_drop(), which kills
 *          it; the next capture of that name sweeps what it left.
 * Returns: NULL: no memory or no process to be had.
 */
struct seed_job *seed_job_start(struct poller *p, int state, struct view name,
    struct view workspace,
    void (*done)(void *arg, int rc, int fd, struct view why),
    void *arg) must_check;
void seed_job_drop(struct seed_job *j); /* NULL allowed */

#endif
