#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ident.h"
#include "base/log.h"
#include "base/num.h"
#include "crypt/digest.h"
#include "json/jwrite.h"
#include "os/fd.h"
#include "recorder/accum.h"
#include "recorder/journal.h"

enum {
	JOURNAL_MAX_BYTES = 1024 * 1024 * 1024,
	JOURNAL_GROWN_BYTES = 64 * 1024 * 1024, /* it is made short again */
};
#define JOURNAL_NEW JOURNAL_FILE ".new"
#define JOURNAL_TORN JOURNAL_FILE ".torn"

/* ---- members -------------------------------------------------------------- */

enum kind { WORD, JSON, NUMBER, KEY };

struct line {
	struct view op, outcome;
	uint64_t ended_us;
	struct session_msg m;
	struct registry_session use; /* the counts alone */
};

#define M(field) offsetof(struct line, m.field)
#define U(field) offsetof(struct line, use.field)
static const struct {
	const char *name;
	enum kind kind;
	size_t at;
} members[] = {
	{ "op", WORD, offsetof(struct line, op) },
	{ "id", WORD, M(id) },
	{ "key_sha256", KEY, M(key) },
	{ "capture", WORD, M(capture) },
	{ "upstream", WORD, M(upstream) },
	{ "model", WORD, M(model) },
	{ "purpose", WORD, M(purpose) },
	{ "sampling", JSON, M(sampling) },
	{ "metadata", JSON, M(metadata) },
	{ "max_calls", NUMBER, M(max_calls) },
	{ "max_tokens", NUMBER, M(max_tokens) },
	{ "max_wall_ms", NUMBER, M(max_wall_ms) },
	{ "created_us", NUMBER, M(created_us) },
	{ "calls", NUMBER, M(calls) },
	{ "tokens", NUMBER, M(tokens) },
	{ "last_us", NUMBER, U(last_us) },
	{ "turns", NUMBER, U(turns) },
	{ "complete", NUMBER, U(complete) },
	{ "trainable", NUMBER, U(train.good) },
	{ "trainable_tools", NUMBER, U(train.good_tools) },
	{ "tools", NUMBER, U(train.tools) },
	{ "errors", NUMBER, U(errors) },
	{ "budget_stops", NUMBER, U(budget_stops) },
	{ "findings", NUMBER, U(findings) },
	{ "outcome", WORD, offsetof(struct line, outcome) },
	{ "ended_us", NUMBER, offsetof(struct line, ended_us) },
};
enum { MEMBERS_N = sizeof(members) / sizeof(members[0]) };

static int
read_member(struct line *l, size_t i, struct view text, enum jscan_kind kind)
{
	char *to = (char *)l + members[i].at;
	struct view raw = text;
	uint64_t n;
	int rc;

	if (kind == JSCAN_STRING)
		text = view_sub(text, 1, text.n - 2);
	switch (members[i].kind) {
	case NUMBER:
		rc = num_u64(text, 0, UINT64_MAX, &n);
		if (rc == 0)
			memcpy(to, &n, sizeof(n));
		return rc;
	case KEY:
		return digest_unhex(text, (uint8_t *)to, SESSION_MSG_KEY);
	case WORD:
		if (kind != JSCAN_STRING ||
		    !session_msg_word(text, SESSION_MSG_ID_MAX))
			return SP_E_SYNTAX;
		memcpy(to, &text, sizeof(text));
		return 0;
	case JSON:
		if (kind != JSCAN_OBJECT)
			return SP_E_SYNTAX;
		memcpy(to, &raw, sizeof(raw));
		return 0;
	}
	return SP_E_SYNTAX;
}

static int
read_line(struct line *l, struct view text)
{
	struct jscan_span key, v;
	struct jscan s;
	size_t i;
	int rc;

	memset(l, 0, sizeof(*l));
	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1) {
		rc = jscan_skip(&s, &v);
		for (i = 0; i < MEMBERS_N && rc == 0; i++)
			if (jscan_is(&s, &key, view_str(members[i].name)))
				rc = read_member(l, i, jscan_raw(&s, &v),
				    v.kind);
	}
	return rc == 0 ? jscan_finish(&s) : rc;
}

static void
take_use(struct registry_session *s, const struct line *l)
{
	s->m.calls = l->m.calls;
	s->m.tokens = l->m.tokens;
	s->last_us = l->use.last_us;
	s->turns = l->use.turns;
	s->complete = l->use.complete;
	s->train = l->use.train;
	s->errors = l->use.errors;
	s->budget_stops = l->use.budget_stops;
	s->findings = l->use.findings;
}

/* 0, also for a line of a session that is not known (any more). */
static int
take_line(struct registry *r, struct view text)
{
	struct registry_session *s;
	struct line l;
	int rc = read_line(&l, text);

	if (rc != 0)
		return rc;
	s = registry_find(r, l.m.id);
	if (view_eq(l.op, VIEW("create"))) {
		if (s != NULL || !ident_good(l.m.id) ||
		    l.m.capture.n > SESSION_MSG_NAME_MAX ||
		    l.m.upstream.n > SESSION_MSG_NAME_MAX ||
		    l.m.purpose.n > SESSION_MSG_WORD_MAX ||
		    l.m.sampling.n > SESSION_MSG_SAMPLING_MAX ||
		    l.m.metadata.n > SESSION_MSG_META_MAX)
			return SP_E_SYNTAX;
		return registry_add(r, &l.m) != NULL ? 0 : SP_E_NOMEM;
	}
	if (s == NULL)
		return 0;
	if (view_eq(l.op, VIEW("use"))) {
		take_use(s, &l);
		/* nothing is used behind an end: it was open here */
		s->doubtful = false;
	} else if (view_eq(l.op, VIEW("end")) && s->ended_us == 0)
		registry_ended(r, s, l.outcome, l.ended_us);
	return 0;
}

/* ---- writing -------------------------------------------------------------- */

static void
put_word(struct jwrite *w, const char *key, struct view v)
{
	if (v.n == 0)
		return;
	jwrite_key(w, key);
	jwrite_string(w, v);
}

static void
put_number(struct jwrite *w, const char *key, uint64_t v)
{
	if (v == 0)
		return;
	jwrite_key(w, key);
	jwrite_u64(w, v);
}

static void
put_json(struct jwrite *w, const char *key, struct view v)
{
	if (v.n == 0)
		return;
	jwrite_key(w, key);
	jwrite_span(w, v);
}

static void
begin(struct jwrite *w, struct registry *r, const char *op, struct view id)
{
	jwrite_init(w, &r->line);
	jwrite_object(w);
	put_word(w, "op", view_str(op));
	put_word(w, "id", id);
}

static int
finish(struct jwrite *w)
{
	int rc;

	jwrite_end_object(w);
	rc = jwrite_finish(w);
	return rc != 0 ? rc : buf_add_char(w->out, '\n');
}

static int
put_create(struct registry *r, const struct registry_session *s)
{
	char hex[2 * SESSION_MSG_KEY + 1];
	struct jwrite w;

	begin(&w, r, "create", s->m.id);
	digest_hex(s->m.key, sizeof(s->m.key), hex);
	put_word(&w, "key_sha256", view_str(hex));
	put_word(&w, "capture", s->m.capture);
	put_word(&w, "upstream", s->m.upstream);
	put_word(&w, "model", s->m.model);
	put_word(&w, "purpose", s->m.purpose);
	put_json(&w, "sampling", s->m.sampling);
	put_json(&w, "metadata", s->m.metadata);
	put_number(&w, "max_calls", s->m.max_calls);
	put_number(&w, "max_tokens", s->m.max_tokens);
	put_number(&w, "max_wall_ms", s->m.max_wall_ms);
	put_number(&w, "created_us", s->m.created_us);
	return finish(&w);
}

static int
put_use(struct registry *r, const struct registry_session *s)
{
	struct jwrite w;

	begin(&w, r, "use", s->m.id);
	put_number(&w, "last_us", s->last_us);
	put_number(&w, "calls", s->m.calls);
	put_number(&w, "tokens", s->m.tokens);
	put_number(&w, "turns", s->turns);
	put_number(&w, "complete", s->complete);
	put_number(&w, "trainable", s->train.good);
	put_number(&w, "trainable_tools", s->train.good_tools);
	put_number(&w, "tools", s->train.tools);
	put_number(&w, "errors", s->errors);
	put_number(&w, "budget_stops", s->budget_stops);
	put_number(&w, "findings", s->findings);
	return finish(&w);
}

static int
put_end(struct registry *r, const struct registry_session *s)
{
	struct jwrite w;

	begin(&w, r, "end", s->m.id);
	put_word(&w, "outcome", view_str(s->outcome));
	put_number(&w, "ended_us", s->ended_us);
	return finish(&w);
}

/* One write of the line; of a short one nothing stays. */
static int
append(struct registry *r, bool sync)
{
	struct view v = buf_view(&r->line);
	struct iovec iov = { r->line.mem + r->line.off, v.n };
	size_t done = 0;
	int rc;

	rc = fd_writev(r->fd, &iov, 1, &done);
	if (rc == 0 && done < v.n)
		rc = SP_E_NOSPC;
	if (rc == 0 && sync && fdatasync(r->fd) != 0)
		rc = err_from_errno(errno);
	if (rc == 0)
		r->bytes += v.n;
	else if (ftruncate(r->fd, (off_t)r->bytes) != 0)
		log_warn("%s: a torn line stays: %s", JOURNAL_FILE,
		    err_str(err_from_errno(errno)));
	return rc;
}

static int
put(struct registry *r, const struct registry_session *s, bool sync,
    int (*write)(struct registry *r, const struct registry_session *s))
{
	int rc;

	if (r->fd < 0)
		return 0;
	buf_reset(&r->line, MESSAGE_CONTROL_MAX);
	rc = write(r, s);
	return rc != 0 ? rc : append(r, sync);
}

/* ---- the file as a whole -------------------------------------------------- */

static int
write_all(struct registry *r)
{
	struct registry_session *s;
	int rc = 0;

	TAILQ_FOREACH (s, &r->sessions, link) {
		buf_reset(&r->line, MESSAGE_CONTROL_MAX);
		rc = put_create(r, s);
		if (rc == 0)
			rc = put_use(r, s);
		if (rc == 0 && s->ended_us != 0)
			rc = put_end(r, s);
		if (rc == 0)
			rc = append(r, false);
		if (rc != 0)
			break;
	}
	if (rc == 0 && fsync(r->fd) != 0)
		rc = err_from_errno(errno);
	return rc;
}

static int
lock_file(int fd)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_SETLK, &l) == 0 ? 0 : SP_E_DENIED;
}

/* A new file takes the old one's place, or nothing has changed. */
static int
compact(struct registry *r)
{
	uint64_t bytes = r->bytes;
	int old = r->fd, rc;

	(void)unlinkat(r->dir, JOURNAL_NEW, 0);
	rc = fd_open_beneath(r->dir, JOURNAL_NEW,
	    O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, &r->fd);
	if (rc != 0) {
		r->fd = old;
		return rc;
	}
	r->bytes = 0;
	rc = lock_file(r->fd);
	if (rc == 0)
		rc = write_all(r);
	if (rc == 0 && renameat(r->dir, JOURNAL_NEW, r->dir, JOURNAL_FILE) != 0)
		rc = err_from_errno(errno);
	if (rc != 0) {
		fd_close(&r->fd);
		(void)unlinkat(r->dir, JOURNAL_NEW, 0);
		r->fd = old;
		r->bytes = bytes;
		return rc;
	}
	if (fsync(r->dir) != 0)
		log_warn("%s: its folder is not synced: %s", JOURNAL_FILE,
		    err_str(err_from_errno(errno)));
	fd_close(&old);
	r->live_bytes = r->bytes;
	return 0;
}

/* What cannot be read is kept, or the next compaction would destroy it. */
static void
set_aside(struct registry *r, struct view line)
{
	int fd, rc;

	rc = fd_open_beneath(r->dir, JOURNAL_TORN,
	    O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600, &fd);
	if (rc == 0) {
		rc = fd_write_all(fd, line.p, line.n);
		if (rc == 0)
			rc = fd_write_all(fd, "\n", 1);
		fd_close(&fd);
	}
	if (rc != 0)
		log_error("%s: a damaged line cannot be kept there: %s",
		    JOURNAL_TORN, err_str(rc));
}

/*
 * A damaged line may have been the end of a session, or what it used last:
 * of the one that it names, if that can be read, else of any.
 */
static void
doubt(struct registry *r, struct view line)
{
	const struct view mark = VIEW("\"id\":\"");
	struct registry_session *s;
	struct view id = view_from(line, view_search(line, mark) + mark.n);

	if (view_starts(line, VIEW("{\"op\":\"create\",")))
		return;
	s = registry_find(r, view_sub(id, 0, view_find(id, '"')));
	if (s != NULL) {
		s->doubtful = true;
		return;
	}
	TAILQ_FOREACH (s, &r->sessions, link)
		s->doubtful = true;
}

/* An ended session never comes back, nor a budget that was used. */
static void
end_doubtful(struct registry *r)
{
	struct registry_session *s;

	TAILQ_FOREACH (s, &r->sessions, link) {
		if (!s->doubtful || s->ended_us != 0)
			continue;
		log_error("session %.*s: a damaged line of %s may have ended "
			  "it: it is ended",
		    VIEW_ARG(s->m.id), JOURNAL_FILE);
		registry_ended(r, s, VIEW("unknown"), clock_wall_us());
	}
}

static int
read_all(struct registry *r, struct view text)
{
	struct view line;
	size_t bad = 0;
	int rc;

	while (text.n > 0) {
		size_t n = view_find(text, '\n');

		if (n == text.n) {
			log_warn("%s: a torn last line of %zu bytes was moved "
				 "to %s",
			    JOURNAL_FILE, n, JOURNAL_TORN);
			set_aside(r, text);
			break;
		}
		line = view_sub(text, 0, n);
		text = view_from(text, n + 1);
		rc = line.n > 0 ? take_line(r, line) : 0;
		if (rc == SP_E_NOMEM)
			return rc;
		if (rc == 0)
			continue;
		bad++;
		set_aside(r, line);
		doubt(r, line);
	}
	if (bad > 0)
		log_error("%s: %zu lines are damaged and were moved to %s",
		    JOURNAL_FILE, bad, JOURNAL_TORN);
	end_doubtful(r);
	return 0;
}

int
journal_open(struct registry *r)
{
	struct buf text = BUF_INIT(JOURNAL_MAX_BYTES);
	struct stat st;
	int rc;

	if (r->dir < 0)
		return 0;
	rc = fd_open_beneath(r->dir, JOURNAL_FILE,
	    O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600,
	    &r->fd);
	if (rc != 0)
		return rc;
	if (fstat(r->fd, &st) != 0)
		rc = err_from_errno(errno);
	else if (!S_ISREG(st.st_mode))
		rc = SP_E_DENIED;
	if (rc == 0)
		rc = lock_file(r->fd);
	if (rc == 0)
		rc = fd_read_all(r->fd, &text);
	if (rc == 0) {
		r->bytes = buf_len(&text);
		rc = read_all(r, buf_view(&text));
	}
	buf_clear(&text);
	return rc != 0 ? rc : compact(r);
}

int
journal_create(struct registry *r, const struct registry_session *s)
{
	return put(r, s, true, put_create);
}

int
journal_end(struct registry *r, const struct registry_session *s)
{
	return put(r, s, true, put_end);
}

int
journal_use(struct registry *r, const struct registry_session *s)
{
	int rc = put(r, s, false, put_use);

	if (rc != 0 || r->fd < 0 || r->bytes < JOURNAL_GROWN_BYTES ||
	    r->bytes / 4 < r->live_bytes)
		return rc;
	rc = compact(r);
	if (rc != 0) /* not the next time at once */
		r->live_bytes = r->bytes;
	return rc;
}
