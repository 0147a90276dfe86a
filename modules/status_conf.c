/* The directives of /status: data, linked by every program. */
#include "conf/conf.h"
#include "status_conf.h"

static const struct conf_directive rows[] = {
	{ .name = "status",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "Counters and histograms, in Prometheus text format or "
		   "OpenMetrics.\nIt needs a token where its server "
		   "listens on more than loopback." },
	{ .name = NULL },
};

/* 127.0.0.0/8 and ::1; a socket's own permissions guard it. */
static bool
is_local(const struct conf_listen *l)
{
	return l->is_unix || view_starts(l->address, VIEW("127.")) ||
	    view_eq(l->address, VIEW("::1"));
}

/* Open on loopback only. */
static int
check(struct conf_parse *p, void *conf)
{
	const struct conf_location *loc = conf_current_location(p);
	size_t i;

	(void)conf;
	for (i = 0; i < loc->server->listens_n && loc->token == NULL; i++) {
		if (!is_local(&loc->server->listens[i]))
			return conf_error(p,
			    "status is open to others than this host; "
			    "expected a \"token\", or a \"listen\" on "
			    "loopback");
	}
	return 0;
}

const struct conf_module status_conf = {
	.name = "status",
	.directives = rows,
	.control = "/status",
	.check = check,
};
