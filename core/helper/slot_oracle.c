#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "helper/slot_priv.h"
#include "helper/sweep.h"

/*
 * The third keeper of a slot: it comes and goes while the slot is READY.
 * Whatever becomes of it, the slot's own end is not held up: from there on it
 * is a keeper like the others.
 */

enum {
	ORACLE_SPARE_MS = 5 * 1000, /* over what the keeper waits itself */
	ORACLE_AGAIN_MS = 1000,
	ORACLE_AGAIN_DOUBLINGS = 6,
};

static void oracle_sweep(struct slot *s);

static struct slot_keeper *
oracle_keeper(struct slot *s)
{
	return &s->keepers[SLOT_ORACLE];
}

static void
oracle_tell(struct slot *s, enum slot_oracle_news news, struct view why)
{
	s->w->oracle(s->w->arg, s, news, why);
}

static void
oracle_on_timer(void *arg)
{
	struct slot *s = arg;

	if (s->oracle == SLOT_ORACLE_DIRTY)
		oracle_sweep(s);
	else /* it says nothing any more, or too late */
		slot_keeper_kill(oracle_keeper(s));
}

int
slot_oracle_start(struct slot *s, const char *assets)
{
	struct slot_keeper *k = oracle_keeper(s);
	int rc;

	if (s->state != SLOT_READY || s->oracle != SLOT_ORACLE_NONE)
		return SP_E_STATE;
	if (s->oracle_timer == NULL)
		s->oracle_timer = poller_timer_new(s->w->p, oracle_on_timer, s);
	if (s->oracle_timer == NULL)
		return SP_E_NOMEM;
	s->oracle_emptied = false;
	s->oracle_sweeps = 0;
	(void)snprintf(s->oracle_assets, sizeof(s->oracle_assets), "%s",
	    assets);
	k->side = SANDBOX_ORACLE;
	rc = slot_keeper_start(k);
	if (rc == SP_OK) {
		s->oracle = SLOT_ORACLE_STARTED;
		return rc;
	}
	if (k->pid < 0 && k->c == NULL) {
		k->side = 0;
		return rc;
	}
	/* it runs: its end brings CLEAN, and nobody waits for that */
	s->oracle = SLOT_ORACLE_ENDING;
	s->oracle_emptied = true;
	slot_keeper_kill(k);
	return rc;
}

int
slot_oracle_build(struct slot *s, int upper_fd)
{
	struct slot_keeper *k = oracle_keeper(s);
	int rc;

	if (s->oracle != SLOT_ORACLE_STARTED || k->building)
		return SP_E_STATE;
	rc = slot_keeper_give(k, SANDBOX_FD_UPPER, 0, upper_fd);
	if (rc == SP_OK) {
		k->building = true;
		rc = slot_keeper_build(k, -1, -1);
	}
	return rc;
}

void
slot_oracle_end(struct slot *s)
{
	if (s->oracle != SLOT_ORACLE_STARTED && s->oracle != SLOT_ORACLE_READY)
		return;
	s->oracle = SLOT_ORACLE_ENDING;
	slot_keeper_end(oracle_keeper(s));
	poller_timer_set(s->oracle_timer, s->teardown_ms + ORACLE_SPARE_MS);
}

void
slot_oracle_lost(struct slot *s, struct view why)
{
	if (s->state != SLOT_READY ||
	    (s->oracle != SLOT_ORACLE_STARTED &&
		s->oracle != SLOT_ORACLE_READY))
		return;
	log_error("episode slot=%" PRIu32 " environment=%s: oracle: %.*s",
	    s->number, s->name, VIEW_ARG(why));
	slot_oracle_end(s);
	oracle_tell(s, SLOT_ORACLE_LOST, why);
}

void
slot_oracle_stuck(struct slot *s)
{
	/* at work on it: not to be killed for being late */
	poller_timer_stop(s->oracle_timer);
	if (!s->oracle_emptied)
		oracle_tell(s, SLOT_ORACLE_STUCK, VIEW_NONE);
}

/* ---- its end ---------------------------------------------------------------- */

static void
oracle_empty(struct slot *s)
{
	if (s->oracle_emptied)
		return;
	s->oracle_emptied = true;
	oracle_tell(s, SLOT_ORACLE_EMPTY, VIEW_NONE);
}

static void
oracle_clean(struct slot *s)
{
	struct slot_keeper *k = oracle_keeper(s);

	slot_keeper_drop_calls(k);
	slot_keeper_clear(k);
	k->side = 0;
	s->oracle = SLOT_ORACLE_NONE;
	oracle_tell(s, SLOT_ORACLE_CLEAN, VIEW_NONE);
}

/* It is tried again, each time a while later. */
static void
oracle_again(struct slot *s)
{
	s->oracle = SLOT_ORACLE_DIRTY;
	poller_timer_set(s->oracle_timer,
	    (uint64_t)ORACLE_AGAIN_MS << s->oracle_sweeps);
	if (s->oracle_sweeps < ORACLE_AGAIN_DOUBLINGS)
		s->oracle_sweeps++;
}

static void
oracle_on_swept(void *arg, int rc, struct view why)
{
	struct slot *s = arg;

	s->oracle_sweep = NULL;
	if (rc == SP_OK) {
		oracle_empty(s);
		if (s->oracle == SLOT_ORACLE_SWEEPING)
			oracle_clean(s);
		return;
	}
	log_error("episode slot=%" PRIu32 ": the oracle's sandbox is not "
		  "clean: %.*s",
	    s->number, VIEW_ARG(why));
	oracle_again(s);
	if (!s->oracle_emptied)
		oracle_tell(s, SLOT_ORACLE_STUCK, VIEW_NONE);
}

static void
oracle_sweep(struct slot *s)
{
	struct sweep sw = {
		.slot = s->number,
		.cgroups = s->w->cgroups->fd,
		.cgroups_v1 = s->w->cgroups->v1,
		.disk_fd = -1,
		.timeout_ms = s->teardown_ms,
		.side = SANDBOX_ORACLE,
	};

	s->oracle_sweep = sweep_start(s->w->p, &sw, oracle_on_swept, s);
	if (s->oracle_sweep != NULL)
		s->oracle = SLOT_ORACLE_SWEEPING;
	else
		oracle_again(s);
}

void
slot_oracle_advance(struct slot *s)
{
	struct slot_keeper *k = oracle_keeper(s);

	if (s->oracle == SLOT_ORACLE_STARTED && k->ready) {
		s->oracle = SLOT_ORACLE_READY;
		oracle_tell(s, SLOT_ORACLE_BUILT, VIEW_NONE);
	}
	if (s->oracle == SLOT_ORACLE_ENDING && k->empty)
		oracle_empty(s);
	if (s->oracle == SLOT_ORACLE_ENDING && slot_keeper_dead(k)) {
		poller_timer_stop(s->oracle_timer);
		if (k->gone)
			oracle_clean(s);
		else
			oracle_sweep(s);
	}
}

void
slot_oracle_yield(struct slot *s)
{
	sweep_job_drop(s->oracle_sweep);
	s->oracle_sweep = NULL;
	if (s->oracle_timer != NULL)
		poller_timer_stop(s->oracle_timer);
	s->oracle = SLOT_ORACLE_NONE;
}

void
slot_oracle_free(struct slot *s)
{
	slot_oracle_yield(s);
	poller_timer_free(s->oracle_timer);
	s->oracle_timer = NULL;
}
