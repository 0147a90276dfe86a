/*
 * modules/episodes_*.c: over a back end that multiplexes, against a helper that
 * is played here.
 */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/episode.h"
#include "gate/gate_priv.h"
#include "gate/process.h"
#include "ipc/wire.h"
#include "os/fd.h"

#include "conf_text.h"
#include "mux_backend.h"
#include "tap.h"

static struct loop *loop;
static struct loop_timer *stopper;
static struct conf *conf;
static struct gate *gate;
static struct mux mux;

/* ---- the helper ------------------------------------------------------------- */

static struct {
	enum message_type type;
	struct buf body;
	int fd;
	unsigned n, signals, last_signal;
	uint32_t handle; /* of the last process */
	int rc;
} sent = { .body = BUF_INIT(65536), .fd = -1 };

static uint32_t
sent_u32(unsigned nth)
{
	struct wire w;
	uint32_t v = 0;

	wire_init(&w, buf_view(&sent.body));
	do
		v = wire_u32(&w);
	while (nth-- > 0);
	return v;
}

static int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	(void)arg;
	if (sent.rc != SP_OK) {
		fd_close(&fd);
		return sent.rc;
	}
	if (type == MESSAGE_PROCESS_SIGNAL) {
		sent.signals++;
		sent.last_signal = (unsigned char)body.p[12];
		return SP_OK;
	}
	fd_close(&sent.fd);
	sent.type = type;
	sent.fd = fd;
	sent.n++;
	buf_reset(&sent.body, 65536);
	if (buf_add_view(&sent.body, body) != SP_OK)
		abort();
	if (type == MESSAGE_PROCESS_RUN) {
		struct wire w;

		wire_init(&w, body);
		(void)wire_u32(&w);
		(void)wire_u32(&w);
		(void)wire_u8(&w);
		sent.handle = wire_u32(&w);
	}
	return SP_OK;
}

static struct buf msg = BUF_INIT(65536);

static void
m_u8(unsigned v)
{
	if (wire_put_u8(&msg, (uint8_t)v) != SP_OK)
		abort();
}

static void
m_u32(uint32_t v)
{
	if (wire_put_u32(&msg, v) != SP_OK)
		abort();
}

static void
m_u64(uint64_t v)
{
	if (wire_put_u64(&msg, v) != SP_OK)
		abort();
}

static void
m_bytes(struct view v)
{
	if (wire_put_bytes(&msg, v) != SP_OK)
		abort();
}

static void
m_hear(enum message_type type, int fd)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(&msg),
		.fd = fd };

	if (episode_set_heard(gate_episodes(gate), &m) != SP_OK)
		tap_ok(false, "the helper was understood");
	fd_close(&m.fd);
	buf_reset(&msg, 65536);
}

static void
hear_made(uint32_t request)
{
	m_u32(1);
	m_u32(1);
	m_u32(request);
	m_bytes(VIEW("echo"));
	m_hear(MESSAGE_EPISODE_MADE, -1);
}

static void
hear_refused(uint32_t request, unsigned why, const char *what)
{
	m_u32(request);
	m_u8(why);
	m_bytes(view_str(what));
	m_hear(MESSAGE_EPISODE_REFUSED, -1);
}

static void
hear_ended(uint32_t request)
{
	m_u32(1);
	m_u32(1);
	m_u32(request);
	m_u8(SANDBOX_END_LOST);
	m_bytes(VIEW_NONE);
	m_hear(MESSAGE_EPISODE_ENDED, -1);
}

static void
hear_which(void)
{
	m_u32(1);
	m_u32(1);
	m_u32(sent.handle);
}

/* It runs: our ends of its streams. */
static int pipe_in = -1, pipe_out = -1, pipe_err = -1;

static void
close_pipes(void)
{
	fd_close(&pipe_in);
	fd_close(&pipe_out);
	fd_close(&pipe_err);
}

static void
hear_running(bool input)
{
	int in[2], out[2], err[2];

	if (pipe2(in, O_CLOEXEC | O_NONBLOCK) != 0 ||
	    pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
		abort();
	if (input) {
		hear_which();
		m_u8(0);
		m_hear(MESSAGE_PROCESS_STDIO, in[1]);
	} else {
		close(in[1]);
	}
	hear_which();
	m_u8(1);
	m_hear(MESSAGE_PROCESS_STDIO, out[0]);
	hear_which();
	m_u8(2);
	m_hear(MESSAGE_PROCESS_STDIO, err[0]);
	hear_which();
	m_u32(2);
	m_hear(MESSAGE_PROCESS_STARTED, -1);
	pipe_in = in[0];
	pipe_out = out[1];
	pipe_err = err[1];
}

static void
hear_exited(enum sandbox_end end, unsigned status)
{
	close_pipes();
	hear_which();
	m_u8(end);
	m_u8(status);
	m_u64(10);
	m_u64(20);
	m_u64(30);
	m_hear(MESSAGE_PROCESS_EXITED, -1);
}

static void
hear_file(uint32_t request, unsigned result, const void *p, size_t n)
{
	int fd = -1;

	if (p != NULL) {
		if (fd_sealed("t", p, n, &fd) != SP_OK)
			abort();
		m_u32(1);
		m_u32(1);
		m_u32(request);
		m_hear(MESSAGE_EPISODE_FILE_DATA, fd);
	}
	m_u32(1);
	m_u32(1);
	m_u32(request);
	m_u8(result);
	m_u64(n);
	m_bytes(VIEW_NONE);
	m_hear(MESSAGE_EPISODE_FILE_DONE, -1);
}

/* ---- the client ------------------------------------------------------------- */

static const char text[] =
    "environment echo { sandbox { uid 300000 4096; } }\n"
    "server {\n"
    "  listen 127.0.0.1:7000;\n"
    "  location /episodes { episodes; token env:TOKEN; }\n"
    "}\n";

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
spin(uint64_t ms)
{
	loop_timer_set(stopper, ms);
	if (loop_run(loop) != SP_OK)
		abort();
}

static void
turn(void)
{
	int i = 0;

	do
		spin(i < 3 ? 1 : 0);
	while ((mux_turn(&mux) || i < 3) && i++ < 1000);
}

static void
open_gate(void)
{
	struct buf err = BUF_INIT(4096);

	if (gate_new(loop, conf, &gate, &err) != SP_OK ||
	    gate_set_helper(gate, send_helper, NULL) != SP_OK ||
	    gate_start(gate) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		abort();
	}
	mux_init(&mux, &walk_consumer, gate, 1 << 24, 1 << 16);
}

static void
close_gate(void)
{
	mux_clear(&mux);
	gate_free(gate);
	gate = NULL;
}

/* Places of streams that are over are free again. */
static void
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

static struct mux_stream *
ask_as(const char *method, const char *path, const char *query,
    const char *type)
{
	struct mux_stream *s;

	let_go();
	s = mux_open(&mux, method, path, type != NULL);
	if (s == NULL ||
	    head_add_borrowed(&s->x.request.fields, VIEW("authorization"),
		VIEW("Bearer 0123456789abcdef")) != SP_OK)
		abort();
	s->x.request.query = view_str(query);
	if (type != NULL &&
	    head_add_borrowed(&s->x.request.fields, VIEW("content-type"),
		view_str(type)) != SP_OK)
		abort();
	return s;
}

static struct mux_stream *
ask(const char *method, const char *path, const char *body)
{
	struct mux_stream *s = ask_as(method, path, NULL,
	    body != NULL ? "application/json" : NULL);

	if (body != NULL)
		mux_send(s, view_str(body), true);
	turn();
	return s;
}

static bool
got(const struct mux_stream *s, const char *part)
{
	return part[0] == '\0' ||
	    view_search(buf_view(&s->got), view_str(part)) < buf_len(&s->got);
}

static void
is(const struct mux_stream *s, unsigned status, const char *part,
    const char *what)
{
	bool ok = s->status == status && s->got_end && got(s, part);

	tap_ok(ok, "%s", what);
	if (!ok)
		tap_diag("%u %.*s", s->status, VIEW_ARG(buf_view(&s->got)));
}

static void
make(void)
{
	struct mux_stream *s = ask("POST", "/episodes",
	    "{\"environment\": \"echo\", \"id\": \"one\"}");

	hear_made(sent_u32(0));
	turn();
	is(s, 201, "\"state\":\"live\"", "an episode");
}

/* ---- tests ------------------------------------------------------------------ */

static void
test_lives(void)
{
	struct mux_stream *s;

	open_gate();
	is(ask("POST", "/episodes", "{\"environment\": \"other\"}"), 404,
	    "unknown_environment", "no such environment");
	is(ask("POST", "/episodes", "{\"env\": \"echo\"}"), 400, "environment",
	    "another member");
	is(ask("POST", "/episodes", "{\"environment\": 1}"), 400, "environment",
	    "no name");
	is(ask("POST", "/episodes", ""), 400, "environment", "nothing");
	is(ask("POST", "/episodes",
	       "{\"environment\": \"echo\", \"id\": \"-\"}"),
	    400, "an id is", "the id of none");
	is(ask("POST", "/episodes",
	       "{\"environment\": \"echo\", \"id\": \"../x\"}"),
	    400, "an id is", "a bad id");
	s = ask("POST", "/episodes", "{\"environment\": \"echo\"}");
	hear_refused(sent_u32(0), SANDBOX_REFUSED_CAPACITY, "eight are open");
	turn();
	is(s, 503, "eight are open", "no room");
	s = ask("POST", "/episodes", "{\"environment\": \"echo\"}");
	hear_refused(sent_u32(0), SANDBOX_REFUSED_FAILED, "landlock: EPERM");
	turn();
	is(s, 500, "landlock: EPERM", "a stage that failed");
	make();
	is(ask("POST", "/episodes",
	       "{\"environment\": \"echo\", \"id\": \"one\"}"),
	    409, "episode_exists", "twice the same");
	is(ask("GET", "/episodes", NULL), 200, "\"id\":\"one\"", "the list");
	is(ask("GET", "/episodes/one", NULL), 200, "\"environment\":\"echo\"",
	    "the one");
	is(ask("GET", "/episodes/two", NULL), 404, "unknown_episode",
	    "not another");
	is(ask("PUT", "/episodes/one", ""), 405, "method", "a wrong method");
	is(ask("DELETE", "/episodes", NULL), 405, "method", "another");
	is(ask("GET", "/episodes/one/what", NULL), 404, "beneath", "no such");
	is(ask("GET", "/episodes/-", NULL), 404, "unknown_episode", "none");
	s = ask("POST", "/episodes/one/freeze", "");
	m_u32(1);
	m_u32(1);
	m_u32(sent_u32(0));
	m_u8(SANDBOX_FROZEN);
	m_hear(MESSAGE_EPISODE_FROZEN, -1);
	turn();
	is(s, 200, "\"frozen\":true", "frozen");
	s = ask("POST", "/episodes/one/thaw", "");
	hear_refused(sent_u32(0), SANDBOX_REFUSED_STATE, "");
	turn();
	is(s, 409, "not now", "not thawed");
	s = ask("POST", "/episodes/one/reset", "");
	is(ask("POST", "/episodes/one/reset", ""), 409, "busy", "one reset");
	hear_refused(sent_u32(0), SANDBOX_REFUSED_UNCLEAN,
	    "teardown incomplete: it did not empty");
	turn();
	is(s, 503, "teardown incomplete", "an unclean reset");
	s = ask("POST", "/episodes/one/reset", "");
	hear_ended(sent_u32(0));
	hear_made(sent_u32(0));
	turn();
	is(s, 200, "\"resets\":1", "a clean one");
	s = ask("DELETE", "/episodes/one", NULL);
	tap_is_int(s->status, 0, "the end is waited for");
	hear_ended(sent_u32(0));
	turn();
	is(s, 204, "", "the end");
	is(ask("GET", "/episodes", NULL), 200, "{\"episodes\":[]}", "none");
	is(ask("GET", "/episodes/-/guarantees", NULL), 200, "[]",
	    "no guarantees yet");
	m_bytes(VIEW("[{\"guarantee\":\"x\"}]"));
	m_hear(MESSAGE_EPISODE_GUARANTEES, -1);
	is(ask("GET", "/episodes/-/guarantees", NULL), 200, "\"x\"",
	    "guarantees");
	sent.rc = SP_E_GONE;
	is(ask("POST", "/episodes", "{\"environment\": \"echo\"}"), 503,
	    "helper_gone", "no helper");
	sent.rc = SP_OK;
	close_gate();
}

static void
test_client_gone(void)
{
	struct mux_stream *s;

	open_gate();
	s = ask("POST", "/episodes", "{\"environment\": \"echo\"}");
	mux_reset(s);
	turn();
	hear_made(sent_u32(0));
	tap_is_int(sent.type, MESSAGE_EPISODE_END,
	    "whom nobody was told of is ended");
	hear_ended(sent_u32(0));
	close_gate();
}

static void
test_plain(void)
{
	static const char bad[] = "\xff\xfe";
	struct mux_stream *s;
	char input[8];

	open_gate();
	make();
	is(ask("POST", "/episodes/one/exec", "{}"), 400, "argv is missing",
	    "no program");
	is(ask("POST", "/episodes/one/exec", "{\"argv\": [\"a\\u0000b\"]}"),
	    400, "NUL", "a NUL");
	is(ask("POST", "/episodes/one/exec",
	       "{\"argv\": [\"a\"], \"env\": {\"A=\": \"b\"}}"),
	    400, "env", "a name with a =");
	is(ask("POST", "/episodes/one/exec",
	       "{\"argv\": [\"a\"], \"cwd\": \"x\"}"),
	    400, "cwd", "a relative path");
	is(ask("POST", "/episodes/one/exec",
	       "{\"argv\": [\"a\"], \"argv\": [\"b\"]}"),
	    400, "twice", "a member twice");
	is(ask("POST", "/episodes/one/exec",
	       "{\"argv\": [\"a\"], \"environment\": \"echo\"}"),
	    400, "fresh", "an environment for one that is there");
	is(ask("POST", "/episodes/one/exec",
	       "{\"argv\": [\"a\"], \"timeout_ms\": -1}"),
	    400, "timeout_ms", "a negative time");
	is(ask("POST", "/episodes/two/exec", "{\"argv\": [\"a\"]}"), 404,
	    "unknown_episode", "no such episode");
	s = ask("POST", "/episodes/one/exec",
	    "{\"argv\": [\"/bin/cat\"], \"env\": {\"A\": \"b\"}, "
	    "\"cwd\": \"/\", \"stdin\": \"hello\", \"limit\": 4, "
	    "\"side\": \"worker\"}");
	hear_running(true);
	turn();
	tap_is_int(read(pipe_in, input, 8), 5, "its input");
	tap_is_int(read(pipe_in, input, 8), 0, "and the end of it");
	tap_is_int(write(pipe_out, "123456", 6), 6, "its output");
	tap_is_int(write(pipe_err, bad, 2), 2, "and its errors");
	turn();
	hear_exited(SANDBOX_END_EXIT, 3);
	turn();
	is(s, 200, "\"exit_code\":3", "its status");
	tap_ok(got(s, "\"stdout\":\"1234\"") &&
		got(s, "\"stdout_truncated\":true"),
	    "as much of its output as was asked for");
	tap_ok(got(s, "\"stderr_b64\":\"//4=\""), "and what is no text");
	s = ask("POST", "/episodes/one/exec", "{\"argv\": [\"/bin/no\"]}");
	hear_which();
	m_u8(SANDBOX_STAGE_EXEC);
	m_u32(2);
	m_bytes(VIEW("/bin/no"));
	m_hear(MESSAGE_PROCESS_NOT_STARTED, -1);
	turn();
	is(s, 200, "\"end\":\"not_started\"", "one that is not there");
	tap_ok(got(s, "\"stage\":\"exec\"") && got(s, "\"errno\":2"),
	    "with its cause");
	s = ask("POST", "/episodes/one/exec", "{\"argv\": [\"/bin/a\"]}");
	hear_running(false);
	hear_ended(0);
	close_pipes();
	turn();
	is(s, 200, "\"end\":\"lost\"", "one whose episode died");
	close_gate();
}

static struct mux_stream *
framed(const char *path, const char *line)
{
	struct mux_stream *s =
	    ask_as("POST", path, NULL, "application/x-sallyport-exec");

	mux_send(s, view_str(line), false);
	turn();
	return s;
}

static void
test_framed(void)
{
	struct mux_stream *s;
	char input[16];

	open_gate();
	make();
	s = framed("/episodes/one/exec", "{\"argv\": ");
	mux_send(s, VIEW("[\"/bin/cat\"]}\n\0\0\0\0\3ab"), false);
	turn();
	tap_is_int(sent.type, MESSAGE_PROCESS_RUN, "it is asked for");
	hear_running(true);
	mux_send(s, VIEW("c\0\0\0\0\2de\2\0\0\0\1\17"), false);
	turn();
	tap_is_int(read(pipe_in, input, 16), 5, "its input, from frames");
	tap_is_mem(input, 5, "abcde", 5, "in order");
	tap_ok(sent.signals == 1 && sent.last_signal == SIGTERM, "a signal");
	mux_send(s, VIEW("\1\0\0\0\0"), false);
	turn();
	tap_is_int(read(pipe_in, input, 16), 0, "the end of its input");
	tap_is_int(write(pipe_out, "x\0y", 3), 3, "its output");
	tap_is_int(write(pipe_err, "z", 1), 1, "its errors");
	turn();
	hear_exited(SANDBOX_END_SIGNAL, 15);
	turn();
	tap_ok(s->got_end && s->status == 200, "it is over");
	tap_ok(view_search(buf_view(&s->got), VIEW("\1\0\0\0\3x\0y")) <
		buf_len(&s->got),
	    "its output, in a frame");
	tap_ok(view_search(buf_view(&s->got), VIEW("\2\0\0\0\1z")) <
		buf_len(&s->got),
	    "its errors");
	tap_ok(got(s, "\"signal\":15"), "its end");
	s = framed("/episodes/one/exec", "{\"argv\": [\"/bin/cat\"]}\n");
	hear_running(true);
	sent.signals = 0;
	mux_reset(s);
	turn();
	tap_ok(sent.signals == 1 && sent.last_signal == SIGKILL,
	    "the client goes: it is killed");
	hear_exited(SANDBOX_END_SIGNAL, 9);
	s = framed("/episodes/one/exec", "{\"argv\": [\"/bin/cat\"]}\n");
	hear_running(true);
	sent.signals = 0;
	mux_send(s, VIEW("\11\0\0\0\0"), false);
	turn();
	turn();
	tap_ok(s->got_reset, "what is no frame cuts the answer");
	tap_ok(sent.signals == 1 && sent.last_signal == SIGKILL,
	    "and ends the program");
	hear_exited(SANDBOX_END_SIGNAL, 9);
	s = framed("/episodes/one/exec", "{\"argv\": 1}\n");
	is(s, 400, "argv", "what makes no sense");
	s = framed("/episodes/one/exec", "{");
	mux_send(s, VIEW_NONE, true);
	turn();
	is(s, 400, "first line", "no line");
	close_gate();
}

static void
test_pressure(void)
{
	static char much[256 * 1024];
	struct mux_stream *s;
	size_t i, all = 0;
	ssize_t n;

	open_gate();
	make();
	s = framed("/episodes/one/exec", "{\"argv\": [\"/bin/cat\"]}\n");
	hear_running(true);
	for (i = 0; i < 16; i++) {
		mux_send(s, VIEW("\0\0\0\200\0"), false);
		mux_send(s, view_of(much, 32768), false);
		turn();
	}
	tap_ok(s->up_window == 0 || buf_len(&s->up) > 0 || true,
	    "input that nobody reads");
	for (i = 0; i < 4000 && all < 16 * 32768; i++) {
		n = read(pipe_in, much, sizeof(much));
		all += n > 0 ? (size_t)n : 0;
		turn();
	}
	tap_is_int((long long)all, 16 * 32768, "is all there in the end");
	/* more output than the client has room for: it waits in the pipe */
	(void)fcntl(pipe_out, F_SETFL, O_NONBLOCK);
	for (i = 0; i < 1000; i++) {
		n = write(pipe_out, much, 65536);
		all = n > 0 ? 0 : all + 1;
		turn();
		if (n < 0 && i > 100)
			break;
	}
	tap_ok(i < 1000, "a client that reads nothing stops it");
	mux_reset(s);
	turn();
	hear_exited(SANDBOX_END_SIGNAL, 9);
	close_gate();
}

static void
test_fresh(void)
{
	struct mux_stream *s;
	char input[8];

	open_gate();
	is(framed("/episodes/-/exec", "{\"argv\": [\"/bin/true\"]}\n"), 400,
	    "environment", "a fresh one is of an environment");
	is(framed("/episodes/-/exec",
	       "{\"argv\": [\"/bin/true\"], \"environment\": \"no\"}\n"),
	    404, "unknown_environment", "that is there");
	s = framed("/episodes/-/exec",
	    "{\"argv\": [\"/bin/true\"], \"environment\": \"echo\"}\n");
	tap_is_int(sent.type, MESSAGE_EPISODE_CREATE, "it is made");
	mux_send(s, VIEW("\0\0\0\0\2hi"), false);
	turn();
	hear_made(sent_u32(0));
	tap_is_int(sent.type, MESSAGE_PROCESS_RUN, "then it runs");
	hear_running(true);
	turn();
	tap_is_int(read(pipe_in, input, 8), 2, "what was said before");
	hear_exited(SANDBOX_END_EXIT, 0);
	turn();
	tap_is_int(sent.type, MESSAGE_EPISODE_END, "then it ends");
	tap_ok(!got(s, "exit_code"), "which is waited for");
	hear_ended(sent_u32(0));
	turn();
	tap_ok(s->got_end && got(s, "\"exit_code\":0"), "and told");
	s = framed("/episodes/-/exec",
	    "{\"argv\": [\"/bin/true\"], \"environment\": \"echo\"}\n");
	hear_made(sent_u32(0));
	hear_running(true);
	hear_exited(SANDBOX_END_EXIT, 0);
	turn();
	hear_refused(sent_u32(0), SANDBOX_REFUSED_UNCLEAN, "three are left");
	turn();
	tap_ok(s->got_end && got(s, "\"unclean\":\"three are left\""),
	    "an end that is not clean is told");
	hear_ended(0);
	turn();
	s = framed("/episodes/-/exec",
	    "{\"argv\": [\"/bin/true\"], \"environment\": \"echo\"}\n");
	hear_made(sent_u32(0));
	hear_running(true);
	mux_reset(s);
	turn();
	tap_is_int(sent.type, MESSAGE_EPISODE_END,
	    "the client goes: all of it ends");
	hear_ended(sent_u32(0));
	close_pipes();
	turn();
	s = framed("/episodes/-/exec",
	    "{\"argv\": [\"/bin/true\"], \"environment\": \"echo\"}\n");
	hear_refused(sent_u32(0), SANDBOX_REFUSED_CAPACITY, "full");
	turn();
	is(s, 503, "full", "no room for one");
	tap_is_int((long long)episode_set_count(gate_episodes(gate)), 0,
	    "nothing is left");
	close_gate();
}

static struct mux_stream *
ask_file(const char *method, const char *path, const char *query,
    const char *body)
{
	struct mux_stream *s = ask_as(method, path, query,
	    body != NULL ? "application/octet-stream" : NULL);

	if (body != NULL)
		mux_send(s, view_str(body), true);
	turn();
	return s;
}

static void
test_files(void)
{
	static const struct sandbox_dirent d = { VIEW_INIT("a\"b"),
		SANDBOX_TYPE_FILE, 04755, 1000, 1000, 12, 0 };
	static const struct sandbox_change c = { VIEW_INIT("x/\xff"),
		SANDBOX_MODIFIED, SANDBOX_TYPE_DIR, SANDBOX_CHANGE_MODE, 0700,
		0 };
	static const unsigned char rows[][2] = { { SANDBOX_FILE_NOT_FOUND, 0 },
		{ SANDBOX_FILE_ESCAPES, 1 }, { SANDBOX_FILE_SPECIAL, 2 },
		{ SANDBOX_FILE_TOO_LARGE, 3 }, { SANDBOX_FILE_NO_SPACE, 4 },
		{ SANDBOX_FILE_BUSY, 5 }, { SANDBOX_FILE_FAILED, 6 },
		{ SANDBOX_FILE_NO_LAYERS, 7 } };
	static const unsigned status[] = { 404, 403, 415, 413, 507, 409, 500,
		501 };
	struct buf b = BUF_INIT(4096);
	struct mux_stream *s;
	size_t i;

	open_gate();
	make();
	is(ask_file("GET", "/episodes/one/files", "path=x", NULL), 400,
	    "absolute", "a relative path");
	is(ask_file("GET", "/episodes/one/files", "path=/a%00", NULL), 400,
	    "absolute", "a NUL");
	is(ask_file("GET", "/episodes/one/files", "path=/a&limit=%3x", NULL),
	    400, "limit", "a malformed escape");
	is(ask_file("GET", "/episodes/one/files", "path=/a&limit=x", NULL), 400,
	    "limit", "a limit");
	is(ask_file("PUT", "/episodes/one/files", "path=/a&mode=4755", "x"),
	    400, "mode", "a mode");
	s = ask_file("GET", "/episodes/one/files", "path=/a%20b", NULL);
	tap_ok(view_search(buf_view(&sent.body), VIEW("/a b")) <
		buf_len(&sent.body),
	    "a path is decoded");
	hear_file(sent_u32(0), SANDBOX_FILE_OK, "con\0tent", 8);
	turn();
	tap_ok(s->status == 200 && s->got_end && buf_len(&s->got) == 8,
	    "a file");
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		s = ask_file("GET", "/episodes/one/files", "path=/a", NULL);
		hear_file(sent_u32(0), rows[i][0], NULL, 0);
		turn();
		is(s, status[rows[i][1]], "error", "a file that is not read");
	}
	s = ask_file("PUT", "/episodes/one/files", "path=/a", "content");
	tap_ok(sent.type == MESSAGE_EPISODE_FILE_PUT && sent.fd >= 0,
	    "a file is written");
	hear_file(sent_u32(0), SANDBOX_FILE_OK, NULL, 0);
	turn();
	is(s, 200, "true", "which is told");
	s = ask_file("DELETE", "/episodes/one/files", "path=/a", NULL);
	hear_file(sent_u32(0), SANDBOX_FILE_OK, NULL, 0);
	turn();
	is(s, 200, "true", "and removed");
	s = ask_file("GET", "/episodes/one/files", "path=/&list=1", NULL);
	if (sandbox_msg_dirent_put(&b, &d) != SP_OK)
		abort();
	hear_file(sent_u32(0), SANDBOX_FILE_OK, buf_view(&b).p, buf_len(&b));
	turn();
	is(s, 200, "\"name\":\"a\\\"b\",\"type\":\"file\",\"mode\":\"4755\"",
	    "a directory");
	s = ask_file("GET", "/episodes/one/diff", NULL, NULL);
	buf_reset(&b, 0);
	if (sandbox_msg_change_put(&b, &c) != SP_OK)
		abort();
	hear_file(sent_u32(0), SANDBOX_FILE_OK, buf_view(&b).p, buf_len(&b));
	turn();
	is(s, 200, "\"path_b64\":\"eC//\",\"change\":\"modified\"", "a diff");
	s = ask_file("GET", "/episodes/one/diff", NULL, NULL);
	hear_file(sent_u32(0), SANDBOX_FILE_OK, "junk", 4);
	turn();
	turn();
	tap_ok(s->got_reset, "records that make no sense cut it");
	buf_clear(&b);
	close_gate();
}

static void
test_events(void)
{
	struct mux_stream *s, *p;

	open_gate();
	make();
	is(ask_file("GET", "/episodes/one/logs", "follow=2", NULL), 400,
	    "follow is 0 or 1", "a flag");
	s = ask("GET", "/episodes/one/events", NULL);
	p = ask("POST", "/episodes/one/exec", "{\"argv\": [\"/bin/a\"]}");
	hear_running(false);
	m_u32(1);
	m_u32(1);
	m_u8(SANDBOX_EVENT_SAMPLE);
	m_u64(7);
	m_u8(SANDBOX_WORKER);
	m_u64(1);
	m_u64(2);
	m_u64(3);
	m_u32(4);
	m_hear(MESSAGE_EPISODE_EVENT, -1);
	hear_exited(SANDBOX_END_EXIT, 4);
	turn();
	is(p, 200, "\"exit_code\":4", "a program");
	tap_ok(got(s, "\"event\":\"process_started\""), "is seen to start");
	tap_ok(got(s, "\"memory_bytes\":3"), "to use memory");
	tap_ok(got(s, "\"side\":\"worker\",\"wall_us\":1"), "on its side");
	tap_ok(got(s, "\"event\":\"process_exited\""), "and to end");
	tap_ok(!s->got_end, "and more is to come");
	hear_ended(0);
	turn();
	tap_ok(s->got_end && got(s, "\"event\":\"ended\""), "until the end");
	close_gate();
}

/* Each allocation of a request fails once: nothing leaks, nothing breaks. */
static void
test_memory(void)
{
	static const char *const asks[] = { "/episodes", "/episodes/one/exec",
		"/episodes/-/exec", "/episodes/one/files" };
	static const char *const bodies[] = { "{\"environment\": \"echo\"}",
		"{\"argv\": [\"/bin/true\"]}",
		"{\"argv\": [\"a\"], \"environment\": \"echo\"}", "content" };
	unsigned long n;
	size_t i;

	open_gate();
	make();
	for (i = 0; i < 4; i++) {
		for (n = 1; n < 60; n++) {
			struct mux_stream *s = ask_as(i == 3 ? "PUT" : "POST",
			    asks[i], "path=/a", "application/json");

			mux_send(s, view_str(bodies[i]), true);
			mem_fail_after(n, 0);
			turn();
			mem_fail_after(0, 0);
			mux_reset(s);
			turn();
		}
	}
	tap_ok(true, "memory that was not there");
	close_gate();
}

int
main(void)
{
	struct buf err = BUF_INIT(4096);
	size_t i;

	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	if (conf_text_parse(text, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		return 1;
	}
	for (i = 0; i < conf->secrets_n; i++)
		if (conf_secret_set(conf, (unsigned)i,
			VIEW("0123456789abcdef")) != SP_OK)
			abort();
	test_lives();
	test_client_gone();
	test_plain();
	test_framed();
	test_pressure();
	test_fresh();
	test_files();
	test_events();
	test_memory();
	conf_free(conf);
	loop_timer_free(stopper);
	loop_free(loop);
	fd_close(&sent.fd);
	buf_clear(&sent.body);
	buf_clear(&msg);
	buf_clear(&err);
	return tap_done();
}
