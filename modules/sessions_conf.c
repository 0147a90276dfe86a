/* The directives of /sessions: data, linked by every program. */
#include "sessions_conf.h"

#define SESSIONS(field) offsetof(struct sessions_conf, field)

static const char *const words[] = { "sampling", "upstream", "model", "capture",
	NULL };

static const struct conf_directive rows[] = {
	{ .name = "sessions",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "Sessions of the model door: created, listed, read and "
		   "ended with HTTP.\nIt needs a token." },
	{ .name = "capture",
	    .scopes = CONF_LOCATION,
	    .type = CONF_REF,
	    .offset = SESSIONS(capture),
	    .ref = CONF_CAPTURE,
	    .args = "NAME",
	    .doc = "What records the calls of sessions that are created here.",
	    .def_doc = "the first capture of the configuration" },
	{ .name = "door",
	    .scopes = CONF_LOCATION,
	    .type = CONF_STRING,
	    .offset = SESSIONS(door),
	    .args = "PATH | URL",
	    .doc = "Where the model door is, for the base_url of an answer: a "
		   "path on the host\nthat was asked, or a whole URL; $session "
		   "stands for the id.",
	    .def_doc = "the first llm_intercept location of the server" },
	{ .name = "overrides",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .flags = CONF_REPEATS,
	    .offset = SESSIONS(overrides),
	    .args = "sampling | upstream | model | capture ...",
	    .doc = "What a session may have of its own; upstream and capture "
		   "name blocks of\nthis configuration.",
	    .def_doc = "nothing" },
	{ .name = NULL },
};

static bool
is_word(struct view v)
{
	size_t i;

	for (i = 0; words[i] != NULL; i++)
		if (view_eq(v, view_str(words[i])))
			return true;
	return false;
}

static int
check(struct conf_parse *p, void *conf)
{
	const struct sessions_conf *c = conf;
	size_t i;

	if (conf_current_location(p)->token == NULL &&
	    !conf_current_location(p)->server->control)
		return conf_error(p,
		    "sessions is for the operator alone; expected a "
		    "\"token\"");
	for (i = 0; i < c->overrides.n; i++)
		if (!is_word(c->overrides.v[i]))
			return conf_error(p,
			    "bad word \"%.*s\" in overrides; expected "
			    "sampling, upstream, model or capture",
			    VIEW_ARG(c->overrides.v[i]));
	if (c->door.n > 0 && c->door.p[0] != '/' &&
	    !view_starts(c->door, VIEW("http://")) &&
	    !view_starts(c->door, VIEW("https://")))
		return conf_error(p,
		    "bad door \"%.*s\"; expected a path like /v1, or a URL",
		    VIEW_ARG(c->door));
	if (c->capture != NULL &&
	    view_search(c->capture->trace_name, VIEW("$session")) ==
		c->capture->trace_name.n)
		return conf_error(p,
		    "capture \"%.*s\" mixes sessions in one trace; expected "
		    "$session in its \"trace\"",
		    VIEW_ARG(c->capture->name));
	return 0;
}

const struct conf_module sessions_conf = {
	.name = "sessions",
	.directives = rows,
	.control = "/sessions",
	.conf_size = sizeof(struct sessions_conf),
	.check = check,
};
