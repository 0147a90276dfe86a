/* Which processes there are, as a line of JSON: a sample, not a record. */
#ifndef SP_INIT_KEEPER_SAMPLE_H
#define SP_INIT_KEEPER_SAMPLE_H

#include "init/keeper.h"

/*
 * Appends {"processes":[{"pid":2,"name":"sh"},...],"more":0}: numbers
 * as the sandbox sees them, pid 1 left out; more, those that did not fit.
 * Source:  proc_pid_status(5).
 * Context: keeper; reads /proc of what is in the control group, bounded.
 * Returns: 0; SP_E_* there is none to be had.
 */
int keeper_sample_processes(const struct keeper *k, struct buf *out) must_check;

#endif
