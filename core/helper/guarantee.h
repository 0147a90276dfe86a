/* What a sandbox of this host can be relied on for, and why. */
#ifndef SP_HELPER_GUARANTEE_H
#define SP_HELPER_GUARANTEE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "conf/conf_env.h"
#include "os/cgroup.h"

/* What was looked at, each on its own. */
enum guarantee_fact {
	GUARANTEE_ROOT, /* started as root */
	GUARANTEE_ROLES, /* reactor and recorder have users of their own */
	GUARANTEE_WALLS, /* the roles run under seccomp and Landlock */
	GUARANTEE_NAMESPACES,
	GUARANTEE_SECCOMP,
	GUARANTEE_LANDLOCK,
	GUARANTEE_KILL, /* cgroup.kill and cgroup.events */
	GUARANTEE_MEMORY,
	GUARANTEE_PIDS,
	GUARANTEE_CPU,
	GUARANTEE_NETNS, /* a namespace without a device */
	GUARANTEE_VETH, /* veth, nftables, NFLOG, forwarding */
	GUARANTEE_RELAY, /* nftables, NFLOG in the namespace */
	GUARANTEE_FACTS
};

struct guarantee {
	bool have[GUARANTEE_FACTS];
	/* by what means, or what is missing and the remedy; borrowed text */
	struct buf text[GUARANTEE_FACTS];
};

struct guarantee_world {
	bool privileged, roles_apart;
	const struct cgroup_root *cgroups; /* NULL: none to be had */
	struct view cgroups_why;
	bool wants_veth; /* some environment has rules through veth */
	bool wants_relay; /* or by relay */
};

/*
 * Looks at kernel and host.
 * Context: helper, at start and for -t; blocks.
 * Owner:   guarantee_clear(), also after a failure.
 * Returns: 0, whatever was found; SP_E_NOMEM.
 */
int guarantee_probe(struct guarantee *g,
    const struct guarantee_world *w) must_check;
void guarantee_clear(struct guarantee *g);
/*
 * Complains of each guarantee that the environment requires and that is not
 * to be had, with the missing prerequisite.
 * Returns: 0; SP_E_CONF.
 */
int guarantee_check(const struct guarantee *g,
    const struct conf_environment *env) must_check;
/* Whether its egress goes over a link: `via auto` does where the host can. */
bool guarantee_veth(const struct guarantee *g,
    const struct conf_environment *env) must_check;
/* The table: guarantee, required, provided, by what means; 0; SP_E_*. */
int guarantee_table(const struct guarantee *g,
    const struct conf_environment *env, struct buf *out) must_check;

#endif
