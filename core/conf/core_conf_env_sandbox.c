/* sandbox { ... }: files, uids and bounds of an episode's processes. */
#include "base/num.h"
#include "conf/conf_env.h"
#include "conf/core_conf.h"

#define ENV(field) offsetof(struct conf_environment, field)

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)
#define MS_DAY 86400000

enum { CPU_MILLI_MIN = 10, CPU_MILLI_MAX = 4096000 };

static int
parse_paths(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_list *list = (void *)((char *)base + row->offset);
	struct view path;
	size_t i, j;
	int rc;

	for (i = 1; i < n; i++) {
		path = args[i];
		rc = core_conf_env_check_path(p, row->name, &path);
		if (rc != 0)
			return rc;
		for (j = 0; j < list->n; j++) {
			if (view_eq(list->v[j], path))
				return conf_error(p,
				    "duplicate path \"%.*s\" in \"%s\"; "
				    "expected each once",
				    VIEW_ARG(path), row->name);
		}
		if (list->n == CONF_ENV_PATHS_MAX)
			return conf_error(p,
			    "too many paths in \"%s\"; expected at most %d",
			    row->name, CONF_ENV_PATHS_MAX);
		rc = conf_type_list_add(p, list, path);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int
dump_words(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_list *list =
	    (const void *)((const char *)base + row->offset);

	if (list->n == 0)
		return 0;
	return conf_dump_words(out, indent, row->name, list);
}

static int
parse_uid(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	/* The roles' own; nobody; what -1 was with 16 bits, and next to it. */
	static const uint32_t taken[] = { 64801, 64802, 65534, 65535 };
	struct conf_environment *e = base;
	uint64_t first = 0, count = 0;
	size_t i;

	(void)n;
	if (num_u64(args[1], CONF_ENV_UID_MIN, CONF_ENV_UID_MAX, &first) != 0 ||
	    num_u64(args[2], CONF_ENV_UIDS_MIN, CONF_ENV_UID_MAX, &count) !=
		0 ||
	    first + count - 1 > CONF_ENV_UID_MAX)
		return conf_error(p,
		    "bad range \"%.*s %.*s\" for \"%s\"; expected the first, "
		    "and how many, from %d to %u",
		    VIEW_ARG(args[1]), VIEW_ARG(args[2]), row->name,
		    CONF_ENV_UID_MIN, CONF_ENV_UID_MAX);
	for (i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
		if (taken[i] >= first && taken[i] - first < count)
			return conf_error(p,
			    "range of \"%s\" holds %u, which is reserved; "
			    "expected one without it, such as 200000 4096",
			    row->name, taken[i]);
	}
	e->uid_first = (uint32_t)first;
	e->uid_n = (uint32_t)count;
	e->uid_pos = conf_node_pos(p->node);
	return 0;
}

static int
dump_uid(const struct conf_directive *row, const void *base, const char *indent,
    struct buf *out)
{
	const struct conf_environment *e = base;

	return buf_printf(out, "%s%s %u %u;\n", indent, row->name, e->uid_first,
	    e->uid_n);
}

static int
parse_cpu(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_environment *e = base;
	double cpus = 0;

	(void)n;
	e->cpu_milli = 0;
	if (view_eq(args[1], VIEW("off")))
		return 0;
	if (num_double(args[1], &cpus) != 0 || cpus * 1000 < CPU_MILLI_MIN ||
	    cpus * 1000 > CPU_MILLI_MAX)
		return conf_error(p,
		    "bad value \"%.*s\" for \"%s\"; expected off, or "
		    "processors from 0.01 to %d",
		    VIEW_ARG(args[1]), row->name, CPU_MILLI_MAX / 1000);
	e->cpu_milli = (uint64_t)(cpus * 1000 + 0.5);
	return 0;
}

static int
dump_cpu(const struct conf_directive *row, const void *base, const char *indent,
    struct buf *out)
{
	const struct conf_environment *e = base;

	if (e->cpu_milli == 0)
		return buf_printf(out, "%s%s off;\n", indent, row->name);
	return buf_printf(out, "%s%s %llu.%03u;\n", indent, row->name,
	    (unsigned long long)(e->cpu_milli / 1000),
	    (unsigned)(e->cpu_milli % 1000));
}

static int
parse_env(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_environment *e = base;
	struct view name;
	size_t i, j;
	int rc;

	for (i = 1; i < n; i++) {
		name = view_sub(args[i], 0, view_find(args[i], '='));
		if (name.n == args[i].n || !conf_secret_is_env_name(name))
			return conf_error(p,
			    "bad value \"%.*s\" for \"%s\"; expected "
			    "NAME=VALUE",
			    VIEW_ARG(args[i]), row->name);
		for (j = 0; j < e->env.n; j++) {
			if (view_starts(e->env.v[j],
				view_sub(args[i], 0, name.n + 1)))
				return conf_error(p,
				    "duplicate variable \"%.*s\" in \"%s\"; "
				    "expected each once",
				    VIEW_ARG(name), row->name);
		}
		rc = conf_type_list_add(p, &e->env, args[i]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

const struct conf_directive core_conf_env_sandbox[] = {
	{ .name = "read_only",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS,
	    .offset = ENV(read_only),
	    .args_min = 1,
	    .args_max = CONF_ENV_PATHS_MAX,
	    .parse = parse_paths,
	    .dump = dump_words,
	    .args = "PATH ...",
	    .doc = "Parts of the host that are seen inside, and cannot be "
		   "changed there.\nThose of the default that the host lacks "
		   "are left out; any other must exist.\n"
		   "The agent can read all of it, the source of a worker that "
		   "lies there too.",
	    .def_doc = "/usr /bin /sbin /lib /lib64 /etc/ssl "
		       "/etc/alternatives" },
	{ .name = "rootfs",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_PATH,
	    .offset = ENV(rootfs),
	    .args = "PATH",
	    .doc = "An unpacked image that is seen inside as /, instead of "
		   "read_only." },
	{ .name = "read_write",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS,
	    .offset = ENV(read_write),
	    .args_min = 1,
	    .args_max = CONF_ENV_PATHS_MAX,
	    .parse = parse_paths,
	    .dump = dump_words,
	    .def = "/tmp",
	    .args = "PATH ...",
	    .doc = "Directories that are empty at first, may be written, and "
		   "are each episode's own.\nThe workspace, HOME, /tmp and "
		   "/dev/shm are there in any case.\n"
		   "What read_only has in one of them is seen there, and "
		   "stays read-only.\n"
		   "None lies in /usr, /bin, /sbin, /lib, /lib64 or /etc." },
	{ .name = "uid",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_CUSTOM,
	    .args_min = 2,
	    .args_max = 2,
	    .parse = parse_uid,
	    .dump = dump_uid,
	    .args = "FIRST COUNT",
	    .doc = "The uids and gids that sandboxes take theirs from, which "
		   "nobody else may\nhave.\nThere must be eight for each of "
		   "episodes and warm: four of one in use, and\nas many of one "
		   "being removed.",
	    .def_doc = "4096 from 200000 on that no other environment has" },
	{ .name = "memory",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_SIZE,
	    .offset = ENV(memory_bytes),
	    .min = 4 * MIB,
	    .max = 64 * TIB,
	    .def = "1g",
	    .args = "SIZE",
	    .doc = "Most memory of the processes; past it they are "
		   "killed.\nThe sizes of what is kept in memory "
		   "(workspace_size, tmp_size for each of read_write\nand "
		   "HOME, shm_size) are added to it, and the sum is one bound: "
		   "as far as those are\nempty, processes may use their room "
		   "as well.\n"
		   "What TCP sockets hold is part of it, but with control "
		   "groups of version 1, where\nit is counted beside it: from "
		   "a quarter as much, at most 64m, on the kernel holds\neach "
		   "socket back, and what many of them hold together is looked "
		   "at each second:\npast this bound and that quarter the "
		   "episode ends, as of want of memory.\n"
		   "It needs control groups, as cpu does: a start without "
		   "them says that it does not hold." },
	{ .name = "pids",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_NUMBER,
	    .offset = ENV(pids),
	    .min = 4,
	    .max = 4194304,
	    .def = "256",
	    .args = "NUMBER",
	    .doc = "Most processes and threads at once." },
	{ .name = "cpu",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = parse_cpu,
	    .dump = dump_cpu,
	    .def = "1.0",
	    .args = "NUMBER | off",
	    .doc = "Most processors, such as 0.5 or 4; with off all.\n"
		   "It needs control groups." },
	{ .name = "timeout",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_DURATION,
	    .offset = ENV(timeout_ms),
	    .max = (uint64_t)365 * MS_DAY,
	    .def = "5m",
	    .args = "TIME | off",
	    .doc =
		"How long one operation of the worker may take: a reset, a "
		"step, a call of a\ntool; and a grader's program.\nPast it "
		"the worker counts as failed: all that runs in its episode is "
		"killed, and\nonly a reset helps; 0 is off." },
	{ .name = "lifetime",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_DURATION,
	    .offset = ENV(lifetime_ms),
	    .max = (uint64_t)365 * MS_DAY,
	    .def = "off",
	    .args = "TIME | off",
	    .doc = "How long an episode may last, from its making or last "
		   "reset; 0 is off." },
	{ .name = "tmp_size",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_SIZE,
	    .offset = ENV(tmp_bytes),
	    .min = 64 * KIB,
	    .max = TIB,
	    .def = "256m",
	    .args = "SIZE",
	    .doc = "Most bytes in each of read_write, and in HOME." },
	{ .name = "shm_size",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_SIZE,
	    .offset = ENV(shm_bytes),
	    .min = 64 * KIB,
	    .max = TIB,
	    .def = "64m",
	    .args = "SIZE",
	    .doc = "Most bytes in /dev/shm." },
	{ .name = "files",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_NUMBER,
	    .offset = ENV(files),
	    .min = 16,
	    .max = 1048576,
	    .def = "4096",
	    .args = "NUMBER",
	    .doc = "Most open files of one process.\nFor an ordinary "
		   "user's sandboxes at most half of what its hard limit "
		   "allows." },
	{ .name = "file_size",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_SIZE,
	    .offset = ENV(file_bytes),
	    .max = 64 * TIB,
	    .def = "0",
	    .args = "SIZE",
	    .doc = "Largest file that a process may write; 0 sets no "
		   "limit." },
	{ .name = "env",
	    .scopes = CONF_SANDBOX,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS,
	    .offset = ENV(env),
	    .args_min = 1,
	    .args_max = CONF_ARGS_MAX,
	    .parse = parse_env,
	    .dump = dump_words,
	    .args = "NAME=VALUE ...",
	    .doc = "Variables of every process inside.\nNothing of "
		   "sallyport's own environment is there." },
	{ .name = NULL },
};

static int
add_default(struct conf_parse *p, struct conf_environment *e)
{
	size_t i;
	int rc = 0;

	for (i = 0; conf_env_read_only[i] != NULL && rc == 0; i++)
		rc = conf_type_list_add(p, &e->read_only,
		    view_str(conf_env_read_only[i]));
	return rc;
}

/* Made by the keeper itself: nothing of the host may stand for it. */
static bool
is_reserved(struct view path)
{
	return core_conf_env_check_within(path, VIEW("/proc")) ||
	    core_conf_env_check_within(path, VIEW("/sys")) ||
	    core_conf_env_check_within(path, VIEW("/dev")) ||
	    core_conf_env_check_within(path, VIEW(CONF_ENV_WORKSPACE)) ||
	    view_eq(path, VIEW("/"));
}

/* Programs and what they trust: an empty directory may not hide them. */
static bool
is_system(struct view path)
{
	static const char *const dirs[] = { "/usr", "/bin", "/sbin", "/lib",
		"/lib64", "/etc" };
	size_t i;

	for (i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		if (core_conf_env_check_within(path, view_str(dirs[i])))
			return true;
	}
	return false;
}

/*
 * One of read_write, against those before it and all of read_only.  Mounts are
 * made from the outside in: what is read-only within it is seen there.
 */
static int
check_writable(struct conf_parse *p, const struct conf_environment *e, size_t n)
{
	struct view path = e->read_write.v[n];
	size_t i;

	if (is_reserved(path) || is_system(path))
		return conf_error(p,
		    "path \"%.*s\" may not be in \"read_write\"; expected a "
		    "directory such as /tmp, not a part of the system or "
		    "of " CONF_ENV_WORKSPACE,
		    VIEW_ARG(path));
	for (i = 0; i < n; i++) {
		if (core_conf_env_check_within(path, e->read_write.v[i]) ||
		    core_conf_env_check_within(e->read_write.v[i], path))
			return conf_error(p,
			    "paths \"%.*s\" and \"%.*s\" in \"read_write\" "
			    "contain each other; expected one of them",
			    VIEW_ARG(e->read_write.v[i]), VIEW_ARG(path));
	}
	for (i = 0; i < e->read_only.n; i++) {
		if (view_eq(e->read_only.v[i], path))
			return conf_error(p,
			    "path \"%.*s\" stands in \"read_only\" and in "
			    "\"read_write\"; expected it in one of them",
			    VIEW_ARG(path));
	}
	return 0;
}

static int
check_lists(struct conf_parse *p, const struct conf_environment *e,
    const struct conf_node *only, const struct conf_node *write)
{
	const struct conf_node *at = p->node;
	size_t i;
	int rc = 0;

	p->node = only != NULL ? only : at;
	for (i = 0; i < e->read_only.n && rc == 0; i++) {
		if (is_reserved(e->read_only.v[i]))
			rc = conf_error(p,
			    "path \"%.*s\" may not be in \"read_only\"; "
			    "expected parts of the host, not all of it and "
			    "not /proc, /sys, /dev or " CONF_ENV_WORKSPACE,
			    VIEW_ARG(e->read_only.v[i]));
		else if (view_eq(e->read_only.v[i], VIEW("/tmp")))
			rc = conf_error(p,
			    "path \"/tmp\" may not be in \"read_only\": each "
			    "sandbox has one of its own there; expected a "
			    "folder in it");
	}
	p->node = write != NULL ? write : at;
	for (i = 0; i < e->read_write.n && rc == 0; i++)
		rc = check_writable(p, e, i);
	p->node = at;
	return rc;
}

static int
check_rootfs(struct conf_parse *p, struct conf_environment *e,
    const struct conf_node *rootfs, const struct conf_node *only)
{
	const struct conf_node *at = p->node;
	int rc;

	p->node = rootfs;
	rc = core_conf_env_check_path(p, "rootfs", &e->rootfs);
	if (rc == 0 && view_eq(e->rootfs, VIEW("/")))
		rc = conf_error(p,
		    "rootfs is the host's own; expected the directory of an "
		    "unpacked image, or \"read_only\"");
	if (rc == 0 && only != NULL)
		rc = conf_error(p,
		    "sandbox has \"rootfs\" and \"read_only\" (at %s:%u); "
		    "expected one of them",
		    only->file->name, only->line);
	p->node = at;
	return rc;
}

int
core_conf_env_sandbox_read(struct conf_parse *p, struct conf_environment *e,
    const struct conf_node *node, const struct conf_node *nodes)
{
	struct conf_block b = { .scope = CONF_SANDBOX,
		.what = "sandbox",
		.node = node,
		.parent = p->block };
	const struct conf_node *only, *rootfs;
	int rc;

	rc = conf_block_add(p, &b, core_conf_env_sandbox, e);
	if (rc == 0)
		rc = conf_block_plain(p, &b, nodes);
	if (rc != 0)
		return rc;
	only = conf_block_set(&b, "read_only");
	rootfs = conf_block_set(&b, "rootfs");
	if (only != NULL)
		e->read_only_pos = conf_node_pos(only);
	if (rootfs != NULL)
		e->rootfs_pos = conf_node_pos(rootfs);
	if (rootfs != NULL && e->rootfs.n > 0)
		rc = check_rootfs(p, e, rootfs, only);
	else if (only == NULL)
		rc = add_default(p, e);
	if (rc == 0)
		rc = check_lists(p, e, only, conf_block_set(&b, "read_write"));
	return rc;
}

int
core_conf_env_sandbox_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n)
{
	(void)row;
	(void)args;
	(void)n;
	return core_conf_env_sandbox_read(p, base, p->node, p->node->child);
}
