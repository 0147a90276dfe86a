#include "sm_reply.h"

#include <zlib.h>

#include "base/mem.h"

enum { REPLY_MAX = 1 << 30 };

static int
marks_add(struct sm_marks *m, size_t off, enum sm_mark_kind kind, uint32_t val)
{
	struct sm_mark *v;
	size_t cap;

	if (m->n == m->cap) {
		cap = m->cap ? m->cap * 2 : 16;
		v = mem_reallocarray(m->v, cap, sizeof(*v));
		if (v == NULL)
			return SP_E_NOMEM;
		m->v = v;
		m->cap = cap;
	}
	m->v[m->n++] = (struct sm_mark){ off, kind, val };
	return 0;
}

void
sm_reply_payload_init(struct sm_payload *p)
{
	sm_out_init(&p->body, REPLY_MAX);
	p->marks = (struct sm_marks){ 0 };
}

void
sm_reply_payload_clear(struct sm_payload *p)
{
	sm_out_clear(&p->body);
	mem_free(p->marks.v);
	p->marks = (struct sm_marks){ 0 };
}

void
sm_reply_mark(struct sm_payload *p, enum sm_mark_kind kind, uint32_t val)
{
	if (p->body.err == 0)
		p->body.err =
		    marks_add(&p->marks, buf_len(&p->body.b), kind, val);
}

struct sm_reply *
sm_reply_ref(struct sm_reply *r)
{
	r->refs++;
	return r;
}

void
sm_reply_unref(struct sm_reply *r)
{
	if (r == NULL || --r->refs > 0)
		return;
	buf_clear(&r->bytes);
	mem_free(r->marks.v);
	mem_free(r);
}

const char *
sm_reply_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{ 200, "OK" },
		{ 204, "No Content" },
		{ 301, "Moved Permanently" },
		{ 302, "Found" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 413, "Content Too Large" },
		{ 417, "Expectation Failed" },
		{ 422, "Unprocessable Content" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
	};
	size_t i;

	for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Status";
}

static void
put_head(struct sm_out *o, const struct sm_frame *f, size_t body_n)
{
	bool http10 = f->framing == SM_FRAMING_HTTP10;

	if (f->framing == SM_FRAMING_NONE)
		return;
	sm_out_fmt(o, "HTTP/1.%d %d %s\r\n", !http10, f->status,
	    sm_reply_reason(f->status));
	if (f->type.n > 0)
		sm_out_fmt(o, "content-type: %.*s\r\n", VIEW_ARG(f->type));
	if (f->gzip)
		sm_out_str(o, "content-encoding: gzip\r\n");
	if (f->framing == SM_FRAMING_CHUNKED && !f->own_framing)
		sm_out_str(o, "transfer-encoding: chunked\r\n");
	if (f->framing == SM_FRAMING_LENGTH && !f->own_framing &&
	    f->status != 204)
		sm_out_fmt(o, "content-length: %zu\r\n", body_n);
	if (f->close && !http10)
		sm_out_str(o, "connection: close\r\n");
	sm_out_add(o, f->headers);
	sm_out_str(o, "\r\n");
}

/* How many bytes of the body the chunk that begins at off holds. */
static size_t
chunk_len(const struct sm_payload *p, const struct sm_frame *f, size_t off,
    size_t mark)
{
	size_t n = buf_len(&p->body.b) - off;

	if (f->chunk_n > 0)
		return n < (size_t)f->chunk_n ? n : (size_t)f->chunk_n;
	if (f->chunk_n == SM_WHOLE)
		return n;
	for (; mark < p->marks.n; mark++)
		if (p->marks.v[mark].kind == SM_MARK_EVENT &&
		    p->marks.v[mark].off > off)
			return p->marks.v[mark].off - off;
	return n;
}

struct framer {
	struct sm_out wire;
	struct sm_marks marks;
	size_t mark; /* next one of the payload */
	size_t off; /* next byte of the payload */
};

/* Carries over the payload's marks that stand at or before off. */
static void
carry_marks(struct framer *w, const struct sm_payload *p, size_t off)
{
	while (w->mark < p->marks.n && p->marks.v[w->mark].off <= off) {
		const struct sm_mark *m = &p->marks.v[w->mark++];

		if (w->wire.err == 0)
			w->wire.err = marks_add(&w->marks, buf_len(&w->wire.b),
			    m->kind, m->val);
	}
}

/* Copies payload bytes up to end, with the marks that lie between. */
static void
carry_bytes(struct framer *w, const struct sm_payload *p, size_t end)
{
	struct view body = buf_view(&p->body.b);

	while (w->off < end) {
		size_t to = end;

		if (w->mark < p->marks.n && p->marks.v[w->mark].off < end)
			to = p->marks.v[w->mark].off;
		if (to > w->off)
			sm_out_add(&w->wire,
			    view_sub(body, w->off, to - w->off));
		w->off = to;
		if (to < end)
			carry_marks(w, p, to);
	}
}

/* RFC 9112 s7.1 */
static void
frame_body(struct framer *w, const struct sm_payload *p,
    const struct sm_frame *f)
{
	size_t total = buf_len(&p->body.b);

	carry_marks(w, p, 0);
	if (f->framing != SM_FRAMING_CHUNKED) {
		carry_bytes(w, p, total);
		carry_marks(w, p, total);
		return;
	}
	while (w->off < total && w->wire.err == 0) {
		size_t end = w->off + chunk_len(p, f, w->off, w->mark);

		sm_out_fmt(&w->wire, "%zx\r\n", end - w->off);
		carry_bytes(w, p, end);
		sm_out_str(&w->wire, "\r\n");
		carry_marks(w, p, end);
	}
	sm_out_str(&w->wire, "0\r\n\r\n");
}

/* Puts the cut where asked, and forgets what would come after it. */
static void
cut_marks(struct sm_marks *m, long long at, bool reset, struct sm_out *o)
{
	size_t i;

	if (at < 0 || o->err != 0)
		return;
	for (i = 0; i < m->n && m->v[i].off <= (size_t)at;)
		i++;
	m->n = i;
	o->err = marks_add(m, (size_t)at, reset ? SM_MARK_RST : SM_MARK_FIN, 0);
}

/* One deflate call, as many output buffers as it takes. */
static void
deflate_some(z_stream *z, struct sm_out *o, int flush)
{
	unsigned char tmp[4096];
	int rc;

	do {
		z->next_out = tmp;
		z->avail_out = sizeof(tmp);
		rc = deflate(z, flush);
		sm_out_add(o, view_of(tmp, sizeof(tmp) - z->avail_out));
	} while (z->avail_out == 0 && rc == Z_OK && o->err == 0);
}

/* Replaces the payload by its gzip form, marks moved along (RFC 1952). */
static int
compress_payload(struct sm_payload *p)
{
	struct view body = buf_view(&p->body.b);
	struct sm_out o;
	z_stream z = { 0 };
	size_t off = 0, i;

	if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
		Z_DEFAULT_STRATEGY) != Z_OK)
		return SP_E_NOMEM;
	sm_out_init(&o, REPLY_MAX);
	for (i = 0; i <= p->marks.n; i++) {
		size_t end = i < p->marks.n ? p->marks.v[i].off : body.n;
		struct view piece = view_sub(body, off, end - off);
		char none = 0;

		z.next_in =
		    piece.n ? (Bytef *)(uintptr_t)piece.p : (Bytef *)&none;
		z.avail_in = (uInt)piece.n;
		if (i == p->marks.n)
			deflate_some(&z, &o, Z_FINISH);
		else if (piece.n > 0)
			deflate_some(&z, &o, Z_SYNC_FLUSH);
		if (i < p->marks.n)
			p->marks.v[i].off = buf_len(&o.b);
		off = end;
	}
	deflateEnd(&z);
	sm_out_clear(&p->body);
	p->body = o;
	return o.err;
}

int
sm_reply_make(struct sm_payload *p, const struct sm_frame *f,
    struct sm_reply **out)
{
	struct framer w = { 0 };
	struct sm_reply *r;
	int rc = p->body.err;

	*out = NULL;
	if (rc == 0 && f->gzip)
		rc = compress_payload(p);
	if (rc != 0)
		return rc;
	r = mem_calloc(1, sizeof(*r));
	if (r == NULL)
		return SP_E_NOMEM;
	cut_marks(&p->marks, f->cut_body, f->cut_reset, &p->body);
	sm_out_init(&w.wire, REPLY_MAX);
	w.wire.err = p->body.err;
	if (f->delay_ms > 0 && w.wire.err == 0)
		w.wire.err = marks_add(&w.marks, 0, SM_MARK_PAUSE, f->delay_ms);
	put_head(&w.wire, f, buf_len(&p->body.b));
	if (!f->head_only && f->status != 204)
		frame_body(&w, p, f);
	cut_marks(&w.marks, f->cut_wire, f->cut_reset, &w.wire);
	r->refs = 1;
	buf_take(&r->bytes, &w.wire.b);
	r->marks = w.marks;
	r->write_n = f->write_n;
	r->write_gap_ms = f->write_gap_ms;
	r->pace = f->pace;
	r->close = f->close || f->framing > SM_FRAMING_LENGTH;
	if (w.wire.err != 0) {
		rc = w.wire.err;
		sm_reply_unref(r);
		return rc;
	}
	*out = r;
	return 0;
}
