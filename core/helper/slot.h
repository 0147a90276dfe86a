/* One place for an episode: its keepers, its network, its end. */
#ifndef SP_HELPER_SLOT_H
#define SP_HELPER_SLOT_H

#include <sys/types.h>

#include "conf/conf_env.h"
#include "helper/netns.h"
#include "ipc/channel.h"
#include "ipc/sandbox_msg.h"
#include "os/cgroup.h"

enum {
	SLOT_KEEPERS = 3, /* agent's and worker's: by side, from 0; */
	SLOT_ORACLE = 2, /* and, while it grades, the oracle's */
	SLOT_CALLS_MAX = 512, /* runs and requests open at once */
	SLOT_ASSETS_MAX = 64, /* of the name of an oracle's folder, and NUL */
};

enum slot_state {
	SLOT_FREE,
	SLOT_BUILDING, /* network and keepers are being made */
	SLOT_READY, /* built; nobody's, or somebody's: slot.owned */
	SLOT_ENDING, /* everything is being killed */
	SLOT_EMPTY, /* nothing lives; what is left is being deleted */
	SLOT_SWEEPING, /* by name, once more, for what was missed */
};

/* Of the oracle's sandbox, while the slot is READY. */
enum slot_oracle {
	SLOT_ORACLE_NONE,
	SLOT_ORACLE_STARTED, /* its keeper; then it is being built */
	SLOT_ORACLE_READY,
	SLOT_ORACLE_ENDING,
	SLOT_ORACLE_SWEEPING, /* by name, for what its keeper missed */
	SLOT_ORACLE_DIRTY, /* that failed: it is tried before the next */
};

enum slot_oracle_news {
	SLOT_ORACLE_BUILT,
	SLOT_ORACLE_LOST, /* it ends unasked: why */
	SLOT_ORACLE_EMPTY, /* nothing lives in it */
	SLOT_ORACLE_STUCK, /* its processes do not die: no EMPTY as yet */
	SLOT_ORACLE_CLEAN, /* nothing is left: another one may be started */
};

struct slot;
struct slot_spare;

/* What every slot is made from; borrowed for the slots' lives. */
struct slot_world {
	struct poller *p;
	const char *program_dir; /* of sallyport-init */
	const struct cgroup_root *cgroups;
	int disk_fd; /* directory for upper layers on disk, or -1 */
	bool privileged; /* else through user namespaces */
	struct slot_spare *spare; /* of keepers; NULL: none */
	/* called from the poller; none may free the slot */
	void (*ready)(void *arg, struct slot *s);
	/* before READY: s->why says stage and cause; the end follows */
	void (*failed)(void *arg, struct slot *s);
	/* nothing lives any more; unasked when s->asked is false */
	void (*empty)(void *arg, struct slot *s);
	/* the cgroup did not empty in time; it is tried on */
	void (*stuck)(void *arg, struct slot *s);
	/* it is free again */
	void (*swept)(void *arg, struct slot *s);
	/*
	 * Of a run or a request that the owner made: body as the keeper sent
	 * it, behind its first number, in place of which is the owner's own.
	 * fd is taken.
	 */
	void (*heard)(void *arg, struct slot *s, const struct channel_msg *m,
	    uint32_t number, struct view rest, int fd);
	/* its end begins: nothing that is open is answered any more */
	void (*ending)(void *arg, struct slot *s);
	/* of the oracle's sandbox: see slot_oracle_start() */
	void (*oracle)(void *arg, struct slot *s, enum slot_oracle_news news,
	    struct view why);
	void *arg;
};

struct slot_keeper {
	struct slot *slot;
	uint8_t side; /* enum sandbox_side; 0: this slot has none */
	pid_t pid; /* -1: none */
	struct channel *c;
	struct poller_fd *f;
	bool building; /* it was told to, or its turn has come */
	bool ready, empty, gone;
};

/* Body behind the keeper's number; fd is taken. */
typedef void slot_answer(void *arg, const struct channel_msg *m,
    struct view rest, int fd);

/* A number that the keeper knows, for one of the owner's. */
struct slot_call {
	uint32_t number; /* the keeper's */
	uint32_t owners;
	uint8_t keeper; /* index */
	bool run; /* a process, else a request */
	bool forgotten; /* whoever asked is gone */
	slot_answer *own; /* asked by the helper itself; NULL: by the reactor */
	void *own_arg;
};

struct slot {
	const struct slot_world *w;
	uint32_t number, generation;
	/* borrowed while it is built and READY, no longer */
	const struct conf_environment *env;
	uint64_t teardown_ms;
	char name[65]; /* of the environment */
	uint32_t env_place; /* of the environment's uids */
	void *owner; /* the owner's own */
	int seed_fd, assets_fd; /* borrowed, or -1 */
	enum slot_state state;
	bool owned; /* the reactor knows of it: it hears of calls and news */
	bool asked; /* its end was asked for */
	bool stuck;
	bool dirty; /* a sweep failed: it is tried again */
	const char *oom; /* a keeper has told of a kill for want of memory: why;
			    else NULL */
	struct netns_plan plan;
	struct netns net;
	struct netns_job *net_job;
	bool net_made;
	int watch_fd; /* of the workspace, a copy; -1 */
	struct slot_keeper keepers[SLOT_KEEPERS];
	struct slot_call calls[SLOT_CALLS_MAX];
	size_t calls_n;
	uint32_t calls_last;
	struct poller_timer *timer; /* of building, of its life, of ending */
	struct sweep_job *sweep;
	unsigned sweeps; /* tried for this end */
	enum slot_oracle oracle;
	bool oracle_emptied;
	char oracle_assets[SLOT_ASSETS_MAX]; /* what their folder is called */
	uint8_t end; /* enum sandbox_end, of an end that was not asked for */
	unsigned oracle_sweeps; /* that failed, of this one */
	struct sweep_job *oracle_sweep;
	struct poller_timer *oracle_timer;
	struct buf why;
	uint64_t began_ms;
};

/*
 * Context: helper's loop; none of these blocks.
 * Owner:   the caller; slot_free() only when it is FREE, or at the very end
 *          (then keepers are killed, and what they left is for the next
 *          start).
 * Returns: NULL without memory.
 */
struct slot *slot_new(const struct slot_world *w, uint32_t number) must_check;
void slot_free(struct slot *s);
/*
 * Begins to build it for that environment: READY or failed() follows.
 * Parameters: seed_fd, assets_fd, borrowed until it is FREE.
 * Returns: 0; SP_E_STATE it is not FREE; SP_E_*: it is FREE again.
 */
int slot_build(struct slot *s, const struct conf_environment *env,
    uint32_t env_place, int seed_fd, int assets_fd, bool via_veth) must_check;
/* Sandboxes that one of that environment has: the agent's, the worker's. */
unsigned slot_sides(const struct conf_environment *env);
/*
 * It is READY, and somebody's from now on: its time begins.  When that is
 * over it ends by itself.
 */
void slot_own(struct slot *s);
/* Ends it: empty() and later swept() follow.  Twice is fine. */
void slot_end(struct slot *s);
/* The keeper or sweep with that process id ended: true when it was one. */
bool slot_reaped(struct slot *s, pid_t pid, int status);
/* Before the loop sleeps: whatever was queued waits for room. */
void slot_after(struct slot *s);

/*
 * Starts a process: heard() tells what becomes of it.
 * Parameters: run_fd, a sealed memfd of sandbox_msg_run, taken; number, the
 *          owner's, unique among its open ones.
 * Returns: 0; SP_E_NOTFOUND no such side; SP_E_EXISTS the number is in use;
 *          SP_E_LIMIT; SP_E_STATE; SP_E_*.
 */
int slot_run(struct slot *s, uint8_t side, uint32_t number,
    int run_fd) must_check;
/*
 * Number 0: every process of the episode; an oracle is none, it judges a copy,
 * and its death would be taken for a verdict.
 * Returns: 0; SP_E_NOTFOUND no such process.
 */
int slot_signal(struct slot *s, uint32_t number, uint8_t signo) must_check;
/* A request: body is the keeper's without its number; fd -1 or taken. */
int slot_ask(struct slot *s, uint8_t side, enum message_type type,
    uint32_t number, struct view body, int fd) must_check;
/* The owner is gone: what is open is answered to nobody. */
void slot_forget_calls(struct slot *s);
/* Whether that number is an open process's. */
bool slot_runs(const struct slot *s, uint32_t number);
/*
 * A request of the helper's own: each answer goes to own(), unless the slot
 * ends before.  A FILE has two answers, DATA and then DONE.
 */
int slot_ask_own(struct slot *s, uint8_t side, enum message_type type,
    struct view body, slot_answer *own, void *arg) must_check;
/* Who asked, with that arg, is gone: what is answered is thrown away. */
void slot_forget_own(struct slot *s, const void *arg);
/* It cannot go on: its end begins, unasked, for that reason. */
void slot_fail(struct slot *s, const char *why);

/* ---- the oracle's sandbox (slot_oracle.c) ----------------------------------- */

/*
 * Starts its keeper.
 * Parameters: assets, the name of their folder there, shorter than
 *          SLOT_ASSETS_MAX; borrowed for the call.
 * Returns: 0; SP_E_STATE the slot is not READY, or there is one, or what is
 *          left of the one before is not gone; SP_E_*: nothing was started.
 */
int slot_oracle_start(struct slot *s, const char *assets) must_check;
/* Has it built on a copy of that directory, borrowed: BUILT or LOST follows. */
int slot_oracle_build(struct slot *s, int upper_fd) must_check;
/* EMPTY and then CLEAN follow.  Without one, or twice, is fine. */
void slot_oracle_end(struct slot *s);

#endif
