#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "helper/nft_allow.h"

enum {
	/* nft's own numbers of types, 6 bits each in a concatenation */
	NFT_ALLOW_TYPE_ADDRESS = 7,
	NFT_ALLOW_TYPE_PROTOCOL = 12,
	NFT_ALLOW_TYPE_PORT = 13,
	NFT_ALLOW_RANGES_MAX = 64, /* protected ones */
};

/* A key of the set: each part fills 4 bytes. */
struct nft_allow_key {
	uint32_t addr;
	uint8_t proto, pad[3];
	uint16_t port, pad2;
};

static const uint8_t nft_allow_fields[] = { 4, 1, 2 };
static const struct nft_batch_set nft_allow_set = { .name = NFT_ALLOW_SET,
	.id = NFT_ALLOW_SET_ID,
	.type = NFT_ALLOW_TYPE_ADDRESS << 12 | NFT_ALLOW_TYPE_PROTOCOL << 6 |
	    NFT_ALLOW_TYPE_PORT,
	.key_bytes = sizeof(struct nft_allow_key),
	.fields = nft_allow_fields,
	.fields_n = sizeof(nft_allow_fields) };
static const struct nft_batch_set nft_allow_protected = {
	.name = NFT_ALLOW_PROTECTED,
	.id = NFT_ALLOW_PROTECTED_ID,
	.type = NFT_ALLOW_TYPE_ADDRESS,
	.key_bytes = 4,
};

static int
nft_allow_add(struct nft_allow *a, const struct nft_allow_box *box)
{
	struct nft_allow_box *p;
	size_t room;

	if (a->n == NFT_ALLOW_MAX)
		return SP_E_LIMIT;
	if (a->n == a->room) {
		room = a->room == 0 ? 64 : 2 * a->room;
		p = mem_reallocarray(a->box, room, sizeof(*p));
		if (p == NULL)
			return SP_E_NOMEM;
		a->box = p;
		a->room = room;
	}
	a->box[a->n++] = *box;
	return SP_OK;
}

/* Wide networks first, then by address and port. */
static int
nft_allow_order(const void *x, const void *y)
{
	const struct nft_allow_box *a = x, *b = y;

	if (a->proto != b->proto)
		return a->proto < b->proto ? -1 : 1;
	if (a->prefix != b->prefix)
		return a->prefix < b->prefix ? -1 : 1;
	if (a->low != b->low)
		return a->low < b->low ? -1 : 1;
	if (a->port_low != b->port_low)
		return a->port_low < b->port_low ? -1 : 1;
	return (a->port_high > b->port_high) - (a->port_high < b->port_high);
}

static int
nft_allow_by_port(const void *x, const void *y)
{
	const struct nft_allow_box *a = x, *b = y;

	return (a->port_low > b->port_low) - (a->port_low < b->port_low);
}

/*
 * Adds what is left of a box when the ports are taken away that networks
 * around it have.  Networks nest or have nothing in common, and those around
 * were added before; so what is added has no packet in common with anything.
 */
static int
nft_allow_add_rest(struct nft_allow *a, const struct nft_allow_box *box,
    struct nft_allow_box *around)
{
	struct nft_allow_box piece = *box;
	uint32_t next = box->port_low;
	size_t i, n = 0;
	int rc;

	for (i = 0; i < a->n; i++)
		if (a->box[i].proto == box->proto &&
		    a->box[i].low <= box->low && a->box[i].high >= box->high)
			around[n++] = a->box[i];
	qsort(around, n, sizeof(*around), nft_allow_by_port);
	for (i = 0; i < n && next <= box->port_high; i++) {
		if (around[i].port_high < next)
			continue;
		if (around[i].port_low > box->port_high)
			break;
		if (around[i].port_low > next) {
			piece.port_low = (uint16_t)next;
			piece.port_high = (uint16_t)(around[i].port_low - 1);
			rc = nft_allow_add(a, &piece);
			if (rc != SP_OK)
				return rc;
		}
		next = (uint32_t)around[i].port_high + 1;
	}
	if (next > box->port_high)
		return SP_OK;
	piece.port_low = (uint16_t)next;
	piece.port_high = box->port_high;
	return nft_allow_add(a, &piece);
}

static uint32_t
nft_allow_last(uint32_t net, uint8_t prefix)
{
	return net |
	    (prefix == 0 ? UINT32_MAX
			 : (uint32_t)((1ULL << (32 - prefix)) - 1));
}

/* The rules as boxes, in order. */
static int
nft_allow_collect(struct nft_allow *a, const struct conf_environment *env,
    bool hosts)
{
	const struct conf_env_rule *r;
	struct nft_allow_box box;
	size_t i;
	int rc;

	for (i = 0; i < env->rules_n; i++) {
		r = &env->rules[i];
		if (r->is_host && !hosts)
			continue;
		memset(&box, 0, sizeof(box));
		box.proto = r->is_host ? IPPROTO_TCP : r->proto;
		box.prefix = r->is_host ? 0 : r->prefix;
		box.low = r->is_host ? 0 : r->net;
		box.high = nft_allow_last(box.low, box.prefix);
		box.port_low = r->port_low;
		box.port_high = r->port_high;
		rc = nft_allow_add(a, &box);
		if (rc != SP_OK)
			return rc;
	}
	if (a->n > 1)
		qsort(a->box, a->n, sizeof(*a->box), nft_allow_order);
	return SP_OK;
}

int
nft_allow_make(struct nft_allow *a, const struct conf_environment *env,
    bool hosts)
{
	struct nft_allow rules = { NULL, 0, 0 };
	struct nft_allow_box *around = NULL;
	size_t i;
	int rc;

	memset(a, 0, sizeof(*a));
	rc = nft_allow_collect(&rules, env, hosts);
	if (rc == SP_OK && rules.n > 0) {
		around = mem_reallocarray(NULL, NFT_ALLOW_MAX, sizeof(*around));
		if (around == NULL)
			rc = SP_E_NOMEM;
	}
	for (i = 0; i < rules.n && rc == SP_OK; i++)
		rc = nft_allow_add_rest(a, &rules.box[i], around);
	mem_free(around);
	nft_allow_clear(&rules);
	return rc;
}

void
nft_allow_clear(struct nft_allow *a)
{
	mem_free(a->box);
	memset(a, 0, sizeof(*a));
}

static bool
nft_allow_at(const void *arg, size_t i, void *low, void *high)
{
	const struct nft_allow_box *box =
	    &((const struct nft_allow *)arg)->box[i];
	struct nft_allow_key from = { .addr = htonl(box->low),
		.proto = box->proto,
		.port = htons(box->port_low) };
	struct nft_allow_key to = { .addr = htonl(box->high),
		.proto = box->proto,
		.port = htons(box->port_high) };

	memcpy(low, &from, sizeof(from));
	memcpy(high, &to, sizeof(to));
	return false;
}

/* Points at which the inside of protected ranges begins and ends. */
struct nft_allow_edges {
	struct {
		uint32_t addr;
		bool end;
	} edge[2 * NFT_ALLOW_RANGES_MAX];
	size_t n;
};

static bool
nft_allow_edge_at(const void *arg, size_t i, void *low, void *high)
{
	const struct nft_allow_edges *e = arg;
	uint32_t wire = htonl(e->edge[i].addr);

	(void)high;
	memcpy(low, &wire, sizeof(wire));
	return e->edge[i].end;
}

static int
nft_allow_range_order(const void *x, const void *y)
{
	const struct conf_env_range *a = x, *b = y;

	return (a->net > b->net) - (a->net < b->net);
}

/* Ranges that overlap or touch become one: the kernel takes no others. */
static void
nft_allow_edges(struct nft_allow_edges *e)
{
	struct conf_env_range r[NFT_ALLOW_RANGES_MAX];
	const struct conf_env_range *all;
	uint64_t past = 0, end;
	size_t i, n;

	all = conf_env_ranges(&n);
	err_assert(n <= NFT_ALLOW_RANGES_MAX);
	memcpy(r, all, n * sizeof(*r));
	qsort(r, n, sizeof(*r), nft_allow_range_order);
	e->n = 0;
	for (i = 0; i < n; i++) {
		end = (uint64_t)nft_allow_last(r[i].net, r[i].prefix) + 1;
		if (e->n > 0 && r[i].net <= past) {
			if (end > past)
				past = end;
			continue;
		}
		if (e->n > 0) {
			e->edge[e->n].addr = (uint32_t)past;
			e->edge[e->n++].end = true;
		}
		e->edge[e->n].addr = r[i].net;
		e->edge[e->n++].end = false;
		past = end;
	}
	/* one that runs to the last address has no end */
	if (e->n > 0 && past <= UINT32_MAX) {
		e->edge[e->n].addr = (uint32_t)past;
		e->edge[e->n++].end = true;
	}
}

void
nft_allow_put(const struct nft_allow *a, struct nft_batch *b)
{
	struct nft_allow_edges e;

	nft_allow_edges(&e);
	nft_batch_set(b, &nft_allow_protected);
	nft_batch_elements(b, &nft_allow_protected, e.n, nft_allow_edge_at, &e);
	if (a->n == 0)
		return;
	nft_batch_set(b, &nft_allow_set);
	nft_batch_elements(b, &nft_allow_set, a->n, nft_allow_at, a);
}
