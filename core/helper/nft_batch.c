#include "config.h"

#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <libmnl/libmnl.h>
#include <libnftnl/batch.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/object.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>

#include "helper/nft_batch.h"

enum {
	NFT_BATCH_PAGE = 32 * 1024,
	NFT_BATCH_SPARE = 32 * 1024, /* the largest message fits in */
	NFT_BATCH_PAGES_MAX = 256,
	NFT_BATCH_ACKS_MAX = 100000,
	NFT_BATCH_RECV_BYTES = 1024 * 1024,
	NFT_BATCH_KEY_MAX = 64,
};

static void
nft_batch_fail(struct nft_batch *b, int rc)
{
	if (b->rc == SP_OK)
		b->rc = rc;
}

/*
 * libmnl leaves what is between attributes as it was: room for the next message
 * is cleared, each byte of a page once.
 */
static void
nft_batch_clean(struct nft_batch *b)
{
	char *from = nftnl_batch_buffer(b->b);
	uintptr_t at = (uintptr_t)from, end = at + NFT_BATCH_SPARE;
	size_t clean = b->clean > at && b->clean <= end ? b->clean - at : 0;

	memset(from + clean, 0, NFT_BATCH_SPARE - clean);
	b->clean = end;
}

/* A message of that type to be filled, or NULL after an error. */
static struct nlmsghdr *
nft_batch_message(struct nft_batch *b, uint16_t type, uint16_t flags,
    const char *label)
{
	uint32_t i = b->seq - b->first;

	if (b->rc != SP_OK)
		return NULL;
	if (i < NFT_BATCH_LABELS)
		b->labels[i] = label;
	nft_batch_clean(b);
	return nftnl_nlmsg_build_hdr(nftnl_batch_buffer(b->b), type,
	    NFPROTO_INET, flags | NLM_F_ACK, b->seq++);
}

static void
nft_batch_put(struct nft_batch *b)
{
	if (nftnl_batch_update(b->b) < 0)
		nft_batch_fail(b, SP_E_NOMEM);
}

void
nft_batch_open(struct nft_batch *b, const char *table)
{
	memset(b, 0, sizeof(*b));
	b->table = table;
	b->seq = 1;
	b->b = nftnl_batch_alloc(NFT_BATCH_PAGE, NFT_BATCH_SPARE);
	if (b->b == NULL) {
		b->rc = SP_E_NOMEM;
		return;
	}
	(void)nftnl_batch_begin(nftnl_batch_buffer(b->b), b->seq++);
	nft_batch_put(b);
	b->first = b->seq;
}

void
nft_batch_close(struct nft_batch *b)
{
	if (b->rule != NULL)
		nftnl_rule_free(b->rule);
	if (b->b != NULL)
		nftnl_batch_free(b->b);
	b->rule = NULL;
	b->b = NULL;
}

static void
nft_batch_put_table(struct nft_batch *b, uint16_t type, uint16_t how,
    uint32_t flags)
{
	struct nlmsghdr *h = nft_batch_message(b, type, how, "table");
	struct nftnl_table *t;

	if (h == NULL)
		return;
	t = nftnl_table_alloc();
	if (t == NULL || nftnl_table_set_str(t, NFTNL_TABLE_NAME, b->table)) {
		nft_batch_fail(b, SP_E_NOMEM);
	} else {
		if (flags != 0)
			nftnl_table_set_u32(t, NFTNL_TABLE_FLAGS, flags);
		nftnl_table_nlmsg_build_payload(h, t);
		nft_batch_put(b);
	}
	if (t != NULL)
		nftnl_table_free(t);
}

void
nft_batch_table(struct nft_batch *b, uint32_t flags)
{
	nft_batch_put_table(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL,
	    flags);
}

void
nft_batch_drop(struct nft_batch *b)
{
	nft_batch_put_table(b, NFT_MSG_DELTABLE, 0, 0);
}

void
nft_batch_chain(struct nft_batch *b, const struct nft_batch_chain *c)
{
	struct nlmsghdr *h = nft_batch_message(b, NFT_MSG_NEWCHAIN,
	    NLM_F_CREATE | NLM_F_EXCL, c->name);
	struct nftnl_chain *t;
	int bad;

	if (h == NULL)
		return;
	t = nftnl_chain_alloc();
	bad = t == NULL ||
	    nftnl_chain_set_str(t, NFTNL_CHAIN_TABLE, b->table) ||
	    nftnl_chain_set_str(t, NFTNL_CHAIN_NAME, c->name);
	if (!bad && c->type != NULL) {
		bad = nftnl_chain_set_str(t, NFTNL_CHAIN_TYPE, c->type);
		nftnl_chain_set_u32(t, NFTNL_CHAIN_HOOKNUM, c->hook);
		nftnl_chain_set_s32(t, NFTNL_CHAIN_PRIO, c->priority);
		nftnl_chain_set_u32(t, NFTNL_CHAIN_POLICY, c->policy);
		if (!bad && c->device != NULL)
			bad =
			    nftnl_chain_set_str(t, NFTNL_CHAIN_DEV, c->device);
	}
	if (bad) {
		nft_batch_fail(b, SP_E_NOMEM);
	} else {
		nftnl_chain_nlmsg_build_payload(h, t);
		nft_batch_put(b);
	}
	if (t != NULL)
		nftnl_chain_free(t);
}

void
nft_batch_counter(struct nft_batch *b, const char *name)
{
	struct nlmsghdr *h = nft_batch_message(b, NFT_MSG_NEWOBJ,
	    NLM_F_CREATE | NLM_F_EXCL, name);
	struct nftnl_obj *o;

	if (h == NULL)
		return;
	o = nftnl_obj_alloc();
	if (o == NULL) {
		nft_batch_fail(b, SP_E_NOMEM);
		return;
	}
	nftnl_obj_set_u32(o, NFTNL_OBJ_FAMILY, NFPROTO_INET);
	nftnl_obj_set_u32(o, NFTNL_OBJ_TYPE, NFT_OBJECT_COUNTER);
	nftnl_obj_set_str(o, NFTNL_OBJ_TABLE, b->table);
	nftnl_obj_set_str(o, NFTNL_OBJ_NAME, name);
	nftnl_obj_set_u64(o, NFTNL_OBJ_CTR_PKTS, 0);
	nftnl_obj_set_u64(o, NFTNL_OBJ_CTR_BYTES, 0);
	nftnl_obj_nlmsg_build_payload(h, o);
	nftnl_obj_free(o);
	nft_batch_put(b);
}

static struct nftnl_set *
nft_batch_new_set(struct nft_batch *b, const struct nft_batch_set *s)
{
	uint32_t flags = NFT_SET_INTERVAL | NFT_SET_CONSTANT;
	struct nftnl_set *t = nftnl_set_alloc();
	int bad = t == NULL;

	if (!bad)
		bad = nftnl_set_set_str(t, NFTNL_SET_TABLE, b->table) ||
		    nftnl_set_set_str(t, NFTNL_SET_NAME, s->name);
	if (!bad) {
		nftnl_set_set_u32(t, NFTNL_SET_FAMILY, NFPROTO_INET);
		nftnl_set_set_u32(t, NFTNL_SET_ID, s->id);
		nftnl_set_set_u32(t, NFTNL_SET_KEY_TYPE, s->type);
		nftnl_set_set_u32(t, NFTNL_SET_KEY_LEN, s->key_bytes);
		if (s->fields_n > 0) {
			flags |= NFT_SET_CONCAT;
			bad = nftnl_set_set_data(t, NFTNL_SET_DESC_CONCAT,
			    s->fields, s->fields_n);
		}
		nftnl_set_set_u32(t, NFTNL_SET_FLAGS, flags);
	}
	if (!bad)
		return t;
	if (t != NULL)
		nftnl_set_free(t);
	nft_batch_fail(b, SP_E_NOMEM);
	return NULL;
}

void
nft_batch_set(struct nft_batch *b, const struct nft_batch_set *s)
{
	struct nlmsghdr *h = nft_batch_message(b, NFT_MSG_NEWSET,
	    NLM_F_CREATE | NLM_F_EXCL, s->name);
	struct nftnl_set *t;

	if (h == NULL)
		return;
	t = nft_batch_new_set(b, s);
	if (t == NULL)
		return;
	nftnl_set_nlmsg_build_payload(h, t);
	nftnl_set_free(t);
	nft_batch_put(b);
}

static int
nft_batch_element(struct nftnl_set *t, const struct nft_batch_set *s,
    const void *low, const void *high, bool end)
{
	struct nftnl_set_elem *e = nftnl_set_elem_alloc();

	if (e == NULL)
		return SP_E_NOMEM;
	if (nftnl_set_elem_set(e, NFTNL_SET_ELEM_KEY, low, s->key_bytes) != 0 ||
	    (s->fields_n > 0 &&
		nftnl_set_elem_set(e, NFTNL_SET_ELEM_KEY_END, high,
		    s->key_bytes) != 0)) {
		nftnl_set_elem_free(e);
		return SP_E_NOMEM;
	}
	if (end)
		nftnl_set_elem_set_u32(e, NFTNL_SET_ELEM_FLAGS,
		    NFT_SET_ELEM_INTERVAL_END);
	nftnl_set_elem_add(t, e);
	return SP_OK;
}

void
nft_batch_elements(struct nft_batch *b, const struct nft_batch_set *s, size_t n,
    bool (*at)(const void *arg, size_t i, void *low, void *high),
    const void *arg)
{
	char low[NFT_BATCH_KEY_MAX], high[NFT_BATCH_KEY_MAX];
	struct nlmsghdr *h;
	struct nftnl_set *t;
	size_t i = 0, to;
	bool end;

	err_assert(s->key_bytes <= NFT_BATCH_KEY_MAX);
	while (i < n) {
		h = nft_batch_message(b, NFT_MSG_NEWSETELEM, NLM_F_CREATE,
		    s->name);
		t = h != NULL ? nft_batch_new_set(b, s) : NULL;
		if (t == NULL)
			return;
		/* an attribute's length has 16 bits: not all in one */
		to = n - i > NFT_BATCH_ELEMENTS ? i + NFT_BATCH_ELEMENTS : n;
		for (; i < to; i++) {
			memset(low, 0, sizeof(low));
			memset(high, 0, sizeof(high));
			end = at(arg, i, low, high);
			if (nft_batch_element(t, s, low, high, end) != SP_OK)
				nft_batch_fail(b, SP_E_NOMEM);
		}
		nftnl_set_elems_nlmsg_build_payload(h, t);
		nftnl_set_free(t);
		nft_batch_put(b);
	}
}

void
nft_batch_rule(struct nft_batch *b, const char *chain)
{
	err_assert(b->rule == NULL);
	if (b->rc != SP_OK)
		return;
	b->rule = nftnl_rule_alloc();
	if (b->rule == NULL) {
		nft_batch_fail(b, SP_E_NOMEM);
		return;
	}
	nftnl_rule_set_u32(b->rule, NFTNL_RULE_FAMILY, NFPROTO_INET);
	if (nftnl_rule_set_str(b->rule, NFTNL_RULE_TABLE, b->table) != 0 ||
	    nftnl_rule_set_str(b->rule, NFTNL_RULE_CHAIN, chain) != 0)
		nft_batch_fail(b, SP_E_NOMEM);
}

void
nft_batch_end(struct nft_batch *b)
{
	struct nlmsghdr *h = b->rule == NULL
	    ? NULL
	    : nft_batch_message(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND,
		  "a rule; the kernel may lack an expression");

	if (h != NULL) {
		nftnl_rule_nlmsg_build_payload(h, b->rule);
		nft_batch_put(b);
	}
	if (b->rule != NULL)
		nftnl_rule_free(b->rule);
	b->rule = NULL;
}

/* The error that this message tells of: 0 none, 1 go on reading. */
static int
nft_batch_on_ack(struct nft_batch *b, const struct nlmsghdr *h, uint32_t last)
{
	const struct nlmsgerr *e;
	uint32_t i;

	if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_seq < b->first - 1 ||
	    mnl_nlmsg_get_payload_len(h) < sizeof(*e))
		return 1;
	e = mnl_nlmsg_get_payload(h);
	if (e->error == 0)
		return h->nlmsg_seq == last ? 0 : 1;
	i = h->nlmsg_seq - b->first; /* the batch's own: no label */
	b->failed = i < NFT_BATCH_LABELS ? b->labels[i] : NULL;
	return e->error < 0 ? e->error : -EPROTO;
}

/*
 * What a refused transaction still has to say: numbers of messages begin
 * again with the next one, which would take it for an answer to its own.  All
 * of it is there when sendmsg returns.
 */
static void
nft_batch_drain(struct nl_sock *n)
{
	char mem[8192];
	int i;

	for (i = 0; i < NFT_BATCH_ACKS_MAX; i++)
		if (recv(mnl_socket_get_fd(n->s), mem, sizeof(mem),
			MSG_DONTWAIT) < 0 &&
		    errno != EINTR)
			break;
}

/* Acknowledgements come in order; when a commit fails, of its first. */
static int
nft_batch_answer(struct nft_batch *b, struct nl_sock *n, uint32_t last)
{
	_Alignas(struct nlmsghdr) char mem[8192];
	const struct nlmsghdr *h;
	ssize_t got;
	int i, left, en;

	for (i = 0; i < NFT_BATCH_ACKS_MAX; i++) {
		got = mnl_socket_recvfrom(n->s, mem, sizeof(mem));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return nl_sock_fail(n, errno);
		left = (int)got;
		for (h = (const struct nlmsghdr *)mem; mnl_nlmsg_ok(h, left);
		     h = mnl_nlmsg_next(h, &left)) {
			en = nft_batch_on_ack(b, h, last);
			if (en == 0)
				return SP_OK;
			if (en < 0)
				return nl_sock_fail(n, -en);
		}
	}
	return nl_sock_fail(n, EOVERFLOW);
}

int
nft_batch_send(struct nft_batch *b, struct nl_sock *n)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct iovec iov[NFT_BATCH_PAGES_MAX];
	struct msghdr m = { .msg_name = &kernel,
		.msg_namelen = sizeof(kernel),
		.msg_iov = iov };
	int size = NFT_BATCH_RECV_BYTES, fd = mnl_socket_get_fd(n->s);
	int pages, rc;
	uint32_t last = b->seq - 1;

	if (b->rc != SP_OK)
		return b->rc;
	(void)nftnl_batch_end(nftnl_batch_buffer(b->b), b->seq++);
	nft_batch_put(b);
	pages = nftnl_batch_iovec_len(b->b);
	if (b->rc != SP_OK || pages > NFT_BATCH_PAGES_MAX)
		return b->rc != SP_OK ? b->rc : SP_E_LIMIT;
	nftnl_batch_iovec(b->b, iov, (uint32_t)pages);
	m.msg_iovlen = (size_t)pages;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	if (sendmsg(fd, &m, 0) < 0)
		return nl_sock_fail(n, errno);
	rc = nft_batch_answer(b, n, last);
	if (rc != SP_OK)
		nft_batch_drain(n);
	return rc;
}

int
nft_batch_find(struct nl_sock *n, const char *table)
{
	_Alignas(struct nlmsghdr) char mem[NL_SOCK_ASK_MAX] = { 0 };
	struct nftnl_table *t = nftnl_table_alloc();
	struct nlmsghdr *h;
	int rc = SP_E_NOMEM;

	if (t != NULL && nftnl_table_set_str(t, NFTNL_TABLE_NAME, table) == 0) {
		h = nftnl_nlmsg_build_hdr(mem, NFT_MSG_GETTABLE, NFPROTO_INET,
		    NLM_F_ACK, 0);
		nftnl_table_nlmsg_build_payload(h, t);
		rc = nl_sock_ask(n, h);
	}
	if (t != NULL)
		nftnl_table_free(t);
	return rc;
}

int
nft_batch_bytes(struct nft_batch *b, struct buf *out)
{
	struct iovec iov[NFT_BATCH_PAGES_MAX];
	int i, pages, rc = b->rc;

	if (rc != SP_OK)
		return rc;
	pages = nftnl_batch_iovec_len(b->b);
	if (pages > NFT_BATCH_PAGES_MAX)
		return SP_E_LIMIT;
	nftnl_batch_iovec(b->b, iov, (uint32_t)pages);
	for (i = 0; i < pages && rc == SP_OK; i++)
		rc = buf_add(out, iov[i].iov_base, iov[i].iov_len);
	return rc;
}
