#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "init/ws_place.h"
#include "os/fd.h"
#include "os/tree_attr.h"
#include "os/tree_stack.h"

enum { CHUNK_BYTES = 64 * 1024, PATH_BYTES_MAX = 8 * 1024 };

/*
 * Each record has a whole path, so that what lies deep makes all of it too
 * much.  Directories of longer paths are not gone into; where it is too much
 * nevertheless, all begins anew with the next of these.
 */
static const size_t path_limits[] = { WS_DIFF_PATH_MAX, 1024, 256, 0 };

/*
 * Only the upper layer is walked; the lower one is gone down beside it as far
 * as it has the same directories.  Depth 0 is the root of both.
 *
 * Source: overlayfs of the kernel's documents: a character device 0:0 is a
 * whiteout; an opaque directory does not show what the lower one has, and
 * neither do those beneath it.
 */
struct differ {
	const struct ws *w;
	const struct tree_bounds *bounds;
	struct buf out, path;
	struct tree_stack lower;
	size_t depth; /* of the directory that is walked */
	size_t missing; /* from this depth on the lower layer has none */
	size_t pure; /* from this depth on the lower one does not show */
	size_t path_max; /* directories of longer paths are not gone into */
	uint64_t compared, deleted;
	char *a, *b; /* chunks of two files */
};

static uint8_t
type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return SANDBOX_TYPE_FILE;
	case S_IFDIR:
		return SANDBOX_TYPE_DIR;
	case S_IFLNK:
		return SANDBOX_TYPE_SYMLINK;
	case S_IFIFO:
		return SANDBOX_TYPE_FIFO;
	case S_IFSOCK:
		return SANDBOX_TYPE_SOCKET;
	default:
		return SANDBOX_TYPE_DEVICE;
	}
}

static int
emit(struct differ *d, struct view path, unsigned kind, const struct stat *st,
    unsigned flags)
{
	struct sandbox_change c;

	memset(&c, 0, sizeof(c));
	c.path = path;
	c.kind = (uint8_t)kind;
	c.flags = (uint8_t)flags;
	c.type = type_of(st->st_mode);
	c.mode = st->st_mode & 07777;
	if ((S_ISREG(st->st_mode) || S_ISLNK(st->st_mode)) && st->st_size > 0)
		c.size = (uint64_t)st->st_size;
	return sandbox_msg_change_put(&d->out, &c);
}

/* Of a directory that is not gone into; else 0. */
static unsigned
cut(const struct differ *d, struct view path, const struct stat *st)
{
	return S_ISDIR(st->st_mode) && path.n > d->path_max
	    ? SANDBOX_CHANGE_UNREADABLE
	    : 0;
}

/* ---- what is gone ------------------------------------------------------- */

struct gone {
	struct differ *d;
	size_t prefix; /* bytes of d->path that are the directory's own */
};

static int
gone_entry(void *arg, const struct tree_entry *e)
{
	struct gone *g = arg;
	struct buf *path = &g->d->path;
	unsigned flags;
	int rc;

	if (g->d->bounds->entries != 0 &&
	    ++g->d->deleted > g->d->bounds->entries)
		return SP_E_LIMIT;
	buf_truncate(path, g->prefix);
	rc = buf_add_char(path, '/');
	if (rc == SP_OK)
		rc = buf_add_view(path, e->path);
	flags = cut(g->d, buf_view(path), &e->st);
	if (rc == SP_OK)
		rc = emit(g->d, buf_view(path), SANDBOX_DELETED, &e->st, flags);
	return rc == SP_OK && flags != 0 ? 1 : rc;
}

/* All that lies in a directory of the lower layer. */
static int
emit_beneath(struct differ *d, struct view path, int dir, const char *name)
{
	const struct tree_bounds b = { 0, d->bounds->entries,
		d->bounds->deadline_ms };
	struct gone g = { d, path.n };
	int fd = -1, rc;

	buf_reset(&d->path, PATH_BYTES_MAX);
	rc = buf_add_view(&d->path, path);
	if (rc == SP_OK)
		rc = tree_stack_open(dir, name, &fd);
	if (rc == SP_OK)
		rc = tree_walk(fd, &b, gone_entry, &g);
	fd_close(&fd);
	return rc;
}

/* An entry of the lower layer that shows no more, with all beneath it. */
static int
emit_deleted(struct differ *d, struct view path, int dir, const char *name,
    const struct stat *st)
{
	unsigned flags = cut(d, path, st);
	int rc = emit(d, path, SANDBOX_DELETED, st, flags);

	return rc == SP_OK && S_ISDIR(st->st_mode) && flags == 0
	    ? emit_beneath(d, path, dir, name)
	    : rc;
}

/* Of a directory made anew: what the old one had, and it has not. */
static int
emit_missing(struct differ *d, const struct tree_entry *e)
{
	struct buf path = BUF_INIT(PATH_BYTES_MAX);
	int lower = tree_stack_top(&d->lower), rc;
	struct tree_names names;
	struct stat st;
	const char *name;
	size_t i;

	rc = tree_stack_names(lower, SIZE_MAX, &names);
	if (rc != SP_OK)
		return rc;
	for (i = 0; i < names.n && rc == SP_OK; i++) {
		name = names.text + names.at[i];
		if (fstatat(e->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (fstatat(lower, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		buf_reset(&path, PATH_BYTES_MAX);
		rc = buf_add_view(&path, e->path);
		if (rc == SP_OK)
			rc = buf_add_char(&path, '/');
		if (rc == SP_OK)
			rc = buf_add_str(&path, name);
		if (rc == SP_OK)
			rc = emit_deleted(d, buf_view(&path), lower, name, &st);
	}
	tree_stack_names_clear(&names);
	buf_clear(&path);
	return rc;
}

/* ---- what is there ------------------------------------------------------ */

/* 0 the same, 1 not, SP_E_*.  Both have the size. */
static int
compare_data(struct differ *d, int a, int b, off_t size)
{
	const struct tree_bounds *bounds = d->bounds;
	ssize_t x, y;
	off_t at;

	for (at = 0; at < size; at += x) {
		x = pread(a, d->a, CHUNK_BYTES, at);
		y = x <= 0 ? 0 : pread(b, d->b, (size_t)x, at);
		if (x < 0 || y < 0)
			return err_from_errno(errno);
		if (x == 0 || x != y || memcmp(d->a, d->b, (size_t)x) != 0)
			return 1;
		d->compared += (uint64_t)x;
		if (bounds->deadline_ms != 0 &&
		    clock_ms() >= bounds->deadline_ms)
			return SP_E_TIMEOUT;
	}
	return 0;
}

/* Sparse or not: every byte would have to be looked at. */
static bool
too_large(const struct differ *d, const struct stat *st)
{
	uint64_t left = d->bounds->bytes - d->compared;

	return d->bounds->bytes != 0 &&
	    (d->compared > d->bounds->bytes || (uint64_t)st->st_size > left);
}

static int
compare_files(struct differ *d, const struct tree_entry *e, int lower)
{
	int a = -1, b = -1, rc;
	struct stat x, y;

	rc = tree_stack_open_file(e->dir, e->name, &x, &a);
	if (rc == SP_OK)
		rc = tree_stack_open_file(lower, e->name, &y, &b);
	if (rc == SP_OK)
		rc = x.st_size != y.st_size ? 1
		    : too_large(d, &x)      ? SP_E_LIMIT
					    : compare_data(d, a, b, x.st_size);
	fd_close(&a);
	fd_close(&b);
	return rc;
}

static int
compare_links(const struct tree_entry *e, int lower)
{
	char a[PATH_MAX], b[PATH_MAX];
	ssize_t x, y;

	x = readlinkat(e->dir, e->name, a, sizeof(a));
	y = readlinkat(lower, e->name, b, sizeof(b));
	if (x < 0 || y < 0)
		return err_from_errno(errno);
	return x != y || memcmp(a, b, (size_t)x) != 0;
}

/* Both layers have something of the same type. */
static int
emit_if_changed(struct differ *d, const struct tree_entry *e, int lower,
    const struct stat *old)
{
	unsigned flags = 0;
	int rc = 0;

	if ((e->st.st_mode & 07777) != (old->st_mode & 07777) &&
	    !S_ISLNK(e->st.st_mode))
		flags |= SANDBOX_CHANGE_MODE;
	if (S_ISREG(e->st.st_mode))
		rc = compare_files(d, e, lower);
	else if (S_ISLNK(e->st.st_mode))
		rc = compare_links(e, lower);
	if (rc == SP_E_DENIED || rc == SP_E_SYS)
		flags |= SANDBOX_CHANGE_UNREADABLE;
	else if (rc == SP_E_LIMIT)
		flags |= SANDBOX_CHANGE_UNCOMPARED;
	else if (rc < 0)
		return rc;
	else if (rc == 1)
		flags |= SANDBOX_CHANGE_CONTENT;
	if (flags == 0)
		return SP_OK;
	return emit(d, e->path, SANDBOX_MODIFIED, &e->st, flags);
}

/* Goes down; `lower` is the directory's counterpart, taken, or -1. */
static int
enter(struct differ *d, const struct tree_entry *e, int lower)
{
	size_t at = ++d->depth;

	if (lower < 0) {
		if (d->missing > at)
			d->missing = at;
		return SP_OK;
	}
	if (d->pure > at && tree_attr_opaque(e->fd, d->w->userxattr))
		d->pure = at;
	return tree_stack_push(&d->lower, lower);
}

static int
dir_entry(struct differ *d, const struct tree_entry *e, int lower,
    const struct stat *old)
{
	unsigned flags = e->error != SP_OK ? SANDBOX_CHANGE_UNREADABLE
					   : cut(d, e->path, &e->st);
	bool enters = flags == 0;
	int fd = -1, rc = SP_OK;

	if (old == NULL) {
		rc = emit(d, e->path, SANDBOX_CREATED, &e->st, flags);
	} else if (!S_ISDIR(old->st_mode)) {
		rc = emit(d, e->path, SANDBOX_REPLACED, &e->st, flags);
	} else {
		if ((e->st.st_mode & 07777) != (old->st_mode & 07777))
			flags |= SANDBOX_CHANGE_MODE;
		if (flags != 0)
			rc = emit(d, e->path, SANDBOX_MODIFIED, &e->st, flags);
		if (rc == SP_OK && enters)
			rc = tree_stack_open(lower, e->name, &fd);
	}
	if (rc != SP_OK)
		return rc;
	return enters ? enter(d, e, fd) : 1;
}

static int
diff_entry(void *arg, const struct tree_entry *e)
{
	struct differ *d = arg;
	int lower = d->missing <= d->depth ? -1 : tree_stack_top(&d->lower);
	struct stat old;
	unsigned flags;
	bool had;
	int rc;

	had = lower >= 0 &&
	    fstatat(lower, e->name, &old, AT_SYMLINK_NOFOLLOW) == 0;
	if (S_ISCHR(e->st.st_mode) && e->st.st_rdev == 0)
		return had ? emit_deleted(d, e->path, lower, e->name, &old)
			   : SP_OK;
	if (S_ISDIR(e->st.st_mode))
		return dir_entry(d, e, lower, had ? &old : NULL);
	if (!had)
		return emit(d, e->path, SANDBOX_CREATED, &e->st, 0);
	if ((e->st.st_mode & S_IFMT) == (old.st_mode & S_IFMT))
		return emit_if_changed(d, e, lower, &old);
	flags = cut(d, e->path, &old);
	rc = emit(d, e->path, SANDBOX_REPLACED, &e->st, flags);
	/* what the directory had: none of it is in what came instead */
	if (rc == SP_OK && S_ISDIR(old.st_mode) && flags == 0)
		rc = emit_beneath(d, e->path, lower, e->name);
	return rc;
}

static int
diff_leave(void *arg, const struct tree_entry *e)
{
	struct differ *d = arg;
	size_t at = d->depth--;
	int rc = SP_OK;

	if (d->missing <= at) {
		if (d->missing == at)
			d->missing = SIZE_MAX;
		return SP_OK;
	}
	if (d->pure <= at)
		rc = emit_missing(d, e);
	if (d->pure == at)
		d->pure = SIZE_MAX;
	if (rc == SP_OK)
		rc = tree_stack_pop(&d->lower);
	return rc;
}

static int
begin(struct differ *d)
{
	int fd;

	d->a = mem_alloc(CHUNK_BYTES);
	d->b = mem_alloc(CHUNK_BYTES);
	if (d->a == NULL || d->b == NULL)
		return SP_E_NOMEM;
	if (d->w->lower < 0) {
		d->missing = 0;
		return SP_OK;
	}
	fd = openat(d->w->lower, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_from_errno(errno) : tree_stack_push(&d->lower, fd);
}

static int
diff(struct differ *d)
{
	static const struct tree_visitor v = { diff_entry, diff_leave };
	const struct tree_bounds b = { 0, d->bounds->entries,
		d->bounds->deadline_ms };
	int rc;

	rc = begin(d);
	if (rc == SP_OK)
		rc = tree_walk_with(d->w->upper, &b, &v, d, NULL);
	/* what was there is not, though all inside is frozen */
	return rc == SP_E_STATE || rc == SP_E_NOTFOUND ? SP_E_AGAIN : rc;
}

static void
differ_clear(struct differ *d)
{
	tree_stack_clear(&d->lower);
	buf_clear(&d->out);
	buf_clear(&d->path);
	mem_free(d->a);
	mem_free(d->b);
}

static int
diff_within(struct differ *d, const struct ws *w,
    const struct tree_bounds *bounds, size_t path_max)
{
	memset(d, 0, sizeof(*d));
	d->w = w;
	d->bounds = bounds;
	d->path_max = path_max;
	d->missing = d->pure = SIZE_MAX;
	buf_init(&d->out, WS_RECORDS_MAX);
	buf_init(&d->path, PATH_BYTES_MAX);
	tree_stack_init(&d->lower);
	return diff(d);
}

void
ws_diff(const struct ws *w, const struct tree_bounds *bounds,
    struct ws_answer *a)
{
	const size_t n = sizeof(path_limits) / sizeof(path_limits[0]);
	struct differ d;
	size_t i = 0;
	int rc;

	ws_place_begin(a);
	if (w->upper < 0) {
		a->result = SANDBOX_FILE_NO_LAYERS;
		return;
	}
	rc = diff_within(&d, w, bounds, path_limits[0]);
	while (rc == SP_E_LIMIT && ++i < n) {
		differ_clear(&d);
		rc = diff_within(&d, w, bounds, path_limits[i]);
	}
	a->size = buf_len(&d.out);
	if (rc == SP_OK)
		rc = fd_sealed("diff", buf_view(&d.out).p, buf_len(&d.out),
		    &a->fd);
	if (rc == SP_E_LIMIT)
		(void)!ws_place_refuse(a, SANDBOX_FILE_TOO_LARGE,
		    "diff: /workspace itself, without what is in its "
		    "directories, has more than 64 MiB of changes or 2000000 "
		    "names");
	else if (rc != SP_OK)
		(void)!ws_place_fail(a, rc, "diff");
	differ_clear(&d);
}
