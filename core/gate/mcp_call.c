/* A message that is answered later: by the worker, or by a tool of the door's. */
#include "config.h"

#include "gate/mcp_priv.h"

#include "base/log.h"
#include "base/mem.h"

/* ---- its life ---------------------------------------------------------------- */

static const struct mcp_call *
call_beside(const struct mcp_client *c, const struct mcp_call *k)
{
	const struct mcp_call *other;

	LIST_FOREACH (other, &c->calls, link)
		if (other != k && other->wc != NULL)
			return other;
	return NULL;
}

/* Another one of the same peer's that is with the worker, or NULL. */
static const struct mcp_call *
call_other(const struct mcp_call *k)
{
	const struct mcp_call *other = call_beside(k->client, k);
	const struct mcp_client *c;

	if (other != NULL || k->client->session == NULL)
		return other;
	LIST_FOREACH (c, &k->client->session->clients, link)
		if ((other = call_beside(c, k)) != NULL)
			return other;
	return NULL;
}

void
mcp_call_free(struct mcp_call *k)
{
	if (k->waits)
		worker_unwatch(&k->ready);
	if (k->client->peer != NULL && k->client->peer->asked_n > 0)
		mcp_session_call_over(k->client->peer, k, call_other(k));
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
	case WORKER_NONE:
		return "no_worker";
	case WORKER_GONE:
	default:
		return "worker_gone";
	}
}

/*
 * It ends with that answer, which is the client's; what the client does with
 * it may end the client too, so nothing is touched after.
 */
void
mcp_call_end(struct mcp_call *k, const char *outcome, struct buf *answer,
    int rc)
{
	struct mcp_client *c = k->client;

	mcp_serve_log(c, k->operation, buf_view(&k->tool), outcome,
	    k->started_us);
	if (rc != SP_OK) {
		buf_reset(answer, 4096);
		rc = jrpc_put_error(answer, buf_view(&k->id),
		    JRPC_INTERNAL_ERROR, VIEW(DOOR_FAILED),
		    c->spec ? VIEW_NONE : VIEW("null"));
	}
	mcp_call_free(k);
	/* without memory even for that, the client sees its reply cut */
	if (rc == SP_OK)
		mcp_client_answer(c, buf_view(answer));
	else
		mcp_client_end(c);
	buf_clear(answer);
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
	mcp_call_end(k, call_outcome(result, body), &out, rc);
}

static void
call_message(void *arg, struct view json)
{
	struct mcp_call *k = arg;

	struct mcp_client *c = k->client;

	mcp_spec_heard(c, k, json);
	/* what is said in its call is not lost: the worker waits with it */
	if (!c->ended && !c->held && mcp_client_full(c))
		mcp_call_hold_all(c, true);
}

static const struct worker_caller caller_spec = {
	.message = call_message,
	.done = call_done,
};
/* the plain dialect has no way to be told anything before the answer */
static const struct worker_caller caller_plain = { .done = call_done };

/* 0 with *out; 1: it was refused, there are too many; SP_E_NOMEM. */
int
mcp_call_new(struct mcp_client *c, const struct jrpc *m, const char *operation,
    struct mcp_call **out)
{
	struct view id = jrpc_raw(m, &m->id);
	struct mcp_call *k;
	int rc;

	if (c->calls_n >= MCP_CALLS_MAX || id.n > MCP_RPC_ID_MAX) {
		mcp_serve_log(c, operation, VIEW_NONE, "busy", 0);
		return mcp_serve_error(c,
		    id.n > MCP_RPC_ID_MAX ? VIEW_NONE : id, JRPC_INTERNAL_ERROR,
		    DOOR_FAILED);
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
		mcp_call_free(k);
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
	mcp_call_end(k, rc == SP_OK ? "ok" : "error", &out, rc);
}

static void
call_too_large(struct mcp_call *k)
{
	const struct mcp_fault f = { JRPC_INVALID_PARAMS, "Invalid parameters",
		"too_large", VIEW("the message is larger than 16 MiB"),
		"a worker is told no more than that at once: send less" };
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	int rc = mcp_text_fault(&f, buf_view(&k->id), &out);

	log_notice("episode %s: connection %llu: a message of %zu bytes is "
		   "refused: a worker is told %d at once",
	    k->client->episode, (unsigned long long)k->client->r->x->connection,
	    buf_len(&k->text), WORKER_MESSAGE_MAX);
	mcp_call_end(k, "too_large", &out, rc);
}

/* To the worker with it.  1: it is answered, now or later. */
int
mcp_call_send(struct mcp_call *k)
{
	struct mcp_client *c = k->client;
	struct episode *ep = mcp_episode(c);
	struct worker *w = ep != NULL ? worker_of(ep) : NULL;
	const struct worker_ask ask = { .op = WORKER_MCP,
		.whose = c->door->whose,
		.client = c->peer,
		.data = buf_view(&k->text),
		.known = true };
	struct buf out = BUF_INIT(4096);
	int rc;

	if (w == NULL && ep != NULL && k->list &&
	    c->conf->environment->worker == CONF_ENV_WORKER_NONE) {
		call_list_alone(k);
		return 1;
	}
	if (buf_len(&k->text) > WORKER_MESSAGE_MAX) {
		call_too_large(k);
		return 1;
	}
	rc = w == NULL ? SP_E_GONE
		       : worker_call(w, &ask,
			     c->spec ? &caller_spec : &caller_plain, k, &k->wc);
	if (rc != SP_OK)
		mcp_call_end(k, w == NULL ? "worker_gone" : "error", &out, rc);
	return 1;
}

static void
call_forget(struct mcp_call *k)
{
	if (k->wc != NULL)
		worker_forget(k->wc, VIEW("\"client gone\""));
	if (k->own)
		k->client->door->own->forget(k);
	mcp_serve_log(k->client, k->operation, buf_view(&k->tool),
	    "client_gone", k->started_us);
	mcp_call_free(k);
}

void
mcp_call_hold_all(struct mcp_client *c, bool on)
{
	struct mcp_call *k;

	c->held = on;
	LIST_FOREACH (k, &c->calls, link)
		if (k->wc != NULL && !k->own)
			worker_hold(k->wc, on);
}

bool
mcp_call_given_up(const struct mcp_client *c)
{
	const struct mcp_call *k;

	LIST_FOREACH (k, &c->calls, link)
		if (!k->cancelled)
			return false;
	return !LIST_EMPTY(&c->calls);
}

void
mcp_call_forget_all(struct mcp_client *c)
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
	const struct mcp_fault f = { JRPC_INTERNAL_ERROR, DOOR_FAILED,
		rc == SP_E_LIMIT ? "too_large" : "no_memory", VIEW_NONE,
		rc == SP_E_LIMIT ? "an answer may have 34 MiB: ask for less"
				 : "the gateway has no memory for it: try "
				   "again later" };

	if (rc == SP_OK) {
		mcp_call_end(c, "ok", &out, rc);
		return;
	}
	log_warn("episode %s: an answer of %zu bytes to %.*s is not given: %s",
	    c->client->episode, result.n, VIEW_ARG(buf_view(&c->tool)),
	    err_str(rc));
	buf_clear(&out);
	mcp_own_error(c, &f);
}

void
mcp_own_error(struct mcp_call *c, const struct mcp_fault *f)
{
	struct buf out = BUF_INIT(MCP_ANSWER_MAX);
	int rc = mcp_text_fault(f, buf_view(&c->id), &out);

	mcp_call_end(c, "error", &out, rc);
}
