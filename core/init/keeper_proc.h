/* One process that the keeper started; of keeper_run*.c alone. */
#ifndef SP_INIT_KEEPER_PROC_H
#define SP_INIT_KEEPER_PROC_H

#include <sys/resource.h>

#include "init/keeper.h"
#include "init/run_child.h"

struct keeper_proc {
	LIST_ENTRY(keeper_proc) link;
	struct keeper *k;
	uint32_t handle; /* the helper's */
	uint64_t timeout_ms;
	bool stderr_is_stdout;

	pid_t between; /* the go-between, until it is reaped; 0 */
	pid_t pid; /* 0: not made, or reaped */
	int pidfd;
	uint32_t inside; /* its number in the sandbox; 0 unknown yet */
	int sock; /* until it is a program */
	int near[RUN_STDIO]; /* our ends, until the helper has them */
	bool failed, started, timed_out, killed;
	struct sbox_why why; /* with failed */
	uint64_t oom_kills; /* of the sandbox, when it started */

	struct poller_fd *sock_at, *pidfd_at;
	struct poller_timer *timer; /* start, then timeout */
};

struct keeper_proc *keeper_proc_new(struct keeper *k, uint32_t handle);
/* Closes, unlinks and frees; the process itself was reaped, or never was. */
void keeper_proc_free(struct keeper_proc *p);
struct keeper_proc *keeper_proc_find(struct keeper *k, uint32_t handle);

/*
 * Its session gets the signal: it, and what it started, but for those that
 * made a session of their own.
 */
void keeper_proc_signal(struct keeper_proc *p, int signo);
/* Every process of the sandbox but pid 1. */
void keeper_proc_signal_all(struct keeper *k, int signo);

/*
 * Reaps it if it has ended: true, with its status and usage.
 */
bool keeper_proc_reap(struct keeper_proc *p, int *status, struct rusage *ru);

#endif
