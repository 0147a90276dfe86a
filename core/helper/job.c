#include "config.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "helper/job.h"
#include "os/fd.h"

struct job {
	struct poller_fd *f;
	struct poller_timer *timer;
	int fd;
	pid_t pid; /* may have been reaped: never signalled after its end */
	void (*done)(void *arg, int rc, struct view why);
	void *arg;
};

struct job_result {
	int32_t rc;
	char why[JOB_WHY_MAX];
};

static void
job_free(struct job *j)
{
	poller_remove(j->f);
	poller_timer_free(j->timer);
	fd_close(&j->fd);
	mem_free(j);
}

static void
job_end(struct job *j, int rc, struct view why)
{
	void (*done)(void *arg, int rc, struct view why) = j->done;
	void *arg = j->arg;

	job_free(j);
	done(arg, rc, why);
}

/*
 * While its end of the socket is open the child has not ended, and so was not
 * reaped: the number is its own still.
 */
static void
job_kill(const struct job *j)
{
	char c;
	ssize_t n = recv(j->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		(void)kill(j->pid, SIGKILL);
}

static void
job_on_result(void *arg, unsigned ready)
{
	struct job *j = arg;
	struct job_result r;
	struct view why = VIEW_NONE;
	ssize_t n;

	(void)ready;
	n = recv(j->fd, &r, sizeof(r), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < (ssize_t)sizeof(r.rc)) {
		job_end(j, SP_E_GONE, VIEW("the child that does it died"));
		return;
	}
	if ((size_t)n > sizeof(r.rc))
		why = view_of(r.why, (size_t)n - sizeof(r.rc));
	job_end(j, r.rc, why);
}

static void
job_on_timer(void *arg)
{
	struct job *j = arg;

	job_kill(j);
	job_end(j, SP_E_TIMEOUT, VIEW("it took too long"));
}

struct job_child {
	int fd; /* for the result */
	pid_t parent;
	const struct job_plan *plan;
};

/* Closes all from 3 up that is not wanted; the least first. */
static void
job_close_others(const struct job_child *c)
{
	unsigned from = 3, next;
	size_t i, round;

	for (round = 0; round <= c->plan->keep_n; round++) {
		next = (unsigned)c->fd >= from ? (unsigned)c->fd : ~0U;
		for (i = 0; i < c->plan->keep_n; i++)
			if (c->plan->keep[i] >= 0 &&
			    (unsigned)c->plan->keep[i] >= from &&
			    (unsigned)c->plan->keep[i] < next)
				next = (unsigned)c->plan->keep[i];
		if (next == ~0U)
			break;
		if (next > from)
			(void)syscall(SYS_close_range, from, next - 1, 0);
		from = next + 1;
	}
	(void)syscall(SYS_close_range, from, ~0U, 0);
}

static void __attribute__((noreturn)) job_child_run(const struct job_child *c)
{
	struct buf why = BUF_INIT(JOB_WHY_MAX);
	struct job_result r;
	struct view text;
	sigset_t none;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != c->parent)
		_exit(1);
	job_close_others(c);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	memset(&r, 0, sizeof(r));
	r.rc = c->plan->work(c->plan->arg, &why);
	text = buf_view(&why);
	if (text.p != NULL)
		memcpy(r.why, text.p, text.n);
	(void)!send(c->fd, &r, sizeof(r.rc) + text.n, MSG_NOSIGNAL);
	_exit(0);
}

struct job *
job_start(struct poller *p, const struct job_plan *plan)
{
	struct job *j = mem_calloc(1, sizeof(*j));
	struct job_child child = { -1, getpid(), plan };
	int pair[2] = { -1, -1 };

	if (j == NULL)
		return NULL;
	j->done = plan->done;
	j->arg = plan->arg;
	j->fd = -1;
	if (fd_seqpacket_pair(pair) != SP_OK)
		goto fail;
	j->fd = pair[0];
	j->timer = poller_timer_new(p, job_on_timer, j);
	j->f = poller_add(p, j->fd, POLLER_READ, job_on_result, j);
	if (j->timer == NULL || j->f == NULL)
		goto fail;
	j->pid = fork();
	if (j->pid < 0)
		goto fail;
	if (j->pid == 0) {
		child.fd = pair[1];
		job_child_run(&child);
	}
	fd_close(&pair[1]);
	poller_timer_set(j->timer, plan->timeout_ms);
	return j;
fail:
	fd_close(&pair[1]);
	job_free(j);
	return NULL;
}

void
job_drop(struct job *j)
{
	if (j == NULL)
		return;
	job_kill(j);
	job_free(j);
}
