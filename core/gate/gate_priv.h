/* What gate.c and walk.c share; nobody else includes it. */
#ifndef SP_GATE_GATE_PRIV_H
#define SP_GATE_GATE_PRIV_H

#include <sys/queue.h>
#include <sys/types.h>

#include "gate/access.h"
#include "gate/admission.h"
#include "gate/bound.h"
#include "gate/forward.h"
#include "gate/gate.h"
#include "gate/heavy.h"
#include "gate/metrics.h"
#include "gate/pressure.h"
#include "gate/quota.h"
#include "gate/roster.h"
#include "gate/turn.h"
#include "http/front.h"
#include "net/listener.h"

struct walk;

enum { GATE_MEMORY_PARTS = 6 }; /* memory.c names them */

/*
 * Settings of connections.  Each lives as long as the gate, as a connection
 * borrows those of its start; equal ones are kept once.
 */
struct gate_limits {
	SLIST_ENTRY(gate_limits) link;
	struct h1_limits v;
};

/* One address in one generation, and who shares it. */
struct gate_door {
	const struct conf_server **servers; /* in the text's order */
	size_t servers_n;
	const struct conf_listen *conf; /* of the first */
	const struct h1_limits *limits;
	/* of a connection that is one too many: a request, and no keep-alive */
	const struct h1_limits *short_limits;
	struct tls_ctx *tls; /* NULL: plain */
	struct gate_port *port; /* NULL: not handed over yet */
};

/*
 * One listening socket.  It outlives generations, and its number and name the
 * socket itself, as connections know it by the number.
 */
struct gate_port {
	struct gate *gate;
	unsigned id;
	char *name; /* "127.0.0.1:7000", for the log */
	struct listener *listener; /* NULL: closed */
	struct gate_door *door; /* today's; NULL: it has none any more */
	struct inside_port *inside; /* of an episode; NULL: of this host */
	struct generation *pinned; /* the door's, when it is an older one */
	struct heavy_lane heavy; /* what is large and came by it */
	uint64_t body_bytes; /* of bodies and messages that came by it */
};

/*
 * A configuration and what was built from it.  The gate holds one reference
 * on the current, each open request one on that of its start.
 */
struct generation {
	LIST_ENTRY(generation) link;
	struct gate *gate;
	unsigned refs;
	uint32_t number;
	const struct conf *conf;
	struct conf *owned; /* the same, or NULL: somebody else's */
	struct forward *forward;
	struct gate_door *doors; /* by conf_listen.index */
	size_t doors_n;
	/* of `inside` blocks: by environment, then by conf_listen.index */
	struct gate_door *insides;
	size_t insides_n;
	size_t *inside_first; /* by conf_environment.index, and one more */
};

struct gate {
	struct loop *loop;
	struct generation *current;
	struct generation *next; /* prepared, neither taken nor given up */
	LIST_HEAD(, generation) generations; /* all that live */
	struct loop_task *reap; /* frees what nobody holds */
	SLIST_HEAD(, gate_limits) limits;
	struct metrics *metrics;
	struct recorder *recorder;
	struct roster *roster;
	struct admission *admission;
	struct episode_set *episodes; /* NULL: no helper to ask */
	struct inside *inside; /* with them */
	struct worker_set *workers; /* likewise */
	struct relay *relay; /* their ways out, with them */
	struct feed_set *feeds; /* what happens in them, with them */
	struct feed_nflogs *nflogs; /* and what the kernel tells of it */
	struct feed_files *files; /* and their watches */
	int (*helper_send)(void *arg, enum message_type type, struct view body,
	    int fd);
	void *helper_arg;
	struct mcp_set *mcp; /* sessions of MCP clients, while it serves */
	const struct mcp_owner *mcp_owner; /* mcp.h; NULL: none */
	struct pressure *pressure;
	struct quota *quota; /* of connections */
	struct heavy *heavy;
	struct bound *bound; /* of doors */
	unsigned extra_n; /* those that are one too many */
	struct access *access;
	struct front *front;
	struct gate_port **ports; /* by number */
	size_t ports_n;
	LIST_HEAD(, walk) walks;
	uint64_t walks_n;
	uint64_t number; /* of the last request */
	struct loop_timer *timer; /* for connections to end; for the drain */
	struct loop_task *drain_task;
	bool started, draining, drained_told, deadline;
	bool full; /* no more connections for now */
	bool tight; /* memory is: nothing is read */
	gid_t control_gid; /* may use the control socket */
	void (*drained)(void *arg);
	void *drained_arg;
	struct buf scratch; /* a path, or an error's body */
	unsigned modules_set_up, modules_started;
	/* metrics */
	struct metric *requests, *ack, *turns, *operations, *episodes_by;
	uint64_t *connections, *accepted, *streams, *malformed, *lost_lines;
	uint64_t *tokens, *turns_failed, *turns_open, *backlog, *recorder_up;
	uint64_t *restarts[2];
	uint64_t *h2[3], *h2_floods[H2_FLOODS];
	uint64_t *memory[GATE_MEMORY_PARTS], *memory_max, *memory_level;
	uint64_t *memory_ended[2]; /* calls, connections */
};

/* ---- generation.c --------------------------------------------------------- */

/*
 * Builds it, with one reference: doors have no port yet.  An owned conf is
 * taken in every case.
 */
int generation_new(struct gate *g, const struct gate_source *src,
    struct generation **out, struct buf *err) must_check;
struct generation *generation_ref(struct generation *n);
/* The last one is freed from the loop, as its pools may be in use now. */
void generation_unref(struct generation *n); /* NULL allowed */
/* The door of an environment's listener, or NULL. */
struct gate_door *generation_inside(const struct generation *n,
    struct view environment, uint32_t index);
/* Frees those that nobody holds; all of them: whoever holds them. */
void generation_reap(struct gate *g, bool all);

/* ---- gate_metrics.c ------------------------------------------------------- */

int gate_metrics_init(struct gate *g) must_check;
/* Of each turn that is over. */
void gate_metrics_observe(void *arg, const struct turn_facts *facts);

/* ---- walk.c --------------------------------------------------------------- */

extern const struct exchange_consumer walk_consumer;
void walk_resume(struct gate_request *r, enum gate_verdict v);
void walk_finish(struct gate_request *r);
void walk_body_gone(struct gate_request *r);
/* Also when the client is gone and r->x is NULL, to the end of FINISH. */
const struct exchange *walk_exchange(const struct gate_request *r);
/* Tells modules of all that lasts that the gate drains. */
void walk_drain_all(struct gate *g);
void walk_told(struct gate_request *r);
/* Cuts those that were told, and take nothing of it. */
void walk_cut_told(struct gate *g);
/* Ends every open request so that its client sees that it is not whole. */
void walk_abort_all(struct gate *g);
/*
 * Ends those that hold most, until about that many bytes are on their way out.
 * Returns how many it ended, of those that hold more than a little.
 */
unsigned walk_shed(struct gate *g, size_t bytes);
/* Reading may go on. */
void walk_relieve(struct gate *g);

/* ---- guest.c -------------------------------------------------------------- */

/* A new connection at that port, which has a door; fd is taken. */
void guest_come(struct gate_port *p, int fd);
/* ADMISSION_NOW, or why the exchange's connection is one too many. */
enum admission_word guest_word(const struct exchange *x);

/* ---- memory.c ------------------------------------------------------------- */

/* The ceiling, and its metrics: 0; SP_E_NOMEM. */
int memory_init(struct gate *g, uint64_t max) must_check;

/* ---- gate.c --------------------------------------------------------------- */

/*
 * A port of that name (taken), without a socket: one that is closed, or a new
 * one.  NULL without memory.
 */
struct gate_port *gate_port_get(struct gate *g, char *name) must_check;
/* It has a door; accepts from now on.  fd is taken. */
int gate_port_listen(struct gate *g, struct gate_port *p, int fd) must_check;
/* Listeners accept, or rest, as it is now. */
void gate_listeners_arm(struct gate *g);
/*
 * What may be held at once of bodies and messages that came by that port: of
 * an episode's a part of the whole, but a body of most bytes always.
 */
uint64_t gate_port_bodies(const struct gate_port *p, uint64_t most);
/* Tells the gate that a request is over. */
void gate_walk_over(struct gate *g);

#endif
