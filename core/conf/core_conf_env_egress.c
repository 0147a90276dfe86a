/* egress { ... }: which addresses and hosts an episode may reach. */
#include <arpa/inet.h>

#include "base/num.h"
#include "conf/conf_env.h"
#include "conf/core_conf.h"

#define ENV(field) offsetof(struct conf_environment, field)

/* ADDRESS/BITS or ADDRESS, without bits of a host. */
static int
rule_net(struct conf_parse *p, struct view arg, struct conf_env_rule *r)
{
	size_t slash = view_find(arg, '/');
	struct view addr = view_sub(arg, 0, slash);
	char text[INET_ADDRSTRLEN];
	uint64_t bits = 32;
	struct in_addr in;
	uint32_t mask;

	if (view_find(arg, ':') < arg.n)
		return conf_error(p,
		    "network \"%.*s\" is IPv6, which never leaves a sandbox; "
		    "expected ADDRESS/BITS of IPv4",
		    VIEW_ARG(arg));
	if (addr.n == 0 || addr.n >= sizeof(text) ||
	    (slash < arg.n &&
		num_u64(view_from(arg, slash + 1), 0, 32, &bits) != 0))
		goto bad;
	memcpy(text, addr.p, addr.n);
	text[addr.n] = '\0';
	if (inet_pton(AF_INET, text, &in) != 1)
		goto bad;
	r->net = ntohl(in.s_addr);
	r->prefix = (uint8_t)bits;
	mask = bits == 0 ? 0 : UINT32_MAX << (32 - bits);
	if ((r->net & ~mask) != 0) {
		in.s_addr = htonl(r->net & mask);
		if (inet_ntop(AF_INET, &in, text, sizeof(text)) == NULL)
			goto bad;
		return conf_error(p,
		    "network \"%.*s\" has bits of a host; expected %s/%u",
		    VIEW_ARG(arg), text, r->prefix);
	}
	if (conf_env_protected(r->net, r->prefix))
		return conf_error(p,
		    "network \"%.*s\" lies in a protected range, which no "
		    "rule opens; expected public addresses",
		    VIEW_ARG(arg));
	return 0;
bad:
	return conf_error(p,
	    "bad network \"%.*s\" for \"allow\"; expected ADDRESS/BITS of "
	    "IPv4",
	    VIEW_ARG(arg));
}

/* Resolvers take "1", "0x7f.1" and the like for addresses. */
static bool
ends_in_number(struct view name)
{
	size_t i = name.n;

	while (i > 0 && name.p[i - 1] != '.')
		i--;
	return i == name.n || (name.p[i] >= '0' && name.p[i] <= '9');
}

static int
rule_host(struct conf_parse *p, struct view arg, struct conf_env_rule *r)
{
	struct view name = arg;
	char *mem;
	int family;
	size_t i;

	if (conf_url_is_ip(arg, &family))
		return conf_error(p,
		    "host \"%.*s\" is an address; expected a name, or "
		    "\"allow tcp %.*s ...\"",
		    VIEW_ARG(arg), VIEW_ARG(arg));
	if (view_starts(name, VIEW("*.")))
		name = view_from(name, 2);
	if (!conf_url_is_host(name) || ends_in_number(name) ||
	    view_find(name, ':') < name.n)
		return conf_error(p,
		    "bad host \"%.*s\" for \"allow\"; expected a name like "
		    "packages.example or *.example",
		    VIEW_ARG(arg));
	if (view_eq_nocase(name, VIEW("localhost")) ||
	    (name.n > 10 &&
		view_eq_nocase(view_from(name, name.n - 10),
		    VIEW(".localhost"))))
		return conf_error(p,
		    "host \"%.*s\" is loopback, which no rule opens; expected "
		    "a public name",
		    VIEW_ARG(arg));
	mem = conf_alloc(p, arg.n);
	if (mem == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < arg.n; i++)
		mem[i] = arg.p[i] >= 'A' && arg.p[i] <= 'Z'
		    ? (char)(arg.p[i] | 0x20)
		    : arg.p[i];
	r->is_host = true;
	r->host = view_of(mem, arg.n);
	return 0;
}

/* N, LOW-HIGH or "*" */
static int
rule_ports(struct conf_parse *p, struct view arg, struct conf_env_rule *r)
{
	size_t dash = view_find(arg, '-');
	struct view low = view_sub(arg, 0, dash);
	struct view high = dash < arg.n ? view_from(arg, dash + 1) : low;
	uint64_t a = 1, b = 65535;

	if (!view_eq(arg, VIEW("*")) &&
	    (num_u64(low, 1, 65535, &a) != 0 ||
		num_u64(high, a, 65535, &b) != 0))
		return conf_error(p,
		    "bad ports \"%.*s\" for \"allow\"; expected a port, "
		    "LOW-HIGH or *",
		    VIEW_ARG(arg));
	r->port_low = (uint16_t)a;
	r->port_high = (uint16_t)b;
	return 0;
}

static bool
same_rule(const struct conf_env_rule *a, const struct conf_env_rule *b)
{
	return a->proto == b->proto && a->is_host == b->is_host &&
	    view_eq(a->host, b->host) && a->net == b->net &&
	    a->prefix == b->prefix && a->port_low == b->port_low &&
	    a->port_high == b->port_high;
}

static int
add_rule(struct conf_parse *p, struct conf_environment *e,
    const struct conf_env_rule *r)
{
	struct conf_env_rule *grown;
	size_t i;

	for (i = 0; i < e->rules_n; i++) {
		if (same_rule(&e->rules[i], r))
			return conf_error(p,
			    "duplicate rule; expected each once, it stands at "
			    "%s:%u",
			    e->rules[i].pos.file, e->rules[i].pos.line);
	}
	if (e->rules_n == CONF_ENV_RULES_MAX)
		return conf_error(p,
		    "too many of \"allow\"; expected at most %d",
		    CONF_ENV_RULES_MAX);
	grown = conf_more(p, e->rules, e->rules_n, sizeof(*r), "allow");
	if (grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	e->rules = grown;
	e->rules[e->rules_n++] = *r;
	e->has_egress = true;
	return 0;
}

static int
parse_allow(struct conf_parse *p, const struct conf_directive *row, void *base,
    const struct view *args, size_t n)
{
	struct conf_environment *e = base;
	struct conf_env_rule r = { .pos = conf_node_pos(p->node),
		.proto = IPPROTO_TCP };
	bool host = view_eq(args[1], VIEW("host"));
	int rc;

	if (n > 4 && view_eq(args[4], VIEW("from")))
		return conf_error(p,
		    "rule ends in \"from\", and which program sends a packet "
		    "cannot be told for sure; expected the rule without it, "
		    "or an environment apart");
	if (n > 4)
		return conf_error(p,
		    "rule goes on with \"%.*s\"; expected \";\" after the "
		    "ports",
		    VIEW_ARG(args[4]));
	if (view_eq(args[1], VIEW("udp")))
		r.proto = IPPROTO_UDP;
	else if (!host && !view_eq(args[1], VIEW("tcp")))
		return conf_error(p,
		    "bad value \"%.*s\" for \"%s\"; expected tcp, udp or host",
		    VIEW_ARG(args[1]), row->name);
	rc = host ? rule_host(p, args[2], &r) : rule_net(p, args[2], &r);
	if (rc == 0)
		rc = rule_ports(p, args[3], &r);
	return rc == 0 ? add_rule(p, e, &r) : rc;
}

static int
dump_ports(const struct conf_env_rule *r, struct buf *out)
{
	if (r->port_low == 1 && r->port_high == 65535)
		return buf_add_str(out, " *;\n");
	if (r->port_low == r->port_high)
		return buf_printf(out, " %u;\n", r->port_low);
	return buf_printf(out, " %u-%u;\n", r->port_low, r->port_high);
}

static int
dump_allow(const struct conf_directive *row, const void *base,
    const char *indent, struct buf *out)
{
	const struct conf_environment *e = base;
	size_t i;
	int rc = 0;

	for (i = 0; i < e->rules_n && rc == 0; i++) {
		const struct conf_env_rule *r = &e->rules[i];

		if (r->is_host)
			rc = buf_printf(out, "%s%s host %.*s", indent,
			    row->name, VIEW_ARG(r->host));
		else
			rc = buf_printf(out, "%s%s %s %u.%u.%u.%u/%u", indent,
			    row->name, r->proto == IPPROTO_UDP ? "udp" : "tcp",
			    r->net >> 24, r->net >> 16 & 255, r->net >> 8 & 255,
			    r->net & 255, r->prefix);
		if (rc == 0)
			rc = dump_ports(r, out);
	}
	return rc;
}

static const char *const vias[] = { "auto", "veth", "relay", NULL };

const struct conf_directive core_conf_env_egress[] = {
	{ .name = "via",
	    .scopes = CONF_EGRESS,
	    .type = CONF_CHOICE,
	    .offset = ENV(via),
	    .choices = vias,
	    .def = "auto",
	    .args = "auto | veth | relay",
	    .doc =
		"How allowed connections leave: over a link of the host "
		"that nftables guards,\nor through sallyport itself, for "
		"tcp alone.\nWith auto it is veth where sallyport is root and "
		"the host forwards, else relay." },
	{ .name = "connections",
	    .scopes = CONF_EGRESS,
	    .type = CONF_NUMBER,
	    .offset = ENV(connections),
	    .min = 1,
	    .max = 65535,
	    .def = "256",
	    .args = "NUMBER",
	    .doc = "Most connections to the outside at once, of one "
		   "episode." },
	{ .name = "allow",
	    .scopes = CONF_EGRESS,
	    .type = CONF_CUSTOM,
	    .flags = CONF_REPEATS,
	    .args_min = 3,
	    .args_max = CONF_ARGS_MAX,
	    .parse = parse_allow,
	    .dump = dump_allow,
	    .args = "tcp NETWORK PORTS | udp NETWORK PORTS | host NAME PORTS",
	    .doc =
		"What may be reached: a network as ADDRESS/BITS, or a host "
		"by name, *.NAME for\nall below it; a port, LOW-HIGH, or * "
		"for all.\nLoopback, private, link-local, shared, multicast "
		"and reserved addresses, and\nthose of this host, are never "
		"reached; a rule that lies among them is an error.\nHosts are "
		"reached through the proxy at 127.0.0.1:3128, which "
		"HTTPS_PROXY "
		"names." },
	{ .name = NULL },
};

/* Whether whatever one of these reaches, a does as well. */
static bool
covers_host(struct view a, struct view b)
{
	return view_eq(a, b) ||
	    (view_starts(a, VIEW("*.")) && b.n > a.n - 1 &&
		view_ends(b, view_from(a, 1)));
}

static bool
covers(const struct conf_env_rule *a, const struct conf_env_rule *b)
{
	if (a->proto != b->proto || a->is_host != b->is_host ||
	    b->port_low < a->port_low || b->port_high > a->port_high)
		return false;
	if (a->is_host)
		return covers_host(a->host, b->host);
	return b->prefix >= a->prefix &&
	    (a->prefix == 0 || ((a->net ^ b->net) >> (32 - a->prefix)) == 0);
}

/* Rules only allow: one within another does nothing, wherever it stands. */
static int
warn_covered(struct conf_parse *p, const struct conf_environment *e, size_t n)
{
	const struct conf_env_rule *b = &e->rules[n], *a;
	size_t i;

	for (i = 0; i < e->rules_n; i++) {
		a = &e->rules[i];
		if (i != n && covers(a, b))
			return conf_warn(p, b->pos,
			    "rule of \"egress\" has no effect: the one at "
			    "%s:%u allows all of it; remove one of them",
			    a->pos.file, a->pos.line);
	}
	return 0;
}

int
core_conf_env_egress_read(struct conf_parse *p, struct conf_environment *e,
    const struct conf_node *node, const struct conf_node *nodes)
{
	struct conf_block b = { .scope = CONF_EGRESS,
		.what = "egress",
		.node = node,
		.parent = p->block };
	const struct conf_file *file = node->file;
	size_t i;
	int rc;

	rc = conf_block_add(p, &b, core_conf_env_egress, e);
	if (rc == 0)
		rc = conf_block_plain(p, &b, nodes);
	for (i = 0; i < e->rules_n && rc == 0; i++) {
		const struct conf_file at = { .name = e->rules[i].pos.file,
			.dir = file->dir };
		const struct conf_node rule = { .file = &at,
			.line = e->rules[i].pos.line,
			.seq = node->seq };

		if (e->via == CONF_ENV_VIA_RELAY &&
		    e->rules[i].proto == IPPROTO_UDP)
			rc = conf_error_at(p, &rule,
			    "rule for udp with \"via relay\", which carries "
			    "tcp alone; expected via veth");
		if (rc == 0)
			rc = warn_covered(p, e, i);
	}
	return rc;
}

int
core_conf_env_egress_block(struct conf_parse *p,
    const struct conf_directive *row, void *base, const struct view *args,
    size_t n)
{
	(void)row;
	(void)args;
	(void)n;
	return core_conf_env_egress_read(p, base, p->node, p->node->child);
}
