/* Events over a WebSocket: a text message each. */
#include "config.h"

#include "observe_call.h"

enum {
	WS_MESSAGE_MAX = 4096, /* of an observer, who has nothing to say */
	WS_QUEUE_MAX = 2 * FEED_LINE_MAX,
};

/* Whatever it says is not asked for. */
static void
on_message(void *arg, bool text, struct view data)
{
	(void)arg;
	(void)text;
	(void)data;
}

static void
on_room(void *arg)
{
	struct observe_call *c = arg;

	c->full = false;
	if (!c->over)
		observe_pump(c);
}

static void
on_closed(void *arg, unsigned code)
{
	struct observe_call *c = arg;

	(void)code;
	c->ws = NULL;
	c->over = true;
	feed_read_stop(&c->reader);
	loop_timer_stop(c->timer);
}

static const struct websock_events ws_events = {
	.message = on_message,
	.room = on_room,
	.closed = on_closed,
};

int
observe_ws_accept(struct observe_call *c)
{
	c->r->status = 101;
	c->params = (struct websock_params){
		.message_max = WS_MESSAGE_MAX,
		.queue_max = WS_QUEUE_MAX,
		.ping_ms = (uint32_t)c->conf->ping_ms,
		.pong_ms = (uint32_t)c->conf->ping_ms,
	};
	return websock_accept(c->r, &c->params, &ws_events, c, &c->ws);
}

bool
observe_ws_room(const struct observe_call *c)
{
	return websock_queued(c->ws) < WS_QUEUE_MAX / 2;
}

int
observe_ws_send(struct observe_call *c)
{
	return websock_send(c->ws, buf_view(&c->line));
}

void
observe_ws_close(struct observe_call *c, unsigned code, struct view reason)
{
	websock_close(c->ws, code, reason);
}

void
observe_ws_clear(struct observe_call *c)
{
	if (c->ws != NULL)
		websock_drop(c->ws, WEBSOCKET_GOING_AWAY);
	c->ws = NULL;
}
