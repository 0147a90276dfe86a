/* What the gate does when memory is short, and what it says of it. */
#include "config.h"

#include "base/mem.h"
#include "gate/gate_priv.h"

enum {
	MEMORY_SHED_IDLE = 64, /* idle connections that are closed at once */
};

/* Where it is; what is left of all of it is "other". */
enum memory_part {
	MEMORY_BODIES,
	MEMORY_REPLIES,
	MEMORY_RECORDER,
	MEMORY_HTTP2,
	MEMORY_TLS,
	MEMORY_OTHER,
	MEMORY_PARTS
};

static void
memory_on_tight(void *arg, bool tight)
{
	struct gate *g = arg;

	g->tight = tight;
	gate_listeners_arm(g);
	/* whoever reads finds out that it is short; that it is not, hardly */
	if (!tight)
		walk_relieve(g);
}

static unsigned
memory_on_shed(void *arg, size_t bytes)
{
	struct gate *g = arg;
	unsigned n = walk_shed(g, bytes);

	*g->memory_ended[0] += n;
	if (n > 0)
		return n;
	n = front_shed(g->front, MEMORY_SHED_IDLE);
	*g->memory_ended[1] += n;
	return n;
}

static void
memory_collect(void *arg)
{
	struct gate *g = arg;
	struct admission_stats st;
	uint64_t named = 0;
	unsigned i;

	admission_stats(g->admission, &st);
	*g->memory[MEMORY_BODIES] = st.body_bytes;
	*g->memory[MEMORY_REPLIES] = front_queued(g->front);
	*g->memory[MEMORY_RECORDER] = turn_recorder_backlog(g->recorder);
	*g->memory[MEMORY_HTTP2] = mem_live_for(MEM_HTTP2);
	*g->memory[MEMORY_TLS] = mem_live_for(MEM_TLS);
	for (i = 0; i < MEMORY_OTHER; i++)
		named += *g->memory[i];
	*g->memory[MEMORY_OTHER] = mem_live() > named ? mem_live() - named : 0;
	*g->memory_max = pressure_max(g->pressure);
	*g->memory_level = pressure_level(g->pressure);
}

static int
memory_parts(struct gate *g)
{
	static const char *const labels[] = { "part", NULL };
	static const struct view parts[MEMORY_PARTS] = {
		[MEMORY_BODIES] = { "bodies", 6 },
		[MEMORY_REPLIES] = { "replies", 7 },
		[MEMORY_RECORDER] = { "recorder", 8 },
		[MEMORY_HTTP2] = { "http2", 5 },
		[MEMORY_TLS] = { "tls", 3 },
		[MEMORY_OTHER] = { "other", 5 },
	};
	struct metric *m =
	    metrics_register(g->metrics, METRICS_GAUGE, "memory_bytes",
		"Memory of the process, by what it is for", labels, NULL);
	unsigned i;

	_Static_assert((int)MEMORY_PARTS == (int)GATE_MEMORY_PARTS, "cells");
	for (i = 0; m != NULL && i < MEMORY_PARTS; i++)
		g->memory[i] = metrics_cell(m, &parts[i]);
	return m != NULL ? SP_OK : SP_E_NOMEM;
}

static int
memory_metrics(struct gate *g)
{
	static const char *const labels[] = { "kind", NULL };
	const struct view kinds[] = { VIEW("calls"), VIEW("connections") };
	struct metric *max, *level, *ended;

	max = metrics_register(g->metrics, METRICS_GAUGE, "memory_max_bytes",
	    "Most memory that the process may have: memory_max", NULL, NULL);
	level = metrics_register(g->metrics, METRICS_GAUGE, "memory_pressure",
	    "0 none, 1 requests are refused, 2 nothing is read, 3 at the most",
	    NULL, NULL);
	ended = metrics_register(g->metrics, METRICS_COUNTER, "memory_ended",
	    "What was ended because memory was short", labels, NULL);
	if (max == NULL || level == NULL || ended == NULL)
		return SP_E_NOMEM;
	g->memory_max = metrics_cell(max, NULL);
	g->memory_level = metrics_cell(level, NULL);
	g->memory_ended[0] = metrics_cell(ended, &kinds[0]);
	g->memory_ended[1] = metrics_cell(ended, &kinds[1]);
	return metrics_on_collect(g->metrics, memory_collect, g);
}

int
memory_init(struct gate *g, uint64_t max)
{
	const struct pressure_owner owner = { memory_on_tight, memory_on_shed,
		g };
	int rc;

	g->pressure = pressure_new(g->loop, &owner);
	if (g->pressure == NULL)
		return SP_E_NOMEM;
	pressure_set(g->pressure, max);
	rc = memory_parts(g);
	return rc == SP_OK ? memory_metrics(g) : rc;
}
