#include "config.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/mem.h"
#include "crypt/digest.h"
#include "crypt/shani.h"

/*
 * Where the processor can, blocks are its work, so that two messages go side by
 * side: digest_both().  Else the library does everything.
 */
struct digest {
	bool own; /* h, part and n; else ctx */
	EVP_MD_CTX *ctx; /* owned */
	EVP_MD_CTX *aside; /* owned; of digest_peek(), or NULL */
	uint32_t h[8];
	uint8_t part[SHANI_BLOCK]; /* n % SHANI_BLOCK bytes */
	uint64_t n; /* bytes that came */
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

/* ---- by the processor ---------------------------------------------------- */

/* FIPS 180-4 s5.3.3. */
static void
own_reset(struct digest *d)
{
	static const uint32_t h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372,
		0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

	memcpy(d->h, h, sizeof(d->h));
	d->n = 0;
}

/* Whole blocks, nothing being left of before. */
static void
own_blocks(struct digest *d, struct view *v, size_t n)
{
	const struct shani_lane a = { d->h, (const uint8_t *)v->p };

	shani_one(&a, n);
	d->n += n * SHANI_BLOCK;
	*v = view_from(*v, n * SHANI_BLOCK);
}

/* As much as the block that was begun still takes. */
static void
own_fill(struct digest *d, struct view *v)
{
	const struct shani_lane a = { d->h, d->part };
	size_t have = d->n % SHANI_BLOCK;
	struct view some = view_sub(*v, 0, SHANI_BLOCK - have);

	if (have == 0 || some.n == 0)
		return;
	memcpy(d->part + have, some.p, some.n);
	d->n += some.n;
	*v = view_from(*v, some.n);
	if (d->n % SHANI_BLOCK == 0)
		shani_one(&a, 1);
}

static void
own_update(struct digest *d, struct view v)
{
	own_fill(d, &v);
	if (v.n >= SHANI_BLOCK)
		own_blocks(d, &v, v.n / SHANI_BLOCK);
	if (v.n == 0)
		return;
	memcpy(d->part, v.p, v.n);
	d->n += v.n;
}

/* FIPS 180-4 s5.1.1: a one, zeros, and the length in bits. */
static void
own_final(struct digest *d, uint8_t out[DIGEST_BYTES])
{
	static const uint8_t one_and_zeros[SHANI_BLOCK] = { 0x80 };
	uint64_t bits = d->n * 8;
	size_t used = (size_t)(d->n + 8) % SHANI_BLOCK, i;
	uint8_t length[8];

	for (i = 0; i < 8; i++)
		length[i] = (uint8_t)(bits >> (56 - 8 * i));
	own_update(d, view_of(one_and_zeros, SHANI_BLOCK - used));
	own_update(d, view_of(length, sizeof(length)));
	for (i = 0; i < DIGEST_BYTES; i++)
		out[i] = (uint8_t)(d->h[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- the running digest -------------------------------------------------- */

struct digest *
digest_new(void)
{
	struct digest *d = mem_calloc(1, sizeof(*d));

	if (d == NULL)
		return NULL;
	d->own = shani_usable();
	own_reset(d);
	if (d->own)
		return d;
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
digest_reset(struct digest *d)
{
	own_reset(d);
	return d->own
	    ? 0
	    : digest_rc(EVP_DigestInit_ex2(d->ctx, digest_md(), NULL));
}

int
digest_update(struct digest *d, const void *p, size_t n)
{
	if (n == 0)
		return 0;
	if (!d->own)
		return digest_rc(EVP_DigestUpdate(d->ctx, p, n));
	own_update(d, view_of(p, n));
	return 0;
}

int
digest_both(struct digest *a, struct view va, struct digest *b, struct view vb)
{
	struct shani_lane x, y;
	size_t n;
	int rc;

	if (a->own && b->own) {
		own_fill(a, &va);
		own_fill(b, &vb);
		n = (va.n < vb.n ? va.n : vb.n) / SHANI_BLOCK;
		x = (struct shani_lane){ a->h, (const uint8_t *)va.p };
		y = (struct shani_lane){ b->h, (const uint8_t *)vb.p };
		shani_two(&x, &y, n);
		n *= SHANI_BLOCK;
		a->n += n;
		b->n += n;
		va = view_from(va, n);
		vb = view_from(vb, n);
	}
	rc = digest_update(a, va.p, va.n);
	return rc != 0 ? rc : digest_update(b, vb.p, vb.n);
}

int
digest_final(struct digest *d, uint8_t out[DIGEST_BYTES])
{
	unsigned n;
	int rc = 0;

	if (d->own)
		own_final(d, out);
	else
		rc = digest_rc(EVP_DigestFinal_ex(d->ctx, out, &n));
	return rc != 0 ? rc : digest_reset(d);
}

int
digest_peek(struct digest *d, uint8_t out[DIGEST_BYTES])
{
	struct digest copy;
	unsigned n;

	if (d->own) {
		copy = *d;
		own_final(&copy, out);
		return 0;
	}
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
