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
	    .doc = "What records the calls of sessions that are created "
		   "here; its trace must have\n$session in its name.",
	    .def_doc = "the first capture of the configuration" },
	{ .name = "door",
	    .scopes = CONF_LOCATION,
	    .type = CONF_STRING,
	    .offset = SESSIONS(door),
	    .args = "PATH | URL",
	    .doc = "Where the model door is, for the base_url of an answer: a "
		   "path on the host\nthat was asked, at an llm_intercept "
		   "location of this server, or a whole URL;\n$session "
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

static bool
allows_capture(const struct sessions_conf *c)
{
	size_t i;

	for (i = 0; i < c->overrides.n; i++)
		if (view_eq(c->overrides.v[i], VIEW("capture")))
			return true;
	return false;
}

static bool
mixes(const struct conf_capture *c)
{
	return view_search(c->trace_name, VIEW("$session")) == c->trace_name.n;
}

/* Without one of its own the first is meant, unless a request names another. */
static int
check_capture(struct conf_parse *p, const struct sessions_conf *c)
{
	const struct conf *conf = conf_current(p);
	const struct conf_capture *first = c->capture;

	if (conf_current_location(p)->server->control)
		return 0;
	if (first == NULL && conf->captures_n > 0 && !allows_capture(c))
		first = conf->captures[0];
	if (conf->captures_n == 0)
		return conf_error(p,
		    "sessions without a capture; expected a block \"capture "
		    "NAME { ... }\"");
	if (first != NULL && mixes(first))
		return conf_error(p,
		    "capture \"%.*s\" mixes sessions in one trace; expected "
		    "$session in its \"trace\"%s",
		    VIEW_ARG(first->name),
		    c->capture == NULL ? ", or another \"capture\" here" : "");
	return 0;
}

/* Whose requests of that path are, of the same server; NULL: nobody's. */
static const struct conf_location *
location_of(const struct conf_server *s, struct view path)
{
	const struct conf_location *best = NULL;
	size_t i;

	for (i = 0; i < s->locations_n; i++)
		if (conf_path_beneath(path, s->locations[i]->path) &&
		    (best == NULL || s->locations[i]->path.n > best->path.n))
			best = s->locations[i];
	return best;
}

static int
check_door(struct conf_parse *p, const struct sessions_conf *c)
{
	const struct conf_location *at;

	if (c->door.n == 0 || view_starts(c->door, VIEW("http://")) ||
	    view_starts(c->door, VIEW("https://")))
		return 0;
	if (c->door.p[0] != '/')
		return conf_error(p,
		    "bad door \"%.*s\"; expected a path like /v1, or a URL",
		    VIEW_ARG(c->door));
	at = location_of(conf_current_location(p)->server, c->door);
	if (at == NULL || strcmp(at->handler->name, "llm_intercept") != 0)
		return conf_error(p,
		    "door \"%.*s\" leads to no model door of this server; "
		    "expected a path at one of its llm_intercept locations, or "
		    "a whole URL",
		    VIEW_ARG(c->door));
	return 0;
}

static int
check(struct conf_parse *p, void *conf)
{
	const struct sessions_conf *c = conf;
	size_t i;
	int rc;

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
	rc = check_door(p, c);
	return rc == 0 ? check_capture(p, c) : rc;
}

const struct conf_module sessions_conf = {
	.name = "sessions",
	.directives = rows,
	.control = "/sessions",
	.conf_size = sizeof(struct sessions_conf),
	.check = check,
};
