/* Configuration of the door for sessions, for one location. */
#ifndef SP_SESSIONS_CONF_H
#define SP_SESSIONS_CONF_H

#include "conf/conf.h"

struct sessions_conf {
	const struct conf_capture *capture; /* NULL: the first one there is */
	struct view door; /* URL or path of the model door; empty: found */
	struct conf_list overrides; /* what a request may choose */
};

extern const struct conf_module sessions_conf;

#endif
