/*
 * Events of a stream that are the one before over again but for a few values:
 * those are read, and the rest is compared.
 */
#ifndef SP_RECORDER_REPEAT_H
#define SP_RECORDER_REPEAT_H

#include "recorder/accum.h"
#include "recorder/logps.h"

enum {
	REPEAT_SLOTS = 4,
	REPEAT_TEXT_MAX = 8 * 1024, /* longer events are not kept */
	REPEAT_MISSES = 32, /* in a row, and it is not tried any more */
};

enum repeat_kind {
	REPEAT_TEXT, /* a string that is added to another */
	REPEAT_ENTRY, /* a token's log-probabilities */
	REPEAT_IDS, /* an array of token ids */
};

union repeat_target {
	struct accum_text *text;
	struct logps *logps;
	struct accum_ids *ids;
};

/* A value that differs from event to event, and what it is added to. */
struct repeat_slot {
	enum repeat_kind kind;
	union repeat_target to; /* borrowed */
	size_t at, end; /* in the text */
};

struct repeat {
	struct buf text; /* the event before; owned */
	struct repeat_slot v[REPEAT_SLOTS]; /* by place */
	size_t n;
	bool ready; /* text and v are of use */
	/* while an event is read in full */
	bool odd; /* it has something that counts each time */
	size_t used; /* of the bound, when it began */
	size_t cost; /* of the bound, for the values in v */
	unsigned misses;
};

/*
 * Context: recorder, does not block.
 * Owner:   the struct is the caller's, zeroed at first; repeat_clear() frees.
 *
 * True: the event was the last one again, and its values are added.  False:
 * nothing happened; it is read in full, between repeat_begin() and
 * repeat_end(), which say what was found.
 */
bool repeat_event(struct repeat *r, struct accum_hold *h, struct view event);
void repeat_begin(struct repeat *r, const struct accum_hold *h);
/* A value at text offsets, which took so much of the bound. */
void repeat_value(struct repeat *r, enum repeat_kind kind,
    union repeat_target to, const struct jscan_span *v, size_t cost);
/* What was just read may not count twice as it did once. */
static inline void
repeat_odd(struct repeat *r)
{
	r->odd = true;
}
/*
 * Keeps the event if reading it again would change nothing but by its values:
 * strings that stay once they are there, flags, and members that are replaced
 * take no more of the bound the second time, or count as odd.
 */
void repeat_end(struct repeat *r, const struct accum_hold *h,
    struct view event);
void repeat_clear(struct repeat *r);

#endif
