#include "config.h"

#include "recorder/finding.h"

static const struct finding_row rows[] = {
	{ FINDING_NOT_CAPTURED, "not_captured", 1,
	    "the path is passed through and not understood" },
	{ FINDING_NO_LOGPROBS, "no_logprobs", 1,
	    "log-probabilities were asked for and none came" },
	{ FINDING_LOGPROBS_REFUSED, "logprobs_refused", 1,
	    "the upstream refused log-probabilities; asked again without" },
	{ FINDING_NO_TOKEN_IDS, "no_token_ids", 1,
	    "token ids were asked for and none came" },
	{ FINDING_TOKEN_IDS_REFUSED, "token_ids_refused", 0,
	    "the upstream refused return_token_ids; asked again without" },
	{ FINDING_NO_PROMPT_IDS, "no_prompt_ids", 0,
	    "token ids were asked for and those of the prompt did not come" },
	{ FINDING_COUNT_MISMATCH, "count_mismatch", 1,
	    "ids, tokens, log-probabilities and usage differ in number" },
	{ FINDING_IDS_INCOMPLETE, "ids_incomplete", 0,
	    "one of several sources of ids is shorter than another" },
	{ FINDING_IDS_DISAGREE, "ids_disagree", 1,
	    "two complete sources of ids name different tokens" },
	{ FINDING_IDS_INVALID, "ids_invalid", 1,
	    "an id is not a whole number of 32 bits" },
	{ FINDING_ALL_ZERO, "all_zero_logprobs", 1,
	    "8 tokens or more, and every log-probability is 0" },
	{ FINDING_NONFINITE, "nonfinite_logprobs", 0,
	    "NaN, an infinity or null; written as null" },
	{ FINDING_POSITIVE, "positive_logprob", 1,
	    "a log-probability is above 0" },
	{ FINDING_TRUNCATED, "truncated", 1,
	    "the turn outgrew its memory; the rest was not kept" },
	{ FINDING_BAD_JSON, "bad_json", 1, "an event or body was not JSON" },
	{ FINDING_DUPLICATE_KEYS, "duplicate_keys", 1,
	    "an object of the reply names a member twice" },
	{ FINDING_ERROR_IN_STREAM, "error_in_stream", 1,
	    "the reply carried an error object" },
	{ FINDING_ERROR_STATUS, "error_status", 1,
	    "the upstream answered with an error status" },
	{ FINDING_UPSTREAM, "upstream_disconnect", 1,
	    "the upstream was unreachable, broke off or fell silent" },
	{ FINDING_CLIENT_ABORT, "client_abort", 1,
	    "the client left before the end" },
	{ FINDING_SHUTDOWN, "shutdown", 1, "cut off by a shutdown" },
	{ FINDING_LOST, "recorder_lost", 1,
	    "a part of the gateway died under the turn" },
	{ FINDING_NO_FINISH, "no_finish_reason", 1,
	    "the reply ended without a finish_reason" },
	{ FINDING_ABORT_FINISH, "abort_finish", 1,
	    "finish_reason abort, aborted or error: the engine gave up" },
	{ FINDING_UNKNOWN_FINISH, "unknown_finish_reason", 1,
	    "finish_reason is none of the documented ones" },
	{ FINDING_THINKING_LEAK, "reasoning_only_with_thinking_off", 0,
	    "thinking was turned off, yet the text came as reasoning" },
	{ FINDING_ARGS_INVALID, "tool_args_invalid", 0,
	    "the arguments of a tool call are not JSON" },
	{ FINDING_NAME_CONFLICT, "tool_name_conflict", 0,
	    "a tool call was named twice, differently" },
	{ FINDING_SURROGATE, "lone_surrogate", 0,
	    "half a surrogate pair or broken UTF-8; written as U+FFFD" },
	{ FINDING_EMPTY, "empty_completion", 1,
	    "neither text, reasoning nor a call" },
};

const struct finding_row *
finding_rows(size_t *n)
{
	*n = sizeof(rows) / sizeof(rows[0]);
	return rows;
}

uint32_t
finding_blocking(uint32_t set)
{
	uint32_t bits = 0;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].blocks)
			bits |= rows[i].bit;
	return set & bits;
}
