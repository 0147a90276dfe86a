/* The agent's door: MCP to its episode's worker. */
#ifndef SP_MCP_AGENT_H
#define SP_MCP_AGENT_H

#include "gate/gate.h"

extern const struct gate_module mcp_agent_module;

#endif
