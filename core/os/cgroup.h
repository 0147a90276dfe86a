/* Control groups of both versions: a leaf for each sandbox. */
#ifndef SP_OS_CGROUP_H
#define SP_OS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Where each matter is taken care of.  On a unified host all are the v2
 * tree; on a hybrid one v2 kills and freezes, v1 bounds.  One tree that
 * serves several matters is opened once for each.
 */
enum cgroup_hierarchy {
	CGROUP_UNIFIED, /* kill, freeze, events */
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_CPU, /* v1: cpu,cpuacct */
	CGROUP_FREEZER, /* v1, only where v2 cannot freeze */
	CGROUP_HIERARCHIES,
};

/* Directories under which sandboxes get their leaves. */
struct cgroup_root {
	int fd[CGROUP_HIERARCHIES]; /* -1: not to be had */
	bool v1[CGROUP_HIERARCHIES];
	struct buf path[CGROUP_HIERARCHIES]; /* for messages */
};

/*
 * Finds the calling process's cgroups in all mounted hierarchies (of v2 the
 * top where that is better: cgroup_top_better()), makes beneath them (or
 * beneath `path`, relative to each hierarchy's mount) a
 * directory `sallyport` with leaves `self` (into which the caller moves, so
 * that controllers can be given to children) and `episodes`, which is what is
 * opened.
 * Source:  cgroups(7), the kernel's cgroup-v2 document, "no internal
 *          processes".
 * Context: helper, at start; blocks on the file system.
 * Parameters: path, NULL for auto; why, a line about each thing that is not
 *          to be had.
 * Owner:   cgroup_root_clear(), also after a failure.
 * Returns: 0, also when some are missing; SP_E_DENIED not writable;
 *          SP_E_NOTFOUND neither a v2 tree with cgroup.kill nor a v1 freezer;
 *          SP_E_*.
 */
int cgroup_root_open(struct cgroup_root *r, const char *path,
    struct buf *why) must_check;
/* Moves the process into the leaf `self` (the roles): v2 only. */
int cgroup_root_adopt(const struct cgroup_root *r, int pid) must_check;
void cgroup_root_clear(struct cgroup_root *r);

struct cgroup_limits {
	uint64_t memory_bytes, pids, cpu_milli; /* 0: no bound */
};

/* Whether a directory of control groups is one of a v1 hierarchy. */
bool cgroup_is_v1(int fd);

/* One leaf, in every hierarchy that there is. */
struct cgroup {
	int fd[CGROUP_HIERARCHIES]; /* -1: none */
	bool v1[CGROUP_HIERARCHIES];
	char name[65];
};

/*
 * Makes the leaf and sets its bounds: memory with group kill and without
 * swap (v1: what sockets hold apart), pids, cpu.
 * Context: keeper; blocks.
 * Parameters: parents, descriptors by hierarchy, borrowed.
 * Owner:   cgroup_close(); cgroup_remove() deletes it.
 * Returns: 0; SP_E_EXISTS it is there (of an earlier run: sweep it);
 *          SP_E_UNSUPPORTED a bound cannot be had, with *what; SP_E_*.
 */
int cgroup_make(struct cgroup *g, const int parents[CGROUP_HIERARCHIES],
    const bool v1[CGROUP_HIERARCHIES], const char *name,
    const struct cgroup_limits *limits, const char **what) must_check;
/* Opens one that is there: SP_E_NOTFOUND when it is in no hierarchy. */
int cgroup_open(struct cgroup *g, const int parents[CGROUP_HIERARCHIES],
    const bool v1[CGROUP_HIERARCHIES], const char *name) must_check;
void cgroup_close(struct cgroup *g);
/* The v2 directory for CLONE_INTO_CGROUP; v1 ones need cgroup_enter(). */
int cgroup_unified(const struct cgroup *g);
/*
 * Moves a process into the leaf's v1 hierarchies (and v2, if asked).
 * Parameters: pid, or 0: the caller, which has one thread.
 */
int cgroup_enter(const struct cgroup *g, int pid, bool unified) must_check;
/*
 * Kills everything in it; does not wait.  Without v2 (freezer): what is there
 * is frozen, killed one by one and thawed.
 */
int cgroup_kill(const struct cgroup *g) must_check;
/*
 * Waits until no process is left, by cgroup.events.
 * Returns: 0; SP_E_TIMEOUT with *left, the processes that are there.
 */
int cgroup_wait_empty(const struct cgroup *g, uint64_t timeout_ms,
    uint32_t *left) must_check;
/*
 * Freezes or thaws and waits for it: 0; SP_E_TIMEOUT; SP_E_*.  What could not
 * be frozen in time is thawed again.
 */
int cgroup_freeze(const struct cgroup *g, bool on,
    uint64_t timeout_ms) must_check;
/* Removes the leaf, and whatever nests in it, everywhere; retries while the
 * kernel says busy: 0; SP_E_TIMEOUT; SP_E_*.  One that is gone is fine. */
int cgroup_remove(const int parents[CGROUP_HIERARCHIES], const char *name,
    uint64_t timeout_ms) must_check;

/* Without its own group kill (v1) a caller that sees oom_kills kills all. */
struct cgroup_usage {
	uint64_t cpu_us, user_us, system_us; /* the parts 0: not told */
	uint64_t memory_bytes, memory_peak_bytes;
	uint64_t pids, oom_kills;
	bool has_cpu, has_memory, has_pids;
};
int cgroup_usage(const struct cgroup *g, struct cgroup_usage *u) must_check;
/*
 * The processes that were killed for want of memory, counted before they die:
 * 0; SP_E_UNSUPPORTED or SP_E_NOTFOUND, nobody counts them; SP_E_*.
 */
int cgroup_oom_kills(const struct cgroup *g, uint64_t *n) must_check;
/*
 * v1: TCP sockets hold more than memory and they may take together: true.
 * Source:  the kernel's mem_cgroup_charge_skmem(): what a socket must have is
 *          charged beyond memory.kmem.tcp.limit_in_bytes, which thus holds
 *          each socket back and not their sum.
 */
bool cgroup_sockets_over(const struct cgroup *g);
/* Process ids in it and in what nests in it, at most max; *n of them. */
int cgroup_processes(const struct cgroup *g, int *pids, size_t max,
    size_t *n) must_check;

#endif
