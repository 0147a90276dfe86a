#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/keeper_end.h"
#include "init/keeper_proc.h"
#include "init/keeper_run.h"
#include "init/keeper_watch.h"
#include "init/run_check.h"
#include "os/fd.h"

enum { RUN_ARENA_MAX = 24 * 1024 * 1024 };

/* ---- telling --------------------------------------------------------------- */

static void
say_not_started(struct keeper *k, uint32_t handle, const struct sbox_why *why)
{
	struct buf *b = keeper_body(k);

	if (wire_put_u32(b, handle) != SP_OK) {
		keeper_end_gone(k);
		return;
	}
	keeper_put_why(b, why);
	keeper_send(k, MESSAGE_KEEPER_NOT_STARTED, b, -1);
}

static void
say_stdio(struct keeper_proc *p, enum run_stdio which)
{
	struct buf *b = keeper_body(p->k);
	int fd = p->near[which];

	if (fd < 0)
		return;
	p->near[which] = -1;
	if (wire_put_u32(b, p->handle) == SP_OK &&
	    wire_put_u8(b, (uint8_t)which) == SP_OK)
		keeper_send(p->k, MESSAGE_KEEPER_STDIO, b, fd);
	else
		fd_close(&fd);
}

static void
say_started(struct keeper_proc *p)
{
	const struct sbox_links *l = &p->k->box.links;
	struct buf *b;
	int i;

	for (i = 0; i < RUN_STDIO; i++)
		say_stdio(p, (enum run_stdio)i);
	b = keeper_body(p->k);
	if (wire_put_u32(b, p->handle) != SP_OK ||
	    wire_put_u32(b, p->inside) != SP_OK ||
	    (l->n > 0 &&
		(wire_put_u32(b, l->n) != SP_OK ||
		    wire_put_bytes(b, view_of(l->text, l->used)) != SP_OK)))
		return;
	keeper_send(p->k, MESSAGE_KEEPER_STARTED, b, -1);
}

static uint64_t
time_us(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

static void
say_exited(struct keeper_proc *p, int status, const struct rusage *ru)
{
	enum sandbox_end end = SANDBOX_END_EXIT;
	uint8_t code = (uint8_t)WEXITSTATUS(status);
	struct buf *b;

	if (WIFSIGNALED(status)) {
		end = SANDBOX_END_SIGNAL;
		code = (uint8_t)WTERMSIG(status);
	}
	/*
	 * However it ended itself: with one that was killed for memory the
	 * sandbox ends, and its parent may just have been quicker.
	 */
	if (!p->killed && keeper_watch_oom_kills(p->k) > p->oom_kills) {
		end = SANDBOX_END_OOM;
		code = SIGKILL;
	}
	if (p->timed_out)
		end = SANDBOX_END_TIMEOUT;
	b = keeper_body(p->k);
	if (wire_put_u32(b, p->handle) == SP_OK &&
	    wire_put_u8(b, (uint8_t)end) == SP_OK &&
	    wire_put_u8(b, code) == SP_OK &&
	    wire_put_u64(b, time_us(&ru->ru_utime)) == SP_OK &&
	    wire_put_u64(b, time_us(&ru->ru_stime)) == SP_OK &&
	    wire_put_u64(b, (uint64_t)ru->ru_maxrss * 1024) == SP_OK)
		keeper_send(p->k, MESSAGE_KEEPER_EXITED, b, -1);
}

/* ---- its end --------------------------------------------------------------- */

/*
 * The go-between has closed its end of the socket, or is being killed: it is
 * root's, no workload can hold it.
 */
static void
reap_between(struct keeper_proc *p)
{
	while (p->between > 0 && waitpid(p->between, NULL, 0) < 0 &&
	    errno == EINTR)
		continue;
	p->between = 0;
}

/* True: it is over, and p is freed. */
static bool
take_end(struct keeper_proc *p)
{
	struct rusage ru;
	int status;

	if (!keeper_proc_reap(p, &status, &ru))
		return false;
	if (p->started)
		say_exited(p, status, &ru);
	else if (p->failed)
		say_not_started(p->k, p->handle, &p->why);
	keeper_proc_free(p);
	return true;
}

static void
on_pidfd(void *arg, unsigned ready)
{
	(void)ready;
	(void)take_end(arg);
}

/*
 * Takes what the two have said: SP_E_AGAIN, or SP_E_EOF when no more comes.
 */
static int
listen_to(struct keeper_proc *p)
{
	struct run_child_msg msg;
	int rc, fd;

	while ((rc = run_child_read(p->sock, &msg, &fd)) == SP_OK) {
		switch (msg.word) {
		case RUN_CHILD_MADE:
			p->pid = msg.pid;
			fd_close(&p->pidfd);
			p->pidfd = fd;
			fd = -1;
			break;
		case RUN_CHILD_INSIDE:
			p->inside = (uint32_t)msg.pid;
			break;
		case RUN_CHILD_FAILED:
			/* the first is the cause */
			if (!p->failed)
				p->why = msg.why;
			p->failed = true;
			break;
		}
		fd_close(&fd);
	}
	return rc;
}

/* A process that may not live; NOT_STARTED follows when it is dead. */
static void
abandon(struct keeper_proc *p)
{
	p->failed = true;
	p->killed = true;
	poller_remove(p->sock_at);
	p->sock_at = NULL;
	if (p->between > 0)
		(void)kill(p->between, SIGKILL);
	reap_between(p);
	/* it may have made the process before it died */
	if (p->sock >= 0)
		(void)!listen_to(p);
	fd_close(&p->sock);
	if (p->pid == 0) {
		say_not_started(p->k, p->handle, &p->why);
		keeper_proc_free(p);
		return;
	}
	keeper_proc_signal(p, SIGKILL);
	if (p->pidfd_at == NULL)
		p->pidfd_at =
		    poller_add(p->k->po, p->pidfd, POLLER_READ, on_pidfd, p);
	if (p->pidfd_at == NULL)
		keeper_end_gone(p->k);
}

static void
on_timer(void *arg)
{
	struct keeper_proc *p = arg;

	/* who is frozen on its way in has time; v1's freezer holds the dead */
	if (!p->started && p->k->frozen) {
		poller_timer_set(p->timer, KEEPER_RUN_START_MS);
		return;
	}
	if (!p->started && !p->failed) {
		(void)!sbox_why_stage(&p->why, SANDBOX_STAGE_ENTER);
		(void)sbox_why_errno(&p->why, ETIMEDOUT,
		    "it did not become a program in time");
		abandon(p);
		return;
	}
	p->timed_out = true;
	p->killed = true;
	keeper_proc_signal(p, SIGKILL);
}

/* ---- its start ------------------------------------------------------------- */

/* Both ends of the socket are closed: it is a program now, or nothing. */
static void
on_running(struct keeper_proc *p)
{
	poller_remove(p->sock_at);
	p->sock_at = NULL;
	fd_close(&p->sock);
	reap_between(p);
	if (!p->failed && (p->pid == 0 || p->inside == 0)) {
		(void)!sbox_why_stage(&p->why, SANDBOX_STAGE_ENTER);
		(void)sbox_why_errno(&p->why, ECHILD,
		    "killed while it was being started");
		p->failed = true;
	}
	if (!p->failed && run_check(&p->why, &p->k->box, p->pid) != SP_OK)
		p->failed = true;
	if (p->failed) {
		abandon(p);
		return;
	}
	p->started = true;
	poller_timer_stop(p->timer);
	if (p->timeout_ms > 0)
		poller_timer_set(p->timer, p->timeout_ms);
	say_started(p);
	p->pidfd_at = poller_add(p->k->po, p->pidfd, POLLER_READ, on_pidfd, p);
	if (p->pidfd_at == NULL)
		keeper_end_gone(p->k);
	keeper_watch_wake(p->k);
}

static void
on_sock(void *arg, unsigned ready)
{
	struct keeper_proc *p = arg;

	(void)ready;
	if (listen_to(p) != SP_E_AGAIN)
		on_running(p);
}

/* ---- RUN ------------------------------------------------------------------- */

/*
 * A pipe whose far end is the workload's to open again (/dev/stdout): it
 * belongs to the sandbox's uid.
 */
static int
make_pipe(struct keeper_proc *p, struct sbox_why *w, enum run_stdio which,
    int *far)
{
	int ends[2], in = which == RUN_STDIN;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return sbox_why_errno(w, errno, "pipe");
	*far = ends[in ? 0 : 1];
	p->near[which] = ends[in ? 1 : 0];
	if (fchown(*far, p->k->box.uid, p->k->box.gid) != 0)
		return sbox_why_errno(w, errno, "owner of a pipe");
	return fd_nonblock(p->near[which]);
}

static int
make_stdio(struct keeper_proc *p, struct sbox_why *w, uint32_t flags,
    int far[RUN_STDIO])
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_STDIO);

	if (rc == SP_OK && (flags & SANDBOX_RUN_STDIN))
		rc = make_pipe(p, w, RUN_STDIN, &far[RUN_STDIN]);
	if (rc == SP_OK)
		rc = make_pipe(p, w, RUN_STDOUT, &far[RUN_STDOUT]);
	if (rc == SP_OK && (flags & SANDBOX_RUN_STDERR_TO_STDOUT)) {
		far[RUN_STDERR] = fcntl(far[RUN_STDOUT], F_DUPFD_CLOEXEC, 0);
		if (far[RUN_STDERR] < 0)
			rc = sbox_why_errno(w, errno, "standard error");
	} else if (rc == SP_OK) {
		rc = make_pipe(p, w, RUN_STDERR, &far[RUN_STDERR]);
	}
	if (rc == SP_OK && (flags & SANDBOX_RUN_EVENT_FD))
		rc = make_pipe(p, w, RUN_EVENT, &far[RUN_EVENT]);
	return rc;
}

static int
fork_it(struct keeper_proc *p, struct sbox_why *w, struct run_child *c)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return sbox_why_errno(w, errno, "socketpair");
	p->sock = pair[0];
	c->sock = pair[1];
	rc = run_child_start(c, &p->between);
	fd_close(&pair[1]);
	if (rc != SP_OK)
		return sbox_why_rc(w, rc, "fork");
	p->sock_at = poller_add(p->k->po, p->sock, POLLER_READ, on_sock, p);
	p->timer = poller_timer_new(p->k->po, on_timer, p);
	if (p->sock_at == NULL || p->timer == NULL)
		return sbox_why_errno(w, ENOMEM, "loop");
	poller_timer_set(p->timer, KEEPER_RUN_START_MS);
	return SP_OK;
}

static int
start(struct keeper_proc *p, struct sbox_why *w, const struct sandbox_run *run,
    struct arena *a)
{
	struct run_env env;
	struct run_child c = { &p->k->box, &env, { -1, -1, -1, -1 }, -1,
		(run->flags & SANDBOX_RUN_PROBE) != 0 };
	int i, rc;

	rc = run_env_make(&p->k->box, run, a, &env);
	if (rc != SP_OK)
		rc = sbox_why_rc(w, rc, "arguments");
	if (rc == SP_OK)
		rc = make_stdio(p, w, run->flags, c.stdio);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_ENTER);
	/* whoever is born into a frozen group never says a word */
	if (rc == SP_OK && p->k->frozen)
		rc = sbox_why_errno(w, EBUSY, "the sandbox is frozen");
	if (rc == SP_OK)
		rc = fork_it(p, w, &c);
	for (i = 0; i < RUN_STDIO; i++)
		fd_close(&c.stdio[i]);
	return rc;
}

static int
read_run(const struct channel_msg *m, struct buf *text, struct arena *a,
    struct sandbox_run *run)
{
	int rc = fd_read_sealed(m->fd, text);

	if (rc == SP_OK)
		rc = sandbox_msg_run_get(buf_view(text), a, run);
	return rc == SP_OK || rc == SP_E_NOMEM ? rc : SP_E_PROTO;
}

static void
begin(struct keeper *k, uint32_t handle, const struct sandbox_run *run,
    struct arena *a)
{
	struct keeper_proc *p = NULL;
	struct sbox_why why;
	int rc;

	memset(&why, 0, sizeof(why));
	rc = sbox_why_stage(&why, SANDBOX_STAGE_SPEC);
	if (rc == SP_OK && k->procs_n < KEEPER_RUN_MAX)
		p = keeper_proc_new(k, handle);
	if (p == NULL) {
		if (rc == SP_OK)
			(void)sbox_why_errno(&why, EAGAIN,
			    "too many processes");
		say_not_started(k, handle, &why);
		return;
	}
	p->timeout_ms = run->timeout_ms;
	p->oom_kills = keeper_watch_oom_kills(k);
	if (start(p, &why, run, a) == SP_OK)
		return;
	p->why = why;
	abandon(p);
}

/*
 * The text is the reactor's: what it says of a process that is none costs
 * that process, and not the sandbox that others work in.
 */
static void
refuse_run(struct keeper *k, uint32_t handle, int rc)
{
	struct sbox_why why;

	memset(&why, 0, sizeof(why));
	(void)!sbox_why_stage(&why, SANDBOX_STAGE_SPEC);
	(void)sbox_why_errno(&why, rc == SP_E_NOMEM ? ENOMEM : EINVAL,
	    "what is to be run");
	say_not_started(k, handle, &why);
}

int
keeper_run_take(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	struct buf text = BUF_INIT(SANDBOX_MSG_RUN_MAX);
	uint32_t handle = wire_u32(w);
	struct sandbox_run run;
	struct arena *a;
	int rc;

	if (wire_done(w) != SP_OK || handle == 0 ||
	    keeper_proc_find(k, handle) != NULL)
		return SP_E_PROTO;
	a = arena_new(RUN_ARENA_MAX);
	rc = a != NULL ? read_run(m, &text, a, &run) : SP_E_NOMEM;
	if (rc == SP_OK)
		begin(k, handle, &run, a);
	else
		refuse_run(k, handle, rc);
	arena_free(a);
	buf_clear(&text);
	return SP_OK;
}

/* ---- SIGNAL ---------------------------------------------------------------- */

int
keeper_run_signal(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	uint32_t handle = wire_u32(w);
	uint8_t signo = wire_u8(w);
	struct keeper_proc *p;

	(void)m;
	if (wire_done(w) != SP_OK || signo == 0 || signo >= NSIG)
		return SP_E_PROTO;
	if (handle == 0) {
		keeper_proc_signal_all(k, signo);
		return SP_OK;
	}
	p = keeper_proc_find(k, handle);
	/* one that has just ended is not there any more: nothing to say */
	if (p != NULL && p->started) {
		if (signo == SIGKILL)
			p->killed = true;
		keeper_proc_signal(p, signo);
	}
	return SP_OK;
}

/* ---- all of them ----------------------------------------------------------- */

void
keeper_run_kill(struct keeper *k)
{
	struct keeper_proc *p;

	LIST_FOREACH (p, &k->procs, link) {
		/* else it was the want of memory, which took all of them */
		if (k->oom_kills <= p->oom_kills)
			p->killed = true;
		if (p->between > 0)
			(void)kill(p->between, SIGKILL);
		if (p->pidfd >= 0 && p->pid > 0)
			(void)pidfd_send_signal(p->pidfd, SIGKILL, NULL, 0);
	}
}

static bool
is_known(const struct keeper *k, pid_t pid)
{
	const struct keeper_proc *p;

	LIST_FOREACH (p, &k->procs, link)
		if (p->pid == pid || p->between == pid)
			return true;
	return pid == k->box.init_pid;
}

/*
 * A go-between that was killed may have left a process that it could not tell
 * of: the keeper's child, for which pid 1 would wait for ever.
 */
static void
reap_strays(const struct keeper *k)
{
	siginfo_t one;
	int i;

	for (i = 0; i < KEEPER_RUN_MAX; i++) {
		memset(&one, 0, sizeof(one));
		if (waitid(P_ALL, 0, &one, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    one.si_pid == 0 || is_known(k, one.si_pid))
			return;
		(void)waitpid(one.si_pid, NULL, WNOHANG);
	}
}

void
keeper_run_reap(struct keeper *k, int ms)
{
	struct keeper_proc *p, *next;
	struct pollfd one;

	p = LIST_FIRST(&k->procs);
	if (p != NULL && p->pidfd >= 0) {
		one.fd = p->pidfd;
		one.events = POLLIN;
		(void)poll(&one, 1, ms);
	}
	for (p = LIST_FIRST(&k->procs); p != NULL; p = next) {
		next = LIST_NEXT(p, link);
		/* being started: what is in its socket says who it is */
		if (p->sock_at != NULL) {
			if (p->between > 0)
				(void)kill(p->between, SIGKILL);
			on_sock(p, POLLER_READ);
			continue;
		}
		(void)take_end(p);
	}
	reap_strays(k);
}

void
keeper_run_drop(struct keeper *k)
{
	struct keeper_proc *p;

	while ((p = LIST_FIRST(&k->procs)) != NULL)
		keeper_proc_free(p);
}
