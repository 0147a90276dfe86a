#include "sm_out.h"

#include "base/utf8.h"

void
sm_out_init(struct sm_out *o, size_t max_bytes)
{
	buf_init(&o->b, max_bytes);
	o->err = 0;
}

void
sm_out_clear(struct sm_out *o)
{
	buf_clear(&o->b);
	o->err = 0;
}

void
sm_out_add(struct sm_out *o, struct view v)
{
	if (o->err == 0 && v.n > 0)
		o->err = buf_add(&o->b, v.p, v.n);
}

void
sm_out_str(struct sm_out *o, const char *s)
{
	sm_out_add(o, view_str(s));
}

void
sm_out_fmt(struct sm_out *o, const char *fmt, ...)
{
	va_list ap;

	if (o->err != 0)
		return;
	va_start(ap, fmt);
	o->err = buf_vprintf(&o->b, fmt, ap);
	va_end(ap);
}

/* How many bytes at v can stand in a JSON string as they are. */
static size_t
plain_run(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		unsigned char c = (unsigned char)v.p[i];

		if (c < 0x20 || c == '"' || c == '\\' || c >= 0x7f)
			break;
	}
	return i;
}

/* Writes the character at v (not plain ASCII); returns its length in v. */
static size_t
put_special(struct sm_out *o, struct view v)
{
	unsigned char c = (unsigned char)v.p[0];
	uint32_t cp;
	unsigned n;

	if (c < 0x80) {
		if (c == '"' || c == '\\')
			sm_out_fmt(o, "\\%c", c);
		else if (c == '\n')
			sm_out_str(o, "\\n");
		else
			sm_out_fmt(o, "\\u%04x", c);
		return 1;
	}
	n = utf8_decode(v, &cp);
	if (n == 0) {
		sm_out_str(o, "\\ufffd");
		return 1;
	}
	/* These end lines for some readers of JSON lines. */
	if (cp == 0x85 || cp == 0x2028 || cp == 0x2029)
		sm_out_fmt(o, "\\u%04x", (unsigned)cp);
	else
		sm_out_add(o, view_sub(v, 0, n));
	return n;
}

void
sm_out_quoted(struct sm_out *o, struct view v)
{
	sm_out_str(o, "\"");
	while (v.n > 0 && o->err == 0) {
		size_t n = plain_run(v);

		sm_out_add(o, view_sub(v, 0, n));
		v = view_from(v, n);
		if (v.n > 0)
			v = view_from(v, put_special(o, v));
	}
	sm_out_str(o, "\"");
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			       "abcdefghijklmnopqrstuvwxyz0123456789+/";

void
sm_out_base64(struct sm_out *o, struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i += 3) {
		const unsigned char *p = (const unsigned char *)v.p + i;
		size_t left = v.n - i;
		unsigned x = (unsigned)p[0] << 16;
		char q[4];

		if (left > 1)
			x |= (unsigned)p[1] << 8;
		if (left > 2)
			x |= p[2];
		q[0] = alphabet[x >> 18];
		q[1] = alphabet[x >> 12 & 63];
		q[2] = left > 1 ? alphabet[x >> 6 & 63] : '=';
		q[3] = left > 2 ? alphabet[x & 63] : '=';
		sm_out_add(o, view_of(q, 4));
	}
}

int
sm_out_unbase64(struct sm_out *o, struct view v)
{
	unsigned x = 0, bits = 0;
	size_t i;

	while (v.n > 0 && v.p[v.n - 1] == '=')
		v.n--;
	for (i = 0; i < v.n; i++) {
		const char *at = memchr(alphabet, v.p[i], 64);
		char c;

		if (at == NULL)
			return SP_E_SYNTAX;
		x = (x << 6 | (unsigned)(at - alphabet)) & 0xffff;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			c = (char)(x >> bits & 0xff);
			sm_out_add(o, view_of(&c, 1));
		}
	}
	return o->err;
}
