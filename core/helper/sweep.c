#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/mem.h"
#include "base/num.h"
#include "helper/job.h"
#include "helper/netns.h"
#include "helper/sweep.h"
#include "ipc/sandbox_msg.h"
#include "os/fd.h"
#include "os/tree.h"

enum { SWEEP_SPARE_MS = 10 * 1000 }; /* over what its parts may take */

static const char *const sweep_sides[SANDBOX_SIDES] = {
	[SANDBOX_AGENT] = "agent",
	[SANDBOX_WORKER] = "worker",
	[SANDBOX_ORACLE] = "oracle",
};

void
sweep_leaf(uint32_t slot, unsigned side, char out[65])
{
	const char *name = side < SANDBOX_SIDES ? sweep_sides[side] : NULL;

	(void)snprintf(out, 65, "slot-%" PRIu32 "-%s", slot,
	    name != NULL ? name : "x");
}

/* The number in "slot-N-side" when it is one of those. */
static bool
sweep_number(const char *name, uint32_t first, uint32_t n, uint32_t *slot)
{
	struct view v = view_str(name), number;
	uint64_t value;

	if (!view_starts(v, VIEW("slot-")))
		return false;
	v = view_from(v, 5);
	number = view_sub(v, 0, view_find(v, '-'));
	if (num_u64(number, first, (uint64_t)first + n - 1, &value) != SP_OK)
		return false;
	*slot = (uint32_t)value;
	return true;
}

static int
sweep_find_in(int tree, uint32_t first, uint32_t n,
    int (*found)(void *arg, uint32_t slot), void *arg)
{
	int fd = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *d;
	uint32_t slot;
	int rc = SP_OK;
	DIR *dir;

	dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		rc = err_from_errno(errno);
		fd_close(&fd);
		return rc;
	}
	while (rc == SP_OK && (d = readdir(dir)) != NULL)
		if (sweep_number(d->d_name, first, n, &slot))
			rc = found(arg, slot);
	(void)closedir(dir);
	return rc;
}

int
sweep_find(const int cgroups[CGROUP_HIERARCHIES], uint32_t first, uint32_t n,
    int (*found)(void *arg, uint32_t slot), void *arg)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < CGROUP_HIERARCHIES && rc == SP_OK; i++)
		if (cgroups[i] >= 0)
			rc = sweep_find_in(cgroups[i], first, n, found, arg);
	return rc;
}

static void
sweep_say(struct buf *why, const char *what, int rc)
{
	(void)!buf_printf(why, "%s%s: %s", buf_len(why) > 0 ? "; " : "", what,
	    err_str(rc));
}

static int
sweep_cgroup(const struct sweep *sw, unsigned side, struct buf *why)
{
	struct cgroup g;
	char leaf[65];
	uint32_t left = 0;
	int rc;

	sweep_leaf(sw->slot, side, leaf);
	rc = cgroup_open(&g, sw->cgroups, sw->cgroups_v1, leaf);
	if (rc == SP_E_NOTFOUND)
		return SP_OK;
	if (rc == SP_OK) {
		rc = cgroup_kill(&g);
		if (rc == SP_OK)
			rc = cgroup_wait_empty(&g, sw->timeout_ms, &left);
		cgroup_close(&g);
	}
	/*
	 * Half made, or half removed: without the part that kills nothing was
	 * put in yet, or nothing is left; if it is not so, it stays busy.
	 */
	if (rc == SP_E_UNSUPPORTED)
		rc = SP_OK;
	if (rc == SP_OK)
		rc = cgroup_remove(sw->cgroups, leaf, sw->timeout_ms);
	if (rc == SP_E_TIMEOUT && left > 0)
		(void)!buf_printf(why,
		    "%scgroup %s: %" PRIu32 " processes do not die",
		    buf_len(why) > 0 ? "; " : "", leaf, left);
	else if (rc != SP_OK)
		sweep_say(why, leaf, rc);
	return rc;
}

static int
sweep_disk(const struct sweep *sw, struct buf *why)
{
	char name[32];
	int rc;

	if (sw->disk_fd < 0)
		return SP_OK;
	(void)snprintf(name, sizeof(name), "slot-%" PRIu32, sw->slot);
	rc = tree_remove_at(sw->disk_fd, name, clock_ms() + sw->timeout_ms);
	if (rc != SP_OK)
		sweep_say(why, name, rc);
	return rc;
}

int
sweep_run(const struct sweep *sw, struct buf *why)
{
	struct netns_plan plan;
	unsigned side;
	int rc = SP_OK, one;

	if (sw->side != 0)
		return sweep_cgroup(sw, sw->side, why);
	for (side = SANDBOX_AGENT; side < SANDBOX_SIDES; side++) {
		one = sweep_cgroup(sw, side, why);
		failpoint_reach("sweep.group");
		if (rc == SP_OK)
			rc = one;
	}
	/* whoever might still send is dead: now its way out may go */
	if (sw->has_net) {
		netns_plan(&plan, sw->slot, 0, NULL, true);
		one = netns_cut(&plan, why);
		if (rc == SP_OK)
			rc = one;
	}
	failpoint_reach("sweep.network");
	one = sweep_disk(sw, why);
	failpoint_reach("sweep.disk");
	return rc == SP_OK ? one : rc;
}

struct sweep_job {
	struct job *job;
	struct sweep sw;
	void (*done)(void *arg, int rc, struct view why);
	void *arg;
};

static int
sweep_work(void *arg, struct buf *why)
{
	const struct sweep_job *j = arg;

	return sweep_run(&j->sw, why);
}

static void
sweep_done(void *arg, int rc, struct view why)
{
	struct sweep_job *j = arg;
	void (*done)(void *arg, int rc, struct view why) = j->done;
	void *to = j->arg;

	mem_free(j);
	done(to, rc, why);
}

struct sweep_job *
sweep_start(struct poller *p, const struct sweep *sw,
    void (*done)(void *arg, int rc, struct view why), void *arg)
{
	struct sweep_job *j = mem_calloc(1, sizeof(*j));
	int keep[CGROUP_HIERARCHIES + 1];
	struct job_plan plan = {
		/* each side's leaf waits twice, the files once */
		.timeout_ms = sw->timeout_ms * 7 + SWEEP_SPARE_MS,
		.work = sweep_work,
		.done = sweep_done,
		.arg = j,
		.keep = keep,
		.keep_n = CGROUP_HIERARCHIES + 1,
	};
	size_t i;

	if (j == NULL)
		return NULL;
	for (i = 0; i < CGROUP_HIERARCHIES; i++)
		keep[i] = sw->cgroups[i];
	keep[i] = sw->disk_fd;
	j->sw = *sw;
	j->done = done;
	j->arg = arg;
	j->job = job_start(p, &plan);
	if (j->job == NULL) {
		mem_free(j);
		return NULL;
	}
	return j;
}

void
sweep_job_drop(struct sweep_job *j)
{
	if (j == NULL)
		return;
	job_drop(j->job);
	mem_free(j);
}
