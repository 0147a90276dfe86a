#include "config.h"

#include "gate/worker_mcp.h"

#include "base/log.h"
#include "base/mem.h"
#include "gate/worker_rpc.h"
#include "json/jrpc.h"
#include "json/jwrite.h"

enum {
	MCP_SMALL_MAX = 16 * 1024,
	WORKER_MCP_METHOD_MAX = 256, /* of those that are known */
};

/* A request of the server that its call's caller was told of. */
struct worker_mcp_asked {
	TAILQ_ENTRY(worker_mcp_asked) link;
	uint64_t call; /* number */
	uint64_t by_ms; /* until when it must be answered; 0 none */
	enum jscan_kind kind; /* of the id */
	struct buf raw; /* the id as it came */
	struct buf text; /* and decoded: how it comes back is free */
};

static const char *const mcp_versions[] = { "2025-11-25", "2025-06-18",
	"2025-03-26", "2024-11-05", "2024-10-07", NULL };

static void
mcp_bad(struct worker_mcp *m, const char *what, struct view text)
{
	worker_fail(m->back->w, WORKER_GONE, "%s: %.*s", what,
	    VIEW_ARG(view_sub(text, 0, 200)));
}

/* ---- what is sent ----------------------------------------------------------- */

static int
mcp_send(struct worker_mcp *m, struct buf *b, int rc)
{
	if (rc == SP_OK)
		rc = m->send(m->back, buf_view(b));
	buf_clear(b);
	return rc;
}

/* Of an answer or notification that may get lost, but not half. */
static void
mcp_send_or_fail(struct worker_mcp *m, struct buf *b, int rc)
{
	rc = mcp_send(m, b, rc);
	if (rc != SP_OK && m->back->w != NULL)
		worker_fail(m->back->w, WORKER_GONE,
		    "an answer to it cannot be sent: %s", err_str(rc));
}

static void
mcp_refuse(struct worker_mcp *m, struct view id, int code, const char *text)
{
	struct buf b = BUF_INIT(MCP_SMALL_MAX);

	mcp_send_or_fail(m, &b,
	    jrpc_put_error(&b, id, code, view_str(text), VIEW_NONE));
}

static void
mcp_pong(struct worker_mcp *m, struct view id)
{
	struct buf b = BUF_INIT(MCP_SMALL_MAX);

	mcp_send_or_fail(m, &b, jrpc_put_result(&b, id, VIEW("{}")));
}

int
worker_mcp_start(struct worker_mcp *m)
{
	struct buf b = BUF_INIT(MCP_SMALL_MAX);

	m->hello = ++m->back->w->numbers;
	return mcp_send(m, &b,
	    buf_printf(&b,
		"{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"initialize\","
		"\"params\":{\"protocolVersion\":\"%s\",\"capabilities\":{"
		"\"sampling\":{},\"elicitation\":{},"
		"\"roots\":{\"listChanged\":true}},"
		"\"clientInfo\":{\"name\":\"sallyport\",\"version\":\"%s\"}}}",
		(unsigned long long)m->hello, mcp_versions[0],
		PACKAGE_VERSION));
}

/* ---- requests of the server ------------------------------------------------- */

static void
asked_free(struct worker_mcp *m, struct worker_mcp_asked *a)
{
	struct worker *w = m->back->w;
	struct worker_call *c = w != NULL ? worker_numbered(w, a->call) : NULL;

	TAILQ_REMOVE(&m->asked, a, link);
	m->asked_n--;
	if (c != NULL)
		worker_asks(c, -1);
	buf_clear(&a->raw);
	buf_clear(&a->text);
	mem_free(a);
}

/* An id as it is compared: a string decoded, a number as written. */
static int
id_text(const struct jscan *s, const struct jscan_span *id, struct buf *out)
{
	return id->kind == JSCAN_STRING ? jscan_decode(s, id, out, NULL)
					: buf_add_view(out, jscan_raw(s, id));
}

static struct worker_mcp_asked *
asked_find(struct worker_mcp *m, const struct jscan *s,
    const struct jscan_span *id)
{
	struct buf text = BUF_INIT(WORKER_MCP_ASKED_BYTES);
	struct worker_mcp_asked *a = NULL;

	if (id_text(s, id, &text) == SP_OK) {
		TAILQ_FOREACH (a, &m->asked, link)
			if (a->kind == id->kind &&
			    view_eq(buf_view(&a->text), buf_view(&text)))
				break;
	}
	buf_clear(&text);
	return a;
}

/* The worker has more time than its client, or it would count as failed. */
static uint64_t
asked_until(const struct worker_call *c)
{
	uint64_t ms = c->w->answer_ms;

	if (c->timeout_ms != 0 && (ms == 0 || ms > c->timeout_ms / 2))
		ms = c->timeout_ms / 2;
	return ms != 0 ? worker_now_ms(c->w) + ms : 0;
}

static int
asked_add(struct worker_mcp *m, struct worker_call *c, const struct jscan *s,
    const struct jscan_span *id)
{
	struct worker_mcp_asked *a = mem_calloc(1, sizeof(*a));
	int rc;

	if (a == NULL)
		return SP_E_NOMEM;
	a->call = c->number;
	a->by_ms = asked_until(c);
	a->kind = id->kind;
	buf_init(&a->raw, 6 * WORKER_MCP_ASKED_BYTES);
	buf_init(&a->text, WORKER_MCP_ASKED_BYTES);
	TAILQ_INSERT_TAIL(&m->asked, a, link);
	m->asked_n++;
	worker_asks(c, 1);
	rc = buf_add_view(&a->raw, jscan_raw(s, id));
	if (rc == SP_OK)
		rc = id_text(s, id, &a->text);
	if (rc != SP_OK)
		asked_free(m, a);
	return rc;
}

/*
 * The call in which the worker says what names none.  NULL: in none that is
 * known: while it may be at work on one that was cancelled, what it says may
 * belong to that, and not to whoever comes next.
 */
static struct worker_call *
said_in(const struct worker_mcp *m)
{
	struct worker *w = m->back->w;
	struct worker_call *c = w->current;

	if (m->within != 0) {
		c = worker_numbered(w, m->within);
		return c != NULL && worker_sent(c) ? c : NULL;
	}
	return c != NULL && worker_settled(w, c->whose) ? c : NULL;
}

static void
on_request(struct worker_mcp *m, const struct worker_rpc *r, struct view text)
{
	const struct jscan_span *id = &r->id.v[r->id.n - 1];
	struct worker_call *c = said_in(m);
	struct view raw = jscan_raw(&r->s, id);
	int rc;

	if ((id->kind != JSCAN_STRING && id->kind != JSCAN_NUMBER) ||
	    raw.n > WORKER_MCP_ASKED_BYTES) {
		mcp_bad(m, "it sent a request with no usable id", text);
	} else if (m->hello != 0 &&
	    jscan_is(&r->s, &r->method, VIEW("initialize"))) {
		/* and would send the refusal back as well, as its answer */
		mcp_bad(m, "it sends back what it is told: it is no MCP server",
		    text);
	} else if (asked_find(m, &r->s, id) != NULL) {
		mcp_bad(m, "it used the id of a request that is open", text);
	} else if (!worker_listens(c)) {
		if (jscan_is(&r->s, &r->method, VIEW("ping")))
			mcp_pong(m, raw);
		else
			mcp_refuse(m, raw, JRPC_METHOD_NOT_FOUND,
			    "Method not found");
	} else {
		rc = m->asked_n < WORKER_MCP_ASKED_MAX
		    ? asked_add(m, c, &r->s, id)
		    : SP_E_LIMIT;
		if (rc == SP_OK)
			worker_say(c, text);
		else
			mcp_refuse(m, raw, JRPC_INTERNAL_ERROR,
			    "Too many requests are open");
	}
}

/*
 * Of two calls of one client that the worker is at it was not known in which
 * it asked: then it was in the other.
 */
static bool
asked_passes(struct worker_mcp_asked *a, const struct worker_call *c)
{
	struct worker_call *other = worker_beside(c);

	if (other == NULL)
		return false;
	a->call = other->number;
	worker_asks(other, 1);
	return true;
}

void
worker_mcp_over(struct worker_mcp *m, const struct worker_call *c,
    bool forgotten)
{
	struct worker_mcp_asked *a, *next;
	struct buf b = BUF_INIT(MCP_SMALL_MAX);
	int rc;

	for (a = TAILQ_FIRST(&m->asked); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		if (a->call != c->number || (!forgotten && asked_passes(a, c)))
			continue;
		/* or it might wait for it for ever */
		rc = !forgotten
		    ? SP_E_STATE
		    : jrpc_put_error(&b, buf_view(&a->raw), JRPC_INTERNAL_ERROR,
			  VIEW("The client is gone"), VIEW_NONE);
		(void)!mcp_send(m, &b, rc);
		asked_free(m, a);
	}
}

uint64_t
worker_mcp_owed(const struct worker_mcp *m)
{
	const struct worker_mcp_asked *a;
	uint64_t first = 0;

	TAILQ_FOREACH (a, &m->asked, link)
		if (a->by_ms != 0 && (first == 0 || a->by_ms < first))
			first = a->by_ms;
	return first;
}

/* MCP 2025-11-25, lifecycle, timeouts: who asked gives it up, and says so. */
static void
asked_tell_client(const struct worker_call *c, struct view id)
{
	struct buf b = BUF_INIT(MCP_SMALL_MAX);

	if (buf_printf(&b,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
		"\"params\":{\"requestId\":%.*s,\"reason\":\"it was not "
		"answered in time (answer_timeout)\"}}",
		VIEW_ARG(id)) == SP_OK)
		worker_say(c, buf_view(&b));
	buf_clear(&b);
}

/* In the words of the SDK, which would have given it up by itself. */
static void
asked_lapse(struct worker_mcp *m, struct worker_mcp_asked *a)
{
	struct worker_call *c = worker_numbered(m->back->w, a->call);
	struct buf id = BUF_INIT(6 * WORKER_MCP_ASKED_BYTES);
	struct buf b = BUF_INIT(MCP_SMALL_MAX);

	log_notice("episode %s: what its worker asked of its client (id %.*s) "
		   "was not answered in time (answer_timeout): the worker is "
		   "told so",
	    m->back->w->ep != NULL ? m->back->w->ep->id : "?",
	    VIEW_ARG(view_sub(buf_view(&a->raw), 0, 64)));
	buf_take(&id, &a->raw);
	asked_free(m, a);
	mcp_send_or_fail(m, &b,
	    jrpc_put_error(&b, buf_view(&id), JRPC_NO_SESSION,
		VIEW("Request timed out"), VIEW_NONE));
	if (m->back->w != NULL && c != NULL)
		asked_tell_client(c, buf_view(&id));
	buf_clear(&id);
}

void
worker_mcp_lapse(struct worker_mcp *m, uint64_t now_ms)
{
	struct worker_mcp_asked *a;

	do {
		TAILQ_FOREACH (a, &m->asked, link)
			if (a->by_ms != 0 && a->by_ms <= now_ms)
				break;
		if (a != NULL)
			asked_lapse(m, a);
	} while (a != NULL && m->back->w != NULL);
}

/* The worker may have given its id up, and used it in another's call. */
static int
tell_response(struct worker_mcp *m, const struct worker_call *c,
    const struct worker_rpc *r)
{
	struct buf b = BUF_INIT(WORKER_LINE_MAX);
	struct worker_mcp_asked *a =
	    asked_find(m, &r->s, &r->id.v[r->id.n - 1]);
	const struct worker_call *in =
	    a != NULL ? worker_numbered(m->back->w, a->call) : NULL;
	struct view id;
	int rc;

	if (in == NULL || c == NULL ||
	    (in != c && (c->client == NULL || in->client != c->client)))
		return SP_OK;
	id = buf_view(&a->raw);
	rc = mcp_send(m, &b, worker_rpc_put(r, &id, NULL, NULL, &b));
	if (rc == SP_OK)
		asked_free(m, a);
	return rc;
}

int
worker_mcp_tell(struct worker_mcp *m, const struct worker_call *c,
    struct view json)
{
	struct worker_rpc r;

	if (worker_rpc_read(json, &r) != SP_OK)
		return SP_E_SYNTAX;
	if (r.has_method)
		return r.id.n == 0 ? m->send(m->back, json) : SP_E_SYNTAX;
	if (r.id.n == 0 || r.has_result == r.has_error)
		return SP_E_SYNTAX;
	return tell_response(m, c, &r);
}

/* ---- notifications of the server -------------------------------------------- */

static struct worker_call *
call_of(struct worker_mcp *m, const struct worker_rpc *r,
    const struct worker_rpc_spans *v)
{
	int64_t n = 0;

	if (v->n == 0 || v->v[v->n - 1].kind != JSCAN_NUMBER ||
	    jscan_i64(&r->s, &v->v[v->n - 1], &n) != SP_OK || n <= 0)
		return NULL;
	return worker_numbered(m->back->w, (uint64_t)n);
}

static void
on_progress(struct worker_mcp *m, const struct worker_rpc *r)
{
	const struct worker_call *c = call_of(m, r, &r->token);
	struct buf b = BUF_INIT(2 * WORKER_LINE_MAX);

	if (c == NULL || c->token.n == 0)
		worker_count_dropped(m->back->w);
	else if (worker_listens(c) &&
	    worker_rpc_put(r, NULL, NULL, &c->token, &b) == SP_OK)
		worker_say(c, buf_view(&b));
	buf_clear(&b);
}

/* It gives up a request of its own. */
static void
on_cancelled(struct worker_mcp *m, const struct worker_rpc *r, struct view text)
{
	struct worker_mcp_asked *a = r->request_id.kind == JSCAN_NONE
	    ? NULL
	    : asked_find(m, &r->s, &r->request_id);

	const struct worker_call *c;

	if (a == NULL) {
		worker_count_dropped(m->back->w);
		return;
	}
	c = worker_numbered(m->back->w, a->call);
	asked_free(m, a);
	worker_say(c, text);
}

/* What concerns no call; "/" may be written "\/". */
static bool
is_for_all(const struct worker_rpc *r)
{
	struct buf name = BUF_INIT(WORKER_MCP_METHOD_MAX);
	bool all = r->method.kind == JSCAN_STRING &&
	    jscan_decode(&r->s, &r->method, &name, NULL) == SP_OK &&
	    (view_ends(buf_view(&name), VIEW("/list_changed")) ||
		view_eq(buf_view(&name),
		    VIEW("notifications/resources/updated")));

	buf_clear(&name);
	return all;
}

static void
on_notification(struct worker_mcp *m, const struct worker_rpc *r,
    struct view text)
{
	struct worker *w = m->back->w;
	const struct worker_call *c = said_in(m);
	/*
	 * who cannot be told misses it, an orchestrator or a grader as well as
	 * who has cancelled: it is nobody else's
	 */
	bool idle = m->within == 0 && w->current == NULL &&
	    worker_settled(w, WORKER_AGENTS);

	if (jscan_is(&r->s, &r->method, VIEW("notifications/progress")))
		on_progress(m, r);
	else if (jscan_is(&r->s, &r->method, VIEW("notifications/cancelled")))
		on_cancelled(m, r, text);
	else if (is_for_all(r) || idle)
		worker_tell_watches(w, text);
	else if (c != NULL)
		worker_say(c, text);
	else
		worker_count_dropped(w);
}

/* ---- answers ---------------------------------------------------------------- */

static int64_t
error_code(const struct worker_rpc *r)
{
	struct view error = jscan_raw(&r->s, &r->error);
	struct jscan_span v;
	struct jscan s;
	int64_t code = 0;

	jscan_init(&s, error, 0);
	if (r->error.kind != JSCAN_OBJECT ||
	    jscan_find(error, VIEW("code"), &v) != 1 ||
	    v.kind != JSCAN_NUMBER || jscan_i64(&s, &v, &code) != SP_OK)
		return 0;
	return code;
}

static void
error_text(const struct worker_rpc *r, struct buf *out)
{
	struct view error = jscan_raw(&r->s, &r->error);
	struct jscan_span v;
	struct jscan s;

	jscan_init(&s, error, 0);
	if (r->error.kind != JSCAN_OBJECT ||
	    jscan_find(error, VIEW("message"), &v) != 1 ||
	    v.kind != JSCAN_STRING || jscan_decode(&s, &v, out, NULL) != SP_OK)
		(void)!buf_add_view(out, view_sub(error, 0, MCP_SMALL_MAX));
}

static struct view
known_version(const struct worker_rpc *r)
{
	struct view result = jscan_raw(&r->s, &r->result);
	struct jscan_span v;
	struct jscan s;
	size_t i;

	jscan_init(&s, result, 0);
	if (r->result.kind != JSCAN_OBJECT ||
	    jscan_find(result, VIEW("protocolVersion"), &v) != 1)
		return VIEW_NONE;
	for (i = 0; mcp_versions[i] != NULL; i++)
		if (jscan_is(&s, &v, view_str(mcp_versions[i])))
			return view_str(mcp_versions[i]);
	return VIEW_NONE;
}

/* MCP 2025-11-25, lifecycle: initialization. */
static void
on_hello(struct worker_mcp *m, const struct worker_rpc *r)
{
	struct buf b = BUF_INIT(MCP_SMALL_MAX);

	m->hello = 0;
	if (r->has_error && error_code(r) == JRPC_METHOD_NOT_FOUND) {
		/* it has tools, and no more of MCP than that */
		worker_ready(m->back->w, VIEW_NONE);
		return;
	}
	if (r->has_error) {
		error_text(r, &b);
		mcp_bad(m, "it refused initialize", buf_view(&b));
		buf_clear(&b);
		return;
	}
	m->version = known_version(r);
	/* JSON-RPC batches came with 2025-03-26 and went with the next */
	m->batches = view_eq(m->version, VIEW("2025-03-26"));
	if (m->version.n == 0) {
		mcp_bad(m, "it speaks no version of MCP that is known here",
		    jscan_raw(&r->s, &r->result));
		return;
	}
	mcp_send_or_fail(m, &b,
	    buf_add_str(&b,
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		"initialized\"}"));
	if (m->back->w != NULL)
		worker_ready(m->back->w, jscan_raw(&r->s, &r->result));
}

static void
answer_mcp(struct worker_call *c, const struct worker_rpc *r)
{
	const struct view id = c->id.n > 0 ? c->id : VIEW("null");
	struct buf b = BUF_INIT(2 * WORKER_LINE_MAX);
	int rc = worker_rpc_put(r, &id, NULL, NULL, &b);

	if (rc == SP_OK)
		worker_answer(c, WORKER_OK, buf_view(&b));
	else
		worker_answer(c, WORKER_ERROR, view_str(err_str(rc)));
	buf_clear(&b);
}

/* It does not offer the method: what an environment without one is. */
static void
answer_absent(struct worker_mcp *m, struct worker_call *c)
{
	const struct worker *w = m->back->w;
	struct buf b = BUF_INIT(MCP_SMALL_MAX);

	if (c->op == WORKER_RESET) {
		worker_answer(c, WORKER_OK,
		    VIEW("{\"observation\":{},\"reward\":null,"
			 "\"done\":false}"));
	} else if (c->op == WORKER_STATE &&
	    buf_printf(&b, "{\"episode_id\":\"%s\",\"step_count\":%llu}",
		w->ep->id, (unsigned long long)w->steps) == SP_OK) {
		worker_answer(c, WORKER_OK, buf_view(&b));
	} else {
		worker_answer(c, WORKER_ERROR,
		    VIEW("the worker offers no such method (env/step)"));
	}
	buf_clear(&b);
}

static void
answer_env(struct worker_mcp *m, struct worker_call *c,
    const struct worker_rpc *r)
{
	struct buf b = BUF_INIT(WORKER_LINE_MAX);

	if (r->has_result && r->result.kind == JSCAN_OBJECT) {
		worker_answer(c, WORKER_OK, jscan_raw(&r->s, &r->result));
	} else if (r->has_result) {
		worker_answer(c, WORKER_ERROR, VIEW("its result is no object"));
	} else if (error_code(r) == JRPC_METHOD_NOT_FOUND) {
		answer_absent(m, c);
	} else {
		error_text(r, &b);
		worker_answer(c, WORKER_ERROR, buf_view(&b));
	}
	buf_clear(&b);
}

static void
on_response(struct worker_mcp *m, const struct worker_rpc *r)
{
	struct worker_call *c = call_of(m, r, &r->id);
	int64_t n = 0;

	if (jscan_i64(&r->s, &r->id.v[r->id.n - 1], &n) != SP_OK || n < 0)
		n = 0;
	if (m->hello != 0 && (uint64_t)n == m->hello)
		on_hello(m, r);
	else if (c == NULL &&
	    (n == 0 || !worker_heard(m->back->w, (uint64_t)n)))
		worker_count_dropped(m->back->w);
	else if (c == NULL)
		return;
	else if (c->op == WORKER_MCP)
		answer_mcp(c, r);
	else
		answer_env(m, c, r);
}

/* ---- what comes ------------------------------------------------------------- */

/* No JSON, for a reason that is common and hard to see. */
static bool
mcp_is_python(struct view text)
{
	static const struct view words[] = { { "NaN", 3 }, { "Infinity", 8 } };
	size_t i, at;

	if (jscan_valid(text, 0) == SP_OK)
		return false;
	for (i = 0; i < 2; i++)
		for (at = 0; at + words[i].n <= text.n; at++)
			if (view_starts(view_from(text, at), words[i]))
				return true;
	return false;
}

static void
feed_one(struct worker_mcp *m, struct view text)
{
	struct worker_rpc r;

	if (worker_rpc_read(text, &r) != SP_OK || !r.version)
		mcp_bad(m,
		    mcp_is_python(text)
			? "it sent NaN or Infinity, which JSON does not have "
			  "(Python: json.dumps(..., allow_nan=False))"
			: "it sent what is no JSON-RPC message",
		    text);
	else if (r.has_method && r.id.n == 0)
		on_notification(m, &r, text);
	else if (r.has_method)
		on_request(m, &r, text);
	else if (r.id.n > 0 && r.has_result != r.has_error)
		on_response(m, &r);
	else
		mcp_bad(m,
		    "it sent what is neither request, nor notification, nor "
		    "response",
		    text);
}

static void
feed_batch(struct worker_mcp *m, struct view text)
{
	struct jscan_span v;
	struct jscan s;

	/* all of it is looked at before anything is done */
	if (jscan_valid(text, 0) != SP_OK) {
		mcp_bad(m, "it sent what is no JSON", text);
		return;
	}
	jscan_init(&s, text, 0);
	if (jscan_enter(&s) != SP_OK)
		return;
	while (m->back->w != NULL && jscan_element(&s) == 1 &&
	    jscan_skip(&s, &v) == SP_OK)
		feed_one(m, jscan_raw(&s, &v));
}

void
worker_mcp_feed(struct worker_mcp *m, struct view json)
{
	struct jscan s;

	jscan_init(&s, json, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY)
		feed_one(m, json);
	else if (m->batches)
		feed_batch(m, json);
	else
		mcp_bad(m,
		    "it sent a batch, which its version of MCP does not have",
		    json);
}

/* ---- calls ------------------------------------------------------------------ */

static int
call_mcp(const struct worker_call *c, struct view number, struct buf *out)
{
	struct worker_rpc r;
	int rc = worker_rpc_reread(buf_view(&c->data), &r);

	if (rc != SP_OK)
		return rc;
	return worker_rpc_put(&r, &number, &number, NULL, out);
}

int
worker_mcp_call(struct worker_mcp *m, struct worker_call *c)
{
	static const char *const methods[] = {
		[WORKER_RESET] = "env/reset",
		[WORKER_STEP] = "env/step",
		[WORKER_STATE] = "env/state",
	};
	struct buf b = BUF_INIT(WORKER_LINE_MAX), number = BUF_INIT(32);
	int rc = buf_printf(&number, "%llu", (unsigned long long)c->number);

	if (rc == SP_OK && c->op == WORKER_MCP)
		rc = call_mcp(c, buf_view(&number), &b);
	else if (rc == SP_OK)
		rc = buf_printf(&b,
		    "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"method\":\"%s\","
		    "\"params\":",
		    VIEW_ARG(buf_view(&number)), methods[c->op]);
	if (rc == SP_OK && c->op != WORKER_MCP)
		rc = buf_add_view(&b, buf_view(&c->data));
	if (rc == SP_OK && c->op != WORKER_MCP)
		rc = buf_add_char(&b, '}');
	buf_clear(&number);
	return mcp_send(m, &b, rc);
}

bool
worker_mcp_cancel(struct worker_mcp *m, const struct worker_call *c,
    struct view reason)
{
	struct buf b = BUF_INIT(MCP_SMALL_MAX);
	int rc;

	/* half of a reset or step is no state to go on from */
	if (c->op != WORKER_MCP)
		return false;
	rc = buf_printf(&b,
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
	    "\"params\":{\"requestId\":%llu",
	    (unsigned long long)c->number);
	if (rc == SP_OK && reason.n > 0 && reason.n < 4096 &&
	    jscan_valid(reason, 0) == SP_OK)
		rc = buf_printf(&b, ",\"reason\":%.*s", VIEW_ARG(reason));
	if (rc == SP_OK)
		rc = buf_add_str(&b, "}}");
	return mcp_send(m, &b, rc) == SP_OK;
}

void
worker_mcp_ping(struct worker_mcp *m, struct worker_call *c)
{
	struct buf b = BUF_INIT(MCP_SMALL_MAX);
	uint64_t n = ++m->back->w->numbers;

	if (mcp_send(m, &b,
		buf_printf(&b,
		    "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"ping\"}",
		    (unsigned long long)n)) == SP_OK)
		c->ping = n;
}

/* ---- life ------------------------------------------------------------------- */

void
worker_mcp_init(struct worker_mcp *m, struct worker_back *back,
    int (*send)(struct worker_back *b, struct view json))
{
	*m = (struct worker_mcp){ .back = back, .send = send };
	TAILQ_INIT(&m->asked);
}

void
worker_mcp_clear(struct worker_mcp *m)
{
	struct worker_mcp_asked *a;

	while ((a = TAILQ_FIRST(&m->asked)) != NULL)
		asked_free(m, a);
}
