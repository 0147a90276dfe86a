#include "config.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/mem.h"
#include "crypt/digest.h"

struct digest {
	EVP_MD_CTX *ctx; /* owned */
	EVP_MD_CTX *aside; /* owned; of digest_peek(), or NULL */
};

/*
 * The library's error queue belongs to whoever reads it next, which may be
 * a TLS connection: leave nothing there.
 */
static int
digest_rc(int good)
{
	if (good == 1)
		return 0;
	ERR_clear_error();
	return SP_E_NOMEM;
}

/* Looked up once: EVP_sha256() has the library do so at each use. */
static const EVP_MD *
digest_md(void)
{
	static EVP_MD *md;

	if (md == NULL)
		md = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (md == NULL)
		ERR_clear_error();
	return md != NULL ? md : EVP_sha256();
}

struct digest *
digest_new(void)
{
	struct digest *d = mem_calloc(1, sizeof(*d));

	if (d == NULL)
		return NULL;
	d->ctx = EVP_MD_CTX_new();
	if (d->ctx == NULL ||
	    digest_rc(EVP_DigestInit_ex2(d->ctx, digest_md(), NULL)) != 0) {
		digest_free(d);
		return NULL;
	}
	return d;
}

void
digest_free(struct digest *d)
{
	if (d == NULL)
		return;
	EVP_MD_CTX_free(d->ctx);
	EVP_MD_CTX_free(d->aside);
	mem_free(d);
}

int
digest_update(struct digest *d, const void *p, size_t n)
{
	if (n == 0)
		return 0;
	return digest_rc(EVP_DigestUpdate(d->ctx, p, n));
}

int
digest_final(struct digest *d, uint8_t out[DIGEST_BYTES])
{
	unsigned n;
	int rc;

	rc = digest_rc(EVP_DigestFinal_ex(d->ctx, out, &n));
	if (rc != 0)
		return rc;
	return digest_rc(EVP_DigestInit_ex2(d->ctx, digest_md(), NULL));
}

int
digest_peek(struct digest *d, uint8_t out[DIGEST_BYTES])
{
	unsigned n;

	if (d->aside == NULL)
		d->aside = EVP_MD_CTX_new();
	if (d->aside == NULL)
		return digest_rc(0);
	if (EVP_MD_CTX_copy_ex(d->aside, d->ctx) != 1)
		return digest_rc(0);
	return digest_rc(EVP_DigestFinal_ex(d->aside, out, &n));
}

int
digest_sha256(struct view v, uint8_t out[DIGEST_BYTES])
{
	static EVP_MD_CTX *ctx; /* for ever: EVP_Digest() makes one each time */
	unsigned n;

	if (ctx == NULL)
		ctx = EVP_MD_CTX_new();
	if (ctx == NULL)
		return digest_rc(0);
	if (EVP_DigestInit_ex2(ctx, digest_md(), NULL) != 1 ||
	    EVP_DigestUpdate(ctx, v.n != 0 ? v.p : "", v.n) != 1)
		return digest_rc(0);
	return digest_rc(EVP_DigestFinal_ex(ctx, out, &n));
}

int
digest_sha1(struct view v, uint8_t out[DIGEST_SHA1_BYTES])
{
	unsigned n;

	return digest_rc(
	    EVP_Digest(v.n != 0 ? v.p : "", v.n, out, &n, EVP_sha1(), NULL));
}

int
digest_hmac(struct view key, struct view v, uint8_t out[DIGEST_BYTES])
{
	static const char hash[] = "SHA256";
	size_t n;

	return digest_rc(EVP_Q_mac(NULL, OSSL_MAC_NAME_HMAC, NULL, hash, NULL,
			     key.n != 0 ? key.p : "", key.n,
			     (const unsigned char *)(v.n != 0 ? v.p : ""), v.n,
			     out, DIGEST_BYTES, &n) != NULL);
}

void
digest_hex(const uint8_t *p, size_t n, char *out)
{
	static const char hex[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < n; i++) {
		*out++ = hex[p[i] >> 4];
		*out++ = hex[p[i] & 15];
	}
	*out = '\0';
}

static int
digest_nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int
digest_unhex(struct view v, uint8_t *out, size_t n)
{
	size_t i;

	if (v.n % 2 != 0 || v.n / 2 != n)
		return SP_E_SYNTAX;
	/* all of it first: out stays as it was when v is no good */
	for (i = 0; i < v.n; i++)
		if (digest_nibble(v.p[i]) < 0)
			return SP_E_SYNTAX;
	for (i = 0; i < n; i++)
		out[i] = (uint8_t)((unsigned)digest_nibble(v.p[2 * i]) << 4 |
		    (unsigned)digest_nibble(v.p[2 * i + 1]));
	return 0;
}
