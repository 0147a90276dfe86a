#include <stdio.h>
#include <sys/queue.h>

#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>

#include "base/hmap.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/hosts.h"
#include "event/loop_priv.h"
#include "event/resolver.h"

enum {
	TIMEOUT_MS = 10000, /* for a whole lookup */
	/* how long the other family is waited for: RFC 8305 s3 */
	OTHER_FAMILY_MS = 100,
	TTL_MIN_S = 1,
	TTL_MAX_S = 60,
	LOOKUPS_MAX = 1024,
	FAMILY_ADDRS_MAX = RESOLVER_ADDRS_MAX / 2
};

struct lookup;

TAILQ_HEAD(query_list, resolver_query);
TAILQ_HEAD(lookup_list, lookup);

/* One name and one family asked for; lives in its lookup. */
struct ask {
	struct lookup *of;
	struct evdns_request *req; /* NULL: answered, or never asked */
	bool v6;
	bool open; /* the callback is still to come */
	struct hosts_ip v[FAMILY_ADDRS_MAX];
	size_t n;
	int result;
};

/*
 * A name on its way, or found and kept for its time to live.  All who ask for
 * it meanwhile wait here, so a thousand calls cost one query.
 */
struct lookup {
	TAILQ_ENTRY(lookup) link; /* in resolver.lookups */
	struct resolver *r; /* NULL: given up, freed with its last answer */
	struct loop_timer *timer;
	struct ask ask[2];
	struct query_list waiting;
	struct hosts_addrs found;
	uint64_t expires_ms;
	bool done;
	size_t name_n;
	char name[HOSTS_NAME_MAX + 1];
};

struct resolver {
	struct loop *loop;
	struct evdns_base *dns;
	struct hosts *hosts;
	struct hmap *names; /* struct lookup */
	struct lookup_list lookups; /* oldest first */
	struct query_list ready; /* answered, to be told by the task */
	struct loop_task *task;
	uint64_t timeout_ms;
};

struct resolver_query {
	TAILQ_ENTRY(resolver_query) link;
	struct query_list *on;
	void (*cb)(void *arg, int err, const struct resolver_addr *v, size_t n);
	void *arg;
	int err;
	uint16_t port;
	struct hosts_addrs found;
};

/* ---- answers ------------------------------------------------------------- */

static void
addr_fill(const struct hosts_ip *ip, uint16_t port, struct resolver_addr *out)
{
	struct sockaddr_in6 *in6 = (void *)&out->sa;
	struct sockaddr_in *in = (void *)&out->sa;

	memset(out, 0, sizeof(*out));
	if (ip->v6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		memcpy(&in6->sin6_addr, ip->a, 16);
		out->len = sizeof(*in6);
	} else {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, ip->a, 4);
		out->len = sizeof(*in);
	}
}

static void
query_tell(struct resolver_query *q)
{
	struct resolver_addr v[RESOLVER_ADDRS_MAX];
	struct resolver_query was = *q;
	size_t n = q->err == 0 ? q->found.n : 0;

	mem_free(q);
	for (size_t i = 0; i < n; i++)
		addr_fill(&was.found.v[i], was.port, &v[i]);
	was.cb(was.arg, was.err, n > 0 ? v : NULL, n);
}

/* A round at a time: a callback may ask again and be answered at once. */
static void
on_task(void *arg)
{
	struct resolver *r = arg;
	struct resolver_query *q;
	size_t n = 0;

	for (q = TAILQ_FIRST(&r->ready); q != NULL; q = TAILQ_NEXT(q, link))
		n++;
	while (n-- > 0 && (q = TAILQ_FIRST(&r->ready)) != NULL) {
		TAILQ_REMOVE(&r->ready, q, link);
		query_tell(q);
	}
	if (!TAILQ_EMPTY(&r->ready))
		loop_task_post(r->task);
}

static void
query_answer(struct resolver *r, struct resolver_query *q, int err,
    const struct hosts_addrs *found)
{
	if (q->on != NULL)
		TAILQ_REMOVE(q->on, q, link);
	q->err = err;
	if (found != NULL)
		q->found = *found;
	q->on = &r->ready;
	TAILQ_INSERT_TAIL(&r->ready, q, link);
	loop_task_post(r->task);
}

/* ---- lookups ------------------------------------------------------------- */

/* Out of the table; freed now, or when libevent has called back. */
static void
lookup_drop(struct lookup *lk)
{
	if (lk->r != NULL) {
		(void)hmap_del(lk->r->names, view_of(lk->name, lk->name_n));
		TAILQ_REMOVE(&lk->r->lookups, lk, link);
		loop_timer_free(lk->timer);
		lk->timer = NULL;
	}
	for (int i = 0; i < 2; i++)
		if (lk->ask[i].req != NULL && lk->r != NULL) {
			evdns_cancel_request(lk->r->dns, lk->ask[i].req);
			lk->ask[i].req = NULL;
		}
	lk->r = NULL;
	if (!lk->ask[0].open && !lk->ask[1].open)
		mem_free(lk);
}

/* IPv4 first, then in turns: one family that does not work costs one try. */
static void
lookup_merge(struct lookup *lk)
{
	struct hosts_addrs *f = &lk->found;

	f->n = 0;
	for (size_t i = 0; i < FAMILY_ADDRS_MAX; i++)
		for (int k = 0; k < 2; k++)
			if (i < lk->ask[k].n)
				f->v[f->n++] = lk->ask[k].v[i];
}

static void
lookup_finish(struct lookup *lk, int err)
{
	struct resolver_query *q;
	struct resolver *r = lk->r;

	lookup_merge(lk);
	if (lk->found.n > 0)
		err = 0;
	while ((q = TAILQ_FIRST(&lk->waiting)) != NULL)
		query_answer(r, q, err, &lk->found);
	if (err != 0 || lk->ask[0].open || lk->ask[1].open) {
		/* not kept: an error, or half of an answer */
		lookup_drop(lk);
		return;
	}
	loop_timer_stop(lk->timer);
	lk->done = true;
}

static void
on_deadline(void *arg)
{
	lookup_finish(arg, SP_E_TIMEOUT);
}

static int
lookup_error(const struct lookup *lk)
{
	for (int i = 0; i < 2; i++)
		if (lk->ask[i].result == DNS_ERR_TIMEOUT)
			return SP_E_TIMEOUT;
	return SP_E_DNS;
}

static void
ask_take(struct ask *a, int count, int ttl, const void *addresses)
{
	size_t size = a->v6 ? 16 : 4;
	uint64_t until;

	for (int i = 0; i < count && a->n < FAMILY_ADDRS_MAX; i++) {
		a->v[a->n].v6 = a->v6;
		memcpy(a->v[a->n++].a,
		    (const char *)addresses + (size_t)i * size, size);
	}
	ttl = ttl < TTL_MIN_S ? TTL_MIN_S : ttl > TTL_MAX_S ? TTL_MAX_S : ttl;
	until = loop_now_ms(a->of->r->loop) + (uint64_t)ttl * 1000;
	if (a->of->expires_ms == 0 || until < a->of->expires_ms)
		a->of->expires_ms = until;
}

static void
on_answer(int result, char type, int count, int ttl, void *addresses, void *arg)
{
	struct ask *a = arg;
	struct lookup *lk = a->of;
	bool fits = type == (a->v6 ? DNS_IPv6_AAAA : DNS_IPv4_A);

	a->open = false;
	a->req = NULL;
	a->result = result;
	if (lk->r == NULL) {
		lookup_drop(lk);
		return;
	}
	if (result == DNS_ERR_NONE && fits && addresses != NULL)
		ask_take(a, count, ttl, addresses);
	if (lk->ask[0].open || lk->ask[1].open) {
		if (a->n > 0)
			loop_timer_set(lk->timer, OTHER_FAMILY_MS);
		return;
	}
	lookup_finish(lk, lookup_error(lk));
}

static void
lookup_ask(struct lookup *lk, int flags)
{
	struct ask *a;

	for (int i = 0; i < 2; i++) {
		a = &lk->ask[i];
		memset(a, 0, sizeof(*a));
		a->of = lk;
		a->v6 = i == 1;
		a->result = DNS_ERR_UNKNOWN;
		a->open = true;
	}
	for (int i = 0; i < 2; i++) {
		a = &lk->ask[i];
		if (i == 0)
			a->req = evdns_base_resolve_ipv4(lk->r->dns, lk->name,
			    flags, on_answer, a);
		else
			a->req = evdns_base_resolve_ipv6(lk->r->dns, lk->name,
			    flags, on_answer, a);
		if (a->req == NULL)
			a->open = false;
	}
}

/* Room for one more: what was found longest ago makes it. */
static int
lookups_room(struct resolver *r)
{
	struct lookup *lk;

	if (hmap_count(r->names) < LOOKUPS_MAX)
		return 0;
	for (lk = TAILQ_FIRST(&r->lookups); lk != NULL;
	     lk = TAILQ_NEXT(lk, link)) {
		if (lk->done) {
			lookup_drop(lk);
			return 0;
		}
	}
	return SP_E_LIMIT;
}

static int
lookup_new(struct resolver *r, struct view name, bool absolute,
    struct lookup **out)
{
	struct lookup *lk;
	int rc;

	rc = lookups_room(r);
	if (rc != 0)
		return rc;
	lk = mem_calloc(1, sizeof(*lk));
	if (lk == NULL)
		return SP_E_NOMEM;
	TAILQ_INIT(&lk->waiting);
	memcpy(lk->name, name.p, name.n);
	lk->name_n = name.n;
	lk->timer = loop_timer_new(r->loop, on_deadline, lk);
	rc = lk->timer == NULL ? SP_E_NOMEM : hmap_add(r->names, name, lk);
	if (rc != 0) {
		loop_timer_free(lk->timer);
		mem_free(lk);
		return rc;
	}
	lk->r = r;
	TAILQ_INSERT_TAIL(&r->lookups, lk, link);
	lookup_ask(lk, absolute ? DNS_QUERY_NO_SEARCH : 0);
	if (!lk->ask[0].open && !lk->ask[1].open) {
		lookup_drop(lk);
		return SP_E_NOMEM;
	}
	loop_timer_set(lk->timer, r->timeout_ms);
	*out = lk;
	return 0;
}

/* ---- queries ------------------------------------------------------------- */

static int
query_name(struct resolver *r, struct resolver_query *q, struct view host)
{
	bool absolute = host.n > 0 && host.p[host.n - 1] == '.';
	const struct hosts_addrs *known;
	char name[HOSTS_NAME_MAX];
	struct lookup *lk;
	struct view v;
	int rc;

	v = view_of(name, hosts_name(host, name));
	if (v.n == 0)
		return SP_E_SYNTAX;
	known = hosts_get(r->hosts, v);
	if (known != NULL) {
		query_answer(r, q, 0, known);
		return 0;
	}
	lk = hmap_get(r->names, v);
	if (lk != NULL && lk->done && lk->expires_ms <= loop_now_ms(r->loop)) {
		lookup_drop(lk);
		lk = NULL;
	}
	if (lk == NULL) {
		rc = lookup_new(r, v, absolute, &lk);
		if (rc != 0)
			return rc;
	}
	if (lk->done) {
		query_answer(r, q, 0, &lk->found);
		return 0;
	}
	q->on = &lk->waiting;
	TAILQ_INSERT_TAIL(&lk->waiting, q, link);
	return 0;
}

int
resolver_start(struct resolver *r, struct view host, uint16_t port,
    void (*cb)(void *arg, int err, const struct resolver_addr *v, size_t n),
    void *arg, struct resolver_query **out)
{
	struct hosts_addrs one = { .n = 1 };
	struct resolver_query *q;
	int rc = 0;

	q = mem_calloc(1, sizeof(*q));
	if (q == NULL)
		return SP_E_NOMEM;
	q->cb = cb;
	q->arg = arg;
	q->port = port;
	if (hosts_literal(host, &one.v[0]) == 0)
		query_answer(r, q, 0, &one);
	else
		rc = query_name(r, q, host);
	if (rc != 0) {
		mem_free(q);
		return rc;
	}
	*out = q;
	return 0;
}

void
resolver_cancel(struct resolver_query *q)
{
	if (q == NULL)
		return;
	if (q->on != NULL)
		TAILQ_REMOVE(q->on, q, link);
	mem_free(q);
}

/* ---- the resolver -------------------------------------------------------- */

void
resolver_set_timeout(struct resolver *r, uint64_t ms)
{
	char text[32];

	r->timeout_ms = ms;
	/* three tries fit into it, with something to spare */
	(void)snprintf(text, sizeof(text), "%llu.%03llu",
	    (unsigned long long)(ms / 4 / 1000),
	    (unsigned long long)(ms / 4 % 1000));
	(void)evdns_base_set_option(r->dns, "timeout:", text);
}

static int
add_servers(struct resolver *r, const struct view *servers, size_t n)
{
	char text[128];

	for (size_t i = 0; i < n; i++) {
		if (servers[i].n >= sizeof(text) ||
		    memchr(servers[i].p, '\0', servers[i].n) != NULL)
			return SP_E_ARG;
		memcpy(text, servers[i].p, servers[i].n);
		text[servers[i].n] = '\0';
		if (evdns_base_nameserver_ip_add(r->dns, text) != 0)
			return SP_E_ARG;
	}
	return 0;
}

static int
resolver_init(struct resolver *r, const struct view *servers, size_t n)
{
	/* libevent draws its transaction numbers from here: open it now */
	if (evutil_secure_rng_init() != 0)
		return SP_E_SYS;
	r->names = hmap_new(LOOKUPS_MAX);
	r->hosts = hosts_new("/etc/hosts");
	r->task = loop_task_new(r->loop, on_task, r);
	r->dns = evdns_base_new(loop_base(r->loop), 0);
	if (r->names == NULL || r->hosts == NULL || r->task == NULL ||
	    r->dns == NULL)
		return SP_E_NOMEM;
	resolver_set_timeout(r, TIMEOUT_MS);
	if (n > 0)
		return add_servers(r, servers, n);
	/* without the file there is 127.0.0.1, see resolv.conf(5) */
	if (evdns_base_resolv_conf_parse(r->dns,
		DNS_OPTION_SEARCH | DNS_OPTION_NAMESERVERS | DNS_OPTION_MISC,
		"/etc/resolv.conf") != 0)
		log_warn("resolver: /etc/resolv.conf cannot be used whole");
	return 0;
}

struct resolver *
resolver_new(struct loop *l, const struct view *servers, size_t n)
{
	struct resolver *r;

	r = mem_calloc(1, sizeof(*r));
	if (r == NULL)
		return NULL;
	r->loop = l;
	TAILQ_INIT(&r->lookups);
	TAILQ_INIT(&r->ready);
	if (resolver_init(r, servers, n) != 0) {
		resolver_free(r);
		return NULL;
	}
	return r;
}

static void
queries_free(struct query_list *list)
{
	struct resolver_query *q;

	while ((q = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, q, link);
		mem_free(q);
	}
}

void
resolver_free(struct resolver *r)
{
	struct lookup *lk;

	if (r == NULL)
		return;
	while ((lk = TAILQ_FIRST(&r->lookups)) != NULL) {
		queries_free(&lk->waiting);
		lookup_drop(lk);
	}
	queries_free(&r->ready);
	if (r->dns != NULL)
		evdns_base_free(r->dns, 0);
	loop_task_free(r->task);
	hosts_free(r->hosts);
	hmap_free(r->names);
	mem_free(r);
}
