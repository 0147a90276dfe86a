/*
 * A WebSocket that a module serves: the request that opened it, its pings,
 * its bounds.  The module's own callbacks forward to websock_on_*().
 */
#ifndef SP_GATE_WEBSOCK_H
#define SP_GATE_WEBSOCK_H

#include "gate/gate.h"
#include "http/websocket.h"

struct websock;

struct websock_params {
	size_t message_max; /* bytes of one that comes */
	size_t queue_max; /* bytes that may wait to leave */
	uint32_t ping_ms; /* between pings of ours; 0 none */
	uint32_t pong_ms; /* then it is gone: 1006 */
};

struct websock_events {
	void (*message)(void *arg, bool text, struct view data);
	/* half of what may wait has left; NULL: nobody cares */
	void (*room)(void *arg);
	/*
	 * It is over, whoever ended it; told once, and s is freed right
	 * after.  The request finishes by itself.
	 */
	void (*closed)(void *arg, unsigned code);
};

/*
 * Takes the handshake: 101 (HTTP/1.1) or 200 (HTTP/2).
 * Context: reactor; from MESSAGE of a request that streams (the HEAD hook set
 *          r->streams when websocket_asked() was 0), which then holds.
 * Parameters: params, events: borrowed for its life.
 * Owner:   *out is freed by itself after closed().
 * Returns: 0; SP_E_NOMEM; SP_E_STATE; SP_E_GONE.
 */
int websock_accept(struct gate_request *r, const struct websock_params *params,
    const struct websock_events *events, void *arg,
    struct websock **out) must_check;
/*
 * Queues a text message, copied.
 * Returns: 0; SP_E_LIMIT it would be more than may wait (nothing was queued);
 *          SP_E_GONE it is closing; SP_E_NOMEM.
 */
int websock_send(struct websock *s, struct view text) must_check;
size_t websock_queued(const struct websock *s); /* bytes */
/* Closes it with that code once what is queued has left; closed() follows. */
void websock_close(struct websock *s, unsigned code, struct view reason);
/* Takes no more messages for now: the peer's bytes wait in its socket. */
void websock_pause(struct websock *s, bool on);
/* Nobody listens any more: no event is told; it closes by itself. */
void websock_drop(struct websock *s, unsigned code);

/* The module's body(), body_end(), room(), gone(), expire(). */
void websock_on_body(struct websock *s, struct view data);
void websock_on_body_end(struct websock *s);
void websock_on_room(struct websock *s);
void websock_on_gone(struct websock *s, enum exchange_gone why);
void websock_on_expire(struct websock *s, enum gate_expiry why);
size_t websock_holds(const struct websock *s);

#endif
