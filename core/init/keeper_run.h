/* The processes that the keeper started. */
#ifndef SP_INIT_KEEPER_RUN_H
#define SP_INIT_KEEPER_RUN_H

#include "init/keeper.h"

enum {
	KEEPER_RUN_MAX = 512, /* at once */
	KEEPER_RUN_START_MS = 10 * 1000, /* until it is a program */
};

/* KEEPER_RUN, KEEPER_SIGNAL: 0, or SP_E_* that ends the channel. */
int keeper_run_take(struct keeper *k, struct channel_msg *m,
    struct wire *w) must_check;
int keeper_run_signal(struct keeper *k, struct channel_msg *m,
    struct wire *w) must_check;

/* Kills each by itself: those that are not in the sandbox yet. */
void keeper_run_kill(struct keeper *k);
/*
 * At the end, when nothing else is forked: takes note of those that have
 * ended, after waiting for one at most so long.
 */
void keeper_run_reap(struct keeper *k, int ms);
/* Forgets them all. */
void keeper_run_drop(struct keeper *k);

#endif
