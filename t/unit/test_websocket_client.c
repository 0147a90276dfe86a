/* The client's end: handshakes that hold and that do not, messages, ends. */
#include "config.h"

#include "base/mem.h"
#include "http/websocket_client.h"
#include "http_peer.h"

static struct peer *const p = &peers[0];
static struct websocket_client *client;
static struct websocket *server; /* of the peer */
static size_t server_read; /* of what the peer got */
static struct websocket_client_params params;
static struct buf told, heard;
static const char *free_in;

static void
must(int rc)
{
	if (rc != 0)
		abort();
}

static void
free_at(const char *where)
{
	if (free_in == NULL || strcmp(free_in, where) != 0)
		return;
	websocket_client_free(client);
	client = NULL;
}

static void
on_open(void *arg)
{
	(void)arg;
	must(buf_add_str(&told, "open|"));
	free_at("open");
}

static void
on_message(void *arg, bool text, struct view data)
{
	(void)arg;
	must(buf_printf(&told, "%c%zu:%.*s|", text ? 'T' : 'B', data.n,
	    (int)(data.n > 20 ? 20 : data.n), data.n != 0 ? data.p : ""));
	free_at("message");
}

static void
on_closed(void *arg, unsigned code, const char *why)
{
	(void)arg;
	must(buf_printf(&told, "closed %u %s|", code, why));
	free_at("closed");
}

static const struct websocket_client_owner owner = { on_open, on_message,
	on_closed };

/* ---- the peer's end -------------------------------------------------------
 */

static void
server_message(void *arg, bool text, struct view data)
{
	(void)arg;
	(void)text;
	must(buf_printf(&heard, "%zu:%.*s|", data.n,
	    (int)(data.n > 20 ? 20 : data.n), data.n != 0 ? data.p : ""));
}

static int
server_write(void *arg, struct view data)
{
	(void)arg;
	peer_send(p, data);
	return 0;
}

static void
server_pong(void *arg)
{
	(void)arg;
	must(buf_add_str(&heard, "P|"));
}

static void
server_closed(void *arg, unsigned code, struct view reason)
{
	(void)arg;
	must(buf_printf(&heard, "C%u:%.*s|", code, VIEW_ARG(reason)));
}

static const struct websocket_owner server_owner = { server_message,
	server_write, server_pong, server_closed };

static void
pump(void)
{
	struct view got = view_from(buf_view(&p->got), server_read);

	if (server == NULL || got.n == 0)
		return;
	server_read += got.n;
	(void)!websocket_feed(server, got);
}

#define COND(name, expr) \
	static bool name(void) \
	{ \
		pump(); \
		return expr; \
	}

static struct view want_told, want_heard;

COND(is_asked, peer_has(p, VIEW("\r\n\r\n")))
COND(is_told, view_eq(buf_view(&told), want_told))
COND(is_heard, view_eq(buf_view(&heard), want_heard))
COND(is_end, p->eof || p->reset)

static void
wait_told(const char *text, const char *what)
{
	want_told = view_str(text);
	wait_for(is_told, what);
	if (!view_eq(buf_view(&told), want_told))
		tap_diag("got: %.*s", VIEW_ARG(buf_view(&told)));
	buf_reset(&told, 0);
}

static void
wait_heard(const char *text, const char *what)
{
	want_heard = view_str(text);
	wait_for(is_heard, what);
	if (!view_eq(buf_view(&heard), want_heard))
		tap_diag("got: %.*s", VIEW_ARG(buf_view(&heard)));
	buf_reset(&heard, 0);
}

static void
begin(void)
{
	params.host = VIEW("127.0.0.1:8000");
	params.target = VIEW("/ws?a=b");
	params.message_max = 100000;
	params.queue_max = 100000;
	peer_close(p);
	server_read = 0;
	free_in = NULL;
	must(websocket_client_start(loop, peer_pair(p), &params, &owner, NULL,
	    &client));
	wait_for(is_asked, "a handshake");
}

static void
stop(void)
{
	websocket_client_free(client);
	client = NULL;
	websocket_free(server);
	server = NULL;
	peer_close(p);
	buf_clear(&told);
	buf_clear(&heard);
	params = (struct websocket_client_params){ .open_ms = 60000 };
}

/* The reply, %s in it the right Sec-WebSocket-Accept, and bytes behind it. */
static void
answer(const char *form, struct view more)
{
	struct view got = buf_view(&p->got), name = VIEW("-Key: ");
	struct buf b = BUF_INIT(1 << 20);
	char accept[WEBSOCKET_ACCEPT_BYTES + 1] = { 0 };
	size_t at = view_search(got, name) + name.n;

	must(websocket_accept(view_sub(got, at, WEBSOCKET_KEY_BYTES), accept));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	must(buf_printf(&b, form, accept));
#pragma GCC diagnostic pop
	must(buf_add_view(&b, more));
	server_read = buf_len(&p->got);
	peer_send(p, buf_view(&b));
	buf_clear(&b);
}

#define SWITCH \
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n" \
	"Connection: upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n"

static void
begin_open(struct view more)
{
	begin();
	must(websocket_new(WEBSOCKET_SERVER, 1 << 20, &server_owner, NULL,
	    &server));
	answer(SWITCH, more);
}

/* ---- tests ----------------------------------------------------------------
 */

static void
test_messages(void)
{
	struct head_field v = { VIEW("Authorization"), VIEW("Bearer x") };
	struct head_fields fields = { .v = &v, .n = 1, .cap = 1 };
	static char big[200000];

	params.fields = &fields;
	begin_open(VIEW("\x81\x02hi"));
	tap_ok(peer_has(p,
		   VIEW("GET /ws?a=b HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n"
			"Upgrade: websocket\r\nConnection: Upgrade\r\n"
			"Sec-WebSocket-Version: 13\r\n"
			"Sec-WebSocket-Key: ")) &&
		peer_has(p, VIEW("\r\nAuthorization: Bearer x\r\n")),
	    "its head");
	tap_is_int(websocket_client_send(client, VIEW("early")), SP_E_STATE,
	    "nothing before it is open");
	wait_told("open|T2:hi|", "bytes behind the reply's head");
	must(websocket_client_send(client, VIEW("question")));
	must(websocket_ping(server));
	wait_heard("8:question|P|", "a message, and a pong");
	tap_is_int(websocket_client_send(client, VIEW("\xff")), SP_E_SYNTAX,
	    "not UTF-8");
	tap_is_int(websocket_client_send(client, view_of(big, 200000)),
	    SP_E_LIMIT, "longer than may wait");
	memset(big, 'b', sizeof(big));
	must(websocket_client_send(client, view_of(big, 90000)));
	tap_is_int(websocket_client_send(client, view_of(big, 90000)),
	    SP_E_LIMIT, "more than may wait");
	wait_heard("90000:bbbbbbbbbbbbbbbbbbbb|", "a long one");
	tap_ok(websocket_client_holds(client) < 20000, "nothing is kept");
	must(websocket_send(server, false, VIEW("bin")));
	wait_told("B3:bin|", "a binary one");
	must(websocket_close(server, 4002, VIEW("enough")));
	wait_told("closed 4002 enough|", "closed by the server");
	wait_heard("C4002:|", "which is answered");
	wait_for(is_end, "and the connection ends");
	tap_is_int(websocket_client_send(client, VIEW("late")), SP_E_STATE,
	    "nothing after it");
	websocket_client_close(client, 1000);
	websocket_client_pause(client, true);
	stop();
}

static void
test_ends(void)
{
	static char big[60000];

	begin_open(VIEW_NONE);
	wait_told("open|", "open");
	must(websocket_client_send(client, VIEW("last")));
	websocket_client_close(client, 1001);
	websocket_client_close(client, 1001);
	tap_is_int(websocket_client_send(client, VIEW("late")), SP_E_STATE,
	    "nothing after a close");
	wait_heard("4:last|C1001:|", "closed by the client");
	wait_told("closed 1001 |", "and told when that was answered");
	stop();
	begin_open(VIEW_NONE);
	wait_told("open|", "open");
	peer_send(p, VIEW("\xc1\x01x"));
	wait_told("closed 1002 a reserved bit is set|", "a breach");
	wait_heard("C1002:a reserved bit is set|", "is told");
	stop();
	begin_open(VIEW_NONE);
	wait_told("open|", "open");
	memset(big, 'b', sizeof(big));
	must(websocket_send(server, true, view_of(big, 60000)));
	must(websocket_send(server, true, view_of(big, 60000)));
	websocket_client_pause(client, true);
	wait_turns(5);
	tap_is_int((int)buf_len(&told), 0, "a pause");
	websocket_client_pause(client, false);
	wait_told("T60000:bbbbbbbbbbbbbbbbbbbb|T60000:bbbbbbbbbbbbbbbbbbbb|",
	    "and its end");
	must(websocket_send(server, true, VIEW("x")));
	close(p->fd);
	p->fd = -1;
	wait_told("T1:x|closed 1006 the server closed the connection|",
	    "an end without a close");
	stop();
	begin_open(VIEW_NONE);
	wait_told("open|", "open");
	peer_rst(p);
	wait_told("closed 1006 the connection broke|", "a reset");
	stop();
}

static const struct {
	const char *what, *reply, *told;
} bad[] = {
	{ "a refusal", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
	    "closed 1006 the server answers 403|" },
	{ "200", "HTTP/1.1 200 OK\r\n\r\n",
	    "closed 1006 the server answers 200|" },
	{ "no Upgrade",
	    "HTTP/1.1 101 S\r\nConnection: Upgrade\r\n"
	    "Sec-WebSocket-Accept: %s\r\n\r\n",
	    "closed 1006 the server switches to no WebSocket|" },
	{ "no Connection",
	    "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n"
	    "Sec-WebSocket-Accept: %s\r\n\r\n",
	    "closed 1006 the server switches to no WebSocket|" },
	{ "another key's",
	    "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
	    "closed 1006 the server's Sec-WebSocket-Accept is wrong|" },
	{ "no Accept",
	    "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	    "\r\n",
	    "closed 1006 the server's Sec-WebSocket-Accept is wrong|" },
	{ "an extension",
	    "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	    "Sec-WebSocket-Accept: %s\r\n"
	    "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
	    "closed 1006 the server takes an extension that nobody offered|" },
	{ "a subprotocol",
	    "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	    "Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: mcp\r\n\r\n",
	    "closed 1006 the server takes a subprotocol that nobody "
	    "offered|" },
	{ "no HTTP", "hello\r\n", "closed 1006 bad status line|" },
	{ "an interim reply first",
	    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" SWITCH, "open|" },
};

static void
test_handshakes(void)
{
	struct buf b = BUF_INIT(1 << 20);
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin();
		answer(bad[i].reply, VIEW_NONE);
		wait_told(bad[i].told, bad[i].what);
		stop();
	}
	begin();
	for (i = 0; i < 20; i++)
		must(buf_add_str(&b, "HTTP/1.1 100 Continue\r\n\r\n"));
	peer_send(p, buf_view(&b));
	wait_told("closed 1006 too many interim replies|",
	    "interim replies without end");
	stop();
	buf_reset(&b, 1 << 20);
	must(buf_add_str(&b, "HTTP/1.1 101 S\r\n"));
	for (i = 0; i < 10000; i++)
		must(buf_add_str(&b, "x: y\r\n"));
	begin();
	peer_send(p, buf_view(&b));
	wait_told("closed 1006 too many header fields|", "a head without end");
	stop();
	buf_clear(&b);
	begin();
	close(p->fd);
	p->fd = -1;
	wait_told("closed 1006 the server closed the connection|", "no reply");
	stop();
	params.open_ms = 10;
	begin();
	wait_told("closed 1006 the server does not answer the handshake|",
	    "silence");
	stop();
	begin();
	websocket_client_close(client, 1000);
	wait_told("closed 1006 the server does not answer the handshake|",
	    "given up before the reply");
	stop();
	params.host = VIEW("a b");
	params.target = VIEW("/");
	tap_is_int(websocket_client_start(loop, peer_pair(p), &params, &owner,
		       NULL, &client),
	    SP_E_SYNTAX, "a host that is none");
	stop();
}

static void
test_free(void)
{
	static const char *const where[] = { "open", "message", "closed" };
	size_t i;

	for (i = 0; i < 3; i++) {
		begin();
		free_in = where[i];
		must(websocket_new(WEBSOCKET_SERVER, 1 << 20, &server_owner,
		    NULL, &server));
		answer(SWITCH, VIEW("\x81\x01x\x88\x00"));
		wait_for(is_end, where[i]);
		tap_ok(client == NULL, "freed");
		stop();
	}
	websocket_client_free(NULL);
}

static void
test_nomem(void)
{
	unsigned long n;
	int rc = SP_E_NOMEM;

	for (n = 1; n < 100 && rc == SP_E_NOMEM; n++) {
		int fd = peer_pair(p);

		params.host = VIEW("h");
		params.target = VIEW("/");
		mem_fail_after(n, 0);
		rc = websocket_client_start(loop, fd, &params, &owner, NULL,
		    &client);
		mem_fail_after(0, 0);
		if (rc == 0)
			stop();
		peer_close(p);
	}
	tap_ok(rc == 0 && n > 4, "started without memory: %d", rc);
	for (n = 1; n < 6; n++) {
		begin_open(VIEW("\x01\x01x\x80\x01y"));
		must(buf_reserve(&told, 1000));
		mem_fail_after(n, 0);
		wait_turns(3);
		mem_fail_after(0, 0);
		tap_ok(view_starts(buf_view(&told), VIEW("open|T2:xy|")) ||
			view_search(buf_view(&told), VIEW("closed 10")) !=
			    buf_len(&told),
		    "opened without memory: %.*s", VIEW_ARG(buf_view(&told)));
		stop();
	}
	begin_open(VIEW_NONE);
	wait_told("open|", "open");
	mem_fail_after(1, 0);
	tap_is_int(websocket_client_send(client, VIEW("x")), SP_E_NOMEM,
	    "sent without memory");
	mem_fail_after(0, 0);
	must(websocket_client_send(client, VIEW("x")));
	wait_heard("1:x|", "and with it");
	stop();
}

int
main(void)
{
	buf_init(&told, 1 << 20);
	buf_init(&heard, 1 << 20);
	params.open_ms = 60000;
	peer_init();
	test_messages();
	test_ends();
	test_handshakes();
	test_free();
	test_nomem();
	peer_clear();
	return tap_done();
}
