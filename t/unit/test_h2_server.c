/* HTTP/2 on real sockets: windows, resets, floods, deadlines, GOAWAY. */
#include "config.h"

#include "base/mem.h"
#include "http/front.h"
#include "http_app.h"
#include "h2_peer.h"

static struct front *front;
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
		.keepalive_requests = 1000000,
		.header_line_max = 1000,
		.header_max = 4000,
		.header_max_n = 20,
		.output_buffer = 16384,
		.body_window = 65536 };
	front = front_new(loop, &app_consumer, &app, app_error);
	if (front == NULL)
		abort();
}

static void
dial(void)
{
	peer_close(p);
	if (front_accept(front, peer_pair(p), NULL, 7, &limits, NULL) != 0)
		abort();
}

/* A client that does everything right; manual: but opens no windows. */
static void
begin(bool manual)
{
	start();
	dial();
	h2c_begin(p, manual);
}

static struct front_stats
stats(void)
{
	struct front_stats st;

	front_stats(front, &st);
	return st;
}

static void
stop(void)
{
	front_free(front);
	h2c_clear();
	peer_close(p);
	tap_is_int(app.opened, app.done + app.gone,
	    "every exchange was done or gone, once");
}

/* ---- conditions ----------------------------------------------------------- */

static size_t wanted;

#define COND(name, expr) \
	static bool name(void) \
	{ \
		h2c_pump(); \
		return expr; \
	}

COND(is_closed_n, h2c.closed >= wanted)
COND(is_held, app.held != NULL)
COND(is_gone, app.gone >= wanted)
COND(is_done, app.done >= wanted)
COND(is_interim, h2c_reply(1)->interim == 100)
COND(is_goaway, h2c.goaways >= wanted)
COND(is_eof, p->eof || p->reset)
COND(is_no_connection, stats().connections == 0)
COND(is_body, buf_len(&h2c_reply(1)->body) >= wanted)
COND(is_never, false)

static void
turns(int n)
{
	peer_cond = is_never;
	peer_ticks = n;
	loop_timer_set(peer_timer, 0);
	if (loop_run(loop) != 0)
		abort();
}

static void
wait_closed(size_t n, const char *what)
{
	wanted = n;
	wait_for(is_closed_n, what);
}

static void
is_reply(int32_t id, unsigned status, const char *body)
{
	struct h2_reply *r = h2c_reply(id);

	tap_is_int(r->status, status, "status");
	tap_is_mem(buf_view(&r->body).p, buf_len(&r->body), body, strlen(body),
	    "body");
}

/* ---- requests that work --------------------------------------------------- */

static void
test_plain(void)
{
	struct h2_send body = { .body = VIEW("hello") };

	begin(false);
	h2c_get("/stream?x=1");
	wait_closed(1, "a stream");
	is_reply(1, 200, "onetwothree");
	tap_is_int(h2c_reply(1)->code, 0, "ended as it should");
	h2c_ask("POST", "/echo", &body, "content-length", "5");
	wait_closed(2, "an echo");
	is_reply(3, 200, "hello");
	h2c_ask("HEAD", "/stream", NULL, NULL, NULL);
	wait_closed(3, "HEAD");
	is_reply(5, 200, "");
	wanted = 3;
	wait_for(is_done, "all told");
	tap_is_mem(buf_view(&app.log).p, buf_len(&app.log),
	    "open GET /stream ;done;open POST /echo ;body 5;end;done;"
	    "open HEAD /stream ;done;",
	    80, "what the consumer saw");
	tap_ok(stats().h2_connections == 1 && stats().exchanges == 0,
	    "one connection, nothing open");
	stop();
}

static void
test_many(void)
{
	static struct h2_send bodies[100];
	unsigned i, bad = 0;

	begin(false);
	for (i = 0; i < 100; i++) {
		bodies[i] = (struct h2_send){ .body = VIEW("0123456789") };
		h2c_ask("POST", "/echo", &bodies[i], NULL, NULL);
	}
	wait_closed(100, "a hundred at once");
	for (i = 0; i < 100; i++)
		bad += h2c.replies[i].status != 200 ||
		    buf_len(&h2c.replies[i].body) != 10;
	tap_is_int(bad, 0, "each got its own");
	stop();
}

static void
test_expect(void)
{
	struct h2_send body = { .more = true };
	int32_t id;

	begin(false);
	id = h2c_ask("POST", "/continue", &body, "expect", "100-continue");
	wait_for(is_interim, "100 Continue");
	body.body = VIEW("late");
	body.more = false;
	nghttp2_session_resume_data(h2c.session, id);
	wait_closed(1, "then the reply");
	is_reply(1, 200, "late");
	h2c_ask("POST", "/echo", &body, "expect", "a-miracle");
	wait_closed(2, "an unknown expectation");
	is_reply(3, 417, "unknown expectation");
	stop();
}

/* The reply is out before the request is whole. */
static void
test_early(void)
{
	struct h2_send body = { .body = VIEW("some"), .more = true };

	begin(false);
	h2c_ask("POST", "/refuse", &body, NULL, NULL);
	wait_closed(1, "an early reply");
	is_reply(1, 413, "too much");
	tap_ok(h2c_reply(1)->end && h2c_reply(1)->code == NGHTTP2_NO_ERROR,
	    "its end, then RST_STREAM with NO_ERROR");
	body = (struct h2_send){ .body = VIEW("x") };
	h2c_ask("POST", "/echo", &body, NULL, NULL);
	wait_closed(2, "the connection lives on");
	is_reply(3, 200, "x");
	stop();
}

/* ---- heads that are refused ----------------------------------------------- */

static void
test_refused(void)
{
	static const struct {
		const char *method, *path, *name, *value;
		unsigned status;
	} rows[] = {
		{ "GET", "/stream", "host", "other", 400 },
		{ "GET", "/stream", "host", "h", 200 },
		{ "GET", "/#", NULL, NULL, 400 },
		{ "GET", "/a\\b", NULL, NULL, 400 },
		{ "OPTIONS", "*", NULL, NULL, 0 },
		{ "GET", "/stream", "te", "trailers", 200 },
		{ "GET", "/stream", "x-long", NULL, 431 },
		{ "GET", NULL, NULL, NULL, 414 },
	};
	static char text[1200];
	unsigned bad = 0;
	size_t i;

	memset(text, 'a', sizeof(text) - 1);
	text[0] = '/';
	begin(false);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int32_t id = h2c_ask(rows[i].method,
		    rows[i].path != NULL ? rows[i].path : text, NULL,
		    rows[i].name,
		    rows[i].value != NULL || rows[i].name == NULL
			? rows[i].value
			: text);

		if (rows[i].status == 0) {
			wait_for(is_held, "OPTIONS *");
			(void)!exchange_simple(app.held, 204, VIEW_NONE,
			    VIEW_NONE);
		}
		wait_closed(i + 1, "answered");
		if (h2c_reply(id)->status !=
		    (rows[i].status != 0 ? rows[i].status : 204)) {
			tap_diag("row %zu: %u", i, h2c_reply(id)->status);
			bad++;
		}
	}
	tap_is_int(bad, 0, "each with its status");
	stop();
}

static void
test_fields(void)
{
	nghttp2_nv nv[64] = { h2c_nv(":method", "GET"), h2c_nv(":path", "/x"),
		h2c_nv(":scheme", "http"), h2c_nv(":authority", "h"),
		h2c_nv("cookie", "a=1"), h2c_nv("x", "y"),
		h2c_nv("cookie", "b=2") };
	struct view v;
	size_t i;

	begin(false);
	if (nghttp2_submit_request(h2c.session, NULL, nv, 7, NULL, NULL) < 0)
		abort();
	wait_for(is_held, "a request with fields");
	v = head_get(&app.held->request.fields, VIEW("cookie"));
	tap_ok(view_eq(v, VIEW("a=1; b=2")) && app.held->request.fields.n == 2,
	    "one Cookie of two: %.*s", VIEW_ARG(v));
	tap_ok(view_eq(app.held->request.authority, VIEW("h")) &&
		!app.held->request.http10 && !app.held->request.has_body &&
		app.held->request.content_length == -1,
	    "what the head says");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW("ok"));
	wait_closed(1, "answered");
	for (i = 4; i < 64; i++)
		nv[i] = h2c_nv("a", "b");
	for (i = 0; i < 2; i++)
		if (nghttp2_submit_request(h2c.session, NULL, nv, 24 + i, NULL,
			NULL) < 0)
			abort();
	wait_for(is_held, "as many fields as are allowed");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW("ok"));
	wait_closed(3, "answered");
	tap_ok(h2c_reply(3)->status == 200 && h2c_reply(5)->status == 431,
	    "one more is one too many");
	stop();
}

/* ---- windows -------------------------------------------------------------- */

static void
test_down(void)
{
	begin(true);
	h2c_get("/big/1000000");
	wanted = 65535;
	wait_for(is_body, "the first window");
	turns(20);
	tap_is_int(buf_len(&h2c_reply(1)->body), 65535, "and no byte more");
	tap_ok(app.queued_max < 1000 && app.done == 0,
	    "the consumer was paused");
	/* the stream's own window alone does not do */
	nghttp2_submit_window_update(h2c.session, 0, 1, 2000000);
	turns(20);
	tap_is_int(buf_len(&h2c_reply(1)->body), 65535, "nor the stream's");
	nghttp2_submit_window_update(h2c.session, 0, 0, 2000000);
	wait_closed(1, "both windows open");
	tap_is_int(buf_len(&h2c_reply(1)->body), 1000000, "everything came");
	tap_ok(app.queued_max < 1000, "the consumer kept to the room");
	stop();
}

/* Many that do not read: each has a share, and one that reads gets through. */
static void
test_shares(void)
{
	unsigned i;

	begin(true);
	for (i = 0; i < 40; i++)
		h2c_get("/big/100000");
	turns(50);
	/* the connection's window goes, the streams' do not */
	nghttp2_submit_window_update(h2c.session, 0, 0, 1 << 30);
	turns(50);
	for (i = 0; i < 40; i++)
		nghttp2_submit_window_update(h2c.session, 0, (int32_t)i * 2 + 1,
		    1 << 20);
	wait_closed(40, "forty slow ones");
	tap_ok(app.done == 40 && app.queued_max < 1000, "all went well");
	stop();
}

static void
test_up(void)
{
	static char bytes[300000];
	struct h2_send body = { .body = view_of(bytes, sizeof(bytes)) };
	struct app_x *a;
	size_t had;

	begin(false);
	app.no_credit = true;
	h2c_ask("POST", "/hold", &body, NULL, NULL);
	wait_for(is_held, "an upload begins");
	turns(50);
	a = app.held->user;
	had = buf_len(&a->body);
	tap_is_int(had, 65536, "the window, and no byte more");
	exchange_credit(app.held, 40000);
	turns(50);
	tap_ok(buf_len(&a->body) > had && buf_len(&a->body) <= had + 40000,
	    "credit opens it: %zu", buf_len(&a->body));
	app.no_credit = false;
	exchange_credit(app.held, buf_len(&a->body) - 40000);
	turns(100);
	tap_is_int(buf_len(&a->body), sizeof(bytes), "the rest");
	tap_ok(app.held->request_whole, "whole");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW_NONE);
	wait_closed(1, "answered");
	stop();
}

/* What an exchange did not credit goes back to the connection at its end. */
static void
test_up_returned(void)
{
	static char bytes[65536];
	struct h2_send body[40];
	unsigned i;

	begin(false);
	app.no_credit = true;
	for (i = 0; i < 40; i++) {
		body[i] = (struct h2_send){ .body = view_of(bytes, 65536) };
		h2c_ask("POST", "/echo", &body[i], NULL, NULL);
		wait_closed(i + 1, "an upload that nobody credited");
	}
	stop();
}

/* ---- resets --------------------------------------------------------------- */

static void
test_client_resets(void)
{
	struct h2_send body = { .body = VIEW("part"), .more = true };
	int32_t id;

	begin(true);
	/* while the body comes */
	id = h2c_ask("POST", "/hold", &body, NULL, NULL);
	wait_for(is_held, "a body begins");
	nghttp2_submit_rst_stream(h2c.session, 0, id, NGHTTP2_CANCEL);
	wanted = 1;
	wait_for(is_gone, "reset while the body came");
	tap_is_int(app.why, EXCHANGE_GONE_RESET, "why");
	/* before a reply */
	id = h2c_get("/hold");
	wait_for(is_held, "a request waits");
	nghttp2_submit_rst_stream(h2c.session, 0, id, NGHTTP2_CANCEL);
	wanted = 2;
	wait_for(is_gone, "reset before a reply");
	/* within a reply that is stuck */
	id = h2c_get("/big/1000000");
	turns(20);
	nghttp2_submit_rst_stream(h2c.session, 0, id, NGHTTP2_CANCEL);
	wanted = 3;
	wait_for(is_gone, "reset within the reply");
	/* together with everything */
	h2c_get("/hold");
	wait_for(is_held, "a request waits");
	peer_rst(p);
	wanted = 4;
	wait_for(is_gone, "the connection is reset");
	wait_for(is_no_connection, "and closed");
	stop();
}

static void
test_abort(void)
{
	begin(false);
	h2c_get("/hold");
	wait_for(is_held, "a request waits");
	if (app_head(app.held, 200, -1) != 0 ||
	    exchange_data(app.held, VIEW("half")) != 0)
		abort();
	exchange_abort(app.held);
	wait_closed(1, "aborted");
	is_reply(1, 200, "half");
	tap_ok(!h2c_reply(1)->end &&
		h2c_reply(1)->code == NGHTTP2_INTERNAL_ERROR,
	    "the client sees that it is not whole");
	tap_ok(app.gone == 1 && app.why == EXCHANGE_GONE_RESET, "gone");
	h2c_get("/hold");
	wait_for(is_held, "another");
	exchange_abort(app.held);
	wait_closed(2, "aborted before its head");
	h2c_get("/stream");
	wait_closed(3, "the connection lives on");
	stop();
}

static void
test_shutdown(void)
{
	begin(false);
	h2c_get("/hold");
	wait_for(is_held, "a request waits");
	front_free(front);
	front = NULL;
	tap_ok(app.gone == 1 && app.why == EXCHANGE_GONE_SHUTDOWN, "shut down");
	stop();
}

/* ---- floods --------------------------------------------------------------- */

/* The frame again and again, a batch in a write, until it is over. */
static void
flood(const char *what, struct view first, struct view frame, unsigned batch)
{
	struct buf b = BUF_INIT(1 << 22);
	struct peer *q = &peers[0];
	uint64_t calmed;
	unsigned i, k;

	start();
	dial();
	peer_send(q, VIEW(H2_PREFACE "\0\0\0\4\0\0\0\0\0"));
	if (first.n != 0)
		peer_send(q, first);
	for (i = 0; i < 200 && !q->eof && !q->reset; i++) {
		buf_reset(&b, SIZE_MAX);
		for (k = 0; k < batch; k++)
			if (buf_add_view(&b, frame) != 0)
				abort();
		if (send(q->fd, buf_view(&b).p, buf_len(&b), MSG_NOSIGNAL) < 0)
			break;
		wait_turns(2);
	}
	wait_for(is_eof, what);
	calmed = stats().calmed;
	tap_ok(calmed == 1 || stats().malformed != 0,
	    "%s: ended by us (calmed %u)", what, (unsigned)calmed);
	tap_ok(peer_has(q, VIEW("\0\0\0\x0b")) || calmed == 0,
	    "%s: ENHANCE_YOUR_CALM", what);
	peer_close(q);
	wait_for(is_no_connection, "closed");
	buf_clear(&b);
	stop();
}

static void
test_floods(void)
{
	struct buf get = BUF_INIT(4096);
	struct view v;

	flood("PING", VIEW_NONE,
	    VIEW("\0\0\x08\6\0\0\0\0\0"
		 "12345678"),
	    100);
	flood("SETTINGS", VIEW_NONE, VIEW("\0\0\0\4\0\0\0\0\0"), 100);
	flood("PRIORITY", VIEW_NONE,
	    VIEW("\0\0\5\2\0\0\0\0\x09"
		 "\0\0\0\0\1"),
	    100);
	flood("WINDOW_UPDATE", VIEW_NONE,
	    VIEW("\0\0\4\x08\0\0\0\0\0"
		 "\0\0\0\1"),
	    100);
	flood("unknown frames", VIEW_NONE, VIEW("\0\0\0\x42\0\0\0\0\0"), 8000);
	h2_frame(&get, 1, 4, 1, VIEW(H2_GET));
	flood("empty DATA", buf_view(&get), VIEW("\0\0\0\0\0\0\0\0\1"), 100);
	flood("padding alone", buf_view(&get),
	    VIEW("\0\0\3\0\x08\0\0\0\1"
		 "\2\0\0"),
	    100);
	buf_reset(&get, 0);
	h2_frame(&get, 1, 0, 1, VIEW(H2_GET));
	v = buf_view(&get);
	flood("CONTINUATION", v, VIEW("\0\0\0\x09\0\0\0\0\1"), 100);
	flood("PING answers", VIEW_NONE,
	    VIEW("\0\0\x08\6\1\0\0\0\0"
		 "12345678"),
	    100);
	buf_clear(&get);
}

/* CVE-2023-44487: requests that are reset at once. */
static void
test_rapid_reset(void)
{
	struct buf b = BUF_INIT(1 << 22);
	uint32_t id = 1;

	start();
	dial();
	peer_send(p, VIEW(H2_PREFACE "\0\0\0\4\0\0\0\0\0"));
	while (!p->eof && !p->reset && id < 40000) {
		buf_reset(&b, SIZE_MAX);
		for (unsigned k = 0; k < 50; k++, id += 2) {
			h2_frame(&b, 1, 5, id, VIEW(H2_GET));
			h2_frame(&b, 3, 0, id, VIEW("\0\0\0\x08"));
		}
		if (send(p->fd, buf_view(&b).p, buf_len(&b), MSG_NOSIGNAL) < 0)
			break;
		wait_turns(2);
	}
	wait_for(is_eof, "rapid reset is ended");
	tap_ok(stats().calmed == 1 && app.opened < 1000,
	    "by GOAWAY, after %u requests", app.opened);
	buf_clear(&b);
	stop();
}

/* CVE-2025-8671: resets that the client makes us send. */
static void
test_made_to_reset(void)
{
	struct buf b = BUF_INIT(1 << 22);
	uint32_t id = 1;

	start();
	dial();
	peer_send(p, VIEW(H2_PREFACE "\0\0\0\4\0\0\0\0\0"));
	while (!p->eof && !p->reset && id < 40000) {
		buf_reset(&b, SIZE_MAX);
		for (unsigned k = 0; k < 50; k++, id += 2) {
			h2_frame(&b, 1, 5, id, VIEW(H2_GET));
			h2_frame(&b, 8, 0, id, VIEW("\0\0\0\0"));
		}
		if (send(p->fd, buf_view(&b).p, buf_len(&b), MSG_NOSIGNAL) < 0)
			break;
		wait_turns(2);
	}
	wait_for(is_eof, "provoked resets are ended");
	tap_ok(app.opened < 1000, "after %u requests", app.opened);
	buf_clear(&b);
	stop();
}

/* A small head that unpacks to a large one. */
static void
test_bomb(void)
{
	static char bomb[16000];
	struct buf b = BUF_INIT(1 << 20), head = BUF_INIT(1 << 20);
	static char value[4000];

	memset(value, 'v', sizeof(value));
	memset(bomb, 0xbe, sizeof(bomb)); /* the first dynamic entry */
	if (buf_add_view(&head, VIEW(H2_GET)) != 0 ||
	    buf_add_view(&head, VIEW("\x40\1x\x7f\xa1\x1e")) != 0 ||
	    buf_add(&head, value, 4000) != 0 ||
	    buf_add(&head, bomb, 12000) != 0)
		abort();
	start();
	dial();
	peer_send(p, VIEW(H2_PREFACE "\0\0\0\4\0\0\0\0\0"));
	h2_frame(&b, 1, 5, 1, buf_view(&head));
	peer_send(p, buf_view(&b));
	wait_for(is_eof, "a bomb of fields ends the connection");
	tap_is_int(stats().calmed, 1, "with ENHANCE_YOUR_CALM");
	tap_is_int(app.opened, 0, "nobody saw it");
	buf_clear(&b);
	buf_clear(&head);
	stop();
}

/* More streams than are allowed. */
static void
test_streams_max(void)
{
	struct buf b = BUF_INIT(1 << 20);
	uint32_t id;

	start();
	dial();
	peer_send(p, VIEW(H2_PREFACE "\0\0\0\4\0\0\0\0\0"));
	for (id = 1; id < 2 * 200; id += 2)
		h2_frame(&b, 1, 5, id, VIEW("\x82\x86\x44\5/hold\x41\1h"));
	peer_send(p, buf_view(&b));
	wait_turns(30);
	tap_is_int(app.opened, 128, "no more streams than allowed");
	tap_ok(peer_has_n(p, VIEW("\0\0\4\3\0"), 72), "the others are refused");
	buf_clear(&b);
	stop();
}

/* ---- deadlines ------------------------------------------------------------ */

static void
test_deadlines(void)
{
	struct h2_send body = { .body = VIEW("part"), .more = true };

	start();
	limits.header_timeout_ms = 20;
	dial();
	wait_for(is_eof, "a client that says nothing");
	dial();
	peer_send(p, VIEW("PRI * HTTP/2"));
	wait_for(is_eof, "a part of the preface");
	dial();
	h2c_begin(p, false);
	wait_for(is_eof, "a preface and no request");
	h2c_clear();
	dial();
	peer_send(p,
	    VIEW(H2_PREFACE "\0\0\0\4\0\0\0\0\0"
			    "\0\0\1\1\0\0\0\0\1\x82"));
	wait_for(is_eof, "a head without an end");
	stop();
	start();
	limits.body_timeout_ms = 20;
	dial();
	h2c_begin(p, false);
	h2c_ask("POST", "/echo", &body, NULL, NULL);
	wait_closed(1, "a body without an end");
	is_reply(1, 408,
	    "the request body came too slowly: see client_body_timeout");
	tap_ok(app.gone == 1 && app.why == EXCHANGE_GONE_TIMEOUT, "timed out");
	h2c_get("/stream");
	wait_closed(2, "the connection lives on");
	stop();
	start();
	limits.send_timeout_ms = 50;
	dial();
	h2c_begin(p, true);
	h2c_get("/big/1000000");
	wait_closed(1, "a client that opens no window");
	tap_ok(app.why == EXCHANGE_GONE_TIMEOUT &&
		h2c_reply(1)->code == NGHTTP2_CANCEL,
	    "the stream is reset");
	h2c_clear();
	dial();
	peer_send(p,
	    VIEW(H2_PREFACE "\0\0\6\4\0\0\0\0\0\0\4\x7f\xff\xff\xff"
			    "\0\0\4\x08\0\0\0\0\0\x7f\0\0\0"
			    "\0\0\x15\1\5\0\0\0\1\x82\x86\x44\x0e"
			    "/big/100000000\x41\1h"));
	p->deaf = true;
	wanted = 2;
	wait_for(is_gone, "a client that reads nothing");
	tap_is_int(app.why, EXCHANGE_GONE_TIMEOUT, "why");
	wait_for(is_no_connection, "its connection is closed");
	stop();
	start();
	limits.keepalive_timeout_ms = 20;
	dial();
	h2c_begin(p, false);
	h2c_get("/stream");
	wait_closed(1, "a request");
	wait_for(is_eof, "then nothing: closed");
	tap_ok(h2c.goaways == 1 && h2c.goaway_code == 0 && h2c.goaway_last == 1,
	    "with GOAWAY");
	stop();
}

/* ---- GOAWAY --------------------------------------------------------------- */

static void
test_drain(void)
{
	begin(false);
	h2c_get("/hold");
	wait_for(is_held, "a request waits");
	front_drain(front);
	wanted = 2;
	wait_for(is_goaway, "GOAWAY, and once more");
	tap_is_int(h2c.first_goaway_last, 0x7fffffff, "first for none");
	tap_is_int(h2c.goaway_last, 1, "then the last one");
	tap_is_int(h2c.goaway_code, 0, "no error");
	tap_ok(!p->eof, "the request is still served");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW("bye"));
	wait_closed(1, "answered");
	is_reply(1, 200, "bye");
	wait_for(is_eof, "then it closes");
	wait_for(is_eof, "eof");
	stop();
	/* a client that never answers the PING */
	start();
	dial();
	peer_send(p, VIEW(H2_PREFACE "\0\0\0\4\0\0\0\0\0"));
	wait_turns(5);
	front_drain(front);
	wait_for(is_eof, "no answer to the PING: closed all the same");
	stop();
	start();
	limits.keepalive_requests = 2;
	dial();
	h2c_begin(p, false);
	h2c_get("/stream");
	h2c_get("/stream");
	wait_closed(2, "as many requests as are allowed");
	wait_for(is_eof, "then GOAWAY");
	/* a client without streams reads no second one */
	tap_ok(peer_has(p, VIEW("\0\0\x08\7\0\0\0\0\0\x7f\xff\xff\xff")) &&
		peer_has(p,
		    VIEW("\0\0\x08\7\0\0\0\0\0"
			 "\0\0\0\3"
			 "\0\0\0\0")),
	    "naming the last");
	stop();
}

static void
test_client_goaway(void)
{
	begin(false);
	h2c_get("/hold");
	wait_for(is_held, "a request waits");
	nghttp2_submit_goaway(h2c.session, 0, 0, 0, NULL, 0);
	turns(10);
	tap_ok(app.gone == 0, "a client that says GOAWAY is still served");
	(void)!exchange_simple(app.held, 200, VIEW_NONE, VIEW("bye"));
	wait_closed(1, "answered");
	wait_for(is_eof, "then it closes");
	stop();
}

/* ---- the front ------------------------------------------------------------ */

static void
test_front(void)
{
	static const char preface[] = H2_PREFACE "\0\0\0\4\0\0\0\0\0";
	size_t i;

	start();
	dial();
	for (i = 0; i < sizeof(preface) - 1; i++) {
		peer_send(p, view_of(preface + i, 1));
		wait_turns(1);
	}
	tap_is_int(stats().h2_connections, 1, "a preface byte by byte");
	tap_ok(peer_has(p, VIEW("\4\0\0\0\0\0")), "SETTINGS came");
	dial();
	peer_send(p, VIEW("P"));
	wait_turns(2);
	tap_is_int(stats().h2_connections, 0, "P could be both");
	peer_send(p,
	    VIEW("OST /echo HTTP/1.1\r\nHost: h\r\n"
		 "Content-Length: 2\r\n\r\nhi"));
	wanted = 1;
	wait_for(is_done, "it was POST");
	tap_ok(peer_has(p, VIEW("\r\n\r\nhi")), "answered by HTTP/1.1");
	peer_send(p, VIEW(H2_PREFACE));
	wait_for(is_eof, "a preface after a request");
	tap_ok(peer_has(p, VIEW("HTTP/1.1 505 ")), "is 505");
	dial();
	peer_send(p, VIEW("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"));
	wait_for(is_eof, "half a preface");
	tap_ok(peer_has(p, VIEW("HTTP/1.1 505 ")), "is 505 as well");
	dial();
	peer_send(p, VIEW("PRI"));
	wait_turns(2);
	front_drain(front);
	wait_for(is_eof, "the undecided are closed when it drains");
	stop();
}

/* ---- memory --------------------------------------------------------------- */

static void
nomem_round(unsigned long n)
{
	struct h2_send body = { .body = VIEW("hello") };

	start();
	dial();
	h2c_begin(p, false);
	h2c_ask("POST", "/echo", &body, "x", "y");
	h2c_get("/stream");
	h2c_get("/big/100000");
	/* the test's own allocations are not to fail */
	for (size_t i = 0; i < 3; i++)
		if (buf_reserve(&h2c.replies[i].body, 1 << 18) != 0)
			abort();
	if (buf_reserve(&p->got, 1 << 18) != 0 ||
	    buf_reserve(&app.log, 1 << 16) != 0)
		abort();
	mem_fail_after(n, 0);
	wanted = 3;
	for (int i = 0; i < 200 && h2c.closed < 3 && !p->eof && !p->reset; i++)
		turns(1);
	mem_fail_after(0, 0);
	front_free(front);
	h2c_clear();
	peer_close(p);
}

static void
test_nomem(void)
{
	unsigned long n, bad = 0;

	for (n = 1; n < 400; n++) {
		nomem_round(n);
		bad += app.opened != app.done + app.gone;
	}
	tap_is_int((long)bad, 0, "failing allocations leave nothing open");
	tap_is_int(app.done, 3, "in the end nothing failed");
}

int
main(void)
{
	peer_init();
	test_plain();
	test_many();
	test_expect();
	test_early();
	test_refused();
	test_fields();
	test_down();
	test_shares();
	test_up();
	test_up_returned();
	test_client_resets();
	test_abort();
	test_shutdown();
	test_floods();
	test_rapid_reset();
	test_made_to_reset();
	test_bomb();
	test_streams_max();
	test_deadlines();
	test_drain();
	test_client_goaway();
	test_front();
	test_nomem();
	buf_clear(&app.log);
	peer_clear();
	return tap_done();
}
