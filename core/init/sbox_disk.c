#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "init/disk_image.h"
#include "init/sbox_disk.h"
#include "init/sbox_mount.h"
#include "os/fd.h"

/* Of the kernel's fs/ext4/ext4.h, which no header of user space has. */
#define DISK_IOC_SHUTDOWN _IOR('X', 125, uint32_t)

enum {
	DISK_LOOP_TRIES = 64, /* somebody else may take the one that was free */
	DISK_LOOP_PAUSE_US = 2000,
	DISK_SHUTDOWN_NOW = 2, /* EXT4_GOING_FLAGS_NOLOGFLUSH */
};

static int
make_file(const struct sbox *b, struct sbox_why *w, int *out)
{
	int fd, rc;

	fd = openat(b->give[SANDBOX_FD_DISK], ".",
	    O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return sbox_why_errno(w, errno,
		    "storage disk: a file in state_dir");
	rc = disk_image_format(fd, b->spec->workspace_bytes,
	    b->spec->workspace_inodes);
	if (rc == SP_OK) {
		*out = fd;
		return SP_OK;
	}
	fd_close(&fd);
	return sbox_why_rc(w, rc,
	    "storage disk: reserving workspace_size in state_dir");
}

/* One try: EBUSY when it went to somebody else. */
static int
configure(int ctl, int file, char path[32], int *out)
{
	struct loop_config c;
	int n, fd, en;

	n = ioctl(ctl, LOOP_CTL_GET_FREE);
	if (n < 0)
		return errno;
	(void)snprintf(path, 32, "/dev/loop%d", n);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	memset(&c, 0, sizeof(c));
	c.fd = (uint32_t)file;
	c.info.lo_flags = LO_FLAGS_AUTOCLEAR;
	if (ioctl(fd, LOOP_CONFIGURE, &c) == 0) {
		*out = fd;
		return 0;
	}
	en = errno;
	fd_close(&fd);
	return en;
}

static int
make_loop(struct sbox_why *w, int file, char path[32], int *out)
{
	int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int i, en = EBUSY;

	if (ctl < 0)
		return sbox_why_errno(w, errno,
		    "storage disk: /dev/loop-control");
	for (i = 0; i < DISK_LOOP_TRIES && en != 0; i++) {
		if (i > 0)
			(void)usleep(DISK_LOOP_PAUSE_US);
		en = configure(ctl, file, path, out);
		/* ENOENT: its node comes in a moment */
		if (en != 0 && en != EBUSY && en != ENOENT)
			break;
	}
	fd_close(&ctl);
	if (en != 0)
		return sbox_why_errno(w, en, "storage disk: a loop device");
	return SP_OK;
}

int
sbox_disk_make(const struct sbox *b, struct sbox_why *w, int *mnt)
{
	char path[32] = "";
	/* nothing of it is read after a crash: no order of writes matters */
	const char *const options[] = { "source", path, "nobarrier", NULL,
		NULL };
	const struct sbox_mount_fs fs = { "ext4", options,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	int file = -1, loop = -1, rc;

	rc = make_file(b, w, &file);
	if (rc == SP_OK)
		rc = make_loop(w, file, path, &loop);
	if (rc == SP_OK)
		rc = sbox_mount_new(w, &fs, mnt);
	/* the device has the file, the mount the device */
	fd_close(&loop);
	fd_close(&file);
	return rc;
}

void
sbox_disk_drop(const struct sbox *b)
{
	uint32_t how = DISK_SHUTDOWN_NOW;

	if (b->give[SANDBOX_FD_DISK] >= 0 && b->upper >= 0)
		(void)ioctl(b->upper, DISK_IOC_SHUTDOWN, &how);
}
