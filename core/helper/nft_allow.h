/* The sets of a table: what is allowed, and what nothing opens. */
#ifndef SP_HELPER_NFT_ALLOW_H
#define SP_HELPER_NFT_ALLOW_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conf/conf_env.h"
#include "helper/nft_batch.h"

#define NFT_ALLOW_SET "allow"
#define NFT_ALLOW_PROTECTED "protected"
enum {
	NFT_ALLOW_SET_ID = 1,
	NFT_ALLOW_PROTECTED_ID,
	NFT_ALLOW_MAX = 16384, /* boxes that rules may come to */
};

/* Addresses and ports, host byte order, ends included. */
struct nft_allow_box {
	uint32_t low, high;
	uint16_t port_low, port_high;
	uint8_t proto, prefix;
};
struct nft_allow {
	struct nft_allow_box *box;
	size_t n, room;
};

/*
 * What the rules allow as boxes of which no two have a packet in common, as
 * the kernel wants them.
 * Context: any; does not block.
 * Parameters: hosts, rules with names count as their ports of any address.
 * Owner:   nft_allow_clear(), also after a failure.
 * Returns: 0; SP_E_LIMIT more than NFT_ALLOW_MAX boxes; SP_E_NOMEM.
 */
int nft_allow_make(struct nft_allow *a, const struct conf_environment *env,
    bool hosts) must_check;
void nft_allow_clear(struct nft_allow *a);
/* Both sets into a transaction; `allow` only when it has boxes. */
void nft_allow_put(const struct nft_allow *a, struct nft_batch *b);

#endif
