/* /proc of the sandbox's own processes, without what is the host's. */
#ifndef SP_INIT_SBOX_PROC_H
#define SP_INIT_SBOX_PROC_H

#include "init/sbox_why.h"

/*
 * Source:  proc(5); what container runtimes mask.
 * Context: the child that becomes pid 1, in the new pid namespace, before any
 *          workload can see the mount namespace: nobody can race the masks.
 */
int sbox_proc_make(struct sbox_why *w, int root) must_check;

#endif
