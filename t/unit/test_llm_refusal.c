/* Refusals as upstreams word them, and errors that only look like one. */
#include "base/mem.h"
#include "llm_refusal.h"
#include "tap.h"

/* What the attempt had asked for, and what should be tried next. */
enum {
	ALL = LLM_ASK_ALL,
	IDS = LLM_ASK_NO_TOKEN_IDS,
	NPROBS = LLM_ASK_N_PROBS,
	PROBS = LLM_ASK_NO_LOGPROBS,
};

struct refusal_case {
	const char *what;
	unsigned status;
	unsigned ask;
	unsigned next;
	const char *body;
};

/* Of an agent's call: streamed, with log-probabilities and ids by us. */
static const struct llm_wants forced = { .stream = true,
	.forced_logprobs = true,
	.forced_top = 5,
	.forced_token_ids = true };

static const struct refusal_case refusals[] = {
	/* the wordings of the cases */
	{ "F1: 403", 403, IDS, IDS | PROBS,
	    "{\"error\":{\"message\":\"logprobs not permitted on this model\","
	    "\"type\":\"x\",\"param\":null}}" },
	{ "F2: tools and stream", 400, IDS, IDS | NPROBS,
	    "{\"error\":{\"code\":400,\"message\":\"logprobs unsupported "
	    "together with tools and stream\",\"type\":"
	    "\"invalid_request_error\"}}" },
	{ "F2: n_probs as well", 400, IDS | NPROBS, IDS | PROBS,
	    "{\"error\":{\"code\":400,\"message\":\"n_probs is not supported "
	    "with tools + stream\"}}" },
	{ "F2: n_probs, told of logprobs", 400, NPROBS, PROBS,
	    "{\"error\":{\"code\":400,\"message\":\"logprobs is not supported "
	    "with tools + stream\"}}" },
	{ "F3: ids need no stream", 400, ALL, IDS,
	    "{\"object\":\"error\",\"message\":\"return_token_ids needs "
	    "stream=false\",\"code\":400}" },
	/* wordings of one kind */
	{ "llama.cpp", 400, ALL, NPROBS,
	    "{\"error\":{\"code\":400,\"message\":\"logprobs is not supported "
	    "with tools + stream\",\"type\":\"invalid_request_error\"}}" },
	{ "OpenAI: param", 400, ALL, PROBS,
	    "{\"error\":{\"message\":\"Unsupported parameter\",\"type\":"
	    "\"invalid_request_error\",\"param\":\"logprobs\",\"code\":"
	    "\"unsupported_parameter\"}}" },
	{ "OpenAI: param top_logprobs", 400, ALL, PROBS,
	    "{\n  \"error\": {\n    \"message\": \"Unsupported value\",\n"
	    "    \"param\": \"top_logprobs\"\n  }\n}" },
	{ "OpenAI: not allowed", 403, ALL, PROBS,
	    "{\"error\":{\"message\":\"You are not allowed to request logprobs "
	    "from this model\",\"type\":\"invalid_request_error\",\"param\":"
	    "null,\"code\":null}}" },
	{ "OpenAI: reasoning models", 400, ALL, PROBS,
	    "{\"error\":{\"message\":\"'logprobs' is not supported with this "
	    "model.\"}}" },
	{ "OpenAI: unknown argument", 400, ALL, IDS,
	    "{\"error\":{\"message\":\"Unrecognized request argument supplied: "
	    "return_token_ids\"}}" },
	{ "OpenAI: unknown parameter", 400, ALL, IDS,
	    "{\"error\":{\"message\":\"Unknown parameter: "
	    "'return_token_ids'.\",\"param\":\"return_token_ids\"}}" },
	{ "Azure", 400, ALL, PROBS,
	    "{\"error\":{\"message\":\"This model does not support the "
	    "following feature: Logprobs\",\"code\":\"BadRequest\"}}" },
	{ "Gemini", 400, ALL, PROBS,
	    "[{\"error\":{\"code\":400,\"message\":\"Logprobs is not enabled "
	    "for models/g\",\"status\":\"INVALID_ARGUMENT\"}}]" },
	{ "Gemini: native name", 400, ALL, PROBS,
	    "[{\"error\":{\"code\":400,\"message\":\"Invalid value at "
	    "generation_config.responseLogprobs\"}}]" },
	{ "Gemini: unknown name", 400, ALL, IDS,
	    "[{\"error\":{\"code\":400,\"message\":\"Invalid JSON payload "
	    "received. Unknown name \\\"return_token_ids\\\": Cannot find "
	    "field.\"}}]" },
	{ "Groq", 400, IDS, IDS | PROBS,
	    "{\"error\":{\"message\":\"`logprobs` is not supported with this "
	    "model\",\"type\":\"invalid_request_error\"}}" },
	{ "Groq: property", 400, ALL, IDS,
	    "{\"error\":{\"message\":\"property 'return_token_ids' is "
	    "unsupported\",\"type\":\"invalid_request_error\"}}" },
	{ "vLLM: too many for it", 400, ALL, PROBS,
	    "{\"object\":\"error\",\"message\":\"Requested sample logprobs of "
	    "5, which is greater than max allowed: 0\",\"code\":400}" },
	{ "FastAPI: extra inputs", 422, ALL, IDS,
	    "{\"detail\":[{\"type\":\"extra_forbidden\",\"loc\":[\"body\","
	    "\"return_token_ids\"],\"msg\":\"Extra inputs are not permitted\","
	    "\"input\":true}]}" },
	{ "FastAPI: all three at once, ids first", 422, ALL, IDS,
	    "{\"detail\":[{\"type\":\"extra_forbidden\",\"loc\":[\"body\","
	    "\"logprobs\"],\"input\":true},{\"loc\":[\"body\","
	    "\"top_logprobs\"],\"input\":5},{\"loc\":[\"body\","
	    "\"return_token_ids\"],\"input\":true}]}" },
	{ "FastAPI: as Python prints it", 400, ALL, PROBS,
	    "{\"object\":\"error\",\"message\":\"[{'type': 'extra_forbidden', "
	    "'loc': ('body', 'logprobs'), 'msg': 'Extra inputs are not "
	    "permitted', 'input': True}]\"}" },
	{ "Anthropic-compatible", 400, ALL, PROBS,
	    "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
	    "\"message\":\"logprobs: Extra inputs are not permitted\"}}" },
	{ "Mistral", 422, IDS, IDS | PROBS,
	    "{\"object\":\"error\",\"message\":{\"detail\":[{\"type\":"
	    "\"extra_forbidden\",\"loc\":[\"body\",\"top_logprobs\"],\"msg\":"
	    "\"Extra inputs are not permitted\",\"input\":5}]}}" },
	{ "DeepSeek", 400, ALL, PROBS,
	    "{\"error\":{\"message\":\"deepseek-reasoner does not support "
	    "parameter `logprobs`\"}}" },
	{ "xAI", 400, ALL, PROBS,
	    "{\"code\":\"Client specified an invalid argument\",\"error\":"
	    "\"Argument not supported on this model: logprobs\"}" },
	{ "LiteLLM", 400, ALL, PROBS,
	    "{\"error\":{\"message\":\"UnsupportedParamsError: p does not "
	    "support parameters: ['logprobs', 'top_logprobs']\"}}" },
	{ "Fireworks", 400, ALL, PROBS,
	    "{\"error\":{\"message\":\"top_logprobs must be less than or equal "
	    "to 5\"}}" },
	{ "Bedrock", 400, ALL, PROBS,
	    "{\"message\":\"Malformed input request: #: extraneous key "
	    "[logprobs] is not permitted\"}" },
	{ "serde", 422, ALL, IDS,
	    "Failed to deserialize: unknown field `return_token_ids`, expected "
	    "one of `model`, `logprobs`" },
	{ "Go", 400, ALL, PROBS, "json: unknown field \"logprobs\"" },
	{ "AJV", 400, ALL, IDS,
	    "{\"message\":\"must NOT have additional properties\",\"params\":"
	    "{\"additionalProperty\":\"return_token_ids\"}}" },
	{ "zod", 400, ALL, IDS,
	    "{\"error\":\"Unrecognized key(s) in object: "
	    "'return_token_ids'\"}" },
	{ "errors by field", 400, ALL, PROBS,
	    "{\"logprobs\": [\"This field is not allowed.\"]}" },
	{ "words", 400, ALL, PROBS,
	    "{\"error\":\"This model cannot return log probabilities\"}" },
	{ "hyphen", 400, ALL, PROBS, "log-probs are off" },
	{ "underscore", 400, ALL, PROBS, "log_probs are off" },
	{ "upper case", 400, ALL, PROBS, "LOGPROBS NOT SUPPORTED" },
	{ "501", 501, ALL, PROBS, "logprobs: not implemented" },
	{ "at the very end", 400, ALL, PROBS, "no logprob" },
	{ "named besides an echo", 400, ALL, PROBS,
	    "{\"request\":{\"logprobs\":true},\"error\":\"no logprobs "
	    "here\"}" },
	{ "bare token_ids", 400, ALL, IDS, "token_ids: unsupported" },
};

static const struct refusal_case others[] = {
	{ "401", 401, ALL, ALL, "logprobs not permitted" },
	{ "404", 404, ALL, ALL, "logprobs not permitted" },
	{ "409", 409, ALL, ALL, "logprobs not permitted" },
	{ "413", 413, ALL, ALL, "logprobs not permitted" },
	{ "429", 429, ALL, ALL, "logprobs not permitted" },
	{ "500", 500, ALL, ALL, "logprobs not permitted" },
	{ "502", 502, ALL, ALL, "logprobs not permitted" },
	{ "503", 503, ALL, ALL, "logprobs not permitted" },
	{ "200", 200, ALL, ALL, "logprobs not permitted" },
	{ "no body", 400, ALL, ALL, "" },
	{ "other parameter", 400, ALL, ALL,
	    "{\"error\":{\"message\":\"Unsupported parameter: 'max_tokens'\","
	    "\"param\":\"max_tokens\"}}" },
	{ "some probs, some logs", 400, ALL, ALL,
	    "There was a problem; see the log. Probably the log problem." },
	{ "n_probs attempt and a problem", 400, NPROBS, NPROBS,
	    "There was a problem, probably." },
	{ "context length", 400, ALL, ALL,
	    "{\"error\":{\"message\":\"This model's maximum context length is "
	    "8192 tokens; with logprobs you asked for 9000\",\"code\":"
	    "\"context_length_exceeded\"}}" },
	{ "context length, in words", 400, ALL, ALL,
	    "longer than the context length, try without logprobs" },
	{ "the client's own prompt_logprobs", 400, ALL, ALL,
	    "{\"message\":\"prompt_logprobs are not available with stream\"}" },
	{ "the client's own stop_token_ids", 400, ALL, ALL,
	    "{\"message\":\"stop_token_ids must be integers\"}" },
	{ "the client's own allowed_token_ids", 400, ALL, ALL,
	    "{\"message\":\"allowed_token_ids is empty\"}" },
	{ "echo in JSON", 422, ALL, ALL,
	    "{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\","
	    "\"messages\"],\"msg\":\"Field required\",\"input\":{\"model\":"
	    "\"m\",\"logprobs\":true,\"return_token_ids\":true}}]}" },
	{ "echo in Python", 400, ALL, ALL,
	    "{\"object\":\"error\",\"message\":\"[{'type': 'missing', 'loc': "
	    "('body', 'messages'), 'msg': 'Field required', 'input': {'model': "
	    "'m', 'logprobs': True, 'return_token_ids': True}}]\"}" },
	{ "echo of a conversation about them", 422, ALL, ALL,
	    "{\"detail\":[{\"loc\":[\"body\",\"messages\",0],\"msg\":\"Input "
	    "should be a valid dictionary\",\"input\":[{\"role\":\"user\","
	    "\"content\":\"why are logprobs unsupported?\"}]}]}" },
	{ "echo by pydantic", 400, ALL, ALL,
	    "1 validation error for Request\\nmessages\\n  Field required "
	    "[type=missing, input_value={'logprobs': True, 'return_token_ids': "
	    "True}, input_type=dict]" },
	{ "echo without a mark", 400, ALL, ALL,
	    "bad request: {\"logprobs\":true, \"top_logprobs\" : 5,"
	    "\"return_token_ids\": true}" },
	{ "echo within a string", 400, ALL, ALL,
	    "{\"error\":\"bad: {\\\"logprobs\\\":true}\"}" },
	{ "a list of what is known", 422, ALL, ALL,
	    "unknown field `foo`, expected one of `model`, `logprobs`, "
	    "`return_token_ids`" },
	{ "refused already", 400, IDS | PROBS, IDS | PROBS,
	    "logprobs and return_token_ids are unsupported" },
};

static void
run(const struct refusal_case *v, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		tap_is_int(llm_refusal_next(v[i].status, view_str(v[i].body),
			       &forced, v[i].ask),
		    v[i].next, v[i].what);
}

/* Nothing is taken back that the client itself had asked for. */
static void
test_own(void)
{
	const struct view no_probs = VIEW("logprobs not permitted");
	const struct view no_ids = VIEW("return_token_ids not permitted");
	struct llm_wants w = forced;

	w.logprobs = true;
	w.top_logprobs = 5;
	tap_is_int(llm_refusal_next(400, no_probs, &w, ALL), ALL,
	    "the client's own logprobs");
	w.top_logprobs = 2;
	tap_is_int(llm_refusal_next(400, no_probs, &w, ALL), PROBS,
	    "more of them than the client asked for");
	w = forced;
	w.token_ids = true;
	tap_is_int(llm_refusal_next(400, no_ids, &w, ALL), ALL,
	    "the client's own return_token_ids");
	w = forced;
	w.insist_token_ids = true;
	tap_is_int(llm_refusal_next(400, no_ids, &w, ALL), ALL,
	    "ids that the operator insists on");
	memset(&w, 0, sizeof(w));
	tap_is_int(llm_refusal_next(400, no_ids, &w, ALL), ALL,
	    "ids that were not asked for");
	tap_is_int(llm_refusal_next(400, no_probs, &w, ALL), ALL,
	    "logprobs that were not asked for");
	w = forced;
	w.stream = false;
	tap_is_int(llm_refusal_next(400,
		       VIEW("logprobs with tools need no stream"), &w, ALL),
	    PROBS, "F2: without a stream there is nothing to work around");
}

/* However an upstream words it, few attempts follow. */
static void
test_ends(void)
{
	const struct view all =
	    VIEW("return_token_ids, logprobs, n_probs, tools, stream");
	struct llm_wants w = forced;
	unsigned ask = ALL, next, steps = 0;

	while ((next = llm_refusal_next(400, all, &w, ask)) != ask) {
		ask = next;
		steps++;
		w.forced_token_ids = !(ask & IDS);
		w.forced_logprobs = !(ask & PROBS);
	}
	tap_is_int(steps, 3, "three attempts after the first");
	tap_is_int(ask, IDS | PROBS, "nothing is left to refuse");
}

/* Another configuration, other servers, or time: it is asked anew. */
static void
test_renewed(struct llm_refusal *m)
{
	const uint64_t ms = LLM_REFUSAL_MS;
	struct view up = VIEW("up"), model = VIEW("m");

	llm_refusal_renew(m, 7, 1000);
	tap_is_int(llm_refusal_known(m, up, model), 0, "another stamp");
	llm_refusal_learn(m, 0, up, model, IDS);
	tap_is_int(llm_refusal_known(m, up, model), 0,
	    "what an attempt under the one before says is not learnt");
	llm_refusal_learn(m, 7, up, model, IDS);
	llm_refusal_renew(m, 7, 1000 + ms - 1);
	tap_is_int(llm_refusal_known(m, up, model), IDS, "kept for a while");
	mem_fail_after(1, 0);
	llm_refusal_renew(m, 7, 1000 + ms);
	mem_fail_after(0, 0);
	tap_is_int(llm_refusal_known(m, up, model), IDS, "no memory: kept");
	llm_refusal_renew(m, 7, 1000 + 2 * ms);
	tap_is_int(llm_refusal_known(m, up, model), 0, "then forgotten");
	llm_refusal_learn(m, 7, up, model, IDS);
	llm_refusal_renew(m, 8, 1000 + 2 * ms);
	tap_is_int(llm_refusal_known(m, up, model), 0, "one change more");
}

static void
test_memory(void)
{
	struct llm_refusal *m = llm_refusal_new();
	char name[16], longer[400];
	struct view up = VIEW("up"), model = VIEW("m");
	unsigned i, n;

	err_assert(m != NULL);
	tap_is_int(llm_refusal_known(m, up, model), 0, "nothing known");
	llm_refusal_learn(m, 0, up, model, IDS);
	tap_is_int(llm_refusal_known(m, up, model), IDS, "learnt");
	llm_refusal_learn(m, 0, up, model, NPROBS);
	tap_is_int(llm_refusal_known(m, up, model), IDS | NPROBS, "more");
	llm_refusal_learn(m, 0, up, model, PROBS);
	tap_is_int(llm_refusal_known(m, up, model), IDS | PROBS,
	    "n_probs given up");
	tap_is_int(llm_refusal_known(m, up, VIEW("M")), 0, "another model");
	tap_is_int(llm_refusal_known(m, VIEW("u"), VIEW("pm")), 0,
	    "another split");
	tap_is_int(llm_refusal_known(m, VIEW_NONE, VIEW_NONE), 0, "no names");
	llm_refusal_learn(m, 0, VIEW_NONE, VIEW_NONE, PROBS);
	tap_is_int(llm_refusal_known(m, VIEW_NONE, VIEW_NONE), PROBS,
	    "no names, learnt");
	memset(longer, 'x', sizeof(longer));
	llm_refusal_learn(m, 0, view_of(longer, 400), view_of(longer, 400),
	    IDS);
	tap_is_int(llm_refusal_known(m, view_of(longer, 400),
		       view_of(longer, 400)),
	    IDS, "names that are too long");
	for (i = 0; i < 5000; i++) {
		n = (unsigned)snprintf(name, sizeof(name), "%u", i);
		llm_refusal_learn(m, 0, up, view_of(name, n), PROBS);
	}
	tap_is_int(llm_refusal_known(m, up, VIEW("17")), PROBS, "one of many");
	tap_is_int(llm_refusal_known(m, up, VIEW("4999")), 0,
	    "one too many is not remembered");
	llm_refusal_learn(m, 0, up, model, IDS);
	tap_is_int(llm_refusal_known(m, up, model), IDS | PROBS,
	    "what is known stays when it is full");
	test_renewed(m);
	llm_refusal_free(m);
	llm_refusal_free(NULL);
}

static void
test_no_memory(void)
{
	struct llm_refusal *m;
	unsigned long n;
	unsigned known = 0;

	for (n = 1; known == 0 && n < 50; n++) {
		mem_fail_after(n, 0);
		m = llm_refusal_new();
		if (m != NULL) {
			llm_refusal_learn(m, 0, VIEW("u"), VIEW("m"), IDS);
			known = llm_refusal_known(m, VIEW("u"), VIEW("m"));
		}
		mem_fail_after(0, 0);
		llm_refusal_free(m);
	}
	tap_is_int(known, IDS, "learnt once there is memory");
	tap_ok(n > 3, "each allocation failed once");
}

/* A megabyte of anything is read in one go; nothing past its end is. */
static void
test_large(void)
{
	static const char *const piece[] = { "l", "logprob", "\"logprobs\":1 ",
		"\"logprobs\"                 ", "prompt_logprobs_" };
	size_t i, at, n, len;
	char *text;

	n = 1 << 20;
	text = mem_alloc(n);
	err_assert(text != NULL);
	for (i = 0; i < sizeof(piece) / sizeof(piece[0]); i++) {
		len = strlen(piece[i]);
		for (at = 0; at + len <= n; at += len)
			memcpy(text + at, piece[i], len);
		memset(text + at, ' ', n - at);
		tap_is_int(llm_refusal_next(400, view_of(text, n), &forced,
			       ALL),
		    i == 1 || i == 3 ? PROBS : ALL, piece[i]);
	}
	mem_free(text);
}

int
main(void)
{
	run(refusals, sizeof(refusals) / sizeof(refusals[0]));
	run(others, sizeof(others) / sizeof(others[0]));
	test_own();
	test_ends();
	test_memory();
	test_no_memory();
	test_large();
	return tap_done();
}
