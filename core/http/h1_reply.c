#include "config.h"

#include "http/h1_conn.h"

enum {
	REPLY_FLUSH_ROUNDS = 8, /* writes of one connection in one turn */
	REPLY_PROBE_MS = 1000, /* first repetition of a probe */
	REPLY_PROBE_SOON_MS = 50, /* when nothing could be sent just now */
	REPLY_PROBE_MAX_MS = 15000,
};

/* Out of memory: the consumer learns it now and, as gone(), at the turn's end.
 */
static int
reply_done(struct h1_conn *c, int rc)
{
	if (rc != 0) {
		c->broken = EXCHANGE_GONE_NOMEM;
		rc = SP_E_NOMEM;
	}
	/* exchange_room() is nothing now: writable() is due later */
	if (buf_len(&c->out) >= c->limits->output_buffer)
		c->blocked = true;
	h1_server_mark(c);
	return rc;
}

/* The exchange can still be answered. */
static bool
reply_is_open(const struct h1_conn *c)
{
	return c->phase == H1_OPEN && c->broken == 0 && !c->aborting;
}

static int
reply_interim(struct exchange *x, unsigned status)
{
	struct h1_conn *c = x->back;

	if (!reply_is_open(c))
		return SP_E_GONE;
	/* RFC 9110 s10.1.1: no need to when the body is already coming */
	if (status != 100 || !c->continue_due)
		return 0;
	c->continue_due = false;
	return reply_done(c,
	    buf_add_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n"));
}

/*
 * May the connection live on?  Not when the client may or may not send the
 * body it held back (RFC 9110 s10.1.1), nor when too much of a body would have
 * to be thrown away first.
 */
static bool
reply_may_keep(const struct h1_conn *c)
{
	if (!c->keep_alive || c->server->draining || c->continue_due ||
	    c->limits->keepalive_timeout_ms == 0 ||
	    c->requests >= c->limits->keepalive_requests)
		return false;
	return c->x.request_whole || c->body.kind != H1_BODY_LENGTH ||
	    c->body.left <= H1_DRAIN_MAX;
}

static int
reply_head(struct exchange *x, const struct head_reply *head)
{
	struct h1_conn *c = x->back;
	bool http10 = x->request.http10;
	bool endless = head->content_length < 0 && !x->reply_bodyless;
	struct h1_write_reply form = { .date = h1_server_date(c->server) };

	if (!reply_is_open(c))
		return SP_E_GONE;
	/* RFC 9112 s6.1: chunked is never sent to HTTP/1.0 */
	c->chunked = endless && !http10;
	c->to_close = endless && http10;
	c->keep = reply_may_keep(c) && !c->to_close;
	form.chunked = c->chunked;
	form.close = !c->keep;
	form.keep_alive = c->keep && http10;
	/* RFC 9110 s15.5.22: to what; there is but one */
	if (head->status == 426)
		form.upgrade = VIEW("websocket");
	return reply_done(c, h1_write_reply_head(&c->out, head, &form));
}

/*
 * The connection is the other protocol's from here on, to its end: no chunks,
 * and what the client sent behind its head are that protocol's first bytes.
 */
static int
reply_upgrade(struct exchange *x, const struct head_reply *head)
{
	struct h1_conn *c = x->back;
	struct head_reply switching = *head;
	struct h1_write_reply form = { .date = h1_server_date(c->server),
		/* the list's first is what the consumer speaks */
		.upgrade = VIEW("websocket") };
	const struct h1_framing raw = { .kind = H1_BODY_CLOSE };

	if (!reply_is_open(c))
		return SP_E_GONE;
	if (c->body.kind != H1_BODY_NONE)
		return SP_E_STATE;
	switching.status = 101;
	switching.content_length = -1;
	c->chunked = c->keep = false;
	c->to_close = true;
	h1_body_init(&c->body, &raw, false);
	x->request_whole = false;
	return reply_done(c, h1_write_reply_head(&c->out, &switching, &form));
}

static int
reply_data(struct exchange *x, const struct view *v, size_t n)
{
	struct h1_conn *c = x->back;
	size_t before = buf_len(&c->out), i;
	int rc = 0;

	if (!reply_is_open(c))
		return SP_E_GONE;
	if (c->chunked)
		rc = h1_write_chunk(&c->out, v, n);
	else
		for (i = 0; rc == 0 && i < n; i++)
			rc = buf_add_view(&c->out, v[i]);
	if (rc != 0)
		buf_truncate(&c->out, before);
	return reply_done(c, rc);
}

static int
reply_end(struct exchange *x)
{
	struct h1_conn *c = x->back;

	if (!reply_is_open(c))
		return SP_E_GONE;
	return reply_done(c, c->chunked ? h1_write_last_chunk(&c->out) : 0);
}

static void
reply_reset(struct exchange *x)
{
	struct h1_conn *c = x->back;

	if (!reply_is_open(c))
		return;
	c->aborting = true;
	h1_server_mark(c);
}

static void
reply_credit(struct exchange *x, size_t n)
{
	struct h1_conn *c = x->back;

	if (c->window == 0)
		h1_server_mark(c);
	c->window += n;
}

static size_t
reply_room(const struct exchange *x)
{
	const struct h1_conn *c = x->back;
	size_t queued = buf_len(&c->out);

	return queued < c->limits->output_buffer
	    ? (size_t)c->limits->output_buffer - queued
	    : 0;
}

static size_t
reply_queued(const struct exchange *x)
{
	const struct h1_conn *c = x->back;

	return buf_len(&c->out);
}

static void
reply_drop(struct exchange *x)
{
	struct h1_conn *c = x->back;

	if (c->phase != H1_OPEN)
		return;
	c->broken = EXCHANGE_GONE_NOMEM;
	h1_server_mark(c);
}

const struct exchange_backend h1_reply_backend = {
	.name = "h1",
	.interim = reply_interim,
	.head = reply_head,
	.data = reply_data,
	.end = reply_end,
	.reset = reply_reset,
	.credit = reply_credit,
	.room = reply_room,
	.queued = reply_queued,
	.drop = reply_drop,
	.upgrade = reply_upgrade,
};

void
h1_reply_refuse(struct h1_conn *c, unsigned status, const char *what)
{
	struct view type = VIEW("text/plain");
	struct view body =
	    c->server->error_body(c->server->arg, status, what, &type);
	struct head_field fields[2] = { { VIEW("Content-Type"), type },
		/* RFC 9110 s15.5.6 */
		{ VIEW("Allow"), VIEW("GET, HEAD, POST, OPTIONS") } };
	struct head_reply head = {
		.status = status,
		.content_length = (int64_t)body.n,
		.fields = { .v = fields, .n = status == 405 ? 2 : 1, .cap = 2 }
	};
	struct h1_write_reply form = { .close = true,
		.date = h1_server_date(c->server) };

	c->server->stats.malformed++;
	if (h1_write_reply_head(&c->out, &head, &form) != 0 ||
	    buf_add_view(&c->out, body) != 0) {
		h1_server_kill(c, false);
		return;
	}
	c->phase = H1_FLUSH;
	c->read_at_ms = 0;
	h1_server_mark(c);
}

int
h1_reply_flush(struct h1_conn *c)
{
	uint64_t deadline = c->x.patient && c->phase == H1_OPEN
	    ? 0
	    : h1_conn_after(c, c->limits->send_timeout_ms);
	struct view v;
	struct iovec iov;
	size_t done;
	int i, rc = 0;

	for (i = 0; i < REPLY_FLUSH_ROUNDS && buf_len(&c->out) != 0; i++) {
		v = buf_view(&c->out);
		iov.iov_base = c->out.mem + c->out.off;
		iov.iov_len = v.n;
		rc = stream_writev(c->stream, &iov, 1, &done);
		if (rc != 0 || done == 0)
			break;
		buf_consume(&c->out, done);
		c->send_at_ms = deadline;
	}
	if (buf_len(&c->out) == 0) {
		/* nothing is kept for the time between two events */
		buf_reset(&c->out, 0);
		c->send_at_ms = 0;
	} else if (c->send_at_ms == 0) {
		c->send_at_ms = deadline;
	}
	return rc == SP_E_AGAIN ? 0 : rc;
}

/*
 * A FIN says that the client sends no more.  Whether it still reads, nobody
 * can tell from that: close() and shutdown(SHUT_WR) look the same.  A peer
 * that closed answers the next bytes with a reset, one that half closed takes
 * them; so something harmless is sent.  Before the head of a reply that is
 * "100 Continue", which any client must be ready to read any number of times
 * (RFC 9110 s15.2; never to HTTP/1.0, where there is no such thing, and which
 * is taken for half closed); within a chunked reply it is what the consumer
 * gave for the purpose.  A reply of known length carries nothing of the kind,
 * its own data must do.  Repeated, slower and slower, since a half-closed
 * client that leaves later sends no second FIN.
 */
void
h1_reply_probe(struct h1_conn *c)
{
	struct exchange *x = &c->x;
	uint64_t now = loop_now_ms(c->server->loop);
	int rc = 0;

	c->probe_at_ms = 0;
	if (c->phase != H1_OPEN || !c->in_eof || x->request.http10 ||
	    c->broken != 0 || c->aborting || x->state == EXCHANGE_ENDED)
		return;
	if (c->chunked && x->probe.n == 0) {
		/* within an event: its rest, or the next try, will tell */
		c->probe_at_ms = now + REPLY_PROBE_SOON_MS;
		return;
	}
	if (buf_len(&c->out) == 0) {
		if (x->state == EXCHANGE_REQUEST)
			rc = buf_add_str(&c->out,
			    "HTTP/1.1 100 Continue\r\n\r\n");
		else if (c->chunked)
			rc = h1_write_chunk(&c->out, &x->probe, 1);
	}
	if (rc != 0)
		c->broken = EXCHANGE_GONE_NOMEM;
	c->probe_ms = c->probe_ms == 0 ? REPLY_PROBE_MS : c->probe_ms * 2;
	if (c->probe_ms > REPLY_PROBE_MAX_MS)
		c->probe_ms = REPLY_PROBE_MAX_MS;
	c->probe_at_ms = now + c->probe_ms;
	h1_server_mark(c);
}
