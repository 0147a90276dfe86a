/* core/gate/episode*.c, process.c: against a helper that is played here. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "event/loop.h"
#include "gate/episode.h"
#include "gate/process.h"
#include "helper_peer.h"

/* ---- what is told to whoever asked ------------------------------------------ */

static struct {
	unsigned n, refusal, result;
	char what[256];
	struct episode *ep;
	uint64_t size;
	bool fd;
	int sock;
} answer;

static void
keep_what(struct view what)
{
	size_t n = what.n < sizeof(answer.what) ? what.n : 255;

	memcpy(answer.what, what.p != NULL ? what.p : "", n);
	answer.what[n] = 0;
}

static void
on_done(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	(void)arg;
	answer.n++;
	answer.refusal = refusal;
	answer.ep = ep;
	keep_what(what);
}

static void
on_file(void *arg, struct episode *ep, enum sandbox_file_result result,
    uint64_t size, int fd, struct view what)
{
	(void)arg;
	answer.n++;
	answer.result = result;
	answer.ep = ep;
	answer.size = size;
	answer.fd = fd >= 0;
	keep_what(what);
}

static void
on_connected(void *arg, struct episode *ep, int fd, int number,
    struct view what)
{
	(void)arg;
	answer.n++;
	answer.ep = ep;
	answer.sock = fd;
	answer.refusal = (unsigned)number;
	keep_what(what);
}

static struct {
	unsigned started, not_started, exited, writable;
	struct buf out;
	struct process_exit exit;
	bool closed;
	char what[256];
} told = { .out = BUF_INIT(4 << 20) };

static void
on_started(void *arg, uint32_t pid)
{
	(void)arg;
	told.started += pid == 2;
}

static void
on_not_started(void *arg, unsigned stage, int number, struct view what)
{
	(void)arg;
	(void)number;
	told.not_started += stage != 0;
	(void)snprintf(told.what, sizeof(told.what), "%.*s", VIEW_ARG(what));
}

static void
on_output(void *arg, enum process_stream stream, struct view data)
{
	(void)arg;
	(void)stream;
	TAP_NEVER(buf_add_view(&told.out, data) != SP_OK);
}

static void
on_writable(void *arg, bool closed)
{
	(void)arg;
	told.writable++;
	told.closed = closed;
}

static void
on_exited(void *arg, const struct process_exit *e)
{
	(void)arg;
	told.exited++;
	told.exit = *e;
	loop_stop(loop);
}

static const struct process_events events = {
	on_started,
	on_not_started,
	on_output,
	on_writable,
	on_exited,
	NULL,
	false,
	NULL,
};

static void
forget(void)
{
	struct buf keep = told.out;

	memset(&answer, 0, sizeof(answer));
	memset(&told, 0, sizeof(told));
	told.out = keep;
	buf_reset(&told.out, 4 << 20);
}

static struct episode *
make_live(void)
{
	struct episode *ep = NULL;

	forget();
	if (episode_create(set, VIEW("echo"), VIEW("one"), on_done, NULL,
		&ep) != SP_OK ||
	    hear_made(1, 1, sent_u32(0)) != SP_OK)
		tap_ok(false, "an episode");
	forget();
	return ep;
}

static void
end_live(struct episode *ep)
{
	if (episode_end(ep, on_done, NULL) != SP_OK ||
	    hear_ended(ep->slot, ep->generation, sent_u32(0), "") != SP_OK)
		tap_ok(false, "its end");
	run_for(0);
	forget();
}

/* ---- tests ------------------------------------------------------------------ */

static void
test_life(void)
{
	struct episode *ep;

	forget();
	tap_is_int(episode_create(set, VIEW("echo"), VIEW(".a"), on_done, NULL,
		       &ep),
	    SP_E_SYNTAX, "no leading dot");
	tap_is_int(episode_create(set, VIEW("echo"), VIEW("a/b"), on_done, NULL,
		       &ep),
	    SP_E_SYNTAX, "no slash");
	tap_is_int(episode_create(set, VIEW("echo"), VIEW("one"), on_done, NULL,
		       &ep),
	    SP_OK, "asked for");
	tap_is_int(sent.type, MESSAGE_EPISODE_CREATE, "of the helper");
	tap_is_int(episode_create(set, VIEW("echo"), VIEW("one"), on_done, NULL,
		       &ep),
	    SP_E_EXISTS, "an id once");
	tap_is_int(ep->state, EPISODE_CREATING, "creating");
	tap_is_int(episode_reset(ep, on_done, NULL), SP_E_STATE,
	    "no reset before it is there");
	tap_is_int(hear_made(1, 1, sent_u32(0)), SP_OK, "made");
	tap_is_int(answer.n, 1, "told");
	tap_is_int(answer.refusal, 0, "not refused");
	tap_ok(episode_find(set, VIEW("one")) == ep, "found by id");
	tap_ok(episode_at(set, 1, 1) == ep, "found by place");
	tap_is_int(episode_reset(ep, on_done, NULL), SP_OK, "reset");
	tap_is_int(sent_u32(1), 1, "of that slot");
	tap_is_int(hear_ended(1, 1, sent_u32(0), ""), SP_OK,
	    "the old is empty");
	tap_is_int(answer.n, 1, "which is not the answer");
	tap_is_int(hear_made(2, 5, sent_u32(0)), SP_OK, "the new is there");
	tap_is_int(answer.n, 2, "which is");
	tap_ok(episode_at(set, 2, 5) == ep && ep->resets == 1, "moved");
	tap_is_int(episode_end(ep, on_done, NULL), SP_OK, "ended");
	tap_is_int(episode_end(ep, on_done, NULL), SP_OK, "by two");
	tap_is_int(hear_ended(2, 5, sent_u32(0), ""), SP_OK, "nothing lives");
	tap_is_int(answer.n, 4, "both are told");
	tap_ok(episode_find(set, VIEW("one")) == NULL, "it is not found");
	tap_is_int((long long)episode_set_count(set), 0, "none is left");
	run_for(0);
}

static void
test_refusals(void)
{
	struct episode *ep;

	forget();
	tap_is_int(episode_create(set, VIEW("echo"), VIEW_NONE, on_done, NULL,
		       &ep),
	    SP_OK, "asked for, without an id");
	tap_is_int((long long)strlen(ep->id), 20, "one is made up");
	tap_is_int(hear_refused(sent_u32(0), SANDBOX_REFUSED_CAPACITY, "full"),
	    SP_OK, "refused");
	tap_is_int(answer.refusal, SANDBOX_REFUSED_CAPACITY, "so");
	tap_is_str(answer.what, "full", "because");
	tap_is_int((long long)episode_set_count(set), 0, "there is none");
	ep = make_live();
	tap_is_int(episode_reset(ep, on_done, NULL), SP_OK, "a reset");
	tap_is_int(hear_refused(sent_u32(0), SANDBOX_REFUSED_UNCLEAN, "dirty"),
	    SP_OK, "is refused");
	tap_is_int(answer.refusal, SANDBOX_REFUSED_UNCLEAN, "so");
	tap_is_int(ep->state, EPISODE_UNCLEAN, "it is unclean");
	tap_is_int(episode_reset(ep, on_done, NULL), SP_OK, "and tried again");
	tap_is_int(hear_ended(1, 1, sent_u32(0), ""), SP_OK, "empty now");
	tap_is_int(hear_made(1, 2, sent_u32(0)), SP_OK, "and there");
	tap_is_int(ep->state, EPISODE_LIVE, "it lives");
	forget();
	tap_is_int(hear_ended(1, 2, 0, "its sandbox died"), SP_OK,
	    "it dies by itself");
	tap_is_int((long long)episode_set_count(set), 0, "and is gone");
	sent.rc = SP_E_GONE;
	tap_is_int(episode_create(set, VIEW("echo"), VIEW_NONE, on_done, NULL,
		       &ep),
	    SP_E_GONE, "no helper");
	sent.rc = SP_OK;
	tap_is_int((long long)episode_set_count(set), 0, "no episode");
	run_for(0);
}

static void
test_early_end(void)
{
	struct episode *ep;

	forget();
	tap_is_int(episode_create(set, VIEW("echo"), VIEW("e"), on_done, NULL,
		       &ep),
	    SP_OK, "one is on the way");
	tap_is_int(episode_end(ep, on_done, NULL), SP_OK, "and is ended");
	tap_is_int(sent.type, MESSAGE_EPISODE_CREATE, "later");
	tap_is_int(hear_made(1, 1, sent_u32(0)), SP_OK, "when it is there");
	tap_is_int(sent.type, MESSAGE_EPISODE_END, "at once");
	tap_is_int(hear_ended(1, 1, sent_u32(0), ""), SP_OK, "it ends");
	tap_is_int(answer.n, 2, "both are told");
	run_for(0);
	forget();
	tap_is_int(hear_made(7, 9, 0), SP_OK, "one of an earlier reactor");
	tap_is_int(sent.type, MESSAGE_EPISODE_END, "is ended");
	tap_is_int(hear_ended(7, 9, sent_u32(0), ""), SP_OK, "and gone");
	run_for(0);
}

static void
hear_named(uint32_t slot, uint32_t generation, const char *id)
{
	m_begin();
	m_u32(slot);
	m_u32(generation);
	m_u32(3);
	m_bytes(id);
	tap_is_int(m_hear(MESSAGE_EPISODE_NAMED, -1), SP_OK, "a name is told");
}

static void
test_rename(void)
{
	struct episode *ep = make_live(), *other = NULL;
	struct view name;
	struct wire w;

	forget();
	tap_is_int(episode_create(set, VIEW("echo"), VIEW("other"), on_done,
		       NULL, &other),
	    SP_OK, "another");
	tap_is_int(hear_made(2, 1, sent_u32(0)), SP_OK, "is there");
	tap_is_int(episode_rename(ep, VIEW("other")), SP_E_EXISTS,
	    "a name that is in use");
	tap_is_int(episode_rename(ep, VIEW("a b")), SP_E_SYNTAX, "no name");
	sent.n = 0;
	tap_is_int(episode_rename(ep, VIEW("new")), SP_OK, "a name");
	tap_is_int(sent.n, 0, "is nobody else's matter");
	tap_ok(episode_find(set, VIEW("new")) == ep, "it is found by it");
	tap_is_int(episode_rename(ep, VIEW("new")), SP_OK, "the same");
	tap_is_int(episode_keep(ep), SP_OK, "one that is kept");
	tap_ok(sent.type == MESSAGE_EPISODE_NAME && sent_u32(0) == ep->slot &&
		sent_u32(1) == ep->generation,
	    "is told");
	wire_init(&w, view_from(buf_view(&sent.body), 8));
	name = wire_bytes(&w);
	tap_is_mem(name.p, name.n, "new", 3, "by its name");
	tap_is_int(episode_rename(ep, VIEW("newer")), SP_OK, "another name");
	tap_is_int(sent.n, 2, "is told again");
	end_live(other);
	end_live(ep);
}

static bool claims;
static struct episode *claimed;

static bool
on_claim(void *arg, struct episode *ep)
{
	(void)arg;
	if (claims)
		claimed = ep;
	return claims;
}

static void
test_resume(void)
{
	episode_set_claim(set, on_claim, NULL);
	claims = true;
	hear_named(7, 9, "mine");
	tap_is_int(hear_made(7, 8, 0), SP_OK, "another place");
	tap_ok(sent.type == MESSAGE_EPISODE_END && claimed == NULL,
	    "is not claimed");
	tap_is_int(hear_ended(7, 8, sent_u32(0), ""), SP_OK, "and gone");
	sent.n = 0;
	tap_is_int(hear_made(7, 9, 0), SP_OK, "one of an earlier reactor");
	tap_ok(claimed != NULL && claimed->state == EPISODE_LIVE &&
		claimed->resumed && claimed->used &&
		strcmp(claimed->id, "mine") == 0,
	    "is claimed");
	tap_is_int(sent.n, 0, "and lives on");
	tap_is_int(claimed->resets, 3, "with the count of its resets");
	tap_is_int(episode_reset(claimed, on_done, NULL), SP_OK, "its reset");
	tap_is_int(hear_ended(7, 9, sent_u32(0), ""), SP_OK, "the old place");
	tap_is_int(hear_made(8, 1, sent_u32(0)), SP_OK, "the new one");
	tap_ok(!claimed->resumed && !claimed->used, "is as any");
	hear_named(9, 9, "mine");
	tap_is_int(hear_made(9, 9, 0), SP_OK, "one whose name is in use");
	tap_is_int(sent.type, MESSAGE_EPISODE_END, "is ended");
	tap_is_int(hear_ended(9, 9, sent_u32(0), ""), SP_OK, "and gone");
	hear_named(10, 1, ".bad");
	tap_is_int(hear_made(10, 1, 0), SP_OK, "one with a bad name");
	tap_is_int(sent.type, MESSAGE_EPISODE_END, "is ended");
	tap_is_int(hear_ended(10, 1, sent_u32(0), ""), SP_OK, "and gone");
	claims = false;
	hear_named(11, 1, "other");
	tap_is_int(hear_made(11, 1, 0), SP_OK, "one that nobody wants");
	tap_is_int(sent.type, MESSAGE_EPISODE_END, "is ended");
	tap_is_int(hear_ended(11, 1, sent_u32(0), ""), SP_OK, "and gone");
	m_begin();
	m_u32(1);
	tap_is_int(m_hear(MESSAGE_EPISODE_NAMED, -1), SP_E_PROTO, "short");
	end_live(claimed);
	episode_set_claim(set, NULL, NULL);
}

static struct process *
start(struct episode *ep, uint32_t flags)
{
	struct view argv[] = { VIEW("/bin/cat") };
	struct sandbox_run run = { .flags = flags, .argv = { argv, 1 } };
	struct process *p = NULL;

	tap_is_int(process_run(ep, SANDBOX_AGENT, &run, &events, NULL, &p),
	    SP_OK, "a process is asked for");
	tap_is_int(sent.type, MESSAGE_PROCESS_RUN, "of the helper");
	tap_ok(sent.fd >= 0, "with what it is");
	return p;
}

static void
test_process(void)
{
	struct episode *ep = make_live();
	int in[2], out[2];
	struct process *p;
	char got[16];

	p = start(ep, SANDBOX_RUN_STDIN);
	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		exit(1);
	tap_is_int(process_write(p, VIEW("early")), SP_OK,
	    "input before it runs");
	tap_is_int(hear_stdio(p->handle, 0, in[1]), SP_OK, "its input");
	tap_is_int(hear_stdio(p->handle, 1, out[0]), SP_OK, "its output");
	tap_is_int(hear_started(p->handle), SP_OK, "it runs");
	tap_is_int(told.started, 1, "which is told");
	tap_is_int(read(in[0], got, 16), 5, "the input is there");
	process_end_input(p);
	tap_is_int(read(in[0], got, 16), 0, "and ends");
	tap_is_int(process_write(p, VIEW("x")), SP_E_GONE, "for good");
	tap_is_int(write(out[1], "hello", 5), 5, "it says something");
	run_for(10);
	tap_is_mem(buf_view(&told.out).p, buf_len(&told.out), "hello", 5,
	    "which is heard");
	tap_is_int(hear_exited(p->handle, SANDBOX_END_EXIT, 3), SP_OK,
	    "it ends");
	tap_is_int(told.exited, 0, "its output is waited for");
	close(out[1]);
	run_for(5000);
	tap_is_int(told.exited, 1, "then it is told");
	tap_is_int(told.exit.status, 3, "with its status");
	tap_ok(!told.exit.cut, "all of it");
	tap_is_int(ep->processes_n, 0, "it is gone");
	close(in[0]);
	end_live(ep);
}

/* The program reads just when more is written: nobody else tells of it. */
static void
test_input_full(void)
{
	enum { MUCH = PROCESS_INPUT_MAX / 2 + 128 * 1024 };
	struct episode *ep = make_live();
	char *data = mem_calloc(1, MUCH);
	struct process *p;
	int in[2];

	p = start(ep, SANDBOX_RUN_STDIN);
	if (data == NULL || pipe2(in, O_CLOEXEC) != 0)
		exit(1);
	tap_is_int(hear_stdio(p->handle, 0, in[1]), SP_OK, "its input");
	tap_is_int(hear_started(p->handle), SP_OK, "it runs");
	tap_is_int(process_write(p, view_of(data, MUCH)), SP_OK, "much input");
	tap_ok(p->input_full, "more waits than half of what may");
	/* as good as a reader that reads */
	tap_ok(fcntl(in[0], F_SETPIPE_SZ, 1024 * 1024) >= MUCH, "room");
	tap_is_int(process_write(p, VIEW("x")), SP_OK, "one more byte");
	tap_is_int(buf_len(&p->input), 0, "takes all with it");
	tap_ok(!p->input_full, "and nothing is full");
	mem_free(data);
	process_drop(p);
	tap_is_int(hear_exited(p->handle, SANDBOX_END_EXIT, 0), SP_OK,
	    "it ends");
	run_for(5000);
	close(in[0]);
	end_live(ep);
}

static void
test_pause(void)
{
	struct episode *ep = make_live();
	struct process *p;
	int out[2], held;

	p = start(ep, 0);
	if (pipe2(out, O_CLOEXEC) != 0)
		exit(1);
	held = fcntl(out[1], F_DUPFD_CLOEXEC, 3);
	process_pause(p, PROCESS_STDOUT, true);
	tap_is_int(hear_stdio(p->handle, 1, out[0]), SP_OK, "its output");
	tap_is_int(hear_started(p->handle), SP_OK, "it runs");
	tap_is_int(write(out[1], "hello", 5), 5, "it says something");
	run_for(10);
	tap_is_int((long long)buf_len(&told.out), 0, "nobody listens");
	process_pause(p, PROCESS_STDOUT, false);
	run_for(10);
	tap_is_int((long long)buf_len(&told.out), 5, "now somebody does");
	close(out[1]);
	tap_is_int(hear_exited(p->handle, SANDBOX_END_SIGNAL, 9), SP_OK,
	    "it dies");
	run_for(10000);
	tap_is_int(told.exited, 1, "a descendant is not waited for");
	tap_ok(told.exit.cut, "which is told");
	close(held);
	end_live(ep);
}

static void
test_lost(void)
{
	struct episode *ep = make_live();
	struct process *p = start(ep, 0);

	tap_is_int(hear_started(p->handle), SP_OK, "it runs");
	tap_is_int(hear_ended(1, 1, 0, "died"), SP_OK, "its episode dies");
	tap_is_int(told.exited, 1, "and it");
	tap_is_int(told.exit.end, SANDBOX_END_LOST, "is lost");
	run_for(0);
	ep = make_live();
	p = start(ep, 0);
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(p->handle);
	m_u8(SANDBOX_STAGE_EXEC);
	m_u32(2);
	m_bytes("/bin/nothing");
	tap_is_int(m_hear(MESSAGE_PROCESS_NOT_STARTED, -1), SP_OK,
	    "one that cannot be run");
	tap_is_int(told.not_started, 1, "is told");
	tap_is_str(told.what, "/bin/nothing: No such file or directory",
	    "with its cause");
	p = start(ep, 0);
	tap_is_int(hear_started(p->handle), SP_OK, "one more");
	process_drop(p);
	tap_is_int(sent.type, MESSAGE_PROCESS_SIGNAL, "is dropped");
	tap_is_int(hear_exited(p->handle, SANDBOX_END_SIGNAL, SIGKILL), SP_OK,
	    "and dies");
	tap_is_int(told.exited, 0, "unheard");
	end_live(ep);
}

static void
test_files(void)
{
	const struct episode_file_ask read = { SANDBOX_FILE_READ,
		VIEW("/workspace/a"), 0, 100, -1 };
	const struct episode_file_ask diff = { SANDBOX_FILE_DIFF, VIEW_NONE, 0,
		100, -1 };
	struct episode *ep = make_live();
	uint32_t request;
	int fd = -1;

	tap_is_int(episode_file(ep, &read, on_file, NULL), SP_OK,
	    "a file is asked for");
	request = sent_u32(0);
	tap_is_int(fd_sealed("t", "abc", 3, &fd), SP_OK, "here it is");
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(request);
	tap_is_int(m_hear(MESSAGE_EPISODE_FILE_DATA, fd), SP_OK, "its bytes");
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(request);
	m_u8(SANDBOX_FILE_OK);
	m_u64(3);
	m_bytes("");
	tap_is_int(m_hear(MESSAGE_EPISODE_FILE_DONE, -1), SP_OK, "its end");
	tap_is_int(answer.n, 1, "told");
	tap_ok(answer.fd && answer.size == 3, "with the bytes");
	tap_is_int(episode_file(ep, &diff, on_file, NULL), SP_OK, "another");
	episode_forget(set, NULL);
	tap_is_int(hear_ended(1, 1, 0, "died"), SP_OK, "its episode dies");
	tap_is_int(answer.n, 1, "nobody listens");
	run_for(0);
}

static int
hear_connected(uint32_t request, uint32_t number, int fd)
{
	m_begin();
	m_u32(1);
	m_u32(1);
	m_u32(request);
	m_u32(number);
	return m_hear(MESSAGE_EPISODE_CONNECTED, fd);
}

static void
test_connect(void)
{
	static const int asks = 8001;
	struct episode *ep = make_live();
	struct wire w;
	uint32_t request;
	unsigned i;

	tap_is_int(episode_connect(ep, SANDBOX_WORKER, asks, on_connected,
		       NULL),
	    SP_OK, "a connection is asked for");
	wire_init(&w, buf_view(&sent.body));
	request = wire_u32(&w);
	tap_ok(sent.type == MESSAGE_EPISODE_CONNECT && wire_u32(&w) == 1 &&
		wire_u32(&w) == 1 && wire_u8(&w) == SANDBOX_WORKER &&
		wire_u16(&w) == asks && wire_done(&w) == SP_OK,
	    "with place, side and port");
	tap_is_int(hear_connected(request, 0, dup(1)), SP_OK, "there it is");
	tap_ok(answer.n == 1 && answer.sock >= 0 && answer.refusal == 0,
	    "and is told");
	fd_close(&answer.sock);
	tap_is_int(hear_connected(request, 0, dup(1)), SP_OK,
	    "one that nobody waits for is closed");
	for (i = 0; i < 4; i++) {
		forget();
		if (episode_connect(ep, SANDBOX_WORKER, asks, on_connected,
			&answer) != SP_OK)
			tap_ok(false, "another");
		request = sent_u32(0);
		if (i == 0)
			tap_is_int(hear_connected(request, 111, -1), SP_OK,
			    "refused by the port");
		else if (i == 1)
			tap_is_int(hear_refused(request, SANDBOX_REFUSED_STATE,
				       "no"),
			    SP_OK, "refused by the helper");
		else if (i == 2)
			tap_is_int(hear_connected(request, 0, -1), SP_E_PROTO,
			    "no socket and no reason");
		else
			tap_is_int(hear_connected(request, 1u << 31, dup(1)),
			    SP_E_PROTO, "no errno");
		tap_ok(answer.n == (i < 2) && (i > 1 || answer.sock == -1) &&
			answer.refusal == (i == 0 ? 111u : 0u),
		    "as it is");
	}
	tap_is_str(answer.what, "", "nothing else");
	episode_forget(set, &answer);
	sent.rc = SP_E_GONE;
	tap_is_int(episode_connect(ep, SANDBOX_WORKER, asks, on_connected,
		       NULL),
	    SP_E_GONE, "without a helper");
	sent.rc = SP_OK;
	for (i = 1; i < 20; i++) {
		int rc;

		mem_fail_after(i, 0);
		rc = episode_connect(ep, SANDBOX_WORKER, asks, on_connected,
		    NULL);
		mem_fail_after(0, 0);
		if (rc == SP_OK)
			break;
	}
	tap_ok(i > 1 && i < 20, "each allocation failed once");
	forget();
	tap_is_int(hear_ended(1, 1, 0, "died"), SP_OK, "its episode dies");
	tap_ok(answer.n == 1 && answer.sock == -1 && answer.what[0] != 0,
	    "and that is told");
	run_for(0);
}

static void
test_hostile(void)
{
	struct episode *ep = make_live();
	struct process *p = start(ep, 0);

	tap_is_int(hear_made(3, 3, 4711), SP_E_PROTO, "made for nobody");
	tap_is_int(hear_exited(p->handle, 1, 0), SP_E_PROTO,
	    "an end before the start");
	m_begin();
	m_u32(1);
	tap_is_int(m_hear(MESSAGE_EPISODE_ENDED, -1), SP_E_PROTO, "short");
	tap_is_int(m_hear(MESSAGE_EPISODE_LISTENER, -1), SP_E_PROTO, "short");
	tap_is_int(m_hear(MESSAGE_TURN_OPEN, -1), SP_E_PROTO, "alien");
	tap_is_int(hear_ended(9, 9, 0, ""), SP_OK,
	    "an end of one that is not known is late, not wrong");
	end_live(ep);
}

static void
test_memory(void)
{
	struct view argv[] = { VIEW("/bin/cat") };
	struct sandbox_run run = { .argv = { argv, 1 } };
	struct process *p = NULL;
	struct episode *ep = NULL;
	unsigned long n;
	int rc = SP_E_NOMEM;

	forget();
	for (n = 1; n < 100 && rc != SP_OK; n++) {
		mem_fail_after(n, 0);
		rc = episode_create(set, VIEW("echo"), VIEW("m"), on_done, NULL,
		    &ep);
		mem_fail_after(0, 0);
	}
	tap_is_int(rc, SP_OK, "created, after each allocation failed once");
	tap_is_int(hear_made(1, 1, sent_u32(0)), SP_OK, "made");
	tap_is_int((long long)episode_set_count(set), 1, "one");
	rc = SP_E_NOMEM;
	for (n = 1; n < 100 && rc != SP_OK; n++) {
		mem_fail_after(n, 0);
		rc = process_run(ep, SANDBOX_AGENT, &run, &events, NULL, &p);
		mem_fail_after(0, 0);
	}
	tap_is_int(rc, SP_OK, "run, after each allocation failed once");
	tap_is_int(ep->processes_n, 1, "one");
	end_live(ep);
}

static int
m_warm(uint32_t n, const char *env)
{
	m_begin();
	m_u32(n);
	TAP_NEVER(wire_put_bytes(&msg, view_str(env)) != SP_OK);
	return m_hear(MESSAGE_EPISODE_WARM, -1);
}

static void
test_warm(void)
{
	char longest[EPISODE_ENV_MAX + 2];

	memset(longest, 'e', sizeof(longest) - 1);
	longest[EPISODE_ENV_MAX + 1] = '\0';
	tap_is_int(m_warm(1, longest), SP_E_PROTO, "warm: a long name");
	tap_is_int(m_warm(1, ""), SP_E_PROTO, "warm: none");
	mem_fail_after(1, 0);
	tap_is_int(m_warm(4, "box"), SP_OK, "warm: without memory");
	mem_fail_after(0, 0);
	tap_is_int(episode_warm_n(set, VIEW("box")), 0, "they are not counted");
	tap_ok(m_warm(2, "box") == SP_OK && m_warm(3, "oven") == SP_OK,
	    "warm: told");
	tap_is_int(episode_warm_n(set, VIEW("box")), 2, "of one environment");
	tap_is_int(episode_warm_n(set, VIEW("oven")), 3, "of another");
	tap_is_int(m_warm(0, "box"), SP_OK, "warm: told anew");
	tap_is_int(episode_warm_n(set, VIEW("box")), 0, "none is left");
}

int
main(void)
{
	struct episode_world w = { .send = send_helper };

	loop = loop_new();
	w.loop = loop;
	set = episode_set_new(&w);
	tap_ok(loop != NULL && set != NULL, "a set");
	test_life();
	test_refusals();
	test_early_end();
	test_rename();
	test_resume();
	test_process();
	test_input_full();
	test_pause();
	test_lost();
	test_files();
	test_connect();
	test_hostile();
	test_warm();
	test_memory();
	episode_set_free(set);
	loop_free(loop);
	peer_clear();
	buf_clear(&told.out);
	return tap_done();
}
