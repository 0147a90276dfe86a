/*
 * A WebSocket that a module serves: the request that opened it, its pings,
 * its bounds.  Once it is accepted the walk tells it of the request's body,
 * room and end in place of the module; the module has its events alone.
 */
#ifndef SP_GATE_WEBSOCK_H
#define SP_GATE_WEBSOCK_H

#include "gate/gate.h"
#include "http/websocket.h"

struct websock;

struct websock_params {
	size_t message_max; /* bytes of one that comes */
	/*
	 * Bytes that may wait to leave, over what the connection's own
	 * output_buffer takes; no message can be longer.
	 */
	size_t queue_max;
	uint32_t ping_ms; /* between pings of ours; 0 none */
	uint32_t pong_ms; /* then it is gone: 1006; 0 no matter */
	/* of Sec-WebSocket-Protocol, taken when it is offered; empty none */
	struct view protocol;
};

struct websock_events {
	void (*message)(void *arg, bool text, struct view data);
	/*
	 * Half of what may wait is free again, after it was not, or after
	 * SP_E_LIMIT; NULL: nobody cares.
	 */
	void (*room)(void *arg);
	/*
	 * It is over, whoever ended it; told once, and s is freed right
	 * after.  The request finishes by itself: FINISH follows.
	 */
	void (*closed)(void *arg, unsigned code);
};

/*
 * Takes the handshake: 101 (HTTP/1.1) or 200 (HTTP/2).  No extension is taken.
 * Source:  RFC 6455 s4.2.2, RFC 8441.
 * Context: reactor; from MESSAGE of a request that streams (the HEAD hook set
 *          r->streams when websocket_asked() was 0), which then holds, or
 *          later.  No event comes before it returns, nor from any websock_*
 *          call of the module's.
 * Parameters: params, events: borrowed for its life.
 * Owner:   *out is freed by itself after closed().
 * Returns: 0; SP_E_NOMEM; SP_E_STATE it is answered, or asks for none;
 *          SP_E_GONE.
 */
int websock_accept(struct gate_request *r, const struct websock_params *params,
    const struct websock_events *events, void *arg,
    struct websock **out) must_check;
/*
 * Queues a text message, copied.
 * Returns: 0; SP_E_LIMIT it would be more than may wait (nothing was queued);
 *          SP_E_GONE it is closing; SP_E_NOMEM; SP_E_SYNTAX it is not UTF-8.
 */
int websock_send(struct websock *s, struct view text) must_check;
/* Bytes that wait, over what the connection has taken. */
size_t websock_queued(const struct websock *s);
/*
 * Closes it with that code once what is queued has left; closed() follows, at
 * the latest ten seconds after.  Messages that still come are dropped.
 */
void websock_close(struct websock *s, unsigned code, struct view reason);
/*
 * Takes no more messages for now: the peer's bytes wait in its socket.  Pings
 * are answered up to the first message that has to wait.
 */
void websock_pause(struct websock *s, bool on);
/*
 * Nobody listens any more: no event is told; it closes by itself.  s is not
 * the caller's any more.  NULL is allowed.
 */
void websock_drop(struct websock *s, unsigned code);
/* Bytes of memory; what the connection has queued is not among them. */
size_t websock_holds(const struct websock *s);

/* ---- for walk.c; NULL: nothing happens ------------------------------------ */

void websock_on_body(struct websock *s, struct view data);
void websock_on_body_end(struct websock *s);
void websock_on_room(struct websock *s);
void websock_on_gone(struct websock *s, enum exchange_gone why);
void websock_on_expire(struct websock *s, enum gate_expiry why);

#endif
