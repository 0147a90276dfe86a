#include "config.h"

#include <sys/queue.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/mem.h"
#include "helper/fleetlog.h"
#include "ipc/wire.h"

enum {
	FLEETLOG_OPS = 3, /* add, remove, drain */
	FLEETLOG_URL_MAX = 2048,
	FLEETLOG_ARENA = 16 * 1024,
	FLEETLOG_BODY_MAX = 4096,
};

struct entry {
	TAILQ_ENTRY(entry) link;
	struct view upstream, url; /* of body */
	size_t n;
	char body[]; /* as it came */
};

TAILQ_HEAD(entries, entry);

struct fleetlog {
	struct entries entries; /* the last change is the last one */
	size_t n;
};

struct fleetlog *
fleetlog_new(void)
{
	struct fleetlog *l = mem_calloc(1, sizeof(*l));

	if (l != NULL)
		TAILQ_INIT(&l->entries);
	return l;
}

static void
drop(struct fleetlog *l, struct entry *e)
{
	TAILQ_REMOVE(&l->entries, e, link);
	l->n--;
	mem_free(e);
}

void
fleetlog_free(struct fleetlog *l)
{
	if (l == NULL)
		return;
	while (!TAILQ_EMPTY(&l->entries))
		drop(l, TAILQ_FIRST(&l->entries));
	mem_free(l);
}

static const struct conf_upstream *
find_upstream(const struct conf *conf, struct view name)
{
	size_t i;

	for (i = 0; i < conf->upstreams_n; i++)
		if (view_eq(conf->upstreams[i]->name, name))
			return conf->upstreams[i];
	return NULL;
}

static int
read_body(struct view body, struct view *upstream, struct view *url)
{
	struct wire w;
	uint8_t op;

	wire_init(&w, body);
	op = wire_u8(&w);
	*upstream = wire_bytes(&w);
	*url = wire_bytes(&w);
	if (wire_done(&w) != SP_OK || op >= FLEETLOG_OPS ||
	    url->n > FLEETLOG_URL_MAX)
		return SP_E_PROTO;
	return SP_OK;
}

/* SP_E_PROTO: no server of an upstream could be written so. */
static int
check_url(struct view url)
{
	struct arena *a = arena_new(FLEETLOG_ARENA);
	struct conf_upstream_server s;
	const char *why;
	int rc = SP_E_NOMEM;

	if (a != NULL)
		rc = conf_url_read(url, a, &s, &why);
	arena_free(a);
	return rc == SP_OK || rc == SP_E_NOMEM ? rc : SP_E_PROTO;
}

static struct entry *
find(struct fleetlog *l, struct view upstream, struct view url)
{
	struct entry *e;

	TAILQ_FOREACH (e, &l->entries, link)
		if (view_eq(e->upstream, upstream) && view_eq(e->url, url))
			return e;
	return NULL;
}

static void
add(struct fleetlog *l, struct view body)
{
	struct entry *e = NULL;

	if (l->n < FLEETLOG_MAX)
		e = mem_alloc(sizeof(*e) + body.n);
	if (e == NULL) {
		log_warn("upstreams: a change is not kept for a reactor that "
			 "starts later: %s",
		    l->n < FLEETLOG_MAX ? "out of memory"
					: "there are 1024 already");
		return;
	}
	memcpy(e->body, body.p, body.n);
	e->n = body.n;
	(void)!read_body(view_of(e->body, e->n), &e->upstream, &e->url);
	TAILQ_INSERT_TAIL(&l->entries, e, link);
	l->n++;
}

int
fleetlog_note(struct fleetlog *l, const struct conf *conf, struct view body)
{
	struct view upstream, url;
	struct entry *e;
	int rc;

	rc = read_body(body, &upstream, &url);
	if (rc == SP_OK)
		rc = check_url(url);
	if (rc != SP_OK)
		return rc == SP_E_NOMEM ? SP_OK : rc;
	/* it may have been told of before a reload that took it away */
	if (find_upstream(conf, upstream) == NULL)
		return SP_OK;
	e = find(l, upstream, url);
	if (e != NULL)
		drop(l, e);
	add(l, body);
	return SP_OK;
}

static bool
same_servers(const struct conf_upstream *a, const struct conf_upstream *b)
{
	size_t i;

	if (a == NULL || b == NULL || a->servers_n != b->servers_n)
		return false;
	for (i = 0; i < a->servers_n; i++)
		if (!view_eq(a->servers[i].url, b->servers[i].url))
			return false;
	return true;
}

void
fleetlog_reload(struct fleetlog *l, const struct conf *before,
    const struct conf *conf)
{
	struct entry *e, *next;

	for (e = TAILQ_FIRST(&l->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if (!same_servers(find_upstream(before, e->upstream),
			find_upstream(conf, e->upstream)))
			drop(l, e);
	}
}

int
fleetlog_each(const struct fleetlog *l, int (*one)(void *arg, struct view body),
    void *arg)
{
	const struct entry *e;
	int rc = SP_OK;

	TAILQ_FOREACH (e, &l->entries, link) {
		if (rc == SP_OK)
			rc = one(arg, view_of(e->body, e->n));
	}
	return rc;
}
