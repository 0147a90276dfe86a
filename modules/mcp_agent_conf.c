/* The agent's door's directives: data, linked by every program. */
#include "mcp_agent_conf.h"

static const struct conf_directive rows[] = {
	{ .name = "mcp_agent",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "The agent's door: MCP over HTTP and WebSocket to the "
		   "environment's worker.\nTools that no pattern lets "
		   "through are hidden and refused; nothing else "
		   "differs.\nIt may stand in inside blocks.\nWithout a "
		   "token it serves the environment's only episode, or the "
		   "one named as the\nsession whose key is sent as bearer." },
	CONF_MCP_ROWS(struct mcp_agent_conf,
	    "Tools that may be seen and called: names, or the start "
	    "of names and a \"*\".\nNone may match reset, step, "
	    "state, close or what begins with \"grader.\", as \"*\" alone "
	    "would."),
	{ .name = NULL },
};

static int
check(struct conf_parse *p, void *conf)
{
	struct mcp_agent_conf *c = conf;

	return conf_mcp_check(p, &c->mcp, true);
}

const struct conf_module mcp_agent_conf = {
	.name = "mcp_agent",
	.directives = rows,
	.inside = true,
	.principal = "agent",
	.conf_size = sizeof(struct mcp_agent_conf),
	.check = check,
};
