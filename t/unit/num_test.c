#include "config.h"

#include <float.h>
#include <locale.h>
#include <math.h>

#include "base/num.h"
#include "tap.h"

enum { BAD = SP_E_SYNTAX, RANGE = SP_E_RANGE };

static void
test_u64(void)
{
	static const struct {
		const char *text;
		int rc;
		uint64_t x;
	} rows[] = {
		{ "0", 0, 0 },
		{ "42", 0, 42 },
		{ "007", 0, 7 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", RANGE, 0 },
		{ "99999999999999999999999", RANGE, 0 },
		{ "99999999999999999999999x", BAD, 0 },
		{ "", BAD, 0 },
		{ "+1", BAD, 0 },
		{ "-1", BAD, 0 },
		{ " 1", BAD, 0 },
		{ "1 ", BAD, 0 },
		{ "0x1", BAD, 0 },
		{ "1.0", BAD, 0 },
		{ "1_000", BAD, 0 },
		{ "\xd9\xa1", BAD, 0 },
	};
	uint64_t x;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		x = 77;
		tap_is_int(num_u64(view_str(rows[i].text), 0, UINT64_MAX, &x),
		    rows[i].rc, rows[i].text);
		tap_ok(x == (rows[i].rc == 0 ? rows[i].x : 77), "its value");
	}
	tap_is_int(num_u64(VIEW("4"), 5, 9, &x), RANGE, "under min");
	tap_is_int(num_u64(VIEW("5"), 5, 9, &x), 0, "min");
	tap_is_int(num_u64(VIEW("9"), 5, 9, &x), 0, "max");
	tap_is_int(num_u64(VIEW("10"), 5, 9, &x), RANGE, "over max");
	tap_is_int(num_u64(VIEW("1\0002"), 0, 9, &x), BAD, "NUL inside");
	tap_is_int(num_u64(VIEW_NONE, 0, 9, &x), BAD, "NULL");
}

static void
test_i64(void)
{
	int64_t x;

	tap_is_int(num_i64(VIEW("-9223372036854775808"), INT64_MIN, INT64_MAX,
		       &x),
	    0, "the least");
	tap_ok(x == INT64_MIN, "its value");
	tap_is_int(num_i64(VIEW("9223372036854775807"), INT64_MIN, INT64_MAX,
		       &x),
	    0, "the greatest");
	tap_ok(x == INT64_MAX, "its value");
	tap_is_int(num_i64(VIEW("-9223372036854775809"), INT64_MIN, INT64_MAX,
		       &x),
	    RANGE, "less than the least");
	tap_is_int(num_i64(VIEW("9223372036854775808"), INT64_MIN, INT64_MAX,
		       &x),
	    RANGE, "more than the greatest");
	tap_is_int(num_i64(VIEW("-0"), 0, 1, &x), 0, "minus zero");
	tap_is_int(x, 0, "is zero");
	tap_is_int(num_i64(VIEW("-5"), -5, 5, &x), 0, "minus five");
	tap_is_int(x, -5, "its value");
	tap_is_int(num_i64(VIEW("-6"), -5, 5, &x), RANGE, "under min");
	tap_is_int(num_i64(VIEW("6"), -5, 5, &x), RANGE, "over max");
	tap_is_int(num_i64(VIEW("-"), -5, 5, &x), BAD, "a sign alone");
	tap_is_int(num_i64(VIEW("--1"), -5, 5, &x), BAD, "two signs");
	tap_is_int(num_i64(VIEW("+1"), -5, 5, &x), BAD, "plus");
	tap_is_int(num_i64(VIEW(""), -5, 5, &x), BAD, "empty");
}

static void
test_hex(void)
{
	uint64_t x;

	tap_is_int(num_hex(VIEW("fFffFFfFffffffff"), UINT64_MAX, &x), 0,
	    "sixteen digits");
	tap_ok(x == UINT64_MAX, "its value");
	tap_is_int(num_hex(VIEW("10000000000000000"), UINT64_MAX, &x), RANGE,
	    "seventeen digits");
	tap_is_int(num_hex(VIEW("00000000000000001a"), UINT64_MAX, &x), 0,
	    "leading zeros");
	tap_is_int((long long)x, 26, "its value");
	tap_is_int(num_hex(VIEW("100"), 255, &x), RANGE, "over max");
	tap_is_int(num_hex(VIEW(""), 255, &x), BAD, "empty");
	tap_is_int(num_hex(VIEW("0x1"), 255, &x), BAD, "prefix");
	tap_is_int(num_hex(VIEW("g"), 255, &x), BAD, "no digit");
	tap_is_int(num_hex(VIEW("10000000000000000g"), 255, &x), BAD,
	    "long, bad");
}

static void
test_double(void)
{
	static const char *const bad[] = { "", "-", "+1", ".5", "1.", "01",
		"-01", "1e", "1e+", "1.e3", "inf", "nan", "-inf", "0x1p3", " 1",
		"1 ", "1,5", "1e3.5", "--1", "1d" };
	static const struct {
		const char *text;
		double x;
	} good[] = {
		{ "0", 0 },
		{ "0.7", 0.7 },
		{ "-0.25", -0.25 },
		{ "1e3", 1000 },
		{ "1E+3", 1000 },
		{ "12.5e-1", 1.25 },
		{ "1e-400", 0 },
		{ "1.7976931348623157e308", DBL_MAX },
		{ "-0.00012339458044152707", -0.00012339458044152707 },
		{ "0.1000000000000000055511151231257827021181583404541015625",
		    0.1 },
	};
	char text[2000];
	double x = 7;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		tap_is_int(num_double(view_str(bad[i]), &x), BAD, bad[i]);
	tap_ok(x > 6.5 && x < 7.5, "out was left alone");
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		tap_is_int(num_double(view_str(good[i].text), &x), 0,
		    good[i].text);
		tap_ok(memcmp(&x, &good[i].x, sizeof(x)) == 0, "its value");
	}
	tap_is_int(num_double(VIEW("1e309"), &x), RANGE, "not finite");
	tap_is_int(num_double(VIEW("-1e999999999"), &x), RANGE, "nor here");
	tap_is_int(num_double(VIEW("1\0001"), &x), BAD, "NUL inside");
	memset(text, '1', sizeof(text));
	tap_is_int(num_double(view_of(text, sizeof(text)), &x), RANGE,
	    "too long");
	/* not NUL-terminated: only n bytes count */
	tap_is_int(num_double(view_of("1.59", 3), &x), 0, "part of a text");
	tap_ok(x > 1.45 && x < 1.55, "its value");
	if (setlocale(LC_ALL, "de_DE.UTF-8") != NULL) {
		tap_is_int(num_double(VIEW("1.5"), &x), 0, "comma locale");
		tap_ok(x > 1.45 && x < 1.55, "its value");
		(void)setlocale(LC_ALL, "C");
	} else {
		tap_skip(2, "no locale with a decimal comma");
	}
}

static void
test_units(void)
{
	uint64_t x;

	tap_is_int(num_duration_ms(VIEW("500ms"), &x), 0, "500ms");
	tap_is_int((long long)x, 500, "value");
	tap_is_int(num_duration_ms(VIEW("30s"), &x), 0, "30s");
	tap_is_int((long long)x, 30000, "value");
	tap_is_int(num_duration_ms(VIEW("5m"), &x), 0, "5m");
	tap_is_int((long long)x, 300000, "value");
	tap_is_int(num_duration_ms(VIEW("2h"), &x), 0, "2h");
	tap_is_int((long long)x, 7200000, "value");
	tap_is_int(num_duration_ms(VIEW("14d"), &x), 0, "14d");
	tap_is_int((long long)x, 1209600000, "value");
	tap_is_int(num_duration_ms(VIEW("12"), &x), 0, "seconds");
	tap_is_int((long long)x, 12000, "value");
	tap_is_int(num_duration_ms(VIEW("s"), &x), BAD, "unit alone");
	tap_is_int(num_duration_ms(VIEW(""), &x), BAD, "empty");
	tap_is_int(num_duration_ms(VIEW("5M"), &x), BAD, "upper case");
	tap_is_int(num_duration_ms(VIEW("1h30m"), &x), BAD, "two units");
	tap_is_int(num_duration_ms(VIEW("5 s"), &x), BAD, "space");
	tap_is_int(num_duration_ms(VIEW("18446744073709551615"), &x), RANGE,
	    "too long a time");
	tap_is_int(num_size(VIEW("512"), &x), 0, "512");
	tap_is_int((long long)x, 512, "value");
	tap_is_int(num_size(VIEW("64k"), &x), 0, "64k");
	tap_is_int((long long)x, 65536, "value");
	tap_is_int(num_size(VIEW("16M"), &x), 0, "16M");
	tap_is_int((long long)x, 16777216, "value");
	tap_is_int(num_size(VIEW("1g"), &x), 0, "1g");
	tap_is_int((long long)x, 1073741824, "value");
	tap_is_int(num_size(VIEW("1t"), &x), BAD, "no such unit");
	tap_is_int(num_size(VIEW("k"), &x), BAD, "unit alone");
	tap_is_int(num_size(VIEW("1kb"), &x), BAD, "trailing byte");
	tap_is_int(num_size(VIEW("17179869184g"), &x), RANGE, "too big");
}

static void
test_format(void)
{
	char out[20];
	size_t n;

	n = num_format_u64(0, out);
	tap_is_mem(out, n, "0", 1, "zero");
	n = num_format_u64(UINT64_MAX, out);
	tap_is_mem(out, n, "18446744073709551615", 20, "the greatest");
	n = num_format_u64(1000, out);
	tap_is_mem(out, n, "1000", 4, "a thousand");
}

int
main(void)
{
	test_u64();
	test_i64();
	test_hex();
	test_double();
	test_units();
	test_format();
	return tap_done();
}
