#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "init/fdmsg.h"
#include "init/keeper_end.h"
#include "init/keeper_file.h"
#include "init/sbox_local.h"
#include "init/sbox_mount.h"
#include "init/sbox_root.h"
#include "os/fd.h"

enum {
	FILE_JOBS_MAX = 16, /* at once */
	FILE_MS = 60 * 1000, /* of one that walks a tree */
	FILE_ENTRIES_MAX = 2 * 1000 * 1000,
};

/* What was asked; the path is of the message. */
struct ask {
	uint32_t request;
	uint8_t op; /* enum sandbox_file_op */
	uint32_t mode;
	uint64_t max;
	char path[SANDBOX_MSG_PATH_MAX + 1];
	int fd; /* of a put, a snapshot; -1 */
};

struct keeper_job {
	LIST_ENTRY(keeper_job) link;
	struct keeper *k;
	uint32_t request;
	pid_t pid;
	int sock;
	struct poller_fd *at;
};

/* ---- where ----------------------------------------------------------------- */

/*
 * The image is anybody's, and a link of it must not lead the keeper to the
 * host's files: seen from the sandbox's root, and the root of a mount there.
 */
static int
open_mount(struct keeper *k, struct sbox_why *why, int root, const char *path)
{
	struct ws_mount *m = &k->ws.mounts[k->ws.mounts_n];
	struct statx st;

	if (k->ws.mounts_n == WS_MOUNTS_MAX)
		return sbox_why_errno(why, E2BIG, "too many places to write");
	m->fd = sbox_mount_open(root, path, O_RDONLY | O_DIRECTORY);
	if (m->fd < 0)
		return sbox_why_errno(why, errno, "%s", path);
	m->path = path;
	/* what is behind the one of "/" is the host's */
	m->writable = strcmp(path, "/") != 0;
	k->ws.mounts_n++;
	if (m->writable &&
	    (statx(m->fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) != 0 ||
		(st.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0))
		return sbox_why_errno(why, EXDEV, "%s is no mount", path);
	return SP_OK;
}

static int
open_mounts(struct keeper *k, struct sbox_why *why, int root)
{
	const char *path = "/";
	size_t i;
	int rc = SP_OK;

	for (i = 0; path != NULL && rc == SP_OK; i++) {
		rc = open_mount(k, why, root, path);
		path = sbox_root_writable(&k->box, i);
	}
	return rc;
}

int
keeper_file_open(struct keeper *k, struct sbox_why *why)
{
	struct ws *ws = &k->ws;
	char from[32];
	int root, rc;

	ws->workspace = "/workspace";
	ws->upper = k->box.upper;
	ws->lower = k->box.lower;
	ws->userxattr = (k->spec.flags & SANDBOX_USERNS) != 0;
	ws->uid = k->box.uid;
	ws->gid = k->box.gid;
	if (sbox_local(&k->box)) {
		ws->mounts[0].path = ws->workspace;
		ws->mounts[0].fd = fcntl(k->box.merged, F_DUPFD_CLOEXEC, 0);
		ws->mounts[0].writable = true;
		ws->mounts_n = 1;
		return SP_OK;
	}
	(void)snprintf(from, sizeof(from), "/proc/%d/root",
	    (int)k->box.init_pid);
	root = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return sbox_why_errno(why, errno, "the sandbox's root");
	rc = open_mounts(k, why, root);
	fd_close(&root);
	return rc;
}

/* ---- the child ------------------------------------------------------------- */

static void
work(const struct ws *ws, const struct ask *q, struct ws_answer *a)
{
	const struct tree_bounds bounds = { q->max, FILE_ENTRIES_MAX,
		clock_ms() + FILE_MS };

	switch ((enum sandbox_file_op)q->op) {
	case SANDBOX_FILE_READ:
		ws_read(ws, q->path, q->max, a);
		break;
	case SANDBOX_FILE_DIFF:
	case SANDBOX_FILE_DIFF_FROZEN:
		ws_diff(ws, &bounds, a);
		break;
	case SANDBOX_FILE_LIST:
		ws_list(ws, q->path, &bounds, a);
		break;
	case SANDBOX_FILE_PUT:
		ws_put(ws, q->path, q->mode, q->fd, &bounds, a);
		break;
	case SANDBOX_FILE_MKDIR:
		ws_mkdir(ws, q->path, q->mode, a);
		break;
	case SANDBOX_FILE_REMOVE:
		ws_remove(ws, q->path, bounds.deadline_ms, a);
		break;
	case SANDBOX_FILE_SNAPSHOT:
		ws_snapshot(ws, q->fd, &bounds, a);
		break;
	case SANDBOX_FILE_UPPER: /* without a child */
	case SANDBOX_FILE_OPS:
		break;
	}
}

static void __attribute__((noreturn))
child(const struct keeper *k, const struct ask *q, int sock)
{
	struct ws_answer a;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	memset(&a, 0, sizeof(a));
	a.result = SANDBOX_FILE_FAILED;
	a.fd = -1;
	umask(0);
	work(&k->ws, q, &a);
	(void)!fdmsg_send(sock, &a, sizeof(a), a.fd);
	_exit(0);
}

/* ---- the answer ------------------------------------------------------------ */

static void
say_done(struct keeper *k, uint32_t request, struct ws_answer *a)
{
	struct buf *b = keeper_body(k);
	struct view what = view_of(a->what, strnlen(a->what, sizeof(a->what)));
	int fd = a->fd;

	a->fd = -1;
	if (fd >= 0 && wire_put_u32(b, request) == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_FILE_DATA, b, fd);
	else
		fd_close(&fd);
	b = keeper_body(k);
	if (wire_put_u32(b, request) == SP_OK &&
	    wire_put_u8(b, (uint8_t)a->result) == SP_OK &&
	    wire_put_u64(b, a->size) == SP_OK &&
	    wire_put_bytes(b, what) == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_FILE_DONE, b, -1);
}

static void
say_result(struct keeper *k, uint32_t request, enum sandbox_file_result result,
    const char *what)
{
	struct ws_answer a;

	memset(&a, 0, sizeof(a));
	a.result = result;
	a.fd = -1;
	(void)snprintf(a.what, sizeof(a.what), "%s", what);
	say_done(k, request, &a);
}

static void
job_free(struct keeper_job *j)
{
	if (j->pid > 0)
		(void)kill(j->pid, SIGKILL);
	while (j->pid > 0 && waitpid(j->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	poller_remove(j->at);
	fd_close(&j->sock);
	LIST_REMOVE(j, link);
	j->k->jobs_n--;
	mem_free(j);
}

static void
on_answer(void *arg, unsigned ready)
{
	struct keeper_job *j = arg;
	struct keeper *k = j->k;
	uint32_t request = j->request;
	struct ws_answer a;
	int fd, rc;

	(void)ready;
	rc = fdmsg_recv(j->sock, &a, sizeof(a), &fd);
	if (rc == SP_E_AGAIN)
		return;
	job_free(j);
	if (rc != SP_OK) {
		say_result(k, request, SANDBOX_FILE_FAILED,
		    "the file work broke off");
		return;
	}
	a.fd = fd;
	say_done(k, request, &a);
}

/* ---- asking ---------------------------------------------------------------- */

static int
start_job(struct keeper *k, const struct ask *q)
{
	struct keeper_job *j = mem_calloc(1, sizeof(*j));
	int pair[2];

	if (j == NULL)
		return SP_E_NOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		mem_free(j);
		return SP_E_SYS;
	}
	j->k = k;
	j->request = q->request;
	j->sock = pair[0];
	LIST_INSERT_HEAD(&k->jobs, j, link);
	k->jobs_n++;
	j->pid = fork();
	if (j->pid == 0) {
		fd_close(&pair[0]);
		child(k, q, pair[1]);
	}
	fd_close(&pair[1]);
	if (j->pid > 0)
		j->at = poller_add(k->po, j->sock, POLLER_READ, on_answer, j);
	if (j->at == NULL) {
		job_free(j);
		return SP_E_NOMEM;
	}
	return SP_OK;
}

/*
 * The directory itself, for a sandbox that is made of a copy of it.  Safe: it
 * goes to the helper, which hands it to a keeper and to nobody else.
 */
static void
say_upper(struct keeper *k, uint32_t request)
{
	int dir = sbox_local(&k->box) ? k->box.merged : k->ws.upper;
	struct ws_answer a;

	memset(&a, 0, sizeof(a));
	a.result = SANDBOX_FILE_OK;
	a.fd = dir >= 0 ? fcntl(dir, F_DUPFD_CLOEXEC, 0) : -1;
	if (a.fd < 0)
		say_result(k, request, SANDBOX_FILE_FAILED, "no upper layer");
	else
		say_done(k, request, &a);
}

static bool
needs_fd(uint8_t op)
{
	return op == SANDBOX_FILE_PUT || op == SANDBOX_FILE_SNAPSHOT;
}

int
keeper_file_take(struct keeper *k, struct channel_msg *m, struct wire *w)
{
	struct view path;
	struct ask q;
	int rc;

	q.request = wire_u32(w);
	q.op = wire_u8(w);
	q.mode = wire_u32(w);
	q.max = wire_u64(w);
	path = wire_bytes(w);
	q.fd = m->fd;
	if (wire_done(w) != SP_OK || q.op == 0 || q.op >= SANDBOX_FILE_OPS ||
	    q.mode > 07777 || path.n > SANDBOX_MSG_PATH_MAX ||
	    (path.n > 0 && memchr(path.p, '\0', path.n) != NULL) ||
	    needs_fd(q.op) != (m->fd >= 0))
		return SP_E_PROTO;
	if (path.n > 0)
		memcpy(q.path, path.p, path.n);
	q.path[path.n] = '\0';
	if (q.op == SANDBOX_FILE_UPPER) {
		say_upper(k, q.request);
		return SP_OK;
	}
	if (k->jobs_n >= FILE_JOBS_MAX) {
		say_result(k, q.request, SANDBOX_FILE_BUSY,
		    "too much file work at once");
		return SP_OK;
	}
	rc = start_job(k, &q);
	if (rc != SP_OK)
		say_result(k, q.request, SANDBOX_FILE_FAILED, err_str(rc));
	return SP_OK;
}

/* ---- the end --------------------------------------------------------------- */

void
keeper_file_drop(struct keeper *k)
{
	size_t i;

	while (!LIST_EMPTY(&k->jobs))
		job_free(LIST_FIRST(&k->jobs));
	for (i = 0; i < k->ws.mounts_n; i++)
		fd_close(&k->ws.mounts[i].fd);
	k->ws.mounts_n = 0;
}
