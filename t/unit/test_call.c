/* Calls to an upstream: every framing, every way to break. */
#include "config.h"

#include <zlib.h>

#include "base/mem.h"
#include "event/resolver.h"
#include "http/call.h"
#include "http_peer.h"
#include "net/pool_servers.h"

#define OK "HTTP/1.1 200 OK\r\n"

static struct resolver *resolver;
static struct pool *pool;
static int lfd;
static uint16_t port;
static struct call *call;
static struct peer *srv; /* connection accepted last */
static unsigned accepted;

/* What the owner was told. */
static struct seen {
	struct buf text; /* "200 {A=b;}" */
	struct buf body;
	unsigned heads, ends, fails;
	bool delimited;
	enum call_failure why;
	char words[200];
	bool cancel_at_head, cancel_at_body, pause_at_head;
} seen;

static void
must(int rc)
{
	if (rc != 0)
		abort();
}

static void
on_head(void *arg, struct call *c, const struct head_reply *head)
{
	size_t i;

	(void)arg;
	seen.heads++;
	must(buf_printf(&seen.text, "%u %lld {", head->status,
	    (long long)head->content_length));
	for (i = 0; i < head->fields.n; i++)
		must(buf_printf(&seen.text, "%.*s=%.*s;",
		    VIEW_ARG(head->fields.v[i].name),
		    VIEW_ARG(head->fields.v[i].value)));
	must(buf_add_str(&seen.text, "}"));
	if (seen.pause_at_head)
		call_pause(c, true);
	if (seen.cancel_at_head) {
		call_cancel(c);
		call = NULL;
	}
}

static void
on_body(void *arg, struct call *c, struct view data)
{
	(void)arg;
	must(buf_add_view(&seen.body, data));
	if (seen.cancel_at_body) {
		call_cancel(c);
		call = NULL;
	}
}

static void
on_end(void *arg, struct call *c, bool delimited)
{
	(void)arg;
	(void)c;
	seen.ends++;
	seen.delimited = delimited;
	call = NULL;
}

static void
on_fail(void *arg, struct call *c, enum call_failure why, const char *text)
{
	(void)arg;
	(void)c;
	seen.fails++;
	seen.why = why;
	(void)snprintf(seen.words, sizeof(seen.words), "%s", text);
	call = NULL;
}

static const struct call_owner owner = { .head = on_head,
	.body = on_body,
	.end = on_end,
	.fail = on_fail };

static void
seen_reset(void)
{
	buf_clear(&seen.text);
	buf_clear(&seen.body);
	seen = (struct seen){ .text = BUF_INIT(1 << 20),
		.body = BUF_INIT(1 << 26) };
}

/* ---- the scripted server -------------------------------------------------- */

static void
take(void)
{
	size_t i;
	int fd;

	while ((fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK)) != -1) {
		accepted++;
		for (i = 0; i < PEERS; i++)
			if (peers[i].fd == -1)
				break;
		if (i == PEERS)
			abort();
		peer_close(&peers[i]);
		peers[i].fd = fd;
		srv = &peers[i];
	}
}

static bool
is_asked(void)
{
	take();
	return srv != NULL && peer_has(srv, VIEW("\r\n\r\n"));
}

static bool
is_over(void)
{
	take();
	return seen.ends + seen.fails != 0;
}

static bool
is_headed(void)
{
	return seen.heads != 0;
}
static bool
is_left(void)
{
	return srv->reset || srv->eof;
}
static bool
is_taken(void)
{
	take();
	return srv != NULL;
}

static void
pool_start(uint64_t keepalive)
{
	const struct pool_server server = { .host = VIEW("127.0.0.1"),
		.port = port,
		.authority = VIEW("up"),
		.base = VIEW("/base") };
	const struct pool_params params = { .name = VIEW("t"),
		.servers = &server,
		.servers_n = 1,
		.connect_timeout_ms = 10000,
		.keepalive = keepalive,
		.keepalive_timeout_ms = 60000 };

	must(pool_new(loop, resolver, &params, &pool));
}

static struct call_params
params(void)
{
	return (struct call_params){ .pool = pool,
		.affinity = VIEW("k"),
		.method = VIEW("POST"),
		.target = VIEW("/v1/x"),
		.body = VIEW("{}"),
		.send_timeout_ms = 60000,
		.first_byte_timeout_ms = 60000,
		.read_timeout_ms = 60000,
		.header_max = 4000,
		.decoded_max = 1 << 20 };
}

static void
begin_with(const struct call_params *with)
{
	struct call_params cp = *with;

	cp.pool = pool;
	seen_reset();
	if (srv != NULL)
		buf_reset(&srv->got, 0);
	must(call_start(loop, &cp, &owner, &call));
}

static void
begin(void)
{
	struct call_params cp = params();

	begin_with(&cp);
}

static void
finish(void)
{
	size_t i;

	if (call != NULL)
		call_cancel(call);
	call = NULL;
	pool_free(pool);
	pool = NULL;
	for (i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	srv = NULL;
	accepted = 0;
}

static void
hang_up(void)
{
	shutdown(srv->fd, SHUT_WR);
}

/* ---- replies -------------------------------------------------------------- */

struct reply {
	const char *name;
	struct view in;
	bool close; /* then the server closes */
	const char *head;
	const char *body; /* NULL: it must fail with why */
	enum call_failure why;
	bool delimited, reused;
};
#define R(lit) \
	{ \
		"" lit, sizeof(lit) - 1 \
	}

static const struct reply replies[] = {
	{ "length", R(OK "Content-Length: 2\r\nA: b\r\n\r\nhi"), false,
	    "200 2 {A=b;}", "hi", 0, true, true },
	{ "no body", R("HTTP/1.1 204 No\r\n\r\n"), false, "204 -1 {}", "", 0,
	    true, true },
	{ "length 0", R(OK "Content-Length: 0\r\n\r\n"), false, "200 0 {}", "",
	    0, true, true },
	{ "chunked",
	    R(OK
		"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1;x\r\n!\r\n0\r\n"
		"T: u\r\n\r\n"),
	    false, "200 -1 {}", "hi!", 0, true, true },
	{ "H5 close-delimited", R(OK "\r\nhi"), true, "200 -1 {}", "hi", 0,
	    false, false },
	{ "H5 HTTP/1.0", R("HTTP/1.0 200 OK\r\nX: y\r\n\r\nhi"), true,
	    "200 -1 {X=y;}", "hi", 0, false, false },
	{ "HTTP/1.0 with a length",
	    R("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"), false,
	    "200 2 {}", "hi", 0, true, false },
	{ "close", R(OK "Connection: close\r\nContent-Length: 2\r\n\r\nhi"),
	    false, "200 2 {}", "hi", 0, true, false },
	{ "interim replies",
	    R("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nL: m\r\n\r\n" OK
	      "Content-Length: 2\r\n\r\nhi"),
	    false, "200 2 {}", "hi", 0, true, true },
	{ "TE and CL: not used again",
	    R(OK "Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n"
		 "2\r\nhi\r\n0\r\n\r\n"),
	    false, "200 -1 {}", "hi", 0, true, false },
	{ "bytes after the end: not used again",
	    R(OK "Content-Length: 2\r\n\r\nhiHTTP/1.1 200"), false, "200 2 {}",
	    "hi", 0, true, false },
	{ "H1 unknown coding passes",
	    R(OK "Content-Encoding: zz\r\n"
		 "Content-Length: 2\r\n\r\nhi"),
	    false, "200 2 {Content-Encoding=zz;}", "hi", 0, true, true },
	{ "two codings pass",
	    R(OK "Content-Encoding: gzip, gzip\r\n"
		 "Content-Length: 2\r\n\r\nhi"),
	    false, "200 2 {Content-Encoding=gzip, gzip;}", "hi", 0, true,
	    true },
	{ "gzip without a byte",
	    R(OK "Content-Encoding: gzip\r\n"
		 "Content-Length: 0\r\n\r\n"),
	    false, "200 -1 {}", "", 0, true, true },
	{ "101", R("HTTP/1.1 101 S\r\n\r\n"), false, "", NULL, CALL_MALFORMED,
	    false, false },
	{ "not HTTP", R("SSH-2.0-x\r\n"), false, "", NULL, CALL_MALFORMED,
	    false, false },
	{ "lengths that differ",
	    R(OK "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi"), false, "",
	    NULL, CALL_MALFORMED, false, false },
	{ "bad chunk", R(OK "Transfer-Encoding: chunked\r\n\r\nx"), false,
	    "200 -1 {}", NULL, CALL_MALFORMED, false, false },
	{ "bad gzip",
	    R(OK "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n"
		 "oops"),
	    false, "200 -1 {}", NULL, CALL_ENCODING, false, false },
	{ "nothing", R(""), true, "", NULL, CALL_BROKEN, false, false },
	{ "half a head", R("HTTP/1.1 200 OK\r\nA:"), true, "", NULL,
	    CALL_BROKEN, false, false },
	{ "short of its length", R(OK "Content-Length: 5\r\n\r\nhi"), true,
	    "200 5 {}", NULL, CALL_BROKEN, false, false },
	{ "within a chunk", R(OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhi"),
	    true, "200 -1 {}", NULL, CALL_BROKEN, false, false },
	{ "before the last chunk",
	    R(OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"), true,
	    "200 -1 {}", NULL, CALL_BROKEN, false, false },
	{ "within the trailers",
	    R(OK "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n"), true,
	    "200 -1 {}", NULL, CALL_BROKEN, false, false },
};

static void
check(const struct reply *r, const char *how)
{
	struct pool_stats st;

	if (r->body != NULL) {
		tap_ok(seen.ends == 1 && seen.fails == 0 &&
			seen.delimited == r->delimited,
		    "%s: ends (%s)", r->name, how);
		tap_is_mem(buf_view(&seen.body).p, buf_len(&seen.body), r->body,
		    strlen(r->body), r->name);
	} else {
		tap_ok(seen.fails == 1 && seen.ends == 0 &&
			seen.why == r->why &&
			strstr(seen.words, "upstream \"t\": ") == seen.words,
		    "%s: fails: %s (%s)", r->name, seen.words, how);
	}
	tap_is_mem(buf_view(&seen.text).p, buf_len(&seen.text), r->head,
	    strlen(r->head), "its head");
	pool_stats(pool, &st);
	tap_is_int((long long)st.idle, r->reused, "the connection is kept");
}

static void
test_replies(void)
{
	size_t i, n;

	for (i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		const struct reply *r = &replies[i];

		pool_start(4);
		begin();
		wait_for(is_asked, "asked");
		peer_send(srv, r->in);
		if (r->close)
			hang_up();
		wait_for(is_over, "over");
		check(r, "whole");
		finish();
		/* a byte at a time; what is left once it is over is not sent */
		pool_start(4);
		begin();
		wait_for(is_asked, "asked");
		for (n = 0; n < r->in.n && call != NULL; n++) {
			peer_send(srv, view_sub(r->in, n, 1));
			wait_turns(1);
		}
		if (r->close)
			hang_up();
		wait_for(is_over, "over");
		tap_ok((seen.ends == 1) == (r->body != NULL) &&
			(r->body != NULL || seen.why == r->why),
		    "%s: the same in single bytes", r->name);
		finish();
	}
}

static void
test_request(void)
{
	struct call_params cp;
	struct head_field f[3] = { { VIEW("A"), VIEW("b") },
		{ VIEW("Content-Length"), VIEW("77") },
		{ VIEW("Connection"), VIEW("upgrade") } };
	const struct head_fields fields = { .v = f, .n = 3, .cap = 3 };

	pool_start(4);
	cp = params();
	cp.fields = &fields;
	begin_with(&cp);
	wait_for(is_asked, "asked");
	tap_is_mem(buf_view(&srv->got).p, buf_len(&srv->got),
	    "POST /base/v1/x HTTP/1.1\r\nHost: up\r\nA: b\r\n"
	    "Accept-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
	    92, "the request's bytes");
	peer_send(srv, VIEW(OK "Content-Length: 0\r\n\r\n"));
	wait_for(is_over, "over");
	cp.method = VIEW("HEAD");
	cp.body = VIEW_NONE;
	begin_with(&cp);
	wait_for(is_asked, "on the same connection");
	tap_is_int(accepted, 1, "which was kept");
	tap_ok(!peer_has(srv, VIEW("Content-Length")), "no length for HEAD");
	peer_send(srv, VIEW(OK "Content-Length: 9\r\n\r\n"));
	wait_for(is_over, "over");
	tap_ok(seen.ends == 1 && buf_len(&seen.body) == 0, "no body for HEAD");
	cp.target = VIEW("/a b");
	tap_is_int(call_start(loop, &cp, &owner, &call), SP_E_SYNTAX,
	    "a target that would split the line");
	call = NULL;
	finish();
}

static void
test_large_body(void)
{
	enum { LARGE = 30000000 };
	struct call_params cp;
	char *p = malloc(LARGE);

	if (p == NULL)
		abort();
	memset(p, 'A', LARGE);
	pool_start(4);
	cp = params();
	cp.body = view_of(p, LARGE);
	begin_with(&cp);
	wait_for(is_taken, "taken");
	srv->deaf = true;
	wait_turns(5);
	/* an early reply: no more is sent */
	peer_send(srv, VIEW("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"));
	wait_for(is_over, "a reply before the request is whole");
	tap_ok(seen.ends == 1 && view_starts(buf_view(&seen.text), VIEW("413")),
	    "is handed on");
	srv->deaf = false;
	wait_for(is_left, "and its connection not kept");
	finish();
	pool_start(4);
	begin_with(&cp);
	wait_for(is_asked, "a large request");
	while (buf_len(&srv->got) < LARGE)
		wait_turns(1);
	peer_send(srv, VIEW(OK "Content-Length: 0\r\n\r\n"));
	wait_for(is_over, "arrives whole");
	finish();
	pool_start(4);
	cp.send_timeout_ms = 30;
	begin_with(&cp);
	wait_for(is_taken, "taken");
	srv->deaf = true;
	wait_for(is_over, "a server that reads nothing");
	tap_is_int(seen.why, CALL_SEND_TIMEOUT, "is a send timeout");
	finish();
	free(p);
}

static void
test_stale(void)
{
	pool_start(4);
	begin();
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "Content-Length: 0\r\n\r\n"));
	wait_for(is_over, "over");
	/* closed just as the next request goes out */
	begin();
	wait_for(is_asked, "the second, on the same connection");
	tap_is_int(accepted, 1, "reused");
	peer_rst(srv);
	srv = NULL;
	wait_for(is_asked, "asked again, on a fresh one");
	tap_is_int(accepted, 2, "a second connection");
	peer_send(srv, VIEW(OK "Content-Length: 2\r\n\r\nhi"));
	wait_for(is_over, "over");
	tap_ok(seen.ends == 1 && buf_len(&seen.body) == 2,
	    "a stale one is retried");
	/* once only */
	begin();
	wait_for(is_asked, "third");
	hang_up();
	srv = NULL;
	wait_for(is_asked, "retried");
	hang_up();
	wait_for(is_over, "over");
	tap_ok(seen.fails == 1 && seen.why == CALL_BROKEN, "once only");
	finish();
	/* not after a byte of the reply */
	pool_start(4);
	begin();
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "Content-Length: 0\r\n\r\n"));
	wait_for(is_over, "over");
	begin();
	wait_for(is_asked, "reused");
	peer_send(srv, VIEW("H"));
	wait_turns(3);
	hang_up();
	wait_for(is_over, "over");
	tap_ok(seen.fails == 1 && accepted == 1, "not after a byte of a reply");
	finish();
	/* a fresh one is not retried */
	pool_start(4);
	begin();
	wait_for(is_asked, "asked");
	peer_rst(srv);
	wait_for(is_over, "over");
	tap_ok(seen.why == CALL_BROKEN && accepted == 1, "a fresh one is not");
	finish();
}

/* ---- several servers ------------------------------------------------------ */

/* Two at one address, told apart by their bases. */
static void
two_start(void)
{
	const struct pool_server servers[] = {
		{ .host = VIEW("127.0.0.1"),
		    .port = port,
		    .authority = VIEW("up"),
		    .base = VIEW("/base") },
		{ .host = VIEW("127.0.0.1"),
		    .port = port,
		    .authority = VIEW("up"),
		    .base = VIEW("/other") },
	};
	const struct pool_params two = { .name = VIEW("t"),
		.servers = servers,
		.servers_n = 2,
		.connect_timeout_ms = 10000,
		.keepalive = 4,
		.keepalive_timeout_ms = 60000 };

	must(pool_new(loop, resolver, &two, &pool));
}

static bool
asks_other(void)
{
	return peer_has(srv, VIEW("POST /other/"));
}

static void
answer(void)
{
	peer_send(srv, VIEW(OK "Content-Length: 0\r\n\r\n"));
	wait_for(is_over, "over");
}

static void
next_asked(const char *what)
{
	srv = NULL;
	wait_for(is_asked, what);
}

static void
test_failover(void)
{
	struct pool_stats st;
	bool first;

	two_start();
	begin();
	wait_for(is_asked, "asked");
	first = asks_other();
	peer_rst(srv);
	next_asked("another server");
	tap_ok(asks_other() != first, "is another one");
	answer();
	tap_ok(seen.ends == 1 && seen.fails == 0 && accepted == 2,
	    "a server that dies before a byte is made up for");
	begin();
	wait_for(is_asked, "the next call");
	tap_ok(asks_other() != first, "and rests");
	/* the connection was kept: its own server comes first */
	hang_up();
	next_asked("a fresh one");
	tap_ok(asks_other() != first, "a stale one is asked again itself");
	hang_up();
	next_asked("the one that rests");
	tap_ok(asks_other() == first, "then one that rests, as none is left");
	hang_up();
	wait_for(is_over, "over");
	tap_ok(seen.fails == 1 && seen.why == CALL_BROKEN &&
		strstr(seen.words,
		    "several servers failed, the last: "
		    "127.0.0.1:") != NULL,
	    "each once: %s", seen.words);
	pool_stats(pool, &st);
	tap_is_int((long long)st.failovers, 2, "two failovers");
	finish();
}

/* What the two servers are held to have done wrong. */
static long long
failures(void)
{
	struct pool_server_info one, two;

	if (!pool_servers_get(pool, 0, &one) ||
	    !pool_servers_get(pool, 1, &two))
		return -1;
	return (long long)(one.failures + two.failures);
}

/* A server whose reply has no head rests, and the call is not made again. */
static void
spoilt(const char *reply, long long failed, const char *what)
{
	two_start();
	begin();
	wait_for(is_asked, "asked");
	peer_send(srv, view_str(reply));
	hang_up();
	wait_for(is_over, "over");
	tap_ok(seen.fails == 1 && accepted == 1 && failures() == failed,
	    "%s: %s", what, seen.words);
	finish();
}

static void
test_failover_not(void)
{
	struct call_params cp;
	uint64_t begun_ms;

	two_start();
	begin();
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW("H"));
	wait_turns(3);
	hang_up();
	wait_for(is_over, "over");
	tap_ok(seen.fails == 1 && accepted == 1, "not after a byte");
	finish();
	two_start();
	cp = params();
	cp.first_byte_timeout_ms = 20;
	begin_with(&cp);
	wait_for(is_over, "over");
	tap_ok(seen.why == CALL_FIRST_TIMEOUT && accepted + failures() == 2,
	    "not from one that may be at work on it");
	finish();
	two_start();
	cp = params();
	cp.read_timeout_ms = 1;
	begin_with(&cp);
	begun_ms = loop_now_ms(loop);
	wait_for(is_asked, "asked");
	while (loop_now_ms(loop) <= begun_ms + 1)
		wait_turns(1);
	peer_rst(srv);
	wait_for(is_over, "over");
	tap_ok(seen.fails == 1 && accepted == 1,
	    "none when the call has taken too long");
	finish();
	two_start();
	begin();
	wait_for(is_asked, "asked");
	peer_rst(srv);
	next_asked("another server");
	call_cancel(call);
	call = NULL;
	wait_for(is_left, "left");
	tap_ok(seen.fails + seen.ends == 0, "cancelled with the second");
	finish();
	two_start();
	cp = params();
	cp.check = true;
	cp.slot = 1;
	cp.target = VIEW("/health");
	begin_with(&cp);
	wait_for(is_asked, "asked");
	tap_ok(peer_has(srv, VIEW("POST /health HTTP")), "a check has no base");
	peer_rst(srv);
	wait_for(is_over, "over");
	tap_ok(seen.fails == 1 && accepted == 1, "and no other server");
	finish();
}

static void
test_cancel(void)
{
	pool_start(4);
	begin();
	call_cancel(call);
	call = NULL;
	wait_turns(3);
	tap_is_int(seen.fails + seen.ends, 0, "cancelled before it connects");
	begin();
	wait_for(is_asked, "asked");
	call_cancel(call);
	call = NULL;
	wait_for(is_left, "cancelled before the head");
	tap_ok(srv->reset, "by a reset");
	finish();
	pool_start(4);
	begin();
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "\r\nx"));
	wait_for(is_headed, "a head");
	call_cancel(call);
	call = NULL;
	wait_for(is_left, "cancelled within the body");
	tap_ok(srv->reset, "by a reset");
	finish();
	pool_start(4);
	begin();
	seen.cancel_at_head = true;
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "\r\nx"));
	wait_for(is_left, "cancelled by head()");
	tap_is_int((long long)buf_len(&seen.body), 0, "no body follows");
	finish();
	pool_start(4);
	begin();
	seen.cancel_at_body = true;
	wait_for(is_asked, "asked");
	peer_send(srv,
	    VIEW(OK "Transfer-Encoding: chunked\r\n\r\n"
		    "1\r\na\r\n1\r\nb\r\n0\r\n\r\n"));
	wait_for(is_left, "cancelled by body()");
	tap_is_int((long long)buf_len(&seen.body), 1, "no more of it");
	finish();
}

static void
test_timeouts(void)
{
	struct call_params cp;
	int i;

	pool_start(4);
	cp = params();
	cp.first_byte_timeout_ms = 5;
	begin_with(&cp);
	wait_for(is_over, "no head in time");
	tap_is_int(seen.why, CALL_FIRST_TIMEOUT, "is a first byte timeout");
	cp = params();
	cp.read_timeout_ms = 5;
	srv = NULL;
	begin_with(&cp);
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "\r\nx"));
	wait_for(is_over, "silence within the body");
	tap_is_int(seen.why, CALL_READ_TIMEOUT, "is a read timeout");
	/* I8: heartbeats are no progress, the owner says what is */
	cp.read_timeout_ms = 40;
	cp.manual_progress = true;
	srv = NULL;
	begin_with(&cp);
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "\r\n"));
	wait_for(is_headed, "a head");
	for (i = 0; i < 5000 && call != NULL; i++) {
		(void)!send(srv->fd, ": hb\n", 5, MSG_NOSIGNAL);
		wait_turns(1);
	}
	tap_ok(seen.fails == 1 && seen.why == CALL_READ_TIMEOUT,
	    "I8 heartbeats do not push it back");
	srv = NULL;
	cp.read_timeout_ms = 1000;
	begin_with(&cp);
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "\r\n"));
	wait_for(is_headed, "a head");
	for (i = 0; i < 20; i++) {
		call_progress(call);
		wait_turns(1);
	}
	tap_is_int(seen.fails, 0, "progress does");
	call_cancel(call);
	call = NULL;
	finish();
}

static void
test_pause(void)
{
	static char bytes[65536];
	struct call_params cp;
	size_t sent = 0, before;
	ssize_t n;
	int i;

	pool_start(4);
	cp = params();
	cp.read_timeout_ms = 500;
	begin_with(&cp);
	seen.pause_at_head = true;
	wait_for(is_asked, "asked");
	peer_send(srv, VIEW(OK "Content-Length: 20000000\r\n\r\n"));
	wait_for(is_headed, "paused at the head");
	for (i = 0; i < 600; i++) {
		while (
		    (n = send(srv->fd, bytes, sizeof(bytes), MSG_NOSIGNAL)) > 0)
			sent += (size_t)n;
		wait_turns(1);
	}
	tap_ok(sent < 20000000 && buf_len(&seen.body) <= LOOP_SCRATCH_BYTES,
	    "the server is held back");
	tap_is_int(seen.fails, 0, "no deadline while paused");
	before = buf_len(&seen.body);
	call_pause(call, false);
	while (sent < 20000000) {
		n = send(srv->fd, bytes,
		    20000000 - sent < sizeof(bytes) ? 20000000 - sent
						    : sizeof(bytes),
		    MSG_NOSIGNAL);
		sent += n > 0 ? (size_t)n : 0;
		wait_turns(1);
	}
	wait_for(is_over, "over");
	tap_ok(seen.ends == 1 && buf_len(&seen.body) == 20000000 &&
		before < 20000000,
	    "all of it after the pause");
	finish();
}

/* H1: one gzip member, flushed after each event, one chunk a flush. */
static void
test_gzip(void)
{
	const char *events[] = { "data: 1\n\n", "data: 2\n\n", "data: 3\n\n" };
	struct buf in = BUF_INIT(1 << 20);
	struct call_params cp;
	unsigned char out[1000];
	z_stream z;
	size_t i, n;

	memset(&z, 0, sizeof(z));
	if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY))
		abort();
	must(buf_add_str(&in,
	    OK "Content-Encoding: GZip\r\n"
	       "Transfer-Encoding: chunked\r\n\r\n"));
	pool_start(4);
	begin();
	wait_for(is_asked, "asked");
	for (i = 0; i < 3; i++) {
		z.next_in = (unsigned char *)(uintptr_t)events[i];
		z.avail_in = 9;
		z.next_out = out;
		z.avail_out = sizeof(out);
		if (deflate(&z, i == 2 ? Z_FINISH : Z_SYNC_FLUSH) < 0)
			abort();
		n = sizeof(out) - z.avail_out;
		must(buf_printf(&in, "%zx\r\n", n));
		must(buf_add(&in, out, n));
		must(buf_add_str(&in, i == 2 ? "\r\n0\r\n\r\n" : "\r\n"));
		peer_send(srv, buf_view(&in));
		buf_reset(&in, 0);
		wait_turns(5);
		tap_is_int((long long)buf_len(&seen.body), (long long)i * 9 + 9,
		    "H1 each event at once");
	}
	wait_for(is_over, "over");
	tap_ok(seen.ends == 1 &&
		view_eq(buf_view(&seen.text), VIEW("200 -1 {}")),
	    "H1 decoded, the field removed");
	finish();
	/* a bomb, and an early end */
	deflateReset(&z);
	must(buf_add_str(&in, "{}"));
	for (i = 0; i < 2; i++) {
		static unsigned char zeros[900000], packed[5000];

		deflateReset(&z);
		z.next_in = zeros;
		z.avail_in = sizeof(zeros);
		z.next_out = packed;
		z.avail_out = sizeof(packed);
		(void)deflate(&z, Z_FINISH);
		n = sizeof(packed) - z.avail_out;
		pool_start(4);
		cp = params();
		cp.decoded_max = i == 0 ? 100000 : 1 << 20;
		begin_with(&cp);
		wait_for(is_asked, "asked");
		buf_reset(&in, 0);
		must(buf_printf(&in,
		    OK "Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
		    i == 0 ? n : n - 8));
		must(buf_add(&in, packed, i == 0 ? n : n - 8));
		peer_send(srv, buf_view(&in));
		wait_for(is_over, "over");
		tap_ok(seen.why == CALL_ENCODING, "%s",
		    i == 0 ? "a bomb" : "a coding that ends early");
		finish();
	}
	deflateEnd(&z);
	buf_clear(&in);
}

static void
test_connect(void)
{
	uint16_t was = port;
	int fd = peer_listen(&port);

	close(fd); /* nobody listens there any more */
	pool_start(4);
	begin();
	wait_for(is_over, "nobody listens");
	tap_ok(seen.why == CALL_CONNECT && seen.words[0] != '\0', "%s",
	    seen.words);
	finish();
	port = was;
}

static void
test_nomem(void)
{
	unsigned long n, before;
	bool all = false;
	int rc, i;

	for (n = 1; !all && n < 300; n++) {
		struct call_params cp;

		seen_reset();
		pool_start(4);
		cp = params();
		must(buf_reserve(&seen.text, 1000));
		must(buf_reserve(&seen.body, 1000));
		before = mem_count();
		mem_fail_after(n, 0);
		rc = call_start(loop, &cp, &owner, &call);
		if (rc == 0) {
			wait_turns(3);
			mem_fail_after(0, 0);
			take();
			if (srv != NULL)
				must(buf_reserve(&srv->got, 65536));
			mem_fail_after(n > mem_count() - before
				? n - (mem_count() - before)
				: 0,
			    0);
			wait_turns(2);
			if (srv != NULL && srv->fd != -1)
				peer_send(srv,
				    VIEW(OK "Content-Encoding: gzip\r\n"
					    "A: b\r\n\r\n"));
			wait_turns(3);
			if (srv != NULL && srv->fd != -1 && call != NULL)
				hang_up();
			for (i = 0; i < 5000 && call != NULL; i++)
				wait_turns(1);
		}
		all = mem_count() - before < n;
		mem_fail_after(0, 0);
		if (rc != 0 && rc != SP_E_NOMEM)
			tap_ok(false, "allocation %lu: %d", n, rc);
		if (rc == 0 && seen.ends + seen.fails != 1)
			tap_ok(false, "allocation %lu: not over", n);
		if (rc != 0)
			call = NULL;
		finish();
	}
	tap_ok(all, "%lu allocations failed in turn", n - 1);
}

int
main(void)
{
	peer_init();
	seen_reset();
	resolver = resolver_new(loop, NULL, 0);
	if (resolver == NULL)
		abort();
	lfd = peer_listen(&port);
	test_request();
	test_replies();
	test_large_body();
	test_stale();
	test_failover();
	test_failover_not();
	spoilt("SSH-2.0-x\r\n", 1, "no HTTP is the server's fault");
	spoilt(OK "no colon\r\n\r\n", 1, "as are bad fields");
	spoilt("HTTP/1.1 2", 1, "and half a head");
	spoilt(OK "Content-Length: 2\r\n\r\nh", 0, "half a body is not");
	test_cancel();
	test_timeouts();
	test_pause();
	test_gzip();
	test_connect();
	test_nomem();
	seen_reset();
	close(lfd);
	resolver_free(resolver);
	peer_clear();
	return tap_done();
}
