/* The tables of an episode: one on the host, one in its namespace. */
#ifndef SP_HELPER_NFT_TABLE_H
#define SP_HELPER_NFT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "helper/netns.h"
#include "helper/nft_allow.h"
#include "helper/nft_batch.h"

/* Named counters of every table. */
#define NFT_TABLE_ALLOWED "allowed"
#define NFT_TABLE_DENIED "denied"

enum {
	/* where what is denied inside goes: nobody there may listen on it */
	NFT_TABLE_CLOSED_PORT = 1,
	NFT_TABLE_DENY_RATE = 50, /* messages a second */
	NFT_TABLE_DENY_BURST = 200,
	NFT_TABLE_NEW_RATE = 500, /* new flows a second; more wait */
	NFT_TABLE_NEW_BURST = 1000,
};
/*
 * The source that packets get which the inner table of `via veth` would not
 * let out.  The host's table gives them their own back, denies, and tells;
 * without that table every IP stack drops them (RFC 1122 s3.2.1.3: never a
 * source), so a host table that is gone opens nothing.
 */
#define NFT_TABLE_VOID_SOURCE 0xffffffffU

struct nft_table {
	const struct netns_plan *plan; /* borrowed */
	const struct nft_allow *allow;
	uint16_t group; /* of NFLOG */
	uint32_t flags; /* NFT_TABLE_F_* */
};

/*
 * Each writes a whole table.  Prefixes of NFLOG are "allow" and "deny"; the
 * second's rate is bounded, the counters' is not.
 * Context: any.
 */
/* On the host: what the link may send and be sent. */
void nft_table_host(struct nft_batch *b, const struct nft_table *t);
/* In a namespace with a link: the same again, out of everybody's reach. */
void nft_table_inside(struct nft_batch *b, const struct nft_table *t);
/*
 * In a namespace without one: everything is refused; with relay what is
 * allowed goes to the listener of that door.
 */
void nft_table_alone(struct nft_batch *b, const struct nft_table *t,
    bool relay);

#endif
