/*
 * What the principals' doors have in common: which episode a request means,
 * what its patterns let through, who may ask at all, and the line that tells
 * of it.
 */
#ifndef SP_GATE_DOOR_H
#define SP_GATE_DOOR_H

#include "conf/conf_env.h"
#include "gate/episode.h"
#include "gate/gate.h"

/*
 * The episode: that of the listener which accepted it; else the one named by
 * X-Episode-Id or ?episode=; else the environment's only one.
 * Context: a HEAD hook.
 * Returns: GATE_PASS with *out; GATE_DENY with r->status and reason: 400 names
 *          that disagree, or none where there are several; 404 no such episode
 *          of this environment; 503 there is none; GATE_FAIL.
 */
enum gate_verdict door_episode(struct gate_request *r,
    const struct conf_environment *env, struct episode **out);

/*
 * Rebinding: Host must be the address that was meant (an address of the
 * listener's, localhost, a server_name), and Origin, where there is one, the
 * same.
 * Returns: GATE_PASS; GATE_DENY with 403.
 */
enum gate_verdict door_origin(struct gate_request *r);

/*
 * A shell pattern over the whole text, with case: `*`, `?`, `[...]`; `*` goes
 * over `/` too.  Bounded: linear in text times pattern.
 * Context: any.
 */
bool door_match(struct view pattern, struct view text);
/* Any of them. */
bool door_match_any(const struct conf_list *patterns, struct view text);

/* One line of the access log for each operation; never with arguments. */
struct door_operation {
	const char *principal; /* "agent", "grader", "orchestrator", ... */
	const char *door; /* "mcp_agent", ... */
	const char *operation; /* "tools/call", "step", ... */
	struct view episode, tool; /* tool may be empty */
	const char *outcome; /* "ok", "denied", "error", "timeout", ... */
	uint64_t us; /* from its request to its answer */
};
void door_log(struct gate_request *r, const struct door_operation *op);

#endif
