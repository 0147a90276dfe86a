/* worker ...; process NAME { ... }: the programs of an environment. */
#include "base/num.h"
#include "conf/conf_env.h"
#include "conf/core_conf.h"

#define ENV(field) offsetof(struct conf_environment, field)
#define PROC(field) offsetof(struct conf_env_process, field)

enum { PORT_MIN = 1024 };

/* All arguments from args[from] on are one command. */
static int
take_command(struct conf_parse *p, const char *what, const struct view *args,
    size_t from, size_t n, struct conf_list *out)
{
	size_t i;
	int rc;

	if (from >= n || args[from].n == 0 || args[from].p[0] != '/')
		return conf_error(p,
		    "command of \"%s\" is \"%.*s\"; expected the absolute "
		    "path of a program, then its arguments",
		    what, VIEW_ARG(from < n ? args[from] : VIEW_NONE));
	for (i = from; i < n; i++) {
		rc = conf_type_list_add(p, out, args[i]);
		if (rc != 0)
			return rc;
	}
	return core_conf_env_check_path(p, what, &out->v[0]);
}

/* MODULE:NAME, as a worker imports it. */
static int
parse_symbol(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct view *out = (void *)((char *)base + row->offset);

	(void)n;
	if (!conf_env_symbol(args[1]))
		return conf_error(p,
		    "bad value \"%.*s\" for \"%s\"; expected %s",
		    VIEW_ARG(args[1]), row->name, row->args);
	*out = args[1];
	return 0;
}

static int
dump_symbol(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct view *v = (const void *)((const char *)base + row->offset);

	if (v->n == 0)
		return 0;
	return buf_printf(out, "%s%s %.*s;\n", indent, row->name, VIEW_ARG(*v));
}

const struct conf_directive core_conf_env_run_worker[] = {
	{ .name = "factory",
	    .scopes = CONF_WORKER,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REQUIRED,
	    .offset = ENV(worker_factory),
	    .args_min = 1,
	    .args_max = 1,
	    .parse = parse_symbol,
	    .dump = dump_symbol,
	    .args = "MODULE:ATTR",
	    .doc = "What a worker of frames is told to make the environment "
		   "with." },
	{ .name = "action_class",
	    .scopes = CONF_WORKER,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REQUIRED,
	    .offset = ENV(worker_action_class),
	    .args_min = 1,
	    .args_max = 1,
	    .parse = parse_symbol,
	    .dump = dump_symbol,
	    .args = "MODULE:CLASS",
	    .doc = "What it is told to make actions of." },
	{ .name = NULL },
};

static int
worker_kind(struct conf_parse *p, struct conf_environment *e,
    const struct view *args, size_t n)
{
	uint64_t port = 0;

	if (view_eq(args[1], VIEW("none"))) {
		e->worker = CONF_ENV_WORKER_NONE;
		return n == 2
		    ? 0
		    : conf_error(p, "worker none has a command; expected none");
	}
	if (view_eq(args[1], VIEW("http"))) {
		if (n < 3 || num_u64(args[2], PORT_MIN, 65535, &port) != 0)
			return conf_error(p,
			    "bad port \"%.*s\" of \"worker http\"; expected "
			    "one from %d to 65535, then a command",
			    VIEW_ARG(n < 3 ? VIEW_NONE : args[2]), PORT_MIN);
		e->worker = CONF_ENV_WORKER_HTTP;
		e->worker_port = (uint16_t)port;
		return take_command(p, "worker", args, 3, n,
		    &e->worker_command);
	}
	if (view_eq(args[1], VIEW("stdio")))
		e->worker = CONF_ENV_WORKER_STDIO;
	else if (view_eq(args[1], VIEW("frames")))
		e->worker = CONF_ENV_WORKER_FRAMES;
	else
		return conf_error(p,
		    "bad value \"%.*s\" for \"worker\"; expected none, stdio, "
		    "http or frames",
		    VIEW_ARG(args[1]));
	return take_command(p, "worker", args, 2, n, &e->worker_command);
}

int
core_conf_env_run_worker_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n)
{
	struct conf_environment *e = base;
	const struct conf_node *node = p->node;
	struct conf_block b = { .scope = CONF_WORKER,
		.what = "worker",
		.node = node,
		.parent = p->block };
	int rc;

	(void)row;
	rc = worker_kind(p, e, args, n);
	if (rc != 0)
		return rc;
	if (node->block && e->worker != CONF_ENV_WORKER_FRAMES)
		return conf_error(p,
		    "worker %.*s takes no block; expected \";\", or frames",
		    VIEW_ARG(args[1]));
	if (!node->block)
		return 0;
	rc = conf_block_add(p, &b, core_conf_env_run_worker, e);
	return rc == 0 ? conf_block_plain(p, &b, node->child) : rc;
}

static int
parse_command(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_env_process *proc = base;

	return take_command(p, row->name, args, 1, n, &proc->command);
}

static int
dump_command(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_env_process *proc = base;

	if (proc->command.n == 0)
		return 0;
	return conf_dump_words(out, indent, row->name, &proc->command);
}

static int
parse_trust(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_env_process *proc = base;

	(void)n;
	proc->privileged = view_eq(args[1], VIEW("privileged"));
	if (proc->privileged || view_eq(args[1], VIEW("workload")))
		return 0;
	return conf_error(p,
	    "bad value \"%.*s\" for \"%s\"; expected workload or privileged",
	    VIEW_ARG(args[1]), row->name);
}

static int
dump_trust(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_env_process *proc = base;

	return buf_printf(out, "%s%s %s;\n", indent, row->name,
	    proc->privileged ? "privileged" : "workload");
}

const struct conf_directive core_conf_env_run_process[] = {
	{ .name = "trust",
	    .scopes = CONF_PROCESS,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REQUIRED,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = parse_trust,
	    .dump = dump_trust,
	    .args = "workload | privileged",
	    .doc = "Where it runs: beside the agent, as the agent; or apart, "
		   "on a copy of the\nworkspace and with one asset, for "
		   "graders alone." },
	{ .name = "command",
	    .scopes = CONF_PROCESS,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = CONF_ARGS_MAX,
	    .parse = parse_command,
	    .dump = dump_command,
	    .args = "PATH ARGUMENT ...",
	    .doc = "What is run; no shell reads it.\nA privileged process "
		   "without one is its asset itself, and with one gets the "
		   "path\nof the asset as last argument." },
	{ .name = "asset",
	    .scopes = CONF_PROCESS,
	    .type = CONF_STRING,
	    .offset = PROC(asset),
	    .args = "KIND",
	    .doc = "The asset that a privileged process needs." },
	{ .name = NULL },
};

/* What its trust demands. */
static int
check_process(struct conf_parse *p, const struct conf_block *b,
    const struct conf_env_process *proc)
{
	bool asset = proc->asset.n > 0;

	if (p->failed)
		return 0;
	if (proc->privileged && !asset)
		return conf_error(p, "privileged %s lacks an \"asset\"",
		    b->what);
	if (!proc->privileged && asset)
		return conf_error(p,
		    "%s of trust workload names an asset; expected trust "
		    "privileged, or no \"asset\"",
		    b->what);
	if (!proc->privileged && proc->command.n == 0)
		return conf_error(p,
		    "%s of trust workload lacks \"command\"; expected "
		    "\"command PATH ARGUMENT ...\"",
		    b->what);
	return 0;
}

int
core_conf_env_run_process_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n)
{
	struct conf_environment *e = base;
	const struct conf_node *node = p->node;
	struct conf_block b = { .scope = CONF_PROCESS,
		.node = node,
		.parent = p->block };
	struct conf_env_process proc = { .name = args[1] }, *grown;
	size_t i;
	int rc;

	(void)n;
	rc = conf_block_name(p, args[1]);
	for (i = 0; i < e->processes_n && rc == 0; i++) {
		if (view_eq(e->processes[i].name, args[1]))
			rc = conf_error(p,
			    "duplicate process \"%.*s\"; expected different "
			    "names, it stands at %s:%u",
			    VIEW_ARG(args[1]), e->processes[i].pos.file,
			    e->processes[i].pos.line);
	}
	if (rc == 0 && e->processes_n == CONF_ENV_PROCESSES_MAX)
		rc = conf_error(p,
		    "too many of \"process\"; expected at most %d",
		    CONF_ENV_PROCESSES_MAX);
	if (rc != 0)
		return rc;
	b.what = conf_text(p, "process \"%.*s\"", VIEW_ARG(args[1]));
	grown =
	    conf_more(p, e->processes, e->processes_n, sizeof(proc), row->name);
	if (b.what == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	proc.pos = conf_node_pos(node);
	rc = conf_block_add(p, &b, core_conf_env_run_process, &proc);
	if (rc == 0)
		rc = conf_block_plain(p, &b, node->child);
	if (rc == 0)
		rc = check_process(p, &b, &proc);
	e->processes = grown;
	e->processes[e->processes_n++] = proc;
	return rc;
}
