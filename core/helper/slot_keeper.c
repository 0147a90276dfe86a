#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "helper/sandbox_plan.h"
#include "helper/slot_priv.h"
#include "helper/slot_spare.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum { KEEPER_MESSAGES_PER_TURN = 32 };

/* owner's number of our own request */
static const uint32_t keeper_internal = UINT32_MAX;

/* ---- calls ------------------------------------------------------------------ */

static struct slot_call *
call_find(struct slot *s, uint32_t number)
{
	size_t i;

	for (i = 0; i < s->calls_n; i++)
		if (s->calls[i].number == number)
			return &s->calls[i];
	return NULL;
}

static struct slot_call *
call_of_owner(struct slot *s, uint32_t owners, bool run)
{
	size_t i;

	for (i = 0; i < s->calls_n; i++)
		if (s->calls[i].owners == owners && s->calls[i].run == run &&
		    !s->calls[i].forgotten && s->calls[i].own == NULL)
			return &s->calls[i];
	return NULL;
}

static void
call_remove(struct slot *s, struct slot_call *c)
{
	if (c != NULL)
		*c = s->calls[--s->calls_n];
}

/* A new one, or NULL: too many are open. */
static struct slot_call *
call_new(struct slot *s, size_t keeper)
{
	struct slot_call *c;

	if (s->calls_n == SLOT_CALLS_MAX)
		return NULL;
	/* 0 is "every process" in KEEPER_SIGNAL */
	do
		s->calls_last++;
	while (s->calls_last == 0 || call_find(s, s->calls_last) != NULL);
	c = &s->calls[s->calls_n++];
	memset(c, 0, sizeof(*c));
	c->number = s->calls_last;
	c->keeper = (uint8_t)keeper;
	return c;
}

static int
call_add(struct slot *s, size_t keeper, uint32_t owners, bool run,
    uint32_t *number)
{
	struct slot_call *c;

	if (call_of_owner(s, owners, run) != NULL)
		return SP_E_EXISTS;
	c = call_new(s, keeper);
	if (c == NULL)
		return SP_E_LIMIT;
	c->owners = owners;
	c->run = run;
	*number = c->number;
	return SP_OK;
}

static int
call_add_own(struct slot *s, size_t keeper, slot_answer *own, void *arg,
    uint32_t *number)
{
	struct slot_call *c = call_new(s, keeper);

	if (c == NULL)
		return SP_E_LIMIT;
	c->owners = keeper_internal;
	c->own = own;
	c->own_arg = arg;
	*number = c->number;
	return SP_OK;
}

bool
slot_runs(const struct slot *s, uint32_t number)
{
	size_t i;

	for (i = 0; i < s->calls_n; i++)
		if (s->calls[i].owners == number && s->calls[i].run)
			return true;
	return false;
}

void
slot_keeper_drop_calls(struct slot_keeper *k)
{
	struct slot *s = k->slot;
	size_t i = 0;

	while (i < s->calls_n)
		if (&s->keepers[s->calls[i].keeper] == k)
			call_remove(s, &s->calls[i]);
		else
			i++;
}

void
slot_forget_calls(struct slot *s)
{
	size_t i;

	/* the numbers stay the keeper's until it has answered */
	for (i = 0; i < s->calls_n; i++)
		s->calls[i].forgotten = true;
}

static void
call_discard(void *arg, const struct channel_msg *m, struct view rest, int fd)
{
	(void)arg;
	(void)m;
	(void)rest;
	fd_close(&fd);
}

void
slot_forget_own(struct slot *s, const void *arg)
{
	size_t i;

	for (i = 0; i < s->calls_n; i++)
		if (s->calls[i].own != NULL && s->calls[i].own_arg == arg) {
			s->calls[i].own = call_discard;
			s->calls[i].own_arg = NULL;
		}
}

/* ---- starting --------------------------------------------------------------- */

static void
keeper_send(struct slot_keeper *k, enum message_type type, struct view body,
    int fd)
{
	int rc;

	if (k->c == NULL) {
		fd_close(&fd);
		return;
	}
	rc = channel_send(k->c, type, body, fd);
	/* GONE: its end comes as a child's */
	if (rc != SP_OK && rc != SP_E_GONE) {
		log_error("keeper of slot %" PRIu32
			  " takes no messages (%s) and is ended",
		    k->slot->number, err_str(rc));
		slot_keeper_kill(k);
	}
}

int
slot_keeper_give(struct slot_keeper *k, enum sandbox_fd what, uint32_t index,
    int fd)
{
	struct buf b = BUF_INIT(16);
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 4), rc;

	if (copy < 0)
		return err_from_errno(errno);
	rc = wire_put_u8(&b, (uint8_t)what);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, index);
	if (rc == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_GIVE, buf_view(&b), copy);
	else
		fd_close(&copy);
	buf_clear(&b);
	return rc;
}

static int
keeper_hand_over(struct slot_keeper *k)
{
	struct slot *s = k->slot;
	struct sandbox_plan plan = {
		.slot = s->number,
		.generation = s->generation,
		.env_place = s->env_place,
		.side = k->side,
		.privileged = s->w->privileged,
		.first = k == &s->keepers[0],
	};
	const struct cgroup_root *r = s->w->cgroups;
	bool oracle = slot_keeper_is_oracle(k);
	uint32_t i;
	int fd, rc;

	if (oracle)
		plan.assets = view_str(s->oracle_assets);
	rc = sandbox_plan_seal(&plan, s->env, &fd);
	if (rc != SP_OK)
		return rc;
	keeper_send(k, MESSAGE_KEEPER_SPEC, VIEW_NONE, fd);
	for (i = 0; i < CGROUP_HIERARCHIES && rc == SP_OK; i++)
		if (r->fd[i] >= 0)
			rc = slot_keeper_give(k, SANDBOX_FD_CGROUP,
			    i | (r->v1[i] ? SANDBOX_FD_CGROUP_V1 : 0),
			    r->fd[i]);
	if (rc == SP_OK && (plan.first || oracle) && s->seed_fd >= 0)
		rc = slot_keeper_give(k, SANDBOX_FD_SEED, 0, s->seed_fd);
	/* nobody else ever holds them */
	if (rc == SP_OK && oracle && s->assets_fd >= 0)
		rc = slot_keeper_give(k, SANDBOX_FD_ASSETS, 0, s->assets_fd);
	if (rc == SP_OK && (plan.first || oracle) &&
	    s->env->storage == CONF_ENV_STORAGE_DISK)
		rc = slot_keeper_give(k, SANDBOX_FD_DISK, 0, s->w->disk_fd);
	return rc;
}

static void keeper_on_channel(void *arg, unsigned ready);

int
slot_keeper_start(struct slot_keeper *k)
{
	const struct slot_world *w = k->slot->w;
	int rc;

	k->ready = k->empty = k->gone = k->building = false;
	rc = slot_spare_take(w->spare, &k->pid, &k->c);
	if (rc != SP_OK)
		rc = slot_spare_spawn(w->program_dir, &k->pid, &k->c);
	if (rc != SP_OK) {
		k->pid = -1;
		return rc;
	}
	k->f = poller_add(w->p, channel_fd(k->c), POLLER_READ,
	    keeper_on_channel, k);
	if (k->f == NULL)
		return SP_E_NOMEM;
	failpoint_reach("keeper.started");
	rc = keeper_hand_over(k);
	failpoint_reach("keeper.told");
	return rc;
}

void
slot_keeper_prepare(struct slot_keeper *k)
{
	keeper_send(k, MESSAGE_KEEPER_PREPARE, VIEW_NONE, -1);
}

int
slot_keeper_build(struct slot_keeper *k, int net_fd, int workspace_fd)
{
	int rc = SP_OK;

	if (net_fd >= 0)
		rc = slot_keeper_give(k, SANDBOX_FD_NETNS, 0, net_fd);
	if (rc == SP_OK && workspace_fd >= 0)
		rc = slot_keeper_give(k, SANDBOX_FD_WORKSPACE, 0, workspace_fd);
	if (rc == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_BUILD, VIEW_NONE, -1);
	failpoint_reach("keeper.building");
	return rc;
}

int
slot_keeper_share(struct slot_keeper *k)
{
	return slot_ask(k->slot, k->side, MESSAGE_KEEPER_SHARE, keeper_internal,
	    VIEW_NONE, -1);
}

void
slot_keeper_end(struct slot_keeper *k)
{
	keeper_send(k, MESSAGE_KEEPER_END, VIEW_NONE, -1);
}

void
slot_keeper_kill(struct slot_keeper *k)
{
	/* not reaped yet, so the number is still this very process's */
	if (k->pid > 0)
		(void)kill(k->pid, SIGKILL);
}

void
slot_keeper_clear(struct slot_keeper *k)
{
	poller_remove(k->f);
	k->f = NULL;
	channel_free(k->c);
	k->c = NULL;
}

/* ---- what it says ----------------------------------------------------------- */

static int
keeper_on_ready(struct slot_keeper *k, struct channel_msg *m)
{
	(void)m;
	if (!k->building)
		return SP_E_PROTO;
	k->ready = true;
	channel_set_state(k->c, MESSAGE_RUN);
	slot_advance(k->slot);
	return SP_OK;
}

static int
keeper_on_failed(struct slot_keeper *k, struct channel_msg *m)
{
	unsigned stage, number;
	struct view what;
	struct wire w;

	wire_init(&w, m->body);
	stage = wire_u8(&w);
	number = wire_u32(&w);
	what = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	slot_keeper_lost(k, SANDBOX_END_LOST, "stage %s: %.*s%s%s",
	    sandbox_msg_stage(stage), VIEW_ARG(what), number != 0 ? ": " : "",
	    number != 0 ? strerror((int)number) : "");
	return SP_OK;
}

static int
keeper_on_empty(struct slot_keeper *k, struct channel_msg *m)
{
	(void)m;
	if (k->empty)
		return SP_E_PROTO;
	/* unasked: its pid 1 died, and with it everything */
	if (k->slot->oom != NULL && !slot_keeper_is_oracle(k))
		slot_lost(k->slot, SANDBOX_END_OOM, "%s", k->slot->oom);
	else
		slot_keeper_lost(k, SANDBOX_END_LOST, "its sandbox died");
	k->empty = true;
	slot_advance(k->slot);
	return SP_OK;
}

static int
keeper_on_stuck(struct slot_keeper *k, struct channel_msg *m)
{
	struct slot *s = k->slot;
	struct view what;
	struct wire w;
	uint32_t left;

	wire_init(&w, m->body);
	left = wire_u32(&w);
	what = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	log_error("episode slot=%" PRIu32 ": %" PRIu32
		  " processes do not die: %.*s",
	    s->number, left, VIEW_ARG(what));
	if (s->state == SLOT_READY && slot_keeper_is_oracle(k))
		slot_oracle_stuck(s);
	if (s->state == SLOT_ENDING && !s->stuck) {
		s->stuck = true;
		s->w->stuck(s->w->arg, s);
	}
	return SP_OK;
}

static int
keeper_on_gone(struct slot_keeper *k, struct channel_msg *m)
{
	(void)m;
	/* after FAILED nothing was there to be emptied */
	k->gone = k->empty = true;
	slot_keeper_lost(k, SANDBOX_END_LOST, "its keeper is done");
	slot_advance(k->slot);
	return SP_OK;
}

static int
keeper_on_shared(struct slot_keeper *k, struct channel_msg *m)
{
	struct slot *s = k->slot;
	struct slot_keeper *other = &s->keepers[1];
	struct slot_call *c;
	struct wire w;
	int rc;

	wire_init(&w, m->body);
	c = call_find(s, wire_u32(&w));
	if (wire_done(&w) != SP_OK || c == NULL || c->run || c->own != NULL ||
	    c->owners != keeper_internal || &s->keepers[c->keeper] != k)
		return SP_E_PROTO;
	call_remove(s, c);
	if (s->state != SLOT_BUILDING || other->side == 0)
		return SP_OK;
	rc = slot_keeper_build(other, -1, m->fd);
	if (rc != SP_OK)
		slot_lost(s, SANDBOX_END_LOST,
		    "the workspace cannot be shared: %s", err_str(rc));
	return SP_OK;
}

/*
 * Killed because the time of the whole is up: what is told of the slot's end
 * is told of each that it ended.
 */
static bool
ends_with_all(const struct slot *s, const struct channel_msg *m)
{
	struct wire w;

	if (m->type != MESSAGE_KEEPER_EXITED || s->state != SLOT_ENDING ||
	    s->asked || s->end != SANDBOX_END_TIMEOUT)
		return false;
	wire_init(&w, m->body);
	(void)wire_u32(&w);
	return wire_u8(&w) == SANDBOX_END_SIGNAL && wire_u8(&w) == SIGKILL;
}

/* The answer to a call, or a part of it. */
static int
keeper_on_answer(struct slot_keeper *k, struct channel_msg *m)
{
	bool run = m->type != MESSAGE_KEEPER_FROZEN &&
	    m->type != MESSAGE_KEEPER_FILE_DONE &&
	    m->type != MESSAGE_KEEPER_FILE_DATA &&
	    m->type != MESSAGE_KEEPER_CONNECTED;
	bool last = m->type == MESSAGE_KEEPER_NOT_STARTED ||
	    m->type == MESSAGE_KEEPER_EXITED ||
	    m->type == MESSAGE_KEEPER_FROZEN ||
	    m->type == MESSAGE_KEEPER_FILE_DONE ||
	    m->type == MESSAGE_KEEPER_CONNECTED;
	struct slot *s = k->slot;
	struct slot_call *c;
	slot_answer *own;
	void *own_arg;
	uint32_t owners;
	struct wire w;
	bool heard;
	int fd = m->fd;

	wire_init(&w, m->body);
	c = call_find(s, wire_u32(&w));
	if (c == NULL || c->run != run || &s->keepers[c->keeper] != k)
		return SP_E_PROTO;
	owners = c->owners;
	own = c->own;
	own_arg = c->own_arg;
	heard = !c->forgotten && s->owned && !ends_with_all(s, m);
	if (last)
		call_remove(s, c);
	m->fd = -1;
	if (own != NULL)
		own(own_arg, m, view_from(m->body, 4), fd);
	else if (heard)
		s->w->heard(s->w->arg, s, m, owners, view_from(m->body, 4), fd);
	else
		fd_close(&fd);
	return SP_OK;
}

/* Before READY: it is kept for whoever gets the episode, and the next. */
static int
keeper_on_watch(struct slot_keeper *k, struct channel_msg *m)
{
	struct slot *s = k->slot;

	if (s->watch_fd >= 0)
		return SP_E_PROTO;
	/* one that ends by now has no use for it */
	if (s->state == SLOT_BUILDING) {
		s->watch_fd = m->fd;
		m->fd = -1;
	}
	return SP_OK;
}

/* An event is its kind, its number, and what there is to say. */
static const char *
keeper_oom(struct view event)
{
	struct wire w;

	wire_init(&w, event);
	(void)wire_u8(&w);
	(void)wire_u64(&w);
	(void)wire_u8(&w);
	(void)wire_u32(&w);
	return wire_u8(&w) == 1
	    ? "its sandbox ran out of memory: its TCP sockets held more than "
	      "all that it may have"
	    : "its sandbox ran out of memory";
}

/* Nobody's answer: an event. */
static int
keeper_on_news(struct slot_keeper *k, struct channel_msg *m)
{
	struct slot *s = k->slot;
	int fd = m->fd;

	/* an event begins with its kind */
	if (m->type == MESSAGE_KEEPER_EVENT && m->body.n > 0 &&
	    (unsigned char)m->body.p[0] == SANDBOX_EVENT_OOM &&
	    !slot_keeper_is_oracle(k))
		s->oom = keeper_oom(m->body);
	m->fd = -1;
	/* numbered apart, and of a sandbox that is no part of the episode */
	if (slot_keeper_is_oracle(k))
		fd_close(&fd);
	else
		s->w->heard(s->w->arg, s, m, 0, m->body, fd);
	return SP_OK;
}

static const struct {
	enum message_type type;
	int (*handle)(struct slot_keeper *k, struct channel_msg *m);
} keeper_rows[] = {
	{ MESSAGE_KEEPER_READY, keeper_on_ready },
	{ MESSAGE_KEEPER_FAILED, keeper_on_failed },
	{ MESSAGE_KEEPER_EMPTY, keeper_on_empty },
	{ MESSAGE_KEEPER_STUCK, keeper_on_stuck },
	{ MESSAGE_KEEPER_GONE, keeper_on_gone },
	{ MESSAGE_KEEPER_SHARED, keeper_on_shared },
	{ MESSAGE_KEEPER_STDIO, keeper_on_answer },
	{ MESSAGE_KEEPER_STARTED, keeper_on_answer },
	{ MESSAGE_KEEPER_NOT_STARTED, keeper_on_answer },
	{ MESSAGE_KEEPER_EXITED, keeper_on_answer },
	{ MESSAGE_KEEPER_FROZEN, keeper_on_answer },
	{ MESSAGE_KEEPER_FILE_DONE, keeper_on_answer },
	{ MESSAGE_KEEPER_FILE_DATA, keeper_on_answer },
	{ MESSAGE_KEEPER_CONNECTED, keeper_on_answer },
	{ MESSAGE_KEEPER_EVENT, keeper_on_news },
	{ MESSAGE_KEEPER_WATCH, keeper_on_watch },
};

static int
keeper_handle(struct slot_keeper *k, struct channel_msg *m)
{
	size_t i;
	int rc = SP_E_PROTO;

	for (i = 0; i < sizeof(keeper_rows) / sizeof(keeper_rows[0]); i++)
		if (keeper_rows[i].type == m->type)
			rc = keeper_rows[i].handle(k, m);
	fd_close(&m->fd);
	return rc;
}

static void
keeper_read(struct slot_keeper *k)
{
	struct channel_msg m;
	int i, rc = SP_OK;

	for (i = 0; i < KEEPER_MESSAGES_PER_TURN && rc == SP_OK; i++) {
		if (k->c == NULL)
			return;
		rc = channel_recv(k->c, &m);
		if (rc == SP_OK)
			rc = keeper_handle(k, &m);
	}
	if (rc == SP_OK || rc == SP_E_AGAIN)
		return;
	if (rc == SP_E_PROTO)
		log_error("keeper of slot %" PRIu32 " broke the protocol and "
			  "is ended as compromised",
		    k->slot->number);
	/* its end is seen by its process */
	slot_keeper_kill(k);
	slot_keeper_clear(k);
}

static void
keeper_on_channel(void *arg, unsigned ready)
{
	struct slot_keeper *k = arg;

	if ((ready & POLLER_WRITE) && channel_flush(k->c) == SP_E_GONE &&
	    !(ready & POLLER_READ))
		ready |= POLLER_READ;
	if (ready & (POLLER_READ | POLLER_HUP))
		keeper_read(k);
	if (slot_keeper_dead(k))
		slot_advance(k->slot);
}

void
slot_keeper_reaped(struct slot_keeper *k)
{
	int i;

	/* all that it said before it ended: bounded by what a socket holds */
	for (i = 0; i < 1000 && k->c != NULL; i++)
		keeper_read(k);
	slot_keeper_clear(k);
}

void
slot_after(struct slot *s)
{
	unsigned want;
	size_t i;

	for (i = 0; i < SLOT_KEEPERS; i++) {
		struct slot_keeper *k = &s->keepers[i];

		if (k->f == NULL)
			continue;
		want = POLLER_READ;
		if (channel_queued(k->c) > 0)
			want |= POLLER_WRITE;
		if (poller_want(k->f, want) != SP_OK)
			slot_keeper_kill(k);
	}
}

/* ---- what is asked of it ---------------------------------------------------- */

static int
slot_side(const struct slot *s, uint8_t side, size_t *out)
{
	size_t i;

	for (i = 0; i < SLOT_KEEPERS; i++)
		if (side != 0 && s->keepers[i].side == side) {
			*out = i;
			return SP_OK;
		}
	return SP_E_NOTFOUND;
}

int
slot_ask(struct slot *s, uint8_t side, enum message_type type, uint32_t number,
    struct view body, int fd)
{
	bool run = type == MESSAGE_KEEPER_RUN;
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	uint32_t keepers;
	size_t i = 0;
	int rc;

	rc = slot_side(s, side, &i);
	if (rc == SP_OK && !s->keepers[i].ready)
		rc = SP_E_STATE;
	if (rc == SP_OK)
		rc = call_add(s, i, number, run, &keepers);
	if (rc == SP_OK) {
		rc = wire_put_u32(&b, keepers);
		if (rc == SP_OK)
			rc = buf_add_view(&b, body);
		if (rc != SP_OK)
			call_remove(s, call_find(s, keepers));
	}
	if (rc == SP_OK)
		keeper_send(&s->keepers[i], type, buf_view(&b), fd);
	else
		fd_close(&fd);
	buf_clear(&b);
	return rc;
}

int
slot_ask_own(struct slot *s, uint8_t side, enum message_type type,
    struct view body, slot_answer *own, void *arg)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	uint32_t number = 0;
	size_t i = 0;
	int rc;

	rc = slot_side(s, side, &i);
	if (rc == SP_OK && (!s->keepers[i].ready || s->state != SLOT_READY))
		rc = SP_E_STATE;
	if (rc == SP_OK)
		rc = call_add_own(s, i, own, arg, &number);
	if (rc != SP_OK)
		return rc;
	rc = wire_put_u32(&b, number);
	if (rc == SP_OK)
		rc = buf_add_view(&b, body);
	if (rc == SP_OK)
		keeper_send(&s->keepers[i], type, buf_view(&b), -1);
	else
		call_remove(s, call_find(s, number));
	buf_clear(&b);
	return rc;
}

int
slot_run(struct slot *s, uint8_t side, uint32_t number, int run_fd)
{
	return slot_ask(s, side, MESSAGE_KEEPER_RUN, number, VIEW_NONE, run_fd);
}

static int
keeper_signal(struct slot_keeper *k, uint32_t number, uint8_t signo)
{
	struct buf b = BUF_INIT(16);
	int rc = wire_put_u32(&b, number);

	if (rc == SP_OK)
		rc = wire_put_u8(&b, signo);
	if (rc == SP_OK)
		keeper_send(k, MESSAGE_KEEPER_SIGNAL, buf_view(&b), -1);
	buf_clear(&b);
	return rc;
}

int
slot_signal(struct slot *s, uint32_t number, uint8_t signo)
{
	const struct slot_call *c = call_of_owner(s, number, true);
	int rc = SP_OK;
	size_t i;

	if (number != 0)
		return c != NULL
		    ? keeper_signal(&s->keepers[c->keeper], c->number, signo)
		    : SP_E_NOTFOUND;
	for (i = 0; i < SLOT_KEEPERS && rc == SP_OK; i++)
		if (s->keepers[i].side != 0 && s->keepers[i].ready &&
		    !slot_keeper_is_oracle(&s->keepers[i]))
			rc = keeper_signal(&s->keepers[i], 0, signo);
	return rc;
}
