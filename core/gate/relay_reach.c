#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "gate/relay_priv.h"
#include "gate/relay_rules.h"
#include "os/fd.h"

/* Whether a rule may open it: neither protected nor this host's own. */
static bool
reach_may(const struct relay *r, uint32_t addr)
{
	if (r->w.reachable != NULL)
		return r->w.reachable(r->w.arg, addr);
	return !conf_env_protected(addr, 32) &&
	    !relay_rules_is_local(r->probe, addr);
}

static uint32_t
reach_ipv4(const struct resolver_addr *a)
{
	const struct sockaddr_in *in = (const void *)&a->sa;

	return ntohl(in->sin_addr.s_addr);
}

static void
reach_own(struct relay_conn *c, int fd)
{
	const struct stream_owner owner = { relay_connect_ready, c };
	const struct stream_side side = { .server = false };
	int rc =
	    stream_new(c->place->relay->w.loop, fd, &side, &owner, &c->out);

	if (rc == SP_OK) {
		stream_want(c->out, 0);
		relay_connect_reached(c);
	} else {
		c->out = NULL;
		relay_refuse(c, RELAY_FAILED, "memory", 503,
		    "no memory for another connection");
	}
}

static void
reach_dialled(void *arg, int err, int fd, const struct resolver_addr *addr)
{
	struct relay_conn *c = arg;

	c->dial = NULL;
	if (err != SP_OK) {
		relay_refuse(c, RELAY_FAILED, err_str(err),
		    err == SP_E_TIMEOUT ? 504 : 502,
		    "the host cannot be reached");
		return;
	}
	c->addr = reach_ipv4(addr);
	/* the host may have got an address since it was asked */
	if (!reach_may(c->place->relay, c->addr)) {
		fd_close(&fd);
		relay_refuse(c, RELAY_DENIED, "protected", 403,
		    "the host's address is one that no rule opens");
		return;
	}
	reach_own(c, fd);
}

static void
reach_dial(struct relay_conn *c, const struct resolver_addr *v, size_t n)
{
	const struct dial_params p = { .addrs = v,
		.n = n,
		.timeout_ms = RELAY_DIAL_MS,
		.stagger_ms = DIAL_STAGGER_MS };
	int rc =
	    dial_start(c->place->relay->w.loop, &p, reach_dialled, c, &c->dial);

	if (rc == SP_OK)
		return;
	c->dial = NULL;
	relay_refuse(c, RELAY_FAILED, "memory", 503,
	    "no memory for another connection");
}

/*
 * A name that has an address which no rule may open is one that somebody has
 * turned against us, or a mistake: none of its addresses is used then.
 */
static void
reach_resolved(void *arg, int err, const struct resolver_addr *v, size_t n)
{
	struct relay_conn *c = arg;
	struct resolver_addr use[RESOLVER_ADDRS_MAX];
	size_t i, used = 0;

	c->query = NULL;
	for (i = 0; err == SP_OK && i < n; i++) {
		/* no IPv6 leaves */
		if (v[i].sa.ss_family != AF_INET)
			continue;
		if (!reach_may(c->place->relay, reach_ipv4(&v[i]))) {
			c->addr = reach_ipv4(&v[i]);
			relay_refuse(c, RELAY_DENIED, "protected", 403,
			    "the host's address is one that no rule opens");
			return;
		}
		use[used++] = v[i];
	}
	if (used > 0) {
		reach_dial(c, use, used);
		return;
	}
	relay_refuse(c, RELAY_FAILED, "name", err == SP_E_TIMEOUT ? 504 : 502,
	    "the host's name has no IPv4 address");
}

static void
reach_begin(struct relay_conn *c)
{
	c->state = RELAY_ST_REACH;
	stream_want(c->in, 0);
	loop_timer_set(c->timer, RELAY_REACH_MS);
}

void
relay_reach_name(struct relay_conn *c)
{
	int rc;

	reach_begin(c);
	rc = resolver_start(c->place->relay->w.resolver, relay_conn_name(c),
	    c->port, reach_resolved, c, &c->query);
	if (rc == SP_OK)
		return;
	c->query = NULL;
	relay_refuse(c, RELAY_FAILED, err_str(rc), 503,
	    "the host's name cannot be looked up now");
}

void
relay_reach_addr(struct relay_conn *c)
{
	struct resolver_addr a = { .len = sizeof(struct sockaddr_in) };
	struct sockaddr_in *in = (void *)&a.sa;

	if (!reach_may(c->place->relay, c->addr)) {
		relay_refuse(c, RELAY_DENIED, "protected", 403,
		    "an address that no rule opens");
		return;
	}
	reach_begin(c);
	in->sin_family = AF_INET;
	in->sin_port = htons(c->port);
	in->sin_addr.s_addr = htonl(c->addr);
	reach_dial(c, &a, 1);
}
