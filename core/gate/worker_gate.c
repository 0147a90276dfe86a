#include "config.h"

#include "gate/worker_gate.h"

#include "gate/feed.h"
#include "gate/gate_priv.h"
#include "gate/worker_priv.h"

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
		.lost = worker_gate_lost,
		.arg = g,
	};

	*out = worker_set_new(&w);
	return *out != NULL ? SP_OK : SP_E_NOMEM;
}
