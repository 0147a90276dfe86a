/* What a workload may do to files, besides what modes and mounts say. */
#ifndef SP_INIT_SBOX_LANDLOCK_H
#define SP_INIT_SBOX_LANDLOCK_H

#include "init/sbox.h"

/*
 * The rules for every process of the sandbox, as a ruleset descriptor that
 * each applies to itself: all may be read and run, written only what is
 * private to the sandbox, devices made nowhere.
 * Source:  landlock(7); feature by feature of the kernel's version of it.
 * Context: the child that becomes pid 1, in the finished root, with privilege
 *          (the rules' paths are the merged ones, and must all open).
 * Owner:   *out is the caller's.
 */
int sbox_landlock_rules(const struct sbox *b, struct sbox_why *w,
    int *out) must_check;

/* For good, on the calling process, which has no_new_privs. */
int sbox_landlock_apply(struct sbox_why *w, int ruleset) must_check;

#endif
