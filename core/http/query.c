#include "config.h"

#include "http/query.h"

enum { QUERY_NAME_MAX = 64 }; /* of those that are looked for */

static int
hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte at *i, which moves behind it; -1 a malformed escape. */
static int
decode_byte(struct view v, size_t *i)
{
	int hi, lo;

	if (v.p[*i] != '%')
		return (unsigned char)v.p[(*i)++];
	if (v.n - *i < 3)
		return -1;
	hi = hex(v.p[*i + 1]);
	lo = hex(v.p[*i + 2]);
	*i += 3;
	return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static int
decode(struct view v, struct buf *out)
{
	size_t i = 0;
	int rc = SP_OK, c;

	while (i < v.n && rc == SP_OK) {
		c = decode_byte(v, &i);
		rc = c < 0 ? SP_E_SYNTAX : buf_add_char(out, (char)c);
	}
	return rc;
}

/* The same of max bytes at most; p NULL: it is longer, or malformed. */
static struct view
decode_short(struct view v, char *out, size_t max)
{
	size_t i = 0, n = 0;
	int c;

	while (i < v.n) {
		c = decode_byte(v, &i);
		if (c < 0 || n == max)
			return VIEW_NONE;
		out[n++] = (char)c;
	}
	return view_of(out, n);
}

struct view
query_name(struct view pair, char *out, size_t max)
{
	return decode_short(view_sub(pair, 0, view_find(pair, '=')), out, max);
}

/* Names are compared decoded: whoever reads it after us does that, too. */
static bool
is_named(struct view pair, struct view name)
{
	char text[QUERY_NAME_MAX];

	return view_eq(query_name(pair, text, sizeof(text)), name);
}

/* 1 with its value as it stands; 0; SP_E_EXISTS. */
static int
query_raw(struct view query, struct view name, struct view *out)
{
	struct view pair;
	size_t n = 0, eq;

	*out = VIEW_NONE;
	while (view_split(&query, '&', &pair)) {
		if (!is_named(pair, name))
			continue;
		/* whoever reads it after us might take the other one */
		if (n++ > 0)
			return SP_E_EXISTS;
		eq = view_find(pair, '=');
		*out = eq < pair.n ? view_from(pair, eq + 1) : VIEW("");
	}
	return n > 0;
}

int
query_short(struct view query, struct view name, char *text, size_t max,
    struct view *out)
{
	int rc = query_raw(query, name, out);

	if (rc <= 0)
		return rc;
	*out = decode_short(*out, text, max);
	return out->p != NULL ? 1 : SP_E_SYNTAX;
}

int
query_flag(struct view query, struct view name, bool *out)
{
	char text[1];
	struct view v;
	int rc = query_short(query, name, text, sizeof(text), &v);

	if (rc <= 0)
		return rc;
	if (!view_eq(v, VIEW("0")) && !view_eq(v, VIEW("1")))
		return SP_E_SYNTAX;
	*out = v.p[0] == '1';
	return SP_OK;
}

int
query_get(struct view query, struct view name, struct buf *out)
{
	struct view v;
	int rc = query_raw(query, name, &v);

	if (rc <= 0)
		return rc;
	rc = decode(v, out);
	return rc == SP_OK ? 1 : rc;
}
