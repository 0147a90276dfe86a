/* The calls of a worker: which goes next, and what becomes of each. */
#include "config.h"

#include "base/log.h"
#include "base/mem.h"
#include "gate/worker_priv.h"
#include "gate/worker_rpc.h"

/* ---- calls -------------------------------------------------------------- */

static void
call_free(struct worker_call *c)
{
	buf_clear(&c->data);
	buf_clear(&c->body);
	mem_free(c);
}

/* The latest that was put aside goes on. */
static void
aside_back(struct worker *w)
{
	struct worker_call *c = TAILQ_LAST(&w->aside, worker_calls);

	if (c == NULL)
		return;
	TAILQ_REMOVE(&w->aside, c, link);
	w->aside_n--;
	c->place = WORKER_CURRENT;
	w->current = c;
}

/* Out of the list that it is in; the worker is read again, if it was not. */
static void
call_take(struct worker_call *c)
{
	struct worker *w = c->w;

	switch (c->place) {
	case WORKER_WAITING:
		TAILQ_REMOVE(&w->waiting, c, link);
		w->waiting_n[c->whose]--;
		w->waiting_bytes[c->whose] -= buf_len(&c->data);
		break;
	case WORKER_CURRENT:
		worker_hold(c, false);
		w->current = NULL;
		aside_back(w);
		break;
	case WORKER_ASIDE:
		worker_hold(c, false);
		TAILQ_REMOVE(&w->aside, c, link);
		w->aside_n--;
		break;
	case WORKER_LEFT:
		TAILQ_REMOVE(&w->left, c, link);
		w->left_n--;
		break;
	case WORKER_TOLD:
		TAILQ_REMOVE(&w->ended, c, link);
		break;
	}
}

/* What the worker asked within it is void. */
static void
call_over(struct worker_call *c, bool forgotten)
{
	const struct worker_back *b = c->w->back;

	if (b != NULL && b->ops->over != NULL)
		b->ops->over(c->w->back, c, forgotten);
}

/* Once of each that was sent, for those who observe the episode. */
static void
call_told(struct worker_call *c, const char *code, struct view body)
{
	struct worker *w = c->w;
	const struct worker_world *world = worker_world_of(w);
	const struct worker_told t = { .step = c->op == WORKER_STEP,
		.whose = c->whose,
		.request = buf_view(&c->data),
		.code = code,
		.body = body };

	if (c->feeds && c->number != 0 && w->ep != NULL && world->told != NULL)
		world->told(world->arg, w->ep, &t);
	c->feeds = false;
}

static void
call_told_result(struct worker_call *c, enum worker_result result,
    struct view body)
{
	static const char *const codes[] = {
		[WORKER_ERROR] = "worker_error",
		[WORKER_GONE] = "worker_gone",
		[WORKER_TIMEOUT] = "worker_timeout",
		[WORKER_BUSY] = "worker_busy",
		[WORKER_NONE] = "no_worker",
	};

	call_told(c, codes[result], body);
}

/* Its result: told with the end of this turn. */
void
worker_call_end(struct worker_call *c, enum worker_result result,
    struct view body)
{
	struct worker *w = c->w;

	call_told_result(c, result, body);
	call_take(c);
	if (c->caller == NULL) {
		call_free(c);
		worker_post(w);
		return;
	}
	c->place = WORKER_TOLD;
	c->result = result;
	/* without memory for the words, the result is told alone */
	(void)!buf_add_view(&c->body, body);
	TAILQ_INSERT_TAIL(&w->ended, c, link);
	worker_post(w);
}

void
worker_calls_end(struct worker_calls *l, enum worker_result result,
    struct view body)
{
	while (!TAILQ_EMPTY(l))
		worker_call_end(TAILQ_FIRST(l), result, body);
}

/* Those that end meanwhile have their own turn. */
void
worker_calls_tell(struct worker *w)
{
	struct worker_call *c, *last = TAILQ_LAST(&w->ended, worker_calls);

	for (c = NULL; c != last && !TAILQ_EMPTY(&w->ended);) {
		c = TAILQ_FIRST(&w->ended);
		call_take(c);
		c->caller->done(c->arg, c->result, buf_view(&c->body));
		call_free(c);
	}
}

void
worker_calls_drop(struct worker *w)
{
	struct worker_call *c;

	while ((c = TAILQ_FIRST(&w->ended)) != NULL) {
		call_take(c);
		call_free(c);
	}
}

/* ---- which is next ------------------------------------------------------ */

/* The first one of the principal who has waited longest since his last. */
static struct worker_call *
next_in_turn(const struct worker *w)
{
	struct worker_call *c, *best = NULL;

	TAILQ_FOREACH (c, &w->waiting, link)
		if (best == NULL ||
		    w->served[c->whose] < w->served[best->whose])
			best = c;
	return best;
}

/* Others have waited for as long as one client may take to answer. */
static bool
next_is_others(const struct worker *w)
{
	const struct worker_call *c;

	if (w->answer_ms == 0 || worker_now_ms(w) - w->busy_ms < w->answer_ms)
		return false;
	TAILQ_FOREACH (c, &w->waiting, link)
		if (c->client != w->current->client)
			return true;
	return false;
}

struct worker_call *
worker_next(const struct worker *w)
{
	struct worker_call *c = TAILQ_FIRST(&w->waiting);

	if (w->state != WORKER_READY)
		return NULL;
	if (w->current == NULL)
		return next_in_turn(w);
	if (w->current->asked == 0 || w->current->client == NULL ||
	    w->aside_n >= WORKER_ASIDE_MAX || next_is_others(w))
		return NULL;
	while (c != NULL && c->client != w->current->client)
		c = TAILQ_NEXT(c, link);
	return c;
}

static void
send_failed(struct worker *w, int rc)
{
	if (rc == SP_E_LIMIT)
		worker_call_end(w->current, WORKER_ERROR,
		    VIEW("it is more than a worker is told at once: 16 MiB"));
	else if (rc == SP_E_NOMEM)
		worker_call_end(w->current, WORKER_ERROR,
		    VIEW("there is no memory to send it"));
	else
		worker_fail(w, WORKER_GONE, "it reads no more");
}

void
worker_send(struct worker *w, struct worker_call *c)
{
	int rc;

	call_take(c);
	if (w->current == NULL) {
		w->busy_ms = worker_now_ms(w);
	} else {
		w->current->place = WORKER_ASIDE;
		TAILQ_INSERT_TAIL(&w->aside, w->current, link);
		w->aside_n++;
	}
	c->place = WORKER_CURRENT;
	c->number = ++w->numbers;
	w->served[c->whose] = c->number;
	if (c->timeout_ms != 0)
		c->deadline_ms = worker_now_ms(w) + c->timeout_ms;
	w->current = c;
	rc = w->back->ops->send(w->back, c);
	if (rc == SP_OK)
		worker_arm(w);
	else
		send_failed(w, rc);
}

/* ---- what is asked ------------------------------------------------------ */

static int
call_read(struct worker_call *c, struct view data, bool known)
{
	struct worker_rpc r;
	int rc;

	c->feeds = c->op == WORKER_STEP;
	buf_init(&c->data, SIZE_MAX);
	buf_init(&c->body, WORKER_WHY_MAX);
	if (c->op == WORKER_STATE)
		return buf_add_str(&c->data, "{}");
	rc = buf_add_view(&c->data, data);
	if (rc != SP_OK || c->op != WORKER_MCP)
		return rc != SP_OK ? rc : worker_rpc_object(data);
	rc = known ? worker_rpc_reread(buf_view(&c->data), &r)
		   : worker_rpc_read(buf_view(&c->data), &r);
	c->id = worker_rpc_raw(&r, &r.id);
	c->token = worker_rpc_raw(&r, &r.meta_token);
	c->feeds = rc == SP_OK && r.has_method &&
	    jscan_is(&r.s, &r.method, VIEW("tools/call"));
	return rc;
}

int
worker_call(struct worker *w, const struct worker_ask *ask,
    const struct worker_caller *caller, void *arg, struct worker_call **out)
{
	struct worker_call *c = mem_calloc(1, sizeof(*c));
	bool busy = w->waiting_n[ask->whose] >= WORKER_WAITING_MAX ||
	    ask->data.n > WORKER_WAITING_BYTES - w->waiting_bytes[ask->whose];
	int rc;

	if (c == NULL)
		return SP_E_NOMEM;
	c->w = w;
	c->op = ask->op;
	c->whose = ask->whose;
	c->client = ask->client;
	rc = call_read(c, busy ? VIEW("{}") : ask->data, ask->known);
	if (rc != SP_OK) {
		call_free(c);
		return rc;
	}
	c->caller = caller;
	c->arg = arg;
	c->timeout_ms = ask->timeout_ms != 0 ? ask->timeout_ms : w->call_ms;
	c->place = WORKER_WAITING;
	TAILQ_INSERT_TAIL(&w->waiting, c, link);
	w->waiting_n[c->whose]++;
	w->waiting_bytes[c->whose] += buf_len(&c->data);
	*out = c;
	if (w->ep != NULL)
		w->ep->used = true;
	if (w->state == WORKER_FAILED)
		worker_call_end(c, WORKER_GONE, buf_view(&w->why));
	else if (busy)
		worker_call_end(c, WORKER_BUSY,
		    VIEW("too many calls of this principal's wait"));
	worker_post(w);
	return SP_OK;
}

int
worker_tell(struct worker *w, const struct worker_call *c, struct view json)
{
	if (w->state != WORKER_READY || w->back == NULL)
		return SP_E_STATE;
	return w->back->ops->tell != NULL ? w->back->ops->tell(w->back, c, json)
					  : SP_OK;
}

/* ---- of those that were cancelled --------------------------------------- */

/* Its answer is waited for no more. */
static void
left_end(struct worker_call *c)
{
	call_over(c, true);
	worker_call_end(c, WORKER_ERROR,
	    VIEW("it was cancelled, and not answered"));
}

void
worker_left_expire(struct worker *w, uint64_t now)
{
	struct worker_call *c, *next;

	for (c = TAILQ_FIRST(&w->left); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->deadline_ms != 0 && c->deadline_ms <= now)
			left_end(c);
	}
}

/* As many are followed as may be: of the oldest only its time is known. */
static void
left_push_out(struct worker *w)
{
	struct worker_call *c = TAILQ_FIRST(&w->left);
	uint64_t until = c->deadline_ms != 0 ? c->deadline_ms : UINT64_MAX;

	if (until > w->unsettled_ms[c->whose])
		w->unsettled_ms[c->whose] = until;
	if (!c->heard && until > w->unheard_ms)
		w->unheard_ms = until;
	left_end(c);
}

/*
 * The next may go, while c may still be answered, or worked on: an MCP server
 * that obeys answers nothing (MCP 2025-11-25, cancellation), and one that
 * reads nothing within a call has not even heard of it.
 */
static void
call_leave(struct worker_call *c)
{
	struct worker *w = c->w;

	call_take(c);
	if (w->left_n >= WORKER_LEFT_MAX)
		left_push_out(w);
	c->place = WORKER_LEFT;
	TAILQ_INSERT_TAIL(&w->left, c, link);
	w->left_n++;
	worker_arm(w);
	worker_post(w);
}

/* True: it was told, and others may be sent. */
static bool
call_cancel(struct worker_call *c, struct view reason)
{
	struct worker_back *b = c->w->back;

	return worker_sent(c) && b != NULL && b->ops->cancel != NULL &&
	    b->ops->cancel(b, c, reason);
}

void
worker_forget(struct worker_call *c, struct view reason)
{
	struct worker *w = c->w;

	if (c->place == WORKER_WAITING || c->place == WORKER_TOLD) {
		call_take(c);
		call_free(c);
		worker_post(w);
		return;
	}
	/* it has left, or its answer is waited for: nobody hears of that */
	call_told(c, "client_gone",
	    VIEW("who asked did not wait for the answer"));
	worker_hold(c, false);
	call_over(c, true);
	if (call_cancel(c, reason))
		call_leave(c);
	c->caller = NULL;
	c->client = NULL;
	c->id = c->token = VIEW_NONE;
	buf_clear(&c->data);
}

void
worker_cancel(struct worker_call *c, struct view reason)
{
	if (c->place == WORKER_WAITING)
		worker_call_end(c, WORKER_ERROR, VIEW("it was cancelled"));
	else if (call_cancel(c, reason))
		call_leave(c);
}

void
worker_hold(struct worker_call *c, bool on)
{
	struct worker *w = c->w;

	if (!worker_sent(c) || w->back == NULL || w->back->ops->hold == NULL ||
	    w->holding == on)
		return;
	w->holding = on;
	w->back->ops->hold(w->back, on);
}

/* ---- of those that were sent -------------------------------------------- */

/* One of those that the worker is at, of which the time is over, or NULL. */
const struct worker_call *
worker_sent_expired(const struct worker *w, uint64_t now)
{
	const struct worker_call *c;

	TAILQ_FOREACH (c, &w->aside, link)
		if (c->deadline_ms != 0 && c->deadline_ms <= now)
			return c;
	c = w->current;
	return c != NULL && c->deadline_ms != 0 && c->deadline_ms <= now ? c
									 : NULL;
}

struct worker_call *
worker_numbered(struct worker *w, uint64_t number)
{
	struct worker_call *c;

	if (w->current != NULL && w->current->number == number)
		return w->current;
	TAILQ_FOREACH (c, &w->aside, link)
		if (c->number == number)
			return c;
	TAILQ_FOREACH (c, &w->left, link)
		if (c->number == number)
			return c;
	return NULL;
}

bool
worker_sent(const struct worker_call *c)
{
	return c->place == WORKER_CURRENT || c->place == WORKER_ASIDE;
}

struct worker_call *
worker_beside(const struct worker_call *c)
{
	struct worker *w = c->w;
	struct worker_call *other;

	if (c->client == NULL)
		return NULL;
	if (w->current != NULL && w->current != c &&
	    w->current->client == c->client)
		return w->current;
	TAILQ_FOREACH_REVERSE(other, &w->aside, worker_calls, link)
	if (other != c && other->client == c->client)
		return other;
	return NULL;
}

void
worker_asks(struct worker_call *c, int more)
{
	c->asked += (unsigned)more;
	worker_arm(c->w);
	/* the next of its client may go */
	if (more > 0)
		worker_post(c->w);
}

void
worker_answer(struct worker_call *c, enum worker_result result,
    struct view body)
{
	const struct worker_caller *caller = c->caller;
	struct worker *w = c->w;
	void *arg = c->arg;

	call_told_result(c, result, body);
	call_over(c, false);
	if (c->op == WORKER_STEP && result == WORKER_OK)
		w->steps++;
	call_take(c);
	call_free(c);
	worker_arm(w);
	worker_post(w);
	if (caller != NULL)
		caller->done(arg, result, body);
}

bool
worker_heard(struct worker *w, uint64_t ping)
{
	struct worker_call *c;

	TAILQ_FOREACH (c, &w->left, link) {
		if (c->ping != ping)
			continue;
		c->heard = true;
		return true;
	}
	return false;
}

bool
worker_settled(const struct worker *w, enum worker_whose whose)
{
	uint64_t now = worker_now_ms(w);
	const struct worker_call *c;
	unsigned i;

	TAILQ_FOREACH (c, &w->left, link)
		if (c->whose != whose || !c->heard)
			return false;
	for (i = 0; i < WORKER_WHOSE_N; i++)
		if (i != whose && now < w->unsettled_ms[i])
			return false;
	return now >= w->unheard_ms;
}

bool
worker_listens(const struct worker_call *c)
{
	return c != NULL && worker_sent(c) && c->caller != NULL &&
	    c->caller->message != NULL;
}

void
worker_say(const struct worker_call *c, struct view json)
{
	if (worker_listens(c))
		c->caller->message(c->arg, json);
}
