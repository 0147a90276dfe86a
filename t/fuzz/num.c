/* Numbers; what is accepted must print back to the same number. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
fuzz_integers(struct view v)
{
	uint64_t u, again;
	int64_t i;
	char out[20];
	size_t len;

	if (num_u64(v, 0, UINT64_MAX, &u) == 0) {
		len = num_format_u64(u, out);
		err_assert(len <= v.n);
		err_assert(num_u64(view_of(out, len), u, u, &again) == 0 &&
		    again == u);
		err_assert(u > INT64_MAX ||
		    (num_i64(v, 0, INT64_MAX, &i) == 0 && (uint64_t)i == u));
	}
	if (num_i64(v, -1000, 1000, &i) == 0)
		err_assert(i >= -1000 && i <= 1000);
	if (num_hex(v, 0xffff, &u) == 0)
		err_assert(u <= 0xffff);
	if (num_duration_ms(v, &u) == 0 || num_size(v, &u) == 0)
		err_assert(v.p[0] >= '0' && v.p[0] <= '9');
}

static void
fuzz_double(struct view v)
{
	double x, again;
	char out[64];
	int len;

	if (num_double(v, &x) != 0)
		return;
	err_assert(isfinite(x));
	len = snprintf(out, sizeof(out), "%.17g", x);
	err_assert(
	    len > 0 && num_double(view_of(out, (size_t)len), &again) == 0);
	err_assert(memcmp(&x, &again, sizeof(x)) == 0);
}

static void
fuzz_utf8(struct view v)
{
	bool valid = utf8_valid(v), all = true;
	char out[4];
	uint32_t cp;
	unsigned n;

	while (v.n > 0) {
		n = utf8_decode(v, &cp);
		if (n == 0) {
			all = false;
			n = 1;
		} else {
			err_assert(utf8_encode(cp, out) == n);
			err_assert(memcmp(out, v.p, n) == 0);
		}
		v = view_from(v, n);
	}
	err_assert(all == valid);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct view v = view_of(data, n);

	fuzz_integers(v);
	fuzz_double(v);
	fuzz_utf8(v);
	return 0;
}
