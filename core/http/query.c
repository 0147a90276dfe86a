#include "config.h"

#include "http/query.h"

struct view
query_raw(struct view query, struct view name)
{
	struct view pair;
	size_t eq;

	while (view_split(&query, '&', &pair)) {
		eq = view_find(pair, '=');
		if (view_eq(view_sub(pair, 0, eq), name))
			return eq < pair.n ? view_from(pair, eq + 1) : VIEW("");
	}
	return VIEW_NONE;
}

int
query_flag(struct view query, struct view name, bool *out)
{
	struct view v = query_raw(query, name);

	if (v.p == NULL)
		return SP_OK;
	if (!view_eq(v, VIEW("0")) && !view_eq(v, VIEW("1")))
		return SP_E_SYNTAX;
	*out = v.p[0] == '1';
	return SP_OK;
}

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

struct view
query_name(struct view pair, char *out, size_t max)
{
	struct view name = view_sub(pair, 0, view_find(pair, '='));
	size_t i = 0, n = 0;
	int c;

	while (i < name.n) {
		c = decode_byte(name, &i);
		if (c < 0 || n == max)
			return VIEW_NONE;
		out[n++] = (char)c;
	}
	return view_of(out, n);
}

/* Whoever reads it after us might take the other one. */
static bool
is_alone(struct view query, struct view name)
{
	struct view pair;
	size_t n = 0;

	while (view_split(&query, '&', &pair))
		n += view_eq(view_sub(pair, 0, view_find(pair, '=')), name);
	return n <= 1;
}

int
query_get(struct view query, struct view name, struct buf *out)
{
	struct view v = query_raw(query, name);
	int rc = v.p != NULL ? decode(v, out) : SP_OK;

	if (rc == SP_OK && !is_alone(query, name))
		return SP_E_SYNTAX;
	return rc != SP_OK ? rc : v.p != NULL;
}
