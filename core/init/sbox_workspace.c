#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "init/sbox_copy.h"
#include "init/sbox_disk.h"
#include "init/sbox_idmap.h"
#include "init/sbox_mount.h"
#include "init/sbox_space.h"
#include "init/sbox_workspace.h"
#include "os/fd.h"

enum {
	SPACE_OWN_BYTES = 256 * 1024, /* of the scratch itself */
	SPACE_OWN_INODES = 64,
	SPACE_COPY_INODES = 64, /* of a full copy from which links are taken */
};

/* Read-only, and the sandbox's own. */
static int
adopt(struct sbox *b, struct sbox_why *w, enum sandbox_fd which, int *mnt)
{
	int rc;

	if (b->give[which] < 0)
		return SP_OK;
	rc = sbox_space_adopt(w, b->give[which],
	    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, mnt);
	if (rc == SP_OK && !(b->spec->flags & SANDBOX_USERNS))
		rc = sbox_idmap(w, b, *mnt);
	return rc;
}

int
sbox_workspace_adopt(struct sbox *b, struct sbox_why *w)
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_IDMAP);

	if (rc == SP_OK)
		rc = adopt(b, w, SANDBOX_FD_SEED, &b->seed_mnt);
	if (rc == SP_OK)
		rc = adopt(b, w, SANDBOX_FD_ASSETS, &b->assets_mnt);
	/* one that was made ahead, and not for this */
	sbox_idmap_clear(b);
	return rc;
}

static int
open_dir(struct sbox_why *w, const char *name, int *out)
{
	*out = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*out < 0)
		return sbox_why_errno(w, errno, "%s", name);
	return SP_OK;
}

static int
make_dir(struct sbox_why *w, const char *name, mode_t mode)
{
	if (mkdir(name, mode) != 0)
		return sbox_why_errno(w, errno, "%s", name);
	return SP_OK;
}

/*
 * A tmpfs over "/" in this namespace: nobody whose root is beneath sees it,
 * and no directory of the host is needed to mount on.
 */
static int
make_scratch(struct sbox *b, struct sbox_why *w)
{
	struct sbox_mount_tmpfs t = { SPACE_OWN_BYTES, SPACE_OWN_INODES, 0755,
		b->spec->flags & SANDBOX_USERNS ? b->uid : 0,
		b->spec->flags & SANDBOX_USERNS ? b->gid : 0,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	int rc;

	if (b->give[SANDBOX_FD_WORKSPACE] < 0 && b->give[SANDBOX_FD_DISK] < 0) {
		t.bytes += b->spec->workspace_bytes;
		t.inodes += b->spec->workspace_inodes;
		if (b->give[SANDBOX_FD_UPPER] >= 0)
			t.inodes += SPACE_COPY_INODES;
	}
	rc = sbox_mount_tmpfs(w, &t, &b->scratch);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, b->scratch, AT_FDCWD, "/");
	if (rc == SP_OK && fchdir(b->scratch) != 0)
		rc = sbox_why_errno(w, errno, "scratch");
	if (rc == SP_OK)
		rc = make_dir(w, "root", 0755);
	if (rc == SP_OK)
		rc = make_dir(w, "merged", 0755);
	return rc;
}

/* Where the upper layer lies: "." (the scratch), or "disk". */
static int
make_layers(struct sbox *b, struct sbox_why *w)
{
	bool disk = b->give[SANDBOX_FD_DISK] >= 0;
	int mnt = -1, rc;

	rc = make_dir(w, "lower", 0755);
	if (rc == SP_OK && disk)
		rc = make_dir(w, "disk", 0755);
	if (rc == SP_OK && disk)
		rc = sbox_disk_make(b, w, &mnt);
	if (rc == SP_OK && disk)
		rc = sbox_mount_attach(w, mnt, AT_FDCWD, "disk");
	fd_close(&mnt);
	if (rc == SP_OK)
		rc = make_dir(w, disk ? "disk/upper" : "upper", 0775);
	/* a volatile overlay takes its work directory only once: always new */
	if (rc == SP_OK)
		rc = make_dir(w, disk ? "disk/work" : "work", 0700);
	if (rc == SP_OK)
		rc = open_dir(w, disk ? "disk/upper" : "upper", &b->upper);
	return rc;
}

/*
 * The top of the merged tree is the upper layer's: with the seed's mode, but
 * open to the group, in which agent and worker meet, and handing it down.
 */
static int
own_top(const struct sbox *b, struct sbox_why *w)
{
	mode_t mode = 0775;
	struct stat seed;

	if (b->give[SANDBOX_FD_SEED] >= 0) {
		if (fstat(b->lower, &seed) != 0)
			return sbox_why_errno(w, errno, "seed");
		mode = seed.st_mode & 0777;
	}
	if (fchown(b->upper, b->uid, b->gid) != 0 ||
	    fchmod(b->upper, mode | 0070 | S_ISGID) != 0)
		return sbox_why_errno(w, errno, "owner of the workspace");
	return SP_OK;
}

/*
 * Not as root with userxattr, as then the workload's own user.overlay.*
 * would count; nfs_export and index are what fanotify needs to name files.
 */
static int
mount_overlay(struct sbox *b, struct sbox_why *w)
{
	bool disk = b->give[SANDBOX_FD_DISK] >= 0;
	const char *upper = disk ? "disk/upper" : "upper";
	const char *work = disk ? "disk/work" : "work";
	const char *const rooted[] = { "lowerdir", "lower", "upperdir", upper,
		"workdir", work, "volatile", NULL, "index", "on", "nfs_export",
		"on", "metacopy", "off", NULL };
	const char *const user[] = { "lowerdir", "lower", "upperdir", upper,
		"workdir", work, "volatile", NULL, "userxattr", NULL,
		"metacopy", "off", NULL };
	const struct sbox_mount_fs fs = { "overlay",
		b->spec->flags & SANDBOX_USERNS ? user : rooted,
		MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	int mnt = -1, rc;

	rc = sbox_mount_new(w, &fs, &mnt);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, AT_FDCWD, "merged");
	fd_close(&mnt);
	return rc;
}

static int
make_overlay(struct sbox *b, struct sbox_why *w)
{
	int rc = make_layers(b, w);

	if (rc == SP_OK && b->seed_mnt >= 0)
		rc = sbox_mount_attach(w, b->seed_mnt, AT_FDCWD, "lower");
	if (rc == SP_OK)
		rc = open_dir(w, "lower", &b->lower);
	if (rc == SP_OK && b->give[SANDBOX_FD_UPPER] >= 0)
		rc = sbox_copy_upper(b, w);
	if (rc == SP_OK)
		rc = own_top(b, w);
	if (rc == SP_OK)
		rc = mount_overlay(b, w);
	return rc;
}

int
sbox_workspace_make(struct sbox *b, struct sbox_why *w)
{
	int rc = make_scratch(b, w);

	if (rc == SP_OK)
		rc = b->give[SANDBOX_FD_WORKSPACE] >= 0
		    ? sbox_mount_attach(w, b->give[SANDBOX_FD_WORKSPACE],
			  AT_FDCWD, "merged")
		    : make_overlay(b, w);
	if (rc == SP_OK)
		rc = open_dir(w, "merged", &b->merged);
	return rc;
}

int
sbox_workspace_share(const struct sbox *b, struct sbox_why *w, int *out)
{
	const struct sbox_mount_from from = { b->merged, "", 0, 0 };

	return sbox_mount_clone(w, &from, out);
}

void
sbox_workspace_clear(struct sbox *b)
{
	sbox_disk_drop(b);
	fd_close(&b->merged);
	fd_close(&b->upper);
	fd_close(&b->lower);
	if (b->scratch < 0)
		return;
	/* beneath "." after it is detached: gone with the chdir */
	if (fchdir(b->scratch) == 0)
		(void)umount2(".", MNT_DETACH);
	(void)!chdir("/");
	fd_close(&b->scratch);
}
