/* File work in a sandbox: made-up layers, and, from root, a real overlay. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "init/ws.h"
#include "os/fd.h"
#include "tap.h"

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

static int
memfd(const char *text)
{
	int fd = -1;

	return fd_sealed("t", text, strlen(text), &fd) == SP_OK ? fd : -1;
}

static void
is_result(const struct ws_answer *a, enum sandbox_file_result want,
    const char *what)
{
	if (!tap_is_int(a->result, want, what))
		tap_diag("%s", a->what);
}

static void
content(struct ws_answer *a, struct buf *out)
{
	buf_reset(out, 0);
	if (a->fd >= 0)
		(void)!fd_read_sealed(a->fd, out);
	fd_close(&a->fd);
}

/* ---- reading ------------------------------------------------------------ */

static void
read_is(const struct ws *w, const char *path, enum sandbox_file_result want,
    const char *text)
{
	struct buf out = BUF_INIT(1 << 20);
	struct ws_answer a;
	char what[128];

	(void)snprintf(what, sizeof(what), "read %.100s", path);
	ws_read(w, path, 64, &a);
	is_result(&a, want, what);
	content(&a, &out);
	if (text != NULL)
		tap_is_mem(buf_view(&out).p, buf_len(&out), text, strlen(text),
		    "its text");
	buf_clear(&out);
}

static void
test_read(const struct ws *w, int root, int work)
{
	int d = sub(root, "etc"), s;
	struct ws_answer a;
	char big[200];

	file(d, "passwd", "root");
	close(d);
	file(work, "a", "hello");
	file(work, "empty", "");
	file(root, "workspace/under", "hidden by a mount");
	memset(big, 'x', 100);
	big[100] = 0;
	file(work, "big", big);
	big[64] = 0;
	file(work, "fits", big);
	(void)!symlinkat("/etc", work, "abs");
	(void)!symlinkat("..", work, "up");
	(void)!symlinkat("/proc/self/root", work, "magic");
	(void)!symlinkat("a", work, "link");
	(void)!mkfifoat(work, "fifo", 0666);
	s = sub(work, "sub");
	file(s, "x", "in sub");
	close(s);
	read_is(w, "/workspace/a", SANDBOX_FILE_OK, "hello");
	read_is(w, "//workspace/./a/", SANDBOX_FILE_OK, "hello");
	read_is(w, "/workspace/sub/x", SANDBOX_FILE_OK, "in sub");
	read_is(w, "/workspace/empty", SANDBOX_FILE_OK, "");
	read_is(w, "/etc/passwd", SANDBOX_FILE_OK, "root");
	read_is(w, "/workspace/fits", SANDBOX_FILE_OK, NULL);
	read_is(w, "/workspace/under", SANDBOX_FILE_NOT_FOUND, NULL);
	read_is(w, "/workspacex", SANDBOX_FILE_NOT_FOUND, NULL);
	read_is(w, "/workspace/none", SANDBOX_FILE_NOT_FOUND, NULL);
	read_is(w, "/workspace/a/b", SANDBOX_FILE_NOT_FOUND, NULL);
	read_is(w, "/workspace/../etc/passwd", SANDBOX_FILE_ESCAPES, NULL);
	read_is(w, "/workspace/abs/passwd", SANDBOX_FILE_ESCAPES, NULL);
	read_is(w, "/workspace/up/etc/passwd", SANDBOX_FILE_ESCAPES, NULL);
	read_is(w, "/workspace/magic/etc/passwd", SANDBOX_FILE_ESCAPES, NULL);
	read_is(w, "/workspace/link", SANDBOX_FILE_ESCAPES, NULL);
	read_is(w, "/workspace/fifo", SANDBOX_FILE_SPECIAL, NULL);
	read_is(w, "/workspace/sub", SANDBOX_FILE_SPECIAL, NULL);
	read_is(w, "/workspace", SANDBOX_FILE_SPECIAL, NULL);
	read_is(w, "workspace/a", SANDBOX_FILE_FAILED, NULL);
	read_is(w, "", SANDBOX_FILE_FAILED, NULL);
	ws_read(w, "/workspace/big", 64, &a);
	is_result(&a, SANDBOX_FILE_TOO_LARGE, "too large");
	tap_is_int((long long)a.size, 100, "and how large");
	memset(big, 'y', sizeof(big));
	mem_fail_after(1, 0);
	ws_read(w, "/workspace/a", 64, &a);
	mem_fail_after(0, 0);
	is_result(&a, SANDBOX_FILE_FAILED, "without memory");
}

static void
test_list(const struct ws *w, int work)
{
	struct buf out = BUF_INIT(1 << 20);
	struct tree_bounds b = { 0, 2, 0 };
	struct sandbox_dirent d;
	struct ws_answer a;
	struct wire r;
	unsigned n = 0, links = 0, strange = 0, fifos = 0;
	int rc;

	file(work, "\xff\n", "x");
	ws_list(w, "/workspace", &no_bounds, &a);
	is_result(&a, SANDBOX_FILE_OK, "list");
	content(&a, &out);
	wire_init(&r, buf_view(&out));
	while ((rc = sandbox_msg_dirent_get(&r, &d)) == SP_OK) {
		n++;
		links += d.type == SANDBOX_TYPE_SYMLINK;
		fifos += d.type == SANDBOX_TYPE_FIFO;
		strange += view_eq(d.name, VIEW("\xff\n")) && d.size == 1 &&
		    d.mode == 0644;
	}
	tap_is_int(rc, SP_E_EOF, "to its end");
	tap_ok(n == 11 && links == 4 && strange == 1 && fifos == 1,
	    "all of it (%u)", n);
	ws_list(w, "/workspace/a", &no_bounds, &a);
	is_result(&a, SANDBOX_FILE_SPECIAL, "no directory");
	ws_list(w, "/workspace/up", &no_bounds, &a);
	tap_ok(a.result == SANDBOX_FILE_ESCAPES ||
		a.result == SANDBOX_FILE_SPECIAL,
	    "nor a link to one");
	ws_list(w, "/workspace", &b, &a);
	is_result(&a, SANDBOX_FILE_TOO_LARGE, "too many");
	b.entries = 0;
	b.deadline_ms = 1;
	ws_list(w, "/workspace", &b, &a);
	is_result(&a, SANDBOX_FILE_FAILED, "too late");
	unlinkat(work, "\xff\n", 0);
	buf_clear(&out);
}

/* ---- writing ------------------------------------------------------------ */

static void
put(const struct ws *w, const char *path, const char *text,
    enum sandbox_file_result want)
{
	struct ws_answer a;
	int fd = memfd(text);

	ws_put(w, path, 0, fd, &no_bounds, &a);
	is_result(&a, want, path);
	close(fd);
}

static void
test_put(const struct ws *w, int root, int work)
{
	struct tree_bounds b = { 3, 0, 0 };
	struct ws_answer a;
	struct stat st;
	int p[2], fd;

	put(w, "/workspace/new/deep/file", "text", SANDBOX_FILE_OK);
	read_is(w, "/workspace/new/deep/file", SANDBOX_FILE_OK, "text");
	tap_ok(fstatat(work, "new/deep/file", &st, 0) == 0 &&
		(st.st_mode & 07777) == 0644 && st.st_uid == w->uid,
	    "of the sandbox");
	tap_ok(fstatat(work, "new", &st, 0) == 0 && st.st_uid == w->uid,
	    "as its parents");
	put(w, "/workspace/new/deep/file", "other", SANDBOX_FILE_OK);
	read_is(w, "/workspace/new/deep/file", SANDBOX_FILE_OK, "other");
	put(w, "/workspace/link", "replaced", SANDBOX_FILE_OK);
	read_is(w, "/workspace/a", SANDBOX_FILE_OK, "hello");
	read_is(w, "/workspace/link", SANDBOX_FILE_OK, "replaced");
	put(w, "/workspace/fifo", "no fifo", SANDBOX_FILE_OK);
	put(w, "/workspace/abs/evil", "x", SANDBOX_FILE_ESCAPES);
	tap_ok(faccessat(root, "etc/evil", F_OK, 0) != 0, "nothing got out");
	put(w, "/workspace/a/b", "x", SANDBOX_FILE_ESCAPES);
	put(w, "/workspace/new", "x", SANDBOX_FILE_SPECIAL);
	put(w, "/workspace", "x", SANDBOX_FILE_ESCAPES);
	put(w, "/etc/passwd", "x", SANDBOX_FILE_ESCAPES);
	put(w, "/workspace/../etc/passwd", "x", SANDBOX_FILE_ESCAPES);
	fd = memfd("four");
	ws_put(w, "/workspace/a", 0, fd, &b, &a);
	is_result(&a, SANDBOX_FILE_TOO_LARGE, "too much");
	read_is(w, "/workspace/a", SANDBOX_FILE_OK, "hello");
	b.bytes = 4;
	ws_put(w, "/workspace/x", 06755, fd, &b, &a);
	is_result(&a, SANDBOX_FILE_OK, "just as much");
	tap_ok(fstatat(work, "x", &st, 0) == 0 && (st.st_mode & 07777) == 0755,
	    "without set-id bits");
	close(fd);
	if (pipe2(p, O_CLOEXEC) != 0)
		return;
	b.deadline_ms = clock_ms() + 30;
	ws_put(w, "/workspace/x", 0, p[0], &b, &a);
	is_result(&a, SANDBOX_FILE_FAILED, "a pipe that gives nothing");
	(void)!write(p[1], "pipe", 4);
	close(p[1]);
	b.deadline_ms = 0;
	ws_put(w, "/workspace/x", 0, p[0], &b, &a);
	is_result(&a, SANDBOX_FILE_OK, "one that does");
	close(p[0]);
	read_is(w, "/workspace/x", SANDBOX_FILE_OK, "pipe");
	ws_mkdir(w, "/workspace/m/n", 0700, &a);
	is_result(&a, SANDBOX_FILE_OK, "mkdir");
	tap_ok(fstatat(work, "m/n", &st, 0) == 0 &&
		(st.st_mode & 07777) == 0700,
	    "with its mode");
	ws_mkdir(w, "/workspace/m/n", 0, &a);
	is_result(&a, SANDBOX_FILE_OK, "again");
	ws_mkdir(w, "/workspace/a", 0, &a);
	is_result(&a, SANDBOX_FILE_SPECIAL, "not over a file");
	ws_mkdir(w, "/workspace/abs", 0, &a);
	tap_ok(a.result != SANDBOX_FILE_OK, "nor over a link");
	ws_remove(w, "/workspace/m", 0, &a);
	is_result(&a, SANDBOX_FILE_OK, "remove a tree");
	ws_remove(w, "/workspace/m", 0, &a);
	is_result(&a, SANDBOX_FILE_NOT_FOUND, "which is gone");
	ws_remove(w, "/workspace/abs", 0, &a);
	is_result(&a, SANDBOX_FILE_OK, "remove a link");
	tap_ok(faccessat(root, "etc/passwd", F_OK, 0) == 0, "and no more");
	ws_remove(w, "/workspace", 0, &a);
	is_result(&a, SANDBOX_FILE_ESCAPES, "not the workspace");
	ws_remove(w, "/etc/passwd", 0, &a);
	is_result(&a, SANDBOX_FILE_ESCAPES, "nor what is ours");
}

/* ---- differences -------------------------------------------------------- */

static int
by_line(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The records as sorted text: "C f path mode size flags". */
static void
diff_text(const struct ws *w, struct buf *out)
{
	static const char kinds[] = "?CMDR", types[] = "?fdlpsx";
	struct buf records = BUF_INIT(1 << 24);
	char *lines[512], line[4400];
	struct sandbox_change c;
	struct ws_answer a;
	struct wire r;
	int rc, n = 0, i;

	ws_diff(w, &no_bounds, &a);
	is_result(&a, SANDBOX_FILE_OK, "diff");
	content(&a, &records);
	wire_init(&r, buf_view(&records));
	while ((rc = sandbox_msg_change_get(&r, &c)) == SP_OK && n < 512) {
		(void)snprintf(line, sizeof(line), "%.*s %c%c%s%s%s %llu",
		    VIEW_ARG(c.path), kinds[c.kind], types[c.type],
		    c.flags & SANDBOX_CHANGE_CONTENT ? " data" : "",
		    c.flags & SANDBOX_CHANGE_MODE ? " mode" : "",
		    c.flags & SANDBOX_CHANGE_UNREADABLE ? " unreadable" : "",
		    (unsigned long long)c.size);
		lines[n++] = mem_strdup(line);
	}
	tap_is_int(rc, SP_E_EOF, "of whole records");
	qsort(lines, (size_t)n, sizeof(lines[0]), by_line);
	buf_reset(out, 0);
	for (i = 0; i < n; i++) {
		(void)!buf_printf(out, "%s\n", lines[i]);
		mem_free(lines[i]);
	}
	buf_clear(&records);
}

static void
diff_is(const struct ws *w, const char *want, const char *what)
{
	struct buf out = BUF_INIT(1 << 20);

	diff_text(w, &out);
	tap_is_mem(buf_view(&out).p, buf_len(&out), want, strlen(want), what);
	buf_clear(&out);
}

static void
seed(int lower)
{
	int d;

	file(lower, "same", "same");
	file(lower, "touched", "touched");
	file(lower, "edited", "before");
	file(lower, "longer", "x");
	file(lower, "mode", "m");
	file(lower, "deleted", "d");
	file(lower, "becomes-dir", "f");
	(void)!symlinkat("old", lower, "link");
	(void)!symlinkat("old", lower, "link-same");
	d = sub(lower, "dir");
	file(d, "in", "in");
	close(sub(d, "deeper"));
	file(d, "deeper/er", "er");
	close(d);
	d = sub(lower, "tree");
	file(d, "one", "1");
	close(sub(d, "two"));
	file(d, "two/three", "3");
	close(d);
	d = sub(lower, "anew");
	file(d, "kept", "kept");
	file(d, "dropped", "dropped");
	close(sub(d, "old"));
	file(d, "old/f", "f");
	close(sub(d, "both"));
	file(d, "both/f", "f");
	close(d);
	close(sub(lower, "becomes-file"));
	file(lower, "becomes-file/f", "f");
}

/* What a workload does on the merged tree. */
static void
work(int m)
{
	int d;

	(void)!utimensat(m, "touched", NULL, 0);
	d = openat(m, "touched", O_WRONLY | O_CLOEXEC);
	(void)!pwrite(d, "touched", 7, 0);
	close(d);
	d = openat(m, "edited", O_WRONLY | O_CLOEXEC);
	(void)!pwrite(d, "after.", 6, 0);
	close(d);
	file(m, "longer", "xyz");
	(void)!fchmodat(m, "mode", 0600, 0);
	unlinkat(m, "deleted", 0);
	unlinkat(m, "becomes-dir", 0);
	close(sub(m, "becomes-dir"));
	file(m, "becomes-dir/f", "new");
	unlinkat(m, "link", 0);
	(void)!symlinkat("new", m, "link");
	unlinkat(m, "link-same", 0);
	(void)!symlinkat("old", m, "link-same");
	file(m, "dir/deeper/er", "ER!");
	file(m, "dir/new\xff", "n");
	d = openat(m, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)!tree_remove(d, 0);
	close(d);
	unlinkat(m, "tree", AT_REMOVEDIR);
	d = openat(m, "anew", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)!tree_remove(d, 0);
	close(d);
	unlinkat(m, "anew", AT_REMOVEDIR);
	d = sub(m, "anew");
	file(d, "kept", "kept");
	file(d, "added", "added");
	close(sub(d, "both"));
	file(d, "both/g", "g");
	close(d);
	unlinkat(m, "becomes-file/f", 0);
	unlinkat(m, "becomes-file", AT_REMOVEDIR);
	file(m, "becomes-file", "now");
	(void)!mkfifoat(m, "fifo", 0644);
	close(sub(m, "empty"));
	file(m, "passing", "");
	unlinkat(m, "passing", 0);
}

static const char changes[] = "anew/added Cf 5\n"
			      "anew/both/f Df 1\n"
			      "anew/both/g Cf 1\n"
			      "anew/dropped Df 7\n"
			      "anew/old Dd 0\n"
			      "anew/old/f Df 1\n"
			      "becomes-dir Rd 0\n"
			      "becomes-dir/f Cf 3\n"
			      "becomes-file Rf 3\n"
			      "becomes-file/f Df 1\n"
			      "deleted Df 1\n"
			      "dir/deeper/er Mf data 3\n"
			      "dir/new\xff Cf 1\n"
			      "edited Mf data 6\n"
			      "empty Cd 0\n"
			      "fifo Cp 0\n"
			      "link Ml data 3\n"
			      "longer Mf data 3\n"
			      "mode Mf mode 1\n"
			      "tree Dd 0\n"
			      "tree/one Df 1\n"
			      "tree/two Dd 0\n"
			      "tree/two/three Df 1\n";

/* Without an overlay: nothing is hidden, so only what is new shows. */
static void
test_diff_plain(int top)
{
	struct buf text = BUF_INIT(4096);
	struct tree_bounds b = { 0, 1, 0 };
	struct sandbox_change c;
	struct wire r;
	struct ws w;
	struct ws_answer a;
	int lower = sub(top, "pl"), upper = sub(top, "pu"), i;

	memset(&w, 0, sizeof(w));
	w.upper = upper;
	w.lower = -1;
	diff_is(&w, "", "nothing");
	file(upper, "a", "new");
	close(sub(upper, "d"));
	file(upper, "d/f", "new");
	diff_is(&w, "a Cf 3\nd Cd 0\nd/f Cf 3\n", "all is new without a seed");
	w.lower = lower;
	file(lower, "a", "new");
	close(sub(lower, "d"));
	file(lower, "d/f", "old");
	diff_is(&w, "d/f Mf data 3\n", "compared with one");
	ws_diff(&w, &b, &a);
	is_result(&a, SANDBOX_FILE_TOO_LARGE, "too many entries");
	b.entries = 0;
	b.bytes = 2;
	ws_diff(&w, &b, &a);
	is_result(&a, SANDBOX_FILE_OK, "too much to compare");
	content(&a, &text);
	wire_init(&r, buf_view(&text));
	tap_ok(sandbox_msg_change_get(&r, &c) == SP_OK &&
		c.flags == SANDBOX_CHANGE_UNCOMPARED,
	    "is told as what it is");
	buf_clear(&text);
	b.bytes = 0;
	b.deadline_ms = 1;
	ws_diff(&w, &b, &a);
	is_result(&a, SANDBOX_FILE_FAILED, "too late");
	for (i = 1; i < 100; i++) {
		mem_fail_after((unsigned long)i, 0);
		ws_diff(&w, &no_bounds, &a);
		mem_fail_after(0, 0);
		fd_close(&a.fd);
		if (a.result == SANDBOX_FILE_OK)
			break;
	}
	tap_ok(i > 3 && i < 100, "without memory it says so (%d)", i);
	w.upper = -1;
	ws_diff(&w, &no_bounds, &a);
	is_result(&a, SANDBOX_FILE_NO_LAYERS, "no upper layer");
	ws_snapshot(&w, lower, &no_bounds, &a);
	is_result(&a, SANDBOX_FILE_FAILED, "nor a snapshot of it");
	close(lower);
	close(upper);
}

/* "name/name/..." in dir, n times. */
static void
chain(int dir, const char *name, int n)
{
	int at = fcntl(dir, F_DUPFD_CLOEXEC, 0), next;

	while (n-- > 0) {
		next = sub(at, name);
		fd_close(&at);
		at = next;
	}
	fd_close(&at);
}

/* How many records, how many of them unreadable; the longest path. */
static void
diff_counts(const struct ws *w, const struct tree_bounds *b, const char *want,
    const char *what)
{
	struct buf records = BUF_INIT(1 << 26);
	unsigned n = 0, cut = 0, top = 0;
	struct sandbox_change c;
	struct ws_answer a;
	size_t longest = 0;
	char got[128];
	struct wire r;

	ws_diff(w, b, &a);
	is_result(&a, SANDBOX_FILE_OK, what);
	content(&a, &records);
	wire_init(&r, buf_view(&records));
	while (sandbox_msg_change_get(&r, &c) == SP_OK) {
		n++;
		cut += (c.flags & SANDBOX_CHANGE_UNREADABLE) != 0;
		top += view_eq(c.path, VIEW("cheat"));
		longest = c.path.n > longest ? c.path.n : longest;
	}
	(void)snprintf(got, sizeof(got), "%u %u %zu %u", n, cut, longest, top);
	tap_is_str(got, want, what);
	buf_clear(&records);
}

/* What lies deep, or is much, hides nothing of what lies above. */
static void
test_diff_cut(int top)
{
	struct tree_bounds b = { 0, 50, 0 };
	struct ws_answer a;
	struct ws w;
	char name[16];
	int upper = sub(top, "cu"), lower = sub(top, "cl"), d, i;

	memset(&w, 0, sizeof(w));
	w.upper = upper;
	w.lower = -1;
	file(upper, "cheat", "evil");
	chain(upper, "d", 9000);
	diff_counts(&w, &no_bounds, "1922 1 3841 1", "9000 directories deep");
	w.lower = lower;
	chain(lower, "d", 9000);
	diff_counts(&w, &no_bounds, "2 1 3841 1", "which the seed has as well");
	(void)!tree_remove(upper, 0);
	file(upper, "cheat", "evil");
	(void)!mknodat(upper, "d", S_IFCHR, makedev(0, 0));
	if (geteuid() == 0)
		diff_counts(&w, &no_bounds, "1922 1 3841 1", "which are gone");
	(void)!tree_remove(upper, 0);
	file(upper, "cheat", "evil");
	w.lower = -1;
	chain(upper, "aaaaaaaaaaaaaaa", 20);
	chain(upper, "bbbbbbbbbbbbbbb", 40);
	diff_counts(&w, &b, "35 2 271 1", "more names than there may be");
	d = sub(upper, "c");
	for (i = 0; i < 60; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		file(d, name, "");
	}
	close(d);
	diff_counts(&w, &b, "4 3 15 1", "in a directory at the top");
	for (i = 0; i < 60; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		file(upper, name, "");
	}
	ws_diff(&w, &b, &a);
	is_result(&a, SANDBOX_FILE_TOO_LARGE, "at the top itself");
	tap_ok(strstr(a.what, "/workspace itself") != NULL, "which it says: %s",
	    a.what);
	close(upper);
	close(lower);
}

static int
path_of(char *out, const char *name)
{
	(void)snprintf(out, 128, "%s/ov/%s", top_path, name);
	(void)!mkdir(out, 0755);
	return open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int
mount_overlay(const char *upper, const char *merged, const char *extra)
{
	char options[600];

	(void)snprintf(options, sizeof(options),
	    "lowerdir=%s/ov/l,upperdir=%s/ov/%s/u,workdir=%s/ov/%s/w,"
	    "metacopy=off%s",
	    top_path, top_path, upper, top_path, upper, extra);
	return mount("overlay", merged, "overlay", 0, options);
}

/* A snapshot is another overlay's upper layer, with the same tree. */
static void
test_snapshot(const struct ws *w, int m)
{
	struct tree_bounds b = { 1, 0, 0 };
	struct ws copy = *w;
	char o[128], path[160];
	struct ws_answer a;
	struct stat st;
	int fd, to;

	fd = path_of(o, "o");
	close(sub(fd, "w"));
	to = sub(fd, "u");
	ws_snapshot(w, to, &b, &a);
	is_result(&a, SANDBOX_FILE_TOO_LARGE, "a snapshot is bounded");
	(void)!tree_remove(to, 0);
	(void)!fchmod(w->upper, 01777);
	ws_snapshot(w, to, &no_bounds, &a);
	is_result(&a, SANDBOX_FILE_OK, "a snapshot");
	tap_ok(fstat(to, &st) == 0 && (st.st_mode & 07777) == 01777,
	    "of the root as well");
	copy.upper = to;
	diff_is(&copy, changes, "has the same changes");
	(void)snprintf(path, sizeof(path), "%s/m2", o);
	(void)!mkdir(path, 0755);
	if (tap_is_int(mount_overlay("o", path, ""), 0, "and is a layer")) {
		(void)snprintf(path, sizeof(path), "%s/m2/tree", o);
		tap_ok(access(path, F_OK) != 0, "without what is deleted");
		(void)snprintf(path, sizeof(path), "%s/m2/anew/dropped", o);
		tap_ok(access(path, F_OK) != 0, "or hidden");
		(void)snprintf(path, sizeof(path), "%s/m2/dir/in", o);
		tap_ok(access(path, F_OK) == 0, "with what is below");
	}
	(void)m;
	close(to);
	close(fd);
}

static void
run_overlay(const char *extra, bool userxattr)
{
	char l[128], u[128], merged[160];
	int lower = path_of(l, "l"), fd = path_of(u, "u"), m;
	struct ws w;

	memset(&w, 0, sizeof(w));
	seed(lower);
	close(sub(fd, "w"));
	w.lower = lower;
	w.upper = sub(fd, "u");
	w.userxattr = userxattr;
	(void)snprintf(merged, sizeof(merged), "%s/m", u);
	(void)!mkdir(merged, 0755);
	if (mount_overlay("u", merged, extra) != 0) {
		tap_skip(1, "no overlay here: %s", strerror(errno));
		return;
	}
	m = open(merged, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	diff_is(&w, "", "a fresh overlay has no changes");
	work(m);
	diff_is(&w, changes, "what was done to it");
	if (!userxattr)
		test_snapshot(&w, m);
	close(m);
	(void)!umount2(merged, MNT_DETACH);
	close(w.upper);
	close(fd);
	close(lower);
}

/* In a mount namespace of its own, on a tmpfs that ends with it. */
static void
in_namespace(const char *extra, bool userxattr)
{
	char ov[96];

	if (unshare(CLONE_NEWNS) != 0 ||
	    mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0) {
		tap_skip(1, "no mount namespaces");
		return;
	}
	(void)snprintf(ov, sizeof(ov), "%s/ov", top_path);
	(void)!mkdir(ov, 0755);
	if (mount("tmpfs", ov, "tmpfs", 0, "size=8m") != 0) {
		tap_skip(1, "no tmpfs");
		return;
	}
	run_overlay(extra, userxattr);
	(void)!umount2(ov, MNT_DETACH);
	(void)!rmdir(ov);
}

/* A full workspace, another mount in it. */
static void
test_full(const struct ws *w0)
{
	struct ws w = *w0;
	struct ws_answer a;
	char path[96], inner[128];
	int fd, small;
	char big[70000];

	(void)snprintf(path, sizeof(path), "%s/ov", top_path);
	(void)!mkdir(path, 0755);
	if (mount("tmpfs", path, "tmpfs", 0, "size=65536") != 0)
		return;
	small = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w.mounts[1].fd = small;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	fd = memfd(big);
	ws_put(&w, "/workspace/big", 0, fd, &no_bounds, &a);
	is_result(&a, SANDBOX_FILE_NO_SPACE, "a full workspace");
	put(&w, "/workspace/small", "s", SANDBOX_FILE_OK);
	close(fd);
	(void)snprintf(inner, sizeof(inner), "%s/inner", path);
	(void)!mkdir(inner, 0755);
	(void)!mount(top_path, inner, "none", MS_BIND, NULL);
	read_is(&w, "/workspace/inner/f", SANDBOX_FILE_ESCAPES, NULL);
	put(&w, "/workspace/inner/f", "s", SANDBOX_FILE_ESCAPES);
	ws_remove(&w, "/workspace/inner", 0, &a);
	tap_ok(a.result != SANDBOX_FILE_OK, "a mount is not removed");
	(void)!umount2(inner, MNT_DETACH);
	close(small);
	(void)!umount2(path, MNT_DETACH);
	(void)!rmdir(path);
}

/* The sandbox swaps a directory for a link while it is read. */
static void
test_race(const struct ws *w, int work_dir)
{
	struct ws_answer a;
	int i, bad = 0, good = 0;
	pid_t pid;

	close(sub(work_dir, "swap"));
	file(work_dir, "swap/passwd", "mine");
	(void)!symlinkat("/etc", work_dir, "swap2");
	pid = fork();
	if (pid == 0)
		for (;;)
			(void)!renameat2(work_dir, "swap", work_dir, "swap2",
			    RENAME_EXCHANGE);
	for (i = 0; i < 2000; i++) {
		struct buf out = BUF_INIT(4096);

		ws_read(w, "/workspace/swap/passwd", 4096, &a);
		content(&a, &out);
		if (a.result == SANDBOX_FILE_OK) {
			good++;
			bad += !view_eq(buf_view(&out), VIEW("mine"));
		} else {
			bad += a.result != SANDBOX_FILE_ESCAPES &&
			    a.result != SANDBOX_FILE_BUSY &&
			    a.result != SANDBOX_FILE_NOT_FOUND;
		}
		buf_clear(&out);
	}
	kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	tap_is_int(bad, 0, "a race leads nowhere else");
	tap_diag("%d of 2000 read", good);
}

static void
test_records(void)
{
	const struct sandbox_dirent dots = { VIEW(".."), 1, 0, 0, 0, 0, 0 };
	const struct sandbox_change up = { VIEW("a/../b"), 1, 1, 0, 0, 0 };
	const struct sandbox_change odd = { VIEW("a"), 9, 1, 0, 0, 0 };
	struct buf b = BUF_INIT(64);
	struct sandbox_dirent d;
	struct sandbox_change c;
	struct wire r;

	tap_is_int(sandbox_msg_dirent_put(&b, &dots), SP_OK, "a dirent");
	wire_init(&r, buf_view(&b));
	tap_is_int(sandbox_msg_dirent_get(&r, &d), SP_E_PROTO, "with dots");
	wire_init(&r, view_of(buf_view(&b).p, buf_len(&b) - 1));
	tap_is_int(sandbox_msg_dirent_get(&r, &d), SP_E_PROTO, "cut short");
	tap_is_int(sandbox_msg_dirent_put(&b, &dots), SP_E_LIMIT, "no room");
	buf_reset(&b, 64);
	tap_is_int(sandbox_msg_change_put(&b, &up), SP_OK, "a change");
	wire_init(&r, buf_view(&b));
	tap_is_int(sandbox_msg_change_get(&r, &c), SP_E_PROTO, "above");
	buf_reset(&b, 64);
	tap_is_int(sandbox_msg_change_put(&b, &odd), SP_OK, "a change");
	wire_init(&r, buf_view(&b));
	tap_is_int(sandbox_msg_change_get(&r, &c), SP_E_PROTO, "of no kind");
	buf_clear(&b);
}

int
main(void)
{
	int fd = -1;
	int top, root, work_dir;
	struct ws w;

	signal(SIGPIPE, SIG_IGN);
	(void)snprintf(top_path, sizeof(top_path), "/tmp/test_ws.XXXXXX");
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
	root = sub(top, "root");
	close(sub(root, "workspace"));
	work_dir = sub(top, "work");
	memset(&w, 0, sizeof(w));
	w.mounts[0] = (struct ws_mount){ "/", root, false };
	w.mounts[1] = (struct ws_mount){ "/workspace", work_dir, true };
	w.mounts_n = 2;
	w.upper = w.lower = -1;
	w.uid = geteuid() == 0 ? 64992 : geteuid();
	w.gid = geteuid() == 0 ? 64992 : getegid();
	test_records();
	test_read(&w, root, work_dir);
	test_list(&w, work_dir);
	test_put(&w, root, work_dir);
	test_race(&w, work_dir);
	test_diff_plain(top);
	test_diff_cut(top);
	if (geteuid() == 0) {
		in_namespace("", false);
		in_namespace(",index=on,nfs_export=on", false);
		in_namespace(",userxattr", true);
		test_full(&w);
	} else {
		tap_skip(1, "overlays need root");
	}
	close(root);
	close(work_dir);
	(void)!tree_remove(top, 0);
	fd_close(&top);
	(void)!rmdir(top_path);
	return tap_done();
}
