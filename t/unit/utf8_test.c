#include "config.h"

#include "base/utf8.h"
#include "tap.h"

/* Every code point there and back. */
static void
test_round(void)
{
	uint32_t cp, back;
	bool good = true;
	char out[4];
	unsigned n;

	for (cp = 0; cp <= 0x10ffff; cp++) {
		if (cp >= 0xd800 && cp <= 0xdfff)
			continue;
		n = utf8_encode(cp, out);
		good &= n ==
		    (cp < 0x80             ? 1U
			    : cp < 0x800   ? 2U
			    : cp < 0x10000 ? 3U
					   : 4U);
		good &= utf8_decode(view_of(out, n), &back) == n && back == cp;
		good &= utf8_decode(view_of(out, n - 1), &back) == 0;
	}
	tap_ok(good, "every code point there and back");
	n = utf8_encode(0xd800, out);
	tap_is_mem(out, n, "\xef\xbf\xbd", 3, "a surrogate is replaced");
	n = utf8_encode(0x110000, out);
	tap_is_mem(out, n, "\xef\xbf\xbd", 3, "so is what is no code point");
}

static void
test_valid(void)
{
	static const struct {
		struct view v;
		bool valid;
		const char *what;
	} rows[] = {
		{ { "", 0 }, true, "empty" },
		{ { NULL, 0 }, true, "NULL" },
		{ { "a\0b", 3 }, true, "NUL inside" },
		{ { "gr\xc3\xbc\xc3\x9f", 6 }, true, "two bytes" },
		{ { "\xe2\x82\xac", 3 }, true, "three bytes" },
		{ { "\xf0\x9f\x98\x80", 4 }, true, "four bytes" },
		{ { "\xf4\x8f\xbf\xbf", 4 }, true, "U+10FFFF" },
		{ { "\x80", 1 }, false, "continuation alone" },
		{ { "\xc3", 1 }, false, "cut short" },
		{ { "\xc3(", 2 }, false, "no continuation" },
		{ { "\xc0\x80", 2 }, false, "overlong NUL" },
		{ { "\xc1\xbf", 2 }, false, "overlong two" },
		{ { "\xe0\x9f\xbf", 3 }, false, "overlong three" },
		{ { "\xf0\x8f\xbf\xbf", 4 }, false, "overlong four" },
		{ { "\xed\xa0\x80", 3 }, false, "surrogate" },
		{ { "\xf4\x90\x80\x80", 4 }, false, "above U+10FFFF" },
		{ { "\xf5\x80\x80\x80", 4 }, false, "no such lead" },
		{ { "\xff", 1 }, false, "FF" },
		{ { "\xe2\x82x", 3 }, false, "third byte wrong" },
		{ { "ok\xe2\x82", 4 }, false, "cut at the end" },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		tap_ok(utf8_valid(rows[i].v) == rows[i].valid, "%s",
		    rows[i].what);
}

/* Among bytes that are looked at several at a time. */
static void
test_long(void)
{
	char text[40];
	size_t i, bad = 0;

	for (i = 0; i < sizeof(text) - 1; i++) {
		memset(text, 'a', sizeof(text));
		memcpy(text + i, "\xc3\xa9", 2);
		bad += !utf8_valid(view_of(text, sizeof(text)));
		/* a lead alone, and what follows one alone */
		text[i + 1] = 'a';
		bad += utf8_valid(view_of(text, sizeof(text)));
		text[i] = '\xa9';
		bad += utf8_valid(view_of(text, sizeof(text)));
		bad += utf8_valid(view_of(text, i + 1));
		bad += !utf8_valid(view_of(text, i));
	}
	tap_is_int((long long)bad, 0, "one of them, wherever it stands");
}

int
main(void)
{
	test_round();
	test_long();
	test_valid();
	return tap_done();
}
