#include "config.h"

#include <arpa/inet.h>
/* before those of the kernel, which then leave out what it has */
#include <netinet/in.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <libnftnl/expr.h>
#include <libnftnl/rule.h>

#include "helper/nl_log.h"
#include "helper/nft_expr.h"

enum {
	NFT_EXPR_SOURCE = 12, /* RFC 791 s3.1: offsets in the header */
	NFT_EXPR_CHECKSUM = 10,
	NFT_EXPR_DESTINATION = 16,
	NFT_EXPR_TO_PORT = 2, /* of TCP and UDP */
};

/* The expression is the rule's as soon as it is there. */
static struct nftnl_expr *
nft_expr_add(struct nft_batch *b, const char *name)
{
	struct nftnl_expr *e;

	if (b->rc != SP_OK || b->rule == NULL)
		return NULL;
	e = nftnl_expr_alloc(name);
	if (e == NULL)
		b->rc = SP_E_NOMEM;
	else
		nftnl_rule_add_expr(b->rule, e);
	return e;
}

static void
nft_expr_data(struct nft_batch *b, struct nftnl_expr *e, uint16_t what,
    const void *p, uint32_t n)
{
	if (nftnl_expr_set(e, what, p, n) < 0)
		b->rc = SP_E_NOMEM;
}

static void
nft_expr_meta(struct nft_batch *b, uint32_t key, uint32_t reg)
{
	struct nftnl_expr *e = nft_expr_add(b, "meta");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, key);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_DREG, reg);
}

static void
nft_expr_cmp(struct nft_batch *b, bool equal, const void *p, uint32_t n)
{
	struct nftnl_expr *e = nft_expr_add(b, "cmp");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_OP,
	    equal ? NFT_CMP_EQ : NFT_CMP_NEQ);
	nft_expr_data(b, e, NFTNL_EXPR_CMP_DATA, p, n);
}

static void
nft_expr_load(struct nft_batch *b, uint32_t base, uint32_t offset, uint32_t n,
    uint32_t reg)
{
	struct nftnl_expr *e = nft_expr_add(b, "payload");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_BASE, base);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_LEN, n);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_DREG, reg);
}

static void
nft_expr_immediate(struct nft_batch *b, const void *p, uint32_t n)
{
	struct nftnl_expr *e = nft_expr_add(b, "immediate");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_1);
	nft_expr_data(b, e, NFTNL_EXPR_IMM_DATA, p, n);
}

static void
nft_expr_ct(struct nft_batch *b, uint32_t key)
{
	struct nftnl_expr *e = nft_expr_add(b, "ct");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_KEY, key);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_DREG, NFT_REG_1);
}

static void
nft_expr_lookup(struct nft_batch *b, const char *set, uint32_t id)
{
	struct nftnl_expr *e = nft_expr_add(b, "lookup");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_LOOKUP_SREG, NFT_REG_1);
	nft_expr_data(b, e, NFTNL_EXPR_LOOKUP_SET, set,
	    (uint32_t)strlen(set) + 1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LOOKUP_SET_ID, id);
}

static void
nft_expr_link(struct nft_batch *b, uint32_t key, const char *name, bool equal)
{
	char padded[IFNAMSIZ] = { 0 };

	memcpy(padded, name, strnlen(name, IFNAMSIZ - 1));
	nft_expr_meta(b, key, NFT_REG_1);
	nft_expr_cmp(b, equal, padded, sizeof(padded));
}

void
nft_expr_iif(struct nft_batch *b, const char *name, bool equal)
{
	nft_expr_link(b, NFT_META_IIFNAME, name, equal);
}

void
nft_expr_oif(struct nft_batch *b, const char *name, bool equal)
{
	nft_expr_link(b, NFT_META_OIFNAME, name, equal);
}

void
nft_expr_family(struct nft_batch *b, uint8_t family, bool equal)
{
	nft_expr_meta(b, NFT_META_NFPROTO, NFT_REG_1);
	nft_expr_cmp(b, equal, &family, sizeof(family));
}

void
nft_expr_ethertype(struct nft_batch *b, uint16_t type)
{
	uint16_t wire = htons(type);

	nft_expr_meta(b, NFT_META_PROTOCOL, NFT_REG_1);
	nft_expr_cmp(b, true, &wire, sizeof(wire));
}

void
nft_expr_protocol(struct nft_batch *b, uint8_t protocol)
{
	nft_expr_meta(b, NFT_META_L4PROTO, NFT_REG_1);
	nft_expr_cmp(b, true, &protocol, sizeof(protocol));
}

void
nft_expr_source(struct nft_batch *b, uint32_t addr, bool equal)
{
	uint32_t wire = htonl(addr);

	nft_expr_load(b, NFT_PAYLOAD_NETWORK_HEADER, NFT_EXPR_SOURCE, 4,
	    NFT_REG_1);
	nft_expr_cmp(b, equal, &wire, sizeof(wire));
}

void
nft_expr_loopback(struct nft_batch *b)
{
	uint8_t net = IN_LOOPBACKNET;

	nft_expr_load(b, NFT_PAYLOAD_NETWORK_HEADER, NFT_EXPR_DESTINATION, 1,
	    NFT_REG_1);
	nft_expr_cmp(b, true, &net, sizeof(net));
}

void
nft_expr_unicast(struct nft_batch *b, bool equal)
{
	struct nftnl_expr *e = nft_expr_add(b, "fib");
	uint32_t type = RTN_UNICAST;

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_FLAGS, NFTA_FIB_F_DADDR);
	nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
	nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_DREG, NFT_REG_1);
	nft_expr_cmp(b, equal, &type, sizeof(type));
}

void
nft_expr_to_set(struct nft_batch *b, const char *set, uint32_t id)
{
	nft_expr_load(b, NFT_PAYLOAD_NETWORK_HEADER, NFT_EXPR_DESTINATION, 4,
	    NFT_REG_1);
	nft_expr_lookup(b, set, id);
}

void
nft_expr_service_set(struct nft_batch *b, const char *set, uint32_t id)
{
	/* neighbouring registers of 4 bytes make one key */
	nft_expr_load(b, NFT_PAYLOAD_NETWORK_HEADER, NFT_EXPR_DESTINATION, 4,
	    NFT_REG_1);
	nft_expr_meta(b, NFT_META_L4PROTO, NFT_REG32_01);
	nft_expr_load(b, NFT_PAYLOAD_TRANSPORT_HEADER, NFT_EXPR_TO_PORT, 2,
	    NFT_REG32_02);
	nft_expr_lookup(b, set, id);
}

void
nft_expr_state(struct nft_batch *b, uint32_t bits)
{
	uint32_t zero = 0;
	struct nftnl_expr *e;

	nft_expr_ct(b, NFT_CT_STATE);
	e = nft_expr_add(b, "bitwise");
	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_DREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_LEN, sizeof(bits));
	nft_expr_data(b, e, NFTNL_EXPR_BITWISE_MASK, &bits, sizeof(bits));
	nft_expr_data(b, e, NFTNL_EXPR_BITWISE_XOR, &zero, sizeof(zero));
	nft_expr_cmp(b, false, &zero, sizeof(zero));
}

void
nft_expr_ct_mark(struct nft_batch *b, uint32_t mark, bool equal)
{
	nft_expr_ct(b, NFT_CT_MARK);
	nft_expr_cmp(b, equal, &mark, sizeof(mark));
}

void
nft_expr_set_ct_mark(struct nft_batch *b, uint32_t mark)
{
	struct nftnl_expr *e;

	nft_expr_immediate(b, &mark, sizeof(mark));
	e = nft_expr_add(b, "ct");
	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_KEY, NFT_CT_MARK);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_SREG, NFT_REG_1);
}

void
nft_expr_count_over(struct nft_batch *b, uint32_t n)
{
	struct nftnl_expr *e = nft_expr_add(b, "connlimit");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_CONNLIMIT_COUNT, n);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
}

void
nft_expr_rate(struct nft_batch *b, uint32_t n, uint32_t burst, bool over)
{
	struct nftnl_expr *e = nft_expr_add(b, "limit");

	if (e == NULL)
		return;
	nftnl_expr_set_u64(e, NFTNL_EXPR_LIMIT_RATE, n);
	nftnl_expr_set_u64(e, NFTNL_EXPR_LIMIT_UNIT, 1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_BURST, burst);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_TYPE, NFT_LIMIT_PKTS);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_FLAGS,
	    over ? NFT_LIMIT_F_INV : 0);
}

void
nft_expr_counter(struct nft_batch *b, const char *name)
{
	struct nftnl_expr *e = nft_expr_add(b, "objref");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_OBJREF_IMM_TYPE, NFT_OBJECT_COUNTER);
	nft_expr_data(b, e, NFTNL_EXPR_OBJREF_IMM_NAME, name,
	    (uint32_t)strlen(name) + 1);
}

void
nft_expr_log(struct nft_batch *b, const char *prefix, uint16_t group)
{
	struct nftnl_expr *e = nft_expr_add(b, "log");

	if (e == NULL)
		return;
	nft_expr_data(b, e, NFTNL_EXPR_LOG_PREFIX, prefix,
	    (uint32_t)strlen(prefix) + 1);
	nftnl_expr_set_u16(e, NFTNL_EXPR_LOG_GROUP, group);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LOG_SNAPLEN, NL_LOG_COPY_BYTES);
	nftnl_expr_set_u16(e, NFTNL_EXPR_LOG_QTHRESHOLD, 1);
}

void
nft_expr_set_source(struct nft_batch *b, uint32_t addr)
{
	uint32_t wire = htonl(addr);
	struct nftnl_expr *e;

	nft_expr_immediate(b, &wire, sizeof(wire));
	e = nft_expr_add(b, "payload");
	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_BASE,
	    NFT_PAYLOAD_NETWORK_HEADER);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, NFT_EXPR_SOURCE);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_LEN, sizeof(wire));
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_SREG, NFT_REG_1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_CSUM_TYPE,
	    NFT_PAYLOAD_CSUM_INET);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_CSUM_OFFSET,
	    NFT_EXPR_CHECKSUM);
	/* those of TCP and UDP cover the address, too */
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_FLAGS,
	    NFT_PAYLOAD_L4CSUM_PSEUDOHDR);
}

void
nft_expr_redirect(struct nft_batch *b, uint16_t port)
{
	uint16_t wire = htons(port);
	struct nftnl_expr *e;

	nft_expr_immediate(b, &wire, sizeof(wire));
	e = nft_expr_add(b, "redir");
	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_REDIR_REG_PROTO_MIN, NFT_REG_1);
}

void
nft_expr_masquerade(struct nft_batch *b)
{
	(void)nft_expr_add(b, "masq");
}

static void
nft_expr_reject(struct nft_batch *b, uint32_t type, uint8_t code)
{
	struct nftnl_expr *e = nft_expr_add(b, "reject");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_REJECT_TYPE, type);
	nftnl_expr_set_u8(e, NFTNL_EXPR_REJECT_CODE, code);
}

void
nft_expr_reset(struct nft_batch *b)
{
	nft_expr_reject(b, NFT_REJECT_TCP_RST, 0);
}

void
nft_expr_unreachable(struct nft_batch *b)
{
	nft_expr_reject(b, NFT_REJECT_ICMPX_UNREACH,
	    NFT_REJECT_ICMPX_PORT_UNREACH);
}

void
nft_expr_verdict(struct nft_batch *b, int verdict, const char *chain)
{
	struct nftnl_expr *e = nft_expr_add(b, "immediate");

	if (e == NULL)
		return;
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_VERDICT, (uint32_t)verdict);
	if (chain != NULL)
		nft_expr_data(b, e, NFTNL_EXPR_IMM_CHAIN, chain,
		    (uint32_t)strlen(chain) + 1);
}
