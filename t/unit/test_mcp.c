/*
 * core/gate/mcp*.c and the modules on them: both dialects over HTTP, against a
 * worker that is played here.
 */
#include "config.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/gate_priv.h"
#include "gate/grading.h"
#include "gate/worker.h"
#include "ipc/wire.h"
#include "os/fd.h"

#include "conf_text.h"
#include "mcp_agent.h"
#include "mcp_agent_conf.h"
#include "mcp_grader.h"
#include "mux_backend.h"
#include "tap.h"

extern const struct conf_module health_conf;
static const struct gate_module bare = { .conf = &health_conf };
const struct gate_module *const gate_modules[] = { &mcp_agent_module,
	&mcp_grader_module, &bare, NULL };

static struct loop *loop;
static struct loop_timer *stopper;
static struct conf *conf;
static struct gate *gate;
static struct mux mux;
static struct episode *episode;

/* ---- the worker ------------------------------------------------------------- */

struct worker_call {
	const struct worker_caller *caller;
	void *arg;
};

static struct {
	bool none;
	enum worker_state state;
	const char *initialized;
	struct worker_call call; /* the last */
	bool open; /* it waits */
	enum worker_op op;
	unsigned calls, forgotten, cancelled, told;
	struct buf text, tell, reason;
	struct worker_watch *watch;
	LIST_HEAD(, worker_watch) watches;
} w = { .text = BUF_INIT(1 << 20),
	.tell = BUF_INIT(1 << 20),
	.reason = BUF_INIT(4096) };

static void
keep(struct buf *b, struct view v)
{
	buf_reset(b, SIZE_MAX);
	if (buf_add_view(b, v) != SP_OK)
		abort();
}

struct worker *
worker_of(struct episode *ep)
{
	(void)ep;
	return w.none ? NULL : (struct worker *)&w;
}

enum worker_state
worker_state(const struct worker *one)
{
	(void)one;
	return w.state;
}

struct view
worker_initialized(const struct worker *one)
{
	(void)one;
	return view_str(w.initialized);
}

int
worker_call(struct worker *one, enum worker_op op, struct view data,
    uint64_t timeout_ms, const struct worker_caller *caller, void *arg,
    struct worker_call **out)
{
	(void)one;
	(void)timeout_ms;
	w.calls++;
	w.op = op;
	w.open = true;
	w.call.caller = caller;
	w.call.arg = arg;
	keep(&w.text, data);
	*out = &w.call;
	return SP_OK;
}

void
worker_forget(struct worker_call *c, struct view reason)
{
	(void)c;
	(void)reason;
	w.forgotten++;
	w.open = false;
}

void
worker_cancel(struct worker_call *c, struct view reason)
{
	(void)c;
	w.cancelled++;
	keep(&w.reason, reason);
}

int
worker_tell(struct worker *one, struct view json)
{
	(void)one;
	w.told++;
	keep(&w.tell, json);
	return SP_OK;
}

void
worker_watch(struct worker *one, struct worker_watch *watch)
{
	(void)one;
	LIST_INSERT_HEAD(&w.watches, watch, link);
}

void
worker_unwatch(struct worker_watch *watch)
{
	LIST_REMOVE(watch, link);
}

static void
says(enum worker_result result, const char *body)
{
	if (!w.open)
		return;
	w.open = false;
	w.call.caller->done(w.call.arg, result, view_str(body));
}

static void
says_before(const char *json)
{
	if (w.open && w.call.caller->message != NULL)
		w.call.caller->message(w.call.arg, view_str(json));
}

static void
says_to_all(const char *json)
{
	struct worker_watch *x, *next;

	for (x = LIST_FIRST(&w.watches); x != NULL; x = next) {
		next = LIST_NEXT(x, link);
		if (x->message != NULL)
			x->message(x->arg, view_str(json));
	}
}

static void
becomes(enum worker_state state)
{
	struct worker_watch *x, *next;

	w.state = state;
	for (x = LIST_FIRST(&w.watches); x != NULL; x = next) {
		next = LIST_NEXT(x, link);
		if (x->changed != NULL)
			x->changed(x->arg, state);
	}
}

/* ---- grading ---------------------------------------------------------------- */

static struct {
	const struct grading_done *done;
	void *arg;
	struct buf what;
	unsigned forgotten, n;
	int rc;
} grade = { .what = BUF_INIT(4096) };

static int
graded(struct view what, const struct grading_done *done, void *arg,
    struct grading **out)
{
	if (grade.rc != SP_OK)
		return grade.rc;
	grade.n++;
	grade.done = done;
	grade.arg = arg;
	keep(&grade.what, what);
	*out = (struct grading *)&grade;
	return SP_OK;
}

int
grading_read(struct episode *ep, struct view path,
    const struct grading_done *done, void *arg, struct grading **out)
{
	(void)ep;
	return graded(path, done, arg, out);
}

int
grading_diff(struct episode *ep, const struct grading_done *done, void *arg,
    struct grading **out)
{
	(void)ep;
	return graded(VIEW("diff"), done, arg, out);
}

int
grading_run(struct episode *ep, struct view process,
    const struct grading_done *done, void *arg, struct grading **out)
{
	(void)ep;
	return graded(process, done, arg, out);
}

void
grading_forget(struct grading *g)
{
	(void)g;
	grade.forgotten++;
}

/* ---- the world -------------------------------------------------------------- */

static uint32_t request;

static int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	struct wire in;

	(void)arg;
	(void)type;
	fd_close(&fd);
	wire_init(&in, body);
	request = wire_u32(&in);
	return SP_OK;
}

static void
hear(enum message_type type, const struct buf *body)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(body),
		.fd = -1 };

	if (episode_set_heard(gate_episodes(gate), &m) != SP_OK)
		abort();
}

static void
make(const char *id)
{
	struct buf b = BUF_INIT(1024);

	if (episode_create(gate_episodes(gate), VIEW("echo"), view_str(id),
		NULL, NULL, &episode) != SP_OK ||
	    wire_put_u32(&b, 1) != SP_OK || wire_put_u32(&b, 1) != SP_OK ||
	    wire_put_u32(&b, request) != SP_OK ||
	    wire_put_bytes(&b, VIEW("echo")) != SP_OK)
		abort();
	hear(MESSAGE_EPISODE_MADE, &b);
	buf_clear(&b);
}

static void
over(void)
{
	struct buf b = BUF_INIT(1024);

	if (wire_put_u32(&b, 1) != SP_OK || wire_put_u32(&b, 1) != SP_OK ||
	    wire_put_u32(&b, 0) != SP_OK ||
	    wire_put_u8(&b, SANDBOX_END_LOST) != SP_OK ||
	    wire_put_bytes(&b, VIEW_NONE) != SP_OK)
		abort();
	hear(MESSAGE_EPISODE_ENDED, &b);
	buf_clear(&b);
}

static const char text[] =
    "environment echo { sandbox { uid 300000 4096; }\n"
    "  worker stdio /usr/bin/worker;\n"
    "  assets /a { oracle o.sh; rubric r.py; }\n"
    "  process rubric { trust privileged; asset rubric; }\n"
    "  process loader { trust workload; command /usr/bin/x; } }\n"
    "server {\n"
    "  listen 127.0.0.1:7000;\n"
    "  location /mcp { mcp_agent; environment echo; tools env.* echo; }\n"
    "  location /few { mcp_agent; environment echo; tools env.*; sessions 2;\n"
    "                  features logging; }\n"
    "  location /mcp/grader { mcp_grader; environment echo; token env:TOKEN;\n"
    "     tools env.* grader.*; fs_read /workspace/** /openenvd/assets/*;\n"
    "     privileged_exec on; }\n"
    "  location /small { mcp_grader; environment echo; token env:TOKEN;\n"
    "     tools *; }\n"
    "}\n";

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
turn(void)
{
	int i = 0;

	do {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	} while (mux_turn(&mux) || i++ < 3);
}

static void
begin(void)
{
	struct buf err = BUF_INIT(4096);

	w.none = false;
	w.state = WORKER_READY;
	w.initialized = "";
	w.open = false;
	w.calls = w.forgotten = w.cancelled = w.told = 0;
	LIST_INIT(&w.watches);
	grade.rc = SP_OK;
	grade.n = grade.forgotten = 0;
	if (gate_new(loop, conf, &gate, &err) != SP_OK ||
	    gate_set_helper(gate, send_helper, NULL) != SP_OK ||
	    gate_start(gate) != SP_OK)
		abort();
	mux_init(&mux, &walk_consumer, gate, 1 << 24, 1 << 20);
	make("one");
}

static void
finish(void)
{
	mux_clear(&mux);
	tap_ok(LIST_EMPTY(&w.watches), "nobody watches any more");
	gate_free(gate);
	gate = NULL;
}

static void
let_go(void)
{
	struct mux_stream *s;

	for (s = mux.streams; s < mux.streams + MUX_STREAMS; s++) {
		if (s->id == 0 || !s->over)
			continue;
		buf_clear(&s->up);
		buf_clear(&s->down);
		buf_clear(&s->got);
		s->id = 0;
	}
}

#define SPEC \
	"accept: application/json, text/event-stream\n" \
	"content-type: application/json\n"
#define BEARER "authorization: Bearer 0123456789abcdef\n"

/* fields: "name: value\n" each. */
static struct mux_stream *
ask(const char *method, const char *path, const char *fields, const char *body)
{
	struct mux_stream *s;
	struct view rest = view_str(fields), line;
	size_t at;

	let_go();
	s = mux_open(&mux, method, path, body != NULL);
	if (s == NULL)
		abort();
	s->x.request.authority = VIEW("localhost:7000");
	while (view_split(&rest, '\n', &line)) {
		at = view_find(line, ':');
		if (at < line.n &&
		    head_add(&s->x.request.fields, view_sub(line, 0, at),
			view_from(line, at + 2)) != SP_OK)
			abort();
	}
	if (body != NULL)
		mux_send(s, view_str(body), true);
	turn();
	return s;
}

static void
is(const struct mux_stream *s, unsigned status, const char *body,
    const char *what)
{
	struct view got = buf_view(&s->got), want = view_str(body);
	/* a part where it begins with "..." */
	bool ok = s->status == status && s->got_end &&
	    (view_starts(want, VIEW("..."))
		    ? view_search(got, view_from(want, 3)) < got.n
		    : view_eq(got, want));

	tap_ok(ok, "%s", what);
	if (!ok)
		tap_diag("%u %.*s", s->status, VIEW_ARG(got));
}

static struct mux_stream *
plain(const char *body)
{
	return ask("POST", "/mcp", "", body);
}

#define ERROR(id, code, message) \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"error\":{\"code\":" code \
	",\"message\":\"" message "\",\"data\":null}}"
#define RPC(id, method) \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\"}"
#define RPCP(id, method, params) \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method \
	"\",\"params\":" params "}"

/* ---- the plain dialect ------------------------------------------------------ */

static void
test_plain_order(void)
{
	begin();
	is(plain("{"), 200, ERROR("null", "-32700", "Parse error"), "no JSON");
	is(plain(""), 200, ERROR("null", "-32700", "Parse error"), "nothing");
	is(plain("[]"), 200, ERROR("null", "-32602", "Invalid parameters"),
	    "no object");
	is(plain("{\"id\":7,\"method\":\"x\"}"), 200,
	    ERROR("7", "-32602", "Invalid parameters"), "no jsonrpc");
	is(plain("{\"jsonrpc\":\"1.0\",\"id\":\"a\",\"method\":\"x\"}"), 200,
	    ERROR("\"a\"", "-32602", "Invalid parameters"), "another");
	is(plain("{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"x\"}"), 200,
	    ERROR("null", "-32602", "Invalid parameters"), "a bad id");
	is(plain("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"y\":1}"),
	    200, ERROR("1", "-32602", "Invalid parameters"), "an extra key");
	is(plain(RPCP("1", "tools/list", "[]")), 200,
	    ERROR("1", "-32602", "Invalid parameters"), "params");
	is(plain(RPCP("1", "tools/list", "null")), 200,
	    ERROR("1", "-32602", "Invalid parameters"), "null params");
	is(plain(RPCP("1", "initialized", "{\"session_id\":\"x\"}")), 200,
	    ERROR("1", "-32602", "Invalid parameters"), "an unknown session");
	is(plain(RPCP("1", "tools/list", "{\"session_id\":1}")), 200,
	    ERROR("1", "-32602", "Invalid parameters"), "no string");
	is(plain(RPC("1", "openenv/session/close")), 200,
	    ERROR("1", "-32602", "Invalid parameters"), "close of none");
	is(plain(RPC("1", "ping")), 200,
	    ERROR("1", "-32601", "Method not found: ping"), "ping");
	is(plain("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		 "initialized\"}"),
	    200,
	    ERROR("null", "-32601",
		"Method not found: notifications/initialized"),
	    "a notification is answered");
	is(plain(RPC("1", "reset")), 200,
	    ERROR("1", "-32601", "Method not found: reset"), "reset");
	is(plain(RPC("1", "env/reset")), 200,
	    ERROR("1", "-32601", "Method not found: env/reset"), "env/reset");
	is(ask("GET", "/mcp", "", NULL), 405,
	    "{\"detail\":\"Method Not Allowed\"}", "GET");
	is(ask("DELETE", "/mcp", "", NULL), 405,
	    "{\"detail\":\"Method Not Allowed\"}", "DELETE");
	tap_is_int(w.calls, 0, "the worker saw nothing of it");
	finish();
}

static void
test_plain_sessions(void)
{
	struct buf id = BUF_INIT(64), body = BUF_INIT(1024);
	struct mux_stream *s;
	size_t i;

	begin();
	s = plain(RPCP("1", "openenv/session/create", "{}"));
	is(s, 200,
	    "...{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"session_id\":\"",
	    "a session");
	keep(&id,
	    view_sub(buf_view(&s->got),
		view_search(buf_view(&s->got), VIEW("session_id\":\"")) + 13,
		36));
	for (i = 0; i < 2; i++) {
		buf_reset(&body, SIZE_MAX);
		if (buf_printf(&body,
			RPCP("2", "%s",
			    "{\"a\" : 1, \"session_id\":\"%.*s\", \"b\":2}"),
			i == 0 ? "tools/list" : "openenv/session/close",
			VIEW_ARG(buf_view(&id))) != SP_OK ||
		    buf_add_char(&body, '\0') != SP_OK)
			abort();
		s = plain(buf_view(&body).p);
		if (i == 0) {
			tap_ok(view_eq(buf_view(&w.text),
				   VIEW(RPCP("2", "tools/list",
				       "{\"a\" : 1, \"b\":2}"))),
			    "the worker is not told of it");
			says(WORKER_OK,
			    "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{"
			    "\"tools\":[]}}");
			turn();
		}
		is(s, 200, i == 0 ? "...\"tools\":[]" : "...,\"closed\":true}",
		    i == 0 ? "used" : "closed");
	}
	is(plain(buf_view(&body).p), 200,
	    ERROR("2", "-32602", "Invalid parameters"), "closed already");
	s = ask("POST", "/mcp/grader", BEARER,
	    RPCP("1", "openenv/session/create", "{}"));
	keep(&id,
	    view_sub(buf_view(&s->got),
		view_search(buf_view(&s->got), VIEW("session_id\":\"")) + 13,
		36));
	buf_reset(&body, SIZE_MAX);
	if (buf_printf(&body,
		RPCP("2", "tools/list", "{\"session_id\":\"%.*s\"}"),
		VIEW_ARG(buf_view(&id))) != SP_OK ||
	    buf_add_char(&body, '\0') != SP_OK)
		abort();
	is(plain(buf_view(&body).p), 200,
	    ERROR("2", "-32602", "Invalid parameters"), "another surface's");
	for (i = 0; i < 3; i++)
		s = ask("POST", "/few", "", RPC("1", "openenv/session/create"));
	is(s, 200, ERROR("1", "-32602", "Invalid parameters"),
	    "more than there may be");
	buf_clear(&id);
	buf_clear(&body);
	finish();
}

static void
plain_answer(const char *asked, const char *sent, enum worker_result result,
    const char *answer, const char *want, const char *what)
{
	struct mux_stream *s = plain(asked);

	if (sent != NULL)
		tap_ok(w.open && view_eq(buf_view(&w.text), view_str(sent)),
		    "%s: as it was", what);
	says(result, answer);
	turn();
	is(s, 200, want, what);
}

static void
test_plain_calls(void)
{
	static const char call[] =
	    RPCP("2", "tools/call", "{\"name\":\"echo\",\"arguments\":{}}");
	static const char ok[] =
	    "{\"id\":2, \"jsonrpc\":\"2.0\",\"result\":{\"x\":\"\\u00e4\"}}";
	unsigned calls;

	begin();
	plain_answer(call, call, WORKER_OK, ok, ok, "a call");
	plain_answer("{\"jsonrpc\":\"2.0\",\"method\":\"tools/"
		     "call\",\"params\":"
		     "{\"name\":\"env.x\"}}",
	    "{\"id\":null,\"jsonrpc\":\"2.0\",\"method\":\"tools/call\","
	    "\"params\":{\"name\":\"env.x\"}}",
	    WORKER_OK, ok, ok, "without an id");
	plain_answer(call, NULL, WORKER_ERROR, "Traceback",
	    ERROR("2", "-32603", "Environment operation failed"), "refused");
	plain_answer(call, NULL, WORKER_GONE, "exit 1",
	    ERROR("2", "-32603", "Environment operation failed"), "gone");
	plain_answer(call, NULL, WORKER_TIMEOUT, "",
	    ERROR("2", "-32603", "Environment operation failed"), "timeout");
	plain_answer(call, NULL, WORKER_BUSY, "",
	    ERROR("2", "-32603", "Environment operation failed"), "busy");
	calls = w.calls;
	is(plain(RPCP("2", "tools/call", "{\"name\":\"hidden\"}")), 200,
	    ERROR("2", "-32602", "Tool not found"), "a hidden tool");
	is(plain(RPCP("2", "tools/call", "{\"name\":\"reset\"}")), 200,
	    ERROR("2", "-32602", "Tool not found"), "a name of the lifecycle");
	is(plain(RPCP("2", "tools/call",
	       "{\"name\":\"grader.read_file\",\"arguments\":{\"path\":\"/"
	       "workspace/x\"}}")),
	    200, ERROR("2", "-32602", "Tool not found"), "a grader's tool");
	is(plain(RPCP("2", "tools/call", "{\"name\":\"ech\\u006fo\"}")), 200,
	    ERROR("2", "-32602", "Tool not found"), "with an escape");
	is(plain(RPCP("2", "tools/call", "{\"name\":\"echo\\ud800\"}")), 200,
	    ERROR("2", "-32602", "Tool not found"), "half a pair");
	is(plain(RPCP("2", "tools/call", "{}")), 200,
	    ERROR("2", "-32602", "Invalid parameters"), "no name");
	is(plain(RPC("2", "tools/call")), 200,
	    ERROR("2", "-32602", "Invalid parameters"), "no params");
	is(plain(RPCP("2", "tools/call", "{\"name\":7}")), 200,
	    ERROR("2", "-32602", "Invalid parameters"), "a number");
	is(plain(
	       RPCP("2", "tools/call", "{\"name\":\"echo\",\"arguments\":[]}")),
	    200, ERROR("2", "-32602", "Invalid parameters"), "no arguments");
	is(plain(RPCP("2", "tools/call",
	       "{\"name\":\"echo\",\"name\":\"hidden\"}")),
	    200, ERROR("2", "-32602", "Invalid parameters"), "two names");
	is(plain(RPCP("2", "tools/call",
	       "{\"name\":\"echo\",\"Name\":\"hidden\"}")),
	    200, ERROR("2", "-32602", "Invalid parameters"),
	    "two, to readers that fold case");
	tap_is_int(w.calls, calls, "none of them reached the worker");
	w.none = true;
	is(plain(call), 200,
	    ERROR("2", "-32603", "Environment operation failed"), "no worker");
	finish();
}

/* ---- tools/list ------------------------------------------------------------- */

static void
list(const char *path, const char *tools, const char *want, const char *what)
{
	struct buf b = BUF_INIT(65536), c = BUF_INIT(65536);
	struct mux_stream *s =
	    ask("POST", path, BEARER, RPC("1", "tools/list"));

	if (buf_printf(&b, " {\"jsonrpc\":\"2.0\",\"result\":%s,\"id\":1}\n",
		tools) != SP_OK ||
	    buf_add_char(&b, '\0') != SP_OK ||
	    buf_printf(&c, " {\"jsonrpc\":\"2.0\",\"result\":%s,\"id\":1}\n",
		want) != SP_OK ||
	    buf_add_char(&c, '\0') != SP_OK)
		abort();
	says(WORKER_OK, buf_view(&b).p);
	turn();
	is(s, 200, want[0] == '.' || want[0] == '-' ? want : buf_view(&c).p,
	    what);
	buf_clear(&b);
	buf_clear(&c);
}

#define T(name) "{\"name\":\"" name "\"}"

static void
test_list(void)
{
	begin();
	list("/mcp", "{\"tools\":[]}", "{\"tools\":[]}", "none");
	list("/mcp", "{\"tools\":[ " T("echo") " , " T("env.a") " ]}",
	    "{\"tools\":[ " T("echo") " , " T("env.a") " ]}", "all are seen");
	list("/mcp", "{\"tools\":[" T("x") ", " T("env.a") "]}",
	    "{\"tools\":[" T("env.a") "]}", "the first is hidden");
	list("/mcp", "{\"tools\":[" T("env.a") ", " T("x") "]}",
	    "{\"tools\":[" T("env.a") "]}", "the last is");
	list("/mcp",
	    "{\"tools\":[" T("env.a") ", " T("x") " ," T("y") ",  " T(
		"env.b") "]}",
	    "{\"tools\":[" T("env.a") ",  " T("env.b") "]}", "some between");
	list("/mcp", "{\"tools\":[ " T("x") " ]}", "{\"tools\":[ ]}",
	    "all are");
	list("/mcp", "{\"nextCursor\":\"c\\u0031\",\"tools\":[" T("x") "]}",
	    "{\"nextCursor\":\"c\\u0031\",\"tools\":[]}", "a page");
	list("/mcp",
	    "{\"tools\":[{\"description\":\"d\",\"n\\u0061me\":\"ec\\u0068o\"},"
	    "{\"name\":7},{},7,{\"name\":\"echo\",\"Name\":\"x\"}]}",
	    "{\"tools\":[{\"description\":\"d\",\"n\\u0061me\":\"ec\\u0068o\"}"
	    "]}",
	    "what is odd is hidden");
	list("/mcp", "{\"tools\":[" T("reset") "," T("grader.x") "]}",
	    "{\"tools\":[]}", "reserved names");
	list("/mcp", "[]", "...-32603", "no list");
	list("/mcp", "{\"tools\":{}}", "...-32603", "no array");
	list("/mcp", "{\"tools\":[],\"Tools\":[" T("x") "]}", "...-32603",
	    "two lists");
	list("/mcp/grader",
	    "{\"tools\":[" T("env.a") "," T("grader.read_file") "," T("x") "]}",
	    "...{\"tools\":[{\"name\":\"env.a\"},{\"name\":\"grader.read_"
	    "file\","
	    "\"description\":\"",
	    "a grader's are ours");
	list("/mcp/grader", "{\"tools\":[]}",
	    "...{\"tools\":[{\"name\":\"grader.read_file\"", "alone");
	list("/mcp/grader", "{\"tools\":[]}",
	    "...\"name\":\"grader.run_process\"", "with what runs");
	list("/mcp/grader", "{\"tools\":[],\"nextCursor\":\"x\"}",
	    "{\"tools\":[],\"nextCursor\":\"x\"}", "on the last page");
	list("/small", "{\"tools\":[]}",
	    "...\"additionalProperties\":false}},{\"name\":\"grader.get_"
	    "full_state\"",
	    "without privilege");
	finish();
}

/* ---- the specification's dialect -------------------------------------------- */

static char session[128]; /* its field */

static struct mux_stream *
spec(const char *body)
{
	char fields[512];

	snprintf(fields, sizeof(fields), "%s" SPEC, session);
	return ask("POST", "/mcp", fields, body);
}

static const char init[] = RPCP("0", "initialize",
    "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"sampling\":{}},"
    "\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}");

static void
initialize(void)
{
	struct mux_stream *s;

	session[0] = '\0';
	s = spec(init);
	is(s, 200, "...\"protocolVersion\":\"2025-06-18\"", "initialize");
	snprintf(session, sizeof(session), "mcp-session-id: %s\n", s->session);
}

static void
test_spec_rules(void)
{
	begin();
	initialize();
	is(ask("POST", "/mcp",
	       "accept: text/event-stream\ncontent-type: application/json\n",
	       init),
	    406, "...-32000", "Accept without JSON");
	is(ask("POST", "/mcp",
	       "accept: application/json\ncontent-type: application/json\n",
	       init),
	    406, "...-32000", "without events");
	is(ask("POST", "/mcp", "", init), 406, "...-32000", "none");
	is(ask("POST", "/mcp",
	       "accept: */*\ncontent-type: application/json; charset=utf-8\n",
	       init),
	    200, "...protocolVersion", "anything");
	is(ask("POST", "/mcp",
	       "accept: application/json;q=0.9 , text/event-stream\n"
	       "content-type: text/plain\n",
	       init),
	    415, "...-32000", "another type");
	is(spec("{"), 400, "...-32700", "no JSON");
	is(spec("{}"), 400, "...-32700", "no message");
	is(spec(init), 400, "...-32600", "initialize again");
	is(spec("[]"), 400, "...-32600", "an empty batch");
	is(ask("POST", "/mcp", SPEC, RPC("1", "tools/list")), 400,
	    "...Mcp-Session-Id header is required", "no session");
	is(ask("POST", "/mcp", "mcp-session-id: nope\n" SPEC,
	       RPC("1", "tools/list")),
	    404, "...-32001", "an unknown one");
	is(ask("POST", "/mcp", "mcp-protocol-version: 1999-01-01\n" SPEC, init),
	    200, "...protocolVersion", "its version is in its message");
	is(spec("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		"initialized\"}"),
	    202, "", "a notification");
	is(spec("{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}"), 202, "",
	    "a response to nothing");
	tap_is_int(w.told, 0, "which goes nowhere");
	is(spec(RPC("1", "ping")), 200,
	    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", "ping");
	is(spec(RPC("1", "env/reset")), 200,
	    "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,"
	    "\"message\":\"Method not found\"}}",
	    "a method of the lifecycle");
	is(spec(RPC("1", "resources/list")), 200, "...-32601",
	    "what a plain worker has not");
	is(spec(RPCP("5", "tools/call", "{\"name\":\"hidden\"}")), 200,
	    "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32602,"
	    "\"message\":\"Unknown tool: hidden\"}}",
	    "a hidden tool");
	is(spec(RPC("null", "ping")), 200, "...-32600", "a null id");
	tap_is_int(w.calls, 0, "the worker saw nothing");
	is(ask("PUT", "/mcp", session, NULL), 405, "...Method Not", "PUT");
	finish();
}

static void
test_spec_batch(void)
{
	struct buf b = BUF_INIT(65536);
	struct mux_stream *s;
	int i;

	begin();
	initialize();
	is(spec("[" RPC("1", "ping") "," RPC("2", "ping") "]"), 200,
	    "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}},{\"jsonrpc\":\"2."
	    "0\","
	    "\"id\":2,\"result\":{}}]",
	    "two");
	is(spec("[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}]"), 202,
	    "", "none to answer");
	is(spec("[" RPC("1", "ping") ",7]"), 400, "...-32700", "no message");
	session[0] = '\0';
	is(spec("[" RPC("1", "initialize") "," RPC("2", "ping") "]"), 400,
	    "...-32600", "initialize in one");
	initialize();
	if (buf_add_char(&b, '[') != SP_OK)
		abort();
	for (i = 0; i < 101; i++)
		if (buf_printf(&b, "%s" RPC("1", "ping"), i > 0 ? "," : "") !=
		    SP_OK)
			abort();
	if (buf_add_str(&b, "]") != SP_OK || buf_add_char(&b, '\0') != SP_OK)
		abort();
	is(spec(buf_view(&b).p), 400, "...-32600", "too many");
	s = spec("[" RPC("1", "ping") "," RPCP("2", "tools/call",
	    "{\"name\":\"echo\"}") "]");
	tap_ok(s->status == 0, "a reply waits for all");
	says(WORKER_OK, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
	turn();
	is(s, 200, "...,{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]",
	    "and has it");
	buf_clear(&b);
	finish();
}

static void
test_spec_stream(void)
{
	static const char call[] =
	    RPCP("9", "tools/call", "{\"name\":\"echo\",\"_meta\":{}}");
	static const char progress[] =
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","
	    "\"params\":{\"progressToken\":9,\"progress\":1}}";
	static const char sample[] =
	    RPCP("\"w1\"", "sampling/createMessage", "{}");
	struct mux_stream *s, *g;

	begin();
	initialize();
	s = spec(call);
	tap_ok(view_eq(buf_view(&w.text), view_str(call)), "as it was");
	says_before(progress);
	turn();
	tap_ok(s->status == 200 && !s->got_end, "a stream");
	says_before(sample);
	says_before(RPC("5", "elicitation/create"));
	tap_ok(view_search(buf_view(&w.tell), VIEW("-32601")) <
		buf_len(&w.tell),
	    "what the client lacks is refused");
	says_before(RPC("6", "ping"));
	tap_ok(view_eq(buf_view(&w.tell),
		   VIEW("{\"jsonrpc\":\"2.0\",\"id\":6,\"result\":{}}")),
	    "a ping of the worker's");
	g = spec("{\"jsonrpc\":\"2.0\",\"id\":\"w1\",\"result\":{\"a\":1}}");
	is(g, 202, "", "the client's answer");
	tap_ok(view_eq(buf_view(&w.tell),
		   VIEW("{\"jsonrpc\":\"2.0\",\"id\":\"w1\",\"result\":{\"a\":1"
			"}}")),
	    "reaches the worker as it is");
	w.told = 0;
	g = spec("{\"jsonrpc\":\"2.0\",\"id\":\"w1\",\"result\":{\"a\":2}}");
	tap_is_int(w.told, 0, "once");
	is(spec("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
		"\"params\":{\"requestId\":9,\"reason\":\"why\"}}"),
	    202, "", "cancelled");
	tap_ok(w.cancelled == 1 &&
		view_eq(buf_view(&w.reason), VIEW("\"why\"")),
	    "the worker is told");
	says(WORKER_OK, "{\"jsonrpc\":\"2.0\",\"id\":9,\n\"result\":{}}");
	turn();
	is(s, 200,
	    "event: message\ndata: "
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","
	    "\"params\":{\"progressToken\":9,\"progress\":1}}\n\n"
	    "event: message\ndata: "
	    "{\"jsonrpc\":\"2.0\",\"id\":\"w1\",\"method\":\"sampling/"
	    "createMessage\",\"params\":{}}\n\n"
	    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,\n"
	    "data: \"result\":{}}\n\n",
	    "events");
	is(spec("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
		"\"params\":{\"requestId\":9}}"),
	    202, "", "of what is over");
	tap_is_int(w.cancelled, 1, "nothing");
	finish();
}

static void
test_spec_get(void)
{
	static const char changed[] =
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/"
	    "list_changed\"}";
	char fields[256];
	struct mux_stream *s;

	begin();
	initialize();
	is(ask("GET", "/mcp", session, NULL), 406, "...-32000", "no Accept");
	is(ask("GET", "/mcp", "accept: text/event-stream\n", NULL), 400,
	    "...-32000", "no session");
	snprintf(fields, sizeof(fields), "%saccept: text/event-stream\n",
	    session);
	s = ask("GET", "/mcp", fields, NULL);
	tap_ok(s->status == 200 && !s->got_end, "a stream");
	is(ask("GET", "/mcp", fields, NULL), 409, "...-32000", "a second");
	says_to_all(changed);
	says_to_all(RPC("1", "ping"));
	turn();
	tap_ok(view_eq(buf_view(&s->got),
		   VIEW(
		       "event: message\ndata: {\"jsonrpc\":\"2.0\","
		       "\"method\":\"notifications/tools/list_changed\"}\n\n")),
	    "what is told to all");
	is(ask("DELETE", "/mcp", session, NULL), 200, "", "DELETE");
	turn();
	tap_ok(s->got_end, "ends the stream");
	is(ask("DELETE", "/mcp", session, NULL), 404, "...-32001", "once");
	is(spec(RPC("1", "ping")), 404, "...-32001", "it is unknown");
	initialize();
	snprintf(fields, sizeof(fields), "%saccept: text/event-stream\n",
	    session);
	s = ask("GET", "/mcp", fields, NULL);
	over();
	turn();
	tap_ok(s->got_end, "the episode's end ends a stream");
	is(spec(RPC("1", "ping")), 503, "...there is no episode", "none");
	make("one");
	is(spec(RPC("1", "ping")), 404, "...-32001",
	    "another episode of that name does not know the session");
	finish();
}

static void
test_initialize(void)
{
	static const char real[] =
	    "{\"protocolVersion\" : \"2025-06-18\",\"capabilities\":{"
	    "\"tools\":{},\"prompts\":{},\"logging\":{}},\"serverInfo\":{"
	    "\"name\":\"w\"}}";
	struct mux_stream *s;

	begin();
	session[0] = '\0';
	w.initialized = real;
	is(spec(init), 200,
	    "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\" : "
	    "\"2025-06-18\",\"capabilities\":{\"tools\":{},\"prompts\":{},"
	    "\"logging\":{}},\"serverInfo\":{\"name\":\"w\"}}}",
	    "the worker's own words");
	is(spec(
	       RPCP("0", "initialize", "{\"protocolVersion\":\"2025-11-25\"}")),
	    200, "...\"protocolVersion\" : \"2025-06-18\"",
	    "the worker's, where the client's is newer");
	is(spec(
	       RPCP("0", "initialize", "{\"protocolVersion\":\"2024-11-05\"}")),
	    200, "...\"protocolVersion\" : \"2024-11-05\"",
	    "the client's, where it is older");
	is(spec(RPCP("0", "initialize", "{\"protocolVersion\":\"x\"}")), 200,
	    "...\"protocolVersion\" : \"2025-06-18\"", "an unknown one");
	is(ask("POST", "/few", SPEC, init), 200,
	    "...\"capabilities\":{\"tools\":{},\"logging\":{}}",
	    "what the location withholds is not offered");
	w.initialized = "{\"capabilities\":{}}";
	is(ask("POST", "/mcp/grader", BEARER SPEC, init), 200,
	    "...\"capabilities\":{\"tools\":{}}", "the grader has tools");
	w.initialized = "";
	w.state = WORKER_STARTING;
	s = spec(init);
	tap_ok(s->status == 0, "it waits for the worker");
	becomes(WORKER_READY);
	turn();
	is(s, 200, "...\"name\":\"sallyport\"", "and is answered");
	w.state = WORKER_STARTING;
	s = spec(init);
	becomes(WORKER_FAILED);
	turn();
	is(s, 200, "...-32603", "that never comes");
	w.state = WORKER_STARTING;
	s = spec(init);
	over();
	turn();
	is(s, 200, "...-32603", "nor where the episode ends");
	finish();
}

static void
test_gone(void)
{
	struct mux_stream *s;

	begin();
	s = plain(RPCP("2", "tools/call", "{\"name\":\"echo\"}"));
	mux_reset(s);
	turn();
	tap_is_int(w.forgotten, 1, "a client that is gone");
	initialize();
	s = spec(RPCP("2", "tools/call", "{\"name\":\"echo\"}"));
	mux_reset(s);
	turn();
	tap_is_int(w.forgotten, 2, "the same");
	w.state = WORKER_STARTING;
	session[0] = '\0';
	s = spec(init);
	mux_reset(s);
	turn();
	finish();
}

/* ---- the grader ------------------------------------------------------------- */

static struct mux_stream *
tool(const char *path, const char *name, const char *args)
{
	struct buf b = BUF_INIT(8192);
	struct mux_stream *s;

	if (buf_printf(&b,
		RPCP("1", "tools/call", "{\"name\":\"%s\",\"arguments\":%s}"),
		name, args) != SP_OK ||
	    buf_add_char(&b, '\0') != SP_OK)
		abort();
	s = ask("POST", path, BEARER, buf_view(&b).p);
	buf_clear(&b);
	return s;
}

#define G(name, args) tool("/mcp/grader", name, args)

static void
test_grader_arguments(void)
{
	static const struct {
		const char *tool, *args, *want;
	} rows[] = {
		{ "grader.read_file", "{}", "Invalid parameters" },
		{ "grader.read_file", "{\"path\":7}", "Invalid parameters" },
		{ "grader.read_file", "{\"path\":\"\"}", "Invalid parameters" },
		{ "grader.read_file", "{\"path\":\"/workspace/a\",\"x\":1}",
		    "Invalid parameters" },
		{ "grader.read_file", "{\"path\":\"workspace/a\"}",
		    "Operation not permitted" },
		{ "grader.read_file", "{\"path\":\"/workspace/../etc/x\"}",
		    "Operation not permitted" },
		{ "grader.read_file", "{\"path\":\"/etc/passwd\"}",
		    "Operation not permitted" },
		{ "grader.read_file", "{\"path\":\"/workspace/a\\u0000b\"}",
		    "Operation not permitted" },
		{ "grader.fs_diff", "{\"since\":\"start\"}",
		    "Invalid parameters" },
		{ "grader.fs_diff", "{\"x\":\"reset\"}", "Invalid parameters" },
		{ "grader.run_oracle", "{\"x\":1}", "Invalid parameters" },
		{ "grader.run_process", "{}", "Invalid parameters" },
		{ "grader.run_process", "{\"name\":\"loader\"}",
		    "Invalid parameters" },
		{ "grader.run_process", "{\"name\":\"none\"}",
		    "Invalid parameters" },
		{ "grader.get_full_state", "{\"x\":1}", "Invalid parameters" },
		{ "grader.other", "{}", "Tool not found" },
		{ "reset", "{}", "Tool not found" },
	};
	char want[256];
	size_t i;

	begin();
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(want, sizeof(want), ERROR("1", "-32602", "%s"),
		    rows[i].want);
		is(G(rows[i].tool, rows[i].args), 200, want, rows[i].args);
	}
	is(tool("/small", "grader.run_oracle", "{}"), 200,
	    ERROR("1", "-32602", "Tool not found"), "without privilege");
	tap_ok(grade.n == 0 && w.calls == 0, "nothing was done");
	is(ask("POST", "/mcp/grader", "", RPC("1", "ping")), 401,
	    "{\"detail\":\"Unauthorized\"}", "no token");
	finish();
}

#define ENVELOPE(text) \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":" \
	"\"text\",\"text\":\"" text "\"}],\"isError\":false}}"

static void
test_grader_read(void)
{
	static const enum grading_result failed[] = { GRADING_NOT_FOUND,
		GRADING_SPECIAL, GRADING_TOO_LARGE, GRADING_TIMEOUT,
		GRADING_RESET, GRADING_FAILED };
	struct mux_stream *s;
	size_t i;

	begin();
	s = G("grader.read_file", "{\"path\":\"/workspace/a b\"}");
	tap_ok(view_eq(buf_view(&grade.what), VIEW("/workspace/a b")),
	    "a path");
	grade.done->read(grade.arg, GRADING_OK, VIEW("a\n\"b\""), VIEW_NONE);
	turn();
	is(s, 200, ENVELOPE("\\\"a\\\\n\\\\\\\"b\\\\\\\"\\\""), "a file");
	s = G("grader.read_file", "{\"path\":\"/openenvd/assets/oracle\"}");
	grade.done->read(grade.arg, GRADING_NOT_TEXT, VIEW_NONE, VIEW_NONE);
	turn();
	is(s, 200, ERROR("1", "-32602", "Invalid parameters"), "no text");
	for (i = 0; i < sizeof(failed) / sizeof(failed[0]); i++) {
		s = G("grader.read_file", "{\"path\":\"/workspace/x\"}");
		grade.done->read(grade.arg, failed[i], VIEW_NONE, VIEW("why"));
		turn();
		is(s, 200, ERROR("1", "-32603", "Environment operation failed"),
		    "what fails is told as one");
	}
	grade.rc = SP_E_STATE;
	is(G("grader.fs_diff", "{}"), 200,
	    ERROR("1", "-32603", "Environment operation failed"), "not now");
	grade.rc = SP_OK;
	s = G("grader.fs_diff", "{}");
	mux_reset(s);
	turn();
	tap_is_int(grade.forgotten, 1, "a client that is gone");
	finish();
}

static void
change(struct buf *b, struct view path, unsigned kind, unsigned type,
    unsigned flags)
{
	const struct sandbox_change c = { .path = path,
		.kind = (uint8_t)kind,
		.type = (uint8_t)type,
		.flags = (uint8_t)flags };

	if (sandbox_msg_change_put(b, &c) != SP_OK)
		abort();
}

static void
test_grader_diff(void)
{
	struct buf b = BUF_INIT(4096);
	struct mux_stream *s;

	begin();
	change(&b, VIEW("a.txt"), SANDBOX_CREATED, SANDBOX_TYPE_FILE, 0);
	change(&b, VIEW("d"), SANDBOX_MODIFIED, SANDBOX_TYPE_DIR,
	    SANDBOX_CHANGE_UNREADABLE);
	change(&b, VIEW("x\xff\xc3\xa9"), SANDBOX_DELETED, SANDBOX_TYPE_FILE,
	    0);
	change(&b, VIEW("y"), SANDBOX_REPLACED, SANDBOX_TYPE_SYMLINK, 0);
	s = G("grader.fs_diff", "{\"since\":\"reset\"}");
	grade.done->diff(grade.arg, GRADING_OK, buf_view(&b), VIEW_NONE);
	turn();
	is(s, 200,
	    ENVELOPE("[{\\\"path\\\":\\\"/workspace/a.txt\\\",\\\"kind\\\":"
		     "\\\"create\\\"},{\\\"path\\\":\\\"/workspace/d\\\","
		     "\\\"kind\\\":\\\"modify\\\",\\\"type\\\":\\\"directory"
		     "\\\",\\\"unreadable\\\":true},{\\\"path\\\":\\\"/"
		     "workspace/x\\\\udcff\xc3\xa9\\\",\\\"kind\\\":\\\"delete"
		     "\\\"},{\\\"path\\\":\\\"/workspace/y\\\",\\\"kind\\\":"
		     "\\\"modify\\\",\\\"type\\\":\\\"symlink\\\"}]"),
	    "changes");
	s = tool("/small", "grader.fs_diff", "{}");
	grade.done->diff(grade.arg, GRADING_OK, buf_view(&b), VIEW_NONE);
	turn();
	is(s, 200, ENVELOPE("[]"), "without fs_read there is nothing to see");
	s = G("grader.fs_diff", "{}");
	grade.done->diff(grade.arg, GRADING_OK, VIEW("\1"), VIEW_NONE);
	turn();
	is(s, 200, ERROR("1", "-32603", "Environment operation failed"),
	    "records that make no sense");
	buf_clear(&b);
	finish();
}

static void
test_grader_run(void)
{
	const struct grading_verdict good = { .returncode = -9,
		.out = VIEW_INIT("o\n"),
		.err = VIEW_INIT("\xff") };
	const struct grading_verdict cut = { .out_cut = true };
	struct mux_stream *s;

	begin();
	s = G("grader.run_oracle", "{}");
	tap_ok(grade.n == 1 && buf_len(&grade.what) == 0, "the oracle");
	grade.done->verdict(grade.arg, GRADING_OK, &good, VIEW_NONE);
	turn();
	is(s, 200,
	    ENVELOPE("{\\\"returncode\\\":-9,\\\"stdout\\\":\\\"o\\\\n\\\","
		     "\\\"stderr\\\":\\\"\xef\xbf\xbd\\\"}"),
	    "a verdict");
	s = G("grader.run_process", "{\"name\":\"rubric\"}");
	tap_ok(view_eq(buf_view(&grade.what), VIEW("rubric")), "a process");
	grade.done->verdict(grade.arg, GRADING_OK, &cut, VIEW_NONE);
	turn();
	is(s, 200, ERROR("1", "-32603", "Environment operation failed"),
	    "half an output is no verdict");
	s = G("grader.get_full_state", "{}");
	tap_ok(w.open && w.op == WORKER_STATE, "the state");
	says(WORKER_OK, "{\"episode_id\":\"e\",\"step_count\":2}");
	turn();
	is(s, 200,
	    ENVELOPE("{\\\"episode_id\\\":\\\"e\\\",\\\"step_count\\\":2}"),
	    "as it is");
	s = G("grader.get_full_state", "{}");
	says(WORKER_GONE, "why");
	turn();
	is(s, 200, ERROR("1", "-32603", "Environment operation failed"),
	    "no worker");
	is(G("grader.get_trajectory", "{}"), 200, "...\"text\":\"[",
	    "the trajectory");
	finish();
}

int
main(void)
{
	struct buf err = BUF_INIT(4096);
	size_t i;

	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	if (conf_text_parse(text, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		return 1;
	}
	for (i = 0; i < conf->secrets_n; i++)
		if (conf_secret_set(conf, (unsigned)i,
			VIEW("0123456789abcdef")) != SP_OK)
			abort();
	test_plain_order();
	test_plain_sessions();
	test_plain_calls();
	test_list();
	test_initialize();
	test_spec_rules();
	test_spec_batch();
	test_spec_stream();
	test_spec_get();
	test_gone();
	test_grader_arguments();
	test_grader_read();
	test_grader_diff();
	test_grader_run();
	conf_free(conf);
	loop_timer_free(stopper);
	loop_free(loop);
	buf_clear(&w.text);
	buf_clear(&w.tell);
	buf_clear(&w.reason);
	buf_clear(&grade.what);
	buf_clear(&err);
	return tap_done();
}
