#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "event/resolver.h"
#include "gate/forward.h"
#include "gate/metrics.h"
#include "net/tls.h"

enum {
	FORWARD_HEADER_MAX = 256 * 1024, /* head of an upstream's reply */
	FORWARD_DECODED_MAX = 8 * 1024 * 1024, /* from one read of 64 KiB */
};

/* One upstream. */
struct forward_site {
	const struct conf_upstream *conf;
	struct pool *pool;
	struct tls_ctx *tls;
	char *authorization; /* "Bearer KEY", or NULL */
	size_t authorization_n;
	struct call_server *servers; /* how each is addressed; host is ours */
	uint64_t *connects, *reuses, *errors, *idle, *busy; /* metrics */
};

struct forward {
	struct loop *loop;
	struct resolver *resolver;
	struct forward_site *sites; /* by conf_upstream.index */
	size_t n;
};

static void
forward_site_clear(struct forward_site *s)
{
	if (s->pool != NULL)
		pool_free(s->pool);
	tls_unref(s->tls);
	if (s->authorization != NULL)
		mem_free_zero(s->authorization, s->authorization_n);
	for (size_t i = 0; s->servers != NULL && i < s->conf->servers_n; i++)
		mem_free((void *)(uintptr_t)s->servers[i].host.p);
	mem_free(s->servers);
}

void
forward_free(struct forward *f)
{
	size_t i;

	if (f == NULL)
		return;
	for (i = 0; f->sites != NULL && i < f->n; i++)
		forward_site_clear(&f->sites[i]);
	mem_free(f->sites);
	if (f->resolver != NULL)
		resolver_free(f->resolver);
	mem_free(f);
}

/* Source: RFC 9110 s7.2: the authority, its port only if not the scheme's. */
static char *
forward_host(const struct conf_upstream_server *s)
{
	bool v6 = !s->is_unix && view_find(s->host, ':') < s->host.n;
	struct buf b = BUF_INIT(1024);
	char *host = NULL;
	int rc;

	if (s->is_unix)
		return mem_strdup("localhost");
	rc = buf_printf(&b, "%s%.*s%s", v6 ? "[" : "", VIEW_ARG(s->host),
	    v6 ? "]" : "");
	if (rc == SP_OK && s->port != (s->tls ? 443 : 80))
		rc = buf_printf(&b, ":%u", s->port);
	if (rc == SP_OK)
		host = mem_strndup(buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
	return host;
}

static int
forward_servers(struct forward_site *s)
{
	const struct conf_upstream *u = s->conf;
	char *host;
	size_t i;

	s->servers = mem_calloc(u->servers_n, sizeof(*s->servers));
	if (s->servers == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < u->servers_n; i++) {
		host = forward_host(&u->servers[i]);
		if (host == NULL)
			return SP_E_NOMEM;
		s->servers[i] =
		    (struct call_server){ view_str(host), u->servers[i].base };
	}
	return SP_OK;
}

static int
forward_authorization(struct forward_site *s)
{
	const struct conf_secret *key = s->conf->api_key;
	size_t n;

	if (key == NULL || key->value.p == NULL)
		return SP_OK;
	n = 7 + key->value.n;
	s->authorization = mem_alloc(n);
	if (s->authorization == NULL)
		return SP_E_NOMEM;
	s->authorization_n = n;
	memcpy(s->authorization, "Bearer ", 7);
	memcpy(s->authorization + 7, key->value.p, key->value.n);
	return SP_OK;
}

static int
forward_tls(struct forward_site *s, struct buf *err)
{
	static const struct view alpn[] = { { "http/1.1", 8 } };
	bool wanted = false;
	size_t i;

	for (i = 0; i < s->conf->servers_n; i++)
		wanted = wanted || s->conf->servers[i].tls;
	if (!wanted)
		return SP_OK;
	return tls_client_new(s->conf->ca, s->conf->tls_verify, alpn, 1,
	    &s->tls, err);
}

static int
forward_pool(struct forward *f, struct forward_site *s)
{
	const struct conf_upstream *u = s->conf;
	struct pool_server *servers;
	struct pool_params p = {
		.name = u->name,
		.servers_n = u->servers_n,
		.least_conn = u->balance == CONF_BALANCE_LEAST_CONN,
		.connect_timeout_ms = u->connect_timeout_ms,
		.keepalive = u->keepalive,
		.keepalive_timeout_ms = u->keepalive_timeout_ms,
		.tls = s->tls,
	};
	size_t i;
	int rc;

	servers = mem_calloc(u->servers_n, sizeof(*servers));
	if (servers == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < u->servers_n; i++) {
		servers[i].host = u->servers[i].host;
		servers[i].port = u->servers[i].port;
		servers[i].is_unix = u->servers[i].is_unix;
		servers[i].tls = u->servers[i].tls;
	}
	p.servers = servers;
	rc = pool_new(f->loop, f->resolver, &p, &s->pool);
	mem_free(servers);
	return rc;
}

/* A wrong base is the commonest mistake: say what calls will go to. */
static void
forward_tell(const struct conf_upstream *u)
{
	size_t i;

	for (i = 0; i < u->servers_n; i++)
		log_notice("upstream \"%.*s\": calls go to %s://%.*s:%u%.*s"
			   "/chat/completions",
		    VIEW_ARG(u->name), u->servers[i].tls ? "https" : "http",
		    VIEW_ARG(u->servers[i].host), u->servers[i].port,
		    VIEW_ARG(u->servers[i].base));
}

static uint64_t *
forward_cell(struct metrics *m, enum metrics_kind kind, const char *name,
    const char *help, struct view upstream)
{
	static const char *const labels[] = { "upstream", NULL };
	struct metric *x;

	x = metrics_register(m, kind, name, help, labels, NULL);
	return x == NULL ? NULL : metrics_cell(x, &upstream);
}

static int
forward_metrics(struct forward_site *s, struct metrics *m)
{
	struct view name = s->conf->name;

	s->connects = forward_cell(m, METRICS_COUNTER, "upstream_connects",
	    "Connections opened to an upstream", name);
	s->reuses = forward_cell(m, METRICS_COUNTER, "upstream_reuses",
	    "Requests sent on an idle connection", name);
	s->errors = forward_cell(m, METRICS_COUNTER, "upstream_errors",
	    "Connections to an upstream that failed", name);
	s->idle = forward_cell(m, METRICS_GAUGE, "upstream_connections_idle",
	    "Idle connections kept", name);
	s->busy = forward_cell(m, METRICS_GAUGE, "upstream_connections_busy",
	    "Connections with a call", name);
	if (s->connects == NULL || s->reuses == NULL || s->errors == NULL ||
	    s->idle == NULL || s->busy == NULL)
		return SP_E_NOMEM;
	return SP_OK;
}

static void
forward_collect(void *arg)
{
	struct forward *f = arg;
	struct pool_stats st;
	size_t i;

	for (i = 0; i < f->n; i++) {
		pool_stats(f->sites[i].pool, &st);
		*f->sites[i].connects = st.connects;
		*f->sites[i].reuses = st.reuses;
		*f->sites[i].errors = st.connect_errors;
		*f->sites[i].idle = st.idle;
		*f->sites[i].busy = st.busy;
	}
}

static int
forward_site_init(struct forward *f, struct forward_site *s,
    const struct conf_upstream *u, struct metrics *m, struct buf *err)
{
	int rc;

	s->conf = u;
	rc = forward_servers(s);
	if (rc == SP_OK)
		rc = forward_authorization(s);
	if (rc == SP_OK)
		rc = forward_tls(s, err);
	if (rc == SP_OK)
		rc = forward_pool(f, s);
	if (rc == SP_OK)
		rc = forward_metrics(s, m);
	if (rc == SP_OK)
		forward_tell(u);
	return rc;
}

/* The resolver's addresses; none for the system's. */
static int
forward_resolver(struct forward *f, const struct conf *conf, struct buf *err)
{
	const struct conf_list *l = &conf->main.resolver;
	bool system = l->n == 0 || view_eq(l->v[0], VIEW("system"));

	f->resolver =
	    resolver_new(f->loop, system ? NULL : l->v, system ? 0 : l->n);
	if (f->resolver != NULL)
		return SP_OK;
	return buf_printf(err,
		   "resolver: cannot be set up; expected \"system\" or "
		   "addresses of name servers") != SP_OK
	    ? SP_E_NOMEM
	    : SP_E_CONF;
}

int
forward_new(struct loop *l, const struct conf *conf, struct metrics *m,
    struct forward **out, struct buf *err)
{
	struct forward *f = mem_calloc(1, sizeof(*f));
	size_t i;
	int rc;

	if (f == NULL)
		return SP_E_NOMEM;
	f->loop = l;
	rc = forward_resolver(f, conf, err);
	if (rc != SP_OK)
		goto fail;
	/* an element more: no upstream is no error of memory */
	f->sites = mem_calloc(conf->upstreams_n + 1, sizeof(*f->sites));
	rc = SP_E_NOMEM;
	if (f->sites == NULL)
		goto fail;
	f->n = conf->upstreams_n;
	for (i = 0; i < f->n; i++) {
		rc = forward_site_init(f, &f->sites[i], conf->upstreams[i], m,
		    err);
		if (rc != SP_OK)
			goto fail;
	}
	rc = metrics_on_collect(m, forward_collect, f);
	if (rc != SP_OK)
		goto fail;
	*out = f;
	return SP_OK;
fail:
	forward_free(f);
	return rc;
}

/* Fields that end here, whatever the client meant by them. */
static bool
forward_drops(struct view name)
{
	static const char *const drops[] = {
		/* credentials: ours go up, theirs do not */
		"authorization",
		"x-api-key",
		"api-key",
		"x-goog-api-key",
		"cookie",
		/* between the client and us */
		"expect",
		"host",
		"content-length",
		"accept-encoding",
		"http2-settings",
	};
	size_t i;

	if (head_is_hop(name))
		return true;
	for (i = 0; i < sizeof(drops) / sizeof(drops[0]); i++)
		if (view_eq_nocase(name, view_str(drops[i])))
			return true;
	return false;
}

/* RFC 9110 s7.6.1: what Connection names is for this hop, too. */
static bool
forward_is_named(const struct head_fields *f, struct view name)
{
	size_t i;

	for (i = 0; i < f->n; i++)
		if (view_eq_nocase(f->v[i].name, VIEW("connection")) &&
		    head_list_has(f->v[i].value, name))
			return true;
	return false;
}

static int
forward_fields(const struct forward_site *s, const struct head_fields *from,
    struct head_fields *to)
{
	bool connection = head_count(from, VIEW("connection")) > 0;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < from->n && rc == SP_OK; i++) {
		if (forward_drops(from->v[i].name) ||
		    (connection && forward_is_named(from, from->v[i].name)))
			continue;
		rc = head_add_borrowed(to, from->v[i].name, from->v[i].value);
	}
	if (rc == SP_OK && s->authorization != NULL)
		rc = head_add_borrowed(to, VIEW("Authorization"),
		    view_of(s->authorization, s->authorization_n));
	if (rc == SP_OK)
		rc = head_add_borrowed(to, VIEW("Accept-Encoding"),
		    VIEW("identity"));
	return rc;
}

/* The endpoint, and the client's query; the base is the server's. */
static int
forward_target(const struct forward_params *p, struct view *out)
{
	char *t = arena_alloc(p->arena, p->endpoint.n + 1 + p->query.n);
	size_t at = 0;

	if (t == NULL)
		return SP_E_NOMEM;
	if (p->endpoint.n > 0)
		memcpy(t + at, p->endpoint.p, p->endpoint.n);
	at += p->endpoint.n;
	if (p->query.n > 0) {
		t[at++] = '?';
		memcpy(t + at, p->query.p, p->query.n);
		at += p->query.n;
	}
	*out = view_of(t, at);
	return SP_OK;
}

int
forward_start(struct forward *f, const struct forward_params *p,
    const struct call_owner *owner, struct call **out)
{
	const struct conf_upstream *u = p->upstream;
	const struct forward_site *s = &f->sites[u->index];
	struct head_fields *fields;
	struct call_params c = {
		.pool = s->pool,
		.servers = s->servers,
		.servers_n = u->servers_n,
		.affinity = p->affinity,
		.method = p->method,
		.body = p->body,
		.send_timeout_ms = u->send_timeout_ms,
		.first_byte_timeout_ms = u->first_byte_timeout_ms,
		.read_timeout_ms = u->read_timeout_ms,
		.manual_progress = p->manual_progress,
		.header_max = FORWARD_HEADER_MAX,
		.decoded_max = FORWARD_DECODED_MAX,
	};
	int rc;

	fields = arena_zalloc(p->arena, sizeof(*fields));
	if (fields == NULL)
		return SP_E_NOMEM;
	head_fields_init(fields, p->arena);
	rc = forward_fields(s, p->fields, fields);
	if (rc == SP_OK)
		rc = forward_target(p, &c.target);
	c.fields = fields;
	return rc == SP_OK ? call_start(f->loop, &c, owner, out) : rc;
}
