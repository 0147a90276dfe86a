#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/ws_place.h"
#include "os/fd.h"
#include "os/tree_stack.h"

enum { OPEN_TRIES = 16 };

static const char no_links[] =
    "what is on the way is no directory, and links are not followed";
static const char outside[] = "it is outside of the sandbox's own files";

void
ws_place_begin(struct ws_answer *a)
{
	memset(a, 0, sizeof(*a));
	a->result = SANDBOX_FILE_OK;
	a->fd = -1;
}

static enum sandbox_file_result
result_of(int rc)
{
	static const struct {
		int rc;
		enum sandbox_file_result result;
	} map[] = {
		{ SP_E_NOTFOUND, SANDBOX_FILE_NOT_FOUND },
		{ SP_E_UNSUPPORTED, SANDBOX_FILE_ESCAPES },
		{ SP_E_PROTO, SANDBOX_FILE_ESCAPES },
		{ SP_E_STATE, SANDBOX_FILE_SPECIAL },
		{ SP_E_LIMIT, SANDBOX_FILE_TOO_LARGE },
		{ SP_E_NOSPC, SANDBOX_FILE_NO_SPACE },
		{ SP_E_AGAIN, SANDBOX_FILE_BUSY },
	};
	size_t i;

	for (i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (map[i].rc == rc)
			return map[i].result;
	return SANDBOX_FILE_FAILED;
}

int
ws_place_fail(struct ws_answer *a, int rc, const char *what)
{
	fd_close(&a->fd);
	a->result = result_of(rc);
	(void)snprintf(a->what, sizeof(a->what), "%s: %s", what, err_str(rc));
	return rc;
}

int
ws_place_refuse(struct ws_answer *a, enum sandbox_file_result result,
    const char *what)
{
	fd_close(&a->fd);
	a->result = result;
	(void)snprintf(a->what, sizeof(a->what), "%s", what);
	return SP_E_DENIED;
}

/* Without empty components and "."; "..", which is a way out, is refused. */
static int
normalise(const char *path, char out[PATH_MAX])
{
	struct view rest = view_str(path), piece;
	size_t n = 0;

	if (path[0] != '/')
		return SP_E_ARG;
	while (view_split(&rest, '/', &piece)) {
		if (piece.n == 0 || view_eq(piece, VIEW(".")))
			continue;
		if (view_eq(piece, VIEW("..")))
			return SP_E_PROTO;
		if (piece.n > NAME_MAX || n + piece.n + 2 > PATH_MAX)
			return SP_E_ARG;
		out[n++] = '/';
		memcpy(out + n, piece.p, piece.n);
		n += piece.n;
	}
	if (n == 0)
		out[n++] = '/';
	out[n] = 0;
	return SP_OK;
}

/* What lies behind the mount's path, or NULL: "/tmp" does not hold "/tmpx". */
static const char *
behind(const char *mount, const char *path)
{
	size_t n = strlen(mount);

	if (strcmp(mount, "/") == 0)
		return path + 1;
	if (strncmp(mount, path, n) != 0)
		return NULL;
	if (path[n] == 0)
		return path + n;
	return path[n] == '/' ? path + n + 1 : NULL;
}

int
ws_place_find(const struct ws *w, const char *path, struct ws_place *p,
    struct ws_answer *a)
{
	const char *rest, *best = NULL;
	char clean[PATH_MAX];
	size_t i, n, best_n = 0;
	int rc;

	p->mount = NULL;
	rc = normalise(path, clean);
	if (rc == SP_E_PROTO)
		return ws_place_refuse(a, SANDBOX_FILE_ESCAPES,
		    "a path with \"..\" leads out");
	if (rc != SP_OK)
		return ws_place_fail(a, rc,
		    "the path must be absolute, its names of 255 bytes at "
		    "most");
	for (i = 0; i < w->mounts_n; i++) {
		rest = behind(w->mounts[i].path, clean);
		n = strlen(w->mounts[i].path);
		if (rest == NULL || w->mounts[i].fd < 0 ||
		    (p->mount != NULL && n < best_n))
			continue;
		p->mount = &w->mounts[i];
		best = rest;
		best_n = n;
	}
	if (best == NULL)
		return ws_place_fail(a, SP_E_NOTFOUND, "no such place");
	(void)snprintf(p->rest, sizeof(p->rest), "%s", best[0] ? best : ".");
	return SP_OK;
}

int
ws_place_open(const struct ws_place *p, int flags, int *out,
    struct ws_answer *a)
{
	struct open_how how;
	int tries = 0, rc;
	long fd;

	memset(&how, 0, sizeof(how));
	how.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW);
	if ((flags & O_PATH) == 0)
		how.flags |= O_NONBLOCK | O_NOCTTY;
	how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
	    RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
	/* EAGAIN: somebody renames on the way; a few times are enough */
	do
		fd = syscall(SYS_openat2, p->mount->fd, p->rest, &how,
		    sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR) &&
	    ++tries < OPEN_TRIES);
	if (fd >= 0) {
		*out = (int)fd;
		return SP_OK;
	}
	if (errno == ELOOP)
		return ws_place_refuse(a, SANDBOX_FILE_ESCAPES, no_links);
	if (errno == EXDEV)
		return ws_place_refuse(a, SANDBOX_FILE_ESCAPES, outside);
	if (errno == ENOTDIR && (flags & O_DIRECTORY) != 0)
		return ws_place_refuse(a, SANDBOX_FILE_SPECIAL,
		    "it is not a directory");
	rc = errno == ENOTDIR ? SP_E_NOTFOUND : err_from_errno(errno);
	/* too long a name is not too large a file */
	return ws_place_fail(a, rc == SP_E_LIMIT ? SP_E_SYS : rc, "open");
}

/* Makes one directory; who was faster does not matter, what it is does. */
static int
make_dir(int dir, const char *name, const struct ws *w)
{
	struct stat st;
	int fd, rc;

	if (mkdirat(dir, name, 0755) != 0)
		return errno == EEXIST ? SP_OK : err_from_errno(errno);
	rc = tree_stack_open(dir, name, &fd);
	if (rc != SP_OK)
		return rc;
	/* another's may lie there by now: that is not given away */
	if (fstat(fd, &st) != 0 ||
	    (st.st_uid == geteuid() && fchown(fd, w->uid, w->gid) != 0 &&
		geteuid() == 0))
		rc = err_from_errno(errno);
	fd_close(&fd);
	return rc;
}

/* One component down; *dir is replaced. */
static int
step(int *dir, const char *name, const struct ws *make)
{
	int next = -1, rc;

	rc = tree_stack_open(*dir, name, &next);
	if (rc == SP_E_NOTFOUND && make != NULL) {
		rc = make_dir(*dir, name, make);
		if (rc == SP_OK)
			rc = tree_stack_open(*dir, name, &next);
	}
	if (rc != SP_OK)
		return rc;
	fd_close(dir);
	*dir = next;
	return SP_OK;
}

int
ws_place_parent(struct ws_place *p, const struct ws *make, int *out,
    char name[NAME_MAX + 1], struct ws_answer *a)
{
	struct view rest = view_of(p->rest, strlen(p->rest)), piece;
	int dir, rc = SP_OK, n = 0;

	if (strcmp(p->rest, ".") == 0)
		return ws_place_refuse(a, SANDBOX_FILE_ESCAPES,
		    "it is the sandbox's own directory, which stays");
	if (!p->mount->writable)
		return ws_place_refuse(a, SANDBOX_FILE_ESCAPES, outside);
	dir = openat(p->mount->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return ws_place_fail(a, err_from_errno(errno), "open");
	while (rc == SP_OK && view_split(&rest, '/', &piece) && piece.n > 0) {
		memcpy(name, piece.p, piece.n);
		name[piece.n] = 0;
		if (rest.p == NULL || rest.n == 0)
			break;
		rc = ++n > WS_DEPTH_MAX ? SP_E_ARG : step(&dir, name, make);
	}
	if (rc != SP_OK) {
		fd_close(&dir);
		if (rc == SP_E_STATE || rc == SP_E_PROTO)
			return ws_place_refuse(a, SANDBOX_FILE_ESCAPES,
			    no_links);
		return ws_place_fail(a, rc, "a directory on the way");
	}
	*out = dir;
	return SP_OK;
}
