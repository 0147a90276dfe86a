#include "config.h"

#include "base/b64.h"

#include <stdbool.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			     "abcdefghijklmnopqrstuvwxyz0123456789+/";

int
b64_add(struct buf *out, struct view v)
{
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

/* Four digits, of which the last ones may be padding, to so many bytes. */
static int
quad(const char *p, bool last, char out[3])
{
	uint32_t bits = 0;
	const char *at;
	int i, n = 3;

	for (i = 0; i < 4; i++) {
		if (last && p[i] == '=' && i >= 2) {
			n = n < i - 1 ? n : i - 1;
			bits <<= 6;
			continue;
		}
		at = p[i] != 0 ? strchr(digits, p[i]) : NULL;
		if (at == NULL || n < 3)
			return SP_E_SYNTAX;
		bits = bits << 6 | (uint32_t)(at - digits);
	}
	out[0] = (char)(bits >> 16);
	out[1] = (char)(bits >> 8);
	out[2] = (char)bits;
	return n;
}

int
b64_get(struct view v, struct buf *out)
{
	char three[3];
	size_t i;
	int n, rc = v.n % 4 == 0 ? SP_OK : SP_E_SYNTAX;

	for (i = 0; i < v.n && rc == SP_OK; i += 4) {
		n = quad(v.p + i, i + 4 == v.n, three);
		rc = n < 0 ? n : buf_add_view(out, view_of(three, (size_t)n));
	}
	return rc;
}
