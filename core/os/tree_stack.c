#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "os/fd.h"
#include "os/tree_stack.h"

enum {
	NAMES_TEXT_MAX = 1024 * 1024 * 1024, /* bytes of one directory's */
	READ_BYTES = 32 * 1024,
	OPEN_TRIES = 8, /* while others rename: openat2(2), EAGAIN */
};

void
tree_stack_init(struct tree_stack *s)
{
	int i;

	memset(s, 0, sizeof(*s));
	for (i = 0; i < TREE_STACK_OPEN; i++)
		s->fd[i] = -1;
}

void
tree_stack_clear(struct tree_stack *s)
{
	int i;

	for (i = 0; i < TREE_STACK_OPEN; i++)
		fd_close(&s->fd[i]);
	mem_free(s->levels);
	s->levels = NULL;
	s->n = s->cap = 0;
}

static int
make_room(struct tree_stack *s)
{
	size_t cap = s->cap == 0 ? 64 : s->cap * 2;
	struct tree_level *more;

	if (s->n < s->cap)
		return SP_OK;
	if (s->n >= TREE_STACK_MAX)
		return SP_E_LIMIT;
	more = mem_reallocarray(s->levels, cap, sizeof(s->levels[0]));
	if (more == NULL)
		return SP_E_NOMEM;
	s->levels = more;
	s->cap = cap;
	return SP_OK;
}

int
tree_stack_push(struct tree_stack *s, int fd)
{
	struct stat st;
	int *slot, rc;

	rc = make_room(s);
	if (rc == SP_OK && fstat(fd, &st) != 0)
		rc = err_from_errno(errno);
	if (rc != SP_OK) {
		fd_close(&fd);
		return rc;
	}
	s->levels[s->n].dev = st.st_dev;
	s->levels[s->n].ino = st.st_ino;
	slot = &s->fd[s->n % TREE_STACK_OPEN];
	/* that of a level far above, if any */
	fd_close(slot);
	*slot = fd;
	s->n++;
	return SP_OK;
}

int
tree_stack_top(const struct tree_stack *s)
{
	return s->n == 0 ? -1 : s->fd[(s->n - 1) % TREE_STACK_OPEN];
}

int
tree_stack_pop(struct tree_stack *s)
{
	int *from = &s->fd[(s->n - 1) % TREE_STACK_OPEN], *to;
	const struct tree_level *l;
	struct stat st;
	int rc = SP_OK;

	s->n--;
	if (s->n > 0) {
		l = &s->levels[s->n - 1];
		to = &s->fd[(s->n - 1) % TREE_STACK_OPEN];
		if (*to < 0)
			*to = openat(*from, "..",
			    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOCTTY);
		/* somebody moved it: never work in a place not checked */
		if (*to < 0 || fstat(*to, &st) != 0 || st.st_dev != l->dev ||
		    st.st_ino != l->ino)
			rc = SP_E_STATE;
		if (rc != SP_OK)
			fd_close(to);
	}
	fd_close(from);
	return rc;
}

static int
open_one(int dir, const char *name, uint64_t flags, int *out)
{
	struct open_how how;
	int tries = 0;
	long fd;

	memset(&how, 0, sizeof(how));
	how.flags = flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	if ((flags & O_PATH) != 0)
		how.flags = flags | O_NOFOLLOW | O_CLOEXEC;
	how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
	    RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
	do
		fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN) &&
	    ++tries < OPEN_TRIES);
	if (fd >= 0) {
		*out = (int)fd;
		return SP_OK;
	}
	if (errno == EXDEV)
		return SP_E_UNSUPPORTED;
	if (errno == ELOOP || errno == ENOTDIR)
		return SP_E_STATE;
	return err_from_errno(errno);
}

int
tree_stack_open(int dir, const char *name, int *out)
{
	return open_one(dir, name, O_RDONLY | O_DIRECTORY, out);
}

int
tree_stack_open_file(int dir, const char *name, struct stat *st, int *out)
{
	char path[40];
	int at = -1, rc;

	rc = open_one(dir, name, O_PATH, &at);
	if (rc != SP_OK)
		return rc;
	if (fstat(at, st) != 0) {
		rc = err_from_errno(errno);
	} else if (!S_ISREG(st->st_mode)) {
		rc = SP_E_STATE;
	} else {
		/* what was looked at, whatever has that name by now */
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
		*out = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (*out < 0)
			rc = err_from_errno(errno);
	}
	fd_close(&at);
	return rc;
}

/* ---- names -------------------------------------------------------------- */

static int
compare(const void *a, const void *b, void *text)
{
	const char *base = text;
	size_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	/* strcmp() compares bytes as unsigned */
	return strcmp(base + x, base + y);
}

/* Adds the names of one getdents64(2); SP_E_EOF at the end. */
static int
read_some(int dir, char *chunk, size_t max, struct buf *text,
    struct tree_names *names)
{
	struct dirent64 *e;
	long got, at;
	int rc = SP_OK;

	got = syscall(SYS_getdents64, dir, chunk, READ_BYTES);
	if (got == 0)
		return SP_E_EOF;
	if (got < 0)
		return errno == EINTR ? SP_OK : err_from_errno(errno);
	for (at = 0; at < got && rc == SP_OK; at += e->d_reclen) {
		e = (struct dirent64 *)(void *)(chunk + at);
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (names->n >= max)
			return SP_E_LIMIT;
		names->n++;
		rc = buf_add(text, e->d_name, strlen(e->d_name) + 1);
	}
	return rc;
}

static int
index_names(struct tree_names *names, const struct buf *text)
{
	size_t i, at = 0;

	if (names->n == 0 || buf_len(text) == 0)
		return SP_OK;
	names->text = mem_alloc(buf_len(text));
	names->at = mem_calloc(names->n, sizeof(names->at[0]));
	if (names->text == NULL || names->at == NULL)
		return SP_E_NOMEM;
	memcpy(names->text, text->mem + text->off, buf_len(text));
	for (i = 0; i < names->n; i++) {
		names->at[i] = at;
		at += strlen(names->text + at) + 1;
	}
	qsort_r(names->at, names->n, sizeof(names->at[0]), compare,
	    names->text);
	return SP_OK;
}

int
tree_stack_names(int dir, size_t max, struct tree_names *names)
{
	struct buf text = BUF_INIT(NAMES_TEXT_MAX);
	char *chunk;
	int rc = SP_OK;

	memset(names, 0, sizeof(*names));
	chunk = mem_alloc(READ_BYTES);
	if (chunk == NULL)
		return SP_E_NOMEM;
	if (lseek(dir, 0, SEEK_SET) < 0)
		rc = err_from_errno(errno);
	while (rc == SP_OK)
		rc = read_some(dir, chunk, max, &text, names);
	mem_free(chunk);
	if (rc == SP_E_EOF)
		rc = index_names(names, &text);
	buf_clear(&text);
	if (rc != SP_OK)
		tree_stack_names_clear(names);
	return rc;
}

void
tree_stack_names_clear(struct tree_names *names)
{
	mem_free(names->text);
	mem_free(names->at);
	memset(names, 0, sizeof(*names));
}
