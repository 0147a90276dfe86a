#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "helper/complain.h"
#include "helper/episodes.h"
#include "helper/notify.h"
#include "helper/supervisor_priv.h"
#include "ipc/wire.h"
#include "os/dir.h"
#include "os/fd.h"
#include "os/poller.h"

enum {
	SUP_READY_MS = 60 * 1000, /* from the start to READY */
	SUP_STOP_MS = 5 * 1000, /* from STOP to the end of a role */
	SUP_STOP_RECORDER_MS = 20 * 1000, /* it may have to write and sign */
	SUP_STOP_NOW_MS = 1000,
	SUP_BACKOFF_MS = 100,
	SUP_BACKOFF_MAX_MS = 10 * 1000,
	SUP_HEALTHY_MS = 60 * 1000,
	SUP_PING_MS = 5 * 1000,
	SUP_PINGS = 12, /* looks without an answer: a minute */
	SUP_MESSAGES_PER_TURN = 32,
	SUP_REAPED_PER_TURN = 1000,
	SUP_READY_LINE_MAX = 16 * 1024,
};

#define SUP_READY "ready: listening on "

static void sup_advance(struct supervisor *s);

static struct sup_role *
sup_other(struct sup_role *r)
{
	return r->who == MESSAGE_REACTOR ? &r->s->recorder : &r->s->reactor;
}

static uint32_t *
sup_count(struct sup_role *r)
{
	return r->who == MESSAGE_REACTOR ? &r->s->w->reactor_restarts
					 : &r->s->w->recorder_restarts;
}

static void
sup_end_channel(struct sup_role *r)
{
	poller_remove(r->f);
	r->f = NULL;
	channel_free(r->c);
	r->c = NULL;
	/* dead or dying, though its end may not be known yet */
	r->ready = false;
}

void
supervisor_kill(struct sup_role *r)
{
	/* not reaped yet, so the number is still this very process's */
	if (r->pid > 0)
		(void)kill(r->pid, SIGKILL);
}

int
supervisor_send(struct sup_role *r, enum message_type type, struct view body,
    int fd)
{
	int rc;

	if (r->c == NULL) {
		fd_close(&fd);
		return SP_E_GONE;
	}
	rc = channel_send(r->c, type, body, fd);
	if (rc != SP_OK && rc != SP_E_GONE) {
		/* it reads nothing: nothing more can be told to it */
		log_error("%s takes no messages (%s) and is ended",
		    rolerun_name(r->who), err_str(rc));
		supervisor_kill(r);
	}
	return rc;
}

static void
sup_tell_restarts(struct sup_role *to)
{
	struct buf b = BUF_INIT(16);

	if (to->ready && !supervisor_stopping(to->s) &&
	    wire_put_u32(&b, to->s->w->reactor_restarts) == SP_OK &&
	    wire_put_u32(&b, to->s->w->recorder_restarts) == SP_OK)
		(void)!supervisor_send(to, MESSAGE_RESTARTS, buf_view(&b), -1);
	buf_clear(&b);
}

/* ---- messages of a role --------------------------------------------------- */

static void
sup_print_ready(struct supervisor *s)
{
	const struct conf_main *m = &s->w->now.conf->main;
	struct buf b = BUF_INIT(SUP_READY_LINE_MAX);
	int rc = buf_add_str(&b, SUP_READY);

	if (rc == SP_OK)
		rc = site_addresses(s->w->site, &b);
	if (rc == SP_OK)
		log_notice("%.*s", VIEW_ARG(buf_view(&b)));
	if (rc == SP_OK && s->w->proxy != NULL)
		proxycmd_ready(s->w->proxy,
		    view_from(buf_view(&b), VIEW(SUP_READY).n));
	/* once more for whoever started it, when the log does not show it */
	if (rc == SP_OK &&
	    (!view_eq(m->error_log, VIEW("stderr")) ||
		log_level() < LOG_LEVEL_NOTICE) &&
	    buf_add_char(&b, '\n') == SP_OK)
		(void)!write(STDOUT_FILENO, buf_view(&b).p, buf_len(&b));
	buf_clear(&b);
}

static void
sup_write_pid(struct supervisor *s)
{
	struct view v = s->w->now.conf->main.pid_file;
	const char *why = "";
	char text[32], *path;
	int n, rc;

	if (v.n == 0)
		return;
	path = mem_strndup(v.p, v.n);
	n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	rc = path == NULL ? SP_E_NOMEM
			  : dir_write_file(path, text, (size_t)n, &why);
	if (rc != SP_OK)
		log_error("pid_file %.*s: %s", VIEW_ARG(v),
		    why[0] ? why : err_str(rc));
	s->pid_written = rc == SP_OK;
	mem_free(path);
}

/*
 * Safe: the folder was checked to be root's or ours when it was written, and
 * unlink(2) follows no link.
 */
static void
sup_remove_pid(const struct supervisor *s)
{
	struct view v = s->w->now.conf->main.pid_file;
	char *path = s->pid_written ? mem_strndup(v.p, v.n) : NULL;

	if (path != NULL)
		(void)unlink(path);
	mem_free(path);
}

static void
sup_serve(struct supervisor *s)
{
	s->phase = SUP_SERVING;
	sup_write_pid(s);
	sup_print_ready(s);
	notify_send("READY=1");
}

static void
sup_send_episodes(void *arg, enum message_type type, struct view body, int fd)
{
	(void)!supervisor_send(arg, type, body, fd);
}

/* What the reactor before had changed. */
static int
sup_send_fleet(void *arg, struct view body)
{
	return supervisor_send(arg, MESSAGE_FLEET_WAS, body, -1);
}

static int
sup_on_fleet(struct sup_role *r, const struct channel_msg *m)
{
	return fleetlog_note(r->s->w->fleetlog, r->s->w->now.conf, m->body);
}

static int
sup_on_ready(struct sup_role *r, const struct channel_msg *m)
{
	(void)m;
	channel_set_state(r->c, MESSAGE_RUN);
	poller_timer_stop(r->deadline);
	r->ready = true;
	r->ready_at_ms = clock_ms();
	if (r->who == MESSAGE_REACTOR) {
		(void)!fleetlog_each(r->s->w->fleetlog, sup_send_fleet, r);
		episodes_reactor(r->s->w->episodes, sup_send_episodes, r);
	}
	if (r->s->phase == SUP_SERVING)
		log_notice("%s serves again", rolerun_name(r->who));
	/* what was counted while it started */
	sup_tell_restarts(r);
	if (r->s->phase == SUP_STARTING && sup_other(r)->ready)
		sup_serve(r->s);
	sup_reload_ready(r->s);
	return SP_OK;
}

static int
sup_on_failed(struct sup_role *r, const struct channel_msg *m)
{
	struct view why;
	struct wire w;

	wire_init(&w, m->body);
	why = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	log_error("%s cannot start: %.*s", rolerun_name(r->who), VIEW_ARG(why));
	r->failed = true;
	return SP_OK;
}

static int
sup_on_drained(struct sup_role *r, const struct channel_msg *m)
{
	(void)m;
	if (r->s->phase == SUP_DRAINING) {
		/* the reactor's own deadline may have ended what was left */
		if (clock_ms() - r->s->drain_ms <
		    r->s->w->now.conf->main.drain_timeout_ms)
			log_notice("drained: no call is in flight");
		else
			log_warn("drain_timeout is over: calls in flight were "
				 "cut");
		r->s->phase = SUP_STOP_REACTOR;
		sup_advance(r->s);
	}
	return SP_OK;
}

/* An answer, or a role that is at work for long: also before it is ready. */
static int
sup_on_alive(struct sup_role *r, const struct channel_msg *m)
{
	struct wire w;
	bool asked;

	wire_init(&w, m->body);
	asked = wire_u8(&w) != 0;
	if (wire_done(&w) != SP_OK || (asked && !r->pinged))
		return SP_E_PROTO;
	if (asked)
		r->pinged = false;
	r->unanswered = 0;
	if (r->ready_at_ms == 0 && !supervisor_stopping(r->s))
		poller_timer_set(r->deadline, SUP_READY_MS);
	return SP_OK;
}

static const struct {
	enum message_type type;
	int (*handle)(struct sup_role *r, const struct channel_msg *m);
} sup_rows[] = {
	{ MESSAGE_READY, sup_on_ready },
	{ MESSAGE_FAILED, sup_on_failed },
	{ MESSAGE_DRAINED, sup_on_drained },
	{ MESSAGE_PREPARED, sup_reload_prepared },
	{ MESSAGE_COMMITTED, sup_reload_committed },
	{ MESSAGE_FLEET, sup_on_fleet },
	{ MESSAGE_ALIVE, sup_on_alive },
};

static int
sup_handle(struct sup_role *r, struct channel_msg *m)
{
	size_t i;
	int rc = SP_E_PROTO;

	for (i = 0; i < sizeof(sup_rows) / sizeof(sup_rows[0]); i++)
		if (sup_rows[i].type == m->type)
			rc = sup_rows[i].handle(r, m);
	if (m->type >= MESSAGE_EPISODE_CREATE && r->s->w->episodes != NULL)
		rc = episodes_heard(r->s->w->episodes, m);
	fd_close(&m->fd);
	return rc;
}

static void
sup_read(struct sup_role *r)
{
	struct channel_msg m;
	int i, rc = SP_OK;

	for (i = 0; i < SUP_MESSAGES_PER_TURN && rc == SP_OK; i++) {
		if (r->c == NULL)
			return;
		rc = channel_recv(r->c, &m);
		if (rc == SP_OK)
			rc = sup_handle(r, &m);
	}
	if (rc == SP_OK || rc == SP_E_AGAIN)
		return;
	if (rc == SP_E_PROTO) {
		/* never repaired: what else it says is worth nothing */
		r->compromised++;
		log_error("%s broke the protocol and is ended as compromised "
			  "(%u so far)",
		    rolerun_name(r->who), r->compromised);
		supervisor_kill(r);
		sup_end_channel(r);
		return;
	}
	sup_end_channel(r);
	/* no channel, no use; on the way out it may still have to write */
	if (!supervisor_stopping(r->s) && !r->failed)
		supervisor_kill(r);
}

static void
sup_on_channel(void *arg, unsigned ready)
{
	struct sup_role *r = arg;

	if ((ready & POLLER_WRITE) && channel_flush(r->c) == SP_E_GONE &&
	    !(ready & POLLER_READ))
		ready |= POLLER_READ; /* which tells the end */
	if (ready & (POLLER_READ | POLLER_HUP))
		sup_read(r);
}

/* ---- starting ------------------------------------------------------------- */

/*
 * r's end of a socket to the other role; the other end goes there at once, or
 * waits until the other is started.
 */
static int
sup_peer(struct sup_role *r, int *out)
{
	struct sup_role *o = sup_other(r);
	int pair[2] = { -1, -1 }, rc;

	if (r->peer_fd >= 0) {
		*out = r->peer_fd;
		r->peer_fd = -1;
		return SP_OK;
	}
	rc = fd_seqpacket_pair(pair);
	if (rc != SP_OK)
		return rc;
	*out = pair[0];
	if (o->c != NULL) {
		(void)!supervisor_send(o, MESSAGE_PEER, VIEW_NONE, pair[1]);
	} else {
		fd_close(&o->peer_fd);
		o->peer_fd = pair[1];
	}
	return SP_OK;
}

static int
sup_start(struct sup_role *r)
{
	int rc, peer = -1;

	rc = sup_peer(r, &peer);
	if (rc == SP_OK)
		rc = rolerun_start(r->s->w, r->who, peer, &r->pid, &r->c);
	if (rc != SP_OK) {
		r->pid = -1;
		return rc;
	}
	r->ready = r->failed = r->pinged = false;
	r->ready_at_ms = 0;
	r->f = poller_add(r->s->p, channel_fd(r->c), POLLER_READ,
	    sup_on_channel, r);
	if (r->f == NULL) {
		sup_end_channel(r);
		supervisor_kill(r);
		return SP_OK; /* its end is handled like any other */
	}
	poller_timer_set(r->deadline, SUP_READY_MS);
	return SP_OK;
}

static void
sup_restart_later(struct sup_role *r)
{
	if (r->ready_at_ms != 0 &&
	    clock_ms() - r->ready_at_ms >= SUP_HEALTHY_MS)
		r->backoff_ms = SUP_BACKOFF_MS;
	log_notice("%s is started again in %" PRIu64 " ms",
	    rolerun_name(r->who), r->backoff_ms);
	poller_timer_set(r->restart, r->backoff_ms);
	r->backoff_ms *= 2;
	if (r->backoff_ms > SUP_BACKOFF_MAX_MS)
		r->backoff_ms = SUP_BACKOFF_MAX_MS;
}

static void
sup_on_restart(void *arg)
{
	struct sup_role *r = arg;
	int rc;

	if (supervisor_stopping(r->s))
		return;
	(*sup_count(r))++;
	sup_tell_restarts(sup_other(r));
	rc = sup_start(r);
	if (rc != SP_OK) {
		log_error("%s cannot be started: %s", rolerun_name(r->who),
		    err_str(rc));
		sup_restart_later(r);
	}
}

/* ---- stopping ------------------------------------------------------------- */

/* True when there is nothing to wait for. */
static bool
sup_stop_role(struct sup_role *r, uint64_t grace_ms)
{
	poller_timer_stop(r->restart);
	if (r->pid < 0)
		return true;
	(void)!supervisor_send(r, MESSAGE_STOP, VIEW_NONE, -1);
	poller_timer_set(r->deadline, grace_ms);
	return false;
}

static void
sup_on_episodes_ended(void *arg)
{
	struct supervisor *s = arg;

	s->phase = SUP_STOP_RECORDER;
	sup_advance(s);
}

/* Enters the next phases of a stop as far as nothing has to be waited for. */
static void
sup_advance(struct supervisor *s)
{
	uint64_t now = SUP_STOP_NOW_MS;

	if (s->phase == SUP_STOP_REACTOR &&
	    sup_stop_role(&s->reactor, s->hurry ? now : SUP_STOP_MS)) {
		s->phase = SUP_STOP_EPISODES;
		episodes_stop(s->w->episodes, sup_on_episodes_ended, s);
		return;
	}
	if (s->phase != SUP_STOP_RECORDER)
		return;
	/* after the reactor's end: its last messages are all in the socket */
	if (sup_stop_role(&s->recorder, SUP_STOP_RECORDER_MS))
		poller_stop(s->p);
}

static int
sup_ask_to_drain(struct supervisor *s)
{
	uint64_t ms = s->w->now.conf->main.drain_timeout_ms;
	struct buf b = BUF_INIT(16);
	int rc = SP_E_STATE;

	if (ms > 0 && s->reactor.ready && wire_put_u64(&b, ms) == SP_OK)
		rc = supervisor_send(&s->reactor, MESSAGE_DRAIN_REQ,
		    buf_view(&b), -1);
	buf_clear(&b);
	if (rc != SP_OK)
		return rc;
	s->drain_ms = clock_ms();
	channel_set_state(s->reactor.c, MESSAGE_DRAIN);
	/* a little more, so that the reactor's own deadline comes first */
	poller_timer_set(s->reactor.deadline, ms + SUP_STOP_NOW_MS);
	return SP_OK;
}

static void
sup_begin_stop(struct supervisor *s)
{
	poller_timer_stop(s->reactor.restart);
	poller_timer_stop(s->recorder.restart);
	sup_reload_stop(s);
	notify_send("STOPPING=1");
	if (!s->hurry && sup_ask_to_drain(s) == SP_OK) {
		s->phase = SUP_DRAINING;
		log_notice("draining: calls in flight have %" PRIu64 " ms",
		    s->w->now.conf->main.drain_timeout_ms);
		/* or clients would wait in a queue that nobody serves */
		site_close_listeners(s->w->site);
		return;
	}
	s->phase = SUP_STOP_REACTOR;
	site_close_listeners(s->w->site);
	sup_advance(s);
}

static void
sup_stop(struct supervisor *s, bool now)
{
	if (now)
		s->hurry = true;
	if (!supervisor_stopping(s)) {
		sup_begin_stop(s);
	} else if (now && s->phase == SUP_DRAINING) {
		log_notice("stopping at once");
		s->phase = SUP_STOP_REACTOR;
		sup_advance(s);
	} else if (now && s->phase == SUP_STOP_REACTOR) {
		poller_timer_set(s->reactor.deadline, SUP_STOP_NOW_MS);
	}
}

/* READY, DRAINED or the end did not come in time. */
static void
sup_on_deadline(void *arg)
{
	struct sup_role *r = arg;

	if (r->s->phase == SUP_DRAINING && r->who == MESSAGE_REACTOR) {
		log_warn("drain_timeout is over with calls in flight");
		r->s->phase = SUP_STOP_REACTOR;
		sup_advance(r->s);
		return;
	}
	log_error("%s did not %s in time and is killed", rolerun_name(r->who),
	    supervisor_stopping(r->s) ? "end" : "become ready");
	supervisor_kill(r);
}

static void
sup_died(struct sup_role *r, int status)
{
	struct supervisor *s = r->s;
	const char *name = rolerun_name(r->who);

	/* its number may be another process's from now on */
	r->pid = -1;
	/* its last words may be in the channel still */
	sup_read(r);
	sup_end_channel(r);
	poller_timer_stop(r->deadline);
	r->ready = false;
	if (r->who == MESSAGE_REACTOR)
		episodes_reactor(s->w->episodes, NULL, NULL);
	sup_reload_lost(r);
	if (r->failed)
		log_debug("%s ended", name); /* it has said why */
	else if (WIFSIGNALED(status))
		log_error("%s died of signal %d", name, WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0 || !supervisor_stopping(s))
		log_error("%s ended with status %d", name, WEXITSTATUS(status));
	if (s->phase == SUP_STARTING) {
		s->status = 1;
		sup_stop(s, true);
	} else if (s->phase == SUP_SERVING) {
		sup_restart_later(r);
	} else {
		if (r->who == MESSAGE_REACTOR && s->phase == SUP_DRAINING)
			s->phase = SUP_STOP_REACTOR;
		sup_advance(s);
	}
}

/* ---- signals -------------------------------------------------------------- */

static void
sup_on_child(void *arg, int signo)
{
	struct supervisor *s = arg;
	int i, status;
	pid_t pid;

	(void)signo;
	/* as pid 1 of a container also the children of others */
	for (i = 0; i < SUP_REAPED_PER_TURN; i++) {
		pid = waitpid(-1, &status, WNOHANG);
		if (pid < 0 && errno == EINTR)
			continue;
		if (pid <= 0)
			return;
		if (pid == s->reactor.pid)
			sup_died(&s->reactor, status);
		else if (pid == s->recorder.pid)
			sup_died(&s->recorder, status);
		else
			(void)episodes_reaped(s->w->episodes, pid, status);
	}
	(void)raise(SIGCHLD); /* the rest after other events */
}

static void
sup_on_stop(void *arg, int signo)
{
	struct supervisor *s = arg;

	s->stops++;
	log_notice("signal %d: stopping%s", signo,
	    s->stops > 1 || signo == SIGQUIT ? " at once" : "");
	sup_stop(s, s->stops > 1 || signo == SIGQUIT);
}

static void
sup_on_hangup(void *arg, int signo)
{
	struct supervisor *s = arg;

	log_notice("signal %d: reading the configuration again", signo);
	sup_reload_ask(s);
}

static void
sup_send_log(struct sup_role *r, enum message_log which, int fd)
{
	uint8_t body = (uint8_t)which;
	int copy = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 4) : -1;

	if (copy >= 0)
		(void)!supervisor_send(r, MESSAGE_LOG, view_of(&body, 1), copy);
}

void
supervisor_send_logs(struct supervisor *s)
{
	const struct site *site = s->w->site;

	sup_send_log(&s->reactor, MESSAGE_LOG_ERROR, site->error_fd);
	sup_send_log(&s->recorder, MESSAGE_LOG_ERROR, site->error_fd);
	sup_send_log(&s->reactor, MESSAGE_LOG_ACCESS, site->access_fd);
}

static void
sup_on_reopen(void *arg, int signo)
{
	struct supervisor *s = arg;

	(void)signo;
	if (site_reopen_logs(s->w->site) == SP_OK)
		log_notice("logs are opened again");
	supervisor_send_logs(s);
}

static void
sup_on_watchdog(void *arg)
{
	struct supervisor *s = arg;

	notify_send("WATCHDOG=1");
	poller_timer_set(s->watchdog, s->watchdog_ms);
}

/* Half of what the manager allows, as sd_watchdog_enabled(3) advises. */
static int
sup_watch(struct supervisor *s)
{
	s->watchdog_ms = notify_watchdog_ms() / 2;
	if (s->watchdog_ms == 0)
		return SP_OK;
	s->watchdog = poller_timer_new(s->p, sup_on_watchdog, s);
	if (s->watchdog == NULL)
		return SP_E_NOMEM;
	poller_timer_set(s->watchdog, 0);
	return SP_OK;
}

/* ---- who does not answer --------------------------------------------------- */

/*
 * One PING at a time: they do not pile up before one that is stopped.  What
 * counts is looks, not time: while this process itself stands still (it was
 * stopped, or the machine slept) nobody else can be said to be late.
 */
static void
sup_ping(struct sup_role *r)
{
	if (!r->ready)
		return;
	if (!r->pinged) {
		r->unanswered = 0;
		r->pinged =
		    supervisor_send(r, MESSAGE_PING, VIEW_NONE, -1) == SP_OK;
		return;
	}
	if (++r->unanswered != SUP_PINGS)
		return;
	log_error("%s (pid %ld) has not answered for %" PRIu64
		  " s: killed, another one is started",
	    rolerun_name(r->who), (long)r->pid,
	    SUP_PINGS * r->s->ping_ms / 1000);
	supervisor_kill(r);
}

/* A start and a stop have deadlines of their own. */
static void
sup_on_ping(void *arg)
{
	struct supervisor *s = arg;

	if (s->phase == SUP_SERVING) {
		sup_ping(&s->reactor);
		sup_ping(&s->recorder);
	}
	poller_timer_set(s->ping, s->ping_ms);
}

static int
sup_ping_init(struct supervisor *s)
{
	s->ping_ms = SUP_PING_MS;
#if !SP_CONFINEMENT
	const char *ms = getenv("SP_PING_MS");

	/* for tests */
	if (ms != NULL &&
	    num_u64(view_str(ms), 1, SUP_PING_MS, &s->ping_ms) != SP_OK)
		return SP_E_ARG;
#endif
	s->ping = poller_timer_new(s->p, sup_on_ping, s);
	if (s->ping == NULL)
		return SP_E_NOMEM;
	poller_timer_set(s->ping, s->ping_ms);
	return SP_OK;
}

/* ---- the loop ------------------------------------------------------------- */

/* Whatever was queued in this turn waits for room in the socket. */
static void
sup_after(void *arg)
{
	struct supervisor *s = arg;
	struct sup_role *both[] = { &s->reactor, &s->recorder };
	unsigned want;
	size_t i;

	episodes_after(s->w->episodes);
	for (i = 0; i < 2; i++) {
		if (both[i]->f == NULL)
			continue;
		want = POLLER_READ;
		if (channel_queued(both[i]->c) > 0)
			want |= POLLER_WRITE;
		if (poller_want(both[i]->f, want) != SP_OK)
			supervisor_kill(both[i]);
	}
}

static int
sup_init_role(struct supervisor *s, struct sup_role *r, unsigned who)
{
	r->s = s;
	r->who = who;
	r->pid = -1;
	r->peer_fd = -1;
	r->backoff_ms = SUP_BACKOFF_MS;
	r->restart = poller_timer_new(s->p, sup_on_restart, r);
	r->deadline = poller_timer_new(s->p, sup_on_deadline, r);
	return r->restart != NULL && r->deadline != NULL ? SP_OK : SP_E_NOMEM;
}

static int
sup_init(struct supervisor *s)
{
	static const struct {
		int signo;
		void (*cb)(void *arg, int signo);
	} signals[] = {
		{ SIGCHLD, sup_on_child },
		{ SIGTERM, sup_on_stop },
		{ SIGINT, sup_on_stop },
		{ SIGQUIT, sup_on_stop },
		{ SIGHUP, sup_on_hangup },
		{ SIGUSR1, sup_on_reopen },
	};
	size_t i;
	int rc;

	s->p = poller_new();
	if (s->p == NULL)
		return SP_E_NOMEM;
	rc = sup_init_role(s, &s->reactor, MESSAGE_REACTOR);
	if (rc == SP_OK)
		rc = sup_init_role(s, &s->recorder, MESSAGE_RECORDER);
	if (rc == SP_OK)
		rc = sup_reload_init(s);
	if (rc == SP_OK)
		rc = sup_watch(s);
	if (rc == SP_OK)
		rc = sup_ping_init(s);
	for (i = 0; rc == SP_OK && i < sizeof(signals) / sizeof(signals[0]);
	     i++)
		rc = poller_signal(s->p, signals[i].signo, signals[i].cb, s);
	if (rc == SP_OK)
		poller_after(s->p, sup_after, s);
	if (rc == SP_OK)
		rc = episodes_attach(s->w->episodes, s->p);
	return rc;
}

static void
sup_clear_role(struct sup_role *r)
{
	sup_end_channel(r);
	fd_close(&r->peer_fd);
	poller_timer_free(r->restart);
	poller_timer_free(r->deadline);
}

int
supervisor_run(struct rolerun_world *w, struct reload *r)
{
	struct supervisor s;
	int rc;

	memset(&s, 0, sizeof(s));
	s.w = w;
	s.r = r;
	s.reactor.peer_fd = s.recorder.peer_fd = -1;
	rc = sup_init(&s);
	/* the recorder first: the reactor opens for clients when it is there */
	if (rc == SP_OK)
		rc = sup_start(&s.recorder);
	if (rc == SP_OK)
		rc = sup_start(&s.reactor);
	if (rc != SP_OK) {
		log_error("cannot start: %s", err_str(rc));
		s.status = 1;
		supervisor_kill(&s.recorder);
	} else {
		/* whoever started it no longer looks on */
		complain_to_log(true);
		rc = poller_run(s.p);
		complain_to_log(false);
		if (rc != SP_OK) {
			log_error("event loop: %s", err_str(rc));
			s.status = 1;
		}
	}
	sup_remove_pid(&s);
	if (s.p != NULL) {
		sup_clear_role(&s.reactor);
		sup_clear_role(&s.recorder);
		sup_reload_clear(&s);
		poller_timer_free(s.watchdog);
		poller_timer_free(s.ping);
		episodes_free(w->episodes);
		w->episodes = NULL;
	}
	poller_free(s.p);
	return s.status;
}
