#include "config.h"

#include <openssl/crypto.h>

#include "base/mem.h"
#include "crypt/digest.h"
#include "crypt/sign.h"
#include "tap.h"

/* RFC 8032 s7.1, tests 1 to 3. */
static const struct {
	const char *seed, *pub, *msg, *sig;
} rows[] = {
	{ "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
	    "d75a980182b10ab7d54bfed3c964073a"
	    "0ee172f3daa62325af021a68f707511a",
	    "",
	    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
	    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100"
	    "b" },
	{ "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
	    "3d4017c3e843895a92b70aa74d1b7ebc"
	    "9c982ccf2ec4968cc0cd55f12af4660c",
	    "72",
	    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
	    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c0"
	    "0" },
	{ "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
	    "fc51cd8e6218a1a38da47ed00230f058"
	    "0816ed13ba3303ac5deb911548908025",
	    "af82",
	    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
	    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40"
	    "a" },
};

static void
test_row(size_t i)
{
	uint8_t seed[SIGN_KEY_BYTES], pub[SIGN_KEY_BYTES], sig[SIGN_BYTES];
	uint8_t got[SIGN_BYTES], msg[4];
	size_t msg_n = strlen(rows[i].msg) / 2;
	struct sign_key *k;
	struct view v = view_of(msg, msg_n);
	bool good = true;

	good &= digest_unhex(view_str(rows[i].seed), seed, 32) == 0;
	good &= digest_unhex(view_str(rows[i].pub), pub, 32) == 0;
	good &= digest_unhex(view_str(rows[i].sig), sig, 64) == 0;
	good &= digest_unhex(view_str(rows[i].msg), msg, msg_n) == 0;
	tap_ok(good, "RFC 8032 test %zu", i + 1);
	k = sign_key_load(seed);
	err_assert(k != NULL);
	tap_is_int(sign_key_public(k, got), 0, "public key");
	tap_is_mem(got, 32, pub, 32, "as in the RFC");
	tap_is_int(sign_key_seed(k, got), 0, "seed");
	tap_is_mem(got, 32, seed, 32, "as loaded");
	tap_is_int(sign_make(k, v, got), 0, "sign");
	tap_is_mem(got, 64, sig, 64, "as in the RFC");
	tap_is_int(sign_verify(pub, v, sig), 0, "verify");
	sig[5] ^= 1;
	tap_is_int(sign_verify(pub, v, sig), SP_E_DENIED, "forged");
	sig[5] ^= 1;
	pub[5] ^= 1;
	tap_is_int(sign_verify(pub, v, sig), SP_E_DENIED, "other key");
	pub[5] ^= 1;
	msg[msg_n] = 1;
	tap_is_int(sign_verify(pub, view_of(msg, msg_n + 1), sig), SP_E_DENIED,
	    "longer message");
	memset(sig, 0xff, sizeof(sig));
	tap_is_int(sign_verify(pub, v, sig), SP_E_DENIED, "no signature");
	sign_key_free(k);
}

static void
test_generate(void)
{
	uint8_t a[SIGN_KEY_BYTES], b[SIGN_KEY_BYTES], sig[SIGN_BYTES];
	struct sign_key *k = sign_key_generate(), *other = sign_key_generate();

	err_assert(k != NULL && other != NULL);
	tap_ok(sign_key_public(k, a) == 0 && sign_key_public(other, b) == 0,
	    "two keys");
	tap_ok(memcmp(a, b, sizeof(a)) != 0, "that differ");
	tap_is_int(sign_make(k, VIEW("text"), sig), 0, "sign");
	tap_is_int(sign_verify(a, VIEW("text"), sig), 0, "verify");
	tap_is_int(sign_verify(b, VIEW("text"), sig), SP_E_DENIED,
	    "the other key");
	sign_key_free(k);
	sign_key_free(other);
	sign_key_free(NULL);
	mem_fail_after(1, 0);
	k = sign_key_generate();
	tap_ok(k == NULL, "no memory");
	sign_key_free(k);
}

/* The library's memory comes from base/mem.h, so that it can fail too. */
static void *
lib_alloc(size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	return n != 0 ? mem_alloc(n) : NULL;
}

static void *
lib_realloc(void *p, size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	if (n != 0)
		return mem_realloc(p, n);
	mem_free(p);
	return NULL;
}

static void
lib_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	mem_free(p);
}

/* All there is to do with a key and a digest; the first error. */
static int
whole_round(struct sign_key **k, struct digest **d)
{
	uint8_t out[DIGEST_BYTES], pub[SIGN_KEY_BYTES], sig[SIGN_BYTES];

	*d = NULL;
	*k = sign_key_generate();
	if (*k == NULL || (*d = digest_new()) == NULL)
		return SP_E_NOMEM;
	if (digest_update(*d, "x", 1) != 0 || digest_final(*d, out) != 0 ||
	    digest_sha256(VIEW("x"), out) != 0 ||
	    digest_hmac(VIEW("k"), VIEW("x"), out) != 0 ||
	    sign_key_public(*k, pub) != 0 || sign_make(*k, VIEW("x"), sig) != 0)
		return SP_E_NOMEM;
	return sign_verify(pub, VIEW("x"), sig);
}

/* Each allocation, the library's own too, fails in turn. */
static void
test_no_memory(void)
{
	struct sign_key *k;
	struct digest *d;
	unsigned long n, before, failed = 0;
	int rc = 0;

	/* some failures the library gets over: go on until none is left */
	for (n = 1; n < 5000; n++) {
		before = mem_count();
		mem_fail_after(n, 0);
		rc = whole_round(&k, &d);
		if (mem_count() - before < n)
			n = 5000;
		mem_fail_after(0, 0);
		sign_key_free(k);
		digest_free(d);
		/* a failed check is reported as a bad signature: closed */
		if (rc != 0 && rc != SP_E_NOMEM && rc != SP_E_DENIED)
			break;
		failed += rc != 0;
	}
	tap_is_int(rc, 0, "no memory, anywhere, and then enough");
	tap_ok(failed > 10, "%lu failures", failed);
}

int
main(void)
{
	size_t i;

	err_assert(CRYPTO_set_mem_functions(lib_alloc, lib_realloc, lib_free));
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		test_row(i);
	test_generate();
	test_no_memory();
	return tap_done();
}
