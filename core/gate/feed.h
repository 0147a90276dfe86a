/*
 * What happens in an episode, in order, kept for those who look later: the
 * observer's events.
 */
#ifndef SP_GATE_FEED_H
#define SP_GATE_FEED_H

#include "gate/episode.h"
#include "gate/feed_log.h"
#include "gate/metrics.h"

struct feed; /* of one episode, across its resets; goes with it */
struct feed_set; /* all of the gate's; gate_feeds() */

enum feed_type {
	FEED_HARNESS = 1 << 0, /* "harness_event" */
	FEED_FS = 1 << 1, /* "fs_change" */
	FEED_PROCESS = 1 << 2, /* "process" */
	FEED_NETWORK = 1 << 3, /* "network" */
	FEED_RESOURCE = 1 << 4, /* "resource" */
	FEED_MODEL = 1 << 5, /* "model" */
	FEED_GAP = 1 << 6, /* "gap": {"lost":N,"reason":..}; of all types */
	FEED_TYPES = 1 << 7,
};
const char *feed_type_name(enum feed_type type);

enum {
	FEED_MEMORY_EACH =
	    1024 * 1024, /* of an episode; the rest is in files */
	FEED_MEMORY_ALL = 32 * 1024 * 1024,
	FEED_FILE_MAX = 64 * 1024 * 1024, /* of an episode */
	FEED_DENIES = 100, /* denied connections that are told, a second */
	FEED_SAMPLES_MAX = 128,
	/* of what feed_read() appends; an event with larger data is lost */
	FEED_LINE_MAX = FEED_LOG_EVENT_MAX + 256,
};

/* ---- adding ----------------------------------------------------------------- */

/* NULL: it was never made, is over, or there was no memory. */
struct feed *feed_of(const struct episode *ep);
/*
 * Adds an event; its sequence number is the next of the episode.  Without
 * room or memory it is counted, and a gap is told in its place.
 * Context: reactor's loop; no reader is called before its caller is done.
 * Parameters: f, NULL is allowed: nothing happens; data, one JSON value: one
 *          that is none is counted as lost (FEED_HARNESS), the others' are
 *          made here and believed.
 */
void feed_add(struct feed *f, enum feed_type type, struct view data);
/*
 * Events of that type were lost before they came here: told as a gap to those
 * who read that type.
 * Parameters: lost, 0: nobody knows how many; reason, a word.
 */
void feed_add_gap(struct feed *f, enum feed_type type, uint64_t lost,
    const char *reason);
/*
 * Denied connections come as fast as the workload likes: false when there
 * were FEED_DENIES of them in this second; those are told as a gap.
 */
bool feed_may_deny(struct feed *f);
/*
 * Who was there when processes of a side, an enum sandbox_side, were looked at
 * last; empty after a reset.
 */
struct feed_samples {
	uint32_t pids[FEED_SAMPLES_MAX];
	size_t n;
	bool more; /* there were others */
};
struct feed_samples *feed_samples(struct feed *f, unsigned side);
/* How often its episode has been reset. */
uint32_t feed_resets(const struct feed *f);
/* The number that the next event will have. */
uint64_t feed_next(const struct feed *f);

/* ---- reading ---------------------------------------------------------------- */

/* Somebody who reads: what is kept, then what comes. */
struct feed_reader {
	/* set by who reads */
	unsigned types; /* enum feed_type bits; gaps of all come always */
	uint64_t next; /* sequence number of what it reads next */
	uint32_t resets; /* feed_resets() of that number's count */
	/* there is something to read again; from a task */
	void (*ready)(void *arg);
	/*
	 * The episode was reset: what is read next has numbers from 0 on.
	 * Or it is over: what is left may be read up to SP_E_EOF.
	 */
	void (*reset)(void *arg, bool over);
	void *arg;
	/* the feed's */
	LIST_ENTRY(feed_reader) link;
	struct feed *feed; /* NULL: it does not read */
	struct feed_log_at at;
	uint64_t missed, missed_at; /* not read, from that number on, */
	bool missed_reset; /* before a reset */
	bool waits; /* was told AGAIN */
	bool more; /* and that though there is more: it is the others' turn */
	unsigned budget; /* blocks of a file until the others' turn */
};
/*
 * All of the rest is zeroed.  What cannot be read any more for a reset comes
 * first, as a gap, and then all from 0 on; likewise, as "unknown", for a number
 * that is not given out yet.
 */
void feed_read_start(struct feed *f, struct feed_reader *r);
void feed_read_stop(struct feed_reader *r); /* of one that reads, or not */
/*
 * The next event that the reader wants, as one JSON object
 * {"seq":N,"ts":S,"type":"T","data":{}} on one line, appended; with a last
 * member "resets", feed_resets(), unless that is 0.
 * Parameters: f may be NULL: the reader knows.
 * Returns: 0; SP_E_AGAIN there is none yet: ready() follows; SP_E_EOF the
 *          episode is over; SP_E_NOMEM; SP_E_LIMIT out has no room: nothing
 *          was read.
 */
int feed_read(struct feed *f, struct feed_reader *r,
    struct buf *out) must_check;
/*
 * What is kept, as one JSON array.  When there is more than page allows the
 * last element is a gap, "truncated", with the number that comes next.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM.
 */
struct feed_page {
	/* the first number; of one not given out yet: as feed_read_start() */
	uint64_t since;
	uint64_t limit; /* events at most; 0 as many as there is room for */
	size_t room; /* for the array as a string of JSON once more */
};
int feed_all(struct feed *f, const struct feed_page *page,
    struct buf *out) must_check;

/* ---- for the gate ----------------------------------------------------------- */

/*
 * Context: reactor's loop.
 * Parameters: io, for tests; NULL: the real calls.
 * Owner:   the gate; freed before its episodes.
 * Returns: NULL without memory.
 */
struct feed_set *feed_set_new(struct loop *loop,
    const struct feed_log_io *io) must_check;
/* Counts what goes wrong with files: 0; SP_E_NOMEM. */
int feed_set_metrics(struct feed_set *s, struct metrics *m) must_check;
void feed_set_free(struct feed_set *s); /* NULL allowed */
/* An episode's news: made, or reset: numbers begin at 0; over. */
void feed_set_news(struct feed_set *s, struct episode *ep,
    const struct episode_news *n);
/* A file without a name for that episode's older events; fd is taken. */
void feed_spill(struct feed *f, int fd);
/*
 * A reset: numbers begin at 0 again, as a new collector's do; readers see
 * "reset" (feed_reader.reset) and then the new ones.
 */
void feed_reset(struct feed *f);
/* Bytes that all feeds hold in memory. */
size_t feed_set_memory(const struct feed_set *s);

#endif
