/* The servers of a pool: which there are, how they are, at run time. */
#ifndef SP_NET_POOL_SERVERS_H
#define SP_NET_POOL_SERVERS_H

#include "net/pool.h"

enum pool_state {
	POOL_UP,
	POOL_RESTING, /* a connection failed: for a while */
	POOL_DOWN, /* health checks fail */
	POOL_DRAINING, /* takes no calls any more */
};

/* What is known of a server; text lives as long as it is there. */
struct pool_server_info {
	uint64_t id; /* no other server of this pool ever has it */
	size_t slot;
	struct view url; /* as it was given */
	struct view label; /* "gpu1:8000" */
	struct view authority;
	enum pool_state state;
	bool tls;
	size_t open, idle; /* calls, and idle connections */
	uint64_t failures; /* of connections, and heads of replies, in all */
	uint64_t rest_ms; /* of POOL_RESTING: what is left of it */
};

/*
 * Adds a server; one that is there and drains takes calls again.
 * Context: reactor.
 * Returns: 0; SP_E_EXISTS it is there; SP_E_LIMIT POOL_SERVERS_MAX are; SP_E_ARG
 *          an empty host, TLS without a context, a name without a resolver;
 *          SP_E_NOMEM.
 */
int pool_servers_add(struct pool *p, const struct pool_server *s) must_check;
/*
 * Takes one away (remove), or lets it have no more calls; calls that are open
 * go on, idle connections are closed.  The last one may go as well.
 * Returns: 0; SP_E_NOTFOUND.
 */
int pool_servers_remove(struct pool *p, const struct pool_server *s) must_check;
int pool_servers_drain(struct pool *p, const struct pool_server *s) must_check;
/* Whether it is there, and no other is. */
bool pool_servers_last(struct pool *p, const struct pool_server *s);
/* The one in that slot, below POOL_SERVERS_MAX: false, nobody. */
bool pool_servers_get(const struct pool *p, size_t slot,
    struct pool_server_info *out);
/* What health checks say of the one in that slot. */
void pool_servers_set_down(struct pool *p, size_t slot, bool down);
/* The slot that calls of that key would go to; POOL_SERVERS_MAX none. */
size_t pool_servers_home(struct pool *p, struct view key);
/*
 * Gives another pool of the same upstream the servers of this one, if they
 * were changed since it was made.
 * Returns: 0; SP_E_NOMEM, SP_E_ARG: then to is as it was, or has a part.
 */
int pool_servers_hand_on(const struct pool *from, struct pool *to) must_check;
/* Whether any was added, removed or drained since pool_new(), or */
bool pool_servers_changed(const struct pool *p);
/* since then: those that are there now are the configuration's own. */
void pool_servers_loaded(struct pool *p);

#endif
