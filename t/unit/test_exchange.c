/* One consumer under two back ends: a multiplexing one and HTTP/1.1. */
#include "config.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "h1_feed.h"
#include "http/h1_server.h"
#include "http_app.h"
#include "mux_backend.h"
#include "tap.h"

static struct mux mux;

static void
start(size_t window, size_t first_window)
{
	app_reset();
	mux_init(&mux, &app_consumer, &app, window, first_window);
}

static void
turn_all(void)
{
	int i;

	for (i = 0; i < 100000 && mux_turn(&mux); i++)
		;
}

static void
got(const struct mux_stream *s, const char *want, const char *what)
{
	struct view v = buf_view(&s->got);

	tap_is_mem(v.p, v.n, want, strlen(want), what);
}

static void
test_many(void)
{
	struct mux_stream *a, *b, *c;

	start(10000, 1000);
	a = mux_open(&mux, "POST", "/echo", true);
	b = mux_open(&mux, "GET", "/stream", false);
	c = mux_open(&mux, "POST", "/echo", true);
	mux_send(a, VIEW("aaaaaaaaaaaaaaaaaaaa"), false);
	mux_send(c, VIEW("cccccccccccccccccccc"), true);
	turn_all();
	tap_ok(b->got_end && c->got_end && !a->got_end,
	    "streams end in any order");
	got(b, "onetwothree", "a stream of unknown length");
	got(c, "cccccccccccccccccccc", "an echo");
	mux_send(a, VIEW("bbbbbbbb"), true);
	turn_all();
	got(a, "aaaaaaaaaaaaaaaaaaaabbbbbbbb", "the first one, last");
	tap_is_int(app.done, 3, "all are done");
	mux_clear(&mux);
	start(10000, 1000);
	a = mux_open(&mux, "GET", "/stream", false);
	b = mux_open(&mux, "GET", "/stream", false);
	turn_all();
	tap_is_mem(buf_view(&mux.wire).p, buf_len(&mux.wire),
	    "1:onetwoth 3:onetwoth 1:ree 3:ree ", 34,
	    "frames of streams interleave");
	tap_ok(a->got_end && b->got_end, "both end");
	mux_clear(&mux);
}

static void
test_reply_windows(void)
{
	struct mux_stream *a, *b;

	start(10000, 30);
	a = mux_open(&mux, "GET", "/big/500", false);
	b = mux_open(&mux, "GET", "/stream", false);
	turn_all();
	tap_is_int((long long)buf_len(&a->got), 30, "as much as its window");
	tap_ok(b->got_end, "the other stream goes on");
	tap_ok(!a->got_end && exchange_room(&a->x) == 0, "no room");
	mux_grant(&mux, a, 100000);
	turn_all();
	tap_ok(a->got_end && buf_len(&a->got) == 500, "all of it");
	mux_clear(&mux);

	start(8, 1000);
	a = mux_open(&mux, "GET", "/stream", false);
	b = mux_open(&mux, "GET", "/stream", false);
	turn_all();
	tap_is_int((long long)(buf_len(&a->got) + buf_len(&b->got)), 8,
	    "the connection's window is shared");
	mux_grant(&mux, NULL, 100);
	turn_all();
	tap_ok(a->got_end && b->got_end, "and opened again");
	mux_clear(&mux);
}

static void
test_request_windows(void)
{
	struct mux_stream *a, *b;

	start(1000, 10);
	app.no_credit = true;
	a = mux_open(&mux, "POST", "/echo", true);
	b = mux_open(&mux, "POST", "/hold", true);
	mux_send(a, VIEW("0123456789abcdef"), true);
	mux_send(b, VIEW("x"), true);
	turn_all();
	tap_is_mem(buf_view(&app.log).p, buf_len(&app.log),
	    "open POST /echo ;open POST /hold ;body 10;body 1;end;", 53,
	    "no more than the window without credit");
	exchange_credit(&a->x, 3);
	turn_all();
	tap_is_int((long long)buf_len(&a->up), 3, "credit opens it");
	exchange_credit(&a->x, 100);
	turn_all();
	got(a, "0123456789", "the reply waits for its own window");
	mux_grant(&mux, a, 100);
	turn_all();
	got(a, "0123456789abcdef", "whole");
	(void)b;
	mux_clear(&mux);
	tap_is_int(app.why, EXCHANGE_GONE_SHUTDOWN, "the end of the server");
}

static void
test_resets(void)
{
	struct mux_stream *a, *b, *c;

	start(1000, 1000);
	a = mux_open(&mux, "GET", "/hold", false);
	turn_all();
	c = mux_open(&mux, "POST", "/echo", true);
	mux_reset(a);
	turn_all();
	tap_ok(app.gone == 1 && app.why == EXCHANGE_GONE_RESET,
	    "reset by the client, before a head");
	mux_send(c, VIEW("still"), true);
	turn_all();
	got(c, "still", "the other stream lives");
	b = mux_open(&mux, "GET", "/hold", false);
	turn_all();
	tap_is_int(app_head(&b->x, 200, -1), 0, "head");
	tap_is_int(exchange_data(&b->x, VIEW("part")), 0, "data");
	exchange_abort(&b->x);
	tap_is_int(exchange_data(&b->x, VIEW("x")), SP_E_GONE, "aborted");
	turn_all();
	got(b, "part", "what was queued before an abort is sent");
	tap_ok(b->got_reset && !b->got_end, "then the stream is reset");
	tap_is_int(app.gone, 2, "and the consumer told");
	mux_clear(&mux);
}

static void
test_states(void)
{
	struct mux_stream *s;
	struct exchange *x;

	start(1000, 1000);
	s = mux_open(&mux, "GET", "/hold", false);
	turn_all();
	x = &s->x;
	tap_is_int(exchange_data(x, VIEW("a")), SP_E_STATE, "data, no head");
	tap_is_int(exchange_end(x), SP_E_STATE, "end, no head");
	tap_is_int(app_head(x, 103, -1), SP_E_STATE, "an interim head");
	tap_is_int(exchange_continue(x), 0, "continue");
	tap_is_int(app_head(x, 200, 3), 0, "a head");
	tap_is_int(exchange_continue(x), SP_E_STATE, "continue, too late");
	tap_is_int(app_head(x, 200, 3), SP_E_STATE, "a second head");
	tap_is_int(exchange_data(x, VIEW("abcd")), SP_E_STATE, "too long");
	tap_is_int(exchange_data(x, VIEW("ab")), 0, "data");
	tap_is_int(exchange_data(x, VIEW("")), 0, "no data");
	tap_is_int(exchange_end(x), SP_E_STATE, "too short");
	tap_is_int(exchange_data(x, VIEW("cd")), SP_E_STATE, "one too many");
	tap_is_int(exchange_data(x, VIEW("c")), 0, "the last byte");
	tap_is_int(exchange_end(x), 0, "end");
	tap_is_int(exchange_data(x, VIEW("d")), SP_E_STATE, "after the end");
	tap_is_int(exchange_end(x), SP_E_STATE, "a second end");
	exchange_abort(x);
	turn_all();
	tap_ok(s->got_end && app.done == 1, "an abort after the end is none");
	s = mux_open(&mux, "HEAD", "/hold", false);
	turn_all();
	tap_is_int(app_head(&s->x, 200, 3), 0, "head for HEAD");
	tap_is_int(exchange_data(&s->x, VIEW("a")), SP_E_STATE, "no data");
	tap_is_int(exchange_end(&s->x), 0, "end");
	s = mux_open(&mux, "GET", "/hold", false);
	turn_all();
	tap_is_int(app_head(&s->x, 204, -1), 0, "204");
	tap_is_int(exchange_data(&s->x, VIEW("a")), SP_E_STATE, "no data");
	tap_is_int(exchange_end(&s->x), 0, "end");
	turn_all();
	tap_is_int(app.done, 3, "done");
	mux_clear(&mux);
}

static void
test_nomem(void)
{
	struct mux_stream *s;
	unsigned long n;
	bool done = false;

	for (n = 1; !done && n < 100; n++) {
		start(1000, 1000);
		if (buf_reserve(&app.log, 4096) != 0 ||
		    buf_reserve(&mux.wire, 4096) != 0)
			abort();
		s = mux_open(&mux, "GET", "/hold", false);
		if (s == NULL || buf_reserve(&s->got, 4096) != 0)
			abort();
		mux_turn(&mux);
		mem_fail_after(n, 0);
		if (app.held != NULL && app_head(app.held, 200, -1) == 0 &&
		    exchange_data(app.held, VIEW("data")) == 0 &&
		    exchange_end(app.held) == 0)
			done = mem_count() != 0;
		else if (app.held != NULL)
			exchange_abort(app.held);
		mem_fail_after(0, 0);
		turn_all();
		if (app.done + app.gone != 1)
			break;
		mux_clear(&mux);
	}
	tap_ok(done && n > 2,
	    "each allocation failed once: it ends or is gone");
}

/* ---- the same requests over HTTP/1.1 -------------------------------------- */

static const struct h1_limits limits = { .header_timeout_ms = 10000,
	.body_timeout_ms = 10000,
	.send_timeout_ms = 10000,
	.keepalive_timeout_ms = 10000,
	.keepalive_requests = 100,
	.header_line_max = 1000,
	.header_max = 10000,
	.header_max_n = 100,
	.output_buffer = 64,
	.body_window = 10 };

static struct loop *loop;
static int client;
static struct buf wire = BUF_INIT(1 << 20);

static void
on_tick(void *arg)
{
	struct loop_timer **t = arg;
	static int ticks;
	char p[4096];
	ssize_t n = read(client, p, sizeof(p));

	if (n > 0 && buf_add(&wire, p, (size_t)n) != 0)
		abort();
	if (n == 0 || ++ticks > 20000)
		loop_stop(loop);
	else
		loop_timer_set(*t, 1);
}

/* What came back for one request over HTTP/1.1, closed after it. */
static void
over_h1(const char *method, const char *path, struct view body,
    unsigned *status, struct buf *out)
{
	struct h1_server *s =
	    h1_server_new(loop, &app_consumer, &app, app_error);
	struct loop_timer *t = NULL;
	struct h1_feed f;
	struct buf rq = BUF_INIT(1 << 20);
	size_t at;
	int fd[2];

	buf_reset(&wire, 0);
	t = loop_timer_new(loop, on_tick, &t);
	if (s == NULL || t == NULL ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) != 0 ||
	    h1_server_accept(s, fd[0], NULL, 0, &limits) != 0)
		abort();
	client = fd[1];
	if (buf_printf(&rq,
		"%s %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
		"Content-Length: %zu\r\n\r\n%.*s",
		method, path, body.n, VIEW_ARG(body)) != 0 ||
	    write(client, buf_view(&rq).p, buf_len(&rq)) !=
		(ssize_t)buf_len(&rq))
		abort();
	loop_timer_set(t, 1);
	if (loop_run(loop) != 0)
		abort();
	feed_init(&f, true);
	f.scan.head_request = strcmp(method, "HEAD") == 0;
	feed_cut(&f, buf_view(&wire), 0, 0);
	*status = (unsigned)strtoul(buf_view(&f.out).p, NULL, 10);
	at = view_find(buf_view(&f.out), '<');
	if (buf_add_view(out, view_from(buf_view(&f.out), at + 1)) != 0)
		abort();
	feed_clear(&f);
	buf_clear(&rq);
	loop_timer_free(t);
	close(client);
	h1_server_free(s);
}

static void
test_same(void)
{
	static const struct {
		const char *method, *path, *body;
	} rq[] = {
		{ "POST", "/echo", "some bytes that are echoed" },
		{ "POST", "/echo", "" },
		{ "GET", "/stream", "" },
		{ "HEAD", "/stream", "" },
		{ "POST", "/continue", "abc" },
		{ "POST", "/refuse", "abc" },
		{ "GET", "/big/0", "" },
		{ "GET", "/big/10000", "" },
	};
	struct buf out = BUF_INIT(1 << 20);
	size_t i;

	loop = loop_new();
	for (i = 0; i < sizeof(rq) / sizeof(rq[0]); i++) {
		struct mux_stream *s;
		unsigned status;

		start(1 << 20, 1 << 20);
		over_h1(rq[i].method, rq[i].path, view_str(rq[i].body), &status,
		    &out);
		s = mux_open(&mux, rq[i].method, rq[i].path, true);
		mux_send(s, view_str(rq[i].body), true);
		turn_all();
		if (buf_add_char(&s->got, '>') != 0)
			abort();
		tap_is_int(status, s->status, "the same status");
		tap_is_mem(buf_view(&out).p, buf_len(&out), buf_view(&s->got).p,
		    buf_len(&s->got), rq[i].path);
		tap_ok(app.done == 2 && app.gone == 0, "both done");
		buf_reset(&out, 0);
		mux_clear(&mux);
	}
	buf_clear(&wire);
	buf_clear(&out);
	loop_free(loop);
}

int
main(void)
{
	test_many();
	test_reply_windows();
	test_request_windows();
	test_resets();
	test_states();
	test_nomem();
	test_same();
	app_reset();
	return tap_done();
}
