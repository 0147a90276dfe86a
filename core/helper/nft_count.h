/* Reading what a table has counted. */
#ifndef SP_HELPER_NFT_COUNT_H
#define SP_HELPER_NFT_COUNT_H

#include <stdint.h>

#include "base/err.h"
#include "helper/nl_sock.h"

/*
 * Packets of a named counter.
 * Source:  linux/netfilter/nf_tables.h.
 * Context: see nl_sock_open(); short.
 * Parameters: n, of NETLINK_NETFILTER in the table's namespace.
 * Returns: 0; SP_E_NOTFOUND no such table or counter; SP_E_*.
 */
int nft_count_read(struct nl_sock *n, const char *table, const char *name,
    uint64_t *packets) must_check;

#endif
