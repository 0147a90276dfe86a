#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fd.h"
#include "os/poller.h"
#include "tap.h"

static struct poller *p;
static int order[32];
static int order_n;
static unsigned seen;
static int pair[2];
static struct poller_fd *handle[2];
static struct poller_timer *timer[4];
static int after_n, signals_n;

static void
note(int what)
{
	if (order_n < 32)
		order[order_n++] = what;
}

static void
on_timer(void *arg)
{
	int i = (int)(intptr_t)arg;

	note(i);
	if (i == 3)
		poller_stop(p);
	else if (timer[i + 1] != NULL)
		poller_timer_set(timer[i + 1], 0); /* sooner than it was */
}

static void
on_again(void *arg)
{
	(void)arg;
	note(9);
	if (order_n < 5)
		poller_timer_set(timer[0], 0);
	else
		poller_stop(p);
}

static void
on_free_self(void *arg)
{
	(void)arg;
	note(7);
	poller_timer_free(timer[0]);
	timer[0] = NULL;
	poller_stop(p);
}

static void
on_after(void *arg)
{
	(void)arg;
	after_n++;
}

static void
on_read(void *arg, unsigned ready)
{
	char c[8];
	size_t n;

	(void)arg;
	seen |= ready;
	if (fd_read(pair[0], c, sizeof(c), &n) == SP_E_EOF)
		note(100);
	else
		note((int)n);
	poller_stop(p);
}

/* The one that comes first removes both. */
static void
on_remove_both(void *arg, unsigned ready)
{
	(void)arg;
	(void)ready;
	note(1);
	poller_remove(handle[0]);
	poller_remove(handle[1]);
	poller_timer_set(timer[0], 0);
}

static void
on_signal(void *arg, int signo)
{
	(void)arg;
	signals_n += signo == SIGUSR1;
	poller_stop(p);
}

static void
test_timers(void)
{
	int i;

	for (i = 0; i < 4; i++)
		timer[i] = poller_timer_new(p, on_timer, (void *)(intptr_t)i);
	poller_timer_set(timer[3], 3000000);
	poller_timer_set(timer[1], 1000000);
	poller_timer_set(timer[0], 0);
	poller_timer_set(timer[2], 1);
	poller_timer_stop(timer[2]);
	poller_timer_stop(timer[2]);
	poller_timer_set(timer[2], 2000000);
	tap_is_int(poller_run(p), SP_OK, "runs until stopped");
	tap_ok(order_n == 4 && order[0] == 0 && order[1] == 1 &&
		order[2] == 2 && order[3] == 3,
	    "timers fire in their order");
	tap_ok(after_n > 0, "after runs with each batch");
	for (i = 0; i < 4; i++)
		poller_timer_free(timer[i]);
	order_n = 0;
	timer[0] = poller_timer_new(p, on_again, NULL);
	poller_timer_set(timer[0], 0);
	after_n = 0;
	tap_is_int(poller_run(p), SP_OK, "a timer that arms itself with 0");
	tap_ok(after_n >= 4, "runs once a turn");
	poller_timer_free(timer[0]);
	order_n = 0;
	timer[0] = poller_timer_new(p, on_free_self, NULL);
	poller_timer_set(timer[0], UINT64_MAX);
	poller_timer_set(timer[0], 0);
	tap_is_int(poller_run(p), SP_OK, "a timer may free itself");
	poller_timer_free(NULL);
}

static void
test_fds(void)
{
	tap_is_int(fd_seqpacket_pair(pair), SP_OK, "pair");
	handle[0] = poller_add(p, pair[0], POLLER_READ, on_read, NULL);
	tap_ok(handle[0] != NULL, "added");
	tap_ok(poller_add(p, pair[0], POLLER_READ, on_read, NULL) == NULL,
	    "not twice");
	tap_ok(poller_add(p, -1, POLLER_READ, on_read, NULL) == NULL,
	    "nor what is no descriptor");
	order_n = 0;
	tap_is_int(poller_want(handle[0], POLLER_READ | POLLER_WRITE), SP_OK,
	    "both");
	tap_is_int(poller_want(handle[0], POLLER_READ), SP_OK, "read only");
	tap_ok(send(pair[1], "abc", 3, 0) == 3, "sent");
	tap_is_int(poller_run(p), SP_OK, "runs");
	tap_ok(order_n == 1 && order[0] == 3, "read");
	fd_close(&pair[1]);
	/* gone while nothing is wanted: no spinning, a timer comes through */
	tap_is_int(poller_want(handle[0], 0), SP_OK, "wants nothing");
	timer[0] = poller_timer_new(p, on_timer, (void *)3);
	poller_timer_set(timer[0], 1);
	order_n = 0;
	tap_is_int(poller_run(p), SP_OK, "runs");
	tap_ok(order_n == 1 && order[0] == 3, "no callback for who wants none");
	tap_is_int(poller_want(handle[0], POLLER_READ), SP_OK, "wants again");
	order_n = 0;
	tap_is_int(poller_run(p), SP_OK, "runs");
	tap_ok(order_n == 1 && order[0] == 100 && (seen & POLLER_HUP),
	    "the end and a hang-up");
	poller_remove(handle[0]);
	poller_remove(NULL);
	fd_close(&pair[0]);
	poller_timer_free(timer[0]);
}

static void
test_remove_other(void)
{
	int other[2];

	if (fd_seqpacket_pair(pair) != SP_OK ||
	    fd_seqpacket_pair(other) != SP_OK)
		return;
	timer[0] = poller_timer_new(p, on_timer, (void *)3);
	handle[0] = poller_add(p, pair[0], POLLER_READ, on_remove_both, NULL);
	handle[1] = poller_add(p, other[0], POLLER_READ, on_remove_both, NULL);
	(void)!send(pair[1], "x", 1, 0);
	(void)!send(other[1], "x", 1, 0);
	order_n = 0;
	tap_is_int(poller_run(p), SP_OK, "runs");
	tap_ok(order_n == 2 && order[0] == 1 && order[1] == 3,
	    "one that was removed in the same batch is not called");
	poller_timer_free(timer[0]);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	fd_close(&other[0]);
	fd_close(&other[1]);
}

static void
test_signals(void)
{
	tap_is_int(poller_signal(p, SIGUSR1, on_signal, NULL), SP_OK, "signal");
	tap_is_int(poller_signal(p, SIGUSR2, on_signal, NULL), SP_OK, "two");
	tap_is_int(poller_signal(p, 0, on_signal, NULL), SP_E_ARG,
	    "no signal 0");
	kill(getpid(), SIGUSR1);
	tap_is_int(poller_run(p), SP_OK, "runs");
	tap_is_int(signals_n, 1, "comes as an event");
}

static void
test_memory(void)
{
	struct poller *q;
	unsigned long n;

	mem_fail_after(1, 0);
	tap_ok(poller_new() == NULL, "no poller without memory");
	mem_fail_after(0, 0);
	q = poller_new();
	for (n = 1; n <= 2; n++) {
		mem_fail_after(n, 0);
		if (poller_timer_new(q, on_timer, NULL) != NULL)
			break;
	}
	mem_fail_after(1, 0);
	tap_ok(n == 3 && poller_add(q, 0, POLLER_READ, on_read, NULL) == NULL,
	    "no timer, no descriptor without memory");
	mem_fail_after(0, 0);
	poller_free(q);
	poller_free(NULL);
}

int
main(void)
{
	p = poller_new();
	if (p == NULL)
		return 1;
	poller_after(p, on_after, NULL);
	test_timers();
	test_fds();
	test_remove_other();
	test_signals();
	test_memory();
	poller_free(p);
	return tap_done();
}
