#include "config.h"

#include "base/mem.h"
#include "crypt/digest.h"
#include "crypt/rnd.h"
#include "tap.h"

static void
is_hex(const uint8_t *got, const char *want, const char *what)
{
	char hex[DIGEST_HEX + 1];

	digest_hex(got, DIGEST_BYTES, hex);
	tap_is_str(hex, want, what);
}

/* FIPS 180-4 examples. */
static void
test_sha256(void)
{
	static const char two[] =
	    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
	struct digest *d = digest_new();
	struct view text =
	    VIEW("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
	uint8_t out[DIGEST_BYTES], sum[DIGEST_BYTES];
	char a[1000];
	size_t i;
	bool good = true;

	err_assert(d != NULL);
	tap_is_int(digest_sha256(VIEW("abc"), out), 0, "one block");
	is_hex(out,
	    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	    "abc");
	tap_is_int(digest_sha256(VIEW_NONE, out), 0, "nothing");
	is_hex(out,
	    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	    "empty");
	for (i = 0; i < text.n; i++) {
		good &= digest_update(d, text.p + i, 1) == 0;
		if (i == 2) {
			tap_is_int(digest_peek(d, out), 0, "a look in between");
			tap_ok(digest_sha256(VIEW("abc"), sum) == 0 &&
				memcmp(out, sum, sizeof(sum)) == 0,
			    "tells of what came");
		}
	}
	good &= digest_update(d, NULL, 0) == 0;
	tap_ok(good, "byte by byte");
	tap_is_int(digest_final(d, out), 0, "final");
	is_hex(out, two, "two blocks");
	memset(a, 'a', sizeof(a));
	for (i = 0; i < 1000; i++)
		good &= digest_update(d, a, sizeof(a)) == 0;
	tap_ok(good && digest_final(d, out) == 0, "it starts over");
	is_hex(out,
	    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
	    "a million a");
	digest_free(d);
	digest_free(NULL);
	mem_fail_after(1, 0);
	d = digest_new();
	tap_ok(d == NULL, "no memory");
	digest_free(d);
}

/* RFC 4231, cases 1, 2, 3, 4, 6 and 7. */
static void
test_hmac(void)
{
	static const struct {
		uint8_t key_byte;
		size_t key_n;
		const char *key;
		uint8_t data_byte;
		size_t data_n;
		const char *data;
		const char *want;
	} rows[] = {
		{ 0x0b, 20, NULL, 0, 8, "Hi There",
		    "b0344c61d8db38535ca8afceaf0bf12b"
		    "881dc200c9833da726e9376c2e32cff7" },
		{ 0, 4, "Jefe", 0, 28, "what do ya want for nothing?",
		    "5bdcc146bf60754e6a042426089575c7"
		    "5a003f089d2739839dec58b964ec3843" },
		{ 0xaa, 20, NULL, 0xdd, 50, NULL,
		    "773ea91e36800e46854db8ebd09181a7"
		    "2959098b3ef8c122d9635514ced565fe" },
		{ 0, 25,
		    "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d"
		    "\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19",
		    0xcd, 50, NULL,
		    "82558a389a443c0ea4cc819899f2083a"
		    "85f0faa3e578f8077a2e3ff46729665b" },
		{ 0xaa, 131, NULL, 0, 54,
		    "Test Using Larger Than Block-Size Key - Hash Key First",
		    "60e431591ee0b67f0d8a26aacbf5b77f"
		    "8e0bc6213728c5140546040f0ee37f54" },
		{ 0xaa, 131, NULL, 0, 152,
		    "This is a test using a larger than block-size key and a "
		    "larger than block-size data. The key needs to be hashed "
		    "before being used by the HMAC algorithm.",
		    "9b09ffa71b942fcb27635fbcd5b0e944"
		    "bfdc63644f0713938a7f51535c3a35e2" },
	};
	uint8_t out[DIGEST_BYTES];
	char key[200], data[200];
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memset(key, rows[i].key_byte, sizeof(key));
		memset(data, rows[i].data_byte, sizeof(data));
		if (rows[i].key != NULL)
			memcpy(key, rows[i].key, rows[i].key_n);
		if (rows[i].data != NULL)
			memcpy(data, rows[i].data, rows[i].data_n);
		tap_is_int(digest_hmac(view_of(key, rows[i].key_n),
			       view_of(data, rows[i].data_n), out),
		    0, "HMAC");
		is_hex(out, rows[i].want, "RFC 4231");
	}
	tap_is_int(digest_hmac(VIEW_NONE, VIEW_NONE, out), 0, "of nothing");
	is_hex(out,
	    "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad",
	    "empty key and data");
}

static void
test_hex(void)
{
	uint8_t out[3] = { 9, 9, 9 };
	char hex[5];

	tap_is_int(digest_unhex(VIEW("00fFA5"), out, 3), 0, "unhex");
	tap_is_mem(out, 3, "\0\xff\xa5", 3, "bytes");
	tap_is_int(digest_unhex(VIEW("00ff"), out, 3), SP_E_SYNTAX, "short");
	tap_is_int(digest_unhex(VIEW("00ff001"), out, 3), SP_E_SYNTAX, "odd");
	tap_is_int(digest_unhex(VIEW("0000 0"), out, 3), SP_E_SYNTAX, "bad");
	tap_is_mem(out, 3, "\0\xff\xa5", 3, "left alone");
	tap_is_int(digest_unhex(VIEW_NONE, out, 0), 0, "nothing");
	digest_hex((const uint8_t *)"\x0a\xf0", 2, hex);
	tap_is_str(hex, "0af0", "hex");
}

static void
test_rnd(void)
{
	char a[101], b[101];
	size_t i;
	bool good = true;

	rnd_token(a, 100);
	rnd_token(b, 100);
	tap_is_int((int)strlen(a), 100, "as long as asked");
	for (i = 0; i < 100; i++)
		good &= (a[i] >= '0' && a[i] <= '9') ||
		    (a[i] >= 'a' && a[i] <= 'z') ||
		    (a[i] >= 'A' && a[i] <= 'Z');
	tap_ok(good, "letters and digits");
	tap_ok(strcmp(a, b) != 0, "never the same");
	rnd_token(a, 0);
	tap_is_str(a, "", "none");
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	rnd_bytes(a, 64);
	rnd_bytes(b, 0);
	tap_ok(memcmp(a, b, 64) != 0, "bytes");
	tap_ok(a[64] == 0, "no more than asked");
}

int
main(void)
{
	test_sha256();
	test_hmac();
	test_hex();
	test_rnd();
	return tap_done();
}
