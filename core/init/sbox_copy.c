#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "init/sbox_copy.h"
#include "os/fd.h"
#include "os/tree.h"

enum { COPY_MS = 120 * 1000 };

/* What the child found out. */
struct copy_result {
	int rc;
	struct sbox_why why;
};

static void __attribute__((noreturn))
copy_child(const struct sbox *b, enum sandbox_stage stage, int sock)
{
	struct buf where = BUF_INIT(SANDBOX_MSG_PATH_MAX * 4);
	struct tree_bounds bounds;
	struct copy_result r;
	struct tree_copied copied;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	memset(&r, 0, sizeof(r));
	r.why.stage = stage;
	bounds.bytes = b->spec->workspace_bytes;
	bounds.entries = b->spec->workspace_inodes;
	bounds.deadline_ms = clock_ms() + COPY_MS;
	/* another's files become its own, as the seed's do */
	r.rc = tree_copy_for(b->give[SANDBOX_FD_UPPER], b->upper, &bounds,
	    b->spec->flags & SANDBOX_USERNS ? NULL : &b->uid, &copied, &where);
	if (r.rc != SP_OK)
		r.rc = sbox_why_rc(&r.why, r.rc, "copying %.*s",
		    VIEW_ARG(buf_view(&where)));
	(void)!write(sock, &r, sizeof(r));
	_exit(0);
}

static int
copy_wait(const struct sbox *b, struct sbox_why *w, int sock)
{
	struct pollfd p[2] = { { sock, POLLIN, 0 }, { b->channel, POLLIN, 0 } };
	struct copy_result r;
	int n;

	do
		n = poll(p, b->channel >= 0 ? 2 : 1, COPY_MS + 1000);
	while (n < 0 && errno == EINTR);
	if (n > 0 && p[0].revents == 0)
		return SP_E_AGAIN;
	if (n > 0 && read(sock, &r, sizeof(r)) == (ssize_t)sizeof(r)) {
		*w = r.why;
		return r.rc;
	}
	return sbox_why_errno(w, n == 0 ? ETIMEDOUT : EIO,
	    "copying the upper layer");
}

int
sbox_copy_upper(struct sbox *b, struct sbox_why *w)
{
	int pair[2], rc;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return sbox_why_errno(w, errno, "socketpair");
	pid = fork();
	if (pid == 0) {
		fd_close(&pair[0]);
		copy_child(b, w->stage, pair[1]);
	}
	fd_close(&pair[1]);
	if (pid < 0) {
		rc = sbox_why_errno(w, errno, "fork");
	} else {
		rc = copy_wait(b, w, pair[0]);
		(void)kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	fd_close(&pair[0]);
	return rc;
}
