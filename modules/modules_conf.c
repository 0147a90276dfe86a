/* All modules, in order. */
#include "episodes_conf.h"
#include "health_conf.h"
#include "lifecycle_conf.h"
#include "lifecycle_plain_conf.h"
#include "llm_intercept_conf.h"
#include "mcp_agent_conf.h"
#include "mcp_grader_conf.h"
#include "observe_conf.h"
#include "sessions_conf.h"
#include "status_conf.h"
#include "upstreams_conf.h"

const struct conf_module *const conf_modules[] = {
	&llm_intercept_conf,
	&sessions_conf,
	&upstreams_conf,
	&episodes_conf,
	&lifecycle_conf,
	&lifecycle_plain_conf,
	&observe_conf,
	&status_conf,
	&health_conf,
	&mcp_agent_conf,
	&mcp_grader_conf,
	NULL,
};
