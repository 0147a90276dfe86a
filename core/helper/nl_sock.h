/* A netlink socket: one request, one answer. */
#ifndef SP_HELPER_NL_SOCK_H
#define SP_HELPER_NL_SOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct nlmsghdr;
struct mnl_socket;

enum {
	NL_SOCK_ASK_MAX = 2048, /* bytes of a request */
	NL_SOCK_WAIT_MS = 5000, /* for the kernel's answer */
};

struct nl_sock {
	struct mnl_socket *s; /* NULL: closed */
	uint32_t seq;
	int error; /* errno of the last failure, for messages only */
};

/*
 * Opens a socket, which belongs to the network namespace that the process is
 * in and stays there.
 * Source:  netlink(7).
 * Context: a short-lived child of the helper, or its start: requests block
 *          for as long as the kernel works, NL_SOCK_WAIT_MS at most.
 * Parameters: bus, NETLINK_ROUTE or NETLINK_NETFILTER.
 * Owner:   nl_sock_close(), also after a failure.
 * Returns: 0; SP_E_UNSUPPORTED the kernel has no such bus; SP_E_*.
 */
int nl_sock_open(struct nl_sock *n, int bus) must_check;
void nl_sock_close(struct nl_sock *n);
/* Notes errno, and what it means: SP_E_* (never 0). */
int nl_sock_fail(struct nl_sock *n, int en) must_check;
/* What went wrong, for messages: errno's text, or that of rc. */
const char *nl_sock_why(const struct nl_sock *n, int rc);

/*
 * Sends the request and waits for its acknowledgement.
 * Parameters: h, a message in the caller's memory; flags and sequence are
 *          filled in.
 * Returns: 0; what the kernel says: SP_E_EXISTS, SP_E_NOTFOUND, SP_E_DENIED,
 *          SP_E_UNSUPPORTED, ...
 */
int nl_sock_ask(struct nl_sock *n, struct nlmsghdr *h) must_check;

/*
 * Asks for one thing (get) or for a list and calls back with each message of
 * the answer.
 * Parameters: each, returns 0 to go on, or an SP_E_* that ends it.
 * Returns: 0; each()'s; SP_E_*.
 */
int nl_sock_get(struct nl_sock *n, struct nlmsghdr *h,
    int (*each)(const struct nlmsghdr *h, void *arg), void *arg) must_check;
int nl_sock_list(struct nl_sock *n, struct nlmsghdr *h,
    int (*each)(const struct nlmsghdr *h, void *arg), void *arg) must_check;

#endif
