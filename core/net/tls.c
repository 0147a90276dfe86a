#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/hmap.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/tls_priv.h"

enum {
	NAMES_MAX = 4096, /* server names of a listener */
	SESSIONS_MAX = 256, /* servers with a session to resume */
	CA_FILES_MAX = 4096,
	ERR_BYTES = 256
};

/* Forward secrecy and authenticated encryption only (RFC 9325 s4.2). */
#define CIPHERS_12 "ECDHE+AESGCM:ECDHE+CHACHA20"

/* The system's roots, parsed once for all contexts that are alive. */
static X509_STORE *system_store;
static size_t system_store_refs;

void
tls_error_text(char *out, size_t max)
{
	unsigned long code = ERR_get_error();
	const char *reason = ERR_reason_error_string(code);

	if (reason != NULL)
		(void)snprintf(out, max, "%s", reason);
	else
		(void)snprintf(out, max, "error %lx", code);
	ERR_clear_error();
}

/* Appends a line; what does not fit is lost, it is only words. */
static int __attribute__((format(printf, 2, 3)))
complain(struct buf *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (err != NULL && buf_vprintf(err, fmt, ap) != 0)
		log_warn("tls: an error text did not fit");
	va_end(ap);
	return SP_E_TLS;
}

static int
complain_ssl(struct buf *err, const char *what)
{
	char text[ERR_BYTES];

	tls_error_text(text, sizeof(text));
	return complain(err, "%s: %s", what, text);
}

/* ---- contexts ------------------------------------------------------------ */

/* RFC 7301 s3.1: each protocol behind its length. */
static int
alpn_init(struct tls_ctx *c, const struct view *alpn, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (alpn[i].n == 0 || alpn[i].n > 255 ||
		    c->alpn_n + 1 + alpn[i].n > sizeof(c->alpn))
			return SP_E_TLS;
		c->alpn[c->alpn_n++] = (unsigned char)alpn[i].n;
		memcpy(c->alpn + c->alpn_n, alpn[i].p, alpn[i].n);
		c->alpn_n += (unsigned)alpn[i].n;
	}
	return 0;
}

static int
ctx_options(SSL_CTX *ssl)
{
	if (SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_cipher_list(ssl, CIPHERS_12) != 1)
		return SP_E_TLS;
	SSL_CTX_set_options(ssl,
	    SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
		SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
	/* idle connections must not hold 34 KiB of record buffers each */
	SSL_CTX_set_mode(ssl,
	    SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
		SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	/* one read for header and body of a record */
	SSL_CTX_set_read_ahead(ssl, 1);
	return 0;
}

static int
ctx_new(bool server, const struct view *alpn, size_t alpn_n,
    struct tls_ctx **out)
{
	struct tls_ctx *c;
	int rc = SP_E_NOMEM;

	/* reads the time zone's file now: later there is no file system */
	tzset();
	ERR_clear_error();
	c = mem_calloc(1, sizeof(*c));
	if (c == NULL)
		return SP_E_NOMEM;
	c->refs = 1;
	c->server = server;
	c->names = hmap_new(server ? NAMES_MAX : SESSIONS_MAX);
	c->ssl =
	    SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
	if (c->names != NULL && c->ssl != NULL) {
		rc = alpn_init(c, alpn, alpn_n);
		if (rc == 0)
			rc = ctx_options(c->ssl);
	}
	if (rc != 0) {
		tls_unref(c);
		return rc;
	}
	*out = c;
	return 0;
}

struct tls_ctx *
tls_ref(struct tls_ctx *c)
{
	c->refs++;
	return c;
}

static void
names_free(struct tls_ctx *c)
{
	struct view name;
	size_t pos = 0;
	void *val;

	while (c->names != NULL && hmap_next(c->names, &pos, &name, &val)) {
		if (c->server)
			tls_unref(val);
		else
			SSL_SESSION_free(val);
	}
	hmap_free(c->names);
}

void
tls_unref(struct tls_ctx *c)
{
	if (c == NULL || --c->refs > 0)
		return;
	names_free(c);
	if (c->ssl != NULL && system_store != NULL &&
	    SSL_CTX_get_cert_store(c->ssl) == system_store &&
	    --system_store_refs == 0) {
		X509_STORE_free(system_store);
		system_store = NULL;
	}
	/* OpenSSL clears the private key as it frees it */
	SSL_CTX_free(c->ssl);
	mem_free(c);
}

/* ---- server -------------------------------------------------------------- */

/* RFC 7301 s3.2: our preference; a client that offers only others is refused. */
static int
alpn_select(SSL *ssl, const unsigned char **out, unsigned char *out_n,
    const unsigned char *in, unsigned in_n, void *arg)
{
	struct tls_ctx *c = arg;
	unsigned char *chosen = NULL;

	(void)ssl;
	if (SSL_select_next_proto(&chosen, out_n, c->alpn, c->alpn_n, in,
		in_n) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* A key file with a pass phrase must not make OpenSSL ask the terminal. */
static int
no_passphrase(char *buf, int size, int rw, void *arg)
{
	bool *asked = arg;

	(void)buf;
	(void)size;
	(void)rw;
	*asked = true;
	return -1;
}

static int
load_chain(SSL_CTX *ssl, BIO *bio, struct buf *err)
{
	X509 *cert;
	int ok;

	cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
	if (cert == NULL)
		return complain_ssl(err, "certificate: no readable PEM");
	ok = SSL_CTX_use_certificate(ssl, cert);
	X509_free(cert);
	if (ok != 1)
		return complain_ssl(err, "certificate");
	while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL)
		if (SSL_CTX_add0_chain_cert(ssl, cert) != 1) {
			X509_free(cert);
			return complain_ssl(err, "certificate chain");
		}
	/* the end of the file is told as an error, too */
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return complain_ssl(err, "certificate chain");
	ERR_clear_error();
	return 0;
}

static int
load_key(SSL_CTX *ssl, BIO *bio, struct buf *err)
{
	bool asked = false;
	EVP_PKEY *key;
	int ok;

	key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &asked);
	if (key == NULL && asked) {
		ERR_clear_error();
		return complain(err,
		    "private key: has a pass phrase; remove it with "
		    "\"openssl pkey\"");
	}
	if (key == NULL)
		return complain_ssl(err, "private key: no readable PEM");
	ok = SSL_CTX_use_PrivateKey(ssl, key);
	EVP_PKEY_free(key);
	if (ok != 1 || SSL_CTX_check_private_key(ssl) != 1)
		return complain_ssl(err,
		    "private key does not fit the certificate");
	return 0;
}

static int
load_pem(SSL_CTX *ssl, struct view v, const char *what,
    int (*load)(SSL_CTX *, BIO *, struct buf *), struct buf *err)
{
	BIO *bio;
	int rc;

	if (v.n == 0 || v.n > INT32_MAX)
		return complain(err, "%s: empty PEM text", what);
	bio = BIO_new_mem_buf(v.p, (int)v.n);
	if (bio == NULL)
		return SP_E_NOMEM;
	rc = load(ssl, bio, err);
	BIO_free(bio);
	return rc;
}

int
tls_server_new(struct view chain, struct view key, const struct view *alpn,
    size_t alpn_n, struct tls_ctx **out, struct buf *err)
{
	static const unsigned char id[] = "sallyport";
	struct tls_ctx *c;
	int rc;

	rc = ctx_new(true, alpn, alpn_n, &c);
	if (rc != 0)
		return rc == SP_E_TLS ? complain_ssl(err, "TLS context") : rc;
	rc = load_pem(c->ssl, chain, "certificate", load_chain, err);
	if (rc == 0)
		rc = load_pem(c->ssl, key, "private key", load_key, err);
	if (rc != 0) {
		tls_unref(c);
		return rc;
	}
	if (c->alpn_n != 0)
		SSL_CTX_set_alpn_select_cb(c->ssl, alpn_select, c);
	/* tickets (RFC 8446 s4.6.1) keep no state here */
	SSL_CTX_set_session_cache_mode(c->ssl, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_num_tickets(c->ssl, 1);
	(void)SSL_CTX_set_session_id_context(c->ssl, id, sizeof(id) - 1);
	*out = c;
	return 0;
}

/* ASCII lower case into out (TLS_NAME_MAX bytes); false: no host name. */
static bool
name_lower(struct view name, char *out)
{
	if (name.n == 0 || name.n > TLS_NAME_MAX)
		return false;
	for (size_t i = 0; i < name.n; i++) {
		out[i] = name.p[i];
		if (out[i] >= 'A' && out[i] <= 'Z')
			out[i] = (char)(out[i] - 'A' + 'a');
	}
	return true;
}

/* The name itself, then "*." for its first label. */
static int
sni_select(SSL *ssl, int *alert, void *arg)
{
	const char *sni = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	struct tls_ctx *first = arg, *c;
	char name[TLS_NAME_MAX];
	struct view v;
	size_t dot;

	(void)alert;
	v = view_str(sni);
	if (sni == NULL || !name_lower(v, name))
		return SSL_TLSEXT_ERR_NOACK;
	v = view_of(name, v.n);
	c = hmap_get(first->names, v);
	dot = view_find(v, '.');
	if (c == NULL && dot != 0 && dot < v.n) {
		name[dot - 1] = '*';
		c = hmap_get(first->names, view_from(v, dot - 1));
	}
	if (c == NULL)
		return SSL_TLSEXT_ERR_NOACK;
	return SSL_set_SSL_CTX(ssl, c->ssl) != NULL
	    ? SSL_TLSEXT_ERR_OK
	    : SSL_TLSEXT_ERR_ALERT_FATAL;
}

int
tls_server_add_name(struct tls_ctx *first, struct view name,
    struct tls_ctx *other)
{
	char lower[TLS_NAME_MAX];
	int rc;

	/* itself needs no entry, and would never be freed with one */
	if (!first->server || !other->server || other == first ||
	    !name_lower(name, lower))
		return SP_E_ARG;
	rc = hmap_add(first->names, view_of(lower, name.n), other);
	if (rc != 0)
		return rc;
	(void)tls_ref(other);
	(void)SSL_CTX_set_tlsext_servername_callback(first->ssl, sni_select);
	(void)SSL_CTX_set_tlsext_servername_arg(first->ssl, first);
	return 0;
}

/* ---- client -------------------------------------------------------------- */

/*
 * OpenSSL's own loading of a directory happens at verification, when there is
 * no file system any more; everything is read here.
 */
static bool
store_add_dir(X509_STORE *store, const char *path)
{
	char file[4096];
	struct dirent *e;
	bool any = false;
	DIR *dir;

	dir = opendir(path);
	if (dir == NULL)
		return false;
	for (int i = 0; i < CA_FILES_MAX && (e = readdir(dir)) != NULL; i++) {
		if (e->d_name[0] == '.' ||
		    snprintf(file, sizeof(file), "%s/%s", path, e->d_name) >=
			(int)sizeof(file))
			continue;
		if (X509_STORE_load_file(store, file) == 1)
			any = true;
	}
	(void)closedir(dir);
	ERR_clear_error();
	return any;
}

static bool
store_add(X509_STORE *store, const char *path)
{
	struct stat st;

	if (path == NULL || stat(path, &st) == -1)
		return false;
	if (S_ISDIR(st.st_mode))
		return store_add_dir(store, path);
	return X509_STORE_load_file(store, path) == 1;
}

static int
store_system(X509_STORE **out)
{
	const char *places[] = { getenv(X509_get_default_cert_file_env()),
		X509_get_default_cert_file(),
		"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt",
		getenv(X509_get_default_cert_dir_env()),
		X509_get_default_cert_dir() };
	X509_STORE *store;

	if (system_store == NULL) {
		store = X509_STORE_new();
		if (store == NULL)
			return SP_E_NOMEM;
		for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
			if (store_add(store, places[i])) {
				system_store = store;
				break;
			}
		ERR_clear_error();
		if (system_store == NULL) {
			X509_STORE_free(store);
			return SP_E_NOTFOUND;
		}
	}
	system_store_refs++;
	*out = system_store;
	return 0;
}

static int
load_roots(struct tls_ctx *c, struct view ca_path, struct buf *err)
{
	X509_STORE *store;
	char path[4096];
	int rc;

	if (ca_path.n == 0) {
		rc = store_system(&store);
		if (rc == SP_E_NOTFOUND)
			return complain(err,
			    "no trusted certificates on this system; install "
			    "ca-certificates or name a file");
		if (rc != 0)
			return rc;
		SSL_CTX_set1_cert_store(c->ssl, store);
		return 0;
	}
	if (ca_path.n >= sizeof(path) || memchr(ca_path.p, 0, ca_path.n))
		return complain(err, "trusted certificates: bad path");
	memcpy(path, ca_path.p, ca_path.n);
	path[ca_path.n] = '\0';
	ERR_clear_error();
	if (store_add(SSL_CTX_get_cert_store(c->ssl), path))
		return 0;
	ERR_clear_error();
	return complain(err,
	    "trusted certificates: no readable PEM certificate in \"%s\"",
	    path);
}

static int
load_roots_pem(struct tls_ctx *c, struct view pem, struct buf *err)
{
	X509_STORE *store = SSL_CTX_get_cert_store(c->ssl);
	size_t n = 0;
	X509 *cert;
	BIO *bio;

	if (pem.n == 0 || pem.n > INT32_MAX)
		return complain(err, "trusted certificates: no PEM text");
	bio = BIO_new_mem_buf(pem.p, (int)pem.n);
	if (bio == NULL)
		return SP_E_NOMEM;
	ERR_clear_error();
	while ((cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL)) != NULL) {
		/* the same one twice is no error */
		n += X509_STORE_add_cert(store, cert) == 1;
		X509_free(cert);
	}
	BIO_free(bio);
	/* the end of the text is told as an error, too */
	ERR_clear_error();
	return n > 0 ? 0
		     : complain(err,
			   "trusted certificates: no readable PEM certificate");
}

/* Where the trusted certificates come from, and whether they matter. */
struct roots {
	bool verify;
	bool is_pem; /* from is the text itself, else a path */
	struct view from;
};

static int
client_new(const struct roots *roots, const struct view *alpn, size_t alpn_n,
    struct tls_ctx **out, struct buf *err)
{
	bool verify = roots->verify;
	struct tls_ctx *c;
	int rc;

	rc = ctx_new(false, alpn, alpn_n, &c);
	if (rc != 0)
		return rc == SP_E_TLS ? complain_ssl(err, "TLS context") : rc;
	c->verify = verify;
	if (verify && roots->is_pem)
		rc = load_roots_pem(c, roots->from, err);
	else if (verify)
		rc = load_roots(c, roots->from, err);
	/* zero is success here, unlike everywhere else in OpenSSL */
	if (rc == 0 && c->alpn_n != 0 &&
	    SSL_CTX_set_alpn_protos(c->ssl, c->alpn, c->alpn_n) != 0)
		rc = SP_E_NOMEM;
	if (rc != 0) {
		tls_unref(c);
		return rc;
	}
	SSL_CTX_set_verify(c->ssl, verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
	    NULL);
	SSL_CTX_set_session_cache_mode(c->ssl,
	    SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(c->ssl, tlsio_new_session);
	*out = c;
	return 0;
}

int
tls_client_new(struct view ca_path, bool verify, const struct view *alpn,
    size_t alpn_n, struct tls_ctx **out, struct buf *err)
{
	const struct roots roots = { verify, false, ca_path };

	return client_new(&roots, alpn, alpn_n, out, err);
}

int
tls_client_new_pem(struct view pem, bool verify, const struct view *alpn,
    size_t alpn_n, struct tls_ctx **out, struct buf *err)
{
	const struct roots roots = { verify, true, pem };

	return client_new(&roots, alpn, alpn_n, out, err);
}

SSL_SESSION *
tls_session(const struct tls_ctx *c, struct view name)
{
	SSL_SESSION *s = hmap_get(c->names, name);

	return s != NULL && SSL_SESSION_is_resumable(s) ? s : NULL;
}

bool
tls_session_keep(struct tls_ctx *c, struct view name, SSL_SESSION *session)
{
	SSL_SESSION_free(hmap_del(c->names, name));
	return hmap_add(c->names, name, session) == 0;
}
