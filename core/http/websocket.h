/*
 * One end of a WebSocket: messages from bytes and bytes from messages, over
 * any stream.  wslay does the framing.
 */
#ifndef SP_HTTP_WEBSOCKET_H
#define SP_HTTP_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/view.h"
#include "http/head.h"

struct websocket;

enum websocket_role { WEBSOCKET_SERVER, WEBSOCKET_CLIENT };

/* Codes of a close.  Source: RFC 6455 s7.4.1. */
enum websocket_code {
	WEBSOCKET_NORMAL = 1000,
	WEBSOCKET_GOING_AWAY = 1001,
	WEBSOCKET_PROTOCOL = 1002,
	WEBSOCKET_UNSUPPORTED = 1003, /* a binary message where text is due */
	WEBSOCKET_NO_CODE = 1005, /* never sent: the peer gave none */
	WEBSOCKET_ABNORMAL = 1006, /* never sent: no close frame came */
	WEBSOCKET_BAD_TEXT = 1007, /* not UTF-8 */
	WEBSOCKET_POLICY = 1008,
	WEBSOCKET_TOO_BIG = 1009,
	WEBSOCKET_INTERNAL = 1011,
	WEBSOCKET_AGAIN_LATER = 1013,
};

enum {
	WEBSOCKET_KEY_BYTES = 24, /* of Sec-WebSocket-Key */
	WEBSOCKET_ACCEPT_BYTES = 28, /* of Sec-WebSocket-Accept */
};

struct websocket_owner {
	/* A whole message, borrowed; text was checked to be UTF-8. */
	void (*message)(void *arg, bool text, struct view data);
	/*
	 * Bytes for the peer: all are taken (copied where they have to wait).
	 * 0; SP_E_*: the stream is gone, and from then on nothing is sent and
	 * nothing told.
	 */
	int (*write)(void *arg, struct view data);
	/* A pong came; NULL: nobody cares. */
	void (*pong)(void *arg);
	/*
	 * Nothing comes any more: the peer closed (its code), or broke the
	 * protocol (the code that it was told).  Once; not from websocket_*()
	 * but from websocket_feed().
	 */
	void (*closed)(void *arg, unsigned code, struct view reason);
};

/*
 * Source:  RFC 6455; no extensions.
 * Context: reactor's loop; nothing blocks.
 * Parameters: message_max, bytes of a message, over all its frames; owner,
 *          copied.
 * Owner:   the caller; websocket_free(NULL) is allowed, also from a callback.
 * Returns: 0; SP_E_NOMEM.
 */
int websocket_new(enum websocket_role role, size_t message_max,
    const struct websocket_owner *owner, void *arg,
    struct websocket **out) must_check;
void websocket_free(struct websocket *w);
/*
 * Bytes that came.  Pings are answered.  After closed() the rest is ignored.
 * Context: not from within a callback of its own.
 * Returns: 0; SP_E_PROTO the peer broke the protocol (1002, 1007 or 1009 was
 *          sent); SP_E_NOMEM (1011 was sent); SP_E_GONE write() failed.
 */
int websocket_feed(struct websocket *w, struct view data) must_check;
/*
 * While paused no message is told.  Pings are still answered, up to the first
 * message that has to wait; once websocket_full(), what is fed is only kept,
 * so that its owner should take no more bytes.
 * After the pause websocket_feed() of nothing tells what waits.
 */
void websocket_pause(struct websocket *w, bool on);
bool websocket_full(const struct websocket *w);
/*
 * A message of at least that many bytes waits in any case, as while paused:
 * it is told by the websocket_feed() after websocket_turn().  0: none does.
 */
void websocket_set_large(struct websocket *w, size_t bytes);
/* One waits for that, and for nothing else. */
bool websocket_waits(const struct websocket *w);
void websocket_turn(struct websocket *w);
/* Bytes that came and were not told. */
size_t websocket_gathered(const struct websocket *w);
/*
 * Whether the peer is in the middle of a message or of a frame.
 * Parameters: progress, out: it grows with each byte of messages that came,
 *          not with control frames nor with fragments that are empty, and
 *          with each message that is whole.
 */
bool websocket_unfinished(const struct websocket *w, uint64_t *progress);
/*
 * A whole message in one frame.  Not from within write().
 * Returns: 0; SP_E_STATE after a close; SP_E_SYNTAX text that is not UTF-8 (and
 *          nothing was sent); SP_E_GONE the stream is; what write() gave.
 */
int websocket_send(struct websocket *w, bool text, struct view data) must_check;
int websocket_ping(struct websocket *w) must_check;
/*
 * Sends a close frame; the peer's answer comes as closed(); messages that come
 * before that are dropped.  Twice is fine.
 * Parameters: code, WEBSOCKET_NO_CODE none; reason, cut to what fits.
 * Returns: 0; SP_E_GONE; what write() gave.
 */
int websocket_close(struct websocket *w, unsigned code,
    struct view reason) must_check;
/* Bytes of memory, for who counts them. */
size_t websocket_holds(const struct websocket *w);
/* Bytes on the wire of a message of n, sent by that role. */
size_t websocket_frame_bytes(enum websocket_role role, size_t n);

/*
 * Whether the request asks for a WebSocket: GET with Upgrade (HTTP/1.1), or
 * extended CONNECT.  Source: RFC 6455 s4.2.1, RFC 8441 s5.
 * Returns: 0 it does; SP_E_NOTFOUND it does not; SP_E_SYNTAX it tries, and
 *          some field is missing or wrong (400); SP_E_UNSUPPORTED another
 *          version than 13 (426 with Sec-WebSocket-Version: 13).
 */
int websocket_asked(const struct head_request *req) must_check;
/*
 * Sec-WebSocket-Accept for a key.  Source: RFC 6455 s4.2.2.
 * Returns: 0; SP_E_NOMEM.
 */
int websocket_accept(struct view key,
    char out[WEBSOCKET_ACCEPT_BYTES]) must_check;
/* A client's Sec-WebSocket-Key: 0; SP_E_NOMEM. */
int websocket_key(char out[WEBSOCKET_KEY_BYTES]) must_check;

#endif
