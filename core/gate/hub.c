#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "crypt/digest.h"
#include "event/resolver.h"
#include "gate/checks.h"
#include "gate/hub.h"
#include "gate/metrics.h"
#include "ipc/message.h"
#include "net/pool_servers.h"
#include "net/tls.h"

enum {
	HUB_KEY_MAX = 256 * 1024,
	HUB_HEADER_MAX = 256 * 1024, /* told HTTP/2 servers */
};

struct hub {
	unsigned refs;
	struct loop *loop;
	struct resolver *resolver;
	struct metrics *metrics;
	LIST_HEAD(, hub_link) links;
	uint32_t changes;
};

/* ---- metrics -------------------------------------------------------------- */

static uint64_t *
hub_cell(struct hub_link *k, enum metrics_kind kind, const char *name,
    const char *help, struct view upstream)
{
	static const char *const labels[] = { "upstream", NULL };
	struct metric *x;

	x = metrics_register(k->hub->metrics, kind, name, help, labels, NULL);
	return x == NULL ? NULL : metrics_cell(x, &upstream);
}

/* Servers by state, of which there are four. */
static int
hub_state_metrics(struct hub_link *k, struct view name)
{
	static const char *const labels[] = { "upstream", "state", NULL };
	static const char *const states[HUB_STATES] = {
		[POOL_UP] = "up",
		[POOL_RESTING] = "resting",
		[POOL_DOWN] = "down",
		[POOL_DRAINING] = "draining",
	};
	struct metric *x;
	size_t i;

	x = metrics_register(k->hub->metrics, METRICS_GAUGE, "upstream_servers",
	    "Servers of an upstream, by their state", labels, NULL);
	for (i = 0; i < HUB_STATES && x != NULL; i++) {
		const struct view values[] = { name, view_str(states[i]) };

		k->servers_in[i] = metrics_cell(x, values);
		if (k->servers_in[i] == NULL)
			return SP_E_NOMEM;
	}
	return x != NULL ? SP_OK : SP_E_NOMEM;
}

static int
hub_h2_metrics(struct hub_link *k, struct view name)
{
	k->h2_connections =
	    hub_cell(k, METRICS_GAUGE, "upstream_h2_connections",
		"HTTP/2 connections to an upstream", name);
	k->h2_streams = hub_cell(k, METRICS_GAUGE, "upstream_h2_streams",
	    "Calls on HTTP/2 connections", name);
	k->h2_requests = hub_cell(k, METRICS_COUNTER, "upstream_h2_requests",
	    "Requests sent by HTTP/2", name);
	k->h2_refused = hub_cell(k, METRICS_COUNTER, "upstream_h2_refused",
	    "HTTP/2 streams that an upstream did not process", name);
	k->h2_broken = hub_cell(k, METRICS_COUNTER, "upstream_h2_broken",
	    "HTTP/2 connections ended for floods or broken rules", name);
	return k->h2_connections == NULL || k->h2_streams == NULL ||
		k->h2_requests == NULL || k->h2_refused == NULL ||
		k->h2_broken == NULL
	    ? SP_E_NOMEM
	    : SP_OK;
}

static int
hub_metrics(struct hub_link *k, struct view name)
{
	k->connects = hub_cell(k, METRICS_COUNTER, "upstream_connects",
	    "Connections opened to an upstream", name);
	k->reuses = hub_cell(k, METRICS_COUNTER, "upstream_reuses",
	    "Requests sent on an idle connection", name);
	k->errors = hub_cell(k, METRICS_COUNTER, "upstream_errors",
	    "Connections to an upstream, or heads of replies, that failed",
	    name);
	k->failovers = hub_cell(k, METRICS_COUNTER, "upstream_failovers",
	    "Requests that another server was asked for once more", name);
	k->checks_failed = hub_cell(k, METRICS_COUNTER,
	    "upstream_checks_failed", "Health checks that failed", name);
	k->idle = hub_cell(k, METRICS_GAUGE, "upstream_connections_idle",
	    "Idle connections kept", name);
	k->busy = hub_cell(k, METRICS_GAUGE, "upstream_connections_busy",
	    "Connections with a call", name);
	if (k->connects == NULL || k->reuses == NULL || k->errors == NULL ||
	    k->failovers == NULL || k->checks_failed == NULL ||
	    k->idle == NULL || k->busy == NULL)
		return SP_E_NOMEM;
	if (hub_state_metrics(k, name) != SP_OK)
		return SP_E_NOMEM;
	return hub_h2_metrics(k, name);
}

/* Those of the link that calls have now, the first one of its name. */
static void
hub_count_servers(struct hub_link *k)
{
	struct pool_server_info info;
	struct hub_link *o;
	size_t i;

	LIST_FOREACH (o, &k->hub->links, link)
		if (o->servers_in[0] == k->servers_in[0])
			break;
	if (o != k)
		return;
	for (i = 0; i < HUB_STATES; i++)
		*k->servers_in[i] = 0;
	for (i = 0; i < POOL_SERVERS_MAX; i++)
		if (pool_servers_get(k->pool, i, &info))
			++*k->servers_in[info.state];
}

/* Counters go on when one link takes another's place. */
static void
hub_count(struct hub_link *k)
{
	struct h2_client_stats h2;
	struct pool_stats st;

	pool_stats(k->pool, &st);
	*k->connects += st.connects - k->seen.connects;
	*k->reuses += st.reuses - k->seen.reuses;
	*k->errors += st.connect_errors - k->seen.connect_errors;
	*k->failovers += st.failovers - k->seen.failovers;
	k->seen = st;
	if (k->checks != NULL) {
		*k->checks_failed += checks_failed(k->checks) - k->seen_failed;
		k->seen_failed = checks_failed(k->checks);
	}
	if (k->h2 == NULL)
		return;
	h2_client_stats(k->h2, &h2);
	*k->h2_requests += h2.requests - k->h2_seen.requests;
	*k->h2_refused += h2.refused - k->h2_seen.refused;
	*k->h2_broken += h2.broken - k->h2_seen.broken;
	k->h2_seen = h2;
}

static void
hub_zero(struct hub_link *k)
{
	*k->idle = *k->busy = *k->h2_connections = *k->h2_streams = 0;
}

/* An old link and a new one may have the same name: gauges are sums. */
static void
hub_collect(void *arg)
{
	struct hub *h = arg;
	struct hub_link *k;

	LIST_FOREACH (k, &h->links, link)
		hub_zero(k);
	LIST_FOREACH (k, &h->links, link) {
		hub_count(k);
		hub_count_servers(k);
		*k->idle += k->seen.idle + k->h2_seen.idle;
		*k->busy +=
		    k->seen.busy + k->h2_seen.connections - k->h2_seen.idle;
		*k->h2_connections += k->h2_seen.connections;
		*k->h2_streams += k->h2_seen.streams;
	}
}

/* ---- the hub -------------------------------------------------------------- */

/* The resolver's addresses; none for the system's. */
static int
hub_resolver(struct hub *h, const struct conf *conf, struct buf *err)
{
	const struct conf_list *l = &conf->main.resolver;
	bool system = l->n == 0 || view_eq(l->v[0], VIEW("system"));

	h->resolver =
	    resolver_new(h->loop, system ? NULL : l->v, system ? 0 : l->n);
	if (h->resolver != NULL)
		return SP_OK;
	return buf_printf(err,
		   "resolver: cannot be set up; expected \"system\" or "
		   "addresses of name servers") != SP_OK
	    ? SP_E_NOMEM
	    : SP_E_CONF;
}

int
hub_new(struct loop *l, const struct conf *conf, struct metrics *m,
    struct hub **out, struct buf *err)
{
	struct hub *h = mem_calloc(1, sizeof(*h));
	int rc;

	if (h == NULL)
		return SP_E_NOMEM;
	h->refs = 1;
	h->loop = l;
	h->metrics = m;
	LIST_INIT(&h->links);
	rc = hub_resolver(h, conf, err);
	if (rc == SP_OK)
		rc = metrics_on_collect(m, hub_collect, h);
	if (rc != SP_OK) {
		hub_unref(h);
		return rc;
	}
	*out = h;
	return SP_OK;
}

struct hub *
hub_ref(struct hub *h)
{
	h->refs++;
	return h;
}

void
hub_unref(struct hub *h)
{
	if (h == NULL || --h->refs > 0)
		return;
	err_assert(LIST_EMPTY(&h->links));
	if (h->resolver != NULL)
		resolver_free(h->resolver);
	mem_free(h);
}

struct loop *
hub_loop(const struct hub *h)
{
	return h->loop;
}

void
hub_changed(struct hub *h)
{
	h->changes++;
}

uint32_t
hub_changes(const struct hub *h)
{
	return h->changes;
}

struct resolver *
hub_names_by(const struct hub *h)
{
	return h->resolver;
}

/* ---- links ---------------------------------------------------------------- */

/* The certificates for this upstream that came with the source, or NULL. */
static const struct gate_ca *
hub_ca(const struct gate_source *src, const struct conf_upstream *u)
{
	uint32_t want = u->ca.n > 0 ? u->index : MESSAGE_CA_SYSTEM;
	size_t i;

	for (i = 0; i < src->cas_n; i++)
		if (src->cas[i].upstream == want)
			return &src->cas[i];
	return NULL;
}

static bool
hub_wants_tls(const struct conf_upstream *u)
{
	size_t i;

	for (i = 0; i < u->servers_n; i++)
		if (u->servers[i].tls)
			return true;
	return false;
}

static char *
hub_text(const struct buf *b)
{
	struct view v = buf_view(b);

	return mem_strndup(v.n > 0 ? v.p : "", v.n);
}

/* What a TLS context is made of: whether it checks, and against what. */
static int
hub_tls_key(const struct conf_upstream *u, const struct gate_ca *ca,
    struct buf *out)
{
	uint8_t sum[DIGEST_BYTES];
	size_t i;
	int rc;

	rc = buf_printf(out, "http2 %u ", u->http2);
	if (rc != SP_OK)
		return rc;
	if (!u->tls_verify)
		return buf_add_str(out, "any");
	if (ca == NULL)
		return buf_printf(out, "file %.*s", VIEW_ARG(u->ca));
	rc = digest_sha256(ca->pem, sum);
	for (i = 0; i < sizeof(sum) && rc == SP_OK; i++)
		rc = buf_printf(out, "%02x", sum[i]);
	return rc;
}

/* The `server` lines alone. */
static int
hub_servers_key(const struct conf_upstream *u, struct buf *out)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < u->servers_n && rc == SP_OK; i++)
		rc = buf_printf(out, "%.*s\n", VIEW_ARG(u->servers[i].url));
	return rc;
}

static int
hub_key(const struct conf_upstream *u, const char *tls_key, struct buf *out)
{
	int rc;

	rc = buf_printf(out, "%.*s\n%u %u %llu %llu %llu\n%s\n",
	    VIEW_ARG(u->name), u->balance, u->http2,
	    (unsigned long long)u->connect_timeout_ms,
	    (unsigned long long)u->keepalive,
	    (unsigned long long)u->keepalive_timeout_ms,
	    tls_key != NULL ? tls_key : "plain");
	if (rc == SP_OK)
		rc = buf_printf(out, "%.*s %llu %llu %llu %llu\n",
		    VIEW_ARG(u->check_path),
		    (unsigned long long)u->check_interval_ms,
		    (unsigned long long)u->check_timeout_ms,
		    (unsigned long long)u->check_rise,
		    (unsigned long long)u->check_fall);
	return rc == SP_OK ? hub_servers_key(u, out) : rc;
}

/* A context that another link has made of the same, or a new one. */
static int
hub_tls(struct hub_link *k, const struct conf_upstream *u,
    const struct gate_ca *ca, bool files, struct buf *err)
{
	static const struct view all[] = { { "h2", 2 }, { "http/1.1", 8 } };
	const struct view *alpn = all + (u->http2 == CONF_HTTP2_OFF);
	size_t alpn_n = u->http2 == CONF_HTTP2_AUTO ? 2 : 1;
	struct hub_link *o;

	if (k->tls_key == NULL)
		return SP_OK;
	LIST_FOREACH (o, &k->hub->links, link)
		if (o->tls_key != NULL && strcmp(o->tls_key, k->tls_key) == 0) {
			k->tls = tls_ref(o->tls);
			return SP_OK;
		}
	if (ca != NULL && u->tls_verify)
		return tls_client_new_pem(ca->pem, true, alpn, alpn_n, &k->tls,
		    err);
	if (files || !u->tls_verify)
		return tls_client_new(u->ca, u->tls_verify, alpn, alpn_n,
		    &k->tls, err);
	return buf_printf(err,
		   "%s:%u: upstream \"%.*s\": no trusted certificates came "
		   "for it",
		   u->pos.file, u->pos.line, VIEW_ARG(u->name)) != SP_OK
	    ? SP_E_NOMEM
	    : SP_E_TLS;
}

/* Who keeps connections that calls share, where there may be any. */
static int
hub_h2(struct hub_link *k, const struct conf_upstream *u)
{
	const struct h2_client_params p = {
		.name = u->name,
		.always = u->http2 == CONF_HTTP2_ON,
		.keepalive_timeout_ms =
		    u->keepalive != 0 ? u->keepalive_timeout_ms : 0,
		.header_max = HUB_HEADER_MAX,
	};

	if (u->http2 == CONF_HTTP2_OFF || (!p.always && k->tls == NULL))
		return SP_OK;
	return h2_client_new(k->hub->loop, &p, &k->h2);
}

/* Source: RFC 9110 s7.2: the authority, its port only if not the scheme's. */
static int
hub_authority(const struct conf_upstream_server *s, struct buf *out)
{
	bool v6 = !s->is_unix && view_find(s->host, ':') < s->host.n;
	int rc;

	if (s->is_unix)
		return buf_add_str(out, "localhost");
	rc = buf_printf(out, "%s%.*s%s", v6 ? "[" : "", VIEW_ARG(s->host),
	    v6 ? "]" : "");
	if (rc == SP_OK && s->port != (s->tls ? 443 : 80))
		rc = buf_printf(out, ":%u", s->port);
	return rc;
}

int
hub_server(const struct conf_upstream_server *s, struct buf *text,
    struct pool_server *out)
{
	int rc;

	buf_reset(text, SIZE_MAX);
	rc = hub_authority(s, text);
	*out = (struct pool_server){ .host = s->host,
		.port = s->port,
		.is_unix = s->is_unix,
		.tls = s->tls,
		.authority = buf_view(text),
		.base = s->base,
		.url = s->url };
	return rc;
}

static int
hub_pool(struct hub_link *k, const struct conf_upstream *u)
{
	struct buf text = BUF_INIT(HUB_AUTHORITY_MAX);
	struct pool_server s;
	struct pool_params p = {
		.name = u->name,
		.servers = &s,
		.servers_n = 1,
		.least_conn = u->balance == CONF_BALANCE_LEAST_CONN,
		.connect_timeout_ms = u->connect_timeout_ms,
		.keepalive = u->keepalive,
		.keepalive_timeout_ms = u->keepalive_timeout_ms,
		.tls = k->tls,
		.sharer = k->h2 != NULL ? h2_client_sharer(k->h2) : NULL,
	};
	size_t i;
	int rc;

	rc = hub_server(&u->servers[0], &text, &s);
	if (rc == SP_OK)
		rc = pool_new(k->hub->loop, k->hub->resolver, &p, &k->pool);
	for (i = 1; i < u->servers_n && rc == SP_OK; i++) {
		rc = hub_server(&u->servers[i], &text, &s);
		if (rc == SP_OK)
			rc = pool_servers_add(k->pool, &s);
	}
	if (rc == SP_OK)
		pool_servers_loaded(k->pool);
	buf_clear(&text);
	return rc;
}

/* A wrong base is the commonest mistake: say what calls will go to. */
static void
hub_tell(const struct conf_upstream *u)
{
	size_t i;

	for (i = 0; i < u->servers_n; i++)
		log_notice("upstream \"%.*s\": calls go to %s://%.*s:%u%.*s"
			   "/chat/completions",
		    VIEW_ARG(u->name), u->servers[i].tls ? "https" : "http",
		    VIEW_ARG(u->servers[i].host), u->servers[i].port,
		    VIEW_ARG(u->servers[i].base));
}

static void
hub_link_free(struct hub_link *k)
{
	if (k->pool != NULL && k->h2_broken != NULL) {
		hub_count(k);
		/* whoever else has that name sets them anew */
		hub_zero(k);
		for (size_t i = 0; i < HUB_STATES; i++)
			if (k->servers_in[i] != NULL)
				*k->servers_in[i] = 0;
	}
	LIST_REMOVE(k, link);
	checks_free(k->checks);
	pool_free(k->pool);
	h2_client_free(k->h2);
	tls_unref(k->tls);
	mem_free(k->tls_key);
	mem_free(k->key);
	mem_free(k->name);
	mem_free(k->servers);
	mem_free(k);
}

static int
hub_names(struct hub_link *k, const struct conf_upstream *u)
{
	struct buf b = BUF_INIT(HUB_KEY_MAX);
	int rc = hub_servers_key(u, &b);

	if (rc == SP_OK) {
		k->servers = hub_text(&b);
		k->name = mem_strndup(u->name.p, u->name.n);
		if (k->servers == NULL || k->name == NULL)
			rc = SP_E_NOMEM;
	}
	buf_clear(&b);
	return rc;
}

/*
 * The link of that name that was made last, or NULL.  What older ones know of
 * their servers is of long ago, even if their lines are the same once more.
 */
static struct hub_link *
hub_latest(const struct hub *h, struct view name)
{
	struct hub_link *k;

	LIST_FOREACH (k, &h->links, link)
		if (view_eq(view_str(k->name), name))
			return k;
	return NULL;
}

/*
 * What was changed at run time goes on where the file still has the same
 * servers, and is given up where it has others.
 */
static int
hub_succeed(struct hub_link *k)
{
	const struct hub_link *o = hub_latest(k->hub, view_str(k->name));

	if (o == NULL || !pool_servers_changed(o->pool))
		return SP_OK;
	if (strcmp(o->servers, k->servers) == 0)
		return pool_servers_hand_on(o->pool, k->pool);
	log_notice("upstream \"%s\": its servers were changed at run time, and "
		   "now in the file: that is what counts",
	    k->name);
	return SP_OK;
}

static int
hub_link_init(struct hub_link *k, const struct conf_upstream *u,
    const struct gate_source *src, bool files, struct buf *err)
{
	const struct gate_ca *ca = hub_ca(src, u);
	int rc;

	rc = hub_names(k, u);
	if (rc == SP_OK)
		rc = hub_tls(k, u, ca, files, err);
	if (rc == SP_OK)
		rc = hub_h2(k, u);
	if (rc == SP_OK)
		rc = hub_pool(k, u);
	if (rc == SP_OK)
		rc = hub_succeed(k);
	if (rc == SP_OK && u->check_path.n > 0)
		rc = checks_new(k->hub->loop, k->pool, u, &k->checks);
	if (rc == SP_OK)
		rc = hub_metrics(k, u->name);
	if (rc == SP_OK)
		hub_tell(u);
	return rc;
}

/* The two keys: *tls stays NULL for an upstream without TLS. */
static int
hub_keys(const struct conf_upstream *u, const struct gate_source *src,
    char **key, char **tls)
{
	struct buf b = BUF_INIT(HUB_KEY_MAX);
	int rc = SP_OK;

	*key = *tls = NULL;
	if (hub_wants_tls(u)) {
		rc = hub_tls_key(u, hub_ca(src, u), &b);
		if (rc == SP_OK)
			*tls = hub_text(&b);
		if (rc == SP_OK && *tls == NULL)
			rc = SP_E_NOMEM;
		buf_reset(&b, SIZE_MAX);
	}
	if (rc == SP_OK)
		rc = hub_key(u, *tls, &b);
	if (rc == SP_OK)
		*key = hub_text(&b);
	if (rc == SP_OK && *key == NULL)
		rc = SP_E_NOMEM;
	buf_clear(&b);
	return rc;
}

int
hub_link(struct hub *h, const struct conf_upstream *u,
    const struct gate_source *src, bool files, struct hub_link **out,
    struct buf *err)
{
	struct hub_link *k;
	char *key, *tls_key;
	int rc;

	rc = hub_keys(u, src, &key, &tls_key);
	k = rc == SP_OK ? hub_latest(h, u->name) : NULL;
	if (k != NULL && strcmp(k->key, key) == 0) {
		mem_free(key);
		mem_free(tls_key);
		k->refs++;
		*out = k;
		return SP_OK;
	}
	k = rc == SP_OK ? mem_calloc(1, sizeof(*k)) : NULL;
	if (k == NULL) {
		mem_free(key);
		mem_free(tls_key);
		return rc == SP_OK ? SP_E_NOMEM : rc;
	}
	k->hub = h;
	k->refs = 1;
	k->key = key;
	k->tls_key = tls_key;
	rc = hub_link_init(k, u, src, files, err);
	LIST_INSERT_HEAD(&h->links, k, link);
	if (rc != SP_OK) {
		hub_link_free(k);
		return rc;
	}
	*out = k;
	return SP_OK;
}

void
hub_unlink(struct hub_link *k)
{
	if (k != NULL && --k->refs == 0)
		hub_link_free(k);
}
