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
connect_unix(const struct place *at)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd;

	if (at->host.n >= sizeof(a.sun_path))
		return -1;
	memcpy(a.sun_path, at->host.p, at->host.n);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
		fd_close(&fd);
	return fd;
}

static int
connect_tcp(const struct place *at)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *a;
	char host[HOST_MAX], port[8];
	int fd = -1;

	(void)snprintf(host, sizeof(host), "%.*s", VIEW_ARG(at->host));
	(void)snprintf(port, sizeof(port), "%.*s", VIEW_ARG(at->port));
	if (getaddrinfo(host, port, &hints, &list) != 0)
		return -1;
	for (a = list; a != NULL && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0)
			fd_close(&fd);
	}
	freeaddrinfo(list);
	return fd;
}

static int
send_request(int fd, const struct ctl_http_params *p, const struct place *at)
{
	struct view path = at->path.n > 0 ? at->path : view_str(p->location);
	struct buf b = BUF_INIT((size_t)1024 * 1024);
	int rc;

	rc = buf_printf(&b,
	    "%s %.*s%s HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\n"
	    "Accept-Encoding: identity\r\n",
	    p->method, VIEW_ARG(path), p->rest, VIEW_ARG(at->authority));
	if (rc == 0 && p->token != NULL)
		rc = buf_printf(&b, "Authorization: Bearer %s\r\n", p->token);
	if (rc == 0 && (p->body.n > 0 || strcmp(p->method, "POST") == 0))
		rc = buf_printf(&b,
		    "Content-Type: application/json\r\n"
		    "Content-Length: %zu\r\n",
		    p->body.n);
	if (rc == 0)
		rc = buf_add_str(&b, "\r\n");
	if (rc == 0)
		rc = buf_add_view(&b, p->body);
	if (rc == 0)
		rc = fd_write_all(fd, buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	return rc;
}

/* More bytes into b; SP_E_EOF at the end. */
static int
read_more(int fd, struct buf *b)
{
	size_t got = 0;
	int rc = buf_reserve(b, READ_BYTES);

	if (rc == 0)
		rc = fd_read(fd, buf_tail(b), READ_BYTES, &got);
	if (rc == 0)
		buf_grow(b, got);
	return rc == SP_E_AGAIN ? SP_E_TIMEOUT : rc;
}

static int
read_head(int fd, struct buf *in, struct h1_framing *framing, unsigned *status)
{
	static const struct h1_scan_limits limits = { HEAD_MAX, HEAD_MAX, 200 };
	struct h1_scan s = { .reply = true };
	struct arena *a = arena_new(ARENA_MAX);
	struct head_reply head;
	struct h1_fault fault;
	size_t n = 0;
	int rc = a != NULL ? SP_E_AGAIN : SP_E_NOMEM;

	while (rc == SP_E_AGAIN) {
		rc = read_more(fd, in);
		if (rc == 0)
			rc = h1_parse_scan(&s, buf_view(in), &limits, &n,
			    &fault);
	}
	if (rc == 0)
		rc = h1_parse_reply(view_sub(buf_view(in), 0, n), &s, a, &head,
		    framing, &fault);
	if (rc == 0) {
		*status = head.status;
		buf_consume(in, n);
	}
	arena_free(a);
	return rc;
}

static int
read_body(int fd, struct buf *in, const struct h1_framing *framing,
    struct buf *out)
{
	struct h1_body body;
	struct view left, data;
	int rc, got;

	h1_body_init(&body, framing, true);
	for (;;) {
		left = buf_view(in);
		got = h1_body_next(&body, &left, SIZE_MAX / 2, &data);
		rc = got == H1_BODY_DATA ? buf_add_view(out, data) : 0;
		buf_consume(in, buf_len(in) - left.n);
		if (rc != 0 || got < 0)
			return rc != 0 ? rc : got;
		if (got == H1_BODY_END)
			return 0;
		if (got != H1_BODY_MORE)
			continue;
		rc = read_more(fd, in);
		if (rc == SP_E_EOF)
			return h1_body_at_close(&body) ? 0 : SP_E_GONE;
		if (rc != 0)
			return rc;
	}
}

int
ctl_http_ask(const struct ctl_http_params *p, struct buf *out, unsigned *status,
    const char **why)
{
	const struct timeval silence = { .tv_sec = SILENCE_S };
	struct buf in = BUF_INIT(4 * (size_t)READ_BYTES);
	struct h1_framing framing;
	struct place at;
	int fd, rc;

	rc = read_url(p->url, &at, why);
	if (rc != 0)
		return rc;
	fd = at.is_unix ? connect_unix(&at) : connect_tcp(&at);
	*why = "cannot connect";
	if (fd < 0)
		return SP_E_REFUSED;
	*why = "no answer";
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence,
	    sizeof(silence));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silence,
	    sizeof(silence));
	rc = send_request(fd, p, &at);
	if (rc == 0)
		rc = read_head(fd, &in, &framing, status);
	if (rc == 0)
		rc = read_body(fd, &in, &framing, out);
	fd_close(&fd);
	buf_clear(&in);
	return rc;
}
