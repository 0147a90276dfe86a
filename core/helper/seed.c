#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "helper/seed.h"
#include "os/fd.h"
#include "os/tree.h"
#include "os/tree_attr.h"

enum { NAME_BYTES_MAX = 200, PRINT_VERSION = 1 };

/* Names in the directory of seeds; an environment's never begins so. */
#define FRESH ".new-"
#define OLD ".old-"
#define PRINT ".print-"

struct seed {
	const char *workspace;
	int from, seeds;
	char name[NAME_BYTES_MAX + 1];
	char fresh[NAME_BYTES_MAX + 16], old[NAME_BYTES_MAX + 16];
	char print_name[NAME_BYTES_MAX + 16];
	char print[64]; /* the fingerprint as text */
	struct buf *why;
};

static int
because(const struct seed *s, int rc, const char *what)
{
	(void)!buf_printf(s->why, "workspace %s: %s: %s", s->workspace, what,
	    err_str(rc));
	return rc;
}

/* ---- the workspace ------------------------------------------------------ */

/* Who can write the parent can put another directory in its place. */
static int
check_parent(const struct seed *s, int parent)
{
	struct stat st;

	if (fstat(parent, &st) != 0)
		return because(s, err_from_errno(errno), "its parent");
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return because(s, SP_E_DENIED,
		    "its parent belongs to another user, who could replace it");
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0 &&
	    (st.st_mode & S_ISVTX) == 0)
		return because(s, SP_E_DENIED,
		    "its parent can be written by others, who could replace "
		    "it (chmod go-w)");
	return SP_OK;
}

static int
open_workspace(struct seed *s)
{
	size_t n = strlen(s->workspace);
	char path[PATH_MAX], *name;
	int parent, rc;

	while (n > 1 && s->workspace[n - 1] == '/')
		n--;
	if (s->workspace[0] != '/' || n < 2 || n >= sizeof(path))
		return because(s, SP_E_ARG, "not a directory of its own");
	memcpy(path, s->workspace, n);
	path[n] = 0;
	name = strrchr(path, '/');
	*name++ = 0;
	parent = open(path[0] ? path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return because(s, err_from_errno(errno), "its parent");
	rc = check_parent(s, parent);
	if (rc == SP_OK) {
		s->from = openat(parent, name,
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (s->from < 0)
			rc = errno == ENOTDIR || errno == ELOOP
			    ? because(s, SP_E_DENIED,
				  "not a directory, or a link to one")
			    : because(s, err_from_errno(errno), "open");
	}
	fd_close(&parent);
	return rc;
}

/* ---- the fingerprint ---------------------------------------------------- */

/* In the manner of FNV-1a, twice: not against an adversary, who cannot set a ctime anyway. */
struct print {
	const struct seed *s;
	uint64_t a, b;
};

static void
mix(struct print *p, uint64_t v)
{
	p->a = (p->a ^ v) * 0x100000001b3ULL;
	p->b = (p->b ^ (v * 0x9e3779b97f4a7c15ULL)) * 0x100000001b3ULL;
	/* what is high goes low again */
	p->a ^= p->a >> 32;
	p->b ^= p->b >> 29;
}

static void
mix_path(struct print *p, struct view path)
{
	size_t i;

	mix(p, path.n);
	for (i = 0; i < path.n; i++)
		mix(p, (unsigned char)path.p[i]);
}

static void
mix_stat(struct print *p, const struct stat *st)
{
	mix(p, st->st_dev);
	mix(p, st->st_ino);
	mix(p, st->st_mode);
	mix(p, st->st_nlink);
	mix(p, st->st_uid);
	mix(p, st->st_gid);
	mix(p, (uint64_t)st->st_size);
	mix(p, (uint64_t)st->st_mtim.tv_sec);
	mix(p, (uint64_t)st->st_mtim.tv_nsec);
	mix(p, (uint64_t)st->st_ctim.tv_sec);
	mix(p, (uint64_t)st->st_ctim.tv_nsec);
}

static int
refuse(const struct print *p, const struct tree_entry *e, int rc,
    const char *what)
{
	(void)!buf_printf(p->s->why, "workspace %s: %.*s %s", p->s->workspace,
	    VIEW_ARG(e->path), what);
	return rc;
}

static int
print_entry(void *arg, const struct tree_entry *e)
{
	struct print *p = arg;

	if (e->error == SP_E_UNSUPPORTED)
		return refuse(p, e, SP_E_UNSUPPORTED,
		    "is another mount: name that as the workspace, or unmount");
	if (e->error != SP_OK)
		return refuse(p, e, e->error, err_str(e->error));
	if (!S_ISREG(e->st.st_mode) && !S_ISDIR(e->st.st_mode) &&
	    !S_ISLNK(e->st.st_mode))
		return refuse(p, e, SP_E_UNSUPPORTED,
		    "is a socket, a device or a FIFO: remove it");
	mix_path(p, e->path);
	mix_stat(p, &e->st);
	return SP_OK;
}

static int
take_print(struct seed *s)
{
	static const struct tree_bounds none;
	static const struct tree_visitor v = { print_entry, NULL };
	struct print p = { s, 0xcbf29ce484222325ULL, 0x84222325cbf29ce4ULL };
	struct stat st;
	int rc;

	if (fstat(s->from, &st) != 0)
		return because(s, err_from_errno(errno), "stat");
	mix_stat(&p, &st);
	rc = tree_walk_with(s->from, &none, &v, &p, NULL);
	if (rc != SP_OK)
		return buf_len(s->why) > 0 ? rc : because(s, rc, "reading it");
	(void)snprintf(s->print, sizeof(s->print), "%d %016llx%016llx\n",
	    PRINT_VERSION, (unsigned long long)p.a, (unsigned long long)p.b);
	return SP_OK;
}

/* ---- the copy ----------------------------------------------------------- */

static int
open_seeds(struct seed *s, int state)
{
	struct stat st;

	if (mkdirat(state, "seeds", 0700) != 0 && errno != EEXIST)
		return because(s, err_from_errno(errno), "state_dir/seeds");
	s->seeds = openat(state, "seeds",
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->seeds < 0 || fstat(s->seeds, &st) != 0)
		return because(s, err_from_errno(errno), "state_dir/seeds");
	if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return because(s, SP_E_DENIED,
		    "state_dir/seeds must be of this user, mode 0700");
	return SP_OK;
}

static int
open_seed(const struct seed *s, int *out)
{
	*out = openat(s->seeds, s->name,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return *out < 0 ? err_from_errno(errno) : SP_OK;
}

static bool
is_current(const struct seed *s)
{
	struct buf text = BUF_INIT(sizeof(s->print));
	bool same = false;
	int fd;

	fd = openat(s->seeds, s->print_name,
	    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0)
		same = fd_read_all(fd, &text) == SP_OK &&
		    view_eq(buf_view(&text), view_str(s->print));
	fd_close(&fd);
	buf_clear(&text);
	return same;
}

static int
write_print(const struct seed *s)
{
	int fd, rc;

	fd = openat(s->seeds, s->print_name,
	    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_from_errno(errno);
	rc = fd_write_all(fd, s->print, strlen(s->print));
	fd_close(&fd);
	return rc;
}

/* What a start that was cut short left. */
static int
sweep(const struct seed *s)
{
	int rc;

	rc = tree_remove_at(s->seeds, s->fresh, 0);
	if (rc == SP_OK)
		rc = tree_remove_at(s->seeds, s->old, 0);
	return rc;
}

/* The root of the tree: its owner is whom the sandbox takes the place of. */
static int
copy_top(const struct seed *s, int to)
{
	uint64_t skipped = 0;
	struct stat st;
	int rc;

	if (fstat(s->from, &st) != 0)
		return err_from_errno(errno);
	rc = tree_attr_copy(s->from, to, false, &skipped);
	return rc == SP_OK ? tree_attr_set(s->seeds, s->fresh, &st) : rc;
}

static int
copy(const struct seed *s)
{
	static const struct tree_bounds none;
	struct buf where = BUF_INIT(4096);
	struct tree_copied n;
	int to, rc;

	if (mkdirat(s->seeds, s->fresh, 0700) != 0)
		return because(s, err_from_errno(errno), "mkdir");
	to = openat(s->seeds, s->fresh,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	rc = to < 0 ? err_from_errno(errno)
		    : tree_copy(s->from, to, &none, false, &n, &where);
	if (rc == SP_OK)
		rc = copy_top(s, to);
	/* on disk before a fingerprint says that it is whole */
	if (rc == SP_OK && syncfs(to) != 0)
		rc = err_from_errno(errno);
	fd_close(&to);
	if (rc != SP_OK) {
		(void)!buf_printf(s->why,
		    "workspace %s: copying %.*s to state_dir/seeds: %s",
		    s->workspace, VIEW_ARG(buf_view(&where)), err_str(rc));
		(void)!tree_remove_at(s->seeds, s->fresh, 0);
	}
	buf_clear(&where);
	return rc;
}

/*
 * The copy takes its place.  Without a fingerprint, whatever stands there is
 * copied anew by the next start, so each step may be the last.
 */
static int
install(const struct seed *s)
{
	int rc;

	if (unlinkat(s->seeds, s->print_name, 0) != 0 && errno != ENOENT)
		return because(s, err_from_errno(errno), "putting the copy");
	failpoint_reach("seed.unprinted");
	if (renameat(s->seeds, s->name, s->seeds, s->old) != 0 &&
	    errno != ENOENT)
		return because(s, err_from_errno(errno), "putting the copy");
	failpoint_reach("seed.aside");
	if (renameat(s->seeds, s->fresh, s->seeds, s->name) != 0)
		return because(s, err_from_errno(errno), "putting the copy");
	failpoint_reach("seed.placed");
	rc = write_print(s);
	failpoint_reach("seed.printed");
	if (rc == SP_OK)
		rc = tree_remove_at(s->seeds, s->old, 0);
	failpoint_reach("seed.removed");
	return rc == SP_OK ? rc : because(s, rc, "putting the copy");
}

static int
refresh(struct seed *s, bool *copied)
{
	char before[sizeof(s->print)];
	int fd = -1, rc;

	rc = take_print(s);
	if (rc != SP_OK)
		return rc;
	if (is_current(s) && open_seed(s, &fd) == SP_OK) {
		fd_close(&fd);
		/* one that was cut short at its end has left the old one */
		rc = sweep(s);
		return rc == SP_OK ? rc
				   : because(s, rc, "removing an earlier copy");
	}
	rc = sweep(s);
	if (rc != SP_OK)
		return because(s, rc, "removing an earlier copy");
	failpoint_reach("seed.swept");
	rc = copy(s);
	if (rc != SP_OK)
		return rc;
	failpoint_reach("seed.copied");
	/* a half-old, half-new tree would be kept for good */
	memcpy(before, s->print, sizeof(before));
	rc = take_print(s);
	if (rc == SP_OK && memcmp(before, s->print, sizeof(before)) != 0)
		rc = because(s, SP_E_STATE, "it changes while it is copied");
	if (rc != SP_OK) {
		(void)!tree_remove_at(s->seeds, s->fresh, 0);
		return rc;
	}
	*copied = true;
	return install(s);
}

static int
set_names(struct seed *s, struct view name)
{
	if (name.n == 0 || name.n > NAME_BYTES_MAX || name.p[0] == '.' ||
	    memchr(name.p, '/', name.n) != NULL ||
	    memchr(name.p, 0, name.n) != NULL)
		return because(s, SP_E_ARG, "the name of its environment");
	memcpy(s->name, name.p, name.n);
	(void)snprintf(s->fresh, sizeof(s->fresh), FRESH "%s", s->name);
	(void)snprintf(s->old, sizeof(s->old), OLD "%s", s->name);
	(void)snprintf(s->print_name, sizeof(s->print_name), PRINT "%s",
	    s->name);
	return SP_OK;
}

int
seed_open(int state, struct view name, int *out)
{
	struct buf why = BUF_INIT(1024);
	struct seed s;
	int rc;

	memset(&s, 0, sizeof(s));
	s.workspace = "";
	s.from = s.seeds = -1;
	s.why = &why;
	rc = set_names(&s, name);
	if (rc == SP_OK)
		rc = open_seeds(&s, state);
	if (rc == SP_OK)
		rc = open_seed(&s, out);
	fd_close(&s.seeds);
	buf_clear(&why);
	return rc;
}

int
seed_capture(int state, struct view name, const char *workspace, int *out,
    bool *copied, struct buf *why)
{
	bool anew = false;
	struct seed s;
	int rc;

	memset(&s, 0, sizeof(s));
	s.workspace = workspace;
	s.from = s.seeds = -1;
	s.why = why;
	rc = set_names(&s, name);
	if (rc == SP_OK)
		rc = open_workspace(&s);
	if (rc == SP_OK)
		rc = open_seeds(&s, state);
	if (rc == SP_OK)
		rc = refresh(&s, &anew);
	if (rc == SP_OK) {
		rc = open_seed(&s, out);
		if (rc != SP_OK)
			(void)!because(&s, rc, "its copy");
	}
	fd_close(&s.from);
	fd_close(&s.seeds);
	if (copied != NULL)
		*copied = anew;
	return rc;
}
