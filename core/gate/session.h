/* From the caller's key to a session and its trace: the one place. */
#ifndef SP_GATE_SESSION_H
#define SP_GATE_SESSION_H

#include "base/view.h"
#include "gate/gate.h"

enum { SESSION_ID_MAX = 128 };

struct session_found {
	struct view id; /* static or the exchange's arena */
	const struct conf_capture *capture;
	bool open; /* no key was asked: the session `default` */
};

/* [A-Za-z0-9_.-]{1,128}, no leading dot. */
bool session_id_valid(struct view id);
/*
 * The credential a request carries: Authorization: Bearer, x-api-key,
 * x-goog-api-key or api-key; p NULL none.  Two that differ: SP_E_SYNTAX.
 */
int session_key(const struct head_fields *f, struct view *key) must_check;
/*
 * Context: HEAD phase.
 * Parameters: open: `keys open`.
 * Returns: 0; SP_E_DENIED no such key (the caller answers 401); SP_E_SYNTAX
 *          two credentials that disagree (400).
 */
int session_find(struct gate_request *r, const struct conf_capture *capture,
    bool open, struct session_found *out) must_check;
/* Constant-time check of a bearer token (RFC 6750). */
bool session_token_ok(
    const struct head_fields *f, const struct conf_secret *token);

#endif
