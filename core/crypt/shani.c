#include "crypt/shani.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define WITH_SHA __attribute__((target("sha,sse4.1")))
#define INLINE_SHA WITH_SHA __attribute__((always_inline)) static inline

enum {
	CPUID_FEATURES = 1,
	CPUID_MORE = 7,
	CPUID_SSSE3 = 1 << 9, /* of ecx */
	CPUID_SSE41 = 1 << 19,
	CPUID_SHA = 1 << 29, /* of ebx, with more */
};

/* FIPS 180-4 s4.2.2. */
static const uint32_t rounds[64] __attribute__((aligned(16))) = { 0x428a2f98,
	0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74,
	0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6,
	0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152,
	0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351,
	0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354,
	0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70,
	0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
	0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa,
	0xa4506ceb, 0xbef9a3f7, 0xc67178f2 };

/* A message's state as the instructions want it, and four words times four. */
struct lane {
	__m128i abef, cdgh, w[4];
};

bool
shani_usable(void)
{
	unsigned a, b, c, d;

	if (__get_cpuid(CPUID_FEATURES, &a, &b, &c, &d) == 0 ||
	    (c & CPUID_SSSE3) == 0 || (c & CPUID_SSE41) == 0)
		return false;
	return __get_cpuid_count(CPUID_MORE, 0, &a, &b, &c, &d) != 0 &&
	    (b & CPUID_SHA) != 0;
}

INLINE_SHA __m128i
four_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	return _mm_set_epi32((int)a, (int)b, (int)c, (int)d);
}

INLINE_SHA void
lane_get(struct lane *l, const uint32_t *h)
{
	l->abef = four_words(h[0], h[1], h[4], h[5]);
	l->cdgh = four_words(h[2], h[3], h[6], h[7]);
}

INLINE_SHA void
lane_put(const struct lane *l, uint32_t *h)
{
	h[0] = (uint32_t)_mm_extract_epi32(l->abef, 3);
	h[1] = (uint32_t)_mm_extract_epi32(l->abef, 2);
	h[2] = (uint32_t)_mm_extract_epi32(l->cdgh, 3);
	h[3] = (uint32_t)_mm_extract_epi32(l->cdgh, 2);
	h[4] = (uint32_t)_mm_extract_epi32(l->abef, 1);
	h[5] = (uint32_t)_mm_extract_epi32(l->abef, 0);
	h[6] = (uint32_t)_mm_extract_epi32(l->cdgh, 1);
	h[7] = (uint32_t)_mm_extract_epi32(l->cdgh, 0);
}

INLINE_SHA void
lane_load(struct lane *l, const uint8_t *p)
{
	/* the message's words have their greatest byte first */
	const __m128i swap =
	    _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
	const __m128i *v = (const __m128i *)(const void *)p;

	l->w[0] = _mm_shuffle_epi8(_mm_loadu_si128(v), swap);
	l->w[1] = _mm_shuffle_epi8(_mm_loadu_si128(v + 1), swap);
	l->w[2] = _mm_shuffle_epi8(_mm_loadu_si128(v + 2), swap);
	l->w[3] = _mm_shuffle_epi8(_mm_loadu_si128(v + 3), swap);
}

/* Four rounds, with words i of the four times four. */
INLINE_SHA void
lane_rounds(struct lane *l, __m128i k, int i)
{
	__m128i x = _mm_add_epi32(l->w[i], k);

	l->cdgh = _mm_sha256rnds2_epu32(l->cdgh, l->abef, x);
	x = _mm_shuffle_epi32(x, 0x0e);
	l->abef = _mm_sha256rnds2_epu32(l->abef, l->cdgh, x);
}

/* Words i make place for those of sixteen rounds later. */
INLINE_SHA void
lane_words(struct lane *l, int i)
{
	__m128i last = l->w[(i + 3) % 4], x;

	x = _mm_sha256msg1_epu32(l->w[i], l->w[(i + 1) % 4]);
	x = _mm_add_epi32(x, _mm_alignr_epi8(last, l->w[(i + 2) % 4], 4));
	l->w[i] = _mm_sha256msg2_epu32(x, last);
}

INLINE_SHA __m128i
constants(int round)
{
	return _mm_load_si128((const __m128i *)(const void *)(rounds + round));
}

INLINE_SHA void
lane_add(struct lane *l, const struct lane *before)
{
	l->abef = _mm_add_epi32(l->abef, before->abef);
	l->cdgh = _mm_add_epi32(l->cdgh, before->cdgh);
}

/* Four rounds of one message, or of two; more words come behind. */
INLINE_SHA void
four(struct lane *x, struct lane *y, int from, int i, bool more)
{
	__m128i k = constants(from + 4 * i);

	lane_rounds(x, k, i);
	if (y != NULL)
		lane_rounds(y, k, i);
	if (!more)
		return;
	lane_words(x, i);
	if (y != NULL)
		lane_words(y, i);
}

/* No loop: what i chooses must be known here, to stay in registers. */
INLINE_SHA void
sixteen(struct lane *x, struct lane *y, int from, bool more)
{
	four(x, y, from, 0, more);
	four(x, y, from, 1, more);
	four(x, y, from, 2, more);
	four(x, y, from, 3, more);
}

WITH_SHA void
shani_one(const struct shani_lane *a, size_t n)
{
	const uint8_t *p = a->p;
	struct lane x, before;
	int i;

	lane_get(&x, a->h);
	for (; n > 0; n--, p += SHANI_BLOCK) {
		before = x;
		lane_load(&x, p);
		for (i = 0; i < 48; i += 16)
			sixteen(&x, NULL, i, true);
		sixteen(&x, NULL, 48, false);
		lane_add(&x, &before);
	}
	lane_put(&x, a->h);
}

WITH_SHA void
shani_two(const struct shani_lane *a, const struct shani_lane *b, size_t n)
{
	const uint8_t *p = a->p, *q = b->p;
	struct lane x, y, x_before, y_before;
	int i;

	lane_get(&x, a->h);
	lane_get(&y, b->h);
	for (; n > 0; n--, p += SHANI_BLOCK, q += SHANI_BLOCK) {
		x_before = x;
		y_before = y;
		lane_load(&x, p);
		lane_load(&y, q);
		for (i = 0; i < 48; i += 16)
			sixteen(&x, &y, i, true);
		sixteen(&x, &y, 48, false);
		lane_add(&x, &x_before);
		lane_add(&y, &y_before);
	}
	lane_put(&x, a->h);
	lane_put(&y, b->h);
}

#else

bool
shani_usable(void)
{
	return false;
}

void
shani_one(const struct shani_lane *a, size_t n)
{
	(void)a;
	(void)n;
}

void
shani_two(const struct shani_lane *a, const struct shani_lane *b, size_t n)
{
	(void)a;
	(void)b;
	(void)n;
}

#endif
