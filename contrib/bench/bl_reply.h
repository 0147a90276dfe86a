/* One HTTP/1.1 reply as it comes in: framing, events, time stamps. */
#ifndef SP_BL_REPLY_H
#define SP_BL_REPLY_H

#include <stdint.h>

#include "base/err.h"
#include "base/view.h"

enum { BL_REPLY_LINE = 160 };

enum bl_reply_state {
	BL_REPLY_STATUS, /* zero: a fresh reply */
	BL_REPLY_HEAD,
	BL_REPLY_LENGTH, /* body of left bytes */
	BL_REPLY_SIZE, /* line before a chunk */
	BL_REPLY_CHUNK,
	BL_REPLY_CHUNK_END,
	BL_REPLY_TRAILER,
	BL_REPLY_REST, /* body until the connection ends */
	BL_REPLY_WHOLE
};

/* The beginning of a line; what is longer is dropped, its end is not. */
struct bl_line {
	unsigned n;
	char text[BL_REPLY_LINE];
};

struct bl_reply {
	enum bl_reply_state state;
	int status;
	bool stream; /* text/event-stream */
	bool chunked;
	bool has_length;
	bool close; /* Connection: close */
	bool done; /* [DONE] came */
	uint64_t left;
	uint64_t body_bytes;
	uint64_t events; /* with data, [DONE] apart */
	struct bl_line wire; /* of head and chunk sizes */
	struct bl_line sse;
};

/*
 * Source:  RFC 9112 sections 6 and 7, as far as a load generator needs them.
 * Context: any, does not block.  event is called for each event with the
 *          stamp in its "created" (scripted-model --bulk-stamp), 0 for none.
 * Returns: 0 with the bytes used in *used: fewer than given only when the
 *          reply is whole; SP_E_PROTO.
 */
int bl_reply_feed(struct bl_reply *r, struct view v, size_t *used,
    void (*event)(void *arg, uint64_t stamp), void *arg) must_check;
/* The clock of the stamps, now. */
uint64_t bl_reply_stamp(uint64_t monotonic_us);
/* Microseconds between two stamps; 0 when the first is none, or later. */
uint64_t bl_reply_since(uint64_t stamp, uint64_t now);

#endif
