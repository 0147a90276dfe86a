#include "config.h"

#include <string.h>

#include "conf/conf_env.h"
#include "gate/gate.h"
#include "gate/route.h"

/* Without the port; an IPv6 literal keeps its brackets. */
static struct view
route_host(struct view authority)
{
	size_t i = 0;

	if (authority.n > 0 && authority.p[0] == '[')
		i = view_find(authority, ']');
	while (i < authority.n && authority.p[i] != ':')
		i++;
	return view_sub(authority, 0, i);
}

static bool
route_server_named(const struct conf_server *s, struct view host)
{
	size_t i;

	for (i = 0; i < s->server_names.n; i++)
		if (view_eq_nocase(s->server_names.v[i], host))
			return true;
	return false;
}

const struct conf_server *
route_server(const struct conf_server *const *servers, size_t n,
    struct view authority)
{
	struct view host;
	size_t i;

	if (n == 1)
		return servers[0];
	host = route_host(authority);
	/* RFC 1034 s3.1: the root's dot is no part of the name */
	if (host.n > 1 && host.p[host.n - 1] == '.')
		host.n--;
	for (i = 0; i < n; i++)
		if (route_server_named(servers[i], host))
			return servers[i];
	return servers[0];
}

static bool
route_matches(const struct conf_location *l, struct view path,
    struct view *rest)
{
	const struct gate_module *m;

	if (view_eq(l->path, path)) {
		*rest = VIEW("");
		return true;
	}
	m = gate_module_of(l->handler);
	if (m == NULL || !m->beneath)
		return false;
	if (view_eq(l->path, VIEW("/"))) {
		*rest = path;
		return true;
	}
	if (!view_starts(path, l->path) || path.p[l->path.n] != '/')
		return false;
	*rest = view_from(path, l->path.n);
	return true;
}

bool
route_find(const struct conf_server *server, struct view path,
    struct route_found *out)
{
	struct view rest;
	size_t i;

	out->location = NULL;
	for (i = 0; i < server->locations_n; i++) {
		const struct conf_location *l = server->locations[i];

		if (!route_matches(l, path, &rest))
			continue;
		/* nobody wrote these: as many as are linked here */
		if (server->control && gate_module_of(l->handler) == NULL)
			continue;
		if (out->location != NULL && out->location->path.n >= l->path.n)
			continue;
		out->location = l;
		out->rest = rest;
	}
	return out->location != NULL;
}

static int
route_order(struct view a, struct view b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int c = n > 0 ? memcmp(a.p, b.p, n) : 0;

	return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static bool
route_listens_before(const struct conf_listen *a, const struct conf_listen *b)
{
	int c = route_order(a->address, b->address);

	if (c == 0)
		c = (a->port > b->port) - (a->port < b->port);
	return c != 0 ? c < 0 : a->index < b->index;
}

/* The least of its addresses, whatever the order of the lines; NULL: none. */
static const struct conf_listen *
route_address(const struct conf_server *s)
{
	const struct conf_listen *least = NULL;
	size_t i;

	for (i = 0; i < s->listens_n; i++)
		if (least == NULL ||
		    route_listens_before(&s->listens[i], least))
			least = &s->listens[i];
	return least;
}

/* Likewise; empty: it has none. */
static struct view
route_name(const struct conf_server *s)
{
	struct view least = VIEW("");
	size_t i;

	for (i = 0; i < s->server_names.n; i++)
		if (i == 0 || route_order(s->server_names.v[i], least) < 0)
			least = s->server_names.v[i];
	return least;
}

int
route_place(const struct conf_location *l, struct buf *out)
{
	const struct conf_server *s = l->server;
	const struct conf_listen *at = route_address(s);
	struct view name = route_name(s);
	int rc = SP_OK;

	if (s->environment != NULL)
		rc = buf_printf(out, "%.*s", VIEW_ARG(s->environment->name));
	if (rc == SP_OK && at != NULL)
		rc = buf_printf(out, "%s%.*s:%u",
		    s->environment != NULL ? " " : "", VIEW_ARG(at->address),
		    (unsigned)at->port);
	/* the kernel chooses: each is another */
	if (rc == SP_OK && at != NULL && at->port == 0)
		rc = buf_printf(out, "#%u", at->index);
	if (rc == SP_OK && name.n > 0)
		rc = buf_printf(out, " %.*s", VIEW_ARG(name));
	if (rc == SP_OK)
		rc = buf_printf(out, " %.*s", VIEW_ARG(l->path));
	return rc;
}
