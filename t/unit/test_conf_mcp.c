/* The static rules of the MCP doors: what each takes, and what it refuses. */
#include "base/mem.h"
#include "conf_text.h"
#include "mcp_agent_conf.h"
#include "mcp_grader_conf.h"
#include "tap.h"

#define ENV "environment e { sandbox { uid 300000 4096; } }\n"
#define LOC(body) ENV "server { listen 1;\nlocation /m { " body " } }"
#define AGENT(body) LOC("mcp_agent; environment e; " body)
#define GRADER(body) LOC("mcp_grader; environment e; token env:G; " body)
#define TWO(a, b) \
	ENV "server { listen 1;\nlocation /a { " a " }\nlocation /b { " b " }" \
	    " }"
#define INSIDE(body) \
	"environment f { sandbox { uid 310000 4096; } }\n" \
	"environment e { sandbox { uid 300000 4096; }\n" \
	"inside 127.0.0.1:8000 { location /mcp { " body " } } }\n" \
	"server { listen 1; location /h { health; } }"

/* A text, and what its only error holds; NULL: none. */
static const struct {
	const char *text;
	const char *want;
} cases[] = {
	/* where, and whose */
	{ AGENT(""), NULL },
	{ AGENT("token env:A;"), NULL },
	{ LOC("mcp_agent;"), "t:3: mcp_agent lacks \"environment\"" },
	{ LOC("mcp_agent; environment x;"), "no environment \"x\"" },
	{ GRADER(""), NULL },
	{ LOC("mcp_grader; environment e;"), "expected a \"token\"" },
	{ LOC("mcp_grader; token env:G;"), "mcp_grader lacks \"environment\"" },
	{ INSIDE("mcp_agent; tools env.*;"), NULL },
	{ INSIDE("mcp_agent; environment e;"), NULL },
	{ INSIDE("mcp_agent; environment f;"),
	    "environment \"f\" in an \"inside\" of \"e\"" },
	{ INSIDE("mcp_grader; token env:G;"), "which agents may not reach" },
	/* an agent's patterns */
	{ AGENT("tools env.* echo_message;\ntools x;"), NULL },
	{ AGENT("tools a b a;"), "duplicate pattern \"a\"" },
	{ AGENT("tools '';"), "empty value" },
	{ AGENT("tools 'a b';"), "is no word" },
	{ AGENT("tools *;"), "lets agents call \"reset\"" },
	{ AGENT("tools r*;"), "lets agents call \"reset\"" },
	{ AGENT("tools s*;"), "lets agents call \"step\"" },
	{ AGENT("tools st*;"), "lets agents call \"step\"" },
	{ AGENT("tools sta*;"), "lets agents call \"state\"" },
	{ AGENT("tools c*;"), "lets agents call \"close\"" },
	{ AGENT("tools close*;"), "lets agents call \"close\"" },
	{ AGENT("tools reset;"), "lets agents call \"reset\"" },
	{ AGENT("tools step;"), "lets agents call \"step\"" },
	{ AGENT("tools state;"), "lets agents call \"state\"" },
	{ AGENT("tools close;"), "lets agents call \"close\"" },
	{ AGENT("tools resets step.x states* closed;"), NULL },
	{ AGENT("tools [r]eset;"), "is not for agents" },
	{ AGENT("tools a?;"), "is not for agents" },
	{ AGENT("tools a*b;"), "is not for agents" },
	{ AGENT("tools a**;"), "is not for agents" },
	{ AGENT("tools *a;"), "is not for agents" },
	{ AGENT("tools a];"), "is not for agents" },
	{ AGENT("tools g*;"), "the grader's" },
	{ AGENT("tools gr*;"), "the grader's" },
	{ AGENT("tools grader*;"), "the grader's" },
	{ AGENT("tools grader.*;"), "the grader's" },
	{ AGENT("tools grader.read_file;"), "the grader's" },
	{ AGENT("tools Grader.x;"), "the grader's" },
	{ AGENT("tools grader gra graderx* h*;"), NULL },
	/* a grader's */
	{ GRADER("tools * [a-c]?;"), NULL },
	{ GRADER("tools grader.* reset;"), NULL },
	{ GRADER("tools 'a b';"), "is no word" },
	{ GRADER("fs_read /workspace/** /openenvd/assets/*;"), NULL },
	{ GRADER("fs_read workspace/*;"), "bad pattern \"workspace/*\"" },
	{ GRADER("fs_read /a/../b;"), "bad pattern \"/a/../b\"" },
	{ GRADER("fs_read /..;"), "bad pattern" },
	{ GRADER("fs_read /workspace/..b;"), NULL },
	/* what nothing can match */
	{ GRADER("fs_read /etc/**;"),
	    "pattern \"/etc/**\" for \"fs_read\" matches nothing that may be "
	    "read; expected one of files beneath /workspace or "
	    "/openenvd/assets" },
	{ GRADER("fs_read /workspace/** /workspac;"), "\"/workspac\"" },
	{ GRADER("fs_read /workspace;"), "matches nothing" },
	{ GRADER("fs_read /workspace/;"), "matches nothing" },
	{ GRADER("fs_read /openenvd/[/assets/x;"), "matches nothing" },
	{ GRADER("fs_read /workspace?x;"), NULL },
	{ GRADER("fs_read /** /w*e/a /openenvd/assets?[a];"), NULL },
	{ GRADER("fs_read /[!]]orkspac[]e]/a;"), NULL },
	{ GRADER("fs_read '/[w-z]orks?ace/a';"), NULL },
	{ GRADER("privileged_exec on;"), NULL },
	{ GRADER("privileged_exec yes;"), "expected on or off" },
	/* what belongs to the grader alone */
	{ AGENT("fs_read /a;"), "belongs to mcp_grader" },
	{ AGENT("privileged_exec on;"), "belongs to mcp_grader" },
	{ LOC("health; tools a;"), "belongs to" },
	/* features, sessions */
	{ AGENT("features none;"), NULL },
	{ AGENT("features resources prompts;"), NULL },
	{ AGENT("features none prompts;"), "bad value \"none\"" },
	{ AGENT("features tools;"), "bad value \"tools\" for \"features\"" },
	{ AGENT("sessions 0;"), "expected a number from 1" },
	{ AGENT("session_timeout 10ms;"), "expected a time from 1s" },
	/* tokens */
	{ TWO("mcp_grader; environment e; token env:T;",
	      "mcp_agent; environment e; token env:T;"),
	    "t:4: token of the agent is that of the grader at t:3" },
	{ TWO("mcp_grader; environment e; token env:T;",
	      "mcp_grader; environment e; token env:T;"),
	    NULL },
	{ TWO("mcp_grader; environment e; token env:T;",
	      "mcp_agent; environment e; token file:T;"),
	    NULL },
	{ TWO("mcp_grader; environment e; token file:/t;",
	      "mcp_agent; environment e; token file:/t;"),
	    "token of the agent is that of the grader" },
	{ TWO("mcp_grader; environment e; token env:T;",
	      "status; token env:T;"),
	    NULL },
};

static void
test_case(const char *text, const char *want)
{
	struct buf err = BUF_INIT(1 << 16);
	struct conf *c = NULL;
	int rc = conf_text_parse(text, &c, &err);
	char name[128];
	struct view v;
	bool ok;
	size_t i;

	snprintf(name, sizeof(name), "%s", text + strlen(ENV));
	for (i = 0; name[i] != '\0'; i++)
		name[i] = name[i] == '\n' ? ' ' : name[i];
	if (buf_add_char(&err, '\0') != SP_OK)
		abort();
	v = buf_view(&err);
	ok = want == NULL ? rc == SP_OK
			  : rc == SP_E_CONF && strstr(v.p, want) != NULL &&
		view_find(v, '\n') + 2 >= v.n;
	tap_ok(ok, "%s", name);
	if (!ok)
		tap_diag("%d %s", rc, v.p);
	conf_free(c);
	buf_clear(&err);
}

/* What modules are given. */
static void
test_values(void)
{
	struct buf err = BUF_INIT(1 << 16);
	const struct mcp_grader_conf *g;
	struct conf *c = NULL;

	if (conf_text_parse(GRADER("tools a b; fs_read /workspace/x;"
				   "features prompts roots;"),
		&c, &err) != SP_OK)
		abort();
	g = conf_module_conf(c->servers[0]->locations[0], "mcp_grader");
	tap_ok(g->mcp.environment == c->environments[0] &&
		g->mcp.tools.n == 2 && g->fs_read.n == 1 &&
		g->mcp.features == (CONF_MCP_PROMPTS | CONF_MCP_ROOTS) &&
		g->mcp.sessions == 1024 &&
		g->mcp.session_timeout_ms == 1800000 && !g->privileged_exec,
	    "values and defaults");
	conf_free(c);
	buf_clear(&err);
}

/* Patterns that another one matches all of. */
static void
test_warnings(void)
{
#define NONE "has no effect: "
#define END " beside it matches all of it; remove one of them\n"
	conf_text_warned(AGENT("tools env.* echo env;"), "");
	conf_text_warned(AGENT("tools env.a.* env.b\nenv.*;"),
	    "t:3: pattern \"env.a.*\" in \"tools\" " NONE "\"env.*\"" END
	    "t:3: pattern \"env.b\" in \"tools\" " NONE "\"env.*\"" END);
	conf_text_warned(GRADER("tools * [a]b x?;"),
	    "t:3: pattern \"[a]b\" in \"tools\" " NONE "\"*\"" END
	    "t:3: pattern \"x?\" in \"tools\" " NONE "\"*\"" END);
	conf_text_warned(GRADER("tools a?* ab* [a]*;"
				"fs_read /workspace/w/*/x /workspace/w/y;"),
	    "");
	conf_text_warned(GRADER("fs_read /w* /w** /workspace/a;"),
	    "t:3: pattern \"/w**\" in \"fs_read\" " NONE "\"/w*\"" END
	    "t:3: pattern \"/workspace/a\" in \"fs_read\" " NONE "\"/w*\"" END);
	conf_text_warned(GRADER("privileged_exec on;"),
	    "t:3: \"privileged_exec\" " NONE "environment \"e\" has no asset "
	    "\"oracle\", and no process with trust privileged; add one of "
	    "them, or remove it\n");
	conf_text_warned("environment e { assets /a { oracle o; } }\n"
			 "server { listen 1; location / { mcp_grader; "
			 "environment e; token env:G; privileged_exec on; } }",
	    "");
	conf_text_warned("environment e { assets /a { x o; } process p { "
			 "trust privileged; asset x; } }\n"
			 "server { listen 1; location / { mcp_grader; "
			 "environment e; token env:G; privileged_exec on; } }",
	    "");
}

/* Values differ, or the start fails: whatever their names are. */
static void
test_secrets(void)
{
	const struct conf_secret *a, *b;
	struct buf err = BUF_INIT(1 << 16);
	struct conf *c = NULL;

	if (conf_text_parse(TWO("mcp_grader; environment e; token env:A;",
				"mcp_agent; environment e; token env:B;"),
		&c, &err) != SP_OK)
		abort();
	tap_ok(!conf_secret_clash(c, true, &a, &b), "none has come");
	if (conf_secret_set(c, 0, VIEW("0123456789abcdef")) != SP_OK ||
	    conf_secret_set(c, 1, VIEW("0123456789abcdeg")) != SP_OK)
		abort();
	tap_ok(!conf_secret_clash(c, true, &a, &b), "they differ");
	if (conf_secret_set(c, 1, VIEW("0123456789abcdef\n")) != SP_OK)
		abort();
	tap_ok(conf_secret_clash(c, true, &a, &b) && b->line == 4 &&
		strcmp(b->principal, "agent") == 0 &&
		strcmp(a->principal, "grader") == 0,
	    "they are the same");
	conf_free(c);
	buf_clear(&err);
}

int
main(void)
{
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		test_case(cases[i].text, cases[i].want);
	test_values();
	test_warnings();
	test_secrets();
	tap_ok(conf_mcp_reserved(VIEW("reset")) &&
		conf_mcp_reserved(VIEW("grader.x")) &&
		conf_mcp_reserved(VIEW("GRADER.")) &&
		!conf_mcp_reserved(VIEW("grader")) &&
		!conf_mcp_reserved(VIEW("resets")),
	    "reserved names");
	return tap_done();
}
