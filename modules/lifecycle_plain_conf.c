/* The directives of the routes without state: data, linked by every program. */
#include "lifecycle_plain_conf.h"

#include "lifecycle_conf.h"

static const struct conf_directive rows[] = {
	{ .name = "lifecycle_plain",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "One of OpenEnv's routes without state, by the location's "
		   "last segment: reset,\nstep or state.\nEach request makes "
		   "an episode and ends it.\nIt needs a token." },
	LIFECYCLE_ENVIRONMENT_ROW(struct lifecycle_plain_conf),
	LIFECYCLE_ALLOW_ROW(struct lifecycle_plain_conf, "request"),
	{ .name = NULL },
};

static int
check(struct conf_parse *p, void *conf)
{
	const struct lifecycle_plain_conf *c = conf;
	struct view path = conf_current_location(p)->path;

	if (!view_ends(path, VIEW("/reset")) &&
	    !view_ends(path, VIEW("/step")) && !view_ends(path, VIEW("/state")))
		return conf_error(p,
		    "lifecycle_plain cannot serve \"%.*s\"; expected a "
		    "location that ends in /reset, /step or /state",
		    VIEW_ARG(path));
	return lifecycle_conf_check(p, "lifecycle_plain", c->environment);
}

const struct conf_module lifecycle_plain_conf = {
	.name = "lifecycle_plain",
	.principal = "orchestrator",
	.directives = rows,
	.conf_size = sizeof(struct lifecycle_plain_conf),
	.check = check,
};
