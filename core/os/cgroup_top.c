#include "config.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"
#include "os/cgroup_ctl.h"
#include "os/cgroup_top.h"
#include "os/fd.h"

enum { TOP_DEPTH_MAX = 64, TOP_TEXT_MAX = 4096 };

static const char *const wanted[] = { "memory", "pids", "cpu" };
static const char *const bounds[] = { "memory.max", "memory.high", "cpu.max" };

/* A bound of this one group; the top of all has no such files. */
static bool
is_bounded(int dir)
{
	struct buf text = BUF_INIT(TOP_TEXT_MAX);
	bool bounded = false;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]) && !bounded; i++) {
		rc = cgroup_ctl_read(dir, bounds[i], &text);
		bounded = rc == SP_OK
		    ? !view_starts(buf_view(&text), VIEW("max"))
		    : rc != SP_E_NOTFOUND;
	}
	buf_clear(&text);
	return bounded;
}

/* Beneath the top, and nothing on the way bounds it. */
static bool
is_free(int base, int top)
{
	int fd = fcntl(base, F_DUPFD_CLOEXEC, 3), up, i;
	bool is_top = false, bounded = false;
	struct stat is, want;

	if (fstat(top, &want) != 0)
		is_top = bounded = true;
	for (i = 0; i < TOP_DEPTH_MAX && fd >= 0 && !is_top && !bounded; i++) {
		is_top = fstat(fd, &is) != 0 ||
		    (is.st_dev == want.st_dev && is.st_ino == want.st_ino);
		if (is_top)
			break;
		bounded = is_bounded(fd);
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd_close(&fd);
		fd = up;
	}
	fd_close(&fd);
	/* at once at the top there is nothing to gain */
	return is_top && !bounded && i > 0;
}

static bool
is_shared(int base)
{
	struct buf text = BUF_INIT(CGROUP_CTL_MAX);
	struct view rest, line;
	bool shared = false;
	uint64_t pid;

	if (cgroup_ctl_read(base, "cgroup.procs", &text) == SP_OK) {
		rest = buf_view(&text);
		while (!shared && view_split(&rest, '\n', &line))
			shared = line.n > 0 &&
			    (num_u64(line, 0, INT_MAX, &pid) != SP_OK ||
				pid != (uint64_t)getpid());
	}
	buf_clear(&text);
	return shared;
}

bool
cgroup_top_better(int base, int top)
{
	struct buf have = BUF_INIT(TOP_TEXT_MAX), most = BUF_INIT(TOP_TEXT_MAX);
	unsigned bounds_n = 0, lacks_n = 0;
	bool better = false;
	size_t i;

	if (cgroup_ctl_read(base, "cgroup.controllers", &have) != SP_OK ||
	    cgroup_ctl_read(top, "cgroup.controllers", &most) != SP_OK)
		goto out;
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (!cgroup_ctl_word(buf_view(&most), wanted[i]))
			continue;
		bounds_n++;
		if (!cgroup_ctl_word(buf_view(&have), wanted[i]))
			lacks_n++;
	}
	/* on a hybrid host v1 bounds, and this tree need not */
	better = bounds_n > 0 && (lacks_n > 0 || is_shared(base)) &&
	    is_free(base, top);
out:
	buf_clear(&have);
	buf_clear(&most);
	return better;
}
