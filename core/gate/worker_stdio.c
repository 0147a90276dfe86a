/* worker stdio: an MCP server on standard input and output. */
#include "config.h"

#include "base/mem.h"
#include "gate/worker_mcp.h"
#include "gate/worker_pipe.h"

struct worker_stdio {
	struct worker_back back; /* first */
	struct worker_pipe pipe;
	struct worker_mcp mcp;
};

static struct worker_stdio *
stdio_of(struct worker_back *b)
{
	return (struct worker_stdio *)b;
}

static void
stdio_on_line(struct worker_back *b, struct view line)
{
	worker_mcp_feed(&stdio_of(b)->mcp, line);
}

static int
stdio_carry(struct worker_back *b, struct view json)
{
	return worker_pipe_send(&stdio_of(b)->pipe, json);
}

static void
stdio_stop(struct worker_back *b)
{
	worker_pipe_stop(&stdio_of(b)->pipe);
}

static void
stdio_free(struct worker_back *b)
{
	worker_mcp_clear(&stdio_of(b)->mcp);
	worker_pipe_clear(&stdio_of(b)->pipe);
	mem_free(b);
}

static struct worker_back *
stdio_start(struct worker *w, const struct conf_environment *env)
{
	struct worker_stdio *s = mem_calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return NULL;
	s->back.ops = &worker_stdio_backend;
	s->back.w = w;
	worker_mcp_init(&s->mcp, &s->back, stdio_carry);
	rc = worker_pipe_start(&s->pipe, &s->back, env, stdio_on_line);
	if (rc == SP_OK)
		rc = worker_mcp_start(&s->mcp);
	if (rc == SP_OK)
		return &s->back;
	stdio_stop(&s->back);
	stdio_free(&s->back);
	worker_fail(w, WORKER_GONE, "it cannot be started: %s", err_str(rc));
	return NULL;
}

static int
stdio_send(struct worker_back *b, struct worker_call *c)
{
	return worker_mcp_call(&stdio_of(b)->mcp, c);
}

static bool
stdio_cancel(struct worker_back *b, struct worker_call *c, struct view reason)
{
	struct worker_mcp *m = &stdio_of(b)->mcp;

	if (!worker_mcp_cancel(m, c, reason))
		return false;
	worker_mcp_ping(m, c);
	return true;
}

static void
stdio_over(struct worker_back *b, const struct worker_call *c, bool forgotten)
{
	worker_mcp_over(&stdio_of(b)->mcp, c, forgotten);
}

static int
stdio_tell(struct worker_back *b, const struct worker_call *c, struct view json)
{
	return worker_mcp_tell(&stdio_of(b)->mcp, c, json);
}

static uint64_t
stdio_owed(const struct worker_back *b)
{
	return worker_mcp_owed(&((const struct worker_stdio *)b)->mcp);
}

static void
stdio_lapse(struct worker_back *b, uint64_t now_ms)
{
	worker_mcp_lapse(&stdio_of(b)->mcp, now_ms);
}

static void
stdio_hold(struct worker_back *b, bool on)
{
	worker_pipe_hold(&stdio_of(b)->pipe, on);
}

const struct worker_backend worker_stdio_backend = {
	.start = stdio_start,
	.send = stdio_send,
	.cancel = stdio_cancel,
	.over = stdio_over,
	.tell = stdio_tell,
	.owed = stdio_owed,
	.lapse = stdio_lapse,
	.hold = stdio_hold,
	.stop = stdio_stop,
	.free = stdio_free,
};
