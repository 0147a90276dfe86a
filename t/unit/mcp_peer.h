/*
 * For the tests of core/gate/mcp*.c and the modules on them: a gate with both
 * doors, clients over HTTP, and a worker and a grading that the test plays.
 */
#ifndef SP_T_UNIT_MCP_PEER_H
#define SP_T_UNIT_MCP_PEER_H

#include "config.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/gate_priv.h"
#include "gate/grading.h"
#include "gate/worker.h"
#include "ipc/wire.h"
#include "os/fd.h"

#include "conf_text.h"
#include "mcp_agent.h"
#include "mcp_agent_conf.h"
#include "mcp_grader.h"
#include "mux_backend.h"
#include "tap.h"

extern const struct conf_module health_conf;
static const struct gate_module bare = { .conf = &health_conf };
const struct gate_module *const gate_modules[] = { &mcp_agent_module,
	&mcp_grader_module, &bare, NULL };

static struct loop *loop;
static struct loop_timer *stopper;
static struct conf *conf;
static struct gate *gate;
static struct mux mux;
static struct episode *episode;

/* ---- the worker ------------------------------------------------------------- */

struct worker_call {
	const struct worker_caller *caller;
	void *arg;
};

static struct {
	bool none;
	enum worker_state state;
	const char *initialized;
	struct worker_call call; /* the last */
	bool open; /* it waits */
	enum worker_op op;
	unsigned calls, forgotten, cancelled, told, holds;
	bool held;
	size_t unread; /* by clients */
	struct buf text, tell, reason;
	const struct worker_call *tell_call;
	struct worker_watch *watch;
	LIST_HEAD(, worker_watch) watches;
} w = { .text = BUF_INIT(1 << 20),
	.tell = BUF_INIT(1 << 20),
	.reason = BUF_INIT(4096) };

static inline void
keep(struct buf *b, struct view v)
{
	buf_reset(b, SIZE_MAX);
	if (buf_add_view(b, v) != SP_OK)
		abort();
}

struct worker *
worker_of(struct episode *ep)
{
	(void)ep;
	return w.none ? NULL : (struct worker *)&w;
}

enum worker_state
worker_state(const struct worker *one)
{
	(void)one;
	return w.state;
}

struct view
worker_initialized(const struct worker *one)
{
	(void)one;
	return view_str(w.initialized);
}

int
worker_call(struct worker *one, const struct worker_ask *ask,
    const struct worker_caller *caller, void *arg, struct worker_call **out)
{
	(void)one;
	w.calls++;
	w.op = ask->op;
	w.open = true;
	w.call.caller = caller;
	w.call.arg = arg;
	keep(&w.text, ask->data);
	*out = &w.call;
	return SP_OK;
}

void
worker_forget(struct worker_call *c, struct view reason)
{
	(void)c;
	(void)reason;
	w.forgotten++;
	w.open = false;
}

void
worker_cancel(struct worker_call *c, struct view reason)
{
	(void)c;
	w.cancelled++;
	keep(&w.reason, reason);
}

size_t
exchange_queued(const struct exchange *x)
{
	(void)x;
	return w.unread;
}

void
worker_hold(struct worker_call *c, bool on)
{
	(void)c;
	w.holds++;
	w.held = on;
}

int
worker_tell(struct worker *one, const struct worker_call *c, struct view json)
{
	(void)one;
	w.tell_call = c;
	w.told++;
	keep(&w.tell, json);
	return SP_OK;
}

void
worker_watch(struct worker *one, struct worker_watch *watch)
{
	watch->worker = one;
	LIST_INSERT_HEAD(&w.watches, watch, link);
}

void
worker_unwatch(struct worker_watch *watch)
{
	if (watch->worker != NULL)
		LIST_REMOVE(watch, link);
	watch->worker = NULL;
}

static inline void
says(enum worker_result result, const char *body)
{
	if (!w.open)
		return;
	w.open = false;
	w.call.caller->done(w.call.arg, result, view_str(body));
}

static inline void
says_before(const char *json)
{
	if (w.open && w.call.caller->message != NULL)
		w.call.caller->message(w.call.arg, view_str(json));
}

static inline void
says_to_all(const char *json)
{
	struct worker_watch *x, *next;

	for (x = LIST_FIRST(&w.watches); x != NULL; x = next) {
		next = LIST_NEXT(x, link);
		if (x->message != NULL)
			x->message(x->arg, view_str(json));
	}
}

static inline void
becomes(enum worker_state state)
{
	struct worker_watch *x, *next;

	w.state = state;
	for (x = LIST_FIRST(&w.watches); x != NULL; x = next) {
		next = LIST_NEXT(x, link);
		if (x->changed != NULL)
			x->changed(x->arg, state);
	}
}

/* ---- grading ---------------------------------------------------------------- */

static struct {
	const struct grading_done *done;
	void *arg;
	struct buf what;
	unsigned forgotten, n;
	int rc;
} grade = { .what = BUF_INIT(4096) };

static int
graded(struct view what, const struct grading_done *done, void *arg,
    struct grading **out)
{
	if (grade.rc != SP_OK)
		return grade.rc;
	grade.n++;
	grade.done = done;
	grade.arg = arg;
	keep(&grade.what, what);
	*out = (struct grading *)&grade;
	return SP_OK;
}

int
grading_read(struct episode *ep, struct view path,
    const struct grading_done *done, void *arg, struct grading **out)
{
	(void)ep;
	return graded(path, done, arg, out);
}

int
grading_diff(struct episode *ep, const struct grading_done *done, void *arg,
    struct grading **out)
{
	(void)ep;
	return graded(VIEW("diff"), done, arg, out);
}

int
grading_run(struct episode *ep, struct view process,
    const struct grading_done *done, void *arg, struct grading **out)
{
	(void)ep;
	return graded(process, done, arg, out);
}

void
grading_forget(struct grading *g)
{
	(void)g;
	grade.forgotten++;
}

/* ---- the world -------------------------------------------------------------- */

static uint32_t request;

static int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	struct wire in;

	(void)arg;
	(void)type;
	fd_close(&fd);
	wire_init(&in, body);
	request = wire_u32(&in);
	return SP_OK;
}

static inline void
hear(enum message_type type, const struct buf *body)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(body),
		.fd = -1 };

	if (episode_set_heard(gate_episodes(gate), &m) != SP_OK)
		abort();
}

static inline void
make(const char *id)
{
	struct buf b = BUF_INIT(1024);

	if (episode_create(gate_episodes(gate), VIEW("echo"), view_str(id),
		NULL, NULL, &episode) != SP_OK ||
	    wire_put_u32(&b, 1) != SP_OK || wire_put_u32(&b, 1) != SP_OK ||
	    wire_put_u32(&b, request) != SP_OK ||
	    wire_put_bytes(&b, VIEW("echo")) != SP_OK)
		abort();
	hear(MESSAGE_EPISODE_MADE, &b);
	buf_clear(&b);
}

static inline void
over(void)
{
	struct buf b = BUF_INIT(1024);

	if (wire_put_u32(&b, 1) != SP_OK || wire_put_u32(&b, 1) != SP_OK ||
	    wire_put_u32(&b, 0) != SP_OK ||
	    wire_put_u8(&b, SANDBOX_END_LOST) != SP_OK ||
	    wire_put_bytes(&b, VIEW_NONE) != SP_OK)
		abort();
	hear(MESSAGE_EPISODE_ENDED, &b);
	buf_clear(&b);
}

static const char text[] =
    "environment echo { sandbox { uid 300000 4096; }\n"
    "  worker stdio /usr/bin/worker;\n"
    "  assets /a { oracle o.sh; rubric r.py; }\n"
    "  process rubric { trust privileged; asset rubric; }\n"
    "  process loader { trust workload; command /usr/bin/x; } }\n"
    "server {\n"
    "  listen 127.0.0.1:7000;\n"
    "  location /mcp { mcp_agent; environment echo; tools env.* echo; }\n"
    "  location /one { mcp_agent; environment echo; tools env.* echo;\n"
    "                  max_calls 1; sockets 1; }\n"
    "  location /few { mcp_agent; environment echo; tools env.*; sessions 2;\n"
    "                  features logging; }\n"
    "  location /mcp/grader { mcp_grader; environment echo; token env:TOKEN;\n"
    "     tools env.* grader.*; fs_read /workspace/** /openenvd/assets/*;\n"
    "     privileged_exec on; }\n"
    "  location /small { mcp_grader; environment echo; token env:TOKEN;\n"
    "     tools *; }\n"
    "}\n";

static inline void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static inline void
turn(void)
{
	int i = 0;

	do {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	} while (mux_turn(&mux) || i++ < 3);
}

static inline void
begin(void)
{
	struct buf err = BUF_INIT(4096);

	w.none = false;
	w.state = WORKER_READY;
	w.initialized = "";
	w.open = false;
	w.calls = w.forgotten = w.cancelled = w.told = 0;
	LIST_INIT(&w.watches);
	grade.rc = SP_OK;
	grade.n = grade.forgotten = 0;
	if (gate_new(loop, conf, &gate, &err) != SP_OK ||
	    gate_set_helper(gate, send_helper, NULL) != SP_OK ||
	    gate_start(gate) != SP_OK)
		abort();
	mux_init(&mux, &walk_consumer, gate, 1 << 24, 1 << 20);
	make("one");
}

static inline void
finish(void)
{
	mux_clear(&mux);
	tap_ok(LIST_EMPTY(&w.watches), "nobody watches any more");
	gate_free(gate);
	gate = NULL;
}

static inline void
let_go(void)
{
	struct mux_stream *s;

	for (s = mux.streams; s < mux.streams + MUX_STREAMS; s++) {
		if (s->id == 0 || !s->over)
			continue;
		buf_clear(&s->up);
		buf_clear(&s->down);
		buf_clear(&s->got);
		s->id = 0;
	}
}

#define SPEC \
	"accept: application/json, text/event-stream\n" \
	"content-type: application/json\n"
#define BEARER "authorization: Bearer 0123456789abcdef\n"

/* fields: "name: value\n" each. */
static inline struct mux_stream *
ask(const char *method, const char *path, const char *fields, const char *body)
{
	struct mux_stream *s;
	struct view rest = view_str(fields), line;
	size_t at;

	let_go();
	s = mux_open(&mux, method, path, body != NULL);
	if (s == NULL)
		abort();
	s->x.request.authority = VIEW("localhost:7000");
	while (view_split(&rest, '\n', &line)) {
		at = view_find(line, ':');
		if (at < line.n &&
		    head_add(&s->x.request.fields, view_sub(line, 0, at),
			view_from(line, at + 2)) != SP_OK)
			abort();
	}
	if (body != NULL)
		mux_send(s, view_str(body), true);
	turn();
	return s;
}

static inline void
is(const struct mux_stream *s, unsigned status, const char *body,
    const char *what)
{
	static const struct view event = VIEW_INIT("event: message\ndata: ");
	struct view got = buf_view(&s->got), want = view_str(body);
	bool ok;

	/* a single answer comes as an event */
	if (view_starts(got, event) && !view_starts(want, event))
		got = view_sub(got, event.n, got.n - event.n - 2);
	/* a part where it begins with "..." */
	ok = s->status == status && s->got_end &&
	    (view_starts(want, VIEW("..."))
		    ? view_search(got, view_from(want, 3)) < got.n
		    : view_eq(got, want));
	tap_ok(ok, "%s", what);
	if (!ok)
		tap_diag("%u %.*s", s->status, VIEW_ARG(got));
}

static inline struct mux_stream *
plain(const char *body)
{
	return ask("POST", "/mcp", "", body);
}

#define ERROR(id, code, message) \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"error\":{\"code\":" code \
	",\"message\":\"" message "\",\"data\":null}}"
#define RPC(id, method) \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\"}"
#define RPCP(id, method, params) \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method \
	"\",\"params\":" params "}"

static inline void
mcp_peer_start(void)
{
	struct buf err = BUF_INIT(4096);
	size_t i;

	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	if (conf_text_parse(text, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		abort();
	}
	for (i = 0; i < conf->secrets_n; i++)
		if (conf_secret_set(conf, (unsigned)i,
			VIEW("0123456789abcdef")) != SP_OK)
			abort();
	buf_clear(&err);
}

static inline void
mcp_peer_stop(void)
{
	conf_free(conf);
	loop_timer_free(stopper);
	loop_free(loop);
	buf_clear(&w.text);
	buf_clear(&w.tell);
	buf_clear(&w.reason);
	buf_clear(&grade.what);
}

#endif
