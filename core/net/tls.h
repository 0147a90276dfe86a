/* TLS contexts (OpenSSL): 1.2 and up. */
#ifndef SP_NET_TLS_H
#define SP_NET_TLS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

struct tls_ctx;

/*
 * Context: reactor; tls_client_new() reads the CA file or the system's store,
 *          so call it before the walls close.
 * Parameters: chain, key: PEM text; alpn: protocols offered or accepted in
 *          order of preference, e.g. "h2", "http/1.1"; ca_path empty: the
 *          system's; verify false: accepts any certificate.
 * Owner:   reference counted: every stream holds one.
 * Returns: 0; SP_E_TLS with a line in err that says what is wrong; SP_E_NOMEM.
 */
int tls_server_new(struct view chain, struct view key, const struct view *alpn,
    size_t alpn_n, struct tls_ctx **out, struct buf *err) must_check;
int tls_client_new(struct view ca_path, bool verify, const struct view *alpn,
    size_t alpn_n, struct tls_ctx **out, struct buf *err) must_check;
/*
 * The same with the trusted certificates as PEM text, which any number may
 * stand in: no file is read.
 */
int tls_client_new_pem(struct view pem, bool verify, const struct view *alpn,
    size_t alpn_n, struct tls_ctx **out, struct buf *err) must_check;
/* Several server contexts behind one listener: picked by SNI. */
int tls_server_add_name(struct tls_ctx *first, struct view name,
    struct tls_ctx *other) must_check;
struct tls_ctx *tls_ref(struct tls_ctx *c);
void tls_unref(struct tls_ctx *c); /* NULL allowed */

#endif
