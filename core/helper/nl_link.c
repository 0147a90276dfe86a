#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

#include <libmnl/libmnl.h>

#include "helper/nl_link.h"

/* Aligned memory for one request; names are checked, so all fits. */
struct nl_link_msg {
	_Alignas(struct nlmsghdr) char mem[NL_SOCK_ASK_MAX];
};

static struct nlmsghdr *
nl_link_begin(struct nl_link_msg *m, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(m->mem);

	h->nlmsg_type = type;
	h->nlmsg_flags = flags;
	return h;
}

static struct nlmsghdr *
nl_link_begin_link(struct nl_link_msg *m, uint16_t type, uint16_t flags,
    uint32_t index)
{
	struct nlmsghdr *h = nl_link_begin(m, type, flags);
	struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));

	i->ifi_family = AF_UNSPEC;
	i->ifi_index = (int)index;
	return h;
}

static int
nl_link_name(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n < IFNAMSIZ ? SP_OK : SP_E_ARG;
}

int
nl_link_veth(struct nl_sock *n, const char *name, const char *peer, int ns_fd)
{
	struct nl_link_msg m;
	struct nlattr *info, *data, *other;
	struct nlmsghdr *h;

	if (nl_link_name(name) != SP_OK || nl_link_name(peer) != SP_OK)
		return nl_sock_fail(n, EINVAL);
	h = nl_link_begin_link(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
	mnl_attr_put_strz(h, IFLA_IFNAME, name);
	info = mnl_attr_nest_start(h, IFLA_LINKINFO);
	mnl_attr_put_strz(h, IFLA_INFO_KIND, "veth");
	data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
	other = mnl_attr_nest_start(h, VETH_INFO_PEER);
	/* the peer's attributes follow a header of its own */
	(void)mnl_nlmsg_put_extra_header(h, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(h, IFLA_IFNAME, peer);
	mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)ns_fd);
	mnl_attr_nest_end(h, other);
	mnl_attr_nest_end(h, data);
	mnl_attr_nest_end(h, info);
	return nl_sock_ask(n, h);
}

static int
nl_link_on_index(const struct nlmsghdr *h, void *arg)
{
	const struct ifinfomsg *i = mnl_nlmsg_get_payload(h);

	if (h->nlmsg_type == RTM_NEWLINK &&
	    mnl_nlmsg_get_payload_len(h) >= sizeof(*i))
		*(uint32_t *)arg = (uint32_t)i->ifi_index;
	return SP_OK;
}

int
nl_link_index(struct nl_sock *n, const char *name, uint32_t *index)
{
	struct nl_link_msg m;
	struct nlmsghdr *h;
	int rc;

	*index = 0;
	if (nl_link_name(name) != SP_OK)
		return nl_sock_fail(n, EINVAL);
	h = nl_link_begin_link(&m, RTM_GETLINK, NLM_F_ACK, 0);
	mnl_attr_put_strz(h, IFLA_IFNAME, name);
	rc = nl_sock_get(n, h, nl_link_on_index, index);
	if (rc == SP_OK && *index == 0)
		rc = nl_sock_fail(n, ENODEV);
	return rc;
}

int
nl_link_up(struct nl_sock *n, uint32_t index)
{
	struct nl_link_msg m;
	struct nlmsghdr *h = nl_link_begin_link(&m, RTM_NEWLINK, 0, index);
	struct ifinfomsg *i = mnl_nlmsg_get_payload(h);

	i->ifi_flags = IFF_UP;
	i->ifi_change = IFF_UP;
	return nl_sock_ask(n, h);
}

int
nl_link_delete(struct nl_sock *n, const char *name)
{
	struct nl_link_msg m;
	struct nlmsghdr *h;

	if (nl_link_name(name) != SP_OK)
		return nl_sock_fail(n, EINVAL);
	h = nl_link_begin_link(&m, RTM_DELLINK, 0, 0);
	mnl_attr_put_strz(h, IFLA_IFNAME, name);
	return nl_sock_ask(n, h);
}

int
nl_link_address(struct nl_sock *n, uint32_t index, uint32_t addr,
    uint8_t prefix)
{
	struct nl_link_msg m;
	struct nlmsghdr *h =
	    nl_link_begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
	struct ifaddrmsg *a = mnl_nlmsg_put_extra_header(h, sizeof(*a));

	a->ifa_family = AF_INET;
	a->ifa_prefixlen = prefix;
	a->ifa_scope = RT_SCOPE_UNIVERSE;
	a->ifa_index = index;
	mnl_attr_put_u32(h, IFA_LOCAL, htonl(addr));
	mnl_attr_put_u32(h, IFA_ADDRESS, htonl(addr));
	return nl_sock_ask(n, h);
}

static struct nlmsghdr *
nl_link_begin_route(struct nl_link_msg *m, uint8_t prefix, uint8_t scope)
{
	struct nlmsghdr *h =
	    nl_link_begin(m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
	struct rtmsg *r = mnl_nlmsg_put_extra_header(h, sizeof(*r));

	r->rtm_family = AF_INET;
	r->rtm_dst_len = prefix;
	r->rtm_table = RT_TABLE_MAIN;
	r->rtm_protocol = RTPROT_STATIC;
	r->rtm_scope = scope;
	r->rtm_type = RTN_UNICAST;
	return h;
}

int
nl_link_default(struct nl_sock *n, uint32_t index, uint32_t gateway,
    uint32_t source)
{
	struct nl_link_msg m;
	struct nlmsghdr *h = nl_link_begin_route(&m, 0,
	    gateway != 0 ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK);

	mnl_attr_put_u32(h, RTA_OIF, index);
	if (gateway != 0)
		mnl_attr_put_u32(h, RTA_GATEWAY, htonl(gateway));
	if (source != 0)
		mnl_attr_put_u32(h, RTA_PREFSRC, htonl(source));
	return nl_sock_ask(n, h);
}

int
nl_link_route(struct nl_sock *n, uint32_t net, uint8_t prefix, uint32_t gateway)
{
	struct nl_link_msg m;
	struct nlmsghdr *h = nl_link_begin_route(&m, prefix, RT_SCOPE_UNIVERSE);

	mnl_attr_put_u32(h, RTA_DST, htonl(net));
	mnl_attr_put_u32(h, RTA_GATEWAY, htonl(gateway));
	return nl_sock_ask(n, h);
}

struct nl_link_walk {
	const char *prefix;
	int (*each)(const char *name, void *arg);
	void *arg;
};

static int
nl_link_on_attribute(const struct nlattr *a, void *arg)
{
	const char **name = arg;

	if (mnl_attr_get_type(a) == IFLA_IFNAME &&
	    mnl_attr_validate(a, MNL_TYPE_NUL_STRING) >= 0)
		*name = mnl_attr_get_str(a);
	return MNL_CB_OK;
}

static int
nl_link_on_link(const struct nlmsghdr *h, void *arg)
{
	const struct nl_link_walk *w = arg;
	const char *name = NULL;

	if (h->nlmsg_type != RTM_NEWLINK ||
	    mnl_nlmsg_get_payload_len(h) < sizeof(struct ifinfomsg))
		return SP_OK;
	(void)mnl_attr_parse(h, sizeof(struct ifinfomsg), nl_link_on_attribute,
	    &name);
	if (name == NULL || strncmp(name, w->prefix, strlen(w->prefix)) != 0)
		return SP_OK;
	return w->each(name, w->arg);
}

int
nl_link_list(struct nl_sock *n, const char *prefix,
    int (*each)(const char *name, void *arg), void *arg)
{
	struct nl_link_walk w = { prefix, each, arg };
	struct nl_link_msg m;

	return nl_sock_list(n, nl_link_begin_link(&m, RTM_GETLINK, 0, 0),
	    nl_link_on_link, &w);
}
