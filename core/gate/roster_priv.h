/* What roster.c and roster_ask.c share; nobody else includes it. */
#ifndef SP_GATE_ROSTER_PRIV_H
#define SP_GATE_ROSTER_PRIV_H

#include "base/hmap.h"
#include "gate/roster.h"
#include "ipc/channel.h"

TAILQ_HEAD(roster_asks, roster_ask);

/* as many as the recorder knows at most */
enum { ROSTER_ENDED_MAX = 100000 };

struct roster {
	struct loop *loop;
	struct recorder *recorder;
	struct hmap *by_id, *by_key;
	LIST_HEAD(, roster_session) sessions;
	bool ready;
	/* keys of sessions that ended: the last ones, in a ring */
	struct hmap *ended;
	uint8_t (*ended_keys)[SESSION_MSG_KEY];
	size_t ended_n; /* since the start */
	/* questions */
	struct hmap *by_seq;
	struct roster_asks asks; /* the one that waits longest first */
	uint32_t next_seq;
	struct loop_timer *timer; /* of the first */
	struct loop_task *task; /* tells those that failed */
	bool down; /* nobody will answer them */
};

int roster_ask_init(struct roster *o) must_check;
void roster_ask_clear(struct roster *o);
/* SESSION_REPLY and TRACE_FILE: 0; SP_E_PROTO. */
int roster_ask_message(struct roster *o, struct channel_msg *m);
void roster_ask_down(struct roster *o);

#endif
