/* Configuration of the orchestrator's WebSocket, for one location. */
#ifndef SP_LIFECYCLE_CONF_H
#define SP_LIFECYCLE_CONF_H

#include "conf/conf.h"
#include "conf/conf_env.h"

struct lifecycle_conf {
	const struct conf_environment *environment;
	bool shared; /* all connections use the one that runs from the start */
	bool allow_lifecycle;
	uint64_t grace_ms; /* of an episode whose connection dropped */
	uint64_t message_max_bytes; /* of one frame that comes */
	uint64_t reply_max_bytes; /* of what waits to leave */
	uint64_t ping_ms; /* between pings, and for a pong; 0 none */
};

/* The rows that both of the orchestrator's doors have. */
/* clang-format off */
#define LIFECYCLE_ENVIRONMENT_ROW(owner) \
	CONF_ENVIRONMENT_ROW(owner, environment, 0, \
	    "What its episodes are made from.")
#define LIFECYCLE_ALLOW_ROW(owner, what) \
	{ .name = "allow_lifecycle", \
	    .scopes = CONF_LOCATION, \
	    .type = CONF_ONOFF, \
	    .offset = offsetof(owner, allow_lifecycle), \
	    .def = "on", \
	    .args = "on | off", \
	    .doc = "off: every " what " is refused with 403." }
/* clang-format on */

extern const struct conf_module lifecycle_conf;

/*
 * What both of the orchestrator's doors need: a token and an environment.
 * Returns: 0; SP_E_CONF after conf_error().
 */
int lifecycle_conf_check(struct conf_parse *p, const char *name,
    const struct conf_environment *environment) must_check;

#endif
