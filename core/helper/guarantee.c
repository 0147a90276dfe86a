#include "config.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper/complain.h"
#include "helper/guarantee.h"
#include "helper/netns.h"
#include "os/confine.h"

enum { GUARANTEE_TEXT_MAX = 1024, GUARANTEE_LANDLOCK_MIN = 1 };

#define FACT(f) (1u << GUARANTEE_##f)

/*
 * What each guarantee stands on.  Of VETH and RELAY an environment with rules
 * needs the one that it takes, and one without any none: there is no device
 * to be ruled.  CPU counts where there is a bound.
 */
static const struct {
	unsigned guarantee; /* enum conf_env_guarantee */
	unsigned facts;
	const char *means;
} guarantee_rows[] = {
	{ CONF_ENV_ASSET_ISOLATION,
	    FACT(ROOT) | FACT(NAMESPACES) | FACT(LANDLOCK),
	    "assets are in no mount namespace of a workload, and root's "
	    "alone" },
	{ CONF_ENV_EGRESS_CONTROL,
	    FACT(NETNS) | FACT(VETH) | FACT(RELAY) | FACT(SECCOMP),
	    "a network namespace of its own" },
	{ CONF_ENV_PRIVILEGE_DROP,
	    FACT(ROOT) | FACT(NAMESPACES) | FACT(SECCOMP),
	    "a uid of its own, no capabilities, no_new_privs, a seccomp "
	    "filter" },
	{ CONF_ENV_CONTROL_PLANE_ISOLATION,
	    FACT(NAMESPACES) | FACT(NETNS) | FACT(SECCOMP) | FACT(LANDLOCK),
	    "own pid, mount, ipc and network namespaces; only the doors "
	    "inside are reachable" },
	{ CONF_ENV_PRINCIPAL_ISOLATION,
	    FACT(ROOT) | FACT(NAMESPACES) | FACT(KILL),
	    "a door for each principal, told apart by its listener; worker and "
	    "agent in sandboxes of their own" },
	{ CONF_ENV_CREDENTIAL_ISOLATION,
	    FACT(NAMESPACES) | FACT(SECCOMP) | FACT(ROOT),
	    "keys and tokens stay with the reactor; an exact environment, no "
	    "inherited descriptors" },
	{ CONF_ENV_RESOURCE_ISOLATION,
	    FACT(MEMORY) | FACT(PIDS) | FACT(CPU) | FACT(KILL),
	    "control groups bound memory, processes and processor time; "
	    "workspace and /tmp are bounded" },
	{ CONF_ENV_TRACE_INTEGRITY, FACT(ROLES) | FACT(WALLS),
	    "the recorder has a user of its own, a chain of hashes and a "
	    "signing key" },
};

enum { GUARANTEE_ROWS = sizeof(guarantee_rows) / sizeof(guarantee_rows[0]) };

static int
fact(struct guarantee *g, enum guarantee_fact f, bool have, const char *yes,
    const char *no)
{
	g->have[f] = have;
	return buf_add_str(&g->text[f], have ? yes : no);
}

/*
 * Whether the namespaces can be had: in a child, because they change who it
 * is.
 */
static bool
namespaces_work(bool privileged)
{
	int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
	    CLONE_NEWNET | CLONE_NEWCGROUP;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		if (!privileged)
			flags |= CLONE_NEWUSER;
		_exit(unshare(flags) == 0 ? 0 : 1);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The kernel knows the action that the filter of a sandbox needs. */
static bool
seccomp_works(void)
{
	uint32_t action = SECCOMP_RET_KILL_PROCESS;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static int
probe_landlock(struct guarantee *g)
{
	int abi = confine_landlock_abi();
	struct buf *b = &g->text[GUARANTEE_LANDLOCK];

	g->have[GUARANTEE_LANDLOCK] = abi >= GUARANTEE_LANDLOCK_MIN;
	if (abi >= GUARANTEE_LANDLOCK_MIN)
		return buf_printf(b, "Landlock ABI %d", abi);
	return buf_add_str(b,
	    "no Landlock: a kernel with CONFIG_SECURITY_LANDLOCK and "
	    "\"landlock\" among lsm= is needed");
}

/* " (a; b)" of lines, or nothing. */
static int
put_lines(struct buf *out, struct view lines)
{
	const char *before = " (";
	struct view line;
	int rc = SP_OK;

	while (rc == SP_OK && view_split(&lines, '\n', &line)) {
		if (line.n == 0)
			continue;
		rc = buf_printf(out, "%s%.*s", before, VIEW_ARG(line));
		before = "; ";
	}
	return rc == SP_OK && before[0] == ';' ? buf_add_char(out, ')') : rc;
}

static int
probe_cgroups(struct guarantee *g, const struct guarantee_world *w)
{
	static const struct {
		enum guarantee_fact fact;
		enum cgroup_hierarchy where;
		const char *yes, *no;
	} rows[] = {
		{ GUARANTEE_KILL, CGROUP_UNIFIED, "cgroup.kill",
		    "no cgroup v2 with cgroup.kill (Linux 5.14)" },
		{ GUARANTEE_MEMORY, CGROUP_MEMORY, "memory controller",
		    "no memory controller" },
		{ GUARANTEE_PIDS, CGROUP_PIDS, "pids controller",
		    "no pids controller" },
		{ GUARANTEE_CPU, CGROUP_CPU, "cpu controller",
		    "no cpu controller" },
	};
	bool told = false;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == SP_OK; i++) {
		bool have =
		    w->cgroups != NULL && w->cgroups->fd[rows[i].where] >= 0;

		rc = fact(g, rows[i].fact, have, rows[i].yes, rows[i].no);
		/* what lacks others lacks the first, too: the reason is there */
		if (rc == SP_OK && !have && !told)
			rc = put_lines(&g->text[rows[i].fact], w->cgroups_why);
		told = told || !have;
	}
	return rc;
}

/* A probe that is not wanted is not made: nothing asks for what it says. */
static int
probe_one(struct guarantee *g, enum guarantee_fact f, const char *yes,
    int (*probe)(bool, struct buf *), int how)
{
	struct buf err = BUF_INIT(GUARANTEE_TEXT_MAX / 2);
	int rc, one = how < 0 ? SP_OK : probe(how == 1, &err);

	g->have[f] = one == SP_OK;
	rc = one == SP_OK ? buf_add_str(&g->text[f], how < 0 ? "" : yes)
			  : buf_add_view(&g->text[f], buf_view(&err));
	buf_clear(&err);
	return rc;
}

static int
probe_net(struct guarantee *g, const struct guarantee_world *w)
{
	static const char veth[] = "veth, nftables, NFLOG",
			  relay[] = "relay, nftables, NFLOG";
	int (*probe)(bool, struct buf *) =
	    w->privileged ? netns_probe : netns_probe_user;
	/* root's namespace without a link is tried with the relay's rules */
	int how = w->privileged ? 0 : 1;
	int rc;

	rc = probe_one(g, GUARANTEE_NETNS, "a namespace without a device",
	    probe, 0);
	if (rc == SP_OK)
		rc = probe_one(g, GUARANTEE_VETH, veth, netns_probe,
		    w->wants_veth ? 1 : -1);
	if (rc == SP_OK)
		rc = probe_one(g, GUARANTEE_RELAY, relay, probe,
		    w->wants_relay || !g->have[GUARANTEE_VETH] ? how : -1);
	return rc;
}

int
guarantee_probe(struct guarantee *g, const struct guarantee_world *w)
{
	size_t i;
	int rc;

	memset(g, 0, sizeof(*g));
	for (i = 0; i < GUARANTEE_FACTS; i++)
		buf_init(&g->text[i], GUARANTEE_TEXT_MAX);
	rc = fact(g, GUARANTEE_ROOT, w->privileged, "started as root",
	    "not started as root: all runs as one user");
	if (rc == SP_OK)
		rc = fact(g, GUARANTEE_ROLES, w->roles_apart,
		    "reactor and recorder have users of their own",
		    "reactor and recorder share a user: start as root");
	if (rc == SP_OK)
		rc = fact(g, GUARANTEE_WALLS, confine_built(),
		    "roles under seccomp and Landlock",
		    "this build is without confinement");
	if (rc == SP_OK)
		rc = fact(g, GUARANTEE_NAMESPACES,
		    namespaces_work(w->privileged), "namespaces",
		    w->privileged
			? "namespaces are refused, even to root: give this "
			  "container CAP_SYS_ADMIN, CAP_NET_ADMIN, "
			  "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
			: "user namespaces are refused: allow them "
			  "(kernel.unprivileged_userns_clone, "
			  "user.max_user_namespaces, AppArmor), or start as "
			  "root");
	if (rc == SP_OK)
		rc = fact(g, GUARANTEE_SECCOMP, seccomp_works(), "seccomp",
		    "no seccomp filters: a kernel with CONFIG_SECCOMP_FILTER "
		    "is needed");
	if (rc == SP_OK)
		rc = probe_landlock(g);
	if (rc == SP_OK)
		rc = probe_cgroups(g, w);
	if (rc == SP_OK)
		rc = probe_net(g, w);
	return rc == SP_E_LIMIT ? SP_OK : rc;
}

void
guarantee_clear(struct guarantee *g)
{
	size_t i;

	for (i = 0; i < GUARANTEE_FACTS; i++)
		buf_clear(&g->text[i]);
}

bool
guarantee_veth(const struct guarantee *g, const struct conf_environment *env)
{
	if (!g->have[GUARANTEE_ROOT] || env->via == CONF_ENV_VIA_RELAY)
		return false;
	return env->via == CONF_ENV_VIA_VETH || g->have[GUARANTEE_VETH];
}

static bool
is_needed(const struct guarantee *g, const struct conf_environment *env,
    unsigned f)
{
	bool veth = guarantee_veth(g, env);

	switch (f) {
	case GUARANTEE_VETH:
		return env->has_egress && veth;
	case GUARANTEE_RELAY:
		return env->has_egress && !veth;
	case GUARANTEE_CPU:
		return env->cpu_milli > 0;
	default:
		return true;
	}
}

/* The facts of a row that this environment needs and that are not there. */
static unsigned
row_missing(const struct guarantee *g, const struct conf_environment *env,
    size_t row)
{
	unsigned missing = 0;
	unsigned i;

	if (env->enforcement == CONF_ENV_ENFORCE_LOCAL)
		return guarantee_rows[row].facts;
	for (i = 0; i < GUARANTEE_FACTS; i++) {
		if (!(guarantee_rows[row].facts & (1u << i)) || g->have[i])
			continue;
		if (is_needed(g, env, i))
			missing |= 1u << i;
	}
	return missing;
}

/* By what means this environment has it, where they differ. */
static const char *
row_means(const struct guarantee *g, const struct conf_environment *env,
    size_t row)
{
	switch (guarantee_rows[row].guarantee) {
	case CONF_ENV_ASSET_ISOLATION:
		if (env->assets.n == 0)
			return "it has no assets";
		break;
	case CONF_ENV_EGRESS_CONTROL:
		if (!env->has_egress)
			return "a network namespace of its own with no device "
			       "but loopback";
		return guarantee_veth(g, env)
		    ? "a network namespace of its own; a veth pair, and "
		      "nftables with default deny at both ends"
		    : "a network namespace of its own without a way out; "
		      "nftables turns what is allowed to the relay";
	case CONF_ENV_CONTROL_PLANE_ISOLATION:
		if (env->insides_n == 0)
			return "own pid, mount, ipc and network namespaces; "
			       "no door inside";
		break;
	case CONF_ENV_PRINCIPAL_ISOLATION:
		if (env->worker == CONF_ENV_WORKER_NONE)
			return "a door for each principal, told apart by its "
			       "listener; there is no worker";
		break;
	case CONF_ENV_RESOURCE_ISOLATION:
		if (env->cpu_milli == 0)
			return "control groups bound memory and processes, and "
			       "not processor time (cpu off); workspace and "
			       "/tmp are bounded";
		break;
	default:
		break;
	}
	return guarantee_rows[row].means;
}

static const char *
row_name(size_t row)
{
	unsigned bit;

	for (bit = 0; guarantee_rows[row].guarantee >> bit > 1; bit++)
		;
	return conf_env_guarantees[bit];
}

static int
row_why(const struct guarantee *g, const struct conf_environment *env,
    unsigned missing, struct buf *out)
{
	const char *comma = "";
	size_t i;
	int rc = SP_OK;

	if (env->enforcement == CONF_ENV_ENFORCE_LOCAL)
		return buf_add_str(out, "enforcement local provides none");
	for (i = 0; i < GUARANTEE_FACTS && rc == SP_OK; i++) {
		if (!(missing & (1u << i)))
			continue;
		rc = buf_printf(out, "%s%.*s", comma,
		    VIEW_ARG(buf_view(&g->text[i])));
		comma = "; ";
	}
	return rc;
}

int
guarantee_check(const struct guarantee *g, const struct conf_environment *env)
{
	struct buf why = BUF_INIT(8192);
	unsigned missing;
	size_t row;
	int rc = SP_OK;

	for (row = 0; row < GUARANTEE_ROWS; row++) {
		if (!(env->require & guarantee_rows[row].guarantee))
			continue;
		missing = row_missing(g, env, row);
		if (missing == 0)
			continue;
		buf_truncate(&why, 0);
		(void)!row_why(g, env, missing, &why);
		complain("%s:%u: environment \"%.*s\" requires %s, which "
			 "cannot "
			 "be had: %.*s",
		    env->pos.file, env->pos.line, VIEW_ARG(env->name),
		    row_name(row), VIEW_ARG(buf_view(&why)));
		rc = SP_E_CONF;
	}
	buf_clear(&why);
	return rc;
}

int
guarantee_table(const struct guarantee *g, const struct conf_environment *env,
    struct buf *out)
{
	unsigned missing;
	size_t row;
	int rc;

	rc = buf_printf(out, "environment %.*s\n  %-24s %-9s %-9s %s\n",
	    VIEW_ARG(env->name), "guarantee", "required", "provided",
	    "by what means");
	for (row = 0; row < GUARANTEE_ROWS && rc == SP_OK; row++) {
		missing = row_missing(g, env, row);
		rc = buf_printf(out, "  %-24s %-9s %-9s ", row_name(row),
		    env->require & guarantee_rows[row].guarantee ? "yes" : "no",
		    missing == 0 ? "yes" : "no");
		if (rc == SP_OK && missing == 0)
			rc = buf_add_str(out, row_means(g, env, row));
		else if (rc == SP_OK)
			rc = row_why(g, env, missing, out);
		if (rc == SP_OK)
			rc = buf_add_char(out, '\n');
	}
	return rc;
}
