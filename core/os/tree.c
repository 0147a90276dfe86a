#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/fd.h"
#include "os/tree.h"
#include "os/tree_stack.h"

enum {
	READ_BYTES = 16 * 1024,
	SCANS_MAX = 64, /* of a directory into which others write */
	RESTARTS_MAX = 16, /* when directories were moved under the hand */
	NAMES_MAX = 256 * 1024 * 1024, /* bytes of the names of all levels */
};

/* What is known of a directory on the way down. */
struct level {
	int64_t cookie; /* where to go on reading */
	size_t name_at; /* in remover.names; of the root: none */
	unsigned scans;
	bool removed, failed; /* anything that lay in it */
	bool opened_up; /* its mode was changed, to remove what is in it */
};

/* What getdents64(2) gave of a level that is open. */
struct batch {
	char *mem;
	size_t n, at;
};

/*
 * Removes while it reads: a directory may hold more names than there is
 * memory for.  The buffers belong to the levels whose descriptors are open;
 * one that had to go is read again from the place that was reached.
 */
struct remover {
	struct tree_stack stack;
	struct level *levels;
	size_t cap;
	struct batch batch[TREE_STACK_OPEN];
	struct buf names;
	uint64_t deadline_ms;
	int first; /* error */
};

static struct level *
top(struct remover *r)
{
	return &r->levels[r->stack.n - 1];
}

static struct batch *
top_batch(struct remover *r)
{
	return &r->batch[(r->stack.n - 1) % TREE_STACK_OPEN];
}

static bool
late(uint64_t deadline_ms)
{
	return deadline_ms != 0 && clock_ms() >= deadline_ms;
}

static void
failed(struct remover *r, int rc)
{
	if (r->first == SP_OK)
		r->first = rc;
	top(r)->failed = true;
}

static int
push(struct remover *r, int fd, const char *name)
{
	size_t at = buf_len(&r->names), i = r->stack.n;
	struct level *more;
	struct batch *b;
	int rc;

	rc = buf_add(&r->names, name, strlen(name) + 1);
	if (rc == SP_OK && i >= r->cap) {
		more = mem_reallocarray(r->levels, r->cap == 0 ? 64 : i * 2,
		    sizeof(r->levels[0]));
		if (more == NULL)
			rc = SP_E_NOMEM;
		else
			r->levels = more, r->cap = i == 0 ? 64 : i * 2;
	}
	b = &r->batch[i % TREE_STACK_OPEN];
	if (rc == SP_OK && b->mem == NULL &&
	    (b->mem = mem_alloc(READ_BYTES)) == NULL)
		rc = SP_E_NOMEM;
	if (rc == SP_OK)
		rc = tree_stack_push(&r->stack, fd);
	else
		fd_close(&fd);
	if (rc != SP_OK) {
		buf_truncate(&r->names, at);
		return rc;
	}
	b->n = b->at = 0;
	memset(&r->levels[i], 0, sizeof(r->levels[i]));
	r->levels[i].name_at = at;
	return SP_OK;
}

/* The next name of the deepest directory: SP_E_EOF at its end. */
static int
next_name(struct remover *r, const char **name)
{
	struct batch *b = top_batch(r);
	struct dirent64 *e;
	long got;

	for (;;) {
		while (b->at < b->n) {
			e = (struct dirent64 *)(void *)(b->mem + b->at);
			b->at += e->d_reclen;
			top(r)->cookie = e->d_off;
			*name = e->d_name;
			if (strcmp(*name, ".") != 0 && strcmp(*name, "..") != 0)
				return SP_OK;
		}
		got = syscall(SYS_getdents64, tree_stack_top(&r->stack), b->mem,
		    READ_BYTES);
		if (got == 0)
			return SP_E_EOF;
		if (got < 0 && errno != EINTR)
			return err_from_errno(errno);
		b->at = 0;
		b->n = got < 0 ? 0 : (size_t)got;
	}
}

/*
 * Lets the owner into a directory of mode 000.  Safe against a link in its
 * place: the mode is set through a descriptor that follows none.
 */
static int
open_up_at(int dir, const char *name)
{
	char path[40];
	struct stat st;
	int fd, rc = SP_E_DENIED;

	fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
	    chmod(path, 0700) == 0)
		rc = SP_OK;
	fd_close(&fd);
	return rc;
}

/* The same for the one that is open: to remove needs write permission. */
static bool
open_up_top(struct remover *r)
{
	int dir = tree_stack_top(&r->stack);
	struct stat st;

	if (top(r)->opened_up)
		return false;
	top(r)->opened_up = true;
	return fstat(dir, &st) == 0 && (st.st_mode & 0300) != 0300 &&
	    fchmod(dir, (st.st_mode & 07777) | 0700) == 0;
}

static int
unlink_entry(struct remover *r, const char *name, int flags)
{
	int dir = tree_stack_top(&r->stack);

	if (unlinkat(dir, name, flags) == 0)
		return SP_OK;
	if ((errno == EACCES || errno == EPERM) && open_up_top(r) &&
	    unlinkat(dir, name, flags) == 0)
		return SP_OK;
	if (errno == ENOENT)
		return SP_E_NOTFOUND;
	if (errno == EISDIR)
		return SP_E_EXISTS;
	return err_from_errno(errno);
}

/* Goes into the directory of that name. */
static int
descend(struct remover *r, const char *name)
{
	int dir = tree_stack_top(&r->stack), fd = -1, rc;

	rc = tree_stack_open(dir, name, &fd);
	if (rc == SP_E_DENIED) {
		rc = open_up_at(dir, name);
		if (rc == SP_OK)
			rc = tree_stack_open(dir, name, &fd);
	}
	if (rc == SP_OK)
		rc = push(r, fd, name);
	return rc;
}

static void
remove_entry(struct remover *r, const char *name)
{
	int rc;

	rc = unlink_entry(r, name, 0);
	if (rc == SP_E_EXISTS) {
		/* an empty directory needs no visit */
		rc = unlink_entry(r, name, AT_REMOVEDIR);
		if (rc == SP_E_STATE || rc == SP_E_EXISTS ||
		    rc == SP_E_DENIED) {
			rc = descend(r, name);
			if (rc == SP_OK)
				return;
		}
	}
	if (rc == SP_OK)
		top(r)->removed = true;
	else if (rc != SP_E_NOTFOUND)
		failed(r, rc);
}

/*
 * A directory was read to its end.  Some file systems skip names when others
 * are removed meanwhile, so what is to be empty is read once more.
 */
static bool
scan_again(struct remover *r)
{
	struct level *l = top(r);

	if (l->failed || !l->removed || ++l->scans >= SCANS_MAX)
		return false;
	l->removed = false;
	l->cookie = 0;
	top_batch(r)->n = top_batch(r)->at = 0;
	return lseek(tree_stack_top(&r->stack), 0, SEEK_SET) == 0;
}

/* Leaves the deepest directory and removes it: SP_E_EOF it was the root. */
static int
ascend(struct remover *r)
{
	struct level done = *top(r);
	bool was_open = r->stack.n > 1 &&
	    r->stack.fd[(r->stack.n - 2) % TREE_STACK_OPEN] >= 0;
	const char *name;
	int rc;

	if (r->stack.n == 1)
		return SP_E_EOF;
	rc = tree_stack_pop(&r->stack);
	if (rc != SP_OK)
		return rc;
	if (!was_open) {
		top_batch(r)->n = top_batch(r)->at = 0;
		if (lseek(tree_stack_top(&r->stack), top(r)->cookie, SEEK_SET) <
		    0)
			return err_from_errno(errno);
	}
	name = buf_view(&r->names).p + done.name_at;
	if (done.failed) {
		top(r)->failed = true;
	} else {
		rc = unlink_entry(r, name, AT_REMOVEDIR);
		if (rc == SP_OK || rc == SP_E_NOTFOUND)
			top(r)->removed = true;
		else
			failed(r, rc);
	}
	buf_truncate(&r->names, done.name_at);
	return SP_OK;
}

/* From the root down, once: 0; SP_E_STATE the way back was lost. */
static int
run(struct remover *r)
{
	const char *name = "";
	int rc;

	for (;;) {
		if (late(r->deadline_ms))
			return SP_E_TIMEOUT;
		rc = next_name(r, &name);
		if (rc == SP_OK) {
			remove_entry(r, name);
			continue;
		}
		if (rc != SP_E_EOF)
			failed(r, rc);
		else if (scan_again(r))
			continue;
		rc = ascend(r);
		if (rc == SP_E_EOF)
			return SP_OK;
		if (rc != SP_OK)
			return rc;
	}
}

static int
run_from(struct remover *r, int dir)
{
	int fd, i, rc;

	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	tree_stack_init(&r->stack);
	rc = push(r, fd, "");
	if (rc == SP_OK)
		rc = run(r);
	tree_stack_clear(&r->stack);
	for (i = 0; i < TREE_STACK_OPEN; i++)
		r->batch[i].n = r->batch[i].at = 0;
	buf_truncate(&r->names, 0);
	return rc;
}

int
tree_remove(int dir, uint64_t deadline_ms)
{
	struct remover r;
	int i, rc = SP_E_STATE;

	memset(&r, 0, sizeof(r));
	buf_init(&r.names, NAMES_MAX);
	r.deadline_ms = deadline_ms;
	for (i = 0; i < RESTARTS_MAX && rc == SP_E_STATE; i++) {
		r.first = SP_OK;
		rc = run_from(&r, dir);
	}
	if (rc == SP_OK)
		rc = r.first;
	for (i = 0; i < TREE_STACK_OPEN; i++)
		mem_free(r.batch[i].mem);
	mem_free(r.levels);
	buf_clear(&r.names);
	return rc;
}

int
tree_remove_at(int dir, const char *name, uint64_t deadline_ms)
{
	int fd = -1, rc;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return SP_OK;
	if (errno != EISDIR)
		return err_from_errno(errno);
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return SP_OK;
	if (errno == EACCES || errno == EPERM || errno == EBUSY)
		return err_from_errno(errno);
	rc = tree_stack_open(dir, name, &fd);
	if (rc == SP_E_DENIED) {
		rc = open_up_at(dir, name);
		if (rc == SP_OK)
			rc = tree_stack_open(dir, name, &fd);
	}
	if (rc == SP_OK)
		rc = tree_remove(fd, deadline_ms);
	fd_close(&fd);
	if (rc == SP_OK && unlinkat(dir, name, AT_REMOVEDIR) != 0 &&
	    errno != ENOENT)
		rc = err_from_errno(errno);
	return rc;
}
