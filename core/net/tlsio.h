/* TLS over one descriptor: what stream.c calls when a stream is not plain. */
#ifndef SP_NET_TLSIO_H
#define SP_NET_TLSIO_H

#include <sys/uio.h>

#include "base/err.h"
#include "base/view.h"
#include "net/tls.h"

struct tlsio;

/* What tlsio_why() says of a client that does not speak TLS at all. */
#define TLSIO_PLAIN_HTTP "plain HTTP on a TLS port?"

/*
 * Context: reactor, does not block.
 * Parameters: ctx, referenced; fd, borrowed, non-blocking; name, client side:
 *          SNI and the name or address that is verified.
 * Owner:   the caller.
 * Returns: 0; SP_E_NOMEM; SP_E_TLS when the name cannot be one.
 */
int tlsio_new(struct tls_ctx *ctx, int fd, bool server, struct view name,
    struct tlsio **out) must_check;
/* notify: sends close_notify, as far as that does not block. */
void tlsio_free(struct tlsio *t, bool notify);
/*
 * Each: 0, or SP_E_AGAIN with *wait LOOP_READ or LOOP_WRITE, whatever was
 * asked for (TLS may have to write to read, and the other way round);
 * SP_E_EOF close_notify came (read only); SP_E_GONE the connection ended or
 * was reset without one; SP_E_TLS, see tlsio_why().
 */
int tlsio_handshake(struct tlsio *t, unsigned *wait) must_check;
int tlsio_read(struct tlsio *t, void *p, size_t max, size_t *n,
    unsigned *wait) must_check;
/*
 * After SP_E_AGAIN or a short count the bytes that were not taken must be
 * offered again, at least as many: a record of them may be half sent.
 */
int tlsio_writev(struct tlsio *t, const struct iovec *v, int n, size_t *done,
    unsigned *wait) must_check;
int tlsio_shutdown(struct tlsio *t, unsigned *wait) must_check;
/* Something is left in memory that tlsio_read() has not looked at. */
bool tlsio_pending(const struct tlsio *t);
struct view tlsio_alpn(const struct tlsio *t);
/* The last failure in words, "" none. */
const char *tlsio_why(const struct tlsio *t);

#endif
