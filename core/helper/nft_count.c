#include "config.h"

#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <libmnl/libmnl.h>
#include <libnftnl/common.h>
#include <libnftnl/object.h>

#include "helper/nft_count.h"

static int
nft_count_on_object(const struct nlmsghdr *h, void *arg)
{
	struct nftnl_obj *o = nftnl_obj_alloc();
	uint64_t *packets = arg;

	if (o == NULL)
		return SP_E_NOMEM;
	if (nftnl_obj_nlmsg_parse(h, o) == 0 &&
	    nftnl_obj_is_set(o, NFTNL_OBJ_CTR_PKTS))
		*packets = nftnl_obj_get_u64(o, NFTNL_OBJ_CTR_PKTS);
	nftnl_obj_free(o);
	return SP_OK;
}

int
nft_count_read(struct nl_sock *n, const char *table, const char *name,
    uint64_t *packets)
{
	_Alignas(struct nlmsghdr) char mem[NL_SOCK_ASK_MAX];
	struct nftnl_obj *o = nftnl_obj_alloc();
	struct nlmsghdr *h;

	*packets = 0;
	if (o == NULL)
		return nl_sock_fail(n, ENOMEM);
	nftnl_obj_set_u32(o, NFTNL_OBJ_TYPE, NFT_OBJECT_COUNTER);
	nftnl_obj_set_str(o, NFTNL_OBJ_TABLE, table);
	nftnl_obj_set_str(o, NFTNL_OBJ_NAME, name);
	h = nftnl_nlmsg_build_hdr(mem, NFT_MSG_GETOBJ, NFPROTO_INET, NLM_F_ACK,
	    0);
	nftnl_obj_nlmsg_build_payload(h, o);
	nftnl_obj_free(o);
	return nl_sock_get(n, h, nft_count_on_object, packets);
}
