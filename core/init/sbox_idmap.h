/* Making what belongs to one user belong to another: idmapped mounts. */
#ifndef SP_INIT_SBOX_IDMAP_H
#define SP_INIT_SBOX_IDMAP_H

#include "init/sbox.h"

/*
 * Presents a tree as the sandbox's own: the owner and group of its top change
 * places with the sandbox's uid and gid, all others stay.  Does nothing where
 * they are the same already.
 * Source:  mount_setattr(2), MOUNT_ATTR_IDMAP; user_namespaces(7).
 * Context: keeper, with privilege; blocks for a short-lived child.
 * Parameters: mnt, a mount that nobody has seen yet.
 * Returns: 0; SP_E_* with *w: a filesystem or kernel that cannot.
 */
int sbox_idmap(struct sbox_why *w, struct sbox *b, int mnt) must_check;

/*
 * Starts the child that sbox_idmap() needs, before it is known whether it
 * does: only one with root's rights has any use for it.
 * Owner:   sbox_idmap(), or sbox_idmap_clear(), which ends it.
 */
void sbox_idmap_ahead(struct sbox *b);
void sbox_idmap_clear(struct sbox *b);

#endif
