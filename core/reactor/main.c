/*
 * sallyport-reactor: the one process that reads the network.  Started by the
 * helper, which hands it everything it needs before it serves.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "crypt/cryptmem.h"
#include "crypt/cryptmem.h"
#include "crypt/digest.h"
#include "crypt/rnd.h"
#include "event/loop.h"
#include "gate/episode.h"
#include "gate/fleet.h"
#include "gate/gate.h"
#include "gate/turn.h"
#include "ipc/role.h"
#include "ipc/wire.h"
#include "os/confine.h"
#include "os/fd.h"

enum { REACTOR_RECV_MAX = 32, REACTOR_CONF_ERROR_MAX = 65536 };

struct reactor {
	struct role role;
	struct role next; /* of a generation to come, as far as it is here */
	struct loop *loop;
	struct gate *gate;
	struct loop_fd *helper_fd;
	struct loop_timer *drain_timer;
	int error_log_fd; /* in use; -1 standard error or syslog */
	int status; /* of the exit */
};

static void
reactor_leave(struct reactor *a, int status)
{
	a->status = status;
	loop_stop(a->loop);
}

static void
reactor_helper_want(struct reactor *a)
{
	unsigned want = LOOP_READ;

	if (channel_queued(a->role.helper) > 0)
		want |= LOOP_WRITE;
	if (loop_fd_want(a->helper_fd, want) != SP_OK)
		reactor_leave(a, 1);
}

/* ---- what the helper says ------------------------------------------------- */

static int
reactor_on_log(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	uint8_t which = wire_u8(w);

	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	switch (which) {
	case MESSAGE_LOG_ERROR:
		log_set_fd(m->fd);
		fd_close(&a->error_log_fd);
		a->error_log_fd = m->fd;
		break;
	case MESSAGE_LOG_ACCESS:
		gate_set_access_log(a->gate, m->fd);
		break;
	default:
		return SP_E_PROTO;
	}
	m->fd = -1;
	return SP_OK;
}

static int
reactor_set_recorder(struct reactor *a, int *fd)
{
	int taken = *fd, rc;

	*fd = -1;
	rc = fd_nonblock(taken);
	if (rc != SP_OK) {
		fd_close(&taken);
		return rc;
	}
	return turn_recorder_set(gate_recorder(a->gate), taken);
}

static int
reactor_on_peer(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	int rc;

	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	rc = reactor_set_recorder(a, &m->fd);
	/* the helper sees that the channel is closed, and starts it anew */
	if (rc != SP_OK)
		log_error("recorder: no channel: %s", err_str(rc));
	return SP_OK;
}

static int
reactor_on_restarts(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	uint32_t reactor = wire_u32(w);
	uint32_t recorder = wire_u32(w);

	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	gate_set_restarts(a->gate, reactor, recorder);
	return SP_OK;
}

static void
reactor_drained(void *arg)
{
	struct reactor *a = arg;

	loop_timer_stop(a->drain_timer);
	if (channel_send(a->role.helper, MESSAGE_DRAINED, VIEW_NONE, -1) !=
	    SP_OK) {
		reactor_leave(a, 1);
		return;
	}
	reactor_helper_want(a);
}

static void
reactor_drain_deadline(void *arg)
{
	struct reactor *a = arg;

	gate_drain_deadline(a->gate);
}

static int
reactor_on_drain(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	uint64_t in_ms = wire_u64(w);

	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	channel_set_state(a->role.helper, MESSAGE_DRAIN);
	loop_timer_set(a->drain_timer, in_ms);
	gate_drain(a->gate, reactor_drained, a);
	return SP_OK;
}

static int
reactor_on_stop(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	reactor_leave(a, 0);
	return SP_OK;
}

static int
reactor_on_ping(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	(void)m;
	if (wire_done(w) != SP_OK)
		return SP_E_PROTO;
	return role_alive(&a->role, true);
}

/* ---- another generation --------------------------------------------------- */

/* The configuration and its secrets; err says what is wrong. */
static int
reactor_parse(const struct role *r, struct conf **out, struct buf *err)
{
	const struct conf_defaults defaults = { NULL, NULL, NULL };
	size_t i;
	int rc;

	rc = conf_parse(buf_view(&r->conf), &defaults, out, err);
	if (rc != SP_OK)
		return rc;
	err_assert(*out != NULL);
	for (i = 0; i < r->secrets_n && rc == SP_OK; i++) {
		const struct role_secret *s = &r->secrets[i];

		rc = conf_secret_set(*out, s->id, view_of(s->value, s->n));
	}
	if (rc == SP_OK)
		return rc;
	if (buf_printf(err, "secret %u: %s", r->secrets[i - 1].id,
		rc == SP_E_SYNTAX ? "of no use" : err_str(rc)) != SP_OK)
		rc = SP_E_NOMEM;
	conf_free(*out);
	*out = NULL;
	return rc;
}

static int
reactor_listeners(struct reactor *a)
{
	struct role *next = &a->next;
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < next->keeps_n && rc == SP_OK; i++)
		rc = gate_prepare_keep(a->gate, next->keeps[i].index,
		    next->keeps[i].was);
	for (i = 0; i < next->listeners_n && rc == SP_OK; i++) {
		rc = gate_prepare_listen(a->gate, next->listeners[i].index,
		    next->listeners[i].fd);
		next->listeners[i].fd = -1;
	}
	if (rc == SP_OK && !gate_prepared(a->gate))
		rc = SP_E_ARG;
	return rc;
}

/* Its certificates by upstream; v has room for ROLE_CAS_MAX. */
static void
reactor_source(const struct role *r, struct gate_source *src, struct gate_ca *v)
{
	size_t i;

	for (i = 0; i < r->cas_n; i++) {
		v[i].upstream = r->cas[i].index;
		v[i].pem = buf_view(&r->cas[i].pem);
	}
	src->number = r->generation;
	src->cas = v;
	src->cas_n = r->cas_n;
}

static int
reactor_prepare_gate(struct reactor *a, struct buf *err)
{
	struct gate_ca cas[ROLE_CAS_MAX];
	struct gate_source src = { 0 };
	int rc;

	rc = reactor_parse(&a->next, &src.owned, err);
	if (rc != SP_OK)
		return rc;
	reactor_source(&a->next, &src, cas);
	rc = gate_prepare(a->gate, &src, err);
	if (rc != SP_OK)
		return rc;
	rc = reactor_listeners(a);
	if (rc != SP_OK)
		gate_abandon(a->gate);
	return rc;
}

/* Everything that may fail, now; the answer is the helper's to act on. */
static int
reactor_prepare(struct reactor *a)
{
	struct buf err = BUF_INIT(REACTOR_CONF_ERROR_MAX);
	uint32_t number = a->next.generation;
	struct view why = VIEW_NONE;
	int rc = reactor_prepare_gate(a, &err);

	if (rc != SP_OK)
		why =
		    buf_len(&err) > 0 ? buf_view(&err) : view_str(err_str(rc));
	role_clear(&a->next);
	rc = role_prepared(&a->role, number, why);
	buf_clear(&err);
	return rc;
}

static int
reactor_on_next(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	bool whole;
	int rc;

	(void)w;
	rc = role_next_take(&a->next, m, &whole);
	return rc == SP_OK && whole ? reactor_prepare(a) : rc;
}

static int
reactor_on_commit(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	uint32_t number = wire_u32(w);

	(void)m;
	if (wire_done(w) != SP_OK || !gate_prepared(a->gate))
		return SP_E_PROTO;
	gate_commit(a->gate);
	if (gate_generation(a->gate) != number)
		return SP_E_PROTO;
	log_set_level((enum log_level)gate_conf(a->gate)->main.error_level);
	/* another file comes as MESSAGE_LOG */
	if (view_eq(gate_conf(a->gate)->main.access_log, VIEW("off")))
		gate_set_access_log(a->gate, -1);
	log_notice("generation %u of the configuration is in use", number);
	return role_committed(&a->role, number);
}

static int
reactor_on_abandon(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	(void)m;
	(void)wire_u32(w);
	role_clear(&a->next);
	gate_abandon(a->gate);
	return wire_done(w);
}

/* Of episodes, which have a table of their own. */
static int
reactor_on_episode(struct reactor *a, struct channel_msg *m)
{
	struct episode_set *s = gate_episodes(a->gate);
	int rc = s != NULL ? episode_set_heard(s, m) : SP_E_PROTO;

	if (rc == SP_E_PROTO)
		log_error("helper: a message %s makes no sense here",
		    message_row(m->type)->name);
	return rc;
}

static int
reactor_send_episode(void *arg, enum message_type type, struct view body,
    int fd)
{
	struct reactor *a = arg;
	int rc = channel_send(a->role.helper, type, body, fd);

	if (rc == SP_OK && a->helper_fd != NULL)
		reactor_helper_want(a);
	return rc;
}

static int
reactor_on_fleet(struct reactor *a, struct channel_msg *m, struct wire *w)
{
	(void)w;
	return fleet_was(a->gate, m->body);
}

static const struct {
	enum message_type type;
	int (*take)(struct reactor *a, struct channel_msg *m, struct wire *w);
} reactor_rows[] = {
	{ MESSAGE_CONF, reactor_on_next },
	{ MESSAGE_SECRET, reactor_on_next },
	{ MESSAGE_CA, reactor_on_next },
	{ MESSAGE_LISTENER, reactor_on_next },
	{ MESSAGE_LISTEN_KEEP, reactor_on_next },
	{ MESSAGE_PREPARE, reactor_on_next },
	{ MESSAGE_COMMIT, reactor_on_commit },
	{ MESSAGE_ABANDON, reactor_on_abandon },
	{ MESSAGE_LOG, reactor_on_log },
	{ MESSAGE_PEER, reactor_on_peer },
	{ MESSAGE_RESTARTS, reactor_on_restarts },
	{ MESSAGE_DRAIN_REQ, reactor_on_drain },
	{ MESSAGE_STOP, reactor_on_stop },
	{ MESSAGE_FLEET_WAS, reactor_on_fleet },
	{ MESSAGE_PING, reactor_on_ping },
};

static int
reactor_take(struct reactor *a, struct channel_msg *m)
{
	struct wire w;
	size_t i;
	int rc = SP_E_PROTO;

	wire_init(&w, m->body);
	for (i = 0; i < sizeof(reactor_rows) / sizeof(reactor_rows[0]); i++)
		if (reactor_rows[i].type == m->type)
			rc = reactor_rows[i].take(a, m, &w);
	if (m->type >= MESSAGE_EPISODE_MADE)
		rc = reactor_on_episode(a, m);
	fd_close(&m->fd);
	return rc;
}

/* Without the helper there is nothing to serve for: death is the answer. */
static void
reactor_helper_ready(void *arg, unsigned ready)
{
	struct reactor *a = arg;
	struct channel_msg m;
	unsigned i;
	int rc = SP_OK;

	if (ready & LOOP_WRITE) {
		rc = channel_flush(a->role.helper);
		if (rc == SP_E_AGAIN)
			rc = SP_OK;
	}
	for (i = 0; i < REACTOR_RECV_MAX && rc == SP_OK; i++) {
		rc = channel_recv(a->role.helper, &m);
		if (rc == SP_OK)
			rc = reactor_take(a, &m);
	}
	if (rc == SP_OK || rc == SP_E_AGAIN) {
		reactor_helper_want(a);
		return;
	}
	log_error("helper: %s; leaving", err_str(rc));
	reactor_leave(a, 1);
}

/* ---- start ---------------------------------------------------------------- */

static void
reactor_logs(struct reactor *a, const struct conf *conf)
{
	const struct conf_main *m = &conf->main;

	log_set_level((enum log_level)m->error_level);
	if (view_eq(m->error_log, VIEW("syslog")))
		log_set_syslog(true);
	if (a->role.error_log_fd >= 0) {
		a->error_log_fd = a->role.error_log_fd;
		a->role.error_log_fd = -1;
		log_set_fd(a->error_log_fd);
	}
}

static struct conf *
reactor_configure(struct reactor *a)
{
	struct buf err = BUF_INIT(REACTOR_CONF_ERROR_MAX);
	struct conf *conf = NULL;
	int rc;

	rc = reactor_parse(&a->role, &conf, &err);
	if (rc != SP_OK)
		role_fail(&a->role, "configuration: %.*s",
		    VIEW_ARG(buf_len(&err) > 0 ? buf_view(&err)
					       : view_str(err_str(rc))));
	buf_clear(&err);
	reactor_logs(a, conf);
	return conf;
}

/*
 * What the libraries load when they are first used (providers, the random
 * generator's seed) is loaded now, while there is a filesystem.
 */
static void
reactor_warm_up(struct reactor *a)
{
	uint8_t sum[DIGEST_BYTES];
	char junk[32];

	rnd_bytes(junk, sizeof(junk));
	if (digest_sha256(view_of(junk, sizeof(junk)), sum) != SP_OK ||
	    digest_hmac(view_of(junk, sizeof(junk)), view_of(sum, sizeof(sum)),
		sum) != SP_OK)
		role_fail(&a->role, "digests: the library has none");
	/* the hash tables' key */
	(void)view_hash(VIEW("sallyport"));
}

static void
reactor_build(struct reactor *a, struct conf *conf)
{
	struct gate_source src = { .owned = conf };
	struct gate_ca cas[ROLE_CAS_MAX];
	struct buf err = BUF_INIT(4096);
	int rc;

	a->loop = loop_new();
	if (a->loop == NULL)
		role_fail(&a->role, "event loop: %s", err_str(SP_E_NOMEM));
	reactor_source(&a->role, &src, cas);
	rc = gate_new_from(a->loop, &src, &a->gate, &err);
	if (rc != SP_OK)
		role_fail(&a->role, "%.*s",
		    VIEW_ARG(buf_len(&err) > 0 ? buf_view(&err)
					       : view_str(err_str(rc))));
	buf_clear(&err);
	gate_set_access_log(a->gate, a->role.access_log_fd);
	a->role.access_log_fd = -1;
	gate_set_restarts(a->gate, a->role.reactor_restarts,
	    a->role.recorder_restarts);
	gate_set_control_group(a->gate, (gid_t)a->role.control_gid);
}

static void
reactor_confine(struct reactor *a)
{
	const char *what = "";
	int rc = confine_enter(CONFINE_REACTOR, NULL, 0, &what);

	if (rc == SP_OK)
		return;
	/* an ordinary user's kernel may lack it, and the log says so */
	if (rc == SP_E_UNSUPPORTED && !(a->role.flags & ROLE_CONFINE))
		log_warn("this kernel lacks %s: running without it", what);
	else
		role_fail(&a->role, "confinement: %s: %s", what, err_str(rc));
}

static void
reactor_listen(struct reactor *a)
{
	size_t i;
	int rc;

	for (i = 0; i < a->role.listeners_n; i++) {
		rc = gate_listen(a->gate, a->role.listeners[i].index,
		    a->role.listeners[i].fd);
		a->role.listeners[i].fd = -1;
		if (rc != SP_OK)
			role_fail(&a->role, "listening socket %u: %s",
			    a->role.listeners[i].index, err_str(rc));
	}
	if (!gate_listening(a->gate))
		role_fail(&a->role,
		    "%zu listening sockets came for %zu addresses",
		    a->role.listeners_n, gate_conf(a->gate)->listens_n);
}

static void
reactor_serve(struct reactor *a)
{
	int rc = SP_OK;

	if (a->role.peer_fd >= 0)
		rc = reactor_set_recorder(a, &a->role.peer_fd);
	a->helper_fd = loop_fd_new(a->loop, channel_fd(a->role.helper),
	    reactor_helper_ready, a);
	a->drain_timer = loop_timer_new(a->loop, reactor_drain_deadline, a);
	if (rc == SP_OK && (a->helper_fd == NULL || a->drain_timer == NULL))
		rc = SP_E_NOMEM;
	if (rc == SP_OK)
		rc = loop_fd_want(a->helper_fd, LOOP_READ);
	if (rc == SP_OK)
		rc = gate_set_helper(a->gate, reactor_send_episode, a);
	if (rc == SP_OK)
		rc = gate_start(a->gate);
	if (rc == SP_OK)
		rc = role_ready(&a->role);
	if (rc == SP_OK && gate_conf(a->gate)->environments_n > 0)
		episode_set_start(gate_episodes(a->gate));
	if (rc != SP_OK)
		role_fail(&a->role, "start: %s", err_str(rc));
	rc = loop_run(a->loop);
	if (rc != SP_OK) {
		log_error("event loop: %s", err_str(rc));
		a->status = 1;
	}
}

/* sallyport -t: all that can be found wrong was looked at. */
static int
reactor_checked(struct reactor *a)
{
	int rc = role_ready(&a->role);

	if (rc == SP_OK)
		rc = channel_flush(a->role.helper);
	gate_free(a->gate);
	loop_free(a->loop);
	role_clear(&a->role);
	return rc == SP_OK ? 0 : 1;
}

int
main(void)
{
	static struct reactor a = { .error_log_fd = -1 };
	struct conf *conf;
	int rc;

	log_init("reactor");
	mem_keep();
	/* its memory counts, too: before anything of it is used */
	(void)!cryptmem_count();
	role_next_init(&a.next);
	rc = role_boot(&a.role, MESSAGE_REACTOR);
	if (rc != SP_OK) {
		(void)fprintf(stderr,
		    "sallyport-reactor: %s; it is started by sallyport "
		    "alone\n",
		    err_str(rc));
		return 1;
	}
	conf = reactor_configure(&a);
	reactor_warm_up(&a);
	reactor_build(&a, conf);
	if (a.role.flags & ROLE_CHECK)
		return reactor_checked(&a);
	reactor_confine(&a);
	reactor_listen(&a);
	reactor_serve(&a);
	gate_free(a.gate);
	loop_fd_free(a.helper_fd);
	loop_timer_free(a.drain_timer);
	loop_free(a.loop);
	role_clear(&a.next);
	role_clear(&a.role);
	fd_close(&a.error_log_fd);
	return a.status;
}
