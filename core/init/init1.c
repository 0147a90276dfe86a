#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/fdmsg.h"
#include "init/init1.h"
#include "init/privs.h"
#include "init/sbox_filter.h"
#include "init/sbox_landlock.h"
#include "init/sbox_root.h"
#include "os/fd.h"

enum { NETWORK_MS = 60 * 1000 }; /* as long as a slot may take to build */

/* ---- the result, with the ruleset ------------------------------------------ */

struct result {
	int rc;
	struct sbox_why why;
	struct sbox_links links;
};

int
init1_result(struct sbox *b, struct sbox_why *w, int sock)
{
	struct result r;
	int rc = fdmsg_recv(sock, &r, sizeof(r), &b->ruleset);

	if (rc != SP_OK) {
		(void)sbox_why_errno(w, ECHILD,
		    "the child ended before it was ready");
		return SP_E_GONE;
	}
	if (r.rc != SP_OK)
		*w = r.why;
	else if (b->ruleset < 0)
		return sbox_why_errno(w, EPROTO, "no ruleset");
	b->links = r.links;
	return r.rc;
}

int
init1_network(int sock, int netns)
{
	return fdmsg_send(sock, "n", 1, netns);
}

/* ---- building -------------------------------------------------------------- */

static int
join_cgroup(struct sbox *b, struct sbox_why *w)
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_CGROUP);

	/* 0 is whoever writes: its own number here is not the parent's */
	if (rc == SP_OK && b->cgroup_made)
		rc = cgroup_enter(&b->cgroup, 0, false);
	if (rc != SP_OK)
		return sbox_why_rc(w, rc, "joining %s", b->cgroup.name);
	/* only now: its root is where the process is in each hierarchy */
	if (unshare(CLONE_NEWCGROUP) != 0)
		return sbox_why_errno(w, errno, "cgroup namespace");
	return SP_OK;
}

/* No IPv6 in a network of our own, and lo up. */
static int
start_loopback(struct sbox_why *w)
{
	static const char *const off[] = {
		"/proc/sys/net/ipv6/conf/all/disable_ipv6",
		"/proc/sys/net/ipv6/conf/default/disable_ipv6",
	};
	struct ifreq req;
	int fd, rc = SP_OK;
	size_t i;

	for (i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		fd = open(off[i], O_WRONLY | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT)
			continue; /* a kernel without it */
		if (fd < 0 || write(fd, "1", 1) != 1)
			rc = sbox_why_errno(w, errno, "%s", off[i]);
		fd_close(&fd);
		if (rc != SP_OK)
			return rc;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memset(&req, 0, sizeof(req));
	memcpy(req.ifr_name, "lo", 3);
	req.ifr_flags = IFF_UP;
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) != 0)
		rc = sbox_why_errno(w, errno, "lo");
	fd_close(&fd);
	return rc;
}

/* Until then it is the keeper's: nobody but us runs in here yet. */
static int
await_network(struct sbox *b, struct sbox_why *w, int sock)
{
	struct pollfd p = { sock, POLLIN, 0 };
	char said;
	int n, rc;

	do
		n = poll(&p, 1, NETWORK_MS);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return sbox_why_errno(w, n == 0 ? ETIMEDOUT : errno,
		    "waiting for the network");
	rc = fdmsg_recv(sock, &said, sizeof(said), &b->give[SANDBOX_FD_NETNS]);
	if (rc != SP_OK || b->give[SANDBOX_FD_NETNS] < 0)
		return sbox_why_errno(w, EPROTO, "no network came");
	return SP_OK;
}

static int
join_network(struct sbox *b, struct sbox_why *w, int sock)
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_NETWORK);

	if (rc != SP_OK)
		return rc;
	if (b->net_later)
		rc = await_network(b, w, sock);
	if (rc != SP_OK)
		return rc;
	if (b->give[SANDBOX_FD_NETNS] < 0)
		return start_loopback(w);
	if (setns(b->give[SANDBOX_FD_NETNS], CLONE_NEWNET) != 0)
		return sbox_why_errno(w, errno, "joining the network");
	return SP_OK;
}

static int
set_hostname(const struct sbox *b, struct sbox_why *w)
{
	if (sethostname(b->spec->hostname.p, b->spec->hostname.n) != 0)
		return sbox_why_errno(w, errno, "hostname");
	return SP_OK;
}

static int
build(struct sbox *b, struct sbox_why *w, int sock, int *ruleset)
{
	int rc = join_cgroup(b, w);

	if (rc == SP_OK && !b->net_later)
		rc = join_network(b, w, sock);
	if (rc == SP_OK)
		rc = set_hostname(b, w);
	if (rc == SP_OK)
		rc = sbox_root_build(b, w);
	/* nothing of the graded runs from here to the oracle's start */
	if (rc == SP_OK)
		rc = sbox_links_remove(b, w);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_LANDLOCK);
	if (rc == SP_OK)
		rc = sbox_landlock_rules(b, w, ruleset);
	if (rc == SP_OK && b->net_later)
		rc = join_network(b, w, sock);
	return rc;
}

/* ---- staying --------------------------------------------------------------- */

static void
on_child(int signo)
{
	(void)signo; /* only to end ppoll() */
}

/*
 * Descriptors: only the lifeline stays (and the ruleset until it is sent).
 * Without a terminal; every signal but SIGCHLD has no handler, which is as
 * good as blocked for pid 1, except the keeper's KILL.
 */
static int
settle(struct sbox *b, struct sbox_why *w, int *sock, int *ruleset)
{
	struct sigaction act;
	sigset_t set;
	int i, rc = sbox_why_stage(w, SANDBOX_STAGE_INIT);

	if (rc != SP_OK)
		return rc;
	for (i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	memset(&act, 0, sizeof(act));
	act.sa_handler = on_child;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (sigaction(SIGCHLD, &act, NULL) != 0 ||
	    sigprocmask(SIG_SETMASK, &set, NULL) != 0)
		return sbox_why_errno(w, errno, "signals");
	/* low numbers, so that all above can go */
	if (dup3(*sock, 0, O_CLOEXEC) < 0 || dup3(*ruleset, 1, O_CLOEXEC) < 0)
		return sbox_why_errno(w, errno, "descriptors");
	*sock = 0;
	*ruleset = 1;
	rc = fd_close_from(2);
	if (rc != SP_OK)
		return sbox_why_rc(w, rc, "descriptors");
	(void)prctl(PR_SET_NAME, "sallyport-init", 0, 0, 0);
	if (setsid() < 0 && errno != EPERM)
		return sbox_why_errno(w, errno, "session");
	rc = privs_drop(w, b->init_uid, b->gid,
	    (b->spec->flags & SANDBOX_USERNS) != 0);
	if (rc != SP_OK)
		return rc;
	/*
	 * What it remembers of the keeper is nobody's business inside.  In a
	 * user namespace that would also lock the keeper out, and Landlock
	 * does it: a workload reaches nothing outside its own domain.
	 */
	if (!(b->spec->flags & SANDBOX_USERNS) &&
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return sbox_why_errno(w, errno, "PR_SET_DUMPABLE");
	return sbox_filter_load(w, buf_view(&b->init_filter));
}

/* Bounded: as many as there are zombies. */
static void
reap(void)
{
	pid_t pid;

	do
		pid = waitpid(-1, NULL, WNOHANG);
	while (pid > 0);
}

static void __attribute__((noreturn)) stay(int sock)
{
	struct pollfd p = { sock, POLLIN, 0 };
	sigset_t none;

	sigemptyset(&none);
	for (;;) {
		/* the handler runs in here only: none is missed */
		if (ppoll(&p, 1, NULL, &none) > 0)
			_exit(0); /* and everybody with it */
		reap();
	}
}

void
init1_main(struct sbox *b, int sock)
{
	struct result r;
	int ruleset = -1;

	memset(&r, 0, sizeof(r));
	r.rc = build(b, &r.why, sock, &ruleset);
	if (r.rc == SP_OK)
		r.rc = settle(b, &r.why, &sock, &ruleset);
	r.links = b->links;
	if (fdmsg_send(sock, &r, sizeof(r), r.rc == SP_OK ? ruleset : -1) !=
		SP_OK ||
	    r.rc != SP_OK)
		_exit(1);
	stay(sock);
}
