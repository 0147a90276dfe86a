/* Hostile trees: as whoever runs it, and, from root, as nobody as well. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/fd.h"
#include "os/tree.h"
#include "os/tree_attr.h"
#include "os/tree_stack.h"
#include "tap.h"

enum { NOBODY = 64991 };

static const struct tree_bounds no_bounds;
static char top_path[64];

static int
sub(int dir, const char *name)
{
	(void)!mkdirat(dir, name, 0755);
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void
file(int dir, const char *name, const char *text)
{
	int fd =
	    openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	(void)!write(fd, text, strlen(text));
	close(fd);
}

/* A chain of directories, with a file at its end. */
static void
chain(int dir, int levels)
{
	int fd = fcntl(dir, F_DUPFD_CLOEXEC, 3), next, i;

	for (i = 0; i < levels; i++) {
		next = sub(fd, "d");
		close(fd);
		fd = next;
	}
	file(fd, "end", "end");
	close(fd);
}

static bool
is_empty(int dir)
{
	struct tree_names names;
	bool empty;

	if (tree_stack_names(dir, SIZE_MAX, &names) != SP_OK)
		return false;
	empty = names.n == 0;
	tree_stack_names_clear(&names);
	return empty;
}

/* Everything that a workload can make and that is not nice. */
static void
hostile(int dir)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int d, e, s;
	char name[64];

	file(dir, "plain", "text");
	file(dir, "\xff\xfe not utf-8 \n", "x");
	d = sub(dir, "full");
	for (e = 0; e < 3000; e++) {
		(void)snprintf(name, sizeof(name), "%d-%040d", e, e);
		close(openat(d, name, O_WRONLY | O_CREAT | O_CLOEXEC,
		    geteuid() == 0 ? 0 : 0400));
	}
	close(d);
	(void)!symlinkat("/etc", dir, "link");
	(void)!symlinkat("plain", dir, "link2");
	(void)!mkfifoat(dir, "fifo", 0600);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	(void)snprintf(un.sun_path, sizeof(un.sun_path),
	    "/proc/self/fd/%d/sock", dir);
	(void)!bind(s, (struct sockaddr *)&un, sizeof(un));
	close(s);
	d = sub(dir, "hard");
	file(d, "one", "linked");
	(void)!linkat(d, "one", dir, "two", 0);
	(void)!linkat(d, "one", d, "three", 0);
	close(d);
	d = sub(dir, "locked");
	e = sub(d, "inner");
	file(e, "secret", "s");
	close(sub(e, "empty"));
	(void)!fchmod(e, 0);
	close(e);
	(void)!fchmod(d, 0);
	close(d);
	d = sub(dir, "readonly");
	file(d, "f", "f");
	(void)!fchmod(d, 0500);
	close(d);
}

static int
descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	if (d != NULL)
		closedir(d);
	return n;
}

static void
test_remove(int top)
{
	int d = sub(top, "r"), before = descriptors();
	struct rlimit rl, few;

	hostile(d);
	chain(d, 20000);
	getrlimit(RLIMIT_NOFILE, &rl);
	few = rl;
	few.rlim_cur = 48;
	setrlimit(RLIMIT_NOFILE, &few);
	tap_is_int(tree_remove(d, 0), SP_OK, "a hostile tree is removed");
	setrlimit(RLIMIT_NOFILE, &rl);
	tap_ok(is_empty(d), "to the last entry");
	tap_is_int(descriptors(), before, "no descriptor is left");
	tap_is_int(tree_remove(d, 1), SP_E_TIMEOUT, "a deadline");
	tap_is_int(tree_remove(-1, 0), SP_E_ARG, "no directory");
	close(d);
	d = sub(top, "r");
	hostile(d);
	close(d);
	tap_is_int(tree_remove_at(top, "r", 0), SP_OK, "by name");
	tap_ok(faccessat(top, "r", F_OK, 0) != 0, "it is gone");
	tap_is_int(tree_remove_at(top, "r", 0), SP_OK, "gone is fine");
	file(top, "f", "");
	(void)!symlinkat("/etc", top, "l");
	tap_is_int(tree_remove_at(top, "f", 0), SP_OK, "a file");
	tap_is_int(tree_remove_at(top, "l", 0), SP_OK, "a link");
	tap_ok(access("/etc/passwd", F_OK) == 0, "which was not followed");
}

static void
test_remove_memory(int top)
{
	int d = sub(top, "m"), i;
	bool ended = false;

	for (i = 1; i < 400 && !ended; i++) {
		chain(d, 40);
		mem_fail_after((unsigned long)i, 0);
		ended = tree_remove(d, 0) == SP_OK && is_empty(d);
		mem_fail_after(0, 0);
	}
	tap_ok(ended && i > 2, "without memory it says so (%d)", i);
	tap_is_int(tree_remove_at(top, "m", 0), SP_OK, "and can be repeated");
}

/* Somebody renames directories while they are removed. */
static void
test_remove_race(int top)
{
	int d = sub(top, "race"), a, b, i, rc = SP_OK;
	pid_t pid;

	a = sub(d, "a");
	b = sub(d, "b");
	for (i = 0; i < 20; i++) {
		chain(a, 60);
		pid = fork();
		if (pid == 0) {
			for (;;) {
				(void)!renameat(a, "d/d/d/d", b, "x");
				(void)!renameat(b, "x", a, "d/y");
				(void)!renameat(a, "d/y", a, "d/d/d/d");
			}
		}
		rc = tree_remove(a, clock_ms() + 20000);
		kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		if (rc != SP_OK && rc != SP_E_STATE && rc != SP_E_TIMEOUT &&
		    rc != SP_E_NOTFOUND)
			break;
		rc = tree_remove(a, 0);
		if (rc != SP_OK)
			break;
	}
	tap_is_int(rc, SP_OK, "renames do not lead anywhere else");
	close(a);
	close(b);
	tap_is_int(tree_remove(d, 0), SP_OK, "what is left goes as well");
	close(d);
	tap_ok(unlinkat(top, "race", AT_REMOVEDIR) == 0, "and the directory");
}

/* ---- walking ------------------------------------------------------------ */

struct seen {
	struct buf text;
	size_t n, deepest;
	int stop_at; /* entry at which it is stopped */
	int errors;
};

static int
see(void *arg, const struct tree_entry *e)
{
	struct seen *s = arg;

	s->n++;
	if (e->error != SP_OK)
		s->errors++;
	if (e->path.n > s->deepest)
		s->deepest = e->path.n;
	(void)!buf_add_view(&s->text, e->path);
	(void)!buf_add_char(&s->text, '\n');
	if (s->stop_at != 0 && (int)s->n == s->stop_at)
		return SP_E_GONE;
	return view_eq(e->path, VIEW("b/skip")) ? 1 : SP_OK;
}

static void
test_walk(int top)
{
	struct seen s = { BUF_INIT(1024), 0, 0, 0, 0 };
	struct tree_bounds b = { 0, 4, 0 };
	int d = sub(top, "w"), e;

	e = sub(d, "b");
	close(sub(e, "skip"));
	file(d, "b/skip/unseen", "");
	file(e, "z", "");
	close(e);
	file(d, "b.txt", "");
	file(d, "a", "");
	file(d, "\xff", "");
	tap_is_int(tree_walk(d, &no_bounds, see, &s), SP_OK, "a walk");
	tap_is_mem(buf_view(&s.text).p, buf_len(&s.text),
	    "a\nb\nb/skip\nb/z\nb.txt\n\xff\n", 23, "in order");
	b.entries = 3;
	tap_is_int(tree_walk(d, &b, see, &s), SP_E_LIMIT, "too many entries");
	b.entries = 0;
	b.deadline_ms = 1;
	tap_is_int(tree_walk(d, &b, see, &s), SP_E_TIMEOUT, "too late");
	s.n = 0;
	s.stop_at = 3;
	tap_is_int(tree_walk(d, &no_bounds, see, &s), SP_E_GONE,
	    "stopped by who is called");
	tap_is_int((long long)s.n, 3, "at once");
	tap_is_int(tree_walk(-1, &no_bounds, see, &s), SP_E_ARG,
	    "no directory");
	(void)!tree_remove(d, 0);
	hostile(d);
	chain(d, 3000);
	buf_clear(&s.text);
	memset(&s, 0, sizeof(s));
	buf_init(&s.text, 0);
	tap_is_int(tree_walk(d, &no_bounds, see, &s), SP_OK, "a hostile tree");
	tap_ok(s.n > 6000 && s.deepest == 3000 * 2 + 3, "is seen as a whole");
	tap_is_int(s.errors, geteuid() == 0 ? 0 : 1, "and what is locked");
	close(d);
	(void)!tree_remove_at(top, "w", 0);
}

static void
test_walk_memory(int top)
{
	struct seen s = { BUF_INIT(0), 0, 0, 0, 0 };
	int d = sub(top, "wm"), i, rc = SP_E_NOMEM;

	chain(d, 100);
	for (i = 1; i < 2000 && rc == SP_E_NOMEM; i++) {
		mem_fail_after((unsigned long)i, 0);
		rc = tree_walk(d, &no_bounds, see, &s);
		mem_fail_after(0, 0);
	}
	tap_ok(rc == SP_OK && i > 100, "a walk without memory (%d)", i);
	close(d);
	(void)!tree_remove_at(top, "wm", 0);
}

/* ---- copying ------------------------------------------------------------ */

static bool
same(int a, int b, const char *name)
{
	struct stat x, y;

	return fstatat(a, name, &x, AT_SYMLINK_NOFOLLOW) == 0 &&
	    fstatat(b, name, &y, AT_SYMLINK_NOFOLLOW) == 0 &&
	    x.st_mode == y.st_mode && x.st_uid == y.st_uid &&
	    x.st_gid == y.st_gid &&
	    (S_ISDIR(x.st_mode) || x.st_size == y.st_size) &&
	    x.st_nlink == y.st_nlink && x.st_mtim.tv_sec == y.st_mtim.tv_sec &&
	    x.st_mtim.tv_nsec == y.st_mtim.tv_nsec;
}

static void
test_copy(int top)
{
	const struct timespec old[2] = { { 1000, 5 }, { 2000, 7 } };
	int from = sub(top, "from"), to = sub(top, "to"), fd, rc;
	struct tree_copied n;
	struct buf where = BUF_INIT(4096);
	struct stat st, st2;
	char text[16];
	bool xattr;

	hostile(from);
	(void)!fchmodat(from, "plain", 04711, 0);
	fd = openat(from, "holes", O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	(void)!pwrite(fd, "a", 1, 0);
	(void)!pwrite(fd, "z", 1, 64 << 20);
	xattr = fsetxattr(fd, "user.note", "hello", 5, 0) == 0;
	(void)!fsetxattr(fd, "user.overlay.opaque", "y", 1, 0);
	close(fd);
	utimensat(from, "plain", old, 0);
	utimensat(from, "link", old, AT_SYMLINK_NOFOLLOW);
	utimensat(from, "full", old, 0);
	if (geteuid() == 0) {
		(void)!fchownat(from, "plain", 7, 8, 0);
		(void)!fchmodat(from, "plain", 04711, 0);
		(void)!fchownat(from, "link", 7, 8, AT_SYMLINK_NOFOLLOW);
		(void)!mknodat(from, "null", S_IFCHR | 0666, makedev(1, 3));
	} else {
		rc = tree_copy(from, to, &no_bounds, false, &n, &where);
		tap_is_int(rc, SP_E_DENIED, "what is locked is not copied");
		tap_ok(view_starts(buf_view(&where), VIEW("locked")),
		    "and named");
		tap_is_int(tree_remove(to, 0), SP_OK, "removed again");
		tap_is_int(tree_remove_at(from, "locked", 0), SP_OK, "unlock");
	}
	utimensat(from, "plain", old, 0);
	if (!tap_is_int(tree_copy(from, to, &no_bounds, false, &n, &where),
		SP_OK, "a hostile tree is copied"))
		tap_diag("at %.*s", VIEW_ARG(buf_view(&where)));
	tap_ok(same(from, to, "plain") && same(from, to, "link") &&
		same(from, to, "fifo") && same(from, to, "full") &&
		same(from, to, "\xff\xfe not utf-8 \n") &&
		same(from, to, "holes") && same(from, to, "readonly"),
	    "as it was");
	tap_ok(same(from, to, "two") && same(from, to, "hard/one"),
	    "links as links");
	tap_ok(fstatat(to, "two", &st, 0) == 0 &&
		fstatat(to, "hard/three", &st2, 0) == 0 &&
		st.st_ino == st2.st_ino,
	    "to one another");
	tap_is_int((long long)n.skipped, geteuid() == 0 ? 2 : 1,
	    "sockets and devices are not");
	tap_ok(fstatat(to, "holes", &st, 0) == 0 && st.st_blocks < 2048,
	    "holes stay holes");
	fd = openat(to, "holes", O_RDONLY | O_CLOEXEC);
	tap_ok(pread(fd, text, 1, 64 << 20) == 1 && text[0] == 'z',
	    "with what is behind them");
	if (xattr)
		tap_ok(fgetxattr(fd, "user.note", text, 16) == 5,
		    "attributes come along");
	tap_ok(fgetxattr(fd, "user.overlay.opaque", text, 16) < 0,
	    "those of an overlay do not");
	close(fd);
	tap_ok(n.bytes < 1 << 20 && n.entries > 3000, "counted");
	tap_is_int(tree_copy(from, to, &no_bounds, false, &n, &where),
	    SP_E_EXISTS, "not over something");
	buf_clear(&where);
	close(from);
	close(to);
	(void)!tree_remove_at(top, "from", 0);
	(void)!tree_remove_at(top, "to", 0);
}

static void
test_copy_bounds(int top)
{
	int from = sub(top, "from"), to = sub(top, "to"), i, rc;
	struct tree_bounds b = { 0, 0, 1 };
	struct buf where = BUF_INIT(8192);
	struct tree_copied n;

	chain(from, 2000);
	file(from, "a", "0123456789");
	file(from, "b", "0123456789");
	(void)!linkat(from, "b", from, "d/c", 0);
	tap_is_int(tree_copy(from, to, &b, false, &n, &where), SP_E_TIMEOUT,
	    "a deadline");
	b.deadline_ms = 0;
	b.bytes = 15;
	tap_is_int(tree_copy(from, to, &b, false, &n, &where), SP_E_LIMIT,
	    "bytes");
	tap_is_mem(buf_view(&where).p, buf_len(&where), "b", 1, "and where");
	(void)!tree_remove(to, 0);
	b.bytes = 0;
	b.entries = 100;
	tap_is_int(tree_copy(from, to, &b, false, &n, &where), SP_E_LIMIT,
	    "entries");
	(void)!tree_remove(to, 0);
	tap_is_int(tree_copy(from, to, &no_bounds, false, &n, NULL), SP_OK,
	    "deep");
	tap_is_int((long long)n.entries, 2004, "all of it");
	(void)!tree_remove(to, 0);
	(void)!tree_remove_at(from, "d", 0);
	close(sub(from, "d"));
	(void)!linkat(from, "b", from, "d/c", 0);
	rc = SP_E_NOMEM;
	for (i = 1; i < 400 && rc == SP_E_NOMEM; i++) {
		mem_fail_after((unsigned long)i, 0);
		rc = tree_copy(from, to, &no_bounds, false, &n, NULL);
		mem_fail_after(0, 0);
		(void)!tree_remove(to, 0);
	}
	tap_ok(rc == SP_OK && i > 5, "without memory it says so (%d)", i);
	tap_is_int(tree_copy(from, -1, &no_bounds, false, &n, NULL), SP_E_ARG,
	    "to nowhere");
	buf_clear(&where);
	close(from);
	close(to);
	(void)!tree_remove_at(top, "from", 0);
	(void)!tree_remove_at(top, "to", 0);
}

/* ---- what needs root ---------------------------------------------------- */

static void
test_overlay(int top)
{
	int from = sub(top, "from"), to = sub(top, "to"), d;
	struct tree_copied n;
	struct stat st;

	(void)!mknodat(from, "gone", S_IFCHR, 0);
	d = sub(from, "new");
	if (fsetxattr(d, "trusted.overlay.opaque", "y", 1, 0) != 0) {
		tap_skip(1, "no trusted attributes here");
	} else {
		(void)!fsetxattr(d, "trusted.overlay.origin", "x", 1, 0);
		tap_ok(tree_attr_opaque(d, false) && !tree_attr_opaque(d, true),
		    "opaque");
		close(d);
		tap_is_int(tree_copy(from, to, &no_bounds, true, &n, NULL),
		    SP_OK, "an upper layer is copied");
		tap_ok(fstatat(to, "gone", &st, 0) == 0 &&
			S_ISCHR(st.st_mode) && st.st_rdev == 0,
		    "with its whiteouts");
		d = openat(to, "new", O_RDONLY | O_CLOEXEC);
		tap_ok(tree_attr_opaque(d, false), "and what is opaque");
		tap_ok(fgetxattr(d, "trusted.overlay.origin", &st, 1) < 0,
		    "nothing else");
	}
	close(d);
	close(from);
	close(to);
	(void)!tree_remove_at(top, "from", 0);
	(void)!tree_remove_at(top, "to", 0);
}

/* In a mount namespace of its own: a small disk, a mount in the tree. */
static void
test_mounts(int top)
{
	struct seen s = { BUF_INIT(0), 0, 0, 0, 0 };
	int from = sub(top, "from"), to = sub(top, "to"), small, inner, fd;
	struct buf where = BUF_INIT(4096);
	struct tree_copied n;
	char path[128], big[8192];

	if (unshare(CLONE_NEWNS) != 0 ||
	    mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0) {
		tap_skip(1, "no mount namespaces");
		return;
	}
	/* descriptors of before lead to the mounts of before */
	close(from);
	close(to);
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	from = sub(top, "from");
	to = sub(top, "to");
	(void)snprintf(path, sizeof(path), "%s/to", top_path);
	(void)!mount("tmpfs", path, "tmpfs", 0, "size=65536,nr_inodes=20");
	small = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(from, "big", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	memset(big, 'x', sizeof(big));
	for (inner = 0; inner < 16; inner++)
		(void)!write(fd, big, sizeof(big));
	close(fd);
	tap_is_int(tree_copy(from, small, &no_bounds, false, &n, &where),
	    SP_E_NOSPC, "a full disk");
	tap_is_mem(buf_view(&where).p, buf_len(&where), "big", 3, "is told");
	tap_is_int(tree_remove(small, 0), SP_OK, "and cleared");
	(void)!unlinkat(from, "big", 0);
	for (inner = 0; inner < 30; inner++) {
		(void)snprintf(big, sizeof(big), "f%d", inner);
		file(from, big, "");
	}
	tap_is_int(tree_copy(from, small, &no_bounds, false, &n, &where),
	    SP_E_NOSPC, "no more inodes");
	close(small);
	(void)!umount2(path, MNT_DETACH);
	(void)!tree_remove(from, 0);
	/* the host's files, bound into the tree that is removed */
	inner = sub(from, "inner");
	close(inner);
	file(to, "precious", "p");
	(void)snprintf(big, sizeof(big), "%s/from/inner", top_path);
	(void)!mount(path, big, "none", MS_BIND, NULL);
	tap_is_int(tree_remove(from, 0), SP_E_UNSUPPORTED,
	    "a mount is not gone into");
	tap_ok(faccessat(to, "precious", F_OK, 0) == 0, "what is there stays");
	tap_is_int(tree_walk(from, &no_bounds, see, &s), SP_OK, "nor walked");
	tap_ok(s.n == 1 && s.errors == 1, "but told");
	tap_is_int(tree_copy(from, from, &no_bounds, false, &n, NULL),
	    SP_E_UNSUPPORTED, "nor copied");
	(void)!umount2(big, MNT_DETACH);
	buf_clear(&where);
	close(from);
	close(to);
	(void)!tree_remove_at(top, "from", 0);
	(void)!tree_remove_at(top, "to", 0);
	close(top);
}

/* An entry that cannot be removed does not keep the rest. */
static void
test_not_ours(int top)
{
	int d = sub(top, "n"), e = sub(d, "theirs");
	pid_t pid;
	int status = 0;

	file(e, "f", "");
	file(d, "ours", "");
	(void)!fchmod(d, 0777);
	(void)!fchownat(d, "ours", NOBODY, NOBODY, 0);
	pid = fork();
	if (pid == 0) {
		if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
			_exit(9);
		_exit(tree_remove(d, 0) == SP_E_DENIED ? 0 : 1);
	}
	(void)waitpid(pid, &status, 0);
	tap_is_int(status, 0, "what is another's is not removed");
	tap_ok(faccessat(d, "theirs/f", F_OK, 0) == 0 &&
		faccessat(d, "ours", F_OK, 0) != 0,
	    "all else is");
	close(e);
	close(d);
	(void)!tree_remove_at(top, "n", 0);
}

static void
run(int top)
{
	test_remove(top);
	test_remove_memory(top);
	test_remove_race(top);
	test_walk(top);
	test_walk_memory(top);
	test_copy(top);
	test_copy_bounds(top);
}

/* The same without any privilege. */
static void
run_as_nobody(int top)
{
	int nobody = sub(top, "nobody");

	(void)!fchown(nobody, NOBODY, NOBODY);
	if (setegid(NOBODY) != 0 || seteuid(NOBODY) != 0) {
		tap_ok(false, "there is somebody to be");
		return;
	}
	run(nobody);
	close(nobody);
	if (seteuid(0) != 0 || setegid(0) != 0)
		exit(1);
}

int
main(void)
{
	int fd = -1;
	int top;

	/* in memory where that can be had: a deep tree is slow on a disk */
	(void)snprintf(top_path, sizeof(top_path), "%s/test_tree.XXXXXX",
	    access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (mkdtemp(top_path) == NULL || chmod(top_path, 0755) != 0)
		return 1;
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd_open_beneath(top, ".", O_RDONLY, 0, &fd) == SP_E_UNSUPPORTED) {
		/* valgrind before 3.22, for one */
		tap_skip(1, "no openat2 here");
		fd_close(&top);
		(void)!rmdir(top_path);
		return tap_done();
	}
	fd_close(&fd);
	run(top);
	if (geteuid() == 0) {
		run_as_nobody(top);
		test_overlay(top);
		test_not_ours(top);
		test_mounts(top);
	}
	(void)!tree_remove(top, 0);
	fd_close(&top);
	(void)!rmdir(top_path);
	return tap_done();
}
