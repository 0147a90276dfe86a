/* One message of a client after the other, and the plain dialect. */
#include "config.h"

#include "gate/mcp_priv.h"

#include "gate/gate_priv.h"

enum { SERVE_METHOD_MAX = 256 };

/* ---- telling ---------------------------------------------------------------- */

void
mcp_serve_log(const struct mcp_client *c, const char *operation,
    struct view tool, const char *outcome, uint64_t since_us)
{
	uint64_t now = loop_now_us(gate_loop(c->r->gate));
	const struct episode *ep = mcp_episode(c);
	const struct door_operation op = {
		.principal =
		    c->r->orchestrator ? "orchestrator" : c->door->principal,
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

int
mcp_serve_result(struct mcp_client *c, struct view id, struct view result)
{
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	int rc = jrpc_put_result(&out, id, result);

	return serve_answer(c, rc, &out);
}

int
mcp_serve_refuse(struct mcp_client *c, const struct jrpc *m,
    const char *operation, int code, const char *message)
{
	mcp_serve_log(c, operation, VIEW_NONE, "malformed", 0);
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

int
mcp_serve_no_method(struct mcp_client *c, const struct jrpc *m)
{
	struct buf name = BUF_INIT(SERVE_METHOD_MAX * 6);
	int rc;

	mcp_serve_log(c, "other", VIEW_NONE, "malformed", 0);
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
		"initialize", "ping", "openenv/session/create",
		"openenv/session/close" };
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
int
mcp_serve_admit(struct mcp_client *c, const struct jrpc *m)
{
	struct view id = jrpc_raw(m, &m->id);
	enum bound_word w;

	if (c->how != MCP_SOCKET && !c->batch)
		return SP_OK;
	w = bound_call(gate_bound(c->r->gate), c->r, &c->turn);
	if (w == BOUND_TAKEN)
		return SP_OK;
	mcp_serve_log(c, serve_operation(m), VIEW_NONE, "limited", 0);
	return mcp_serve_error(c, id.n > MCP_RPC_ID_MAX ? VIEW_NONE : id,
	    JRPC_SERVER_ERROR, bound_reason(w));
}

/* ---- tools ------------------------------------------------------------------ */

int
mcp_serve_list(struct mcp_client *c, const struct jrpc *m)
{
	struct mcp_call *k = NULL;
	int rc = mcp_call_new(c, m, "tools/list", &k);

	if (k == NULL)
		return rc;
	k->list = true;
	rc = c->spec ? buf_add_view(&k->text, m->text)
		     : mcp_text_plain(m, &k->text);
	if (rc != SP_OK) {
		mcp_call_free(k);
		return SP_E_NOMEM;
	}
	return mcp_call_send(k);
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
		mcp_call_free(k);
		return SP_E_NOMEM;
	}
	return mcp_call_send(k);
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
	mcp_serve_log(c, "tools/call", tool, "denied", 0);
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
		return mcp_serve_refuse(c, m, "tools/call", JRPC_INVALID_PARAMS,
		    "Invalid parameters");
	rc = jrpc_string(m, &name, tool);
	/* too long, or half a surrogate pair: no tool is named so */
	if (rc == SP_E_LIMIT || rc == SP_E_SYNTAX)
		return serve_no_tool(c, m, VIEW_NONE);
	return rc;
}

int
mcp_serve_call(struct mcp_client *c, const struct jrpc *m)
{
	struct buf tool = BUF_INIT(MCP_TOOL_MAX);
	struct jscan_span args;
	struct mcp_call *k = NULL;
	int rc = serve_tool_name(c, m, &tool, &args);

	if (rc == SP_OK && !serve_may_call(c, buf_view(&tool)))
		rc = serve_no_tool(c, m, buf_view(&tool));
	else if (rc == SP_OK)
		rc = mcp_call_new(c, m, "tools/call", &k);
	if (rc == SP_OK && k != NULL)
		buf_take(&k->tool, &tool);
	buf_clear(&tool);
	return rc == SP_OK && k != NULL ? call_tool(k, m, &args) : rc;
}

/* ---- the plain dialect ------------------------------------------------------ */

static int
plain_create(struct mcp_client *c, const struct jrpc *m)
{
	struct buf out = BUF_INIT(128), full = BUF_INIT(MCP_ANSWER_MAX);
	struct mcp_session *s;
	int rc = mcp_session_new(c, true, &s);

	if (rc == SP_E_LIMIT) {
		mcp_serve_log(c, "openenv/session/create", VIEW_NONE, "limited",
		    0);
		rc = mcp_session_full(c, jrpc_raw(m, &m->id), true, &full);
		return serve_answer(c, rc, &full);
	}
	if (rc == SP_OK) {
		s->owned = c->r->orchestrator;
		s->owns = c->owns = c->made;
		rc = buf_printf(&out, "{\"session_id\":\"%s\"}", s->id);
	}
	if (rc == SP_OK)
		rc = mcp_serve_result(c, jrpc_raw(m, &m->id), buf_view(&out));
	buf_clear(&out);
	mcp_serve_log(c, "openenv/session/create", VIEW_NONE, "ok", 0);
	return rc;
}

/* The session first: the owner may end its episode, and all in that. */
static int
plain_close(struct mcp_client *c, const struct jrpc *m, struct mcp_session *s)
{
	const struct mcp_owner *o = c->r->gate->mcp_owner;
	struct buf out = BUF_INIT(128);
	bool owns, closing;
	int rc;

	if (s == NULL)
		return mcp_serve_refuse(c, m, "openenv/session/close",
		    JRPC_INVALID_PARAMS, "Invalid parameters");
	rc = buf_printf(&out, "{\"session_id\":\"%s\",", s->id);
	owns = s->owns && o != NULL;
	mcp_session_end(s);
	closing = owns && o->leave(&c->ref);
	/* the words of OpenEnv's server */
	if (rc == SP_OK)
		rc = buf_add_str(&out,
		    closing ? "\"closed\":false,\"closing\":true}"
			    : "\"closed\":true}");
	if (rc == SP_OK)
		rc = mcp_serve_result(c, jrpc_raw(m, &m->id), buf_view(&out));
	buf_clear(&out);
	mcp_serve_log(c, "openenv/session/close", VIEW_NONE, "ok", 0);
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
	int rc = mcp_serve_admit(c, m);

	if (rc != SP_OK)
		return rc;
	if (jrpc_is(m, VIEW("openenv/session/create")))
		return plain_create(c, m);
	rc = plain_session(c, m, &s);
	if (rc == SP_E_NOTFOUND)
		return mcp_serve_refuse(c, m, "invalid", JRPC_INVALID_PARAMS,
		    "Invalid parameters");
	if (rc != SP_OK)
		return rc;
	if (jrpc_is(m, VIEW("openenv/session/close")))
		return plain_close(c, m, s);
	if (s != NULL)
		mcp_session_begin(s, c);
	if (jrpc_is(m, VIEW("tools/call")))
		return mcp_serve_call(c, m);
	if (jrpc_is(m, VIEW("tools/list")))
		return mcp_serve_list(c, m);
	return mcp_serve_no_method(c, m);
}

static int
serve_plain(struct mcp_client *c, const struct mcp_said *said)
{
	const struct jrpc *m = &said->m;

	if (said->rc == SP_E_SYNTAX || said->rc == SP_E_LIMIT)
		return mcp_serve_refuse(c, m, "invalid", JRPC_PARSE_ERROR,
		    "Parse error");
	if (said->rc != SP_OK || m->kind == JRPC_RESPONSE ||
	    m->params.kind == JSCAN_ARRAY)
		return mcp_serve_refuse(c, m, "invalid", JRPC_INVALID_PARAMS,
		    "Invalid parameters");
	return plain_request(c, m);
}

/* openenvd's error, with data that says why. */
int
mcp_serve_no_episode(struct mcp_client *c, const struct mcp_said *said)
{
	const struct mcp_fault f = { .code = JRPC_INTERNAL_ERROR,
		.message = DOOR_FAILED,
		.reason = c->r->code,
		.detail = view_str(c->r->reason) };
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	const struct jrpc *m = &said->m;
	int rc = said->rc;

	if (rc == SP_E_SYNTAX || rc == SP_E_LIMIT)
		return mcp_serve_refuse(c, m, "invalid", JRPC_PARSE_ERROR,
		    "Parse error");
	mcp_serve_log(c, serve_operation(m), VIEW_NONE, c->r->code, 0);
	rc = mcp_text_fault(&f, jrpc_raw(m, &m->id), &out);
	return serve_answer(c, rc, &out);
}

/* ---- either dialect --------------------------------------------------------- */

int
mcp_serve(struct mcp_client *c, const struct mcp_said *said)
{
	int rc;

	/* a WebSocket says by its first request what it speaks */
	if (!c->spec && c->how == MCP_SOCKET && said->rc == SP_OK &&
	    said->m.kind == JRPC_REQUEST &&
	    jrpc_is(&said->m, VIEW("initialize")))
		c->spec = true;
	rc = c->spec ? mcp_spec(c, said) : serve_plain(c, said);
	bound_give(&c->turn);
	return rc;
}
