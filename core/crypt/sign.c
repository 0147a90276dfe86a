#include "config.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/mem.h"
#include "crypt/rnd.h"
#include "crypt/sign.h"

struct sign_key {
	EVP_PKEY *pkey; /* owned; the library clears it when freeing */
};

/* Leaves nothing in the library's error queue, which TLS reads too. */
static int
sign_rc(int good)
{
	if (good == 1)
		return 0;
	ERR_clear_error();
	return SP_E_NOMEM;
}

struct sign_key *
sign_key_generate(void)
{
	uint8_t seed[SIGN_KEY_BYTES];
	struct sign_key *k;

	/* RFC 8032 s5.1.5: the private key is 32 octets of random data */
	rnd_bytes(seed, sizeof(seed));
	k = sign_key_load(seed);
	mem_zero(seed, sizeof(seed));
	return k;
}

struct sign_key *
sign_key_load(const uint8_t seed[SIGN_KEY_BYTES])
{
	struct sign_key *k = mem_calloc(1, sizeof(*k));

	if (k == NULL)
		return NULL;
	k->pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed,
	    SIGN_KEY_BYTES);
	if (sign_rc(k->pkey != NULL) != 0) {
		mem_free(k);
		return NULL;
	}
	return k;
}

void
sign_key_free(struct sign_key *k)
{
	if (k == NULL)
		return;
	EVP_PKEY_free(k->pkey);
	mem_free(k);
}

int
sign_key_seed(const struct sign_key *k, uint8_t out[SIGN_KEY_BYTES])
{
	size_t n = SIGN_KEY_BYTES;

	return sign_rc(EVP_PKEY_get_raw_private_key(k->pkey, out, &n));
}

int
sign_key_public(const struct sign_key *k, uint8_t out[SIGN_KEY_BYTES])
{
	size_t n = SIGN_KEY_BYTES;

	return sign_rc(EVP_PKEY_get_raw_public_key(k->pkey, out, &n));
}

static const unsigned char *
sign_bytes(struct view v)
{
	return (const unsigned char *)(v.n != 0 ? v.p : "");
}

int
sign_make(const struct sign_key *k, struct view v, uint8_t out[SIGN_BYTES])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	size_t n = SIGN_BYTES;
	int good;

	/* Ed25519 hashes by itself: no digest is named */
	good = ctx != NULL &&
	    EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
	    EVP_DigestSign(ctx, out, &n, sign_bytes(v), v.n) == 1 &&
	    n == SIGN_BYTES;
	EVP_MD_CTX_free(ctx);
	return sign_rc(good);
}

int
sign_verify(const uint8_t pub[SIGN_KEY_BYTES], struct view v,
    const uint8_t sig[SIGN_BYTES])
{
	EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL,
	    pub, SIGN_KEY_BYTES);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int rc = SP_E_NOMEM;

	if (pkey != NULL && ctx != NULL &&
	    EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1) {
		if (EVP_DigestVerify(ctx, sig, SIGN_BYTES, sign_bytes(v),
			v.n) == 1)
			rc = 0;
		else
			rc = SP_E_DENIED;
	}
	if (rc != 0)
		ERR_clear_error();
	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(pkey);
	return rc;
}
