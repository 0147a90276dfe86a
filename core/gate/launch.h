/*
 * The environment's own workload processes, which are started in each
 * episode: beside the agent, once the worker is ready.
 */
#ifndef SP_GATE_LAUNCH_H
#define SP_GATE_LAUNCH_H

#include "gate/worker_priv.h"

struct launch;
LIST_HEAD(launch_list, launch); /* of those that run */

/*
 * Starts those of `process NAME { trust workload; ... }`.  Nothing starts them
 * again, a reset of the episode apart, which also kills them.  Their start
 * and end are the episode's news, what they write to OPENENVD_EVENT_FD goes
 * to event() of the world; what they print is read and thrown away, the last
 * line of standard error apart, which is in the log when one fails.
 * Context: reactor's loop; the episode is LIVE.
 * Parameters: env and world, borrowed: world for the processes' lives.
 * Owner:   the processes are the episode's; what l has of them frees itself
 *          with them, or by launch_clear().
 */
void launch_all(struct launch_list *l, struct episode *ep,
    const struct conf_environment *env, const struct worker_world *world);
void launch_clear(struct launch_list *l);

#endif
