/* Edits of a model's reply on its way down: removals, to the byte. */
#include "base/mem.h"
#include "llm_peer.h"
#include "llm_reply.h"
#include "tap.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* Who asked for what. */
static const struct llm_wants nothing = { .stream = true };
static const struct llm_wants ours = { .stream = true,
	.forced_logprobs = true,
	.forced_token_ids = true,
	.forced_usage = true };
static const struct llm_wants probs = { .stream = true,
	.forced_logprobs = true };
static const struct llm_wants usage = { .stream = true, .forced_usage = true };
static const struct llm_wants client = { .stream = true,
	.logprobs = true,
	.token_ids = true,
	.usage = true,
	.top_logprobs = 20,
	.forced_logprobs = true,
	.forced_token_ids = true };
static const struct llm_wants two = { .stream = true,
	.logprobs = true,
	.top_logprobs = 2,
	.forced_logprobs = true,
	.forced_token_ids = true,
	.forced_usage = true };
static const struct llm_wants none_of_top = { .stream = true,
	.logprobs = true,
	.forced_logprobs = true };

enum { E = 1, U = 2, F = 4, L = 8, D = 16 }; /* struct llm_reply_facts */

struct reply_case {
	const char *what;
	const struct llm_wants *w;
	bool unary;
	unsigned facts;
	const char *in;
	const char *out; /* NULL: as it came */
};

#define ENTRY(t, top) \
	"{\"token\":\"" t "\",\"logprob\":-0.1,\"top_logprobs\":[" top "]}"
#define ALT(t) "{\"token\":\"" t "\",\"logprob\":-1}"

static const struct reply_case cases[] = {
	/* what was not asked for by us is never touched */
	{ "nothing forced", &nothing, false, U | F | L,
	    "{\"choices\":[{\"logprobs\":{\"content\":[{}]},\"token_ids\":[1],"
	    "\"finish_reason\":\"stop\"}],\"usage\":{}}",
	    NULL },
	{ "the client asked for all of it", &client, false, U | L,
	    "{\"choices\":[{\"logprobs\":{\"content\":[" ENTRY("a",
		ALT("b") "," ALT("c")) "]},\"token_ids\":[1]}],"
				       "\"usage\":{\"total_tokens\":1}}",
	    NULL },

	/* B: usage */
	{ "B3: null usage", &usage, false, U,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],"
	    "\"usage\":null}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}" },
	{ "B3: usage alone", &usage, false, D,
	    "{\"choices\":[],\"usage\":{\"total_tokens\":5}}",
	    "{\"choices\":[]}" },
	{ "B1: asked for", &client, false, 0,
	    "{\"choices\":[],\"usage\":{\"total_tokens\":5}}", NULL },
	{ "B2: choices null", &usage, false, D,
	    "{\"choices\":null,\"usage\":{\"total_tokens\":5}}",
	    "{\"choices\":null}" },
	{ "B2: no choices", &usage, false, D,
	    "{\"usage\":{\"total_tokens\":5}}", "{}" },
	{ "B3: null alone is not dropped", &usage, false, 0,
	    "{\"choices\":[],\"usage\":null}", "{\"choices\":[]}" },
	{ "usage beside a choice", &usage, false, U | F,
	    "{\"usage\":{\"total_tokens\":5},\"choices\":[{\"finish_reason\":"
	    "\"length\"}]}",
	    "{\"choices\":[{\"finish_reason\":\"length\"}]}" },
	{ "usage beside an error", &usage, false, U | E,
	    "{\"usage\":{},\"error\":{\"message\":\"m\"}}",
	    "{\"error\":{\"message\":\"m\"}}" },
	{ "usage within a choice is not ours", &usage, false, U,
	    "{\"choices\":[{\"usage\":{\"a\":1}}],\"x\":{\"usage\":{}}}",
	    NULL },
	{ "unary: usage is always there", &ours, true, U | F,
	    "{\"choices\":[{\"message\":{},\"finish_reason\":\"stop\"}],"
	    "\"usage\":{\"total_tokens\":5}}",
	    NULL },
	{ "unary: usage alone is no answer", &ours, true, 0,
	    "{\"choices\":[],\"usage\":{\"total_tokens\":5}}", NULL },
	{ "B5: filters first", &ours, false, 0,
	    "{\"id\":\"\",\"model\":\"\",\"choices\":[],"
	    "\"prompt_filter_results\":[{\"prompt_index\":0}]}",
	    NULL },
	{ "B5: a choice without a delta", &ours, false, U,
	    "{\"id\":\"\",\"choices\":[{\"index\":0,\"finish_reason\":null,"
	    "\"content_filter_offsets\":{\"check_offset\":4}}]}",
	    NULL },
	{ "B7: finish and payload together", &ours, false, U | F,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"z\"},"
	    "\"finish_reason\":\"length\"}]}",
	    NULL },
	{ "B9: empty role", &ours, false, U,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"\"}}]}", NULL },

	/* C, D: everything else stays at any depth */
	{ "C11: null for every field", &ours, false, U,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":null,\"content\":"
	    "null,\"reasoning_content\":\"r\",\"tool_calls\":null},"
	    "\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}],"
	    "\"usage\":null}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":null,\"content\":"
	    "null,\"reasoning_content\":\"r\",\"tool_calls\":null},"
	    "\"finish_reason\":null,\"matched_stop\":null}]}" },
	{ "C8: arguments as an object, with our names", &ours, false, U,
	    "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{"
	    "\"arguments\":{\"logprobs\":1,\"token_ids\":[1],\"usage\":{}}}}]}"
	    "}]}",
	    NULL },
	{ "D2: opaque fields", &ours, false, U,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":"
	    "0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"},"
	    "\"extra_content\":{\"google\":{\"thought_signature\":\"AAECAw==\"}"
	    "}}],\"reasoning_details\":[{\"type\":\"reasoning.encrypted\","
	    "\"data\":\"zz\",\"index\":1}]},\"logprobs\":{\"content\":[]}}],"
	    "\"provider\":\"p\"}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":"
	    "0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"},"
	    "\"extra_content\":{\"google\":{\"thought_signature\":\"AAECAw==\"}"
	    "}}],\"reasoning_details\":[{\"type\":\"reasoning.encrypted\","
	    "\"data\":\"zz\",\"index\":1}]}}],\"provider\":\"p\"}" },
	{ "names in other places", &ours, false, U,
	    "{\"logprobs\":1,\"x\":{\"choices\":[{\"logprobs\":{}}]},"
	    "\"choices\":[{\"x\":{\"logprobs\":{},\"token_ids\":[]},\"delta\":"
	    "{\"logprobs\":1,\"usage\":1,\"x\":{\"token_ids\":[]}}}]}",
	    NULL },
	{ "look-alikes", &ours, false, U,
	    "{\"Usage\":{},\"choices\":[{\"logprob\":1,\"logprobs \":2,"
	    "\"token_id\":3,\"Token_ids\":[]}]}",
	    NULL },

	/* E: log-probabilities and ids */
	{ "E1: on a chunk without content", &ours, false, U | L,
	    "{\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":{\"content\":"
	    "[{\"token\":\"<tool_call>\",\"logprob\":-0.01}]},\"token_ids\":["
	    "151657]}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{}}]}" },
	{ "E3: prompt ids at the top", &ours, false, U,
	    "{\"prompt_token_ids\":[1,2,3],\"choices\":[{\"index\":0,\"delta\":"
	    "{\"role\":\"assistant\",\"content\":\"\"},\"token_ids\":null}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
	    "\"content\":\"\"}}]}" },
	{ "E3: in the choice and the entry", &ours, false, U | L,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},"
	    "\"logprobs\":{\"content\":[{\"token\":\"hi\",\"id\":77,"
	    "\"logprob\":"
	    "-0.2}]},\"token_ids\":[77]}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}" },
	{ "E3: output_ids, gen_tokens", &ours, false, U,
	    "{\"choices\":[{\"output_ids\":[1],\"delta\":{\"gen_tokens\":[2],"
	    "\"content\":\"x\"}},{\"delta\":{\"content\":\"y\",\"token_ids\":[]"
	    "}}]}",
	    "{\"choices\":[{\"delta\":{\"content\":\"x\"}},{\"delta\":{"
	    "\"content\":\"y\"}}]}" },
	{ "E3: in a unary message", &ours, true, U,
	    "{\"choices\":[{\"message\":{\"token_ids\":[1],\"content\":\"x\"},"
	    "\"prompt_token_ids\":[1]}],\"prompt_token_ids\":null}",
	    "{\"choices\":[{\"message\":{\"content\":\"x\"}}]}" },
	{ "E3: ids not asked for by us stay", &probs, false, U,
	    "{\"choices\":[{\"token_ids\":[1],\"delta\":{\"gen_tokens\":[]}}],"
	    "\"prompt_token_ids\":[1]}",
	    NULL },
	{ "E4", &ours, false, U | L,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},"
	    "\"logprobs\":{\"content\":[{\"token\":\"token_id:40\",\"bytes\":["
	    "72,105],\"logprob\":-0.1,\"top_logprobs\":[{\"token\":"
	    "\"token_id:40\",\"logprob\":-0.1},{\"token\":\"token_id:99\","
	    "\"logprob\":-3}]}]}}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}" },
	{ "E7: not finite", &ours, false, U | L,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},"
	    "\"logprobs\":{\"content\":[{\"token\":\"x\",\"logprob\":-0.1,"
	    "\"top_logprobs\":[{\"token\":\"y\",\"logprob\":-9999.0},{"
	    "\"token\":\"z\",\"logprob\":-Infinity},{\"token\":\"w\","
	    "\"logprob\":NaN},{\"token\":\"v\",\"logprob\":null}]}]}}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}" },
	{ "E7: kept for who asked", &two, false, U | L,
	    "{\"choices\":[{\"logprobs\":{\"content\":[{\"logprob\":NaN,"
	    "\"top_logprobs\":[Infinity,-Infinity , NaN ]}]}}]}",
	    "{\"choices\":[{\"logprobs\":{\"content\":[{\"logprob\":NaN,"
	    "\"top_logprobs\":[Infinity,-Infinity]}]}}]}" },
	{ "E7: elsewhere it passes", &ours, false, U,
	    "{\"x\":NaN,\"choices\":[{}]}", NULL },
	{ "E9: trimmed to its number", &two, false, U | L,
	    "{\"choices\":[{\"logprobs\":{\"content\":[" ENTRY("cat",
		ALT("dog") "," ALT("cow") "," ALT("cat")) "," ENTRY("a",
		ALT("b")) "," ENTRY("c", "") "]}}]}",
	    "{\"choices\":[{\"logprobs\":{\"content\":[" ENTRY("cat",
		ALT("dog") "," ALT("cow")) "," ENTRY("a",
		ALT("b")) "," ENTRY("c", "") "]}}]}" },
	{ "E9: none asked for", &none_of_top, false, U | L,
	    "{\"choices\":[{\"logprobs\":{\"content\":[" ENTRY("a",
		" " ALT("b") " , " ALT("c") " ") "],\"refusal\":[" ENTRY("d",
		ALT("e")) "],\"top_logprobs\":[1,2,3]}}]}",
	    "{\"choices\":[{\"logprobs\":{\"content\":[" ENTRY("a",
		"") "],\"refusal\":[" ENTRY("d",
		"") "],\"top_logprobs\":[1,2,3]}}]}" },
	{ "E9: odd shapes", &none_of_top, false, U | L,
	    "{\"choices\":[{\"logprobs\":{\"content\":[1,[{\"top_logprobs\":["
	    "1]}],{\"top_logprobs\":{\"a\":[1]}},null]}},{\"logprobs\":[{"
	    "\"top_logprobs\":[1]}]}]}",
	    NULL },
	{ "E15", &ours, false, U | L,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},"
	    "\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.1}]},"
	    "\"token_ids\":[3],\"finish_reason\":null}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},"
	    "\"finish_reason\":null}]}" },
	{ "E15: the client's own, the rest ours", &two, false, U | L,
	    "{\"choices\":[{\"logprobs\":{\"content\":[" ENTRY("a",
		"1,2,3") "]},\"token_ids\":[3]}],\"usage\":{}}",
	    "{\"choices\":[{\"logprobs\":{\"content\":[" ENTRY("a",
		"1,2") "]}}]}" },
	{ "E12: there, but empty", &probs, false, U,
	    "{\"choices\":[{\"logprobs\":{\"content\":[ \n],\"refusal\":null}},"
	    "{\"logprobs\":{}},{\"logprobs\":{\"content\":null}}]}",
	    "{\"choices\":[{},{},{}]}" },
	{ "completions' old form counts", &probs, true, U | L,
	    "{\"choices\":[{\"text\":\"a\",\"logprobs\":{\"tokens\":[\"a\"],"
	    "\"token_logprobs\":[-1]}}]}",
	    "{\"choices\":[{\"text\":\"a\"}]}" },
	{ "n > 1", &ours, false, U | F | L,
	    "{\"choices\":[{\"index\":0,\"logprobs\":null},{\"logprobs\":{"
	    "\"content\":[1]},\"index\":1,\"finish_reason\":\"stop\"}]}",
	    "{\"choices\":[{\"index\":0},{\"index\":1,\"finish_reason\":"
	    "\"stop\"}]}" },

	/* K4: names and places */
	{ "K4: escaped", &ours, false, U,
	    "{\"choices\":[{\"logpro\\u0062s\":{\"content\":[]},\"index\":0,"
	    "\"delta\":{\"content\":\"a\"}}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}" },
	{ "K4: last", &ours, false, U,
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},"
	    "\"logprobs\":null}]}",
	    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}" },
	{ "K4: alone", &ours, false, U,
	    "{\"choices\":[{\"logprobs\":{\"content\":[]}}]}",
	    "{\"choices\":[{}]}" },
	{ "K4: duplicates, all of it", &ours, false, U,
	    "{\"usage\":null,\"choices\":[{\"logprobs\":1,\"token_ids\":2,"
	    "\"logprobs\":3}],\"us\\u0061ge\":null,\"prompt_token_ids\":[]}",
	    "{\"choices\":[{}]}" },
	{ "K4: duplicates of choices, too", &ours, false, U,
	    "{\"choices\":[{\"logprobs\":1}],\"ch\\u006fices\":[{\"logprobs\":"
	    "1}]}",
	    "{\"choices\":[{}],\"ch\\u006fices\":[{}]}" },
	{ "K4: spaces everywhere", &ours, false, U,
	    " { \"choices\" : [ { \"a\" : 1 , \"logprobs\" : null , \"b\" : 2 ,"
	    " \"token_ids\" : [ ] } ] , \"usage\" : null }\r\n",
	    " { \"choices\" : [ { \"a\" : 1 , \"b\" : 2 } ] }\r\n" },
	{ "K4: a run in the middle", &ours, false, U,
	    "{\"choices\":[{\"a\":1,\"logprobs\":1,\"token_ids\":2,"
	    "\"logprobs\":"
	    "3,\"b\":2}]}",
	    "{\"choices\":[{\"a\":1,\"b\":2}]}" },
	{ "J5, K1: bytes stay", &ours, false, U,
	    "{\"choices\":[{\"delta\":{\"content\":\"a\\u0000b \\\\u0000 "
	    "\\ud83d \xff\"},\"logprobs\":null}]}",
	    "{\"choices\":[{\"delta\":{\"content\":\"a\\u0000b \\\\u0000 "
	    "\\ud83d \xff\"}}]}" },

	/* facts */
	{ "error", &ours, false, E | U, "{\"error\":{\"message\":\"m\"}}",
	    NULL },
	{ "error as a text", &ours, false, E | U, "{\"error\":\"m\"}", NULL },
	{ "error null", &ours, false, 0, "{\"error\":null}", NULL },
	{ "error, unwrapped", &ours, true, E | U,
	    "{\"object\":\"error\",\"message\":\"m\",\"code\":400}", NULL },
	{ "object is no error", &ours, false, U,
	    "{\"object\":\"chat.completion.chunk\",\"choices\":[{}]}", NULL },
	{ "error beside a choice", &ours, false, E | U | F,
	    "{\"error\":{},\"choices\":[{\"finish_reason\":\"error\"}]}",
	    NULL },
	{ "empty object", &ours, false, 0, "{}", NULL },
	{ "choices of other kinds", &ours, false, 0,
	    "{\"choices\":[null,1,[{}]]}", NULL },
	{ "choices as an object", &ours, false, 0,
	    "{\"choices\":{\"logprobs\":{}}}", NULL },
	{ "finish_reason null", &ours, false, U,
	    "{\"choices\":[{\"finish_reason\":null}]}", NULL },
	{ "delta null", &ours, false, U, "{\"choices\":[{\"delta\":null}]}",
	    NULL },
	{ "delta as a list", &ours, false, U,
	    "{\"choices\":[{\"delta\":[{\"token_ids\":[]}]}]}", NULL },
};

static unsigned
bits(const struct llm_reply_facts *f)
{
	return (f->error ? E : 0u) | (f->useful ? U : 0u) |
	    (f->finish ? F : 0u) | (f->logprobs ? L : 0u) | (f->drop ? D : 0u);
}

static void
test_cases(void)
{
	struct llm_reply_facts facts;
	struct jsplice edits;
	size_t i;

	jsplice_init(&edits, 1000);
	for (i = 0; i < N(cases); i++) {
		const struct reply_case *c = &cases[i];
		const char *want = c->out != NULL ? c->out : c->in;
		struct buf out = BUF_INIT(4096);

		memset(&facts, 0xff, sizeof(facts));
		jsplice_reset(&edits);
		err_assert(llm_reply_edit(c->w, view_str(c->in), !c->unary,
			       &edits, &facts) == 0);
		err_assert(jsplice_apply(&edits, view_str(c->in), &out) == 0);
		tap_is_mem(buf_view(&out).p, buf_len(&out), want, strlen(want),
		    c->what);
		tap_is_int(bits(&facts), c->facts, "what it is");
		tap_ok(c->out != NULL || edits.n == 0, "no edit for nothing");
		err_assert(peer_reply(c->w, view_str(c->in), !c->unary) == 0);
		buf_clear(&out);
	}
	jsplice_clear(&edits);
}

static void
test_bad(void)
{
	static const char *const v[] = { "", " ", "[DONE]", "[]", "null",
		"\"a\"", "1", "{", "{\"choices\":[{\"logprobs\":null}", "{}}",
		"{} {}", "{\"choices\":[{\"logprobs\":{\"content\":[}]}",
		"{\"choices\":[{},]}", "{\"a\":nan}", "{\"a\":+Infinity}",
		"{\"usage\":null,}", "{\"a\":\"\x01\"}", "{\"a\":01}" };
	struct llm_reply_facts facts;
	struct jsplice edits;
	size_t i;

	jsplice_init(&edits, 1000);
	for (i = 0; i < N(v); i++) {
		jsplice_reset(&edits);
		tap_is_int(llm_reply_edit(&ours, view_str(v[i]), true, &edits,
			       &facts),
		    SP_E_SYNTAX, "no object");
		err_assert(
		    peer_reply(&two, view_str(v[i]), true) == SP_E_SYNTAX);
	}
	tap_is_int(llm_reply_edit(&ours, VIEW_NONE, true, &edits, &facts),
	    SP_E_SYNTAX, "nothing at all");
	jsplice_clear(&edits);
}

/*
 * Malformed events: what was not asked for is cut out wherever it can be told
 * where it ends; where not, the event is as one that is no JSON at all.  A
 * reply of one piece is refused.
 */
static void
test_malformed(void)
{
	static const struct {
		const char *in, *out; /* NULL: SP_E_SYNTAX */
	} v[] = {
		{ "{\"choices\":[{\"logprobs\":{\"content\":[{01,}]},\"a\":1}]"
		  "}",
		    "{\"choices\":[{\"a\":1}]}" },
		{ "{\"choices\":[{\"logprobs\":{\"content\":[[}],1]},\"a\":1}]"
		  "}",
		    NULL },
		{ "{\"choices\":[{\"logprobs\":{\"a\":],\"content\":[7]}]}",
		    NULL },
		{ "{\"choices\":[{\"logprobs\":{\"a\":[7},\"content\":[7]}]}]}",
		    NULL },
		{ "{\"choices\":[{\"logprobs\":[{\"a\":1]},\"content\":[7]}]}",
		    NULL },
		{ "{\"choices\":[{\"logprobs\":{\"content\":[\"\\\"]}}]}",
		    NULL },
		{ "{\"choices\":[{\"logprobs\":{\"content\":[\"]}\\\\\",nul]}}]"
		  "}",
		    "{\"choices\":[{}]}" },
		{ "{\"choices\":[{\"logprobs\":{\"content\":[\"\x01\xff\"]}}]}",
		    "{\"choices\":[{}]}" },
		{ "{\"choices\":[{\"logprobs\":{\"content\":[NaN]},\"a\":01}]}",
		    NULL },
		{ "{\"choices\":[{\"delta\":{\"a\":x},\"token_ids\":[--]}]}",
		    NULL },
		{ "{\"choices\":[{\"delta\":{\"a\":[x]},\"token_ids\":[--]}]}",
		    "{\"choices\":[{\"delta\":{\"a\":[x]}}]}" },
		{ "{\"choices\":[{\"logprobs\":{\"logprobs\":{,}}}]}",
		    "{\"choices\":[{}]}" },
		{ "{\"choices\":[{\"logprobs\":{\"x\":{,}}}]}",
		    "{\"choices\":[{}]}" },
	};
	struct jsplice edits;
	struct buf out = BUF_INIT(4096);
	size_t i;

	jsplice_init(&edits, 1000);
	for (i = 0; i < N(v); i++) {
		struct llm_reply_facts facts;
		struct view in = view_str(v[i].in);
		int rc;

		jsplice_reset(&edits);
		rc = llm_reply_edit(&ours, in, true, &edits, &facts);
		tap_is_int(rc, v[i].out == NULL ? SP_E_SYNTAX : 0, v[i].in);
		buf_truncate(&out, 0);
		if (rc == 0) {
			err_assert(jsplice_apply(&edits, in, &out) == 0);
			tap_is_mem(buf_view(&out).p, buf_len(&out), v[i].out,
			    strlen(v[i].out), "what is left");
		}
		(void)peer_reply(&ours, in, true);
		(void)peer_reply(&two, in, true);
		tap_is_int(peer_reply(&ours, in, false), SP_E_SYNTAX,
		    "refused in one piece");
	}
	buf_clear(&out);
	jsplice_clear(&edits);
}

static void
repeat(struct buf *b, const char *s, size_t n)
{
	while (n-- > 0)
		err_assert(buf_add_str(b, s) == 0);
}

static void
test_limits(void)
{
	struct buf b = BUF_INIT(1 << 22);
	struct llm_reply_facts facts;
	struct jsplice edits;

	jsplice_init(&edits, 100);
	repeat(&b, "{\"a\":", 100000);
	tap_is_int(llm_reply_edit(&ours, buf_view(&b), true, &edits, &facts),
	    SP_E_LIMIT, "depth bomb");
	buf_reset(&b, 0);
	repeat(&b, "{\"choices\":[{}", 1);
	repeat(&b, ",{\"logprobs\":null}", 101);
	repeat(&b, "]}", 1);
	tap_is_int(llm_reply_edit(&ours, buf_view(&b), true, &edits, &facts),
	    SP_E_LIMIT, "more edits than allowed");
	jsplice_clear(&edits);
	err_assert(peer_reply(&ours, buf_view(&b), true) == 0);
	buf_reset(&b, 0);
	repeat(&b, "{\"choices\":[{\"logprobs\":{\"content\":[1", 1);
	repeat(&b, "," ENTRY("a", "1,2,3"), 30000);
	repeat(&b, "]}}]}", 1);
	err_assert(peer_reply(&two, buf_view(&b), false) == 0);
	tap_ok(true, "a long unary reply");
	buf_clear(&b);
}

static void
test_no_memory(void)
{
	const struct view text =
	    VIEW("{\"choices\":[{\"logprobs\":null,\"a\":1}],\"usage\":null}");
	struct llm_reply_facts facts;
	struct jsplice edits;
	unsigned long n;
	int rc = SP_E_NOMEM;

	for (n = 1; rc == SP_E_NOMEM && n < 10; n++) {
		jsplice_init(&edits, 100);
		mem_fail_after(n, 0);
		rc = llm_reply_edit(&ours, text, true, &edits, &facts);
		mem_fail_after(0, 0);
		jsplice_clear(&edits);
	}
	tap_ok(rc == 0 && n > 2, "each allocation failed");
}

/* ---- any reply ----------------------------------------------------------- */

static uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);

static unsigned
any(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed >> 33) % n;
}

static void
any_of(struct buf *b, const char *const *v, size_t n)
{
	err_assert(buf_add_str(b, v[any((unsigned)n)]) == 0);
}

static void
any_space(struct buf *b)
{
	static const char *const v[] = { "", "", "", " ", "\n ", "\t" };

	any_of(b, v, N(v));
}

/* Likely to be the shape of a reply, but not bound to it. */
static void
any_value(struct buf *b, unsigned depth)
{
	static const char *const scalars[] = { "null", "true", "0", "-0.5",
		"1e3", "\"\"", "\"error\"", "\"a\\u00e9\\ud83d\"", "[]", "{}",
		"[1,2,3]" };
	static const char *const keys[] = { "choices", "choices", "logprobs",
		"logprobs", "content", "top_logprobs", "top_logprobs",
		"token_ids", "prompt_token_ids", "output_ids", "gen_tokens",
		"delta", "delta", "message", "usage", "error", "object",
		"finish_reason", "a", "logpro\\u0062s", "us\\u0061ge" };
	static const unsigned likely[] = { 0, 1, 0, 1, 0, 1, 0, 1, 0 };
	bool list = likely[depth % N(likely)] != 0;
	unsigned n = any(6), i;

	if (any(8) == 0)
		list = !list;
	if (depth > 8 || (depth > 0 && any(3) == 0)) {
		any_of(b, scalars, N(scalars));
		return;
	}
	err_assert(buf_add_char(b, list ? '[' : '{') == 0);
	for (i = 0; i < n; i++) {
		if (i > 0)
			err_assert(buf_add_char(b, ',') == 0);
		any_space(b);
		if (!list) {
			err_assert(buf_add_char(b, '"') == 0);
			any_of(b, keys, N(keys));
			err_assert(buf_add_str(b, "\":") == 0);
			any_space(b);
		}
		any_value(b, depth + 1);
		any_space(b);
	}
	err_assert(buf_add_char(b, list ? ']' : '}') == 0);
}

static void
test_any(void)
{
	static const struct llm_wants *const w[] = { &nothing, &ours, &probs,
		&usage, &client, &two, &none_of_top };
	unsigned i, taken = 0;

	for (i = 0; i < 20000; i++) {
		struct buf b = BUF_INIT(1 << 22);

		any_value(&b, 0);
		taken +=
		    peer_reply(w[any(N(w))], buf_view(&b), any(2) == 0) == 0;
		buf_clear(&b);
	}
	tap_ok(taken > i / 2, "%u replies: the tree agrees", taken);
}

int
main(void)
{
	test_cases();
	test_bad();
	test_malformed();
	test_limits();
	test_no_memory();
	test_any();
	return tap_done();
}
