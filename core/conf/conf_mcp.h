/* What the doors that speak MCP have in common, for one location. */
#ifndef SP_CONF_CONF_MCP_H
#define SP_CONF_CONF_MCP_H

#include "conf/conf_env.h"

/* What else than tools may pass, bits. */
enum conf_mcp_feature {
	CONF_MCP_RESOURCES = 1 << 0,
	CONF_MCP_PROMPTS = 1 << 1,
	CONF_MCP_COMPLETIONS = 1 << 2,
	CONF_MCP_LOGGING = 1 << 3,
	CONF_MCP_SAMPLING = 1 << 4, /* these three are asked of the client */
	CONF_MCP_ELICITATION = 1 << 5,
	CONF_MCP_ROOTS = 1 << 6,
};
#define CONF_MCP_ALL \
	"resources prompts completions logging sampling " \
	"elicitation roots"

/* First in the struct of both modules. */
struct conf_mcp {
	const struct conf_environment *environment; /* never NULL, checked */
	struct conf_list tools; /* patterns */
	struct conf_list feature_names; /* as written, or "none" */
	unsigned features; /* enum conf_mcp_feature bits */
	uint64_t sessions; /* at once, of this location */
	uint64_t session_timeout_ms; /* of one that nobody uses */
	uint64_t ping_ms; /* between pings, and for a pong; 0 none */
};

/*
 * The rows that both modules have, of a struct whose member `mcp` is the one
 * above; what a pattern of tools may be is said by each.
 */
/* clang-format off */
#define CONF_MCP_ROWS(owner, tools_doc) \
	CONF_ENVIRONMENT_ROW(owner, mcp.environment, 0, \
	    "The environment whose episodes are meant.\n" \
	    "In an inside block it is that of the block."), \
	{ .name = "tools", \
	    .scopes = CONF_LOCATION, \
	    .type = CONF_LIST, \
	    .flags = CONF_REPEATS, \
	    .offset = offsetof(owner, mcp.tools), \
	    .args = "PATTERN ...", \
	    .doc = (tools_doc), \
	    .def_doc = "none" }, \
	{ .name = "features", \
	    .scopes = CONF_LOCATION, \
	    .type = CONF_LIST, \
	    .offset = offsetof(owner, mcp.feature_names), \
	    .def = CONF_MCP_ALL, \
	    .args = "none | FEATURE ...", \
	    .doc = "What of MCP passes besides tools: resources, prompts, " \
		   "completions, logging,\n" \
		   "and what the worker may ask of the client: sampling, " \
		   "elicitation, roots." }, \
	{ .name = "sessions", \
	    .scopes = CONF_LOCATION, \
	    .type = CONF_NUMBER, \
	    .offset = offsetof(owner, mcp.sessions), \
	    .min = 1, \
	    .max = 100000, \
	    .def = "1024", \
	    .args = "NUMBER", \
	    .doc = "Most sessions of MCP clients at once; those that are " \
		   "idle longest go first when\n" \
		   "they have timed out." }, \
	{ .name = "session_timeout", \
	    .scopes = CONF_LOCATION, \
	    .type = CONF_DURATION, \
	    .offset = offsetof(owner, mcp.session_timeout_ms), \
	    .min = 1000, \
	    .max = 7ULL * 86400000, \
	    .def = "30m", \
	    .args = "TIME", \
	    .doc = "How long a session may be idle." }, \
	CONF_PING_ROW(owner, mcp.ping_ms)
/* clang-format on */

/*
 * The static rules of a location, from its module's check(): its environment
 * (implied in an `inside` block), its patterns, its features.
 * Source:  RFC 009, the rules for surfaces.
 * Parameters: agent, an agent's patterns may say less: a literal with an
 *          optional trailing `*` that can match neither a name of the
 *          lifecycle (reset, step, state, close) nor one of grader.
 * Returns: 0; SP_E_CONF after conf_error().
 */
int conf_mcp_check(struct conf_parse *p, struct conf_mcp *m,
    bool agent) must_check;
/* The environment of a location alone, likewise. */
int conf_mcp_environment(struct conf_parse *p,
    const struct conf_environment **env) must_check;
/*
 * Absolute, without "..", of printable bytes, and such as may match what lies
 * in the workspace or among the assets: 0; SP_E_CONF; SP_E_NOMEM.
 */
int conf_mcp_globs(struct conf_parse *p, const char *name,
    const struct conf_list *globs) must_check;
/* Warns where there is nothing that graders may run: 0; SP_E_NOMEM. */
int conf_mcp_privileged(struct conf_parse *p,
    const struct conf_environment *env) must_check;
/*
 * A name that no agent may call, whatever its patterns: reset, step, state,
 * close, and all of grader.
 */
bool conf_mcp_reserved(struct view tool);

#endif
