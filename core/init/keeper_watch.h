/* What is seen of a sandbox from outside: samples, OOM, changed files. */
#ifndef SP_INIT_KEEPER_WATCH_H
#define SP_INIT_KEEPER_WATCH_H

#include "init/keeper.h"

/* WATCH, with SANDBOX_WATCH_FILES in the spec: 0; SP_E_* with *why. */
int keeper_watch_start(struct keeper *k, struct sbox_why *why) must_check;
/* Ends the watch; reap: waits for it, which takes some 20 ms. */
void keeper_watch_stop(struct keeper *k);
void keeper_watch_reap(struct keeper *k);
/* Something runs: a sample each second from now on, until nothing does. */
void keeper_watch_wake(struct keeper *k);
/* The timer's turn. */
void keeper_watch_sample(void *arg);
/* How often the kernel killed in here for want of memory; told when it is
 * more than before. */
uint64_t keeper_watch_oom_kills(struct keeper *k);

#endif
