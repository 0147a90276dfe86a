#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/sbox_mount.h"
#include "os/fd.h"

enum {
	MOUNT_DEPTH_MAX = 64, /* components of a path */
	MOUNT_LINKS_MAX = 8,
	MOUNT_OPEN_TRIES = 100,
};

int
sbox_mount_new(struct sbox_why *w, const struct sbox_mount_fs *fs, int *out)
{
	const char *const *o;
	int ctx, rc = SP_OK;

	ctx = fsopen(fs->type, FSOPEN_CLOEXEC);
	if (ctx < 0)
		return sbox_why_errno(w, errno, "%s: fsopen", fs->type);
	for (o = fs->options; o != NULL && o[0] != NULL && rc == SP_OK;
	     o += 2) {
		if (fsconfig(ctx,
			o[1] != NULL ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
			o[0], o[1], 0) != 0)
			rc = sbox_why_errno(w, errno, "%s: %s=%s", fs->type,
			    o[0], o[1] != NULL ? o[1] : "");
	}
	if (rc == SP_OK &&
	    fsconfig(ctx, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		rc = sbox_why_errno(w, errno, "%s: create", fs->type);
	if (rc == SP_OK) {
		*out = fsmount(ctx, FSMOUNT_CLOEXEC, fs->attr);
		if (*out < 0)
			rc = sbox_why_errno(w, errno, "%s: fsmount", fs->type);
	}
	fd_close(&ctx);
	return rc;
}

int
sbox_mount_tmpfs(struct sbox_why *w, const struct sbox_mount_tmpfs *t, int *out)
{
	char size[24], inodes[24], mode[12], uid[12], gid[12];
	const char *const options[] = { "size", size, "nr_inodes", inodes,
		"mode", mode, "uid", uid, "gid", gid, NULL };
	const struct sbox_mount_fs fs = { "tmpfs", options, t->attr };

	/* 0 would mean no bound to tmpfs: the least that it knows instead */
	(void)snprintf(size, sizeof(size), "%llu",
	    (unsigned long long)(t->bytes > 0 ? t->bytes : 4096));
	(void)snprintf(inodes, sizeof(inodes), "%llu",
	    (unsigned long long)(t->inodes > 0 ? t->inodes : 1));
	(void)snprintf(mode, sizeof(mode), "%o", (unsigned)t->mode);
	(void)snprintf(uid, sizeof(uid), "%u", (unsigned)t->uid);
	(void)snprintf(gid, sizeof(gid), "%u", (unsigned)t->gid);
	return sbox_mount_new(w, &fs, out);
}

static int
mount_attr(int mnt, unsigned flags, unsigned attr)
{
	struct mount_attr a;

	memset(&a, 0, sizeof(a));
	a.attr_set = attr;
	return mount_setattr(mnt, "", AT_EMPTY_PATH | flags, &a, sizeof(a));
}

int
sbox_mount_clone(struct sbox_why *w, const struct sbox_mount_from *from,
    int *out)
{
	unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | from->flags;
	int fd;

	if (from->path[0] == '\0')
		flags |= AT_EMPTY_PATH;
	fd = open_tree(from->dir, from->path, flags);
	if (fd < 0)
		return sbox_why_errno(w, errno, "%s: open_tree", from->path);
	if (from->attr != 0 &&
	    mount_attr(fd, from->flags & AT_RECURSIVE, from->attr) != 0) {
		int rc =
		    sbox_why_errno(w, errno, "%s: mount_setattr", from->path);

		fd_close(&fd);
		return rc;
	}
	*out = fd;
	return SP_OK;
}

int
sbox_mount_set(struct sbox_why *w, int mnt, unsigned attr)
{
	if (mount_attr(mnt, 0, attr) != 0)
		return sbox_why_errno(w, errno, "mount_setattr");
	return SP_OK;
}

int
sbox_mount_attach(struct sbox_why *w, int mnt, int dir, const char *path)
{
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH;

	if (path[0] == '\0')
		flags |= MOVE_MOUNT_T_EMPTY_PATH;
	if (move_mount(mnt, "", dir, path, flags) != 0)
		return sbox_why_errno(w, errno, "%s: move_mount", path);
	return SP_OK;
}

int
sbox_mount_open(int root, const char *path, int flags)
{
	struct open_how how;
	int tries = 0, fd;

	memset(&how, 0, sizeof(how));
	how.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC);
	how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
	/* EAGAIN: a ".." while anybody on this host mounted or renamed */
	do
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	while (fd < 0 && errno == EAGAIN && ++tries < MOUNT_OPEN_TRIES);
	return fd;
}

/* The directory is there: makes the last component in it. */
static int
place_one(int parent, const char *name, enum sbox_mount_kind kind)
{
	int fd;

	if (kind == SBOX_MOUNT_DIR)
		return mkdirat(parent, name, 0755);
	fd = openat(parent, name,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	fd_close(&fd);
	return 0;
}

struct place {
	int root;
	enum sbox_mount_kind kind;
	int links; /* that were followed by hand */
};

static int place(struct place *pl, const char *path, int *out);

/*
 * A link to what is not there (an image's /tmp -> /var/tmp): where it leads,
 * seen from the root, is made.
 */
static int
place_link(struct place *pl, int dir, const char *prefix, const char *name)
{
	char target[SANDBOX_MSG_PATH_MAX + 1];
	char path[2 * sizeof(target)];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	int fd = -1;

	if (n < 0 || ++pl->links > MOUNT_LINKS_MAX)
		return -1;
	target[n] = '\0';
	if (target[0] == '/')
		(void)snprintf(path, sizeof(path), "%s", target);
	else
		(void)snprintf(path, sizeof(path), "%.*s%s",
		    (int)(name - prefix), prefix, target);
	return place(pl, path, &fd) == 0 ? fd : -1;
}

/*
 * The next component of the path, from `at` on: opened, or made.  Each prefix
 * is looked up from the root, so that links within it work.
 */
static int
place_next(struct place *pl, const char *path, size_t end, int *dir)
{
	char prefix[SANDBOX_MSG_PATH_MAX + 1];
	const char *name;
	int fd;

	memcpy(prefix, path, end);
	prefix[end] = '\0';
	name = strrchr(prefix, '/');
	name = name != NULL ? name + 1 : prefix;
	fd = sbox_mount_open(pl->root, prefix, O_PATH);
	if (fd < 0 && errno == ENOENT) {
		if (place_one(*dir, name,
			path[end] == '\0' ? pl->kind : SBOX_MOUNT_DIR) == 0)
			fd = sbox_mount_open(pl->root, prefix, O_PATH);
		else if (errno == EEXIST)
			fd = place_link(pl, *dir, prefix, name);
	}
	if (fd < 0)
		return -1;
	if (*dir != pl->root)
		(void)close(*dir);
	*dir = fd;
	return 0;
}

/* As much of it as there is, then the rest. */
static int
place(struct place *pl, const char *given, int *out)
{
	char path[SANDBOX_MSG_PATH_MAX + 1];
	size_t n = strlen(given), end = 0;
	int dir = pl->root, depth, rc = 0;

	while (n > 0 && given[n - 1] == '/')
		n--;
	errno = n == 0 ? EINVAL : ENAMETOOLONG;
	if (n == 0 || n > SANDBOX_MSG_PATH_MAX)
		return -1;
	memcpy(path, given, n);
	path[n] = '\0';
	for (depth = 0; end < n && rc == 0; depth++) {
		end += strspn(path + end, "/");
		end += strcspn(path + end, "/");
		rc = depth == MOUNT_DEPTH_MAX ? -1
					      : place_next(pl, path, end, &dir);
	}
	if (rc != 0 || dir == pl->root) {
		if (dir != pl->root)
			(void)close(dir);
		return -1;
	}
	*out = dir;
	return 0;
}

int
sbox_mount_place(struct sbox_why *w, int root, const char *path,
    enum sbox_mount_kind kind, int *out)
{
	struct place pl = { root, kind, 0 };

	if (place(&pl, path, out) != 0)
		return sbox_why_errno(w, errno, "%s: cannot be made", path);
	return SP_OK;
}
