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
	{ .name = "environment",
	    .scopes = CONF_LOCATION,
	    .type = CONF_REF,
	    .offset = GRADER(mcp.environment),
	    .ref = CONF_ENVIRONMENT,
	    .args = "NAME",
	    .doc = "The environment whose episodes are meant.\nIn an inside "
		   "block it is that of the block." },
	{ .name = "tools",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .flags = CONF_REPEATS,
	    .offset = GRADER(mcp.tools),
	    .args = "PATTERN ...",
	    .doc = "Tools that may be seen and called: shell patterns, with "
		   "\"*\", \"?\" and \"[...]\".",
	    .def_doc = "none" },
	{ .name = "features",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .offset = GRADER(mcp.feature_names),
	    .def = CONF_MCP_ALL,
	    .args = "none | FEATURE ...",
	    .doc = "What of MCP passes besides tools: resources, prompts, "
		   "completions, logging,\nand what the worker may ask of the "
		   "client: sampling, elicitation, roots." },
	{ .name = "sessions",
	    .scopes = CONF_LOCATION,
	    .type = CONF_NUMBER,
	    .offset = GRADER(mcp.sessions),
	    .min = 1,
	    .max = 100000,
	    .def = "1024",
	    .args = "NUMBER",
	    .doc = "Most sessions of MCP clients at once; those that are idle "
		   "longest go first when\nthey have timed out." },
	{ .name = "session_timeout",
	    .scopes = CONF_LOCATION,
	    .type = CONF_DURATION,
	    .offset = GRADER(mcp.session_timeout_ms),
	    .min = 1000,
	    .max = 7ULL * 86400000,
	    .def = "30m",
	    .args = "TIME",
	    .doc = "How long a session may be idle." },
	{ .name = "fs_read",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .flags = CONF_REPEATS,
	    .offset = GRADER(fs_read),
	    .args = "PATTERN ...",
	    .doc = "Paths that grader.read_file may read and grader.fs_diff "
		   "tells of: patterns of\nabsolute paths beneath /workspace "
		   "and /openenvd/assets; \"*\" goes over \"/\".",
	    .def_doc = "none" },
	{ .name = "privileged_exec",
	    .scopes = CONF_LOCATION,
	    .type = CONF_ONOFF,
	    .offset = GRADER(privileged_exec),
	    .def = "off",
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
