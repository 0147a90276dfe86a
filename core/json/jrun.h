/*
 * Ends of runs of bytes of one class, 16 bytes at a step with SSE2 and 8
 * without.  Private to core/json; each function comes in a portable form that
 * is always there, so that tests can hold the two against each other.
 */
#ifndef SP_JSON_JRUN_H
#define SP_JSON_JRUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) && !defined(JRUN_PORTABLE)
#define JRUN_SSE2 1
#include <emmintrin.h>
#else
#define JRUN_SSE2 0
#endif

/* One byte value in all eight lanes. */
#define JRUN_ALL(c) (UINT64_C(0x0101010101010101) * (c))

static inline uint64_t
jrun_load(const uint8_t *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return x;
}

/*
 * Not 0 exactly when a lane holds 0 (or, less: a value below c, c <= 0x80).
 * Which bit is set is told rightly only for the first such lane, because of
 * the borrow; so the callers only ask whether there is one.
 */
static inline uint64_t
jrun_less(uint64_t x, uint8_t c)
{
	return (x - JRUN_ALL(c)) & ~x & JRUN_ALL(0x80);
}

static inline bool
jrun_stops_string(uint8_t c)
{
	return c < 0x20 || c == '"' || c == '\\';
}

static inline bool
jrun_is_digit(uint8_t c)
{
	return (uint8_t)(c - '0') <= 9;
}

/*
 * Source:  RFC 8259 s7, unescaped.
 * Context: any, no allocation; linear.
 * Parameters: p <= end, the bytes.
 * Returns: the first byte that is a quote, a backslash or below 0x20, or end.
 */
static inline const uint8_t *
jrun_string_portable(const uint8_t *p, const uint8_t *end)
{
	while (end - p >= 8) {
		uint64_t x = jrun_load(p);

		if ((jrun_less(x, 0x20) | jrun_less(x ^ JRUN_ALL('"'), 1) |
			jrun_less(x ^ JRUN_ALL('\\'), 1)) != 0)
			break;
		p += 8;
	}
	while (p < end && !jrun_stops_string(*p))
		p++;
	return p;
}

/* The same, and it also stops at DEL and at every byte above. */
static inline const uint8_t *
jrun_ascii_portable(const uint8_t *p, const uint8_t *end)
{
	while (end - p >= 8) {
		uint64_t x = jrun_load(p);

		if (((x & JRUN_ALL(0x80)) | jrun_less(x, 0x20) |
			jrun_less(x ^ JRUN_ALL('"'), 1) |
			jrun_less(x ^ JRUN_ALL('\\'), 1) |
			jrun_less(x ^ JRUN_ALL(0x7f), 1)) != 0)
			break;
		p += 8;
	}
	while (p < end && !jrun_stops_string(*p) && *p < 0x7f)
		p++;
	return p;
}

/*
 * Between strings: the first byte that is a quote, a capital N or I (of NaN
 * and Infinity), or not above the space, or end.
 */
static inline const uint8_t *
jrun_bare_portable(const uint8_t *p, const uint8_t *end)
{
	while (p<end && * p> ' ' && *p != '"' && *p != 'N' && *p != 'I')
		p++;
	return p;
}

/* The first byte that is not 0 to 9, or end. */
static inline const uint8_t *
jrun_digits_portable(const uint8_t *p, const uint8_t *end)
{
	while (p < end && jrun_is_digit(*p))
		p++;
	return p;
}

#if JRUN_SSE2

static inline const uint8_t *
jrun_string(const uint8_t *p, const uint8_t *end)
{
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i slash = _mm_set1_epi8('\\');
	const __m128i top = _mm_set1_epi8(0x1f);

	while (end - p >= 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)p);
		__m128i hit = _mm_cmpeq_epi8(_mm_min_epu8(v, top), v);
		int mask;

		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, quote));
		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, slash));
		mask = _mm_movemask_epi8(hit);
		if (mask != 0)
			return p + __builtin_ctz((unsigned)mask);
		p += 16;
	}
	return jrun_string_portable(p, end);
}

static inline const uint8_t *
jrun_ascii(const uint8_t *p, const uint8_t *end)
{
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i slash = _mm_set1_epi8('\\');
	const __m128i space = _mm_set1_epi8(0x20);
	const __m128i del = _mm_set1_epi8(0x7f);

	while (end - p >= 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)p);
		/* signed: 0x80 and above are below the space, too */
		__m128i hit = _mm_cmplt_epi8(v, space);
		int mask;

		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, quote));
		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, slash));
		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, del));
		mask = _mm_movemask_epi8(hit);
		if (mask != 0)
			return p + __builtin_ctz((unsigned)mask);
		p += 16;
	}
	return jrun_ascii_portable(p, end);
}

static inline const uint8_t *
jrun_bare(const uint8_t *p, const uint8_t *end)
{
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i nan = _mm_set1_epi8('N');
	const __m128i inf = _mm_set1_epi8('I');
	const __m128i top = _mm_set1_epi8(' ');

	while (end - p >= 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)p);
		__m128i hit = _mm_cmpeq_epi8(_mm_min_epu8(v, top), v);
		int mask;

		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, quote));
		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, nan));
		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, inf));
		mask = _mm_movemask_epi8(hit);
		if (mask != 0)
			return p + __builtin_ctz((unsigned)mask);
		p += 16;
	}
	return jrun_bare_portable(p, end);
}

static inline const uint8_t *
jrun_digits(const uint8_t *p, const uint8_t *end)
{
	const __m128i zero = _mm_set1_epi8('0');
	const __m128i nine = _mm_set1_epi8(9);

	while (end - p >= 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)p);
		int mask;

		v = _mm_sub_epi8(v, zero);
		v = _mm_cmpeq_epi8(_mm_min_epu8(v, nine), v);
		mask = _mm_movemask_epi8(v) ^ 0xffff;
		if (mask != 0)
			return p + __builtin_ctz((unsigned)mask);
		p += 16;
	}
	return jrun_digits_portable(p, end);
}

/*
 * Source:  RFC 8259 s5, s6: an array of integers without signs or spaces.
 * Parameters: p < end, at the first digit.
 * Returns: the closing bracket, or NULL when it is not such a list for sure
 *          within 32 bytes: the caller looks again, the slow way.
 */
static inline const uint8_t *
jrun_integers(const uint8_t *p, const uint8_t *end)
{
	const __m128i zero = _mm_set1_epi8('0');
	const __m128i nine = _mm_set1_epi8(9);
	const __m128i comma = _mm_set1_epi8(',');
	uint32_t digit = 0, sep = 0, nought = 0, other, keep;
	int i;

	if (end - p < 32)
		return NULL;
	for (i = 0; i < 32; i += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(p + i));
		__m128i d = _mm_sub_epi8(v, zero);

		d = _mm_cmpeq_epi8(_mm_min_epu8(d, nine), d);
		digit |= (uint32_t)_mm_movemask_epi8(d) << i;
		sep |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, comma))
		    << i;
		nought |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, zero))
		    << i;
	}
	other = ~(digit | sep);
	if (other == 0)
		return NULL;
	i = __builtin_ctz(other);
	keep = (UINT32_C(1) << i) - 1;
	sep &= keep;
	digit &= keep;
	/* each comma between digits, and no digit after a leading nought */
	if (p[i] != ']' || (sep & ~(digit << 1)) != 0 ||
	    (sep & ~(digit >> 1)) != 0 ||
	    (nought & (sep << 1 | 1) & digit >> 1) != 0)
		return NULL;
	return p + i;
}

/*
 * The same of a list that may be long, as far as whole blocks tell.
 * Parameters: p < end, where an element begins.
 * Returns: where an element begins, before end: p when the first one is no
 *          integer for sure, or is not followed by a comma.
 */
static inline const uint8_t *
jrun_integer_list(const uint8_t *p, const uint8_t *end)
{
	const __m128i zero = _mm_set1_epi8('0');
	const __m128i nine = _mm_set1_epi8(9);
	const __m128i comma = _mm_set1_epi8(',');

	while (end - p > 64) {
		uint64_t digit = 0, sep = 0, nought = 0, other;
		int i;

		for (i = 0; i < 64; i += 16) {
			__m128i v = _mm_loadu_si128((const __m128i *)(p + i));
			__m128i d = _mm_sub_epi8(v, zero);
			__m128i c = _mm_cmpeq_epi8(v, comma);

			d = _mm_cmpeq_epi8(_mm_min_epu8(d, nine), d);
			v = _mm_cmpeq_epi8(v, zero);
			digit |= (uint64_t)_mm_movemask_epi8(d) << i;
			sep |= (uint64_t)_mm_movemask_epi8(c) << i;
			nought |= (uint64_t)_mm_movemask_epi8(v) << i;
		}
		other = ~(digit | sep);
		if (other != 0)
			sep &= (other & (0 - other)) - 1;
		/* a digit before each comma, none after a leading nought */
		other = (sep & ~(digit << 1)) |
		    (nought & (sep << 1 | 1) & digit >> 1);
		if (other != 0)
			sep &= (other & (0 - other)) - 1;
		if (sep == 0)
			break;
		p += 64 - __builtin_clzll(sep);
	}
	return p;
}

#else

static inline const uint8_t *
jrun_integer_list(const uint8_t *p, const uint8_t *end)
{
	(void)end;
	return p;
}

static inline const uint8_t *
jrun_integers(const uint8_t *p, const uint8_t *end)
{
	(void)p;
	(void)end;
	return NULL;
}

#define jrun_string jrun_string_portable
#define jrun_ascii jrun_ascii_portable
#define jrun_bare jrun_bare_portable
#define jrun_digits jrun_digits_portable

#endif
#endif
