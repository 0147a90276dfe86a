#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "os/fd.h"
#include "recorder/store.h"

enum {
	FLOOR_BYTES = 64 * 1024 * 1024,
	FLOOR_PART = 20, /* 5 % */
	PROBE_MAX_BYTES = 64 * 1024 * 1024,
};
#define PROBE_FILE ".sallyport-probe"

int
store_init(struct store *s, const struct conf *conf,
    const struct signer *signer)
{
	*s = (struct store){ .conf = conf, .signer = signer };
	TAILQ_INIT(&s->traces);
	s->by_key = hmap_new(STORE_TRACES_MAX);
	return s->by_key != NULL ? 0 : SP_E_NOMEM;
}

/* Takes one entry off the list; the last with its number closes that. */
static void
dir_forget(struct store *s, size_t at)
{
	int fd = s->dirs[at].fd;
	size_t i;

	s->dirs[at] = s->dirs[--s->dirs_n];
	for (i = 0; i < s->dirs_n; i++)
		if (s->dirs[i].fd == fd)
			return;
	fd_close(&fd);
}

void
store_clear(struct store *s)
{
	struct trace *t;

	while (s->by_key != NULL && (t = TAILQ_FIRST(&s->traces)) != NULL) {
		TAILQ_REMOVE(&s->traces, t, link);
		trace_free(t);
	}
	hmap_free(s->by_key);
	s->by_key = NULL;
	while (s->dirs_n > 0)
		dir_forget(s, s->dirs_n - 1);
	mem_free(s->dirs);
	s->dirs = NULL;
}

static const struct store_dir *
dir_same(const struct store *s, const struct stat *st)
{
	size_t i;

	for (i = 0; i < s->dirs_n; i++)
		if (s->dirs[i].dev == (uint64_t)st->st_dev &&
		    s->dirs[i].ino == (uint64_t)st->st_ino)
			return &s->dirs[i];
	return NULL;
}

bool
store_has_dir(const struct store *s, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && dir_same(s, &st) != NULL;
}

int
store_add_dir(struct store *s, const struct conf_capture *capture, int *fd)
{
	const struct store_dir *same;
	struct store_dir *grown;
	struct stat st;
	int taken = *fd;

	*fd = -1;
	grown = mem_reallocarray(s->dirs, s->dirs_n + 1, sizeof(*grown));
	if (grown != NULL)
		s->dirs = grown;
	if (grown == NULL || fstat(taken, &st) != 0) {
		fd_close(&taken);
		return grown == NULL ? SP_E_NOMEM : err_from_errno(errno);
	}
	same = dir_same(s, &st);
	if (same != NULL) {
		/* open traces have that number */
		fd_close(&taken);
		taken = same->fd;
	}
	s->dirs[s->dirs_n++] = (struct store_dir){ .capture = capture,
		.fd = taken,
		.dev = (uint64_t)st.st_dev,
		.ino = (uint64_t)st.st_ino };
	*fd = taken;
	return 0;
}

mode_t
store_mode(const struct store *s)
{
	/* the directory's setgid bit gives them the group */
	return s->conf->main.trace_group.n > 0 ? 0640 : 0600;
}

static const struct store_dir *
dir_of(const struct store *s, const struct conf_capture *capture)
{
	size_t i;

	for (i = 0; i < s->dirs_n; i++)
		if (s->dirs[i].capture == capture)
			return &s->dirs[i];
	return NULL;
}

/* Names of other files that stand beside the traces. */
static bool
name_taken(struct view name)
{
	size_t dot = name.n;
	uint64_t n;

	if (name.p == NULL)
		return true;
	while (dot > 0 && name.p[dot - 1] != '.')
		dot--;
	return name.n == 0 || name.p[0] == '.' ||
	    view_find(name, '/') != name.n || view_ends(name, VIEW(".seal")) ||
	    view_ends(name, VIEW(".torn")) ||
	    view_starts(name, VIEW(SIGNER_PUB_FILE)) ||
	    (dot > 0 && num_u64(view_from(name, dot), 0, UINT64_MAX, &n) == 0);
}

int
store_file_name(const struct conf_capture *c, struct view session,
    struct buf *out)
{
	const struct view mark = VIEW("$session");
	struct view rest = c->trace_name;
	size_t at;
	int rc = 0;

	while (rc == 0 && rest.n > 0) {
		at = view_search(rest, mark);
		rc = buf_add_view(out, view_sub(rest, 0, at));
		if (rc == 0 && at < rest.n)
			rc = buf_add_view(out, session);
		rest = view_from(rest, at + mark.n);
	}
	if (rc == 0 && name_taken(buf_view(out)))
		rc = SP_E_ARG;
	return rc == SP_E_LIMIT ? SP_E_ARG : rc;
}

static int
make_trace(struct store *s, const struct conf_capture *c,
    const struct store_dir *dir, struct view session, struct view name,
    struct view key)
{
	struct trace *t = trace_new(dir->fd, key, session, name);
	bool shared;
	int rc;

	if (t == NULL)
		return SP_E_NOMEM;
	/* a file that no session's end will ever close */
	shared =
	    view_search(c->trace_name, VIEW("$session")) == c->trace_name.n;
	if (shared || view_eq(session, VIEW("default")))
		t->roll_bytes = c->trace_roll_bytes;
	t->mode = store_mode(s);
	t->sync = c->trace_sync;
	rc = hmap_add(s->by_key, key, t);
	if (rc != 0) {
		trace_free(t);
		return rc;
	}
	TAILQ_INSERT_TAIL(&s->traces, t, link);
	return 0;
}

static void
forget(struct store *s, struct trace *t)
{
	TAILQ_REMOVE(&s->traces, t, link);
	(void)hmap_del(s->by_key, view_str(t->key));
	trace_free(t);
}

int
store_get(struct store *s, const struct conf_capture *c, struct view session,
    struct trace **out)
{
	const struct store_dir *dir = dir_of(s, c);
	struct buf name = BUF_INIT(TRACE_NAME_MAX);
	struct buf key = BUF_INIT(TRACE_NAME_MAX + 64);
	struct trace *t = NULL;
	int rc;

	if (dir == NULL)
		return SP_E_NOTFOUND;
	rc = store_file_name(c, session, &name);
	if (rc == 0)
		/* two captures may share a directory, and so a file */
		rc = buf_printf(&key, "%llx/%llx/%.*s",
		    (unsigned long long)dir->dev, (unsigned long long)dir->ino,
		    VIEW_ARG(buf_view(&name)));
	if (rc == 0 && hmap_get(s->by_key, buf_view(&key)) == NULL)
		rc = make_trace(s, c, dir, session, buf_view(&name),
		    buf_view(&key));
	if (rc == 0)
		t = hmap_get(s->by_key, buf_view(&key));
	buf_clear(&name);
	buf_clear(&key);
	if (t == NULL)
		return rc != 0 ? rc : SP_E_NOMEM;
	t->sync = t->sync || c->trace_sync;
	rc = trace_open(t);
	if (rc != 0) {
		if (t->refs == 0)
			forget(s, t);
		return rc;
	}
	t->refs++;
	TAILQ_REMOVE(&s->traces, t, link);
	TAILQ_INSERT_TAIL(&s->traces, t, link);
	*out = t;
	return 0;
}

void
store_put(struct store *s, struct trace *t)
{
	(void)s;
	if (t == NULL)
		return;
	err_assert(t->refs > 0);
	t->refs--;
}

static bool
is_there(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int
store_file_used(const struct store *s, const struct conf_capture *c,
    struct view session)
{
	const struct store_dir *dir = dir_of(s, c);
	struct buf name = BUF_INIT(TRACE_NAME_MAX + 16);
	char seal[TRACE_NAME_MAX + 16];
	size_t n;
	int rc;

	if (dir == NULL)
		return SP_E_ARG;
	rc = store_file_name(c, session, &name);
	n = buf_len(&name);
	if (rc == 0)
		rc = seal_name(buf_view(&name), seal, sizeof(seal));
	if (rc == 0)
		rc = buf_add(&name, "\0.1", 4);
	if (rc == 0 && name.mem != NULL) {
		char *file = name.mem + name.off;

		if (is_there(dir->fd, file) || is_there(dir->fd, seal))
			rc = SP_E_EXISTS;
		memcpy(file + n, ".1", 3);
		if (is_there(dir->fd, file))
			rc = SP_E_EXISTS;
	}
	buf_clear(&name);
	return rc;
}

/* Whether a file that rolls may come to have a roll of that name. */
static bool
is_roll(const struct store *s, const struct store_dir *dir, struct view name)
{
	struct buf base = BUF_INIT(TRACE_NAME_MAX);
	const struct store_dir *other;
	const struct conf_capture *c;
	bool is = false;
	size_t i;

	for (i = 0; i < s->conf->captures_n && !is; i++) {
		c = s->conf->captures[i];
		other = dir_of(s, c);
		buf_reset(&base, TRACE_NAME_MAX);
		is = other != NULL && dir != NULL && other->fd == dir->fd &&
		    store_file_name(c, VIEW("default"), &base) == 0 &&
		    trace_roll_number(name, buf_view(&base)) > 0;
	}
	buf_clear(&base);
	return is;
}

int
store_file_new(const struct store *s, const struct conf_capture *c,
    struct view session)
{
	const struct view end = VIEW(".jsonl");
	struct buf name = BUF_INIT(TRACE_NAME_MAX);
	struct view stem;
	int rc = store_file_used(s, c, session);

	if (rc == 0)
		rc = store_file_name(c, session, &name);
	stem = buf_view(&name);
	/* seal_name() leaves that out: NAME.N.jsonl and the roll NAME.N have
	 * one name of their seals */
	if (rc == 0 && view_ends(stem, end) &&
	    is_roll(s, dir_of(s, c), view_sub(stem, 0, stem.n - end.n)))
		rc = SP_E_ARG;
	buf_clear(&name);
	return rc;
}

int
store_read(struct store *s, const struct conf_capture *c, struct view session,
    int *fd, uint64_t *size)
{
	struct trace *t = NULL;
	int rc = store_file_used(s, c, session);

	if (rc != SP_E_EXISTS)
		return rc == 0 || rc == SP_E_ARG ? SP_E_NOTFOUND : rc;
	rc = store_get(s, c, session, &t);
	if (rc != 0)
		return rc;
	*size = t->size;
	rc = fd_open_beneath(t->dir, t->name,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, fd);
	store_put(s, t);
	return rc;
}

void
store_trim(struct store *s)
{
	struct trace *t, *next;
	size_t n = hmap_count(s->by_key);

	for (t = TAILQ_FIRST(&s->traces); t != NULL && n > STORE_OPEN_MAX;
	     t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->refs > 0)
			continue;
		forget(s, t);
		n--;
	}
}

static void
close_trace(struct store *s, struct trace *t)
{
	int rc = trace_sealed(t) ? 0 : trace_seal(t, s->signer, "reload");

	if (rc != 0)
		log_error("trace %s: cannot write the seal: %s", t->name,
		    err_str(rc));
	forget(s, t);
}

/* Closes the traces in there: false when one is in use. */
static bool
dir_close_traces(struct store *s, int fd)
{
	struct trace *t, *next;
	bool all = true;

	for (t = TAILQ_FIRST(&s->traces); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->dir != fd)
			continue;
		if (t->refs == 0)
			close_trace(s, t);
		else
			all = false;
	}
	return all;
}

/* Whether a capture of today gives its session that file. */
static bool
is_reached(const struct store *s, const struct trace *t)
{
	struct buf name = BUF_INIT(TRACE_NAME_MAX);
	const struct store_dir *dir;
	bool reached = false;
	size_t i;

	for (i = 0; i < s->conf->captures_n && !reached; i++) {
		dir = dir_of(s, s->conf->captures[i]);
		buf_reset(&name, TRACE_NAME_MAX);
		reached = dir != NULL && dir->fd == t->dir &&
		    store_file_name(s->conf->captures[i], view_str(t->session),
			&name) == 0 &&
		    view_eq(buf_view(&name), view_str(t->name));
	}
	buf_clear(&name);
	return reached;
}

/* Those that nobody finds any more, to seal them at their session's end. */
static void
close_unreached(struct store *s)
{
	struct trace *t, *next;

	for (t = TAILQ_FIRST(&s->traces); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->refs == 0 && !is_reached(s, t))
			close_trace(s, t);
	}
}

static bool
dir_shared(const struct store *s, size_t at)
{
	size_t i;

	for (i = 0; i < s->dirs_n; i++)
		if (i != at && s->dirs[i].fd == s->dirs[at].fd)
			return true;
	return false;
}

void
store_drop(struct store *s, const struct conf *conf)
{
	size_t i, k;

	for (i = 0; i < s->dirs_n; i++)
		for (k = 0; k < conf->captures_n; k++)
			if (s->dirs[i].capture == conf->captures[k])
				s->dirs[i].capture = NULL;
	for (i = s->dirs_n; i-- > 0;)
		if (s->dirs[i].capture == NULL &&
		    (dir_shared(s, i) || dir_close_traces(s, s->dirs[i].fd)))
			dir_forget(s, i);
	if (s->conf != NULL)
		close_unreached(s);
}

int
store_seal_stale(struct store *s, const struct conf_capture *c,
    struct view session, const char *reason)
{
	const struct store_dir *dir = dir_of(s, c);
	struct buf name = BUF_INIT(TRACE_NAME_MAX + 1);
	struct trace *t = NULL;
	int rc;

	if (dir == NULL)
		return 0;
	rc = store_file_name(c, session, &name);
	if (rc == 0)
		rc = buf_add_char(&name, '\0');
	if (rc == 0 && is_there(dir->fd, name.mem + name.off))
		rc = store_get(s, c, session, &t);
	if (t != NULL && !trace_sealed(t))
		rc = trace_seal(t, s->signer, reason);
	store_put(s, t);
	/* there may be more of them than descriptors; one that cannot be
	 * sealed keeps what is known of its turns, as long as there is room */
	if (t != NULL && t->refs == 0 &&
	    (rc == 0 || hmap_count(s->by_key) > STORE_OPEN_MAX))
		forget(s, t);
	buf_clear(&name);
	return rc;
}

void
store_seal_all(struct store *s, const char *reason)
{
	struct trace *t;
	int rc;

	TAILQ_FOREACH (t, &s->traces, link) {
		rc = trace_seal(t, s->signer, reason);
		if (rc != 0)
			log_error("trace %s: cannot write the seal: %s",
			    t->name, err_str(rc));
	}
}

static bool
dir_above_floor(int fd, bool again)
{
	uint64_t total, avail, floor;
	struct statfs st;

	if (fstatfs(fd, &st) != 0)
		return true; /* not known: the write will tell */
	total = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize;
	avail = (uint64_t)st.f_bavail * (uint64_t)st.f_bsize;
	if (total == 0)
		return true; /* no such notion here */
	floor = total / FLOOR_PART;
	if (floor > FLOOR_BYTES)
		floor = FLOOR_BYTES;
	if (again)
		floor += floor / 4;
	return avail >= floor;
}

/* Whether n bytes can be had: also what a quota says. */
static bool
dir_takes(int fd, uint64_t n)
{
	bool good;
	int probe;

	if (n > PROBE_MAX_BYTES)
		n = PROBE_MAX_BYTES;
	if (fd_open_beneath(fd, PROBE_FILE,
		O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600, &probe) != 0)
		return false;
	good = fallocate(probe, 0, 0, (off_t)n) == 0 || errno == EOPNOTSUPP;
	fd_close(&probe);
	(void)unlinkat(fd, PROBE_FILE, 0);
	return good;
}

static const struct store_dir *
find_full(const struct store *s, bool again, uint64_t n)
{
	size_t i;

	for (i = 0; i < s->dirs_n; i++)
		if (!dir_above_floor(s->dirs[i].fd, again) ||
		    (n > 0 && !dir_takes(s->dirs[i].fd, n)))
			return &s->dirs[i];
	return NULL;
}

bool
store_has_room(const struct store *s, bool again, uint64_t n)
{
	return find_full(s, again, n) == NULL;
}

struct view
store_full_dir(const struct store *s, bool again, uint64_t n)
{
	const struct store_dir *d = find_full(s, again, n);

	if (d == NULL)
		return VIEW_NONE;
	return d->capture != NULL ? d->capture->trace_dir
				  : VIEW("a former capture's folder");
}
