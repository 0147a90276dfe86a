#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "helper/episodes_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"

enum { EPISODES_TABLE_MAX = 256 * 1024, EPISODES_PIECE = 8 * 1024 };

/* What the helper says to the reactor of episodes, and what it passes on. */

static void
ep_send(struct episodes *e, enum message_type type, struct buf *b, int rc,
    int fd)
{
	if (rc == SP_OK && e->send != NULL) {
		e->send(e->send_arg, type, buf_view(b), fd);
	} else {
		fd_close(&fd);
		if (rc != SP_OK)
			log_error("a message about an episode is lost: %s",
			    err_str(rc));
	}
	buf_clear(b);
}

static int
put_which(struct buf *b, const struct slot *s)
{
	int rc = wire_put_u32(b, s->number);

	return rc == SP_OK ? wire_put_u32(b, s->generation) : rc;
}

void
episodes_tell_refused(struct episodes *e, uint32_t request, unsigned why,
    struct view what)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = wire_put_u32(&b, request);

	if (rc == SP_OK)
		rc = wire_put_u8(&b, (uint8_t)why);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, what);
	ep_send(e, MESSAGE_EPISODE_REFUSED, &b, rc, -1);
}

/* The reactor gets a descriptor of its own. */
static void
tell_fd(struct ep *p, enum message_type type, int fd, bool indexed,
    uint32_t index)
{
	int copy = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 4) : -1;
	struct buf b = BUF_INIT(16);
	int rc;

	if (copy < 0)
		return;
	rc = put_which(&b, p->slot);
	if (rc == SP_OK && indexed)
		rc = wire_put_u32(&b, index);
	ep_send(p->e, type, &b, rc, copy);
}

/*
 * For what is kept of its events beyond memory: it has no name, and is gone
 * with whoever holds it.  Without one, less is kept.
 */
static void
tell_spill(struct ep *p)
{
	int dir = p->e->world.state_fd, fd = -1;

	if (dir >= 0)
		fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 && dir >= 0)
		log_debug("no file for events: %s", strerror(errno));
	tell_fd(p, MESSAGE_EPISODE_SPILL, fd, false, 0);
	fd_close(&fd);
}

void
episodes_tell_made(struct ep *p, uint32_t request)
{
	const struct netns *n = &p->slot->net;
	struct buf b = BUF_INIT(256);
	size_t i;
	int rc;

	for (i = 0; i < n->listeners_n; i++)
		tell_fd(p, MESSAGE_EPISODE_LISTENER, n->listeners[i].fd, true,
		    n->listeners[i].index);
	tell_fd(p, MESSAGE_EPISODE_NFLOG, n->nflog_fd, false, 0);
	tell_fd(p, MESSAGE_EPISODE_WATCH, p->slot->watch_fd, false, 0);
	rc = put_which(&b, p->slot);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, request);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, view_str(p->env->name));
	ep_send(p->e, MESSAGE_EPISODE_MADE, &b, rc, -1);
	tell_spill(p);
}

void
episodes_tell_named(struct ep *p)
{
	struct buf b = BUF_INIT(256);
	int rc;

	if (p->name[0] == '\0')
		return;
	rc = put_which(&b, p->slot);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, p->resets);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, view_str(p->name));
	ep_send(p->e, MESSAGE_EPISODE_NAMED, &b, rc, -1);
}

void
episodes_tell_resumed(struct episodes *e)
{
	struct buf b = BUF_INIT(1);

	ep_send(e, MESSAGE_EPISODE_RESUMED, &b, SP_OK, -1);
}

void
episodes_tell_ended(struct ep *p, uint32_t request, unsigned end,
    struct view what)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = put_which(&b, p->slot);

	if (rc == SP_OK)
		rc = wire_put_u32(&b, request);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, (uint8_t)end);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, what);
	ep_send(p->e, MESSAGE_EPISODE_ENDED, &b, rc, -1);
}

void
episodes_tell_guarantees(struct episodes *e)
{
	struct buf table = BUF_INIT(EPISODES_TABLE_MAX);
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct view rest;
	size_t n;
	int rc;

	rc = episodes_guarantees(e, &table);
	rest = buf_view(&table);
	while (rc == SP_OK && rest.n > 0) {
		n = rest.n < EPISODES_PIECE ? rest.n : EPISODES_PIECE;
		rc = wire_put_bytes(&b, view_sub(rest, 0, n));
		ep_send(e, MESSAGE_EPISODE_GUARANTEES, &b, rc, -1);
		rest = view_from(rest, n);
	}
	buf_clear(&table);
}

static void
tell_warm(struct ep_env *v)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = wire_put_u32(&b, v->warm_ready);

	if (rc == SP_OK)
		rc = wire_put_bytes(&b, view_str(v->name));
	v->warm_told = v->warm_ready;
	ep_send(v->e, MESSAGE_EPISODE_WARM, &b, rc, -1);
}

void
episodes_tell_warm(struct episodes *e)
{
	size_t i;

	for (i = 0; i < e->envs_n; i++)
		e->envs[i]->warm_ready = 0;
	for (i = 0; i < e->eps_n; i++)
		if (e->eps[i]->use == EP_WARM &&
		    e->eps[i]->slot->state == SLOT_READY)
			e->eps[i]->env->warm_ready++;
	for (i = 0; i < e->envs_n; i++)
		if (e->envs[i]->warm_ready != e->envs[i]->warm_told)
			tell_warm(e->envs[i]);
}

/* ---- from keepers ----------------------------------------------------------- */

static const struct {
	enum message_type from, to;
	bool numbered; /* of a call */
} pass_rows[] = {
	{ MESSAGE_KEEPER_STDIO, MESSAGE_PROCESS_STDIO, true },
	{ MESSAGE_KEEPER_STARTED, MESSAGE_PROCESS_STARTED, true },
	{ MESSAGE_KEEPER_NOT_STARTED, MESSAGE_PROCESS_NOT_STARTED, true },
	{ MESSAGE_KEEPER_EXITED, MESSAGE_PROCESS_EXITED, true },
	{ MESSAGE_KEEPER_FILE_DONE, MESSAGE_EPISODE_FILE_DONE, true },
	{ MESSAGE_KEEPER_FILE_DATA, MESSAGE_EPISODE_FILE_DATA, true },
	{ MESSAGE_KEEPER_CONNECTED, MESSAGE_EPISODE_CONNECTED, true },
	{ MESSAGE_KEEPER_EVENT, MESSAGE_EPISODE_EVENT, false },
};

void
episodes_tell_frozen(struct ep *p, uint32_t request, enum sandbox_frozen how)
{
	struct buf b = BUF_INIT(32);
	int rc = put_which(&b, p->slot);

	if (rc == SP_OK)
		rc = wire_put_u32(&b, request);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, (uint8_t)how);
	ep_send(p->e, MESSAGE_EPISODE_FROZEN, &b, rc, -1);
}

void
episodes_tell_process(struct ep *p, enum message_type type, struct view body)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = put_which(&b, p->slot);

	if (rc == SP_OK)
		rc = buf_add_view(&b, body);
	ep_send(p->e, type, &b, rc, -1);
}

void
episodes_on_heard(void *arg, struct slot *s, const struct channel_msg *m,
    uint32_t number, struct view rest, int fd)
{
	(void)arg;
	if (grade_heard(s->owner, m, number, rest))
		fd_close(&fd);
	else
		episodes_pass(s->owner, m->type, number, rest, fd);
}

void
episodes_pass(struct ep *p, uint16_t from, uint32_t number, struct view rest,
    int fd)
{
	struct buf b = BUF_INIT(MESSAGE_CONTROL_MAX);
	struct slot *s = p->slot;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(pass_rows) / sizeof(pass_rows[0]); i++)
		if ((uint16_t)pass_rows[i].from == from)
			break;
	if (i == sizeof(pass_rows) / sizeof(pass_rows[0]) || !s->owned) {
		fd_close(&fd);
		return;
	}
	rc = put_which(&b, s);
	if (rc == SP_OK && pass_rows[i].numbered)
		rc = wire_put_u32(&b, number);
	if (rc == SP_OK)
		rc = buf_add_view(&b, rest);
	ep_send(p->e, pass_rows[i].to, &b, rc, fd);
}

/* ---- to keepers ------------------------------------------------------------- */

/* Side of the keeper that has the workspace. */
static uint8_t
first_side(const struct ep *p)
{
	return p->slot->keepers[0].side;
}

int
episodes_ask_freeze(struct episodes *e, struct channel_msg *m)
{
	uint32_t request, slot, generation;
	struct wire w;
	struct ep *p;
	uint8_t on;

	wire_init(&w, m->body);
	request = wire_u32(&w);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	on = wire_u8(&w);
	if (wire_done(&w) != SP_OK || on > 1)
		return SP_E_PROTO;
	p = episodes_find(e, slot, generation);
	if (p == NULL || p->use != EP_OWNED)
		episodes_tell_refused(e, request, SANDBOX_REFUSED_UNKNOWN,
		    VIEW("no such episode"));
	else
		hold_ask(p->hold, request, on == 1);
	return SP_OK;
}

static uint8_t
file_op(const struct channel_msg *m)
{
	return m->body.n > 12 ? (uint8_t)m->body.p[12] : 0;
}

static bool
file_writes(const struct channel_msg *m)
{
	uint8_t op = file_op(m);

	return op == SANDBOX_FILE_PUT || op == SANDBOX_FILE_MKDIR ||
	    op == SANDBOX_FILE_REMOVE;
}

/*
 * What a keeper would do for anybody is not for the reactor: a snapshot
 * writes, as root, where the descriptor that comes along leads, and the upper
 * layer is a way into the workspace past every check.
 */
static bool
file_is_allowed(const struct channel_msg *m)
{
	uint8_t op = file_op(m);

	if (m->type == MESSAGE_EPISODE_FILE_PUT)
		return op == SANDBOX_FILE_PUT;
	return op == SANDBOX_FILE_READ || op == SANDBOX_FILE_DIFF ||
	    op == SANDBOX_FILE_LIST || op == SANDBOX_FILE_MKDIR ||
	    op == SANDBOX_FILE_REMOVE || op == SANDBOX_FILE_DIFF_FROZEN;
}

int
episodes_ask_file(struct episodes *e, struct channel_msg *m)
{
	bool put = m->type == MESSAGE_EPISODE_FILE_PUT;
	uint32_t request, slot, generation;
	int fd = m->fd, rc;
	struct wire w;
	struct ep *p;

	/* what comes behind is for the keeper, whose table bounds it, too */
	wire_init(&w, view_sub(m->body, 0, 12));
	request = wire_u32(&w);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	if (!file_is_allowed(m))
		return SP_E_PROTO;
	p = episodes_find(e, slot, generation);
	if (p != NULL && p->use == EP_OWNED &&
	    ((file_writes(m) && hold_defer(p->hold, m, episodes_ask_file)) ||
		grade_file(p, request, view_from(m->body, 12)) == SP_OK))
		return SP_OK;
	m->fd = -1;
	if (p != NULL && p->use == EP_OWNED) {
		rc = slot_ask(p->slot, first_side(p),
		    put ? MESSAGE_KEEPER_FILE_PUT : MESSAGE_KEEPER_FILE,
		    request, view_from(m->body, 12), fd);
	} else {
		fd_close(&fd);
		rc = SP_E_NOTFOUND;
	}
	if (rc != SP_OK)
		episodes_tell_refused(e, request,
		    rc == SP_E_NOTFOUND ? SANDBOX_REFUSED_UNKNOWN
					: SANDBOX_REFUSED_STATE,
		    view_str(err_str(rc)));
	return SP_OK;
}

/*
 * A socket in a sandbox's network is a way in: the reactor gets one to the
 * port that the configuration gives the worker, and to no other, so that one
 * that was taken over reaches nothing that the operator did not put there.
 */
static bool
may_connect(const struct ep *p, uint8_t side, uint16_t port)
{
	const struct conf_environment *env = p->env->env;

	return env != NULL && env->worker == CONF_ENV_WORKER_HTTP &&
	    side == SANDBOX_WORKER && port != 0 && port == env->worker_port;
}

int
episodes_ask_connect(struct episodes *e, struct channel_msg *m)
{
	uint32_t request, slot, generation;
	struct buf b = BUF_INIT(8);
	struct wire w;
	struct ep *p;
	uint16_t port;
	uint8_t side;
	int rc;

	wire_init(&w, m->body);
	request = wire_u32(&w);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	side = wire_u8(&w);
	port = wire_u16(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	p = episodes_find(e, slot, generation);
	rc = p == NULL || p->use != EP_OWNED ? SP_E_NOTFOUND : SP_OK;
	if (rc == SP_OK && !may_connect(p, side, port)) {
		log_warn("a connection to port %u, side %u of an episode is "
			 "refused: it is not its worker's",
		    port, side);
		rc = SP_E_ARG;
	}
	if (rc == SP_OK)
		rc = wire_put_u16(&b, port);
	if (rc == SP_OK)
		rc = slot_ask(p->slot, side, MESSAGE_KEEPER_CONNECT, request,
		    buf_view(&b), -1);
	buf_clear(&b);
	if (rc != SP_OK)
		episodes_tell_refused(e, request,
		    rc == SP_E_NOTFOUND ? SANDBOX_REFUSED_UNKNOWN
					: SANDBOX_REFUSED_STATE,
		    rc == SP_E_ARG ? VIEW("the port is not the worker's")
				   : view_str(err_str(rc)));
	return SP_OK;
}

static void
tell_not_started(struct episodes *e, uint32_t slot, uint32_t generation,
    uint32_t handle, const char *why)
{
	struct buf b = BUF_INIT(512);
	int rc = wire_put_u32(&b, slot);

	if (rc == SP_OK)
		rc = wire_put_u32(&b, generation);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, handle);
	if (rc == SP_OK)
		rc = wire_put_u8(&b, SANDBOX_STAGE_SPEC);
	if (rc == SP_OK)
		rc = wire_put_u32(&b, 0);
	if (rc == SP_OK)
		rc = wire_put_bytes(&b, view_str(why));
	ep_send(e, MESSAGE_PROCESS_NOT_STARTED, &b, rc, -1);
}

/* slot_choose_sides() made no sandbox for that side. */
static const char *
why_no_side(uint8_t side)
{
	return side == SANDBOX_WORKER
	    ? "the environment has no worker"
	    : "the agent has no sandbox: the environment has a worker, and "
	      "neither inside nor process; run it on the worker's side "
	      "(--worker), or give the environment one of these";
}

int
episodes_ask_run(struct episodes *e, struct channel_msg *m)
{
	uint32_t slot, generation, handle;
	int fd = m->fd, rc;
	struct wire w;
	struct ep *p;
	uint8_t side;

	wire_init(&w, m->body);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	side = wire_u8(&w);
	handle = wire_u32(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	p = episodes_find(e, slot, generation);
	if (p != NULL && p->use == EP_OWNED &&
	    hold_defer(p->hold, m, episodes_ask_run))
		return SP_OK;
	m->fd = -1;
	/* an oracle runs what the configuration says, and nothing else */
	if (p == NULL || p->use != EP_OWNED || side == SANDBOX_ORACLE) {
		fd_close(&fd);
		tell_not_started(e, slot, generation, handle,
		    "no such episode");
		return SP_OK;
	}
	rc = slot_run(p->slot, side, handle, fd);
	if (rc == SP_E_EXISTS)
		return SP_E_PROTO; /* it keeps its own numbers apart */
	if (rc != SP_OK)
		tell_not_started(e, slot, generation, handle,
		    rc == SP_E_NOTFOUND ? why_no_side(side) : err_str(rc));
	return SP_OK;
}

int
episodes_ask_signal(struct episodes *e, struct channel_msg *m)
{
	uint32_t slot, generation, handle;
	struct wire w;
	struct ep *p;
	uint8_t signo;

	wire_init(&w, m->body);
	slot = wire_u32(&w);
	generation = wire_u32(&w);
	handle = wire_u32(&w);
	signo = wire_u8(&w);
	if (wire_done(&w) != SP_OK || signo == 0 || signo >= NSIG)
		return SP_E_PROTO;
	p = episodes_find(e, slot, generation);
	/* it may just have ended: then there is nothing to tell */
	if (p == NULL || p->use != EP_OWNED || grade_signal(p, handle, signo))
		return SP_OK;
	if (hold_forget_run(p->hold, handle))
		tell_not_started(e, slot, generation, handle,
		    "it was killed before it was started");
	else
		(void)!slot_signal(p->slot, handle, signo);
	return SP_OK;
}
