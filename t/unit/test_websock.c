/*
 * WebSockets of the gate, on a back end that multiplexes: bounds, pauses,
 * pings, and one end in every path.
 */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/gate_priv.h"
#include "gate/websock.h"

#include "mux_backend.h"
#include "tap.h"

/* ---- a module that echoes -------------------------------------------------- */

extern const struct conf_module status_conf;

static struct websock_params params;
static struct {
	struct websock *s;
	struct gate_request *r;
	struct buf log;
	int accept_rc, finishes, gones;
	bool later; /* accepts when the test says so */
	bool quiet; /* echoes nothing */
} door;

static void
must(int rc)
{
	if (rc != 0)
		abort();
}

static void
on_message(void *arg, bool is_text, struct view data)
{
	(void)arg;
	must(buf_printf(&door.log, "%c%zu:%.*s|", is_text ? 'T' : 'B', data.n,
	    (int)(data.n > 20 ? 20 : data.n), data.n != 0 ? data.p : ""));
	if (view_eq(data, VIEW("pause")))
		websock_pause(door.s, true);
	else if (view_eq(data, VIEW("close")))
		websock_close(door.s, 4000, VIEW("you asked"));
	else if (view_eq(data, VIEW("drop")))
		websock_drop(door.s, 4001);
	else if (!door.quiet)
		must(buf_printf(&door.log, "%d|", websock_send(door.s, data)));
}

static void
on_room(void *arg)
{
	(void)arg;
	must(buf_add_str(&door.log, "R|"));
}

static void
on_closed(void *arg, unsigned code)
{
	if (arg != &door)
		abort();
	must(buf_printf(&door.log, "C%u|", code));
	door.s = NULL;
}

static const struct websock_events events = { on_message, on_room, on_closed };

static enum gate_verdict
on_head(struct gate_request *r)
{
	r->streams = true;
	return GATE_PASS;
}

static enum gate_verdict
on_ask(struct gate_request *r)
{
	door.r = r;
	if (door.later)
		return GATE_HOLD;
	door.accept_rc = websock_accept(r, &params, &events, &door, &door.s);
	if (door.accept_rc == 0)
		return GATE_HOLD;
	r->status = 400;
	return door.accept_rc == SP_E_STATE ? GATE_DENY : GATE_FAIL;
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	door.finishes++;
	if (r->websock != NULL)
		abort();
	door.r = NULL;
	return GATE_PASS;
}

static void
on_gone(struct gate_request *r, enum exchange_gone why)
{
	(void)r;
	(void)why;
	door.gones++;
}

static const struct gate_module module = {
	.conf = &status_conf,
	.hook = { on_head, on_ask, on_finish },
	.gone = on_gone,
};
const struct gate_module *const gate_modules[] = { &module, NULL };

/* ---- the world ------------------------------------------------------------- */

static struct loop *loop;
static struct loop_timer *stopper;
static struct conf *conf;
static struct gate *gate;
static struct mux mux;
static struct mux_stream *st;
static int log_fd[2];
static int drained;

static const char text[] =
    "server {\n"
    "  listen 127.0.0.1:7000;\n"
    "  client_max_body 8;\n"
    "  location /ws { status; }\n"
    "  location /slow { status; client_body_timeout 20ms; "
    "client_body_rate 0; }\n"
    "  location /drip { status; client_body_timeout 200ms; "
    "client_body_rate 1g; }\n"
    "}\n";

/* The client's end. */
static struct {
	struct websocket *w;
	struct buf log;
	size_t read; /* of what the stream got */
} client;

static void
client_message(void *arg, bool is_text, struct view data)
{
	(void)arg;
	(void)is_text;
	must(buf_printf(&client.log, "%zu:%.*s|", data.n,
	    (int)(data.n > 20 ? 20 : data.n), data.n != 0 ? data.p : ""));
}

static int
client_write(void *arg, struct view data)
{
	(void)arg;
	mux_send(st, data, false);
	return 0;
}

static void
client_pong(void *arg)
{
	(void)arg;
	must(buf_add_str(&client.log, "P|"));
}

static void
client_closed(void *arg, unsigned code, struct view reason)
{
	(void)arg;
	must(buf_printf(&client.log, "C%u:%.*s|", code, VIEW_ARG(reason)));
}

static const struct websocket_owner client_owner = { client_message,
	client_write, client_pong, client_closed };

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
spin(uint64_t ms)
{
	loop_timer_set(stopper, ms);
	if (loop_run(loop) != SP_OK)
		abort();
}

/* deaf: the client reads nothing. */
static void
turns(bool deaf)
{
	struct view got;
	int i = 0, idle = 0;
	bool any;

	do {
		any = mux_turn(&mux);
		spin(0);
		got = view_from(buf_view(&st->got), client.read);
		if (!deaf && got.n != 0) {
			client.read += got.n;
			(void)!websocket_feed(client.w, got);
			any = true;
		}
		/* what the loop did may have made more */
		idle = any ? 0 : idle + 1;
	} while (idle < 2 && i++ < 100000);
}

static void
parse(void)
{
	const struct conf_defaults defaults = { "/nowhere", "/nowhere",
		"/nowhere" };
	struct buf expanded = BUF_INIT(1 << 20), err = BUF_INIT(4096);

	if (conf_expand_text("test", view_str(text), VIEW_NONE, &expanded,
		&err) != SP_OK ||
	    conf_parse(buf_view(&expanded), &defaults, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		abort();
	}
	buf_clear(&expanded);
	buf_clear(&err);
}

static void
ask_at(const char *path, const char *upgrade)
{
	st = mux_open(&mux, "CONNECT", path, true);
	if (st == NULL)
		abort();
	st->x.request.upgrade = view_str(upgrade);
	must(head_add(&st->x.request.fields, VIEW("sec-websocket-version"),
	    VIEW("13")));
	must(head_add(&st->x.request.fields, VIEW("sec-websocket-extensions"),
	    VIEW("permessage-deflate; client_max_window_bits")));
	client.read = 0;
}

static void
ask(const char *upgrade)
{
	ask_at("/ws", upgrade);
}

static void
world(size_t window)
{
	struct buf err = BUF_INIT(4096);

	memset(&door, 0, sizeof(door));
	buf_init(&door.log, 1 << 20);
	buf_init(&client.log, 1 << 20);
	params =
	    (struct websock_params){ .message_max = 1000, .queue_max = 200 };
	must(gate_new(loop, conf, &gate, &err));
	must(gate_start(gate));
	must(pipe(log_fd));
	gate_set_access_log(gate, log_fd[1]);
	mux_init(&mux, &walk_consumer, gate, 1 << 20, window);
	must(websocket_new(WEBSOCKET_CLIENT, 1 << 20, &client_owner, NULL,
	    &client.w));
	buf_clear(&err);
}

static void
begin(void)
{
	world(1 << 16);
	ask("websocket");
	turns(false);
}

static void
is_log(const char *want, const char *what)
{
	tap_is_mem(buf_view(&door.log).p, buf_len(&door.log), want,
	    strlen(want), what);
	buf_reset(&door.log, 0);
}

static void
is_client(const char *want, const char *what)
{
	tap_is_mem(buf_view(&client.log).p, buf_len(&client.log), want,
	    strlen(want), what);
	buf_reset(&client.log, 0);
}

/* Everything ends; outcome: a part of the access log's line. */
static void
finish(const char *outcome)
{
	char line[4096];
	ssize_t n;

	mux_clear(&mux);
	gate_free(gate);
	gate = NULL;
	n = read(log_fd[0], line, sizeof(line));
	tap_ok(n > 0 &&
		view_search(view_of(line, (size_t)n), view_str(outcome)) !=
		    (size_t)n,
	    "logged: %s", outcome);
	if (n > 0 &&
	    view_search(view_of(line, (size_t)n), view_str(outcome)) ==
		(size_t)n)
		tap_diag("%.*s", (int)n, line);
	close(log_fd[0]);
	tap_is_int(door.finishes, 1, "FINISH once");
	websocket_free(client.w);
	buf_clear(&door.log);
	buf_clear(&client.log);
}

/* ---- tests ----------------------------------------------------------------- */

static void
test_echo(void)
{
	begin();
	tap_is_int(door.accept_rc, 0, "accepted");
	tap_is_int(st->status, 200, "the reply");
	must(websocket_send(client.w, true,
	    VIEW("a message longer than a "
		 "body may be")));
	must(websocket_ping(client.w));
	turns(false);
	is_log("T35:a message longer tha|0|", "a message");
	is_client("35:a message longer tha|P|", "its echo, and a pong");
	tap_ok(websock_holds(door.s) < 16384, "holds little");
	must(websocket_close(client.w, 1000, VIEW("bye")));
	turns(false);
	is_log("C1000|", "closed by the client");
	is_client("C1000:|", "which is answered");
	tap_ok(st->got_end, "and the stream ends");
	finish("\"ok\"");
}

static void
test_close(void)
{
	begin();
	must(websocket_send(client.w, true, VIEW("close")));
	must(websocket_send(client.w, true, VIEW("late")));
	turns(false);
	is_client("C4000:you asked|", "closed by the module");
	is_log("T5:close|C4000|", "and told when that was answered");
	tap_ok(st->got_end, "the stream ends");
	tap_ok(door.s == NULL && door.gones == 0, "whole");
	finish("\"ok\"");

	begin();
	must(websocket_send(client.w, true, VIEW("drop")));
	turns(false);
	is_client("C4001:|", "dropped by the module");
	is_log("T4:drop|", "which is not told");
	tap_ok(st->got_end, "the stream ends");
	finish("\"ok\"");
	websock_drop(NULL, 1000);

	begin();
	mux_send(st, VIEW("\x81\x01x"), false);
	turns(false);
	is_client("C1002:a frame of the client's is not masked|", "a breach");
	is_log("C1002|", "is told both");
	tap_ok(st->got_end, "the stream ends");
	finish("malformed");

	begin();
	mux_send(st, VIEW_NONE, true);
	turns(false);
	is_log("C1006|", "an end without a close");
	tap_ok(st->got_end, "the stream ends");
	finish("client_gone");

	begin();
	mux_reset(st);
	turns(false);
	is_log("C1006|", "a reset");
	tap_is_int(door.gones, 1, "gone");
	finish("client_gone");

	begin();
	finish("shutdown");
}

static void
test_queue(void)
{
	char big[300];

	memset(big, 'q', sizeof(big));
	world(1 << 16);
	mux.window = 0;
	ask("websocket");
	turns(true);
	tap_is_int(websock_send(door.s, view_of(big, 199)), SP_E_LIMIT,
	    "longer than may ever wait");
	tap_is_int(websock_send(door.s, view_of(big, 100)), 0, "one");
	tap_is_int((int)websock_queued(door.s), 102 - 64,
	    "what the connection takes does not count");
	tap_is_int(websock_send(door.s, view_of(big, 100)), 0, "two");
	tap_is_int(websock_send(door.s, view_of(big, 100)), SP_E_LIMIT,
	    "no more may wait");
	tap_is_int(websock_send(door.s, VIEW("\xff")), SP_E_SYNTAX,
	    "not UTF-8");
	turns(false);
	is_client("", "nothing left");
	is_log("", "nothing told");
	mux_grant(&mux, NULL, 100);
	turns(false);
	is_log("R|", "half of it left: there is room");
	tap_is_int(websock_send(door.s, view_of(big, 20)), 0, "three");
	websock_close(door.s, 1000, VIEW_NONE);
	tap_is_int(websock_send(door.s, view_of(big, 20)), SP_E_GONE,
	    "nothing after a close");
	websock_close(door.s, 1001, VIEW_NONE);
	turns(false);
	is_log("", "what is queued comes first");
	mux_grant(&mux, NULL, 1000);
	turns(false);
	is_log("C1000|", "closed after it");
	is_client("100:qqqqqqqqqqqqqqqqqqqq|100:qqqqqqqqqqqqqqqqqqqq|"
		  "20:qqqqqqqqqqqqqqqqqqqq|C1000:|",
	    "everything came");
	finish("\"ok\"");
}

/* A client that asks and does not listen is not read any more. */
static void
test_deaf(void)
{
	int i;

	world(1 << 10);
	mux.window = 0;
	ask("websocket");
	turns(true);
	for (i = 0; i < 2000; i++)
		must(websocket_ping(client.w));
	turns(true);
	tap_ok(websock_queued(door.s) < 1024,
	    "pings are not answered without "
	    "bound");
	tap_ok(buf_len(&st->up) > 10000, "they wait where they are");
	mux_grant(&mux, NULL, 1 << 20);
	mux_grant(&mux, st, 1 << 20);
	turns(false);
	tap_is_int((int)buf_len(&st->up), 0, "until it listens");
	tap_is_int((int)buf_len(&client.log), 4000, "then all are");
	must(websocket_close(client.w, 1000, VIEW_NONE));
	turns(false);
	finish("\"ok\"");
}

static void
test_pause(void)
{
	int i;

	world(100);
	ask("websocket");
	turns(false);
	must(websocket_send(client.w, true, VIEW("pause")));
	must(websocket_ping(client.w));
	turns(false);
	is_client("P|", "a ping in a pause is answered");
	for (i = 0; i < 100; i++)
		must(websocket_send(client.w, true, VIEW("more")));
	turns(false);
	is_log("T5:pause|", "messages wait");
	tap_ok(buf_len(&st->up) > 500, "where they are");
	door.quiet = true;
	websock_pause(door.s, false);
	is_log("", "nothing is told at once");
	turns(false);
	tap_is_int((int)buf_len(&door.log), 8 * 100, "then all");
	tap_is_int((int)buf_len(&st->up), 0, "and nothing waits");
	buf_reset(&door.log, 0);
	websock_pause(door.s, true);
	must(websocket_send(client.w, true, VIEW("waits")));
	turns(false);
	websock_close(door.s, 1000, VIEW_NONE);
	turns(false);
	is_log("C1000|", "closed within a pause");
	finish("\"ok\"");
}

static void
test_pings(void)
{
	int i;

	world(1 << 16);
	params.ping_ms = 5;
	params.pong_ms = 500; /* no stall of a busy machine is that long */
	ask("websocket");
	for (i = 0; i < 40; i++) {
		turns(false);
		spin(2);
	}
	is_log("", "answered pings tell nothing");
	tap_ok(door.s != NULL, "it lives");
	/* what a pause holds back is no silence */
	websock_pause(door.s, true);
	must(websocket_send(client.w, true, VIEW("waits")));
	turns(false);
	for (i = 0; i < 20; i++) {
		turns(true);
		spin(30);
	}
	tap_ok(door.s != NULL, "it lives in a pause");
	door.quiet = true;
	websock_pause(door.s, false);
	turns(false);
	is_log("T5:waits|", "which ends");
	for (i = 0; i < 2000 && door.s != NULL; i++) {
		turns(true);
		spin(2);
	}
	is_log("C1006|", "one that does not answer is gone");
	finish("client_gone");
}

/* Frames as they are on the wire, under a key of zeros. */
#define MASK "\0\0\0\0"

static void
test_slow(void)
{
	static const struct view halves[] = {
		VIEW_INIT("\x01\x83" MASK "abc"), /* a fragment */
		VIEW_INIT("\x81\x84" MASK "abc"), /* a part of a frame */
		VIEW_INIT("\x81"), /* of a header */
		VIEW_INIT("\x89\x84" MASK "abc"), /* of a ping */
	};
	static const struct view nothing =
	    VIEW_INIT("\x00\x80" MASK "\x8a\x80" MASK);
	size_t i;
	int n;

	for (i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
		world(1 << 16);
		ask_at("/slow", "websocket");
		turns(false);
		must(websocket_send(client.w, true, VIEW("whole")));
		turns(false);
		is_log("T5:whole|0|", "a message that is whole");
		spin(40);
		tap_ok(door.s != NULL, "and nothing is due");
		buf_reset(&client.log, 0);
		mux_send(st, halves[i], false);
		for (n = 0; n < 2000 && buf_len(&client.log) == 0; n++) {
			turns(false);
			/* what is nothing of it puts nothing off */
			if (i == 0 && n % 2 == 0)
				mux_send(st, nothing, false);
			spin(2);
		}
		turns(false);
		is_client("C1008:the message came too slowly|",
		    "a message that does not go on");
		finish("timeout");
	}
	/* nor is it enough that bytes come, when they are few */
	world(1 << 16);
	ask_at("/drip", "websocket");
	turns(false);
	mux_send(st, VIEW("\x81\xfe\x03\xe8" MASK), false);
	for (n = 0; n < 900 && buf_len(&client.log) == 0; n++) {
		mux_send(st, VIEW("a"), false);
		turns(false);
		spin(1);
	}
	turns(false);
	is_client("C1008:the message came too slowly: see client_body_rate|",
	    "a message that goes on in single bytes");
	finish("timeout");
	/* nor is a pause the peer's fault */
	world(1 << 16);
	ask_at("/slow", "websocket");
	turns(false);
	websock_pause(door.s, true);
	must(websocket_send(client.w, true, VIEW("waits")));
	turns(false);
	mux_send(st, halves[0], false);
	turns(false);
	spin(60);
	turns(false);
	is_client("", "a pause holds what is behind it");
	finish("shutdown");
}

/* What is large waits for its turn, and counts until then. */
static void
test_large(void)
{
	static char big[HEAVY_BYTES];

	world(1 << 16);
	params.message_max = sizeof(big);
	ask("websocket");
	turns(false);
	door.quiet = true;
	memset(big, 'a', sizeof(big));
	must(websocket_send(client.w, true, view_of(big, sizeof(big) - 1)));
	while (mux_turn(&mux))
		;
	is_log("T262143:aaaaaaaaaaaaaaaaaaaa|", "one that is not is told");
	must(websocket_send(client.w, true, view_of(big, sizeof(big))));
	must(websocket_send(client.w, true, VIEW("small")));
	while (mux_turn(&mux))
		;
	is_log("", "a large one waits, and what is behind it");
	tap_ok(gate->ports[0]->body_bytes >= sizeof(big), "it counts");
	turns(false);
	is_log("T262144:aaaaaaaaaaaaaaaaaaaa|T5:small|", "its turn");
	tap_is_int((long long)gate->ports[0]->body_bytes, 0, "and no more now");
	/* a pause, and an end, while it waits */
	websock_pause(door.s, true);
	must(websocket_send(client.w, true, view_of(big, sizeof(big))));
	turns(false);
	is_log("", "it waits as long as the pause");
	websock_pause(door.s, false);
	turns(false);
	is_log("T262144:aaaaaaaaaaaaaaaaaaaa|", "and for its turn after it");
	must(websocket_send(client.w, true, view_of(big, sizeof(big))));
	while (mux_turn(&mux))
		;
	finish("shutdown");
}

static void
on_drained(void *arg)
{
	(void)arg;
	drained++;
}

static void
test_expiry(void)
{
	begin();
	gate_drain(gate, on_drained, NULL);
	turns(false);
	is_client("", "a drain leaves it alone");
	gate_drain_deadline(gate);
	turns(false);
	is_client("C1001:going away|", "its deadline does not");
	is_log("C1001|", "told");
	tap_is_int(drained, 1, "drained");
	finish("\"ok\"");

	begin();
	websock_on_expire(door.s, GATE_EXPIRE_MEMORY);
	turns(false);
	is_client("C1013:out of memory|", "memory is short");
	is_log("C1013|", "told");
	finish("\"ok\"");

	world(1 << 16);
	mux.window = 0;
	ask("websocket");
	turns(true);
	must(websock_send(door.s,
	    VIEW("0123456789012345678901234567890123456789"
		 "0123456789012345678901234567890123")));
	websock_on_expire(door.s, GATE_EXPIRE_MEMORY);
	turns(true);
	is_log("C1013|", "what waits is given up");
	mux_grant(&mux, NULL, 1000);
	turns(true);
	finish("/ws");
}

static void
test_accept(void)
{
	struct websock *s = NULL;

	world(1 << 16);
	ask("");
	turns(false);
	tap_is_int(door.accept_rc, SP_E_STATE, "asks for none");
	tap_is_int(st->status, 400, "refused");
	finish("denied");

	world(1 << 16);
	door.later = true;
	ask("websocket");
	turns(false);
	tap_is_int(websock_accept(door.r, &params, &events, &door, &door.s), 0,
	    "accepted later");
	tap_is_int(websock_accept(door.r, &params, &events, &door, &s),
	    SP_E_STATE, "once");
	must(websocket_send(client.w, true, VIEW("x")));
	turns(false);
	is_log("T1:x|0|", "serves");
	must(websocket_close(client.w, 1000, VIEW_NONE));
	turns(false);
	finish("\"ok\"");

	world(1 << 16);
	ask("websocket");
	st->x.request_whole = true;
	turns(false);
	is_log("C1006|", "a client that sends nothing at all");
	finish("client_gone");
}

static void
test_nomem(void)
{
	unsigned long n;
	int failed = 0, rc;
	bool good = true;

	for (n = 1; n < 40; n++) {
		world(1 << 16);
		door.later = true;
		ask("websocket");
		turns(false);
		mem_fail_after(n, 0);
		rc = websock_accept(door.r, &params, &events, &door, &door.s);
		if (rc == 0) {
			mem_fail_after(1, 0);
			(void)!websock_send(door.s, VIEW("x"));
			mem_fail_after(0, 0);
			turns(false);
		} else {
			mem_fail_after(0, 0);
			failed++;
			gate_finish(door.r);
			turns(false);
		}
		mux_clear(&mux);
		gate_free(gate);
		close(log_fd[0]);
		good =
		    good && door.finishes == 1 && (rc == 0 || rc == SP_E_NOMEM);
		websocket_free(client.w);
		buf_clear(&door.log);
		buf_clear(&client.log);
		if (rc == 0)
			break;
	}
	tap_ok(good && failed > 2 && n < 40, "without memory: %d ways", failed);
}

int
main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	parse();
	test_echo();
	test_close();
	test_queue();
	test_deaf();
	test_pause();
	test_pings();
	test_slow();
	test_large();
	test_expiry();
	test_accept();
	test_nomem();
	loop_timer_free(stopper);
	loop_free(loop);
	conf_free(conf);
	return tap_done();
}
