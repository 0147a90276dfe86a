#include "config.h"

#include "gate/feed_source.h"
#include "gate/gate_priv.h"
#include "gate/inside.h"
#include "gate/relay_gate.h"

/*
 * An environment of live episodes is never changed by another generation, so
 * today's rules are those that the episode's network was made with.
 */
static const struct conf_environment *
relay_gate_rules(void *arg, const struct episode *ep)
{
	const struct gate *g = arg;

	return conf_env_find(gate_conf(g), view_str(ep->env));
}

static void
relay_gate_decided(void *arg, const struct episode *ep,
    const struct relay_decision *d)
{
	(void)arg;
	feed_source_relay(ep, d);
}

int
relay_gate_new(struct gate *g, struct relay **out)
{
	const struct relay_world w = {
		.loop = g->loop,
		.resolver = forward_resolver(g->current->forward),
		.metrics = g->metrics,
		.rules = relay_gate_rules,
		.decided = relay_gate_decided,
		.arg = g,
	};

	struct inside_hooks hooks = { .door = relay_door };
	int rc = relay_new(&w, out);

	if (rc != SP_OK)
		return rc;
	hooks.arg = *out;
	inside_set_hooks(g->inside, &hooks);
	return SP_OK;
}
