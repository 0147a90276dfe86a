#include "config.h"

#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/ident.h"
#include "base/log.h"
#include "base/mem.h"
#include "gate/episode_priv.h"
#include "gate/process.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum {
	EPISODE_EVENT_HEAD = 18, /* place, kind, sequence, side */
	EPISODE_WARM_MAX = 1000, /* environments with warm ones */
};

/* ---- what the helper tells -------------------------------------------------- */

static struct episode_op *
op_find(struct episode_set *s, uint32_t request)
{
	struct episode *ep;
	struct episode_op *op;

	LIST_FOREACH (ep, &s->episodes, link)
		LIST_FOREACH (op, &ep->ops, link)
			if (op->request == request)
				return op;
	return NULL;
}

/* Its id, if somebody may claim it. */
static struct view
stranger_id(struct episode_set *s, uint32_t slot, uint32_t generation)
{
	struct view id = buf_view(&s->named);

	if (s->named_slot != slot || s->named_generation != generation ||
	    !ident_good(id) || episode_find(s, id) != NULL)
		return VIEW_NONE;
	return id;
}

/* One that this reactor has not asked for: of an earlier one. */
static void
heard_stranger(struct episode_set *s, uint32_t slot, uint32_t generation,
    struct view env)
{
	const struct episode_news n = { .what = EPISODE_MADE };
	struct view id = stranger_id(s, slot, generation);
	struct episode *ep;

	if (env.n > EPISODE_ENV_MAX)
		return;
	ep = episode_new(s, env, id);
	if (ep == NULL)
		return;
	ep->slot = slot;
	ep->generation = generation;
	ep->placed = true;
	ep->state = EPISODE_LIVE;
	ep->used = ep->resumed = true;
	ep->kept = id.n > 0;
	ep->resets = id.n > 0 ? s->named_resets : 0;
	if (id.n > 0 && s->claim != NULL && s->claim(s->claim_arg, ep)) {
		log_notice("episode %s of a reactor that died waits for who "
			   "had it",
		    ep->id);
		episode_tell(ep, &n);
		return;
	}
	log_notice("episode slot=%u of a reactor that died is ended", slot);
	(void)!episode_end(ep, NULL, NULL);
}

static bool
has_end_op(const struct episode *ep)
{
	const struct episode_op *op;

	LIST_FOREACH (op, &ep->ops, link)
		if (op->type == MESSAGE_EPISODE_END)
			return true;
	return false;
}

static void
over(struct episode *ep, const struct episode_news *n)
{
	episode_tell(ep, n);
	episode_ops_done(ep, MESSAGE_EPISODE_END, 0, VIEW_NONE);
	episode_ops_done(ep, 0, SANDBOX_REFUSED_STATE,
	    VIEW("the episode has ended"));
	episode_retire(ep);
}

static int
heard_made(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	const struct episode_news n = { .what = EPISODE_MADE };
	uint32_t slot = wire_u32(w), generation = wire_u32(w);
	uint32_t request = wire_u32(w);
	struct view env = wire_bytes(w);
	struct episode_op *op;
	struct episode *ep;
	int rc;

	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	if (request == 0) {
		heard_stranger(s, slot, generation, env);
		return SP_OK;
	}
	op = op_find(s, request);
	if (op == NULL ||
	    (op->type != MESSAGE_EPISODE_CREATE &&
		op->type != MESSAGE_EPISODE_RESET))
		return SP_E_PROTO;
	ep = op->ep;
	ep->slot = slot;
	ep->generation = generation;
	ep->placed = true;
	episode_note_frozen(ep, false);
	ep->used = ep->resumed = false;
	if (op->type == MESSAGE_EPISODE_RESET)
		ep->resets++;
	ep->state = EPISODE_LIVE;
	ep->used_us = clock_wall_us();
	episode_tell(ep, &n);
	episode_op_done(op, 0, VIEW_NONE);
	if (ep->state != EPISODE_LIVE || !has_end_op(ep))
		return SP_OK;
	/* somebody wanted it gone before it was there */
	ep->state = EPISODE_ENDING;
	episode_tell_closing(ep);
	rc = episode_ask(ep, MESSAGE_EPISODE_END, -1, NULL, NULL);
	if (rc != SP_OK)
		episode_ops_done(ep, MESSAGE_EPISODE_END,
		    SANDBOX_REFUSED_FAILED, view_str(err_str(rc)));
	return SP_OK;
}

/* What was asked of the inside that is gone; nobody will answer it. */
static void
lose_inside(struct episode *ep)
{
	static const enum message_type types[] = { MESSAGE_EPISODE_FREEZE,
		MESSAGE_EPISODE_FILE, MESSAGE_EPISODE_FILE_PUT,
		MESSAGE_EPISODE_CONNECT };
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		episode_ops_done(ep, types[i], SANDBOX_REFUSED_STATE,
		    VIEW("the episode was reset meanwhile"));
}

static int
heard_named(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct view id;

	(void)m;
	s->named_slot = wire_u32(w);
	s->named_generation = wire_u32(w);
	s->named_resets = wire_u32(w);
	id = wire_bytes(w);
	buf_reset(&s->named, EPISODE_ID_MAX);
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	/* without memory it has no name, and is ended */
	(void)!buf_add_view(&s->named, id);
	return SP_OK;
}

static int
heard_resumed(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	s->resumed = true;
	return SP_OK;
}

static int
heard_refused(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	uint32_t request = wire_u32(w);
	unsigned why = wire_u8(w);
	struct view what = wire_bytes(w);
	struct episode_op *op = op_find(s, request);
	enum message_type type;
	struct episode *ep;

	(void)m;
	if (wire_done(w) != SP_OK || why == 0)
		return SP_E_PROTO;
	/* a grading, or its episode ended meanwhile */
	if (op == NULL) {
		(void)process_refused(s, request, why, what);
		return SP_OK;
	}
	ep = op->ep;
	type = op->type;
	episode_op_done(op, why, what);
	if (type == MESSAGE_EPISODE_CREATE) {
		episode_ops_done(ep, 0, why, what);
		episode_retire(ep);
	} else if (type == MESSAGE_EPISODE_RESET && !ep->placed) {
		/* it had died before it was asked for: ENDED was its last */
		over(ep,
		    &(const struct episode_news){ .what = EPISODE_ENDED,
			.end = SANDBOX_END_LOST });
	} else if (type == MESSAGE_EPISODE_RESET &&
	    ep->state == EPISODE_RESETTING) {
		process_lose_all(ep, SANDBOX_END_LOST);
		lose_inside(ep);
		ep->state = EPISODE_UNCLEAN;
		if (has_end_op(ep)) {
			ep->state = EPISODE_ENDING;
			(void)!episode_ask(ep, MESSAGE_EPISODE_END, -1, NULL,
			    NULL);
		}
	} else if (type == MESSAGE_EPISODE_END) {
		/* it ends on; ENDED comes when nothing lives */
		episode_ops_done(ep, MESSAGE_EPISODE_END, why, what);
	}
	return SP_OK;
}

static int
heard_ended(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct episode_news n = { .what = EPISODE_ENDED };
	uint32_t slot = wire_u32(w), generation = wire_u32(w);
	struct episode *ep = episode_at(s, slot, generation);

	(void)m;
	(void)wire_u32(w);
	n.end = wire_u8(w);
	n.text = wire_bytes(w);
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	if (ep == NULL)
		return SP_OK;
	if (ep->state == EPISODE_LIVE) {
		log_warn("episode %s ended by itself: %.*s", ep->id,
		    VIEW_ARG(n.text));
		episode_tell_closing(ep);
	}
	/* what ended all of it ended each */
	process_lose_all(ep,
	    n.end == SANDBOX_END_TIMEOUT || n.end == SANDBOX_END_OOM
		? n.end
		: SANDBOX_END_LOST);
	if (ep->state == EPISODE_RESETTING) {
		/* the old place; MADE brings the new one */
		ep->placed = false;
		lose_inside(ep);
		return SP_OK;
	}
	over(ep, &n);
	return SP_OK;
}

static int
heard_frozen(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct episode_op *op;
	uint32_t request;
	uint8_t how;

	(void)m;
	(void)wire_u32(w);
	(void)wire_u32(w);
	request = wire_u32(w);
	how = wire_u8(w);
	if (wire_done(w) != SP_OK || how > SANDBOX_FROZEN_NEVER)
		return SP_E_PROTO;
	op = op_find(s, request);
	if (op == NULL || op->type != MESSAGE_EPISODE_FREEZE)
		return op == NULL ? SP_OK : SP_E_PROTO;
	if (how == SANDBOX_FROZEN_FAILED) {
		episode_op_done(op, SANDBOX_REFUSED_FAILED,
		    VIEW("it did not freeze in time"));
	} else if (how == SANDBOX_FROZEN_NEVER) {
		episode_op_done(op, SANDBOX_REFUSED_UNSUPPORTED,
		    VIEW(SANDBOX_FROZEN_NEVER_TEXT));
	} else {
		episode_note_frozen(op->ep, how == SANDBOX_FROZEN);
		episode_op_done(op, 0, VIEW_NONE);
	}
	return SP_OK;
}

static bool
op_is_file(const struct episode_op *op)
{
	return op->type == MESSAGE_EPISODE_FILE ||
	    op->type == MESSAGE_EPISODE_FILE_PUT;
}

static int
heard_file_data(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct episode_op *op;
	uint32_t request;

	(void)wire_u32(w);
	(void)wire_u32(w);
	request = wire_u32(w);
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	op = op_find(s, request);
	if (op == NULL)
		return SP_OK;
	if (!op_is_file(op) || op->fd >= 0)
		return SP_E_PROTO;
	op->fd = m->fd;
	m->fd = -1;
	return SP_OK;
}

static int
heard_file_done(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct episode_op *op, o;
	struct view what;
	uint32_t request;
	uint64_t size;
	uint8_t result;

	(void)m;
	(void)wire_u32(w);
	(void)wire_u32(w);
	request = wire_u32(w);
	result = wire_u8(w);
	size = wire_u64(w);
	what = wire_bytes(w);
	if (wire_done(w) != SP_OK || result == 0 ||
	    result > SANDBOX_FILE_NO_LAYERS)
		return SP_E_PROTO;
	op = op_find(s, request);
	if (op == NULL)
		return SP_OK;
	if (!op_is_file(op))
		return SP_E_PROTO;
	op->ep->used_us = clock_wall_us();
	o = *op;
	op->fd = -1;
	episode_op_free(op);
	if (o.file != NULL)
		o.file(o.arg, o.ep, (enum sandbox_file_result)result, size,
		    o.fd, what);
	fd_close(&o.fd);
	return SP_OK;
}

static int
heard_connected(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct episode_op *op, o;
	uint32_t request, number;
	int fd = m->fd;

	(void)wire_u32(w);
	(void)wire_u32(w);
	request = wire_u32(w);
	number = wire_u32(w);
	if (wire_done(w) != SP_OK || number > INT_MAX ||
	    (number == 0) != (fd >= 0))
		return SP_E_PROTO;
	op = op_find(s, request);
	if (op == NULL)
		return SP_OK;
	if (op->type != MESSAGE_EPISODE_CONNECT)
		return SP_E_PROTO;
	o = *op;
	episode_op_free(op);
	/* whoever asked is gone: with m it is closed */
	if (o.connected == NULL)
		return SP_OK;
	m->fd = -1;
	o.connected(o.arg, o.ep, fd, (int)number, VIEW_NONE);
	return SP_OK;
}

static int
heard_listener(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	uint32_t slot = wire_u32(w), generation = wire_u32(w);
	uint32_t index = wire_u32(w);

	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	if (s->w.listener != NULL) {
		s->w.listener(s->w.arg, slot, generation, index, m->fd);
		m->fd = -1;
	}
	return SP_OK;
}

static int
heard_source(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	uint32_t slot = wire_u32(w), generation = wire_u32(w);

	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	if (s->w.source != NULL) {
		s->w.source(s->w.arg, slot, generation,
		    m->type == MESSAGE_EPISODE_WATCH, m->fd);
		m->fd = -1;
	}
	return SP_OK;
}

static int
heard_spill(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	uint32_t slot = wire_u32(w), generation = wire_u32(w);
	struct episode *ep = episode_at(s, slot, generation);

	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	if (ep != NULL && s->w.spill != NULL) {
		s->w.spill(s->w.arg, ep, m->fd);
		m->fd = -1;
	}
	return SP_OK;
}

static int
heard_event(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct episode_news n = { .what = EPISODE_SAMPLE };
	uint32_t slot = wire_u32(w), generation = wire_u32(w);
	struct episode *ep = episode_at(s, slot, generation);

	n.event = wire_u8(w);
	n.sequence = wire_u64(w);
	n.side = wire_u8(w);
	if (w->bad || n.side < SANDBOX_AGENT || n.side >= SANDBOX_SIDES)
		return SP_E_PROTO;
	/* what is behind them is the event's own, read where it is told */
	n.text = view_from(m->body, EPISODE_EVENT_HEAD);
	if (ep != NULL)
		episode_tell(ep, &n);
	return SP_OK;
}

static int
heard_guarantees(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	struct view text = wire_bytes(w);

	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	/* a long table comes in several */
	return buf_add_view(&s->guarantees, text) == SP_OK ? SP_OK : SP_E_PROTO;
}

static struct episode_warm *
warm_of(struct episode_set *s, struct view env)
{
	struct episode_warm *grown;
	size_t i;

	for (i = 0; i < s->warm_n; i++)
		if (view_eq(view_str(s->warm[i].env), env))
			return &s->warm[i];
	if (s->warm_n == EPISODE_WARM_MAX)
		return NULL;
	grown = mem_reallocarray(s->warm, s->warm_n + 1, sizeof(*grown));
	if (grown == NULL)
		return NULL;
	s->warm = grown;
	memset(&grown[s->warm_n], 0, sizeof(*grown));
	memcpy(grown[s->warm_n].env, env.p, env.n);
	return &grown[s->warm_n++];
}

static int
heard_warm(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	uint32_t n = wire_u32(w);
	struct view env = wire_bytes(w);
	struct episode_warm *one;

	(void)m;
	if (wire_done(w) != SP_OK || env.n == 0 || env.n > EPISODE_ENV_MAX)
		return SP_E_PROTO;
	/* without memory it is not counted */
	one = warm_of(s, env);
	if (one != NULL)
		one->n = n;
	return SP_OK;
}

static int
heard_process(struct episode_set *s, struct channel_msg *m, struct wire *w)
{
	uint32_t slot = wire_u32(w), generation = wire_u32(w);
	struct episode *ep = episode_at(s, slot, generation);

	if (w->bad)
		return SP_E_PROTO;
	return ep == NULL ? SP_OK : process_heard(ep, m, view_from(m->body, 8));
}

static const struct {
	enum message_type type;
	int (*handle)(struct episode_set *s, struct channel_msg *m,
	    struct wire *w);
} episode_rows[] = {
	{ MESSAGE_EPISODE_MADE, heard_made },
	{ MESSAGE_EPISODE_NAMED, heard_named },
	{ MESSAGE_EPISODE_RESUMED, heard_resumed },
	{ MESSAGE_EPISODE_REFUSED, heard_refused },
	{ MESSAGE_EPISODE_ENDED, heard_ended },
	{ MESSAGE_EPISODE_FROZEN, heard_frozen },
	{ MESSAGE_EPISODE_FILE_DONE, heard_file_done },
	{ MESSAGE_EPISODE_FILE_DATA, heard_file_data },
	{ MESSAGE_EPISODE_CONNECTED, heard_connected },
	{ MESSAGE_EPISODE_LISTENER, heard_listener },
	{ MESSAGE_EPISODE_NFLOG, heard_source },
	{ MESSAGE_EPISODE_WATCH, heard_source },
	{ MESSAGE_EPISODE_SPILL, heard_spill },
	{ MESSAGE_EPISODE_EVENT, heard_event },
	{ MESSAGE_EPISODE_GUARANTEES, heard_guarantees },
	{ MESSAGE_EPISODE_WARM, heard_warm },
	{ MESSAGE_PROCESS_STDIO, heard_process },
	{ MESSAGE_PROCESS_STARTED, heard_process },
	{ MESSAGE_PROCESS_NOT_STARTED, heard_process },
	{ MESSAGE_PROCESS_EXITED, heard_process },
};

int
episode_set_heard(struct episode_set *s, struct channel_msg *m)
{
	struct wire w;
	size_t i;

	wire_init(&w, m->body);
	for (i = 0; i < sizeof(episode_rows) / sizeof(episode_rows[0]); i++)
		if (episode_rows[i].type == m->type)
			return episode_rows[i].handle(s, m, &w);
	return SP_E_PROTO;
}
