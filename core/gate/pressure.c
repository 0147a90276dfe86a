#include "config.h"

#include "gate/pressure.h"

#include "base/log.h"
#include "base/mem.h"

#define REST_BYTES ((size_t)16 << 20) /* less than that may stay */

enum {
	HIGH_PERCENT = 75,
	HARD_PERCENT = 90,
	EASE_PERCENT = 85, /* below it reading goes on */
	TICK_MS = 20,
	/* paused so long, and nothing has become less: the next one goes */
	STUCK_TICKS = 50,
	SAY_MS = 1000,
	/* what a rush leaves to the allocator goes back when it is over */
	REST_MS = 5000,
};

struct pressure {
	struct loop *loop;
	struct pressure_owner owner;
	struct loop_task *task;
	struct loop_timer *timer;
	struct loop_timer *rest;
	size_t peak; /* since memory was given back last */
	uint64_t max, high, hard, ease;
	unsigned ticks; /* since it got tight, or something was ended */
	uint64_t said_tight, said_relax, said_shed; /* in ms; 0 never */
	bool tight; /* nothing is read */
};

static void
tick_later(struct pressure *p)
{
	loop_timer_set(p->timer, TICK_MS);
}

/* It may go to and fro many times a second: one line of each kind is enough. */
static bool
may_say(struct pressure *p, uint64_t *said_at_ms)
{
	uint64_t now = loop_now_ms(p->loop);

	if (*said_at_ms != 0 && now - *said_at_ms < SAY_MS)
		return false;
	*said_at_ms = now;
	return true;
}

static void
relax(struct pressure *p)
{
	p->tight = false;
	mem_trim();
	if (may_say(p, &p->said_relax))
		log_notice("memory: %zu KiB are in use: reading goes on",
		    mem_live() / 1024);
	p->owner.pause(p->owner.arg, false);
}

static void
tighten(struct pressure *p)
{
	p->tight = true;
	p->ticks = 0;
	if (may_say(p, &p->said_tight))
		log_warn("memory: %zu KiB of memory_max %llu KiB are in use: "
			 "nothing is read until it is less",
		    mem_live() / 1024, (unsigned long long)(p->max / 1024));
	p->owner.pause(p->owner.arg, true);
}

/* Ends as much as would make it easy again. */
static void
shed(struct pressure *p)
{
	size_t live = mem_live();
	unsigned n;

	if (live <= p->ease)
		return;
	n = p->owner.shed(p->owner.arg, live - (size_t)p->ease);
	if (n == 0)
		return;
	p->ticks = 0;
	if (may_say(p, &p->said_shed))
		log_warn("memory: %zu KiB of memory_max %llu KiB are in use: "
			 "%u of what held most were ended",
		    live / 1024, (unsigned long long)(p->max / 1024), n);
}

static void
look(struct pressure *p)
{
	size_t live = mem_live();

	if (!p->tight && live >= p->hard)
		tighten(p);
	else if (p->tight && live < p->ease)
		relax(p);
	if (!p->tight)
		return;
	/* at first it may be enough that nothing is read */
	if (live >= p->max || (live >= p->hard && p->ticks > 0) ||
	    p->ticks >= STUCK_TICKS)
		shed(p);
	tick_later(p);
}

static void
on_task(void *arg)
{
	look(arg);
}

static void
on_timer(void *arg)
{
	struct pressure *p = arg;

	p->ticks++;
	look(p);
}

static void
on_rest(void *arg)
{
	struct pressure *p = arg;
	size_t live = mem_live();

	if (live <= p->peak / 2) {
		mem_trim();
		p->peak = live;
	}
	if (p->peak >= REST_BYTES)
		loop_timer_set(p->rest, REST_MS);
}

struct pressure *
pressure_new(struct loop *l, const struct pressure_owner *owner)
{
	struct pressure *p = mem_calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->loop = l;
	p->owner = *owner;
	p->task = loop_task_new(l, on_task, p);
	p->timer = loop_timer_new(l, on_timer, p);
	p->rest = loop_timer_new(l, on_rest, p);
	pressure_set(p, UINT64_MAX);
	if (p->task != NULL && p->timer != NULL && p->rest != NULL)
		return p;
	pressure_free(p);
	return NULL;
}

void
pressure_free(struct pressure *p)
{
	if (p == NULL)
		return;
	loop_task_free(p->task);
	loop_timer_free(p->timer);
	loop_timer_free(p->rest);
	mem_free(p);
}

void
pressure_set(struct pressure *p, uint64_t max)
{
	p->max = max;
	p->high = max / 100 * HIGH_PERCENT;
	p->hard = max / 100 * HARD_PERCENT;
	p->ease = max / 100 * EASE_PERCENT;
}

enum pressure_level
pressure_level(struct pressure *p)
{
	size_t live = mem_live();

	if (live > p->peak) {
		if (p->peak < REST_BYTES && live >= REST_BYTES)
			loop_timer_set(p->rest, REST_MS);
		p->peak = live;
	}
	if (live < p->high && !p->tight)
		return PRESSURE_NONE;
	if (live >= p->hard && (!p->tight || live >= p->max))
		loop_task_post(p->task);
	if (live >= p->max)
		return PRESSURE_FULL;
	if (p->tight || live >= p->hard)
		return PRESSURE_HARD;
	return PRESSURE_HIGH;
}

bool
pressure_fits(const struct pressure *p, uint64_t n)
{
	size_t live = mem_live();

	return live < p->max && n <= p->max - live;
}

uint64_t
pressure_max(const struct pressure *p)
{
	return p->max;
}
