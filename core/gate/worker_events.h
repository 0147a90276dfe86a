/*
 * What a process writes to OPENENVD_EVENT_FD, as events of its episode: one
 * JSON object a line.  What is none is passed over, and told as lost.
 * Source: openenvd, HarnessEventSink.
 */
#ifndef SP_GATE_WORKER_EVENTS_H
#define SP_GATE_WORKER_EVENTS_H

#include "gate/worker_lines.h"

struct episode;
struct worker_world; /* worker_priv.h */

struct worker_events {
	const struct worker_world *world;
	struct episode *ep; /* while bytes are added */
	struct worker_lines lines;
	uint64_t
	    malformed; /* lines that are no object, and were not told yet */
	bool told; /* something was */
};

/*
 * Context: reactor's loop; nothing is called back.
 * Owner:   worker_events_clear(); world is borrowed until then.
 */
void worker_events_init(struct worker_events *e,
    const struct worker_world *world);
/*
 * The bytes that came.  However many lines are bad, little is said of them: at
 * once of the first, then with the next good one or when there are many.
 */
void worker_events_add(struct worker_events *e, struct episode *ep,
    struct view data);
/* There are no more; ep NULL: there is nobody to tell. */
void worker_events_end(struct worker_events *e, struct episode *ep);
void worker_events_clear(struct worker_events *e);

#endif
