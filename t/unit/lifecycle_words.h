/* Of test_lifecycle.c: messages of JSON-RPC in frames of /ws. */
#ifndef SP_T_UNIT_LIFECYCLE_WORDS_H
#define SP_T_UNIT_LIFECYCLE_WORDS_H

static void
mcp_frames(struct peer *p)
{
	char method[2001], frame[2100];

	say(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":7,"
	    "\"method\":\"tools/call\"}}");
	tap_is_int(fake_call_last->op, WORKER_MCP, "a message of MCP");
	answer(WORKER_OK, "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}");
	hears(p, "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":7,",
	    "and its answer");
	say(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":\"x\","
	    "\"method\":\"tools/list\"}}");
	answer(WORKER_GONE, "");
	hears(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":\"x\","
	    "\"error\":{\"code\":-32603,\"message\":\"Environment operation "
	    "failed\"",
	    "a failure in MCP's shape");
	fake_call_last = NULL;
	say(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"method\":"
	    "\"notifications/initialized\"}}");
	hears(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":null,"
	    "\"result\":{}}}",
	    "a notification has an answer, too");
	say(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":9,"
	    "\"method\":\"initialize\"}}");
	hears(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":9,"
	    "\"error\":{\"code\":-32601,\"message\":\"Method not found\"",
	    "what the worker has heard already");
	say(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":\"n\","
	    "\"method\":\"notifications/initialized\"}}");
	hears(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":\"n\","
	    "\"error\":{\"code\":-32601,\"message\":\"Method not found\"",
	    "with an id it is a request");
	memset(method, 'x', sizeof(method) - 1);
	method[sizeof(method) - 1] = '\0';
	(void)snprintf(frame, sizeof(frame),
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":6,"
	    "\"method\":\"%s\"}}",
	    method);
	say(p, frame);
	hears(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":6,"
	    "\"error\":{\"code\":-32601,\"message\":\"Method not found\"",
	    "however long a method is that there is not");
	say(p, "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":8}}");
	hears(p,
	    "{\"type\":\"mcp\",\"data\":{\"jsonrpc\":\"2.0\",\"id\":8,"
	    "\"error\":{\"code\":-32600,\"message\":\"Invalid Request\"",
	    "one that a worker might not answer");
	tap_ok(fake_call_last == NULL, "nothing of it reaches the worker");
}

#endif
