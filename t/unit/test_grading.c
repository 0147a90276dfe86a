/* core/gate/grading.c: against a helper that is played here. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "event/loop.h"
#include "gate/grading.h"
#include "gate/process.h"
#include "helper_peer.h"

/* What was answered last. */
static struct {
	unsigned n;
	enum grading_result result;
	struct buf text, err;
	int returncode;
	bool out_cut, err_cut;
	char what[256];
	struct grading *forget; /* one that is let go of while it is told */
} got = { .text = BUF_INIT(4 << 20), .err = BUF_INIT(4 << 20) };

static void
keep(enum grading_result r, struct view text, struct view what)
{
	struct grading *g = got.forget;

	got.n++;
	got.result = r;
	buf_reset(&got.text, 4 << 20);
	TAP_NEVER(buf_add_view(&got.text, text) != SP_OK);
	(void)snprintf(got.what, sizeof(got.what), "%.*s", VIEW_ARG(what));
	got.forget = NULL;
	grading_forget(g);
}

static void
on_text(void *arg, enum grading_result r, struct view text, struct view what)
{
	TAP_NEVER(arg != &got);
	keep(r, text, what);
}

static void
on_verdict(void *arg, enum grading_result r, const struct grading_verdict *v,
    struct view what)
{
	TAP_NEVER(arg != &got || (r == GRADING_OK) != (v != NULL));
	keep(r, v != NULL ? v->out : VIEW_NONE, what);
	if (v == NULL)
		return;
	got.returncode = v->returncode;
	got.out_cut = v->out_cut;
	got.err_cut = v->err_cut;
	buf_reset(&got.err, 4 << 20);
	TAP_NEVER(buf_add_view(&got.err, v->err) != SP_OK);
}

static const struct grading_done done = { on_text, on_text, on_verdict };

static void
forget(void)
{
	got.n = 0;
	got.what[0] = 0;
}

/* ---- the episode ------------------------------------------------------------ */

static struct episode *ep;

static void
on_done(void *arg, struct episode *e, unsigned refusal, struct view what)
{
	(void)arg;
	(void)e;
	(void)refusal;
	(void)what;
}

static void
begin(void)
{
	forget();
	if (episode_create(set, VIEW("echo"), VIEW("one"), on_done, NULL,
		&ep) != SP_OK ||
	    hear_made(1, 1, sent_u32(0)) != SP_OK)
		tap_ok(false, "an episode");
}

/* It goes by itself; what waits is told in this turn of the loop. */
static void
end(void)
{
	TAP_NEVER(hear_ended(1, 1, 0, "gone") != SP_OK);
	run_for(0);
}

/* FILE_DATA, unless text is NULL, and FILE_DONE. */
static void
hear_file(uint32_t request, enum sandbox_file_result result, struct view text)
{
	int fd = -1;

	if (text.p != NULL) {
		TAP_NEVER(fd_sealed("t", text.p, text.n, &fd) != SP_OK);
		m_begin();
		m_u32(1);
		m_u32(1);
		m_u32(request);
		TAP_NEVER(m_hear(MESSAGE_EPISODE_FILE_DATA, fd) != SP_OK);
	}
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(request);
	m_u8(result);
	m_u64(text.n);
	m_bytes(result == SANDBOX_FILE_OK ? "" : "the cause");
	TAP_NEVER(m_hear(MESSAGE_EPISODE_FILE_DONE, -1) != SP_OK);
}

static int
ask_read(const char *path, struct grading **g)
{
	return grading_read(ep, view_str(path), &done, &got, g);
}

/* ---- reads ------------------------------------------------------------------ */

static void
read_is(enum sandbox_file_result result, struct view text,
    enum grading_result want, const char *what)
{
	struct grading *g;

	forget();
	tap_is_int(ask_read("/workspace/a", &g), SP_OK, what);
	TAP_NEVER(sent.type != MESSAGE_EPISODE_FILE);
	hear_file(sent_u32(0), result, text);
	tap_ok(got.n == 1 && got.result == want, "%s: %d %s", what, got.result,
	    got.what);
}

static void
test_read(void)
{
	static const char *const outside[] = { "", "/", "workspace/a",
		"/workspace", "/workspace/", "/workspacex/a", "/etc/passwd",
		"/workspace/../etc/passwd", "/workspace/a/..", "/workspace//a",
		"/workspace/./a", "/workspace/a/", "/openenvd/assets",
		"/openenvd/assets/", "/openenvd/assets/../x",
		"/openenvd/assets/./x", "/openenvd/assets/a//b",
		"/openenvd/assetsx/a", "/openenvd/assets/a/../b" };
	static char big[GRADING_READ_MAX + 1];
	struct grading *g;
	unsigned before;
	size_t i;

	begin();
	read_is(SANDBOX_FILE_OK, VIEW("text\n"), GRADING_OK, "a file");
	tap_is_mem(buf_view(&got.text).p, buf_len(&got.text), "text\n", 5,
	    "its text");
	read_is(SANDBOX_FILE_OK, VIEW_NONE, GRADING_OK, "an empty one");
	read_is(SANDBOX_FILE_OK, VIEW("a\xff"), GRADING_NOT_TEXT, "no text");
	read_is(SANDBOX_FILE_OK, VIEW("\xed\xa0\x80"), GRADING_NOT_TEXT,
	    "a surrogate");
	read_is(SANDBOX_FILE_OK, view_of(big, GRADING_READ_MAX), GRADING_OK,
	    "as large as may be");
	read_is(SANDBOX_FILE_OK, view_of(big, sizeof(big)), GRADING_TOO_LARGE,
	    "larger, though the helper gives it");
	read_is(SANDBOX_FILE_NOT_FOUND, VIEW_NONE, GRADING_NOT_FOUND, "none");
	read_is(SANDBOX_FILE_ESCAPES, VIEW_NONE, GRADING_NOT_FOUND, "a link");
	read_is(SANDBOX_FILE_SPECIAL, VIEW_NONE, GRADING_SPECIAL, "a FIFO");
	read_is(SANDBOX_FILE_TOO_LARGE, VIEW_NONE, GRADING_TOO_LARGE, "large");
	read_is(SANDBOX_FILE_BUSY, VIEW_NONE, GRADING_FAILED, "busy");
	read_is(SANDBOX_FILE_NO_SPACE, VIEW_NONE, GRADING_FAILED, "no space");
	read_is(SANDBOX_FILE_FAILED, VIEW_NONE, GRADING_FAILED, "failed");
	tap_is_str(got.what, "the cause", "with its cause");
	for (i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		forget();
		before = sent.n;
		tap_is_int(ask_read(outside[i], &g), SP_OK, outside[i]);
		tap_ok(got.n == 0, "not on the spot");
		run_for(0);
		tap_ok(got.n == 1 && got.result == GRADING_NOT_FOUND &&
			sent.n == before,
		    "is nowhere, and nobody is asked");
	}
	forget();
	tap_is_int(ask_read("/openenvd/assets/sub/x", &g), SP_OK, "an asset");
	TAP_NEVER(hear_refused(sent_u32(0), SANDBOX_REFUSED_CAPACITY, "busy") !=
	    SP_OK);
	tap_ok(got.n == 1 && got.result == GRADING_FAILED, "refused");
	/* let go of: its answer finds nobody */
	forget();
	TAP_NEVER(ask_read("/workspace/a", &g) != SP_OK);
	grading_forget(g);
	hear_file(sent_u32(0), SANDBOX_FILE_OK, VIEW("x"));
	TAP_NEVER(ask_read("/nowhere", &g) != SP_OK);
	grading_forget(g);
	grading_forget(NULL);
	run_for(0);
	tap_is_int(got.n, 0, "who lets go is not told");
	end();
}

/* ---- diffs ------------------------------------------------------------------ */

static void
add_change(struct buf *b, const char *path)
{
	const struct sandbox_change c = { .path = view_str(path),
		.kind = SANDBOX_CREATED,
		.type = SANDBOX_TYPE_FIFO,
		.mode = 0644 };

	TAP_NEVER(sandbox_msg_change_put(b, &c) != SP_OK);
}

static void
sorted_is(const char *want)
{
	struct sandbox_change c;
	char text[256] = "";
	struct wire w;
	size_t n = 0;

	wire_init(&w, buf_view(&got.text));
	while (sandbox_msg_change_get(&w, &c) == SP_OK)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%.*s ",
		    VIEW_ARG(c.path));
	tap_is_str(text, want, "by path, as bytes");
}

static void
test_diff(void)
{
	struct buf b = BUF_INIT(4096);
	struct grading *g;

	begin();
	add_change(&b, "b");
	add_change(&b, "a/b");
	add_change(&b, "\xff");
	add_change(&b, "a");
	add_change(&b, "a!");
	tap_is_int(grading_diff(ep, &done, &got, &g), SP_OK, "a diff");
	tap_ok((sent_u32(3) & 255) == SANDBOX_FILE_DIFF_FROZEN,
	    "of an episode that stands still");
	hear_file(sent_u32(0), SANDBOX_FILE_OK, buf_view(&b));
	tap_ok(got.n == 1 && got.result == GRADING_OK, "is there");
	sorted_is("a a! a/b b \xff ");
	forget();
	TAP_NEVER(grading_diff(ep, &done, &got, &g) != SP_OK);
	hear_file(sent_u32(0), SANDBOX_FILE_OK, VIEW_NONE);
	tap_ok(got.n == 1 && got.result == GRADING_OK &&
		buf_len(&got.text) == 0,
	    "an empty one");
	forget();
	TAP_NEVER(grading_diff(ep, &done, &got, &g) != SP_OK);
	hear_file(sent_u32(0), SANDBOX_FILE_OK,
	    view_sub(buf_view(&b), 0, buf_len(&b) - 1));
	tap_ok(got.n == 1 && got.result == GRADING_FAILED, "a torn one");
	forget();
	TAP_NEVER(grading_diff(ep, &done, &got, &g) != SP_OK);
	hear_file(sent_u32(0), SANDBOX_FILE_TOO_LARGE, VIEW_NONE);
	tap_ok(got.n == 1 && got.result == GRADING_TOO_LARGE, "too much");
	forget();
	TAP_NEVER(grading_diff(ep, &done, &got, &g) != SP_OK);
	TAP_NEVER(hear_refused(sent_u32(0), SANDBOX_REFUSED_FAILED,
		      "it does not freeze") != SP_OK);
	tap_ok(got.n == 1 && got.result == GRADING_FAILED, "not frozen");
	tap_is_str(got.what, "it does not freeze", "with its cause");
	buf_clear(&b);
	end();
}

/* ---- verdicts --------------------------------------------------------------- */

static uint32_t
start(const char *process, struct grading **g)
{
	forget();
	tap_is_int(grading_run(ep, view_str(process), &done, &got, g), SP_OK,
	    "a run");
	TAP_NEVER(sent.type != MESSAGE_EPISODE_GRADE);
	return sent_u32(0);
}

/* Its standard output (1) or error (2) brings that, and ends. */
static void
output(uint32_t handle, unsigned which, const char *text, size_t n)
{
	int ends[2];
	size_t at = 0;
	ssize_t some;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return;
	TAP_NEVER(hear_stdio(handle, which, ends[0]) != SP_OK);
	while (at < n) {
		some = write(ends[1], text + at, n - at);
		if (some > 0)
			at += (size_t)some;
		else
			run_for(1);
	}
	close(ends[1]);
}

static void
verdict(uint32_t handle, unsigned how, unsigned status)
{
	TAP_NEVER(hear_started(handle) != SP_OK);
	TAP_NEVER(hear_exited(handle, how, status) != SP_OK);
	run_for(0);
	while (got.n == 0)
		run_for(1);
}

static void
test_verdict(void)
{
	static char big[GRADING_OUTPUT_MAX + 10];
	struct grading *g;
	uint32_t h;

	begin();
	h = start("", &g);
	output(h, 1, "out", 3);
	output(h, 2, "err", 3);
	verdict(h, SANDBOX_END_EXIT, 3);
	tap_ok(got.n == 1 && got.result == GRADING_OK && got.returncode == 3 &&
		!got.out_cut && !got.err_cut,
	    "its status");
	tap_is_mem(buf_view(&got.text).p, buf_len(&got.text), "out", 3, "out");
	tap_is_mem(buf_view(&got.err).p, buf_len(&got.err), "err", 3, "err");
	h = start("rubric", &g);
	memset(big, 'x', sizeof(big));
	output(h, 1, big, sizeof(big));
	output(h, 2, big, GRADING_OUTPUT_MAX);
	verdict(h, SANDBOX_END_SIGNAL, SIGTERM);
	tap_ok(got.result == GRADING_OK && got.returncode == -SIGTERM &&
		got.out_cut && !got.err_cut &&
		buf_len(&got.text) == GRADING_OUTPUT_MAX &&
		buf_len(&got.err) == GRADING_OUTPUT_MAX,
	    "a signal; what is over the bound is cut");
	h = start("", &g);
	verdict(h, SANDBOX_END_OOM, 9);
	tap_ok(got.result == GRADING_OK && got.returncode == -SIGKILL,
	    "out of memory");
	h = start("", &g);
	verdict(h, SANDBOX_END_TIMEOUT, 9);
	tap_is_int(got.result, GRADING_TIMEOUT, "a timeout");
	h = start("", &g);
	verdict(h, SANDBOX_END_LOST, 0);
	tap_is_int(got.result, GRADING_FAILED, "lost");
	tap_is_int(ep->processes_n, 0, "nothing runs");
	end();
}

static void
test_refused(void)
{
	static const struct {
		unsigned refusal;
		enum grading_result want;
	} rows[] = {
		{ SANDBOX_REFUSED_UNKNOWN, GRADING_NO_PROCESS },
		{ SANDBOX_REFUSED_CAPACITY, GRADING_BUSY },
		{ SANDBOX_REFUSED_FAILED, GRADING_FAILED },
		{ SANDBOX_REFUSED_UNCLEAN, GRADING_FAILED },
	};
	struct grading *g, *all[16];
	char name[SANDBOX_MSG_NAME_MAX + 2];
	unsigned before;
	uint32_t h;
	size_t i;
	int rc;

	begin();
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		h = start("p", &g);
		TAP_NEVER(hear_refused(h, rows[i].refusal, "why") != SP_OK);
		tap_ok(got.n == 1 && got.result == rows[i].want, "refused %u",
		    rows[i].refusal);
	}
	h = start("p", &g);
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(h);
	m_u8(SANDBOX_STAGE_EXEC);
	m_u32(13);
	m_bytes("grade.sh");
	TAP_NEVER(m_hear(MESSAGE_PROCESS_NOT_STARTED, -1) != SP_OK);
	tap_ok(got.n == 1 && got.result == GRADING_FAILED &&
		strstr(got.what, "grade.sh") != NULL,
	    "not started: %s", got.what);
	memset(name, 'n', sizeof(name));
	before = sent.n;
	forget();
	tap_is_int(grading_run(ep, view_of(name, sizeof(name) - 1), &done, &got,
		       &g),
	    SP_OK, "too long a name");
	run_for(0);
	tap_ok(got.n == 1 && got.result == GRADING_NO_PROCESS &&
		sent.n == before,
	    "is no process's");
	for (i = 0, rc = SP_OK; i < 16 && rc == SP_OK; i++)
		rc = grading_run(ep, VIEW_NONE, &done, &got, &all[i]);
	tap_ok(rc == SP_E_LIMIT && i == 9, "so many wait at once: %zu", i);
	sent.rc = SP_E_GONE;
	tap_is_int(ask_read("/workspace/a", &g), SP_E_GONE, "no helper");
	tap_is_int(grading_diff(ep, &done, &got, &g), SP_E_GONE, "no helper");
	sent.rc = SP_OK;
	/* all of them are told, and one of them takes another one along */
	forget();
	got.forget = all[3];
	end();
	tap_ok(got.n == 7 && got.result == GRADING_RESET,
	    "its end is told to all but who lets go: %u", got.n);
}

/* ---- resets ----------------------------------------------------------------- */

static void
test_reset(void)
{
	struct grading *g[3], *last;
	uint32_t h, file, reset;

	begin();
	h = start("", &g[0]);
	TAP_NEVER(hear_started(h) != SP_OK);
	TAP_NEVER(grading_diff(ep, &done, &got, &g[1]) != SP_OK);
	file = sent_u32(0);
	TAP_NEVER(ask_read("/workspace/a", &g[2]) != SP_OK);
	tap_is_int(episode_reset(ep, on_done, NULL), SP_OK, "a reset");
	reset = sent_u32(0);
	tap_is_int(sent.type, MESSAGE_EPISODE_RESET, "is asked for");
	tap_is_int(got.n, 0, "nobody is told on the spot");
	tap_is_int(grading_run(ep, VIEW_NONE, &done, &got, &last), SP_E_STATE,
	    "nothing is asked of it now");
	tap_is_int(ask_read("/workspace/a", &last), SP_E_STATE, "nor read");
	tap_is_int(grading_diff(ep, &done, &got, &last), SP_E_STATE,
	    "nor compared");
	hear_file(file, SANDBOX_FILE_OK, VIEW_NONE);
	run_for(0);
	tap_ok(got.n == 3 && got.result == GRADING_RESET,
	    "all three are told, and the late answer to nobody");
	TAP_NEVER(hear_ended(1, 1, 0, "") != SP_OK);
	TAP_NEVER(hear_made(1, 1, reset) != SP_OK);
	end();
	begin();
	h = start("", &g[0]);
	grading_forget(g[0]);
	tap_ok(sent.type == MESSAGE_PROCESS_SIGNAL && sent_u32(2) == h,
	    "a run that is let go of is killed");
	TAP_NEVER(hear_started(h) != SP_OK);
	TAP_NEVER(hear_exited(h, SANDBOX_END_SIGNAL, SIGKILL) != SP_OK);
	run_for(0);
	tap_ok(got.n == 0 && ep->processes_n == 0, "and is not told");
	end();
}

static int
ask_any(unsigned which, struct grading **g)
{
	return which == 0 ? ask_read("/workspace/a", g)
	    : which == 1  ? ask_read("/nowhere", g)
	    : which == 2  ? grading_diff(ep, &done, &got, g)
			  : grading_run(ep, VIEW_NONE, &done, &got, g);
}

static void
test_memory(void)
{
	struct buf b = BUF_INIT(4096);
	struct grading *g = NULL;
	unsigned which;
	unsigned long n;
	int rc;

	begin();
	for (which = 0; which < 4; which++) {
		for (n = 1, rc = SP_E_NOMEM; n < 50 && rc != SP_OK; n++) {
			mem_fail_after(n, 0);
			rc = ask_any(which, &g);
			mem_fail_after(0, 0);
			TAP_NEVER(rc != SP_OK && rc != SP_E_NOMEM);
		}
		tap_is_int(rc, SP_OK, "each allocation fails once");
		grading_forget(g);
	}
	add_change(&b, "a");
	for (n = 1; n < 50; n++) {
		forget();
		TAP_NEVER(grading_diff(ep, &done, &got, &g) != SP_OK);
		mem_fail_after(n, 0);
		hear_file(sent_u32(0), SANDBOX_FILE_OK, buf_view(&b));
		mem_fail_after(0, 0);
		if (got.n != 1 || got.result == GRADING_OK)
			break;
	}
	tap_ok(got.n == 1 && got.result == GRADING_OK && n > 1,
	    "so does each of an answer");
	buf_clear(&b);
	end();
}

int
main(void)
{
	struct episode_world w = { .send = send_helper };

	loop = loop_new();
	w.loop = loop;
	set = episode_set_new(&w);
	tap_ok(loop != NULL && set != NULL, "a set");
	test_read();
	test_diff();
	test_verdict();
	test_refused();
	test_reset();
	test_memory();
	episode_set_free(set);
	loop_free(loop);
	peer_clear();
	buf_clear(&got.text);
	buf_clear(&got.err);
	return tap_done();
}
