/* The directives of /health: data, linked by every program. */
#include "health_conf.h"

static const struct conf_directive rows[] = {
	{ .name = "health",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "Answers 200 when calls can be served, else 503." },
	{ .name = NULL },
};

const struct conf_module health_conf = {
	.name = "health",
	.directives = rows,
	.control = "/health",
	.inside = true,
};
