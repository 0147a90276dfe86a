/* Connections to the servers of one upstream: dial, keep, reuse. */
#ifndef SP_NET_POOL_H
#define SP_NET_POOL_H

#include "base/view.h"
#include "event/loop.h"
#include "event/resolver.h"
#include "net/stream.h"
#include "net/tls.h"

struct pool;
struct pool_lease; /* one connection lent, or on the way */

enum { POOL_SERVERS_MAX = 64 };

struct pool_server {
	struct view host; /* name, literal, or unix socket's path; copied */
	uint16_t port;
	bool is_unix;
	bool tls;
	/* of the caller's own, kept as they are; copied */
	struct view authority; /* how it is addressed: the Host field */
	struct view base; /* what its paths begin with; tells servers apart */
	struct view url; /* for people */
};

/*
 * Connections that many leases use at once (HTTP/2) are kept by somebody else,
 * who is asked before one is dialled, and offered each one that is.  Servers
 * are told apart as pool_lease_server() does.
 */
struct pool_sharer {
	/* A share of a connection to that server that has room; NULL none. */
	void *(*ask)(void *arg, size_t server);
	/* One that is on its way may have room for others: they wait for it. */
	bool (*expects)(void *arg, size_t server);
	/*
	 * A connection came up.  0 and *share set: taken, s is the sharer's
	 * now; 0 and NULL: it is for one lease alone.  Else it is not used.
	 */
	int (*offer)(void *arg, size_t server, struct stream *s, void **share);
	void (*close)(void *share); /* its lease is over */
	/* Of that server's no other call may be put on any. */
	void (*forget)(void *arg, size_t server);
	void *arg;
};

/* Connects in place of the pool, to where no address leads. */
struct pool_dialler {
	/*
	 * told() follows once, from the loop, unless cancelled: err 0 with fd
	 * (non-blocking, connected or on its way; the pool's), else SP_E_*.
	 * There is no timeout but what the dialler has.
	 */
	int (*start)(void *arg, void (*told)(void *lease, int err, int fd),
	    void *lease, void **out);
	void (*cancel)(void *attempt);
	void *arg;
};
struct pool_params {
	struct view name; /* for messages; copied */
	const struct pool_server *servers; /* 1 to 64; copied */
	size_t servers_n;
	bool least_conn; /* else by hash of the key */
	uint64_t connect_timeout_ms; /* dial and TLS handshake, per address */
	uint64_t keepalive; /* idle connections kept, all servers */
	uint64_t keepalive_timeout_ms;
	struct tls_ctx *tls; /* for the servers with tls; referenced */
	const struct pool_sharer *sharer; /* borrowed; NULL none */
	const struct pool_dialler *dialler; /* borrowed; NULL none */
};
struct pool_stats {
	uint64_t connects, reuses, connect_errors;
	uint64_t failovers; /* asked for again, another server */
	uint64_t idle, busy;
};

/*
 * Context: reactor; l, r (NULL allowed when all servers are unix sockets) are
 *          borrowed.
 * Returns: 0; SP_E_NOMEM; SP_E_ARG no or too many servers, an empty host, tls
 *          without a context.
 */
int pool_new(struct loop *l, struct resolver *r,
    const struct pool_params *params, struct pool **out) must_check;
void pool_free(struct pool *p); /* no lease may be open; NULL allowed */
struct view pool_name(const struct pool *p);
void pool_stats(const struct pool *p, struct pool_stats *out);

/* Which connection is wanted. */
struct pool_ask {
	struct view key; /* empty: the least busy server */
	bool fresh; /* not an idle one (a retry after a stale one) */
	uint64_t tried; /* slots that are not asked, a bit each */
	bool has_slot; /* that slot's server before all others, or */
	bool only; /* no other at all, whatever its state */
	size_t slot;
	bool check; /* what comes of it does not make the server rest */
};

/*
 * Asks for a connection.  A server is chosen by the hash of key (the same key,
 * the same server, while it is up) or by least_conn; a server whose
 * connections failed rests (1 s doubling to 30 s) while another is up; the
 * addresses of a name are tried in turn, then the other servers, each once.
 * Parameters: cb runs once, from the loop, unless cancelled: err 0 with the
 *          stream (owner to be set by the callee) and reused telling whether
 *          it was idle before, else SP_E_REFUSED, SP_E_TIMEOUT, SP_E_DNS,
 *          SP_E_TLS, SP_E_GONE, SP_E_SYS, SP_E_NOMEM of the last attempt, or
 *          SP_E_NOTFOUND: no server takes calls.
 * Owner:   with err 0 the lease is the callee's until pool_release(); with an
 *          error it is gone when cb returns.  The callee sets the stream's
 *          owner.  Without a key the least busy server is taken.
 * Returns: 0; SP_E_NOMEM.
 */
int pool_get(struct pool *p, const struct pool_ask *ask,
    void (*cb)(void *arg, int err, struct pool_lease *lease), void *arg,
    struct pool_lease **out) must_check;
/* Whether a server takes calls that is not among those. */
bool pool_has_other(const struct pool *p, uint64_t tried);
struct stream *pool_lease_stream(struct pool_lease *l); /* NULL: a share */
void *pool_lease_share(const struct pool_lease *l); /* NULL: a stream */
bool pool_lease_reused(const struct pool_lease *l);
/* Of a connection that is lent: its server's slot and how to address it. */
size_t pool_lease_server(const struct pool_lease *l);
struct view pool_lease_authority(const struct pool_lease *l);
struct view pool_lease_base(const struct pool_lease *l);
/*
 * Of one that is lent: what came of it.  failed: no head of a reply came, or
 * none in time; the server rests as if it had refused.  good: a head came; only
 * that ends the rest of a server that had failed so.  Without a word nothing is
 * known.
 */
void pool_lease_failed(struct pool_lease *l, const char *what);
void pool_lease_good(struct pool_lease *l);
/* Of one that is lent: it broke behind the head, which is no matter of the
 * server's record, but of the log. */
void pool_lease_broke(const struct pool_lease *l, const char *what);
/*
 * Last error in words, for logs and error objects:
 * "gpu1:8000: connect: connection refused".
 */
const char *pool_lease_why(const struct pool_lease *l);
/* Gives it back: reusable true keeps it idle (the pool watches it and closes
 * it when the server does or sends a byte unasked); false resets it. */
void pool_release(struct pool_lease *l, bool reusable);
/* Before the callback came: drops the attempt.  NULL allowed. */
void pool_cancel(struct pool_lease *l);

#endif
