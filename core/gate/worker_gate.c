#include "config.h"

#include "gate/worker_gate.h"

#include "gate/feed.h"
#include "gate/gate_priv.h"
#include "gate/worker_priv.h"
#include "json/jwrite.h"

enum {
	WORKER_GATE_EVENT_MAX = WORKER_LINE_MAX + 64,
	/* a request, and an answer with its caller's id in it */
	WORKER_GATE_TOLD_MAX = 3 * WORKER_LINE_MAX + 4096,
};

/* Of a live episode it is the same in every generation. */
static const struct conf_environment *
worker_gate_environment(void *arg, const struct episode *ep)
{
	const struct gate *g = arg;

	return conf_env_find(gate_conf(g), view_str(ep->env));
}

static void
worker_gate_event(void *arg, struct episode *ep, struct view json)
{
	struct buf b = BUF_INIT(WORKER_GATE_EVENT_MAX);
	struct feed *f = feed_of(ep);

	(void)arg;
	if (f == NULL)
		return;
	if (buf_printf(&b, "{\"source\":\"workload\",\"event\":") == SP_OK &&
	    buf_add_view(&b, json) == SP_OK && buf_add_char(&b, '}') == SP_OK)
		feed_add(f, FEED_HARNESS, buf_view(&b));
	else
		feed_add_gap(f, FEED_HARNESS, 1, "memory");
	buf_clear(&b);
}

/*
 * Source: openenvd: {"source":"daemon","operation":..,"request":..,"response"};
 * who asked, and what went wrong, are ours.
 */
static int
worker_gate_put(const struct worker_told *t, struct buf *b)
{
	static const char *const names[] = {
		[WORKER_ORCHESTRATORS] = "orchestrator",
		[WORKER_AGENTS] = "agent",
		[WORKER_GRADERS] = "grader",
		[WORKER_OPERATORS] = "operator",
	};
	struct jwrite message;
	int rc;

	rc = buf_printf(b,
	    "{\"source\":\"daemon\",\"operation\":\"%s\","
	    "\"principal\":\"%s\",\"request\":",
	    t->step ? "step" : "mcp", names[t->whose]);
	if (rc == SP_OK)
		rc = buf_add_view(b, t->request);
	if (rc == SP_OK)
		rc = buf_add_str(b, ",\"response\":");
	if (rc == SP_OK && t->code == NULL)
		rc = buf_add_view(b, t->body);
	if (rc == SP_OK && t->code != NULL) {
		rc = buf_printf(b,
		    "null,\"error\":{\"code\":\"%s\",\"message\":", t->code);
		jwrite_init(&message, b);
		jwrite_string(&message, t->body);
		if (rc == SP_OK)
			rc = jwrite_finish(&message);
		if (rc == SP_OK)
			rc = buf_add_char(b, '}');
	}
	return rc == SP_OK ? buf_add_char(b, '}') : rc;
}

/* As it is: feed_add() makes it strict, and tells what cannot be. */
static void
worker_gate_told(void *arg, struct episode *ep, const struct worker_told *t)
{
	struct buf b = BUF_INIT(WORKER_GATE_TOLD_MAX);
	struct feed *f = feed_of(ep);

	(void)arg;
	if (f == NULL)
		return;
	if (worker_gate_put(t, &b) == SP_OK)
		feed_add(f, FEED_HARNESS, buf_view(&b));
	else
		feed_add_gap(f, FEED_HARNESS, 1, "memory");
	buf_clear(&b);
}

static void
worker_gate_lost(void *arg, struct episode *ep, uint64_t n, const char *reason)
{
	(void)arg;
	feed_add_gap(feed_of(ep), FEED_HARNESS, n, reason);
}

int
worker_gate_new(struct gate *g, struct worker_set **out)
{
	const struct worker_world w = {
		.loop = g->loop,
		.environment = worker_gate_environment,
		.event = worker_gate_event,
		.told = worker_gate_told,
		.lost = worker_gate_lost,
		.arg = g,
	};

	*out = worker_set_new(&w);
	return *out != NULL ? SP_OK : SP_E_NOMEM;
}
