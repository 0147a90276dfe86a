/* core/gate/worker*.c: against a helper and a worker that are played here. */
#include "worker_caller.h"

/* ---- MCP ------------------------------------------------------------------ */

static void
test_hello(void)
{
	world_open();
	tap_is_int(worker_state(w), WORKER_STARTING, "it starts");
	world_started();
	tap_ok(strstr(heard(),
		   "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\","
		   "\"params\":{\"protocolVersion\":\"2025-11-25\"") != NULL,
	    "it is greeted");
	say("{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}");
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"result\":{}}\n",
	    "its ping is answered");
	say(HELLO "\r");
	tap_is_str(heard(), INITIALIZED, "the greeting ends");
	tap_is_int(worker_state(w), WORKER_READY, "it is ready");
	tap_is_mem(worker_initialized(w).p, worker_initialized(w).n,
	    "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}", 50,
	    "what it said is known");
	world_close();
}

static void
test_bytes(void)
{
	struct told t;

	open_ready(HELLO);
	tap_is_int(call(&t, WORKER_MCP,
		       "{\"method\":\"x\" , \"id\" : \"a\\u0041\",\n"
		       "\"params\":{\"progressToken\":9,\"_meta\":"
		       "{\"progressToken\":\"tok\"}},\"id\":\"b\"}"),
	    SP_OK, "a call");
	turn(0);
	tap_is_str(heard(),
	    "{\"method\":\"x\" , \"id\" : 2, \"params\":{\"progressToken\":9,"
	    "\"_meta\":{\"progressToken\":2}},\"id\":2}\n",
	    "other ids, all else as it was, on one line");
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","
	    "\"params\":{\"progressToken\":2 ,\"progress\":1.50}}");
	tap_is_str(t.message,
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","
	    "\"params\":{\"progressToken\":\"tok\" ,\"progress\":1.50}}",
	    "progress has the caller's token");
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications\\/"
	    "pro\\u0067ress\","
	    "\"params\":{\"progressToken\":2}}");
	tap_is_str(t.message,
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications\\/"
	    "pro\\u0067ress\","
	    "\"params\":{\"progressToken\":\"tok\"}}",
	    "however it is escaped");
	say("{ \"result\" : {\"n\":1.0} ,\"id\": 2,\"jsonrpc\":\"2.0\"}");
	answer(&t, WORKER_OK,
	    "{ \"result\" : {\"n\":1.0} ,\"id\": \"b\",\"jsonrpc\":\"2.0\"}",
	    "an answer has the caller's id");
	tap_is_int(call(&t, WORKER_MCP, "{\"method\":\"x\"}"), SP_OK,
	    "one without an id");
	turn(0);
	tap_is_str(heard(), "{\"id\":3,\"method\":\"x\"}\n", "gets one");
	say("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}");
	answer(&t, WORKER_OK, "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}",
	    "and null in the answer");
	tap_is_int(call(&t, WORKER_MCP, "[]"), SP_E_SYNTAX, "no object");
	tap_is_int(call(&t, WORKER_STEP, "{\"a\":}"), SP_E_SYNTAX, "no JSON");
	tap_is_int(call(&t, WORKER_STEP, "{\"a\":\"\xff\"}"), SP_E_SYNTAX,
	    "no UTF-8");
	world_close();
}

static void
test_requests(void)
{
	struct told t;

	open_ready(HELLO);
	say("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"roots/list\"}");
	tap_ok(strstr(heard(), "\"id\":5,\"error\":{\"code\":-32601") != NULL,
	    "a request when nobody listens");
	(void)!call(&t, WORKER_MCP, "{\"id\":1,\"method\":\"x\"}");
	(void)heard();
	say("{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\",\"method\":"
	    "\"sampling/createMessage\"}");
	tap_is_int(t.messages, 1, "a request goes to the call");
	tap_is_int(worker_tell(w, t.call,
		       VIEW("{\"jsonrpc\":\"2.0\",\"id\":\"b\","
			    "\"result\":{}}")),
	    SP_OK, "a response to nothing");
	tap_is_str(heard(), "", "is dropped");
	tap_is_int(worker_tell(w, t.call,
		       VIEW("{\"jsonrpc\":\"2.0\",\"id\":\"a\","
			    "\"result\":{\"x\":1}}")),
	    SP_OK, "the response");
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\",\"result\":{\"x\":1}}\n",
	    "has the worker's id");
	tap_is_int(worker_tell(w, t.call,
		       VIEW("{\"jsonrpc\":\"2.0\",\"id\":\"a\","
			    "\"result\":{\"x\":1}}")),
	    SP_OK, "once more");
	tap_is_str(heard(), "", "is dropped");
	tap_is_int(worker_tell(w, NULL, VIEW("{\"id\":1,\"method\":\"x\"}")),
	    SP_E_SYNTAX, "a request is no message to tell");
	tap_is_int(worker_tell(w, NULL, VIEW("{")), SP_E_SYNTAX, "nor is that");
	tap_is_int(worker_tell(w, NULL, VIEW("{\"method\":\"n\"}")), SP_OK,
	    "a notification");
	tap_is_str(heard(), "{\"method\":\"n\"}\n", "passes");
	say("{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}");
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
	    "\"params\":{\"requestId\":\"q\"}}");
	tap_is_int(t.messages, 3, "its own cancellation is told");
	say("{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}");
	say("{\"jsonrpc\":\"2.0\",\"id\":\"2\",\"result\":{}}");
	tap_is_int((long long)w->dropped, 2, "answers to nothing are dropped");
	say("{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}");
	worker_forget(t.call, VIEW("\"why\""));
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"error\":{\"code\":-32603,"
	    "\"message\":\"The client is gone\"}}\n"
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
	    "\"params\":{\"requestId\":2,\"reason\":\"why\"}}\n"
	    "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}\n",
	    "a caller that is gone");
	world_close();
}

static void
test_watch(void)
{
	struct watched x = { .watch = { .message = watch_message,
				 .changed = watch_changed } };
	const struct worker_ask ask = { .op = WORKER_MCP,
		.data = VIEW("{\"id\":1,\"method\":\"x\"}"),
		.whose = WORKER_AGENTS };
	struct told t;

	x.watch.arg = &x;
	open_ready(HELLO);
	worker_watch(w, &x.watch);
	(void)!call(&t, WORKER_MCP, "{\"id\":1,\"method\":\"x\"}");
	(void)heard();
	say("{\"jsonrpc\":\"2.0\",\"method\":"
	    "\"notifications/tools/list_changed\"}");
	tap_is_int(x.messages, 1, "a list changed: the watch is told");
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}");
	tap_ok(x.messages == 1 && t.messages == 1, "a log's is the call's");
	say("{\"jsonrpc\":\"2.0\",\"method\":"
	    "\"notifications\\/resources\\/updated\"}");
	tap_ok(x.messages == 2 && t.messages == 1,
	    "a slash that is escaped is one");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	memset(&t, 0, sizeof(t));
	tap_is_int(worker_call(w, &ask, &deaf, &t, &t.call), SP_OK,
	    "a call that can be told nothing");
	turn(0);
	(void)heard();
	say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}");
	tap_is_int(x.messages, 2, "nobody else is told of it");
	tap_is_int(episode_reset(ep, NULL, NULL), SP_OK, "a reset");
	answer(&t, WORKER_GONE, "the episode is being reset",
	    "what was under way is gone");
	tap_is_int(x.state, WORKER_FAILED, "the watch hears of it");
	tap_is_int(call(&t, WORKER_STEP, "{}"), SP_OK, "a call meanwhile");
	answer(&t, WORKER_GONE, NULL, "is gone as well");
	world_made();
	turn(0);
	tap_is_int(x.state, WORKER_STARTING, "another one starts");
	tap_is_int(call(&t, WORKER_STATE, ""), SP_OK, "a call waits");
	world_started();
	(void)heard();
	say("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"protocolVersion\":"
	    "\"2024-11-05\"}}");
	turn(0);
	if (worker_state(w) != WORKER_READY)
		tap_diag("number of initialize: %llu",
		    (unsigned long long)w->numbers);
	world_ended();
	tap_ok(x.watch.worker == NULL && t.n == 1, "it is over");
	worker_unwatch(&x.watch);
	world_close();
}

static void
test_env(void)
{
	struct told t;

	open_ready(HELLO);
	(void)!call(&t, WORKER_RESET, "{\"seed\":1.0}");
	turn(0);
	tap_is_str(heard(),
	    "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"env/reset\","
	    "\"params\":{\"seed\":1.0}}\n",
	    "env/reset");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"observation\": 1}}");
	answer(&t, WORKER_OK, "{\"observation\": 1}", "its result");
	(void)!call(&t, WORKER_STEP, "{}");
	turn(0);
	say("{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":-1,\"message\":"
	    "\"n\\u006f\"}}");
	answer(&t, WORKER_ERROR, "no", "an error");
	(void)!call(&t, WORKER_STEP, "{}");
	turn(0);
	say("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":[]}");
	answer(&t, WORKER_ERROR, "its result is no object", "a bad result");
	(void)!call(&t, WORKER_RESET, "{}");
	turn(0);
	say("{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32601}}");
	answer(&t, WORKER_OK,
	    "{\"observation\":{},\"reward\":null,\"done\":false}",
	    "a reset that is not offered");
	(void)!call(&t, WORKER_STATE, "");
	turn(0);
	say("{\"jsonrpc\":\"2.0\",\"id\":6,\"error\":{\"code\":-32601}}");
	answer(&t, WORKER_OK, "{\"episode_id\":\"one\",\"step_count\":0}",
	    "a state that is not offered");
	(void)!call(&t, WORKER_STEP, "{}");
	turn(0);
	say("{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32601}}");
	answer(&t, WORKER_ERROR, NULL, "a step that is not offered");
	world_close();
}

/* ---- failures ------------------------------------------------------------- */

static void
fails(const char *line, const char *why)
{
	struct told t;

	open_ready(HELLO);
	(void)!call(&t, WORKER_MCP, "{\"id\":1,\"method\":\"x\"}");
	turn(0);
	say(line);
	turn(0);
	if (!tap_ok(t.n == 1 && t.result == WORKER_GONE &&
		    strstr(t.body, why) != NULL,
		"%s", why))
		tap_diag("%s: n %u, result %d: %s", line, t.n, (int)t.result,
		    t.body);
	tap_is_int(worker_state(w), WORKER_FAILED, "it failed");
	tap_is_int(worker_tell(w, NULL, VIEW("{\"method\":\"x\"}")), SP_E_STATE,
	    "it is told no more");
	world_close();
}

static void
test_bad(void)
{
	fails("this is no JSON", "no JSON-RPC message: this");
	fails("{\"jsonrpc\":\"2.0\"", "no JSON-RPC message");
	fails("{\"id\":2,\"result\":{}}", "no JSON-RPC message");
	fails("\"text\"", "no JSON-RPC message");
	fails("{\"jsonrpc\":\"2.0\",\"id\":2}", "neither request");
	fails("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{},\"error\":{}}",
	    "neither request");
	fails("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"}",
	    "no usable id");
	fails("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}",
	    "no usable id");
	fails("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}\n"
	      "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}",
	    "that is open");
	fails("[]", "a batch");
	fails("{\"jsonrpc\":\"2.0\",\"id\":2,\"id\":2,\"id\":2,\"id\":2,"
	      "\"id\":2,\"result\":{}}",
	    "no JSON-RPC message");
	fails("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"\xff\"}",
	    "no JSON-RPC message");
}

static void
test_hello_bad(void)
{
	static const struct {
		const char *line, *why;
	} rows[] = {
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{"
		  "\"protocolVersion\":\"1999\"}}",
		    "no version of MCP" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[]}",
		    "no version of MCP" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1,"
		  "\"message\":\"no\"}}",
		    "refused initialize: no" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\","
		  "\"params\":{}}",
		    "sends back what it is told: it is no MCP server" },
	};
	struct told t;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		open_ready(rows[i].line);
		tap_ok(worker_state(w) == WORKER_FAILED &&
			view_search(worker_why(w), view_str(rows[i].why)) <
			    worker_why(w).n,
		    "%s", rows[i].why);
		world_close();
	}
	open_ready(
	    "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601}}");
	tap_ok(worker_state(w) == WORKER_READY && worker_initialized(w).n == 0,
	    "one that knows no initialize has tools all the same");
	world_close();
	open_ready("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{"
		   "\"protocolVersion\":\"2025-03-26\"}}");
	(void)!call(&t, WORKER_MCP, "{\"id\":1,\"method\":\"x\"}");
	turn(0);
	say("[{\"jsonrpc\":\"2.0\",\"method\":\"n\"},"
	    "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]");
	answer(&t, WORKER_OK, NULL, "a version that has batches");
	tap_is_int(t.messages, 1, "all of it is read");
	say("[{\"jsonrpc\":\"2.0\",\"method\":\"n\"},1]");
	tap_is_int(worker_state(w), WORKER_FAILED, "or refused");
	world_close();
}

static void
test_ends(void)
{
	struct buf long_line = BUF_INIT(WORKER_LINE_MAX + 2);
	struct buf b = BUF_INIT(256);
	int i;

	world_open();
	world_started();
	(void)!write(its_err, "last words", 10);
	turn(1);
	world_exited(SANDBOX_END_EXIT, 3);
	tap_ok(view_eq(worker_why(w), VIEW("it ended: exit status 3")) &&
		view_eq(worker_stderr(w), VIEW("last words")),
	    "it ends before it is ready");
	world_close();
	open_ready(HELLO);
	say_bytes(VIEW("{\"jsonrpc\""));
	world_exited(SANDBOX_END_SIGNAL, 9);
	tap_ok(view_eq(worker_why(w),
		   VIEW("it ended: signal 9, in the middle of a line")),
	    "in the middle of a line");
	world_close();
	open_ready(HELLO);
	fd_close(&its_out);
	for (i = 0; i < 1000 && worker_state(w) != WORKER_FAILED; i++)
		turn(5);
	tap_ok(view_eq(worker_why(w), VIEW("it closed its standard output")),
	    "it closes its output and lives");
	world_close();
	open_ready(HELLO);
	if (buf_reserve(&long_line, WORKER_LINE_MAX + 1) == SP_OK) {
		memset(buf_tail(&long_line), 'x', WORKER_LINE_MAX + 1);
		buf_grow(&long_line, WORKER_LINE_MAX + 1);
	}
	say_bytes(buf_view(&long_line));
	tap_ok(view_search(worker_why(w), VIEW("longer than 16777216")) <
		worker_why(w).n,
	    "a line that is too long");
	world_close();
	buf_clear(&long_line);
	world_open();
	world_place(&b);
	put_u32(&b, sent.handle);
	put_u8(&b, SANDBOX_STAGE_EXEC);
	put_u32(&b, ENOENT);
	put_bytes(&b, VIEW("/bin/worker"));
	(void)!world_hear(MESSAGE_PROCESS_NOT_STARTED, &b, -1);
	turn(0);
	tap_ok(view_starts(worker_why(w), VIEW("it could not be started")),
	    "it does not start");
	world_close();
	sent.fail = 0;
}

static void
test_input(void)
{
	struct buf big = BUF_INIT(32 << 20);
	struct told t;
	size_t n = 0;
	const char *got;
	int i;

	open_ready(HELLO);
	(void)!buf_add_str(&big, "{\"a\":\"");
	if (buf_reserve(&big, 6 << 20) == SP_OK) {
		memset(buf_tail(&big), 'y', 6 << 20);
		buf_grow(&big, 6 << 20);
	}
	(void)!buf_add(&big, "\"}", 3);
	tap_is_int(call(&t, WORKER_STEP, buf_view(&big).p), SP_OK,
	    "a large one");
	for (i = 0; i < 2000 && n < buf_len(&big); i++) {
		got = heard();
		n += strlen(got);
	}
	tap_ok(n > buf_len(&big), "arrives whole");
	say("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	answer(&t, WORKER_OK, NULL, "and is answered");
	buf_clear(&big);
	if (buf_reserve(&big, 17 << 20) == SP_OK) {
		memset(buf_tail(&big), ' ', 17 << 20);
		buf_grow(&big, 17 << 20);
	}
	(void)!buf_add(&big, "{}", 3);
	tap_is_int(call(&t, WORKER_STEP, buf_view(&big).p), SP_OK, "more");
	answer(&t, WORKER_ERROR, NULL, "than it can be told");
	buf_clear(&big);
	world_close();
}

static void
test_events(void)
{
	struct buf line = BUF_INIT(70000);

	open_ready(HELLO);
	buf_reset(&events_told, 0);
	(void)!write(its_events, "{\"a\":1}\nnone\n[1]\n{\"b\"", 21);
	turn(1);
	(void)!write(its_events, ":2}\n", 4);
	turn(1);
	tap_is_mem(buf_view(&events_told).p, buf_len(&events_told),
	    "{\"a\":1}-2 malformed-{\"b\":2}", 27,
	    "events are objects, the rest is not, and the first is told");
	if (buf_reserve(&line, 66000) == SP_OK) {
		memset(buf_tail(&line), 'x', 66000);
		buf_grow(&line, 66000);
	}
	buf_reset(&events_told, 0);
	tap_ok(write(its_events, buf_view(&line).p, 60000) == 60000, "a line");
	turn(1);
	(void)!write(its_events, buf_view(&line).p, 6000);
	(void)!write(its_events, "\n{\"c\":3}\n", 9);
	turn(1);
	tap_is_mem(buf_view(&events_told).p, buf_len(&events_told),
	    "-1 too large-{\"c\":3}", 20,
	    "one that is too long is passed over, and told with the next");
	buf_reset(&events_told, 0);
	(void)!write(its_events, "x\n{\"d\"", 7);
	turn(1);
	tap_is_int((long)buf_len(&events_told), 0, "one more can wait");
	world_exited(SANDBOX_END_EXIT, 0);
	tap_is_mem(buf_view(&events_told).p, buf_len(&events_told),
	    "-2 malformed-", 13, "to the end, which half a line is part of");
	buf_clear(&line);
	world_close();
}

/* ---- frames --------------------------------------------------------------- */

#define READY "{\"result\":{\"ready\":true}}"

static void
test_frames(void)
{
	struct told t;

	world_open();
	world_started();
	tap_is_str(heard(),
	    "{\"factory\":\"m:f\",\"action_class\":\"m:c\","
	    "\"agent_policy\":null}\n",
	    "the first line");
	say(READY);
	tap_is_int(worker_state(w), WORKER_READY, "it is ready");
	(void)!call(&t, WORKER_STEP, "{\"x\": 1}");
	turn(0);
	tap_is_str(heard(), "{\"operation\":\"step\",\"data\":{\"x\": 1}}\n",
	    "a step");
	buf_reset(&events_told, 0);
	say("{\"event\":{\"e\":1}}");
	tap_is_mem(buf_view(&events_told).p, buf_len(&events_told), "{\"e\":1}",
	    7, "an event");
	say("{\"result\":{\"observation\":2}}");
	answer(&t, WORKER_OK, "{\"observation\":2}", "its answer");
	(void)!call(&t, WORKER_MCP, "{\"id\":\"q\",\"method\":\"x\"}");
	turn(0);
	tap_is_str(heard(),
	    "{\"operation\":\"mcp\",\"data\":{\"id\":\"q\",\"method\":\"x\"}}"
	    "\n",
	    "mcp");
	say("{\"result\":{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}}");
	answer(&t, WORKER_OK,
	    "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{}}",
	    "under the caller's id");
	(void)!call(&t, WORKER_RESET, "{}");
	turn(0);
	say("{\"error\":\"environment operation f\\u0061iled\"}");
	answer(&t, WORKER_ERROR, "environment operation failed", "an error");
	(void)!call(&t, WORKER_MCP, "{\"id\":1,\"method\":\"x\"}");
	turn(0);
	say("{\"result\":{\"jsonrpc\":\"2.0\"}}");
	answer(&t, WORKER_GONE, NULL, "a result of mcp that is no response");
	world_close();
}

static void
test_frames_bad(void)
{
	static const char *const first[] = { "{}", "{\"event\":{}}",
		"{\"result\":{\"ready\":false}}", "{\"result\":{}}", "x",
		"{\"error\":\"e\"}", "{\"result\":{\"ready\":true,\"x\":1}}" };
	static const char *const later[] = { "{\"result\":[]}",
		"{\"result\":{},\"error\":\"e\"}", "{\"error\":{}}",
		"{\"event\":1}", "{\"other\":{}}", "x",
		"{\"result\":{}}\n{\"result\":{}}" };
	struct told t;
	size_t i;

	for (i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		open_ready(first[i]);
		tap_is_int(worker_state(w), WORKER_FAILED, first[i]);
		world_close();
	}
	for (i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
		open_ready(READY);
		(void)!call(&t, WORKER_STEP, "{}");
		turn(0);
		say(later[i]);
		tap_is_int(worker_state(w), WORKER_FAILED, later[i]);
		turn(0);
		tap_is_int(t.n, 1, "and told");
		world_close();
	}
	open_ready(READY);
	say("{\"result\":{}}");
	tap_is_int(worker_state(w), WORKER_FAILED, "an answer to nothing");
	world_close();
}

/* ---- memory --------------------------------------------------------------- */

static void
conversation(const char *hello, const char *reply)
{
	struct told t = { 0 };
	int rc;

	world_open();
	if (w == NULL)
		return;
	world_started();
	(void)heard();
	say(hello);
	(void)heard();
	rc = call(&t, WORKER_MCP,
	    "{\"id\":\"a\",\"method\":\"x\",\"params\":"
	    "{\"_meta\":{\"progressToken\":1}}}");
	turn(0);
	say("{\"jsonrpc\":\"2.0\",\"id\":\"m\",\"method\":\"sampling/x\"}");
	if (worker_state(w) == WORKER_READY)
		(void)!worker_tell(w, t.call,
		    VIEW("{\"jsonrpc\":\"2.0\",\"id\":\"m\",\"result\":{}}"));
	say(reply);
	turn(1);
	if (rc == SP_OK && t.call != NULL)
		worker_forget(t.call, VIEW("\"gone\""));
	turn(0);
}

static void
test_memory(const char *hello, const char *reply)
{
	unsigned long n, before;

	for (n = 1; n < 400; n++) {
		before = mem_count();
		mem_fail_after(n, 0);
		conversation(hello, reply);
		mem_fail_after(0, 0);
		world_close();
		if (mem_count() - before < n)
			break;
	}
	tap_ok(n > 10 && n < 400, "memory that fails, %lu times", n);
}

int
main(void)
{
	if (world_init(CONF_ENV_WORKER_STDIO) != 0)
		return 1;
	test_hello();
	test_bytes();
	test_requests();
	test_watch();
	test_env();
	test_bad();
	test_hello_bad();
	test_ends();
	test_input();
	test_events();
	test_memory(HELLO, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	environment.worker = CONF_ENV_WORKER_FRAMES;
	test_frames();
	test_frames_bad();
	test_memory(READY,
	    "{\"result\":{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}}");
	world_fini();
	buf_clear(&its_input);
	return tap_done();
}
