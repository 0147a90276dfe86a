/* The observer's door's directives: data, linked by every program. */
#include "observe_conf.h"

#define OBSERVE(field) offsetof(struct observe_conf, field)

static const struct conf_directive rows[] = {
	{ .name = "observe",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "The observer's door: what happens in an episode, from its "
		   "start and then live,\nas server-sent events or over a "
		   "WebSocket.\nIt needs a token." },
	CONF_ENVIRONMENT_ROW(struct observe_conf, environment, CONF_REQUIRED,
	    "The environment whose episodes are observed."),
	{ .name = "stream",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .flags = CONF_REPEATS,
	    .offset = OBSERVE(stream),
	    .args = "harness_events | fs_diff | process | network | resource | "
		    "model ...",
	    .doc = "What is shown.\nWhat was lost is told whatever is named "
		   "here.",
	    .def_doc = "nothing" },
	{ .name = "slow_timeout",
	    .scopes = CONF_LOCATION,
	    .type = CONF_DURATION,
	    .offset = OBSERVE(slow_ms),
	    .min = 100,
	    .max = 3600ULL * 1000,
	    .def = "20s",
	    .args = "TIME",
	    .doc = "An observer that takes nothing for so long, while there "
		   "is something for it,\nis dropped." },
	CONF_PING_ROW(struct observe_conf, ping_ms),
	{ .name = NULL },
};

static bool
is_stream(struct view v)
{
	static const char *const names[] = { "harness_events", "fs_diff",
		"process", "network", "resource", "model", NULL };
	size_t i;

	for (i = 0; names[i] != NULL; i++)
		if (view_eq(v, view_str(names[i])))
			return true;
	return false;
}

static int
check(struct conf_parse *p, void *conf)
{
	const struct observe_conf *c = conf;
	size_t i, j;

	if (conf_current_location(p)->token == NULL)
		return conf_error(p,
		    "observe shows what agents do; expected a \"token\"");
	for (i = 0; i < c->stream.n; i++) {
		if (!is_stream(c->stream.v[i]))
			return conf_error(p,
			    "unknown stream \"%.*s\"; expected "
			    "harness_events, fs_diff, process, network, "
			    "resource or model",
			    VIEW_ARG(c->stream.v[i]));
		for (j = 0; j < i; j++)
			if (view_eq(c->stream.v[i], c->stream.v[j]))
				return conf_error(p,
				    "duplicate stream \"%.*s\"; expected each "
				    "once",
				    VIEW_ARG(c->stream.v[i]));
	}
	return 0;
}

const struct conf_module observe_conf = {
	.name = "observe",
	.directives = rows,
	.principal = "observer",
	.conf_size = sizeof(struct observe_conf),
	.check = check,
};
