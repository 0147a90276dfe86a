#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fd.h"

/* Newer than the oldest C library that is supported. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum {
	FD_CHUNK_BYTES = 16 * 1024,
	FD_SOCKET_BYTES = 4 * 1024 * 1024, /* unsent on a channel */
	FD_SEALS = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL,
};

void
fd_close(int *fd)
{
	if (*fd >= 0)
		/* Linux frees the number also on EINTR: never again */
		(void)close(*fd);
	*fd = -1;
}

int
fd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return err_from_errno(errno);
	return SP_OK;
}

int
fd_own_writer(int fd, int *out)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	do
		*out = open(path,
		    O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	while (*out < 0 && errno == EINTR);
	/* a socket, or one that another user has opened for us */
	if (*out < 0)
		*out = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *out < 0 ? err_from_errno(errno) : SP_OK;
}

int
fd_read(int fd, void *p, size_t n, size_t *done)
{
	ssize_t got;

	*done = 0;
	if (n > SSIZE_MAX)
		n = SSIZE_MAX;
	do
		got = read(fd, p, n);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_from_errno(errno);
	if (got == 0 && n > 0)
		return SP_E_EOF;
	*done = (size_t)got;
	return SP_OK;
}

int
fd_writev(int fd, const struct iovec *v, int n, size_t *done)
{
	ssize_t put;

	*done = 0;
	do
		put = writev(fd, v, n);
	while (put < 0 && errno == EINTR);
	if (put < 0)
		return err_from_errno(errno);
	*done = (size_t)put;
	return SP_OK;
}

int
fd_write_all(int fd, const void *p, size_t n)
{
	const char *at = p;
	ssize_t put;

	while (n > 0) {
		put = write(fd, at, n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return err_from_errno(errno);
		/* a file that takes nothing and says no reason is full */
		if (put == 0)
			return SP_E_NOSPC;
		at += put;
		n -= (size_t)put;
	}
	return SP_OK;
}

/* A chunk into out; the stack copy is cleared, as it may be a key. */
static int
fd_read_chunk(int fd, off_t at, struct buf *out)
{
	char chunk[FD_CHUNK_BYTES];
	ssize_t got;
	int rc;

	do
		got = at < 0 ? read(fd, chunk, sizeof(chunk))
			     : pread(fd, chunk, sizeof(chunk), at);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_from_errno(errno);
	if (got == 0)
		return SP_E_EOF;
	rc = buf_add(out, chunk, (size_t)got);
	mem_zero(chunk, (size_t)got);
	return rc;
}

int
fd_read_all(int fd, struct buf *out)
{
	int rc;

	/* bounded: out's maximum ends it */
	do
		rc = fd_read_chunk(fd, -1, out);
	while (rc == SP_OK);
	return rc == SP_E_EOF ? SP_OK : rc;
}

int
fd_read_file(const char *path, struct buf *out)
{
	int fd, rc;

	do
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return err_from_errno(errno);
	rc = fd_read_all(fd, out);
	fd_close(&fd);
	return rc;
}

int
fd_open_beneath(int dir, const char *path, int flags, mode_t mode, int *out)
{
	struct open_how how;
	long fd;

	memset(&how, 0, sizeof(how));
	how.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC);
	/* openat2(2): O_PATH goes with little else */
	if ((flags & O_PATH) == 0)
		how.flags |= O_NOCTTY;
	/* openat2(2): a mode without O_CREAT or O_TMPFILE is EINVAL */
	if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE)
		how.mode = mode;
	how.resolve =
	    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
	do
		fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
	while (fd < 0 && errno == EINTR);
	if (fd < 0) {
		if (errno == ELOOP || errno == EXDEV)
			return SP_E_DENIED;
		return err_from_errno(errno);
	}
	*out = (int)fd;
	return SP_OK;
}

int
fd_sealed(const char *name, const void *p, size_t n, int *out)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd, rc;

	fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create(name, flags);
	if (fd < 0)
		return err_from_errno(errno);
	rc = fd_write_all(fd, p, n);
	if (rc == SP_OK && fcntl(fd, F_ADD_SEALS, FD_SEALS) != 0)
		rc = err_from_errno(errno);
	if (rc != SP_OK) {
		fd_close(&fd);
		return rc;
	}
	*out = fd;
	return SP_OK;
}

int
fd_read_sealed(int fd, struct buf *out)
{
	off_t at = 0;
	size_t before;
	int rc, seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & FD_SEALS) != FD_SEALS)
		return SP_E_DENIED;
	/* by position: whoever else holds it shares the file's offset */
	do {
		before = buf_len(out);
		rc = fd_read_chunk(fd, at, out);
		at += (off_t)(buf_len(out) - before);
	} while (rc == SP_OK);
	return rc == SP_E_EOF ? SP_OK : rc;
}

int
fd_seqpacket_pair(int out[2])
{
	int pair[2], i, n = FD_SOCKET_BYTES;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		0, pair) != 0)
		return err_from_errno(errno);
	for (i = 0; i < 2; i++) {
		/*
		 * Past net.core.wmem_max with privilege; else as far as that
		 * goes.  A smaller buffer costs more turns of the loop only.
		 */
		if (setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &n,
			sizeof(n)) != 0)
			(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &n,
			    sizeof(n));
	}
	out[0] = pair[0];
	out[1] = pair[1];
	return SP_OK;
}

int
fd_close_from(int lowest)
{
	struct rlimit rl;
	int fd;

	if (lowest < 0)
		return SP_E_ARG;
	if (syscall(SYS_close_range, (unsigned)lowest, ~0U, 0U) == 0)
		return SP_OK;
	if (errno != ENOSYS && errno != EPERM)
		return err_from_errno(errno);
	/* a sandboxed kernel interface without it: one by one */
	if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
		return err_from_errno(errno);
	if (rl.rlim_cur > 1024UL * 1024)
		rl.rlim_cur = 1024UL * 1024;
	for (fd = lowest; fd < (int)rl.rlim_cur; fd++)
		(void)close(fd);
	return SP_OK;
}
