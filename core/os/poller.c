#include "config.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/fd.h"
#include "os/poller.h"

enum {
	POLLER_BATCH = 64, /* events taken at once */
	POLLER_AFTER_MAX = 8,
	POLLER_SIGNALS_MAX = 65, /* 1 to 64 */
	POLLER_NOT_ARMED = -1,
};

/* Owner: the caller; freed by the poller when no batch is under way. */
struct poller_fd {
	struct poller *poller;
	int fd;
	unsigned want;
	bool in_set; /* known to epoll */
	bool dead; /* removed; freed after the batch */
	void (*cb)(void *arg, unsigned ready);
	void *arg;
	LIST_ENTRY(poller_fd) link;
};

struct poller_timer {
	struct poller *poller;
	uint64_t at_ms;
	uint64_t seq; /* orders equal times; tells a turn from the next */
	long slot; /* in the heap */
	void (*cb)(void *arg);
	void *arg;
};

struct poller_signal {
	void (*cb)(void *arg, int signo);
	void *arg;
};

struct poller {
	int epoll;
	int signals;
	bool stop;
	bool in_batch;
	LIST_HEAD(poller_dead, poller_fd) dead;
	struct poller_timer **heap; /* earliest first */
	size_t heap_n; /* armed */
	size_t heap_cap; /* slots, at least timers_n */
	size_t timers_n; /* timers in existence */
	uint64_t seq;
	struct poller_fd *signals_fd;
	sigset_t mask;
	struct poller_signal signal[POLLER_SIGNALS_MAX];
	struct {
		void (*cb)(void *arg);
		void *arg;
	} after[POLLER_AFTER_MAX];
	unsigned after_n;
};

struct poller *
poller_new(void)
{
	struct poller *p = mem_calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->signals = -1;
	LIST_INIT(&p->dead);
	sigemptyset(&p->mask);
	p->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll < 0) {
		mem_free(p);
		return NULL;
	}
	return p;
}

static void
poller_bury(struct poller *p)
{
	struct poller_fd *f;

	while ((f = LIST_FIRST(&p->dead)) != NULL) {
		LIST_REMOVE(f, link);
		mem_free(f);
	}
}

void
poller_free(struct poller *p)
{
	if (p == NULL)
		return;
	err_assert(!p->in_batch);
	poller_remove(p->signals_fd);
	fd_close(&p->signals);
	poller_bury(p);
	fd_close(&p->epoll);
	mem_free(p->heap);
	mem_free(p);
}

static int
poller_ctl(struct poller_fd *f, unsigned want)
{
	struct epoll_event ev;
	int op;

	memset(&ev, 0, sizeof(ev));
	ev.data.ptr = f;
	if (want & POLLER_READ)
		ev.events |= EPOLLIN | EPOLLRDHUP;
	if (want & POLLER_WRITE)
		ev.events |= EPOLLOUT;
	/*
	 * epoll tells of errors and hang-ups unasked: whoever wants nothing
	 * leaves the set, or the loop would spin.
	 */
	if (ev.events == 0)
		op = EPOLL_CTL_DEL;
	else
		op = f->in_set ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	if (op == EPOLL_CTL_DEL && !f->in_set)
		return SP_OK;
	if (epoll_ctl(f->poller->epoll, op, f->fd, &ev) != 0)
		return err_from_errno(errno);
	f->in_set = ev.events != 0;
	return SP_OK;
}

struct poller_fd *
poller_add(struct poller *p, int fd, unsigned want,
    void (*cb)(void *arg, unsigned ready), void *arg)
{
	struct poller_fd *f = mem_calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->poller = p;
	f->fd = fd;
	f->cb = cb;
	f->arg = arg;
	f->want = want & (POLLER_READ | POLLER_WRITE);
	if (poller_ctl(f, f->want) != SP_OK) {
		mem_free(f);
		return NULL;
	}
	return f;
}

int
poller_want(struct poller_fd *f, unsigned want)
{
	int rc;

	err_assert(!f->dead);
	want &= POLLER_READ | POLLER_WRITE;
	if (want == f->want)
		return SP_OK;
	rc = poller_ctl(f, want);
	if (rc == SP_OK)
		f->want = want;
	return rc;
}

void
poller_remove(struct poller_fd *f)
{
	if (f == NULL)
		return;
	err_assert(!f->dead);
	/* fails when the descriptor was closed before: gone all the same */
	(void)poller_ctl(f, 0);
	f->dead = true;
	LIST_INSERT_HEAD(&f->poller->dead, f, link);
	if (!f->poller->in_batch)
		poller_bury(f->poller);
}

/* ---- timers: a binary heap ------------------------------------------------ */

static bool
timer_before(const struct poller_timer *a, const struct poller_timer *b)
{
	if (a->at_ms != b->at_ms)
		return a->at_ms < b->at_ms;
	return a->seq < b->seq;
}

static void
timer_put(struct poller *p, size_t slot, struct poller_timer *t)
{
	p->heap[slot] = t;
	t->slot = (long)slot;
}

static void
timer_up(struct poller *p, size_t slot, struct poller_timer *t)
{
	size_t parent;

	while (slot > 0) {
		parent = (slot - 1) / 2;
		if (!timer_before(t, p->heap[parent]))
			break;
		timer_put(p, slot, p->heap[parent]);
		slot = parent;
	}
	timer_put(p, slot, t);
}

static void
timer_down(struct poller *p, size_t slot, struct poller_timer *t)
{
	size_t child;

	while ((child = 2 * slot + 1) < p->heap_n) {
		if (child + 1 < p->heap_n &&
		    timer_before(p->heap[child + 1], p->heap[child]))
			child++;
		if (!timer_before(p->heap[child], t))
			break;
		timer_put(p, slot, p->heap[child]);
		slot = child;
	}
	timer_put(p, slot, t);
}

struct poller_timer *
poller_timer_new(struct poller *p, void (*cb)(void *arg), void *arg)
{
	struct poller_timer *t, **heap;
	size_t cap;

	/* the slot now, so that arming it cannot fail */
	if (p->timers_n == p->heap_cap) {
		cap = p->heap_cap == 0 ? 16 : p->heap_cap * 2;
		heap = mem_reallocarray(p->heap, cap,
		    sizeof(struct poller_timer *));
		if (heap == NULL)
			return NULL;
		p->heap = heap;
		p->heap_cap = cap;
	}
	t = mem_calloc(1, sizeof(*t));
	if (t == NULL)
		return NULL;
	t->poller = p;
	t->slot = POLLER_NOT_ARMED;
	t->cb = cb;
	t->arg = arg;
	p->timers_n++;
	return t;
}

void
poller_timer_stop(struct poller_timer *t)
{
	struct poller *p = t->poller;
	struct poller_timer *last;
	size_t slot;

	if (t->slot == POLLER_NOT_ARMED)
		return;
	slot = (size_t)t->slot;
	t->slot = POLLER_NOT_ARMED;
	last = p->heap[--p->heap_n];
	if (last == t)
		return;
	if (slot > 0 && timer_before(last, p->heap[(slot - 1) / 2]))
		timer_up(p, slot, last);
	else
		timer_down(p, slot, last);
}

void
poller_timer_set(struct poller_timer *t, uint64_t in_ms)
{
	struct poller *p = t->poller;
	uint64_t now = clock_ms();

	poller_timer_stop(t);
	t->at_ms = in_ms > UINT64_MAX - now ? UINT64_MAX : now + in_ms;
	t->seq = p->seq++;
	timer_up(p, p->heap_n++, t);
}

void
poller_timer_free(struct poller_timer *t)
{
	if (t == NULL)
		return;
	poller_timer_stop(t);
	t->poller->timers_n--;
	mem_free(t);
}

static void
poller_run_timers(struct poller *p)
{
	uint64_t now = clock_ms(), turn = p->seq;
	struct poller_timer *t;

	/* those armed by these callbacks have a later seq: next turn */
	while (p->heap_n > 0 && !p->stop) {
		t = p->heap[0];
		if (t->at_ms > now || t->seq >= turn)
			break;
		poller_timer_stop(t);
		t->cb(t->arg);
	}
}

static int
poller_timeout(const struct poller *p)
{
	uint64_t now;

	if (p->heap_n == 0)
		return -1;
	now = clock_ms();
	if (p->heap[0]->at_ms <= now)
		return 0;
	if (p->heap[0]->at_ms - now > INT_MAX)
		return INT_MAX;
	return (int)(p->heap[0]->at_ms - now);
}

/* ---- signals -------------------------------------------------------------- */

static void
poller_signals_ready(void *arg, unsigned ready)
{
	struct poller *p = arg;
	struct signalfd_siginfo info;
	struct poller_signal *s;
	size_t n;
	int i;

	(void)ready;
	/* at most one of each is pending, but for the real-time ones */
	for (i = 0; i < POLLER_BATCH; i++) {
		if (fd_read(p->signals, &info, sizeof(info), &n) != SP_OK ||
		    n != sizeof(info))
			return;
		if (info.ssi_signo >= POLLER_SIGNALS_MAX)
			continue;
		s = &p->signal[info.ssi_signo];
		if (s->cb != NULL)
			s->cb(s->arg, (int)info.ssi_signo);
	}
}

int
poller_signal(struct poller *p, int signo, void (*cb)(void *arg, int signo),
    void *arg)
{
	sigset_t one;
	int fd;

	if (signo <= 0 || signo >= POLLER_SIGNALS_MAX)
		return SP_E_ARG;
	sigemptyset(&one);
	sigaddset(&one, signo);
	sigaddset(&p->mask, signo);
	p->signal[signo].cb = cb;
	p->signal[signo].arg = arg;
	if (sigprocmask(SIG_BLOCK, &one, NULL) != 0)
		return err_from_errno(errno);
	fd = signalfd(p->signals, &p->mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_from_errno(errno);
	p->signals = fd;
	if (p->signals_fd == NULL) {
		p->signals_fd =
		    poller_add(p, fd, POLLER_READ, poller_signals_ready, p);
		if (p->signals_fd == NULL)
			return SP_E_NOMEM;
	}
	return SP_OK;
}

/* ---- the loop ------------------------------------------------------------- */

void
poller_after(struct poller *p, void (*cb)(void *arg), void *arg)
{
	err_assert(p->after_n < POLLER_AFTER_MAX);
	p->after[p->after_n].cb = cb;
	p->after[p->after_n].arg = arg;
	p->after_n++;
}

static void
poller_dispatch(struct poller *p, const struct epoll_event *ev, int n)
{
	struct poller_fd *f;
	unsigned ready;
	int i;

	for (i = 0; i < n && !p->stop; i++) {
		f = ev[i].data.ptr;
		if (f->dead)
			continue;
		ready = 0;
		if (ev[i].events & EPOLLIN)
			ready |= POLLER_READ;
		if (ev[i].events & EPOLLOUT)
			ready |= POLLER_WRITE;
		/* the reader learns of the end by reading it */
		if (ev[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
			ready |= POLLER_HUP | (f->want & POLLER_READ);
		/* an earlier callback may want less by now */
		ready &= f->want | POLLER_HUP;
		if (f->want != 0 && ready != 0)
			f->cb(f->arg, ready);
	}
}

static void
poller_run_after(struct poller *p)
{
	unsigned i;

	for (i = 0; i < p->after_n && !p->stop; i++)
		p->after[i].cb(p->after[i].arg);
}

int
poller_run(struct poller *p)
{
	struct epoll_event ev[POLLER_BATCH];
	int n, rc = SP_OK;

	err_assert(!p->in_batch);
	p->in_batch = true;
	while (!p->stop) {
		poller_run_timers(p);
		poller_run_after(p);
		poller_bury(p);
		if (p->stop)
			break;
		n = epoll_wait(p->epoll, ev, POLLER_BATCH, poller_timeout(p));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = err_from_errno(errno);
			break;
		}
		poller_dispatch(p, ev, n);
	}
	p->stop = false;
	p->in_batch = false;
	poller_bury(p);
	return rc;
}

void
poller_stop(struct poller *p)
{
	p->stop = true;
}
