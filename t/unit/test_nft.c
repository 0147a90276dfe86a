/* What rules of egress come to: boxes, sets, and the bytes of a transaction. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include "base/mem.h"
#include "helper/netns.h"
#include "helper/nft_batch.h"
#include "helper/nft_table.h"
#include "helper/nl_sock.h"
#include "tap.h"

enum { RULES = 1000, BYTES = 8 * 1024 * 1024 };

static struct conf_env_rule rules[RULES];
static struct conf_environment env = { .rules = rules, .connections = 10 };

static void
rule(const char *net, uint8_t prefix, uint8_t proto, uint16_t low,
    uint16_t high)
{
	struct conf_env_rule *r = &rules[env.rules_n++];
	struct in_addr a = { 0 };

	(void)inet_pton(AF_INET, net, &a);
	memset(r, 0, sizeof(*r));
	r->net = ntohl(a.s_addr);
	r->prefix = prefix;
	r->proto = proto;
	r->port_low = low;
	r->port_high = high;
}

static bool
in_box(const struct nft_allow_box *b, uint8_t proto, uint32_t addr,
    uint16_t port)
{
	return b->proto == proto && addr >= b->low && addr <= b->high &&
	    port >= b->port_low && port <= b->port_high;
}

static bool
in_rule(const struct conf_env_rule *r, uint8_t proto, uint32_t addr,
    uint16_t port)
{
	uint32_t mask = r->prefix == 0 ? 0 : UINT32_MAX << (32 - r->prefix);

	return r->proto == proto && (addr & mask) == r->net &&
	    port >= r->port_low && port <= r->port_high;
}

/* How often boxes and rules disagree, and boxes overlap, near all edges. */
static unsigned
disagreements(const struct nft_allow *a, uint8_t proto, uint32_t addr,
    uint32_t port)
{
	size_t i, in = 0;
	bool want = false;

	if (port > 65535)
		return 0;
	for (i = 0; i < a->n; i++)
		in += in_box(&a->box[i], proto, addr, (uint16_t)port);
	for (i = 0; i < env.rules_n; i++)
		want |= in_rule(&rules[i], proto, addr, (uint16_t)port);
	return in != want;
}

static unsigned
compare(const struct nft_allow *a)
{
	static const uint8_t protos[] = { IPPROTO_TCP, IPPROTO_UDP,
		IPPROTO_ICMP };
	unsigned bad = 0;
	size_t i, k, p;
	uint32_t addrs[4], size;

	for (i = 0; i < env.rules_n; i++) {
		size = rules[i].prefix == 0
		    ? UINT32_MAX
		    : (uint32_t)((1ULL << (32 - rules[i].prefix)) - 1);
		addrs[0] = rules[i].net;
		addrs[1] = rules[i].net | size;
		addrs[2] = addrs[0] - 1;
		addrs[3] = addrs[1] + 1;
		for (k = 0; k < env.rules_n * 4; k++)
			for (p = 0; p < sizeof(protos); p++) {
				bad += disagreements(a, protos[p], addrs[k % 4],
				    rules[k / 4].port_low);
				bad += disagreements(a, protos[p], addrs[k % 4],
				    rules[k / 4].port_low - 1U);
				bad += disagreements(a, protos[p], addrs[k % 4],
				    rules[k / 4].port_high);
				bad += disagreements(a, protos[p], addrs[k % 4],
				    rules[k / 4].port_high + 1U);
			}
	}
	return bad;
}

static void
test_allow(void)
{
	struct nft_allow a;

	env.rules_n = 0;
	tap_is_int(nft_allow_make(&a, &env, false), SP_OK, "no rules");
	tap_is_int((long long)a.n, 0, "come to nothing");
	nft_allow_clear(&a);

	rule("203.0.113.0", 24, IPPROTO_TCP, 443, 443);
	rule("203.0.113.5", 32, IPPROTO_TCP, 443, 443);
	rule("203.0.113.0", 24, IPPROTO_TCP, 443, 443);
	tap_is_int(nft_allow_make(&a, &env, false), SP_OK,
	    "a rule in a rule, and twice");
	tap_is_int((long long)a.n, 1, "is one box");
	nft_allow_clear(&a);

	rule("203.0.113.5", 32, IPPROTO_TCP, 1, 65535);
	rule("203.0.113.4", 30, IPPROTO_TCP, 440, 450);
	rule("203.0.113.4", 30, IPPROTO_TCP, 445, 460);
	rule("0.0.0.0", 0, IPPROTO_UDP, 53, 53);
	rule("255.255.255.255", 32, IPPROTO_UDP, 1, 65535);
	rule("0.0.0.0", 0, IPPROTO_TCP, 65535, 65535);
	rule("128.0.0.0", 1, IPPROTO_TCP, 1, 1);
	tap_is_int(nft_allow_make(&a, &env, false), SP_OK, "many");
	tap_is_int(compare(&a), 0, "mean the same as boxes, each packet once");
	nft_allow_clear(&a);

	rules[0].is_host = true;
	tap_is_int(nft_allow_make(&a, &env, true), SP_OK, "a name, relayed");
	tap_ok(disagreements(&a, IPPROTO_TCP, 0x08080808, 443) == 1,
	    "counts as its port, anywhere");
	nft_allow_clear(&a);
}

static void
test_too_many(void)
{
	struct nft_allow a;
	char net[32];
	unsigned i;

	env.rules_n = 0;
	for (i = 0; i < 500; i++)
		rule("0.0.0.0", 0, IPPROTO_TCP, (uint16_t)(2 * i + 1),
		    (uint16_t)(2 * i + 1));
	for (i = 0; i < 500; i++) {
		(void)snprintf(net, sizeof(net), "203.0.%u.%u", i / 250,
		    i % 250);
		rule(net, 32, IPPROTO_TCP, 1, 65535);
	}
	tap_is_int(nft_allow_make(&a, &env, false), SP_E_LIMIT,
	    "what comes to too many boxes is refused");
	nft_allow_clear(&a);
}

static void
test_memory(void)
{
	struct nft_allow a;
	unsigned long i;
	int rc = SP_E_NOMEM;

	env.rules_n = 0;
	for (i = 0; i < 200; i++)
		rule("203.0.113.0", 24, IPPROTO_TCP, (uint16_t)(2 * i + 1),
		    (uint16_t)(2 * i + 1));
	for (i = 1; rc == SP_E_NOMEM && i < 100; i++) {
		mem_fail_after(i, 0);
		rc = nft_allow_make(&a, &env, false);
		mem_fail_after(0, 0);
		if (rc == SP_E_NOMEM)
			nft_allow_clear(&a);
	}
	tap_ok(rc == SP_OK && i > 3 && a.n == 200,
	    "without memory nothing is made");
	nft_allow_clear(&a);
}

/* Messages by kind; -1 when lengths do not add up. */
static int
walk(struct view v, unsigned kinds[64])
{
	struct nlmsghdr h;
	int n = 0;

	memset(kinds, 0, 64 * sizeof(*kinds));
	while (v.n >= sizeof(h)) {
		memcpy(&h, v.p, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || NLMSG_ALIGN(h.nlmsg_len) > v.n ||
		    h.nlmsg_seq != (uint32_t)n + 1)
			return -1;
		if (h.nlmsg_type >> 8 == NFNL_SUBSYS_NFTABLES)
			kinds[h.nlmsg_type & 63]++;
		else if (n > 0)
			return -1; /* the batch's own is the first */
		v = view_from(v, NLMSG_ALIGN(h.nlmsg_len));
		n++;
	}
	return v.n == 0 ? n : -1;
}

static int
write_table(int kind, unsigned kinds[64])
{
	static struct buf out = BUF_INIT(BYTES);
	struct netns_plan p;
	struct nft_allow a;
	struct nft_table t = { .plan = &p, .allow = &a, .group = 7 };
	struct nft_batch b;
	int n = -1;

	netns_plan(&p, 3, 1, &env, true);
	if (nft_allow_make(&a, &env, false) != SP_OK)
		return -1;
	nft_batch_open(&b, p.table);
	if (kind == 0)
		nft_table_host(&b, &t);
	else if (kind == 1)
		nft_table_inside(&b, &t);
	else
		nft_table_alone(&b, &t, kind == 3);
	buf_reset(&out, 0);
	if (nft_batch_bytes(&b, &out) == SP_OK)
		n = walk(buf_view(&out), kinds);
	nft_batch_close(&b);
	nft_allow_clear(&a);
	buf_clear(&out);
	return n;
}

static void
test_tables(void)
{
	static const char *const names[] = { "the host's", "the inner",
		"one without a link", "one that relays" };
	unsigned kinds[64], i;

	env.rules_n = 0;
	for (i = 0; i < RULES; i++)
		rule("203.0.113.0", 24, IPPROTO_TCP, (uint16_t)(2 * i + 1),
		    (uint16_t)(2 * i + 1));
	for (i = 0; i < 4; i++) {
		tap_ok(write_table((int)i, kinds) > 0,
		    "%s table is whole messages in order", names[i]);
		tap_ok(kinds[NFT_MSG_NEWTABLE] == 1 &&
			kinds[NFT_MSG_NEWOBJ] == 2 &&
			kinds[NFT_MSG_NEWSET] == 2 &&
			kinds[NFT_MSG_NEWSETELEM] == 1 + 4 &&
			kinds[NFT_MSG_NEWCHAIN] >= 3 &&
			kinds[NFT_MSG_NEWRULE] >= 9,
		    "with what belongs to it, a thousand elements in pieces");
	}
	env.rules_n = 0;
	tap_ok(write_table(2, kinds) > 0 && kinds[NFT_MSG_NEWSET] == 1,
	    "without rules there is no set of them");
}

static void
test_plan(void)
{
	struct netns_plan a, b;

	netns_plan(&a, 0, 1, NULL, true);
	netns_plan(&b, NETNS_SLOTS_MAX - 1, 1, NULL, true);
	tap_ok(a.host_addr == 0xc6120005 && a.guest_addr == 0xc6120006,
	    "slot 0 has the second network of the range");
	tap_ok(b.guest_addr < 0xc6140000 && strlen(b.veth) < 16,
	    "the last slot is inside the range");
	tap_is_str(b.veth, "sp-32764", "names come from the number");
	tap_is_str(b.table, "sallyport-32764", "of the table, too");
	tap_ok(a.ct_mark != 0 && a.ct_mark != b.ct_mark, "as do marks");
}

/* A table with those flags and a counter. */
static int
send_table(struct nl_sock *n, uint32_t flags)
{
	struct nft_batch b;
	int rc;

	n->error = 0;
	nft_batch_open(&b, "sallyport-test");
	nft_batch_table(&b, flags);
	nft_batch_counter(&b, NFT_TABLE_ALLOWED);
	rc = nft_batch_send(&b, n);
	nft_batch_close(&b);
	return rc;
}

/*
 * A kernel that has none of the table's flags (owner: Linux 5.12, persist:
 * 6.9) refuses all messages, and is asked again without.
 */
static void
test_again(void)
{
	struct nl_sock n;

	if (unshare(CLONE_NEWNET) != 0 ||
	    nl_sock_open(&n, NETLINK_NETFILTER) != SP_OK) {
		tap_skip(3, "no network namespace, or none with nf_tables");
		return;
	}
	tap_ok(send_table(&n, 0x80000000) != SP_OK &&
		(n.error == EOPNOTSUPP || n.error == EINVAL),
	    "flags that no kernel has are refused");
	tap_is_int(send_table(&n, 0), SP_OK,
	    "then what came of that is not taken for the next answer");
	n.error = 0;
	tap_is_int(nft_batch_find(&n, "sallyport-test"), SP_OK,
	    "and the table is there");
	nl_sock_close(&n);
}

int
main(void)
{
	test_plan();
	test_allow();
	test_too_many();
	test_memory();
	test_tables();
	test_again();
	return tap_done();
}
