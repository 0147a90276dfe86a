/*
 * Files to one text.  The text is a series of records, each with the length
 * of what it carries, so that nothing in a file can pass for a record:
 *   F name_n dir_n \n name dir \n    a file begins
 *   M name_n dir_n \n name dir \n    what a manifest says begins
 *   T line n \n text \n              text of it, from that line on
 *   E \n                             it ends
 */
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "conf/conf.h"
#include "conf/lexer.h"
#include "conf/parse.h"

/* A file being expanded; the chain of outer ones shows cycles. */
struct frame {
	const struct frame *outer;
	const char *name;
	struct view dir;
	dev_t dev;
	ino_t ino;
	bool is_file;
	bool made; /* of a manifest */
	unsigned depth;
	unsigned line; /* of the include being followed */
};

struct expand {
	struct buf *out;
	struct buf *err;
	int (*manifest)(const char *path, struct buf *out, struct buf *err);
	size_t text_n; /* bytes of text so far */
	size_t files_n;
	char main_dir[PATH_MAX];
};

/* "FILE:LINE: " of the include, or nothing but the name for the first. */
static int
put_place(struct expand *ex, const struct frame *at)
{
	if (at == NULL)
		return 0;
	return buf_printf(ex->err, "%s:%u: ", at->name, at->line);
}

static int report(struct expand *ex, const struct frame *at, const char *fmt,
    ...) printf_like(3, 4);

static int
report(struct expand *ex, const struct frame *at, const char *fmt, ...)
{
	va_list ap;
	int rc;

	rc = put_place(ex, at);
	if (rc == 0) {
		va_start(ap, fmt);
		rc = buf_vprintf(ex->err, fmt, ap);
		va_end(ap);
	}
	if (rc == 0)
		rc = buf_add_char(ex->err, '\n');
	return rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

/* Says "what: a -> b -> name; expected ...". */
static int
report_chain(struct expand *ex, const struct frame *at, const char *what,
    const char *name, const char *expected)
{
	const struct frame *chain[CONF_INCLUDE_MAX + 2];
	const struct frame *f;
	size_t n = 0;
	int rc;

	for (f = at; f != NULL && n < CONF_INCLUDE_MAX + 2; f = f->outer)
		chain[n++] = f;
	rc = put_place(ex, at);
	if (rc == 0)
		rc = buf_printf(ex->err, "%s: ", what);
	while (rc == 0 && n > 0)
		rc = buf_printf(ex->err, "%s -> ", chain[--n]->name);
	if (rc == 0)
		rc = buf_printf(ex->err, "%s; expected %s\n", name, expected);
	return rc == SP_E_NOMEM ? rc : SP_E_CONF;
}

static int
too_much(struct expand *ex, const struct frame *at)
{
	int rc = report(ex, at,
	    "configuration is too large; expected at most %d bytes in %d "
	    "files",
	    CONF_TEXT_MAX, CONF_FILES_MAX);

	return rc == SP_E_NOMEM ? rc : SP_E_LIMIT;
}

static unsigned
count_lines(struct view v)
{
	unsigned n = 0;
	size_t i;

	for (i = 0; i < v.n; i++)
		n += v.p[i] == '\n';
	return n;
}

/* NUL and bytes that are no UTF-8 are refused, with their line. */
static int
check_text(struct expand *ex, const char *name, struct view text)
{
	size_t i = 0;
	uint32_t cp;
	unsigned len;

	while (i < text.n) {
		len = utf8_decode(view_from(text, i), &cp);
		if (len == 0 || cp == 0)
			return report(ex, NULL,
			    "%s:%u: %s; expected UTF-8 text", name,
			    count_lines(view_sub(text, 0, i)) + 1,
			    len == 0 ? "bytes that are not UTF-8"
				     : "a NUL byte");
		i += len;
	}
	return 0;
}

static int
put_text(struct expand *ex, const struct frame *f, unsigned line,
    struct view text)
{
	int rc;

	if (text.n == 0)
		return 0;
	if (text.n > CONF_TEXT_MAX - ex->text_n)
		return too_much(ex, f);
	ex->text_n += text.n;
	rc = buf_printf(ex->out, "T %u %zu\n", line, text.n);
	if (rc == 0)
		rc = buf_add_view(ex->out, text);
	if (rc == 0)
		rc = buf_add_char(ex->out, '\n');
	return rc == SP_E_LIMIT ? too_much(ex, f) : rc;
}

static int expand_path(struct expand *ex, const struct frame *outer,
    const char *path);
static int expand_text(struct expand *ex, struct frame *f, struct view text);

/* The path or pattern of an include, absolute, with a NUL. */
static int
include_path(struct expand *ex, const struct frame *f, struct view arg,
    struct buf *path)
{
	int rc = 0;

	if (arg.p[0] != '/' && f->dir.n > 0) {
		rc = buf_add_view(path, f->dir);
		if (rc == 0)
			rc = buf_add_char(path, '/');
	}
	if (rc == 0)
		rc = buf_add_view(path, arg);
	if (rc == 0)
		rc = buf_add_char(path, '\0');
	if (rc == SP_E_LIMIT)
		rc = report(ex, f,
		    "path of include is too long; expected at most %d bytes",
		    PATH_MAX - 1);
	return rc;
}

/* Sorted: which file comes first must not depend on the disk. */
static int
expand_glob(struct expand *ex, const struct frame *f, const char *pattern)
{
	glob_t g = { 0 };
	size_t i;
	int rc = 0;

	switch (glob(pattern, GLOB_ERR, NULL, &g)) {
	case 0:
		for (i = 0; rc == 0 && i < g.gl_pathc; i++)
			rc = expand_path(ex, f, g.gl_pathv[i]);
		break;
	case GLOB_NOMATCH:
		break;
	case GLOB_NOSPACE:
		rc = SP_E_NOMEM;
		break;
	default:
		rc = report(ex, f,
		    "cannot read the directories of include \"%s\"; expected "
		    "readable directories",
		    pattern);
		break;
	}
	globfree(&g);
	return rc;
}

/* The files of one include. */
static int
expand_include(struct expand *ex, struct frame *f, struct view arg)
{
	struct buf path = BUF_INIT(PATH_MAX);
	const char *text;
	int rc;

	if (f->depth >= CONF_INCLUDE_MAX) {
		rc = report_chain(ex, f, "includes nest too deep", "...",
		    "at most 16 levels");
		return rc == SP_E_NOMEM ? rc : SP_E_LIMIT;
	}
	rc = include_path(ex, f, arg, &path);
	text = buf_view(&path).p;
	if (rc == 0 && text != NULL)
		rc = strpbrk(text, "*?[") != NULL ? expand_glob(ex, f, text)
						  : expand_path(ex, f, text);
	buf_clear(&path);
	return rc;
}

/*
 * What a manifest says, as text of a file that is named after it.  Its first
 * line is the second of what sallyport -m prints, inside of the block.
 */
static int
expand_manifest(struct expand *ex, struct frame *f, struct view arg)
{
	struct buf path = BUF_INIT(PATH_MAX);
	struct buf name = BUF_INIT(CONF_FILE_NAME_MAX + 1);
	struct buf text = BUF_INIT(CONF_TEXT_MAX);
	struct frame made = { .outer = f, .made = true, .depth = f->depth + 1 };
	int rc = include_path(ex, f, arg, &path);

	if (rc == 0)
		rc = buf_printf(&name, "manifest(%s)", buf_view(&path).p);
	if (rc == 0)
		rc = buf_add_char(&name, '\0');
	if (rc == 0) {
		made.name = buf_view(&name).p;
		rc = ex->manifest(buf_view(&path).p, &text, ex->err);
	}
	if (rc == 0)
		rc = expand_text(ex, &made, buf_view(&text));
	buf_clear(&path);
	buf_clear(&name);
	buf_clear(&text);
	return rc;
}

/* The argument of an include or a manifest, its escapes undone. */
static int
follow_include(struct expand *ex, struct frame *f, const struct lexer_token *t,
    bool manifest)
{
	char *arg;
	size_t n;
	int rc;

	arg = mem_alloc(t->raw.n + 1);
	if (arg == NULL)
		return SP_E_NOMEM;
	n = lexer_unescape(t->raw, arg);
	if (n == 0)
		rc = report(ex, f, "empty %s; expected a path%s",
		    manifest ? "manifest" : "include",
		    manifest ? "" : " or pattern");
	else if (manifest)
		rc = expand_manifest(ex, f, view_of(arg, n));
	else
		rc = expand_include(ex, f, view_of(arg, n));
	mem_free(arg);
	return rc;
}

/*
 * Reads the rest of an include or manifest statement and follows it.  *end is
 * set past its semicolon.
 */
static int
read_include(struct expand *ex, struct frame *f, struct lexer *lx,
    bool manifest, size_t *end)
{
	struct lexer_token path, semi;

	f->line = lx->line;
	if (lexer_next(lx, &path) != LEXER_WORD ||
	    lexer_next(lx, &semi) != LEXER_SEMI)
		return report(ex, f,
		    manifest ? "manifest takes one path; expected \"manifest "
			       "PATH;\""
			     : "include takes one path or pattern; expected "
			       "\"include PATH;\"");
	*end = lx->pos;
	return follow_include(ex, f, &path, manifest);
}

/*
 * Copies text, with each include and manifest replaced by what it names.  A text that the
 * lexer cannot read is copied as it is: the parser says what is wrong.
 */
static int
expand_body(struct expand *ex, struct frame *f, struct view text)
{
	struct lexer lx;
	struct lexer_token t;
	bool start = true; /* of a statement */
	bool manifest;
	size_t done = 0; /* copied so far */
	unsigned done_line = f->made ? 2 : 1;
	size_t before, end = 0;
	int rc;

	lexer_init(&lx, text, done_line);
	for (;;) {
		before = lx.pos;
		lexer_next(&lx, &t);
		if (t.type == LEXER_END || t.type == LEXER_ERROR)
			break;
		manifest = ex->manifest != NULL && t.type == LEXER_WORD &&
		    view_eq(t.raw, VIEW("manifest"));
		if (!start || t.type != LEXER_WORD ||
		    (!manifest && !view_eq(t.raw, VIEW("include")))) {
			start = t.type != LEXER_WORD;
			continue;
		}
		rc = put_text(ex, f, done_line,
		    view_sub(text, done, before - done));
		if (rc == 0)
			rc = read_include(ex, f, &lx, manifest, &end);
		if (rc != 0)
			return rc;
		done = end;
		done_line = lx.line;
	}
	return put_text(ex, f, done_line, view_from(text, done));
}

static int
expand_text(struct expand *ex, struct frame *f, struct view text)
{
	int rc;

	if (++ex->files_n > CONF_FILES_MAX)
		return too_much(ex, f->outer);
	rc = check_text(ex, f->name, text);
	if (rc != 0)
		return rc;
	if (view_starts(text, VIEW("\xef\xbb\xbf")))
		text = view_from(text, 3);
	rc = buf_printf(ex->out, "%c %zu %zu\n%s", f->made ? 'M' : 'F',
	    strlen(f->name), f->dir.n, f->name);
	if (rc == 0)
		rc = buf_add_view(ex->out, f->dir);
	if (rc == 0)
		rc = buf_add_char(ex->out, '\n');
	if (rc == 0)
		rc = expand_body(ex, f, text);
	if (rc == 0)
		rc = buf_add_str(ex->out, "E\n");
	return rc == SP_E_LIMIT && buf_len(ex->err) == 0 ? too_much(ex, f) : rc;
}

/* Reads all of fd; never more than the whole configuration may have. */
static int
read_all(struct expand *ex, const struct frame *outer, const char *path, int fd,
    struct buf *out)
{
	ssize_t got;
	int rc;

	for (;;) {
		rc = buf_reserve(out, 16384);
		if (rc == SP_E_LIMIT)
			return too_much(ex, outer);
		if (rc != 0)
			return rc;
		got = read(fd, buf_tail(out), 16384);
		if (got == 0)
			return 0;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return report(ex, outer, "cannot read \"%s\": %s", path,
			    strerror(errno));
		buf_grow(out, (size_t)got);
	}
}

static const char *
kind_of(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a directory";
	if (S_ISFIFO(mode))
		return "a FIFO";
	if (S_ISSOCK(mode))
		return "a socket";
	return "a device";
}

/* Opens a regular file; a FIFO must not make the helper wait. */
static int
open_file(struct expand *ex, const struct frame *outer, const char *path,
    struct stat *st, int *out)
{
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return report(ex, outer,
		    "cannot open \"%s\": %s; expected a readable file", path,
		    strerror(errno));
	if (fstat(fd, st) != 0)
		rc = report(ex, outer, "cannot stat \"%s\": %s", path,
		    strerror(errno));
	else if (!S_ISREG(st->st_mode))
		rc = report(ex, outer, "\"%s\" is %s; expected a file", path,
		    kind_of(st->st_mode));
	else
		rc = 0;
	if (rc != 0) {
		close(fd);
		return rc;
	}
	*out = fd;
	return 0;
}

/* The absolute directory of a file into dir (PATH_MAX bytes). */
static int
directory_of(struct expand *ex, const struct frame *outer, const char *path,
    char *dir)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash == NULL ? 0 : (size_t)(slash - path);
	char part[PATH_MAX];

	if (n >= sizeof(part))
		return report(ex, outer, "path \"%.100s...\" is too long",
		    path);
	memcpy(part, path, n);
	part[n] = '\0';
	if (realpath(slash == NULL ? "." : n == 0 ? "/" : part, dir) == NULL)
		return report(ex, outer,
		    "cannot resolve the directory of \"%s\": %s", path,
		    strerror(errno));
	return 0;
}

static int
expand_path(struct expand *ex, const struct frame *outer, const char *path)
{
	struct buf text = BUF_INIT(CONF_TEXT_MAX + 16384);
	struct frame f = { .outer = outer, .name = path, .is_file = true };
	const struct frame *o;
	char dir[PATH_MAX];
	struct stat st = { 0 };
	int fd = -1, rc;

	f.depth = outer == NULL ? 0 : outer->depth + 1;
	rc = open_file(ex, outer, path, &st, &fd);
	if (rc != 0)
		return rc;
	f.dev = st.st_dev;
	f.ino = st.st_ino;
	for (o = outer; o != NULL && rc == 0; o = o->outer) {
		if (o->is_file && o->dev == f.dev && o->ino == f.ino)
			rc = report_chain(ex, outer, "include cycle", path,
			    "files that do not include each other");
	}
	if (rc == 0)
		rc = directory_of(ex, outer, path, dir);
	if (rc == 0)
		rc = read_all(ex, outer, path, fd, &text);
	close(fd);
	if (rc == 0) {
		f.dir = view_str(dir);
		if (outer == NULL)
			memcpy(ex->main_dir, dir, sizeof(dir));
		rc = expand_text(ex, &f, buf_view(&text));
	}
	buf_clear(&text);
	return rc;
}

/* What `-g` says comes last. */
static int
expand_extra(struct expand *ex, struct view extra)
{
	struct frame f = { .name = "-g", .dir = view_str(ex->main_dir) };

	return extra.n == 0 ? 0 : expand_text(ex, &f, extra);
}

int
conf_expand(const char *path, struct view extra,
    int (*manifest)(const char *path, struct buf *out, struct buf *err),
    struct buf *out, struct buf *err)
{
	struct expand ex = { .out = out, .err = err, .manifest = manifest };
	int rc;

	rc = buf_add_str(out, CONF_TEXT_MAGIC);
	if (rc == 0)
		rc = expand_path(&ex, NULL, path);
	if (rc == 0)
		rc = expand_extra(&ex, extra);
	return rc;
}

int
conf_expand_text(const char *name, struct view text, struct view extra,
    struct buf *out, struct buf *err)
{
	struct expand ex = { .out = out, .err = err };
	struct frame f = { .name = name };
	int rc;

	rc = buf_add_str(out, CONF_TEXT_MAGIC);
	if (rc == 0)
		rc = expand_text(&ex, &f, text);
	if (rc == 0)
		rc = expand_extra(&ex, extra);
	return rc;
}
