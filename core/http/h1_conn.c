#include "config.h"

#include "http/h1_conn.h"

enum {
	CONN_PIPELINE_MAX = 16 * 1024, /* of requests that wait for this one */
	CONN_ARENA_EXTRA = 256 * 1024, /* for the consumer, over the head */
};

static uint64_t
conn_now_ms(const struct h1_conn *c)
{
	return loop_now_ms(c->server->loop);
}

uint64_t
h1_conn_after(const struct h1_conn *c, uint64_t in_ms)
{
	return in_ms != 0 ? conn_now_ms(c) + in_ms : 0;
}

static void
conn_idle(struct h1_conn *c, uint64_t timeout_ms)
{
	c->phase = H1_IDLE;
	c->scan = (struct h1_scan){ 0 };
	c->read_at_ms = h1_conn_after(c, timeout_ms);
}

/* Our side is shut; the rest is read so that no reset overtakes the reply. */
static void
conn_linger(struct h1_conn *c)
{
	if (c->in_eof) {
		h1_server_kill(c, true);
		return;
	}
	stream_shutdown(c->stream);
	c->phase = H1_LINGER; /* RFC 9112 s9.6 */
	buf_reset(&c->in, 0);
	c->read_at_ms = h1_conn_after(c, H1_LINGER_MS);
	h1_server_mark(c);
}

/* ---- deadlines and wants --------------------------------------------------
 */

static uint64_t
conn_nearest(const struct h1_conn *c)
{
	const uint64_t at[] = { c->read_at_ms, c->send_at_ms, c->probe_at_ms };
	uint64_t best = 0;
	size_t i;

	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		if (at[i] != 0 && (best == 0 || at[i] < best))
			best = at[i];
	return best;
}

static bool
conn_body_wanted(const struct h1_conn *c)
{
	return c->phase == H1_OPEN && !c->x.request_whole && c->window != 0;
}

/* The body's deadline runs while bytes are asked for, from the last ones on. */
static void
conn_body_deadline(struct h1_conn *c)
{
	if (!conn_body_wanted(c) || c->continue_due || c->aborting ||
	    c->x.patient) {
		c->read_at_ms = 0;
	} else if (c->read_at_ms == 0 || c->progress) {
		c->read_at_ms = h1_conn_after(c, c->limits->body_timeout_ms);
	}
	c->progress = false;
}

/* How many bytes may be read now, 0 none. */
static size_t
conn_read_max(const struct h1_conn *c)
{
	size_t have = buf_len(&c->in);

	if (c->in_eof)
		return 0;
	switch (c->phase) {
	case H1_IDLE:
	case H1_HEAD:
	case H1_DRAIN:
	case H1_LINGER:
		return LOOP_SCRATCH_BYTES;
	case H1_OPEN:
		/* what is read of a body can be handed on at once */
		if (conn_body_wanted(c))
			return c->window < LOOP_SCRATCH_BYTES
			    ? (size_t)c->window
			    : LOOP_SCRATCH_BYTES;
		if (!c->x.request_whole || have >= CONN_PIPELINE_MAX)
			return 0;
		return CONN_PIPELINE_MAX - have;
	case H1_FLUSH:
	case H1_DEAD:
		return 0;
	}
	return 0;
}

/* Wants and the timer, after anything may have changed. */
static void
conn_update(struct h1_conn *c)
{
	uint64_t now = conn_now_ms(c), at;
	unsigned want = 0;

	if (c->phase == H1_DEAD)
		return;
	if (c->phase == H1_OPEN)
		conn_body_deadline(c);
	if (conn_read_max(c) != 0)
		want |= STREAM_READ;
	if (buf_len(&c->out) != 0)
		want |= STREAM_WRITE;
	stream_want(c->stream, want);
	at = conn_nearest(c);
	if (at != 0)
		loop_timer_set(c->timer, at > now ? at - now : 0);
	else
		loop_timer_stop(c->timer);
}

/* ---- the end of an exchange -----------------------------------------------
 */

static void
conn_close_exchange(struct h1_conn *c)
{
	arena_free(c->x.arena);
	c->x.arena = NULL;
	c->server->stats.exchanges--;
	c->probe_at_ms = c->probe_ms = 0;
	c->broken = 0;
	c->aborting = false;
	c->blocked = false;
}

/* May the codec itself still answer? */
static bool
conn_can_refuse(const struct h1_conn *c, enum exchange_gone why)
{
	return (why == EXCHANGE_GONE_TIMEOUT ||
		   why == EXCHANGE_GONE_MALFORMED) &&
	    c->x.state == EXCHANGE_REQUEST && buf_len(&c->out) == 0;
}

void
h1_conn_gone(struct h1_conn *c, enum exchange_gone why)
{
	bool refuse;

	if (c->phase != H1_OPEN) {
		h1_server_kill(c, why == EXCHANGE_GONE_SHUTDOWN);
		return;
	}
	refuse = conn_can_refuse(c, why);
	c->phase = H1_FLUSH;
	c->x.consumer->gone(&c->x, why);
	conn_close_exchange(c);
	if (refuse && why == EXCHANGE_GONE_TIMEOUT)
		h1_reply_refuse(c, 408, HEAD_BODY_SLOW);
	else if (refuse)
		h1_reply_refuse(c, 400, "malformed request body");
	else
		h1_server_kill(c, false);
}

/*
 * An abort, with everything before it sent.  A reply that says where it ends
 * shows that it is not whole when the connection ends instead; one that ends
 * with the connection shows it only by a reset.
 */
static void
conn_aborted(struct h1_conn *c)
{
	bool reset = c->to_close && c->x.state == EXCHANGE_HEAD;

	c->phase = H1_FLUSH;
	c->x.consumer->gone(&c->x, EXCHANGE_GONE_RESET);
	conn_close_exchange(c);
	if (reset)
		h1_server_kill(c, false);
	else
		conn_linger(c);
}

/* The reply is out. */
static void
conn_done(struct h1_conn *c)
{
	bool whole = c->x.request_whole;

	c->phase = H1_FLUSH;
	c->x.consumer->done(&c->x);
	conn_close_exchange(c);
	if (!c->keep || (c->server->draining && whole) ||
	    (c->in_eof && buf_len(&c->in) == 0)) {
		conn_linger(c);
	} else if (!whole) {
		c->phase = H1_DRAIN;
		c->drained = 0;
		c->read_at_ms = h1_conn_after(c, c->limits->body_timeout_ms);
	} else {
		conn_idle(c, c->limits->keepalive_timeout_ms);
	}
}

/* ---- requests -------------------------------------------------------------
 */

/* Everything of one exchange, in one arena; the head's bytes among it. */
static int
conn_parse(struct h1_conn *c, struct view head, struct h1_framing *framing,
    struct h1_fault *fault)
{
	const struct h1_limits *l = c->limits;
	struct exchange *x = &c->x;
	struct view copy;
	int rc;

	x->arena = arena_new((size_t)(l->header_max * 2 +
				 l->header_max_n * sizeof(struct head_field)) +
	    CONN_ARENA_EXTRA);
	if (x->arena == NULL)
		return SP_E_NOMEM;
	rc = arena_dup(x->arena, head, &copy);
	x->request.tls = stream_is_tls(c->stream);
	if (rc == 0)
		rc = h1_parse_request(copy, &c->scan, x->arena, &x->request,
		    framing, fault);
	if (rc != 0) {
		arena_free(x->arena);
		x->arena = NULL;
	}
	return rc;
}

static void
conn_open(struct h1_conn *c, struct view head)
{
	struct exchange *x = &c->x;
	struct h1_framing framing;
	struct h1_fault fault = { 400, "malformed request" };
	int rc = conn_parse(c, head, &framing, &fault);

	c->read_at_ms = 0;
	if (rc == SP_E_NOMEM) {
		h1_server_kill(c, false);
		return;
	}
	if (rc != 0) {
		h1_reply_refuse(c, fault.status, fault.what);
		return;
	}
	h1_body_init(&c->body, &framing, false);
	c->keep_alive = framing.keep_alive;
	c->continue_due = framing.expect;
	c->window = c->limits->body_window;
	c->chunked = c->to_close = c->keep = false;
	c->requests++;
	c->phase = H1_OPEN;
	x->peer = stream_peer(c->stream);
	x->state = EXCHANGE_REQUEST;
	x->request_whole = false;
	x->sent_bytes = 0;
	x->reply_length = -1;
	x->reply_bodyless = false;
	x->probe = VIEW_NONE;
	x->patient = x->upgraded = false;
	x->user = NULL;
	c->server->stats.exchanges++;
	x->consumer->open(x->server, x);
	h1_server_mark(c);
}

/* Returns the bytes of v that were used. */
static size_t
conn_head(struct h1_conn *c, struct view v)
{
	const struct h1_limits *l = c->limits;
	const struct h1_scan_limits limits = { .line_max = l->header_line_max,
		.total_max = l->header_max,
		.fields_max = l->header_max_n };
	struct h1_fault fault;
	size_t n;
	int rc;

	if (v.n == 0)
		return 0;
	if (c->phase == H1_IDLE) {
		c->x.started_us = loop_now_us(c->server->loop);
		/* an empty line alone begins nothing (RFC 9112 s2.2) */
		if (!view_starts(VIEW("\r\n"), v)) {
			c->phase = H1_HEAD;
			c->read_at_ms = h1_conn_after(c, l->header_timeout_ms);
		}
	}
	rc = h1_parse_scan(&c->scan, v, &limits, &n, &fault);
	if (rc == SP_E_AGAIN)
		return 0;
	if (rc != 0) {
		h1_reply_refuse(c, fault.status, fault.what);
		return v.n;
	}
	conn_open(c, view_sub(v, 0, n));
	return n;
}

/* A piece of the body; false when no more of v can be used now. */
static bool
conn_body(struct h1_conn *c, struct view *v)
{
	/* after the reply's end the rest of the body is read for nobody */
	bool deaf =
	    c->aborting || c->broken != 0 || c->x.state == EXCHANGE_ENDED;
	struct view data;
	int rc;

	if (v->n != 0) {
		c->continue_due = false;
		c->progress = true;
	}
	rc = h1_body_next(&c->body, v, c->window, &data);
	switch (rc) {
	case H1_BODY_DATA:
		if (deaf) {
			c->drained += data.n;
			return true;
		}
		c->window -= data.n;
		c->x.consumer->body(&c->x, data);
		return true;
	case H1_BODY_END:
		c->x.request_whole = true;
		if (!deaf)
			c->x.consumer->body_end(&c->x);
		return true;
	case H1_BODY_MORE:
		/* of an upgraded one the connection's end is the end */
		if (!c->x.upgraded || !c->in_eof)
			return false;
		c->x.request_whole = true;
		if (!deaf)
			c->x.consumer->body_end(&c->x);
		return true;
	case H1_BODY_FULL:
		return false;
	default:
		if (!deaf) {
			h1_conn_gone(c, EXCHANGE_GONE_MALFORMED);
			return true;
		}
		/* the reply may go out, nothing after it */
		c->keep = false;
		c->x.request_whole = true;
		return true;
	}
}

/* The rest of a body whose reply is out; false when no more can be used. */
static bool
conn_drain(struct h1_conn *c, struct view *v)
{
	struct view data;
	int rc = h1_body_next(&c->body, v, UINT64_MAX, &data);

	if (rc == H1_BODY_MORE)
		return false;
	if (rc == H1_BODY_DATA) {
		c->drained += data.n;
		if (c->drained > H1_DRAIN_MAX)
			conn_linger(c);
	} else if (rc == H1_BODY_END && !c->server->draining) {
		conn_idle(c, c->limits->keepalive_timeout_ms);
	} else {
		conn_linger(c);
	}
	return true;
}

/* Uses what can be used of v; returns how much that was. */
static size_t
conn_process(struct h1_conn *c, struct view v)
{
	struct view rest = v;
	size_t used;

	for (;;) {
		switch (c->phase) {
		case H1_IDLE:
		case H1_HEAD:
			used = conn_head(c, rest);
			if (used == 0)
				return v.n - rest.n;
			rest = view_from(rest, used);
			break;
		case H1_OPEN:
			if (c->x.request_whole || !conn_body(c, &rest))
				return v.n - rest.n;
			break;
		case H1_DRAIN:
			if (!conn_drain(c, &rest))
				return v.n - rest.n;
			break;
		case H1_FLUSH:
		case H1_LINGER:
		case H1_DEAD:
			return v.n;
		}
	}
}

static void
conn_input(struct h1_conn *c, struct view v)
{
	size_t used;

	if (buf_len(&c->in) == 0) {
		used = conn_process(c, v);
		v = view_from(v, used);
		if (v.n != 0 && c->phase != H1_DEAD &&
		    buf_add_view(&c->in, v) != 0)
			h1_conn_gone(c, EXCHANGE_GONE_NOMEM);
		return;
	}
	if (buf_add_view(&c->in, v) != 0) {
		h1_conn_gone(c, EXCHANGE_GONE_NOMEM);
		return;
	}
	used = conn_process(c, buf_view(&c->in));
	if (used > buf_len(&c->in))
		used = buf_len(&c->in);
	buf_consume(&c->in, used);
	if (buf_len(&c->in) == 0)
		buf_reset(&c->in, 0);
}

/* Bytes that waited, now that an exchange is over or a window opened. */
static void
conn_resume(struct h1_conn *c)
{
	if (buf_len(&c->in) != 0 ||
	    (c->phase == H1_OPEN && !c->x.request_whole))
		conn_input(c, VIEW_NONE);
}

/* The client's FIN. */
static void
conn_eof(struct h1_conn *c)
{
	c->in_eof = true;
	switch (c->phase) {
	case H1_OPEN:
		if (c->x.upgraded && !c->x.request_whole)
			conn_resume(c);
		else if (!c->x.request_whole)
			h1_conn_gone(c, EXCHANGE_GONE_RESET);
		else
			h1_reply_probe(c);
		break;
	case H1_IDLE:
	case H1_HEAD:
	case H1_DRAIN:
	case H1_LINGER:
		h1_server_kill(c, true);
		break;
	case H1_FLUSH:
	case H1_DEAD:
		break;
	}
}

static void
conn_read(struct h1_conn *c)
{
	char *p = loop_scratch(c->server->loop);
	size_t max = conn_read_max(c), n;
	int rc;

	if (max == 0)
		return;
	rc = stream_read(c->stream, p, max, &n);
	if (rc == 0)
		conn_input(c, view_of(p, n));
	else if (rc == SP_E_EOF)
		conn_eof(c);
	else if (rc != SP_E_AGAIN)
		h1_conn_gone(c, EXCHANGE_GONE_RESET);
}

/* ---- from the loop --------------------------------------------------------
 */

void
h1_conn_start(struct h1_conn *c, struct view first)
{
	conn_idle(c, c->limits->header_timeout_ms);
	if (first.n != 0) {
		conn_input(c, first);
		h1_server_mark(c);
	}
	conn_update(c);
}

void
h1_conn_ready(void *arg, struct stream *s, unsigned what)
{
	struct h1_conn *c = arg;

	(void)s;
	if (c->phase == H1_DEAD)
		return;
	if (what & STREAM_FAIL) {
		h1_conn_gone(c, EXCHANGE_GONE_RESET);
		return;
	}
	if (what & STREAM_READ)
		conn_read(c);
	/* writing waits for the end of the turn, with what else is queued */
	if (c->phase != H1_DEAD)
		h1_server_mark(c);
}

static void
conn_read_timeout(struct h1_conn *c)
{
	c->read_at_ms = 0;
	switch (c->phase) {
	case H1_HEAD:
		h1_reply_refuse(c, 408,
		    "the request head came too slowly: see "
		    "client_header_timeout");
		break;
	case H1_OPEN:
		h1_conn_gone(c, EXCHANGE_GONE_TIMEOUT);
		break;
	case H1_DRAIN:
		conn_linger(c);
		break;
	case H1_IDLE:
	case H1_LINGER:
	case H1_FLUSH:
	case H1_DEAD:
		h1_server_kill(c, true);
		break;
	}
}

void
h1_conn_deadline(void *arg)
{
	struct h1_conn *c = arg;
	uint64_t now = conn_now_ms(c);

	if (c->send_at_ms != 0 && c->send_at_ms <= now)
		h1_conn_gone(c, EXCHANGE_GONE_TIMEOUT);
	if (c->phase != H1_DEAD && c->read_at_ms != 0 && c->read_at_ms <= now)
		conn_read_timeout(c);
	if (c->phase != H1_DEAD && c->probe_at_ms != 0 && c->probe_at_ms <= now)
		h1_reply_probe(c);
	conn_update(c);
}

/* What is due to the consumer once everything queued was written or not. */
static void
conn_settle(struct h1_conn *c)
{
	size_t queued = buf_len(&c->out);

	if (c->phase == H1_FLUSH && queued == 0) {
		conn_linger(c);
		return;
	}
	if (c->phase != H1_OPEN)
		return;
	if (c->aborting && queued == 0) {
		conn_aborted(c);
		return;
	}
	if (c->x.state == EXCHANGE_ENDED) {
		if (queued == 0)
			conn_done(c);
		return;
	}
	if (c->blocked && queued <= c->limits->output_buffer / 2) {
		c->blocked = false;
		c->x.consumer->writable(&c->x);
	}
}

void
h1_conn_turn(struct h1_conn *c)
{
	conn_resume(c);
	if (c->phase == H1_DEAD)
		return;
	if (c->broken != 0) {
		h1_conn_gone(c, c->broken);
		return;
	}
	if (h1_reply_flush(c) != 0) {
		h1_conn_gone(c, EXCHANGE_GONE_RESET);
		return;
	}
	conn_settle(c);
	if (c->phase == H1_DEAD)
		return;
	/* an exchange is over: the next may be here already */
	if (c->phase == H1_IDLE || c->phase == H1_DRAIN)
		conn_resume(c);
	if (c->in_eof &&
	    (c->phase == H1_IDLE || c->phase == H1_HEAD ||
		c->phase == H1_DRAIN))
		h1_server_kill(c, true);
	conn_update(c);
}
