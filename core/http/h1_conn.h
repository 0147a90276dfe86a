/*
 * One accepted HTTP/1.1 connection, shared by the files of the server:
 * h1_server.c owns it, h1_conn.c reads requests, h1_reply.c writes replies.
 */
#ifndef SP_HTTP_H1_CONN_H
#define SP_HTTP_H1_CONN_H

#include <sys/queue.h>

#include "http/exchange.h"
#include "http/h1_parse.h"
#include "http/h1_server.h"
#include "http/h1_write.h"

enum {
	H1_DRAIN_MAX =
	    256 * 1024, /* of a body nobody wants, read for the next */
	H1_LINGER_MS = 2000,
};

enum h1_phase {
	H1_IDLE, /* between requests */
	H1_HEAD, /* a head has begun */
	H1_OPEN, /* an exchange is being served */
	H1_DRAIN, /* the reply is out, its request's body still comes */
	H1_FLUSH, /* the last bytes are queued; nothing is read */
	H1_LINGER, /* our side is shut; reads and discards */
	H1_DEAD, /* closed; freed at the end of the turn */
};

/*
 * Owned by its server's lists.  Small on purpose: thousands of streams are
 * open at once, and what a stream does not need between two events (read and
 * write buffers) is not kept.
 */
struct h1_conn {
	TAILQ_ENTRY(h1_conn) link; /* of the server's conns, or its dead */
	TAILQ_ENTRY(h1_conn) dirty_link;
	struct h1_server *server;
	struct stream *stream;
	const struct h1_limits *limits;
	struct loop_timer *timer; /* for the nearest of the deadlines */
	uint64_t read_at_ms, send_at_ms, probe_at_ms; /* 0 none */
	uint64_t probe_ms; /* between the last probe and the next */
	uint64_t window; /* bytes of body the consumer takes now */
	uint64_t drained; /* bytes of body thrown away */
	uint64_t requests;
	struct buf in; /* bytes that nobody could use yet */
	struct buf out;
	struct h1_scan scan;
	struct h1_body body;
	enum h1_phase phase;
	enum exchange_gone broken; /* gone() is due; 0 not */
	bool dirty : 1; /* on the server's list for this turn */
	bool keep_alive : 1; /* what the request allows */
	bool keep : 1; /* what the reply says */
	bool continue_due : 1; /* the client waits for 100 */
	bool in_eof : 1; /* the client has ended its side */
	bool chunked : 1; /* the reply */
	bool to_close : 1; /* the reply ends with the connection */
	bool blocked : 1; /* exchange_room() was nothing */
	bool aborting : 1;
	bool progress : 1; /* bytes of the body came */
	struct exchange x; /* while H1_OPEN */
};

TAILQ_HEAD(h1_conn_list, h1_conn);

struct h1_server {
	struct loop *loop;
	const struct exchange_consumer *consumer;
	void *arg;
	struct view (*error_body)(void *server, unsigned status,
	    const char *what, struct view *type);
	struct loop_task *task;
	struct h1_conn_list conns, dirty, dead;
	struct h1_server_stats stats;
	uint64_t date_s; /* second that date holds */
	char date[H1_WRITE_DATE_BYTES];
	bool draining;
};

/* ---- h1_server.c ---------------------------------------------------------- */

/* The connection gets its turn at the end of this turn of the loop. */
void h1_server_mark(struct h1_conn *c);
/* Closes; the struct lives until the end of the turn. */
void h1_server_kill(struct h1_conn *c, bool graceful);
struct view h1_server_date(struct h1_server *s);

/* ---- h1_conn.c: all from the loop ----------------------------------------- */

/* first: bytes that were read already. */
void h1_conn_start(struct h1_conn *c, struct view first);
/* A deadline in_ms from now; 0, none, for 0. */
uint64_t h1_conn_after(const struct h1_conn *c, uint64_t in_ms);
void h1_conn_ready(void *arg, struct stream *s, unsigned what);
void h1_conn_deadline(void *arg);
/* End of the turn: what was queued leaves, what is due is told. */
void h1_conn_turn(struct h1_conn *c);
/* The exchange, if one is open, cannot be finished; then the connection. */
void h1_conn_gone(struct h1_conn *c, enum exchange_gone why);

/* ---- h1_reply.c ----------------------------------------------------------- */

extern const struct exchange_backend h1_reply_backend;
/* Queues a reply of the codec's own, the last one. */
void h1_reply_refuse(struct h1_conn *c, unsigned status, const char *what);
/* Writes what is queued: 0, also when it did not all fit; SP_E_GONE... */
int h1_reply_flush(struct h1_conn *c) must_check;
/* Asks a client that ended its side whether it still listens. */
void h1_reply_probe(struct h1_conn *c);

#endif
