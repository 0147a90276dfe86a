#include "config.h"

#include <stdio.h>

#include "base/ident.h"
#include "base/mem.h"
#include "conf/conf_env.h"
#include "gate/worker_word.h"
#include "json/jscan.h"
#include "lifecycle_call.h"

static void
run_finish(struct lifecycle_run *run, enum lifecycle_outcome o,
    struct view body, struct view tail)
{
	struct lifecycle_lease *l = run->lease;

	TAILQ_REMOVE(&l->runs, run, link);
	if (run->done != NULL)
		run->done(run->arg, run, o, body, tail);
	buf_clear(&run->data);
	mem_free(run);
	/* a lease that died in there is freed later in this turn */
	if (!l->dead && !TAILQ_EMPTY(&l->runs))
		loop_task_post(l->task);
}

static void
run_fail(struct lifecycle_run *run, enum lifecycle_outcome o, const char *cause)
{
	run_finish(run, o, view_str(cause), VIEW_NONE);
}

/* What a call of episode.h returned. */
static void
run_fail_rc(struct lifecycle_run *run, int rc)
{
	switch (rc) {
	case SP_E_NOMEM:
		run_fail(run, LIFECYCLE_NO_MEMORY,
		    "out of memory: try again later");
		return;
	case SP_E_GONE:
		run_fail(run, LIFECYCLE_NO_HELPER,
		    "the helper is away: try again later");
		return;
	case SP_E_EXISTS:
		run_fail(run, LIFECYCLE_EXISTS,
		    "an episode of that episode_id is there, and in use: "
		    "choose another, or none");
		return;
	case SP_E_STATE:
		run_fail(run, LIFECYCLE_BUSY,
		    "somebody else resets the episode: ask again when that is "
		    "over");
		return;
	default:
		run_fail(run, LIFECYCLE_UNBUILT, err_str(rc));
		return;
	}
}

static void
run_fail_refused(struct lifecycle_run *run, unsigned refusal, struct view what)
{
	static const enum lifecycle_outcome outcomes[] = {
		[SANDBOX_REFUSED_UNKNOWN] = LIFECYCLE_UNBUILT,
		[SANDBOX_REFUSED_CAPACITY] = LIFECYCLE_CAPACITY,
		[SANDBOX_REFUSED_FAILED] = LIFECYCLE_UNBUILT,
		[SANDBOX_REFUSED_UNCLEAN] = LIFECYCLE_UNCLEAN,
		[SANDBOX_REFUSED_STATE] = LIFECYCLE_ENDED,
	};
	enum lifecycle_outcome o = LIFECYCLE_UNBUILT;

	if (refusal > 0 && refusal < sizeof(outcomes) / sizeof(outcomes[0]))
		o = outcomes[refusal];
	run_finish(run, o, what, VIEW_NONE);
}

static void
run_fail_ended(struct lifecycle_run *run)
{
	struct view why = buf_view(&run->lease->why);

	run_finish(run, LIFECYCLE_ENDED,
	    why.n > 0 ? why
		      : VIEW("the episode has ended: reset begins another"),
	    VIEW_NONE);
}

/* ---- the worker ----------------------------------------------------------- */

static void
worker_on_done(void *arg, enum worker_result result, struct view body)
{
	static const enum lifecycle_outcome outcomes[] = {
		[WORKER_OK] = LIFECYCLE_OK,
		[WORKER_ERROR] = LIFECYCLE_ERROR,
		[WORKER_GONE] = LIFECYCLE_GONE,
		[WORKER_TIMEOUT] = LIFECYCLE_TIMEOUT,
		[WORKER_BUSY] = LIFECYCLE_BUSY,
		[WORKER_NONE] = LIFECYCLE_NO_WORKER,
	};
	struct lifecycle_run *run = arg;
	struct episode *ep = run->lease->ep;
	struct worker *w = NULL;
	struct view tail = VIEW_NONE;

	run->call = NULL;
	if (result != WORKER_OK && ep != NULL)
		w = worker_of(ep);
	if (w != NULL) {
		tail = worker_stderr(w);
		if (tail.n > LIFECYCLE_STDERR_MAX)
			tail = view_from(tail, tail.n - LIFECYCLE_STDERR_MAX);
		if (body.n == 0)
			body = worker_why(w);
	}
	run_finish(run, outcomes[result], body, tail);
}

/* An environment without a worker has an end and a beginning all the same. */
static void
answer_without(struct lifecycle_run *run)
{
	struct lifecycle_lease *l = run->lease;
	const struct conf_environment *env =
	    conf_env_find(gate_conf(l->gate), view_str(l->env));
	struct buf out = BUF_INIT(256);
	int rc = SP_OK;

	if (env != NULL && env->worker != CONF_ENV_WORKER_NONE) {
		rc = SP_E_NOMEM;
	} else if (run->op == LIFECYCLE_RESET) {
		run_finish(run, LIFECYCLE_OK,
		    VIEW("{\"observation\":{},\"reward\":null,\"done\":false}"),
		    VIEW_NONE);
	} else if (run->op != LIFECYCLE_STATE) {
		run_fail(run, LIFECYCLE_NO_WORKER,
		    "the environment has no worker");
	} else {
		rc = buf_printf(&out,
		    "{\"episode_id\":\"%s\",\"step_count\":0}", l->ep->id);
		if (rc == SP_OK)
			run_finish(run, LIFECYCLE_OK, buf_view(&out),
			    VIEW_NONE);
	}
	if (rc != SP_OK)
		run_fail_rc(run, rc);
	buf_clear(&out);
}

/*
 * True: it goes to the worker.  A notification expects no answer, but every
 * frame has one.  What a client cancels is over: frames are served in turn.
 */
static bool
mcp_goes(struct lifecycle_run *run)
{
	const char *why;

	switch (worker_word(buf_view(&run->data), &why)) {
	case WORKER_WORD_NOTES:
		run_finish(run, LIFECYCLE_OK,
		    VIEW("{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}"),
		    VIEW_NONE);
		return false;
	case WORKER_WORD_BAD:
		run_fail(run, LIFECYCLE_MALFORMED, why);
		return false;
	case WORKER_WORD_NO_METHOD:
		run_fail(run, LIFECYCLE_NO_METHOD, why);
		return false;
	case WORKER_WORD_ASKS:
	default:
		return true;
	}
}

static void
ask_worker(struct lifecycle_run *run)
{
	static const struct worker_caller caller = { .done = worker_on_done };
	static const enum worker_op ops[] = {
		[LIFECYCLE_RESET] = WORKER_RESET,
		[LIFECYCLE_STEP] = WORKER_STEP,
		[LIFECYCLE_STATE] = WORKER_STATE,
		[LIFECYCLE_MCP] = WORKER_MCP,
	};
	struct episode *ep = run->lease->ep;
	struct view data = buf_view(&run->data);
	struct worker_ask ask;
	struct worker *w;
	int rc;

	if (ep == NULL || ep->state != EPISODE_LIVE) {
		run_fail_ended(run);
		return;
	}
	w = worker_of(ep);
	if (w == NULL) {
		answer_without(run);
		return;
	}
	if (run->op == LIFECYCLE_RESET && data.n == 0)
		data = VIEW("{}");
	if (run->op != LIFECYCLE_STATE)
		ep->used = true;
	if (run->op == LIFECYCLE_MCP && !mcp_goes(run))
		return;
	ask = (struct worker_ask){ .op = ops[run->op],
		.data = data,
		.timeout_ms = run->timeout_ms };
	rc = worker_call(w, &ask, &caller, run, &run->call);
	if (rc == SP_E_SYNTAX)
		run_fail(run, LIFECYCLE_MALFORMED, "data is no object");
	else if (rc != SP_OK)
		run_fail_rc(run, rc);
}

/* ---- the episode ---------------------------------------------------------- */

static void
wait_stop(struct lifecycle_run *run)
{
	if (!run->waiting)
		return;
	run->waiting = false;
	episode_unwatch(&run->wait);
	loop_timer_stop(run->lease->timer);
}

static void
wait_on_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct lifecycle_run *run = arg;

	(void)ep;
	if (n->what != EPISODE_ENDED)
		return;
	wait_stop(run);
	run->begun = false;
	loop_task_post(run->lease->task);
}

/* A client that came back at once: the place it left is not yet free. */
static void
wait_for(struct lifecycle_run *run, struct episode *ep)
{
	run->waiting = true;
	run->wait.news = wait_on_news;
	run->wait.arg = run;
	episode_watch(ep, &run->wait);
	loop_timer_set(run->lease->timer, LIFECYCLE_ROOM_MS);
}

static struct episode *
find_ending(const struct lifecycle_lease *l)
{
	struct episode *ep = episode_first(gate_episodes(l->gate));

	for (; ep != NULL; ep = LIST_NEXT(ep, link))
		if (ep->state == EPISODE_ENDING &&
		    view_eq(view_str(ep->env), view_str(l->env)))
			return ep;
	return NULL;
}

void
lifecycle_run_no_room(struct lifecycle_run *run)
{
	wait_stop(run);
	run_fail(run, LIFECYCLE_CAPACITY,
	    "an episode that ends has not left its place in time");
}

static void
run_on_made(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	struct lifecycle_run *run = arg;
	struct lifecycle_lease *l = run->lease;
	struct episode *other;

	if (l->ep != ep) {
		run_fail_ended(run);
		return;
	}
	if (refusal != 0) {
		l->ep = NULL;
		episode_unwatch(&l->watch);
		other = find_ending(l);
		if (refusal == SANDBOX_REFUSED_CAPACITY && other != NULL)
			wait_for(run, other);
		else
			run_fail_refused(run, refusal, what);
		return;
	}
	lifecycle_lease_keep(l);
	if (run->op == LIFECYCLE_OPEN)
		run_finish(run, LIFECYCLE_OK, VIEW_NONE, VIEW_NONE);
	else
		ask_worker(run);
}

/* Who has the one of that name, and what helps: 0; SP_E_*, nothing to say. */
static int
exists_why(const struct lifecycle_lease *l, struct view name, struct buf *out)
{
	uint64_t now = loop_now_ms(gate_loop(l->gate));

	if (l->shared)
		return SP_E_NOTFOUND;
	if (l->users > 0)
		return buf_add_str(out,
		    "an episode of that episode_id is there, and somebody is "
		    "connected to it: close that connection, or choose another "
		    "episode_id, or none");
	if (l->idle_ms > 0)
		return buf_printf(out,
		    "an episode of that episode_id is there, and a session of "
		    "openenv/session/create has it until nobody uses it for "
		    "%llu ms: end that by openenv/session/close, connect with "
		    "?session_id=%.*s to use the episode as well, or choose "
		    "another episode_id, or none",
		    (unsigned long long)l->idle_ms, VIEW_ARG(name));
	if (l->until_ms <= now)
		return SP_E_NOTFOUND;
	return buf_printf(out,
	    "an episode of that episode_id is there: its connection "
	    "broke, and it waits %llu ms more for who had it: connect "
	    "with ?session_id=%.*s to have it back, ask again after that "
	    "time, or choose another episode_id, or none",
	    (unsigned long long)(l->until_ms - now), VIEW_ARG(name));
}

static void
fail_exists(struct lifecycle_run *run, struct view name)
{
	const struct lifecycle_lease *l =
	    lifecycle_lease_find(view_str(run->lease->env), name);
	struct buf why = BUF_INIT(LIFECYCLE_WHY_MAX);

	if (l == NULL || l == run->lease || exists_why(l, name, &why) != SP_OK)
		run_fail_rc(run, SP_E_EXISTS);
	else
		run_finish(run, LIFECYCLE_EXISTS, buf_view(&why), VIEW_NONE);
	buf_clear(&why);
}

static void
make(struct lifecycle_run *run)
{
	struct lifecycle_lease *l = run->lease;
	struct episode_set *set = gate_episodes(l->gate);
	struct episode *ep;
	int rc;

	if (set == NULL) {
		run_fail_rc(run, SP_E_GONE);
		return;
	}
	ep = l->id[0] != '\0' ? episode_find(set, view_str(l->id)) : NULL;
	if (ep != NULL && ep->state == EPISODE_ENDING) {
		wait_for(run, ep);
		return;
	}
	/* another's by now, and not asked for in this reset: any will do */
	if (ep != NULL && !run->named)
		l->id[0] = '\0';
	rc = episode_create(set, view_str(l->env), view_str(l->id), run_on_made,
	    run, &ep);
	if (rc == SP_OK)
		lifecycle_lease_take(l, ep);
	else if (rc == SP_E_EXISTS)
		fail_exists(run, view_str(l->id));
	else
		run_fail_rc(run, rc);
}

static void
run_on_reset(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	struct lifecycle_run *run = arg;

	if (run->lease->ep != ep)
		run_fail_ended(run);
	else if (refusal != 0)
		run_fail_refused(run, refusal, what);
	else
		ask_worker(run);
}

/* What nothing has run in is as good as a new one. */
static bool
is_fresh(const struct lifecycle_lease *l)
{
	struct worker *w;

	if (l->ep->used || l->ep->state != EPISODE_LIVE)
		return false;
	w = worker_of(l->ep);
	return w == NULL || worker_state(w) != WORKER_FAILED;
}

/*
 * "episode_id" names the episode for the other doors.  What cannot be a name
 * is the worker's alone.
 * Returns: 0; 1 it was failed; SP_E_*.
 */
static int
take_name(struct lifecycle_run *run)
{
	struct lifecycle_lease *l = run->lease;
	struct view data = buf_view(&run->data);
	struct buf name = BUF_INIT(EPISODE_ID_MAX);
	struct jscan_span span;
	struct jscan s;
	int rc = SP_OK;

	jscan_init(&s, data, 0);
	if (data.n == 0 || jscan_find(data, VIEW("episode_id"), &span) != 1 ||
	    span.kind != JSCAN_STRING ||
	    jscan_decode(&s, &span, &name, NULL) != SP_OK ||
	    !ident_good(buf_view(&name)) ||
	    view_eq(buf_view(&name), VIEW("-"))) {
		buf_clear(&name);
		return SP_OK;
	}
	run->named = true;
	if (view_eq(buf_view(&name), view_str(l->id))) {
		buf_clear(&name);
		return SP_OK;
	}
	if (l->ep != NULL)
		rc = episode_rename(l->ep, buf_view(&name));
	else if (episode_find(gate_episodes(l->gate), buf_view(&name)) != NULL)
		rc = SP_E_EXISTS;
	if (rc == SP_OK)
		(void)snprintf(l->id, sizeof(l->id), "%.*s",
		    VIEW_ARG(buf_view(&name)));
	if (rc == SP_E_EXISTS) {
		fail_exists(run, buf_view(&name));
		rc = 1;
	}
	buf_clear(&name);
	return rc;
}

static void
reset(struct lifecycle_run *run)
{
	struct lifecycle_lease *l = run->lease;
	int rc = take_name(run);

	if (rc == 1)
		return;
	if (rc != SP_OK) {
		run_fail_rc(run, rc);
	} else if (l->ep == NULL) {
		make(run);
	} else if (is_fresh(l)) {
		ask_worker(run);
	} else {
		rc = episode_reset(l->ep, run_on_reset, run);
		if (rc != SP_OK)
			run_fail_rc(run, rc);
	}
}

/* ---- life ----------------------------------------------------------------- */

void
lifecycle_run_begin(struct lifecycle_run *run)
{
	run->begun = true;
	switch (run->op) {
	case LIFECYCLE_OPEN:
		if (run->lease->ep == NULL)
			make(run);
		else
			run_finish(run, LIFECYCLE_OK, VIEW_NONE, VIEW_NONE);
		return;
	case LIFECYCLE_RESET:
		reset(run);
		return;
	case LIFECYCLE_STEP:
	case LIFECYCLE_STATE:
	case LIFECYCLE_MCP:
		ask_worker(run);
		return;
	case LIFECYCLE_CLOSE:
	case LIFECYCLE_FRAME:
		break;
	}
	run_fail(run, LIFECYCLE_MALFORMED, "nothing to run");
}

int
lifecycle_run_start(struct lifecycle_lease *l, enum lifecycle_op op,
    struct view data,
    void (*done)(void *arg, struct lifecycle_run *run, enum lifecycle_outcome o,
	struct view body, struct view tail),
    void *arg, struct lifecycle_run **out)
{
	struct lifecycle_run *run = mem_calloc(1, sizeof(*run));

	if (run == NULL)
		return SP_E_NOMEM;
	buf_init(&run->data, data.n);
	if (buf_add_view(&run->data, data) != SP_OK) {
		mem_free(run);
		return SP_E_NOMEM;
	}
	run->lease = l;
	run->op = op;
	run->done = done;
	run->arg = arg;
	TAILQ_INSERT_TAIL(&l->runs, run, link);
	loop_task_post(l->task);
	*out = run;
	return SP_OK;
}

void
lifecycle_run_forget(struct lifecycle_run *run)
{
	run->done = NULL;
	if (!run->begun)
		lifecycle_run_free(run);
}

void
lifecycle_run_free(struct lifecycle_run *run)
{
	struct episode_set *set = gate_episodes(run->lease->gate);

	TAILQ_REMOVE(&run->lease->runs, run, link);
	wait_stop(run);
	if (run->call != NULL)
		worker_forget(run->call, VIEW_NONE);
	if (run->begun && set != NULL)
		episode_forget(set, run);
	buf_clear(&run->data);
	mem_free(run);
}
