/* core/helper/guarantee.c: what an environment needs of what the host has. */
#include "config.h"

#include <string.h>

#include "helper/complain.h"
#include "helper/guarantee.h"
#include "tap.h"

static struct guarantee g;
static struct conf_environment env;

static void
check_is(int rc, const char *want, const char *what)
{
	struct buf said = BUF_INIT(4096);

	complain_copy(&said);
	tap_is_int(guarantee_check(&g, &env), rc, what);
	complain_copy(NULL);
	if (want != NULL)
		tap_ok(memmem(buf_view(&said).p, buf_len(&said), want,
			   strlen(want)) != NULL,
		    "%s", want);
	buf_clear(&said);
}

static void
table_has(const char *want)
{
	struct buf out = BUF_INIT(8192);

	tap_ok(guarantee_table(&g, &env, &out) == SP_OK &&
		memmem(buf_view(&out).p, buf_len(&out), want, strlen(want)) !=
		    NULL,
	    "%s", want);
	buf_clear(&out);
}

static void
test_ways(void)
{
	env.require = CONF_ENV_EGRESS_CONTROL;
	env.has_egress = true;
	g.have[GUARANTEE_VETH] = false;
	(void)!buf_add_str(&g.text[GUARANTEE_VETH], "no forwarding");
	env.via = CONF_ENV_VIA_VETH;
	check_is(SP_E_CONF, "no forwarding", "veth cannot be had");
	env.via = CONF_ENV_VIA_AUTO;
	check_is(SP_OK, NULL, "where the choice is ours it is the relay");
	tap_ok(!guarantee_veth(&g, &env), "which is taken");
	g.have[GUARANTEE_VETH] = true;
	tap_ok(guarantee_veth(&g, &env), "and not where the host forwards");
	g.have[GUARANTEE_VETH] = false;
	env.via = CONF_ENV_VIA_RELAY;
	check_is(SP_OK, NULL, "a relay needs none");
	env.has_egress = false;
	env.via = CONF_ENV_VIA_VETH;
	check_is(SP_OK, NULL, "nor do no rules");
	env.has_egress = true;
	g.have[GUARANTEE_ROOT] = false;
	env.via = CONF_ENV_VIA_AUTO;
	check_is(SP_OK, NULL, "nor an ordinary user");
	g.have[GUARANTEE_RELAY] = false;
	(void)!buf_add_str(&g.text[GUARANTEE_RELAY], "no nftables");
	check_is(SP_E_CONF, "no nftables", "whose way is the relay");
}

static void
test_cpu(void)
{
	env.require = CONF_ENV_RESOURCE_ISOLATION;
	env.cpu_milli = 500;
	table_has("memory, processes and processor time;");
	g.have[GUARANTEE_CPU] = false;
	(void)!buf_add_str(&g.text[GUARANTEE_CPU], "no cpu controller");
	check_is(SP_E_CONF, "no cpu controller", "a bound without its means");
	env.cpu_milli = 0;
	check_is(SP_OK, NULL, "no bound needs none");
	table_has("and not processor time (cpu off)");
}

/* What one has is not what another has. */
static void
test_means(void)
{
	env.has_egress = false;
	table_has("with no device but loopback");
	env.has_egress = true;
	env.via = CONF_ENV_VIA_RELAY;
	table_has("to the relay");
	env.via = CONF_ENV_VIA_VETH;
	table_has("a veth pair");
	env.assets = VIEW_NONE;
	table_has("it has no assets");
	env.assets = VIEW("/srv/assets");
	table_has("root's alone");
	env.worker = CONF_ENV_WORKER_NONE;
	table_has("no worker");
	env.worker = CONF_ENV_WORKER_STDIO;
	table_has("in sandboxes of their own");
	table_has("no door inside");
	env.insides_n = 1;
	table_has("only the doors inside");
	env.insides_n = 0;
}

int
main(void)
{
	size_t i;

	env.name = VIEW("box");
	env.pos.file = "box.conf";
	env.enforcement = CONF_ENV_ENFORCE_LINUX;
	for (i = 0; i < GUARANTEE_FACTS; i++) {
		g.have[i] = true;
		buf_init(&g.text[i], 1024);
	}
	test_means();
	test_ways();
	test_cpu();
	guarantee_clear(&g);
	return tap_done();
}
