/* Calls over HTTP/2: shared connections, every way to end. */
#include "config.h"

#include "h2_caller.h"
#include "net/pool_servers.h"

/* ---- what is right -------------------------------------------------------- */

static void
test_request(void)
{
	static const char *const fields[] = { "a", "b", "content-length", "2",
		NULL };
	struct head_field f[4] = { { VIEW("X-Upper"), VIEW("Val") },
		{ VIEW("Connection"), VIEW("keep-alive") },
		{ VIEW("TE"), VIEW("trailers") },
		{ VIEW("Authorization"), VIEW("Bearer k") } };
	const struct head_fields hf = { .v = f, .n = 4, .cap = 4 };
	struct call_params cp;
	struct h2_client_stats st;

	start();
	cp = params();
	cp.fields = &hf;
	begin_with(0, &cp);
	wait_asked(1, "asked");
	tap_is_mem(buf_view(&h2s.rq[0].head).p, buf_len(&h2s.rq[0].head),
	    ":method=POST;:scheme=http;:authority=up:99;:path=/base/v1/x;"
	    "x-upper=Val;authorization=Bearer k;accept-encoding=identity;"
	    "content-length=2;",
	    137, "pseudo-header fields, names in lower case, no hop-by-hop");
	tap_is_mem(buf_view(&h2s.rq[0].body).p, buf_len(&h2s.rq[0].body), "{}",
	    2, "its body");
	h2s_head(&h2s.rq[0], "103", false, NULL);
	h2s_head(&h2s.rq[0], "200", false, fields);
	h2s_body(&h2s.rq[0], VIEW("hi"), false);
	wait_over(1, "over");
	tap_ok(seen[0].ends == 1 && seen[0].delimited && seen[0].heads == 1,
	    "an interim reply is swallowed, the end is marked");
	tap_is_mem(buf_view(&seen[0].text).p, buf_len(&seen[0].text),
	    "200 2 {a=b;}", 12, "the head");
	tap_is_mem(buf_view(&seen[0].body).p, buf_len(&seen[0].body), "hi", 2,
	    "and the body");
	h2_client_stats(client, &st);
	tap_ok(st.connections == 1 && st.idle == 1 && st.streams == 0 &&
		st.requests == 1,
	    "what is counted");
	cp.method = VIEW("HEAD");
	cp.body = VIEW_NONE;
	cp.target = VIEW("?q");
	begin_with(0, &cp);
	wait_asked(2, "on the same connection");
	h2s_head(&h2s.rq[1], "200", true, fields);
	wait_over(1, "over");
	tap_ok(seen[0].ends == 1 && buf_len(&seen[0].body) == 0 &&
		h2s.accepted == 1,
	    "HEAD has a length and no body");
	cp.method = VIEW("GET");
	begin_with(0, &cp);
	wait_asked(3, "a third");
	h2s_head(&h2s.rq[2], "200", false, NULL);
	h2s_body(&h2s.rq[2], VIEW("x"), true);
	turns(3);
	tap_is_int(seen[0].ends, 0, "not over before END_STREAM");
	h2s_head(&h2s.rq[2], "", true, fields);
	turns(3);
	stop();
}

static void
test_trailers(void)
{
	nghttp2_nv nv = h2c_nv("grpc-status", "0");

	start();
	begin(0);
	wait_asked(1, "asked");
	h2s_head(&h2s.rq[0], "200", false, NULL);
	h2s_body(&h2s.rq[0], VIEW("x"), true);
	must(nghttp2_submit_headers(h2s.session[0], 1, h2s.rq[0].id, NULL, &nv,
	    1, NULL));
	wait_over(1, "trailers end it");
	tap_ok(seen[0].ends == 1 &&
		view_eq(buf_view(&seen[0].text), VIEW("200 -1 {}")) &&
		buf_len(&seen[0].body) == 1,
	    "and are dropped");
	stop();
}

/* Many at once on one connection; each gets its own. */
static void
test_many(void)
{
	static const char *const names[] = { "zero", "one", "two" };
	struct call_params cp;
	char target[20];
	size_t i, good = 0;

	h2s.byte = true;
	start();
	for (i = 0; i < 60; i++) {
		cp = params();
		(void)snprintf(target, sizeof(target), "/%zu", i);
		cp.target = view_str(target);
		begin_with(i, &cp);
	}
	wait_asked(60, "60 calls");
	tap_is_int(h2s.accepted, 1, "on one connection");
	for (i = 60; i-- > 0;)
		h2s_reply(&h2s.rq[i], names[i % 3]);
	wait_over(60, "are answered, last first, in single bytes");
	for (i = 0; i < 60; i++)
		good += seen[i].ends == 1 &&
		    view_eq(buf_view(&seen[i].body), view_str(names[i % 3]));
	tap_is_int((long long)good, 60, "each with its own reply");
	stop();
}

static void
test_limit(void)
{
	size_t i;

	h2s.max_streams = 3;
	start();
	begin(0);
	wait_asked(1, "the first");
	for (i = 1; i < 7; i++)
		begin(i);
	wait_asked(7, "seven calls to a server that allows three at once");
	tap_is_int(h2s.accepted, 3, "need three connections");
	for (i = 0; i < 7; i++)
		h2s_reply(&h2s.rq[i], "x");
	wait_over(7, "are answered");
	for (i = 0; i < 3; i++)
		begin(i);
	wait_asked(10, "three more");
	tap_is_int(h2s.accepted, 3, "need no new connection");
	stop();
	/* those that wait for a connection that does not come up */
	close(h2s.lfd);
	start();
	for (i = 0; i < 3; i++)
		begin(i);
	call_cancel(seen[1].call);
	seen[1].call = NULL;
	wait_over(2, "nobody listens");
	tap_ok(seen[0].why == CALL_CONNECT && seen[2].why == CALL_CONNECT &&
		seen[2].words[0] != '\0',
	    "all fail: %s", seen[2].words);
	stop();
	h2s.lfd = peer_listen(&port);
	/* the one that they wait for is given up */
	start();
	for (i = 0; i < 3; i++)
		begin(i);
	turns(1);
	call_cancel(seen[0].call);
	seen[0].call = NULL;
	wait_asked(2, "the others go on");
	stop();
}

/* ---- going away -----------------------------------------------------------
 */

static void
test_goaway(void)
{
	start();
	begin(0);
	begin(1);
	wait_asked(2, "two calls");
	/* the second was not processed */
	must(
	    nghttp2_submit_goaway(h2s.session[0], 0, h2s.rq[0].id, 0, NULL, 0));
	wait_asked(3, "the one above the last stream is sent again");
	tap_is_int(h2s.accepted, 2, "on another connection");
	h2s_reply(&h2s.rq[0], "old");
	h2s_reply(&h2s.rq[2], "new");
	wait_over(2, "both are answered");
	tap_ok(view_eq(buf_view(&seen[0].body), VIEW("old")) &&
		view_eq(buf_view(&seen[1].body), VIEW("new")),
	    "each by its own");
	begin(2);
	wait_asked(4, "a new call");
	tap_ok(h2s.rq[3].conn == h2s.rq[2].conn,
	    "is not put on the one that goes away");
	stop();
	/* within a reply */
	start();
	begin(0);
	wait_asked(1, "a call");
	h2s_head(&h2s.rq[0], "200", false, NULL);
	h2s_body(&h2s.rq[0], VIEW("x"), true);
	wait_for(is_headed, "its reply has begun");
	must(nghttp2_submit_goaway(h2s.session[0], 0, 0, 0, NULL, 0));
	wait_over(1, "an older stream is the last");
	tap_is_int(seen[0].why, CALL_BROKEN, "broken");
	tap_is_str(seen[0].words,
	    "upstream \"t\": the server went away (GOAWAY) within the reply",
	    "why");
	stop();
	/* REFUSED_STREAM, again and again */
	start();
	begin(0);
	for (size_t i = 0; i < 11; i++) {
		wait_asked(i + 1, "asked");
		must(nghttp2_submit_rst_stream(h2s.session[0], 0, h2s.rq[i].id,
		    NGHTTP2_REFUSED_STREAM));
	}
	wait_over(1, "refused eleven times");
	tap_ok(seen[0].fails == 1 && seen[0].why == CALL_BROKEN &&
		h2s.accepted == 1,
	    "fails: %s", seen[0].words);
	stop();
}

static void
test_stale(void)
{
	start();
	begin(0);
	wait_asked(1, "asked");
	h2s_reply(&h2s.rq[0], "x");
	wait_over(1, "over");
	begin(0);
	wait_asked(2, "on the idle connection");
	h2s_hang_up(0, true);
	wait_asked(3, "which breaks: asked again");
	tap_is_int(h2s.accepted, 2, "on a fresh one");
	h2s_hang_up(h2s.conn, false);
	wait_over(1, "which breaks, too");
	tap_ok(seen[0].fails == 1 && seen[0].why == CALL_BROKEN, "fails: %s",
	    seen[0].words);
	stop();
	/* not one that the server has shown to be alive */
	start();
	begin(0);
	begin(1);
	wait_asked(2, "two calls");
	h2s_reply(&h2s.rq[0], "x");
	wait_over(1, "one is answered");
	h2s_hang_up(0, true);
	wait_over(2, "the other is not");
	tap_ok(seen[1].why == CALL_BROKEN && h2s.accepted == 1,
	    "and not sent again: %s", seen[1].words);
	stop();
}

static void
test_idle(void)
{
	must(pool_try(20));
	begin(0);
	wait_asked(1, "asked");
	h2s_reply(&h2s.rq[0], "x");
	wait_over(1, "over");
	wait_for(is_quiet, "closed when idle too long");
	wait_for(is_left, "the server sees it");
	tap_ok(h2s.went && h2s.went_code == 0, "after a GOAWAY");
	stop();
	must(pool_try(0));
	begin(0);
	wait_asked(1, "asked");
	h2s_reply(&h2s.rq[0], "x");
	wait_for(is_quiet, "closed at once where nothing is kept");
	stop();
	/* the server closes an idle one */
	start();
	begin(0);
	wait_asked(1, "asked");
	h2s_reply(&h2s.rq[0], "x");
	wait_over(1, "over");
	h2s_hang_up(0, false);
	wait_for(is_quiet, "closed by the server");
	begin(0);
	wait_asked(2, "the next call");
	tap_is_int(h2s.accepted, 2, "has a new one");
	stop();
}

/* A server that is taken away: its connection ends with its last call. */
static void
test_removed(void)
{
	const struct pool_server as = { .host = VIEW("127.0.0.1"),
		.port = port,
		.authority = VIEW("other"),
		.base = VIEW("/base") };

	start();
	begin(0);
	wait_asked(1, "a call");
	tap_is_int(pool_servers_remove(pool, &as), 0, "its server is removed");
	turns(5);
	tap_is_int(peers[0].eof || peers[0].reset, 0, "the call goes on");
	begin(1);
	wait_over(1, "another finds no server");
	tap_is_int(seen[1].why, CALL_CONNECT, "and fails");
	tap_is_int(pool_servers_add(pool, &as), 0, "one is added");
	h2s_reply(&h2s.rq[0], "x");
	wait_over(2, "the first ends");
	tap_is_int(seen[0].ends, 1, "whole");
	wait_for(is_quiet, "its connection is closed");
	begin(1);
	wait_asked(2, "a call to the new one");
	tap_ok(h2s.accepted == 2 &&
		view_search(buf_view(&h2s.rq[1].head),
		    VIEW(":authority=other;")) != buf_len(&h2s.rq[1].head),
	    "has its own connection, and name");
	stop();
}

/* ---- cancelling, pausing, deadlines --------------------------------------- */

static void
test_cancel(void)
{
	start();
	begin(0);
	begin(1);
	wait_asked(2, "two calls");
	call_cancel(seen[0].call);
	seen[0].call = NULL;
	wait_for(is_closed, "one is cancelled");
	tap_is_int(h2s.rq[0].code, NGHTTP2_CANCEL, "by RST_STREAM");
	turns(3);
	tap_is_int(h2s.pings, 1, "the server is asked whether it lives");
	h2s_reply(&h2s.rq[1], "x");
	wait_over(1, "the other goes on");
	tap_is_int(seen[1].ends, 1, "to its end");
	begin(0);
	wait_asked(3, "the next");
	tap_is_int(h2s.accepted, 1, "uses the same connection");
	seen[0].cancel_at_head = true;
	h2s_reply(&h2s.rq[2], "x");
	turns(5);
	tap_ok(h2s.rq[2].closed && buf_len(&seen[0].body) == 0,
	    "cancelled by head()");
	begin(0);
	wait_asked(4, "the next");
	seen[0].cancel_at_body = true;
	h2s_head(&h2s.rq[3], "200", false, NULL);
	h2s_body(&h2s.rq[3], VIEW("abc"), true);
	turns(5);
	tap_ok(h2s.rq[3].closed && buf_len(&seen[0].body) == 3,
	    "cancelled by body()");
	tap_is_int(h2s.accepted, 1, "still the same connection");
	stop();
	start();
	begin(0);
	call_cancel(seen[0].call);
	seen[0].call = NULL;
	turns(3);
	tap_is_int(seen[0].fails, 0, "cancelled before it connects");
	stop();
}

/* What windows allowed is on its way when calls are given up, all at once. */
static void
test_cancel_many(void)
{
	enum { GIVEN_UP = 24, FRAMES = 15, FRAME = 16384 };
	static uint8_t frame[9 + FRAME] = { 0, FRAME >> 8, 0, 0, 0 };
	size_t i, k;

	start();
	for (i = 0; i <= GIVEN_UP; i++)
		begin(i);
	wait_asked(GIVEN_UP + 1, "many calls");
	for (i = 0; i <= GIVEN_UP; i++)
		h2s_head(&h2s.rq[i], "200", false, NULL);
	turns(3);
	for (i = 1; i <= GIVEN_UP; i++) {
		call_cancel(seen[i].call);
		seen[i].call = NULL;
	}
	turns(3);
	for (i = 1; i <= GIVEN_UP; i++)
		for (k = 0; k < FRAMES; k++) {
			frame[8] = (uint8_t)h2s.rq[i].id;
			peer_send(&peers[h2s.conn],
			    view_of(frame, sizeof(frame)));
			turns(2);
		}
	h2s_body(&h2s.rq[0], VIEW("x"), false);
	wait_over(1, "the one that is left");
	tap_ok(seen[0].ends == 1 && h2s.accepted == 1,
	    "ends whole: bytes that were on their way are no flood");
	stop();
}

static void
test_pause(void)
{
	static char bytes[3000000];
	struct call_params cp;
	size_t before;

	memset(bytes, 'B', sizeof(bytes));
	start();
	cp = params();
	cp.read_timeout_ms = 200;
	begin_with(0, &cp);
	seen[0].pause_at_head = true;
	begin(1);
	wait_asked(2, "two calls");
	h2s_head(&h2s.rq[0], "200", false, NULL);
	h2s_body(&h2s.rq[0], view_of(bytes, sizeof(bytes)), false);
	wait_for(is_headed, "one paused at the head");
	turns(300);
	before = h2s.rq[0].send.at;
	tap_ok(before <= 262144 && buf_len(&seen[0].body) == 0,
	    "its window closes: %zu", before);
	h2s_head(&h2s.rq[1], "200", false, NULL);
	h2s_body(&h2s.rq[1], view_of(bytes, sizeof(bytes)), false);
	wait_over(1, "the other is not held back");
	tap_ok(seen[1].ends == 1 && buf_len(&seen[1].body) == sizeof(bytes),
	    "by the window of the connection");
	tap_is_int(seen[0].fails, 0, "no deadline while paused");
	call_pause(seen[0].call, false);
	wait_over(2, "it goes on");
	tap_ok(seen[0].ends == 1 && buf_len(&seen[0].body) == sizeof(bytes),
	    "with all of it");
	stop();
	/* paused at the end */
	start();
	begin(0);
	seen[0].pause_at_head = true;
	wait_asked(1, "asked");
	h2s_reply(&h2s.rq[0], "hello");
	turns(10);
	tap_ok(seen[0].heads == 1 && seen[0].ends == 0 &&
		buf_len(&seen[0].body) == 0,
	    "nothing while paused");
	call_pause(seen[0].call, false);
	wait_over(1, "then all");
	tap_is_int((long long)buf_len(&seen[0].body), 5, "bytes, and the end");
	stop();
}

static void
test_upload(void)
{
	enum { LARGE = 2000000 };
	static char bytes[LARGE];
	struct call_params cp;

	memset(bytes, 'A', LARGE);
	h2s.manual = true;
	start();
	cp = params();
	cp.body = view_of(bytes, LARGE);
	cp.send_timeout_ms = 400;
	begin_with(0, &cp);
	begin(1);
	want_requests = 2;
	wait_for(is_begun, "a large request and a small one");
	turns(20);
	tap_is_int((long long)(buf_len(&h2s.rq[0].body) +
		       buf_len(&h2s.rq[1].body)),
	    65535, "not more than the windows");
	while (buf_len(&h2s.rq[0].body) < LARGE && seen[0].fails == 0) {
		must(nghttp2_submit_window_update(h2s.session[0], 0,
		    h2s.rq[0].id, 65535));
		must(nghttp2_submit_window_update(h2s.session[0], 0, 0, 65535));
		turns(2);
	}
	h2s_reply(&h2s.rq[0], "x");
	h2s_reply(&h2s.rq[1], "x");
	wait_over(2, "they go on as the windows open");
	tap_ok(seen[0].ends == 1 && buf_len(&h2s.rq[0].body) == LARGE,
	    "arrives whole: %s", seen[0].words);
	begin_with(0, &cp);
	wait_over(2, "a window that stays shut");
	tap_ok(seen[0].fails == 1 && seen[0].why == CALL_SEND_TIMEOUT,
	    "is a send timeout: %s", seen[0].words);
	turns(3);
	tap_ok(h2s.rq[2].closed && h2s.rq[2].code == NGHTTP2_CANCEL,
	    "the stream is reset");
	stop();
	/* an early reply */
	h2s.manual = true;
	start();
	cp.pool = pool;
	cp.send_timeout_ms = 9000;
	begin_with(0, &cp);
	want_requests = 1;
	wait_for(is_begun, "a large request");
	turns(5);
	h2s_head(&h2s.rq[0], "413", false, NULL);
	wait_for(is_headed, "is answered early");
	memset(bytes, 'Z', LARGE);
	must(nghttp2_submit_window_update(h2s.session[0], 0, h2s.rq[0].id,
	    LARGE));
	must(nghttp2_submit_window_update(h2s.session[0], 0, 0, LARGE));
	turns(5);
	tap_ok(view_find(buf_view(&h2s.rq[0].body), 'Z') ==
		buf_len(&h2s.rq[0].body),
	    "its body is touched no more");
	h2s_body(&h2s.rq[0], VIEW("no"), false);
	wait_over(1, "over");
	tap_is_int(seen[0].ends, 1, "whole");
	wait_for(is_closed, "the rest is called off");
	tap_is_int(h2s.rq[0].code, NGHTTP2_NO_ERROR, "without an error");
	stop();
}

static void
test_timeouts(void)
{
	struct call_params cp;

	start();
	cp = params();
	cp.first_byte_timeout_ms = 5;
	begin_with(0, &cp);
	wait_over(1, "no head in time");
	tap_is_int(seen[0].why, CALL_FIRST_TIMEOUT, "is a first byte timeout");
	cp = params();
	cp.read_timeout_ms = 5;
	begin_with(0, &cp);
	wait_asked(2, "asked");
	h2s_head(&h2s.rq[1], "200", false, NULL);
	h2s_body(&h2s.rq[1], VIEW("x"), true);
	wait_over(1, "silence within the body");
	tap_is_int(seen[0].why, CALL_READ_TIMEOUT, "is a read timeout");
	begin(0);
	wait_asked(3, "the connection");
	tap_is_int(h2s.accepted, 1, "stays");
	stop();
	/* a server whose socket takes nothing */
	start();
	cp = params();
	cp.send_timeout_ms = 30;
	begin_with(0, &cp);
	want_accepted = 1;
	wait_for(is_accepted, "accepted");
	h2s_hang_up(h2s.conn, true);
	wait_over(1, "a connection that breaks");
	tap_ok(seen[0].fails == 1, "%s", seen[0].words);
	stop();
}

static void
allow_streams(uint32_t n)
{
	const nghttp2_settings_entry max = {
		NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, n
	};

	must(nghttp2_submit_settings(h2s.session[0], 0, &max, 1));
	h2s_flush(0);
}

/* Told when the call has its place already, read before it is sent. */
static void
begin_late(void)
{
	struct call_params cp = params();

	cp.send_timeout_ms = 20;
	begin_with(1, &cp);
	allow_streams(h2s.max_streams);
}

/* A server that allows fewer streams, or none, as one that drains does. */
static void
test_fewer_streams(void)
{
	struct h2_client_stats st;

	start();
	begin(0);
	wait_asked(1, "a call");
	seen[0].at_head = begin_late;
	h2s.max_streams = 1;
	h2s_head(&h2s.rq[0], "200", false, NULL);
	wait_over(1, "one more than is allowed");
	tap_is_int(seen[1].why, CALL_SEND_TIMEOUT, "is late");
	turns(1);
	h2_client_stats(client, &st);
	tap_is_int((long long)st.streams, 1, "and forgotten");
	allow_streams(5);
	turns(3);
	begin(2);
	wait_asked(2, "the next call");
	tap_ok(h2s.rq_n == 2 && h2s.accepted == 1,
	    "what was late is not sent when more are allowed");
	seen[2].at_head = begin_late;
	h2s.max_streams = 0;
	h2s_reply(&h2s.rq[1], "x");
	h2s_body(&h2s.rq[0], VIEW("x"), false);
	wait_over(3, "a call when none is allowed, and those under way");
	tap_ok(seen[0].ends == 1 && seen[2].ends == 1 && seen[1].fails == 1,
	    "end");
	wait_for(is_quiet, "the connection is of no use, and closed");
	h2_client_stats(client, &st);
	tap_is_int((long long)st.streams, 0, "nothing is left of the calls");
	stop();
}

/* ---- what is wrong -------------------------------------------------------- */

static void
test_broken(void)
{
	static const char *const two[] = { "content-length", "2", NULL };
	static const char *const bad[] = { "content-length", "x", NULL };
	static const char *const hop[] = { "connection", "close", NULL };
	static const struct {
		const char *what, *status;
		const char *const *fields;
		const char *body;
		bool end_at_head;
		enum call_failure why;
	} v[] = {
		{ "shorter than announced", "200", two, "x", false,
		    CALL_BROKEN },
		{ "longer than announced", "200", two, "xyz", false,
		    CALL_BROKEN },
		{ "bad length", "200", bad, NULL, false, CALL_MALFORMED },
		{ "a field of the hop", "200", hop, NULL, false,
		    CALL_MALFORMED },
		{ "no number", "abc", NULL, NULL, false, CALL_MALFORMED },
		{ "101", "101", NULL, NULL, false, CALL_MALFORMED },
		{ "an interim reply that ends it", "103", NULL, NULL, true,
		    CALL_MALFORMED },
	};
	size_t i, n;

	start();
	for (i = 0, n = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		begin(0);
		wait_asked(++n, "asked");
		h2s_head(&h2s.rq[n - 1], v[i].status, v[i].end_at_head,
		    v[i].fields);
		if (v[i].body != NULL)
			h2s_body(&h2s.rq[n - 1], view_str(v[i].body), false);
		wait_over(1, "over");
		tap_ok(seen[0].fails == 1 && seen[0].why == v[i].why, "%s: %s",
		    v[i].what, seen[0].words);
	}
	for (i = 0; i < 2; i++) {
		begin(0);
		wait_asked(++n, "asked");
		if (i == 1) {
			h2s_head(&h2s.rq[n - 1], "200", false, NULL);
			h2s_body(&h2s.rq[n - 1], VIEW("x"), true);
			turns(2);
		}
		must(nghttp2_submit_rst_stream(h2s.session[0], 0,
		    h2s.rq[n - 1].id, NGHTTP2_INTERNAL_ERROR));
		wait_over(1, "reset by the server");
		tap_ok(seen[0].fails == 1 && seen[0].why == CALL_BROKEN, "%s",
		    seen[0].words);
	}
	tap_is_int(h2s.accepted, 1, "all on one connection, which stays");
	stop();
}

/* ---- memory --------------------------------------------------------------- */

static void
nomem_round(unsigned long n)
{
	static const char *const fields[] = { "a", "b", NULL };
	struct call_params cp = params();
	struct call_owner owner = { on_head, on_body, on_end, on_fail,
		&seen[0] };
	unsigned long before = mem_count();
	int rc, i;

	must(buf_reserve(&seen[0].text, 1000));
	must(buf_reserve(&seen[0].body, 1000));
	before = mem_count();
	mem_fail_after(n, 0);
	rc = call_start(loop, &cp, &owner, &seen[0].call);
	wait_turns(4);
	mem_fail_after(0, 0);
	if (rc != 0) {
		seen[0].call = NULL;
		tap_ok(rc == SP_E_NOMEM, "allocation %lu", n);
		return;
	}
	n = n > mem_count() - before ? n - (mem_count() - before) : 0;
	turns(2);
	if (h2s.rq_n != 0 && h2s.session[0] != NULL && seen[0].call != NULL) {
		h2s_head(&h2s.rq[0], "200", false, fields);
		h2s_body(&h2s.rq[0], VIEW("hello"), false);
		mem_fail_after(n, 0);
		wait_turns(4);
		mem_fail_after(0, 0);
	}
	for (i = 0; i < 2000 && seen[0].call != NULL; i++) {
		turns(1);
		if (i == 20 && h2s.session[h2s.conn] != NULL)
			h2s_hang_up(h2s.conn, true);
	}
	if (seen[0].ends + seen[0].fails != 1)
		tap_ok(false, "allocation %lu: not over", n);
}

static void
test_nomem(void)
{
	unsigned long n, before, last = 0;
	int rc;

	for (n = 1; n < 12; n++) {
		mem_fail_after(n, 0);
		rc = pool_try(1000);
		mem_fail_after(0, 0);
		if (rc != 0 && rc != SP_E_NOMEM)
			tap_ok(false, "allocation %lu: %d", n, rc);
		if (rc == 0)
			stop();
	}
	for (n = 1; n < 250; n++) {
		seen_reset(&seen[0]);
		start();
		before = mem_count();
		nomem_round(n);
		last = mem_count() - before;
		stop();
	}
	tap_ok(last != 0, "%lu allocations failed in turn", n - 1);
}

int
main(void)
{
	caller_init();
	test_request();
	test_trailers();
	test_many();
	test_limit();
	test_goaway();
	test_stale();
	test_idle();
	test_removed();
	test_cancel();
	test_cancel_many();
	test_pause();
	test_upload();
	test_timeouts();
	test_fewer_streams();
	test_broken();
	test_nomem();
	caller_clear();
	return tap_done();
}
