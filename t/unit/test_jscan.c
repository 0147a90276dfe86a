/* core/json/jscan.c: grammar, spans, decoding, numbers, and against yajl. */
#include <limits.h>

#include "base/utf8.h"
#include "json/jrun.h"
#include "t/unit/json_peer.h"
#include "t/unit/tap.h"

static const char *const valid[] = {
	"null",
	"true",
	"false",
	"0",
	"-0",
	"1",
	"-1",
	"10",
	"0.0",
	"-0.5",
	"1e5",
	"1E+5",
	"1e-5",
	"0e0",
	"1.25e007",
	"123456789012345678901234567890",
	"-0.12345678901234567",
	"1e308",
	"5e-324",
	"9007199254740993",
	"0.1234567890123456789012345",
	"\"\"",
	"\"a\"",
	"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\uFFFF\\u0000\"",
	"\"\xff\xfe\x80 any bytes\"",
	"\"\x7f\"",
	"\"0123456789abcde\\\"0123456789abcdef0123456789\"",
	"[]",
	"{}",
	"[[]]",
	"[{}]",
	"{\"\":{}}",
	"[1,2,3]",
	" [ 1 , 2 ] ",
	"\t{\r\n\"a\" : 1 ,\"b\":[ ] }\n",
	"{\"a\":1,\"a\":2}",
	"{\"a\":{\"b\":[{\"d\":[]},null,true,false,-1.5e3]},\"e\":\"\"}",
	"[\"a\",\"b\",{\"c\":\"d\"},[\"e\"]]",
};

/* A text and where it goes wrong. */
static const struct {
	const char *text;
	size_t at;
} invalid[] = {
	{ "", 0 },
	{ "  ", 2 },
	{ "01", 1 },
	{ "-01", 2 },
	{ "-", 1 },
	{ "+1", 0 },
	{ "1.", 2 },
	{ ".5", 0 },
	{ "1.e5", 2 },
	{ "1e", 2 },
	{ "1e+", 3 },
	{ "1.5.5", 3 },
	{ "0x10", 1 },
	{ "NaN", 0 },
	{ "Infinity", 0 },
	{ "-Infinity", 1 },
	{ "[-Infinity]", 2 },
	{ "nul", 3 },
	{ "nulL", 3 },
	{ "True", 0 },
	{ "truex", 4 },
	{ "\"", 1 },
	{ "\"abc", 4 },
	{ "\"a\nb\"", 2 },
	{ "\"0123456789abcdef\x1f\"", 17 },
	{ "\"\\", 2 },
	{ "\"\\x\"", 2 },
	{ "\"\\'\"", 2 },
	{ "\"\\u12g4\"", 5 },
	{ "\"\\u123", 6 },
	{ "\"\\u", 3 },
	{ "'a'", 0 },
	{ "[", 1 },
	{ "]", 0 },
	{ "[1", 2 },
	{ "[1,", 3 },
	{ "[1,]", 3 },
	{ "[,1]", 1 },
	{ "[1,,2]", 3 },
	{ "[1 2]", 3 },
	{ "[1}", 2 },
	{ "[1]]", 3 },
	{ "{", 1 },
	{ "}", 0 },
	{ "{1:2}", 1 },
	{ "{\"a\"}", 4 },
	{ "{\"a\":}", 5 },
	{ "{\"a\":1", 6 },
	{ "{\"a\":", 5 },
	{ "{\"a\" 1}", 5 },
	{ "{\"a\":1,}", 7 },
	{ "{,\"a\":1}", 1 },
	{ "{\"a\":1,,\"b\":2}", 7 },
	{ "{\"a\":1 \"b\":2}", 7 },
	{ "{\"a\":1]", 6 },
	{ "{}x", 2 },
	{ "1 2", 2 },
	{ "[] []", 3 },
	{ "\xef\xbb\xbf{}", 0 },
	{ "{}\v", 2 },
	{ "[1]//", 3 },
	{ "/*x*/1", 0 },
};

static void
test_grammar(void)
{
	struct jscan s;
	const char *why;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(valid) / sizeof(valid[0]); i++) {
		struct view v = view_str(valid[i]);

		why = peer_compare(v);
		tap_ok(jscan_valid(v, 0) == 0 && why == NULL, "valid %zu%s%s",
		    i, why ? ": " : "", why ? why : "");
	}
	for (i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
		struct view v = view_str(invalid[i].text);

		jscan_init(&s, v, 0);
		rc = jscan_skip(&s, NULL);
		if (rc == 0)
			rc = jscan_finish(&s);
		why = peer_compare(v);
		tap_ok(rc == SP_E_SYNTAX && s.pos == invalid[i].at &&
			jscan_finish(&s) == rc && jscan_skip(&s, NULL) == rc &&
			jscan_peek(&s) == JSCAN_NONE && why == NULL,
		    "invalid %zu, at %zu%s%s", i, s.pos, why ? ": " : "",
		    why ? why : "");
	}
	jscan_init(&s, VIEW("1\0"), 0);
	tap_is_int(jscan_skip(&s, NULL), 0, "a number before NUL");
	tap_is_int(jscan_finish(&s), SP_E_SYNTAX, "NUL is no white space");
	tap_is_int(jscan_valid(VIEW_NONE, 0), SP_E_SYNTAX, "no text at all");
	tap_is_int(jscan_valid(VIEW("\"a\0b\""), 0), SP_E_SYNTAX,
	    "a raw NUL in a string");
}

/* Every cut of a text is invalid, unless what is cut off is white space. */
static void
test_cuts(void)
{
	static const char text[] =
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\u00e9\\n\"},"
	    "\"logprobs\":{\"content\":[{\"token\":\"x\",\"logprob\":-1.5e-3,"
	    "\"bytes\":[120],\"top_logprobs\":[]}]},\"ok\":[true,null]}]}";
	size_t n, bad = 0;

	for (n = 0; n < sizeof(text) - 1; n++)
		if (jscan_valid(view_of(text, n), 0) != SP_E_SYNTAX ||
		    peer_compare(view_of(text, n)) != NULL)
			bad++;
	tap_is_int((long long)bad, 0, "cut at every byte: invalid");
	tap_is_int(jscan_valid(view_of(text, n), 0), 0, "uncut: valid");
	/* every byte, replaced by every other */
	for (n = 0; n < sizeof(text) - 1; n++) {
		char copy[sizeof(text)];
		int c;

		memcpy(copy, text, sizeof(text));
		for (c = 0; c < 256; c++) {
			copy[n] = (char)c;
			bad += peer_compare(view_of(copy, sizeof(text) - 1)) !=
			    NULL;
		}
	}
	tap_is_int((long long)bad, 0, "any one byte changed: as yajl says");
}

static void
test_depth(void)
{
	enum { N = JSCAN_MAX_DEPTH + 1 };
	char text[2 * N];
	struct jscan s;
	unsigned i;
	int rc = 0;

	memset(text, '[', N);
	memset(text + N, ']', N);
	tap_is_int(jscan_valid(view_of(text + 1, sizeof(text) - 2), 0), 0,
	    "as deep as allowed");
	tap_ok(peer_compare(view_of(text + 1, sizeof(text) - 2)) == NULL,
	    "as deep as allowed: walked");
	jscan_init(&s, view_of(text, sizeof(text)), 0);
	tap_is_int(jscan_skip(&s, NULL), SP_E_LIMIT, "one deeper");
	tap_is_int((long long)s.pos, JSCAN_MAX_DEPTH, "one deeper: where");
	jscan_init(&s, view_of(text, sizeof(text)), 0);
	for (i = 0; i < N && rc == 0; i++)
		rc = jscan_enter(&s);
	tap_is_int(rc, SP_E_LIMIT, "one deeper, entered");
	jscan_init(&s, view_of(text, sizeof(text)), 0);
	for (rc = 0, i = 0; i < 500 && rc == 0; i++)
		rc = jscan_enter(&s);
	tap_is_int(rc, 0, "500 entered");
	tap_is_int(jscan_skip(&s, NULL), SP_E_LIMIT, "13 more skipped");
}

static void
test_nonfinite(void)
{
	struct view text = VIEW(" [NaN, Infinity,-Infinity,-1,null]");
	struct jscan_span v;
	struct jscan s;
	int i, good = 0;
	double d;

	tap_is_int(jscan_valid(text, 0), SP_E_SYNTAX, "NaN: not by default");
	jscan_init(&s, text, JSCAN_ALLOW_NONFINITE);
	tap_is_int(jscan_enter(&s), 0, "enter");
	for (i = 0; i < 3; i++)
		good += jscan_element(&s) == 1 &&
		    jscan_peek(&s) == JSCAN_NONFINITE &&
		    jscan_skip(&s, &v) == 0 && v.kind == JSCAN_NONFINITE &&
		    jscan_double(&s, &v, &d) == SP_E_SYNTAX;
	tap_is_int(good, 3, "three that are not finite");
	tap_is_mem(s.p + v.start, v.end - v.start, "-Infinity", 9, "the last");
	tap_ok(jscan_element(&s) == 1 && jscan_peek(&s) == JSCAN_NUMBER &&
		jscan_skip(&s, &v) == 0 && v.kind == JSCAN_NUMBER,
	    "-1 is a number");
	tap_ok(jscan_element(&s) == 1 && jscan_peek(&s) == JSCAN_NULL &&
		jscan_skip(&s, NULL) == 0 && jscan_element(&s) == 0 &&
		jscan_finish(&s) == 0,
	    "to the end");
	tap_ok(jscan_valid(VIEW("{\"a\":NaN,\"b\":-Infinity}"),
		   JSCAN_ALLOW_NONFINITE) == 0,
	    "in an object that is skipped");
	tap_ok(jscan_valid(VIEW("Nan"), JSCAN_ALLOW_NONFINITE) == SP_E_SYNTAX &&
		jscan_valid(VIEW("nan"), JSCAN_ALLOW_NONFINITE) ==
		    SP_E_SYNTAX &&
		jscan_valid(VIEW("Inf"), JSCAN_ALLOW_NONFINITE) ==
		    SP_E_SYNTAX &&
		jscan_valid(VIEW("-I"), JSCAN_ALLOW_NONFINITE) == SP_E_SYNTAX &&
		jscan_valid(VIEW("-NaN"), JSCAN_ALLOW_NONFINITE) ==
		    SP_E_SYNTAX &&
		jscan_valid(VIEW("+Infinity"), JSCAN_ALLOW_NONFINITE) ==
		    SP_E_SYNTAX &&
		jscan_valid(VIEW("-"), JSCAN_ALLOW_NONFINITE) == SP_E_SYNTAX,
	    "other spellings are none");
}

static void
test_pull(void)
{
	struct view text =
	    VIEW("{ \"a\\u0062\" : [ 1, {\"x\":\"y\"} ],\"\":true}");
	struct jscan_span key, v;
	struct jscan s;

	jscan_init(&s, text, 0);
	tap_ok(jscan_peek(&s) == JSCAN_OBJECT && jscan_enter(&s) == 0, "enter");
	tap_ok(jscan_member(&s, &key) == 1 && key.escaped &&
		jscan_is(&s, &key, VIEW("ab")) &&
		!jscan_is(&s, &key, VIEW("a")) &&
		!jscan_is(&s, &key, VIEW("abc")) &&
		!jscan_is(&s, &key, VIEW_NONE),
	    "an escaped name");
	tap_is_mem(jscan_text(&s, &key).p, jscan_text(&s, &key).n, "a\\u0062",
	    7, "its text");
	tap_is_mem(jscan_raw(&s, &key).p, jscan_raw(&s, &key).n, "\"a\\u0062\"",
	    9, "its bytes");
	tap_ok(jscan_enter(&s) == 0 && jscan_element(&s) == 1 &&
		jscan_skip(&s, &v) == 0 && v.kind == JSCAN_NUMBER &&
		!jscan_is(&s, &v, VIEW("1")),
	    "an element, which is no string");
	tap_ok(jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0 &&
		v.kind == JSCAN_OBJECT,
	    "an object skipped");
	tap_is_mem(jscan_raw(&s, &v).p, jscan_raw(&s, &v).n, "{\"x\":\"y\"}", 9,
	    "its bytes");
	tap_ok(jscan_element(&s) == 0 && jscan_member(&s, &key) == 1 &&
		!key.escaped && jscan_is(&s, &key, VIEW_NONE) &&
		jscan_skip(&s, &v) == 0 && v.kind == JSCAN_TRUE &&
		jscan_member(&s, &key) == 0 && jscan_finish(&s) == 0,
	    "an empty name, and the end");
	jscan_init(&s, VIEW("[1,2]"), 0);
	tap_ok(jscan_enter(&s) == 0 && jscan_element(&s) == 1 &&
		jscan_element(&s) == SP_E_SYNTAX,
	    "an element that was not consumed");
	jscan_init(&s, VIEW("[1,2]"), 0);
	tap_ok(jscan_enter(&s) == 0 && jscan_member(&s, &key) == SP_E_SYNTAX,
	    "a member of an array");
	jscan_init(&s, VIEW("{\"a\":1}"), 0);
	tap_ok(jscan_enter(&s) == 0 && jscan_element(&s) == SP_E_SYNTAX,
	    "an element of an object");
	jscan_init(&s, VIEW("1"), 0);
	tap_is_int(jscan_element(&s), SP_E_SYNTAX, "an element of nothing");
	jscan_init(&s, VIEW("[[1],2]"), 0);
	tap_ok(jscan_enter(&s) == 0 && jscan_finish(&s) == SP_E_SYNTAX,
	    "finish with a container open");
	jscan_init(&s, VIEW("\"a\""), 0);
	tap_is_int(jscan_enter(&s), SP_E_SYNTAX, "enter a string");
	tap_is_int(jscan_enter(&s), SP_E_SYNTAX, "the error stays");
}

static void
test_find(void)
{
	struct view text = VIEW("{\"a\":1,\"b\":{\"a\":9},\"\\u0061\":[2]}");
	struct jscan_span v;

	tap_is_int(jscan_find(text, VIEW("a"), &v), 1, "found");
	tap_is_mem(text.p + v.start, v.end - v.start, "[2]", 3,
	    "the last of two, through an escape");
	tap_is_int(jscan_find(text, VIEW("c"), &v), 0, "not there");
	tap_is_int(jscan_find(VIEW("[]"), VIEW("a"), &v), SP_E_SYNTAX,
	    "not an object");
	tap_is_int(jscan_find(VIEW("{\"a\":1}x"), VIEW("a"), &v), SP_E_SYNTAX,
	    "garbage after it");
	tap_is_int(jscan_find(VIEW("{\"a\":1,\"b\":}"), VIEW("a"), &v),
	    SP_E_SYNTAX, "wrong behind what was sought");
}

/* The code units of two escapes, what they must become, and repairs. */
static size_t
expect_pair(unsigned a, unsigned b, char *out, size_t *n)
{
	bool high_a = a >= 0xd800 && a < 0xdc00,
	     low_a = a >= 0xdc00 && a < 0xe000;
	bool high_b = b >= 0xd800 && b < 0xdc00,
	     low_b = b >= 0xdc00 && b < 0xe000;

	if (high_a && low_b) {
		*n = utf8_encode(0x10000 + ((a & 0x3ff) << 10 | (b & 0x3ff)),
		    out);
		return 0;
	}
	*n = utf8_encode(high_a || low_a ? 0xfffd : a, out);
	*n += utf8_encode(high_b || low_b ? 0xfffd : b, out + *n);
	return (size_t)(high_a || low_a) + (size_t)(high_b || low_b);
}

static void
test_decode_pairs(void)
{
	static const unsigned units[] = { 0, 1, 0x22, 0x41, 0x7f, 0x80, 0x7ff,
		0x800, 0xd7ff, 0xd800, 0xd83d, 0xdbff, 0xdc00, 0xde00, 0xdfff,
		0xe000, 0xfffd, 0xffff };
	enum { N = sizeof(units) / sizeof(units[0]) };
	struct buf out = BUF_INIT(64);
	size_t i, j, bad = 0;

	for (i = 0; i < N * N; i++) {
		size_t n, replaced = 0, wrong;
		struct jscan_span v;
		char text[32], want[8];
		struct jscan s;

		j = (size_t)snprintf(text, sizeof(text),
		    i % 2 ? "\"\\u%04x\\u%04x\"" : "\"\\u%04X\\u%04X\"",
		    units[i / N], units[i % N]);
		jscan_init(&s, view_of(text, j), 0);
		wrong = expect_pair(units[i / N], units[i % N], want, &n);
		buf_reset(&out, 64);
		if (jscan_skip(&s, &v) != 0 || jscan_finish(&s) != 0 ||
		    jscan_decode(&s, &v, &out, &replaced) != 0 ||
		    replaced != wrong || buf_len(&out) != n ||
		    memcmp(buf_view(&out).p, want, n) != 0 ||
		    !jscan_is(&s, &v, view_of(want, n)))
			bad++;
	}
	buf_clear(&out);
	tap_is_int((long long)bad, 0, "pairs of escapes");
}

static void
decodes(const char *text, size_t text_n, const char *want, size_t want_n,
    size_t want_replaced, const char *what)
{
	struct buf out = BUF_INIT(256);
	struct jscan_span v;
	struct jscan s;
	size_t replaced = 0;

	jscan_init(&s, view_of(text, text_n), 0);
	tap_ok(jscan_skip(&s, &v) == 0 &&
		jscan_decode(&s, &v, &out, &replaced) == 0 &&
		replaced == want_replaced,
	    "%s: decoded, %zu replaced", what, replaced);
	tap_is_mem(buf_view(&out).p, buf_len(&out), want, want_n, what);
	buf_clear(&out);
}
#define DECODES(text, want, replaced, what) \
	decodes("" text, sizeof(text) - 1, "" want, sizeof(want) - 1, \
	    replaced, what)

static void
test_decode(void)
{
	DECODES("\"\"", "", 0, "empty");
	DECODES("\"plain\"", "plain", 0, "plain");
	DECODES("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 0,
	    "one-letter escapes");
	DECODES("\"a\\u0000b\"", "a\0b", 0, "NUL is kept");
	DECODES("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
	    "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 0, "UTF-8 as it is");
	DECODES("\"x\\ud83d\\ude00y\"", "x\xf0\x9f\x98\x80y", 0, "a pair");
	DECODES("\"\\ud83dx\"", "\xef\xbf\xbdx", 1, "a lone high surrogate");
	DECODES("\"\\ud83d\\n\"", "\xef\xbf\xbd\n", 1,
	    "a high surrogate and another escape");
	DECODES("\"\\ud83d\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80", 1,
	    "a lone one before a pair");
	DECODES("\"\\ud83d\"", "\xef\xbf\xbd", 1, "a high one at the end");
	DECODES("\"a\xff\"", "a\xef\xbf\xbd", 1, "a byte that is not UTF-8");
	DECODES("\"\xe2\x82\\n\"", "\xef\xbf\xbd\xef\xbf\xbd\n", 2,
	    "a sequence cut by an escape");
	DECODES("\"\xe2\x82\"", "\xef\xbf\xbd\xef\xbf\xbd", 2,
	    "a sequence cut by the end");
	DECODES("\"\xed\xa0\x80\"", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 3,
	    "a surrogate in UTF-8");
	DECODES("\"\xc0\x80\"", "\xef\xbf\xbd\xef\xbf\xbd", 2, "overlong");
	DECODES("\"\xf4\x90\x80\x80z\"",
	    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz", 4,
	    "above U+10FFFF");
}

/* A file's name: want NULL, it is none. */
static void
decodes_bytes(const char *text, const char *want)
{
	struct buf out = BUF_INIT(256);
	struct jscan_span v;
	struct jscan s;
	int rc;

	jscan_init(&s, view_str(text), 0);
	rc = jscan_skip(&s, &v);
	if (rc == 0)
		rc = jscan_decode_bytes(&s, &v, &out);
	tap_ok(want != NULL ? rc == 0 && view_eq(buf_view(&out), view_str(want))
			    : rc == SP_E_SYNTAX && buf_len(&out) == 0,
	    "bytes: %s", text);
	buf_clear(&out);
}

static void
test_decode_bytes(void)
{
	decodes_bytes("\"/a\\udcff\\udc80\\n\"", "/a\xff\x80\n");
	decodes_bytes("\"\\ud83d\\ude00\\uDCC3\"", "\xf0\x9f\x98\x80\xc3");
	decodes_bytes("\"x\\udc7f\"", NULL);
	decodes_bytes("\"x\\udd00\"", NULL);
	decodes_bytes("\"\\ud83d\\u0020\"", NULL);
	decodes_bytes("\"\\udcff\xff\"", NULL);
	decodes_bytes("1", NULL);
}

static void
test_decode_errors(void)
{
	struct view text = VIEW("\"0123456789\\n\xff end\"");
	struct buf out = BUF_INIT(18);
	struct jscan_span v = { .kind = JSCAN_NUMBER };
	struct jscan s;
	size_t n, bad = 0;
	unsigned long i;
	int rc = -1;

	jscan_init(&s, text, 0);
	tap_is_int(jscan_decode(&s, &v, &out, NULL), SP_E_SYNTAX, "no string");
	tap_is_int(jscan_skip(&s, &v), 0, "skip");
	for (n = 0; n < 18; n++) {
		struct buf small = BUF_INIT(n + 1);

		bad += buf_add_char(&small, '<') != 0 ||
		    jscan_decode(&s, &v, &small, NULL) != SP_E_LIMIT ||
		    !view_eq(buf_view(&small), VIEW("<"));
		buf_clear(&small);
	}
	tap_is_int((long long)bad, 0, "every size too small: unchanged");
	for (i = 1; i < 50 && rc != 0; i++) {
		buf_clear(&out);
		mem_fail_after(i, 0);
		rc = jscan_decode(&s, &v, &out, NULL);
		mem_fail_after(0, 0);
		bad += rc != 0 && (rc != SP_E_NOMEM || buf_len(&out) != 0);
	}
	tap_ok(rc == 0 && bad == 0 && i > 2, "no memory, %lu times", i - 2);
	tap_is_mem(buf_view(&out).p, buf_len(&out),
	    "0123456789\n\xef\xbf\xbd end", 18, "and then decoded");
	buf_clear(&out);
}

static void
test_numbers(void)
{
	static const struct {
		const char *text;
		int rc;
		int64_t v;
	} ints[] = {
		{ "0", 0, 0 },
		{ "-0", 0, 0 },
		{ "-1", 0, -1 },
		{ "9223372036854775807", 0, INT64_MAX },
		{ "-9223372036854775808", 0, INT64_MIN },
		{ "9223372036854775808", SP_E_RANGE, 0 },
		{ "-9223372036854775809", SP_E_RANGE, 0 },
		{ "123456789012345678901234567890", SP_E_RANGE, 0 },
		{ "1.0", SP_E_SYNTAX, 0 },
		{ "1e3", SP_E_SYNTAX, 0 },
		{ "null", SP_E_SYNTAX, 0 },
		{ "\"1\"", SP_E_SYNTAX, 0 },
	};
	struct jscan_span v;
	struct jscan s;
	int64_t got;
	double d;
	size_t i;

	for (i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
		jscan_init(&s, view_str(ints[i].text), 0);
		got = 0;
		tap_ok(jscan_skip(&s, &v) == 0 &&
			jscan_i64(&s, &v, &got) == ints[i].rc &&
			got == ints[i].v,
		    "integer %s", ints[i].text);
	}
	jscan_init(&s, VIEW("1e999"), 0);
	tap_ok(jscan_skip(&s, &v) == 0 &&
		jscan_double(&s, &v, &d) == SP_E_RANGE,
	    "1e999 is too large");
	jscan_init(&s, VIEW("null"), 0);
	tap_ok(jscan_skip(&s, &v) == 0 &&
		jscan_double(&s, &v, &d) == SP_E_SYNTAX,
	    "null is no number");
	jscan_init(&s, VIEW("1e-999"), 0);
	tap_ok(jscan_skip(&s, &v) == 0 && jscan_double(&s, &v, &d) == 0 &&
		d == 0,
	    "1e-999 is zero");
}

static uint64_t
next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static void
test_random_doubles(void)
{
	uint64_t x = 88172645463325252u;
	int i, bad = 0;

	for (i = 0; i < 20000; i++) {
		char text[64];
		double v;
		int n;

		if (i % 2) {
			uint64_t bits = next_random(&x);

			memcpy(&v, &bits, sizeof(v));
			if (v - v != 0)
				continue;
			n = snprintf(text, sizeof(text), "%.17g", v);
		} else {
			n = snprintf(text, sizeof(text), "-%d.%0*llu",
			    (int)(next_random(&x) % 30),
			    (int)(next_random(&x) % 22) + 1,
			    (unsigned long long)(next_random(&x) >>
				next_random(&x) % 64));
		}
		bad += peer_compare(view_of(text, (size_t)n)) != NULL;
	}
	tap_is_int(bad, 0, "random doubles read as strtod reads them");
}

/* Each run, at every offset and length, in both forms. */
static void
test_runs(void)
{
	static const uint8_t stops[] = { '"', '\\', 0, 0x1f, '\n', 0x7f, 0x80,
		0xff, ' ', '0', '9', '/', ':', '!', '#', '[', ']', 'x' };
	size_t k, n, i, bad = 0;
	uint8_t text[64];

	for (k = 0; k < sizeof(stops) * 50 * 50; k++) {
		const uint8_t *end = text + k / 50 % 50;

		n = k % 50;
		memset(text, k / 2500 % 3 ? '5' : 'a', sizeof(text));
		text[n] = stops[k / 2500];
		for (i = 0; i < 2; i++) {
			const uint8_t *p = text + i;

			if (p > end)
				continue;
			bad +=
			    jrun_string(p, end) != jrun_string_portable(p, end);
			bad +=
			    jrun_ascii(p, end) != jrun_ascii_portable(p, end);
			bad +=
			    jrun_digits(p, end) != jrun_digits_portable(p, end);
		}
	}
	tap_is_int((long long)bad, 0, "runs, with SSE2 and without");
	for (bad = 0, k = 0; k < 256 * 40; k++) {
		uint8_t c = (uint8_t)(k / 40);

		n = k % 40;
		memset(text, 'a', sizeof(text));
		text[n] = c;
		i = (size_t)(jrun_string(text, text + 40) - text);
		bad += i != (jrun_stops_string(c) ? n : 40);
		i = (size_t)(jrun_ascii(text, text + 40) - text);
		bad += i != (jrun_stops_string(c) || c >= 0x7f ? n : 40);
	}
	tap_is_int((long long)bad, 0, "every byte stops what it must");
}

int
main(void)
{
	test_grammar();
	test_cuts();
	test_depth();
	test_nonfinite();
	test_pull();
	test_find();
	test_decode();
	test_decode_pairs();
	test_decode_bytes();
	test_decode_errors();
	test_numbers();
	test_random_doubles();
	test_runs();
	return tap_done();
}
