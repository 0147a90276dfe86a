/*
 * What happens in an episode, in order, kept for those who look later: the
 * observer's events.
 */
#ifndef SP_GATE_FEED_H
#define SP_GATE_FEED_H

#include "gate/episode.h"

struct feed; /* of one episode, across its resets; goes with it */
struct feed_set; /* all of the gate's; gate_feeds() */

enum feed_type {
	FEED_HARNESS = 1 << 0, /* "harness_event" */
	FEED_FS = 1 << 1, /* "fs_change" */
	FEED_PROCESS = 1 << 2, /* "process" */
	FEED_NETWORK = 1 << 3, /* "network" */
	FEED_RESOURCE = 1 << 4, /* "resource" */
	FEED_MODEL = 1 << 5, /* "model" */
	FEED_GAP = 1 << 6, /* "gap": {"lost":N,"type":..}: always told */
};

/* NULL without memory. */
struct feed *feed_of(struct episode *ep);
/*
 * Adds an event; its sequence number is the next of the episode.  Without
 * room or memory it is counted, and a gap is told in its place.
 * Parameters: data, one JSON value.
 */
void feed_add(struct feed *f, enum feed_type type, struct view data);
/*
 * A reset: numbers begin at 0 again, as a new collector's do; readers see
 * "reset" (feed_reader.reset) and then the new ones.
 */
void feed_reset(struct feed *f);

/* Somebody who reads: what is kept, then what comes. */
struct feed_reader {
	LIST_ENTRY(feed_reader) link;
	unsigned types; /* enum feed_type bits; gaps come always */
	uint64_t next; /* sequence number of what it reads next */
	/* there is something to read again */
	void (*ready)(void *arg);
	/* the episode was reset, or is over */
	void (*reset)(void *arg, bool over);
	void *arg;
};
void feed_read_start(struct feed *f, struct feed_reader *r);
void feed_read_stop(struct feed_reader *r);
/*
 * The next event that the reader wants, as one JSON object
 * {"seq":N,"ts":S,"type":"T","data":{}}, appended.
 * Returns: 0; SP_E_AGAIN there is none yet: ready() follows; SP_E_EOF the
 *          episode is over; SP_E_NOMEM; SP_E_LIMIT out has no room.
 */
int feed_read(struct feed *f, struct feed_reader *r,
    struct buf *out) must_check;
/* All that is kept, as one JSON array: 0; SP_E_LIMIT; SP_E_NOMEM. */
int feed_all(struct feed *f, struct buf *out) must_check;

#endif
