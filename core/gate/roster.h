/*
 * The open sessions, as the recorder told of them: whose a key is, and what
 * is left of a budget.  And what is asked of the recorder about sessions.
 */
#ifndef SP_GATE_ROSTER_H
#define SP_GATE_ROSTER_H

#include <sys/queue.h>

#include "conf/conf.h"
#include "event/loop.h"
#include "gate/turn.h"
#include "ipc/session_msg.h"

struct roster; /* one in the gate */
struct roster_ask; /* a question that waits for its answer */

/* A call that belongs to a session; the caller's memory. */
struct roster_use {
	LIST_ENTRY(roster_use) link;
	struct roster_session *session; /* NULL: none (any more) */
	/* The session was ended: the call is to end, too.  From the loop. */
	void (*closed)(void *arg);
	void *arg;
};

struct roster_session {
	LIST_ENTRY(roster_session) link;
	struct session_msg m; /* its views lie in text */
	char *text; /* owned */
	struct conf_sampling *sampling; /* owned; of m.sampling */
	size_t sampling_n;
	LIST_HEAD(, roster_use) uses;
	bool seen; /* by the recorder that is there now */
};

/* Which part of a budget is used up. */
enum roster_budget {
	ROSTER_LEFT = 0,
	ROSTER_CALLS,
	ROSTER_TOKENS,
	ROSTER_WALL,
};

/*
 * Context: reactor; no blocking.
 * Owner:   the gate; before the recorder's link is freed.
 * Returns: NULL without memory.
 */
struct roster *roster_new(struct loop *l, struct recorder *r) must_check;
void roster_free(struct roster *o);
/* False: the recorder has not said yet which sessions there are. */
bool roster_ready(const struct roster *o);
size_t roster_count(const struct roster *o); /* open sessions */
/* Calls fn for each open session; it must change none. */
void roster_each(const struct roster *o,
    void (*fn)(void *arg, const struct roster_session *s), void *arg);
struct roster_session *roster_find(const struct roster *o, struct view id);
/*
 * By SHA-256 of the key, so that the time tells nothing of others.
 * Parameters: ended, out: one of the last 4096 that ended since the start had
 *          that key; NULL allowed.
 */
struct roster_session *roster_by_key(const struct roster *o, struct view key,
    bool *ended);
/* Whether it is, or was, a key. */
bool roster_knows(const struct roster *o, struct view key);
/* The digest that stands for a key: 0; SP_E_NOMEM. */
int roster_digest(struct view key, uint8_t out[SESSION_MSG_KEY]) must_check;
/*
 * A session that the recorder has; one that is known takes over what it used.
 * Returns: 0; SP_E_EXISTS its key is another's; SP_E_SYNTAX its sampling is
 *          none; SP_E_LIMIT; SP_E_NOMEM.
 */
int roster_put(struct roster *o, const struct session_msg *m) must_check;
/* Forgets it; its calls are told that it is closed. */
void roster_end(struct roster *o, struct roster_session *s);

void roster_attach(struct roster_session *s, struct roster_use *u);
void roster_detach(struct roster_use *u);
/* now_us: wall clock. */
enum roster_budget roster_spent(const struct roster_session *s,
    uint64_t now_us);
const char *roster_budget_name(enum roster_budget b); /* "model_calls" */
/* What a turn of that session used; ids of no session are ignored. */
void roster_used(struct roster *o, struct view id, uint64_t tokens);
/* Numbers by name, as `sampling` of a capture: 0; SP_E_SYNTAX; SP_E_NOMEM. */
int roster_sampling(struct view json, struct conf_sampling **out,
    size_t *n) must_check;

/* ---- roster_ask.c: questions to the recorder ------------------------------ */

enum { ROSTER_ASK_MS = 2000, ROSTER_ASKS_MAX = 10000 };

struct roster_answer {
	int rc; /* 0; SP_E_TIMEOUT; SP_E_STATE the recorder is gone */
	enum message_session result;
	struct view text; /* JSON; borrowed */
	int fd; /* of a trace: taken by setting it to -1 */
	uint64_t size;
};
struct roster_ask_owner {
	/* Once, from the loop; the ask is gone then. */
	void (*answer)(void *arg, struct roster_answer *a);
	void *arg;
};
/*
 * Parameters: type, a SESSION_... request; rest, its body behind the number.
 * Returns: 0; SP_E_STATE the recorder is not there; SP_E_LIMIT too many wait;
 *          SP_E_NOMEM.
 */
int roster_ask(struct roster *o, enum message_type type, struct view rest,
    const struct roster_ask_owner *owner, struct roster_ask **out) must_check;
void roster_ask_cancel(struct roster_ask *a); /* NULL allowed */

#endif
