/* The way down a tree of any depth, with few descriptors. */
#ifndef SP_OS_TREE_STACK_H
#define SP_OS_TREE_STACK_H

#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	TREE_STACK_OPEN = 16, /* descriptors at most; a power of two */
	TREE_STACK_MAX = 1024 * 1024, /* levels */
};

struct tree_level {
	dev_t dev;
	ino_t ino;
};

/*
 * Only the deepest directories are open; one above is reached by "..", and
 * must then be the one that was gone through on the way down.
 * Source:  openat(2), openat2(2).
 * Context: blocks on the file system.
 */
struct tree_stack {
	struct tree_level *levels;
	size_t n, cap;
	int fd[TREE_STACK_OPEN]; /* of level i in i % TREE_STACK_OPEN */
};

void tree_stack_init(struct tree_stack *s);
void tree_stack_clear(struct tree_stack *s);
/*
 * Goes down to fd, which is taken, also on failure.
 * Returns: 0; SP_E_LIMIT; SP_E_NOMEM.
 */
int tree_stack_push(struct tree_stack *s, int fd) must_check;
/* The deepest directory's descriptor, borrowed. */
int tree_stack_top(const struct tree_stack *s);
/*
 * Goes up: 0; SP_E_STATE the directory was moved, and its parent is another
 * one now.  The deepest is left in either case.
 */
int tree_stack_pop(struct tree_stack *s) must_check;

/*
 * Opens a directory in dir: no link is followed, no mount is crossed.
 * Returns: 0; SP_E_NOTFOUND; SP_E_DENIED no permission; SP_E_UNSUPPORTED
 *          something is mounted on it; SP_E_STATE it is no directory (any
 *          more); SP_E_*.
 */
int tree_stack_open(int dir, const char *name, int *out) must_check;
/*
 * Opens a regular file for reading, and nothing else: what it is is known
 * before it is opened, so that no device or FIFO is touched.
 * Returns: 0 with *st; SP_E_STATE another type; as above.
 */
int tree_stack_open_file(int dir, const char *name, struct stat *st,
    int *out) must_check;

/* The names in a directory, in the order of their bytes. */
struct tree_names {
	char *text; /* each with its NUL */
	size_t *at; /* offsets in text */
	size_t n;
};
/*
 * Parameters: max, names at most; the directory is read from its beginning.
 * Returns: 0; SP_E_LIMIT more than max; SP_E_NOMEM; SP_E_*.
 */
int tree_stack_names(int dir, size_t max, struct tree_names *names) must_check;
void tree_stack_names_clear(struct tree_names *names);

#endif
