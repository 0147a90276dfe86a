#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "init/sbox_dev.h"
#include "init/sbox_mount.h"
#include "os/fd.h"

#define DEV_PTYS "64"

enum { DEV_BYTES = 64 * 1024, DEV_INODES = 64, SHM_INODES = 65536 };

static const struct {
	const char *name;
	unsigned major, minor;
} devices[] = {
	{ "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 },
	{ "random", 1, 8 }, { "urandom", 1, 9 },
	{ "tty", 5, 0 }, /* the process's own terminal: none, or a pty */
};

static const struct {
	const char *name, *target;
} links[] = {
	{ "fd", "/proc/self/fd" },
	{ "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" },
	{ "ptmx", "pts/ptmx" },
};

static int
device_make(struct sbox_why *w, int dev, size_t i)
{
	dev_t rdev = makedev(devices[i].major, devices[i].minor);

	if (mknodat(dev, devices[i].name, S_IFCHR | 0666, rdev) != 0 ||
	    fchmodat(dev, devices[i].name, 0666, 0) != 0)
		return sbox_why_errno(w, errno, "/dev/%s", devices[i].name);
	return SP_OK;
}

/* Without privilege there is no mknod: the host's own, looked at first. */
static int
device_bind(struct sbox_why *w, int dev, size_t i)
{
	char path[40];
	const struct sbox_mount_from from = { AT_FDCWD, path, 0,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
	int mnt = -1, at = -1, rc;
	struct stat st;

	(void)snprintf(path, sizeof(path), "/dev/%s", devices[i].name);
	rc = sbox_mount_clone(w, &from, &mnt);
	if (rc == SP_OK &&
	    (fstat(mnt, &st) != 0 || !S_ISCHR(st.st_mode) ||
		st.st_rdev != makedev(devices[i].major, devices[i].minor)))
		rc = sbox_why_errno(w, ENODEV, "%s is not that device", path);
	if (rc == SP_OK)
		rc = sbox_mount_place(w, dev, devices[i].name, SBOX_MOUNT_FILE,
		    &at);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, at, "");
	fd_close(&at);
	fd_close(&mnt);
	return rc;
}

static int
mount_beneath(struct sbox_why *w, int dev, const char *name, int mnt)
{
	if (mkdirat(dev, name, 0755) != 0)
		return sbox_why_errno(w, errno, "/dev/%s", name);
	return sbox_mount_attach(w, mnt, dev, name);
}

static int
make_pts(struct sbox_why *w, int dev)
{
	/* a bound of its own: the host's is shared with everybody else's */
	static const char *const options[] = { "newinstance", NULL, "ptmxmode",
		"0666", "mode", "0620", "max", DEV_PTYS, NULL };
	static const struct sbox_mount_fs fs = { "devpts", options,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
	int mnt = -1, rc = sbox_mount_new(w, &fs, &mnt);

	if (rc == SP_OK)
		rc = mount_beneath(w, dev, "pts", mnt);
	fd_close(&mnt);
	return rc;
}

static int
make_shm(const struct sbox *b, struct sbox_why *w, int dev)
{
	const struct sbox_mount_tmpfs t = { b->spec->shm_bytes, SHM_INODES,
		01777, b->uid, b->gid,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };
	int mnt = -1, rc = sbox_mount_tmpfs(w, &t, &mnt);

	if (rc == SP_OK)
		rc = mount_beneath(w, dev, "shm", mnt);
	fd_close(&mnt);
	return rc;
}

static int
fill(const struct sbox *b, struct sbox_why *w, int dev)
{
	int rc = SP_OK;
	size_t i;

	for (i = 0; i < sizeof(devices) / sizeof(devices[0]) && rc == SP_OK;
	     i++)
		rc = b->spec->flags & SANDBOX_USERNS ? device_bind(w, dev, i)
						     : device_make(w, dev, i);
	for (i = 0; i < sizeof(links) / sizeof(links[0]) && rc == SP_OK; i++)
		if (symlinkat(links[i].target, dev, links[i].name) != 0)
			rc = sbox_why_errno(w, errno, "/dev/%s", links[i].name);
	if (rc == SP_OK)
		rc = make_pts(w, dev);
	if (rc == SP_OK)
		rc = make_shm(b, w, dev);
	return rc;
}

int
sbox_dev_make(const struct sbox *b, struct sbox_why *w, int root)
{
	const struct sbox_mount_tmpfs t = { DEV_BYTES, DEV_INODES, 0755,
		b->spec->flags & SANDBOX_USERNS ? b->uid : 0,
		b->spec->flags & SANDBOX_USERNS ? b->gid : 0,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
	int dev = -1, at = -1, rc;

	rc = sbox_mount_tmpfs(w, &t, &dev);
	if (rc == SP_OK)
		rc = sbox_mount_place(w, root, "/dev", SBOX_MOUNT_DIR, &at);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, dev, at, "");
	if (rc == SP_OK)
		rc = fill(b, w, dev);
	if (rc == SP_OK)
		rc = sbox_mount_set(w, dev, MOUNT_ATTR_RDONLY);
	fd_close(&at);
	fd_close(&dev);
	return rc;
}
