#include "config.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "init/keeper_proc.h"
#include "init/run_check.h"
#include "init/sbox_local.h"
#include "os/fd.h"

enum { PROC_SCAN_MAX = 65536 }; /* processes looked at for a signal */

struct keeper_proc *
keeper_proc_new(struct keeper *k, uint32_t handle)
{
	struct keeper_proc *p = mem_calloc(1, sizeof(*p));
	int i;

	if (p == NULL)
		return NULL;
	p->k = k;
	p->handle = handle;
	p->pidfd = p->sock = -1;
	for (i = 0; i < RUN_STDIO; i++)
		p->near[i] = -1;
	LIST_INSERT_HEAD(&k->procs, p, link);
	k->procs_n++;
	return p;
}

void
keeper_proc_free(struct keeper_proc *p)
{
	int i;

	poller_remove(p->sock_at);
	poller_remove(p->pidfd_at);
	poller_timer_free(p->timer);
	fd_close(&p->sock);
	fd_close(&p->pidfd);
	for (i = 0; i < RUN_STDIO; i++)
		fd_close(&p->near[i]);
	LIST_REMOVE(p, link);
	p->k->procs_n--;
	mem_free(p);
}

struct keeper_proc *
keeper_proc_find(struct keeper *k, uint32_t handle)
{
	struct keeper_proc *p;

	LIST_FOREACH (p, &k->procs, link)
		if (p->handle == handle)
			return p;
	return NULL;
}

/*
 * By pidfd: opened first, looked at then.  If the number went to another
 * process in between, the signal finds nobody.
 */
static void
signal_if_of(pid_t pid, pid_t session, int signo)
{
	int fd = pidfd_open(pid, 0);

	if (fd < 0)
		return;
	if (run_check_session(pid) == session)
		(void)pidfd_send_signal(fd, signo, NULL, 0);
	fd_close(&fd);
}

static void
signal_session(struct keeper_proc *p, int signo)
{
	struct keeper *k = p->k;
	size_t i, n = 0;
	int *pids;

	pids = mem_calloc(PROC_SCAN_MAX, sizeof(pids[0]));
	if (pids == NULL)
		return;
	if (cgroup_processes(&k->box.cgroup, pids, PROC_SCAN_MAX, &n) != SP_OK)
		n = 0;
	for (i = 0; i < n; i++)
		if (pids[i] != p->pid && pids[i] != k->box.init_pid)
			signal_if_of(pids[i], p->pid, signo);
	mem_free(pids);
}

void
keeper_proc_signal(struct keeper_proc *p, int signo)
{
	if (p->pidfd < 0 || p->pid == 0)
		return;
	/* it is not reaped: neither its number nor its group's is another's */
	(void)pidfd_send_signal(p->pidfd, signo, NULL, 0);
	(void)kill(-p->pid, signo);
	if (p->k->box.cgroup_made)
		signal_session(p, signo);
}

/*
 * From inside the pid namespace, where "everybody" is the sandbox: no list
 * that changes while it is read, no number that is another's by now.
 */
static void __attribute__((noreturn)) everybody(const struct sbox *b, int signo)
{
	pid_t pid;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (setns(b->init_pidfd, CLONE_NEWPID) != 0)
		_exit(1);
	pid = fork();
	if (pid == 0) {
		(void)kill(-1, signo);
		_exit(0);
	}
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	_exit(0);
}

void
keeper_proc_signal_all(struct keeper *k, int signo)
{
	struct keeper_proc *p;
	pid_t pid;

	if (sbox_local(&k->box)) {
		LIST_FOREACH (p, &k->procs, link)
			keeper_proc_signal(p, signo);
		return;
	}
	pid = fork();
	if (pid == 0)
		everybody(&k->box, signo);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

bool
keeper_proc_reap(struct keeper_proc *p, int *status, struct rusage *ru)
{
	if (p->pid == 0 || wait4(p->pid, status, WNOHANG, ru) != p->pid)
		return false;
	p->pid = 0;
	return true;
}
