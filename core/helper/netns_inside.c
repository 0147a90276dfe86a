#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "conf/conf.h"
#include "helper/netns_priv.h"
#include "helper/nl_link.h"
#include "os/fd.h"
#include "os/sock.h"

enum { NETNS_INSIDE_BACKLOG = 128 };

/*
 * Settings of a new namespace.  Those of IPv6 come before any link is up, so
 * that no address and no frame ever is; lo's own because it exists already.
 * What there is no file for, this kernel cannot do at all.
 */
static const struct netns_inside_setting {
	const char *path, *value;
	bool may_lack;
	bool root; /* cannot be said without the host's groups */
} netns_inside_settings[] = {
	{ "/proc/sys/net/ipv6/conf/all/disable_ipv6", "1", true, false },
	{ "/proc/sys/net/ipv6/conf/default/disable_ipv6", "1", true, false },
	{ "/proc/sys/net/ipv6/conf/lo/disable_ipv6", "1", true, false },
	{ "/proc/sys/net/ipv4/ip_unprivileged_port_start", "1024", true,
	    false },
	/* nobody: no ICMP sockets; every kernel's new namespaces begin so */
	{ "/proc/sys/net/ipv4/ping_group_range", "1 0", false, true },
};

int
netns_setting(const char *path, const char *value)
{
	int fd, rc;

	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	rc = fd_write_all(fd, value, strlen(value));
	fd_close(&fd);
	return rc;
}

int
netns_inside_base(struct netns_maker *m)
{
	const struct netns_inside_setting *s;
	size_t i;
	int rc;

	for (i = 0; i <
	     sizeof(netns_inside_settings) / sizeof(netns_inside_settings[0]);
	     i++) {
		s = &netns_inside_settings[i];
		if (s->root && m->plan->userns)
			continue;
		rc = netns_setting(s->path, s->value);
		if (rc != SP_OK && !(rc == SP_E_NOTFOUND && s->may_lack))
			return netns_why(m, rc, 0, s->path,
			    "is /proc/sys writable for us?");
	}
	rc = nl_link_index(&m->in, "lo", &m->lo);
	if (rc == SP_OK)
		rc = nl_link_up(&m->in, m->lo);
	if (rc != SP_OK)
		return netns_why(m, rc, m->in.error, "link lo", NULL);
	return SP_OK;
}

static int
netns_inside_open(struct netns_maker *m, uint32_t index, struct view address,
    uint16_t port, int backlog)
{
	struct netns *n = m->out;
	const char *step;
	char what[160];
	int fd, rc;

	if (n->listeners_n == NETNS_LISTENERS_MAX)
		return netns_why(m, SP_E_LIMIT, 0, "listeners of inside",
		    "fewer addresses are needed");
	rc = sock_listen_tcp(address, port, backlog, &fd, &step);
	if (rc != SP_OK) {
		(void)snprintf(what, sizeof(what), "inside %.*s:%u: %s",
		    VIEW_ARG(view_sub(address, 0, 64)), port, step);
		return netns_why(m, rc, 0, what,
		    "expected an IPv4 address of loopback and a port "
		    "besides " NETNS_DOOR_PORTS);
	}
	n->listeners[n->listeners_n++] =
	    (struct netns_listener){ .index = index, .fd = fd };
	return SP_OK;
}

static bool
netns_inside_names_hosts(const struct conf_environment *env)
{
	size_t i;

	for (i = 0; i < env->rules_n; i++)
		if (env->rules[i].is_host)
			return true;
	return false;
}

static int
netns_inside_doors(struct netns_maker *m)
{
	enum netns_way way = netns_way(m->plan);
	int rc = SP_OK;

	if (way != NETNS_NO_WAY && netns_inside_names_hosts(m->plan->env))
		rc = netns_inside_open(m, NETNS_DOOR_CONNECT, VIEW("127.0.0.1"),
		    NETNS_CONNECT_PORT, NETNS_INSIDE_BACKLOG);
	if (rc == SP_OK && way == NETNS_RELAY)
		rc = netns_inside_open(m, NETNS_DOOR_RELAY, VIEW("127.0.0.1"),
		    NETNS_RELAY_PORT, NETNS_INSIDE_BACKLOG);
	return rc;
}

int
netns_inside_listen(struct netns_maker *m)
{
	const struct conf_environment *env = m->plan->env;
	const struct conf_listen *l;
	size_t i, k;
	int rc;

	for (i = 0; env != NULL && i < env->insides_n; i++)
		for (k = 0; k < env->insides[i]->listens_n; k++) {
			l = &env->insides[i]->listens[k];
			if (l->shared)
				continue;
			rc = netns_inside_open(m, l->index, l->address, l->port,
			    l->backlog > 0 && l->backlog < 65536
				? (int)l->backlog
				: NETNS_INSIDE_BACKLOG);
			if (rc != SP_OK)
				return rc;
		}
	return env != NULL ? netns_inside_doors(m) : SP_OK;
}
