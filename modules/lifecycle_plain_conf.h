/* Configuration of one of the routes without state, for one location. */
#ifndef SP_LIFECYCLE_PLAIN_CONF_H
#define SP_LIFECYCLE_PLAIN_CONF_H

#include "conf/conf.h"
#include "conf/conf_env.h"

struct lifecycle_plain_conf {
	const struct conf_environment *environment;
	bool allow_lifecycle;
};

extern const struct conf_module lifecycle_plain_conf;

#endif
