#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"
#include "os/cgroup_ctl.h"
#include "os/fd.h"

static int
ctl_open(int dir, const char *file, int flags, int *out)
{
	int fd;

	do
		fd = openat(dir, file,
		    flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return err_from_errno(errno);
	*out = fd;
	return SP_OK;
}

int
cgroup_ctl_write(int dir, const char *file, const char *text)
{
	int fd = -1, rc;

	rc = ctl_open(dir, file, O_WRONLY, &fd);
	if (rc != SP_OK)
		return rc;
	/* one write is one request to the kernel */
	rc = fd_write_all(fd, text, strlen(text));
	fd_close(&fd);
	return rc;
}

int
cgroup_ctl_write_u64(int dir, const char *file, uint64_t v)
{
	char text[32];

	text[num_format_u64(v, text)] = 0;
	return cgroup_ctl_write(dir, file, text);
}

int
cgroup_ctl_read(int dir, const char *file, struct buf *out)
{
	int fd = -1, rc;

	buf_reset(out, CGROUP_CTL_MAX);
	rc = ctl_open(dir, file, O_RDONLY, &fd);
	if (rc != SP_OK)
		return rc;
	rc = fd_read_all(fd, out);
	fd_close(&fd);
	return rc;
}

int
cgroup_ctl_u64(int dir, const char *file, uint64_t *v)
{
	struct buf text = BUF_INIT(64);
	struct view line;
	int rc;

	rc = cgroup_ctl_read(dir, file, &text);
	if (rc == SP_OK) {
		line = buf_view(&text);
		line.n = view_find(line, '\n');
		if (view_eq(line, VIEW("max")))
			*v = UINT64_MAX;
		else
			rc = num_u64(line, 0, UINT64_MAX, v);
	}
	buf_clear(&text);
	return rc;
}

int
cgroup_ctl_find(struct view text, const char *key, uint64_t *v)
{
	struct view line, name;

	while (view_split(&text, '\n', &line))
		if (view_split(&line, ' ', &name) &&
		    view_eq(name, view_str(key)))
			return num_u64(line, 0, UINT64_MAX, v);
	return SP_E_NOTFOUND;
}

int
cgroup_ctl_key(int dir, const char *file, const char *key, uint64_t *v)
{
	struct buf text = BUF_INIT(64 * 1024);
	int rc;

	rc = cgroup_ctl_read(dir, file, &text);
	if (rc == SP_OK)
		rc = cgroup_ctl_find(buf_view(&text), key, v);
	buf_clear(&text);
	return rc;
}

bool
cgroup_ctl_word(struct view text, const char *word)
{
	struct view line, piece;

	while (view_split(&text, '\n', &line))
		while (view_split(&line, ' ', &piece))
			if (view_eq(piece, view_str(word)))
				return true;
	return false;
}

int
cgroup_ctl_dir(int dir, const char *name, int *out)
{
	if (mkdirat(dir, name, 0755) != 0 && errno != EEXIST)
		return err_from_errno(errno);
	return ctl_open(dir, name, O_RDONLY | O_DIRECTORY, out);
}
