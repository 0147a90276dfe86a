#include "config.h"

#include <stdalign.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/mem.h"
#include "tap.h"

static void
test_pieces(void)
{
	struct arena *a = arena_new(100000);
	unsigned char *p, *pieces[300];
	bool good = true;
	size_t i;

	err_assert(a != NULL);
	tap_is_int((long long)arena_used(a), 0, "nothing used");
	for (i = 0; i < 300; i++) {
		p = pieces[i] = arena_alloc(a, i);
		good &= p != NULL && (uintptr_t)p % alignof(max_align_t) == 0;
		if (p != NULL)
			memset(p, (int)i, i);
	}
	tap_ok(good, "300 aligned pieces");
	for (i = 0; i < 300; i++)
		for (size_t k = 0; k < i; k++)
			good &= pieces[i][k] == (unsigned char)i;
	tap_ok(good, "that do not overlap");
	p = arena_zalloc(a, 5000);
	for (i = 0; p != NULL && i < 5000; i++)
		good &= p[i] == 0;
	tap_ok(p != NULL && good, "a large zeroed one");
	arena_free(a);
	arena_free(NULL);
}

static void
test_text(void)
{
	struct arena *a = arena_new(1000);
	struct view v;

	err_assert(a != NULL);
	tap_is_str(arena_strdup(a, VIEW("abc")), "abc", "strdup");
	tap_is_str(arena_strdup(a, VIEW_NONE), "", "strdup of NULL");
	tap_is_int(arena_dup(a, VIEW("xyz"), &v), 0, "dup");
	tap_is_mem(v.p, v.n, "xyz", 3, "its content");
	tap_is_int(arena_dup(a, VIEW_NONE, &v), 0, "dup of NULL");
	tap_ok(v.p != NULL && v.n == 0, "is empty and not NULL");
	tap_is_str(arena_printf(a, "%d %s", 7, "x"), "7 x", "printf");
	tap_ok(arena_printf(a, "%2000d", 7) == NULL, "printf past the cap");
	arena_free(a);
}

static void
test_cap(void)
{
	struct arena *a = arena_new(64);
	struct view v = VIEW("x");

	err_assert(a != NULL);
	tap_ok(arena_alloc(a, SIZE_MAX) == NULL, "no overflow");
	tap_ok(arena_alloc(a, SIZE_MAX - 15) == NULL, "nor near it");
	tap_ok(arena_alloc(a, 65) == NULL, "over the cap at once");
	tap_ok(arena_alloc(a, 48) != NULL, "under it");
	tap_ok(arena_alloc(a, 17) == NULL, "over it in sum");
	tap_ok(arena_alloc(a, 16) != NULL, "to the byte");
	tap_is_int((long long)arena_used(a), 64, "used");
	tap_ok(arena_alloc(a, 0) == NULL, "full");
	tap_is_int(arena_dup(a, VIEW("y"), &v), SP_E_NOMEM, "no copy");
	tap_ok(v.p == NULL, "nor a view");
	tap_ok(arena_strdup(a, VIEW("")) == NULL, "no string");
	tap_ok(arena_zalloc(a, 1) == NULL, "no zeros");
	arena_free(a);
}

static void
test_no_memory(void)
{
	struct arena *a;
	void *p;

	mem_fail_after(1, 0);
	a = arena_new(10);
	tap_ok(a == NULL, "no memory for an arena");
	a = arena_new(10000);
	err_assert(a != NULL);
	mem_fail_after(1, 0);
	p = arena_alloc(a, 10);
	tap_ok(p == NULL, "no memory for a chunk");
	tap_is_int((long long)arena_used(a), 0, "is not counted");
	p = arena_alloc(a, 10);
	tap_ok(p != NULL, "later there is");
	mem_fail_after(1, 0);
	tap_ok(arena_alloc(a, 5000) == NULL, "no memory for a big piece");
	arena_free(a);
}

int
main(void)
{
	test_pieces();
	test_text();
	test_cap();
	test_no_memory();
	return tap_done();
}
