/* What turn.c and turn_recorder.c share; nobody else includes it. */
#ifndef SP_GATE_TURN_PRIV_H
#define SP_GATE_TURN_PRIV_H

#include <sys/queue.h>

#include "base/hmap.h"
#include "gate/turn.h"
#include "ipc/channel.h"

enum {
	TURN_OPEN_MAX = 1024 * 1024, /* handles in use */
	TURN_LOST_MAX = 64 * 1024, /* remembered for the next recorder */
	TURN_ENTRY_BYTES = 10, /* u32 handle, u8 kind, u8 more, u32 length */
	TURN_PIECE_MIN = 4096, /* a smaller rest of a message stays unused */
	TURN_CONTROL_SLACK = 16 * 1024 * 1024, /* for opens and ends */
	TURN_ENDS_MIN = 4, /* that go before the loop's turn is over */
	TURN_FEW = 48, /* with more, the recorder has enough to do */
	TURN_RECV_MAX = 64, /* messages taken in one turn of the loop */
	TURN_WHY_MAX = 200,
	TURN_RETRY_MS = 100,
	TURN_LATE_MS = 2, /* that events may wait for company */
	TURN_LATE_BYTES = 16 * 1024, /* and how much of them */
	TURN_LAST_ROUNDS = 64, /* of a recorder that is gone */
	TURN_SILENT_MS = 30000, /* while an end waits for its answer */
};

enum turn_state {
	TURN_FED, /* open, taking data */
	TURN_ENDED, /* TURN_END is out, waits for TURN_DONE */
	TURN_FILED, /* TURN_DONE came: TURN_DELIVERED is due */
	TURN_LOST, /* its recorder is gone; the owner still holds it */
};

/* What the next recorder is told of a turn that was lost. */
struct turn_opening {
	TAILQ_ENTRY(turn_opening) link; /* in recorder.lost */
	size_t n;
	uint8_t body[]; /* of TURN_OPEN; the handle comes first */
};

/* Owned by the recorder link; the owner of the exchange holds a pointer. */
struct turn {
	TAILQ_ENTRY(turn) link;
	TAILQ_ENTRY(turn) notice_link;
	TAILQ_ENTRY(turn) debt_link;
	struct recorder *recorder;
	struct turn_owner owner; /* callbacks NULL once it went away */
	struct turn_opening *opening;
	int level; /* of its capture; -1: one that was lost */
	uint32_t handle;
	enum turn_state state;
	uint64_t batch; /* the last batch that has data of it */
	size_t sent; /* bytes without credit yet */
	uint64_t ended_us;
	uint64_t number;
	const char *text; /* why it is not on file */
	bool ok; /* it is on file */
	bool dry; /* the window was used up */
	bool piece_open; /* the last entry said that more would follow */
	bool lost; /* a piece of it was not sent: the record says so */
	bool cut; /* it was of the answer: no more data, and the end
		     stands for the rest of it */
	bool refused; /* the recorder said at once that it has no trace */
	bool late; /* the owner was told that the recorder is silent */
	bool in_notice, in_debt;
	bool say_room, say_done; /* notices due */
	bool owe_end, owe_delivered, delivered; /* messages due */
	uint8_t owed_outcome;
};

struct recorder {
	struct loop *loop;
	struct channel *channel;
	struct loop_fd *fd;
	struct loop_task *task; /* sends the batch, calls owners */
	struct loop_timer *retry; /* for want of memory */
	struct loop_timer *late; /* data that waited for more of it */
	bool waiting; /* that one is set */
	bool due; /* and it came: what there is goes */
	struct loop_timer *watch; /* set while ends wait for their answers */
	bool watching;
	bool silent; /* it owes an answer for too long */
	uint64_t silent_ms, heard_us;
	bool broken; /* the channel ended: torn down by the task */
	bool compromised; /* and what it still says is not to be believed */
	bool accepting;
	bool pressed; /* the bound on unsent bytes was near */
	char why[TURN_WHY_MAX + 1];
	size_t unsent_max;
	struct buf batch; /* a TURN_DATA message being made */
	uint64_t batch_n; /* its number */
	unsigned ends_n; /* that wait in the channel */
	uint32_t next_handle;
	struct hmap *handles; /* u32 -> struct turn */
	TAILQ_HEAD(turn_list, turn) turns;
	size_t turns_n; /* until TURN_DONE */
	TAILQ_HEAD(, turn) notices, debts;
	TAILQ_HEAD(, turn_opening) lost;
	size_t lost_n;
	void (*observe)(void *arg, const struct turn_facts *facts);
	void *observe_arg;
	struct turn_other other; /* message NULL: none */
};

static inline struct view
turn_key(const uint32_t *handle)
{
	return view_of(handle, sizeof(*handle));
}
static inline bool
turn_link_up(const struct recorder *r)
{
	return r->channel != NULL && !r->broken;
}
static inline bool
turn_is_open(const struct turn *t)
{
	return t->state == TURN_FED || t->state == TURN_ENDED;
}

/* ---- turn.c --------------------------------------------------------------- */

/* A turn without an owner, its handle taken; NULL: no memory, or too many. */
struct turn *turn_new(struct recorder *r) must_check;
void turn_free(struct turn *t);
/* 0; SP_E_STATE when the link is down (now); SP_E_LIMIT; SP_E_NOMEM. */
int turn_send(struct recorder *r, enum message_type type,
    struct view body) must_check;
/* Its owner is to be told something, from the task. */
void turn_notice(struct turn *t);
void turn_unlist(struct turn *t);
void turn_set_state(struct turn *t, enum turn_state s);
/* Sends its opening under its handle: as turn_send(). */
int turn_send_open(struct turn *t) must_check;
/* Sends what a turn without an owner owes; it may be freed. */
int turn_settle(struct turn *t);
/* Bytes that the socket has not taken. */
size_t turn_unsent(const struct recorder *r);
/* The TURN_DATA message being made leaves: 0; SP_E_STATE, LIMIT, NOMEM. */
int turn_flush_batch(struct recorder *r) must_check;
/* What there was to say goes out, as one message. */
void turn_flush_channel(struct recorder *r);
/* The channel is of no use any more; owners hear of it from the task. */
void turn_break(struct recorder *r);
/* An end waits for its answer from now on. */
void turn_await(struct turn *t);

#endif
