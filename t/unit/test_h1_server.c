/* HTTP/1.1 on real sockets: keep-alive, pipelines, deadlines, broken peers. */
#include "config.h"

#include "base/mem.h"
#include "http/h1_server.h"
#include "http_app.h"
#include "http_peer.h"

#define H " HTTP/1.1\r\nHost: h\r\n"
#define IN(lit, status) \
	{ \
		{ "" lit, sizeof(lit) - 1 }, status \
	}
#define GET(path) "GET " path H "\r\n"

static struct h1_server *server;
static struct h1_limits limits;
static struct peer *const p = &peers[0];

static void
start(void)
{
	app_reset();
	limits = (struct h1_limits){ .header_timeout_ms = 60000,
		.body_timeout_ms = 60000,
		.send_timeout_ms = 60000,
		.keepalive_timeout_ms = 60000,
		.keepalive_requests = 100,
		.header_line_max = 1000,
		.header_max = 4000,
		.header_max_n = 20,
		.output_buffer = 16384,
		.body_window = 65536 };
	server = h1_server_new(loop, &app_consumer, &app, app_error);
	if (server == NULL)
		abort();
}

static void
dial(struct peer *to)
{
	peer_close(to);
	if (h1_server_accept(server, peer_pair(to), NULL, 7, &limits) != 0)
		abort();
}

static void
begin(struct view bytes)
{
	start();
	dial(p);
	peer_send(p, bytes);
}

static struct h1_server_stats
stats(void)
{
	struct h1_server_stats st;

	h1_server_stats(server, &st);
	return st;
}

static void
stop(void)
{
	h1_server_free(server);
	peer_close(p);
	peer_close(&peers[1]);
	tap_is_int(app.opened, app.done + app.gone,
	    "every exchange was done or gone, once");
}

/* ---- conditions ----------------------------------------------------------- */

static bool
is_eof(void)
{
	return p->eof;
}
static bool
is_reset(void)
{
	return p->reset;
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
is_one(void)
{
	return peer_has(p, VIEW("three\r\n0\r\n\r\n"));
}
static bool
is_three(void)
{
	return peer_has_n(p, VIEW("0\r\n\r\n"), 3);
}
static bool
is_all_closed(void)
{
	return stats().connections == 0;
}
static bool
is_done(void)
{
	return app.done != 0;
}
static bool
is_100(void)
{
	return peer_has(p, VIEW("100 Continue\r\n\r\n"));
}

/* ---- requests that work --------------------------------------------------- */

static void
test_plain(void)
{
	begin(VIEW(GET("/stream")));
	wait_for(is_one, "a chunked reply");
	tap_ok(peer_has(p, VIEW("HTTP/1.1 200 OK\r\nX-App: yes\r\nDate: ")) &&
		peer_has(p,
		    VIEW("\r\nTransfer-Encoding: chunked\r\n\r\n"
			 "3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n")),
	    "its bytes");
	tap_is_mem(buf_view(&app.log).p, buf_len(&app.log),
	    "open GET /stream ;done;", 23, "what the consumer saw");
	buf_reset(&p->got, 0);
	peer_send(p, VIEW("POST /echo" H "Content-Length: 5\r\n\r\nhe"));
	wait_turns(3);
	peer_send(p, VIEW("llo"));
	while (app.done < 2)
		wait_turns(1);
	wait_turns(2);
	tap_ok(peer_has(p, VIEW("Content-Length: 5\r\n\r\nhello")),
	    "a second request on the same connection");
	tap_is_int((long long)stats().accepted, 1, "one connection");
	tap_ok(!p->eof, "still open");
	stop();
}

static void
test_pipeline(void)
{
	begin(VIEW(
	    GET("/stream") "POST /echo" H "Transfer-Encoding: "
			   "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" GET("/stream")
			       GET("/stream") "GET /x" H
					      "Connection: close\r\n\r\n" GET(
						  "/stream")));
	wait_for(is_three, "replies in order");
	wait_for(is_held, "the fifth");
	tap_is_int(app.opened, 5, "the sixth is not parsed yet");
	(void)!exchange_simple(app.held, 404, VIEW_NONE, VIEW("no"));
	wait_for(is_eof, "closed after Connection: close");
	tap_is_int(app.opened, 5, "nothing after it is served");
	tap_ok(peer_has(p, VIEW("Connection: close\r\n\r\nno")), "says so");
	stop();
	/* bytes of a pipeline are bounded while one request is served */
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	{
		struct buf b = BUF_INIT(1 << 22);
		ssize_t n, sent = 0;
		int i, size = 4096;

		(void)setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &size,
		    sizeof(size));
		while (buf_len(&b) < 4000000)
			if (buf_add_view(&b, VIEW(GET("/stream"))) != 0)
				abort();
		for (i = 0; i < 20; i++) {
			n = send(p->fd, buf_view(&b).p, buf_len(&b),
			    MSG_NOSIGNAL);
			sent += n > 0 ? n : 0;
			wait_turns(2);
		}
		tap_ok(n < 0 && sent < 8000000,
		    "a pipeline of %zd bytes is not read on", sent);
		buf_clear(&b);
	}
	peer_rst(p);
	wait_for(is_gone, "a reset is seen though nothing is read");
	stop();
}

static void
test_http10(void)
{
	begin(VIEW("GET /stream HTTP/1.0\r\n\r\n"));
	wait_for(is_eof, "H5 HTTP/1.0: ended by close");
	tap_ok(peer_has(p, VIEW("Connection: close\r\n\r\nonetwothree")),
	    "H5 not chunked");
	stop();
	begin(VIEW("GET /big/3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
	wait_for(is_done, "HTTP/1.0 with keep-alive");
	wait_turns(3);
	tap_ok(!p->eof && peer_has(p, VIEW("Connection: keep-alive\r\n")),
	    "stays open");
	stop();
	begin(VIEW("HEAD /stream" H "\r\n" GET("/stream")));
	wait_for(is_one, "a reply to HEAD has no body");
	tap_is_int(app.done, 2, "the next follows at once");
	stop();
	begin(VIEW("GET /hold HTTP/1.0\r\n\r\n"));
	wait_for(is_held, "held");
	(void)!app_head(app.held, 200, -1);
	(void)!exchange_data(app.held, VIEW("part"));
	exchange_abort(app.held);
	wait_for(is_reset, "an aborted reply to HTTP/1.0 ends in a reset");
	stop();
}

static void
test_continue(void)
{
	begin(VIEW("POST /continue" H
		   "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"));
	wait_for(is_100, "H3 100 Continue");
	peer_send(p, VIEW("abc"));
	wait_for(is_done, "then the body");
	wait_turns(2);
	tap_ok(peer_has(p, VIEW("\r\n\r\nabc")) && !p->eof, "echoed");
	stop();
	begin(VIEW("POST /continue" H
		   "Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc"));
	wait_for(is_done, "body sent without waiting");
	wait_turns(2);
	tap_ok(peer_has(p, VIEW("200 OK")), "answered");
	stop();
	begin(VIEW("POST /refuse" H
		   "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"));
	wait_for(is_eof, "refused before the body: closed");
	tap_ok(peer_has(p, VIEW("HTTP/1.1 413")) &&
		peer_has(p, VIEW("Connection: close")) && !is_100(),
	    "without 100");
	stop();
}

static void
test_unread_body(void)
{
	static char bytes[70000];
	int i;

	begin(VIEW("POST /refuse" H "Content-Length: 70000\r\n\r\n"));
	wait_for(is_done, "answered before the body");
	peer_send(p, view_of(bytes, 70000));
	peer_send(p, VIEW(GET("/stream")));
	wait_for(is_one, "a small body is drained, the connection lives");
	stop();
	begin(VIEW("POST /refuse" H "Content-Length: 700000\r\n\r\n"));
	for (i = 0; i < 10; i++) {
		(void)!send(p->fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		wait_turns(1);
	}
	wait_for(is_eof, "a large one is not: closed, no reset");
	tap_ok(peer_has(p, VIEW("HTTP/1.1 413")) &&
		peer_has(p, VIEW("Connection: close")),
	    "the reply can be read");
	stop();
	begin(VIEW("POST /refuse" H "Transfer-Encoding: chunked\r\n\r\n"));
	wait_for(is_done, "answered before a chunked body");
	peer_send(p, VIEW("10\r\n"));
	peer_send(p, VIEW("zz"));
	peer_send(p, VIEW("zzzzzzzzzzzzzzzz"));
	wait_for(is_eof, "a malformed rest: closed");
	stop();
}

/* ---- refusals ------------------------------------------------------------- */

static void
test_refusals(void)
{
	static const struct {
		struct view in;
		const char *status;
	} t[] = {
		IN("GET / HTTP/1.1\r\n\r\n", "400"),
		IN("GET / HTTP/2.0\r\n\r\n", "505"),
		IN("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
		IN("CONNECT h:1" H "\r\n", "405"),
		IN("GET /" H "Expect: x\r\n\r\n", "417"),
		IN("POST /" H "Transfer-Encoding: gzip\r\n\r\n", "501"),
		IN("\x16\x03\x01", "400"),
	};
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		begin(t[i].in);
		wait_for(is_eof, t[i].status);
		tap_ok(view_starts(view_from(buf_view(&p->got), 9),
			   view_str(t[i].status)),
		    "status %s", t[i].status);
		tap_ok(peer_has(p, VIEW("Content-Type: text/x-error")) &&
			peer_has(p, VIEW("Connection: close")),
		    "with the consumer's words");
		tap_is_int((long long)stats().malformed, 1, "counted");
		tap_is_int(app.opened, 0, "no exchange");
		stop();
	}
	begin(VIEW("POST /echo" H "Transfer-Encoding: chunked\r\n\r\nxyz"));
	wait_for(is_eof, "a malformed body");
	tap_ok(view_starts(buf_view(&p->got), VIEW("HTTP/1.1 400")), "is 400");
	tap_is_int(app.why, EXCHANGE_GONE_MALFORMED, "and told");
	stop();
	begin(VIEW(GET("/stream") "GET /\x01" H "\r\n"));
	wait_for(is_eof, "a bad request after a good one");
	tap_ok(is_one() && peer_has(p, VIEW("HTTP/1.1 400")), "both answered");
	stop();
}

/* ---- deadlines: tiny ones, driven by the loop ----------------------------- */

static void
test_deadlines(void)
{
	start();
	limits.header_timeout_ms = 5;
	dial(p);
	wait_for(is_eof, "no byte in time: closed");
	tap_is_int((long long)buf_len(&p->got), 0, "without a word");
	stop();
	start();
	limits.header_timeout_ms = 300;
	dial(p);
	peer_send(p, VIEW("GET / HT"));
	wait_for(is_eof, "a slow head");
	tap_ok(peer_has(p, VIEW("HTTP/1.1 408")), "is 408");
	stop();
	start();
	limits.body_timeout_ms = 5;
	dial(p);
	peer_send(p, VIEW("POST /echo" H "Content-Length: 3\r\n\r\na"));
	wait_for(is_eof, "a slow body");
	tap_ok(peer_has(p, VIEW("HTTP/1.1 408")), "is 408");
	tap_is_int(app.why, EXCHANGE_GONE_TIMEOUT, "and told");
	stop();
	start();
	limits.body_timeout_ms = 5;
	limits.body_window = 2;
	app.no_credit = true;
	dial(p);
	peer_send(p, VIEW("POST /hold" H "Content-Length: 5\r\n\r\nabcde"));
	wait_for(is_held, "a body that we do not take");
	wait_turns(30);
	tap_is_int(app.gone, 0, "has no deadline");
	exchange_credit(app.held, 10);
	wait_turns(3);
	tap_ok(view_ends(buf_view(&app.log), VIEW("body 2;body 3;end;")),
	    "credit opens the window");
	stop();
	start();
	limits.keepalive_timeout_ms = 5;
	dial(p);
	peer_send(p, VIEW(GET("/stream")));
	wait_for(is_eof, "keep-alive ends");
	tap_ok(is_one() && !peer_has(p, VIEW("408")), "without a word");
	stop();
	start();
	limits.send_timeout_ms = 20;
	dial(p);
	p->deaf = true;
	peer_send(p, VIEW(GET("/big/100000000")));
	wait_for(is_gone, "a client that reads nothing");
	tap_is_int(app.why, EXCHANGE_GONE_TIMEOUT, "has a deadline");
	stop();
	start();
	limits.keepalive_requests = 2;
	dial(p);
	peer_send(p, VIEW(GET("/stream") GET("/stream") GET("/stream")));
	wait_for(is_eof, "a number of requests");
	tap_is_int(app.done, 2, "and no more");
	stop();
}

/* ---- clients that go ------------------------------------------------------ */

static void
test_resets(void)
{
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	peer_rst(p);
	wait_for(is_gone, "I3 reset before the head");
	tap_is_int(app.why, EXCHANGE_GONE_RESET, "told as a reset");
	stop();
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	(void)!app_head(app.held, 200, -1);
	wait_turns(3);
	peer_rst(p);
	wait_for(is_gone, "I1 reset after the head");
	stop();
	begin(VIEW(GET("/big/100000000")));
	p->deaf = true;
	wait_turns(20);
	tap_is_int(app.gone, 0, "paused by back-pressure");
	peer_rst(p);
	wait_for(is_gone, "I1 reset while paused");
	stop();
	start();
	limits.body_window = 2;
	app.no_credit = true;
	dial(p);
	peer_send(p, VIEW("POST /hold" H "Content-Length: 50\r\n\r\nabcdef"));
	wait_for(is_held, "held");
	wait_turns(3);
	peer_rst(p);
	wait_for(is_gone, "reset while its body is not read");
	stop();
	begin(VIEW("POST /hold" H "Content-Length: 50\r\n\r\nabc"));
	wait_for(is_held, "held");
	peer_close(p);
	wait_for(is_gone, "closed within its body");
	stop();
	begin(VIEW("GET / HT"));
	wait_turns(3);
	peer_close(p);
	wait_for(is_all_closed, "closed within its head");
	stop();
}

static void
test_fin(void)
{
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	peer_close(p);
	wait_for(is_gone, "I3 closed before the head: found by a probe");
	stop();
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	(void)!app_head(app.held, 200, -1);
	exchange_set_probe(app.held, VIEW(": probe\n"));
	wait_turns(3);
	peer_close(p);
	wait_for(is_gone, "I1 closed in a stream: found by a probe");
	stop();
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	(void)!app_head(app.held, 200, -1);
	wait_turns(3);
	peer_close(p);
	wait_turns(5);
	tap_is_int(app.gone, 0, "within an event: not asked yet");
	exchange_set_probe(app.held, VIEW(": probe\n"));
	wait_for(is_gone, "asked when there is something to ask with");
	stop();
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	shutdown(p->fd, SHUT_WR);
	wait_for(is_100, "I3 half closed: asked");
	wait_turns(5);
	tap_is_int(app.gone, 0, "not gone");
	(void)!app_head(app.held, 200, -1);
	exchange_set_probe(app.held, VIEW(": probe\n"));
	(void)!exchange_data(app.held, VIEW("answer"));
	(void)!exchange_end(app.held);
	wait_for(is_eof, "it gets its reply, and the end");
	tap_ok(peer_has(p, VIEW("6\r\nanswer\r\n0\r\n\r\n")), "whole");
	stop();
	begin(VIEW("GET /hold HTTP/1.0\r\n\r\n"));
	wait_for(is_held, "held");
	shutdown(p->fd, SHUT_WR);
	wait_turns(20);
	tap_is_int((long long)buf_len(&p->got), 0, "HTTP/1.0 is not asked");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW("ok"));
	wait_for(is_eof, "and answered");
	tap_ok(peer_has(p, VIEW("\r\n\r\nok")), "whole");
	stop();
	begin(VIEW(GET("/stream") GET("/stream") GET("/stream")));
	shutdown(p->fd, SHUT_WR);
	wait_for(is_eof, "a pipeline, then FIN");
	tap_ok(is_three(), "all of it is answered");
	stop();
}

static void
test_abort(void)
{
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	(void)!app_head(app.held, 200, -1);
	(void)!exchange_data(app.held, VIEW("part"));
	exchange_abort(app.held);
	wait_for(is_eof, "an abort");
	tap_ok(peer_has(p, VIEW("4\r\npart\r\n")) &&
		!peer_has(p, VIEW("0\r\n\r\n")),
	    "ends without the last chunk");
	tap_is_int(app.why, EXCHANGE_GONE_RESET, "told");
	stop();
}

/* I4: a slow reader's queue is bounded, and slows nobody else. */
static void
test_slow_reader(void)
{
	begin(VIEW(GET("/big/20000000")));
	p->deaf = true;
	wait_turns(20);
	tap_ok(app.opened == 1 && app.done == 0, "I4 paused");
	dial(&peers[1]);
	peer_send(&peers[1], VIEW(GET("/stream")));
	wait_for(is_done, "I4 another client is served");
	p->deaf = false;
	app.done = 0;
	wait_for(is_done, "it goes on when it reads");
	app.done = 2;
	wait_turns(50);
	tap_ok(buf_len(&p->got) > 20000000, "all bytes came");
	tap_ok(app.queued_max <= 1000, "never more than a piece over the room");
	stop();
}

static void
test_drain(void)
{
	begin(VIEW(GET("/hold")));
	dial(&peers[1]);
	wait_for(is_held, "one busy, one idle");
	wait_turns(2);
	h1_server_drain(server);
	wait_turns(3);
	tap_ok(peers[1].eof && !p->eof, "the idle one is closed");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW("ok"));
	wait_for(is_eof, "the busy one after its reply");
	tap_ok(peer_has(p, VIEW("Connection: close")), "which says so");
	stop();
	begin(VIEW(GET("/hold")));
	wait_for(is_held, "held");
	stop();
	tap_is_int(app.why, EXCHANGE_GONE_SHUTDOWN, "gone with the server");
}

/* Each allocation fails once: an answer, a refusal or a close, no leak. */
static void
test_nomem(void)
{
	unsigned long n, before;
	bool all = false;

	for (n = 1; !all && n < 200; n++) {
		start();
		peer_close(p);
		if (buf_reserve(&app.log, 4096) != 0 ||
		    buf_reserve(&p->got, 65536) != 0)
			abort();
		before = mem_count();
		mem_fail_after(n, 0);
		if (h1_server_accept(server, peer_pair(p), NULL, 0, &limits) ==
		    0) {
			peer_send(p, VIEW(GET("/stream")));
			shutdown(p->fd, SHUT_WR);
			wait_turns(6);
		}
		all = mem_count() - before < n;
		mem_fail_after(0, 0);
		h1_server_free(server);
		if (app.opened != app.done + app.gone)
			tap_ok(false, "allocation %lu", n);
		peer_close(p);
	}
	tap_ok(all, "the last attempt had all it asked for");
	tap_ok(n > 5, "%lu allocations failed in turn", n - 1);
}

int
main(void)
{
	peer_init();
	test_plain();
	test_pipeline();
	test_http10();
	test_continue();
	test_unread_body();
	test_refusals();
	test_deadlines();
	test_resets();
	test_fin();
	test_abort();
	test_slow_reader();
	test_drain();
	test_nomem();
	app_reset();
	peer_clear();
	return tap_done();
}
