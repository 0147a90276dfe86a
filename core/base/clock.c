#include "config.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

static uint64_t
clock_read_ns(clockid_t id)
{
	struct timespec ts;

	err_assert(clock_gettime(id, &ts) == 0);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t
clock_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t
clock_us(void)
{
	return clock_ns() / 1000;
}

uint64_t
clock_ms(void)
{
	return clock_ns() / 1000000;
}

uint64_t
clock_wall_us(void)
{
	return clock_read_ns(CLOCK_REALTIME) / 1000;
}

static unsigned
clock_is_leap(unsigned year)
{
	return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static void
clock_put(char *out, unsigned v, unsigned digits)
{
	while (digits-- > 0) {
		out[digits] = (char)('0' + v % 10);
		v /= 10;
	}
}

/*
 * By hand, because gmtime_r() may read the time zone files, which a confined
 * role cannot open.
 */
void
clock_format(uint64_t wall_us, char *out)
{
	static const unsigned char month_days[12] = { 31, 28, 31, 30, 31, 30,
		31, 31, 30, 31, 30, 31 };
	/* the last moment with a year of four digits */
	const uint64_t last_us = UINT64_C(253402300799999999);
	uint64_t ms = (wall_us < last_us ? wall_us : last_us) / 1000;
	unsigned days = (unsigned)(ms / 86400000);
	unsigned in_day = (unsigned)(ms % 86400000);
	unsigned year = 1970, month = 0, n;

	while (days >= (n = 365 + clock_is_leap(year))) {
		days -= n;
		year++;
	}
	while (days >=
	    (n = month_days[month] + (month == 1 ? clock_is_leap(year) : 0))) {
		days -= n;
		month++;
	}
	memcpy(out, "0000-00-00T00:00:00.000Z", 25);
	clock_put(out, year, 4);
	clock_put(out + 5, month + 1, 2);
	clock_put(out + 8, days + 1, 2);
	clock_put(out + 11, in_day / 3600000, 2);
	clock_put(out + 14, in_day / 60000 % 60, 2);
	clock_put(out + 17, in_day / 1000 % 60, 2);
	clock_put(out + 20, in_day % 1000, 3);
}
