/*
 * How much of memory_max is in use, and what is done about it: requests are
 * refused, then nothing is read, then what holds most is ended.
 */
#ifndef SP_GATE_PRESSURE_H
#define SP_GATE_PRESSURE_H

#include "base/err.h"
#include "gate/gate.h"
#include "gate/metrics.h"

struct pressure; /* one in the gate */

enum pressure_level {
	PRESSURE_NONE,
	PRESSURE_HIGH, /* three quarters: new requests are refused */
	PRESSURE_HARD, /* nine tenths, until it is less again: no reading */
	PRESSURE_FULL, /* all: what comes now is not taken */
};

/* What the gate does for it, from the loop. */
struct pressure_owner {
	/* Reading is to stop, or may go on. */
	void (*pause)(void *arg, bool paused);
	/*
	 * Ends what holds most, until about that many bytes are on their way
	 * out.  Returns how many were ended.
	 */
	unsigned (*shed)(void *arg, size_t bytes);
	void *arg;
};

/*
 * Context: reactor; no blocking.
 * Owner:   the gate.
 * Returns: NULL without memory.
 */
struct pressure *pressure_new(struct loop *l,
    const struct pressure_owner *owner) must_check;
void pressure_free(struct pressure *p); /* NULL allowed */
/* Takes memory_max, in bytes. */
void pressure_set(struct pressure *p, uint64_t max);
/*
 * The level now, which costs next to nothing.  The owner is called later, from
 * the loop, never before it returns.
 */
enum pressure_level pressure_level(struct pressure *p);
/* Whether n more bytes would pass the ceiling. */
bool pressure_fits(const struct pressure *p, uint64_t n);
uint64_t pressure_max(const struct pressure *p);

#endif
