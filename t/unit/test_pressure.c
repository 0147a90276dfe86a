/* The ceiling on memory: levels, pausing, what is ended, and relief. */
#include "config.h"

#include <stdlib.h>

#include "base/mem.h"
#include "gate/pressure.h"

#include "tap.h"

const struct gate_module *const gate_modules[] = { NULL };

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 64 };

static struct loop *loop;
static struct pressure *p;
static void *blocks[BLOCKS];
static unsigned held, paused, resumed, sheds, to_free;

static void
on_pause(void *arg, bool tight)
{
	(void)arg;
	paused += tight;
	resumed += !tight;
}

static void
give(unsigned n)
{
	while (n-- > 0 && held > 0)
		mem_free(blocks[--held]);
}

static void
take(unsigned n)
{
	while (n-- > 0 && held < BLOCKS) {
		blocks[held] = mem_alloc(MIB);
		if (blocks[held++] == NULL)
			abort();
	}
}

static unsigned
on_shed(void *arg, size_t bytes)
{
	unsigned n = to_free;

	(void)arg;
	(void)bytes;
	sheds++;
	give(n);
	return n;
}

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

/* Until the condition holds, or far too long. */
static bool
spin(bool (*done)(void))
{
	struct loop_timer *t = loop_timer_new(loop, on_stop, NULL);
	unsigned i;

	for (i = 0; i < 2000 && !done(); i++) {
		loop_timer_set(t, 5);
		if (loop_run(loop) != SP_OK)
			abort();
	}
	loop_timer_free(t);
	return done();
}

static bool
is_paused(void)
{
	return paused > 0;
}
static bool
is_shed(void)
{
	return sheds > 0;
}
static bool
is_relaxed(void)
{
	return resumed > 0;
}

static void
begin(unsigned mib)
{
	give(held);
	paused = resumed = sheds = to_free = 0;
	pressure_set(p, mem_live() + mib * MIB);
}

static void
test_levels(void)
{
	give(held);
	pressure_set(p, 100 * MIB);
	tap_is_int(pressure_level(p), PRESSURE_NONE, "nothing is held");
	tap_ok(pressure_fits(p, 90 * MIB) && !pressure_fits(p, 100 * MIB),
	    "what would fit");
	pressure_set(p, 20 * MIB);
	take(16);
	tap_is_int(pressure_level(p), PRESSURE_HIGH, "over three quarters");
	take(3);
	tap_is_int(pressure_level(p), PRESSURE_HARD, "over nine tenths");
	take(3);
	tap_is_int(pressure_level(p), PRESSURE_FULL, "over all of it");
	tap_ok(!pressure_fits(p, 1), "nothing fits");
	tap_is_int((long long)pressure_max(p), 20 * (long long)MIB, "the max");
	tap_is_int(paused, 0, "nobody is called from within");
	tap_ok(spin(is_paused), "then reading stops");
	give(22);
	tap_ok(spin(is_relaxed), "and goes on");
	tap_is_int(pressure_level(p), PRESSURE_NONE, "all is well");
}

/* Back-pressure alone may do. */
static void
test_patience(void)
{
	begin(20);
	take(19);
	(void)pressure_level(p);
	tap_ok(spin(is_paused), "tight");
	give(1);
	tap_is_int(pressure_level(p), PRESSURE_HARD,
	    "it stays so until it is easy again");
	give(10);
	tap_ok(spin(is_relaxed) && sheds == 0, "nothing was ended for it");
}

static void
test_shed(void)
{
	begin(20);
	to_free = 2;
	take(21);
	(void)pressure_level(p);
	tap_ok(spin(is_shed), "past all of it something is ended at once");
	tap_ok(spin(is_relaxed) && sheds <= 3, "until it is easy");

	begin(20);
	take(18);
	to_free = 0;
	take(1);
	(void)pressure_level(p);
	tap_ok(spin(is_shed), "asked for, with nothing to end");
	give(1);
	sheds = 0;
	to_free = 8;
	tap_ok(spin(is_relaxed) && sheds > 0,
	    "what stays as it is for a second is ended as well");
}

static void
test_nomem(void)
{
	const struct pressure_owner owner = { on_pause, on_shed, NULL };
	struct pressure *other = NULL;
	unsigned long n;

	for (n = 1; other == NULL && n < 100; n++) {
		mem_fail_after(n, 0);
		other = pressure_new(loop, &owner);
	}
	mem_fail_after(0, 0);
	tap_ok(other != NULL && n > 2, "without memory there is none");
	pressure_free(other);
	pressure_free(NULL);
}

int
main(void)
{
	const struct pressure_owner owner = { on_pause, on_shed, NULL };

	loop = loop_new();
	p = loop != NULL ? pressure_new(loop, &owner) : NULL;
	if (p == NULL)
		abort();
	tap_is_int(pressure_level(p), PRESSURE_NONE, "no ceiling at first");
	test_levels();
	test_patience();
	test_shed();
	test_nomem();
	give(held);
	pressure_free(p);
	loop_free(loop);
	return tap_done();
}
