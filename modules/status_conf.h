/* Directives of status: none but its handler. */
#ifndef SP_STATUS_CONF_H
#define SP_STATUS_CONF_H

#include "conf/directive.h"

extern const struct conf_module status_conf;

#endif
