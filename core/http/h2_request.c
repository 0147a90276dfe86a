#include "config.h"

#include "base/mem.h"
#include "base/num.h"
#include "http/h1_parse.h"
#include "http/h2_conn.h"

enum {
	REQUEST_ARENA_EXTRA = 256 * 1024, /* for the consumer, over the head */
	REQUEST_FIELD_EXTRA = 32, /* RFC 9113 s6.5.2: what a field counts */
	/* fields of a head that is refused are read on, within reason */
	REQUEST_BOMB_TIMES = 4,
};

/* ---- fields ---------------------------------------------------------------
 */

static void
request_fault(struct h2_stream *s, unsigned status, const char *what)
{
	if (s->fault != NULL)
		return;
	s->fault = what;
	s->fault_status = status;
}

/* RFC 9113 s8.3.1; nghttp2 has seen to it that none comes twice or late. */
static int
request_pseudo(struct h2_stream *s, struct view name, struct view value)
{
	struct head_request *rq = &s->x.request;

	if (view_eq(name, VIEW(":method")))
		return arena_dup(s->x.arena, value, &rq->method);
	if (view_eq(name, VIEW(":path")))
		return arena_dup(s->x.arena, value, &rq->target);
	if (view_eq(name, VIEW(":authority")))
		return arena_dup(s->x.arena, value, &rq->authority);
	if (view_eq(name, VIEW(":protocol")))
		return arena_dup(s->x.arena, value, &rq->upgrade);
	return 0;
}

/* True when the field is not one to hand on. */
static bool
request_is_special(struct h2_stream *s, struct view name, struct view value,
    int *rc)
{
	struct head_request *rq = &s->x.request;
	uint64_t length;

	if (view_eq(name, VIEW("content-length"))) {
		if (num_u64(value, 0, INT64_MAX, &length) != 0)
			request_fault(s, 400, "bad Content-Length");
		else
			rq->content_length = (int64_t)length;
		return true;
	}
	if (view_eq(name, VIEW("host"))) {
		*rc = arena_dup(s->x.arena, value, &s->host);
		return true;
	}
	if (view_eq(name, VIEW("expect"))) {
		/* RFC 9110 s10.1.1 */
		if (!view_eq_nocase(value, VIEW("100-continue")))
			request_fault(s, 417, "unknown expectation");
		s->expect = true;
		return true;
	}
	return head_is_hop(name);
}

/* The limits are HTTP/1.1's: a line is name, colon, space and value. */
static void
request_count(struct h2_stream *s, struct view name, struct view value)
{
	const struct h1_limits *l = s->conn->limits;

	s->head_bytes += name.n + value.n + REQUEST_FIELD_EXTRA;
	if (name.p[0] != ':')
		s->head_fields++;
	if (name.n + value.n + 2 > l->header_line_max)
		request_fault(s, name.p[0] == ':' ? 414 : 431,
		    name.p[0] == ':' ? HEAD_LINE_LONG : HEAD_FIELD_LARGE);
	if (s->head_bytes > l->header_max)
		request_fault(s, 431, HEAD_FIELDS_LARGE);
	if (s->head_fields > l->header_max_n)
		request_fault(s, 431, HEAD_FIELDS_MANY);
}

static struct view
request_view(nghttp2_rcbuf *b)
{
	nghttp2_vec v = nghttp2_rcbuf_get_buf(b);

	return view_of(v.base, v.len);
}

static int
request_header(nghttp2_session *session, const nghttp2_frame *frame,
    nghttp2_rcbuf *name, nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
	struct h2_stream *s =
	    nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct view n = request_view(name), v = request_view(value);
	struct h2_conn *c = arg;
	int rc = 0;

	(void)flags;
	if (s == NULL || c->condemned || n.n == 0)
		return 0;
	request_count(s, n, v);
	if (s->head_bytes > c->limits->header_max * REQUEST_BOMB_TIMES) {
		/* the end */
		h2_conn_idle_frame(c, H2_IDLE_MOST * 2, H2_FLOOD_HEADERS);
		return 0;
	}
	/* trailers are dropped */
	if (s->phase != H2_HEAD || s->fault != NULL)
		return 0;
	if (n.p[0] == ':')
		rc = request_pseudo(s, n, v);
	else if (!request_is_special(s, n, v, &rc))
		rc = head_add(&s->x.request.fields, n, view_trim(v));
	if (rc == SP_E_SYNTAX)
		request_fault(s, 400, "bad header field");
	return rc == SP_E_NOMEM ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

/* What RFC 9113 s8.2.1 forbids is malformed, not left out. */
static int
request_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
    nghttp2_rcbuf *name, nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
	(void)session;
	(void)frame;
	(void)name;
	(void)value;
	(void)flags;
	(void)arg;
	return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* RFC 9113 s8.2.3: one Cookie field, whatever it came in. */
static int
request_cookies(struct head_request *rq)
{
	struct view name = VIEW("cookie");
	struct arena *a = rq->fields.arena;
	size_t i, n = 0;
	char *p;

	if (head_count(&rq->fields, name) < 2)
		return 0;
	for (i = 0; i < rq->fields.n; i++)
		if (view_eq(rq->fields.v[i].name, name))
			n += rq->fields.v[i].value.n + 2;
	p = arena_alloc(a, n);
	if (p == NULL)
		return SP_E_NOMEM;
	for (i = 0, n = 0; i < rq->fields.n; i++) {
		struct view v = rq->fields.v[i].value;

		if (!view_eq(rq->fields.v[i].name, name))
			continue;
		if (n != 0) {
			memcpy(p + n, "; ", 2);
			n += 2;
		}
		if (v.n != 0)
			memcpy(p + n, v.p, v.n);
		n += v.n;
	}
	(void)head_del(&rq->fields, name);
	return head_add_borrowed(&rq->fields, name, view_of(p, n));
}

/* ---- a request begins ----------------------------------------------------- */

static struct h2_stream *
request_new(struct h2_conn *c, int32_t id)
{
	const struct h1_limits *l = c->limits;
	struct h2_stream *s = mem_calloc(1, sizeof(*s));
	struct exchange *x;

	if (s == NULL)
		return NULL;
	x = &s->x;
	x->arena = arena_new((size_t)(l->header_max * 2 +
				 l->header_max_n * sizeof(struct head_field)) +
	    REQUEST_ARENA_EXTRA);
	if (x->arena == NULL) {
		mem_free(s);
		return NULL;
	}
	s->conn = c;
	s->id = id;
	/* one piece of the consumer's may come on top of the room */
	buf_init(&s->out, (size_t)l->output_buffer + ((size_t)256 << 20));
	x->connection = c->number;
	x->guest = stream_guest(c->stream);
	x->listener = c->listener;
	x->peer = stream_peer(c->stream);
	x->started_us = loop_now_us(c->server->loop);
	x->reply_length = -1;
	x->backend = &h2_reply_backend;
	x->consumer = c->server->consumer;
	x->server = c->server->arg;
	x->back = s;
	x->request.content_length = -1;
	x->request.tls = stream_is_tls(c->stream);
	head_fields_init(&x->request.fields, x->arena);
	return s;
}

static int
request_begin(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_conn *c = arg;
	struct h2_stream *s;

	if (frame->hd.type != NGHTTP2_HEADERS ||
	    frame->headers.cat != NGHTTP2_HCAT_REQUEST || c->condemned)
		return 0;
	s = request_new(c, frame->hd.stream_id);
	if (s == NULL ||
	    nghttp2_session_set_stream_user_data(session, s->id, s) != 0) {
		if (s != NULL)
			arena_free(s->x.arena);
		mem_free(s);
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	TAILQ_INSERT_TAIL(&c->streams, s, link);
	c->streams_n++;
	c->requests++;
	c->idle_at_ms = 0;
	s->read_at_ms = h2_conn_after(c, c->limits->header_timeout_ms);
	return 0;
}

/* ---- the head is whole ---------------------------------------------------- */

/* RFC 9113 s8.3.1: :path, and one name of the server. */
static void
request_check(struct h2_stream *s)
{
	struct head_request *rq = &s->x.request;
	struct view target = rq->target;
	size_t mark;

	if (!head_is_token(rq->method)) {
		request_fault(s, 400, "bad method");
		return;
	}
	if (view_eq(rq->method, VIEW("CONNECT")) && rq->upgrade.n == 0) {
		request_fault(s, 405, "CONNECT is not served here");
		return;
	}
	/* RFC 8441 s4; with another method nghttp2 refuses it */
	if (rq->upgrade.n != 0 && !view_eq(rq->upgrade, VIEW("websocket"))) {
		request_fault(s, 501, "only websocket is a known :protocol");
		return;
	}
	if (!h1_parse_is_target(target) ||
	    (target.p[0] != '/' &&
		(!view_eq(target, VIEW("*")) ||
		    !view_eq(rq->method, VIEW("OPTIONS"))))) {
		request_fault(s, 400, "bad request target");
		return;
	}
	mark = view_find(target, '?');
	rq->path = view_sub(target, 0, mark);
	rq->query = view_from(target, mark + 1);
	if (rq->authority.n != 0 && s->host.n != 0 &&
	    !view_eq_nocase(rq->authority, s->host))
		request_fault(s, 400, ":authority and Host differ");
	if (rq->authority.n == 0)
		rq->authority = s->host;
	if (rq->authority.n == 0)
		request_fault(s, 400, "exactly one Host is needed");
	else if (!h1_parse_is_authority(rq->authority))
		request_fault(s, 400, "bad Host");
}

/*
 * Streams take turns, a frame each, whatever their clients wish: a long reply
 * may not hold back the events of the others (RFC 9218 s10).
 */
static void
request_share(struct h2_stream *s)
{
	const nghttp2_extpri fair = { NGHTTP2_EXTPRI_DEFAULT_URGENCY, 1 };

	/* without memory it is served in the order of requests */
	(void)nghttp2_session_change_extpri_stream_priority(s->conn->session,
	    s->id, &fair, 1);
}

static void
request_open(struct h2_stream *s, bool whole)
{
	struct exchange *x = &s->x;
	struct h2_conn *c = s->conn;

	s->read_at_ms = 0;
	s->head_bytes = 0; /* counts trailers from here on */
	x->request.has_body = !whole;
	x->request_whole = whole;
	if (s->fault == NULL)
		request_check(s);
	if (s->fault == NULL && request_cookies(&x->request) != 0) {
		s->phase = H2_OVER;
		h2_reply_reset(s, NGHTTP2_INTERNAL_ERROR);
		return;
	}
	if (s->fault != NULL) {
		h2_reply_refuse(s, s->fault_status, s->fault);
		return;
	}
	s->expect = s->expect && !whole;
	/* before its reply an extended CONNECT sends nothing */
	if (!whole && !s->expect && x->request.upgrade.n == 0)
		s->read_at_ms = h2_conn_after(c, c->limits->body_timeout_ms);
	request_share(s);
	s->phase = H2_OPEN;
	c->server->stats.exchanges++;
	x->consumer->open(x->server, x);
	h2_conn_mark(s);
}

/* ---- the body ------------------------------------------------------------- */

/* After the reply's end the rest of the body is read for nobody. */
static bool
request_is_deaf(const struct h2_stream *s)
{
	return s->phase != H2_OPEN || s->aborting || s->broken != 0 ||
	    s->x.state == EXCHANGE_ENDED;
}

static int
request_data(nghttp2_session *session, uint8_t flags, int32_t id,
    const uint8_t *data, size_t n, void *arg)
{
	struct h2_stream *s = nghttp2_session_get_stream_user_data(session, id);
	struct h2_conn *c = arg;
	uint64_t window = c->limits->body_window;

	(void)flags;
	if (s == NULL || request_is_deaf(s) || c->condemned)
		return nghttp2_session_consume(session, id, n) ==
			NGHTTP2_ERR_NOMEM
		    ? NGHTTP2_ERR_CALLBACK_FAILURE
		    : 0;
	s->expect = false;
	s->owed += n;
	s->read_at_ms =
	    s->owed < window ? h2_conn_after(c, c->limits->body_timeout_ms) : 0;
	s->x.consumer->body(&s->x, view_of(data, n));
	return 0;
}

static void
request_end(struct h2_stream *s)
{
	s->x.request_whole = true;
	s->expect = false;
	s->read_at_ms = 0;
	if (!request_is_deaf(s))
		s->x.consumer->body_end(&s->x);
	h2_conn_mark(s);
}

/* ---- frames ---------------------------------------------------------------
 */

static enum h2_flood
request_flood(uint8_t type)
{
	switch (type) {
	case NGHTTP2_SETTINGS:
		return H2_FLOOD_SETTINGS;
	case NGHTTP2_PING:
		return H2_FLOOD_PING;
	case NGHTTP2_PRIORITY:
		return H2_FLOOD_PRIORITY;
	case NGHTTP2_WINDOW_UPDATE:
		return H2_FLOOD_WINDOW_UPDATE;
	case NGHTTP2_CONTINUATION:
		return H2_FLOOD_CONTINUATION;
	case NGHTTP2_RST_STREAM:
		return H2_FLOOD_RESET;
	default:
		return H2_FLOOD_OTHER;
	}
}

/* Frames of which a peer needs but few; bodies and heads are paid for. */
static int
request_frame_begins(nghttp2_session *session, const nghttp2_frame_hd *hd,
    void *arg)
{
	struct h2_conn *c = arg;

	(void)session;
	c->untold -= 9 + (int64_t)hd->length;
	if (c->condemned)
		return 0;
	if (hd->type == NGHTTP2_RST_STREAM)
		c->server->stats.resets++;
	if (hd->type == NGHTTP2_SETTINGS && (hd->flags & NGHTTP2_FLAG_ACK) == 0)
		h2_conn_idle_frame(c, 10, H2_FLOOD_SETTINGS);
	else if (hd->type != NGHTTP2_DATA && hd->type != NGHTTP2_HEADERS)
		h2_conn_idle_frame(c, 1, request_flood(hd->type));
	return 0;
}

static int
request_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
	struct h2_conn *c = arg;
	struct h2_stream *s;

	if (frame->hd.type == NGHTTP2_PING &&
	    (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 &&
	    c->drain == H2_DRAIN_TOLD)
		h2_conn_drain_last(c);
	if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	/* nothing but padding, if that */
	if (frame->hd.type == NGHTTP2_DATA && !end &&
	    frame->hd.length <= frame->data.padlen)
		h2_conn_idle_frame(c, 1, H2_FLOOD_EMPTY_DATA);
	s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (s == NULL || c->condemned)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && s->phase == H2_HEAD)
		request_open(s, end);
	if (end)
		request_end(s);
	return 0;
}

static int
request_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame,
    int code, void *arg)
{
	struct h2_stream *s =
	    nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct h2_conn *c = arg;

	(void)code;
	c->server->stats.malformed++;
	if (s != NULL)
		s->malformed = true;
	return 0;
}

static int
request_closed(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2_stream *s = nghttp2_session_get_stream_user_data(session, id);
	struct h2_conn *c = arg;

	if (s == NULL)
		return 0;
	s->closed = true;
	s->send_at_ms = 0;
	/* resets by the peer, and those that it provoked */
	if (!s->end_sent && !s->aborting && !s->reset &&
	    code != NGHTTP2_NO_ERROR)
		h2_conn_reset_frame(c);
	if (!s->end_sent)
		h2_conn_stream_gone(s,
		    s->malformed ? EXCHANGE_GONE_MALFORMED
				 : EXCHANGE_GONE_RESET);
	h2_conn_mark(s);
	return 0;
}

void
h2_request_callbacks(nghttp2_session_callbacks *cb)
{
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb,
	    request_begin);
	nghttp2_session_callbacks_set_on_header_callback2(cb, request_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback2(cb,
	    request_invalid_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb,
	    request_data);
	nghttp2_session_callbacks_set_on_begin_frame_callback(cb,
	    request_frame_begins);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, request_frame);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb,
	    request_invalid_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb,
	    request_closed);
}
