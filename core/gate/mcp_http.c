/*
 * MCP over HTTP: Streamable HTTP, and the plain POST of openenvd's clients.
 * Source:  Model Context Protocol 2025-11-25, transports.
 */
#include "config.h"

#include "gate/mcp_priv.h"

#include "base/mem.h"
#include "http/head.h"

struct http_post {
	size_t n; /* messages */
	size_t requests;
	bool initialize;
	struct mcp_said *all; /* of a batch */
};

/* ---- dialects --------------------------------------------------------------- */

static struct view
http_field(const struct mcp_client *c, struct view name)
{
	return head_get(&c->r->x->request.fields, name);
}

/* A media type in Accept, by name; what follows ";" is of no interest. */
static bool
http_accepts(const struct mcp_client *c, struct view type, bool any)
{
	const struct head_fields *f = &c->r->x->request.fields;
	struct view list, one;
	size_t i;

	for (i = 0; i < f->n; i++) {
		if (!view_eq_nocase(f->v[i].name, VIEW("Accept")))
			continue;
		list = f->v[i].value;
		while (view_split(&list, ',', &one)) {
			one = view_trim(view_sub(one, 0, view_find(one, ';')));
			if (view_eq_nocase(one, type) ||
			    (any && view_eq(one, VIEW("*/*"))))
				return true;
		}
	}
	return false;
}

/* What a head shows of its client; `initialize` is seen in the body. */
bool
mcp_http_is_spec(const struct mcp_client *c)
{
	return http_field(c, VIEW("Mcp-Session-Id")).p != NULL ||
	    http_field(c, VIEW("MCP-Protocol-Version")).p != NULL ||
	    http_accepts(c, VIEW("text/event-stream"), false);
}

const struct mcp_said *
mcp_http_said(struct mcp_client *c)
{
	if (!c->read)
		c->said.rc = jrpc_read(buf_view(&c->r->body), &c->said.m);
	c->read = true;
	return &c->said;
}

static bool
http_is_initialize(const struct mcp_said *said)
{
	return said->rc == SP_OK && said->m.kind == JRPC_REQUEST &&
	    jrpc_is(&said->m, VIEW("initialize"));
}

/* ---- replies ---------------------------------------------------------------- */

/* Fields that replies may have: at most four. */
static int
http_head(struct mcp_client *c, unsigned status, int64_t length,
    struct view type)
{
	struct head_field fields[4];
	struct head_reply head = {
		.status = status,
		.content_length = length,
		.fields = { .v = fields, .n = 0, .cap = 4 },
	};

	if (type.n > 0)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Content-Type"), type };
	if (length < 0) {
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Cache-Control"),
			    VIEW("no-cache, no-transform") };
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("X-Accel-Buffering"),
			    VIEW("no") };
	}
	if (c->spec && c->session != NULL)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Mcp-Session-Id"),
			    view_str(c->session->id) };
	/* RFC 6585 s4, RFC 9110 s10.2.3 */
	if (status == 429 || status == 503)
		fields[head.fields.n++] =
		    (struct head_field){ VIEW("Retry-After"), VIEW("1") };
	c->r->status = status;
	return exchange_head(c->r->x, &head);
}

static void
http_over(struct mcp_client *c, int rc)
{
	if (rc != SP_OK && rc != SP_E_GONE)
		exchange_abort(c->r->x);
	if (rc != SP_E_GONE && !c->in_hook)
		gate_finish(c->r);
}

static enum gate_verdict
http_send(struct mcp_client *c, unsigned status, struct view body)
{
	int rc = http_head(c, status, (int64_t)body.n,
	    body.n > 0 ? VIEW("application/json") : VIEW_NONE);

	if (rc == SP_OK && body.n > 0)
		rc = exchange_data(c->r->x, body);
	if (rc == SP_OK)
		rc = exchange_end(c->r->x);
	http_over(c, rc);
	return GATE_DONE;
}

/* An error of the transport: HTTP's status, and no id. */
static enum gate_verdict
http_fail(struct mcp_client *c, unsigned status, int code, const char *message)
{
	struct buf out = BUF_INIT(4096);
	enum gate_verdict v = GATE_FAIL;

	if (jrpc_put_error(&out, VIEW_NONE, code, view_str(message),
		VIEW_NONE) == SP_OK)
		v = http_send(c, status, buf_view(&out));
	buf_clear(&out);
	return v;
}

/*
 * All answers at once; a single one as an event, where the client takes them
 * by name: what the servers of the SDK do by themselves.
 */
static enum gate_verdict
http_reply(struct mcp_client *c)
{
	int rc;

	struct buf all = BUF_INIT(MCP_REPLY_MAX);
	enum gate_verdict v = GATE_FAIL;

	if (c->how == MCP_POST && !c->batch &&
	    http_accepts(c, VIEW("text/event-stream"), false)) {
		rc = mcp_http_open(c);
		if (rc == SP_OK)
			rc = exchange_end(c->r->x);
		http_over(c, rc);
		return GATE_DONE;
	}
	if (!c->batch)
		return http_send(c, 200, buf_view(&c->out));
	if (buf_add_char(&all, '[') == SP_OK &&
	    buf_add_view(&all, buf_view(&c->out)) == SP_OK &&
	    buf_add_char(&all, ']') == SP_OK)
		v = http_send(c, 200, buf_view(&all));
	buf_clear(&all);
	return v;
}

/* ---- streams ---------------------------------------------------------------- */

/* A line end within JSON is white space, and ends a line of an event. */
static int
http_event(struct mcp_client *c, struct view json)
{
	struct exchange *x = c->r->x;
	struct view parts[] = { VIEW("event: message\ndata: "), VIEW_NONE,
		VIEW("\n\n") };
	size_t cr, at;
	int rc = SP_OK;

	while (rc == SP_OK) {
		at = view_find(json, '\n');
		cr = view_find(view_sub(json, 0, at), '\r');
		at = cr < at ? cr : at;
		parts[1] = view_sub(json, 0, at);
		if (at == json.n)
			return exchange_datav(x, parts, 3);
		rc = exchange_datav(x, parts, 2);
		parts[0] = VIEW("\ndata: ");
		json = view_from(json, at + 1);
	}
	return rc;
}

static void
http_on_timer(void *arg)
{
	struct mcp_client *c = arg;
	int rc = SP_OK;

	if (c->r->x == NULL || c->ended)
		return;
	if (!c->sse)
		rc = mcp_http_open(c);
	if (rc == SP_OK)
		rc = exchange_data(c->r->x, VIEW(": keepalive\n\n"));
	if (rc == SP_OK)
		loop_timer_set(c->timer, MCP_KEEPALIVE_MS);
}

/* Comments, as long as there is nothing to say. */
static int
http_keepalive(struct mcp_client *c)
{
	c->timer = loop_timer_new(gate_loop(c->r->gate), http_on_timer, c);
	if (c->timer == NULL)
		return SP_E_NOMEM;
	loop_timer_set(c->timer, MCP_KEEPALIVE_MS);
	return SP_OK;
}

/* The reply becomes a stream; answers that wait for others go first. */
int
mcp_http_open(struct mcp_client *c)
{
	struct jrpc_batch b;
	struct view item;
	struct buf all = BUF_INIT(MCP_REPLY_MAX);
	int rc = http_head(c, 200, -1, VIEW("text/event-stream"));

	c->sse = rc == SP_OK;
	exchange_set_probe(c->r->x, VIEW(":\n\n"));
	if (rc == SP_OK && buf_len(&c->out) > 0) {
		rc = buf_add_char(&all, '[');
		if (rc == SP_OK)
			rc = buf_add_view(&all, buf_view(&c->out));
		if (rc == SP_OK)
			rc = buf_add_char(&all, ']');
		if (rc == SP_OK)
			rc = jrpc_batch_open(&b, buf_view(&all));
		while (rc == SP_OK && jrpc_batch_next(&b, &item) == 1)
			rc = http_event(c, item);
		buf_clear(&c->out);
	}
	buf_clear(&all);
	return rc;
}

bool
mcp_http_tell(struct mcp_client *c, struct view json)
{
	int rc = SP_OK;

	if (c->r->x == NULL || c->ended)
		return false;
	if (!c->sse)
		rc = mcp_http_open(c);
	if (rc == SP_OK)
		rc = http_event(c, json);
	return rc == SP_OK;
}

static void
http_stream_end(struct mcp_client *c)
{
	loop_timer_free(c->timer);
	c->timer = NULL;
	http_over(c, exchange_end(c->r->x));
}

void
mcp_http_answer(struct mcp_client *c, struct view json)
{
	int rc;

	if (c->r->x == NULL || c->ended)
		return;
	if (c->sse) {
		rc = http_event(c, json);
		if (rc != SP_OK)
			http_over(c, rc);
		else if (c->calls_n == 0 && !c->in_hook)
			http_stream_end(c);
		return;
	}
	rc = c->out_n++ > 0 ? buf_add_char(&c->out, ',') : SP_OK;
	if (rc == SP_OK)
		rc = buf_add_view(&c->out, json);
	if (rc != SP_OK)
		mcp_client_end(c);
	else if (c->calls_n == 0 && !c->in_hook && http_reply(c) != GATE_DONE)
		http_over(c, SP_E_NOMEM);
}

void
mcp_http_end(struct mcp_client *c)
{
	int rc;

	/* the hook says it */
	if (c->r->x == NULL || c->in_hook)
		return;
	if (c->sse) {
		http_stream_end(c);
	} else if (c->r->x->state == EXCHANGE_REQUEST && c->given_up) {
		/* no error: what is over is a stream without an event */
		rc = mcp_http_open(c);
		if (rc == SP_OK)
			http_stream_end(c);
		else
			http_over(c, rc);
	} else if (c->r->x->state == EXCHANGE_REQUEST) {
		if (http_fail(c,
			c->session != NULL && c->session->ended ? 404 : 503,
			c->session != NULL && c->session->ended
			    ? JRPC_NO_SESSION
			    : JRPC_INTERNAL_ERROR,
			c->session != NULL && c->session->ended
			    ? "Session not found"
			    : "Try again later") != GATE_DONE)
			http_over(c, SP_E_NOMEM);
	}
}

/* ---- the plain dialect ------------------------------------------------------ */

/* Whatever was answered already leaves; the rest is waited for. */
static enum gate_verdict
http_served(struct mcp_client *c)
{
	if (c->ended)
		return GATE_FAIL;
	if (c->calls_n == 0 && c->sse) {
		http_over(c, exchange_end(c->r->x));
		return GATE_DONE;
	}
	if (c->calls_n == 0)
		return http_reply(c);
	if (c->spec && http_keepalive(c) != SP_OK)
		return GATE_FAIL;
	return GATE_HOLD;
}

static enum gate_verdict
http_plain(struct mcp_client *c)
{
	if (mcp_serve(c, mcp_http_said(c)) < 0)
		return GATE_FAIL;
	return http_served(c);
}

enum gate_verdict
mcp_http_no_episode(struct mcp_client *c)
{
	int rc;

	c->in_hook = true;
	rc = mcp_serve_no_episode(c, mcp_http_said(c));
	c->in_hook = false;
	return rc < 0 ? GATE_FAIL : mcp_http_answered(c);
}

enum gate_verdict
mcp_http_answered(struct mcp_client *c)
{
	enum gate_verdict v;

	c->in_hook = true;
	v = http_send(c, 200, buf_view(&c->out));
	c->in_hook = false;
	return v;
}

enum gate_verdict
mcp_http_limited(struct mcp_client *c, enum bound_word w)
{
	enum gate_verdict v;

	c->r->outcome = "limited";
	c->in_hook = true;
	v = http_fail(c, w == BOUND_NOMEM ? 503 : 429, JRPC_SERVER_ERROR,
	    bound_reason(w));
	c->in_hook = false;
	return v;
}

/* ---- the specification's ---------------------------------------------------- */

/* NULL: it was refused, and *v says how. */
static struct mcp_session *
http_session(struct mcp_client *c, enum gate_verdict *v)
{
	struct view id = http_field(c, VIEW("Mcp-Session-Id"));
	struct view version = http_field(c, VIEW("MCP-Protocol-Version"));
	struct mcp_session *s;

	if (id.p == NULL) {
		*v = http_fail(c, 400, JRPC_SERVER_ERROR,
		    c->how == MCP_STREAM
			? "Bad Request: Mcp-Session-Id header is required "
			  "(this is Streamable HTTP: POST initialize first; "
			  "the older HTTP+SSE transport is not spoken here)"
			: "Bad Request: Mcp-Session-Id header is required");
		return NULL;
	}
	s = mcp_session_find(c, id, false);
	if (s == NULL) {
		*v = http_fail(c, 404, JRPC_NO_SESSION, "Session not found");
		return NULL;
	}
	if (version.p != NULL && !mcp_text_version_known(version)) {
		*v = http_fail(c, 400, JRPC_SERVER_ERROR,
		    "Bad Request: Unsupported protocol version");
		return NULL;
	}
	mcp_session_enter(s, c);
	return s;
}

static void
http_look_at(const struct mcp_said *said, struct http_post *p)
{
	p->n++;
	p->requests += said->m.kind == JRPC_REQUEST;
	p->initialize |= http_is_initialize(said);
}

/* What it is, and whether it is all messages. */
static int
http_look(struct mcp_client *c, struct view body, struct http_post *p)
{
	struct mcp_said *said;
	struct jrpc_batch b;
	struct view item;
	int rc = jrpc_batch_open(&b, body);

	if (rc == SP_E_STATE) {
		rc = mcp_http_said(c)->rc;
		if (rc == SP_OK)
			http_look_at(&c->said, p);
		return rc;
	}
	if (rc == SP_OK && (b.n == 0 || b.n > MCP_BATCH_MAX))
		return SP_E_RANGE;
	c->batch = rc == SP_OK;
	if (rc == SP_OK)
		p->all = mem_calloc(b.n, sizeof(*p->all));
	if (rc == SP_OK && p->all == NULL)
		return SP_E_NOMEM;
	while (rc == SP_OK && jrpc_batch_next(&b, &item) == 1) {
		said = &p->all[p->n];
		rc = said->rc = jrpc_read(item, &said->m);
		if (rc == SP_OK)
			http_look_at(said, p);
	}
	return rc;
}

static int
http_serve_all(struct mcp_client *c, const struct http_post *p)
{
	size_t i;
	int rc = 0;

	if (!c->batch)
		return mcp_serve(c, mcp_http_said(c));
	for (i = 0; i < p->n && rc >= 0 && !c->ended; i++)
		rc = mcp_serve(c, &p->all[i]);
	return rc;
}

static bool
http_is_json(const struct mcp_client *c)
{
	struct view type = http_field(c, VIEW("Content-Type"));

	return view_eq_nocase(view_trim(
				  view_sub(type, 0, view_find(type, ';'))),
	    VIEW("application/json"));
}

/* 200 with answers, 202 where none is due. */
static enum gate_verdict
http_serve_post(struct mcp_client *c, const struct http_post *p)
{
	if (http_serve_all(c, p) < 0)
		return GATE_FAIL;
	if (p->requests == 0 && c->out_n == 0)
		return c->ended ? GATE_FAIL : http_send(c, 202, VIEW_NONE);
	return http_served(c);
}

/* What was read, or why it was not. */
static enum gate_verdict
http_post_read(struct mcp_client *c, const struct http_post *p, int rc)
{
	enum gate_verdict v = GATE_FAIL;

	if (rc == SP_E_NOMEM)
		return GATE_FAIL;
	if (rc == SP_E_RANGE)
		return http_fail(c, 400, JRPC_INVALID_REQUEST,
		    "Invalid Request: a batch has 1 to 100 messages");
	if (rc != SP_OK)
		return http_fail(c, 400, JRPC_PARSE_ERROR,
		    rc == SP_E_PROTO ? "Parse error: Invalid JSON-RPC message"
				     : "Parse error: Invalid JSON");
	if (p->initialize && p->n > 1)
		return http_fail(c, 400, JRPC_INVALID_REQUEST,
		    "Invalid Request: Only one initialization request is "
		    "allowed");
	if (p->initialize && http_field(c, VIEW("Mcp-Session-Id")).p != NULL)
		return http_fail(c, 400, JRPC_INVALID_REQUEST,
		    "Invalid Request: Server already initialized");
	if (!p->initialize && http_session(c, &v) == NULL)
		return v;
	return http_serve_post(c, p);
}

static enum gate_verdict
http_post(struct mcp_client *c)
{
	struct http_post p = { .n = 0 };
	enum gate_verdict v;
	int rc;

	if (!http_accepts(c, VIEW("application/json"), true) ||
	    !http_accepts(c, VIEW("text/event-stream"), true))
		return http_fail(c, 406, JRPC_SERVER_ERROR,
		    "Not Acceptable: Client must accept both application/json "
		    "and text/event-stream");
	if (!http_is_json(c))
		return http_fail(c, 415, JRPC_SERVER_ERROR,
		    "Unsupported Media Type: Content-Type must be "
		    "application/json");
	rc = http_look(c, buf_view(&c->r->body), &p);
	v = http_post_read(c, &p, rc);
	mem_free(p.all);
	return v;
}

static enum gate_verdict
http_get(struct mcp_client *c)
{
	enum gate_verdict v = GATE_FAIL;
	struct mcp_session *s;

	if (!http_accepts(c, VIEW("text/event-stream"), true))
		return http_fail(c, 406, JRPC_SERVER_ERROR,
		    "Not Acceptable: Client must accept text/event-stream");
	s = http_session(c, &v);
	if (s == NULL)
		return v;
	if (s->stream != NULL)
		return http_fail(c, 409, JRPC_SERVER_ERROR,
		    "Conflict: Only one SSE stream is allowed per session");
	if (http_keepalive(c) != SP_OK || mcp_http_open(c) != SP_OK)
		return GATE_FAIL;
	s->stream = c;
	mcp_client_watch(c);
	return GATE_HOLD;
}

static enum gate_verdict
http_delete(struct mcp_client *c)
{
	enum gate_verdict v = GATE_FAIL;
	struct mcp_session *s = http_session(c, &v);

	if (s == NULL)
		return v;
	mcp_session_leave(c);
	mcp_session_end(s);
	return http_send(c, 200, VIEW_NONE);
}

enum gate_verdict
mcp_http_message(struct mcp_client *c)
{
	switch (c->how) {
	case MCP_PLAIN:
		c->spec = http_is_initialize(mcp_http_said(c));
		if (!c->spec)
			return http_plain(c);
		c->how = MCP_POST;
		return http_post(c);
	case MCP_POST:
		return http_post(c);
	case MCP_STREAM:
		return http_get(c);
	case MCP_DELETE:
		return http_delete(c);
	case MCP_SOCKET:
	default:
		return GATE_FAIL;
	}
}
