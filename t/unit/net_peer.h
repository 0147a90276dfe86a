/* Shared by the tests of core/net: sockets, certificates made on the spot. */
#ifndef SP_T_UNIT_NET_PEER_H
#define SP_T_UNIT_NET_PEER_H

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "event/loop.h"
#include "tap.h"

struct peer_cert {
	char chain[4096], key[1024];
	char file[64]; /* the chain again, for ca_path */
};

static struct loop *loop;
static struct loop_timer *peer_guard;

static void
peer_on_guard(void *arg)
{
	(void)arg;
	tap_ok(false, "nothing happened for 20 s");
	exit(1);
}

/* Until somebody calls loop_stop(). */
static void
peer_run(void)
{
	loop_timer_set(peer_guard, 20000);
	if (loop_run(loop) != 0)
		tap_ok(false, "loop_run failed");
	loop_timer_stop(peer_guard);
}

static void
peer_init(void)
{
	loop = loop_new();
	peer_guard = loop_timer_new(loop, peer_on_guard, NULL);
}

static void
peer_done(void)
{
	loop_timer_free(peer_guard);
	loop_free(loop);
}

/* A socket bound to a port of 127.0.0.1; listens if a stream. */
static inline int
peer_bound(int type, uint16_t *port)
{
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);
	int fd;

	*port = 0;
	memset(&sa, 0, sizeof(sa));
	sa.sin_family = AF_INET;
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd == -1 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == -1 ||
	    getsockname(fd, (struct sockaddr *)&sa, &len) == -1 ||
	    (type == SOCK_STREAM && listen(fd, 64) == -1))
		return -1;
	*port = ntohs(sa.sin_port);
	return fd;
}

/* Two connected ends over TCP, non-blocking. */
static inline int
peer_tcp_pair(int out[2])
{
	struct sockaddr_in sa;
	uint16_t port;
	int s = peer_bound(SOCK_STREAM, &port);

	memset(&sa, 0, sizeof(sa));
	sa.sin_family = AF_INET;
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sa.sin_port = htons(port);
	out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s == -1 || connect(out[0], (struct sockaddr *)&sa, sizeof(sa)))
		return -1;
	do
		out[1] = accept4(s, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (out[1] == -1 && errno == EAGAIN);
	close(s);
	if (fcntl(out[0], F_SETFL, O_NONBLOCK) == -1)
		return -1;
	return out[1] == -1 ? -1 : 0;
}

static inline void
peer_pem(BIO *bio, char *out, size_t max)
{
	int n = BIO_read(bio, out, (int)max - 1);

	out[n > 0 ? n : 0] = '\0';
	BIO_free(bio);
}

/* Self-signed, its own root; alive from an hour ago for secs from now. */
static inline bool
peer_cert_make(struct peer_cert *c, const char *san, long secs)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	X509_EXTENSION *ext;
	X509_NAME *name;
	X509V3_CTX ctx;
	BIO *bio;
	int fd;

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), (long)getpid() + secs);
	X509_gmtime_adj(X509_getm_notBefore(x), -7200);
	X509_gmtime_adj(X509_getm_notAfter(x), secs);
	X509_set_pubkey(x, key);
	name = X509_get_subject_name(x);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
	    (const unsigned char *)"sallyport test", -1, -1, 0);
	X509_set_issuer_name(x, name);
	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, san);
	X509_add_ext(x, ext, -1);
	X509_EXTENSION_free(ext);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, NID_basic_constraints,
	    "critical,CA:TRUE");
	X509_add_ext(x, ext, -1);
	X509_EXTENSION_free(ext);
	X509_sign(x, key, EVP_sha256());
	bio = BIO_new(BIO_s_mem());
	PEM_write_bio_X509(bio, x);
	peer_pem(bio, c->chain, sizeof(c->chain));
	bio = BIO_new(BIO_s_mem());
	PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
	peer_pem(bio, c->key, sizeof(c->key));
	X509_free(x);
	EVP_PKEY_free(key);
	memcpy(c->file, "/tmp/sallyport-cert-XXXXXX", 27);
	fd = mkstemp(c->file);
	if (fd == -1 ||
	    write(fd, c->chain, strlen(c->chain)) != (ssize_t)strlen(c->chain))
		return false;
	close(fd);
	return true;
}

#endif
