/* A client of HTTP/2: nghttp2 for what is right, raw frames for the rest. */
#ifndef SP_T_UNIT_H2_PEER_H
#define SP_T_UNIT_H2_PEER_H

#include <nghttp2/nghttp2.h>

#include "http_peer.h"

enum { H2_PEER_STREAMS = 512 };

struct h2_reply {
	struct buf body;
	unsigned status, interim;
	bool head, end, closed;
	uint32_t code; /* of the close */
};

struct h2_send {
	struct view body;
	size_t at;
	bool more; /* it does not end with these bytes */
};

/* The client's end of one connection. */
static struct {
	nghttp2_session *session;
	struct peer *peer;
	size_t read; /* of peer->got */
	struct h2_reply replies[H2_PEER_STREAMS]; /* by id / 2 */
	unsigned goaways, closed;
	uint32_t goaway_code;
	int32_t goaway_last, first_goaway_last;
	bool broken;
} h2c;

static struct h2_reply *
h2c_reply(int32_t id)
{
	if (id / 2 >= H2_PEER_STREAMS)
		abort();
	return &h2c.replies[id / 2];
}

static int
h2c_on_header(nghttp2_session *s, const nghttp2_frame *f, nghttp2_rcbuf *name,
    nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
	nghttp2_vec n = nghttp2_rcbuf_get_buf(name);
	nghttp2_vec v = nghttp2_rcbuf_get_buf(value);
	struct h2_reply *r = h2c_reply(f->hd.stream_id);
	unsigned status = 0;
	size_t i;

	(void)s;
	(void)flags;
	(void)arg;
	if (!view_eq(view_of(n.base, n.len), VIEW(":status")))
		return 0;
	for (i = 0; i < v.len; i++)
		status = status * 10 + (v.base[i] - '0');
	if (status < 200) {
		r->interim = status;
		return 0;
	}
	r->status = status;
	r->head = true;
	return 0;
}

static int
h2c_on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data,
    size_t n, void *arg)
{
	(void)s;
	(void)flags;
	(void)arg;
	if (buf_add(&h2c_reply(id)->body, data, n) != 0)
		abort();
	return 0;
}

static int
h2c_on_frame(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	(void)s;
	(void)arg;
	if (f->hd.type == NGHTTP2_GOAWAY) {
		if (h2c.goaways++ == 0)
			h2c.first_goaway_last = f->goaway.last_stream_id;
		h2c.goaway_code = f->goaway.error_code;
		h2c.goaway_last = f->goaway.last_stream_id;
	}
	if ((f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS) &&
	    (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
		h2c_reply(f->hd.stream_id)->end = true;
	return 0;
}

static int
h2c_on_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
	struct h2_reply *r = h2c_reply(id);

	(void)s;
	(void)arg;
	r->closed = true;
	r->code = code;
	h2c.closed++;
	return 0;
}

static ssize_t
h2c_read_body(nghttp2_session *s, int32_t id, uint8_t *out, size_t n,
    uint32_t *flags, nghttp2_data_source *from, void *arg)
{
	struct h2_send *b = from->ptr;

	(void)s;
	(void)id;
	(void)arg;
	if (n > b->body.n - b->at)
		n = b->body.n - b->at;
	if (n == 0 && b->more)
		return NGHTTP2_ERR_DEFERRED;
	if (n != 0)
		memcpy(out, b->body.p + b->at, n);
	b->at += n;
	if (b->at == b->body.n && !b->more)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

static inline void
h2c_clear(void)
{
	size_t i;

	nghttp2_session_del(h2c.session);
	for (i = 0; i < H2_PEER_STREAMS; i++)
		buf_clear(&h2c.replies[i].body);
	memset(&h2c, 0, sizeof(h2c));
}

/* manual: windows are opened by the test. */
static inline void
h2c_begin(struct peer *p, bool manual)
{
	nghttp2_session_callbacks *cb;
	nghttp2_option *o;
	size_t i;

	h2c_clear();
	h2c.peer = p;
	for (i = 0; i < H2_PEER_STREAMS; i++)
		buf_init(&h2c.replies[i].body, 1 << 26);
	if (nghttp2_session_callbacks_new(&cb) != 0 ||
	    nghttp2_option_new(&o) != 0)
		abort();
	nghttp2_session_callbacks_set_on_header_callback2(cb, h2c_on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb,
	    h2c_on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, h2c_on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb,
	    h2c_on_close);
	nghttp2_option_set_no_auto_window_update(o, manual);
	nghttp2_option_set_no_http_messaging(o, 1);
	if (nghttp2_session_client_new2(&h2c.session, cb, NULL, o) != 0 ||
	    nghttp2_submit_settings(h2c.session, 0, NULL, 0) != 0)
		abort();
	nghttp2_session_callbacks_del(cb);
	nghttp2_option_del(o);
}

/* What came is read, what is due is sent. */
static inline void
h2c_pump(void)
{
	struct peer *p = h2c.peer;
	struct view got;
	const uint8_t *out;
	ssize_t n;

	if (h2c.session == NULL || h2c.broken)
		return;
	got = view_from(buf_view(&p->got), h2c.read);
	if (got.n != 0) {
		n = nghttp2_session_mem_recv(h2c.session,
		    (const uint8_t *)got.p, got.n);
		if (n < 0)
			h2c.broken = true;
		h2c.read += got.n;
	}
	while (p->fd != -1 && !p->eof && !p->reset &&
	    (n = nghttp2_session_mem_send(h2c.session, &out)) > 0)
		peer_send(p, view_of(out, (size_t)n));
}

static inline nghttp2_nv
h2c_nv(const char *name, const char *value)
{
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name,
		(uint8_t *)(uintptr_t)value, strlen(name), strlen(value), 0 };
}

/* body NULL: the request ends with its head. extra: a field more, or NULL. */
static inline int32_t
h2c_ask(const char *method, const char *path, struct h2_send *body,
    const char *name, const char *value)
{
	nghttp2_data_provider from = { { .ptr = body }, h2c_read_body };
	nghttp2_nv nv[5] = { h2c_nv(":method", method), h2c_nv(":path", path),
		h2c_nv(":scheme", "http"), h2c_nv(":authority", "h") };
	size_t n = 4;
	int32_t id;

	if (name != NULL)
		nv[n++] = h2c_nv(name, value);
	id = nghttp2_submit_request(h2c.session, NULL, nv, n,
	    body != NULL ? &from : NULL, NULL);
	if (id < 0)
		abort();
	return id;
}

static inline int32_t
h2c_get(const char *path)
{
	return h2c_ask("GET", path, NULL, NULL, NULL);
}

/* ---- raw frames ----------------------------------------------------------- */

#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static inline void
h2_frame(struct buf *b, unsigned type, unsigned flags, uint32_t id,
    struct view payload)
{
	char h[9] = { (char)(payload.n >> 16), (char)(payload.n >> 8),
		(char)payload.n, (char)type, (char)flags, (char)(id >> 24),
		(char)(id >> 16), (char)(id >> 8), (char)id };

	if (buf_add(b, h, 9) != 0 || buf_add_view(b, payload) != 0)
		abort();
}

/* GET / of http://h by the static table (RFC 7541 appendix A). */
#define H2_GET "\x82\x86\x84\x41\x01h"

#endif
