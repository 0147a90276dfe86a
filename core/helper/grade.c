#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/arena.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/mem.h"
#include "helper/assets.h"
#include "helper/episodes_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum {
	GRADE_BUILD_MS = 150 * 1000, /* with its copy of the workspace */
	GRADE_TIMEOUT_MS = 300 * 1000, /* where the environment has none */
	GRADE_ARENA_MAX = 1024 * 1024,
	GRADE_WHY_MAX = 8192,
};

enum grade_state {
	GRADE_WAITING, /* behind another one */
	GRADE_HOLDING, /* its keeper starts, the episode is being frozen */
	GRADE_UPPER, /* the upper layer was asked for */
	GRADE_BUILDING, /* and is being copied */
	GRADE_RUNNING,
	GRADE_ENDING, /* its answer waits until nothing lives */
	GRADE_TOLD, /* until nothing is left */
};

struct grade {
	TAILQ_ENTRY(grade) link;
	struct ep *ep;
	uint32_t request;
	enum grade_state state;
	struct hold_wait hold;
	struct poller_timer *late; /* of what comes before RUNNING */
	int run_fd, upper_fd; /* -1 none */
	char assets[SLOT_ASSETS_MAX]; /* what their folder is called */
	bool started; /* so the reactor was told */
	bool muted; /* it listens no more */
	bool stuck; /* what it started does not die */
	enum message_type answer; /* PROCESS_EXITED or PROCESS_NOT_STARTED */
	struct buf body; /* of it, behind slot and generation */
};

static const char stuck[] = "what a grading started does not die";

/* ---- what is run ------------------------------------------------------------ */

/* The process of that name, with its asset; NULL, and *a, for the oracle. */
static const struct conf_env_process *
grade_find(const struct conf_environment *env, struct view name,
    const struct conf_env_asset **a)
{
	size_t i;

	*a = NULL;
	if (name.n == 0) {
		*a = assets_find(env, VIEW("oracle"));
		return NULL;
	}
	for (i = 0; i < env->processes_n; i++) {
		const struct conf_env_process *p = &env->processes[i];

		if (!p->privileged || !view_eq(p->name, name))
			continue;
		*a = assets_find(env, p->asset);
		return p;
	}
	return NULL;
}

/*
 * A name that no link, archive or repository of the agent's can hold, whatever
 * the oracle makes of them: it is new each time.
 */
static int
grade_name(char *out, size_t max)
{
	uint8_t r[16];
	size_t i, n;

	if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
		return SP_E_SYS;
	n = (size_t)snprintf(out, max, "assets-");
	for (i = 0; i < sizeof(r); i++)
		n += (size_t)snprintf(out + n, max - n, "%02x", r[i]);
	return SP_OK;
}

/* Where plain processes see it: where it is. */
static const char *
grade_folder(const struct conf_environment *env, const char *name,
    struct arena *arena)
{
	return env->enforcement == CONF_ENV_ENFORCE_LOCAL
	    ? arena_strdup(arena, env->assets)
	    : arena_printf(arena, "/openenvd/%s", name);
}

static int
grade_fill(const struct conf_environment *env, const struct conf_env_process *p,
    const struct conf_env_asset *a, const char *name, struct arena *arena,
    struct sandbox_run *run)
{
	size_t i, n = p != NULL ? p->command.n : 0;
	const char *folder = grade_folder(env, name, arena);
	const char *path, *where;

	if (folder == NULL)
		return SP_E_NOMEM;
	path = arena_printf(arena, "%s/%.*s", folder, VIEW_ARG(a->path));
	where = arena_printf(arena, "OPENENVD_ASSETS=%s", folder);
	run->argv.v = arena_zalloc(arena, (n + 1) * sizeof(run->argv.v[0]));
	run->env.v = arena_zalloc(arena, sizeof(run->env.v[0]));
	if (path == NULL || where == NULL || run->argv.v == NULL ||
	    run->env.v == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < n; i++)
		run->argv.v[i] = p->command.v[i];
	run->argv.v[n] = view_str(path);
	run->argv.n = n + 1;
	run->env.v[0] = view_str(where);
	run->env.n = 1;
	run->timeout_ms =
	    env->timeout_ms != 0 ? env->timeout_ms : GRADE_TIMEOUT_MS;
	return SP_OK;
}

static int
grade_seal(const struct conf_environment *env, const struct conf_env_process *p,
    const struct conf_env_asset *a, const char *name, int *out)
{
	struct arena *arena = arena_new(GRADE_ARENA_MAX);
	struct buf text = BUF_INIT(SANDBOX_MSG_RUN_MAX);
	struct sandbox_run run = { .cwd = VIEW("/workspace") };
	int rc = SP_E_NOMEM;

	if (arena != NULL)
		rc = grade_fill(env, p, a, name, arena, &run);
	if (rc == SP_OK)
		rc = sandbox_msg_run_put(&text, &run);
	if (rc == SP_OK)
		rc = fd_sealed("run", buf_view(&text).p, buf_len(&text), out);
	buf_clear(&text);
	arena_free(arena);
	return rc;
}

/* ---- one of them ------------------------------------------------------------ */

static struct grade *
grade_first(struct ep *p)
{
	return TAILQ_FIRST(&p->grades);
}

static void
grade_free(struct grade *g)
{
	TAILQ_REMOVE(&g->ep->grades, g, link);
	hold_release(g->ep->hold, &g->hold);
	/* taken back: the upper layer may still be on its way */
	slot_forget_own(g->ep->slot, g);
	poller_timer_free(g->late);
	fd_close(&g->run_fd);
	fd_close(&g->upper_fd);
	buf_clear(&g->body);
	mem_free(g);
}

/* Once; the reactor forgets the number with it. */
static void
grade_tell(struct grade *g)
{
	if (!g->muted)
		episodes_tell_process(g->ep, g->answer, buf_view(&g->body));
	g->muted = true;
}

/* NOT_STARTED before it was told of, else EXITED: for that reason. */
static int
grade_put_end(struct grade *g, enum sandbox_end end, unsigned status,
    struct view what)
{
	struct buf *b = &g->body;
	int rc, i;

	buf_truncate(b, 0);
	rc = wire_put_u32(b, g->request);
	if (!g->started) {
		g->answer = MESSAGE_PROCESS_NOT_STARTED;
		if (rc == SP_OK)
			rc = wire_put_u8(b, SANDBOX_STAGE_SPEC);
		if (rc == SP_OK)
			rc = wire_put_u32(b, 0);
		/* without memory for the reason, that it did not start */
		if (rc == SP_OK && wire_put_bytes(b, what) != SP_OK)
			rc = wire_put_bytes(b, VIEW_NONE);
		return rc;
	}
	g->answer = MESSAGE_PROCESS_EXITED;
	if (rc == SP_OK)
		rc = wire_put_u8(b, (uint8_t)end);
	if (rc == SP_OK)
		rc = wire_put_u8(b, (uint8_t)status);
	for (i = 0; i < 3 && rc == SP_OK; i++)
		rc = wire_put_u64(b, 0);
	return rc;
}

/* It comes to nothing: that is told when nothing of it lives. */
static void
grade_fail(struct grade *g, enum sandbox_end end, unsigned status,
    struct view what)
{
	if (g->state >= GRADE_ENDING)
		return;
	hold_release(g->ep->hold, &g->hold);
	if (grade_put_end(g, end, status, what) != SP_OK)
		log_error("no memory to tell of a grading");
	g->state = GRADE_ENDING;
	poller_timer_stop(g->late);
	slot_oracle_end(g->ep->slot);
}

static void
grade_lost(struct grade *g, const char *why)
{
	grade_fail(g, SANDBOX_END_LOST, 0, view_str(why));
}

static void
grade_on_late(void *arg)
{
	grade_lost(arg, "the workspace was not copied in time");
}

/* ---- its way ---------------------------------------------------------------- */

static void
grade_on_upper(void *arg, const struct channel_msg *m, struct view rest, int fd)
{
	struct grade *g = arg;
	int rc;

	(void)rest;
	if (g->state != GRADE_UPPER) {
		fd_close(&fd);
		return;
	}
	if (m->type == MESSAGE_KEEPER_FILE_DATA) {
		fd_close(&g->upper_fd);
		g->upper_fd = fd;
		return;
	}
	fd_close(&fd);
	if (g->upper_fd < 0) {
		grade_lost(g, "the workspace's upper layer cannot be had");
		return;
	}
	rc = slot_oracle_build(g->ep->slot, g->upper_fd);
	fd_close(&g->upper_fd);
	if (rc == SP_OK)
		g->state = GRADE_BUILDING;
	else
		grade_lost(g, err_str(rc));
	failpoint_reach("grade.copying");
}

/* KEEPER_FILE from its op on. */
static int
put_file(struct buf *b, enum sandbox_file_op op, uint64_t limit)
{
	int rc = wire_put_u8(b, (uint8_t)op);

	if (rc == SP_OK)
		rc = wire_put_u32(b, 0);
	if (rc == SP_OK)
		rc = wire_put_u64(b, limit);
	return rc == SP_OK ? wire_put_bytes(b, VIEW_NONE) : rc;
}

static void
grade_on_hold(void *arg, bool frozen)
{
	struct buf b = BUF_INIT(64);
	struct grade *g = arg;
	int rc;

	if (!frozen) {
		grade_lost(g,
		    hold_never(g->ep->hold)
			? SANDBOX_FROZEN_NEVER_TEXT
			: "the episode cannot be frozen: what runs in it does "
			  "not stop in time");
		return;
	}
	failpoint_reach("grade.frozen");
	g->state = GRADE_UPPER;
	rc = put_file(&b, SANDBOX_FILE_UPPER, 0);
	if (rc == SP_OK)
		rc = slot_ask_own(g->ep->slot, g->ep->slot->keepers[0].side,
		    MESSAGE_KEEPER_FILE, buf_view(&b), grade_on_upper, g);
	if (rc != SP_OK)
		grade_lost(g, err_str(rc));
	buf_clear(&b);
}

static void
grade_begin(struct grade *g)
{
	struct slot *s = g->ep->slot;
	int rc = slot_oracle_start(s, g->assets);

	failpoint_reach("grade.started");
	g->state = GRADE_HOLDING;
	poller_timer_set(g->late, GRADE_BUILD_MS);
	if (rc == SP_OK)
		rc = hold_take(g->ep->hold, &g->hold);
	if (rc == SP_OK)
		return;
	grade_lost(g,
	    rc == SP_E_STATE
		? "what an earlier grading left is not gone yet: ask again"
		: err_str(rc));
	if (s->oracle != SLOT_ORACLE_ENDING) {
		grade_tell(g);
		g->state = GRADE_TOLD;
	}
}

/* The next one's turn, if none is under way. */
static void
grade_next(struct ep *p)
{
	struct grade *g;

	while ((g = grade_first(p)) != NULL && g->state == GRADE_WAITING) {
		grade_begin(g);
		if (g->state != GRADE_TOLD)
			return;
		grade_free(g);
	}
}

static void
grade_run(struct grade *g)
{
	int fd = g->run_fd, rc;

	g->run_fd = -1;
	hold_release(g->ep->hold, &g->hold);
	poller_timer_stop(g->late);
	g->state = GRADE_RUNNING;
	rc = slot_run(g->ep->slot, SANDBOX_ORACLE, g->request, fd);
	if (rc != SP_OK)
		grade_lost(g, err_str(rc));
	failpoint_reach("grade.running");
}

/* What it found out counts for nothing, and nobody comes after it. */
static void
grade_stuck(struct grade *g)
{
	struct grade *w;

	if (g->state == GRADE_ENDING)
		(void)!grade_put_end(g, SANDBOX_END_LOST, 0, view_str(stuck));
	grade_tell(g);
	g->state = GRADE_TOLD;
	g->stuck = true;
	while ((w = TAILQ_NEXT(g, link)) != NULL) {
		if (!w->muted)
			episodes_tell_refused(w->ep->e, w->request,
			    SANDBOX_REFUSED_UNCLEAN, view_str(stuck));
		grade_free(w);
	}
}

void
grade_on_oracle(void *arg, struct slot *s, enum slot_oracle_news news,
    struct view why)
{
	struct ep *p = s->owner;
	struct grade *g = grade_first(p);

	(void)arg;
	switch (news) {
	case SLOT_ORACLE_BUILT:
		if (g != NULL && g->state == GRADE_BUILDING)
			grade_run(g);
		break;
	case SLOT_ORACLE_LOST:
		if (g != NULL)
			grade_fail(g, SANDBOX_END_LOST, 0, why);
		break;
	case SLOT_ORACLE_STUCK:
		if (g != NULL)
			grade_stuck(g);
		break;
	case SLOT_ORACLE_EMPTY:
		failpoint_reach("grade.empty");
		if (g != NULL && g->state == GRADE_ENDING) {
			grade_tell(g);
			g->state = GRADE_TOLD;
		}
		break;
	case SLOT_ORACLE_CLEAN:
		failpoint_reach("grade.clean");
		if (g != NULL && g->state >= GRADE_ENDING) {
			grade_tell(g);
			grade_free(g);
		}
		grade_next(p);
		break;
	}
}

bool
grade_heard(struct ep *p, const struct channel_msg *m, uint32_t number,
    struct view rest)
{
	struct grade *g = grade_first(p);

	if (g == NULL || g->state < GRADE_RUNNING || g->request != number)
		return false;
	if (m->type == MESSAGE_KEEPER_STARTED)
		g->started = true;
	if (m->type != MESSAGE_KEEPER_EXITED &&
	    m->type != MESSAGE_KEEPER_NOT_STARTED)
		return g->state != GRADE_RUNNING;
	if (g->state != GRADE_RUNNING)
		return true;
	grade_lost(g, "out of memory");
	g->answer = m->type == MESSAGE_KEEPER_EXITED
	    ? MESSAGE_PROCESS_EXITED
	    : MESSAGE_PROCESS_NOT_STARTED;
	buf_truncate(&g->body, 0);
	if (wire_put_u32(&g->body, number) != SP_OK ||
	    buf_add_view(&g->body, rest) != SP_OK)
		(void)!grade_put_end(g, SANDBOX_END_LOST, 0, VIEW_NONE);
	return true;
}

bool
grade_signal(struct ep *p, uint32_t handle, uint8_t signo)
{
	struct grade *g;

	TAILQ_FOREACH (g, &p->grades, link)
		if (g->request == handle)
			break;
	if (g == NULL)
		return false;
	/* its verdict is its own: it can only be taken back */
	if (signo != SIGKILL)
		return true;
	if (g->state != GRADE_WAITING) {
		grade_fail(g, SANDBOX_END_SIGNAL, SIGKILL,
		    VIEW("it was taken back"));
	} else if (grade_put_end(g, SANDBOX_END_SIGNAL, SIGKILL,
		       VIEW("it was taken back")) == SP_OK) {
		grade_tell(g);
		grade_free(g);
	}
	return true;
}

/* ---- what the reactor asks -------------------------------------------------- */

static struct grade *
grade_new(struct ep *p, uint32_t request)
{
	struct grade *g = mem_calloc(1, sizeof(*g));

	if (g == NULL)
		return NULL;
	g->ep = p;
	g->request = request;
	g->run_fd = g->upper_fd = -1;
	g->hold.done = grade_on_hold;
	g->hold.arg = g;
	buf_init(&g->body, GRADE_WHY_MAX);
	g->late = poller_timer_new(p->e->p, grade_on_late, g);
	if (g->late == NULL || buf_reserve(&g->body, 64) != SP_OK) {
		poller_timer_free(g->late);
		buf_clear(&g->body);
		mem_free(g);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&p->grades, g, link);
	return g;
}

/* What it is to run: 0; or why not, with the reason in *why. */
static unsigned
grade_plan(struct ep *p, struct view name, const char *assets, int *run_fd,
    struct buf *why)
{
	const struct conf_environment *env = p->env->env;
	const struct conf_env_process *proc;
	const struct conf_env_asset *a;
	int rc;

	if (env == NULL) {
		(void)!buf_add_str(why,
		    "its environment is no longer configured");
		return SANDBOX_REFUSED_STATE;
	}
	proc = grade_find(env, name, &a);
	if (a == NULL) {
		(void)!buf_printf(why,
		    name.n == 0
			? "environment \"%s\" has no asset \"oracle\"%.*s"
			: "environment \"%s\" has no process \"%.*s\" of "
			  "trust privileged",
		    p->env->name, VIEW_ARG(name));
		return SANDBOX_REFUSED_UNKNOWN;
	}
	rc = assets_check(env, p->env->assets_fd, a,
	    proc == NULL || proc->command.n == 0, why);
	if (rc == SP_OK) {
		buf_truncate(why, 0);
		rc = grade_seal(env, proc, a, assets, run_fd);
		if (rc != SP_OK)
			(void)!buf_add_str(why, err_str(rc));
	}
	return rc == SP_OK ? 0 : SANDBOX_REFUSED_FAILED;
}

static unsigned
grade_start(struct ep *p, uint32_t request, struct view name, struct buf *why)
{
	unsigned refused, n = 0;
	char assets[SLOT_ASSETS_MAX];
	struct grade *g;
	int run_fd = -1;

	TAILQ_FOREACH (g, &p->grades, link)
		n++;
	if (n >= GRADE_WAITING_MAX) {
		(void)!buf_add_str(why,
		    "as many gradings of the episode wait as may: ask again "
		    "when one is done");
		return SANDBOX_REFUSED_CAPACITY;
	}
	g = grade_first(p);
	if (g != NULL && g->stuck) {
		(void)!buf_add_str(why, stuck);
		return SANDBOX_REFUSED_UNCLEAN;
	}
	if (grade_name(assets, sizeof(assets)) != SP_OK) {
		(void)!buf_add_str(why, "the kernel gives no random bytes");
		return SANDBOX_REFUSED_FAILED;
	}
	refused = grade_plan(p, name, assets, &run_fd, why);
	if (refused != 0)
		return refused;
	g = grade_new(p, request);
	if (g == NULL) {
		fd_close(&run_fd);
		(void)!buf_add_str(why, "out of memory");
		return SANDBOX_REFUSED_FAILED;
	}
	g->run_fd = run_fd;
	memcpy(g->assets, assets, sizeof(assets));
	if (g == grade_first(p))
		grade_next(p);
	return 0;
}

static bool
grade_is_open(const struct ep *p, uint32_t request)
{
	const struct grade *g;

	TAILQ_FOREACH (g, &p->grades, link)
		if (g->request == request)
			return true;
	return slot_runs(p->slot, request);
}

int
grade_ask(struct episodes *e, struct channel_msg *m)
{
	struct buf why = BUF_INIT(GRADE_WHY_MAX);
	uint32_t request, slot, generation;
	unsigned refused;
	struct view name;
	struct wire w;
	struct ep *p;

	wire_init(&w, m->body);
	request = wire_u32(&w);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	name = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	p = episodes_find(e, slot, generation);
	if (p == NULL || p->use != EP_OWNED || e->stopping) {
		episodes_tell_refused(e, request, SANDBOX_REFUSED_UNKNOWN,
		    VIEW("no such episode"));
		return SP_OK;
	}
	if (request == 0 || grade_is_open(p, request))
		return SP_E_PROTO; /* it keeps its own numbers apart */
	refused = grade_start(p, request, name, &why);
	if (refused != 0)
		episodes_tell_refused(e, request, refused, buf_view(&why));
	buf_clear(&why);
	return SP_OK;
}

/* ---- the end ---------------------------------------------------------------- */

void
grade_reactor_lost(struct ep *p)
{
	struct grade *g, *next;

	for (g = grade_first(p); g != NULL; g = next) {
		next = TAILQ_NEXT(g, link);
		g->muted = true;
		if (g->state == GRADE_WAITING)
			grade_free(g);
		else
			grade_lost(g, "nobody listens");
	}
}

void
grade_drop(struct ep *p)
{
	struct grade *g;

	while ((g = grade_first(p)) != NULL)
		grade_free(g);
}
