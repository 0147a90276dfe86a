#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/num.h"
#include "ctl/ctl_http.h"
#include "http/h1_parse.h"
#include "os/fd.h"

enum {
	HEAD_MAX = 64 * 1024,
	ARENA_MAX = 256 * 1024,
	HOST_MAX = 256,
	SILENCE_S = 60,
	READ_BYTES = 64 * 1024,
};

/* Where it is: views into the URL. */
struct place {
	bool is_unix;
	struct view host, port, path, authority;
};

static int
read_url(const char *url, struct place *out, const char **why)
{
	struct view v = view_str(url), end;
	uint64_t port;
	size_t slash, colon;

	memset(out, 0, sizeof(*out));
	*why =
	    "expected http://HOST:PORT, with or without a path, or unix:/PATH";
	if (view_starts(v, VIEW("unix:/"))) {
		out->is_unix = true;
		out->host = view_from(v, 5);
		out->authority = VIEW("localhost");
		return 0;
	}
	if (!view_starts(v, VIEW("http://")))
		return SP_E_ARG;
	v = view_from(v, 7);
	slash = view_find(v, '/');
	out->path = view_from(v, slash);
	out->authority = v = view_sub(v, 0, slash);
	end = v;
	if (v.n > 0 && v.p[0] == '[') {
		colon = view_find(v, ']');
		out->host = view_sub(v, 1, colon > 0 ? colon - 1 : 0);
		end = view_from(v, colon + 1);
		colon = view_find(end, ':');
	} else {
		colon = view_find(v, ':');
		out->host = view_sub(v, 0, colon);
	}
	out->port = colon < end.n ? view_from(end, colon + 1) : VIEW("80");
	if (out->host.n == 0 || out->host.n >= HOST_MAX ||
	    !h1_parse_is_authority(out->authority) ||
	    num_u64(out->port, 1, 65535, &port) != 0)
		return SP_E_ARG;
	while (out->path.n > 0 && out->path.p[out->path.n - 1] == '/')
		out->path.n--;
	return 0;
}

static int
connect_one(int family, const struct sockaddr *a, socklen_t n, int *out)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = SP_OK;

	if (fd < 0 || connect(fd, a, n) != 0) {
		rc = err_from_errno(errno);
		fd_close(&fd);
	}
	*out = fd;
	return rc;
}

static int
connect_unix(const struct place *at, int *out)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (at->host.n >= sizeof(a.sun_path))
		return SP_E_LIMIT;
	memcpy(a.sun_path, at->host.p, at->host.n);
	return connect_one(AF_UNIX, (const struct sockaddr *)&a, sizeof(a),
	    out);
}

static int
connect_tcp(const struct place *at, int *out)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *a;
	char host[HOST_MAX], port[8];
	int fd = -1, rc = SP_E_DNS;

	(void)snprintf(host, sizeof(host), "%.*s", VIEW_ARG(at->host));
	(void)snprintf(port, sizeof(port), "%.*s", VIEW_ARG(at->port));
	if (getaddrinfo(host, port, &hints, &list) != 0)
		return rc;
	for (a = list; a != NULL && rc != SP_OK; a = a->ai_next)
		rc = connect_one(a->ai_family, a->ai_addr, a->ai_addrlen, &fd);
	freeaddrinfo(list);
	*out = fd;
	return rc;
}

static int
put_head(const struct ctl_http_params *p, const struct place *at, struct buf *b)
{
	struct view path = at->path.n > 0 ? at->path : view_str(p->location);
	const char *type = p->type != NULL ? p->type : "application/json";
	int rc;

	rc = buf_printf(b,
	    "%s %.*s%s HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\n"
	    "Accept-Encoding: identity\r\n",
	    p->method, VIEW_ARG(path), p->rest, VIEW_ARG(at->authority));
	if (rc == 0 && p->token != NULL)
		rc = buf_printf(b, "Authorization: Bearer %s\r\n", p->token);
	if (rc == 0 && p->accept != NULL)
		rc = buf_printf(b, "Accept: %s\r\n", p->accept);
	if (rc == 0 && p->chunked)
		rc = buf_printf(b,
		    "Content-Type: %s\r\nTransfer-Encoding: chunked\r\n", type);
	else if (rc == 0 &&
	    (p->body.n > 0 || strcmp(p->method, "POST") == 0 ||
		strcmp(p->method, "PUT") == 0))
		rc =
		    buf_printf(b, "Content-Type: %s\r\nContent-Length: %zu\r\n",
			type, p->body.n);
	return rc == 0 ? buf_add_str(b, "\r\n") : rc;
}

static int
send_request(int fd, const struct ctl_http_params *p, const struct place *at)
{
	struct buf b = BUF_INIT((size_t)1024 * 1024);
	int rc = put_head(p, at, &b);

	/* a small body leaves with the head */
	if (rc == 0 && p->body.n <= READ_BYTES)
		rc = buf_add_view(&b, p->body);
	if (rc == 0)
		rc = fd_write_all(fd, buf_view(&b).p, buf_len(&b));
	if (rc == 0 && p->body.n > READ_BYTES)
		rc = fd_write_all(fd, p->body.p, p->body.n);
	buf_clear(&b);
	return rc;
}

int
ctl_http_chunk(struct buf *out, const struct view *v, size_t n)
{
	size_t before = buf_len(out), total = 0, i;
	int rc;

	for (i = 0; i < n; i++)
		total += v[i].n;
	if (total == 0)
		return 0; /* which would be the end */
	rc = buf_printf(out, "%zx\r\n", total);
	for (i = 0; i < n && rc == 0; i++)
		rc = buf_add_view(out, v[i]);
	if (rc == 0)
		rc = buf_add_str(out, "\r\n");
	if (rc != 0)
		buf_truncate(out, before);
	return rc;
}

int
ctl_http_read(struct ctl_http *h)
{
	size_t got = 0;
	int rc = buf_reserve(&h->in, READ_BYTES);

	if (rc == 0)
		rc = fd_read(h->fd, buf_tail(&h->in), READ_BYTES, &got);
	if (rc == 0)
		buf_grow(&h->in, got);
	return rc == SP_E_AGAIN ? SP_E_TIMEOUT : rc;
}

static int
take_head(struct ctl_http *h, unsigned *status)
{
	static const struct h1_scan_limits limits = { HEAD_MAX, HEAD_MAX, 200 };
	struct h1_scan s = { .reply = true };
	struct head_reply head = { 0 };
	struct h1_fault fault;
	struct arena *a;
	size_t n = 0;
	int rc;

	if (buf_len(&h->in) == 0)
		return SP_E_AGAIN;
	a = arena_new(ARENA_MAX);
	if (a == NULL)
		return SP_E_NOMEM;
	rc = h1_parse_scan(&s, buf_view(&h->in), &limits, &n, &fault);
	if (rc == 0)
		rc = h1_parse_reply(view_sub(buf_view(&h->in), 0, n), &s, a,
		    &head, &h->framing, &fault);
	if (rc == 0) {
		buf_consume(&h->in, n);
		*status = head.status;
	}
	arena_free(a);
	return rc;
}

int
ctl_http_take_head(struct ctl_http *h, unsigned *status)
{
	int rc;

	/* RFC 9110 s15.2: 100 Continue is not the answer */
	do
		rc = take_head(h, status);
	while (rc == 0 && *status < 200);
	if (rc == 0) {
		h->has_head = true;
		h1_body_init(&h->body, &h->framing, true);
	}
	return rc;
}

int
ctl_http_take(struct ctl_http *h, struct view *data)
{
	struct view left;
	int got;

	buf_consume(&h->in, h->used);
	h->used = 0;
	for (;;) {
		left = buf_view(&h->in);
		got = h1_body_next(&h->body, &left, SIZE_MAX / 2, data);
		if (got == H1_BODY_DATA) {
			h->used = buf_len(&h->in) - left.n;
			return 1;
		}
		buf_consume(&h->in, buf_len(&h->in) - left.n);
		if (got < 0)
			return got;
		if (got == H1_BODY_END)
			return 0;
		if (got == H1_BODY_MORE)
			return SP_E_AGAIN;
	}
}

int
ctl_http_head(struct ctl_http *h, unsigned *status)
{
	int rc = ctl_http_take_head(h, status);

	while (rc == SP_E_AGAIN) {
		rc = ctl_http_read(h);
		if (rc == 0)
			rc = ctl_http_take_head(h, status);
	}
	return rc == SP_E_EOF ? SP_E_GONE : rc;
}

int
ctl_http_next(struct ctl_http *h, struct view *data)
{
	int rc = ctl_http_take(h, data);

	while (rc == SP_E_AGAIN) {
		rc = ctl_http_read(h);
		if (rc == SP_E_EOF)
			return h1_body_at_close(&h->body) ? 0 : SP_E_GONE;
		if (rc == 0)
			rc = ctl_http_take(h, data);
	}
	return rc;
}

int
ctl_http_rest(struct ctl_http *h, struct buf *out)
{
	struct view data;
	int rc;

	while ((rc = ctl_http_next(h, &data)) == 1)
		if ((rc = buf_add_view(out, data)) != 0)
			return rc;
	return rc;
}

void
ctl_http_close(struct ctl_http *h)
{
	fd_close(&h->fd);
	buf_clear(&h->in);
}

int
ctl_http_open(const struct ctl_http_params *p, struct ctl_http *h,
    const char **why)
{
	const struct timeval silence = { .tv_sec = SILENCE_S };
	struct place at;
	int rc;

	memset(h, 0, sizeof(*h));
	h->fd = -1;
	buf_init(&h->in, 4 * (size_t)READ_BYTES);
	rc = read_url(p->url, &at, why);
	if (rc != 0)
		return rc;
	rc = at.is_unix ? connect_unix(&at, &h->fd) : connect_tcp(&at, &h->fd);
	*why = at.is_unix
	    ? "cannot connect (is sallyport running? -S or SALLYPORT_CONTROL "
	      "name another socket)"
	    : "cannot connect (is sallyport running, and listening there?)";
	if (rc != SP_OK)
		return rc;
	*why = "no answer";
	if (!p->patient)
		(void)setsockopt(h->fd, SOL_SOCKET, SO_RCVTIMEO, &silence,
		    sizeof(silence));
	(void)setsockopt(h->fd, SOL_SOCKET, SO_SNDTIMEO, &silence,
	    sizeof(silence));
	return send_request(h->fd, p, &at);
}

int
ctl_http_ask(const struct ctl_http_params *p, struct buf *out, unsigned *status,
    const char **why)
{
	struct ctl_http h;
	int rc = ctl_http_open(p, &h, why);

	if (rc == 0)
		rc = ctl_http_head(&h, status);
	if (rc == 0)
		rc = ctl_http_rest(&h, out);
	ctl_http_close(&h);
	return rc;
}
