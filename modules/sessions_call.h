/* One request of /sessions: private to the module's files. */
#ifndef SP_SESSIONS_CALL_H
#define SP_SESSIONS_CALL_H

#include "gate/gate.h"
#include "gate/roster.h"
#include "gate/session.h"
#include "json/jtrain.h"
#include "sessions_conf.h"

enum {
	SESSIONS_KEY_CHARS = 43, /* 256 bits */
	SESSIONS_KEY_MAX = SESSIONS_KEY_CHARS + 8,
	SESSIONS_ID_CHARS = 20,
	SESSIONS_WHY_MAX = 200,
	SESSIONS_LINE_MAX = 256 * 1024 * 1024, /* one turn that is edited */
};

enum sessions_op {
	SESSIONS_CREATE,
	SESSIONS_LIST,
	SESSIONS_GET,
	SESSIONS_END,
	SESSIONS_TRACE, /* as it is on the disk */
	SESSIONS_TRAIN, /* lines to train on */
	SESSIONS_ENTRIES, /* the same as one JSON text */
};

struct sessions_call {
	struct gate_request *r;
	const struct sessions_conf *conf;
	enum sessions_op op;
	struct view id; /* of the path; borrowed from the request */
	struct roster_ask *ask; /* NULL: none is open */
	char why[SESSIONS_WHY_MAX]; /* of a refusal */
	/* a new one */
	struct session_msg msg;
	uint32_t seen; /* members of the request, a bit each */
	struct buf text; /* what msg points to */
	char key[SESSIONS_KEY_MAX];
	/* its trace */
	int fd; /* -1: none */
	uint64_t at, size;
	struct loop_task *task; /* reads on */
	struct buf line, out;
	bool second; /* of two passes over the file */
	struct jtrain_sum train; /* of what there is in the trace */
	uint64_t written;
};

/* ---- sessions.c ----------------------------------------------------------- */

enum gate_verdict sessions_deny(struct sessions_call *c, unsigned status,
    const char *code, const char *reason);
/* The value of a member of the query, not decoded; p NULL: not there. */
struct view sessions_query(const struct sessions_call *c, struct view name);

/* ---- sessions_new.c: POST ------------------------------------------------- */

/* Reads the body into c->msg: 0; SP_E_SYNTAX (c->why); SP_E_NOMEM. */
int sessions_new_read(struct sessions_call *c) must_check;
/* The answer to who created it, made of the recorder's. */
int sessions_new_answer(struct sessions_call *c, struct view doc,
    struct buf *out) must_check;

/* ---- sessions_view.c: traces ---------------------------------------------- */

/* fd is taken; the answer is begun. */
void sessions_view_begin(struct sessions_call *c, int fd, uint64_t size);
void sessions_view_room(struct sessions_call *c);
void sessions_view_clear(struct sessions_call *c);

#endif
