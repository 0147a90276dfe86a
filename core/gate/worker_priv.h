/*
 * What worker*.c, its back ends and the gate that makes the set share; the
 * doors include worker.h alone.
 */
#ifndef SP_GATE_WORKER_PRIV_H
#define SP_GATE_WORKER_PRIV_H

#include "conf/conf_env.h"
#include "gate/worker.h"

enum {
	WORKER_LINE_MAX = 16 * 1024 * 1024, /* bytes of one message */
	WORKER_STDERR_MAX = 64 * 1024, /* of what is kept */
	WORKER_WAITING_MAX = 64, /* calls of one principal's to one worker */
	WORKER_WAITING_BYTES = 64 * 1024 * 1024, /* and their bytes */
	WORKER_LEFT_MAX = 16, /* calls that were cancelled, and followed */
	WORKER_ASIDE_MAX = 16, /* calls that wait for their own client */
	WORKER_WHY_MAX = 1024,
	WORKER_BODY_MAX = 64 * 1024 * 1024, /* an answer, of what was split */
};

/* Where a call is. */
enum worker_place {
	WORKER_WAITING,
	WORKER_CURRENT, /* it was sent; there is one at most */
	/* sent before CURRENT, which the same client asked: it owed an answer */
	WORKER_ASIDE,
	/* sent, then cancelled or forgotten: others go, it may be answered */
	WORKER_LEFT,
	WORKER_TOLD, /* its result is known, and told with this turn's end */
};

struct worker_call {
	TAILQ_ENTRY(worker_call) link;
	struct worker *w;
	enum worker_place place;
	enum worker_op op;
	enum worker_whose whose;
	const void *client; /* NULL: nobody that the worker could ask */
	unsigned asked; /* requests of the worker's, open in it */
	bool feeds; /* a step or tools/call that nobody was told of yet */
	struct buf data;
	struct view id, token; /* raw, in data: of WORKER_MCP; or empty */
	uint64_t timeout_ms; /* 0 none */
	uint64_t deadline_ms; /* once it was sent; 0 none */
	uint64_t number; /* since it was sent: what a back end calls it */
	uint64_t ping; /* LEFT: that of what was asked behind it; 0 nothing */
	bool heard; /* LEFT: the worker has come to know */
	const struct worker_caller *caller; /* NULL: it was forgotten */
	void *arg;
	enum worker_result result; /* TOLD */
	struct buf body;
};
TAILQ_HEAD(worker_calls, worker_call);

/* One worker's side of a protocol; the first member of a back end's own. */
struct worker_back {
	LIST_ENTRY(worker_back) link; /* of those that are to be freed */
	const struct worker_backend *ops;
	struct worker *w; /* NULL: it was stopped, and says nothing more */
};

/* Only start() may fail the worker before it returns. */
struct worker_backend {
	/*
	 * Begins to start it: worker_ready() or worker_fail() follow, later.
	 * Parameters: env, borrowed for the call.
	 * Returns: NULL without memory, or when it cannot begin: worker_fail()
	 *          was called if there is more to say than that.
	 */
	struct worker_back *(
	    *start)(struct worker *w, const struct conf_environment *env);
	/*
	 * Sends the current call: worker_answer() follows, not before send()
	 * has returned.
	 * Returns: 0; SP_E_LIMIT it is too large; SP_E_NOMEM: the call fails;
	 *          SP_E_GONE: the worker does.
	 */
	int (*send)(struct worker_back *b, struct worker_call *c);
	/*
	 * Tells the worker that nobody waits for c: true when the next may be
	 * sent at once.  It sets c->ping, or c->heard where what is said in
	 * one call does not mix with another's.  NULL: it cannot be told.
	 */
	bool (*cancel)(struct worker_back *b, struct worker_call *c,
	    struct view reason);
	/* It is over or forgotten: what the worker asked within it is void. */
	void (*over)(struct worker_back *b, const struct worker_call *c,
	    bool forgotten); /* NULL allowed */
	int (*tell)(struct worker_back *b, const struct worker_call *c,
	    struct view json); /* as worker_tell(); NULL: void */
	/*
	 * Until when the oldest request of the worker's must be answered; 0
	 * none is open.  NULL: it asks nothing.
	 */
	uint64_t (*owed)(const struct worker_back *b);
	/* Answers those of which the time is over in the client's place. */
	void (*lapse)(struct worker_back *b, uint64_t now_ms);
	/* Reads no more for now, or again; NULL allowed. */
	void (*hold)(struct worker_back *b, bool on);
	/* Kills what it started; b->w is NULL already. */
	void (*stop)(struct worker_back *b);
	/* Later, from the loop. */
	void (*free)(struct worker_back *b);
};
extern const struct worker_backend worker_stdio_backend;
extern const struct worker_backend worker_frames_backend;
extern const struct worker_backend worker_http_backend;

struct worker {
	LIST_ENTRY(worker) link;
	TAILQ_ENTRY(worker) due_link;
	struct worker_set *set;
	struct episode *ep; /* NULL: it is over, freed with this turn */
	enum worker_state state, told; /* told: to the watches */
	bool news; /* the watches are to hear, whatever told says */
	bool due, holding;
	bool launch; /* the environment's processes are to be started */
	struct worker_back *back; /* NULL: none runs */
	uint64_t call_ms, start_ms, answer_ms; /* of its environment; 0 none */
	uint64_t ready_by_ms; /* STARTING; 0 none */
	struct loop_timer *timer;
	struct worker_calls waiting, aside, left, ended;
	struct worker_call *current;
	unsigned waiting_n[WORKER_WHOSE_N], aside_n, left_n;
	uint64_t served[WORKER_WHOSE_N]; /* number of the last that was sent */
	uint64_t busy_ms; /* since when one or another call is current */
	/*
	 * until when it may be at work on one that is not in left any more,
	 * and until when on one of which it has not heard that it is over
	 */
	uint64_t unsettled_ms[WORKER_WHOSE_N], unheard_ms;
	size_t waiting_bytes[WORKER_WHOSE_N];
	uint64_t numbers; /* given out */
	uint64_t steps; /* answered well since the reset */
	uint64_t dropped; /* messages that belong to nothing */
	struct buf why, initialized, err;
	LIST_HEAD(, worker_watch) watches;
	struct worker_watch *cursor; /* the next to be told */
};

/* A step or tools/call that was sent to a worker, and what came of it. */
struct worker_told {
	bool step;
	enum worker_whose whose;
	struct view request;
	const char *code; /* NULL: it was answered */
	struct view body; /* the answer, else words: may be empty */
};

/* What the set needs of the gate. */
struct worker_world {
	struct loop *loop;
	/* NULL: it is not configured any more */
	const struct conf_environment *(
	    *environment)(void *arg, const struct episode *ep);
	/*
	 * Something a workload said of itself (OPENENVD_EVENT_FD, a frame):
	 * one JSON object.  NULL: nobody cares.
	 */
	void (*event)(void *arg, struct episode *ep, struct view json);
	/* NULL: nobody cares. */
	void (
	    *told)(void *arg, struct episode *ep, const struct worker_told *t);
	/* So many were no such thing; 0: nobody knows.  NULL: nobody cares. */
	void (*lost)(void *arg, struct episode *ep, uint64_t n,
	    const char *reason);
	void *arg;
};

/* ---- the set: the gate's ---------------------------------------------------- */

/*
 * Context: reactor's loop.
 * Owner:   the caller; worker_set_free(NULL) is allowed, and comes before that
 *          of the episodes.
 */
struct worker_set *worker_set_new(const struct worker_world *w) must_check;
void worker_set_free(struct worker_set *s);
/* Each episode's news, before those of its watches. */
void worker_set_news(struct worker_set *s, struct episode *ep,
    const struct episode_news *n);
const struct worker_world *worker_set_world(const struct worker_set *s);

/* ---- worker.c and worker_call.c of each other ------------------------------- */

/* What comes of calls is told by the task: nobody is called back at once. */
void worker_post(struct worker *w);
/* The timer, when something of its calls has changed. */
void worker_arm(struct worker *w);
/* Its result: told with the end of this turn. */
void worker_call_end(struct worker_call *c, enum worker_result result,
    struct view body);
void worker_calls_end(struct worker_calls *l, enum worker_result result,
    struct view body);
/* Tells those that have ended; who ends meanwhile has his own turn. */
void worker_calls_tell(struct worker *w);
/* Frees those that have ended, untold. */
void worker_calls_drop(struct worker *w);
/* The answers of cancelled ones are waited for no more, when it is time. */
void worker_left_expire(struct worker *w, uint64_t now_ms);
/* One of those that the worker is at, of which the time is over, or NULL. */
const struct worker_call *worker_sent_expired(const struct worker *w,
    uint64_t now_ms);
/*
 * The next that may go, or NULL: while the current one waits for its client,
 * one of the same client's, but not for longer than answer_timeout while
 * somebody else waits.
 */
struct worker_call *worker_next(const struct worker *w);
void worker_send(struct worker *w, struct worker_call *c);

/* ---- for back ends ---------------------------------------------------------- */

struct loop *worker_loop(const struct worker *w);
/* What its deadlines are of: episode_now_ms(). */
uint64_t worker_now_ms(const struct worker *w);
const struct worker_world *worker_world_of(const struct worker *w);
/* It takes calls.  Parameters: initialized, see worker_initialized(). */
void worker_ready(struct worker *w, struct view initialized);
/*
 * It failed: everything of its episode is killed, and the back end stopped
 * (b->w is NULL when it returns).  Whoever waits hears of it after this turn.
 * Parameters: how, WORKER_GONE or WORKER_TIMEOUT, of the current call.
 */
void worker_fail(struct worker *w, enum worker_result how, const char *fmt, ...)
    printf_like(3, 4);
/* The call that bears this number, CURRENT, ASIDE or LEFT, or NULL. */
struct worker_call *worker_numbered(struct worker *w, uint64_t number);
/*
 * The answer to one of those, told at once: b->w may be NULL when it returns.
 */
void worker_answer(struct worker_call *c, enum worker_result result,
    struct view body);
/* It was sent, and its caller waits for it. */
bool worker_sent(const struct worker_call *c);
/* Another one that the same client waits for, the latest sent; or NULL. */
struct worker_call *worker_beside(const struct worker_call *c);
/*
 * So many more requests of the worker's are open in it, or fewer: from the
 * first on the next call of its client may go, so that it can be answered.
 */
void worker_asks(struct worker_call *c, int more);
/* It has read what was sent up to that ping: false, there is no such one. */
bool worker_heard(struct worker *w, uint64_t ping);
/*
 * False: what it says may belong to a call that was cancelled or forgotten: to
 * any of another principal's, as long as that is not answered and its time not
 * over; to one of the same, until the worker has heard of its end.
 */
bool worker_settled(const struct worker *w, enum worker_whose whose);
/*
 * Whether its caller can be told something: not of one that has left, which is
 * told its answer alone.  c may be NULL.
 */
bool worker_listens(const struct worker_call *c);
void worker_say(const struct worker_call *c, struct view json); /* if so */
/* To the watches. */
void worker_tell_watches(struct worker *w, struct view json);
void worker_add_stderr(struct worker *w, struct view data);
void worker_count_dropped(struct worker *w);
/* An event of the workload's own: one JSON object. */
void worker_event(struct worker *w, struct view json);

#endif
