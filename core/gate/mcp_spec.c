/*
 * The dialect of the specification: initialize, what it has besides tools, and
 * what the worker says on its own account.
 * Source:  Model Context Protocol 2025-11-25.
 */
#include "config.h"

#include "gate/mcp_priv.h"

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
	bool full = false;
	int rc = mcp_text_initialize(c, worker, params, &result);

	if (rc == SP_OK) {
		rc = init_peer(c, params);
		full = rc == SP_E_LIMIT;
	}
	if (rc == SP_OK)
		rc = jrpc_put_result(&out, buf_view(&k->id), buf_view(&result));
	buf_clear(&result);
	if (full) {
		rc = mcp_session_full(c, buf_view(&k->id), false, &out);
		mcp_call_end(k, "limited", &out, rc);
	} else {
		mcp_call_end(k, rc == SP_OK ? "ok" : "error", &out, rc);
	}
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
		mcp_call_end(k, "worker_gone", &out, SP_E_GONE);
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
mcp_spec_over(struct mcp_client *c)
{
	struct buf out = BUF_INIT(4096);
	struct mcp_call *k, *next;

	for (k = LIST_FIRST(&c->calls); k != NULL; k = next) {
		next = LIST_NEXT(k, link);
		if (k->waits)
			mcp_call_end(k, "worker_gone", &out, SP_E_GONE);
	}
}

static int
spec_initialize(struct mcp_client *c, const struct jrpc *m)
{
	struct mcp_call *k = NULL;
	int rc;

	if (c->peer != NULL)
		return mcp_serve_refuse(c, m, "initialize",
		    JRPC_INVALID_REQUEST,
		    "Invalid Request: Server already initialized");
	rc = mcp_call_new(c, m, "initialize", &k);
	if (k == NULL)
		return rc;
	rc = buf_add_view(&k->text, jrpc_raw(m, &m->params));
	if (rc != SP_OK) {
		mcp_call_free(k);
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
		return mcp_serve_no_method(c, m);
	rc = mcp_call_new(c, m, methods[i].name, &k);
	if (k == NULL)
		return rc;
	if (buf_add_view(&k->text, m->text) != SP_OK) {
		mcp_call_free(k);
		return SP_E_NOMEM;
	}
	return mcp_call_send(k);
}

static int
spec_request(struct mcp_client *c, const struct jrpc *m)
{
	int rc = mcp_serve_admit(c, m);

	if (rc != SP_OK)
		return rc;
	if (m->id.kind == JSCAN_NULL)
		return mcp_serve_refuse(c, m, "invalid", JRPC_INVALID_REQUEST,
		    "Invalid Request: id is null");
	if (jrpc_is(m, VIEW("initialize")))
		return spec_initialize(c, m);
	if (jrpc_is(m, VIEW("ping"))) {
		mcp_serve_log(c, "ping", VIEW_NONE, "ok", 0);
		return mcp_serve_result(c, jrpc_raw(m, &m->id), VIEW("{}"));
	}
	if (c->peer == NULL)
		return mcp_serve_refuse(c, m, "invalid", JRPC_SERVER_ERROR,
		    "Bad Request: Server not initialized");
	if (jrpc_is(m, VIEW("tools/call")))
		return mcp_serve_call(c, m);
	if (jrpc_is(m, VIEW("tools/list")))
		return mcp_serve_list(c, m);
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
	if (k == NULL || k->wc == NULL)
		return;
	/* the worker is read again; what comes in others may hold it anew */
	if (k->client->held)
		mcp_call_hold_all(k->client, false);
	k->cancelled = true;
	worker_cancel(k->wc, jrpc_raw(m, &reason));
}

/* A response is to what was asked in that call, a notification in none. */
static void
spec_tell_worker(const struct mcp_client *c, const struct mcp_call *call,
    struct view text)
{
	struct episode *ep = mcp_episode(c);
	struct worker *w = ep != NULL ? worker_of(ep) : NULL;

	/* nobody waits for it where there is no worker */
	if (w != NULL)
		(void)!worker_tell(w, call != NULL ? call->wc : NULL, text);
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
		spec_tell_worker(c, NULL, m->text);
	/* initialized: the worker was told by us; the rest means nothing */
}

int
mcp_spec(struct mcp_client *c, const struct mcp_said *said)
{
	const struct jrpc *m = &said->m;
	const struct mcp_call *call;

	if (said->rc == SP_E_SYNTAX || said->rc == SP_E_LIMIT)
		return mcp_serve_refuse(c, m, "invalid", JRPC_PARSE_ERROR,
		    "Parse error");
	if (said->rc != SP_OK)
		return mcp_serve_refuse(c, m, "invalid", JRPC_INVALID_REQUEST,
		    "Invalid Request");
	if (m->kind == JRPC_REQUEST)
		return spec_request(c, m);
	if (m->kind == JRPC_NOTIFICATION)
		spec_notification(c, m);
	else if (c->peer != NULL &&
	    (call = mcp_session_answered(c->peer, jrpc_raw(m, &m->id))) != NULL)
		spec_tell_worker(c, call, m->text);
	return 0;
}

/* ---- what the worker says --------------------------------------------------- */

static void
heard_refuse(const struct mcp_client *c, const struct mcp_call *call,
    const struct jrpc *m, bool ping)
{
	struct buf out = BUF_INIT(m->text.n + 256);
	struct view id = jrpc_raw(m, &m->id);
	int rc = ping ? jrpc_put_result(&out, id, VIEW("{}"))
		      : jrpc_put_error(&out, id, JRPC_METHOD_NOT_FOUND,
			    VIEW("Method not found"), VIEW_NONE);

	if (rc == SP_OK)
		spec_tell_worker(c, call, buf_view(&out));
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
	heard_refuse(c, call, m, jrpc_is(m, VIEW("ping")));
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
mcp_spec_heard(struct mcp_client *c, const struct mcp_call *call,
    struct view json)
{
	struct jscan_span id;
	struct jrpc m;

	if (jrpc_read(json, &m) != SP_OK)
		return;
	/* given up, by the worker or in its place: it is not owed any more */
	if (m.kind == JRPC_NOTIFICATION && c->peer != NULL &&
	    jrpc_is(&m, VIEW("notifications/cancelled")) &&
	    jrpc_member(&m, &m.params, VIEW("requestId"), &id) == 1)
		(void)mcp_session_answered(c->peer, jrpc_raw(&m, &id));
	/* out of a call, of several clients one would answer it */
	if (m.kind == JRPC_REQUEST && call != NULL)
		heard_request(c, call, &m);
	else if (m.kind == JRPC_NOTIFICATION && heard_passes(c, &m))
		(void)mcp_client_tell(c, json);
}
