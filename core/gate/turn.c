#include "config.h"

#include "base/mem.h"
#include "gate/turn_priv.h"
#include "ipc/wire.h"

/* ---- lists ---------------------------------------------------------------- */

void
turn_notice(struct turn *t)
{
	if (!t->in_notice) {
		TAILQ_INSERT_TAIL(&t->recorder->notices, t, notice_link);
		t->in_notice = true;
	}
	loop_task_post(t->recorder->task);
}

static void
turn_debt(struct turn *t)
{
	if (!t->in_debt) {
		TAILQ_INSERT_TAIL(&t->recorder->debts, t, debt_link);
		t->in_debt = true;
	}
}

void
turn_unlist(struct turn *t)
{
	struct recorder *r = t->recorder;

	if (t->in_notice)
		TAILQ_REMOVE(&r->notices, t, notice_link);
	if (t->in_debt)
		TAILQ_REMOVE(&r->debts, t, debt_link);
	t->in_notice = t->in_debt = false;
}

void
turn_set_state(struct turn *t, enum turn_state s)
{
	bool was = turn_is_open(t);

	t->state = s;
	if (was && !turn_is_open(t))
		t->recorder->turns_n--;
}

void
turn_free(struct turn *t)
{
	struct recorder *r = t->recorder;

	turn_unlist(t);
	if (turn_is_open(t))
		r->turns_n--;
	TAILQ_REMOVE(&r->turns, t, link);
	if (hmap_get(r->handles, turn_key(&t->handle)) == t)
		(void)hmap_del(r->handles, turn_key(&t->handle));
	mem_free(t->opening);
	mem_free(t);
}

/* ---- sending -------------------------------------------------------------- */

size_t
turn_unsent(const struct recorder *r)
{
	return r->channel == NULL
	    ? 0
	    : channel_queued(r->channel) + buf_len(&r->batch);
}

/* The channel is of no use any more; owners hear of it from the task. */
void
turn_break(struct recorder *r)
{
	r->broken = true;
	r->accepting = false;
	loop_task_post(r->task);
}

int
turn_send(struct recorder *r, enum message_type type, struct view body)
{
	int rc;

	if (!turn_link_up(r))
		return SP_E_STATE;
	rc = channel_send(r->channel, type, body, -1);
	loop_task_post(r->task); /* it flushes */
	if (rc == SP_OK || rc == SP_E_NOMEM || rc == SP_E_LIMIT)
		return rc;
	turn_break(r);
	return SP_E_STATE;
}

int
turn_flush_batch(struct recorder *r)
{
	int rc;

	if (buf_len(&r->batch) == 0)
		return SP_OK;
	rc = turn_send(r, MESSAGE_TURN_DATA, buf_view(&r->batch));
	if (rc == SP_OK) {
		buf_reset(&r->batch, SIZE_MAX);
		r->batch_n++;
	}
	return rc;
}

void
turn_flush_channel(struct recorder *r)
{
	int rc;

	r->ends_n = 0;
	if (!turn_link_up(r) || channel_queued(r->channel) == 0)
		return;
	rc = channel_flush(r->channel);
	if (rc != SP_OK && rc != SP_E_AGAIN)
		turn_break(r);
}

/* One entry; there is room for it. */
static void
turn_put_entry(struct turn *t, uint8_t kind, bool more, struct view v)
{
	struct buf *b = &t->recorder->batch;
	const size_t n = v.n;
	/* as wire_put_*() would, for each event */
	const uint8_t head[TURN_ENTRY_BYTES] = { (uint8_t)t->handle,
		(uint8_t)(t->handle >> 8), (uint8_t)(t->handle >> 16),
		(uint8_t)(t->handle >> 24), kind, more, (uint8_t)n,
		(uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24) };
	int rc = buf_add(b, head, sizeof(head));

	if (rc == SP_OK)
		rc = buf_add_view(b, v);
	/* the batch's memory was reserved when the channel was made */
	err_assert(rc == SP_OK);
	t->batch = t->recorder->batch_n;
	t->piece_open = more;
	t->sent += v.n;
}

static int
turn_entry_room(struct recorder *r, size_t n, size_t *room)
{
	size_t left = MESSAGE_BULK_MAX - buf_len(&r->batch);
	int rc;

	if (n > TURN_PIECE_MIN)
		n = TURN_PIECE_MIN;
	if (left < TURN_ENTRY_BYTES + n) {
		rc = turn_flush_batch(r);
		if (rc != SP_OK)
			return rc;
		left = MESSAGE_BULK_MAX;
	}
	*room = left - TURN_ENTRY_BYTES;
	return SP_OK;
}

/*
 * A piece that the recorder will never see: the record says so.  After a part
 * of the answer nothing more of it may follow, or text would be joined that
 * does not belong together; a request can be missed alone.
 */
static void
turn_lose(struct turn *t, enum message_data kind)
{
	t->lost = true;
	if (kind != MESSAGE_DATA_REQUEST)
		t->cut = true;
}

int
turn_data(struct turn *t, enum message_data kind, struct view v)
{
	struct recorder *r = t->recorder;
	struct view piece;
	size_t room, unsent = turn_unsent(r);
	int rc;

	if (t->state != TURN_FED || !turn_link_up(r))
		return SP_E_STATE;
	if (t->cut)
		return SP_E_NOMEM;
	if (unsent > r->unsent_max || v.n > r->unsent_max - unsent) {
		turn_lose(t, kind);
		return SP_E_LIMIT;
	}
	do {
		rc = turn_entry_room(r, v.n, &room);
		if (rc != SP_OK)
			break;
		piece = view_sub(v, 0, room);
		v = view_from(v, piece.n);
		turn_put_entry(t, (uint8_t)kind, v.n > 0, piece);
	} while (v.n > 0);
	if (rc != SP_OK)
		turn_lose(t, t->piece_open ? MESSAGE_DATA_EVENT : kind);
	if (t->sent >= TURN_WINDOW_BYTES)
		t->dry = true;
	loop_task_post(r->task);
	return rc;
}

size_t
turn_room(const struct turn *t)
{
	const struct recorder *r = t->recorder;

	if (t->sent >= TURN_WINDOW_BYTES || r->pressed || t->state != TURN_FED)
		return 0;
	return TURN_WINDOW_BYTES - t->sent;
}

/* In order within a turn: its data before its end. */
static int
turn_flush_data(struct turn *t)
{
	if (t->batch == t->recorder->batch_n)
		return turn_flush_batch(t->recorder);
	return SP_OK;
}

static int
turn_encode_end(const struct turn *t, const struct turn_end *e, struct buf *out)
{
	uint32_t flags = e->flags | (t->lost ? MESSAGE_TURN_TRUNCATED : 0);
	int rc;

	rc = wire_put_u32(out, t->handle);
	if (rc == SP_OK)
		rc = wire_put_u8(out, (uint8_t)e->outcome);
	if (rc == SP_OK)
		rc = wire_put_u16(out, (uint16_t)e->upstream_status);
	if (rc == SP_OK)
		rc = wire_put_u32(out, flags);
	if (rc == SP_OK)
		rc = wire_put_u64(out, e->latency_us);
	if (rc == SP_OK)
		rc = wire_put_u64(out, e->ttft_us);
	if (rc == SP_OK)
		rc = wire_put_bytes(out, e->error);
	if (rc == SP_OK)
		rc = wire_put_bytes(out, e->meta);
	return rc;
}

int
turn_end(struct turn *t, const struct turn_end *e)
{
	struct recorder *r = t->recorder;
	struct buf body = BUF_INIT(MESSAGE_BULK_MAX);
	int rc;

	if (t->state != TURN_FED || !turn_link_up(r))
		return SP_E_STATE;
	rc = turn_flush_data(t);
	if (rc == SP_OK)
		rc = turn_encode_end(t, e, &body);
	if (rc == SP_OK)
		rc = turn_send(r, MESSAGE_TURN_END, buf_view(&body));
	buf_clear(&body);
	if (rc == SP_OK) {
		turn_set_state(t, TURN_ENDED);
		t->ended_us = loop_now_us(r->loop);
		turn_await(t);
		/* the recorder writes these while others are looked at */
		if (++r->ends_n >= TURN_ENDS_MIN &&
		    r->ends_n >= r->turns_n / 4 && r->turns_n <= TURN_FEW)
			turn_flush_channel(r);
	}
	loop_task_post(r->task);
	return rc;
}

static int
turn_send_delivered(struct turn *t)
{
	struct buf body = BUF_INIT(8);
	int rc;

	rc = wire_put_u32(&body, t->handle);
	if (rc == SP_OK)
		rc = wire_put_u8(&body, t->delivered);
	if (rc == SP_OK)
		rc = turn_send(t->recorder, MESSAGE_TURN_DELIVERED,
		    buf_view(&body));
	buf_clear(&body);
	return rc;
}

/* Tries to send what a turn without an owner owes; it may be freed. */
int
turn_settle(struct turn *t)
{
	struct turn_end e = { .outcome = t->owed_outcome };
	int rc = SP_OK;

	if (t->owe_end) {
		rc = turn_end(t, &e);
		if (rc == SP_OK)
			t->owe_end = false;
	} else if (t->owe_delivered) {
		rc = turn_send_delivered(t);
		/* without a recorder nobody wants to know */
		if (rc == SP_OK || rc == SP_E_STATE) {
			turn_free(t);
			return SP_OK;
		}
	}
	if (rc == SP_OK && t->in_debt) {
		TAILQ_REMOVE(&t->recorder->debts, t, debt_link);
		t->in_debt = false;
	}
	if (rc == SP_E_NOMEM || rc == SP_E_LIMIT) {
		turn_debt(t);
		loop_timer_set(t->recorder->retry, TURN_RETRY_MS);
	}
	return rc;
}

/* ---- opening -------------------------------------------------------------- */

struct turn *
turn_new(struct recorder *r)
{
	struct turn *t;

	if (hmap_count(r->handles) >= TURN_OPEN_MAX)
		return NULL;
	t = mem_calloc(1, sizeof(*t));
	if (t == NULL)
		return NULL;
	t->recorder = r;
	t->level = -1;
	t->batch = UINT64_MAX;
	/* the number of open ones is far below that of handles */
	do
		t->handle = r->next_handle++;
	while (hmap_get(r->handles, turn_key(&t->handle)) != NULL);
	if (hmap_add(r->handles, turn_key(&t->handle), t) != SP_OK) {
		mem_free(t);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&r->turns, t, link);
	r->turns_n++;
	return t;
}

static int
turn_encode_open(const struct turn_params *p, struct turn_opening **out)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct turn_opening *o;
	struct view v;
	int rc;

	rc = wire_put_u32(&b, 0);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, p->generation);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, p->capture->name);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, p->session);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, p->wall_us);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, p->flags);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, p->meta);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, p->episode);
	v = buf_view(&b);
	o = rc == SP_OK ? mem_alloc(sizeof(*o) + v.n) : NULL;
	if (o != NULL && v.p != NULL) {
		o->n = v.n;
		memcpy(o->body, v.p, v.n);
		*out = o;
	} else if (rc == SP_OK)
		rc = SP_E_NOMEM;
	buf_clear(&b);
	return rc;
}

int
turn_send_open(struct turn *t)
{
	struct turn_opening *o = t->opening;

	o->body[0] = (uint8_t)t->handle;
	o->body[1] = (uint8_t)(t->handle >> 8);
	o->body[2] = (uint8_t)(t->handle >> 16);
	o->body[3] = (uint8_t)(t->handle >> 24);
	return turn_send(t->recorder, MESSAGE_TURN_OPEN,
	    view_of(o->body, o->n));
}

int
turn_open(struct recorder *r, const struct turn_params *p,
    const struct turn_owner *owner, struct turn **out)
{
	struct turn_opening *o = NULL;
	struct turn *t;
	int rc;

	*out = NULL;
	if (!turn_recorder_ok(r, NULL))
		return SP_E_STATE;
	if (turn_unsent(r) > r->unsent_max)
		return SP_E_LIMIT;
	rc = turn_encode_open(p, &o);
	if (rc != SP_OK)
		return rc;
	t = turn_new(r);
	if (t == NULL) {
		mem_free(o);
		return SP_E_NOMEM;
	}
	t->opening = o;
	t->level = (int)p->capture->level;
	t->owner = *owner;
	rc = turn_send_open(t);
	if (rc != SP_OK) {
		turn_free(t);
		return rc;
	}
	loop_task_post(r->task);
	*out = t;
	return SP_OK;
}

/* ---- the owner is done with it -------------------------------------------- */

static void
turn_forget_owner(struct turn *t)
{
	memset(&t->owner, 0, sizeof(t->owner));
	t->say_room = t->say_done = false;
}

void
turn_delivered(struct turn *t, bool delivered)
{
	if (t == NULL)
		return;
	turn_forget_owner(t);
	t->delivered = delivered;
	if (t->state == TURN_LOST) {
		turn_free(t);
		return;
	}
	/* before done(): a bug of the caller's that must not end in a lie */
	if (t->state != TURN_FILED) {
		turn_drop(t);
		return;
	}
	t->owe_delivered = true;
	(void)turn_settle(t);
}

void
turn_drop(struct turn *t)
{
	if (t == NULL)
		return;
	turn_forget_owner(t);
	switch (t->state) {
	case TURN_LOST:
		turn_free(t);
		return;
	case TURN_FED:
		t->owe_end = true;
		t->owed_outcome = MESSAGE_OUTCOME_CLIENT_GONE;
		break;
	case TURN_FILED:
		t->owe_delivered = true;
		break;
	case TURN_ENDED:
		return; /* TURN_DONE will come */
	}
	(void)turn_settle(t);
}
