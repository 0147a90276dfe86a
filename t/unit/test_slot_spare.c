/* Keepers that are started ahead: here each dies at once, of no program. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/slot_spare.h"
#include "os/fd.h"
#include "tap.h"

enum {
	SPARES = 2,
	LATER_MS = 200,
	LONG = 5000,
	TICK_MS = 20,
	TICKS_MAX = 1500
};

static void
stop(void *arg)
{
	poller_stop(arg);
}

/* Turns the loop for a moment. */
static void
turn(struct poller *p)
{
	struct poller_timer *t = poller_timer_new(p, stop, p);

	if (t == NULL)
		return;
	poller_timer_set(t, LATER_MS);
	tap_ok(poller_run(p) == SP_OK, "the loop runs");
	poller_timer_free(t);
}

static void
test_none(struct poller *p)
{
	struct slot_spare *s;
	struct channel *c = NULL;
	pid_t pid = -1;
	unsigned n;

	slot_spare_fill(NULL);
	slot_spare_free(NULL);
	tap_ok(slot_spare_take(NULL, &pid, &c) == SP_E_NOTFOUND, "no pool");
	tap_ok(!slot_spare_reaped(NULL, 1), "no child of no pool");
	for (n = 1; n < 100; n++) {
		mem_fail_after(n, 0);
		s = slot_spare_new(p, "/nowhere");
		mem_fail_after(0, 0);
		if (s != NULL)
			break;
	}
	tap_ok(n > 1 && s != NULL, "without memory there is no pool");
	tap_ok(slot_spare_take(s, &pid, &c) == SP_E_NOTFOUND, "not filled");
	slot_spare_free(s);
}

static void
test_dead(struct poller *p)
{
	struct slot_spare *s = slot_spare_new(p, "/nowhere");
	struct channel *c = NULL;
	pid_t pid = -1, of[SPARES] = { -1, -1 };
	siginfo_t si;
	int i;

	if (!tap_ok(s != NULL, "a pool"))
		return;
	slot_spare_fill(s);
	slot_spare_fill(s);
	turn(p);
	/* dead, and not reaped before both are */
	for (i = 0; i < SPARES; i++)
		while (waitid(P_ALL, 0, &si, WEXITED | WNOWAIT) < 0 &&
		    errno == EINTR)
			continue;
	while (slot_spare_take(s, &pid, &c) == SP_OK) {
		/* it died a moment later: still its number, and ours to reap */
		channel_free(c);
		(void)waitpid(pid, NULL, 0);
	}
	tap_ok(slot_spare_take(s, &pid, &c) == SP_E_NOTFOUND,
	    "a dead one is not given");
	for (i = 0; i < SPARES; i++)
		of[i] = waitpid(-1, NULL, 0);
	for (i = 0; i < SPARES; i++)
		if (of[i] > 0) {
			tap_ok(slot_spare_reaped(s, of[i]), "it was one");
			tap_ok(!slot_spare_reaped(s, of[i]), "and is none now");
		}
	slot_spare_free(s);
}

/* ---- what the log is told --------------------------------------------------- */

static int told_fd; /* where the log can be read, without waiting */

/* How many lines with that text it has been told since the last time. */
static unsigned
told(const char *what)
{
	static char mem[64 * 1024];
	struct view v;
	unsigned lines = 0;
	ssize_t n = read(told_fd, mem, sizeof(mem));
	size_t at;

	v = view_of(mem, n > 0 ? (size_t)n : 0);
	while ((at = view_search(v, view_str(what))) < v.n) {
		lines++;
		v = view_from(v, at + 1);
	}
	return lines;
}

struct tries {
	struct poller *p;
	struct poller_timer *t;
	unsigned long allocated; /* each try allocates */
	unsigned left, ticks;
};

static void
on_tick(void *arg)
{
	struct tries *r = arg;

	if (mem_count() != r->allocated) {
		r->allocated = mem_count();
		r->left--;
	}
	if (r->left == 0 || ++r->ticks == TICKS_MAX)
		poller_stop(r->p);
	else
		poller_timer_set(r->t, TICK_MS);
}

/* Turns the loop until they have been tried so many times more. */
static void
turn_tries(struct poller *p, unsigned tries)
{
	struct tries r = { .p = p, .left = tries };

	r.t = poller_timer_new(p, on_tick, &r);
	if (!tap_ok(r.t != NULL, "a timer"))
		return;
	r.allocated = mem_count();
	poller_timer_set(r.t, 0);
	tap_ok(poller_run(p) == SP_OK && r.left == 0, "tried again");
	poller_timer_free(r.t);
}

static void
test_told(struct poller *p)
{
	static char dir[LONG];
	struct slot_spare *s;
	pid_t pid;
	int i;

	memset(dir, 'x', sizeof(dir) - 1);
	s = slot_spare_new(p, dir);
	if (!tap_ok(s != NULL, "a pool"))
		return;
	slot_spare_fill(s);
	turn_tries(p, 2);
	tap_is_int(told("no keeper can be started ahead"), 1,
	    "that none can be started is told once");
	(void)snprintf(dir, sizeof(dir), "/nowhere");
	turn_tries(p, 1);
	tap_is_int(told("can be started ahead again"), 1,
	    "and once that they can again");
	for (i = 0; i < SPARES; i++) {
		pid = waitpid(-1, NULL, 0);
		tap_ok(slot_spare_reaped(s, pid), "it was one");
	}
	slot_spare_free(s);
}

static void
test_spawn(void)
{
	static char dir[LONG];
	struct channel *c = NULL;
	pid_t pid = -1;
	unsigned n;
	int rc = SP_E_NOMEM;

	memset(dir, 'x', sizeof(dir) - 1);
	tap_ok(slot_spare_spawn(dir, &pid, &c) == SP_E_LIMIT && c == NULL,
	    "a folder whose name is too long");
	for (n = 1; n < 100 && rc != SP_OK; n++) {
		mem_fail_after(n, 0);
		rc = slot_spare_spawn("/nowhere", &pid, &c);
		mem_fail_after(0, 0);
		if (rc != SP_OK && rc != SP_E_NOMEM)
			break;
	}
	tap_ok(n > 2 && rc == SP_OK, "without memory nothing is started");
	channel_free(c);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

int
main(void)
{
	struct poller *p = poller_new();
	int log[2] = { -1, -1 };

	if (!tap_ok(p != NULL && pipe2(log, O_NONBLOCK | O_CLOEXEC) == 0,
		"a loop and a log"))
		return 1;
	told_fd = log[0];
	log_set_fd(log[1]);
	test_none(p);
	test_dead(p);
	test_told(p);
	test_spawn();
	poller_free(p);
	log_set_fd(STDERR_FILENO);
	fd_close(&log[0]);
	fd_close(&log[1]);
	return tap_done();
}
