/* jhop against jscan: on valid text both find the same end. */
#include <stdlib.h>

#include "json/jhop.h"
#include "json/jscan.h"
#include "tap.h"

enum { TEXT_MAX = 4096, ROUNDS = 20000 };

static uint64_t seed = 88172645463325252ull;

static unsigned
below(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % n);
}

static int
add(struct buf *b, const char *s)
{
	return buf_add_str(b, s);
}

static int
add_text(struct buf *b)
{
	static const char *const bits[] = { "a", "\\\"", "\\\\", "{", "}", "[",
		"]", "\\u0022", "token", "\xc3\xa9", ",", ":", "\\\\\\\"" };
	unsigned n = below(30);
	int rc = add(b, "\"");

	while (rc == 0 && n-- > 0)
		rc = add(b, bits[below(sizeof(bits) / sizeof(bits[0]))]);
	return rc != 0 ? rc : add(b, "\"");
}

/* NOLINTNEXTLINE(misc-no-recursion): bounded by depth */
static int
add_value(struct buf *b, unsigned depth)
{
	unsigned i, n = below(5);
	bool object = below(2) != 0;
	int rc;

	if (depth == 0)
		return below(2) ? add_text(b) : add(b, "-1.25e3");
	rc = add(b, object ? "{" : "[ ");
	for (i = 0; rc == 0 && i < n; i++) {
		if (i > 0)
			rc = add(b, ",");
		if (rc == 0 && object)
			rc = add_text(b);
		if (rc == 0 && object)
			rc = add(b, " :");
		if (rc == 0)
			rc = add_value(b, below(depth));
	}
	return rc != 0 ? rc : add(b, object ? "}" : "]");
}

static bool
same(struct view v)
{
	const uint8_t *p = (const uint8_t *)v.p, *end = p + v.n;
	struct jscan_span a, b;
	struct jscan s, t;

	jscan_init(&s, v, 0);
	jscan_init(&t, v, 0);
	return jscan_skip(&s, &a) == 0 && jscan_hop(&t, &b) == 0 &&
	    a.start == b.start && a.end == b.end && a.kind == b.kind &&
	    s.pos == t.pos && jhop_end(p, end) == p + a.end &&
	    jhop_end_portable(p, end) == p + a.end;
}

/* Cut anywhere inside, neither finds an end, nor reads beyond. */
static bool
same_cut(struct view v, size_t n)
{
	char *copy = n > 0 ? malloc(n) : NULL;
	const uint8_t *p = (const uint8_t *)copy;
	bool good;

	if (copy == NULL)
		return n == 0;
	memcpy(copy, v.p, n);
	good =
	    jhop_end(p, p + n) == NULL && jhop_end_portable(p, p + n) == NULL;
	free(copy);
	return good;
}

/* Both give up. */
static void
test_none(void)
{
	static const char *const v[] = { "{]", "[}", "[{]}", "{[}]", "[[[}]]",
		"{\"a\":[\"]\"", "[\"\\\"]", "[\"", "[", "{\\\"" };
	char deep[2 * JHOP_MAX_DEPTH + 2];
	const uint8_t *p = (const uint8_t *)deep;
	size_t i, n = JHOP_MAX_DEPTH;

	for (i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		p = (const uint8_t *)v[i];
		tap_ok(jhop_end(p, p + strlen(v[i])) == NULL &&
			jhop_end_portable(p, p + strlen(v[i])) == NULL,
		    "%s", v[i]);
	}
	p = (const uint8_t *)deep;
	memset(deep, '[', n);
	memset(deep + n, ']', n);
	tap_ok(jhop_end(p, p + 2 * n) == p + 2 * n &&
		jhop_end_portable(p, p + 2 * n) == p + 2 * n,
	    "as deep as it may be");
	n++;
	memset(deep, '[', n);
	memset(deep + n, ']', n);
	tap_ok(jhop_end(p, p + 2 * n) == NULL &&
		jhop_end_portable(p, p + 2 * n) == NULL,
	    "deeper");
}

/* Any bytes: with and without SSE2 the same. */
static bool
same_noise(void)
{
	static const char bytes[] = "[]{}[]{}[{\"\\ a,\"";
	char text[200];
	size_t i, n = 1 + below(sizeof(text));
	const uint8_t *p = (const uint8_t *)text;

	for (i = 0; i < n; i++)
		text[i] = bytes[below(sizeof(bytes) - 1)];
	text[0] = below(2) ? '{' : '[';
	return jhop_end(p, p + n) == jhop_end_portable(p, p + n);
}

/* The plain reading of a list of integers, to hold the quick one against. */
static bool
is_list(const char *p)
{
	for (;; p++) {
		const char *from = p;

		while (*p >= '0' && *p <= '9')
			p++;
		if (p == from || (*from == '0' && p - from > 1))
			return false;
		if (*p != ',')
			return *p == ']';
	}
}

static bool
same_list(void)
{
	static const char bytes[] = "01239,,,]";
	char text[80];
	bool good;
	size_t i;

	memset(text, ' ', sizeof(text));
	text[0] = '[';
	text[1] = '1';
	for (i = 2; i < 30; i++)
		text[i] = bytes[below(sizeof(bytes) - 1)];
	text[i] = ']';
	/* what is behind the first bracket is white space */
	i = view_find(view_of(text, i), ']');
	memset(text + i + 1, ' ', sizeof(text) - i - 1);
	good = jscan_valid(view_of(text, sizeof(text)), 0) == 0;
	return good == is_list(text + 1);
}

/* The same with signs and fractions, which are fine as well. */
static bool
is_plain_list(char *text)
{
	char *p, *item = text;

	for (p = text; *p != '\0'; p++) {
		if (*p != ',' && *p != ']')
			continue;
		/* an item may be in white space */
		if (jscan_valid(view_of(item, (size_t)(p - item)), 0) != SP_OK)
			return false;
		item = p + 1;
	}
	return true;
}

/* Of several blocks, with a fault in some of them, or cut. */
static bool
same_long_list(void)
{
	static const char bytes[] = "0019,,,] -.x";
	char text[400];
	size_t i, n = sizeof(text) - 2, cut;
	bool good;

	text[0] = '[';
	for (i = 1; i < n; i++)
		text[i] = below(3) != 0 || text[i - 1] < '0' || i == n - 1
		    ? (char)('1' + below(9))
		    : ',';
	text[n] = ']';
	text[n + 1] = '\0';
	for (i = below(3); i > 0; i--)
		text[1 + below((unsigned)n - 1)] =
		    bytes[below(sizeof(bytes) - 1)];
	/* where the first bracket closes it, all of it has to be */
	if (strchr(text, ']') != text + n)
		return jscan_valid(view_of(text, n + 1), 0) == SP_E_SYNTAX;
	good = jscan_valid(view_of(text, n + 1), 0) == SP_OK;
	cut = 1 + below((unsigned)n);
	return good == is_plain_list(text + 1) &&
	    jscan_valid(view_of(text, cut), 0) == SP_E_SYNTAX;
}

int
main(void)
{
	struct buf b = BUF_INIT(1 << 20);
	unsigned i, wrong = 0, cut_wrong = 0, lists;

	for (i = 0; i < ROUNDS; i++) {
		size_t n;

		buf_truncate(&b, 0);
		if (add_value(&b, 1 + below(5)) != 0)
			break;
		n = buf_len(&b);
		if (add(&b, below(2) ? "" : ",\"x\":[{}]}]") != 0)
			break;
		wrong += !same(buf_view(&b));
		cut_wrong += !same_cut(buf_view(&b), below((unsigned)n));
	}
	tap_is_int(i == ROUNDS ? (int)wrong : -1, 0, "the same ends");
	for (i = 0, wrong = 0; i < ROUNDS * 10; i++)
		wrong += !same_noise();
	tap_is_int((int)wrong, 0, "the same for any bytes");
	test_none();
	for (i = 0, lists = 0; i < ROUNDS * 10; i++)
		lists += !same_list();
	tap_is_int((int)lists, 0, "lists of integers");
	for (i = 0, lists = 0; i < ROUNDS * 10; i++)
		lists += !same_long_list();
	tap_is_int((int)lists, 0, "long ones");
	tap_is_int((int)cut_wrong, 0, "no end where there is none");
	buf_clear(&b);
	return tap_done();
}
