#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/fdmsg.h"
#include "init/privs.h"
#include "init/run_child.h"
#include "init/run_probe.h"
#include "init/sbox_filter.h"
#include "init/sbox_landlock.h"
#include "init/sbox_local.h"
#include "os/fd.h"

enum {
	/* where the process keeps what it needs until it becomes a program */
	CHILD_SOCK = 4,
	CHILD_RULESET = 5,
	CHILD_ABOVE = 16, /* out of the way of those, while they move */
	CHILD_FAILED = 127,
	CHILD_OURS = 3, /* processes of ours beside the workload's */
};

/* ---- words ----------------------------------------------------------------- */

int
run_child_read(int sock, struct run_child_msg *out, int *pidfd)
{
	return fdmsg_recv(sock, out, sizeof(*out), pidfd);
}

static void __attribute__((noreturn))
give_up(int sock, const struct sbox_why *why)
{
	struct run_child_msg msg;

	memset(&msg, 0, sizeof(msg));
	msg.word = RUN_CHILD_FAILED;
	msg.why = *why;
	(void)!fdmsg_send(sock, &msg, sizeof(msg), -1);
	_exit(CHILD_FAILED);
}

/* ---- the process ----------------------------------------------------------- */

/*
 * The three (or four) of the workload, ours at their low numbers, and nothing
 * else: what the keeper had open is closed before the uid changes, not at the
 * exec, as a sibling of that uid could stop the process in between.
 */
static int
set_descriptors(const struct run_child *c, struct sbox_why *w, int *say_to)
{
	int at[RUN_STDIO], sock, ruleset, i, null;

	sock = fcntl(c->sock, F_DUPFD_CLOEXEC, CHILD_ABOVE);
	/* a local one has no rules, but a folder that is its workspace */
	ruleset = fcntl(sbox_local(c->box) ? c->box->merged : c->box->ruleset,
	    F_DUPFD_CLOEXEC, CHILD_ABOVE);
	if (sock < 0 || ruleset < 0)
		return sbox_why_errno(w, errno, "descriptors");
	*say_to = sock;
	null = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (null < 0)
		return sbox_why_errno(w, errno, "/dev/null");
	for (i = 0; i < RUN_STDIO; i++) {
		at[i] = fcntl(c->stdio[i] >= 0 ? c->stdio[i] : null,
		    F_DUPFD_CLOEXEC, CHILD_ABOVE);
		if (at[i] < 0)
			return sbox_why_errno(w, errno, "descriptors");
	}
	for (i = 0; i < RUN_STDIO; i++)
		if ((i < RUN_EVENT || c->stdio[i] >= 0) && dup2(at[i], i) < 0)
			return sbox_why_errno(w, errno, "descriptors");
	if (dup3(sock, CHILD_SOCK, O_CLOEXEC) < 0 ||
	    dup3(ruleset, CHILD_RULESET, O_CLOEXEC) < 0)
		return sbox_why_errno(w, errno, "descriptors");
	*say_to = CHILD_SOCK;
	if (c->stdio[RUN_EVENT] < 0)
		(void)close(RUN_EVENT);
	if (fd_close_from(CHILD_RULESET + 1) != SP_OK)
		return sbox_why_errno(w, EIO, "descriptors");
	return SP_OK;
}

static int
set_limits(const struct sandbox_spec *s, struct sbox_why *w)
{
	const struct {
		int which;
		rlim_t soft, hard;
	} rows[] = {
		/* core(5): 0 stops no core_pattern that is a pipe, 1 does */
		{ RLIMIT_CORE, 1, 1 },
		{ RLIMIT_NOFILE, s->files > 0 ? s->files : 1024,
		    s->files > 0 ? s->files : 1024 },
		{ RLIMIT_FSIZE,
		    s->file_bytes > 0 ? s->file_bytes : RLIM_INFINITY,
		    s->file_bytes > 0 ? s->file_bytes : RLIM_INFINITY },
		{ RLIMIT_MEMLOCK, 8 * 1024 * 1024, 8 * 1024 * 1024 },
		{ RLIMIT_MSGQUEUE, 819200, 819200 },
		{ RLIMIT_SIGPENDING, 4096, 4096 },
		{ RLIMIT_STACK, 8 * 1024 * 1024, RLIM_INFINITY },
		{ RLIMIT_NICE, 0, 0 },
		{ RLIMIT_RTPRIO, 0, 0 },
	};
	struct rlimit rl, now;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		rl.rlim_cur = rows[i].soft;
		rl.rlim_max = rows[i].hard;
		/* without privilege there may be less than that: never more */
		if (getrlimit((__rlimit_resource_t)rows[i].which, &now) == 0 &&
		    ((s->flags & SANDBOX_USERNS) ||
			rows[i].which == RLIMIT_CORE) &&
		    now.rlim_max < rl.rlim_max)
			rl.rlim_max = now.rlim_max;
		/* our own are the same user's: see helper_take_files() */
		if (rows[i].which == RLIMIT_NOFILE &&
		    (s->flags & SANDBOX_USERNS) &&
		    now.rlim_max != RLIM_INFINITY &&
		    rl.rlim_max > now.rlim_max / 2)
			rl.rlim_max = now.rlim_max / 2;
		if (rl.rlim_cur > rl.rlim_max)
			rl.rlim_cur = rl.rlim_max;
		if (setrlimit((__rlimit_resource_t)rows[i].which, &rl) != 0)
			return sbox_why_errno(w, errno, "rlimit %d",
			    rows[i].which);
	}
	return SP_OK;
}

/*
 * By uid: all the sandbox's own, as no other process has it.  An ordinary
 * user's is counted for each user namespace apart (since Linux 5.14): there
 * with the keeper, who went in, its go-between and pid 1.
 */
static int
set_process_limit(const struct sbox *b, struct sbox_why *w)
{
	struct rlimit rl, now;

	if (b->spec->pids == 0 || b->parents[CGROUP_PIDS] >= 0)
		return SP_OK;
	rl.rlim_cur = b->spec->pids;
	if (b->spec->flags & SANDBOX_USERNS)
		rl.rlim_cur += CHILD_OURS;
	if (getrlimit(RLIMIT_NPROC, &now) == 0 && now.rlim_max < rl.rlim_cur)
		rl.rlim_cur = now.rlim_max;
	rl.rlim_max = rl.rlim_cur;
	if (setrlimit(RLIMIT_NPROC, &rl) != 0)
		return sbox_why_errno(w, errno, "rlimit of processes");
	return SP_OK;
}

static int
set_signals(struct sbox_why *w)
{
	sigset_t none;
	int i;

	for (i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL); /* KILL and STOP say no */
	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) != 0)
		return sbox_why_errno(w, errno, "signals");
	return SP_OK;
}

static int
prepare(const struct run_child *c, struct sbox_why *w, int *say_to)
{
	const struct sbox *b = c->box;
	int rc = set_signals(w);

	if (setsid() < 0)
		return sbox_why_errno(w, errno, "session");
	umask(002); /* the group is shared by agent and worker */
	if (rc == SP_OK)
		rc = set_descriptors(c, w, say_to);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_LIMITS);
	if (rc == SP_OK)
		rc = set_limits(b->spec, w);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_CREDENTIALS);
	if (rc == SP_OK && sbox_local(b)) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		return SP_OK;
	}
	if (rc == SP_OK)
		rc = privs_drop(w, b->uid, b->gid,
		    (b->spec->flags & SANDBOX_USERNS) != 0);
	if (rc == SP_OK)
		rc = set_process_limit(b, w);
	return rc;
}

/*
 * By the process itself, in its leaf: from within that namespace the
 * go-between, which is outside, could not put anything into one where v2 is
 * mounted with nsdelegate, as systemd does (cgroups(7): ENOENT).
 */
static int
join_cgroup_namespace(const struct sbox *b, struct sbox_why *w)
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_ENTER);

	if (rc == SP_OK && !sbox_local(b) &&
	    setns(b->init_pidfd, CLONE_NEWCGROUP) != 0)
		rc = sbox_why_errno(w, errno, "joining the cgroup namespace");
	return rc;
}

/* ENOENT of a file that is there: its interpreter is not. */
static void
not_run(const char *path, int en, struct sbox_why *w)
{
	w->en = 0;
	if (en == ENOENT && path[0] == '/')
		run_probe(w, path);
	if (w->en == 0)
		(void)sbox_why_errno(w, en, "%s", path);
}

static void __attribute__((noreturn))
process(const struct run_child *c, struct sbox_why *w)
{
	const struct sbox *b = c->box;
	struct run_child_msg msg;
	int say_to = c->sock, rc = join_cgroup_namespace(b, w);

	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_STDIO);
	if (rc == SP_OK)
		rc = prepare(c, w, &say_to);
	if (rc != SP_OK)
		give_up(say_to, w);
	memset(&msg, 0, sizeof(msg));
	msg.word = RUN_CHILD_INSIDE;
	msg.pid = getpid();
	/* also the test that the keeper lives: its death signal is set now */
	if (fdmsg_send(CHILD_SOCK, &msg, sizeof(msg), -1) != SP_OK)
		_exit(CHILD_FAILED);
	rc = sbox_why_stage(w, SANDBOX_STAGE_EXEC);
	/* as the user that it is now: with that user's permissions */
	if (rc == SP_OK &&
	    (sbox_local(b) ? sbox_local_chdir(CHILD_RULESET, c->env->cwd)
			   : chdir(c->env->cwd)) != 0)
		rc = sbox_why_errno(w, errno, "working directory %s",
		    c->env->cwd);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_LANDLOCK);
	if (rc == SP_OK && !sbox_local(b))
		rc = sbox_landlock_apply(w, CHILD_RULESET);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_SECCOMP);
	if (rc == SP_OK && !sbox_local(b))
		rc = sbox_filter_load(w, buf_view(&b->filter));
	w->stage = SANDBOX_STAGE_EXEC;
	if (rc == SP_OK && c->probe) {
		run_probe(w, c->env->argv[0]);
	} else if (rc == SP_OK) {
		environ = c->env->env;
		(void)execvp(c->env->argv[0], c->env->argv);
		not_run(c->env->argv[0], errno, w);
	}
	give_up(CHILD_SOCK, w);
}

/* ---- the go-between -------------------------------------------------------- */

static int
enter(const struct run_child *c, struct sbox_why *w)
{
	const struct sbox *b = c->box;
	struct stat root;
	int rc = sbox_why_stage(w, SANDBOX_STAGE_ENTER);

	/* the leaves of v1 now, so that the process is born in them */
	if (rc == SP_OK && b->cgroup_made) {
		rc = cgroup_enter(&b->cgroup, 0, false);
		if (rc != SP_OK)
			return sbox_why_rc(w, rc, "control group");
	}
	if (sbox_local(b))
		return rc;
	if (rc == SP_OK &&
	    setns(b->init_pidfd,
		CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
		    CLONE_NEWUTS) != 0)
		rc = sbox_why_errno(w, errno, "joining the namespaces");
	/* never a program on the host's root, whatever went wrong before */
	if (rc == SP_OK &&
	    (stat("/", &root) != 0 || root.st_dev != b->root_dev ||
		root.st_ino != b->root_ino))
		rc = sbox_why_errno(w, EXDEV, "not the sandbox's root");
	return rc;
}

static void __attribute__((noreturn)) go_between(const struct run_child *c)
{
	struct clone_args args;
	struct run_child_msg msg;
	struct sbox_why why;
	int pidfd = -1;
	long pid;

	memset(&why, 0, sizeof(why));
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (enter(c, &why) != SP_OK)
		give_up(c->sock, &why);
	memset(&args, 0, sizeof(args));
	/* the keeper's child, not this one's: the exit signal is inherited */
	args.flags = CLONE_PARENT | CLONE_PIDFD;
	if (c->box->cgroup_made && cgroup_unified(&c->box->cgroup) >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_unified(&c->box->cgroup);
	}
	args.pidfd = (uint64_t)(uintptr_t)&pidfd;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		process(c, &why);
	if (pid < 0) {
		(void)sbox_why_errno(&why, errno, "clone3");
		give_up(c->sock, &why);
	}
	memset(&msg, 0, sizeof(msg));
	msg.word = RUN_CHILD_MADE;
	msg.pid = (pid_t)pid;
	if (fdmsg_send(c->sock, &msg, sizeof(msg), pidfd) != SP_OK)
		(void)kill((pid_t)pid, SIGKILL);
	_exit(0);
}

int
run_child_start(const struct run_child *c, pid_t *pid)
{
	pid_t child = fork();

	if (child < 0)
		return err_from_errno(errno);
	if (child == 0)
		go_between(c);
	*pid = child;
	return SP_OK;
}
