/* What pool.c and pool_servers.c share; nobody else includes it. */
#ifndef SP_NET_POOL_PRIV_H
#define SP_NET_POOL_PRIV_H

#include <sys/queue.h>

#include "net/dial.h"
#include "net/pool.h"
#include "net/pool_servers.h"

enum lease_state {
	LEASE_START, /* queued, to begin with its server */
	LEASE_RESOLVE,
	LEASE_DIAL,
	LEASE_TLS,
	LEASE_WAIT, /* for the connection of server.leader */
	LEASE_DONE, /* queued, to be told */
	LEASE_TOLD, /* of a failure, right now */
	LEASE_LENT,
	LEASE_IDLE
};

TAILQ_HEAD(lease_list, pool_lease);

/*
 * Owned by its pool's slot; one that was removed lives until its last lease
 * has left (pool_servers_leave()).
 */
struct server {
	char *host, *authority, *base, *url;
	char *label; /* for messages */
	size_t slot;
	uint16_t port;
	bool is_unix, tls;
	bool draining, removed;
	bool down; /* by health checks */
	bool probing; /* one connection finds out whether it is back */
	bool late; /* it failed behind the handshake: see pool_lease_good() */
	bool last_set;
	unsigned fails; /* in a row */
	uint64_t failures; /* in all */
	uint64_t seed;
	uint64_t rest_until_ms;
	size_t busy; /* leases on the way and lent, */
	size_t checking; /* and of these, for health checks */
	uint64_t id;
	size_t idle_n;
	struct resolver_addr last; /* where it answered */
	struct lease_list idle; /* latest first */
	struct pool_lease *leader; /* its connection may be shared */
	struct lease_list waiting; /* for that */
};

/* A connection; the same object while it is lent and while it is idle. */
struct pool_lease {
	TAILQ_ENTRY(pool_lease) link; /* in pool.queue, server.idle, .waiting */
	TAILQ_ENTRY(pool_lease) age; /* in pool.idle */
	struct pool *pool;
	struct server *server; /* NULL: none takes calls, or it was told */
	struct stream *stream;
	void *share; /* instead of a stream; NULL none */
	struct resolver_query *query;
	struct dial *dial;
	void *given; /* an attempt of the dialler's; NULL none */
	struct loop_timer *timer;
	void (*cb)(void *arg, int err, struct pool_lease *lease);
	void *arg;
	char *why;
	uint64_t hash;
	uint64_t tried; /* one bit a slot */
	uint64_t idle_since_ms;
	int err;
	enum lease_state state;
	bool hashed;
	bool reused;
	bool probe;
	bool only; /* its server, or none */
	bool check; /* what becomes of it is no matter of the server's record */
};

struct pool {
	struct loop *loop;
	struct resolver *resolver;
	char *name;
	struct tls_ctx *tls;
	const struct pool_sharer *sharer; /* NULL none */
	const struct pool_dialler *dialler; /* NULL none */
	struct loop_task *task;
	struct loop_timer *timer; /* the oldest idle one's end */
	struct lease_list queue;
	struct lease_list idle; /* oldest first */
	struct pool_stats stats;
	bool least_conn;
	bool changed; /* its servers are not those of the start */
	uint64_t connect_timeout_ms, keepalive, keepalive_timeout_ms;
	size_t open; /* leases that are not idle */
	uint64_t last_id; /* of servers */
	size_t turn; /* where looking for the least busy one begins */
	struct server *slots[POOL_SERVERS_MAX];
};

/* ---- pool.c --------------------------------------------------------------- */

/* Closes an idle connection. */
void pool_idle_drop(struct pool_lease *l);

/* ---- pool_servers.c ------------------------------------------------------- */

/*
 * The best server that takes calls and was not tried, or NULL: one that is up
 * before one that rests, before one that checks have found down.
 */
struct server *pool_servers_choose(struct pool_lease *l);
void pool_servers_assign(struct pool_lease *l, struct server *s);
/* The lease has nothing to do with its server any more; l->server is NULL. */
void pool_servers_leave(struct pool_lease *l);
bool pool_servers_is_up(const struct server *s, uint64_t now_ms);
void pool_servers_failed(struct pool_lease *l, bool late);
void pool_servers_good(struct pool_lease *l);
/* Closes what is idle, and frees those that were removed and are not used. */
void pool_servers_quiet(struct pool *p, struct server *s);
void pool_servers_free(struct pool *p); /* all of them */

#endif
