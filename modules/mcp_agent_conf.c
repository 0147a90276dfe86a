/* The agent's door's directives: data, linked by every program. */
#include "mcp_agent_conf.h"

#define AGENT(field) offsetof(struct mcp_agent_conf, field)

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
	{ .name = "environment",
	    .scopes = CONF_LOCATION,
	    .type = CONF_REF,
	    .offset = AGENT(mcp.environment),
	    .ref = CONF_ENVIRONMENT,
	    .args = "NAME",
	    .doc = "The environment whose episodes are meant.\nIn an inside "
		   "block it is that of the block." },
	{ .name = "tools",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .flags = CONF_REPEATS,
	    .offset = AGENT(mcp.tools),
	    .args = "PATTERN ...",
	    .doc = "Tools that may be seen and called: names, or the start "
		   "of names and a \"*\".\nNone may match reset, step, "
		   "state, close or what begins with \"grader.\".",
	    .def_doc = "none" },
	{ .name = "features",
	    .scopes = CONF_LOCATION,
	    .type = CONF_LIST,
	    .offset = AGENT(mcp.feature_names),
	    .def = CONF_MCP_ALL,
	    .args = "none | FEATURE ...",
	    .doc = "What of MCP passes besides tools: resources, prompts, "
		   "completions, logging,\nand what the worker may ask of the "
		   "client: sampling, elicitation, roots." },
	{ .name = "sessions",
	    .scopes = CONF_LOCATION,
	    .type = CONF_NUMBER,
	    .offset = AGENT(mcp.sessions),
	    .min = 1,
	    .max = 100000,
	    .def = "1024",
	    .args = "NUMBER",
	    .doc = "Most sessions of MCP clients at once; those that are idle "
		   "longest go first when\nthey have timed out." },
	{ .name = "session_timeout",
	    .scopes = CONF_LOCATION,
	    .type = CONF_DURATION,
	    .offset = AGENT(mcp.session_timeout_ms),
	    .min = 1000,
	    .max = 7ULL * 86400000,
	    .def = "30m",
	    .args = "TIME",
	    .doc = "How long a session may be idle." },
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
