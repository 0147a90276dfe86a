#include "config.h"

#include "bl_hist.h"

#include <inttypes.h>

enum {
	EXACT = 128, /* values below have a bucket each */
	EXACT_BITS = 7,
	STEP_BITS = 6, /* buckets for each power of two above: 64 */
	BITS_MAX = 40
};

static unsigned
index_of(uint64_t us)
{
	unsigned e;

	if (us < EXACT)
		return (unsigned)us;
	if (us >> BITS_MAX != 0)
		us = (1ull << BITS_MAX) - 1;
	e = 63 - (unsigned)__builtin_clzll(us);
	return EXACT + (e - EXACT_BITS) * (1u << STEP_BITS) +
	    (unsigned)(us >> (e - STEP_BITS) & ((1u << STEP_BITS) - 1));
}

/* The middle of a bucket. */
static uint64_t
value_of(unsigned i)
{
	unsigned e;
	uint64_t step;

	if (i < EXACT)
		return i;
	i -= EXACT;
	e = i / (1u << STEP_BITS) + EXACT_BITS;
	step = 1ull << (e - STEP_BITS);
	return (1ull << e) + (i % (1u << STEP_BITS)) * step + step / 2;
}

void
bl_hist_add(struct bl_hist *h, uint64_t us)
{
	h->n++;
	h->bucket[index_of(us)]++;
	if (us > h->max)
		h->max = us;
}

uint64_t
bl_hist_at(const struct bl_hist *h, double q)
{
	uint64_t seen = 0;
	double want = q * (double)h->n;
	unsigned i;

	for (i = 0; i < BL_HIST_N; i++) {
		seen += h->bucket[i];
		if (seen > 0 && (double)seen >= want)
			return value_of(i);
	}
	return h->max;
}

void
bl_hist_print(FILE *f, const char *name, const struct bl_hist *h)
{
	fprintf(f,
	    "\"%s\":{\"n\":%" PRIu64 ",\"p50\":%" PRIu64 ",\"p90\":%" PRIu64
	    ",\"p99\":%" PRIu64 ",\"max\":%" PRIu64 "}",
	    name, h->n, bl_hist_at(h, 0.5), bl_hist_at(h, 0.9),
	    bl_hist_at(h, 0.99), h->max);
}
