/* Listening sockets and their addresses. */
#ifndef SP_OS_SOCK_H
#define SP_OS_SOCK_H

#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/*
 * Binds and listens; the descriptor is non-blocking and close-on-exec.
 * Source:  ip(7), ipv6(7), unix(7).
 * Context: helper, at start; does not block.
 * Parameters: address, IPv4 or IPv6 literal, "*" for every IPv4 one, "[::]"
 *          or "::" for every IPv6 one (and only those: IPV6_V6ONLY); port 0
 *          lets the kernel choose.
 * Owner:   *out is the caller's.
 * Returns: 0; SP_E_ARG no such address syntax; SP_E_EXISTS in use;
 *          SP_E_DENIED; SP_E_SYS.  step names the call that failed.
 */
int sock_listen_tcp(struct view address, uint16_t port, int backlog, int *out,
    const char **step) must_check;
/*
 * The same for a path.  What is there already is removed only if it is a
 * socket of ours on which nobody listens.  Everyone may connect who can reach
 * the directory.
 * Returns: also SP_E_EXISTS when something else stands there.
 */
int sock_listen_unix(struct view path, int backlog, int *out,
    const char **step) must_check;
#define SOCK_NO_GROUP ((gid_t)-1)
/*
 * The same, but only this user (mode 0600), or with a group also that one
 * (0660), may connect.
 * Returns: also SP_E_DENIED when the socket cannot be given to the group.
 */
int sock_listen_private(struct view path, gid_t group, int backlog, int *out,
    const char **step) must_check;
/* Removes the path of a listening unix socket if it is still that socket. */
void sock_unlink(int fd);
/* Appends "127.0.0.1:80", "[::1]:80" or "unix:/path". */
int sock_name(int fd, struct buf *out) must_check;

/*
 * The address of the other end: 4 bytes, or 16, in network order.
 * Returns: 0; SP_E_UNSUPPORTED it has none (a unix socket); SP_E_SYS.
 */
int sock_peer_ip(int fd, uint8_t out[16], size_t *n) must_check;

#endif
