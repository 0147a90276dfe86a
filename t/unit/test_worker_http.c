/*
 * core/gate/worker_http.c and what is beneath it: against a helper and servers
 * that are played here, with every allocation failing once.
 */
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "gate/process.h"
#include "gate/worker_priv.h"
#include "http/websocket.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "tap.h"

enum { CONNS = 16, ROOM = 64 * 1024, PATIENCE_MS = 20000, PORT = 8001 };

static struct loop *loop;
static struct episode_set *set;
static struct worker_set *workers;
static struct view command[] = { { "/bin/server", 11 } };
static struct conf_environment env = { .worker = CONF_ENV_WORKER_HTTP,
	.worker_port = PORT,
	.worker_command = { command, 1 },
	.worker_start_ms = 3000 };

/* ---- the servers ------------------------------------------------------------ */

enum mode { OPENENV, MCP };
static enum mode mode;
static int listener = -1;
static struct loop_fd *listener_at;
static unsigned refuse; /* connections, before one is made */
static bool down; /* it listens no more */
static unsigned waits; /* requests that are not answered */

/* No memory of mem.h's: that fails here. */
static struct conn {
	int fd;
	struct loop_fd *at;
	char in[ROOM];
	size_t n;
	bool websocket;
} conns[CONNS];

static void
conn_close(struct conn *c)
{
	loop_fd_free(c->at);
	c->at = NULL;
	if (c->fd >= 0)
		(void)close(c->fd);
	c->fd = -1;
	c->n = 0;
	c->websocket = false;
}

static void
conn_send(struct conn *c, const char *text, size_t n)
{
	if (send(c->fd, text, n, MSG_NOSIGNAL) != (ssize_t)n)
		tap_diag("a server's short write");
}

static void
reply(struct conn *c, const char *status, const char *more, const char *body)
{
	char out[4096];
	int n = snprintf(out, sizeof(out),
	    "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s", status, more,
	    strlen(body), body);

	conn_send(c, out, (size_t)n);
}

static void
upgrade(struct conn *c, const char *head)
{
	const char *key = strstr(head, "Sec-WebSocket-Key: ");
	char accept[WEBSOCKET_ACCEPT_BYTES + 1] = "", out[256];
	int n;

	mem_fail_after(0, 0);
	if (key == NULL ||
	    websocket_accept(view_of(key + 19, WEBSOCKET_KEY_BYTES), accept) !=
		0)
		tap_ok(false, "a key");
	n = snprintf(out, sizeof(out),
	    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
	    "Connection: Upgrade\r\nSec-WebSocket-Accept: %.*s\r\n\r\n",
	    WEBSOCKET_ACCEPT_BYTES, accept);
	conn_send(c, out, (size_t)n);
	c->websocket = true;
}

/* The id of a request, as digits. */
static const char *
id_of(const char *text)
{
	static char id[32];
	const char *at = strstr(text, "\"id\":");

	(void)snprintf(id, sizeof(id), "%lu",
	    at != NULL ? strtoul(at + 5, NULL, 10) : 0);
	return id;
}

static void
serve_mcp(struct conn *c, const char *head, const char *body)
{
	static const char json[] = "Content-Type: application/json\r\n";
	static const char events[] = "Content-Type: text/event-stream\r\n";
	char out[1024];

	if (strncmp(head, "POST /mcp ", 10) != 0) {
		reply(c,
		    strncmp(head, "GET /mcp ", 9) == 0 ? "405 No" : "404 No",
		    "", "");
	} else if (strstr(body, "\"initialize\"") != NULL) {
		(void)snprintf(out, sizeof(out),
		    "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{"
		    "\"protocolVersion\":\"2025-11-25\"}}",
		    id_of(body));
		reply(c, "200 OK",
		    "Content-Type: application/json\r\nMcp-Session-Id: s\r\n",
		    out);
	} else if (strstr(body, "\"wait\"") != NULL) {
		waits++;
	} else if (strstr(body, "\"notifications/") != NULL) {
		reply(c, "202 Accepted", json, "");
	} else {
		(void)snprintf(out, sizeof(out),
		    "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,"
		    "\"result\":{\"tools\":[]}}\n\n",
		    id_of(body));
		reply(c, "200 OK", events, out);
	}
}

static void
serve(struct conn *c, const char *head, const char *body)
{
	if (mode == MCP)
		serve_mcp(c, head, body);
	else if (strncmp(head, "GET /health ", 12) == 0)
		reply(c, "200 OK", "", "{\"status\":\"healthy\"}");
	else if (strncmp(head, "GET /ws ", 8) == 0)
		upgrade(c, head);
	else
		reply(c, "404 No", "", "");
}

/* A masked frame of less than 64 KiB: answered as what it asks for. */
static size_t
frame(struct conn *c)
{
	const unsigned char *p = (const unsigned char *)c->in;
	static const char said[] = "{\"type\":\"observation\",\"data\":"
				   "{\"observation\":{},\"reward\":NaN,"
				   "\"done\":false}}";
	size_t n = c->n >= 2 ? p[1] & 127u : 0, at = 2;
	char out[256];

	if (n == 126) {
		n = c->n >= 4 ? (size_t)p[2] << 8 | p[3] : ROOM;
		at = 4;
	}
	if (c->n < at + 4 + n)
		return 0;
	if ((p[0] & 15) == 1) {
		out[0] = (char)0x81;
		out[1] = (char)(sizeof(said) - 1);
		memcpy(out + 2, said, sizeof(said) - 1);
		conn_send(c, out, sizeof(said) + 1);
	}
	return at + 4 + n;
}

/* Bytes of a whole request at the beginning, which is served; 0: none yet. */
static size_t
request(struct conn *c)
{
	const char *length;
	char *end;
	size_t n;

	if (c->websocket)
		return frame(c);
	c->in[c->n] = 0;
	end = strstr(c->in, "\r\n\r\n");
	if (end == NULL)
		return 0;
	length = strstr(c->in, "Content-Length: ");
	n = (size_t)(end + 4 - c->in);
	if (length != NULL && length < end)
		n += strtoul(length + 16, NULL, 10);
	if (n > c->n)
		return 0;
	serve(c, c->in, end + 4);
	return n;
}

static void
on_conn(void *arg, unsigned ready)
{
	struct conn *c = arg;
	ssize_t got = recv(c->fd, c->in + c->n, ROOM - 1 - c->n, MSG_DONTWAIT);
	size_t n;

	(void)ready;
	if (got <= 0 && (got == 0 || errno != EAGAIN)) {
		conn_close(c);
		return;
	}
	c->n += got > 0 ? (size_t)got : 0;
	while (c->fd >= 0 && (n = request(c)) > 0) {
		memmove(c->in, c->in + n, c->n - n);
		c->n -= n;
	}
}

static void
on_listener(void *arg, unsigned ready)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	size_t i;

	(void)arg;
	(void)ready;
	for (i = 0; i < CONNS - 1 && conns[i].fd >= 0; i++)
		;
	if (fd < 0)
		return;
	conns[i].fd = fd;
	conns[i].at = loop_fd_new(loop, fd, on_conn, &conns[i]);
	/* memory ran out for the server: it is not the one under test */
	if (conns[i].at == NULL || loop_fd_want(conns[i].at, LOOP_READ) != 0)
		conn_close(&conns[i]);
}

static int
dial(void)
{
	struct sockaddr_in sa;
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (getsockname(listener, (struct sockaddr *)&sa, &n) != 0 || fd < 0 ||
	    (connect(fd, (struct sockaddr *)&sa, n) != 0 &&
		errno != EINPROGRESS))
		abort();
	return fd;
}

/* ---- the helper ------------------------------------------------------------- */

static struct {
	enum message_type type;
	uint32_t number;
} asked[64];
static size_t asked_n;
static struct loop_task *helper;
static uint32_t made; /* request of CREATE, END */
static unsigned signals;

static int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	struct wire w;
	uint32_t v[4];
	int i;

	(void)arg;
	fd_close(&fd);
	wire_init(&w, body);
	for (i = 0; i < 2; i++)
		v[i] = wire_u32(&w);
	if (type == MESSAGE_EPISODE_CREATE || type == MESSAGE_EPISODE_END)
		made = v[0];
	signals += type == MESSAGE_PROCESS_SIGNAL;
	if (type == MESSAGE_EPISODE_CONNECT) {
		(void)wire_u32(&w);
		if (wire_u8(&w) != SANDBOX_WORKER || wire_u16(&w) != PORT)
			tap_ok(false, "side and port");
	}
	if (type == MESSAGE_PROCESS_RUN) {
		(void)wire_u8(&w);
		v[0] = wire_u32(&w);
	}
	if (type != MESSAGE_PROCESS_RUN && type != MESSAGE_EPISODE_CONNECT)
		return SP_OK;
	asked[asked_n].type = type;
	asked[asked_n++].number = v[0];
	loop_task_post(helper);
	return SP_OK;
}

static struct buf msg;

static void
hear(enum message_type type, const uint32_t *v, size_t n, int fd)
{
	struct channel_msg m = { .type = (uint16_t)type, .fd = fd };
	char body[64];
	size_t i;

	for (i = 0; i < n; i++)
		memcpy(body + 4 * i, &v[i], 4);
	m.body = view_of(body, 4 * n);
	if (episode_set_heard(set, &m) != SP_OK)
		tap_ok(false, "message %u", type);
	fd_close(&m.fd);
}

static void
on_helper(void *arg)
{
	uint32_t v[4] = { 1, 1, 0, 0 };
	size_t i;

	(void)arg;
	for (i = 0; i < asked_n; i++) {
		v[2] = asked[i].number;
		v[3] = 2; /* the process's number inside */
		if (asked[i].type == MESSAGE_PROCESS_RUN) {
			hear(MESSAGE_PROCESS_STARTED, v, 4, -1);
			continue;
		}
		v[3] = refuse > 0 || down ? ECONNREFUSED : 0;
		refuse -= refuse > 0;
		hear(MESSAGE_EPISODE_CONNECTED, v, 4, v[3] == 0 ? dial() : -1);
	}
	asked_n = 0;
}

static void
on_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	(void)arg;
	worker_set_news(workers, ep, n);
}

static const struct conf_environment *
environment(void *arg, const struct episode *ep)
{
	(void)arg;
	(void)ep;
	return &env;
}

/* ---- an episode ------------------------------------------------------------- */

static unsigned long fail_at, counted;
static struct {
	unsigned n;
	enum worker_result result;
	char body[512];
} told;

static void
on_done(void *arg, enum worker_result result, struct view body)
{
	(void)arg;
	told.n++;
	told.result = result;
	(void)snprintf(told.body, sizeof(told.body), "%.*s", VIEW_ARG(body));
	loop_stop(loop);
}

static const struct worker_caller caller = { .done = on_done };
static bool late;
static struct loop_timer *patience;

static void
on_late(void *arg)
{
	(void)arg;
	late = true;
	loop_stop(loop);
}

static void
run(void)
{
	late = false;
	loop_timer_set(patience, PATIENCE_MS);
	if (loop_run(loop) != SP_OK)
		abort();
	loop_timer_stop(patience);
}

static void
on_turn(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
turn(void)
{
	struct loop_timer *t = loop_timer_new(loop, on_turn, NULL);

	loop_timer_set(t, 1);
	if (loop_run(loop) != SP_OK)
		abort();
	loop_timer_free(t);
}

static struct episode *
begin(void)
{
	const uint32_t v[] = { 1, 1, 0 };
	struct episode *ep = NULL;
	struct channel_msg m = { .type = MESSAGE_EPISODE_MADE, .fd = -1 };

	memset(&told, 0, sizeof(told));
	signals = 0;
	if (episode_create(set, VIEW("web"), VIEW("one"), NULL, NULL, &ep) !=
	    SP_OK)
		abort();
	buf_reset(&msg, 4096);
	if (wire_put_u32(&msg, v[0]) != SP_OK ||
	    wire_put_u32(&msg, v[1]) != SP_OK ||
	    wire_put_u32(&msg, made) != SP_OK ||
	    wire_put_bytes(&msg, VIEW("web")) != SP_OK)
		abort();
	m.body = buf_view(&msg);
	/* from here on it is the worker that allocates */
	counted = mem_count();
	mem_fail_after(fail_at, 0);
	return episode_set_heard(set, &m) == SP_OK ? ep : NULL;
}

static void
end(struct episode *ep)
{
	struct channel_msg m = { .type = MESSAGE_EPISODE_ENDED, .fd = -1 };
	size_t i;

	mem_fail_after(0, 0);
	if (episode_end(ep, NULL, NULL) != SP_OK)
		abort();
	buf_reset(&msg, 4096);
	if (wire_put_u32(&msg, 1) != SP_OK || wire_put_u32(&msg, 1) != SP_OK ||
	    wire_put_u32(&msg, made) != SP_OK ||
	    wire_put_u8(&msg, SANDBOX_END_EXIT) != SP_OK ||
	    wire_put_bytes(&msg, VIEW_NONE) != SP_OK)
		abort();
	m.body = buf_view(&msg);
	if (episode_set_heard(set, &m) != SP_OK)
		tap_ok(false, "its end");
	turn();
	for (i = 0; i < CONNS; i++)
		conn_close(&conns[i]);
	asked_n = 0;
}

static struct worker_call *call;

static int
ask(struct episode *ep, enum worker_op op, const char *data)
{
	struct worker_ask a = { .op = op, .data = view_str(data) };

	return worker_of(ep) == NULL
	    ? SP_E_NOMEM
	    : worker_call(worker_of(ep), &a, &caller, NULL, &call);
}

/* ---- tests ------------------------------------------------------------------ */

static void
test_ready(enum mode m)
{
	const char *name = m == MCP ? "mcp" : "openenv";
	struct episode *ep;

	mode = m;
	refuse = 3;
	ep = begin();
	tap_is_int(ask(ep, m == MCP ? WORKER_MCP : WORKER_RESET,
		       m == MCP
			   ? "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":"
			     "\"tools/list\"}"
			   : "{\"seed\":7}"),
	    SP_OK, "asked before it is there");
	run();
	tap_ok(!late && told.n == 1 && told.result == WORKER_OK,
	    "%s: answered once it is", name);
	tap_is_str(told.body,
	    m == MCP
		? "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"tools\":[]}}"
		: "{\"observation\":{},\"reward\":null,\"done\":false}",
	    "with that");
	tap_is_int((int)refuse, 0, "after it refused");
	/* the connection goes, and then the process is looked at */
	conn_close(&conns[0]);
	conn_close(&conns[1]);
	down = true;
	tap_is_int(ask(ep, WORKER_STATE, "{}"), SP_OK, "another");
	run();
	tap_ok(!late && told.n == 2 && told.result == WORKER_GONE,
	    "%s: a connection that breaks is its end", name);
	tap_ok(signals > 0, "%s: everything is killed", name);
	down = false;
	end(ep);
}

static void
test_never(void)
{
	struct episode *ep;

	mode = MCP;
	down = true;
	env.worker_start_ms = 1500;
	ep = begin();
	tap_is_int(ask(ep, WORKER_STATE, "{}"), SP_OK,
	    "one that never listens");
	run();
	tap_ok(!late && told.result == WORKER_GONE &&
		strstr(told.body, "1500 ms") != NULL &&
		strstr(told.body, "refused") != NULL,
	    "is given up, and why: %s", told.body);
	end(ep);
	/* ended while it is asked for */
	ep = begin();
	end(ep);
	env.worker_start_ms = 3000;
	down = false;
	mode = OPENENV;
	ep = begin();
	turn();
	end(ep);
	tap_ok(true, "ends while it begins");
}

static void
test_memory(enum mode m)
{
	unsigned n, answered = 0, hung = 0;
	struct episode *ep;
	bool whole = false;

	mode = m;
	env.worker_start_ms = 300;
	for (n = 1; n < 2000 && !whole; n++) {
		fail_at = n;
		ep = begin();
		if (ep != NULL &&
		    ask(ep, WORKER_MCP,
			"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}") ==
			SP_OK) {
			run();
			hung += late;
			answered += told.n;
		}
		/* fewer than that are made */
		whole = mem_count() - counted < n;
		end(ep);
	}
	fail_at = 0;
	env.worker_start_ms = 3000;
	tap_ok(whole && hung == 0 && answered > 0,
	    "each of %u allocations failed once: %u answers, %u left out", n,
	    answered, hung);
}

/* A call that is given up, with no memory to say so, or to send the next. */
static unsigned long
leave_once(bool forget, unsigned long n)
{
	struct episode *ep = begin();
	unsigned long made_n;
	int i;

	waits = 0;
	TAP_NEVER(
	    ask(ep, WORKER_MCP,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"wait\"}") != SP_OK);
	for (i = 0; i < 20000 && waits == 0; i++)
		turn();
	TAP_NEVER(waits != 1);
	made_n = mem_count();
	mem_fail_after(n, 0);
	if (forget)
		worker_forget(call, VIEW("\"why\""));
	else
		worker_cancel(call, VIEW("\"why\""));
	mem_fail_after(0, 0);
	made_n = mem_count() - made_n;
	turn();
	TAP_NEVER(told.n != 0 || worker_state(worker_of(ep)) != WORKER_READY);
	end(ep);
	TAP_NEVER(told.n != (forget ? 0 : 1));
	return made_n;
}

static void
test_leave(bool forget)
{
	unsigned long n = 0;

	mode = MCP;
	while (++n < 100 && leave_once(forget, n) >= n)
		;
	tap_ok(n > 3 && n < 100, "one is %s, as each of %lu allocations fails",
	    forget ? "forgotten" : "cancelled", n);
}

int
main(void)
{
	struct episode_world w = { .send = send_helper, .news = on_news };
	struct worker_world world = { .environment = environment };
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	size_t i;

	for (i = 0; i < CONNS; i++)
		conns[i].fd = -1;
	buf_init(&msg, 4096);
	loop = loop_new();
	w.loop = world.loop = loop;
	helper = loop_task_new(loop, on_helper, NULL);
	patience = loop_timer_new(loop, on_late, NULL);
	workers = worker_set_new(&world);
	set = episode_set_new(&w);
	listener =
	    socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (patience == NULL || set == NULL || workers == NULL ||
	    listener < 0 ||
	    bind(listener, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    listen(listener, 64) != 0)
		return 1;
	listener_at = loop_fd_new(loop, listener, on_listener, NULL);
	if (listener_at == NULL || loop_fd_want(listener_at, LOOP_READ) != 0)
		return 1;
	test_ready(MCP);
	test_ready(OPENENV);
	test_never();
	test_leave(true);
	test_leave(false);
	test_memory(MCP);
	test_memory(OPENENV);
	worker_set_free(workers);
	episode_set_free(set);
	loop_fd_free(listener_at);
	(void)close(listener);
	loop_task_free(helper);
	loop_timer_free(patience);
	loop_free(loop);
	buf_clear(&msg);
	return tap_done();
}
