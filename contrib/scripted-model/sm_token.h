/* Tokens without a vocabulary: pieces of text, stable ids, log-probabilities. */
#ifndef SP_SM_TOKEN_H
#define SP_SM_TOKEN_H

#include "sm_json.h"

enum sm_shape {
	SM_SHAPE_VLLM,
	SM_SHAPE_LLAMACPP,
	SM_SHAPE_OPENAI,
	SM_SHAPE_SGLANG
};

struct sm_token {
	struct view text; /* borrowed */
	uint32_t id;
};

struct sm_tokens {
	struct sm_token *v;
	size_t n;
	size_t cap;
	int err; /* first SP_E_*; nothing is added once set */
};

/* How a log-probability entry is written. */
struct sm_token_style {
	enum sm_shape shape;
	int top_n;
	bool as_ids; /* "token_id:N" for the text */
};

/*
 * Context: any, does not block.
 * Owner:   the struct is the caller's; sm_token_clear() releases the memory.
 *          Texts are borrowed: what was split must outlive the list.
 */
void sm_token_clear(struct sm_tokens *l);
/* Appends text's tokens: about four bytes each, never within a character. */
void sm_token_split(struct sm_tokens *l, struct view text);
/* Appends one special token such as "<tool_call>". */
void sm_token_special(struct sm_tokens *l, const char *name);
/*
 * Appends the prompt that messages and tools make: the same text always gives
 * the same ids, and a conversation's prompt begins with the earlier prompt
 * and completion.
 */
void sm_token_prompt(struct sm_tokens *l, struct arena *a,
    const struct sm_json *request);
/* "logprobs" content entries of l[from..to), comma separated. */
void sm_token_entries(struct sm_out *o, const struct sm_tokens *l, size_t from,
    size_t to, const struct sm_token_style *st);
/* Comma separated ids of l[from..to). */
void sm_token_ids(struct sm_out *o, const struct sm_tokens *l, size_t from,
    size_t to);

#endif
