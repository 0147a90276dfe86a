/* One transaction of nf_tables: a table with all that is in it. */
#ifndef SP_HELPER_NFT_BATCH_H
#define SP_HELPER_NFT_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "helper/nl_sock.h"

struct nftnl_batch;
struct nftnl_rule;
struct nftnl_set;

enum {
	NFT_BATCH_LABELS = 64, /* messages that an error can name */
	NFT_BATCH_ELEMENTS = 256, /* of a set, in one message */
};

/*
 * Whatever fails while it is put together is kept in rc, and nothing is sent
 * then; so only nft_batch_send() needs a look.
 */
struct nft_batch {
	struct nftnl_batch *b;
	struct nftnl_rule *rule; /* being written */
	const char *table; /* borrowed, like all names here */
	uint32_t seq, first;
	int rc;
	uintptr_t clean; /* bytes before it in its page are */
	const char *labels[NFT_BATCH_LABELS]; /* by message, from first */
	const char *failed; /* label of the message that was refused */
};

/*
 * Source:  linux/netfilter/nf_tables.h; family inet.
 * Context: a short-lived child of the helper; only nft_batch_send() blocks.
 * Owner:   nft_batch_close(), always.
 */
void nft_batch_open(struct nft_batch *b, const char *table);
void nft_batch_close(struct nft_batch *b);

/* A new table; flags, NFT_TABLE_F_* or 0.  One that is there: SP_E_EXISTS. */
void nft_batch_table(struct nft_batch *b, uint32_t flags);
/* Deletes the table with all that is in it. */
void nft_batch_drop(struct nft_batch *b);

struct nft_batch_chain {
	const char *name;
	const char *type; /* "filter", "nat"; NULL: only jumped to */
	uint32_t hook; /* NF_INET_* */
	int32_t priority;
	uint32_t policy; /* NF_ACCEPT, NF_DROP */
	const char *device; /* NULL none */
};
void nft_batch_chain(struct nft_batch *b, const struct nft_batch_chain *c);
/* A named counter. */
void nft_batch_counter(struct nft_batch *b, const char *name);

/*
 * A constant set of intervals.
 * Parameters: type, of nft's own numbering; key_bytes; fields, bytes of each
 *          part of a concatenation, fields_n 0 for none.
 */
struct nft_batch_set {
	const char *name;
	uint32_t id; /* in this transaction */
	uint32_t type;
	uint32_t key_bytes;
	const uint8_t *fields;
	uint32_t fields_n;
};
void nft_batch_set(struct nft_batch *b, const struct nft_batch_set *s);
/*
 * Its elements: at() fills in the element i, for i below n.
 * Parameters: low, high, key_bytes of s each; a concatenation has both ends.
 *          Without fields at() returns true when `low` is the first address
 *          past an interval, and high is not used.
 */
void nft_batch_elements(struct nft_batch *b, const struct nft_batch_set *s,
    size_t n, bool (*at)(const void *arg, size_t i, void *low, void *high),
    const void *arg);

/* Begins a rule; nft_expr_*() add to it; nft_batch_end() puts it in. */
void nft_batch_rule(struct nft_batch *b, const char *chain);
void nft_batch_end(struct nft_batch *b);

/*
 * Commits all of it, or nothing.
 * Returns: 0; what stopped it while it was written; what the kernel says,
 *          with b->failed: SP_E_EXISTS, SP_E_NOTFOUND (also for an expression
 *          that this kernel lacks), SP_E_UNSUPPORTED, SP_E_DENIED (a table
 *          that another socket owns), ...
 */
int nft_batch_send(struct nft_batch *b, struct nl_sock *n) must_check;
/*
 * Whether the table is there: 0; SP_E_NOTFOUND; SP_E_*.  Cheap, where a
 * transaction that fails waits for all processors.
 */
int nft_batch_find(struct nl_sock *n, const char *table) must_check;
/* What nft_batch_send() would send, without the end; for tests. */
int nft_batch_bytes(struct nft_batch *b, struct buf *out) must_check;

#endif
