/* pid 1 of a sandbox: reaps, and leaves when its keeper does. */
#ifndef SP_INIT_INIT1_H
#define SP_INIT_INIT1_H

#include "init/sbox.h"

/*
 * What the new child does: builds the root, tells the keeper, and stays.
 * Source:  pid_namespaces(7): who is pid 1, reaps what is orphaned, is safe
 *          from signals that it does not handle, and takes everybody along.
 * Context: in the new namespaces, still with privilege; never returns.
 * Parameters: sock, to the keeper: the result goes there, and then it is the
 *          lifeline.
 */
void init1_main(struct sbox *b, int sock) __attribute__((noreturn));

/*
 * The network namespace for a pid 1 that waits for it (sbox.net_later).
 * Context: keeper; does not block.
 * Returns: 0; SP_E_GONE it has ended; SP_E_*.
 */
int init1_network(int sock, int netns) must_check;

/*
 * The keeper's half of the result: b->ruleset and b->links.
 * Returns: 0; SP_E_GONE the child died; SP_E_* with *w.
 */
int init1_result(struct sbox *b, struct sbox_why *w, int sock) must_check;

#endif
