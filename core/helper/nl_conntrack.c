#include "config.h"

#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <sys/socket.h>

#include <libmnl/libmnl.h>

#include "helper/nl_conntrack.h"

int
nl_conntrack_flush(struct nl_sock *n, uint32_t mark)
{
	_Alignas(struct nlmsghdr) char mem[256];
	struct nlmsghdr *h = mnl_nlmsg_put_header(mem);
	struct nfgenmsg *g;

	/* without the mark this message would delete everybody's */
	err_assert(mark != 0);
	h->nlmsg_type = (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_DELETE;
	g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
	g->nfgen_family = AF_INET;
	g->version = NFNETLINK_V0;
	mnl_attr_put_u32(h, CTA_MARK, htonl(mark));
	mnl_attr_put_u32(h, CTA_MARK_MASK, htonl(UINT32_MAX));
	return nl_sock_ask(n, h);
}
