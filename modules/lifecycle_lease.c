#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf_env.h"
#include "gate/process.h"
#include "lifecycle_call.h"
#include "lifecycle_conf.h"

/* One gate in a process; tests have one after the other. */
static struct {
	struct gate *gate;
	LIST_HEAD(, lifecycle_lease) live, dead;
	struct loop_task *reap;
	struct loop_timer *look; /* for shared ones that are to be made */
	bool doors; /* there is one in the configuration */
} leases;

static void lease_again(struct lifecycle_lease *l);

/* ---- the end -------------------------------------------------------------- */

static void
lease_free(struct lifecycle_lease *l)
{
	struct lifecycle_run *run;

	while ((run = TAILQ_FIRST(&l->runs)) != NULL)
		lifecycle_run_free(run);
	loop_task_free(l->task);
	loop_timer_free(l->timer);
	buf_clear(&l->why);
	mem_free(l);
}

static void
leases_on_reap(void *arg)
{
	struct lifecycle_lease *l;

	(void)arg;
	while ((l = LIST_FIRST(&leases.dead)) != NULL) {
		LIST_REMOVE(l, link);
		lease_free(l);
	}
}

/* Whoever called up to here may look at it until this turn ends. */
static void
lease_die(struct lifecycle_lease *l)
{
	struct lifecycle_run *run;

	if (l->dead)
		return;
	l->dead = true;
	while ((run = TAILQ_FIRST(&l->runs)) != NULL)
		lifecycle_run_free(run);
	loop_timer_stop(l->timer);
	mcp_session_follow(l->gate, &l->last, NULL);
	LIST_REMOVE(l, link);
	LIST_INSERT_HEAD(&leases.dead, l, link);
	loop_task_post(leases.reap);
}

static void
lease_let_go(struct lifecycle_lease *l)
{
	struct episode *ep = l->ep;
	int rc;

	if (ep == NULL)
		return;
	l->ep = NULL;
	episode_unwatch(&l->watch);
	if (ep->state == EPISODE_ENDING || ep->state == EPISODE_GONE)
		return;
	rc = episode_end(ep, NULL, NULL);
	if (rc != SP_OK)
		log_warn("episode %s does not end: %s", ep->id, err_str(rc));
}

void
lifecycle_lease_end(struct lifecycle_lease *l)
{
	if (l->dead)
		return;
	if (l->shared) {
		lease_let_go(l);
		lease_again(l);
		return;
	}
	/* the runs first: they may wait for its episode */
	lease_die(l);
	lease_let_go(l);
}

/* ---- its episode ---------------------------------------------------------- */

static void
lease_on_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct lifecycle_lease *l = arg;

	if (n->what == EPISODE_PROCESS_STARTED &&
	    n->process->side == SANDBOX_AGENT)
		ep->used = true;
	if (n->what != EPISODE_ENDED)
		return;
	l->ep = NULL;
	episode_unwatch(&l->watch);
	buf_reset(&l->why, LIFECYCLE_WHY_MAX);
	(void)!buf_add_view(&l->why, view_sub(n->text, 0, LIFECYCLE_WHY_MAX));
	if (l->shared)
		lease_again(l);
	else if (l->users == 0)
		lease_die(l);
}

void
lifecycle_lease_take(struct lifecycle_lease *l, struct episode *ep)
{
	l->ep = ep;
	if (l->last.ep != NULL)
		mcp_session_follow(l->gate, &l->last, ep);
	l->last = (struct mcp_episode_ref){ ep, ep->created_us };
	(void)snprintf(l->id, sizeof(l->id), "%s", ep->id);
	l->watch.news = lease_on_news;
	l->watch.arg = l;
	episode_watch(ep, &l->watch);
}

/* It was made: the next reactor is to know it. */
void
lifecycle_lease_keep(struct lifecycle_lease *l)
{
	/* a shared one is made anew anyway; without memory so is this */
	if (!l->shared)
		(void)!episode_keep(l->ep);
}

static void
lease_on_task(void *arg)
{
	struct lifecycle_lease *l = arg;
	struct lifecycle_run *run = TAILQ_FIRST(&l->runs);

	if (run != NULL && !run->begun)
		lifecycle_run_begin(run);
}

/* ---- shared ones ---------------------------------------------------------- */

static void
lease_on_made(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
    struct view body, struct view tail)
{
	struct lifecycle_lease *l = arg;

	(void)run;
	(void)tail;
	if (o == LIFECYCLE_OK) {
		l->again_ms = LIFECYCLE_AGAIN_MS;
		return;
	}
	log_warn("shared episode of %s: %s (%.*s): tried again in %llu ms",
	    l->env, lifecycle_call_outcome(o), VIEW_ARG(body),
	    (unsigned long long)l->again_ms);
	loop_timer_set(l->timer, l->again_ms);
	l->again_ms *= 2;
	if (l->again_ms > LIFECYCLE_AGAIN_MAX_MS)
		l->again_ms = LIFECYCLE_AGAIN_MAX_MS;
}

/* Made (again) before anything else that waits. */
static void
lease_again(struct lifecycle_lease *l)
{
	struct lifecycle_run *run;

	if (lifecycle_run_start(l, LIFECYCLE_OPEN, VIEW_NONE, lease_on_made, l,
		&run) != SP_OK) {
		loop_timer_set(l->timer, l->again_ms);
		return;
	}
	TAILQ_REMOVE(&l->runs, run, link);
	if (!TAILQ_EMPTY(&l->runs) && TAILQ_FIRST(&l->runs)->begun)
		TAILQ_INSERT_AFTER(&l->runs, TAILQ_FIRST(&l->runs), run, link);
	else
		TAILQ_INSERT_HEAD(&l->runs, run, link);
}

/* ---- life ----------------------------------------------------------------- */

/* Its session was closed: who is connected to it by MCP is waited for. */
static bool
lease_waits(const struct lifecycle_lease *l)
{
	return l->closed && mcp_session_connected(l->gate, &l->last);
}

static void
lease_on_timer(void *arg)
{
	struct lifecycle_lease *l = arg;
	struct lifecycle_run *run = TAILQ_FIRST(&l->runs);

	if (run != NULL && run->waiting)
		lifecycle_run_no_room(run);
	else if (l->shared && l->ep == NULL)
		lease_again(l);
	else if (l->idle_ms > 0 &&
	    (mcp_session_busy(l->gate, &l->last) ||
		mcp_session_connected(l->gate, &l->last)))
		loop_timer_set(l->timer, l->idle_ms);
	else if (!l->shared && l->users == 0 && !lease_waits(l))
		lifecycle_lease_end(l);
}

enum gate_verdict
lifecycle_lease_admit(struct gate_request *r, bool allow_lifecycle)
{
	if (!allow_lifecycle)
		return gate_deny(r, 403, "lifecycle_off",
		    "allow_lifecycle is off at this door");
	if (gate_episodes(r->gate) == NULL)
		return gate_deny(r, 503, "helper_gone",
		    "there is no helper to make an episode");
	return GATE_PASS;
}

int
lifecycle_lease_new(struct gate *g, struct view env, bool shared,
    struct lifecycle_lease **out)
{
	struct lifecycle_lease *l = mem_calloc(1, sizeof(*l));

	if (l == NULL)
		return SP_E_NOMEM;
	err_assert(env.n <= EPISODE_ENV_MAX);
	l->gate = g;
	l->shared = shared;
	l->wanted = true;
	l->again_ms = LIFECYCLE_AGAIN_MS;
	(void)snprintf(l->env, sizeof(l->env), "%.*s", VIEW_ARG(env));
	TAILQ_INIT(&l->runs);
	buf_init(&l->why, LIFECYCLE_WHY_MAX);
	l->task = loop_task_new(gate_loop(g), lease_on_task, l);
	l->timer = loop_timer_new(gate_loop(g), lease_on_timer, l);
	if (l->task == NULL || l->timer == NULL) {
		lease_free(l);
		return SP_E_NOMEM;
	}
	LIST_INSERT_HEAD(&leases.live, l, link);
	*out = l;
	return SP_OK;
}

struct lifecycle_lease *
lifecycle_lease_find(struct view env, struct view id)
{
	struct lifecycle_lease *l, *had = NULL;

	/* who had one of that name comes after who has */
	LIST_FOREACH (l, &leases.live, link) {
		if (l->id[0] == '\0' || !view_eq(view_str(l->id), id) ||
		    !view_eq(view_str(l->env), env))
			continue;
		if (l->ep != NULL)
			return l;
		if (had == NULL)
			had = l;
	}
	return had;
}

struct lifecycle_lease *
lifecycle_lease_of(const struct mcp_episode_ref *ref)
{
	struct lifecycle_lease *l;

	LIST_FOREACH (l, &leases.live, link)
		if (l->last.ep == ref->ep && l->last.born_us == ref->born_us)
			return l;
	return NULL;
}

struct lifecycle_lease *
lifecycle_lease_shared(struct view env)
{
	struct lifecycle_lease *l;

	LIST_FOREACH (l, &leases.live, link)
		if (l->shared && view_eq(view_str(l->env), env))
			return l;
	return NULL;
}

void
lifecycle_lease_attach(struct lifecycle_lease *l)
{
	/* with others here the timer may bound a wait for room */
	if (l->users++ == 0 && !l->shared)
		loop_timer_stop(l->timer);
}

void
lifecycle_lease_detach(struct lifecycle_lease *l, uint64_t grace_ms)
{
	if (l->dead || --l->users > 0 || l->shared)
		return;
	if (l->idle_ms > 0)
		grace_ms = l->idle_ms;
	l->until_ms = 0;
	if (grace_ms == 0 && lease_waits(l))
		return;
	/* what is not there yet has no name to come back to */
	if (grace_ms == 0 || l->ep == NULL || l->ep->state == EPISODE_CREATING)
		lifecycle_lease_end(l);
	else {
		l->until_ms = loop_now_ms(gate_loop(l->gate)) + grace_ms;
		loop_timer_set(l->timer, grace_ms);
	}
}

void
lifecycle_lease_left(struct lifecycle_lease *l)
{
	/* within the grace of a connection that broke the timer ends it */
	if (!l->dead && l->closed && l->users == 0 && !lease_waits(l) &&
	    l->until_ms <= loop_now_ms(gate_loop(l->gate)))
		lifecycle_lease_end(l);
}

size_t
lifecycle_lease_holds(const struct lifecycle_lease *l)
{
	const struct lifecycle_run *run;
	size_t n = 0;

	TAILQ_FOREACH (run, &l->runs, link)
		n += buf_len(&run->data);
	return n;
}

/* ---- of the gate ---------------------------------------------------------- */

/* The environment that all connections of that door share, or NULL. */
static const struct conf_environment *
shares(const struct conf_location *loc)
{
	const struct lifecycle_conf *c;

	if (loc->handler != &lifecycle_conf)
		return NULL;
	leases.doors = true;
	c = conf_module_conf(loc, lifecycle_conf.name);
	return c->shared ? c->environment : NULL;
}

static void
make_shared(const struct conf_environment *env)
{
	struct lifecycle_lease *l = lifecycle_lease_shared(env->name);

	if (l != NULL)
		l->wanted = true;
	else if (lifecycle_lease_new(leases.gate, env->name, true, &l) == SP_OK)
		lease_again(l);
}

/* A reload may bring doors that share, and take others away. */
static void
leases_on_look(void *arg)
{
	const struct conf *conf = gate_conf(leases.gate);
	const struct conf_environment *env;
	struct lifecycle_lease *l, *next;
	size_t i, k;

	(void)arg;
	leases.doors = false;
	LIST_FOREACH (l, &leases.live, link)
		l->wanted = false;
	for (i = 0; i < conf->servers_n; i++)
		for (k = 0; k < conf->servers[i]->locations_n; k++) {
			env = shares(conf->servers[i]->locations[k]);
			if (env != NULL && gate_episodes(leases.gate) != NULL)
				make_shared(env);
		}
	for (l = LIST_FIRST(&leases.live); l != NULL; l = next) {
		next = LIST_NEXT(l, link);
		if (!l->shared || l->wanted || l->users > 0)
			continue;
		l->shared = false;
		lifecycle_lease_end(l);
	}
	if (leases.doors)
		loop_timer_set(leases.look, LIFECYCLE_LOOK_MS);
}

int
lifecycle_lease_setup(struct gate *g)
{
	leases.gate = g;
	LIST_INIT(&leases.live);
	LIST_INIT(&leases.dead);
	leases.reap = loop_task_new(gate_loop(g), leases_on_reap, NULL);
	leases.look = loop_timer_new(gate_loop(g), leases_on_look, NULL);
	mcp_set_owner(g, &lifecycle_session_owner);
	/* stop() frees what there is */
	return leases.reap == NULL || leases.look == NULL ? SP_E_NOMEM : SP_OK;
}

/* The longest grace of the doors of that environment; false: no door. */
static bool
door_grace(struct view env, uint64_t *grace_ms)
{
	const struct conf *conf = gate_conf(leases.gate);
	const struct lifecycle_conf *c;
	bool found = false;
	size_t i, k;

	*grace_ms = 0;
	for (i = 0; i < conf->servers_n; i++)
		for (k = 0; k < conf->servers[i]->locations_n; k++) {
			if (conf->servers[i]->locations[k]->handler !=
			    &lifecycle_conf)
				continue;
			c = conf_module_conf(conf->servers[i]->locations[k],
			    lifecycle_conf.name);
			if (c->shared || !view_eq(c->environment->name, env))
				continue;
			found = true;
			if (c->grace_ms > *grace_ms)
				*grace_ms = c->grace_ms;
		}
	return found;
}

/* Of a reactor that died: whoever had it may come back. */
static bool
leases_on_claim(void *arg, struct episode *ep)
{
	struct lifecycle_lease *l;
	uint64_t grace_ms;

	(void)arg;
	if (!door_grace(view_str(ep->env), &grace_ms) || grace_ms == 0 ||
	    lifecycle_lease_new(leases.gate, view_str(ep->env), false, &l) !=
		SP_OK)
		return false;
	lifecycle_lease_take(l, ep);
	l->until_ms = loop_now_ms(gate_loop(l->gate)) + grace_ms;
	loop_timer_set(l->timer, grace_ms);
	return true;
}

int
lifecycle_lease_start(struct gate *g)
{
	if (gate_episodes(g) != NULL)
		episode_set_claim(gate_episodes(g), leases_on_claim, NULL);
	lifecycle_lease_look();
	return SP_OK;
}

void
lifecycle_lease_look(void)
{
	loop_timer_set(leases.look, 0);
}

/* The gate ends, and every episode with it: nobody is told. */
void
lifecycle_lease_stop(void)
{
	struct lifecycle_lease *l;

	while ((l = LIST_FIRST(&leases.live)) != NULL) {
		if (l->ep != NULL)
			episode_unwatch(&l->watch);
		l->ep = NULL;
		lease_die(l);
	}
	mcp_set_owner(leases.gate, NULL);
	leases_on_reap(NULL);
	loop_task_free(leases.reap);
	loop_timer_free(leases.look);
	leases.reap = NULL;
	leases.look = NULL;
	leases.gate = NULL;
}
