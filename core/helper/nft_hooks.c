#include "config.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>

#include "helper/nft_hooks.h"

static const char *
nft_hooks_family(uint32_t family)
{
	return family == NFPROTO_IPV4 ? "ip"
	    : family == NFPROTO_INET  ? "inet"
				      : NULL;
}

static int
nft_hooks_on_chain(const struct nlmsghdr *h, void *arg)
{
	struct nftnl_chain *c = nftnl_chain_alloc();
	struct buf *out = arg;
	const char *family;
	int rc = SP_OK;

	if (c == NULL)
		return SP_E_NOMEM;
	if (nftnl_chain_nlmsg_parse(h, c) == 0 &&
	    nftnl_chain_is_set(c, NFTNL_CHAIN_HOOKNUM) &&
	    nftnl_chain_get_u32(c, NFTNL_CHAIN_HOOKNUM) == NF_INET_FORWARD &&
	    nftnl_chain_get_u32(c, NFTNL_CHAIN_POLICY) == NF_DROP) {
		family = nft_hooks_family(
		    nftnl_chain_get_u32(c, NFTNL_CHAIN_FAMILY));
		if (family != NULL)
			rc = buf_printf(out, "%s%s %s %s",
			    buf_len(out) > 0 ? ", " : "", family,
			    nftnl_chain_get_str(c, NFTNL_CHAIN_TABLE),
			    nftnl_chain_get_str(c, NFTNL_CHAIN_NAME));
	}
	nftnl_chain_free(c);
	return rc;
}

int
nft_hooks_forward(struct nl_sock *n, struct buf *out)
{
	_Alignas(struct nlmsghdr) char mem[NL_SOCK_ASK_MAX];

	return nl_sock_list(n,
	    nftnl_nlmsg_build_hdr(mem, NFT_MSG_GETCHAIN, NFPROTO_UNSPEC, 0, 0),
	    nft_hooks_on_chain, out);
}
