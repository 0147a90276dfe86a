#include "config.h"

#include <signal.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/episode_priv.h"
#include "gate/process.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum {
	PROCESS_LINGER_MS = 2000, /* for output that descendants hold open */
	PROCESS_READS_PER_TURN = 16,
	PROCESS_TURN_US = 2000, /* no more is read in a turn after that */
	/* at once, of what is taken by the line: each byte may be one */
	PROCESS_LINES_BYTES = 8 * 1024,
};

static struct loop *
process_loop(const struct process *p)
{
	return p->set->w.loop;
}

/* ---- its life --------------------------------------------------------------- */

static void
stream_close(struct process_stream_state *s)
{
	loop_fd_free(s->f);
	s->f = NULL;
	fd_close(&s->fd);
	s->ended = true;
}

void
process_free(struct process *p)
{
	size_t i;

	for (i = 0; i < PROCESS_STREAMS; i++)
		stream_close(&p->streams[i]);
	loop_timer_free(p->linger);
	buf_clear(&p->input);
	mem_free(p->name);
	mem_free(p);
}

/* Its callbacks may be on the stack: it is freed when this turn ends. */
static void
process_retire(struct process *p)
{
	size_t i;

	if (p->ep == NULL)
		return;
	LIST_REMOVE(p, link);
	p->ep->processes_n--;
	p->ep = NULL;
	p->events = NULL;
	for (i = 0; i < PROCESS_STREAMS; i++)
		stream_close(&p->streams[i]);
	loop_timer_stop(p->linger);
	LIST_INSERT_HEAD(&p->set->dead, p, link);
	loop_task_post(p->set->reap);
}

/* Everything was told: the last word, then it is gone. */
static void
process_finish(struct process *p)
{
	const struct episode_news n = {
		.what = EPISODE_PROCESS_EXITED,
		.end = p->exit.end,
		.process = p,
	};
	const struct process_events *events = p->events;

	episode_tell(p->ep, &n);
	process_retire(p);
	if (events != NULL)
		events->exited(p->arg, &p->exit);
}

static bool
process_output_ended(const struct process *p)
{
	size_t i;

	for (i = PROCESS_STDOUT; i < PROCESS_STREAMS; i++)
		if (!p->streams[i].ended)
			return false;
	return true;
}

static void
process_advance(struct process *p)
{
	if (p->ep != NULL && p->over && process_output_ended(p))
		process_finish(p);
}

/* ---- its streams ------------------------------------------------------------ */

/* True when there may be more at once. */
static bool
stream_read(struct process_stream_state *s)
{
	struct process *p = s->p;
	char *scratch = loop_scratch(process_loop(p));
	bool lines = s->which == PROCESS_STDERR ||
	    (p->events != NULL && p->events->lines);
	size_t n;
	int rc;

	rc = fd_read(s->fd, scratch,
	    lines ? (size_t)PROCESS_LINES_BYTES : (size_t)LOOP_SCRATCH_BYTES,
	    &n);
	if (rc == SP_OK) {
		if (p->events != NULL)
			p->events->output(p->arg, s->which,
			    view_of(scratch, n));
		return true;
	}
	if (rc != SP_E_AGAIN)
		stream_close(s);
	return false;
}

static void
stream_on_output(void *arg, unsigned ready)
{
	struct process_stream_state *s = arg;
	const struct process_events *events;
	uint64_t by = clock_us() + PROCESS_TURN_US;
	int i;

	(void)ready;
	/*
	 * output() may have paused it, or dropped the process; and what many
	 * are told of it takes its time, which is everybody's
	 */
	for (i = 0; i < PROCESS_READS_PER_TURN && (i == 0 || clock_us() < by);
	     i++)
		if (s->f == NULL || s->paused || !stream_read(s))
			break;
	events = s->p->events;
	if (s->ended && events != NULL && events->closed != NULL)
		events->closed(s->p->arg, s->which);
	process_advance(s->p);
}

static void
stream_want(struct process_stream_state *s, unsigned want)
{
	/* no memory to wait with: what it would have told is lost */
	if (s->f != NULL && loop_fd_want(s->f, want) != SP_OK)
		stream_close(s);
}

/* As much of the queue as the pipe takes. */
static void
input_flush(struct process *p)
{
	struct process_stream_state *s = &p->streams[PROCESS_STDIN];
	struct view v = buf_view(&p->input);
	struct iovec iov;
	size_t n;
	int rc = SP_OK;

	while (s->fd >= 0 && v.n > 0 && rc == SP_OK) {
		iov.iov_base = (void *)(uintptr_t)v.p;
		iov.iov_len = v.n;
		rc = fd_writev(s->fd, &iov, 1, &n);
		if (rc == SP_OK)
			buf_consume(&p->input, n);
		v = buf_view(&p->input);
	}
	if (rc == SP_E_AGAIN) {
		stream_want(s, LOOP_WRITE);
		return;
	}
	stream_want(s, 0);
	/* it reads no more, or all was said */
	if (rc != SP_OK || (v.n == 0 && p->input_end))
		stream_close(s);
	if (rc != SP_OK)
		buf_reset(&p->input, 0);
}

static void
stream_on_input(void *arg, unsigned ready)
{
	struct process_stream_state *s = arg;
	struct process *p = s->p;

	(void)ready;
	input_flush(p);
	if (p->input_full && p->events != NULL &&
	    (s->ended || buf_len(&p->input) <= PROCESS_INPUT_MAX / 4)) {
		p->input_full = false;
		p->events->writable(p->arg, s->ended);
	}
}

static int
process_take_stream(struct process *p, enum process_stream which, int fd)
{
	struct process_stream_state *s = &p->streams[which];
	int rc = fd_nonblock(fd);

	if (rc == SP_OK) {
		s->f = loop_fd_new(process_loop(p), fd,
		    which == PROCESS_STDIN ? stream_on_input : stream_on_output,
		    s);
		if (s->f == NULL)
			rc = SP_E_NOMEM;
	}
	if (rc != SP_OK) {
		fd_close(&fd);
		s->ended = true;
		return rc;
	}
	s->fd = fd;
	s->ended = false;
	if (which == PROCESS_STDIN)
		input_flush(p);
	else if (!s->paused)
		stream_want(s, LOOP_READ);
	return SP_OK;
}

/* ---- what is asked of it ---------------------------------------------------- */

static void
process_on_linger(void *arg)
{
	struct process *p = arg;
	size_t i;

	for (i = PROCESS_STDOUT; i < PROCESS_STREAMS; i++) {
		/* whoever paused it wants it all: as long as that takes */
		if (!p->streams[i].ended && p->streams[i].paused) {
			loop_timer_set(p->linger, PROCESS_LINGER_MS);
			return;
		}
	}
	for (i = PROCESS_STDOUT; i < PROCESS_STREAMS; i++) {
		if (p->streams[i].ended)
			continue;
		p->exit.cut = true;
		stream_close(&p->streams[i]);
	}
	process_advance(p);
}

static int
process_seal(const struct sandbox_run *run, int *out)
{
	struct buf b = BUF_INIT(SANDBOX_MSG_RUN_MAX);
	int rc = sandbox_msg_run_put(&b, run);

	if (rc == SP_OK)
		rc = fd_sealed("run", buf_view(&b).p, buf_len(&b), out);
	buf_clear(&b);
	return rc;
}

static struct process *
process_new(struct episode *ep, enum sandbox_side side, struct view name)
{
	struct process *p = mem_calloc(1, sizeof(*p));
	size_t i;

	if (p == NULL)
		return NULL;
	p->set = ep->set;
	p->side = (uint8_t)side;
	buf_init(&p->input, PROCESS_INPUT_MAX);
	for (i = 0; i < PROCESS_STREAMS; i++) {
		p->streams[i].p = p;
		p->streams[i].which = (enum process_stream)i;
		p->streams[i].fd = -1;
		p->streams[i].ended = true;
	}
	p->linger = loop_timer_new(ep->set->w.loop, process_on_linger, p);
	p->name = mem_strndup(name.p, name.n);
	if (p->linger == NULL || p->name == NULL) {
		process_free(p);
		return NULL;
	}
	return p;
}

static void
process_begin(struct process *p, struct episode *ep,
    const struct process_events *events, void *arg)
{
	p->ep = ep;
	p->events = events;
	p->arg = arg;
	LIST_INSERT_HEAD(&ep->processes, p, link);
	ep->processes_n++;
}

int
process_run(struct episode *ep, enum sandbox_side side,
    const struct sandbox_run *run, const struct process_events *events,
    void *arg, struct process **out)
{
	struct buf b = BUF_INIT(64);
	struct process *p;
	int fd = -1, rc;

	if (ep->state != EPISODE_LIVE)
		return SP_E_STATE;
	rc = process_seal(run, &fd);
	if (rc != SP_OK)
		return rc;
	p = process_new(ep, side, run->argv.v[0]);
	if (p == NULL) {
		fd_close(&fd);
		return SP_E_NOMEM;
	}
	p->handle = episode_number(ep->set);
	rc = episode_put_which(&b, ep);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, p->side);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, p->handle);
	rc = episode_send(ep->set, MESSAGE_PROCESS_RUN, &b, rc, fd);
	if (rc != SP_OK) {
		process_free(p);
		return rc;
	}
	if (!(run->flags & SANDBOX_RUN_STDIN))
		p->input_end = true;
	process_begin(p, ep, events, arg);
	*out = p;
	return SP_OK;
}

int
process_grade(struct episode *ep, struct view name,
    const struct process_events *events, void *arg, struct process **out)
{
	struct buf b = BUF_INIT(256);
	struct process *p;
	int rc;

	if (ep->state != EPISODE_LIVE)
		return SP_E_STATE;
	p = process_new(ep, SANDBOX_ORACLE, name.n > 0 ? name : VIEW("oracle"));
	if (p == NULL)
		return SP_E_NOMEM;
	p->handle = episode_number(ep->set);
	p->input_end = true;
	rc = wire_put_u32(&b, p->handle);
	if (rc == SP_OK)
		rc = episode_put_which(&b, ep);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, name);
	rc = episode_send(ep->set, MESSAGE_EPISODE_GRADE, &b, rc, -1);
	if (rc != SP_OK) {
		process_free(p);
		return rc;
	}
	process_begin(p, ep, events, arg);
	*out = p;
	return SP_OK;
}

int
process_write(struct process *p, struct view data)
{
	struct process_stream_state *s = &p->streams[PROCESS_STDIN];
	int rc;

	/* before it has started there is no pipe: then it waits here */
	if (p->input_end || p->over || (p->started && s->fd < 0))
		return SP_E_GONE;
	rc = buf_add_view(&p->input, data);
	if (rc == SP_OK && s->fd >= 0)
		input_flush(p);
	/*
	 * Or the pipe has just taken all that waited: then nobody is called
	 * any more, and whoever waits would do so for ever.
	 */
	if (rc == SP_E_LIMIT || buf_len(&p->input) > PROCESS_INPUT_MAX / 2)
		p->input_full = true;
	else if (buf_len(&p->input) <= PROCESS_INPUT_MAX / 4)
		p->input_full = false;
	return rc;
}

void
process_end_input(struct process *p)
{
	p->input_end = true;
	if (p->streams[PROCESS_STDIN].fd >= 0)
		input_flush(p);
}

void
process_signal(struct process *p, unsigned signo)
{
	struct buf b = BUF_INIT(32);
	int rc;

	if (p->ep == NULL || p->over)
		return;
	rc = episode_put_which(&b, p->ep);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, p->handle);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, (uint8_t)signo);
	(void)!episode_send(p->set, MESSAGE_PROCESS_SIGNAL, &b, rc, -1);
}

void
process_pause(struct process *p, enum process_stream stream, bool on)
{
	struct process_stream_state *s = &p->streams[stream];

	if (s->paused == on)
		return;
	s->paused = on;
	stream_want(s, on ? 0 : LOOP_READ);
}

void
process_drop(struct process *p)
{
	size_t i;

	p->events = NULL;
	process_signal(p, SIGKILL);
	/* its end is still to be heard of; what it says is thrown away */
	buf_reset(&p->input, 0);
	process_end_input(p);
	for (i = PROCESS_STDOUT; i < PROCESS_STREAMS; i++)
		process_pause(p, (enum process_stream)i, false);
}

void
process_kill_all(struct episode *ep)
{
	struct buf b = BUF_INIT(32);
	struct process *p;
	int rc;

	if (!ep->placed)
		return;
	rc = episode_put_which(&b, ep);
	/* 0 is nobody's handle: all of them */
	if (rc == SP_OK)
		rc = wire_put_u32(&b, 0);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, SIGKILL);
	if (episode_send(ep->set, MESSAGE_PROCESS_SIGNAL, &b, rc, -1) != SP_OK)
		return;
	LIST_FOREACH (p, &ep->processes, link)
		p->exit.swept = true;
}

void
process_rename(struct process *p, struct view name)
{
	char *copy = mem_strndup(name.p, name.n);

	if (copy == NULL)
		return;
	mem_free(p->name);
	p->name = copy;
}

void
process_lose_all(struct episode *ep, unsigned end)
{
	struct process *p;
	size_t i;

	while ((p = LIST_FIRST(&ep->processes)) != NULL) {
		if (!p->over) {
			p->over = true;
			p->exit.end = (enum sandbox_end)end;
		}
		for (i = 0; i < PROCESS_STREAMS; i++)
			stream_close(&p->streams[i]);
		process_finish(p);
	}
}

/* ---- what the helper tells -------------------------------------------------- */

static int
heard_stdio(struct process *p, struct channel_msg *m, struct wire *w)
{
	uint8_t which = wire_u8(w);
	int fd = m->fd;

	if (wire_done(w) != SP_OK || which >= PROCESS_STREAMS ||
	    p->streams[which].fd >= 0 || p->started)
		return SP_E_PROTO;
	m->fd = -1;
	/* without memory for it the process runs on, unheard there */
	if (process_take_stream(p, (enum process_stream)which, fd) != SP_OK &&
	    which != PROCESS_STDIN && p->events != NULL &&
	    p->events->closed != NULL)
		p->events->closed(p->arg, (enum process_stream)which);
	return SP_OK;
}

static int
heard_started(struct process *p, struct channel_msg *m, struct wire *w)
{
	const struct episode_news n = {
		.what = EPISODE_PROCESS_STARTED,
		.process = p,
	};

	struct view paths = VIEW_NONE;

	(void)m;
	p->pid = wire_u32(w);
	if (w->n > 0 && p->side == SANDBOX_ORACLE) {
		p->links_n = wire_u32(w);
		paths = wire_bytes(w);
	}
	if (wire_done(w) != SP_OK || p->started ||
	    (paths.n > 0 && paths.p[paths.n - 1] != '\0'))
		return SP_E_PROTO;
	p->started = true;
	if (p->links_n > 0 && p->events != NULL && p->events->links != NULL)
		p->events->links(p->arg, p->links_n, paths);
	p->ep->used_us = episode_wall_us();
	episode_tell(p->ep, &n);
	if (p->events != NULL)
		p->events->started(p->arg, p->pid);
	return SP_OK;
}

static int
heard_not_started(struct process *p, struct channel_msg *m, struct wire *w)
{
	const struct process_events *events = p->events;
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	unsigned stage = wire_u8(w);
	uint32_t number = wire_u32(w);
	struct view what = wire_bytes(w);

	(void)m;
	if (wire_done(w) != SP_OK || p->started)
		return SP_E_PROTO;
	if (number != 0 &&
	    buf_printf(&b, "%.*s: %s", VIEW_ARG(what), strerror((int)number)) ==
		SP_OK)
		what = buf_view(&b);
	process_retire(p);
	if (events != NULL)
		events->not_started(p->arg, stage, (int)number, what);
	buf_clear(&b);
	return SP_OK;
}

bool
process_refused(struct episode_set *s, uint32_t handle, unsigned why,
    struct view what)
{
	const struct process_events *events;
	struct process *p = NULL;
	struct episode *ep;

	LIST_FOREACH (ep, &s->episodes, link) {
		LIST_FOREACH (p, &ep->processes, link)
			if (p->handle == handle && p->side == SANDBOX_ORACLE &&
			    !p->started)
				break;
		if (p != NULL)
			break;
	}
	if (p == NULL)
		return false;
	events = p->events;
	process_retire(p);
	if (events != NULL)
		events->not_started(p->arg, 0, (int)why, what);
	return true;
}

static int
heard_exited(struct process *p, struct channel_msg *m, struct wire *w)
{
	(void)m;
	p->exit.end = (enum sandbox_end)wire_u8(w);
	p->exit.status = wire_u8(w);
	p->exit.user_us = wire_u64(w);
	p->exit.system_us = wire_u64(w);
	p->exit.peak_bytes = wire_u64(w);
	if (wire_done(w) != SP_OK || !p->started || p->over)
		return SP_E_PROTO;
	p->over = true;
	stream_close(&p->streams[PROCESS_STDIN]);
	loop_timer_set(p->linger, PROCESS_LINGER_MS);
	if (p->input_full && p->events != NULL) {
		p->input_full = false;
		p->events->writable(p->arg, true);
	}
	process_advance(p);
	return SP_OK;
}

static const struct {
	enum message_type type;
	int (*handle)(struct process *p, struct channel_msg *m, struct wire *w);
} process_rows[] = {
	{ MESSAGE_PROCESS_STDIO, heard_stdio },
	{ MESSAGE_PROCESS_STARTED, heard_started },
	{ MESSAGE_PROCESS_NOT_STARTED, heard_not_started },
	{ MESSAGE_PROCESS_EXITED, heard_exited },
};

int
process_heard(struct episode *ep, struct channel_msg *m, struct view rest)
{
	struct process *p;
	struct wire w;
	uint32_t handle;
	size_t i;

	wire_init(&w, rest);
	handle = wire_u32(&w);
	LIST_FOREACH (p, &ep->processes, link)
		if (p->handle == handle)
			break;
	/* lost with a reset a moment ago */
	if (p == NULL)
		return SP_OK;
	for (i = 0; i < sizeof(process_rows) / sizeof(process_rows[0]); i++)
		if (process_rows[i].type == m->type)
			return process_rows[i].handle(p, m, &w);
	return SP_E_PROTO;
}

const char *
process_side(unsigned side)
{
	return side == SANDBOX_WORKER ? "worker"
	    : side == SANDBOX_ORACLE  ? "oracle"
				      : "agent";
}
