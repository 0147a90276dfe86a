/*
 * Server-sent events out of a byte stream, cut anywhere.
 * Source: WHATWG HTML s9.2 (event stream interpretation), cases A1 to A14.
 */
#ifndef SP_HTTP_SSE_H
#define SP_HTTP_SSE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

enum sse_flags {
	SSE_DATA = 1 << 0, /* has a data field that is not empty */
	SSE_COMMENT = 1 << 1, /* has at least one comment line */
	SSE_ERROR = 1 << 2, /* has a field named `error` */
	SSE_NAMED = 1 << 3, /* has an event field */
	SSE_ONE_LINE = 1 << 4, /* exactly one data line: data lies in raw */
	SSE_BLANK = 1 << 5, /* nothing but line ends */
};

/* Everything is borrowed until the callback returns. */
struct sse_event {
	struct view raw; /* its bytes as they came, line ends included */
	struct view data; /* data lines joined by LF */
	struct view error; /* value of an `error` field */
	struct view name; /* value of the event field */
	size_t data_at; /* SSE_ONE_LINE: offset of data within raw */
	unsigned flags;
};

struct sse {
	struct buf pending; /* bytes of an event that is not whole */
	struct buf joined; /* data of several lines */
	size_t max;
	size_t line_at, line_end; /* first line of the event, in its raw */
	unsigned lines; /* whole lines of it, 2 for more */
	unsigned bom_n; /* bytes of a byte order mark seen, 3 when decided */
	bool line_start; /* the next byte begins a line */
	bool event_start; /* no line of the event in hand is whole or begun */
	bool comment; /* the line begun is a comment and may go alone */
	bool after_cr; /* a LF here belongs to the line end before */
	bool crlf; /* the line end before was CR LF */
	bool hold; /* event ended by CR; waits to see whether LF follows */
};

/*
 * Context: reactor; no blocking.
 * Parameters: max_bytes, the longest event.
 * Returns: sse_feed: 0; SP_E_LIMIT an event is longer; SP_E_NOMEM; or what cb
 *          returned if not 0, which stops it (sse_clear() is all that may
 *          follow).
 * The raw bytes of all events together are the stream less a leading byte
 * order mark, and the events are the same however it was cut.  A comment line
 * alone, ended by one line end, is handed on at once as an event of its own
 * when nothing of another event is pending before it; so is a blank line.
 *
 * An event ends with the CR of its blank line and is handed on at once; a LF
 * after it is the first raw byte of the next.  Only in a stream whose line
 * before ended with CR LF the LF is waited for, so that the usual CR LF CR LF
 * stays in one piece.
 */
void sse_init(struct sse *s, size_t max_bytes);
void sse_clear(struct sse *s);
int sse_feed(struct sse *s, struct view bytes,
    int (*cb)(void *arg, const struct sse_event *e), void *arg) must_check;
/* The bytes of an unfinished event, at the end of the stream. */
struct view sse_rest(const struct sse *s);

#endif
