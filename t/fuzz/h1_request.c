/*
 * Requests: whatever the bytes, and wherever they are cut, the same requests
 * are found.  The first two bytes choose the cuts.
 */
#include "config.h"

#include "../unit/h1_feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct h1_feed whole, cut;
	struct view in;
	size_t a, b;

	if (n < 2)
		return 0;
	in = view_of(data + 2, n - 2);
	a = in.n != 0 ? data[0] * in.n / 256 : 0;
	b = in.n != 0 ? a + data[1] * (in.n - a) / 256 : 0;
	feed_init(&whole, false);
	feed_init(&cut, false);
	feed_cut(&whole, in, 0, 0);
	feed_cut(&cut, in, a, b);
	if (!view_eq(buf_view(&whole.out), buf_view(&cut.out)))
		abort();
	feed_clear(&whole);
	feed_clear(&cut);
	return 0;
}
