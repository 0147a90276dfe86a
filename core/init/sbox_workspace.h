/* The workspace: a seed below, what changes above, both one tree. */
#ifndef SP_INIT_SBOX_WORKSPACE_H
#define SP_INIT_SBOX_WORKSPACE_H

#include "init/sbox.h"

/*
 * Takes seed and assets over as mounts of the sandbox's own.
 * Context: keeper, in its own mount namespace, before there is a scratch: with
 *          something over "/" the kernel makes no user namespace.
 */
int sbox_workspace_adopt(struct sbox *b, struct sbox_why *w) must_check;

/*
 * Makes the scratch filesystem and on it the workspace (or attaches the one
 * that another keeper shares), and goes there: the working directory becomes
 * the scratch, with "root" to build on and "merged", the workspace.
 * Source:  the kernel's overlayfs document.
 * Context: keeper, in its own mount namespace; blocks while an upper layer is
 *          copied, for which it forks.
 * Returns: 0; SP_E_AGAIN the channel wants attention; SP_E_* with *w.
 */
int sbox_workspace_make(struct sbox *b, struct sbox_why *w) must_check;

/* A copy of the workspace's mount for another sandbox. */
int sbox_workspace_share(const struct sbox *b, struct sbox_why *w,
    int *out) must_check;

/* Takes the scratch away, with everything on it; twice is fine. */
void sbox_workspace_clear(struct sbox *b);

#endif
