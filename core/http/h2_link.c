#include "config.h"

#include "base/log.h"
#include "base/mem.h"
#include "http/h2_link.h"

enum {
	LINK_FLUSH_ROUNDS = 8, /* writes of one connection in one turn */
	LINK_READ_ROUNDS = 8,
	LINK_STREAMS_GUESS = 100, /* RFC 9113 s6.5.2 asks for no less */
};

static uint64_t
link_now_ms(const struct h2_link *c)
{
	return loop_now_ms(c->client->loop);
}

void
h2_link_mark(struct h2_call *s)
{
	if (!s->dirty) {
		s->dirty = true;
		TAILQ_INSERT_TAIL(&s->conn->dirty_calls, s, dirty_link);
	}
	h2_client_mark(s->conn);
}

/* ---- floods ---------------------------------------------------------------
 */

void
h2_link_breach(struct h2_link *c)
{
	if (c->breach != NULL && c->settled)
		return;
	c->breach = c->settled ? "the server breaks HTTP/2"
			       : "the server does not speak HTTP/2; see "
				 "\"http2\" of the upstream";
}

/* RFC 9113 s5.4.1, s10.5. */
void
h2_link_condemn(struct h2_link *c, uint32_t code, const char *breach)
{
	if (c->condemned)
		return;
	c->condemned = true;
	c->breach = breach;
	/* without memory it is closed without a word */
	(void)nghttp2_session_terminate_session(c->session, code);
	h2_client_mark(c);
}

void
h2_link_idle_frame(struct h2_link *c, uint32_t cost)
{
	if (!h2_conn_take(&c->idle, link_now_ms(c), cost, H2_IDLE_BURST,
		H2_IDLE_RATE))
		h2_link_condemn(c, NGHTTP2_ENHANCE_YOUR_CALM,
		    "the server sends too many HTTP/2 frames for nothing");
}

/* ---- calls ----------------------------------------------------------------
 */

/* RFC 9113 s5.1.2; what the server allows may have become less. */
bool
h2_link_has_room(const struct h2_link *c)
{
	uint32_t max = nghttp2_session_get_remote_settings(c->session,
	    NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);

	/* its SETTINGS are on their way: as many as the last one allowed */
	if (!c->settled)
		max = c->client->streams_max != 0 ? c->client->streams_max
						  : LINK_STREAMS_GUESS;
	if (max > H2_LINK_STREAMS_MAX)
		max = H2_LINK_STREAMS_MAX;
	return !c->dead && !c->condemned && !c->going && c->calls_n < max &&
	    nghttp2_session_check_request_allowed(c->session) != 0;
}

struct h2_call *
h2_link_reserve(struct h2_link *c)
{
	struct h2_call *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->conn = c;
	/* a window of bytes, and what one frame may exceed it */
	buf_init(&s->in, H2_LINK_STREAM_WINDOW + (64 << 10));
	if (c->calls_n++ == 0) {
		c->kept = c->requests != 0;
		c->heard = false;
	}
	c->idle_at_ms = 0;
	c->client->stats.streams++;
	TAILQ_INSERT_TAIL(&c->calls, s, link);
	return s;
}

static void
link_unsend(struct h2_call *s)
{
	if (s->sending)
		TAILQ_REMOVE(&s->conn->sending, s, sending_link);
	s->sending = false;
}

static void
link_free_call(struct h2_call *s)
{
	struct h2_link *c = s->conn;

	link_unsend(s);
	TAILQ_REMOVE(&c->calls, s, link);
	if (s->dirty)
		TAILQ_REMOVE(&c->dirty_calls, s, dirty_link);
	c->calls_n--;
	c->client->stats.streams--;
	buf_clear(&s->in);
	mem_free(s);
}

/*
 * RFC 9113 s5.1: what its window lets a server send is on its way, perhaps,
 * and not for nothing: it has not heard of the end.  (Twice, for the heads of
 * small frames.)
 */
static void
link_expect(struct h2_link *c, int32_t id)
{
	int32_t left =
	    nghttp2_session_get_stream_local_window_size(c->session, id);

	if (left > 0)
		c->untold -= 2 * (int64_t)left;
}

void
h2_link_reset(struct h2_call *s, uint32_t code)
{
	struct h2_link *c = s->conn;

	if (s->id == 0)
		s->closed = true;
	if (s->reset || s->closed)
		return;
	s->reset = true;
	/*
	 * nghttp2 drops HEADERS that wait for the server to allow a stream,
	 * but says so only when it does, which may be never.
	 */
	if (!s->began)
		s->closed = nghttp2_session_set_stream_user_data(c->session,
				s->id, NULL) == 0;
	else
		link_expect(c, s->id);
	if (nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id,
		code) != 0)
		h2_link_condemn(c, NGHTTP2_INTERNAL_ERROR, err_str(SP_E_NOMEM));
	h2_client_mark(c);
}

void
h2_link_fault(struct h2_call *s, enum h2_call_failure why, const char *text,
    uint32_t code)
{
	if (s->fault == 0 && s->phase != H2_CALL_ENDED) {
		s->fault = why;
		s->text = text;
	}
	h2_link_reset(s, code);
	h2_link_mark(s);
}

/*
 * A server that was given up may be gone without a word, and others would
 * wait for it in vain: it has to show that it lives.
 */
static void
link_doubt(struct h2_link *c)
{
	if (c->ping_at_ms != 0 || c->condemned)
		return;
	if (nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL) != 0)
		return;
	c->ping_at_ms = link_now_ms(c) + H2_LINK_PING_MS;
}

void
h2_link_leave(struct h2_call *s)
{
	struct h2_link *c = s->conn;

	s->left = true;
	s->owner = NULL;
	s->stopped = true;
	buf_clear(&s->in);
	link_unsend(s);
	if (!s->closed && !c->dead) {
		if (s->phase != H2_CALL_ENDED && s->id != 0 && s->fault == 0)
			link_doubt(c);
		/* RFC 9113 s8.1: after the reply the rest is of no use */
		h2_link_reset(s,
		    s->phase == H2_CALL_ENDED ? NGHTTP2_NO_ERROR
					      : NGHTTP2_CANCEL);
	}
	h2_link_mark(s);
}

/* ---- what is due ----------------------------------------------------------
 */

/* The window opens as the owner takes the bytes (RFC 9113 s5.2.2). */
static void
link_hand_on(struct h2_call *s)
{
	struct h2_link *c = s->conn;
	struct view v;

	while (s->owner != NULL && !s->paused && buf_len(&s->in) != 0) {
		v = view_sub(buf_view(&s->in), 0, LOOP_SCRATCH_BYTES);
		s->owner->body(s->arg, v);
		if (s->left)
			return;
		buf_consume(&s->in, v.n);
		if (!s->closed &&
		    nghttp2_session_consume_stream(c->session, s->id, v.n) ==
			NGHTTP2_ERR_NOMEM)
			h2_link_fault(s, H2_CALL_NOMEM, err_str(SP_E_NOMEM),
			    NGHTTP2_INTERNAL_ERROR);
	}
	if (buf_len(&s->in) == 0)
		buf_reset(&s->in, 0);
}

static void
link_settle_call(struct h2_call *s)
{
	const struct h2_call_owner *owner;

	link_hand_on(s);
	owner = s->owner;
	if (owner != NULL && buf_len(&s->in) == 0 && s->phase != H2_CALL_ROOM) {
		if (s->fault != 0) {
			s->owner = NULL;
			owner->fail(s->arg, s->fault, s->text);
		} else if (s->phase == H2_CALL_ENDED && !s->paused) {
			s->owner = NULL;
			owner->end(s->arg);
		}
	}
	if (s->left && s->closed)
		link_free_call(s);
}

static void
link_settle(struct h2_link *c)
{
	struct h2_call_list now;
	struct h2_call *s;

	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &c->dirty_calls, dirty_link);
	while ((s = TAILQ_FIRST(&now)) != NULL) {
		TAILQ_REMOVE(&now, s, dirty_link);
		s->dirty = false;
		link_settle_call(s);
	}
}

/* ---- the connection's end -------------------------------------------------
 */

static void
link_lose_call(struct h2_call *s, const char *text)
{
	const struct h2_link *c = s->conn;

	s->closed = true;
	if (s->fault == 0 && s->phase != H2_CALL_ENDED) {
		s->text = text;
		if (c->breach != NULL)
			s->fault = H2_CALL_MALFORMED;
		else if (!s->began || c->out_done <= s->first_at)
			s->fault = H2_CALL_REFUSED; /* no byte of it left */
		else if (c->kept && !c->heard)
			s->fault = H2_CALL_STALE;
		else
			s->fault = H2_CALL_BROKEN;
	}
	h2_link_mark(s);
}

static int
link_fill(struct h2_link *c)
{
	const uint8_t *p;
	ssize_t n;

	while (!c->mute && buf_len(&c->out) < H2_LINK_OUT_MAX) {
		n = nghttp2_session_mem_send(c->session, &p);
		if (n == 0)
			break;
		c->mute = n < 0 || buf_add(&c->out, p, (size_t)n) != 0;
		if (!c->mute)
			c->out_all += (size_t)n;
	}
	return c->mute ? SP_E_NOMEM : 0;
}

static int
link_write(struct h2_link *c, bool *more)
{
	struct iovec iov;
	size_t done = 0;
	int rc;

	*more = false;
	if (buf_len(&c->out) == 0)
		return 0;
	iov.iov_base = c->out.mem + c->out.off;
	iov.iov_len = buf_len(&c->out);
	rc = stream_writev(c->stream, &iov, 1, &done);
	if (rc != 0)
		return rc == SP_E_AGAIN ? 0 : rc;
	buf_consume(&c->out, done);
	c->out_done += done;
	*more = done != 0;
	return 0;
}

void
h2_link_lost(struct h2_link *c, const char *text)
{
	struct h2_call *s;
	bool more;

	if (c->dead)
		return;
	/* GOAWAY, as far as it goes without waiting */
	if (!c->condemned)
		(void)nghttp2_session_terminate_session(c->session,
		    NGHTTP2_NO_ERROR);
	if (link_fill(c) == 0)
		(void)!link_write(c, &more);
	if (c->breach != NULL) {
		c->client->stats.broken++;
		log_warn("upstream \"%s\": HTTP/2 with %s ended: %s",
		    c->client->name, stream_peer(c->stream), c->breach);
	}
	TAILQ_FOREACH (s, &c->calls, link)
		link_lose_call(s, c->breach != NULL ? c->breach : text);
	h2_client_bury(c, c->calls_n == 0);
}

/* Neither side goes on with it. */
static void
link_check_end(struct h2_link *c)
{
	bool idle = c->calls_n == 0;

	if (c->condemned) {
		h2_link_lost(c, c->breach);
	} else if (nghttp2_session_want_read(c->session) == 0) {
		/* with calls: nghttp2 has ended it */
		if (!idle && !c->going)
			h2_link_breach(c);
		h2_link_lost(c, "the server ended the connection");
	} else if (idle &&
	    (c->client->keepalive_timeout_ms == 0 || !h2_link_has_room(c))) {
		/* of no use any more: GOAWAY, or no stream is allowed */
		h2_link_lost(c, "");
	}
}

/* ---- from the loop --------------------------------------------------------
 */

/* Calls whose bytes the socket has taken. */
static void
link_tell_sent(struct h2_link *c)
{
	struct h2_call *s, *next;
	bool whole;

	for (s = TAILQ_FIRST(&c->sending); s != NULL; s = next) {
		next = TAILQ_NEXT(s, sending_link);
		if (s->next_at == 0 || s->next_at > c->out_done)
			continue;
		s->next_at = s->mark_at > c->out_done ? s->mark_at : 0;
		whole = s->framed && s->next_at == 0;
		if (whole)
			link_unsend(s);
		if (s->owner != NULL)
			s->owner->sent(s->arg, whole);
	}
}

static int
link_flush(struct h2_link *c)
{
	bool more = true;
	int i, rc = 0;

	for (i = 0; i < LINK_FLUSH_ROUNDS && more && rc == 0; i++) {
		rc = link_fill(c);
		if (rc == 0)
			rc = link_write(c, &more);
	}
	if (buf_len(&c->out) == 0)
		buf_reset(&c->out, 0);
	return rc;
}

static void
link_arm(struct h2_link *c)
{
	uint64_t now = link_now_ms(c), at = c->ping_at_ms;
	uint64_t keep = c->client->keepalive_timeout_ms;

	if (c->calls_n != 0)
		c->idle_at_ms = 0;
	else if (c->idle_at_ms == 0)
		c->idle_at_ms = now + keep;
	if (c->idle_at_ms != 0 && (at == 0 || c->idle_at_ms < at))
		at = c->idle_at_ms;
	if (at != 0)
		loop_timer_set(c->timer, at > now ? at - now : 1);
	else
		loop_timer_stop(c->timer);
}

static void
link_update(struct h2_link *c)
{
	unsigned want = STREAM_READ;

	if (buf_len(&c->out) != 0 ||
	    nghttp2_session_want_write(c->session) != 0)
		want |= STREAM_WRITE;
	stream_want(c->stream, want);
	link_arm(c);
}

static void
link_input(struct h2_link *c, struct view v)
{
	ssize_t n;

	c->heard = true;
	c->ping_at_ms = 0;
	n = nghttp2_session_mem_recv(c->session, (const uint8_t *)v.p, v.n);
	if (n < 0) {
		if (n != NGHTTP2_ERR_NOMEM)
			h2_link_breach(c);
		h2_link_lost(c, err_str(SP_E_NOMEM));
		return;
	}
	/* extensions, and frames of calls that were given up */
	c->untold += (int64_t)v.n;
	if (c->untold >= H2_IDLE_BYTES) {
		h2_link_idle_frame(c, (uint32_t)(c->untold / H2_IDLE_BYTES));
		c->untold %= H2_IDLE_BYTES;
	}
	h2_client_mark(c);
}

/* False when there is no more for now. */
static bool
link_read(struct h2_link *c)
{
	char *p = loop_scratch(c->client->loop);
	size_t n;
	int rc = stream_read(c->stream, p, LOOP_SCRATCH_BYTES, &n);

	if (rc == 0 && !c->condemned)
		link_input(c, view_of(p, n));
	else if (rc != 0 && rc != SP_E_AGAIN)
		h2_link_lost(c,
		    rc == SP_E_EOF ? "the server closed the connection"
				   : err_str(rc));
	return rc == 0 && !c->dead && !c->condemned;
}

/*
 * What has come is read before anything is written: a server that has closed
 * answers with a reset, and what it had sent before, the end of replies and
 * GOAWAY, would be lost with it.
 */
static void
link_read_first(struct h2_link *c)
{
	int i;

	for (i = 0; i < LINK_READ_ROUNDS; i++)
		if (!link_read(c))
			break;
}

void
h2_link_turn(struct h2_link *c)
{
	int rc;

	link_settle(c);
	if (!c->dead && !c->condemned &&
	    (buf_len(&c->out) != 0 ||
		nghttp2_session_want_write(c->session) != 0))
		link_read_first(c);
	if (c->dead)
		return;
	rc = link_flush(c);
	link_tell_sent(c);
	if (rc != 0)
		h2_link_lost(c, err_str(rc));
	link_settle(c);
	if (!c->dead)
		link_check_end(c);
	if (!c->dead)
		link_update(c);
}

void
h2_link_ready(void *arg, struct stream *s, unsigned what)
{
	struct h2_link *c = arg;

	if (what & STREAM_FAIL) {
		h2_link_lost(c, err_str(stream_error(s)));
		return;
	}
	if (what & STREAM_READ)
		(void)link_read(c);
	/* writing waits for the end of the turn, with what else is queued */
	if (!c->dead)
		h2_client_mark(c);
}

void
h2_link_deadline(void *arg)
{
	struct h2_link *c = arg;
	uint64_t now = link_now_ms(c);

	if (c->ping_at_ms != 0 && c->ping_at_ms <= now)
		h2_link_lost(c, "the server does not answer any more");
	else if (c->idle_at_ms != 0 && c->idle_at_ms <= now && c->calls_n == 0)
		h2_link_lost(c, "");
	else
		link_arm(c);
}

int
h2_link_start(struct h2_link *c)
{
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_LINK_STREAM_WINDOW },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
		    (uint32_t)c->client->header_max },
	};

	c->idle = (struct h2_bucket){ H2_IDLE_BURST, link_now_ms(c) };
	if (nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings,
		sizeof(settings) / sizeof(settings[0])) != 0 ||
	    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE,
		0, H2_LINK_WINDOW) != 0)
		return SP_E_NOMEM;
	return 0;
}
