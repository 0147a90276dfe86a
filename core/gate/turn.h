/*
 * The reactor's side of the recorder: turns are opened, fed and ended here;
 * credit comes back, and the word that a turn is on file.
 */
#ifndef SP_GATE_TURN_H
#define SP_GATE_TURN_H

#include "base/err.h"
#include "base/view.h"
#include "conf/conf.h"
#include "event/loop.h"
#include "ipc/message.h"

struct recorder; /* the link to the recorder process */
struct turn;

enum { TURN_WINDOW_BYTES = 1024 * 1024 };

/* From the loop only. */
struct turn_owner {
	/* turn_room() has risen again after it was 0. */
	void (*room)(void *arg);
	/*
	 * The turn is over.  ok: it is on file; else it is not, and text says
	 * why (disk full, recorder gone).  May come at any time, also before
	 * turn_end(): the recorder died.  The turn may only be passed to
	 * turn_delivered() or turn_drop() after it.
	 */
	void (*done)(void *arg, bool ok, uint64_t number, const char *text);
	void *arg;
};

struct turn_params {
	uint32_t generation; /* whose the capture is */
	const struct conf_capture *capture; /* for the call */
	struct view session; /* its id */
	struct view episode; /* its id, or empty */
	uint64_t wall_us; /* arrival of the request */
	uint32_t flags; /* enum message_turn_flag */
	struct view meta; /* a JSON object */
};
struct turn_end {
	enum message_outcome outcome;
	unsigned upstream_status;
	uint32_t flags;
	uint64_t latency_us, ttft_us;
	struct view error; /* JSON object or empty */
	struct view meta; /* JSON object or empty */
};

/*
 * Context: reactor; none of them calls back before it returns.
 * Returns: 0; SP_E_STATE the recorder is not there or not accepting
 *          (turn_why()); SP_E_LIMIT too much is unsent; SP_E_NOMEM.
 */
struct recorder *turn_recorder_new(struct loop *l,
    size_t unsent_max) must_check;
void turn_recorder_free(struct recorder *r);
/* A new channel (taken), or -1: it is gone.  Open turns end as not ok, and the
 * next recorder is told that they are lost. */
int turn_recorder_set(struct recorder *r, int fd) must_check;
/* True while new turns are accepted; else *why says why not. */
bool turn_recorder_ok(const struct recorder *r, const char **why);
/*
 * A recorder that owes the answer to an end and says nothing for so long (30 s
 * unless set): turns end as not ok and none are accepted until it speaks.
 */
void turn_recorder_patience(struct recorder *r, uint64_t ms);
size_t turn_recorder_backlog(const struct recorder *r); /* unsent bytes */
size_t turn_recorder_open(const struct recorder *r); /* open turns */
/* No turn of that generation will be opened: the recorder may forget it. */
void turn_generation_end(struct recorder *r, uint32_t generation);
/* What TURN_DONE told of a turn, for the metrics. */
struct turn_facts {
	int level; /* of the capture; -1: lost by another recorder */
	uint64_t ack_us; /* from the end to the word that it is on file */
	uint32_t tokens;
	struct view finish_reason; /* borrowed, any bytes */
	struct view session; /* its id; borrowed */
	struct view episode; /* the same; empty: none */
	uint64_t number; /* of the turn in its session; 0: not on file */
	bool ok;
};
void turn_recorder_observe(struct recorder *r,
    void (*cb)(void *arg, const struct turn_facts *facts), void *arg);

/* What the channel carries beside turns. */
struct channel_msg;
struct turn_other {
	/* A message that is no turn's: 0, or SP_E_PROTO.  m->fd may be taken. */
	int (*message)(void *arg, struct channel_msg *m);
	/* The channel is gone; no callback of an owner may come from here. */
	void (*down)(void *arg);
	void *arg;
};
void turn_recorder_other(struct recorder *r, const struct turn_other *other);
/* Sends a message of that kind: 0; SP_E_STATE, SP_E_LIMIT, SP_E_NOMEM. */
int turn_recorder_send(struct recorder *r, enum message_type type,
    struct view body) must_check;

int turn_open(struct recorder *r, const struct turn_params *p,
    const struct turn_owner *owner, struct turn **out) must_check;
/* Copied; batched with what else is sent in this turn of the loop. */
int turn_data(struct turn *t, enum message_data kind, struct view v) must_check;
/* Bytes that may be sent before the source should pause. */
size_t turn_room(const struct turn *t);
/* done() will follow. */
int turn_end(struct turn *t, const struct turn_end *e) must_check;
/* After done(): whether the client got the end; frees the handle. */
void turn_delivered(struct turn *t, bool delivered);
/*
 * The owner goes away: no callback any more.  A turn that was ended is still
 * written; one that was not is ended as CLIENT_GONE.
 */
void turn_drop(struct turn *t);

#endif
