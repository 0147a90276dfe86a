/*
 * Content decoders.  The first byte chooses the coding, the second the size
 * of the pieces; the result must not depend on the pieces.
 */
#include "config.h"

#include <stdint.h>

#include "codec/inflate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int
fuzz_feed(const char *coding, struct view in, size_t step, struct buf *out,
    bool *done)
{
	struct inflate *z;
	int rc = inflate_new(view_str(coding), &z);

	if (rc != 0)
		return rc;
	while (rc == 0 && in.n > 0) {
		rc = inflate_feed(z, view_sub(in, 0, step), out);
		in = view_from(in, step);
	}
	*done = inflate_done(z);
	inflate_free(z);
	return rc;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const codings[] = { "gzip", "deflate", "br",
		"zstd" };
	struct buf whole = BUF_INIT(65536), pieces = BUF_INIT(65536);
	bool whole_done = false, pieces_done = false;
	const char *coding;
	struct view in;
	int a, b;

	if (n < 2)
		return 0;
	coding = codings[data[0] % 4];
	in = view_of(data + 2, n - 2);
	a = fuzz_feed(coding, in, in.n, &whole, &whole_done);
	b = fuzz_feed(coding, in, data[1] % 16 + 1U, &pieces, &pieces_done);
	err_assert(buf_len(&whole) <= 65536 && buf_len(&pieces) <= 65536);
	/* zstd checks less when it sees a whole frame at once */
	if (data[0] % 4 != 3) {
		err_assert((a == 0) == (b == 0));
		err_assert(whole_done == pieces_done);
	}
	if (a == 0 && b == 0)
		err_assert(view_eq(buf_view(&whole), buf_view(&pieces)));
	buf_clear(&whole);
	buf_clear(&pieces);
	return 0;
}
