/* The HTTP/1.1 server behind TLS: what a plain socket does, here as well. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>

#include "base/mem.h"
#include "http/h1_server.h"
#include "http_app.h"
#include "net/stream.h"
#include "net_peer.h"

#define H " HTTP/1.1\r\nHost: h\r\n"

static const struct h1_limits limits = { .header_timeout_ms = 60000,
	.body_timeout_ms = 60000,
	.send_timeout_ms = 60000,
	.keepalive_timeout_ms = 60000,
	.keepalive_requests = 100,
	.header_line_max = 1000,
	.header_max = 4000,
	.header_max_n = 20,
	.output_buffer = 16384,
	.body_window = 4096 };

static struct tls_ctx *server_tls, *client_tls;
static struct h1_server *server;
static struct stream *client;
static struct buf got = BUF_INIT(1 << 24), out = BUF_INIT(1 << 24);
static bool eof;
static struct loop_timer *tick;
static bool (*cond)(void);

static void
client_ready(void *arg, struct stream *s, unsigned what)
{
	struct view v = buf_view(&out);
	struct iovec iov = { .iov_base = out.mem + out.off, .iov_len = v.n };
	char *p = loop_scratch(loop);
	size_t n;
	int rc;

	(void)arg;
	if (what & STREAM_FAIL)
		eof = true;
	if (what & STREAM_READ) {
		rc = stream_read(s, p, 30000, &n);
		if (rc == 0 && buf_add(&got, p, n) != 0)
			abort();
		if (rc != 0 && rc != SP_E_AGAIN)
			eof = true;
	}
	if (what & STREAM_WRITE && v.n != 0 &&
	    stream_writev(s, &iov, 1, &n) == 0)
		buf_consume(&out, n);
	stream_want(s, STREAM_READ | (buf_len(&out) != 0 ? STREAM_WRITE : 0u));
}

static void
on_tick(void *arg)
{
	(void)arg;
	if (cond())
		loop_stop(loop);
	else
		loop_timer_set(tick, 1);
}

static void
wait_for(bool (*c)(void), const char *what)
{
	cond = c;
	loop_timer_set(tick, 0);
	peer_run();
	tap_ok(c(), "%s", what);
}

static void
send_bytes(struct view v)
{
	if (buf_add_view(&out, v) != 0)
		abort();
	stream_want(client, STREAM_READ | STREAM_WRITE);
}

static void
begin(void)
{
	static const struct stream_owner owner = { .ready = client_ready };
	int fd[2];

	app_reset();
	buf_reset(&got, 0);
	buf_reset(&out, 0);
	eof = false;
	server = h1_server_new(loop, &app_consumer, &app, app_error);
	if (server == NULL || peer_tcp_pair(fd) != 0 ||
	    h1_server_accept(server, fd[1], server_tls, 0, &limits) != 0 ||
	    stream_new(loop, fd[0],
		&(struct stream_side){ .tls = client_tls,
		    .name = VIEW("localhost") },
		&owner, &client) != 0)
		abort();
}

static void
stop(void)
{
	stream_free(client, true);
	client = NULL;
	h1_server_free(server);
	tap_is_int(app.opened, app.done + app.gone,
	    "every exchange ended, once");
}

static bool
has(struct view v)
{
	return view_search(buf_view(&got), v) != buf_len(&got);
}

static bool
is_three(void)
{
	return has(VIEW("three\r\n0\r\n\r\n"));
}
static bool
is_held(void)
{
	return app.held != NULL;
}
static bool
is_gone(void)
{
	return app.gone != 0;
}
static bool
is_eof(void)
{
	return eof;
}
static bool
is_big(void)
{
	return buf_len(&got) > 1000000;
}
static bool
is_echo(void)
{
	return buf_len(&got) > 300000;
}
static bool
is_100(void)
{
	return has(VIEW("100 Continue\r\n\r\n"));
}

static void
test_requests(void)
{
	static char body[300000];

	begin();
	send_bytes(VIEW("GET /hold" H "\r\n"));
	wait_for(is_held, "a request");
	tap_ok(app.held->request.tls, "known to be TLS");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW("ok"));
	send_bytes(VIEW("GET /big/1000000" H "\r\nGET /stream" H "\r\n"));
	wait_for(is_big, "a large reply");
	wait_for(is_three, "and the next of the pipeline");
	buf_reset(&got, 0);
	/* more than the window lies decrypted: no descriptor tells of it */
	send_bytes(VIEW("POST /echo" H "Content-Length: 300000\r\n\r\n"));
	send_bytes(view_of(body, sizeof(body)));
	wait_for(is_echo, "a body of many windows");
	send_bytes(VIEW("GET /stream" H "Connection: close\r\n\r\n"));
	wait_for(is_eof, "closed in the end");
	tap_ok(is_three(), "with a whole reply");
	stop();
}

static void
test_gone(void)
{
	begin();
	send_bytes(VIEW("GET /hold" H "\r\n"));
	wait_for(is_held, "held");
	stream_free(client, false);
	client = NULL;
	wait_for(is_gone, "reset");
	stop();
	begin();
	send_bytes(VIEW("GET /hold" H "\r\n"));
	wait_for(is_held, "held");
	stream_free(client, true);
	client = NULL;
	wait_for(is_gone, "closed: found by a probe");
	stop();
	begin();
	send_bytes(VIEW("GET /hold" H "\r\n"));
	wait_for(is_held, "held");
	stream_shutdown(client);
	wait_for(is_100, "half closed: asked");
	tap_is_int(app.gone, 0, "not gone");
	(void)!app_head(app.held, 200, -1);
	(void)!exchange_data(app.held, VIEW("three"));
	(void)!exchange_end(app.held);
	wait_for(is_three, "it gets its reply");
	wait_for(is_eof, "and the end");
	stop();
}

int
main(void)
{
	static struct peer_cert cert;
	struct buf err = BUF_INIT(1000);
	struct view alpn = VIEW("http/1.1");

	peer_init();
	tick = loop_timer_new(loop, on_tick, NULL);
	if (!peer_cert_make(&cert, "DNS:localhost", 3600) ||
	    tls_server_new(view_str(cert.chain), view_str(cert.key), &alpn, 1,
		&server_tls, &err) != 0 ||
	    tls_client_new(VIEW_NONE, false, &alpn, 1, &client_tls, &err) !=
		0) {
		tap_ok(false, "contexts: %.*s", VIEW_ARG(buf_view(&err)));
		return tap_done();
	}
	test_requests();
	test_gone();
	tls_unref(server_tls);
	tls_unref(client_tls);
	buf_clear(&got);
	buf_clear(&out);
	buf_clear(&err);
	app_reset();
	loop_timer_free(tick);
	peer_done();
	if (cert.file[0] != '\0')
		(void)unlink(cert.file);
	return tap_done();
}
