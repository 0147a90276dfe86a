#include "config.h"

#include "lifecycle.h"

#include <stdio.h>

#include "base/mem.h"
#include "gate/bound.h"
#include "gate/door.h"
#include "gate/websock.h"
#include "http/query.h"
#include "json/jrpc.h"
#include "json/jscan.h"
#include "lifecycle_call.h"
#include "lifecycle_conf.h"

enum {
	/* of a client that does not wait for answers */
	PENDING_MAX = 64,
	PENDING_BYTES_MAX = 1024 * 1024,
	/* of a reply, around its data */
	FRAME_OVERHEAD = 64 + EPISODE_ID_MAX,
	FAULT_MAX = 256 * 1024, /* of an error frame */
	TOOL_MAX = 1024, /* of the name of a tool */
	/* of a stop: the episode stays for those who still use it */
	STOP_GRACE_MS = 24 * 60 * 60 * 1000,
	/* of a reactor that has just begun, until it knows what there is */
	ATTACH_MS = 20,
	ATTACH_TRIES = 100,
};

struct pending {
	STAILQ_ENTRY(pending) link;
	struct buf text;
};

/* A connection. */
struct socket {
	struct gate_request *r;
	const struct lifecycle_conf *conf;
	struct websock *ws; /* NULL: not yet, or no more */
	struct websock_params params;
	struct lifecycle_lease *lease; /* NULL: none, or let go of */
	struct lifecycle_run *run; /* under way */
	uint64_t since_us; /* it began */
	struct bound_ticket place, turn; /* of the socket; of that run */
	STAILQ_HEAD(, pending) pending; /* came meanwhile */
	size_t pending_n, pending_bytes;
	struct loop_timer *again; /* attaches once more */
	unsigned tries;
	bool paused, closing;
	bool stopping; /* closed, as the gate stops */
	bool working; /* up the stack */
	char episode[EPISODE_ID_MAX + 1]; /* for the log */
	char session[EPISODE_ID_MAX + 1]; /* that it is attached to; empty */
};

static void socket_work(struct socket *s);
static void socket_begin(struct socket *s);

/* ---- what is told --------------------------------------------------------- */

/* The name in a tools/call, as the log may have it; empty: there is none. */
static void
tool_of(enum lifecycle_op op, struct view data, struct buf *out)
{
	struct jscan_span method, params, name;
	struct jscan s;

	jscan_init(&s, data, 0);
	if (op != LIFECYCLE_MCP ||
	    jscan_find(data, VIEW("method"), &method) != 1 ||
	    !jscan_is(&s, &method, VIEW("tools/call")) ||
	    jscan_find(data, VIEW("params"), &params) != 1 ||
	    params.kind != JSCAN_OBJECT)
		return;
	data = jscan_raw(&s, &params);
	jscan_init(&s, data, 0);
	/* what is longer is cut from the line: no tool is named so */
	if (jscan_find(data, VIEW("name"), &name) == 1)
		(void)!jscan_decode(&s, &name, out, NULL);
}

static void
socket_log(struct socket *s, enum lifecycle_op op, struct view data,
    const char *outcome)
{
	struct buf tool = BUF_INIT(TOOL_MAX);
	struct door_operation line = {
		.principal = "orchestrator",
		.door = "lifecycle",
		.operation = lifecycle_call_op(op),
		.episode = view_str(s->lease != NULL && s->lease->id[0] != '\0'
			? s->lease->id
			: s->episode),
		.outcome = outcome,
		.us = loop_now_us(gate_loop(s->r->gate)) - s->since_us,
	};

	tool_of(op, data, &tool);
	line.tool = buf_view(&tool);
	door_log(s->r, &line);
	buf_clear(&tool);
}

static void
socket_close(struct socket *s, unsigned code)
{
	s->closing = true;
	if (s->ws != NULL)
		websock_close(s->ws, code, VIEW_NONE);
}

static void
send_fault(struct socket *s, const struct lifecycle_fault *f)
{
	struct buf frame = BUF_INIT(FAULT_MAX);
	int rc = lifecycle_frame_error(&frame, f);

	if (rc == SP_OK && s->ws != NULL)
		rc = websock_send(s->ws, buf_view(&frame));
	buf_clear(&frame);
	/* what cannot be told ends the connection: silence would be a hang */
	if (rc != SP_OK && rc != SP_E_GONE)
		socket_close(s, WEBSOCKET_INTERNAL);
}

static void
socket_send(struct socket *s, int rc, struct buf *frame)
{
	const struct lifecycle_fault bad = { .reason = "reply_malformed",
		.cause = VIEW("the answer is not UTF-8") };

	if (rc == SP_OK && s->ws != NULL)
		rc = websock_send(s->ws, buf_view(frame));
	buf_clear(frame);
	if (rc == SP_E_SYNTAX)
		send_fault(s, &bad);
	else if (rc != SP_OK && rc != SP_E_GONE)
		socket_close(s, WEBSOCKET_INTERNAL);
}

static void
send_malformed(struct socket *s, const char *reason, const char *why)
{
	const struct lifecycle_fault f = { .reason = reason,
		.cause = view_str(why) };

	send_fault(s, &f);
}

/* In OpenEnv's words: the connection is of no use. */
static void
refuse_session(struct socket *s, enum lifecycle_op op, const char *outcome,
    const char *why)
{
	const struct lifecycle_fault f = { .message = why,
		.code = "SESSION_ERROR",
		.reason = "session_error",
		.cause = view_str(why) };

	s->r->outcome = outcome;
	socket_log(s, op, VIEW_NONE, outcome);
	send_fault(s, &f);
	socket_close(s, WEBSOCKET_NORMAL);
}

/* ---- the end of an episode ------------------------------------------------ */

/* grace_ms: that the episode waits for the client; 0: it is done with it. */
static void
socket_leave(struct socket *s, uint64_t grace_ms)
{
	struct lifecycle_lease *l = s->lease;

	if (l == NULL)
		return;
	memcpy(s->episode, l->id, sizeof(s->episode));
	if (s->run != NULL && s->run->op != LIFECYCLE_OPEN)
		socket_log(s, s->run->op, buf_view(&s->run->data),
		    "client_gone");
	s->lease = NULL;
	if (s->run != NULL)
		lifecycle_run_forget(s->run);
	s->run = NULL;
	bound_give(&s->turn);
	lifecycle_lease_detach(l, grace_ms);
}

/* ---- what came of it ------------------------------------------------------ */

static void
answer_ok(struct socket *s, const struct lifecycle_run *run, struct view body)
{
	static const char *const types[] = {
		[LIFECYCLE_RESET] = "observation",
		[LIFECYCLE_STEP] = "observation",
		[LIFECYCLE_STATE] = "state",
		[LIFECYCLE_MCP] = "mcp",
	};
	struct buf frame = BUF_INIT(body.n + FRAME_OVERHEAD);
	/* by which it attaches when this connection breaks */
	int rc = lifecycle_frame_reply(&frame, types[run->op], body,
	    run->op == LIFECYCLE_STATE ? run->lease->id : NULL);

	socket_send(s, rc, &frame);
}

static void
answer_fault(struct socket *s, enum lifecycle_op op, int code, struct view data,
    const struct lifecycle_fault *f)
{
	struct buf frame = BUF_INIT(FAULT_MAX);

	if (op == LIFECYCLE_MCP)
		socket_send(s, lifecycle_frame_rpc_error(&frame, data, code, f),
		    &frame);
	else
		send_fault(s, f);
}

/* An answer all the same, and an error in the log as at a door of MCP. */
static bool
is_error(enum lifecycle_op op, struct view body)
{
	struct jscan_span error;

	return op == LIFECYCLE_MCP &&
	    jscan_find(body, VIEW("error"), &error) == 1 &&
	    error.kind != JSCAN_NULL;
}

static void
socket_on_answer(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
    struct view body, struct view tail)
{
	struct socket *s = arg;
	struct lifecycle_fault f = { .cause = body, .tail = tail };

	int code = JRPC_INTERNAL_ERROR;

	s->run = NULL;
	bound_give(&s->turn);
	if (o == LIFECYCLE_OK &&
	    body.n + FRAME_OVERHEAD > s->conf->reply_max_bytes) {
		o = LIFECYCLE_TOO_LARGE;
		f.cause = VIEW("the answer is larger than reply_max");
	}
	socket_log(s, run->op, buf_view(&run->data),
	    o == LIFECYCLE_OK && is_error(run->op, body)
		? "error"
		: lifecycle_call_outcome(o));
	if (o == LIFECYCLE_OK) {
		answer_ok(s, run, body);
	} else {
		f.reason = lifecycle_call_outcome(o);
		/* the seed's words */
		if (o == LIFECYCLE_UNCLEAN)
			f.message = "teardown incomplete: workload cgroup did "
				    "not empty; workspace restore refused";
		/* those of JSON-RPC, and OpenEnv's */
		if (o == LIFECYCLE_MALFORMED && run->op == LIFECYCLE_MCP) {
			f.message = "Invalid Request";
			code = JRPC_INVALID_REQUEST;
		} else if (o == LIFECYCLE_NO_METHOD) {
			f.message = "Method not found";
			code = JRPC_METHOD_NOT_FOUND;
		}
		answer_fault(s, run->op, code, buf_view(&run->data), &f);
	}
	socket_work(s);
}

/* ---- the beginning of an episode ------------------------------------------ */

static uint64_t
count_episodes(struct gate *g, struct view env)
{
	const struct episode *ep = episode_first(gate_episodes(g));
	uint64_t n = 0;

	for (; ep != NULL; ep = LIST_NEXT(ep, link))
		n += ep->placed && view_eq(view_str(ep->env), env);
	return n;
}

static void
refuse_open(struct socket *s, enum lifecycle_outcome o, struct view cause)
{
	const struct conf_environment *env = s->conf->environment;
	struct lifecycle_fault f = { .reason = lifecycle_call_outcome(o),
		.cause = cause };

	if (o == LIFECYCLE_CAPACITY) {
		f.message = "as many sessions are active as may be";
		f.code = "CAPACITY_REACHED";
		f.counts = true;
		f.active = count_episodes(s->r->gate, env->name);
		f.max = env->episodes;
	} else if (o == LIFECYCLE_UNBUILT) {
		f.message = "the environment could not be made";
		f.code = "FACTORY_ERROR";
		f.factory = env->name;
	} else {
		f.message = "there is no episode for this connection";
		f.code = "SESSION_ERROR";
	}
	send_fault(s, &f);
	socket_close(s, WEBSOCKET_NORMAL);
}

static void
socket_on_open(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
    struct view body, struct view tail)
{
	struct socket *s = arg;

	(void)run;
	(void)tail;
	s->run = NULL;
	socket_log(s, LIFECYCLE_OPEN, VIEW_NONE, lifecycle_call_outcome(o));
	if (o != LIFECYCLE_OK) {
		s->r->outcome = lifecycle_call_outcome(o);
		refuse_open(s, o, body);
		socket_leave(s, 0);
	}
	socket_work(s);
}

static void
socket_open(struct socket *s, struct lifecycle_lease *l)
{
	lifecycle_lease_attach(l);
	s->lease = l;
	s->since_us = loop_now_us(gate_loop(s->r->gate));
	if (lifecycle_run_start(l, LIFECYCLE_OPEN, VIEW_NONE, socket_on_open, s,
		&s->run) == SP_OK)
		return;
	refuse_session(s, LIFECYCLE_OPEN, "no_memory",
	    "out of memory: try again later");
	socket_leave(s, 0);
}

static void
socket_on_again(void *arg)
{
	struct socket *s = arg;

	if (!s->closing)
		socket_begin(s);
	socket_work(s);
}

/* After a crash it comes back sooner than its episode is known. */
static bool
attach_later(struct socket *s)
{
	if (episode_set_resumed(gate_episodes(s->r->gate)) ||
	    s->tries++ >= ATTACH_TRIES)
		return false;
	if (s->again == NULL)
		s->again =
		    loop_timer_new(gate_loop(s->r->gate), socket_on_again, s);
	if (s->again != NULL)
		loop_timer_set(s->again, ATTACH_MS);
	return s->again != NULL;
}

/* The id of openenv/session/create at a door of MCP leads to its episode. */
static struct lifecycle_lease *
attach_session(struct socket *s, struct view id)
{
	struct mcp_episode_ref ref;
	struct lifecycle_lease *l;

	if (!mcp_session_place(s->r->gate, id, &ref))
		return NULL;
	l = lifecycle_lease_of(&ref);
	if (l == NULL || !view_eq(view_str(l->env), s->conf->environment->name))
		return NULL;
	(void)snprintf(s->session, sizeof(s->session), "%.*s", VIEW_ARG(id));
	return l;
}

/* ?session_id=ID: an episode whose connection broke, or a session of MCP's. */
static void
socket_attach(struct socket *s, struct view id)
{
	struct lifecycle_lease *l =
	    lifecycle_lease_find(s->conf->environment->name, id);
	bool by_session = l == NULL;

	if (by_session)
		l = attach_session(s, id);
	if (l == NULL && attach_later(s))
		return;
	if (l == NULL)
		refuse_session(s, LIFECYCLE_OPEN, "unknown_session",
		    "no episode has that session_id");
	else if (!by_session && l->ep != NULL &&
	    l->ep->state == EPISODE_CREATING)
		refuse_session(s, LIFECYCLE_OPEN, "busy",
		    "the session is still being made");
	else if (!by_session && !l->shared && l->users > 0)
		refuse_session(s, LIFECYCLE_OPEN, "busy",
		    "the session has a connection already");
	else
		socket_open(s, l);
}

static void
socket_begin(struct socket *s)
{
	const struct conf_environment *env = s->conf->environment;
	struct buf id = BUF_INIT(EPISODE_ID_MAX);
	struct lifecycle_lease *l = NULL;
	int rc = query_get(s->r->x->request.query, VIEW("session_id"), &id);

	s->since_us = loop_now_us(gate_loop(s->r->gate));
	lifecycle_lease_look();
	if (rc == 1) {
		socket_attach(s, buf_view(&id));
	} else if (rc == SP_E_EXISTS) {
		refuse_session(s, LIFECYCLE_OPEN, "malformed",
		    "session_id stands there twice: send one");
	} else if (rc == SP_E_NOMEM) {
		refuse_session(s, LIFECYCLE_OPEN, "no_memory",
		    "out of memory: try again later");
	} else if (rc != SP_OK) {
		refuse_session(s, LIFECYCLE_OPEN, "unknown_session",
		    "no episode has that session_id");
	} else {
		if (s->conf->shared)
			l = lifecycle_lease_shared(env->name);
		if (l != NULL ||
		    lifecycle_lease_new(s->r->gate, env->name, s->conf->shared,
			&l) == SP_OK)
			socket_open(s, l);
		else
			refuse_session(s, LIFECYCLE_OPEN, "no_memory",
			    "out of memory: try again later");
	}
	buf_clear(&id);
}

/* ---- what is asked -------------------------------------------------------- */

static void
socket_run(struct socket *s, const struct lifecycle_frame *f)
{
	const struct lifecycle_fault nomem = { .reason = "no_memory",
		.cause = VIEW("out of memory: try again later") };

	if (lifecycle_run_start(s->lease, f->op, f->data, socket_on_answer, s,
		&s->run) == SP_OK)
		return;
	bound_give(&s->turn);
	socket_log(s, f->op, f->data, "no_memory");
	send_fault(s, &nomem);
}

/* Over a bound of the door: it is told so, and the socket stays. */
static void
socket_limited(struct socket *s, const struct lifecycle_frame *f,
    enum bound_word w)
{
	const struct lifecycle_fault fault = { .message = bound_reason(w),
		.code = "TOO_MANY_CALLS",
		.reason = "limited",
		.cause = view_str(bound_reason(w)) };

	socket_log(s, f->op, f->data, "limited");
	answer_fault(s, f->op, JRPC_INTERNAL_ERROR, f->data, &fault);
}

static void
socket_frame(struct socket *s, struct view text)
{
	struct lifecycle_lease *l = s->lease;
	struct mcp_episode_ref ref;
	struct lifecycle_frame f;
	enum bound_word w;

	s->since_us = loop_now_us(gate_loop(s->r->gate));
	/* it does not expire meanwhile */
	if (s->session[0] != '\0')
		(void)mcp_session_place(s->r->gate, view_str(s->session), &ref);
	if (lifecycle_frame_read(text, &f) != SP_OK) {
		socket_log(s, LIFECYCLE_FRAME, VIEW_NONE, "malformed");
		send_malformed(s, f.code, f.why);
	} else if (f.op != LIFECYCLE_CLOSE &&
	    (w = bound_call(gate_bound(s->r->gate), s->r, &s->turn)) !=
		BOUND_TAKEN) {
		socket_limited(s, &f, w);
	} else if (f.op != LIFECYCLE_CLOSE) {
		socket_run(s, &f);
	} else {
		socket_log(s, LIFECYCLE_CLOSE, VIEW_NONE, "ok");
		if (l->shared)
			lifecycle_lease_end(l);
		socket_leave(s, 0);
		socket_close(s, WEBSOCKET_NORMAL);
	}
}

static void
pending_drop(struct socket *s, struct pending *p)
{
	STAILQ_REMOVE_HEAD(&s->pending, link);
	s->pending_n--;
	s->pending_bytes -= buf_len(&p->text);
	buf_clear(&p->text);
	mem_free(p);
}

/* The gate stops: what has its answers is closed. */
static void
socket_rest(struct socket *s)
{
	bool works = s->run != NULL && s->run->op != LIFECYCLE_OPEN;

	if (!gate_draining(s->r->gate) || s->closing || s->ws == NULL ||
	    works || !STAILQ_EMPTY(&s->pending))
		return;
	s->closing = s->stopping = true;
	s->r->outcome = "stopping";
	websock_close(s->ws, WEBSOCKET_GOING_AWAY, VIEW("stopping"));
	gate_told(s->r);
}

static bool
socket_idle(const struct socket *s)
{
	/* a client that does not read its answers is asked for no more */
	return s->run == NULL && !s->closing && s->ws != NULL &&
	    s->lease != NULL &&
	    websock_queued(s->ws) <= s->conf->reply_max_bytes / 2;
}

/* One frame at a time, in order. */
static void
socket_work(struct socket *s)
{
	struct pending *p;

	if (s->working)
		return;
	s->working = true;
	while (socket_idle(s) && (p = STAILQ_FIRST(&s->pending)) != NULL) {
		socket_frame(s, buf_view(&p->text));
		pending_drop(s, p);
	}
	s->working = false;
	if (s->paused && s->ws != NULL && STAILQ_EMPTY(&s->pending)) {
		s->paused = false;
		websock_pause(s->ws, false);
	}
	socket_rest(s);
}

/* The socket is read on, for pings, until there is too much. */
static void
socket_keep(struct socket *s, struct view text)
{
	struct pending *p = mem_calloc(1, sizeof(*p));

	if (p != NULL)
		buf_init(&p->text, text.n);
	if (p == NULL || buf_add_view(&p->text, text) != SP_OK) {
		mem_free(p);
		refuse_session(s, LIFECYCLE_FRAME, "no_memory",
		    "out of memory: try again later");
		return;
	}
	STAILQ_INSERT_TAIL(&s->pending, p, link);
	s->pending_n++;
	s->pending_bytes += text.n;
	if (!s->paused &&
	    (s->pending_n >= PENDING_MAX ||
		s->pending_bytes >= PENDING_BYTES_MAX)) {
		s->paused = true;
		websock_pause(s->ws, true);
	}
}

static void
on_ws_message(void *arg, bool text, struct view data)
{
	struct socket *s = arg;

	if (s->closing)
		return;
	if (!text) {
		refuse_session(s, LIFECYCLE_FRAME, "malformed",
		    "a frame is text: binary ones mean nothing");
		return;
	}
	if (socket_idle(s) && STAILQ_EMPTY(&s->pending)) {
		s->working = true;
		socket_frame(s, data);
		s->working = false;
	} else {
		socket_keep(s, data);
	}
}

static void
on_ws_room(void *arg)
{
	socket_work(arg);
}

static void
on_ws_closed(void *arg, unsigned code)
{
	struct socket *s = arg;

	s->ws = NULL;
	s->closing = true;
	if (s->stopping) {
		socket_leave(s, STOP_GRACE_MS);
		return;
	}
	/* whoever closes as one should has done with it; others come back */
	socket_leave(s,
	    code == WEBSOCKET_NORMAL || code == WEBSOCKET_GOING_AWAY ||
		    code == WEBSOCKET_NO_CODE
		? 0
		: s->conf->grace_ms);
}

static const struct websock_events socket_events = {
	.message = on_ws_message,
	.room = on_ws_room,
	.closed = on_ws_closed,
};

/* ---- the handshake -------------------------------------------------------- */

static enum gate_verdict
asked(struct gate_request *r)
{
	switch (websocket_asked(&r->x->request)) {
	case SP_OK:
		return GATE_PASS;
	case SP_E_NOTFOUND:
		return gate_deny(r, 426, "websocket_only",
		    "this door is a WebSocket: ask for an upgrade");
	case SP_E_UNSUPPORTED:
		return gate_deny(r, 426, "websocket_version",
		    "Sec-WebSocket-Version: 13 is spoken here, no other");
	default:
		return gate_deny(r, 400, "bad_handshake",
		    "the handshake of the WebSocket is malformed");
	}
}

static enum gate_verdict
on_head(struct gate_request *r)
{
	const struct lifecycle_conf *conf = r->conf;
	enum gate_verdict v = asked(r);
	enum bound_word word;
	struct socket *s;

	if (v == GATE_PASS)
		v = lifecycle_lease_admit(r, conf->allow_lifecycle);
	if (v != GATE_PASS)
		return v;
	s = mem_calloc(1, sizeof(*s));
	if (s == NULL)
		return GATE_FAIL;
	s->r = r;
	s->conf = conf;
	STAILQ_INIT(&s->pending);
	r->ctx = s;
	r->streams = true;
	word = bound_socket(gate_bound(r->gate), r, &s->place);
	return word == BOUND_TAKEN ? GATE_PASS : bound_deny(r, word);
}

static enum gate_verdict
on_message(struct gate_request *r)
{
	struct socket *s = r->ctx;
	int rc;

	s->params.message_max = s->conf->message_max_bytes;
	/* an answer, and a fault behind it */
	s->params.queue_max = s->conf->reply_max_bytes * 3 / 2 + FAULT_MAX;
	s->params.ping_ms = (uint32_t)s->conf->ping_ms;
	s->params.pong_ms = (uint32_t)s->conf->ping_ms;
	rc = websock_accept(r, &s->params, &socket_events, s, &s->ws);
	if (rc == SP_E_GONE)
		return GATE_HOLD;
	if (rc != SP_OK)
		return GATE_FAIL;
	socket_begin(s);
	return GATE_HOLD;
}

/* ---- what comes later ----------------------------------------------------- */

static size_t
on_holds(const struct gate_request *r)
{
	const struct socket *s = r->ctx;
	size_t n;

	if (s == NULL)
		return 0;
	n = s->pending_bytes;
	if (s->ws != NULL)
		n += websock_holds(s->ws);
	if (s->lease != NULL && !s->lease->shared)
		n += lifecycle_lease_holds(s->lease);
	return n;
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	struct socket *s = r->ctx;
	struct pending *p;

	r->ctx = NULL;
	if (s == NULL)
		return GATE_PASS;
	socket_leave(s, s->conf->grace_ms);
	if (s->ws != NULL)
		websock_drop(s->ws, WEBSOCKET_GOING_AWAY);
	while ((p = STAILQ_FIRST(&s->pending)) != NULL)
		pending_drop(s, p);
	loop_timer_free(s->again);
	bound_give(&s->turn);
	bound_give(&s->place);
	mem_free(s);
	return GATE_PASS;
}

static void
on_drain(struct gate_request *r)
{
	if (r->ctx != NULL)
		socket_rest(r->ctx);
}

static void
on_stop(struct gate *g)
{
	(void)g;
	lifecycle_lease_stop();
}

const struct gate_module lifecycle_module = {
	.conf = &lifecycle_conf,
	.principals = GATE_ORCHESTRATOR,
	.door = true,
	.setup = lifecycle_lease_setup,
	.start = lifecycle_lease_start,
	.stop = on_stop,
	.hook = {
	    [GATE_HEAD] = on_head,
	    [GATE_MESSAGE] = on_message,
	    [GATE_FINISH] = on_finish,
	},
	.drain = on_drain,
	.holds = on_holds,
};
