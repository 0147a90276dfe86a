#include "config.h"

#include "sessions.h"

#include "base/ident.h"
#include "base/mem.h"
#include "base/num.h"
#include "gate/metrics.h"
#include "sessions_call.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };

enum gate_verdict
sessions_deny(struct sessions_call *c, unsigned status, const char *code,
    const char *reason)
{
	return gate_deny(c->r, status, code, reason);
}

struct view
sessions_query(const struct sessions_call *c, struct view name)
{
	struct view rest = c->r->x->request.query, pair;
	size_t eq;

	while (view_split(&rest, '&', &pair)) {
		eq = view_find(pair, '=');
		if (view_eq(view_sub(pair, 0, eq), name))
			return eq < pair.n ? view_from(pair, eq + 1) : VIEW("");
	}
	return VIEW_NONE;
}

/* ---- metrics -------------------------------------------------------------- */

static uint64_t *sessions_open;

static void
collect(void *arg)
{
	*sessions_open = roster_count(gate_roster(arg));
}

static int
setup(struct gate *g)
{
	struct metric *m =
	    metrics_register(gate_metrics(g), METRICS_GAUGE, "sessions_open",
		"Sessions with a key that opens the door.", NULL, NULL);

	if (m == NULL)
		return SP_E_NOMEM;
	sessions_open = metrics_cell(m, NULL);
	return metrics_on_collect(gate_metrics(g), collect, g);
}

/* ---- what is asked -------------------------------------------------------- */

static enum gate_verdict
not_allowed(struct sessions_call *c, const char *allow)
{
	c->r->allow = allow;
	return sessions_deny(c, 405, "method_not_allowed",
	    "this path does not take that method");
}

static enum gate_verdict
route_all(struct sessions_call *c)
{
	struct view method = c->r->x->request.method;

	if (view_eq(method, VIEW("POST")))
		c->op = SESSIONS_CREATE;
	else if (view_eq(method, VIEW("GET")))
		c->op = SESSIONS_LIST;
	else
		return not_allowed(c, "GET, POST");
	return GATE_PASS;
}

static enum gate_verdict
route_trace(struct sessions_call *c)
{
	struct view view = sessions_query(c, VIEW("view"));

	c->op = SESSIONS_TRACE;
	if (view_eq(view, VIEW("train")))
		c->op = SESSIONS_TRAIN;
	else if (view.p != NULL && !view_eq(view, VIEW("all")))
		return sessions_deny(c, 400, "bad_view",
		    "a trace has two views: all and train");
	return GATE_PASS;
}

static enum gate_verdict
route_one(struct sessions_call *c, struct view what)
{
	struct view method = c->r->x->request.method;
	bool get = view_eq(method, VIEW("GET"));

	if (what.n == 0 && view_eq(method, VIEW("DELETE"))) {
		c->op = SESSIONS_END;
		return GATE_PASS;
	}
	if (what.n == 0) {
		c->op = SESSIONS_GET;
		return get ? GATE_PASS : not_allowed(c, "GET, DELETE");
	}
	if (view_eq(what, VIEW("/trace")))
		return get ? route_trace(c) : not_allowed(c, "GET");
	if (view_eq(what, VIEW("/trace_entries"))) {
		c->op = SESSIONS_ENTRIES;
		return get ? GATE_PASS : not_allowed(c, "GET");
	}
	return sessions_deny(c, 404, "unknown_url",
	    "a session has trace and trace_entries beneath it, no more");
}

static enum gate_verdict
route(struct sessions_call *c)
{
	struct view rest = c->r->rest;
	size_t slash;

	if (rest.n == 0)
		return route_all(c);
	rest = view_from(rest, 1);
	slash = view_find(rest, '/');
	c->id = view_sub(rest, 0, slash);
	if (!ident_good(c->id))
		return sessions_deny(c, 404, "unknown_session",
		    "no session can have that id: 1 to 128 of "
		    "A-Z a-z 0-9 _ . -, no leading dot");
	return route_one(c, view_from(rest, slash));
}

static enum gate_verdict
on_head(struct gate_request *r)
{
	struct sessions_call *c = mem_calloc(1, sizeof(*c));

	if (c == NULL)
		return GATE_FAIL;
	c->r = r;
	c->conf = r->conf;
	c->fd = -1;
	buf_init(&c->line, SESSIONS_LINE_MAX);
	buf_init(&c->out, (size_t)2 * SESSIONS_LINE_MAX);
	r->ctx = c;
	r->principal = "admin";
	return route(c);
}

/* ---- what is answered ----------------------------------------------------- */

static void
finish_error(struct sessions_call *c, unsigned status, const char *code,
    const char *text)
{
	if (gate_error(c->r, status, code, "%s", text) != SP_OK)
		exchange_abort(c->r->x);
	gate_finish(c->r);
}

static void
finish_refused(struct sessions_call *c, const struct roster_answer *a)
{
	bool create = c->op == SESSIONS_CREATE;

	if (a->rc == SP_E_TIMEOUT)
		finish_error(c, 504, "recorder_timeout",
		    "the recorder did not answer in time: ask again");
	else if (a->rc != SP_OK)
		finish_error(c, 503, "recorder_unavailable",
		    "the recorder is not there: try again later");
	else if (a->result == MESSAGE_SESSION_EXISTS)
		finish_error(c, 409, "session_exists",
		    "that id was used before: choose another, or none");
	else if (a->result == MESSAGE_SESSION_UNKNOWN)
		finish_error(c, 404, "unknown_session",
		    "there is no such session");
	else if (a->result == MESSAGE_SESSION_BAD && create)
		finish_error(c, 400, "bad_session_id",
		    "no session may have that id: its trace, or the seal of "
		    "that, would have the name of another file; choose "
		    "another, or none");
	else if (a->result == MESSAGE_SESSION_BAD)
		finish_error(c, 404, "no_trace",
		    "the session has no trace here: no call was made, it was "
		    "removed, or its capture is not configured any more");
	else if (a->result == MESSAGE_SESSION_FULL)
		finish_error(c, 503, "recorder_full",
		    create ? "the disk is full, or too many sessions are open"
			   : "the disk is full: the session is as it was; ask "
			     "again when there is room");
	else
		finish_error(c, 500, "recorder_failed",
		    "the recorder could not do it: see the error log");
}

static void
finish_json(struct sessions_call *c, unsigned status, struct view body)
{
	struct exchange *x = c->r->x;
	struct head_field fields[] = {
		{ VIEW("Content-Type"), VIEW("application/json") },
		{ VIEW("Cache-Control"), VIEW("no-store") },
	};
	const struct head_reply head = {
		.status = status,
		.content_length = (int64_t)body.n + 1,
		.fields = { .v = fields, .n = 2, .cap = 2 },
	};
	const struct view parts[] = { body, VIEW("\n") };
	int rc;

	c->r->status = status;
	rc = exchange_head(x, &head);
	if (rc == SP_OK)
		rc = exchange_datav(x, parts, 2);
	if (rc == SP_OK)
		rc = exchange_end(x);
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}

static void
finish_created(struct sessions_call *c, struct view doc)
{
	struct buf out = BUF_INIT(MESSAGE_BULK_MAX);
	int rc = roster_put(gate_roster(c->r->gate), &c->msg);

	if (rc == SP_OK)
		rc = sessions_new_answer(c, doc, &out);
	if (rc == SP_OK)
		finish_json(c, 201, buf_view(&out));
	else
		finish_error(c, 503, "no_memory",
		    "out of memory for the session: end it and try again");
	buf_clear(&out);
}

static void
on_answer(void *arg, struct roster_answer *a)
{
	struct sessions_call *c = arg;
	int fd = a->fd;

	c->ask = NULL;
	if (a->rc != SP_OK || a->result != MESSAGE_SESSION_OK) {
		finish_refused(c, a);
		return;
	}
	switch (c->op) {
	case SESSIONS_CREATE:
		finish_created(c, a->text);
		return;
	case SESSIONS_LIST:
	case SESSIONS_GET:
	case SESSIONS_END:
		finish_json(c, 200, a->text);
		return;
	case SESSIONS_TRACE:
	case SESSIONS_TRAIN:
	case SESSIONS_ENTRIES:
		a->fd = -1;
		sessions_view_begin(c, fd, a->size);
		return;
	}
}

/* ---- questions ------------------------------------------------------------ */

static int
put_list(struct sessions_call *c, struct buf *body)
{
	struct view limit = sessions_query(c, VIEW("limit"));
	struct view after = sessions_query(c, VIEW("after"));
	uint64_t n = LIST_DEFAULT;
	int rc;

	if ((limit.p != NULL && num_u64(limit, 1, LIST_MAX, &n) != 0) ||
	    (after.n > 0 && !ident_good(after)))
		return SP_E_SYNTAX;
	rc = wire_put_bytes(body, after);
	return rc == SP_OK ? wire_put_u32(body, (uint32_t)n) : rc;
}

static int
put_end(struct sessions_call *c, struct buf *body)
{
	static const char *const outcomes[] = { "done", "budget",
		"agent_timeout", "harness_error", "harness_loop",
		"setup_failed", "verifier_failed", "upstream",
		"capture_unusable", "oom", "aborted", "infra" };
	struct view outcome = sessions_query(c, VIEW("outcome"));
	bool known = outcome.n == 0;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		known = known || view_eq(outcome, view_str(outcomes[i]));
	if (!known)
		return SP_E_SYNTAX;
	rc = wire_put_bytes(body, c->id);
	return rc == SP_OK ? wire_put_bytes(body, outcome) : rc;
}

static int
put_question(struct sessions_call *c, struct buf *body)
{
	switch (c->op) {
	case SESSIONS_CREATE:
		return session_msg_put(body, &c->msg);
	case SESSIONS_LIST:
		return put_list(c, body);
	case SESSIONS_END:
		return put_end(c, body);
	case SESSIONS_GET:
	case SESSIONS_TRACE:
	case SESSIONS_TRAIN:
	case SESSIONS_ENTRIES:
		break;
	}
	return wire_put_bytes(body, c->id);
}

static int
ask(struct sessions_call *c)
{
	static const enum message_type types[] = {
		[SESSIONS_CREATE] = MESSAGE_SESSION_CREATE,
		[SESSIONS_LIST] = MESSAGE_SESSION_LIST,
		[SESSIONS_GET] = MESSAGE_SESSION_GET,
		[SESSIONS_END] = MESSAGE_SESSION_END,
		[SESSIONS_TRACE] = MESSAGE_SESSION_TRACE,
		[SESSIONS_TRAIN] = MESSAGE_SESSION_TRACE,
		[SESSIONS_ENTRIES] = MESSAGE_SESSION_TRACE,
	};
	const struct roster_ask_owner owner = { on_answer, c };
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX - 4);
	int rc = put_question(c, &body);

	if (rc == SP_OK)
		rc = roster_ask(gate_roster(c->r->gate), types[c->op],
		    buf_view(&body), &owner, &c->ask);
	buf_clear(&body);
	return rc;
}

static enum gate_verdict
on_message(struct gate_request *r)
{
	struct sessions_call *c = r->ctx;
	int rc = SP_OK;

	r->session = c->id;
	if (c->op == SESSIONS_CREATE)
		rc = sessions_new_read(c);
	if (rc == SP_E_SYNTAX)
		return sessions_deny(c, 400, "bad_session", c->why);
	if (rc == SP_OK)
		rc = ask(c);
	switch (rc) {
	case SP_OK:
		return GATE_HOLD;
	case SP_E_SYNTAX:
		return sessions_deny(c, 400, "bad_query",
		    c->op == SESSIONS_END
			? "that is no outcome of a session; expected done, "
			  "budget, agent_timeout, harness_error, "
			  "harness_loop, setup_failed, verifier_failed, "
			  "upstream, capture_unusable, oom, aborted or infra"
			: "limit is 1 to 1000, after is a session's id");
	case SP_E_STATE:
	case SP_E_LIMIT:
		return sessions_deny(c, 503, "recorder_unavailable",
		    "the recorder does not answer now: try again later");
	default:
		return GATE_FAIL;
	}
}

/* ---- the end -------------------------------------------------------------- */

static void
on_room(struct gate_request *r)
{
	if (r->ctx != NULL)
		sessions_view_room(r->ctx);
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	struct sessions_call *c = r->ctx;

	r->ctx = NULL;
	if (c == NULL)
		return GATE_PASS;
	roster_ask_cancel(c->ask);
	sessions_view_clear(c);
	buf_clear(&c->text);
	mem_zero(c->key, sizeof(c->key));
	mem_free(c);
	return GATE_PASS;
}

const struct gate_module sessions_module = {
	.conf = &sessions_conf,
	.principals = GATE_ADMIN | GATE_ORCHESTRATOR,
	.beneath = true,
	.wants_body = true,
	.setup = setup,
	.hook = {
	    [GATE_HEAD] = on_head,
	    [GATE_MESSAGE] = on_message,
	    [GATE_FINISH] = on_finish,
	},
	.room = on_room,
};
