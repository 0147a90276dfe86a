/* The directives of /health: data, linked by every program. */
#include "health_conf.h"

static const struct conf_directive rows[] = {
	{ .name = "health",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "Answers 200 when calls can be served, else 503 with the "
		   "reason: the drain has\nbegun, what has to be recorded "
		   "cannot be, or every server of every upstream\nthat a "
		   "location uses is down or draining." },
	{ .name = NULL },
};

const struct conf_module health_conf = {
	.name = "health",
	.directives = rows,
	.control = "/health",
	.inside = true,
};
