/* What an `observe` location is told. */
#ifndef SP_MODULES_OBSERVE_CONF_H
#define SP_MODULES_OBSERVE_CONF_H

#include "conf/conf_env.h"

struct observe_conf {
	const struct conf_environment *environment;
	struct conf_list stream; /* checked names */
	uint64_t slow_ms; /* without taking a byte */
	uint64_t ping_ms; /* between pings, and for a pong; 0 none */
};

extern const struct conf_module observe_conf;

#endif
