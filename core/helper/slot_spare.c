#include "config.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/slot_spare.h"
#include "os/fd.h"
#include "os/spawn.h"

enum {
	SPARE_N = 2, /* an episode has up to two */
	SPARE_FILL_MS = 20,
	SPARE_AGAIN_MS = 1000, /* after one that could not be had, doubled */
	SPARE_AGAIN_MAX_MS = 60 * 1000, /* each time up to this */
	KEEPER_QUEUE_MAX = 1024 * 1024,
	/* far more than its own: see helper_take_files() */
	KEEPER_FILES = 65536,
};

static const char keeper_program[] = "sallyport-init";

/* What the log was told of them. */
enum spare_state {
	SPARE_WELL,
	SPARE_UNSTARTED, /* none could be started */
	SPARE_DYING, /* they end before anybody takes them */
};

struct slot_spare {
	const char *program_dir;
	struct poller_timer *timer;
	bool waits; /* the timer runs */
	enum spare_state state;
	uint64_t again_ms;
	struct {
		pid_t pid; /* -1: none */
		struct channel *c;
	} of[SPARE_N];
};

/* ---- one keeper ------------------------------------------------------------- */

static int
keeper_spawn(const char *program_dir, int channel_fd, pid_t *pid)
{
	char path[PATH_MAX];
	struct spawn sp;
	int n;

	n = snprintf(path, sizeof(path), "%s/%s", program_dir, keeper_program);
	if (n < 0 || (size_t)n >= sizeof(path))
		return SP_E_LIMIT;
	memset(&sp, 0, sizeof(sp));
	sp.path = path;
	sp.name = keeper_program;
	sp.files = KEEPER_FILES;
	sp.channel_fd = channel_fd;
	return spawn_role(&sp, pid);
}

int
slot_spare_spawn(const char *program_dir, pid_t *pid, struct channel **out)
{
	int pair[2] = { -1, -1 }, rc;
	struct channel *c;

	rc = fd_seqpacket_pair(pair);
	if (rc != SP_OK)
		return rc;
	c = channel_new(pair[0], MESSAGE_HELPER, MESSAGE_KEEPER,
	    KEEPER_QUEUE_MAX);
	rc = c != NULL ? keeper_spawn(program_dir, pair[1], pid) : SP_E_NOMEM;
	fd_close(&pair[1]);
	if (rc == SP_OK)
		*out = c;
	else
		channel_free(c);
	return rc;
}

/* ---- those in reserve ------------------------------------------------------- */

static void
fill_in(struct slot_spare *s, uint64_t ms)
{
	/* not put off again and again by whoever takes them all the time */
	if (s->waits)
		return;
	s->waits = true;
	poller_timer_set(s->timer, ms);
}

/*
 * Told once, however long it lasts, and tried more and more rarely.  That both
 * end once is not told: who ends us may have ended them first.
 */
static void
fail(struct slot_spare *s, enum spare_state state, const char *why)
{
	bool few =
	    state == SPARE_DYING && s->again_ms <= SPARE_N * SPARE_AGAIN_MS;

	if (s->state == SPARE_WELL && !few) {
		log_warn("no keeper can be started ahead: %s", why);
		s->state = state;
	}
	fill_in(s, s->again_ms);
	s->again_ms *= 2;
	if (s->again_ms > SPARE_AGAIN_MAX_MS)
		s->again_ms = SPARE_AGAIN_MAX_MS;
}

static void
recover(struct slot_spare *s)
{
	s->again_ms = SPARE_AGAIN_MS;
	if (s->state == SPARE_WELL)
		return;
	s->state = SPARE_WELL;
	log_notice("keepers can be started ahead again");
}

static void
drop(struct slot_spare *s, size_t i)
{
	channel_free(s->of[i].c);
	s->of[i].c = NULL;
	s->of[i].pid = -1;
}

/* What it can do for whatever it will keep, it does now. */
static int
start_one(struct slot_spare *s, size_t i)
{
	int rc;

	rc = slot_spare_spawn(s->program_dir, &s->of[i].pid, &s->of[i].c);
	if (rc != SP_OK) {
		s->of[i].pid = -1;
		return rc;
	}
	rc = channel_send(s->of[i].c, MESSAGE_KEEPER_SPARE, VIEW_NONE, -1);
	/* one that is gone by now was started, and is reaped soon */
	return rc == SP_E_GONE ? SP_OK : rc;
}

static void
on_timer(void *arg)
{
	struct slot_spare *s = arg;
	size_t i;
	int rc = SP_OK;

	s->waits = false;
	for (i = 0; i < SPARE_N && rc == SP_OK; i++)
		if (s->of[i].pid < 0)
			rc = start_one(s, i);
	if (rc != SP_OK)
		fail(s, SPARE_UNSTARTED, err_str(rc));
	else if (s->state == SPARE_UNSTARTED)
		recover(s);
}

struct slot_spare *
slot_spare_new(struct poller *p, const char *program_dir)
{
	struct slot_spare *s = mem_calloc(1, sizeof(*s));
	size_t i;

	if (s == NULL)
		return NULL;
	s->program_dir = program_dir;
	s->again_ms = SPARE_AGAIN_MS;
	for (i = 0; i < SPARE_N; i++)
		s->of[i].pid = -1;
	s->timer = poller_timer_new(p, on_timer, s);
	if (s->timer == NULL) {
		mem_free(s);
		return NULL;
	}
	return s;
}

void
slot_spare_free(struct slot_spare *s)
{
	size_t i;

	if (s == NULL)
		return;
	for (i = 0; i < SPARE_N; i++) {
		/* not reaped yet, so the number is still this very process's */
		if (s->of[i].pid > 0)
			(void)kill(s->of[i].pid, SIGKILL);
		drop(s, i);
	}
	poller_timer_free(s->timer);
	mem_free(s);
}

void
slot_spare_fill(struct slot_spare *s)
{
	if (s != NULL)
		fill_in(s, SPARE_FILL_MS);
}

/* It is reaped soon: until then it is of no use. */
static bool
is_dead(pid_t pid)
{
	siginfo_t si;

	memset(&si, 0, sizeof(si));
	return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) !=
	    0 ||
	    si.si_pid != 0;
}

int
slot_spare_take(struct slot_spare *s, pid_t *pid, struct channel **c)
{
	size_t i;

	for (i = 0; s != NULL && i < SPARE_N; i++) {
		if (s->of[i].pid < 0 || is_dead(s->of[i].pid))
			continue;
		*pid = s->of[i].pid;
		*c = s->of[i].c;
		s->of[i].pid = -1;
		s->of[i].c = NULL;
		recover(s);
		fill_in(s, SPARE_FILL_MS);
		return SP_OK;
	}
	return SP_E_NOTFOUND;
}

bool
slot_spare_reaped(struct slot_spare *s, pid_t pid)
{
	size_t i;

	for (i = 0; s != NULL && i < SPARE_N; i++) {
		if (s->of[i].pid != pid)
			continue;
		drop(s, i);
		fail(s, SPARE_DYING, "one ended before it was taken");
		return true;
	}
	return false;
}
