/*
 * One accepted HTTP/2 connection, shared by the files of the server:
 * h2_server.c owns it, h2_conn.c drives its session, h2_request.c is told what
 * came, h2_reply.c writes replies.
 */
#ifndef SP_HTTP_H2_CONN_H
#define SP_HTTP_H2_CONN_H

#include <nghttp2/nghttp2.h>
#include <sys/queue.h>

#include "http/h1_write.h"
#include "http/h2_server.h"

enum {
	H2_OUT_MAX = 64 * 1024, /* framed and not yet written, about */
	H2_LINGER_MS = 2000,
	H2_GOAWAY_MS = 1000, /* a client that does not answer the PING */
	/* queued replies of one connection; past it each stream gets less */
	H2_QUEUE_TIMES = 8,
	H2_QUEUE_SHARE = 16,
	/* frames that move nothing: so many at once, so many a second */
	H2_IDLE_BURST = 1000,
	H2_IDLE_RATE = 100,
	H2_IDLE_MOST = 8000,
	H2_IDLE_BYTES = 4096, /* of frames that nobody knows: count as one */
	/* requests that end in a reset */
	H2_RESET_BURST = 200,
	H2_RESET_RATE = 20,
	H2_RESET_MOST = 1000,
};

enum h2_phase {
	H2_HEAD, /* fields come */
	H2_OPEN, /* the consumer serves it */
	H2_REFUSED, /* the codec answers it */
	H2_OVER, /* nothing more is told */
};

struct h2_conn;

/* Owned by its connection's list; freed at the end of a turn, when it is over
 * for the consumer and for nghttp2. */
struct h2_stream {
	TAILQ_ENTRY(h2_stream) link;
	TAILQ_ENTRY(h2_stream) dirty_link;
	struct h2_conn *conn;
	struct buf out; /* of the reply's body, not yet framed */
	size_t owed; /* bytes of body handed on and not credited */
	uint64_t read_at_ms, send_at_ms; /* deadlines, 0 none */
	uint64_t end_at; /* where the reply ends in the connection's bytes */
	struct view host; /* of the Host field */
	size_t head_bytes, head_fields; /* so far */
	const char *fault; /* why it will be refused, NULL not */
	unsigned fault_status;
	int32_t id;
	enum h2_phase phase;
	enum exchange_gone broken; /* gone() is due; 0 not */
	bool dirty : 1; /* on the connection's list for this turn */
	bool expect : 1; /* the client waits for 100 */
	bool deferred : 1; /* nghttp2 waits for data */
	bool blocked : 1; /* exchange_room() was nothing */
	bool end_due : 1; /* the reply is whole */
	bool end_sent : 1; /* and its end framed */
	bool aborting : 1;
	bool reset : 1; /* RST_STREAM is on its way */
	bool closed : 1; /* nghttp2 has forgotten it */
	bool malformed : 1;
	struct exchange x;
};

TAILQ_HEAD(h2_stream_list, h2_stream);

/* Refills with time; what it holds is what a peer may still do. */
struct h2_bucket {
	uint32_t have;
	uint64_t at_ms;
};

enum h2_drain {
	H2_DRAIN_NOT,
	H2_DRAIN_TOLD, /* the first GOAWAY and a PING are out */
	H2_DRAIN_LAST, /* the second one, too */
};

/* Owned by its server's lists. */
struct h2_conn {
	TAILQ_ENTRY(h2_conn) link; /* of the server's conns, or its dead */
	TAILQ_ENTRY(h2_conn) dirty_link;
	struct h2_server *server;
	struct stream *stream;
	const struct h1_limits *limits;
	nghttp2_session *session; /* NULL while it lingers */
	struct loop_timer *timer;
	uint64_t timer_at_ms; /* 0 not set */
	uint64_t idle_at_ms, send_at_ms, drain_at_ms, linger_at_ms; /* 0 none */
	struct buf out; /* framed bytes */
	uint64_t out_all, out_done; /* bytes ever framed, written */
	struct h2_stream_list streams, dirty_streams;
	size_t streams_n;
	size_t queued; /* bytes of all streams' out */
	uint64_t requests;
	uint64_t lingered; /* bytes that came after our side was shut */
	int64_t untold; /* bytes read that nghttp2 named no frame for */
	struct h2_bucket idle, resets;
	uint64_t number;
	unsigned listener;
	enum h2_drain drain;
	bool dirty : 1;
	bool dead : 1;
	bool condemned : 1; /* nothing more is read */
	bool starved : 1; /* a stream got less room than its own */
};

TAILQ_HEAD(h2_conn_list, h2_conn);

struct h2_server {
	struct loop *loop;
	const struct exchange_consumer *consumer;
	void *arg;
	struct view (*error_body)(void *server, unsigned status,
	    const char *what, struct view *type);
	struct loop_task *task;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	struct h2_conn_list conns, dirty, dead;
	struct h2_server_stats stats;
	uint64_t date_s; /* second that date holds */
	char date[H1_WRITE_DATE_BYTES];
	bool draining;
};

/* ---- h2_server.c ---------------------------------------------------------- */

/* The connection gets its turn at the end of this turn of the loop. */
void h2_server_mark(struct h2_conn *c);
/* Closes; the struct lives until the end of the turn.  Not from nghttp2. */
void h2_server_kill(struct h2_conn *c, bool graceful);
struct view h2_server_date(struct h2_server *s);
/* nghttp2's memory is ours; for its sessions of either side. */
nghttp2_mem *h2_server_mem(void);

/* ---- h2_conn.c ------------------------------------------------------------ */

/* Sends SETTINGS and takes the first bytes. */
int h2_conn_start(struct h2_conn *c, struct view first) must_check;
void h2_conn_ready(void *arg, struct stream *s, unsigned what);
void h2_conn_deadline(void *arg);
/* End of the turn: what was queued leaves, what is due is told. */
void h2_conn_turn(struct h2_conn *c);
/* All exchanges cannot be finished any more; then the connection. */
void h2_conn_gone(struct h2_conn *c, enum exchange_gone why);
/* GOAWAY, in two steps. */
void h2_conn_drain(struct h2_conn *c);
/* The second step. */
void h2_conn_drain_last(struct h2_conn *c);
/* Something must happen in in_ms; 0 never. */
uint64_t h2_conn_after(struct h2_conn *c, uint64_t in_ms);
/* The stream is looked at at the end of the turn. */
void h2_conn_mark(struct h2_stream *s);
/* One exchange cannot be finished: told, and its bytes credited. */
void h2_conn_stream_gone(struct h2_stream *s, enum exchange_gone why);
/* Takes cost from the bucket; an empty one ends the connection. */
void h2_conn_idle_frame(struct h2_conn *c, uint32_t cost, enum h2_flood what);
void h2_conn_reset_frame(struct h2_conn *c);
/* False when there is not enough in it; rate is what comes in a second. */
bool h2_conn_take(struct h2_bucket *b, uint64_t now_ms, uint32_t cost,
    uint32_t burst, uint32_t rate);

/* ---- h2_request.c --------------------------------------------------------- */

void h2_request_callbacks(nghttp2_session_callbacks *cb);

/* ---- h2_reply.c ----------------------------------------------------------- */

extern const struct exchange_backend h2_reply_backend;
void h2_reply_callbacks(nghttp2_session_callbacks *cb);
/* Answers with a reply of the codec's own. */
void h2_reply_refuse(struct h2_stream *s, unsigned status, const char *what);
/* RST_STREAM, once; SP_E_NOMEM breaks the connection. */
void h2_reply_reset(struct h2_stream *s, uint32_t code);

#endif
