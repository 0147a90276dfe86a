/*
 * What a worker says, byte for byte: gate/worker_lines, worker_mcp (the first
 * byte even) and worker_frames (odd), with a call of each kind under way; of the
 * first byte 4 cancels the first of them, and 8 forgets it.
 */
#include "../unit/worker_world.h"

#include "gate/worker_rpc.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const char hello[] =
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":"
    "\"2025-03-26\"}}\n";
static const char ready[] = "{\"result\":{\"ready\":true}}\n";

static unsigned told, asked;

/* Whatever comes out of it is JSON-RPC, for whoever reads it next. */
static void
on_message(void *arg, struct view json)
{
	struct worker_rpc r;

	(void)arg;
	if (worker_rpc_read(json, &r) != SP_OK || !r.has_method)
		abort();
	if (r.id.n > 0)
		(void)!worker_tell(w, w->current,
		    VIEW("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"));
}

static void
on_done(void *arg, enum worker_result result, struct view body)
{
	bool *mcp = arg;
	struct worker_rpc r;

	told++;
	if (result != WORKER_OK)
		return;
	if (worker_rpc_object(body) != SP_OK)
		abort();
	if (*mcp &&
	    (worker_rpc_read(body, &r) != SP_OK || r.id.n == 0 ||
		!view_eq(worker_rpc_raw(&r, &r.id), VIEW("\"caller\""))))
		abort();
}

static const struct worker_caller caller = { on_message, on_done };

static struct worker_call *
ask(enum worker_op op, const char *data)
{
	static bool yes = true, no = false;
	const struct worker_ask a = { .op = op,
		.data = view_str(data),
		.whose = WORKER_AGENTS,
		.client = &yes };
	struct worker_call *c = NULL;

	asked += worker_call(w, &a, &caller, op == WORKER_MCP ? &yes : &no,
		     &c) == SP_OK;
	return c;
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static bool open;
	struct worker_call *c;
	bool frames;

	if (n == 0 || n > 60000)
		return 0;
	if (!open) {
		log_set_fd(-1);
		if (world_init(CONF_ENV_WORKER_STDIO) != 0)
			abort();
		open = true;
	}
	frames = (p[0] & 1) != 0;
	environment.worker =
	    frames ? CONF_ENV_WORKER_FRAMES : CONF_ENV_WORKER_STDIO;
	world_open();
	world_started();
	told = asked = 0;
	if ((p[0] & 2) == 0)
		say_bytes(view_str(frames ? ready : hello));
	c = ask(WORKER_MCP,
	    "{\"id\":\"caller\",\"method\":\"m\",\"params\":"
	    "{\"_meta\":{\"progressToken\":\"t\"}}}");
	(void)ask(WORKER_STEP, "{}");
	(void)ask(WORKER_STATE, "");
	turn(0);
	/* who forgets is not told */
	if ((p[0] & 4) != 0 && told == 0)
		worker_cancel(c, VIEW_NONE);
	if ((p[0] & 8) != 0 && told == 0) {
		worker_forget(c, VIEW_NONE);
		asked--;
	}
	turn(0);
	say_bytes(view_of(p + 1, n - 1));
	world_close();
	/* nobody waits for ever */
	if (told != asked)
		abort();
	return 0;
}
