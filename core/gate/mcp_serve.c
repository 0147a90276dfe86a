/* One message of a client after the other: ours to answer, or the worker's. */
#include "config.h"

#include "gate/mcp_priv.h"

#include "base/mem.h"
#include "gate/feed.h"
#include "json/jsplice.h"
#include "json/jwrite.h"

#define FAILED "Environment operation failed"

enum { SERVE_METHOD_MAX = 256 };

/* ---- telling ---------------------------------------------------------------- */

static void
serve_log(const struct mcp_client *c, const char *operation, struct view tool,
    const char *outcome, uint64_t since_us)
{
	uint64_t now = loop_now_us(gate_loop(c->r->gate));
	const struct episode *ep = mcp_episode(c);
	const struct door_operation op = {
		.principal = c->door->principal,
		.door = c->door->name,
		.operation = operation,
		.episode = view_str(ep != NULL ? ep->id : c->episode),
		.tool = tool,
		.outcome = outcome,
		.us = since_us != 0 && now > since_us ? now - since_us : 0,
	};

	door_log(c->r, &op);
}

/* 1: it was told; SP_E_NOMEM. */
static int
serve_answer(struct mcp_client *c, int rc, struct buf *out)
{
	if (rc == SP_OK)
		mcp_client_answer(c, buf_view(out));
	buf_clear(out);
	return rc == SP_OK ? 1 : SP_E_NOMEM;
}

static int
serve_error_text(struct mcp_client *c, struct view id, int code,
    struct view message)
{
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	int rc = jrpc_put_error(&out, id, code, message,
	    c->spec ? VIEW_NONE : VIEW("null"));

	return serve_answer(c, rc, &out);
}

int
mcp_serve_error(struct mcp_client *c, struct view id, int code,
    const char *message)
{
	return serve_error_text(c, id, code, view_str(message));
}

static int
serve_result(struct mcp_client *c, struct view id, struct view result)
{
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	int rc = jrpc_put_result(&out, id, result);

	return serve_answer(c, rc, &out);
}

static int
serve_refuse(struct mcp_client *c, const struct jrpc *m, const char *operation,
    int code, const char *message)
{
	serve_log(c, operation, VIEW_NONE, "invalid", 0);
	return mcp_serve_error(c, jrpc_raw(m, &m->id), code, message);
}

/* "WHAT: NAME" */
static int
serve_refuse_named(struct mcp_client *c, const struct jrpc *m, int code,
    const char *what, struct view name)
{
	struct buf text = BUF_INIT(SERVE_METHOD_MAX * 6 + 64);
	int rc = buf_add_str(&text, what);

	if (rc == SP_OK)
		rc = buf_add_view(&text,
		    view_sub(name, 0, SERVE_METHOD_MAX * 6));
	if (rc == SP_OK)
		rc = serve_error_text(c, jrpc_raw(m, &m->id), code,
		    buf_view(&text));
	buf_clear(&text);
	return rc;
}

static int
serve_no_method(struct mcp_client *c, const struct jrpc *m)
{
	struct buf name = BUF_INIT(SERVE_METHOD_MAX * 6);
	int rc;

	serve_log(c, "other", VIEW_NONE, "invalid", 0);
	if (c->spec)
		return mcp_serve_error(c, jrpc_raw(m, &m->id),
		    JRPC_METHOD_NOT_FOUND, "Method not found");
	/* what is longer is cut: it is told nothing new */
	if (jrpc_string(m, &m->method, &name) == SP_E_NOMEM)
		return SP_E_NOMEM;
	rc = serve_refuse_named(c, m, JRPC_METHOD_NOT_FOUND,
	    "Method not found: ", buf_view(&name));
	buf_clear(&name);
	return rc;
}

/* Of what is refused before it is looked at. */
static const char *
serve_operation(const struct jrpc *m)
{
	static const char *const names[] = { "tools/call", "tools/list",
		"initialize", "ping" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (jrpc_is(m, view_str(names[i])))
			return names[i];
	return "other";
}

/*
 * A place for it, which its call takes over.  A request's own message has that
 * of the request.
 * Returns: 0; 1 it was refused; SP_E_NOMEM.
 */
static int
serve_admit(struct mcp_client *c, const struct jrpc *m)
{
	struct view id = jrpc_raw(m, &m->id);
	enum bound_word w;

	if (c->how != MCP_SOCKET && !c->batch)
		return SP_OK;
	w = bound_call(gate_bound(c->r->gate), c->r, &c->turn);
	if (w == BOUND_TAKEN)
		return SP_OK;
	serve_log(c, serve_operation(m), VIEW_NONE, "limited", 0);
	return mcp_serve_error(c, id.n > MCP_RPC_ID_MAX ? VIEW_NONE : id,
	    JRPC_SERVER_ERROR, bound_reason(w));
}

/* ---- calls ------------------------------------------------------------------ */

static void
call_free(struct mcp_call *k)
{
	if (k->waits)
		worker_unwatch(&k->ready);
	if (k->client->peer != NULL)
		mcp_session_call_over(k->client->peer, k);
	LIST_REMOVE(k, link);
	k->client->calls_n--;
	bound_give(&k->turn);
	buf_clear(&k->text);
	buf_clear(&k->id);
	buf_clear(&k->tool);
	mem_free(k);
}

/* What became of it, for the log. */
static const char *
call_outcome(enum worker_result result, struct view body)
{
	struct jscan_span error;

	switch (result) {
	case WORKER_OK:
		return jscan_find(body, VIEW("error"), &error) == 1 &&
			error.kind != JSCAN_NULL
		    ? "error"
		    : "ok";
	case WORKER_ERROR:
		return "error";
	case WORKER_TIMEOUT:
		return "timeout";
	case WORKER_BUSY:
		return "busy";
	case WORKER_GONE:
	case WORKER_NONE:
	default:
		return "gone";
	}
}

/*
 * It ends with that answer, which is the client's; what the client does with
 * it may end the client too, so nothing is touched after.
 */
static void
call_end(struct mcp_call *k, const char *outcome, struct buf *answer, int rc)
{
	struct mcp_client *c = k->client;

	serve_log(c, k->operation, buf_view(&k->tool), outcome, k->started_us);
	if (rc != SP_OK) {
		buf_reset(answer, 4096);
		rc = jrpc_put_error(answer, buf_view(&k->id),
		    JRPC_INTERNAL_ERROR, VIEW(FAILED),
		    c->spec ? VIEW_NONE : VIEW("null"));
	}
	call_free(k);
	/* without memory even for that, the client sees its reply cut */
	if (rc == SP_OK)
		mcp_client_answer(c, buf_view(answer));
	else
		mcp_client_end(c);
	buf_clear(answer);
}

/* What an observer sees of a call that the worker answered. */
static void
call_feed(const struct mcp_call *k, struct view response)
{
	struct episode *ep = mcp_episode(k->client);
	struct buf b = BUF_INIT(MCP_ANSWER_MAX * 2);
	struct jwrite w;

	if (ep == NULL || !k->fed)
		return;
	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_key(&w, "source");
	jwrite_cstr(&w, "daemon");
	jwrite_key(&w, "operation");
	jwrite_cstr(&w, "mcp");
	jwrite_key(&w, "request");
	jwrite_span(&w, buf_view(&k->text));
	jwrite_key(&w, "response");
	jwrite_span(&w, response);
	jwrite_end_object(&w);
	if (jwrite_finish(&w) == SP_OK)
		feed_add(feed_of(ep), FEED_HARNESS, buf_view(&b));
	else
		feed_add_gap(feed_of(ep), FEED_HARNESS, 1, "memory");
	buf_clear(&b);
}

static void
call_done(void *arg, enum worker_result result, struct view body)
{
	struct mcp_call *k = arg;
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	int rc = SP_E_STATE;

	k->wc = NULL;
	if (result == WORKER_OK && k->list)
		rc = mcp_text_list(k->client, body, &out);
	else if (result == WORKER_OK)
		rc = buf_add_view(&out, body);
	if (result == WORKER_OK)
		call_feed(k, body);
	call_end(k, call_outcome(result, body), &out, rc);
}

static void
call_message(void *arg, struct view json)
{
	struct mcp_call *k = arg;

	struct mcp_client *c = k->client;

	mcp_serve_heard(c, k, json);
	/* what is said in its call is not lost: the worker waits with it */
	if (!c->ended && !c->held && mcp_client_full(c))
		mcp_serve_hold(c, true);
}

static const struct worker_caller caller_spec = {
	.message = call_message,
	.done = call_done,
};
/* the plain dialect has no way to be told anything before the answer */
static const struct worker_caller caller_plain = { .done = call_done };

/* 0 with *out; 1: it was refused, there are too many; SP_E_NOMEM. */
static int
call_new(struct mcp_client *c, const struct jrpc *m, const char *operation,
    struct mcp_call **out)
{
	struct view id = jrpc_raw(m, &m->id);
	struct mcp_call *k;
	int rc;

	if (c->calls_n >= MCP_CALLS_MAX || id.n > MCP_RPC_ID_MAX) {
		serve_log(c, operation, VIEW_NONE, "busy", 0);
		return mcp_serve_error(c,
		    id.n > MCP_RPC_ID_MAX ? VIEW_NONE : id, JRPC_INTERNAL_ERROR,
		    FAILED);
	}
	k = mem_calloc(1, sizeof(*k));
	if (k == NULL)
		return SP_E_NOMEM;
	k->client = c;
	k->operation = operation;
	k->turn = c->turn;
	c->turn.place = NULL;
	k->started_us = loop_now_us(gate_loop(c->r->gate));
	buf_init(&k->text, MCP_ANSWER_MAX + m->text.n);
	buf_init(&k->id, MCP_RPC_ID_MAX);
	buf_init(&k->tool, MCP_TOOL_MAX);
	LIST_INSERT_HEAD(&c->calls, k, link);
	c->calls_n++;
	rc = buf_add_view(&k->id, id);
	if (rc != SP_OK) {
		call_free(k);
		return SP_E_NOMEM;
	}
	*out = k;
	return SP_OK;
}

/* An answer to tools/list that no worker gave. */
static void
call_list_alone(struct mcp_call *k)
{
	struct buf none = BUF_INIT(MCP_RPC_ID_MAX + 128);
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	int rc =
	    jrpc_put_result(&none, buf_view(&k->id), VIEW("{\"tools\":[]}"));

	if (rc == SP_OK)
		rc = mcp_text_list(k->client, buf_view(&none), &out);
	buf_clear(&none);
	call_end(k, rc == SP_OK ? "ok" : "error", &out, rc);
}

/* To the worker with it.  1: it is answered, now or later. */
static int
call_send(struct mcp_call *k)
{
	struct mcp_client *c = k->client;
	struct episode *ep = mcp_episode(c);
	struct worker *w = ep != NULL ? worker_of(ep) : NULL;
	const struct worker_ask ask = { .op = WORKER_MCP,
		.data = buf_view(&k->text) };
	struct buf out = BUF_INIT(4096);
	int rc;

	if (w == NULL && ep != NULL && k->list &&
	    c->conf->environment->worker == CONF_ENV_WORKER_NONE) {
		call_list_alone(k);
		return 1;
	}
	rc = w == NULL ? SP_E_GONE
		       : worker_call(w, &ask,
			     c->spec ? &caller_spec : &caller_plain, k, &k->wc);
	if (rc != SP_OK)
		call_end(k, w == NULL ? "gone" : "error", &out, rc);
	return 1;
}

static void
call_forget(struct mcp_call *k)
{
	if (k->wc != NULL)
		worker_forget(k->wc, VIEW("\"client gone\""));
	if (k->own)
		k->client->door->own->forget(k);
	serve_log(k->client, k->operation, buf_view(&k->tool), "client_gone",
	    k->started_us);
	call_free(k);
}

void
mcp_serve_hold(struct mcp_client *c, bool on)
{
	struct mcp_call *k;

	c->held = on;
	LIST_FOREACH (k, &c->calls, link)
		if (k->wc != NULL && !k->own)
			worker_hold(k->wc, on);
}

void
mcp_serve_forget(struct mcp_client *c)
{
	struct mcp_call *k;

	while ((k = LIST_FIRST(&c->calls)) != NULL)
		call_forget(k);
}

/* ---- tools of the door's own ------------------------------------------------ */

struct gate_request *
mcp_call_request(const struct mcp_call *c)
{
	return c->client->r;
}

struct episode *
mcp_call_episode(const struct mcp_call *c)
{
	return mcp_episode(c->client);
}

void **
mcp_call_ctx(struct mcp_call *c)
{
	return &c->ctx;
}

void
mcp_own_result(struct mcp_call *c, struct view result)
{
	struct buf out = BUF_INIT(MCP_ANSWER_MAX * 2);
	int rc = jrpc_put_result(&out, buf_view(&c->id), result);

	call_end(c, rc == SP_OK ? "ok" : "error", &out, rc);
}

void
mcp_own_error(struct mcp_call *c, enum jrpc_code code, const char *message)
{
	struct buf out = BUF_INIT(MCP_RPC_ID_MAX + 4096);
	int rc = jrpc_put_error(&out, buf_view(&c->id), code, view_str(message),
	    c->client->spec ? VIEW_NONE : VIEW("null"));

	call_end(c, "error", &out, rc);
}

/* ---- tools ------------------------------------------------------------------ */

static int
serve_list(struct mcp_client *c, const struct jrpc *m)
{
	struct mcp_call *k = NULL;
	int rc = call_new(c, m, "tools/list", &k);

	if (rc != SP_OK)
		return rc;
	k->list = true;
	rc = c->spec ? buf_add_view(&k->text, m->text)
		     : mcp_text_plain(m, &k->text);
	if (rc != SP_OK) {
		call_free(k);
		return SP_E_NOMEM;
	}
	return call_send(k);
}

static int
call_tool(struct mcp_call *k, const struct jrpc *m,
    const struct jscan_span *args)
{
	struct mcp_client *c = k->client;
	const struct mcp_own *own = c->door->own;
	int rc;

	if (own != NULL && own->has(c->r, buf_view(&k->tool))) {
		k->own = true;
		own->call(k, buf_view(&k->tool), m, args);
		return 1;
	}
	rc = c->spec ? buf_add_view(&k->text, m->text)
		     : mcp_text_plain(m, &k->text);
	if (rc != SP_OK) {
		call_free(k);
		return SP_E_NOMEM;
	}
	k->fed = true;
	return call_send(k);
}

/* Whether it may be called: what is denied looks as what there is not. */
static bool
serve_may_call(const struct mcp_client *c, struct view tool)
{
	const struct mcp_own *own = c->door->own;

	if (!mcp_visible(c->r, tool))
		return false;
	return !view_starts(tool, VIEW("grader.")) ||
	    (own != NULL && own->has(c->r, tool));
}

static int
serve_no_tool(struct mcp_client *c, const struct jrpc *m, struct view tool)
{
	serve_log(c, "tools/call", tool, "denied", 0);
	if (c->spec)
		return serve_refuse_named(c, m, JRPC_INVALID_PARAMS,
		    "Unknown tool: ", tool);
	return mcp_serve_error(c, jrpc_raw(m, &m->id), JRPC_INVALID_PARAMS,
	    "Tool not found");
}

/* 0 with the name in *tool; 1: it was refused; SP_E_NOMEM. */
static int
serve_tool_name(struct mcp_client *c, const struct jrpc *m, struct buf *tool,
    struct jscan_span *args)
{
	struct jscan_span name;
	int rc = jrpc_member(m, &m->params, VIEW("name"), &name);
	int has = jrpc_member(m, &m->params, VIEW("arguments"), args);

	if (rc != 1 || name.kind != JSCAN_STRING || has < 0 ||
	    (has == 1 && args->kind != JSCAN_OBJECT))
		return serve_refuse(c, m, "tools/call", JRPC_INVALID_PARAMS,
		    "Invalid parameters");
	rc = jrpc_string(m, &name, tool);
	/* too long, or half a surrogate pair: no tool is named so */
	if (rc == SP_E_LIMIT || rc == SP_E_SYNTAX)
		return serve_no_tool(c, m, VIEW_NONE);
	return rc;
}

static int
serve_call(struct mcp_client *c, const struct jrpc *m)
{
	struct buf tool = BUF_INIT(MCP_TOOL_MAX);
	struct jscan_span args;
	struct mcp_call *k = NULL;
	int rc = serve_tool_name(c, m, &tool, &args);

	if (rc == SP_OK && !serve_may_call(c, buf_view(&tool)))
		rc = serve_no_tool(c, m, buf_view(&tool));
	else if (rc == SP_OK)
		rc = call_new(c, m, "tools/call", &k);
	if (rc == SP_OK && k != NULL)
		buf_take(&k->tool, &tool);
	buf_clear(&tool);
	return rc == SP_OK && k != NULL ? call_tool(k, m, &args) : rc;
}

/* ---- the plain dialect ------------------------------------------------------ */

static int
plain_create(struct mcp_client *c, const struct jrpc *m)
{
	struct buf out = BUF_INIT(128);
	struct mcp_session *s;
	int rc = mcp_session_new(c, true, &s);

	if (rc == SP_E_LIMIT)
		return serve_refuse(c, m, "openenv/session/create",
		    JRPC_INVALID_PARAMS, "Invalid parameters");
	if (rc == SP_OK)
		rc = buf_printf(&out, "{\"session_id\":\"%s\"}", s->id);
	if (rc == SP_OK)
		rc = serve_result(c, jrpc_raw(m, &m->id), buf_view(&out));
	buf_clear(&out);
	serve_log(c, "openenv/session/create", VIEW_NONE, "ok", 0);
	return rc;
}

static int
plain_close(struct mcp_client *c, const struct jrpc *m, struct mcp_session *s)
{
	struct buf out = BUF_INIT(128);
	int rc;

	if (s == NULL)
		return serve_refuse(c, m, "openenv/session/close",
		    JRPC_INVALID_PARAMS, "Invalid parameters");
	rc = buf_printf(&out, "{\"session_id\":\"%s\",\"closed\":true}", s->id);
	mcp_session_end(s);
	if (rc == SP_OK)
		rc = serve_result(c, jrpc_raw(m, &m->id), buf_view(&out));
	buf_clear(&out);
	serve_log(c, "openenv/session/close", VIEW_NONE, "ok", 0);
	return rc;
}

/* params.session_id: 0, *out NULL when there is none; SP_E_NOTFOUND. */
static int
plain_session(struct mcp_client *c, const struct jrpc *m,
    struct mcp_session **out)
{
	struct buf id = BUF_INIT(MCP_ID_CHARS + 8);
	struct jscan_span v;
	int rc = jrpc_member(m, &m->params, VIEW("session_id"), &v);

	*out = NULL;
	if (rc == 0)
		return SP_OK;
	rc = rc == 1 ? jrpc_string(m, &v, &id) : SP_E_NOTFOUND;
	if (rc == SP_OK)
		*out = mcp_session_find(c, buf_view(&id), true);
	buf_clear(&id);
	if (rc == SP_E_NOMEM)
		return rc;
	return *out != NULL ? SP_OK : SP_E_NOTFOUND;
}

/* The order of these is openenvd's. */
static int
plain_request(struct mcp_client *c, const struct jrpc *m)
{
	struct mcp_session *s = NULL;
	int rc = serve_admit(c, m);

	if (rc != SP_OK)
		return rc;
	if (jrpc_is(m, VIEW("openenv/session/create")))
		return plain_create(c, m);
	rc = plain_session(c, m, &s);
	if (rc == SP_E_NOTFOUND)
		return serve_refuse(c, m, "invalid", JRPC_INVALID_PARAMS,
		    "Invalid parameters");
	if (rc != SP_OK)
		return rc;
	if (jrpc_is(m, VIEW("openenv/session/close")))
		return plain_close(c, m, s);
	if (jrpc_is(m, VIEW("tools/call")))
		return serve_call(c, m);
	if (jrpc_is(m, VIEW("tools/list")))
		return serve_list(c, m);
	return serve_no_method(c, m);
}

static int
serve_plain(struct mcp_client *c, struct view text)
{
	struct jrpc m;
	int rc = jrpc_read(text, &m);

	if (rc == SP_E_SYNTAX || rc == SP_E_LIMIT)
		return serve_refuse(c, &m, "invalid", JRPC_PARSE_ERROR,
		    "Parse error");
	if (rc != SP_OK || m.kind == JRPC_RESPONSE ||
	    m.params.kind == JSCAN_ARRAY)
		return serve_refuse(c, &m, "invalid", JRPC_INVALID_PARAMS,
		    "Invalid parameters");
	return plain_request(c, &m);
}

/* ---- initialize ------------------------------------------------------------- */

/* What the client can answer from now on; its session, over HTTP. */
static int
init_peer(struct mcp_client *c, struct view params)
{
	struct mcp_session *s;
	int rc = SP_OK;

	if (c->how == MCP_SOCKET) {
		c->peer = &c->own;
	} else {
		rc = mcp_session_new(c, false, &s);
		if (rc == SP_OK)
			mcp_session_enter(s, c);
	}
	if (rc == SP_OK)
		c->peer->features =
		    mcp_text_features(params) & c->conf->features;
	return rc;
}

/* The worker is ready, or there is none. */
static void
init_answer(struct mcp_call *k, struct view worker)
{
	struct mcp_client *c = k->client;
	struct buf result = BUF_INIT(MCP_ANSWER_MAX);
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	struct view params = buf_view(&k->text);
	int rc = mcp_text_initialize(c, worker, params, &result);

	if (rc == SP_OK)
		rc = init_peer(c, params);
	if (rc == SP_OK)
		rc = jrpc_put_result(&out, buf_view(&k->id), buf_view(&result));
	buf_clear(&result);
	call_end(k,
	    rc == SP_OK            ? "ok"
		: rc == SP_E_LIMIT ? "busy"
				   : "error",
	    &out, rc);
}

/* 1: not yet. */
static int
init_try(struct mcp_call *k)
{
	struct mcp_client *c = k->client;
	struct episode *ep = mcp_episode(c);
	struct worker *w = ep != NULL ? worker_of(ep) : NULL;
	struct buf out = BUF_INIT(4096);

	if (ep != NULL && w == NULL &&
	    c->conf->environment->worker == CONF_ENV_WORKER_NONE)
		init_answer(k, VIEW_NONE);
	else if (w == NULL || worker_state(w) == WORKER_FAILED)
		call_end(k, "gone", &out, SP_E_GONE);
	else if (worker_state(w) == WORKER_READY)
		init_answer(k, worker_initialized(w));
	else
		return 1;
	return 0;
}

static void
init_changed(void *arg, enum worker_state state)
{
	struct mcp_call *k = arg;

	if (state == WORKER_STARTING)
		return;
	worker_unwatch(&k->ready);
	k->waits = false;
	if (init_try(k) == 0)
		return;
	/* it is another one, which starts */
	k->waits = true;
	worker_watch(worker_of(mcp_episode(k->client)), &k->ready);
}

void
mcp_serve_over(struct mcp_client *c)
{
	struct buf out = BUF_INIT(4096);
	struct mcp_call *k, *next;

	for (k = LIST_FIRST(&c->calls); k != NULL; k = next) {
		next = LIST_NEXT(k, link);
		if (k->waits)
			call_end(k, "gone", &out, SP_E_GONE);
	}
}

static int
spec_initialize(struct mcp_client *c, const struct jrpc *m)
{
	struct mcp_call *k = NULL;
	int rc;

	if (c->peer != NULL)
		return serve_refuse(c, m, "initialize", JRPC_INVALID_REQUEST,
		    "Invalid Request: Server already initialized");
	rc = call_new(c, m, "initialize", &k);
	if (rc != SP_OK)
		return rc;
	rc = buf_add_view(&k->text, jrpc_raw(m, &m->params));
	if (rc != SP_OK) {
		call_free(k);
		return SP_E_NOMEM;
	}
	k->ready.changed = init_changed;
	k->ready.arg = k;
	if (init_try(k) == 1) {
		k->waits = true;
		worker_watch(worker_of(mcp_episode(c)), &k->ready);
	}
	return 1;
}

/* ---- the specification's dialect -------------------------------------------- */

static const struct spec_method {
	const char *name;
	unsigned feature; /* 0: always */
} methods[] = {
	{ "resources/list", CONF_MCP_RESOURCES },
	{ "resources/templates/list", CONF_MCP_RESOURCES },
	{ "resources/read", CONF_MCP_RESOURCES },
	{ "resources/subscribe", CONF_MCP_RESOURCES },
	{ "resources/unsubscribe", CONF_MCP_RESOURCES },
	{ "prompts/list", CONF_MCP_PROMPTS },
	{ "prompts/get", CONF_MCP_PROMPTS },
	{ "completion/complete", CONF_MCP_COMPLETIONS },
	{ "logging/setLevel", CONF_MCP_LOGGING },
};

/*
 * What else the worker may be asked.  Only these: env/reset and its like are
 * methods of the worker as well, and nobody's but the orchestrator's.
 */
static int
spec_other(struct mcp_client *c, const struct jrpc *m)
{
	struct episode *ep = mcp_episode(c);
	struct worker *w = ep != NULL ? worker_of(ep) : NULL;
	struct mcp_call *k = NULL;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (jrpc_is(m, view_str(methods[i].name)))
			break;
	if (i == sizeof(methods) / sizeof(methods[0]) ||
	    (c->conf->features & methods[i].feature) == 0 || w == NULL ||
	    (worker_state(w) == WORKER_READY && worker_initialized(w).n == 0))
		return serve_no_method(c, m);
	rc = call_new(c, m, methods[i].name, &k);
	if (rc == SP_OK && buf_add_view(&k->text, m->text) != SP_OK) {
		call_free(k);
		rc = SP_E_NOMEM;
	}
	return rc == SP_OK ? call_send(k) : rc;
}

static int
spec_request(struct mcp_client *c, const struct jrpc *m)
{
	int rc = serve_admit(c, m);

	if (rc != SP_OK)
		return rc;
	if (m->id.kind == JSCAN_NULL)
		return serve_refuse(c, m, "invalid", JRPC_INVALID_REQUEST,
		    "Invalid Request: id is null");
	if (jrpc_is(m, VIEW("initialize")))
		return spec_initialize(c, m);
	if (jrpc_is(m, VIEW("ping"))) {
		serve_log(c, "ping", VIEW_NONE, "ok", 0);
		return serve_result(c, jrpc_raw(m, &m->id), VIEW("{}"));
	}
	if (c->peer == NULL)
		return serve_refuse(c, m, "invalid", JRPC_SERVER_ERROR,
		    "Bad Request: Server not initialized");
	if (jrpc_is(m, VIEW("tools/call")))
		return serve_call(c, m);
	if (jrpc_is(m, VIEW("tools/list")))
		return serve_list(c, m);
	return spec_other(c, m);
}

/* The call of that id in one of the session's requests. */
static struct mcp_call *
spec_call_of(struct mcp_client *c, struct view id)
{
	struct mcp_call *k;
	struct mcp_client *other;

	LIST_FOREACH (k, &c->calls, link)
		if (jrpc_same_id(buf_view(&k->id), id))
			return k;
	if (c->session == NULL)
		return NULL;
	LIST_FOREACH (other, &c->session->clients, link)
		LIST_FOREACH (k, &other->calls, link)
			if (jrpc_same_id(buf_view(&k->id), id))
				return k;
	return NULL;
}

/* Of what is over, or never was, it means nothing. */
static void
spec_cancelled(struct mcp_client *c, const struct jrpc *m)
{
	struct jscan_span id, reason;
	struct mcp_call *k;

	if (jrpc_member(m, &m->params, VIEW("requestId"), &id) != 1)
		return;
	k = spec_call_of(c, jrpc_raw(m, &id));
	if (jrpc_member(m, &m->params, VIEW("reason"), &reason) != 1 ||
	    reason.kind != JSCAN_STRING)
		reason.kind = JSCAN_NONE;
	if (k != NULL && k->wc != NULL)
		worker_cancel(k->wc, jrpc_raw(m, &reason));
}

static void
spec_tell_worker(const struct mcp_client *c, struct view text)
{
	struct episode *ep = mcp_episode(c);
	struct worker *w = ep != NULL ? worker_of(ep) : NULL;

	/* nobody waits for it where there is no worker */
	if (w != NULL)
		(void)!worker_tell(w, text);
}

static void
spec_notification(struct mcp_client *c, const struct jrpc *m)
{
	if (c->peer == NULL)
		return;
	if (jrpc_is(m, VIEW("notifications/cancelled")))
		spec_cancelled(c, m);
	else if (jrpc_is(m, VIEW("notifications/roots/list_changed")) &&
	    (c->peer->features & CONF_MCP_ROOTS) != 0)
		spec_tell_worker(c, m->text);
	/* initialized: the worker was told by us; the rest means nothing */
}

static int
serve_spec(struct mcp_client *c, struct view text)
{
	struct jrpc m;
	int rc = jrpc_read(text, &m);

	if (rc == SP_E_SYNTAX || rc == SP_E_LIMIT)
		return serve_refuse(c, &m, "invalid", JRPC_PARSE_ERROR,
		    "Parse error");
	if (rc != SP_OK)
		return serve_refuse(c, &m, "invalid", JRPC_INVALID_REQUEST,
		    "Invalid Request");
	if (m.kind == JRPC_REQUEST)
		return spec_request(c, &m);
	if (m.kind == JRPC_NOTIFICATION)
		spec_notification(c, &m);
	else if (c->peer != NULL &&
	    mcp_session_answered(c->peer, jrpc_raw(&m, &m.id)))
		spec_tell_worker(c, text);
	return 0;
}

/* ---- what the worker says --------------------------------------------------- */

static void
heard_refuse(const struct mcp_client *c, const struct jrpc *m, bool ping)
{
	struct buf out = BUF_INIT(m->text.n + 256);
	struct view id = jrpc_raw(m, &m->id);
	int rc = ping ? jrpc_put_result(&out, id, VIEW("{}"))
		      : jrpc_put_error(&out, id, JRPC_METHOD_NOT_FOUND,
			    VIEW("Method not found"), VIEW_NONE);

	if (rc == SP_OK)
		spec_tell_worker(c, buf_view(&out));
	buf_clear(&out);
}

static void
heard_request(struct mcp_client *c, const struct mcp_call *call,
    const struct jrpc *m)
{
	unsigned bit = jrpc_is(m, VIEW("sampling/createMessage"))
	    ? CONF_MCP_SAMPLING
	    : jrpc_is(m, VIEW("elicitation/create")) ? CONF_MCP_ELICITATION
	    : jrpc_is(m, VIEW("roots/list"))         ? CONF_MCP_ROOTS
						     : 0;
	struct view id = jrpc_raw(m, &m->id);

	if (c->peer != NULL && (c->peer->features & bit) != 0 &&
	    mcp_session_ask(c->peer, call, id) == SP_OK) {
		if (mcp_client_tell(c, m->text))
			return;
		(void)mcp_session_answered(c->peer, id);
	}
	heard_refuse(c, m, jrpc_is(m, VIEW("ping")));
}

/* Of what the location lets through. */
static bool
heard_passes(const struct mcp_client *c, const struct jrpc *m)
{
	static const struct spec_method rows[] = {
		{ "notifications/message", CONF_MCP_LOGGING },
		{ "notifications/resources/updated", CONF_MCP_RESOURCES },
		{ "notifications/resources/list_changed", CONF_MCP_RESOURCES },
		{ "notifications/prompts/list_changed", CONF_MCP_PROMPTS },
		{ "notifications/elicitation/complete", CONF_MCP_ELICITATION },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (jrpc_is(m, view_str(rows[i].name)))
			return (c->conf->features & rows[i].feature) != 0;
	return true;
}

void
mcp_serve_heard(struct mcp_client *c, const struct mcp_call *call,
    struct view json)
{
	struct jrpc m;

	if (jrpc_read(json, &m) != SP_OK)
		return;
	/* out of a call, of several clients one would answer it */
	if (m.kind == JRPC_REQUEST && call != NULL)
		heard_request(c, call, &m);
	else if (m.kind == JRPC_NOTIFICATION && heard_passes(c, &m))
		(void)mcp_client_tell(c, json);
}

int
mcp_serve(struct mcp_client *c, struct view text)
{
	struct jrpc m;
	int rc;

	/* a WebSocket says by its first request what it speaks */
	if (!c->spec && c->how == MCP_SOCKET && jrpc_read(text, &m) == SP_OK &&
	    m.kind == JRPC_REQUEST && jrpc_is(&m, VIEW("initialize")))
		c->spec = true;
	rc = c->spec ? serve_spec(c, text) : serve_plain(c, text);
	bound_give(&c->turn);
	return rc;
}
