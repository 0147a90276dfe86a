#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/loop.h"
#include "event/loop_priv.h"

/* Where the kernel timer of a stopped loop_timer stands. */
enum { FAR_MS = 24 * 3600 * 1000 };
#define NEVER UINT64_MAX

TAILQ_HEAD(task_list, loop_task);
TAILQ_HEAD(timer_list, loop_timer);

struct loop {
	struct event_base *base;
	uint64_t now_us; /* of this turn, when now_set */
	uint64_t turn;
	bool now_set;
	bool stop;
	bool dead; /* in loop_free(): nobody is called any more */
	struct task_list now_tasks; /* for the end of this turn */
	struct task_list next_tasks; /* posted again by those that ran */
	/* timers that could not be armed for want of memory: polled */
	struct timer_list unarmed;
	_Alignas(max_align_t) char scratch[LOOP_SCRATCH_BYTES];
};

/*
 * Reading and writing are two events, so that turning writing on and off is
 * one epoll_ctl() each; the second is made when it is first needed.
 */
struct loop_fd {
	struct event rd; /* or the edge-triggered watch for hang-ups */
	struct event *wr;
	struct loop *loop;
	void (*cb)(void *arg, unsigned ready);
	void *arg;
	int fd;
	uint8_t want;
	uint8_t have; /* what the kernel was told */
};

struct loop_timer {
	struct event ev;
	TAILQ_ENTRY(loop_timer) link; /* in unarmed */
	bool is_unarmed;
	struct loop *loop;
	void (*cb)(void *arg);
	void *arg;
	uint64_t due_us; /* NEVER when stopped */
	uint64_t armed_us; /* when ev fires */
};

struct loop_task {
	TAILQ_ENTRY(loop_task) link;
	struct loop *loop;
	struct task_list *on; /* the list it waits in, or NULL */
	void (*cb)(void *arg);
	void *arg;
	uint64_t ran_turn;
};

static void
loop_log(int severity, const char *msg)
{
	if (severity >= EVENT_LOG_WARN)
		log_warn("event loop: %s", msg);
}

static void
loop_fatal(int en)
{
	(void)en;
	err_bug(__FILE__, __LINE__, "libevent gave up");
}

/*
 * No change list: a descriptor that was passed to another process must leave
 * the epoll set before it is closed here, or it would go on firing.
 */
static struct event_base *
base_new(void)
{
	struct event_config *cfg;
	struct event_base *base = NULL;

	cfg = event_config_new();
	if (cfg == NULL)
		return NULL;
	if (event_config_set_flag(cfg,
		EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0 &&
	    event_config_require_features(cfg, EV_FEATURE_O1) == 0)
		base = event_base_new_with_config(cfg);
	event_config_free(cfg);
	return base;
}

struct loop *
loop_new(void)
{
	struct loop *l;

	event_set_mem_functions(mem_alloc, mem_realloc, mem_free);
	event_set_log_callback(loop_log);
	event_set_fatal_callback(loop_fatal);
	/* a write to a peer that left must be an error, not a death */
	(void)signal(SIGPIPE, SIG_IGN);
	l = mem_calloc(1, sizeof(*l));
	if (l == NULL)
		return NULL;
	TAILQ_INIT(&l->now_tasks);
	TAILQ_INIT(&l->next_tasks);
	TAILQ_INIT(&l->unarmed);
	l->turn = 1;
	l->base = base_new();
	if (l->base == NULL) {
		mem_free(l);
		return NULL;
	}
	return l;
}

void
loop_free(struct loop *l)
{
	if (l == NULL)
		return;
	/* what libevent deferred (cancelled queries) gives its memory back */
	l->dead = true;
	(void)event_base_loop(l->base, EVLOOP_NONBLOCK);
	event_base_free(l->base);
	mem_free(l);
}

struct event_base *
loop_base(struct loop *l)
{
	return l->base;
}

static void
loop_touch(struct loop *l)
{
	if (l->now_set)
		return;
	l->now_us = clock_us();
	l->now_set = true;
}

uint64_t
loop_now_us(const struct loop *l)
{
	return l->now_set ? l->now_us : clock_us();
}

uint64_t
loop_now_ms(const struct loop *l)
{
	return loop_now_us(l) / 1000;
}

char *
loop_scratch(struct loop *l)
{
	return l->scratch;
}

/* ---- descriptors --------------------------------------------------------- */

static int fd_sync(struct loop_fd *f, unsigned have);

static void
fd_deliver(struct loop_fd *f, unsigned ready)
{
	loop_touch(f->loop);
	if (f->loop->dead)
		return;
	if ((ready & f->want) == 0) {
		/* left on when it was last wanted, see loop_fd_want() */
		(void)fd_sync(f, f->want);
		return;
	}
	f->cb(f->arg, ready & f->want); /* may free f */
}

static void
fd_ready(evutil_socket_t fd, short what, void *arg)
{
	struct loop_fd *f = arg;

	(void)fd;
	fd_deliver(f, what & EV_WRITE ? LOOP_WRITE : LOOP_READ);
}

/*
 * Nothing but errors and hang-ups is of interest, which libevent can only
 * report as readiness to write; edge-triggered, that is said once and then
 * only when something changes, so poll() sorts out what it was.
 */
static void
fd_hup(evutil_socket_t fd, short what, void *arg)
{
	struct loop_fd *f = arg;
	struct pollfd p = { .fd = fd, .events = 0 };

	(void)what;
	if (poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP)) != 0)
		fd_deliver(f, LOOP_HUP);
}

struct loop_fd *
loop_fd_new(struct loop *l, int fd, void (*cb)(void *arg, unsigned ready),
    void *arg)
{
	struct loop_fd *f;

	f = mem_calloc(1, sizeof(*f));
	if (f == NULL)
		return NULL;
	f->loop = l;
	f->fd = fd;
	f->cb = cb;
	f->arg = arg;
	(void)event_assign(&f->rd, l->base, fd, EV_READ | EV_PERSIST, fd_ready,
	    f);
	return f;
}

static int
fd_add(struct loop_fd *f, unsigned bit)
{
	struct event *ev = &f->rd;

	if (bit == LOOP_WRITE) {
		if (f->wr == NULL) {
			f->wr = mem_alloc(sizeof(*f->wr));
			if (f->wr == NULL)
				return SP_E_NOMEM;
			(void)event_assign(f->wr, f->loop->base, f->fd,
			    EV_WRITE | EV_PERSIST, fd_ready, f);
		}
		ev = f->wr;
	} else if (bit == LOOP_HUP) {
		(void)event_assign(ev, f->loop->base, f->fd,
		    EV_WRITE | EV_ET | EV_PERSIST, fd_hup, f);
	} else {
		(void)event_assign(ev, f->loop->base, f->fd,
		    EV_READ | EV_PERSIST, fd_ready, f);
	}
	if (event_add(ev, NULL) == -1)
		return errno == ENOMEM ? SP_E_NOMEM : SP_E_SYS;
	f->have |= (uint8_t)bit;
	return 0;
}

static void
fd_del(struct loop_fd *f, unsigned bit)
{
	(void)event_del(bit == LOOP_WRITE ? f->wr : &f->rd);
	f->have &= (uint8_t)~bit;
}

/* Tells the kernel; the watch for hang-ups stands alone or not at all. */
static int
fd_sync(struct loop_fd *f, unsigned have)
{
	static const unsigned bits[] = { LOOP_HUP, LOOP_READ, LOOP_WRITE };
	int rc;

	if ((have & (LOOP_READ | LOOP_WRITE)) != 0)
		have &= ~(unsigned)LOOP_HUP;
	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if ((f->have & bits[i]) != 0 && (have & bits[i]) == 0)
			fd_del(f, bits[i]);
	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if ((f->have & bits[i]) == 0 && (have & bits[i]) != 0) {
			rc = fd_add(f, bits[i]);
			if (rc != 0)
				return rc;
		}
	return 0;
}

int
loop_fd_want(struct loop_fd *f, unsigned want)
{
	unsigned have = want;

	if (want == f->want)
		return 0;
	f->want = (uint8_t)want;
	/*
	 * Reading is turned off only once something arrives: most often it
	 * is wanted again before that.
	 */
	if ((f->have & LOOP_READ) != 0)
		have |= LOOP_READ;
	return fd_sync(f, have);
}

void
loop_fd_free(struct loop_fd *f)
{
	if (f == NULL)
		return;
	(void)fd_sync(f, 0);
	mem_free(f->wr);
	mem_free(f);
}

/* ---- timers -------------------------------------------------------------- */

/*
 * The event stays in libevent's heap all its life, so that moving it needs no
 * memory; but for the moment of firing, when others may take its place.
 */
static void
timer_arm(struct loop_timer *t, uint64_t at_us, uint64_t now_us)
{
	uint64_t in_us = at_us > now_us ? at_us - now_us : 0;
	struct timeval tv;

	if (in_us > (uint64_t)FAR_MS * 1000)
		in_us = (uint64_t)FAR_MS * 1000;
	tv.tv_sec = (time_t)(in_us / 1000000);
	tv.tv_usec = (suseconds_t)(in_us % 1000000);
	t->armed_us = now_us + in_us;
	if (event_add(&t->ev, &tv) == 0)
		return;
	t->armed_us = NEVER;
	t->is_unarmed = true;
	TAILQ_INSERT_TAIL(&t->loop->unarmed, t, link);
}

/* False while there are timers that the kernel does not know of. */
static bool
timers_rearm(struct loop *l)
{
	struct loop_timer *t;

	while ((t = TAILQ_FIRST(&l->unarmed)) != NULL) {
		TAILQ_REMOVE(&l->unarmed, t, link);
		t->is_unarmed = false;
		timer_arm(t, t->due_us, clock_us());
		if (t->is_unarmed)
			return false;
	}
	return true;
}

static void
timer_fired(evutil_socket_t fd, short what, void *arg)
{
	struct loop_timer *t = arg;
	uint64_t now;

	(void)fd;
	(void)what;
	loop_touch(t->loop);
	if (t->loop->dead)
		return;
	/*
	 * Pushed back or stopped since, or libevent's coarse clock was ahead
	 * of the precise one: waits for the rest.
	 */
	now = clock_us();
	if (t->due_us > now) {
		timer_arm(t, t->due_us, now);
		return;
	}
	t->due_us = NEVER;
	timer_arm(t, NEVER, now);
	t->cb(t->arg); /* may free t */
}

struct loop_timer *
loop_timer_new(struct loop *l, void (*cb)(void *arg), void *arg)
{
	struct timeval far = { FAR_MS / 1000, 0 };
	struct loop_timer *t;

	t = mem_calloc(1, sizeof(*t));
	if (t == NULL)
		return NULL;
	t->loop = l;
	t->cb = cb;
	t->arg = arg;
	t->due_us = NEVER;
	t->armed_us = loop_now_us(l) + (uint64_t)FAR_MS * 1000;
	(void)event_assign(&t->ev, l->base, -1, 0, timer_fired, t);
	if (event_add(&t->ev, &far) == -1) {
		mem_free(t);
		return NULL;
	}
	return t;
}

void
loop_timer_set(struct loop_timer *t, uint64_t in_ms)
{
	uint64_t now = loop_now_us(t->loop);

	if (in_ms > UINT64_MAX / 4000)
		in_ms = UINT64_MAX / 4000;
	t->due_us = now + in_ms * 1000;
	if (t->due_us < t->armed_us && !t->is_unarmed)
		timer_arm(t, t->due_us, now);
}

void
loop_timer_stop(struct loop_timer *t)
{
	t->due_us = NEVER;
}

void
loop_timer_free(struct loop_timer *t)
{
	if (t == NULL)
		return;
	if (t->is_unarmed)
		TAILQ_REMOVE(&t->loop->unarmed, t, link);
	(void)event_del(&t->ev);
	mem_free(t);
}

/* ---- tasks --------------------------------------------------------------- */

struct loop_task *
loop_task_new(struct loop *l, void (*cb)(void *arg), void *arg)
{
	struct loop_task *t;

	t = mem_calloc(1, sizeof(*t));
	if (t == NULL)
		return NULL;
	t->loop = l;
	t->cb = cb;
	t->arg = arg;
	return t;
}

void
loop_task_post(struct loop_task *t)
{
	struct loop *l = t->loop;

	if (t->on != NULL)
		return;
	t->on = t->ran_turn == l->turn ? &l->next_tasks : &l->now_tasks;
	TAILQ_INSERT_TAIL(t->on, t, link);
}

void
loop_task_free(struct loop_task *t)
{
	if (t == NULL)
		return;
	if (t->on != NULL)
		TAILQ_REMOVE(t->on, t, link);
	mem_free(t);
}

/* ---- turns --------------------------------------------------------------- */

/*
 * Each task runs at most once a turn, so tasks that post each other cannot
 * keep the descriptors waiting.
 */
static void
tasks_run(struct loop *l)
{
	struct loop_task *t;

	while ((t = TAILQ_FIRST(&l->now_tasks)) != NULL) {
		TAILQ_REMOVE(&l->now_tasks, t, link);
		t->on = NULL;
		t->ran_turn = l->turn;
		t->cb(t->arg); /* may free t */
	}
	while ((t = TAILQ_FIRST(&l->next_tasks)) != NULL) {
		TAILQ_REMOVE(&l->next_tasks, t, link);
		t->on = &l->now_tasks;
		TAILQ_INSERT_TAIL(&l->now_tasks, t, link);
	}
}

int
loop_run(struct loop *l)
{
	int flags;

	l->stop = false;
	while (!l->stop) {
		flags = EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY;
		if (!TAILQ_EMPTY(&l->now_tasks) || !timers_rearm(l))
			flags |= EVLOOP_NONBLOCK;
		l->now_set = false;
		if (event_base_loop(l->base, flags) == -1)
			return SP_E_SYS;
		loop_touch(l);
		tasks_run(l);
		l->turn++;
	}
	l->now_set = false;
	return 0;
}

void
loop_stop(struct loop *l)
{
	l->stop = true;
}
