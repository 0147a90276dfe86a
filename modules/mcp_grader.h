/* The grader's door: the agent's, and tools of the grader's own. */
#ifndef SP_MCP_GRADER_H
#define SP_MCP_GRADER_H

#include "gate/gate.h"

extern const struct gate_module mcp_grader_module;

#endif
