#include "config.h"

#include "mcp_agent.h"

#include "gate/mcp.h"
#include "mcp_agent_conf.h"

static const struct mcp_door door = {
	.name = "mcp_agent",
	.principal = "agent",
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
	.door = true,
	.wants_body = true,
	.setup = mcp_setup,
	.stop = mcp_stop,
	.hook = {
	    [GATE_HEAD] = on_head,
	    [GATE_MESSAGE] = mcp_message,
	    [GATE_FINISH] = mcp_finish,
	},
	.room = mcp_room,
	.expire = mcp_expire,
	.holds = mcp_holds,
};
