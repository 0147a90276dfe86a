/*
 * One request and its reply, seen from the server's side: two half-streams
 * under one interface, whatever protocol carries them.  A back end (HTTP/1.1,
 * HTTP/2, a test) produces exchanges; a consumer (the gate) serves them.
 */
#ifndef SP_HTTP_EXCHANGE_H
#define SP_HTTP_EXCHANGE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/view.h"
#include "http/head.h"

struct exchange;

/* Why an exchange ended early. */
enum exchange_gone {
	EXCHANGE_GONE_RESET = 1, /* the peer reset or closed */
	EXCHANGE_GONE_TIMEOUT, /* no progress: body or reply */
	EXCHANGE_GONE_MALFORMED, /* the request body broke the protocol */
	EXCHANGE_GONE_SHUTDOWN, /* the server is being torn down */
	EXCHANGE_GONE_NOMEM,
};

/*
 * What a consumer is told.  All callbacks come from the loop, never from
 * within an exchange_* call.  After gone() or done() the consumer may not
 * touch the exchange again (its arena is freed on return).
 */
struct exchange_consumer {
	/* The head is whole.  x->user is the consumer's to set. */
	void (*open)(void *server, struct exchange *x);
	/*
	 * A piece of the request body, borrowed.  The producer sends at most
	 * the window; exchange_credit() opens it again when the bytes were
	 * consumed.
	 */
	void (*body)(struct exchange *x, struct view data);
	/* The request is whole. */
	void (*body_end)(struct exchange *x);
	/* exchange_room() has risen from nothing to at least half. */
	void (*writable)(struct exchange *x);
	/* The reply, its end included, was handed to the transport. */
	void (*done)(struct exchange *x);
	/* It cannot be finished any more. */
	void (*gone)(struct exchange *x, enum exchange_gone why);
};

/* What a back end provides; argument checks were done by exchange_*. */
struct exchange_backend {
	const char *name; /* "h1", "h2": for logs and metrics only */
	int (*interim)(struct exchange *x, unsigned status);
	int (*head)(struct exchange *x, const struct head_reply *head);
	int (*data)(struct exchange *x, const struct view *v, size_t n);
	int (*end)(struct exchange *x);
	void (*reset)(struct exchange *x);
	void (*credit)(struct exchange *x, size_t n);
	size_t (*room)(const struct exchange *x);
	size_t (*queued)(const struct exchange *x); /* NULL: nothing ever */
	void (*drop)(struct exchange *x); /* NULL: as reset */
	/* NULL: nothing can be upgraded */
	int (*upgrade)(struct exchange *x, const struct head_reply *head);
};

enum exchange_state {
	EXCHANGE_REQUEST, /* no reply yet */
	EXCHANGE_HEAD, /* head of the reply sent */
	EXCHANGE_ENDED, /* reply's end sent */
};

struct exchange {
	struct arena *arena;
	struct head_request request;
	const char *peer; /* "192.0.2.1:4711" */
	uint64_t connection; /* its number, for logs */
	void *guest; /* given with the connection: front_accept() */
	unsigned listener; /* conf_listen.index that accepted it */
	uint64_t started_us; /* loop time when the first byte came */
	enum exchange_state state; /* of the reply */
	bool request_whole;
	bool upgraded; /* bytes both ways, of no message of HTTP */
	int64_t reply_length; /* of the head that was sent; -1 not known */
	bool reply_bodyless; /* HEAD, 204, 304: no data may follow the head */
	uint64_t sent_bytes; /* of the reply's body */
	struct view probe; /* see exchange_set_probe() */
	bool patient; /* the consumer's: silence has no deadline, to the end */
	const struct exchange_backend *backend;
	const struct exchange_consumer *consumer;
	void *server; /* the consumer's, given to the back end's server */
	void *user; /* the consumer's, for this exchange */
	void *back; /* the back end's */
};

/*
 * Context: reactor; no blocking; none of them calls the consumer back before
 *          it returns.
 * Returns: 0; SP_E_STATE out of order (a second head, data after the end, more
 *          than content_length); SP_E_GONE the peer is away (gone() follows);
 *          SP_E_NOMEM (gone() follows).
 */
/* 100 Continue, when the client waits for it; else nothing happens. */
int exchange_continue(struct exchange *x) must_check;
/*
 * Opens the reply.  content_length >= 0: data must add up to it (HEAD requests
 * send none).  -1: delimited by the protocol (chunked, DATA frames, close).
 * Fields are copied.  The back end adds framing, Date and Connection.
 */
int exchange_head(struct exchange *x, const struct head_reply *head) must_check;
/*
 * Takes what x->request.upgrade asks for: from now on body() and
 * exchange_data() are bytes of that protocol, until body_end(), when the client
 * has ended its side, and exchange_end().  There are no deadlines any more:
 * x->patient is set.  A request whose end was told already (a GET has no body)
 * goes on: body() comes, and body_end() a second time.
 * Source:  RFC 9110 s7.8 (101), RFC 8441 s5 (200).
 * Parameters: head, its fields; the status is the protocol's.
 * Returns: SP_E_STATE also when nothing was asked for, or the request has a
 *          body; SP_E_UNSUPPORTED.
 */
int exchange_upgrade(struct exchange *x,
    const struct head_reply *head) must_check;
/*
 * Queues bytes of the body, copied where the transport does not take them at
 * once.  Everything is taken; the consumer honours exchange_room().  Pieces
 * queued in one turn of the loop leave in one write.
 */
int exchange_data(struct exchange *x, struct view data) must_check;
int exchange_datav(struct exchange *x, const struct view *v,
    size_t n) must_check;
int exchange_end(struct exchange *x) must_check;
/* A whole small reply: head, body, end; Content-Type given. */
int exchange_simple(struct exchange *x, unsigned status, struct view type,
    struct view body) must_check;
/*
 * Ends it so that the client sees that it is not whole: h1 closes without the
 * last chunk, h2 resets the stream.  Queued bytes are sent first.  gone() is
 * called with EXCHANGE_GONE_RESET.
 */
void exchange_abort(struct exchange *x);
/*
 * The same at once: what is queued is thrown away, also of a reply that was
 * ended.  gone() is called with EXCHANGE_GONE_NOMEM.
 */
void exchange_drop(struct exchange *x);
/* Opens the window for n more bytes of the request body. */
void exchange_credit(struct exchange *x, size_t n);
/*
 * Bytes of reply that may be queued before the producer should pause.  Zero
 * after everything was taken: writable() follows.
 */
size_t exchange_room(const struct exchange *x);
/* Bytes of the reply that the client has not taken. */
size_t exchange_queued(const struct exchange *x);
/*
 * Harmless bytes that may be inserted now into the reply's body (a comment
 * line, between events): sent when the client has ended its side, to find out
 * whether it is only half closed.  Before the head 100 Continue serves.
 * Empty: none.  Borrowed: literals, or memory that lives as long as x.
 */
void exchange_set_probe(struct exchange *x, struct view bytes);

#endif
