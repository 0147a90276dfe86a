/*
 * JSON-RPC between calls and an MCP server, whatever carries it: whole
 * messages in, whole messages out.  Ids and progress tokens of ours stand in
 * place of the callers', everything else stays byte for byte.
 * Source: JSON-RPC 2.0; MCP 2025-11-25 basic, lifecycle, progress,
 *         cancellation; env/reset, env/step, env/state are our own methods.
 */
#ifndef SP_GATE_WORKER_MCP_H
#define SP_GATE_WORKER_MCP_H

#include "gate/worker_priv.h"

enum {
	WORKER_MCP_ASKED_MAX = 64, /* requests of the server, open */
	WORKER_MCP_ASKED_BYTES = 1024, /* of an id of it */
};

struct worker_mcp_asked;

struct worker_mcp {
	struct worker_back *back;
	/*
	 * Takes a message, which is copied: 0; SP_E_LIMIT; SP_E_NOMEM;
	 * SP_E_GONE.  It feeds nothing before it has returned.
	 */
	int (*send)(struct worker_back *b, struct view json);
	uint64_t hello; /* number of `initialize`; 0 it was answered */
	bool batches; /* the version has them */
	struct view version; /* that was agreed upon: static; empty none */
	/* number of the call in whose own reply it is fed; 0: not known */
	uint64_t within;
	TAILQ_HEAD(, worker_mcp_asked) asked;
	unsigned asked_n;
};

/* Owner: back is borrowed; worker_mcp_clear(). */
void worker_mcp_init(struct worker_mcp *m, struct worker_back *back,
    int (*send)(struct worker_back *b, struct view json));
void worker_mcp_clear(struct worker_mcp *m);
/* Sends `initialize`; worker_ready() follows its answer.  As send(). */
int worker_mcp_start(struct worker_mcp *m) must_check;
/*
 * A whole message, or a batch of them.  A bad one is worker_fail(); back->w
 * may be NULL when it returns.
 */
void worker_mcp_feed(struct worker_mcp *m, struct view json);
/* As those of struct worker_backend. */
int worker_mcp_call(struct worker_mcp *m, struct worker_call *c) must_check;
bool worker_mcp_cancel(struct worker_mcp *m, const struct worker_call *c,
    struct view reason);
/*
 * Asks for a sign that it has read what was sent before (MCP 2025-11-25, ping):
 * sets c->ping.  Without memory it is not asked, and counts as not heard.
 */
void worker_mcp_ping(struct worker_mcp *m, struct worker_call *c);
void worker_mcp_over(struct worker_mcp *m, const struct worker_call *c,
    bool forgotten);
uint64_t worker_mcp_owed(const struct worker_mcp *m);
/* back->w may be NULL when it returns. */
void worker_mcp_lapse(struct worker_mcp *m, uint64_t now_ms);
int worker_mcp_tell(struct worker_mcp *m, const struct worker_call *c,
    struct view json) must_check;

#endif
