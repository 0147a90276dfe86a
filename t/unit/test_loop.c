/* core/evenriptors, timers, tasks, and all of them freed early. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "event/loop.h"
#include "tap.h"

enum { N = 32 };

static struct loop *loop;
static struct loop_fd *fds[N];
static int socks[N][2];
static int fired, last_ready, order_n;
static char order[64];
static struct loop_task *task_a, *task_b;
static struct loop_timer *timer, *guard;

static void
note(char c)
{
	if (order_n < (int)sizeof(order) - 1)
		order[order_n++] = c;
	order[order_n] = '\0';
}

static void
reset(void)
{
	fired = last_ready = order_n = 0;
	order[0] = '\0';
}

static void
on_guard(void *arg)
{
	(void)arg;
	tap_ok(false, "nothing happened for 20 s");
	loop_stop(loop);
}

static void
run(void)
{
	loop_timer_set(guard, 20000);
	if (loop_run(loop) != 0)
		tap_ok(false, "loop_run failed");
	loop_timer_stop(guard);
}

static void
pairs(int n)
{
	for (int i = 0; i < n; i++)
		if (socketpair(AF_UNIX,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
			socks[i]) == -1)
			tap_ok(false, "socketpair");
}

static void
unpairs(int n)
{
	for (int i = 0; i < n; i++) {
		close(socks[i][0]);
		close(socks[i][1]);
	}
}

/* The first to fire frees all the others, which are ready too. */
static void
free_all(void *arg, unsigned ready)
{
	(void)arg;
	(void)ready;
	fired++;
	for (int i = 0; i < N; i++) {
		loop_fd_free(fds[i]);
		fds[i] = NULL;
	}
	loop_stop(loop);
}

static void
test_free_in_callback(void)
{
	int rc = 0;

	reset();
	pairs(N);
	for (int i = 0; i < N; i++) {
		fds[i] = loop_fd_new(loop, socks[i][0], free_all, NULL);
		rc |= loop_fd_want(fds[i], LOOP_READ | LOOP_WRITE);
		rc |= write(socks[i][1], "x", 1) != 1;
	}
	tap_is_int(rc, 0, "32 descriptors wanted");
	run();
	tap_is_int(fired, 1, "freeing active handles silences them");
	unpairs(N);
}

static void
on_ready(void *arg, unsigned ready)
{
	(void)arg;
	fired++;
	last_ready |= (int)ready;
	note(ready == LOOP_READ ? 'r' : ready == LOOP_WRITE ? 'w' : 'h');
	if (loop_fd_want(fds[0], 0) != 0)
		tap_ok(false, "want nothing");
	loop_stop(loop);
}

static void
quiet_end(void *arg)
{
	(void)arg;
	note('t');
	loop_stop(loop);
}

static void
test_want(void)
{
	struct loop_timer *t = loop_timer_new(loop, quiet_end, NULL);

	reset();
	pairs(1);
	fds[0] = loop_fd_new(loop, socks[0][0], on_ready, NULL);
	tap_is_int(loop_fd_want(fds[0], LOOP_WRITE), 0, "want write");
	run();
	tap_is_str(order, "w", "writable");
	reset();
	tap_ok(loop_fd_want(fds[0], LOOP_READ) == 0 &&
		loop_fd_want(fds[0], 0) == 0 &&
		write(socks[0][1], "xy", 2) == 2,
	    "read wanted, and not");
	loop_timer_set(t, 20);
	run();
	tap_is_str(order, "t", "what is not wanted is not told");
	reset();
	tap_is_int(loop_fd_want(fds[0], LOOP_READ), 0, "want read");
	run();
	tap_is_str(order, "r", "level-triggered: the byte is still there");
	reset();
	tap_is_int(loop_fd_want(fds[0], LOOP_READ), 0, "want it again");
	run();
	tap_is_str(order, "r", "and again");
	loop_fd_free(fds[0]);
	loop_timer_free(t);
	unpairs(1);
}

static int
tcp_pair(int out[2])
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int s;

	memset(&sa, 0, sizeof(sa));
	sa.ss_family = AF_INET;
	s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(s, (struct sockaddr *)&sa, 16) == -1 || listen(s, 1) == -1 ||
	    getsockname(s, (struct sockaddr *)&sa, &len) == -1)
		return -1;
	out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(out[0], (struct sockaddr *)&sa, len) == -1)
		return -1;
	out[1] = accept4(s, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	close(s);
	return out[1] == -1 ? -1 : 0;
}

static void
test_hup(void)
{
	struct linger now = { 1, 0 };
	struct loop_timer *t = loop_timer_new(loop, quiet_end, NULL);

	reset();
	tap_is_int(tcp_pair(socks[0]), 0, "a TCP connection");
	fds[0] = loop_fd_new(loop, socks[0][1], on_ready, NULL);
	tap_is_int(loop_fd_want(fds[0], LOOP_HUP), 0, "watch for a hang-up");
	(void)!write(socks[0][0], "x", 1);
	shutdown(socks[0][0], SHUT_WR);
	loop_timer_set(t, 20);
	run();
	tap_is_str(order, "t", "bytes and a FIN are no hang-up");
	reset();
	setsockopt(socks[0][0], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(socks[0][0]);
	run();
	tap_is_str(order, "h", "a reset is");
	loop_fd_free(fds[0]);
	loop_timer_free(t);
	close(socks[0][1]);
}

static void
on_timer(void *arg)
{
	(void)arg;
	fired++;
	loop_stop(loop);
}

static void
test_timer(void)
{
	uint64_t at;

	reset();
	timer = loop_timer_new(loop, on_timer, NULL);
	at = clock_us();
	loop_timer_set(timer, 10);
	loop_timer_set(timer, 60);
	run();
	tap_ok(fired == 1 && clock_us() - at >= 60000,
	    "pushed back: fires once, never early");
	at = clock_us();
	loop_timer_set(timer, 3600000);
	loop_timer_set(timer, 10);
	run();
	tap_ok(fired == 2 && clock_us() - at >= 10000, "drawn in");
	loop_timer_set(timer, 1);
	loop_timer_stop(timer);
	loop_timer_free(timer);
	timer = loop_timer_new(loop, on_timer, NULL);
	loop_timer_set(timer, 0);
	run();
	tap_is_int(fired, 3, "stopped never fires, at once does");
	loop_timer_set(timer, UINT64_MAX);
	loop_timer_free(timer);
}

static void
on_fd_then_tasks(void *arg, unsigned ready)
{
	(void)arg;
	(void)ready;
	note('f');
	loop_task_post(task_a);
	loop_task_post(task_a);
	if (loop_fd_want(fds[arg != NULL], 0) != 0)
		tap_ok(false, "want nothing");
}

static void
on_task_a(void *arg)
{
	(void)arg;
	note('a');
	if (order_n < 8) {
		loop_task_post(task_a);
		loop_task_post(task_b);
	} else {
		loop_stop(loop);
	}
}

static void
on_task_b(void *arg)
{
	(void)arg;
	note('b');
}

static void
test_task(void)
{
	reset();
	pairs(2);
	task_a = loop_task_new(loop, on_task_a, NULL);
	task_b = loop_task_new(loop, on_task_b, NULL);
	for (int i = 0; i < 2; i++) {
		fds[i] = loop_fd_new(loop, socks[i][0], on_fd_then_tasks,
		    i == 0 ? NULL : &fds[1]);
		if (loop_fd_want(fds[i], LOOP_WRITE) != 0)
			tap_ok(false, "want write");
	}
	run();
	tap_is_str(order, "ffabababa",
	    "tasks run once, after all descriptors, each once a turn");
	loop_task_post(task_a);
	loop_task_post(task_b);
	loop_task_free(task_a);
	loop_task_free(task_b);
	loop_fd_free(fds[0]);
	loop_fd_free(fds[1]);
	unpairs(2);
}

static void
free_timer_too(void *arg)
{
	loop_timer_free(arg);
	fired++;
	loop_stop(loop);
}

static void
test_timer_frees_timer(void)
{
	struct loop_timer *b = loop_timer_new(loop, on_timer, NULL);
	struct loop_timer *a = loop_timer_new(loop, free_timer_too, b);

	reset();
	loop_timer_set(a, 1);
	loop_timer_set(b, 1);
	run();
	tap_ok(fired >= 1, "a timer frees another that is due");
	loop_timer_free(a);
}

static void
test_no_memory(void)
{
	struct loop *l = NULL;
	unsigned long n;

	for (n = 1; n < 200 && l == NULL; n++) {
		mem_fail_after(n, 0);
		l = loop_new();
		mem_fail_after(0, 0);
	}
	tap_ok(l != NULL && n > 2, "loop_new fails cleanly for want of memory");
	pairs(1);
	for (n = 1; n < 50; n++) {
		struct loop_fd *f;
		struct loop_timer *t;
		struct loop_task *k;
		int rc = -1;

		mem_fail_after(n, 0);
		f = loop_fd_new(l, socks[0][0], on_ready, NULL);
		t = loop_timer_new(l, on_timer, NULL);
		k = loop_task_new(l, on_timer, NULL);
		if (f != NULL)
			rc = loop_fd_want(f, LOOP_READ | LOOP_WRITE);
		mem_fail_after(0, 0);
		loop_fd_free(f);
		loop_timer_free(t);
		loop_task_free(k);
		if (rc == 0 && t != NULL && k != NULL)
			break;
	}
	tap_ok(n > 3 && n < 50, "so do handles");
	unpairs(1);
	loop_free(l);
}

int
main(void)
{
	struct sigaction sa;

	loop = loop_new();
	guard = loop_timer_new(loop, on_guard, NULL);
	sigaction(SIGPIPE, NULL, &sa);
	tap_ok(sa.sa_handler == SIG_IGN, "SIGPIPE is ignored");
	tap_ok(loop_scratch(loop) != NULL, "there is a scratch");
	test_free_in_callback();
	test_want();
	test_hup();
	test_timer();
	test_task();
	test_timer_frees_timer();
	test_no_memory();
	loop_timer_free(guard);
	loop_free(loop);
	loop_free(NULL);
	loop_fd_free(NULL);
	loop_timer_free(NULL);
	loop_task_free(NULL);
	return tap_done();
}
