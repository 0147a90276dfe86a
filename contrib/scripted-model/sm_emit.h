/* Writes one completion, as stream events or gathered for a unary body. */
#ifndef SP_SM_EMIT_H
#define SP_SM_EMIT_H

#include "sm_ask.h"
#include "sm_reply.h"
#include "sm_token.h"

struct sm_emit {
	const struct sm_ask *ask;
	struct sm_payload *p;
	struct sm_token_style style;
	struct sm_tokens prompt;
	struct sm_tokens out; /* all that the model said */
	const struct sm_json *usage; /* said instead of what was counted */
	const char *eol;
	struct view model;
	struct view finish; /* none yet while p is NULL */
	struct view reason_field;
	struct sm_out content; /* the unary body's parts */
	struct sm_out reasoning;
	struct sm_out calls;
	char id[64];
	size_t shown; /* tokens of out that were written */
	bool stream;
	bool logprobs;
	bool ids;
	bool prompt_shown;
	bool mute; /* events that follow carry no token data */
	bool has_content;
};

/*
 * Context: any, does not block.
 * Owner:   the struct is the caller's; sm_emit_clear() releases its memory.
 *          Text given must outlive it.  Failures show in p->body.err.
 */
void sm_emit_init(struct sm_emit *e, const struct sm_ask *ask,
    enum sm_shape shape, struct sm_payload *p);
void sm_emit_clear(struct sm_emit *e);
/* One event with a delta and the tokens of out not yet shown, up to to. */
void sm_emit_delta(struct sm_emit *e, struct view delta, size_t to);
/* The event with finish_reason; fin VIEW_NONE for null. */
void sm_emit_finish(struct sm_emit *e, struct view fin);
void sm_emit_usage(struct sm_emit *e);
/* "data: " text, blank line. */
void sm_emit_data(struct sm_emit *e, struct view text);
/* The whole unary body from what was gathered. */
void sm_emit_unary(struct sm_emit *e);

#endif
