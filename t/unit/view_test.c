#include "config.h"

#include <stdint.h>

/* the whole file: SipHash is tested with known keys, below its interface */
#include "base/view.c" /* NOLINT(bugprone-suspicious-include) */
#include "tap.h"

static void
test_compare(void)
{
	tap_ok(view_eq(VIEW("abc"), VIEW("abc")), "equal");
	tap_ok(!view_eq(VIEW("abc"), VIEW("abd")), "unequal");
	tap_ok(!view_eq(VIEW("abc"), VIEW("ab")), "unequal lengths");
	tap_ok(view_eq(VIEW_NONE, VIEW("")), "NULL equals empty");
	tap_ok(view_eq_nocase(VIEW("aBc-[Z"), VIEW("AbC-[z")), "no case");
	tap_ok(!view_eq_nocase(VIEW("["), VIEW("{")), "no case: letters only");
	tap_ok(!view_eq_nocase(VIEW("a"), VIEW("aa")), "no case: lengths");
	tap_ok(!view_eq_nocase(VIEW("\xc4"), VIEW("\xe4")), "ASCII only");
	tap_ok(view_starts(VIEW("abc"), VIEW("ab")), "starts");
	tap_ok(!view_starts(VIEW("a"), VIEW("ab")), "too short to start");
	tap_ok(view_starts(VIEW_NONE, VIEW("")), "NULL starts with empty");
	tap_ok(view_ends(VIEW("abc"), VIEW("bc")), "ends");
	tap_ok(!view_ends(VIEW("c"), VIEW("bc")), "too short to end");
	tap_ok(view_ends(VIEW_NONE, VIEW_NONE), "NULL ends with empty");
	tap_ok(view_eq_secret(VIEW("s3cret"), VIEW("s3cret")), "secret equal");
	tap_ok(!view_eq_secret(VIEW("s3cret"), VIEW("s3creT")), "differs");
	tap_ok(!view_eq_secret(VIEW("s3cret"), VIEW("s3cre")), "shorter");
	tap_ok(view_eq_secret(VIEW_NONE, VIEW("")), "secret empty");
	tap_ok(view_str(NULL).n == 0, "view of a NULL string");
}

static void
is_view(struct view got, const char *want, const char *what)
{
	tap_is_mem(got.p, got.n, want, strlen(want), what);
}

static void
test_cut(void)
{
	is_view(view_trim(VIEW(" \ta b\t ")), "a b", "trim");
	is_view(view_trim(VIEW(" \t")), "", "trim all");
	is_view(view_trim(VIEW_NONE), "", "trim NULL");
	is_view(view_trim(VIEW("\na\r")), "\na\r", "trim is no more than OWS");
	tap_is_int((int)view_find(VIEW("abca"), 'c'), 2, "find");
	tap_is_int((int)view_find(VIEW("abc"), 'x'), 3, "find nothing");
	tap_is_int((int)view_find(VIEW_NONE, 'x'), 0, "find in NULL");
	tap_is_int((int)view_search(VIEW("abcabd"), VIEW("abd")), 3, "search");
	tap_is_int((int)view_search(VIEW("abc"), VIEW("bd")), 3, "no match");
	tap_is_int((int)view_search(VIEW("a"), VIEW("ab")), 1, "too short");
	tap_is_int((int)view_search(VIEW_NONE, VIEW("")), 0, "empty in NULL");
	is_view(view_from(VIEW("abc"), 1), "bc", "from");
	is_view(view_from(VIEW("abc"), 9), "", "from past the end");
	is_view(view_from(VIEW_NONE, 9), "", "from of NULL");
	is_view(view_sub(VIEW("abcd"), 1, 2), "bc", "sub");
	is_view(view_sub(VIEW("abcd"), 3, SIZE_MAX), "d", "sub clipped");
}

static void
is_split(const char *text, const char *want)
{
	struct view rest = view_str(text), piece;
	char got[100];
	size_t n = 0;

	while (view_split(&rest, ',', &piece) && n < 80)
		n += (size_t)snprintf(got + n, sizeof(got) - n, "<%.*s>",
		    VIEW_ARG(piece));
	got[n] = '\0';
	tap_is_str(got, want, text);
}

static void
test_split(void)
{
	struct view rest = VIEW_NONE, piece;

	is_split("a,,b", "<a><><b>");
	is_split("a", "<a>");
	is_split("a,", "<a><>");
	is_split(",", "<><>");
	is_split("", "<>");
	tap_ok(!view_split(&rest, ',', &piece), "nothing in NULL");
}

/* Values of another implementation (CPython's str hash, key of zeros). */
static void
test_hash(void)
{
	static const uint64_t zero[2] = { 0, 0 };
	unsigned long h = view_hash(VIEW("x"));

	tap_ok(view_sip13(zero, VIEW("a")) == UINT64_C(0x407448d2b89b1813),
	    "SipHash-1-3, one byte");
	tap_ok(view_sip13(zero, VIEW("abcdefgh")) ==
		UINT64_C(0x3f7b849c0b8e35ea),
	    "SipHash-1-3, one word");
	tap_ok(view_sip13(zero,
		   VIEW("The quick brown fox jumps over the lazy dog")) ==
		UINT64_C(0x8df676d3d00c451e),
	    "SipHash-1-3, several words");
	tap_ok(h == view_hash(VIEW("x")), "hash is stable");
	tap_ok(h != view_hash(VIEW("y")), "hash differs");
	tap_ok(view_hash(VIEW_NONE) == view_hash(VIEW("")), "NULL is empty");
}

int
main(void)
{
	test_compare();
	test_cut();
	test_split();
	test_hash();
	return tap_done();
}
