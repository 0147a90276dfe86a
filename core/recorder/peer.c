#include "config.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "recorder/ceiling.h"
#include "recorder/peer.h"
#include "recorder/retain.h"

enum {
	QUEUE_MAX_BYTES = 16 * 1024 * 1024,
	BATCH_MESSAGES = 64, /* then others get their turn, and answers go */
	PROBE_MS = 1000,
	MINUTE_MS = 60 * 1000,
	FLOOR_MS = 1000,
	SOON_MS = 500,
	SEAL_MS = 2000, /* of the time that a stop may take */
	REPLAY_QUEUE_BYTES = 1024 * 1024, /* unsent, while sessions are told */
};

static void on_ready(void *arg, unsigned ready);

/* The reactor is gone, or has to go: its turns are lost. */
static void
detach(struct peer *p, const char *why)
{
	if (p->channel == NULL)
		return;
	/* at every stop it is the reactor that ends first */
	if (p->turns.open_n > 0)
		log_warn("reactor's channel closed: %s; %zu turns were open",
		    why, p->turns.open_n);
	else
		log_debug("reactor's channel closed: %s; no turn was open",
		    why);
	poller_remove(p->ready);
	p->ready = NULL;
	channel_free(p->channel);
	p->channel = NULL;
	p->writing = false;
	turns_end_all(&p->turns, MESSAGE_OUTCOME_GATEWAY);
	turns_sync(&p->turns);
	turns_forget(&p->turns);
	registry_forget(p->registry);
}

static int
send_body(struct peer *p, enum message_type type, struct buf *body)
{
	int rc = channel_send(p->channel, type, buf_view(body), -1);

	buf_reset(body, MESSAGE_CONTROL_MAX);
	return rc;
}

static void
tell_state(struct peer *p)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc;

	if (p->channel == NULL || !p->told)
		return;
	rc = wire_put_u8(&body, p->full || p->tight ? 0 : 1);
	if (rc == 0)
		rc = wire_put_bytes(&body,
		    p->full        ? VIEW("disk full")
			: p->tight ? VIEW("recorder_memory_max is near")
				   : VIEW_NONE);
	if (rc == 0)
		rc = send_body(p, MESSAGE_REC_STATE, &body);
	buf_clear(&body);
	if (rc != 0)
		detach(p, err_str(rc));
}

/* By the floor, or by a write that failed: with what there is of it now. */
static void
log_full(const struct peer *p)
{
	struct view dir = store_full_dir(p->store, false, p->turns.full_bytes);

	if (dir.n > 0)
		log_error("no room for traces in %.*s: %s, or less than the "
			  "lesser of 64 MiB and 5 %% of it; no calls are "
			  "accepted until there is room",
		    VIEW_ARG(dir), err_str(SP_E_NOSPC));
	else
		log_error("no room for a trace: %s; no calls are accepted "
			  "until there is room",
		    err_str(SP_E_NOSPC));
}

static void
set_full(struct peer *p, bool full)
{
	if (full)
		poller_timer_set(p->probe, PROBE_MS);
	if (p->full == full)
		return;
	p->full = full;
	if (full)
		log_full(p);
	else
		log_notice("there is room for traces again");
	tell_state(p);
}

static void
look_at_memory(struct peer *p)
{
	bool tight = p->tight ? ceiling_high(&p->turns)
			      : p->turns.pressed || ceiling_hard(&p->turns);

	/* what was cut short made room at once */
	p->turns.pressed = false;
	if (tight == p->tight)
		return;
	p->tight = tight;
	if (tight)
		log_error("recorder_memory_max is near: no calls are accepted "
			  "until there is less to hold");
	else
		log_notice("there is memory for turns again");
	tell_state(p);
}

static void
on_probe(void *arg)
{
	struct peer *p = arg;

	store_trim(p->store);
	if (!store_has_room(p->store, true, p->turns.full_bytes)) {
		retain_run(p->store, clock_wall_us());
		poller_timer_set(p->probe, PROBE_MS);
		return;
	}
	p->turns.full_bytes = 0;
	set_full(p, false);
}

static void
on_minute(void *arg)
{
	struct peer *p = arg;

	retain_run(p->store, clock_wall_us());
	store_trim(p->store);
	if (!store_has_room(p->store, false, 0))
		set_full(p, true);
	poller_timer_set(p->minute, MINUTE_MS);
}

/* peer_after() does what is due. */
static void
on_soon(void *arg)
{
	(void)arg;
}

int
peer_init(struct peer *p, struct poller *poller, struct store *store,
    struct registry *registry)
{
	int rc;

	*p = (struct peer){ .poller = poller,
		.store = store,
		.registry = registry };
	rc = turns_init(&p->turns, store);
	if (rc != 0)
		return rc;
	p->turns.registry = registry;
	p->probe = poller_timer_new(poller, on_probe, p);
	p->minute = poller_timer_new(poller, on_minute, p);
	p->soon = poller_timer_new(poller, on_soon, p);
	if (p->probe == NULL || p->minute == NULL || p->soon == NULL) {
		peer_clear(p);
		return SP_E_NOMEM;
	}
	poller_timer_set(p->minute, MINUTE_MS);
	p->full = !store_has_room(store, false, 0);
	if (p->full) {
		log_full(p);
		poller_timer_set(p->probe, PROBE_MS);
	}
	return 0;
}

void
peer_clear(struct peer *p)
{
	poller_remove(p->ready);
	p->ready = NULL;
	channel_free(p->channel);
	p->channel = NULL;
	if (p->probe != NULL)
		poller_timer_free(p->probe);
	if (p->minute != NULL)
		poller_timer_free(p->minute);
	if (p->soon != NULL)
		poller_timer_free(p->soon);
	p->probe = p->minute = p->soon = NULL;
	turns_clear(&p->turns);
}

int
peer_attach(struct peer *p, int fd)
{
	detach(p, "another reactor took its place");
	/* it has today's configuration alone */
	recgen_end_old(p->turns.generations);
	p->channel =
	    channel_new(fd, MESSAGE_RECORDER, MESSAGE_REACTOR, QUEUE_MAX_BYTES);
	if (p->channel == NULL)
		return SP_E_NOMEM;
	channel_set_state(p->channel, MESSAGE_RUN);
	p->ready = poller_add(p->poller, channel_fd(p->channel), POLLER_READ,
	    on_ready, p);
	if (p->ready == NULL) {
		channel_free(p->channel);
		p->channel = NULL;
		return SP_E_NOMEM;
	}
	/* sessions first: a key must not be unknown for want of news */
	p->told = false;
	registry_replay(p->registry);
	poller_timer_set(p->soon, 0);
	return 0;
}

static const struct {
	enum message_type type;
	int (*take)(struct turns *t, struct view body);
} rows[] = {
	{ MESSAGE_TURN_DATA, turns_data },
	{ MESSAGE_TURN_OPEN, turns_open },
	{ MESSAGE_TURN_END, turns_end },
	{ MESSAGE_TURN_DELIVERED, turns_delivered },
	{ MESSAGE_GENERATION_END, turns_generation_end },
};

static const struct {
	enum message_type type;
	int (*take)(struct registry *r, struct view body, struct buf *reply);
} session_rows[] = {
	{ MESSAGE_SESSION_CREATE, registry_create },
	{ MESSAGE_SESSION_END, registry_end },
	{ MESSAGE_SESSION_GET, registry_get },
	{ MESSAGE_SESSION_LIST, registry_list },
};

/* Its calls are to end, so that its turns do. */
static int
tell_over(struct peer *p, const struct registry_session *s)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = wire_put_bytes(&body, s->m.id);

	if (rc == 0)
		rc = channel_send(p->channel, MESSAGE_SESSION_OVER,
		    buf_view(&body), -1);
	buf_clear(&body);
	return rc;
}

/* What is asked about sessions, and the answer. */
static int
take_session(struct peer *p, const struct channel_msg *m)
{
	enum message_type type = MESSAGE_SESSION_REPLY;
	struct buf reply = BUF_INIT(MESSAGE_BULK_MAX);
	int fd = -1, rc = SP_E_PROTO;
	size_t i;

	for (i = 0; i < sizeof(session_rows) / sizeof(session_rows[0]); i++)
		if (session_rows[i].type == m->type)
			rc = session_rows[i].take(p->registry, m->body, &reply);
	if (m->type == MESSAGE_SESSION_TRACE) {
		rc = registry_trace(p->registry, m->body, &reply, &fd);
		if (fd >= 0)
			type = MESSAGE_TRACE_FILE;
	}
	if (rc == 0 && buf_len(&reply) > 0) {
		rc = channel_send(p->channel, type, buf_view(&reply), fd);
	} else {
		fd_close(&fd);
		/* an end, whose answer comes later */
		if (rc == 0)
			rc = tell_over(p,
			    TAILQ_LAST(&p->registry->closing, registry_list));
	}
	buf_clear(&reply);
	return rc;
}

static int
take(struct peer *p, struct channel_msg *m)
{
	size_t i;

	fd_close(&m->fd);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].type == m->type)
			return rows[i].take(&p->turns, m->body);
	return take_session(p, m);
}

static int
tell_done(struct peer *p, struct buf *body)
{
	int rc = 0;

	while (rc == 0 && turns_next_done(&p->turns, body))
		rc = send_body(p, MESSAGE_TURN_DONE, body);
	return rc;
}

/* Clients wait for these ends: not until all that came is worked off. */
static int
tell_early(struct peer *p)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc;

	if (!p->told || !turns_tell_early(&p->turns))
		return 0;
	p->wrote = true;
	turns_sync(&p->turns);
	rc = tell_done(p, &body);
	buf_clear(&body);
	return rc;
}

static void
on_ready(void *arg, unsigned ready)
{
	struct peer *p = arg;
	struct channel_msg m;
	int i, rc = 0;

	(void)ready;
	/* of a message that holds others, all are taken */
	for (i = 0;
	     rc == 0 && (i < BATCH_MESSAGES || channel_pending(p->channel));
	     i++) {
		rc = channel_recv(p->channel, &m);
		if (rc == 0)
			rc = take(p, &m);
		if (rc == 0)
			rc = tell_early(p);
	}
	if (rc == SP_E_GONE)
		detach(p, "it is gone");
	else if (rc == SP_E_PROTO)
		detach(p, "it broke the protocol");
	else if (rc != 0 && rc != SP_E_AGAIN)
		detach(p, err_str(rc));
}

/* Every session, as fast as the reactor reads; then that it was all. */
static int
replay(struct peer *p, struct buf *body)
{
	enum message_type type;
	int rc = 0;

	while (rc == 0 && channel_queued(p->channel) < REPLAY_QUEUE_BYTES) {
		type = registry_next_replay(p->registry, body);
		if (type != MESSAGE_REPLAY_DONE) {
			rc = send_body(p, type, body);
			continue;
		}
		p->registry->replaying = false;
		rc = channel_send(p->channel, MESSAGE_REPLAY_DONE, VIEW_NONE,
		    -1);
		p->told = true;
		if (rc == 0)
			tell_state(p);
		break;
	}
	return rc;
}

static int
answer_ended(struct peer *p)
{
	struct buf reply = BUF_INIT((size_t)4 * MESSAGE_CONTROL_MAX);
	int rc = 0;

	while (rc == 0 && registry_next_ended(p->registry, &reply)) {
		rc = channel_send(p->channel, MESSAGE_SESSION_REPLY,
		    buf_view(&reply), -1);
		buf_reset(&reply, MESSAGE_CONTROL_MAX);
	}
	buf_clear(&reply);
	return rc;
}

/* What there is to answer: 0, or why the channel is of no use any more. */
static int
answer(struct peer *p)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = 0;

	if (!p->told)
		rc = replay(p, &body);
	if (p->channel == NULL) { /* the state could not be told */
		buf_clear(&body);
		return 0;
	}
	if (rc == 0)
		rc = tell_done(p, &body);
	while (rc == 0 && turns_next_credit(&p->turns, &body))
		rc = send_body(p, MESSAGE_TURN_CREDIT, &body);
	buf_clear(&body);
	if (rc == 0)
		rc = answer_ended(p);
	if (rc == 0)
		rc = channel_flush(p->channel);
	return rc == SP_E_AGAIN ? 0 : rc;
}

void
peer_after(struct peer *p)
{
	uint64_t now = clock_ms();
	bool wrote = p->wrote || !TAILQ_EMPTY(&p->turns.done);
	bool writing;
	int rc;

	p->wrote = false;
	if (wrote)
		turns_sync(&p->turns);
	if (p->turns.full_bytes > 0 && !p->full) {
		set_full(p, true);
	} else if (wrote && !p->full && now - p->floor_at_ms >= FLOOR_MS) {
		p->floor_at_ms = now;
		if (!store_has_room(p->store, false, 0))
			set_full(p, true);
	}
	look_at_memory(p);
	registry_flush(p->registry, false);
	if (!TAILQ_EMPTY(&p->registry->dirty) || registry_closing(p->registry))
		poller_timer_set(p->soon, SOON_MS);
	if (p->channel == NULL)
		return;
	rc = answer(p);
	if (p->channel == NULL)
		return;
	if (rc != 0) {
		detach(p, err_str(rc));
		return;
	}
	writing = channel_queued(p->channel) > 0;
	if (writing == p->writing)
		return;
	p->writing = writing;
	rc = poller_want(p->ready,
	    writing ? POLLER_READ | POLLER_WRITE : POLLER_READ);
	if (rc != 0)
		detach(p, err_str(rc));
}

void
peer_shutdown(struct peer *p)
{
	turns_end_all(&p->turns, MESSAGE_OUTCOME_SHUTDOWN);
	turns_sync(&p->turns);
	if (p->channel != NULL && answer(p) != 0)
		log_warn("the reactor did not take the last words");
	turns_forget(&p->turns);
	registry_forget(p->registry);
	store_seal_all(p->store, "shutdown");
	registry_seal(p->registry, clock_ms() + SEAL_MS);
}
