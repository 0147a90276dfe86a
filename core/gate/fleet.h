/* The servers of an upstream, as an operator sees and changes them. */
#ifndef SP_GATE_FLEET_H
#define SP_GATE_FLEET_H

#include "gate/forward.h"

enum { FLEET_SERVERS_MAX = 64 }; /* of one upstream */

enum fleet_op {
	FLEET_ADD,
	FLEET_REMOVE, /* never the last one */
	FLEET_DRAIN,
	FLEET_REMOVE_ANY, /* also the last: of fleet_was() alone */
};

struct fleet_server {
	struct view url; /* borrowed until something changes */
	const char *state; /* up, resting, down, draining */
	uint64_t open; /* calls */
	uint64_t idle; /* connections */
	uint64_t sessions; /* open ones whose next call would go there */
	uint64_t failures; /* of connections, and heads of replies */
	uint64_t checks_failed;
	uint64_t rest_ms; /* 0: it does not rest */
};

/*
 * Copies what is known of each.
 * Context: reactor.
 * Parameters: u, of the configuration that f is of; out, room for
 *          FLEET_SERVERS_MAX.
 * Returns: how many.
 */
size_t fleet_list(const struct gate *g, const struct forward *f,
    const struct conf_upstream *u, struct fleet_server *out);
/*
 * Whether an upstream that a location uses has a server that takes calls: one
 * that is up, or rests, which ends by itself.  True if none is used.
 * Parameters: c, that f is of.
 */
bool fleet_takes_calls(const struct forward *f, const struct conf *c);
/*
 * Changes the servers of that upstream, for every generation that has it with
 * these `server` lines.  An address that drains is added by taking calls again.
 * Parameters: url, as in the directive `server`; why, of an error, static or
 *          in arena.
 * Returns: 0; SP_E_SYNTAX no such URL; SP_E_NOTFOUND; SP_E_EXISTS; SP_E_LIMIT;
 *          SP_E_STATE it is the last one; SP_E_ARG https where no certificates are at hand; SP_E_NOMEM.
 */
int fleet_change(struct forward *f, const struct conf_upstream *u,
    enum fleet_op op, struct view url, struct arena *arena,
    const char **why) must_check;
/*
 * A change that a reactor before this one made, of which the helper kept note
 * (MESSAGE_FLEET_WAS).  What no longer fits is left out.
 * Returns: 0; SP_E_PROTO.
 */
int fleet_was(struct gate *g, struct view body) must_check;
/* Tells the helper of a change, for the reactor after this one. */
void fleet_tell(struct gate *g, const struct conf_upstream *u, enum fleet_op op,
    struct view url);

#endif
