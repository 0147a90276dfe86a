/* The paths of directories whose handles the kernel names, as far as known. */
#ifndef SP_INIT_FS_DIRS_H
#define SP_INIT_FS_DIRS_H

#include "base/err.h"
#include "base/view.h"

enum {
	FS_DIRS_MAX = 16384, /* directories */
	FS_DIRS_BYTES = 1024 * 1024, /* of all their paths together */
};

struct fs_dirs;

/*
 * A cache: what was forgotten is asked for again.  Its memory is the
 * service's, not the sandbox's, and its content the workload's, so it is
 * bounded in both ways.
 * Context: any, does not block.
 * Owner:   fs_dirs_free().
 */
struct fs_dirs *fs_dirs_new(void) must_check; /* NULL: no memory */
void fs_dirs_free(struct fs_dirs *d); /* NULL allowed */
/* Its path, borrowed until the next change, or NULL. */
const char *fs_dirs_find(const struct fs_dirs *d, struct view key);
/* Once it is full all others are forgotten; without memory this one. */
void fs_dirs_add(struct fs_dirs *d, struct view key, struct view path);
void fs_dirs_forget(struct fs_dirs *d);
/* How many there are, and the bytes of their paths. */
size_t fs_dirs_count(const struct fs_dirs *d);
size_t fs_dirs_bytes(const struct fs_dirs *d);

#endif
