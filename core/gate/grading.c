#include "config.h"

#include "gate/grading.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "gate/episode_file.h"
#include "gate/path_json.h"
#include "gate/process.h"
#include "gate/worker.h"
#include "ipc/wire.h"

enum {
	GRADING_RECORDS_MAX = 64 * 1024 * 1024, /* bytes of a diff */
	GRADING_COMPARE_MAX = 256 * 1024 * 1024, /* bytes of files, of a diff */
	GRADING_AT_ONCE = 8, /* runs of one episode */
};

enum grading_kind { GRADING_READS, GRADING_DIFFS, GRADING_RUNS };

struct grading {
	enum grading_kind kind;
	struct episode *ep; /* NULL: it is gone, reset or over */
	struct episode_set *set;
	struct grading_done done;
	void *arg;
	struct episode_watch watch;
	struct loop_task *later; /* what cannot be told on the spot */
	enum grading_result result; /* that it will tell */
	struct process *p; /* of a run, while it lives */
	struct buf out, err;
	bool out_cut, err_cut;
	uint32_t links_n;
	struct buf links;
};

/* ---- its life --------------------------------------------------------------- */

/* What goes on goes on unheard; what runs is killed. */
static void
grading_detach(struct grading *g)
{
	if (g->ep == NULL)
		return;
	episode_unwatch(&g->watch);
	g->ep = NULL;
	episode_forget(g->set, g);
	if (g->p != NULL)
		process_drop(g->p);
	g->p = NULL;
}

static void
grading_free(struct grading *g)
{
	grading_detach(g);
	loop_task_free(g->later);
	buf_clear(&g->out);
	buf_clear(&g->err);
	buf_clear(&g->links);
	mem_free(g);
}

void
grading_forget(struct grading *g)
{
	if (g != NULL)
		grading_free(g);
}

/* The one answer.  text: of a read, records of a diff. */
static void
grading_answer(struct grading *g, enum grading_result r, struct view text,
    const struct grading_verdict *v, struct view what)
{
	const struct grading_done done = g->done;

	grading_detach(g);
	switch (g->kind) {
	case GRADING_READS:
		done.read(g->arg, r, text, what);
		break;
	case GRADING_DIFFS:
		done.diff(g->arg, r, text, what);
		break;
	case GRADING_RUNS:
		done.verdict(g->arg, r, v, what);
		break;
	}
	grading_free(g);
}

static void
grading_fail(struct grading *g, enum grading_result r, struct view what)
{
	grading_answer(g, r, VIEW_NONE, NULL, what);
}

static void
grading_on_later(void *arg)
{
	struct grading *g = arg;

	grading_fail(g, g->result,
	    g->result == GRADING_RESET
		? VIEW("the episode was reset or ended meanwhile")
		: g->result == GRADING_NO_PROCESS
		? VIEW("no such process")
		: VIEW("neither in the workspace nor an asset"));
}

/* Its caller goes through a list that whoever is answered may change. */
static void
grading_on_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct grading *g = arg;

	(void)ep;
	if (n->what != EPISODE_CLOSING && n->what != EPISODE_ENDED)
		return;
	grading_detach(g);
	g->result = GRADING_RESET;
	loop_task_post(g->later);
}

static struct grading *
grading_new(struct episode *ep, enum grading_kind kind,
    const struct grading_done *done, void *arg)
{
	struct grading *g = mem_calloc(1, sizeof(*g));

	if (g == NULL)
		return NULL;
	g->kind = kind;
	g->set = ep->set;
	g->done = *done;
	g->arg = arg;
	buf_init(&g->out, GRADING_OUTPUT_MAX);
	buf_init(&g->err, GRADING_OUTPUT_MAX);
	buf_init(&g->links, SANDBOX_LINKS_TEXT);
	g->later = loop_task_new(episode_loop(ep), grading_on_later, g);
	if (g->later == NULL) {
		mem_free(g);
		return NULL;
	}
	g->ep = ep;
	g->watch.news = grading_on_news;
	g->watch.arg = g;
	episode_watch(ep, &g->watch);
	return g;
}

bool
grading_may(struct episode *ep)
{
	const struct worker *w = worker_of(ep);

	return ep->state == EPISODE_LIVE && (w == NULL || !worker_resets(w));
}

/* ---- files ------------------------------------------------------------------ */

static enum grading_result
file_result(enum sandbox_file_result r)
{
	switch (r) {
	case SANDBOX_FILE_OK:
		return GRADING_OK;
	case SANDBOX_FILE_NOT_FOUND:
	case SANDBOX_FILE_ESCAPES:
		return GRADING_NOT_FOUND;
	case SANDBOX_FILE_SPECIAL:
		return GRADING_SPECIAL;
	case SANDBOX_FILE_TOO_LARGE:
		return GRADING_TOO_LARGE;
	case SANDBOX_FILE_NO_SPACE:
	case SANDBOX_FILE_BUSY:
	case SANDBOX_FILE_FAILED:
	case SANDBOX_FILE_NO_LAYERS:
	case SANDBOX_FILE_UNSUPPORTED:
		break;
	}
	return GRADING_FAILED;
}

static void
on_read(void *arg, struct episode *ep, enum sandbox_file_result result,
    uint64_t size, int fd, struct view what)
{
	struct buf text = BUF_INIT(GRADING_READ_MAX);
	struct grading *g = arg;
	enum grading_result r = file_result(result);
	int rc = SP_OK;

	(void)ep;
	(void)size;
	if (r == GRADING_OK && fd >= 0)
		rc = episode_file_data(fd, &text);
	if (rc != SP_OK) {
		r = rc == SP_E_LIMIT ? GRADING_TOO_LARGE : GRADING_FAILED;
		what = view_str(err_str(rc));
	}
	if (r != GRADING_OK)
		grading_fail(g, r, what);
	else if (!utf8_valid(buf_view(&text)))
		grading_fail(g, GRADING_NOT_TEXT, VIEW("not UTF-8"));
	else
		grading_answer(g, GRADING_OK, buf_view(&text), NULL, VIEW_NONE);
	buf_clear(&text);
}

/* Beneath dir, each name as it is: what a pattern allows is what is read. */
static bool
is_beneath(struct view path, struct view dir)
{
	struct view piece;

	if (!view_starts(path, dir) || path.n < dir.n + 2 ||
	    path.p[dir.n] != '/' || path.n > SANDBOX_MSG_PATH_MAX ||
	    memchr(path.p, 0, path.n) != NULL)
		return false;
	path = view_from(path, dir.n + 1);
	if (path.p[path.n - 1] == '/')
		return false;
	while (view_split(&path, '/', &piece))
		if (piece.n == 0 || view_eq(piece, VIEW(".")) ||
		    view_eq(piece, VIEW("..")))
			return false;
	return true;
}

int
grading_read(struct episode *ep, struct view path,
    const struct grading_done *done, void *arg, struct grading **out)
{
	const struct episode_file_ask ask = { .op = SANDBOX_FILE_READ,
		.path = path,
		.limit = GRADING_READ_MAX,
		.put_fd = -1 };
	struct grading *g;
	int rc = SP_OK;

	if (!grading_may(ep))
		return SP_E_STATE;
	g = grading_new(ep, GRADING_READS, done, arg);
	if (g == NULL)
		return SP_E_NOMEM;
	if (is_beneath(path, VIEW(CONF_ENV_WORKSPACE)) ||
	    is_beneath(path, VIEW(GRADING_ASSETS))) {
		rc = episode_file(ep, &ask, on_read, g);
	} else {
		g->result = GRADING_NOT_FOUND;
		loop_task_post(g->later);
	}
	if (rc != SP_OK)
		grading_free(g);
	else
		*out = g;
	return rc;
}

/* ---- what has changed ------------------------------------------------------- */

struct record {
	struct view path, all;
};

static int
by_path(const void *a, const void *b)
{
	const struct record *x = a, *y = b;
	size_t n = x->path.n < y->path.n ? x->path.n : y->path.n;
	int c = n > 0 ? memcmp(x->path.p, y->path.p, n) : 0;

	if (c != 0)
		return c;
	return x->path.n < y->path.n ? -1 : x->path.n > y->path.n;
}

/* How many there are, and into v, unless it is NULL: 0; SP_E_PROTO. */
static int
records_get(struct view text, struct record *v, size_t *n)
{
	struct sandbox_change c;
	const uint8_t *from;
	struct wire w;
	int rc = SP_OK;

	*n = 0;
	wire_init(&w, text);
	while (rc == SP_OK) {
		from = w.p;
		rc = sandbox_msg_change_get(&w, &c);
		if (rc != SP_OK)
			break;
		if (v != NULL) {
			v[*n].path = c.path;
			v[*n].all = view_of(from, (size_t)(w.p - from));
		}
		(*n)++;
	}
	return rc == SP_E_EOF ? SP_OK : rc;
}

static int
records_sort(struct view text, struct buf *out)
{
	struct record *v;
	size_t i, n;
	int rc = records_get(text, NULL, &n);

	if (rc != SP_OK || n == 0)
		return rc;
	v = mem_calloc(n, sizeof(*v));
	if (v == NULL)
		return SP_E_NOMEM;
	rc = records_get(text, v, &n);
	qsort(v, n, sizeof(*v), by_path);
	for (i = 0; i < n && rc == SP_OK; i++)
		rc = buf_add_view(out, v[i].all);
	mem_free(v);
	return rc;
}

static void
on_diff(void *arg, struct episode *ep, enum sandbox_file_result result,
    uint64_t size, int fd, struct view what)
{
	struct buf text = BUF_INIT(GRADING_RECORDS_MAX);
	struct buf sorted = BUF_INIT(GRADING_RECORDS_MAX);
	enum grading_result r = file_result(result);
	struct grading *g = arg;
	int rc = SP_OK;

	(void)ep;
	(void)size;
	if (r == GRADING_OK && fd >= 0)
		rc = episode_file_data(fd, &text);
	if (r == GRADING_OK && rc == SP_OK)
		rc = records_sort(buf_view(&text), &sorted);
	if (rc != SP_OK) {
		r = GRADING_FAILED;
		what = view_str(err_str(rc));
	}
	buf_clear(&text);
	grading_answer(g, r, r == GRADING_OK ? buf_view(&sorted) : VIEW_NONE,
	    NULL, what);
	buf_clear(&sorted);
}

int
grading_diff(struct episode *ep, const struct grading_done *done, void *arg,
    struct grading **out)
{
	const struct episode_file_ask ask = { .op = SANDBOX_FILE_DIFF_FROZEN,
		.limit = GRADING_COMPARE_MAX,
		.put_fd = -1 };
	struct grading *g;
	int rc;

	if (!grading_may(ep))
		return SP_E_STATE;
	g = grading_new(ep, GRADING_DIFFS, done, arg);
	if (g == NULL)
		return SP_E_NOMEM;
	rc = episode_file(ep, &ask, on_diff, g);
	if (rc != SP_OK)
		grading_free(g);
	else
		*out = g;
	return rc;
}

/* ---- a verdict -------------------------------------------------------------- */

static void
on_started(void *arg, uint32_t pid)
{
	(void)arg;
	(void)pid;
}

static void
on_links(void *arg, uint32_t n, struct view paths)
{
	struct grading *g = arg;

	g->links_n = n;
	/* without memory only their number is told */
	(void)!buf_add_view(&g->links, paths);
}

static void
on_not_started(void *arg, unsigned stage, int number, struct view what)
{
	struct grading *g = arg;
	enum grading_result r = GRADING_FAILED;

	g->p = NULL;
	if (stage == 0 && number == SANDBOX_REFUSED_UNKNOWN)
		r = GRADING_NO_PROCESS;
	if (stage == 0 && number == SANDBOX_REFUSED_CAPACITY)
		r = GRADING_BUSY;
	grading_fail(g, r, what);
}

/* What does not fit is read all the same, or the program would wait. */
static void
keep(struct buf *b, bool *cut, struct view data)
{
	size_t room = GRADING_OUTPUT_MAX - buf_len(b);

	if (*cut)
		return;
	*cut = data.n > room ||
	    buf_add_view(b, data) != SP_OK; /* no memory: cut here */
	if (data.n > room)
		(void)!buf_add_view(b, view_sub(data, 0, room));
}

static void
on_output(void *arg, enum process_stream stream, struct view data)
{
	struct grading *g = arg;

	if (stream == PROCESS_STDOUT)
		keep(&g->out, &g->out_cut, data);
	else if (stream == PROCESS_STDERR)
		keep(&g->err, &g->err_cut, data);
}

static void
on_writable(void *arg, bool closed)
{
	(void)arg;
	(void)closed;
}

/* As subprocess of Python tells it. */
static int
returncode(const struct process_exit *e)
{
	if (e->end == SANDBOX_END_EXIT)
		return (int)e->status;
	return e->end == SANDBOX_END_OOM ? -SIGKILL : -(int)e->status;
}

static void
on_exited(void *arg, const struct process_exit *e)
{
	struct grading *g = arg;
	const struct grading_verdict v = {
		.returncode = returncode(e),
		.out = buf_view(&g->out),
		.err = buf_view(&g->err),
		.out_cut = g->out_cut,
		.err_cut = g->err_cut,
		.links_n = g->links_n,
		.links = buf_view(&g->links),
	};

	g->p = NULL;
	if (e->end == SANDBOX_END_TIMEOUT)
		grading_fail(g, GRADING_TIMEOUT,
		    VIEW("it took longer than timeout allows"));
	else if (e->end == SANDBOX_END_LOST)
		grading_fail(g, GRADING_FAILED,
		    VIEW("its sandbox died, or does not end"));
	else
		grading_answer(g, GRADING_OK, VIEW_NONE, &v,
		    e->end == SANDBOX_END_OOM ? VIEW("out of memory")
					      : VIEW_NONE);
}

void
grading_put_links(struct jwrite *w, const struct grading_verdict *v)
{
	struct buf path = BUF_INIT(SANDBOX_LINKS_TEXT + 64);
	struct buf text = BUF_INIT(SANDBOX_LINKS_TEXT * 8);
	struct view rest = v->links, one;
	unsigned n = 0;

	if (v->links_n == 0)
		return;
	jwrite_key(w, "links_removed");
	jwrite_u64(w, v->links_n);
	jwrite_key(w, "links_removed_paths");
	jwrite_array(w);
	while (n++ < GRADING_LINKS_MAX && view_split(&rest, '\0', &one) &&
	    one.n > 0) {
		buf_truncate(&path, 0);
		buf_truncate(&text, 0);
		if (buf_add_str(&path, CONF_ENV_WORKSPACE "/") != SP_OK ||
		    buf_add_view(&path, one) != SP_OK ||
		    path_json_put(buf_view(&path), &text) != SP_OK)
			break;
		jwrite_raw(w, buf_view(&text));
	}
	jwrite_end_array(w);
	buf_clear(&path);
	buf_clear(&text);
}

static const struct process_events events = {
	.started = on_started,
	.links = on_links,
	.not_started = on_not_started,
	.output = on_output,
	.writable = on_writable,
	.exited = on_exited,
};

static unsigned
runs_of(const struct episode *ep)
{
	const struct process *p;
	unsigned n = 0;

	LIST_FOREACH (p, &ep->processes, link)
		if (p->side == SANDBOX_ORACLE)
			n++;
	return n;
}

int
grading_run(struct episode *ep, struct view process,
    const struct grading_done *done, void *arg, struct grading **out)
{
	struct grading *g;
	int rc;

	if (!grading_may(ep))
		return SP_E_STATE;
	if (runs_of(ep) >= GRADING_AT_ONCE)
		return SP_E_LIMIT;
	g = grading_new(ep, GRADING_RUNS, done, arg);
	if (g == NULL)
		return SP_E_NOMEM;
	if (process.n > SANDBOX_MSG_NAME_MAX) {
		g->result = GRADING_NO_PROCESS;
		loop_task_post(g->later);
		*out = g;
		return SP_OK;
	}
	rc = process_grade(ep, process, &events, g, &g->p);
	if (rc != SP_OK)
		grading_free(g);
	else
		*out = g;
	return rc;
}
