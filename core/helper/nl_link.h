/* Links, addresses and routes: rtnetlink. */
#ifndef SP_HELPER_NL_LINK_H
#define SP_HELPER_NL_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "helper/nl_sock.h"

/*
 * Source:  rtnetlink(7), veth(4).
 * Context: see nl_sock_open(); all act in the namespace of the socket,
 *          whichever the process is in.
 * Parameters: names of at most IFNAMSIZ - 1 bytes; addresses in host byte
 *          order; index, of a link (nl_link_index()).
 * Returns: 0; SP_E_NOTFOUND no such link; SP_E_EXISTS it is there already;
 *          SP_E_DENIED; SP_E_UNSUPPORTED; SP_E_*; errno in n->error.
 */
/*
 * A pair, both ends down: one end here, the other, named peer, in the
 * namespace ns_fd.
 */
int nl_link_veth(struct nl_sock *n, const char *name, const char *peer,
    int ns_fd) must_check;
int nl_link_index(struct nl_sock *n, const char *name,
    uint32_t *index) must_check;
int nl_link_up(struct nl_sock *n, uint32_t index) must_check;
/* Removes it, and with it the other end of a pair. */
int nl_link_delete(struct nl_sock *n, const char *name) must_check;
int nl_link_address(struct nl_sock *n, uint32_t index, uint32_t addr,
    uint8_t prefix) must_check;
/*
 * The default route.
 * Parameters: gateway, 0 for none; source, what packets come from, 0 for the
 *          kernel's choice.
 */
int nl_link_default(struct nl_sock *n, uint32_t index, uint32_t gateway,
    uint32_t source) must_check;
/* A route to a network through a gateway. */
int nl_link_route(struct nl_sock *n, uint32_t net, uint8_t prefix,
    uint32_t gateway) must_check;
/*
 * Calls back with the name of each link that begins with prefix.
 * Parameters: each, returns 0 to go on or an SP_E_* that ends it.
 */
int nl_link_list(struct nl_sock *n, const char *prefix,
    int (*each)(const char *name, void *arg), void *arg) must_check;

#endif
