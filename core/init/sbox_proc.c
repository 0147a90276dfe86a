#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/sbox_mount.h"
#include "init/sbox_proc.h"
#include "os/fd.h"

enum mask { MASK_READ_ONLY, MASK_HIDDEN };

/* What is not there is left out. */
static const struct {
	const char *name;
	enum mask mask;
} masks[] = {
	{ "sys", MASK_READ_ONLY }, /* settings of the kernel */
	{ "sysrq-trigger", MASK_READ_ONLY },
	{ "irq", MASK_READ_ONLY },
	{ "bus", MASK_READ_ONLY },
	{ "fs", MASK_READ_ONLY },
	{ "acpi", MASK_HIDDEN },
	{ "asound", MASK_HIDDEN },
	{ "scsi", MASK_HIDDEN },
	{ "driver", MASK_HIDDEN },
	{ "kcore", MASK_HIDDEN }, /* memory of the kernel */
	{ "kmsg", MASK_HIDDEN },
	{ "kallsyms", MASK_HIDDEN }, /* where in it things lie */
	{ "modules", MASK_HIDDEN },
	{ "config.gz", MASK_HIDDEN }, /* what it is made of */
	{ "cmdline", MASK_HIDDEN }, /* and was told */
	{ "iomem", MASK_HIDDEN },
	{ "ioports", MASK_HIDDEN },
	{ "vmallocinfo", MASK_HIDDEN },
	{ "slabinfo", MASK_HIDDEN },
	{ "kpagecount", MASK_HIDDEN },
	{ "kpageflags", MASK_HIDDEN },
	{ "kpagecgroup", MASK_HIDDEN },
	{ "keys", MASK_HIDDEN }, /* of everybody on the host */
	{ "key-users", MASK_HIDDEN },
	{ "timer_list", MASK_HIDDEN }, /* what others are doing */
	{ "sched_debug", MASK_HIDDEN },
	{ "latency_stats", MASK_HIDDEN },
	{ "interrupts", MASK_HIDDEN },
	{ "locks", MASK_HIDDEN },
	{ "pressure", MASK_HIDDEN },
	{ "diskstats", MASK_HIDDEN },
	{ "partitions", MASK_HIDDEN },
	{ "mtrr", MASK_HIDDEN },
};

enum { HIDDEN_BYTES = 4096, HIDDEN_INODES = 8 };
enum { HIDE_NODES = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };

/*
 * Read-only, on itself; or an empty file or directory of ours over it.
 */
static int
mask_one(struct sbox_why *w, int proc, size_t i)
{
	struct sbox_mount_from from = { proc, masks[i].name, 0,
		HIDE_NODES | MOUNT_ATTR_RDONLY };
	int mnt = -1, rc;
	struct stat st;

	if (fstatat(proc, masks[i].name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT
		    ? SP_OK
		    : sbox_why_errno(w, errno, "/proc/%s", masks[i].name);
	if (masks[i].mask == MASK_HIDDEN) {
		from.dir = AT_FDCWD;
		from.path = S_ISDIR(st.st_mode) ? "hidden/dir" : "hidden/file";
	}
	rc = sbox_mount_clone(w, &from, &mnt);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, proc, masks[i].name);
	fd_close(&mnt);
	return rc;
}

/* A tiny filesystem on the scratch, from which only the clones remain. */
static int
make_hidden(struct sbox_why *w)
{
	const struct sbox_mount_tmpfs t = { HIDDEN_BYTES, HIDDEN_INODES, 0755,
		geteuid(), getegid(), HIDE_NODES };
	int fd = -1, rc;

	if (mkdir("hidden", 0755) != 0)
		return sbox_why_errno(w, errno, "masks");
	rc = sbox_mount_tmpfs(w, &t, &fd);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, fd, AT_FDCWD, "hidden");
	fd_close(&fd);
	if (rc != SP_OK)
		return rc;
	if (mkdir("hidden/dir", 0555) != 0)
		return sbox_why_errno(w, errno, "masks");
	fd = open("hidden/file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return sbox_why_errno(w, errno, "masks");
	fd_close(&fd);
	return SP_OK;
}

int
sbox_proc_make(struct sbox_why *w, int root)
{
	static const struct sbox_mount_fs fs = { "proc", NULL, HIDE_NODES };
	int proc = -1, at = -1, rc;
	size_t i;

	rc = make_hidden(w);
	if (rc == SP_OK)
		rc = sbox_mount_new(w, &fs, &proc);
	if (rc == SP_OK)
		rc = sbox_mount_place(w, root, "/proc", SBOX_MOUNT_DIR, &at);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, proc, at, "");
	for (i = 0; i < sizeof(masks) / sizeof(masks[0]) && rc == SP_OK; i++)
		rc = mask_one(w, proc, i);
	fd_close(&at);
	fd_close(&proc);
	return rc;
}
