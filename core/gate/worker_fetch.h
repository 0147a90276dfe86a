/*
 * One request to an MCP server over HTTP, and its reply: a message, a stream
 * of them, or a status.
 * Source: MCP 2025-11-25, Streamable HTTP; WHATWG HTML s9.2.
 */
#ifndef SP_GATE_WORKER_FETCH_H
#define SP_GATE_WORKER_FETCH_H

#include "http/call.h"
#include "http/sse.h"

enum {
	WORKER_FETCH_ID_MAX = 1024, /* of an event's id, of a session's */
	WORKER_FETCH_TEXT_MAX = 64 * 1024, /* of an error's body */
	WORKER_FETCH_RETRY_MAX_MS = 30 * 1000,
};

struct worker_fetch;

enum worker_fetch_failure {
	WORKER_FETCH_BROKE = 1, /* the connection, or there was none */
	WORKER_FETCH_BAD, /* no HTTP, another content type, too long */
	WORKER_FETCH_NOMEM,
};

/*
 * From the loop only.  After end() or failed() it is over, and may be freed or
 * started again there; within the other two it may only be stopped.
 */
struct worker_fetch_owner {
	/* The head came; f->status and f->events are known. */
	void (*head)(void *arg, const struct head_reply *head);
	/* A whole message, borrowed. */
	void (*message)(void *arg, struct view json);
	/* f->body: of a status that is none of 2xx, cut. */
	void (*end)(void *arg);
	void (*failed)(void *arg, enum worker_fetch_failure why,
	    const char *text);
	void *arg;
};

/* What several of them may hold together, of messages that are not whole. */
struct worker_fetch_room {
	size_t used, max; /* bytes */
};

struct worker_fetch {
	struct call *call; /* NULL: it is over */
	struct loop *loop;
	struct worker_fetch_owner owner;
	struct worker_fetch_room *room;
	size_t held; /* of that */
	unsigned status; /* 0: no head yet */
	bool events; /* the reply is a stream of events */
	bool json; /* it is one message */
	bool note;
	struct sse sse;
	struct buf chunk; /* what was read last */
	struct buf body;
	struct buf id; /* of the last event that had one */
	uint64_t retry_ms; /* as the server wants it; 0 it did not say */
	uint64_t heard; /* messages */
};

struct worker_fetch_ask {
	struct pool *pool;
	struct view body; /* to be posted, borrowed to the end; empty: GET */
	struct view session, version; /* empty: the field is left out */
	uint64_t first_ms; /* without a head; 0 for ever */
	bool note; /* no message is expected, and none is told */
};

/* Owner: the caller, room borrowed; worker_fetch_clear() stops it, too. */
void worker_fetch_init(struct worker_fetch *f, struct loop *l,
    struct worker_fetch_room *room, const struct worker_fetch_owner *owner);
void worker_fetch_clear(struct worker_fetch *f);
/*
 * Asks /mcp; with GET f->id is the event to go on from.
 * Context: reactor's loop; no callback before it returns.
 * Returns: 0; SP_E_NOMEM; SP_E_SYNTAX session or version is no field's value.
 */
int worker_fetch_start(struct worker_fetch *f,
    const struct worker_fetch_ask *ask) must_check;
void worker_fetch_pause(struct worker_fetch *f, bool on);
/* No callback follows; also from within one. */
void worker_fetch_stop(struct worker_fetch *f);

#endif
