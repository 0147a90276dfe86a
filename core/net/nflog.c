#include "config.h"

#include "net/nflog.h"

#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>

enum {
	NFLOG_TYPE = (NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_PACKET,
	NFLOG_IP_MIN = 20,
};

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

/* netlink(7): attributes of length, type, value, each at a multiple of 4. */
static int
nflog_attributes(struct view v, struct nflog_packet *out)
{
	struct view value, payload = VIEW_NONE;
	struct nlattr a;

	while (v.n > 0) {
		if (v.n < sizeof(a))
			return SP_E_PROTO;
		memcpy(&a, v.p, sizeof(a));
		if (a.nla_len < sizeof(a) || a.nla_len > v.n)
			return SP_E_PROTO;
		value = view_sub(v, sizeof(a), a.nla_len - sizeof(a));
		v = view_from(v, NLA_ALIGN(a.nla_len));
		switch (a.nla_type & NLA_TYPE_MASK) {
		case NFULA_PACKET_HDR:
			if (value.n >= 2)
				out->ethertype = be16(value.p);
			break;
		case NFULA_PREFIX:
			out->prefix = view_sub(value, 0, view_find(value, 0));
			break;
		case NFULA_PAYLOAD:
			payload = value;
			break;
		case NFULA_SEQ:
			if (value.n != sizeof(uint32_t))
				return SP_E_PROTO;
			out->has_seq = true;
			out->seq = be32(value.p);
			break;
		default:
			break;
		}
	}
	nflog_ip(payload, out);
	return SP_OK;
}

int
nflog_next(struct view *rest, struct nflog_packet *out)
{
	struct nlmsghdr h;
	struct view body;

	while (rest->n > 0) {
		if (rest->n < sizeof(h))
			return SP_E_PROTO;
		memcpy(&h, rest->p, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > rest->n)
			return SP_E_PROTO;
		body = view_sub(*rest, sizeof(h), h.nlmsg_len - sizeof(h));
		*rest = view_from(*rest, NLMSG_ALIGN(h.nlmsg_len));
		if (h.nlmsg_type != NFLOG_TYPE)
			continue;
		if (body.n < sizeof(struct nfgenmsg))
			return SP_E_PROTO;
		memset(out, 0, sizeof(*out));
		return nflog_attributes(view_from(body,
					    NLMSG_ALIGN(
						sizeof(struct nfgenmsg))),
		    out);
	}
	return SP_E_EOF;
}
