#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/view.h"
#include "os/tree_attr.h"

enum { LIST_BYTES = 64 * 1024, VALUE_BYTES = 64 * 1024 }; /* XATTR_*_MAX */

static int
set_owner(int dir, const char *name, const struct stat *st)
{
	struct stat is;

	if (fstatat(dir, name, &is, AT_SYMLINK_NOFOLLOW) != 0)
		return err_from_errno(errno);
	if (is.st_uid == st->st_uid && is.st_gid == st->st_gid)
		return SP_OK;
	if (fchownat(dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) ==
	    0)
		return SP_OK;
	/* EINVAL: an owner without a number in this user namespace */
	if ((errno == EPERM && geteuid() != 0) || errno == EINVAL)
		return SP_OK;
	return err_from_errno(errno);
}

int
tree_attr_set(int dir, const char *name, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int rc;

	rc = set_owner(dir, name, st);
	if (rc != SP_OK)
		return rc;
	/* not of a link, which has none; and so none is followed */
	if (!S_ISLNK(st->st_mode) &&
	    fchmodat(dir, name, st->st_mode & 07777, 0) != 0)
		return err_from_errno(errno);
	if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) != 0)
		return err_from_errno(errno);
	return SP_OK;
}

static bool
counts(const char *name, bool overlay)
{
	static const char *const live[] = { "trusted.overlay.opaque",
		"trusted.overlay.whiteout", "trusted.overlay.redirect" };
	struct view v = view_str(name);
	size_t i;

	if (view_starts(v, VIEW("user.overlay.")))
		return overlay;
	if (view_starts(v, VIEW("user.")) ||
	    view_starts(v, VIEW("system.posix_acl_")))
		return true;
	for (i = 0; overlay && i < sizeof(live) / sizeof(live[0]); i++)
		if (view_eq(v, view_str(live[i])))
			return true;
	return false;
}

static int
copy_one(int from, int to, const char *name, char *value, uint64_t *skipped)
{
	ssize_t n;

	n = fgetxattr(from, name, value, VALUE_BYTES);
	if (n < 0)
		/* removed meanwhile */
		return errno == ENODATA ? SP_OK : err_from_errno(errno);
	if (fsetxattr(to, name, value, (size_t)n, 0) == 0)
		return SP_OK;
	/* EPERM: trusted.* in a user namespace; ACLs of unmapped users */
	if (errno == EOPNOTSUPP || errno == EINVAL || errno == E2BIG ||
	    errno == ERANGE || (errno == EPERM && geteuid() != 0)) {
		++*skipped;
		return SP_OK;
	}
	return err_from_errno(errno);
}

int
tree_attr_copy(int from, int to, bool overlay, uint64_t *skipped)
{
	char none[1], *list, *value;
	ssize_t n, at;
	int rc = SP_OK;

	/* most have none: no memory is needed to see that */
	n = flistxattr(from, none, 0);
	if (n == 0 || (n < 0 && (errno == EOPNOTSUPP || errno == EBADF)))
		return SP_OK;
	list = mem_alloc(LIST_BYTES);
	value = mem_alloc(VALUE_BYTES);
	if (list == NULL || value == NULL) {
		rc = SP_E_NOMEM;
	} else {
		n = flistxattr(from, list, LIST_BYTES);
		if (n < 0)
			rc = err_from_errno(errno);
	}
	for (at = 0; rc == SP_OK && at < n;
	     at += (ssize_t)strlen(list + at) + 1)
		if (counts(list + at, overlay))
			rc = copy_one(from, to, list + at, value, skipped);
	mem_free(list);
	mem_free(value);
	return rc;
}

bool
tree_attr_opaque(int fd, bool userxattr)
{
	char v[4];
	ssize_t n;

	n = fgetxattr(fd,
	    userxattr ? "user.overlay.opaque" : "trusted.overlay.opaque", v,
	    sizeof(v));
	return n == 1 && v[0] == 'y';
}
