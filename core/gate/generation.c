#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf_env.h"
#include "gate/gate_priv.h"
#include "net/tls.h"

enum {
	GENERATION_BODY_WINDOW = 256 * 1024,
	GENERATION_WHY_MAX = 1024,
	GENERATION_SHORT_MS = 5000, /* for the head of one too many */
};

/* ---- doors ---------------------------------------------------------------- */

/* What it says is about one of both files: its line and name before it. */
static int
generation_blame(const struct conf_server *s, struct view why, struct buf *err)
{
	static const struct view said = { "certificate: ", 13 };
	const struct conf_secret *c = view_starts(why, VIEW("private key"))
	    ? s->certificate_key
	    : s->certificate;

	if (view_starts(why, said))
		why = view_from(why, said.n);
	return buf_printf(err, "%s:%u: %s %s:%.*s: %.*s", c->file, c->line,
	    c->directive, c->from_env ? "env" : "file", VIEW_ARG(c->name),
	    VIEW_ARG(why));
}

static int
generation_tls_server(const struct conf_server *s, struct tls_ctx **out,
    struct buf *err)
{
	static const struct view alpn[] = { { "h2", 2 }, { "http/1.1", 8 } };
	struct buf why = BUF_INIT(GENERATION_WHY_MAX);
	int rc;

	if (s->certificate == NULL || s->certificate->value.p == NULL ||
	    s->certificate_key == NULL || s->certificate_key->value.p == NULL) {
		rc = buf_printf(err,
		    "%s:%u: server listens with ssl and has no certificate; "
		    "expected certificate and certificate_key",
		    s->pos.file, s->pos.line);
		return rc == SP_OK ? SP_E_CONF : rc;
	}
	rc = tls_server_new(s->certificate->value, s->certificate_key->value,
	    alpn, 2, out, &why);
	if (rc != SP_OK && buf_len(&why) > 0 &&
	    generation_blame(s, buf_view(&why), err) != SP_OK)
		rc = SP_E_NOMEM;
	buf_clear(&why);
	return rc;
}

/* The first server's certificate, the others' by SNI. */
static int
generation_tls(struct gate_door *d, struct buf *err)
{
	struct tls_ctx *other;
	size_t i, j;
	int rc;

	if (!d->conf->ssl)
		return SP_OK;
	rc = generation_tls_server(d->servers[0], &d->tls, err);
	for (i = 1; i < d->servers_n && rc == SP_OK; i++) {
		const struct conf_list *names = &d->servers[i]->server_names;

		rc = generation_tls_server(d->servers[i], &other, err);
		if (rc != SP_OK)
			break;
		for (j = 0; j < names->n && rc == SP_OK; j++) {
			rc = tls_server_add_name(d->tls, names->v[j], other);
			/* no name of a certificate: it is never chosen by it */
			if (rc == SP_E_ARG || rc == SP_E_EXISTS)
				rc = SP_OK;
		}
		tls_unref(other);
	}
	return rc;
}

/* NULL: no memory. */
static const struct h1_limits *
generation_kept(struct gate *g, const struct h1_limits *want)
{
	struct gate_limits *l;

	SLIST_FOREACH(l, &g->limits, link)
	{
		/* of u64 fields alone, so there is no padding to compare */
		if (memcmp(&l->v, want, sizeof(*want)) == 0)
			return &l->v;
	}
	l = mem_calloc(1, sizeof(*l));
	if (l == NULL)
		return NULL;
	l->v = *want;
	SLIST_INSERT_HEAD(&g->limits, l, link);
	return &l->v;
}

static int
generation_limits(struct gate *g, struct gate_door *d)
{
	const struct conf_limits *c = &d->servers[0]->limits;
	struct h1_limits want = {
		.header_timeout_ms = c->client_header_timeout_ms,
		.body_timeout_ms = c->client_body_timeout_ms,
		.send_timeout_ms = c->send_timeout_ms,
		.keepalive_timeout_ms = c->keepalive_timeout_ms,
		.keepalive_requests = c->keepalive_requests,
		.header_line_max = c->header_line_max_bytes,
		.header_max = c->header_max_bytes,
		.header_max_n = c->header_max_n,
		.output_buffer = c->output_buffer_bytes,
		.body_window = GENERATION_BODY_WINDOW,
	};

	d->limits = generation_kept(g, &want);
	want.keepalive_timeout_ms = 0;
	want.keepalive_requests = 1;
	if (want.header_timeout_ms > GENERATION_SHORT_MS)
		want.header_timeout_ms = GENERATION_SHORT_MS;
	d->short_limits = generation_kept(g, &want);
	return d->limits != NULL && d->short_limits != NULL ? SP_OK
							    : SP_E_NOMEM;
}

/* A server stands at each of its addresses. */
static int
generation_place(struct generation *n, const struct conf_server *s)
{
	struct gate_door *d;
	size_t i;

	for (i = 0; i < s->listens_n; i++) {
		d = &n->doors[s->listens[i].index];
		if (d->servers == NULL)
			d->servers = mem_calloc(n->conf->servers_n + 1,
			    sizeof(const struct conf_server *));
		if (d->servers == NULL)
			return SP_E_NOMEM;
		if (d->servers_n == 0)
			d->conf = &s->listens[i];
		d->servers[d->servers_n++] = s;
	}
	return SP_OK;
}

static int
generation_fill(struct generation *n)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < n->conf->servers_n && rc == SP_OK; i++)
		rc = generation_place(n, n->conf->servers[i]);
	if (rc == SP_OK && n->conf->control != NULL)
		rc = generation_place(n, n->conf->control);
	return rc;
}

/* One `inside` block: a server at its addresses. */
static int
generation_inside_place(struct generation *n, size_t first,
    const struct conf_server *s)
{
	struct gate_door *d;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < s->listens_n && rc == SP_OK; i++) {
		d = &n->insides[first + s->listens[i].index];
		if (d->servers == NULL)
			d->servers = mem_calloc(s->environment->insides_n + 1,
			    sizeof(const struct conf_server *));
		if (d->servers == NULL)
			return SP_E_NOMEM;
		if (d->servers_n == 0)
			d->conf = &s->listens[i];
		d->servers[d->servers_n++] = s;
		rc = generation_limits(n->gate, d);
	}
	return rc;
}

static size_t
generation_inside_count(const struct conf_environment *e)
{
	size_t i, j, most = 0;

	for (i = 0; i < e->insides_n; i++)
		for (j = 0; j < e->insides[i]->listens_n; j++)
			if (e->insides[i]->listens[j].index >= most)
				most = e->insides[i]->listens[j].index + 1;
	return most;
}

static int
generation_insides(struct generation *n)
{
	const struct conf *c = n->conf;
	const struct conf_environment *e;
	size_t i, j;
	int rc = SP_OK;

	n->inside_first =
	    mem_calloc(c->environments_n + 1, sizeof(*n->inside_first));
	if (n->inside_first == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < c->environments_n; i++) {
		n->inside_first[i] = n->insides_n;
		n->insides_n += generation_inside_count(c->environments[i]);
	}
	n->inside_first[i] = n->insides_n;
	n->insides = mem_calloc(n->insides_n + 1, sizeof(*n->insides));
	if (n->insides == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < c->environments_n; i++) {
		e = c->environments[i];
		for (j = 0; j < e->insides_n && rc == SP_OK; j++)
			rc = generation_inside_place(n, n->inside_first[i],
			    e->insides[j]);
	}
	return rc;
}

struct gate_door *
generation_inside(const struct generation *n, struct view environment,
    uint32_t index)
{
	const struct conf_environment *e = conf_env_find(n->conf, environment);
	struct gate_door *d;

	if (e == NULL ||
	    index >= n->inside_first[e->index + 1] - n->inside_first[e->index])
		return NULL;
	d = &n->insides[n->inside_first[e->index] + index];
	return d->servers_n > 0 ? d : NULL;
}

static int
generation_doors(struct generation *n, struct buf *err)
{
	size_t i;
	int rc;

	n->doors = mem_calloc(n->conf->listens_n + 1, sizeof(*n->doors));
	if (n->doors == NULL)
		return SP_E_NOMEM;
	n->doors_n = n->conf->listens_n + (n->conf->control != NULL);
	rc = generation_fill(n);
	if (rc == SP_OK)
		rc = generation_insides(n);
	for (i = 0; i < n->doors_n && rc == SP_OK; i++) {
		err_assert(n->doors[i].servers_n > 0);
		rc = generation_limits(n->gate, &n->doors[i]);
		if (rc == SP_OK)
			rc = generation_tls(&n->doors[i], err);
	}
	return rc;
}

/* ---- life ----------------------------------------------------------------- */

static void
generation_free(struct generation *n)
{
	size_t i;

	LIST_REMOVE(n, link);
	for (i = 0; i < n->doors_n; i++) {
		tls_unref(n->doors[i].tls);
		mem_free(n->doors[i].servers);
	}
	mem_free(n->doors);
	for (i = 0; n->insides != NULL && i < n->insides_n; i++)
		mem_free(n->insides[i].servers);
	mem_free(n->insides);
	mem_free(n->inside_first);
	forward_free(n->forward);
	conf_free(n->owned);
	mem_free(n);
}

int
generation_new(struct gate *g, const struct gate_source *src,
    struct generation **out, struct buf *err)
{
	struct generation *n = mem_calloc(1, sizeof(*n));
	int rc;

	if (n == NULL) {
		conf_free(src->owned);
		return SP_E_NOMEM;
	}
	n->gate = g;
	n->refs = 1;
	n->number = src->number;
	n->owned = src->owned;
	n->conf = src->owned != NULL ? src->owned : src->conf;
	LIST_INSERT_HEAD(&g->generations, n, link);
	rc = g->current == NULL
	    ? forward_new_from(g->loop, src, g->metrics, &n->forward, err)
	    : forward_next(g->current->forward, src, &n->forward, err);
	if (rc == SP_OK)
		rc = generation_doors(n, err);
	if (rc != SP_OK) {
		/* nobody has seen it: no pool of it is in use */
		generation_free(n);
		return rc;
	}
	*out = n;
	return SP_OK;
}

struct generation *
generation_ref(struct generation *n)
{
	n->refs++;
	return n;
}

void
generation_unref(struct generation *n)
{
	if (n == NULL)
		return;
	err_assert(n->refs > 0);
	if (--n->refs == 0)
		loop_task_post(n->gate->reap);
}

void
generation_reap(struct gate *g, bool all)
{
	struct generation *n, *next;

	for (n = LIST_FIRST(&g->generations); n != NULL; n = next) {
		next = LIST_NEXT(n, link);
		if (n->refs > 0 && !all)
			continue;
		if (!all)
			turn_generation_end(g->recorder, n->number);
		generation_free(n);
	}
}
