#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "init/sbox.h"
#include "init/sbox_links.h"
#include "init/sbox_root.h"
#include "os/fd.h"
#include "os/tree.h"
#include "os/tree_stack.h"

enum {
	LINKS_LOOK_MS = 10 * 1000, /* from then on each is taken out */
	LINKS_HOPS_MAX = 40, /* as the kernel's */
	LINKS_TEXT_MAX = 4 * PATH_MAX, /* of a path with its links in it */
	LINKS_TRIES = 100, /* openat2(2): EAGAIN */
};

/* Where no link may lead: nor to anything above it. */
struct place {
	const char *path;
	uint64_t mnt; /* what is on this mount is in it */
	bool deep; /* all beneath the path is, whatever it is on */
};

struct links {
	const struct sbox *b;
	struct sbox_links *out;
	struct place *places;
	size_t places_n;
	uint64_t workspace; /* its mount */
	uint64_t until_ms;
	struct tree_stack upper; /* beside the walk, where it has a layer */
	size_t moved; /* levels beneath a directory that was moved whole */
	struct sbox_why *w;
};

/* ---- where a descriptor is -------------------------------------------------- */

static int
mount_of(int fd, uint64_t *mnt, mode_t *mode)
{
	struct statx st;

	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_MNT_ID,
		&st) != 0)
		return -1;
	if ((st.stx_mask & STATX_MNT_ID) == 0) {
		errno = ENOSYS;
		return -1;
	}
	*mnt = st.stx_mnt_id;
	*mode = st.stx_mode;
	return 0;
}

static int
path_of(int fd, char *out, size_t max)
{
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, max - 1);
	if (n < 0 || (size_t)n == max - 1)
		return -1;
	out[n] = '\0';
	return 0;
}

static bool
is_beneath(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, n) == 0 &&
	    (path[n] == '/' || path[n] == '\0');
}

/*
 * Whether nothing may lead there.
 * Parameters: above, also what is above such a place: it is a way in.
 */
static bool
is_closed(const struct links *l, int fd, bool above)
{
	const struct place *p;
	char path[PATH_MAX];
	uint64_t mnt;
	mode_t mode;

	if (mount_of(fd, &mnt, &mode) != 0)
		return true;
	if (mnt == l->workspace)
		return false;
	if (path_of(fd, path, sizeof(path)) != 0)
		return true;
	/* its devices are everybody's; in its directories are ways to /proc */
	if (above && S_ISDIR(mode) && is_beneath(path, "/dev"))
		return true;
	for (p = l->places; p < l->places + l->places_n; p++)
		if ((p->deep ? is_beneath(path, p->path) : mnt == p->mnt) ||
		    (above && is_beneath(p->path, path)))
			return true;
	return false;
}

static int
open_at(int dir, const char *path, uint64_t flags)
{
	struct open_how how;
	int tries = 0, fd;

	memset(&how, 0, sizeof(how));
	how.flags = O_PATH | O_CLOEXEC | flags;
	how.resolve = RESOLVE_NO_MAGICLINKS;
	do
		fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	while (fd < 0 && errno == EAGAIN && ++tries < LINKS_TRIES);
	return fd;
}

/* ---- one that leads nowhere as yet ------------------------------------------ */

/* A way that is gone by hand, as far as there is anything. */
struct way {
	int at; /* the last directory or file that there is */
	size_t gone; /* names beneath it that there are not */
	unsigned hops;
	size_t from; /* of text: what is still to go */
	char text[LINKS_TEXT_MAX];
};

static bool
way_move(struct way *y, int fd)
{
	if (fd < 0)
		return false;
	fd_close(&y->at);
	y->at = fd;
	return true;
}

/* The link's text in front of the rest of the way. */
static bool
way_follow(struct way *y, int dir, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	size_t rest = strlen(y->text + y->from);

	if (n <= 0 || (size_t)n + 1 + rest + 1 > sizeof(y->text) ||
	    ++y->hops > LINKS_HOPS_MAX)
		return false;
	memmove(y->text + n + 1, y->text + y->from, rest + 1);
	memcpy(y->text, target, (size_t)n);
	y->text[n] = '/';
	y->from = 0;
	return target[0] != '/' || way_move(y, open_at(AT_FDCWD, "/", 0));
}

/* Into that name.  false: nobody can say where it leads. */
static bool
way_name(const struct links *l, struct way *y, const char *name)
{
	struct stat st;
	bool ok = true;
	int fd = open_at(y->at, name, O_NOFOLLOW);

	if (fd < 0) {
		y->gone = errno == ENOENT || errno == ENOTDIR;
		return y->gone == 1;
	}
	ok = fstat(fd, &st) == 0;
	if (ok && S_ISLNK(st.st_mode)) {
		ok = !is_closed(l, fd, true) && way_follow(y, fd, "");
	} else if (ok && !S_ISDIR(st.st_mode) &&
	    y->text[y->from + strspn(y->text + y->from, "/")] != '\0') {
		y->gone = 1; /* unless a directory comes in its place */
	} else if (ok) {
		return way_move(y, fd);
	}
	fd_close(&fd);
	return ok;
}

static bool
way_step(const struct links *l, struct way *y)
{
	char name[NAME_MAX + 1];
	size_t n;

	y->from += strspn(y->text + y->from, "/");
	n = strcspn(y->text + y->from, "/");
	if (n > NAME_MAX)
		return false;
	memcpy(name, y->text + y->from, n);
	name[n] = '\0';
	y->from += n;
	if (n == 0 || strcmp(name, ".") == 0)
		return true;
	if (strcmp(name, "..") == 0 && y->gone > 0) {
		y->gone--;
		return true;
	}
	if (y->gone > 0) {
		y->gone++;
		return true;
	}
	return way_name(l, y, name);
}

/*
 * What is not there yet the oracle may make, in the workspace or in what is
 * its own: whether the link would lead to a closed place then.
 */
static bool
dangling_closed(const struct links *l, int dir, const char *name)
{
	struct way y = { .at = open_at(dir, ".", 0) };
	bool ok = y.at >= 0 && way_follow(&y, dir, name);

	while (ok && y.text[y.from] != '\0')
		ok = way_step(l, &y);
	ok = ok && !is_closed(l, y.at, y.gone == 0);
	fd_close(&y.at);
	return !ok;
}

/* ---- any link --------------------------------------------------------------- */

static bool
link_closed(const struct links *l, int dir, const char *name)
{
	int fd = open_at(dir, name, 0);
	bool closed;

	if (fd >= 0) {
		closed = is_closed(l, fd, true);
		fd_close(&fd);
	} else {
		/* a loop, too long, out of reach: nobody uses those */
		closed = (errno != ENOENT && errno != ENOTDIR) ||
		    dangling_closed(l, dir, name);
	}
	return closed;
}

static void
note(struct sbox_links *out, struct view path)
{
	if (out->n < UINT32_MAX)
		out->n++;
	if (path.n >= sizeof(out->text) - out->used)
		return;
	memcpy(out->text + out->used, path.p, path.n);
	out->text[out->used + path.n] = '\0';
	out->used += (uint32_t)path.n + 1;
}

/* ---- the walk --------------------------------------------------------------- */

/* 1 the oracle's copy has nothing of the agent's in there. */
static int
enter_dir(struct links *l, const struct tree_entry *e)
{
	static const char *const moved[] = { "trusted.overlay.redirect",
		"user.overlay.redirect" };
	size_t i;
	int fd = -1, rc;

	if (e->error != SP_OK)
		return e->error == SP_E_UNSUPPORTED ? 1 : e->error;
	if (l->moved > 0) {
		l->moved++;
		return SP_OK;
	}
	rc = tree_stack_open(tree_stack_top(&l->upper), e->name, &fd);
	if (rc == SP_E_NOTFOUND || rc == SP_E_STATE)
		return 1;
	if (rc != SP_OK)
		return rc;
	/* what came along from the seed lies elsewhere now */
	for (i = 0; i < 2 && l->moved == 0; i++)
		l->moved = fgetxattr(fd, moved[i], NULL, 0) >= 0;
	if (l->moved == 0)
		return tree_stack_push(&l->upper, fd);
	fd_close(&fd);
	return SP_OK;
}

/* It came with the seed: beneath what was moved nobody can tell. */
static bool
is_seeds(const struct links *l, const char *name)
{
	struct stat st;

	return l->moved == 0 &&
	    fstatat(tree_stack_top(&l->upper), name, &st,
		AT_SYMLINK_NOFOLLOW) != 0 &&
	    errno == ENOENT;
}

static int
on_entry(void *arg, const struct tree_entry *e)
{
	struct links *l = arg;

	if (S_ISDIR(e->st.st_mode))
		return enter_dir(l, e);
	if (!S_ISLNK(e->st.st_mode) || is_seeds(l, e->name))
		return SP_OK;
	if (clock_ms() < l->until_ms && !link_closed(l, e->dir, e->name))
		return SP_OK;
	if (unlinkat(e->dir, e->name, 0) != 0)
		return sbox_why_errno(l->w, errno,
		    "taking the link %.*s out of the copy", VIEW_ARG(e->path));
	note(l->out, e->path);
	return SP_OK;
}

static int
on_leave(void *arg, const struct tree_entry *e)
{
	struct links *l = arg;

	(void)e;
	if (l->moved == 0)
		return tree_stack_pop(&l->upper);
	l->moved--;
	return SP_OK;
}

/* ---- what is closed --------------------------------------------------------- */

/* What is not there is none. */
static int
add_place(struct links *l, const char *path, bool deep)
{
	struct place *p = &l->places[l->places_n];
	int fd = open_at(AT_FDCWD, path, 0), rc = SP_OK;
	char real[PATH_MAX];
	mode_t mode;

	if (fd < 0)
		return errno == ENOENT
		    ? SP_OK
		    : sbox_why_errno(l->w, errno, "%s", path);
	if (mount_of(fd, &p->mnt, &mode) != 0 ||
	    path_of(fd, real, sizeof(real)) != 0)
		rc = sbox_why_errno(l->w, errno, "%s", path);
	else if ((p->path = arena_strdup(l->b->arena, view_str(real))) == NULL)
		rc = sbox_why_errno(l->w, ENOMEM, "links");
	fd_close(&fd);
	if (rc != SP_OK)
		return rc;
	p->deep = deep;
	l->places_n++;
	return SP_OK;
}

/* The first of those is the workspace. */
static int
add_places(struct links *l)
{
	const char *path;
	size_t n = 0, i;
	int rc;

	while (sbox_root_writable(l->b, n) != NULL)
		n++;
	l->places = arena_zalloc(l->b->arena, (n + 3) * sizeof(*l->places));
	if (l->places == NULL)
		return sbox_why_errno(l->w, ENOMEM, "links");
	rc = add_place(l, "/openenvd", true);
	if (rc == SP_OK)
		rc = add_place(l, "/proc", true);
	if (rc == SP_OK)
		rc = add_place(l, "/dev/pts", false);
	for (i = 1; i < n && rc == SP_OK; i++) {
		path = sbox_root_writable(l->b, i);
		rc = path != NULL ? add_place(l, path, false)
				  : sbox_why_errno(l->w, ENOMEM, "links");
	}
	return rc;
}

static int
walk(struct links *l, int workspace)
{
	static const struct tree_visitor v = { on_entry, on_leave };
	const struct tree_bounds bounds = { 0 };
	struct buf where = BUF_INIT(SANDBOX_MSG_PATH_MAX * 4);
	int rc;

	l->w->what[0] = '\0';
	l->until_ms = clock_ms() + LINKS_LOOK_MS;
	rc = tree_walk_with(workspace, &bounds, &v, l, &where);
	if (rc != SP_OK && l->w->what[0] == '\0')
		rc = sbox_why_rc(l->w, rc, "links of the copy, at %.*s",
		    VIEW_ARG(buf_view(&where)));
	buf_clear(&where);
	return rc;
}

int
sbox_links_remove(struct sbox *b, struct sbox_why *w)
{
	struct links l = { .b = b, .out = &b->links, .w = w };
	int fd, upper, rc = SP_OK;
	mode_t mode;

	if (b->spec->side != SANDBOX_ORACLE || b->upper < 0)
		return SP_OK;
	fd = open_at(AT_FDCWD, "/workspace", 0);
	upper = openat(b->upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tree_stack_init(&l.upper);
	if (fd < 0 || upper < 0 || mount_of(fd, &l.workspace, &mode) != 0)
		rc = sbox_why_errno(w, errno, "links of the copy");
	if (rc == SP_OK)
		rc = add_places(&l);
	if (rc == SP_OK) {
		rc = tree_stack_push(&l.upper, upper);
		upper = -1;
	}
	if (rc == SP_OK)
		rc = walk(&l, fd);
	tree_stack_clear(&l.upper);
	fd_close(&upper);
	fd_close(&fd);
	return rc;
}
