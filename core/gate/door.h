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

/* What openenvd says of all that is no fault of the request. */
#define DOOR_FAILED "Environment operation failed"

/*
 * The episode: that of the listener which accepted it; else, where the
 * location has no token, the one whose name is the session's whose key came;
 * else the one named by X-Episode-Id or ?episode=; else the environment's only
 * one.  An id is no credential: without a token (the location's, or the
 * orchestrator's: r->orchestrator) or such a key, one of several is refused.
 * Context: a hook, HEAD or MESSAGE.
 * Parameters: env, of the location; NULL in an `inside` block.
 * Returns: GATE_PASS with *out; GATE_DENY with r->status and reason: 400 names
 *          that disagree, or none where there are several; 401 one of several
 *          by its id alone, or by a key that is none; 404 no such episode of
 *          this environment; 503 there is none, or it is not known yet which
 *          keys there are, and r->outcome says so; GATE_FAIL.
 */
enum gate_verdict door_episode(struct gate_request *r,
    const struct conf_environment *env, struct episode **out);
/* Whether the request itself names one, well or not. */
bool door_names(const struct gate_request *r);
/* It is of that environment (NULL: any), and not over. */
bool door_serves(const struct episode *ep, const struct conf_environment *env);

/*
 * Rebinding: a page of another site that a browser runs reaches loopback and
 * private networks under a name of its own.  So Host must be an address (which
 * is no name to rebind), localhost or a server_name, and Origin, where there
 * is one, a loopback address, localhost, a server_name or the Host itself.
 * Source:  Model Context Protocol, transports, security warning; RFC 6454 s7.
 * Context: a HEAD hook.
 * Returns: GATE_PASS; GATE_DENY with 403.
 */
enum gate_verdict door_origin(struct gate_request *r);
/*
 * A body is read here, so it may not have a content coding.
 * Source:  RFC 9110 s15.5.16.
 * Context: a HEAD hook.
 * Returns: GATE_PASS; GATE_DENY with 415, which names the coding.
 */
enum gate_verdict door_coding(struct gate_request *r);

/*
 * A shell pattern over the whole text, with case: `*`, `?`, `[...]`, `[!...]`,
 * as Python's fnmatchcase reads it: `*` goes over `/` too, nothing escapes.
 * Characters are code points; a byte that is not UTF-8 is one by itself.
 * Bounded: linear in text times pattern.
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
/*
 * The line, and one in sallyport_operations_total.  The operation is a label:
 * one of a fixed set, never a word of the client's.
 */
void door_log(const struct gate_request *r, const struct door_operation *op);

#endif
