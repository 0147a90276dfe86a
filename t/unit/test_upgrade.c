/* Exchanges that become something else: HTTP/1.1, HTTP/2, and any other. */
#include "config.h"

#include "base/mem.h"
#include "http/front.h"
#include "http_app.h"
#include "h2_peer.h"
#include "mux_backend.h"

#define ASK(path) \
	"GET " path " HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n" \
	"Connection: keep-alive, Upgrade\r\n\r\n"

static struct front *front;
static struct h1_limits limits;
static struct peer *const p = &peers[0];
static size_t wanted;

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

static void
begin(struct view bytes)
{
	start();
	dial();
	peer_send(p, bytes);
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

static struct front_stats
stats(void)
{
	struct front_stats st;

	front_stats(front, &st);
	return st;
}

#define COND(name, expr) \
	static bool name(void) \
	{ \
		h2c_pump(); \
		return expr; \
	}

COND(is_switched, peer_has(p, VIEW("HTTP/1.1 101 ")))
COND(is_echoed, peer_has(p, VIEW("\r\n\r\nfirst, second")))
COND(is_eof, p->eof)
COND(is_reset, p->reset)
COND(is_over, app.done + app.gone >= wanted)
COND(is_held, app.held != NULL)
COND(is_answered, peer_has(p, VIEW("\r\n\r\nno")))
COND(is_100000, buf_len(&p->got) > 100000)
COND(is_no_connection, stats().connections == 0)
COND(is_head, h2c_reply(1)->head)
COND(is_closed, h2c_reply(1)->closed)
COND(is_body, buf_len(&h2c_reply(1)->body) >= wanted)
COND(is_settled,
    nghttp2_session_get_remote_settings(h2c.session,
	NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL) == 1)
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
is_log(const char *want, const char *what)
{
	tap_is_mem(buf_view(&app.log).p, buf_len(&app.log), want, strlen(want),
	    what);
}

/* ---- HTTP/1.1 ------------------------------------------------------------- */

static void
test_h1(void)
{
	begin(VIEW(ASK("/upgrade") "first, "));
	wait_for(is_switched, "101");
	peer_send(p, VIEW("second"));
	wait_for(is_echoed, "bytes behind the head are the protocol's");
	tap_ok(peer_has(p,
		   VIEW("HTTP/1.1 101 Switching Protocols\r\nX-App: yes\r\n"
			"Date: ")) &&
		peer_has(p,
		    VIEW("Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n")),
	    "the head");
	tap_ok(!peer_has(p, VIEW("Transfer-Encoding")) &&
		!peer_has(p, VIEW("Content-Length")),
	    "no framing");
	tap_ok(shutdown(p->fd, SHUT_WR) == 0, "the client ends its side");
	wait_for(is_eof, "and the server its own");
	wait_for(is_no_connection, "closed");
	is_log("open GET /upgrade ;upgrade 0;body 7;body 6;end;done;",
	    "what the consumer saw");
	stop();
}

/* The consumer takes its time: the request is whole, and goes on. */
static void
test_h1_later(void)
{
	begin(VIEW(ASK("/hold") "first, "));
	wait_for(is_held, "a request that is held");
	turns(3);
	app_upgrade(app.held);
	wait_for(is_switched, "upgraded later");
	peer_send(p, VIEW("second"));
	wait_for(is_echoed, "what came before that is kept");
	is_log("open GET /hold ;end;upgrade 0;body 7;body 6;",
	    "what the consumer saw");
	tap_is_int(exchange_end(app.held), 0, "the server ends first");
	wait_for(is_eof, "the end");
	tap_ok(shutdown(p->fd, SHUT_WR) == 0, "and the client's");
	wait_for(is_no_connection, "closed");
	tap_is_int(app.done, 1, "done");
	stop();

	/* the client has ended its side before the answer */
	begin(VIEW(ASK("/hold") "first, second"));
	wait_for(is_held, "a request that is held");
	tap_ok(shutdown(p->fd, SHUT_WR) == 0, "the client ends its side");
	turns(5);
	app_upgrade(app.held);
	wait_for(is_echoed, "its bytes are served");
	wait_for(is_eof, "to the end");
	tap_is_int(app.done, 1, "done");
	stop();
}

static void
test_h1_window(void)
{
	struct exchange *x;
	char big[1000] = { 0 };
	int i;

	start();
	limits.body_window = 10;
	app.no_credit = true;
	dial();
	peer_send(p, VIEW(ASK("/hold")));
	wait_for(is_held, "held");
	x = app.held;
	app_upgrade(x);
	peer_send(p, VIEW("0123456789abcdef"));
	turns(5);
	is_log("open GET /hold ;end;upgrade 0;body 10;",
	    "no more than the window");
	tap_ok(shutdown(p->fd, SHUT_WR) == 0, "the client ends its side");
	exchange_credit(x, 4);
	turns(5);
	exchange_credit(x, 100);
	wanted = 1;
	wait_for(is_over, "done");
	is_log("open GET /hold ;end;upgrade 0;body 10;body 4;body 2;end;done;",
	    "what is left comes before the end");
	stop();

	/* and back */
	begin(VIEW(ASK("/hold")));
	wait_for(is_held, "held");
	x = app.held;
	app_upgrade(x);
	p->deaf = true;
	for (i = 0; i < 100000 && exchange_room(x) != 0; i++) {
		(void)!exchange_data(x, view_of(big, sizeof(big)));
		if (i % 16 == 15)
			turns(1);
	}
	tap_is_int((long long)exchange_room(x), 0, "a client that is deaf");
	p->deaf = false;
	wait_for(is_100000, "hears again");
	turns(5);
	tap_ok(view_search(buf_view(&app.log), VIEW("writable;")) !=
		buf_len(&app.log),
	    "there is room");
	exchange_abort(x);
	wait_for(is_reset, "an end that is none is a reset");
	tap_is_int(app.gone, 1, "gone");
	stop();
}

/* Silence has no deadline, in either direction. */
static void
test_h1_silence(void)
{
	start();
	limits.body_timeout_ms = limits.send_timeout_ms = 20;
	limits.header_timeout_ms = limits.keepalive_timeout_ms = 20;
	dial();
	peer_send(p, VIEW(ASK("/upgrade")));
	wait_for(is_switched, "101");
	turns(100);
	tap_is_int((int)stats().connections, 1, "silence is no fault");
	peer_send(p, VIEW("first, second"));
	wait_for(is_echoed, "it lives");
	peer_rst(p);
	wanted = 1;
	wait_for(is_over, "until the client resets");
	tap_is_int(app.why, EXCHANGE_GONE_RESET, "gone");
	stop();
}

static const struct {
	const char *what, *head;
} no[] = {
	{ "no Connection",
	    "GET /upgrade HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n" },
	{ "no Upgrade",
	    "GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\n" },
	{ "HTTP/1.0",
	    "GET /upgrade HTTP/1.0\r\nHost: h\r\nConnection: Upgrade\r\n"
	    "Upgrade: websocket\r\n\r\n" },
	{ "a body",
	    "POST /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"
	    "Upgrade: websocket\r\nContent-Length: 3\r\n\r\nabc" },
	{ "a chunked body",
	    "POST /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"
	    "Upgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n"
	    "0\r\n\r\n" },
};

static void
test_h1_no(void)
{
	size_t i;

	for (i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		begin(view_str(no[i].head));
		wait_for(is_answered, no[i].what);
		tap_ok(peer_has(p, VIEW("HTTP/1.1 400 ")), "is refused");
		stop();
	}
	/* refused by the consumer, the connection lives on */
	begin(VIEW(ASK("/refuse") "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
	wanted = 2;
	wait_for(is_over, "another request on the connection");
	is_log("open GET /refuse ;done;open GET /stream ;done;",
	    "after one that was not upgraded");
	stop();
}

static void
test_h1_drain(void)
{
	begin(VIEW(ASK("/upgrade")));
	wait_for(is_switched, "101");
	front_drain(front);
	turns(5);
	tap_is_int((int)stats().connections, 1, "draining leaves it alone");
	peer_send(p, VIEW("first, second"));
	wait_for(is_echoed, "it lives");
	tap_is_int((int)front_shed(front, 10), 0, "it is not shed");
	front_cut(front, 7);
	wait_for(is_reset, "it can be cut");
	tap_is_int(app.why, EXCHANGE_GONE_SHUTDOWN, "and is told so");
	stop();
}

/* ---- HTTP/2 --------------------------------------------------------------- */

static struct h2_send up;

static void
h2_begin(const char *path, const char *protocol)
{
	start();
	dial();
	h2c_begin(p, false);
	wait_for(is_settled, "RFC 8441 is offered");
	up = (struct h2_send){ .more = true };
	tap_is_int(h2c_ask("CONNECT", path, &up, ":protocol", protocol), 1,
	    "extended CONNECT");
}

static void
h2_say(struct view v, bool more)
{
	up = (struct h2_send){ .body = v, .more = more };
	if (nghttp2_session_resume_data(h2c.session, 1) != 0)
		tap_diag("nothing to resume");
}

static void
test_h2(void)
{
	h2_begin("/upgrade", "websocket");
	wait_for(is_head, "a reply");
	tap_is_int(h2c_reply(1)->status, 200, "200");
	h2_say(VIEW("hello"), true);
	wanted = 5;
	wait_for(is_body, "bytes both ways");
	h2_say(VIEW("!"), false);
	wait_for(is_closed, "to the end");
	tap_is_int(h2c_reply(1)->code, 0, "as it should be");
	tap_is_mem(buf_view(&h2c_reply(1)->body).p, 6, "hello!", 6, "echoed");
	is_log("open CONNECT /upgrade ;upgrade 0;body 5;body 1;end;done;",
	    "what the consumer saw");
	stop();
}

static void
test_h2_refused(void)
{
	h2_begin("/upgrade", "connect-udp");
	wait_for(is_head, "another protocol");
	tap_is_int(h2c_reply(1)->status, 501, "is not known");
	tap_is_int(app.opened, 0, "nobody is asked");
	stop();
	start();
	dial();
	h2c_begin(p, false);
	wait_for(is_settled, "RFC 8441 is offered");
	h2c_ask("CONNECT", "/upgrade", NULL, NULL, NULL);
	wait_for(is_closed, "CONNECT without :protocol");
	tap_is_int(app.opened, 0, "is malformed, or refused");
	stop();
	start();
	dial();
	h2c_begin(p, false);
	wait_for(is_settled, "RFC 8441 is offered");
	h2c_ask("GET", "/upgrade", NULL, ":protocol", "websocket");
	wait_for(is_closed, ":protocol with GET");
	tap_is_int(app.opened, 0, "is malformed");
	stop();
	/* the consumer refuses */
	h2_begin("/refuse", "websocket");
	wait_for(is_closed, "refused by the consumer");
	tap_is_int(h2c_reply(1)->status, 413, "as any request");
	stop();
}

static void
test_h2_ends(void)
{
	static const char zeros[40000];
	struct exchange *x;

	h2_begin("/hold", "websocket");
	wait_for(is_held, "held");
	x = app.held;
	app_upgrade(x);
	wait_for(is_head, "upgraded later");
	exchange_abort(x);
	wait_for(is_closed, "an end that is none");
	tap_is_int(h2c_reply(1)->code, NGHTTP2_CANCEL, "is a reset: CANCEL");
	stop();
	h2_begin("/upgrade", "websocket");
	wait_for(is_head, "upgraded");
	if (nghttp2_submit_rst_stream(h2c.session, 0, 1, NGHTTP2_CANCEL) != 0)
		abort();
	wanted = 1;
	wait_for(is_over, "reset by the client");
	tap_is_int(app.why, EXCHANGE_GONE_RESET, "gone");
	stop();
	/* windows */
	start();
	limits.body_window = 16384;
	limits.body_timeout_ms = 20;
	app.no_credit = true;
	dial();
	h2c_begin(p, false);
	wait_for(is_settled, "RFC 8441 is offered");
	up = (struct h2_send){ .more = true };
	h2c_ask("CONNECT", "/upgrade", &up, ":protocol", "websocket");
	wait_for(is_head, "upgraded");
	h2_say(view_of(zeros, sizeof(zeros)), true);
	wanted = 16384;
	wait_for(is_body, "as much as the window");
	turns(50);
	tap_is_int((int)buf_len(&h2c_reply(1)->body), 16384,
	    "and no more without credit; silence is no fault");
	tap_is_int(app.gone, 0, "it lives");
	stop();
}

/* ---- any other ------------------------------------------------------------ */

static void
test_mux(void)
{
	struct mux_stream *s, *none;
	struct mux mux;
	int i;

	app_reset();
	mux_init(&mux, &app_consumer, &app, 1000, 100);
	s = mux_open(&mux, "CONNECT", "/upgrade", true);
	s->x.request.upgrade = VIEW("websocket");
	none = mux_open(&mux, "CONNECT", "/upgrade", true);
	mux_send(s, VIEW("hello"), false);
	for (i = 0; i < 1000 && mux_turn(&mux); i++)
		;
	tap_is_mem(buf_view(&s->got).p, buf_len(&s->got), "hello", 5,
	    "bytes over any back end");
	tap_is_int(none->status, 400, "not when nobody asked");
	tap_is_int(exchange_head(&s->x, &(struct head_reply){ .status = 200 }),
	    SP_E_STATE, "no second head");
	tap_is_int(exchange_upgrade(&s->x, &(struct head_reply){ 0 }),
	    SP_E_STATE, "once");
	mux_clear(&mux);
}

/* ---- no memory ------------------------------------------------------------ */

static void
test_nomem(void)
{
	unsigned long n;
	bool answered;

	for (n = 1; n < 200; n++) {
		begin(VIEW(ASK("/hold")));
		peer_cond = is_held;
		peer_ticks = PEER_TICKS;
		loop_timer_set(peer_timer, 0);
		if (loop_run(loop) != 0 || app.held == NULL)
			abort();
		(void)!buf_reserve(&app.log, 1000);
		mem_fail_after(n, 0);
		app_upgrade(app.held);
		mem_fail_after(0, 0);
		turns(3);
		answered = app.held != NULL && app.held->upgraded;
		front_free(front);
		peer_close(p);
		if (app.opened != app.done + app.gone)
			break;
		if (answered)
			break;
	}
	tap_ok(n > 1 && n < 200 && app.opened == app.done + app.gone,
	    "without memory: gone");
	buf_clear(&app.log);
}

int
main(void)
{
	peer_init();
	test_h1();
	test_h1_later();
	test_h1_window();
	test_h1_silence();
	test_h1_no();
	test_h1_drain();
	test_h2();
	test_h2_refused();
	test_h2_ends();
	test_mux();
	test_nomem();
	buf_clear(&app.log);
	peer_clear();
	return tap_done();
}
