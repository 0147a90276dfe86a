/* Sessions of MCP clients: bounded by door and episode, and they expire. */
#include "config.h"

#include "gate/mcp_priv.h"

#include "base/hmap.h"
#include "base/log.h"
#include "base/mem.h"
#include "crypt/rnd.h"
#include "gate/door.h"
#include "gate/gate_priv.h"

enum {
	SESSION_ALL_MAX = 1000000,
	SESSION_PATH_MAX = 256, /* of a path that a client is told */
	SESSION_DETAIL_MAX = 512,
};

/*
 * Those of one location in one episode: no other's can crowd them out, nor
 * those of the agent inside the host's own, whatever the paths, nor those of
 * another server's location of the same path.
 */
struct mcp_surface {
	LIST_ENTRY(mcp_surface) link;
	struct mcp_set *set;
	const struct mcp_door *door;
	struct buf place; /* route_place(): a reload makes the location anew */
	struct mcp_episode_ref ref;
	bool inside; /* it is the episode's own listener that is spoken to */
	bool told; /* that it is full */
	TAILQ_HEAD(mcp_session_list, mcp_session) sessions;
	size_t n;
};

struct mcp_set {
	LIST_HEAD(, mcp_surface) surfaces;
	LIST_HEAD(, mcp_client) sockets; /* an orchestrator's WebSockets */
	struct hmap *by_id;
};

struct mcp_set *
mcp_session_set_new(void)
{
	struct mcp_set *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	LIST_INIT(&s->surfaces);
	LIST_INIT(&s->sockets);
	s->by_id = hmap_new(SESSION_ALL_MAX);
	if (s->by_id != NULL)
		return s;
	mem_free(s);
	return NULL;
}

/* ---- requests of the worker's ----------------------------------------------- */

int
mcp_session_ask(struct mcp_peer *p, const struct mcp_call *call, struct view id)
{
	struct mcp_asked *a;

	if (p->asked_n >= MCP_ASKED_MAX || id.n > MCP_RPC_ID_MAX)
		return SP_E_LIMIT;
	a = mem_alloc(sizeof(*a) + id.n);
	if (a == NULL)
		return SP_E_NOMEM;
	memcpy(a + 1, id.p, id.n);
	a->id = view_of(a + 1, id.n);
	a->call = call;
	LIST_INSERT_HEAD(&p->asked, a, link);
	p->asked_n++;
	return SP_OK;
}

static void
session_asked_free(struct mcp_peer *p, struct mcp_asked *a)
{
	LIST_REMOVE(a, link);
	p->asked_n--;
	mem_free(a);
}

const struct mcp_call *
mcp_session_answered(struct mcp_peer *p, struct view id)
{
	const struct mcp_call *call;
	struct mcp_asked *a;

	LIST_FOREACH (a, &p->asked, link) {
		if (!jrpc_same_id(a->id, id))
			continue;
		call = a->call;
		session_asked_free(p, a);
		return call;
	}
	return NULL;
}

void
mcp_session_call_over(struct mcp_peer *p, const struct mcp_call *call,
    const struct mcp_call *other)
{
	struct mcp_asked *a, *next;

	for (a = LIST_FIRST(&p->asked); a != NULL; a = next) {
		next = LIST_NEXT(a, link);
		if (a->call == call && other != NULL)
			a->call = other;
		else if (a->call == call)
			session_asked_free(p, a);
	}
}

void
mcp_session_peer_clear(struct mcp_peer *p)
{
	struct mcp_asked *a;

	while ((a = LIST_FIRST(&p->asked)) != NULL)
		session_asked_free(p, a);
}

/* ---- life ------------------------------------------------------------------- */

static void
session_free(struct mcp_session *s)
{
	mcp_session_peer_clear(&s->peer);
	mem_free(s);
}

/* Nobody finds it any more; a surface goes with its last one. */
static void
session_take_out(struct mcp_surface *f, struct mcp_session *s)
{
	(void)hmap_del(f->set->by_id, view_str(s->id));
	TAILQ_REMOVE(&f->sessions, s, link);
	s->surface = NULL;
	s->ended = true;
	f->told = false;
	if (--f->n > 0)
		return;
	LIST_REMOVE(f, link);
	buf_clear(&f->place);
	mem_free(f);
}

void
mcp_session_end(struct mcp_session *s)
{
	struct mcp_client *c, *next;

	if (s->ended)
		return;
	session_take_out(s->surface, s);
	for (c = LIST_FIRST(&s->clients); c != NULL; c = next) {
		next = LIST_NEXT(c, link);
		mcp_client_end(c);
	}
	if (LIST_EMPTY(&s->clients))
		session_free(s);
}

void
mcp_session_set_free(struct mcp_set *s)
{
	struct mcp_surface *f;
	struct mcp_session *one;
	struct mcp_client *c;

	if (s == NULL)
		return;
	while ((c = LIST_FIRST(&s->sockets)) != NULL) {
		LIST_REMOVE(c, socket_link);
		c->connected = false;
	}
	while ((f = LIST_FIRST(&s->surfaces)) != NULL) {
		one = TAILQ_FIRST(&f->sessions);
		session_take_out(f, one);
		if (LIST_EMPTY(&one->clients))
			session_free(one);
	}
	hmap_free(s->by_id);
	mem_free(s);
}

void
mcp_session_enter(struct mcp_session *s, struct mcp_client *c)
{
	LIST_INSERT_HEAD(&s->clients, c, link);
	c->session = s;
	c->peer = &s->peer;
}

void
mcp_session_leave(struct mcp_client *c)
{
	struct mcp_session *s = c->session;

	if (s == NULL)
		return;
	c->session = NULL;
	c->peer = NULL;
	LIST_REMOVE(c, link);
	if (s->stream == c)
		s->stream = NULL;
	/* it may have been the last that the stream waited for */
	if (s->stream != NULL)
		mcp_client_rest(s->stream);
	s->used_ms = loop_now_ms(gate_loop(c->r->gate));
	if (s->ended && LIST_EMPTY(&s->clients))
		session_free(s);
}

/* ---- finding and making ----------------------------------------------------- */

static struct mcp_surface *
session_surface(const struct mcp_client *c)
{
	struct mcp_surface *f;

	LIST_FOREACH (f, &c->r->gate->mcp->surfaces, link)
		if (f->door == c->door && f->ref.ep == c->ref.ep &&
		    f->inside == c->inside &&
		    f->ref.born_us == c->ref.born_us &&
		    view_eq(buf_view(&f->place), buf_view(&c->where)))
			return f;
	return NULL;
}

/* Those that nobody has used for long; the oldest stand first. */
static void
session_expire(const struct mcp_client *c, struct mcp_surface *f)
{
	uint64_t now = loop_now_ms(gate_loop(c->r->gate));
	struct mcp_session *s, *next;

	for (s = TAILQ_FIRST(&f->sessions); s != NULL; s = next) {
		next = TAILQ_NEXT(s, link);
		if (now - s->used_ms < c->conf->session_timeout_ms)
			return;
		/* the surface may go with its last one */
		/* those of an owner end with their episode */
		if (LIST_EMPTY(&s->clients) && !s->owns)
			mcp_session_end(s);
	}
}

static void
session_use(struct gate *g, struct mcp_session *s)
{
	struct mcp_surface *f = s->surface;

	s->used_ms = loop_now_ms(gate_loop(g));
	TAILQ_REMOVE(&f->sessions, s, link);
	TAILQ_INSERT_TAIL(&f->sessions, s, link);
	if (s->owns && g->mcp_owner != NULL)
		g->mcp_owner->used(&f->ref);
}

struct mcp_session *
mcp_session_find(const struct mcp_client *c, struct view id, bool plain)
{
	struct mcp_surface *f = session_surface(c);
	struct mcp_session *s;

	if (f != NULL)
		session_expire(c, f);
	s = hmap_get(c->r->gate->mcp->by_id, id);
	f = session_surface(c);
	if (s == NULL || s->surface != f || s->plain != plain ||
	    (s->owned && !c->r->orchestrator))
		return NULL;
	session_use(c->r->gate, s);
	return s;
}

bool
mcp_session_here(const struct mcp_client *c, struct view id,
    struct mcp_episode_ref *out)
{
	const struct mcp_session *s = hmap_get(c->r->gate->mcp->by_id, id);

	if (s == NULL || !s->plain || s->surface->door != c->door ||
	    !view_eq(buf_view(&s->surface->place), buf_view(&c->where)))
		return false;
	*out = s->surface->ref;
	return true;
}

bool
mcp_session_place(struct gate *g, struct view id, struct mcp_episode_ref *out)
{
	struct mcp_session *s =
	    g->mcp != NULL ? hmap_get(g->mcp->by_id, id) : NULL;

	if (s == NULL || !s->plain)
		return false;
	session_use(g, s);
	*out = s->surface->ref;
	return true;
}

void
mcp_session_begin(struct mcp_session *s, struct mcp_client *c)
{
	if (!s->owns || c->uses[0] != '\0')
		return;
	memcpy(c->uses, s->id, sizeof(c->uses));
	s->calls++;
}

void
mcp_session_attach(struct mcp_client *c, struct view id)
{
	struct mcp_session *s = hmap_get(c->r->gate->mcp->by_id, id);

	if (s != NULL)
		mcp_session_begin(s, c);
}

void
mcp_session_over(struct mcp_client *c)
{
	struct gate *g = c->r->gate;
	struct mcp_session *s = c->uses[0] != '\0'
	    ? hmap_get(g->mcp->by_id, view_str(c->uses))
	    : NULL;

	if (s == NULL)
		return;
	s->calls--;
	session_use(g, s);
}

void
mcp_session_connect(struct mcp_client *c)
{
	LIST_INSERT_HEAD(&c->r->gate->mcp->sockets, c, socket_link);
	c->connected = true;
}

void
mcp_session_disconnect(struct mcp_client *c)
{
	const struct mcp_owner *o = c->r->gate->mcp_owner;

	if (!c->connected)
		return;
	LIST_REMOVE(c, socket_link);
	c->connected = false;
	if (o != NULL)
		o->left(&c->ref);
}

bool
mcp_session_connected(const struct gate *g, const struct mcp_episode_ref *ref)
{
	const struct mcp_client *c;

	if (g->mcp == NULL)
		return false;
	LIST_FOREACH (c, &g->mcp->sockets, socket_link)
		if (c->ref.ep == ref->ep && c->ref.born_us == ref->born_us)
			return true;
	return false;
}

bool
mcp_session_busy(struct gate *g, const struct mcp_episode_ref *ref)
{
	const struct mcp_surface *f;
	const struct mcp_session *s;

	if (g->mcp == NULL)
		return false;
	LIST_FOREACH (f, &g->mcp->surfaces, link) {
		if (f->ref.ep != ref->ep || f->ref.born_us != ref->born_us)
			continue;
		TAILQ_FOREACH (s, &f->sessions, link)
			if (s->calls > 0)
				return true;
	}
	return false;
}

/* Of one surface; it goes with its last session. */
static void
session_follow(struct mcp_surface *f, const struct episode *to)
{
	struct mcp_session *s, *next;
	size_t left = f->n;

	if (to != NULL)
		f->ref = (struct mcp_episode_ref){ to, to->created_us };
	for (s = TAILQ_FIRST(&f->sessions); left > 0; s = next, left--) {
		next = TAILQ_NEXT(s, link);
		if (s->owned == (to == NULL))
			mcp_session_end(s);
	}
}

void
mcp_session_follow(struct gate *g, const struct mcp_episode_ref *from,
    const struct episode *to)
{
	struct mcp_surface *f, *next;

	if (g->mcp == NULL)
		return;
	for (f = LIST_FIRST(&g->mcp->surfaces); f != NULL; f = next) {
		next = LIST_NEXT(f, link);
		if (f->ref.ep == from->ep && f->ref.born_us == from->born_us)
			session_follow(f, to);
	}
}

/* Those of episodes that are over; an owner's follow, or are ended by it. */
static void
session_sweep(const struct mcp_client *c)
{
	const struct mcp_owner *o = c->r->gate->mcp_owner;
	struct mcp_session *s, *after;
	bool keeps;
	struct mcp_surface *f, *next;
	size_t n;

	for (f = LIST_FIRST(&c->r->gate->mcp->surfaces); f != NULL; f = next) {
		next = LIST_NEXT(f, link);
		if (mcp_episode_of(c->r->gate, &f->ref) != NULL)
			continue;
		/* an episode may be nobody's: made by the operator */
		keeps = o != NULL && o->keeps(&f->ref);
		/* the surface goes with the last one */
		s = TAILQ_FIRST(&f->sessions);
		for (n = f->n; n > 0; n--, s = after) {
			after = TAILQ_NEXT(s, link);
			if (!s->owned || !keeps)
				mcp_session_end(s);
		}
	}
}

static struct mcp_surface *
session_surface_new(const struct mcp_client *c)
{
	struct mcp_surface *f = mem_calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	buf_init(&f->place, buf_len(&c->where));
	if (buf_add_view(&f->place, buf_view(&c->where)) != SP_OK) {
		mem_free(f);
		return NULL;
	}
	session_sweep(c);
	f->set = c->r->gate->mcp;
	f->door = c->door;
	f->ref = c->ref;
	f->inside = c->inside;
	TAILQ_INIT(&f->sessions);
	LIST_INSERT_HEAD(&f->set->surfaces, f, link);
	return f;
}

/* RFC 9562 s5.4: what clients of openenvd are given. */
static void
session_uuid(char *out)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char b[16];
	size_t i, at = 0;

	rnd_bytes(b, sizeof(b));
	b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	for (i = 0; i < sizeof(b); i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			out[at++] = '-';
		out[at++] = hex[b[i] >> 4];
		out[at++] = hex[b[i] & 15];
	}
	out[at] = '\0';
}

static void
session_tell_full(const struct mcp_client *c, struct mcp_surface *f)
{
	if (f->told)
		return;
	f->told = true;
	log_warn("location %.*s: episode %s: sessions of MCP clients are "
		 "refused, as %zu are open: raise \"sessions\" of the "
		 "location, "
		 "or lower its session_timeout",
	    VIEW_ARG(c->r->location->path), c->episode, f->n);
}

int
mcp_session_full(const struct mcp_client *c, struct view id, bool plain,
    struct buf *out)
{
	struct buf detail = BUF_INIT(SESSION_DETAIL_MAX);
	struct mcp_fault f = { .reason = "sessions_limit" };
	int rc = buf_printf(&detail,
	    "%llu sessions of MCP clients are open at %.*s for this episode, "
	    "as many as may be",
	    (unsigned long long)c->conf->sessions,
	    VIEW_ARG(view_sub(c->r->location->path, 0, SESSION_PATH_MAX)));

	f.code = plain ? JRPC_INVALID_PARAMS : JRPC_INTERNAL_ERROR;
	f.message = plain ? "Invalid parameters" : DOOR_FAILED;
	f.remedy = plain
	    ? "end one by openenv/session/close, or have the operator raise "
	      "sessions of this location"
	    : "end one by DELETE with its Mcp-Session-Id, or have the operator "
	      "raise sessions of this location";
	f.detail = buf_view(&detail);
	if (rc == SP_OK)
		rc = mcp_text_fault(&f, id, out);
	buf_clear(&detail);
	return rc;
}

int
mcp_session_new(const struct mcp_client *c, bool plain,
    struct mcp_session **out)
{
	struct mcp_surface *f = session_surface(c);
	struct mcp_session *s;
	int rc;

	if (f != NULL && f->n >= c->conf->sessions) {
		session_expire(c, f);
		f = session_surface(c);
	}
	if (f != NULL && f->n >= c->conf->sessions) {
		session_tell_full(c, f);
		return SP_E_LIMIT;
	}
	s = mem_calloc(1, sizeof(*s));
	if (s == NULL)
		return SP_E_NOMEM;
	if (f == NULL)
		f = session_surface_new(c);
	if (f == NULL) {
		mem_free(s);
		return SP_E_NOMEM;
	}
	s->surface = f;
	s->plain = plain;
	s->used_ms = loop_now_ms(gate_loop(c->r->gate));
	LIST_INIT(&s->clients);
	LIST_INIT(&s->peer.asked);
	if (plain)
		session_uuid(s->id);
	else
		rnd_token(s->id, MCP_ID_CHARS);
	TAILQ_INSERT_TAIL(&f->sessions, s, link);
	f->n++;
	rc = hmap_add(f->set->by_id, view_str(s->id), s);
	if (rc != SP_OK) {
		session_take_out(f, s);
		session_free(s);
		return rc;
	}
	*out = s;
	return SP_OK;
}
