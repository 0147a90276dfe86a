/* Mounts by descriptor: made or cloned first, attached when they are whole. */
#ifndef SP_INIT_SBOX_MOUNT_H
#define SP_INIT_SBOX_MOUNT_H

#include <stdint.h>
#include <sys/types.h>

#include "init/sbox_why.h"

/* All: blocks on the file system; a new descriptor is the caller's. */

struct sbox_mount_fs {
	const char *type;
	const char *const *options; /* name, value or NULL, ..., NULL */
	unsigned attr; /* MOUNT_ATTR_* */
};
/*
 * A mount that is nowhere yet.
 * Source:  fsopen(2), fsconfig(2), fsmount(2).
 */
int sbox_mount_new(struct sbox_why *w, const struct sbox_mount_fs *fs,
    int *out) must_check;

struct sbox_mount_tmpfs {
	uint64_t bytes, inodes;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	unsigned attr;
};
int sbox_mount_tmpfs(struct sbox_why *w, const struct sbox_mount_tmpfs *t,
    int *out) must_check;

/*
 * A copy of what is mounted at a path, with attributes set before anybody can
 * see it.
 * Source:  open_tree(2), mount_setattr(2).
 * Parameters: path, "" for dir itself; flags, AT_RECURSIVE,
 *          AT_SYMLINK_NOFOLLOW or 0; attr, to set.
 */
struct sbox_mount_from {
	int dir;
	const char *path;
	unsigned flags;
	unsigned attr;
};
int sbox_mount_clone(struct sbox_why *w, const struct sbox_mount_from *from,
    int *out) must_check;
/* Sets attributes of one mount, without those beneath it. */
int sbox_mount_set(struct sbox_why *w, int mnt, unsigned attr) must_check;

/*
 * Attaches at dir/path ("" for dir itself, a file's or directory's O_PATH
 * descriptor).
 * Source:  move_mount(2).
 */
int sbox_mount_attach(struct sbox_why *w, int mnt, int dir,
    const char *path) must_check;

/*
 * Opens what is there beneath a root.  Links are followed as if the root were
 * "/": whatever an image holds, it does not lead out.  A path through
 * "/proc/PID/root" would: its links are the caller's own root's.
 * Source:  openat2(2), RESOLVE_IN_ROOT.
 * Returns: a descriptor, or -1 with errno.
 */
int sbox_mount_open(int root, const char *path, int flags) must_check;

enum sbox_mount_kind { SBOX_MOUNT_DIR, SBOX_MOUNT_FILE };
/*
 * Opens (O_PATH) a place beneath a root, made with its parents when it is
 * missing, by sbox_mount_open().
 */
int sbox_mount_place(struct sbox_why *w, int root, const char *path,
    enum sbox_mount_kind kind, int *out) must_check;

#endif
