#include "config.h"

#include "gate/worker.h"

#include "base/log.h"
#include "base/mem.h"
#include "gate/launch.h"
#include "gate/process.h"
#include "gate/console.h"
#include "gate/worker_priv.h"
#include "gate/worker_rpc.h"

enum {
	WORKER_FROZEN_MS = 1000, /* how often a frozen one is looked at */
};

struct worker_set {
	struct worker_world world;
	LIST_HEAD(, worker) workers;
	TAILQ_HEAD(, worker) due; /* something is to be told or sent */
	LIST_HEAD(, worker_back) stopped; /* freed with this turn */
	struct launch_list launched;
	struct loop_task *task;
};

static const struct worker_backend *const worker_backends[] = {
	[CONF_ENV_WORKER_NONE] = NULL,
	[CONF_ENV_WORKER_STDIO] = &worker_stdio_backend,
	[CONF_ENV_WORKER_HTTP] = &worker_http_backend,
	[CONF_ENV_WORKER_FRAMES] = &worker_frames_backend,
};

/* What comes of calls is told by the task: nobody is called back at once. */
static void
worker_post(struct worker *w)
{
	if (!w->due) {
		w->due = true;
		TAILQ_INSERT_TAIL(&w->set->due, w, due_link);
	}
	loop_task_post(w->set->task);
}

/* ---- calls ------------------------------------------------------------------ */

static void
call_free(struct worker_call *c)
{
	buf_clear(&c->data);
	buf_clear(&c->body);
	mem_free(c);
}

/* Out of the list that it is in; the worker is read again, if it was not. */
static void
call_take(struct worker_call *c)
{
	struct worker *w = c->w;

	switch (c->place) {
	case WORKER_WAITING:
		TAILQ_REMOVE(&w->waiting, c, link);
		w->waiting_n--;
		w->waiting_bytes -= buf_len(&c->data);
		break;
	case WORKER_CURRENT:
		worker_hold(c, false);
		w->current = NULL;
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
	const struct worker_world *world = &w->set->world;
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
static void
call_end(struct worker_call *c, enum worker_result result, struct view body)
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

static void
calls_end(struct worker_calls *l, enum worker_result result, struct view body)
{
	while (!TAILQ_EMPTY(l))
		call_end(TAILQ_FIRST(l), result, body);
}

/* Those that end meanwhile have their own turn. */
static void
tell_ended(struct worker *w)
{
	struct worker_call *c, *last = TAILQ_LAST(&w->ended, worker_calls);

	for (c = NULL; c != last && !TAILQ_EMPTY(&w->ended);) {
		c = TAILQ_FIRST(&w->ended);
		call_take(c);
		c->caller->done(c->arg, c->result, buf_view(&c->body));
		call_free(c);
	}
}

/* ---- deadlines -------------------------------------------------------------- */

static void
arm_one(uint64_t at, uint64_t *next)
{
	if (at != 0 && (*next == 0 || at < *next))
		*next = at;
}

static void
worker_arm(struct worker *w)
{
	uint64_t now = worker_now_ms(w), next = 0;
	const struct worker_call *c;

	if (w->state == WORKER_STARTING)
		arm_one(w->ready_by_ms, &next);
	if (w->current != NULL)
		arm_one(w->current->deadline_ms, &next);
	TAILQ_FOREACH (c, &w->left, link)
		arm_one(c->deadline_ms, &next);
	if (next == 0)
		loop_timer_stop(w->timer);
	else
		loop_timer_set(w->timer, next > now ? next - now : 0);
}

/* Its answer is waited for no more. */
static void
left_end(struct worker_call *c)
{
	call_over(c, true);
	call_end(c, WORKER_ERROR, VIEW("it was cancelled, and not answered"));
}

static void
left_expire(struct worker *w, uint64_t now)
{
	struct worker_call *c, *next;

	for (c = TAILQ_FIRST(&w->left); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->deadline_ms != 0 && c->deadline_ms <= now)
			left_end(c);
	}
}

static void
worker_on_timer(void *arg)
{
	struct worker *w = arg;
	const struct worker_call *c = w->current;
	uint64_t now = worker_now_ms(w);

	/* whoever froze it answers for the time */
	if (w->ep != NULL && w->ep->frozen) {
		loop_timer_set(w->timer, WORKER_FROZEN_MS);
		return;
	}
	left_expire(w, now);
	if (w->state == WORKER_STARTING && w->ready_by_ms != 0 &&
	    w->ready_by_ms <= now)
		worker_fail(w, WORKER_GONE,
		    "it was not ready in %llu ms (worker_start_timeout)",
		    (unsigned long long)w->start_ms);
	else if (c != NULL && c->deadline_ms != 0 && c->deadline_ms <= now)
		worker_fail(w, WORKER_TIMEOUT,
		    "it did not answer in %llu ms (timeout)",
		    (unsigned long long)c->timeout_ms);
	worker_arm(w);
}

/* ---- its life --------------------------------------------------------------- */

static void
back_stop(struct worker *w)
{
	struct worker_back *b = w->back;

	if (b == NULL)
		return;
	w->back = NULL;
	w->holding = false;
	b->w = NULL;
	b->ops->stop(b);
	/* its own functions may be on the stack */
	LIST_INSERT_HEAD(&w->set->stopped, b, link);
	loop_task_post(w->set->task);
}

static void
worker_down(struct worker *w, enum worker_result how)
{
	struct view why;

	w->state = WORKER_FAILED;
	w->news = true;
	back_stop(w);
	why = buf_view(&w->why);
	if (w->current != NULL)
		call_end(w->current, how, why);
	calls_end(&w->left, WORKER_GONE, why);
	calls_end(&w->waiting, WORKER_GONE, why);
	worker_arm(w);
	worker_post(w);
}

void
worker_fail(struct worker *w, enum worker_result how, const char *fmt, ...)
{
	va_list ap;

	if (w->state == WORKER_FAILED)
		return;
	buf_truncate(&w->why, 0);
	va_start(ap, fmt);
	(void)!buf_vprintf(&w->why, fmt, ap);
	va_end(ap);
	log_warn("episode %s: its worker failed: %.*s",
	    w->ep != NULL ? w->ep->id : "?", VIEW_ARG(buf_view(&w->why)));
	worker_down(w, how);
	/* what it was half way through is nothing to work on */
	if (w->ep != NULL)
		process_kill_all(w->ep);
}

void
worker_ready(struct worker *w, struct view initialized)
{
	if (w->state != WORKER_STARTING)
		return;
	if (buf_add_view(&w->initialized, initialized) != SP_OK) {
		worker_fail(w, WORKER_GONE, "no memory for what it says");
		return;
	}
	w->state = WORKER_READY;
	w->launch = w->news = true;
	worker_arm(w);
	worker_post(w);
}

static void
worker_begin(struct worker *w)
{
	const struct worker_world *world = &w->set->world;
	const struct conf_environment *env =
	    world->environment(world->arg, w->ep);
	const struct worker_backend *ops = NULL;

	buf_truncate(&w->why, 0);
	buf_reset(&w->initialized, 0);
	buf_reset(&w->err, 0);
	w->steps = 0;
	memset(w->unsettled_ms, 0, sizeof(w->unsettled_ms));
	w->unheard_ms = 0;
	w->state = WORKER_STARTING;
	w->news = true;
	worker_post(w);
	if (w->ep->resumed) {
		worker_fail(w, WORKER_GONE,
		    "it was lost with the process that had its streams");
		return;
	}
	if (env != NULL) {
		ops = worker_backends[env->worker];
		w->call_ms = env->timeout_ms;
		w->start_ms = env->worker_start_ms;
	}
	if (ops == NULL) {
		worker_fail(w, WORKER_GONE, "nothing here starts such a one");
		return;
	}
	/* its pipes went with the reactor that had it */
	if (w->ep->resumed) {
		worker_fail(w, WORKER_GONE,
		    "the reactor that it spoke to has died");
		return;
	}
	w->ready_by_ms = w->start_ms != 0 ? worker_now_ms(w) + w->start_ms : 0;
	w->back = ops->start(w, env);
	if (w->back == NULL)
		worker_fail(w, WORKER_GONE, "no memory to start it");
	worker_arm(w);
}

static struct worker *
worker_new(struct worker_set *s, struct episode *ep)
{
	struct worker *w = mem_calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->set = s;
	w->ep = ep;
	w->told = WORKER_FAILED;
	TAILQ_INIT(&w->waiting);
	TAILQ_INIT(&w->left);
	TAILQ_INIT(&w->ended);
	LIST_INIT(&w->watches);
	buf_init(&w->why, WORKER_WHY_MAX);
	buf_init(&w->initialized, WORKER_LINE_MAX);
	buf_init(&w->err, WORKER_STDERR_MAX);
	w->timer = loop_timer_new(s->world.loop, worker_on_timer, w);
	if (w->timer == NULL) {
		mem_free(w);
		return NULL;
	}
	LIST_INSERT_HEAD(&s->workers, w, link);
	ep->worker = w;
	return w;
}

static void
worker_free(struct worker *w)
{
	struct worker_watch *watch;
	struct worker_call *c;

	LIST_REMOVE(w, link);
	if (w->due)
		TAILQ_REMOVE(&w->set->due, w, due_link);
	if (w->ep != NULL)
		w->ep->worker = NULL;
	while ((watch = LIST_FIRST(&w->watches)) != NULL)
		worker_unwatch(watch);
	while ((c = TAILQ_FIRST(&w->ended)) != NULL) {
		call_take(c);
		call_free(c);
	}
	loop_timer_free(w->timer);
	buf_clear(&w->why);
	buf_clear(&w->initialized);
	buf_clear(&w->err);
	mem_free(w);
}

/* What runs beside the agent finds a worker that answers. */
static void
worker_launch(struct worker_set *s, struct episode *ep)
{
	const struct conf_environment *env =
	    s->world.environment(s->world.arg, ep);

	if (env != NULL && ep->state == EPISODE_LIVE)
		launch_all(&s->launched, ep, env, &s->world);
}

/* ---- what the task does ----------------------------------------------------- */

static void
tell_changed(struct worker *w)
{
	bool over = w->ep == NULL;
	struct worker_watch *watch;

	w->news = false;
	w->told = w->state;
	w->cursor = LIST_FIRST(&w->watches);
	while ((watch = w->cursor) != NULL) {
		w->cursor = LIST_NEXT(watch, link);
		if (over)
			worker_unwatch(watch);
		if (watch->changed != NULL)
			watch->changed(watch->arg, w->told);
	}
}

static void
send_failed(struct worker *w, int rc)
{
	if (rc == SP_E_LIMIT)
		call_end(w->current, WORKER_ERROR,
		    VIEW("it is more than a worker is told at once: 16 MiB"));
	else if (rc == SP_E_NOMEM)
		call_end(w->current, WORKER_ERROR,
		    VIEW("there is no memory to send it"));
	else
		worker_fail(w, WORKER_GONE, "it reads no more");
}

static void
send_next(struct worker *w)
{
	struct worker_call *c = TAILQ_FIRST(&w->waiting);
	int rc;

	call_take(c);
	c->place = WORKER_CURRENT;
	c->number = ++w->numbers;
	if (c->timeout_ms != 0)
		c->deadline_ms = worker_now_ms(w) + c->timeout_ms;
	w->current = c;
	rc = w->back->ops->send(w->back, c);
	if (rc == SP_OK)
		worker_arm(w);
	else
		send_failed(w, rc);
}

static void
worker_pump(struct worker *w)
{
	while (w->state == WORKER_READY && w->current == NULL &&
	    !TAILQ_EMPTY(&w->waiting))
		send_next(w);
	tell_ended(w);
	if (w->news)
		tell_changed(w);
	if (w->launch && w->state == WORKER_READY && w->ep != NULL)
		worker_launch(w->set, w->ep);
	w->launch = false;
	if (w->ep == NULL && TAILQ_EMPTY(&w->ended))
		worker_free(w);
}

static void
set_on_task(void *arg)
{
	struct worker_set *s = arg;
	struct worker_back *b;
	struct worker *w;
	size_t n = 0;

	TAILQ_FOREACH (w, &s->due, due_link)
		n++;
	/* who is due again by then is so in the next turn */
	while (n-- > 0 && (w = TAILQ_FIRST(&s->due)) != NULL) {
		TAILQ_REMOVE(&s->due, w, due_link);
		w->due = false;
		worker_pump(w);
	}
	if (!TAILQ_EMPTY(&s->due))
		loop_task_post(s->task);
	while ((b = LIST_FIRST(&s->stopped)) != NULL) {
		LIST_REMOVE(b, link);
		b->ops->free(b);
	}
}

/* ---- the set ---------------------------------------------------------------- */

struct worker_set *
worker_set_new(const struct worker_world *world)
{
	struct worker_set *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->world = *world;
	LIST_INIT(&s->workers);
	TAILQ_INIT(&s->due);
	LIST_INIT(&s->stopped);
	LIST_INIT(&s->launched);
	s->task = loop_task_new(world->loop, set_on_task, s);
	if (s->task == NULL) {
		mem_free(s);
		return NULL;
	}
	return s;
}

void
worker_set_free(struct worker_set *s)
{
	struct worker_back *b;
	struct worker *w;

	if (s == NULL)
		return;
	while ((w = LIST_FIRST(&s->workers)) != NULL) {
		worker_down(w, WORKER_GONE);
		worker_free(w);
	}
	while ((b = LIST_FIRST(&s->stopped)) != NULL) {
		LIST_REMOVE(b, link);
		b->ops->free(b);
	}
	launch_clear(&s->launched);
	loop_task_free(s->task);
	mem_free(s);
}

const struct worker_world *
worker_set_world(const struct worker_set *s)
{
	return &s->world;
}

static void
news_made(struct worker_set *s, struct episode *ep)
{
	const struct conf_environment *env =
	    s->world.environment(s->world.arg, ep);
	struct worker *w = ep->worker;

	if (w == NULL && env != NULL && env->worker != CONF_ENV_WORKER_NONE) {
		w = worker_new(s, ep);
		if (w == NULL)
			log_error("episode %s: no memory for its worker",
			    ep->id);
	}
	if (w != NULL)
		worker_begin(w);
	else if (env != NULL && env->worker == CONF_ENV_WORKER_NONE &&
	    !ep->resumed)
		worker_launch(s, ep);
}

/* Its processes are killed by what closes it. */
static void
news_closing(struct worker *w, const char *why)
{
	if (w->state == WORKER_FAILED)
		return;
	buf_truncate(&w->why, 0);
	(void)!buf_add_str(&w->why, why);
	worker_down(w, WORKER_GONE);
}

void
worker_set_news(struct worker_set *s, struct episode *ep,
    const struct episode_news *n)
{
	struct worker *w = ep->worker;

	if (n->what == EPISODE_MADE)
		news_made(s, ep);
	else if (w != NULL && n->what == EPISODE_CLOSING)
		news_closing(w,
		    ep->state == EPISODE_RESETTING
			? "the episode is being reset"
			: "the episode is over");
	if (w == NULL || n->what != EPISODE_ENDED)
		return;
	news_closing(w, "the episode is over");
	ep->worker = NULL;
	w->ep = NULL;
	w->news = true;
	worker_post(w);
}

/* ---- what is asked ---------------------------------------------------------- */

struct worker *
worker_of(struct episode *ep)
{
	return ep->worker;
}

enum worker_state
worker_state(const struct worker *w)
{
	return w->state;
}

struct view
worker_why(const struct worker *w)
{
	return buf_view(&w->why);
}

struct view
worker_stderr(const struct worker *w)
{
	return buf_view(&w->err);
}

struct view
worker_initialized(const struct worker *w)
{
	return buf_view(&w->initialized);
}

static int
call_read(struct worker_call *c, struct view data)
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
	rc = worker_rpc_read(buf_view(&c->data), &r);
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
	bool busy = w->waiting_n >= WORKER_WAITING_MAX ||
	    ask->data.n > WORKER_WAITING_BYTES - w->waiting_bytes;
	int rc;

	if (c == NULL)
		return SP_E_NOMEM;
	c->w = w;
	c->op = ask->op;
	c->whose = ask->whose;
	rc = call_read(c, busy ? VIEW("{}") : ask->data);
	if (rc != SP_OK) {
		call_free(c);
		return rc;
	}
	c->caller = caller;
	c->arg = arg;
	c->timeout_ms = ask->timeout_ms != 0 ? ask->timeout_ms : w->call_ms;
	c->place = WORKER_WAITING;
	TAILQ_INSERT_TAIL(&w->waiting, c, link);
	w->waiting_n++;
	w->waiting_bytes += buf_len(&c->data);
	*out = c;
	if (w->ep != NULL)
		w->ep->used = true;
	if (w->state == WORKER_FAILED)
		call_end(c, WORKER_GONE, buf_view(&w->why));
	else if (busy)
		call_end(c, WORKER_BUSY,
		    VIEW("too many calls of the episode wait"));
	worker_post(w);
	return SP_OK;
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

	return c->place == WORKER_CURRENT && b != NULL &&
	    b->ops->cancel != NULL && b->ops->cancel(b, c, reason);
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
	c->id = c->token = VIEW_NONE;
	buf_clear(&c->data);
}

void
worker_cancel(struct worker_call *c, struct view reason)
{
	if (c->place == WORKER_WAITING)
		call_end(c, WORKER_ERROR, VIEW("it was cancelled"));
	else if (call_cancel(c, reason))
		call_leave(c);
}

void
worker_hold(struct worker_call *c, bool on)
{
	struct worker *w = c->w;

	if (c->place != WORKER_CURRENT || w->back == NULL ||
	    w->back->ops->hold == NULL || w->holding == on)
		return;
	w->holding = on;
	w->back->ops->hold(w->back, on);
}

int
worker_tell(struct worker *w, const struct worker_call *c, struct view json)
{
	if (w->state != WORKER_READY || w->back == NULL)
		return SP_E_STATE;
	return w->back->ops->tell != NULL ? w->back->ops->tell(w->back, c, json)
					  : SP_OK;
}

void
worker_watch(struct worker *w, struct worker_watch *watch)
{
	watch->worker = w;
	LIST_INSERT_HEAD(&w->watches, watch, link);
}

void
worker_unwatch(struct worker_watch *watch)
{
	struct worker *w = watch->worker;

	if (w == NULL)
		return;
	if (w->cursor == watch)
		w->cursor = LIST_NEXT(watch, link);
	LIST_REMOVE(watch, link);
	watch->worker = NULL;
}

/* ---- for back ends ---------------------------------------------------------- */

const struct worker_world *
worker_world_of(const struct worker *w)
{
	return &w->set->world;
}

struct loop *
worker_loop(const struct worker *w)
{
	return w->set->world.loop;
}

uint64_t
worker_now_ms(const struct worker *w)
{
	return w->ep != NULL ? episode_now_ms(w->ep)
			     : loop_now_ms(w->set->world.loop);
}

struct worker_call *
worker_numbered(struct worker *w, uint64_t number)
{
	struct worker_call *c;

	if (w->current != NULL && w->current->number == number)
		return w->current;
	TAILQ_FOREACH (c, &w->left, link)
		if (c->number == number)
			return c;
	return NULL;
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
	return c != NULL && c->place == WORKER_CURRENT && c->caller != NULL &&
	    c->caller->message != NULL;
}

void
worker_say(const struct worker_call *c, struct view json)
{
	if (worker_listens(c))
		c->caller->message(c->arg, json);
}

void
worker_tell_watches(struct worker *w, struct view json)
{
	struct worker_watch *watch;

	w->cursor = LIST_FIRST(&w->watches);
	while ((watch = w->cursor) != NULL) {
		w->cursor = LIST_NEXT(watch, link);
		if (watch->message != NULL)
			watch->message(watch->arg, json);
	}
}

void
worker_add_stderr(struct worker *w, struct view data)
{
	size_t have = buf_len(&w->err);

	if (w->ep != NULL)
		console_add(w->ep, VIEW("worker"), "stderr", data);
	if (data.n > WORKER_STDERR_MAX)
		data = view_from(data, data.n - WORKER_STDERR_MAX);
	if (have + data.n > WORKER_STDERR_MAX)
		buf_consume(&w->err, have + data.n - WORKER_STDERR_MAX);
	/* without memory a piece is missing */
	(void)!buf_add_view(&w->err, data);
}

void
worker_count_dropped(struct worker *w)
{
	if (w->dropped++ == 0)
		log_notice("episode %s: its worker sent a message that belongs "
			   "to no request: dropped, as are others",
		    w->ep != NULL ? w->ep->id : "?");
}

void
worker_event(struct worker *w, struct view json)
{
	const struct worker_world *world = &w->set->world;

	if (world->event != NULL && w->ep != NULL)
		world->event(world->arg, w->ep, json);
}
