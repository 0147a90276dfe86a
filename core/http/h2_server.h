/* HTTP/2 on accepted streams (nghttp2): the back end of exchanges. */
#ifndef SP_HTTP_H2_SERVER_H
#define SP_HTTP_H2_SERVER_H

#include "event/loop.h"
#include "http/exchange.h"
#include "http/h1_server.h"
#include "net/stream.h"

struct h2_server;

enum {
	H2_STREAMS_MAX = 128, /* open at once on one connection */
	H2_CONN_WINDOW = 1024 * 1024, /* bytes of all bodies before credit */
};

/* What ended a connection with ENHANCE_YOUR_CALM. */
enum h2_flood {
	H2_FLOOD_SETTINGS,
	H2_FLOOD_PING,
	H2_FLOOD_PRIORITY,
	H2_FLOOD_WINDOW_UPDATE,
	H2_FLOOD_CONTINUATION,
	H2_FLOOD_RESET, /* requests that end in a reset */
	H2_FLOOD_EMPTY_DATA,
	H2_FLOOD_HEADERS, /* far larger than a head may be */
	H2_FLOOD_SLOW_HEAD,
	H2_FLOOD_OTHER, /* frames that are not known, bytes for nobody */
	H2_FLOODS
};
const char *h2_server_flood_name(enum h2_flood f); /* "empty_data" */

struct h2_server_stats {
	uint64_t connections; /* open now */
	uint64_t accepted;
	uint64_t exchanges; /* open now */
	uint64_t malformed; /* requests that the codec refused or reset */
	uint64_t calmed; /* connections ended with ENHANCE_YOUR_CALM */
	uint64_t resets; /* RST_STREAM frames that came */
	uint64_t floods[H2_FLOODS]; /* those that were calmed, by why */
};

/*
 * A server: one for all listeners.  consumer->open is called with server.
 * A request that the codec refuses (400, 405, 408, 414, 417, 431) is answered
 * by error_body(), see h1_server_new(); what breaks HTTP/2 itself is reset, or
 * ends the connection.
 * Source:  RFC 9113, RFC 7541 (nghttp2 reads and writes the frames).
 * Context: reactor; no blocking.
 * Owner:   the caller; consumer is borrowed for as long as it lives.
 * Returns: NULL without memory.
 */
struct h2_server *h2_server_new(struct loop *l,
    const struct exchange_consumer *consumer, void *server,
    struct view (*error_body)(void *server, unsigned status, const char *what,
	struct view *type)) must_check;
/*
 * Closes every connection; gone(SHUTDOWN) for what is open.  Not from within a
 * callback of the consumer.  NULL allowed.
 */
void h2_server_free(struct h2_server *s);
/*
 * Serves a connection of which the first bytes, the client's preface among
 * them, were read already.  body_window of the limits is each stream's window.
 * Context: from the loop: callbacks may come before it returns.
 * Parameters: st, taken, also on an error; bytes, borrowed; number, what the
 *          consumer is told of the connection; limits, borrowed for as long as
 *          the connection lives.
 * Returns: 0; SP_E_NOMEM.
 */
int h2_server_adopt(struct h2_server *s, struct stream *st, struct view bytes,
    uint64_t number, unsigned listener,
    const struct h1_limits *limits) must_check;
/*
 * Says GOAWAY everywhere: first that it is coming, then, a round trip later,
 * which request was the last.  Connections close when theirs are served.
 * Source:  RFC 9113 s6.8.
 */
void h2_server_drain(struct h2_server *s);
/* As front_shed() and front_queued(). */
void h2_server_cut(struct h2_server *s, unsigned listener);
unsigned h2_server_shed(struct h2_server *s, unsigned most);
uint64_t h2_server_queued(const struct h2_server *s);
void h2_server_stats(const struct h2_server *s, struct h2_server_stats *out);

#endif
