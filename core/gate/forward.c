#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/forward.h"
#include "gate/hub.h"
#include "http/query.h"

enum {
	FORWARD_NAME_MAX = 64, /* of a field or parameter that is dropped */
	FORWARD_HEADER_MAX = 256 * 1024, /* head of an upstream's reply */
	FORWARD_DECODED_MAX = 8 * 1024 * 1024, /* from one read of 64 KiB */
};

/* One upstream. */
struct forward_site {
	const struct conf_upstream *conf;
	struct hub_link *link; /* its connections */
	char *authorization; /* "Bearer KEY", or NULL */
	size_t authorization_n;
};

struct forward {
	struct hub *hub; /* shared with other generations */
	struct forward_site *sites; /* by conf_upstream.index */
	size_t n;
};

static void
forward_site_clear(struct forward_site *s)
{
	hub_unlink(s->link);
	if (s->authorization != NULL)
		mem_free_zero(s->authorization, s->authorization_n);
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
	hub_unref(f->hub);
	mem_free(f);
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

/* On an error forward_free() clears what there is of it. */
static int
forward_sites(struct forward *f, const struct gate_source *src, bool files,
    struct buf *err)
{
	const struct conf *conf = src->conf != NULL ? src->conf : src->owned;
	struct forward_site *s;
	int rc = SP_OK;

	err_assert(conf != NULL);
	/* an element more: no upstream is no error of memory */
	f->sites = mem_calloc(conf->upstreams_n + 1, sizeof(*f->sites));
	if (f->sites == NULL)
		return SP_E_NOMEM;
	while (f->n < conf->upstreams_n && rc == SP_OK) {
		s = &f->sites[f->n];
		s->conf = conf->upstreams[f->n++];
		rc = forward_authorization(s);
		if (rc == SP_OK)
			rc = hub_link(f->hub, s->conf, src, files, &s->link,
			    err);
	}
	return rc;
}

/* hub: a reference is taken over. */
static int
forward_make(struct hub *hub, const struct gate_source *src, bool files,
    struct forward **out, struct buf *err)
{
	struct forward *f = mem_calloc(1, sizeof(*f));
	int rc;

	if (f == NULL) {
		hub_unref(hub);
		return SP_E_NOMEM;
	}
	f->hub = hub;
	rc = forward_sites(f, src, files, err);
	if (rc == SP_OK)
		*out = f;
	else
		forward_free(f);
	return rc;
}

int
forward_new_from(struct loop *l, const struct gate_source *src,
    struct metrics *m, struct forward **out, struct buf *err)
{
	struct hub *hub;
	int rc;

	rc = hub_new(l, src->conf != NULL ? src->conf : src->owned, m, &hub,
	    err);
	return rc == SP_OK ? forward_make(hub, src, true, out, err) : rc;
}

int
forward_new(struct loop *l, const struct conf *conf, struct metrics *m,
    struct forward **out, struct buf *err)
{
	const struct gate_source src = { .conf = conf };

	return forward_new_from(l, &src, m, out, err);
}

int
forward_next(const struct forward *before, const struct gate_source *src,
    struct forward **out, struct buf *err)
{
	return forward_make(hub_ref(before->hub), src, false, out, err);
}

struct resolver *
forward_resolver(const struct forward *f)
{
	return hub_names_by(f->hub);
}

uint32_t
forward_changes(const struct forward *f)
{
	return hub_changes(f->hub);
}

const struct hub_link *
forward_link(const struct forward *f, unsigned index)
{
	return index < f->n ? f->sites[index].link : NULL;
}

/*
 * The name as servers that make variables of fields see it (RFC 3875 s4.1.18):
 * "_" is "-".  What does not fit is none of ours.
 */
static struct view
forward_fold(struct view name, char out[FORWARD_NAME_MAX])
{
	size_t i;

	if (name.n > FORWARD_NAME_MAX)
		return VIEW_NONE;
	for (i = 0; i < name.n; i++)
		out[i] = (char)(name.p[i] == '_' ? '-' : name.p[i]);
	return view_of(out, name.n);
}

/* Fields that end here, whatever the client meant by them. */
static bool
forward_drops(struct view name, bool edited)
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
	char folded[FORWARD_NAME_MAX];
	size_t i;

	name = forward_fold(name, folded);
	if (head_is_hop(name))
		return true;
	for (i = 0; i < sizeof(drops) / sizeof(drops[0]); i++)
		if (view_eq_nocase(name, view_str(drops[i])))
			return true;
	/* they speak of the client's body */
	return edited &&
	    (head_is_digest(name) || view_eq_nocase(name, VIEW("range")) ||
		view_eq_nocase(name, VIEW("content-encoding")));
}

/* Credentials again, where they stand in the query. */
static bool
forward_drops_pair(struct view pair)
{
	static const struct view drops[] = { VIEW_INIT("key"),
		VIEW_INIT("api-key"), VIEW_INIT("x-api-key"),
		VIEW_INIT("access-token") };
	char name[FORWARD_NAME_MAX], folded[FORWARD_NAME_MAX];
	struct view v;
	size_t i;

	v = query_name(pair, name, sizeof(name));
	v = forward_fold(v, folded);
	for (i = 0; i < sizeof(drops) / sizeof(drops[0]); i++)
		if (view_eq_nocase(v, drops[i]))
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
forward_fields(const struct forward_site *s, const struct forward_params *p,
    struct head_fields *to)
{
	const struct head_fields *from = p->fields;
	bool connection = head_count(from, VIEW("connection")) > 0;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < from->n && rc == SP_OK; i++) {
		if (forward_drops(from->v[i].name, p->edited) ||
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
	struct view rest = p->query, pair;
	size_t at = 0, n;
	char before = '?';
	bool more;

	if (t == NULL)
		return SP_E_NOMEM;
	if (p->endpoint.n > 0)
		memcpy(t + at, p->endpoint.p, p->endpoint.n);
	at += p->endpoint.n;
	for (more = rest.n > 0; more; rest = view_from(rest, n + 1)) {
		n = view_find(rest, '&');
		more = n < rest.n;
		pair = view_sub(rest, 0, n);
		if (forward_drops_pair(pair))
			continue;
		t[at++] = before;
		if (pair.n > 0)
			memcpy(t + at, pair.p, pair.n);
		at += pair.n;
		before = '&';
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
		.pool = s->link->pool,
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
	rc = forward_fields(s, p, fields);
	if (rc == SP_OK)
		rc = forward_target(p, &c.target);
	c.fields = fields;
	return rc == SP_OK ? call_start(hub_loop(f->hub), &c, owner, out) : rc;
}
