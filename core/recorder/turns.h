/* The open turns of one reactor, by its handles. */
#ifndef SP_RECORDER_TURNS_H
#define SP_RECORDER_TURNS_H

#include <sys/queue.h>

#include "base/hmap.h"
#include "base/ident.h"
#include "recorder/assemble.h"
#include "recorder/recgen.h"
#include "recorder/record.h"
#include "recorder/registry.h"
#include "recorder/store.h"

enum {
	TURNS_OPEN_MAX = 65536,
	TURNS_ENDED_MAX = 16384, /* waiting for word of their delivery */
};

struct turn {
	TAILQ_ENTRY(turn) link;
	uint32_t handle;
	struct recgen *generation; /* whose the capture is */
	const struct conf_capture *capture;
	struct trace *trace; /* NULL: its file could not be had */
	int trace_rc; /* then why */
	bool refuse; /* and the reactor was not told so yet */
	char session[IDENT_MAX + 1];
	char episode[IDENT_MAX + 1]; /* "" none */
	uint64_t number, wall_us, opened_us;
	unsigned flags;
	struct buf meta;
	struct assemble assemble;
	struct buf request, body, piece;
	bool request_cut;
	unsigned piece_kind; /* a piece is waiting for its next; 0 none */
	uint64_t credit; /* bytes to be given back */
	bool in_credit; /* on the list of those */
	TAILQ_ENTRY(turn) credit_link;
	/* once it ended */
	bool ended;
	bool told; /* TURN_DONE went out: it is on the list `ended` */
	bool known; /* word of its delivery came */
	int write_rc;
	uint64_t group; /* its record waits to be written; 0: not */
	struct record result;
};

TAILQ_HEAD(turn_list, turn);

struct turns {
	struct store *store; /* borrowed */
	struct registry *registry; /* borrowed; NULL: nobody counts */
	struct recgens *generations; /* borrowed */
	struct hmap *by_handle;
	struct turn_list open, ended, done; /* done: to be told */
	struct turn_list credit;
	size_t open_n, ended_n;
	size_t refused_n; /* that the reactor may have to be told of */
	struct buf line; /* the record being written */
	struct digest *digest; /* of requests */
	struct record_system system;
	uint64_t memory_max; /* of the process; 0 no bound */
	bool pressed; /* it was near since peer.c looked last */
	size_t full_bytes; /* not 0: a record of that size found no room */
	/* ends since turns_next_done(), of files that are not synced */
	size_t untold_n;
};

/*
 * Context: recorder.  Functions that return SP_E_PROTO do so when the reactor
 * broke the rules; it then counts as compromised.
 */
int turns_init(struct turns *t, struct store *store) must_check;
/* What is open is dropped unrecorded: turns_end_all() first. */
void turns_clear(struct turns *t);
int turns_open(struct turns *t, struct view body) must_check;
int turns_data(struct turns *t, struct view body) must_check;
int turns_end(struct turns *t, struct view body) must_check;
int turns_delivered(struct turns *t, struct view body) must_check;
/* The reactor opens no turn of that generation any more. */
int turns_generation_end(struct turns *t, struct view body) must_check;
/* Ends and writes every open turn with that outcome. */
void turns_end_all(struct turns *t, unsigned outcome);
/* Forgets the handles: their reactor is gone. */
void turns_forget(struct turns *t);
/*
 * Writes what waits to be told, each file's records at once, with fdatasync
 * where trace_sync asks for it.
 */
void turns_sync(struct turns *t);
/*
 * Whether a good part of the turns that were open has ended since the reactor
 * was told of any: it could go on with those, while others are written.
 */
bool turns_tell_early(const struct turns *t);
/*
 * Bodies of TURN_DONE and TURN_CREDIT messages, filled as far as one goes;
 * false when there is nothing to tell.
 */
bool turns_next_done(struct turns *t, struct buf *body);
bool turns_next_credit(struct turns *t, struct buf *body);

#endif
