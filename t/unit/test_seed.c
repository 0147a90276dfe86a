/* Seeds: captured whole, kept while nothing changes, refused when unsafe. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "helper/seed.h"
#include "os/fd.h"
#include "os/tree.h"
#include "tap.h"

static char top_path[] = "/tmp/test_seed.XXXXXX";

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
capture(int state, const char *name, const char *path, int *out, bool *copied)
{
	struct buf why = BUF_INIT(4096);
	char full[128];
	int rc;

	*out = -1;
	(void)snprintf(full, sizeof(full), "%s/%s", top_path, path);
	rc = seed_capture(state, view_str(name), full, out, copied, &why);
	if (rc != SP_OK) {
		tap_ok(buf_len(&why) > 0, "it says why");
		tap_diag("%.*s", VIEW_ARG(buf_view(&why)));
	}
	buf_clear(&why);
	return rc;
}

static void
refused(int state, const char *path, int want, const char *what)
{
	bool copied;
	int fd;

	tap_is_int(capture(state, "e", path, &fd, &copied), want, what);
	fd_close(&fd);
}

static void
test_capture(int state, int parent)
{
	int w = sub(parent, "w"), fd, d;
	struct stat st, st2;
	bool copied;

	file(w, "plain", "text");
	file(w, "suid", "x");
	(void)!fchmodat(w, "suid", 04755, 0);
	(void)!symlinkat("/etc", w, "link");
	d = sub(w, "dir");
	file(d, "in", "in");
	(void)!linkat(w, "plain", d, "hard", 0);
	(void)!fchmod(d, 0700);
	close(d);
	(void)!fchmod(w, 02770);
	if (geteuid() == 0)
		(void)!fchown(w, 1234, 1234);
	(void)!fchmod(w, 02770);
	tap_is_int(capture(state, "e", "p/w", &fd, &copied), SP_OK, "captured");
	tap_ok(copied, "by a copy");
	tap_ok(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 02770 &&
		(geteuid() != 0 || st.st_uid == 1234),
	    "the top as it was");
	tap_ok(fstatat(fd, "suid", &st, 0) == 0 &&
		(st.st_mode & 07777) == 04755,
	    "modes");
	tap_ok(fstatat(fd, "plain", &st, 0) == 0 &&
		fstatat(fd, "dir/hard", &st2, 0) == 0 &&
		st.st_ino == st2.st_ino,
	    "links");
	close(fd);
	tap_ok(fstatat(state, "seeds", &st, 0) == 0 &&
		(st.st_mode & 0777) == 0700,
	    "where nobody else goes");
	tap_is_int(capture(state, "e", "p/w", &fd, &copied), SP_OK, "again");
	tap_ok(!copied, "without another copy");
	close(fd);
	file(w, "plain", "TEXT");
	tap_is_int(capture(state, "e", "p/w/", &fd, &copied), SP_OK, "changed");
	tap_ok(copied, "it is copied");
	tap_ok(faccessat(state, "seeds/.old-e", F_OK, 0) != 0 &&
		faccessat(state, "seeds/.new-e", F_OK, 0) != 0,
	    "nothing else is left");
	/* a start that was cut short */
	close(fd);
	(void)!unlinkat(state, "seeds/.print-e", 0);
	d = openat(state, "seeds", O_RDONLY | O_CLOEXEC);
	close(sub(d, ".new-e"));
	file(d, ".new-e/half", "half");
	close(sub(d, ".old-e"));
	close(d);
	tap_is_int(capture(state, "e", "p/w", &fd, &copied), SP_OK, "repaired");
	tap_ok(copied && faccessat(fd, "half", F_OK, 0) != 0, "by a copy");
	close(fd);
	close(w);
}

static void
test_memory(int state)
{
	bool copied;
	int i, fd = -1, rc = SP_E_NOMEM;
	struct buf why = BUF_INIT(4096);
	char full[128];

	(void)snprintf(full, sizeof(full), "%s/p/w", top_path);
	for (i = 1; i < 200 && rc == SP_E_NOMEM; i++) {
		(void)!unlinkat(state, "seeds/.print-e", 0);
		mem_fail_after((unsigned long)i, 0);
		rc = seed_capture(state, VIEW("e"), full, &fd, &copied, &why);
		mem_fail_after(0, 0);
		buf_clear(&why);
	}
	tap_ok(rc == SP_OK && i > 5, "without memory it fails (%d)", i);
	fd_close(&fd);
}

static void
test_refused(int state, int parent, int top)
{
	int w = openat(parent, "w", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	bool copied;

	refused(state, "p/none", SP_E_NOTFOUND, "none there");
	refused(state, "none/w", SP_E_NOTFOUND, "nor its parent");
	refused(state, "p/w/plain", SP_E_DENIED, "a file");
	(void)!symlinkat("w", parent, "l");
	refused(state, "p/l", SP_E_DENIED, "a link");
	(void)!fchmod(parent, 0777);
	refused(state, "p/w", SP_E_DENIED, "a parent that all can write");
	(void)!fchmod(parent, 01777);
	tap_is_int(capture(state, "e", "p/w", &fd, &copied), SP_OK,
	    "unless it is sticky");
	fd_close(&fd);
	(void)!fchmod(parent, 0755);
	(void)!mkfifoat(w, "fifo", 0600);
	refused(state, "p/w", SP_E_UNSUPPORTED, "a FIFO in it");
	(void)!unlinkat(w, "fifo", 0);
	if (geteuid() == 0) {
		(void)!fchown(parent, 1234, 1234);
		refused(state, "p/w", SP_E_DENIED, "a parent of another");
		(void)!fchown(parent, 0, 0);
	}
	tap_is_int(capture(state, "../x", "p/w", &fd, &copied), SP_E_ARG,
	    "a name that is a path");
	tap_is_int(capture(state, "", "p/w", &fd, &copied), SP_E_ARG,
	    "no name");
	(void)!fchmodat(state, "seeds", 0755, 0);
	refused(state, "p/w", SP_E_DENIED, "seeds that others may enter");
	(void)!fchmodat(state, "seeds", 0700, 0);
	close(w);
	(void)top;
}

/* A small state_dir, and a mount in the workspace. */
static void
test_mounts(int state)
{
	char small[64], inner[64], big[100 * 1024];
	bool copied;
	int fd, top;

	if (unshare(CLONE_NEWNS) != 0 ||
	    mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0) {
		tap_skip(1, "no mount namespaces");
		return;
	}
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(sub(top, "small"));
	(void)snprintf(small, sizeof(small), "%s/small", top_path);
	(void)!mount("tmpfs", small, "tmpfs", 0, "size=65536");
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	file(top, "p/w/big", big);
	fd = open(small, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	refused(fd, "p/w", SP_E_NOSPC, "a full disk");
	tap_ok(faccessat(fd, "seeds/.new-e", F_OK, 0) != 0, "leaves nothing");
	close(fd);
	(void)!umount2(small, MNT_DETACH);
	(void)!unlinkat(top, "p/w/big", 0);
	close(sub(top, "p/w/inner"));
	(void)snprintf(inner, sizeof(inner), "%s/p/w/inner", top_path);
	(void)!mount(small, inner, "none", MS_BIND, NULL);
	refused(state, "p/w", SP_E_UNSUPPORTED, "a mount in it");
	(void)!umount2(inner, MNT_DETACH);
	tap_is_int(capture(state, "e", "p/w", &fd, &copied), SP_OK, "none");
	fd_close(&fd);
	close(top);
}

int
main(void)
{
	int fd = -1;
	int top, state, parent;

	if (mkdtemp(top_path) == NULL)
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
	state = sub(top, "state");
	parent = sub(top, "p");
	test_capture(state, parent);
	test_memory(state);
	test_refused(state, parent, top);
	if (geteuid() == 0)
		test_mounts(state);
	close(state);
	close(parent);
	(void)!tree_remove(top, 0);
	fd_close(&top);
	(void)!rmdir(top_path);
	return tap_done();
}
