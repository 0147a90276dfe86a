/* Forgetting connections. */
#ifndef SP_HELPER_NL_CONNTRACK_H
#define SP_HELPER_NL_CONNTRACK_H

#include <stdint.h>

#include "base/err.h"
#include "helper/nl_sock.h"

/*
 * Deletes all conntrack entries with that mark: an established flow would
 * outlive its rules, and an address its episode.
 * Source:  linux/netfilter/nfnetlink_conntrack.h.
 * Context: see nl_sock_open().
 * Parameters: n, of NETLINK_NETFILTER; mark, not 0.
 * Returns: 0, also when there are none; SP_E_*.
 */
int nl_conntrack_flush(struct nl_sock *n, uint32_t mark) must_check;

#endif
