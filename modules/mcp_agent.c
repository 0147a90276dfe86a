#include "config.h"

#include "mcp_agent.h"

#include "gate/mcp.h"
#include "mcp_agent_conf.h"

static const struct mcp_door door = {
	.name = "mcp_agent",
	.principal = "agent",
	.whose = WORKER_AGENTS,
	.agent = true,
};

static enum gate_verdict
on_head(struct gate_request *r)
{
	return mcp_head(r, &door);
}

const struct gate_module mcp_agent_module = {
	.conf = &mcp_agent_conf,
	.principals = GATE_AGENT,
	MCP_DOOR_HOOKS(on_head),
};
