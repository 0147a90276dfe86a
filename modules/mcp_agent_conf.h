/* Configuration of the agent's door, for one location. */
#ifndef SP_MCP_AGENT_CONF_H
#define SP_MCP_AGENT_CONF_H

#include "conf/conf_mcp.h"

struct mcp_agent_conf {
	struct conf_mcp mcp; /* first */
};

extern const struct conf_module mcp_agent_conf;

#endif
