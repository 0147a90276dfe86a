#include "config.h"

#include "base/utf8.h"

#include <string.h>

/*
 * RFC 3629 s4.  The second byte's range depends on the first: that is where
 * overlong forms, surrogates and what is above U+10FFFF are shut out.
 */
unsigned
utf8_decode(struct view v, uint32_t *cp)
{
	const unsigned char *p = (const unsigned char *)v.p;
	unsigned char low = 0x80, high = 0xbf;
	unsigned n, i;
	uint32_t x;

	if (v.n == 0)
		return 0;
	if (p[0] < 0x80) {
		*cp = p[0];
		return 1;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (v.n < n)
		return 0;
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	x = p[0] & (0x7fU >> n);
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		x = x << 6 | (p[i] & 0x3f);
	}
	*cp = x;
	return n;
}

/* Past what is below 0x80, eight bytes at a step. */
static inline size_t
ascii_end(struct view v, size_t at)
{
	uint64_t x;

	for (; v.n - at >= sizeof(x); at += sizeof(x)) {
		memcpy(&x, v.p + at, sizeof(x));
		if ((x & UINT64_C(0x8080808080808080)) != 0)
			break;
	}
	while (at < v.n && (unsigned char)v.p[at] < 0x80)
		at++;
	return at;
}

bool
utf8_valid(struct view v)
{
	size_t at = 0;
	uint32_t cp;
	unsigned n;

	while ((at = ascii_end(v, at)) < v.n) {
		/* other than ASCII, most often followed by its like */
		do {
			n = utf8_decode(view_from(v, at), &cp);
			if (n == 0)
				return false;
			at += n;
		} while (at < v.n && (unsigned char)v.p[at] >= 0x80);
	}
	return true;
}

unsigned
utf8_encode(uint32_t cp, char *out)
{
	/* what is no code point becomes U+FFFD, the replacement character */
	if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		cp = 0xfffd;
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}
