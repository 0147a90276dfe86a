#include "config.h"

#include "os/cgroup.h"
#include "os/cgroup_ctl.h"

/* What a kernel does not tell stays as it is, with false. */
static bool
tell(int rc, int *worst)
{
	if (rc != SP_OK && rc != SP_E_NOTFOUND && rc != SP_E_UNSUPPORTED &&
	    *worst == SP_OK)
		*worst = rc;
	return rc == SP_OK;
}

static void
usage_cpu(const struct cgroup *g, struct cgroup_usage *u, int *worst)
{
	uint64_t ns = 0;

	/* v2 counts the time of every group, with or without its controller */
	if (g->fd[CGROUP_UNIFIED] >= 0)
		u->has_cpu = tell(cgroup_ctl_key(g->fd[CGROUP_UNIFIED],
				      "cpu.stat", "usage_usec", &u->cpu_us),
		    worst);
	if (u->has_cpu) {
		(void)tell(cgroup_ctl_key(g->fd[CGROUP_UNIFIED], "cpu.stat",
			       "user_usec", &u->user_us),
		    worst);
		(void)tell(cgroup_ctl_key(g->fd[CGROUP_UNIFIED], "cpu.stat",
			       "system_usec", &u->system_us),
		    worst);
	}
	if (u->has_cpu || g->fd[CGROUP_CPU] < 0 || !g->v1[CGROUP_CPU])
		return;
	/* where cpuacct is mounted with cpu */
	u->has_cpu =
	    tell(cgroup_ctl_u64(g->fd[CGROUP_CPU], "cpuacct.usage", &ns),
		worst);
	u->cpu_us = ns / 1000;
}

int
cgroup_oom_kills(const struct cgroup *g, uint64_t *n)
{
	return g->fd[CGROUP_MEMORY] < 0
	    ? SP_E_UNSUPPORTED
	    : cgroup_ctl_key(g->fd[CGROUP_MEMORY],
		  g->v1[CGROUP_MEMORY] ? "memory.oom_control" : "memory.events",
		  "oom_kill", n);
}

bool
cgroup_sockets_over(const struct cgroup *g)
{
	int dir = g->fd[CGROUP_MEMORY];
	uint64_t held = 0, memory = 0, sockets = 0;

	return dir >= 0 && g->v1[CGROUP_MEMORY] &&
	    cgroup_ctl_u64(dir, "memory.kmem.tcp.usage_in_bytes", &held) ==
	    SP_OK &&
	    held > 0 &&
	    cgroup_ctl_u64(dir, "memory.limit_in_bytes", &memory) == SP_OK &&
	    cgroup_ctl_u64(dir, "memory.kmem.tcp.limit_in_bytes", &sockets) ==
	    SP_OK &&
	    held > memory + sockets;
}

static void
usage_memory(const struct cgroup *g, struct cgroup_usage *u, int *worst)
{
	int dir = g->fd[CGROUP_MEMORY];
	bool v1 = g->v1[CGROUP_MEMORY];

	if (dir < 0)
		return;
	u->has_memory =
	    tell(cgroup_ctl_u64(dir,
		     v1 ? "memory.usage_in_bytes" : "memory.current",
		     &u->memory_bytes),
		worst);
	/* memory.peak is of Linux 5.19 */
	if (!tell(cgroup_ctl_u64(dir,
		      v1 ? "memory.max_usage_in_bytes" : "memory.peak",
		      &u->memory_peak_bytes),
		worst))
		u->memory_peak_bytes = u->memory_bytes;
	(void)tell(cgroup_oom_kills(g, &u->oom_kills), worst);
}

int
cgroup_usage(const struct cgroup *g, struct cgroup_usage *u)
{
	int worst = SP_OK;

	memset(u, 0, sizeof(*u));
	usage_cpu(g, u, &worst);
	usage_memory(g, u, &worst);
	if (g->fd[CGROUP_PIDS] >= 0)
		u->has_pids = tell(cgroup_ctl_u64(g->fd[CGROUP_PIDS],
				       "pids.current", &u->pids),
		    &worst);
	return worst;
}
