/* HTTP/1.1 on the wire, written. */
#ifndef SP_HTTP_H1_WRITE_H
#define SP_HTTP_H1_WRITE_H

#include "http/head.h"

/* What the connection adds to a reply's head. */
struct h1_write_reply {
	bool chunked;
	bool close; /* Connection: close */
	bool keep_alive; /* Connection: keep-alive, to HTTP/1.0 */
	struct view upgrade; /* Upgrade, and Connection: Upgrade; empty none */
	struct view date; /* value of Date */
};

/* A request's head. */
struct h1_write_request {
	struct view method, host;
	struct view base; /* before the target; empty none */
	struct view target; /* "/" is put in where both begin no path */
	const struct head_fields *fields; /* framing and hop-by-hop are left
					     out; NULL none */
	uint64_t body_bytes;
};

enum { H1_WRITE_DATE_BYTES = 30 };

/*
 * Source:  RFC 9112 s4, s5, s6, s7.1; RFC 9110 s5.6.7 (date).
 * Context: any, does not block.
 * Returns: 0; SP_E_NOMEM or SP_E_LIMIT, and the buffer is as before;
 *          SP_E_SYNTAX (request) method, base, target or host would break the
 *          line.
 */
int h1_write_reply_head(struct buf *b, const struct head_reply *head,
    const struct h1_write_reply *form) must_check;
int h1_write_request_head(struct buf *b,
    const struct h1_write_request *rq) must_check;
/* The same in two parts: request line and Host, then everything else. */
int h1_write_request_line(struct buf *b,
    const struct h1_write_request *rq) must_check;
int h1_write_request_rest(struct buf *b,
    const struct h1_write_request *rq) must_check;
/* One chunk of all pieces; nothing when they are empty. */
int h1_write_chunk(struct buf *b, const struct view *v, size_t n) must_check;
int h1_write_last_chunk(struct buf *b) must_check;
/* "Sun, 06 Nov 1994 08:49:37 GMT" into H1_WRITE_DATE_BYTES, with a NUL. */
void h1_write_date(uint64_t wall_us, char *out);

#endif
