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
 * close (confine).  servers: addresses, or none for the system's.
 */
struct resolver *resolver_new(
    struct loop *l, const struct view *servers, size_t n) must_check;
void resolver_free(struct resolver *r);
/*
 * Looks a name up, IPv4 and IPv6 (addresses interleaved).  The callback runs
 * once, always from the loop (never from within this call), unless cancelled:
 * err 0 with n >= 1 addresses, SP_E_DNS, SP_E_TIMEOUT or SP_E_NOMEM.
 */
int resolver_start(struct resolver *r, struct view host, uint16_t port,
    void (*cb)(void *arg, int err, const struct resolver_addr *v, size_t n),
    void *arg, struct resolver_query **out) must_check;
void resolver_cancel(struct resolver_query *q); /* NULL allowed */

#endif
