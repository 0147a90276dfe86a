#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf_env.h"
#include "gate/episode.h"
#include "gate/gate_priv.h"
#include "gate/feed_files.h"
#include "gate/feed_nflog.h"
#include "gate/feed_source.h"
#include "gate/fleet.h"
#include "gate/inside.h"
#include "gate/relay_gate.h"
#include "gate/worker_gate.h"
#include "gate/worker_priv.h"
#include "gate/session.h"
#include "json/jwrite.h"
#include "os/cred.h"
#include "os/fd.h"
#include "os/sock.h"

enum {
	GATE_FULL_MS = 20, /* how often a full gate looks for room */
	GATE_DRAIN_MS = 20, /* the same for what is still to leave */
	GATE_CUT_MS = 250, /* between looks for who takes no end of his */
	GATE_LAST_MS = 500, /* what the deadline leaves for goodbyes */
	GATE_SCRATCH_MAX = 1024 * 1024,
	GATE_INSIDE_PART = 16, /* of all bytes of bodies */
};

/* ---- errors --------------------------------------------------------------- */

const char *
gate_principal_name(unsigned principals)
{
	switch (principals) {
	case GATE_AGENT:
		return "agent";
	case GATE_GRADER:
		return "grader";
	case GATE_ORCHESTRATOR:
		return "orchestrator";
	case GATE_OBSERVER:
		return "observer";
	case GATE_ADMIN:
		return "admin";
	case GATE_OPERATOR:
		return "operator";
	default:
		return NULL;
	}
}

/* What the codec refuses is answered in the same shape. */
static struct view
gate_codec_error(void *server, unsigned status, const char *what,
    struct view *type)
{
	struct gate *g = server;

	buf_reset(&g->scratch, SIZE_MAX);
	*type = VIEW("application/json");
	if (gate_error_body(status, "bad_request", view_str(what),
		&g->scratch) != SP_OK) {
		*type = VIEW("text/plain");
		return view_str(what);
	}
	return buf_view(&g->scratch);
}

/* ---- listeners ------------------------------------------------------------ */

static bool
gate_is_control(const struct gate_door *d)
{
	return d != NULL && d->servers[0]->control;
}

void
gate_listeners_arm(struct gate *g)
{
	bool paused = g->full || g->tight || !g->started;
	struct gate_port *p;
	size_t i;

	for (i = 0; i < g->ports_n; i++) {
		p = g->ports[i];
		if (p->listener == NULL)
			continue;
		/* the operator gets in however many clients there are */
		if (g->started && gate_is_control(p->door))
			listener_pause(p->listener, false);
		else /* without a door: of a generation to come */
			listener_pause(p->listener, paused || p->door == NULL);
	}
}

static void
gate_listeners_close(struct gate *g)
{
	size_t i;

	for (i = 0; i < g->ports_n; i++) {
		listener_free(g->ports[i]->listener);
		g->ports[i]->listener = NULL;
	}
}

static bool
gate_is_full(const struct gate *g)
{
	struct front_stats st;

	front_stats(g->front, &st);
	return st.connections >= g->current->conf->main.connections;
}

static void
gate_accept(void *arg, struct listener *from, int fd)
{
	struct gate_port *p = arg;
	struct gate *g = p->gate;

	(void)from;
	if (gate_is_control(p->door) &&
	    cred_peer(fd, g->control_gid) != SP_OK) {
		log_warn("control: a connection of another user was closed");
		fd_close(&fd);
		return;
	}
	guest_come(p, fd);
	if (!g->full && gate_is_full(g)) {
		g->full = true;
		log_warn("%llu connections are open, the most that are "
			 "allowed: no more until one closes; see connections",
		    (unsigned long long)g->current->conf->main.connections);
		gate_listeners_arm(g);
		loop_timer_set(g->timer, GATE_FULL_MS);
	}
}

/* As configured; for port 0 what the kernel chose, once there is a socket. */
static char *
gate_port_name(const struct gate_door *d, int fd)
{
	const struct conf_listen *c = d->conf;
	bool v6 = !c->is_unix && view_find(c->address, ':') < c->address.n;
	struct buf b = BUF_INIT(1024);
	char *name = NULL;
	int rc;

	if (gate_is_control(d))
		rc = buf_add_str(&b, "control");
	else if (c->is_unix)
		rc = buf_printf(&b, "unix:%.*s", VIEW_ARG(c->address));
	else if (c->port == 0 && fd >= 0)
		rc = sock_name(fd, &b);
	else
		rc = buf_printf(&b, "%s%.*s%s:%u", v6 ? "[" : "",
		    VIEW_ARG(c->address), v6 ? "]" : "", c->port);
	if (rc == SP_OK)
		name = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	return name;
}

/*
 * A port of that name, without a socket: one that is closed, or a new one.
 * So there are never more than different addresses were listened on.
 */
struct gate_port *
gate_port_get(struct gate *g, char *name)
{
	struct gate_port *p, **grown;
	size_t i;

	for (i = 0; i < g->ports_n; i++) {
		p = g->ports[i];
		if (p->listener != NULL || p->door != NULL ||
		    p->inside != NULL || strcmp(p->name, name) != 0)
			continue;
		mem_free(name);
		return p;
	}
	grown = mem_reallocarray(g->ports, g->ports_n + 1,
	    sizeof(struct gate_port *));
	p = grown != NULL ? mem_calloc(1, sizeof(*p)) : NULL;
	if (grown != NULL)
		g->ports = grown;
	if (p == NULL) {
		mem_free(name);
		return NULL;
	}
	p->gate = g;
	p->id = (unsigned)g->ports_n;
	p->name = name;
	g->ports[g->ports_n++] = p;
	return p;
}

static int
gate_door_port(struct gate *g, struct gate_door *d, int fd)
{
	char *name = gate_port_name(d, fd);

	if (name == NULL)
		return SP_E_NOMEM;
	if (d->port == NULL) {
		d->port = gate_port_get(g, name);
		return d->port != NULL ? SP_OK : SP_E_NOMEM;
	}
	mem_free(d->port->name);
	d->port->name = name;
	return SP_OK;
}

int
gate_port_listen(struct gate *g, struct gate_port *p, int fd)
{
	int rc = g->draining
	    ? SP_E_STATE
	    : listener_new(g->loop, fd, gate_accept, p, &p->listener);

	if (rc != SP_OK)
		fd_close(&fd);
	else
		gate_listeners_arm(g);
	return rc;
}

uint64_t
gate_port_bodies(const struct gate_port *p, uint64_t most)
{
	const struct gate *g = p->gate;
	uint64_t all = admission_body_max(g->admission);
	uint64_t memory = pressure_max(g->pressure);

	if (p->inside == NULL)
		return UINT64_MAX;
	all = (memory < all ? memory : all) / GATE_INSIDE_PART;
	return all > most ? all : most;
}

/* A socket for a door of that generation; nothing is accepted yet. */
static int
gate_open_door(struct gate *g, struct generation *n, unsigned index, int fd)
{
	struct gate_door *d = index < n->doors_n ? &n->doors[index] : NULL;
	int rc = SP_E_ARG;

	if (d != NULL && (d->port == NULL || d->port->listener == NULL))
		rc = gate_door_port(g, d, fd);
	if (rc == SP_OK)
		rc = listener_new(g->loop, fd, gate_accept, d->port,
		    &d->port->listener);
	if (rc != SP_OK) {
		fd_close(&fd);
		return rc;
	}
	listener_pause(d->port->listener, true);
	return SP_OK;
}

int
gate_listen(struct gate *g, unsigned index, int fd)
{
	int rc = gate_open_door(g, g->current, index, fd);

	if (rc == SP_OK && g->started)
		listener_pause(g->current->doors[index].port->listener, false);
	return rc;
}

/* The first generation's ports, which wait for their sockets. */
static int
gate_first_ports(struct gate *g)
{
	struct gate_door *d;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < g->current->doors_n && rc == SP_OK; i++) {
		d = &g->current->doors[i];
		rc = gate_door_port(g, d, -1);
		if (rc == SP_OK)
			d->port->door = d;
	}
	return rc;
}

/* ---- another generation --------------------------------------------------- */

static int
gate_check_server(const struct conf_server *s, struct buf *err)
{
	size_t i;

	for (i = 0; i < s->locations_n; i++) {
		const struct conf_location *l = s->locations[i];

		if (gate_module_of(l->handler) != NULL)
			continue;
		if (buf_printf(err, "%s:%u: no module \"%s\" here", l->pos.file,
			l->pos.line, l->handler->name) != SP_OK)
			return SP_E_NOMEM;
		return SP_E_CONF;
	}
	return SP_OK;
}

/* Every location that was written has its module linked here. */
static int
gate_check_modules(const struct conf *conf, struct buf *err)
{
	size_t i, j;
	int rc = SP_OK;

	for (i = 0; i < conf->servers_n && rc == SP_OK; i++)
		rc = gate_check_server(conf->servers[i], err);
	for (i = 0; i < conf->environments_n && rc == SP_OK; i++)
		for (j = 0; j < conf->environments[i]->insides_n && rc == SP_OK;
		     j++)
			rc =
			    gate_check_server(conf->environments[i]->insides[j],
				err);
	return rc;
}

int
gate_prepare(struct gate *g, const struct gate_source *src, struct buf *err)
{
	int rc;

	if (g->next != NULL || g->draining) {
		conf_free(src->owned);
		return SP_E_STATE;
	}
	rc = gate_check_modules(src->owned, err);
	if (rc != SP_OK) {
		conf_free(src->owned);
		return rc;
	}
	return generation_new(g, src, &g->next, err);
}

int
gate_prepare_listen(struct gate *g, unsigned index, int fd)
{
	if (g->next == NULL) {
		fd_close(&fd);
		return SP_E_STATE;
	}
	return gate_open_door(g, g->next, index, fd);
}

int
gate_prepare_keep(struct gate *g, unsigned index, unsigned was)
{
	struct gate_port *p;
	size_t i;

	if (g->next == NULL)
		return SP_E_STATE;
	if (index >= g->next->doors_n || was >= g->current->doors_n ||
	    g->next->doors[index].port != NULL)
		return SP_E_ARG;
	p = g->current->doors[was].port;
	for (i = 0; i < g->next->doors_n; i++)
		if (g->next->doors[i].port == p)
			return SP_E_ARG;
	if (p == NULL || p->listener == NULL)
		return SP_E_ARG;
	g->next->doors[index].port = p;
	return SP_OK;
}

/* The control socket may be missing: another sallyport has its path. */
static bool
gate_is_open(const struct generation *n)
{
	const struct gate_door *d;
	size_t i;

	for (i = 0; i < n->doors_n; i++) {
		d = &n->doors[i];
		if (!gate_is_control(d) &&
		    (d->port == NULL || d->port->listener == NULL))
			return false;
	}
	return true;
}

bool
gate_prepared(const struct gate *g)
{
	return g->next != NULL && gate_is_open(g->next);
}

bool
gate_listening(const struct gate *g)
{
	return gate_is_open(g->current);
}

/* Ports without a door: nobody connects there any more. */
static void
gate_close_unused(struct gate *g)
{
	size_t i;

	for (i = 0; i < g->ports_n; i++) {
		if (g->ports[i]->door != NULL)
			continue;
		listener_free(g->ports[i]->listener);
		g->ports[i]->listener = NULL;
	}
}

void
gate_commit(struct gate *g)
{
	struct generation *before = g->current;
	size_t i;

	err_assert(gate_prepared(g));
	g->current = g->next;
	g->next = NULL;
	admission_set(g->admission, &g->current->conf->main);
	pressure_set(g->pressure, g->current->conf->main.memory_max_bytes);
	for (i = 0; i < g->ports_n; i++)
		g->ports[i]->door = NULL;
	for (i = 0; i < g->current->doors_n; i++)
		if (g->current->doors[i].port != NULL)
			g->current->doors[i].port->door = &g->current->doors[i];
	if (g->inside != NULL)
		inside_commit(g->inside, before);
	gate_close_unused(g);
	gate_listeners_arm(g);
	generation_unref(before);
}

void
gate_abandon(struct gate *g)
{
	if (g->next == NULL)
		return;
	generation_unref(g->next);
	g->next = NULL;
	gate_close_unused(g);
}

uint32_t
gate_generation(const struct gate *g)
{
	return g->current->number;
}

uint32_t
gate_generation_of(const struct gate_request *r)
{
	return r->generation != NULL ? r->generation->number : 0;
}

/* ---- life ----------------------------------------------------------------- */

const struct gate_module *
gate_module_of(const struct conf_module *conf)
{
	size_t i;

	for (i = 0; gate_modules[i] != NULL; i++)
		if (gate_modules[i]->conf == conf)
			return gate_modules[i];
	return NULL;
}

static int
gate_setup_modules(struct gate *g)
{
	const struct gate_module *m;
	int rc = SP_OK;

	while (rc == SP_OK && (m = gate_modules[g->modules_set_up]) != NULL) {
		if (m->setup != NULL)
			rc = m->setup(g);
		/* one that failed half way is stopped, too */
		g->modules_set_up++;
	}
	return rc;
}

static bool
gate_drained_now(const struct gate *g)
{
	/* the ends of turns are with the recorder, and on file */
	return g->walks_n == 0 && turn_recorder_backlog(g->recorder) == 0 &&
	    turn_recorder_open(g->recorder) == 0;
}

static void
gate_tell_drained(struct gate *g)
{
	if (g->drained_told)
		return;
	g->drained_told = true;
	loop_timer_stop(g->timer);
	g->drained(g->drained_arg);
}

static void
gate_on_drain_task(void *arg)
{
	struct gate *g = arg;

	if (!g->draining || g->drained_told)
		return;
	if (gate_drained_now(g))
		gate_tell_drained(g);
	else if (!g->deadline)
		loop_timer_set(g->timer,
		    g->walks_n > 0 ? GATE_CUT_MS : GATE_DRAIN_MS);
}

static void
gate_on_timer(void *arg)
{
	struct gate *g = arg;

	if (g->draining) {
		if (g->deadline) {
			gate_tell_drained(g);
			return;
		}
		walk_cut_told(g);
		gate_on_drain_task(g);
		return;
	}
	if (!g->full)
		return;
	if (gate_is_full(g)) {
		loop_timer_set(g->timer, GATE_FULL_MS);
		return;
	}
	g->full = false;
	gate_listeners_arm(g);
}

void
gate_walk_over(struct gate *g)
{
	if (g->draining && g->walks_n == 0)
		loop_task_post(g->drain_task);
}

static void
gate_on_reap(void *arg)
{
	generation_reap(arg, false);
}

static int
gate_init(struct gate *g, const struct gate_source *src, struct buf *err)
{
	const struct conf *conf = src->owned != NULL ? src->owned : src->conf;
	struct gate_source source = *src;
	int rc;

	buf_init(&g->scratch, GATE_SCRATCH_MAX);
	LIST_INIT(&g->walks);
	SLIST_INIT(&g->limits);
	LIST_INIT(&g->generations);
	rc = gate_check_modules(conf, err);
	if (rc != SP_OK)
		return rc;
	g->timer = loop_timer_new(g->loop, gate_on_timer, g);
	g->drain_task = loop_task_new(g->loop, gate_on_drain_task, g);
	g->reap = loop_task_new(g->loop, gate_on_reap, g);
	g->access = access_new(g->loop);
	g->quota = quota_new();
	g->bound = bound_new(g->loop);
	g->heavy = heavy_new(g->loop);
	g->recorder = turn_recorder_new(g->loop,
	    (size_t)conf->main.recorder_buffer_bytes);
	if (g->recorder != NULL)
		g->roster = roster_new(g->loop, g->recorder);
	g->admission = admission_new(g->loop);
	g->front = front_new(g->loop, &walk_consumer, g, gate_codec_error);
	if (g->timer == NULL || g->drain_task == NULL || g->reap == NULL ||
	    g->access == NULL || g->quota == NULL || g->bound == NULL ||
	    g->heavy == NULL || g->recorder == NULL || g->roster == NULL ||
	    g->admission == NULL || g->front == NULL)
		return SP_E_NOMEM;
	admission_set(g->admission, &conf->main);
	rc = gate_metrics_init(g);
	if (rc == SP_OK)
		rc = memory_init(g, conf->main.memory_max_bytes);
	if (rc == SP_OK) {
		source.owned = NULL;
		source.conf = conf;
		rc = generation_new(g, &source, &g->current, err);
	}
	if (rc == SP_OK)
		rc = gate_first_ports(g);
	if (rc == SP_OK)
		rc = gate_setup_modules(g);
	turn_recorder_observe(g->recorder, gate_metrics_observe, g);
	return rc;
}

int
gate_new_from(struct loop *l, const struct gate_source *src, struct gate **out,
    struct buf *err)
{
	struct gate *g = mem_calloc(1, sizeof(*g));
	int rc = SP_E_NOMEM;

	if (g != NULL) {
		g->loop = l;
		g->control_gid = CRED_NO_GROUP;
		rc = gate_init(g, src, err);
	}
	if (rc != SP_OK) {
		gate_free(g);
		conf_free(src->owned);
		return rc;
	}
	g->current->owned = src->owned;
	*out = g;
	return SP_OK;
}

int
gate_new(struct loop *l, const struct conf *conf, struct gate **out,
    struct buf *err)
{
	const struct gate_source src = { .conf = conf, .number = 1 };

	return gate_new_from(l, &src, out, err);
}

void
gate_free(struct gate *g)
{
	struct gate_limits *limits;
	size_t i;

	if (g == NULL)
		return;
	gate_listeners_close(g);
	/* the open requests end here: FINISH runs for each */
	front_free(g->front);
	for (i = g->modules_set_up; i-- > 0;)
		if (gate_modules[i]->stop != NULL)
			gate_modules[i]->stop(g);
	relay_free(g->relay);
	inside_free(g->inside);
	worker_set_free(g->workers);
	feed_nflog_free(g->nflogs);
	feed_files_free(g->files);
	feed_set_free(g->feeds);
	episode_set_free(g->episodes);
	generation_reap(g, true);
	for (i = 0; i < g->ports_n; i++) {
		mem_free(g->ports[i]->name);
		mem_free(g->ports[i]);
	}
	mem_free(g->ports);
	while ((limits = SLIST_FIRST(&g->limits)) != NULL) {
		SLIST_REMOVE_HEAD(&g->limits, link);
		mem_free(limits);
	}
	roster_free(g->roster);
	admission_free(g->admission);
	quota_free(g->quota);
	bound_free(g->bound);
	heavy_free(g->heavy);
	pressure_free(g->pressure);
	turn_recorder_free(g->recorder);
	access_free(g->access);
	metrics_free(g->metrics);
	loop_timer_free(g->timer);
	loop_task_free(g->drain_task);
	loop_task_free(g->reap);
	buf_clear(&g->scratch);
	mem_free(g);
}

int
gate_start(struct gate *g)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; gate_modules[i] != NULL && rc == SP_OK; i++)
		if (gate_modules[i]->start != NULL)
			rc = gate_modules[i]->start(g);
	if (rc != SP_OK)
		return rc;
	g->started = true;
	gate_listeners_arm(g);
	return SP_OK;
}

void
gate_drain(struct gate *g, void (*drained)(void *arg), void *arg)
{
	if (g->draining)
		return;
	g->draining = true;
	g->drained = drained;
	g->drained_arg = arg;
	gate_abandon(g);
	gate_listeners_close(g);
	admission_drain(g->admission);
	front_drain(g->front);
	walk_drain_all(g);
	loop_task_post(g->drain_task);
}

void
gate_drain_deadline(struct gate *g)
{
	if (!g->draining || g->drained_told || g->deadline)
		return;
	log_warn("the drain's deadline has passed: %llu requests are cut",
	    (unsigned long long)g->walks_n);
	walk_abort_all(g);
	g->deadline = true;
	loop_timer_set(g->timer, GATE_LAST_MS);
	loop_task_post(g->drain_task);
}

bool
gate_healthy(const struct gate *g, const char **why)
{
	const char *ignored;

	if (why == NULL)
		why = &ignored;
	if (g->draining) {
		*why = "sallyport drains: it takes no more calls";
		return false;
	}
	if (pressure_level(g->pressure) != PRESSURE_NONE) {
		*why = "memory is short, and requests are refused until it is "
		       "less: see memory_max";
		return false;
	}
	if (!fleet_takes_calls(g->current->forward, g->current->conf)) {
		*why = "no server of any upstream takes calls: all are down or "
		       "drain";
		return false;
	}
	/* without a capture there is nothing to record */
	if (g->current->conf->captures_n == 0) {
		*why = "";
		return true;
	}
	return turn_recorder_ok(g->recorder, why);
}

bool
gate_draining(const struct gate *g)
{
	return g->draining;
}

struct loop *
gate_loop(const struct gate *g)
{
	return g->loop;
}

const struct conf *
gate_conf(const struct gate *g)
{
	return g->current->conf;
}

struct metrics *
gate_metrics(const struct gate *g)
{
	return g->metrics;
}

struct roster *
gate_roster(const struct gate *g)
{
	return g->roster;
}

struct episode_set *
gate_episodes(const struct gate *g)
{
	return g->episodes;
}

struct worker_set *
gate_workers(const struct gate *g)
{
	return g->workers;
}

struct inside *
gate_inside(const struct gate *g)
{
	return g->inside;
}

struct feed_set *
gate_feeds(const struct gate *g)
{
	return g->feeds;
}

static int
gate_helper_send(void *arg, enum message_type type, struct view body, int fd)
{
	struct gate *g = arg;

	return g->helper_send(g->helper_arg, type, body, fd);
}

static void
gate_on_listener(void *arg, uint32_t slot, uint32_t generation, uint32_t index,
    int fd)
{
	struct gate *g = arg;

	inside_listener(g->inside, slot, generation, index, fd);
}

static void
gate_on_source(void *arg, uint32_t slot, uint32_t generation, bool files,
    int fd)
{
	struct gate *g = arg;

	inside_source(g->inside, slot, generation, files, fd);
}

static void
gate_on_spill(void *arg, struct episode *ep, int fd)
{
	(void)arg;
	feed_spill(feed_of(ep), fd);
}

static void
gate_on_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct gate *g = arg;

	feed_nflog_news(g->nflogs, ep, n);
	feed_files_news(g->files, ep, n);
	/* what is first in it is its beginning */
	feed_set_news(g->feeds, ep, n);
	feed_source_news(ep, n);
	inside_news(g->inside, ep, n);
	worker_set_news(g->workers, ep, n);
	if (n->what == EPISODE_ENDED)
		session_episode_over(g, ep);
}

static void
gate_on_inside_source(void *arg, struct episode *ep, bool files, int fd)
{
	struct gate *g = arg;

	if (files)
		feed_files_open(g->files, ep, fd);
	else
		feed_nflog_open(g->nflogs, ep, fd);
}

static bool
gate_allows(void *arg, const struct episode *ep)
{
	const struct gate *g = arg;
	const struct conf_environment *env =
	    conf_env_find(gate_conf(g), view_str(ep->env));

	return env == NULL || env->rules_n > 0;
}

int
gate_set_helper(struct gate *g,
    int (*send)(void *arg, enum message_type type, struct view body, int fd),
    void *arg)
{
	struct episode_world w = {
		.loop = g->loop,
		.send = gate_helper_send,
		.listener = gate_on_listener,
		.source = gate_on_source,
		.spill = gate_on_spill,
		.news = gate_on_news,
		.arg = g,
	};
	const struct feed_nflog_world nw = { .loop = g->loop,
		.allows = gate_allows,
		.arg = g };

	g->helper_send = send;
	g->helper_arg = arg;
	g->inside = inside_new(g);
	g->feeds = feed_set_new(g->loop, NULL);
	g->nflogs = feed_nflog_new(&nw);
	g->files = feed_files_new(g->loop);
	g->episodes = g->inside != NULL ? episode_set_new(&w) : NULL;
	if (g->episodes == NULL || g->feeds == NULL || g->nflogs == NULL ||
	    g->files == NULL ||
	    feed_set_metrics(g->feeds, g->metrics) != SP_OK ||
	    worker_gate_new(g, &g->workers) != SP_OK)
		return SP_E_NOMEM;
	inside_set_source(g->inside, gate_on_inside_source, g);
	return relay_gate_new(g, &g->relay);
}

struct bound *
gate_bound(const struct gate *g)
{
	return g->bound;
}

struct admission *
gate_admission(const struct gate *g)
{
	return g->admission;
}

struct pressure *
gate_pressure(const struct gate *g)
{
	return g->pressure;
}

struct recorder *
gate_recorder(const struct gate *g)
{
	return g->recorder;
}

struct forward *
gate_forward(const struct gate_request *r)
{
	return r->generation->forward;
}

void
gate_set_restarts(struct gate *g, uint32_t reactor, uint32_t recorder)
{
	*g->restarts[0] = reactor;
	*g->restarts[1] = recorder;
}

void
gate_set_control_group(struct gate *g, gid_t gid)
{
	g->control_gid = gid;
}

void
gate_set_access_log(struct gate *g, int fd)
{
	access_set_fd(g->access, fd);
}

void
gate_resume(struct gate_request *r, enum gate_verdict v)
{
	walk_resume(r, v);
}

void
gate_finish(struct gate_request *r)
{
	walk_finish(r);
}

void
gate_told(struct gate_request *r)
{
	walk_told(r);
}

void
gate_body_gone(struct gate_request *r)
{
	walk_body_gone(r);
}
