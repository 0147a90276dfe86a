/*
 * Any body under any policy: the result is valid, set as the policy says, and
 * nothing else in it differs.  The first four bytes choose the policy.
 */
#include "../unit/llm_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { HEAD = 4 };

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct conf_sampling sampling[] = {
		{ VIEW("temperature"), VIEW("1.0") },
		{ VIEW("top_p"), VIEW("7") },
		{ VIEW("a"), VIEW("-1") },
	};
	struct conf_capture c = { .sampling = sampling };
	struct llm_request_params p = { .capture = &c };

	if (n < HEAD)
		return 0;
	c.level = data[0] % 3;
	c.token_ids = data[0] / 3 % 3;
	c.thinking = data[0] / 9 % 2;
	c.top_logprobs = data[1] % 21;
	c.sampling_n = data[1] / 21 % 4;
	c.max_tokens_cap = (data[2] & 1) != 0 ? data[2] : 0;
	p.ask = data[3] % 8;
	if ((data[3] & 8) != 0)
		p.model = (data[3] & 16) != 0 ? VIEW("openai/gpt-5")
					      : VIEW("\"m\x01\xff");
	if ((data[3] & 32) != 0)
		p.capture = NULL;
	(void)peer_request(&p, view_of(data + HEAD, n - HEAD));
	return 0;
}
