/* Owner, mode, times and extended attributes of one entry of a tree. */
#ifndef SP_OS_TREE_ATTR_H
#define SP_OS_TREE_ATTR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/*
 * Source:  chown(2), chmod(2), utimensat(2), xattr(7), overlayfs of the
 *          kernel's documents.
 * Context: keeper or a short-lived child; blocks on the file system.
 * Parameters: dir, name, of the new entry, which nobody else can reach; st, of
 *          the old one.
 * Returns: 0; SP_E_DENIED; SP_E_NOSPC; SP_E_*.
 */

/*
 * Owner, then mode with set-id bits (a change of owner clears them), then
 * times.  An unprivileged caller that may not give files away keeps them.
 */
int tree_attr_set(int dir, const char *name, const struct stat *st) must_check;
/*
 * Those that count: user.*, POSIX ACLs, and with overlay what makes a
 * directory opaque; never security.* or trusted.*, and never user.overlay.*
 * without overlay, since it would come to life in a lower layer.
 * Parameters: from, to, descriptors of both; *skipped, counts those that the
 *          new file system has no place for.
 */
int tree_attr_copy(int from, int to, bool overlay,
    uint64_t *skipped) must_check;
/* Whether a directory of an upper layer hides the lower one's. */
bool tree_attr_opaque(int fd, bool userxattr);

#endif
