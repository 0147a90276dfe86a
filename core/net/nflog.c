#include "config.h"

#include "net/nflog.h"

#include <limits.h>
#include <netinet/in.h>
#include <string.h>

#include <libmnl/libmnl.h>
#include <libnetfilter_log/libnetfilter_log.h>
#include <linux/netfilter/nfnetlink.h>

enum {
	NFLOG_TYPE = (NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_PACKET,
	NFLOG_IP_MIN = 20,
	/* the library fills as many as it knew of when it was built */
	NFLOG_ATTRIBUTES = 128,
};
_Static_assert(NFLOG_ATTRIBUTES > 2 * NFULA_MAX, "room for newer ones");

static uint16_t
be16(const char *p)
{
	const unsigned char *u = (const unsigned char *)p;

	return (uint16_t)(u[0] << 8 | u[1]);
}

static uint32_t
be32(const char *p)
{
	return (uint32_t)be16(p) << 16 | be16(p + 2);
}

static bool
has_ports(uint8_t protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
	    protocol == IPPROTO_SCTP || protocol == IPPROTO_DCCP ||
	    protocol == IPPROTO_UDPLITE;
}

/* RFC 791 s3.1.  The workload wrote all of it: what makes no sense is left. */
static void
nflog_ip(struct view v, struct nflog_packet *out)
{
	size_t head;

	if (v.n < NFLOG_IP_MIN || (unsigned char)v.p[0] >> 4 != 4)
		return;
	out->is_ip = true;
	out->protocol = (uint8_t)v.p[9];
	out->source = be32(v.p + 12);
	out->dest = be32(v.p + 16);
	head = 4U * ((unsigned char)v.p[0] & 15);
	/* a later fragment has no ports; and who cut the header short neither */
	if (head < NFLOG_IP_MIN || (be16(v.p + 6) & 0x1fff) != 0 ||
	    !has_ports(out->protocol) || v.n < head + 4)
		return;
	out->has_ports = true;
	out->source_port = be16(v.p + head);
	out->dest_port = be16(v.p + head + 2);
}

static struct view
nflog_value(const struct nlattr *a)
{
	if (a == NULL)
		return VIEW_NONE;
	return view_of(mnl_attr_get_payload(a), mnl_attr_get_payload_len(a));
}

/* The library stops at what is no attribute: then the rest is not told. */
static bool
nflog_is_whole(const struct nlmsghdr *h)
{
	const char *end = mnl_nlmsg_get_payload_tail(h);
	const struct nlattr *a;

	a = mnl_nlmsg_get_payload_offset(h, sizeof(struct nfgenmsg));
	while (mnl_attr_ok(a, (int)(end - (const char *)a)))
		a = mnl_attr_next(a);
	return (const char *)a >= end;
}

static int
nflog_attributes(const struct nlmsghdr *h, struct nflog_packet *out)
{
	struct nlattr *all[NFLOG_ATTRIBUTES] = { NULL };
	struct view value;

	if (nflog_nlmsg_parse(h, all) != MNL_CB_OK || !nflog_is_whole(h))
		return SP_E_PROTO;
	value = nflog_value(all[NFULA_PACKET_HDR]);
	if (value.n >= 2)
		out->ethertype = be16(value.p);
	value = nflog_value(all[NFULA_PREFIX]);
	out->prefix = view_sub(value, 0, view_find(value, 0));
	value = nflog_value(all[NFULA_SEQ]);
	if (value.n == sizeof(uint32_t)) {
		out->has_seq = true;
		out->seq = be32(value.p);
	} else if (all[NFULA_SEQ] != NULL) {
		return SP_E_PROTO;
	}
	nflog_ip(nflog_value(all[NFULA_PAYLOAD]), out);
	return SP_OK;
}

int
nflog_next(struct view *rest, struct nflog_packet *out)
{
	const struct nlmsghdr *h;
	size_t n;

	while (rest->n > 0) {
		h = (const void *)rest->p;
		/* the library takes a length past INT_MAX for a negative one */
		if (rest->n > INT_MAX || !mnl_nlmsg_ok(h, (int)rest->n) ||
		    h->nlmsg_len > rest->n)
			return SP_E_PROTO;
		/* its attributes are looked for up to here */
		n = NLMSG_ALIGN((size_t)h->nlmsg_len);
		if (n > rest->n)
			return SP_E_PROTO;
		*rest = view_from(*rest, n);
		if (h->nlmsg_type != NFLOG_TYPE)
			continue;
		if (mnl_nlmsg_get_payload_len(h) < sizeof(struct nfgenmsg))
			return SP_E_PROTO;
		memset(out, 0, sizeof(*out));
		return nflog_attributes(h, out);
	}
	return SP_E_EOF;
}
