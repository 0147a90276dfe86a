#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/num.h"
#include "os/dir.h"
#include "os/fd.h"

enum { DIR_OVERLAY_MAGIC = 0x794c7630 };

/* path's folder into out, its last component into *name (within out). */
static int
dir_split(const char *path, char out[PATH_MAX], const char **name)
{
	size_t n = strlen(path);
	char *slash;

	while (n > 1 && path[n - 1] == '/')
		n--;
	if (path[0] != '/' || n >= PATH_MAX)
		return SP_E_ARG;
	memcpy(out, path, n);
	out[n] = 0;
	slash = strrchr(out, '/');
	*slash = 0;
	*name = slash + 1;
	return (*name)[0] == 0 || strcmp(*name, "..") == 0 ||
		strcmp(*name, ".") == 0
	    ? SP_E_ARG
	    : SP_OK;
}

/* Like mkdir -p, without the last component. */
static int
dir_make_parents(const char *folder, mode_t mode)
{
	char path[PATH_MAX];
	size_t i, n = strlen(folder);

	if (n >= sizeof(path))
		return SP_E_LIMIT;
	memcpy(path, folder, n + 1);
	for (i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i] != 0)
			continue;
		path[i] = 0;
		if (mkdir(path, mode) != 0 && errno != EEXIST &&
		    errno != EROFS && errno != EACCES)
			return err_from_errno(errno);
		if (i < n)
			path[i] = '/';
	}
	return SP_OK;
}

static int
dir_check(const struct stat *st, const struct dir_want *want, const char **why)
{
	mode_t group = want->mode & S_ISGID ? 0 : S_IWGRP;

	if (!S_ISDIR(st->st_mode)) {
		*why = "is not a directory";
		return SP_E_DENIED;
	}
	if (want->as_it_is)
		return SP_OK;
	if (st->st_uid != want->uid) {
		*why = "belongs to another user";
		return SP_E_DENIED;
	}
	if (st->st_mode & (S_IWOTH | group)) {
		*why = "can be written by others";
		return SP_E_DENIED;
	}
	return SP_OK;
}

/*
 * Gives a directory that was made just now to its user.  Safe against whoever
 * can write the parent: the descriptor was opened without following a
 * symlink, and what is given away must be what mkdir left: ours, a directory.
 */
static int
dir_give(int fd, const struct dir_want *want, const char **why)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return err_from_errno(errno);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
		*why = "was replaced while it was made";
		return SP_E_DENIED;
	}
	if (want->set_ids && fchown(fd, want->uid, want->gid) != 0)
		return err_from_errno(errno);
	if (fchmod(fd, want->mode) != 0)
		return err_from_errno(errno);
	return SP_OK;
}

int
dir_open(const char *path, const struct dir_want *want, int *out,
    const char **why)
{
	char folder[PATH_MAX];
	const char *name;
	struct stat st;
	int parent = -1, fd = -1, rc;
	bool made;

	*why = "";
	rc = dir_split(path, folder, &name);
	if (rc != SP_OK)
		return rc;
	if (want->parents != 0) {
		rc = dir_make_parents(folder, want->parents);
		if (rc != SP_OK)
			return rc;
	}
	parent =
	    open(folder[0] ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		goto fail;
	made = mkdirat(parent, name, 0700) == 0;
	if (!made && errno != EEXIST)
		goto fail;
	fd = openat(parent, name,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | (made ? O_NOFOLLOW : 0));
	if (fd < 0 || fstat(fd, &st) != 0)
		goto fail;
	rc = made ? dir_give(fd, want, why) : dir_check(&st, want, why);
	fd_close(&parent);
	if (rc != SP_OK)
		fd_close(&fd);
	else
		*out = fd;
	return rc;
fail:
	rc = err_from_errno(errno);
	if (errno == ENOTDIR)
		*why = "is not a directory";
	fd_close(&parent);
	fd_close(&fd);
	return rc;
}

/* The folder of a file that is about to be opened with privilege. */
static int
dir_check_folder(int folder, const char **why)
{
	struct stat st;

	if (fstat(folder, &st) != 0)
		return err_from_errno(errno);
	if (st.st_uid != 0 && st.st_uid != geteuid()) {
		*why = "its folder belongs to another user";
		return SP_E_DENIED;
	}
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX)) {
		*why = "its folder can be written by others";
		return SP_E_DENIED;
	}
	return SP_OK;
}

static int
dir_check_file(int fd, const char **why)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return err_from_errno(errno);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 ||
	    (st.st_uid != 0 && st.st_uid != geteuid())) {
		*why = "is not a file of root or of this user";
		return SP_E_DENIED;
	}
	return SP_OK;
}

/*
 * Opens for writing, made when missing.  Safe against whoever can write near
 * it: the folder is root's or ours, so no one else can put a link there (in a
 * sticky one they can, hence O_NOFOLLOW and the checks of owner, type and link
 * count before a byte is written or cut), and O_NONBLOCK never waits for a
 * fifo's reader.
 */
static int
dir_open_file(const char *path, int flags, mode_t mode, int *out,
    const char **why)
{
	char folder[PATH_MAX];
	const char *name;
	int parent, fd = -1, rc;

	*why = "";
	rc = dir_split(path, folder, &name);
	if (rc != SP_OK)
		return rc;
	parent =
	    open(folder[0] ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return err_from_errno(errno);
	rc = dir_check_folder(parent, why);
	if (rc == SP_OK) {
		fd = openat(parent, name,
		    flags | O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW |
			O_NOCTTY | O_NONBLOCK,
		    mode);
		if (fd < 0) {
			rc = err_from_errno(errno);
			if (errno == ELOOP)
				*why = "is a symbolic link";
		}
	}
	if (rc == SP_OK)
		rc = dir_check_file(fd, why);
	fd_close(&parent);
	if (rc != SP_OK)
		fd_close(&fd);
	else
		*out = fd;
	return rc;
}

int
dir_open_log(const char *path, int *out, const char **why)
{
	return dir_open_file(path, O_APPEND, 0640, out, why);
}

int
dir_write_file(const char *path, const void *p, size_t n, const char **why)
{
	int fd = -1, rc;

	rc = dir_open_file(path, 0, 0644, &fd, why);
	if (rc != SP_OK)
		return rc;
	if (ftruncate(fd, 0) != 0)
		rc = err_from_errno(errno);
	else
		rc = fd_write_all(fd, p, n);
	fd_close(&fd);
	return rc;
}

/* The decimal number in a lock file; 0 when there is none. */
static pid_t
dir_lock_pid(int fd)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text), 0);
	uint64_t pid;

	if (n > 0 && text[n - 1] == '\n')
		n--;
	if (n <= 0 ||
	    num_u64(view_of(text, (size_t)n), 1, INT_MAX, &pid) != SP_OK)
		return 0;
	return (pid_t)pid;
}

int
dir_lock(int dir, const char *name, int *out, pid_t *holder)
{
	char text[32];
	size_t n;
	int fd, rc;

	*holder = 0;
	fd = openat(dir, name,
	    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return err_from_errno(errno);
	rc = SP_OK;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		rc = errno == EWOULDBLOCK ? SP_E_EXISTS : SP_E_SYS;
		*holder = dir_lock_pid(fd);
	} else {
		n = num_format_u64((uint64_t)getpid(), text);
		text[n++] = '\n';
		if (ftruncate(fd, 0) != 0 ||
		    pwrite(fd, text, n, 0) != (ssize_t)n)
			rc = err_from_errno(errno);
	}
	if (rc != SP_OK)
		fd_close(&fd);
	else
		*out = fd;
	return rc;
}

int
dir_lock_holder(int dir, const char *name, pid_t *holder)
{
	int fd, rc = SP_E_NOTFOUND;

	*holder = 0;
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return err_from_errno(errno);
	/* a number alone may be of a process that died long ago */
	if (flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
		*holder = dir_lock_pid(fd);
		if (*holder > 0)
			rc = SP_OK;
	}
	fd_close(&fd);
	return rc;
}

bool
dir_is_overlay(int fd)
{
	struct statfs sf;

	return fstatfs(fd, &sf) == 0 && sf.f_type == DIR_OVERLAY_MAGIC;
}
