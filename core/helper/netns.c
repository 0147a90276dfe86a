#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "helper/netns.h"
#include "helper/netns_priv.h"
#include "helper/nl_link.h"
#include "helper/nl_sock.h"
#include "os/fd.h"

#define NETNS_POOL 0xc6120000U /* 198.18.0.0/15 */
#define NETNS_MARK 0x53500000U /* of conntrack entries, above the slot */
#define NETNS_GROUP 0x4000U /* of NFLOG */

#if !SP_CONFINEMENT
int (*netns_failpoint)(unsigned step);
#endif

void
netns_plan(struct netns_plan *p, uint32_t slot, uint32_t generation,
    const struct conf_environment *env, bool via_veth)
{
	err_assert(slot < NETNS_SLOTS_MAX + 2);
	memset(p, 0, sizeof(*p));
	p->slot = slot;
	p->generation = generation;
	p->env = env;
	p->via_veth = via_veth;
	/* the first network is left out: 198.18.0.0 reads like a mistake */
	p->host_addr = NETNS_POOL + 4 * (slot + 1) + 1;
	p->guest_addr = p->host_addr + 1;
	(void)snprintf(p->veth, sizeof(p->veth), "sp-%u", slot);
	(void)snprintf(p->table, sizeof(p->table), "sallyport-%u", slot);
	p->ct_mark = NETNS_MARK | slot;
	p->nflog_group = (uint16_t)(NETNS_GROUP + slot % NETNS_GROUP);
}

enum netns_way
netns_way(const struct netns_plan *p)
{
	size_t i;

	if (p->env == NULL || p->env->rules_n == 0)
		return NETNS_NO_WAY;
	if (!p->via_veth)
		return NETNS_RELAY;
	for (i = 0; i < p->env->rules_n; i++)
		if (!p->env->rules[i].is_host)
			return NETNS_VETH;
	/* the CONNECT door is enough for names */
	return NETNS_NO_WAY;
}

void
netns_init(struct netns *n)
{
	size_t i;

	memset(n, 0, sizeof(*n));
	n->ns_fd = n->nflog_fd = n->nft_fd = -1;
	for (i = 0; i < NETNS_LISTENERS_MAX; i++)
		n->listeners[i].fd = -1;
}

void
netns_clear(struct netns *n)
{
	size_t i;

	fd_close(&n->ns_fd);
	fd_close(&n->nflog_fd);
	fd_close(&n->nft_fd);
	for (i = 0; i < n->listeners_n; i++)
		fd_close(&n->listeners[i].fd);
	n->listeners_n = 0;
}

int
netns_reach(struct netns_maker *m, enum netns_step step)
{
#if !SP_CONFINEMENT
	int rc = netns_failpoint != NULL ? netns_failpoint(step) : SP_OK;
	char name[32];

	(void)snprintf(name, sizeof(name), "network.%u", (unsigned)step);
	failpoint_reach(name);
	if (rc != SP_OK)
		return netns_why(m, rc, 0, "failpoint", NULL);
#else
	(void)m;
	(void)step;
#endif
	return SP_OK;
}

int
netns_why(struct netns_maker *m, int rc, int error, const char *what,
    const char *remedy)
{
	int put;

	/* a message that does not fit is cut short by its owner's maximum */
	put = buf_printf(m->err, "%s: %s%s%s", what,
	    error != 0 ? strerror(error) : err_str(rc),
	    remedy != NULL ? ", " : "", remedy != NULL ? remedy : "");
	(void)put;
	return rc;
}

int
netns_here(int *fd)
{
	*fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return *fd >= 0 ? SP_OK : err_from_errno(errno);
}

/*
 * An ordinary user's network is owned by a user namespace that is made with
 * it: root in there is all it takes to set the network up, and is nothing to
 * the host, whose networks stay out of reach.  Safe against the workload: the
 * listeners and rules are there before its keeper hears of the namespace, the
 * last process with a capability in there is that keeper (pid 1 and all that
 * it starts drop theirs for good), and the filter lets nobody inside have
 * another user namespace, join one, or speak netfilter.  No uid is mapped
 * here, as this process is a copy of the helper's, which nobody may look
 * into, so that /proc/self/uid_map is not its own: the keeper maps its one.
 */
static int
netns_user(struct netns_maker *m)
{
	int error;

	if (unshare(CLONE_NEWUSER) == 0)
		return SP_OK;
	error = errno;
	return netns_why(m, SP_E_UNSUPPORTED, error, "a user namespace",
	    "ordinary users must be allowed to have them, or start as root");
}

int
netns_space(struct netns_maker *m)
{
	bool userns = m->plan->userns;
	int error, rc;

	/* there is no way back from a user namespace */
	rc = userns ? SP_OK : netns_here(&m->self_fd);
	if (rc != SP_OK)
		return netns_why(m, rc, 0, "/proc/self/ns/net",
		    "is /proc mounted?");
	rc = userns ? netns_user(m) : SP_OK;
	if (rc != SP_OK)
		return rc;
	if (unshare(CLONE_NEWNET) != 0) {
		error = errno;
		rc = error == EPERM || error == EINVAL ? SP_E_UNSUPPORTED
						       : err_from_errno(error);
		fd_close(&m->self_fd); /* it was never left */
		return netns_why(m, rc, error, "a network namespace",
		    "root (CAP_SYS_ADMIN) and CONFIG_NET_NS are needed");
	}
	rc = netns_here(&m->out->ns_fd);
	if (rc != SP_OK)
		return netns_why(m, rc, 0, "/proc/self/ns/net", NULL);
	rc = nl_sock_open(&m->in, NETLINK_ROUTE);
	if (rc != SP_OK)
		return netns_why(m, rc, m->in.error, "rtnetlink", NULL);
	return netns_reach(m, NETNS_STEP_SPACE);
}

/*
 * In a namespace without a link everything has a route, so that rules decide,
 * and "refused" is what is read; nothing there leads out.
 */
static int
netns_alone(struct netns_maker *m, bool relay)
{
	int rc;

	rc = netns_rules_log(m);
	if (rc == SP_OK)
		rc = netns_rules_put(m, &m->in_nf,
		    relay ? NETNS_RULES_RELAY : NETNS_RULES_ALONE);
	if (rc != SP_OK)
		return rc;
	rc = nl_link_default(&m->in, m->lo, 0, INADDR_LOOPBACK);
	return rc == SP_OK
	    ? rc
	    : netns_why(m, rc, m->in.error, "default route inside", NULL);
}

static int
netns_inside_rules(struct netns_maker *m)
{
	enum netns_way way = netns_way(m->plan);
	int rc;

	rc = nl_sock_open(&m->in_nf, NETLINK_NETFILTER);
	if (rc != SP_OK)
		return netns_why(m, rc, m->in_nf.error, "netfilter",
		    "CONFIG_NETFILTER_NETLINK is needed");
	if (way == NETNS_NO_WAY)
		return netns_alone(m, false);
	rc = netns_rules_allow(m, way == NETNS_RELAY);
	if (rc != SP_OK)
		return rc;
	if (way == NETNS_RELAY)
		return netns_alone(m, true);
	return netns_rules_put(m, &m->in_nf, NETNS_RULES_INSIDE);
}

/*
 * Without any rule of egress a kernel that lacks nf_tables, or keeps it from
 * ordinary users, will do: no link, no route, nothing to tell of.
 */
static int
netns_inside_deny(struct netns_maker *m)
{
	int rc = netns_inside_rules(m);

	if ((rc == SP_E_UNSUPPORTED ||
		(rc == SP_E_DENIED && m->plan->userns)) &&
	    netns_way(m->plan) == NETNS_NO_WAY) {
		buf_reset(m->err, SIZE_MAX);
		fd_close(&m->out->nflog_fd);
		rc = SP_OK;
	}
	return rc == SP_OK ? netns_reach(m, NETNS_STEP_INSIDE) : rc;
}

static int
netns_inside(struct netns_maker *m)
{
	int rc;

	rc = netns_inside_base(m);
	if (rc == SP_OK)
		rc = netns_reach(m, NETNS_STEP_IPV6);
	if (rc == SP_OK)
		rc = netns_inside_listen(m);
	if (rc == SP_OK)
		rc = netns_reach(m, NETNS_STEP_LISTEN);
	if (rc == SP_OK)
		rc = netns_inside_deny(m);
	return rc;
}

/*
 * Back to where we came from.  A process that cannot go back would do the
 * rest of its work in a sandbox's network: it may not go on.
 */
void
netns_return(struct netns_maker *m)
{
	if (m->self_fd < 0)
		return;
	err_assert(setns(m->self_fd, CLONE_NEWNET) == 0);
	fd_close(&m->self_fd);
}

int
netns_make(const struct netns_plan *p, struct netns *out, struct buf *err)
{
	struct netns_maker m;
	int rc;

	memset(&m, 0, sizeof(m));
	netns_init(out);
	m.plan = p;
	m.out = out;
	m.err = err;
	m.self_fd = -1;
	m.group = p->nflog_group;
	rc = netns_reach(&m, NETNS_STEP_START);
	if (rc == SP_OK)
		rc = netns_space(&m);
	if (rc == SP_OK)
		rc = netns_inside(&m);
	netns_return(&m);
	if (rc == SP_OK && netns_way(p) == NETNS_VETH)
		rc = netns_host_make(&m);
	if (rc == SP_OK)
		rc = netns_reach(&m, NETNS_STEP_DONE);
	if (rc != SP_OK) {
		netns_host_undo(&m);
		netns_clear(out);
	}
	nl_sock_close(&m.in);
	nl_sock_close(&m.in_nf);
	nl_sock_close(&m.host);
	nl_sock_close(&m.host_nf);
	nft_allow_clear(&m.allow);
	return rc;
}
