/* The directives of the orchestrator's doors: data, linked by every program. */
#include "lifecycle_conf.h"

#define LIFECYCLE(field) offsetof(struct lifecycle_conf, field)

enum { MIB = 1024 * 1024 };

static const struct conf_directive rows[] = {
	{ .name = "lifecycle",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "The orchestrator's WebSocket: reset, step, state, close "
		   "and mcp in OpenEnv's\nprotocol, an episode for each "
		   "connection.\nIt needs a token." },
	LIFECYCLE_ENVIRONMENT_ROW(struct lifecycle_conf),
	{ .name = "shared",
	    .scopes = CONF_LOCATION,
	    .type = CONF_ONOFF,
	    .offset = LIFECYCLE(shared),
	    .def = "off",
	    .args = "on | off",
	    .doc = "All connections use one episode, which runs from the "
		   "start, is made again when\nit has ended, and does not end "
		   "with a connection." },
	LIFECYCLE_ALLOW_ROW(struct lifecycle_conf, "handshake"),
	{ .name = "grace",
	    .scopes = CONF_LOCATION,
	    .type = CONF_DURATION,
	    .offset = LIFECYCLE(grace_ms),
	    .max = 24ULL * 60 * 60 * 1000,
	    .def = "10s",
	    .args = "TIME",
	    .doc = "How long an episode lives on after its connection broke: "
		   "until then\n?session_id=ID attaches to it.\nOne whose "
		   "connection was closed ends at once." },
	{ .name = "message_max",
	    .scopes = CONF_LOCATION,
	    .type = CONF_SIZE,
	    .offset = LIFECYCLE(message_max_bytes),
	    .min = 1024,
	    .max = 64 * MIB,
	    .def = "16m",
	    .args = "SIZE",
	    .doc = "The largest message that is taken: a larger one closes "
		   "the connection with\n1009." },
	{ .name = "reply_max",
	    .scopes = CONF_LOCATION,
	    .type = CONF_SIZE,
	    .offset = LIFECYCLE(reply_max_bytes),
	    .min = 64 * 1024,
	    .max = 1024 * MIB,
	    .def = "100m",
	    .args = "SIZE",
	    .doc = "The largest message that is sent; the answer to what has "
		   "a larger one is an\nerror." },
	CONF_PING_ROW(struct lifecycle_conf, ping_ms),
	{ .name = NULL },
};

int
lifecycle_conf_check(struct conf_parse *p, const char *name,
    const struct conf_environment *environment)
{
	if (conf_current_location(p)->token == NULL)
		return conf_error(p,
		    "%s is for the orchestrator alone; expected a \"token\"",
		    name);
	if (environment == NULL)
		return conf_error(p,
		    "%s has no episodes to offer; expected \"environment\"",
		    name);
	return 0;
}

static int
check(struct conf_parse *p, void *conf)
{
	const struct lifecycle_conf *c = conf;

	return lifecycle_conf_check(p, "lifecycle", c->environment);
}

const struct conf_module lifecycle_conf = {
	.name = "lifecycle",
	.principal = "orchestrator",
	.directives = rows,
	.conf_size = sizeof(struct lifecycle_conf),
	.check = check,
};
