#include "config.h"

#include "base/num.h"
#include "http/h2_link.h"

enum { ANSWER_FIELD_EXTRA = 32 }; /* RFC 9113 s6.5.2: what a field counts */

static struct h2_call *
answer_call(nghttp2_session *session, int32_t id)
{
	return id != 0 ? nghttp2_session_get_stream_user_data(session, id)
		       : NULL;
}

/* Its owner is there and has not been told that it failed. */
static bool
answer_is_open(const struct h2_call *s)
{
	return s->owner != NULL && s->fault == 0;
}

static void
answer_malformed(struct h2_call *s, const char *text)
{
	h2_link_fault(s, H2_CALL_MALFORMED, text, NGHTTP2_PROTOCOL_ERROR);
}

/* ---- heads ----------------------------------------------------------------
 */

static int
answer_begins(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_call *s = answer_call(session, frame->hd.stream_id);

	(void)arg;
	if (s == NULL)
		return 0;
	s->head_bytes = s->head_fields = 0;
	if (s->phase == H2_CALL_HEAD && answer_is_open(s)) {
		*s->reply = (struct head_reply){ .content_length = -1 };
		head_fields_init(&s->reply->fields, s->arena);
	}
	return 0;
}

/* RFC 9113 s8.3.2; nghttp2 has seen to it that it is there once, and first. */
static void
answer_status(struct h2_call *s, struct view value)
{
	uint64_t n;

	if (value.n != 3 || num_u64(value, 100, 999, &n) != 0)
		answer_malformed(s, "bad status");
	else
		s->reply->status = (unsigned)n;
}

static int
answer_field(struct h2_call *s, struct view name, struct view value)
{
	uint64_t n;

	if (name.p[0] == ':') {
		answer_status(s, value);
		return 0;
	}
	/* of an interim one nobody hears */
	if (s->reply->status < 200 || head_is_hop(name))
		return 0;
	if (view_eq(name, VIEW("content-length"))) {
		if (num_u64(value, 0, INT64_MAX, &n) != 0)
			answer_malformed(s, "bad Content-Length");
		else
			s->reply->content_length = (int64_t)n;
		return 0;
	}
	return head_add(&s->reply->fields, name, view_trim(value));
}

static void
answer_count(struct h2_call *s, struct view name, struct view value)
{
	s->head_bytes += name.n + value.n + ANSWER_FIELD_EXTRA;
	s->head_fields++;
	if (s->head_bytes > s->header_max)
		answer_malformed(s, "header fields too large");
	else if (s->head_fields > s->fields_max)
		answer_malformed(s, "too many header fields");
	if (s->head_bytes / H2_LINK_BOMB_TIMES > s->header_max)
		h2_link_condemn(s->conn, NGHTTP2_ENHANCE_YOUR_CALM,
		    "header fields far too large");
}

static int
answer_header(nghttp2_session *session, const nghttp2_frame *frame,
    nghttp2_rcbuf *name, nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
	struct h2_call *s = answer_call(session, frame->hd.stream_id);
	nghttp2_vec nv = nghttp2_rcbuf_get_buf(name);
	nghttp2_vec vv = nghttp2_rcbuf_get_buf(value);
	struct view n = view_of(nv.base, nv.len), v = view_of(vv.base, vv.len);
	struct h2_link *c = arg;
	int rc;

	(void)flags;
	if (s == NULL || c->condemned || n.n == 0)
		return 0;
	answer_count(s, n, v);
	/* trailers are dropped */
	if (s->phase != H2_CALL_HEAD || !answer_is_open(s))
		return 0;
	rc = answer_field(s, n, v);
	if (rc == SP_E_SYNTAX)
		answer_malformed(s, "bad header field");
	else if (rc != 0)
		h2_link_fault(s, H2_CALL_NOMEM, err_str(rc),
		    NGHTTP2_INTERNAL_ERROR);
	return 0;
}

/* What RFC 9113 s8.2.1 forbids is malformed, not left out. */
static int
answer_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
    nghttp2_rcbuf *name, nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
	struct h2_call *s = answer_call(session, frame->hd.stream_id);

	(void)name;
	(void)value;
	(void)flags;
	(void)arg;
	if (s != NULL)
		answer_malformed(s, "bad header field");
	return 0;
}

/* RFC 9110 s15.2, RFC 9113 s8.6: interim replies; there is no 101. */
static void
answer_head(struct h2_call *s, bool last)
{
	if (!answer_is_open(s))
		return;
	if (s->reply->status < 200) {
		if (s->reply->status == 101 || last ||
		    ++s->interims > H2_LINK_INTERIM_MAX)
			answer_malformed(s, "unwanted interim reply");
		return;
	}
	s->phase = H2_CALL_BODY;
	s->owner->head(s->arg, last);
}

/* ---- bodies ---------------------------------------------------------------
 */

static int
answer_data(nghttp2_session *session, uint8_t flags, int32_t id,
    const uint8_t *data, size_t n, void *arg)
{
	struct h2_call *s = answer_call(session, id);
	struct h2_link *c = arg;
	bool nomem = false;

	(void)flags;
	/*
	 * The window of the connection is for all: a call that is paused holds
	 * its own only, so that no other waits for it.
	 */
	if (nghttp2_session_consume_connection(session, n) != 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	if (s == NULL || !answer_is_open(s) || c->condemned)
		return 0;
	if (s->paused || buf_len(&s->in) != 0) {
		nomem = buf_add(&s->in, data, n) != 0;
	} else {
		s->owner->body(s->arg, view_of(data, n));
		nomem = !s->left &&
		    nghttp2_session_consume_stream(session, id, n) ==
			NGHTTP2_ERR_NOMEM;
	}
	if (nomem)
		h2_link_fault(s, H2_CALL_NOMEM, err_str(SP_E_NOMEM),
		    NGHTTP2_INTERNAL_ERROR);
	return 0;
}

static void
answer_end(struct h2_call *s)
{
	if (s->fault == 0 && s->phase == H2_CALL_BODY)
		s->phase = H2_CALL_ENDED;
	/* end() follows, when nghttp2 has closed the stream */
	h2_link_mark(s);
}

/* ---- frames ---------------------------------------------------------------
 */

/* Frames of which a server needs but few; bodies and heads are paid for. */
static int
answer_frame_begins(nghttp2_session *session, const nghttp2_frame_hd *hd,
    void *arg)
{
	bool ack = (hd->flags & NGHTTP2_FLAG_ACK) != 0;
	struct h2_link *c = arg;

	/* those of calls that were given up count by their bytes */
	if (hd->stream_id == 0 || answer_call(session, hd->stream_id) != NULL)
		c->untold -= 9 + (int64_t)hd->length;
	if (c->condemned)
		return 0;
	/* RFC 9113 s8.4: switched off, whether or not it knows that already */
	if (hd->type == NGHTTP2_PUSH_PROMISE)
		h2_link_condemn(c, NGHTTP2_PROTOCOL_ERROR,
		    "the server pushes, which nobody asked for");
	else if (hd->type == NGHTTP2_SETTINGS && !ack)
		h2_link_idle_frame(c, H2_LINK_SETTINGS_COST);
	else if (hd->type != NGHTTP2_DATA && hd->type != NGHTTP2_HEADERS &&
	    hd->type != NGHTTP2_RST_STREAM)
		h2_link_idle_frame(c, 1);
	return 0;
}

static void
answer_settings(nghttp2_session *session, struct h2_link *c)
{
	c->settled = true;
	c->client->streams_max = nghttp2_session_get_remote_settings(session,
	    NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

static int
answer_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
	struct h2_link *c = arg;
	struct h2_call *s = answer_call(session, frame->hd.stream_id);

	if (frame->hd.type == NGHTTP2_SETTINGS &&
	    (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0)
		answer_settings(session, c);
	else if (frame->hd.type == NGHTTP2_GOAWAY)
		c->going = true;
	else if (frame->hd.type == NGHTTP2_RST_STREAM && s != NULL)
		s->peer_reset = true;
	if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	/* nothing but padding, if that */
	if (frame->hd.type == NGHTTP2_DATA && !end &&
	    frame->hd.length <= frame->data.padlen)
		h2_link_idle_frame(c, 1);
	if (s == NULL || c->condemned)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && s->phase == H2_CALL_HEAD)
		answer_head(s, end);
	if (end)
		answer_end(s);
	return 0;
}

static int
answer_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame,
    int code, void *arg)
{
	struct h2_link *c = arg;

	/* one of a stream ends that, which answer_closed() is told */
	if (answer_call(session, frame->hd.stream_id) == NULL &&
	    c->breach == NULL)
		c->breach = nghttp2_strerror(code);
	return 0;
}

static const char *
answer_reset_text(uint32_t code)
{
	switch (code) {
	case NGHTTP2_NO_ERROR:
		return "the server reset the stream";
	case NGHTTP2_INTERNAL_ERROR:
		return "the server reset the stream: INTERNAL_ERROR";
	case NGHTTP2_CANCEL:
		return "the server reset the stream: CANCEL";
	case NGHTTP2_ENHANCE_YOUR_CALM:
		return "the server reset the stream: ENHANCE_YOUR_CALM";
	case NGHTTP2_HTTP_1_1_REQUIRED:
		return "the server wants HTTP/1.1 for this; see \"http2\" of "
		       "the upstream";
	case NGHTTP2_REFUSED_STREAM:
		return "the server refused the stream";
	default:
		return "the server reset the stream with an error";
	}
}

static int
answer_closed(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct h2_call *s = answer_call(session, id);
	struct h2_link *c = arg;

	if (s == NULL)
		return 0;
	s->closed = true;
	if (s->fault == 0 && s->phase != H2_CALL_ENDED && !s->left) {
		if (c->breach != NULL) {
			s->fault = H2_CALL_MALFORMED;
			s->text = c->breach;
		} else if (s->phase == H2_CALL_HEAD &&
		    (code == NGHTTP2_REFUSED_STREAM || !s->began)) {
			s->fault = H2_CALL_REFUSED;
			s->text = answer_reset_text(NGHTTP2_REFUSED_STREAM);
			c->client->stats.refused++;
		} else if (s->peer_reset || s->phase == H2_CALL_BODY) {
			s->fault = H2_CALL_BROKEN;
			s->text = s->peer_reset ? answer_reset_text(code)
			    : c->going && code == NGHTTP2_REFUSED_STREAM
			    /* RFC 9113 s6.8: its last stream is an older one */
			    ? "the server went away (GOAWAY) within the reply"
			    : "the reply breaks HTTP/2, or is not as long as "
			      "it said";
		} else {
			s->fault = H2_CALL_MALFORMED;
			s->text = "the reply breaks HTTP/2";
		}
	}
	h2_link_mark(s);
	return 0;
}

void
h2_answer_callbacks(nghttp2_session_callbacks *cb)
{
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb,
	    answer_begins);
	nghttp2_session_callbacks_set_on_header_callback2(cb, answer_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback2(cb,
	    answer_invalid_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb,
	    answer_data);
	nghttp2_session_callbacks_set_on_begin_frame_callback(cb,
	    answer_frame_begins);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, answer_frame);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb,
	    answer_invalid_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb,
	    answer_closed);
}
