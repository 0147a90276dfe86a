/*
 * The client's end of a WebSocket, over a connection that somebody made: the
 * handshake, then messages.
 */
#ifndef SP_HTTP_WEBSOCKET_CLIENT_H
#define SP_HTTP_WEBSOCKET_CLIENT_H

#include "event/loop.h"
#include "http/websocket.h"

struct websocket_client;

struct websocket_client_params {
	struct view host; /* of Host: "127.0.0.1:8000" */
	struct view target; /* "/ws", with its query */
	const struct head_fields *fields; /* more of them; NULL none */
	uint64_t open_ms; /* for the handshake; 0 no deadline */
	size_t message_max; /* bytes of one that comes */
	size_t queue_max; /* bytes that may wait to leave */
};

/* From the loop only, never from within a websocket_client_* call. */
struct websocket_client_owner {
	/* The handshake is through. */
	void (*open)(void *arg);
	void (*message)(void *arg, bool text, struct view data);
	/*
	 * It is over, or never was: the server's code, or WEBSOCKET_ABNORMAL;
	 * why, for a log ("the server answers 403"), "" a close.  Once; what
	 * is left is websocket_client_free().
	 */
	void (*closed)(void *arg, unsigned code, const char *why);
};

/*
 * Source:  RFC 6455 s4.1; no extensions, no subprotocol.
 * Context: reactor; nothing blocks.
 * Parameters: fd, connected and non-blocking; taken, also on an error.
 *          params, borrowed for the call; owner, borrowed for its life.
 * Owner:   the caller; websocket_client_free(NULL) is allowed, also from a
 *          callback, and tells nothing.
 * Returns: 0; SP_E_NOMEM; SP_E_SYS; SP_E_SYNTAX host or target would break the
 *          request.
 */
int websocket_client_start(struct loop *l, int fd,
    const struct websocket_client_params *params,
    const struct websocket_client_owner *owner, void *arg,
    struct websocket_client **out) must_check;
void websocket_client_free(struct websocket_client *c);
/*
 * Queues a text message, copied.
 * Returns: 0; SP_E_STATE before open() or after a close; SP_E_LIMIT it would be
 *          more than may wait; SP_E_SYNTAX it is not UTF-8; SP_E_NOMEM (closed()
 *          follows).
 */
int websocket_client_send(struct websocket_client *c,
    struct view text) must_check;
/* Sends a close once what is queued has left; closed() within ten seconds. */
void websocket_client_close(struct websocket_client *c, unsigned code);
/* As websocket_pause(): no message is told, and in the end nothing is read. */
void websocket_client_pause(struct websocket_client *c, bool on);
/* What the server answered the handshake with; 0: nothing. */
unsigned websocket_client_status(const struct websocket_client *c);
/* Bytes of memory. */
size_t websocket_client_holds(const struct websocket_client *c);

#endif
