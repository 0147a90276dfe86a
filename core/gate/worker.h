/*
 * The environment's own server in an episode: started with it, asked one
 * thing after the other, whatever protocol it speaks.
 */
#ifndef SP_GATE_WORKER_H
#define SP_GATE_WORKER_H

#include "gate/episode.h"

enum {
	/* bytes that may be asked of a worker, our own id and frame apart */
	WORKER_MESSAGE_MAX = 16 * 1024 * 1024 - 4096,
};

struct worker;
struct worker_call;
struct worker_set; /* all of the gate's; gate_workers() */

enum worker_state {
	WORKER_STARTING, /* calls wait */
	WORKER_READY,
	WORKER_FAILED, /* it ended, or broke its protocol: only a reset helps */
};

enum worker_op {
	WORKER_RESET, /* data: the orchestrator's object, {} when it gave none */
	WORKER_STEP, /* data: the action */
	WORKER_STATE, /* data: nothing */
	WORKER_MCP, /* data: a JSON-RPC request with the caller's own id */
};

enum worker_result {
	/*
	 * body: of RESET and STEP {"observation":..,"reward":..,"done":..}, of
	 * STATE the state's object, of MCP the whole JSON-RPC response with
	 * the caller's id.
	 */
	WORKER_OK = 1,
	/*
	 * The worker refused this one, and lives; body: what it said of it
	 * (for the orchestrator alone), may be empty
	 */
	WORKER_ERROR,
	/* It failed, or the episode is over; body: cause for the orchestrator */
	WORKER_GONE,
	WORKER_TIMEOUT, /* and so it failed */
	WORKER_BUSY, /* too many calls wait */
	WORKER_NONE, /* the environment has none */
};

/* For whom it works: what one's call says must not reach another. */
enum worker_whose {
	WORKER_ORCHESTRATORS,
	WORKER_AGENTS,
	WORKER_GRADERS,
	WORKER_OPERATORS,
	WORKER_WHOSE_N,
};

struct worker_caller {
	/*
	 * Of WORKER_MCP: what the worker says before its answer: progress,
	 * log messages, requests of its own (sampling, elicitation, ping).
	 * Each is a whole JSON-RPC message; a progressToken is the caller's.
	 * NULL: requests are answered with -32601, the rest is dropped; as is
	 * what might be said in a call that was cancelled, not this one.
	 */
	void (*message)(void *arg, struct view json);
	/* Last of the call, which is freed after it. */
	void (*done)(void *arg, enum worker_result result, struct view body);
};

/* Whoever wants to hear what belongs to no call: list_changed and the like. */
struct worker_watch {
	LIST_ENTRY(worker_watch) link;
	struct worker *worker; /* set by worker_watch(); NULL: none any more */
	void (*message)(void *arg, struct view json);
	/*
	 * STARTING: another took its place (a reset); READY; FAILED.  When the
	 * episode is over, worker is NULL then, and the watch is taken out.
	 */
	void (*changed)(void *arg, enum worker_state state);
	void *arg;
};

/*
 * The worker of an episode, from EPISODE_MADE to EPISODE_ENDED, through its
 * resets.
 * Context: reactor's loop; nothing here blocks or calls back at once.
 * Returns: NULL: its environment has none, there is no memory, or the episode
 *          was not made yet.
 */
struct worker *worker_of(struct episode *ep);
enum worker_state worker_state(const struct worker *w);
/* Whether it has a WORKER_RESET to answer: what it makes is not there yet. */
bool worker_resets(const struct worker *w);
/* Why it failed, and the tail of its standard error (bounded); may be empty. */
struct view worker_why(const struct worker *w);
struct view worker_stderr(const struct worker *w);
/*
 * What it answered to `initialize` (the result's object, as it came), or
 * empty: it speaks no real MCP, only tools/list and tools/call.
 */
struct view worker_initialized(const struct worker *w);

struct worker_ask {
	enum worker_op op;
	struct view data; /* copied */
	uint64_t timeout_ms; /* from when it is sent; 0: the environment's */
	enum worker_whose whose;
	/*
	 * Who can answer what the worker asks in the call, and is never looked
	 * into: calls of the same one may go while one of them waits for that.
	 * NULL: nobody.
	 */
	const void *client;
	bool known; /* of MCP: jrpc_read() has found nothing wrong with it */
};
/*
 * Asks; calls of one worker are answered one at a time, those of one principal
 * in their order, and principals take turns: none fills the others' queue.  While
 * one waits for its client to answer a request of the worker's, the next of
 * the same client goes all the same: it may be needed for that answer.
 * Parameters: caller, borrowed until done() or worker_forget().
 * Owner:   *out is the worker's, and gone after done().
 * Returns: 0, done() follows in every case; SP_E_NOMEM; SP_E_SYNTAX data is no
 *          object.
 */
int worker_call(struct worker *w, const struct worker_ask *ask,
    const struct worker_caller *caller, void *arg,
    struct worker_call **out) must_check;
/*
 * The caller is gone: done() is not called.  One that waits is taken out; of
 * one that was sent the answer is dropped, and an MCP worker is told so with
 * notifications/cancelled (reason: JSON text or empty).
 */
void worker_forget(struct worker_call *c, struct view reason);
/*
 * The caller still waits, and the client said notifications/cancelled: passed
 * on under the worker's id.
 */
void worker_cancel(struct worker_call *c, struct view reason);
/*
 * Nothing more of what the worker says is read while on: its caller cannot
 * take message() now.  The deadline runs on.  Off with the call's end.
 */
void worker_hold(struct worker_call *c, bool on);
/*
 * A message that expects no answer: a notification, or the response to a
 * request that message() told of.  It goes at once, past what waits.
 * Parameters: c, the call in which it was asked: a response to what was asked
 *          in another is dropped; of a notification NULL.
 * Returns: 0, also for the response to what is not open (any more);
 *          SP_E_STATE it is not READY; SP_E_SYNTAX it is neither; SP_E_LIMIT
 *          too much waits to be read by it; SP_E_NOMEM.
 */
int worker_tell(struct worker *w, const struct worker_call *c,
    struct view json) must_check;
void worker_watch(struct worker *w, struct worker_watch *watch);
void worker_unwatch(struct worker_watch *watch); /* twice does no harm */

#endif
