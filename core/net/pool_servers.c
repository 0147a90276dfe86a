#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/pool_priv.h"

enum {
	REST_MIN_MS = 1000,
	REST_MAX_MS = 30000,
};

/* ---- choosing ------------------------------------------------------------ */

/* The finaliser of SplitMix64: every bit of x matters to every bit. */
static uint64_t
mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

bool
pool_servers_is_up(const struct server *s, uint64_t now_ms)
{
	return s->fails == 0 || (s->rest_until_ms <= now_ms && !s->probing);
}

/* Least is best. */
static unsigned
rank(const struct server *s, uint64_t now_ms)
{
	return s->down ? 2 : !pool_servers_is_up(s, now_ms);
}

/* Rendezvous hashing: a server that leaves takes only its own keys along. */
static bool
better(const struct pool_lease *l, const struct server *s,
    const struct server *than)
{
	if (l->hashed)
		return mix(l->hash ^ s->seed) > mix(l->hash ^ than->seed);
	return s->busy < than->busy;
}

static bool
is_tried(const struct pool_lease *l, const struct server *s)
{
	return (l->tried & (UINT64_C(1) << s->slot)) != 0;
}

struct server *
pool_servers_choose(struct pool_lease *l)
{
	struct server *best = NULL, *s;
	struct pool *p = l->pool;
	uint64_t now = loop_now_ms(p->loop);
	unsigned best_rank = 0, r;

	p->turn++;
	for (size_t i = 0; i < POOL_SERVERS_MAX; i++) {
		s = p->slots[(p->turn + i) % POOL_SERVERS_MAX];
		if (s == NULL || s->removed || s->draining || is_tried(l, s))
			continue;
		r = rank(s, now);
		if (best == NULL || r < best_rank ||
		    (r == best_rank && better(l, s, best))) {
			best = s;
			best_rank = r;
		}
	}
	return best;
}

void
pool_servers_assign(struct pool_lease *l, struct server *s)
{
	l->server = s;
	l->tried |= UINT64_C(1) << s->slot;
	s->busy++;
	s->checking += l->check;
}

/* ---- how they do --------------------------------------------------------- */

static void
end_probe(struct pool_lease *l)
{
	if (l->probe)
		l->server->probing = false;
	l->probe = false;
}

void
pool_servers_failed(struct pool_lease *l, bool late)
{
	struct server *s = l->server;
	uint64_t now = loop_now_ms(l->pool->loop), rest = REST_MIN_MS;

	end_probe(l);
	/* whoever dials for it knows better how it is */
	if (l->check || l->pool->dialler != NULL)
		return;
	s->failures++;
	s->late = late;
	/* all that were on their way when it went down count once */
	if (s->fails != 0 && s->rest_until_ms > now)
		return;
	for (unsigned i = 0; i < s->fails && rest < REST_MAX_MS; i++)
		rest *= 2;
	if (rest > REST_MAX_MS)
		rest = REST_MAX_MS;
	s->fails++;
	s->rest_until_ms = now + rest;
	log_warn("upstream \"%s\": %s; not used for %llu ms while another is",
	    l->pool->name, pool_lease_why(l), (unsigned long long)rest);
}

void
pool_servers_good(struct pool_lease *l)
{
	struct server *s = l->server;

	end_probe(l);
	if (l->check)
		return;
	if (s->fails != 0)
		log_notice("upstream \"%s\": %s answers again", l->pool->name,
		    s->label);
	s->fails = 0;
}

void
pool_servers_set_down(struct pool *p, size_t slot, bool down)
{
	struct server *s = slot < POOL_SERVERS_MAX ? p->slots[slot] : NULL;

	if (s == NULL || s->down == down)
		return;
	s->down = down;
	if (down)
		log_warn("upstream \"%s\": %s is down, its health checks fail",
		    p->name, s->label);
	else
		log_notice("upstream \"%s\": %s is up, its health checks pass",
		    p->name, s->label);
}

/* ---- life ---------------------------------------------------------------- */

static void
server_free(struct server *s)
{
	if (s == NULL)
		return;
	mem_free(s->host);
	mem_free(s->authority);
	mem_free(s->base);
	mem_free(s->url);
	mem_free(s->label);
	mem_free(s);
}

/* Connections that calls share are not used for others any more. */
static void
unshare(struct pool *p, const struct server *s)
{
	if (p->sharer != NULL)
		p->sharer->forget(p->sharer->arg, s->slot);
}

static void
vacate(struct pool *p, struct server *s)
{
	unshare(p, s);
	p->slots[s->slot] = NULL;
	server_free(s);
}

void
pool_servers_leave(struct pool_lease *l)
{
	struct server *s = l->server;

	if (s == NULL)
		return;
	end_probe(l);
	l->server = NULL;
	s->busy--;
	s->checking -= l->check;
	if (s->removed && s->busy == 0 && TAILQ_EMPTY(&s->idle))
		vacate(l->pool, s);
}

void
pool_servers_quiet(struct pool *p, struct server *s)
{
	struct pool_lease *l;

	while ((l = TAILQ_FIRST(&s->idle)) != NULL)
		pool_idle_drop(l);
	unshare(p, s);
	if (s->removed && s->busy == 0)
		vacate(p, s);
}

void
pool_servers_free(struct pool *p)
{
	for (size_t i = 0; i < POOL_SERVERS_MAX; i++) {
		server_free(p->slots[i]);
		p->slots[i] = NULL;
	}
}

/* Brackets of a literal are not part of the host. */
static struct view
bare(const struct pool_server *from)
{
	struct view host = from->host;

	if (!from->is_unix && host.n > 2 && host.p[0] == '[' &&
	    host.p[host.n - 1] == ']')
		host = view_sub(host, 1, host.n - 2);
	return host;
}

static char *
copy(struct view v)
{
	return mem_strndup(v.n > 0 ? v.p : "", v.n);
}

static int
server_init(struct server *s, const struct pool_server *from)
{
	struct view host = bare(from);
	char label[320];

	TAILQ_INIT(&s->idle);
	TAILQ_INIT(&s->waiting);
	s->port = from->port;
	s->is_unix = from->is_unix;
	s->tls = from->tls;
	if (host.n == 0 || memchr(host.p, '\0', host.n) != NULL)
		return SP_E_ARG;
	if (s->is_unix)
		(void)snprintf(label, sizeof(label), "unix:%.*s",
		    VIEW_ARG(host));
	else
		(void)snprintf(label, sizeof(label),
		    view_find(host, ':') < host.n ? "[%.*s]:%u" : "%.*s:%u",
		    VIEW_ARG(host), s->port);
	s->host = copy(host);
	s->authority = copy(from->authority);
	s->base = copy(from->base);
	s->url = copy(from->url);
	s->label = mem_strdup(label);
	if (s->host == NULL || s->authority == NULL || s->base == NULL ||
	    s->url == NULL || s->label == NULL)
		return SP_E_NOMEM;
	s->seed = mix(view_hash(view_str(s->label)));
	return 0;
}

/* ---- at run time ---------------------------------------------------------- */

static bool
is_same(const struct server *s, const struct pool_server *as)
{
	return s->is_unix == as->is_unix && s->tls == as->tls &&
	    s->port == as->port && view_eq(view_str(s->base), as->base) &&
	    (s->is_unix ? view_eq(view_str(s->host), as->host)
			: view_eq_nocase(view_str(s->host), bare(as)));
}

static struct server *
find(struct pool *p, const struct pool_server *as)
{
	for (size_t i = 0; i < POOL_SERVERS_MAX; i++)
		if (p->slots[i] != NULL && !p->slots[i]->removed &&
		    is_same(p->slots[i], as))
			return p->slots[i];
	return NULL;
}

int
pool_servers_add(struct pool *p, const struct pool_server *from)
{
	struct server *s = find(p, from);
	size_t slot = 0;
	int rc;

	if (s != NULL && !s->draining)
		return SP_E_EXISTS;
	p->changed = true;
	if (s != NULL) {
		s->draining = false;
		return 0;
	}
	if ((from->tls && p->tls == NULL) ||
	    (!from->is_unix && p->resolver == NULL && p->dialler == NULL))
		return SP_E_ARG;
	while (slot < POOL_SERVERS_MAX && p->slots[slot] != NULL)
		slot++;
	if (slot == POOL_SERVERS_MAX)
		return SP_E_LIMIT;
	s = mem_calloc(1, sizeof(*s));
	rc = s != NULL ? server_init(s, from) : SP_E_NOMEM;
	if (rc != 0) {
		server_free(s);
		return rc;
	}
	s->slot = slot;
	s->id = ++p->last_id;
	p->slots[slot] = s;
	return 0;
}

bool
pool_servers_last(struct pool *p, const struct pool_server *as)
{
	const struct server *s = find(p, as);

	for (size_t i = 0; i < POOL_SERVERS_MAX; i++)
		if (p->slots[i] != NULL && !p->slots[i]->removed &&
		    p->slots[i] != s)
			return false;
	return s != NULL;
}

int
pool_servers_remove(struct pool *p, const struct pool_server *as)
{
	struct server *s = find(p, as);

	if (s == NULL)
		return SP_E_NOTFOUND;
	s->removed = true;
	p->changed = true;
	pool_servers_quiet(p, s);
	return 0;
}

int
pool_servers_drain(struct pool *p, const struct pool_server *as)
{
	struct server *s = find(p, as);

	if (s == NULL)
		return SP_E_NOTFOUND;
	s->draining = true;
	p->changed = true;
	pool_servers_quiet(p, s);
	return 0;
}

bool
pool_servers_get(const struct pool *p, size_t slot,
    struct pool_server_info *out)
{
	uint64_t now = loop_now_ms(p->loop);
	const struct server *s =
	    slot < POOL_SERVERS_MAX ? p->slots[slot] : NULL;

	if (s == NULL || s->removed)
		return false;
	*out = (struct pool_server_info){
		.id = s->id,
		.slot = slot,
		.url = view_str(s->url),
		.label = view_str(s->label),
		.authority = view_str(s->authority),
		.state = s->draining              ? POOL_DRAINING
		    : s->down                     ? POOL_DOWN
		    : !pool_servers_is_up(s, now) ? POOL_RESTING
						  : POOL_UP,
		.tls = s->tls,
		.open = s->busy - s->checking,
		.idle = s->idle_n,
		.failures = s->failures,
		.rest_ms = s->rest_until_ms > now ? s->rest_until_ms - now : 0,
	};
	return true;
}

size_t
pool_servers_home(struct pool *p, struct view key)
{
	struct pool_lease l = { .pool = p,
		.hash = view_hash(key),
		.hashed = !p->least_conn && key.n > 0 };
	struct server *s = l.hashed ? pool_servers_choose(&l) : NULL;

	return s != NULL ? s->slot : POOL_SERVERS_MAX;
}

bool
pool_servers_changed(const struct pool *p)
{
	return p->changed;
}

void
pool_servers_loaded(struct pool *p)
{
	p->changed = false;
}

static struct pool_server
describe(const struct server *s)
{
	return (struct pool_server){ .host = view_str(s->host),
		.port = s->port,
		.is_unix = s->is_unix,
		.tls = s->tls,
		.authority = view_str(s->authority),
		.base = view_str(s->base),
		.url = view_str(s->url) };
}

int
pool_servers_hand_on(const struct pool *from, struct pool *to)
{
	struct pool_server d;
	struct server *s;
	int rc = 0;

	/* nobody has used the other one yet */
	pool_servers_free(to);
	to->changed = true;
	for (size_t i = 0; i < POOL_SERVERS_MAX && rc == 0; i++) {
		s = from->slots[i];
		if (s == NULL || s->removed)
			continue;
		d = describe(s);
		rc = pool_servers_add(to, &d);
		if (rc == 0 && s->draining)
			rc = pool_servers_drain(to, &d);
	}
	return rc;
}
