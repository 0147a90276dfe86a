/*
 * Replies: whatever the bytes, and wherever they are cut, the same replies are
 * found.  The first two bytes choose the cuts, the third a reply to HEAD.
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

	if (n < 3)
		return 0;
	in = view_of(data + 3, n - 3);
	a = in.n != 0 ? data[0] * in.n / 256 : 0;
	b = in.n != 0 ? a + data[1] * (in.n - a) / 256 : 0;
	feed_init(&whole, true);
	feed_init(&cut, true);
	whole.scan.head_request = cut.scan.head_request = data[2] == 'H';
	feed_cut(&whole, in, 0, 0);
	feed_cut(&cut, in, a, b);
	if (!view_eq(buf_view(&whole.out), buf_view(&cut.out)))
		abort();
	feed_clear(&whole);
	feed_clear(&cut);
	return 0;
}
