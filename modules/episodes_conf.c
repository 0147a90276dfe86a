/* The directives of /episodes: data, linked by every program. */
#include "episodes_conf.h"
#include "conf/conf.h"

static const struct conf_directive rows[] = {
	{ .name = "episodes",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "Episodes in sandboxes: made, run in, reset, looked into "
		   "and ended with HTTP.\nIt needs a token." },
	{ .name = NULL },
};

/* Who may run a program in a sandbox may do all that its user may there. */
static int
check(struct conf_parse *p, void *conf)
{
	const struct conf_location *loc = conf_current_location(p);

	(void)conf;
	if (loc->token == NULL && !loc->server->control)
		return conf_error(p,
		    "episodes is for the operator alone; expected a "
		    "\"token\"");
	return 0;
}

const struct conf_module episodes_conf = {
	.name = "episodes",
	.directives = rows,
	.control = "/episodes",
	.check = check,
};
