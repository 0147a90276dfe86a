/* TAP for unit tests: one program, one file, prove(1) reads it. */
#ifndef SP_T_UNIT_TAP_H
#define SP_T_UNIT_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int tap_n;
static int tap_failed;

static inline bool __attribute__((format(printf, 2, 3)))
tap_ok(bool good, const char *fmt, ...)
{
	va_list ap;

	printf("%sok %d - ", good ? "" : "not ", ++tap_n);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	if (!good)
		tap_failed++;
	return good;
}

/* What is looked at many times, and told only when it is not as it should be. */
#define TAP_NEVER(condition) \
	do { \
		if (condition) \
			(void)tap_ok(false, "%s:%d: %s", __FILE__, __LINE__, \
			    #condition); \
	} while (0)

static inline bool
tap_is_int(long long got, long long want, const char *what)
{
	bool good = tap_ok(got == want, "%s", what);

	if (!good)
		printf("#      got: %lld\n# expected: %lld\n", got, want);
	return good;
}

static inline bool
tap_is_mem(const void *got, size_t got_n, const void *want, size_t want_n,
    const char *what)
{
	bool good = tap_ok(got_n == want_n &&
		(want_n == 0 || memcmp(got, want, want_n) == 0),
	    "%s", what);

	if (!good)
		printf("#      got (%zu): %.*s\n# expected (%zu): %.*s\n",
		    got_n, (int)(got_n > 2000 ? 2000 : got_n),
		    got_n ? (const char *)got : "", want_n,
		    (int)(want_n > 2000 ? 2000 : want_n),
		    want_n ? (const char *)want : "");
	return good;
}

static inline bool
tap_is_str(const char *got, const char *want, const char *what)
{
	return tap_is_mem(got ? got : "(null)", strlen(got ? got : "(null)"),
	    want, strlen(want), what);
}

static inline void __attribute__((format(printf, 1, 2)))
tap_diag(const char *fmt, ...)
{
	va_list ap;

	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

static inline void __attribute__((format(printf, 2, 3)))
tap_skip(int n, const char *fmt, ...)
{
	va_list ap;
	char why[200];

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	while (n-- > 0)
		printf("ok %d # SKIP %s\n", ++tap_n, why);
}

/* Prints the plan; the exit status for main. */
static inline int
tap_done(void)
{
	printf("1..%d\n", tap_n);
	fflush(stdout);
	return tap_failed != 0;
}

#endif
