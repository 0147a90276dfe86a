/* The small files in a control group's directory. */
#ifndef SP_OS_CGROUP_CTL_H
#define SP_OS_CGROUP_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

enum { CGROUP_CTL_MAX = 1024 * 1024 }; /* bytes of one file: cgroup.procs */

/*
 * Source:  cgroups(7), the kernel's cgroup-v1 and cgroup-v2 documents.
 * Context: helper, keeper; blocks as the kernel does.
 * Parameters: dir, the group's directory; file, a name in it.
 * Returns: 0; SP_E_NOTFOUND no such file (a kernel or a version without it);
 *          SP_E_STATE busy; SP_E_DENIED; SP_E_SYNTAX not as documented;
 *          SP_E_*.
 */
int cgroup_ctl_write(int dir, const char *file, const char *text) must_check;
int cgroup_ctl_write_u64(int dir, const char *file, uint64_t v) must_check;
/* The whole file; out's content is replaced. */
int cgroup_ctl_read(int dir, const char *file, struct buf *out) must_check;
/* A file of one number; "max" is UINT64_MAX. */
int cgroup_ctl_u64(int dir, const char *file, uint64_t *v) must_check;
/* The number behind a key, in lines of "key number". */
int cgroup_ctl_key(int dir, const char *file, const char *key,
    uint64_t *v) must_check;
/* The same in a text that was read. */
int cgroup_ctl_find(struct view text, const char *key, uint64_t *v) must_check;
/* True when the text has that word between blanks. */
bool cgroup_ctl_word(struct view text, const char *word);
/* Opens a directory in dir, made when it is missing. */
int cgroup_ctl_dir(int dir, const char *name, int *out) must_check;

#endif
