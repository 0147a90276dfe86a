#include "config.h"

#include "episodes_door.h"

#include "base/clock.h"
#include "base/mem.h"
#include "conf/conf_env.h"
#include "episodes_call.h"
#include "episodes_conf.h"
#include "http/query.h"
#include "json/jwrite.h"

/* ---- answers -------------------------------------------------------------- */

enum gate_verdict
episodes_door_deny(struct episodes_call *c, unsigned status, const char *code,
    const char *reason)
{
	return gate_deny(c->r, status, code, reason);
}

void
episodes_door_fail(struct episodes_call *c, unsigned status, const char *code,
    struct view text)
{
	int rc = gate_error(c->r, status, code, "%.*s", VIEW_ARG(text));

	/* the head is out, or there is no memory for an error */
	if (rc != SP_OK && c->r->x != NULL)
		exchange_abort(c->r->x);
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}

void
episodes_door_fail_rc(struct episodes_call *c, int rc)
{
	switch (rc) {
	case SP_E_STATE:
		episodes_door_fail(c, 409, "episode_busy",
		    VIEW("the episode is being made, reset or ended: ask again "
			 "when that is over"));
		return;
	case SP_E_EXISTS:
		episodes_door_fail(c, 409, "episode_exists",
		    VIEW("an episode of that id is there: choose another, or "
			 "none"));
		return;
	case SP_E_SYNTAX:
		episodes_door_fail(c, 400, "bad_episode",
		    VIEW("an id is 1 to 128 of A-Z a-z 0-9 _ . -, without a "
			 "leading dot, and not \"-\" alone"));
		return;
	case SP_E_LIMIT:
		episodes_door_fail(c, 413, "request_too_large",
		    VIEW("that is more than a sandbox can be told: send less"));
		return;
	case SP_E_GONE:
		episodes_door_fail(c, 503, "helper_gone",
		    VIEW("the helper is away: try again later"));
		return;
	case SP_E_NOMEM:
		episodes_door_fail(c, 503, "no_memory",
		    VIEW("out of memory: try again later"));
		return;
	default:
		episodes_door_fail(c, 500, "internal_error",
		    view_str(err_str(rc)));
		return;
	}
}

void
episodes_door_fail_refused(struct episodes_call *c, unsigned refusal,
    struct view what)
{
	static const struct {
		unsigned status;
		const char *code, *text;
	} rows[] = {
		[SANDBOX_REFUSED_UNKNOWN] = { 404, "unknown_episode",
		    "the helper knows no such environment or episode" },
		[SANDBOX_REFUSED_CAPACITY] = { 503, "at_capacity",
		    "as many episodes of it are open as may be: end one, or "
		    "raise episodes" },
		[SANDBOX_REFUSED_FAILED] = { 500, "sandbox_failed",
		    "the sandbox could not be built" },
		[SANDBOX_REFUSED_UNCLEAN] = { 503, "teardown_incomplete",
		    "teardown incomplete: workload cgroup did not empty; "
		    "workspace restore refused" },
		[SANDBOX_REFUSED_STATE] = { 409, "episode_busy",
		    "not now: the episode is being reset, or ends" },
		[SANDBOX_REFUSED_UNSUPPORTED] = { 501, "not_supported",
		    "this host cannot do that" },
	};

	if (refusal >= sizeof(rows) / sizeof(rows[0]) || refusal == 0)
		refusal = SANDBOX_REFUSED_FAILED;
	episodes_door_fail(c, rows[refusal].status, rows[refusal].code,
	    what.n > 0 ? what : view_str(rows[refusal].text));
}

struct episode *
episodes_door_find(struct episodes_call *c)
{
	return episode_find(c->set, c->id);
}

static enum gate_verdict
unknown(struct episodes_call *c)
{
	return episodes_door_deny(c, 404, "unknown_episode",
	    "there is no episode of that id");
}

void
episodes_door_json(struct episodes_call *c, unsigned status, struct view body)
{
	struct head_field field = { VIEW("Content-Type"),
		VIEW("application/json") };
	const struct head_reply head = {
		.status = status,
		.content_length = (int64_t)body.n + 1,
		.fields = { .v = &field, .n = 1, .cap = 1 },
	};
	const struct view parts[] = { body, VIEW("\n") };
	int rc;

	c->r->status = status;
	rc = exchange_head(c->r->x, &head);
	if (rc == SP_OK)
		rc = exchange_datav(c->r->x, parts, 2);
	if (rc == SP_OK)
		rc = exchange_end(c->r->x);
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}

int
episodes_door_stream(struct episodes_call *c, const char *type)
{
	struct head_field fields[] = {
		{ VIEW("Content-Type"), view_str(type) },
		{ VIEW("Cache-Control"), VIEW("no-store") },
	};
	const struct head_reply head = {
		.status = 200,
		.content_length = -1,
		.fields = { .v = fields, .n = 2, .cap = 2 },
	};

	c->r->status = 200;
	return exchange_head(c->r->x, &head);
}

/* 204: no more is to be said. */
static void
answer_nothing(struct episodes_call *c)
{
	const struct head_reply head = { .status = 204, .content_length = 0 };
	int rc;

	c->r->status = 204;
	rc = exchange_head(c->r->x, &head);
	if (rc == SP_OK)
		rc = exchange_end(c->r->x);
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}

static void
put_time(struct jwrite *w, const char *key, uint64_t us)
{
	char text[32];

	clock_format(us, text);
	jwrite_key(w, key);
	jwrite_cstr(w, text);
}

static void
put_episode(struct jwrite *w, const struct episode *ep)
{
	jwrite_object(w);
	jwrite_key(w, "id");
	jwrite_cstr(w, ep->id);
	jwrite_key(w, "environment");
	jwrite_cstr(w, ep->env);
	jwrite_key(w, "state");
	jwrite_cstr(w, episode_state_name(ep->state));
	jwrite_key(w, "frozen");
	jwrite_bool(w, ep->frozen);
	jwrite_key(w, "slot");
	if (ep->placed)
		jwrite_u64(w, ep->slot);
	else
		jwrite_null(w);
	jwrite_key(w, "generation");
	if (ep->placed)
		jwrite_u64(w, ep->generation);
	else
		jwrite_null(w);
	jwrite_key(w, "resets");
	jwrite_u64(w, ep->resets);
	jwrite_key(w, "processes");
	jwrite_u64(w, ep->processes_n);
	put_time(w, "created_at", ep->created_us);
	put_time(w, "used_at", ep->used_us);
	jwrite_end_object(w);
}

static void
answer_episode(struct episodes_call *c, unsigned status,
    const struct episode *ep)
{
	struct buf out = BUF_INIT(EPISODES_JSON_MAX);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &out);
	put_episode(&w, ep);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		episodes_door_json(c, status, buf_view(&out));
	else
		episodes_door_fail_rc(c, rc);
	buf_clear(&out);
}

static void
answer_list(struct episodes_call *c)
{
	struct buf out = BUF_INIT(EPISODES_JSON_MAX);
	struct episode *ep;
	struct jwrite w;
	int rc;

	jwrite_init(&w, &out);
	jwrite_object(&w);
	jwrite_key(&w, "episodes");
	jwrite_array(&w);
	for (ep = episode_first(c->set); ep != NULL; ep = LIST_NEXT(ep, link))
		put_episode(&w, ep);
	jwrite_end_array(&w);
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		episodes_door_json(c, 200, buf_view(&out));
	else
		episodes_door_fail_rc(c, rc);
	buf_clear(&out);
}

/* ---- what is asked -------------------------------------------------------- */

static const struct route_row {
	const char *path, *method;
	enum episodes_op op;
} routes[] = {
	{ "", "GET", EPISODES_SHOW },
	{ "", "DELETE", EPISODES_END },
	{ "/reset", "POST", EPISODES_RESET },
	{ "/freeze", "POST", EPISODES_FREEZE },
	{ "/thaw", "POST", EPISODES_THAW },
	{ "/exec", "POST", EPISODES_EXEC },
	{ "/files", "GET", EPISODES_READ },
	{ "/files", "PUT", EPISODES_PUT },
	{ "/files", "DELETE", EPISODES_REMOVE },
	{ "/diff", "GET", EPISODES_DIFF },
	{ "/grade", "POST", EPISODES_GRADE },
	{ "/events", "GET", EPISODES_EVENTS },
	{ "/logs", "GET", EPISODES_LOGS },
	{ "/guarantees", "GET", EPISODES_GUARANTEES },
	{ "/worker", "GET", EPISODES_WORKER_SHOW },
	{ "/worker", "POST", EPISODES_WORKER },
};

/* What may be asked of "-", which is no episode. */
static bool
of_none(enum episodes_op op)
{
	return op == EPISODES_EXEC || op == EPISODES_GUARANTEES;
}

static enum gate_verdict
not_allowed(struct episodes_call *c, const char *allow)
{
	c->r->allow = allow;
	return episodes_door_deny(c, 405, "method_not_allowed",
	    "this path does not take that method");
}

static enum gate_verdict
route_one(struct episodes_call *c, struct view what)
{
	struct view method = c->r->x->request.method;
	const char *allow = NULL;
	size_t i;

	for (i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (!view_eq(what, view_str(routes[i].path)))
			continue;
		allow = routes[i].method;
		c->op = routes[i].op;
		if (view_eq(method, view_str(routes[i].method)))
			break;
	}
	if (allow == NULL)
		return episodes_door_deny(c, 404, "unknown_url",
		    "an episode has reset, freeze, thaw, exec, files, diff, "
		    "grade, events, logs, guarantees and worker beneath it, "
		    "no more");
	if (i == sizeof(routes) / sizeof(routes[0]))
		return not_allowed(c,
		    what.n == 0                          ? "DELETE, GET"
			: view_eq(what, VIEW("/files"))  ? "DELETE, GET, PUT"
			: view_eq(what, VIEW("/worker")) ? "GET, POST"
							 : allow);
	if (!of_none(c->op) && episodes_door_find(c) == NULL)
		return unknown(c);
	return c->op == EPISODES_EXEC ? episodes_exec_head(c) : GATE_PASS;
}

static enum gate_verdict
route(struct episodes_call *c)
{
	struct view rest = c->r->rest, method = c->r->x->request.method;
	size_t slash;

	if (rest.n == 0) {
		c->op = EPISODES_LIST;
		if (view_eq(method, VIEW("POST")))
			c->op = EPISODES_CREATE;
		else if (!view_eq(method, VIEW("GET")))
			return not_allowed(c, "GET, POST");
		return GATE_PASS;
	}
	rest = view_from(rest, 1);
	slash = view_find(rest, '/');
	c->id = view_sub(rest, 0, slash);
	return route_one(c, view_from(rest, slash));
}

static enum gate_verdict
on_head(struct gate_request *r)
{
	struct episodes_call *c = mem_calloc(1, sizeof(*c));

	if (c == NULL)
		return GATE_FAIL;
	c->r = r;
	c->set = gate_episodes(r->gate);
	r->ctx = c;
	r->principal = "operator";
	if (c->set == NULL)
		return episodes_door_deny(c, 503, "helper_gone",
		    "there is no helper to make an episode");
	return route(c);
}

/* ---- their lives ---------------------------------------------------------- */

static void
on_made(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	struct episodes_call *c = arg;

	c->making = NULL;
	if (refusal != 0)
		episodes_door_fail_refused(c, refusal, what);
	else
		answer_episode(c, 201, ep);
}

static void
on_reset_done(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	struct episodes_call *c = arg;

	if (refusal != 0)
		episodes_door_fail_refused(c, refusal, what);
	else
		answer_episode(c, 200, ep);
}

static void
on_ended(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	struct episodes_call *c = arg;

	(void)ep;
	if (refusal != 0)
		episodes_door_fail_refused(c, refusal, what);
	else
		answer_nothing(c);
}

static enum gate_verdict
create(struct episodes_call *c)
{
	struct buf env = BUF_INIT(EPISODE_ENV_MAX);
	struct buf id = BUF_INIT(EPISODE_ID_MAX);
	const char *why;
	int rc = episodes_run_create(buf_view(&c->r->body), &env, &id, &why);
	enum gate_verdict v = GATE_HOLD;

	if (rc == SP_E_SYNTAX)
		v = episodes_door_deny(c, 400, "bad_episode", why);
	else if (rc == SP_OK &&
	    conf_env_find(gate_conf(c->r->gate), buf_view(&env)) == NULL)
		v = episodes_door_deny(c, 404, "unknown_environment",
		    "the configuration has no environment of that name");
	else if (rc == SP_OK && view_eq(buf_view(&id), VIEW("-")))
		rc = SP_E_SYNTAX;
	else if (rc == SP_OK)
		rc = episode_create(c->set, buf_view(&env), buf_view(&id),
		    on_made, c, &c->making);
	if (rc != SP_OK && v == GATE_HOLD)
		episodes_door_fail_rc(c, rc);
	buf_clear(&env);
	buf_clear(&id);
	return v;
}

static enum gate_verdict
change(struct episodes_call *c)
{
	struct episode *ep = episodes_door_find(c);
	int rc;

	if (ep == NULL)
		return unknown(c);
	if (c->op == EPISODES_END)
		rc = episode_end(ep, on_ended, c);
	else if (c->op == EPISODES_RESET)
		rc = episode_reset(ep, on_reset_done, c);
	else
		rc = episode_freeze(ep, c->op == EPISODES_FREEZE, on_reset_done,
		    c);
	if (rc != SP_OK)
		episodes_door_fail_rc(c, rc);
	return GATE_HOLD;
}

static enum gate_verdict
show(struct episodes_call *c)
{
	const struct episode *ep = episodes_door_find(c);

	if (ep == NULL)
		return unknown(c);
	answer_episode(c, 200, ep);
	return GATE_HOLD;
}

static enum gate_verdict
guarantees(struct episodes_call *c)
{
	struct view text = episode_guarantees(c->set);

	/* without an environment there is nothing to tell */
	episodes_door_json(c, 200, text.n > 0 ? text : VIEW("[]"));
	return GATE_HOLD;
}

static enum gate_verdict
on_message(struct gate_request *r)
{
	struct episodes_call *c = r->ctx;

	switch (c->op) {
	case EPISODES_CREATE:
		return create(c);
	case EPISODES_LIST:
		answer_list(c);
		return GATE_HOLD;
	case EPISODES_SHOW:
		return show(c);
	case EPISODES_END:
	case EPISODES_RESET:
	case EPISODES_FREEZE:
	case EPISODES_THAW:
		return change(c);
	case EPISODES_EXEC:
		return episodes_exec_message(c);
	case EPISODES_READ:
	case EPISODES_PUT:
	case EPISODES_REMOVE:
	case EPISODES_DIFF:
		return episodes_files_message(c);
	case EPISODES_GRADE:
		return episodes_grade_message(c);
	case EPISODES_EVENTS:
		return episodes_events_message(c);
	case EPISODES_LOGS:
		return episodes_logs_message(c);
	case EPISODES_GUARANTEES:
		return guarantees(c);
	case EPISODES_WORKER:
		return episodes_worker_message(c);
	case EPISODES_WORKER_SHOW:
		return episodes_worker_show(c);
	}
	return GATE_FAIL;
}

/* ---- what comes later ----------------------------------------------------- */

static void
on_room(struct gate_request *r)
{
	struct episodes_call *c = r->ctx;

	if (c == NULL)
		return;
	episodes_exec_room(c);
	episodes_files_room(c);
	episodes_logs_room(c);
}

static void
on_body(struct gate_request *r, struct view data)
{
	episodes_exec_body(r->ctx, data);
}

static void
on_body_end(struct gate_request *r)
{
	episodes_exec_body_end(r->ctx);
}

/* Who follows what comes is cut: the episode is not over. */
static void
on_drain(struct gate_request *r)
{
	const struct episodes_call *c = r->ctx;

	if (c != NULL && (c->follow != NULL || episodes_logs_follows(c)))
		exchange_abort(r->x);
}

static size_t
on_holds(const struct gate_request *r)
{
	const struct episodes_call *c = r->ctx;

	return c != NULL ? episodes_exec_holds(c) + episodes_files_holds(c) : 0;
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	struct episodes_call *c = r->ctx;

	r->ctx = NULL;
	if (c == NULL)
		return GATE_PASS;
	if (c->set != NULL)
		episode_forget(c->set, c);
	/* nobody was told of it */
	if (c->making != NULL)
		(void)!episode_end(c->making, NULL, NULL);
	episodes_exec_clear(c);
	episodes_files_clear(c);
	episodes_grade_clear(c);
	episodes_events_clear(c);
	episodes_logs_clear(c);
	episodes_worker_clear(c);
	mem_free(c);
	return GATE_PASS;
}

const struct gate_module episodes_door_module = {
	.conf = &episodes_conf,
	.principals = GATE_OPERATOR | GATE_ORCHESTRATOR,
	.beneath = true,
	.wants_body = true,
	.hook = {
	    [GATE_HEAD] = on_head,
	    [GATE_MESSAGE] = on_message,
	    [GATE_FINISH] = on_finish,
	},
	.room = on_room,
	.body = on_body,
	.body_end = on_body_end,
	.drain = on_drain,
	.holds = on_holds,
};
