#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/mem.h"
#include "helper/complain.h"
#include "helper/episodes_priv.h"
#include "helper/slot_spare.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum {
	EP_WARM_MS = 20,
	EP_BACKOFF_MS = 1000,
	EP_BACKOFF_MAX_MS = 60 * 1000,
	EP_STOP_SPARE_MS = 5 * 1000,
};

static const char unclean[] = "teardown incomplete: workload cgroup did not "
			      "empty; workspace restore refused";

/* ---- slots ------------------------------------------------------------------ */

static struct ep *
ep_free_one(struct episodes *e)
{
	struct ep *p, **grown;
	size_t i;

	for (i = 0; i < e->eps_n; i++)
		if (e->eps[i]->use == EP_NONE &&
		    e->eps[i]->slot->state == SLOT_FREE)
			return e->eps[i];
	/* before anything of it is made on this host */
	if (slot_journal_cover(&e->journal, (uint32_t)e->eps_n + 1) != SP_OK) {
		log_error("the journal of slots cannot be written: no further "
			  "episode at once");
		return NULL;
	}
	grown = mem_reallocarray(e->eps, e->eps_n + 1, sizeof(struct ep *));
	if (grown == NULL)
		return NULL;
	e->eps = grown;
	p = mem_calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	p->e = e;
	p->slot = slot_new(&e->slots,
	    e->block.block * SLOT_BLOCK_N + (uint32_t)e->eps_n);
	if (p->slot == NULL) {
		mem_free(p);
		return NULL;
	}
	p->slot->owner = p;
	TAILQ_INIT(&p->grades);
	LIST_INIT(&p->files);
	p->hold = hold_new(e->p, p);
	if (p->hold == NULL) {
		slot_free(p->slot);
		mem_free(p);
		return NULL;
	}
	e->eps[e->eps_n++] = p;
	return p;
}

/*
 * Also of an environment as it was before a reload: until its slots are clean
 * their uids may have processes.
 */
static bool
ep_uid_taken(const struct episodes *e, uint32_t uid)
{
	size_t i;

	for (i = 0; i < e->eps_n; i++) {
		const struct ep *p = e->eps[i];

		if (p->uid != 0 && p->slot->state != SLOT_FREE &&
		    p->uid + CONF_ENV_UIDS_MIN > uid &&
		    uid + CONF_ENV_UIDS_MIN > p->uid)
			return true;
	}
	return false;
}

static uint32_t
ep_uid(const struct ep_env *env, uint32_t place)
{
	if (!env->e->world.privileged ||
	    env->env->enforcement != CONF_ENV_ENFORCE_LINUX)
		return 0;
	return env->env->uid_first + place * CONF_ENV_UIDS_MIN;
}

int
episodes_begin(struct ep_env *env, enum ep_use use, uint32_t request,
    struct ep **out)
{
	struct ep *p;
	uint32_t i, uid = 0;
	int rc;

	if (env->seed != NULL)
		return SP_E_AGAIN;
	for (i = 0; i < env->places_n; i++) {
		uid = ep_uid(env, i);
		if (!env->places[i] && (uid == 0 || !ep_uid_taken(env->e, uid)))
			break;
	}
	if (i == env->places_n)
		return SP_E_LIMIT;
	p = ep_free_one(env->e);
	if (p == NULL)
		return SP_E_NOMEM;
	env->places[i] = true;
	p->env = env;
	p->place = i;
	p->uid = uid;
	p->use = use;
	p->request = request;
	p->pair = NULL;
	p->emptied = false;
	*out = p;
	rc = slot_build(p->slot, env->env, i, env->seed_fd, env->assets_fd,
	    env->via_veth);
	if (rc != SP_OK) {
		env->places[i] = false;
		p->use = EP_NONE;
	}
	return rc;
}

static uint64_t
env_count(const struct ep_env *env, bool warm)
{
	const struct episodes *e = env->e;
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < e->eps_n; i++) {
		const struct ep *p = e->eps[i];

		if (p->env != env || p->use == EP_NONE)
			continue;
		/* a fresh one counts as what it takes the place of */
		if (warm ? p->use == EP_WARM
			 : p->use != EP_WARM && p->use != EP_FRESH)
			n++;
	}
	return n;
}

void
episodes_warm(struct episodes *e)
{
	struct ep *p;
	size_t i;

	for (i = 0; i < e->envs_n && e->serving && !e->stopping; i++) {
		struct ep_env *v = e->envs[i];
		uint64_t n;

		if (v->env == NULL || v->backoff_ms != 0)
			continue;
		/* one that cannot be begun is tried with the next change */
		for (n = env_count(v, true); n < v->env->warm; n++)
			if (episodes_begin(v, EP_WARM, 0, &p) != SP_OK)
				break;
	}
}

void
episodes_on_warm_timer(void *arg)
{
	struct episodes *e = arg;

	e->warm_waits = false;
	episodes_warm(e);
}

void
episodes_warm_later(struct episodes *e)
{
	/* not put off again and again by whoever asks all the time */
	if (e->warm_waits)
		return;
	e->warm_waits = true;
	poller_timer_set(e->warm_timer, EP_WARM_MS);
}

static void
env_on_again(void *arg)
{
	struct ep_env *v = arg;

	v->backoff_ms = 0;
	episodes_warm(v->e);
}

static void
env_back_off(struct ep_env *v)
{
	v->backoff_ms = v->backoff_ms == 0 ? EP_BACKOFF_MS : v->backoff_ms * 2;
	if (v->backoff_ms > EP_BACKOFF_MAX_MS)
		v->backoff_ms = EP_BACKOFF_MAX_MS;
	if (v->again == NULL)
		v->again = poller_timer_new(v->e->p, env_on_again, v);
	if (v->again != NULL)
		poller_timer_set(v->again, v->backoff_ms);
}

/* What was on its way to somebody who is gone may be more than is kept. */
static void
env_trim(struct ep_env *v)
{
	const struct episodes *e = v->e;
	uint64_t n = 0, max = v->env != NULL ? v->env->warm : 0;
	size_t i;

	for (i = 0; i < e->eps_n; i++) {
		const struct ep *p = e->eps[i];

		if (p->env == v && p->use == EP_WARM &&
		    (p->slot->state == SLOT_BUILDING ||
			p->slot->state == SLOT_READY) &&
		    ++n > max)
			slot_end(p->slot);
	}
}

/* A warm one that is ready, else one that is on the way; NULL: neither. */
static struct ep *
env_take_warm(struct ep_env *env)
{
	struct ep *best = NULL;
	size_t i;

	for (i = 0; i < env->e->eps_n; i++) {
		struct ep *p = env->e->eps[i];

		if (p->env != env || p->use != EP_WARM)
			continue;
		if (p->slot->state == SLOT_READY)
			return p;
		if (p->slot->state == SLOT_BUILDING)
			best = p;
	}
	return best;
}

/* ---- what becomes of them --------------------------------------------------- */

static void
ep_give(struct ep *p, uint32_t request)
{
	p->use = EP_OWNED;
	p->request = 0;
	p->pair = NULL;
	slot_own(p->slot);
	memset(p->name, 0, sizeof(p->name));
	p->resets = 0;
	episodes_tell_made(p, request);
}

/* All that an earlier reactor left has been told, but what is being reset. */
static void
ep_resume_on(struct episodes *e)
{
	size_t i;

	if (!e->resuming)
		return;
	for (i = 0; i < e->eps_n; i++)
		if (e->eps[i]->use == EP_RESETTING && e->eps[i]->request == 0)
			return;
	e->resuming = false;
	episodes_tell_resumed(e);
}

/* A reset that outlived its reactor: the next one has it as it now is. */
static void
ep_inherit(struct ep *old, struct ep *fresh)
{
	fresh->use = EP_OWNED;
	fresh->request = 0;
	fresh->pair = NULL;
	slot_own(fresh->slot);
	memcpy(fresh->name, old->name, sizeof(fresh->name));
	fresh->resets = old->resets + 1;
	if (!old->e->resuming)
		return; /* it will ask */
	episodes_tell_named(fresh);
	episodes_tell_made(fresh, 0);
	ep_resume_on(old->e);
}

/* The old one is empty and the fresh one is ready: it is done. */
static void
ep_reset_done(struct ep *old)
{
	struct ep *fresh = old->pair;
	uint32_t request = old->request;

	old->use = EP_NONE;
	old->pair = NULL;
	old->slot->owned = false;
	if (request == 0) {
		ep_inherit(old, fresh);
	} else {
		episodes_tell_ended(old, request, 0, VIEW_NONE);
		failpoint_reach("reset.ended");
		ep_give(fresh, request);
		memcpy(fresh->name, old->name, sizeof(fresh->name));
		fresh->resets = old->resets + 1;
	}
	failpoint_reach("reset.given");
	episodes_warm_later(old->e);
}

static void
ep_reset_on(struct ep *old)
{
	if (old->emptied && old->pair->slot->state == SLOT_READY)
		ep_reset_done(old);
}

void
episodes_on_ready(void *arg, struct slot *s)
{
	struct ep *p = s->owner;
	uint32_t request = p->request;

	(void)arg;
	if (p->use == EP_CREATE)
		ep_give(p, request);
	else if (p->use == EP_FRESH)
		ep_reset_on(p->pair);
	else if (p->env->again != NULL)
		p->env->backoff_ms = 0;
}

/* Its reset was refused, and nobody knows of it any more. */
static void
ep_orphan(struct ep *p)
{
	p->use = p->emptied ? EP_NONE : EP_ENDING;
	p->request = 0;
	if (p->emptied)
		p->slot->owned = false;
}

/* Its fresh one came to nothing, or the old one does not empty. */
static void
ep_reset_refuse(struct ep *old, unsigned why, struct view what)
{
	old->pair = NULL;
	if (old->request == 0) {
		ep_orphan(old);
		ep_resume_on(old->e);
		return;
	}
	episodes_tell_refused(old->e, old->request, why, what);
	old->use = EP_REFUSED;
	old->request = 0;
}

void
episodes_on_failed(void *arg, struct slot *s)
{
	struct ep *p = s->owner;

	(void)arg;
	if (p->use == EP_CREATE)
		episodes_tell_refused(p->e, p->request, SANDBOX_REFUSED_FAILED,
		    buf_view(&s->why));
	/* without a pair it failed at once: ask_reset() tells */
	else if (p->use == EP_FRESH && p->pair != NULL)
		ep_reset_refuse(p->pair, SANDBOX_REFUSED_FAILED,
		    buf_view(&s->why));
	else if (p->use == EP_WARM)
		env_back_off(p->env);
	p->use = EP_NONE;
}

void
episodes_on_empty(void *arg, struct slot *s)
{
	struct ep *p = s->owner;

	(void)arg;
	switch (p->use) {
	case EP_OWNED: /* it died */
	case EP_ENDING:
		p->use = EP_NONE;
		s->owned = false;
		episodes_tell_ended(p, p->request, s->end, buf_view(&s->why));
		break;
	case EP_RESETTING:
		p->emptied = true;
		ep_reset_on(p);
		break;
	case EP_REFUSED:
		p->emptied = true;
		break;
	case EP_WARM: /* it died, or is no longer wanted */
		if (!s->asked)
			env_back_off(p->env);
		p->use = EP_NONE;
		break;
	case EP_FRESH: /* died while it waited for the old one */
		ep_reset_refuse(p->pair, SANDBOX_REFUSED_FAILED,
		    buf_view(&s->why));
		p->use = EP_NONE;
		break;
	case EP_NONE:
	case EP_CREATE:
		break;
	}
}

/* Whoever asked something of it is answered by its end. */
void
episodes_on_ending(void *arg, struct slot *s)
{
	struct ep *p = s->owner;

	(void)arg;
	grade_drop(p);
	grade_file_drop(p);
	hold_drop(p->hold);
}

void
episodes_on_stuck(void *arg, struct slot *s)
{
	struct ep *p = s->owner, *fresh = p->pair;

	(void)arg;
	if (p->use == EP_RESETTING) {
		ep_reset_refuse(p, SANDBOX_REFUSED_UNCLEAN, view_str(unclean));
		fresh->use = EP_WARM;
		fresh->pair = NULL;
		/* a pool that is full has no use for it */
		if (env_count(fresh->env, true) > fresh->env->env->warm)
			slot_end(fresh->slot);
	} else if (p->use == EP_ENDING && p->request != 0) {
		episodes_tell_refused(p->e, p->request, SANDBOX_REFUSED_UNCLEAN,
		    view_str(unclean));
		p->request = 0;
	}
}

static void
episodes_stop_on(struct episodes *e)
{
	void (*stopped)(void *arg) = e->stopped;
	size_t i;

	if (!e->stopping || stopped == NULL)
		return;
	for (i = 0; i < e->eps_n; i++)
		if (e->eps[i]->slot->state != SLOT_FREE)
			return;
	e->stopped = NULL;
	failpoint_reach("stop.empty");
	poller_timer_stop(e->stop_timer);
	if (slot_journal_reset(&e->journal) != SP_OK)
		log_warn("the journal of slots cannot be written: the next "
			 "start sweeps what is clean");
	stopped(e->stopped_arg);
}

void
episodes_on_swept(void *arg, struct slot *s)
{
	struct ep *p = s->owner;

	(void)arg;
	p->env->places[p->place] = false;
	episodes_warm_later(p->e);
	episodes_stop_on(p->e);
}

/* ---- what the reactor asks -------------------------------------------------- */

static struct ep_env *
env_by_name(struct episodes *e, struct view name)
{
	size_t i;

	for (i = 0; i < e->envs_n; i++)
		if (e->envs[i]->env != NULL &&
		    view_eq(view_str(e->envs[i]->name), name))
			return e->envs[i];
	return NULL;
}

/* One for the request: a warm one, or one that is begun now. */
static int
env_get(struct ep_env *env, enum ep_use use, uint32_t request, struct ep **out)
{
	struct ep *p = env_take_warm(env);

	if (p == NULL)
		return episodes_begin(env, use, request, out);
	p->use = use;
	p->request = request;
	*out = p;
	return SP_OK;
}

/* There is nothing to begin it from yet: it is answered when there is. */
static void
create_later(struct ep_env *env, uint32_t request)
{
	uint32_t *grown;

	grown = env->waiting_n < env->env->episodes
	    ? mem_reallocarray(env->waiting, env->waiting_n + 1,
		  sizeof(env->waiting[0]))
	    : NULL;
	if (grown == NULL) {
		episodes_tell_refused(env->e, request, SANDBOX_REFUSED_CAPACITY,
		    VIEW("the workspace is being captured"));
		return;
	}
	env->waiting = grown;
	env->waiting[env->waiting_n++] = request;
}

static void
create(struct ep_env *env, uint32_t request)
{
	struct episodes *e = env->e;
	struct ep *p;
	int rc;

	if (env->seed != NULL) {
		create_later(env, request);
		return;
	}
	if (env_count(env, false) >= env->env->episodes) {
		episodes_tell_refused(e, request, SANDBOX_REFUSED_CAPACITY,
		    VIEW("all episodes of the environment are in use: "
			 "end one, or raise its directive episodes"));
		return;
	}
	rc = env_get(env, EP_CREATE, request, &p);
	if (rc != SP_OK)
		episodes_tell_refused(e, request,
		    rc == SP_E_LIMIT ? SANDBOX_REFUSED_CAPACITY
				     : SANDBOX_REFUSED_FAILED,
		    view_str(rc == SP_E_LIMIT
			    ? "no uids are left: earlier episodes are not "
			      "clean yet"
			    : err_str(rc)));
	else if (p->use == EP_CREATE && p->slot->state == SLOT_READY)
		ep_give(p, request);
}

static int
ask_create(struct episodes *e, struct channel_msg *m)
{
	struct ep_env *env;
	struct view name;
	struct wire w;
	uint32_t request;

	wire_init(&w, m->body);
	request = wire_u32(&w);
	name = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	env = env_by_name(e, name);
	if (env == NULL || e->stopping)
		episodes_tell_refused(e, request, SANDBOX_REFUSED_UNKNOWN,
		    VIEW("no such environment"));
	else
		create(env, request);
	episodes_warm_later(e);
	return SP_OK;
}

void
episodes_seeded(struct ep_env *v, int rc, struct view why)
{
	uint32_t *waiting = v->waiting;
	size_t n = v->waiting_n, i;

	v->waiting = NULL;
	v->waiting_n = 0;
	for (i = 0; i < n; i++)
		if (rc == SP_OK && v->env != NULL && !v->e->stopping)
			create(v, waiting[i]);
		else
			episodes_tell_refused(v->e, waiting[i],
			    SANDBOX_REFUSED_FAILED, why);
	mem_free(waiting);
	episodes_warm(v->e);
}

struct ep *
episodes_find(struct episodes *e, uint32_t slot, uint32_t generation)
{
	uint32_t i = slot - e->block.block * SLOT_BLOCK_N;
	struct ep *p = i < e->eps_n ? e->eps[i] : NULL;

	if (p == NULL || p->slot->generation != generation ||
	    (p->use != EP_OWNED && p->use != EP_REFUSED))
		return NULL;
	return p;
}

/* The three numbers of END and RESET; *p NULL: refused already. */
static int
ask_which(struct episodes *e, const struct channel_msg *m, uint32_t *request,
    struct ep **p)
{
	uint32_t slot, generation;
	struct wire w;

	wire_init(&w, m->body);
	*request = wire_u32(&w);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	*p = episodes_find(e, slot, generation);
	if (*p == NULL)
		episodes_tell_refused(e, *request, SANDBOX_REFUSED_UNKNOWN,
		    VIEW("no such episode"));
	return SP_OK;
}

/* It has said so and says it only once: whoever asks again is told here. */
static bool
still_stuck(const struct ep *p)
{
	return p->slot->stuck && !p->emptied;
}

static int
ask_reset(struct episodes *e, struct channel_msg *m)
{
	uint32_t request;
	struct ep *p, *fresh;
	int rc;

	rc = ask_which(e, m, &request, &p);
	if (rc != SP_OK || p == NULL)
		return rc;
	if (p->env->env == NULL || e->stopping) {
		episodes_tell_refused(e, request, SANDBOX_REFUSED_STATE,
		    VIEW("its environment is no longer configured"));
		return SP_OK;
	}
	if (p->use == EP_REFUSED && still_stuck(p)) {
		episodes_tell_refused(e, request, SANDBOX_REFUSED_UNCLEAN,
		    view_str(unclean));
		return SP_OK;
	}
	rc = env_get(p->env, EP_FRESH, 0, &fresh);
	if (rc != SP_OK) {
		episodes_tell_refused(e, request,
		    rc == SP_E_LIMIT ? SANDBOX_REFUSED_UNCLEAN
				     : SANDBOX_REFUSED_FAILED,
		    rc == SP_E_LIMIT ? view_str(unclean)
				     : view_str(err_str(rc)));
		return SP_OK;
	}
	p->use = EP_RESETTING;
	p->request = request;
	p->pair = fresh;
	fresh->pair = p;
	slot_forget_calls(p->slot);
	slot_end(p->slot);
	/* building may have failed at once, or the old one be long empty */
	if (fresh->use != EP_FRESH)
		ep_reset_refuse(p, SANDBOX_REFUSED_FAILED,
		    buf_view(&fresh->slot->why));
	else if (p->use == EP_RESETTING)
		ep_reset_on(p);
	return SP_OK;
}

static int
ask_end(struct episodes *e, struct channel_msg *m)
{
	uint32_t request;
	struct ep *p;
	int rc;

	rc = ask_which(e, m, &request, &p);
	if (rc != SP_OK || p == NULL)
		return rc;
	slot_forget_calls(p->slot);
	if (p->use == EP_REFUSED && p->emptied) {
		p->use = EP_NONE;
		p->slot->owned = false;
		episodes_tell_ended(p, request, 0, VIEW_NONE);
		episodes_warm(e);
		return SP_OK;
	}
	p->use = EP_ENDING;
	p->request = request;
	slot_end(p->slot);
	if (p->use == EP_ENDING && still_stuck(p))
		episodes_on_stuck(e, p->slot);
	return SP_OK;
}

/*
 * Only kept and handed back, never a path or a key: a hostile reactor can do
 * no more with it than name its own successor's episodes.
 */
static int
ask_name(struct episodes *e, struct channel_msg *m)
{
	uint32_t slot, generation;
	struct view name;
	struct wire w;
	struct ep *p;

	wire_init(&w, m->body);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	name = wire_bytes(&w);
	if (wire_done(&w) != SP_OK || name.n > EPISODES_NAME_MAX)
		return SP_E_PROTO;
	p = episodes_find(e, slot, generation);
	if (p == NULL)
		return SP_OK;
	memset(p->name, 0, sizeof(p->name));
	memcpy(p->name, name.p, name.n);
	return SP_OK;
}

/* A new reactor: what there is, and that nobody waits for anything. */
static int
ask_resume(struct episodes *e, struct channel_msg *m)
{
	size_t i;

	(void)m;
	for (i = 0; i < e->eps_n; i++)
		if (e->eps[i]->use == EP_OWNED) {
			/* the events that it had went with the old one */
			e->eps[i]->resets++;
			episodes_tell_named(e->eps[i]);
			episodes_tell_made(e->eps[i], 0);
		}
	e->resuming = true;
	for (i = 0; i < e->envs_n; i++)
		e->envs[i]->warm_told = 0;
	e->asked = true;
	ep_resume_on(e);
	return SP_OK;
}

static const struct {
	enum message_type type;
	int (*handle)(struct episodes *e, struct channel_msg *m);
} ep_rows[] = {
	{ MESSAGE_EPISODE_CREATE, ask_create },
	{ MESSAGE_EPISODE_RESET, ask_reset },
	{ MESSAGE_EPISODE_END, ask_end },
	{ MESSAGE_EPISODE_NAME, ask_name },
	{ MESSAGE_EPISODE_RESUME, ask_resume },
	{ MESSAGE_EPISODE_FREEZE, episodes_ask_freeze },
	{ MESSAGE_EPISODE_FILE, episodes_ask_file },
	{ MESSAGE_EPISODE_FILE_PUT, episodes_ask_file },
	{ MESSAGE_EPISODE_CONNECT, episodes_ask_connect },
	{ MESSAGE_EPISODE_GRADE, grade_ask },
	{ MESSAGE_PROCESS_RUN, episodes_ask_run },
	{ MESSAGE_PROCESS_SIGNAL, episodes_ask_signal },
};

int
episodes_heard(struct episodes *e, struct channel_msg *m)
{
	size_t i;

	for (i = 0; i < sizeof(ep_rows) / sizeof(ep_rows[0]); i++)
		if (ep_rows[i].type == m->type)
			return ep_rows[i].handle(e, m);
	return SP_E_PROTO;
}

/*
 * Whoever asked is gone.  What was asked for and is not there yet is nobody's;
 * what is owned waits for the next reactor.
 */
static void
ep_reactor_lost(struct ep *p)
{
	slot_forget_calls(p->slot);
	grade_reactor_lost(p);
	grade_file_reactor_lost(p);
	hold_reactor_lost(p->hold);
	switch (p->use) {
	case EP_CREATE:
		p->use = EP_WARM;
		break;
	case EP_RESETTING:
		p->request = 0;
		if (p->name[0] != '\0')
			break; /* whoever had it comes back for it */
		p->pair->use = EP_WARM;
		p->pair->pair = NULL;
		p->pair = NULL;
		p->use = EP_ENDING;
		break;
	case EP_ENDING:
		p->request = 0;
		break;
	case EP_REFUSED:
		ep_orphan(p);
		break;
	case EP_NONE:
	case EP_WARM:
	case EP_FRESH:
	case EP_OWNED:
		break;
	}
}

void
episodes_reactor(struct episodes *e,
    void (*send)(void *arg, enum message_type type, struct view body, int fd),
    void *arg)
{
	size_t i;

	if (e == NULL)
		return;
	e->send = send;
	e->send_arg = arg;
	if (send != NULL) {
		e->serving = true;
		slot_spare_fill(e->slots.spare);
		episodes_tell_guarantees(e);
		episodes_warm(e);
		return;
	}
	e->resuming = e->asked = false;
	for (i = 0; i < e->eps_n; i++)
		ep_reactor_lost(e->eps[i]);
	for (i = 0; i < e->envs_n; i++) {
		e->envs[i]->waiting_n = 0;
		env_trim(e->envs[i]);
	}
}

bool
episodes_reaped(struct episodes *e, pid_t pid, int status)
{
	size_t i;

	if (e == NULL)
		return false;
	for (i = 0; i < e->eps_n; i++)
		if (slot_reaped(e->eps[i]->slot, pid, status))
			return true;
	return slot_spare_reaped(e->slots.spare, pid);
}

void
episodes_after(struct episodes *e)
{
	size_t i;

	if (e == NULL)
		return;
	for (i = 0; i < e->eps_n; i++)
		slot_after(e->eps[i]->slot);
	if (e->asked)
		episodes_tell_warm(e);
}

static void
episodes_on_stop_timer(void *arg)
{
	struct episodes *e = arg;
	void (*stopped)(void *arg) = e->stopped;

	log_error("episodes do not end in time: the next start sweeps what "
		  "they left");
	e->stopped = NULL;
	if (stopped != NULL)
		stopped(e->stopped_arg);
}

void
episodes_stop(struct episodes *e, void (*done)(void *arg), void *arg)
{
	uint64_t ms = 0;
	size_t i;

	if (e == NULL) {
		done(arg);
		return;
	}
	failpoint_reach("stop.begun");
	e->stopping = true;
	slot_spare_free(e->slots.spare);
	e->slots.spare = NULL;
	e->stopped = done;
	e->stopped_arg = arg;
	e->send = NULL;
	for (i = 0; i < e->eps_n; i++) {
		struct slot *s = e->eps[i]->slot;

		if (s->state != SLOT_FREE && s->teardown_ms > ms)
			ms = s->teardown_ms;
		slot_end(s);
	}
	poller_timer_set(e->stop_timer, ms + EP_STOP_SPARE_MS);
	episodes_stop_on(e);
}

struct poller_timer *
episodes_stop_timer(struct episodes *e)
{
	return poller_timer_new(e->p, episodes_on_stop_timer, e);
}
