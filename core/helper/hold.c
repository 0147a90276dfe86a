#include "config.h"

#include <errno.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/mem.h"
#include "helper/episodes_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum {
	HOLD_MS = 20 * 1000, /* until every keeper must have answered */
	HOLD_DEFERRED_MAX = 64, /* messages that wait */
	HOLD_SHARING = 2, /* keepers that work in the workspace */
};

enum hold_state { HOLD_THAWED, HOLD_FREEZING, HOLD_FROZEN, HOLD_THAWING };

/* A freeze or a thaw that the reactor waits for. */
struct hold_request {
	TAILQ_ENTRY(hold_request) link;
	uint32_t request;
	bool on;
};

struct hold_message {
	TAILQ_ENTRY(hold_message) link;
	uint16_t type;
	uint32_t seq;
	struct buf body;
	int fd;
	int (*again)(struct episodes *e, struct channel_msg *m);
};

TAILQ_HEAD(hold_messages, hold_message);

struct hold {
	struct ep *ep;
	struct poller_timer *late;
	enum hold_state state;
	bool asked; /* by the reactor */
	bool failed; /* a keeper's answer, of those that come */
	bool never; /* and that it has no means */
	unsigned holders; /* of our own */
	unsigned open; /* answers to come */
	TAILQ_HEAD(, hold_wait) waits;
	TAILQ_HEAD(, hold_request) requests;
	struct hold_messages messages;
	unsigned messages_n;
};

static void hold_advance(struct hold *h);

static void
hold_on_late(void *arg)
{
	const struct hold *h = arg;

	slot_fail(h->ep->slot, "its keeper does not freeze or thaw it");
}

struct hold *
hold_new(struct poller *p, struct ep *ep)
{
	struct hold *h = mem_calloc(1, sizeof(*h));

	if (h == NULL)
		return NULL;
	h->ep = ep;
	TAILQ_INIT(&h->waits);
	TAILQ_INIT(&h->requests);
	TAILQ_INIT(&h->messages);
	h->late = poller_timer_new(p, hold_on_late, h);
	if (h->late == NULL) {
		mem_free(h);
		return NULL;
	}
	return h;
}

void
hold_free(struct hold *h)
{
	if (h == NULL)
		return;
	hold_drop(h);
	poller_timer_free(h->late);
	mem_free(h);
}

/* ---- what waits ------------------------------------------------------------- */

static void
message_free(struct hold_message *w)
{
	fd_close(&w->fd);
	buf_clear(&w->body);
	mem_free(w);
}

static void
message_remove(struct hold *h, struct hold_message *w)
{
	TAILQ_REMOVE(&h->messages, w, link);
	h->messages_n--;
}

/* In their order; what they are given to says itself what is wrong. */
static void
hold_flush(struct hold *h)
{
	struct hold_messages all = TAILQ_HEAD_INITIALIZER(all);
	struct hold_message *w;
	struct channel_msg m;

	if (h->ep->slot->state != SLOT_READY)
		return; /* hold_drop() follows */
	if (!h->asked &&
	    (h->holders > 0 ||
		(h->state != HOLD_THAWED && h->state != HOLD_THAWING)))
		return;
	TAILQ_CONCAT(&all, &h->messages, link);
	h->messages_n = 0;
	while ((w = TAILQ_FIRST(&all)) != NULL) {
		TAILQ_REMOVE(&all, w, link);
		m = (struct channel_msg){ .type = w->type,
			.seq = w->seq,
			.body = buf_view(&w->body),
			.fd = w->fd };
		if (w->again(h->ep->e, &m) != SP_OK)
			log_warn("a message that waited for a frozen episode "
				 "made no sense");
		w->fd = m.fd;
		message_free(w);
	}
}

bool
hold_defer(struct hold *h, struct channel_msg *m,
    int (*again)(struct episodes *e, struct channel_msg *m))
{
	struct hold_message *w;

	if (h->asked || h->messages_n == HOLD_DEFERRED_MAX ||
	    (h->holders == 0 &&
		(h->state == HOLD_THAWED || h->state == HOLD_THAWING)))
		return false;
	w = mem_calloc(1, sizeof(*w));
	if (w == NULL)
		return false;
	buf_init(&w->body, MESSAGE_CONTROL_MAX);
	if (buf_add_view(&w->body, m->body) != SP_OK) {
		mem_free(w);
		return false;
	}
	w->type = m->type;
	w->seq = m->seq;
	w->fd = m->fd;
	w->again = again;
	m->fd = -1;
	TAILQ_INSERT_TAIL(&h->messages, w, link);
	h->messages_n++;
	return true;
}

bool
hold_forget_run(struct hold *h, uint32_t handle)
{
	struct hold_message *m;
	struct wire w;

	TAILQ_FOREACH (m, &h->messages, link) {
		if (m->type != MESSAGE_PROCESS_RUN)
			continue;
		wire_init(&w, buf_view(&m->body));
		(void)wire_u32(&w);
		(void)wire_u32(&w);
		(void)wire_u8(&w);
		if (wire_u32(&w) != handle || wire_done(&w) != SP_OK)
			continue;
		message_remove(h, m);
		message_free(m);
		return true;
	}
	return false;
}

/* Of the reactor, those that wanted that. */
static void
hold_answer(struct hold *h, bool on, enum sandbox_frozen how)
{
	struct hold_request *r, *next;

	for (r = TAILQ_FIRST(&h->requests); r != NULL; r = next) {
		next = TAILQ_NEXT(r, link);
		if (r->on != on)
			continue;
		TAILQ_REMOVE(&h->requests, r, link);
		episodes_tell_frozen(h->ep, r->request, how);
		mem_free(r);
	}
}

static void
hold_tell(struct hold *h, bool frozen)
{
	struct hold_wait *w;

	/* done() may release others, and itself */
	while ((w = TAILQ_FIRST(&h->waits)) != NULL) {
		TAILQ_REMOVE(&h->waits, w, link);
		w->waiting = false;
		w->holding = frozen;
		if (!frozen)
			h->holders--;
		w->done(w->arg, frozen);
	}
}

/* ---- freezing and thawing --------------------------------------------------- */

/* All have answered. */
static void
hold_complete(struct hold *h)
{
	bool failed = h->failed;

	poller_timer_stop(h->late);
	failpoint_reach(
	    h->state == HOLD_FREEZING ? "hold.frozen" : "hold.thawed");
	if (h->state == HOLD_FREEZING) {
		/* also when it failed: whoever is frozen is thawed next */
		h->state = HOLD_FROZEN;
		if (failed)
			h->asked = false;
		hold_answer(h, true,
		    !failed        ? SANDBOX_FROZEN
			: h->never ? SANDBOX_FROZEN_NEVER
				   : SANDBOX_FROZEN_FAILED);
		hold_tell(h, !failed);
	} else {
		h->state = HOLD_THAWED;
		if (failed) {
			slot_fail(h->ep->slot, "it cannot be thawed");
			return;
		}
		hold_answer(h, false, SANDBOX_THAWED);
	}
	hold_flush(h);
	hold_advance(h);
}

static void
hold_on_frozen(void *arg, const struct channel_msg *m, struct view rest, int fd)
{
	struct hold *h = arg;
	struct wire w;
	uint32_t en;

	fd_close(&fd);
	wire_init(&w, rest);
	(void)wire_u8(&w);
	en = wire_u32(&w);
	h->never = h->never || en == EOPNOTSUPP;
	/* what never freezes need not be thawed */
	if (en == EOPNOTSUPP && h->state == HOLD_THAWING)
		en = 0;
	if (en != 0 || wire_done(&w) != SP_OK ||
	    m->type != MESSAGE_KEEPER_FROZEN)
		h->failed = true;
	if (--h->open == 0)
		hold_complete(h);
}

static void
hold_turn(struct hold *h, bool on)
{
	struct slot *s = h->ep->slot;
	uint8_t word = on;
	size_t i;
	int rc;

	h->state = on ? HOLD_FREEZING : HOLD_THAWING;
	h->failed = h->never = false;
	h->open = 1;
	poller_timer_set(h->late, HOLD_MS);
	for (i = 0; i < HOLD_SHARING; i++) {
		if (s->keepers[i].side == 0)
			continue;
		rc = slot_ask_own(s, s->keepers[i].side, MESSAGE_KEEPER_FREEZE,
		    view_of(&word, 1), hold_on_frozen, h);
		if (rc == SP_OK)
			h->open++;
		else
			h->failed = true;
	}
	hold_flush(h);
	if (--h->open == 0)
		hold_complete(h);
}

static void
hold_advance(struct hold *h)
{
	bool want = h->asked || h->holders > 0;

	if (h->ep->slot->state != SLOT_READY)
		return;
	if (want && h->state == HOLD_THAWED)
		hold_turn(h, true);
	else if (!want && h->state == HOLD_FROZEN)
		hold_turn(h, false);
}

/* ---- who wants it ----------------------------------------------------------- */

/* Plain processes, which share nothing that could be frozen. */
static bool
hold_is_local(const struct hold *h)
{
	const struct conf_environment *env = h->ep->slot->env;

	return env != NULL && env->enforcement == CONF_ENV_ENFORCE_LOCAL;
}

int
hold_take(struct hold *h, struct hold_wait *w)
{
	w->waiting = w->holding = false;
	if (h->ep->slot->state != SLOT_READY)
		return SP_E_STATE;
	if (hold_is_local(h)) {
		w->done(w->arg, true);
		return SP_OK;
	}
	h->holders++;
	if (h->state == HOLD_FROZEN) {
		w->holding = true;
		w->done(w->arg, true);
		return SP_OK;
	}
	w->waiting = true;
	TAILQ_INSERT_TAIL(&h->waits, w, link);
	hold_advance(h);
	return SP_OK;
}

void
hold_release(struct hold *h, struct hold_wait *w)
{
	if (w->waiting)
		TAILQ_REMOVE(&h->waits, w, link);
	else if (!w->holding)
		return;
	w->waiting = w->holding = false;
	h->holders--;
	hold_advance(h);
	hold_flush(h);
}

bool
hold_never(const struct hold *h)
{
	return h->never;
}

void
hold_ask(struct hold *h, uint32_t request, bool on)
{
	struct hold_request *r;

	h->asked = on;
	if (on ? h->state == HOLD_FROZEN
	       : h->state == HOLD_THAWED || h->holders > 0) {
		episodes_tell_frozen(h->ep, request,
		    on ? SANDBOX_FROZEN : SANDBOX_THAWED);
	} else {
		r = mem_calloc(1, sizeof(*r));
		if (r == NULL) {
			episodes_tell_frozen(h->ep, request,
			    SANDBOX_FROZEN_FAILED);
			h->asked = false;
		} else {
			r->request = request;
			r->on = on;
			TAILQ_INSERT_TAIL(&h->requests, r, link);
		}
	}
	hold_flush(h);
	hold_advance(h);
}

static void
hold_drop_asked(struct hold *h)
{
	struct hold_message *w;
	struct hold_request *r;

	h->asked = false;
	while ((r = TAILQ_FIRST(&h->requests)) != NULL) {
		TAILQ_REMOVE(&h->requests, r, link);
		mem_free(r);
	}
	while ((w = TAILQ_FIRST(&h->messages)) != NULL) {
		message_remove(h, w);
		message_free(w);
	}
}

void
hold_reactor_lost(struct hold *h)
{
	hold_drop_asked(h);
	hold_advance(h);
}

void
hold_drop(struct hold *h)
{
	struct hold_wait *w;

	hold_drop_asked(h);
	while ((w = TAILQ_FIRST(&h->waits)) != NULL) {
		TAILQ_REMOVE(&h->waits, w, link);
		w->waiting = false;
	}
	h->holders = h->open = 0;
	h->state = HOLD_THAWED;
	poller_timer_stop(h->late);
}
