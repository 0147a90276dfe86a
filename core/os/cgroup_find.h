/* Where control groups are mounted, and which of them are this process's. */
#ifndef SP_OS_CGROUP_FIND_H
#define SP_OS_CGROUP_FIND_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/*
 * Both read a text of the kernel.  controller: a v1 one ("memory"), or NULL
 * for the v2 tree.
 * Context: any, does not block.
 */

/*
 * The process's group in a text like /proc/self/cgroup, absolute.
 * Source:  cgroups(7).
 * Returns: 0 with *group borrowed from the text; SP_E_NOTFOUND.
 */
int cgroup_find_group(struct view text, const char *controller,
    struct view *group) must_check;

/*
 * The directory of a group, by a text like /proc/self/mountinfo: the first
 * mount that shows it.
 * Source:  proc_pid_mountinfo(5).
 * Parameters: group, absolute, as its hierarchy calls it; empty: the mount
 *          itself.
 * Returns: 0, the path appended to out; SP_E_NOTFOUND no such mount, or none
 *          that shows the group; SP_E_LIMIT; SP_E_NOMEM.
 */
int cgroup_find_mount(struct view text, const char *controller,
    struct view group, struct buf *out) must_check;

#endif
