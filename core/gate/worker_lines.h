/* Bytes of a pipe, as lines. */
#ifndef SP_GATE_WORKER_LINES_H
#define SP_GATE_WORKER_LINES_H

#include "base/buf.h"

struct worker_lines {
	struct buf part; /* of the line that has no end yet */
	size_t max; /* bytes of a line */
	bool skips; /* one that is too long is passed over; else it is an end */
	bool skipping;
	uint64_t skipped; /* lines */
};

/*
 * Context: any; no blocking.
 * Parameters: line: one without its line feed, never empty; false: no more of
 *          them (l may be gone).
 * Owner:   worker_lines_clear().
 * Returns: 0; SP_E_LIMIT a line is too long, and !skips; SP_E_NOMEM.
 */
void worker_lines_init(struct worker_lines *l, size_t max, bool skips);
void worker_lines_clear(struct worker_lines *l);
int worker_lines_add(struct worker_lines *l, struct view data,
    bool (*line)(void *arg, struct view line), void *arg) must_check;
/* Whether it stopped in the middle of one. */
bool worker_lines_open(const struct worker_lines *l);

#endif
