/* The socket on which the kernel tells of packets: NFLOG. */
#ifndef SP_HELPER_NL_LOG_H
#define SP_HELPER_NL_LOG_H

#include <stdint.h>

#include "base/err.h"
#include "helper/nl_sock.h"

enum {
	NL_LOG_COPY_BYTES = 96, /* of each packet: its headers */
	NL_LOG_BUFFER_BYTES = 1024 * 1024, /* about 2,500 messages */
};

/*
 * Opens a socket in the process's network namespace and binds it to a group:
 * packets without delay, their first NL_LOG_COPY_BYTES, numbered.
 * Source:  libnetfilter_log, linux/netfilter/nfnetlink_log.h.
 * Context: see nl_sock_open().
 * Parameters: error, errno for messages.
 * Owner:   *fd is the caller's: non-blocking, close-on-exec; it keeps
 *          delivering to whoever holds it.
 * Returns: 0; SP_E_EXISTS somebody else has that group; SP_E_UNSUPPORTED no
 *          NFLOG in this kernel; SP_E_*.
 */
int nl_log_open(uint16_t group, int *fd, int *error) must_check;

#endif
