/* What the kernel's texts and files say, on trees that are made up. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/cgroup.h"
#include "os/cgroup_ctl.h"
#include "os/cgroup_find.h"
#include "os/cgroup_top.h"
#include "os/fd.h"
#include "tap.h"

static char top[] = "/tmp/test_cgroup.XXXXXX";

static const char hybrid_self[] = "9:name=systemd:/\n"
				  "8:pids:/a b:c\n"
				  "4:memory:/process/2c22\n"
				  "2:cpu,cpuacct:/x\n"
				  "0::/user.slice/s (deleted)\n";
static const char hybrid_mounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "
    "rw,cpu,cpuacct\n"
    "35 31 0:32 /process /mnt/with\\040space\\134 rw shared:1 master:2 - "
    "cgroup cgroup rw,memory\n"
    "36 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "short line\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

static void
find(const char *controller, const char *want)
{
	struct buf out = BUF_INIT(4096);
	struct view group = VIEW_NONE;
	int rc;

	rc = cgroup_find_group(view_str(hybrid_self), controller, &group);
	if (rc == SP_OK)
		rc = cgroup_find_mount(view_str(hybrid_mounts), controller,
		    group, &out);
	if (want == NULL)
		tap_is_int(rc, SP_E_NOTFOUND, controller);
	else if (tap_is_int(rc, SP_OK, controller ? controller : "v2"))
		tap_is_mem(buf_view(&out).p, buf_len(&out), want, strlen(want),
		    want);
	buf_clear(&out);
}

static void
test_find(void)
{
	struct buf out = BUF_INIT(4096), tiny = BUF_INIT(4);
	struct view group;

	find("memory", "/mnt/with space\\/2c22");
	find("pids", "/sys/fs/cgroup/pids/a b:c");
	find("cpu", "/sys/fs/cgroup/cpu,cpuacct/x");
	find("cpuacct", "/sys/fs/cgroup/cpu,cpuacct/x");
	find(NULL, "/sys/fs/cgroup/unified/user.slice/s (deleted)");
	find("freezer", NULL);
	tap_is_int(cgroup_find_group(VIEW("0::\n0:x:/y\n:\n\n0"), NULL, &group),
	    SP_E_NOTFOUND, "lines that are none");
	tap_is_int(cgroup_find_mount(view_str(hybrid_mounts), "memory",
		       VIEW_NONE, &out),
	    SP_OK, "the mount itself");
	tap_is_mem(buf_view(&out).p, buf_len(&out), "/mnt/with space\\", 16,
	    "is the first one");
	buf_reset(&out, 0);
	tap_is_int(cgroup_find_mount(view_str(hybrid_mounts), "memory",
		       VIEW("/processes"), &out),
	    SP_OK, "a name is no prefix");
	tap_is_mem(buf_view(&out).p, buf_len(&out),
	    "/sys/fs/cgroup/memory/processes", 31, "the mount that shows it");
	buf_reset(&out, 0);
	tap_is_int(cgroup_find_mount(VIEW("1 2 0:1 /in /m rw - cgroup2 c rw"),
		       NULL, VIEW("/../other"), &out),
	    SP_E_NOTFOUND, "a group outside of the namespace");
	tap_is_int(cgroup_find_mount(VIEW("1 2 0:1 /in /m rw - cgroup2 c rw"),
		       NULL, VIEW("/in"), &out),
	    SP_OK, "a mount of the group itself");
	tap_is_mem(buf_view(&out).p, buf_len(&out), "/m", 2, "is its point");
	tap_is_int(cgroup_find_mount(view_str(hybrid_mounts), "pids", VIEW("/"),
		       &tiny),
	    SP_E_LIMIT, "a path without room");
	tap_is_int((int)buf_len(&tiny), 0, "leaves nothing");
	mem_fail_after(1, 0);
	buf_clear(&out);
	tap_is_int(cgroup_find_mount(view_str(hybrid_mounts), "pids", VIEW("/"),
		       &out),
	    SP_E_NOMEM, "no memory");
	mem_fail_after(0, 0);
	buf_clear(&out);
	buf_clear(&tiny);
}

/* ---- groups as plain files ---------------------------------------------- */

static void
file(int dir, const char *name, const char *text)
{
	int fd =
	    openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	(void)!write(fd, text, strlen(text));
	close(fd);
}

static void
is_file(int dir, const char *name, const char *want)
{
	struct buf text = BUF_INIT(4096);

	if (tap_is_int(cgroup_ctl_read(dir, name, &text), SP_OK, name))
		tap_is_mem(buf_view(&text).p, buf_len(&text), want,
		    strlen(want), want);
	buf_clear(&text);
}

static int
sub(int dir, const char *name)
{
	int fd = -1;

	if (cgroup_ctl_dir(dir, name, &fd) != SP_OK)
		exit(1);
	return fd;
}

static void
test_ctl(int dir)
{
	uint64_t v = 0;
	int fd = -1;

	file(dir, "num", "42\n");
	tap_is_int(cgroup_ctl_u64(dir, "num", &v), SP_OK, "a number");
	tap_is_int((long long)v, 42, "is read");
	file(dir, "num", "max\n");
	tap_ok(cgroup_ctl_u64(dir, "num", &v) == SP_OK && v == UINT64_MAX,
	    "max");
	file(dir, "num", "-1\n");
	tap_is_int(cgroup_ctl_u64(dir, "num", &v), SP_E_SYNTAX, "no number");
	tap_is_int(cgroup_ctl_u64(dir, "none", &v), SP_E_NOTFOUND, "no file");
	tap_is_int(cgroup_ctl_write(dir, "none", "1"), SP_E_NOTFOUND,
	    "nor one to write");
	file(dir, "keys", "low 0\noom 3\noom_kill 18446744073709551615\n");
	tap_ok(cgroup_ctl_key(dir, "keys", "oom", &v) == SP_OK && v == 3,
	    "a key");
	tap_ok(cgroup_ctl_key(dir, "keys", "oom_kill", &v) == SP_OK &&
		v == UINT64_MAX,
	    "a longer one");
	tap_is_int(cgroup_ctl_key(dir, "keys", "oo", &v), SP_E_NOTFOUND,
	    "a part of one");
	tap_ok(cgroup_ctl_word(VIEW("cpuset cpu\npids"), "pids") &&
		cgroup_ctl_word(VIEW("cpuset cpu\n"), "cpu") &&
		!cgroup_ctl_word(VIEW("cpuset\n"), "cpu"),
	    "words");
	tap_is_int(cgroup_ctl_dir(dir, "num", &fd), SP_E_SYS,
	    "a file is no directory");
}

struct fake {
	int parents[CGROUP_HIERARCHIES];
	bool v1[CGROUP_HIERARCHIES];
};

static void
fill_leaf(int leaf)
{
	static const char *const names[] = { "cgroup.procs", "memory.max",
		"memory.oom.group", "pids.max", "cpu.max", "cpu.cfs_quota_us",
		"cpu.cfs_period_us", "memory.limit_in_bytes",
		"memory.memsw.limit_in_bytes" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		file(leaf, names[i], "");
	file(leaf, "cpu.stat", "usage_usec 77\nuser_usec 1\n");
	file(leaf, "memory.current", "4096\n");
	file(leaf, "memory.usage_in_bytes", "8192\n");
	file(leaf, "memory.max_usage_in_bytes", "9000\n");
	file(leaf, "memory.oom_control",
	    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
	file(leaf, "memory.events", "oom 4\noom_kill 5\n");
	file(leaf, "pids.current", "3\n");
	file(leaf, "cpuacct.usage", "5000000\n");
}

static void
test_usage(int dir)
{
	struct fake f = { { dir, dir, dir, dir, -1 }, { 0 } };
	struct cgroup_usage u;
	struct cgroup g;
	int leaf = sub(dir, "leaf"), pids[4];
	size_t n;

	fill_leaf(leaf);
	tap_is_int(cgroup_open(&g, f.parents, f.v1, "nothing"), SP_E_NOTFOUND,
	    "no such leaf");
	tap_is_int(cgroup_open(&g, f.parents, f.v1, "leaf"), SP_OK, "one");
	tap_is_int(cgroup_usage(&g, &u), SP_OK, "usage of v2");
	tap_ok(u.has_cpu && u.cpu_us == 77 && u.has_memory &&
		u.memory_bytes == 4096 && u.memory_peak_bytes == 4096 &&
		u.has_pids && u.pids == 3 && u.oom_kills == 5,
	    "is told");
	tap_ok(cgroup_unified(&g) == g.fd[CGROUP_UNIFIED], "the unified one");
	file(leaf, "cgroup.procs", "12\n0\nx\n13\n\n14\n");
	tap_ok(cgroup_processes(&g, pids, 4, &n) == SP_OK && n == 3 &&
		pids[0] == 12 && pids[2] == 14,
	    "processes");
	tap_ok(cgroup_processes(&g, pids, 2, &n) == SP_OK && n == 2,
	    "at most so many");
	mem_fail_after(1, 0);
	tap_is_int(cgroup_processes(&g, pids, 2, &n), SP_E_NOMEM, "no memory");
	mem_fail_after(0, 0);
	file(leaf, "memory.current", "much\n");
	tap_is_int(cgroup_usage(&g, &u), SP_E_SYNTAX, "a broken file");
	tap_ok(u.has_pids && !u.has_memory, "does not hide the others");
	cgroup_close(&g);
	f.parents[CGROUP_UNIFIED] = -1;
	f.v1[CGROUP_MEMORY] = f.v1[CGROUP_CPU] = f.v1[CGROUP_PIDS] = true;
	tap_is_int(cgroup_open(&g, f.parents, f.v1, "leaf"), SP_OK, "v1");
	tap_is_int(cgroup_usage(&g, &u), SP_OK, "usage of v1");
	tap_ok(u.cpu_us == 5000 && u.memory_bytes == 8192 &&
		u.memory_peak_bytes == 9000 && u.oom_kills == 2,
	    "is told");
	tap_is_int(cgroup_processes(&g, pids, 4, &n), SP_E_UNSUPPORTED,
	    "without a tree that holds all");
	tap_is_int(cgroup_kill(&g), SP_E_UNSUPPORTED, "nothing to kill by");
	tap_is_int(cgroup_freeze(&g, true, 1), SP_E_UNSUPPORTED,
	    "nor to freeze by");
	cgroup_close(&g);
	close(leaf);
}

static void
test_enter_and_names(int dir)
{
	struct fake f = { { dir, dir, -1, -1, -1 }, { 0 } };
	static const struct cgroup_limits none, all = { 1, 1, 1 };
	const char *what,
	    *long_name = "1234567890123456789012345678901234"
			 "56789012345678901234567890123456";
	int leaf = sub(dir, "leaf");
	struct cgroup g;

	fill_leaf(leaf);
	tap_is_int(cgroup_make(&g, f.parents, f.v1, "leaf", &none, &what),
	    SP_E_EXISTS, "a leaf of an earlier run");
	tap_ok(faccessat(dir, "leaf/pids.max", F_OK, 0) == 0, "is left alone");
	tap_is_int(cgroup_make(&g, f.parents, f.v1, "../x", &none, &what),
	    SP_E_ARG, "not a path");
	tap_is_int(cgroup_make(&g, f.parents, f.v1, ".x", &none, &what),
	    SP_E_ARG, "not hidden");
	tap_is_int(cgroup_make(&g, f.parents, f.v1, long_name, &none, &what),
	    SP_E_ARG, "not too long");
	tap_is_int(cgroup_remove(f.parents, "", 1), SP_E_ARG, "not empty");
	tap_is_int(cgroup_make(&g, f.parents, f.v1, "new", &all, &what),
	    SP_E_NOTFOUND, "a bound without its file");
	tap_is_str(what, "memory", "is named");
	tap_ok(faccessat(dir, "new", F_OK, 0) != 0, "and undone");
	f.parents[CGROUP_MEMORY] = -1;
	tap_is_int(cgroup_make(&g, f.parents, f.v1, "new", &all, &what),
	    SP_E_UNSUPPORTED, "a bound without its tree");
	tap_ok(faccessat(dir, "new", F_OK, 0) != 0, "is undone as well");
	f.v1[CGROUP_MEMORY] = true;
	f.parents[CGROUP_MEMORY] = dir;
	tap_is_int(cgroup_open(&g, f.parents, f.v1, "leaf"), SP_OK, "open");
	tap_is_int(cgroup_enter(&g, -1, true), SP_E_ARG, "no process");
	tap_is_int(cgroup_enter(&g, 17, true), SP_OK, "entered");
	is_file(leaf, "cgroup.procs", "17");
	cgroup_close(&g);
	f.parents[CGROUP_UNIFIED] = -1;
	file(leaf, "tasks", "");
	tap_is_int(cgroup_open(&g, f.parents, f.v1, "leaf"), SP_OK, "v1");
	tap_is_int(cgroup_enter(&g, 0, false), SP_OK, "entered by itself");
	is_file(leaf, "tasks", "0");
	is_file(leaf, "cgroup.procs", "17");
	cgroup_close(&g);
	close(leaf);
}

static void
test_events(int dir)
{
	struct fake f = { { dir, -1, -1, -1, -1 }, { 0 } };
	int leaf = sub(dir, "leaf");
	struct cgroup g;
	uint32_t left;

	tap_is_int(cgroup_open(&g, f.parents, f.v1, "leaf"), SP_OK, "open");
	file(leaf, "cgroup.events", "populated 1\nfrozen 0\n");
	file(leaf, "cgroup.procs", "1\n2\n");
	file(leaf, "cgroup.freeze", "");
	tap_is_int(cgroup_wait_empty(&g, 5, &left), SP_E_TIMEOUT, "not empty");
	tap_is_int(left, 2, "who is left");
	tap_is_int(cgroup_freeze(&g, true, 5), SP_E_TIMEOUT, "not frozen");
	is_file(leaf, "cgroup.freeze", "0");
	file(leaf, "cgroup.events", "populated 0\nfrozen 1\n");
	tap_is_int(cgroup_freeze(&g, true, 5), SP_OK, "frozen");
	tap_is_int(cgroup_wait_empty(&g, 5, &left), SP_OK, "empty");
	file(leaf, "cgroup.events", "nonsense\n");
	tap_is_int(cgroup_wait_empty(&g, 5, &left), SP_E_NOTFOUND,
	    "events without the key");
	/* what somebody else removed has no file any more */
	(void)unlinkat(leaf, "cgroup.events", 0);
	tap_is_int(cgroup_wait_empty(&g, 5, &left), SP_E_NOTFOUND,
	    "a group without events");
	tap_is_int(cgroup_kill(&g), SP_E_NOTFOUND, "nor a way to kill");
	(void)unlinkat(leaf, "cgroup.procs", 0);
	tap_is_int(cgroup_wait_empty(&g, 5, &left), SP_OK,
	    "a removed one is empty");
	tap_is_int(cgroup_kill(&g), SP_OK, "all of a removed one is dead");
	cgroup_close(&g);
	close(leaf);
}

static void
test_root_errors(void)
{
	struct cgroup_root r;
	struct buf why = BUF_INIT(4096);
	unsigned long n;
	int rc;

	/* every allocation fails once; the path does not exist for long */
	for (n = 1; n < 40; n++) {
		mem_fail_after(n, 0);
		rc = cgroup_root_open(&r, "../escape", &why);
		mem_fail_after(0, 0);
		cgroup_root_clear(&r);
		if (rc != SP_E_NOMEM)
			break;
	}
	tap_ok(rc != SP_OK, "a path with .. is none");
	tap_ok(n < 40, "and no allocation is missed");
	cgroup_root_clear(&r);
	buf_clear(&why);
}

/* ---- where groups are made ------------------------------------------------ */

static void
test_top(int dir)
{
	int all, slice, scope;
	char self[32];

	all = sub(dir, "all");
	slice = sub(all, "slice");
	scope = sub(slice, "scope");
	tap_ok(!cgroup_top_better(scope, all), "not a control group");
	(void)snprintf(self, sizeof(self), "%d\n", (int)getpid());
	file(all, "cgroup.controllers", "cpuset cpu memory pids\n");
	file(scope, "cgroup.controllers", "cpu memory pids\n");
	file(scope, "cgroup.procs", self);
	tap_ok(!cgroup_top_better(scope, all), "a group of its own is kept");
	file(scope, "cgroup.procs", "0\n");
	tap_ok(cgroup_top_better(scope, all), "of another namespace");
	file(scope, "cgroup.procs", "1\n");
	tap_ok(cgroup_top_better(scope, all),
	    "one with a login's shell is not");
	tap_ok(!cgroup_top_better(all, all), "the top itself");
	tap_ok(!cgroup_top_better(all, scope), "the wrong way round");
	file(slice, "memory.max", "max\n");
	file(slice, "cpu.max", "max 100000\n");
	tap_ok(cgroup_top_better(scope, all), "no bound on the way");
	file(slice, "cpu.max", "50000 100000\n");
	tap_ok(!cgroup_top_better(scope, all), "no way out of a bound");
	file(slice, "cpu.max", "max 100000\n");
	file(scope, "memory.high", "1073741824\n");
	tap_ok(!cgroup_top_better(scope, all), "nor of its own");
	file(scope, "memory.high", "max\n");
	file(scope, "cgroup.procs", self);
	file(scope, "cgroup.controllers", "memory pids\n");
	tap_ok(cgroup_top_better(scope, all), "one that was passed less");
	file(scope, "cgroup.procs", "1\n");
	file(scope, "cgroup.controllers", "hugetlb\n");
	file(all, "cgroup.controllers", "hugetlb\n");
	tap_ok(!cgroup_top_better(scope, all), "where v1 bounds");
	close(scope);
	close(slice);
	close(all);
}

int
main(void)
{
	int dir;
	pid_t pid;

	if (mkdtemp(top) == NULL)
		return 1;
	dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	test_find();
	test_ctl(dir);
	test_usage(dir);
	test_enter_and_names(dir);
	test_events(dir);
	test_root_errors();
	test_top(dir);
	fd_close(&dir);
	pid = fork();
	if (pid == 0) {
		execlp("rm", "rm", "-rf", top, (char *)NULL);
		_exit(1);
	}
	(void)waitpid(pid, NULL, 0);
	return tap_done();
}
