/* Servers of HTTP/2 for calls: nghttp2 for what is right, raw frames else. */
#ifndef SP_T_UNIT_H2_UPSTREAM_H
#define SP_T_UNIT_H2_UPSTREAM_H

#include "h2_peer.h"

enum { H2S_REQUESTS = 256 };

struct h2s_request {
	struct buf head; /* "name=value;" */
	struct buf body;
	int conn; /* index of peers[] */
	int32_t id;
	bool end, closed;
	uint32_t code; /* of the close */
	struct h2_send send;
};

static struct {
	int lfd;
	unsigned accepted;
	bool raw; /* connections are served by hand */
	bool manual; /* windows open by hand */
	bool byte; /* what is sent leaves in single bytes */
	uint32_t max_streams; /* told with SETTINGS; 0 nothing */
	nghttp2_session *session[PEERS];
	size_t read[PEERS];
	int conn; /* accepted last */
	struct h2s_request rq[H2S_REQUESTS];
	size_t rq_n;
	unsigned pings;
	bool went; /* a GOAWAY came */
	uint32_t went_code;
} h2s;

static inline struct h2s_request *
h2s_find(int conn, int32_t id)
{
	size_t i;

	/* the latest: places of connections are used again */
	for (i = h2s.rq_n; i-- > 0;)
		if (h2s.rq[i].conn == conn && h2s.rq[i].id == id)
			return &h2s.rq[i];
	return NULL;
}

static inline int
h2s_begin_headers(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	struct h2s_request *r = &h2s.rq[h2s.rq_n++];

	(void)s;
	if (h2s.rq_n == H2S_REQUESTS)
		abort();
	*r = (struct h2s_request){ .head = BUF_INIT(1 << 20),
		.body = BUF_INIT(1 << 26),
		.conn = (int)(intptr_t)arg,
		.id = f->hd.stream_id };
	return 0;
}

static inline int
h2s_header(nghttp2_session *s, const nghttp2_frame *f, nghttp2_rcbuf *name,
    nghttp2_rcbuf *value, uint8_t flags, void *arg)
{
	nghttp2_vec n = nghttp2_rcbuf_get_buf(name);
	nghttp2_vec v = nghttp2_rcbuf_get_buf(value);
	struct h2s_request *r = h2s_find((int)(intptr_t)arg, f->hd.stream_id);

	(void)s;
	(void)flags;
	if (buf_printf(&r->head, "%.*s=%.*s;", (int)n.len, n.base, (int)v.len,
		v.base) != 0)
		abort();
	return 0;
}

static inline int
h2s_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data,
    size_t n, void *arg)
{
	(void)s;
	(void)flags;
	if (buf_add(&h2s_find((int)(intptr_t)arg, id)->body, data, n) != 0)
		abort();
	return 0;
}

static inline int
h2s_frame(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
	struct h2s_request *r = h2s_find((int)(intptr_t)arg, f->hd.stream_id);

	(void)s;
	if (r != NULL &&
	    (f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS) &&
	    (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
		r->end = true;
	if (f->hd.type == NGHTTP2_PING && (f->hd.flags & 1) == 0)
		h2s.pings++;
	if (f->hd.type == NGHTTP2_GOAWAY) {
		h2s.went = true;
		h2s.went_code = f->goaway.error_code;
	}
	return 0;
}

static inline int
h2s_closed(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
	struct h2s_request *r = h2s_find((int)(intptr_t)arg, id);

	(void)s;
	if (r != NULL) {
		r->closed = true;
		r->code = code;
	}
	return 0;
}

static inline nghttp2_session *
h2s_session(int conn)
{
	const nghttp2_settings_entry max = {
		NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, h2s.max_streams
	};
	nghttp2_session_callbacks *cb;
	nghttp2_session *s;
	nghttp2_option *o;

	if (nghttp2_session_callbacks_new(&cb) != 0 ||
	    nghttp2_option_new(&o) != 0)
		abort();
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb,
	    h2s_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback2(cb, h2s_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, h2s_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, h2s_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, h2s_closed);
	nghttp2_option_set_no_auto_window_update(o, h2s.manual);
	/* it may break the rules of HTTP over HTTP/2 */
	nghttp2_option_set_no_http_messaging(o, 1);
	if (nghttp2_session_server_new2(&s, cb, (void *)(intptr_t)conn, o) !=
		0 ||
	    nghttp2_submit_settings(s, 0, &max, h2s.max_streams != 0) != 0)
		abort();
	nghttp2_session_callbacks_del(cb);
	nghttp2_option_del(o);
	return s;
}

static inline void
h2s_send(struct peer *p, struct view v)
{
	size_t i;

	for (i = 0; h2s.byte && i < v.n && p->fd != -1; i++)
		peer_send(p, view_sub(v, i, 1));
	if (!h2s.byte)
		peer_send(p, v);
}

static inline void
h2s_flush(int i)
{
	struct peer *p = &peers[i];
	const uint8_t *out;
	ssize_t n;

	while (h2s.session[i] != NULL && p->fd != -1 && !p->eof && !p->reset &&
	    (n = nghttp2_session_mem_send(h2s.session[i], &out)) > 0)
		h2s_send(p, view_of(out, (size_t)n));
}

static inline void
h2s_take(void)
{
	int fd, i, one = 1;

	while ((fd = accept4(h2s.lfd, NULL, NULL, SOCK_NONBLOCK)) != -1) {
		for (i = 0; i < PEERS; i++)
			if (peers[i].fd == -1 && h2s.session[i] == NULL)
				break;
		if (i == PEERS)
			abort();
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one,
		    sizeof(one));
		h2s.accepted++;
		peer_close(&peers[i]);
		peers[i].fd = fd;
		h2s.conn = i;
		h2s.read[i] = 0;
		if (!h2s.raw)
			h2s.session[i] = h2s_session(i);
	}
}

/* What came is read, what is due is sent. */
static inline void
h2s_pump(void)
{
	struct view got;
	int i;

	h2s_take();
	for (i = 0; i < PEERS; i++) {
		if (h2s.session[i] == NULL)
			continue;
		got = view_from(buf_view(&peers[i].got), h2s.read[i]);
		if (got.n != 0 &&
		    nghttp2_session_mem_recv(h2s.session[i],
			(const uint8_t *)got.p, got.n) < 0)
			tap_ok(false, "the client breaks HTTP/2");
		h2s.read[i] += got.n;
		h2s_flush(i);
	}
}

static inline void
h2s_reset(void)
{
	size_t i;
	int lfd = h2s.lfd;

	for (i = 0; i < PEERS; i++) {
		nghttp2_session_del(h2s.session[i]);
		peer_close(&peers[i]);
	}
	for (i = 0; i < h2s.rq_n; i++) {
		buf_clear(&h2s.rq[i].head);
		buf_clear(&h2s.rq[i].body);
	}
	memset(&h2s, 0, sizeof(h2s));
	h2s.lfd = lfd;
}

/* The connection ends without a word. */
static inline void
h2s_hang_up(int i, bool reset)
{
	h2s_flush(i);
	nghttp2_session_del(h2s.session[i]);
	h2s.session[i] = NULL;
	if (reset)
		peer_rst(&peers[i]);
	else
		peer_close(&peers[i]);
}

/* A head; fields: name, value, ..., NULL. */
static inline void
h2s_head(struct h2s_request *r, const char *status, bool end,
    const char *const *fields)
{
	nghttp2_nv nv[8] = { h2c_nv(":status", status) };
	size_t n = 1, i;

	for (i = 0; fields != NULL && fields[i] != NULL && n < 8; i += 2)
		nv[n++] = h2c_nv(fields[i], fields[i + 1]);
	if (nghttp2_submit_headers(h2s.session[r->conn], end, r->id, NULL, nv,
		n, NULL) != 0)
		abort();
	h2s_flush(r->conn);
}

/* Bytes of the body; the last ones unless more. */
static inline void
h2s_body(struct h2s_request *r, struct view v, bool more)
{
	nghttp2_data_provider from = { { .ptr = &r->send }, h2c_read_body };

	r->send = (struct h2_send){ .body = v, .more = more };
	if (nghttp2_submit_data(h2s.session[r->conn],
		more ? 0 : NGHTTP2_FLAG_END_STREAM, r->id, &from) != 0 &&
	    nghttp2_session_resume_data(h2s.session[r->conn], r->id) != 0)
		abort();
	h2s_flush(r->conn);
}

/* 200 and that. */
static inline void
h2s_reply(struct h2s_request *r, const char *body)
{
	h2s_head(r, "200", false, NULL);
	h2s_body(r, view_str(body), false);
}

#endif
