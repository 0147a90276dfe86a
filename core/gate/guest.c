/* Connections of clients, as they count towards the limits of a listener. */
#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/gate_priv.h"
#include "os/fd.h"
#include "os/sock.h"

enum {
	GUEST_EXTRA_MAX = 64, /* over a limit, so that they are told why */
	GUEST_NAME_MAX = 64,
	GUEST_INSIDE_PART = 16, /* of all connections */
	GUEST_INSIDE_MIN = 8,
};

struct gate_guest {
	struct gate *gate;
	struct gate_port *port;
	struct quota_place *listener, *address;
	bool extra; /* it has no place */
	enum admission_word why; /* then */
};

/*
 * Whom an address stands for: an IPv6 host has a /64 to choose from.  On a
 * unix socket all are one.
 */
static struct view
guest_name(unsigned port, int fd, char *out)
{
	size_t n = 0, i,
	       at = (size_t)snprintf(out, GUEST_NAME_MAX, "%u:", port);
	uint8_t ip[16];

	if (sock_peer_ip(fd, ip, &n) != SP_OK)
		n = 0;
	n = n == 16 ? 8 : n;
	for (i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, GUEST_NAME_MAX - at, "%02x",
		    ip[i]);
	return view_of(out, at);
}

static enum admission_word
guest_outcome(int rc, enum admission_word limit)
{
	return rc == SP_OK     ? ADMISSION_NOW
	    : rc == SP_E_LIMIT ? limit
			       : ADMISSION_NOMEM;
}

/*
 * Of an episode's listener a part of what there is for all of them, unless it
 * is said: its agent could take every place otherwise.
 */
static uint64_t
guest_most(const struct gate_port *p)
{
	uint64_t most = p->door->servers[0]->limits.max_connections;

	if (most > 0 || p->inside == NULL)
		return most;
	most = p->gate->current->conf->main.connections / GUEST_INSIDE_PART;
	return most > GUEST_INSIDE_MIN ? most : GUEST_INSIDE_MIN;
}

/* Takes its places. */
static enum admission_word
guest_enter(struct gate_guest *u, int fd)
{
	const struct conf_limits *l = &u->port->door->servers[0]->limits;
	struct gate *g = u->gate;
	char name[GUEST_NAME_MAX];
	enum admission_word w;

	w = guest_outcome(quota_take(g->quota,
			      view_of(&u->port->id, sizeof(u->port->id)),
			      guest_most(u->port), &u->listener),
	    ADMISSION_LISTENER);
	/* those that came before there was such a limit are not counted */
	if (w == ADMISSION_NOW && l->max_connections_per_address > 0)
		w = guest_outcome(quota_take(g->quota,
				      guest_name(u->port->id, fd, name),
				      l->max_connections_per_address,
				      &u->address),
		    ADMISSION_ADDRESS);
	return w;
}

static void
guest_left(void *arg)
{
	struct gate_guest *u = arg;

	u->gate->extra_n -= u->extra;
	quota_give(u->listener);
	quota_give(u->address);
	mem_free(u);
}

static void
guest_accept(struct gate_guest *u, int fd)
{
	struct gate_port *p = u->port;
	const struct front_guest guest = { u, guest_left };
	int rc = front_accept(u->gate->front, fd, p->door->tls, p->id,
	    u->extra ? p->door->short_limits : p->door->limits, &guest);

	if (rc == SP_OK)
		return;
	guest_left(u);
	log_warn("%s: a connection was dropped: %s", p->name, err_str(rc));
}

void
guest_come(struct gate_port *p, int fd)
{
	struct gate *g = p->gate;
	struct gate_guest *u = mem_calloc(1, sizeof(*u));

	if (u == NULL) {
		log_warn("%s: a connection was dropped: %s", p->name,
		    err_str(SP_E_NOMEM));
		fd_close(&fd);
		return;
	}
	u->gate = g;
	u->port = p;
	u->why = guest_enter(u, fd);
	if (u->why != ADMISSION_NOW) {
		/* whoever is one too many is told so, as long as there are few */
		quota_give(u->listener);
		u->listener = NULL;
		if (g->extra_n >= GUEST_EXTRA_MAX) {
			admission_refused(g->admission, u->why);
			mem_free(u);
			fd_close(&fd);
			return;
		}
		u->extra = true;
		g->extra_n++;
	}
	guest_accept(u, fd);
}

enum admission_word
guest_word(const struct exchange *x)
{
	const struct gate_guest *u = x->guest;

	return u != NULL && u->extra ? u->why : ADMISSION_NOW;
}
