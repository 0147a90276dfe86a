/*
 * What the kernel tells of packets: NFLOG messages, each with the first bytes
 * of a packet that a workload made.
 */
#ifndef SP_NET_NFLOG_H
#define SP_NET_NFLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

enum { NFLOG_READ_MAX = 64 * 1024 };

struct nflog_packet {
	struct view prefix; /* of the rule: "allow", "deny"; empty: none */
	bool has_seq;
	uint32_t seq; /* from 0, one more for each that the group had */
	uint16_t ethertype; /* 0: not told */
	bool is_ip; /* version 4: what follows is set */
	uint8_t protocol; /* IPPROTO_* */
	uint32_t source, dest; /* host order */
	bool
	    has_ports; /* TCP, UDP, SCTP and the like; not of a later fragment */
	uint16_t source_port, dest_port;
};

/*
 * The next packet of what one recv() gave, which *rest is the rest of;
 * messages of other kinds are passed over.
 * Source:  netlink(7), libnetfilter_log, RFC 791 s3.1.
 * Context: any; linear, no allocation and no system call.
 * Parameters: rest, aligned as a struct nlmsghdr is.
 * Owner:   borrowed from the bytes.
 * Returns: 0; SP_E_EOF nothing is left; SP_E_PROTO it is not in that form.
 */
int nflog_next(struct view *rest, struct nflog_packet *out) must_check;

#endif
