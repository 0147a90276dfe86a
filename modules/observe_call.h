/* What observe*.c share; nobody else includes it. */
#ifndef SP_MODULES_OBSERVE_CALL_H
#define SP_MODULES_OBSERVE_CALL_H

#include "gate/bound.h"
#include "gate/feed.h"
#include "gate/gate.h"
#include "gate/websock.h"
#include "observe_conf.h"

/* One observer. */
struct observe_call {
	struct gate_request *r;
	const struct observe_conf *conf;
	struct feed_reader reader;
	struct loop_timer *timer; /* full: until it is too slow; else a beat */
	struct buf line; /* scratch */
	bool full; /* it takes nothing now */
	bool replay; /* ends where live ones would begin */
	bool attached; /* it was told to, and logged */
	bool over; /* nothing more is sent */
	struct websock *ws; /* NULL: server-sent events */
	struct websock_params params; /* of it */
	uint64_t started_us;
	struct bound_ticket place;
	char episode[EPISODE_ID_MAX + 1];
};

enum {
	OBSERVE_BEAT_MS = 15000, /* silence after which it is shown to live */
	OBSERVE_LINE_MAX = FEED_LINE_MAX + 128,
};

/* Sends what there is and what the client takes; c may be over after it. */
void observe_pump(struct observe_call *c);
/* It ends now; reason: for the client.  code: of a WebSocket's close. */
void observe_drop(struct observe_call *c, unsigned code, const char *reason);

/* ---- observe_ws.c ----------------------------------------------------------- */

/* Takes the handshake: as websock_accept(). */
int observe_ws_accept(struct observe_call *c) must_check;
/* False: it has to wait for the peer. */
bool observe_ws_room(const struct observe_call *c);
int observe_ws_send(struct observe_call *c) must_check; /* c->line */
void observe_ws_close(struct observe_call *c, unsigned code,
    struct view reason);
void observe_ws_clear(struct observe_call *c);

#endif
