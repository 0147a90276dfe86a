/* Reads HTTP/1.1 requests: lenient where a test may want it, never unbounded. */
#ifndef SP_SM_HTTP_H
#define SP_SM_HTTP_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"

enum { SM_HTTP_HEADERS = 128 };

struct sm_header {
	struct view name; /* lower case */
	struct view value;
};

struct sm_http {
	struct arena *a; /* what the head's views point into */
	int state;
	size_t scanned; /* bytes looked at for the end of a line or head */
	size_t body_max;
	uint64_t left; /* of the body or the chunk */
	struct view method;
	struct view path; /* without the query */
	struct view target;
	struct sm_header *headers; /* room for SM_HTTP_HEADERS */
	size_t headers_n;
	struct buf body;
	bool http10;
	bool close; /* the client wants no further request */
	bool expect; /* waits for 100 Continue */
	int status; /* what to answer after an error */
};

/*
 * Source:  RFC 9112.
 * Context: any, does not block.
 * Owner:   the caller; sm_http_reset() releases a request's memory and makes
 *          ready for the next one.
 */
void sm_http_init(struct sm_http *h, size_t body_max);
void sm_http_reset(struct sm_http *h);
/*
 * Consumes what belongs to the request from in.
 * Returns: 0 when the request is whole; SP_E_AGAIN when more is needed (then
 *          expect says whether to send 100 Continue); SP_E_PROTO with status
 *          set; SP_E_NOMEM.
 */
int sm_http_feed(struct sm_http *h, struct buf *in) must_check;
/* The value of a header, VIEW_NONE when it is not there. */
struct view sm_http_header(const struct sm_http *h, const char *name);

#endif
