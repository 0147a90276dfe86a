/* Descriptors: the calls that need care with EINTR, short counts, flags. */
#ifndef SP_OS_FD_H
#define SP_OS_FD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Context: any role.  All retry EINTR.  All make close-on-exec descriptors.
 * Returns: 0 or an SP_E_* of the cause (SP_E_AGAIN on a non-blocking
 *          descriptor, SP_E_NOSPC, SP_E_GONE for EPIPE and ECONNRESET, ...).
 */
/* Closes *fd once and sets it to -1; -1 is allowed. */
void fd_close(int *fd);
int fd_nonblock(int fd) must_check;
/*
 * Another descriptor to write (at the end) to what fd is open on: with
 * O_NONBLOCK where it can be had without changing what others share, see
 * log_put() for the rest.
 */
int fd_own_writer(int fd, int *out) must_check;
/* One read or writev; *done is what was moved.  Read at the end: SP_E_EOF. */
int fd_read(int fd, void *p, size_t n, size_t *done) must_check;
int fd_writev(int fd, const struct iovec *v, int n, size_t *done) must_check;
/* Writes it all, on a blocking descriptor or a file. */
int fd_write_all(int fd, const void *p, size_t n) must_check;
/* Appends a whole file to out (whose max bounds it). */
int fd_read_all(int fd, struct buf *out) must_check;
int fd_read_file(const char *path, struct buf *out) must_check;
/* openat2 with RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS. */
int fd_open_beneath(int dir, const char *path, int flags, mode_t mode,
    int *out) must_check;
/* A sealed memfd (no write, grow, shrink, seal) with that content. */
int fd_sealed(const char *name, const void *p, size_t n, int *out) must_check;
/* Reads a sealed memfd into out; SP_E_DENIED when it is not sealed. */
int fd_read_sealed(int fd, struct buf *out) must_check;
/* A connected pair of SOCK_SEQPACKET, both non-blocking, with big buffers. */
int fd_seqpacket_pair(int out[2]) must_check;
/* Closes every descriptor from lowest up. */
int fd_close_from(int lowest) must_check;

#endif
