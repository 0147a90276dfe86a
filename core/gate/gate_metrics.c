/* What the gate counts by itself. */
#include "config.h"

#include "base/clock.h"
#include "base/mem.h"
#include "gate/feed_source.h"
#include "gate/gate_priv.h"
#include "gate/worker.h"
#include "os/confine.h"

enum {
	COUNTED_CREATING,
	COUNTED_RUNNING,
	COUNTED_ENDING,
	COUNTED_FAILED,
	COUNTED_WARM
};
static const char *const counted_names[] = { "creating", "running", "ending",
	"failed", "warm" };
enum { COUNTED_N = sizeof(counted_names) / sizeof(counted_names[0]) };

static unsigned
counted_as(const struct episode *ep)
{
	switch (ep->state) {
	case EPISODE_CREATING:
	case EPISODE_RESETTING:
		return COUNTED_CREATING;
	case EPISODE_LIVE:
		return ep->worker != NULL &&
			worker_state(ep->worker) == WORKER_FAILED
		    ? COUNTED_FAILED
		    : COUNTED_RUNNING;
	case EPISODE_UNCLEAN:
		return COUNTED_FAILED;
	case EPISODE_ENDING:
	case EPISODE_GONE:
		break;
	}
	return COUNTED_ENDING;
}

static uint64_t *
counted_cell(const struct gate *g, struct view environment, unsigned as)
{
	const struct view labels[] = { environment,
		view_str(counted_names[as]) };

	return metrics_cell(g->episodes_by, labels);
}

/* Each environment has its states, also those that no episode is in. */
static void
count_episodes(struct gate *g)
{
	const struct conf *c = g->current->conf;
	const struct episode *ep;
	unsigned as;
	size_t i;

	metrics_clear(g->episodes_by);
	for (i = 0; i < c->environments_n; i++)
		for (as = 0; as < COUNTED_N; as++)
			*counted_cell(g, c->environments[i]->name, as) =
			    as == COUNTED_WARM ? episode_warm_n(g->episodes,
						     c->environments[i]->name)
					       : 0;
	for (ep = episode_first(g->episodes); ep != NULL;
	     ep = LIST_NEXT(ep, link))
		metrics_inc(counted_cell(g, view_str(ep->env), counted_as(ep)));
}

static void
collect(void *arg)
{
	struct gate *g = arg;
	struct front_stats st;
	unsigned i;

	front_stats(g->front, &st);
	*g->connections = st.connections;
	*g->accepted = st.accepted;
	*g->streams = g->walks_n;
	*g->malformed = st.malformed;
	*g->h2[0] = st.h2_connections;
	*g->h2[1] = st.h2_exchanges;
	*g->h2[2] = st.h2_resets;
	for (i = 0; i < H2_FLOODS; i++)
		*g->h2_floods[i] = st.h2_floods[i];
	*g->lost_lines = access_lost(g->access);
	*g->turns_open = turn_recorder_open(g->recorder);
	*g->backlog = turn_recorder_backlog(g->recorder);
	*g->recorder_up = turn_recorder_ok(g->recorder, NULL);
	count_episodes(g);
}

void
gate_metrics_observe(void *arg, const struct turn_facts *facts)
{
	static const char *const levels[] = {
		[CONF_LEVEL_TEXT] = "text",
		[CONF_LEVEL_LOGPROBS] = "logprobs",
		[CONF_LEVEL_TOKENS] = "tokens",
	};
	struct gate *g = arg;
	const struct view labels[] = {
		facts->finish_reason.n > 0 ? facts->finish_reason
					   : VIEW("none"),
		facts->level >= 0 ? view_str(levels[facts->level])
				  : VIEW("lost"),
	};

	feed_source_turn(g->episodes, facts);
	roster_used(g->roster, facts->session, facts->tokens);
	metrics_observe_us(g->ack, NULL, facts->ack_us);
	if (!facts->ok) {
		++*g->turns_failed;
		return;
	}
	metrics_inc(metrics_cell(g->turns, labels));
	*g->tokens += facts->tokens;
}

static int
labelled(struct gate *g)
{
	static const char *const requests[] = { "module", "code", NULL };
	static const char *const operations[] = { "principal", "operation",
		"outcome", NULL };
	static const char *const episodes[] = { "environment", "state", NULL };
	static const char *const turns[] = { "finish_reason", "level", NULL };
	static const char *const role[] = { "role", NULL };
	static const char *const build[] = { "version", "confinement", NULL };
	static const double ack[] = { 0.0001, 0.00025, 0.0005, 0.001, 0.0025,
		0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 0 };
	const struct view roles[2] = { VIEW("reactor"), VIEW("recorder") };
	const struct view built[2] = { VIEW(PACKAGE_VERSION),
		confine_built() ? VIEW("on") : VIEW("off") };
	struct metric *restarts, *info;

	g->requests = metrics_register(g->metrics, METRICS_COUNTER, "requests",
	    "Requests that are over, by module and status", requests, NULL);
	g->turns = metrics_register(g->metrics, METRICS_COUNTER, "turns",
	    "Turns on file, by finish_reason and level of capture", turns,
	    NULL);
	g->ack = metrics_register(g->metrics, METRICS_HISTOGRAM,
	    "recorder_ack_seconds",
	    "From the end of a turn to the word that it is on file", NULL, ack);
	g->operations = metrics_register(g->metrics, METRICS_COUNTER,
	    "operations", "What principals did at their doors, and its outcome",
	    operations, NULL);
	g->episodes_by = metrics_register(g->metrics, METRICS_GAUGE, "episodes",
	    "Episodes by environment and how they are", episodes, NULL);
	restarts = metrics_register(g->metrics, METRICS_COUNTER, "restarts",
	    "Restarts of a role since the start", role, NULL);
	info = metrics_register(g->metrics, METRICS_GAUGE, "build_info",
	    "Always 1; what this is", build, NULL);
	if (g->requests == NULL || g->turns == NULL || g->ack == NULL ||
	    g->operations == NULL || g->episodes_by == NULL ||
	    restarts == NULL || info == NULL)
		return SP_E_NOMEM;
	g->restarts[0] = metrics_cell(restarts, &roles[0]);
	g->restarts[1] = metrics_cell(restarts, &roles[1]);
	*metrics_cell(info, built) = 1;
	return SP_OK;
}

static int
plain(struct gate *g)
{
	uint64_t *start;
	const struct {
		uint64_t **cell;
		enum metrics_kind kind;
		const char *name, *help;
	} rows[] = {
		{ &g->connections, METRICS_GAUGE, "connections_open",
		    "Client connections" },
		{ &g->accepted, METRICS_COUNTER, "connections",
		    "Client connections accepted" },
		{ &g->streams, METRICS_GAUGE, "exchanges_open",
		    "Requests that are being served" },
		{ &g->malformed, METRICS_COUNTER, "malformed_requests",
		    "Requests that were not HTTP as it must be" },
		{ &g->lost_lines, METRICS_COUNTER, "access_log_lost",
		    "Writes to the access log that failed" },
		{ &g->tokens, METRICS_COUNTER, "completion_tokens",
		    "Completion tokens of turns on file" },
		{ &g->turns_failed, METRICS_COUNTER, "turns_failed",
		    "Turns that the recorder could not write" },
		{ &g->turns_open, METRICS_GAUGE, "turns_open",
		    "Turns that the recorder has not filed yet" },
		{ &g->backlog, METRICS_GAUGE, "recorder_backlog_bytes",
		    "Bytes that the recorder has not taken yet" },
		{ &g->recorder_up, METRICS_GAUGE, "recorder_up",
		    "1 while the recorder accepts turns" },
		{ &start, METRICS_GAUGE, "process_start_time_seconds",
		    "Start of the process since 1970" },
	};
	struct metric *m;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		m = metrics_register(g->metrics, rows[i].kind, rows[i].name,
		    rows[i].help, NULL, NULL);
		if (m == NULL)
			return SP_E_NOMEM;
		*rows[i].cell = metrics_cell(m, NULL);
	}
	*start = clock_wall_us() / 1000000;
	return metrics_on_collect(g->metrics, collect, g);
}

static int
http2(struct gate *g)
{
	static const char *const kind[] = { "kind", NULL };
	static const struct {
		enum metrics_kind kind;
		const char *name, *help;
	} rows[] = {
		{ METRICS_GAUGE, "http2_connections",
		    "Client connections that speak HTTP/2" },
		{ METRICS_GAUGE, "http2_streams",
		    "Requests on them that are being served" },
		{ METRICS_COUNTER, "http2_resets",
		    "Streams that clients reset" },
	};
	struct metric *m;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		m = metrics_register(g->metrics, rows[i].kind, rows[i].name,
		    rows[i].help, NULL, NULL);
		if (m == NULL)
			return SP_E_NOMEM;
		g->h2[i] = metrics_cell(m, NULL);
	}
	m = metrics_register(g->metrics, METRICS_COUNTER, "http2_floods",
	    "HTTP/2 connections that were ended for a flood, by its kind", kind,
	    NULL);
	if (m == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < H2_FLOODS; i++) {
		struct view name =
		    view_str(h2_server_flood_name((enum h2_flood)i));

		g->h2_floods[i] = metrics_cell(m, &name);
	}
	return SP_OK;
}

int
gate_metrics_init(struct gate *g)
{
	int rc;

	g->metrics = metrics_new();
	if (g->metrics == NULL)
		return SP_E_NOMEM;
	rc = labelled(g);
	if (rc == SP_OK)
		rc = http2(g);
	if (rc == SP_OK)
		rc = plain(g);
	if (rc == SP_OK)
		rc = admission_metrics(g->admission, g->metrics);
	return rc == SP_OK ? bound_metrics(g->bound, g->metrics) : rc;
}
