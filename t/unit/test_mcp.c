/* The MCP doors as openenvd's clients see them, and the grader's tools. */
#include "mcp_peer.h"

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
	is(s, 200,
	    "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,"
	    "\"message\":\"Invalid parameters\",\"data\":{\"reason\":"
	    "\"sessions_limit\",\"detail\":\"2 sessions of MCP clients are "
	    "open at /few for this episode, as many as may be\",\"remedy\":"
	    "\"end one by openenv/session/close, or have the operator raise "
	    "sessions of this location\"}}}",
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

/* What is refused for being too much: HTTP's status, JSON-RPC's error. */
static void
test_bounds(void)
{
	static const char call[] =
	    RPCP("2", "tools/call", "{\"name\":\"echo\",\"arguments\":{}}");
	static const char ok[] = "{\"id\":2,\"jsonrpc\":\"2.0\",\"result\":{}}";
	struct mux_stream *s, *t;
	unsigned calls;

	begin();
	s = ask("POST", "/one", "", call);
	calls = w.calls;
	t = mux_open(&mux, "POST", "/one", true);
	if (t == NULL)
		abort();
	t->x.request.authority = VIEW("localhost:7000");
	mux_send(t, view_str(call), true);
	turn();
	is(t, 429, "...\"error\":{\"code\":-32000,\"message\":\"as many",
	    "one too many");
	tap_is_int(w.calls, calls, "which the worker never sees");
	says(WORKER_OK, ok);
	turn();
	is(s, 200, ok, "the first goes on");
	s = ask("POST", "/one", "", RPC("1", "ping"));
	tap_is_int(s->status, 200, "then there is a place");
	finish();
}

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

/* Of the grader's tools: openenvd's code and message, and why. */
#define FAULT(code, message, reason) \
	"...{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":" code \
	",\"message\":\"" message "\",\"data\":{\"reason\":\"" reason "\""
#define FAILED(reason) FAULT("-32603", "Environment operation failed", reason)

static void
test_grader_arguments(void)
{
	static const struct {
		const char *tool, *args, *want, *reason;
	} rows[] = {
		{ "grader.read_file", "{}", "Invalid parameters",
		    "bad_arguments" },
		{ "grader.read_file", "{\"path\":7}", "Invalid parameters",
		    "bad_arguments" },
		{ "grader.read_file", "{\"path\":\"\"}", "Invalid parameters",
		    "bad_arguments" },
		{ "grader.read_file", "{\"path\":\"/workspace/a\",\"x\":1}",
		    "Invalid parameters", "bad_arguments" },
		{ "grader.read_file", "{\"path\":\"workspace/a\"}",
		    "Operation not permitted", "not_permitted" },
		{ "grader.read_file", "{\"path\":\"/workspace/../etc/x\"}",
		    "Operation not permitted", "not_permitted" },
		{ "grader.read_file", "{\"path\":\"/etc/passwd\"}",
		    "Operation not permitted", "not_permitted" },
		{ "grader.read_file", "{\"path\":\"/workspace/a\\u0000b\"}",
		    "Operation not permitted", "not_permitted" },
		{ "grader.fs_diff", "{\"since\":\"start\"}",
		    "Invalid parameters", "bad_arguments" },
		{ "grader.fs_diff", "{\"x\":\"reset\"}", "Invalid parameters",
		    "bad_arguments" },
		{ "grader.run_oracle", "{\"x\":1}", "Invalid parameters",
		    "bad_arguments" },
		{ "grader.run_process", "{}", "Invalid parameters",
		    "bad_arguments" },
		{ "grader.run_process", "{\"name\":\"loader\"}",
		    "Invalid parameters", "no_process" },
		{ "grader.run_process", "{\"name\":\"none\"}",
		    "Invalid parameters", "no_process" },
		{ "grader.get_full_state", "{\"x\":1}", "Invalid parameters",
		    "bad_arguments" },
		{ "grader.other", "{}", "Tool not found", NULL },
		{ "reset", "{}", "Tool not found", NULL },
	};
	char want[256];
	size_t i;

	begin();
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(want, sizeof(want),
		    rows[i].reason != NULL ? FAULT("-32602", "%s", "%s")
					   : ERROR("1", "-32602", "%s"),
		    rows[i].want, rows[i].reason);
		is(G(rows[i].tool, rows[i].args), 200, want, rows[i].args);
	}
	is(tool("/small", "grader.run_oracle", "{}"), 200,
	    ERROR("1", "-32602", "Tool not found"), "without privilege");
	tap_ok(grade.n == 0 && w.calls == 0, "nothing was done");
	is(ask("POST", "/mcp/grader", "", RPC("1", "ping")), 401,
	    "...,\"reason\":\"a bearer token is needed", "no token");
	finish();
}

#define ENVELOPE(text) \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":" \
	"\"text\",\"text\":\"" text "\"}],\"isError\":false}}"

static void
test_grader_read(void)
{
	static const struct {
		enum grading_result result;
		const char *want;
	} failed[] = {
		{ GRADING_NOT_FOUND, FAILED("not_found") },
		{ GRADING_SPECIAL, FAILED("special") },
		{ GRADING_TOO_LARGE, FAILED("too_large") },
		{ GRADING_NO_PROCESS, FAILED("no_process") },
		{ GRADING_BUSY, FAILED("busy") },
		{ GRADING_TIMEOUT, FAILED("timeout") },
		{ GRADING_RESET, FAILED("reset") },
		{ GRADING_FAILED, FAILED("failed") },
	};
	static const struct {
		int rc;
		const char *want;
	} refused[] = {
		{ SP_E_STATE, FAILED("not_live") },
		{ SP_E_GONE, FAILED("gone") },
		{ SP_E_LIMIT, FAILED("busy") },
		{ SP_E_NOMEM, FAILED("no_memory") },
	};
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
	is(s, 200, FAULT("-32602", "Invalid parameters", "not_text"),
	    "no text");
	for (i = 0; i < sizeof(failed) / sizeof(failed[0]); i++) {
		s = G("grader.read_file", "{\"path\":\"/workspace/x\"}");
		grade.done->read(grade.arg, failed[i].result, VIEW_NONE,
		    VIEW("why \xff"));
		turn();
		is(s, 200, failed[i].want, "what fails is told as one");
		is(s, 200, "...,\"detail\":\"why \xef\xbf\xbd\",\"remedy\":\"",
		    "...with the cause, and what to do");
	}
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		grade.rc = refused[i].rc;
		is(G("grader.fs_diff", "{}"), 200, refused[i].want,
		    "what cannot begin");
	}
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
	is(s, 200, FAILED("failed"), "records that make no sense");
	buf_clear(&b);
	finish();
}

static void
test_grader_run(void)
{
	const struct grading_verdict good = { .returncode = -9,
		.out = VIEW_INIT("o\n"),
		.err = VIEW_INIT("\xff") };
	/* a character that was cut in two is left out */
	const struct grading_verdict cut = { .returncode = 4,
		.out = VIEW_INIT("a\xe2\x82"),
		.out_cut = true,
		.links_n = 3,
		.links = VIEW_INIT("x\0\xff\0") };
	struct mux_stream *s;

	begin();
	s = G("grader.run_oracle", "{}");
	tap_ok(grade.n == 1 && buf_len(&grade.what) == 0, "the oracle");
	grade.done->verdict(grade.arg, GRADING_OK, &good, VIEW_NONE);
	turn();
	is(s, 200,
	    ENVELOPE("{\\\"returncode\\\":-9,\\\"stdout\\\":\\\"o\\\\n\\\","
		     "\\\"stderr\\\":\\\"\xef\xbf\xbd\\\","
		     "\\\"stderr_b64\\\":\\\"/w==\\\"}"),
	    "a verdict");
	s = G("grader.run_process", "{\"name\":\"rubric\"}");
	tap_ok(view_eq(buf_view(&grade.what), VIEW("rubric")), "a process");
	grade.done->verdict(grade.arg, GRADING_OK, &cut, VIEW_NONE);
	turn();
	is(s, 200,
	    ENVELOPE("{\\\"returncode\\\":4,\\\"stdout\\\":\\\"a\\\","
		     "\\\"stdout_truncated\\\":true,\\\"stderr\\\":\\\"\\\","
		     "\\\"links_removed\\\":3,\\\"links_removed_paths\\\":["
		     "\\\"/workspace/x\\\",\\\"/workspace/\\\\udcff\\\"]}"),
	    "of what was cut, its beginning");
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
	is(s, 200, FAILED("worker_gone"), "no worker");
	s = G("grader.get_full_state", "{}");
	says(WORKER_TIMEOUT, "why");
	turn();
	is(s, 200, FAILED("timeout"), "one that is late");
	is(G("grader.get_trajectory", "{}"), 200, "...\"text\":\"[",
	    "the trajectory");
	finish();
}

/* Each allocation fails in turn while the answer is made. */
static void
test_memory(void)
{
	const struct grading_verdict v = { .returncode = 1,
		.out = VIEW_INIT("o"),
		.err = VIEW_INIT("e") };
	struct buf b = BUF_INIT(4096);
	struct mux_stream *s;
	unsigned long n;
	int bad = 0;

	change(&b, VIEW("x\xff"), SANDBOX_CREATED, SANDBOX_TYPE_FILE, 0);
	begin();
	for (n = 1; n < 30; n++) {
		s = G("grader.fs_diff", "{}");
		mem_fail_after(n, 0);
		grade.done->diff(grade.arg, GRADING_OK, buf_view(&b),
		    VIEW_NONE);
		mem_fail_after(0, 0);
		turn();
		bad += !s->over;
		s = G("grader.run_oracle", "{}");
		mem_fail_after(n, 0);
		grade.done->verdict(grade.arg, GRADING_OK, &v, VIEW_NONE);
		mem_fail_after(0, 0);
		turn();
		bad += !s->over;
		s = plain(RPCP("2", "tools/call", "{\"name\":\"echo\"}"));
		mem_fail_after(n, 0);
		says(WORKER_OK, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}");
		mem_fail_after(0, 0);
		turn();
		bad += !s->over;
	}
	tap_is_int(bad, 0, "memory that was not there: every request ends");
	buf_clear(&b);
	finish();
}

int
main(void)
{
	mcp_peer_start();
	test_plain_order();
	test_plain_sessions();
	test_plain_calls();
	test_bounds();
	test_list();
	test_grader_arguments();
	test_grader_read();
	test_grader_diff();
	test_grader_run();
	test_memory();
	mcp_peer_stop();
	return tap_done();
}
