/* Which tables of others stand in the way of forwarding. */
#ifndef SP_HELPER_NFT_HOOKS_H
#define SP_HELPER_NFT_HOOKS_H

#include "base/buf.h"
#include "base/err.h"
#include "helper/nl_sock.h"

/*
 * Appends "ip filter FORWARD, ..." for each chain at the forward hook whose
 * policy is to drop.
 * Source:  linux/netfilter/nf_tables.h.
 * Context: see nl_sock_open().
 * Parameters: n, of NETLINK_NETFILTER.
 * Returns: 0, also when there are none; SP_E_*.
 */
int nft_hooks_forward(struct nl_sock *n, struct buf *out) must_check;

#endif
