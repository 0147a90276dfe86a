#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "helper/assets.h"
#include "helper/complain.h"
#include "helper/job.h"
#include "os/fd.h"

enum {
	ASSETS_WHY_MAX = 4096,
	ASSETS_READ_MS = 10 * 1000,
	ASSETS_DEPTH_MAX = 256, /* directories up to the root */
};

const char assets_inside[] = "/openenvd/assets";

/* ---- what is configured ----------------------------------------------------- */

const struct conf_env_asset *
assets_find(const struct conf_environment *env, struct view kind)
{
	size_t i;

	for (i = 0; i < env->asset_n; i++)
		if (view_eq(env->asset[i].kind, kind))
			return &env->asset[i];
	return NULL;
}

bool
assets_run(const struct conf_environment *env, const struct conf_env_asset *a)
{
	size_t i;

	if (view_eq(a->kind, VIEW("oracle")))
		return true;
	for (i = 0; i < env->processes_n; i++)
		if (env->processes[i].privileged &&
		    env->processes[i].command.n == 0 &&
		    view_eq(env->processes[i].asset, a->kind))
			return true;
	return false;
}

/* Looks without opening: a FIFO would block, a device do worse. */
static int
asset_stat(int dir, struct view path, struct stat *st)
{
	char *name = mem_strndup(path.p, path.n);
	int fd = -1, rc;

	if (name == NULL)
		return SP_E_NOMEM;
	rc = fd_open_beneath(dir, name, O_PATH | O_NOFOLLOW, 0, &fd);
	mem_free(name);
	if (rc == SP_OK && fstat(fd, st) != 0)
		rc = err_from_errno(errno);
	fd_close(&fd);
	return rc;
}

int
assets_check(const struct conf_environment *env, int dir,
    const struct conf_env_asset *a, bool run, struct buf *why)
{
	struct stat st;
	int rc = asset_stat(dir, a->path, &st);

	if (rc == SP_E_NOMEM)
		return rc;
	(void)!buf_printf(why, "asset %.*s: %.*s/%.*s ", VIEW_ARG(a->kind),
	    VIEW_ARG(env->assets), VIEW_ARG(a->path));
	if (rc == SP_E_DENIED)
		(void)!buf_add_str(why,
		    "leads through a link; expected a file that is there "
		    "itself");
	else if (rc != SP_OK)
		(void)!buf_add_str(why, err_str(rc));
	else if (!S_ISREG(st.st_mode))
		(void)!buf_add_str(why,
		    "is no regular file; expected one, not a link");
	else if (run && (st.st_mode & S_IXUSR) == 0)
		(void)!buf_add_str(why,
		    "is to be run and is not executable: chmod u+x it, or name "
		    "a \"command\" for it in a process of trust privileged");
	else
		return SP_OK;
	return SP_E_CONF;
}

/* ---- where they lie --------------------------------------------------------- */

static bool
same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether dir is, or lies in, the directory that st is of. */
static bool
lies_in(int dir, const struct stat *st)
{
	int at = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC), up, i;
	struct stat here, above;
	bool found = false;

	for (i = 0; i < ASSETS_DEPTH_MAX && at >= 0 && !found; i++) {
		if (fstat(at, &here) != 0)
			break;
		found = same(&here, st);
		up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd_close(&at);
		at = up;
		if (at >= 0 && fstat(at, &above) == 0 && same(&above, &here))
			break;
	}
	fd_close(&at);
	return found;
}

/*
 * Names say nothing where links lead elsewhere: compared is what the paths
 * are.
 */
static int
check_apart(const struct conf_environment *env, int dir, struct view path,
    const char *what)
{
	struct stat st, own;
	bool bad = false;
	char *name;
	int fd;

	if (path.n == 0)
		return SP_OK;
	name = mem_strndup(path.p, path.n);
	if (name == NULL)
		return SP_E_NOMEM;
	fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	mem_free(name);
	/* what is not there, or no directory, holds nothing */
	if (fd >= 0 && fstat(fd, &st) == 0 && fstat(dir, &own) == 0)
		bad = lies_in(dir, &st) ||
		    (strcmp(what, "workspace") == 0 && lies_in(fd, &own));
	fd_close(&fd);
	if (!bad)
		return SP_OK;
	complain("%s:%u: assets %.*s and %s %.*s contain each other; expected "
		 "them where no workload sees them",
	    env->pos.file, env->pos.line, VIEW_ARG(env->assets), what,
	    VIEW_ARG(path));
	return SP_E_CONF;
}

static int
check_place(const struct conf_environment *env, int dir)
{
	size_t i;
	int rc = check_apart(env, dir, env->workspace, "workspace");

	if (rc == SP_OK)
		rc = check_apart(env, dir, env->rootfs, "rootfs");
	for (i = 0; i < env->read_only.n && rc == SP_OK; i++)
		rc = check_apart(env, dir, env->read_only.v[i], "read_only");
	return rc;
}

static int
open_dir(const struct conf_environment *env, int *out)
{
	char *path = mem_strndup(env->assets.p, env->assets.n);
	struct stat st;

	if (path == NULL)
		return SP_E_NOMEM;
	*out = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	mem_free(path);
	if (*out < 0 || fstat(*out, &st) != 0) {
		complain("%s:%u: assets %.*s: %s", env->pos.file, env->pos.line,
		    VIEW_ARG(env->assets), strerror(errno));
		return SP_E_CONF;
	}
	if (st.st_uid == geteuid() && (st.st_mode & 077) == 0)
		return SP_OK;
	complain("%s:%u: assets %.*s must belong to %s and be closed "
		 "to all others (mode 0700)",
	    env->pos.file, env->pos.line, VIEW_ARG(env->assets),
	    geteuid() == 0 ? "root" : "you");
	return SP_E_CONF;
}

int
assets_open(const struct conf_environment *env, int *out)
{
	struct buf why = BUF_INIT(ASSETS_WHY_MAX);
	size_t i;
	int rc, one;

	*out = -1;
	if (env->assets.n == 0)
		return SP_OK;
	rc = open_dir(env, out);
	if (rc != SP_OK)
		return rc;
	rc = check_place(env, *out);
	for (i = 0; i < env->asset_n && rc != SP_E_NOMEM; i++) {
		const struct conf_env_asset *a = &env->asset[i];

		buf_truncate(&why, 0);
		one = assets_check(env, *out, a, assets_run(env, a), &why);
		if (one == SP_E_CONF)
			complain("%s:%u: %.*s", a->pos.file, a->pos.line,
			    VIEW_ARG(buf_view(&why)));
		if (rc == SP_OK || one == SP_E_NOMEM)
			rc = one;
	}
	buf_clear(&why);
	return rc;
}

/* ---- reading one ------------------------------------------------------------ */

struct assets_read {
	struct job *job;
	int dir; /* borrowed */
	int out; /* memfd, which the child fills */
	uint64_t max;
	char *name; /* beneath the directory */
	void (*done)(void *arg, enum sandbox_file_result result, uint64_t size,
	    int fd);
	void *arg;
};

struct view
assets_path(struct view path)
{
	size_t n = sizeof(assets_inside) - 1;

	if (!view_starts(path, view_str(assets_inside)) || path.n < n + 2 ||
	    path.p[n] != '/')
		return VIEW_NONE;
	return view_from(path, n + 1);
}

/* Each name as it is: what a pattern allowed is what is read. */
static bool
is_plain(struct view name)
{
	struct view piece;

	if (name.n == 0 || name.n >= SANDBOX_MSG_PATH_MAX ||
	    memchr(name.p, 0, name.n) != NULL || name.p[name.n - 1] == '/')
		return false;
	while (view_split(&name, '/', &piece))
		if (piece.n == 0 || view_eq(piece, VIEW(".")) ||
		    view_eq(piece, VIEW("..")))
			return false;
	return true;
}

static int
open_regular(int dir, const char *name, int *fd)
{
	struct stat st;
	int at = -1, rc;
	char link[40];

	rc = fd_open_beneath(dir, name, O_PATH | O_NOFOLLOW, 0, &at);
	if (rc == SP_OK && fstat(at, &st) != 0)
		rc = err_from_errno(errno);
	if (rc == SP_OK && S_ISLNK(st.st_mode))
		rc = SP_E_DENIED;
	else if (rc == SP_OK && !S_ISREG(st.st_mode))
		rc = SP_E_STATE;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
	if (rc == SP_OK) {
		*fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		rc = *fd < 0 ? err_from_errno(errno) : SP_OK;
	}
	fd_close(&at);
	return rc;
}

static int
read_into(const struct assets_read *r, struct buf *text)
{
	int fd = -1, rc = open_regular(r->dir, r->name, &fd);

	if (rc == SP_OK)
		rc = fd_read_all(fd, text);
	fd_close(&fd);
	return rc;
}

/* As run_probe() does of a program inside; the kernel reads as much. */
struct view
assets_interpreter(const struct conf_environment *env,
    const struct conf_env_asset *a, char head[ASSETS_HEAD])
{
	char *dir_name = mem_strndup(env->assets.p, env->assets.n);
	char *name = mem_strndup(a->path.p, a->path.n), *at;
	int dir = -1, fd = -1;
	ssize_t n = 0;

	if (dir_name != NULL && name != NULL)
		dir = open(dir_name,
		    O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir >= 0 && open_regular(dir, name, &fd) == SP_OK)
		n = read(fd, head, ASSETS_HEAD - 1);
	fd_close(&fd);
	fd_close(&dir);
	mem_free(dir_name);
	mem_free(name);
	head[n > 0 ? n : 0] = '\0';
	if (strncmp(head, "#!", 2) != 0)
		return VIEW_NONE;
	at = head + 2 + strspn(head + 2, " \t");
	at[strcspn(at, " \t\n")] = '\0';
	return at[0] == '/' ? view_str(at) : VIEW_NONE;
}

/* In the child. */
static int
read_work(void *arg, struct buf *why)
{
	const struct assets_read *r = arg;
	struct buf text = BUF_INIT((size_t)r->max);
	int rc = read_into(r, &text);

	(void)why;
	if (rc == SP_OK)
		rc = fd_write_all(r->out, buf_view(&text).p, buf_len(&text));
	return rc;
}

static void
read_free(struct assets_read *r)
{
	fd_close(&r->out);
	mem_free(r->name);
	mem_free(r);
}

static int
read_seal(const struct assets_read *r, uint64_t *size)
{
	struct stat st;

	if (fstat(r->out, &st) != 0 ||
	    fcntl(r->out, F_ADD_SEALS,
		F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
		return err_from_errno(errno);
	*size = (uint64_t)st.st_size;
	return SP_OK;
}

static void
read_done(void *arg, int rc, struct view why)
{
	struct assets_read *r = arg;
	enum sandbox_file_result result = SANDBOX_FILE_FAILED;
	uint64_t size = 0;
	int fd = -1;

	(void)why;
	if (rc == SP_OK)
		rc = read_seal(r, &size);
	if (rc == SP_OK) {
		fd = r->out;
		r->out = -1;
		result = SANDBOX_FILE_OK;
	} else if (rc == SP_E_NOTFOUND) {
		result = SANDBOX_FILE_NOT_FOUND;
	} else if (rc == SP_E_DENIED) {
		result = SANDBOX_FILE_ESCAPES;
	} else if (rc == SP_E_STATE) {
		result = SANDBOX_FILE_SPECIAL;
	} else if (rc == SP_E_LIMIT) {
		result = SANDBOX_FILE_TOO_LARGE;
	}
	r->done(r->arg, result, size, fd);
	read_free(r);
}

static int
read_prepare(struct assets_read *r, const struct conf_environment *env,
    struct view name)
{
	const struct conf_env_asset *a = assets_find(env, name);

	if (a != NULL)
		name = a->path;
	/* what no path can be leads to what is never there */
	r->name =
	    is_plain(name) ? mem_strndup(name.p, name.n) : mem_strndup("", 0);
	r->out = memfd_create("asset", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (r->name == NULL)
		return SP_E_NOMEM;
	return r->out < 0 ? err_from_errno(errno) : SP_OK;
}

struct assets_read *
assets_read_start(struct poller *p, const struct assets_ask *ask,
    void (*done)(void *arg, enum sandbox_file_result result, uint64_t size,
	int fd),
    void *arg)
{
	struct assets_read *r = mem_calloc(1, sizeof(*r));
	int keep[2];
	struct job_plan plan = {
		.timeout_ms = ASSETS_READ_MS,
		.work = read_work,
		.done = read_done,
		.arg = r,
		.keep = keep,
		.keep_n = 2,
	};

	if (r == NULL)
		return NULL;
	r->dir = ask->dir;
	r->out = -1;
	r->max = ask->max < ASSETS_READ_MAX ? ask->max : ASSETS_READ_MAX;
	r->done = done;
	r->arg = arg;
	if (read_prepare(r, ask->env, ask->name) == SP_OK) {
		keep[0] = r->dir;
		keep[1] = r->out;
		r->job = job_start(p, &plan);
	}
	if (r->job == NULL) {
		read_free(r);
		return NULL;
	}
	return r;
}

void
assets_read_drop(struct assets_read *r)
{
	if (r == NULL)
		return;
	job_drop(r->job);
	read_free(r);
}
