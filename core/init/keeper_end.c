#include "config.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "init/keeper_end.h"
#include "init/keeper_file.h"
#include "init/keeper_run.h"
#include "init/keeper_watch.h"

enum {
	END_SLICE_MS = 5, /* of waiting between two looks at the children */
	END_LOOKS = 20, /* in one turn of the loop */
	END_PAUSE_MS = 20, /* between turns */
	END_PAUSE_STUCK_MS = 500,
	END_ALONE_MS = 120 * 1000, /* without a helper; then a sweep must do */
};

static uint64_t
elapsed_ms(const struct keeper *k)
{
	return (clock_us() - k->end_at_us) / 1000;
}

static void
say_stuck(struct keeper *k, uint32_t left)
{
	struct buf *b = keeper_body(k);

	if (k->told_stuck)
		return;
	k->told_stuck = true;
	if (wire_put_u32(b, left) == SP_OK &&
	    wire_put_bytes(b,
		VIEW("processes do not die (uninterruptible sleep?)")) == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_STUCK, b, -1);
	log_warn("%u processes do not die", left);
}

static void
say_empty(struct keeper *k)
{
	struct buf *b = keeper_body(k);

	if (wire_put_u64(b, clock_us() - k->end_at_us) == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_EMPTY, b, -1);
}

static void
finish(struct keeper *k)
{
	int rc;

	failpoint_reach("end.empty");
	say_empty(k);
	/* at once, not with the deletion: the helper goes on meanwhile */
	if (!k->helper_gone)
		(void)!channel_flush(k->helper);
	keeper_run_drop(k);
	rc = sbox_clear(&k->box);
	failpoint_reach("end.cleared");
	if (rc != SP_OK)
		log_error("control group cannot be removed: %s", err_str(rc));
	else
		keeper_send(k, MESSAGE_KEEPER_GONE, NULL, -1);
	k->state = KEEPER_OVER;
	poller_stop(k->po);
}

void
keeper_end_look(void *arg)
{
	struct keeper *k = arg;
	uint32_t left = 0;
	int i, rc = SP_E_TIMEOUT;

	if (k->state != KEEPER_ENDING)
		return;
	/* what forked while it was killed, or was just being started */
	sbox_kill(&k->box);
	for (i = 0; i < END_LOOKS && rc != SP_OK; i++) {
		/* pid 1 waits for those whose parent is the keeper */
		keeper_run_reap(k, END_SLICE_MS);
		rc = sbox_wait_empty(&k->box, END_SLICE_MS, &left);
	}
	if (rc == SP_OK && k->procs_n == 0) {
		finish(k);
		return;
	}
	if (elapsed_ms(k) > k->spec.teardown_ms)
		say_stuck(k, left);
	if (k->helper_gone && elapsed_ms(k) > END_ALONE_MS) {
		poller_stop(k->po);
		return;
	}
	poller_timer_set(k->end,
	    k->told_stuck ? END_PAUSE_STUCK_MS : END_PAUSE_MS);
}

void
keeper_end_begin(struct keeper *k)
{
	if (k->state >= KEEPER_ENDING)
		return;
	k->state = KEEPER_ENDING;
	k->end_at_us = clock_us();
	poller_remove(k->init_at);
	k->init_at = NULL;
	poller_timer_stop(k->sample);
	keeper_watch_stop(k);
	sbox_kill(&k->box);
	failpoint_reach("end.killed");
	keeper_file_drop(k);
	keeper_run_kill(k);
	poller_timer_set(k->end, 0);
}

void
keeper_end_gone(struct keeper *k)
{
	if (!k->helper_gone) {
		k->helper_gone = true;
		/* else an end of file that nobody reads would spin the loop */
		poller_remove(k->helper_at);
		k->helper_at = NULL;
	}
	keeper_end_begin(k);
}
