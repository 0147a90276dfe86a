/* The small loop of helper and recorder: epoll, timers, signals. */
#ifndef SP_OS_POLLER_H
#define SP_OS_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct poller;
struct poller_fd;
struct poller_timer;

enum { POLLER_READ = 1, POLLER_WRITE = 2, POLLER_HUP = 4 };

/*
 * Context: one thread; callbacks run from poller_run() and may add and
 *          remove anything, themselves included.
 * Owner:   handles belong to the caller, who removes them; the descriptor is
 *          borrowed.
 */
struct poller *poller_new(void) must_check; /* NULL: none to be had */
void poller_free(struct poller *p);
/* want: POLLER_READ | POLLER_WRITE; NULL without memory. */
struct poller_fd *poller_add(struct poller *p, int fd, unsigned want,
    void (*cb)(void *arg, unsigned ready), void *arg) must_check;
int poller_want(struct poller_fd *f, unsigned want) must_check;
void poller_remove(struct poller_fd *f); /* NULL allowed */
/* One shot; poller_timer_set() arms it (again), 0 ms is the next turn. */
struct poller_timer *poller_timer_new(struct poller *p, void (*cb)(void *arg),
    void *arg) must_check;
void poller_timer_set(struct poller_timer *t, uint64_t in_ms);
void poller_timer_stop(struct poller_timer *t);
void poller_timer_free(struct poller_timer *t);
/* Blocks the signal and delivers it here (signalfd); SIGCHLD included. */
int poller_signal(struct poller *p, int signo, void (*cb)(void *arg, int signo),
    void *arg) must_check;
/* Called once after each batch of callbacks, before sleeping (batching). */
void poller_after(struct poller *p, void (*cb)(void *arg), void *arg);
/* Runs until poller_stop(): 0, or the error of epoll_wait. */
int poller_run(struct poller *p) must_check;
void poller_stop(struct poller *p);

#endif
