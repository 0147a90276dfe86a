#include "config.h"

#include <string.h>

#include "init/run_env.h"

/* Lists in the order of their weight, the last wins. */
struct env_list {
	char **v;
	size_t n, max;
};

/* The place of the variable with that name, or the next free one. */
static size_t
env_find(const struct env_list *l, struct view name)
{
	size_t i;

	for (i = 0; i < l->n; i++)
		if (strncmp(l->v[i], name.p, name.n) == 0 &&
		    l->v[i][name.n] == '=')
			break;
	return i;
}

static int
env_put(struct arena *a, struct env_list *l, struct view text)
{
	struct view name = view_sub(text, 0, view_find(text, '='));
	char *copy = arena_strdup(a, text);
	size_t at;

	if (copy == NULL)
		return SP_E_NOMEM;
	at = env_find(l, name);
	if (at == l->max)
		return SP_E_LIMIT;
	l->v[at] = copy;
	if (at == l->n)
		l->n++;
	return SP_OK;
}

static int
env_defaults(const struct sbox *b, struct arena *a, struct env_list *l)
{
	char *home = arena_printf(a, "HOME=%s",
	    b->folder[0] != '\0' ? b->folder : sbox_home(b));
	char *user = arena_printf(a, "USER=%s", sbox_user(b));
	char *logname = arena_printf(a, "LOGNAME=%s", sbox_user(b));
	int rc;

	if (home == NULL || user == NULL || logname == NULL)
		return SP_E_NOMEM;
	rc = env_put(a, l,
	    VIEW("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
		 "/sbin:/bin"));
	if (rc == SP_OK)
		rc = env_put(a, l, view_str(home));
	if (rc == SP_OK)
		rc = env_put(a, l, view_str(user));
	if (rc == SP_OK)
		rc = env_put(a, l, view_str(logname));
	if (rc == SP_OK)
		rc = env_put(a, l, VIEW("SHELL=/bin/sh"));
	if (rc == SP_OK)
		rc = env_put(a, l, VIEW("LANG=C.UTF-8"));
	if (rc == SP_OK)
		rc = env_put(a, l, VIEW("TMPDIR=/tmp"));
	return rc;
}

static int
env_add(struct arena *a, struct env_list *l, const struct sandbox_list *from)
{
	int rc = SP_OK;
	size_t i;

	for (i = 0; i < from->n && rc == SP_OK; i++)
		rc = env_put(a, l, from->v[i]);
	return rc;
}

/*
 * Interpreters look for modules where they are started, and into the workspace
 * agents write: the worker's is HOME, which nobody else's sandbox has.  As an
 * ordinary user without walls there is the one folder.
 */
static const char *
default_cwd(const struct sbox *b)
{
	return b->spec->side == SANDBOX_WORKER && b->folder[0] == '\0'
	    ? sbox_home(b)
	    : "/workspace";
}

enum { ENV_OWN_MAX = 16 }; /* defaults, event pipe, NULL */

int
run_env_make(const struct sbox *b, const struct sandbox_run *run,
    struct arena *a, struct run_env *out)
{
	struct env_list l;
	size_t i;
	int rc;

	l.n = 0;
	l.max = b->spec->env.n + run->env.n + ENV_OWN_MAX;
	l.v = arena_zalloc(a, (l.max + 1) * sizeof(l.v[0]));
	out->argv = arena_zalloc(a, (run->argv.n + 1) * sizeof(out->argv[0]));
	out->cwd = run->cwd.n > 0 ? arena_strdup(a, run->cwd) : default_cwd(b);
	if (l.v == NULL || out->argv == NULL || out->cwd == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < run->argv.n; i++) {
		out->argv[i] = arena_strdup(a, run->argv.v[i]);
		if (out->argv[i] == NULL)
			return SP_E_NOMEM;
	}
	rc = env_defaults(b, a, &l);
	if (rc == SP_OK)
		rc = env_add(a, &l, &b->spec->env);
	if (rc == SP_OK)
		rc = env_add(a, &l, &run->env);
	if (rc == SP_OK && (run->flags & SANDBOX_RUN_EVENT_FD))
		rc = env_put(a, &l, VIEW("OPENENVD_EVENT_FD=3"));
	out->env = l.v;
	return rc;
}
