/*
 * The gate on a back end that multiplexes: phases, verdicts, and FINISH once
 * in every path.
 */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/gate_priv.h"
#include "gate/session.h"

#include "mux_backend.h"
#include "tap.h"

/* ---- a module that does as it is told by the path -------------------------- */

extern const struct conf_module llm_intercept_conf, status_conf, health_conf;

static struct {
	int heads, messages, finishes, rooms, gones, starts, stops, setups;
	enum exchange_gone why;
	struct gate_request *held;
	char body[256];
	size_t body_n;
	bool x_at_finish;
	enum gate_verdict resume_within;
	char ctx; /* what ctx points to */
} seen;

static bool
asks(const struct gate_request *r, const char *what)
{
	return view_eq(r->rest, view_str(what));
}

static enum gate_verdict
deny(struct gate_request *r)
{
	r->status = 429;
	r->code = "slow_down";
	r->reason = "too many: wait";
	return GATE_DENY;
}

static enum gate_verdict
answer(struct gate_request *r)
{
	r->status = 200;
	return exchange_simple(r->x, 200, VIEW("text/plain"), VIEW("hello")) ==
		SP_OK
	    ? GATE_DONE
	    : GATE_FAIL;
}

static enum gate_verdict
on_head(struct gate_request *r)
{
	seen.heads++;
	r->ctx = &seen.ctx;
	if (asks(r, "/head-fail"))
		return GATE_FAIL;
	if (asks(r, "/head-deny"))
		return deny(r);
	if (asks(r, "/head-done"))
		return answer(r);
	if (asks(r, "/head-hold")) {
		seen.held = r;
		return GATE_HOLD;
	}
	return GATE_PASS;
}

static enum gate_verdict
on_message(struct gate_request *r)
{
	struct view body = buf_view(&r->body);

	seen.messages++;
	seen.body_n = body.n < sizeof(seen.body) ? body.n : sizeof(seen.body);
	if (seen.body_n > 0)
		memcpy(seen.body, body.p, seen.body_n);
	if (asks(r, "/fail"))
		return GATE_FAIL;
	if (asks(r, "/pass"))
		return GATE_PASS;
	if (asks(r, "/deny"))
		return deny(r);
	if (asks(r, "/within")) {
		gate_resume(r, GATE_DENY);
		r->status = 418;
		return GATE_HOLD;
	}
	if (asks(r, "/hold")) {
		seen.held = r;
		return GATE_HOLD;
	}
	return answer(r);
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	seen.finishes++;
	seen.x_at_finish = r->x != NULL;
	if (r->ctx != &seen.ctx)
		abort();
	r->ctx = NULL;
	if (seen.held == r)
		seen.held = NULL;
	return GATE_PASS;
}

static void
on_room(struct gate_request *r)
{
	(void)r;
	seen.rooms++;
}

static void
on_gone(struct gate_request *r, enum exchange_gone why)
{
	if (r->x != NULL)
		abort();
	seen.gones++;
	seen.why = why;
}

static int
setup(struct gate *g)
{
	seen.setups++;
	return metrics_register(gate_metrics(g), METRICS_COUNTER, "test",
		   "Test", NULL, NULL) == NULL
	    ? SP_E_NOMEM
	    : SP_OK;
}

static int
start(struct gate *g)
{
	(void)g;
	seen.starts++;
	return SP_OK;
}

static void
stop(struct gate *g)
{
	(void)g;
	seen.stops++;
}

static const struct gate_module door = {
	.conf = &llm_intercept_conf,
	.beneath = true,
	.wants_body = true,
	.body_max = HEAVY_BYTES + 1000,
	.setup = setup,
	.start = start,
	.stop = stop,
	.hook = { on_head, on_message, on_finish },
	.room = on_room,
	.gone = on_gone,
};
/* one that takes no body */
static const struct gate_module plain = {
	.conf = &status_conf,
	.hook = { on_head, on_message, on_finish },
	.gone = on_gone,
};
static const struct gate_module bare = { .conf = &health_conf };
const struct gate_module *const gate_modules[] = { &door, &plain, &bare, NULL };

/* ---- the world ------------------------------------------------------------- */

static struct loop *loop;
static struct loop_timer *stopper;
static struct conf *conf;
static struct gate *gate;
static struct mux mux;
static int log_fd[2];
static int drained;

static const char text[] =
    "upstream u { server http://127.0.0.1:9/v1; }\n"
    "capture c { level text; }\n"
    "server {\n"
    "  listen 127.0.0.1:7000;\n"
    "  location /v1 { llm_intercept; upstream u; capture c; keys open;\n"
    "                 client_max_body 32; }\n"
    "  location /large { llm_intercept; upstream u; capture c; keys open; }\n"
    "  location /drip { llm_intercept; upstream u; capture c; keys open;\n"
    "                   client_body_timeout 1ms; client_body_rate 1g; }\n"
    "  location /lock { llm_intercept; upstream u; capture c; keys open;\n"
    "                 token env:TOKEN; }\n"
    "  location /plain { status; }\n"
    "  location /bare { health; }\n"
    "}\n";

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
spin(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	}
}

static void
turn(void)
{
	int i = 0;

	while (mux_turn(&mux) && i++ < 1000)
		spin();
	spin();
}

static void
parse(void)
{
	const struct conf_defaults defaults = { "/nowhere", "/nowhere",
		"/nowhere" };
	struct buf expanded = BUF_INIT(1 << 20), err = BUF_INIT(4096);
	size_t i;

	if (conf_expand_text("test", view_str(text), VIEW_NONE, &expanded,
		&err) != SP_OK ||
	    conf_parse(buf_view(&expanded), &defaults, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		abort();
	}
	for (i = 0; i < conf->secrets_n; i++)
		if (conf_secret_set(conf, (unsigned)i,
			VIEW("0123456789abcdef")) != SP_OK)
			abort();
	buf_clear(&expanded);
	buf_clear(&err);
}

static int
open_gate(void)
{
	struct buf err = BUF_INIT(4096);
	int rc;

	rc = gate_new(loop, conf, &gate, &err);
	buf_clear(&err);
	return rc;
}

static void
begin(void)
{
	memset(&seen, 0, sizeof(seen));
	if (open_gate() != SP_OK || gate_start(gate) != SP_OK ||
	    pipe(log_fd) != 0)
		abort();
	gate_set_access_log(gate, log_fd[1]);
	mux_init(&mux, &walk_consumer, gate, 1 << 20, 1 << 16);
}

/* Everything ends; the access log's lines are in out. */
static void
finish(struct buf *out)
{
	ssize_t n;

	mux_clear(&mux);
	gate_free(gate);
	gate = NULL;
	if (out != NULL) {
		buf_reset(out, SIZE_MAX);
		if (buf_reserve(out, 65536) != SP_OK)
			abort();
		n = read(log_fd[0], buf_tail(out), 65535);
		buf_grow(out, n > 0 ? (size_t)n : 0);
	}
	close(log_fd[0]);
}

static struct mux_stream *
ask(const char *path, const char *body)
{
	struct mux_stream *s =
	    mux_open(&mux, body != NULL ? "POST" : "GET", path, body != NULL);

	if (s == NULL)
		abort();
	if (body != NULL)
		mux_send(s, view_str(body), true);
	return s;
}

static bool
got(const struct mux_stream *s, const char *part)
{
	return view_search(buf_view(&s->got), view_str(part)) <
	    buf_len(&s->got);
}

/* ---- tests ----------------------------------------------------------------- */

static void
one(const char *path, const char *body, unsigned status, const char *part,
    int finishes)
{
	struct mux_stream *s;

	begin();
	s = ask(path, body);
	turn();
	tap_ok(s->status == status && got(s, part) && s->got_end,
	    "%s: %u (%.*s)", path, s->status, VIEW_ARG(buf_view(&s->got)));
	tap_is_int(seen.finishes, finishes, "FINISH");
	finish(NULL);
	tap_is_int(seen.finishes, finishes, "FINISH once");
}

static void
verdicts(void)
{
	one("/v1/x", NULL, 200, "hello", 1);
	one("/v1/x", "{}", 200, "hello", 1);
	tap_is_mem(seen.body, seen.body_n, "{}", 2, "the body is whole");
	one("/v1/head-fail", "{}", 500, "internal_error", 1);
	one("/v1/head-deny", "{}", 429, "slow_down", 1);
	tap_is_int(seen.messages, 0, "no later phase");
	one("/v1/head-done", "{}", 200, "hello", 1);
	one("/v1/fail", "{}", 500, "internal_error", 1);
	one("/v1/pass", "{}", 500, "internal_error", 1);
	one("/v1/deny", "{}", 429, "too many: wait", 1);
	one("/v1/within", "{}", 418, "denied", 1);
	one("/nowhere", NULL, 404, "unknown_url", 0);
	one("/v1/%zz", NULL, 400, "bad_path", 0);
	one("/plain", "{ a body that nobody takes }", 200, "hello", 1);
	tap_is_int((long long)seen.body_n, 0, "no body for it");
	one("/plain/x", NULL, 404, "unknown_url", 0);
	one("/bare", NULL, 500, "internal_error", 0);
	one("/v1/x", "0123456789012345678901234567890123456789", 413,
	    "request_too_large", 1);
	tap_is_int(seen.messages, 0, "too large a body is no message");
	one("/lock/x", NULL, 401, "invalid_token", 0);
}

static void
announced(void)
{
	struct mux_stream *s;

	begin();
	s = mux_open(&mux, "POST", "/v1/x", true);
	s->x.request.content_length = 33;
	turn();
	tap_ok(s->status == 413 && s->interims == 0,
	    "413 by Content-Length, and no 100 before it");
	s = mux_open(&mux, "POST", "/large/x", true);
	s->x.request.content_length = HEAVY_BYTES + 1001;
	turn();
	tap_ok(s->status == 413 && s->interims == 0 &&
		got(s, "263144 bytes, which is all that a worker is told"),
	    "413 by the bound of the module");
	s = mux_open(&mux, "POST", "/v1/x", true);
	s->x.request.content_length = 32;
	turn();
	tap_ok(s->status == 0 && s->interims == 1, "100 before the body");
	finish(NULL);
	tap_is_int(seen.finishes, 3, "FINISH for all");
}

static struct mux_stream *
ask_large(void)
{
	static char body[HEAVY_BYTES];
	struct mux_stream *s = mux_open(&mux, "POST", "/large/x", true);

	if (s == NULL)
		abort();
	memset(body, ' ', sizeof(body));
	mux_send(s, view_of(body, sizeof(body)), true);
	return s;
}

/* All that is sent comes, and the loop takes no turn. */
static void
deliver(void)
{
	while (mux_turn(&mux))
		;
}

static void
large(void)
{
	struct mux_stream *s[3];

	begin();
	s[0] = ask_large();
	s[1] = ask_large();
	s[2] = ask("/v1/x", "small");
	deliver();
	tap_ok(s[2]->status == 200 && s[0]->status == 0 && s[1]->status == 0 &&
		seen.messages == 1,
	    "what is small goes first");
	mux_reset(s[0]);
	deliver();
	tap_ok(seen.gones == 1, "one of those that wait is gone");
	turn();
	tap_ok(s[1]->status == 200 && seen.messages == 2 &&
		seen.body_n == sizeof(seen.body),
	    "the other has its turn");
	turn();
	tap_is_int((long long)gate->ports[0]->body_bytes, 0, "nothing is held");
	(void)ask_large();
	deliver();
	finish(NULL);
	tap_ok(seen.messages == 2 && seen.finishes == 4,
	    "the end of the gate is no turn");
}

static void
drips(void)
{
	struct mux_stream *s;
	int i;

	begin();
	s = mux_open(&mux, "POST", "/drip/x", true);
	for (i = 0; i < 100000 && s->status == 0; i++) {
		mux_send(s, VIEW("a"), false);
		turn();
	}
	tap_ok(s->status == 408 && got(s, "client_body_rate"),
	    "a body in single bytes");
	finish(NULL);
}

static void
health(void)
{
	const char *why = "";

	begin();
	pressure_set(gate->pressure, 1);
	tap_ok(!gate_healthy(gate, &why) &&
		view_search(view_str(why), VIEW("memory_max")) < strlen(why),
	    "memory is short: %s", why);
	pressure_set(gate->pressure, UINT64_MAX);
	(void)gate_healthy(gate, &why);
	tap_ok(view_search(view_str(why), VIEW("memory_max")) == strlen(why),
	    "and no more");
	finish(NULL);
}

static void
token(void)
{
	struct mux_stream *s;

	begin();
	s = mux_open(&mux, "GET", "/lock/x", false);
	if (head_add(&s->x.request.fields, VIEW("Authorization"),
		VIEW("Bearer 0123456789abcdef")) != SP_OK)
		abort();
	turn();
	tap_is_int(s->status, 200, "the token opens it");
	finish(NULL);
}

static void
holding(void)
{
	struct mux_stream *s;

	begin();
	s = ask("/v1/head-hold", "{}");
	turn();
	tap_ok(seen.held != NULL && s->status == 0, "held");
	gate_resume(seen.held, GATE_PASS);
	turn();
	tap_ok(s->status == 200 && seen.messages == 1, "resumed");
	s = ask("/v1/hold", "{}");
	turn();
	tap_ok(answer(seen.held) == GATE_DONE, "answered later");
	gate_finish(seen.held);
	turn();
	tap_ok(s->status == 200 && seen.finishes == 2, "finished");
	s = ask("/v1/hold", "{}");
	turn();
	gate_finish(seen.held);
	turn();
	tap_is_int(s->status, 500, "finished without an answer");
	s = ask("/v1/hold", "{}");
	turn();
	tap_is_int(gate_error(seen.held, 503, "x", "%s", "later"), SP_OK,
	    "error");
	tap_is_int(gate_error(seen.held, 503, "x", "%s", "later"), SP_E_STATE,
	    "a second one");
	gate_finish(seen.held);
	turn();
	tap_ok(s->status == 503 && got(s, "\"later\""), "its body");
	tap_is_int(seen.finishes, 4, "FINISH once each");
	finish(NULL);
}

/* A reply that is begun and then given up is cut, not ended. */
static void
cutting(void)
{
	struct head_reply head = { .status = 200, .content_length = -1 };
	struct mux_stream *s;

	begin();
	s = ask("/v1/hold", "{}");
	turn();
	if (exchange_head(seen.held->x, &head) != SP_OK ||
	    exchange_data(seen.held->x, VIEW("part")) != SP_OK)
		abort();
	gate_finish(seen.held);
	turn();
	tap_ok(got(s, "part") && s->got_reset && !s->got_end, "cut");
	tap_is_int(seen.finishes, 1, "FINISH");
	s = ask("/v1/hold", "{}");
	turn();
	if (exchange_head(seen.held->x, &head) != SP_OK)
		abort();
	gate_resume(seen.held, GATE_DENY);
	turn();
	tap_ok(s->got_reset && seen.finishes == 2,
	    "a verdict that comes too late cuts, too");
	finish(NULL);
}

static void
client_leaves(void)
{
	static const char *const paths[] = { "/v1/head-hold", "/v1/hold" };
	struct mux_stream *s;
	struct buf log = BUF_INIT(1 << 20);
	size_t i;

	begin();
	for (i = 0; i < 2; i++) {
		s = ask(paths[i], "{}");
		turn();
		mux_reset(s);
		turn();
		tap_ok(seen.gones == (int)i + 1 &&
			seen.why == EXCHANGE_GONE_RESET && !seen.x_at_finish &&
			seen.finishes == (int)i + 1,
		    "%s: client gone, FINISH after it", paths[i]);
	}
	s = mux_open(&mux, "POST", "/v1/x", true);
	mux_send(s, VIEW("{"), false);
	turn();
	mux_reset(s);
	turn();
	tap_is_int(seen.finishes, 3, "within the body");
	s = ask("/nowhere", NULL);
	mux_reset(s);
	turn();
	s = ask("/v1/hold", "{}");
	turn();
	finish(&log);
	tap_ok(seen.finishes == 4 && seen.why == EXCHANGE_GONE_SHUTDOWN,
	    "the gate is torn down under it");
	tap_ok(view_search(buf_view(&log), VIEW("\"client_gone\"")) <
		buf_len(&log),
	    "in the access log");
	buf_clear(&log);
}

static void
many(void)
{
	struct mux_stream *s[MUX_STREAMS];
	struct buf log = BUF_INIT(1 << 20);
	int i, good = 0;

	begin();
	for (i = 0; i < MUX_STREAMS; i++)
		s[i] = ask(i % 2 ? "/v1/x?key=hidden" : "/v1/deny", "{}");
	for (i = 0; i < MUX_STREAMS; i++)
		s[i]->x.request.path = view_sub(s[i]->x.request.path, 0,
		    view_find(s[i]->x.request.path, '?'));
	turn();
	for (i = 0; i < MUX_STREAMS; i++)
		good += s[i]->status == (i % 2 ? 200 : 429);
	tap_is_int(good, MUX_STREAMS, "many at once");
	tap_is_int(seen.finishes, MUX_STREAMS, "FINISH each");
	finish(&log);
	tap_ok(view_search(buf_view(&log), VIEW("hidden")) == buf_len(&log),
	    "no query in the log");
	tap_ok(view_search(buf_view(&log),
		   VIEW("\"path\":\"/v1/x\",\"status\":200,\"bytes\":5,")) <
		buf_len(&log),
	    "the line");
	buf_clear(&log);
}

static void
on_drained(void *arg)
{
	(void)arg;
	drained++;
}

static void
draining(void)
{
	const char *why;
	int i;

	begin();
	drained = 0;
	tap_ok(!gate_healthy(gate, &why), "no recorder, no health");
	ask("/v1/hold", "{}");
	turn();
	gate_drain(gate, on_drained, NULL);
	tap_ok(gate_draining(gate) && !gate_healthy(gate, &why), "draining");
	tap_is_str(why, "sallyport drains: it takes no more calls", "why");
	turn();
	tap_is_int(drained, 0, "not while one is open");
	gate_drain_deadline(gate);
	turn();
	tap_ok(drained == 1 && seen.finishes == 1 &&
		seen.why == EXCHANGE_GONE_SHUTDOWN,
	    "the deadline ends it");
	for (i = 0; i < 3; i++)
		spin();
	tap_is_int(drained, 1, "told once");
	finish(NULL);
	begin();
	drained = 0;
	gate_drain(gate, on_drained, NULL);
	spin();
	tap_is_int(drained, 1, "nothing open: at once");
	finish(NULL);
	tap_ok(seen.setups == 1 && seen.starts == 1 && seen.stops == 1,
	    "modules are set up, started and stopped");
}

static void
listening(void)
{
	int fd[2];

	begin();
	if (pipe(fd) != 0)
		abort();
	tap_is_int(gate_listen(gate, 2, fd[0]), SP_E_ARG, "no such address");
	close(fd[1]);
	finish(NULL);
}

/* Each allocation fails once, from the gate's making to a request's end. */
static bool
try(unsigned long n, bool whole)
{
	static const char *const paths[] = { "/v1/x", "/v1/deny", "/nowhere" };
	struct mux_stream *s = NULL;
	int opened = 0, i;
	bool good = true;

	memset(&seen, 0, sizeof(seen));
	if (whole)
		mem_fail_after(n, 0);
	if (open_gate() != SP_OK) {
		mem_fail_after(0, 0);
		return false;
	}
	for (i = 0; i < 3; i++) {
		mem_fail_after(0, 0);
		mux_init(&mux, &walk_consumer, gate, 1 << 20, 1 << 16);
		s = ask(paths[i], "{}");
		/* the client's own memory does not fail */
		if (buf_reserve(&s->got, 4096) != SP_OK ||
		    buf_reserve(&mux.wire, 65536) != SP_OK)
			abort();
		if (!whole)
			mem_fail_after(n, 0);
		turn();
		good = good && (s->got_end || s->got_reset);
		opened += seen.heads == seen.finishes;
		good = good && s->status == (i == 0 ? 200 : i == 1 ? 429 : 404);
		mem_fail_after(0, 0);
		mux_clear(&mux);
	}
	TAP_NEVER(seen.heads != seen.finishes);
	gate_free(gate);
	return good && opened == 3;
}

static void
no_memory(void)
{
	unsigned long n = 1;

	while (n < 1000 && !try(n, true))
		n++;
	tap_ok(n > 20 && n < 500, "a gate without memory (%lu)", n);
	n = 1;
	while (n < 1000 && !try(n, false))
		n++;
	tap_ok(n > 5 && n < 500, "a request without memory (%lu)", n);
}

static void
error_objects(void)
{
	struct buf b = BUF_INIT(4096);

	tap_is_int(gate_error_body(404, "x\"y", VIEW("a\nb\xff"), &b), SP_OK,
	    "made");
	tap_is_mem(buf_view(&b).p, buf_len(&b),
	    "{\"error\":{\"message\":\"a\\nb\xef\xbf\xbd\",\"type\":"
	    "\"not_found_error\",\"param\":null,\"code\":\"x\\\"y\"}}",
	    83, "an OpenAI error");
	buf_clear(&b);
}

int
main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	parse();
	verdicts();
	announced();
	large();
	drips();
	health();
	token();
	holding();
	cutting();
	client_leaves();
	many();
	draining();
	listening();
	error_objects();
	no_memory();
	loop_timer_free(stopper);
	loop_free(loop);
	conf_free(conf);
	return tap_done();
}
