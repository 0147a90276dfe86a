/* server { ... location PATH { ... } } */
#include <sys/un.h>

#include <stdio.h>

#include "base/num.h"
#include "conf/core_conf.h"

#define SRV(field) offsetof(struct conf_server, field)
#define LOC(field) offsetof(struct conf_location, field)

enum { BACKLOG_DEFAULT = 4096 };

/* The address of a listen: PORT, ADDR:PORT, [V6]:PORT, *:PORT, unix:PATH. */
static int
listen_address(struct conf_parse *p, struct view arg, struct conf_listen *l)
{
	struct view port = arg;
	uint64_t n;
	int family, rc;

	if (view_starts(arg, VIEW("unix:"))) {
		l->is_unix = true;
		if (arg.n == 5)
			return conf_error(p,
			    "listen lacks a path; expected unix:PATH");
		rc = conf_type_path(p, view_from(arg, 5), &l->address);
		if (rc != 0)
			return rc;
		if (l->address.n >= sizeof(((struct sockaddr_un *)0)->sun_path))
			return conf_error(p,
			    "path of the socket is too long; expected less "
			    "than 108 bytes");
		return 0;
	}
	l->address = VIEW("*");
	if (view_find(arg, ':') < arg.n &&
	    (conf_url_host_port(arg, &l->address, &port) != 0 ||
		(!view_eq(l->address, VIEW("*")) &&
		    !conf_url_is_ip(l->address, &family))))
		goto bad;
	if (num_u64(port, 0, 65535, &n) != 0)
		goto bad;
	l->port = (uint16_t)n;
	return 0;
bad:
	return conf_error(p,
	    "bad address \"%.*s\" for \"listen\"; expected PORT, "
	    "ADDRESS:PORT, [IPV6-ADDRESS]:PORT, *:PORT or unix:PATH",
	    VIEW_ARG(arg));
}

static int
listen_option(struct conf_parse *p, struct view arg, struct conf_listen *l)
{
	if (view_eq(arg, VIEW("ssl")) && !l->ssl) {
		l->ssl = true;
		return 0;
	}
	if (view_starts(arg, VIEW("backlog=")) && l->backlog == 0 &&
	    num_u64(view_from(arg, 8), 1, 65535, &l->backlog) == 0)
		return 0;
	return conf_error(p,
	    "bad option \"%.*s\" for \"listen\"; expected ssl or "
	    "backlog=NUMBER from 1 to 65535, each once",
	    VIEW_ARG(arg));
}

/* Port 0 is another port each time. */
static bool
same_address(const struct conf_listen *a, const struct conf_listen *b)
{
	return a->is_unix == b->is_unix && a->port == b->port &&
	    (a->is_unix || a->port != 0) && view_eq(a->address, b->address);
}

static int
parse_listen(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_server *s = base;
	struct conf_listen l = { .pos = conf_node_pos(p->node) }, *grown;
	size_t i;
	int rc;

	rc = listen_address(p, args[1], &l);
	for (i = 2; i < n && rc == 0; i++)
		rc = listen_option(p, args[i], &l);
	if (rc != 0)
		return rc;
	if (l.backlog == 0)
		l.backlog = BACKLOG_DEFAULT;
	for (i = 0; i < s->listens_n; i++) {
		if (same_address(&s->listens[i], &l))
			return conf_error(p,
			    "duplicate listen \"%.*s\"; expected once, it "
			    "stands at %s:%u",
			    VIEW_ARG(args[1]), s->listens[i].pos.file,
			    s->listens[i].pos.line);
	}
	grown = conf_more(p, s->listens, s->listens_n, sizeof(l), row->name);
	if (grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	s->listens = grown;
	s->listens[s->listens_n++] = l;
	return 0;
}

static int
dump_listen(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_server *s = base;
	struct buf text = BUF_INIT(8192);
	size_t i;
	int rc = 0;

	for (i = 0; i < s->listens_n && rc == 0; i++) {
		const struct conf_listen *l = &s->listens[i];
		bool v6 =
		    !l->is_unix && view_find(l->address, ':') < l->address.n;

		buf_reset(&text, 8192);
		rc = l->is_unix
		    ? buf_printf(&text, "unix:%.*s", VIEW_ARG(l->address))
		    : buf_printf(&text, "%s%.*s%s:%u", v6 ? "[" : "",
			  VIEW_ARG(l->address), v6 ? "]" : "", l->port);
		if (rc == 0)
			rc = buf_printf(out, "%s%s ", indent, row->name);
		if (rc == 0)
			rc = conf_dump_word(out, buf_view(&text));
		if (rc == 0)
			rc = buf_printf(out, "%s backlog=%llu;\n",
			    l->ssl ? " ssl" : "",
			    (unsigned long long)l->backlog);
	}
	buf_clear(&text);
	return rc;
}

static bool
has_name(const struct conf_server *s, struct view name)
{
	size_t i;

	for (i = 0; i < s->server_names.n; i++) {
		if (view_eq_nocase(s->server_names.v[i], name))
			return true;
	}
	return false;
}

static int
parse_server_name(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_server *s = base;
	size_t i, j;
	int rc = 0;

	(void)row;
	for (i = 1; i < n && rc == 0; i++) {
		for (j = 0; j < args[i].n; j++) {
			char c = args[i].p[j];

			if (c <= ' ' || c >= 0x7f ||
			    strchr("/:@?#\"*", c) != NULL)
				break;
		}
		if (j < args[i].n || j == 0 || j > 253)
			rc = conf_error(p,
			    "bad server_name \"%.*s\"; expected the name of a "
			    "host",
			    VIEW_ARG(args[i]));
		else if (has_name(s, args[i]))
			rc = conf_error(p,
			    "duplicate server_name \"%.*s\"; expected each "
			    "once",
			    VIEW_ARG(args[i]));
		else
			rc = conf_type_list_add(p, &s->server_names, args[i]);
	}
	return rc;
}

static int
dump_server_name(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_server *s = base;
	size_t i;
	int rc = 0;

	for (i = 0; i < s->server_names.n && rc == 0; i++) {
		rc = buf_printf(out, "%s%s ", indent, row->name);
		if (rc == 0)
			rc = conf_dump_word(out, s->server_names.v[i]);
		if (rc == 0)
			rc = buf_add_str(out, ";\n");
	}
	return rc;
}

static int
location_path(struct conf_parse *p, struct view arg, struct conf_location *loc)
{
	struct buf path = BUF_INIT(4096);
	int rc = SP_E_SYNTAX;

	if (view_find(arg, '?') == arg.n)
		rc = conf_path_normalise(arg, &path);
	if (rc == 0)
		rc = arena_dup(p->arena, buf_view(&path), &loc->path);
	buf_clear(&path);
	if (rc == SP_E_NOMEM)
		return conf_nomem(p);
	if (rc != 0)
		return conf_error(p,
		    "bad path \"%.*s\" of a location; expected one like /v1",
		    VIEW_ARG(arg));
	return 0;
}

/* The module whose handler stands first in the block; NULL none. */
static const struct conf_module *
find_handler(const struct conf_node *nodes)
{
	const struct conf_directive *row;
	size_t i;

	for (; nodes != NULL; nodes = nodes->next) {
		for (i = 0; i < CONF_MODULES_MAX && conf_modules[i] != NULL;
		     i++) {
			row = conf_modules[i]->directives;
			for (; row->name != NULL; row++) {
				if (row->type == CONF_HANDLER &&
				    view_eq(nodes->args[0],
					view_str(row->name)))
					return conf_modules[i];
			}
		}
	}
	return NULL;
}

/* No handler, or one that agents may not have: "a, b or c" are expected. */
static int
bad_handler(struct conf_parse *p, const struct conf_location *loc)
{
	const char *names[CONF_MODULES_MAX];
	struct buf all = BUF_INIT(1024), what = BUF_INIT(256);
	bool inside = loc->server->environment != NULL;
	size_t i, n = 0;
	int rc;

	for (i = 0; i < CONF_MODULES_MAX && conf_modules[i] != NULL; i++) {
		if (!inside || conf_modules[i]->inside)
			names[n++] = conf_modules[i]->name;
	}
	rc = loc->handler == NULL
	    ? buf_add_str(&what, "no handler")
	    : buf_printf(&what, "\"%s\", which agents may not reach",
		  loc->handler->name);
	for (i = 0; rc == 0 && i < n; i++)
		rc = buf_printf(&all, "%s%s",
		    i == 0           ? ""
			: i + 1 == n ? " or "
				     : ", ",
		    names[i]);
	rc = rc != 0
	    ? conf_nomem(p)
	    : conf_error(p, "location \"%.*s\" has %.*s; expected %.*s",
		  VIEW_ARG(loc->path), VIEW_ARG(buf_view(&what)),
		  VIEW_ARG(buf_view(&all)));
	buf_clear(&all);
	buf_clear(&what);
	return rc;
}

/* The module's struct and rows, when the location has a handler. */
static int
add_module(struct conf_parse *p, struct conf_block *b,
    struct conf_location *loc)
{
	int i;

	if (b->handler == NULL)
		return 0;
	i = conf_module_index(b->handler->name);
	loc->module_conf[i] = conf_alloc(p, b->handler->conf_size);
	if (loc->module_conf[i] == NULL)
		return SP_E_NOMEM;
	return conf_block_add(p, b, b->handler->directives,
	    loc->module_conf[i]);
}

static int
read_location(struct conf_parse *p, struct conf_block *b,
    struct conf_location *loc, const struct conf_node *nodes)
{
	int rc;

	p->location = loc;
	rc = conf_block_add(p, b, core_conf_location, loc);
	if (rc == 0)
		rc = conf_block_add(p, b, core_conf_limits, &loc->limits);
	if (rc == 0)
		rc = add_module(p, b, loc);
	if (rc == 0)
		rc = conf_block_plain(p, b, nodes);
	if (rc == 0)
		rc = conf_block_nested(p, b, nodes);
	if (rc == 0 &&
	    (b->handler == NULL ||
		(loc->server->environment != NULL && !b->handler->inside)))
		rc = bad_handler(p, loc);
	if (loc->token != NULL && b->handler != NULL)
		loc->token->principal = b->handler->principal;
	p->location = NULL;
	return rc;
}

static int
location_block(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf_server *s = base;
	const struct conf_node *node = p->node;
	struct conf_block b = { .scope = CONF_LOCATION,
		.node = node,
		.parent = p->block,
		.handler = find_handler(node->child) };
	struct conf_location *loc, **grown;
	size_t i;
	int rc;

	(void)n;
	loc = conf_alloc(p, sizeof(*loc));
	b.what = conf_text(p, "location \"%.*s\"", VIEW_ARG(args[1]));
	grown = conf_more(p, s->locations, s->locations_n, sizeof(void *),
	    row->name);
	if (loc == NULL || b.what == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	rc = location_path(p, args[1], loc);
	if (rc != 0)
		return rc;
	for (i = 0; i < s->locations_n; i++) {
		if (view_eq(s->locations[i]->path, loc->path))
			return conf_error(p,
			    "duplicate location \"%.*s\"; expected different "
			    "paths, it stands at %s:%u",
			    VIEW_ARG(loc->path), s->locations[i]->pos.file,
			    s->locations[i]->pos.line);
	}
	loc->index = (unsigned)s->locations_n;
	loc->pos = conf_node_pos(node);
	loc->server = s;
	loc->handler = b.handler;
	s->locations = grown;
	s->locations[s->locations_n++] = loc;
	return read_location(p, &b, loc, node->child);
}

const struct conf_directive core_conf_server[] = {
	{ .name = "listen",
	    .scopes = CONF_SERVER,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS | CONF_REQUIRED,
	    .args_min = 1,
	    .args_max = 3,
	    .parse = parse_listen,
	    .dump = dump_listen,
	    .args = "ADDRESS [ ssl ] [ backlog=NUMBER ]",
	    .doc = "Where connections are accepted: PORT, ADDRESS:PORT,\n"
		   "[IPV6-ADDRESS]:PORT, *:PORT or unix:PATH.\n"
		   "With port 0 the kernel chooses one.\n"
		   "Each speaks HTTP/1.1 and HTTP/2: the latter by ALPN "
		   "with ssl,\nby the client's preface without.\n"
		   "Servers that share an address are told apart by "
		   "server_name." },
	{ .name = "server_name",
	    .scopes = CONF_SERVER,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS,
	    .args_min = 1,
	    .args_max = CONF_ARGS_MAX,
	    .parse = parse_server_name,
	    .dump = dump_server_name,
	    .args = "NAME ...",
	    .doc = "Names of the host for which this server answers.\n"
		   "One without names answers for all others." },
	{ .name = "certificate",
	    .scopes = CONF_SERVER,
	    .type = CONF_SECRET,
	    .flags = CONF_PEM | CONF_OPEN,
	    .offset = SRV(certificate),
	    .args = "SECRET",
	    .doc = "The certificate and its chain, PEM, for listen with "
		   "ssl." },
	{ .name = "certificate_key",
	    .scopes = CONF_SERVER,
	    .type = CONF_SECRET,
	    .flags = CONF_PEM,
	    .offset = SRV(certificate_key),
	    .args = "SECRET",
	    .doc = "The certificate's private key, PEM." },
	{ .name = "max_calls",
	    .scopes = CONF_SERVER,
	    .type = CONF_NUMBER,
	    .offset = SRV(max_calls),
	    .max = 1000000,
	    .def = "0",
	    .args = "NUMBER",
	    .doc = "Most model calls of this server in flight, beside the "
		   "limit on all; 0 sets no\nlimit.\nPast it they get 503 at "
		   "once; those that wait count." },
	{ .name = "location",
	    .scopes = CONF_SERVER | CONF_INSIDE,
	    .type = CONF_BLOCK,
	    .flags = CONF_REPEATS,
	    .opens = CONF_LOCATION,
	    .args_min = 1,
	    .args_max = 1,
	    .parse = location_block,
	    .args = "PATH",
	    .doc = "What answers at a path.\nIt has exactly one handler." },
	{ .name = NULL },
};

const struct conf_directive core_conf_location[] = {
	{ .name = "max_calls",
	    .scopes = CONF_LOCATION,
	    .type = CONF_NUMBER,
	    .offset = LOC(max_calls),
	    .max = 1000000,
	    .def = "0",
	    .args = "NUMBER",
	    .doc = "The same of this location.\nOf a door it is the most "
		   "operations under way, counted apart from the server's; "
		   "0\nis 4096 then.\nOne too many is refused with 429, "
		   "over a WebSocket with an error; the socket\nstays "
		   "open." },
	{ .name = "token",
	    .scopes = CONF_LOCATION,
	    .type = CONF_SECRET,
	    .offset = LOC(token),
	    .min = 16,
	    .args = "SECRET",
	    .doc = "A bearer token that every request must carry: printable "
		   "ASCII without\nspaces, at least 16 characters." },
	{ .name = NULL },
};

/* A certificate where there is TLS, and TLS where there is a certificate. */
static int
check_tls(struct conf_parse *p, const struct conf_block *b,
    struct conf_server *s)
{
	bool cert = conf_block_set(b, "certificate") != NULL;
	bool key = conf_block_set(b, "certificate_key") != NULL;
	bool ssl = false;
	size_t i;

	for (i = 0; i < s->listens_n; i++)
		ssl |= s->listens[i].ssl;
	if (cert == ssl && key == ssl)
		return 0;
	if (!ssl)
		return conf_error(p,
		    "server has a certificate and no TLS; expected a "
		    "\"listen\" with ssl");
	return conf_error(p,
	    "server listens with ssl and lacks \"%s\"; expected certificate "
	    "and certificate_key",
	    cert ? "certificate_key" : "certificate");
}

int
core_conf_server_block(struct conf_parse *p, const struct conf_directive *row,
    void *base, const struct view *args, size_t n)
{
	struct conf *c = p->conf;
	const struct conf_node *node = p->node;
	struct conf_block b = { .scope = CONF_SERVER,
		.what = "server",
		.node = node,
		.parent = p->block };
	struct conf_server *s, **grown;
	int rc;

	(void)base;
	(void)args;
	(void)n;
	s = conf_alloc(p, sizeof(*s));
	grown =
	    conf_more(p, c->servers, c->servers_n, sizeof(void *), row->name);
	if (s == NULL || grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	s->index = (unsigned)c->servers_n;
	s->pos = conf_node_pos(node);
	c->servers = grown;
	c->servers[c->servers_n++] = s;
	rc = conf_block_add(p, &b, core_conf_server, s);
	if (rc == 0)
		rc = conf_block_add(p, &b, core_conf_limits, &s->limits);
	if (rc == 0)
		rc = conf_block_plain(p, &b, node->child);
	if (rc == 0)
		rc = conf_block_nested(p, &b, node->child);
	return rc == 0 ? check_tls(p, &b, s) : rc;
}

/* Two servers on one address: names differ, and TLS does not. */
static int
check_pair(struct conf_parse *p, const struct conf_server *a,
    const struct conf_listen *la, const struct conf_server *b,
    const struct conf_listen *lb)
{
	const struct conf_file file = { .name = lb->pos.file };
	const struct conf_node at = { .file = &file,
		.line = lb->pos.line,
		.seq = ~0U };
	size_t i;
	bool clash = a->server_names.n == 0 && b->server_names.n == 0;

	if (la->ssl != lb->ssl || la->backlog != lb->backlog)
		return conf_error_at(p, &at,
		    "listen differs from the one of the same address at "
		    "%s:%u; expected the same options",
		    la->pos.file, la->pos.line);
	for (i = 0; i < b->server_names.n && !clash; i++)
		clash = has_name(a, b->server_names.v[i]);
	if (clash)
		return conf_error_at(p, &at,
		    "the server at %s:%u has this address too; expected a "
		    "different server_name",
		    la->pos.file, la->pos.line);
	return 0;
}

/* Gives l its index: that of an earlier server's same address, or a new one. */
static int
place_listen(struct conf_parse *p, const struct conf_server *s,
    struct conf_listen *l)
{
	const struct conf *c = p->conf;
	size_t i, j;
	int rc;

	for (i = 0; i < s->index; i++) {
		for (j = 0; j < c->servers[i]->listens_n; j++) {
			const struct conf_listen *o =
			    &c->servers[i]->listens[j];

			if (!same_address(o, l))
				continue;
			l->shared = true;
			l->index = o->index;
			rc = check_pair(p, c->servers[i], o, s, l);
			if (rc != 0)
				return rc;
		}
	}
	if (!l->shared)
		l->index = (unsigned)p->conf->listens_n++;
	return 0;
}

/* What the names tell; the values are compared when they are read. */
static int
check_tokens(struct conf_parse *p)
{
	const struct conf_secret *a, *b;
	struct conf_file file;
	struct conf_node at = { .file = &file, .seq = ~0U };

	if (!conf_secret_clash(p->conf, false, &a, &b))
		return 0;
	file = (struct conf_file){ .name = b->file };
	at.line = b->line;
	return conf_error_at(p, &at,
	    "token of the %s is that of the %s at %s:%u; expected a secret of "
	    "its own for each principal",
	    b->principal, a->principal, a->file, a->line);
}

int
core_conf_server_check(struct conf_parse *p)
{
	size_t i, j;
	int rc;

	for (i = 0; i < p->conf->servers_n; i++) {
		struct conf_server *s = p->conf->servers[i];

		for (j = 0; j < s->listens_n; j++) {
			rc = place_listen(p, s, &s->listens[j]);
			if (rc != 0 && rc != SP_E_CONF)
				return rc;
		}
	}
	return check_tokens(p);
}
