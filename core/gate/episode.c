#include "config.h"

#include "base/clock.h"
#include "base/ident.h"
#include "base/log.h"
#include "base/mem.h"
#include "crypt/rnd.h"
#include "gate/console.h"
#include "gate/episode_priv.h"
#include "gate/process.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum { EPISODE_ID_CHARS = 20, EPISODE_GUARANTEES_MAX = 256 * 1024 };

const char *
episode_state_name(enum episode_state s)
{
	static const char *const names[] = {
		[EPISODE_CREATING] = "creating",
		[EPISODE_LIVE] = "live",
		[EPISODE_RESETTING] = "resetting",
		[EPISODE_ENDING] = "ending",
		[EPISODE_UNCLEAN] = "unclean",
		[EPISODE_GONE] = "gone",
	};

	return names[s];
}

uint64_t
episode_wall_us(void)
{
	return clock_wall_us();
}

/* ---- the set ---------------------------------------------------------------- */

static void
episode_free(struct episode *ep)
{
	struct episode_op *op;

	while ((op = LIST_FIRST(&ep->ops)) != NULL) {
		LIST_REMOVE(op, link);
		fd_close(&op->fd);
		mem_free(op);
	}
	console_free(ep->console);
	mem_free(ep);
}

static void
set_on_reap(void *arg)
{
	struct episode_set *s = arg;
	struct process *p;
	struct episode *ep;

	while ((p = LIST_FIRST(&s->dead)) != NULL) {
		LIST_REMOVE(p, link);
		process_free(p);
	}
	while ((ep = LIST_FIRST(&s->gone)) != NULL) {
		LIST_REMOVE(ep, link);
		episode_free(ep);
	}
}

struct episode_set *
episode_set_new(const struct episode_world *w)
{
	struct episode_set *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->w = *w;
	LIST_INIT(&s->episodes);
	LIST_INIT(&s->dead);
	LIST_INIT(&s->gone);
	buf_init(&s->guarantees, EPISODE_GUARANTEES_MAX);
	buf_init(&s->named, EPISODE_ID_MAX);
	s->reap = loop_task_new(w->loop, set_on_reap, s);
	if (s->reap == NULL) {
		mem_free(s);
		return NULL;
	}
	return s;
}

void
episode_set_free(struct episode_set *s)
{
	struct episode *ep;
	struct process *p;

	if (s == NULL)
		return;
	set_on_reap(s);
	while ((ep = LIST_FIRST(&s->episodes)) != NULL) {
		while ((p = LIST_FIRST(&ep->processes)) != NULL) {
			LIST_REMOVE(p, link);
			process_free(p);
		}
		LIST_REMOVE(ep, link);
		episode_free(ep);
	}
	loop_task_free(s->reap);
	buf_clear(&s->guarantees);
	buf_clear(&s->named);
	mem_free(s->warm);
	mem_free(s);
}

void
episode_set_start(struct episode_set *s)
{
	struct buf b = BUF_INIT(1);

	(void)!episode_send(s, MESSAGE_EPISODE_RESUME, &b, SP_OK, -1);
}

void
episode_set_claim(struct episode_set *s,
    bool (*claim)(void *arg, struct episode *ep), void *arg)
{
	s->claim = claim;
	s->claim_arg = arg;
}

struct loop *
episode_loop(const struct episode *ep)
{
	return ep->set->w.loop;
}

uint64_t
episode_now_ms(const struct episode *ep)
{
	return (ep->frozen ? ep->frozen_at_ms : loop_now_ms(ep->set->w.loop)) -
	    ep->stood_ms;
}

void
episode_note_frozen(struct episode *ep, bool on)
{
	uint64_t now = loop_now_ms(ep->set->w.loop);

	if (ep->frozen)
		ep->stood_ms += now - ep->frozen_at_ms;
	ep->frozen = on;
	ep->frozen_at_ms = now;
}

bool
episode_set_resumed(const struct episode_set *s)
{
	return s->resumed;
}

size_t
episode_set_count(const struct episode_set *s)
{
	return s->n;
}

struct view
episode_guarantees(const struct episode_set *s)
{
	return buf_view(&s->guarantees);
}

uint32_t
episode_warm_n(const struct episode_set *s, struct view environment)
{
	size_t i;

	for (i = 0; i < s->warm_n; i++)
		if (view_eq(view_str(s->warm[i].env), environment))
			return s->warm[i].n;
	return 0;
}

struct episode *
episode_first(struct episode_set *s)
{
	return LIST_FIRST(&s->episodes);
}

struct episode *
episode_find(struct episode_set *s, struct view id)
{
	struct episode *ep;

	LIST_FOREACH (ep, &s->episodes, link)
		if (view_eq(view_str(ep->id), id))
			return ep;
	return NULL;
}

struct episode *
episode_at(struct episode_set *s, uint32_t slot, uint32_t generation)
{
	struct episode *ep;

	LIST_FOREACH (ep, &s->episodes, link)
		if (ep->placed && ep->slot == slot &&
		    ep->generation == generation)
			return ep;
	return NULL;
}

void
episode_tell(struct episode *ep, const struct episode_news *n)
{
	struct episode_watch *w, *next;

	if (ep->set->w.news != NULL)
		ep->set->w.news(ep->set->w.arg, ep, n);
	for (w = LIST_FIRST(&ep->watches); w != NULL; w = next) {
		next = LIST_NEXT(w, link);
		w->news(w->arg, ep, n);
	}
}

void
episode_watch(struct episode *ep, struct episode_watch *w)
{
	LIST_INSERT_HEAD(&ep->watches, w, link);
}

void
episode_unwatch(struct episode_watch *w)
{
	LIST_REMOVE(w, link);
}

/* ---- asking ----------------------------------------------------------------- */

/*
 * So many are never open that the numbers come round to one that is; 0 is
 * nobody's.
 */
uint32_t
episode_number(struct episode_set *s)
{
	s->last = s->last >= UINT32_MAX - 1 ? 1 : s->last + 1;
	return s->last;
}

int
episode_send(struct episode_set *s, enum message_type type, struct buf *body,
    int rc, int fd)
{
	if (rc == SP_OK)
		rc = s->w.send(s->w.arg, type, buf_view(body), fd);
	else
		fd_close(&fd);
	buf_clear(body);
	return rc;
}

int
episode_put_which(struct buf *b, const struct episode *ep)
{
	int rc = wire_put_u32(b, ep->slot);

	return rc == SP_OK ? wire_put_u32(b, ep->generation) : rc;
}

static struct episode_op *
op_new(struct episode *ep, enum message_type type, void *arg)
{
	struct episode_op *op = mem_calloc(1, sizeof(*op));

	if (op == NULL)
		return NULL;
	op->ep = ep;
	op->type = type;
	op->request = episode_number(ep->set);
	op->arg = arg;
	op->fd = -1;
	LIST_INSERT_HEAD(&ep->ops, op, link);
	return op;
}

void
episode_op_free(struct episode_op *op)
{
	LIST_REMOVE(op, link);
	fd_close(&op->fd);
	mem_free(op);
}

void
episode_op_done(struct episode_op *op, unsigned refusal, struct view what)
{
	struct episode *ep = op->ep;
	void (*done)(void *arg, struct episode *ep, unsigned refusal,
	    struct view what) = op->done;
	void (*file)(void *arg, struct episode *ep,
	    enum sandbox_file_result result, uint64_t size, int fd,
	    struct view what) = op->file;
	void (*connected)(void *arg, struct episode *ep, int fd, int number,
	    struct view what) = op->connected;
	void *arg = op->arg;

	episode_op_free(op);
	if (done != NULL)
		done(arg, ep, refusal, what);
	else if (file != NULL)
		file(arg, ep,
		    refusal == SANDBOX_REFUSED_UNSUPPORTED
			? SANDBOX_FILE_UNSUPPORTED
			: SANDBOX_FILE_FAILED,
		    0, -1, what);
	else if (connected != NULL)
		connected(arg, ep, -1, 0, what);
}

/* Every op of that type, or (0) all: answered alike. */
void
episode_ops_done(struct episode *ep, enum message_type type, unsigned refusal,
    struct view what)
{
	struct episode_op *op, *next;

	for (op = LIST_FIRST(&ep->ops); op != NULL; op = next) {
		next = LIST_NEXT(op, link);
		if (type == 0 || op->type == type) {
			episode_op_done(op, refusal, what);
			/* which may have forgotten others */
			next = LIST_FIRST(&ep->ops);
			if (type != 0)
				while (next != NULL && next->type != type)
					next = LIST_NEXT(next, link);
		}
	}
}

void
episode_forget(struct episode_set *s, const void *arg)
{
	struct episode *ep;
	struct episode_op *op;

	LIST_FOREACH (ep, &s->episodes, link)
		LIST_FOREACH (op, &ep->ops, link)
			if (op->arg == arg) {
				op->done = NULL;
				op->file = NULL;
				op->connected = NULL;
			}
}

struct episode *
episode_new(struct episode_set *s, struct view environment, struct view id)
{
	struct episode *ep = mem_calloc(1, sizeof(*ep));

	if (ep == NULL)
		return NULL;
	ep->set = s;
	LIST_INIT(&ep->ops);
	LIST_INIT(&ep->processes);
	LIST_INIT(&ep->watches);
	if (id.n > 0)
		memcpy(ep->id, id.p, id.n);
	else
		rnd_token(ep->id, EPISODE_ID_CHARS);
	memcpy(ep->env, environment.p, environment.n);
	ep->created_us = ep->used_us = clock_wall_us();
	LIST_INSERT_HEAD(&s->episodes, ep, link);
	s->n++;
	return ep;
}

/* It is nowhere any more; whoever holds it may look until this turn ends. */
void
episode_retire(struct episode *ep)
{
	struct episode_set *s = ep->set;

	if (ep->state == EPISODE_GONE)
		return;
	ep->state = EPISODE_GONE;
	ep->placed = false;
	LIST_REMOVE(ep, link);
	s->n--;
	LIST_INSERT_HEAD(&s->gone, ep, link);
	loop_task_post(s->reap);
}

int
episode_create(struct episode_set *s, struct view environment, struct view id,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg, struct episode **out)
{
	struct buf b = BUF_INIT(256);
	struct episode_op *op;
	struct episode *ep;
	int rc;

	if (id.n > 0 && !ident_good(id))
		return SP_E_SYNTAX;
	if (environment.n == 0 || environment.n > EPISODE_ENV_MAX)
		return SP_E_SYNTAX;
	if (id.n > 0 && episode_find(s, id) != NULL)
		return SP_E_EXISTS;
	ep = episode_new(s, environment, id);
	if (ep == NULL)
		return SP_E_NOMEM;
	op = op_new(ep, MESSAGE_EPISODE_CREATE, arg);
	rc = op == NULL ? SP_E_NOMEM : wire_put_u32(&b, op->request);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, environment);
	rc = episode_send(s, MESSAGE_EPISODE_CREATE, &b, rc, -1);
	if (rc != SP_OK) {
		episode_retire(ep);
		return rc;
	}
	op->done = done;
	*out = ep;
	return SP_OK;
}

/* RESET, END, FREEZE: the request, the place, and perhaps a flag. */
int
episode_ask(struct episode *ep, enum message_type type, int flag,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg)
{
	struct episode_op *op = op_new(ep, type, arg);
	struct buf b = BUF_INIT(64);
	int rc = op == NULL ? SP_E_NOMEM : wire_put_u32(&b, op->request);

	if (rc == SP_OK)
		rc = episode_put_which(&b, ep);
	if (rc == SP_OK && flag >= 0)
		rc = wire_put_u8(&b, (uint8_t)flag);
	rc = episode_send(ep->set, type, &b, rc, -1);
	if (rc == SP_OK)
		op->done = done;
	else if (op != NULL)
		episode_op_free(op);
	return rc;
}

void
episode_tell_closing(struct episode *ep)
{
	const struct episode_news n = { .what = EPISODE_CLOSING };

	episode_tell(ep, &n);
}

int
episode_rename(struct episode *ep, struct view id)
{
	const struct episode *other = episode_find(ep->set, id);

	if (!ident_good(id))
		return SP_E_SYNTAX;
	if (ep->state == EPISODE_GONE)
		return SP_E_STATE;
	if (other != NULL)
		return other == ep ? SP_OK : SP_E_EXISTS;
	memset(ep->id, 0, sizeof(ep->id));
	memcpy(ep->id, id.p, id.n);
	/* without memory the next reactor knows it by the old one */
	if (ep->kept && ep->placed)
		(void)!episode_keep(ep);
	return SP_OK;
}

int
episode_keep(struct episode *ep)
{
	struct buf b = BUF_INIT(EPISODE_ID_MAX + 16);
	int rc;

	if (!ep->placed)
		return SP_E_STATE;
	rc = episode_put_which(&b, ep);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, view_str(ep->id));
	rc = episode_send(ep->set, MESSAGE_EPISODE_NAME, &b, rc, -1);
	ep->kept = ep->kept || rc == SP_OK;
	return rc;
}

int
episode_reset(struct episode *ep,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg)
{
	enum episode_state was = ep->state;
	int rc;

	if (was != EPISODE_LIVE && was != EPISODE_UNCLEAN)
		return SP_E_STATE;
	/* whoever comes in now would reach what is about to die */
	ep->state = EPISODE_RESETTING;
	episode_tell_closing(ep);
	rc = episode_ask(ep, MESSAGE_EPISODE_RESET, -1, done, arg);
	if (rc != SP_OK)
		ep->state = EPISODE_UNCLEAN;
	return rc;
}

int
episode_end(struct episode *ep,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg)
{
	struct episode_op *op;
	int rc;

	if (ep->state == EPISODE_GONE)
		return SP_E_STATE;
	if (ep->state == EPISODE_LIVE || ep->state == EPISODE_UNCLEAN) {
		ep->state = EPISODE_ENDING;
		episode_tell_closing(ep);
		rc = episode_ask(ep, MESSAGE_EPISODE_END, -1, done, arg);
		if (rc != SP_OK)
			ep->state = EPISODE_UNCLEAN;
		return rc;
	}
	/* it waits for what is under way; then it is ended */
	op = op_new(ep, MESSAGE_EPISODE_END, arg);
	if (op == NULL)
		return SP_E_NOMEM;
	op->done = done;
	return SP_OK;
}

int
episode_freeze(struct episode *ep, bool on,
    void (*done)(void *arg, struct episode *ep, unsigned refusal,
	struct view what),
    void *arg)
{
	if (ep->state != EPISODE_LIVE)
		return SP_E_STATE;
	return episode_ask(ep, MESSAGE_EPISODE_FREEZE, on, done, arg);
}

int
episode_file(struct episode *ep, const struct episode_file_ask *ask,
    void (*file)(void *arg, struct episode *ep, enum sandbox_file_result result,
	uint64_t size, int fd, struct view what),
    void *arg)
{
	enum message_type type =
	    ask->put_fd >= 0 ? MESSAGE_EPISODE_FILE_PUT : MESSAGE_EPISODE_FILE;
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct episode_op *o = NULL;
	int rc = SP_OK;

	if (ep->state != EPISODE_LIVE)
		rc = SP_E_STATE;
	else if (ask->path.n > SANDBOX_MSG_PATH_MAX)
		rc = SP_E_LIMIT;
	else if ((o = op_new(ep, type, arg)) == NULL)
		rc = SP_E_NOMEM;
	if (rc == SP_OK)
		rc = wire_put_u32(&b, o->request);
	if (rc == SP_OK)
		rc = episode_put_which(&b, ep);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, (uint8_t)ask->op);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, ask->mode);
	if (rc == SP_OK)
		rc = wire_put_u64(&b, ask->limit);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, ask->path);
	rc = episode_send(ep->set, type, &b, rc, ask->put_fd);
	if (o == NULL)
		return rc;
	if (rc == SP_OK)
		o->file = file;
	else
		episode_op_free(o);
	return rc;
}

int
episode_connect(struct episode *ep, enum sandbox_side side, uint16_t port,
    void (*connected)(void *arg, struct episode *ep, int fd, int number,
	struct view what),
    void *arg)
{
	struct buf b = BUF_INIT(32);
	struct episode_op *o;
	int rc;

	if (ep->state != EPISODE_LIVE)
		return SP_E_STATE;
	o = op_new(ep, MESSAGE_EPISODE_CONNECT, arg);
	rc = o == NULL ? SP_E_NOMEM : wire_put_u32(&b, o->request);
	if (rc == SP_OK)
		rc = episode_put_which(&b, ep);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, (uint8_t)side);
	if (rc == SP_OK)
		rc = wire_put_u16(&b, port);
	rc = episode_send(ep->set, MESSAGE_EPISODE_CONNECT, &b, rc, -1);
	if (rc == SP_OK)
		o->connected = connected;
	else if (o != NULL)
		episode_op_free(o);
	return rc;
}
