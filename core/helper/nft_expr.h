/* What rules are made of; each adds to the rule that b is writing. */
#ifndef SP_HELPER_NFT_EXPR_H
#define SP_HELPER_NFT_EXPR_H

#include <stdbool.h>
#include <stdint.h>

#include "helper/nft_batch.h"

/*
 * Source:  linux/netfilter/nf_tables.h, nft(8).
 * Context: any; what fails is kept in b->rc.
 * Parameters: addresses in host byte order; equal, or else unequal; names
 *          are borrowed until nft_batch_end().
 */
/* Packets that come in, go out by a link of that name. */
void nft_expr_iif(struct nft_batch *b, const char *name, bool equal);
void nft_expr_oif(struct nft_batch *b, const char *name, bool equal);
/* NFPROTO_IPV4; ETH_P_*; IPPROTO_*. */
void nft_expr_family(struct nft_batch *b, uint8_t family, bool equal);
void nft_expr_ethertype(struct nft_batch *b, uint16_t type);
void nft_expr_protocol(struct nft_batch *b, uint8_t protocol);
void nft_expr_source(struct nft_batch *b, uint32_t addr, bool equal);
void nft_expr_loopback(struct nft_batch *b); /* to 127.0.0.0/8 */
/* Whether the destination is an address that some host has: RTN_UNICAST. */
void nft_expr_unicast(struct nft_batch *b, bool equal);
/* Destination in a set of addresses; with protocol and port, in another. */
void nft_expr_to_set(struct nft_batch *b, const char *set, uint32_t id);
void nft_expr_service_set(struct nft_batch *b, const char *set, uint32_t id);
/* Any of these states of connection: NF_CT_STATE_BIT(). */
void nft_expr_state(struct nft_batch *b, uint32_t bits);
void nft_expr_ct_mark(struct nft_batch *b, uint32_t mark, bool equal);
void nft_expr_set_ct_mark(struct nft_batch *b, uint32_t mark);
/* More connections than n have matched so far and live. */
void nft_expr_count_over(struct nft_batch *b, uint32_t n);
/* Within (or over) n packets a second, after a burst. */
void nft_expr_rate(struct nft_batch *b, uint32_t n, uint32_t burst, bool over);
void nft_expr_counter(struct nft_batch *b, const char *name);
void nft_expr_log(struct nft_batch *b, const char *prefix, uint16_t group);
/* Writes the source address, and mends checksums. */
void nft_expr_set_source(struct nft_batch *b, uint32_t addr);
void nft_expr_redirect(struct nft_batch *b, uint16_t port);
void nft_expr_masquerade(struct nft_batch *b);
/* TCP: a reset. */
void nft_expr_reset(struct nft_batch *b);
/* ICMP: port unreachable, which a UDP socket reads as "refused". */
void nft_expr_unreachable(struct nft_batch *b);
/* NF_ACCEPT, NF_DROP; NFT_GOTO, NFT_JUMP with a chain. */
void nft_expr_verdict(struct nft_batch *b, int verdict, const char *chain);

#endif
