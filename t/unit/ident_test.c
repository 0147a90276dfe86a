/* What may be the id of a session or an episode. */
#include "config.h"

#include "base/ident.h"
#include "tap.h"

static void
test_bytes(void)
{
	static const char allowed[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	bool good = true, first = true;
	unsigned c;
	char id[3] = "aXb";

	for (c = 0; c < 256; c++) {
		bool may = c != 0 && strchr(allowed, (int)c) != NULL;

		id[1] = (char)c;
		good &= ident_good(view_of(id, 3)) == may;
		first &= ident_good(view_of(id + 1, 1)) == (may && c != '.');
	}
	tap_ok(good, "each byte, in the middle");
	tap_ok(first, "each byte, in front");
}

int
main(void)
{
	char longest[IDENT_MAX + 1];

	memset(longest, 'a', sizeof(longest));
	tap_ok(ident_good(view_of(longest, IDENT_MAX)), "the longest");
	tap_ok(!ident_good(view_of(longest, IDENT_MAX + 1)), "one longer");
	tap_ok(!ident_good(VIEW("")) && !ident_good(VIEW_NONE), "empty");
	tap_ok(!ident_good(VIEW("..")), "two dots");
	tap_ok(ident_good(VIEW("a..b.")), "dots behind");
	tap_ok(ident_good(VIEW("-")), "a hyphen alone");
	test_bytes();
	return tap_done();
}
