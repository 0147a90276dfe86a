/* A connected byte stream, plain or TLS: its own reads and SSL calls. */
#ifndef SP_NET_STREAM_H
#define SP_NET_STREAM_H

#include <sys/uio.h>

#include "base/err.h"
#include "base/view.h"
#include "event/loop.h"
#include "net/tls.h"

struct stream;

enum {
	STREAM_READ = 1, /* stream_read() has something to say */
	STREAM_WRITE = 2, /* stream_writev() may take bytes again */
	/*
	 * Broken: stream_error().  Told when the handshake failed, and when the
	 * peer is gone (reset, hung up both ways) while nothing else is wanted:
	 * at once on accepted streams, on dialled ones when no byte is left to
	 * be read.  A peer that only ended its side (FIN) is not broken; that
	 * is SP_E_EOF of stream_read().
	 */
	STREAM_FAIL = 4,
};

struct stream_owner {
	/*
	 * Called from the loop only, never from within a stream_* call.  May
	 * free the stream.
	 */
	void (*ready)(void *arg, struct stream *s, unsigned what);
	void *arg;
};

/* Which end of the connection it is, and whether TLS is spoken on it. */
struct stream_side {
	bool server; /* accepted, not dialled */
	struct tls_ctx *tls; /* NULL: plain */
	struct view name; /* dialled with TLS: SNI, and what is verified */
};

/*
 * Wraps a connected, non-blocking descriptor (taken; TCP_NODELAY is set).
 * With TLS the handshake runs inside; ready() is first called after it, or
 * with STREAM_FAIL.  There is no deadline in here: the owner keeps one.
 * Returns: 0; SP_E_NOMEM; SP_E_SYS; SP_E_TLS.  On an error fd is closed.
 */
int stream_new(struct loop *l, int fd, const struct stream_side *side,
    const struct stream_owner *owner, struct stream **out) must_check;
/* Hands the stream to another owner (a pool, a call). */
void stream_set_owner(struct stream *s, const struct stream_owner *owner);
/*
 * What ready() is wanted for, any time, 0 included.  While READ or WRITE is
 * wanted, a hang-up is told through it; else with STREAM_FAIL.  READ is not
 * told again after SP_E_EOF.
 */
void stream_want(struct stream *s, unsigned what);
/*
 * One read: 0 with *n > 0; SP_E_AGAIN; SP_E_EOF the peer ended its side
 * cleanly (FIN, or close_notify with TLS); SP_E_GONE reset, or a TLS stream
 * that ended without close_notify; SP_E_TLS.
 */
int stream_read(struct stream *s, void *p, size_t max, size_t *n) must_check;
/*
 * TLS has bytes in memory and not given out.  They are told with READ at the
 * end of the turn, if it is wanted, so this is only for those in a hurry.
 */
bool stream_pending(const struct stream *s);
/*
 * One write: 0 with *done >= 0 bytes; SP_E_AGAIN none; SP_E_GONE; SP_E_TLS.
 * What was not taken must be offered again before anything else, at least as
 * many bytes of it (TLS may have half a record out).
 */
int stream_writev(struct stream *s, const struct iovec *v, int n,
    size_t *done) must_check;
/* Ends our side: close_notify and FIN. */
void stream_shutdown(struct stream *s);
/* The sticky error, 0 none. */
int stream_error(const struct stream *s);
/* The same in words ("certificate: certificate has expired"), "" none. */
const char *stream_why(const struct stream *s);
/* The protocol that ALPN chose, empty none. */
struct view stream_alpn(const struct stream *s);
/*
 * "192.0.2.1:4711", "[::1]:80", "unix:"; valid with the stream.
 * Ask early: once the peer is gone the system has forgotten it ("unknown").
 */
const char *stream_peer(struct stream *s);
/*
 * Something of the accepting side's that goes with the connection: left() is
 * called when the stream is freed.
 */
void stream_set_guest(struct stream *s, void *guest, void (*left)(void *guest));
void *stream_guest(const struct stream *s); /* NULL: none */
/* Plain from now on: of a handshake that failed, to say so. */
void stream_drop_tls(struct stream *s);
int stream_fd(const struct stream *s);
bool stream_is_tls(const struct stream *s);
/* Closes; graceful false resets the connection (SO_LINGER 0) so that the
 * peer sees at once that nobody listens any more. */
void stream_free(struct stream *s, bool graceful); /* NULL allowed */

#endif
