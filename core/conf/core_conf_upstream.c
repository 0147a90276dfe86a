/* upstream NAME { ... } */
#include "conf/core_conf.h"

#define UP(field) offsetof(struct conf_upstream, field)

static int
parse_server(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_upstream *u = base;
	struct conf_upstream_server s = { .port = 0 }, *grown;
	size_t i;
	int rc;

	(void)n;
	rc = conf_url_parse(p, args[1], &s);
	if (rc != 0)
		return rc;
	for (i = 0; i < u->servers_n; i++) {
		const struct conf_upstream_server *o = &u->servers[i];

		if (o->tls == s.tls && o->port == s.port &&
		    view_eq_nocase(o->host, s.host) && view_eq(o->base, s.base))
			return conf_error(p,
			    "upstream has this server already; expected each "
			    "once");
	}
	grown = conf_more(p, u->servers, u->servers_n, sizeof(s), row->name);
	if (grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	u->servers = grown;
	u->servers[u->servers_n++] = s;
	return 0;
}

static int
dump_server(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_upstream *u = base;
	size_t i;
	int rc = 0;

	for (i = 0; i < u->servers_n && rc == 0; i++) {
		rc = buf_printf(out, "%s%s ", indent, row->name);
		if (rc == 0)
			rc = conf_dump_word(out, u->servers[i].url);
		if (rc == 0)
			rc = buf_add_str(out, ";\n");
	}
	return rc;
}

static const char *const balances[] = { "session", "least_conn", NULL };
static const char *const http2s[] = { "auto", "on", "off", NULL };

#define MS_DAY 86400000
#define GIB ((uint64_t)1 << 30)

const struct conf_directive core_conf_upstream[] = {
	{ .name = "server",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS | CONF_REQUIRED,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = parse_server,
	    .dump = dump_server,
	    .args = "URL",
	    .doc = "Where the model is: http(s)://HOST[:PORT][/PATH], or "
		   "http://unix:SOCKET[:/PATH].\nWithout a path it is /v1; "
		   "a trailing slash or /chat/completions is left out.\n"
		   "With several servers, those that fail rest for a while, "
		   "and a call to one\nthat fails before a byte of its reply "
		   "came goes to another." },
	{ .name = "api_key",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_SECRET,
	    .offset = UP(api_key),
	    .args = "SECRET",
	    .doc =
		"The key sent to the upstream.\nThe caller's own never "
		"goes there.\nWhere an answer quotes it, asterisks stand for "
		"it, and the turn has the finding\nkey_masked; a key of "
		"less than 16 characters (EMPTY, none) is left as it is." },
	{ .name = "model",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_STRING,
	    .offset = UP(model),
	    .args = "NAME",
	    .doc = "Replaces the model that a request names." },
	{ .name = "balance",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_CHOICE,
	    .offset = UP(balance),
	    .choices = balances,
	    .def = "session",
	    .args = "session | least_conn",
	    .doc = "How one of several servers is chosen: the same for all "
		   "calls of a session,\nor the one with the fewest calls "
		   "open." },
	{ .name = "http2",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_CHOICE,
	    .offset = UP(http2),
	    .choices = http2s,
	    .def = "auto",
	    .args = "auto | on | off",
	    .doc = "Whether calls share connections by HTTP/2: where a server "
		   "chooses it in the TLS handshake\n(auto), or always: spoken "
		   "unasked on http://, demanded on https:// (on)." },
	{ .name = "connect_timeout",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_DURATION,
	    .offset = UP(connect_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "5s",
	    .args = "TIME",
	    .doc = "How long connecting and the TLS handshake may take." },
	{ .name = "first_byte_timeout",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_DURATION,
	    .offset = UP(first_byte_timeout_ms),
	    .max = MS_DAY,
	    .def = "off",
	    .args = "TIME | off",
	    .doc = "How long the head of a reply may take." },
	{ .name = "read_timeout",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_DURATION,
	    .offset = UP(read_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "600s",
	    .args = "TIME",
	    .doc = "The longest silence between two data events.\nIt is not "
		   "the total time, and heartbeats do not count." },
	{ .name = "send_timeout",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_DURATION,
	    .offset = UP(send_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "60s",
	    .args = "TIME",
	    .doc = "How long the upstream may take no byte of a request." },
	{ .name = "keepalive",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_NUMBER,
	    .offset = UP(keepalive),
	    .max = 65535,
	    .def = "32",
	    .args = "NUMBER",
	    .doc = "Most idle connections that are kept for reuse." },
	{ .name = "keepalive_timeout",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_DURATION,
	    .offset = UP(keepalive_timeout_ms),
	    .min = 1,
	    .max = MS_DAY,
	    .def = "60s",
	    .args = "TIME",
	    .doc = "How long an idle connection is kept." },
	{ .name = "health_check",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_CUSTOM,
	    .args_min = 1,
	    .args_max = 5,
	    .parse = core_conf_check_parse,
	    .dump = core_conf_check_dump,
	    .args = "PATH [ interval=TIME ] [ timeout=TIME ] [ rise=NUMBER ] "
		    "[ fall=NUMBER ]",
	    .doc = "Asks each server for that path, from its root, at "
		   "intervals.\nOne that fails so often in a row is down "
		   "until it has passed so often in a row;\nit passes with a "
		   "status of 200 to 399 in time.\nWhat is not given is "
		   "interval=10s, timeout=5s, rise=2 and fall=3.",
	    .def_doc = "none is asked" },
	{ .name = "event_max",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_SIZE,
	    .offset = UP(event_max_bytes),
	    .min = 1024,
	    .max = GIB,
	    .def = "64m",
	    .args = "SIZE",
	    .doc = "Largest event of a stream." },
	{ .name = "reply_max",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_SIZE,
	    .offset = UP(reply_max_bytes),
	    .min = 1024,
	    .max = GIB,
	    .def = "64m",
	    .args = "SIZE",
	    .doc = "Largest reply that is captured without being a stream." },
	{ .name = "ca",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_PATH,
	    .offset = UP(ca),
	    .args = "PATH",
	    .doc = "PEM file of the authorities that may vouch for the "
		   "upstream.",
	    .def_doc = "the system's" },
	{ .name = "tls_verify",
	    .scopes = CONF_UPSTREAM,
	    .type = CONF_ONOFF,
	    .offset = UP(tls_verify),
	    .def = "on",
	    .args = "on | off",
	    .doc = "Whether the upstream's certificate and name are "
		   "verified." },
	{ .name = NULL },
};

/* Authorities that could never be asked. */
static int
check_ca(struct conf_parse *p, const struct conf_upstream *u)
{
	bool tls = false;
	size_t i;

	for (i = 0; i < u->servers_n; i++)
		tls |= u->servers[i].tls;
	if (u->ca.n == 0 || u->servers_n == 0 || (tls && u->tls_verify))
		return 0;
	return conf_error(p,
	    "upstream \"%.*s\" never uses its \"ca\"; expected %s",
	    VIEW_ARG(u->name),
	    tls ? "tls_verify on" : "a server with https://");
}

int
core_conf_upstream_block(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf *c = p->conf;
	const struct conf_node *node = p->node;
	struct conf_block b = { .scope = CONF_UPSTREAM,
		.node = node,
		.parent = p->block };
	struct conf_upstream *u, **grown;
	size_t i;
	int rc;

	(void)base;
	(void)n;
	rc = conf_block_name(p, args[1]);
	for (i = 0; i < c->upstreams_n && rc == 0; i++) {
		if (view_eq(c->upstreams[i]->name, args[1]))
			rc = conf_error(p,
			    "duplicate upstream \"%.*s\"; expected different "
			    "names, it stands at %s:%u",
			    VIEW_ARG(args[1]), c->upstreams[i]->pos.file,
			    c->upstreams[i]->pos.line);
	}
	if (rc != 0)
		return rc;
	u = conf_alloc(p, sizeof(*u));
	b.what = conf_text(p, "upstream \"%.*s\"", VIEW_ARG(args[1]));
	grown = conf_more(p, c->upstreams, c->upstreams_n, sizeof(void *),
	    row->name);
	if (u == NULL || b.what == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	u->name = args[1];
	u->pos = conf_node_pos(node);
	u->index = (unsigned)c->upstreams_n;
	c->upstreams = grown;
	c->upstreams[c->upstreams_n++] = u;
	rc = conf_block_add(p, &b, core_conf_upstream, u);
	if (rc == 0)
		rc = conf_block_plain(p, &b, node->child);
	if (rc == 0)
		rc = conf_block_nested(p, &b, node->child);
	return rc == 0 ? check_ca(p, u) : rc;
}
