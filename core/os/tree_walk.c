#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/fd.h"
#include "os/tree.h"
#include "os/tree_stack.h"

enum {
	ENTRIES_MAX = 64 * 1024 * 1024, /* without another bound */
	PATH_MAX_BYTES = 256 * 1024 * 1024,
};

/* A directory on the way down, and what of it is still to be visited. */
struct level {
	struct tree_names names;
	size_t next;
	size_t path_n; /* of its own path */
	struct stat st;
};

struct walker {
	struct tree_stack stack;
	struct level *levels;
	size_t cap;
	struct buf path;
	const struct tree_bounds *bounds;
	uint64_t entries; /* names that were read */
	const struct tree_visitor *v;
	void *arg;
};

static int
within(struct walker *w)
{
	if (w->bounds->deadline_ms != 0 && clock_ms() >= w->bounds->deadline_ms)
		return SP_E_TIMEOUT;
	return SP_OK;
}

static struct level *
top(struct walker *w)
{
	return &w->levels[w->stack.n - 1];
}

/* Goes into fd, which is taken. */
static int
push(struct walker *w, int fd, const struct stat *st)
{
	uint64_t max = w->bounds->entries ? w->bounds->entries : ENTRIES_MAX;
	size_t i = w->stack.n, cap = w->cap == 0 ? 64 : w->cap * 2;
	struct level *more;
	int rc;

	if (i >= w->cap) {
		more = mem_reallocarray(w->levels, cap, sizeof(more[0]));
		if (more == NULL) {
			fd_close(&fd);
			return SP_E_NOMEM;
		}
		w->levels = more;
		w->cap = cap;
	}
	memset(&w->levels[i], 0, sizeof(w->levels[i]));
	w->levels[i].st = *st;
	w->levels[i].path_n = buf_len(&w->path);
	rc = tree_stack_push(&w->stack, fd);
	if (rc == SP_OK)
		rc = tree_stack_names(fd, (size_t)(max - w->entries),
		    &top(w)->names);
	if (rc == SP_OK)
		w->entries += top(w)->names.n;
	return rc;
}

/* Looks at an entry: 0 with e->error for what cannot be entered. */
static int
look(struct walker *w, struct tree_entry *e, int *fd)
{
	int dir = tree_stack_top(&w->stack);

	*fd = -1;
	e->dir = dir;
	e->error = SP_OK;
	if (fstatat(dir, e->name, &e->st, AT_SYMLINK_NOFOLLOW) != 0)
		return err_from_errno(errno);
	if (!S_ISDIR(e->st.st_mode))
		return SP_OK;
	e->error = tree_stack_open(dir, e->name, fd);
	/* replaced meanwhile: as if it had not been there */
	if (e->error == SP_E_STATE || e->error == SP_E_NOTFOUND)
		return SP_E_NOTFOUND;
	if (e->error == SP_OK && fstat(*fd, &e->st) != 0)
		return err_from_errno(errno);
	return SP_OK;
}

static int
add_path(struct walker *w, const char *name)
{
	int rc = SP_OK;

	buf_truncate(&w->path, top(w)->path_n);
	if (buf_len(&w->path) > 0)
		rc = buf_add_char(&w->path, '/');
	return rc == SP_OK ? buf_add_str(&w->path, name) : rc;
}

static int
visit(struct walker *w)
{
	struct level *l = top(w);
	struct tree_entry e;
	int fd, rc;

	memset(&e, 0, sizeof(e));
	e.name = l->names.text + l->names.at[l->next++];
	rc = add_path(w, e.name);
	if (rc == SP_OK)
		rc = within(w);
	if (rc != SP_OK)
		return rc;
	rc = look(w, &e, &fd);
	if (rc == SP_OK) {
		e.path = buf_view(&w->path);
		e.fd = fd;
		rc = w->v->entry(w->arg, &e);
	} else if (rc == SP_E_NOTFOUND) {
		rc = SP_OK;
	}
	if (rc == SP_OK && fd >= 0)
		return push(w, fd, &e.st);
	fd_close(&fd);
	return rc == 1 ? SP_OK : rc;
}

/* A directory is done: SP_E_EOF it was the root. */
static int
leave(struct walker *w)
{
	struct level *l = top(w), *above;
	struct tree_entry e;
	int rc = SP_OK;

	buf_truncate(&w->path, l->path_n);
	tree_stack_names_clear(&l->names);
	if (w->stack.n == 1)
		return SP_E_EOF;
	if (w->v->leave != NULL) {
		above = l - 1;
		memset(&e, 0, sizeof(e));
		e.dir = -1;
		e.name = above->names.text + above->names.at[above->next - 1];
		e.path = buf_view(&w->path);
		e.st = l->st;
		e.fd = tree_stack_top(&w->stack);
		rc = w->v->leave(w->arg, &e);
	}
	return rc == SP_OK ? tree_stack_pop(&w->stack) : rc;
}

int
tree_walk_with(int root, const struct tree_bounds *bounds,
    const struct tree_visitor *v, void *arg, struct buf *where)
{
	struct walker w;
	struct stat st;
	size_t i;
	int fd, rc;

	memset(&w, 0, sizeof(w));
	w.bounds = bounds;
	w.v = v;
	w.arg = arg;
	buf_init(&w.path, PATH_MAX_BYTES);
	tree_stack_init(&w.stack);
	fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		rc = err_from_errno(errno);
		fd_close(&fd);
	} else {
		rc = push(&w, fd, &st);
	}
	while (rc == SP_OK)
		rc = top(&w)->next < top(&w)->names.n ? visit(&w) : leave(&w);
	if (rc == SP_E_EOF)
		rc = SP_OK;
	else if (where != NULL)
		(void)!buf_add_view(where, buf_view(&w.path));
	for (i = 0; i < w.stack.n; i++)
		tree_stack_names_clear(&w.levels[i].names);
	tree_stack_clear(&w.stack);
	mem_free(w.levels);
	buf_clear(&w.path);
	return rc;
}

int
tree_walk(int root, const struct tree_bounds *bounds,
    int (*cb)(void *arg, const struct tree_entry *e), void *arg)
{
	const struct tree_visitor v = { cb, NULL };

	return tree_walk_with(root, bounds, &v, arg, NULL);
}
