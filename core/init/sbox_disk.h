/* A workspace's upper layer on a disk, bounded by a file system of its own. */
#ifndef SP_INIT_SBOX_DISK_H
#define SP_INIT_SBOX_DISK_H

#include "init/sbox.h"

/*
 * Makes a file without a name in the directory that was given, a file system
 * in it, and a mount of that which is nowhere yet.  Neither file nor loop
 * device outlives the mount, whoever dies.
 * Source:  open(2), O_TMPFILE; loop(4), LOOP_CONFIGURE, LO_FLAGS_AUTOCLEAR.
 * Context: keeper, in its own mount namespace; blocks on the disk.
 * Owner:   *mnt is the caller's.
 * Returns: 0; SP_E_* with *w.
 */
int sbox_disk_make(const struct sbox *b, struct sbox_why *w,
    int *mnt) must_check;
/*
 * Nobody will read it again: what was not written to the disk yet need not
 * be, however much it is.
 * Source:  ext4's EXT4_IOC_SHUTDOWN.
 */
void sbox_disk_drop(const struct sbox *b);

#endif
