/*
 * One chat completion put together from what the upstream sent: events of a
 * stream, or a unary body, read by the same code into the same places.
 */
#ifndef SP_RECORDER_ASSEMBLE_H
#define SP_RECORDER_ASSEMBLE_H

#include "recorder/accum.h"
#include "recorder/logps.h"
#include "recorder/repeat.h"
#include "recorder/toolcall.h"

enum { ASSEMBLE_CHOICES_MAX = 128 };

/* Where token ids were found: cases E2, E3, E4; in order of preference. */
enum assemble_source {
	ASSEMBLE_CHOICE_TOKEN_IDS,
	ASSEMBLE_CHOICE_OUTPUT_IDS,
	ASSEMBLE_DELTA_TOKEN_IDS,
	ASSEMBLE_DELTA_GEN_TOKENS,
	ASSEMBLE_TOP_TOKEN_IDS,
	ASSEMBLE_ENTRY_ID,
	ASSEMBLE_ENTRY_TEXT,
	ASSEMBLE_SOURCES
};

/* What the capture level calls for; the rest is dropped at once. */
enum assemble_keep {
	ASSEMBLE_LOGPROBS = 1 << 0,
	ASSEMBLE_IDS = 1 << 1,
};

struct assemble_choice {
	int64_t index;
	bool delta_seen;
	struct accum_text role, content, reasoning, reasoning_content, refusal;
	struct accum_text finish_reason;
	struct accum_list details; /* reasoning_details */
	struct accum_list parts; /* content that came as a list */
	struct toolcall_list tools;
	bool fn_seen; /* legacy function_call */
	struct accum_text fn_name, fn_args;
	struct logps logps;
	struct accum_ids ids[ASSEMBLE_DELTA_GEN_TOKENS + 1];
	struct accum_extras extra, message_extra;
	/* results of assemble_finish() */
	const struct accum_ids *chosen; /* NULL: no ids */
	bool aligned;
	uint32_t findings;
};

struct assemble {
	struct accum_hold hold;
	unsigned keep; /* enum assemble_keep */
	struct assemble_choice **choices; /* owned, by index */
	size_t choices_n;
	struct accum_text id, model;
	struct accum_text created; /* a number, as written */
	struct accum_extras extra; /* usage is among them */
	struct buf error; /* the first error object, as written */
	struct accum_ids prompt_ids, top_ids;
	bool in_unary; /* reading a whole reply */
	struct repeat repeat;
	uint32_t findings; /* FINDING_* */
	size_t events;
	bool completed; /* every choice has its finish_reason */
	bool has_usage_tokens;
	int64_t usage_tokens;
};

/*
 * Context: recorder, does not block.
 * Parameters: max_bytes, memory for the turn, beyond which nothing more is
 *          kept; keep, enum assemble_keep.
 * Owner:   the caller; assemble_clear() frees what it holds.
 */
void assemble_init(struct assemble *a, size_t max_bytes, unsigned keep);
void assemble_clear(struct assemble *a);
/*
 * Keeps nothing of what is still to come, and of what came not its
 * log-probabilities and ids: the turn is truncated.
 */
void assemble_cut(struct assemble *a);
/* The data of one event; text that is no JSON is a finding. */
void assemble_event(struct assemble *a, struct view data);
/* The value of an SSE field `error` (case A14). */
void assemble_error(struct assemble *a, struct view value);
/* A unary reply's body. */
void assemble_body(struct assemble *a, struct view body);
/*
 * Nothing more comes: chooses among the sources of ids, compares the counts,
 * and collects the findings that the content gives rise to.
 */
void assemble_finish(struct assemble *a);
/* Choice 0, or the lowest there is; NULL: none came. */
struct assemble_choice *assemble_first(const struct assemble *a);
/* The ids of one source of a choice. */
const struct accum_ids *assemble_ids(const struct assemble *a,
    const struct assemble_choice *c, enum assemble_source source);
const char *assemble_source_name(enum assemble_source source);
/* The completion as one chat.completion object. */
void assemble_write(struct assemble *a, struct jwrite *w);
/* reasoning_content if any, else reasoning; NULL: neither came. */
const struct accum_text *assemble_reasoning(const struct assemble_choice *c);

#endif
