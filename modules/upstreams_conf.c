/* The directives of /upstreams: data, linked by every program. */
#include "upstreams_conf.h"
#include "conf/conf.h"

static const struct conf_directive rows[] = {
	{ .name = "upstreams",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "The servers of upstreams: seen, added, removed and drained "
		   "with HTTP.\nIt needs a token." },
	{ .name = NULL },
};

/* Who may add a server is sent the upstream's key. */
static int
check(struct conf_parse *p, void *conf)
{
	const struct conf_location *loc = conf_current_location(p);

	(void)conf;
	if (loc->token == NULL && !loc->server->control)
		return conf_error(p,
		    "upstreams is for the operator alone; expected a "
		    "\"token\"");
	return 0;
}

const struct conf_module upstreams_conf = {
	.name = "upstreams",
	.directives = rows,
	.control = "/upstreams",
	.check = check,
};
