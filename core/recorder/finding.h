/* Findings: short codes for what a trainer must know about a turn. */
#ifndef SP_RECORDER_FINDING_H
#define SP_RECORDER_FINDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of a set; the order is that of the codes in a record. */
enum finding {
	FINDING_NOT_CAPTURED = 1 << 0,
	FINDING_NO_LOGPROBS = 1 << 1,
	FINDING_LOGPROBS_REFUSED = 1 << 2,
	FINDING_NO_TOKEN_IDS = 1 << 3,
	FINDING_TOKEN_IDS_REFUSED = 1 << 4,
	FINDING_NO_PROMPT_IDS = 1 << 5,
	FINDING_COUNT_MISMATCH = 1 << 6,
	FINDING_IDS_INCOMPLETE = 1 << 7,
	FINDING_IDS_DISAGREE = 1 << 8,
	FINDING_IDS_INVALID = 1 << 9,
	FINDING_ALL_ZERO = 1 << 10,
	FINDING_NONFINITE = 1 << 11,
	FINDING_POSITIVE = 1 << 12,
	FINDING_TRUNCATED = 1 << 13,
	FINDING_BAD_JSON = 1 << 14,
	FINDING_DUPLICATE_KEYS = 1 << 15,
	FINDING_ERROR_IN_STREAM = 1 << 16,
	FINDING_ERROR_STATUS = 1 << 17,
	FINDING_UPSTREAM = 1 << 18,
	FINDING_CLIENT_ABORT = 1 << 19,
	FINDING_SHUTDOWN = 1 << 20,
	FINDING_LOST = 1 << 21,
	FINDING_NO_FINISH = 1 << 22,
	FINDING_ABORT_FINISH = 1 << 23,
	FINDING_UNKNOWN_FINISH = 1 << 24,
	FINDING_THINKING_LEAK = 1 << 25,
	FINDING_ARGS_INVALID = 1 << 26,
	FINDING_NAME_CONFLICT = 1 << 27,
	FINDING_SURROGATE = 1 << 28,
	FINDING_EMPTY = 1 << 29,
	FINDING_BUDGET = 1 << 30,
};
/* An enumerator is an int, which ends here. */
#define FINDING_GATEWAY (UINT64_C(1) << 31)
#define FINDING_MASKED (UINT64_C(1) << 32)

struct finding_row {
	const char *code;
	const char *doc;
	uint64_t bit;
	bool blocks; /* the turn is not one to train on */
};

/*
 * Context: any, does not block.
 * Returns: all rows, in the order of the bits; *n is their number.
 */
const struct finding_row *finding_rows(size_t *n);
/* The bits of a set that keep the turn from being trained on. */
uint64_t finding_blocking(uint64_t set);

#endif
