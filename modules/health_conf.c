/* The directives of /health: data, linked by every program. */
#include "health_conf.h"

static const struct conf_directive rows[] = {
	{ .name = "health",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "Answers 200 when calls can be served, else 503 with the "
		   "reason: the drain has\nbegun, memory is short so that "
		   "requests are refused, what has to be recorded\ncannot be, "
		   "or every server of every upstream that a location uses is "
		   "down or\ndraining." },
	{ .name = NULL },
};

const struct conf_module health_conf = {
	.name = "health",
	.directives = rows,
	.control = "/health",
	.inside = true,
};
