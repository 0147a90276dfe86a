/* Directives of health: none but its handler. */
#ifndef SP_HEALTH_CONF_H
#define SP_HEALTH_CONF_H

#include "conf/directive.h"

extern const struct conf_module health_conf;

#endif
