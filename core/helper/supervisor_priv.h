/* What supervisor.c and sup_reload.c share; nobody else includes it. */
#ifndef SP_HELPER_SUPERVISOR_PRIV_H
#define SP_HELPER_SUPERVISOR_PRIV_H

#include "helper/reload.h"
#include "helper/supervisor.h"
#include "os/poller.h"

enum sup_phase {
	SUP_STARTING, /* until both were ready once */
	SUP_SERVING,
	SUP_DRAINING, /* waits for DRAINED */
	SUP_STOP_REACTOR, /* waits for its end, and only then */
	SUP_STOP_EPISODES, /* are the episodes ended, and then */
	SUP_STOP_RECORDER, /* is the recorder stopped */
};

enum sup_reload_phase {
	SUP_RELOAD_NONE,
	SUP_RELOAD_PREPARING, /* waits for PREPARED; nothing has changed */
	SUP_RELOAD_COMMITTING, /* waits for COMMITTED; it is decided */
};

struct supervisor;

struct sup_role {
	struct supervisor *s;
	unsigned who; /* enum message_party */
	pid_t pid; /* -1: does not run */
	struct channel *c; /* NULL: none, or ended */
	struct poller_fd *f;
	struct poller_timer *restart;
	struct poller_timer *deadline; /* READY, DRAINED, the end */
	bool ready;
	bool failed; /* it said why it cannot start, and ends */
	uint64_t ready_at_ms; /* 0: was not */
	uint64_t backoff_ms;
	unsigned compromised; /* times it broke the protocol */
	bool pinged; /* and the answer is to come */
	unsigned unanswered; /* looks since then, or since a sign of life */
	int peer_fd; /* its end of a socket to the other, waiting for it */
};

struct supervisor {
	struct rolerun_world *w;
	struct poller *p;
	enum sup_phase phase;
	unsigned stops; /* signals so far */
	uint64_t drain_ms; /* when draining began */
	bool hurry; /* no waiting for calls in flight */
	bool pid_written;
	int status;
	struct poller_timer *watchdog; /* NULL: nobody watches */
	uint64_t watchdog_ms;
	struct poller_timer *ping;
	uint64_t ping_ms; /* between two looks */
	struct reload *r;
	enum sup_reload_phase reload_phase;
	unsigned reload_waits; /* roles whose answer is to come */
	bool reload_wanted; /* as soon as both serve */
	bool reload_logs; /* other files than before */
	uint64_t reload_number; /* of the attempt */
	struct buf reload_why; /* what is wrong, a line each */
	struct poller_timer *reload_timer; /* for those answers */
	struct sup_role reactor, recorder;
};

static inline bool
supervisor_stopping(const struct supervisor *s)
{
	return s->phase >= SUP_DRAINING;
}

/* ---- supervisor.c --------------------------------------------------------- */

/* Ends a role that takes no messages.  fd is taken. */
int supervisor_send(struct sup_role *r, enum message_type type,
    struct view body, int fd);
void supervisor_kill(struct sup_role *r);
/* The logs as they are now, to both. */
void supervisor_send_logs(struct supervisor *s);

/* ---- sup_reload.c --------------------------------------------------------- */

/* 0; SP_E_NOMEM. */
int sup_reload_init(struct supervisor *s) must_check;
void sup_reload_clear(struct supervisor *s);
/* Somebody asked for it: now, or when both roles serve. */
void sup_reload_ask(struct supervisor *s);
/* A role serves (again). */
void sup_reload_ready(struct supervisor *s);
/* It is gone: its answer will not come. */
void sup_reload_lost(struct sup_role *r);
/* A stop begins: what is not decided is given up. */
void sup_reload_stop(struct supervisor *s);
/* Messages of a role: 0; SP_E_PROTO. */
int sup_reload_prepared(struct sup_role *r, const struct channel_msg *m);
int sup_reload_committed(struct sup_role *r, const struct channel_msg *m);

#endif
