/* Whether a program could be started: looked at, not run. */
#ifndef SP_INIT_RUN_PROBE_H
#define SP_INIT_RUN_PROBE_H

#include "init/sbox_why.h"

/*
 * Follows its links and those of what a script names behind "#!".
 * Context: the process that would become it, with all that it would have.
 * Parameters: w, in its stage: without errno when nothing is in the way.
 */
void run_probe(struct sbox_why *w, const char *path);

#endif
