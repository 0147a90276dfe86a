#include "config.h"

/* before those of the kernel, which then leave out what it has */
#include <netinet/in.h>

#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter_ipv4.h>

#include "helper/nft_expr.h"
#include "helper/nft_table.h"

enum {
	/* after conntrack, before anybody's destination NAT */
	NFT_TABLE_BEFORE_NAT = NF_IP_PRI_MANGLE,
	NFT_TABLE_INGRESS = -500,
	NFT_TABLE_ESTABLISHED = NF_CT_STATE_BIT(IP_CT_ESTABLISHED),
	NFT_TABLE_RELATED = NF_CT_STATE_BIT(IP_CT_RELATED),
	NFT_TABLE_NEW = NF_CT_STATE_BIT(IP_CT_NEW),
};

static void
nft_table_chain(struct nft_batch *b, const char *name, const char *type,
    uint32_t hook, int32_t priority)
{
	struct nft_batch_chain c = { .name = name,
		.type = type,
		.hook = hook,
		.priority = priority,
		.policy = NF_ACCEPT };

	nft_batch_chain(b, &c);
}

static void
nft_table_finish(struct nft_batch *b, int verdict, const char *chain)
{
	nft_expr_verdict(b, verdict, chain);
	nft_batch_end(b);
}

/* Table, counters and sets. */
static void
nft_table_begin(struct nft_batch *b, const struct nft_table *t)
{
	nft_batch_table(b, t->flags);
	nft_batch_counter(b, NFT_TABLE_ALLOWED);
	nft_batch_counter(b, NFT_TABLE_DENIED);
	nft_allow_put(t->allow, b);
}

/* Counts, and tells at a bounded rate; what follows says how it ends. */
static void
nft_table_tell_denied(struct nft_batch *b, const struct nft_table *t,
    const char *chain)
{
	nft_batch_rule(b, chain);
	nft_expr_counter(b, NFT_TABLE_DENIED);
	nft_batch_end(b);
	nft_batch_rule(b, chain);
	nft_expr_rate(b, NFT_TABLE_DENY_RATE, NFT_TABLE_DENY_BURST, false);
	nft_expr_log(b, "deny", t->group);
	nft_batch_end(b);
}

/* An answer to what is under way: its packets, and ICMP about them. */
static void
nft_table_accept_known(struct nft_batch *b, const char *chain)
{
	nft_batch_rule(b, chain);
	nft_expr_state(b, NFT_TABLE_ESTABLISHED);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_batch_rule(b, chain);
	nft_expr_protocol(b, IPPROTO_ICMP);
	nft_expr_state(b, NFT_TABLE_RELATED);
	nft_table_finish(b, NF_ACCEPT, NULL);
}

static uint32_t
nft_table_connections(const struct nft_table *t)
{
	uint64_t n = t->plan->env != NULL ? t->plan->env->connections : 0;

	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/*
 * Chain "new": flows that the rules allow and that are not known yet.  The
 * mark tells a flow's later packets, while nobody has answered, from its
 * first, which alone is counted and told of.
 */
static void
nft_table_new_flows(struct nft_batch *b, const struct nft_table *t)
{
	uint32_t most = nft_table_connections(t);

	nft_batch_rule(b, "new");
	nft_expr_ct_mark(b, t->plan->ct_mark, true);
	nft_table_finish(b, NF_ACCEPT, NULL);
	/* dropped, not refused: who tries again gets through */
	nft_batch_rule(b, "new");
	nft_expr_rate(b, NFT_TABLE_NEW_RATE, NFT_TABLE_NEW_BURST, true);
	nft_table_finish(b, NF_DROP, NULL);
	if (most > 0) {
		nft_batch_rule(b, "new");
		nft_expr_count_over(b, most);
		nft_table_finish(b, NFT_GOTO, "deny");
	}
	nft_batch_rule(b, "new");
	nft_expr_set_ct_mark(b, t->plan->ct_mark);
	nft_expr_counter(b, NFT_TABLE_ALLOWED);
	nft_expr_log(b, "allow", t->group);
	nft_table_finish(b, NF_ACCEPT, NULL);
}

/*
 * Frames as they come in.  This hook is shown IPv4 and IPv6; ARP is needed,
 * and what is neither has no stack on the host that would take it further.
 */
static void
nft_table_frames(struct nft_batch *b, const struct nft_table *t)
{
	nft_batch_rule(b, "l2");
	nft_expr_ethertype(b, ETH_P_IP);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_table_tell_denied(b, t, "l2");
	nft_batch_rule(b, "l2");
	nft_table_finish(b, NF_DROP, NULL);
}

/*
 * Packets from the link, before routing: so forwarded, local, multicast and
 * broadcast alike.  What is protected is asked before what is established:
 * an address that becomes the host's own is denied from then on.
 */
static void
nft_table_from_link(struct nft_batch *b, const struct nft_table *t)
{
	const struct netns_plan *p = t->plan;

	nft_batch_rule(b, "pre");
	nft_expr_iif(b, p->veth, false);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_batch_rule(b, "pre");
	nft_expr_family(b, NFPROTO_IPV4, false);
	nft_table_finish(b, NF_DROP, NULL);
	/* what the inner table denied: see NFT_TABLE_VOID_SOURCE */
	nft_batch_rule(b, "pre");
	nft_expr_source(b, NFT_TABLE_VOID_SOURCE, true);
	nft_expr_set_source(b, p->guest_addr);
	nft_table_finish(b, NFT_GOTO, "deny");
	nft_batch_rule(b, "pre");
	nft_expr_source(b, p->guest_addr, false);
	nft_table_finish(b, NFT_GOTO, "spoof");
	nft_batch_rule(b, "pre");
	nft_expr_unicast(b, false);
	nft_table_finish(b, NFT_GOTO, "deny");
	nft_batch_rule(b, "pre");
	nft_expr_to_set(b, NFT_ALLOW_PROTECTED, NFT_ALLOW_PROTECTED_ID);
	nft_table_finish(b, NFT_GOTO, "deny");
	nft_table_accept_known(b, "pre");
	if (t->allow->n > 0) {
		nft_batch_rule(b, "pre");
		nft_expr_state(b, NFT_TABLE_NEW);
		nft_expr_service_set(b, NFT_ALLOW_SET, NFT_ALLOW_SET_ID);
		nft_table_finish(b, NFT_GOTO, "new");
	}
	nft_batch_rule(b, "pre");
	nft_table_finish(b, NFT_GOTO, "deny");
}

/* Denied: refused at once. */
static void
nft_table_refuse(struct nft_batch *b, const struct nft_table *t)
{
	nft_table_tell_denied(b, t, "deny");
	nft_batch_rule(b, "deny");
	nft_expr_protocol(b, IPPROTO_TCP);
	nft_expr_reset(b);
	nft_batch_end(b);
	nft_batch_rule(b, "deny");
	nft_expr_unreachable(b);
	nft_batch_end(b);
}

void
nft_table_host(struct nft_batch *b, const struct nft_table *t)
{
	struct nft_batch_chain l2 = { .name = "l2",
		.type = "filter",
		.hook = NF_INET_INGRESS,
		.priority = NFT_TABLE_INGRESS,
		.policy = NF_ACCEPT,
		.device = t->plan->veth };

	nft_table_begin(b, t);
	nft_table_chain(b, "deny", NULL, 0, 0);
	nft_table_chain(b, "spoof", NULL, 0, 0);
	nft_table_chain(b, "new", NULL, 0, 0);
	nft_batch_chain(b, &l2);
	nft_table_chain(b, "pre", "filter", NF_INET_PRE_ROUTING,
	    NFT_TABLE_BEFORE_NAT);
	nft_table_chain(b, "fwd", "filter", NF_INET_FORWARD,
	    NFT_TABLE_BEFORE_NAT);
	nft_table_chain(b, "nat", "nat", NF_INET_POST_ROUTING,
	    NF_IP_PRI_NAT_SRC);
	nft_table_refuse(b, t);
	/* no answer to an address that nobody there has */
	nft_table_tell_denied(b, t, "spoof");
	nft_batch_rule(b, "spoof");
	nft_table_finish(b, NF_DROP, NULL);
	nft_table_new_flows(b, t);
	nft_table_frames(b, t);
	nft_table_from_link(b, t);
	nft_batch_rule(b, "fwd");
	nft_expr_oif(b, t->plan->veth, false);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_table_accept_known(b, "fwd");
	nft_batch_rule(b, "fwd");
	nft_table_finish(b, NF_DROP, NULL);
	nft_batch_rule(b, "nat");
	nft_expr_iif(b, t->plan->veth, true);
	nft_expr_masquerade(b);
	nft_batch_end(b);
}

void
nft_table_inside(struct nft_batch *b, const struct nft_table *t)
{
	nft_table_begin(b, t);
	nft_table_chain(b, "void", NULL, 0, 0);
	nft_table_chain(b, "in", "filter", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER);
	nft_table_chain(b, "out", "filter", NF_INET_LOCAL_OUT,
	    NF_IP_PRI_FILTER);
	nft_batch_rule(b, "void");
	nft_expr_set_source(b, NFT_TABLE_VOID_SOURCE);
	nft_table_finish(b, NF_ACCEPT, NULL);

	nft_batch_rule(b, "in");
	nft_expr_iif(b, "lo", true);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_table_accept_known(b, "in");
	nft_batch_rule(b, "in");
	nft_table_finish(b, NF_DROP, NULL);

	nft_batch_rule(b, "out");
	nft_expr_oif(b, "lo", true);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_batch_rule(b, "out");
	nft_expr_family(b, NFPROTO_IPV4, false);
	nft_table_finish(b, NF_DROP, NULL);
	nft_batch_rule(b, "out");
	nft_expr_to_set(b, NFT_ALLOW_PROTECTED, NFT_ALLOW_PROTECTED_ID);
	nft_table_finish(b, NFT_GOTO, "void");
	nft_table_accept_known(b, "out");
	if (t->allow->n > 0) {
		nft_batch_rule(b, "out");
		nft_expr_state(b, NFT_TABLE_NEW);
		nft_expr_service_set(b, NFT_ALLOW_SET, NFT_ALLOW_SET_ID);
		nft_table_finish(b, NF_ACCEPT, NULL);
	}
	nft_batch_rule(b, "out");
	nft_table_finish(b, NFT_GOTO, "void");
}

/*
 * Chain "deny" of NAT: a closed port refuses as the kernel itself does, so
 * that TCP and UDP read "refused"; a rule that rejects in this hook would
 * give the sender of a datagram EPERM.
 */
static void
nft_table_divert(struct nft_batch *b, const struct nft_table *t)
{
	nft_table_tell_denied(b, t, "deny");
	nft_batch_rule(b, "deny");
	nft_expr_protocol(b, IPPROTO_TCP);
	nft_expr_redirect(b, NFT_TABLE_CLOSED_PORT);
	nft_batch_end(b);
	nft_batch_rule(b, "deny");
	nft_expr_protocol(b, IPPROTO_UDP);
	nft_expr_redirect(b, NFT_TABLE_CLOSED_PORT);
	nft_batch_end(b);
}

static void
nft_table_relay(struct nft_batch *b, const struct nft_table *t)
{
	uint32_t most = nft_table_connections(t);

	if (most > 0) {
		nft_batch_rule(b, "new");
		nft_expr_count_over(b, most);
		nft_table_finish(b, NFT_GOTO, "deny");
	}
	nft_batch_rule(b, "new");
	nft_expr_counter(b, NFT_TABLE_ALLOWED);
	nft_expr_log(b, "allow", t->group);
	nft_expr_redirect(b, NETNS_RELAY_PORT);
	nft_batch_end(b);
	nft_batch_rule(b, "nat");
	nft_expr_protocol(b, IPPROTO_TCP);
	nft_expr_service_set(b, NFT_ALLOW_SET, NFT_ALLOW_SET_ID);
	nft_table_finish(b, NFT_GOTO, "new");
}

void
nft_table_alone(struct nft_batch *b, const struct nft_table *t, bool relay)
{
	nft_table_begin(b, t);
	nft_table_chain(b, "deny", NULL, 0, 0);
	nft_table_chain(b, "new", NULL, 0, 0);
	nft_table_chain(b, "nat", "nat", NF_INET_LOCAL_OUT, NF_IP_PRI_NAT_DST);
	nft_table_chain(b, "out", "filter", NF_INET_LOCAL_OUT,
	    NF_IP_PRI_FILTER);
	nft_table_divert(b, t);
	nft_batch_rule(b, "nat");
	nft_expr_family(b, NFPROTO_IPV4, false);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_batch_rule(b, "nat");
	nft_expr_loopback(b);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_batch_rule(b, "nat");
	nft_expr_to_set(b, NFT_ALLOW_PROTECTED, NFT_ALLOW_PROTECTED_ID);
	nft_table_finish(b, NFT_GOTO, "deny");
	if (relay && t->allow->n > 0)
		nft_table_relay(b, t);
	nft_batch_rule(b, "nat");
	nft_table_finish(b, NFT_GOTO, "deny");
	/* after NAT what is left goes to loopback, or is neither TCP nor UDP */
	nft_batch_rule(b, "out");
	nft_expr_family(b, NFPROTO_IPV4, true);
	nft_expr_loopback(b);
	nft_table_finish(b, NF_ACCEPT, NULL);
	nft_batch_rule(b, "out");
	nft_table_finish(b, NF_DROP, NULL);
}
