#include "config.h"

#include "gate/worker_pipe.h"

enum {
	PIPE_OUT_MAX = 2 * WORKER_LINE_MAX + 65536, /* that waits */
	PIPE_CHUNK_KEEP = 64 * 1024,
	PIPE_CLOSED_MS = 1000, /* for its exit to be told */
};

/*
 * One of its streams is closed.  Mostly it has ended, and exited() tells why;
 * else nothing more would ever come of it.
 */
static void
pipe_closed(struct worker_pipe *l, const char *which)
{
	if (l->closed != NULL || l->line == NULL)
		return;
	l->closed = which;
	if (l->closing == NULL)
		return;
	loop_timer_set(l->closing, PIPE_CLOSED_MS);
}

static void
pipe_on_closing(void *arg)
{
	struct worker_pipe *l = arg;

	/* it has ended, and what it said last is still being read */
	if (l->p != NULL && l->p->over)
		return;
	if (l->back->w != NULL)
		worker_fail(l->back->w, WORKER_GONE, "it closed its %s%s",
		    l->closed,
		    worker_lines_open(&l->in) ? ", in the middle of a line"
					      : "");
}

/* ---- what it says ----------------------------------------------------------- */

static bool
pipe_on_line(void *arg, struct view line)
{
	struct worker_pipe *l = arg;
	struct worker_back *b = l->back;

	/* stdio: "\r" is tolerated; JSON has it for white space */
	if (view_trim(line).n > 0 && !view_eq(line, VIEW("\r")))
		l->line(b, line);
	return b->w != NULL;
}

static void
pipe_read(struct worker_pipe *l, struct view data)
{
	struct worker *w = l->back->w;
	int rc;

	/* the scratch that it lies in is everybody's */
	buf_reset(&l->chunk, PIPE_CHUNK_KEEP);
	rc = buf_add_view(&l->chunk, data);
	if (rc == SP_OK)
		rc = worker_lines_add(&l->in, buf_view(&l->chunk), pipe_on_line,
		    l);
	if (rc == SP_E_LIMIT)
		worker_fail(w, WORKER_GONE,
		    "a line of its standard output is longer than %d bytes",
		    WORKER_LINE_MAX);
	else if (rc != SP_OK)
		worker_fail(w, WORKER_GONE, "no memory for what it says");
}

static void
pipe_on_output(void *arg, enum process_stream stream, struct view data)
{
	struct worker_pipe *l = arg;

	if (l->back->w == NULL)
		return;
	if (stream == PROCESS_STDOUT && l->line != NULL)
		pipe_read(l, data);
	else if (stream != PROCESS_EVENTS)
		worker_add_stderr(l->back->w, data);
	else
		worker_events_add(&l->events, l->back->w->ep, data);
}

/* ---- what it is told -------------------------------------------------------- */

/* As much as the process takes now. */
static int
pipe_flush(struct worker_pipe *l)
{
	struct view v = buf_view(&l->out);
	int rc = SP_OK;
	size_t n;

	while (v.n > 0 && rc == SP_OK && !l->p->input_full) {
		n = PROCESS_INPUT_MAX - buf_len(&l->p->input);
		n = v.n < n ? v.n : n;
		rc = process_write(l->p, view_sub(v, 0, n));
		if (rc == SP_OK)
			buf_consume(&l->out, n);
		v = buf_view(&l->out);
	}
	if (rc == SP_E_GONE) {
		buf_clear(&l->out);
		pipe_closed(l, "standard input");
		return SP_OK;
	}
	if (v.n == 0)
		buf_reset(&l->out, PIPE_CHUNK_KEEP);
	return rc;
}

static void
pipe_on_writable(void *arg, bool closed)
{
	struct worker_pipe *l = arg;
	int rc = SP_OK;

	if (closed)
		pipe_closed(l, "standard input");
	else
		rc = pipe_flush(l);
	if (rc != SP_OK && l->back->w != NULL)
		worker_fail(l->back->w, WORKER_GONE,
		    "no memory for what it is told");
}

int
worker_pipe_send(struct worker_pipe *l, struct view json)
{
	size_t was = buf_len(&l->out), at;
	struct view line;
	char *p;
	int rc;

	if (l->p == NULL)
		return SP_E_GONE;
	rc = buf_reserve(&l->out, json.n + 1);
	if (rc == SP_OK)
		rc = buf_add_view(&l->out, json);
	if (rc == SP_OK)
		rc = buf_add_char(&l->out, '\n');
	if (rc != SP_OK) {
		buf_truncate(&l->out, was);
		return rc;
	}
	line = view_sub(view_from(buf_view(&l->out), was), 0, json.n);
	p = buf_tail(&l->out) - json.n - 1;
	for (at = view_find(line, '\n'); at < line.n;
	     at += view_find(view_from(line, at), '\n'))
		p[at] = ' ';
	return pipe_flush(l);
}

/* ---- its life --------------------------------------------------------------- */

static void
pipe_on_started(void *arg, uint32_t pid)
{
	(void)arg;
	(void)pid;
}

static void
pipe_on_not_started(void *arg, unsigned stage, int number, struct view what)
{
	struct worker_pipe *l = arg;

	(void)number;
	l->p = NULL;
	if (l->back->w != NULL)
		worker_fail(l->back->w, WORKER_GONE,
		    "it could not be started (%s): %.*s",
		    sandbox_msg_stage(stage), VIEW_ARG(what));
}

static void
pipe_on_exited(void *arg, const struct process_exit *e)
{
	struct worker_pipe *l = arg;
	const char *in =
	    worker_lines_open(&l->in) ? ", in the middle of a line" : "";

	l->p = NULL;
	if (l->back->w == NULL)
		return;
	worker_events_end(&l->events, l->back->w->ep);
	if (e->end == SANDBOX_END_EXIT)
		worker_fail(l->back->w, WORKER_GONE,
		    "it ended: exit status %u%s", e->status, in);
	else if (e->end == SANDBOX_END_SIGNAL)
		worker_fail(l->back->w, WORKER_GONE, "it ended: signal %u%s",
		    e->status, in);
	else if (e->end == SANDBOX_END_OOM)
		worker_fail(l->back->w, WORKER_GONE,
		    "it ended: out of memory (sandbox { memory })%s", in);
	else
		worker_fail(l->back->w, WORKER_GONE, "it is lost%s", in);
}

static void
pipe_on_closed(void *arg, enum process_stream stream)
{
	if (stream == PROCESS_STDOUT)
		pipe_closed(arg, "standard output");
}

static const struct process_events pipe_events = {
	.started = pipe_on_started,
	.not_started = pipe_on_not_started,
	.output = pipe_on_output,
	.writable = pipe_on_writable,
	.exited = pipe_on_exited,
	.closed = pipe_on_closed,
};

int
worker_pipe_start(struct worker_pipe *l, struct worker_back *back,
    const struct conf_environment *env,
    void (*line)(struct worker_back *b, struct view line))
{
	const struct sandbox_run run = {
		.flags = SANDBOX_RUN_EVENT_FD |
		    (line != NULL ? SANDBOX_RUN_STDIN : 0),
		.argv = { env->worker_command.v, env->worker_command.n },
		.cwd = env->worker_dir,
	};
	int rc;

	l->back = back;
	l->line = line;
	worker_lines_init(&l->in, WORKER_LINE_MAX, false);
	worker_events_init(&l->events, worker_world_of(back->w));
	buf_init(&l->chunk, LOOP_SCRATCH_BYTES);
	buf_init(&l->out, PIPE_OUT_MAX);
	l->closing = loop_timer_new(worker_loop(back->w), pipe_on_closing, l);
	if (l->closing == NULL)
		return SP_E_NOMEM;
	rc = process_run(back->w->ep, SANDBOX_WORKER, &run, &pipe_events, l,
	    &l->p);
	if (rc == SP_OK)
		process_rename(l->p, VIEW("worker"));
	return rc;
}

void
worker_pipe_hold(struct worker_pipe *l, bool on)
{
	if (l->p != NULL)
		process_pause(l->p, PROCESS_STDOUT, on);
}

void
worker_pipe_stop(struct worker_pipe *l)
{
	if (l->p != NULL)
		process_drop(l->p);
	l->p = NULL;
	loop_timer_free(l->closing);
	l->closing = NULL;
}

void
worker_pipe_clear(struct worker_pipe *l)
{
	worker_lines_clear(&l->in);
	worker_events_clear(&l->events);
	buf_clear(&l->chunk);
	buf_clear(&l->out);
}
