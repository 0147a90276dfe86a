#include "config.h"

#include <stdint.h>
#include <stdlib.h>

#include <zlib.h>
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

#include "base/mem.h"
#include "codec/inflate.h"
#include "tap.h"

static const char first[] = "data: hello hello hello\n\n";
static const char second[] = "data: [DONE]\n\n";
static const char both[] = "data: hello hello hello\n\ndata: [DONE]\n\n";

/* A coded body: the first event, flushed, ends at cut. */
struct sample {
	const char *coding;
	bool many; /* several in a row are one body */
	unsigned char p[400];
	size_t n;
	size_t cut;
};

static struct sample samples[8];
static size_t samples_n;

static void
make_zlib(const char *coding, int bits)
{
	struct sample *s = &samples[samples_n++];
	z_stream z = { 0 };

	s->coding = coding;
	s->many = bits > 16;
	err_assert(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, 0) == Z_OK);
	z.next_out = s->p;
	z.avail_out = sizeof(s->p);
	z.next_in = (unsigned char *)(uintptr_t)first;
	z.avail_in = sizeof(first) - 1;
	err_assert(deflate(&z, Z_SYNC_FLUSH) == Z_OK);
	s->cut = z.total_out;
	z.next_in = (unsigned char *)(uintptr_t)second;
	z.avail_in = sizeof(second) - 1;
	err_assert(deflate(&z, Z_FINISH) == Z_STREAM_END);
	s->n = z.total_out;
	deflateEnd(&z);
}

#ifdef HAVE_ZSTD
static void
make_zstd(void)
{
	struct sample *s = &samples[samples_n++];
	ZSTD_CCtx *c = ZSTD_createCCtx();
	ZSTD_outBuffer out = { s->p, sizeof(s->p), 0 };
	ZSTD_inBuffer a = { first, sizeof(first) - 1, 0 };
	ZSTD_inBuffer b = { second, sizeof(second) - 1, 0 };

	s->coding = "zstd";
	s->many = true;
	err_assert(c != NULL);
	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
	err_assert(ZSTD_compressStream2(c, &out, &a, ZSTD_e_flush) == 0);
	s->cut = out.pos;
	err_assert(ZSTD_compressStream2(c, &out, &b, ZSTD_e_end) == 0);
	s->n = out.pos;
	ZSTD_freeCCtx(c);
}
#endif

#ifdef HAVE_BROTLI
static void
make_brotli(void)
{
	static const char coded[] =
	    "\x0b\x0c\x00\xf8\x8d\xd4\x4e\x77\xf1\x48\xd4\x0a\x3a\x6c\x6f\x12"
	    "\xa4\x0c\x2d\x05\x91\x24\x9e\x3a\xc0\x02\x4f\x57\x0b\x0c\x68\x00"
	    "\x08\x64\x61\x74\x61\x3a\x20\x5b\x44\x4f\x4e\x45\x5d\x0a\x0a\x03";
	struct sample *s = &samples[samples_n++];

	s->coding = "br";
	s->n = sizeof(coded) - 1;
	s->cut = 30;
	memcpy(s->p, coded, s->n);
}
#endif

static struct inflate *
open_coding(const char *coding)
{
	struct inflate *z = NULL;

	err_assert(inflate_new(view_str(coding), &z) == 0 && z != NULL);
	return z;
}

/* Feeds p in pieces of at most step bytes; the first error, or 0. */
static int
feed(struct inflate *z, const void *p, size_t n, size_t step, struct buf *out)
{
	struct view v = view_of(p, n);
	int rc = 0;

	while (v.n > 0 && rc == 0) {
		rc = inflate_feed(z, view_sub(v, 0, step), out);
		v = view_from(v, step);
	}
	return rc;
}

static void
is_out(const struct buf *out, const char *want, const char *what)
{
	struct view v = buf_view(out);

	tap_is_mem(v.p, v.n, want, strlen(want), what);
}

static void
test_good(const struct sample *s)
{
	struct inflate *z = open_coding(s->coding);
	struct buf out = BUF_INIT(sizeof(both) - 1);
	char twice[2 * sizeof(s->p)];

	tap_diag("%s", s->coding);
	tap_ok(inflate_done(z), "an empty body is whole");
	tap_is_int(inflate_feed(z, VIEW_NONE, &out), 0, "fed nothing");
	tap_ok(inflate_done(z), "is still whole");
	tap_is_int(feed(z, s->p, s->n, s->n, &out), 0, "at once");
	is_out(&out, both, "all of it, max to the byte");
	tap_ok(inflate_done(z), "is done");
	inflate_free(z);

	buf_reset(&out, 0);
	z = open_coding(s->coding);
	tap_is_int(feed(z, s->p, s->n, 1, &out), 0, "byte by byte");
	is_out(&out, both, "the same");
	tap_ok(inflate_done(z), "is done");
	inflate_free(z);

	buf_reset(&out, 0);
	z = open_coding(s->coding);
	tap_is_int(feed(z, s->p, s->cut, s->n, &out), 0, "to the flush");
	is_out(&out, first, "the event is there at once");
	tap_ok(!inflate_done(z), "it is not done");
	tap_is_int(feed(z, s->p + s->cut, s->n - s->cut, 3, &out), 0,
	    "the rest");
	is_out(&out, both, "is there too");
	inflate_free(z);

	buf_clear(&out);
	buf_init(&out, 1000);
	memcpy(twice, s->p, s->n);
	memcpy(twice + s->n, s->p, s->n);
	for (size_t step = 1; step <= 2 * s->n; step += 2 * s->n - 1) {
		z = open_coding(s->coding);
		buf_reset(&out, 0);
		tap_is_int(feed(z, twice, 2 * s->n, step, &out),
		    s->many ? 0 : SP_E_SYNTAX, "two in a row");
		if (s->many)
			tap_is_int((long long)buf_len(&out),
			    2 * (sizeof(both) - 1), "both are there");
		tap_ok(inflate_done(z) == s->many, "done or broken");
		inflate_free(z);
	}
	buf_clear(&out);
}

static void
test_bad(const struct sample *s)
{
	struct buf out = BUF_INIT(sizeof(both) - 2);
	struct inflate *z;
	bool good = true;
	size_t i;
	int rc;

	z = open_coding(s->coding);
	tap_is_int(feed(z, s->p, s->n, s->n, &out), SP_E_LIMIT,
	    "one byte over max");
	tap_is_int(inflate_feed(z, VIEW("x"), &out), SP_E_LIMIT, "stays so");
	tap_ok(!inflate_done(z), "is not done");
	inflate_free(z);

	buf_clear(&out);
	buf_init(&out, 1000);
	for (i = 1; i < s->n; i++) {
		z = open_coding(s->coding);
		buf_reset(&out, 0);
		good &= feed(z, s->p, i, i, &out) == 0 && !inflate_done(z);
		inflate_free(z);
	}
	tap_ok(good, "cut anywhere, it is not done");

	z = open_coding(s->coding);
	buf_reset(&out, 1000);
	rc = feed(z, "\xff\xfe\xfd garbage garbage garbage garbage", 39, 39,
	    &out);
	tap_ok(rc == SP_E_SYNTAX || !inflate_done(z), "garbage");
	inflate_free(z);

	z = open_coding(s->coding);
	buf_reset(&out, 1000);
	good = feed(z, s->p, s->n, s->n, &out) == 0;
	tap_is_int(feed(z, "garbage", 7, 7, &out), SP_E_SYNTAX,
	    "garbage after the end");
	inflate_free(z);
	buf_clear(&out);
}

/* Each allocation of one whole decoding fails in turn. */
static void
test_no_memory(const struct sample *s)
{
	struct buf out = BUF_INIT(1000);
	struct inflate *z;
	bool good = true;
	unsigned long n;
	int rc = SP_E_NOMEM;

	for (n = 1; rc == SP_E_NOMEM && n < 100; n++) {
		z = NULL;
		buf_reset(&out, 0);
		mem_fail_after(n, 0);
		rc = inflate_new(view_str(s->coding), &z);
		if (rc == 0)
			rc = feed(z, s->p, s->n, s->n, &out);
		mem_fail_after(0, 0);
		inflate_free(z);
		good &= rc == 0 || rc == SP_E_NOMEM;
	}
	tap_ok(good && rc == 0 && n > 2, "%s: no memory, %lu times", s->coding,
	    n - 1);
	buf_clear(&out);
}

static void
is_bomb(const char *coding, const void *p, size_t n)
{
	struct inflate *z = open_coding(coding);
	struct buf out = BUF_INIT(10000);

	tap_is_int(feed(z, p, n, n, &out), SP_E_LIMIT, coding);
	tap_ok(buf_len(&out) <= 10000 && out.cap <= 10000, "within max");
	inflate_free(z);
	buf_clear(&out);
	buf_init(&out, 1 << 20);
	z = open_coding(coding);
	tap_is_int(feed(z, p, n, n, &out), 0, "but fits where it fits");
	tap_ok(buf_len(&out) == 1 << 20 && inflate_done(z), "all of it");
	inflate_free(z);
	buf_clear(&out);
}

static void
test_bombs(void)
{
	const size_t plain_n = 1 << 20;
	unsigned char *plain = mem_calloc(plain_n, 1);
	static unsigned char coded[20000];
	unsigned long n = sizeof(coded);

	err_assert(plain != NULL);
	err_assert(compress(coded, &n, plain, plain_n) == Z_OK);
	is_bomb("deflate", coded, n);
#ifdef HAVE_ZSTD
	n = ZSTD_compress(coded, sizeof(coded), plain, plain_n, 3);
	err_assert(!ZSTD_isError(n));
	is_bomb("zstd", coded, n);
#endif
#ifdef HAVE_BROTLI
	is_bomb("br",
	    "\x5b\xff\xff\x8f\x5f\x22\x2c\x1e\x0b\x04\x72\xef\x1f\x00", 14);
#endif
	mem_free(plain);
}

static void
test_names(void)
{
	static const char *const bad[] = { "", "identity", "compress", "gzi",
		"gzip ", "gzip, br", "exi" };
	struct inflate *z = NULL;
	struct buf out = BUF_INIT(10);
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		tap_is_int(inflate_new(view_str(bad[i]), &z), SP_E_UNSUPPORTED,
		    bad[i]);
	tap_ok(z == NULL, "nothing was made");
	tap_is_int(inflate_new(VIEW("X-GZip"), &z), 0, "any case");
	inflate_free(z);
	inflate_free(NULL);
	/* RFC 1951: a bare, empty block, two bytes in all */
	z = open_coding("deflate");
	tap_is_int(feed(z, "\x03", 1, 1, &out), 0, "bare deflate, begun");
	tap_ok(!inflate_done(z), "is not done");
	tap_is_int(feed(z, "\x00", 1, 1, &out), 0, "its second byte");
	tap_ok(inflate_done(z), "is a whole body");
	tap_is_int(feed(z, "\x00", 1, 1, &out), SP_E_SYNTAX, "and the end");
	inflate_free(z);
	buf_clear(&out);
#ifdef HAVE_ZSTD
	z = open_coding("zstd");
	/* a frame header that asks for a window of 2 GB */
	tap_is_int(feed(z, "\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9, 9, &out),
	    SP_E_LIMIT, "zstd: window too large");
	inflate_free(z);
	buf_clear(&out);
#endif
}

int
main(void)
{
	size_t i;

	make_zlib("gzip", 16 + MAX_WBITS);
	make_zlib("x-gzip", 16 + MAX_WBITS);
	make_zlib("deflate", MAX_WBITS);
	make_zlib("Deflate", -MAX_WBITS);
#ifdef HAVE_BROTLI
	make_brotli();
#endif
#ifdef HAVE_ZSTD
	make_zstd();
#endif
	for (i = 0; i < samples_n; i++) {
		test_good(&samples[i]);
		test_bad(&samples[i]);
		test_no_memory(&samples[i]);
	}
	test_bombs();
	test_names();
	return tap_done();
}
