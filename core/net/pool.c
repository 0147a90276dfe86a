#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/pool_priv.h"

enum { WHY_BYTES = 400 };

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
	if (l->pool->dialler != NULL && l->given != NULL)
		l->pool->dialler->cancel(l->given);
	l->given = NULL;
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

	(void)snprintf(text, sizeof(text), "%s: %s%s%s", l->server->label,
	    stage, cause != NULL ? ": " : "", cause != NULL ? cause : "");
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

/* Those that wait for a connection of their server look anew. */
static void
share_wake(struct server *s)
{
	struct pool_lease *l;

	s->leader = NULL;
	while ((l = TAILQ_FIRST(&s->waiting)) != NULL) {
		TAILQ_REMOVE(&s->waiting, l, link);
		enqueue(l, LEASE_START);
	}
}

/* This server did not work out: the next one, or the end. */
static void
attempt_over(struct pool_lease *l, int err, const char *stage,
    const char *cause)
{
	struct server *next = NULL;
	bool only = l->only;

	set_why(l, stage, cause);
	lease_abort(l);
	/* want of memory is our fault, not the server's */
	if (err != SP_E_NOMEM) {
		pool_servers_failed(l, false);
		next = only ? NULL : pool_servers_choose(l);
	}
	pool_servers_leave(l);
	if (next != NULL) {
		pool_servers_assign(l, next);
		enqueue(l, LEASE_START);
		return;
	}
	l->err = public_error(err);
	enqueue(l, LEASE_DONE);
}

/* For each of them. */
static void
attempts_over(struct lease_list *with, int err, const char *stage,
    const char *cause)
{
	struct pool_lease *w;

	while ((w = TAILQ_FIRST(with)) != NULL) {
		TAILQ_REMOVE(with, w, link);
		attempt_over(w, err, stage, cause);
	}
}

/* Nor did it for those that waited for this connection. */
static void
attempt_failed(struct pool_lease *l, int err, const char *stage,
    const char *cause)
{
	struct server *s = l->server;
	bool leads = s->leader == l;
	struct lease_list with;

	l->pool->stats.connect_errors += !l->check;
	TAILQ_INIT(&with);
	if (leads && err != SP_E_NOMEM)
		TAILQ_CONCAT(&with, &s->waiting, link);
	if (leads)
		share_wake(s);
	attempt_over(l, err, stage, cause);
	attempts_over(&with, err, stage, cause);
}

/* One with room is there, or on its way. */
static bool
share(struct pool_lease *l)
{
	const struct pool_sharer *by = l->pool->sharer;
	struct server *s = l->server;

	l->share = by->ask(by->arg, s->slot);
	if (l->share != NULL) {
		l->reused = true;
		l->pool->stats.reuses++;
		enqueue(l, LEASE_DONE);
		return true;
	}
	if (!by->expects(by->arg, s->slot))
		return false;
	if (s->leader == NULL) {
		s->leader = l;
		return false;
	}
	l->state = LEASE_WAIT;
	TAILQ_INSERT_TAIL(&s->waiting, l, link);
	return true;
}

static int
share_offer(struct pool_lease *l)
{
	const struct pool_sharer *by = l->pool->sharer;
	int rc = by->offer(by->arg, l->server->slot, l->stream, &l->share);

	if (rc != 0)
		return rc;
	if (l->share != NULL)
		l->stream = NULL;
	if (l->server->leader == l)
		share_wake(l->server);
	return 0;
}

static void
connected(struct pool_lease *l)
{
	int rc = l->pool->sharer != NULL ? share_offer(l) : 0;

	loop_timer_free(l->timer);
	l->timer = NULL;
	if (rc != 0) {
		attempt_failed(l, rc, "HTTP/2",
		    rc == SP_E_TLS ? "the server does not offer it"
				   : err_str(rc));
		return;
	}
	if (!l->server->late)
		pool_servers_good(l);
	enqueue(l, LEASE_DONE);
}

static void
on_tls_timer(void *arg)
{
	attempt_failed(arg, SP_E_TIMEOUT, "TLS handshake",
	    err_str(SP_E_TIMEOUT));
}

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
			pool_idle_drop(l);
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
dialled(struct pool_lease *l, int err, int fd)
{
	struct stream_owner owner = { on_stream, l };
	struct stream_side side = { .server = false };
	struct server *s = l->server;
	const char *stage = "connect";

	if (err == 0) {
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

static void
on_dialled(void *arg, int err, int fd, const struct resolver_addr *addr)
{
	struct pool_lease *l = arg;

	l->dial = NULL;
	if (err == 0) {
		l->server->last = *addr;
		l->server->last_set = true;
	}
	dialled(l, err, fd);
}

static void
on_given(void *arg, int err, int fd)
{
	struct pool_lease *l = arg;

	l->given = NULL;
	dialled(l, err, fd);
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

	if (l->pool->sharer != NULL && share(l))
		return;
	if (s->fails != 0 && pool_servers_is_up(s, now) && !l->check)
		l->probe = s->probing = true;
	if (l->pool->dialler != NULL) {
		l->state = LEASE_DIAL;
		rc = l->pool->dialler->start(l->pool->dialler->arg, on_given, l,
		    &l->given);
	} else if (s->is_unix) {
		rc = dial_unix(view_str(s->host), &addr);
		if (rc == 0)
			rc = dial(l, &addr, 1);
	} else {
		l->state = LEASE_RESOLVE;
		rc = resolver_start(l->pool->resolver, view_str(s->host),
		    s->port, on_resolved, l, &l->query);
	}
	if (rc != 0)
		attempt_failed(l, rc,
		    l->state == LEASE_RESOLVE ? "resolve" : "connect",
		    rc == SP_E_SYNTAX ? "not a host name" : err_str(rc));
}

static void
tell(struct pool_lease *l)
{
	struct pool *p = l->pool;

	if (l->err == 0) {
		l->state = LEASE_LENT;
		p->stats.busy += l->share == NULL;
		l->cb(l->arg, 0, l);
		return;
	}
	l->state = LEASE_TOLD;
	pool_servers_leave(l);
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
	l->server->idle_n--;
	TAILQ_REMOVE(&l->pool->idle, l, age);
	l->pool->stats.idle--;
	stream_want(l->stream, 0);
}

void
pool_idle_drop(struct pool_lease *l)
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
		pool_idle_drop(l);
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
		pool_idle_drop(old);
	l->state = LEASE_IDLE;
	l->idle_since_ms = loop_now_ms(p->loop);
	if (TAILQ_EMPTY(&p->idle))
		loop_timer_set(p->timer, p->keepalive_timeout_ms);
	TAILQ_INSERT_HEAD(&l->server->idle, l, link);
	l->server->idle_n++;
	TAILQ_INSERT_TAIL(&p->idle, l, age);
	p->stats.idle++;
	stream_set_owner(l->stream, &owner);
	stream_want(l->stream, STREAM_READ);
}

/* The end of a lease that has a stream. */
static void
give_back(struct pool_lease *l, bool reusable)
{
	struct server *s = l->server;

	l->pool->open--;
	if (l->share != NULL) {
		l->pool->sharer->close(l->share);
		pool_servers_leave(l);
		lease_free(l);
		return;
	}
	if (reusable && l->pool->keepalive > 0 && !s->removed && !s->draining &&
	    stream_error(l->stream) == 0 && !stream_pending(l->stream)) {
		/* it has the server still, which stays as long as that */
		idle_add(l);
		pool_servers_leave(l);
		l->server = s;
		return;
	}
	stream_free(l->stream, reusable);
	l->stream = NULL;
	pool_servers_leave(l);
	lease_free(l);
}

/* ---- what others call ---------------------------------------------------- */

static void
lease_init(struct pool_lease *l, struct pool *p, const struct pool_ask *ask)
{
	memset(l, 0, sizeof(*l));
	l->pool = p;
	l->hash = view_hash(ask->key);
	/* without a key there is nothing to keep together */
	l->hashed = !p->least_conn && ask->key.n > 0;
	l->tried = ask->tried;
	l->only = ask->has_slot && ask->only;
	l->check = ask->check;
}

static struct server *
pick(struct pool_lease *l, const struct pool_ask *ask)
{
	struct server *s = NULL;

	if (ask->has_slot && ask->slot < POOL_SERVERS_MAX)
		s = l->pool->slots[ask->slot];
	if (s != NULL && (s->removed || (s->draining && !ask->only)))
		s = NULL;
	return s != NULL || l->only ? s : pool_servers_choose(l);
}

int
pool_get(struct pool *p, const struct pool_ask *ask,
    void (*cb)(void *arg, int err, struct pool_lease *lease), void *arg,
    struct pool_lease **out)
{
	struct pool_lease *l, *idle, want;
	struct server *s;

	lease_init(&want, p, ask);
	s = pick(&want, ask);
	idle = s == NULL || ask->fresh ? NULL : TAILQ_FIRST(&s->idle);
	if (idle != NULL) {
		l = idle;
		idle_take(l);
		l->reused = true;
		l->tried = ask->tried;
		l->only = l->check = false;
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
	if (ask->tried != 0)
		p->stats.failovers++;
	if (s != NULL)
		pool_servers_assign(l, s);
	else
		l->err = SP_E_NOTFOUND;
	enqueue(l, idle != NULL || s == NULL ? LEASE_DONE : LEASE_START);
	*out = l;
	return 0;
}

bool
pool_has_other(const struct pool *p, uint64_t tried)
{
	const struct server *s;

	for (size_t i = 0; i < POOL_SERVERS_MAX; i++) {
		s = p->slots[i];
		if (s != NULL && !s->removed && !s->draining &&
		    (tried & (UINT64_C(1) << i)) == 0)
			return true;
	}
	return false;
}

struct stream *
pool_lease_stream(struct pool_lease *l)
{
	return l->stream;
}

void *
pool_lease_share(const struct pool_lease *l)
{
	return l->share;
}

bool
pool_lease_reused(const struct pool_lease *l)
{
	return l->reused;
}

size_t
pool_lease_server(const struct pool_lease *l)
{
	return l->server->slot;
}

struct view
pool_lease_authority(const struct pool_lease *l)
{
	return view_str(l->server->authority);
}

struct view
pool_lease_base(const struct pool_lease *l)
{
	return view_str(l->server->base);
}

void
pool_lease_failed(struct pool_lease *l, const char *what)
{
	if (l->state != LEASE_LENT)
		return;
	set_why(l, what, NULL);
	l->pool->stats.connect_errors += !l->check;
	pool_servers_failed(l, true);
}

void
pool_lease_good(struct pool_lease *l)
{
	if (l->state == LEASE_LENT && l->server->fails != 0)
		pool_servers_good(l);
}

void
pool_lease_broke(const struct pool_lease *l, const char *what)
{
	if (l->state == LEASE_LENT && l->pool->name[0] != '\0')
		log_notice("upstream \"%s\": %s: %s", l->pool->name,
		    l->server->label, what);
}

const char *
pool_lease_why(const struct pool_lease *l)
{
	if (l->why == NULL && l->err == SP_E_NOTFOUND)
		return "no server takes calls, as all drain";
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
	l->pool->stats.busy -= l->share == NULL;
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
	if (l->state == LEASE_WAIT)
		TAILQ_REMOVE(&l->server->waiting, l, link);
	if (l->server != NULL && l->server->leader == l)
		share_wake(l->server);
	pool_servers_leave(l);
	l->pool->open--;
	lease_free(l);
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
		rc = pool_servers_add(p, &params->servers[i]);
		if (rc != 0)
			return rc;
	}
	pool_servers_loaded(p);
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

	if (n == 0 || n > POOL_SERVERS_MAX)
		return SP_E_ARG;
	p = mem_calloc(1, sizeof(*p));
	if (p == NULL)
		return SP_E_NOMEM;
	p->loop = l;
	p->resolver = r;
	p->tls = params->tls != NULL ? tls_ref(params->tls) : NULL;
	p->sharer = params->sharer;
	p->dialler = params->dialler;
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
		pool_idle_drop(l);
	loop_task_free(p->task);
	loop_timer_free(p->timer);
	pool_servers_free(p);
	tls_unref(p->tls);
	mem_free(p->name);
	mem_free(p);
}

struct view
pool_name(const struct pool *p)
{
	return view_str(p->name);
}

void
pool_stats(const struct pool *p, struct pool_stats *out)
{
	*out = p->stats;
}
