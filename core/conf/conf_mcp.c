/* Static rules of the doors that speak MCP. */
#include "conf/conf_mcp.h"

#include "conf/conf_env.h"
#include "conf/parse.h"

static const char *const lifecycle[] = { "reset", "step", "state", "close" };
static const struct {
	const char *name;
	unsigned bit;
} features[] = {
	{ "resources", CONF_MCP_RESOURCES },
	{ "prompts", CONF_MCP_PROMPTS },
	{ "completions", CONF_MCP_COMPLETIONS },
	{ "logging", CONF_MCP_LOGGING },
	{ "sampling", CONF_MCP_SAMPLING },
	{ "elicitation", CONF_MCP_ELICITATION },
	{ "roots", CONF_MCP_ROOTS },
};

bool
conf_mcp_reserved(struct view tool)
{
	size_t i;

	for (i = 0; i < sizeof(lifecycle) / sizeof(lifecycle[0]); i++)
		if (view_eq(tool, view_str(lifecycle[i])))
			return true;
	return view_eq_nocase(view_sub(tool, 0, 7), VIEW("grader."));
}

/* No space and no control byte: a pattern is one word. */
static bool
is_word(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++)
		if ((unsigned char)v.p[i] <= 0x20 || v.p[i] == 0x7f)
			return false;
	return v.n > 0;
}

/* A trailing star may stand for anything, so the prefix has to tell. */
static int
check_agent_pattern(struct conf_parse *p, struct view pattern)
{
	bool star = view_ends(pattern, VIEW("*"));
	struct view prefix = view_sub(pattern, 0, pattern.n - star);
	struct view name;
	size_t i;

	for (i = 0; i < prefix.n; i++)
		if (strchr("*?[]", prefix.p[i]) != NULL)
			return conf_error(p,
			    "pattern \"%.*s\" in \"tools\" is not for agents; "
			    "expected a name, or the start of names and one "
			    "\"*\"",
			    VIEW_ARG(pattern));
	for (i = 0; i < sizeof(lifecycle) / sizeof(lifecycle[0]); i++) {
		name = view_str(lifecycle[i]);
		if (star ? view_starts(name, prefix) : view_eq(name, prefix))
			return conf_error(p,
			    "pattern \"%.*s\" in \"tools\" lets agents call "
			    "\"%s\"; expected one that does not match it",
			    VIEW_ARG(pattern), lifecycle[i]);
	}
	if (conf_mcp_reserved(prefix) ||
	    (star && view_starts(VIEW("grader."), prefix)))
		return conf_error(p,
		    "pattern \"%.*s\" in \"tools\" lets agents call what is "
		    "the grader's; expected one that matches no \"grader.\"",
		    VIEW_ARG(pattern));
	return 0;
}

/* A start and then stars: whatever begins so is matched, also a pattern. */
static bool
covers(struct view a, struct view b)
{
	struct view start = a;
	size_t i;

	while (view_ends(start, VIEW("*")))
		start.n--;
	if (start.n == a.n || !view_starts(b, start))
		return false;
	for (i = 0; i < start.n; i++)
		if (strchr("*?[", start.p[i]) != NULL)
			return false;
	return true;
}

static int
warn_covered(struct conf_parse *p, const char *name,
    const struct conf_list *patterns, size_t n)
{
	struct view b = patterns->v[n], a;
	size_t i;

	for (i = 0; i < patterns->n; i++) {
		a = patterns->v[i];
		if (i != n && covers(a, b) && (i < n || !covers(b, a)))
			return conf_warn(p, conf_node_pos(p->node),
			    "pattern \"%.*s\" in \"%s\" has no effect: "
			    "\"%.*s\" beside it matches all of it; remove one "
			    "of them",
			    VIEW_ARG(b), name, VIEW_ARG(a));
	}
	return 0;
}

static int
check_tools(struct conf_parse *p, const struct conf_mcp *m, bool agent)
{
	size_t i, j;
	int rc = 0;

	for (i = 0; i < m->tools.n && rc == 0; i++) {
		if (!is_word(m->tools.v[i]))
			rc = conf_error(p,
			    "pattern \"%.*s\" in \"tools\" is no word; "
			    "expected no spaces in it",
			    VIEW_ARG(m->tools.v[i]));
		for (j = 0; j < i && rc == 0; j++)
			if (view_eq(m->tools.v[i], m->tools.v[j]))
				rc = conf_error(p,
				    "duplicate pattern \"%.*s\" in \"tools\"; "
				    "expected each once",
				    VIEW_ARG(m->tools.v[i]));
		if (rc == 0 && agent)
			rc = check_agent_pattern(p, m->tools.v[i]);
		if (rc == 0)
			rc = warn_covered(p, "tools", &m->tools, i);
	}
	return rc;
}

static int
check_feature(struct conf_parse *p, struct conf_mcp *m, struct view name)
{
	size_t i;

	if (m->feature_names.n == 1 && view_eq(name, VIEW("none")))
		return 0;
	for (i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		if (!view_eq(name, view_str(features[i].name)))
			continue;
		m->features |= features[i].bit;
		return 0;
	}
	return conf_error(p,
	    "bad value \"%.*s\" for \"features\"; expected none, or some "
	    "of " CONF_MCP_ALL,
	    VIEW_ARG(name));
}

int
conf_mcp_environment(struct conf_parse *p, const struct conf_environment **env)
{
	const struct conf_location *loc = conf_current_location(p);
	const struct conf_environment *own = loc->server->environment;

	if (own != NULL && *env != NULL && *env != own)
		return conf_error(p,
		    "environment \"%.*s\" in an \"inside\" of \"%.*s\"; "
		    "expected none, it is that of the block",
		    VIEW_ARG((*env)->name), VIEW_ARG(own->name));
	if (own != NULL)
		*env = own;
	if (*env == NULL)
		return conf_error(p,
		    "%s lacks \"environment\"; expected environment NAME;",
		    loc->handler->name);
	return 0;
}

/* Past a "[...]" that begins at i, or i: there is none. */
static size_t
past_class(struct view pattern, size_t i)
{
	size_t end = i + 1;

	if (end < pattern.n && pattern.p[end] == '!')
		end++;
	end++; /* what stands first may be a "]" */
	while (end < pattern.n && pattern.p[end] != ']')
		end++;
	return end < pattern.n ? end + 1 : i;
}

/* Whether a path in dir, which ends with "/", may match; a class may be any. */
static bool
reaches(struct view pattern, struct view dir)
{
	size_t i, at = 0, past;

	for (i = 0; i < dir.n; i++) {
		if (at == pattern.n)
			return false;
		if (pattern.p[at] == '*')
			return true;
		past = pattern.p[at] == '[' ? past_class(pattern, at) : at;
		if (past > at)
			at = past;
		else if (pattern.p[at] == '?' || pattern.p[at] == dir.p[i])
			at++;
		else
			return false;
	}
	return at < pattern.n;
}

int
conf_mcp_globs(struct conf_parse *p, const char *name,
    const struct conf_list *globs)
{
	struct view rest, piece;
	size_t i, j;
	bool good;

	for (i = 0; i < globs->n; i++) {
		rest = globs->v[i];
		good = view_starts(rest, VIEW("/"));
		for (j = 0; j < rest.n; j++)
			good &= (unsigned char)rest.p[j] >= 0x20;
		while (view_split(&rest, '/', &piece))
			good &= !view_eq(piece, VIEW(".."));
		if (!good)
			return conf_error(p,
			    "bad pattern \"%.*s\" for \"%s\"; expected an "
			    "absolute one without \"..\"",
			    VIEW_ARG(globs->v[i]), name);
		if (!reaches(globs->v[i], VIEW(CONF_ENV_WORKSPACE "/")) &&
		    !reaches(globs->v[i], VIEW("/openenvd/assets/")))
			return conf_error(p,
			    "pattern \"%.*s\" for \"%s\" matches nothing "
			    "that may be read; expected one of files "
			    "beneath " CONF_ENV_WORKSPACE
			    " or /openenvd/assets",
			    VIEW_ARG(globs->v[i]), name);
		if (warn_covered(p, name, globs, i) != 0)
			return SP_E_NOMEM;
	}
	return 0;
}

int
conf_mcp_privileged(struct conf_parse *p, const struct conf_environment *env)
{
	size_t i;

	for (i = 0; i < env->asset_n; i++)
		if (view_eq(env->asset[i].kind, VIEW("oracle")))
			return 0;
	for (i = 0; i < env->processes_n; i++)
		if (env->processes[i].privileged)
			return 0;
	return conf_warn(p, conf_node_pos(p->node),
	    "\"privileged_exec\" has no effect: environment \"%.*s\" has no "
	    "asset \"oracle\", and no process with trust privileged; add one "
	    "of them, or remove it",
	    VIEW_ARG(env->name));
}

int
conf_mcp_check(struct conf_parse *p, struct conf_mcp *m, bool agent)
{
	size_t i;
	int rc = conf_mcp_environment(p, &m->environment);

	if (rc == 0)
		rc = check_tools(p, m, agent);
	m->features = 0;
	for (i = 0; i < m->feature_names.n && rc == 0; i++)
		rc = check_feature(p, m, m->feature_names.v[i]);
	return rc;
}
