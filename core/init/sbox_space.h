/* The keeper's own place in the world: mount and user namespace. */
#ifndef SP_INIT_SBOX_SPACE_H
#define SP_INIT_SBOX_SPACE_H

#include "init/sbox.h"

/*
 * Leaves the mount namespace shared with the helper, nothing mounted from now
 * on being seen outside; with SANDBOX_USERNS first into a user namespace (the
 * owner of the given network namespace, or a new one with one uid), and sets
 * the box's uids to what is there.
 * Source:  mount_namespaces(7), user_namespaces(7), ioctl_ns(2).
 * Context: keeper, single-threaded; once.
 */
int sbox_space_enter(struct sbox *b, struct sbox_why *w) must_check;

/*
 * A clone of the directory that was given by descriptor, opened again in the
 * keeper's own mount namespace, as the kernel mounts only from there.
 * Parameters: attr, MOUNT_ATTR_*.
 * Returns: 0; SP_E_NOTFOUND it is no longer where it was; SP_E_* with *w.
 */
int sbox_space_adopt(struct sbox_why *w, int given, unsigned attr,
    int *mnt) must_check;

#endif
