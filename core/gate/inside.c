#include "config.h"

#include "gate/inside.h"

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf_env.h"
#include "gate/gate_priv.h"
#include "os/fd.h"

enum {
	INSIDE_DOORS = 1000, /* indexes from here are no `inside` block's */
	INSIDE_PER_EPISODE = CONF_ENV_INSIDE_MAX + 4, /* that may wait */
	INSIDE_NAME_MAX = 512,
};

/* A descriptor that came for a place, until that place is gone. */
struct inside_port {
	LIST_ENTRY(inside_port) link;
	uint32_t slot, generation;
	uint32_t index; /* of the listener */
	bool is_source, files; /* no listener: NFLOG, or a watch */
	int fd; /* waits for its episode, or is kept; -1 */
	struct episode *ep; /* NULL: not made yet, or closing */
	struct gate_port *port; /* that it opened; NULL */
};

struct inside {
	struct gate *gate;
	LIST_HEAD(, inside_port) ports;
	struct loop_task *task; /* cuts the connections of those that close */
	struct inside_hooks hooks;
	void *source_arg;
};

/* ---- life ------------------------------------------------------------------- */

static void
inside_port_free(struct inside_port *p)
{
	LIST_REMOVE(p, link);
	fd_close(&p->fd);
	if (p->port != NULL) {
		p->port->inside = NULL;
		generation_unref(p->port->pinned);
		p->port->pinned = NULL;
	}
	mem_free(p);
}

/* Nobody is let in from the moment of closing; now who is in leaves. */
static void
inside_on_task(void *arg)
{
	struct inside *in = arg;
	struct inside_port *p, *next;

	for (p = LIST_FIRST(&in->ports); p != NULL; p = next) {
		next = LIST_NEXT(p, link);
		if (p->port == NULL || p->ep != NULL)
			continue;
		front_cut(in->gate->front, p->port->id);
		inside_port_free(p);
	}
}

struct inside *
inside_new(struct gate *g)
{
	struct inside *in = mem_calloc(1, sizeof(*in));

	if (in == NULL)
		return NULL;
	in->gate = g;
	LIST_INIT(&in->ports);
	in->task = loop_task_new(g->loop, inside_on_task, in);
	if (in->task == NULL) {
		mem_free(in);
		return NULL;
	}
	return in;
}

void
inside_free(struct inside *in)
{
	struct inside_port *p;

	if (in == NULL)
		return;
	while ((p = LIST_FIRST(&in->ports)) != NULL)
		inside_port_free(p);
	loop_task_free(in->task);
	mem_free(in);
}

void
inside_set_hooks(struct inside *in, const struct inside_hooks *h)
{
	in->hooks.door = h->door;
	in->hooks.arg = h->arg;
	if (h->source != NULL)
		inside_set_source(in, h->source, h->arg);
}

void
inside_set_source(struct inside *in,
    void (*source)(void *arg, struct episode *ep, bool files, int fd),
    void *arg)
{
	in->hooks.source = source;
	in->source_arg = arg;
}

const struct episode *
inside_episode(const struct inside_port *p)
{
	return p->ep;
}

/* ---- what the helper sends -------------------------------------------------- */

static void
inside_add(struct inside *in, const struct inside_port *what)
{
	struct inside_port *p;
	unsigned n = 0;
	int fd = what->fd;

	LIST_FOREACH (p, &in->ports, link)
		n += p->slot == what->slot && p->generation == what->generation;
	p = n < INSIDE_PER_EPISODE ? mem_calloc(1, sizeof(*p)) : NULL;
	if (p == NULL) {
		log_error("a listener of slot %u is closed: %s", what->slot,
		    err_str(n < INSIDE_PER_EPISODE ? SP_E_NOMEM : SP_E_LIMIT));
		fd_close(&fd);
		return;
	}
	*p = *what;
	LIST_INSERT_HEAD(&in->ports, p, link);
}

void
inside_listener(void *arg, uint32_t slot, uint32_t generation, uint32_t index,
    int fd)
{
	const struct inside_port p = { .slot = slot,
		.generation = generation,
		.index = index,
		.fd = fd };

	inside_add(arg, &p);
}

void
inside_source(void *arg, uint32_t slot, uint32_t generation, bool files, int fd)
{
	struct inside *in = arg;
	struct episode *ep = episode_at(in->gate->episodes, slot, generation);
	const struct inside_port p = { .slot = slot,
		.generation = generation,
		.is_source = true,
		.files = files,
		.ep = ep,
		.fd = fd };

	/* one that comes after its episode was made goes on at once */
	if (ep != NULL && in->hooks.source != NULL)
		in->hooks.source(in->source_arg, ep, files, fd);
	else
		inside_add(in, &p);
}

/* ---- opening ---------------------------------------------------------------- */

/* For the log: "echo 127.0.0.1:7000 (inside)". */
static char *
inside_name(const struct gate_door *d)
{
	struct buf b = BUF_INIT(INSIDE_NAME_MAX);
	char *name = NULL;

	if (buf_printf(&b, "%.*s %.*s:%u (inside)",
		VIEW_ARG(d->servers[0]->environment->name),
		VIEW_ARG(d->conf->address), d->conf->port) == SP_OK)
		name = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	return name;
}

static int
inside_open(struct inside *in, struct inside_port *p, struct episode *ep)
{
	struct gate *g = in->gate;
	struct gate_door *d =
	    generation_inside(g->current, view_str(ep->env), p->index);
	int fd = p->fd;
	char *name;

	if (d == NULL)
		return SP_E_NOTFOUND;
	name = inside_name(d);
	if (name == NULL)
		return SP_E_NOMEM;
	p->port = gate_port_get(g, name);
	if (p->port == NULL)
		return SP_E_NOMEM;
	p->port->inside = p;
	p->port->door = d;
	p->fd = -1;
	return gate_port_listen(g, p->port, fd);
}

static void
inside_made_listener(struct inside *in, struct inside_port *p,
    struct episode *ep)
{
	int rc = inside_open(in, p, ep);

	if (rc == SP_OK)
		return;
	/* what connects to it gets no answer; all else works */
	log_error("episode %s: its listener %u is closed: %s", ep->id, p->index,
	    err_str(rc));
	if (p->port != NULL)
		p->port->door = NULL;
	inside_port_free(p);
}

static void
inside_made(struct inside *in, struct inside_port *p, struct episode *ep)
{
	const struct inside_hooks *h = &in->hooks;
	struct inside_port was = *p;

	p->ep = ep;
	if (!p->is_source && p->index < INSIDE_DOORS) {
		inside_made_listener(in, p, ep);
		return;
	}
	if (p->is_source ? h->source == NULL : h->door == NULL)
		return; /* kept */
	p->fd = -1;
	inside_port_free(p);
	if (was.is_source)
		h->source(in->source_arg, ep, was.files, was.fd);
	else
		h->door(h->arg, ep, was.index, was.fd);
}

/* ---- closing ---------------------------------------------------------------- */

static void
inside_close(struct inside *in, struct inside_port *p)
{
	p->ep = NULL;
	if (p->port == NULL) {
		inside_port_free(p);
		return;
	}
	listener_free(p->port->listener);
	p->port->listener = NULL;
	p->port->door = NULL;
	loop_task_post(in->task);
}

void
inside_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct inside *in = arg;
	struct inside_port *p, *next;

	if (n->what != EPISODE_MADE && n->what != EPISODE_CLOSING &&
	    n->what != EPISODE_ENDED)
		return;
	for (p = LIST_FIRST(&in->ports); p != NULL; p = next) {
		next = LIST_NEXT(p, link);
		if (n->what != EPISODE_MADE) {
			if (p->ep == ep)
				inside_close(in, p);
		} else if (p->ep == NULL && p->port == NULL &&
		    p->slot == ep->slot && p->generation == ep->generation) {
			inside_made(in, p, ep);
		}
	}
}

/* ---- another generation ----------------------------------------------------- */

static bool
inside_same(struct view name, const struct conf *a, const struct conf *b)
{
	const struct conf_environment *was = conf_env_find(a, name);
	const struct conf_environment *is = conf_env_find(b, name);

	return was != NULL && is != NULL && conf_env_same(was, is);
}

/* before: the generation that was the current one, still held. */
void
inside_commit(struct inside *in, struct generation *before)
{
	struct generation *now = in->gate->current, *was;
	struct inside_port *p;
	struct gate_door *d;

	LIST_FOREACH (p, &in->ports, link) {
		if (p->port == NULL || p->ep == NULL)
			continue;
		was = p->port->pinned != NULL ? p->port->pinned : before;
		d = inside_same(view_str(p->ep->env), was->conf, now->conf)
		    ? generation_inside(now, view_str(p->ep->env), p->index)
		    : NULL;
		if (d != NULL) {
			p->port->door = d;
			generation_unref(p->port->pinned);
			p->port->pinned = NULL;
			continue;
		}
		p->port->door =
		    generation_inside(was, view_str(p->ep->env), p->index);
		if (p->port->pinned == NULL)
			p->port->pinned = generation_ref(was);
	}
}
