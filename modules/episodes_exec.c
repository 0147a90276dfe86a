/*
 * A program in an episode.  Plain: JSON in, and when it has ended JSON out.
 * Framed (application/x-sallyport-exec): a line of JSON, then frames in both
 * directions at once, each u8 kind, u32 length (big-endian), bytes.
 * At the id "-" it has a fresh episode, which ends with it.
 */
#include "config.h"

#include <signal.h>

#include "base/b64.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "conf/conf_env.h"
#include "episodes_call.h"
#include "gate/episode_file.h"
#include "gate/worker.h"
#include "json/jwrite.h"

enum {
	ARENA_MAX = 8 * 1024 * 1024,
	FRAME_HEAD = 5,
	PENDING_MAX = 1024 * 1024, /* more than a body's window */
	FRAME_MAX = 64 * 1024 * 1024,
	SIGNALS = 64,
};

/* To the program. */
enum frame_in { FRAME_STDIN, FRAME_STDIN_END, FRAME_SIGNAL };
/* From it. */
enum frame_out {
	FRAME_STDOUT = 1,
	FRAME_STDERR,
	FRAME_EXIT,
	FRAME_NOT_STARTED,
};

enum { OUT, ERR, OUTPUTS };

struct episodes_exec {
	struct episodes_call *c;
	struct arena *arena;
	struct episodes_run run;
	/* the body, of the framed form */
	struct buf line; /* the first, as far as it is there */
	struct buf pending; /* frames that wait for the process */
	size_t head_n; /* of head */
	size_t owed; /* credit, until the program has taken bytes */
	/* what runs */
	struct process *p;
	struct process_exit exit;
	struct buf what; /* why it did not start, or its end is not clean */
	struct buf because; /* it was killed with all of its episode's */
	/* plain: what it said */
	struct buf out[OUTPUTS];
	unsigned stage; /* not started: where, 0 it was */
	int number; /* and the errno */
	uint32_t left; /* bytes of the frame that comes */
	uint8_t kind; /* of it */
	char head[FRAME_HEAD]; /* of it */
	char ep[EPISODE_ID_MAX + 1]; /* made for this: to be ended */
	bool framed, fresh;
	bool head_sent;
	bool told; /* the last word was said */
	bool have_line;
	bool body_ended;
	bool over;
	bool unclean;
	bool truncated[OUTPUTS];
	bool paused;
};

/* ---- the last word -------------------------------------------------------- */

void
episodes_exec_put(struct jwrite *w, const char *name, struct view v)
{
	struct buf key = BUF_INIT(64), text = BUF_INIT(SIZE_MAX);

	if (utf8_valid(v)) {
		jwrite_key(w, name);
		jwrite_string(w, v);
		return;
	}
	if (b64_add(&text, v) != SP_OK ||
	    buf_printf(&key, "%s_b64", name) != SP_OK ||
	    buf_add_char(&key, '\0') != SP_OK) {
		w->err = SP_E_NOMEM;
	} else {
		jwrite_key(w, buf_view(&key).p);
		jwrite_string(w, buf_view(&text));
	}
	buf_clear(&key);
	buf_clear(&text);
}

static void
put_count(struct jwrite *w, const char *key, bool there, uint64_t v)
{
	jwrite_key(w, key);
	if (there)
		jwrite_u64(w, v);
	else
		jwrite_null(w);
}

static void
put_exit(const struct episodes_exec *x, struct jwrite *w)
{
	const struct process_exit *e = &x->exit;

	jwrite_key(w, "end");
	jwrite_cstr(w, episode_file_end(e->end));
	put_count(w, "exit_code", e->end == SANDBOX_END_EXIT, e->status);
	put_count(w, "signal", e->end == SANDBOX_END_SIGNAL, e->status);
	if (buf_len(&x->because) > 0) {
		jwrite_key(w, "because");
		jwrite_string(w, buf_view(&x->because));
	}
	jwrite_key(w, "output_cut");
	jwrite_bool(w, e->cut);
	jwrite_key(w, "usage");
	jwrite_object(w);
	put_count(w, "user_us", true, e->user_us);
	put_count(w, "system_us", true, e->system_us);
	put_count(w, "peak_bytes", true, e->peak_bytes);
	jwrite_end_object(w);
}

static int
word(const struct episodes_exec *x, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	if (x->stage != 0) {
		jwrite_key(&w, "end");
		jwrite_cstr(&w, "not_started");
		jwrite_key(&w, "stage");
		jwrite_cstr(&w, sandbox_msg_stage(x->stage));
		put_count(&w, "errno", true, (uint64_t)x->number);
		jwrite_key(&w, "error");
		jwrite_string(&w, buf_view(&x->what));
	} else {
		put_exit(x, &w);
	}
	if (!x->framed && x->stage == 0) {
		episodes_exec_put(&w, "stdout", buf_view(&x->out[OUT]));
		episodes_exec_put(&w, "stderr", buf_view(&x->out[ERR]));
		jwrite_key(&w, "stdout_truncated");
		jwrite_bool(&w, x->truncated[OUT]);
		jwrite_key(&w, "stderr_truncated");
		jwrite_bool(&w, x->truncated[ERR]);
	}
	if (x->unclean) {
		jwrite_key(&w, "unclean");
		jwrite_string(&w, buf_view(&x->what));
	}
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static int
send_frame(struct episodes_exec *x, enum frame_out kind, struct view data)
{
	const unsigned char head[FRAME_HEAD] = { (unsigned char)kind,
		(unsigned char)(data.n >> 24), (unsigned char)(data.n >> 16),
		(unsigned char)(data.n >> 8), (unsigned char)data.n };
	const struct view parts[] = { view_of(head, FRAME_HEAD), data };

	return exchange_datav(x->c->r->x, parts, 2);
}

/* The episode that was made for this, while it is there. */
static struct episode *
fresh_episode(const struct episodes_exec *x)
{
	return x->ep[0] != '\0' ? episode_find(x->c->set, view_str(x->ep))
				: NULL;
}

/* It is over, and a fresh episode is, too. */
static void
tell(struct episodes_exec *x)
{
	struct episodes_call *c = x->c;
	struct buf out = BUF_INIT(EPISODES_JSON_MAX * 16u);
	int rc;

	if (x->told)
		return;
	x->told = true;
	rc = word(x, &out);
	if (rc != SP_OK) {
		episodes_door_fail_rc(c, rc);
	} else if (!x->framed) {
		episodes_door_json(c, 200, buf_view(&out));
	} else {
		rc = send_frame(x,
		    x->stage != 0 ? FRAME_NOT_STARTED : FRAME_EXIT,
		    buf_view(&out));
		if (rc == SP_OK)
			rc = exchange_end(c->r->x);
		if (rc != SP_E_GONE)
			gate_finish(c->r);
	}
	buf_clear(&out);
}

static void
on_ended(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	struct episodes_call *c = arg;
	struct episodes_exec *x = c->exec;

	(void)ep;
	if (refusal != 0) {
		x->unclean = true;
		/* the word is said without why if there is no memory for it */
		if (x->stage == 0)
			(void)!buf_add_view(&x->what, what);
	}
	tell(x);
}

static void
finish(struct episodes_exec *x)
{
	struct episode *ep = fresh_episode(x);

	x->over = true;
	x->p = NULL;
	if (ep != NULL && episode_end(ep, on_ended, x->c) == SP_OK)
		return;
	/* it is asked for once more when this request goes */
	x->unclean = ep != NULL;
	tell(x);
}

/* ---- the process ---------------------------------------------------------- */

static void
give_credit(struct episodes_exec *x)
{
	size_t n = x->owed;

	x->owed = 0;
	if (x->c->r->x != NULL)
		exchange_credit(x->c->r->x, n);
}

static void
on_started(void *arg, uint32_t pid)
{
	(void)arg;
	(void)pid;
}

static void
on_not_started(void *arg, unsigned stage, int number, struct view what)
{
	struct episodes_exec *x = arg;

	x->stage = stage != 0 ? stage : SANDBOX_STAGE_SPEC;
	x->number = number;
	(void)!buf_add_view(&x->what, what);
	finish(x);
}

static void
pause_output(struct episodes_exec *x, bool on)
{
	x->paused = on;
	process_pause(x->p, PROCESS_STDOUT, on);
	process_pause(x->p, PROCESS_STDERR, on);
}

static void
keep_output(struct episodes_exec *x, unsigned which, struct view data)
{
	struct buf *b = &x->out[which];
	uint64_t room = x->run.limit - buf_len(b);

	if (data.n > room || buf_add_view(b, data) != SP_OK) {
		x->truncated[which] = true;
		if (data.n > room)
			(void)!buf_add_view(b, view_sub(data, 0, (size_t)room));
	}
}

static void
on_output(void *arg, enum process_stream stream, struct view data)
{
	struct episodes_exec *x = arg;

	if (stream != PROCESS_STDOUT && stream != PROCESS_STDERR)
		return;
	if (!x->framed) {
		keep_output(x, stream == PROCESS_STDOUT ? OUT : ERR, data);
		return;
	}
	/* without a client gone() follows */
	(void)!send_frame(x,
	    stream == PROCESS_STDOUT ? FRAME_STDOUT : FRAME_STDERR, data);
	if (exchange_room(x->c->r->x) == 0)
		pause_output(x, true);
}

static void
on_writable(void *arg, bool closed)
{
	struct episodes_exec *x = arg;

	(void)closed;
	give_credit(x);
}

/* Without memory for it the word is said without. */
static void
say_because(struct episodes_exec *x)
{
	struct episode *ep =
	    x->fresh ? fresh_episode(x) : episodes_door_find(x->c);
	const struct worker *w = ep != NULL ? worker_of(ep) : NULL;

	if (buf_add_str(&x->because, "the worker failed") == SP_OK &&
	    w != NULL && worker_state(w) == WORKER_FAILED)
		(void)!buf_printf(&x->because, ": %.*s",
		    VIEW_ARG(worker_why(w)));
}

/* Lost: somebody's wish, or the sandbox died of itself. */
static void
say_lost(struct episodes_exec *x)
{
	const struct episode *ep =
	    x->fresh ? fresh_episode(x) : episodes_door_find(x->c);

	if (ep != NULL && ep->state == EPISODE_RESETTING)
		(void)!buf_add_str(&x->because, "the episode was reset");
	else if (ep != NULL && ep->state == EPISODE_ENDING)
		(void)!buf_add_str(&x->because, "the episode was ended");
}

static void
on_exited(void *arg, const struct process_exit *e)
{
	struct episodes_exec *x = arg;

	x->exit = *e;
	/* a worker's failure is all that kills them all */
	if (e->swept && e->end == SANDBOX_END_SIGNAL && e->status == SIGKILL)
		say_because(x);
	else if (e->end == SANDBOX_END_LOST)
		say_lost(x);
	finish(x);
}

static const struct process_events events = {
	.started = on_started,
	.not_started = on_not_started,
	.output = on_output,
	.writable = on_writable,
	.exited = on_exited,
};

/* ---- frames to it --------------------------------------------------------- */

static void
end_input(struct episodes_exec *x)
{
	if (x->p != NULL)
		process_end_input(x->p);
}

/* Bytes of the frame that is open. */
static void
take_piece(struct episodes_exec *x, struct view data)
{
	if (x->p == NULL || data.n == 0)
		return;
	if (x->kind == FRAME_STDIN) {
		/* what a closed standard input is sent goes nowhere */
		if (process_write(x->p, data) == SP_E_NOMEM)
			process_signal(x->p, 9);
	} else if (x->kind == FRAME_SIGNAL) {
		unsigned signo = (unsigned char)data.p[0];

		if (signo > 0 && signo <= SIGNALS)
			process_signal(x->p, signo);
	}
}

/* The head of a frame is whole: false, it makes no sense. */
static bool
open_frame(struct episodes_exec *x)
{
	const unsigned char *h = (const unsigned char *)x->head;

	x->head_n = 0;
	x->kind = h[0];
	x->left = (uint32_t)h[1] << 24 | (uint32_t)h[2] << 16 |
	    (uint32_t)h[3] << 8 | h[4];
	if (x->kind > FRAME_SIGNAL || x->left > FRAME_MAX ||
	    (x->kind == FRAME_STDIN_END && x->left != 0) ||
	    (x->kind == FRAME_SIGNAL && x->left != 1))
		return false;
	if (x->kind == FRAME_STDIN_END)
		end_input(x);
	return true;
}

static bool
take_frames(struct episodes_exec *x, struct view data)
{
	size_t n;

	while (data.n > 0) {
		if (x->left > 0) {
			n = data.n < x->left ? data.n : x->left;
			take_piece(x, view_sub(data, 0, n));
			x->left -= (uint32_t)n;
		} else {
			n = 1;
			x->head[x->head_n++] = data.p[0];
			if (x->head_n == FRAME_HEAD && !open_frame(x))
				return false;
		}
		data = view_from(data, n);
	}
	return true;
}

static void
hand_on(struct episodes_exec *x, struct view data)
{
	if (!take_frames(x, data)) {
		/* the client speaks something else: it is cut, and what runs
		 * ends with it */
		exchange_abort(x->c->r->x);
		gate_finish(x->c->r);
		return;
	}
	x->owed += data.n;
	if (x->p == NULL || !x->p->input_full)
		give_credit(x);
}

/* ---- starting ------------------------------------------------------------- */

static void
start(struct episodes_exec *x, struct episode *ep)
{
	struct episodes_call *c = x->c;
	int rc;

	if (x->framed || x->run.stdin_text.n > 0)
		x->run.run.flags |= SANDBOX_RUN_STDIN;
	rc = process_run(ep, x->run.side, &x->run.run, &events, x, &x->p);
	if (rc == SP_OK && x->framed) {
		x->head_sent = true;
		rc = episodes_door_stream(c, "application/x-sallyport-exec");
	} else if (rc == SP_OK && x->run.stdin_text.n > 0) {
		rc = process_write(x->p, x->run.stdin_text);
		process_end_input(x->p);
	}
	if (rc != SP_OK) {
		episodes_door_fail_rc(c, rc);
		return;
	}
	if (!x->framed)
		return;
	hand_on(x, buf_view(&x->pending));
	buf_clear(&x->pending);
	if (x->body_ended)
		end_input(x);
}

static void
on_made(void *arg, struct episode *ep, unsigned refusal, struct view what)
{
	struct episodes_call *c = arg;

	c->making = NULL;
	if (refusal != 0) {
		episodes_door_fail_refused(c, refusal, what);
		return;
	}
	memcpy(c->exec->ep, ep->id, sizeof(c->exec->ep));
	start(c->exec, ep);
}

/* What is to run is known: in which episode? */
static void
begin(struct episodes_exec *x, struct view text)
{
	struct episodes_call *c = x->c;
	struct episode *ep;
	const char *why;
	int rc = episodes_run_read(text, x->fresh, x->arena, &x->run, &why);

	if (rc == SP_E_SYNTAX) {
		episodes_door_fail(c, 400, "bad_exec", view_str(why));
		return;
	}
	if (rc == SP_OK && x->run.stdin_text.n > PROCESS_INPUT_MAX)
		rc = SP_E_LIMIT;
	if (rc == SP_OK && x->fresh &&
	    conf_env_find(gate_conf(c->r->gate), x->run.environment) == NULL) {
		episodes_door_fail(c, 404, "unknown_environment",
		    VIEW("the configuration has no environment of that name"));
		return;
	}
	if (rc == SP_OK && x->fresh) {
		rc = episode_create(c->set, x->run.environment, VIEW_NONE,
		    on_made, c, &c->making);
	} else if (rc == SP_OK) {
		ep = episodes_door_find(c);
		if (ep != NULL)
			start(x, ep);
		else
			episodes_door_fail(c, 404, "unknown_episode",
			    VIEW("there is no episode of that id"));
		return;
	}
	if (rc != SP_OK)
		episodes_door_fail_rc(c, rc);
}

/* ---- the request ---------------------------------------------------------- */

enum gate_verdict
episodes_exec_head(struct episodes_call *c)
{
	struct episodes_exec *x = mem_calloc(1, sizeof(*x));
	struct view type;

	if (x == NULL)
		return GATE_FAIL;
	c->exec = x;
	x->c = c;
	buf_init(&x->line, EPISODES_RUN_MAX);
	buf_init(&x->pending, PENDING_MAX);
	buf_init(&x->what, MESSAGE_CONTROL_MAX * 2u);
	buf_init(&x->because, MESSAGE_CONTROL_MAX);
	buf_init(&x->out[OUT], SIZE_MAX / 4);
	buf_init(&x->out[ERR], SIZE_MAX / 4);
	x->arena = arena_new(ARENA_MAX);
	if (x->arena == NULL)
		return GATE_FAIL;
	x->fresh = view_eq(c->id, VIEW("-"));
	type = head_get(&c->r->x->request.fields, VIEW("content-type"));
	x->framed = view_eq_nocase(type, VIEW("application/x-sallyport-exec"));
	c->r->streams = x->framed;
	if (!x->fresh && episodes_door_find(c) == NULL)
		return episodes_door_deny(c, 404, "unknown_episode",
		    "there is no episode of that id");
	return GATE_PASS;
}

enum gate_verdict
episodes_exec_message(struct episodes_call *c)
{
	if (!c->exec->framed)
		begin(c->exec, buf_view(&c->r->body));
	return GATE_HOLD;
}

/* The first line; what is behind it are frames. */
static void
take_line(struct episodes_exec *x, struct view data)
{
	size_t n = view_find(data, '\n');

	if (buf_add_view(&x->line, view_sub(data, 0, n)) != SP_OK) {
		episodes_door_fail_rc(x->c, SP_E_LIMIT);
		return;
	}
	if (n == data.n) {
		exchange_credit(x->c->r->x, n);
		return;
	}
	x->have_line = true;
	exchange_credit(x->c->r->x, n + 1);
	/* before the start, which looks for them */
	if (buf_add_view(&x->pending, view_from(data, n + 1)) != SP_OK) {
		episodes_door_fail_rc(x->c, SP_E_NOMEM);
		return;
	}
	begin(x, buf_view(&x->line));
	buf_clear(&x->line);
}

void
episodes_exec_body(struct episodes_call *c, struct view data)
{
	struct episodes_exec *x = c->exec;

	if (!x->have_line)
		take_line(x, data);
	else if (x->over)
		exchange_credit(c->r->x, data.n);
	else if (x->p != NULL)
		hand_on(x, data);
	else if (buf_add_view(&x->pending, data) != SP_OK)
		episodes_door_fail_rc(c, SP_E_NOMEM);
	/* credit for what waits is given when it was handed on */
}

void
episodes_exec_body_end(struct episodes_call *c)
{
	struct episodes_exec *x = c->exec;

	x->body_ended = true;
	if (!x->have_line)
		episodes_door_fail(c, 400, "bad_exec",
		    VIEW("the body ended before its first line, which says "
			 "what is to run"));
	else
		end_input(x);
}

void
episodes_exec_room(struct episodes_call *c)
{
	struct episodes_exec *x = c->exec;

	if (x != NULL && x->p != NULL && x->paused)
		pause_output(x, false);
}

void
episodes_exec_clear(struct episodes_call *c)
{
	struct episodes_exec *x = c->exec;
	struct episode *ep;

	if (x == NULL)
		return;
	ep = fresh_episode(x);
	if (x->p != NULL)
		process_drop(x->p);
	if (ep != NULL)
		(void)!episode_end(ep, NULL, NULL);
	arena_free(x->arena);
	buf_clear(&x->line);
	buf_clear(&x->pending);
	buf_clear(&x->what);
	buf_clear(&x->because);
	buf_clear(&x->out[OUT]);
	buf_clear(&x->out[ERR]);
	mem_free(x);
	c->exec = NULL;
}

size_t
episodes_exec_holds(const struct episodes_call *c)
{
	const struct episodes_exec *x = c->exec;

	return x == NULL ? 0
			 : buf_len(&x->out[OUT]) + buf_len(&x->out[ERR]) +
		buf_len(&x->pending) + arena_used(x->arena);
}
