/* From the caller's key to a session and its trace: the one place. */
#ifndef SP_GATE_SESSION_H
#define SP_GATE_SESSION_H

#include "base/view.h"
#include "gate/gate.h"
#include "gate/roster.h"

struct session_found {
	struct view id; /* static or the exchange's arena */
	const struct conf_capture *capture; /* NULL: nothing is recorded */
	struct roster_session *session; /* NULL: one without a key */
	bool open; /* no key was asked, or none of ours came */
};

/*
 * The credential a request carries: Authorization: Bearer, x-api-key,
 * x-goog-api-key or api-key; p NULL none.  Two that differ: SP_E_SYNTAX.
 */
int session_key(const struct head_fields *f, struct view *key) must_check;
/*
 * Whose call this is, by its key; without one, that of the session `default`,
 * or inside an episode of the one that is named after it.  A session keeps to its own capture,
 * whatever door its key comes to, unless that records nothing.
 * Context: HEAD phase.
 * Parameters: capture, the door's, or NULL; open: `keys open`.
 * Returns: 0; SP_E_DENIED no such key (the caller answers 401); SP_E_GONE
 *          its session has ended (401 as well, also with `keys open`);
 *          SP_E_SYNTAX two credentials that disagree (400); SP_E_STATE it is
 *          not known yet which keys there are (503); SP_E_CONF the session's
 *          capture is no longer configured (503); SP_E_NOMEM.
 */
int session_find(struct gate_request *r, const struct conf_capture *capture,
    bool open, struct session_found *out) must_check;
/* Its calls that had no session are one, which ends with it. */
struct episode;
void session_episode_over(struct gate *g, const struct episode *ep);
/* n random characters of [A-Za-z0-9] and a NUL into out. */
void session_token(char *out, size_t n);
/*
 * Blocks of the request's generation by name, or NULL; of captures the empty
 * name is the first.
 */
const struct conf_upstream *session_upstream(const struct gate_request *r,
    struct view name);
const struct conf_capture *session_capture(const struct gate_request *r,
    struct view name);
/* Constant-time check of a bearer token (RFC 6750). */
bool session_token_ok(const struct head_fields *f,
    const struct conf_secret *token);

#endif
