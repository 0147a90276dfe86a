#include "config.h"

#include "gate/worker_gate.h"

#include "gate/feed.h"
#include "gate/gate_priv.h"
#include "gate/worker_priv.h"
#include "json/jwrite.h"

enum { WORKER_GATE_EVENT_MAX = WORKER_LINE_MAX + 64 };

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
static void
worker_gate_put(struct jwrite *w, const struct worker_told *t)
{
	static const char *const names[] = {
		[WORKER_ORCHESTRATORS] = "orchestrator",
		[WORKER_AGENTS] = "agent",
		[WORKER_GRADERS] = "grader",
		[WORKER_OPERATORS] = "operator",
	};

	jwrite_object(w);
	jwrite_key(w, "source");
	jwrite_cstr(w, "daemon");
	jwrite_key(w, "operation");
	jwrite_cstr(w, t->step ? "step" : "mcp");
	jwrite_key(w, "principal");
	jwrite_cstr(w, names[t->whose]);
	jwrite_key(w, "request");
	jwrite_span(w, t->request);
	jwrite_key(w, "response");
	if (t->code == NULL) {
		jwrite_span(w, t->body);
	} else {
		jwrite_null(w);
		jwrite_key(w, "error");
		jwrite_object(w);
		jwrite_key(w, "code");
		jwrite_cstr(w, t->code);
		jwrite_key(w, "message");
		jwrite_string(w, t->body);
		jwrite_end_object(w);
	}
	jwrite_end_object(w);
}

static void
worker_gate_told(void *arg, struct episode *ep, const struct worker_told *t)
{
	struct buf b = BUF_INIT(FEED_LOG_EVENT_MAX);
	struct feed *f = feed_of(ep);
	struct jwrite w;
	int rc;

	(void)arg;
	if (f == NULL)
		return;
	jwrite_init(&w, &b);
	worker_gate_put(&w, t);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		feed_add(f, FEED_HARNESS, buf_view(&b));
	else
		feed_add_gap(f, FEED_HARNESS, 1, feed_lost_reason(rc));
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
