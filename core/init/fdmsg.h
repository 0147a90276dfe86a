/* One fixed-size message, with a descriptor or not, between own processes. */
#ifndef SP_INIT_FDMSG_H
#define SP_INIT_FDMSG_H

#include <stddef.h>

#include "base/err.h"

/*
 * Source:  unix(7), SCM_RIGHTS over SOCK_SEQPACKET.
 * Context: any; sending to an end whose other is closed raises no signal.
 * Parameters: fd, borrowed, or -1.
 * Returns: 0; SP_E_GONE the other end is closed; SP_E_*.
 */
int fdmsg_send(int sock, const void *p, size_t n, int fd) must_check;
/*
 * Context: does not block: waiting is the caller's.
 * Owner:   *fd (-1: none came) is the caller's.
 * Returns: 0; SP_E_AGAIN; SP_E_EOF closed; SP_E_PROTO another size.
 */
int fdmsg_recv(int sock, void *p, size_t n, int *fd) must_check;

#endif
