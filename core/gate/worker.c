#include "config.h"

#include "gate/worker.h"

#include "base/log.h"
#include "base/mem.h"
#include "gate/launch.h"
#include "gate/process.h"
#include "gate/console.h"
#include "gate/worker_priv.h"

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
void
worker_post(struct worker *w)
{
	if (!w->due) {
		w->due = true;
		TAILQ_INSERT_TAIL(&w->set->due, w, due_link);
	}
	loop_task_post(w->set->task);
}

/* ---- deadlines -------------------------------------------------------------- */

static void
arm_one(uint64_t at, uint64_t *next)
{
	if (at != 0 && (*next == 0 || at < *next))
		*next = at;
}

void
worker_arm(struct worker *w)
{
	uint64_t now = worker_now_ms(w), next = 0;
	const struct worker_call *c;

	if (w->state == WORKER_STARTING)
		arm_one(w->ready_by_ms, &next);
	if (w->current != NULL)
		arm_one(w->current->deadline_ms, &next);
	TAILQ_FOREACH (c, &w->aside, link)
		arm_one(c->deadline_ms, &next);
	TAILQ_FOREACH (c, &w->left, link)
		arm_one(c->deadline_ms, &next);
	if (w->back != NULL && w->back->ops->owed != NULL)
		arm_one(w->back->ops->owed(w->back), &next);
	if (next == 0)
		loop_timer_stop(w->timer);
	else
		loop_timer_set(w->timer, next > now ? next - now : 0);
}

static void
worker_on_timer(void *arg)
{
	struct worker *w = arg;
	const struct worker_call *c;
	uint64_t now = worker_now_ms(w);

	/* whoever froze it answers for the time */
	if (w->ep != NULL && w->ep->frozen) {
		loop_timer_set(w->timer, WORKER_FROZEN_MS);
		return;
	}
	worker_left_expire(w, now);
	c = worker_sent_expired(w, now);
	if (w->state == WORKER_STARTING && w->ready_by_ms != 0 &&
	    w->ready_by_ms <= now)
		worker_fail(w, WORKER_GONE,
		    "it was not ready in %llu ms (worker_start_timeout)",
		    (unsigned long long)w->start_ms);
	else if (c != NULL)
		worker_fail(w, WORKER_TIMEOUT,
		    "it did not answer in %llu ms (timeout)",
		    (unsigned long long)c->timeout_ms);
	else if (w->back != NULL && w->back->ops->lapse != NULL)
		w->back->ops->lapse(w->back, now);
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
	worker_calls_end(&w->aside, how, why);
	if (w->current != NULL)
		worker_call_end(w->current, how, why);
	worker_calls_end(&w->left, WORKER_GONE, why);
	worker_calls_end(&w->waiting, WORKER_GONE, why);
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
		w->answer_ms = env->answer_ms;
	}
	if (ops == NULL) {
		worker_fail(w, WORKER_GONE, "nothing here starts such a one");
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
	TAILQ_INIT(&w->aside);
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

	LIST_REMOVE(w, link);
	if (w->due)
		TAILQ_REMOVE(&w->set->due, w, due_link);
	if (w->ep != NULL)
		w->ep->worker = NULL;
	while ((watch = LIST_FIRST(&w->watches)) != NULL)
		worker_unwatch(watch);
	worker_calls_drop(w);
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
worker_pump(struct worker *w)
{
	struct worker_call *c;

	while ((c = worker_next(w)) != NULL)
		worker_send(w, c);
	worker_calls_tell(w);
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

bool
worker_resets(const struct worker *w)
{
	const struct worker_call *c;

	TAILQ_FOREACH (c, &w->waiting, link)
		if (c->op == WORKER_RESET)
			return true;
	return w->current != NULL && w->current->op == WORKER_RESET;
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
