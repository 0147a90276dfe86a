#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "json/jscan.h"
#include "os/fd.h"
#include "recorder/tail.h"
#include "recorder/trace.h"

enum {
	FILE_NAME_MAX = 256,
	DIR_ENTRIES_MAX = 1000 * 1000,
	SEAL_MAX_BYTES = 1024 * 1024,
	EARLIER_MAX_BYTES = 64 * 1024,
	BLOCK = 256 * 1024,
};

static void (*work_cb)(void *arg);
static void *work_arg;

void
trace_on_work(void (*cb)(void *arg), void *arg)
{
	work_cb = cb;
	work_arg = arg;
}

static void
at_work(void)
{
	if (work_cb != NULL)
		work_cb(work_arg);
}

struct trace *
trace_new(int dir, struct view key, struct view session, struct view name)
{
	struct trace *t = mem_calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->fd = -1;
	t->dir = dir;
	t->mode = 0600;
	t->key = mem_strndup(key.p, key.n);
	t->session = mem_strndup(session.p, session.n);
	t->name = mem_strndup(name.p, name.n);
	chain_zero(t->head);
	buf_init(&t->group, TRACE_GROUP_BYTES);
	chain_sum_init(&t->group_sum);
	t->group_id = 1;
	if (t->key == NULL || t->session == NULL || t->name == NULL) {
		trace_free(t);
		return NULL;
	}
	return t;
}

void
trace_free(struct trace *t)
{
	if (t == NULL)
		return;
	trace_close(t);
	mem_free(t->key);
	mem_free(t->session);
	mem_free(t->name);
	mem_free(t->undelivered);
	buf_clear(&t->group);
	mem_free(t);
}

void
trace_close(struct trace *t)
{
	if (t->fd >= 0)
		trace_sync(t);
	fd_close(&t->fd);
	t->sum_ok = false;
}

uint64_t
trace_roll_number(struct view file, struct view name)
{
	uint64_t n;

	if (file.n <= name.n + 1 || !view_starts(file, name) ||
	    file.p[name.n] != '.' ||
	    num_u64(view_from(file, name.n + 1), 1, UINT64_MAX / 2, &n) != 0)
		return 0;
	return n;
}

/* The number of the newest roll; 0: there is none. */
static int
newest_roll(const struct trace *t, uint64_t *out)
{
	struct dirent *e;
	size_t left = DIR_ENTRIES_MAX;
	uint64_t n;
	DIR *d;
	int fd;

	*out = 0;
	fd = openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	d = fdopendir(fd);
	if (d == NULL) {
		fd_close(&fd);
		return SP_E_NOMEM;
	}
	while (left-- > 0 && (e = readdir(d)) != NULL) {
		n = trace_roll_number(view_str(e->d_name), view_str(t->name));
		if (n > *out)
			*out = n;
	}
	(void)closedir(d);
	return 0;
}

/* An empty file goes on where the newest roll ended. */
static int
continue_roll(struct trace *t)
{
	char name[FILE_NAME_MAX];
	struct tail tail = { .whole = 0 };
	struct stat st;
	uint64_t n;
	int fd, rc;

	rc = newest_roll(t, &n);
	if (rc != 0 || n == 0)
		return rc;
	(void)snprintf(name, sizeof(name), "%s.%llu", t->name,
	    (unsigned long long)n);
	rc = fd_open_beneath(t->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK,
	    0, &fd);
	if (rc != 0)
		return rc;
	if (fstat(fd, &st) != 0)
		rc = err_from_errno(errno);
	else if (S_ISREG(st.st_mode))
		rc = tail_read(fd, (uint64_t)st.st_size, &tail);
	else
		rc = SP_E_DENIED;
	fd_close(&fd);
	if (rc != 0)
		return rc;
	memcpy(t->head, tail.link.hash, sizeof(t->head));
	if (tail.turn_high > t->turn_high)
		t->turn_high = tail.turn_high;
	return 0;
}

static int
set_torn_aside(struct trace *t, const struct tail *tail)
{
	char name[FILE_NAME_MAX];
	int torn, rc;

	(void)snprintf(name, sizeof(name), "%s.torn", t->name);
	rc = fd_open_beneath(t->dir, name,
	    O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, t->mode,
	    &torn);
	if (rc == 0) {
		rc = tail_cut(t->fd, t->size, tail->whole, torn);
		fd_close(&torn);
	}
	if (rc != 0)
		return rc;
	log_warn("trace %s: a torn last line of %llu bytes was moved to %s",
	    t->name, (unsigned long long)(t->size - tail->whole), name);
	t->size = tail->whole;
	return 0;
}

/* Finds out where the file ends, and the chain. */
static int
recover(struct trace *t)
{
	struct tail tail;
	int rc;

	if (t->size == 0) {
		rc = t->roll_bytes > 0 ? continue_roll(t) : 0;
		chain_sum_init(&t->sum);
		t->sum_ok = rc == 0;
		return rc;
	}
	rc = tail_read(t->fd, t->size, &tail);
	if (rc == 0 && tail.whole < t->size)
		rc = set_torn_aside(t, &tail);
	if (rc != 0)
		return rc;
	if (t->size > 0 && !tail.chained)
		log_warn("trace %s: the last line is not one of ours, or was "
			 "changed; the chain begins anew behind it",
		    t->name);
	memcpy(t->head, tail.link.hash, sizeof(t->head));
	if (tail.turn_high > t->turn_high)
		t->turn_high = tail.turn_high;
	if (t->size == 0)
		return recover(t); /* all of it was torn: now it is empty */
	return 0;
}

/* One writer at a time: two would break each other's chain. */
static int
lock_file(int fd)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_SETLK, &l) == 0 ? 0 : SP_E_DENIED;
}

int
trace_open(struct trace *t)
{
	struct stat st;
	int rc;

	if (t->fd >= 0)
		return 0;
	rc = fd_open_beneath(t->dir, t->name,
	    O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, t->mode,
	    &t->fd);
	if (rc != 0)
		return rc;
	if (fstat(t->fd, &st) != 0)
		rc = err_from_errno(errno);
	else if (!S_ISREG(st.st_mode))
		rc = SP_E_DENIED;
	else
		rc = lock_file(t->fd);
	if (rc == 0) {
		t->size = (uint64_t)st.st_size;
		rc = recover(t);
	}
	if (rc != 0) {
		fd_close(&t->fd);
		t->sum_ok = false;
	}
	return rc;
}

/* A seal of the file so far goes with it, into the list of the new one. */
static void
move_seal(const struct trace *t, const char *roll_name)
{
	char from[FILE_NAME_MAX], to[FILE_NAME_MAX];

	if (seal_name(view_str(t->name), from, sizeof(from)) == 0 &&
	    seal_name(view_str(roll_name), to, sizeof(to)) == 0 &&
	    renameat(t->dir, from, t->dir, to) != 0 && errno != ENOENT)
		log_warn("trace %s: cannot move its seal: %s", t->name,
		    err_str(err_from_errno(errno)));
}

/* The file becomes NAME.N with its seal, and an empty one takes its place. */
static int
roll(struct trace *t, const struct signer *k)
{
	char name[FILE_NAME_MAX];
	uint64_t n;
	char *old = t->name;
	int rc;

	rc = newest_roll(t, &n);
	if (rc != 0)
		return rc;
	(void)snprintf(name, sizeof(name), "%s.%llu", t->name,
	    (unsigned long long)n + 1);
	trace_sync(t);
	if (renameat(t->dir, t->name, t->dir, name) != 0)
		return err_from_errno(errno);
	move_seal(t, name);
	t->name = name;
	t->sealed = false;
	rc = trace_seal(t, k, "roll");
	t->name = old;
	if (rc != 0)
		log_error("trace %s: cannot write the seal: %s", name,
		    err_str(rc));
	trace_close(t);
	t->size = 0;
	t->sealed = false;
	t->undelivered_n = 0;
	t->undelivered_more = 0;
	rc = trace_open(t);
	log_info("trace %s: rolled to %s", t->name, name);
	return rc;
}

/* One write; what is there in the end is all of it or nothing. */
static int
write_line(struct trace *t, struct view line)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)line.p,
		.iov_len = line.n };
	size_t done = 0;
	int rc = fd_writev(t->fd, &v, 1, &done);

	if (rc == 0 && done == line.n)
		return 0;
	if (rc == 0)
		rc = SP_E_NOSPC;
	if (ftruncate(t->fd, (off_t)t->size) != 0)
		/* opened anew, the torn line is set aside */
		trace_close(t);
	return rc;
}

/* What is in the file now, and was not. */
static void
wrote(struct trace *t, const char *head, const struct chain_sum *more)
{
	memcpy(t->head, head, sizeof(t->head));
	t->size += more->bytes;
	t->dirty = true;
	t->sealed = false;
	if (t->sum_ok)
		chain_sum_add(&t->sum, more);
}

/* ---- what others do to the file ------------------------------------------- */

/* What became of the file since the last write; NULL: it is as it was. */
static const char *
disturbed(const struct trace *t)
{
	struct stat ours, named;

	if (fstat(t->fd, &ours) != 0 ||
	    fstatat(t->dir, t->name, &named, AT_SYMLINK_NOFOLLOW) != 0)
		return "was removed or renamed";
	if (ours.st_dev != named.st_dev || ours.st_ino != named.st_ino)
		return "was replaced";
	if ((uint64_t)ours.st_size != t->size)
		return (uint64_t)ours.st_size > t->size
		    ? "was written to by another"
		    : "was cut short";
	return NULL;
}

/* The lines that wait are chained on to the head that there is now. */
static int
rechain(struct trace *t)
{
	struct buf old = BUF_INIT(TRACE_GROUP_BYTES);
	struct buf line = BUF_INIT(TRACE_GROUP_BYTES);
	struct view rest, one;
	struct chain_link link;
	int rc = 0;

	buf_take(&old, &t->group);
	chain_sum_init(&t->group_sum);
	memcpy(t->group_head, t->head, sizeof(t->group_head));
	rest = buf_view(&old);
	while (rc == 0 && view_split(&rest, '\n', &one)) {
		if (one.n <= CHAIN_END)
			continue; /* what is behind the last line's end */
		buf_reset(&line, TRACE_GROUP_BYTES);
		memcpy(link.prev, t->group_head, sizeof(link.prev));
		rc = buf_add_view(&line, view_sub(one, 0, one.n - CHAIN_END));
		if (rc == 0)
			rc = chain_close(&line, &link);
		if (rc == 0)
			rc = buf_add_view(&t->group, buf_view(&line));
		if (rc != 0)
			break;
		memcpy(t->group_head, link.hash, sizeof(t->group_head));
		chain_sum_line(&t->group_sum, &link, buf_len(&line));
	}
	buf_clear(&old);
	buf_clear(&line);
	return rc;
}

/*
 * Before each write: a file that is not what it was is opened anew by its
 * name, and looked at as at the start.  A new one goes on with the chain.
 */
static int
renew(struct trace *t)
{
	char head[DIGEST_HEX + 1];
	const char *how = t->fd >= 0 ? disturbed(t) : NULL;
	int rc;

	if (how == NULL)
		return 0;
	log_error("trace %s: the file %s while it was in use; it is opened "
		  "anew",
	    t->name, how);
	memcpy(head, t->head, sizeof(head));
	trace_close(t);
	t->sealed = false;
	rc = trace_open(t);
	if (rc == 0 && t->size == 0) {
		/* turns of the file that is gone are not in this one */
		memcpy(t->head, head, sizeof(t->head));
		t->undelivered_n = 0;
		t->undelivered_more = 0;
	}
	if (rc == 0 && buf_len(&t->group) > 0 && strcmp(t->head, head) != 0)
		rc = rechain(t);
	return rc;
}

static int
append(struct trace *t, struct buf *line)
{
	struct chain_link link;
	struct chain_sum one;
	size_t before = buf_len(line);
	int rc;

	memcpy(link.prev, t->head, sizeof(link.prev));
	rc = chain_close(line, &link);
	if (rc == 0)
		rc = write_line(t, buf_view(line));
	if (rc == 0) {
		chain_sum_init(&one);
		chain_sum_line(&one, &link, buf_len(line));
		wrote(t, link.hash, &one);
	}
	buf_truncate(line, before);
	return rc;
}

static bool
is_full(const struct trace *t, size_t more)
{
	return t->roll_bytes > 0 && t->size > 0 &&
	    t->size + more > t->roll_bytes;
}

int
trace_append(struct trace *t, struct buf *line, const struct signer *k)
{
	int rc = trace_open(t);

	if (rc == 0)
		rc = renew(t);
	if (rc == 0 && is_full(t, buf_len(line) + CHAIN_END))
		rc = roll(t, k);
	if (rc != 0)
		return rc;
	rc = append(t, line);
	/* no file may be so big: another one may */
	if (rc == SP_E_LIMIT && t->roll_bytes > 0 && t->size > 0) {
		rc = roll(t, k);
		if (rc == 0)
			rc = append(t, line);
	}
	return rc == SP_E_LIMIT ? SP_E_NOSPC : rc;
}

static int
write_group(struct trace *t)
{
	int rc = t->fd >= 0 ? write_line(t, buf_view(&t->group)) : SP_E_STATE;

	if (rc == 0)
		wrote(t, t->group_head, &t->group_sum);
	return rc;
}

void
trace_flush(struct trace *t, const struct signer *k)
{
	int rc;

	if (buf_len(&t->group) == 0)
		return;
	rc = renew(t);
	if (rc == 0)
		rc = write_group(t);
	/* as above; the roll ends where the group begins */
	if (rc == SP_E_LIMIT && t->roll_bytes > 0 && t->size > 0) {
		rc = roll(t, k);
		if (rc == 0)
			rc = write_group(t);
	}
	if (rc != 0) {
		t->failed_id = t->group_id;
		t->failed_rc = rc == SP_E_LIMIT ? SP_E_NOSPC : rc;
		t->failed_bytes = t->group_most;
	}
	t->group_id++;
	t->group_most = 0;
	buf_reset(&t->group, TRACE_GROUP_BYTES);
	chain_sum_init(&t->group_sum);
}

void
trace_forgive(struct trace *t)
{
	t->failed_id = 0;
	t->failed_rc = 0;
}

/* Into the group, which has room for it. */
static int
hold(struct trace *t, struct buf *line)
{
	struct chain_link link;
	size_t before = buf_len(line);
	bool first = buf_len(&t->group) == 0;
	int rc;

	memcpy(link.prev, first ? t->head : t->group_head, sizeof(link.prev));
	rc = chain_close(line, &link);
	if (rc == 0)
		rc = buf_add_view(&t->group, buf_view(line));
	if (rc == 0) {
		memcpy(t->group_head, link.hash, sizeof(t->group_head));
		chain_sum_line(&t->group_sum, &link, buf_len(line));
		if (buf_len(line) > t->group_most)
			t->group_most = buf_len(line);
	}
	buf_truncate(line, before);
	return rc;
}

int
trace_hold(struct trace *t, struct buf *line, const struct signer *k,
    uint64_t *id)
{
	size_t n = buf_len(line) + CHAIN_END + 1; /* and the LF */
	int rc = trace_open(t);

	*id = 0;
	if (rc != 0)
		return rc;
	if (buf_len(&t->group) + n > TRACE_GROUP_BYTES ||
	    is_full(t, buf_len(&t->group) + n))
		trace_flush(t, k);
	if (t->failed_id != 0)
		return t->failed_rc;
	if (n > TRACE_GROUP_BYTES / 2 || is_full(t, n)) {
		trace_flush(t, k);
		return t->failed_id != 0 ? t->failed_rc
					 : trace_append(t, line, k);
	}
	rc = hold(t, line);
	if (rc == 0)
		*id = t->group_id;
	return rc;
}

void
trace_sync(struct trace *t)
{
	if (!t->dirty || t->fd < 0)
		return;
	t->dirty = false;
	t->sync_rc = 0;
	at_work();
	if (t->sync && fdatasync(t->fd) != 0) {
		t->sync_rc = err_from_errno(errno);
		log_error("trace %s: fdatasync: %s", t->name,
		    err_str(t->sync_rc));
	}
}

void
trace_undelivered(struct trace *t, uint64_t turn)
{
	size_t i, cap = t->undelivered_cap == 0 ? 16 : t->undelivered_cap * 2;
	uint64_t *v;

	t->sealed = false;
	if (t->undelivered_n == t->undelivered_cap) {
		v = cap > TRACE_UNDELIVERED_MAX
		    ? NULL
		    : mem_reallocarray(t->undelivered, cap, sizeof(*v));
		if (v == NULL) {
			t->undelivered_more++;
			return;
		}
		t->undelivered = v;
		t->undelivered_cap = cap;
	}
	for (i = t->undelivered_n; i > 0 && t->undelivered[i - 1] > turn; i--)
		t->undelivered[i] = t->undelivered[i - 1];
	t->undelivered[i] = turn;
	t->undelivered_n++;
}

void
trace_keep_request(struct trace *t, uint64_t turn,
    const uint8_t sha256[DIGEST_BYTES])
{
	struct trace_request *q = &t->retries[t->retries_at++ % TRACE_RETRIES];

	q->turn = turn;
	memcpy(q->sha256, sha256, sizeof(q->sha256));
}

uint64_t
trace_find_request(const struct trace *t, const uint8_t sha256[DIGEST_BYTES])
{
	uint64_t newest = 0;
	size_t i;

	for (i = 0; i < TRACE_RETRIES; i++)
		if (t->retries[i].turn > newest &&
		    memcmp(t->retries[i].sha256, sha256, DIGEST_BYTES) == 0)
			newest = t->retries[i].turn;
	return newest;
}

/* Counts in a file that was not watched from its beginning. */
static int
sum_file(struct trace *t)
{
	uint64_t at = 0;
	char *block;
	ssize_t got;
	int rc = 0;

	chain_sum_init(&t->sum);
	block = mem_alloc(BLOCK);
	if (block == NULL)
		return SP_E_NOMEM;
	while (rc == 0 && at < t->size) {
		at_work();
		got = pread(t->fd, block, BLOCK, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			rc = got < 0 ? err_from_errno(errno) : SP_E_EOF;
			break;
		}
		if ((uint64_t)got > t->size - at)
			got = (ssize_t)(t->size - at);
		chain_sum_feed(&t->sum, view_of(block, (size_t)got));
		at += (uint64_t)got;
	}
	mem_free(block);
	t->sum_ok = rc == 0;
	return rc;
}

static int
read_seal(const struct trace *t, const char *name, struct buf *out)
{
	int fd, rc;

	rc = fd_open_beneath(t->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK,
	    0, &fd);
	if (rc != 0)
		return rc;
	rc = fd_read_all(fd, out);
	fd_close(&fd);
	return rc;
}

bool
trace_sealed(struct trace *t)
{
	struct buf text = BUF_INIT(SEAL_MAX_BYTES);
	char name[FILE_NAME_MAX];
	struct seal_facts f;

	if (!t->sealed && t->fd >= 0 &&
	    seal_name(view_str(t->name), name, sizeof(name)) == 0 &&
	    read_seal(t, name, &text) == 0 &&
	    seal_check(buf_view(&text), &f) == 0)
		t->sealed = f.bytes == t->size && strcmp(f.last, t->head) == 0;
	buf_clear(&text);
	return t->sealed;
}

/* A seal of another file that had this name keeps its word elsewhere. */
static int
move_foreign_seal(const struct trace *t, const char *name,
    const struct seal_facts *f)
{
	char to[FILE_NAME_MAX + 32];
	int stem = (int)(strlen(name) - (sizeof(".seal") - 1));

	(void)snprintf(to, sizeof(to), "%.*s.of-%.16s.seal", stem, name,
	    f->first);
	if (renameat(t->dir, name, t->dir, to) != 0)
		return err_from_errno(errno);
	log_warn("trace %s: the seal that was there is of another file, and "
		 "is %s now",
	    t->name, to);
	return 0;
}

/* The seal that is there becomes a line in the list of the next one. */
static int
read_earlier(const struct trace *t, const char *name, struct buf *out)
{
	struct buf old = BUF_INIT(SEAL_MAX_BYTES);
	struct seal_facts f;
	struct jscan_span v;
	struct jscan s;
	struct view list = VIEW_NONE;
	bool good;
	int rc;

	rc = read_seal(t, name, &old);
	good = rc == 0 && seal_check(buf_view(&old), &f) == 0;
	if (good && f.turns > 0 && strcmp(f.first, t->sum.first.hash) != 0) {
		buf_clear(&old);
		return move_foreign_seal(t, name, &f);
	}
	if (good) {
		jscan_init(&s, buf_view(&old), 0);
		if (jscan_find(buf_view(&old), VIEW("earlier"), &v) == 1 &&
		    v.kind == JSCAN_ARRAY && v.end - v.start > 2 &&
		    v.end - v.start < EARLIER_MAX_BYTES)
			list = view_of(s.p + v.start + 1, v.end - v.start - 2);
		rc = buf_printf(out,
		    "[{\"reason\":\"%s\",\"turns\":%llu,\"bytes\":%llu,"
		    "\"last_hash\":\"%s\"}",
		    strcmp(f.reason, "roll") == 0 ? "roll" : "shutdown",
		    (unsigned long long)f.turns, (unsigned long long)f.bytes,
		    f.last);
		if (rc == 0 && list.n > 0)
			rc = buf_add_char(out, ',');
		if (rc == 0)
			rc = buf_add_view(out, list);
		if (rc == 0)
			rc = buf_add_char(out, ']');
	}
	buf_clear(&old);
	return rc == SP_E_NOTFOUND ? 0 : rc;
}

static int
replace_file(const struct trace *t, const char *name, struct view text)
{
	char tmp[FILE_NAME_MAX + 8];
	int fd, rc;

	(void)snprintf(tmp, sizeof(tmp), ".%s.tmp", name);
	(void)unlinkat(t->dir, tmp, 0);
	rc = fd_open_beneath(t->dir, tmp,
	    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, t->mode, &fd);
	if (rc != 0)
		return rc;
	rc = fd_write_all(fd, text.p, text.n);
	if (rc == 0 && fdatasync(fd) != 0)
		rc = err_from_errno(errno);
	fd_close(&fd);
	if (rc == 0 && renameat(t->dir, tmp, t->dir, name) != 0)
		rc = err_from_errno(errno);
	if (rc != 0)
		(void)unlinkat(t->dir, tmp, 0);
	return rc;
}

/* What would be sealed is the file that has the name. */
static int
still_there(struct trace *t)
{
	struct stat ours, named;

	if (fstat(t->fd, &ours) == 0 &&
	    fstatat(t->dir, t->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	    ours.st_dev == named.st_dev && ours.st_ino == named.st_ino)
		return renew(t);
	log_error("trace %s: the file was removed, renamed or replaced while "
		  "it was in use: there is no seal of what was written",
	    t->name);
	return SP_E_NOTFOUND;
}

int
trace_seal(struct trace *t, const struct signer *k, const char *reason)
{
	struct buf text = BUF_INIT(SEAL_MAX_BYTES);
	struct buf earlier = BUF_INIT((size_t)2 * EARLIER_MAX_BYTES);
	char name[FILE_NAME_MAX];
	struct seal s = { .session = view_str(t->session),
		.file = view_str(t->name),
		.reason = reason,
		.wall_us = clock_wall_us(),
		.undelivered = t->undelivered,
		.undelivered_n = t->undelivered_n,
		.undelivered_more = t->undelivered_more };
	int rc = trace_open(t);

	if (rc == 0 && (t->size == 0 || t->sealed))
		return 0;
	if (rc == 0)
		rc = still_there(t);
	if (rc == 0 && !t->sum_ok)
		rc = sum_file(t);
	if (rc == 0)
		rc = seal_name(view_str(t->name), name, sizeof(name));
	if (rc == 0)
		rc = read_earlier(t, name, &earlier);
	if (rc == 0) {
		s.turns = t->sum.lines;
		s.bytes = t->sum.bytes;
		s.first = t->sum.first;
		memcpy(s.last.hash, t->head, sizeof(t->head));
		s.earlier = buf_view(&earlier);
	}
	if (rc == 0)
		rc = seal_write(&s, k, &text);
	if (rc == 0)
		rc = replace_file(t, name, buf_view(&text));
	t->sealed = rc == 0;
	buf_clear(&text);
	buf_clear(&earlier);
	return rc;
}
