#include "config.h"

#define ZLIB_CONST
#include <zlib.h>
#ifdef HAVE_BROTLI
#include <brotli/decode.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

#include "base/mem.h"
#include "codec/inflate.h"

enum {
	INFLATE_CHUNK_BYTES = 16384, /* room asked for at a time */
	INFLATE_CHUNK_LEAST = 512, /* room not worth asking for more */
	INFLATE_PIECE_BYTES = 1 << 30, /* most given to a library at once */
	/* RFC 9659 s3: a decoder need not take windows over 8 MB */
	INFLATE_ZSTD_WINDOW_LOG = 23,
};

/* What one step reads and writes; the step moves both on. */
struct inflate_io {
	struct view in;
	char *out;
	size_t room;
};

struct inflate_coding {
	struct view name;
	int (*open)(struct inflate *z);
	int (*step)(struct inflate *z, struct inflate_io *io);
	void (*close)(struct inflate *z);
};

struct inflate {
	const struct inflate_coding *coding;
	bool done; /* nothing is missing at this point */
	int rc; /* the error that ended it, or 0 */
	union {
		z_stream zlib;
#ifdef HAVE_BROTLI
		BrotliDecoderState *brotli;
#endif
#ifdef HAVE_ZSTD
		ZSTD_DCtx *zstd;
#endif
	} u;
	bool zlib_open; /* deflate: the format is known */
	bool zlib_many; /* another member may follow */
	char head[2]; /* deflate: bytes held until the format is known */
	size_t head_n;
};

/* ---- gzip and deflate (RFC 1950, 1951, 1952) */

static void *
inflate_zalloc(void *opaque, unsigned n, unsigned size)
{
	(void)opaque;
	return mem_calloc(n, size);
}

static void
inflate_zfree(void *opaque, void *p)
{
	(void)opaque;
	mem_free(p);
}

static int
inflate_zlib_open(struct inflate *z, int window_bits)
{
	z->u.zlib.zalloc = inflate_zalloc;
	z->u.zlib.zfree = inflate_zfree;
	if (inflateInit2(&z->u.zlib, window_bits) != Z_OK)
		return SP_E_NOMEM;
	z->zlib_open = true;
	return 0;
}

static int
inflate_gzip_open(struct inflate *z)
{
	z->zlib_many = true;
	return inflate_zlib_open(z, 16 + MAX_WBITS);
}

static int
inflate_deflate_open(struct inflate *z)
{
	(void)z; /* when the first two bytes are there */
	return 0;
}

static void
inflate_zlib_close(struct inflate *z)
{
	if (z->zlib_open)
		(void)inflateEnd(&z->u.zlib);
}

static int
inflate_zlib_step(struct inflate *z, struct inflate_io *io)
{
	z_stream *s = &z->u.zlib;
	size_t n = io->in.n;
	int zrc;

	if (z->done && z->zlib_many && inflateReset(s) != Z_OK)
		return SP_E_SYNTAX;
	if (z->done && !z->zlib_many)
		return SP_E_SYNTAX; /* something follows the end */
	z->done = false;
	if (n > INFLATE_PIECE_BYTES)
		n = INFLATE_PIECE_BYTES;
	s->next_in = (const unsigned char *)io->in.p;
	s->avail_in = (unsigned)n;
	s->next_out = (unsigned char *)io->out;
	s->avail_out = (unsigned)io->room;
	zrc = inflate(s, Z_SYNC_FLUSH);
	io->in = view_from(io->in, n - s->avail_in);
	io->out += io->room - s->avail_out;
	io->room = s->avail_out;
	if (zrc == Z_STREAM_END)
		z->done = true;
	else if (zrc == Z_MEM_ERROR)
		return SP_E_NOMEM;
	else if (zrc != Z_OK && zrc != Z_BUF_ERROR)
		return SP_E_SYNTAX;
	return 0;
}

/*
 * RFC 9110 s8.4.1.2: "deflate" is the zlib format, but some send it bare.
 * A zlib header is told by its method, window and check (RFC 1950 s2.2).
 */
static int
inflate_deflate_start(struct inflate *z, struct inflate_io *io)
{
	unsigned cmf, flg;
	struct inflate_io head;
	bool wrapped;
	int rc;

	while (z->head_n < sizeof(z->head) && io->in.n > 0) {
		z->head[z->head_n++] = io->in.p[0];
		io->in = view_from(io->in, 1);
		z->done = false;
	}
	if (z->head_n < sizeof(z->head))
		return 0;
	cmf = (unsigned char)z->head[0];
	flg = (unsigned char)z->head[1];
	wrapped = (cmf & 15) == Z_DEFLATED && cmf >> 4 <= 7 &&
	    (cmf << 8 | flg) % 31 == 0;
	rc = inflate_zlib_open(z, wrapped ? MAX_WBITS : -MAX_WBITS);
	if (rc != 0)
		return rc;
	head = (struct inflate_io){ view_of(z->head, sizeof(z->head)), io->out,
		io->room };
	rc = inflate_zlib_step(z, &head);
	io->out = head.out;
	io->room = head.room;
	/* bare, two bytes can be a whole body: then nothing may be left */
	if (rc == 0 && head.in.n != 0)
		rc = SP_E_SYNTAX;
	return rc;
}

static int
inflate_deflate_step(struct inflate *z, struct inflate_io *io)
{
	if (!z->zlib_open)
		return inflate_deflate_start(z, io);
	return inflate_zlib_step(z, io);
}

/* ---- br (RFC 7932) */

#ifdef HAVE_BROTLI
static void *
inflate_balloc(void *opaque, size_t n)
{
	(void)opaque;
	return mem_alloc(n);
}

static void
inflate_bfree(void *opaque, void *p)
{
	(void)opaque;
	mem_free(p);
}

static int
inflate_brotli_open(struct inflate *z)
{
	z->u.brotli =
	    BrotliDecoderCreateInstance(inflate_balloc, inflate_bfree, NULL);
	return z->u.brotli != NULL ? 0 : SP_E_NOMEM;
}

static void
inflate_brotli_close(struct inflate *z)
{
	if (z->u.brotli != NULL)
		BrotliDecoderDestroyInstance(z->u.brotli);
}

static int
inflate_brotli_step(struct inflate *z, struct inflate_io *io)
{
	const uint8_t *in = (const uint8_t *)io->in.p;
	uint8_t *out = (uint8_t *)io->out;
	size_t in_n = io->in.n;
	BrotliDecoderErrorCode code;
	BrotliDecoderResult res;

	if (z->done && BrotliDecoderIsUsed(z->u.brotli))
		return SP_E_SYNTAX; /* something follows the end */
	z->done = false;
	res = BrotliDecoderDecompressStream(z->u.brotli, &in_n, &in, &io->room,
	    &out, NULL);
	io->in = view_from(io->in, io->in.n - in_n);
	io->out = (char *)out;
	if (res == BROTLI_DECODER_RESULT_SUCCESS)
		z->done = true;
	if (res != BROTLI_DECODER_RESULT_ERROR)
		return 0;
	code = BrotliDecoderGetErrorCode(z->u.brotli);
	return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES &&
		code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES
	    ? SP_E_NOMEM
	    : SP_E_SYNTAX;
}
#endif

/* ---- zstd (RFC 8878) */

#ifdef HAVE_ZSTD
/* Its stable interface takes no allocator: this memory is the library's. */
static int
inflate_zstd_open(struct inflate *z)
{
	size_t rc;

	z->u.zstd = ZSTD_createDCtx();
	if (z->u.zstd == NULL)
		return SP_E_NOMEM;
	rc = ZSTD_DCtx_setParameter(z->u.zstd, ZSTD_d_windowLogMax,
	    INFLATE_ZSTD_WINDOW_LOG);
	return ZSTD_isError(rc) ? SP_E_UNSUPPORTED : 0;
}

static void
inflate_zstd_close(struct inflate *z)
{
	ZSTD_freeDCtx(z->u.zstd);
}

static int
inflate_zstd_step(struct inflate *z, struct inflate_io *io)
{
	ZSTD_inBuffer in = { io->in.p, io->in.n, 0 };
	ZSTD_outBuffer out = { io->out, io->room, 0 };
	size_t rc = ZSTD_decompressStream(z->u.zstd, &out, &in);
	ZSTD_ErrorCode code = ZSTD_getErrorCode(rc);

	io->in = view_from(io->in, in.pos);
	io->out += out.pos;
	io->room -= out.pos;
	if (ZSTD_isError(rc)) {
		if (code == ZSTD_error_memory_allocation)
			return SP_E_NOMEM;
		if (code == ZSTD_error_frameParameter_windowTooLarge)
			return SP_E_LIMIT;
		return SP_E_SYNTAX;
	}
	z->done = rc == 0;
	return 0;
}
#endif

/* ---- all of them */

static const struct inflate_coding inflate_codings[] = {
	{ { "gzip", 4 }, inflate_gzip_open, inflate_zlib_step,
	    inflate_zlib_close },
	{ { "x-gzip", 6 }, inflate_gzip_open, inflate_zlib_step,
	    inflate_zlib_close },
	{ { "deflate", 7 }, inflate_deflate_open, inflate_deflate_step,
	    inflate_zlib_close },
#ifdef HAVE_BROTLI
	{ { "br", 2 }, inflate_brotli_open, inflate_brotli_step,
	    inflate_brotli_close },
#endif
#ifdef HAVE_ZSTD
	{ { "zstd", 4 }, inflate_zstd_open, inflate_zstd_step,
	    inflate_zstd_close },
#endif
};

int
inflate_new(struct view coding, struct inflate **out)
{
	const size_t n = sizeof(inflate_codings) / sizeof(inflate_codings[0]);
	struct inflate *z;
	size_t i;
	int rc;

	for (i = 0; i < n; i++)
		if (view_eq_nocase(coding, inflate_codings[i].name))
			break;
	if (i == n)
		return SP_E_UNSUPPORTED;
	z = mem_calloc(1, sizeof(*z));
	if (z == NULL)
		return SP_E_NOMEM;
	z->coding = &inflate_codings[i];
	z->done = true; /* an empty body is whole */
	rc = z->coding->open(z);
	if (rc != 0) {
		inflate_free(z);
		return rc;
	}
	*out = z;
	return 0;
}

void
inflate_free(struct inflate *z)
{
	if (z == NULL)
		return;
	z->coding->close(z);
	mem_free(z);
}

/* Room in out for a piece of output: its size, 0 when out is full. */
static int
inflate_room(struct buf *out, size_t *room)
{
	size_t most = out->max - buf_len(out);
	size_t want = most < INFLATE_CHUNK_BYTES ? most : INFLATE_CHUNK_BYTES;
	int rc;

	if (want > 0 && buf_room(out) < INFLATE_CHUNK_LEAST) {
		rc = buf_reserve(out, want);
		if (rc != 0)
			return rc;
	}
	*room = buf_room(out);
	if (*room > INFLATE_PIECE_BYTES)
		*room = INFLATE_PIECE_BYTES;
	return 0;
}

/*
 * One step.  When out is full, a single byte goes to a spare place: if the
 * step fills it the body is too long, otherwise it merely ends here.
 * *full tells that the step may have had more to say.
 */
static int
inflate_once(struct inflate *z, struct view *in, struct buf *out, bool *full)
{
	struct inflate_io io = { *in, NULL, 0 };
	char spare = 0;
	size_t room;
	int rc;

	rc = inflate_room(out, &room);
	if (rc != 0)
		return rc;
	io.out = room != 0 ? buf_tail(out) : &spare;
	io.room = room != 0 ? room : 1;
	rc = z->coding->step(z, &io);
	if (room == 0 && io.room == 0)
		return SP_E_LIMIT;
	if (room != 0)
		buf_grow(out, room - io.room);
	if (rc != 0)
		return rc;
	*full = io.room == 0;
	/* a step without any progress would go on for ever */
	if (io.in.n != 0 && io.in.n == in->n && io.room != 0 &&
	    (room == 0 || io.room == room))
		return SP_E_SYNTAX;
	*in = io.in;
	return 0;
}

int
inflate_feed(struct inflate *z, struct view in, struct buf *out)
{
	bool full = false;

	if (z->rc != 0)
		return z->rc;
	/* each round consumes input or fills room: both are bounded */
	while (z->rc == 0 && (in.n > 0 || (full && !z->done)))
		z->rc = inflate_once(z, &in, out, &full);
	return z->rc;
}

bool
inflate_done(const struct inflate *z)
{
	return z->rc == 0 && z->done;
}
