/* What the sandbox sees from "/" on. */
#ifndef SP_INIT_SBOX_ROOT_H
#define SP_INIT_SBOX_ROOT_H

#include "init/sbox.h"

/*
 * Builds the root in the working directory's "root" and makes it "/"; the
 * host's tree is gone after it.
 * Source:  pivot_root(2).
 * Context: the child that becomes pid 1, in its own namespaces, before any
 *          workload: nothing is opened through a path that a workload made.
 */
int sbox_root_build(const struct sbox *b, struct sbox_why *w) must_check;

/*
 * A path where the sandbox may write, by number from 0 on; NULL at the end.
 * Of the arena.
 */
const char *sbox_root_writable(const struct sbox *b, size_t i);

#endif
