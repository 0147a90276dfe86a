#include "config.h"

#include "base/mem.h"
#include "http/h2_conn.h"

enum { CONN_FLUSH_ROUNDS = 8 }; /* writes of one connection in one turn */

static uint64_t
conn_now_ms(const struct h2_conn *c)
{
	return loop_now_ms(c->server->loop);
}

uint64_t
h2_conn_after(struct h2_conn *c, uint64_t in_ms)
{
	uint64_t at = conn_now_ms(c) + in_ms;

	if (in_ms == 0)
		return 0;
	if (c->timer_at_ms == 0 || at < c->timer_at_ms) {
		c->timer_at_ms = at;
		loop_timer_set(c->timer, in_ms);
	}
	return at;
}

void
h2_conn_mark(struct h2_stream *s)
{
	if (!s->dirty) {
		s->dirty = true;
		TAILQ_INSERT_TAIL(&s->conn->dirty_streams, s, dirty_link);
	}
	h2_server_mark(s->conn);
}

/* ---- floods ---------------------------------------------------------------
 */

/* RFC 9113 s10.5: GOAWAY, and nothing more is read. */
static void
conn_calm(struct h2_conn *c, enum h2_flood why)
{
	if (c->condemned)
		return;
	c->condemned = true;
	c->server->stats.calmed++;
	c->server->stats.floods[why]++;
	/* without memory it is closed without a word */
	(void)nghttp2_session_terminate_session(c->session,
	    NGHTTP2_ENHANCE_YOUR_CALM);
	h2_server_mark(c);
}

bool
h2_conn_take(struct h2_bucket *b, uint64_t now_ms, uint32_t cost,
    uint32_t burst, uint32_t rate)
{
	uint64_t more = (now_ms - b->at_ms) * rate / 1000;

	if (more != 0) {
		b->at_ms = now_ms;
		if (b->have < burst)
			b->have = more < burst - b->have
			    ? b->have + (uint32_t)more
			    : burst;
	}
	if (b->have < cost)
		return false;
	b->have -= cost;
	return true;
}

void
h2_conn_idle_frame(struct h2_conn *c, uint32_t cost, enum h2_flood what)
{
	if (!h2_conn_take(&c->idle, conn_now_ms(c), cost, H2_IDLE_BURST,
		H2_IDLE_RATE))
		conn_calm(c, what);
}

void
h2_conn_reset_frame(struct h2_conn *c)
{
	if (!h2_conn_take(&c->resets, conn_now_ms(c), 1, H2_RESET_BURST,
		H2_RESET_RATE))
		conn_calm(c, H2_FLOOD_RESET);
}

/* ---- the end of exchanges ------------------------------------------------- */

/* The consumer has it no more: what it did not credit is credited. */
static void
conn_close_exchange(struct h2_stream *s)
{
	struct h2_conn *c = s->conn;

	arena_free(s->x.arena);
	s->x.arena = NULL;
	s->read_at_ms = 0;
	c->server->stats.exchanges--;
	if (s->owed != 0 && c->session != NULL)
		(void)nghttp2_session_consume_connection(c->session, s->owed);
	s->owed = 0;
	h2_conn_mark(s);
}

void
h2_conn_stream_gone(struct h2_stream *s, enum exchange_gone why)
{
	bool open = s->phase == H2_OPEN;

	s->phase = H2_OVER;
	s->send_at_ms = 0;
	if (open) {
		s->x.consumer->gone(&s->x, why);
		conn_close_exchange(s);
	}
	h2_conn_mark(s);
}

static void
conn_done(struct h2_stream *s)
{
	bool open = s->phase == H2_OPEN;

	s->phase = H2_OVER;
	s->send_at_ms = 0;
	if (!open)
		return;
	if (s->conn->resets.have < H2_RESET_MOST)
		s->conn->resets.have++;
	s->x.consumer->done(&s->x);
	conn_close_exchange(s);
}

static void
conn_free_stream(struct h2_stream *s)
{
	struct h2_conn *c = s->conn;

	c->queued -= buf_len(&s->out);
	TAILQ_REMOVE(&c->streams, s, link);
	if (s->dirty)
		TAILQ_REMOVE(&c->dirty_streams, s, dirty_link);
	/* a request that never became an exchange */
	arena_free(s->x.arena);
	buf_clear(&s->out);
	mem_free(s);
	c->streams_n--;
}

void
h2_conn_gone(struct h2_conn *c, enum exchange_gone why)
{
	struct h2_stream *s;

	TAILQ_FOREACH (s, &c->streams, link)
		h2_conn_stream_gone(s, why);
	h2_server_kill(c, why == EXCHANGE_GONE_SHUTDOWN);
}

/* ---- what is due ----------------------------------------------------------
 */

static void
conn_settle_open(struct h2_stream *s)
{
	if (s->broken != 0) {
		h2_conn_stream_gone(s, s->broken);
		h2_reply_reset(s, NGHTTP2_INTERNAL_ERROR);
	} else if (s->aborting && s->closed) {
		h2_conn_stream_gone(s, EXCHANGE_GONE_RESET);
	} else if (s->aborting && buf_len(&s->out) == 0) {
		/* gone() follows when it is out; RFC 8441 s5 */
		h2_reply_reset(s,
		    s->x.upgraded ? NGHTTP2_CANCEL : NGHTTP2_INTERNAL_ERROR);
	} else if (s->blocked && !s->end_due && !s->aborting &&
	    h2_reply_backend.room(&s->x) >= buf_len(&s->out)) {
		s->blocked = false;
		s->x.consumer->writable(&s->x);
	}
}

static void
conn_settle_stream(struct h2_stream *s)
{
	struct h2_conn *c = s->conn;
	bool written = s->end_sent && c->out_done >= s->end_at;

	if (s->phase == H2_OPEN)
		conn_settle_open(s);
	/* RFC 9113 s8.1: the rest of the request is of no use */
	if (s->end_sent && !s->closed && !s->x.request_whole)
		h2_reply_reset(s, NGHTTP2_NO_ERROR);
	if (s->end_due && written && s->phase != H2_OVER)
		conn_done(s);
	if (s->phase == H2_OVER && s->closed) {
		conn_free_stream(s);
	} else if (s->end_sent && !written && !s->dirty) {
		/* again after the next write */
		s->dirty = true;
		TAILQ_INSERT_TAIL(&c->dirty_streams, s, dirty_link);
	}
}

static void
conn_settle(struct h2_conn *c)
{
	struct h2_stream_list now;
	struct h2_stream *s;

	/* the connection's share is there again */
	if (c->starved &&
	    c->queued <= c->limits->output_buffer * H2_QUEUE_TIMES / 2) {
		c->starved = false;
		TAILQ_FOREACH (s, &c->streams, link)
			if (s->blocked)
				h2_conn_mark(s);
	}
	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &c->dirty_streams, dirty_link);
	while ((s = TAILQ_FIRST(&now)) != NULL) {
		TAILQ_REMOVE(&now, s, dirty_link);
		s->dirty = false;
		conn_settle_stream(s);
	}
}

/* ---- the connection's end -------------------------------------------------
 */

void
h2_conn_drain(struct h2_conn *c)
{
	if (c->drain != H2_DRAIN_NOT || c->session == NULL)
		return;
	c->drain = H2_DRAIN_TOLD;
	c->drain_at_ms = h2_conn_after(c, H2_GOAWAY_MS);
	/* requests that are on their way are still served: its answer tells
	 * that there are none any more */
	if (nghttp2_submit_shutdown_notice(c->session) != 0 ||
	    nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL) != 0)
		h2_conn_drain_last(c);
	h2_server_mark(c);
}

void
h2_conn_drain_last(struct h2_conn *c)
{
	if (c->drain == H2_DRAIN_LAST || c->session == NULL)
		return;
	c->drain = H2_DRAIN_LAST;
	c->drain_at_ms = 0;
	if (nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
		nghttp2_session_get_last_proc_stream_id(c->session),
		NGHTTP2_NO_ERROR, NULL, 0) != 0)
		c->condemned = true;
	h2_server_mark(c);
}

/* Our side is shut; the rest is read so that no reset overtakes GOAWAY. */
static void
conn_linger(struct h2_conn *c)
{
	struct h2_stream *s;

	TAILQ_FOREACH (s, &c->streams, link) {
		h2_conn_stream_gone(s, EXCHANGE_GONE_RESET);
		s->closed = true;
	}
	nghttp2_session_del(c->session);
	c->session = NULL;
	conn_settle(c);
	c->idle_at_ms = c->drain_at_ms = 0;
	c->condemned = false;
	stream_shutdown(c->stream);
	c->linger_at_ms = h2_conn_after(c, H2_LINGER_MS);
}

/* A stream that is over on the wire waits for its consumer. */
static bool
conn_waits(const struct h2_conn *c)
{
	const struct h2_stream *s;

	TAILQ_FOREACH (s, &c->streams, link)
		if (s->phase == H2_OPEN && s->closed)
			return true;
	return false;
}

static void
conn_check_end(struct h2_conn *c)
{
	bool idle = c->limits->keepalive_timeout_ms == 0 && c->requests != 0 &&
	    c->streams_n == 0;

	if (buf_len(&c->out) != 0 || nghttp2_session_want_write(c->session))
		return;
	if (c->condemned || !nghttp2_session_want_read(c->session)) {
		/* which request was the last is still to be said */
		if (c->condemned ||
		    (c->drain != H2_DRAIN_TOLD && !conn_waits(c)))
			conn_linger(c);
	} else if (c->drain == H2_DRAIN_NOT &&
	    (c->requests >= c->limits->keepalive_requests || idle)) {
		h2_conn_drain(c);
	}
}

/* ---- from the loop --------------------------------------------------------
 */

static int
conn_flush(struct h2_conn *c)
{
	uint64_t timeout = c->limits->send_timeout_ms;
	struct iovec iov;
	size_t done;
	int i, rc;

	for (i = 0; i < CONN_FLUSH_ROUNDS; i++) {
		if (nghttp2_session_send(c->session) != 0)
			return SP_E_NOMEM;
		if (buf_len(&c->out) == 0)
			break;
		iov.iov_base = c->out.mem + c->out.off;
		iov.iov_len = buf_len(&c->out);
		rc = stream_writev(c->stream, &iov, 1, &done);
		if (rc != 0 && rc != SP_E_AGAIN)
			return rc;
		if (rc == SP_E_AGAIN || done == 0)
			break;
		buf_consume(&c->out, done);
		c->out_done += done;
		c->send_at_ms = h2_conn_after(c, timeout);
	}
	if (buf_len(&c->out) == 0) {
		/* nothing is kept for the time between two events */
		buf_reset(&c->out, 0);
		c->send_at_ms = 0;
	} else if (c->send_at_ms == 0) {
		c->send_at_ms = h2_conn_after(c, timeout);
	}
	return 0;
}

static void
conn_update(struct h2_conn *c)
{
	unsigned want = c->condemned ? 0 : STREAM_READ;

	if (c->session != NULL &&
	    (buf_len(&c->out) != 0 || nghttp2_session_want_write(c->session)))
		want |= STREAM_WRITE;
	if (c->streams_n != 0 || c->session == NULL)
		c->idle_at_ms = 0;
	else if (c->idle_at_ms == 0)
		c->idle_at_ms = h2_conn_after(c,
		    c->requests == 0 ? c->limits->header_timeout_ms
				     : c->limits->keepalive_timeout_ms);
	stream_want(c->stream, want);
}

void
h2_conn_turn(struct h2_conn *c)
{
	if (c->session != NULL) {
		conn_settle(c);
		if (conn_flush(c) != 0) {
			h2_conn_gone(c, EXCHANGE_GONE_RESET);
			return;
		}
		conn_settle(c);
		conn_check_end(c);
	}
	conn_update(c);
}

/* No client that behaves has more than its window under way. */
static void
conn_lingers(struct h2_conn *c, size_t n)
{
	c->lingered += n;
	if (c->lingered > H2_CONN_WINDOW)
		h2_conn_gone(c, EXCHANGE_GONE_RESET);
}

static void
conn_input(struct h2_conn *c, struct view v)
{
	ssize_t n;

	if (c->session == NULL)
		conn_lingers(c, v.n);
	if (c->condemned || c->session == NULL)
		return;
	n = nghttp2_session_mem_recv(c->session, (const uint8_t *)v.p, v.n);
	if (n < 0) {
		if (n != NGHTTP2_ERR_NOMEM)
			c->server->stats.malformed++;
		h2_conn_gone(c,
		    n == NGHTTP2_ERR_NOMEM ? EXCHANGE_GONE_NOMEM
					   : EXCHANGE_GONE_RESET);
		return;
	}
	/* extensions, and bodies that nobody wants any more, are skipped */
	c->untold += (int64_t)v.n;
	if (c->untold >= H2_IDLE_BYTES) {
		h2_conn_idle_frame(c, (uint32_t)(c->untold / H2_IDLE_BYTES),
		    H2_FLOOD_OTHER);
		c->untold %= H2_IDLE_BYTES;
	}
	h2_server_mark(c);
}

int
h2_conn_start(struct h2_conn *c, struct view first)
{
	const struct h1_limits *l = c->limits;
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
		    (uint32_t)l->body_window },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
		    (uint32_t)l->header_max },
		/* RFC 8441 s3 */
		{ NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1 },
	};
	uint64_t now = conn_now_ms(c);

	c->idle = (struct h2_bucket){ H2_IDLE_BURST, now };
	c->resets = (struct h2_bucket){ H2_RESET_BURST, now };
	c->idle_at_ms = h2_conn_after(c, l->header_timeout_ms);
	if (nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings,
		sizeof(settings) / sizeof(settings[0])) != 0 ||
	    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE,
		0, H2_CONN_WINDOW) != 0)
		return SP_E_NOMEM;
	conn_input(c, first);
	if (!c->dead)
		h2_server_mark(c);
	return 0;
}

static void
conn_read(struct h2_conn *c)
{
	char *p = loop_scratch(c->server->loop);
	size_t n;
	int rc = stream_read(c->stream, p, LOOP_SCRATCH_BYTES, &n);

	if (rc == 0)
		conn_input(c, view_of(p, n));
	else if (rc != SP_E_AGAIN)
		h2_conn_gone(c,
		    rc == SP_E_EOF && c->streams_n == 0 ? EXCHANGE_GONE_SHUTDOWN
							: EXCHANGE_GONE_RESET);
}

void
h2_conn_ready(void *arg, struct stream *s, unsigned what)
{
	struct h2_conn *c = arg;

	(void)s;
	if (c->dead)
		return;
	if (what & STREAM_FAIL) {
		h2_conn_gone(c, EXCHANGE_GONE_RESET);
		return;
	}
	if (what & STREAM_READ)
		conn_read(c);
	/* writing waits for the end of the turn, with what else is queued */
	if (!c->dead)
		h2_server_mark(c);
}

/* ---- deadlines ------------------------------------------------------------
 */

static void
conn_body_timeout(struct h2_stream *s)
{
	struct h2_conn *c = s->conn;
	bool refuse = s->x.state == EXCHANGE_REQUEST;

	s->read_at_ms = 0;
	/* other bodies have taken the connection's window */
	if (nghttp2_session_get_local_window_size(c->session) <= 0) {
		s->read_at_ms = h2_conn_after(c, c->limits->body_timeout_ms);
		return;
	}
	h2_conn_stream_gone(s, EXCHANGE_GONE_TIMEOUT);
	if (refuse)
		h2_reply_refuse(s, 408, HEAD_BODY_SLOW);
	else
		h2_reply_reset(s, NGHTTP2_CANCEL);
}

static void
conn_stream_deadline(struct h2_stream *s, uint64_t now)
{
	if (s->x.patient && s->phase == H2_OPEN)
		s->read_at_ms = s->send_at_ms = 0;
	if (s->read_at_ms != 0 && s->read_at_ms <= now) {
		if (s->phase == H2_HEAD)
			conn_calm(s->conn, H2_FLOOD_SLOW_HEAD);
		else if (s->phase == H2_OPEN)
			conn_body_timeout(s);
		else
			s->read_at_ms = 0;
	}
	if (s->send_at_ms != 0 && s->send_at_ms <= now) {
		h2_conn_stream_gone(s, EXCHANGE_GONE_TIMEOUT);
		h2_reply_reset(s, NGHTTP2_CANCEL);
	}
}

static void
conn_arm(struct h2_conn *c, uint64_t at, uint64_t now)
{
	if (at != 0)
		(void)h2_conn_after(c, at > now ? at - now : 1);
}

static void
conn_rearm(struct h2_conn *c, uint64_t now)
{
	const struct h2_stream *s;

	conn_arm(c, c->idle_at_ms, now);
	conn_arm(c, c->send_at_ms, now);
	conn_arm(c, c->drain_at_ms, now);
	conn_arm(c, c->linger_at_ms, now);
	TAILQ_FOREACH (s, &c->streams, link) {
		conn_arm(c, s->read_at_ms, now);
		conn_arm(c, s->send_at_ms, now);
	}
}

void
h2_conn_deadline(void *arg)
{
	struct h2_conn *c = arg;
	uint64_t now = conn_now_ms(c);
	struct h2_stream *s;

	c->timer_at_ms = 0;
	if ((c->send_at_ms != 0 && c->send_at_ms <= now) ||
	    (c->linger_at_ms != 0 && c->linger_at_ms <= now)) {
		h2_conn_gone(c, EXCHANGE_GONE_TIMEOUT);
		return;
	}
	if (c->session != NULL) {
		if (c->drain_at_ms != 0 && c->drain_at_ms <= now)
			h2_conn_drain_last(c);
		if (c->idle_at_ms != 0 && c->idle_at_ms <= now) {
			c->idle_at_ms = 0;
			h2_conn_drain_last(c);
		}
		TAILQ_FOREACH (s, &c->streams, link)
			conn_stream_deadline(s, now);
		h2_server_mark(c);
	}
	conn_rearm(c, now);
}
