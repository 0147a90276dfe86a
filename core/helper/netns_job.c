#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/netns.h"
#include "helper/netns_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "os/poller.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

enum {
	NETNS_JOB_FDS = NETNS_LISTENERS_MAX + 3,
	NETNS_JOB_WHY_BYTES = 1024,
	NETNS_JOB_ANSWER_BYTES = 4096,
};
/* Of the answer: which descriptors lead those of the listeners. */
enum { NETNS_JOB_HAS_NS = 1, NETNS_JOB_HAS_LOG = 2, NETNS_JOB_HAS_NFT = 4 };

struct netns_job {
	struct poller *po;
	struct netns_plan plan; /* env is not used after the fork */
	bool cut;
	bool dropped;
	void (*done)(void *arg, int rc, struct netns *made, struct view why);
	void *arg;
	int pid_fd; /* readable when the child has ended */
	int fd; /* what it says */
	struct poller_fd *watch;
	struct poller_timer *deadline;
	bool late;
};

#if !SP_CONFINEMENT
uint64_t netns_job_ms;
#endif

/* ---- in the child ---- */

static size_t
netns_job_pack(const struct netns *n, unsigned *has, int fds[NETNS_JOB_FDS])
{
	size_t i, k = 0;

	*has = 0;
	if (n->ns_fd >= 0) {
		*has |= NETNS_JOB_HAS_NS;
		fds[k++] = n->ns_fd;
	}
	if (n->nflog_fd >= 0) {
		*has |= NETNS_JOB_HAS_LOG;
		fds[k++] = n->nflog_fd;
	}
	if (n->nft_fd >= 0) {
		*has |= NETNS_JOB_HAS_NFT;
		fds[k++] = n->nft_fd;
	}
	for (i = 0; i < n->listeners_n; i++)
		fds[k++] = n->listeners[i].fd;
	return k;
}

static int
netns_job_encode(struct buf *b, int result, unsigned has, const struct netns *n,
    struct view why)
{
	size_t i;
	int rc;

	rc = wire_put_u32(b, (uint32_t)-result);
	if (rc == SP_OK)
		rc = wire_put_u32(b, has);
	if (rc == SP_OK)
		rc = wire_put_u32(b, (uint32_t)n->listeners_n);
	for (i = 0; i < n->listeners_n && rc == SP_OK; i++)
		rc = wire_put_u32(b, n->listeners[i].index);
	if (rc == SP_OK)
		rc = wire_put_bytes(b, why);
	return rc;
}

/* One message with everything: it arrives whole or not at all. */
static int
netns_job_send(int fd, struct view body, const int *fds, size_t n)
{
	union {
		char bytes[CMSG_SPACE(NETNS_JOB_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	/* sendmsg() does not write through it */
	struct iovec iov = { (void *)(uintptr_t)body.p, body.n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;
	ssize_t put;

	if (n > 0) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, n * sizeof(int));
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
	}
	do
		put = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (put < 0 && errno == EINTR);
	return put >= 0 ? SP_OK : err_from_errno(errno);
}

/*
 * The helper's copy keeps its privilege, since all it does needs it; it
 * parses nothing but the kernel's answers.  It keeps no descriptor of the
 * helper's: a copy of another slot's nft_fd would keep that table owned.
 */
static void
netns_job_child(const struct netns_job *j, int fd, pid_t parent)
{
	struct buf why = BUF_INIT(NETNS_JOB_WHY_BYTES),
		   body = BUF_INIT(NETNS_JOB_ANSWER_BYTES);
	int fds[NETNS_JOB_FDS], rc;
	struct netns n;
	unsigned has;
	size_t fds_n;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
	    dup2(fd, 3) != 3 || fd_close_from(4) != SP_OK)
		_exit(1);
	netns_init(&n);
	rc =
	    j->cut ? netns_cut(&j->plan, &why) : netns_make(&j->plan, &n, &why);
	fds_n = netns_job_pack(&n, &has, fds);
	if (netns_job_encode(&body, rc, has, &n, buf_view(&why)) != SP_OK ||
	    netns_job_send(3, buf_view(&body), fds, fds_n) != SP_OK)
		_exit(1);
	_exit(0);
}

/* ---- in the helper ---- */

static void
netns_job_free(struct netns_job *j)
{
	poller_remove(j->watch);
	poller_timer_free(j->deadline);
	fd_close(&j->pid_fd);
	fd_close(&j->fd);
	mem_free(j);
}

/* Descriptors of the message, at most max; more is no message of ours. */
static size_t
netns_job_take_fds(struct msghdr *m, int *fds, size_t max)
{
	struct cmsghdr *cm;
	size_t n, i, k = 0;
	int got;

	for (cm = CMSG_FIRSTHDR(m); cm != NULL; cm = CMSG_NXTHDR(m, cm)) {
		if (cm->cmsg_level != SOL_SOCKET ||
		    cm->cmsg_type != SCM_RIGHTS || cm->cmsg_len < CMSG_LEN(0))
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&got, CMSG_DATA(cm) + i * sizeof(int),
			    sizeof(got));
			if (k < max)
				fds[k++] = got;
			else
				fd_close(&got);
		}
	}
	return k;
}

/* False: it is no message of ours, and n has no descriptor. */
static bool
netns_job_decode(struct wire *w, struct netns *n, const int *fds, size_t fds_n,
    int *rc)
{
	uint32_t result = wire_u32(w), has = wire_u32(w);
	uint32_t listeners_n = wire_u32(w);
	size_t i, k = 0;

	k = !!(has & NETNS_JOB_HAS_NS) + !!(has & NETNS_JOB_HAS_LOG) +
	    !!(has & NETNS_JOB_HAS_NFT);
	if (w->bad || listeners_n > NETNS_LISTENERS_MAX || result > INT32_MAX ||
	    fds_n != k + listeners_n)
		return false;
	for (i = 0; i < listeners_n; i++)
		n->listeners[i].index = wire_u32(w);
	if (w->bad)
		return false;
	for (i = 0; i < listeners_n; i++)
		n->listeners[i].fd = fds[k++];
	n->listeners_n = listeners_n;
	k = 0;
	if (has & NETNS_JOB_HAS_NS)
		n->ns_fd = fds[k++];
	if (has & NETNS_JOB_HAS_LOG)
		n->nflog_fd = fds[k++];
	if (has & NETNS_JOB_HAS_NFT)
		n->nft_fd = fds[k++];
	*rc = result == 0 ? SP_OK : -(int)result;
	return true;
}

/* What the child said, if it did; its end has been seen. */
static int
netns_job_answer(struct netns_job *j, char *mem, struct netns *n,
    struct view *why)
{
	union {
		char bytes[CMSG_SPACE(NETNS_JOB_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { mem, NETNS_JOB_ANSWER_BYTES };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes) };
	int fds[NETNS_JOB_FDS], rc;
	struct wire w;
	size_t fds_n, i;
	ssize_t got;

	memset(fds, 0xff, sizeof(fds)); /* all -1 */
	got = recvmsg(j->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got <= 0) {
		*why = j->late ? VIEW("network: took too long, killed")
			       : VIEW("network: its process died");
		return j->late ? SP_E_TIMEOUT : SP_E_GONE;
	}
	fds_n = netns_job_take_fds(&m, fds, NETNS_JOB_FDS);
	wire_init(&w, view_of(mem, (size_t)got));
	if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
	    netns_job_decode(&w, n, fds, fds_n, &rc)) {
		*why = wire_bytes(&w);
		return rc;
	}
	for (i = 0; i < fds_n; i++)
		fd_close(&fds[i]);
	*why = VIEW("network: its process broke the protocol");
	return SP_E_GONE;
}

static void
netns_job_undo_done(void *arg, int rc, struct netns *made, struct view why)
{
	(void)arg;
	(void)made;
	if (rc != SP_OK)
		log_error("a network that nobody wants stays: %.*s",
		    VIEW_ARG(why));
}

/* Nobody wants it any more: what was made is taken away again. */
static void
netns_job_undo(struct netns_job *j)
{
	/* an ordinary user's is gone with its descriptors */
	if (!j->cut && !j->plan.userns &&
	    netns_start(j->po, &j->plan, true, netns_job_undo_done, NULL) ==
		NULL)
		log_error("network of slot %u stays until the next sweep",
		    j->plan.slot);
}

static void
netns_job_on_end(void *arg, unsigned ready)
{
	struct netns_job *j = arg;
	char mem[NETNS_JOB_ANSWER_BYTES];
	struct view why = VIEW_NONE;
	struct netns n;
	siginfo_t si;
	int rc;

	(void)ready;
	/* whoever waits for all children may have had it already */
	(void)waitid((idtype_t)P_PIDFD, (id_t)j->pid_fd, &si,
	    WEXITED | WNOHANG);
	netns_init(&n);
	rc = netns_job_answer(j, mem, &n, &why);
	if (j->dropped) {
		netns_clear(&n);
		netns_job_undo(j);
	} else {
		j->done(j->arg, rc, rc == SP_OK && !j->cut ? &n : NULL, why);
	}
	netns_job_free(j);
}

static void
netns_job_on_late(void *arg)
{
	struct netns_job *j = arg;

	j->late = true;
	if (syscall(SYS_pidfd_send_signal, j->pid_fd, SIGKILL, NULL, 0) != 0)
		log_error("network of slot %u: cannot kill its process",
		    j->plan.slot);
}

/* The child; its end of the pair is closed here. */
static int
netns_job_fork(struct netns_job *j)
{
	pid_t parent = getpid(), pid;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return err_from_errno(errno);
	j->fd = pair[0];
	pid = fork();
	if (pid == 0)
		netns_job_child(j, pair[1], parent);
	fd_close(&pair[1]);
	if (pid < 0)
		return err_from_errno(errno);
	/* it cannot have been waited for yet: the number is still its own */
	j->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (j->pid_fd >= 0)
		return SP_OK;
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return SP_E_SYS;
}

static uint64_t
netns_job_patience(void)
{
#if !SP_CONFINEMENT
	if (netns_job_ms != 0)
		return netns_job_ms;
#endif
	return NETNS_JOB_MS;
}

struct netns_job *
netns_start(struct poller *po, const struct netns_plan *p, bool cut,
    void (*done)(void *arg, int rc, struct netns *made, struct view why),
    void *arg)
{
	struct netns_job *j = mem_calloc(1, sizeof(*j));

	if (j == NULL)
		return NULL;
	j->po = po;
	j->plan = *p;
	j->cut = cut;
	j->done = done;
	j->arg = arg;
	j->pid_fd = j->fd = -1;
	j->deadline = poller_timer_new(po, netns_job_on_late, j);
	if (j->deadline == NULL || netns_job_fork(j) != SP_OK)
		goto fail;
	j->watch = poller_add(po, j->pid_fd, POLLER_READ, netns_job_on_end, j);
	if (j->watch == NULL) {
		netns_job_on_late(j);
		goto fail;
	}
	poller_timer_set(j->deadline, netns_job_patience());
	j->plan.env = NULL;
	return j;
fail:
	netns_job_free(j);
	return NULL;
}

void
netns_job_drop(struct netns_job *j)
{
	if (j != NULL)
		j->dropped = true;
}
