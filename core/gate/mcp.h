/*
 * The doors that speak MCP: one request or WebSocket after the other, to the
 * worker of its episode and back.  Modules say whose door it is and which
 * tools it has of its own.
 *
 * Two dialects on one door.  A request speaks the one of the specification
 * (initialize, sessions, server-sent events) when it carries Mcp-Session-Id or
 * MCP-Protocol-Version, accepts text/event-stream by name, or its method is
 * initialize; else the plain one of openenvd (openenv/session/..., HTTP 200
 * always).  A WebSocket speaks the plain one until its client says initialize.
 */
#ifndef SP_GATE_MCP_H
#define SP_GATE_MCP_H

#include "conf/conf_mcp.h"
#include "gate/door.h"
#include "gate/worker.h"
#include "json/jrpc.h"

struct mcp_call;

/* An error, of which clients of openenvd know the code and the message. */
struct mcp_fault {
	enum jrpc_code code;
	const char *message;
	const char *reason; /* a word: "not_found", "timeout", ... */
	struct view
	    detail; /* what happened, any bytes; empty: the word says it */
	const char *remedy; /* NULL: it is in the detail */
};

/* Tools of the door's own, beside the worker's. */
struct mcp_own {
	/* Whether it has a tool of that name; r says the location. */
	bool (*has)(const struct gate_request *r, struct view tool);
	/*
	 * Appends descriptions of those that `visible` lets through, with
	 * commas between them.  0; SP_E_NOMEM; SP_E_LIMIT.
	 */
	int (*list)(const struct gate_request *r, struct buf *out);
	/*
	 * Calls one: mcp_own_result() or mcp_own_error() follows, at once or
	 * later.  args: its arguments in m, NONE when there are none.
	 */
	void (*call)(struct mcp_call *c, struct view tool, const struct jrpc *m,
	    const struct jscan_span *args);
	/* The client is gone: no answer is wanted any more. */
	void (*forget)(struct mcp_call *c);
};

struct mcp_door {
	const char *name; /* "mcp_agent" */
	const char *principal;
	enum worker_whose whose; /* that principal's calls */
	bool agent; /* reserved names are refused whatever the patterns */
	const struct mcp_own *own; /* NULL: none */
};

/*
 * An episode by itself: its id may change, and another have it.  The pointer
 * is only compared.
 */
struct mcp_episode_ref {
	const struct episode *ep;
	uint64_t born_us; /* its created_us */
};

/*
 * Who owns episodes: the orchestrator's door, for its clients that come to a
 * door without a token.  OpenEnv's make a session here first, which is an
 * episode, and attach to it there by the session's id.
 */
struct mcp_owner {
	/* The request has the token of such a door of that environment. */
	bool (*allows)(const struct gate_request *r,
	    const struct conf_environment *env);
	/*
	 * An episode for a session: a new one, or the one that all share.
	 * made() is called once, later; without ep, code (static) and why say
	 * what came of it.  It returns whether a session has it now.
	 * Parameters: idle_ms, how long it lives on unused; borrows r.
	 * Returns: 0; SP_E_NOMEM.
	 */
	int (*make)(const struct gate_request *r,
	    const struct conf_environment *env, uint64_t idle_ms,
	    bool (*made)(void *arg, struct episode *ep, const char *code,
		struct view why),
	    void *arg, void **out);
	void (*forget)(void *making); /* made() is not called any more */
	/* What is over there may go on in another, and its sessions with it. */
	bool (*keeps)(const struct mcp_episode_ref *ref);
	/* Of one that was made for a session: the session is used. */
	void (*used)(const struct mcp_episode_ref *ref);
	/* It is closed.  True: the episode ends later, with its connections. */
	bool (*leave)(const struct mcp_episode_ref *ref);
	/* A WebSocket of MCP is gone, which mcp_session_connected() counted. */
	void (*left)(const struct mcp_episode_ref *ref);
};
/* o: static; NULL: there is none any more. */
void mcp_set_owner(struct gate *g, const struct mcp_owner *o);
/*
 * Where a session of openenv/session/create is, which is thereby used: an id
 * leads there, and authorises nobody.
 * Returns: false: there is no such session.
 */
bool mcp_session_place(struct gate *g, struct view id,
    struct mcp_episode_ref *out);
/* Whether a call is under way in one that owns that episode. */
bool mcp_session_busy(struct gate *g, const struct mcp_episode_ref *ref);
/* Whether a WebSocket of MCP is the orchestrator's, and of that episode. */
bool mcp_session_connected(const struct gate *g,
    const struct mcp_episode_ref *ref);
/*
 * An owner's sessions go on in another episode, as it replaces the first; the
 * others end.  to, NULL: there is none, and the owner's end.
 */
void mcp_session_follow(struct gate *g, const struct mcp_episode_ref *from,
    const struct episode *to);

/* ---- for modules: the hooks and callbacks of gate_module -------------------- */

int mcp_setup(struct gate *g) must_check;
void mcp_stop(struct gate *g);
enum gate_verdict mcp_head(struct gate_request *r, const struct mcp_door *door);
enum gate_verdict mcp_message(struct gate_request *r);
enum gate_verdict mcp_finish(struct gate_request *r);
void mcp_room(struct gate_request *r);
void mcp_expire(struct gate_request *r, enum gate_expiry why);
void mcp_drain(struct gate_request *r);
size_t mcp_holds(const struct gate_request *r);
/* Of a gate_module whose HEAD hook calls mcp_head() with its door. */
#define MCP_DOOR_HOOKS(on_head) \
	.door = true, .wants_body = true, .body_max = WORKER_MESSAGE_MAX, \
	.setup = mcp_setup, \
	.stop = mcp_stop, \
	.hook = { \
	    [GATE_HEAD] = (on_head), \
	    [GATE_MESSAGE] = mcp_message, \
	    [GATE_FINISH] = mcp_finish, \
	}, \
	.room = mcp_room, .drain = mcp_drain, .expire = mcp_expire, \
	.holds = mcp_holds

/* ---- for tools of a door's own ---------------------------------------------- */

struct gate_request *mcp_call_request(const struct mcp_call *c);
/* NULL: it is over. */
struct episode *mcp_call_episode(const struct mcp_call *c);
void **mcp_call_ctx(struct mcp_call *c); /* the tool's, NULL at first */
/* The result's object, or an error; either ends the call. */
void mcp_own_result(struct mcp_call *c, struct view result);
void mcp_own_error(struct mcp_call *c, const struct mcp_fault *f);
/*
 * Records of struct sandbox_change as a JSON array of those whose path in
 * /workspace one of the patterns matches, appended.  A path that is not UTF-8
 * has lone surrogates for its bytes, as Python's os.fsdecode() has them.  When
 * there are more than page allows, a last element says so: a change of
 * /workspace with "truncated":true and as "next" the last path that was told.
 * Returns: 0; SP_E_NOMEM; SP_E_LIMIT; SP_E_PROTO they make no sense.
 */
struct mcp_page {
	struct view after; /* a path: only what comes behind it */
	uint64_t limit; /* changes at most; 0 as many as there is room for */
	size_t room; /* for the list as a string of JSON once more */
};
int mcp_change_list(struct view records, const struct conf_list *globs,
    const struct mcp_page *page, struct buf *out) must_check;
/* Whether the location's patterns let a tool be seen and called. */
bool mcp_visible(const struct gate_request *r, struct view tool);

#endif
