/*
 * A back end of exchanges that multiplexes: many streams on one connection,
 * each with a window of its own and all under the connection's, frames of
 * bounded size taken from the streams in turn.  HTTP/2's shape without its
 * bytes: proof that nothing in exchange.h needs HTTP/1.1.
 */
#ifndef SP_T_UNIT_MUX_BACKEND_H
#define SP_T_UNIT_MUX_BACKEND_H

#include "http/exchange.h"

enum { MUX_STREAMS = 16 };

struct mux_stream {
	struct exchange x;
	struct mux *mux;
	unsigned id; /* 0 unused */
	/* request: client to server */
	struct buf up; /* sent and not yet delivered */
	size_t up_window; /* bytes the consumer takes now */
	bool up_ended, opened, body_ended;
	/* reply: server to client */
	struct buf down; /* queued, not yet framed */
	size_t down_window; /* of this stream */
	bool head_due, end_due, blocked, aborting, broken, over;
	/* what the client got */
	unsigned status;
	unsigned interims;
	struct buf got;
	bool got_head, got_end, got_reset;
	char session[64]; /* Mcp-Session-Id of the reply */
};

struct mux {
	const struct exchange_consumer *consumer;
	void *server;
	size_t window; /* of the connection, server to client */
	size_t first_window; /* of a new stream, both ways */
	size_t frame_max;
	size_t output_max; /* exchange_room() of an idle stream */
	struct buf wire; /* order of frames: "1:abc 3:de " */
	struct mux_stream streams[MUX_STREAMS];
};

void mux_init(struct mux *m, const struct exchange_consumer *consumer,
    void *server, size_t window, size_t first_window);
void mux_clear(struct mux *m);
/* The client opens a stream; NULL without memory. */
struct mux_stream *mux_open(struct mux *m, const char *method, const char *path,
    bool body);
void mux_send(struct mux_stream *s, struct view data, bool end);
void mux_reset(struct mux_stream *s); /* by the client */
void mux_grant(struct mux *m, struct mux_stream *s, size_t n); /* NULL: all */
/* One turn of the loop: false when nothing was left to do. */
bool mux_turn(struct mux *m);

#endif
