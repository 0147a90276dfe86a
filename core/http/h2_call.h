/*
 * One request on a connection that others use, too, and its reply: what
 * pool_lease_share() gives.  It is over with the lease.
 */
#ifndef SP_HTTP_H2_CALL_H
#define SP_HTTP_H2_CALL_H

#include "base/arena.h"
#include "base/err.h"
#include "base/view.h"
#include "http/head.h"

struct h2_call;

enum h2_call_failure {
	H2_CALL_REFUSED = 1, /* the server did not process it (s8.7) */
	H2_CALL_STALE, /* an idle connection that turned out to be closed */
	H2_CALL_BROKEN, /* reset, closed, or not as long as announced */
	H2_CALL_MALFORMED, /* not HTTP/2, or against its rules */
	H2_CALL_NOMEM,
};

/* From the loop only.  The lease may be released from within each. */
struct h2_call_owner {
	/* The server's socket took bytes of the request; the last of them. */
	void (*sent)(void *arg, bool whole);
	/* The final head is in request.reply; last: no body follows. */
	void (*head)(void *arg, bool last);
	void (*body)(void *arg, struct view data); /* borrowed */
	void (*end)(void *arg); /* END_STREAM; nothing follows */
	/* It failed; nothing follows.  text is static. */
	void (*fail)(void *arg, enum h2_call_failure why, const char *text);
};

struct h2_call_request {
	struct view method, authority;
	struct view base, target; /* :path in two parts */
	struct view lines; /* fields as HTTP/1.1 writes them, up to and with
			      the empty line; none of them hop-by-hop */
	struct view body; /* must stay until h2_call_stop(), or the end */
	bool head_request;
	struct head_reply *reply; /* filled */
	struct arena *arena; /* for its fields */
	uint64_t header_max; /* of its head, and of its trailers */
	size_t fields_max;
};

/*
 * Source:  RFC 9113 s8.1, s8.3.1.
 * Context: reactor, no callback before it returns.
 * Owner:   everything of rq but the body, reply and arena is copied.
 * Returns: 0, also when the connection was lost meanwhile (fail() follows);
 *          SP_E_NOMEM.
 */
int h2_call_send(struct h2_call *s, const struct h2_call_request *rq,
    const struct h2_call_owner *owner, void *arg) must_check;
/* Nothing of the body is handed on while paused: the window closes. */
void h2_call_pause(struct h2_call *s, bool paused);
/* The rest of the request's body is not sent, and not touched any more. */
void h2_call_stop(struct h2_call *s);

#endif
