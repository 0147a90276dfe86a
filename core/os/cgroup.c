#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/mem.h"
#include "base/num.h"
#include "os/cgroup.h"
#include "os/cgroup_ctl.h"
#include "os/fd.h"

enum {
	CGROUP_V1_MAGIC = 0x27e0eb, /* CGROUP_SUPER_MAGIC */
	CGROUP_CPU_PERIOD_US = 100 * 1000,
	CGROUP_CPU_LEAST_US = 1000, /* the kernel's least quota */
	CGROUP_SOCKETS_PART = 4, /* of the memory */
	CGROUP_SOCKETS_MAX = 64 * 1024 * 1024,
	CGROUP_POLL_MS = 1000, /* looks again, event or not */
	CGROUP_STEP_MS = 10, /* between tries where there are no events */
	CGROUP_NEST_MAX = 10000, /* groups removed from one leaf */
	CGROUP_DEPTH_MAX = 64,
	CGROUP_KILL_ROUNDS = 64,
	CGROUP_PIDS_MAX = 65536, /* of one leaf, killed in one round */
};

bool
cgroup_is_v1(int fd)
{
	struct statfs sf;

	return fstatfs(fd, &sf) == 0 && sf.f_type == CGROUP_V1_MAGIC;
}

/* ---- making ------------------------------------------------------------- */

static bool
name_fits(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n < sizeof(((struct cgroup *)0)->name) &&
	    name[0] != '.' && strchr(name, '/') == NULL;
}

/* One tree may serve several matters: only its first descriptor counts. */
static bool
seen_before(const int parents[CGROUP_HIERARCHIES], int h)
{
	struct stat a, b;
	int i;

	if (fstat(parents[h], &a) != 0)
		return false;
	for (i = 0; i < h; i++)
		if (parents[i] >= 0 && fstat(parents[i], &b) == 0 &&
		    a.st_dev == b.st_dev && a.st_ino == b.st_ino)
			return true;
	return false;
}

static void
clear(struct cgroup *g, const char *name)
{
	int h;

	memset(g, 0, sizeof(*g));
	for (h = 0; h < CGROUP_HIERARCHIES; h++)
		g->fd[h] = -1;
	memcpy(g->name, name, strlen(name) + 1);
}

/*
 * Makes the directories.  Returns how many trees were gone through in *upto,
 * so that only what was made here is undone.
 */
static int
make_dirs(const int parents[CGROUP_HIERARCHIES], const char *name, int *upto)
{
	for (*upto = 0; *upto < CGROUP_HIERARCHIES; ++*upto) {
		if (parents[*upto] < 0 || seen_before(parents, *upto))
			continue;
		if (mkdirat(parents[*upto], name, 0755) != 0)
			return err_from_errno(errno);
		failpoint_reach("group.made");
	}
	return SP_OK;
}

static void
unmake_dirs(const int parents[CGROUP_HIERARCHIES], const char *name, int upto)
{
	int h;

	for (h = 0; h < upto; h++)
		if (parents[h] >= 0)
			(void)unlinkat(parents[h], name, AT_REMOVEDIR);
}

/* What was written is something that kernels may lack. */
static int
if_there(int rc)
{
	return rc == SP_E_NOTFOUND || rc == SP_E_UNSUPPORTED ? SP_OK : rc;
}

static int
write_if_there(int dir, const char *file, const char *text)
{
	return if_there(cgroup_ctl_write(dir, file, text));
}

/*
 * What sockets hold has a counter of its own (v2 counts it as memory), and
 * what it takes is taken from all of the host's sockets (net.ipv4.tcp_mem).
 * Past it they get slow, nobody is killed.
 */
static int
bound_sockets_v1(int dir, uint64_t memory)
{
	uint64_t bytes = memory / CGROUP_SOCKETS_PART;

	if (bytes > CGROUP_SOCKETS_MAX)
		bytes = CGROUP_SOCKETS_MAX;
	return if_there(
	    cgroup_ctl_write_u64(dir, "memory.kmem.tcp.limit_in_bytes", bytes));
}

static int
bound_memory_v1(int dir, uint64_t bytes)
{
	int rc;

	rc = cgroup_ctl_write_u64(dir, "memory.limit_in_bytes", bytes);
	if (rc != SP_OK)
		return rc;
	/* memory and swap together: no swap is left beyond the memory */
	rc = cgroup_ctl_write_u64(dir, "memory.memsw.limit_in_bytes", bytes);
	if (rc == SP_E_NOTFOUND || rc == SP_E_UNSUPPORTED)
		/* without swap accounting: as little as can be asked for */
		rc = write_if_there(dir, "memory.swappiness", "0");
	if (rc == SP_OK)
		rc = bound_sockets_v1(dir, bytes);
	return rc;
}

static int
bound_memory(const struct cgroup *g, uint64_t bytes)
{
	int dir = g->fd[CGROUP_MEMORY], rc;

	if (g->v1[CGROUP_MEMORY])
		return bound_memory_v1(dir, bytes);
	rc = cgroup_ctl_write_u64(dir, "memory.max", bytes);
	if (rc == SP_OK)
		rc = write_if_there(dir, "memory.swap.max", "0");
	if (rc == SP_OK)
		rc = cgroup_ctl_write(dir, "memory.oom.group", "1");
	return rc;
}

static int
bound_cpu(const struct cgroup *g, uint64_t milli)
{
	int dir = g->fd[CGROUP_CPU], rc;
	uint64_t quota;
	char text[64];

	if (milli > 1000ULL * 1000 * 1000)
		return SP_E_RANGE;
	quota = milli * CGROUP_CPU_PERIOD_US / 1000;
	if (quota < CGROUP_CPU_LEAST_US)
		quota = CGROUP_CPU_LEAST_US;
	if (!g->v1[CGROUP_CPU]) {
		(void)snprintf(text, sizeof(text), "%llu %d",
		    (unsigned long long)quota, CGROUP_CPU_PERIOD_US);
		return cgroup_ctl_write(dir, "cpu.max", text);
	}
	rc = cgroup_ctl_write_u64(dir, "cpu.cfs_period_us",
	    CGROUP_CPU_PERIOD_US);
	if (rc == SP_OK)
		rc = cgroup_ctl_write_u64(dir, "cpu.cfs_quota_us", quota);
	return rc;
}

static int
bound(const struct cgroup *g, const struct cgroup_limits *l, const char **what)
{
	int rc = SP_OK;

	*what = "memory";
	if (l->memory_bytes > 0)
		rc = g->fd[CGROUP_MEMORY] < 0
		    ? SP_E_UNSUPPORTED
		    : bound_memory(g, l->memory_bytes);
	if (rc != SP_OK)
		return rc;
	*what = "pids";
	if (l->pids > 0)
		rc = g->fd[CGROUP_PIDS] < 0
		    ? SP_E_UNSUPPORTED
		    : cgroup_ctl_write_u64(g->fd[CGROUP_PIDS], "pids.max",
			  l->pids);
	if (rc != SP_OK)
		return rc;
	*what = "cpu";
	if (l->cpu_milli > 0)
		rc = g->fd[CGROUP_CPU] < 0 ? SP_E_UNSUPPORTED
					   : bound_cpu(g, l->cpu_milli);
	return rc;
}

int
cgroup_make(struct cgroup *g, const int parents[CGROUP_HIERARCHIES],
    const bool v1[CGROUP_HIERARCHIES], const char *name,
    const struct cgroup_limits *limits, const char **what)
{
	int rc, upto = 0;

	clear(g, "");
	*what = "name";
	if (!name_fits(name))
		return SP_E_ARG;
	*what = "directory";
	rc = make_dirs(parents, name, &upto);
	if (rc == SP_OK)
		rc = cgroup_open(g, parents, v1, name);
	if (rc == SP_OK)
		rc = bound(g, limits, what);
	failpoint_reach("group.bounded");
	if (rc != SP_OK) {
		cgroup_close(g);
		unmake_dirs(parents, name, upto);
	}
	return rc;
}

int
cgroup_open(struct cgroup *g, const int parents[CGROUP_HIERARCHIES],
    const bool v1[CGROUP_HIERARCHIES], const char *name)
{
	int h, rc = SP_E_NOTFOUND;

	clear(g, "");
	if (!name_fits(name))
		return SP_E_ARG;
	clear(g, name);
	for (h = 0; h < CGROUP_HIERARCHIES; h++) {
		g->v1[h] = v1[h];
		if (parents[h] < 0)
			continue;
		g->fd[h] = openat(parents[h], name,
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (g->fd[h] >= 0) {
			rc = SP_OK;
		} else if (errno != ENOENT) {
			rc = err_from_errno(errno);
			cgroup_close(g);
			return rc;
		}
	}
	return rc;
}

void
cgroup_close(struct cgroup *g)
{
	int h;

	for (h = 0; h < CGROUP_HIERARCHIES; h++)
		fd_close(&g->fd[h]);
}

int
cgroup_unified(const struct cgroup *g)
{
	return g->fd[CGROUP_UNIFIED];
}

/*
 * The caller, written as 0, goes by v1's list of threads: a thread that moves
 * itself takes no lock over forks, where "cgroup.procs" makes each mover wait
 * for an RCU grace period of the whole machine, 10 to 30 ms.
 */
static int
enter_one(int dir, bool v1, int pid)
{
	const char *file = v1 && pid == 0 ? "tasks" : "cgroup.procs";

	return cgroup_ctl_write_u64(dir, file, (uint64_t)pid);
}

int
cgroup_enter(const struct cgroup *g, int pid, bool unified)
{
	int h, rc = SP_OK;

	if (pid < 0)
		return SP_E_ARG;
	for (h = 0; h < CGROUP_HIERARCHIES && rc == SP_OK; h++)
		if (g->fd[h] >= 0 && !seen_before(g->fd, h) &&
		    (g->v1[h] || unified))
			rc = enter_one(g->fd[h], g->v1[h], pid);
	return rc;
}

/* ---- what is in it ------------------------------------------------------ */

/* The tree in which every process of the sandbox is. */
static int
main_tree(const struct cgroup *g)
{
	return g->fd[CGROUP_UNIFIED] >= 0 ? g->fd[CGROUP_UNIFIED]
					  : g->fd[CGROUP_FREEZER];
}

/* The first group that nests in dir: 0, SP_E_NOTFOUND none. */
static int
first_child(int dir, char name[NAME_MAX + 1])
{
	struct dirent *e;
	int fd, rc = SP_E_NOTFOUND;
	DIR *d;

	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (d == NULL) {
		rc = err_from_errno(errno);
		fd_close(&fd);
		return rc;
	}
	while ((e = readdir(d)) != NULL) {
		if (e->d_type != DT_DIR || strcmp(e->d_name, ".") == 0 ||
		    strcmp(e->d_name, "..") == 0)
			continue;
		memcpy(name, e->d_name, strlen(e->d_name) + 1);
		rc = SP_OK;
		break;
	}
	(void)closedir(d);
	return rc;
}

struct pid_list {
	int *pids;
	size_t max, n;
};

/* Threads of other pid namespaces are shown as 0: not ours to name. */
static int
add_pids(int dir, struct pid_list *l)
{
	struct buf text = BUF_INIT(CGROUP_CTL_MAX);
	struct view rest, line;
	uint64_t pid;
	int rc;

	rc = cgroup_ctl_read(dir, "cgroup.procs", &text);
	rest = buf_view(&text);
	while (rc == SP_OK && l->n < l->max && view_split(&rest, '\n', &line))
		if (line.n > 0 && num_u64(line, 1, INT_MAX, &pid) == SP_OK)
			l->pids[l->n++] = (int)pid;
	buf_clear(&text);
	return rc;
}

/*
 * Walks the groups in dir, depth first, with a directory stream per level: a
 * sandbox has no way to make any, so what is here is shallow.
 */
static int
walk_pids(int dir, struct pid_list *l)
{
	DIR *stack[CGROUP_DEPTH_MAX];
	int depth = 0, fd, rc;
	struct dirent *e;

	rc = add_pids(dir, l);
	fd = rc == SP_OK ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			 : -1;
	while (rc == SP_OK) {
		if (fd >= 0) {
			stack[depth] = fdopendir(fd);
			if (stack[depth] == NULL) {
				rc = err_from_errno(errno);
				fd_close(&fd);
				break;
			}
			depth++;
			fd = -1;
		}
		if (depth == 0)
			break;
		e = readdir(stack[depth - 1]);
		if (e == NULL) {
			(void)closedir(stack[--depth]);
			continue;
		}
		if (e->d_type != DT_DIR || e->d_name[0] == '.' ||
		    depth == CGROUP_DEPTH_MAX)
			continue;
		fd = openat(dirfd(stack[depth - 1]), e->d_name,
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0)
			rc = add_pids(fd, l);
		if (rc == SP_E_NOTFOUND) /* it went away */
			rc = SP_OK;
	}
	fd_close(&fd);
	while (depth > 0)
		(void)closedir(stack[--depth]);
	return rc;
}

int
cgroup_processes(const struct cgroup *g, int *pids, size_t max, size_t *n)
{
	struct pid_list l = { pids, max, 0 };
	int rc;

	*n = 0;
	if (main_tree(g) < 0)
		return SP_E_UNSUPPORTED;
	rc = walk_pids(main_tree(g), &l);
	if (rc == SP_OK)
		*n = l.n;
	return rc;
}

/* ---- waiting ------------------------------------------------------------ */

static uint64_t
left_ms(uint64_t deadline_ms)
{
	uint64_t now = clock_ms();

	return now < deadline_ms ? deadline_ms - now : 0;
}

static void
nap(uint64_t ms, uint64_t deadline_ms)
{
	uint64_t left = left_ms(deadline_ms);

	(void)poll(NULL, 0, (int)(ms < left ? ms : left));
}

static uint64_t
deadline_in(uint64_t timeout_ms)
{
	uint64_t now = clock_ms();

	return timeout_ms < UINT64_MAX - now ? now + timeout_ms : UINT64_MAX;
}

/*
 * Waits until cgroup.events says key = want.  The kernel signals a change as
 * POLLPRI to whoever has read the file before.
 */
static int
wait_event(int dir, const char *key, uint64_t want, uint64_t deadline_ms)
{
	struct pollfd p = { -1, POLLPRI, 0 };
	uint64_t is = 0, ms;
	char text[512];
	ssize_t n;
	int rc;

	p.fd = openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (p.fd < 0)
		return err_from_errno(errno);
	for (;;) {
		n = pread(p.fd, text, sizeof(text), 0);
		rc = n < 0
		    ? err_from_errno(errno)
		    : cgroup_ctl_find(view_of(text, (size_t)n), key, &is);
		if (n < 0 && errno == ENODEV) /* removed meanwhile */
			is = want, rc = SP_OK;
		if (rc != SP_OK || is == want)
			break;
		ms = left_ms(deadline_ms);
		if (ms == 0) {
			rc = SP_E_TIMEOUT;
			break;
		}
		(void)poll(&p, 1,
		    (int)(ms < CGROUP_POLL_MS ? ms : CGROUP_POLL_MS));
	}
	fd_close(&p.fd);
	return rc;
}

static int
count(int dir, uint32_t *n)
{
	struct pid_list l = { NULL, CGROUP_PIDS_MAX, 0 };
	int rc;

	l.pids = mem_calloc(l.max, sizeof(l.pids[0]));
	if (l.pids == NULL)
		return SP_E_NOMEM;
	rc = walk_pids(dir, &l);
	mem_free(l.pids);
	*n = (uint32_t)l.n;
	return rc;
}

/* v1 tells nobody: the list is read again and again. */
static int
wait_gone(int dir, uint64_t deadline_ms)
{
	uint64_t step = 1;
	uint32_t n = 0;
	int rc;

	for (;;) {
		rc = count(dir, &n);
		if (rc != SP_OK || n == 0)
			return rc;
		if (left_ms(deadline_ms) == 0)
			return SP_E_TIMEOUT;
		nap(step, deadline_ms);
		if (step < CGROUP_STEP_MS)
			step *= 2;
	}
}

/*
 * A group that somebody else has removed: no file is left in it.  Only an
 * empty one can be removed, and nobody can get into it any more.
 */
static bool
is_removed(int dir)
{
	return faccessat(dir, "cgroup.procs", F_OK, 0) != 0 &&
	    (errno == ENOENT || errno == ENODEV);
}

int
cgroup_wait_empty(const struct cgroup *g, uint64_t timeout_ms, uint32_t *left)
{
	uint64_t deadline = deadline_in(timeout_ms);
	int rc;

	*left = 0;
	if (main_tree(g) < 0)
		return SP_E_UNSUPPORTED;
	if (g->fd[CGROUP_UNIFIED] >= 0)
		rc = wait_event(main_tree(g), "populated", 0, deadline);
	else
		rc = wait_gone(main_tree(g), deadline);
	if (rc != SP_OK && rc != SP_E_TIMEOUT && is_removed(main_tree(g)))
		return SP_OK;
	if (rc == SP_E_TIMEOUT) {
		/* it is said to be populated: at least one is */
		if (count(main_tree(g), left) != SP_OK || *left == 0)
			*left = 1;
	}
	return rc;
}

/* ---- killing and freezing ----------------------------------------------- */

static int
freeze_v1(int dir, bool on, uint64_t deadline_ms)
{
	const struct view want = on ? VIEW("FROZEN\n") : VIEW("THAWED\n");
	struct buf state = BUF_INIT(64);
	int rc;

	for (;;) {
		/* FREEZING must be asked for again: forks slip through */
		rc = cgroup_ctl_write(dir, "freezer.state",
		    on ? "FROZEN" : "THAWED");
		if (rc == SP_OK)
			rc = cgroup_ctl_read(dir, "freezer.state", &state);
		if (rc != SP_OK || view_eq(buf_view(&state), want))
			break;
		if (left_ms(deadline_ms) == 0) {
			rc = SP_E_TIMEOUT;
			break;
		}
		nap(CGROUP_STEP_MS, deadline_ms);
	}
	buf_clear(&state);
	return rc;
}

int
cgroup_freeze(const struct cgroup *g, bool on, uint64_t timeout_ms)
{
	uint64_t deadline = deadline_in(timeout_ms);
	int dir = main_tree(g), rc;

	if (dir < 0)
		return SP_E_UNSUPPORTED;
	if (g->fd[CGROUP_UNIFIED] < 0) {
		rc = freeze_v1(dir, on, deadline);
	} else {
		rc = cgroup_ctl_write(dir, "cgroup.freeze", on ? "1" : "0");
		if (rc == SP_OK)
			rc = wait_event(dir, "frozen", on ? 1 : 0, deadline);
	}
	if (rc == SP_E_TIMEOUT && on)
		(void)!cgroup_ctl_write(dir,
		    g->fd[CGROUP_UNIFIED] < 0 ? "freezer.state"
					      : "cgroup.freeze",
		    g->fd[CGROUP_UNIFIED] < 0 ? "THAWED" : "0");
	return rc;
}

/* One round of killing what is frozen, so that nothing forks meanwhile. */
static int
kill_listed(int dir, size_t *n)
{
	struct pid_list l = { NULL, CGROUP_PIDS_MAX, 0 };
	size_t i;
	int rc;

	l.pids = mem_calloc(l.max, sizeof(l.pids[0]));
	if (l.pids == NULL)
		return SP_E_NOMEM;
	rc = walk_pids(dir, &l);
	for (i = 0; i < l.n && rc == SP_OK; i++)
		/*
		 * The number was read of a group that is frozen or, at worst,
		 * thawed: an id of it can only be another's when the process
		 * was killed and reaped in between, which its parent, in the
		 * same group, does not do while it is frozen.
		 */
		if (kill(l.pids[i], SIGKILL) != 0 && errno != ESRCH)
			rc = err_from_errno(errno);
	mem_free(l.pids);
	*n = l.n;
	return rc;
}

/*
 * Without cgroup.kill.  v1 kills of frozen tasks take effect when they are
 * thawed; what forked before the freeze was complete is met in the next round.
 */
static int
kill_v1(int dir)
{
	size_t n = 1;
	int i, rc = SP_OK, frozen;

	for (i = 0; i < CGROUP_KILL_ROUNDS && rc == SP_OK && n > 0; i++) {
		frozen = freeze_v1(dir, true, deadline_in(CGROUP_STEP_MS * 10));
		if (frozen != SP_OK && frozen != SP_E_TIMEOUT)
			return frozen;
		rc = kill_listed(dir, &n);
		if (cgroup_ctl_write(dir, "freezer.state", "THAWED") != SP_OK &&
		    rc == SP_OK)
			rc = SP_E_SYS;
		if (frozen == SP_OK)
			break;
	}
	return rc;
}

int
cgroup_kill(const struct cgroup *g)
{
	int dir = main_tree(g), rc;

	if (dir < 0)
		return SP_E_UNSUPPORTED;
	rc = g->fd[CGROUP_UNIFIED] >= 0
	    ? cgroup_ctl_write(dir, "cgroup.kill", "1")
	    : kill_v1(dir);
	return rc != SP_OK && is_removed(dir) ? SP_OK : rc;
}

/* ---- removing ----------------------------------------------------------- */

/*
 * Removes one group without children in parent/name, the deepest of the first
 * ones: SP_E_NOTFOUND when parent/name is not there (any more).
 */
static int
remove_one(int parent, const char *name)
{
	char child[NAME_MAX + 1], below[NAME_MAX + 1];
	int dir, next, i, rc;

	dir = fcntl(parent, F_DUPFD_CLOEXEC, 3);
	if (dir < 0)
		return err_from_errno(errno);
	memcpy(child, name, strlen(name) + 1);
	for (i = 0; i < CGROUP_DEPTH_MAX; i++) {
		next = openat(dir, child,
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (next < 0) {
			rc = err_from_errno(errno);
			fd_close(&dir);
			return i > 0 && rc == SP_E_NOTFOUND ? SP_OK : rc;
		}
		rc = first_child(next, below);
		if (rc != SP_OK) {
			fd_close(&next);
			break;
		}
		fd_close(&dir);
		dir = next;
		memcpy(child, below, sizeof(child));
	}
	rc = unlinkat(dir, child, AT_REMOVEDIR) == 0 || errno == ENOENT
	    ? SP_OK
	    : err_from_errno(errno);
	fd_close(&dir);
	return rc;
}

/* rmdir may say busy for some time after the last process is gone. */
static int
remove_from(int parent, const char *name, uint64_t deadline_ms)
{
	uint64_t step = 1;
	int i = 0, rc;

	for (;;) {
		rc = remove_one(parent, name);
		if (rc == SP_E_NOTFOUND)
			return SP_OK;
		if (rc == SP_OK && ++i < CGROUP_NEST_MAX)
			continue;
		if (rc != SP_E_STATE)
			return rc == SP_OK ? SP_E_LIMIT : rc;
		if (left_ms(deadline_ms) == 0)
			return SP_E_TIMEOUT;
		nap(step, deadline_ms);
		if (step < CGROUP_STEP_MS * 5)
			step *= 2;
	}
}

int
cgroup_remove(const int parents[CGROUP_HIERARCHIES], const char *name,
    uint64_t timeout_ms)
{
	uint64_t deadline = deadline_in(timeout_ms);
	int h, one, rc = SP_OK;

	if (!name_fits(name))
		return SP_E_ARG;
	for (h = 0; h < CGROUP_HIERARCHIES; h++) {
		if (parents[h] < 0 || seen_before(parents, h))
			continue;
		one = remove_from(parents[h], name, deadline);
		failpoint_reach("group.removed");
		if (rc == SP_OK)
			rc = one;
	}
	return rc;
}
