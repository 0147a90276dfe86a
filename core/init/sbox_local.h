/* enforcement local: plain processes in a folder, and no wall at all. */
#ifndef SP_INIT_SBOX_LOCAL_H
#define SP_INIT_SBOX_LOCAL_H

#include "init/sbox.h"

static inline bool
sbox_local(const struct sbox *b)
{
	return (b->spec->flags & SANDBOX_LOCAL) != 0;
}

/*
 * A folder with a copy of the seed (or the one that another keeper shares);
 * from now on whatever is orphaned becomes the keeper's child.
 * Context: keeper; blocks while it copies.
 */
int sbox_local_make(struct sbox *b, struct sbox_why *w) must_check;

/*
 * Kills every descendant; twice is fine.
 * Source:  PR_SET_CHILD_SUBREAPER; proc_pid_task(5), children.
 * Returns: how many children there are.
 */
uint32_t sbox_local_kill(void);

/* Removes the folder, if it is this keeper's. */
void sbox_local_clear(struct sbox *b);

/*
 * Goes to a directory as a process sees it: /workspace is the folder.
 * Returns: 0; -1 with errno.
 */
int sbox_local_chdir(int folder, const char *cwd) must_check;

#endif
