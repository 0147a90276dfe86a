#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/turn_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"

static const char turn_gone_text[] = "the recorder is gone";
static const char turn_silent_text[] = "the recorder does not answer";

/* ---- it does not answer --------------------------------------------------- */

/* It is still written, if the recorder ever goes on; the client is told now. */
static void
turn_say_late(struct turn *t)
{
	if (t->owner.done == NULL || t->refused || t->late)
		return;
	t->late = true;
	t->ok = false;
	t->text = turn_silent_text;
	t->say_room = false;
	t->say_done = true;
	turn_notice(t);
}

void
turn_await(struct turn *t)
{
	struct recorder *r = t->recorder;

	if (r->silent)
		turn_say_late(t);
	if (!r->watching)
		loop_timer_set(r->watch, r->silent_ms);
	r->watching = true;
}

static void
turn_watch(void *arg)
{
	struct recorder *r = arg;
	uint64_t since, first = UINT64_MAX, now = loop_now_us(r->loop);
	struct turn *t;

	r->watching = false;
	TAILQ_FOREACH (t, &r->turns, link)
		if (t->state == TURN_ENDED && t->ended_us < first)
			first = t->ended_us;
	if (first == UINT64_MAX || !turn_link_up(r))
		return;
	since = first > r->heard_us ? first : r->heard_us;
	r->watching = true;
	if (now < since + r->silent_ms * 1000) {
		loop_timer_set(r->watch,
		    (since + r->silent_ms * 1000 - now) / 1000 + 1);
		return;
	}
	loop_timer_set(r->watch, r->silent_ms);
	if (!r->silent)
		log_error("recorder: no answer for %llu ms: no turns accepted",
		    (unsigned long long)r->silent_ms);
	r->silent = true;
	TAILQ_FOREACH (t, &r->turns, link)
		if (t->state == TURN_ENDED)
			turn_say_late(t);
}

static void
turn_heard(struct recorder *r)
{
	r->heard_us = loop_now_us(r->loop);
	if (r->silent)
		log_notice("recorder: it answers again");
	r->silent = false;
}

/* ---- the recorder died ---------------------------------------------------- */

static void
turn_lose(struct turn *t)
{
	struct recorder *r = t->recorder;

	if (r->lost_n < TURN_LOST_MAX) {
		TAILQ_INSERT_TAIL(&r->lost, t->opening, link);
		r->lost_n++;
		t->opening = NULL;
	}
	turn_unlist(t);
	(void)hmap_del(r->handles, turn_key(&t->handle));
	turn_set_state(t, TURN_LOST);
	if (t->owner.done == NULL) {
		turn_free(t);
		return;
	}
	if (t->late)
		return;
	t->ok = false;
	t->text = turn_gone_text;
	t->say_room = false;
	t->say_done = true;
	turn_notice(t);
}

/* Closes the channel; who had a turn there is told by the task. */
static void
turn_tear_down(struct recorder *r)
{
	struct turn *t, *next;

	loop_fd_free(r->fd);
	r->fd = NULL;
	channel_free(r->channel);
	r->channel = NULL;
	r->broken = r->accepting = r->pressed = r->compromised = false;
	r->silent = false;
	(void)snprintf(r->why, sizeof(r->why), "%s", turn_gone_text);
	buf_reset(&r->batch, SIZE_MAX);
	r->batch_n++;
	if (r->other.down != NULL)
		r->other.down(r->other.arg);
	/* nobody is called here, so the list changes by turn_free() alone */
	for (t = TAILQ_FIRST(&r->turns); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (turn_is_open(t))
			turn_lose(t);
		else if (t->state == TURN_FILED && t->owe_delivered)
			turn_free(t);
		else if (t->state == TURN_FILED) {
			/* on file, and done() says so; no one else to tell */
			(void)hmap_del(r->handles, turn_key(&t->handle));
			t->state = TURN_LOST;
		}
	}
}

/* Tells the recorder of one turn that was lost; false: later. */
static bool
turn_tell_lost(struct recorder *r)
{
	struct turn_opening *o = TAILQ_FIRST(&r->lost);
	struct turn *t = turn_new(r);

	if (t == NULL)
		return false;
	TAILQ_REMOVE(&r->lost, o, link);
	r->lost_n--;
	t->opening = o;
	if (turn_send_open(t) != SP_OK) {
		TAILQ_INSERT_HEAD(&r->lost, o, link);
		r->lost_n++;
		t->opening = NULL;
		turn_free(t);
		return false;
	}
	t->owe_end = true;
	t->owed_outcome = MESSAGE_OUTCOME_LOST;
	return turn_settle(t) == SP_OK;
}

static void
turn_tell_all_lost(struct recorder *r)
{
	while (r->accepting && turn_link_up(r) && !TAILQ_EMPTY(&r->lost))
		if (!turn_tell_lost(r)) {
			loop_timer_set(r->retry, TURN_RETRY_MS);
			break;
		}
}

/* ---- receiving ------------------------------------------------------------ */

/* The bytes are the recorder's: it may have been taken over. */
static void
turn_copy_why(struct recorder *r, struct view v)
{
	size_t i, n = v.n < TURN_WHY_MAX ? v.n : TURN_WHY_MAX;

	for (i = 0; i < n; i++)
		r->why[i] = v.p[i] >= ' ' && v.p[i] < 0x7f ? v.p[i] : '?';
	r->why[n] = '\0';
	if (n == 0)
		(void)snprintf(r->why, sizeof(r->why),
		    "the recorder does not accept turns");
}

static int
turn_on_state(struct recorder *r, struct wire *w)
{
	uint8_t ok = wire_u8(w);
	struct view why = wire_bytes(w);

	if (wire_done(w) != SP_OK || ok > 1)
		return SP_E_PROTO;
	if (r->accepting != (ok == 1) && ok == 0)
		log_error("recorder: no turns accepted: %.*s", VIEW_ARG(why));
	r->accepting = ok == 1;
	turn_copy_why(r, why);
	return SP_OK;
}

static struct turn *
turn_by_handle(const struct recorder *r, uint32_t handle)
{
	return hmap_get(r->handles, turn_key(&handle));
}

static int
turn_on_credit(struct recorder *r, struct wire *w)
{
	struct turn *t;
	uint32_t n;

	while (wire_more(w)) {
		t = turn_by_handle(r, wire_u32(w));
		n = wire_u32(w);
		if (t == NULL || n > t->sent || !turn_is_open(t))
			return SP_E_PROTO;
		t->sent -= n;
		if (t->dry && t->sent <= TURN_WINDOW_BYTES / 2) {
			t->dry = false;
			t->say_room = true;
			turn_notice(t);
		}
	}
	return wire_done(w);
}

static void
turn_filed(struct turn *t, uint8_t result, uint64_t number)
{
	turn_set_state(t, TURN_FILED);
	t->ok = result == MESSAGE_RESULT_OK;
	t->number = number;
	t->text = result == MESSAGE_RESULT_FULL ? "the disk is full"
	    : t->ok                             ? ""
		    : "the turn could not be written";
	mem_free(t->opening);
	t->opening = NULL;
	if (t->owner.done != NULL)
		t->say_done = !t->refused && !t->late;
	else
		t->owe_delivered = true;
	turn_notice(t);
}

/* There is no trace for it; its end is answered once more. */
static void
turn_refused(struct turn *t)
{
	t->refused = true;
	t->ok = false;
	t->text = "its trace cannot be opened";
	t->say_done = t->owner.done != NULL && !t->late;
	turn_notice(t);
}

/* The session and the episode that its opening named. */
static void
turn_named(const struct turn *t, struct view *session, struct view *episode)
{
	struct wire w;

	*session = *episode = VIEW_NONE;
	if (t->opening == NULL)
		return;
	wire_init(&w, view_of(t->opening->body, t->opening->n));
	(void)wire_u32(&w); /* handle */
	(void)wire_u32(&w); /* generation */
	(void)wire_bytes(&w); /* capture */
	*session = wire_bytes(&w);
	(void)wire_u64(&w); /* time */
	(void)wire_u32(&w); /* flags */
	(void)wire_bytes(&w); /* meta */
	*episode = wire_bytes(&w);
}

static void
turn_tell_observer(const struct turn *t, bool ok, uint64_t number,
    uint32_t tokens, struct view finish_reason)
{
	const struct recorder *r = t->recorder;
	struct turn_facts facts = {
		.level = t->level,
		.ack_us = loop_now_us(r->loop) - t->ended_us,
		.tokens = tokens,
		.finish_reason = finish_reason,
		.number = ok ? number : 0,
		.ok = ok,
	};

	turn_named(t, &facts.session, &facts.episode);
	if (r->observe != NULL)
		r->observe(r->observe_arg, &facts);
}

static int
turn_on_done(struct recorder *r, struct wire *w)
{
	struct turn *t;
	struct view reason;
	uint32_t tokens;
	uint64_t number;
	uint8_t result, n;

	while (wire_more(w)) {
		t = turn_by_handle(r, wire_u32(w));
		result = wire_u8(w);
		number = wire_u64(w);
		tokens = wire_u32(w);
		(void)wire_u32(w); /* findings */
		n = wire_u8(w);
		if (w->bad || n > w->n)
			return SP_E_PROTO;
		reason = view_of(w->p, n);
		w->p += n;
		w->n -= n;
		if (t != NULL && turn_is_open(t) && !t->refused &&
		    result == MESSAGE_RESULT_REFUSED) {
			turn_refused(t);
			continue;
		}
		if (t == NULL || t->state != TURN_ENDED ||
		    result < MESSAGE_RESULT_OK ||
		    result > MESSAGE_RESULT_FAILED)
			return SP_E_PROTO;
		turn_tell_observer(t, result == MESSAGE_RESULT_OK, number,
		    tokens, reason);
		turn_filed(t, result, number);
	}
	return wire_done(w);
}

static int
turn_on_message(struct recorder *r, struct channel_msg *m)
{
	struct wire w;

	wire_init(&w, m->body);
	switch (m->type) {
	case MESSAGE_REC_STATE:
		return turn_on_state(r, &w);
	case MESSAGE_TURN_CREDIT:
		return turn_on_credit(r, &w);
	case MESSAGE_TURN_DONE:
		return turn_on_done(r, &w);
	default:
		return r->other.message != NULL
		    ? r->other.message(r->other.arg, m)
		    : SP_OK;
	}
}

/* Some messages: true when there may be more. */
static bool
turn_receive(struct recorder *r)
{
	struct channel_msg m;
	unsigned i;
	int rc = r->compromised ? SP_E_PROTO : SP_OK;

	for (i = 0; i < TURN_RECV_MAX && rc == SP_OK; i++) {
		rc = channel_recv(r->channel, &m);
		if (rc == SP_OK) {
			turn_heard(r);
			rc = turn_on_message(r, &m);
			fd_close(&m.fd);
		}
	}
	if (rc == SP_OK || rc == SP_E_AGAIN)
		return rc == SP_OK;
	if (rc == SP_E_PROTO && !r->compromised) {
		log_error("recorder: broke the protocol; its channel is "
			  "closed");
		r->compromised = true;
	}
	turn_break(r);
	return false;
}

/* ---- the loop ------------------------------------------------------------- */

/* Everyone hears that there is room again, once half of it is free. */
static void
turn_relieve(struct recorder *r)
{
	struct turn *t;

	if (!r->pressed || turn_unsent(r) > r->unsent_max / 4)
		return;
	r->pressed = false;
	TAILQ_FOREACH (t, &r->turns, link)
		if (t->state == TURN_FED && !t->dry && t->owner.room != NULL) {
			t->say_room = true;
			turn_notice(t);
		}
}

static void
turn_settle_debts(struct recorder *r)
{
	struct turn *t;
	int rc = SP_OK;

	while (rc == SP_OK && (t = TAILQ_FIRST(&r->debts)) != NULL)
		rc = turn_settle(t);
}

static void
turn_give_notice(struct turn *t)
{
	struct turn_owner o = t->owner;

	if (t->say_done) {
		t->say_done = t->say_room = false;
		o.done(o.arg, t->ok, t->number, t->text);
	} else if (t->say_room) {
		t->say_room = false;
		if (o.room != NULL)
			o.room(o.arg);
	} else if (t->owner.done == NULL && t->owe_delivered)
		(void)turn_settle(t);
}

static void
turn_want(struct recorder *r)
{
	unsigned want = LOOP_READ;

	if (!turn_link_up(r))
		return;
	if (channel_queued(r->channel) > 0)
		want |= LOOP_WRITE;
	if (loop_fd_want(r->fd, want) != SP_OK)
		loop_timer_set(r->retry, TURN_RETRY_MS);
	if (turn_unsent(r) >= r->unsent_max / 2)
		r->pressed = true;
}

/*
 * Some events of slow streams, and nothing that anyone waits for: more of them
 * may come, and go with them.  Each message wakes the recorder.
 */
static bool
turn_may_wait(struct recorder *r)
{
	size_t n = buf_len(&r->batch);

	if (n == 0 || n >= TURN_LATE_BYTES || r->due || !turn_link_up(r) ||
	    channel_queued(r->channel) > 0)
		return false;
	if (!r->waiting)
		loop_timer_set(r->late, TURN_LATE_MS);
	r->waiting = true;
	return true;
}

static void
turn_late(void *arg)
{
	struct recorder *r = arg;

	r->waiting = false;
	r->due = true;
	loop_task_post(r->task);
}

static void
turn_task(void *arg)
{
	struct recorder *r = arg;
	struct turn *t;
	unsigned i;

	/* what it filed before it died is on file */
	for (i = 0; r->broken && i < TURN_LAST_ROUNDS && turn_receive(r); i++)
		;
	if (r->broken)
		turn_tear_down(r);
	turn_relieve(r);
	/* an owner may open, end and drop turns; what it adds comes last */
	while ((t = TAILQ_FIRST(&r->notices)) != NULL) {
		TAILQ_REMOVE(&r->notices, t, notice_link);
		t->in_notice = false;
		turn_give_notice(t);
	}
	turn_tell_all_lost(r);
	turn_settle_debts(r);
	if (!turn_may_wait(r)) {
		r->due = false;
		if (turn_flush_batch(r) == SP_E_NOMEM)
			loop_timer_set(r->retry, TURN_RETRY_MS);
		turn_flush_channel(r);
	}
	turn_want(r);
}

static void
turn_retry(void *arg)
{
	struct recorder *r = arg;

	loop_task_post(r->task);
}

static void
turn_ready(void *arg, unsigned ready)
{
	struct recorder *r = arg;
	int rc;

	if (ready & LOOP_WRITE) {
		rc = channel_flush(r->channel);
		if (rc != SP_OK && rc != SP_E_AGAIN) {
			turn_break(r);
			return;
		}
	}
	(void)turn_receive(r);
	loop_task_post(r->task);
}

struct recorder *
turn_recorder_new(struct loop *l, size_t unsent_max)
{
	struct recorder *r = mem_calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->loop = l;
	r->unsent_max = unsent_max;
	TAILQ_INIT(&r->turns);
	TAILQ_INIT(&r->notices);
	TAILQ_INIT(&r->debts);
	TAILQ_INIT(&r->lost);
	buf_init(&r->batch, MESSAGE_BULK_MAX);
	(void)snprintf(r->why, sizeof(r->why), "the recorder is not there");
	r->handles = hmap_new(TURN_OPEN_MAX);
	r->task = loop_task_new(l, turn_task, r);
	r->retry = loop_timer_new(l, turn_retry, r);
	r->late = loop_timer_new(l, turn_late, r);
	r->watch = loop_timer_new(l, turn_watch, r);
	r->silent_ms = TURN_SILENT_MS;
	if (r->handles == NULL || r->task == NULL || r->retry == NULL ||
	    r->late == NULL || r->watch == NULL ||
	    buf_reserve(&r->batch, MESSAGE_BULK_MAX) != SP_OK) {
		turn_recorder_free(r);
		return NULL;
	}
	return r;
}

void
turn_recorder_free(struct recorder *r)
{
	struct turn_opening *o;
	struct turn *t;

	if (r == NULL)
		return;
	/* ends that are still here, as far as the socket takes them */
	if (turn_link_up(r))
		turn_settle_debts(r);
	if (turn_link_up(r) && turn_flush_batch(r) == SP_OK &&
	    channel_flush(r->channel) != SP_OK)
		log_warn("recorder: %zu bytes stay unsent", turn_unsent(r));
	while ((t = TAILQ_FIRST(&r->turns)) != NULL)
		turn_free(t);
	while ((o = TAILQ_FIRST(&r->lost)) != NULL) {
		TAILQ_REMOVE(&r->lost, o, link);
		mem_free(o);
	}
	loop_fd_free(r->fd);
	channel_free(r->channel);
	loop_timer_free(r->retry);
	loop_timer_free(r->late);
	loop_timer_free(r->watch);
	loop_task_free(r->task);
	hmap_free(r->handles);
	buf_clear(&r->batch);
	mem_free(r);
}

int
turn_recorder_set(struct recorder *r, int fd)
{
	struct channel *c;

	if (r->channel != NULL)
		turn_tear_down(r);
	loop_task_post(r->task);
	if (fd < 0)
		return SP_OK;
	c = channel_new(fd, MESSAGE_REACTOR, MESSAGE_RECORDER,
	    r->unsent_max + TURN_CONTROL_SLACK);
	if (c == NULL)
		return SP_E_NOMEM;
	channel_set_state(c, MESSAGE_RUN);
	channel_pack(c);
	r->fd = loop_fd_new(r->loop, channel_fd(c), turn_ready, r);
	if (r->fd == NULL || loop_fd_want(r->fd, LOOP_READ) != SP_OK) {
		loop_fd_free(r->fd);
		r->fd = NULL;
		channel_free(c);
		return SP_E_NOMEM;
	}
	r->channel = c;
	(void)snprintf(r->why, sizeof(r->why), "the recorder is starting");
	return SP_OK;
}

bool
turn_recorder_ok(const struct recorder *r, const char **why)
{
	bool ok = turn_link_up(r) && r->accepting && !r->silent;

	if (why != NULL)
		*why = ok       ? ""
		    : r->broken ? turn_gone_text
		    : r->silent ? turn_silent_text
				: r->why;
	return ok;
}

void
turn_recorder_patience(struct recorder *r, uint64_t ms)
{
	r->silent_ms = ms;
}

size_t
turn_recorder_backlog(const struct recorder *r)
{
	return turn_unsent(r);
}

size_t
turn_recorder_open(const struct recorder *r)
{
	return r->turns_n;
}

void
turn_generation_end(struct recorder *r, uint32_t generation)
{
	struct buf body = BUF_INIT(8);
	int rc = wire_put_u32(&body, generation);

	/* a recorder that was started later never had it */
	if (rc == SP_OK && turn_link_up(r))
		rc = channel_send(r->channel, MESSAGE_GENERATION_END,
		    buf_view(&body), -1);
	if (rc != SP_OK)
		log_info("recorder: not told of the end of generation %u: %s",
		    generation, err_str(rc));
	buf_clear(&body);
	loop_task_post(r->task);
}

void
turn_recorder_observe(struct recorder *r,
    void (*cb)(void *arg, const struct turn_facts *facts), void *arg)
{
	r->observe = cb;
	r->observe_arg = arg;
}

void
turn_recorder_other(struct recorder *r, const struct turn_other *other)
{
	r->other =
	    other != NULL ? *other : (struct turn_other){ .message = NULL };
}

int
turn_recorder_send(struct recorder *r, enum message_type type, struct view body)
{
	int rc = turn_send(r, type, body);

	loop_task_post(r->task);
	return rc;
}
