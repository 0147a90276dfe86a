/* grader.read_file and the others: arguments, values, errors. */
#include "config.h"

#include "mcp_grader_tools.h"

#include "base/b64.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "gate/feed.h"
#include "gate/grading.h"
#include "gate/worker.h"
#include "json/jwrite.h"
#include "mcp_grader_conf.h"

enum {
	TOOLS_VALUE_MAX = 64 * 1024 * 1024, /* JSON text of one value */
	TOOLS_ROOM = 16 * 1024 * 1024, /* of a list, as text in its envelope */
	TOOLS_PATH_MAX = 4096 + 64, /* with the workspace before it */
};

#define INVALID "Invalid parameters"
#define SCHEMA "see the tool's inputSchema in tools/list"

/* What a call was told. */
struct tools_args {
	struct buf text; /* the row's member */
	struct buf after;
	int64_t limit, since; /* 0: none */
};

/* A call that waits for its answer, one of the two first. */
struct tools_wait {
	struct grading *grading;
	struct worker_call *wc;
	struct buf after; /* of fs_diff */
	uint64_t limit;
};

struct tools_row {
	const char *name;
	const char *description;
	const char *properties; /* of its arguments, JSON */
	const char *member; /* a text; NULL: none */
	bool required, privileged;
	bool after, limit, since; /* those are taken, too: since a number */
	void (*call)(struct mcp_call *c, const struct tools_args *a);
};

static const struct mcp_grader_conf *
tools_conf(const struct gate_request *r)
{
	return r->conf;
}

/* ---- errors ----------------------------------------------------------------- */

#define TOO_LARGE \
	{ \
		"too_large", \
		    "a file and each stream of a program may have 1 MiB, " \
		    "all else 64 MiB: ask for less" \
	}
#define BUSY \
	{ \
		"busy", \
		    "too many of the grader's calls are under way: ask again " \
		    "when one was answered" \
	}
#define FAILED \
	{ \
		"failed", "see the error log of the gateway" \
	}

/* What is said beside openenvd's words. */
struct tools_cause {
	const char *reason, *remedy;
};

static const struct tools_cause no_memory = { "no_memory",
	"the gateway has no memory for it: try again later" };
static const struct tools_cause too_large = TOO_LARGE;
static const struct tools_cause busy = BUSY;
static const struct tools_cause failed = FAILED;

static void
tools_error(struct mcp_call *c, const struct tools_cause *cause,
    struct view detail)
{
	const struct mcp_fault f = { JRPC_INTERNAL_ERROR, DOOR_FAILED,
		cause->reason, detail, cause->remedy };

	mcp_own_error(c, &f);
}

/* The caller's fault. */
static void
tools_refuse(struct mcp_call *c, const char *message, const char *reason,
    const char *remedy)
{
	const struct mcp_fault f = { JRPC_INVALID_PARAMS, message, reason,
		VIEW_NONE, remedy };

	mcp_own_error(c, &f);
}

/* Nothing was begun, as rc says. */
static void
tools_not_begun(struct mcp_call *c, int rc)
{
	static const struct tools_cause not_live = { "not_live",
		"the episode is being made or reset: ask again when its reset "
		"was answered" };
	static const struct tools_cause gone = { "gone",
		"the episode is over, or what serves it is away: ask again "
		"after a reset" };

	tools_error(c,
	    rc == SP_E_STATE       ? &not_live
		: rc == SP_E_GONE  ? &gone
		: rc == SP_E_LIMIT ? &busy
				   : &no_memory,
	    VIEW_NONE);
}

/* ---- values ----------------------------------------------------------------- */

int
mcp_grader_tools_envelope(struct view value, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "content");
	jwrite_array(&w);
	jwrite_object(&w);
	jwrite_key(&w, "type");
	jwrite_cstr(&w, "text");
	jwrite_key(&w, "text");
	jwrite_string(&w, value);
	jwrite_end_object(&w);
	jwrite_end_array(&w);
	jwrite_key(&w, "isError");
	jwrite_bool(&w, false);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static void
tools_value(struct mcp_call *c, int rc, struct buf *value)
{
	const struct episode *ep = mcp_call_episode(c);
	struct buf out = BUF_INIT(TOOLS_VALUE_MAX);

	if (rc == SP_OK)
		rc = mcp_grader_tools_envelope(buf_view(value), &out);
	buf_clear(value);
	if (rc != SP_OK)
		log_warn("episode %s: a value for the grader is not told: %s",
		    ep != NULL ? ep->id : "-", err_str(rc));
	if (rc == SP_OK)
		mcp_own_result(c, buf_view(&out));
	else
		tools_error(c,
		    rc == SP_E_LIMIT       ? &too_large
			: rc == SP_E_NOMEM ? &no_memory
					   : &failed,
		    view_str(err_str(rc)));
	buf_clear(&out);
}

/* ---- what the helper found -------------------------------------------------- */

/* The call's end: what it waited for is over. */
static void
tools_over(struct mcp_call *c)
{
	void **ctx = mcp_call_ctx(c);
	struct tools_wait *t = *ctx;

	if (t != NULL)
		buf_clear(&t->after);
	mem_free(t);
	*ctx = NULL;
}

static const struct tools_cause causes[] = {
	[GRADING_NOT_FOUND] = { "not_found",
	    "links are not followed: take the path of a regular file, as "
	    "grader.fs_diff tells it" },
	[GRADING_NOT_TEXT] = { "not_text", "only UTF-8 is read" },
	[GRADING_SPECIAL] = { "special", "only regular files are read" },
	[GRADING_TOO_LARGE] = TOO_LARGE,
	[GRADING_NO_PROCESS] = { "no_process",
	    "the environment's assets have no such file: see its "
	    "configuration" },
	[GRADING_BUSY] = BUSY,
	[GRADING_TIMEOUT] = { "timeout",
	    "it took longer than the sandbox's timeout lets it" },
	[GRADING_RESET] = { "reset",
	    "the episode was reset or ended meanwhile: ask again" },
	[GRADING_FAILED] = FAILED,
};

static void
tools_fail(struct mcp_call *c, enum grading_result r, struct view what)
{
	const struct tools_cause *cause = &causes[r];
	const struct episode *ep = mcp_call_episode(c);

	/* ValueError; all else is told as one */
	if (r == GRADING_NOT_TEXT) {
		tools_refuse(c, INVALID, cause->reason, cause->remedy);
		return;
	}
	if (r == GRADING_FAILED)
		log_warn("episode %s: a tool of the grader's failed: %.*s",
		    ep != NULL ? ep->id : "-", VIEW_ARG(what));
	tools_error(c, cause, what);
}

static void
on_read(void *arg, enum grading_result r, struct view text, struct view what)
{
	struct mcp_call *c = arg;
	struct buf value = BUF_INIT(TOOLS_VALUE_MAX);
	struct jwrite w;

	tools_over(c);
	if (r != GRADING_OK) {
		tools_fail(c, r, what);
		return;
	}
	jwrite_init(&w, &value);
	jwrite_string(&w, text);
	tools_value(c, jwrite_finish(&w), &value);
}

static void
on_diff(void *arg, enum grading_result r, struct view records, struct view what)
{
	struct mcp_call *c = arg;
	struct buf value = BUF_INIT(TOOLS_VALUE_MAX);
	const struct mcp_grader_conf *conf = tools_conf(mcp_call_request(c));
	const struct tools_wait *t = *mcp_call_ctx(c);
	const struct mcp_page page = { buf_view(&t->after), t->limit,
		TOOLS_ROOM };
	int rc = r == GRADING_OK
	    ? mcp_change_list(records, &conf->fs_read, &page, &value)
	    : SP_OK;

	tools_over(c);
	if (r == GRADING_OK)
		tools_value(c, rc, &value);
	else
		tools_fail(c, r, what);
}

/* How one stream of a program is told. */
struct tools_keys {
	const char *text, *base64, *truncated;
};
static const struct tools_keys stdout_keys = { "stdout", "stdout_b64",
	"stdout_truncated" };
static const struct tools_keys stderr_keys = { "stderr", "stderr_b64",
	"stderr_truncated" };

/*
 * The text is there always, as openenvd's clients want it; beside it, what it
 * cannot hold.
 */
static void
tools_put_output(struct jwrite *w, const struct tools_keys *keys, struct view v,
    bool cut)
{
	struct buf base64 = BUF_INIT(SIZE_MAX);
	size_t n = v.n;

	/* a character that was cut in two is not part of the first MiB */
	while (cut && n > 0 && v.n - n < 3 && !utf8_valid(view_sub(v, 0, n)))
		n--;
	if (cut && utf8_valid(view_sub(v, 0, n)))
		v = view_sub(v, 0, n);
	jwrite_key(w, keys->text);
	jwrite_string(w, v);
	if (!utf8_valid(v)) {
		if (b64_add(&base64, v) != SP_OK)
			w->err = SP_E_NOMEM;
		jwrite_key(w, keys->base64);
		jwrite_string(w, buf_view(&base64));
	}
	if (cut) {
		jwrite_key(w, keys->truncated);
		jwrite_bool(w, true);
	}
	buf_clear(&base64);
}

static void
on_verdict(void *arg, enum grading_result r, const struct grading_verdict *v,
    struct view what)
{
	struct mcp_call *c = arg;
	struct buf value = BUF_INIT(TOOLS_VALUE_MAX);
	struct jwrite w;

	tools_over(c);
	if (r != GRADING_OK) {
		tools_fail(c, r, what);
		return;
	}
	jwrite_init(&w, &value);
	jwrite_object(&w);
	jwrite_key(&w, "returncode");
	jwrite_i64(&w, v->returncode);
	tools_put_output(&w, &stdout_keys, v->out, v->out_cut);
	tools_put_output(&w, &stderr_keys, v->err, v->err_cut);
	grading_put_links(&w, v);
	jwrite_end_object(&w);
	tools_value(c, jwrite_finish(&w), &value);
}

static const struct grading_done grading_done = { on_read, on_diff,
	on_verdict };

/* What the worker said of it is for the orchestrator alone. */
static const struct tools_cause state_causes[] = {
	[WORKER_ERROR] = { "worker_error",
	    "the worker refused to tell its state: the orchestrator sees "
	    "why" },
	[WORKER_GONE] = { "worker_gone",
	    "the worker failed, or the episode is over: ask again after a "
	    "reset" },
	[WORKER_TIMEOUT] = { "timeout",
	    "the worker did not answer within the sandbox's timeout: ask "
	    "again after a reset" },
	[WORKER_BUSY] = { "busy",
	    "too many calls wait for the worker: ask again later" },
	[WORKER_NONE] = { "no_worker", "the environment has no worker" },
};

static void
on_state(void *arg, enum worker_result result, struct view body)
{
	struct mcp_call *c = arg;
	const struct episode *ep = mcp_call_episode(c);
	struct buf value = BUF_INIT(TOOLS_VALUE_MAX);

	tools_over(c);
	if (result == WORKER_OK)
		tools_value(c, buf_add_view(&value, body), &value);
	else
		tools_error(c,
		    result == WORKER_GONE && ep != NULL &&
			    ep->state == EPISODE_RESETTING
			? &causes[GRADING_RESET]
			: &state_causes[result],
		    VIEW_NONE);
}

static const struct worker_caller state_caller = { .done = on_state };

/* NULL: the call was ended with an error. */
static struct tools_wait *
tools_wait(struct mcp_call *c, struct episode **ep)
{
	struct tools_wait *t = NULL;

	*ep = mcp_call_episode(c);
	if (*ep != NULL)
		t = mem_calloc(1, sizeof(*t));
	*mcp_call_ctx(c) = t;
	if (t == NULL)
		tools_not_begun(c, *ep == NULL ? SP_E_GONE : SP_E_NOMEM);
	return t;
}

/* rc of what was asked: the answer follows, or there is none. */
static void
tools_asked(struct mcp_call *c, int rc)
{
	if (rc == SP_OK)
		return;
	tools_over(c);
	tools_not_begun(c, rc);
}

/* ---- the tools -------------------------------------------------------------- */

bool
mcp_grader_tools_readable(const struct conf_list *globs, struct view path)
{
	struct view rest = path, piece;

	if (!view_starts(path, VIEW("/")) || view_find(path, '\0') < path.n)
		return false;
	while (view_split(&rest, '/', &piece))
		if (view_eq(piece, VIEW("..")))
			return false;
	return door_match_any(globs, path);
}

static void
call_read(struct mcp_call *c, const struct tools_args *a)
{
	struct view path = buf_view(&a->text);
	struct tools_wait *t;
	struct episode *ep;

	if (!mcp_grader_tools_readable(&tools_conf(mcp_call_request(c))
					    ->fs_read,
		path)) {
		tools_refuse(c, "Operation not permitted", "not_permitted",
		    "the path must be absolute, without \"..\", and match a "
		    "pattern of fs_read");
		return;
	}
	t = tools_wait(c, &ep);
	if (t != NULL)
		tools_asked(c,
		    grading_read(ep, path, &grading_done, c, &t->grading));
}

static void
call_diff(struct mcp_call *c, const struct tools_args *a)
{
	struct view since = buf_view(&a->text);
	struct tools_wait *t;
	struct episode *ep;

	if (since.n > 0 && !view_eq(since, VIEW("reset"))) {
		tools_refuse(c, INVALID, "bad_arguments", SCHEMA);
		return;
	}
	t = tools_wait(c, &ep);
	if (t == NULL)
		return;
	t->limit = (uint64_t)a->limit;
	buf_init(&t->after, TOOLS_PATH_MAX);
	tools_asked(c,
	    buf_add_view(&t->after, buf_view(&a->after)) != SP_OK
		? SP_E_NOMEM
		: grading_diff(ep, &grading_done, c, &t->grading));
}

/* A process with trust privileged has that name. */
static bool
is_privileged(const struct mcp_call *c, struct view name)
{
	const struct conf_environment *env =
	    tools_conf(mcp_call_request(c))->mcp.environment;
	size_t i;

	for (i = 0; i < env->processes_n; i++)
		if (env->processes[i].privileged &&
		    view_eq(env->processes[i].name, name))
			return true;
	return false;
}

static void
call_run(struct mcp_call *c, const struct tools_args *a)
{
	struct view name = buf_view(&a->text);
	struct tools_wait *t;
	struct episode *ep;

	if (!is_privileged(c, name)) {
		tools_refuse(c, INVALID, "no_process",
		    "no process with trust privileged of the environment has "
		    "that name: see its configuration");
		return;
	}
	t = tools_wait(c, &ep);
	if (t != NULL)
		tools_asked(c,
		    grading_run(ep, name, &grading_done, c, &t->grading));
}

static void
call_oracle(struct mcp_call *c, const struct tools_args *none)
{
	struct tools_wait *t;
	struct episode *ep;

	(void)none;
	t = tools_wait(c, &ep);
	if (t != NULL)
		tools_asked(c,
		    grading_run(ep, VIEW_NONE, &grading_done, c, &t->grading));
}

static void
call_state(struct mcp_call *c, const struct tools_args *none)
{
	static const struct worker_ask ask = { .op = WORKER_STATE,
		.whose = WORKER_GRADERS };
	struct tools_wait *t;
	struct episode *ep;
	struct worker *w;

	(void)none;
	t = tools_wait(c, &ep);
	if (t == NULL)
		return;
	w = worker_of(ep);
	tools_asked(c,
	    !grading_may(ep) ? SP_E_STATE
		: w == NULL  ? SP_E_GONE
			     : worker_call(w, &ask, &state_caller, c, &t->wc));
}

static void
call_trajectory(struct mcp_call *c, const struct tools_args *a)
{
	const struct feed_page page = { (uint64_t)a->since, (uint64_t)a->limit,
		TOOLS_ROOM };
	struct buf value = BUF_INIT(TOOLS_VALUE_MAX);
	struct episode *ep = mcp_call_episode(c);
	struct feed *f = ep != NULL ? feed_of(ep) : NULL;

	if (f != NULL)
		tools_value(c, feed_all(f, &page, &value), &value);
	else
		tools_not_begun(c, SP_E_GONE);
}

#define LIMIT "\"limit\":{\"type\":\"integer\",\"minimum\":1}"

static const struct tools_row rows[] = {
	{ .name = "grader.read_file",
	    .description = "Read a UTF-8 text file of the workspace or of the "
			   "assets.",
	    .properties = "\"path\":{\"type\":\"string\"}",
	    .member = "path",
	    .required = true,
	    .call = call_read },
	{ .name = "grader.fs_diff",
	    .description = "List what the episode created, modified or deleted "
			   "in the workspace.",
	    .properties =
		"\"since\":{\"type\":\"string\",\"enum\":[\"reset\"]},"
		"\"after\":{\"type\":\"string\"}," LIMIT,
	    .member = "since",
	    .after = true,
	    .limit = true,
	    .call = call_diff },
	{ .name = "grader.run_oracle",
	    .description = "Run the oracle on a copy of the workspace and "
			   "return its verdict.",
	    .properties = "",
	    .privileged = true,
	    .call = call_oracle },
	{ .name = "grader.run_process",
	    .description = "Run a privileged process on a copy of the "
			   "workspace.",
	    .properties = "\"name\":{\"type\":\"string\"}",
	    .member = "name",
	    .required = true,
	    .privileged = true,
	    .call = call_run },
	{ .name = "grader.get_full_state",
	    .description = "Return the environment's full state.",
	    .properties = "",
	    .call = call_state },
	{ .name = "grader.get_trajectory",
	    .description = "Return all events of the episode that are "
			   "retained.",
	    .properties =
		"\"since\":{\"type\":\"integer\",\"minimum\":0}," LIMIT,
	    .limit = true,
	    .since = true,
	    .call = call_trajectory },
};

static const struct tools_row *
tools_find(const struct gate_request *r, struct view tool)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (view_eq(tool, view_str(rows[i].name)) &&
		    (!rows[i].privileged || tools_conf(r)->privileged_exec))
			return &rows[i];
	return NULL;
}

static bool
tools_has(const struct gate_request *r, struct view tool)
{
	return tools_find(r, tool) != NULL;
}

static int
tools_put(const struct tools_row *t, bool first, struct buf *out)
{
	int rc = buf_printf(out,
	    "%s{\"name\":\"%s\",\"description\":\"%s\",\"inputSchema\":{"
	    "\"type\":\"object\",\"properties\":{%s},"
	    "\"additionalProperties\":false",
	    first ? "" : ",", t->name, t->description, t->properties);

	if (rc == SP_OK && t->required)
		rc = buf_printf(out, ",\"required\":[\"%s\"]", t->member);
	return rc == SP_OK ? buf_add_str(out, "}}") : rc;
}

static int
tools_list(const struct gate_request *r, struct buf *out)
{
	size_t i;
	bool first = true;
	int rc = SP_OK;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == SP_OK; i++) {
		if (!tools_has(r, view_str(rows[i].name)) ||
		    !mcp_visible(r, view_str(rows[i].name)))
			continue;
		rc = tools_put(&rows[i], first, out);
		first = false;
	}
	return rc;
}

/* Which of a call's arguments it is: 0 none, or a bit. */
enum { ARG_TEXT = 1, ARG_AFTER = 2, ARG_LIMIT = 4, ARG_SINCE = 8 };

static unsigned
tools_which(const struct tools_row *t, const struct jscan *s,
    const struct jscan_span *key)
{
	if (t->member != NULL && jscan_is(s, key, view_str(t->member)))
		return ARG_TEXT;
	if (t->after && jscan_is(s, key, VIEW("after")))
		return ARG_AFTER;
	if (t->limit && jscan_is(s, key, VIEW("limit")))
		return ARG_LIMIT;
	if (t->since && jscan_is(s, key, VIEW("since")))
		return ARG_SINCE;
	return 0;
}

static int
tools_number(const struct jscan *s, const struct jscan_span *val, int64_t least,
    int64_t *out)
{
	if (val->kind != JSCAN_NUMBER || jscan_i64(s, val, out) != SP_OK ||
	    *out < least)
		return SP_E_SYNTAX;
	return SP_OK;
}

/* A path may have any bytes, as grader.fs_diff tells them. */
static int
tools_argument(unsigned which, const struct jscan *s,
    const struct jscan_span *val, struct tools_args *a)
{
	struct buf *b = which == ARG_TEXT ? &a->text : &a->after;
	int rc;

	if (which == ARG_LIMIT)
		return tools_number(s, val, 1, &a->limit);
	if (which == ARG_SINCE)
		return tools_number(s, val, 0, &a->since);
	if (which == 0)
		return SP_E_SYNTAX;
	rc = jscan_decode_bytes(s, val, b);
	return rc == SP_OK && buf_len(b) == 0 ? SP_E_SYNTAX : rc;
}

/* Those of the row, each once, and no others: 0; SP_E_SYNTAX; SP_E_NOMEM. */
static int
tools_arguments(const struct tools_row *t, const struct jrpc *m,
    const struct jscan_span *args, struct tools_args *a)
{
	struct jscan_span key, val;
	unsigned seen = 0, which;
	struct jscan s;
	int rc = SP_OK;

	if (args->kind == JSCAN_NONE)
		return t->required ? SP_E_SYNTAX : SP_OK;
	jscan_init(&s, view_sub(m->text, 0, args->end), 0);
	s.pos = args->start;
	if (jscan_enter(&s) != SP_OK)
		return SP_E_SYNTAX;
	while (rc == SP_OK && jscan_member(&s, &key) == 1 &&
	    jscan_skip(&s, &val) == SP_OK) {
		which = tools_which(t, &s, &key);
		if ((seen & which) != 0)
			return SP_E_SYNTAX;
		seen |= which;
		rc = tools_argument(which, &s, &val, a);
	}
	return rc == SP_OK && t->required && (seen & ARG_TEXT) == 0
	    ? SP_E_SYNTAX
	    : rc;
}

static void
tools_call(struct mcp_call *c, struct view tool, const struct jrpc *m,
    const struct jscan_span *args)
{
	const struct tools_row *t = tools_find(mcp_call_request(c), tool);
	struct tools_args a = { .text = BUF_INIT(TOOLS_PATH_MAX),
		.after = BUF_INIT(TOOLS_PATH_MAX) };
	/* whoever asks has found it in tools_has() */
	int rc = t != NULL ? tools_arguments(t, m, args, &a) : SP_E_SYNTAX;

	if (rc == SP_OK)
		t->call(c, &a);
	else if (rc == SP_E_NOMEM)
		tools_not_begun(c, rc);
	else
		tools_refuse(c, INVALID, "bad_arguments", SCHEMA);
	buf_clear(&a.text);
	buf_clear(&a.after);
}

static void
tools_forget(struct mcp_call *c)
{
	struct tools_wait *t = *mcp_call_ctx(c);

	if (t == NULL)
		return;
	if (t->grading != NULL)
		grading_forget(t->grading);
	if (t->wc != NULL)
		worker_forget(t->wc, VIEW_NONE);
	tools_over(c);
}

const struct mcp_own mcp_grader_tools_own = {
	.has = tools_has,
	.list = tools_list,
	.call = tools_call,
	.forget = tools_forget,
};
