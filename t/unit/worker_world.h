/* A worker whose helper and process are played by the test. */
#ifndef SP_T_UNIT_WORKER_WORLD_H
#define SP_T_UNIT_WORKER_WORLD_H

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "event/loop.h"
#include "gate/episode.h"
#include "gate/process.h"
#include "gate/worker_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"

static struct loop *loop;
static struct episode_set *episodes;
static struct worker_set *workers;
static struct conf_environment environment;
static struct episode *ep;
static struct worker *w;

/* What the helper heard. */
static struct {
	uint32_t request; /* of the last CREATE, RESET or END */
	uint32_t handle; /* of the last PROCESS_RUN */
	unsigned runs, kills, signals;
	int fail; /* what sending answers */
} sent;

/* The process's ends of its pipes. */
static int its_in = -1, its_out = -1, its_err = -1, its_events = -1;

static inline int
world_send(void *arg, enum message_type type, struct view body, int fd)
{
	struct wire r;
	uint32_t first, handle;

	(void)arg;
	fd_close(&fd);
	if (sent.fail != 0)
		return sent.fail;
	wire_init(&r, body);
	first = wire_u32(&r);
	if (type == MESSAGE_PROCESS_RUN) {
		(void)wire_u32(&r);
		(void)wire_u8(&r);
		sent.handle = wire_u32(&r);
		sent.runs++;
	} else if (type == MESSAGE_PROCESS_SIGNAL) {
		(void)wire_u32(&r);
		handle = wire_u32(&r);
		sent.kills += handle == 0;
		sent.signals += handle != 0;
	} else {
		sent.request = first;
	}
	return SP_OK;
}

static const struct conf_environment *
world_environment(void *arg, const struct episode *e)
{
	(void)arg;
	(void)e;
	return &environment;
}

static struct buf events_told = BUF_INIT(1 << 20);

static inline void
world_event(void *arg, struct episode *e, struct view json)
{
	(void)arg;
	(void)e;
	(void)!buf_add_view(&events_told, json);
}

static inline void
world_told(void *arg, struct episode *e, const struct worker_told *t)
{
	(void)arg;
	(void)e;
	buf_reset(&events_told, 1 << 20);
	(void)!buf_printf(&events_told, "%d %s %.*s %s: %.*s", (int)t->whose,
	    t->step ? "step" : "mcp", VIEW_ARG(t->request),
	    t->code != NULL ? t->code : "ok", VIEW_ARG(t->body));
}

static inline void
world_lost(void *arg, struct episode *e, uint64_t n, const char *reason)
{
	(void)arg;
	(void)e;
	(void)!buf_printf(&events_told, "-%llu %s-", (unsigned long long)n,
	    reason);
}

static inline void
world_news(void *arg, struct episode *e, const struct episode_news *n)
{
	(void)arg;
	worker_set_news(workers, e, n);
}

static inline int
world_hear(enum message_type type, struct buf *b, int fd)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(b),
		.fd = fd };
	int rc = episode_set_heard(episodes, &m);

	fd_close(&m.fd);
	buf_clear(b);
	return rc;
}

/* The memory that fails is not the test's: a second try has it. */
static inline void
put_u8(struct buf *b, unsigned v)
{
	if (wire_put_u8(b, (uint8_t)v) != SP_OK &&
	    wire_put_u8(b, (uint8_t)v) != SP_OK)
		abort();
}

static inline void
put_u32(struct buf *b, uint32_t v)
{
	if (wire_put_u32(b, v) != SP_OK && wire_put_u32(b, v) != SP_OK)
		abort();
}

static inline void
put_bytes(struct buf *b, struct view v)
{
	if (wire_put_bytes(b, v) != SP_OK && wire_put_bytes(b, v) != SP_OK)
		abort();
}

static inline void
world_place(struct buf *b)
{
	put_u32(b, 1);
	put_u32(b, 1);
}

/* One of its pipes; the far end. */
static inline int
world_pipe(unsigned which)
{
	struct buf b = BUF_INIT(64);
	int ends[2], in = which == PROCESS_STDIN;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		abort();
	world_place(&b);
	put_u32(&b, sent.handle);
	put_u8(&b, which);
	(void)!world_hear(MESSAGE_PROCESS_STDIO, &b, ends[in ? 1 : 0]);
	return ends[in ? 0 : 1];
}

static inline void
world_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static inline void
turn(uint64_t ms)
{
	struct loop_timer *t;

	do
		t = loop_timer_new(loop, world_stop, NULL);
	while (t == NULL);
	loop_timer_set(t, ms);
	(void)!loop_run(loop);
	loop_timer_free(t);
}

static inline void
world_close_pipes(void)
{
	fd_close(&its_in);
	fd_close(&its_out);
	fd_close(&its_err);
	fd_close(&its_events);
}

/* The process that was asked for runs. */
static inline void
world_started(void)
{
	struct buf b = BUF_INIT(64);

	world_close_pipes();
	its_in = world_pipe(PROCESS_STDIN);
	its_out = world_pipe(PROCESS_STDOUT);
	its_err = world_pipe(PROCESS_STDERR);
	its_events = world_pipe(PROCESS_EVENTS);
	world_place(&b);
	put_u32(&b, sent.handle);
	put_u32(&b, 2);
	(void)!world_hear(MESSAGE_PROCESS_STARTED, &b, -1);
	turn(0);
}

static inline void
world_exited(unsigned end, unsigned status)
{
	struct buf b = BUF_INIT(64);
	int i;

	world_close_pipes();
	world_place(&b);
	put_u32(&b, sent.handle);
	put_u8(&b, end);
	put_u8(&b, status);
	for (i = 0; i < 6; i++)
		put_u32(&b, 0);
	(void)!world_hear(MESSAGE_PROCESS_EXITED, &b, -1);
	turn(5);
}

static inline void
world_made(void)
{
	struct buf b = BUF_INIT(64);

	world_place(&b);
	put_u32(&b, sent.request);
	put_bytes(&b, VIEW("e"));
	(void)!world_hear(MESSAGE_EPISODE_MADE, &b, -1);
}

static inline void
world_freeze(bool on)
{
	struct buf b = BUF_INIT(64);

	if (episode_freeze(ep, on, NULL, NULL) != SP_OK)
		abort();
	world_place(&b);
	put_u32(&b, sent.request);
	put_u8(&b, on ? SANDBOX_FROZEN : SANDBOX_THAWED);
	if (world_hear(MESSAGE_EPISODE_FROZEN, &b, -1) != SP_OK)
		abort();
}

static inline void
world_ended(void)
{
	struct buf b = BUF_INIT(64);

	world_place(&b);
	put_u32(&b, 0);
	put_u8(&b, SANDBOX_END_LOST);
	put_bytes(&b, VIEW_NONE);
	(void)!world_hear(MESSAGE_EPISODE_ENDED, &b, -1);
	turn(0);
}

/* An episode with a worker that starts. */
static inline void
world_open(void)
{
	w = NULL;
	if (episode_create(episodes, VIEW("e"), VIEW("one"), NULL, NULL, &ep) !=
	    SP_OK)
		return;
	world_made();
	w = worker_of(ep);
}

static inline void
world_close(void)
{
	sent.fail = 0;
	if (episode_find(episodes, VIEW("one")) != NULL)
		world_ended();
	world_close_pipes();
	turn(0);
	w = NULL;
	ep = NULL;
}

static inline int
world_init(unsigned kind)
{
	static struct view argv[] = { VIEW_INIT("/bin/worker") };
	const struct episode_world e = {
		.send = world_send,
		.news = world_news,
	};
	const struct worker_world x = {
		.environment = world_environment,
		.event = world_event,
		.told = world_told,
		.lost = world_lost,
	};
	struct episode_world ew = e;
	struct worker_world ww = x;

	environment.worker = kind;
	environment.worker_command.v = argv;
	environment.worker_command.n = 1;
	environment.worker_factory = VIEW("m:f");
	environment.worker_action_class = VIEW("m:c");
	ew.loop = ww.loop = loop = loop_new();
	episodes = episode_set_new(&ew);
	workers = worker_set_new(&ww);
	return loop != NULL && episodes != NULL && workers != NULL ? 0 : -1;
}

static inline void
world_fini(void)
{
	worker_set_free(workers);
	episode_set_free(episodes);
	loop_free(loop);
	buf_clear(&events_told);
}

/* What the worker says and hears. */
static inline void
say_bytes(struct view v)
{
	unsigned tries = 0;
	ssize_t n;

	while (v.n > 0) {
		n = write(its_out, v.p, v.n);
		if (n > 0)
			v = view_from(v, (size_t)n);
		else if (its_out < 0 || errno != EAGAIN || tries++ > 1000 ||
		    w == NULL || worker_state(w) == WORKER_FAILED)
			return;
		else
			turn(0);
	}
	turn(1);
}

static inline void
say(const char *line)
{
	say_bytes(view_str(line));
	say_bytes(VIEW("\n"));
}

static struct buf its_input = BUF_INIT(64 << 20);

static inline const char *
heard(void)
{
	char part[65536];
	ssize_t n;

	turn(0);
	buf_reset(&its_input, 0);
	while (its_in >= 0 && (n = read(its_in, part, sizeof(part))) > 0) {
		if (buf_add(&its_input, part, (size_t)n) != SP_OK)
			break;
		turn(0);
	}
	if (buf_add_char(&its_input, '\0') != SP_OK)
		return "";
	return buf_view(&its_input).p;
}

#endif
