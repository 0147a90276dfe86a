/* Directives of upstreams: none but its handler. */
#ifndef SP_UPSTREAMS_CONF_H
#define SP_UPSTREAMS_CONF_H

#include "conf/directive.h"

extern const struct conf_module upstreams_conf;

#endif
