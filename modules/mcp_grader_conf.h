/* Configuration of the grader's door, for one location. */
#ifndef SP_MCP_GRADER_CONF_H
#define SP_MCP_GRADER_CONF_H

#include "conf/conf_mcp.h"

struct mcp_grader_conf {
	struct conf_mcp mcp; /* first */
	struct conf_list fs_read; /* patterns of paths */
	bool privileged_exec;
};

extern const struct conf_module mcp_grader_conf;

#endif
