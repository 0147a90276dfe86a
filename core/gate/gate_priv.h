/* What gate.c and walk.c share; nobody else includes it. */
#ifndef SP_GATE_GATE_PRIV_H
#define SP_GATE_GATE_PRIV_H

#include <sys/queue.h>

#include "gate/access.h"
#include "gate/forward.h"
#include "gate/gate.h"
#include "gate/metrics.h"
#include "gate/turn.h"
#include "http/h1_server.h"
#include "net/listener.h"

struct walk;

/* One address and who shares it. */
struct gate_listener {
	struct gate *gate;
	const struct conf_server **servers; /* in the text's order */
	size_t servers_n;
	const struct conf_listen *conf; /* of the first */
	struct h1_limits limits;
	struct tls_ctx *tls; /* NULL: plain */
	struct listener *listener; /* NULL: not handed over yet */
	char *name; /* "127.0.0.1:8100", for the log */
};

struct gate {
	struct loop *loop;
	const struct conf *conf;
	struct metrics *metrics;
	struct recorder *recorder;
	struct forward *forward;
	struct access *access;
	struct h1_server *h1;
	struct gate_listener *listeners; /* by conf_listen.index */
	size_t listeners_n;
	LIST_HEAD(, walk) walks;
	uint64_t walks_n;
	uint64_t number; /* of the last request */
	struct loop_timer *timer; /* for connections to end; for the drain */
	struct loop_task *drain_task;
	bool started, draining, drained_told, deadline;
	bool full; /* no more connections for now */
	void (*drained)(void *arg);
	void *drained_arg;
	struct buf scratch; /* a path, or an error's body */
	unsigned modules_set_up, modules_started;
	/* metrics */
	struct metric *requests, *ack, *turns;
	uint64_t *connections, *accepted, *streams, *malformed, *lost_lines;
	uint64_t *tokens, *turns_failed, *turns_open, *backlog, *recorder_up;
	uint64_t *restarts[2];
};

/* ---- walk.c --------------------------------------------------------------- */

extern const struct exchange_consumer walk_consumer;
void walk_resume(struct gate_request *r, enum gate_verdict v);
void walk_finish(struct gate_request *r);
/* Ends every open request so that its client sees that it is not whole. */
void walk_abort_all(struct gate *g);
/* Tells the gate that a request is over (gate.c). */
void gate_walk_over(struct gate *g);

#endif
