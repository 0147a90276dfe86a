#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "gate/relay_rules.h"

static bool
rule_has_port(const struct conf_env_rule *r, uint16_t port)
{
	return port >= r->port_low && port <= r->port_high;
}

static bool
rule_has_name(const struct conf_env_rule *r, struct view name)
{
	struct view below;

	if (!view_starts(r->host, VIEW("*.")))
		return view_eq(r->host, name);
	/* with its dot, and something in front of that */
	below = view_from(r->host, 1);
	return name.n > below.n && view_ends(name, below);
}

const struct conf_env_rule *
relay_rules_host(const struct conf_environment *e, struct view name,
    uint16_t port)
{
	size_t i;

	for (i = 0; i < e->rules_n; i++) {
		const struct conf_env_rule *r = &e->rules[i];

		if (r->is_host && rule_has_port(r, port) &&
		    rule_has_name(r, name))
			return r;
	}
	return NULL;
}

const struct conf_env_rule *
relay_rules_addr(const struct conf_environment *e, uint32_t addr, uint16_t port)
{
	size_t i;

	if (conf_env_protected(addr, 32))
		return NULL;
	for (i = 0; i < e->rules_n; i++) {
		const struct conf_env_rule *r = &e->rules[i];
		uint32_t mask =
		    r->prefix == 0 ? 0 : UINT32_MAX << (32 - r->prefix);

		if (!r->is_host && r->proto == IPPROTO_TCP &&
		    rule_has_port(r, port) && (addr & mask) == r->net)
			return r;
	}
	return NULL;
}

bool
relay_rules_hosts(const struct conf_environment *e, uint16_t port)
{
	size_t i;

	for (i = 0; i < e->rules_n; i++)
		if (e->rules[i].is_host && rule_has_port(&e->rules[i], port))
			return true;
	return false;
}

bool
relay_rules_is_local(int fd, uint32_t addr)
{
	struct in_addr a = { .s_addr = htonl(addr) };

	if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &a, sizeof(a)) == 0)
		return true;
	return errno != EADDRNOTAVAIL;
}
