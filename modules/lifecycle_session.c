/*
 * Sessions of openenv/session/create that are episodes, as those of OpenEnv's
 * own server are.  They are made at a door of MCP by whoever has the token of
 * this one; what is reset and ended comes by its WebSocket.
 */
#include "config.h"

#include "base/mem.h"
#include "gate/session.h"
#include "lifecycle_call.h"
#include "lifecycle_conf.h"

struct making {
	struct lifecycle_lease *lease;
	struct lifecycle_run *run;
	uint64_t idle_ms;
	bool (*made)(void *arg, struct episode *ep, const char *code,
	    struct view why);
	void *arg;
};

/* The orchestrator's door of that environment whose token came; NULL. */
static const struct lifecycle_conf *
session_door(const struct gate_request *r, const struct conf_environment *env)
{
	const struct conf_server *server = r->location->server;
	const struct conf_location *loc;
	const struct lifecycle_conf *c;
	size_t i;

	/* an agent's own listener, and a door with a token, say who it is */
	if (r->episode.n > 0 || r->location->token != NULL || env == NULL)
		return NULL;
	for (i = 0; i < server->locations_n; i++) {
		loc = server->locations[i];
		if (loc->handler != &lifecycle_conf || loc->token == NULL)
			continue;
		c = conf_module_conf(loc, lifecycle_conf.name);
		if (c->allow_lifecycle &&
		    view_eq(c->environment->name, env->name) &&
		    session_token_ok(&r->x->request.fields, loc->token))
			return c;
	}
	return NULL;
}

static bool
session_allows(const struct gate_request *r, const struct conf_environment *env)
{
	return session_door(r, env) != NULL;
}

/* ---- making --------------------------------------------------------------- */

static void
session_on_open(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
    struct view body, struct view tail)
{
	struct making *m = arg;
	struct lifecycle_lease *l = m->lease;
	struct episode *ep = o == LIFECYCLE_OK ? l->ep : NULL;

	(void)run;
	(void)tail;
	if (ep == NULL && o == LIFECYCLE_OK)
		o = LIFECYCLE_ENDED;
	if (m->made(m->arg, ep, lifecycle_call_outcome(o), body) && !l->shared)
		l->idle_ms = m->idle_ms;
	mem_free(m);
	lifecycle_lease_detach(l, 0);
}

static struct lifecycle_lease *
session_lease(const struct gate_request *r, const struct lifecycle_conf *c)
{
	struct view env = c->environment->name;
	struct lifecycle_lease *l =
	    c->shared ? lifecycle_lease_shared(env) : NULL;

	lifecycle_lease_look();
	if (l == NULL &&
	    lifecycle_lease_new(r->gate, env, c->shared, &l) != SP_OK)
		return NULL;
	lifecycle_lease_attach(l);
	return l;
}

static int
session_make(const struct gate_request *r, const struct conf_environment *env,
    uint64_t idle_ms,
    bool (*made)(void *arg, struct episode *ep, const char *code,
	struct view why),
    void *arg, void **out)
{
	const struct lifecycle_conf *c = session_door(r, env);
	struct making *m = mem_calloc(1, sizeof(*m));

	if (c == NULL || m == NULL || gate_episodes(r->gate) == NULL)
		goto fail;
	m->idle_ms = idle_ms;
	m->made = made;
	m->arg = arg;
	m->lease = session_lease(r, c);
	if (m->lease == NULL)
		goto fail;
	if (lifecycle_run_start(m->lease, LIFECYCLE_OPEN, VIEW_NONE,
		session_on_open, m, &m->run) != SP_OK) {
		lifecycle_lease_detach(m->lease, 0);
		goto fail;
	}
	*out = m;
	return SP_OK;
fail:
	mem_free(m);
	return SP_E_NOMEM;
}

static void
session_forget(void *making)
{
	struct making *m = making;

	lifecycle_run_forget(m->run);
	lifecycle_lease_detach(m->lease, 0);
	mem_free(m);
}

/* ---- its life ------------------------------------------------------------- */

static bool
session_keeps(const struct mcp_episode_ref *ref)
{
	return lifecycle_lease_of(ref) != NULL;
}

static void
session_used(const struct mcp_episode_ref *ref)
{
	struct lifecycle_lease *l = lifecycle_lease_of(ref);

	/* with a connection, or while something runs, the timer is not its */
	if (l != NULL && l->idle_ms > 0 && l->users == 0 &&
	    TAILQ_EMPTY(&l->runs))
		loop_timer_set(l->timer, l->idle_ms);
}

static bool
session_leave(const struct mcp_episode_ref *ref)
{
	struct lifecycle_lease *l = lifecycle_lease_of(ref);

	if (l == NULL || l->idle_ms == 0)
		return false;
	l->idle_ms = 0;
	l->closed = true;
	l->until_ms = 0;
	if (l->users > 0 || mcp_session_connected(l->gate, &l->last)) {
		/* what bounded its idle time ends nothing any more */
		if (l->users == 0 && TAILQ_EMPTY(&l->runs))
			loop_timer_stop(l->timer);
		return true;
	}
	lifecycle_lease_end(l);
	return false;
}

static void
session_left(const struct mcp_episode_ref *ref)
{
	struct lifecycle_lease *l = lifecycle_lease_of(ref);

	session_used(ref);
	if (l != NULL)
		lifecycle_lease_left(l);
}

const struct mcp_owner lifecycle_session_owner = {
	.allows = session_allows,
	.make = session_make,
	.forget = session_forget,
	.keeps = session_keeps,
	.used = session_used,
	.leave = session_leave,
	.left = session_left,
};
