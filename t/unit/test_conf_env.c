/* environment { }: what it takes, what it refuses and where, and -T. */
#include "base/mem.h"
#include "conf/conf_env.h"
#include "conf_text.h"
#include "llm_intercept_conf.h"
#include "tap.h"

#define S "server { listen 1; location /s { health; } }\n"
#define U "upstream u { server http://h; } capture c { }\n"

/* An environment of one line, on line 1. */
#define E(body) "environment e { " body " }\n" S
#define SB(body) E("sandbox { " body " }")
#define EG(body) E("egress { " body " }")
#define IN(body) U "environment e {\n" body " }\n" S

/* All that the design shows. */
static const char full[] =
    U "environment echo {\n"
      "workspace /srv/echo/workspace/; workspace_size 2g; storage disk;\n"
      "workspace_inodes 1000; worker_start_timeout 5s;\n"
      "worker_directory \"/workspace/a b\";\n"
      "worker stdio /usr/bin/python3 /opt/echo/worker.py \"a b\" '';\n"
      "assets /srv/echo/private { oracle grade.sh; solution sub/s.txt;\n"
      "rubric \"r b.py\"; }\n"
      "sandbox { read_only /usr /bin /lib; read_only /opt/echo/;\n"
      "read_write /tmp /var/tmp; uid 300000 4096; memory 512m; pids 100;\n"
      "cpu 0.25; timeout 300s; tmp_size 1m; shm_size 2m; files 100;\n"
      "file_size 1g; env A=1 'B=x y' C=; env \"D==\"; }\n"
      "egress { via veth; connections 10;\n"
      "allow tcp 203.0.113.0/24 443; allow udp 203.0.113.53 53;\n"
      "allow tcp 0.0.0.0/0 1000-2000; allow host Packages.Example 443;\n"
      "allow host *.example *; }\n"
      "process harness { trust workload; command /usr/bin/h --mcp "
      "http://127.0.0.1:8000/mcp; }\n"
      "process rubric { trust privileged; asset rubric; }\n"
      "process run.2 { command /bin/sh -c '$x;'; trust privileged; asset "
      "oracle; }\n"
      "require asset_isolation egress_control; require trace_integrity;\n"
      "episodes 8; warm 2; teardown_timeout 3s;\n"
      "inside 127.0.0.1:8000 { location /health { health; } }\n"
      "inside 127.0.0.2:8000 { client_max_body 1k; location /v1 {\n"
      "llm_intercept; upstream u; capture c; keys session; } location / {\n"
      "health; send_timeout 3s; } }\n"
      "}\n" S;

/* A text, and what its only error holds; NULL: none. */
static const struct {
	const char *text;
	const char *want;
} cases[] = {
	{ full, NULL },
	{ E(""), NULL },
	{ E("workspace \"\";"), "empty value for \"workspace\"" },
	{ E("workspace w;"), NULL },
	{ E("workspace ../w;"),
	    "t:1: bad path \"/etc/test/../w\" for \"workspace\"; expected an "
	    "absolute one without \"..\"" },
	{ E("workspace /;"), "t:1: workspace is the whole host" },
	{ E("workspace /a;\nassets /a { }"),
	    "t:1: workspace \"/a\" and assets \"/a\" contain each other" },
	{ E("workspace /a;\nassets /a/b { }"), "contain each other" },
	{ E("assets /a { }\nworkspace /a/b;"),
	    "t:2: workspace \"/a/b\" and assets \"/a\" contain each other" },
	{ E("workspace /a;\nassets /ab { }"), NULL },
	{ E("workspace /state;"),
	    "workspace \"/state\" contains the state_dir \"/state\"" },
	{ E("workspace /state/seed;"), NULL },
	{ E("workspace_size 1;"), "expected a size from 64k to" },
	{ E("workspace_inodes 1;"), "expected a number from 64" },
	{ E("storage tape;"), "expected memory or disk" },
	{ E("enforcement none;"), "expected linux or local" },
	{ E("episodes 0;"), "expected a number from 1 to 1000" },
	{ E("episodes 1001;"), "expected a number from 1 to 1000" },
	{ E("warm 1001;"), "expected a number from 0 to 1000" },
	{ E("episodes 2;\nwarm 3;"),
	    "t:2: warm is 3 and episodes 2; expected at most as many" },
	{ E("teardown_timeout off;"), "expected a time from 1ms to 1h" },
	{ E("worker_directory workspace;"),
	    "t:1: bad path \"workspace\" for \"worker_directory\"; expected "
	    "an absolute one without \"..\"" },
	{ E("worker_start_timeout 2h;"), "expected a time from 1ms to 1h" },
	{ E("}\nenvironment e {"),
	    "t:2: duplicate environment \"e\"; expected different names, it "
	    "stands at t:1" },
	{ "environment off { }" S, "\"off\" is no name" },
	{ "environment;" S, "directive \"environment\" opens a block" },
	{ "environment { }" S, "has 0 arguments; expected NAME" },
	{ E("episodes 600; }\nenvironment f { episodes 401;"),
	    "t:2: episodes of all environments are more than 1000" },
	{ E("listen 1;"), "belongs in server; not in environment" },
	{ E("read_only /x;"), "belongs in sandbox; not in environment" },
	{ S "sandbox { }", "belongs in environment; not in main" },
	{ E("episods 1;"), "did you mean \"episodes\"?" },
	/* worker */
	{ E("worker none;"), NULL },
	{ E("worker none /bin/x;"), "worker none has a command" },
	{ E("worker none { }"), "worker none takes no block" },
	{ E("worker tcp /bin/x;"),
	    "bad value \"tcp\" for \"worker\"; expected none, stdio, http or "
	    "frames" },
	{ E("worker;"), "has 0 arguments" },
	{ E("worker stdio;"), "command of \"worker\" is \"\"; expected the" },
	{ E("worker stdio x;"), "command of \"worker\" is \"x\"" },
	{ E("worker stdio /usr/../x;"),
	    "bad path \"/usr/../x\" for \"worker\"" },
	{ E("worker stdio /usr/bin/x { }"), "worker stdio takes no block" },
	{ E("worker none; worker none;"), "duplicate directive \"worker\"" },
	{ E("worker http 8000 /usr/bin/x y;"), NULL },
	{ E("worker http 80 /usr/bin/x;"), "bad port \"80\"" },
	{ E("worker http;"), "bad port \"\"" },
	{ E("worker http 8000;"), "command of \"worker\" is \"\"" },
	{ E("worker frames /usr/bin/x y;"), NULL },
	{ E("worker frames /usr/bin/x { factory a.b:c; action_class a:B; }"),
	    NULL },
	{ E("worker frames /usr/bin/x { factory a; action_class a:B; }"),
	    "bad value \"a\" for \"factory\"; expected MODULE:ATTR" },
	{ E("worker frames /usr/bin/x { factory a:b; action_class :B; }"),
	    "expected MODULE:CLASS" },
	{ E("worker frames /usr/bin/x { action_class a:b; factory 'a:b c'; }"),
	    "bad value" },
	{ E("worker frames /usr/bin/x { factory a:b; action_class a:b; "
	    "episodes 1; }"),
	    "environment; not in worker" },
	{ E("\nworker stdio /tmp/py;"),
	    "t:2: program \"/tmp/py\" of the worker lies where episodes "
	    "write" },
	{ E("worker stdio /workspace/py;"), "lies where episodes write" },
	{ E("workspace /usr/w; worker stdio /usr/w/py;"),
	    "lies where episodes write" },
	{ E("sandbox { read_write /opt/x; } worker stdio /opt/x/py;"),
	    "lies where episodes write" },
	{ E("sandbox { read_only /tmp/x; } worker stdio /tmp/y/py;"),
	    "lies where episodes write" },
	{ E("sandbox { read_only /tmp/x; } worker stdio /tmp/x/py;"), NULL },
	{ E("worker stdio /opt/py;"),
	    "program \"/opt/py\" of the worker is not there inside" },
	{ E("enforcement local; worker stdio /opt/py;"), NULL },
	{ E("sandbox { rootfs /img; } worker stdio /opt/py;"), NULL },
	{ E("worker frames /usr/bin/x { factory a:b; }"),
	    "worker lacks \"action_class\"; expected \"action_class "
	    "MODULE:CLASS\"" },
	/* assets */
	{ E("assets /a { oracle ../x; }"),
	    "path \"../x\" of asset \"oracle\" leaves its directory" },
	{ E("assets /a {\noracle /x; }"), "t:2: path \"/x\" of asset" },
	{ E("assets /a { oracle a/./b; }"), "leaves its directory" },
	{ E("assets /a { oracle a//b; }"), "leaves its directory" },
	{ E("assets /a { oracle a/; }"), "leaves its directory" },
	{ E("assets /a { oracle ''; }"), "leaves its directory" },
	{ E("assets /a { oracle a;\noracle b; }"),
	    "t:2: duplicate asset \"oracle\"; expected different kinds, it "
	    "stands at t:1" },
	{ E("assets /a { oracle; }"), "expected KIND FILE;" },
	{ E("assets /a { oracle a b; }"), "expected KIND FILE;" },
	{ E("assets /a { Oracle a; }"), "expected KIND FILE;" },
	{ E("assets /a { oracle a { } }"), "expected KIND FILE;" },
	{ E("assets /a/../b { }"), "bad path \"/a/../b\" for \"assets\"" },
	{ E("assets /a { } assets /b { }"), "duplicate directive \"assets\"" },
	{ E("assets /usr/share/a { }"),
	    "read_only \"/usr\" contains the assets \"/usr/share/a\"" },
	{ E("assets /i/a { }\nsandbox { rootfs /i; }"),
	    "t:2: rootfs \"/i\" contains the assets" },
	{ SB("read_only /state;"),
	    "read_only \"/state\" contains the state_dir" },
	/* processes */
	{ E("process p { command /bin/x; }"),
	    "process \"p\" lacks \"trust\"; expected \"trust workload | "
	    "privileged\"" },
	{ E("process p { trust root; }"), "expected workload or privileged" },
	{ E("process p { trust workload; }"), "lacks \"command\"" },
	{ E("process p { trust privileged; }"), "lacks an \"asset\"" },
	{ E("process p { trust workload; command /b; asset x; }"),
	    "of trust workload names an asset" },
	{ E("\nprocess p { trust privileged; asset x; }"),
	    "t:2: process \"p\" needs asset \"x\", which is not there" },
	{ E("process p { trust workload; command b; }"),
	    "command of \"command\" is \"b\"" },
	{ E("process p { trust workload; command /b; } process p { trust "
	    "workload; command /b; }"),
	    "duplicate process \"p\"" },
	{ E("process 'a b' { trust workload; command /b; }"),
	    "\"a b\" is no name" },
	/* require */
	{ E("require speed;"), "unknown guarantee \"speed\"" },
	{ E("require egress_control egress_control;"),
	    "duplicate guarantee \"egress_control\"" },
	{ E("enforcement local;\nrequire egress_control trace_integrity;"),
	    "t:2: require names egress_control, and enforcement local "
	    "guarantees nothing" },
	{ E("enforcement local;"), NULL },
	/* sandbox */
	{ SB(""), NULL },
	{ SB("} sandbox {"), "duplicate directive \"sandbox\"" },
	{ SB("read_only x;"), "bad path \"x\" for \"read_only\"" },
	{ SB("read_only /a/../b;"), "bad path" },
	{ SB("read_only /a//b;"), "bad path" },
	{ SB("read_only '';"), "bad path" },
	{ SB("read_only /a /a/;"), "duplicate path \"/a\"" },
	{ SB("\nread_only /;"), "t:2: path \"/\" may not be in \"read_only\"" },
	{ SB("read_only /proc/1;"), "may not be in \"read_only\"" },
	{ SB("read_only /workspace;"), "may not be in \"read_only\"" },
	{ SB("read_only /devel;"), NULL },
	{ SB("\nread_write /;"),
	    "t:2: path \"/\" may not be in \"read_write\"" },
	{ SB("read_write /proc;"), "may not be in \"read_write\"" },
	{ SB("read_write /dev/shm;"), "may not be in \"read_write\"" },
	{ SB("read_write /usr;"), "may not be in \"read_write\"" },
	{ SB("read_write /usr/local;"), "may not be in \"read_write\"" },
	{ SB("read_write /usrlocal;"), NULL },
	{ SB("read_write /lib64;"), "may not be in \"read_write\"" },
	{ SB("read_write /etc/x;"), "may not be in \"read_write\"" },
	{ SB("read_write /sys;"), "may not be in \"read_write\"" },
	{ SB("read_write /tmp /tmp;"), "duplicate path \"/tmp\"" },
	{ SB("read_write /tmp/x /tmp;"), "contain each other" },
	{ SB("read_only /opt/a; read_write /opt;"), NULL },
	{ SB("read_only /opt; read_write /opt;"),
	    "path \"/opt\" stands in \"read_only\" and in \"read_write\"" },
	{ SB("read_only /tmp/a;"), NULL },
	{ SB("read_only /tmp/a; read_write /tmp;"), NULL },
	{ SB("read_only /tmp/a; read_write /var/tmp;"), NULL },
	{ SB("\nread_only /tmp;"),
	    "t:2: path \"/tmp\" may not be in \"read_only\": each sandbox has "
	    "one of its own" },
	{ SB("read_only /tmp; read_write /var/tmp;"), "one of its own" },
	{ SB("read_only /opt; read_write /opt/a;"), NULL },
	{ SB("rootfs /i; read_only /usr;"),
	    "sandbox has \"rootfs\" and \"read_only\" (at t:1)" },
	{ SB("rootfs /;"), "rootfs is the host's own" },
	{ SB("rootfs /a/..;"), "bad path \"/a/..\" for \"rootfs\"" },
	{ SB("rootfs /i; read_write /usr;"), "may not be in \"read_write\"" },
	{ SB("uid 0 100;"), "bad range \"0 100\" for \"uid\"" },
	{ SB("uid 999 100;"), "bad range" },
	{ SB("uid 1000 3;"), "bad range" },
	{ SB("uid 4294967000 4096;"), "bad range" },
	{ SB("uid 4294963198 4096;"), NULL },
	{ SB("uid 4294963199 4096;"), "bad range" },
	{ SB("uid 60000 5000;"), "holds 64801, which is reserved" },
	{ SB("uid 64802 4096;"), "holds 64802" },
	{ SB("uid 64803 4096;"), "holds 65534" },
	{ SB("uid 65535 4096;"), "holds 65535" },
	{ SB("uid 65536 4096;"), NULL },
	{ SB("uid 1000;"), "expected FIRST COUNT" },
	{ SB("\nuid 200000 63;"),
	    "t:2: range of \"uid\" holds 63; expected at least 64" },
	{ SB("uid 200000 64;"), NULL },
	{ SB("uid 200000 64; } warm 1; process p { trust workload; command "
	     "/b;"),
	    "expected at least 72" },
	{ SB("uid 200000 64; } }\nenvironment f { sandbox { uid 200063 64;"),
	    "t:2: range of \"uid\" overlaps that of environment \"e\" at "
	    "t:1" },
	{ SB("uid 200064 64; } }\nenvironment f { sandbox { uid 200000 64;"),
	    NULL },
	{ SB("memory 1m;"), "expected a size from 4m" },
	{ SB("pids 1;"), "expected a number from 4" },
	{ SB("cpu 0;"), "bad value \"0\" for \"cpu\"" },
	{ SB("cpu -1;"), "bad value" },
	{ SB("cpu 1e9;"), "bad value" },
	{ SB("cpu x;"), "bad value" },
	{ SB("cpu off;"), NULL },
	{ SB("timeout x;"), "expected off or a time" },
	{ SB("tmp_size 1;"), "expected a size from 64k" },
	{ SB("shm_size 1;"), "expected a size from 64k" },
	{ SB("files 1;"), "expected a number from 16" },
	{ SB("file_size x;"), "expected a size from 0" },
	{ SB("env A;"), "expected NAME=VALUE" },
	{ SB("env 1A=1;"), "expected NAME=VALUE" },
	{ SB("env =1;"), "expected NAME=VALUE" },
	{ SB("env A=1 A=2;"), "duplicate variable \"A\"" },
	{ SB("env A=1 AB=2;"), NULL },
	/* egress */
	{ EG(""), NULL },
	{ EG("allow tcp 203.0.113.0/24 443 from /usr/bin/curl;"),
	    "rule ends in \"from\", and which program sends a packet cannot "
	    "be told" },
	{ EG("allow tcp 203.0.113.0/24 443 x;"), "rule goes on with \"x\"" },
	{ EG("allow tcp 203.0.113.0/24;"), "has 2 arguments" },
	{ EG("allow icmp 203.0.113.0/24 1;"), "expected tcp, udp or host" },
	{ EG("allow tcp 203.0.113.1/24 1;"),
	    "\"203.0.113.1/24\" has bits of a host; expected "
	    "203.0.113.0/24" },
	{ EG("allow tcp 203.0.113.0/33 1;"), "bad network" },
	{ EG("allow tcp 203.0.113/24 1;"), "bad network" },
	{ EG("allow tcp 203.0.113.0/ 1;"), "bad network" },
	{ EG("allow tcp example.com 1;"), "bad network" },
	{ EG("allow tcp '' 1;"), "bad network" },
	{ EG("allow tcp 2001:db8::/32 1;"), "is IPv6, which never leaves" },
	{ EG("allow tcp 203.0.113.0/24 0;"), "bad ports \"0\"" },
	{ EG("allow tcp 203.0.113.0/24 65536;"), "bad ports" },
	{ EG("allow tcp 203.0.113.0/24 9-8;"), "bad ports" },
	{ EG("allow tcp 203.0.113.0/24 1-;"), "bad ports" },
	{ EG("allow tcp 203.0.113.0/24 -1;"), "bad ports" },
	{ EG("allow tcp 203.0.113.0/24 1-65535;"), NULL },
	{ EG("allow tcp 203.0.113.0/24 1;\nallow tcp 203.0.113.0/24 1;"),
	    "t:2: duplicate rule; expected each once, it stands at t:1" },
	{ EG("allow tcp 203.0.113.0/24 1; allow udp 203.0.113.0/24 1;"), NULL },
	{ EG("\nallow tcp 127.0.0.0/8 1;"),
	    "t:2: network \"127.0.0.0/8\" lies in a protected range" },
	{ EG("allow tcp 169.254.169.254/32 80;"), "protected range" },
	{ EG("allow tcp 10.1.2.3 80;"), "protected range" },
	{ EG("allow udp 224.0.0.0/3 80;"), "protected range" },
	{ EG("allow tcp 224.0.0.0/4 80;"), "protected range" },
	{ EG("allow tcp 255.255.255.255 80;"), "protected range" },
	{ EG("allow tcp 198.51.100.0/24 1; allow tcp 192.0.2.0/24 1;"), NULL },
	{ EG("allow tcp 128.0.0.0/1 *;"), NULL },
	{ EG("allow host 203.0.113.1 443;"),
	    "host \"203.0.113.1\" is an address" },
	{ EG("allow host ::1 443;"), "is an address" },
	{ EG("allow host * 443;"), "bad host" },
	{ EG("allow host *. 443;"), "bad host" },
	{ EG("allow host a.*.b 443;"), "bad host" },
	{ EG("allow host 127.1 443;"), "bad host" },
	{ EG("allow host a.0x7f 443;"), "bad host" },
	{ EG("allow host http://a 443;"), "bad host" },
	{ EG("allow host *.LocalHost 443;"), "is loopback" },
	{ EG("allow host localhost 443;"), "is loopback" },
	{ EG("allow host A.b 443; allow host a.B 443;"), "duplicate rule" },
	{ EG("via relay;\nallow udp 203.0.113.0/24 53;"),
	    "t:2: rule for udp with \"via relay\"" },
	{ EG("via relay; allow tcp 203.0.113.0/24 53;"), NULL },
	{ EG("via tun;"), "expected auto, veth or relay" },
	{ EG("connections 0;"), "expected a number from 1 to 65535" },
	/* inside */
	{ IN("inside 127.0.0.1:8000 { location /h { health; } }"), NULL },
	{ IN("inside 127.0.0.1:8000 { }"), "t:3: inside has no location" },
	{ IN("inside 127.0.0.1:8000 {\nlocation / { status; } }"),
	    "t:4: location \"/\" has \"status\", which agents may not reach; "
	    "expected llm_intercept, health or mcp_agent" },
	{ IN("inside 127.0.0.1:8000 { location / { sessions; token env:T; } "
	     "}"),
	    "which agents may not reach" },
	{ IN("inside 127.0.0.1:8000 { location / { } }"),
	    "has no handler; expected llm_intercept, health or mcp_agent" },
	{ IN("inside 127.0.0.1:80 { location / { health; } }"),
	    "bad address \"127.0.0.1:80\" for \"inside\"" },
	{ IN("inside 8000 { location / { health; } }"), "bad address" },
	{ IN("inside 127.0.0.1 { location / { health; } }"), "bad address" },
	{ IN("inside 10.0.0.1:8000 { location / { health; } }"),
	    "bad address" },
	{ IN("inside [::1]:8000 { location / { health; } }"), "bad address" },
	{ IN("inside 127.x:8000 { location / { health; } }"), "bad address" },
	{ IN("inside 127.0.0.1:3128 { location / { health; } }"),
	    "port 3128 of \"inside\" is the proxy's" },
	{ IN("inside 127.0.0.1:8000 ssl { location / { health; } }"),
	    "has 2 arguments; expected ADDRESS" },
	{ IN("inside 127.0.0.1:8000 { listen 1; location / { health; } }"),
	    "belongs in server; not in inside" },
	{ IN("inside 127.0.0.1:8000 { location / { health; } }\n"
	     "inside 127.0.0.1:8000 { location / { health; } }"),
	    "t:4: duplicate inside \"127.0.0.1:8000\"" },
	{ IN("inside 127.0.0.1:8000 { location / { llm_intercept; upstream "
	     "x; capture c; } }"),
	    "no upstream \"x\"" },
	{ IN("inside 127.0.0.1:8000 { location /v1 { llm_intercept; upstream "
	     "u; capture c; pass /v2; } }"),
	    "pass \"/v2\" is out of reach" },
};

static void
test_case(const char *text, const char *want)
{
	struct buf err = BUF_INIT(1 << 16);
	struct view said;
	struct conf *c;
	size_t lines = 0, i;
	int rc;

	rc = conf_text_parse(text, &c, &err);
	said = buf_view(&err);
	for (i = 0; said.p != NULL && i < said.n; i++)
		lines += said.p[i] == '\n';
	if (!tap_ok(want == NULL ? rc == 0
				 : rc == SP_E_CONF && lines == 1 &&
			view_search(buf_view(&err), view_str(want)) <
			    buf_len(&err),
		"%s", want != NULL ? want : "good"))
		tap_diag("of {%s}: %d, %.*s", text, rc,
		    VIEW_ARG(buf_view(&err)));
	buf_clear(&err);
	conf_free(c);
}

static void
test_round(const char *text)
{
	struct buf err = BUF_INIT(1 << 16), a = BUF_INIT(1 << 20),
		   b = BUF_INIT(1 << 20);
	struct conf *c = NULL, *d = NULL;
	int rc;

	rc = conf_text_parse(text, &c, &err);
	if (rc == 0)
		rc = conf_dump(c, &a);
	if (rc == 0)
		rc = buf_add_char(&a, '\0');
	if (rc == 0)
		rc = conf_text_parse(buf_view(&a).p, &d, &err);
	if (rc == 0)
		rc = conf_dump(d, &b);
	if (rc == 0)
		rc = buf_add_char(&b, '\0');
	tap_is_int(rc, 0, "dumps, and parses again");
	if (rc != 0)
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
	tap_ok(view_eq(buf_view(&a), buf_view(&b)), "the same text");
	if (c != NULL && d != NULL)
		tap_ok(conf_env_same(c->environments[0], d->environments[0]),
		    "the same environment");
	conf_free(c);
	conf_free(d);
	buf_clear(&a);
	buf_clear(&b);
	buf_clear(&err);
}

/* What the rows of `full` put where. */
static void
values_sandbox(const struct conf_environment *e)
{
	tap_ok(view_eq(e->workspace, VIEW("/srv/echo/workspace")),
	    "no slash at the end");
	tap_ok(e->workspace_bytes == (uint64_t)2 << 30 &&
		e->workspace_inodes == 1000 &&
		e->storage == CONF_ENV_STORAGE_DISK,
	    "workspace");
	tap_ok(e->worker == CONF_ENV_WORKER_STDIO && e->worker_command.n == 4 &&
		view_eq(e->worker_command.v[2], VIEW("a b")) &&
		e->worker_command.v[3].n == 0 && e->worker_start_ms == 5000,
	    "worker");
	tap_ok(view_eq(e->assets, VIEW("/srv/echo/private")) &&
		e->asset_n == 3 &&
		view_eq(e->asset[1].kind, VIEW("solution")) &&
		view_eq(e->asset[1].path, VIEW("sub/s.txt")),
	    "assets");
	tap_ok(e->read_only.n == 4 &&
		view_eq(e->read_only.v[3], VIEW("/opt/echo")) &&
		e->read_write.n == 2 && e->rootfs.n == 0,
	    "paths");
	tap_ok(e->uid_first == 300000 && e->uid_n == 4096 &&
		e->memory_bytes == (uint64_t)512 << 20 && e->pids == 100 &&
		e->cpu_milli == 250 && e->timeout_ms == 300000 &&
		e->tmp_bytes == 1 << 20 && e->shm_bytes == 2 << 20 &&
		e->files == 100 && e->file_bytes == 1 << 30,
	    "bounds");
	tap_ok(e->env.n == 4 && view_eq(e->env.v[1], VIEW("B=x y")) &&
		view_eq(e->env.v[3], VIEW("D==")),
	    "variables");
}

static void
values_egress(const struct conf_environment *e)
{
	tap_ok(e->has_egress && e->via == CONF_ENV_VIA_VETH &&
		e->connections == 10 && e->rules_n == 5,
	    "egress");
	tap_ok(e->rules[0].net == 0xcb007100 && e->rules[0].prefix == 24 &&
		e->rules[0].port_low == 443 && e->rules[0].port_high == 443 &&
		e->rules[0].proto == 6 && !e->rules[0].is_host,
	    "rule of a network");
	tap_ok(e->rules[1].proto == 17 && e->rules[1].prefix == 32 &&
		e->rules[2].prefix == 0 && e->rules[2].port_low == 1000 &&
		e->rules[2].port_high == 2000,
	    "one address, and all");
	tap_ok(e->rules[3].is_host &&
		view_eq(e->rules[3].host, VIEW("packages.example")) &&
		view_eq(e->rules[4].host, VIEW("*.example")) &&
		e->rules[4].port_low == 1 && e->rules[4].port_high == 65535 &&
		e->rules[4].proto == 6,
	    "rules of hosts");
	tap_ok(e->processes_n == 3 && !e->processes[0].privileged &&
		e->processes[0].command.n == 3 && e->processes[1].privileged &&
		view_eq(e->processes[1].asset, VIEW("rubric")) &&
		view_eq(e->processes[2].command.v[2], VIEW("$x;")),
	    "processes");
	tap_ok(e->require ==
		(CONF_ENV_ASSET_ISOLATION | CONF_ENV_EGRESS_CONTROL |
		    CONF_ENV_TRACE_INTEGRITY),
	    "require");
}

static void
values_inside(const struct conf *c, const struct conf_environment *e)
{
	const struct conf_server *s;

	tap_ok(e->insides_n == 2 && c->servers_n == 1 && c->listens_n == 1,
	    "insides are no servers");
	s = e->insides[1];
	tap_ok(s->environment == e && s->index == 1 && s->listens_n == 1 &&
		s->listens[0].index == 1 && s->listens[0].port == 8000 &&
		view_eq(s->listens[0].address, VIEW("127.0.0.2")) &&
		c->servers[0]->environment == NULL,
	    "a listener of its own");
	tap_ok(s->locations_n == 2 &&
		s->locations[0]->limits.client_max_body_bytes == 1024 &&
		s->locations[1]->limits.send_timeout_ms == 3000 &&
		s->limits.send_timeout_ms == c->main.limits.send_timeout_ms,
	    "limits come from main");
	tap_ok(((struct llm_intercept_conf *)conf_module_conf(s->locations[0],
		    "llm_intercept"))
		    ->upstream == c->upstreams[0],
	    "references");
}

static void
test_values(void)
{
	struct buf err = BUF_INIT(1 << 16);
	const struct conf_environment *e;
	struct conf *c;

	tap_is_int(conf_text_parse(full, &c, &err), 0, "parses");
	if (c == NULL)
		return;
	e = conf_env_find(c, VIEW("echo"));
	tap_ok(e == c->environments[0] && conf_env_find(c, VIEW("x")) == NULL,
	    "found by name");
	values_sandbox(e);
	values_egress(e);
	values_inside(c, e);
	tap_ok(e->episodes == 8 && e->warm == 2 && e->teardown_ms == 3000,
	    "counts");
	tap_ok(conf_env_memory(e) == ((uint64_t)512 + 3 * 1 + 2) << 20,
	    "memory of an episode on disk");
	tap_is_int((long long)conf_env_uids_needed(e), 80, "uids needed");
	/* eight episodes and two warm ones of two each; eight more to grade */
	tap_ok(conf_env_grades(e) &&
		conf_env_admitted(e, 2) == 28 * conf_env_memory(e),
	    "memory of all of them");
	conf_free(c);
	buf_clear(&err);
}

static void
test_defaults(void)
{
	struct buf err = BUF_INIT(1 << 16);
	struct conf_environment *e, *f, *g;
	struct conf_environment big;
	struct conf *c;

	tap_is_int(
	    conf_text_parse("environment a { episodes 600; }\n"
			    "environment b { sandbox { uid 208200 4096; } }\n"
			    "environment c { sandbox { rootfs /i; } }\n" S,
		&c, &err),
	    0, "parses");
	if (c == NULL)
		return;
	e = c->environments[0];
	f = c->environments[1];
	g = c->environments[2];
	tap_ok(e->enforcement == CONF_ENV_ENFORCE_LINUX &&
		e->workspace.n == 0 && e->workspace_bytes == 1 << 30 &&
		e->storage == CONF_ENV_STORAGE_MEMORY &&
		e->worker == CONF_ENV_WORKER_NONE &&
		e->worker_start_ms == 30000 && e->assets.n == 0,
	    "files and worker");
	tap_ok(e->read_only.n == 7 && e->read_write.n == 1 &&
		view_eq(e->read_write.v[0], VIEW("/tmp")) &&
		e->memory_bytes == 1 << 30 && e->pids == 256 &&
		e->cpu_milli == 1000 && e->timeout_ms == 300000 &&
		e->env.n == 0 && f->read_only.n == 7,
	    "sandbox");
	tap_ok(g->read_only.n == 0 && view_eq(g->rootfs, VIEW("/i")),
	    "an image needs no read_only");
	tap_ok(!e->has_egress && e->rules_n == 0 &&
		e->via == CONF_ENV_VIA_AUTO && e->connections == 256,
	    "egress");
	tap_ok(f->episodes == 8 && e->warm == 0 && e->teardown_ms == 10000 &&
		e->require == 0 && e->insides_n == 0,
	    "counts");
	tap_is_int(e->uid_first, 200000, "the first range");
	tap_is_int(e->uid_n, 8192, "as long as needed");
	tap_is_int(g->uid_first, 208200 + 4096, "past those that are taken");
	tap_is_int(g->uid_n, 4096, "4096 of them");
	tap_ok(conf_env_optional(VIEW("/lib64")) &&
		!conf_env_optional(VIEW("/opt")),
	    "what a host may lack");
	tap_ok(!conf_env_same(e, f) && conf_env_same(e, e), "sameness");
	big = *e;
	tap_ok(conf_env_memory(e) ==
		((uint64_t)1024 + 1024 + 2 * 256 + 64) << 20,
	    "memory of an episode");
	tap_ok(!conf_env_grades(e) &&
		conf_env_admitted(e, 1) ==
		    (e->episodes + e->warm) * conf_env_memory(e),
	    "and of all of them, where none is graded");
	big.tmp_bytes = UINT64_MAX;
	tap_ok(conf_env_admitted(&big, 1) == UINT64_MAX, "all is too much");
	tap_ok(conf_env_memory(&big) == UINT64_MAX, "more than can be");
	conf_free(c);
	tap_is_int(conf_text_parse("environment a { sandbox { uid 200000 "
				   "4294763293; } }\nenvironment b { }\n" S,
		       &c, &err),
	    SP_E_CONF, "no uids left");
	tap_ok(view_search(buf_view(&err),
		   VIEW("t:2: no uids are left for environment \"b\"")) <
		buf_len(&err),
	    "says so");
	buf_clear(&err);
}

static void
test_protected(void)
{
	static const struct {
		uint32_t net;
		uint8_t prefix;
		bool want;
	} c[] = {
		{ 0x7f000001, 32, true },
		{ 0x7f000000, 8, true },
		{ 0x7e000000, 7, false },
		{ 0x00000000, 0, false },
		{ 0x00000001, 32, true },
		{ 0xac100000, 12, true },
		{ 0xac200000, 32, false },
		{ 0xac1fffff, 32, true },
		{ 0xa9fea9fe, 32, true },
		{ 0x647fffff, 32, true },
		{ 0x64800000, 32, false },
		{ 0xc0000001, 32, true },
		{ 0xc0000200, 24, false },
		{ 0xc0586301, 32, true },
		{ 0xc613ffff, 32, true },
		{ 0xc6140000, 32, false },
		{ 0xc6336400, 24, false },
		{ 0xcb007100, 24, false },
		{ 0xe0000000, 3, true },
		{ 0xf0000000, 4, true },
		{ 0xffffffff, 32, true },
		{ 0xdfffffff, 32, false },
	};
	const struct conf_env_range *r;
	size_t i, n;

	for (i = 0; i < sizeof(c) / sizeof(*c); i++)
		tap_ok(conf_env_protected(c[i].net, c[i].prefix) == c[i].want,
		    "%08x/%u", c[i].net, c[i].prefix);
	r = conf_env_ranges(&n);
	for (i = 0; i < n; i++)
		tap_ok(conf_env_protected(r[i].net, r[i].prefix), "itself");
}

/* More of each than may be. */
static void
test_many(void)
{
	static const struct {
		const char *begin, *each, *end;
		unsigned n;
		const char *want;
	} c[] = {
		{ "environment e { assets /a {", "k%u f; ", "} }" S, 65,
		    "too many assets; expected at most 64" },
		{ "environment e { ",
		    "process p%u { trust workload; command "
		    "/b; } ",
		    "}" S, 33, "too many of \"process\"; expected at most 32" },
		{ "environment e { ",
		    "inside 127.0.0.1:8%03u { location / { "
		    "health; } } ",
		    "}" S, 17, "too many of \"inside\"; expected at most 16" },
		{ "environment e { egress { ", "allow host h%u.x 1; ", "} }" S,
		    1001, "too many of \"allow\"; expected at most 1000" },
		{ "environment e { sandbox { ", "read_only /p%u; ", "} }" S, 65,
		    "too many paths in \"read_only\"; expected at most 64" },
	};
	struct buf text = BUF_INIT(1 << 20), err = BUF_INIT(1 << 16);
	struct conf *conf;
	char line[128];
	size_t i;
	unsigned j;
	int rc;

	for (i = 0; i < sizeof(c) / sizeof(*c); i++) {
		buf_clear(&text);
		buf_clear(&err);
		rc = buf_add_str(&text, c[i].begin);
		for (j = 0; j < c[i].n && rc == 0; j++) {
			const char *at = strchr(c[i].each, '%');
			const char *rest = strchr(at, 'u') + 1;

			snprintf(line, sizeof(line), "%03u", j);
			rc =
			    buf_add(&text, c[i].each, (size_t)(at - c[i].each));
			if (rc == 0)
				rc = buf_add_str(&text, line);
			if (rc == 0)
				rc = buf_add_str(&text, rest);
		}
		if (rc == 0)
			rc = buf_add_str(&text, c[i].end);
		if (rc == 0)
			rc = buf_add_char(&text, '\0');
		tap_is_int(rc, 0, "text");
		tap_is_int(conf_text_parse(buf_view(&text).p, &conf, &err),
		    SP_E_CONF, "too many");
		if (!tap_ok(view_search(buf_view(&err), view_str(c[i].want)) <
			    buf_len(&err),
			"%s", c[i].want))
			tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
	}
	buf_clear(&text);
	buf_clear(&err);
}

static void
test_memory(void)
{
	struct buf err = BUF_INIT(1 << 16), out = BUF_INIT(1 << 20);
	struct conf *c = NULL;
	unsigned long n;
	int rc = SP_E_NOMEM;

	for (n = 1; rc == SP_E_NOMEM && n < 100000; n++) {
		buf_clear(&err);
		mem_fail_after(n, 0);
		rc = conf_text_parse(full, &c, &err);
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, 0, "parses after failures");
	if (c == NULL)
		return;
	rc = SP_E_NOMEM;
	for (n = 1; rc == SP_E_NOMEM && n < 1000; n++) {
		buf_clear(&out);
		mem_fail_after(n, 0);
		rc = conf_dump(c, &out);
	}
	mem_fail_after(0, 0);
	tap_is_int(rc, 0, "dumps after failures");
	mem_fail_after(1, 0);
	tap_ok(!conf_env_same(c->environments[0], c->environments[0]),
	    "without memory nothing is the same");
	mem_fail_after(0, 0);
	conf_free(c);
	for (size_t i = 1; i < sizeof(cases) / sizeof(*cases); i++) {
		rc = SP_E_NOMEM;
		for (n = 1; rc == SP_E_NOMEM && n < 1000; n++) {
			buf_clear(&err);
			mem_fail_after(n, 0);
			rc = conf_text_parse(cases[i].text, &c, &err);
			mem_fail_after(0, 0);
			conf_free(c);
		}
		if (rc != (cases[i].want == NULL ? 0 : SP_E_CONF))
			tap_ok(false, "after failures: %s", cases[i].text);
	}
	tap_ok(true, "every case after failures");
	buf_clear(&err);
	buf_clear(&out);
}

/* Rules that another one has all of. */
static void
test_warnings(void)
{
#define RULES(r) E("egress {\n" r "}")
#define NONE "rule of \"egress\" has no effect: the one at "
#define END " allows all of it; remove one of them\n"
	conf_text_warned(RULES("allow tcp 203.0.113.0/24 443;\n"
			       "allow udp 203.0.113.0/25 443;\n"
			       "allow tcp 203.0.113.0/25 80;\n"
			       "allow tcp 198.51.100.0/24 443;\n"
			       "allow host a.example 443;\nallow host "
			       "b.example 443;\n"),
	    "");
	conf_text_warned(RULES("allow tcp 203.0.113.7 443;\n"
			       "allow tcp 203.0.113.0/24 80-8080;\n"
			       "allow tcp 203.0.113.0/24 *;\n"),
	    "t:2: " NONE "t:3" END "t:3: " NONE "t:4" END);
	conf_text_warned(RULES("allow tcp 0.0.0.0/0 443;\n"
			       "allow tcp 203.0.113.0/24 443;\n"),
	    "t:3: " NONE "t:2" END);
	conf_text_warned(
	    RULES("allow host *.example *;\nallow host example 443;\n"
		  "allow host a.example 443;\nallow host *.b.example 1;\n"
		  "allow host aexample 1;\n"),
	    "t:4: " NONE "t:2" END "t:5: " NONE "t:2" END);
}

int
main(void)
{
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		test_case(cases[i].text, cases[i].want);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (cases[i].want == NULL)
			test_round(cases[i].text);
	}
	test_values();
	test_warnings();
	test_defaults();
	test_protected();
	test_many();
	test_memory();
	return tap_done();
}
