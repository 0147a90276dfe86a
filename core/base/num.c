#include "config.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/num.h"

enum { NUM_DOUBLE_BYTES = 1024 }; /* longest text num_double() takes */

static bool
num_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Leading zeros are decimal digits like any other (RFC 9110: 1*DIGIT). */
int
num_u64(struct view v, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t x = 0;
	bool over = false;
	size_t i;

	if (v.n == 0)
		return SP_E_SYNTAX;
	/* to the end even when over: "99999999999999999999x" is no number */
	for (i = 0; i < v.n; i++) {
		if (!num_is_digit(v.p[i]))
			return SP_E_SYNTAX;
		if (__builtin_mul_overflow(x, 10, &x) ||
		    __builtin_add_overflow(x, (unsigned)(v.p[i] - '0'), &x))
			over = true;
	}
	if (over || x < min || x > max)
		return SP_E_RANGE;
	*out = x;
	return 0;
}

int
num_i64(struct view v, int64_t min, int64_t max, int64_t *out)
{
	bool minus = v.n > 0 && v.p[0] == '-';
	uint64_t most = (uint64_t)INT64_MAX + (minus ? 1 : 0);
	uint64_t u;
	int64_t x;
	int rc;

	rc = num_u64(minus ? view_from(v, 1) : v, 0, most, &u);
	if (rc != 0)
		return rc;
	/* -(u - 1) - 1: the least number has no positive twin */
	if (minus)
		x = u == 0 ? 0 : -(int64_t)(u - 1) - 1;
	else
		x = (int64_t)u;
	if (x < min || x > max)
		return SP_E_RANGE;
	*out = x;
	return 0;
}

static int
num_hex_digit(char c)
{
	if (num_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int
num_hex(struct view v, uint64_t max, uint64_t *out)
{
	uint64_t x = 0;
	bool over = false;
	size_t i;
	int d;

	if (v.n == 0)
		return SP_E_SYNTAX;
	for (i = 0; i < v.n; i++) {
		d = num_hex_digit(v.p[i]);
		if (d < 0)
			return SP_E_SYNTAX;
		if (x >> 60 != 0)
			over = true;
		x = x << 4 | (unsigned)d;
	}
	if (over || x > max)
		return SP_E_RANGE;
	*out = x;
	return 0;
}

/* Offset past the digits at v.p[i]. */
static size_t
num_digits(struct view v, size_t i)
{
	while (i < v.n && num_is_digit(v.p[i]))
		i++;
	return i;
}

/* The grammar of RFC 8259 s6: neither "1.", ".5", "01", "+1" nor "inf". */
static bool
num_is_double(struct view v)
{
	size_t i = v.n > 0 && v.p[0] == '-' ? 1 : 0;
	size_t from = i;

	i = num_digits(v, i);
	if (i == from || (v.p[from] == '0' && i != from + 1))
		return false;
	if (i < v.n && v.p[i] == '.') {
		from = i + 1;
		i = num_digits(v, from);
		if (i == from)
			return false;
	}
	if (i < v.n && (v.p[i] == 'e' || v.p[i] == 'E')) {
		i++;
		if (i < v.n && (v.p[i] == '+' || v.p[i] == '-'))
			i++;
		from = i;
		i = num_digits(v, from);
		if (i == from)
			return false;
	}
	return i == v.n;
}

int
num_double(struct view v, double *out)
{
	static locale_t c_locale;
	char text[NUM_DOUBLE_BYTES + 1];
	double x;

	if (!num_is_double(v))
		return SP_E_SYNTAX;
	if (v.n > NUM_DOUBLE_BYTES)
		return SP_E_RANGE;
	if (c_locale == (locale_t)0) {
		c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
		err_assert(c_locale != (locale_t)0);
	}
	memcpy(text, v.p, v.n);
	text[v.n] = '\0';
	/* too small becomes zero or subnormal, which is near enough */
	x = strtod_l(text, NULL, c_locale);
	if (!isfinite(x))
		return SP_E_RANGE;
	*out = x;
	return 0;
}

struct num_unit {
	struct view name;
	uint64_t factor;
};

/* Digits and then one of the units, the first of which has no name. */
static int
num_with_unit(struct view v, const struct num_unit *units, size_t units_n,
    uint64_t *out)
{
	size_t at = num_digits(v, 0);
	struct view name = view_from(v, at);
	uint64_t x;
	size_t i;
	int rc;

	for (i = 0; i < units_n; i++)
		if (view_eq_nocase(name, units[i].name))
			break;
	if (i == units_n)
		return SP_E_SYNTAX;
	rc = num_u64(view_sub(v, 0, at), 0, UINT64_MAX, &x);
	if (rc != 0)
		return rc;
	if (__builtin_mul_overflow(x, units[i].factor, &x))
		return SP_E_RANGE;
	*out = x;
	return 0;
}

int
num_duration_ms(struct view v, uint64_t *out)
{
	static const struct num_unit units[] = {
		{ { "", 0 }, 1000 },
		{ { "ms", 2 }, 1 },
		{ { "s", 1 }, 1000 },
		{ { "m", 1 }, UINT64_C(60000) },
		{ { "h", 1 }, UINT64_C(60) * 60000 },
		{ { "d", 1 }, UINT64_C(24) * 60 * 60000 },
	};
	size_t i;

	/* lower case only: "5M" is a size, not five minutes */
	for (i = 0; i < v.n; i++)
		if (v.p[i] >= 'A' && v.p[i] <= 'Z')
			return SP_E_SYNTAX;
	return num_with_unit(v, units, sizeof(units) / sizeof(units[0]), out);
}

int
num_size(struct view v, uint64_t *out)
{
	static const struct num_unit units[] = {
		{ { "", 0 }, 1 },
		{ { "k", 1 }, UINT64_C(1) << 10 },
		{ { "m", 1 }, UINT64_C(1) << 20 },
		{ { "g", 1 }, UINT64_C(1) << 30 },
	};

	return num_with_unit(v, units, sizeof(units) / sizeof(units[0]), out);
}

size_t
num_format_u64(uint64_t v, char *out)
{
	char back[20];
	size_t n = 0, i;

	do {
		back[n++] = (char)('0' + v % 10);
		v /= 10;
	} while (v != 0);
	for (i = 0; i < n; i++)
		out[i] = back[n - 1 - i];
	return n;
}
