/* The access log: a JSON line for each request that is over. */
#ifndef SP_GATE_ACCESS_H
#define SP_GATE_ACCESS_H

#include "event/loop.h"
#include "gate/gate.h"

struct access; /* lines of this turn of the loop */

/* What the line says; views may hold any bytes. */
struct access_line {
	const char *listener, *peer;
	struct view method, path; /* the path without its query */
	const char *module;
	unsigned status;
	uint64_t bytes, duration_us;
	uint64_t connection, number;
	const char *principal, *outcome; /* NULL: null */
	struct view session;
};

/* Of an operation, of which a request may have several. */
struct access_operation {
	const char *listener, *peer;
	uint64_t connection, number;
	const char *principal, *door, *operation, *outcome;
	struct view episode, tool; /* empty: null */
	uint64_t duration_us;
};

/*
 * Context: reactor; writes once at the end of a turn of the loop, to a
 *          descriptor that may block as long as a file does.
 * Owner:   the caller; access_free(NULL) is allowed and closes the log.
 * Returns: NULL without memory.
 */
struct access *access_new(struct loop *l) must_check;
void access_free(struct access *a);
/* Takes the descriptor; -1: nothing is logged. */
void access_set_fd(struct access *a, int fd);
/* A line that does not fit in, or finds no memory, is counted as lost. */
void access_add(struct access *a, const struct access_line *line);
void access_add_operation(struct access *a, const struct access_operation *op);
uint64_t access_lost(const struct access *a);

#endif
