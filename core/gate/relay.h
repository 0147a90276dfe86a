/*
 * The ways out of an episode that lead through this process: the CONNECT
 * door for `allow host`, and the one that nftables turns connections to
 * with `via relay`.
 */
#ifndef SP_GATE_RELAY_H
#define SP_GATE_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/view.h"
#include "conf/conf_env.h"
#include "event/loop.h"
#include "event/resolver.h"
#include "gate/episode.h"
#include "gate/metrics.h"

struct relay; /* one in the gate */

enum relay_way { RELAY_CONNECT, RELAY_TURNED, RELAY_WAYS };

enum {
	RELAY_HEAD_MS = 10000, /* until a request is there */
	RELAY_REACH_MS = 30000, /* to find and connect */
	RELAY_DIAL_MS = 10000, /* each address */
	RELAY_HELLO_MS = 30000, /* until the ClientHello is whole */
	RELAY_IDLE_MS = 600 * 1000, /* without a byte either way */
	RELAY_LINES = 20, /* in the log, of one episode, a second */
};

enum relay_verdict {
	RELAY_DENIED, /* by the rules */
	RELAY_FAILED, /* allowed, and could not be reached */
	RELAY_ALLOWED,
	RELAY_VERDICTS
};

/* What became of a connection; borrowed for the call. */
struct relay_decision {
	enum relay_verdict verdict;
	enum relay_way way;
	bool ended; /* one that was allowed is over; all others are at once */
	uint32_t addr; /* host order; 0: none was looked for */
	uint16_t port; /* 0: not known */
	struct view name; /* empty: none */
	const char *why; /* "", or a word as "server_name" */
	uint64_t sent, received; /* bytes, from the episode and to it */
};

struct relay_world {
	struct loop *loop;
	struct resolver *resolver;
	struct metrics *metrics;
	/* the rules of that episode as they are now; NULL: none */
	const struct conf_environment *(
	    *rules)(void *arg, const struct episode *ep);
	/* NULL, or who follows decisions */
	void (*decided)(void *arg, const struct episode *ep,
	    const struct relay_decision *d);
	/*
	 * For tests, which have no such network; NULL: the real ones.
	 * reachable: whether any rule may open that address.  origin: where
	 * a turned connection was for; 0, SP_E_*.
	 */
	bool (*reachable)(void *arg, uint32_t addr);
	int (*origin)(void *arg, int fd, uint32_t *addr, uint16_t *port);
	void *arg;
	uint64_t head_ms, hello_ms, idle_ms; /* 0: as above */
};

/*
 * Source:  RFC 9110 s9.3.6, RFC 9112, RFC 6066 s3.
 * Context: reactor's loop; nothing blocks.
 * Owner:   the gate; freed before its episodes.
 * Returns: 0; SP_E_NOMEM; SP_E_SYS no socket.
 */
int relay_new(const struct relay_world *w, struct relay **out) must_check;
void relay_free(struct relay *r); /* NULL allowed */
/*
 * A listener of an episode that has been made.  When its reset or end begins
 * it is closed, and then its connections are cut.
 * Parameters: arg, the relay; index, enum sandbox_door; fd, taken.
 */
void relay_door(void *arg, struct episode *ep, uint32_t index, int fd);
/* Connections that are open. */
size_t relay_count(const struct relay *r);

#endif
