/* The helper's loop: roles are started, watched, started again, stopped. */
#ifndef SP_HELPER_SUPERVISOR_H
#define SP_HELPER_SUPERVISOR_H

#include "helper/reload.h"
#include "helper/rolerun.h"

/*
 * Starts both roles and runs until they are stopped.
 * Source:  the design's rules of death.
 * Context: helper; its loop never blocks.
 * Parameters: w, borrowed; restarts are counted in it.  r, where another
 *          configuration comes from; w->now follows it.
 * Returns: the exit status: 0 after a stop that was asked for, 1 when a role
 *          could not be started at first.
 */
int supervisor_run(struct rolerun_world *w, struct reload *r) must_check;

#endif
