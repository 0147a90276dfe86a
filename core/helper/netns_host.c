#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <stdio.h>

#include <libmnl/libmnl.h>

#include "base/failpoint.h"
#include "helper/netns_priv.h"
#include "helper/nl_conntrack.h"
#include "helper/nl_link.h"
#include "os/fd.h"

enum { NETNS_HOST_PREFIX = 30 };

/*
 * Settings of the host's end.  No IPv6, before it is up.  It forwards, whatever
 * new links do by default; an address of loopback is never reached from it.
 */
static const struct netns_host_setting {
	const char *path, *value;
	bool may_lack;
} netns_host_settings[] = {
	{ "/proc/sys/net/ipv6/conf/%s/disable_ipv6", "1", true },
	{ "/proc/sys/net/ipv4/conf/%s/forwarding", "1", false },
	{ "/proc/sys/net/ipv4/conf/%s/route_localnet", "0", true },
	{ "/proc/sys/net/ipv4/conf/%s/accept_redirects", "0", true },
	{ "/proc/sys/net/ipv4/conf/%s/send_redirects", "0", true },
};

static int
netns_host_link(struct netns_maker *m)
{
	char what[40];
	int rc;

	rc = nl_link_veth(&m->host, m->plan->veth, "eth0", m->out->ns_fd);
	if (rc == SP_OK) {
		m->made_link = true;
		return netns_reach(m, NETNS_STEP_LINK);
	}
	(void)snprintf(what, sizeof(what), "link %s (veth)", m->plan->veth);
	return netns_why(m, rc, m->host.error, what,
	    rc == SP_E_EXISTS       ? "it is of an earlier run: sweep"
		: rc == SP_E_DENIED ? "root (CAP_NET_ADMIN) is needed"
				    : "CONFIG_VETH is needed");
}

static int
netns_host_settings_put(struct netns_maker *m)
{
	const struct netns_host_setting *s;
	char path[128];
	size_t i;
	int rc;

	for (i = 0;
	     i < sizeof(netns_host_settings) / sizeof(netns_host_settings[0]);
	     i++) {
		s = &netns_host_settings[i];
		(void)snprintf(path, sizeof(path), s->path, m->plan->veth);
		rc = netns_setting(path, s->value);
		if (rc != SP_OK && !(rc == SP_E_NOTFOUND && s->may_lack))
			return netns_why(m, rc, 0, path,
			    "is /proc/sys writable for us?");
	}
	return SP_OK;
}

static int
netns_host_address(struct netns_maker *m)
{
	int rc;

	rc = nl_link_index(&m->host, m->plan->veth, &m->veth);
	if (rc == SP_OK)
		rc = nl_link_address(&m->host, m->veth, m->plan->host_addr,
		    NETNS_HOST_PREFIX);
	return rc == SP_OK
	    ? rc
	    : netns_why(m, rc, m->host.error, "address of the link", NULL);
}

/*
 * The table, and the socket that owns it, which goes with the rest to the
 * helper: as long as it is open nobody else can take the rules away.
 */
static int
netns_host_table(struct netns_maker *m)
{
	int rc;

	rc = netns_rules_put(m, &m->host_nf, NETNS_RULES_HOST);
	if (rc != SP_OK)
		return rc;
	m->made_table = true;
	if (m->owned) {
		m->out->nft_fd =
		    fcntl(mnl_socket_get_fd(m->host_nf.s), F_DUPFD_CLOEXEC, 3);
		if (m->out->nft_fd < 0)
			return netns_why(m, err_from_errno(errno), errno,
			    "owner of the table", NULL);
	}
	return netns_reach(m, NETNS_STEP_RULES);
}

/* From here on packets flow: the host's end, the other, the way out. */
static int
netns_host_up(struct netns_maker *m)
{
	uint32_t index = 0;
	int rc;

	rc = nl_link_up(&m->host, m->veth);
	if (rc != SP_OK)
		return netns_why(m, rc, m->host.error, "link up", NULL);
	rc = netns_reach(m, NETNS_STEP_UP);
	if (rc != SP_OK)
		return rc;
	rc = nl_link_index(&m->in, "eth0", &index);
	if (rc == SP_OK)
		rc = nl_link_address(&m->in, index, m->plan->guest_addr,
		    NETNS_HOST_PREFIX);
	if (rc == SP_OK)
		rc = nl_link_up(&m->in, index);
	if (rc == SP_OK)
		rc = nl_link_default(&m->in, index, m->plan->host_addr, 0);
	return rc == SP_OK
	    ? rc
	    : netns_why(m, rc, m->in.error, "link eth0 inside", NULL);
}

int
netns_host_make(struct netns_maker *m)
{
	int rc;

	rc = nl_sock_open(&m->host, NETLINK_ROUTE);
	if (rc != SP_OK)
		return netns_why(m, rc, m->host.error, "rtnetlink", NULL);
	rc = nl_sock_open(&m->host_nf, NETLINK_NETFILTER);
	if (rc != SP_OK)
		return netns_why(m, rc, m->host_nf.error, "netfilter",
		    "CONFIG_NETFILTER_NETLINK is needed");
	rc = netns_rules_log(m);
	if (rc == SP_OK)
		rc = netns_host_link(m);
	if (rc == SP_OK)
		rc = netns_host_settings_put(m);
	if (rc == SP_OK)
		rc = netns_host_address(m);
	if (rc == SP_OK)
		rc = netns_host_table(m);
	if (rc == SP_OK)
		rc = netns_host_up(m);
	return rc;
}

/* Of what could not be finished: only what we made is ours to remove. */
void
netns_host_undo(struct netns_maker *m)
{
	int rc = SP_OK, rc2 = SP_OK, put;

	if (m->made_link)
		rc = nl_link_delete(&m->host, m->plan->veth);
	/* whoever owns the table may delete it */
	if (m->made_table)
		rc2 = netns_rules_drop(&m->host_nf, m->plan->table);
	if (rc != SP_OK || rc2 != SP_OK) {
		put = buf_printf(m->err, "; what was made stays: sweep");
		(void)put;
	}
}

static void
netns_host_first(int *first, int rc, struct buf *err, const char *what,
    const struct nl_sock *n)
{
	int put;

	if (rc == SP_OK || *first != SP_OK)
		return;
	*first = rc;
	put = buf_printf(err, "%s: %s", what, nl_sock_why(n, rc));
	(void)put;
}

int
netns_cut(const struct netns_plan *p, struct buf *err)
{
	struct nl_sock n;
	int rc, first = SP_OK;

	/* asking does not wait for whoever removes another network just now */
	if (if_nametoindex(p->veth) != 0) {
		rc = nl_sock_open(&n, NETLINK_ROUTE);
		if (rc == SP_OK)
			rc = nl_link_delete(&n, p->veth);
		if (rc == SP_E_NOTFOUND)
			rc = SP_OK;
		netns_host_first(&first, rc, err, p->veth, &n);
		nl_sock_close(&n);
	}
	/* also where it went with its namespace, which the kernel does late */
	failpoint_reach("cut.link");
	rc = nl_sock_open(&n, NETLINK_NETFILTER);
	if (rc != SP_OK) {
		netns_host_first(&first, rc, err, "netfilter", &n);
		nl_sock_close(&n);
		return first;
	}
	rc = nl_conntrack_flush(&n, p->ct_mark);
	/* no conntrack in this kernel: no entries */
	if (rc == SP_E_NOTFOUND || n.error == EINVAL || rc == SP_E_UNSUPPORTED)
		rc = SP_OK;
	netns_host_first(&first, rc, err, "conntrack entries", &n);
	failpoint_reach("cut.conntrack");
	netns_host_first(&first, netns_rules_drop(&n, p->table), err, p->table,
	    &n);
	failpoint_reach("cut.table");
	nl_sock_close(&n);
	return first;
}
