/*
 * The first bytes of an accepted connection say which protocol it speaks, and
 * which server gets it: HTTP/2 by ALPN, or by its preface where there is no
 * TLS; HTTP/1.1 else.
 */
#ifndef SP_HTTP_FRONT_H
#define SP_HTTP_FRONT_H

#include "http/h1_server.h"
#include "http/h2_server.h"

struct front;

struct front_stats {
	uint64_t connections; /* open now, whatever they speak */
	uint64_t accepted;
	uint64_t exchanges; /* open now */
	uint64_t malformed; /* requests answered or reset by a codec */
	uint64_t h2_connections; /* of these, HTTP/2's */
	uint64_t calmed; /* ended with ENHANCE_YOUR_CALM */
	uint64_t h2_exchanges; /* open now */
	uint64_t h2_resets; /* RST_STREAM frames that came */
	uint64_t h2_floods[H2_FLOODS];
};

/* What goes with a connection; left() is called at its end. */
struct front_guest {
	void *guest; /* each exchange's */
	void (*left)(void *guest);
};

/*
 * As h1_server_new() and the others of that name.
 * Source:  RFC 9113 s3.2 (ALPN), s3.3 and s3.4 (prior knowledge).
 * Context: reactor; no blocking.
 * Owner:   the caller; consumer is borrowed for as long as it lives.
 * Parameters: guest, copied, or NULL; on an error it is the caller's still.
 * Returns: front_new: NULL without memory.  front_accept: 0; SP_E_NOMEM;
 *          SP_E_SYS; SP_E_TLS; the descriptor is taken, also on an error.
 */
struct front *front_new(struct loop *l,
    const struct exchange_consumer *consumer, void *server,
    struct view (*error_body)(void *server, unsigned status, const char *what,
	struct view *type)) must_check;
/* Not from within a callback of the consumer.  NULL allowed. */
void front_free(struct front *f);
int front_accept(struct front *f, int fd, struct tls_ctx *tls,
    unsigned listener, const struct h1_limits *limits,
    const struct front_guest *guest) must_check;
void front_drain(struct front *f);
/*
 * Ends every connection that came by that listener, with what is open on it.
 * Not from within a callback of the consumer.
 */
void front_cut(struct front *f, unsigned listener);
/*
 * Closes connections that serve nothing now, the oldest first, at most that
 * many: returns how many.  Not from within a callback of the consumer.
 */
unsigned front_shed(struct front *f, unsigned most);
/* Bytes of replies that clients have not taken; looks at every connection. */
uint64_t front_queued(const struct front *f);
void front_stats(const struct front *f, struct front_stats *out);

#endif
