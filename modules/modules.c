/* All modules, in the order of their rows (modules_conf.c). */
#include "config.h"

#include "gate/gate.h"
#include "episodes_door.h"
#include "health.h"
#include "lifecycle.h"
#include "llm_intercept.h"
#include "mcp_agent.h"
#include "mcp_grader.h"
#include "observe.h"
#include "sessions.h"
#include "status.h"
#include "upstreams.h"

const struct gate_module *const gate_modules[] = {
	&llm_intercept_module,
	&sessions_module,
	&upstreams_module,
	&episodes_door_module,
	&lifecycle_module,
	&lifecycle_plain_module,
	&observe_module,
	&status_module,
	&health_module,
	&mcp_agent_module,
	&mcp_grader_module,
	NULL,
};
