#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/sbox_mount.h"
#include "init/sbox_space.h"
#include "os/fd.h"

static int
space_write(struct sbox_why *w, const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return sbox_why_errno(w, errno, "%s", path);
	rc = fd_write_all(fd, text, strlen(text));
	if (rc != SP_OK)
		rc = sbox_why_rc(w, rc, "%s", path);
	fd_close(&fd);
	return rc;
}

/* One uid, one gid: all that an ordinary user can have without help. */
static int
space_map(const struct sbox *b, struct sbox_why *w, uid_t uid, gid_t gid)
{
	char uids[40], gids[40];
	int rc;

	(void)snprintf(uids, sizeof(uids), "%u %u 1\n", b->spec->uid,
	    (unsigned)uid);
	(void)snprintf(gids, sizeof(gids), "%u %u 1\n", b->spec->gid,
	    (unsigned)gid);
	rc = space_write(w, "/proc/self/setgroups", "deny");
	if (rc == SP_OK)
		rc = space_write(w, "/proc/self/uid_map", uids);
	if (rc == SP_OK)
		rc = space_write(w, "/proc/self/gid_map", gids);
	return rc;
}

static int
space_new_user(struct sbox *b, struct sbox_why *w)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER) != 0)
		return sbox_why_errno(w, errno,
		    "user namespaces are not allowed here");
	return space_map(b, w, uid, gid);
}

/*
 * The network namespace was made in a user namespace of its own by another
 * child of the same user: only from there may it be joined.  Who made it
 * could not map anything, as a process that nobody may look into: the map is
 * empty until now, and can be written once.
 */
static int
space_join_user(struct sbox *b, struct sbox_why *w, int netns)
{
	int fd = ioctl(netns, NS_GET_USERNS), rc = SP_OK;
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (fd < 0)
		return sbox_why_errno(w, errno, "owner of the network");
	if (setns(fd, CLONE_NEWUSER) != 0)
		rc = sbox_why_errno(w, errno, "joining the network's owner");
	fd_close(&fd);
	return rc == SP_OK ? space_map(b, w, uid, gid) : rc;
}

int
sbox_space_enter(struct sbox *b, struct sbox_why *w)
{
	int netns = b->give[SANDBOX_FD_NETNS], rc = SP_OK;

	b->uid = b->spec->uid;
	b->gid = b->spec->gid;
	b->init_uid = b->spec->init_uid;
	if (b->spec->flags & SANDBOX_USERNS) {
		rc = netns >= 0 ? space_join_user(b, w, netns)
				: space_new_user(b, w);
		b->uid = b->init_uid = geteuid();
		b->gid = getegid();
	}
	if (rc != SP_OK)
		return rc;
	if (unshare(CLONE_NEWNS) != 0)
		return sbox_why_errno(w, errno, "mount namespace");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return sbox_why_errno(w, errno, "making / private");
	return SP_OK;
}

int
sbox_space_adopt(struct sbox_why *w, int given, unsigned attr, int *mnt)
{
	struct sbox_mount_from from = { AT_FDCWD, NULL, AT_RECURSIVE, attr };
	char link[48], path[SANDBOX_MSG_PATH_MAX + 1];
	struct stat was, is;
	ssize_t n;
	int rc;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", given);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0 || n == (ssize_t)sizeof(path) - 1)
		return sbox_why_errno(w, n < 0 ? errno : ENAMETOOLONG, "%s",
		    link);
	path[n] = '\0';
	from.path = path;
	rc = sbox_mount_clone(w, &from, mnt);
	if (rc != SP_OK)
		return rc;
	/* the path is only a hint: the very directory, or none */
	if (fstat(given, &was) != 0 || fstat(*mnt, &is) != 0 ||
	    was.st_dev != is.st_dev || was.st_ino != is.st_ino) {
		fd_close(mnt);
		return sbox_why_errno(w, ENOENT,
		    "%s is not the directory that was given", path);
	}
	return SP_OK;
}
