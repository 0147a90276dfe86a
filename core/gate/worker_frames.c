/*
 * worker frames: one JSON object a line, one request at a time.
 * Source: openenvd, second generation: the worker's control channel.
 */
#include "config.h"

#include "base/mem.h"
#include "gate/worker_pipe.h"
#include "gate/worker_rpc.h"
#include "json/jwrite.h"

struct worker_frames {
	struct worker_back back; /* first */
	struct worker_pipe pipe;
	uint64_t number; /* of the call that is out; 0 none */
};

enum frame_kind { FRAME_BAD, FRAME_RESULT, FRAME_ERROR, FRAME_EVENT };

/* A frame has one member, and nothing else. */
static enum frame_kind
frame_read(struct view line, struct view *value)
{
	enum frame_kind kind = FRAME_BAD;
	struct jscan_span key, v;
	struct jscan s;

	if (worker_rpc_object(line) != SP_OK)
		return FRAME_BAD;
	jscan_init(&s, line, 0);
	if (jscan_enter(&s) != SP_OK || jscan_member(&s, &key) != 1 ||
	    jscan_skip(&s, &v) != SP_OK)
		return FRAME_BAD;
	if (jscan_is(&s, &key, VIEW("result")) && v.kind == JSCAN_OBJECT)
		kind = FRAME_RESULT;
	else if (jscan_is(&s, &key, VIEW("error")) && v.kind == JSCAN_STRING)
		kind = FRAME_ERROR;
	else if (jscan_is(&s, &key, VIEW("event")) && v.kind == JSCAN_OBJECT)
		kind = FRAME_EVENT;
	*value = jscan_raw(&s, &v);
	return jscan_member(&s, &key) == 0 ? kind : FRAME_BAD;
}

static void
frame_bad(struct worker_frames *f, const char *what, struct view line)
{
	worker_fail(f->back.w, WORKER_GONE, "%s: %.*s", what,
	    VIEW_ARG(view_sub(line, 0, 200)));
}

/* {"ready":true} */
static bool
frame_says_ready(struct view v)
{
	struct jscan_span key, val;
	struct jscan s;

	jscan_init(&s, v, 0);
	return jscan_enter(&s) == SP_OK && jscan_member(&s, &key) == 1 &&
	    jscan_is(&s, &key, VIEW("ready")) &&
	    jscan_skip(&s, &val) == SP_OK && val.kind == JSCAN_TRUE &&
	    jscan_member(&s, &key) == 0;
}

/* Of mcp: the response, with the id that its request had. */
static void
answer_mcp(struct worker_frames *f, struct worker_call *c, struct view value)
{
	const struct view id = c->id.n > 0 ? c->id : VIEW("null");
	struct buf out = BUF_INIT(2 * WORKER_LINE_MAX);
	struct worker_rpc r;
	int rc = worker_rpc_read(value, &r);

	if (rc == SP_OK && r.has_result == r.has_error)
		rc = SP_E_SYNTAX;
	if (rc == SP_OK)
		rc = worker_rpc_put(&r, &id, NULL, NULL, &out);
	if (rc == SP_OK)
		worker_answer(c, WORKER_OK, buf_view(&out));
	else if (rc == SP_E_SYNTAX)
		frame_bad(f, "its result of mcp is no response", value);
	else
		worker_answer(c, WORKER_ERROR, view_str(err_str(rc)));
	buf_clear(&out);
}

static void
frame_answer(struct worker_frames *f, enum frame_kind kind, struct view value)
{
	struct worker_call *c = worker_numbered(f->back.w, f->number);
	struct buf text = BUF_INIT(WORKER_LINE_MAX);
	struct jscan_span v;
	struct jscan s;

	f->number = 0;
	if (kind == FRAME_RESULT && c->op == WORKER_MCP) {
		answer_mcp(f, c, value);
	} else if (kind == FRAME_RESULT) {
		worker_answer(c, WORKER_OK, value);
	} else {
		jscan_init(&s, value, 0);
		if (jscan_skip(&s, &v) == SP_OK)
			(void)!jscan_decode(&s, &v, &text, NULL);
		worker_answer(c, WORKER_ERROR, buf_view(&text));
	}
	buf_clear(&text);
}

static void
frames_on_line(struct worker_back *b, struct view line)
{
	struct worker_frames *f = (struct worker_frames *)b;
	struct view value = VIEW_NONE;
	enum frame_kind kind = frame_read(line, &value);

	if (kind == FRAME_BAD)
		frame_bad(f, "it sent what is no frame", line);
	else if (b->w->state == WORKER_STARTING && kind == FRAME_RESULT &&
	    frame_says_ready(value))
		worker_ready(b->w, VIEW_NONE);
	else if (b->w->state == WORKER_STARTING)
		frame_bad(f, "its first frame is not {\"ready\":true}", line);
	else if (kind == FRAME_EVENT)
		worker_event(b->w, value);
	else if (f->number == 0)
		frame_bad(f, "it answered what was not asked", line);
	else
		frame_answer(f, kind, value);
}

/* ---- the back end ----------------------------------------------------------- */

static int
frames_greet(struct worker_frames *f, const struct conf_environment *env)
{
	struct buf b = BUF_INIT(8192);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_key(&w, "factory");
	jwrite_string(&w, env->worker_factory);
	jwrite_key(&w, "action_class");
	jwrite_string(&w, env->worker_action_class);
	jwrite_key(&w, "agent_policy");
	jwrite_null(&w);
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		rc = worker_pipe_send(&f->pipe, buf_view(&b));
	buf_clear(&b);
	return rc;
}

static void
frames_stop(struct worker_back *b)
{
	worker_pipe_stop(&((struct worker_frames *)b)->pipe);
}

static void
frames_free(struct worker_back *b)
{
	worker_pipe_clear(&((struct worker_frames *)b)->pipe);
	mem_free(b);
}

static struct worker_back *
frames_start(struct worker *w, const struct conf_environment *env)
{
	struct worker_frames *f = mem_calloc(1, sizeof(*f));
	int rc;

	if (f == NULL)
		return NULL;
	f->back.ops = &worker_frames_backend;
	f->back.w = w;
	rc = worker_pipe_start(&f->pipe, &f->back, env, frames_on_line);
	if (rc == SP_OK)
		rc = frames_greet(f, env);
	if (rc == SP_OK)
		return &f->back;
	frames_stop(&f->back);
	frames_free(&f->back);
	worker_fail(w, WORKER_GONE, "it cannot be started: %s", err_str(rc));
	return NULL;
}

static int
frames_send(struct worker_back *b, struct worker_call *c)
{
	static const char *const names[] = {
		[WORKER_RESET] = "reset",
		[WORKER_STEP] = "step",
		[WORKER_STATE] = "state",
		[WORKER_MCP] = "mcp",
	};
	struct worker_frames *f = (struct worker_frames *)b;
	struct buf line = BUF_INIT(WORKER_LINE_MAX);
	int rc;

	rc = buf_printf(&line, "{\"operation\":\"%s\",\"data\":", names[c->op]);
	if (rc == SP_OK)
		rc = buf_add_view(&line, buf_view(&c->data));
	if (rc == SP_OK)
		rc = buf_add_char(&line, '}');
	if (rc == SP_OK)
		rc = worker_pipe_send(&f->pipe, buf_view(&line));
	if (rc == SP_OK)
		f->number = c->number;
	buf_clear(&line);
	return rc;
}

static void
frames_hold(struct worker_back *b, bool on)
{
	worker_pipe_hold(&((struct worker_frames *)b)->pipe, on);
}

const struct worker_backend worker_frames_backend = {
	.start = frames_start,
	.send = frames_send,
	.hold = frames_hold,
	.stop = frames_stop,
	.free = frames_free,
};
