/* Environments: what their parts, and they themselves, must be together. */
#include <limits.h>

#include "conf/conf_env.h"
#include "conf/core_conf.h"

int
core_conf_env_check_path(struct conf_parse *p, const char *what,
    struct view *path)
{
	struct view rest, piece, v = *path;
	bool good = v.n > 0 && v.n < PATH_MAX && v.p[0] == '/';

	while (v.n > 1 && v.p[v.n - 1] == '/')
		v.n--;
	rest = view_from(v, 1);
	while (good && v.n > 1 && view_split(&rest, '/', &piece))
		good = piece.n > 0 && !view_eq(piece, VIEW(".")) &&
		    !view_eq(piece, VIEW(".."));
	if (!good)
		return conf_error(p,
		    "bad path \"%.*s\" for \"%s\"; expected an absolute one "
		    "without \"..\"",
		    VIEW_ARG(*path), what);
	*path = v;
	return 0;
}

bool
core_conf_env_check_within(struct view path, struct view dir)
{
	return view_eq(dir, VIEW("/")) ||
	    (view_starts(path, dir) &&
		(path.n == dir.n ||
		    view_starts(view_from(path, dir.n), VIEW("/"))));
}

static bool
overlap(struct view a, struct view b)
{
	return a.n > 0 && b.n > 0 &&
	    (core_conf_env_check_within(a, b) ||
		core_conf_env_check_within(b, a));
}

/* Nothing that workloads see may hold the assets, or sallyport's state. */
static int
check_seen(struct conf_parse *p, const struct conf_environment *e,
    struct view seen, const char *what)
{
	struct view state = p->conf->main.state_dir;

	if (seen.n == 0)
		return 0;
	if (e->assets.n > 0 && core_conf_env_check_within(e->assets, seen))
		return conf_error(p,
		    "%s \"%.*s\" contains the assets \"%.*s\"; expected them "
		    "where no workload sees them",
		    what, VIEW_ARG(seen), VIEW_ARG(e->assets));
	if (state.n > 0 && core_conf_env_check_within(state, seen))
		return conf_error(p,
		    "%s \"%.*s\" contains the state_dir \"%.*s\"; expected one "
		    "that no workload sees, such as /var/lib/sallyport",
		    what, VIEW_ARG(seen), VIEW_ARG(state));
	return 0;
}

static int
check_files(struct conf_parse *p, const struct conf_block *b,
    const struct conf_environment *e)
{
	const struct conf_node *workspace = conf_block_set(b, "workspace");
	const struct conf_node *sandbox = conf_block_set(b, "sandbox");
	size_t i;
	int rc = 0;

	p->node = workspace != NULL ? workspace : b->node;
	if (view_eq(e->workspace, VIEW("/")))
		return conf_error(p,
		    "workspace is the whole host; expected a directory of its "
		    "own");
	if (overlap(e->workspace, e->assets))
		return conf_error(p,
		    "workspace \"%.*s\" and assets \"%.*s\" contain each "
		    "other; expected different directories",
		    VIEW_ARG(e->workspace), VIEW_ARG(e->assets));
	rc = check_seen(p, e, e->workspace, "workspace");
	p->node = sandbox != NULL ? sandbox : b->node;
	if (rc == 0)
		rc = check_seen(p, e, e->rootfs, "rootfs");
	for (i = 0; i < e->read_only.n && rc == 0; i++)
		rc = check_seen(p, e, e->read_only.v[i], "read_only");
	return rc;
}

/* Bytes of the one of the list that path lies in most closely; 0 none. */
static size_t
closest(const struct conf_list *l, struct view path)
{
	size_t n = 0, i;

	for (i = 0; i < l->n; i++)
		if (l->v[i].n > n && core_conf_env_check_within(path, l->v[i]))
			n = l->v[i].n;
	return n;
}

/* The program is one that no episode can have written. */
static int
check_worker(struct conf_parse *p, const struct conf_environment *e)
{
	struct view path =
	    e->worker_command.n > 0 ? e->worker_command.v[0] : VIEW_NONE;
	size_t seen;
	bool bad;

	if (e->worker == CONF_ENV_WORKER_NONE)
		return 0;
	bad = core_conf_env_check_within(path, VIEW(CONF_ENV_WORKSPACE)) ||
	    (e->workspace.n > 0 &&
		core_conf_env_check_within(path, e->workspace));
	seen = closest(&e->read_only, path);
	if (bad || closest(&e->read_write, path) > seen)
		return conf_error(p,
		    "program \"%.*s\" of the worker lies where episodes "
		    "write; expected one in read_only or rootfs",
		    VIEW_ARG(path));
	if (seen == 0 && e->rootfs.n == 0 &&
	    e->enforcement == CONF_ENV_ENFORCE_LINUX)
		return conf_error(p,
		    "program \"%.*s\" of the worker is not there inside; "
		    "expected one in read_only or rootfs",
		    VIEW_ARG(path));
	return 0;
}

static const struct conf_env_asset *
find_asset(const struct conf_environment *e, struct view kind)
{
	size_t i;

	for (i = 0; i < e->asset_n; i++) {
		if (view_eq(e->asset[i].kind, kind))
			return &e->asset[i];
	}
	return NULL;
}

/* A place of which the directive is not at hand; file is the caller's. */
static struct conf_node
place(struct conf_pos pos, struct conf_file *file)
{
	*file = (struct conf_file){ .name = pos.file };
	return (struct conf_node){ .file = file, .line = pos.line, .seq = ~0U };
}

static int
check_processes(struct conf_parse *p, const struct conf_environment *e)
{
	struct conf_file file;
	struct conf_node at;
	size_t i;

	for (i = 0; i < e->processes_n; i++) {
		const struct conf_env_process *proc = &e->processes[i];

		if (proc->asset.n == 0 || find_asset(e, proc->asset) != NULL)
			continue;
		at = place(proc->pos, &file);
		return conf_error_at(p, &at,
		    "process \"%.*s\" needs asset \"%.*s\", which is not "
		    "there; expected \"%.*s FILE;\" in \"assets\"",
		    VIEW_ARG(proc->name), VIEW_ARG(proc->asset),
		    VIEW_ARG(proc->asset));
	}
	return 0;
}

static int
check_counts(struct conf_parse *p, const struct conf_block *b,
    const struct conf_environment *e)
{
	const struct conf_node *warm = conf_block_set(b, "warm");
	const struct conf_node *require = conf_block_set(b, "require");
	uint64_t needed = conf_env_uids_needed(e);
	struct conf_file file;
	struct conf_node at;
	unsigned bit = 0;

	if (e->warm > e->episodes)
		return conf_error_at(p, warm != NULL ? warm : b->node,
		    "warm is %llu and episodes %llu; expected at most as many",
		    (unsigned long long)e->warm,
		    (unsigned long long)e->episodes);
	if (e->require != 0 && e->enforcement == CONF_ENV_ENFORCE_LOCAL) {
		while ((e->require & 1U << bit) == 0)
			bit++;
		return conf_error_at(p, require != NULL ? require : b->node,
		    "require names %s, and enforcement local guarantees "
		    "nothing; expected enforcement linux, or no \"require\"",
		    conf_env_guarantees[bit]);
	}
	if (e->uid_pos.file == NULL || e->uid_n >= needed)
		return 0;
	at = place(e->uid_pos, &file);
	return conf_error_at(p, &at,
	    "range of \"uid\" holds %u; expected at least %llu, eight for "
	    "each of episodes and warm",
	    e->uid_n, (unsigned long long)needed);
}

int
core_conf_env_check_one(struct conf_parse *p, const struct conf_block *b,
    const struct conf_environment *e)
{
	const struct conf_node *worker = conf_block_set(b, "worker");
	const struct conf_node *dir = conf_block_set(b, "worker_directory");
	struct view path = e->worker_dir;
	int rc;

	rc = check_files(p, b, e);
	p->node = dir != NULL ? dir : b->node;
	if (rc == 0 && dir != NULL)
		rc = core_conf_env_check_path(p, "worker_directory", &path);
	p->node = worker != NULL ? worker : b->node;
	if (rc == 0)
		rc = check_worker(p, e);
	p->node = b->node;
	if (rc == 0)
		rc = check_processes(p, e);
	return rc == 0 ? check_counts(p, b, e) : rc;
}

static bool
uids_overlap(const struct conf_environment *e, uint64_t first, uint64_t n)
{
	return e->uid_n > 0 && first < (uint64_t)e->uid_first + e->uid_n &&
	    e->uid_first < first + n;
}

static int
check_uids(struct conf_parse *p, const struct conf_environment *e)
{
	const struct conf *c = p->conf;
	struct conf_file file;
	struct conf_node at;
	size_t i;

	for (i = 0; i < e->index; i++) {
		const struct conf_environment *o = c->environments[i];

		if (e->uid_pos.file == NULL || o->uid_pos.file == NULL ||
		    !uids_overlap(o, e->uid_first, e->uid_n))
			continue;
		at = place(e->uid_pos, &file);
		return conf_error_at(p, &at,
		    "range of \"uid\" overlaps that of environment \"%.*s\" "
		    "at %s:%u; expected ranges apart",
		    VIEW_ARG(o->name), o->uid_pos.file, o->uid_pos.line);
	}
	return 0;
}

/*
 * The first range from *next on that no environment has.  *next only rises,
 * and each range that is in the way raises it once.
 */
static int
give_uids(struct conf_parse *p, struct conf_environment *e, uint64_t *next)
{
	const struct conf *c = p->conf;
	uint64_t n = CONF_ENV_UID_DEFAULT_N;
	struct conf_file file;
	struct conf_node at;
	size_t i;

	while (n < conf_env_uids_needed(e))
		n += CONF_ENV_UID_DEFAULT_N;
	for (i = 0; i < c->environments_n; i++) {
		const struct conf_environment *o = c->environments[i];

		if (!uids_overlap(o, *next, n))
			continue;
		*next = (uint64_t)o->uid_first + o->uid_n;
		i = (size_t)-1; /* from the first again */
	}
	if (*next + n - 1 > CONF_ENV_UID_MAX) {
		at = place(e->pos, &file);
		return conf_error_at(p, &at,
		    "no uids are left for environment \"%.*s\"; expected a "
		    "\"uid\" in its sandbox",
		    VIEW_ARG(e->name));
	}
	e->uid_first = (uint32_t)*next;
	e->uid_n = (uint32_t)n;
	*next += n;
	return 0;
}

int
core_conf_env_check(struct conf_parse *p)
{
	const struct conf *c = p->conf;
	uint64_t episodes = 0, next = CONF_ENV_UID_DEFAULT;
	struct conf_file file;
	struct conf_node at;
	size_t i;
	int rc = 0;

	for (i = 0; i < c->environments_n && rc == 0; i++) {
		episodes += c->environments[i]->episodes;
		if (episodes > CONF_ENV_EPISODES_MAX) {
			at = place(c->environments[i]->pos, &file);
			rc = conf_error_at(p, &at,
			    "episodes of all environments are more than %d; "
			    "expected fewer here",
			    CONF_ENV_EPISODES_MAX);
		}
		if (rc == 0)
			rc = check_uids(p, c->environments[i]);
	}
	for (i = 0; i < c->environments_n && rc == 0 && !p->failed; i++) {
		if (c->environments[i]->uid_pos.file == NULL)
			rc = give_uids(p, c->environments[i], &next);
	}
	return rc == SP_E_CONF ? 0 : rc;
}
