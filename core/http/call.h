/*
 * One request to an upstream and its reply, seen from the client's side.
 */
#ifndef SP_HTTP_CALL_H
#define SP_HTTP_CALL_H

#include "base/err.h"
#include "base/view.h"
#include "event/loop.h"
#include "http/head.h"
#include "net/pool.h"

struct call;

/* How a call failed. */
enum call_failure {
	CALL_CONNECT = 1, /* no connection: pool_lease_why() */
	CALL_CONNECT_TIMEOUT,
	CALL_SEND, /* broken while sending */
	CALL_SEND_TIMEOUT,
	CALL_FIRST_TIMEOUT, /* no head in time */
	CALL_READ_TIMEOUT, /* silence, see call_progress() */
	CALL_BROKEN, /* closed or reset before the reply was whole */
	CALL_MALFORMED, /* not HTTP */
	CALL_ENCODING, /* content coding broken, or a bomb */
	CALL_NOMEM,
};

/* From the loop only.  After end() or fail() the call is gone. */
struct call_owner {
	/* The final head (interim ones are swallowed).  Fields without framing
	 * and hop-by-hop; the head lives as long as the call. */
	void (*head)(void *arg, struct call *c, const struct head_reply *head);
	/* Body bytes, de-chunked and decoded, borrowed. */
	void (*body)(void *arg, struct call *c, struct view data);
	/*
	 * The reply is whole.  delimited: its end was marked (length, last
	 * chunk), false when only the connection's close ended it.
	 */
	void (*end)(void *arg, struct call *c, bool delimited);
	/* It failed; text says it in words (borrowed). */
	void (*fail)(void *arg, struct call *c, enum call_failure why,
	    const char *text);
	void *arg;
};

struct call_params {
	struct pool *pool;
	struct view affinity; /* key for pool_get(), copied */
	struct view method; /* copied, as the target */
	struct view target; /* path and query, behind the server's base */
	/*
	 * A health check: of the server in that slot alone, on a connection of
	 * its own, without its base and with no bearing on whether it rests.
	 */
	bool check;
	size_t slot;
	const struct head_fields *fields; /* Content-Length is added; copied */
	struct view body; /* whole; must stay until head() or fail() */
	uint64_t send_timeout_ms;
	uint64_t first_byte_timeout_ms; /* 0 off */
	uint64_t
	    read_timeout_ms; /* no server is asked later than that, either */
	bool manual_progress; /* only call_progress() pushes the read deadline
				 back, else every body byte does */
	uint64_t header_max; /* of the reply's head */
	size_t decoded_max; /* one feed of a content decoder */
};

struct call_times {
	uint64_t connected_us, sent_us, head_us; /* loop time; 0 not yet */
};

/*
 * Source:  RFC 9110, RFC 9112, RFC 9113.
 * Starts a call, over whichever version the pool's connection speaks.  One
 * that was idle before and turns out closed is retried once on a fresh one to
 * the same server, only while no byte of the reply came; what an HTTP/2 server
 * says that it did not process, up to ten times.  A server that breaks off a
 * fresh one before a byte, or takes no byte of the request in time, rests, and
 * another one is asked, each once.  One whose reply has no head, or none in
 * time, rests as well, and nobody else is asked.
 * Content codings that can be decoded are (and Content-Encoding removed);
 * unknown ones pass with their field.  Accept-Encoding: identity is sent
 * unless the fields have one.
 * Context: reactor; no callback before it returns.
 * Owner:   the call is its own until end(), fail() or call_cancel().
 * Returns: 0; SP_E_NOMEM; SP_E_SYNTAX method or target would break the request
 *          line.
 */
int call_start(struct loop *l, const struct call_params *params,
    const struct call_owner *owner, struct call **out) must_check;
/*
 * Stops reading the reply (back-pressure), and goes on.  What one read gave,
 * at most LOOP_SCRATCH_BYTES before decoding, is still handed on.  The read
 * deadline rests meanwhile.
 */
void call_pause(struct call *c, bool paused);
/* The peer made progress: pushes the read deadline back. */
void call_progress(struct call *c);
/*
 * Closes the upstream connection at once, or the stream where others use the
 * connection, too (reset); no callback follows.  Also from within a callback
 * of the call.
 */
void call_cancel(struct call *c);
void call_times(const struct call *c, struct call_times *out);
bool call_reused(const struct call *c);

#endif
