/*
 * modules/lifecycle*.c: the orchestrator's doors over WebSockets, workers and
 * a helper that are played here.
 */
#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "gate/gate_priv.h"
#include "conf_text.h"
#include "lifecycle_fakes.h"
#include "mux_backend.h"
#include "tap.h"

static struct loop *loop;
static struct loop_timer *stopper;
static struct conf *conf;
static struct gate *gate;
static struct mux mux;
static bool all_known = true; /* the helper has told what there is */

#define DOOR "token env:TOKEN; "
static const char text[] =
    "environment echo { worker stdio /bin/cat; episodes 2;\n"
    "  sandbox { uid 300000 4096; } }\n"
    "environment bare { sandbox { uid 310000 4096; } }\n"
    "environment one { worker stdio /bin/cat; sandbox { uid 320000 4096; } }\n"
    "server {\n"
    "  listen 127.0.0.1:7000;\n"
    "  location /ws { lifecycle; environment echo; " DOOR "grace 1h; }\n"
    "  location /short { lifecycle; environment echo; " DOOR "grace 20ms; }\n"
    "  location /small { lifecycle; environment echo; " DOOR
    "reply_max 64k; sockets 1; }\n"
    "  location /rate { lifecycle; environment echo; " DOOR
    "max_calls_per_second 2; }\n"
    "  location /one/reset { lifecycle_plain; environment echo; " DOOR
    "max_calls 1; }\n"
    "  location /bare { lifecycle; environment bare; " DOOR "}\n"
    "  location /off { lifecycle; environment echo; " DOOR
    "allow_lifecycle off; }\n"
    "  location /reset { lifecycle_plain; environment echo; " DOOR "}\n"
    "  location /step { lifecycle_plain; environment echo; " DOOR "}\n"
    "  location /state { lifecycle_plain; environment echo; " DOOR "}\n"
    "  location /off/state { lifecycle_plain; environment echo; " DOOR
    "allow_lifecycle off; }\n"
    "}\n";
static const char shared_text[] =
    "environment one { worker stdio /bin/cat; sandbox { uid 320000 4096; } }\n"
    "server {\n"
    "  listen 127.0.0.1:7000;\n"
    "  location /ws { lifecycle; environment one; " DOOR "shared on; }\n"
    "}\n";

/* ---- the loop --------------------------------------------------------------- */

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

static void
turn(void)
{
	int i = 0;

	do
		spin(i < 2 ? 1 : 0);
	while ((mux_turn(&mux) || i < 2) && i++ < 1000);
}

/* Until the helper was told that, for at most ten seconds. */
static bool
told(enum message_type type, unsigned from)
{
	unsigned tries, i;

	for (tries = 0; tries < 2000; tries++) {
		for (i = from; i < helper.n; i++)
			if (helper.v[i].type == type)
				return true;
		spin(5);
	}
	return false;
}

static void
parse(const char *t)
{
	struct buf err = BUF_INIT(4096);
	size_t i;

	if (conf_text_parse(t, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		abort();
	}
	for (i = 0; i < conf->secrets_n; i++)
		if (conf_secret_set(conf, (unsigned)i,
			VIEW("0123456789abcdef")) != SP_OK)
			abort();
	buf_clear(&err);
}

static void
open_gate(const char *t)
{
	struct buf err = BUF_INIT(4096);

	parse(t);
	helper.n = 0;
	helper.rc = SP_OK;
	fake_worker = (struct worker){ .state = WORKER_READY };
	if (gate_new(loop, conf, &gate, &err) != SP_OK ||
	    gate_set_helper(gate, helper_send, NULL) != SP_OK ||
	    gate_start(gate) != SP_OK)
		abort();
	helper_gate = gate;
	if (all_known)
		helper_tell(MESSAGE_EPISODE_RESUMED);
	mux_init(&mux, &walk_consumer, gate, 1 << 24, 1 << 16);
}

static void
close_gate(void)
{
	struct worker_call *c;

	mux_clear(&mux);
	gate_free(gate);
	gate = NULL;
	conf_free(conf);
	for (c = fake_calls; c < fake_calls + FAKES; c++)
		tap_ok(!c->used, "no call is left");
}

#include "lifecycle_peer.h"

static void
made(uint32_t slot)
{
	helper_made(MESSAGE_EPISODE_CREATE, slot, "echo");
	turn();
}

/* One with an episode that was made. */
static struct peer
live(const char *path, uint32_t slot)
{
	struct peer p = come(path, NULL);

	made(slot);
	return p;
}

static void
answer(enum worker_result result, const char *body)
{
	fake_answer(result, body);
	turn();
}

static const struct episode *
at(uint32_t slot)
{
	return episode_at(gate_episodes(gate), slot, 1);
}

#include "lifecycle_sessions.h"
#include "lifecycle_words.h"

#define OBSERVED "{\"observation\":{\"a\":1},\"reward\":0.5,\"done\":true}"

/* ---- tests ------------------------------------------------------------------ */

static void
refused(const char *t, const char *part, const char *what)
{
	struct buf err = BUF_INIT(4096);
	struct conf *c = NULL;

	if (!tap_ok(conf_text_parse(t, &c, &err) != SP_OK && has(&err, part),
		"%s", what))
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
	conf_free(c);
	buf_clear(&err);
}

static void
test_conf(void)
{
#define ENV "environment e { sandbox { uid 300000 4096; } }\n"
#define SRV ENV "server { listen 127.0.0.1:1; location "
	refused(SRV "/ws { lifecycle; environment e; } }", "token",
	    "a door without token");
	refused(SRV "/ws { lifecycle; token env:T; } }", "environment",
	    "one without environment");
	refused(SRV "/ws { lifecycle; environment x; token env:T; } }",
	    "no environment", "another environment");
	refused(SRV "/x { lifecycle_plain; environment e; token env:T; } }",
	    "/reset, /step or /state", "a plain door without a route");
	refused(SRV "/reset { lifecycle_plain; environment e; } }", "token",
	    "a plain door without token");
	refused("environment e { inside 127.0.0.1:8000 { location /ws { "
		"lifecycle; environment e; token env:T; } } }\n"
		"server { listen 127.0.0.1:1; location /s { status; } }",
	    "lifecycle", "never inside");
}

static void
test_handshake(void)
{
	struct peer p, q;

	open_gate(text);
	fake_asked = SP_E_NOTFOUND;
	is(request("GET", "/ws", NULL, NULL), 426, "", "no upgrade");
	fake_asked = SP_E_UNSUPPORTED;
	is(request("GET", "/ws", NULL, NULL), 426, "", "another version");
	fake_asked = SP_E_SYNTAX;
	is(request("GET", "/ws", NULL, NULL), 400, "", "a malformed one");
	fake_asked = SP_OK;
	tap_is_int(request("GET", "/off", NULL, NULL)->status, 403,
	    "allow_lifecycle off");
	fake_accept_rc = SP_E_NOMEM;
	is(request("GET", "/ws", NULL, NULL), 500, "", "no memory for it");
	fake_accept_rc = SP_OK;
	tap_is_int(helper.n, 0, "nothing was made for any");
	p = live("/small", 1);
	tap_ok(p.ws != NULL, "one");
	tap_is_int((long long)p.ws->params->message_max, 16 << 20,
	    "its messages");
	tap_is_int((long long)p.ws->params->ping_ms, 20000, "its pings");
	tap_is_int((long long)p.ws->params->pong_ms, 20000, "their answer");
	tap_is_int(p.ws->sent, 0, "it is not greeted");
	q = come("/small", NULL);
	tap_is_int(q.s->status, 429, "sockets are bounded");
	leave(&p, 1000);
	close_gate();
}

/* Until it hears that; each ask is over by itself. */
static bool
limited(struct peer *p, const char *asked)
{
	unsigned i, calls = fake_calls_n;

	for (i = 0; i < 100; i++) {
		say(p, asked);
		if (fake_calls_n == calls)
			return true;
		calls = fake_calls_n;
		answer(WORKER_OK, "{}");
	}
	return false;
}

static void
test_bounds(void)
{
	struct mux_stream *s;
	struct peer p;

	open_gate(text);
	p = live("/rate", 1);
	tap_ok(limited(&p, "{\"type\":\"state\"}"), "one too many a second");
	hears(&p, "\"code\":\"TOO_MANY_CALLS\"", "is told so");
	tap_ok(limited(&p,
		   "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\","
		   "\"id\":7,\"method\":\"x\"}}"),
	    "one of MCP");
	hears(&p, "\"id\":7,\"error\"", "in its own words");
	tap_ok(p.ws->code == 0, "the socket stays open");
	leave(&p, 1000);
	s = request("POST", "/one/reset", NULL, "{}");
	tap_is_int(s->status, 0, "a request is under way");
	is(request("POST", "/one/reset", NULL, "{}"), 429, "max_calls",
	    "a second is refused");
	close_gate();
}

static void
test_open(void)
{
	struct peer p;

	open_gate(text);
	p = come("/ws", NULL);
	say(&p, "{\"type\":\"reset\"}");
	tap_is_int(fake_calls_n, 0, "a reset waits for its episode");
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_CAPACITY,
	    "2 are open");
	turn();
	hears(&p, "\"code\":\"CAPACITY_REACHED\"", "no room");
	hears(&p, "\"max_sessions\":2", "with how many there may be");
	tap_is_int(p.ws->code, 1000, "then it is closed");
	leave(&p, 1000);
	p = come("/ws", NULL);
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_FAILED,
	    "landlock: EPERM");
	turn();
	hears(&p, "\"code\":\"FACTORY_ERROR\"", "a sandbox that cannot be");
	hears(&p, "landlock: EPERM", "and why");
	hears(&p, "\"factory_name\":\"echo\"", "and which");
	leave(&p, 1000);
	helper.rc = SP_E_GONE;
	p = come("/ws", NULL);
	hears(&p, "\"code\":\"SESSION_ERROR\"", "no helper");
	leave(&p, 1000);
	helper.rc = SP_OK;
	p = come("/ws", NULL);
	leave(&p, WEBSOCKET_ABNORMAL);
	made(1);
	tap_ok(told(MESSAGE_EPISODE_END, 0), "whom nobody waits for is ended");
	close_gate();
}

static void
test_frames(void)
{
	struct peer p;
	unsigned before;

	open_gate(text);
	p = live("/ws", 1);
	before = helper.n;
	say(&p, "{\"type\": \"reset\"}");
	tap_is_int(helper.n, before, "a fresh sandbox is not reset");
	tap_is_int(fake_call_last->op, WORKER_RESET, "its worker is");
	tap_ok(has(&fake_call_last->data, "{}"), "with nothing");
	answer(WORKER_OK, OBSERVED);
	hears(&p, "{\"type\":\"observation\",\"data\":" OBSERVED "}",
	    "an observation");
	tap_is_str(fake_logged, "orchestrator lifecycle reset ok", "logged");
	say(&p,
	    "{\"data\": {\"type\":\"x\", \"n\": 1.50}, \"type\": \"step\"}");
	tap_is_int(fake_call_last->op, WORKER_STEP, "a step");
	tap_ok(has(&fake_call_last->data, "{\"type\":\"x\", \"n\": 1.50}"),
	    "its action as it stands");
	answer(WORKER_OK, OBSERVED);
	hears(&p, "{\"type\":\"observation\",\"data\":" OBSERVED "}",
	    "and what came of it");
	say(&p, "{\"type\":\"state\"}");
	tap_is_int(fake_call_last->op, WORKER_STATE, "a state");
	answer(WORKER_OK, "{\"episode_id\":null,\"step_count\":1}");
	hears(&p,
	    "{\"type\":\"state\",\"data\":{\"episode_id\":null,\"step_count\":"
	    "1},\"session_id\":\"",
	    "and what it is");
	mcp_frames(&p);
	before = helper.n;
	say(&p, "{\"type\":\"reset\",\"data\":{\"seed\":3}}");
	tap_ok(told(MESSAGE_EPISODE_RESET, before), "a used one is reset");
	helper_made(MESSAGE_EPISODE_RESET, 2, "echo");
	turn();
	tap_ok(fake_call_last->op == WORKER_RESET &&
		has(&fake_call_last->data, "{\"seed\":3}"),
	    "then its worker is, with the data");
	answer(WORKER_OK, OBSERVED);
	hears(&p, "\"observation\"", "and it answers");
	before = p.ws->sent;
	say(&p, "{\"type\":\"close\"}");
	tap_is_int(p.ws->sent, before, "close has no answer");
	tap_is_int(p.ws->code, 1000, "the connection is closed");
	tap_ok(told(MESSAGE_EPISODE_END, 0), "and the episode ends");
	say(&p, "{\"type\":\"state\"}");
	tap_is_int(p.ws->sent, before, "what comes after it is not read");
	leave(&p, 1000);
	close_gate();
}

static void
test_malformed(void)
{
	static const struct {
		const char *frame, *reason;
	} rows[] = {
		{ "", "invalid_json" },
		{ "{", "invalid_json" },
		{ "[]", "invalid_json" },
		{ "\"reset\"", "invalid_json" },
		{ "{\"type\":\"reset\"} {}", "invalid_json" },
		{ "{\"type\":\"reset\",}", "invalid_json" },
		{ "{}", "unknown_type" },
		{ "{\"data\":{}}", "unknown_type" },
		{ "{\"type\":null}", "unknown_type" },
		{ "{\"type\":\"Reset\"}", "unknown_type" },
		{ "{\"type\":\"open\"}", "unknown_type" },
		{ "{\"type\":\"reset\",\"x\":1}", "validation_error" },
		{ "{\"type\":\"reset\",\"data\":null}", "validation_error" },
		{ "{\"type\":\"step\"}", "validation_error" },
		{ "{\"type\":\"step\",\"data\":[]}", "validation_error" },
		{ "{\"type\":\"state\",\"data\":{}}", "validation_error" },
		{ "{\"type\":\"close\",\"data\":{}}", "validation_error" },
		{ "{\"type\":\"mcp\"}", "validation_error" },
	};
	char part[96];
	struct peer p;
	size_t i;

	open_gate(text);
	p = live("/ws", 1);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		say(&p, rows[i].frame);
		snprintf(part, sizeof(part), "\"detail\":{\"reason\":\"%s\"",
		    rows[i].reason);
		hears(&p, part, rows[i].frame);
		hears(&p,
		    "{\"type\":\"error\",\"data\":{\"message\":\"Environment "
		    "operation failed\",\"code\":\"execution_error\"",
		    "in the seed's words");
	}
	tap_is_int(p.ws->code, 0, "it stays open");
	say(&p, "{\"ty\\u0070e\":\"st\\u0061te\"}");
	tap_is_int(fake_call_last->op, WORKER_STATE, "escapes are read");
	answer(WORKER_OK, "{}");
	p.ws->events->message(p.ws->arg, false, VIEW("x"));
	hears(&p, "\"code\":\"SESSION_ERROR\"", "a binary frame");
	tap_is_int(p.ws->code, 1000, "ends it");
	leave(&p, 1000);
	close_gate();
}

/* A teardown that failed, an end unasked. */
static void
no_episode(struct peer *p)
{
	fake_worker.state = WORKER_FAILED;
	say(p, "{\"type\":\"reset\"}");
	helper_refuses(MESSAGE_EPISODE_RESET, SANDBOX_REFUSED_UNCLEAN, "stuck");
	turn();
	hears(p,
	    "\"message\":\"teardown incomplete: workload cgroup did not empty; "
	    "workspace restore refused\",\"code\":\"execution_error\"",
	    "a teardown that failed");
	say(p, "{\"type\":\"step\",\"data\":{}}");
	hears(p, "episode_ended", "nothing runs in it");
	say(p, "{\"type\":\"reset\"}");
	helper_made(MESSAGE_EPISODE_RESET, 2, "echo");
	turn();
	answer(WORKER_OK, OBSERVED);
	hears(p, "\"observation\"", "the next reset works");
	helper_ended(2, "out of memory");
	turn();
	say(p, "{\"type\":\"state\"}");
	hears(p, "out of memory", "one that ended by itself, and why");
	say(p, "{\"type\":\"reset\"}");
	made(3);
	answer(WORKER_OK, OBSERVED);
	hears(p, "\"observation\"", "a reset makes another");
}

static void
test_faults(void)
{
	static const struct {
		enum worker_result result;
		const char *reason;
	} rows[] = {
		{ WORKER_ERROR, "error" },
		{ WORKER_GONE, "worker_gone" },
		{ WORKER_TIMEOUT, "timeout" },
		{ WORKER_BUSY, "busy" },
		{ WORKER_NONE, "no_worker" },
	};
	char part[96];
	struct peer p;
	size_t i;

	open_gate(text);
	p = live("/small", 1);
	fake_worker.tail = "Traceback";
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		say(&p, "{\"type\":\"step\",\"data\":{}}");
		answer(rows[i].result, i == 0 ? "no such action" : "");
		snprintf(part, sizeof(part), "\"reason\":\"%s\"",
		    rows[i].reason);
		hears(&p, part, rows[i].reason);
		hears(&p, "\"stderr\":\"Traceback\"", "with its last words");
		hears(&p, i == 0 ? "no such action" : "it left", "and why");
	}
	fake_call_rc = SP_E_NOMEM;
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	hears(&p, "no_memory", "no memory to ask");
	fake_call_rc = SP_E_SYNTAX;
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	hears(&p, "malformed", "what the worker cannot be asked");
	fake_call_rc = SP_OK;
	fake_no_worker = true;
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	hears(&p, "no_memory", "a worker that is not there");
	fake_no_worker = false;
	say(&p, "{\"type\":\"state\"}");
	{
		static char big[70 * 1024];

		memset(big, ' ', sizeof(big) - 1);
		big[0] = '{';
		big[sizeof(big) - 2] = '}';
		answer(WORKER_OK, big);
	}
	hears(&p, "reply_too_large", "an answer over reply_max");
	no_episode(&p);
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	fake_send_rc = SP_E_SYNTAX;
	answer(WORKER_OK, OBSERVED);
	fake_send_rc = SP_OK;
	tap_is_int(p.ws->code, 1011, "nor one that cannot be told");
	leave(&p, 1011);
	p = live("/ws", 4);
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	fake_send_rc = SP_E_LIMIT;
	answer(WORKER_OK, OBSERVED);
	fake_send_rc = SP_OK;
	tap_is_int(p.ws->code, 1011, "an answer that cannot leave ends it");
	leave(&p, 1011);
	close_gate();
}

static void
test_fresh(void)
{
	struct peer p;
	unsigned before;

	open_gate(text);
	p = live("/ws", 1);
	fake_worker.state = WORKER_FAILED;
	before = helper.n;
	say(&p, "{\"type\":\"reset\"}");
	tap_ok(told(MESSAGE_EPISODE_RESET, before),
	    "one whose worker failed is not fresh");
	helper_made(MESSAGE_EPISODE_RESET, 2, "echo");
	turn();
	fake_worker.state = WORKER_READY;
	answer(WORKER_OK, OBSERVED);
	before = helper.n;
	say(&p, "{\"type\":\"reset\"}");
	tap_ok(told(MESSAGE_EPISODE_RESET, before),
	    "nor one whose worker was reset");
	leave(&p, 1000);
	close_gate();
}

static void
test_order(void)
{
	struct peer p;
	unsigned i;

	open_gate(text);
	p = live("/ws", 1);
	i = fake_calls_n;
	say(&p, "{\"type\":\"step\",\"data\":{\"n\":1}}");
	say(&p, "{\"type\":\"step\",\"data\":{\"n\":2}}");
	say(&p, "{\"type\":\"nonsense\"}");
	say(&p, "{\"type\":\"state\"}");
	tap_is_int(fake_calls_n, i + 1, "one at a time");
	tap_ok(!p.ws->paused, "it is read on, for its pings");
	answer(WORKER_OK, OBSERVED);
	tap_is_int(p.ws->sent, 1, "the first answer");
	tap_ok(has(&fake_call_last->data, "{\"n\":2}"), "then the second");
	answer(WORKER_OK, OBSERVED);
	tap_is_int(p.ws->sent, 3, "then the error");
	tap_is_int(fake_call_last->op, WORKER_STATE, "then the last");
	for (i = 0; i < 64; i++)
		say(&p, "{\"type\":\"nonsense\"}");
	tap_ok(p.ws->paused, "too many pause it");
	answer(WORKER_OK, "{}");
	tap_is_int(p.ws->sent, 3 + 1 + 64, "all are answered");
	tap_ok(!p.ws->paused, "and it goes on");
	p.ws->queued = 100 << 20;
	say(&p, "{\"type\":\"nonsense\"}");
	tap_is_int(p.ws->sent, 3 + 1 + 64, "not while answers wait");
	p.ws->queued = 0;
	p.ws->events->room(p.ws->arg);
	tap_is_int(p.ws->sent, 3 + 1 + 65, "but then");
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	say(&p, "{\"type\":\"close\"}");
	tap_is_int(p.ws->code, 0, "close waits for its turn as well");
	answer(WORKER_OK, OBSERVED);
	tap_is_int(p.ws->code, 1000, "which comes");
	leave(&p, 1000);
	close_gate();
}

static void
test_names(void)
{
	struct peer p, q;

	open_gate(text);
	p = live("/ws", 1);
	q = live("/ws", 2);
	say(&p, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"mine\"}}");
	tap_is_str(at(1)->id, "mine", "an episode is named");
	tap_ok(has(&fake_call_last->data, "{\"episode_id\":\"mine\"}"),
	    "and the worker is told");
	answer(WORKER_OK, OBSERVED);
	say(&q, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"mine\"}}");
	hears(&q, "episode_exists", "not two of them");
	say(&q, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"a b\"}}");
	tap_is_int(fake_call_last->op, WORKER_RESET,
	    "what is no name is the worker's alone");
	tap_ok(strcmp(at(2)->id, "a b") != 0, "and names nothing");
	answer(WORKER_OK, OBSERVED);
	say(&p, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"mine\"}}");
	helper_made(MESSAGE_EPISODE_RESET, 3, "echo");
	turn();
	tap_is_str(at(3)->id, "mine", "the same once more");
	answer(WORKER_OK, OBSERVED);
	leave(&p, 1000);
	leave(&q, 1000);
	close_gate();
}

static void
test_grace(void)
{
	struct peer p, q;
	unsigned before;

	open_gate(text);
	p = live("/ws", 1);
	say(&p, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"mine\"}}");
	answer(WORKER_OK, OBSERVED);
	q = come("/ws", "session_id=mine");
	hears(&q, "has a connection already", "one connection at a time");
	tap_is_int(q.ws->code, 1000, "and no more");
	leave(&q, 1000);
	q = come("/ws", "session_id=other");
	hears(&q, "no episode has that session_id", "no such episode");
	leave(&q, 1000);
	q = come("/bare", "session_id=mine");
	hears(&q, "SESSION_ERROR", "not of another environment");
	leave(&q, 1000);
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	before = helper.n;
	leave(&p, WEBSOCKET_ABNORMAL);
	tap_is_str(fake_logged, "orchestrator lifecycle step client_gone",
	    "a step whose client is gone");
	answer(WORKER_OK, OBSERVED);
	tap_is_int(helper.n, before, "its episode lives on");
	q = live("/ws", 9);
	say(&q, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"mine\"}}");
	hears(&q, "?session_id=mine to have it back",
	    "who wants its name is told how to have it back");
	leave(&q, 1000);
	helper_ended(9, "");
	before = helper.n;
	p = come("/ws", "session_id=mine");
	tap_is_int(p.ws->sent, 0, "one that comes back");
	say(&p, "{\"type\":\"state\"}");
	answer(WORKER_OK, "{}");
	hears(&p, "{\"type\":\"state\"", "is served");
	leave(&p, 1001);
	tap_ok(told(MESSAGE_EPISODE_END, before), "one that closes ends it");
	helper_ended(1, "");
	p = live("/short", 2);
	before = helper.n;
	leave(&p, WEBSOCKET_ABNORMAL);
	tap_is_int(helper.n, before, "not at once");
	tap_ok(told(MESSAGE_EPISODE_END, before), "but after the grace");
	helper_ended(2, "");
	p = live("/ws", 3);
	leave(&p, WEBSOCKET_ABNORMAL);
	helper_ended(3, "");
	turn();
	tap_ok(episode_first(gate_episodes(gate)) == NULL,
	    "one that ends meanwhile");
	p = come("/ws", NULL);
	q = come("/ws", "session_id=");
	hears(&q, "SESSION_ERROR", "no name");
	leave(&q, 1000);
	leave(&p, 1000);
	close_gate();
}

/* Told by the helper of what an earlier reactor left. */
static void
stranger(uint32_t slot, const char *id)
{
	helper_u32(slot);
	helper_u32(1);
	helper_u32(1);
	helper_bytes(id);
	helper_tell(MESSAGE_EPISODE_NAMED);
	helper_u32(slot);
	helper_u32(1);
	helper_u32(0);
	helper_bytes("echo");
	helper_tell(MESSAGE_EPISODE_MADE);
}

static void
test_resume(void)
{
	struct peer p, q;
	unsigned before;

	all_known = false;
	open_gate(text);
	p = come("/ws", "session_id=mine");
	q = come("/ws", "session_id=other");
	say(&p, "{\"type\":\"state\"}");
	tap_is_int(p.ws->sent, 0, "one that comes back too soon waits");
	stranger(1, "mine");
	helper_tell(MESSAGE_EPISODE_RESUMED);
	before = fake_calls_n;
	while (fake_calls_n == before || q.ws->code == 0)
		turn();
	answer(WORKER_GONE, "");
	hears(&p, "worker_gone", "and finds its episode");
	hears(&q, "no episode has that session_id", "another does not");
	leave(&q, 1000);
	before = helper.n;
	say(&p, "{\"type\":\"reset\"}");
	tap_ok(told(MESSAGE_EPISODE_RESET, before), "which a reset");
	helper_made(MESSAGE_EPISODE_RESET, 2, "echo");
	turn();
	answer(WORKER_OK, OBSERVED);
	hears(&p, "\"observation\"", "mends");
	leave(&p, 1000);
	close_gate();
	open_gate(text);
	stranger(1, "mine");
	helper_tell(MESSAGE_EPISODE_RESUMED);
	p = live("/ws", 2);
	say(&p, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"mine\"}}");
	hears(&p, "?session_id=mine to have it back",
	    "who wants the name of one that waits is told so");
	leave(&p, 1000);
	close_gate();
	all_known = true;
}

static void
test_room(void)
{
	struct peer p, q;
	unsigned before;

	open_gate(text);
	p = live("/ws", 1);
	leave(&p, 1000);
	q = come("/ws", NULL);
	before = helper.n;
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_CAPACITY, "");
	turn();
	tap_is_int(q.ws->sent, 0, "one ends: its place is waited for");
	helper_ended(1, "");
	turn();
	tap_ok(told(MESSAGE_EPISODE_CREATE, before), "and asked for again");
	made(2);
	say(&q, "{\"type\":\"reset\"}");
	answer(WORKER_OK, OBSERVED);
	hears(&q, "\"observation\"", "and had");
	leave(&q, 1000);
	q = come("/ws", NULL);
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_CAPACITY, "");
	turn();
	leave(&q, WEBSOCKET_ABNORMAL);
	helper_ended(2, "");
	turn();
	tap_ok(episode_first(gate_episodes(gate)) == NULL,
	    "not for one that left");
	close_gate();
}

static void
test_bare(void)
{
	struct peer p;

	open_gate(text);
	p = come("/bare", NULL);
	helper_made(MESSAGE_EPISODE_CREATE, 1, "bare");
	turn();
	say(&p, "{\"type\":\"reset\",\"data\":{\"episode_id\":\"b\"}}");
	hears(&p,
	    "{\"type\":\"observation\",\"data\":{\"observation\":{},"
	    "\"reward\":null,\"done\":false}}",
	    "without a worker there is a reset");
	say(&p, "{\"type\":\"state\"}");
	hears(&p, "{\"episode_id\":\"b\",\"step_count\":0}", "and a state");
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	hears(&p, "no_worker", "but no step");
	leave(&p, 1000);
	close_gate();
}

static void
test_shared(void)
{
	struct peer p, q;
	unsigned before;

	open_gate(shared_text);
	tap_ok(told(MESSAGE_EPISODE_CREATE, 0), "made at the start");
	before = helper.n;
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_FAILED, "no");
	tap_ok(told(MESSAGE_EPISODE_CREATE, before), "and again");
	p = come("/ws", NULL);
	say(&p, "{\"type\":\"reset\"}");
	helper_made(MESSAGE_EPISODE_CREATE, 1, "one");
	turn();
	answer(WORKER_OK, OBSERVED);
	hears(&p, "\"observation\"", "one connection");
	q = come("/ws", NULL);
	say(&p, "{\"type\":\"step\",\"data\":{\"n\":1}}");
	say(&q, "{\"type\":\"step\",\"data\":{\"n\":2}}");
	tap_ok(has(&fake_call_last->data, "{\"n\":1}"), "and another");
	answer(WORKER_OK, OBSERVED);
	answer(WORKER_OK, OBSERVED);
	tap_is_int(p.ws->sent + q.ws->sent, 3, "each has its answers");
	before = helper.n;
	leave(&q, 1000);
	tap_is_int(helper.n, before, "one that leaves ends nothing");
	say(&p, "{\"type\":\"close\"}");
	tap_ok(told(MESSAGE_EPISODE_END, before), "close does");
	helper_ended(1, "");
	tap_ok(told(MESSAGE_EPISODE_CREATE, before), "and it is made again");
	leave(&p, 1000);
	p = come("/ws", NULL);
	helper_made(MESSAGE_EPISODE_CREATE, 2, "one");
	turn();
	say(&p, "{\"type\":\"reset\"}");
	answer(WORKER_OK, OBSERVED);
	hears(&p, "\"observation\"", "for the next");
	before = helper.n;
	say(&p, "{\"type\":\"step\",\"data\":{}}");
	helper_ended(2, "killed");
	answer(WORKER_GONE, "");
	hears(&p, "worker_gone", "one that dies");
	tap_ok(told(MESSAGE_EPISODE_CREATE, before), "is made again, too");
	leave(&p, 1000);
	close_gate();
}

static struct mux_stream *
plain(const char *method, const char *path, const char *body, uint32_t slot)
{
	struct mux_stream *s = request(method, path, NULL, body);

	made(slot);
	return s;
}

static void
test_plain(void)
{
	struct mux_stream *s;

	open_gate(text);
	s = plain("POST", "/reset", "{\"seed\":1}", 1);
	tap_ok(has(&fake_call_last->data, "{\"seed\":1}"), "a plain reset");
	answer(WORKER_OK, OBSERVED);
	is(s, 200, OBSERVED, "is answered");
	tap_ok(told(MESSAGE_EPISODE_END, 0), "and its episode ends");
	s = plain("POST", "/reset", "", 2);
	answer(WORKER_OK, OBSERVED);
	is(s, 200, OBSERVED, "one with nothing");
	s = plain("POST", "/step", "{\"action\":{\"a\":1},\"timeout_s\":3}", 3);
	tap_ok(fake_call_last->op == WORKER_STEP &&
		has(&fake_call_last->data, "{\"a\":1}"),
	    "a plain step");
	answer(WORKER_ERROR, "bad action");
	is(s, 500, "\"detail\":\"Environment operation failed\"", "fails");
	is(s, 500, "bad action", "and why");
	s = plain("GET", "/state", NULL, 4);
	answer(WORKER_OK, "{\"episode_id\":null}");
	is(s, 200, "{\"episode_id\":null}", "a plain state");
	is(request("POST", "/step", NULL, "{}"), 422,
	    "{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\",\"action\"]",
	    "a step without action");
	is(request("POST", "/step", NULL, "{\"action\":1}"), 422, "action",
	    "a step with another action");
	is(request("POST", "/step", NULL, ""), 422, "missing", "no body");
	is(request("POST", "/step", NULL, "{"), 422, "json_invalid", "no JSON");
	is(request("POST", "/reset", NULL, "[]"), 422, "dictionary",
	    "no object");
	is(request("GET", "/reset", NULL, NULL), 405, "", "another method");
	is(request("GET", "/off/state", NULL, NULL), 403, "", "not allowed");
	s = request("GET", "/state", NULL, NULL);
	helper_refuses(MESSAGE_EPISODE_CREATE, SANDBOX_REFUSED_FAILED, "why");
	turn();
	is(s, 500, "sandbox_failed", "no sandbox");
	s = plain("GET", "/state", NULL, 5);
	mux_reset(s);
	turn();
	tap_ok(fake_forgotten > 0, "whose client is gone is forgotten");
	close_gate();
}

static void
test_memory(void)
{
	unsigned long n;
	struct peer p;

	for (n = 1; n < 70; n++) {
		open_gate(text);
		fake_ws_last = NULL;
		p.s = ask("GET", "/ws", NULL, NULL);
		mem_fail_after(n, 0);
		turn();
		p.ws = fake_ws_last;
		if (helper_request(MESSAGE_EPISODE_CREATE) != 0)
			made(1);
		if (p.ws != NULL && p.ws->code == 0) {
			say(&p, "{\"type\":\"reset\"}");
			answer(WORKER_OK, OBSERVED);
			say(&p, "{\"type\":\"step\",\"data\":{}}");
			say(&p, "{\"type\":\"state\"}");
			answer(WORKER_ERROR, "no");
			answer(WORKER_OK, "{}");
		}
		mem_fail_after(0, 0);
		leave(&p, WEBSOCKET_ABNORMAL);
		close_gate();
	}
}

int
main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	test_conf();
	test_handshake();
	test_open();
	test_frames();
	test_malformed();
	test_faults();
	test_fresh();
	test_order();
	test_names();
	test_grace();
	test_resume();
	test_room();
	test_bare();
	test_shared();
	test_plain();
	test_memory();
	test_session();
	test_session_room();
	test_session_name();
	test_session_memory();
	test_bounds();
	loop_timer_free(stopper);
	loop_free(loop);
	buf_clear(&helper_msg);
	return tap_done();
}
