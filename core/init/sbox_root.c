#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/sbox_dev.h"
#include "init/sbox_etc.h"
#include "init/sbox_mount.h"
#include "init/sbox_proc.h"
#include "init/sbox_root.h"
#include "os/fd.h"

enum {
	ROOT_BYTES = 1024 * 1024, /* of directories and generated files */
	ROOT_INODES = 4096,
	RO = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
	RW = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
};

/* ---- the bottom ------------------------------------------------------------ */

/*
 * An image: below a small layer of our own, in which what is missing (places
 * to mount on, /etc/hosts) can be made.
 */
static int
bottom_image(const struct sbox *b, struct sbox_why *w, int *root)
{
	static const char *const options[] = { "lowerdir", "image", "upperdir",
		"root/upper", "workdir", "root/work", "metacopy", "off", NULL };
	static const char *const user[] = { "lowerdir", "image", "upperdir",
		"root/upper", "workdir", "root/work", "userxattr", NULL, NULL };
	const struct sbox_mount_fs fs = { "overlay",
		b->spec->flags & SANDBOX_USERNS ? user : options, RW };
	struct sbox_mount_from from = { AT_FDCWD, NULL, AT_RECURSIVE, RO };
	int image = -1, rc;

	from.path = sbox_text(b, b->spec->rootfs);
	if (from.path == NULL)
		return sbox_why_errno(w, ENOMEM, "rootfs");
	if (mkdir("image", 0755) != 0 || mkdir("root/upper", 0755) != 0 ||
	    mkdir("root/work", 0755) != 0)
		return sbox_why_errno(w, errno, "rootfs");
	rc = sbox_mount_clone(w, &from, &image);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, image, AT_FDCWD, "image");
	if (rc == SP_OK)
		rc = sbox_mount_new(w, &fs, root);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, *root, AT_FDCWD, "root");
	fd_close(&image);
	return rc;
}

static int
bottom(const struct sbox *b, struct sbox_why *w, int *root)
{
	const struct sbox_mount_tmpfs t = { ROOT_BYTES, ROOT_INODES, 0755,
		b->spec->flags & SANDBOX_USERNS ? b->uid : 0,
		b->spec->flags & SANDBOX_USERNS ? b->gid : 0, RW };
	int rc = sbox_mount_tmpfs(w, &t, root);

	if (rc == SP_OK)
		rc = sbox_mount_attach(w, *root, AT_FDCWD, "root");
	if (rc == SP_OK && b->spec->rootfs.n > 0) {
		fd_close(root);
		rc = bottom_image(b, w, root);
	}
	return rc;
}

/* ---- read-only ------------------------------------------------------------- */

/* A link of the host's (/bin -> usr/bin) stays one. */
static int
copy_link(struct sbox_why *w, int root, const char *path)
{
	char target[SANDBOX_MSG_PATH_MAX + 1], parent[SANDBOX_MSG_PATH_MAX + 1];
	const char *name = strrchr(path, '/');
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	int dir = -1, rc = SP_OK;

	if (n < 0)
		return sbox_why_errno(w, errno, "%s", path);
	target[n] = '\0';
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)(name - path),
	    path);
	if (parent[0] != '\0')
		rc = sbox_mount_place(w, root, parent, SBOX_MOUNT_DIR, &dir);
	if (rc == SP_OK &&
	    symlinkat(target, parent[0] != '\0' ? dir : root, name + 1) != 0 &&
	    errno != EEXIST)
		rc = sbox_why_errno(w, errno, "%s: link", path);
	fd_close(&dir);
	return rc;
}

static int
bind_one(struct sbox_why *w, int root, const char *path)
{
	const struct sbox_mount_from from = { AT_FDCWD, path, AT_RECURSIVE,
		RO };
	int mnt = -1, at = -1, rc;
	struct stat st;

	if (lstat(path, &st) != 0)
		/* /lib64, not everywhere; the helper has looked at others */
		return errno == ENOENT ? SP_OK
				       : sbox_why_errno(w, errno, "%s", path);
	if (S_ISLNK(st.st_mode))
		return copy_link(w, root, path);
	rc = sbox_mount_clone(w, &from, &mnt);
	if (rc == SP_OK)
		rc = sbox_mount_place(w, root, path,
		    S_ISDIR(st.st_mode) ? SBOX_MOUNT_DIR : SBOX_MOUNT_FILE,
		    &at);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, at, "");
	fd_close(&at);
	fd_close(&mnt);
	return rc;
}

/* Who does not know the name finds nothing there: no list, nor by a link. */
static int
bind_assets(const struct sbox *b, struct sbox_why *w, int root)
{
	static const char dir[] = "openenvd";
	const struct view name = b->spec->assets;
	const char *path;
	int at = -1, rc;

	if (b->assets_mnt < 0)
		return SP_OK;
	path = arena_printf(b->arena, "/%s/%.*s", dir,
	    VIEW_ARG(name.n > 0 ? name : VIEW("assets")));
	if (path == NULL)
		return sbox_why_errno(w, ENOMEM, "assets");
	rc = sbox_mount_place(w, root, path, SBOX_MOUNT_DIR, &at);
	if (rc == SP_OK && fchmodat(root, dir, 0711, 0) != 0)
		rc = sbox_why_errno(w, errno, "/%s", dir);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, b->assets_mnt, at, "");
	fd_close(&at);
	return rc;
}

/* ---- writable -------------------------------------------------------------- */

static bool
is_listed(const struct sandbox_list *l, const char *path)
{
	size_t i;

	for (i = 0; i < l->n; i++)
		if (view_eq(l->v[i], view_str(path)))
			return true;
	return false;
}

const char *
sbox_root_writable(const struct sbox *b, size_t i)
{
	const struct sandbox_list *l = &b->spec->read_write;

	switch (i) {
	case 0:
		return "/workspace";
	case 1:
		return sbox_home(b);
	case 2:
		return "/dev/shm";
	case 3:
		if (!is_listed(l, "/tmp"))
			return "/tmp";
		break;
	default:
		break;
	}
	if (!is_listed(l, "/tmp"))
		i--;
	return i - 3 < l->n ? sbox_text(b, l->v[i - 3]) : NULL;
}

static bool
is_shared_dir(const char *path)
{
	return strcmp(path, "/tmp") == 0 || strcmp(path, "/var/tmp") == 0 ||
	    strcmp(path, "/run/lock") == 0;
}

/* Each is a filesystem of its own: full is full there alone. */
static int
private_dir(const struct sbox *b, struct sbox_why *w, int root,
    const char *path)
{
	struct sbox_mount_tmpfs t = { b->spec->tmp_bytes, b->spec->tmp_inodes,
		is_shared_dir(path) ? 01777 : 0770, b->uid, b->gid, RW };
	int mnt = -1, at = -1, rc;

	rc = sbox_mount_tmpfs(w, &t, &mnt);
	if (rc == SP_OK)
		rc = sbox_mount_place(w, root, path, SBOX_MOUNT_DIR, &at);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, at, "");
	fd_close(&at);
	fd_close(&mnt);
	return rc;
}

static int
bind_workspace(struct sbox_why *w, int root)
{
	const struct sbox_mount_from from = { AT_FDCWD, "merged", 0, RW };
	int mnt = -1, at = -1, rc;

	rc = sbox_mount_clone(w, &from, &mnt);
	if (rc == SP_OK)
		rc = sbox_mount_place(w, root, "/workspace", SBOX_MOUNT_DIR,
		    &at);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, at, "");
	fd_close(&at);
	fd_close(&mnt);
	return rc;
}

/* ---- in which order -------------------------------------------------------- */

enum place { PLACE_BIND, PLACE_PRIVATE, PLACE_WORKSPACE };

struct entry {
	const char *path;
	size_t n;
	enum place place;
};

/* The shorter first: what lies in another comes after it. */
static int
entry_order(const void *pa, const void *pb)
{
	const struct entry *a = pa, *b = pb;

	if (a->n != b->n)
		return a->n < b->n ? -1 : 1;
	return a->place < b->place ? -1 : a->place > b->place;
}

static struct entry *
entries(const struct sbox *b, size_t *n)
{
	const struct sandbox_list *ro = &b->spec->read_only;
	size_t max = ro->n + b->spec->read_write.n + 4, i;
	struct entry *e = arena_zalloc(b->arena, max * sizeof(*e));
	const char *path;

	*n = 0;
	if (e == NULL)
		return NULL;
	for (i = 0; i < ro->n; i++) {
		e[*n].path = sbox_text(b, ro->v[i]);
		if (e[*n].path == NULL)
			return NULL;
		e[*n].n = ro->v[i].n;
		e[(*n)++].place = PLACE_BIND;
	}
	for (i = 0; *n < max; i++) {
		path = sbox_root_writable(b, i);
		if (path == NULL)
			break;
		if (strcmp(path, "/dev/shm") == 0)
			continue; /* comes with /dev */
		e[*n].path = path;
		e[*n].n = strlen(path);
		e[(*n)++].place = i == 0 ? PLACE_WORKSPACE : PLACE_PRIVATE;
	}
	qsort(e, *n, sizeof(*e), entry_order);
	return e;
}

static int
mount_entries(const struct sbox *b, struct sbox_why *w, int root)
{
	struct entry *e;
	size_t i, n;
	int rc = SP_OK;

	e = entries(b, &n);
	if (e == NULL)
		return sbox_why_errno(w, ENOMEM, "paths");
	for (i = 0; i < n && rc == SP_OK; i++) {
		switch (e[i].place) {
		case PLACE_BIND:
			rc = bind_one(w, root, e[i].path);
			break;
		case PLACE_PRIVATE:
			rc = private_dir(b, w, root, e[i].path);
			break;
		case PLACE_WORKSPACE:
			rc = bind_workspace(w, root);
			break;
		}
	}
	return rc;
}

/* ---- all ------------------------------------------------------------------- */

/*
 * Who joins the mount namespace later gets what is mounted topmost as its
 * root: that must be ours.  ".." of the root leads there, too.
 */
static int
nothing_above(struct sbox_why *w)
{
	struct stat root, top;

	if (stat("/", &root) != 0 || stat("/..", &top) != 0)
		return sbox_why_errno(w, errno, "/");
	if (root.st_dev != top.st_dev || root.st_ino != top.st_ino)
		return sbox_why_errno(w, EBUSY,
		    "the host's root is still there");
	return SP_OK;
}

static int
become_root(struct sbox_why *w, int root)
{
	int rc = sbox_why_stage(w, SANDBOX_STAGE_PIVOT);

	if (rc == SP_OK)
		rc = sbox_mount_set(w, root, MOUNT_ATTR_RDONLY);
	if (rc != SP_OK)
		return rc;
	if (fchdir(root) != 0)
		return sbox_why_errno(w, errno, "new root");
	/* pivot_root(2), "pivot_root(".", ".")": the old root on the new */
	if (syscall(SYS_pivot_root, ".", ".") != 0)
		return sbox_why_errno(w, errno,
		    "pivot_root (not from an initial ramfs)");
	/* on it lie, from above, the keeper's scratch and the host's root */
	if (umount2(".", MNT_DETACH) != 0)
		return sbox_why_errno(w, errno, "leaving the scratch");
	if (umount2(".", MNT_DETACH) != 0)
		return sbox_why_errno(w, errno, "leaving the host's root");
	if (chdir("/") != 0)
		return sbox_why_errno(w, errno, "/");
	return nothing_above(w);
}

int
sbox_root_build(const struct sbox *b, struct sbox_why *w)
{
	int root = -1, rc = sbox_why_stage(w, SANDBOX_STAGE_ROOT);

	if (rc == SP_OK)
		rc = bottom(b, w, &root);
	if (rc == SP_OK)
		rc = mount_entries(b, w, root);
	if (rc == SP_OK)
		rc = sbox_etc_make(b, w, root);
	if (rc == SP_OK)
		rc = bind_assets(b, w, root);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_DEV);
	if (rc == SP_OK)
		rc = sbox_dev_make(b, w, root);
	if (rc == SP_OK)
		rc = sbox_why_stage(w, SANDBOX_STAGE_PROC);
	if (rc == SP_OK)
		rc = sbox_proc_make(w, root);
	if (rc == SP_OK)
		rc = become_root(w, root);
	fd_close(&root);
	return rc;
}
