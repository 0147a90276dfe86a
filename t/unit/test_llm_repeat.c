/* Chunks told by comparison with the one before. */
#include "config.h"

#include "base/mem.h"
#include "repeat_peer.h"
#include "tap.h"

#define TOP "{\"token\":\"b\",\"logprob\":-1}"
#define CHUNK(delta, rest) \
	"{\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0," \
	"\"delta\":{" delta "}" rest "}],\"usage\":null}"
#define LP(t) \
	",\"logprobs\":{\"content\":[{\"token\":\"" t "\",\"logprob\":-0.5," \
	"\"top_logprobs\":[" TOP "," TOP "]}]}"
#define END ",\"finish_reason\":null"

static const struct llm_wants plain = { .stream = true,
	.forced_logprobs = true,
	.forced_token_ids = true,
	.forced_usage = true,
	.forced_top = 5 };
static const struct llm_wants asked = { .stream = true,
	.logprobs = true,
	.top_logprobs = 5,
	.forced_logprobs = true,
	.forced_top = 5 };
static const struct llm_wants fewer = { .stream = true,
	.logprobs = true,
	.top_logprobs = 1,
	.forced_logprobs = true,
	.forced_top = 5 };

/* The first is learned; what becomes of the second. */
static const struct {
	const char *what;
	const struct llm_wants *w;
	int told;
	const char *first, *second;
} pairs[] = {
	{ "text and log-probabilities", &plain, 1,
	    CHUNK("\"content\":\"a\"", LP("a") END),
	    CHUNK("\"content\":\" other \\\"one\\\"\"", LP("{[") END) },
	{ "of a client that asked for them", &asked, 1,
	    CHUNK("\"content\":\"a\"", LP("a") END),
	    CHUNK("\"content\":\"\"", LP("bb") END) },
	{ "of one that asked for fewer", &fewer, 0,
	    CHUNK("\"content\":\"a\"", LP("a") END),
	    CHUNK("\"content\":\"a\"", LP("a") END) },
	{ "text alone", &plain, 1, CHUNK("\"content\":\"a\"", END),
	    CHUNK("\"content\":\"b\"", END) },
	{ "reasoning beside it", &plain, 1,
	    CHUNK("\"content\":null,\"reasoning\":\"a\"", END),
	    CHUNK("\"content\":null,\"reasoning\":\"b\"", END) },
	{ "token ids", &plain, 1,
	    CHUNK("\"content\":\"a\"", LP("a") END ",\"token_ids\":[1]"),
	    CHUNK("\"content\":\"a\"", LP("a") END ",\"token_ids\":[22,3]") },
	{ "an end", &plain, 0, CHUNK("\"content\":\"a\"", END),
	    CHUNK("\"content\":\"a\"", ",\"finish_reason\":\"stop\"") },
	{ "another choice", &plain, 0, CHUNK("\"content\":\"a\"", END),
	    "{\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":1,"
	    "\"delta\":{\"content\":\"a\"}" END "}],\"usage\":null}" },
	{ "another member", &plain, 0, CHUNK("\"content\":\"a\"", END),
	    CHUNK("\"content\":\"a\",\"x\":1", END) },
	{ "a tool call", &plain, 0,
	    CHUNK("\"tool_calls\":[{\"index\":0}]", END),
	    CHUNK("\"tool_calls\":[{\"index\":0}]", END) },
	{ "something behind it", &plain, 0, CHUNK("\"content\":\"a\"", END),
	    CHUNK("\"content\":\"a\"", END) " " },
	{ "cut short", &plain, 0, CHUNK("\"content\":\"a\"", END),
	    "{\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,"
	    "\"delta\":{\"content\":\"a" },
	{ "a list where text was", &plain, 0, CHUNK("\"content\":\"a\"", END),
	    CHUNK("\"content\":[]", END) },
	{ "null where an object was", &plain, 0,
	    CHUNK("\"content\":\"a\"", LP("a") END),
	    CHUNK("\"content\":\"a\"", ",\"logprobs\":null" END) },
	{ "entries where a list had none", &plain, 0,
	    CHUNK("\"content\":\"\"", ",\"logprobs\":{\"content\":[]}" END),
	    CHUNK("\"content\":\"a\"", LP("a") END) },
	{ "a list that has none again", &plain, 1,
	    CHUNK("\"content\":\"\"", ",\"logprobs\":{\"content\":[]}" END),
	    CHUNK("\"content\":\"a\"", ",\"logprobs\":{\"content\":[]}" END) },
	{ "no choice", &plain, 0, "{\"choices\":[],\"usage\":{\"a\":1}}",
	    "{\"choices\":[],\"usage\":{\"a\":2}}" },
	{ "an error", &plain, 0, "{\"error\":\"a\"}", "{\"error\":\"b\"}" },
};

static void
test_pairs(void)
{
	size_t i;

	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct llm_repeat *r = NULL;
		bool once = false;
		int first, second;

		first = repeat_peer_chunk(&r, pairs[i].w,
		    view_str(pairs[i].first), &once);
		second = repeat_peer_chunk(&r, pairs[i].w,
		    view_str(pairs[i].second), &once);
		tap_ok(first == 0 && second == pairs[i].told, "%s: %d, %d",
		    pairs[i].what, first, second);
		llm_repeat_free(r);
	}
}

/* Two choices in turn are never the one before: it is given up. */
static void
test_give_up(void)
{
	struct llm_repeat *r = NULL;
	unsigned i, told = 0;
	bool once = false;

	for (i = 0; i < 4 * LLM_REPEAT_MISSES; i++)
		told += repeat_peer_chunk(&r, &plain,
			    i % 2 ? VIEW("{\"choices\":[{\"index\":0,\"delta\":"
					 "{\"content\":\"a\"}}]}")
				  : VIEW("{\"choices\":[{\"index\":1,\"delta\":"
					 "{\"content\":\"a\"}}]}"),
			    &once) != 0;
	tap_ok(told == 0 && r != NULL && r->misses == LLM_REPEAT_MISSES &&
		!r->ready,
	    "what never repeats is not tried for ever");
	llm_repeat_free(r);
}

static void
test_no_memory(void)
{
	struct view v = VIEW(CHUNK("\"content\":\"a\"", LP("a") END));
	struct llm_repeat *r;
	unsigned long n;
	bool once = false;
	int told = 0;

	for (n = 1; n < 20 && told >= 0; n++) {
		r = NULL;
		mem_fail_after(n, 0);
		told = repeat_peer_chunk(&r, &asked, v, &once);
		if (told >= 0)
			told = repeat_peer_chunk(&r, &asked, v, &once);
		mem_fail_after(0, 0);
		llm_repeat_free(r);
	}
	tap_ok(told >= 0,
	    "without memory nothing is learned, and no harm done");
}

int
main(void)
{
	test_pairs();
	test_give_up();
	test_no_memory();
	return tap_done();
}
