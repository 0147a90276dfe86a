/* A manifest in the configuration language. */
#include "config.h"

#include <string.h>

#include "conf/conf_env.h"
#include "helper/manifest.h"

enum {
	MANIFEST_PORT_MIN = 1024,
	MANIFEST_AGENT_PORT = 8000,
	MANIFEST_START_MS = 3600 * 1000, /* at most, for a worker */
};

struct writer {
	const struct manifest *m;
	const struct manifest_site *site;
	struct buf *out;
	struct buf *err;
	const char *indent; /* of the environment's directives */
	bool inner; /* alone, and others may stand beside them */
	int rc; /* sticky */
};

/* ---- pieces ----------------------------------------------------------------- */

static void put(struct writer *w, const char *fmt, ...) printf_like(2, 3);

static void
put(struct writer *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (w->rc == SP_OK)
		w->rc = buf_vprintf(w->out, fmt, ap);
	va_end(ap);
}

static void
fail(struct writer *w, const char *what)
{
	int rc;

	if (w->rc != SP_OK)
		return;
	rc = buf_printf(w->err, "%s: %s\n", manifest_yaml_path(w->m->yaml),
	    what);
	w->rc = rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

static bool
is_plain(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
		    !(c >= '0' && c <= '9') && strchr("_-./:*=@,+%", c) == NULL)
			return false;
	}
	return v.n > 0;
}

/* One argument, so that no text of the manifest can become a directive. */
static void
put_arg(struct writer *w, struct view v)
{
	size_t i;

	if (is_plain(v)) {
		put(w, " %.*s", VIEW_ARG(v));
		return;
	}
	put(w, " \"");
	for (i = 0; i < v.n; i++) {
		if (v.p[i] == '"' || v.p[i] == '\\')
			put(w, "\\");
		put(w, "%c", v.p[i]);
	}
	put(w, "\"");
}

static void
put_words(struct writer *w, const struct manifest_words *words)
{
	size_t i;

	for (i = 0; i < words->n; i++)
		put_arg(w, words->v[i]);
}

static void
put_list(struct writer *w, const char *indent, const char *name,
    const struct manifest_words *words)
{
	if (words->n == 0)
		return;
	put(w, "%s%s", indent, name);
	put_words(w, words);
	put(w, ";\n");
}

static void
put_path(struct writer *w, const char *name, const char *path)
{
	put(w, "%s%s", w->indent, name);
	put_arg(w, view_str(path));
	put(w, ";\n");
}

/* ---- environment ------------------------------------------------------------ */

static bool
is_beneath(struct view path, struct view root)
{
	return view_starts(path, root) &&
	    (path.n == root.n ||
		view_starts(view_from(path, root.n), VIEW("/")));
}

/* Adds it unless what is bound already holds it. */
static void
put_read_only(struct writer *w, const char *path)
{
	size_t i;

	for (i = 0; conf_env_read_only[i] != NULL; i++)
		if (is_beneath(view_str(path), view_str(conf_env_read_only[i])))
			return;
	put_arg(w, view_str(path));
}

/* The folder that something stands in; a venv is the one above bin. */
static void
put_folder(struct writer *w, const char *path, unsigned up)
{
	char folder[4096];
	char *slash;

	if (strlen(path) >= sizeof(folder)) {
		w->rc = w->rc == SP_OK ? SP_E_LIMIT : w->rc;
		return;
	}
	memcpy(folder, path, strlen(path) + 1);
	while (up-- > 0 && (slash = strrchr(folder, '/')) != NULL)
		*slash = 0;
	if (folder[0] != 0)
		put_read_only(w, folder);
}

static void
put_sandbox(struct writer *w)
{
	const struct manifest_site *s = w->site;
	size_t i;

	put(w, "%ssandbox {\n%s    read_only", w->indent, w->indent);
	for (i = 0; conf_env_read_only[i] != NULL; i++)
		put_arg(w, view_str(conf_env_read_only[i]));
	put_read_only(w, s->dir);
	put_folder(w, s->python, 2);
	for (i = 0; s->pyhome != NULL && i < s->pyhome->n; i++)
		put_read_only(w, s->pyhome->v[i]);
	if (s->factory != NULL)
		put_folder(w, s->bootstrap, 1);
	put(w, ";\n");
	put(w, "%s    env", w->indent);
	/* as an argument of its own: a path may hold anything */
	put(w, " \"PYTHONPATH=");
	for (i = 0; s->dir[i] != 0; i++)
		put(w, "%s%c", strchr("\"\\", s->dir[i]) ? "\\" : "",
		    s->dir[i]);
	put(w, "\" OPENENVD_AGENT_PORT=%d;\n", MANIFEST_AGENT_PORT);
	if (s->uid != 0)
		put(w, "%s    uid %u 64;\n", w->indent, s->uid);
	if (s->timeout_ms != 0)
		put(w, "%s    timeout %llums;\n", w->indent,
		    (unsigned long long)s->timeout_ms);
	put(w, "%s}\n", w->indent);
}

static void
put_worker(struct writer *w)
{
	const struct manifest_site *s = w->site;
	unsigned port = w->m->port;

	if (s->factory != NULL) {
		put(w, "%sworker frames", w->indent);
		put_arg(w, view_str(s->python));
		put_arg(w, view_str(s->bootstrap));
		put(w, " {\n%s    factory", w->indent);
		put_arg(w, view_str(s->factory));
		put(w, ";\n%s    action_class", w->indent);
		put_arg(w, view_str(s->action_class));
		put(w, ";\n%s}\n", w->indent);
		/* a script's modules are not looked for there */
		put(w, "%sworker_directory /workspace;\n", w->indent);
		return;
	}
	if (w->m->app.n == 0) {
		fail(w,
		    "the manifest has no \"app\" to run; expected one, or "
		    "--factory MODULE:ATTR");
		return;
	}
	if (port < MANIFEST_PORT_MIN) {
		fail(w,
		    "the manifest's port is below 1024, which a worker "
		    "without privilege cannot have; expected a higher one");
		return;
	}
	put(w, "%sworker http %u", w->indent, port);
	put_arg(w, view_str(s->python));
	put(w, " -m uvicorn");
	put_arg(w, w->m->app);
	put(w, " --host 127.0.0.1 --port %u;\n", port);
}

static void
put_egress(struct writer *w)
{
	size_t i, k;

	if (w->m->rules_n == 0)
		return;
	put(w, "%segress {\n", w->indent);
	for (i = 0; i < w->m->rules_n; i++) {
		const struct manifest_rule *r = &w->m->rules[i];

		for (k = 0; k < r->ports.n; k++) {
			put(w, "%s    allow %s", w->indent,
			    r->host.n > 0 ? "host"
				: r->udp  ? "udp"
					  : "tcp");
			put_arg(w, r->host.n > 0 ? r->host : r->cidr);
			put_arg(w, r->ports.v[k]);
			put(w, ";\n");
		}
	}
	put(w, "%s}\n", w->indent);
}

static void
put_assets(struct writer *w)
{
	size_t i;

	if (w->m->assets_n == 0)
		return;
	if (w->site->asset_root == NULL && !w->inner) {
		fail(w,
		    "the manifest has privileged_assets and their directory "
		    "is not known; expected --asset-root DIRECTORY");
		return;
	}
	put(w, "%sassets", w->indent);
	/* "": what is written beside it must name the directory */
	put_arg(w, view_str(w->site->asset_root));
	put(w, " {\n");
	for (i = 0; i < w->m->assets_n; i++) {
		put(w, "%s   ", w->indent);
		put_arg(w, w->m->assets[i].name);
		put_arg(w, w->m->assets[i].source);
		put(w, ";\n");
	}
	put(w, "%s}\n", w->indent);
}

static void
put_processes(struct writer *w)
{
	size_t i;

	for (i = 0; i < w->m->processes_n; i++) {
		const struct manifest_process *p = &w->m->processes[i];

		put(w, "%sprocess", w->indent);
		put_arg(w, p->name);
		put(w, " { trust %s;",
		    p->privileged ? "privileged" : "workload");
		if (p->asset.n > 0) {
			put(w, " asset");
			put_arg(w, p->asset);
			put(w, ";");
		}
		if (p->argv.n > 0) {
			put(w, " command%s",
			    p->env.n > 0 ? " /usr/bin/env" : "");
			put_words(w, &p->env);
			put_words(w, &p->argv);
			put(w, ";");
		}
		put(w, " }\n");
	}
}

static void
put_inner(struct writer *w)
{
	const struct manifest_surface *agent = &w->m->surfaces[MANIFEST_AGENT];

	if (w->m->dropped)
		put(w, "%s# openshell: its own options mean nothing here\n",
		    w->indent);
	if (w->m->local)
		put(w, "%senforcement local;\n", w->indent);
	if (w->site->workspace != NULL)
		put_path(w, "workspace", w->site->workspace);
	put_worker(w);
	if (w->site->timeout_ms != 0)
		put(w, "%sworker_start_timeout %llums;\n", w->indent,
		    (unsigned long long)(w->site->timeout_ms < MANIFEST_START_MS
			    ? w->site->timeout_ms
			    : MANIFEST_START_MS));
	put_assets(w);
	put_sandbox(w);
	put_egress(w);
	put_processes(w);
	if (!w->m->local)
		put(w,
		    "%srequire asset_isolation egress_control privilege_drop "
		    "control_plane_isolation\n"
		    "%s        principal_isolation credential_isolation "
		    "resource_isolation;\n",
		    w->indent, w->indent);
	put(w, "%sepisodes 1;\n", w->indent);
	if (!agent->there || w->m->local)
		return;
	put(w,
	    "%sinside 127.0.0.1:%d {\n%s    location /mcp {\n"
	    "%s        mcp_agent;\n%s    ",
	    w->indent, MANIFEST_AGENT_PORT, w->indent, w->indent, w->indent);
	put_list(w, "    ", "tools", &agent->tools);
	put(w, "%s%s}\n%s}\n", agent->tools.n > 0 ? w->indent : "",
	    agent->tools.n > 0 ? "    " : "", w->indent);
}

/* ---- server ----------------------------------------------------------------- */

static void
put_location(struct writer *w, unsigned who)
{
	static const struct {
		const char *path, *module, *token;
	} doors[] = {
		[MANIFEST_ORCHESTRATOR] = { "/ws", "lifecycle",
		    "OPENENVD_ORCHESTRATOR_TOKEN" },
		[MANIFEST_AGENT] = { "/mcp", "mcp_agent", NULL },
		[MANIFEST_GRADER] = { "/mcp/grader", "mcp_grader",
		    "OPENENVD_GRADER_TOKEN" },
		[MANIFEST_OBSERVER] = { "/observe", "observe",
		    "OPENENVD_OBSERVER_TOKEN" },
	};
	const struct manifest_surface *s = &w->m->surfaces[who];

	if (!s->there)
		return;
	put(w, "    location %s {\n        %s;\n        environment %.*s;\n",
	    doors[who].path, doors[who].module, VIEW_ARG(w->m->name));
	if (doors[who].token != NULL)
		put(w, "        token env:%s;\n", doors[who].token);
	if (who == MANIFEST_ORCHESTRATOR)
		put(w, "        shared on;\n        allow_lifecycle %s;\n",
		    s->allow_lifecycle ? "on" : "off");
	put_list(w, "        ", "tools", &s->tools);
	put_list(w, "        ", "fs_read", &s->fs_read);
	if (s->privileged_exec)
		put(w, "        privileged_exec on;\n");
	put_list(w, "        ", "stream", &s->stream);
	put(w, "    }\n");
}

static void
put_server(struct writer *w)
{
	unsigned who;

	put(w, "server {\n    listen %s%s%s:%u;\n",
	    strchr(w->site->host, ':') != NULL ? "[" : "", w->site->host,
	    strchr(w->site->host, ':') != NULL ? "]" : "", w->site->port);
	for (who = 0; who < MANIFEST_PRINCIPALS; who++)
		put_location(w, who);
	put(w, "    location /health { health; }\n}\n");
}

int
manifest_text_inner(const struct manifest *m, const struct manifest_site *site,
    struct buf *out, struct buf *err)
{
	struct writer w = { .m = m,
		.site = site,
		.out = out,
		.err = err,
		.indent = "",
		.inner = true };

	put_inner(&w);
	return w.rc;
}

int
manifest_text(const struct manifest *m, const struct manifest_site *site,
    struct buf *out, struct buf *err)
{
	struct writer w = { .m = m,
		.site = site,
		.out = out,
		.err = err,
		.indent = "    " };

	put(&w, "environment %.*s {\n", VIEW_ARG(m->name));
	put_inner(&w);
	put(&w, "}\n");
	put_server(&w);
	return w.rc;
}
