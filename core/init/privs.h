/* Giving all privilege up, for pid 1 and for every workload. */
#ifndef SP_INIT_PRIVS_H
#define SP_INIT_PRIVS_H

#include <stdbool.h>
#include <sys/types.h>

#include "init/sbox_why.h"

/*
 * no_new_privs, empty bounding, ambient and other capability sets, no
 * supplementary groups (where they can be set), uid and gid for good, killed
 * with the parent.
 * Source:  capabilities(7), prctl(2), setresuid(2).
 * Context: a child, once; afterwards only what the uid may do can be done.
 * Parameters: userns, the ids are those of a user namespace with one uid.
 * Returns: 0; SP_E_* with *w, also when the way back is still open.
 */
int privs_drop(struct sbox_why *w, uid_t uid, gid_t gid,
    bool userns) must_check;

#endif
