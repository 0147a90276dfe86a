#include "config.h"

#include "base/mem.h"
#include "base/num.h"
#include "http/h2_conn.h"

enum {
	REPLY_FIELDS_EXTRA = 3, /* status, date, content-length */
	REPLY_FRAME_MAX =
	    16 * 1024, /* of a DATA frame, as nghttp2 makes them */
};

/* The exchange can still be answered. */
static bool
reply_is_open(const struct h2_stream *s)
{
	return s->phase == H2_OPEN && s->broken == 0 && !s->aborting;
}

/* Out of memory: the consumer learns it now and, as gone(), at the turn's end.
 */
static int
reply_broken(struct h2_stream *s)
{
	s->broken = EXCHANGE_GONE_NOMEM;
	h2_conn_mark(s);
	return SP_E_NOMEM;
}

void
h2_reply_reset(struct h2_stream *s, uint32_t code)
{
	if (s->reset || s->closed)
		return;
	s->reset = true;
	/* without memory nothing can be said any more: see conn_flush() */
	if (nghttp2_submit_rst_stream(s->conn->session, NGHTTP2_FLAG_NONE,
		s->id, code) != 0)
		s->conn->condemned = true;
	h2_server_mark(s->conn);
}

/* ---- what nghttp2 asks for ------------------------------------------------
 */

/*
 * The next DATA frame of a stream: everything that is queued, as far as window
 * and frame allow; the bytes go straight from its buffer to the connection's.
 */
/* NOLINTBEGIN(readability-function-size): nghttp2 says what it is given */
static ssize_t
reply_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
    uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_stream *s = source->ptr;
	size_t n = buf_len(&s->out);

	(void)session;
	(void)id;
	(void)buf;
	(void)arg;
	if (n == 0 && !s->end_due) {
		s->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (n > length)
		n = length;
	else if (s->end_due)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}
/* NOLINTEND(readability-function-size) */

static int
reply_send_data(nghttp2_session *session, nghttp2_frame *frame,
    const uint8_t *framehd, size_t length, nghttp2_data_source *source,
    void *arg)
{
	struct h2_stream *s = source->ptr;
	struct h2_conn *c = arg;

	(void)session;
	err_assert(frame->data.padlen == 0 && length <= buf_len(&s->out));
	if (buf_len(&c->out) >= H2_OUT_MAX)
		return NGHTTP2_ERR_WOULDBLOCK;
	if (buf_reserve(&c->out, 9 + length) != 0)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	/* reserved: neither can fail */
	(void)!buf_add(&c->out, framehd, 9);
	(void)!buf_add_view(&c->out, view_sub(buf_view(&s->out), 0, length));
	c->out_all += 9 + length;
	buf_consume(&s->out, length);
	c->queued -= length;
	if (buf_len(&s->out) == 0)
		buf_reset(&s->out, 0);
	s->send_at_ms = buf_len(&s->out) != 0
	    ? h2_conn_after(c, c->limits->send_timeout_ms)
	    : 0;
	/* each may be answered by two WINDOW_UPDATEs */
	if (c->idle.have < H2_IDLE_MOST)
		c->idle.have += 2;
	if (s->blocked || s->aborting)
		h2_conn_mark(s);
	return 0;
}

static ssize_t
reply_send(nghttp2_session *session, const uint8_t *data, size_t length,
    int flags, void *arg)
{
	struct h2_conn *c = arg;

	(void)session;
	(void)flags;
	if (buf_len(&c->out) >= H2_OUT_MAX)
		return NGHTTP2_ERR_WOULDBLOCK;
	if (buf_add(&c->out, data, length) != 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	c->out_all += length;
	return (ssize_t)length;
}

static int
reply_frame_sent(nghttp2_session *session, const nghttp2_frame *frame,
    void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s;

	if ((frame->hd.type != NGHTTP2_DATA &&
		frame->hd.type != NGHTTP2_HEADERS) ||
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
		return 0;
	s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (s == NULL)
		return 0;
	s->end_sent = true;
	s->end_at = c->out_all;
	s->send_at_ms = 0;
	h2_conn_mark(s);
	return 0;
}

void
h2_reply_callbacks(nghttp2_session_callbacks *cb)
{
	nghttp2_session_callbacks_set_send_callback(cb, reply_send);
	nghttp2_session_callbacks_set_send_data_callback(cb, reply_send_data);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb,
	    reply_frame_sent);
}

/* ---- what the consumer says ----------------------------------------------- */

static nghttp2_nv
reply_nv(struct view name, struct view value)
{
	/* nghttp2 only reads, and copies; its type cannot say so */
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name.p,
		(uint8_t *)(uintptr_t)value.p, name.n, value.n,
		NGHTTP2_NV_FLAG_NONE };
}

static int
reply_interim(struct exchange *x, unsigned status)
{
	struct h2_stream *s = x->back;
	nghttp2_nv nv = reply_nv(VIEW(":status"), VIEW("100"));
	struct h2_conn *c = s->conn;

	if (!reply_is_open(s))
		return SP_E_GONE;
	if (status != 100 || !s->expect)
		return 0;
	s->expect = false;
	if (nghttp2_submit_headers(c->session, NGHTTP2_FLAG_NONE, s->id, NULL,
		&nv, 1, NULL) < 0)
		return reply_broken(s);
	s->read_at_ms = h2_conn_after(c, c->limits->body_timeout_ms);
	h2_server_mark(c);
	return 0;
}

/* The head with what the connection adds; names are lowered by nghttp2. */
static size_t
reply_fields(struct h2_stream *s, const struct head_reply *head, nghttp2_nv *nv,
    char *digits)
{
	struct view length = VIEW("content-length");
	bool dated = false;
	size_t i, n = 1;

	nv[0] = reply_nv(VIEW(":status"),
	    view_of(digits, num_format_u64(head->status, digits)));
	digits += 20;
	for (i = 0; i < head->fields.n; i++) {
		const struct head_field *f = &head->fields.v[i];

		/* RFC 9113 s8.2.2; framing is written from what is known */
		if (head_is_hop(f->name) || view_eq_nocase(f->name, length))
			continue;
		dated = dated || view_eq_nocase(f->name, VIEW("date"));
		nv[n++] = reply_nv(f->name, f->value);
	}
	/* RFC 9110 s6.6.1 */
	if (!dated)
		nv[n++] =
		    reply_nv(VIEW("date"), h2_server_date(s->conn->server));
	if (head->content_length >= 0 && head->status != 204)
		nv[n++] = reply_nv(length,
		    view_of(digits,
			num_format_u64((uint64_t)head->content_length,
			    digits)));
	return n;
}

static int
reply_submit(struct h2_stream *s, const struct head_reply *head, bool bodyless)
{
	nghttp2_data_provider from = { .source = { .ptr = s },
		.read_callback = reply_read };
	nghttp2_nv *nv;
	char digits[2 * 20];
	int rc;

	nv = mem_reallocarray(NULL, head->fields.n + REPLY_FIELDS_EXTRA,
	    sizeof(*nv));
	if (nv == NULL)
		return SP_E_NOMEM;
	rc = nghttp2_submit_response(s->conn->session, s->id, nv,
	    reply_fields(s, head, nv, digits), bodyless ? NULL : &from);
	mem_free(nv);
	h2_server_mark(s->conn);
	return rc == 0 ? 0 : SP_E_NOMEM;
}

static int
reply_head(struct exchange *x, const struct head_reply *head)
{
	struct h2_stream *s = x->back;

	if (!reply_is_open(s))
		return SP_E_GONE;
	s->expect = false;
	return reply_submit(s, head, x->reply_bodyless) == 0 ? 0
							     : reply_broken(s);
}

/* RFC 8441 s5: 200, and DATA frames both ways. */
static int
reply_upgrade(struct exchange *x, const struct head_reply *head)
{
	struct h2_stream *s = x->back;
	struct head_reply taken = *head;

	if (!reply_is_open(s))
		return SP_E_GONE;
	taken.status = 200;
	taken.content_length = -1;
	s->expect = false;
	return reply_submit(s, &taken, false) == 0 ? 0 : reply_broken(s);
}

/* nghttp2 asks again. */
static int
reply_resume(struct h2_stream *s)
{
	struct h2_conn *c = s->conn;

	h2_server_mark(c);
	if (!s->deferred)
		return 0;
	s->deferred = false;
	return nghttp2_session_resume_data(c->session, s->id) ==
		NGHTTP2_ERR_NOMEM
	    ? SP_E_NOMEM
	    : 0;
}

/* What a stream may have queued: less when the connection has a lot. */
static size_t
reply_limit(const struct h2_conn *c)
{
	size_t all = (size_t)c->limits->output_buffer;

	return c->queued < all * H2_QUEUE_TIMES ? all : all / H2_QUEUE_SHARE;
}

static size_t
reply_room(const struct exchange *x)
{
	struct h2_stream *s = x->back;
	struct h2_conn *c = s->conn;
	size_t limit = reply_limit(c), queued = buf_len(&s->out);

	if (queued < limit)
		return limit - queued;
	s->blocked = true;
	c->starved = c->starved || limit < c->limits->output_buffer;
	return 0;
}

static int
reply_data(struct exchange *x, const struct view *v, size_t n)
{
	struct h2_stream *s = x->back;
	struct h2_conn *c = s->conn;
	size_t before = buf_len(&s->out), i;
	int rc = 0;

	if (!reply_is_open(s))
		return SP_E_GONE;
	for (i = 0; rc == 0 && i < n; i++)
		rc = buf_add_view(&s->out, v[i]);
	if (rc != 0)
		buf_truncate(&s->out, before);
	c->queued += buf_len(&s->out) - before;
	if (rc != 0 || reply_resume(s) != 0)
		return reply_broken(s);
	if (s->send_at_ms == 0)
		s->send_at_ms = h2_conn_after(c, c->limits->send_timeout_ms);
	/* sets blocked: writable() is due later */
	(void)reply_room(x);
	return 0;
}

static int
reply_end(struct exchange *x)
{
	struct h2_stream *s = x->back;

	if (!reply_is_open(s))
		return SP_E_GONE;
	s->end_due = true;
	if (reply_resume(s) != 0)
		return reply_broken(s);
	/* patience may have ended just now */
	if (s->send_at_ms == 0 && buf_len(&s->out) != 0)
		s->send_at_ms =
		    h2_conn_after(s->conn, s->conn->limits->send_timeout_ms);
	h2_conn_mark(s);
	return 0;
}

static void
reply_reset(struct exchange *x)
{
	struct h2_stream *s = x->back;

	if (!reply_is_open(s))
		return;
	s->aborting = true;
	h2_conn_mark(s);
}

static void
reply_credit(struct exchange *x, size_t n)
{
	struct h2_stream *s = x->back;
	struct h2_conn *c = s->conn;

	if (n > s->owed)
		n = s->owed;
	if (n == 0 || c->session == NULL)
		return;
	s->owed -= n;
	if (s->closed || x->request_whole) {
		/* no window of its own any more */
		if (nghttp2_session_consume_connection(c->session, n) != 0)
			(void)reply_broken(s);
	} else {
		if (nghttp2_session_consume(c->session, s->id, n) != 0)
			(void)reply_broken(s);
		if (s->read_at_ms == 0 && !s->expect)
			s->read_at_ms =
			    h2_conn_after(c, c->limits->body_timeout_ms);
	}
	h2_server_mark(c);
}

static size_t
reply_queued(const struct exchange *x)
{
	const struct h2_stream *s = x->back;

	return buf_len(&s->out);
}

/*
 * A frame that was begun when the connection's buffer was full is asked for
 * again, as long as it was: that much must stay.
 */
static void
reply_forget(struct h2_stream *s)
{
	size_t before = buf_len(&s->out);
	struct buf less;

	if (before <= REPLY_FRAME_MAX)
		return;
	buf_init(&less, s->out.max);
	if (buf_add_view(&less,
		view_sub(buf_view(&s->out), 0, REPLY_FRAME_MAX)) != 0)
		return;
	buf_clear(&s->out);
	buf_take(&s->out, &less);
	s->conn->queued -= before - REPLY_FRAME_MAX;
}

static void
reply_drop(struct exchange *x)
{
	struct h2_stream *s = x->back;

	if (s->phase != H2_OPEN)
		return;
	reply_forget(s);
	(void)reply_broken(s);
}

const struct exchange_backend h2_reply_backend = {
	.name = "h2",
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
h2_reply_refuse(struct h2_stream *s, unsigned status, const char *what)
{
	struct h2_server *server = s->conn->server;
	struct view type = VIEW("text/plain");
	struct view body = server->error_body(server->arg, status, what, &type);
	struct head_field fields[2] = { { VIEW("Content-Type"), type },
		/* RFC 9110 s15.5.6 */
		{ VIEW("Allow"), VIEW("GET, HEAD, POST, OPTIONS") } };
	struct head_reply head = {
		.status = status,
		.content_length = (int64_t)body.n,
		.fields = { .v = fields, .n = status == 405 ? 2 : 1, .cap = 2 }
	};
	/* RFC 9110 s9.3.2 */
	bool bodyless =
	    s->phase == H2_HEAD && view_eq(s->x.request.method, VIEW("HEAD"));

	server->stats.malformed++;
	s->phase = H2_REFUSED;
	s->read_at_ms = 0;
	s->end_due = true;
	if (!bodyless && buf_add_view(&s->out, body) == 0)
		s->conn->queued += body.n;
	if ((!bodyless && buf_len(&s->out) != body.n) ||
	    reply_submit(s, &head, bodyless) != 0) {
		s->phase = H2_OVER;
		h2_reply_reset(s, NGHTTP2_INTERNAL_ERROR);
	}
	s->send_at_ms =
	    h2_conn_after(s->conn, s->conn->limits->send_timeout_ms);
	h2_conn_mark(s);
}
