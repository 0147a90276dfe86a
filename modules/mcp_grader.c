#include "config.h"

#include "mcp_grader.h"

#include "gate/mcp.h"
#include "mcp_grader_conf.h"
#include "mcp_grader_tools.h"

static const struct mcp_door door = {
	.name = "mcp_grader",
	.principal = "grader",
	.whose = WORKER_GRADERS,
	.own = &mcp_grader_tools_own,
};

static enum gate_verdict
on_head(struct gate_request *r)
{
	return mcp_head(r, &door);
}

const struct gate_module mcp_grader_module = {
	.conf = &mcp_grader_conf,
	.principals = GATE_GRADER,
	MCP_DOOR_HOOKS(on_head),
};
