/* core/gate/worker.c: what observers are told of an episode's calls. */
#include "worker_world.h"

#include <stdio.h>

#include "tap.h"

#define HELLO \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":" \
	"\"2025-11-25\",\"capabilities\":{}}}"

static void
on_done(void *arg, enum worker_result result, struct view body)
{
	struct worker_call **call = arg;

	(void)result;
	(void)body;
	*call = NULL;
}

static const struct worker_caller caller = { .done = on_done };

static struct worker_call *
call(enum worker_op op, const char *data)
{
	static struct worker_call *calls[32];
	static unsigned n;
	const struct worker_ask ask = { .op = op,
		.data = view_str(data),
		.whose = WORKER_ORCHESTRATORS };

	n = (n + 1) % 32;
	return worker_call(w, &ask, &caller, &calls[n], &calls[n]) == SP_OK
	    ? calls[n]
	    : NULL;
}

static void
is_told(const char *want, const char *what)
{
	if (!tap_ok(view_eq(buf_view(&events_told), view_str(want)), "%s",
		what))
		tap_diag("%.*s", VIEW_ARG(buf_view(&events_told)));
	buf_reset(&events_told, 1 << 20);
}

static void
told_answer(enum worker_op op, const char *data, const char *said)
{
	char line[128];

	(void)call(op, data);
	turn(0);
	snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",\"id\":%llu,%s}",
	    (unsigned long long)w->numbers, said);
	say(line);
	turn(0);
}

#define TOOL "{\"id\":9,\"method\":\"tools\\/call\"}"

static void
test_told(void)
{
	struct worker_call *t, *u;

	world_open();
	world_started();
	(void)heard();
	say(HELLO);
	(void)heard();
	buf_reset(&events_told, 1 << 20);
	told_answer(WORKER_RESET, "{}", "\"result\":{}");
	told_answer(WORKER_STATE, "", "\"result\":{}");
	told_answer(WORKER_MCP, "{\"id\":1,\"method\":\"x\"}", "\"result\":{}");
	is_told("", "no other call is told");
	told_answer(WORKER_STEP, "{\"n\":1}", "\"result\":{\"o\":2}");
	is_told("0 step {\"n\":1} ok: {\"o\":2}", "a step");
	told_answer(WORKER_STEP, "{}", "\"error\":{\"message\":\"no\"}");
	is_told("0 step {} worker_error: no", "one that is refused");
	told_answer(WORKER_MCP, TOOL, "\"error\":{}");
	is_told("0 mcp " TOOL " ok: {\"jsonrpc\":\"2.0\",\"id\":9,"
		"\"error\":{}}",
	    "a call of a tool");
	t = call(WORKER_MCP, TOOL);
	u = call(WORKER_MCP, TOOL);
	turn(0);
	worker_forget(u, VIEW_NONE);
	is_told("", "who goes before it was sent is not told");
	worker_forget(t, VIEW_NONE);
	is_told("0 mcp " TOOL " client_gone: who asked did not wait for the "
		"answer",
	    "who goes after it was");
	(void)call(WORKER_STEP, "{}");
	(void)call(WORKER_STEP, "{\"second\":1}");
	turn(0);
	worker_fail(w, WORKER_GONE, "dead");
	is_told("0 step {} worker_gone: dead", "what it dies of, and no other");
	world_close();
}

int
main(void)
{
	if (world_init(CONF_ENV_WORKER_STDIO) != 0)
		return 1;
	test_told();
	world_fini();
	buf_clear(&its_input);
	return tap_done();
}
