/*
 * The model door: routes of the OpenAI surface, and what a request is turned
 * into before it goes up.
 */
#include "config.h"

#include "llm_intercept.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/clock.h"
#include "gate/session.h"
#include "llm_call.h"

enum {
	TEXT_MAX = 256 * 1024 * 1024, /* an event or a reply, edited */
	PEER_MAX = 128, /* of an address */
	EDITS_MAX = 1000000, /* a long reply that the client wants trimmed */
};

static struct llm_shared shared;

static const struct view chat_path = VIEW_INIT("/chat/completions");
static const struct view models_path = VIEW_INIT("/models");

static int
setup(struct gate *g)
{
	static const char *const upstream[] = { "upstream", NULL };
	static const char *const kinds[] = { "upstream", "asked", NULL };
	static const char *const budget[] = { "budget", NULL };
	static const double ttft[] = { 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
		2.5, 5, 10, 30, 60, 0 };
	static const double added[] = { 0.00005, 0.0001, 0.00025, 0.0005, 0.001,
		0.0025, 0.005, 0.01, 0.05, 0 };
	struct metrics *m = gate_metrics(g);
	struct metric *streams;

	shared.refusals = llm_refusal_new();
	jsplice_init(&shared.edits, EDITS_MAX);
	buf_init(&shared.text, TEXT_MAX);
	buf_init(&shared.mask[0], TEXT_MAX);
	buf_init(&shared.mask[1], TEXT_MAX);
	shared.ttft = metrics_register(m, METRICS_HISTOGRAM,
	    "time_to_first_token_seconds",
	    "From the request to the first event with data.", upstream, ttft);
	shared.added =
	    metrics_register(m, METRICS_HISTOGRAM, "added_latency_seconds",
		"From the whole request to the edited one on its way up.",
		upstream, added);
	shared.refused = metrics_register(m, METRICS_COUNTER, "refusals",
	    "Replies that refused what the capture asks for.", kinds, NULL);
	shared.aborted = metrics_register(m, METRICS_COUNTER, "aborts",
	    "Model calls that the client left before their end.", upstream,
	    NULL);
	shared.budget_stops = metrics_register(m, METRICS_COUNTER,
	    "budget_stops",
	    "Calls that the gateway answered itself, past a session's budget.",
	    budget, NULL);
	streams = metrics_register(m, METRICS_GAUGE, "streams_open",
	    "Model calls that are being streamed.", NULL, NULL);
	if (shared.refusals == NULL || shared.ttft == NULL ||
	    shared.added == NULL || shared.refused == NULL ||
	    shared.aborted == NULL || shared.budget_stops == NULL ||
	    streams == NULL)
		return SP_E_NOMEM;
	shared.streams = metrics_cell(streams, NULL);
	return 0;
}

static void
stop(struct gate *g)
{
	(void)g;
	llm_refusal_free(shared.refusals);
	shared.refusals = NULL;
	jsplice_clear(&shared.edits);
	buf_clear(&shared.text);
	buf_clear(&shared.mask[0]);
	buf_clear(&shared.mask[1]);
}

/* The session that the path names; p NULL: paths name none here. */
static struct view
path_session(const struct gate_request *r)
{
	const struct llm_intercept_conf *conf = r->conf;
	struct view rest = view_from(r->rest, 1);

	if (!conf->session_path)
		return VIEW_NONE;
	return r->rest.n > 0 ? view_sub(rest, 0, view_find(rest, '/'))
			     : VIEW("");
}

/* The path below "/v1", whatever part of it the location already names. */
static struct view
endpoint_of(const struct gate_request *r)
{
	struct view id = path_session(r);
	struct view rest = r->rest.n > 0 ? r->rest : r->path;

	if (id.p != NULL)
		rest = view_from(r->rest, 1 + id.n);

	if (view_starts(rest, VIEW("/v1/")))
		rest = view_from(rest, 3);
	return rest;
}

static bool
is_passed(const struct llm_intercept_conf *conf, struct view path,
    struct view endpoint)
{
	size_t i;

	for (i = 0; i < conf->pass.n; i++) {
		struct view p = conf->pass.v[i];

		if (view_eq(p, path) || view_eq(p, endpoint) ||
		    (view_starts(p, VIEW("/v1/")) &&
			view_eq(view_from(p, 3), endpoint)))
			return true;
	}
	return false;
}

/* Which of the door's kinds of call this is; false: denied. */
static bool
classify(struct gate_request *r, const struct llm_intercept_conf *conf,
    struct view *endpoint, enum llm_kind *kind)
{
	struct view method = r->x->request.method;

	*endpoint = endpoint_of(r);
	if (view_eq(*endpoint, chat_path) ||
	    (r->rest.n == 0 && view_ends(r->path, chat_path))) {
		*endpoint = chat_path;
		*kind = LLM_CHAT;
		if (view_eq(method, VIEW("POST")))
			return true;
		r->allow = "POST";
		gate_deny(r, 405, "method_not_allowed",
		    "chat completions take POST");
		return false;
	}
	if (view_eq(*endpoint, models_path) ||
	    view_starts(*endpoint, VIEW("/models/"))) {
		*kind = LLM_MODELS;
		if (view_eq(method, VIEW("GET")) ||
		    view_eq(method, VIEW("HEAD")))
			return true;
		r->allow = "GET, HEAD";
		gate_deny(r, 405, "method_not_allowed",
		    "the models list takes GET");
		return false;
	}
	*kind = LLM_PASS;
	if (is_passed(conf, r->path, *endpoint))
		return true;
	gate_deny(r, 404, "unknown_url",
	    "no such path on this gateway: chat completions and models are "
	    "served; others need `pass` in its configuration");
	return false;
}

static struct view
affinity_of(const struct gate_request *r)
{
	const struct head_fields *f = &r->x->request.fields;
	struct view v = head_get(f, VIEW("x-session-affinity"));

	if (v.n == 0)
		v = head_get(f, VIEW("x-session-id"));
	return v.n > 0 ? v : r->session;
}

static enum gate_verdict
deny_key(struct gate_request *r, int rc)
{
	struct view key;

	switch (rc) {
	case SP_E_SYNTAX:
		return gate_deny(r, 400, "ambiguous_key",
		    "two credentials in one request that differ: send one");
	case SP_E_STATE:
		return gate_deny(r, 503, "recorder_unavailable",
		    "it is not known yet which keys there are: try again "
		    "later");
	case SP_E_CONF:
		return gate_deny(r, 503, "no_capture",
		    "the session's capture is no longer configured: end the "
		    "session and create another");
	case SP_E_NOMEM:
		return GATE_FAIL;
	case SP_E_GONE:
		return gate_deny(r, 401, "session_closed",
		    "the session of this key has ended: create another "
		    "session and use its key");
	default:
		if (session_key(&r->x->request.fields, &key) == SP_OK &&
		    key.p == NULL)
			return gate_deny(r, 401, "invalid_api_key",
			    "no session key was sent: send the one that was "
			    "given when the session was created, as "
			    "Authorization: Bearer KEY, or in x-api-key, "
			    "x-goog-api-key or api-key");
		return gate_deny(r, 401, "invalid_api_key",
		    "unknown session key: use the key that was given when the "
		    "session was created");
	}
}

/* The session was ended under the call: no error that SDKs try again. */
static void
on_closed(void *arg)
{
	struct llm_call *c = arg;

	if (c->state == LLM_OVER)
		return;
	llm_call_break(c, MESSAGE_OUTCOME_SHUTDOWN, 400, "session_closed",
	    "the session was ended: its key opens nothing any more");
}

/* Where calls go: the session's own upstream, or the door's. */
static const struct conf_upstream *
upstream_of(const struct gate_request *r, const struct roster_session *s)
{
	const struct llm_intercept_conf *conf = r->conf;

	if (s == NULL || s->m.upstream.n == 0)
		return conf->upstream;
	return session_upstream(r, s->m.upstream);
}

static void
take_session(struct llm_call *c, struct roster_session *s)
{
	if (s == NULL)
		return;
	c->use.closed = on_closed;
	c->use.arg = c;
	roster_attach(s, &c->use);
}

static enum gate_verdict
on_head(struct gate_request *r)
{
	const struct llm_intercept_conf *conf = r->conf;
	const struct conf_upstream *upstream;
	struct session_found found;
	struct llm_call *c;
	struct view endpoint, named, coding;
	enum llm_kind kind;
	int rc;

	if (!classify(r, conf, &endpoint, &kind))
		return GATE_DENY;
	rc =
	    session_find(r, conf->capture, conf->keys == LLM_KEYS_OPEN, &found);
	if (rc != 0)
		return deny_key(r, rc);
	named = path_session(r);
	if (named.p != NULL && !view_eq(named, found.id))
		return gate_deny(r, 400, "session_mismatch",
		    "the path names another session than the key: use the "
		    "base URL that belongs to it");
	if (kind == LLM_CHAT &&
	    head_codings(&r->x->request.fields, &coding) > 0)
		return gate_deny(r, 415, "unsupported_encoding",
		    "the request body has a content coding, and is to be read "
		    "here: send it without Content-Encoding");
	r->session = found.id;
	r->principal = "agent";
	upstream = upstream_of(r, found.session);
	if (upstream == NULL)
		return gate_deny(r, 503, "no_upstream",
		    "the session's upstream is no longer configured: end the "
		    "session and create another");
	c = mem_calloc(1, sizeof(*c));
	if (c == NULL)
		return GATE_FAIL;
	c->r = r;
	c->shared = &shared;
	c->conf = conf;
	c->upstream = upstream;
	c->capture = found.capture;
	c->kind = kind;
	c->endpoint = endpoint;
	c->affinity = affinity_of(r);
	c->started_us = r->x->started_us;
	c->wall_us = clock_wall_us();
	buf_init(&c->original, SIZE_MAX / 2);
	buf_init(&c->body, SIZE_MAX / 2);
	buf_init(&c->held, upstream->reply_max_bytes);
	buf_init(&c->tail, TEXT_MAX);
	sse_init(&c->sse, upstream->event_max_bytes);
	take_session(c, found.session);
	r->ctx = c;
	return GATE_PASS;
}

/* The call has its place: up. */
static enum gate_verdict
go_up(struct gate_request *r)
{
	struct llm_call *c = r->ctx;
	int rc;

	c->whole_us = clock_us();
	rc = llm_call_start(c);
	switch (rc) {
	case 0:
		return GATE_HOLD;
	case SP_E_SYNTAX:
		return gate_deny(r, 400, "invalid_json",
		    c->why != NULL ? c->why
				   : "the request body cannot be read");
	case SP_E_DENIED:
		return gate_deny(r, 400, "budget_exhausted",
		    "the budget of this session is used up");
	case SP_E_STATE:
	case SP_E_LIMIT:
		return gate_deny(r, 503, "recorder_unavailable",
		    "the trace cannot be written now: try again later");
	default:
		return GATE_FAIL;
	}
}

static enum gate_verdict
deny_place(struct gate_request *r, enum admission_word w)
{
	r->outcome = admission_name(w);
	return gate_deny(r, admission_status(w), "too_many_calls",
	    admission_reason(w));
}

/* What admission says of a call that it let wait. */
static void
on_decided(void *arg, enum admission_word w)
{
	struct llm_call *c = arg;
	enum gate_verdict v;

	if (c->state == LLM_OVER)
		return;
	v = w == ADMISSION_NOW ? go_up(c->r) : deny_place(c->r, w);
	if (v != GATE_HOLD)
		gate_resume(c->r, v);
}

/* Sessions count by name; callers without one by their address. */
static enum admission_word
ask_place(struct llm_call *c)
{
	const struct gate_request *r = c->r;
	const char *peer = r->x->peer, *port = strrchr(peer, ':');
	struct view key = r->session;
	char address[PEER_MAX];

	if (c->use.session == NULL) {
		(void)snprintf(address, sizeof(address), "@%.*s",
		    (int)(port != NULL ? port - peer : PEER_MAX), peer);
		key = view_str(address);
	}
	c->ticket.decided = on_decided;
	c->ticket.arg = c;
	c->ticket.location = r->location;
	return admission_enter(gate_admission(r->gate), &c->ticket, key);
}

static enum gate_verdict
on_message(struct gate_request *r)
{
	struct llm_call *c = r->ctx;
	enum admission_word w;

	buf_take(&c->original, &r->body);
	w = c->kind == LLM_MODELS ? ADMISSION_NOW : ask_place(c);
	if (w == ADMISSION_NOW)
		return go_up(r);
	return w == ADMISSION_HELD ? GATE_HOLD : deny_place(r, w);
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	struct llm_call *c = r->ctx;

	if (c != NULL)
		llm_call_free(c);
	r->ctx = NULL;
	return GATE_PASS;
}

static void
on_room(struct gate_request *r)
{
	if (r->ctx != NULL)
		llm_call_pressure(r->ctx);
}

static void
on_gone(struct gate_request *r, enum exchange_gone why)
{
	struct llm_call *c = r->ctx;
	struct view name;

	if (c == NULL || c->gone)
		return;
	c->gone = true;
	if (c->state == LLM_OVER)
		return;
	name = c->upstream->name;
	metrics_inc(metrics_cell(shared.aborted, &name));
	llm_call_break(c,
	    why == EXCHANGE_GONE_SHUTDOWN ? MESSAGE_OUTCOME_SHUTDOWN
					  : MESSAGE_OUTCOME_CLIENT_GONE,
	    0, "client_gone", "the client left");
}

static void
on_expire(struct gate_request *r, enum gate_expiry why)
{
	struct llm_call *c = r->ctx;

	if (c == NULL || c->state == LLM_OVER)
		exchange_abort(r->x);
	else if (why == GATE_EXPIRE_MEMORY)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503, "no_memory",
		    "the gateway is short of memory, and this call held much "
		    "of it: see memory_max");
	else
		llm_call_break(c, MESSAGE_OUTCOME_SHUTDOWN, 503,
		    "shutting_down",
		    "the gateway is shutting down: try again later");
}

static size_t
on_holds(const struct gate_request *r)
{
	const struct llm_call *c = r->ctx;

	if (c == NULL)
		return 0;
	return buf_len(&c->original) + buf_len(&c->body) + buf_len(&c->held) +
	    sse_rest(&c->sse).n;
}

const struct gate_module llm_intercept_module = {
	.conf = &llm_intercept_conf,
	.principals = GATE_AGENT,
	.beneath = true,
	.wants_body = true,
	.setup = setup,
	.stop = stop,
	.hook = {
	    [GATE_HEAD] = on_head,
	    [GATE_MESSAGE] = on_message,
	    [GATE_FINISH] = on_finish,
	},
	.room = on_room,
	.gone = on_gone,
	.expire = on_expire,
	.holds = on_holds,
};
