/* Edits of a model call on its way up, to the byte. */
#include "base/mem.h"
#include "llm_peer.h"
#include "llm_request.h"
#include "tap.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* The policies that the tables name. */
static struct conf_sampling warm[] = {
	{ { "temperature", 11 }, { "1.0", 3 } },
	{ { "top_k", 5 }, { "-1", 2 } },
	{ { "n_probs", 7 }, { "7", 1 } },
	{ { "api_key", 7 }, { "1", 1 } },
};
static const struct conf_capture text = { .level = CONF_LEVEL_TEXT };
static const struct conf_capture logprobs = { .level = CONF_LEVEL_LOGPROBS,
	.top_logprobs = 5 };
static const struct conf_capture tokens = { .level = CONF_LEVEL_TOKENS,
	.top_logprobs = 5 };
static const struct conf_capture no_ids = { .level = CONF_LEVEL_TOKENS,
	.token_ids = CONF_TOKEN_IDS_OFF };
static const struct conf_capture insist = { .level = CONF_LEVEL_TOKENS,
	.token_ids = CONF_TOKEN_IDS_ON };
static const struct conf_capture capped = { .level = CONF_LEVEL_TEXT,
	.max_tokens_cap = 16384 };
static const struct conf_capture quiet = { .level = CONF_LEVEL_TEXT,
	.thinking = CONF_THINKING_OFF };
static const struct conf_capture sampled = { .level = CONF_LEVEL_TEXT,
	.sampling = warm,
	.sampling_n = 4 };
static const struct conf_capture all = { .level = CONF_LEVEL_TOKENS,
	.top_logprobs = 5,
	.max_tokens_cap = 100,
	.thinking = CONF_THINKING_OFF,
	.sampling = warm,
	.sampling_n = 2 };

struct request_case {
	const char *what;
	const struct conf_capture *capture;
	const char *model;
	unsigned ask;
	const char *in;
	const char *out; /* NULL: as it came */
};

#define LP "\"logprobs\":true,\"top_logprobs\":5"
#define IDS "\"return_token_ids\":true"
#define USAGE "\"stream_options\":{\"include_usage\":true}"
#define THINK "\"chat_template_kwargs\":{\"enable_thinking\":false}"

static const struct request_case cases[] = {
	/* nothing to do: nothing is touched */
	{ "not captured", NULL, NULL, 0,
	    " {\"logprobs\":false,\"stream\":true , \"max_tokens\":9999}\n",
	    NULL },
	{ "text", &text, NULL, 0,
	    "{\"logprobs\":true,\"top_logprobs\":2,\"messages\":[]}", NULL },
	{ "empty object, text", &text, NULL, 0, "{}", NULL },
	{ "F12: numbers and unknown fields", &text, NULL, 0,
	    "{\"seed\":9007199254740993,\"temperature\":1.0,\"x\":1e400,"
	    "\"y\":-0.0,\"z\":[12345678901234567890123],\"model\":\"m\","
	    "\"messages\":[]}",
	    NULL },
	{ "F12: the same around edits", &logprobs, NULL, 0,
	    "{\"seed\":9007199254740993,\"x\":1e400,\"logprobs\":null,"
	    "\"y\":-0.0,\"z\":[12345678901234567890123]}",
	    "{\"seed\":9007199254740993,\"x\":1e400,\"logprobs\":true,"
	    "\"y\":-0.0,\"z\":[12345678901234567890123],\"top_logprobs\":5}" },
	{ "K1: a lone surrogate stays", &logprobs, NULL, 0,
	    "{\"messages\":[{\"content\":\"cut \\ud83d here\"}]," LP "}",
	    NULL },
	{ "J5: NUL and raw bytes stay", &logprobs, NULL, 0,
	    "{\"a\":\"\\u0000\\\\u0000\xff\xfe\"," LP "}", NULL },

	/* log-probabilities */
	{ "empty object", &logprobs, NULL, 0, "{}", "{" LP "}" },
	{ "empty object, spaces", &logprobs, NULL, 0, " { } ", " {" LP " } " },
	{ "F5: false and null", &logprobs, NULL, 0,
	    "{\"model\":\"m\",\"logprobs\":false,\"top_logprobs\":null,"
	    "\"messages\":[]}",
	    "{\"model\":\"m\",\"logprobs\":true,\"top_logprobs\":5,"
	    "\"messages\":[]}" },
	{ "F5: the larger one", &logprobs, NULL, 0,
	    "{\"logprobs\":false,\"top_logprobs\":8}",
	    "{\"logprobs\":true,\"top_logprobs\":8}" },
	{ "F5: the smaller one", &logprobs, NULL, 0,
	    "{\"logprobs\":true,\"top_logprobs\":2}",
	    "{\"logprobs\":true,\"top_logprobs\":5}" },
	{ "F5: values of wrong types", &logprobs, NULL, 0,
	    "{\"logprobs\":{\"a\":[1]},\"top_logprobs\":\"9\"}", "{" LP "}" },
	{ "F5: minus, fraction", &logprobs, NULL, 0,
	    "{\"logprobs\":1,\"top_logprobs\":-9}", "{" LP "}" },
	{ "F5: fraction", &logprobs, NULL, 0,
	    "{\"logprobs\":1,\"top_logprobs\":9.0}", "{" LP "}" },
	{ "an idle number is kept in bounds", &logprobs, NULL, 0,
	    "{\"top_logprobs\":99999999999999999999999}",
	    "{\"top_logprobs\":20,\"logprobs\":true}" },
	{ "the client's own large number", &logprobs, NULL, 0,
	    "{\"top_logprobs\":50,\"logprobs\":true}",
	    "{\"top_logprobs\":50,\"logprobs\":true}" },
	{ "behind a kept member", &logprobs, NULL, 0,
	    "{ \"a\" : 1 , \"logprobs\" : false }",
	    "{ \"a\" : 1 , \"logprobs\" : true,\"top_logprobs\":5 }" },
	{ "F11: duplicates and escapes", &logprobs, NULL, 0,
	    "{\"model\":\"a\",\"mod\\u0065l\":\"b\",\"logprobs\":false,"
	    "\"logprobs\":true,\"messages\":[]}",
	    "{\"model\":\"a\",\"mod\\u0065l\":\"b\",\"logprobs\":true,"
	    "\"messages\":[],\"top_logprobs\":5}" },
	{ "F11: with an override", &logprobs, "c", 0,
	    "{\"model\":\"a\",\"mod\\u0065l\":\"b\",\"logprobs\":false,"
	    "\"logprobs\":true,\"messages\":[]}",
	    "{\"mod\\u0065l\":\"c\",\"logprobs\":true,"
	    "\"messages\":[],\"top_logprobs\":5}" },
	{ "F11: of every kind at once", &tokens, NULL, 0,
	    "{\"logprobs\":1,\"top_logprobs\":1,\"return_token_ids\":0,\"a\":1,"
	    "\"l\\u006fgprobs\":2,\"top_l\\u006fgprobs\":2,"
	    "\"return_token_\\u0069ds\":2}",
	    "{\"a\":1,\"l\\u006fgprobs\":true,\"top_l\\u006fgprobs\":5,"
	    "\"return_token_\\u0069ds\":true}" },
	{ "F11: duplicates with spaces", &logprobs, NULL, 0,
	    "{ \"logprobs\" : 1 , \"logprobs\" : 2 ,\n\"logprobs\" : 3 }",
	    "{ \"logprobs\" : true,\"top_logprobs\":5 }" },
	{ "look-alikes", &all, NULL, 0,
	    "{\"Logprobs\":1,\"logprobs \":1,\"logprob\":1,\"logprobss\":1,"
	    "\"x\":{\"logprobs\":false,\"api_key\":\"k\",\"max_tokens\":999},"
	    "\"y\":[{\"stream_options\":1}],\"stream\":\"true\"}",
	    "{\"Logprobs\":1,\"logprobs \":1,\"logprob\":1,\"logprobss\":1,"
	    "\"x\":{\"logprobs\":false,\"api_key\":\"k\",\"max_tokens\":999},"
	    "\"y\":[{\"stream_options\":1}],\"stream\":\"true\"," LP "," IDS
	    "," THINK ",\"temperature\":1.0,\"top_k\":-1}" },

	/* token ids, and what was refused */
	{ "tokens", &tokens, NULL, 0, "{}", "{" LP "," IDS "}" },
	{ "token_ids off", &no_ids, NULL, 0, "{}",
	    "{\"logprobs\":true,\"top_logprobs\":0}" },
	{ "ids refused", &tokens, NULL, LLM_ASK_NO_TOKEN_IDS,
	    "{\"return_token_ids\":false}",
	    "{\"return_token_ids\":false," LP "}" },
	{ "ids refused, but insisted on", &insist, NULL, LLM_ASK_NO_TOKEN_IDS,
	    "{}", "{\"logprobs\":true,\"top_logprobs\":0," IDS "}" },
	{ "logprobs refused", &tokens, NULL, LLM_ASK_NO_LOGPROBS,
	    "{\"logprobs\":true,\"top_logprobs\":2}",
	    "{\"logprobs\":true,\"top_logprobs\":2," IDS "}" },
	{ "both refused", &tokens, NULL,
	    LLM_ASK_NO_LOGPROBS | LLM_ASK_NO_TOKEN_IDS,
	    "{\"logprobs\":false,\"x\":1}", NULL },
	{ "F2: n_probs", &logprobs, NULL, LLM_ASK_N_PROBS,
	    "{\"logprobs\":true,\"tools\":[],\"top_logprobs\":7,"
	    "\"stream\":false}",
	    "{\"tools\":[],\"stream\":false,\"n_probs\":7}" },
	{ "F2: the client's own n_probs", &logprobs, NULL, LLM_ASK_N_PROBS,
	    "{\"n_probs\":2}", "{\"n_probs\":5}" },
	{ "F2: more than that", &logprobs, NULL, LLM_ASK_N_PROBS,
	    "{\"n_probs\":2,\"n_probs\":9}", "{\"n_probs\":9}" },

	/* usage */
	{ "B3: usage on streams", &text, NULL, 0,
	    "{\"model\":\"m\",\"stream\":true,\"messages\":[]}",
	    "{\"model\":\"m\",\"stream\":true,\"messages\":[]," USAGE "}" },
	{ "usage, not a stream", &text, NULL, 0,
	    "{\"stream\":false,\"stream_options\":{}}", NULL },
	{ "stream: the last counts", &text, NULL, 0,
	    "{\"stream\":true,\"stream\":false}", NULL },
	{ "usage asked for", &text, NULL, 0,
	    "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
	    NULL },
	{ "usage asked for twice", &text, NULL, 0,
	    "{\"stream_options\":{\"include_usage\":false},\"stream\":true,"
	    "\"stream_options\":{\"include_usage\":true}}",
	    "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}" },
	{ "usage false", &text, NULL, 0,
	    "{\"stream\":true,\"stream_options\":{\"include_usage\":false,"
	    "\"x\":1}}",
	    "{\"stream\":true,\"stream_options\":{\"x\":1,"
	    "\"include_usage\":true}}" },
	{ "stream_options empty", &text, NULL, 0,
	    "{\"stream\":true,\"stream_options\":{ }}",
	    "{\"stream\":true,\"stream_options\":{\"include_usage\":true }}" },
	{ "stream_options null", &text, NULL, 0,
	    "{\"stream\":true,\"stream_options\":null}",
	    "{\"stream\":true," USAGE "}" },
	{ "stream_options of a wrong type", &text, NULL, 0,
	    "{\"stream\":true,\"stream_options\":[1]}", NULL },
	{ "duplicates inside", &text, NULL, 0,
	    "{\"stream_options\":{\"include_usage\":true,\"a\":[],"
	    "\"include\\u005fusage\":0 },\"stream\":true}",
	    "{\"stream_options\":{\"a\":[],\"include_usage\":true },"
	    "\"stream\":true}" },
	{ "duplicates of the object", &text, NULL, 0,
	    "{\"stream_options\":{\"b\":1},\"stream\":true,"
	    "\"stream_options\":{\"a\":1}}",
	    "{\"stream\":true,\"stream_options\":{\"a\":1,"
	    "\"include_usage\":true}}" },

	/* caps and the name of the cap */
	{ "F6: both", &capped, NULL, 0,
	    "{\"model\":\"m\",\"max_tokens\":32000,"
	    "\"max_completion_tokens\":65536,\"messages\":[]}",
	    "{\"model\":\"m\",\"max_tokens\":16384,"
	    "\"max_completion_tokens\":16384,\"messages\":[]}" },
	{ "F6: none is added", &capped, NULL, 0, "{\"model\":\"m\"}", NULL },
	{ "F6: at the cap", &capped, NULL, 0, "{\"max_tokens\":16384}", NULL },
	{ "F6: float", &capped, NULL, 0, "{\"max_tokens\":32000.0}", NULL },
	{ "F6: exponent", &capped, NULL, 0, "{\"max_tokens\":1e9}", NULL },
	{ "F6: string", &capped, NULL, 0, "{\"max_tokens\":\"32000\"}", NULL },
	{ "F6: minus", &capped, NULL, 0, "{\"max_tokens\":-32000}", NULL },
	{ "F6: 0", &capped, NULL, 0, "{\"max_tokens\":0}", NULL },
	{ "F6: null", &capped, NULL, 0, "{\"max_tokens\":null}", NULL },
	{ "F6: 64 bits", &capped, NULL, 0,
	    "{\"max_tokens\":18446744073709551615}", "{\"max_tokens\":16384}" },
	{ "F6: more than that", &capped, NULL, 0,
	    "{\"max_tokens\":18446744073709551616000}",
	    "{\"max_tokens\":16384}" },
	{ "F6, F11: behind a smaller one", &capped, NULL, 0,
	    "{\"max_tokens\":99999,\"a\":1,\"max_tokens\":10}",
	    "{\"a\":1,\"max_tokens\":10}" },
	{ "F6, F11: behind a float", &capped, NULL, 0,
	    "{\"max_tokens\":99999,\"max_t\\u006fkens\":1.5}",
	    "{\"max_t\\u006fkens\":1.5}" },
	{ "F7", &text, NULL, 0,
	    "{\"model\":\"gpt-5-mini\",\"max_tokens\":900,\"messages\":[]}",
	    "{\"model\":\"gpt-5-mini\",\"max_completion_tokens\":900,"
	    "\"messages\":[]}" },
	{ "F7: spaces, escapes", &text, NULL, 0,
	    "{\"model\":\"gpt\\u002d5\", \"max\\u005ftokens\" : 900 }",
	    "{\"model\":\"gpt\\u002d5\", \"max_completion_tokens\" : 900 }" },
	{ "F7: by the override", &text, "openai/o3", 0,
	    "{\"model\":\"m\",\"max_tokens\":900}",
	    "{\"model\":\"openai/o3\",\"max_completion_tokens\":900}" },
	{ "F7: away from it", &text, "m", 0,
	    "{\"model\":\"gpt-5\",\"max_tokens\":900}",
	    "{\"model\":\"m\",\"max_tokens\":900}" },
	{ "F7: not captured, by the override", NULL, "o1", 0,
	    "{\"max_tokens\":9,\"model\":1}",
	    "{\"max_completion_tokens\":9,\"model\":\"o1\"}" },
	{ "F7: not captured", NULL, NULL, 0,
	    "{\"max_tokens\":9,\"model\":\"o1\"}", NULL },
	{ "F7: both, the old one smaller", &text, NULL, 0,
	    "{\"model\":\"o1\",\"max_tokens\":900,"
	    "\"max_completion_tokens\":1000}",
	    "{\"model\":\"o1\",\"max_completion_tokens\":900}" },
	{ "F7: both, the new one smaller", &text, NULL, 0,
	    "{\"max_completion_tokens\":900,\"model\":\"o1\","
	    "\"max_tokens\":1000}",
	    "{\"max_completion_tokens\":900,\"model\":\"o1\"}" },
	{ "F7: both, the new one null", &text, NULL, 0,
	    "{\"max_completion_tokens\":null,\"model\":\"o1\","
	    "\"max_tokens\":1000}",
	    "{\"max_completion_tokens\":1000,\"model\":\"o1\"}" },
	{ "F7: both, the old one null", &text, NULL, 0,
	    "{\"max_completion_tokens\":7,\"model\":\"o1\","
	    "\"max_tokens\":null}",
	    "{\"max_completion_tokens\":7,\"model\":\"o1\"}" },
	{ "F7: both, the new one no number", &text, NULL, 0,
	    "{\"max_completion_tokens\":\"7\",\"model\":\"o1\","
	    "\"max_tokens\":6}",
	    "{\"max_completion_tokens\":\"7\",\"model\":\"o1\"}" },
	{ "F7: both, duplicates", &text, NULL, 0,
	    "{\"max_completion_tokens\":1,\"max_completion_tokens\":7,"
	    "\"model\":\"o1\",\"max_tokens\":8,\"max_tokens\":9}",
	    "{\"max_completion_tokens\":7,\"model\":\"o1\"}" },
	{ "F7: duplicates of the old one", &text, NULL, 0,
	    "{\"max_tokens\":8,\"model\":\"o1\",\"max_tokens\":9}",
	    "{\"model\":\"o1\",\"max_completion_tokens\":9}" },
	{ "F7, F6: capped", &capped, NULL, 0,
	    "{\"model\":\"o4-mini\",\"max_tokens\":99999}",
	    "{\"model\":\"o4-mini\",\"max_completion_tokens\":16384}" },
	{ "F7, F6: both over", &capped, NULL, 0,
	    "{\"model\":\"o4-mini\",\"max_tokens\":99999,"
	    "\"max_completion_tokens\":999999}",
	    "{\"model\":\"o4-mini\",\"max_completion_tokens\":16384}" },
	{ "F7, F6: one over, the other null", &capped, NULL, 0,
	    "{\"model\":\"o4-mini\",\"max_tokens\":99999,"
	    "\"max_completion_tokens\":null}",
	    "{\"model\":\"o4-mini\",\"max_completion_tokens\":16384}" },

	/* the model, sampling, thinking, credentials */
	{ "F9: override", &text, "Qwen \"3\"/x\x01", 0,
	    "{\"model\":\"Qwen3.5-4B\",\"max_tokens\":32}",
	    "{\"model\":\"Qwen \\\"3\\\"/x\\u0001\",\"max_tokens\":32}" },
	{ "F9: no model, a long override, a short body", &text,
	    "a/123456789012345678901234567890123456789012345678901234567890"
	    "123456789012345678901234567890123456789012345678901234567890",
	    0, "{}",
	    "{\"model\":\"a/1234567890123456789012345678901234567890123456789"
	    "01234567890123456789012345678901234567890123456789012345678901"
	    "234567890\"}" },
	{ "F9: any type", &text, "m", 0, "{\"model\":{\"a\":1}}",
	    "{\"model\":\"m\"}" },
	{ "sampling", &sampled, NULL, 0,
	    "{\"temperature\":0.2,\"n_probs\":1,\"api_key\":2,\"a\":1}",
	    "{\"temperature\":1.0,\"n_probs\":7,\"a\":1,\"top_k\":-1}" },
	{ "sampling, none there", &sampled, NULL, 0, "{}",
	    "{\"n_probs\":7,\"temperature\":1.0,\"top_k\":-1}" },
	{ "thinking: none", &quiet, NULL, 0, "{}", "{" THINK "}" },
	{ "thinking: null", &quiet, NULL, 0,
	    "{\"chat_template_kwargs\":null,\"a\":1}", "{" THINK ",\"a\":1}" },
	{ "thinking: a wrong type", &quiet, NULL, 0,
	    "{\"chat_template_kwargs\":\"x\"}", "{" THINK "}" },
	{ "thinking: the operator wins", &quiet, NULL, 0,
	    "{\"chat_template_kwargs\":{\"enable_thinking\":true,\"b\":2}}",
	    "{\"chat_template_kwargs\":{\"b\":2,\"enable_thinking\":false}}" },
	{ "thinking: duplicates inside and out", &quiet, NULL, 0,
	    "{\"chat_template_kwargs\":{\"enable_thinking\":true},\"a\":1,"
	    "\"chat_template_kwargs\":{\"enable_thinking\":1,\"c\":3,"
	    "\"enable\\u005fthinking\":2}}",
	    "{\"a\":1,\"chat_template_kwargs\":{\"c\":3,"
	    "\"enable_thinking\":false}}" },
	{ "H10: api_key alone", NULL, NULL, 0, "{\"api_key\":\"k\"}", "{}" },
	{ "H10", &text, NULL, 0, "{\"api_key\":\"k\",\"messages\":[]}",
	    "{\"messages\":[]}" },
	{ "H10: both, duplicates, escapes, spaces", &text, NULL, 0,
	    "{ \"a\":1, \"api\\u005fkey\":\"k\" , \"api_base\":{\"x\":[]},"
	    "\"b\":2, \"api_key\":2 }",
	    "{ \"a\":1,\"b\":2 }" },
	{ "all at once", &all, "gpt-5", 0,
	    "\t{\"api_key\":1,\"max_tokens\":999,\"stream\":true,"
	    "\"temperature\":2}\n",
	    "\t{\"max_completion_tokens\":100,\"stream\":true,"
	    "\"temperature\":1.0,\"model\":\"gpt-5\"," LP "," IDS "," USAGE
	    "," THINK ",\"top_k\":-1}\n" },
};

static int
edit(const struct request_case *c, struct view body, struct buf *out,
    struct llm_wants *w, struct buf *meta)
{
	const struct llm_request_params p = { c->capture, view_str(c->model),
		c->ask };
	const char *why = NULL;
	int rc;

	rc = llm_request_edit(&p, body, out, w, meta, &why);
	err_assert((rc == SP_E_SYNTAX) == (why != NULL));
	return rc;
}

static void
test_cases(void)
{
	size_t i;

	for (i = 0; i < N(cases); i++) {
		const struct request_case *c = &cases[i];
		const struct llm_request_params p = { c->capture,
			view_str(c->model), c->ask };
		const char *want = c->out != NULL ? c->out : c->in;
		struct buf out = BUF_INIT(4096), meta = BUF_INIT(4096);
		struct llm_wants w;

		err_assert(buf_add_str(&out, "before") == 0);
		err_assert(edit(c, view_str(c->in), &out, &w, &meta) == 0);
		buf_consume(&out, 6);
		tap_is_mem(buf_view(&out).p, buf_len(&out), want, strlen(want),
		    c->what);
		err_assert(peer_request(&p, view_str(c->in)) == 0);
		buf_clear(&out);
		buf_clear(&meta);
	}
}

/* ---- what the client asked for ------------------------------------------- */

struct wants_case {
	const char *what;
	const struct conf_capture *capture;
	unsigned ask;
	const char *in;
	struct llm_wants w;
};

static const struct wants_case wants[] = {
	{ "nothing", &text, 0, "{}", { .stream = false } },
	{ "not captured", NULL, 0,
	    "{\"stream\":true,\"logprobs\":true,\"top_logprobs\":3}",
	    { .stream = true, .logprobs = true, .top_logprobs = 3 } },
	{ "all of it its own", &tokens, 0,
	    "{\"stream\":true,\"logprobs\":true,\"top_logprobs\":3,"
	    "\"return_token_ids\":true,\"stream_options\":{\"include_usage\":"
	    "true}}",
	    { .stream = true,
		.logprobs = true,
		.top_logprobs = 3,
		.token_ids = true,
		.usage = true,
		.forced_logprobs = true,
		.forced_top = 5,
		.forced_token_ids = true } },
	{ "all of it ours", &all, 0,
	    "{\"stream\":true,\"logprobs\":null,\"return_token_ids\":1}",
	    { .stream = true,
		.forced_logprobs = true,
		.forced_top = 5,
		.forced_token_ids = true,
		.forced_usage = true,
		.thinking_off = true } },
	{ "true as a string is not true", &text, 0,
	    "{\"stream\":\"true\",\"logprobs\":\"true\",\"stream_options\":{"
	    "\"include_usage\":1}}",
	    { .stream = false } },
	{ "n_probs is its own", &logprobs, 0, "{\"n_probs\":4}",
	    { .logprobs = true,
		.top_logprobs = 4,
		.forced_logprobs = true,
		.forced_top = 5 } },
	{ "nonsense is bounded", &logprobs, 0,
	    "{\"logprobs\":true,\"top_logprobs\":99999}",
	    { .logprobs = true,
		.top_logprobs = 1000,
		.forced_logprobs = true,
		.forced_top = 1000 } },
	{ "insisting", &insist, LLM_ASK_NO_TOKEN_IDS, "{}",
	    { .forced_logprobs = true,
		.forced_token_ids = true,
		.insist_token_ids = true } },
	{ "refused", &tokens, LLM_ASK_NO_LOGPROBS | LLM_ASK_NO_TOKEN_IDS, "{}",
	    { .stream = false } },
};

static bool
same_wants(const struct llm_wants *a, const struct llm_wants *b)
{
	return a->stream == b->stream && a->logprobs == b->logprobs &&
	    a->top_logprobs == b->top_logprobs &&
	    a->token_ids == b->token_ids && a->usage == b->usage &&
	    a->forced_logprobs == b->forced_logprobs &&
	    a->forced_top == b->forced_top &&
	    a->forced_token_ids == b->forced_token_ids &&
	    a->insist_token_ids == b->insist_token_ids &&
	    a->forced_usage == b->forced_usage &&
	    a->thinking_off == b->thinking_off;
}

static void
test_wants(void)
{
	size_t i;

	for (i = 0; i < N(wants); i++) {
		struct request_case c = { wants[i].what, wants[i].capture, NULL,
			wants[i].ask, wants[i].in, NULL };
		struct buf out = BUF_INIT(4096), meta = BUF_INIT(4096);
		struct llm_wants w;

		memset(&w, 0xff, sizeof(w));
		err_assert(edit(&c, view_str(c.in), &out, &w, &meta) == 0);
		tap_ok(same_wants(&w, &wants[i].w), "wants: %s", c.what);
		buf_clear(&out);
		buf_clear(&meta);
	}
}

/* The model as the refusals and the rename know it. */
static void
test_model(void)
{
	static const struct {
		const char *override, *in, *model;
	} v[] = {
		{ NULL, "{\"model\":\"m\"}", "m" },
		{ NULL, "{\"model\":\"m\",\"mod\\u0065l\":\"a\\/\\u00e9\"}",
		    "a/\xc3\xa9" },
		{ NULL, "{\"model\":7}", "" },
		{ NULL, "{\"model\":null}", "" },
		{ NULL, "{\"model\":\"\"}", "" },
		{ NULL, "{}", "" },
		{ "o", "{\"model\":\"m\"}", "o" },
		{ "o", "{}", "o" },
		{ NULL, "{\"model\":\"\\ud83d\"}", "\xef\xbf\xbd" },
	};
	struct request_case c = { .capture = &text };
	struct buf body = BUF_INIT(4096);
	struct llm_wants w;
	size_t i;

	for (i = 0; i < N(v); i++) {
		struct buf out = BUF_INIT(4096), meta = BUF_INIT(4096);

		c.model = v[i].override;
		err_assert(edit(&c, view_str(v[i].in), &out, &w, &meta) == 0);
		tap_is_mem(w.model, w.model_n, v[i].model, strlen(v[i].model),
		    v[i].in);
		buf_clear(&out);
		buf_clear(&meta);
	}
	/* longer than is kept, and of bytes that grow when decoded */
	c.model = NULL;
	err_assert(buf_add_str(&body, "{\"model\":\"") == 0);
	for (i = 0; i < 500; i++)
		err_assert(buf_add_char(&body, '\xff') == 0);
	err_assert(buf_add_str(&body, "\"}") == 0);
	{
		struct buf out = BUF_INIT(4096), meta = BUF_INIT(4096);

		tap_is_int(edit(&c, buf_view(&body), &out, &w, &meta), 0,
		    "a model of bytes that are not UTF-8");
		tap_is_int((long long)w.model_n, LLM_MODEL_MAX, "is cut");
		tap_ok(view_eq(buf_view(&out), buf_view(&body)),
		    "and forwarded as it came");
		buf_clear(&out);
		buf_clear(&meta);
	}
	buf_clear(&body);
}

static void
test_renames(void)
{
	static const char *const yes[] = { "gpt-5", "gpt-5-mini", "gpt-5.1",
		"gpt-5.1-codex-max", "o1", "o1-preview", "o3", "o3-mini", "o4",
		"o4-mini-2025-04-16", "openai/gpt-5", "openrouter/openai/o3",
		"openai/gpt-5:free", "gpt-5@1", "ft:o4-mini:org::id",
		"openai:gpt-5-nano", "azure:o1", "GPT-5-Mini", "a//o1" };
	static const char *const no[] = { "", "gpt-4", "gpt-4o", "gpt-50",
		"gpt-5o", "gpt-51", "gpt5", "o1lama", "o10", "o2", "o30-mini",
		"ollama", "o", "gpt-5/", "o1/llama", "my-o1", "xgpt-5",
		"gpt-oss-120b", "deepseek-o1", "ft:gpt-4o:o1", "gpt-",
		"qwen:o1", "o1_x", "ft:", "/" };
	size_t i;

	for (i = 0; i < N(yes); i++)
		tap_ok(llm_request_renames_max(view_str(yes[i])),
		    "renames for %s", yes[i]);
	for (i = 0; i < N(no); i++)
		tap_ok(!llm_request_renames_max(view_str(no[i])),
		    "not for \"%s\"", no[i]);
	tap_ok(!llm_request_renames_max(VIEW_NONE), "not for none");
}

static void
test_meta(void)
{
	static const struct {
		const char *what, *in, *meta;
	} v[] = {
		{ "nothing asked", "{}", "{\"requested_sampling_params\":{}}" },
		{ "E13: as written",
		    "{\"model\":\"m\",\"temperature\":0.60,\"top_p\":1E-1,"
		    "\"seed\":9007199254740993,\"n\":null,\"x\":1}",
		    "{\"requested_model\":\"m\",\"requested_sampling_params\":{"
		    "\"temperature\":0.60,\"top_p\":1E-1,"
		    "\"seed\":9007199254740993,\"n\":null}}" },
		{ "the last of duplicates",
		    "{\"mod\\u0065l\":\"a\",\"model\":\"b\",\"top_k\":1,"
		    "\"t\\u006fp_k\":2,\"max_tokens\":9,"
		    "\"max_completion_tokens\":\"x\"}",
		    "{\"requested_model\":\"b\",\"requested_sampling_params\":{"
		    "\"top_k\":2,\"max_tokens\":9,\"max_completion_tokens\":"
		    "\"x\"}}" },
		{ "made strict",
		    "{\"model\":[ 1,\n\"\\ud83d\" , \"\xff\"],\"min_p\":{ }}",
		    "{\"requested_model\":[1,\"\xef\xbf\xbd\",\"\xef\xbf\xbd\"]"
		    ",\"requested_sampling_params\":{\"min_p\":{}}}" },
	};
	struct request_case c = { .capture = &all, .model = "x" };
	struct buf out = BUF_INIT(8192), meta = BUF_INIT(4096);
	struct buf body = BUF_INIT(8192);
	struct llm_wants w;
	size_t i;

	for (i = 0; i < N(v); i++) {
		buf_reset(&out, 0);
		buf_reset(&meta, 0);
		err_assert(edit(&c, view_str(v[i].in), &out, &w, &meta) == 0);
		tap_is_mem(buf_view(&meta).p, buf_len(&meta), v[i].meta,
		    strlen(v[i].meta), v[i].what);
	}
	err_assert(buf_add_str(&body, "{\"temperature\":1") == 0);
	for (i = 0; i < 2000; i++)
		err_assert(buf_add_char(&body, '0') == 0);
	err_assert(buf_add_str(&body, ",\"top_p\":1}") == 0);
	buf_reset(&out, 0);
	buf_reset(&meta, 0);
	err_assert(edit(&c, buf_view(&body), &out, &w, &meta) == 0);
	tap_ok(view_eq(buf_view(&meta),
		   VIEW("{\"requested_sampling_params\":{\"top_p\":1}}")),
	    "a value that is too long is left out");
	buf_clear(&out);
	buf_clear(&meta);
	buf_clear(&body);
}

/* ---- bodies that are none ------------------------------------------------ */

static void
test_bad(void)
{
	static const char *const v[] = { "", " ", "[]", "\"a\"", "1", "null",
		"{", "}", "{\"a\":1", "{\"a\":1}}", "{\"a\":1}{}",
		"{\"a\":1} x", "{\"a\":1,}", "{\"a\":}", "{a:1}", "{\"a\" 1}",
		"{\"a\":NaN}", "{\"a\":01}", "{\"a\":\"\\x\"}",
		"{\"a\":\"\n\"}", "{\"a\":\"\\ud8\"}", "{,}", "\xef\xbb\xbf{}",
		"{\"a\":tru}", "{\"logprobs\":true",
		"{\"stream_options\":{\"a\":1}" };
	struct request_case c = { .capture = &all, .model = "m" };
	struct buf out = BUF_INIT(4096), meta = BUF_INIT(4096);
	struct llm_wants w;
	size_t i;

	for (i = 0; i < N(v); i++)
		tap_ok(edit(&c, view_str(v[i]), &out, &w, &meta) ==
			    SP_E_SYNTAX &&
			buf_len(&out) == 0,
		    "no object: %.*s", (int)strcspn(v[i], "\n"), v[i]);
	tap_is_int(edit(&c, VIEW_NONE, &out, &w, &meta), SP_E_SYNTAX,
	    "no body at all");
	tap_is_int(edit(&c, view_of("{}\0", 3), &out, &w, &meta), SP_E_SYNTAX,
	    "a NUL behind it");
	buf_clear(&out);
	buf_clear(&meta);
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
	struct request_case c = { .capture = &logprobs };
	struct llm_request_params p = { .capture = &logprobs };
	struct buf body = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);
	struct buf small = BUF_INIT(8), meta = BUF_INIT(4096);
	const char *why = NULL;
	struct llm_wants w;

	repeat(&body, "{\"a\":", 512);
	repeat(&body, "1", 1);
	repeat(&body, "}", 512);
	tap_is_int(edit(&c, buf_view(&body), &out, &w, &meta), 0,
	    "as deep as may be");
	buf_reset(&body, 0);
	buf_reset(&out, 0);
	repeat(&body, "{\"a\":", 100000);
	tap_is_int(llm_request_edit(&p, buf_view(&body), &out, &w, &meta, &why),
	    SP_E_SYNTAX, "depth bomb");
	tap_is_str(why, "the request body is nested too deep", "says so");
	buf_reset(&body, 0);
	repeat(&body, "{\"a\":[", 1);
	repeat(&body, "[", 100000);
	tap_is_int(edit(&c, buf_view(&body), &out, &w, &meta), SP_E_SYNTAX,
	    "depth bomb of arrays");

	/* duplicates: many are taken, thousands are not */
	buf_reset(&body, 0);
	repeat(&body, "{", 1);
	repeat(&body, "\"logprobs\":0,\"a\":1,", 1000);
	repeat(&body, "\"b\":1}", 1);
	buf_reset(&meta, 0);
	tap_is_int(edit(&c, buf_view(&body), &out, &w, &meta), 0,
	    "a thousand duplicates");
	buf_reset(&out, 0);
	buf_reset(&body, 0);
	repeat(&body, "{", 1);
	repeat(&body, "\"logprobs\":0,\"a\":1,", 5000);
	repeat(&body, "\"b\":1}", 1);
	tap_is_int(llm_request_edit(&p, buf_view(&body), &out, &w, &meta, &why),
	    SP_E_SYNTAX, "thousands of them");
	tap_is_str(why, "the request body repeats its members too often",
	    "says so");
	buf_reset(&body, 0);
	repeat(&body, "{", 1);
	repeat(&body, "\"logprobs\":0,\"top_logprobs\":1,", 5000);
	repeat(&body, "\"b\":1}", 1);
	tap_is_int(edit(&c, buf_view(&body), &out, &w, &meta), SP_E_SYNTAX,
	    "thousands in a row");
	buf_reset(&body, 0);
	repeat(&body, "{", 1);
	repeat(&body, "\"a\":1,", 50000);
	repeat(&body, "\"b\":1}", 1);
	buf_reset(&meta, 0);
	tap_is_int(edit(&c, buf_view(&body), &out, &w, &meta), 0,
	    "other members may be many");

	buf_reset(&meta, 0);
	tap_is_int(llm_request_edit(&p, VIEW("{\"a\":1}"), &small, &w, &meta,
		       &why),
	    SP_E_LIMIT, "out is too small");
	tap_is_int((long long)buf_len(&small), 0, "and unchanged");
	buf_reset(&out, 0);
	tap_is_int(llm_request_edit(&p, VIEW("{\"a\":1}"), &out, &w, &small,
		       &why),
	    SP_E_LIMIT, "meta is too small");
	tap_is_int((long long)buf_len(&out), 0, "out is unchanged");
	buf_clear(&body);
	buf_clear(&out);
	buf_clear(&meta);
	buf_clear(&small);
}

/* H: a conversation of 30 MB, an image in it: one pass, one copy. */
static void
test_large(void)
{
	const size_t n = 30 << 20;
	struct request_case c = { .capture = &all, .model = "gpt-5" };
	struct buf body = BUF_INIT(SIZE_MAX / 2);
	struct buf out = BUF_INIT(SIZE_MAX / 2), meta = BUF_INIT(4096);
	struct llm_wants w;
	struct view got;

	err_assert(buf_reserve(&body, n + 100) == 0);
	err_assert(
	    buf_add_str(&body, "{\"max_tokens\":7,\"messages\":[\"") == 0);
	memset(buf_tail(&body), 'x', n);
	buf_grow(&body, n);
	err_assert(buf_add_str(&body, "\"],\"api_key\":1}") == 0);
	tap_is_int(edit(&c, buf_view(&body), &out, &w, &meta), 0, "30 MB");
	got = buf_view(&out);
	tap_ok(view_starts(got,
		   VIEW("{\"max_completion_tokens\":7,\"messages\":[\"xxx")) &&
		view_ends(got, VIEW("\"top_k\":-1}")) && got.n > n,
	    "edited at both ends");
	buf_clear(&body);
	buf_clear(&out);
	buf_clear(&meta);
}

/* Many sampling parameters: as many as the configuration takes. */
static void
test_sampling_many(void)
{
	struct conf_sampling many[70];
	struct conf_capture c = { .level = CONF_LEVEL_TEXT,
		.sampling = many,
		.sampling_n = 64 };
	struct llm_request_params p = { .capture = &c };
	struct buf out = BUF_INIT(4096), meta = BUF_INIT(4096);
	char names[70][8];
	const char *why = NULL;
	struct llm_wants w;
	size_t i;

	for (i = 0; i < N(many); i++) {
		snprintf(names[i], sizeof(names[i]), "p%zu", i);
		many[i] =
		    (struct conf_sampling){ view_str(names[i]), VIEW("1") };
	}
	err_assert(llm_request_edit(&p, VIEW("{\"p63\":0}"), &out, &w, &meta,
		       &why) == 0);
	tap_ok(view_starts(buf_view(&out), VIEW("{\"p63\":1,\"p0\":1,")) &&
		view_ends(buf_view(&out), VIEW(",\"p62\":1}")),
	    "64 sampling parameters");
	err_assert(peer_request(&p, VIEW("{\"p5\":0,\"p5\":2}")) == 0);
	buf_reset(&out, 0);
	buf_reset(&meta, 0);
	c.sampling_n = N(many);
	tap_is_int(llm_request_edit(&p, VIEW("{}"), &out, &w, &meta, &why), 0,
	    "more are no harm");
	buf_clear(&out);
	buf_clear(&meta);
}

static void
test_no_memory(void)
{
	static const char body[] =
	    "{\"model\":\"o1\",\"api_key\":1,\"stream\":true,\"a\":1,"
	    "\"stream_options\":{\"a\":1},\"logprobs\":0,\"b\":1,"
	    "\"top_logprobs\":0,\"logprobs\":0,\"max_tokens\":9}";
	static const char *const models[] = { NULL, "gpt-5" };
	size_t i;

	for (i = 0; i < N(models); i++) {
		struct request_case c = { .capture = &all, .model = models[i] };
		unsigned long n;
		int rc = SP_E_NOMEM;

		for (n = 1; rc == SP_E_NOMEM && n < 100; n++) {
			struct buf out = BUF_INIT(4096), meta = BUF_INIT(4096);
			struct llm_wants w;

			mem_fail_after(n, 0);
			rc = edit(&c, view_str(body), &out, &w, &meta);
			mem_fail_after(0, 0);
			err_assert(rc == 0 || buf_len(&out) == 0);
			buf_clear(&out);
			buf_clear(&meta);
		}
		tap_ok(rc == 0 && n > 6, "each allocation failed: %lu", n - 2);
	}
}

/* ---- any object ---------------------------------------------------------- */

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
any_space(struct buf *b)
{
	static const char *const v[] = { "", "", "", "", " ", "\n", "\t",
		"  " };

	err_assert(buf_add_str(b, v[any(N(v))]) == 0);
}

static void any_value(struct buf *b, unsigned depth);

static void
any_object(struct buf *b, unsigned depth)
{
	static const char *const keys[] = { "model", "logprobs", "top_logprobs",
		"return_token_ids", "stream", "stream_options", "max_tokens",
		"max_completion_tokens", "chat_template_kwargs", "n_probs",
		"api_key", "api_base", "temperature", "top_k", "a", "messages",
		"mod\\u0065l", "l\\u006fgprobs", "api\\u005fkey",
		"include_usage", "enable_thinking", "\\ud83d", "" };
	unsigned n = any(depth == 0 ? 16 : 4);
	bool first = true;

	err_assert(buf_add_char(b, '{') == 0);
	while (n-- > 0) {
		any_space(b);
		if (!first)
			err_assert(buf_add_char(b, ',') == 0);
		first = false;
		any_space(b);
		err_assert(buf_printf(b, "\"%s\"", keys[any(N(keys))]) == 0);
		any_space(b);
		err_assert(buf_add_char(b, ':') == 0);
		any_space(b);
		any_value(b, depth + 1);
	}
	any_space(b);
	err_assert(buf_add_char(b, '}') == 0);
}

static void
any_value(struct buf *b, unsigned depth)
{
	static const char *const v[] = { "true", "true", "false", "null", "0",
		"1", "7", "9000", "-3", "1.5", "1e3", "18446744073709551616",
		"\"m\"", "\"gpt-5\"", "\"o1\"", "\"\\ud83d\"", "[]", "[1,{}]" };

	if (depth < 4 && any(4) == 0)
		any_object(b, depth);
	else
		err_assert(buf_add_str(b, v[any(N(v))]) == 0);
}

static void
test_any(void)
{
	static const struct conf_capture *const captures[] = { NULL, &text,
		&logprobs, &tokens, &insist, &capped, &quiet, &sampled, &all };
	static const char *const models[] = { NULL, NULL, "m", "openai/o3" };
	unsigned i;

	for (i = 0; i < 20000; i++) {
		struct llm_request_params p = { captures[any(N(captures))],
			view_str(models[any(N(models))]), any(8) };
		struct buf b = BUF_INIT(1 << 20);

		any_space(&b);
		any_object(&b, 0);
		any_space(&b);
		err_assert(peer_request(&p, buf_view(&b)) == 0);
		buf_clear(&b);
	}
	tap_ok(true, "%u objects: only what policy names differs", i);
}

int
main(void)
{
	test_cases();
	test_wants();
	test_model();
	test_renames();
	test_meta();
	test_bad();
	test_limits();
	test_large();
	test_sampling_many();
	test_no_memory();
	test_any();
	return tap_done();
}
