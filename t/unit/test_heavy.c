/* core/gate/heavy.c: turns of what is large. */
#include "config.h"

#include "gate/heavy.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "event/loop.h"
#include "gate/gate.h"

#include "tap.h"

const struct gate_module *const gate_modules[] = { NULL };

static struct loop *loop;
static struct loop_timer *stopper;
static struct heavy *heavy;
static struct heavy_lane lanes[3];
static struct buf order = BUF_INIT(1024);

static struct one {
	struct heavy_ticket t;
	char name;
	struct loop_task *between; /* what else is ready, made by it */
	struct one *leaves; /* its turn takes that one's away */
} ones[8];

static void
note(char c)
{
	if (buf_add_char(&order, c) != SP_OK)
		abort();
}

static void
on_between(void *arg)
{
	(void)arg;
	note('.');
}

static void
on_turn(void *arg)
{
	struct one *o = arg;

	note(o->name);
	loop_task_post(o->between);
	if (o->leaves != NULL)
		heavy_leave(&o->leaves->t);
}

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
wait_in(struct one *o, char name, struct heavy_lane *lane)
{
	o->name = name;
	o->t.serve = on_turn;
	o->t.arg = o;
	heavy_wait(heavy, lane, &o->t);
}

static void
is(const char *want, const char *what)
{
	int i;

	for (i = 0; i < 20; i++) {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	}
	tap_is_mem(buf_view(&order).p, buf_len(&order), want, strlen(want),
	    what);
	buf_reset(&order, 1024);
}

int
main(void)
{
	unsigned long n;
	size_t i;

	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	heavy = heavy_new(loop);
	for (i = 0; i < 8; i++)
		ones[i].between = loop_task_new(loop, on_between, NULL);
	is("", "none");
	for (i = 0; i < 3; i++)
		wait_in(&ones[i], (char)('a' + i), &lanes[0]);
	tap_is_int((long long)buf_len(&order), 0, "not at once");
	is("a.b.c.", "one in a turn of the loop, first in, first out");
	for (i = 0; i < 4; i++)
		wait_in(&ones[i], (char)('a' + i), &lanes[0]);
	wait_in(&ones[4], 'x', &lanes[1]);
	wait_in(&ones[5], 'y', &lanes[1]);
	wait_in(&ones[6], 'z', &lanes[2]);
	is("a.x.z.b.y.c.d.", "lanes take turns");
	wait_in(&ones[0], 'a', &lanes[0]);
	wait_in(&ones[1], 'b', &lanes[0]);
	wait_in(&ones[2], 'c', &lanes[1]);
	heavy_leave(&ones[0].t);
	heavy_leave(&ones[0].t);
	is("b.c.", "one left");
	ones[0].leaves = &ones[1];
	wait_in(&ones[0], 'a', &lanes[0]);
	wait_in(&ones[1], 'b', &lanes[0]);
	is("a.", "one takes another's turn away");
	for (i = 0; i < 8; i++)
		loop_task_free(ones[i].between);
	heavy_free(heavy);
	for (n = 1; n < 10; n++) {
		mem_fail_after(n, 0);
		heavy = heavy_new(loop);
		mem_fail_after(0, 0);
		if (heavy != NULL)
			break;
	}
	tap_ok(heavy != NULL && n > 1, "without memory there is none");
	heavy_free(heavy);
	loop_timer_free(stopper);
	loop_free(loop);
	buf_clear(&order);
	return tap_done();
}
