#include "config.h"

#include <stdint.h>
#include <stdio.h>

#include "base/hmap.h"
#include "base/mem.h"
#include "tap.h"

enum { N = 3000 };
static char things[N]; /* addresses serve as values */

static struct view
key_of(size_t i, char out[32])
{
	int n = snprintf(out, 32, "key-%zu", i);

	return view_of(out, (size_t)n);
}

static void
test_basics(void)
{
	struct hmap *m = hmap_new(3);
	char k[] = "ab";

	err_assert(m != NULL);
	tap_ok(hmap_get(m, VIEW("a")) == NULL, "nothing in it");
	tap_ok(hmap_del(m, VIEW("a")) == NULL, "nothing to remove");
	tap_is_int(hmap_add(m, view_of(k, 2), &things[0]), 0, "add");
	k[0] = 'x'; /* the key was copied */
	tap_ok(hmap_get(m, VIEW("ab")) == &things[0], "get");
	tap_is_int(hmap_add(m, VIEW("ab"), &things[1]), SP_E_EXISTS,
	    "add again");
	tap_is_int(hmap_set(m, VIEW("ab"), &things[1]), 0, "replace");
	tap_ok(hmap_get(m, VIEW("ab")) == &things[1], "replaced");
	tap_is_int(hmap_add(m, VIEW_NONE, &things[2]), 0, "empty key");
	tap_ok(hmap_get(m, VIEW("")) == &things[2], "found");
	tap_is_int(hmap_set(m, VIEW("a\0b"), &things[3]), 0, "NUL in a key");
	tap_ok(hmap_get(m, VIEW("a")) == NULL, "is part of it");
	tap_is_int(hmap_add(m, VIEW("d"), &things[4]), SP_E_LIMIT, "max");
	tap_is_int(hmap_set(m, VIEW("d"), &things[4]), SP_E_LIMIT, "max set");
	tap_is_int(hmap_set(m, VIEW("ab"), &things[5]), 0, "replace at max");
	tap_is_int((long long)hmap_count(m), 3, "count");
	tap_ok(hmap_del(m, VIEW("ab")) == &things[5], "remove");
	tap_ok(hmap_del(m, VIEW("ab")) == NULL, "removed");
	tap_is_int(hmap_add(m, VIEW("d"), &things[4]), 0, "room again");
	hmap_free(m);
	hmap_free(NULL);
}

/* Random adds and removals against an array. */
static void
test_against_array(void)
{
	static bool there[N];
	struct hmap *m = hmap_new(N);
	uint32_t r = 12345;
	size_t i, count = 0, k;
	bool good = true;
	char text[32];
	void *val;

	err_assert(m != NULL);
	for (i = 0; i < 60000; i++) {
		r = r * 1664525 + 1013904223;
		k = (r >> 8) % N;
		/* waves: mostly adding, then mostly removing */
		if ((r >> 4) % 8 < (i / 15000 % 2 == 0 ? 6U : 2U)) {
			good &= hmap_add(m, key_of(k, text), &things[k]) ==
			    (there[k] ? SP_E_EXISTS : 0);
			count += !there[k];
			there[k] = true;
		} else {
			val = hmap_del(m, key_of(k, text));
			good &= val == (there[k] ? &things[k] : NULL);
			count -= there[k];
			there[k] = false;
		}
		good &= hmap_count(m) == count;
	}
	tap_ok(good, "60000 random operations");
	for (k = 0; k < N; k++)
		good &= hmap_get(m, key_of(k, text)) ==
		    (there[k] ? &things[k] : NULL);
	tap_ok(good, "every key afterwards");
	hmap_free(m);
}

static void
test_next(void)
{
	static unsigned seen[N];
	struct hmap *m = hmap_new(N);
	size_t pos = 0, i, left = 0;
	struct view key;
	char text[32];
	bool good = true;
	void *val;

	err_assert(m != NULL);
	tap_ok(!hmap_next(m, &pos, &key, &val), "an empty map ends at once");
	for (i = 0; i < N; i++)
		good &= hmap_add(m, key_of(i, text), &things[i]) == 0;
	pos = 0;
	while (hmap_next(m, &pos, &key, &val)) {
		i = (size_t)((char *)val - things);
		seen[i]++;
		good &= view_eq(key, key_of(i, text));
		/* the very view that was returned serves for removing */
		if (i % 3 != 0)
			good &= hmap_del(m, key) == val;
	}
	for (i = 0; i < N; i++)
		good &= seen[i] == 1;
	tap_ok(good, "each is seen once while two thirds are removed");
	for (pos = 0; hmap_next(m, &pos, &key, &val);) {
		left++;
		good &= hmap_del(m, key) == val;
	}
	tap_is_int((long long)left, N / 3, "the others are seen");
	tap_ok(good && hmap_count(m) == 0, "and removed");
	tap_is_int(hmap_add(m, VIEW("x"), &things[0]), 0, "it still works");
	pos = 0;
	tap_ok(hmap_next(m, &pos, &key, &val) && val == &things[0], "one");
	hmap_free(m);
}

/* Many, then few: the next additions give memory back. */
static void
test_shrink(void)
{
	struct hmap *m = hmap_new(N);
	bool good = true;
	char text[32];
	size_t i;

	err_assert(m != NULL);
	for (i = 0; i < N; i++)
		good &= hmap_add(m, key_of(i, text), &things[i]) == 0;
	for (i = 0; i < N - 20; i++)
		good &= hmap_del(m, key_of(i, text)) == &things[i];
	tap_ok(good && hmap_count(m) == 20, "twenty are left");
	mem_fail_after(2, 1);
	tap_is_int(hmap_add(m, VIEW("a"), &things[0]), 0,
	    "staying too big is no failure");
	mem_fail_after(0, 0);
	for (i = 0; i < 40; i++)
		good &= hmap_add(m, key_of(i, text), &things[i]) == 0;
	for (i = 0; i < N; i++)
		good &= hmap_get(m, key_of(i, text)) ==
		    (i < 40 || i >= N - 20 ? &things[i] : NULL);
	tap_ok(good && hmap_count(m) == 61, "smaller, with all there is");
	hmap_free(m);
}

static void
test_no_memory(void)
{
	struct hmap *m;
	unsigned long n;
	bool good = true;
	char text[32];
	size_t i;
	int rc = SP_E_NOMEM;

	mem_fail_after(1, 0);
	m = hmap_new(100);
	tap_ok(m == NULL, "no memory for a map");
	m = hmap_new(100);
	err_assert(m != NULL);
	for (n = 1; rc == SP_E_NOMEM && n < 20; n++) {
		mem_fail_after(n, 0);
		rc = hmap_add(m, VIEW("first"), &things[0]);
		good &= hmap_count(m) == (rc == 0 ? 1U : 0U);
	}
	tap_ok(good && rc == 0 && n > 4, "each allocation failed in turn");
	mem_fail_after(0, 0);
	for (i = 0; i < 7; i++)
		good &= hmap_add(m, key_of(i, text), &things[i]) == 0;
	mem_fail_after(2, 0); /* growing, not the key */
	tap_is_int(hmap_add(m, VIEW("z"), &things[9]), SP_E_NOMEM,
	    "growing fails");
	for (i = 0; i < 7; i++)
		good &= hmap_get(m, key_of(i, text)) == &things[i];
	tap_ok(good && hmap_count(m) == 8, "and loses nothing");
	mem_fail_after(0, 0);
	hmap_free(m);
}

int
main(void)
{
	test_basics();
	test_against_array();
	test_next();
	test_shrink();
	test_no_memory();
	return tap_done();
}
