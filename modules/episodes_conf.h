/* Directives of episodes: none but its handler. */
#ifndef SP_EPISODES_CONF_H
#define SP_EPISODES_CONF_H

#include "conf/directive.h"

extern const struct conf_module episodes_conf;

#endif
