/* grader.*: private to the module's files. */
#ifndef SP_MCP_GRADER_TOOLS_H
#define SP_MCP_GRADER_TOOLS_H

#include "gate/mcp.h"

extern const struct mcp_own mcp_grader_tools_own;

/*
 * A value in its envelope, appended: 0; SP_E_NOMEM; SP_E_LIMIT.
 * {"content":[{"type":"text","text":"<value>"}],"isError":false}
 */
int mcp_grader_tools_envelope(struct view value, struct buf *out) must_check;
/* Whether grader.read_file may read that path. */
bool mcp_grader_tools_readable(const struct conf_list *globs, struct view path);

#endif
