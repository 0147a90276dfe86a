/*
 * worker http: a server on a port of the worker's sandbox, and what its two
 * dialects have in common.  worker_http.c starts it and finds out which it
 * speaks; worker_openenv.c and worker_web.c speak.
 */
#ifndef SP_GATE_WORKER_HTTP_H
#define SP_GATE_WORKER_HTTP_H

#include "gate/worker_pipe.h"
#include "gate/worker_priv.h"
#include "http/call.h"

enum {
	WORKER_HTTP_HEAD_MAX = 64 * 1024, /* of a reply */
	WORKER_HTTP_SEND_MS = 30 * 1000, /* without a byte being taken */
};

struct worker_http;
struct worker_openenv; /* worker_openenv.c */
struct worker_web; /* worker_web.c */

/* What is known of the server. */
enum worker_http_phase {
	WORKER_HTTP_PROBING, /* GET /health, until something answers */
	WORKER_HTTP_ASKING, /* whether /ws is a WebSocket */
	WORKER_HTTP_OPENENV,
	WORKER_HTTP_WEB, /* MCP, Streamable HTTP */
};

struct worker_http {
	struct worker_back back; /* first */
	struct worker_pipe pipe; /* its process */
	struct episode_set *episodes;
	uint16_t port;
	enum worker_http_phase phase;
	struct pool_dialler dialler;
	struct pool *pool;
	LIST_HEAD(, worker_http_dial) dials; /* on their way */
	struct call *probe;
	struct loop_timer *again; /* the next probe */
	uint64_t pause_ms;
	struct loop_timer *broken; /* a connection broke: does it exit? */
	bool broke;
	struct buf last; /* why it was not ready yet, or what broke */
	struct worker_openenv *openenv;
	struct worker_web *web;
};

static inline struct worker_http *
worker_http_of(struct worker_back *b)
{
	return (struct worker_http *)b;
}

/* ---- worker_http.c: for the dialects ---------------------------------------- */

/*
 * A connection to the server.
 * Context: reactor's loop.
 * Parameters: told, once from the loop unless cancelled: err 0 with fd, the
 *          callee's, connected or on its way; SP_E_REFUSED nobody listens;
 *          SP_E_*.
 * Returns: 0 with *out for worker_http_undial(), until told; SP_E_*.
 */
int worker_http_dial(struct worker_http *h,
    void (*told)(void *arg, int err, int fd), void *arg, void **out) must_check;
void worker_http_undial(void *dial);
/*
 * It cannot be asked about /ws now: it is probed again.  what: bounded words.
 */
void worker_http_not_yet(struct worker_http *h, const char *what);
/* /ws is no WebSocket: it may speak MCP. */
void worker_http_no_websocket(struct worker_http *h);
/*
 * A connection broke under something that was asked.  Mostly the process has
 * died, and how is the better reason; else this is.
 */
void worker_http_broke(struct worker_http *h, const char *what);

/* ---- worker_openenv.c ------------------------------------------------------- */

/*
 * Opens /ws.  worker_ready(), worker_http_not_yet() or
 * worker_http_no_websocket() follow, later.
 * Returns: 0; SP_E_*.
 */
int worker_openenv_start(struct worker_http *h) must_check;
int worker_openenv_send(struct worker_http *h,
    struct worker_call *c) must_check;
void worker_openenv_hold(struct worker_http *h, bool on);
void worker_openenv_stop(struct worker_http *h);
void worker_openenv_free(struct worker_http *h);

/* ---- worker_web.c ----------------------------------------------------------- */

/* Sends `initialize`: 0; SP_E_*. */
int worker_web_start(struct worker_http *h) must_check;
int worker_web_send(struct worker_http *h, struct worker_call *c) must_check;
bool worker_web_cancel(struct worker_http *h, struct worker_call *c,
    struct view reason);
void worker_web_over(struct worker_http *h, const struct worker_call *c,
    bool forgotten);
int worker_web_tell(struct worker_http *h, const struct worker_call *c,
    struct view json) must_check;
uint64_t worker_web_owed(const struct worker_http *h);
void worker_web_lapse(struct worker_http *h, uint64_t now_ms);
void worker_web_hold(struct worker_http *h, bool on);
void worker_web_stop(struct worker_http *h);
void worker_web_free(struct worker_http *h);

#endif
