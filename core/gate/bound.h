/*
 * What a door's location may have at once, and in a second: operations, and
 * what lasts (WebSockets, event streams).  One location is one principal, and
 * the same one through reloads (route_place()); of listeners inside, each
 * episode has bounds of its own.
 */
#ifndef SP_GATE_BOUND_H
#define SP_GATE_BOUND_H

#include "base/err.h"
#include "event/loop.h"
#include "gate/gate.h"
#include "gate/metrics.h"

struct bound_place;

enum {
	BOUND_CALLS_MAX = 4096, /* where max_calls is not given */
};

enum bound_word {
	BOUND_TAKEN,
	/* refused: */
	BOUND_CALLS, /* max_calls */
	BOUND_RATE, /* max_calls_per_second */
	BOUND_SOCKETS, /* sockets */
	BOUND_NOMEM,
	BOUND_WORDS
};

/*
 * A place that was taken: zeroed when there is none.  It may be moved; it is
 * given back once, before the gate is freed.
 */
struct bound_ticket {
	struct bound_place *place;
	bool socket;
};

/*
 * Context: reactor; no blocking.
 * Owner:   the gate; all places were given back.
 * Returns: NULL without memory.
 */
struct bound *bound_new(struct loop *l) must_check;
void bound_free(struct bound *b); /* NULL allowed */
/* Registers what is counted, by principal: 0; SP_E_NOMEM. */
int bound_metrics(struct bound *b, struct metrics *m) must_check;
/*
 * An operation begins, or something that lasts; either counts towards the
 * rate.  A refusal is counted, and takes nothing.
 * Parameters: r, of a door: its location, episode and principal; t, zeroed.
 */
enum bound_word bound_call(struct bound *b, const struct gate_request *r,
    struct bound_ticket *t) must_check;
enum bound_word bound_socket(struct bound *b, const struct gate_request *r,
    struct bound_ticket *t) must_check;
/* It is over; t is zeroed.  Without a place nothing happens. */
void bound_give(struct bound_ticket *t);

const char *bound_name(enum bound_word w); /* "calls" */
const char *bound_reason(enum bound_word w); /* for people */
/* The verdict of a refusal: 429, or 503 without memory. */
enum gate_verdict bound_deny(struct gate_request *r, enum bound_word w);

#endif
