/* The directives of /status: data, linked by every program. */
#include "status_conf.h"

static const struct conf_directive rows[] = {
	{ .name = "status",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "Counters and histograms, in Prometheus text format or "
		   "OpenMetrics." },
	{ .name = NULL },
};

const struct conf_module status_conf = {
	.name = "status",
	.directives = rows,
};
