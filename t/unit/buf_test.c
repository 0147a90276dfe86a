#include "config.h"

#include <stdint.h>

#include "base/b64.h"
#include "base/buf.h"
#include "base/mem.h"
#include "tap.h"

static void
is_buf(const struct buf *b, const char *want, const char *what)
{
	struct view v = buf_view(b);

	tap_is_mem(v.p, v.n, want, strlen(want), what);
}

static void
test_basics(void)
{
	struct buf b = BUF_INIT(10);

	tap_ok(buf_view(&b).p == NULL, "nothing is allocated at first");
	tap_ok(buf_tail(&b) == NULL, "nor is there a tail");
	tap_is_int(buf_reserve(&b, 0), 0, "reserving nothing");
	tap_is_int(buf_add(&b, NULL, 0), 0, "adding nothing");
	tap_ok(b.mem == NULL, "still nothing allocated");
	tap_is_int(buf_add_str(&b, "hello"), 0, "add a string");
	tap_is_int(buf_add_view(&b, VIEW(" wor")), 0, "add a view");
	tap_is_int(buf_add_char(&b, 'l'), 0, "add a byte");
	is_buf(&b, "hello worl", "content");
	tap_is_int(buf_add_char(&b, 'd'), SP_E_LIMIT, "max");
	tap_is_int(buf_reserve(&b, SIZE_MAX), SP_E_LIMIT, "no overflow");
	is_buf(&b, "hello worl", "unchanged");
	buf_consume(&b, 6);
	is_buf(&b, "worl", "consumed");
	tap_is_int(buf_add_str(&b, "d wide"), 0, "room again");
	is_buf(&b, "world wide", "packed");
	tap_is_int((int)buf_room(&b), 0, "no room at max");
	buf_truncate(&b, 5);
	is_buf(&b, "world", "truncated");
	buf_consume(&b, 5);
	tap_ok(b.off == 0 && b.end == 0, "empty starts over");
	buf_reset(&b, 1000);
	tap_ok(b.mem != NULL, "reset keeps little memory");
	buf_reset(&b, 5);
	tap_ok(b.mem == NULL && b.max == 10, "reset gives back much");
	buf_clear(&b);
	buf_init(&b, 0);
	tap_is_int(buf_add_char(&b, 'x'), SP_E_LIMIT, "max 0 holds nothing");
	buf_clear(&b);
}

static void
test_printf(void)
{
	struct buf b = BUF_INIT(8);

	tap_is_int(buf_printf(&b, "%s", ""), 0, "print nothing");
	tap_is_int(buf_printf(&b, "%d-%s", 1234, "abc"), 0, "print to max");
	is_buf(&b, "1234-abc", "exactly full");
	tap_is_int(buf_printf(&b, "%c", 'x'), SP_E_LIMIT, "print past max");
	is_buf(&b, "1234-abc", "unchanged");
	buf_clear(&b);
	buf_init(&b, 100000);
	tap_is_int(buf_printf(&b, "%*s", 50000, "x"), 0, "print much");
	tap_is_int((long long)buf_len(&b), 50000, "length");
	buf_clear(&b);
}

static void
test_direct(void)
{
	struct buf b = BUF_INIT(100), to = BUF_INIT(50);

	tap_is_int(buf_reserve(&b, 100), 0, "reserve");
	tap_ok(buf_room(&b) >= 100, "room");
	memcpy(buf_tail(&b), "direct", 6);
	buf_grow(&b, 6);
	is_buf(&b, "direct", "written at the tail");
	tap_is_int(buf_add_str(&to, "x"), 0, "something");
	buf_consume(&to, 1);
	buf_take(&to, &b);
	is_buf(&to, "direct", "taken");
	tap_ok(b.mem == NULL && buf_len(&b) == 0, "gone there");
	tap_ok(to.max == 100 && b.max == 100, "max covers what came");
	tap_is_int(buf_add_str(&b, "again"), 0, "the old one still works");
	buf_clear(&b);
	buf_clear(&to);
}

/* A long stream through a small buffer, against a counter. */
static void
test_stream(void)
{
	struct buf b = BUF_INIT(1000);
	unsigned long in = 0, out = 0, i;
	bool good = true;
	struct view v;
	size_t n;

	for (i = 0; i < 20000 && good; i++) {
		for (n = 0; n < i * 7 % 90; n++)
			if (buf_add_char(&b, (char)in) == 0)
				in++;
		v = buf_view(&b);
		n = i * 11 % 91;
		if (n > v.n)
			n = v.n;
		for (size_t k = 0; k < n; k++)
			good &= v.p[k] == (char)out++;
		buf_consume(&b, n);
		good &= in - out == buf_len(&b) && b.cap <= 1000;
	}
	tap_ok(good, "a long stream comes out as it went in");
	tap_ok(in > 500000, "and it was long");
	buf_clear(&b);
}

static void
test_no_memory(void)
{
	struct buf b = BUF_INIT(5000);
	unsigned long n;
	int rc = SP_E_NOMEM;

	tap_is_int(buf_add_str(&b, "kept"), 0, "something");
	buf_consume(&b, 1);
	for (n = 1; rc == SP_E_NOMEM && n < 10; n++) {
		mem_fail_after(n, 0);
		rc = buf_printf(&b, "%2000s", "x");
		if (rc != 0)
			is_buf(&b, "ept", "unchanged without memory");
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, 0, "then there was memory");
	tap_ok(n > 2, "a failure was injected");
	mem_fail_after(1, 0);
	tap_is_int(buf_reserve(&b, 2500), SP_E_NOMEM, "enlarging fails");
	tap_is_int((long long)buf_len(&b), 2003, "and loses nothing");
	buf_clear(&b);
}

static void
test_b64(void)
{
	static const char *const bad[] = { "A", "AA", "AAA", "AAAAA",
		"A===", "AA=A", "====", "AA==AAAA", "A\nAA", "AAA*", "=AAA" };
	static const char bytes[] = "\0\xff\x10 any";
	struct buf text = BUF_INIT(100), back = BUF_INIT(100);
	struct buf small = BUF_INIT(2);
	size_t n, i;

	for (n = 0; n < sizeof(bytes); n++) {
		buf_reset(&text, 100);
		buf_reset(&back, 100);
		tap_is_int(b64_add(&text, view_of(bytes, n)), 0, "there");
		tap_is_int(b64_get(buf_view(&text), &back), 0, "and back");
		tap_is_mem(buf_view(&back).p, buf_len(&back), bytes, n,
		    "the same bytes");
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		tap_is_int(b64_get(view_str(bad[i]), &back), SP_E_SYNTAX,
		    "no base64");
	tap_is_int(b64_get(view_of("AA\0A", 4), &back), SP_E_SYNTAX, "a NUL");
	tap_is_int(b64_get(VIEW("AAAA"), &small), SP_E_LIMIT, "too much");
	buf_clear(&small);
	buf_clear(&text);
	buf_clear(&back);
}

int
main(void)
{
	test_basics();
	test_printf();
	test_direct();
	test_stream();
	test_no_memory();
	test_b64();
	return tap_done();
}
