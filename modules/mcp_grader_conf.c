/* The grader's door's directives: data, linked by every program. */
#include "mcp_grader_conf.h"

#define GRADER(field) offsetof(struct mcp_grader_conf, field)

static const struct conf_directive rows[] = {
	{ .name = "mcp_grader",
	    .scopes = CONF_LOCATION,
	    .type = CONF_HANDLER,
	    .doc = "The grader's door: as mcp_agent, with tools of its own "
		   "beside the worker's:\ngrader.read_file, grader.fs_diff, "
		   "grader.get_full_state, grader.get_trajectory,\nand with "
		   "privileged_exec grader.run_oracle and "
		   "grader.run_process.\nIt needs a token." },
	CONF_MCP_ROWS(struct mcp_grader_conf,
	    "Tools that may be seen and called: shell patterns, with "
	    "\"*\", \"?\" and \"[...]\"."),
	{ .name = "fs_read",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .flags = CONF_REPEATS,
	    .offset = GRADER(fs_read),
	    .args = "PATTERN ...",
	    .doc = "Paths that grader.read_file may read and grader.fs_diff "
		   "tells of: patterns of\nabsolute paths beneath /workspace "
		   "and /openenvd/assets; \"*\" goes over \"/\".\n"
		   "One that none of them can match is an error.",
	    .def_doc = "none" },
	{ .name = "privileged_exec",
	    .scopes = CONF_LOCATION,
	    .type = CONF_ONOFF,
	    .offset = GRADER(privileged_exec),
	    .def = "off",
	    .args = "on | off",
	    .doc = "Graders may run the oracle and processes with trust "
		   "privileged." },
	{ .name = NULL },
};

static int
check(struct conf_parse *p, void *conf)
{
	struct mcp_grader_conf *c = conf;
	int rc = conf_mcp_check(p, &c->mcp, false);

	if (rc == 0)
		rc = conf_mcp_globs(p, "fs_read", &c->fs_read);
	if (rc == 0 && c->privileged_exec)
		rc = conf_mcp_privileged(p, c->mcp.environment);
	if (rc == 0 && conf_current_location(p)->token == NULL)
		rc = conf_error(p,
		    "mcp_grader is for the grader alone; expected a "
		    "\"token\"");
	return rc;
}

const struct conf_module mcp_grader_conf = {
	.name = "mcp_grader",
	.directives = rows,
	.principal = "grader",
	.conf_size = sizeof(struct mcp_grader_conf),
	.check = check,
};
