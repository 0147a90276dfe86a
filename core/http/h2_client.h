/*
 * HTTP/2 to the servers of one pool: connections that many calls use at once.
 * The pool asks for shares of them (pool_sharer); h2_call.h uses a share.
 */
#ifndef SP_HTTP_H2_CLIENT_H
#define SP_HTTP_H2_CLIENT_H

#include "base/err.h"
#include "base/view.h"
#include "event/loop.h"
#include "net/pool.h"

struct h2_client;

struct h2_client_params {
	struct view name; /* the upstream's, for messages; copied */
	/* Spoken on plain connections too, and demanded of those with TLS;
	 * else only where ALPN chose it. */
	bool always;
	uint64_t keepalive_timeout_ms; /* idle connections; 0 closed at once */
	uint64_t header_max; /* of a reply's head; told the servers */
};

struct h2_client_stats {
	uint64_t connections, streams; /* now */
	uint64_t idle; /* of the connections: without a stream */
	uint64_t requests; /* sent */
	uint64_t refused; /* not processed: REFUSED_STREAM, GOAWAY */
	uint64_t broken; /* connections ended because the server broke the
			    protocol or flooded */
};

/*
 * Source:  RFC 9113; RFC 7541.
 * Context: reactor, no blocking; l is borrowed.
 * Owner:   the caller, until h2_client_free(), after its pool's pool_free()
 *          and not from within a callback of a call.
 * Returns: 0; SP_E_NOMEM.
 */
int h2_client_new(struct loop *l, const struct h2_client_params *params,
    struct h2_client **out) must_check;
void h2_client_free(struct h2_client *c); /* NULL allowed */
/* For pool_params; lives as long as the client. */
const struct pool_sharer *h2_client_sharer(const struct h2_client *c);
void h2_client_stats(const struct h2_client *c, struct h2_client_stats *out);

#endif
