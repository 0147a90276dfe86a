/* What tls.c and tlsio.c share; nobody else includes it. */
#ifndef SP_NET_TLS_PRIV_H
#define SP_NET_TLS_PRIV_H

#include <openssl/ssl.h>

#include "net/tls.h"

struct hmap;

enum { TLS_NAME_MAX = 253, TLS_ALPN_MAX = 64 };

struct tls_ctx {
	SSL_CTX *ssl;
	size_t refs;
	bool server;
	bool verify;
	/* server: name -> struct tls_ctx, referenced; client: -> SSL_SESSION */
	struct hmap *names;
	unsigned char alpn[TLS_ALPN_MAX]; /* wire form, RFC 7301 s3.1 */
	unsigned alpn_n;
};

/*
 * Source:  RFC 8446 s2.2.
 * Context: reactor.
 * Parameters: name, the server's.
 * Owner:   borrowed from the context.
 * Returns: a session to resume, or NULL.
 */
SSL_SESSION *tls_session(const struct tls_ctx *c, struct view name);
/* Keeps a session (taken) for name; false, and not taken: there is no room. */
bool tls_session_keep(struct tls_ctx *c, struct view name,
    SSL_SESSION *session);
/* OpenSSL's callback for new sessions of clients. */
int tlsio_new_session(SSL *ssl, SSL_SESSION *session);
/* The oldest OpenSSL error in words into out; clears the queue. */
void tls_error_text(char *out, size_t max);

#endif
