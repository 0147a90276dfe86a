#include <stdio.h>
#include <sys/queue.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/dial.h"
#include "net/pool.h"

enum {
	SERVERS_MAX = 64, /* bits of pool_lease.tried */
	REST_MIN_MS = 1000,
	REST_MAX_MS = 30000,
	WHY_BYTES = 400
};

enum lease_state {
	LEASE_START, /* queued, to begin with its server */
	LEASE_RESOLVE,
	LEASE_DIAL,
	LEASE_TLS,
	LEASE_DONE, /* queued, to be told */
	LEASE_TOLD, /* of a failure, right now */
	LEASE_LENT,
	LEASE_IDLE
};

TAILQ_HEAD(lease_list, pool_lease);

struct server {
	char *host;
	char *label; /* for messages */
	uint16_t port;
	bool is_unix, tls;
	bool probing; /* one connection finds out whether it is back */
	bool last_set;
	unsigned fails;
	uint64_t seed;
	uint64_t rest_until_ms;
	size_t busy; /* leases on the way and lent */
	struct resolver_addr last; /* where it answered */
	struct lease_list idle; /* latest first */
};

/* A connection; the same object while it is lent and while it is idle. */
struct pool_lease {
	TAILQ_ENTRY(pool_lease) link; /* in pool.queue or server.idle */
	TAILQ_ENTRY(pool_lease) age; /* in pool.idle */
	struct pool *pool;
	struct server *server;
	struct stream *stream;
	struct resolver_query *query;
	struct dial *dial;
	struct loop_timer *timer;
	void (*cb)(void *arg, int err, struct pool_lease *lease);
	void *arg;
	char *why;
	uint64_t hash;
	uint64_t tried; /* one bit a server */
	uint64_t idle_since_ms;
	int err;
	enum lease_state state;
	bool hashed;
	bool reused;
	bool probe;
};

struct pool {
	struct loop *loop;
	struct resolver *resolver;
	char *name;
	struct tls_ctx *tls;
	struct loop_task *task;
	struct loop_timer *timer; /* the oldest idle one's end */
	struct lease_list queue;
	struct lease_list idle; /* oldest first */
	struct pool_stats stats;
	bool least_conn;
	uint64_t connect_timeout_ms, keepalive, keepalive_timeout_ms;
	size_t open; /* leases that are not idle */
	size_t turn; /* where looking for the least busy one begins */
	size_t servers_n;
	struct server servers[];
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

static bool
is_up(const struct server *s, uint64_t now_ms)
{
	return s->fails == 0 || (s->rest_until_ms <= now_ms && !s->probing);
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

/* Among those not tried yet, one that is up before one that rests. */
static struct server *
choose(struct pool_lease *l)
{
	struct server *best = NULL, *s;
	struct pool *p = l->pool;
	uint64_t now = loop_now_ms(p->loop);
	bool best_up = false, up;
	size_t at;

	p->turn++;
	for (size_t i = 0; i < p->servers_n; i++) {
		at = (p->turn + i) % p->servers_n;
		s = &p->servers[at];
		if ((l->tried & (UINT64_C(1) << at)) != 0)
			continue;
		up = is_up(s, now);
		if (best == NULL || (up && !best_up) ||
		    (up == best_up && better(l, s, best))) {
			best = s;
			best_up = up;
		}
	}
	return best;
}

static void
assign(struct pool_lease *l, struct server *s)
{
	l->server = s;
	l->tried |= UINT64_C(1) << (s - l->pool->servers);
	s->busy++;
}

static void
server_failed(struct pool_lease *l)
{
	struct server *s = l->server;
	uint64_t now = loop_now_ms(l->pool->loop), rest = REST_MIN_MS;

	if (l->probe)
		s->probing = false;
	l->probe = false;
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

static void
server_good(struct pool_lease *l)
{
	struct server *s = l->server;

	if (l->probe)
		s->probing = false;
	l->probe = false;
	if (s->fails != 0)
		log_notice("upstream \"%s\": %s answers again", l->pool->name,
		    s->label);
	s->fails = 0;
}

/* ---- leases -------------------------------------------------------------- */

static void
enqueue(struct pool_lease *l, enum lease_state state)
{
	l->state = state;
	TAILQ_INSERT_TAIL(&l->pool->queue, l, link);
	loop_task_post(l->pool->task);
}

/* What a connection on its way holds. */
static void
lease_abort(struct pool_lease *l)
{
	resolver_cancel(l->query);
	l->query = NULL;
	dial_cancel(l->dial);
	l->dial = NULL;
	loop_timer_free(l->timer);
	l->timer = NULL;
	stream_free(l->stream, false);
	l->stream = NULL;
}

static void
lease_free(struct pool_lease *l)
{
	lease_abort(l);
	mem_free(l->why);
	mem_free(l);
}

static void
set_why(struct pool_lease *l, const char *stage, const char *cause)
{
	char text[WHY_BYTES];

	(void)snprintf(text, sizeof(text), "%s: %s: %s", l->server->label,
	    stage, cause);
	mem_free(l->why);
	l->why = mem_strdup(text);
}

/* One of those that pool_get() promises. */
static int
public_error(int err)
{
	switch (err) {
	case SP_E_REFUSED:
	case SP_E_TIMEOUT:
	case SP_E_DNS:
	case SP_E_TLS:
	case SP_E_GONE:
	case SP_E_NOMEM:
		return err;
	case SP_E_NOTFOUND:
	case SP_E_DENIED:
		return SP_E_REFUSED;
	case SP_E_SYNTAX:
		return SP_E_DNS;
	default:
		return SP_E_SYS;
	}
}

/* This server did not work out: the next one, or the end. */
static void
attempt_failed(struct pool_lease *l, int err, const char *stage,
    const char *cause)
{
	struct server *next = NULL;

	set_why(l, stage, cause);
	l->pool->stats.connect_errors++;
	lease_abort(l);
	/* want of memory is our fault, not the server's */
	if (err != SP_E_NOMEM) {
		server_failed(l);
		next = choose(l);
	} else if (l->probe) {
		l->server->probing = false;
		l->probe = false;
	}
	if (next != NULL) {
		l->server->busy--;
		assign(l, next);
		enqueue(l, LEASE_START);
		return;
	}
	l->err = public_error(err);
	enqueue(l, LEASE_DONE);
}

static void
connected(struct pool_lease *l)
{
	loop_timer_free(l->timer);
	l->timer = NULL;
	server_good(l);
	enqueue(l, LEASE_DONE);
}

static void
on_tls_timer(void *arg)
{
	attempt_failed(arg, SP_E_TIMEOUT, "TLS handshake",
	    err_str(SP_E_TIMEOUT));
}

static void idle_drop(struct pool_lease *l);

/* While nobody else owns the stream: the handshake, and idle ones. */
static void
on_stream(void *arg, struct stream *s, unsigned what)
{
	struct pool_lease *l = arg;
	size_t n;

	if (l->state == LEASE_TLS && (what & STREAM_FAIL) != 0) {
		attempt_failed(l, stream_error(s), "TLS handshake",
		    stream_why(s));
	} else if (l->state == LEASE_TLS) {
		stream_want(s, 0);
		connected(l);
	} else if (l->state == LEASE_IDLE) {
		/* a session ticket is no byte */
		if ((what & STREAM_FAIL) != 0 ||
		    stream_read(s, loop_scratch(l->pool->loop), 1, &n) !=
			SP_E_AGAIN)
			idle_drop(l);
	}
	/* else queued: whoever gets it will see what is wrong */
}

static int
handshake(struct pool_lease *l)
{
	l->timer = loop_timer_new(l->pool->loop, on_tls_timer, l);
	if (l->timer == NULL)
		return SP_E_NOMEM;
	loop_timer_set(l->timer, l->pool->connect_timeout_ms);
	l->state = LEASE_TLS;
	stream_want(l->stream, STREAM_WRITE);
	return 0;
}

static void
on_dialled(void *arg, int err, int fd, const struct resolver_addr *addr)
{
	struct pool_lease *l = arg;
	struct stream_owner owner = { on_stream, l };
	struct stream_side side = { .server = false };
	struct server *s = l->server;
	const char *stage = "connect";

	l->dial = NULL;
	if (err == 0) {
		s->last = *addr;
		s->last_set = true;
		l->pool->stats.connects++;
		stage = "stream";
		side.tls = s->tls ? l->pool->tls : NULL;
		side.name = view_str(s->host);
		err = stream_new(l->pool->loop, fd, &side, &owner, &l->stream);
	}
	if (err == 0 && s->tls)
		err = handshake(l);
	if (err != 0)
		attempt_failed(l, err, stage, err_str(err));
	else if (!s->tls)
		connected(l);
}

static int
dial(struct pool_lease *l, const struct resolver_addr *v, size_t n)
{
	struct dial_params params = { v, n, l->pool->connect_timeout_ms,
		DIAL_STAGGER_MS };

	l->state = LEASE_DIAL;
	return dial_start(l->pool->loop, &params, on_dialled, l, &l->dial);
}

static void
on_resolved(void *arg, int err, const struct resolver_addr *v, size_t n)
{
	struct resolver_addr sorted[RESOLVER_ADDRS_MAX];
	struct pool_lease *l = arg;
	const struct server *s = l->server;
	const char *stage = "resolve";
	size_t k = 0;

	l->query = NULL;
	if (err == 0) {
		/* where it answered last time comes first */
		for (int same = 1; same >= 0; same--)
			for (size_t i = 0; i < n; i++)
				if ((s->last_set && v[i].len == s->last.len &&
					memcmp(&v[i].sa, &s->last.sa,
					    v[i].len) == 0) == (same == 1))
					sorted[k++] = v[i];
		stage = "connect";
		err = dial(l, sorted, k);
	}
	if (err != 0)
		attempt_failed(l, err, stage, err_str(err));
}

static void
begin(struct pool_lease *l)
{
	struct server *s = l->server;
	struct resolver_addr addr;
	uint64_t now = loop_now_ms(l->pool->loop);
	int rc;

	if (s->fails != 0 && is_up(s, now))
		l->probe = s->probing = true;
	if (s->is_unix) {
		rc = dial_unix(view_str(s->host), &addr);
		if (rc == 0)
			rc = dial(l, &addr, 1);
	} else {
		l->state = LEASE_RESOLVE;
		rc = resolver_start(l->pool->resolver, view_str(s->host),
		    s->port, on_resolved, l, &l->query);
	}
	if (rc != 0)
		attempt_failed(l, rc, s->is_unix ? "connect" : "resolve",
		    rc == SP_E_SYNTAX ? "not a host name" : err_str(rc));
}

static void
tell(struct pool_lease *l)
{
	struct pool *p = l->pool;

	if (l->err == 0) {
		l->state = LEASE_LENT;
		p->stats.busy++;
		l->cb(l->arg, 0, l);
		return;
	}
	l->state = LEASE_TOLD;
	l->server->busy--;
	p->open--;
	l->cb(l->arg, l->err, l);
	lease_free(l);
}

static void
on_task(void *arg)
{
	struct pool *p = arg;
	struct pool_lease *l;
	size_t n = 0;

	/* a round at a time: callbacks may ask again */
	for (l = TAILQ_FIRST(&p->queue); l != NULL; l = TAILQ_NEXT(l, link))
		n++;
	while (n-- > 0 && (l = TAILQ_FIRST(&p->queue)) != NULL) {
		TAILQ_REMOVE(&p->queue, l, link);
		if (l->state == LEASE_START)
			begin(l);
		else
			tell(l);
	}
	if (!TAILQ_EMPTY(&p->queue))
		loop_task_post(p->task);
}

/* ---- idle connections ---------------------------------------------------- */

static void
idle_take(struct pool_lease *l)
{
	TAILQ_REMOVE(&l->server->idle, l, link);
	TAILQ_REMOVE(&l->pool->idle, l, age);
	l->pool->stats.idle--;
	stream_want(l->stream, 0);
}

static void
idle_drop(struct pool_lease *l)
{
	idle_take(l);
	stream_free(l->stream, true);
	l->stream = NULL;
	lease_free(l);
}

static void
on_idle_timer(void *arg)
{
	struct pool *p = arg;
	struct pool_lease *l;
	uint64_t now = loop_now_ms(p->loop), end;

	while ((l = TAILQ_FIRST(&p->idle)) != NULL) {
		end = l->idle_since_ms + p->keepalive_timeout_ms;
		if (end > now) {
			loop_timer_set(p->timer, end - now);
			return;
		}
		idle_drop(l);
	}
}

static void
idle_add(struct pool_lease *l)
{
	struct stream_owner owner = { on_stream, l };
	struct pool *p = l->pool;
	struct pool_lease *old;

	while (p->stats.idle >= p->keepalive &&
	    (old = TAILQ_FIRST(&p->idle)) != NULL)
		idle_drop(old);
	l->state = LEASE_IDLE;
	l->idle_since_ms = loop_now_ms(p->loop);
	if (TAILQ_EMPTY(&p->idle))
		loop_timer_set(p->timer, p->keepalive_timeout_ms);
	TAILQ_INSERT_HEAD(&l->server->idle, l, link);
	TAILQ_INSERT_TAIL(&p->idle, l, age);
	p->stats.idle++;
	stream_set_owner(l->stream, &owner);
	stream_want(l->stream, STREAM_READ);
}

/* The end of a lease that has a stream. */
static void
give_back(struct pool_lease *l, bool reusable)
{
	l->server->busy--;
	l->pool->open--;
	if (reusable && l->pool->keepalive > 0 &&
	    stream_error(l->stream) == 0 && !stream_pending(l->stream)) {
		idle_add(l);
		return;
	}
	stream_free(l->stream, reusable);
	l->stream = NULL;
	lease_free(l);
}

/* ---- what others call ---------------------------------------------------- */

static void
lease_init(struct pool_lease *l, struct pool *p, struct view key)
{
	memset(l, 0, sizeof(*l));
	l->pool = p;
	l->hash = view_hash(key);
	/* without a key there is nothing to keep together */
	l->hashed = !p->least_conn && key.n > 0;
}

int
pool_get(struct pool *p, struct view key, bool fresh,
    void (*cb)(void *arg, int err, struct pool_lease *lease), void *arg,
    struct pool_lease **out)
{
	struct pool_lease *l, *idle, want;
	struct server *s;

	lease_init(&want, p, key);
	s = choose(&want);
	idle = fresh ? NULL : TAILQ_FIRST(&s->idle);
	if (idle != NULL) {
		l = idle;
		idle_take(l);
		l->reused = true;
		l->tried = 0;
		p->stats.reuses++;
	} else {
		l = mem_alloc(sizeof(*l));
		if (l == NULL)
			return SP_E_NOMEM;
		*l = want;
	}
	l->cb = cb;
	l->arg = arg;
	p->open++;
	assign(l, s);
	enqueue(l, idle != NULL ? LEASE_DONE : LEASE_START);
	*out = l;
	return 0;
}

struct stream *
pool_lease_stream(struct pool_lease *l)
{
	return l->stream;
}

bool
pool_lease_reused(const struct pool_lease *l)
{
	return l->reused;
}

size_t
pool_lease_server(const struct pool_lease *l)
{
	return (size_t)(l->server - l->pool->servers);
}

const char *
pool_lease_why(const struct pool_lease *l)
{
	return l->why != NULL ? l->why : err_str(l->err);
}

void
pool_release(struct pool_lease *l, bool reusable)
{
	if (l->state == LEASE_TOLD)
		return; /* freed when the callback returns */
	if (l->state != LEASE_LENT) {
		pool_cancel(l);
		return;
	}
	l->pool->stats.busy--;
	give_back(l, reusable);
}

void
pool_cancel(struct pool_lease *l)
{
	if (l == NULL || l->state == LEASE_TOLD)
		return;
	if (l->state == LEASE_LENT) {
		pool_release(l, false);
		return;
	}
	if (l->state == LEASE_START || l->state == LEASE_DONE)
		TAILQ_REMOVE(&l->pool->queue, l, link);
	if (l->state == LEASE_DONE && l->err == 0) {
		/* nobody has used it: as good as new */
		give_back(l, true);
		return;
	}
	if (l->probe)
		l->server->probing = false;
	l->server->busy--;
	l->pool->open--;
	lease_free(l);
}

static int
server_init(struct server *s, const struct pool_server *from)
{
	struct view host = from->host;
	char label[320];

	TAILQ_INIT(&s->idle);
	s->port = from->port;
	s->is_unix = from->is_unix;
	s->tls = from->tls;
	if (!s->is_unix && host.n > 2 && host.p[0] == '[' &&
	    host.p[host.n - 1] == ']')
		host = view_sub(host, 1, host.n - 2);
	if (host.n == 0 || memchr(host.p, '\0', host.n) != NULL)
		return SP_E_ARG;
	if (s->is_unix)
		(void)snprintf(label, sizeof(label), "unix:%.*s",
		    VIEW_ARG(host));
	else
		(void)snprintf(label, sizeof(label),
		    view_find(host, ':') < host.n ? "[%.*s]:%u" : "%.*s:%u",
		    VIEW_ARG(host), s->port);
	s->host = mem_strndup(host.p, host.n);
	s->label = mem_strdup(label);
	if (s->host == NULL || s->label == NULL)
		return SP_E_NOMEM;
	s->seed = mix(view_hash(view_str(s->label)));
	return 0;
}

static int
pool_init(struct pool *p, const struct pool_params *params)
{
	int rc;

	TAILQ_INIT(&p->queue);
	TAILQ_INIT(&p->idle);
	p->least_conn = params->least_conn;
	p->connect_timeout_ms = params->connect_timeout_ms;
	p->keepalive = params->keepalive;
	p->keepalive_timeout_ms = params->keepalive_timeout_ms;
	for (size_t i = 0; i < params->servers_n; i++) {
		rc = server_init(&p->servers[i], &params->servers[i]);
		if (rc != 0)
			return rc;
	}
	p->name =
	    mem_strndup(params->name.n ? params->name.p : "", params->name.n);
	p->task = loop_task_new(p->loop, on_task, p);
	p->timer = loop_timer_new(p->loop, on_idle_timer, p);
	if (p->name == NULL || p->task == NULL || p->timer == NULL)
		return SP_E_NOMEM;
	return 0;
}

int
pool_new(struct loop *l, struct resolver *r, const struct pool_params *params,
    struct pool **out)
{
	size_t n = params->servers_n;
	struct pool *p;
	int rc;

	if (n == 0 || n > SERVERS_MAX)
		return SP_E_ARG;
	for (size_t i = 0; i < n; i++)
		if ((params->servers[i].tls && params->tls == NULL) ||
		    (!params->servers[i].is_unix && r == NULL))
			return SP_E_ARG;
	p = mem_calloc(1, sizeof(*p) + n * sizeof(p->servers[0]));
	if (p == NULL)
		return SP_E_NOMEM;
	p->loop = l;
	p->resolver = r;
	p->servers_n = n;
	p->tls = params->tls != NULL ? tls_ref(params->tls) : NULL;
	rc = pool_init(p, params);
	if (rc != 0) {
		pool_free(p);
		return rc;
	}
	*out = p;
	return 0;
}

void
pool_free(struct pool *p)
{
	struct pool_lease *l;

	if (p == NULL)
		return;
	err_assert(p->open == 0);
	while ((l = TAILQ_FIRST(&p->idle)) != NULL)
		idle_drop(l);
	loop_task_free(p->task);
	loop_timer_free(p->timer);
	for (size_t i = 0; i < p->servers_n; i++) {
		mem_free(p->servers[i].host);
		mem_free(p->servers[i].label);
	}
	tls_unref(p->tls);
	mem_free(p->name);
	mem_free(p);
}

void
pool_stats(const struct pool *p, struct pool_stats *out)
{
	*out = p->stats;
}
