/* HTTP/1.1 (and 1.0) on accepted streams: the back end of exchanges. */
#ifndef SP_HTTP_H1_SERVER_H
#define SP_HTTP_H1_SERVER_H

#include "event/loop.h"
#include "http/exchange.h"
#include "net/stream.h"

struct h1_server;

/* Timeouts of 0 are off, but for keepalive_timeout_ms: no keep-alive. */
struct h1_limits {
	uint64_t header_timeout_ms; /* first byte to the head's end */
	uint64_t body_timeout_ms; /* between two reads of the body */
	uint64_t send_timeout_ms; /* no progress in sending */
	uint64_t keepalive_timeout_ms;
	uint64_t keepalive_requests;
	uint64_t header_line_max;
	uint64_t header_max;
	uint64_t header_max_n;
	uint64_t output_buffer;
	uint64_t body_window; /* bytes of body before credit is needed */
};

struct h1_server_stats {
	uint64_t connections; /* open now */
	uint64_t accepted;
	uint64_t exchanges; /* open now */
	uint64_t malformed; /* requests answered by the codec itself */
};

/*
 * A server: one for all listeners.  consumer->open is called with server.
 * A request that the codec refuses (400, 405, 408, 414, 417, 431, 501, 505) is
 * answered by error_body(status): text of the body, type in *type (the gate
 * gives an OpenAI error object); both are copied before it is called again.
 * Source:  RFC 9112.
 * Context: reactor; no blocking.
 * Owner:   the caller; consumer is borrowed for as long as it lives.
 * Returns: NULL without memory.
 */
struct h1_server *h1_server_new(struct loop *l,
    const struct exchange_consumer *consumer, void *server,
    struct view (*error_body)(void *server, unsigned status, const char *what,
	struct view *type)) must_check;
/*
 * Closes every connection; gone(SHUTDOWN) for what is open.  Not from within a
 * callback of the consumer.  NULL allowed.
 */
void h1_server_free(struct h1_server *s);
/*
 * Serves a new connection; the descriptor is taken, also on an error.  limits
 * are copied by reference: they must outlive the connection.
 * Context: reactor; no blocking; no callback before it returns.
 * Parameters: tls, NULL plain; listener, told to the consumer.
 * Returns: 0; SP_E_NOMEM; SP_E_SYS; SP_E_TLS.
 */
int h1_server_accept(struct h1_server *s, int fd, struct tls_ctx *tls,
    unsigned listener, const struct h1_limits *limits) must_check;
/*
 * The same for a stream of which the first bytes were read already.
 * Context: from the loop: callbacks may come before it returns.
 * Parameters: st, taken, also on an error; bytes, borrowed; number, what the
 *          consumer is told of the connection.
 * Returns: 0; SP_E_NOMEM.
 */
int h1_server_adopt(struct h1_server *s, struct stream *st, struct view bytes,
    uint64_t number, unsigned listener,
    const struct h1_limits *limits) must_check;
/*
 * Answers with a 400 of the codec's own at once, and serves nothing; the rest
 * as h1_server_adopt().
 */
int h1_server_refuse(struct h1_server *s, struct stream *st, uint64_t number,
    unsigned listener, const struct h1_limits *limits,
    const char *what) must_check;
/* Closes idle connections, and the others after their exchange. */
void h1_server_drain(struct h1_server *s);
/* As front_cut(), front_shed() and front_queued(). */
void h1_server_cut(struct h1_server *s, unsigned listener);
unsigned h1_server_shed(struct h1_server *s, unsigned most);
uint64_t h1_server_queued(const struct h1_server *s);
void h1_server_stats(const struct h1_server *s, struct h1_server_stats *out);

#endif
