/* Private to the files of the orchestrator's doors. */
#ifndef SP_LIFECYCLE_CALL_H
#define SP_LIFECYCLE_CALL_H

#include <sys/queue.h>

#include "gate/episode.h"
#include "gate/gate.h"
#include "gate/mcp.h"
#include "gate/worker.h"

enum {
	LIFECYCLE_WHY_MAX = 1024, /* of a cause that is kept */
	LIFECYCLE_STDERR_MAX = 16 * 1024, /* of a worker's, in an error */
	/* of another episode's end, before it counts as capacity */
	LIFECYCLE_ROOM_MS = 10 * 1000,
	LIFECYCLE_AGAIN_MS = 1000, /* between attempts to make a shared one */
	LIFECYCLE_AGAIN_MAX_MS = 30 * 1000,
	LIFECYCLE_LOOK_MS = 5 * 1000, /* between looks for shared doors */
};

enum lifecycle_op {
	LIFECYCLE_OPEN, /* there is an episode after it */
	LIFECYCLE_RESET,
	LIFECYCLE_STEP,
	LIFECYCLE_STATE,
	LIFECYCLE_MCP,
	LIFECYCLE_CLOSE, /* the doors' own: never run */
	LIFECYCLE_FRAME, /* none at all; for the log */
};
const char *lifecycle_call_op(enum lifecycle_op op);

/* What came of one; names in lifecycle_call_outcome(). */
enum lifecycle_outcome {
	LIFECYCLE_OK,
	LIFECYCLE_ERROR, /* the worker refused it */
	LIFECYCLE_GONE, /* the worker failed */
	LIFECYCLE_TIMEOUT,
	LIFECYCLE_BUSY,
	LIFECYCLE_NO_WORKER,
	LIFECYCLE_ENDED, /* there is no episode: only a reset helps */
	LIFECYCLE_CAPACITY,
	LIFECYCLE_UNBUILT, /* its sandbox could not be had */
	LIFECYCLE_UNCLEAN, /* teardown incomplete */
	LIFECYCLE_EXISTS, /* that name is another episode's */
	LIFECYCLE_MALFORMED, /* the request */
	LIFECYCLE_NO_METHOD, /* of JSON-RPC, that is the worker's to answer */
	LIFECYCLE_NO_MEMORY,
	LIFECYCLE_NO_HELPER,
	LIFECYCLE_TOO_LARGE, /* the answer */
	LIFECYCLE_OUTCOMES
};
const char *lifecycle_call_outcome(enum lifecycle_outcome o);

/* ---- lifecycle_frame.c: what is said on the socket ------------------------ */

struct lifecycle_frame {
	enum lifecycle_op op;
	struct view data; /* raw JSON, an object; empty: none was there */
	const char *code, *why; /* of what is malformed */
};

/*
 * Reads a frame of the client's.
 * Source:  OpenEnv's /ws: one object, no member but type and data.
 * Context: any; does not block.
 * Parameters: out, data is borrowed from text.
 * Returns: 0; SP_E_SYNTAX with out->code and out->why.
 */
int lifecycle_frame_read(struct view text,
    struct lifecycle_frame *out) must_check;

/* An error, told to the orchestrator alone. */
struct lifecycle_fault {
	const char *message; /* NULL: the fixed one */
	const char *code; /* NULL: "execution_error" */
	const char *reason; /* in detail: an outcome's name, or the like */
	struct view cause; /* any bytes */
	struct view tail; /* of the worker's standard error */
	bool counts; /* the next two are told */
	uint64_t active, max;
	struct view factory; /* empty: none */
};
/* The data of an error frame, appended: 0; SP_E_LIMIT; SP_E_NOMEM. */
int lifecycle_frame_fault(struct buf *out,
    const struct lifecycle_fault *f) must_check;
/* The frame: 0; SP_E_LIMIT; SP_E_NOMEM. */
int lifecycle_frame_error(struct buf *out,
    const struct lifecycle_fault *f) must_check;
/*
 * {"type":TYPE,"data":DATA}, and unless session is NULL "session_id":SESSION:
 * 0; SP_E_LIMIT; SP_E_NOMEM.
 */
int lifecycle_frame_reply(struct buf *out, const char *type, struct view data,
    const char *session) must_check;
/* A JSON-RPC error in answer to that request: 0; SP_E_LIMIT; SP_E_NOMEM. */
int lifecycle_frame_rpc_error(struct buf *out, struct view request, int code,
    const struct lifecycle_fault *f) must_check;

/* ---- lifecycle_lease.c: whose an episode is ------------------------------- */

struct lifecycle_run;

/*
 * An episode that a connection owns, or all of them; it outlives connections.
 * Freed by itself, never within a callback.
 */
struct lifecycle_lease {
	LIST_ENTRY(lifecycle_lease) link; /* of all, or of those that die */
	struct gate *gate;
	char env[EPISODE_ENV_MAX + 1];
	char id[EPISODE_ID_MAX + 1]; /* of its episode, also the next one's */
	struct episode *ep; /* NULL: there is none (yet, or any more) */
	struct mcp_episode_ref last; /* that it had last, or has */
	struct episode_watch watch; /* on it */
	struct buf why; /* the last one ended */
	bool shared;
	bool wanted; /* some door has shared ones of its environment */
	bool dead; /* freed with this turn */
	unsigned users; /* who is attached */
	bool closed; /* its session: it ends with the last connection */
	uint64_t idle_ms; /* a session has it, so long unused; 0: none */
	uint64_t again_ms; /* until the next attempt */
	uint64_t until_ms; /* when nobody is attached: end of the grace */
	TAILQ_HEAD(, lifecycle_run) runs; /* the first is under way */
	struct loop_task *task; /* begins the first */
	struct loop_timer *timer; /* grace, room, or the next attempt */
};

/* 0; SP_E_NOMEM.  Called once for each gate. */
int lifecycle_lease_setup(struct gate *g) must_check;
/* Shared ones are made from now on. */
int lifecycle_lease_start(struct gate *g) must_check;
void lifecycle_lease_stop(void);
/* A shared one's configuration may have come: looks, soon. */
void lifecycle_lease_look(void);

/*
 * Whether episodes may be had at a door, as its HEAD hook says: GATE_PASS;
 * GATE_DENY with 403 they may not, 503 there is no helper.
 */
enum gate_verdict lifecycle_lease_admit(struct gate_request *r,
    bool allow_lifecycle);
/*
 * A new one, nobody attached; its episode is made by a LIFECYCLE_OPEN.
 * Parameters: id, of the episode; empty: one is made up.
 * Returns: 0; SP_E_NOMEM.
 */
int lifecycle_lease_new(struct gate *g, struct view env, bool shared,
    struct lifecycle_lease **out) must_check;
/* NULL: there is none. */
struct lifecycle_lease *lifecycle_lease_find(struct view env, struct view id);
/* Whose episode that is, or was until there is another; NULL. */
struct lifecycle_lease *lifecycle_lease_of(const struct mcp_episode_ref *ref);
struct lifecycle_lease *lifecycle_lease_shared(struct view env);
void lifecycle_lease_attach(struct lifecycle_lease *l);
/*
 * grace_ms: how long it may wait for another; a shared one waits for ever, one
 * that a session has as long as that may be idle.
 */
void lifecycle_lease_detach(struct lifecycle_lease *l, uint64_t grace_ms);
/* A WebSocket of MCP has left its episode, which may have waited for that. */
void lifecycle_lease_left(struct lifecycle_lease *l);
/* Ends its episode: a shared one is made anew, others are gone. */
void lifecycle_lease_end(struct lifecycle_lease *l);
/* It was made: the next reactor is to know it. */
void lifecycle_lease_keep(struct lifecycle_lease *l);
/* Its episode is that one from now on, and followed. */
void lifecycle_lease_take(struct lifecycle_lease *l, struct episode *ep);
/* Bytes that its runs hold. */
size_t lifecycle_lease_holds(const struct lifecycle_lease *l);

/* ---- lifecycle_session.c: sessions that are episodes ---------------------- */

extern const struct mcp_owner lifecycle_session_owner;

/* ---- lifecycle_run.c: one thing after the other --------------------------- */

/* What is asked of a lease's episode. */
struct lifecycle_run {
	TAILQ_ENTRY(lifecycle_run) link;
	struct lifecycle_lease *lease;
	enum lifecycle_op op;
	struct buf data;
	uint64_t timeout_ms; /* 0: the environment's */
	bool begun;
	bool named; /* a reset that says which episode it means */
	struct worker_call *call; /* asked of the worker */
	struct episode_watch wait; /* for another's end, */
	bool waiting; /* while this */
	/*
	 * Called once, from the loop, unless it was forgotten; run is freed
	 * after it.
	 * body: of OK JSON, else the cause; tail: of the worker's errors.
	 */
	void (*done)(void *arg, struct lifecycle_run *run,
	    enum lifecycle_outcome o, struct view body, struct view tail);
	void *arg;
};

/*
 * Context: reactor's loop; nothing blocks or calls back at once.
 * Parameters: data, copied.
 * Owner:   *out is the lease's, and gone after done().
 * Returns: 0; SP_E_NOMEM.
 */
int lifecycle_run_start(struct lifecycle_lease *l, enum lifecycle_op op,
    struct view data,
    void (*done)(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
	struct view body, struct view tail),
    void *arg, struct lifecycle_run **out) must_check;
/* Who asked is gone; one that was not begun is taken out. */
void lifecycle_run_forget(struct lifecycle_run *run);
/* ---- for lifecycle_lease.c */
void lifecycle_run_begin(struct lifecycle_run *run);
/* Room was awaited in vain. */
void lifecycle_run_no_room(struct lifecycle_run *run);
/* It is nowhere any more, whatever was under way; done() is not called. */
void lifecycle_run_free(struct lifecycle_run *run);

#endif
