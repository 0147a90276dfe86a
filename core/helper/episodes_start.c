#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/assets.h"
#include "helper/complain.h"
#include "helper/env_paths.h"
#include "helper/episodes_priv.h"
#include "helper/ids.h"
#include "helper/sandbox_plan.h"
#include "helper/seed.h"
#include "helper/slot_spare.h"
#include "helper/sweep.h"
#include "os/dir.h"
#include "os/fd.h"

enum {
	START_SWEEP_MS = 10 * 1000, /* for each leaf of an earlier run */
	START_WHY_MAX = 4096,
	START_TRY_MS = 90 * 1000, /* a sandbox built and taken down */
};

/* ---- what an earlier run left ----------------------------------------------- */

static void
old_tree_close(int fds[CGROUP_HIERARCHIES])
{
	size_t i;

	for (i = 0; i < CGROUP_HIERARCHIES; i++)
		fd_close(&fds[i]);
}

/* Its control groups, where they were; those that are gone are clean. */
static int
old_tree_open(struct slot_journal *j, int fds[CGROUP_HIERARCHIES],
    bool v1[CGROUP_HIERARCHIES])
{
	char *path;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < CGROUP_HIERARCHIES; i++) {
		fds[i] = -1;
		v1[i] = false;
		if (buf_len(&j->cgroups[i]) == 0 || rc != SP_OK)
			continue;
		path = mem_strndup(buf_view(&j->cgroups[i]).p,
		    buf_len(&j->cgroups[i]));
		if (path == NULL) {
			rc = SP_E_NOMEM;
			continue;
		}
		fds[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fds[i] >= 0)
			v1[i] = cgroup_is_v1(fds[i]);
		else if (errno != ENOENT)
			rc = err_from_errno(errno);
		mem_free(path);
	}
	return rc;
}

static int
start_sweep(struct episodes *e)
{
	struct slot_journal *j = &e->journal;
	struct buf why = BUF_INIT(START_WHY_MAX);
	int fds[CGROUP_HIERARCHIES];
	bool v1[CGROUP_HIERARCHIES];
	struct sweep sw = {
		.has_net = e->world.privileged,
		.cgroups = fds,
		.cgroups_v1 = v1,
		.disk_fd = e->disk_fd,
		.timeout_ms = START_SWEEP_MS,
	};
	uint32_t i;
	int rc;

	if (j->slots == 0)
		return SP_OK;
	log_notice("sweeping what an earlier run may have left");
	rc = old_tree_open(j, fds, v1);
	for (i = 0; i < j->slots && rc == SP_OK; i++) {
		sw.slot = j->block * SLOT_BLOCK_N + i;
		rc = sweep_run(&sw, &why);
	}
	old_tree_close(fds);
	if (rc != SP_OK)
		complain("sallyport: what an earlier run left cannot be "
			 "removed "
			 "(slot %" PRIu32 "): %.*s%s; remove it, then start "
			 "again",
		    sw.slot, VIEW_ARG(buf_view(&why)),
		    buf_len(&why) == 0 ? err_str(rc) : "");
	buf_clear(&why);
	return rc == SP_OK ? slot_journal_reset(j) : SP_E_CONF;
}

static int
start_journal(struct episodes *e)
{
	int rc;

	rc = slot_journal_open(&e->journal, e->world.state_fd);
	if (rc == SP_E_NOMEM)
		return rc;
	if (rc == SP_E_SYNTAX)
		complain("sallyport: the file \"slots\" in state_dir cannot be "
			 "understood; see what cgroups, links and nftables "
			 "tables of sallyport there are, remove them and it, "
			 "then start again");
	else if (rc != SP_OK)
		complain("sallyport: the file \"slots\" in state_dir: %s",
		    err_str(rc));
	return rc == SP_OK ? start_sweep(e) : SP_E_CONF;
}

/* ---- environments ----------------------------------------------------------- */

static int
start_seed(struct ep_env *v)
{
	const struct conf_environment *env = v->env;
	struct buf why = BUF_INIT(START_WHY_MAX);
	char *path;
	int rc = SP_OK;

	if (env->workspace.n == 0)
		return SP_OK;
	rc = env_paths_workspace(env);
	if (rc != SP_OK)
		return rc;
	path = mem_strndup(env->workspace.p, env->workspace.n);
	if (path == NULL)
		return SP_E_NOMEM;
	if (v->e->world.state_fd >= 0) {
		rc = seed_capture(v->e->world.state_fd, env->name, path,
		    &v->seed_fd, NULL, &why);
	} else {
		/* -t keeps nothing; what it builds only reads */
		v->seed_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (v->seed_fd < 0)
			rc = err_from_errno(errno);
	}
	/* why names it already */
	if (rc != SP_OK && buf_len(&why) > 0)
		complain("%s:%u: %.*s", env->workspace_pos.file,
		    env->workspace_pos.line, VIEW_ARG(buf_view(&why)));
	else if (rc != SP_OK)
		complain("%s:%u: workspace %s: %s", env->workspace_pos.file,
		    env->workspace_pos.line, path, err_str(rc));
	mem_free(path);
	buf_clear(&why);
	return rc == SP_OK || rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

static void
start_seeded(void *arg, int rc, int fd, struct view why)
{
	struct ep_env *v = arg;

	v->seed = NULL;
	v->seed_fd = fd;
	if (rc != SP_OK)
		log_error("environment \"%s\" has no episodes: %.*s", v->name,
		    VIEW_ARG(why));
	/* what it lacks is in the log; its episodes are refused */
	if (rc != SP_OK)
		v->env = NULL;
	episodes_seeded(v, rc, why);
}

/* While others are served: a copy may take minutes. */
static int
start_seed_job(struct ep_env *v)
{
	v->seed = seed_job_start(v->e->p, v->e->world.state_fd, v->env->name,
	    v->env->workspace, start_seeded, v);
	return v->seed != NULL ? SP_OK : SP_E_NOMEM;
}

static void
env_clear(struct ep_env *v)
{
	seed_job_drop(v->seed);
	mem_free(v->waiting);
	fd_close(&v->seed_fd);
	fd_close(&v->assets_fd);
	poller_timer_free(v->again);
	mem_free(v->places);
	mem_free(v);
}

/* What is not to be had of control groups, and why; cut where it is long. */
static void
start_groups_why(const struct guarantee *g, struct buf *why)
{
	static const enum guarantee_fact facts[] = { GUARANTEE_KILL,
		GUARANTEE_MEMORY, GUARANTEE_PIDS, GUARANTEE_CPU };
	const char *comma = "";
	size_t i;

	for (i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		if (g->have[facts[i]])
			continue;
		(void)!buf_printf(why, "%s%.*s", comma,
		    VIEW_ARG(buf_view(&g->text[facts[i]])));
		comma = "; ";
	}
}

/*
 * Without control groups there are fewer bounds: told, by name.  Root, who
 * has the right to them, is warned.
 */
static int
start_unbounded(const struct ep_env *v)
{
	const struct guarantee *g = &v->e->guarantee;
	bool memory = !g->have[GUARANTEE_MEMORY] && conf_env_memory(v->env) > 0;
	bool cpu = !g->have[GUARANTEE_CPU] && v->env->cpu_milli > 0;
	const char *what = memory && cpu ? "memory and cpu"
	    : memory                     ? "memory"
					 : "cpu";
	struct buf why = BUF_INIT(START_WHY_MAX);

	if (!memory && !cpu)
		return SP_OK;
	start_groups_why(g, &why);
	if (v->e->world.privileged)
		log_warn("environment %s: %s not bounded: %.*s; mount control "
			 "groups at /sys/fs/cgroup, or start where they are "
			 "(\"ip netns exec\" hides them: say nsenter "
			 "--net=/run/netns/NAME); \"require "
			 "resource_isolation\" refuses such a start",
		    v->name, what, VIEW_ARG(buf_view(&why)));
	else
		log_notice("environment %s: %s not bounded: an ordinary "
			   "user needs a control group with these controllers "
			   "delegated",
		    v->name, what);
	buf_clear(&why);
	return SP_OK;
}

/*
 * Where the files are made that workspaces on a disk lie in.  They have no
 * names, so that none outlives its sandbox; -t keeps nothing anyway.
 */
static int
start_disk(const struct ep_env *v)
{
	const struct conf_environment *env = v->env;
	struct episodes *e = v->e;
	int rc = SP_OK;

	if (!e->world.privileged) {
		complain("%s:%u: environment \"%.*s\": storage disk needs a "
			 "start as root; expected storage memory",
		    env->pos.file, env->pos.line, VIEW_ARG(env->name));
		return SP_E_CONF;
	}
	if (e->disk_fd >= 0)
		return SP_OK;
	if (e->world.state_fd < 0)
		e->disk_fd =
		    open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	else if (mkdirat(e->world.state_fd, "disk", 0700) != 0 &&
	    errno != EEXIST)
		rc = err_from_errno(errno);
	else
		e->disk_fd = openat(e->world.state_fd, "disk",
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (rc == SP_OK && e->disk_fd < 0)
		rc = err_from_errno(errno);
	if (rc != SP_OK)
		complain("%s:%u: environment \"%.*s\": storage disk: the "
			 "folder \"disk\" in state_dir: %s",
		    env->pos.file, env->pos.line, VIEW_ARG(env->name),
		    err_str(rc));
	e->slots.disk_fd = e->disk_fd;
	return rc == SP_OK ? SP_OK : SP_E_CONF;
}

/*
 * What leaves goes through the relay, which carries tcp alone: an ordinary
 * user has no link to the host, and root none where the host does not forward.
 */
static int
start_relay(const struct ep_env *v)
{
	const struct conf_environment *env = v->env;
	const struct guarantee *g = &v->e->guarantee;
	struct view veth = buf_view(&g->text[GUARANTEE_VETH]);
	bool root = v->e->world.privileged, udp = false;
	size_t i;

	for (i = 0; i < env->rules_n; i++)
		udp = udp ||
		    (!env->rules[i].is_host &&
			env->rules[i].proto == IPPROTO_UDP);
	if (udp)
		complain("%s:%u: environment \"%.*s\": a rule for udp needs "
			 "via veth, and that %.*s",
		    env->pos.file, env->pos.line, VIEW_ARG(env->name),
		    VIEW_ARG(root ? veth : VIEW("a start as root")));
	else if (!g->have[GUARANTEE_RELAY])
		complain("%s:%u: environment \"%.*s\": egress cannot be had: "
			 "%.*s",
		    env->pos.file, env->pos.line, VIEW_ARG(env->name),
		    VIEW_ARG(buf_view(&g->text[GUARANTEE_RELAY])));
	else
		return SP_OK;
	return SP_E_CONF;
}

/* By which way what leaves does, and whether that can be had. */
static int
start_way(const struct ep_env *v)
{
	const struct conf_environment *env = v->env;
	const struct guarantee *g = &v->e->guarantee;
	struct view why = buf_view(&g->text[GUARANTEE_VETH]);

	if (!env->has_egress)
		return SP_OK;
	if (!v->e->world.privileged && env->via == CONF_ENV_VIA_VETH) {
		complain("%s:%u: environment \"%.*s\": via veth needs a start "
			 "as root; expected via relay",
		    env->pos.file, env->pos.line, VIEW_ARG(env->name));
		return SP_E_CONF;
	}
	if (!v->e->world.privileged)
		return start_relay(v);
	if (g->have[GUARANTEE_VETH] || env->via == CONF_ENV_VIA_RELAY)
		return SP_OK;
	if (env->via == CONF_ENV_VIA_VETH) {
		log_warn("environment %s: via veth: what is allowed does not "
			 "get out: %.*s",
		    v->name, VIEW_ARG(why));
		return SP_OK;
	}
	log_notice("environment %s: via auto takes the relay: %.*s", v->name,
	    VIEW_ARG(why));
	return start_relay(v);
}

/* What cannot be had at all, whatever is required. */
static int
start_privilege(const struct ep_env *v)
{
	const struct conf_environment *env = v->env;
	const struct guarantee *g = &v->e->guarantee;
	size_t f;
	int rc;

	if (env->enforcement == CONF_ENV_ENFORCE_LOCAL)
		return SP_OK;
	if (env->storage == CONF_ENV_STORAGE_DISK) {
		rc = start_disk(v);
		if (rc != SP_OK)
			return rc;
	}
	/* without these there is no sandbox at all, whatever is required */
	for (f = 0; f < GUARANTEE_FACTS; f++) {
		if ((f != GUARANTEE_NAMESPACES && f != GUARANTEE_NETNS &&
			f != GUARANTEE_SECCOMP) ||
		    g->have[f])
			continue;
		complain("%s:%u: environment \"%.*s\": no sandbox can be "
			 "built: %.*s",
		    env->pos.file, env->pos.line, VIEW_ARG(env->name),
		    VIEW_ARG(buf_view(&g->text[f])));
		return SP_E_CONF;
	}
	rc = start_way(v);
	return rc == SP_OK ? start_unbounded(v) : rc;
}

static int
start_env(struct episodes *e, const struct conf_environment *env)
{
	struct ep_env *v, **grown;
	int rc;

	grown =
	    mem_reallocarray(e->envs, e->envs_n + 1, sizeof(struct ep_env *));
	if (grown == NULL)
		return SP_E_NOMEM;
	e->envs = grown;
	v = mem_calloc(1, sizeof(*v));
	if (v == NULL)
		return SP_E_NOMEM;
	v->e = e;
	v->env = env;
	v->seed_fd = v->assets_fd = -1;
	v->via_veth = env->has_egress && guarantee_veth(&e->guarantee, env);
	(void)snprintf(v->name, sizeof(v->name), "%.*s", VIEW_ARG(env->name));
	v->places_n = sandbox_plan_places(env);
	v->places = mem_calloc(v->places_n, sizeof(v->places[0]));
	e->envs[e->envs_n++] = v;
	if (v->places == NULL)
		return SP_E_NOMEM;
	rc = start_privilege(v);
	if (rc == SP_OK)
		rc = guarantee_check(&e->guarantee, env);
	if (rc == SP_OK)
		rc = env_paths_check(env);
	if (rc == SP_OK)
		rc = assets_open(env, &v->assets_fd);
	if (rc != SP_OK || env->workspace.n == 0)
		return rc;
	return e->p != NULL ? start_seed_job(v) : start_seed(v);
}

static void
start_too_much(const struct conf_environment *env, uint64_t before,
    uint64_t have)
{
	char others[80] = "";

	if (before > 0)
		(void)snprintf(others, sizeof(others),
		    ", and the %" PRIu64 " MiB of the environments before it",
		    before >> 20);
	complain("%s:%u: environment \"%.*s\": episodes %" PRIu64
		 " and warm %" PRIu64 ", each of %s%" PRIu64
		 " MiB (memory, workspace_size, tmp_size, shm_size)%s%s are "
		 "more than this host's %" PRIu64 " MiB; expected fewer "
		 "\"episodes\" or \"warm\", or a smaller \"memory\" or "
		 "other size",
	    env->pos.file, env->pos.line, VIEW_ARG(env->name), env->episodes,
	    env->warm, slot_sides(env) > 1 ? "two sandboxes of " : "",
	    conf_env_memory(env) >> 20,
	    conf_env_grades(env) ? ", one more for grading each episode" : "",
	    others, have >> 20);
}

/* All that may be in use at once, against what the host has. */
static int
start_memory(const struct conf *c)
{
	uint64_t want = 0, all, have;
	struct sysinfo si;
	size_t i;

	if (sysinfo(&si) != 0)
		return SP_OK;
	have = (uint64_t)si.totalram * si.mem_unit;
	for (i = 0; i < c->environments_n; i++) {
		const struct conf_environment *env = c->environments[i];

		if (env->enforcement == CONF_ENV_ENFORCE_LOCAL)
			continue;
		all = conf_env_admitted(env, slot_sides(env));
		if (all > have - want) {
			start_too_much(env, want, have);
			return SP_E_CONF;
		}
		want += all;
	}
	return SP_OK;
}

/* ---- one of each, for a try ------------------------------------------------- */

/* It stands: are its programs in it?  Then it may go. */
static void
try_go_on(struct episodes *e, struct slot *s, int rc)
{
	if (rc == SP_OK || rc == SP_E_AGAIN)
		return;
	e->tried = rc == SP_E_NOTFOUND ? e->programs.rc : rc;
	slot_end(s);
}

static void
try_ready(void *arg, struct slot *s)
{
	struct episodes *e = arg;

	try_go_on(e, s, programs_begin(&e->programs, s, s->env));
}

static void
try_failed(void *arg, struct slot *s)
{
	struct episodes *e = arg;

	e->tried = SP_E_CONF;
	complain("sallyport: a sandbox of environment \"%s\" cannot be built: "
		 "%.*s",
	    s->name, VIEW_ARG(buf_view(&s->why)));
}

static void
try_nothing(void *arg, struct slot *s)
{
	(void)arg;
	(void)s;
}

/* By itself, with what it was asked unanswered: told in the log. */
static void
try_ending(void *arg, struct slot *s)
{
	struct episodes *e = arg;

	(void)s;
	if (e->tried == SP_E_AGAIN)
		e->tried = SP_E_CONF;
}

static void
try_stuck(void *arg, struct slot *s)
{
	struct episodes *e = arg;

	e->tried = SP_E_CONF;
	complain("sallyport: a sandbox of environment \"%s\" cannot be taken "
		 "down again",
	    s->name);
	poller_stop(e->p);
}

static void
try_swept(void *arg, struct slot *s)
{
	struct episodes *e = arg;

	(void)s;
	poller_stop(e->p);
}

static void
try_heard(void *arg, struct slot *s, const struct channel_msg *m,
    uint32_t number, struct view rest, int fd)
{
	struct episodes *e = arg;

	(void)number;
	fd_close(&fd);
	if (e->tried == SP_E_AGAIN)
		try_go_on(e, s, programs_heard(&e->programs, m, rest));
}

static void
try_on_child(void *arg, int signo)
{
	struct slot *s = arg;
	int status, i;
	pid_t pid;

	(void)signo;
	for (i = 0; i < 1000; i++) {
		pid = waitpid(-1, &status, WNOHANG);
		if (pid <= 0)
			return;
		(void)slot_reaped(s, pid, status);
	}
}

static void
try_after(void *arg)
{
	slot_after(arg);
}

/* Neither built nor taken down: the host is not as it should be. */
static void
try_on_timer(void *arg)
{
	struct episodes *e = arg;

	e->tried = SP_E_CONF;
	complain("sallyport: a sandbox that was built for a try is not taken "
		 "down again in time");
	poller_stop(e->p);
}

static int
try_env(struct episodes *e, struct ep_env *v)
{
	struct poller_timer *late = NULL;
	struct slot *s;
	int rc;

	e->p = e->slots.p = poller_new();
	if (e->p == NULL)
		return SP_E_NOMEM;
	s = slot_new(&e->slots, e->block.block * SLOT_BLOCK_N);
	rc = s == NULL ? SP_E_NOMEM
		       : poller_signal(e->p, SIGCHLD, try_on_child, s);
	if (rc == SP_OK) {
		late = poller_timer_new(e->p, try_on_timer, e);
		rc = late != NULL ? SP_OK : SP_E_NOMEM;
	}
	if (rc == SP_OK) {
		poller_timer_set(late, START_TRY_MS + v->env->teardown_ms);
		poller_after(e->p, try_after, s);
		e->tried = SP_E_AGAIN;
		rc = slot_build(s, v->env, 0, v->seed_fd, v->assets_fd,
		    v->via_veth);
	}
	if (rc == SP_OK)
		rc = poller_run(e->p);
	if (rc == SP_OK)
		rc = e->tried;
	slot_free(s);
	poller_timer_free(late);
	poller_free(e->p);
	e->p = e->slots.p = NULL;
	return rc;
}

static int
start_try(struct episodes *e)
{
	size_t i;
	int rc, one;

	e->slots.ready = try_ready;
	e->slots.failed = try_failed;
	e->slots.empty = try_nothing;
	e->slots.stuck = try_stuck;
	e->slots.swept = try_swept;
	e->slots.heard = try_heard;
	e->slots.ending = try_ending;
	e->slots.oracle = NULL; /* none is started */
	rc = slot_journal_cover(&e->journal, 1);
	if (rc != SP_OK) {
		complain("sallyport: the file \"slots\" in state_dir: %s",
		    err_str(rc));
		return SP_E_CONF;
	}
	for (i = 0; i < e->envs_n; i++) {
		one = try_env(e, e->envs[i]);
		if (rc == SP_OK)
			rc = one;
	}
	return rc;
}

/* ---- all of it -------------------------------------------------------------- */

/* Whether some environment goes that way: an ordinary user has the relay. */
static bool
wants(const struct conf *c, bool privileged, bool veth)
{
	const struct conf_environment *env;
	size_t i;

	for (i = 0; i < c->environments_n; i++) {
		env = c->environments[i];
		if (env->has_egress &&
		    (privileged && env->via != CONF_ENV_VIA_RELAY) == veth)
			return true;
	}
	return false;
}

/* What a daemon left whose state_dir is gone: the block is ours now. */
static int
start_sweep_one(void *arg, uint32_t slot)
{
	struct episodes *e = arg;
	struct buf why = BUF_INIT(START_WHY_MAX);
	struct sweep sw = {
		.slot = slot,
		.has_net = e->world.privileged,
		.cgroups = e->cgroups.fd,
		.cgroups_v1 = e->cgroups.v1,
		.disk_fd = e->disk_fd,
		.timeout_ms = START_SWEEP_MS,
	};
	int rc = sweep_run(&sw, &why);

	if (rc != SP_OK)
		complain("sallyport: what another run left cannot be removed "
			 "(slot %" PRIu32 "): %.*s",
		    slot, VIEW_ARG(buf_view(&why)));
	buf_clear(&why);
	return rc;
}

static int
start_host(struct episodes *e)
{
	struct buf why = BUF_INIT(START_WHY_MAX);
	struct guarantee_world gw = {
		.privileged = e->world.privileged,
		.roles_apart = e->world.ids->change,
		.wants_veth = wants(e->world.conf, e->world.privileged, true),
		.wants_relay = wants(e->world.conf, e->world.privileged, false),
	};
	int rc;

	rc = cgroup_root_open(&e->cgroups, NULL, &why);
	if (rc == SP_E_NOMEM)
		goto out;
	gw.cgroups = rc == SP_OK ? &e->cgroups : NULL;
	gw.cgroups_why = buf_view(&why);
	rc = slot_block_claim(&e->block, &e->cgroups, e->journal.block);
	if (rc != SP_OK) {
		complain("sallyport: no numbers for episodes are left (%s): "
			 "%d daemons with environments run on this host",
		    err_str(rc), SLOT_BLOCKS);
		rc = SP_E_CONF;
		goto out;
	}
	e->journal.block = e->block.block;
	rc = slot_journal_place(&e->journal, &e->cgroups);
	if (rc == SP_OK)
		rc = sweep_find(e->cgroups.fd, e->block.block * SLOT_BLOCK_N,
		    SLOT_BLOCK_N, start_sweep_one, e);
	if (rc == SP_OK)
		rc = guarantee_probe(&e->guarantee, &gw);
out:
	buf_clear(&why);
	return rc;
}

static int
start_all(struct episodes *e)
{
	const struct conf *c = e->world.conf;
	size_t i;
	int rc, one;

	rc = start_journal(e);
	if (rc != SP_OK || c->environments_n == 0)
		return rc;
	rc = start_host(e);
	if (rc == SP_OK)
		rc = start_memory(c);
	for (i = 0; i < c->environments_n && rc != SP_E_NOMEM; i++) {
		one = start_env(e, c->environments[i]);
		if (rc == SP_OK)
			rc = one;
	}
	return rc == SP_OK ? start_try(e) : rc;
}

int
episodes_open(struct episodes **out, const struct episodes_world *w)
{
	struct episodes *e = mem_calloc(1, sizeof(*e));
	size_t i;
	int rc;

	*out = NULL;
	if (e == NULL)
		return SP_E_NOMEM;
	e->world = *w;
	e->disk_fd = -1;
	e->block.net_fd = e->block.cgroup_fd = -1;
	for (i = 0; i < CGROUP_HIERARCHIES; i++)
		e->cgroups.fd[i] = -1;
	e->slots.program_dir = w->program_dir;
	e->slots.cgroups = &e->cgroups;
	e->slots.disk_fd = -1;
	e->slots.privileged = w->privileged;
	e->slots.arg = e;
	rc = start_all(e);
	if (rc != SP_OK || w->conf->environments_n == 0) {
		episodes_free(e);
		return rc;
	}
	*out = e;
	return SP_OK;
}

int
episodes_attach(struct episodes *e, struct poller *p)
{
	if (e == NULL)
		return SP_OK;
	e->p = e->slots.p = p;
	e->slots.ready = episodes_on_ready;
	e->slots.failed = episodes_on_failed;
	e->slots.empty = episodes_on_empty;
	e->slots.stuck = episodes_on_stuck;
	e->slots.swept = episodes_on_swept;
	e->slots.heard = episodes_on_heard;
	e->slots.ending = episodes_on_ending;
	e->slots.oracle = grade_on_oracle;
	e->stop_timer = episodes_stop_timer(e);
	e->warm_timer = poller_timer_new(p, episodes_on_warm_timer, e);
	e->slots.spare = slot_spare_new(p, e->slots.program_dir);
	return e->stop_timer != NULL && e->warm_timer != NULL &&
		e->slots.spare != NULL
	    ? SP_OK
	    : SP_E_NOMEM;
}

void
episodes_free(struct episodes *e)
{
	size_t i;

	if (e == NULL)
		return;
	for (i = 0; i < e->eps_n; i++) {
		episodes_on_ending(e, e->eps[i]->slot);
		hold_free(e->eps[i]->hold);
		slot_free(e->eps[i]->slot);
		mem_free(e->eps[i]);
	}
	mem_free(e->eps);
	for (i = 0; i < e->envs_n; i++)
		env_clear(e->envs[i]);
	mem_free(e->envs);
	fd_close(&e->disk_fd);
	slot_spare_free(e->slots.spare);
	poller_timer_free(e->stop_timer);
	poller_timer_free(e->warm_timer);
	slot_block_release(&e->block);
	slot_journal_clear(&e->journal);
	guarantee_clear(&e->guarantee);
	cgroup_root_clear(&e->cgroups);
	mem_free(e);
}

int
episodes_guarantees(const struct episodes *e, struct buf *out)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; e != NULL && i < e->envs_n && rc == SP_OK; i++)
		if (e->envs[i]->env != NULL)
			rc = guarantee_table(&e->guarantee, e->envs[i]->env,
			    out);
	return rc;
}

/* ---- another configuration -------------------------------------------------- */

static bool
env_lives(const struct ep_env *v)
{
	size_t i;

	for (i = 0; i < v->e->eps_n; i++) {
		const struct ep *p = v->e->eps[i];

		if (p->env == v && p->use != EP_NONE && p->use != EP_WARM)
			return true;
	}
	return false;
}

static const struct conf_environment *
env_next(const struct ep_env *v, const struct conf *next)
{
	const struct conf_environment *n;

	if (v->env == NULL)
		return NULL;
	n = conf_env_find(next, view_str(v->name));
	return n != NULL && conf_env_same(v->env, n) ? n : NULL;
}

int
episodes_reload_check(struct episodes *e, const struct conf *next)
{
	size_t i;
	int rc = SP_OK;

	if (e == NULL) {
		if (next->environments_n == 0)
			return SP_OK;
		complain("sallyport: the first environment needs a restart");
		return SP_E_CONF;
	}
	for (i = 0; i < e->envs_n; i++) {
		struct ep_env *v = e->envs[i];

		if (v->env == NULL || env_next(v, next) != NULL)
			continue;
		if (v->seed != NULL)
			complain("sallyport: environment \"%s\" has changed "
				 "while its workspace is being captured; "
				 "reload later",
			    v->name);
		else if (env_lives(v))
			complain("sallyport: environment \"%s\" has changed "
				 "while episodes of it live; end them, or "
				 "restart",
			    v->name);
		else
			continue;
		rc = SP_E_CONF;
	}
	return rc == SP_OK ? start_memory(next) : rc;
}

/* One that changed is another one from now on. */
static void
env_retire(struct ep_env *v)
{
	size_t i;

	for (i = 0; i < v->e->eps_n; i++)
		if (v->e->eps[i]->env == v)
			slot_end(v->e->eps[i]->slot);
	v->env = NULL;
}

/*
 * Retired, and nothing of it is left: its seed would stay open for ever, and
 * each change leave one more.
 */
static void
env_forget(struct episodes *e)
{
	size_t i, j, n = 0;

	for (i = 0; i < e->envs_n; i++) {
		struct ep_env *v = e->envs[i];
		bool used = v->env != NULL || v->seed != NULL;

		for (j = 0; j < e->eps_n && !used; j++)
			used = e->eps[j]->env == v &&
			    (e->eps[j]->use != EP_NONE ||
				e->eps[j]->slot->state != SLOT_FREE);
		if (used) {
			e->envs[n++] = v;
			continue;
		}
		for (j = 0; j < e->eps_n; j++)
			if (e->eps[j]->env == v)
				e->eps[j]->env = NULL;
		env_clear(v);
	}
	e->envs_n = n;
}

void
episodes_reload(struct episodes *e, const struct conf *next)
{
	const struct conf_environment *n;
	size_t i, j;

	if (e == NULL)
		return;
	for (i = 0; i < e->envs_n; i++) {
		n = env_next(e->envs[i], next);
		if (n == NULL)
			env_retire(e->envs[i]);
		else
			e->envs[i]->env = n;
		for (j = 0; j < e->eps_n; j++)
			if (e->eps[j]->env == e->envs[i])
				e->eps[j]->slot->env = n;
	}
	e->world.conf = next;
	for (i = 0; i < next->environments_n; i++) {
		n = next->environments[i];
		for (j = 0; j < e->envs_n && e->envs[j]->env != n; j++)
			;
		/* what it lacks is in the log; its episodes are refused */
		if (j < e->envs_n || start_env(e, n) == SP_OK)
			continue;
		for (j = 0; j < e->envs_n; j++)
			if (e->envs[j]->env == n)
				e->envs[j]->env = NULL;
	}
	env_forget(e);
	episodes_warm(e);
}
