/* The worker of an episode, as an operator asks it. */
#include "config.h"

#include "base/mem.h"
#include "episodes_call.h"
#include "gate/worker.h"
#include "gate/worker_rpc.h"
#include "gate/worker_word.h"
#include "json/jrpc.h"
#include "json/jwrite.h"

enum {
	MESSAGES_MAX = 1024 * 1024, /* bytes of what it said meanwhile */
	ANSWER_MAX = 40 * 1024 * 1024,
};

struct episodes_worker {
	struct episodes_call *c;
	struct worker *worker;
	struct worker_call *call; /* NULL: it is over */
	struct buf messages; /* with commas between them */
	bool cut; /* of them */
};

/* ---- what it answers ------------------------------------------------------ */

static const struct {
	unsigned status;
	const char *code, *text;
} failures[] = {
	[WORKER_ERROR] = { 422, "worker_error", "the worker refused it" },
	[WORKER_GONE] = { 502, "worker_gone",
	    "the worker has failed: reset the episode" },
	[WORKER_TIMEOUT] = { 504, "worker_timeout",
	    "the worker did not answer in time, and counts as failed: reset "
	    "the episode" },
	[WORKER_BUSY] = { 429, "worker_busy",
	    "too many calls of the worker wait" },
	[WORKER_NONE] = { 404, "no_worker", "the environment has no worker" },
};

static void
fail(struct episodes_call *c, enum worker_result result, struct view what)
{
	episodes_door_fail(c, failures[result].status, failures[result].code,
	    what.n > 0 ? what : view_str(failures[result].text));
}

static int
put_answer(const struct episodes_worker *x, struct view body, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "result");
	jwrite_span(&w, body);
	jwrite_key(&w, "messages");
	jwrite_list(&w, buf_view(&x->messages), false);
	jwrite_key(&w, "messages_cut");
	jwrite_bool(&w, x->cut);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static void
on_done(void *arg, enum worker_result result, struct view body)
{
	struct episodes_worker *x = arg;
	struct buf out = BUF_INIT(ANSWER_MAX);
	int rc;

	x->call = NULL;
	if (result != WORKER_OK) {
		fail(x->c, result, body);
		return;
	}
	rc = put_answer(x, body, &out);
	if (rc == SP_OK)
		episodes_door_json(x->c, 200, buf_view(&out));
	else
		episodes_door_fail_rc(x->c, rc);
	buf_clear(&out);
}

/* An operator's shell has neither a model nor somebody to be asked. */
static void
refuse_request(struct episodes_worker *x, struct view json)
{
	struct buf b = BUF_INIT(16 * 1024);
	struct worker_rpc r;

	if (worker_rpc_read(json, &r) == SP_OK && r.has_method && r.id.n > 0 &&
	    jrpc_put_error(&b, worker_rpc_raw(&r, &r.id), JRPC_METHOD_NOT_FOUND,
		VIEW("Method not found"), VIEW_NONE) == SP_OK)
		(void)!worker_tell(x->worker, x->call, buf_view(&b));
	buf_clear(&b);
}

static void
on_message(void *arg, struct view json)
{
	struct episodes_worker *x = arg;
	size_t was = buf_len(&x->messages);
	int rc = SP_OK;

	if (was > 0)
		rc = buf_add_char(&x->messages, ',');
	if (rc == SP_OK)
		rc = buf_add_view(&x->messages, json);
	if (rc != SP_OK) {
		buf_truncate(&x->messages, was);
		x->cut = true;
	}
	refuse_request(x, json);
}

static const struct worker_caller caller = {
	.message = on_message,
	.done = on_done,
};

/* ---- what is asked -------------------------------------------------------- */

struct asked {
	struct worker_ask ask;
	bool have_op;
};

static int
read_op(struct jscan *s, const struct jscan_span *v, struct asked *out)
{
	static const char *const names[] = {
		[WORKER_RESET] = "reset",
		[WORKER_STEP] = "step",
		[WORKER_STATE] = "state",
		[WORKER_MCP] = "mcp",
	};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!jscan_is(s, v, view_str(names[i])))
			continue;
		out->ask.op = (enum worker_op)i;
		out->have_op = true;
		return SP_OK;
	}
	return SP_E_SYNTAX;
}

static int
read_asked(struct view text, struct asked *out)
{
	struct jscan_span key, v;
	struct jscan s;
	int64_t ms = 0;
	int rc = SP_E_SYNTAX, more;

	*out = (struct asked){ .ask.data = VIEW("{}"),
		.ask.whose = WORKER_OPERATORS };
	jscan_init(&s, text, 0);
	if (jscan_peek(&s) == JSCAN_OBJECT)
		rc = jscan_enter(&s);
	while (rc == SP_OK && (more = jscan_member(&s, &key)) != 0) {
		rc = more < 0 ? more : jscan_skip(&s, &v);
		if (rc != SP_OK)
			break;
		if (jscan_is(&s, &key, VIEW("op")))
			rc = read_op(&s, &v, out);
		else if (jscan_is(&s, &key, VIEW("data")))
			out->ask.data = jscan_raw(&s, &v);
		else if (!jscan_is(&s, &key, VIEW("timeout_ms")) ||
		    v.kind != JSCAN_NUMBER || jscan_i64(&s, &v, &ms) != SP_OK ||
		    ms < 0)
			rc = SP_E_SYNTAX;
	}
	out->ask.timeout_ms = (uint64_t)ms;
	if (rc == SP_OK)
		rc = jscan_finish(&s);
	return rc == SP_OK && out->have_op ? SP_OK : SP_E_SYNTAX;
}

static enum gate_verdict
bad(struct episodes_call *c)
{
	return episodes_door_deny(c, 400, "bad_operation",
	    "expected {\"op\": \"reset\", \"step\", \"state\" or \"mcp\", "
	    "\"data\": {...}} and perhaps \"timeout_ms\"; of mcp the data is a "
	    "JSON-RPC request");
}

static struct worker *
worker_here(struct episodes_call *c)
{
	struct episode *ep = episodes_door_find(c);

	return ep != NULL ? worker_of(ep) : NULL;
}

/* What a worker may be silent on is nothing to wait for. */
static bool
mcp_goes(struct episodes_call *c, struct view data)
{
	const char *why;

	switch (worker_word(data, &why)) {
	case WORKER_WORD_NOTES:
		episodes_door_fail(c, 400, "bad_operation",
		    VIEW("a notification has no answer: ask something"));
		return false;
	case WORKER_WORD_BAD:
	case WORKER_WORD_NO_METHOD:
		episodes_door_fail(c, 400, "bad_operation", view_str(why));
		return false;
	case WORKER_WORD_ASKS:
	default:
		return true;
	}
}

enum gate_verdict
episodes_worker_message(struct episodes_call *c)
{
	struct worker *w = worker_here(c);
	struct episodes_worker *x;
	struct asked asked;
	int rc;

	if (read_asked(buf_view(&c->r->body), &asked) != SP_OK)
		return bad(c);
	if (w == NULL) {
		fail(c, WORKER_NONE, VIEW_NONE);
		return GATE_HOLD;
	}
	x = mem_calloc(1, sizeof(*x));
	if (x == NULL)
		return GATE_FAIL;
	x->c = c;
	x->worker = w;
	buf_init(&x->messages, MESSAGES_MAX);
	c->worker = x;
	if (asked.ask.op == WORKER_MCP && !mcp_goes(c, asked.ask.data))
		return GATE_HOLD;
	rc = worker_call(w, &asked.ask, &caller, x, &x->call);
	if (rc == SP_E_SYNTAX)
		return bad(c);
	if (rc != SP_OK)
		episodes_door_fail_rc(c, rc);
	return GATE_HOLD;
}

/* ---- how it is ------------------------------------------------------------ */

static int
put_worker(const struct worker *w, struct buf *out)
{
	static const char *const states[] = {
		[WORKER_STARTING] = "starting",
		[WORKER_READY] = "ready",
		[WORKER_FAILED] = "failed",
	};
	struct jwrite j;

	jwrite_init(&j, out);
	jwrite_object(&j);
	jwrite_key(&j, "state");
	jwrite_cstr(&j, states[worker_state(w)]);
	jwrite_key(&j, "why");
	jwrite_string(&j, worker_why(w));
	jwrite_key(&j, "initialized");
	if (worker_initialized(w).n > 0)
		jwrite_span(&j, worker_initialized(w));
	else
		jwrite_null(&j);
	jwrite_key(&j, "stderr");
	jwrite_string(&j, worker_stderr(w));
	jwrite_end_object(&j);
	return jwrite_finish(&j);
}

enum gate_verdict
episodes_worker_show(struct episodes_call *c)
{
	struct buf out = BUF_INIT(ANSWER_MAX);
	const struct worker *w = worker_here(c);
	int rc;

	if (w == NULL) {
		fail(c, WORKER_NONE, VIEW_NONE);
		return GATE_HOLD;
	}
	rc = put_worker(w, &out);
	if (rc == SP_OK)
		episodes_door_json(c, 200, buf_view(&out));
	else
		episodes_door_fail_rc(c, rc);
	buf_clear(&out);
	return GATE_HOLD;
}

void
episodes_worker_clear(struct episodes_call *c)
{
	struct episodes_worker *x = c->worker;

	c->worker = NULL;
	if (x == NULL)
		return;
	if (x->call != NULL)
		worker_forget(x->call, VIEW("\"the operator is gone\""));
	buf_clear(&x->messages);
	mem_free(x);
}
