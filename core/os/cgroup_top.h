/* Where in the v2 tree a daemon that root started makes its groups. */
#ifndef SP_OS_CGROUP_TOP_H
#define SP_OS_CGROUP_TOP_H

#include <stdbool.h>

/*
 * Whether the top of the tree serves better than the group in which the
 * caller is: that one is shared with processes of others, as that of a login
 * is, and so can bound no group beneath it, or it was passed less.  Not where
 * memory or cpu of it, or of what it nests in, are bounded, as a container's
 * are: nothing is to get out of that.
 * Source:  cgroups(7), "no internal processes".
 * Context: helper, at start; blocks on the file system.
 * Parameters: base, top, directories of one tree, base beneath top.
 * Owner:   both are borrowed.
 * Returns: true; false also when it cannot be told.
 */
bool cgroup_top_better(int base, int top);

#endif
