/*
 * The gate: what stands between an exchange and what serves it.  A request
 * walks through phases; in each the modules' hooks give a verdict.
 */
#ifndef SP_GATE_GATE_H
#define SP_GATE_GATE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"
#include "conf/conf.h"
#include "event/loop.h"
#include "http/exchange.h"
#include "ipc/message.h"

struct admission; /* admission.h */
struct bound; /* bound.h */
struct episode_set; /* episode.h */
struct feed_set; /* feed.h */
struct gate;
struct inside; /* inside.h */
struct generation; /* a configuration in use: gate_priv.h */
struct metrics; /* metrics.h */
struct pressure; /* pressure.h */
struct recorder; /* turn.h */
struct roster; /* roster.h */
struct websock; /* websock.h */
struct worker_set; /* worker.h */

enum gate_phase {
	GATE_HEAD, /* the head is there, the location is known */
	GATE_MESSAGE, /* the body (later: one WebSocket message) is whole */
	GATE_FINISH, /* it is over, whatever became of it; runs once */
	GATE_PHASES
};

/* What a hook says.  The zero value fails closed. */
enum gate_verdict {
	GATE_FAIL = 0, /* our fault: 500 */
	GATE_PASS, /* the next hook, then the next phase */
	GATE_DENY, /* refused: r->status and r->reason say why */
	GATE_DONE, /* answered: no more hooks in this phase */
	GATE_HOLD, /* waits: gate_resume() goes on, or gate_finish() */
};

enum gate_principal {
	GATE_AGENT = 1 << 0,
	GATE_GRADER = 1 << 1,
	GATE_ORCHESTRATOR = 1 << 2,
	GATE_OBSERVER = 1 << 3,
	GATE_ADMIN = 1 << 4,
	GATE_OPERATOR = 1 << 5,
};

/* "agent", "grader", ...; NULL: none, or several. */
const char *gate_principal_name(unsigned principals);

/* Why a reply has to end before its time. */
enum gate_expiry {
	GATE_EXPIRE_DRAIN, /* the drain's deadline passed */
	GATE_EXPIRE_MEMORY, /* memory_max is near, and it holds much */
};

/* One request on its way; lives from the head to FINISH. */
struct gate_request {
	struct gate *gate;
	struct generation *generation; /* what it is served under, to its end */
	struct exchange *x; /* NULL once it is gone */
	const struct conf_location *location;
	void *conf; /* the handler module's struct for the location */
	struct view path; /* normalised, without query */
	struct view rest; /* what lies beneath the location: "" or "/..." */
	bool door; /* errors have the doors' shape: gate_module.door */
	struct buf body; /* the message; the hook may take its memory */
	void *ctx; /* the module's, freed by its FINISH hook */
	/*
	 * What it became: told of body(), body_end(), room() and expire() in
	 * place of the module, and of gone() before it.  NULL: nothing.
	 */
	struct websock *websock;
	/*
	 * Set by the HEAD hook: the body goes to the module's body() as it
	 * comes, after MESSAGE, which holds.  It has no deadline.
	 */
	bool streams;
	unsigned status; /* of a DENY, then of the reply, for the log */
	const char *reason; /* of a DENY: "what, where, remedy" */
	const char *code; /* of a DENY: machine-readable, e.g. "invalid_key" */
	const char *allow; /* of a DENY with 405: "GET, HEAD" */
	/* for the access log; static or the exchange's arena */
	const char *principal;
	const char *outcome; /* "ok", "denied", "client_gone", ... */
	struct view session;
	struct view episode; /* whose listener it came by; empty: none's */
	bool orchestrator; /* it brought that one's token to another's door */
	uint64_t number;
};

/* Code of a 404 that looks as openenvd's, without a reason. */
#define GATE_UNKNOWN_URL "unknown_url"

/* A hook's refusal.  code, reason: static, or the exchange's arena. */
static inline enum gate_verdict
gate_deny(struct gate_request *r, unsigned status, const char *code,
    const char *reason)
{
	r->status = status;
	r->code = code;
	r->reason = reason;
	return GATE_DENY;
}

/*
 * What a module gives.  Callbacks other than hooks:
 * room: the client's side takes bytes again (exchange_room() has risen).
 * gone: the client is away; r->x is NULL; the FINISH hooks run right after.
 * done: the reply left whole; FINISH follows.
 * body, body_end: not after gate_finish().
 */
struct gate_module {
	const struct conf_module *conf; /* name and rows */
	unsigned principals; /* whom it may serve */
	bool beneath; /* also serves what lies beneath its location */
	bool wants_body; /* MESSAGE runs when the body is whole */
	/* of one, where client_max_body is not less: 413; 0 no bound */
	size_t body_max;
	bool checks_token; /* location->token is its own matter */
	/*
	 * A principal's door: errors are {"detail":..}, a WebSocket is refused
	 * with 403 and no body, and r->principal is that of `principals`.
	 */
	bool door;
	int (*setup)(struct gate *g); /* metrics; no I/O */
	int (*start)(struct gate *g); /* confined, before accepting */
	void (*stop)(struct gate *g);
	enum gate_verdict (*hook[GATE_PHASES])(struct gate_request *r);
	void (*room)(struct gate_request *r);
	/* of a request that streams: exchange_credit() asks for more */
	void (*body)(struct gate_request *r, struct view data);
	void (*body_end)(struct gate_request *r);
	void (*gone)(struct gate_request *r, enum exchange_gone why);
	/*
	 * The gateway stops.  What waits for nothing is told so and ends now,
	 * and gate_told() follows; what has something under way ends so when
	 * that has its answer.  NULL: its requests end by themselves.
	 */
	void (*drain)(struct gate_request *r);
	/* the reply is to end now; NULL: it is cut */
	void (*expire)(struct gate_request *r, enum gate_expiry why);
	/* bytes that it holds beside the body; NULL: next to nothing */
	size_t (*holds)(const struct gate_request *r);
};

/* The ordered list (modules/modules.c), ends with NULL. */
extern const struct gate_module *const gate_modules[];

/* Trusted certificates of an upstream, or of all that name none. */
struct gate_ca {
	uint32_t upstream; /* its index, or MESSAGE_CA_SYSTEM */
	struct view pem; /* borrowed for the call */
};
/* A configuration, with its secrets set. */
struct gate_source {
	const struct conf *conf; /* lent until gate_free(), or NULL: */
	struct conf *owned; /* taken, freed with the last that uses it */
	uint32_t number; /* of the generation */
	const struct gate_ca *cas;
	size_t cas_n;
};

/*
 * Context: reactor.
 * Parameters: conf, with its secrets set; borrowed until gate_free().
 * Returns: 0; SP_E_NOMEM; SP_E_TLS, SP_E_CONF with a line in err.
 */
int gate_new(struct loop *l, const struct conf *conf, struct gate **out,
    struct buf *err) must_check;
/* The same from a source; src->owned is taken also on an error. */
int gate_new_from(struct loop *l, const struct gate_source *src,
    struct gate **out, struct buf *err) must_check;

/*
 * Another configuration in place of the current one: prepared with all that
 * may fail, then taken by gate_commit(), or given up by gate_abandon().
 * Requests that are open go on under theirs; what comes later, on connections
 * that are open as well, has the new one.  Connections to upstreams that are
 * the same in both are kept.  What was h1_limits at a connection's start stays
 * for that connection.
 * Context: reactor; no file is read: src has every certificate.
 * Owner:   src->owned is taken also on an error.  fd is taken.
 * Returns: gate_prepare: as gate_new(); SP_E_STATE one is prepared already.
 *          The others: 0; SP_E_STATE none is prepared; SP_E_ARG no such
 *          listener, or it has a socket; SP_E_NOMEM.
 */
int gate_prepare(struct gate *g, const struct gate_source *src,
    struct buf *err) must_check;
int gate_prepare_listen(struct gate *g, unsigned index, int fd) must_check;
/* The socket that index `was` has now. */
int gate_prepare_keep(struct gate *g, unsigned index, unsigned was) must_check;
/* False: a listener of what is prepared has no socket. */
bool gate_prepared(const struct gate *g);
void gate_commit(struct gate *g);
void gate_abandon(struct gate *g); /* nothing prepared: nothing happens */
/* The number that the current generation has, and a request's. */
uint32_t gate_generation(const struct gate *g);
uint32_t gate_generation_of(const struct gate_request *r);
void gate_free(struct gate *g);
/* Takes a listening descriptor; index is conf_listen.index. */
int gate_listen(struct gate *g, unsigned index, int fd) must_check;
/* Every address has its socket; the one for control may be missing. */
bool gate_listening(const struct gate *g);
/* Who may use the control socket besides root and this user. */
void gate_set_control_group(struct gate *g, gid_t gid);
/* Calls the modules' start() and accepts from now on. */
int gate_start(struct gate *g) must_check;
/* Stops accepting; drained is called once when nothing is open, or from
 * gate_drain_deadline(), which ends what is still open. */
void gate_drain(struct gate *g, void (*drained)(void *arg), void *arg);
void gate_drain_deadline(struct gate *g);
/*
 * True while calls may be served: not draining, memory enough, a server takes
 * them, recorder well.  Else *why says what is wrong, in words.
 */
bool gate_healthy(const struct gate *g, const char **why);
bool gate_draining(const struct gate *g);
struct loop *gate_loop(const struct gate *g);
/* The current one: a request's own is that of its location. */
const struct conf *gate_conf(const struct gate *g);
struct metrics *gate_metrics(const struct gate *g);
struct recorder *gate_recorder(const struct gate *g);
struct roster *gate_roster(const struct gate *g); /* roster.h */
struct admission *gate_admission(const struct gate *g); /* admission.h */
struct bound *gate_bound(const struct gate *g); /* bound.h */
/* NULL until gate_set_helper(). */
struct episode_set *gate_episodes(const struct gate *g); /* episode.h */
struct inside *gate_inside(const struct gate *g); /* inside.h; likewise */
struct feed_set *gate_feeds(const struct gate *g); /* feed.h; likewise */
struct worker_set *gate_workers(const struct gate *g); /* worker.h; likewise */
/*
 * The way to the helper: episodes can be had from now on.
 * Parameters: send, see episode_world.
 * Returns: 0; SP_E_NOMEM.
 */
int gate_set_helper(struct gate *g,
    int (*send)(void *arg, enum message_type type, struct view body, int fd),
    void *arg) must_check;
struct pressure *gate_pressure(const struct gate *g); /* pressure.h */
void gate_set_restarts(struct gate *g, uint32_t reactor, uint32_t recorder);
/* Where access lines go: taken, the one before is closed; -1 none. */
void gate_set_access_log(struct gate *g, int fd);
/* The module's row of its directives, or NULL when it is not linked. */
const struct gate_module *gate_module_of(const struct conf_module *conf);

/* After GATE_HOLD: the verdict that the hook could not give at once. */
void gate_resume(struct gate_request *r, enum gate_verdict v);
/*
 * The module has nothing more to do with r: its reply was ended (or it is
 * gone).  FINISH runs from the loop, then r is freed.
 */
void gate_finish(struct gate_request *r);
/*
 * The gateway stops, and the client was told: nothing is awaited any more but
 * that it takes it, and if it does not do that soon it is cut.
 */
void gate_told(struct gate_request *r);
/*
 * The module has let go of the memory of r->body that it took: it no longer
 * counts among the bodies that are held.  Else it does until the end.
 */
void gate_body_gone(struct gate_request *r);
/*
 * A status and an error body in the surface's own shape: OpenAI's, or that of
 * the doors where r->door says so.
 */
int gate_error(struct gate_request *r, unsigned status, const char *code,
    const char *fmt, ...) printf_like(4, 5) must_check;
/*
 * An OpenAI error object for that status, appended to out:
 * {"error":{"message":..,"type":..,"param":null,"code":..}}
 */
int gate_error_body(unsigned status, const char *code, struct view message,
    struct buf *out) must_check;

#endif
