#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/sbox_etc.h"
#include "init/sbox_mount.h"
#include "os/fd.h"

enum { ETC_TEXT_MAX = 128 * 1024 };

/* ---- texts ----------------------------------------------------------------- */

static int
passwd(const struct sbox *b, struct buf *t)
{
	return buf_printf(t,
	    "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
	    "%s:x:%u:%u:%s:%s:/bin/sh\n"
	    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	    sbox_user(b), (unsigned)b->uid, (unsigned)b->gid, sbox_user(b),
	    sbox_home(b));
}

static int
group(const struct sbox *b, struct buf *t)
{
	return buf_printf(t,
	    "root:x:0:\ntty:x:5:\n%s:x:%u:\nnogroup:x:65534:\n", sbox_user(b),
	    (unsigned)b->gid);
}

static int
hosts(const struct sbox *b, struct buf *t)
{
	int rc;

	/* no IPv6 in there: ::1 would only cost clients a failed connect */
	rc = buf_printf(t, "127.0.0.1 localhost\n127.0.1.1 %.*s\n",
	    VIEW_ARG(b->spec->hostname));
	return rc != SP_OK ? rc : buf_add_view(t, b->spec->hosts);
}

static int
nsswitch(const struct sbox *b, struct buf *t)
{
	(void)b;
	return buf_add_str(t,
	    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
	    "networks: files\nprotocols: files\nservices: files\n");
}

static int
resolv_conf(const struct sbox *b, struct buf *t)
{
	return buf_add_view(t, b->spec->resolv_conf);
}

static int
hostname(const struct sbox *b, struct buf *t)
{
	return buf_printf(t, "%.*s\n", VIEW_ARG(b->spec->hostname));
}

static const struct {
	const char *name;
	int (*text)(const struct sbox *b, struct buf *t);
} etc_files[] = {
	{ "passwd", passwd },
	{ "group", group },
	{ "hosts", hosts },
	{ "nsswitch.conf", nsswitch },
	{ "resolv.conf", resolv_conf },
	{ "hostname", hostname },
};

/* Of the host, where it has them and they are not listed themselves. */
static const char *const etc_host[] = {
	"/etc/alternatives", /* links in /usr/bin lead through it */
	"/etc/ld.so.cache",
	"/etc/localtime",
	"/etc/protocols",
	"/etc/services",
};

/* ---- making them ----------------------------------------------------------- */

static int
etc_write(struct sbox_why *w, int dir, const char *name, struct view text)
{
	int fd, rc;

	/* an image may have a link there, to who knows where */
	if (unlinkat(dir, name, 0) != 0 && errno != ENOENT)
		return sbox_why_errno(w, errno, "/etc/%s", name);
	fd = openat(dir, name,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return sbox_why_errno(w, errno, "/etc/%s", name);
	rc = fd_write_all(fd, text.p, text.n);
	if (rc == SP_OK && fchmod(fd, 0644) != 0)
		rc = err_from_errno(errno);
	if (rc != SP_OK)
		rc = sbox_why_rc(w, rc, "/etc/%s", name);
	fd_close(&fd);
	return rc;
}

/* The whole of /etc is the host's, read-only: over the file that is there. */
static int
etc_cover(struct sbox_why *w, int etc, const char *name, struct view text)
{
	const struct sbox_mount_from from = { AT_FDCWD, name, 0,
		MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	int mnt = -1, at, scratch, rc;

	at = openat(etc, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		return errno == ENOENT
		    ? SP_OK
		    : sbox_why_errno(w, errno, "/etc/%s", name);
	scratch = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = scratch < 0 ? sbox_why_errno(w, errno, "scratch")
			 : etc_write(w, scratch, name, text);
	if (rc == SP_OK)
		rc = sbox_mount_clone(w, &from, &mnt);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, at, "");
	fd_close(&mnt);
	fd_close(&scratch);
	fd_close(&at);
	return rc;
}

static bool
etc_is_bound(const struct sbox *b)
{
	size_t i;

	for (i = 0; i < b->spec->read_only.n; i++)
		if (view_eq(b->spec->read_only.v[i], VIEW("/etc")))
			return true;
	return false;
}

static int
etc_bind(const struct sbox *b, struct sbox_why *w, int root, const char *path)
{
	const struct sbox_mount_from from = { AT_FDCWD, path, 0,
		MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	int mnt = -1, at = -1, rc;
	struct stat st;
	size_t i;

	for (i = 0; i < b->spec->read_only.n; i++)
		if (view_eq(b->spec->read_only.v[i], view_str(path)))
			return SP_OK;
	if (stat(path, &st) != 0)
		return SP_OK; /* the sandbox does without, as the host does */
	rc = sbox_mount_clone(w, &from, &mnt);
	if (rc == SP_OK)
		rc = sbox_mount_place(w, root, path,
		    S_ISDIR(st.st_mode) ? SBOX_MOUNT_DIR : SBOX_MOUNT_FILE,
		    &at);
	if (rc == SP_OK)
		rc = sbox_mount_attach(w, mnt, at, "");
	fd_close(&at);
	fd_close(&mnt);
	return rc;
}

int
sbox_etc_make(const struct sbox *b, struct sbox_why *w, int root)
{
	bool bound = etc_is_bound(b);
	struct buf text = BUF_INIT(ETC_TEXT_MAX);
	int etc = -1, rc;
	size_t i;

	rc = sbox_mount_place(w, root, "/etc", SBOX_MOUNT_DIR, &etc);
	for (i = 0; i < sizeof(etc_files) / sizeof(etc_files[0]) && rc == SP_OK;
	     i++) {
		buf_reset(&text, ETC_TEXT_MAX);
		rc = etc_files[i].text(b, &text);
		if (rc != SP_OK)
			rc = sbox_why_rc(w, rc, "/etc/%s", etc_files[i].name);
		else if (bound)
			rc = etc_cover(w, etc, etc_files[i].name,
			    buf_view(&text));
		else
			rc = etc_write(w, etc, etc_files[i].name,
			    buf_view(&text));
	}
	for (i = 0; i < sizeof(etc_host) / sizeof(etc_host[0]) && rc == SP_OK &&
	     !bound && b->spec->rootfs.n == 0;
	     i++)
		rc = etc_bind(b, w, root, etc_host[i]);
	buf_clear(&text);
	fd_close(&etc);
	return rc;
}
