#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "init/init1.h"
#include "init/sbox.h"
#include "init/sbox_filter.h"
#include "init/sbox_idmap.h"
#include "init/sbox_local.h"
#include "init/sbox_space.h"
#include "init/sbox_workspace.h"
#include "os/fd.h"

enum {
	SBOX_BUILD_MS = 30 * 1000, /* of the child */
	SBOX_REMOVE_MS = 5 * 1000, /* of an empty leaf */
};

void
sbox_init(struct sbox *b)
{
	size_t i;

	memset(b, 0, sizeof(*b));
	for (i = 0; i < SANDBOX_FD_KINDS; i++)
		b->give[i] = -1;
	for (i = 0; i < CGROUP_HIERARCHIES; i++)
		b->parents[i] = -1;
	b->seed_mnt = b->assets_mnt = -1;
	b->channel = b->scratch = b->lower = b->upper = b->merged = -1;
	b->ruleset = b->lifeline = b->init_pidfd = b->init_space = -1;
}

const char *
sbox_text(const struct sbox *b, struct view v)
{
	return arena_strdup(b->arena, v);
}

const char *
sbox_user(const struct sbox *b)
{
	static const char *const names[SANDBOX_SIDES] = {
		[SANDBOX_AGENT] = "agent",
		[SANDBOX_WORKER] = "worker",
		[SANDBOX_ORACLE] = "oracle",
	};

	return names[b->spec->side];
}

const char *
sbox_home(const struct sbox *b)
{
	static const char *const homes[SANDBOX_SIDES] = {
		[SANDBOX_AGENT] = "/home/agent",
		[SANDBOX_WORKER] = "/home/worker",
		[SANDBOX_ORACLE] = "/home/oracle",
	};

	return homes[b->spec->side];
}

/* ---- the leaf -------------------------------------------------------------- */

/*
 * The bound on memory has files in memory in it: a full one is ENOSPC.  An
 * ordinary user has the controllers that were delegated, or none: the helper
 * has said so at its start, and claims nothing of it.
 */
static struct cgroup_limits
limits(const struct sbox *b)
{
	const struct sandbox_spec *s = b->spec;
	struct cgroup_limits l = { s->memory_bytes, s->pids, s->cpu_milli };

	if (l.pids > 0)
		l.pids++; /* pid 1 */
	if (!(s->flags & SANDBOX_USERNS))
		return l;
	if (b->parents[CGROUP_MEMORY] < 0)
		l.memory_bytes = 0;
	if (b->parents[CGROUP_PIDS] < 0)
		l.pids = 0;
	if (b->parents[CGROUP_CPU] < 0)
		l.cpu_milli = 0;
	return l;
}

static int
make_cgroup(struct sbox *b, struct sbox_why *w)
{
	const struct cgroup_limits l = limits(b);
	const char *name, *what = "";
	int rc = sbox_why_stage(w, SANDBOX_STAGE_CGROUP);

	if (rc != SP_OK ||
	    (b->parents[CGROUP_UNIFIED] < 0 && b->parents[CGROUP_FREEZER] < 0))
		return rc;
	name = sbox_text(b, b->spec->cgroup);
	if (name == NULL)
		return sbox_why_errno(w, ENOMEM, "cgroup");
	rc =
	    cgroup_make(&b->cgroup, b->parents, b->parents_v1, name, &l, &what);
	if (rc == SP_E_UNSUPPORTED) {
		w->stage = SANDBOX_STAGE_LIMITS;
		return sbox_why_rc(w, rc, "%s", what != NULL ? what : "");
	}
	if (rc != SP_OK)
		return sbox_why_rc(w, rc, "leaf %s", name);
	b->cgroup_made = true;
	return sbox_why_stage(w, SANDBOX_STAGE_LIMITS);
}

/* ---- pid 1 ----------------------------------------------------------------- */

static int
compile_filters(struct sbox *b, struct sbox_why *w)
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_SECCOMP);

	if (rc == SP_OK)
		rc = sbox_filter_compile(w, &b->filter);
	if (rc == SP_OK)
#ifdef SP_SANITIZED /* which calls the kernel as it likes */
		rc = sbox_filter_compile(w, &b->init_filter);
#else
		rc = sbox_filter_compile_init(w, &b->init_filter);
#endif
	return rc;
}

static int
start_init(struct sbox *b, struct sbox_why *w)
{
	struct clone_args args;
	int pair[2], rc = sbox_why_stage(w, SANDBOX_STAGE_NAMESPACES);
	long pid;

	if (rc != SP_OK)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return sbox_why_errno(w, errno, "socketpair");
	b->lifeline = pair[0];
	memset(&args, 0, sizeof(args));
	args.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
	    CLONE_NEWUTS;
	if (b->give[SANDBOX_FD_NETNS] < 0 && !b->net_later)
		args.flags |= CLONE_NEWNET;
	if (b->cgroup_made && cgroup_unified(&b->cgroup) >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_unified(&b->cgroup);
	}
	args.pidfd = (uint64_t)(uintptr_t)&b->init_pidfd;
	args.exit_signal = SIGCHLD;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0) {
		fd_close(&b->lifeline);
		init1_main(b, pair[1]);
	}
	fd_close(&pair[1]);
	if (pid < 0)
		return sbox_why_errno(w, errno, "clone3");
	b->init_pid = (pid_t)pid;
	return SP_OK;
}

/* The child's own deadline; what the helper says meanwhile comes first. */
static int
await_init(struct sbox *b, struct sbox_why *w)
{
	struct pollfd p[2] = { { b->lifeline, POLLIN, 0 },
		{ b->channel, POLLIN, 0 } };
	int n;

	do
		n = poll(p, b->channel >= 0 ? 2 : 1, SBOX_BUILD_MS);
	while (n < 0 && errno == EINTR);
	if (n > 0 && p[0].revents == 0)
		return SP_E_AGAIN;
	if (n <= 0)
		return sbox_why_errno(w, n == 0 ? ETIMEDOUT : errno,
		    "pid 1 is not ready");
	return init1_result(b, w, b->lifeline);
}

static int
note_root(struct sbox *b, struct sbox_why *w)
{
	char path[40];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/root/.", (int)b->init_pid);
	if (stat(path, &st) != 0)
		return sbox_why_errno(w, errno, "%s", path);
	b->root_dev = st.st_dev;
	b->root_ino = st.st_ino;
	/*
	 * The last of a mount namespace waits for a grace period of RCU when
	 * it leaves.  That shall be the keeper, once it has said that nobody
	 * lives, and not pid 1 while it dies; without it is only slower.
	 */
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)b->init_pid);
	b->init_space = open(path, O_RDONLY | O_CLOEXEC);
	return SP_OK;
}

static int
begin(struct sbox *b, struct sbox_why *why)
{
	int rc = SP_OK;

	if (!(b->spec->flags & SANDBOX_USERNS) &&
	    (b->spec->uid == 0 || b->spec->gid == 0 || b->spec->init_uid == 0))
		rc = sbox_why_errno(why, EINVAL,
		    "a sandbox does not run as root");
	if (rc == SP_OK)
		rc = sbox_why_stage(why, SANDBOX_STAGE_NAMESPACES);
	if (rc == SP_OK)
		rc = sbox_space_enter(b, why);
	if (rc == SP_OK)
		rc = make_cgroup(b, why);
	if (rc == SP_OK)
		rc = compile_filters(b, why);
	if (rc == SP_OK)
		rc = sbox_workspace_adopt(b, why);
	if (rc == SP_OK)
		rc = sbox_why_stage(why, SANDBOX_STAGE_WORKSPACE);
	if (rc == SP_OK)
		rc = sbox_workspace_make(b, why);
	if (rc == SP_OK)
		rc = start_init(b, why);
	return rc;
}

int
sbox_prepare(struct sbox *b, struct sbox_why *why)
{
	int rc = sbox_why_stage(why, SANDBOX_STAGE_SPEC);

	b->net_later = true;
	return rc == SP_OK ? begin(b, why) : rc;
}

int
sbox_build(struct sbox *b, struct sbox_why *why)
{
	int rc = SP_OK;

	if (b->net_later) {
		/* one that has ended already has said why */
		(void)!init1_network(b->lifeline, b->give[SANDBOX_FD_NETNS]);
	} else {
		rc = sbox_why_stage(why, SANDBOX_STAGE_SPEC);
		if (rc == SP_OK && sbox_local(b)) {
			rc = make_cgroup(b, why);
			return rc == SP_OK ? sbox_local_make(b, why) : rc;
		}
		if (rc == SP_OK)
			rc = begin(b, why);
	}
	if (rc == SP_OK)
		rc = await_init(b, why);
	if (rc == SP_OK)
		rc = note_root(b, why);
	return rc;
}

/* ---- the end --------------------------------------------------------------- */

void
sbox_kill(struct sbox *b)
{
	/* both: pid 1 takes its namespace along, the leaf whatever is in it */
	if (b->cgroup_made)
		(void)!cgroup_kill(&b->cgroup);
	if (b->init_pidfd >= 0)
		(void)pidfd_send_signal(b->init_pidfd, SIGKILL, NULL, 0);
	if (b->spec != NULL && sbox_local(b))
		(void)sbox_local_kill();
}

static int
reap_init(struct sbox *b, uint64_t until_ms)
{
	struct pollfd p = { b->init_pidfd, POLLIN, 0 };
	uint64_t now;
	int n;

	if (b->init_pid == 0)
		return SP_OK;
	do {
		now = clock_ms();
		n = poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return SP_E_TIMEOUT;
	while (waitpid(b->init_pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	b->init_pid = 0;
	return SP_OK;
}

int
sbox_wait_empty(struct sbox *b, uint64_t ms, uint32_t *left)
{
	uint64_t until_ms = clock_ms() + ms;
	int rc = reap_init(b, until_ms), empty;

	*left = rc == SP_OK ? 0 : 1;
	if (b->spec != NULL && sbox_local(b)) {
		*left = sbox_local_kill();
		if (*left > 0)
			return SP_E_TIMEOUT;
	}
	if (!b->cgroup_made)
		return rc;
	empty = cgroup_wait_empty(&b->cgroup, rc == SP_OK ? ms : 0, left);
	return rc != SP_OK ? rc : empty;
}

int
sbox_clear(struct sbox *b)
{
	int rc = SP_OK;
	size_t i;

	sbox_local_clear(b);
	sbox_workspace_clear(b);
	fd_close(&b->seed_mnt);
	fd_close(&b->assets_mnt);
	fd_close(&b->ruleset);
	fd_close(&b->lifeline);
	fd_close(&b->init_pidfd);
	fd_close(&b->init_space);
	sbox_idmap_clear(b);
	if (b->cgroup_made) {
		rc = cgroup_remove(b->parents, b->cgroup.name, SBOX_REMOVE_MS);
		cgroup_close(&b->cgroup);
		b->cgroup_made = false;
	}
	for (i = 0; i < SANDBOX_FD_KINDS; i++)
		fd_close(&b->give[i]);
	for (i = 0; i < CGROUP_HIERARCHIES; i++)
		fd_close(&b->parents[i]);
	buf_clear(&b->filter);
	buf_clear(&b->init_filter);
	return rc;
}
