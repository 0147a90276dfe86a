/*
 * Turns for what is large: a body or a message takes the loop as long as it is
 * long, so one is served in a turn of the loop, and whatever else is ready in
 * between.  Listeners take turns; at one of them who came first goes first.
 */
#ifndef SP_GATE_HEAVY_H
#define SP_GATE_HEAVY_H

#include <stdbool.h>
#include <sys/queue.h>

#include "base/err.h"
#include "event/loop.h"

enum { HEAVY_BYTES = 256 * 1024 }; /* what is less does not wait */

struct heavy; /* one in the gate */
struct heavy_ticket;

/* Those of one listener; zeroed, and in one place while some wait. */
struct heavy_lane {
	TAILQ_HEAD(, heavy_ticket) waiting;
	TAILQ_ENTRY(heavy_lane) turn;
	unsigned n; /* that wait */
};

/* One of them: the caller's memory, zeroed, in one place while it waits. */
struct heavy_ticket {
	TAILQ_ENTRY(heavy_ticket) link;
	struct heavy *heavy;
	struct heavy_lane *lane; /* NULL: it does not wait */
	/* Its turn has come, once, from the loop; it waits no more. */
	void (*serve)(void *arg);
	void *arg;
};

/*
 * Context: reactor; no blocking.
 * Owner:   the gate; nothing waits when it is freed.
 * Returns: NULL without memory.
 */
struct heavy *heavy_new(struct loop *l) must_check;
void heavy_free(struct heavy *h); /* NULL allowed */
/* Waits for its turn, which comes in a later call from the loop. */
void heavy_wait(struct heavy *h, struct heavy_lane *lane,
    struct heavy_ticket *t);
/* It waits no more; nothing happens when it did not. */
void heavy_leave(struct heavy_ticket *t);

#endif
