/* Asynchronous names (libevent's evdns); literals need no query. */
#ifndef SP_EVENT_RESOLVER_H
#define SP_EVENT_RESOLVER_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/view.h"
#include "event/loop.h"

struct resolver;
struct resolver_query;

enum { RESOLVER_ADDRS_MAX = 16 };

struct resolver_addr {
	socklen_t len;
	struct sockaddr_storage sa; /* port set */
};

/*
 * Reads /etc/resolv.conf and /etc/hosts once, here: call it before the walls
 * close (confine).  servers: addresses ("192.0.2.1:53"), or none for the
 * system's.  NULL: no memory, or an address that is none.
 */
struct resolver *resolver_new(struct loop *l, const struct view *servers,
    size_t n) must_check;
/* Drops what is open without a word.  Not from a callback; NULL allowed. */
void resolver_free(struct resolver *r);
/* How long a lookup may take altogether; 10 s at first. */
void resolver_set_timeout(struct resolver *r, uint64_t ms);
/*
 * Looks a name up, IPv4 and IPv6 (addresses interleaved, IPv4 first);
 * what was found is kept for its time to live, 60 s at most.  The callback
 * runs once, always from the loop (never from within this call), unless
 * cancelled: err 0 with n >= 1 addresses, SP_E_DNS, SP_E_TIMEOUT or
 * SP_E_NOMEM.  The query is gone by then.
 * Returns: 0; SP_E_SYNTAX host is neither an address nor a name; SP_E_LIMIT
 *          1,024 names are on their way; SP_E_NOMEM.
 */
int resolver_start(struct resolver *r, struct view host, uint16_t port,
    void (*cb)(void *arg, int err, const struct resolver_addr *v, size_t n),
    void *arg, struct resolver_query **out) must_check;
void resolver_cancel(struct resolver_query *q); /* NULL allowed */

#endif
