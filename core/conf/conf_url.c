/* Upstream URLs and addresses.  A URL is never echoed: it may hold a key. */
#include <arpa/inet.h>
#include <sys/un.h>

#include "base/num.h"
#include "conf/parse.h"

bool
conf_url_is_ip(struct view v, int *family)
{
	unsigned char addr[16];
	char text[INET6_ADDRSTRLEN];

	if (v.n == 0 || v.n >= sizeof(text) || view_find(v, '\0') != v.n)
		return false;
	memcpy(text, v.p, v.n);
	text[v.n] = '\0';
	*family = view_find(v, ':') == v.n ? AF_INET : AF_INET6;
	return inet_pton(*family, text, addr) == 1;
}

int
conf_url_host_port(struct view v, struct view *host, struct view *port)
{
	int family;
	size_t end;

	*port = VIEW_NONE;
	if (v.n > 0 && v.p[0] == '[') {
		end = view_find(v, ']');
		*host = view_sub(v, 1, end - 1);
		if (end == v.n || !conf_url_is_ip(*host, &family) ||
		    family != AF_INET6)
			return SP_E_SYNTAX;
		v = view_from(v, end + 1);
		if (v.n == 0)
			return 0;
		if (v.p[0] != ':')
			return SP_E_SYNTAX;
		*port = view_from(v, 1);
		return port->n > 0 ? 0 : SP_E_SYNTAX;
	}
	end = view_find(v, ':');
	*host = view_sub(v, 0, end);
	if (end < v.n)
		*port = view_from(v, end + 1);
	return host->n == 0 || (end < v.n && port->n == 0) ? SP_E_SYNTAX : 0;
}

/* RFC 1123 s2.1, and "_" that resolvers of containers use. */
bool
conf_url_is_host(struct view v)
{
	bool digits = true;
	int family;
	size_t i, label = 0;

	if (view_find(v, ':') < v.n)
		return conf_url_is_ip(v, &family);
	for (i = 0; i < v.n; i++) {
		char c = v.p[i];
		bool digit = c >= '0' && c <= '9';

		if (c == '.') {
			if (label == 0)
				return false;
			label = 0;
			continue;
		}
		if (!digit && !(c >= 'a' && c <= 'z') &&
		    !(c >= 'A' && c <= 'Z') && c != '-' && c != '_')
			return false;
		digits = digits && digit;
		if (++label > 63)
			return false;
	}
	if (v.n == 0 || v.n > 253)
		return false;
	return !digits || conf_url_is_ip(v, &family);
}

/* Case H8: what stands for the base, without a trailing slash. */
static int
set_base(struct conf_parse *p, struct view path,
    struct conf_upstream_server *out)
{
	struct buf text = BUF_INIT(4096);
	struct view base;
	int rc;

	if (path.n == 0)
		path = VIEW("/");
	rc = conf_path_normalise(path, &text);
	if (rc == SP_E_NOMEM) {
		rc = conf_nomem(p);
		goto out;
	}
	if (rc != 0) {
		rc = conf_error(p,
		    "path of the upstream's URL is malformed; expected "
		    "segments of URL characters, like /v1");
		goto out;
	}
	base = buf_view(&text);
	if (view_eq(base, VIEW("/")))
		base = VIEW("/v1");
	else if (view_ends(base, VIEW("/chat/completions")))
		base.n -= strlen("/chat/completions");
	rc = arena_dup(p->arena, base, &out->base);
	if (rc != 0)
		rc = conf_nomem(p);
out:
	buf_clear(&text);
	return rc;
}

/* http://unix:/path/to.sock[:/base] */
static int
parse_unix(struct conf_parse *p, struct view rest,
    struct conf_upstream_server *out)
{
	size_t colon = view_find(rest, ':');

	if (out->tls)
		return conf_error(p,
		    "upstream speaks https over a unix socket; expected "
		    "http://unix:PATH[:/BASE]");
	out->is_unix = true;
	out->host = view_sub(rest, 0, colon);
	out->port = 0;
	if (out->host.n < 2 || out->host.p[0] != '/' ||
	    out->host.n >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return conf_error(p,
		    "socket of the upstream is no absolute path of less than "
		    "108 bytes; expected http://unix:PATH[:/BASE]");
	rest = view_from(rest, colon + 1);
	if (rest.n > 0 && rest.p[0] != '/')
		return conf_error(p,
		    "path after the upstream's socket lacks a \"/\"; expected "
		    "http://unix:PATH[:/BASE]");
	return set_base(p, rest, out);
}

static int
parse_authority(struct conf_parse *p, struct view auth,
    struct conf_upstream_server *out)
{
	struct view port;
	uint64_t n = out->tls ? 443 : 80;

	if (view_find(auth, '@') < auth.n)
		return conf_error(p,
		    "upstream's URL holds a user or password; expected "
		    "http(s)://HOST[:PORT][/PATH] and the key in api_key");
	if (conf_url_host_port(auth, &out->host, &port) != 0 ||
	    !conf_url_is_host(out->host))
		return conf_error(p,
		    "upstream's URL has a bad host; expected a name, an "
		    "address or [IPV6-ADDRESS]");
	if (port.n > 0 && num_u64(port, 1, 65535, &n) != 0)
		return conf_error(p,
		    "upstream's URL has a bad port; expected 1 to 65535");
	out->port = (uint16_t)n;
	return 0;
}

int
conf_url_parse(struct conf_parse *p, struct view url,
    struct conf_upstream_server *out)
{
	struct view rest, auth;
	size_t slash;
	int rc;

	out->url = url;
	out->tls = view_eq_nocase(view_sub(url, 0, 8), VIEW("https://"));
	if (!out->tls && !view_eq_nocase(view_sub(url, 0, 7), VIEW("http://")))
		return conf_error(p,
		    "upstream's URL has no known scheme; expected "
		    "http(s)://HOST[:PORT][/PATH]");
	rest = view_from(url, out->tls ? 8 : 7);
	if (view_find(rest, '?') < rest.n || view_find(rest, '#') < rest.n)
		return conf_error(p,
		    "upstream's URL has a query or fragment; expected "
		    "http(s)://HOST[:PORT][/PATH]");
	if (view_starts(rest, VIEW("unix:")))
		return parse_unix(p, view_from(rest, 5), out);
	slash = view_find(rest, '/');
	auth = view_sub(rest, 0, slash);
	rc = parse_authority(p, auth, out);
	if (rc != 0)
		return rc;
	return set_base(p, view_from(rest, slash), out);
}

int
conf_url_read(struct view url, struct arena *arena,
    struct conf_upstream_server *out, const char **why)
{
	static const struct conf_file file = { .name = "url" };
	struct conf_parse p = { .arena = arena };
	struct view copy;
	int rc;

	p.root.file = &file;
	p.node = &p.root;
	rc = arena_dup(arena, url, &copy);
	if (rc == 0)
		rc = conf_url_parse(&p, copy, out);
	if (rc != SP_E_CONF)
		return rc;
	*why = p.problems[0].text + strlen("url: ");
	return SP_E_SYNTAX;
}
