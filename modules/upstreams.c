#include "config.h"

#include "upstreams.h"

#include "base/mem.h"
#include "gate/fleet.h"
#include "http/query.h"
#include "json/jscan.h"
#include "json/jwrite.h"
#include "upstreams_conf.h"

enum {
	URL_MAX = 4096,
	ANSWER_MAX = 16 * 1024 * 1024,
};

enum upstreams_op { LIST, SHOW, ADD, REMOVE, DRAIN };

struct upstreams_call {
	enum upstreams_op op;
	const struct conf_upstream *upstream; /* NULL: all */
};

/* ---- what is asked -------------------------------------------------------- */

static const struct conf_upstream *
find(const struct gate_request *r, struct view name)
{
	const struct conf *conf = gate_conf(r->gate);
	size_t i;

	for (i = 0; i < conf->upstreams_n; i++)
		if (view_eq(conf->upstreams[i]->name, name))
			return conf->upstreams[i];
	return NULL;
}

/* What lies beneath a name: which methods, and what they do. */
static const struct {
	const char *path, *method;
	enum upstreams_op op;
} routes[] = {
	{ "", "GET", SHOW },
	{ "/servers", "POST", ADD },
	{ "/servers", "DELETE", REMOVE },
	{ "/servers/drain", "POST", DRAIN },
};

static enum gate_verdict
route_one(struct gate_request *r, struct upstreams_call *c, struct view what)
{
	bool known = false;
	size_t i;

	for (i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (!view_eq(what, view_str(routes[i].path)))
			continue;
		known = true;
		c->op = routes[i].op;
		if (view_eq(r->x->request.method, view_str(routes[i].method)))
			return GATE_PASS;
	}
	if (!known)
		return gate_deny(r, 404, "unknown_url",
		    "an upstream has servers and servers/drain beneath it, no "
		    "more");
	r->allow = what.n == 0 ? "GET"
	    : c->op == DRAIN   ? "POST"
			       : "DELETE, POST";
	return gate_deny(r, 405, "method_not_allowed",
	    "this path does not take that method");
}

static enum gate_verdict
route(struct gate_request *r, struct upstreams_call *c)
{
	struct view rest = r->rest;
	size_t slash;

	if (rest.n == 0) {
		c->op = LIST;
		if (view_eq(r->x->request.method, VIEW("GET")))
			return GATE_PASS;
		r->allow = "GET";
		return gate_deny(r, 405, "method_not_allowed",
		    "the list of upstreams is read with GET");
	}
	rest = view_from(rest, 1);
	slash = view_find(rest, '/');
	c->upstream = find(r, view_sub(rest, 0, slash));
	if (c->upstream == NULL)
		return gate_deny(r, 404, "unknown_upstream",
		    "the configuration has no upstream of that name");
	return route_one(r, c, view_from(rest, slash));
}

static enum gate_verdict
on_head(struct gate_request *r)
{
	struct upstreams_call *c = arena_zalloc(r->x->arena, sizeof(*c));

	if (c == NULL)
		return GATE_FAIL;
	r->ctx = c;
	r->principal = "admin";
	return route(r, c);
}

/* ---- which server --------------------------------------------------------- */

/* url=... of the query, or {"url": "..."}. */
static int
read_url(const struct gate_request *r, struct buf *out)
{
	struct view body = buf_view(&r->body);
	struct jscan_span v;
	struct jscan s;
	int rc;

	rc = query_get(r->x->request.query, VIEW("url"), out);
	if (rc != 0)
		return rc == 1 ? SP_OK : rc == SP_E_EXISTS ? SP_E_SYNTAX : rc;
	if (body.n == 0 || jscan_valid(body, 0) != 0)
		return SP_E_SYNTAX;
	rc = jscan_find(body, VIEW("url"), &v);
	if (rc != 1 || v.kind != JSCAN_STRING)
		return rc < 0 && rc != SP_E_SYNTAX ? rc : SP_E_SYNTAX;
	jscan_init(&s, body, 0);
	return jscan_decode(&s, &v, out, NULL);
}

/* ---- what is answered ----------------------------------------------------- */

static void
put_number(struct jwrite *w, const char *key, uint64_t v)
{
	jwrite_key(w, key);
	jwrite_u64(w, v);
}

static void
put_upstream(const struct gate_request *r, const struct conf_upstream *u,
    struct jwrite *w)
{
	struct fleet_server servers[FLEET_SERVERS_MAX];
	size_t i, n;

	n = fleet_list(r->gate, gate_forward(r), u, servers);
	jwrite_object(w);
	jwrite_key(w, "name");
	jwrite_string(w, u->name);
	jwrite_key(w, "balance");
	jwrite_cstr(w,
	    u->balance == CONF_BALANCE_SESSION ? "session" : "least_conn");
	jwrite_key(w, "servers");
	jwrite_array(w);
	for (i = 0; i < n; i++) {
		jwrite_object(w);
		jwrite_key(w, "url");
		jwrite_string(w, servers[i].url);
		jwrite_key(w, "state");
		jwrite_cstr(w, servers[i].state);
		put_number(w, "open_calls", servers[i].open);
		put_number(w, "idle_connections", servers[i].idle);
		put_number(w, "sessions", servers[i].sessions);
		put_number(w, "failures", servers[i].failures);
		put_number(w, "checks_failed", servers[i].checks_failed);
		put_number(w, "rest_ms", servers[i].rest_ms);
		jwrite_end_object(w);
	}
	jwrite_end_array(w);
	jwrite_end_object(w);
}

static int
put_all(const struct gate_request *r, struct jwrite *w)
{
	const struct conf *conf = gate_conf(r->gate);
	size_t i;

	jwrite_object(w);
	jwrite_key(w, "upstreams");
	jwrite_array(w);
	for (i = 0; i < conf->upstreams_n; i++)
		put_upstream(r, conf->upstreams[i], w);
	jwrite_end_array(w);
	jwrite_end_object(w);
	return jwrite_finish(w);
}

static enum gate_verdict
answer(struct gate_request *r, const struct upstreams_call *c, unsigned status)
{
	struct buf out = BUF_INIT(ANSWER_MAX);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &out);
	if (c->upstream == NULL) {
		rc = put_all(r, &w);
	} else {
		put_upstream(r, c->upstream, &w);
		rc = jwrite_finish(&w);
	}
	r->status = status;
	if (rc == SP_OK)
		rc = buf_add_char(&out, '\n');
	if (rc == SP_OK)
		rc = exchange_simple(r->x, status, VIEW("application/json"),
		    buf_view(&out));
	buf_clear(&out);
	return rc == SP_OK ? GATE_DONE : GATE_FAIL;
}

static enum gate_verdict
refuse(struct gate_request *r, int rc, const char *why)
{
	switch (rc) {
	case SP_E_SYNTAX:
		return gate_deny(r, 400, "bad_url", why);
	case SP_E_NOTFOUND:
		return gate_deny(r, 404, "unknown_server", why);
	case SP_E_EXISTS:
		return gate_deny(r, 409, "server_exists", why);
	case SP_E_STATE:
		return gate_deny(r, 409, "last_server", why);
	case SP_E_LIMIT:
	case SP_E_ARG:
		return gate_deny(r, 409, "not_possible", why);
	default:
		return GATE_FAIL;
	}
}

static enum gate_verdict
change(struct gate_request *r, const struct upstreams_call *c)
{
	static const enum fleet_op ops[] = {
		[ADD] = FLEET_ADD,
		[REMOVE] = FLEET_REMOVE,
		[DRAIN] = FLEET_DRAIN,
	};
	struct buf url = BUF_INIT(URL_MAX);
	const char *why =
	    "expected the server's URL: {\"url\": \"http://...\"}, "
	    "or ?url=http://...";
	int rc = read_url(r, &url);

	if (rc == SP_E_LIMIT)
		rc = SP_E_SYNTAX;
	if (rc == SP_OK)
		rc = fleet_change(gate_forward(r), c->upstream, ops[c->op],
		    buf_view(&url), r->x->arena, &why);
	if (rc == SP_OK)
		fleet_tell(r->gate, c->upstream, ops[c->op], buf_view(&url));
	buf_clear(&url);
	if (rc != SP_OK)
		return refuse(r, rc, why);
	return answer(r, c, c->op == ADD ? 201 : 200);
}

static enum gate_verdict
on_message(struct gate_request *r)
{
	const struct upstreams_call *c = r->ctx;

	/* the configuration may have changed since the head came */
	if (gate_generation_of(r) != gate_generation(r->gate))
		return gate_deny(r, 503, "reloading",
		    "the configuration has just changed: ask again");
	if (c->op == LIST || c->op == SHOW)
		return answer(r, c, 200);
	return change(r, c);
}

const struct gate_module upstreams_module = {
	.conf = &upstreams_conf,
	.principals = GATE_ADMIN | GATE_ORCHESTRATOR,
	.beneath = true,
	.wants_body = true,
	.hook = {
	    [GATE_HEAD] = on_head,
	    [GATE_MESSAGE] = on_message,
	},
};
