#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hmap.h"
#include "base/mem.h"
#include "os/fd.h"
#include "os/tree.h"
#include "os/tree_attr.h"
#include "os/tree_stack.h"

enum {
	CHUNK_BYTES = 256 * 1024,
	LINKS_MAX = 16 * 1024 * 1024, /* files with several names */
};

/*
 * The destination is gone down beside the source.  Files with several names
 * are linked once more into a directory of our own, under a number: from
 * there they can be linked at any depth, where no path would reach.
 */
struct copier {
	struct tree_stack to;
	const struct tree_bounds *bounds;
	bool overlay;
	const uid_t *owner; /* of all; NULL: as it is */
	struct tree_copied *done;
	char *chunk;
	struct hmap *links; /* (dev, ino) to a number from 1 */
	int links_dir; /* -1: none yet */
	char links_name[40];
	int root; /* of the destination, borrowed */
};

static int
within(const struct copier *c)
{
	const struct tree_bounds *b = c->bounds;

	if (b->deadline_ms != 0 && clock_ms() >= b->deadline_ms)
		return SP_E_TIMEOUT;
	if ((b->bytes != 0 && c->done->bytes > b->bytes) ||
	    (b->entries != 0 && c->done->entries > b->entries))
		return SP_E_LIMIT;
	return SP_OK;
}

static int
set_attr(const struct copier *c, const char *name, const struct stat *st)
{
	struct stat own = *st;

	if (c->owner != NULL)
		own.st_uid = *c->owner;
	return tree_attr_set(tree_stack_top(&c->to), name, &own);
}

/* ---- the content of a file ---------------------------------------------- */

/* One stretch of data, [from, to). */
static int
copy_range(struct copier *c, int in, int out, off_t from, off_t to)
{
	ssize_t got;
	off_t want;
	int rc;

	while (from < to) {
		want = to - from < CHUNK_BYTES ? to - from : CHUNK_BYTES;
		got = pread(in, c->chunk, (size_t)want, from);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_from_errno(errno);
		if (got == 0) /* cut meanwhile */
			return SP_OK;
		c->done->bytes += (uint64_t)got;
		rc = within(c);
		if (rc == SP_OK && lseek(out, from, SEEK_SET) < 0)
			rc = err_from_errno(errno);
		if (rc == SP_OK)
			rc = fd_write_all(out, c->chunk, (size_t)got);
		if (rc != SP_OK)
			return rc;
		from += got;
	}
	return SP_OK;
}

/* Its stretches of data; what lies between them stays a hole. */
static int
copy_data(struct copier *c, int in, int out, const struct stat *st)
{
	off_t at = 0, data, hole;
	int rc = SP_OK;

	if (st->st_size > 0 && ioctl(out, FICLONE, in) == 0) {
		c->done->bytes += (uint64_t)st->st_blocks * 512;
		return within(c);
	}
	while (rc == SP_OK && at < st->st_size) {
		data = lseek(in, at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		hole = data < 0 ? -1 : lseek(in, data, SEEK_HOLE);
		if (data < 0 || hole < 0) /* a file system without them */
			data = at, hole = st->st_size;
		if (hole > st->st_size)
			hole = st->st_size;
		rc = copy_range(c, in, out, data, hole);
		at = hole;
	}
	if (rc == SP_OK && ftruncate(out, st->st_size) != 0)
		rc = err_from_errno(errno);
	return rc;
}

/* ---- files with several names ------------------------------------------- */

static int
links_open(struct copier *c)
{
	uint64_t r = 0;

	if (c->links_dir >= 0)
		return SP_OK;
	/* a name that no one who filled the source could foresee */
	if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r))
		return SP_E_SYS;
	(void)snprintf(c->links_name, sizeof(c->links_name), ".links-%016llx",
	    (unsigned long long)r);
	if (mkdirat(c->root, c->links_name, 0700) != 0)
		return err_from_errno(errno);
	c->links_dir = openat(c->root, c->links_name,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (c->links_dir < 0)
		return err_from_errno(errno);
	c->links = hmap_new(LINKS_MAX);
	return c->links == NULL ? SP_E_NOMEM : SP_OK;
}

/* The file's number, 0 when it is new. */
static uintptr_t
links_find(const struct copier *c, const struct stat *st)
{
	uint64_t key[2] = { st->st_dev, st->st_ino };

	if (c->links == NULL || st->st_nlink < 2)
		return 0;
	return (uintptr_t)hmap_get(c->links, view_of(key, sizeof(key)));
}

static void
links_label(uintptr_t number, char out[24])
{
	(void)snprintf(out, 24, "%llu", (unsigned long long)number);
}

/* Remembers a file that was copied; without a place for it, it is forgotten:
 * its next name becomes a file of its own. */
static int
links_add(struct copier *c, const char *name, const struct stat *st)
{
	uint64_t key[2] = { st->st_dev, st->st_ino };
	uintptr_t number;
	char label[24];
	int rc;

	if (st->st_nlink < 2)
		return SP_OK;
	rc = links_open(c);
	if (rc != SP_OK)
		return rc;
	number = hmap_count(c->links) + 1;
	links_label(number, label);
	if (linkat(tree_stack_top(&c->to), name, c->links_dir, label, 0) != 0)
		return errno == EMLINK || errno == EPERM
		    ? SP_OK
		    : err_from_errno(errno);
	/* a number as a pointer: the map only keeps it */
	return hmap_add(c->links, view_of(key, sizeof(key)), (void *)number);
}

static int
links_close(struct copier *c)
{
	int rc = SP_OK;

	if (c->links_dir >= 0) {
		rc = tree_remove(c->links_dir, 0);
		if (unlinkat(c->root, c->links_name, AT_REMOVEDIR) != 0 &&
		    rc == SP_OK)
			rc = err_from_errno(errno);
	}
	fd_close(&c->links_dir);
	hmap_free(c->links);
	return rc;
}

/* ---- entries ------------------------------------------------------------ */

static int
copy_file(struct copier *c, const struct tree_entry *e)
{
	int in = -1, out, dir = tree_stack_top(&c->to), rc;
	uintptr_t number = links_find(c, &e->st);
	struct stat st;
	char label[24];

	if (number != 0) {
		links_label(number, label);
		if (linkat(c->links_dir, label, dir, e->name, 0) == 0)
			return SP_OK;
		if (errno != EMLINK)
			return err_from_errno(errno);
	}
	rc = tree_stack_open_file(e->dir, e->name, &st, &in);
	if (rc == SP_E_NOTFOUND || rc == SP_E_STATE)
		return SP_OK; /* gone, or another thing meanwhile */
	if (rc != SP_OK)
		return rc;
	out = openat(dir, e->name,
	    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (out < 0)
		rc = err_from_errno(errno);
	if (rc == SP_OK)
		rc = copy_data(c, in, out, &st);
	if (rc == SP_OK)
		rc = tree_attr_copy(in, out, c->overlay,
		    &c->done->attributes_skipped);
	if (rc == SP_OK)
		rc = set_attr(c, e->name, &st);
	if (rc == SP_OK && number == 0)
		rc = links_add(c, e->name, &st);
	fd_close(&in);
	fd_close(&out);
	return rc;
}

static int
copy_link(struct copier *c, const struct tree_entry *e)
{
	char target[PATH_MAX + 1];
	ssize_t n;

	n = readlinkat(e->dir, e->name, target, sizeof(target) - 1);
	if (n < 0)
		return errno == ENOENT || errno == EINVAL
		    ? SP_OK
		    : err_from_errno(errno);
	target[n] = 0;
	if (symlinkat(target, tree_stack_top(&c->to), e->name) != 0)
		return err_from_errno(errno);
	return set_attr(c, e->name, &e->st);
}

static int
copy_node(struct copier *c, const struct tree_entry *e, mode_t type)
{
	int dir = tree_stack_top(&c->to);

	/* device 0:0 is a whiteout; no other number is ever made */
	if (mknodat(dir, e->name, type | 0600, 0) != 0)
		return err_from_errno(errno);
	return set_attr(c, e->name, &e->st);
}

static int
copy_dir(struct copier *c, const struct tree_entry *e)
{
	int dir = tree_stack_top(&c->to), fd;

	if (e->error != SP_OK)
		return e->error;
	if (mkdirat(dir, e->name, 0700) != 0)
		return err_from_errno(errno);
	fd = openat(dir, e->name,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? err_from_errno(errno) : tree_stack_push(&c->to, fd);
}

static int
copy_entry(void *arg, const struct tree_entry *e)
{
	struct copier *c = arg;
	int rc;

	c->done->entries++;
	rc = within(c);
	if (rc != SP_OK)
		return rc;
	switch (e->st.st_mode & S_IFMT) {
	case S_IFREG:
		return copy_file(c, e);
	case S_IFDIR:
		return copy_dir(c, e);
	case S_IFLNK:
		return copy_link(c, e);
	case S_IFIFO:
		return copy_node(c, e, S_IFIFO);
	case S_IFCHR:
		if (c->overlay && e->st.st_rdev == 0)
			return copy_node(c, e, S_IFCHR);
		break;
	default:
		break;
	}
	c->done->entries--;
	c->done->skipped++;
	return SP_OK;
}

/* The attributes of a directory come when nothing is made in it any more. */
static int
leave_dir(void *arg, const struct tree_entry *e)
{
	struct copier *c = arg;
	int rc;

	rc = tree_attr_copy(e->fd, tree_stack_top(&c->to), c->overlay,
	    &c->done->attributes_skipped);
	if (rc == SP_OK)
		rc = tree_stack_pop(&c->to);
	if (rc == SP_OK)
		rc = set_attr(c, e->name, &e->st);
	return rc;
}

static int
copy_tree(struct copier *c, int from, struct buf *where)
{
	static const struct tree_visitor v = { copy_entry, leave_dir };
	int fd, rc, end;

	memset(c->done, 0, sizeof(*c->done));
	c->links_dir = -1;
	if (where != NULL)
		buf_reset(where, 0);
	tree_stack_init(&c->to);
	c->chunk = mem_alloc(CHUNK_BYTES);
	if (c->chunk == NULL)
		return SP_E_NOMEM;
	fd = openat(c->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? err_from_errno(errno) : tree_stack_push(&c->to, fd);
	if (rc == SP_OK)
		rc = tree_walk_with(from, c->bounds, &v, c, where);
	tree_stack_clear(&c->to);
	end = links_close(c);
	mem_free(c->chunk);
	return rc != SP_OK ? rc : end;
}

int
tree_copy(int from, int to, const struct tree_bounds *bounds, bool overlay,
    struct tree_copied *copied, struct buf *where)
{
	struct copier c = { .bounds = bounds,
		.overlay = overlay,
		.done = copied,
		.root = to };

	return copy_tree(&c, from, where);
}

int
tree_copy_for(int from, int to, const struct tree_bounds *bounds,
    const uid_t *owner, struct tree_copied *copied, struct buf *where)
{
	struct copier c = { .bounds = bounds,
		.overlay = true,
		.owner = owner,
		.done = copied,
		.root = to };

	return copy_tree(&c, from, where);
}
