#include "config.h"

#include "recorder/finding.h"

static const struct finding_row rows[] = {
	{ "not_captured", "the path is passed through and not understood",
	    FINDING_NOT_CAPTURED, true },
	{ "no_logprobs", "log-probabilities were asked for and none came",
	    FINDING_NO_LOGPROBS, true },
	{ "logprobs_refused",
	    "the upstream refused log-probabilities; asked again without",
	    FINDING_LOGPROBS_REFUSED, true },
	{ "no_token_ids", "token ids were asked for and none came",
	    FINDING_NO_TOKEN_IDS, true },
	{ "token_ids_refused",
	    "the upstream refused return_token_ids; asked again without",
	    FINDING_TOKEN_IDS_REFUSED, false },
	{ "no_prompt_ids",
	    "token ids were asked for and those of the prompt did not come",
	    FINDING_NO_PROMPT_IDS, false },
	{ "count_mismatch",
	    "ids, tokens, log-probabilities and usage differ in number",
	    FINDING_COUNT_MISMATCH, true },
	{ "ids_incomplete",
	    "one of several sources of ids is shorter than another",
	    FINDING_IDS_INCOMPLETE, false },
	{ "ids_disagree", "two complete sources of ids name different tokens",
	    FINDING_IDS_DISAGREE, true },
	{ "ids_invalid", "an id is not a whole number of 32 bits",
	    FINDING_IDS_INVALID, true },
	{ "all_zero_logprobs",
	    "8 tokens or more, and every log-probability is 0",
	    FINDING_ALL_ZERO, true },
	{ "nonfinite_logprobs", "NaN, an infinity or null; written as null",
	    FINDING_NONFINITE, false },
	{ "positive_logprob", "a log-probability is above 0", FINDING_POSITIVE,
	    true },
	{ "truncated", "the turn outgrew its memory; the rest was not kept",
	    FINDING_TRUNCATED, true },
	{ "bad_json", "an event or body was not JSON", FINDING_BAD_JSON, true },
	{ "duplicate_keys", "an object of the reply names a member twice",
	    FINDING_DUPLICATE_KEYS, true },
	{ "error_in_stream", "the reply carried an error object",
	    FINDING_ERROR_IN_STREAM, true },
	{ "error_status", "the upstream answered with an error status",
	    FINDING_ERROR_STATUS, true },
	{ "upstream_disconnect",
	    "the upstream was unreachable, broke off or fell silent",
	    FINDING_UPSTREAM, true },
	{ "client_abort", "the client left before the end",
	    FINDING_CLIENT_ABORT, true },
	{ "shutdown", "cut off by a shutdown", FINDING_SHUTDOWN, true },
	{ "recorder_lost", "the recorder died under the turn", FINDING_LOST,
	    true },
	{ "no_finish_reason", "the reply ended without a finish_reason",
	    FINDING_NO_FINISH, true },
	{ "abort_finish",
	    "finish_reason abort, aborted or error: the engine gave up",
	    FINDING_ABORT_FINISH, true },
	{ "unknown_finish_reason",
	    "finish_reason is none of the documented ones",
	    FINDING_UNKNOWN_FINISH, true },
	{ "reasoning_only_with_thinking_off",
	    "thinking was turned off, yet the text came as reasoning",
	    FINDING_THINKING_LEAK, false },
	{ "tool_args_invalid", "the arguments of a tool call are not JSON",
	    FINDING_ARGS_INVALID, false },
	{ "tool_name_conflict", "a tool call was named twice, differently",
	    FINDING_NAME_CONFLICT, false },
	{ "lone_surrogate",
	    "half a surrogate pair or broken UTF-8; written as U+FFFD",
	    FINDING_SURROGATE, false },
	{ "empty_completion", "neither text, reasoning nor a call",
	    FINDING_EMPTY, true },
	{ "budget_stop",
	    "past the session's budget: the gateway answered, no model did",
	    FINDING_BUDGET, true },
	{ "gateway_lost", "the process that serves clients died under the turn",
	    FINDING_GATEWAY, true },
	{ "key_masked",
	    "the upstream's key stood in the reply; written as asterisks",
	    FINDING_MASKED, true },
};

const struct finding_row *
finding_rows(size_t *n)
{
	*n = sizeof(rows) / sizeof(rows[0]);
	return rows;
}

uint64_t
finding_blocking(uint64_t set)
{
	uint64_t bits = 0;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].blocks)
			bits |= rows[i].bit;
	return set & bits;
}
