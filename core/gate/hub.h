/* What the generations of a configuration share towards the upstreams. */
#ifndef SP_GATE_HUB_H
#define SP_GATE_HUB_H

#include <sys/queue.h>

#include "gate/gate.h"
#include "http/h2_client.h"
#include "net/pool.h"

enum { HUB_STATES = 4 };

struct hub; /* resolver, metrics, links: one in the gate */

/*
 * The connections to one upstream, as long as it stays the same.  Shared by
 * the generations that have it so.
 */
struct hub_link {
	LIST_ENTRY(hub_link) link;
	struct hub *hub;
	unsigned refs;
	char *key; /* everything that the connections depend on */
	char *tls_key; /* and what of that the TLS context does; NULL plain */
	struct tls_ctx *tls;
	struct h2_client *h2; /* connections that calls share; NULL none */
	struct pool *pool;
	struct checks *checks; /* NULL: none */
	uint64_t seen_failed; /* of them */
	char *name; /* the upstream's */
	char *servers; /* its `server` lines */
	struct pool_stats seen; /* what the counters have of it */
	uint64_t *servers_in[HUB_STATES]; /* by enum pool_state */
	uint64_t *connects, *reuses, *errors, *failovers, *checks_failed, *idle,
	    *busy; /* metrics */
	struct h2_client_stats h2_seen;
	uint64_t *h2_connections, *h2_streams, *h2_requests, *h2_refused,
	    *h2_broken;
};

/*
 * Context: reactor, before the walls close: reads the resolver's files.
 * Owner:   hub_unref().
 * Returns: 0; SP_E_NOMEM; SP_E_CONF with a line in err.
 */
int hub_new(struct loop *l, const struct conf *conf, struct metrics *m,
    struct hub **out, struct buf *err) must_check;
struct hub *hub_ref(struct hub *h);
void hub_unref(struct hub *h); /* NULL allowed */
struct loop *hub_loop(const struct hub *h);
/* One more change of servers that an operator made, and how many there were. */
void hub_changed(struct hub *h);
uint32_t hub_changes(const struct hub *h);
/* Its resolver, borrowed. */
struct resolver *hub_names_by(const struct hub *h);

/*
 * The link of that upstream: one that is there, or a new one.
 * Parameters: src, whose certificates are taken; files, without one there the
 *          file that conf names may be read.
 * Owner:   hub_unlink(); no lease may be open when the last one goes.
 * Returns: 0; SP_E_NOMEM; SP_E_ARG; SP_E_TLS with a line in err.
 */
int hub_link(struct hub *h, const struct conf_upstream *u,
    const struct gate_source *src, bool files, struct hub_link **out,
    struct buf *err) must_check;
void hub_unlink(struct hub_link *k); /* NULL allowed */

enum { HUB_AUTHORITY_MAX = 1024 };
/*
 * A server as a pool takes it; text (of HUB_AUTHORITY_MAX) holds what *out
 * points to beside s.  0; SP_E_LIMIT; SP_E_NOMEM.
 */
int hub_server(const struct conf_upstream_server *s, struct buf *text,
    struct pool_server *out) must_check;

#endif
