/* The model door's directives: data, linked by every program. */
#include "llm_intercept_conf.h"

#define LLM(field) offsetof(struct llm_intercept_conf, field)

static const char *const keys[] = { "open", "session", "auto", NULL };
static const char *const off[] = { "off", NULL };

static int
add_pass(struct conf_parse *p, struct llm_intercept_conf *c, struct view path)
{
	size_t i;

	for (i = 0; i < c->pass.n; i++) {
		if (view_eq(c->pass.v[i], path))
			return conf_error(p,
			    "duplicate path \"%.*s\" in pass; expected each "
			    "once",
			    VIEW_ARG(path));
	}
	c->pass.v[c->pass.n++] = path;
	return 0;
}

/* One path, normalised as requests' are. */
static int
pass_one(struct conf_parse *p, struct llm_intercept_conf *c, struct view arg)
{
	struct buf path = BUF_INIT(4096);
	struct view v;
	char *mem;
	int rc;

	rc = view_find(arg, '?') < arg.n ? SP_E_SYNTAX
					 : conf_path_normalise(arg, &path);
	v = buf_view(&path);
	if (rc == 0 && v.p != NULL) {
		mem = conf_alloc(p, v.n);
		rc = mem == NULL ? SP_E_NOMEM : 0;
		if (mem != NULL) {
			memcpy(mem, v.p, v.n);
			rc = add_pass(p, c, view_of(mem, v.n));
		}
	} else if (rc != SP_E_NOMEM) {
		rc = conf_error(p,
		    "bad path \"%.*s\" in pass; expected paths like "
		    "/v1/embeddings",
		    VIEW_ARG(arg));
	}
	buf_clear(&path);
	return rc;
}

static int
parse_pass(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct llm_intercept_conf *c = base;
	size_t i;
	int rc = 0;

	(void)row;
	c->pass.v = conf_alloc(p, (n - 1) * sizeof(*c->pass.v));
	if (c->pass.v == NULL)
		return SP_E_NOMEM;
	for (i = 1; i < n && rc == 0; i++)
		rc = pass_one(p, c, args[i]);
	return rc;
}

static int
dump_pass(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct llm_intercept_conf *c = base;
	size_t i;
	int rc;

	if (c->pass.n == 0)
		return 0;
	rc = buf_printf(out, "%s%s", indent, row->name);
	/* Quoted: a path may hold a ";". */
	for (i = 0; i < c->pass.n && rc == 0; i++)
		rc = buf_printf(out, " \"%.*s\"", VIEW_ARG(c->pass.v[i]));
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

static const struct conf_directive rows[] = {
	{ .name = "llm_intercept",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "The model door: OpenAI chat completions, sent on to an "
		   "upstream and captured." },
	{ .name = "upstream",
	    .scopes = CONF_LOCATION,
	    .type = CONF_REF,
	    .flags = CONF_REQUIRED,
	    .offset = LLM(upstream),
	    .ref = CONF_UPSTREAM,
	    .args = "NAME",
	    .doc = "The upstream that calls go to." },
	{ .name = "capture",
	    .scopes = CONF_LOCATION,
	    .type = CONF_REF,
	    .flags = CONF_REQUIRED,
	    .offset = LLM(capture),
	    .ref = CONF_CAPTURE,
	    .choices = off,
	    .args = "NAME | off",
	    .doc = "What is recorded of calls; with off nothing is.\nOff needs "
		   "keys open: the budget of a session is counted by what is "
		   "recorded." },
	{ .name = "keys",
	    .scopes = CONF_LOCATION,
	    .type = CONF_CHOICE,
	    .offset = LLM(keys),
	    .choices = keys,
	    .def = "auto",
	    .args = "open | session | auto",
	    .doc = "Who may call: only the key of a session, or anyone.\n"
		   "Calls without such a key then belong to the session "
		   "default,\ninside an episode to the one of its id.\n"
		   "With auto it is open inside episodes, and session "
		   "elsewhere." },
	{ .name = "session_path",
	    .scopes = CONF_LOCATION,
	    .type = CONF_ONOFF,
	    .offset = LLM(session_path),
	    .def = "off",
	    .doc = "Paths hold a session's id behind the location, as in "
		   "/ID/v1/chat/completions.\nIt opens nothing: it must be "
		   "that of the key." },
	{ .name = "pass",
	    .scopes = CONF_LOCATION,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 64,
	    .parse = parse_pass,
	    .dump = dump_pass,
	    .args = "PATH ...",
	    .doc = "Other paths beneath the location that are sent on as "
		   "they are, recorded as\nnot captured." },
	{ .name = "keepalive_comment",
	    .scopes = CONF_LOCATION,
	    .type = CONF_DURATION,
	    .offset = LLM(keepalive_comment_ms),
	    .max = 86400000,
	    .def = "off",
	    .args = "TIME | off",
	    .doc = "How often a comment is put into a stream that is "
		   "silent." },
	{ .name = NULL },
};

/* A path that no request can reach is an error, not a surprise. */
static int
check(struct conf_parse *p, void *conf)
{
	struct llm_intercept_conf *c = conf;
	const struct conf_location *loc = conf_current_location(p);
	size_t i;

	/* whose call it is, the listener inside says */
	if (c->keys == LLM_KEYS_AUTO)
		c->keys = loc->server->environment != NULL ? LLM_KEYS_OPEN
							   : LLM_KEYS_SESSION;
	for (i = 0; i < c->pass.n; i++) {
		if (!conf_path_beneath(c->pass.v[i], loc->path))
			return conf_error(p,
			    "pass \"%.*s\" is out of reach; expected a path "
			    "beneath location \"%.*s\"",
			    VIEW_ARG(c->pass.v[i]), VIEW_ARG(loc->path));
	}
	/* the trace is what a session's budget is counted by */
	if (c->keys == LLM_KEYS_SESSION && c->capture == NULL)
		return conf_error(p,
		    "capture off in location \"%.*s\" with keys session: calls "
		    "and tokens of a session are not counted there; expected "
		    "a capture, or \"keys open\"",
		    VIEW_ARG(loc->path));
	if (c->keys == LLM_KEYS_SESSION && c->capture != NULL &&
	    view_search(c->capture->trace_name, VIEW("$session")) ==
		c->capture->trace_name.n)
		return conf_error(p,
		    "keys session with capture \"%.*s\" mixes sessions in "
		    "one trace; expected $session in its \"trace\"",
		    VIEW_ARG(c->capture->name));
	return 0;
}

const struct conf_module llm_intercept_conf = {
	.name = "llm_intercept",
	.directives = rows,
	.inside = true,
	.conf_size = sizeof(struct llm_intercept_conf),
	.check = check,
};
