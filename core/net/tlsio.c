#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/mem.h"
#include "event/loop.h"
#include "net/tls_priv.h"
#include "net/tlsio.h"

enum {
	RECORD_BYTES = 16384, /* RFC 8446 s5.1 */
	RECORDS_A_CALL = 4,
	WHY_BYTES = 200
};

struct tlsio {
	SSL *ssl;
	struct tls_ctx *ctx;
	char *why;
	bool server;
	bool broken; /* OpenSSL forbids every further call */
	bool notified; /* close_notify is out; one more call would read */
	char name[]; /* client: the server's, NUL-terminated */
};

/* Only for a moment inside tlsio_writev(): pieces on their way into a record. */
static char gather[RECORD_BYTES];

static bool
is_address(const char *name)
{
	unsigned char a[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, name, a) == 1 ||
	    inet_pton(AF_INET6, name, a) == 1;
}

/* Which server this must be (RFC 9525); SNI is for names (RFC 6066 s3). */
static int
client_init(struct tlsio *t)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
	SSL_SESSION *session;

	SSL_set_connect_state(t->ssl);
	if (t->name[0] == '\0')
		return t->ctx->verify ? SP_E_TLS : 0;
	X509_VERIFY_PARAM_set_hostflags(param,
	    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (is_address(t->name)) {
		if (X509_VERIFY_PARAM_set1_ip_asc(param, t->name) != 1)
			return SP_E_TLS;
	} else if (X509_VERIFY_PARAM_set1_host(param, t->name, 0) != 1 ||
	    SSL_set_tlsext_host_name(t->ssl, t->name) != 1) {
		return SP_E_TLS;
	}
	session = tls_session(t->ctx, view_str(t->name));
	if (session != NULL)
		(void)SSL_set_session(t->ssl, session);
	return 0;
}

static int
ssl_init(struct tlsio *t, int fd)
{
	int rc = 0;

	ERR_clear_error();
	t->ssl = SSL_new(t->ctx->ssl);
	if (t->ssl == NULL)
		return SP_E_NOMEM;
	if (SSL_set_fd(t->ssl, fd) != 1 || SSL_set_app_data(t->ssl, t) != 1)
		rc = SP_E_NOMEM;
	else if (t->server)
		SSL_set_accept_state(t->ssl);
	else
		rc = client_init(t);
	ERR_clear_error();
	return rc;
}

int
tlsio_new(struct tls_ctx *ctx, int fd, bool server, struct view name,
    struct tlsio **out)
{
	struct tlsio *t;
	int rc;

	if (name.n > TLS_NAME_MAX || ctx->server != server ||
	    (name.n != 0 && memchr(name.p, '\0', name.n) != NULL))
		return SP_E_TLS;
	t = mem_calloc(1, sizeof(*t) + name.n + 1);
	if (t == NULL)
		return SP_E_NOMEM;
	if (name.n != 0)
		memcpy(t->name, name.p, name.n);
	t->server = server;
	t->ctx = tls_ref(ctx);
	rc = ssl_init(t, fd);
	if (rc != 0) {
		tlsio_free(t, false);
		return rc;
	}
	*out = t;
	return 0;
}

void
tlsio_free(struct tlsio *t, bool notify)
{
	if (t == NULL)
		return;
	ERR_clear_error();
	if (t->ssl != NULL) {
		if (notify && !t->broken && !t->notified)
			(void)SSL_shutdown(t->ssl);
		/* else a reset would forget a session that is still good */
		else if (!t->broken && SSL_is_init_finished(t->ssl))
			SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN);
		SSL_free(t->ssl);
	}
	ERR_clear_error();
	tls_unref(t->ctx);
	mem_free(t->why);
	mem_free(t);
}

static void
set_why(struct tlsio *t, const char *text)
{
	if (t->why == NULL)
		t->why = mem_strdup(text);
}

/*
 * What went wrong in words.  OpenSSL 3 reports a connection that ended
 * without close_notify as a protocol error of its own.
 */
static int
failed(struct tlsio *t)
{
	long verify = SSL_get_verify_result(t->ssl);
	unsigned long code = ERR_peek_error();
	char text[WHY_BYTES];

	t->broken = true;
	if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
	    ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
		set_why(t, "closed without close_notify");
		return SP_E_GONE;
	}
	if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
	    ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED &&
	    verify != X509_V_OK)
		(void)snprintf(text, sizeof(text), "certificate: %s",
		    X509_verify_cert_error_string(verify));
	else if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
	    (ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST ||
		ERR_GET_REASON(code) == SSL_R_HTTPS_PROXY_REQUEST))
		(void)snprintf(text, sizeof(text), "%s", TLSIO_PLAIN_HTTP);
	else
		tls_error_text(text, sizeof(text));
	set_why(t, text);
	return SP_E_TLS;
}

/* Turns the outcome of an SSL_* call that did not succeed into ours. */
static int
outcome(struct tlsio *t, int ret, int en, unsigned *wait)
{
	int rc;

	switch (SSL_get_error(t->ssl, ret)) {
	case SSL_ERROR_WANT_READ:
		*wait = LOOP_READ;
		rc = SP_E_AGAIN;
		break;
	case SSL_ERROR_WANT_WRITE:
		*wait = LOOP_WRITE;
		rc = SP_E_AGAIN;
		break;
	case SSL_ERROR_ZERO_RETURN:
		rc = SP_E_EOF;
		break;
	case SSL_ERROR_SYSCALL:
		t->broken = true;
		set_why(t,
		    en == 0 ? "closed without close_notify"
			    : "connection reset");
		rc = SP_E_GONE;
		break;
	default:
		rc = failed(t);
		break;
	}
	ERR_clear_error();
	return rc;
}

int
tlsio_handshake(struct tlsio *t, unsigned *wait)
{
	int r;

	if (t->broken)
		return SP_E_TLS;
	ERR_clear_error();
	errno = 0;
	r = SSL_do_handshake(t->ssl);
	if (r == 1)
		return 0;
	r = outcome(t, r, errno, wait);
	if (r == SP_E_EOF) {
		set_why(t, "closed during the handshake");
		r = SP_E_GONE;
	}
	return r;
}

int
tlsio_read(struct tlsio *t, void *p, size_t max, size_t *n, unsigned *wait)
{
	int r;

	*n = 0;
	if (t->broken)
		return SP_E_GONE;
	ERR_clear_error();
	errno = 0;
	r = SSL_read_ex(t->ssl, p, max, n);
	if (r == 1)
		return 0;
	return outcome(t, r, errno, wait);
}

/* The next record's worth of v from offset at on, copied only if in pieces. */
static const char *
next_piece(const struct iovec *v, int n, size_t at, size_t *len)
{
	size_t have = 0, take;
	int i = 0;

	while (i < n && at >= v[i].iov_len)
		at -= v[i++].iov_len;
	*len = 0;
	if (i == n)
		return NULL;
	if (i == n - 1 || v[i].iov_len - at >= RECORD_BYTES) {
		*len = v[i].iov_len - at;
		if (*len > RECORD_BYTES)
			*len = RECORD_BYTES;
		return (const char *)v[i].iov_base + at;
	}
	for (; i < n && have < RECORD_BYTES; i++, at = 0) {
		take = v[i].iov_len - at;
		if (take > RECORD_BYTES - have)
			take = RECORD_BYTES - have;
		if (take != 0)
			memcpy(gather + have, (const char *)v[i].iov_base + at,
			    take);
		have += take;
	}
	*len = have;
	return gather;
}

int
tlsio_writev(struct tlsio *t, const struct iovec *v, int n, size_t *done,
    unsigned *wait)
{
	size_t len, did;
	const char *p;
	int r, rc;

	*done = 0;
	if (t->broken)
		return SP_E_GONE;
	for (int i = 0; i < RECORDS_A_CALL; i++) {
		p = next_piece(v, n, *done, &len);
		if (len == 0)
			break;
		ERR_clear_error();
		errno = 0;
		r = SSL_write_ex(t->ssl, p, len, &did);
		if (r != 1) {
			rc = outcome(t, r, errno, wait);
			if (rc == SP_E_EOF)
				rc = SP_E_GONE;
			return *done != 0 && rc == SP_E_AGAIN ? 0 : rc;
		}
		*done += did;
	}
	return 0;
}

int
tlsio_shutdown(struct tlsio *t, unsigned *wait)
{
	int r, rc;

	if (t->broken)
		return SP_E_GONE;
	if (t->notified)
		return 0;
	ERR_clear_error();
	errno = 0;
	r = SSL_shutdown(t->ssl);
	/* 0: ours is out, the peer's has not come, which is fine */
	if (r >= 0) {
		t->notified = true;
		return 0;
	}
	rc = outcome(t, r, errno, wait);
	return rc == SP_E_EOF ? 0 : rc;
}

bool
tlsio_pending(const struct tlsio *t)
{
	return !t->broken && SSL_has_pending(t->ssl) == 1;
}

struct view
tlsio_alpn(const struct tlsio *t)
{
	const unsigned char *p = NULL;
	unsigned n = 0;

	SSL_get0_alpn_selected(t->ssl, &p, &n);
	return view_of(p, n);
}

const char *
tlsio_why(const struct tlsio *t)
{
	return t->why != NULL ? t->why : "";
}

int
tlsio_new_session(SSL *ssl, SSL_SESSION *session)
{
	struct tlsio *t = SSL_get_app_data(ssl);

	if (t == NULL || t->server || t->name[0] == '\0')
		return 0;
	/* what resumes must have been verified as the same name */
	return tls_session_keep(t->ctx, view_str(t->name), session) ? 1 : 0;
}
