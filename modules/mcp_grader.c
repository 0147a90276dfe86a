#include "config.h"

#include "mcp_grader.h"

#include "gate/mcp.h"
#include "mcp_grader_conf.h"
#include "mcp_grader_tools.h"

static const struct mcp_door door = {
	.name = "mcp_grader",
	.principal = "grader",
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
