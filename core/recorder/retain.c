#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/fd.h"
#include "recorder/retain.h"

enum { RETAIN_FILES_MAX = 200 * 1000, RETAIN_NAME_MAX = 256 };

struct file {
	char *name; /* owned */
	uint64_t size;
	uint64_t at_us; /* last written */
	bool finished;
};

struct listing {
	struct file *v; /* owned */
	size_t n, cap;
	uint64_t bytes;
};

/* Files that stand beside the traces. */
static bool
is_companion(struct view name)
{
	return name.p[0] == '.' || view_ends(name, VIEW(".seal")) ||
	    view_ends(name, VIEW(".torn")) ||
	    view_starts(name, VIEW(SIGNER_PUB_FILE));
}

/* trace_name with some session put in, perhaps with a .N behind it. */
static bool
is_trace_name(const struct conf_capture *c, struct view name)
{
	const struct view mark = VIEW("$session");
	size_t at = view_search(c->trace_name, mark);
	struct view head = view_sub(c->trace_name, 0, at);
	struct view tail = view_from(c->trace_name, at + mark.n);
	size_t dot = name.n;

	if (name.n == 0 || is_companion(name))
		return false;
	if (at == c->trace_name.n)
		return view_eq(name, head) || trace_roll_number(name, head) > 0;
	if (name.n <= head.n || !view_starts(name, head))
		return false;
	if (name.n > head.n + tail.n && view_ends(name, tail))
		return true;
	while (dot > 0 && name.p[dot - 1] != '.')
		dot--;
	return dot > 1 && dot - 1 > head.n + tail.n &&
	    trace_roll_number(name, view_sub(name, 0, dot - 1)) > 0 &&
	    view_ends(view_sub(name, 0, dot - 1), tail);
}

static bool
is_open(const struct store *s, const struct store_dir *dir, const char *name)
{
	const struct trace *t;

	TAILQ_FOREACH (t, &s->traces, link)
		if (t->dir == dir->fd && strcmp(t->name, name) == 0)
			return true;
	return false;
}

static void
add_file(struct store *s, const struct store_dir *dir, struct listing *l,
    const char *name)
{
	char seal[RETAIN_NAME_MAX];
	struct stat st;
	struct file *v;
	size_t cap;

	if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
	    !S_ISREG(st.st_mode) || l->n >= RETAIN_FILES_MAX)
		return;
	if (l->n == l->cap) {
		cap = l->cap == 0 ? 64 : l->cap * 2;
		v = mem_reallocarray(l->v, cap, sizeof(*v));
		if (v == NULL)
			return;
		l->v = v;
		l->cap = cap;
	}
	v = &l->v[l->n];
	v->name = mem_strdup(name);
	if (v->name == NULL)
		return;
	v->size = (uint64_t)st.st_size;
	v->at_us = (uint64_t)st.st_mtim.tv_sec * 1000000 +
	    (uint64_t)st.st_mtim.tv_nsec / 1000;
	l->bytes += v->size;
	v->finished = !is_open(s, dir, name) &&
	    seal_name(view_str(name), seal, sizeof(seal)) == 0 &&
	    fstatat(dir->fd, seal, &st, AT_SYMLINK_NOFOLLOW) == 0;
	l->n++;
}

static void
list_files(struct store *s, const struct store_dir *dir,
    const struct conf_capture *c, struct listing *l)
{
	struct dirent *e;
	DIR *d;
	int fd;

	fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	d = fdopendir(fd);
	if (d == NULL) {
		fd_close(&fd);
		return;
	}
	while ((e = readdir(d)) != NULL)
		if (strlen(e->d_name) < RETAIN_NAME_MAX - 8 &&
		    is_trace_name(c, view_str(e->d_name)))
			add_file(s, dir, l, e->d_name);
	(void)closedir(d);
}

static int
by_age(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

static void
remove_file(const struct store_dir *dir, const struct file *f, const char *why)
{
	char seal[RETAIN_NAME_MAX];

	/* the seal last: what is left of a crash between is a file's end */
	if (unlinkat(dir->fd, f->name, 0) != 0) {
		log_warn("trace %s: cannot remove: %s", f->name,
		    err_str(err_from_errno(errno)));
		return;
	}
	if (seal_name(view_str(f->name), seal, sizeof(seal)) == 0)
		(void)unlinkat(dir->fd, seal, 0);
	log_notice("trace %s: removed by trace_keep (%s)", f->name, why);
}

static void
retain_dir(struct store *s, const struct store_dir *dir,
    const struct conf_capture *c, uint64_t now_us)
{
	struct listing l = { 0 };
	size_t i;

	list_files(s, dir, c, &l);
	if (l.n > 1)
		qsort(l.v, l.n, sizeof(*l.v), by_age);
	for (i = 0; i < l.n; i++) {
		struct file *f = &l.v[i];
		bool old = c->trace_keep_ms > 0 && now_us > f->at_us &&
		    (now_us - f->at_us) / 1000 > c->trace_keep_ms;
		bool big =
		    c->trace_keep_bytes > 0 && l.bytes > c->trace_keep_bytes;

		if (f->finished && (old || big)) {
			remove_file(dir, f, old ? "age" : "size");
			l.bytes -= f->size;
		}
		mem_free(f->name);
	}
	mem_free(l.v);
}

void
retain_run(struct store *s, uint64_t now_wall_us)
{
	size_t i;

	for (i = 0; i < s->dirs_n; i++) {
		const struct conf_capture *c = s->dirs[i].capture;

		/* one of an old generation has a say no more */
		if (c == NULL || c->index >= s->conf->captures_n ||
		    s->conf->captures[c->index] != c)
			continue;
		if (c->trace_keep_ms > 0 || c->trace_keep_bytes > 0)
			retain_dir(s, &s->dirs[i], c, now_wall_us);
	}
}
