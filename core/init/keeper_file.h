/* File work in the sandbox, each piece in a child of its own. */
#ifndef SP_INIT_KEEPER_FILE_H
#define SP_INIT_KEEPER_FILE_H

#include "init/keeper.h"

/*
 * Opens the sandbox's own mounts, before any workload is there.
 * Returns: 0; SP_E_* with *why.
 */
int keeper_file_open(struct keeper *k, struct sbox_why *why) must_check;

/* KEEPER_FILE, KEEPER_FILE_PUT: 0, or SP_E_* that ends the channel. */
int keeper_file_take(struct keeper *k, struct channel_msg *m,
    struct wire *w) must_check;
/* Kills, reaps and forgets what is under way, and closes the mounts. */
void keeper_file_drop(struct keeper *k);

#endif
