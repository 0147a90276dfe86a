#include "config.h"

#include "base/log.h"
#include "gate/checks.h"
#include "gate/fleet.h"
#include "gate/gate_priv.h"
#include "gate/hub.h"
#include "gate/roster.h"
#include "ipc/wire.h"
#include "net/pool_servers.h"

_Static_assert((int)FLEET_SERVERS_MAX == (int)POOL_SERVERS_MAX,
    "servers of a pool");

/* ---- what there is -------------------------------------------------------- */

/* Whose calls go where. */
struct fleet_count {
	struct pool *pool;
	struct view upstream;
	uint64_t *by_slot; /* of FLEET_SERVERS_MAX */
};

static void
fleet_count_session(void *arg, const struct roster_session *s)
{
	struct fleet_count *c = arg;
	size_t slot;

	if (s->m.upstream.n > 0 && !view_eq(s->m.upstream, c->upstream))
		return;
	slot = pool_servers_home(c->pool, s->m.id);
	if (slot < FLEET_SERVERS_MAX)
		c->by_slot[slot]++;
}

size_t
fleet_list(const struct gate *g, const struct forward *f,
    const struct conf_upstream *u, struct fleet_server *out)
{
	static const char *const states[] = {
		[POOL_UP] = "up",
		[POOL_RESTING] = "resting",
		[POOL_DOWN] = "down",
		[POOL_DRAINING] = "draining",
	};
	const struct hub_link *k = forward_link(f, u->index);
	uint64_t sessions[FLEET_SERVERS_MAX] = { 0 };
	struct fleet_count count = { k->pool, u->name, sessions };
	struct pool_server_info info;
	size_t slot, n = 0;

	roster_each(gate_roster(g), fleet_count_session, &count);
	for (slot = 0; slot < FLEET_SERVERS_MAX; slot++) {
		if (!pool_servers_get(k->pool, slot, &info))
			continue;
		out[n++] = (struct fleet_server){
			.url = info.url,
			.state = states[info.state],
			.open = info.open,
			.idle = info.idle,
			.sessions = sessions[slot],
			.failures = info.failures,
			.rest_ms = info.rest_ms,
			.checks_failed = k->checks != NULL
			    ? checks_failed_of(k->checks, slot)
			    : 0,
		};
	}
	return n;
}

static bool
fleet_pool_takes_calls(const struct pool *p)
{
	struct pool_server_info info;
	size_t slot;

	for (slot = 0; slot < FLEET_SERVERS_MAX; slot++)
		if (pool_servers_get(p, slot, &info) &&
		    (info.state == POOL_UP || info.state == POOL_RESTING))
			return true;
	return false;
}

bool
fleet_takes_calls(const struct forward *f, const struct conf *c)
{
	bool used = false;
	size_t i;

	for (i = 0; i < c->upstreams_n; i++) {
		if (!c->upstreams[i]->used)
			continue;
		used = true;
		if (fleet_pool_takes_calls(forward_link(f, (unsigned)i)->pool))
			return true;
	}
	return !used;
}

/* ---- changes -------------------------------------------------------------- */

static int
fleet_add(const struct hub_link *k, const struct pool_server *s,
    const char **why)
{
	int rc = pool_servers_add(k->pool, s);

	if (rc == SP_E_EXISTS)
		*why = "the upstream has this server already";
	else if (rc == SP_E_LIMIT)
		*why = "the upstream has as many servers as it may";
	else if (rc == SP_E_ARG)
		*why = "the upstream has no https server in the "
		       "configuration, so that no trusted certificates are at "
		       "hand: name one there";
	return rc;
}

static int
fleet_apply(const struct hub_link *k, enum fleet_op op,
    const struct pool_server *s, const char **why)
{
	int rc = SP_E_NOTFOUND;

	switch (op) {
	case FLEET_ADD:
		return fleet_add(k, s, why);
	case FLEET_REMOVE:
		if (pool_servers_last(k->pool, s)) {
			*why = "it is the only server of the upstream, and "
			       "no call could go anywhere: add another one "
			       "first";
			return SP_E_STATE;
		}
		rc = pool_servers_remove(k->pool, s);
		break;
	case FLEET_REMOVE_ANY:
		rc = pool_servers_remove(k->pool, s);
		break;
	case FLEET_DRAIN:
		rc = pool_servers_drain(k->pool, s);
		break;
	}
	if (rc == SP_E_NOTFOUND)
		*why = "the upstream has no such server";
	return rc;
}

int
fleet_change(struct forward *f, const struct conf_upstream *u, enum fleet_op op,
    struct view url, struct arena *arena, const char **why)
{
	static const char *const done[] = {
		[FLEET_ADD] = "added",
		[FLEET_REMOVE] = "removed",
		[FLEET_REMOVE_ANY] = "removed",
		[FLEET_DRAIN] = "draining",
	};
	const struct hub_link *k = forward_link(f, u->index);
	struct buf text = BUF_INIT(HUB_AUTHORITY_MAX);
	struct conf_upstream_server parsed = { .port = 0 };
	struct pool_server s;
	int rc;

	*why = "out of memory";
	rc = conf_url_read(url, arena, &parsed, why);
	if (rc == SP_OK)
		rc = hub_server(&parsed, &text, &s);
	if (rc == SP_OK)
		rc = fleet_apply(k, op, &s, why);
	if (rc == SP_OK)
		hub_changed(k->hub);
	if (rc == SP_OK)
		log_notice("upstream \"%.*s\": server %.*s is %s",
		    VIEW_ARG(u->name), VIEW_ARG(url), done[op]);
	buf_clear(&text);
	return rc;
}

/* ---- from one reactor to the next ------------------------------------------ */

enum { FLEET_BODY_MAX = 4096, FLEET_ARENA = 16 * 1024 };

void
fleet_tell(struct gate *g, const struct conf_upstream *u, enum fleet_op op,
    struct view url)
{
	struct buf b = BUF_INIT(FLEET_BODY_MAX);
	int rc = SP_E_GONE;

	if (g->helper_send == NULL)
		return;
	rc = wire_put_u8(&b, (uint8_t)op);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, u->name);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, url);
	if (rc == SP_OK)
		rc = g->helper_send(g->helper_arg, MESSAGE_FLEET, buf_view(&b),
		    -1);
	if (rc != SP_OK)
		log_warn("upstream \"%.*s\": the change of %.*s would not "
			 "outlive this process: %s",
		    VIEW_ARG(u->name), VIEW_ARG(url), err_str(rc));
	buf_clear(&b);
}

static const struct conf_upstream *
fleet_upstream(const struct gate *g, struct view name)
{
	const struct conf *c = g->current->conf;
	size_t i;

	for (i = 0; i < c->upstreams_n; i++)
		if (view_eq(c->upstreams[i]->name, name))
			return c->upstreams[i];
	return NULL;
}

int
fleet_was(struct gate *g, struct view body)
{
	const struct conf_upstream *u;
	struct arena *arena;
	struct view name, url;
	const char *why = "out of memory";
	struct wire w;
	uint8_t op;
	int rc = SP_E_NOMEM;

	wire_init(&w, body);
	op = wire_u8(&w);
	name = wire_bytes(&w);
	url = wire_bytes(&w);
	if (wire_done(&w) != SP_OK || op > FLEET_DRAIN)
		return SP_E_PROTO;
	u = fleet_upstream(g, name);
	if (u == NULL)
		return SP_OK;
	arena = arena_new(FLEET_ARENA);
	/* what comes in its place is told next */
	if (arena != NULL)
		rc = fleet_change(g->current->forward, u,
		    op == FLEET_REMOVE ? FLEET_REMOVE_ANY : (enum fleet_op)op,
		    url, arena, &why);
	/* added and taken away again; or taken away and added */
	if (rc != SP_OK && rc != SP_E_NOTFOUND && rc != SP_E_EXISTS)
		log_warn("upstream \"%.*s\": server %.*s, as it was changed "
			 "before: %s",
		    VIEW_ARG(name), VIEW_ARG(url), why);
	arena_free(arena);
	return SP_OK;
}
