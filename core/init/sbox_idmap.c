#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/sbox_idmap.h"
#include "os/fd.h"

enum { IDMAP_TEXT_MAX = 256 };

static void
map_line(struct buf *out, uint32_t from, uint32_t to, uint32_t n)
{
	if (n > 0)
		/* cannot fail: five lines fit */
		(void)!buf_printf(out, "%u %u %u\n", from, to, n);
}

/* Everything as it is, but a and b change places. */
static void
map_swap(struct buf *out, uint32_t a, uint32_t b)
{
	uint32_t low = a < b ? a : b, high = a < b ? b : a;

	map_line(out, 0, 0, low);
	if (low == high) {
		map_line(out, low, low, 1);
	} else {
		map_line(out, low, high, 1);
		map_line(out, low + 1, low + 1, high - low - 1);
		map_line(out, high, low, 1);
	}
	map_line(out, high + 1, high + 1, UINT32_MAX - 1 - high);
}

static int
map_write(pid_t pid, const char *which, uint32_t a, uint32_t b)
{
	struct buf text = BUF_INIT(IDMAP_TEXT_MAX);
	char path[48];
	int fd, rc;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, which);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	map_swap(&text, a, b);
	/* one write(2): the kernel takes the map at once or not at all */
	rc = fd_write_all(fd, buf_view(&text).p, buf_len(&text));
	buf_clear(&text);
	fd_close(&fd);
	return rc;
}

/* In a user namespace of its own; the maps are the parent's to write. */
static pid_t
idmap_child(void)
{
	struct clone_args args;
	pid_t parent = getpid();
	long pid;

	memset(&args, 0, sizeof(args));
	args.flags = CLONE_NEWUSER;
	args.exit_signal = SIGCHLD;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0) {
		/* killed below, or with the keeper, or it is dead already */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
			while (getppid() == parent)
				(void)pause();
		_exit(1);
	}
	return (pid_t)pid;
}

void
sbox_idmap_ahead(struct sbox *b)
{
	pid_t pid = geteuid() == 0 && b->idmap_pid == 0 ? idmap_child() : 0;

	if (pid > 0)
		b->idmap_pid = pid;
}

void
sbox_idmap_clear(struct sbox *b)
{
	if (b->idmap_pid == 0)
		return;
	/* reaped here only: the number is still its own */
	(void)kill(b->idmap_pid, SIGKILL);
	while (waitpid(b->idmap_pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	b->idmap_pid = 0;
}

/* A user namespace with those maps; the child that made it is gone again. */
static int
idmap_namespace(struct sbox_why *w, struct sbox *b, const struct stat *top,
    int *out)
{
	char path[48];
	int rc;

	if (b->idmap_pid == 0)
		b->idmap_pid = idmap_child();
	if (b->idmap_pid < 0) {
		b->idmap_pid = 0;
		return sbox_why_errno(w, errno, "user namespace for the seed");
	}
	rc = map_write(b->idmap_pid, "uid_map", top->st_uid, b->uid);
	if (rc == SP_OK)
		rc = map_write(b->idmap_pid, "gid_map", top->st_gid, b->gid);
	if (rc != SP_OK)
		(void)sbox_why_rc(w, rc, "map of the seed's owner");
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user",
	    (int)b->idmap_pid);
	if (rc == SP_OK) {
		*out = open(path, O_RDONLY | O_CLOEXEC);
		if (*out < 0)
			rc = sbox_why_errno(w, errno, "%s", path);
	}
	sbox_idmap_clear(b);
	return rc;
}

int
sbox_idmap(struct sbox_why *w, struct sbox *b, int mnt)
{
	struct mount_attr a;
	struct stat top;
	int ns = -1, rc;

	if (fstat(mnt, &top) != 0)
		return sbox_why_errno(w, errno, "top of the seed");
	if (top.st_uid == b->uid && top.st_gid == b->gid)
		return SP_OK;
	rc = idmap_namespace(w, b, &top, &ns);
	if (rc != SP_OK)
		return rc;
	memset(&a, 0, sizeof(a));
	a.attr_set = MOUNT_ATTR_IDMAP;
	a.userns_fd = (uint64_t)ns;
	if (mount_setattr(mnt, "", AT_EMPTY_PATH, &a, sizeof(a)) != 0)
		rc = sbox_why_errno(w, errno,
		    "the filesystem cannot show files under another owner "
		    "(idmapped mounts); keep the seed on ext4, xfs or btrfs");
	fd_close(&ns);
	return rc;
}
