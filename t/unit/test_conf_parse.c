/* Text to configuration: values, defaults, inheritance, every error. */
#include "base/log.h"
#include "base/mem.h"
#include "llm_intercept_conf.h"
#include "conf_text.h"
#include "tap.h"

/* The shortest server; L opens a location of the model door. */
#define S "server { listen 1; location /s { health; } }\n"
#define U "upstream u { server http://h; }\n"
#define C "capture c { }\n"
#define L100 \
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define D "llm_intercept; upstream u; capture c; "

/*
 * Text, and what every line of the errors must hold, in order.  No line: it
 * is a good configuration.
 */
static const struct {
	const char *text;
	const char *want[8];
} cases[] = {
	{ S, { NULL } },
	{ "", { "t: main lacks \"server\"; expected \"server { ... }\"" } },
	{ S "sever { }",
	    { "t:2: unknown directive \"sever\"; did you mean "
	      "\"server\"?" } },
	{ S "zzzzzzzzzz 1;",
	    { "t:2: unknown directive \"zzzzzzzzzz\"; expected one of "
	      "sallyport.conf(5)" } },
	/* later releases' directives are unknown */
	{ "server { listen 1; location / { nothing; } }",
	    { "t:1: location \"/\" has no handler; expected llm_intercept, "
	      "sessions, upstreams, episodes, lifecycle, lifecycle_plain, "
	      "observe, status, health, mcp_agent or mcp_grader",
		"t:1: unknown directive \"nothing\"" } },
	/* syntax */
	{ S "pid_file /x",
	    { "t:2: directive \"pid_file\" does not end; "
	      "expected \";\"" } },
	{ "server { listen 1;\n location / { status;\n",
	    { "t:2: block \"location\" does not end in its file; expected "
	      "\"}\"" } },
	{ S "}",
	    { "t:2: \"}\" closes no block of this file; expected a "
	      "directive" } },
	{ S ";", { "t:2: \";\" ends no directive; expected a directive" } },
	{ S "{ }", { "t:2: \"{\" without a name; expected a directive" } },
	{ S "pid_file \"x;\n",
	    { "t:2: quoted value does not end on its "
	      "line; expected a closing quote" } },
	{ S "pid_file /a { }",
	    { "t:2: directive \"pid_file\" takes no "
	      "block; expected \";\"" } },
	{ "server;",
	    { "t:1: directive \"server\" opens a block; expected "
	      "\"{\"" } },
	{ "server { listen 1; location / { status } }",
	    { "directive \"status\" does not end before \"}\"; expected "
	      "\";\"",
		"has no handler" } },
	{ S "pid_file;",
	    { "t:2: directive \"pid_file\" has 0 arguments; "
	      "expected PATH" } },
	{ S "pid_file /a /b;", { "has 2 arguments; expected PATH" } },
	{ S "pid_file /a\nconnections 5;",
	    { "t:2: directive \"pid_file\" has 3 arguments; expected PATH "
	      "(is a \";\" missing?)" } },
	{ "server x { listen 1; }",
	    { "directive \"server\" has 1 argument; "
	      "expected none" } },
	{ "a{b{c{d{e{f{g{h{i{j{k{l{m{n{o{p{q{r;}}}}}}}}}}}}}}}}}",
	    { "t:1: blocks nest too deep; expected at most 16 levels" } },
	/* the wrong block */
	{ S "listen 1;",
	    { "t:2: directive \"listen\" belongs in server; not "
	      "in main" } },
	{ "server { listen 1; level text; }",
	    { "directive \"level\" belongs in capture; not in server" } },
	{ "server { listen 1; keepalive 1; location / { status; } }",
	    { "directive \"keepalive\" belongs in upstream; not in "
	      "server" } },
	{ "server { listen 1; upstream a; location / { status; } }",
	    { "directive \"upstream\" belongs in main, location; not in "
	      "server" } },
	{ "server { listen 1; location / { status; header_max 1k; } }",
	    { "directive \"header_max\" belongs in main, server, inside; not "
	      "in "
	      "location" } },
	{ "server { listen 1; server { } location / { status; } }",
	    { "directive \"server\" belongs in main, upstream; not in "
	      "server" } },
	{ "server { listen 1; location / { status; keys open; } }",
	    { "directive \"keys\" belongs to llm_intercept; not in a "
	      "location of status" } },
	/* duplicates */
	{ S "pid_file /a;\npid_file /b;",
	    { "t:3: duplicate directive \"pid_file\"; expected once, it "
	      "stands at t:2" } },
	{ U U S,
	    { "t:2: duplicate upstream \"u\"; expected different names, "
	      "it stands at t:1" } },
	{ C C S, { "t:2: duplicate capture \"c\"" } },
	{ "server { listen 1;\nlocation /a { status; }\n"
	  "location /b/../a/ { health; } }",
	    { "t:3: duplicate location \"/a\"; expected different paths, it "
	      "stands at t:2" } },
	{ "server { listen 1; listen *:1; location / { status; } }",
	    { "duplicate listen \"*:1\"" } },
	{ "server { listen 1; location / { status; status; } }",
	    { "duplicate directive \"status\"" } },
	/* handlers */
	{ "server { listen 1; location / { } }",
	    { "location \"/\" has no handler; expected llm_intercept, "
	      "sessions, upstreams, episodes, lifecycle, lifecycle_plain, "
	      "observe, status, health, mcp_agent or mcp_grader" } },
	{ "server { listen 1; location / { status; health; } }",
	    { "second handler \"health\"; expected one in a location, it has "
	      "\"status\"" } },
	/* values */
	{ S "connections x;",
	    { "bad value \"x\" for \"connections\"; "
	      "expected a number from 1 to 1000000" } },
	{ S "queue 5 x;", { "t:2: bad value \"5 x\" for \"queue\"" } },
	{ S "queue 5 1s;",
	    { "t:2: \"queue\" without a limit past which calls wait; "
	      "expected max_calls or max_calls_per_key beside it" } },
	{ S "connections 0;", { "expected a number from 1 to 1000000" } },
	{ S "connections -1;", { "expected a number" } },
	{ S "recorder_buffer 1;", { "expected a size from 1m to 64g" } },
	{ S "recorder_buffer 1q;", { "expected a size" } },
	{ S "drain_timeout x;", { "expected off or a time from 1ms to 1d" } },
	{ S "keepalive_timeout 0;", { "expected a time from 1ms to 1d" } },
	{ S "keepalive_timeout off;", { "expected a time from 1ms" } },
	{ S "keepalive_timeout 99999999999999999999d;",
	    { "expected a time from 1ms" } },
	{ S "trace_group \"\";",
	    { "empty value for \"trace_group\"; "
	      "expected GROUP" } },
	{ S "state_dir '';", { "empty value for \"state_dir\"" } },
	{ S "error_log '';", { "empty value for \"error_log\"" } },
	{ S "error_log stderr loud;",
	    { "bad level \"loud\" for "
	      "\"error_log\"; expected error, "
	      "warn, notice, info or debug" } },
	{ S "control '';", { "empty value for \"control\"; expected off" } },
	{ S "control off g;", { "\"control off\" has a group" } },
	{ S "control /x ''; ", { "empty value for \"control\"" } },
	{ S "control /" L100 "12345678;", { "expected less than 108 bytes" } },
	{ S "control /" L100 "123456 g;", { NULL } },
	{ S "upstream u { server http://h; health_check health; }",
	    { "bad path \"health\" for \"health_check\"" } },
	{ S "upstream u { server http://h; health_check '/a b'; }",
	    { "bad path \"/a b\"" } },
	{ S "upstream u { server http://h; health_check /a rise=0; }",
	    { "bad value \"rise=0\" for \"health_check\"; expected PATH" } },
	{ S "upstream u { server http://h; health_check /a fall=1 fall=1; }",
	    { "bad value \"fall=1\"" } },
	{ S "upstream u { server http://h; health_check /a interval=2d; }",
	    { "bad value \"interval=2d\"" } },
	{ S "upstream u { server http://h; health_check /a x; }",
	    { "bad value \"x\"" } },
	{ S "upstream u { server http://h; "
	    "health_check /a?b timeout=1s rise=1000 fall=1 interval=1ms; }",
	    { NULL } },
	{ S "user a a;", { "reactor and recorder have one user" } },
	{ S "user '';", { "bad name for \"user\"" } },
	{ S "resolver 1.2.3;", { "bad value \"1.2.3\" for \"resolver\"" } },
	{ S "resolver system 1.2.3.4;", { "bad value \"system\"" } },
	{ S "resolver 1.2.3.4:0;", { "bad value" } },
	{ S "resolver 1.2.3.4 [::1]:53 ::1 10.0.0.1:5353;", { NULL } },
	/* names */
	{ S "upstream off { server http://h; }", { "\"off\" is no name" } },
	{ S "upstream -a { server http://h; }", { "\"-a\" is no name" } },
	{ S "upstream 'a b' { server http://h; }", { "is no name" } },
	{ S "capture '' { }", { "is no name" } },
	/* upstream */
	{ S "upstream a { }",
	    { "t:2: upstream \"a\" lacks \"server\"; "
	      "expected \"server URL\"" } },
	{ S "upstream a { server x; }", { "no known scheme; expected" } },
	{ S "upstream a { server http://h; server http://H/v1/; }",
	    { "upstream has this server already" } },
	{ S "upstream a { server http://h; balance random; }",
	    { "bad value \"random\" for \"balance\"; expected session or "
	      "least_conn" } },
	{ S "upstream a { server http://h; tls_verify maybe; }",
	    { "bad value \"maybe\" for \"tls_verify\"; expected on or "
	      "off" } },
	{ S "upstream a { server http://h; x { y; } }",
	    { "unknown directive \"x\"" } },
	/* secrets */
	{ S "upstream a { server http://h; api_key sk-secret; }",
	    { "t:2: \"api_key\" holds a literal; expected env:NAME or "
	      "file:PATH, never the secret itself" } },
	{ S "upstream a { server http://h; api_key env:sk-secret; }",
	    { "\"api_key\" names no environment variable; expected "
	      "env:NAME" } },
	{ S "upstream a { server http://h; api_key env:; }",
	    { "names no environment variable" } },
	{ S "upstream a { server http://h; api_key file:; }",
	    { "holds a literal" } },
	{ S "upstream a { server http://h; api_key env:A sk-secret; }",
	    { "has 2 arguments; expected SECRET" } },
	{ "server { listen 1; location / { status; token sk-secret; } }",
	    { "\"token\" holds a literal" } },
	/* capture */
	{ S "capture c { level all; }",
	    { "expected text, logprobs or "
	      "tokens" } },
	{ S "capture c { top_logprobs 21; }",
	    { "expected a number from 0 to 20" } },
	{ S "capture c { sampling temperature; }",
	    { "bad sampling parameter \"temperature\"; expected "
	      "NAME=NUMBER" } },
	{ S "capture c { sampling temperature=01; }", { "bad sampling" } },
	{ S "capture c { sampling temperature=1.; }", { "bad sampling" } },
	{ S "capture c { sampling temperature=.5; }", { "bad sampling" } },
	{ S "capture c { sampling temperature=1e; }", { "bad sampling" } },
	{ S "capture c { sampling temperature=+1; }", { "bad sampling" } },
	{ S "capture c { sampling temperature=1e999; }", { "bad sampling" } },
	{ S "capture c { sampling 'a\"b=1'; }", { "bad sampling" } },
	{ S "capture c { sampling =1; }", { "bad sampling" } },
	{ S "capture c { sampling top_p=1 top_p=1; }",
	    { "duplicate sampling parameter \"top_p\"" } },
	{ S "capture c { sampling max_tokens=1; }",
	    { "\"max_tokens\" is not for sampling to set" } },
	{ S "capture c { max_tokens_cap 0; }", { "expected a number from 1" } },
	{ S "capture c { trace ../x; }", { "holds \"..\"" } },
	{ S "capture c { trace /x/../y; }", { "holds \"..\"" } },
	{ S "capture c { trace x/; }", { "names a directory" } },
	{ S "capture c { trace $session/x; }", { "bad variable" } },
	{ S "capture c { trace $name; }", { "bad variable" } },
	{ S "capture c { trace t/${session}.jsonl; }",
	    { "without braces; write $session" } },
	{ S "capture c { trace \"t/${session}.jsonl\"; }",
	    { "write $session" } },
	{ S "capture c { trace $session$session; }", { "bad variable" } },
	{ S "capture c { trace ''; }", { "bad trace" } },
	{ S "capture c { trace_keep 5q; }",
	    { "bad value for "
	      "\"trace_keep\"" } },
	{ S "capture c { trace_keep 5d 0; }", { "bad value for" } },
	{ S "capture c { trace_keep 0 1g; }", { "bad value for" } },
	{ S C "capture d { }",
	    { "captures \"c\" and \"d\" write the same "
	      "trace" } },
	/* listen */
	{ "server { location / { status; } }",
	    { "server lacks \"listen\"; expected \"listen ADDRESS" } },
	{ "server { listen x; location / { status; } }",
	    { "bad address \"x\" for \"listen\"; expected PORT, "
	      "ADDRESS:PORT, [IPV6-ADDRESS]:PORT, *:PORT or unix:PATH" } },
	{ "server { listen 65536; }", { "bad address" } },
	{ "server { listen localhost:1; }", { "bad address" } },
	{ "server { listen 1.2.3.4; }", { "bad address" } },
	{ "server { listen 1.2.3.4:; }", { "bad address" } },
	{ "server { listen [::1]; }", { "bad address" } },
	{ "server { listen ::1:5; }", { "bad address" } },
	{ "server { listen unix:; }", { "listen lacks a path" } },
	{ "server { listen 1 tls; }", { "bad option \"tls\"" } },
	{ "server { listen 1 backlog=0; }", { "bad option \"backlog=0\"" } },
	{ "server { listen 1 ssl ssl; }", { "bad option \"ssl\"" } },
	{ "server { listen 1 ssl; location / { status; } }",
	    { "server listens with ssl and lacks \"certificate\"; expected "
	      "certificate and certificate_key" } },
	{ "server { listen 1 ssl; certificate file:/c; }",
	    { "lacks \"certificate_key\"" } },
	{ "server { listen 1; certificate file:/c; certificate_key file:/k; }",
	    { "server has a certificate and no TLS; expected a \"listen\" "
	      "with ssl" } },
	{ S S,
	    { "t:2: the server at t:1 has this address too; expected a "
	      "different server_name" } },
	{ "server { listen 1; server_name a; }\n"
	  "server { listen 1; server_name b A; }",
	    { "t:2: the server at t:1 has this address too" } },
	{ "server { listen 1; server_name a; }\n"
	  "server { listen 1 backlog=5; server_name b; }",
	    { "t:2: listen differs from the one of the same address at "
	      "t:1" } },
	{ "server { listen 1; server_name a; }\n"
	  "server { listen 1; server_name b; }\nserver { listen 1; }",
	    { NULL } },
	{ "server { listen 0; } server { listen 0; }", { NULL } },
	{ "server { listen 1; server_name a a; }",
	    { "duplicate server_name \"a\"" } },
	{ "server { listen 1; server_name a/b; }",
	    { "bad server_name \"a/b\"" } },
	/* location */
	{ "server { listen 1; location x { status; } }",
	    { "bad path \"x\" of a location; expected one like /v1" } },
	{ "server { listen 1; location /a?b { status; } }",
	    { "bad path \"/a?b\"" } },
	{ "server { listen 1; location /.. { status; } }", { "bad path" } },
	{ U C "server { listen 1; location / { " D "} }", { NULL } },
	{ U "server { listen 1; location / { llm_intercept; upstream u; "
	    "capture off; keys open; } }",
	    { NULL } },
	{ U "server { listen 1; location /a { llm_intercept; upstream u; "
	    "capture off; } }",
	    { "t:2: capture off in location \"/a\" with keys session: calls "
	      "and tokens of a session are not counted there; expected a "
	      "capture, or \"keys open\"" } },
	{ U "server { listen 1; location / { llm_intercept; upstream u; "
	    "capture off; keys session; } }",
	    { "capture off in location \"/\" with keys session" } },
	{ U C "server { listen 1; location /v1 { llm_intercept; } }",
	    { "location \"/v1\" lacks \"upstream\"; expected \"upstream "
	      "NAME\"",
		"location \"/v1\" lacks \"capture\"; expected \"capture NAME "
		"| off\"" } },
	{ C "server { listen 1; location / { llm_intercept;\nupstream x; "
	    "capture c; } }",
	    { "t:3: no upstream \"x\"; expected the name of a block" } },
	{ U "server { listen 1; location / { llm_intercept; upstream u;"
	    "capture x; } }",
	    { "no capture \"x\"" } },
	{ U C "server { listen 1; location /v1 { " D "pass /v2/x; } }",
	    { "t:3: pass \"/v2/x\" is out of reach; expected a path beneath "
	      "location \"/v1\"" } },
	{ U C "server { listen 1; location /v1 { " D "pass /v11; } }",
	    { "out of reach" } },
	{ U C "server { listen 1; location /v1 { " D "pass /v1/a /v1//a; } }",
	    { "duplicate path \"/v1/a\" in pass" } },
	{ U C "server { listen 1; location /v1 { " D "pass x; } }",
	    { "bad path \"x\" in pass" } },
	{ U C "server { listen 1; location /v1 { " D "pass /v1/a /v1/b; } }",
	    { NULL } },
	{ U "capture c { trace all.jsonl; }\n"
	    "server { listen 1; location / { " D "keys session; } }",
	    { "keys session with capture \"c\" mixes sessions in one "
	      "trace" } },
	{ U "capture c { trace all.jsonl; }\n"
	    "server { listen 1; location / { " D "keys open; } }",
	    { NULL } },
	/* what could never have an effect, or gives too much away */
	{ S "upstream a { server http://h; ca x; }",
	    { "t:2: upstream \"a\" never uses its \"ca\"; expected a server "
	      "with https://" } },
	{ S "upstream a { server https://h; ca x; tls_verify off; }",
	    { "never uses its \"ca\"; expected tls_verify on" } },
	{ S "capture c { level text; require_logprobs on; }",
	    { "requires log-probabilities that it does not ask for" } },
	{ "server { listen 127.0.0.1:1; listen *:2; location / { status; } }",
	    { "t:1: status is open to others than this host; expected a "
	      "\"token\"" } },
	{ "server { listen *:2; location / { status; token env:A; } }",
	    { NULL } },
	{ "server { listen 127.0.0.1:1; listen [::1]:1; listen unix:/x;\n"
	  "location / { status; } }",
	    { NULL } },
	{ S "inclde x;", { "did you mean \"include\"?" } },
	/* several at once, in the order of the text */
	{ "bogus_a 1;\nserver { listen q; }\nbogus_b 2;\nconnections z;",
	    { "t:1: unknown", "t:2: bad address", "t:3: unknown",
		"t:4: bad value" } },
	{ "inclode x;\n" S, { "t:1: unknown" } },
	{ "server { listen 1; locaton / { status; } }",
	    { "did you mean \"location\"?" } },
	{ "server { listen 1; location / { status; tokn env:A; } }",
	    { "did you mean \"token\"?" } },
};

/* Every line holds what is wanted, and there are as many. */
static void
test_case(const char *text, const char *const *want)
{
	struct buf err = BUF_INIT(1 << 16);
	struct view rest, line;
	struct conf *c;
	size_t n = 0;
	bool good = true;
	int rc;

	rc = conf_text_parse(text, &c, &err);
	rest = buf_view(&err);
	while (view_split(&rest, '\n', &line) && line.n > 0) {
		good = good && n < 8 && want[n] != NULL &&
		    view_search(line, view_str(want[n])) <
			line.n + (want[n][0] == '\0');
		n++;
	}
	good = good && (n == 8 || want[n] == NULL) &&
	    rc == (n > 0 ? SP_E_CONF : 0) && (c != NULL) == (rc == 0) &&
	    view_search(buf_view(&err), VIEW("sk-secret")) == buf_len(&err);
	tap_ok(good, "%s", want[0] != NULL ? want[0] : "good");
	if (!good)
		tap_diag("of {%s}: %d, %.*s", text, rc,
		    VIEW_ARG(buf_view(&err)));
	buf_clear(&err);
	conf_free(c);
}

static void
test_defaults(void)
{
	struct buf err = BUF_INIT(1 << 16);
	const struct conf_upstream *u;
	const struct conf_capture *k;
	struct conf *c;

	tap_is_int(conf_text_parse(U C S, &c, &err), 0, "defaults");
	tap_ok(view_eq(c->main.state_dir, VIEW("/state")), "state_dir");
	tap_ok(view_eq(c->main.error_log, VIEW("stderr")), "error_log");
	tap_is_int(c->main.error_level, LOG_LEVEL_NOTICE, "error_level");
	tap_ok(view_eq(c->main.access_log, VIEW("off")), "access_log");
	tap_is_int((long long)c->main.resolver.n, 1, "resolver");
	tap_is_int((long long)c->main.drain_timeout_ms, 30000, "drain");
	u = c->upstreams[0];
	tap_is_int((long long)u->connect_timeout_ms, 5000, "connect_timeout");
	tap_is_int((long long)u->first_byte_timeout_ms, 0, "first_byte off");
	tap_is_int((long long)u->read_timeout_ms, 600000, "read_timeout");
	tap_is_int((long long)u->keepalive, 32, "keepalive");
	tap_is_int((long long)u->event_max_bytes, 64 << 20, "event_max");
	tap_ok(u->tls_verify && u->api_key == NULL && u->ca.n == 0 &&
		u->model.n == 0 && u->balance == CONF_BALANCE_SESSION,
	    "rest of the upstream");
	k = c->captures[0];
	tap_is_int(k->level, CONF_LEVEL_LOGPROBS, "level");
	tap_is_int((long long)k->top_logprobs, 5, "top_logprobs");
	tap_is_int(k->logprobs_refused, CONF_REFUSED_RETRY, "refused");
	tap_ok(view_eq(k->trace, VIEW("/state/traces/$session.jsonl")) &&
		view_eq(k->trace_dir, VIEW("/state/traces")) &&
		view_eq(k->trace_name, VIEW("$session.jsonl")),
	    "trace");
	tap_is_int((long long)k->trace_keep_ms, 14LL * 86400000, "keep_ms");
	tap_is_int((long long)k->trace_keep_bytes, 500LL << 30, "keep_bytes");
	tap_is_int((long long)c->servers[0]->limits.header_max_n, 100,
	    "limits reach the server");
	tap_is_int((long long)c->servers[0]->locations[0]->limits.header_max_n,
	    100, "and the location");
	conf_free(c);
	buf_clear(&err);
}

static void
test_inherit(void)
{
	struct buf err = BUF_INIT(1 << 16);
	const struct conf_server *s;
	struct conf *c;

	/* Order in the text does not matter. */
	tap_is_int(
	    conf_text_parse("server { location /a { health; }\n"
			    "location /b { health; client_max_body 3m; }\n"
			    "listen 1; client_max_body 2m; }\n"
			    "server { listen 2; location /c { health; } }\n"
			    "client_max_body 1m; send_timeout 7s;",
		&c, &err),
	    0, "inheritance");
	s = c->servers[0];
	tap_is_int((long long)c->main.limits.client_max_body_bytes, 1 << 20,
	    "main");
	tap_is_int((long long)s->limits.client_max_body_bytes, 2 << 20,
	    "server");
	tap_is_int((long long)s->locations[0]->limits.client_max_body_bytes,
	    2 << 20, "location inherits");
	tap_is_int((long long)s->locations[1]->limits.client_max_body_bytes,
	    3 << 20, "location sets");
	tap_is_int((long long)s->locations[1]->limits.send_timeout_ms, 7000,
	    "through two levels");
	s = c->servers[1];
	tap_is_int((long long)s->locations[0]->limits.client_max_body_bytes,
	    1 << 20, "of main");
	conf_free(c);
	buf_clear(&err);
}

static void
test_values(void)
{
	struct buf err = BUF_INIT(1 << 16);
	const struct llm_intercept_conf *l;
	const struct conf_location *loc;
	const struct conf_listen *li;
	const struct conf_server *s;
	struct conf *c;
	int rc;

	rc = conf_text_parse(U
	    "capture c { sampling temperature=1.0 top_k=-1; }\n"
	    "server { listen 127.0.0.1:0; listen [::1]:8443 ssl "
	    "backlog=7; listen unix:run/x.sock;\n"
	    "certificate file:c.pem; certificate_key env:KEY;\n"
	    "server_name a b; server_name d;\n"
	    "location /v1/ { " D "pass \"/v1/a;b\"; keepalive_comment 15s; "
	    "token file:/t; } }\n"
	    "server { listen [::1]:8443 ssl backlog=7; certificate "
	    "file:/d; certificate_key file:/e; }",
	    &c, &err);
	tap_is_int(rc, 0, "values");
	if (rc != 0) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		return;
	}
	tap_ok(c->control != NULL && c->control->control &&
		c->control->listens[0].index == c->listens_n &&
		c->control->locations_n >= 3 &&
		view_eq(c->control->locations[0]->path, VIEW("/sessions")),
	    "the control socket's server has an index of its own");
	s = c->servers[0];
	li = s->listens;
	tap_ok(s->listens_n == 3 && view_eq(li[0].address, VIEW("127.0.0.1")) &&
		li[0].port == 0 && !li[0].ssl && li[0].index == 0,
	    "listen on any port");
	tap_ok(view_eq(li[1].address, VIEW("::1")) && li[1].port == 8443 &&
		li[1].ssl && li[1].backlog == 7 && li[1].index == 1,
	    "listen on IPv6 with TLS");
	tap_ok(li[2].is_unix &&
		view_eq(li[2].address, VIEW("/etc/test/run/x.sock")),
	    "listen on a socket");
	tap_ok(c->servers[1]->listens[0].shared &&
		c->servers[1]->listens[0].index == 1 && c->listens_n == 3,
	    "a shared address has one index");
	tap_is_int((long long)s->server_names.n, 3, "server_name repeats");
	tap_ok(c->secrets_n == 5 && s->certificate->pem &&
		view_eq(s->certificate->name, VIEW("/etc/test/c.pem")) &&
		s->certificate_key->from_env &&
		s->certificate->roles == CONF_TO_REACTOR,
	    "secrets");
	loc = s->locations[0];
	l = conf_module_conf(loc, "llm_intercept");
	tap_ok(view_eq(loc->path, VIEW("/v1")) &&
		strcmp(loc->handler->name, "llm_intercept") == 0 &&
		loc->server == s,
	    "location");
	tap_ok(l != NULL && l->upstream == c->upstreams[0] &&
		l->capture == c->captures[0] && l->keys == LLM_KEYS_SESSION &&
		l->keepalive_comment_ms == 15000 && l->pass.n == 1 &&
		view_eq(l->pass.v[0], VIEW("/v1/a;b")),
	    "llm_intercept");
	tap_ok(conf_module_conf(loc, "status") == NULL, "not its module");
	tap_ok(conf_module_conf(loc, "nope") == NULL, "no module");
	tap_is_int(conf_module_index("upstreams"), 2, "index of a module");
	tap_ok(c->captures[0]->sampling_n == 2 &&
		view_eq(c->captures[0]->sampling[1].value, VIEW("-1")),
	    "sampling");
	conf_free(c);
	buf_clear(&err);
}

static void
test_secrets(void)
{
	struct buf err = BUF_INIT(1 << 16);
	struct conf *c;

	tap_is_int(
	    conf_text_parse("upstream u { server http://h; api_key env:K; }\n"
			    "server { listen 1 ssl; certificate file:/c;\n"
			    "certificate_key file:/k;\n"
			    "location / { status; token env:T; } }",
		&c, &err),
	    0, "secrets");
	tap_is_int(conf_secret_set(c, 9, VIEW("x")), SP_E_NOTFOUND, "no such");
	tap_is_int(conf_secret_set(c, 0, VIEW("")), SP_E_SYNTAX, "empty");
	tap_is_int(conf_secret_set(c, 0, VIEW("\n")), SP_E_SYNTAX, "line end");
	tap_is_int(conf_secret_set(c, 0, VIEW("a\r\nb: c")), SP_E_SYNTAX,
	    "control");
	tap_is_int(conf_secret_set(c, 0, VIEW("a b")), SP_E_SYNTAX, "space");
	tap_is_int(conf_secret_set(c, 0, VIEW("\xc3\xa4")), SP_E_SYNTAX,
	    "not ASCII");
	tap_is_int(conf_secret_set(c, 0, view_of("a\0b", 3)), SP_E_SYNTAX,
	    "NUL");
	tap_ok(c->secrets[0]->value.p == NULL, "nothing arrived");
	tap_is_int(conf_secret_set(c, 0, VIEW("sk-1\r\n")), 0, "a key");
	tap_ok(view_eq(c->upstreams[0]->api_key->value, VIEW("sk-1")),
	    "its line end is dropped");
	tap_is_int(conf_secret_set(c, 0, VIEW("sk-2")), 0, "a new one");
	mem_fail_after(1, 0);
	tap_is_int(conf_secret_set(c, 0, VIEW("sk-3")), SP_E_NOMEM, "memory");
	mem_fail_after(0, 0);
	tap_ok(view_eq(c->secrets[0]->value, VIEW("sk-2")), "it stays");
	tap_is_int(conf_secret_set(c, 1, VIEW("--\nx\n--\n")), 0,
	    "PEM has lines");
	tap_is_int((long long)c->secrets[1]->value.n, 8, "all of them");
	tap_is_int(conf_secret_set(c, 3, VIEW("0123456789abcde")), SP_E_SYNTAX,
	    "a token is at least 16 bytes");
	tap_is_int(conf_secret_set(c, 3, VIEW("0123456789abcdef\n")), 0,
	    "a token");
	conf_free(c);
	conf_free(NULL);
	buf_clear(&err);
}

static void
test_many(void)
{
	struct buf text = BUF_INIT(1 << 20), err = BUF_INIT(1 << 16);
	size_t i, lines = 0;
	struct conf *c;
	int rc = 0;

	for (i = 0; i < 50 && rc == 0; i++)
		rc = buf_printf(&text, "bogus%zu;\n", i);
	if (rc == 0)
		rc = buf_add(&text, "", 1);
	tap_is_int(rc, 0, "50 errors");
	tap_is_int(conf_text_parse(buf_view(&text).p, &c, &err), SP_E_CONF,
	    "found");
	for (i = 0; i < buf_len(&err); i++)
		lines += buf_view(&err).p[i] == '\n';
	tap_is_int((long long)lines, 20, "20 are told");

	buf_reset(&text, 0);
	buf_reset(&err, 0);
	for (i = 0, rc = 0; i < 20001 && rc == 0; i++)
		rc = buf_add_str(&text, "a;\n");
	if (rc == 0)
		rc = buf_add(&text, "", 1);
	tap_is_int(conf_text_parse(buf_view(&text).p, &c, &err), SP_E_CONF,
	    "too many directives");

	buf_reset(&text, 0);
	buf_reset(&err, 0);
	rc = buf_add_str(&text, "server_name");
	for (i = 0; i < 1100 && rc == 0; i++)
		rc = buf_printf(&text, " a%zu", i);
	if (rc == 0)
		rc = buf_add(&text, ";", 2);
	tap_is_int(conf_text_parse(buf_view(&text).p, &c, &err), SP_E_CONF,
	    "too many arguments");
	tap_ok(view_search(buf_view(&err), VIEW("too many arguments")) <
		buf_len(&err),
	    "said so");
	buf_clear(&text);
	buf_clear(&err);
}

/* Text that is not what conf_expand() writes is an error, nothing else. */
static void
test_damaged(void)
{
	const struct view bad[] = {
		VIEW(""),
		VIEW("server { }"),
		VIEW("sallyport-conf 1\nX 1\n"),
		VIEW("sallyport-conf 1\nE\n"),
		VIEW("sallyport-conf 1\nT 1 1\na\n"),
		VIEW("sallyport-conf 1\nF 1 0\nt\n"),
		VIEW("sallyport-conf 1\nF 9 0\nt\n"),
		VIEW("sallyport-conf 1\nF 1 1\ntx\n"),
		VIEW("sallyport-conf 1\nF 1 0\ntx"),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT 1 9\na\n"),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT 1 1\nab"),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT 1 1\n\xff\n"),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT 1 1\n\0\n"),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT 99999999999 1\na\n"),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT 1 99999999\na\n"),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT x 1\na\n"),
		VIEW("sallyport-conf 1\nF"),
		VIEW("sallyport-conf 1\nF "),
		VIEW("sallyport-conf 1\nF 1 0\nt\nT 1 1\na\nF 1 0\nu\n"),
	};
	struct buf err = BUF_INIT(1 << 16);
	struct conf *c;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		buf_reset(&err, 0);
		tap_ok(conf_parse(bad[i], NULL, &c, &err) == SP_E_CONF &&
			c == NULL && buf_len(&err) > 0,
		    "damaged text %zu", i);
	}
	buf_clear(&err);
}

static void
test_memory(void)
{
	struct buf err = BUF_INIT(1 << 16), expanded = BUF_INIT(1 << 20);
	char *text = conf_text_file("conf/sallyport.conf");
	unsigned long n;
	struct conf *c;
	int rc = SP_E_NOMEM;

	if (!tap_ok(text != NULL, "the reference is there"))
		return;
	for (n = 1; rc == SP_E_NOMEM && n < 10000; n++) {
		buf_clear(&err);
		buf_clear(&expanded);
		mem_fail_after(n, 0);
		rc = conf_expand_text("t", view_str(text), VIEW_NONE, &expanded,
		    &err);
		if (rc == 0)
			rc = conf_parse(buf_view(&expanded),
			    &conf_text_defaults, &c, &err);
	}
	mem_fail_after(0, 0);
	tap_ok(rc == 0 && n > 2, "parses after %lu failures", n - 2);
	if (rc == 0)
		conf_free(c);
	/* and with errors to tell */
	rc = SP_E_NOMEM;
	for (n = 1; rc == SP_E_NOMEM && n < 10000; n++) {
		buf_clear(&err);
		mem_fail_after(n, 0);
		rc = conf_text_parse(
		    "a;\nserver { b; location / { c; } location / { } }"
		    "listen 1; capture c { balance q; level q; }",
		    &c, &err);
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, SP_E_CONF, "errors after failures");
	buf_clear(&err);
	buf_clear(&expanded);
	free(text);
}

int
main(void)
{
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		test_case(cases[i].text, cases[i].want);
	test_defaults();
	test_inherit();
	test_values();
	test_secrets();
	test_many();
	test_damaged();
	test_memory();
	return tap_done();
}
