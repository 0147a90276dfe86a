/* Files of an episode: read, listed, written, removed, and what changed. */
#include "config.h"

#include "base/mem.h"
#include "base/num.h"
#include "episodes_call.h"
#include "gate/episode_file.h"
#include "http/query.h"

enum {
	PIECE = 64 * 1024,
	LINE_MAX_BYTES = 64 * 1024 * 1024, /* a path, escaped */
	MODE_FILE = 0644,
	MODE_DIR = 0755,
	MODE_MAX = 0777,
	NUMBER_MAX = 32, /* digits of one */
};

/* What was read, on its way to the client. */
struct episodes_file {
	struct buf data;
	struct episode_records list; /* over it, where it is records */
	bool records;
};

/* ---- the reply ------------------------------------------------------------ */

/* One line or one piece: SP_OK; SP_E_EOF nothing is left; SP_E_*. */
static int
send_some(struct episodes_call *c)
{
	struct episodes_file *f = c->file;
	struct buf line = BUF_INIT(LINE_MAX_BYTES);
	struct view piece;
	int rc;

	if (!f->records) {
		piece = view_sub(buf_view(&f->data), 0, PIECE);
		if (piece.n == 0)
			return SP_E_EOF;
		rc = exchange_data(c->r->x, piece);
		buf_consume(&f->data, piece.n);
		return rc;
	}
	rc = episode_file_next(&f->list, &line);
	if (rc == SP_OK)
		rc = buf_add_char(&line, '\n');
	if (rc == SP_OK)
		rc = exchange_data(c->r->x, buf_view(&line));
	buf_clear(&line);
	return rc;
}

/* As far as the client has room. */
static void
pump(struct episodes_call *c)
{
	int rc = SP_OK;

	while (rc == SP_OK && exchange_room(c->r->x) > 0)
		rc = send_some(c);
	if (rc == SP_OK || rc == SP_E_GONE)
		return;
	if (rc == SP_E_EOF)
		rc = exchange_end(c->r->x);
	else
		exchange_abort(c->r->x);
	episodes_files_clear(c);
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}

void
episodes_files_room(struct episodes_call *c)
{
	if (c->file != NULL && c->r->x->state == EXCHANGE_HEAD)
		pump(c);
}

size_t
episodes_files_holds(const struct episodes_call *c)
{
	return c->file != NULL ? buf_len(&c->file->data) : 0;
}

void
episodes_files_clear(struct episodes_call *c)
{
	if (c->file == NULL)
		return;
	buf_clear(&c->file->data);
	mem_free(c->file);
	c->file = NULL;
}

static void
fail(struct episodes_call *c, enum sandbox_file_result result, struct view what)
{
	static const struct {
		unsigned status;
		const char *code, *text;
	} rows[] = {
		[SANDBOX_FILE_NOT_FOUND] = { 404, "no_such_file",
		    "there is nothing of that path" },
		[SANDBOX_FILE_ESCAPES] = { 403, "path_escapes",
		    "the path leads through a link, or out of the sandbox's "
		    "own files" },
		[SANDBOX_FILE_SPECIAL] = { 415, "not_a_file",
		    "that is no regular file" },
		[SANDBOX_FILE_TOO_LARGE] = { 413, "file_too_large",
		    "it is larger than limit" },
		[SANDBOX_FILE_NO_SPACE] = { 507, "no_space",
		    "the workspace is full" },
		[SANDBOX_FILE_BUSY] = { 409, "file_busy",
		    "it changed while it was read: ask again" },
		[SANDBOX_FILE_FAILED] = { 500, "file_failed",
		    "the sandbox could not do it" },
		[SANDBOX_FILE_NO_LAYERS] = { 501, "no_layers",
		    "with enforcement local the workspace has no layers to "
		    "compare: diff needs enforcement linux" },
		[SANDBOX_FILE_UNSUPPORTED] = { 501, "not_supported",
		    "this host cannot do that" },
	};

	if (result >= sizeof(rows) / sizeof(rows[0]) ||
	    rows[result].code == NULL)
		result = SANDBOX_FILE_FAILED;
	episodes_door_fail(c, rows[result].status, rows[result].code,
	    what.n > 0 ? what : view_str(rows[result].text));
}

static void
on_read(void *arg, struct episode *ep, enum sandbox_file_result result,
    uint64_t size, int fd, struct view what)
{
	struct episodes_call *c = arg;
	int rc = SP_OK;

	(void)ep;
	(void)size;
	if (result != SANDBOX_FILE_OK) {
		fail(c, result, what);
		return;
	}
	if (fd >= 0)
		rc = episode_file_data(fd, &c->file->data);
	if (rc != SP_OK) {
		episodes_door_fail_rc(c, rc == SP_E_LIMIT ? SP_E_NOMEM : rc);
		return;
	}
	episode_file_records(&c->file->list, c->op == EPISODES_DIFF,
	    buf_view(&c->file->data));
	rc = episodes_door_stream(c,
	    c->file->records ? "application/x-ndjson"
			     : "application/octet-stream");
	if (rc == SP_OK)
		pump(c);
	else if (rc != SP_E_GONE)
		episodes_door_fail_rc(c, rc);
}

static void
on_written(void *arg, struct episode *ep, enum sandbox_file_result result,
    uint64_t size, int fd, struct view what)
{
	struct episodes_call *c = arg;

	(void)ep;
	(void)size;
	(void)fd;
	if (result != SANDBOX_FILE_OK)
		fail(c, result, what);
	else
		episodes_door_json(c, 200, VIEW("{\"ok\":true}"));
}

/* ---- what is asked -------------------------------------------------------- */

/* mode=0644: at most nine bits, as a workload cannot use more. */
static bool
read_mode(struct view v, uint32_t *out)
{
	uint32_t mode = 0;
	size_t i;

	if (v.n == 0 || v.n > 5)
		return false;
	for (i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '7')
			return false;
		mode = mode << 3 | (uint32_t)(v.p[i] - '0');
	}
	*out = mode;
	return mode <= MODE_MAX;
}

/* 0; SP_E_SYNTAX with *why; SP_E_NOMEM. */
static int
read_ask(const struct episodes_call *c, struct episode_file_ask *ask,
    struct buf *path, const char **why)
{
	struct view query = c->r->x->request.query, v;
	char text[NUMBER_MAX];
	struct view p;
	int rc = query_get(query, VIEW("path"), path);

	*why = "expected ?path= and an absolute path, percent-encoded";
	p = buf_view(path);
	if (p.p == NULL)
		p = VIEW("");
	if (rc == SP_E_NOMEM)
		return rc;
	if (c->op != EPISODES_DIFF &&
	    (rc != 1 || p.n == 0 || p.p[0] != '/' ||
		memchr(p.p, 0, p.n) != NULL))
		return SP_E_SYNTAX;
	ask->path = c->op == EPISODES_DIFF ? VIEW_NONE : p;
	rc = query_short(query, VIEW("mode"), text, sizeof(text), &v);
	*why = "mode is octal, at most 0777, and stands there once";
	if (rc < 0 || (rc == 1 && !read_mode(v, &ask->mode)))
		return SP_E_SYNTAX;
	rc = query_short(query, VIEW("limit"), text, sizeof(text), &v);
	*why = "limit is a number of bytes, at most 67108864, and stands there "
	       "once";
	if (rc < 0 ||
	    (rc == 1 && num_u64(v, 1, EPISODES_FILE_MAX, &ask->limit) != 0))
		return SP_E_SYNTAX;
	return SP_OK;
}

static bool
is_set(const struct episodes_call *c, const char *name)
{
	char text[1];
	struct view v;

	return query_short(c->r->x->request.query, view_str(name), text,
		   sizeof(text), &v) != 0 &&
	    !view_eq(v, VIEW("0"));
}

static int
prepare(struct episodes_call *c, struct episode_file_ask *ask)
{
	if (c->op == EPISODES_REMOVE) {
		ask->op = SANDBOX_FILE_REMOVE;
		return SP_OK;
	}
	if (c->op == EPISODES_PUT) {
		ask->op =
		    is_set(c, "dir") ? SANDBOX_FILE_MKDIR : SANDBOX_FILE_PUT;
		ask->mode = is_set(c, "dir") ? MODE_DIR : MODE_FILE;
		return SP_OK;
	}
	ask->op = c->op == EPISODES_DIFF && is_set(c, "frozen")
	    ? SANDBOX_FILE_DIFF_FROZEN
	    : c->op == EPISODES_DIFF ? SANDBOX_FILE_DIFF
	    : is_set(c, "list")      ? SANDBOX_FILE_LIST
				     : SANDBOX_FILE_READ;
	c->file = mem_calloc(1, sizeof(*c->file));
	if (c->file == NULL)
		return SP_E_NOMEM;
	buf_init(&c->file->data, EPISODES_FILE_MAX + 1u);
	c->file->records = ask->op != SANDBOX_FILE_READ;
	return SP_OK;
}

enum gate_verdict
episodes_files_message(struct episodes_call *c)
{
	struct episode_file_ask ask = { .limit = EPISODES_FILE_MAX,
		.put_fd = -1 };
	struct buf path = BUF_INIT(SANDBOX_MSG_PATH_MAX);
	struct view body = buf_view(&c->r->body);
	struct episode *ep = episodes_door_find(c);
	const char *why = "";
	int rc;

	if (ep == NULL)
		return episodes_door_deny(c, 404, "unknown_episode",
		    "there is no episode of that id");
	rc = prepare(c, &ask);
	if (rc == SP_OK)
		rc = read_ask(c, &ask, &path, &why);
	if (rc == SP_E_SYNTAX) {
		buf_clear(&path);
		return episodes_door_deny(c, 400, "bad_query", why);
	}
	if (rc == SP_OK && ask.op == SANDBOX_FILE_PUT)
		rc = episode_file_put(ep, &ask, body, on_written, c);
	else if (rc == SP_OK)
		rc = episode_file(ep, &ask,
		    c->file != NULL ? on_read : on_written, c);
	if (rc != SP_OK)
		episodes_door_fail_rc(c, rc);
	buf_clear(&path);
	return GATE_HOLD;
}
