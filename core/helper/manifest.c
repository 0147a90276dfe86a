/* The `openenvd:` block of a manifest: read and checked as the seed does. */
#include "config.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "conf/conf_env.h"
#include "helper/manifest.h"

enum {
	MANIFEST_ARENA = 1024 * 1024,
	MANIFEST_ERRORS_MAX = 20,
	MANIFEST_NAME_MAX = 64,
	MANIFEST_KEYS_MAX = 512,
};

struct reader {
	struct manifest *m;
	struct buf *err;
	unsigned errors;
	unsigned line; /* of the mapping that is being read */
	int rc; /* sticky: SP_E_NOMEM, or SP_E_CONF after the last error */
};

/* ---- errors and kinds ------------------------------------------------------- */

static void bad(struct reader *r, int at, const char *fmt, ...)
    printf_like(3, 4);

static void
bad(struct reader *r, int at, const char *fmt, ...)
{
	va_list ap;
	int rc;

	if (r->rc == SP_E_NOMEM || ++r->errors > MANIFEST_ERRORS_MAX)
		return;
	rc = buf_printf(r->err, "%s:%u: ", manifest_yaml_path(r->m->yaml),
	    at != 0 ? manifest_yaml_line(r->m->yaml, at) : r->line);
	if (rc == SP_OK) {
		va_start(ap, fmt);
		rc = buf_vprintf(r->err, fmt, ap);
		va_end(ap);
	}
	if (rc == SP_OK)
		rc = buf_add_char(r->err, '\n');
	r->rc = rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

static enum manifest_kind
kind_of(const struct reader *r, int n)
{
	return manifest_yaml_kind(r->m->yaml, n);
}

static int
get(const struct reader *r, int n, const char *key)
{
	return manifest_yaml_get(r->m->yaml, n, key);
}

/* Left out, or null: the default holds. */
static bool
absent(const struct reader *r, int n)
{
	enum manifest_kind k = kind_of(r, n);

	return k == MANIFEST_NONE || k == MANIFEST_NULL;
}

static bool
is_map(struct reader *r, int n, const char *what)
{
	if (kind_of(r, n) == MANIFEST_MAP) {
		r->line = manifest_yaml_line(r->m->yaml, n);
		return true;
	}
	bad(r, n, "%s is no mapping; expected NAME: VALUE lines", what);
	return false;
}

static bool
is_list(struct reader *r, int n, const char *what)
{
	if (kind_of(r, n) == MANIFEST_NONE) {
		bad(r, n, "%s is missing; expected a list of at least one",
		    what);
		return false;
	}
	if (kind_of(r, n) != MANIFEST_LIST) {
		bad(r, n, "%s is no list; expected lines with \"-\"", what);
		return false;
	}
	if (manifest_yaml_count(r->m->yaml, n) <= MANIFEST_LIST_MAX)
		return true;
	bad(r, n, "%s is too long; expected at most %d", what,
	    MANIFEST_LIST_MAX);
	return false;
}

static void
unknown(struct reader *r, int value, const char *what, struct view key,
    const char *const *known)
{
	char list[MANIFEST_KEYS_MAX] = "";
	size_t n = 0;
	int one;

	for (; *known != NULL && n < sizeof(list) - 1; known++) {
		one = snprintf(list + n, sizeof(list) - n, "%s%s",
		    n > 0 ? ", " : "", *known);
		n += one > 0 ? (size_t)one : 0;
	}
	bad(r, value, "%s has an unknown key \"%.*s\"; expected one of %s",
	    what, VIEW_ARG(key), list);
}

/* Keys that nothing is known of are errors: a typo must not open a door. */
static void
only(struct reader *r, int map, const char *what, const char *const *known)
{
	struct view key;
	size_t i, k;

	for (i = 0; i < manifest_yaml_count(r->m->yaml, map); i++) {
		int value = manifest_yaml_at(r->m->yaml, map, i, &key);

		for (k = 0; known[k] != NULL; k++)
			if (view_eq(key, view_str(known[k])))
				break;
		if (known[k] == NULL)
			unknown(r, value, what, key, known);
	}
}

static struct view
text_of(struct reader *r, int n, const char *what)
{
	struct view v = manifest_yaml_text(r->m->yaml, n);

	if (kind_of(r, n) == MANIFEST_TEXT && v.n > 0 &&
	    memchr(v.p, 0, v.n) == NULL && memchr(v.p, '\n', v.n) == NULL)
		return v;
	if (kind_of(r, n) == MANIFEST_NONE)
		bad(r, n,
		    "%s is missing; expected one line in quotes, or a "
		    "word",
		    what);
	else
		bad(r, n,
		    "%s is no text; expected one line in quotes, or a "
		    "word",
		    what);
	return VIEW_NONE;
}

static bool
bool_of(struct reader *r, int n, const char *what, bool otherwise)
{
	if (absent(r, n))
		return otherwise;
	if (kind_of(r, n) == MANIFEST_BOOL)
		return manifest_yaml_true(r->m->yaml, n);
	bad(r, n, "%s is neither true nor false", what);
	return otherwise;
}

static void *
take(struct reader *r, size_t n, size_t size)
{
	void *p = arena_zalloc(r->m->arena, n * size + 1);

	if (p == NULL)
		r->rc = SP_E_NOMEM;
	return p;
}

static struct manifest_words
words_of(struct reader *r, int n, const char *what)
{
	struct manifest_words w = { NULL, 0 };
	struct view key;
	size_t i, count;

	if (absent(r, n) || !is_list(r, n, what))
		return w;
	count = manifest_yaml_count(r->m->yaml, n);
	w.v = take(r, count, sizeof(*w.v));
	for (i = 0; w.v != NULL && i < count; i++) {
		int at = manifest_yaml_at(r->m->yaml, n, i, &key);
		struct view v = text_of(r, at, what);

		if (v.n > 0)
			w.v[w.n++] = v;
	}
	return w;
}

/* ---- surfaces --------------------------------------------------------------- */

static const char *const principals[] = {
	[MANIFEST_ORCHESTRATOR] = "orchestrator",
	[MANIFEST_AGENT] = "agent",
	[MANIFEST_GRADER] = "grader",
	[MANIFEST_OBSERVER] = "observer",
};

/* What each may have; the rest is refused where it is not empty. */
static void
surface_rules(struct reader *r, int n, unsigned who,
    const struct manifest_surface *s)
{
	const char *name = principals[who];

	if (s->allow_lifecycle &&
	    (who == MANIFEST_AGENT || who == MANIFEST_OBSERVER))
		bad(r, n,
		    "surface %s may not have allow_lifecycle; expected it at "
		    "the orchestrator's, without it here",
		    name);
	if (s->privileged_exec && who != MANIFEST_GRADER)
		bad(r, n,
		    "surface %s may not have allow_privileged_exec; expected "
		    "it at the grader's, without it here",
		    name);
	if (s->fs_read.n > 0 && who != MANIFEST_GRADER)
		bad(r, n,
		    "surface %s may not have fs_read; expected it at the "
		    "grader's, without it here",
		    name);
	if (s->stream.n > 0 && who != MANIFEST_OBSERVER)
		bad(r, n,
		    "surface %s may not have a stream; expected it at the "
		    "observer's, without it here",
		    name);
	if (s->tools.n > 0 && who == MANIFEST_OBSERVER)
		bad(r, n,
		    "surface %s may not have tools; expected them at another, "
		    "and none here",
		    name);
}

static void
read_surface(struct reader *r, int n, unsigned who)
{
	static const char *const known[] = { "principal", "tools", "fs_read",
		"stream", "allow_lifecycle", "allow_privileged_exec", NULL };
	static const char *const streams[] = { "harness_events", "fs_diff",
		"process", "network", "resource", NULL };
	struct manifest_surface *s = &r->m->surfaces[who];
	int at = get(r, n, "principal");
	size_t i, k;

	if (!is_map(r, n, principals[who]))
		return;
	only(r, n, principals[who], known);
	s->there = true;
	if (!absent(r, at) &&
	    !view_eq(manifest_yaml_text(r->m->yaml, at),
		view_str(principals[who])))
		bad(r, at, "principal is not \"%s\", which its surface is for",
		    principals[who]);
	s->tools = words_of(r, get(r, n, "tools"), "tools");
	s->fs_read = words_of(r, get(r, n, "fs_read"), "fs_read");
	s->stream = words_of(r, get(r, n, "stream"), "stream");
	s->allow_lifecycle =
	    bool_of(r, get(r, n, "allow_lifecycle"), "allow_lifecycle", false);
	s->privileged_exec = bool_of(r, get(r, n, "allow_privileged_exec"),
	    "allow_privileged_exec", false);
	for (i = 0; i < s->stream.n; i++) {
		for (k = 0; streams[k] != NULL; k++)
			if (view_eq(s->stream.v[i], view_str(streams[k])))
				break;
		if (streams[k] == NULL)
			bad(r, n,
			    "unknown stream \"%.*s\"; expected "
			    "harness_events, fs_diff, process, network or "
			    "resource",
			    VIEW_ARG(s->stream.v[i]));
	}
	surface_rules(r, n, who, s);
}

static void
read_surfaces(struct reader *r, int n)
{
	struct view key;
	size_t i;
	unsigned who;

	if (absent(r, n) || !is_map(r, n, "surfaces"))
		return;
	for (i = 0; i < manifest_yaml_count(r->m->yaml, n); i++) {
		int at = manifest_yaml_at(r->m->yaml, n, i, &key);

		for (who = 0; who < MANIFEST_PRINCIPALS; who++)
			if (view_eq(key, view_str(principals[who])))
				break;
		if (who < MANIFEST_PRINCIPALS)
			read_surface(r, at, who);
		else
			bad(r, at,
			    "unknown surface \"%.*s\"; expected orchestrator, "
			    "agent, grader or observer",
			    VIEW_ARG(key));
	}
}

/* ---- assets ----------------------------------------------------------------- */

/* Letters and digits, once "_" is taken out. */
static bool
asset_name(struct view v)
{
	size_t i, n = 0;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9'))
			n++;
		else if (c != '_')
			return false;
	}
	/* of our configurations these two are other words */
	return n > 0 && !view_eq(v, VIEW("include")) &&
	    !view_eq(v, VIEW("manifest"));
}

static bool
asset_source(struct view v)
{
	struct view rest = v, part;

	if (v.n == 0 || v.p[0] == '/')
		return false;
	while (view_split(&rest, '/', &part))
		if (view_eq(part, VIEW("..")))
			return false;
	return true;
}

static void
read_asset(struct reader *r, int at, struct view name, struct view source)
{
	struct manifest *m = r->m;

	if (!asset_name(name)) {
		bad(r, at,
		    "bad name \"%.*s\" of an asset; expected letters, digits "
		    "and \"_\", and neither \"include\" nor \"manifest\"",
		    VIEW_ARG(name));
		return;
	}
	if (!asset_source(source)) {
		bad(r, at,
		    "bad source \"%.*s\" of asset \"%.*s\"; expected a path "
		    "beneath the directory of assets, without \"..\"",
		    VIEW_ARG(source), VIEW_ARG(name));
		return;
	}
	m->assets[m->assets_n++] = (struct manifest_asset){ name, source };
}

/* [{name, source}], {name: source}, or {name: {source}}. */
static void
read_assets(struct reader *r, int n)
{
	static const char *const known[] = { "name", "source", NULL };
	struct view key, name;
	size_t i, count = manifest_yaml_count(r->m->yaml, n);

	if (absent(r, n))
		return;
	if (kind_of(r, n) != MANIFEST_MAP &&
	    !is_list(r, n, "privileged_assets"))
		return;
	if (count > MANIFEST_LIST_MAX) {
		bad(r, n, "too many assets; expected at most %d",
		    MANIFEST_LIST_MAX);
		return;
	}
	r->m->assets = take(r, count, sizeof(*r->m->assets));
	for (i = 0; r->m->assets != NULL && i < count; i++) {
		int at = manifest_yaml_at(r->m->yaml, n, i, &key);

		if (kind_of(r, at) == MANIFEST_TEXT && key.p != NULL) {
			read_asset(r, at, key, text_of(r, at, "an asset"));
			continue;
		}
		if (!is_map(r, at, "an asset"))
			continue;
		only(r, at, "an asset", known);
		name = key.p != NULL && get(r, at, "name") == 0
		    ? key
		    : text_of(r, get(r, at, "name"), "name of an asset");
		read_asset(r, at, name,
		    text_of(r, get(r, at, "source"), "source of an asset"));
	}
}

/* ---- network ---------------------------------------------------------------- */

/* Canonical: written as the network that it is. */
static bool
cidr_is_good(struct view v)
{
	char text[INET_ADDRSTRLEN + 4], again[INET_ADDRSTRLEN + 4];
	char addr[INET_ADDRSTRLEN];
	size_t slash = view_find(v, '/');
	struct in_addr in;
	uint64_t bits;
	uint32_t net;

	if (v.n >= sizeof(text) || slash == v.n ||
	    num_u64(view_from(v, slash + 1), 0, 32, &bits) != SP_OK)
		return false;
	memcpy(text, v.p, slash);
	text[slash] = 0;
	if (inet_pton(AF_INET, text, &in) != 1)
		return false;
	net = bits == 0 ? 0 : ntohl(in.s_addr) & ~0U << (32 - bits);
	in.s_addr = htonl(net);
	if (inet_ntop(AF_INET, &in, addr, sizeof(addr)) == NULL)
		return false;
	snprintf(again, sizeof(again), "%s/%u", addr, (unsigned)bits);
	return view_eq(v, view_str(again));
}

static bool
port_is_good(struct reader *r, int n, struct view *out)
{
	uint64_t port;

	*out = manifest_yaml_text(r->m->yaml, n);
	if (kind_of(r, n) == MANIFEST_INT &&
	    num_u64(*out, 1, 65535, &port) == SP_OK)
		return true;
	bad(r, n, "bad port; expected a whole number from 1 to 65535");
	return false;
}

static void
read_network_rule(struct reader *r, int n)
{
	static const char *const known[] = { "cidr", "protocol", "ports",
		NULL };
	struct manifest_rule rule = { .host = VIEW_NONE };
	struct view proto, key;
	int ports = get(r, n, "ports");
	size_t i, count = manifest_yaml_count(r->m->yaml, ports);

	if (!is_map(r, n, "a rule"))
		return;
	only(r, n, "a rule", known);
	rule.cidr = text_of(r, get(r, n, "cidr"), "cidr");
	if (rule.cidr.n > 0 && !cidr_is_good(rule.cidr))
		bad(r, n,
		    "bad cidr \"%.*s\"; expected an IPv4 network as "
		    "ADDRESS/BITS, without bits of a host",
		    VIEW_ARG(rule.cidr));
	proto = text_of(r, get(r, n, "protocol"), "protocol");
	rule.udp = view_eq(proto, VIEW("udp"));
	if (proto.n > 0 && !rule.udp && !view_eq(proto, VIEW("tcp")))
		bad(r, n, "bad protocol \"%.*s\"; expected tcp or udp",
		    VIEW_ARG(proto));
	if (!is_list(r, ports, "ports"))
		return;
	if (count == 0)
		bad(r, ports, "no ports; expected at least one");
	rule.ports.v = take(r, count, sizeof(struct view));
	for (i = 0; rule.ports.v != NULL && i < count; i++) {
		int at = manifest_yaml_at(r->m->yaml, ports, i, &key);

		if (port_is_good(r, at, &rule.ports.v[rule.ports.n]))
			rule.ports.n++;
	}
	r->m->rules[r->m->rules_n++] = rule;
}

/* A name, or *.NAME; the seed lets "*" stand anywhere, our rules do not. */
static void
read_host(struct reader *r, int n, struct manifest_rule *rule)
{
	struct view v = text_of(r, get(r, n, "host"), "host"), rest;
	size_t i;

	if (v.n == 0)
		return;
	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') || c == '*' ||
		    (i > 0 && (c == '.' || c == '-')))
			continue;
		bad(r, n, "bad host \"%.*s\"; expected a name", VIEW_ARG(v));
		return;
	}
	rest = view_starts(v, VIEW("*.")) ? view_from(v, 2) : v;
	if (view_find(rest, '*') < rest.n) {
		bad(r, n,
		    "host \"%.*s\" cannot be expressed; expected a name, or "
		    "*.NAME for all below it",
		    VIEW_ARG(v));
		return;
	}
	rule->host = v;
}

static void
read_host_rule(struct reader *r, int n)
{
	static const char *const known[] = { "host", "port", "binaries", NULL };
	struct manifest_rule rule = { .cidr = VIEW_NONE };
	int port = get(r, n, "port"), binaries = get(r, n, "binaries");

	if (!is_map(r, n, "a rule"))
		return;
	only(r, n, "a rule", known);
	read_host(r, n, &rule);
	if (!absent(r, binaries) &&
	    manifest_yaml_count(r->m->yaml, binaries) > 0)
		bad(r, binaries,
		    "binaries cannot be expressed: no rule here can tell "
		    "which program connects; expected the rule without them, "
		    "for every program of the episode");
	rule.ports.v = take(r, 1, sizeof(struct view));
	if (rule.ports.v == NULL)
		return;
	rule.ports.n = 1;
	rule.ports.v[0] = VIEW("443");
	if (absent(r, port) || port_is_good(r, port, rule.ports.v))
		r->m->rules[r->m->rules_n++] = rule;
}

static void
read_rules(struct reader *r, int n, const char *what,
    void (*one)(struct reader *, int))
{
	struct view key;
	size_t i, count;

	if (absent(r, n) || !is_list(r, n, what))
		return;
	count = manifest_yaml_count(r->m->yaml, n);
	r->m->rules = take(r, count, sizeof(*r->m->rules));
	for (i = 0; r->m->rules != NULL && i < count; i++)
		one(r, manifest_yaml_at(r->m->yaml, n, i, &key));
}

/* First generation: the rules themselves, or under "egress" or "allow". */
static void
read_network(struct reader *r, int n)
{
	static const char *const known[] = { "egress", "allow", NULL };

	if (absent(r, n))
		return;
	if (kind_of(r, n) == MANIFEST_LIST) {
		read_rules(r, n, "network", read_network_rule);
		return;
	}
	if (!is_map(r, n, "network"))
		return;
	only(r, n, "network", known);
	if (get(r, n, "egress") != 0 && get(r, n, "allow") != 0)
		bad(r, n, "network has both egress and allow; expected one");
	else
		read_rules(r,
		    get(r, n, "egress") != 0 ? get(r, n, "egress")
					     : get(r, n, "allow"),
		    "egress", read_network_rule);
}

/* Second generation. */
static void
read_egress(struct reader *r, int n)
{
	static const char *const known[] = { "mode", "allow", NULL };
	struct view mode;
	bool list;

	if (absent(r, n) || !is_map(r, n, "egress"))
		return;
	only(r, n, "egress", known);
	mode = absent(r, get(r, n, "mode"))
	    ? VIEW("none")
	    : text_of(r, get(r, n, "mode"), "mode");
	list = view_eq(mode, VIEW("allowlist"));
	if (mode.n > 0 && !list && !view_eq(mode, VIEW("none")))
		bad(r, n, "bad mode \"%.*s\"; expected none or allowlist",
		    VIEW_ARG(mode));
	read_rules(r, get(r, n, "allow"), "allow", read_host_rule);
	if (r->rc == SP_OK && list != (r->m->rules_n > 0))
		bad(r, n,
		    list ? "mode allowlist has no rules; expected some, or "
			   "mode none"
			 : "mode none has rules; expected mode allowlist");
}

/* ---- processes -------------------------------------------------------------- */

static bool
process_name(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if (!(c >= 'a' && c <= 'z') &&
		    (i == 0 || (!(c >= '0' && c <= '9') && c != '_')))
			return false;
	}
	return v.n > 0 && !view_eq(v, VIEW("worker"));
}

/* A name that may be set: not one of our own. */
static bool
env_name(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
		    c != '_' && (i == 0 || !(c >= '0' && c <= '9')))
			return false;
	}
	return v.n > 0 && !view_starts(v, VIEW("OPENENVD_"));
}

static struct manifest_words
read_env(struct reader *r, int n)
{
	struct manifest_words w = { NULL, 0 };
	struct view key, value;
	char *text;
	size_t i, count = manifest_yaml_count(r->m->yaml, n);

	if (absent(r, n) || !is_map(r, n, "env"))
		return w;
	w.v = take(r, count, sizeof(*w.v));
	for (i = 0; w.v != NULL && i < count; i++) {
		int at = manifest_yaml_at(r->m->yaml, n, i, &key);

		value = manifest_yaml_text(r->m->yaml, at);
		if (!env_name(key) || value.p == NULL) {
			bad(r, at,
			    "bad variable \"%.*s\"; expected NAME: TEXT, and "
			    "none that begins with OPENENVD_",
			    VIEW_ARG(key));
			continue;
		}
		text = arena_printf(r->m->arena, "%.*s=%.*s", VIEW_ARG(key),
		    VIEW_ARG(value));
		if (text == NULL)
			r->rc = SP_E_NOMEM;
		w.v[w.n++] = view_str(text);
	}
	return w;
}

static void
process_rules(struct reader *r, int at, const struct manifest_process *p)
{
	if (!p->privileged && (p->argv.n == 0 || p->argv.v[0].p[0] != '/'))
		bad(r, at,
		    "process \"%.*s\" has no command; expected \"argv\" that "
		    "begins with an absolute path",
		    VIEW_ARG(p->name));
	if (!p->privileged && p->asset.n > 0)
		bad(r, at,
		    "process \"%.*s\" of trust workload names an asset; "
		    "expected trust privileged",
		    VIEW_ARG(p->name));
	if (p->privileged && p->asset.n == 0)
		bad(r, at,
		    "process \"%.*s\" lacks an asset, which trust privileged "
		    "runs; expected asset: NAME, one of privileged_assets",
		    VIEW_ARG(p->name));
	if (p->privileged && (p->argv.n > 0 || p->env.n > 0))
		bad(r, at,
		    "process \"%.*s\" of trust privileged has a command or "
		    "environment; expected its asset alone",
		    VIEW_ARG(p->name));
}

static void
read_process(struct reader *r, int at, struct view key)
{
	static const char *const known[] = { "name", "trust", "argv", "command",
		"asset", "env", NULL };
	struct manifest_process p = { .name = key };
	struct view trust;
	int argv = get(r, at, "argv");

	if (!is_map(r, at, "a process"))
		return;
	only(r, at, "a process", known);
	if (key.p == NULL || get(r, at, "name") != 0)
		p.name = text_of(r, get(r, at, "name"), "name of a process");
	if (p.name.n > 0 && !process_name(p.name))
		bad(r, at,
		    "bad name \"%.*s\" of a process; expected small letters, "
		    "digits and \"_\", and not \"worker\"",
		    VIEW_ARG(p.name));
	trust = text_of(r, get(r, at, "trust"), "trust");
	p.privileged = view_eq(trust, VIEW("privileged"));
	if (trust.n > 0 && !p.privileged && !view_eq(trust, VIEW("workload")))
		bad(r, at,
		    "bad trust \"%.*s\"; expected workload or "
		    "privileged",
		    VIEW_ARG(trust));
	p.argv = words_of(r, argv != 0 ? argv : get(r, at, "command"), "argv");
	if (!absent(r, get(r, at, "asset")))
		p.asset = text_of(r, get(r, at, "asset"), "asset");
	p.env = read_env(r, get(r, at, "env"));
	process_rules(r, at, &p);
	r->m->processes[r->m->processes_n++] = p;
}

static void
read_processes(struct reader *r, int n)
{
	struct view key;
	size_t i, count = manifest_yaml_count(r->m->yaml, n);

	if (absent(r, n))
		return;
	if (kind_of(r, n) != MANIFEST_MAP && !is_list(r, n, "processes"))
		return;
	if (count > MANIFEST_LIST_MAX) {
		bad(r, n, "too many processes; expected at most %d",
		    MANIFEST_LIST_MAX);
		return;
	}
	r->m->processes = take(r, count, sizeof(*r->m->processes));
	for (i = 0; r->m->processes != NULL && i < count; i++) {
		int at = manifest_yaml_at(r->m->yaml, n, i, &key);

		read_process(r, at, key);
	}
}

/* ---- the whole -------------------------------------------------------------- */

static void
read_enforcement(struct reader *r, int n)
{
	static const char *const known[] = { "backend", NULL };
	int backend = kind_of(r, n) == MANIFEST_MAP ? get(r, n, "backend") : n;
	struct view v;

	if (kind_of(r, n) == MANIFEST_MAP)
		only(r, n, "enforcement", known);
	if (absent(r, backend))
		return;
	v = text_of(r, backend, "enforcement");
	r->m->local = view_eq(v, VIEW("local"));
	if (v.n > 0 && !r->m->local && !view_eq(v, VIEW("openshell")) &&
	    !view_eq(v, VIEW("linux")) && !view_eq(v, VIEW("kernel")))
		bad(r, backend,
		    "unknown enforcement \"%.*s\"; expected openshell, linux "
		    "or kernel, which are one here, or local",
		    VIEW_ARG(v));
}

/* What a workload's own options say: only a command has a place here. */
static void
read_workload(struct reader *r, int n)
{
	struct view key;
	size_t i;

	if (absent(r, n) || !is_map(r, n, "workload"))
		return;
	for (i = 0; i < manifest_yaml_count(r->m->yaml, n); i++) {
		int at = manifest_yaml_at(r->m->yaml, n, i, &key);

		bad(r, at,
		    "workload.%.*s cannot be expressed; expected it in a "
		    "configuration of one's own (sallyport -m prints what "
		    "there is without it)",
		    VIEW_ARG(key));
	}
}

static void
read_block(struct reader *r, int n)
{
	static const char *const known[] = { "enabled", "network", "egress",
		"workload", "processes", "enforcement", "openshell", "surfaces",
		"privileged_assets", NULL };

	if (absent(r, n) || !is_map(r, n, "openenvd"))
		return;
	only(r, n, "openenvd", known);
	r->m->enabled = bool_of(r, get(r, n, "enabled"), "enabled", false);
	if (get(r, n, "network") != 0 && get(r, n, "egress") != 0)
		bad(r, n, "openenvd has both network and egress; expected one");
	read_network(r, get(r, n, "network"));
	if (r->m->rules == NULL)
		read_egress(r, get(r, n, "egress"));
	read_surfaces(r, get(r, n, "surfaces"));
	read_assets(r, get(r, n, "privileged_assets"));
	read_processes(r, get(r, n, "processes"));
	read_enforcement(r, get(r, n, "enforcement"));
	read_workload(r, get(r, n, "workload"));
	r->m->dropped = !absent(r, get(r, n, "openshell"));
}

/* As a block may be named: letters, digits, "_", "-" and ".". */
static struct view
fit_name(struct reader *r, struct view v)
{
	char *p = take(r, MANIFEST_NAME_MAX, 1);
	size_t i, n = v.n < MANIFEST_NAME_MAX ? v.n : MANIFEST_NAME_MAX;

	if (p == NULL || n == 0)
		return VIEW("environment");
	for (i = 0; i < n; i++) {
		char c = v.p[i];
		bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') ||
		    (i > 0 && (c == '.' || c == '-')) || c == '_';

		p[i] = fine ? c : '_';
	}
	return view_of(p, n);
}

static void
read_top(struct reader *r)
{
	int root = manifest_yaml_root(r->m->yaml);
	int app = get(r, root, "app"), port = get(r, root, "port");
	struct view text;
	uint64_t n = 8000;

	r->m->name =
	    fit_name(r, manifest_yaml_text(r->m->yaml, get(r, root, "name")));
	if (!absent(r, app))
		r->m->app = text_of(r, app, "app");
	if (r->m->app.n > 0 && !conf_env_symbol(r->m->app))
		bad(r, app,
		    "bad app \"%.*s\"; expected MODULE:ATTR, such as "
		    "server.app:app",
		    VIEW_ARG(r->m->app));
	if (!absent(r, port) && port_is_good(r, port, &text) &&
	    num_u64(text, 1, 65535, &n) != SP_OK)
		n = 8000;
	r->m->port = (uint16_t)n;
	read_block(r, get(r, root, "openenvd"));
}

int
manifest_read(struct manifest *m, const char *path, struct buf *err)
{
	struct reader r = { .m = m, .err = err };
	int rc;

	memset(m, 0, sizeof(*m));
	m->arena = arena_new(MANIFEST_ARENA);
	if (m->arena == NULL)
		return SP_E_NOMEM;
	rc = manifest_yaml_read(path, &m->yaml, err);
	if (rc != SP_OK)
		return rc;
	read_top(&r);
	return r.rc;
}

void
manifest_clear(struct manifest *m)
{
	manifest_yaml_free(m->yaml);
	arena_free(m->arena);
	memset(m, 0, sizeof(*m));
}
