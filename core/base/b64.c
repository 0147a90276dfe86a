#include "config.h"

#include "base/b64.h"

int
b64_add(struct buf *out, struct view v)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = (const unsigned char *)v.p;
	size_t i, left;
	uint32_t bits;
	char *to;
	int rc;

	if (v.n > SIZE_MAX / 2)
		return SP_E_LIMIT;
	rc = buf_reserve(out, (v.n + 2) / 3 * 4);
	if (rc != SP_OK || v.n == 0)
		return rc;
	to = buf_tail(out);
	for (i = 0; i < v.n; i += 3) {
		left = v.n - i;
		bits = (uint32_t)p[i] << 16;
		bits |= left > 1 ? (uint32_t)p[i + 1] << 8 : 0;
		bits |= left > 2 ? p[i + 2] : 0u;
		*to++ = digits[bits >> 18];
		*to++ = digits[bits >> 12 & 63];
		*to++ = '=';
		*to++ = '=';
		if (left > 1)
			to[-2] = digits[bits >> 6 & 63];
		if (left > 2)
			to[-1] = digits[bits & 63];
	}
	buf_grow(out, (v.n + 2) / 3 * 4);
	return SP_OK;
}
