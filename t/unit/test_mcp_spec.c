/* The MCP doors as clients of the specification see them. */
#include "mcp_peer.h"

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
	tap_ok(w.tell_call == &w.call, "for the call in which it was asked");
	w.told = 0;
	g = spec("{\"jsonrpc\":\"2.0\",\"id\":\"w1\",\"result\":{\"a\":2}}");
	tap_is_int(w.told, 0, "once");
	says_before(RPC("\"w\\/2\"", "sampling/createMessage"));
	g = spec("{\"jsonrpc\":\"2.0\",\"id\":\"w/\\u0032\",\"result\":{}}");
	tap_is_int(w.told, 1, "an id is what it says, however it is written");
	says_before(sample);
	w.told = 0;
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
	    "event: message\ndata: " RPC("\"w\\/2\"",
		"sampling/createMessage") "\n\n"
					  "event: message\ndata: "
					  "{\"jsonrpc\":\"2.0\",\"id\":\"w1\","
					  "\"method\":\"sampling/"
					  "createMessage\",\"params\":{}}\n\n"
					  "event: message\ndata: "
					  "{\"jsonrpc\":\"2.0\",\"id\":9,\n"
					  "data: \"result\":{}}\n\n",
	    "events");
	is(spec("{\"jsonrpc\":\"2.0\",\"id\":\"w1\",\"result\":{}}"), 202, "",
	    "an answer after the call");
	tap_is_int(w.told, 0, "is of nothing: the id may be another's by now");
	is(spec("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
		"\"params\":{\"requestId\":9}}"),
	    202, "", "of what is over");
	tap_is_int(w.cancelled, 1, "nothing");
	finish();
}

/* What the worker gave up, by itself or for the time, is owed no more. */
static void
test_spec_lapsed(void)
{
	struct mux_stream *s;

	begin();
	initialize();
	s = spec(RPCP("9", "tools/call", "{\"name\":\"echo\"}"));
	says_before(RPC("\"w3\"", "sampling/createMessage"));
	says_before("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
		    "cancelled\",\"params\":{\"requestId\":\"w3\"}}");
	is(spec("{\"jsonrpc\":\"2.0\",\"id\":\"w3\",\"result\":{}}"), 202, "",
	    "an answer that comes late");
	tap_is_int(w.told, 0, "is nobody's");
	says(WORKER_OK, "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}");
	turn();
	tap_ok(s->status == 200 && s->got_end, "the call goes on");
	finish();
}

/* Its session ends while it waits: no error for what it gave up itself. */
static void
test_spec_given_up(bool cancelled)
{
	struct mux_stream *s;

	begin();
	initialize();
	s = spec(RPCP("9", "tools/call", "{\"name\":\"echo\"}"));
	tap_is_int(w.calls, 1, "a call");
	if (cancelled)
		is(spec("{\"jsonrpc\":\"2.0\",\"method\":"
			"\"notifications/cancelled\","
			"\"params\":{\"requestId\":9}}"),
		    202, "", "that is cancelled");
	is(ask("DELETE", "/mcp", session, NULL), 200, "", "DELETE");
	turn();
	if (cancelled)
		is(s, 200, "", "ends a call that nobody waits for");
	else
		is(s, 404, "...-32001", "tells one who waits");
	tap_is_int(w.forgotten, 1, "the worker hears of it");
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
	    "...Bad Request: Mcp-Session-Id header is required (this is "
	    "Streamable HTTP: POST initialize first; the older HTTP+SSE",
	    "no session");
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
	if (episode_rename(episode, VIEW("two")) != SP_OK)
		abort();
	is(spec(RPC("1", "ping")), 200, "...\"result\":{}",
	    "a session stays with its episode whatever that is called");
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

/* Who does not read makes the worker wait, and misses nothing of its call. */
static void
test_slow(void)
{
	static const char note[] =
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}";
	char fields[256];
	struct mux_stream *s, *g;

	begin();
	initialize();
	snprintf(fields, sizeof(fields), "%saccept: text/event-stream\n",
	    session);
	g = ask("GET", "/mcp", fields, NULL);
	s = spec(RPCP("9", "tools/call", "{\"name\":\"echo\"}"));
	w.holds = 0;
	says_before(note);
	turn();
	tap_is_int(w.holds, 0, "a little waits");
	w.unread = 2 * 1024 * 1024;
	says_before(note);
	says_before(note);
	says_to_all(note);
	turn();
	tap_ok(w.holds == 1 && w.held, "much does not");
	tap_ok(buf_len(&g->got) == 0, "what concerns nobody is missed");
	w.unread = 0;
	s->x.consumer->writable(&s->x);
	tap_ok(w.holds == 2 && !w.held, "it was read");
	says(WORKER_OK, "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}");
	turn();
	is(s, 200,
	    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":"
	    "\"notifications/progress\"}\n\n"
	    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":"
	    "\"notifications/progress\"}\n\n"
	    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":"
	    "\"notifications/progress\"}\n\n"
	    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,"
	    "\"result\":{}}\n\n",
	    "all of it has come");
	finish();
}

/* Each allocation fails in turn while the worker speaks. */
static void
test_memory(void)
{
	static const char list[] =
	    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[{\"name\":"
	    "\"env.a\"},{\"name\":\"x\"}]}}";
	static const char progress[] =
	    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}";
	const char *real = "{\"protocolVersion\":\"2025-06-18\","
			   "\"capabilities\":{}}";
	struct mux_stream *s;
	unsigned long n;
	int bad = 0;

	begin();
	for (n = 1; n < 40; n++) {
		initialize();
		s = spec(RPC("1", "tools/list"));
		mem_fail_after(n, 0);
		if (n % 2 == 0)
			says_before(progress);
		says(WORKER_OK, list);
		mem_fail_after(0, 0);
		turn();
		bad += !s->over;
		w.state = WORKER_STARTING;
		w.initialized = real;
		session[0] = '\0';
		s = spec(init);
		mem_fail_after(n, 0);
		becomes(WORKER_READY);
		mem_fail_after(0, 0);
		turn();
		bad += !s->over;
		w.initialized = "";
	}
	tap_is_int(bad, 0, "memory that was not there: every request ends");
	finish();
}

int
main(void)
{
	mcp_peer_start();
	test_initialize();
	test_spec_rules();
	test_spec_batch();
	test_spec_stream();
	test_spec_lapsed();
	test_spec_given_up(true);
	test_spec_given_up(false);
	test_spec_get();
	test_gone();
	test_slow();
	test_memory();
	mcp_peer_stop();
	return tap_done();
}
