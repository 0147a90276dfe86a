#include "config.h"

#include "json/jhop.h"
#include "json/jrun.h"

enum { BLOCK = 64 };

/* p is at the byte after an opening quote; NULL: it does not close. */
static const uint8_t *
string_end(const uint8_t *p, const uint8_t *end)
{
	for (; p < end; p++) {
		if (*p == '"')
			return p + 1;
		if (*p == '\\' && ++p == end)
			break;
	}
	return NULL;
}

/* The brackets that are open, innermost last: a bit each, set for a brace. */
struct nest {
	uint64_t kinds;
	unsigned depth;
	bool bad; /* one was closed as the other kind, or so */
};

/* False at the end: all is closed, or it is of no use. */
static inline bool
nest_bracket(struct nest *t, bool opens, bool brace)
{
	uint64_t k = brace;

	t->bad |= !opens && ((t->kinds ^ k) & 1) != 0;
	t->kinds = opens ? t->kinds << 1 | k : t->kinds >> 1;
	t->depth += opens ? 1 : -1u;
	return t->depth - 1 < JHOP_MAX_DEPTH;
}

const uint8_t *
jhop_end_portable(const uint8_t *p, const uint8_t *end)
{
	struct nest t = { 0 };

	while (p != NULL && p < end) {
		uint8_t c = *p++;

		if (c == '"')
			p = string_end(p, end);
		else if (c == '\\')
			return NULL;
		else if ((c | 0x20) == '{' || (c | 0x20) == '}') {
			if (!nest_bracket(&t, (c | 0x20) == '{',
				(c & 0x20) != 0))
				return t.depth == 0 && !t.bad ? p : NULL;
		}
	}
	return NULL;
}

#if JRUN_SSE2

/* One bit for each byte of a block. */
struct block {
	uint64_t quote, slash, open, close, brace;
};

/* What is carried from one block into the next. */
struct hop {
	struct nest nest;
	uint64_t in_string; /* all ones when the block begins in one */
	bool escaped; /* its first byte is */
};

static inline void
look(struct block *b, const uint8_t *p)
{
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i slash = _mm_set1_epi8('\\');
	const __m128i open = _mm_set1_epi8('{');
	const __m128i close = _mm_set1_epi8('}');
	const __m128i fold = _mm_set1_epi8(0x20); /* '[' to '{', ']' to '}' */
	int i;

	*b = (struct block){ 0 };
	for (i = 0; i < BLOCK; i += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(p + i));
		__m128i f = _mm_or_si128(v, fold);

		b->quote |=
		    (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, quote)) << i;
		b->slash |=
		    (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, slash)) << i;
		b->open |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(f, open))
		    << i;
		b->close |=
		    (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(f, close)) << i;
		/* the bit 0x20 tells a brace from a bracket */
		b->brace |= (uint64_t)_mm_movemask_epi8(_mm_slli_epi16(v, 2))
		    << i;
	}
}

/* Takes out the quotes that stand behind a backslash. */
static void
unescape(struct hop *h, struct block *b)
{
	uint64_t slash = b->slash;

	if (h->escaped) {
		slash &= ~UINT64_C(1);
		b->quote &= ~UINT64_C(1);
		h->escaped = false;
	}
	while (slash != 0) {
		uint64_t next = (slash & (0 - slash)) << 1;

		slash &= slash - 1;
		slash &= ~next;
		b->quote &= ~next;
		h->escaped = next == 0; /* it was the last byte */
	}
}

/* Bits from each quote up to the next one. */
static inline uint64_t
between(uint64_t quote)
{
	int i;

	for (i = 1; i < BLOCK; i *= 2)
		quote ^= quote << i;
	return quote;
}

/* The bit of the bracket where it ends, or BLOCK. */
static inline unsigned
hop_block(struct hop *h, const uint8_t *p)
{
	struct block b;
	uint64_t in, stray, both;

	look(&b, p);
	if (b.slash != 0 || h->escaped)
		unescape(h, &b);
	in = between(b.quote) ^ h->in_string;
	h->in_string = 0 - (in >> 63);
	stray = b.slash & ~in; /* the first of them is one, for sure */
	for (both = (b.open | b.close) & ~in; both != 0; both &= both - 1) {
		unsigned at = (unsigned)__builtin_ctzll(both);

		if (!nest_bracket(&h->nest, (b.open >> at & 1) != 0,
			(b.brace >> at & 1) != 0)) {
			h->nest.bad |= (stray & ((UINT64_C(1) << at) - 1)) != 0;
			return at;
		}
	}
	h->nest.bad |= stray != 0;
	return BLOCK;
}

const uint8_t *
jhop_end(const uint8_t *p, const uint8_t *end)
{
	struct hop h = { .in_string = 0 };
	uint8_t rest[BLOCK];
	unsigned at = BLOCK;

	for (; end - p >= BLOCK; p += BLOCK) {
		at = hop_block(&h, p);
		if (at < BLOCK)
			break;
	}
	if (at == BLOCK && p < end) {
		memset(rest, ' ', sizeof(rest));
		memcpy(rest, p, (size_t)(end - p));
		at = hop_block(&h, rest);
	}
	return at < BLOCK && h.nest.depth == 0 && !h.nest.bad ? p + at + 1
							      : NULL;
}

#else

const uint8_t *
jhop_end(const uint8_t *p, const uint8_t *end)
{
	return jhop_end_portable(p, end);
}

#endif
