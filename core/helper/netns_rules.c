#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include <libmnl/libmnl.h>

#include "base/clock.h"
#include "helper/netns_priv.h"
#include "helper/nft_count.h"
#include "helper/nft_table.h"
#include "helper/nl_link.h"
#include "helper/nl_log.h"
#include "os/fd.h"

enum {
	NETNS_RULES_GROUP_STEP = 0x4000, /* to another choice of group */
	NETNS_RULES_GROUPS = 3,
	NETNS_RULES_FLAGS = 0x2 | 0x4, /* NFT_TABLE_F_OWNER, _PERSIST (6.9) */
	NETNS_RULES_OWNED_MS = 1000, /* until a copy of nft_fd is closed */
};

static const char netns_rules_remedy[] =
    "nf_tables with fib, connlimit, limit, log, nat, reject and interval "
    "sets is needed: CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET, CONFIG_NFT_*";

/* Groups of a namespace may be in use: another program, another slot. */
int
netns_rules_log(struct netns_maker *m)
{
	char what[40];
	int i, rc = SP_E_EXISTS, error = 0;

	for (i = 0; i < NETNS_RULES_GROUPS && rc == SP_E_EXISTS; i++) {
		m->group = (uint16_t)(m->plan->nflog_group +
		    i * NETNS_RULES_GROUP_STEP);
		rc = nl_log_open(m->group, &m->out->nflog_fd, &error);
	}
	if (rc == SP_OK)
		return netns_reach(m, NETNS_STEP_LOG);
	(void)snprintf(what, sizeof(what), "NFLOG group %u", m->group);
	return netns_why(m, rc, rc == SP_E_EXISTS ? EBUSY : error, what,
	    rc == SP_E_EXISTS ? "another program listens to it"
			      : "CONFIG_NETFILTER_NETLINK_LOG is needed");
}

/* One attempt; what: which message the kernel did not like. */
static int
netns_rules_send(const struct nft_table *t, struct nl_sock *n, unsigned kind,
    const char **what)
{
	struct nft_batch b;
	int rc;

	nft_batch_open(&b, t->plan->table);
	if (kind == NETNS_RULES_HOST)
		nft_table_host(&b, t);
	else if (kind == NETNS_RULES_INSIDE)
		nft_table_inside(&b, t);
	else
		nft_table_alone(&b, t, kind == NETNS_RULES_RELAY);
	rc = nft_batch_send(&b, n);
	*what = b.failed;
	nft_batch_close(&b);
	return rc;
}

int
netns_rules_put(struct netns_maker *m, struct nl_sock *n, unsigned kind)
{
	struct nft_table t = { .plan = m->plan,
		.allow = &m->allow,
		.group = m->group,
		.flags = kind == NETNS_RULES_HOST ? NETNS_RULES_FLAGS : 0 };
	const char *failed;
	char what[160];
	int rc;

	n->error = 0;
	rc = netns_rules_send(&t, n, kind, &failed);
	if (t.flags != 0 && (n->error == EOPNOTSUPP || n->error == EINVAL)) {
		/* an older kernel: then the inner table alone is the spare */
		t.flags = 0;
		rc = netns_rules_send(&t, n, kind, &failed);
	}
	m->owned = t.flags != 0;
	if (rc == SP_OK)
		return rc;
	(void)snprintf(what, sizeof(what), "rules, table %s%s: %s",
	    m->plan->table, kind == NETNS_RULES_HOST ? "" : " inside",
	    failed != NULL ? failed : "transaction");
	if (rc == SP_E_NOTFOUND || n->error == EINVAL)
		rc = SP_E_UNSUPPORTED;
	return netns_why(m, rc, n->error, what,
	    rc == SP_E_EXISTS       ? "it is of an earlier run: sweep"
		: rc == SP_E_DENIED ? "root (CAP_NET_ADMIN) is needed"
				    : netns_rules_remedy);
}

int
netns_rules_allow(struct netns_maker *m, bool hosts)
{
	int rc = nft_allow_make(&m->allow, m->plan->env, hosts);

	if (rc == SP_E_LIMIT)
		return netns_why(m, rc, 0, "rules of egress",
		    "networks in networks with many ports come to too many");
	return rc != SP_OK ? netns_why(m, rc, 0, "rules of egress", NULL)
			   : SP_OK;
}

/*
 * Deletes a table; one that is not there is fine.  A process that was forked
 * a moment ago may still hold a copy of the owner's descriptor.
 */
int
netns_rules_drop(struct nl_sock *n, const char *table)
{
	uint64_t until = clock_ms() + NETNS_RULES_OWNED_MS;
	struct timespec nap = { 0, 5 * 1000 * 1000 };
	struct nft_batch b;
	int rc;

	n->error = 0;
	rc = nft_batch_find(n, table);
	while (rc == SP_OK) {
		n->error = 0;
		nft_batch_open(&b, table);
		nft_batch_drop(&b);
		rc = nft_batch_send(&b, n);
		nft_batch_close(&b);
		if (rc != SP_E_DENIED || clock_ms() >= until)
			break;
		(void)nanosleep(&nap, NULL);
		rc = SP_OK;
	}
	/* no nf_tables in this kernel: no table */
	if (rc == SP_E_NOTFOUND || rc == SP_E_UNSUPPORTED || n->error == EINVAL)
		return SP_OK;
	return rc;
}

static int
netns_rules_read(const char *table, struct netns_counts *out)
{
	struct nl_sock n;
	int rc;

	rc = nl_sock_open(&n, NETLINK_NETFILTER);
	if (rc == SP_OK)
		rc =
		    nft_count_read(&n, table, NFT_TABLE_ALLOWED, &out->allowed);
	if (rc == SP_OK)
		rc = nft_count_read(&n, table, NFT_TABLE_DENIED, &out->denied);
	nl_sock_close(&n);
	return rc;
}

int
netns_count(const struct netns_plan *p, int ns_fd, struct netns_counts *out)
{
	int self, rc;

	out->allowed = out->denied = 0;
	if (netns_way(p) == NETNS_VETH)
		return netns_rules_read(p->table, out);
	rc = netns_here(&self);
	if (rc != SP_OK)
		return rc;
	if (setns(ns_fd, CLONE_NEWNET) != 0) {
		rc = err_from_errno(errno);
	} else {
		rc = netns_rules_read(p->table, out);
		err_assert(setns(self, CLONE_NEWNET) == 0);
	}
	fd_close(&self);
	return rc;
}
