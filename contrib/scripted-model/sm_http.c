#include "sm_http.h"

#include "base/num.h"

enum { HEAD_MAX = 256 * 1024, LINE_MAX_BYTES = 16 * 1024 };

enum {
	S_HEAD,
	S_LENGTH,
	S_CHUNK_SIZE,
	S_CHUNK,
	S_CHUNK_END,
	S_TRAILER,
	S_DONE
};

void
sm_http_init(struct sm_http *h, size_t body_max)
{
	memset(h, 0, sizeof(*h));
	h->body_max = body_max;
	buf_init(&h->body, body_max);
}

void
sm_http_reset(struct sm_http *h)
{
	buf_clear(&h->body);
	arena_free(h->a);
	sm_http_init(h, h->body_max);
}

struct view
sm_http_header(const struct sm_http *h, const char *name)
{
	size_t i;

	for (i = 0; i < h->headers_n; i++)
		if (view_eq(h->headers[i].name, view_str(name)))
			return h->headers[i].value;
	return VIEW_NONE;
}

static int
refuse(struct sm_http *h, int status)
{
	h->status = status;
	h->close = true;
	return SP_E_PROTO;
}

/* The next line of *rest without its end. */
static bool
next_line(struct view *rest, struct view *line)
{
	if (!view_split(rest, '\n', line))
		return false;
	if (line->n > 0 && line->p[line->n - 1] == '\r')
		line->n--;
	return true;
}

/* Bytes of the head with its blank line, 0 while it is not whole. */
static size_t
head_len(struct view v, size_t from)
{
	size_t i = from > 3 ? from - 3 : 0;

	for (; v.p != NULL && i < v.n; i++) {
		if (v.p[i] != '\n')
			continue;
		if (i + 1 < v.n && v.p[i + 1] == '\n')
			return i + 2;
		if (i + 2 < v.n && v.p[i + 1] == '\r' && v.p[i + 2] == '\n')
			return i + 3;
	}
	return 0;
}

static int
request_line(struct sm_http *h, struct view line)
{
	struct view version;

	if (!view_split(&line, ' ', &h->method) ||
	    !view_split(&line, ' ', &h->target) ||
	    !view_split(&line, ' ', &version) || h->method.n == 0 ||
	    h->target.n == 0)
		return refuse(h, 400);
	if (!view_starts(version, VIEW("HTTP/1.")))
		return refuse(h,
		    view_starts(version, VIEW("HTTP/")) ? 505 : 400);
	h->http10 = view_eq(version, VIEW("HTTP/1.0"));
	h->close = h->http10;
	h->path = view_sub(h->target, 0, view_find(h->target, '?'));
	return 0;
}

static int
header_line(struct sm_http *h, struct view line)
{
	size_t colon = view_find(line, ':');
	struct sm_header *e;
	char *name;
	size_t i;

	if (colon == line.n || colon == 0)
		return refuse(h, 400);
	if (h->headers_n == SM_HTTP_HEADERS)
		return refuse(h, 431);
	e = &h->headers[h->headers_n++];
	name = arena_strdup(h->a, view_sub(line, 0, colon));
	if (name == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < colon; i++)
		if (name[i] >= 'A' && name[i] <= 'Z')
			name[i] = (char)(name[i] | 32);
	e->name = view_of(name, colon);
	e->value = view_trim(view_from(line, colon + 1));
	return 0;
}

/* RFC 9112 s6.3 */
static int
body_framing(struct sm_http *h)
{
	struct view te = sm_http_header(h, "transfer-encoding");
	struct view cl = sm_http_header(h, "content-length");
	struct view conn = sm_http_header(h, "connection");

	if (view_eq_nocase(conn, VIEW("close")))
		h->close = true;
	if (view_eq_nocase(conn, VIEW("keep-alive")))
		h->close = false;
	if (view_eq_nocase(sm_http_header(h, "expect"), VIEW("100-continue")))
		h->expect = !h->http10;
	h->state = S_LENGTH;
	if (te.p != NULL) {
		if (!view_eq_nocase(te, VIEW("chunked")) || cl.p != NULL)
			return refuse(h, 400);
		h->state = S_CHUNK_SIZE;
	} else if (cl.p != NULL && num_u64(cl, 0, UINT64_MAX, &h->left) != 0) {
		return refuse(h, 400);
	}
	if (h->left > h->body_max)
		return refuse(h, 413);
	return 0;
}

static int
parse_head(struct sm_http *h, struct view head)
{
	struct view line;
	int rc;

	/* RFC 9112 s2.2: an empty line before the request line is ignored */
	do {
		if (!next_line(&head, &line))
			return refuse(h, 400);
	} while (line.n == 0);
	rc = request_line(h, line);
	while (rc == 0 && next_line(&head, &line) && line.n > 0)
		rc = header_line(h, line);
	return rc != 0 ? rc : body_framing(h);
}

static int
feed_head(struct sm_http *h, struct buf *in)
{
	struct view v = buf_view(in);
	struct view head;
	size_t n, skip = 0;

	while (v.p != NULL && skip < v.n &&
	    (v.p[skip] == '\r' || v.p[skip] == '\n'))
		skip++;
	if (skip > 0) {
		buf_consume(in, skip);
		h->scanned = 0;
		v = buf_view(in);
	}
	if (v.n == 0)
		return SP_E_AGAIN;
	n = head_len(v, h->scanned);
	h->scanned = v.n;
	if (n > HEAD_MAX || (n == 0 && v.n > HEAD_MAX))
		return refuse(h, 431);
	if (n == 0)
		return SP_E_AGAIN;
	h->a = arena_new((size_t)4 * HEAD_MAX);
	if (h->a == NULL || arena_dup(h->a, view_sub(v, 0, n), &head) != 0)
		return SP_E_NOMEM;
	h->headers = arena_alloc(h->a, SM_HTTP_HEADERS * sizeof(*h->headers));
	if (h->headers == NULL)
		return SP_E_NOMEM;
	buf_consume(in, n);
	h->scanned = 0;
	return parse_head(h, head);
}

static int
feed_bytes(struct sm_http *h, struct buf *in)
{
	size_t n = buf_len(in) < h->left ? buf_len(in) : (size_t)h->left;
	int rc;

	if (n > 0) {
		rc = buf_add_view(&h->body, view_sub(buf_view(in), 0, n));
		if (rc == SP_E_LIMIT)
			return refuse(h, 413);
		if (rc != 0)
			return rc;
		buf_consume(in, n);
		h->left -= n;
	}
	if (h->left > 0)
		return SP_E_AGAIN;
	h->state = h->state == S_CHUNK ? S_CHUNK_END : S_DONE;
	return 0;
}

/* A line of chunk framing: its size, the CRLF after it, or a trailer. */
static int
feed_line(struct sm_http *h, struct buf *in)
{
	struct view v = buf_view(in);
	size_t n = view_find(v, '\n');
	struct view line = view_sub(v, 0, n);
	int rc = 0;

	if (n > LINE_MAX_BYTES)
		return refuse(h, 400);
	if (n == v.n)
		return SP_E_AGAIN;
	if (line.n > 0 && line.p[line.n - 1] == '\r')
		line.n--;
	if (h->state == S_CHUNK_SIZE) {
		line = view_trim(view_sub(line, 0, view_find(line, ';')));
		if (num_hex(line, UINT64_MAX, &h->left) != 0)
			rc = refuse(h, 400);
		else if (h->left > h->body_max)
			rc = refuse(h, 413);
		h->state = h->left > 0 ? S_CHUNK : S_TRAILER;
	} else if (h->state == S_CHUNK_END) {
		if (line.n > 0)
			rc = refuse(h, 400);
		h->state = S_CHUNK_SIZE;
	} else if (line.n == 0) {
		h->state = S_DONE;
	}
	buf_consume(in, n + 1);
	return rc;
}

int
sm_http_feed(struct sm_http *h, struct buf *in)
{
	int rc = 0;

	/* Each turn consumes bytes or changes the state. */
	while (rc == 0 && h->state != S_DONE) {
		if (h->state == S_HEAD)
			rc = feed_head(h, in);
		else if (h->state == S_LENGTH || h->state == S_CHUNK)
			rc = feed_bytes(h, in);
		else
			rc = feed_line(h, in);
	}
	return rc;
}
