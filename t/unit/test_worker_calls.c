/* core/gate/worker_call.c: which call goes when, and what becomes of it. */
#include "worker_caller.h"

/* ---- the queue ------------------------------------------------------------ */

static void
test_queue(void)
{
	static struct told t[WORKER_WAITING_MAX + 2];
	unsigned i, busy = 0, gone = 0;

	open_ready(HELLO);
	for (i = 0; i < WORKER_WAITING_MAX + 1; i++)
		TAP_NEVER(call(&t[i], WORKER_STEP, "{}") != SP_OK);
	turn(0);
	for (i = 0; i < WORKER_WAITING_MAX + 1; i++)
		busy += t[i].n == 1 && t[i].result == WORKER_BUSY;
	tap_is_int(busy, 1, "one is too many");
	worker_forget(t[3].call, VIEW_NONE);
	worker_forget(t[0].call, VIEW_NONE);
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"env/step\","
	    "\"params\":{}}\n",
	    "one at a time, also when its caller is gone");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"env/step\","
	    "\"params\":{}}\n",
	    "then the next");
	world_exited(SANDBOX_END_EXIT, 0);
	for (i = 0; i < WORKER_WAITING_MAX + 1; i++)
		gone += t[i].n == 1 && t[i].result == WORKER_GONE;
	tap_is_int(gone, WORKER_WAITING_MAX - 2, "the rest is gone");
	tap_is_int(sent.kills > 0, 1, "and all that ran is killed");
	world_close();
}

static void
test_cancel(void)
{
	struct told a, b, c;

	open_ready(HELLO);
	(void)!call(&a, WORKER_MCP, "{\"id\":\"a\",\"method\":\"x\"}");
	(void)!call(&b, WORKER_MCP, "{\"id\":\"b\",\"method\":\"y\"}");
	(void)!call(&c, WORKER_MCP, "{\"id\":\"c\",\"method\":\"z\"}");
	(void)heard();
	worker_cancel(c.call, VIEW_NONE);
	answer(&c, WORKER_ERROR, "it was cancelled", "one that waits");
	worker_cancel(a.call, VIEW_NONE);
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
	    "\"params\":{\"requestId\":2}}\n"
	    "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}\n"
	    "{\"id\":4,\"method\":\"y\"}\n",
	    "one that was sent: the next goes");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	answer(&a, WORKER_OK, NULL, "its answer is told all the same");
	worker_forget(b.call, VIEW_NONE);
	(void)heard();
	say("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}");
	tap_ok(w->dropped == 0 && w->left_n == 0,
	    "an answer that comes too late");
	tap_is_int(worker_state(w), WORKER_READY, "does no harm");
	world_close();
}

#define LOG "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}"
#define ASK(id) \
	"{\"jsonrpc\":\"2.0\",\"id\":\"" id "\",\"method\":\"sampling/x\"}"

/*
 * What is said while one that was cancelled may be worked on is nobody's: the
 * worker has heard of the end when it answers a ping, but only its answer to
 * the call says enough for another principal.
 */
static void
test_left(bool forget, bool other)
{
	const struct worker_ask next = { .op = WORKER_MCP,
		.data = VIEW("{\"id\":\"b\",\"method\":\"y\"}"),
		.whose = other ? WORKER_GRADERS : WORKER_ORCHESTRATORS };
	const char *line;

	struct watched x = { .watch = { .message = watch_message } };
	struct told a, b;

	x.watch.arg = &x;
	open_ready(HELLO);
	worker_watch(w, &x.watch);
	(void)!call(&a, WORKER_MCP,
	    "{\"id\":\"a\",\"method\":\"x\",\"params\":{\"_meta\":{"
	    "\"progressToken\":1}}}");
	memset(&b, 0, sizeof(b));
	TAP_NEVER(worker_call(w, &next, &caller, &b, &b.call) != SP_OK);
	(void)heard();
	say(ASK("q"));
	tap_is_int(a.messages, 1, "it asks in a call");
	worker_hold(a.call, true);
	if (forget)
		worker_forget(a.call, VIEW_NONE);
	else
		worker_cancel(a.call, VIEW_NONE);
	tap_ok(!w->holding, "which is cancelled: the worker is read again");
	line = heard();
	tap_ok(strstr(line, "\"id\":3,\"method\":\"ping\"}") != NULL &&
		strstr(line, "{\"id\":4,\"method\":\"y\"}") != NULL,
	    "the next goes");
	if (other)
		say("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}");
	say(LOG);
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","
	    "\"params\":{\"progressToken\":2}}");
	tap_is_int(a.messages + b.messages + x.messages, 1,
	    "what it says then is for nobody");
	say(ASK("s"));
	tap_ok(b.messages == 0 && strstr(heard(), "-32601") != NULL,
	    "what it asks is refused");
	if (!forget) {
		say("{\"jsonrpc\":\"2.0\",\"method\":"
		    "\"notifications/cancelled\",\"params\":{\"requestId\":"
		    "\"q\"}}");
		tap_is_int(b.messages, 0, "what it gives up is not the next's");
	}
	say(other ? "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"
		  : "{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":1}}");
	tap_is_int((long long)w->left_n, other ? 0 : 1,
	    other ? "it is answered" : "it is heard of");
	say(LOG);
	tap_is_int(b.messages, 1, "then the next is told");
	say(ASK("q"));
	tap_is_int(b.messages, 2, "and asked, by an id that was used");
	if (!other)
		say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	if (!forget) {
		answer(&a, WORKER_OK, NULL, "the first ends");
		tap_is_int(worker_tell(w, NULL,
			       VIEW("{\"id\":\"q\",\"result\":{\"a\":1}}")),
		    SP_OK, "a response of another");
		tap_is_str(heard(), "", "is none to this");
	}
	tap_is_int(worker_tell(w, b.call,
		       VIEW("{\"id\":\"q\",\"result\":{\"b\":1}}")),
	    SP_OK, "its own");
	tap_ok(strstr(heard(), "{\"b\":1}") != NULL, "is");
	say("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}");
	tap_ok(b.n == 1 && x.messages == 0, "and the end");
	(void)!call(&a, WORKER_STATE, "");
	(void)heard();
	say(LOG);
	tap_is_int(x.messages, 0, "a log of a state is no agent's");
	say("{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}");
	say(LOG);
	tap_is_int(x.messages, 1, "one of no call is told to all");
	world_close();
}

/* More of them than are followed, and none is answered. */
static void
test_left_many(void)
{
	const struct worker_ask ask = { .op = WORKER_MCP,
		.data = VIEW("{\"id\":1,\"method\":\"x\"}"),
		.timeout_ms = 300,
		.whose = WORKER_ORCHESTRATORS };
	static struct told t[WORKER_LEFT_MAX + 3];
	struct told last;
	unsigned i;

	open_ready(HELLO);
	for (i = 0; i < WORKER_LEFT_MAX + 3; i++) {
		memset(&t[i], 0, sizeof(t[i]));
		TAP_NEVER(
		    worker_call(w, &ask, &caller, &t[i], &t[i].call) != SP_OK);
		turn(0);
		if (i % 2 == 0)
			worker_cancel(t[i].call, VIEW_NONE);
		else
			worker_forget(t[i].call, VIEW_NONE);
	}
	tap_is_int(w->left_n, WORKER_LEFT_MAX, "as many as are followed");
	answer(&t[0], WORKER_ERROR, "it was cancelled, and not answered",
	    "the first is given up");
	(void)!call(&last, WORKER_MCP, "{\"id\":1,\"method\":\"x\"}");
	tap_ok(strstr(heard(), "{\"id\":40,") != NULL, "the next goes");
	for (i = 2; i < WORKER_LEFT_MAX + 3; i++) {
		char line[64];

		(void)snprintf(line, sizeof(line),
		    "{\"jsonrpc\":\"2.0\",\"id\":%u,\"result\":{}}", 2 + 2 * i);
		say(line);
	}
	say(LOG);
	tap_ok(w->left_n == 0 && last.messages == 0,
	    "the first may still be worked on");
	for (i = 0; i < 1000 && !worker_settled(w, WORKER_ORCHESTRATORS); i++)
		turn(5);
	say(LOG);
	tap_is_int(last.messages, 1, "until its time is over");
	tap_is_int(worker_state(w), WORKER_READY, "the worker lives");
	world_close();
}

/* Whoever froze it answers for the time: every clock of its stands. */
/* A call, a cancelled one's rest and a freeze, all of two minutes ago. */
static void
test_frozen(void)
{
	enum { MINUTE = 60 * 1000 };
	struct told t;

	open_ready(HELLO);
	memset(&t, 0, sizeof(t));
	TAP_NEVER(worker_call(w,
		      &(const struct worker_ask){ .op = WORKER_MCP,
			  .data = VIEW("{\"id\":1,\"method\":\"x\"}"),
			  .timeout_ms = MINUTE,
			  .whose = WORKER_ORCHESTRATORS },
		      &caller, &t, &t.call) != SP_OK);
	turn(0);
	w->unsettled_ms[WORKER_AGENTS] = loop_now_ms(loop) - MINUTE;
	t.call->deadline_ms -= 2 * MINUTE;
	world_freeze(true);
	w->ep->frozen_at_ms -= 2 * MINUTE;
	turn(20);
	world_freeze(false);
	turn(20);
	tap_ok(!worker_settled(w, WORKER_ORCHESTRATORS),
	    "what one that was cancelled has left does not pass frozen");
	tap_ok(t.n == 0 && t.call->deadline_ms > worker_now_ms(w),
	    "nor what a call has");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	answer(&t, WORKER_OK, NULL, "which is answered");
	w->unsettled_ms[WORKER_AGENTS] -= MINUTE;
	tap_ok(worker_settled(w, WORKER_ORCHESTRATORS), "it passes afterwards");
	world_close();
}

static void
test_deadline(void)
{
	const struct worker_ask ask = { .op = WORKER_STEP,
		.data = VIEW("{}"),
		.timeout_ms = 20,
		.whose = WORKER_ORCHESTRATORS };
	struct told t = { 0 }, u;
	int i;

	open_ready(HELLO);
	tap_is_int(worker_call(w, &ask, &deaf, &t, &t.call), SP_OK, "a call");
	(void)!call(&u, WORKER_STEP, "{}");
	for (i = 0; i < 1000 && t.n == 0; i++)
		turn(5);
	answer(&t, WORKER_TIMEOUT, "it did not answer in 20 ms (timeout)",
	    "past its time");
	answer(&u, WORKER_GONE, NULL, "what waited is gone");
	tap_ok(view_starts(buf_view(&events_told),
		   VIEW("0 step {} worker_timeout: it did")),
	    "observers are told");
	tap_is_int(worker_state(w), WORKER_FAILED, "it counts as failed");
	world_close();
	environment.worker_start_ms = 20;
	world_open();
	world_started();
	for (i = 0; i < 1000 && worker_state(w) != WORKER_FAILED; i++)
		turn(5);
	tap_ok(view_starts(worker_why(w), VIEW("it was not ready in 20 ms")),
	    "one that is not ready in time");
	environment.worker_start_ms = 0;
	world_close();
}

/* ---- calls of one client while it is asked --------------------------------- */

static int
call_of(struct told *t, enum worker_whose whose, const void *client,
    const char *data)
{
	const struct worker_ask ask = { .op = WORKER_MCP,
		.data = view_str(data),
		.whose = whose,
		.client = client };

	memset(t, 0, sizeof(*t));
	return worker_call(w, &ask, &caller, t, &t->call);
}

#define ANSWER(id) "{\"jsonrpc\":\"2.0\",\"id\":\"" id "\",\"result\":{}}"

static void
test_aside(void)
{
	static const int one = 1, two = 2;
	struct told a, b, c, d;

	open_ready(HELLO);
	TAP_NEVER(call_of(&a, WORKER_AGENTS, &one,
		      "{\"id\":\"a\",\"method\":\"x\"}") != SP_OK);
	TAP_NEVER(call_of(&b, WORKER_AGENTS, &two,
		      "{\"id\":\"b\",\"method\":\"y\"}") != SP_OK);
	TAP_NEVER(call_of(&c, WORKER_AGENTS, &one,
		      "{\"id\":\"c\",\"method\":\"z\"}") != SP_OK);
	tap_is_str(heard(), "{\"id\":2,\"method\":\"x\"}\n", "one at a time");
	say(ASK("p"));
	tap_is_str(heard(), "{\"id\":3,\"method\":\"z\"}\n",
	    "while its client is asked, another of that client's goes");
	say(ASK("q"));
	tap_ok(a.messages == 1 && c.messages == 1, "each asks in its own");
	say("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}");
	answer(&c, WORKER_OK, NULL, "the later is answered first");
	tap_is_str(heard(), "", "the other client's waits");
	/* it was not known in which of the two that was asked */
	tap_is_int(worker_tell(w, a.call, VIEW(ANSWER("q"))), SP_OK,
	    "what was asked in the one that is over");
	tap_is_str(heard(), ANSWER("q") "\n", "is answered in the other");
	tap_is_int(worker_tell(w, b.call, VIEW(ANSWER("p"))), SP_OK,
	    "nobody else's answer");
	tap_is_str(heard(), "", "is taken");
	TAP_NEVER(call_of(&d, WORKER_AGENTS, &one,
		      "{\"id\":\"d\",\"method\":\"v\"}") != SP_OK);
	tap_is_str(heard(), "{\"id\":4,\"method\":\"v\"}\n",
	    "and one more of that client's");
	worker_forget(a.call, VIEW_NONE);
	tap_ok(strstr(heard(), "\"The client is gone\"") != NULL,
	    "the earlier one's client leaves it");
	say("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}");
	answer(&d, WORKER_OK, NULL, "the later one is answered");
	tap_is_str(heard(), "{\"id\":6,\"method\":\"y\"}\n",
	    "then the other client's goes");
	say(ASK("r"));
	TAP_NEVER(call_of(&c, WORKER_AGENTS, &two,
		      "{\"id\":\"c\",\"method\":\"z\"}") != SP_OK);
	(void)heard();
	world_exited(SANDBOX_END_EXIT, 0);
	tap_ok(b.n == 1 && b.result == WORKER_GONE && c.n == 1 &&
		c.result == WORKER_GONE && w->aside_n == 0,
	    "with the worker all are gone");
	world_close();
}

static void
test_lapse(void)
{
	static const int one = 1;
	struct told a;
	int i;

	environment.answer_ms = 20;
	open_ready(HELLO);
	TAP_NEVER(call_of(&a, WORKER_AGENTS, &one,
		      "{\"id\":\"a\",\"method\":\"x\"}") != SP_OK);
	(void)heard();
	say(ASK("p"));
	for (i = 0; i < 100 && a.messages < 2; i++)
		turn(20);
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"error\":{\"code\":-32001,"
	    "\"message\":\"Request timed out\"}}\n",
	    "what is not answered in time is so in the client's place");
	tap_ok(strstr(a.message, "notifications/cancelled") != NULL &&
		strstr(a.message, "\"requestId\":\"p\"") != NULL,
	    "and the client is told");
	tap_is_int(worker_tell(w, a.call, VIEW(ANSWER("p"))), SP_OK,
	    "its answer comes late");
	tap_is_str(heard(), "", "and is dropped");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	answer(&a, WORKER_OK, NULL, "the call goes on");
	environment.answer_ms = 0;
	world_close();
}

/* One that is asked in each of its calls, and never without one. */
static void
test_aside_long(void)
{
	static const int one = 1;
	struct told a, b, c, other;

	environment.answer_ms = 60 * 1000;
	open_ready(HELLO);
	TAP_NEVER(call_of(&a, WORKER_AGENTS, &one,
		      "{\"id\":\"a\",\"method\":\"x\"}") != SP_OK);
	(void)heard();
	say(ASK("p"));
	TAP_NEVER(call_of(&other, WORKER_GRADERS, NULL,
		      "{\"id\":\"o\",\"method\":\"r\"}") != SP_OK);
	TAP_NEVER(call_of(&b, WORKER_AGENTS, &one,
		      "{\"id\":\"b\",\"method\":\"y\"}") != SP_OK);
	tap_is_str(heard(), "{\"id\":3,\"method\":\"y\"}\n", "another goes");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	answer(&a, WORKER_OK, NULL, "the first has its answer");
	say(ASK("q"));
	w->busy_ms -= environment.answer_ms;
	TAP_NEVER(call_of(&c, WORKER_AGENTS, &one,
		      "{\"id\":\"c\",\"method\":\"z\"}") != SP_OK);
	tap_is_str(heard(), "",
	    "none more, when somebody else has waited for so long");
	say("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}");
	answer(&b, WORKER_OK, NULL, "the second has its answer");
	tap_is_str(heard(), "{\"id\":4,\"method\":\"r\"}\n",
	    "and he has his turn");
	environment.answer_ms = 0;
	world_exited(SANDBOX_END_EXIT, 0);
	world_close();
}

static void
test_turns(void)
{
	static struct told t[WORKER_WAITING_MAX + 2];
	struct told step, read;
	unsigned i, busy = 0;

	open_ready(HELLO);
	for (i = 0; i < WORKER_WAITING_MAX + 2; i++)
		TAP_NEVER(call_of(&t[i], WORKER_AGENTS, NULL,
			      "{\"id\":1,\"method\":\"x\"}") != SP_OK);
	TAP_NEVER(call(&step, WORKER_STEP, "{}") != SP_OK);
	TAP_NEVER(call_of(&read, WORKER_GRADERS, NULL,
		      "{\"id\":1,\"method\":\"r\"}") != SP_OK);
	turn(0);
	for (i = 0; i < WORKER_WAITING_MAX + 2; i++)
		busy += t[i].n == 1 && t[i].result == WORKER_BUSY;
	tap_is_int(busy, 2, "an agent's calls fill the agents' queue");
	tap_ok(step.n == 0 && read.n == 0, "and nobody else's");
	tap_is_str(heard(), "{\"id\":2,\"method\":\"x\"}\n", "the first");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	say("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}");
	say("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}");
	tap_ok(step.n == 1 && read.n == 1 && t[0].n == 1 && t[1].n == 0,
	    "principals take turns");
	world_exited(SANDBOX_END_EXIT, 0);
	world_close();
}

int
main(void)
{
	if (world_init(CONF_ENV_WORKER_STDIO) != 0)
		return 1;
	test_queue();
	test_cancel();
	test_left(false, false);
	test_left(false, true);
	test_left(true, false);
	test_left(true, true);
	test_left_many();
	test_aside();
	test_lapse();
	test_aside_long();
	test_turns();
	test_frozen();
	test_deadline();
	world_fini();
	return tap_done();
}
