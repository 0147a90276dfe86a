/* MCP over a WebSocket: a message of JSON-RPC in each of its messages. */
#include "config.h"

#include "gate/mcp_priv.h"

enum {
	WS_CALLS_PLAIN = 1, /* answers come in the order of what asked */
	WS_CALLS_SPEC = MCP_CALLS_MAX / 2,
};

/* Takes no more while as much as may be is in flight. */
static void
ws_pace(struct mcp_client *c)
{
	bool busy =
	    c->calls_n >= (unsigned)(c->spec ? WS_CALLS_SPEC : WS_CALLS_PLAIN);

	if (c->ws != NULL && busy != c->paused) {
		c->paused = busy;
		websock_pause(c->ws, busy);
	}
}

static void
ws_send(struct mcp_client *c, struct view json)
{
	int rc = c->ws != NULL ? websock_send(c->ws, json) : SP_E_GONE;

	/* an answer that is lost would be waited for for ever */
	if (rc == SP_E_LIMIT)
		websock_close(c->ws, WEBSOCKET_AGAIN_LATER,
		    VIEW("too much is unread"));
	else if (rc != SP_OK && rc != SP_E_GONE)
		websock_close(c->ws, WEBSOCKET_INTERNAL, VIEW_NONE);
}

void
mcp_ws_answer(struct mcp_client *c, struct view json)
{
	ws_send(c, json);
	if (c->spec && c->peer != NULL)
		mcp_client_watch(c);
	ws_pace(c);
	mcp_client_rest(c);
}

bool
mcp_ws_tell(struct mcp_client *c, struct view json)
{
	if (!c->spec || c->ws == NULL)
		return false;
	return websock_send(c->ws, json) == SP_OK;
}

void
mcp_ws_end(struct mcp_client *c)
{
	if (c->ws != NULL)
		websock_close(c->ws, WEBSOCKET_GOING_AWAY,
		    gate_draining(c->r->gate) ? VIEW("stopping") : VIEW_NONE);
}

static void
ws_on_message(void *arg, bool text, struct view data)
{
	struct mcp_client *c = arg;
	struct mcp_said said;

	if (c->ended)
		return;
	if (!text) {
		websock_close(c->ws, WEBSOCKET_UNSUPPORTED,
		    VIEW("text is expected"));
		return;
	}
	said.rc = jrpc_read(data, &said.m);
	if (mcp_serve(c, &said) < 0) {
		if (c->ws != NULL)
			websock_close(c->ws, WEBSOCKET_INTERNAL, VIEW_NONE);
		return;
	}
	ws_pace(c);
}

static void
ws_on_room(void *arg)
{
	mcp_client_room(arg);
}

static void
ws_on_closed(void *arg, unsigned code)
{
	struct mcp_client *c = arg;

	(void)code;
	c->ws = NULL;
	c->ended = true;
	mcp_call_forget_all(c);
}

static const struct websock_events events = {
	.message = ws_on_message,
	.room = ws_on_room,
	.closed = ws_on_closed,
};

enum gate_verdict
mcp_ws_message(struct mcp_client *c)
{
	uint64_t body = c->r->location->limits.client_max_body_bytes;
	int rc;

	c->params = (struct websock_params){
		.message_max = body < MCP_SOCKET_MESSAGE_MAX
		    ? (size_t)body
		    : MCP_SOCKET_MESSAGE_MAX,
		.queue_max = MCP_SOCKET_QUEUE_MAX,
		.ping_ms = (uint32_t)c->conf->ping_ms,
		.pong_ms = (uint32_t)c->conf->ping_ms,
		.protocol = VIEW("mcp"), /* what the TypeScript SDK offers */
	};
	rc = websock_accept(c->r, &c->params, &events, c, &c->ws);
	return rc == SP_OK || rc == SP_E_GONE ? GATE_HOLD : GATE_FAIL;
}
