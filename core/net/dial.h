/* Connects to the first of several addresses that answers. */
#ifndef SP_NET_DIAL_H
#define SP_NET_DIAL_H

#include "base/err.h"
#include "base/view.h"
#include "event/loop.h"
#include "event/resolver.h"

struct dial;

enum { DIAL_STAGGER_MS = 250 }; /* RFC 8305 s5 */

struct dial_params {
	const struct resolver_addr *addrs; /* in order of preference; copied */
	size_t n; /* 1 to RESOLVER_ADDRS_MAX */
	uint64_t timeout_ms; /* for each address */
	/* the next one is tried beside a slow one; 0: only after it */
	uint64_t stagger_ms;
};

/*
 * Source:  RFC 8305 s5.
 * Context: reactor, does not block.
 * Parameters: cb runs once, from the loop, unless cancelled: err 0 with a
 *          connected, non-blocking fd (taken by the callee) and the address
 *          it is for (borrowed); or the error of the last address: SP_E_REFUSED,
 *          SP_E_TIMEOUT, SP_E_NOTFOUND (no such unix socket), SP_E_DENIED,
 *          SP_E_GONE, SP_E_NOMEM, SP_E_SYS, with fd -1.
 * Owner:   the dial is gone once cb runs.
 * Returns: 0; SP_E_ARG; SP_E_NOMEM.
 */
int dial_start(struct loop *l, const struct dial_params *params,
    void (*cb)(void *arg, int err, int fd, const struct resolver_addr *addr),
    void *arg, struct dial **out) must_check;
void dial_cancel(struct dial *d); /* NULL allowed */
/* The address of a unix socket; SP_E_LIMIT when the path is too long. */
int dial_unix(struct view path, struct resolver_addr *out) must_check;

#endif
