/* Episodes as the reactor sees them: asked of the helper, watched, ended. */
#ifndef SP_GATE_EPISODE_H
#define SP_GATE_EPISODE_H

#include <sys/queue.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/ident.h"
#include "event/loop.h"
#include "ipc/channel.h"
#include "ipc/sandbox_msg.h"

enum { EPISODE_ID_MAX = IDENT_MAX, EPISODE_ENV_MAX = 64 };

enum episode_state {
	EPISODE_CREATING,
	EPISODE_LIVE,
	EPISODE_RESETTING,
	EPISODE_ENDING,
	EPISODE_UNCLEAN, /* its reset was refused: reset or end it again */
	EPISODE_GONE, /* told to everybody; freed when they let go */
};
const char *episode_state_name(enum episode_state s);

struct episode_set;
struct episode;
struct feed; /* feed.h */
struct process; /* process.h */
struct worker; /* worker.h */

/* Something asked of an episode, until it was answered. */
struct episode_op {
	LIST_ENTRY(episode_op) link;
	struct episode *ep;
	uint32_t request;
	enum message_type type; /* EPISODE_CREATE, RESET, END, ... */
	/*
	 * Called once, from the loop; op is freed after it.
	 * refusal: 0, or enum sandbox_refusal with what saying why.
	 */
	void (*done)(void *arg, struct episode *ep, unsigned refusal,
	    struct view what);
	/* EPISODE_FILE: instead; fd borrowed, -1 none */
	void (*file)(void *arg, struct episode *ep,
	    enum sandbox_file_result result, uint64_t size, int fd,
	    struct view what);
	/* EPISODE_CONNECT: instead; see episode_connect() */
	void (*connected)(void *arg, struct episode *ep, int fd, int number,
	    struct view what);
	void *arg;
	int fd; /* FILE_DATA that came */
};

struct console; /* console.h */

struct episode {
	LIST_ENTRY(episode) link;
	struct episode_set *set;
	char id[EPISODE_ID_MAX + 1];
	char env[EPISODE_ENV_MAX + 1];
	enum episode_state state;
	bool placed; /* slot and generation are known */
	uint32_t slot, generation;
	uint64_t created_us, used_us; /* wall clock */
	uint32_t resets; /* and deaths of reactors that had it */
	bool frozen;
	uint64_t frozen_at_ms, stood_ms; /* since; so long it was before */
	/*
	 * Made for a reactor that died: what it ran is lost, its worker with
	 * it, until a reset.
	 */
	bool resumed;
	bool kept; /* the helper knows its id, for the next reactor */
	bool used; /* something was asked of its worker, or run by an agent */
	bool unkeyed; /* a model was called without a session: by its id */
	LIST_HEAD(, episode_op) ops;
	LIST_HEAD(, process) processes;
	unsigned processes_n;
	LIST_HEAD(, episode_watch) watches;
	struct feed *feed; /* feed.h; NULL: none */
	struct worker *worker; /* worker.c's; NULL none */
	struct console *console; /* NULL: nothing was said yet */
};

/* Somebody who follows what happens. */
enum episode_happening {
	EPISODE_MADE, /* also after a reset */
	EPISODE_CLOSING, /* its reset or end begins: listeners go first */
	EPISODE_ENDED, /* what: why, if unasked */
	EPISODE_PROCESS_STARTED,
	EPISODE_PROCESS_EXITED,
	EPISODE_SAMPLE, /* data: body of a KEEPER_EVENT */
};
struct episode_news {
	enum episode_happening what;
	unsigned end; /* enum sandbox_end */
	struct view text;
	const struct process *process; /* of the last but one */
	uint8_t event; /* enum sandbox_event */
	uint8_t side; /* enum sandbox_side, whose sandbox it is about */
	uint64_t sequence;
};
struct episode_watch {
	LIST_ENTRY(episode_watch) link;
	void (
	    *news)(void *arg, struct episode *ep, const struct episode_news *n);
	void *arg;
};

/* What the set needs of the gate. */
struct episode_world {
	struct loop *loop;
	/* fd is taken in every case; 0; SP_E_*: the helper is away */
	int (
	    *send)(void *arg, enum message_type type, struct view body, int fd);
	/* a listener of an episode, before it is LIVE; fd is taken */
	void (*listener)(void *arg, uint32_t slot, uint32_t generation,
	    uint32_t index, int fd);
	/* NFLOG (false) or a watch of files (true); fd is taken */
	void (*source)(void *arg, uint32_t slot, uint32_t generation,
	    bool files, int fd);
	/* a file for its events; fd is taken; NULL: none is wanted */
	void (*spill)(void *arg, struct episode *ep, int fd);
	/* every episode's news, before the watches' */
	void (
	    *news)(void *arg, struct episode *ep, const struct episode_news *n);
	void *arg;
};

/*
 * Context: reactor's loop; nothing blocks.
 * Owner:   the caller; episode_set_free(NULL) is allowed.
 */
struct episode_set *episode_set_new(
    const struct episode_world *w) must_check; /* NULL without memory */
void episode_set_free(struct episode_set *s);
/*
 * The helper listens: asks for what an earlier reactor left.  What is not
 * claimed is ended.
 */
void episode_set_start(struct episode_set *s);
/*
 * Who asks claim() takes on those that an earlier reactor named with
 * episode_keep(): true, it is his.
 */
void episode_set_claim(struct episode_set *s,
    bool (*claim)(void *arg, struct episode *ep), void *arg);
/*
 * A message of the helper's with a type from EPISODE_MADE on.
 * Returns: 0, m->fd may be taken; SP_E_PROTO.
 */
int episode_set_heard(struct episode_set *s, struct channel_msg *m) must_check;
struct loop *episode_loop(const struct episode *ep);
/* The clock of deadlines for what runs in it: it stands while that is frozen. */
uint64_t episode_now_ms(const struct episode *ep);
/* False: the helper has not yet told of all that an earlier reactor left. */
bool episode_set_resumed(const struct episode_set *s);
size_t episode_set_count(const struct episode_set *s);
struct episode *episode_first(struct episode_set *s);
struct episode *episode_find(struct episode_set *s, struct view id);
struct episode *episode_at(struct episode_set *s, uint32_t slot,
    uint32_t generation);
/* The table of guarantees, as the helper told it; empty before. */
struct view episode_guarantees(const struct episode_set *s);
/* How many sandboxes it keeps ready for that environment. */
uint32_t episode_warm_n(const struct episode_set *s, struct view environment);

/*
 * Asks for one.  Its answer is op's done(): refused, it is GONE and freed.
 * Parameters: id, ident_good(), or empty: one is made up.
 * Returns: 0; SP_E_SYNTAX the id; SP_E_EXISTS it is in use; SP_E_GONE no
 *          helper; SP_E_NOMEM.
 */
int episode_create(struct episode_set *s, struct view environment,
    struct view id,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg, struct episode **out) must_check;
/*
 * Names it anew, for all who ask by id from now on.
 * Returns: 0; SP_E_SYNTAX no id; SP_E_EXISTS another has it; SP_E_STATE it is
 *          over.
 */
int episode_rename(struct episode *ep, struct view id) must_check;
/*
 * The helper is told its id, now and when that changes: should this reactor
 * die, the next one may claim it.
 * Returns: 0; SP_E_STATE it is not LIVE; SP_E_GONE; SP_E_NOMEM.
 */
int episode_keep(struct episode *ep) must_check;
/* 0; SP_E_STATE not in this state; SP_E_GONE; SP_E_NOMEM. */
int episode_reset(struct episode *ep,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg) must_check;
/* Several may ask; one that is being created ends when it is there. */
int episode_end(struct episode *ep,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg) must_check;
int episode_freeze(struct episode *ep, bool on,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg) must_check;
struct episode_file_ask {
	enum sandbox_file_op op;
	struct view path; /* inside */
	uint32_t mode; /* of what is made */
	uint64_t limit; /* bytes at most */
	int put_fd; /* content of SANDBOX_FILE_PUT, taken; else -1 */
};
/*
 * File work inside.
 * Returns: 0; SP_E_STATE; SP_E_LIMIT the path; SP_E_GONE; SP_E_NOMEM.
 */
int episode_file(struct episode *ep, const struct episode_file_ask *ask,
    void (*file)(void *arg, struct episode *ep, enum sandbox_file_result result,
	uint64_t size, int fd, struct view what),
    void *arg) must_check;
/*
 * A socket in the network of one of its sandboxes, to 127.0.0.1 and that port.
 * Parameters: port, that of `worker http`, with side SANDBOX_WORKER; the
 *          helper refuses any other; connected, told once from the loop: fd,
 *          non-blocking, connected or on its way (writable then), the callee's
 *          own; or -1, and number is the errno (ECONNREFUSED: nobody listens
 *          yet), or 0 and what says why there is none.
 * Returns: 0; SP_E_STATE; SP_E_GONE; SP_E_NOMEM.
 */
int episode_connect(struct episode *ep, enum sandbox_side side, uint16_t port,
    void (*connected)(void *arg, struct episode *ep, int fd, int number,
	struct view what),
    void *arg) must_check;
/* Whoever asked is gone: none of his done() is called. */
void episode_forget(struct episode_set *s, const void *arg);
void episode_watch(struct episode *ep, struct episode_watch *w);
void episode_unwatch(struct episode_watch *w);

#endif
