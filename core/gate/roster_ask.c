#include "config.h"

#include "base/mem.h"
#include "gate/roster_priv.h"
#include "os/fd.h"

struct roster_ask {
	TAILQ_ENTRY(roster_ask) link;
	struct roster *roster;
	struct roster_ask_owner owner;
	uint32_t seq;
	uint64_t until_ms;
};

static struct view
roster_ask_key(const uint32_t *seq)
{
	return view_of(seq, sizeof(*seq));
}

static void
roster_ask_free(struct roster_ask *a)
{
	struct roster *o = a->roster;

	TAILQ_REMOVE(&o->asks, a, link);
	(void)hmap_del(o->by_seq, roster_ask_key(&a->seq));
	mem_free(a);
}

/* Its answer; the ask is gone before its owner is called. */
static void
roster_ask_tell(struct roster_ask *a, struct roster_answer *answer)
{
	struct roster_ask_owner owner = a->owner;

	roster_ask_free(a);
	owner.answer(owner.arg, answer);
	fd_close(&answer->fd);
}

static void
roster_ask_fail(struct roster_ask *a, int rc)
{
	struct roster_answer answer = { .rc = rc, .fd = -1 };

	roster_ask_tell(a, &answer);
}

static void
roster_ask_arm(struct roster *o)
{
	const struct roster_ask *a = TAILQ_FIRST(&o->asks);
	uint64_t now = loop_now_ms(o->loop);

	if (a == NULL)
		loop_timer_stop(o->timer);
	else
		loop_timer_set(o->timer,
		    a->until_ms > now ? a->until_ms - now : 1);
}

static void
roster_ask_late(void *arg)
{
	struct roster *o = arg;
	struct roster_ask *a;

	while ((a = TAILQ_FIRST(&o->asks)) != NULL &&
	    a->until_ms <= loop_now_ms(o->loop))
		roster_ask_fail(a, SP_E_TIMEOUT);
	roster_ask_arm(o);
}

static void
roster_ask_task(void *arg)
{
	struct roster *o = arg;
	struct roster_asks lost;
	struct roster_ask *a;

	if (!o->down)
		return;
	o->down = false;
	/* those that come now may be for the next recorder */
	TAILQ_INIT(&lost);
	TAILQ_CONCAT(&lost, &o->asks, link);
	while ((a = TAILQ_FIRST(&lost)) != NULL) {
		TAILQ_REMOVE(&lost, a, link);
		TAILQ_INSERT_HEAD(&o->asks, a, link);
		roster_ask_fail(a, SP_E_STATE);
	}
	roster_ask_arm(o);
}

void
roster_ask_down(struct roster *o)
{
	o->down = true;
	loop_task_post(o->task);
}

int
roster_ask_init(struct roster *o)
{
	TAILQ_INIT(&o->asks);
	o->by_seq = hmap_new(ROSTER_ASKS_MAX);
	o->timer = loop_timer_new(o->loop, roster_ask_late, o);
	o->task = loop_task_new(o->loop, roster_ask_task, o);
	return o->by_seq != NULL && o->timer != NULL && o->task != NULL
	    ? SP_OK
	    : SP_E_NOMEM;
}

void
roster_ask_clear(struct roster *o)
{
	struct roster_ask *a;

	while ((a = TAILQ_FIRST(&o->asks)) != NULL)
		roster_ask_free(a);
	hmap_free(o->by_seq);
	loop_timer_free(o->timer);
	loop_task_free(o->task);
}

int
roster_ask(struct roster *o, enum message_type type, struct view rest,
    const struct roster_ask_owner *owner, struct roster_ask **out)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct roster_ask *a = mem_calloc(1, sizeof(*a));
	int rc;

	if (a == NULL)
		return SP_E_NOMEM;
	a->roster = o;
	a->owner = *owner;
	a->seq = o->next_seq++;
	a->until_ms = loop_now_ms(o->loop) + ROSTER_ASK_MS;
	rc = o->down ? SP_E_STATE
		     : hmap_add(o->by_seq, roster_ask_key(&a->seq), a);
	if (rc != SP_OK) {
		mem_free(a);
		return rc;
	}
	TAILQ_INSERT_TAIL(&o->asks, a, link);
	rc = wire_put_u32(&body, a->seq);
	if (rc == SP_OK)
		rc = buf_add_view(&body, rest);
	if (rc == SP_OK)
		rc = turn_recorder_send(o->recorder, type, buf_view(&body));
	buf_clear(&body);
	if (rc != SP_OK) {
		roster_ask_free(a);
		return rc;
	}
	roster_ask_arm(o);
	*out = a;
	return SP_OK;
}

void
roster_ask_cancel(struct roster_ask *a)
{
	struct roster *o;

	if (a == NULL)
		return;
	o = a->roster;
	roster_ask_free(a);
	roster_ask_arm(o);
}

int
roster_ask_message(struct roster *o, struct channel_msg *m)
{
	struct roster_answer answer = { .fd = -1 };
	struct roster_ask *a;
	uint32_t seq;
	struct wire w;

	wire_init(&w, m->body);
	seq = wire_u32(&w);
	if (m->type == MESSAGE_TRACE_FILE) {
		answer.result = MESSAGE_SESSION_OK;
		answer.size = wire_u64(&w);
	} else {
		answer.result = wire_u8(&w);
		answer.text = wire_bytes(&w);
	}
	if (wire_done(&w) != SP_OK || seq >= o->next_seq ||
	    answer.result < MESSAGE_SESSION_OK ||
	    answer.result > MESSAGE_SESSION_FAILED)
		return SP_E_PROTO;
	a = hmap_get(o->by_seq, roster_ask_key(&seq));
	if (a == NULL) /* it came too late */
		return SP_OK;
	answer.fd = m->fd;
	m->fd = -1;
	roster_ask_tell(a, &answer);
	roster_ask_arm(o);
	return SP_OK;
}
