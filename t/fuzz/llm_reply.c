/*
 * Any reply for any wishes: the result is valid, a subsequence of what came,
 * and what a tree says.  The same text is read as a refusal, too.  The first
 * two bytes say who asked for what.
 */
#include "../unit/llm_peer.h"
#include "llm_refusal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { HEAD = 2, BITS = 8 };

/* However it is worded, few attempts follow. */
static void
fuzz_refusal(struct llm_wants w, struct view text)
{
	unsigned ask = 0, next, steps = 0;

	err_assert(llm_refusal_next(500, text, &w, 0) == 0);
	while ((next = llm_refusal_next(400, text, &w, ask)) != ask) {
		err_assert(next < BITS && ++steps <= 3);
		ask = next;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct llm_wants w = { 0 };
	struct view text;

	if (n < HEAD)
		return 0;
	w.stream = (data[0] & 1) != 0;
	w.logprobs = (data[0] & 2) != 0;
	w.token_ids = (data[0] & 4) != 0;
	w.usage = (data[0] & 8) != 0;
	w.forced_logprobs = (data[0] & 16) != 0;
	w.forced_token_ids = (data[0] & 32) != 0;
	w.forced_usage = (data[0] & 64) != 0;
	w.top_logprobs = data[1] % 4;
	w.forced_top = 5;
	text = view_of(data + HEAD, n - HEAD);
	(void)peer_reply(&w, text, (data[0] & 128) != 0);
	fuzz_refusal(w, text);
	return 0;
}
