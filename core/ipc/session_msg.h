/* What reactor and recorder tell each other of a session: one encoding. */
#ifndef SP_IPC_SESSION_MSG_H
#define SP_IPC_SESSION_MSG_H

#include <stdbool.h>

#include "base/ident.h"
#include "ipc/wire.h"

enum {
	SESSION_MSG_KEY = 32, /* SHA-256 of the session's key */
	SESSION_MSG_ID_MAX = IDENT_MAX,
	SESSION_MSG_NAME_MAX = 64, /* of a block of the configuration */
	SESSION_MSG_MODEL_MAX = 128,
	SESSION_MSG_WORD_MAX = 24, /* purpose, outcome */
	SESSION_MSG_SAMPLING_MAX = 1024,
	SESSION_MSG_META_MAX = 8 * 1024,
};

/* Of the budget 0 is no bound. */
struct session_msg {
	struct view id;
	uint8_t key[SESSION_MSG_KEY];
	struct view capture, upstream; /* names; upstream may be empty */
	struct view model, purpose; /* may be empty */
	struct view sampling, metadata; /* JSON objects, or empty */
	uint64_t max_calls, max_tokens, max_wall_ms;
	uint64_t created_us; /* wall clock */
	uint64_t calls, tokens; /* used so far */
};

/*
 * Context: reactor, recorder; does not block.
 * Owner:   the views of *m stay the caller's; session_msg_get() borrows them
 *          from the message.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM.
 */
int session_msg_put(struct buf *b, const struct session_msg *m) must_check;
/* A field that is missing or too long makes the wire bad: wire_done(). */
void session_msg_get(struct wire *w, struct session_msg *m);
/* Visible ASCII that needs no escape in JSON, at most max bytes. */
bool session_msg_word(struct view v, size_t max);

#endif
