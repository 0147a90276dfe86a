/* What is changed in a chat completion request on its way up. */
#ifndef SP_LLM_REQUEST_H
#define SP_LLM_REQUEST_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"
#include "conf/conf.h"

enum { LLM_MODEL_MAX = 128 };

/* How much of the capture an upstream takes; each step asks for less. */
enum llm_ask {
	LLM_ASK_ALL = 0, /* logprobs and token ids */
	LLM_ASK_NO_TOKEN_IDS = 1 << 0, /* return_token_ids was refused */
	LLM_ASK_N_PROBS = 1 << 1, /* n_probs instead of logprobs */
	LLM_ASK_NO_LOGPROBS = 1 << 2, /* logprobs were refused */
};

/*
 * What the client asked for, and what was asked of the upstream: the reply is
 * edited by the difference.
 */
struct llm_wants {
	bool stream;
	bool logprobs; /* the client's own logprobs: true, or its n_probs */
	uint64_t top_logprobs; /* the client's own; 0 none */
	bool token_ids; /* the client's own return_token_ids: true */
	bool usage; /* the client's own include_usage: true */
	bool forced_logprobs; /* ours, on the way up */
	uint64_t forced_top; /* alternatives asked for with them */
	bool forced_token_ids;
	bool insist_token_ids; /* `token_ids on`: a refusal is an error */
	bool forced_usage;
	bool thinking_off; /* enable_thinking=false by us */
	char model[LLM_MODEL_MAX]; /* as sent, decoded, cut; not terminated */
	size_t model_n;
};

struct llm_request_params {
	const struct conf_capture *capture; /* NULL: not captured */
	struct view model; /* override; empty none */
	unsigned ask; /* enum llm_ask bits */
};

/*
 * Splices the edits of the capture's policy into the body; everything that is
 * not edited stays byte for byte.  Of duplicates of a member that is set or
 * capped the last stays, with the value put.
 * Source:  the design's section on model calls; cases F1 to F12, H10, K1.
 * Context: reactor; no blocking; one pass, linear in the body.
 * Parameters: body, the client's; out, appended to; wants, filled in; meta,
 *          appended to: a JSON object of what the client had asked for:
 *          {"requested_model":...,"requested_sampling_params":{...}}, without
 *          values of more than 1 KiB; why, static text on SP_E_SYNTAX.
 * Returns: 0; SP_E_SYNTAX the body is no JSON object, is nested deeper than
 *          512 levels or repeats edited members thousands of times; SP_E_LIMIT
 *          out's or meta's max; SP_E_NOMEM.  On an error out is unchanged;
 *          meta may hold a part.
 */
int llm_request_edit(const struct llm_request_params *p, struct view body,
    struct buf *out, struct llm_wants *wants, struct buf *meta,
    const char **why) must_check;

/*
 * True for models that refuse max_tokens: gpt-5, o1, o3, o4 and kin, with or
 * without a provider before the name.
 */
bool llm_request_renames_max(struct view model);

#endif
