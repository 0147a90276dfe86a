/*
 * What the programs of an episode say, line by line: the worker's standard
 * error, and both outputs of the processes that start with it.
 */
#ifndef SP_GATE_CONSOLE_H
#define SP_GATE_CONSOLE_H

#include "gate/episode.h"

enum {
	CONSOLE_KEPT_BYTES = 256 * 1024, /* of an episode; the oldest go */
	CONSOLE_LINE_MAX = 4096, /* a longer one is told in parts */
	CONSOLE_SOURCES_MAX = 128, /* programs and outputs of one episode */
};

struct console; /* of one episode, across its resets; goes with it */

/*
 * Adds what came of an output; whole lines are told.  Without memory it is
 * lost, and counted.
 * Context: reactor's loop; does not block.
 * Parameters: source, "worker" or the process's name; stream, "stdout" or
 *          "stderr"; data, any bytes.
 */
void console_add(struct episode *ep, struct view source, const char *stream,
    struct view data);
/* That output has ended: what is left of a line is one. */
void console_end(struct episode *ep, struct view source, const char *stream);

/* Somebody who reads: what is kept, then what comes. */
struct console_reader {
	LIST_ENTRY(console_reader) link;
	struct console *console; /* NULL: it does not read */
	uint64_t next; /* place of what it reads next; 0: the oldest kept */
	/* there is more */
	void (*ready)(void *arg);
	/* the episode is over: no more comes */
	void (*over)(void *arg);
	void *arg;
};
/* 0; SP_E_NOMEM. */
int console_read_start(struct episode *ep, struct console_reader *r) must_check;
void console_read_stop(struct console_reader *r);
/*
 * All whole lines from its place on, at most max bytes, as JSON objects
 * {"at":..,"source":..,"stream":..,"text":..}, each with a line end.
 * Parameters: out, borrowed until the next console_add(); lost, bytes that
 *          were thrown away before they were read.
 */
void console_read(struct episode *ep, struct console_reader *r, size_t max,
    struct view *out, uint64_t *lost);

/* ---- for episode.c ---------------------------------------------------------- */

void console_free(struct console *c); /* NULL allowed */

#endif
