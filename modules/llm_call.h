/* One model call on its way: private to the model door's files. */
#ifndef SP_LLM_CALL_H
#define SP_LLM_CALL_H

#include "base/buf.h"
#include "gate/admission.h"
#include "gate/forward.h"
#include "gate/gate.h"
#include "gate/metrics.h"
#include "gate/pressure.h"
#include "gate/roster.h"
#include "gate/turn.h"
#include "http/sse.h"
#include "llm_intercept_conf.h"
#include "llm_refusal.h"
#include "llm_repeat.h"
#include "llm_reply.h"
#include "llm_request.h"

enum {
	LLM_ERROR_BODY_MAX = 1024 * 1024, /* of an upstream's error reply */
	LLM_PIECES = 16, /* of an event that go out without a copy */
	LLM_SAMPLING_MAX = 64, /* forced parameters */
	LLM_LINGER_MS = 50, /* from [DONE] to the upstream's terminator */
};

enum llm_kind {
	LLM_CHAT, /* captured and edited */
	LLM_MODELS, /* forwarded, neither captured nor recorded */
	LLM_PASS, /* forwarded, recorded as not captured */
};

/* Where a call stands. */
enum llm_state {
	LLM_WAITING, /* for the upstream's head */
	LLM_UNARY, /* collecting a reply that is edited as a whole */
	LLM_REFUSED, /* collecting an error reply */
	LLM_STREAM, /* events */
	LLM_RELAY, /* bytes as they come */
	LLM_RECORDING, /* the end waits for the recorder */
	LLM_OVER, /* the reply was ended, or the client is away */
};

/* What the module shares among calls; one in the process. */
struct llm_shared {
	struct llm_refusal *refusals;
	struct jsplice edits; /* scratch of the event at hand */
	struct buf text; /* likewise */
	struct buf mask[2]; /* texts that quoted the upstream's key */
	struct metric *ttft, *added, *refused, *aborted, *budget_stops;
	uint64_t *streams;
};

struct llm_call {
	struct gate_request *r;
	struct llm_shared *shared;
	const struct llm_intercept_conf *conf;
	const struct conf_upstream *upstream; /* the session's, or the door's */
	const struct conf_capture *capture; /* likewise; NULL: off */
	struct admission_ticket ticket; /* its place among the calls */
	struct roster_use use; /* of a session that has a key */
	enum roster_budget spent; /* the gateway answers, no model */
	enum llm_kind kind;
	enum llm_state state;
	struct view endpoint; /* below the upstream's base */
	struct view affinity;
	struct llm_wants wants;
	uint64_t stamp; /* of what was known of refusals */
	unsigned ask; /* enum llm_ask bits of this attempt */
	unsigned attempts;
	const char *why; /* the body cannot be read */
	struct buf original; /* the client's body; until it is accepted */
	struct buf body; /* as forwarded; until it is accepted */
	struct call *call; /* NULL when none is open */
	struct head_fields fields; /* of the upstream's reply, copied */
	struct turn *turn; /* NULL: not captured */
	bool turn_ended;
	bool turn_done;
	bool turn_ok;
	uint64_t started_us;
	uint64_t whole_us; /* the request was whole; clock_us() */
	uint64_t first_us; /* first event with data; 0 not yet */
	uint64_t wall_us;
	unsigned upstream_status;
	struct sse sse;
	struct llm_repeat *repeat; /* owned; NULL: nothing learned */
	struct buf held; /* unary or error body; a stream's [DONE] event */
	struct loop_timer *timer; /* own comments, then the terminator */
	bool request_recorded;
	bool streaming; /* counted as an open stream */
	bool head_sent;
	bool done_seen;
	bool useful;
	bool finish_seen;
	bool logprobs_seen;
	struct buf tail; /* of a relayed body: what may begin the key */
	uint64_t relay_left; /* of a relayed body of known length */
	bool masked; /* the upstream's key was blanked in the answer */
	bool undecoded; /* a content coding that cannot be read */
	bool paused;
	bool gone;
};

/* llm_call.c: the life of a call. */
/* Starts (again) towards the upstream; 0 or an SP_E_*. */
int llm_call_start(struct llm_call *c) must_check;
/*
 * The upstream has answered for good: its request goes on record and the
 * bodies are let go.
 */
void llm_call_accepted(struct llm_call *c);
/* Opens the reply with the upstream's own head. */
int llm_call_reply_head(struct llm_call *c, unsigned status,
    int64_t content_length) must_check;
/* Hands a piece of the upstream's answer to the recorder. */
void llm_call_record(struct llm_call *c, enum message_data kind, struct view v);
/*
 * The upstream is through with it: tells the recorder and waits; the held
 * end goes to the client when the turn is on file.
 */
void llm_call_recording(struct llm_call *c, enum message_outcome outcome,
    struct view error);
/*
 * Something is wrong: an error status where the head was not sent, an error
 * event and a cut where it was; the turn is ended with that outcome.
 */
void llm_call_break(struct llm_call *c, enum message_outcome outcome,
    unsigned status, const char *code, const char *text);
/*
 * The text with the upstream's key blanked, where it is quoted, which the turn
 * is told of; case H10.  Keys too short to be secrets are words like others.
 * Borrowed: v itself, or scratch number `which` (0 or 1) until its next use.
 */
struct view llm_call_mask(struct llm_call *c, struct view v, int which);
/* Pauses or resumes the upstream by the room that client and recorder have. */
void llm_call_pressure(struct llm_call *c);
void llm_call_free(struct llm_call *c);

/* llm_stream.c: server-sent events. */
void llm_stream_begin(struct llm_call *c);
void llm_stream_body(struct llm_call *c, struct view data);
void llm_stream_end(struct llm_call *c, bool delimited);
/* The end of the reply, after the recorder's word. */
void llm_stream_release(struct llm_call *c);

/*
 * llm_budget.c: what becomes of a call of a session whose budget is used up.
 */
/* The answer that ends the agent's loop, into c->held; 0 or an SP_E_*. */
int llm_budget_answer(struct llm_call *c) must_check;

/* llm_client.c: members for what the client's head said of itself. */
struct jwrite;
void llm_client_fields(const struct llm_call *c, struct jwrite *w);

/* llm_unary.c: replies that are taken as a whole. */
void llm_unary_end(struct llm_call *c, bool delimited);
/* What was collected so far goes on record. */
void llm_unary_record(struct llm_call *c);
void llm_unary_refused(struct llm_call *c);
void llm_unary_release(struct llm_call *c);

#endif
