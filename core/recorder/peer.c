#include "config.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/wire.h"
#include "os/fd.h"
#include "recorder/peer.h"
#include "recorder/retain.h"

enum {
	QUEUE_MAX_BYTES = 16 * 1024 * 1024,
	BATCH_MESSAGES = 64, /* then others get their turn, and answers go */
	PROBE_MS = 1000,
	MINUTE_MS = 60 * 1000,
	FLOOR_MS = 1000,
};

static void on_ready(void *arg, unsigned ready);

/* The reactor is gone, or has to go: its turns are lost. */
static void
detach(struct peer *p, const char *why)
{
	if (p->channel == NULL)
		return;
	log_warn("reactor's channel closed: %s; %zu turns were open", why,
	    p->turns.open_n);
	poller_remove(p->ready);
	p->ready = NULL;
	channel_free(p->channel);
	p->channel = NULL;
	p->writing = false;
	turns_end_all(&p->turns, MESSAGE_OUTCOME_LOST);
	turns_sync(&p->turns);
	turns_forget(&p->turns);
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

	if (p->channel == NULL)
		return;
	rc = wire_put_u8(&body, p->full ? 0 : 1);
	if (rc == 0)
		rc = wire_put_bytes(&body,
		    p->full ? VIEW("disk full") : VIEW_NONE);
	if (rc == 0)
		rc = send_body(p, MESSAGE_REC_STATE, &body);
	buf_clear(&body);
	if (rc != 0)
		detach(p, err_str(rc));
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
		log_error("the traces' disk is full: no calls are accepted "
			  "until there is room");
	else
		log_notice("there is room for traces again");
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

int
peer_init(struct peer *p, struct poller *poller, struct store *store)
{
	int rc;

	*p = (struct peer){ .poller = poller, .store = store };
	rc = turns_init(&p->turns, store);
	if (rc != 0)
		return rc;
	p->probe = poller_timer_new(poller, on_probe, p);
	p->minute = poller_timer_new(poller, on_minute, p);
	if (p->probe == NULL || p->minute == NULL) {
		peer_clear(p);
		return SP_E_NOMEM;
	}
	poller_timer_set(p->minute, MINUTE_MS);
	p->full = !store_has_room(store, false, 0);
	if (p->full)
		poller_timer_set(p->probe, PROBE_MS);
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
	p->probe = p->minute = NULL;
	turns_clear(&p->turns);
}

int
peer_attach(struct peer *p, int fd)
{
	detach(p, "another reactor took its place");
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
	tell_state(p);
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
};

static int
take(struct peer *p, struct channel_msg *m)
{
	size_t i;

	fd_close(&m->fd);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].type == m->type)
			return rows[i].take(&p->turns, m->body);
	return SP_E_PROTO;
}

static void
on_ready(void *arg, unsigned ready)
{
	struct peer *p = arg;
	struct channel_msg m;
	int i, rc = 0;

	(void)ready;
	for (i = 0; i < BATCH_MESSAGES && rc == 0; i++) {
		rc = channel_recv(p->channel, &m);
		if (rc == 0)
			rc = take(p, &m);
	}
	if (rc == SP_E_GONE)
		detach(p, "it is gone");
	else if (rc == SP_E_PROTO)
		detach(p, "it broke the protocol");
	else if (rc != 0 && rc != SP_E_AGAIN)
		detach(p, err_str(rc));
}

/* What there is to answer: 0, or why the channel is of no use any more. */
static int
answer(struct peer *p)
{
	struct buf body = BUF_INIT(MESSAGE_CONTROL_MAX);
	int rc = 0;

	while (rc == 0 && turns_next_done(&p->turns, &body))
		rc = send_body(p, MESSAGE_TURN_DONE, &body);
	while (rc == 0 && turns_next_credit(&p->turns, &body))
		rc = send_body(p, MESSAGE_TURN_CREDIT, &body);
	buf_clear(&body);
	if (rc == 0)
		rc = channel_flush(p->channel);
	return rc == SP_E_AGAIN ? 0 : rc;
}

void
peer_after(struct peer *p)
{
	uint64_t now = clock_ms();
	bool wrote = !TAILQ_EMPTY(&p->turns.done);
	bool writing;
	int rc;

	if (wrote)
		turns_sync(&p->turns);
	if (p->turns.full_bytes > 0 && !p->full) {
		set_full(p, true);
	} else if (wrote && !p->full && now - p->floor_at_ms >= FLOOR_MS) {
		p->floor_at_ms = now;
		if (!store_has_room(p->store, false, 0))
			set_full(p, true);
	}
	if (p->channel == NULL)
		return;
	rc = answer(p);
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
	store_seal_all(p->store, "shutdown");
}
