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

extern const struct conf_module lifecycle_conf;

/*
 * What both of the orchestrator's doors need: a token and an environment.
 * Returns: 0; SP_E_CONF after conf_error().
 */
int lifecycle_conf_check(struct conf_parse *p, const char *name,
    const struct conf_environment *environment) must_check;

#endif
