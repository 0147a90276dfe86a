/* A file for events that can be full, short, or broken. */
#ifndef SP_T_UNIT_FEED_DISK_H
#define SP_T_UNIT_FEED_DISK_H

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gate/feed.h"

static struct {
	off_t room; /* what grows beyond it is refused; 0: all goes */
	size_t most; /* bytes at once; 0: all */
	int write_errno, read_errno;
	unsigned interrupts;
	unsigned writes, reads;
} disk;

static inline ssize_t
disk_write(int fd, const void *p, size_t n, off_t at)
{
	disk.writes++;
	if (disk.interrupts > 0) {
		disk.interrupts--;
		errno = EINTR;
		return -1;
	}
	if (disk.write_errno != 0) {
		errno = disk.write_errno;
		return -1;
	}
	if (disk.room > 0 && at >= disk.room) {
		errno = ENOSPC;
		return -1;
	}
	if (disk.room > 0 && at + (off_t)n > disk.room)
		n = (size_t)(disk.room - at);
	if (disk.most > 0 && n > disk.most)
		n = disk.most;
	return pwrite(fd, p, n, at);
}

static inline ssize_t
disk_read(int fd, void *p, size_t n, off_t at)
{
	disk.reads++;
	if (disk.read_errno != 0) {
		errno = disk.read_errno;
		return -1;
	}
	if (disk.most > 0 && n > disk.most)
		n = disk.most;
	return pread(fd, p, n, at);
}

static const struct feed_log_io disk_io = { .pwrite = disk_write,
	.pread = disk_read };

static inline int
file_new(void)
{
	int fd = memfd_create("spill", MFD_CLOEXEC);

	if (fd < 0)
		abort();
	return fd;
}

#endif
