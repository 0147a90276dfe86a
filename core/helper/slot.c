#include "config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/mem.h"
#include "helper/slot_priv.h"
#include "helper/sweep.h"
#include "os/fd.h"

enum {
	SLOT_WHY_MAX = 4096,
	SLOT_BUILD_MS = 60 * 1000,
	SLOT_END_SPARE_MS = 5 * 1000, /* over what the keeper waits itself */
	SLOT_SWEEP_AGAIN_MS = 1000,
	SLOT_SWEEP_AGAIN_MAX_MS = 60 * 1000,
};

static void slot_on_timer(void *arg);

struct slot *
slot_new(const struct slot_world *w, uint32_t number)
{
	struct slot *s = mem_calloc(1, sizeof(*s));
	size_t i;

	if (s == NULL)
		return NULL;
	s->w = w;
	s->number = number;
	s->seed_fd = s->assets_fd = s->watch_fd = -1;
	netns_init(&s->net);
	buf_init(&s->why, SLOT_WHY_MAX);
	for (i = 0; i < SLOT_KEEPERS; i++) {
		s->keepers[i].slot = s;
		s->keepers[i].pid = -1;
	}
	s->timer = poller_timer_new(w->p, slot_on_timer, s);
	if (s->timer == NULL) {
		mem_free(s);
		return NULL;
	}
	return s;
}

static void
slot_close_net(struct slot *s)
{
	netns_job_drop(s->net_job);
	s->net_job = NULL;
	netns_clear(&s->net);
	fd_close(&s->watch_fd);
}

void
slot_free(struct slot *s)
{
	size_t i;

	if (s == NULL)
		return;
	for (i = 0; i < SLOT_KEEPERS; i++) {
		slot_keeper_kill(&s->keepers[i]);
		slot_keeper_clear(&s->keepers[i]);
	}
	slot_close_net(s);
	slot_oracle_free(s);
	sweep_job_drop(s->sweep);
	poller_timer_free(s->timer);
	buf_clear(&s->why);
	mem_free(s);
}

/* ---- building --------------------------------------------------------------- */

static void
slot_on_net(void *arg, int rc, struct netns *made, struct view why)
{
	struct slot *s = arg;

	s->net_job = NULL;
	if (rc != SP_OK) {
		slot_lost(s, SANDBOX_END_LOST, "network: %.*s", VIEW_ARG(why));
		return;
	}
	s->net = *made;
	s->net_made = true;
	failpoint_reach("slot.network");
	slot_advance(s);
}

static bool
slot_has_worker(const struct conf_environment *e)
{
	return e->worker != CONF_ENV_WORKER_NONE;
}

static bool
slot_has_agent(const struct conf_environment *e)
{
	return !slot_has_worker(e) || e->insides_n > 0 || e->processes_n > 0;
}

/*
 * Who there is: the agent's sandbox where anything of the agent's may run,
 * the worker's where there is a worker.  The first owns the workspace.
 */
static void
slot_choose_sides(struct slot *s)
{
	size_t n = 0;

	if (slot_has_agent(s->env))
		s->keepers[n++].side = SANDBOX_AGENT;
	if (slot_has_worker(s->env))
		s->keepers[n++].side = SANDBOX_WORKER;
}

unsigned
slot_sides(const struct conf_environment *env)
{
	return (unsigned)slot_has_agent(env) + (unsigned)slot_has_worker(env);
}

static int
slot_begin(struct slot *s, bool via_veth)
{
	size_t i;
	int rc = SP_OK;

	if (s->env->enforcement == CONF_ENV_ENFORCE_LINUX) {
		netns_plan(&s->plan, s->number, s->generation, s->env,
		    via_veth);
		s->plan.userns = !s->w->privileged;
		s->net_job =
		    netns_start(s->w->p, &s->plan, false, slot_on_net, s);
		if (s->net_job == NULL)
			return SP_E_NOMEM;
	} else {
		s->net_made = true; /* local: the host's */
	}
	for (i = 0; i < SLOT_KEEPERS && rc == SP_OK; i++)
		if (s->keepers[i].side != 0)
			rc = slot_keeper_start(&s->keepers[i]);
	/* an ordinary user's needs the network's user namespace first */
	if (rc == SP_OK && s->net_job != NULL && s->w->privileged)
		slot_keeper_prepare(&s->keepers[0]);
	return rc;
}

int
slot_build(struct slot *s, const struct conf_environment *env,
    uint32_t env_place, int seed_fd, int assets_fd, bool via_veth)
{
	int rc;

	if (s->state != SLOT_FREE)
		return SP_E_STATE;
	s->generation++;
	s->env = env;
	s->teardown_ms = env->teardown_ms;
	(void)snprintf(s->name, sizeof(s->name), "%.*s", VIEW_ARG(env->name));
	s->env_place = env_place;
	s->seed_fd = seed_fd;
	s->assets_fd = assets_fd;
	s->owned = s->asked = s->stuck = s->dirty = s->net_made = false;
	s->oom = NULL;
	s->sweeps = 0;
	s->end = 0;
	s->calls_n = 0;
	s->began_ms = clock_ms();
	buf_truncate(&s->why, 0);
	slot_choose_sides(s);
	s->state = SLOT_BUILDING;
	failpoint_reach("slot.begun");
	poller_timer_set(s->timer, SLOT_BUILD_MS);
	rc = slot_begin(s, via_veth);
	/* some of it may run: it ends like any other, by way of failed() */
	if (rc != SP_OK)
		slot_lost(s, SANDBOX_END_LOST, "a keeper cannot be started: %s",
		    err_str(rc));
	else
		slot_advance(s);
	return SP_OK;
}

/* The next step of building that has all it needs. */
static void
slot_build_on(struct slot *s)
{
	struct slot_keeper *first = &s->keepers[0], *second = &s->keepers[1];
	int rc = SP_OK;

	if (!s->net_made)
		return;
	if (!first->ready) {
		if (!first->building) {
			first->building = true;
			rc = slot_keeper_build(first, s->net.ns_fd, -1);
		}
	} else if (second->side != 0 && !second->ready) {
		if (!second->building) {
			second->building = true;
			rc = slot_keeper_share(first);
		}
	} else {
		s->state = SLOT_READY;
		failpoint_reach("slot.ready");
		poller_timer_stop(s->timer);
		s->w->ready(s->w->arg, s);
		return;
	}
	if (rc != SP_OK)
		slot_lost(s, SANDBOX_END_LOST, "a keeper takes no messages: %s",
		    err_str(rc));
}

void
slot_own(struct slot *s)
{
	s->owned = true;
	if (s->env->lifetime_ms > 0)
		poller_timer_set(s->timer, s->env->lifetime_ms);
}

/* ---- ending ----------------------------------------------------------------- */

static void
slot_begin_end(struct slot *s)
{
	size_t i;

	s->state = SLOT_ENDING;
	/*
	 * The numbers stay the keepers', until they have answered.  How an
	 * oracle is killed by this is no verdict: the end tells of it.
	 */
	for (i = 0; i < s->calls_n; i++)
		if (s->calls[i].own != NULL ||
		    slot_keeper_is_oracle(&s->keepers[s->calls[i].keeper])) {
			s->calls[i].own = NULL;
			s->calls[i].forgotten = true;
		}
	slot_oracle_yield(s);
	s->w->ending(s->w->arg, s);
	failpoint_reach("slot.ending");
	/* who holds them open keeps the namespace alive */
	slot_close_net(s);
	for (i = 0; i < SLOT_KEEPERS; i++)
		if (s->keepers[i].side != 0)
			slot_keeper_end(&s->keepers[i]);
	poller_timer_set(s->timer, s->teardown_ms + SLOT_END_SPARE_MS);
}

static void lose(struct slot *s, uint8_t end, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

static void
lose(struct slot *s, uint8_t end, const char *fmt, va_list ap)
{
	bool building = s->state == SLOT_BUILDING;

	if (!building && s->state != SLOT_READY)
		return; /* it ends already */
	s->end = end;
	buf_truncate(&s->why, 0);
	(void)!buf_vprintf(&s->why, fmt, ap);
	log_error("episode slot=%" PRIu32 " environment=%s: %.*s", s->number,
	    s->name, VIEW_ARG(buf_view(&s->why)));
	slot_begin_end(s);
	if (building)
		s->w->failed(s->w->arg, s);
	slot_advance(s);
}

void
slot_lost(struct slot *s, uint8_t end, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	lose(s, end, fmt, ap);
	va_end(ap);
}

void
slot_keeper_lost(struct slot_keeper *k, uint8_t end, const char *fmt, ...)
{
	struct buf why = BUF_INIT(SLOT_WHY_MAX);
	va_list ap;

	va_start(ap, fmt);
	if (slot_keeper_is_oracle(k)) {
		(void)!buf_vprintf(&why, fmt, ap);
		slot_oracle_lost(k->slot, buf_view(&why));
	} else {
		lose(k->slot, end, fmt, ap);
	}
	va_end(ap);
	buf_clear(&why);
}

void
slot_fail(struct slot *s, const char *why)
{
	slot_lost(s, SANDBOX_END_LOST, "%s", why);
}

void
slot_end(struct slot *s)
{
	if (s->state != SLOT_BUILDING && s->state != SLOT_READY)
		return;
	s->asked = true;
	slot_begin_end(s);
	slot_advance(s);
}

static void
slot_release(struct slot *s)
{
	size_t i;

	for (i = 0; i < SLOT_KEEPERS; i++) {
		slot_keeper_clear(&s->keepers[i]);
		s->keepers[i].side = 0;
	}
	poller_timer_stop(s->timer);
	s->state = SLOT_FREE;
	s->env = NULL;
	failpoint_reach("slot.free");
	s->w->swept(s->w->arg, s);
}

static void
slot_on_swept(void *arg, int rc, struct view why)
{
	struct slot *s = arg;
	uint64_t ms = SLOT_SWEEP_AGAIN_MS;
	unsigned i;

	s->sweep = NULL;
	if (rc == SP_OK) {
		if (s->dirty) {
			s->dirty = false;
			s->w->empty(s->w->arg, s);
		}
		slot_release(s);
		return;
	}
	for (i = 1; i < s->sweeps && ms < SLOT_SWEEP_AGAIN_MAX_MS; i++)
		ms *= 2;
	log_error("episode slot=%" PRIu32 " is not clean, tried again in "
		  "%" PRIu64 " ms: %.*s",
	    s->number, ms, VIEW_ARG(why));
	if (s->dirty && !s->stuck) {
		s->stuck = true;
		s->w->stuck(s->w->arg, s);
	}
	poller_timer_set(s->timer, ms);
}

static void
slot_sweep(struct slot *s)
{
	struct sweep sw = {
		.slot = s->number,
		.has_net = s->w->privileged,
		.cgroups = s->w->cgroups->fd,
		.cgroups_v1 = s->w->cgroups->v1,
		.disk_fd = s->w->disk_fd,
		.timeout_ms = s->teardown_ms,
	};

	s->state = SLOT_SWEEPING;
	failpoint_reach("slot.sweeping");
	s->sweeps++;
	s->sweep = sweep_start(s->w->p, &sw, slot_on_swept, s);
	if (s->sweep == NULL)
		poller_timer_set(s->timer, SLOT_SWEEP_AGAIN_MS);
}

/* As far as the end has come. */
static void
slot_end_on(struct slot *s)
{
	bool empty = true, dead = true, lost = false;
	size_t i;

	for (i = 0; i < SLOT_KEEPERS; i++) {
		const struct slot_keeper *k = &s->keepers[i];

		if (k->side == 0)
			continue;
		empty = empty && k->empty;
		dead = dead && slot_keeper_dead(k);
		lost = lost || (slot_keeper_dead(k) && !k->empty);
	}
	if (s->state == SLOT_ENDING && empty) {
		s->state = SLOT_EMPTY;
		failpoint_reach("slot.empty");
		s->w->empty(s->w->arg, s);
	}
	if (!dead)
		return;
	/* whether something lives is not known: the sweep tells */
	s->dirty = lost;
	slot_sweep(s);
}

void
slot_advance(struct slot *s)
{
	if (s->state == SLOT_BUILDING)
		slot_build_on(s);
	else if (s->state == SLOT_ENDING || s->state == SLOT_EMPTY)
		slot_end_on(s);
	else if (s->state == SLOT_READY)
		slot_oracle_advance(s);
}

static void
slot_on_timer(void *arg)
{
	struct slot *s = arg;
	size_t i;

	if (s->state == SLOT_BUILDING) {
		slot_lost(s, SANDBOX_END_LOST, "it was not built in time");
	} else if (s->state == SLOT_READY) {
		slot_lost(s, SANDBOX_END_TIMEOUT,
		    "it lasted as long as its environment's lifetime");
	} else if (s->state == SLOT_SWEEPING) {
		slot_sweep(s);
	} else if (s->state == SLOT_ENDING || s->state == SLOT_EMPTY) {
		/*
		 * One that is at work on a stuck cgroup has said so, and is
		 * left to it; one that says nothing is of no use.
		 */
		for (i = 0; i < SLOT_KEEPERS; i++)
			if (!s->stuck || s->state == SLOT_EMPTY)
				slot_keeper_kill(&s->keepers[i]);
	}
}

bool
slot_reaped(struct slot *s, pid_t pid, int status)
{
	size_t i;

	for (i = 0; i < SLOT_KEEPERS; i++) {
		struct slot_keeper *k = &s->keepers[i];

		if (k->pid != pid)
			continue;
		k->pid = -1;
		slot_keeper_reaped(k);
		if (!k->gone)
			slot_keeper_lost(k, SANDBOX_END_LOST,
			    "its keeper ended (wait status %d)", status);
		slot_advance(s);
		return true;
	}
	return false;
}
