/* What core/gate/mcp*.c share; nobody else includes it. */
#ifndef SP_GATE_MCP_PRIV_H
#define SP_GATE_MCP_PRIV_H

#include <sys/queue.h>

#include "gate/bound.h"
#include "gate/mcp.h"
#include "gate/websock.h"
#include "gate/worker.h"

enum {
	MCP_ID_CHARS = 32, /* of a session's id */
	MCP_BATCH_MAX = 100, /* messages of a batch */
	MCP_CALLS_MAX = 64, /* in flight of one client */
	MCP_ASKED_MAX = 32, /* requests of a worker that a client may answer */
	MCP_TOOL_MAX = 1024, /* bytes of a tool's name */
	MCP_PLACE_MAX = 64 * 1024, /* of route_place() */
	MCP_RPC_ID_MAX = 1024, /* of a message's id, as written */
	MCP_ANSWER_MAX = 17 * 1024 * 1024, /* one answer */
	MCP_REPLY_MAX = 64 * 1024 * 1024, /* all answers of a batch */
	MCP_KEEPALIVE_MS = 15000, /* between comments of a stream */
	MCP_STREAM_QUEUE_MAX = 1024 * 1024, /* unread events of a GET stream */
	/* unread of a WebSocket; the worker is held from half of it on */
	MCP_SOCKET_QUEUE_MAX = 36 * 1024 * 1024,
	MCP_SOCKET_MESSAGE_MAX = 16 * 1024 * 1024, /* that comes by it */
};

struct mcp_client;
struct mcp_surface;

/* A request of the worker's that went to a client, by its id as written. */
struct mcp_asked {
	LIST_ENTRY(mcp_asked) link;
	const struct mcp_call
	    *call; /* in which it came, and which it is part of */
	struct view id; /* behind this struct */
};

/* What a client has said of itself; of a WebSocket, its own. */
struct mcp_peer {
	unsigned features; /* conf_mcp_feature bits that it can answer */
	LIST_HEAD(, mcp_asked) asked;
	unsigned asked_n;
};

struct mcp_session {
	TAILQ_ENTRY(mcp_session) link; /* of its surface, last used last */
	struct mcp_surface *surface;
	char id[MCP_ID_CHARS + 5]; /* or a UUID: openenv/session/create */
	bool plain; /* a handle of the plain dialect */
	bool owned; /* the orchestrator's: nobody else finds it */
	bool owns; /* the episode was made for it */
	bool ended; /* freed with its last client */
	uint64_t used_ms;
	unsigned calls; /* of one that owns: requests under way */
	struct mcp_peer peer;
	LIST_HEAD(, mcp_client) clients;
	struct mcp_client *stream; /* its GET; NULL */
};

/* A message that was read, and what jrpc_read() gave. */
struct mcp_said {
	struct jrpc m;
	int rc;
};

enum mcp_how {
	MCP_PLAIN, /* a POST of openenvd's clients */
	MCP_POST, /* of the specification */
	MCP_STREAM, /* GET */
	MCP_DELETE,
	MCP_SOCKET,
};

/* One HTTP request, or one WebSocket. */
struct mcp_client {
	struct gate_request *r;
	const struct mcp_door *door;
	const struct conf_mcp *conf;
	enum mcp_how how;
	bool spec; /* the dialect of answers */
	bool inside; /* it came by its episode's own listener */
	bool living; /* the watch of the episode */
	bool ended; /* it is told nothing any more */
	bool held; /* the worker waits until it has read */
	bool given_up; /* at its end it waited for nothing any more */
	bool made; /* its episode was made for it */
	bool owns; /* and a session has it now */
	void *making; /* it is being made; of the owner's */
	char uses[MCP_ID_CHARS + 5]; /* a session whose episode lives by it */
	struct buf where; /* route_place(): of its sessions */
	struct mcp_episode_ref ref;
	char episode[EPISODE_ID_MAX + 1]; /* its id then, for the log */
	struct episode_watch life; /* of it */
	struct mcp_session *session;
	LIST_ENTRY(mcp_client) link; /* of the session's clients */
	struct mcp_peer *peer; /* the session's, or own; NULL: none */
	LIST_HEAD(, mcp_call) calls;
	unsigned calls_n;
	struct bound_ticket place; /* of the request, or the WebSocket */
	struct bound_ticket turn; /* of the message that is served */
	bool in_hook; /* the reply is made when it returns */
	bool watching; /* watch, below */
	bool paused; /* ws, below */
	/* a POST */
	bool sse, batch;
	bool read; /* said is the body's */
	unsigned out_n; /* answers in out */
	struct mcp_said said;
	struct buf out; /* answers until the reply */
	struct loop_timer *timer;
	/* a GET stream, a WebSocket after initialize */
	struct worker_watch watch;
	/* a WebSocket */
	struct websock *ws;
	struct websock_params params; /* of it */
	bool connected; /* it is one of the orchestrator's sockets */
	LIST_ENTRY(mcp_client) socket_link; /* of those */
	struct mcp_peer own;
	uint64_t lost; /* messages that found no room */
};

/* One message that is answered later. */
struct mcp_call {
	LIST_ENTRY(mcp_call) link;
	struct mcp_client *client;
	const char *operation; /* for the log: static */
	struct buf text; /* the message as it goes to the worker */
	struct buf id; /* as the client wrote it; empty: null */
	struct buf tool;
	uint64_t started_us;
	struct bound_ticket turn; /* a place of its own */
	struct worker_call *wc; /* NULL: it is not with the worker */
	struct worker_watch ready; /* initialize waits for the worker */
	bool waits, list, own;
	bool cancelled; /* its client waits for it no more */
	void *ctx; /* of a tool of the door's own */
};

/* ---- mcp.c ------------------------------------------------------------------ */

/* The episode, or NULL: it is over. */
struct episode *mcp_episode(const struct mcp_client *c);
struct episode *mcp_episode_of(const struct gate *g,
    const struct mcp_episode_ref *ref);
/* What the MESSAGE hook returns, once the episode is known. */
enum gate_verdict mcp_episode_serve(struct mcp_client *c, struct episode *ep);
/* Hears what the worker says to nobody in particular. */
void mcp_client_watch(struct mcp_client *c);

/* ---- mcp_session.c ---------------------------------------------------------- */

struct mcp_set;
struct mcp_set *mcp_session_set_new(void) must_check;
void mcp_session_set_free(struct mcp_set *s);
/*
 * Returns: 0; SP_E_LIMIT there are as many as may be: the log says so once
 *          until there is room, mcp_session_full() what to answer; SP_E_NOMEM.
 */
int mcp_session_new(const struct mcp_client *c, bool plain,
    struct mcp_session **out) must_check;
/* The answer to a request for one too many: 0; SP_E_LIMIT; SP_E_NOMEM. */
int mcp_session_full(const struct mcp_client *c, struct view id, bool plain,
    struct buf *out) must_check;
/* One of that door and episode, now used; NULL: unknown. */
struct mcp_session *mcp_session_find(const struct mcp_client *c, struct view id,
    bool plain);
void mcp_session_enter(struct mcp_session *s, struct mcp_client *c);
void mcp_session_leave(struct mcp_client *c);
/* Nobody finds it any more; its stream and calls end. */
void mcp_session_end(struct mcp_session *s);
/*
 * Remembers a request of the worker's, as long as the call in which it came.
 * The worker may give it up, and use the id again, for another client.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM.
 */
int mcp_session_ask(struct mcp_peer *p, const struct mcp_call *call,
    struct view id) must_check;
/*
 * The call is over: what was asked in it needs no answer any more, unless
 * another of the same peer's is with the worker, who may have asked in that.
 */
void mcp_session_call_over(struct mcp_peer *p, const struct mcp_call *call,
    const struct mcp_call *other);
/* The call in which it came, if one is open; it is not from now on. */
const struct mcp_call *mcp_session_answered(struct mcp_peer *p, struct view id);
void mcp_session_peer_clear(struct mcp_peer *p);

/* A request of the plain dialect is under way in it, until it is over. */
void mcp_session_begin(struct mcp_session *s, struct mcp_client *c);
void mcp_session_over(struct mcp_client *c);
/* The same of one that is there, for as long as a WebSocket lasts. */
void mcp_session_attach(struct mcp_client *c, struct view id);
/* A WebSocket of the orchestrator's, whose episode is known; then no more. */
void mcp_session_connect(struct mcp_client *c);
void mcp_session_disconnect(struct mcp_client *c);
/* Where one of the plain dialect is that this location made; false: unknown. */
bool mcp_session_here(const struct mcp_client *c, struct view id,
    struct mcp_episode_ref *out);

/* ---- mcp_owner.c ------------------------------------------------------------ */

/*
 * The episode of an orchestrator at a door without a token: that of the
 * session which is named, or for a new session one that is made.
 * Returns: GATE_PASS with *out, or NULL: door_episode() says which; GATE_DONE;
 *          GATE_HOLD: mcp_episode_serve() follows; GATE_FAIL.
 */
enum gate_verdict mcp_owner_episode(struct mcp_client *c, struct episode **out);

/* ---- mcp_serve.c ------------------------------------------------------------ */

/*
 * Serves one message in the client's dialect; its answer, if it gets one,
 * comes by mcp_client_answer(), at once or later.
 * Returns: 1 an answer comes or came; 0 none is due; SP_E_NOMEM.
 */
int mcp_serve(struct mcp_client *c, const struct mcp_said *said) must_check;
/* An error of ours as an answer; data null in the plain dialect. */
int mcp_serve_error(struct mcp_client *c, struct view id, int code,
    const char *message) must_check;
/* Its result: 1; SP_E_NOMEM. */
int mcp_serve_result(struct mcp_client *c, struct view id,
    struct view result) must_check;
/* The line in the access log of what was asked; since_us 0: it took no time. */
void mcp_serve_log(const struct mcp_client *c, const char *operation,
    struct view tool, const char *outcome, uint64_t since_us);
/* An error as an answer, with its line: 1; SP_E_NOMEM. */
int mcp_serve_refuse(struct mcp_client *c, const struct jrpc *m,
    const char *operation, int code, const char *message) must_check;
int mcp_serve_no_method(struct mcp_client *c, const struct jrpc *m) must_check;
/* There is none, as c->r->code and reason say: 1; SP_E_NOMEM. */
int mcp_serve_no_episode(struct mcp_client *c,
    const struct mcp_said *said) must_check;
/*
 * A place for a message, which its call takes over.  A request's own message
 * has that of the request.
 * Returns: 0; 1 it was refused; SP_E_NOMEM.
 */
int mcp_serve_admit(struct mcp_client *c, const struct jrpc *m) must_check;
/* tools/list and tools/call, of both dialects; returns as mcp_serve(). */
int mcp_serve_list(struct mcp_client *c, const struct jrpc *m) must_check;
int mcp_serve_call(struct mcp_client *c, const struct jrpc *m) must_check;

/* ---- mcp_spec.c ------------------------------------------------------------- */

/* mcp_serve() in the dialect of the specification. */
int mcp_spec(struct mcp_client *c, const struct mcp_said *said) must_check;
/* The episode has ended: calls that wait for its worker fail. */
void mcp_spec_over(struct mcp_client *c);
/* What the worker says to a client on its own account, in a call or (NULL) not. */
void mcp_spec_heard(struct mcp_client *c, const struct mcp_call *call,
    struct view json);

/* ---- mcp_call.c ------------------------------------------------------------- */

/*
 * A call of c, without its text; it has the place of the message.
 * Parameters: operation, static.
 * Owner:   *out is the client's; mcp_call_end() or mcp_call_free() ends it.
 * Returns: 0; 1 it was refused, there are too many; SP_E_NOMEM.
 */
int mcp_call_new(struct mcp_client *c, const struct jrpc *m,
    const char *operation, struct mcp_call **out) must_check;
void mcp_call_free(struct mcp_call *k);
/*
 * Tells its answer, which is cleared, or with rc not 0 an error; k is gone, and
 * the client may be.
 */
void mcp_call_end(struct mcp_call *k, const char *outcome, struct buf *answer,
    int rc);
/* To the worker with its text.  1: it is answered, now or later. */
int mcp_call_send(struct mcp_call *k) must_check;
/* All calls of a client are taken back. */
/* It has cancelled all that it asked, which is something. */
bool mcp_call_given_up(const struct mcp_client *c);
void mcp_call_forget_all(struct mcp_client *c);
/* What the worker says in calls of this client waits, or comes again. */
void mcp_call_hold_all(struct mcp_client *c, bool on);

/* ---- mcp_text.c ------------------------------------------------------------- */

/*
 * tools/list: the worker's answer without what is hidden, and with what the
 * door has of its own on the last page.
 * Returns: 0; SP_E_PROTO the answer is none; SP_E_NOMEM; SP_E_LIMIT.
 */
int mcp_text_list(const struct mcp_client *c, struct view answer,
    struct buf *out) must_check;
/* An error whose data says why: 0; SP_E_NOMEM; SP_E_LIMIT. */
int mcp_text_fault(const struct mcp_fault *f, struct view id,
    struct buf *out) must_check;
/* The result of initialize.  params: raw, or empty. */
int mcp_text_initialize(const struct mcp_client *c, struct view worker,
    struct view params, struct buf *out) must_check;
/*
 * A message of the plain dialect as the worker is asked it: 0; SP_E_NOMEM;
 * SP_E_LIMIT.
 */
int mcp_text_plain(const struct jrpc *m, struct buf *out) must_check;
/* What the client of `initialize` can answer: conf_mcp_feature bits. */
unsigned mcp_text_features(struct view params);
bool mcp_text_version_known(struct view version);
/* "2025-11-25, ...", for messages. */
extern const char mcp_text_versions[];

/* ---- mcp_http.c, mcp_ws.c: what a client is told ---------------------------- */

/* A whole answer; of a POST, it may be the last. */
void mcp_client_answer(struct mcp_client *c, struct view json);
/* Much of what it was told is unread. */
bool mcp_client_full(const struct mcp_client *c);
/* Some of it was read. */
void mcp_client_room(struct mcp_client *c);
/* Before an answer.  False: it cannot be told (the plain dialect). */
bool mcp_client_tell(struct mcp_client *c, struct view json);
/* Its session or episode has ended, or there was no memory. */
void mcp_client_end(struct mcp_client *c);
/* The gate stops: what lasts ends once nothing is under way that it hears of. */
void mcp_client_rest(struct mcp_client *c);

bool mcp_http_is_spec(const struct mcp_client *c);
/* The body as one message: read once, as it may be large. */
const struct mcp_said *mcp_http_said(struct mcp_client *c);
enum gate_verdict mcp_http_message(struct mcp_client *c);
enum gate_verdict mcp_http_no_episode(struct mcp_client *c);
/* Sends what was answered in a hook. */
enum gate_verdict mcp_http_answered(struct mcp_client *c);
/* Over a bound of the door, before anything was read. */
enum gate_verdict mcp_http_limited(struct mcp_client *c, enum bound_word w);
/* The reply becomes a stream: 0; SP_E_*. */
int mcp_http_open(struct mcp_client *c) must_check;
void mcp_http_answer(struct mcp_client *c, struct view json);
bool mcp_http_tell(struct mcp_client *c, struct view json);
void mcp_http_end(struct mcp_client *c);
enum gate_verdict mcp_ws_message(struct mcp_client *c);
void mcp_ws_answer(struct mcp_client *c, struct view json);
bool mcp_ws_tell(struct mcp_client *c, struct view json);
void mcp_ws_end(struct mcp_client *c);

#endif
