#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "init/ws_place.h"
#include "os/fd.h"

enum { CHUNK_BYTES = 64 * 1024 };

static bool
late(const struct tree_bounds *b)
{
	return b->deadline_ms != 0 && clock_ms() >= b->deadline_ms;
}

/*
 * Waits for a pipe that has nothing yet: SP_E_AGAIN there is nothing still.
 * The descriptor is another's, so it may well block.
 */
static int
await(int fd, const struct tree_bounds *b)
{
	struct pollfd p = { fd, POLLIN, 0 };
	uint64_t ms = 1000, now = clock_ms();

	if (b->deadline_ms != 0)
		ms = b->deadline_ms <= now ? 0 : b->deadline_ms - now;
	if (ms > 1000)
		ms = 1000;
	return poll(&p, 1, (int)ms) > 0 ? SP_OK : SP_E_AGAIN;
}

/*
 * Copies what `in` has: of a file or memfd all of it, wherever its offset,
 * which is shared with whoever sent it, may stand.
 */
static int
pour(int in, int out, const struct tree_bounds *b, uint64_t *done)
{
	bool whole = lseek(in, 0, SEEK_CUR) >= 0;
	char *chunk = mem_alloc(CHUNK_BYTES);
	ssize_t got;
	int rc = chunk == NULL ? SP_E_NOMEM : SP_OK;

	*done = 0;
	while (rc == SP_OK) {
		rc = late(b) ? SP_E_TIMEOUT : whole ? SP_OK : await(in, b);
		if (rc == SP_E_AGAIN) {
			rc = SP_OK;
			continue;
		}
		if (rc != SP_OK)
			break;
		got = whole ? pread(in, chunk, CHUNK_BYTES, (off_t)*done)
			    : read(in, chunk, CHUNK_BYTES);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0) {
			rc = got < 0 ? err_from_errno(errno) : SP_OK;
			break;
		}
		*done += (uint64_t)got;
		rc = b->bytes != 0 && *done > b->bytes
		    ? SP_E_LIMIT
		    : fd_write_all(out, chunk, (size_t)got);
	}
	mem_free(chunk);
	return rc;
}

/* A new file under a name that nobody inside can have expected. */
static int
create(int dir, char name[40], int *out)
{
	uint64_t r = 0;

	if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r))
		return SP_E_SYS;
	(void)snprintf(name, 40, ".put-%016llx", (unsigned long long)r);
	*out = openat(dir, name,
	    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return *out < 0 ? err_from_errno(errno) : SP_OK;
}

/* Gives it to the sandbox: owner first, since that clears bits of the mode. */
static int
give(int fd, const struct ws *w, mode_t mode)
{
	if (fchown(fd, w->uid, w->gid) != 0 && geteuid() == 0)
		return err_from_errno(errno);
	/* no set-id bits: nothing inside gains by them, and none were asked */
	return fchmod(fd, mode & 0777) == 0 ? SP_OK : err_from_errno(errno);
}

/*
 * The new file takes the place of what has that name.  rename(2) follows no
 * link; a directory is not replaced.
 */
static int
replace(int dir, const char *from, const char *to)
{
	if (renameat(dir, from, dir, to) == 0)
		return SP_OK;
	return errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST
	    ? SP_E_STATE
	    : err_from_errno(errno);
}

void
ws_put(const struct ws *w, const char *path, mode_t mode, int fd,
    const struct tree_bounds *bounds, struct ws_answer *a)
{
	char name[NAME_MAX + 1], fresh[40];
	int dir = -1, out = -1, rc;
	struct ws_place p;

	ws_place_begin(a);
	rc = ws_place_find(w, path, &p, a);
	if (rc == SP_OK)
		rc = ws_place_parent(&p, w, &dir, name, a);
	if (rc != SP_OK)
		return;
	rc = create(dir, fresh, &out);
	if (rc == SP_OK) {
		rc = pour(fd, out, bounds, &a->size);
		if (rc == SP_OK)
			rc = give(out, w, mode == 0 ? 0644 : mode);
		if (rc == SP_OK)
			rc = replace(dir, fresh, name);
		if (rc != SP_OK)
			(void)unlinkat(dir, fresh, 0);
	}
	if (rc == SP_E_STATE)
		(void)!ws_place_refuse(a, SANDBOX_FILE_SPECIAL,
		    "a directory has that name");
	else if (rc != SP_OK)
		(void)!ws_place_fail(a, rc, "put");
	fd_close(&out);
	fd_close(&dir);
}

void
ws_mkdir(const struct ws *w, const char *path, mode_t mode, struct ws_answer *a)
{
	char name[NAME_MAX + 1];
	struct ws_place p;
	int dir = -1, fd = -1, rc;
	struct stat st;

	ws_place_begin(a);
	rc = ws_place_find(w, path, &p, a);
	if (rc == SP_OK)
		rc = ws_place_parent(&p, w, &dir, name, a);
	if (rc != SP_OK)
		return;
	if (mkdirat(dir, name, 0700) == 0) {
		fd = openat(dir, name,
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 || fstat(fd, &st) != 0)
			rc = err_from_errno(errno);
		else if (st.st_uid != geteuid()) /* moved here meanwhile */
			rc = SP_E_AGAIN;
		else
			rc = give(fd, w, mode == 0 ? 0755 : mode);
		fd_close(&fd);
	} else if (errno != EEXIST) {
		rc = err_from_errno(errno);
	} else {
		(void)!ws_place_open(&p, O_PATH | O_DIRECTORY, &fd, a);
		fd_close(&fd);
		fd_close(&dir);
		return;
	}
	fd_close(&dir);
	if (rc != SP_OK)
		(void)!ws_place_fail(a, rc, "mkdir");
}

void
ws_remove(const struct ws *w, const char *path, uint64_t deadline_ms,
    struct ws_answer *a)
{
	char name[NAME_MAX + 1];
	struct ws_place p;
	struct stat st;
	int dir = -1, rc;

	ws_place_begin(a);
	rc = ws_place_find(w, path, &p, a);
	if (rc == SP_OK)
		rc = ws_place_parent(&p, NULL, &dir, name, a);
	if (rc != SP_OK)
		return;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		rc = err_from_errno(errno);
	else
		rc = tree_remove_at(dir, name, deadline_ms);
	fd_close(&dir);
	if (rc == SP_E_STATE) /* it was filled while it was emptied */
		rc = SP_E_AGAIN;
	if (rc != SP_OK)
		(void)!ws_place_fail(a, rc, "remove");
}
