/*
 * One HTTP/2 connection to a server and the calls on it, shared by the files
 * of the client: h2_client.c owns it, h2_link.c drives its session, h2_call.c
 * sends requests, h2_answer.c is told what came.
 */
#ifndef SP_HTTP_H2_LINK_H
#define SP_HTTP_H2_LINK_H

#include "http/h2_call.h"
#include "http/h2_client.h"
#include "http/h2_conn.h"

enum {
	H2_LINK_OUT_MAX = 64 * 1024, /* framed and not yet written, about */
	H2_LINK_STREAMS_MAX = 1000, /* a server that allows more gets another
				       connection */
	H2_LINK_STREAM_WINDOW = 256 * 1024, /* what a paused call holds */
	H2_LINK_WINDOW = 4 << 20,
	H2_LINK_PING_MS = 30000, /* silence after a call was given up */
	H2_LINK_SETTINGS_COST = 10,
	H2_LINK_INTERIM_MAX = 64, /* 1xx before the final head */
	H2_LINK_BOMB_TIMES = 4, /* a head this much too large ends it all */
	H2_LINK_HEADER_BLOCK_MAX = 1 << 20, /* of a request */
};

enum h2_call_phase {
	H2_CALL_ROOM, /* nothing sent: a place that is kept */
	H2_CALL_HEAD, /* waits for the final head */
	H2_CALL_BODY,
	H2_CALL_ENDED, /* END_STREAM came */
};

struct h2_link;

/*
 * Owned by its connection's list.  Freed at the end of a turn, when its lease
 * and nghttp2 are done with it.
 */
struct h2_call {
	TAILQ_ENTRY(h2_call) link;
	TAILQ_ENTRY(h2_call) dirty_link;
	TAILQ_ENTRY(h2_call) sending_link;
	struct h2_link *conn;
	const struct h2_call_owner *owner; /* NULL: nobody is told */
	void *arg;
	struct head_reply *reply;
	struct arena *arena;
	struct view body; /* the request's; the caller's memory */
	size_t body_at;
	struct buf in; /* came while paused */
	/* in the connection's bytes: where its first frame begins, the end of
	 * the oldest one that is not written yet (0 none), of the last one */
	uint64_t first_at, next_at, mark_at;
	uint64_t header_max;
	size_t fields_max;
	size_t head_bytes, head_fields; /* of the head that comes */
	unsigned interims;
	int32_t id; /* 0 none yet */
	enum h2_call_phase phase;
	enum h2_call_failure fault; /* fail() is due; 0 not */
	const char *text; /* of it */
	bool dirty : 1;
	bool sending : 1; /* on that list */
	bool began : 1; /* its HEADERS are framed */
	bool framed : 1; /* END_STREAM of ours, too */
	bool deferred : 1; /* nghttp2 waits for data that will not come */
	bool stopped : 1;
	bool paused : 1;
	bool peer_reset : 1;
	bool reset : 1; /* RST_STREAM is on its way */
	bool left : 1; /* the lease is over */
	bool closed : 1; /* nghttp2 has forgotten it */
};

TAILQ_HEAD(h2_call_list, h2_call);

/* Owned by its client's lists. */
struct h2_link {
	TAILQ_ENTRY(h2_link) link; /* of the client's links, or its dead */
	TAILQ_ENTRY(h2_link) dirty_link;
	struct h2_client *client;
	size_t server;
	struct stream *stream; /* NULL once it is dead */
	nghttp2_session *session;
	struct loop_timer *timer;
	uint64_t idle_at_ms, ping_at_ms; /* 0 none */
	struct buf out; /* framed bytes */
	uint64_t out_all, out_done; /* bytes ever framed, written */
	struct h2_call_list calls, dirty_calls, sending;
	size_t calls_n;
	uint64_t requests;
	int64_t untold; /* bytes read that nghttp2 named no frame for */
	struct h2_bucket idle; /* what is left of frames that move nothing */
	const char *breach; /* what the server did against the protocol */
	bool tls : 1;
	bool dirty : 1;
	bool dead : 1;
	bool condemned : 1; /* nothing more is read */
	bool mute : 1; /* framed bytes are missing: nothing more is written */
	bool settled : 1; /* SETTINGS came */
	bool going : 1; /* GOAWAY came */
	bool kept : 1; /* was idle when its first call came */
	bool heard : 1; /* something came since */
};

TAILQ_HEAD(h2_link_list, h2_link);

struct h2_client {
	struct pool_sharer sharer;
	struct loop *loop;
	char *name;
	bool always;
	uint64_t keepalive_timeout_ms, header_max;
	uint32_t streams_max; /* what the last SETTINGS allowed; 0 none came */
	uint64_t without; /* servers that do not speak it, a bit each */
	struct loop_task *task;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	struct h2_link_list links, dirty, dead;
	struct h2_client_stats stats;
};

/* ---- h2_client.c ---------------------------------------------------------- */

/* The connection gets its turn at the end of this turn of the loop. */
void h2_client_mark(struct h2_link *c);
/* Closes; the struct lives until its calls have left.  Not from nghttp2. */
void h2_client_bury(struct h2_link *c, bool graceful);

/* ---- h2_link.c ------------------------------------------------------------ */

/* Sends SETTINGS.  On an error the stream is still the caller's. */
int h2_link_start(struct h2_link *c) must_check;
/* Whether another call may be put on it. */
bool h2_link_has_room(const struct h2_link *c);
/* A place for one; NULL without memory. */
struct h2_call *h2_link_reserve(struct h2_link *c);
void h2_link_ready(void *arg, struct stream *s, unsigned what);
void h2_link_deadline(void *arg);
void h2_link_turn(struct h2_link *c);
/* The end of the connection and of all calls on it.  Not from nghttp2. */
void h2_link_lost(struct h2_link *c, const char *text);
/* The call is looked at at the end of the turn. */
void h2_link_mark(struct h2_call *s);
/* GOAWAY, and nothing more is read. */
void h2_link_condemn(struct h2_link *c, uint32_t code, const char *breach);
/* nghttp2 has ended it for what the server did; it need not have said what. */
void h2_link_breach(struct h2_link *c);
/* Takes cost from what the server may do for nothing. */
void h2_link_idle_frame(struct h2_link *c, uint32_t cost);
/* The call cannot go on: told at the end of the turn, the stream is reset. */
void h2_link_fault(struct h2_call *s, enum h2_call_failure why,
    const char *text, uint32_t code);
/* RST_STREAM, once. */
void h2_link_reset(struct h2_call *s, uint32_t code);
/* The lease is over. */
void h2_link_leave(struct h2_call *s);

/* ---- h2_call.c, h2_answer.c ----------------------------------------------- */

void h2_call_callbacks(nghttp2_session_callbacks *cb);
void h2_answer_callbacks(nghttp2_session_callbacks *cb);

#endif
