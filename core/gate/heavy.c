#include "config.h"

#include "gate/heavy.h"

#include "base/mem.h"

struct heavy {
	TAILQ_HEAD(, heavy_lane) ring; /* in which some wait */
	struct loop_task *task;
};

static void
on_task(void *arg)
{
	struct heavy *h = arg;
	struct heavy_lane *lane = TAILQ_FIRST(&h->ring);
	struct heavy_ticket *t;

	if (lane == NULL)
		return;
	t = TAILQ_FIRST(&lane->waiting);
	heavy_leave(t);
	/* its next turn comes after all others' */
	if (lane->n > 0) {
		TAILQ_REMOVE(&h->ring, lane, turn);
		TAILQ_INSERT_TAIL(&h->ring, lane, turn);
	}
	/* in the next turn of the loop: a task runs once in each */
	if (!TAILQ_EMPTY(&h->ring))
		loop_task_post(h->task);
	t->serve(t->arg);
}

struct heavy *
heavy_new(struct loop *l)
{
	struct heavy *h = mem_calloc(1, sizeof(*h));

	if (h == NULL)
		return NULL;
	TAILQ_INIT(&h->ring);
	h->task = loop_task_new(l, on_task, h);
	if (h->task != NULL)
		return h;
	mem_free(h);
	return NULL;
}

void
heavy_free(struct heavy *h)
{
	if (h == NULL)
		return;
	err_assert(TAILQ_EMPTY(&h->ring));
	loop_task_free(h->task);
	mem_free(h);
}

void
heavy_wait(struct heavy *h, struct heavy_lane *lane, struct heavy_ticket *t)
{
	err_assert(t->lane == NULL);
	t->heavy = h;
	t->lane = lane;
	if (lane->n++ == 0) {
		TAILQ_INIT(&lane->waiting);
		TAILQ_INSERT_TAIL(&h->ring, lane, turn);
	}
	TAILQ_INSERT_TAIL(&lane->waiting, t, link);
	loop_task_post(h->task);
}

void
heavy_leave(struct heavy_ticket *t)
{
	struct heavy_lane *lane = t->lane;

	if (lane == NULL)
		return;
	t->lane = NULL;
	TAILQ_REMOVE(&lane->waiting, t, link);
	if (--lane->n == 0)
		TAILQ_REMOVE(&t->heavy->ring, lane, turn);
}
