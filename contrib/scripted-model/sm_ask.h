/* What one chat completion call asks for. */
#ifndef SP_SM_ASK_H
#define SP_SM_ASK_H

#include "sm_http.h"
#include "sm_json.h"

struct sm_ask {
	struct arena *a; /* everything below lies in it, or in the request */
	const struct sm_http *http;
	const struct sm_json *body; /* NULL: not a JSON object */
	struct view model;
	struct view last_user; /* text of the last user message */
	struct view system; /* text of the first system message */
	struct view script; /* header x-script */
	bool stream;
	bool usage; /* stream_options.include_usage */
	bool logprobs;
	bool ids; /* return_token_ids */
	bool id_strings; /* return_tokens_as_token_ids */
	bool tools;
	int tool_results; /* tool messages after the last user message */
	int top_n;
	int n;
	int64_t max_tokens; /* -1: not given */
};

/*
 * Context: any, does not block.
 * Owner:   ask, the caller; sm_ask_clear() releases it.  http is borrowed
 *          and must outlive it.
 * Returns: 0; SP_E_SYNTAX when the body is no JSON object (why says where);
 *          SP_E_NOMEM.
 */
int sm_ask_parse(struct sm_ask *ask, const struct sm_http *http, char *why,
    size_t why_n) must_check;
void sm_ask_clear(struct sm_ask *ask);
/* The request has that member at its top, neither null nor false. */
bool sm_ask_has(const struct sm_ask *ask, const char *key);
/* Everything in match (string, object, or NULL) holds for the call. */
bool sm_ask_match(const struct sm_ask *ask, const struct sm_json *match);

#endif
