#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "init/ws_place.h"
#include "os/fd.h"
#include "os/tree_stack.h"

enum { ENTRIES_MAX = 1024 * 1024 };

/*
 * Opens what was looked at.  A device or a FIFO is never opened: what it is
 * is known from a descriptor that has not touched it.
 */
static int
open_regular(const struct ws_place *p, struct stat *st, int *out,
    struct ws_answer *a)
{
	char link[40];
	int at = -1, rc;

	rc = ws_place_open(p, O_PATH, &at, a);
	if (rc != SP_OK)
		return rc;
	if (fstat(at, st) != 0) {
		rc = ws_place_fail(a, err_from_errno(errno), "stat");
	} else if (S_ISLNK(st->st_mode)) {
		/* openat2(2): with O_PATH the last one is opened itself */
		rc = ws_place_refuse(a, SANDBOX_FILE_ESCAPES,
		    "it is a link, and links are not followed");
	} else if (!S_ISREG(st->st_mode)) {
		rc = ws_place_refuse(a, SANDBOX_FILE_SPECIAL,
		    "it is not a regular file");
	} else {
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
		*out = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (*out < 0)
			rc = ws_place_fail(a, err_from_errno(errno), "open");
	}
	fd_close(&at);
	return rc;
}

void
ws_read(const struct ws *w, const char *path, uint64_t max, struct ws_answer *a)
{
	struct buf text = BUF_INIT(0);
	struct ws_place p;
	struct stat st;
	int fd = -1, rc;

	ws_place_begin(a);
	rc = ws_place_find(w, path, &p, a);
	if (rc == SP_OK)
		rc = open_regular(&p, &st, &fd, a);
	if (rc != SP_OK)
		return;
	/* the size it says may be anything: no more than max is read */
	buf_init(&text, max < WS_READ_MAX ? (size_t)max : WS_READ_MAX);
	rc = fd_read_all(fd, &text);
	fd_close(&fd);
	if (rc == SP_OK)
		rc = fd_sealed("file", buf_view(&text).p, buf_len(&text),
		    &a->fd);
	a->size = buf_len(&text);
	if (rc != SP_OK)
		(void)!ws_place_fail(a, rc, "read");
	if (rc == SP_E_LIMIT)
		a->size = st.st_size > 0 ? (uint64_t)st.st_size : 0;
	buf_clear(&text);
}

/* ---- directories -------------------------------------------------------- */

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
put_entry(int dir, const char *name, struct buf *out)
{
	struct sandbox_dirent d;
	struct stat st;

	/* gone meanwhile: as if it had not been there */
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? SP_OK : err_from_errno(errno);
	memset(&d, 0, sizeof(d));
	d.name = view_str(name);
	d.type = type_of(st.st_mode);
	d.mode = st.st_mode & 07777;
	d.uid = st.st_uid;
	d.gid = st.st_gid;
	if (st.st_size > 0)
		d.size = (uint64_t)st.st_size;
	if (st.st_mtim.tv_sec > 0)
		d.mtime_us = (uint64_t)st.st_mtim.tv_sec * 1000000 +
		    (uint64_t)st.st_mtim.tv_nsec / 1000;
	return sandbox_msg_dirent_put(out, &d);
}

static int
put_entries(int dir, const struct tree_bounds *b, struct buf *out)
{
	struct tree_names names;
	size_t i;
	int rc;

	rc = tree_stack_names(dir, b->entries ? b->entries : ENTRIES_MAX,
	    &names);
	if (rc != SP_OK)
		return rc;
	for (i = 0; i < names.n && rc == SP_OK; i++) {
		rc = put_entry(dir, names.text + names.at[i], out);
		if (b->deadline_ms != 0 && clock_ms() >= b->deadline_ms)
			rc = SP_E_TIMEOUT;
	}
	tree_stack_names_clear(&names);
	return rc;
}

void
ws_list(const struct ws *w, const char *path, const struct tree_bounds *bounds,
    struct ws_answer *a)
{
	struct buf out = BUF_INIT(WS_RECORDS_MAX);
	struct ws_place p;
	int fd = -1, rc;

	ws_place_begin(a);
	rc = ws_place_find(w, path, &p, a);
	if (rc == SP_OK)
		rc = ws_place_open(&p, O_RDONLY | O_DIRECTORY, &fd, a);
	if (rc != SP_OK)
		return;
	rc = put_entries(fd, bounds, &out);
	fd_close(&fd);
	a->size = buf_len(&out);
	if (rc == SP_OK)
		rc = fd_sealed("list", buf_view(&out).p, buf_len(&out), &a->fd);
	if (rc != SP_OK)
		(void)!ws_place_fail(a, rc, "list");
	buf_clear(&out);
}
