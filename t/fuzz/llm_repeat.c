/* Chunks, one a line, for any wishes: by comparison as by a look at all. */
#include "config.h"

#include "../unit/repeat_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { HEAD = 2 };

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct llm_wants w = { .stream = true };
	struct llm_repeat *r = NULL;
	struct view text, line;
	bool once = false;

	if (n < HEAD)
		return 0;
	w.logprobs = (data[0] & 2) != 0;
	w.token_ids = (data[0] & 4) != 0;
	w.usage = (data[0] & 8) != 0;
	w.forced_logprobs = (data[0] & 16) != 0;
	w.forced_token_ids = (data[0] & 32) != 0;
	w.forced_usage = (data[0] & 64) != 0;
	w.top_logprobs = data[1] % 8;
	w.forced_top = 5;
	text = view_of(data + HEAD, n - HEAD);
	while (view_split(&text, '\n', &line))
		err_assert(repeat_peer_chunk(&r, &w, line, &once) >= 0);
	llm_repeat_free(r);
	return 0;
}
