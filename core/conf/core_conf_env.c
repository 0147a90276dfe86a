/* environment NAME { ... } */
#include "base/num.h"
#include "conf/conf_env.h"
#include "conf/core_conf.h"

#define ENV(field) offsetof(struct conf_environment, field)

#define KIB ((uint64_t)1 << 10)
#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)
#define MS_HOUR 3600000

enum {
	INSIDE_PORT_MIN = 1024,
	INSIDE_BACKLOG = 512,
	KIND_MAX = 32 /* bytes of an asset's kind */
};

static const char *const enforcements[] = { "linux", "local", NULL };
static const char *const storages[] = { "memory", "disk", NULL };

static int
parse_require(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_environment *e = base;
	unsigned bit;
	size_t i;

	for (i = 1; i < n; i++) {
		for (bit = 0; conf_env_guarantees[bit] != NULL; bit++) {
			if (view_eq(args[i],
				view_str(conf_env_guarantees[bit])))
				break;
		}
		if (conf_env_guarantees[bit] == NULL)
			return conf_error(p,
			    "unknown guarantee \"%.*s\" in \"%s\"; expected "
			    "asset_isolation, egress_control, privilege_drop, "
			    "control_plane_isolation, principal_isolation, "
			    "credential_isolation, resource_isolation or "
			    "trace_integrity",
			    VIEW_ARG(args[i]), row->name);
		if ((e->require & 1U << bit) != 0)
			return conf_error(p,
			    "duplicate guarantee \"%.*s\" in \"%s\"; expected "
			    "each once",
			    VIEW_ARG(args[i]), row->name);
		e->require |= 1U << bit;
	}
	return 0;
}

static int
dump_require(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_environment *e = base;
	unsigned bit;
	int rc;

	if (e->require == 0)
		return 0;
	rc = buf_printf(out, "%s%s", indent, row->name);
	for (bit = 0; conf_env_guarantees[bit] != NULL && rc == 0; bit++) {
		if ((e->require & 1U << bit) != 0)
			rc = buf_printf(out, " %s", conf_env_guarantees[bit]);
	}
	return rc == 0 ? buf_add_str(out, ";\n") : rc;
}

/* A lower-case word. */
static bool
is_kind(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		if ((v.p[i] < 'a' || v.p[i] > 'z') &&
		    (v.p[i] < '0' || v.p[i] > '9') && v.p[i] != '_')
			return false;
	}
	return v.n > 0 && v.n <= KIND_MAX;
}

/* A path beneath the directory: no segment is empty, "." or "..". */
static bool
is_beneath(struct view path)
{
	struct view piece;

	if (path.n == 0 || path.n > 4095)
		return false;
	while (view_split(&path, '/', &piece)) {
		if (piece.n == 0 || view_eq(piece, VIEW(".")) ||
		    view_eq(piece, VIEW("..")))
			return false;
	}
	return true;
}

/* KIND FILE; at p->node. */
static int
read_asset(struct conf_parse *p, struct conf_environment *e)
{
	const struct conf_node *node = p->node;
	struct conf_env_asset a = { .pos = conf_node_pos(node) }, *grown;
	size_t i;

	if (node->block || node->n != 2 || !is_kind(node->args[0]))
		return conf_error(p,
		    "bad line \"%.*s\" in \"assets\"; expected KIND FILE;, a "
		    "word in lower case and a path",
		    VIEW_ARG(node->args[0]));
	a.kind = node->args[0];
	a.path = node->args[1];
	if (!is_beneath(a.path) || view_ends(a.path, VIEW("/")))
		return conf_error(p,
		    "path \"%.*s\" of asset \"%.*s\" leaves its directory; "
		    "expected one relative to it, without \"..\"",
		    VIEW_ARG(a.path), VIEW_ARG(a.kind));
	for (i = 0; i < e->asset_n; i++) {
		if (view_eq(e->asset[i].kind, a.kind))
			return conf_error(p,
			    "duplicate asset \"%.*s\"; expected different "
			    "kinds, it stands at %s:%u",
			    VIEW_ARG(a.kind), e->asset[i].pos.file,
			    e->asset[i].pos.line);
	}
	if (e->asset_n == CONF_ENV_ASSETS_MAX)
		return conf_error(p, "too many assets; expected at most %d",
		    CONF_ENV_ASSETS_MAX);
	grown = conf_more(p, e->asset, e->asset_n, sizeof(a), "asset");
	if (grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	e->asset = grown;
	e->asset[e->asset_n++] = a;
	return 0;
}

static int
assets_block(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_environment *e = base;
	const struct conf_node *node = p->node, *child;
	int rc;

	(void)n;
	if (args[1].n == 0)
		return conf_error(p,
		    "the directory of the assets is not known; expected "
		    "\"assets DIRECTORY { }\", beside \"manifest\" where that "
		    "names them");
	rc = conf_type_path(p, args[1], &e->assets);
	if (rc == 0)
		rc = core_conf_env_check_path(p, row->name, &e->assets);
	for (child = node->child; child != NULL; child = child->next) {
		if (rc != 0 && rc != SP_E_CONF)
			break;
		p->node = child;
		rc = read_asset(p, e);
	}
	p->node = node;
	return p->nomem ? SP_E_NOMEM : rc;
}

/* The one address, loopback and IPv4; of no other `inside` before. */
static int
inside_address(struct conf_parse *p, struct conf_environment *e,
    struct view arg, struct conf_listen *l)
{
	struct view port;
	uint64_t number = 0;
	int family;
	size_t i;

	if (conf_url_host_port(arg, &l->address, &port) != 0 ||
	    !conf_url_is_ip(l->address, &family) ||
	    !view_starts(l->address, VIEW("127.")) ||
	    num_u64(port, INSIDE_PORT_MIN, 65535, &number) != 0)
		return conf_error(p,
		    "bad address \"%.*s\" for \"inside\"; expected one of "
		    "loopback and a port from %d on, such as 127.0.0.1:8000",
		    VIEW_ARG(arg), INSIDE_PORT_MIN);
	if (number == CONF_ENV_DOOR_PORT)
		return conf_error(p,
		    "port %d of \"inside\" is the proxy's for allowed hosts; "
		    "expected another",
		    CONF_ENV_DOOR_PORT);
	l->port = (uint16_t)number;
	l->backlog = INSIDE_BACKLOG;
	for (i = 0; i < e->insides_n; i++) {
		const struct conf_listen *o = e->insides[i]->listens;

		if (o->port == l->port && view_eq(o->address, l->address))
			return conf_error(p,
			    "duplicate inside \"%.*s\"; expected different "
			    "addresses, it stands at %s:%u",
			    VIEW_ARG(arg), o->pos.file, o->pos.line);
	}
	return 0;
}

static int
inside_block(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_environment *e = base;
	const struct conf_node *node = p->node;
	/* Limits are those of main: an environment has none. */
	struct conf_block b = { .scope = CONF_INSIDE,
		.what = "inside",
		.node = node,
		.parent = p->block->parent };
	struct conf_server *s, **grown;
	struct conf_listen *l;
	int rc;

	(void)n;
	if (e->insides_n == CONF_ENV_INSIDE_MAX)
		return conf_error(p, "too many of \"%s\"; expected at most %d",
		    row->name, CONF_ENV_INSIDE_MAX);
	s = conf_alloc(p, sizeof(*s));
	l = conf_alloc(p, sizeof(*l));
	grown =
	    conf_more(p, e->insides, e->insides_n, sizeof(void *), row->name);
	if (s == NULL || l == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	l->pos = s->pos = conf_node_pos(node);
	rc = inside_address(p, e, args[1], l);
	if (rc != 0)
		return rc;
	l->index = s->index = (unsigned)e->insides_n;
	s->environment = e;
	s->listens = l;
	s->listens_n = 1;
	e->insides = grown;
	e->insides[e->insides_n++] = s;
	rc = conf_block_add(p, &b, core_conf_server, s);
	if (rc == 0)
		rc = conf_block_add(p, &b, core_conf_limits, &s->limits);
	if (rc == 0)
		rc = conf_block_plain(p, &b, node->child);
	if (rc == 0)
		rc = conf_block_nested(p, &b, node->child);
	if (rc == 0 && s->locations_n == 0 && !p->failed)
		rc = conf_error(p,
		    "inside has no location; expected \"location PATH { ... "
		    "}\"");
	return rc;
}

const struct conf_directive core_conf_env[] = {
	{ .name = "enforcement",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_CHOICE,
	    .offset = ENV(enforcement),
	    .choices = enforcements,
	    .def = "linux",
	    .args = "linux | local",
	    .doc = "With linux episodes run in sandboxes that the kernel "
		   "keeps.\nWith local they are plain processes, for "
		   "development; nothing is guaranteed.\nThere is then no "
		   "/workspace: programs start in a directory of the episode's "
		   "own, a copy\nof the seed in /tmp, and its files are read "
		   "and put as those of /workspace.\nIt is HOME, too, on the "
		   "worker's side as well: worker_directory is there by "
		   "default.\nNor is there a diff or a "
		   "network of its own, or a bound on memory or "
		   "processes." },
	{ .name = "workspace",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_PATH,
	    .offset = ENV(workspace),
	    .args = "PATH",
	    .doc = "The seed: a directory whose content, as it is at start, "
		   "each episode finds in\n/workspace, and may change there "
		   "for itself.",
	    .def_doc = "an empty workspace" },
	{ .name = "workspace_size",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_SIZE,
	    .offset = ENV(workspace_bytes),
	    .min = 64 * KIB,
	    .max = 64 * TIB,
	    .def = "1g",
	    .args = "SIZE",
	    .doc = "Most bytes that an episode may write into its "
		   "workspace; for the tree itself\na little is added." },
	{ .name = "workspace_inodes",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_NUMBER,
	    .offset = ENV(workspace_inodes),
	    .min = 64,
	    .max = 1000000000,
	    .def = "262144",
	    .args = "NUMBER",
	    .doc = "Most files and directories likewise; with storage disk "
		   "at most one for each 4 KiB of the size.\n64 are added for "
		   "the tree itself." },
	{ .name = "storage",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_CHOICE,
	    .offset = ENV(storage),
	    .choices = storages,
	    .def = "memory",
	    .args = "memory | disk",
	    .doc = "Where that is kept.\n"
		   "What is in memory counts as the sandbox's.\n"
		   "On disk it lies in a file system of its own, in a file of "
		   "state_dir that is as large from the beginning and has no "
		   "name: for workspaces larger than memory.\n"
		   "That needs root, loop devices and ext4." },
	{ .name = "worker",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_BLOCK,
	    .flags = CONF_PLAIN_TOO,
	    .opens = CONF_WORKER,
	    .args_min = 1,
	    .args_max = CONF_ARGS_MAX,
	    .parse = core_conf_env_run_worker_block,
	    .args = "none | stdio PATH ARGUMENT ... | http PORT PATH "
		    "ARGUMENT ... | frames PATH ARGUMENT ...",
	    .doc =
		"The environment's own server, in a sandbox of its own on "
		"the same workspace.\nThe agent has one beside it where "
		"there is an inside or a process: else commands\nrun on the "
		"worker's side alone.\nIt speaks MCP on standard input and "
		"output, or serves OpenEnv\n(WebSocket at /ws) or MCP "
		"(Streamable HTTP at /mcp) at 127.0.0.1 and that port,\n"
		"or speaks frames of JSON on standard input and output.\n"
		"A port is reached through the worker's own network alone: "
		"nothing of the agent's\nis in it.\n"
		"It is ready when it answers, and which of the two it serves "
		"is found out then.\nNo shell reads the "
		"command, and its program may not lie where episodes "
		"write.\n"
		"It starts in worker_directory.\n"
		"WORKERS says what each kind must speak.",
	    .def_doc = "none" },
	{ .name = "worker_directory",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_STRING,
	    .offset = ENV(worker_dir),
	    .args = "PATH",
	    .doc = "Where, inside, the worker is started.\nIts HOME is no "
		   "other sandbox's.\n/workspace is what agents write: an "
		   "interpreter started there with -c or -m, and\nsome "
		   "programs, would take an agent's modules from it.",
	    .def_doc = "its HOME" },
	{ .name = "worker_start_timeout",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_DURATION,
	    .offset = ENV(worker_start_ms),
	    .min = 1,
	    .max = MS_HOUR,
	    .def = "30s",
	    .args = "TIME",
	    .doc = "How long the worker may take to be ready." },
	{ .name = "answer_timeout",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_DURATION,
	    .offset = ENV(answer_ms),
	    .max = MS_HOUR,
	    .def = "60s",
	    .args = "TIME | off",
	    .doc = "How long a client may take to answer what the worker asks "
		   "of it in a call\n(sampling, elicitation, roots); at most "
		   "half of its timeout.\nPast it the "
		   "worker is told that the request timed out, and the client "
		   "that it is\ncancelled.\nOther clients' calls wait so "
		   "long, too; 0 is off." },
	{ .name = "assets",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_BLOCK,
	    .opens = CONF_ASSETS,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = assets_block,
	    .args = "PATH",
	    .doc = "A directory that only graders get to see, of mode 0700, "
		   "and the files in it by\ntheir use.\nEach line of the block "
		   "is KIND FILE;: a word such as oracle, solution or "
		   "rubric,\nand a path relative to the directory." },
	{ .name = "sandbox",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_BLOCK,
	    .opens = CONF_SANDBOX,
	    .parse = core_conf_env_sandbox_block,
	    .doc = "Files, uids and bounds of an episode's processes." },
	{ .name = "egress",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_BLOCK,
	    .opens = CONF_EGRESS,
	    .parse = core_conf_env_egress_block,
	    .doc = "What of the network may be reached.\nWithout a rule there "
		   "is loopback alone." },
	{ .name = "process",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_BLOCK,
	    .flags = CONF_REPEATS,
	    .opens = CONF_PROCESS,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = core_conf_env_run_process_block,
	    .args = "NAME",
	    .doc = "A program to be run in episodes.\n"
		   "One of trust workload starts by itself in each, once the "
		   "worker, if there is\none, is ready, and again after a "
		   "reset.\n"
		   "One of trust privileged is run when a grader asks for it "
		   "by its name." },
	{ .name = "require",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS,
	    .args_min = 1,
	    .args_max = 16,
	    .parse = parse_require,
	    .dump = dump_require,
	    .args = "GUARANTEE ...",
	    .doc = "Guarantees without which sallyport does not start: "
		   "asset_isolation,\negress_control, privilege_drop, "
		   "control_plane_isolation,\nprincipal_isolation, "
		   "credential_isolation, resource_isolation "
		   "or\ntrace_integrity." },
	{ .name = "episodes",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_NUMBER,
	    .offset = ENV(episodes),
	    .min = 1,
	    .max = CONF_ENV_EPISODES_MAX,
	    .def = "8",
	    .args = "NUMBER",
	    .doc = "Most episodes at once.\nWhat all environments may take, "
		   "episodes and warm ones times the sum of memory\nand of "
		   "what is kept in memory (workspace, each of read_write, "
		   "HOME, /dev/shm),\nmust fit into the memory of the host: "
		   "else the start is refused." },
	{ .name = "warm",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_NUMBER,
	    .offset = ENV(warm),
	    .max = CONF_ENV_EPISODES_MAX,
	    .def = "0",
	    .args = "NUMBER",
	    .doc = "Sandboxes that are kept ready besides, at most as many as "
		   "episodes." },
	{ .name = "teardown_timeout",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_DURATION,
	    .offset = ENV(teardown_ms),
	    .min = 1,
	    .max = MS_HOUR,
	    .def = "10s",
	    .args = "TIME",
	    .doc = "How long the processes of an episode may take to be gone "
		   "once killed.\nPast it a reset fails." },
	{ .name = "inside",
	    .scopes = CONF_ENVIRONMENT,
	    .type = CONF_BLOCK,
	    .flags = CONF_REPEATS,
	    .opens = CONF_INSIDE,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = inside_block,
	    .args = "ADDRESS",
	    .doc = "Doors that the agent of each episode finds at a loopback "
		   "address of its own,\nADDRESS:PORT, with a port from 1024 "
		   "on other than 3128.\nOnly what is meant for agents may "
		   "stand there." },
	{ .name = NULL },
};

/* What has defaults, where its block is missing. */
static int
read_missing(struct conf_parse *p, const struct conf_block *b,
    struct conf_environment *e)
{
	int rc = 0;

	if (conf_block_set(b, "sandbox") == NULL)
		rc = core_conf_env_sandbox_read(p, e, b->node, NULL);
	if (rc == 0 && conf_block_set(b, "egress") == NULL)
		rc = core_conf_env_egress_read(p, e, b->node, NULL);
	return rc;
}

/* Paths without ".."; then what the parts must be to each other. */
static int
finish(struct conf_parse *p, const struct conf_block *b,
    struct conf_environment *e)
{
	int rc;

	rc = read_missing(p, b, e);
	if (rc == 0 && e->workspace.n > 0) {
		p->node = conf_block_set(b, "workspace");
		e->workspace_pos = conf_node_pos(p->node);
		rc = core_conf_env_check_path(p, "workspace", &e->workspace);
		p->node = b->node;
	}
	/* The parts may be compared only when each is whole. */
	if (rc == 0 && !p->failed)
		rc = core_conf_env_check_one(p, b, e);
	return rc;
}

int
core_conf_env_block(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf *c = p->conf;
	const struct conf_node *node = p->node;
	struct conf_block b = { .scope = CONF_ENVIRONMENT,
		.node = node,
		.parent = p->block };
	const struct conf_environment *same;
	struct conf_environment *e, **grown;
	int rc;

	(void)base;
	(void)n;
	rc = conf_block_name(p, args[1]);
	same = conf_env_find(c, args[1]);
	if (rc == 0 && same != NULL)
		rc = conf_error(p,
		    "duplicate environment \"%.*s\"; expected different "
		    "names, it stands at %s:%u",
		    VIEW_ARG(args[1]), same->pos.file, same->pos.line);
	if (rc != 0)
		return rc;
	e = conf_alloc(p, sizeof(*e));
	b.what = conf_text(p, "environment \"%.*s\"", VIEW_ARG(args[1]));
	grown = conf_more(p, c->environments, c->environments_n, sizeof(void *),
	    row->name);
	if (e == NULL || b.what == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	e->name = args[1];
	e->pos = conf_node_pos(node);
	e->index = (unsigned)c->environments_n;
	c->environments = grown;
	c->environments[c->environments_n++] = e;
	rc = conf_block_add(p, &b, core_conf_env, e);
	if (rc == 0)
		rc = conf_block_plain(p, &b, node->child);
	if (rc == 0)
		rc = conf_block_nested(p, &b, node->child);
	return rc == 0 ? finish(p, &b, e) : rc;
}
