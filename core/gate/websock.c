#include "config.h"

#include "base/mem.h"
#include "gate/gate_priv.h"
#include "gate/websock.h"

enum {
	SOCK_CLOSE_MS = 10 * 1000, /* for the peer to answer a close */
	/* over the queue's bound: answers to pings, and a close */
	SOCK_CONTROL_BYTES = 1024 * 1024,
};

enum sock_timer {
	SOCK_PING, /* the next ping is due */
	SOCK_PONG, /* an answer is */
	SOCK_CLOSE, /* the peer's close is */
};

/*
 * Freed in one place, sock_leave(), once sock_over() told its end; until then
 * the request has it.
 */
struct websock {
	struct gate_request *r; /* its x is there for as long as this is */
	const struct websock_params *params;
	const struct websock_events *events; /* NULL: dropped */
	void *arg;
	struct websocket *ws; /* owned */
	struct loop_timer *timer;
	struct loop_timer *late; /* runs while a message is unfinished */
	struct loop_task *task; /* what must not happen within a call */
	struct buf out; /* what the connection has no room for */
	size_t owed; /* bytes that came and were not credited */
	uint64_t progress; /* of the unfinished message, when late was set */
	uint64_t paced, paced_ms; /* the same when its pace was looked at */
	struct gate_port *port; /* by which it came */
	struct heavy_ticket turn; /* a large message waits */
	size_t counted; /* bytes among the port's */
	enum sock_timer due; /* what the timer stands for */
	unsigned depth; /* of calls that may end it */
	unsigned code; /* that its end is to be told with, 0 not */
	bool graceful; /* that end: what is queued leaves */
	bool closing; /* a close of ours is queued */
	bool tight; /* room() is due */
	bool alive; /* the peer did something since the ping */
	bool unfinished; /* late runs */
	bool over; /* told */
};

/* ---- its end --------------------------------------------------------------
 */

static void
sock_free(struct websock *s)
{
	err_assert(s->turn.lane == NULL && s->counted == 0);
	websocket_free(s->ws);
	loop_timer_free(s->timer);
	loop_timer_free(s->late);
	loop_task_free(s->task);
	buf_clear(&s->out);
	mem_free(s);
}

static void
sock_leave(struct websock *s)
{
	if (--s->depth == 0 && s->over)
		sock_free(s);
}

/* The reply ends so that the peer sees it whole, or broken off. */
static void
sock_finish(struct websock *s, bool graceful)
{
	struct exchange *x = s->r->x;

	if (x == NULL)
		return;
	/* from here on its silence has a deadline */
	x->patient = false;
	/* what is queued for a peer that does not take it is thrown away */
	if (!graceful || exchange_data(x, buf_view(&s->out)) != 0 ||
	    exchange_end(x) != 0)
		exchange_drop(x);
	gate_finish(s->r);
}

/* What it has gathered is its listener's as well. */
static void
sock_count(struct websock *s, size_t n)
{
	s->port->body_bytes = s->port->body_bytes - s->counted + n;
	s->counted = n;
}

/* Within depth. */
static void
sock_over(struct websock *s, unsigned code, bool graceful)
{
	const struct websock_events *events = s->events;

	err_assert(s->depth > 0);
	if (s->over)
		return;
	s->over = true;
	s->r->websock = NULL;
	if (code == WEBSOCKET_ABNORMAL && s->r->outcome == NULL)
		s->r->outcome = "client_gone";
	loop_timer_stop(s->timer);
	loop_timer_stop(s->late);
	heavy_leave(&s->turn);
	sock_count(s, 0);
	sock_finish(s, graceful);
	if (events != NULL)
		events->closed(s->arg, code);
}

/* The same, from the loop. */
static void
sock_over_soon(struct websock *s, unsigned code, bool graceful)
{
	if (s->over || s->code != 0)
		return;
	s->code = code;
	s->graceful = graceful;
	loop_task_post(s->task);
}

/* ---- bytes that leave -----------------------------------------------------
 */

static int
sock_write(void *arg, struct view data)
{
	struct websock *s = arg;
	struct exchange *x = s->r->x;
	size_t room = 0;
	int rc = 0;

	if (x == NULL)
		return SP_E_GONE;
	if (buf_len(&s->out) == 0)
		room = exchange_room(x);
	if (room > data.n)
		room = data.n;
	if (room != 0)
		rc = exchange_data(x, view_sub(data, 0, room));
	if (rc == 0 && room < data.n)
		rc = buf_add_view(&s->out, view_from(data, room));
	/* nothing can follow half a frame */
	if (rc != 0)
		sock_over_soon(s, WEBSOCKET_ABNORMAL, false);
	return rc;
}

/* Bytes of messages that may still wait. */
static size_t
sock_left(const struct websock *s)
{
	size_t n = buf_len(&s->out);

	return n < s->params->queue_max ? s->params->queue_max - n : 0;
}

static bool
sock_half_free(const struct websock *s)
{
	return buf_len(&s->out) <= s->params->queue_max / 2;
}

int
websock_send(struct websock *s, struct view text)
{
	size_t n = websocket_frame_bytes(WEBSOCKET_SERVER, text.n), room = 0;
	int rc;

	if (s->over || s->closing || s->code != 0 || s->r->x == NULL)
		return SP_E_GONE;
	if (n > sock_left(s)) {
		s->tight = true;
		return SP_E_LIMIT;
	}
	if (buf_len(&s->out) == 0)
		room = exchange_room(s->r->x);
	/* so that it cannot fail half-way */
	if (n > room && buf_reserve(&s->out, n - room) != 0)
		return SP_E_NOMEM;
	rc = websocket_send(s->ws, true, text);
	if (!sock_half_free(s))
		s->tight = true;
	switch (rc) {
	case 0:
	case SP_E_SYNTAX:
	case SP_E_NOMEM:
		return rc;
	default:
		return SP_E_GONE;
	}
}

size_t
websock_queued(const struct websock *s)
{
	return buf_len(&s->out);
}

size_t
websock_holds(const struct websock *s)
{
	return sizeof(*s) + websocket_holds(s->ws) + s->out.cap;
}

/* ---- bytes that come ------------------------------------------------------
 */

/*
 * Whether the peer may send more.  Not while a message of its waits, nor while
 * it does not take what is sent: its pings would be answered without bound.
 */
static bool
sock_reads(const struct websock *s)
{
	return !websocket_full(s->ws) && sock_half_free(s);
}

static void
sock_credit(struct websock *s)
{
	size_t n = s->owed;

	if (n == 0 || s->over || s->r->x == NULL || !sock_reads(s))
		return;
	s->owed = 0;
	exchange_credit(s->r->x, n);
}

static void
sock_late_set(struct websock *s)
{
	loop_timer_set(s->late, s->r->location->limits.client_body_timeout_ms);
}

static void
sock_pace_begin(struct websock *s, uint64_t progress)
{
	s->paced = progress;
	s->paced_ms = loop_now_ms(gate_loop(s->r->gate));
}

/*
 * A message that has begun goes on in time, as the body of a request does.
 * What is between its bytes, pings and empty fragments, is nothing of it.
 */
static void
sock_watch(struct websock *s)
{
	uint64_t progress;
	bool unfinished = websocket_unfinished(s->ws, &progress);

	if (s->over || s->closing)
		return;
	if (!unfinished && s->unfinished)
		loop_timer_stop(s->late);
	else if (unfinished && (!s->unfinished || progress != s->progress))
		sock_late_set(s);
	if (!s->unfinished)
		sock_pace_begin(s, progress);
	s->unfinished = unfinished;
	s->progress = progress;
}

/*
 * Bytes may come regularly, and so few that the message never ends.  False: it
 * is being closed.
 */
static bool
sock_keeps_pace(struct websock *s)
{
	const struct conf_limits *l = &s->r->location->limits;
	uint64_t past = loop_now_ms(gate_loop(s->r->gate)) - s->paced_ms;

	if (!s->unfinished || past < l->client_body_timeout_ms)
		return true;
	/* what waits for us is no fault of the peer's */
	if (sock_reads(s) &&
	    s->progress - s->paced < past * l->client_body_rate / 1000)
		return false;
	sock_pace_begin(s, s->progress);
	return true;
}

/* Its episode may have gathered as much as it may. */
static bool
sock_fits(struct websock *s)
{
	sock_count(s, websocket_gathered(s->ws));
	return s->counted == 0 ||
	    s->port->body_bytes <=
	    gate_port_bodies(s->port, s->params->message_max);
}

static void sock_on_turn(void *arg);

/* After bytes were fed. */
static void
sock_look(struct websock *s)
{
	if (s->over || s->closing)
		return;
	if (!sock_keeps_pace(s)) {
		if (s->r->outcome == NULL)
			s->r->outcome = "timeout";
		websock_close(s, WEBSOCKET_POLICY,
		    VIEW("the message came too slowly: see client_body_rate"));
	} else if (!sock_fits(s)) {
		admission_refused(s->r->gate->admission, ADMISSION_PART);
		websock_close(s, WEBSOCKET_AGAIN_LATER,
		    VIEW("too much of this episode is held: see "
			 "max_body_bytes_in_flight"));
	} else if (websocket_waits(s->ws) && s->turn.lane == NULL) {
		heavy_wait(s->r->gate->heavy, &s->port->heavy, &s->turn);
	}
}

static void
sock_feed(struct websock *s, struct view data)
{
	/* closed() tells of it */
	if (websocket_feed(s->ws, data) == SP_E_PROTO && s->r->outcome == NULL)
		s->r->outcome = "malformed";
	sock_watch(s);
	sock_look(s);
	sock_credit(s);
}

static void
sock_on_turn(void *arg)
{
	struct websock *s = arg;

	/* paused meanwhile: it waits anew after that */
	if (s->over || !websocket_waits(s->ws))
		return;
	s->depth++;
	websocket_turn(s->ws);
	sock_feed(s, VIEW_NONE);
	sock_leave(s);
}

void
websock_on_body(struct websock *s, struct view data)
{
	if (s == NULL || s->over)
		return;
	s->depth++;
	s->alive = true;
	s->owed += data.n;
	sock_feed(s, data);
	sock_leave(s);
}

void
websock_on_body_end(struct websock *s)
{
	if (s == NULL || s->over)
		return;
	/* no close frame came: nobody waits for what is queued */
	s->depth++;
	buf_clear(&s->out);
	sock_over(s, WEBSOCKET_ABNORMAL, true);
	sock_leave(s);
}

/* What has room now moves on. */
static void
sock_pump(struct websock *s)
{
	struct exchange *x = s->r->x;
	size_t n = exchange_room(x);

	if (n > buf_len(&s->out))
		n = buf_len(&s->out);
	if (n == 0)
		return;
	if (exchange_data(x, view_sub(buf_view(&s->out), 0, n)) != 0) {
		sock_over_soon(s, WEBSOCKET_ABNORMAL, false);
		return;
	}
	buf_consume(&s->out, n);
	if (buf_len(&s->out) == 0)
		buf_reset(&s->out, 0);
}

void
websock_on_room(struct websock *s)
{
	if (s == NULL || s->over || s->code != 0)
		return;
	s->depth++;
	s->alive = true;
	sock_pump(s);
	if (s->tight && sock_half_free(s)) {
		s->tight = false;
		if (!s->closing && s->events != NULL && s->events->room != NULL)
			s->events->room(s->arg);
	}
	sock_credit(s);
	sock_leave(s);
}

void
websock_on_gone(struct websock *s, enum exchange_gone why)
{
	if (s == NULL || s->over)
		return;
	s->depth++;
	sock_over(s,
	    why == EXCHANGE_GONE_SHUTDOWN ? WEBSOCKET_GOING_AWAY
					  : WEBSOCKET_ABNORMAL,
	    false);
	sock_leave(s);
}

/* ---- from the websocket ---------------------------------------------------
 */

static void
sock_message(void *arg, bool text, struct view data)
{
	struct websock *s = arg;

	if (s->events != NULL && s->code == 0)
		s->events->message(s->arg, text, data);
}

static void
sock_arm(struct websock *s)
{
	if (s->closing || s->over || s->params->ping_ms == 0)
		return;
	s->due = SOCK_PING;
	loop_timer_set(s->timer, s->params->ping_ms);
}

static void
sock_pong(void *arg)
{
	struct websock *s = arg;

	if (s->due == SOCK_PONG)
		sock_arm(s);
}

static void
sock_closed(void *arg, unsigned code, struct view reason)
{
	struct websock *s = arg;

	(void)reason;
	/* our close, or the answer to the peer's, is queued */
	sock_over(s, code, true);
}

/* ---- time -----------------------------------------------------------------
 */

static void
sock_ping(struct websock *s)
{
	if (websocket_ping(s->ws) != 0)
		return; /* its end is on the way */
	if (s->params->pong_ms == 0) {
		sock_arm(s);
		return;
	}
	s->alive = false;
	s->due = SOCK_PONG;
	loop_timer_set(s->timer, s->params->pong_ms);
}

/*
 * No pong: the peer is gone, unless it does something, or the pong waits where
 * nothing is read.
 */
static void
sock_no_pong(struct websock *s)
{
	if (s->alive || s->owed != 0) {
		s->alive = false;
		loop_timer_set(s->timer, s->params->pong_ms);
		return;
	}
	sock_over(s, WEBSOCKET_ABNORMAL, false);
}

static void
sock_timeout(void *arg)
{
	struct websock *s = arg;

	s->depth++;
	switch (s->due) {
	case SOCK_PING:
		sock_ping(s);
		break;
	case SOCK_PONG:
		sock_no_pong(s);
		break;
	case SOCK_CLOSE:
		sock_over(s, WEBSOCKET_ABNORMAL, false);
		break;
	}
	sock_leave(s);
}

static void
sock_late(void *arg)
{
	struct websock *s = arg;

	/* nothing of the peer's is read: it is not to blame */
	if (s->owed != 0) {
		sock_late_set(s);
		return;
	}
	if (s->r->outcome == NULL)
		s->r->outcome = "timeout";
	websock_close(s, WEBSOCKET_POLICY, VIEW("the message came too slowly"));
}

/* What a call of the module's left to do. */
static void
sock_task(void *arg)
{
	struct websock *s = arg;

	if (s->over)
		return;
	s->depth++;
	if (s->code != 0)
		sock_over(s, s->code, s->graceful);
	else
		sock_feed(s, VIEW_NONE);
	sock_leave(s);
}

/* ---- what the module says -------------------------------------------------
 */

void
websock_close(struct websock *s, unsigned code, struct view reason)
{
	if (s->over || s->closing || s->code != 0)
		return;
	s->closing = true;
	heavy_leave(&s->turn);
	loop_timer_stop(s->late);
	s->due = SOCK_CLOSE;
	loop_timer_set(s->timer, SOCK_CLOSE_MS);
	/* a failure ends it soon */
	(void)!websocket_close(s->ws, code, reason);
	/* what waits is dropped, so that the peer's answer can come */
	websocket_pause(s->ws, false);
	loop_task_post(s->task);
}

void
websock_pause(struct websock *s, bool on)
{
	if (s->over || s->closing)
		return;
	websocket_pause(s->ws, on);
	if (!on)
		loop_task_post(s->task);
}

void
websock_drop(struct websock *s, unsigned code)
{
	if (s == NULL || s->over)
		return;
	s->events = NULL;
	websock_close(s, code, VIEW_NONE);
}

void
websock_on_expire(struct websock *s, enum gate_expiry why)
{
	if (s == NULL || s->over)
		return;
	if (why == GATE_EXPIRE_DRAIN) {
		websock_close(s, WEBSOCKET_GOING_AWAY, VIEW("going away"));
		return;
	}
	/* what it holds is needed now: what waits is not sent any more */
	if (buf_len(&s->out) == 0 &&
	    websocket_close(s->ws, WEBSOCKET_AGAIN_LATER,
		VIEW("out of memory")) == 0)
		sock_over_soon(s, WEBSOCKET_AGAIN_LATER, true);
	else
		sock_over_soon(s, WEBSOCKET_AGAIN_LATER, false);
}

/* ---- the handshake --------------------------------------------------------
 */

static const struct websocket_owner sock_owner = {
	.message = sock_message,
	.write = sock_write,
	.pong = sock_pong,
	.closed = sock_closed,
};

static bool
sock_offered(const struct head_fields *fields, struct view protocol)
{
	struct view name = VIEW("sec-websocket-protocol");
	size_t i;

	for (i = 0; protocol.n != 0 && i < fields->n; i++)
		if (view_eq_nocase(fields->v[i].name, name) &&
		    head_list_has(fields->v[i].value, protocol))
			return true;
	return false;
}

/* Source: RFC 6455 s4.2.2; over HTTP/2 there is no key (RFC 8441 s5). */
static int
sock_upgrade(struct exchange *x, struct view protocol)
{
	char accept[WEBSOCKET_ACCEPT_BYTES];
	struct head_field v[2];
	struct head_reply head = { .content_length = -1,
		.fields = { .v = v, .cap = 2 } };
	struct view key =
	    head_get(&x->request.fields, VIEW("sec-websocket-key"));
	int rc = 0;

	if (!view_eq(x->request.method, VIEW("CONNECT"))) {
		rc = websocket_accept(key, accept);
		v[head.fields.n++] =
		    (struct head_field){ VIEW("Sec-WebSocket-Accept"),
			    view_of(accept, sizeof(accept)) };
	}
	if (sock_offered(&x->request.fields, protocol))
		v[head.fields.n++] =
		    (struct head_field){ VIEW("Sec-WebSocket-Protocol"),
			    protocol };
	return rc != 0 ? rc : exchange_upgrade(x, &head);
}

static struct websock *
sock_new(struct gate_request *r, const struct websock_params *params)
{
	struct loop *l = gate_loop(r->gate);
	struct websock *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->r = r;
	s->params = params;
	s->port = r->gate->ports[r->x->listener];
	s->turn.serve = sock_on_turn;
	s->turn.arg = s;
	buf_init(&s->out, params->queue_max + SOCK_CONTROL_BYTES);
	s->timer = loop_timer_new(l, sock_timeout, s);
	s->late = loop_timer_new(l, sock_late, s);
	s->task = loop_task_new(l, sock_task, s);
	if (s->timer == NULL || s->late == NULL || s->task == NULL ||
	    websocket_new(WEBSOCKET_SERVER, params->message_max, &sock_owner, s,
		&s->ws) != 0) {
		sock_free(s);
		return NULL;
	}
	websocket_set_large(s->ws, HEAVY_BYTES);
	return s;
}

int
websock_accept(struct gate_request *r, const struct websock_params *params,
    const struct websock_events *events, void *arg, struct websock **out)
{
	struct exchange *x = r->x;
	struct websock *s;
	int rc;

	if (x == NULL)
		return SP_E_GONE;
	if (r->websock != NULL || x->state != EXCHANGE_REQUEST ||
	    websocket_asked(&x->request) != 0)
		return SP_E_STATE;
	s = sock_new(r, params);
	if (s == NULL)
		return SP_E_NOMEM;
	rc = sock_upgrade(x, params->protocol);
	if (rc != 0) {
		sock_free(s);
		return rc;
	}
	s->events = events;
	s->arg = arg;
	r->websock = s;
	/* RFC 9110 s15.2.2, RFC 8441 s5 */
	r->status = view_eq(x->request.method, VIEW("CONNECT")) ? 200 : 101;
	sock_arm(s);
	/* over HTTP/2 the client's side may have ended already */
	if (x->request_whole)
		sock_over_soon(s, WEBSOCKET_ABNORMAL, true);
	*out = s;
	return 0;
}
