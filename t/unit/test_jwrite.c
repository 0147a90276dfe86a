/* core/json/jwrite.c: strict JSON on one line. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "json/jwrite.h"
#include "tap.h"

static struct buf out = BUF_INIT(4096);

static void
start(struct jwrite *w)
{
	buf_reset(&out, 4096);
	jwrite_init(w, &out);
}

static void
is(struct jwrite *w, const char *want, const char *what)
{
	tap_is_int(jwrite_finish(w), 0, what);
	tap_is_mem(buf_view(&out).p, buf_len(&out), want, strlen(want), what);
}

static void
write_all(struct jwrite *w)
{
	jwrite_object(w);
	jwrite_key(w, "a");
	jwrite_array(w);
	jwrite_u64(w, UINT64_MAX);
	jwrite_i64(w, INT64_MIN);
	jwrite_i64(w, 7);
	jwrite_double(w, -0.25);
	jwrite_bool(w, true);
	jwrite_bool(w, false);
	jwrite_null(w);
	jwrite_end_array(w);
	jwrite_key(w, "b");
	jwrite_object(w);
	jwrite_end_object(w);
	jwrite_key(w, "c");
	jwrite_cstr(w, "x\ny");
	jwrite_key(w, "d");
	jwrite_cstr(w, NULL);
	jwrite_key(w, "e");
	jwrite_span(w, VIEW(" [ 1, NaN ] "));
	jwrite_key(w, "f");
	jwrite_raw(w, VIEW("{\"z\":0}"));
	jwrite_end_object(w);
}

static const char all[] =
    "{\"a\":[18446744073709551615,-9223372036854775808,7,-0.25,true,false,"
    "null],\"b\":{},\"c\":\"x\\ny\",\"d\":null,\"e\":[1,null],"
    "\"f\":{\"z\":0}}";

static void
test_shapes(void)
{
	size_t n, bad = 0;
	struct jwrite w;
	unsigned long i;
	int rc = -1;

	start(&w);
	write_all(&w);
	is(&w, all, "one of each");
	tap_is_int((long long)w.nonfinite, 1, "one was not finite");
	for (n = 0; n < sizeof(all) - 1; n++) {
		struct buf small = BUF_INIT(n);

		jwrite_init(&w, &small);
		write_all(&w);
		bad += jwrite_finish(&w) != SP_E_LIMIT;
		buf_clear(&small);
	}
	tap_is_int((long long)bad, 0, "every size too small");
	for (i = 1; i < 50 && rc != 0; i++) {
		buf_clear(&out);
		mem_fail_after(i, 0);
		jwrite_init(&w, &out);
		write_all(&w);
		rc = jwrite_finish(&w);
		mem_fail_after(0, 0);
		bad += rc != 0 && rc != SP_E_NOMEM;
	}
	tap_ok(rc == 0 && bad == 0 && i > 2, "no memory, %lu times", i - 2);
}

static void
test_state(void)
{
	struct jwrite w;
	int i;

	start(&w);
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "nothing");
	start(&w);
	jwrite_null(&w);
	jwrite_null(&w);
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "two values");
	start(&w);
	jwrite_array(&w);
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "open");
	start(&w);
	jwrite_array(&w);
	jwrite_end_object(&w);
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "closed as another");
	start(&w);
	jwrite_end_array(&w);
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "closed without opening");
	start(&w);
	jwrite_object(&w);
	jwrite_null(&w);
	jwrite_end_object(&w);
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "a value without a key");
	start(&w);
	jwrite_object(&w);
	jwrite_key(&w, "a");
	jwrite_end_object(&w);
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "a key without a value");
	start(&w);
	jwrite_object(&w);
	jwrite_key(&w, "a");
	jwrite_key(&w, "b");
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "two keys");
	jwrite_key(&w, "c");
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "the error stays");
	start(&w);
	jwrite_array(&w);
	jwrite_key(&w, "a");
	tap_is_int(jwrite_finish(&w), SP_E_STATE, "a key in an array");
	start(&w);
	for (i = 0; i < JWRITE_MAX_DEPTH; i++)
		jwrite_array(&w);
	for (i = 0; i < JWRITE_MAX_DEPTH; i++)
		jwrite_end_array(&w);
	tap_is_int(jwrite_finish(&w), 0, "as deep as allowed");
	start(&w);
	for (i = 0; i <= JWRITE_MAX_DEPTH; i++)
		jwrite_array(&w);
	tap_is_int(jwrite_finish(&w), SP_E_LIMIT, "one deeper");
}

static void
string_is(const char *in, size_t n, const char *want, size_t replaced,
    const char *what)
{
	struct jwrite w;

	start(&w);
	jwrite_string(&w, view_of(in, n));
	is(&w, want, what);
	tap_is_int((long long)w.replaced, (long long)replaced, what);
}
#define STRING_IS(in, want, replaced, what) \
	string_is("" in, sizeof(in) - 1, want, replaced, what)

static void
test_strings(void)
{
	string_is(NULL, 0, "\"\"", 0, "no bytes");
	STRING_IS("a\"b\\c/", "\"a\\\"b\\\\c/\"", 0, "quote and backslash");
	STRING_IS("\0\b\t\n\v\f\r\x1e\x1f\x7f",
	    "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001e\\u001f\\u007f\"", 0,
	    "control characters");
	STRING_IS("\xc2\x80\xc2\x85\xc2\x9f\xc2\xa0",
	    "\"\\u0080\\u0085\\u009f\xc2\xa0\"", 0, "C1 controls");
	STRING_IS("\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa",
	    "\"\xe2\x80\xa7\\u2028\\u2029\xe2\x80\xaa\"", 0, "line separators");
	STRING_IS("0123456789abcdefghij\xc3\xa9\xf0\x9f\x98\x80!",
	    "\"0123456789abcdefghij\xc3\xa9\xf0\x9f\x98\x80!\"", 0, "UTF-8");
	STRING_IS("a\xff\xe2\x80z\xed\xa0\x80",
	    "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd"
	    "\xef\xbf\xbd\"",
	    6, "not UTF-8");
}

static void
span_is(const char *in, const char *want, size_t replaced, size_t nonfinite,
    const char *what)
{
	struct jwrite w;

	start(&w);
	jwrite_span(&w, view_str(in));
	is(&w, want, what);
	tap_ok(w.replaced == replaced && w.nonfinite == nonfinite,
	    "%s: %zu replaced, %zu not finite", what, w.replaced, w.nonfinite);
	tap_is_int(jscan_valid(buf_view(&out), 0), 0, what);
}

static void
span_fails(const char *in, int rc)
{
	struct jwrite w;

	start(&w);
	jwrite_array(&w);
	jwrite_span(&w, view_str(in));
	jwrite_end_array(&w);
	tap_is_int(jwrite_finish(&w), rc, in);
	tap_is_mem(buf_view(&out).p, buf_len(&out), "[", 1, "nothing of it");
}

static void
test_spans(void)
{
	struct jwrite w;

	span_is(" { \"a b\" :\t[ 1.50,\r\n -0 , 1E+2 ] } ",
	    "{\"a b\":[1.50,-0,1E+2]}", 0, 0, "white space goes");
	span_is("[NaN, Infinity,-Infinity,-1,\"NaN -Infinity\"]",
	    "[null,null,null,-1,\"NaN -Infinity\"]", 0, 3, "not finite");
	span_is("NaN", "null", 0, 1, "not finite, alone");
	span_is("{\"NaN\":-Infinity}", "{\"NaN\":null}", 0, 1, "a name stays");
	span_is("\"\\ud83d\\ude00 \\u00e9 \\/ \\\" \x7f\"",
	    "\"\\ud83d\\ude00 \\u00e9 \\/ \\\" \x7f\"", 0, 0, "as written");
	span_is("\"\\ud83d\"", "\"\xef\xbf\xbd\"", 1, 0, "a lone high one");
	span_is("\"\\uDE00x\"", "\"\xef\xbf\xbdx\"", 1, 0, "a lone low one");
	span_is("\"\\ud83d\\ud83d\\ude00\\ud83d\\n\"",
	    "\"\xef\xbf\xbd\\ud83d\\ude00\xef\xbf\xbd\\n\"", 2, 0,
	    "lone ones around a pair");
	span_is("\"\\\\ud83d\"", "\"\\\\ud83d\"", 0, 0, "no escape at all");
	span_is("{\"\xff\":\"\xe2\x80\xa8\xc2\x85\xc2\x80\xe2\x80\"}",
	    "{\"\xef\xbf\xbd\":\"\\u2028\\u0085\xc2\x80\xef\xbf\xbd\xef\xbf\xbd"
	    "\"}",
	    3, 0, "bytes repaired, lines kept whole");
	span_fails("", SP_E_SYNTAX);
	span_fails("1 2", SP_E_SYNTAX);
	span_fails("[1,]", SP_E_SYNTAX);
	span_fails("\"\n\"", SP_E_SYNTAX);
	start(&w);
	jwrite_span(&w, VIEW_NONE);
	tap_is_int(jwrite_finish(&w), SP_E_SYNTAX, "no text");
}

/* What jscan passes as tight is copied as it stands. */
static void
test_tight(void)
{
	static const struct {
		const char *text;
		bool tight;
	} v[] = { { "{\"a\":[1,-2.5e3,true,null,\"\\\"\\u00e9\"]}", true },
		{ "[]", true }, { "{\"a\": 1}", false }, { "[1]\n", false },
		{ " 1", false }, { "[1 ,2]", false }, { "NaN", false },
		{ "[-Infinity]", false }, { "\"\\ud83d\\ude00\"", false },
		{ "\"\\uDEAD\"", false }, { "\"\\u0d00\"", true },
		{ "\"\xc3\xa9\"", false }, { "\"\x7f\"", false },
		{ "{\"\xff\":1}", false },
		{ "[{\"token\":\"a\",\"logprob\":-1}]", true },
		{ "[{\"token\":\"\xe2\x80\xa8\",\"logprob\":-1}]", false } };
	struct jwrite w;
	struct jscan s;
	bool good;
	size_t i;

	for (i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		jscan_init(&s, view_str(v[i].text), JSCAN_ALLOW_NONFINITE);
		good = jscan_skip(&s, NULL) == 0 && jscan_finish(&s) == 0 &&
		    s.loose == !v[i].tight;
		start(&w);
		jwrite_span(&w, view_str(v[i].text));
		good = good && jwrite_finish(&w) == 0 &&
		    (s.loose || view_eq(buf_view(&out), view_str(v[i].text)));
		tap_ok(good, "tight or not: %s", v[i].text);
	}
}

static void
double_is(double v, const char *want)
{
	struct jwrite w;

	start(&w);
	jwrite_double(&w, v);
	is(&w, want, want);
}

static void
test_doubles(void)
{
	struct jwrite w;

	double_is(0.0, "0");
	double_is(-0.0, "-0");
	double_is(1.0, "1");
	double_is(-9999.0, "-9999");
	double_is(0.1, "0.1");
	double_is(-0.25, "-0.25");
	double_is(1e22, "1e+22");
	double_is(0.1 + 0.2, "0.30000000000000004");
	double_is(1.7976931348623157e308, "1.7976931348623157e+308");
	double_is(5e-324, "5e-324");
	double_is(2.2250738585072014e-308, "2.2250738585072014e-308");
	double_is(123456.7890123456, "123456.7890123456");
	start(&w);
	jwrite_array(&w);
	jwrite_double(&w, (double)NAN);
	jwrite_double(&w, (double)INFINITY);
	jwrite_double(&w, -(double)INFINITY);
	jwrite_end_array(&w);
	is(&w, "[null,null,null]", "not finite");
	tap_is_int((long long)w.nonfinite, 3, "counted");
}

/* Random bits and random short decimals: the same double comes back. */
static void
test_round_trip(const char *what)
{
	uint64_t x = 0x9e3779b97f4a7c15u;
	int i, bad = 0;

	for (i = 0; i < 20000; i++) {
		struct jscan_span span;
		struct jwrite w;
		struct jscan s;
		double v, back;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(&v, &x, sizeof(v));
		if (i % 2)
			v = -(double)(x >> 40) / 1e6;
		if (!isfinite(v))
			continue;
		start(&w);
		jwrite_double(&w, v);
		jscan_init(&s, buf_view(&out), 0);
		if (jwrite_finish(&w) != 0 || jscan_skip(&s, &span) != 0 ||
		    jscan_finish(&s) != 0 ||
		    jscan_double(&s, &span, &back) != 0 ||
		    memcmp(&v, &back, sizeof(v)) != 0 || span.end > 24 ||
		    (i % 2 && span.end > 17))
			bad++;
	}
	tap_is_int(bad, 0, what);
}

/* The fewest digits that printf needs, from 15 on. */
static void
shortest(double v, char text[64])
{
	int digits = isnormal(v) ? 15 : 1;

	do
		(void)snprintf(text, 64, "%.*g", digits, v);
	while (digits++ < 17 && strtod(text, NULL) != v);
}

/* Millionths have a way of their own; what is next to them has not. */
static void
test_millionths(void)
{
	static const uint64_t tops[] = { 1000, 10000000, 1000000000000,
		4000000000000000, 9000000000000000 };
	uint64_t x = 0x9e3779b97f4a7c15u;
	char want[64];
	int i, bad = 0;

	for (i = 0; i < 60000; i++) {
		struct jwrite w;
		uint64_t bits;
		double v;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		v = (double)(x % tops[i % 5]) / 1e6;
		if (i % 7 == 0 && v > 0) {
			memcpy(&bits, &v, sizeof(bits));
			bits += i % 2 ? 1 : UINT64_MAX;
			memcpy(&v, &bits, sizeof(v));
		}
		if (i % 11 == 0)
			v = (double)(x % tops[i % 5]) / 1e3;
		if (i % 3 == 0)
			v = -v;
		shortest(v, want);
		start(&w);
		jwrite_double(&w, v);
		bad += jwrite_finish(&w) != 0 ||
		    !view_eq(buf_view(&out), view_str(want));
	}
	tap_is_int(bad, 0, "millionths are written as printf would");
}

static void
test_locale(void)
{
	static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8",
		"ps_AF.UTF-8", "de_DE", "ps_AF" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (setlocale(LC_NUMERIC, names[i]) != NULL) {
			double_is(-0.25, "-0.25");
			double_is(1.5e-300, "1.5e-300");
			test_round_trip(names[i]);
			setlocale(LC_NUMERIC, "C");
			return;
		}
	tap_skip(1, "no locale with a decimal comma is installed");
}

/* What was written decodes to what was given, repaired where it must be. */
static void
test_string_round_trip(void)
{
	struct buf back = BUF_INIT(4096);
	uint32_t cp;
	int bad = 0;

	for (cp = 1; cp < 0x110000; cp += cp < 0x3000 ? 1 : 37) {
		struct jscan_span span;
		struct jwrite w;
		struct jscan s;
		char text[16] = "abcdef";
		size_t n;

		if (cp >= 0xd800 && cp < 0xe000)
			continue;
		n = 6 + utf8_encode(cp, text + 6);
		text[n++] = '"';
		start(&w);
		jwrite_string(&w, view_of(text, n));
		buf_reset(&back, 4096);
		jscan_init(&s, buf_view(&out), 0);
		bad += jwrite_finish(&w) != 0 || jscan_skip(&s, &span) != 0 ||
		    jscan_finish(&s) != 0 ||
		    jscan_decode(&s, &span, &back, NULL) != 0 ||
		    !view_eq(buf_view(&back), view_of(text, n)) ||
		    !jscan_is(&s, &span, view_of(text, n)) || w.replaced != 0;
	}
	buf_clear(&back);
	tap_is_int(bad, 0, "characters come back");
}

int
main(void)
{
	test_shapes();
	test_state();
	test_strings();
	test_string_round_trip();
	test_spans();
	test_tight();
	test_doubles();
	test_round_trip("doubles come back");
	test_millionths();
	test_locale();
	buf_clear(&out);
	return tap_done();
}
