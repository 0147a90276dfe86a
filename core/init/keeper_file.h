/* File work in the sandbox, each piece in a child of its own. */
#ifndef SP_INIT_KEEPER_FILE_H
#define SP_INIT_KEEPER_FILE_H

#include "init/keeper.h"

/* KEEPER_FILE, KEEPER_FILE_PUT: 0, or SP_E_* that ends the channel. */
int keeper_file_take(struct keeper *k, struct channel_msg *m,
    struct wire *w) must_check;
/* Kills what is under way. */
void keeper_file_kill(struct keeper *k);
/* Reaps and forgets it. */
void keeper_file_drop(struct keeper *k);

#endif
