#include "config.h"

#include "base/mem.h"
#include "http/h2_link.h"

enum { CALL_PSEUDO_N = 4, CALL_FRAME_WORTH = 2 };

/* ---- what nghttp2 asks for ------------------------------------------------
 */

/* NOLINTBEGIN(readability-function-size): nghttp2 says what it is given */
static ssize_t
call_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
    uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_call *s = source->ptr;
	size_t n = s->body.n - s->body_at;

	(void)session;
	(void)id;
	(void)arg;
	if (s->stopped) {
		s->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	if (n > length)
		n = length;
	if (n != 0)
		memcpy(buf, s->body.p + s->body_at, n);
	s->body_at += n;
	if (s->body_at == s->body.n)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}
/* NOLINTEND(readability-function-size) */

/* Once its first byte is written the server may have it. */
static int
call_frame_begins(nghttp2_session *session, const nghttp2_frame *frame,
    void *arg)
{
	struct h2_link *c = arg;
	struct h2_call *s;

	if (frame->hd.type == NGHTTP2_GOAWAY && !c->condemned &&
	    frame->goaway.error_code != NGHTTP2_NO_ERROR)
		h2_link_breach(c);
	if (frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (s != NULL) {
		s->began = true;
		s->first_at = c->out_all;
	}
	return 0;
}

static int
call_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_link *c = arg;
	struct h2_call *s;

	if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	/* each may be answered by two WINDOW_UPDATEs */
	if (c->idle.have < H2_IDLE_MOST)
		c->idle.have += CALL_FRAME_WORTH;
	s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (s == NULL)
		return 0;
	s->mark_at = c->out_all;
	if (s->next_at == 0)
		s->next_at = c->out_all;
	if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
		s->framed = true;
	return 0;
}

static int
call_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame,
    int code, void *arg)
{
	struct h2_call *s =
	    nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)arg;
	if (s == NULL || frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	s->began = false;
	if (code == NGHTTP2_ERR_FRAME_SIZE_ERROR && s->fault == 0) {
		s->fault = H2_CALL_BROKEN;
		s->text = "the request's fields are too large for HTTP/2";
	}
	return 0;
}

void
h2_call_callbacks(nghttp2_session_callbacks *cb)
{
	nghttp2_session_callbacks_set_before_frame_send_callback(cb,
	    call_frame_begins);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb,
	    call_frame_sent);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(cb,
	    call_frame_not_sent);
}

/* ---- the request ----------------------------------------------------------
 */

static nghttp2_nv
call_nv(struct view name, struct view value)
{
	/* nghttp2 only reads, and copies, names in lower case (RFC 9113
	 * s8.2.1); its type cannot say so */
	nghttp2_nv nv = { (uint8_t *)(uintptr_t)name.p,
		(uint8_t *)(uintptr_t)value.p, name.n, value.n,
		NGHTTP2_NV_FLAG_NONE };

	/* RFC 7541 s7.1.3: a key does not go into the table that the fields
	 * of all callers share */
	if (view_eq_nocase(name, VIEW("authorization")))
		nv.flags |= NGHTTP2_NV_FLAG_NO_INDEX;
	return nv;
}

/* The lines that h1_write_request_rest() made; their number, nv NULL too. */
static size_t
call_fields(struct view lines, nghttp2_nv *nv)
{
	size_t n = 0, colon, end;

	while ((end = view_search(lines, VIEW("\r\n"))) != 0 && end < lines.n) {
		colon = view_find(lines, ':');
		if (nv != NULL)
			nv[n] = call_nv(view_sub(lines, 0, colon),
			    view_sub(lines, colon + 2, end - colon - 2));
		n++;
		lines = view_from(lines, end + 2);
	}
	return n;
}

/* RFC 9113 s8.3.1: "/" for an empty path. */
static int
call_path(const struct h2_call_request *rq, struct buf *out)
{
	int rc = 0;

	if (rq->base.n == 0 && (rq->target.n == 0 || rq->target.p[0] == '?'))
		rc = buf_add(out, "/", 1);
	if (rc == 0)
		rc = buf_add_view(out, rq->base);
	return rc == 0 ? buf_add_view(out, rq->target) : rc;
}

static int
call_submit(struct h2_call *s, const struct h2_call_request *rq)
{
	nghttp2_data_provider from = { .source = { .ptr = s },
		.read_callback = call_read };
	struct buf path = BUF_INIT(H2_LINK_HEADER_BLOCK_MAX * 32);
	size_t n = CALL_PSEUDO_N + call_fields(rq->lines, NULL);
	nghttp2_nv *nv = mem_reallocarray(NULL, n, sizeof(*nv));
	int32_t id = -1;

	if (nv != NULL && call_path(rq, &path) == 0) {
		nv[0] = call_nv(VIEW(":method"), rq->method);
		nv[1] = call_nv(VIEW(":scheme"),
		    s->conn->tls ? VIEW("https") : VIEW("http"));
		nv[2] = call_nv(VIEW(":authority"), rq->authority);
		nv[3] = call_nv(VIEW(":path"), buf_view(&path));
		(void)call_fields(rq->lines, nv + CALL_PSEUDO_N);
		id = nghttp2_submit_request(s->conn->session, NULL, nv, n,
		    rq->body.n != 0 ? &from : NULL, s);
	}
	mem_free(nv);
	buf_clear(&path);
	if (id < 0)
		return SP_E_NOMEM;
	s->id = id;
	return 0;
}

int
h2_call_send(struct h2_call *s, const struct h2_call_request *rq,
    const struct h2_call_owner *owner, void *arg)
{
	struct h2_link *c = s->conn;

	s->phase = H2_CALL_HEAD;
	s->body = rq->body;
	s->reply = rq->reply;
	s->arena = rq->arena;
	s->header_max = rq->header_max;
	s->fields_max = rq->fields_max;
	if (c->dead || c->condemned) {
		/* lost between the two: told from the loop */
		s->closed = true;
		if (s->fault == 0) {
			s->fault = H2_CALL_REFUSED;
			s->text = "the connection was lost";
		}
	} else if (call_submit(s, rq) != 0) {
		return SP_E_NOMEM;
	} else {
		c->requests++;
		c->client->stats.requests++;
		s->sending = true;
		TAILQ_INSERT_TAIL(&c->sending, s, sending_link);
	}
	s->owner = owner;
	s->arg = arg;
	h2_link_mark(s);
	return 0;
}

void
h2_call_pause(struct h2_call *s, bool paused)
{
	s->paused = paused;
	if (!paused)
		h2_link_mark(s);
}

void
h2_call_stop(struct h2_call *s)
{
	s->stopped = true;
	s->body = VIEW_NONE;
	s->body_at = 0;
}
