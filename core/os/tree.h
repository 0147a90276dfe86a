/* Whole directory trees, of which every name and depth may be hostile. */
#ifndef SP_OS_TREE_H
#define SP_OS_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

/*
 * All of these: no recursion, a bounded number of descriptors at any depth,
 * nothing is followed that is a link, no mount is crossed, names are bytes.
 * Context: keeper or a short-lived child; blocks.
 */

struct tree_bounds {
	uint64_t bytes, entries; /* 0: no bound */
	uint64_t deadline_ms; /* monotonic (base/clock.h); 0 none */
};

/*
 * Removes what lies in the directory, not itself.
 * Returns: 0; SP_E_TIMEOUT; the first error that stopped it, after it went on
 *          with all else.
 */
int tree_remove(int dir, uint64_t deadline_ms) must_check;
/* The entry of that name, of any kind; gone is fine. */
int tree_remove_at(int dir, const char *name, uint64_t deadline_ms) must_check;

/*
 * Copies what lies in `from` into `to`: files (with holes, and by reflink
 * where that can be had), directories, symlinks, FIFOs; mode with set-id
 * bits, owner, times, extended attributes (user.*, security.capability not,
 * POSIX ACLs; trusted.overlay.* when overlay is true), hard links as links;
 * devices only when overlay is true (whiteouts), sockets never.
 * Parameters: copied, counts; *where, on an error, the entry's path.
 * Returns: 0; SP_E_LIMIT over the bounds; SP_E_NOSPC; SP_E_TIMEOUT; SP_E_*.
 */
struct tree_copied {
	uint64_t bytes, entries;
	uint64_t skipped; /* sockets, devices */
	uint64_t attributes_skipped; /* that the new file system cannot hold */
};
int tree_copy(int from, int to, const struct tree_bounds *bounds, bool overlay,
    struct tree_copied *copied, struct buf *where) must_check;
/*
 * The same, of an upper layer that another sandbox takes.
 * Parameters: owner, to whom all of it belongs then; NULL: as it is.
 */
int tree_copy_for(int from, int to, const struct tree_bounds *bounds,
    const uid_t *owner, struct tree_copied *copied,
    struct buf *where) must_check;

/*
 * Walks a tree in the order of names (bytes), directories before what is in
 * them; the callback may open beneath `dir`.
 */
struct tree_entry {
	int dir; /* the directory it is in, borrowed */
	const char *name;
	struct view path; /* from the root of the walk, no leading slash */
	struct stat st;
	int error; /* a directory that cannot be entered: why; else 0 */
	int fd; /* one that can: itself, borrowed; else -1 */
};
/* cb returns 0 to go on, 1 not to enter this directory, SP_E_* to stop. */
int tree_walk(int root, const struct tree_bounds *bounds,
    int (*cb)(void *arg, const struct tree_entry *e), void *arg) must_check;

struct tree_visitor {
	/* as above */
	int (*entry)(void *arg, const struct tree_entry *e);
	/* a directory that was entered is done: e->dir is -1; may be NULL */
	int (*leave)(void *arg, const struct tree_entry *e);
};
/* The same; *where (may be NULL): on an error, the path that was reached. */
int tree_walk_with(int root, const struct tree_bounds *bounds,
    const struct tree_visitor *v, void *arg, struct buf *where) must_check;

#endif
