/*
 * The registry of sessions: who they are, what they may use and have used.
 * It outlives the process in the journal (journal.h); the reactor has a copy
 * of the open ones.
 */
#ifndef SP_RECORDER_REGISTRY_H
#define SP_RECORDER_REGISTRY_H

#include <sys/queue.h>

#include "ipc/session_msg.h"
#include "json/jtrain.h"
#include "recorder/record.h"
#include "recorder/store.h"

enum {
	REGISTRY_MAX = 100000, /* sessions known; ended ones make room */
	REGISTRY_LIST_MAX = 1000,
	REGISTRY_END_MS = 1000, /* an end waits so long for open turns */
	REGISTRY_AGAIN_MS = 1000, /* until a seal is tried again */
};

struct registry_session {
	TAILQ_ENTRY(registry_session) link; /* oldest first */
	TAILQ_ENTRY(registry_session) dirty_link, closing_link;
	struct session_msg m; /* its views lie in text */
	char *text; /* owned */
	uint64_t last_us, ended_us; /* wall clock; ended_us 0: open */
	char outcome[SESSION_MSG_WORD_MAX + 1];
	uint64_t turns, complete, errors, budget_stops;
	struct jtrain_sum train;
	uint64_t findings;
	bool dirty; /* the journal lacks what it used */
	bool doubtful; /* a damaged line of the journal may be its end */
	bool closing; /* on that list: its seal waits for open turns */
	bool unsealed; /* on that list: its seal could not be written */
	struct trace *trace; /* of a closing one; NULL none */
	uint32_t seq; /* the request that ended it */
	uint64_t until_ms;
};

TAILQ_HEAD(registry_list, registry_session);

/* A trace of a session that nobody made, of an episode's unkeyed calls. */
struct registry_stray {
	TAILQ_ENTRY(registry_stray) link;
	struct trace *trace; /* held until it is sealed */
	uint64_t until_ms;
	uint64_t again_ms; /* its seal could not be written; 0 not tried */
};

struct registry {
	struct store *store; /* borrowed */
	struct hmap *by_id;
	struct registry_list sessions, dirty, closing, unsealed;
	TAILQ_HEAD(, registry_stray) strays; /* to be sealed */
	uint64_t again_ms; /* when the unsealed ones are looked at */
	size_t open_n;
	struct registry_session *replay; /* the next to be told */
	bool replaying; /* the reactor was not told yet that it was all */
	/* the journal */
	int dir, fd; /* -1: lives as long as the process; fd owned */
	uint64_t bytes, live_bytes; /* of the file; of it when compacted */
	bool failing; /* said already that it cannot be written */
	uint64_t flushed_ms;
	struct buf line;
};

/*
 * Context: recorder; blocks on the disk where the journal is written.
 * Parameters: dir, the recorder's own directory, borrowed, or -1.
 * Owner:   the caller; registry_clear().
 * Returns: 0; SP_E_DENIED another process has the journal; SP_E_NOMEM; the
 *          call's error.
 */
int registry_init(struct registry *r, struct store *store, int dir) must_check;
void registry_clear(struct registry *r);

/*
 * Requests of the reactor; the answer's body goes to reply, which stays empty
 * when it comes later (registry_next_ended()).
 * Returns: 0; SP_E_PROTO it broke the rules; SP_E_NOMEM.
 */
int registry_create(struct registry *r, struct view body,
    struct buf *reply) must_check;
/*
 * Of a session that nobody made, too: then its trace is sealed alone.  One
 * whose answer comes later is the last of those that are closing.
 */
int registry_end(struct registry *r, struct view body,
    struct buf *reply) must_check;
int registry_get(struct registry *r, struct view body,
    struct buf *reply) must_check;
int registry_list(struct registry *r, struct view body,
    struct buf *reply) must_check;
/* *fd, the caller's: then the reply is that of TRACE_FILE; else -1. */
int registry_trace(struct registry *r, struct view body, struct buf *reply,
    int *fd) must_check;

/*
 * What a new reactor is told next: SESSION or SESSION_PAST with its body, or
 * REPLAY_DONE: that was all.
 */
void registry_replay(struct registry *r);
enum message_type registry_next_replay(struct registry *r, struct buf *body);
/* The body of the next reply to an end; false: none is due. */
bool registry_next_ended(struct registry *r, struct buf *reply);
/* The reactor is gone: nobody waits for answers. */
void registry_forget(struct registry *r);
/* True while registry_next_ended() has to be asked again soon. */
static inline bool
registry_closing(const struct registry *r)
{
	return !TAILQ_EMPTY(&r->closing) || !TAILQ_EMPTY(&r->strays) ||
	    !TAILQ_EMPTY(&r->unsealed);
}

/* A turn of that session began, or is over; ids of no session are ignored. */
void registry_called(struct registry *r, struct view id, unsigned flags);
void registry_turned(struct registry *r, const struct record *rec, bool filed);
/* The turn was told of twice: its call is not counted again. */
void registry_uncalled(struct registry *r, struct view id, unsigned flags);
/* Writes what sessions used: at once where a budget hangs on it. */
void registry_flush(struct registry *r, bool all);

/* The session as the API shows it, one JSON object. */
struct jwrite;
void registry_write(const struct registry *r, const struct registry_session *s,
    struct jwrite *w);

/*
 * At the end: traces of open sessions, and of the default ones, that a process
 * before this one wrote and did not seal; no new one once it is until_ms.
 */
void registry_seal(struct registry *r, uint64_t until_ms);

/* For the journal: adds a copy; NULL without memory, or when there is one. */
struct registry_session *registry_add(struct registry *r,
    const struct session_msg *m) must_check;
struct registry_session *registry_find(const struct registry *r,
    struct view id);
void registry_remove(struct registry *r, struct registry_session *s);
void registry_ended(struct registry *r, struct registry_session *s,
    struct view outcome, uint64_t at_us);

#endif
