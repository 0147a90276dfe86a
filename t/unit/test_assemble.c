/* Assembly of completions: every fixture, as a stream and as one body. */
#include "config.h"

#include "base/mem.h"
#include "recorder_peer.h"

struct want {
	const char *fixture; /* without .sse */
	const char *path;
	const char *value; /* raw JSON; NULL: nothing is there */
};

#define MSG "response.choices.0.message"
static const struct want wants[] = {
	{ "A11", MSG ".content", "\"one\\u2028two\\u0085three\"" },
	{ "A12", "complete", "true" },
	{ "A12", "metadata.done_seen", "false" },
	{ "A12", "finish_reason", "\"stop\"" },
	{ "A14", "upstream_error.message", "\"too long\"" },
	{ "A14", "response", "null" },
	{ "A14", "findings", "[\"error_in_stream\"]" },
	{ "B1", "usage.total_tokens", "5" },
	{ "B1", "response", "null" },
	{ "B1", "complete", "false" },
	{ "B2", "usage.completion_tokens", "2" },
	{ "B4_two_choices", "response.choices.0.message.content", "\"A\"" },
	{ "B4_two_choices", "response.choices.1.message.content", "\"B\"" },
	{ "B4_two_choices", "response.choices.1.token_ids", "[66]" },
	{ "B4_two_choices", "response.choices.1.logprobs.content.0.logprob",
	    "-0.3" },
	{ "B4_two_choices", "response.choices.1.finish_reason", "\"length\"" },
	{ "B4_two_choices", "completion_token_ids", "[65]" },
	{ "B4_two_choices", "per_token_logps", "[-0.2]" },
	{ "B4_two_choices", "complete", "true" },
	{ "B4_two_choices", "aligned", "true" },
	{ "B5", "response.id", "null" },
	{ "B5", "response.prompt_filter_results.0.prompt_index", "0" },
	{ "B5", "response.choices.0.content_filter_offsets.check_offset", "4" },
	{ "B5", MSG ".content", "\"\"" },
	{ "B6_index_last", "response.choices.0.message.content", "\"A\"" },
	{ "B6_index_last", "response.choices.1.message.content", "\"B\"" },
	{ "B7", MSG ".content", "\"az\"" },
	{ "B7", "finish_reason", "\"length\"" },
	{ "B8_empty_finish_each", "finish_reason", "\"stop\"" },
	{ "B8_empty_finish_each", "complete", "true" },
	{ "B9", MSG ".role", "\"assistant\"" },
	{ "C1", MSG ".tool_calls.0.function.name", "\"ls\"" },
	{ "C1", MSG ".tool_calls.1.function.name", "\"pwd\"" },
	{ "C1", MSG ".tool_calls.1.id", "\"c2\"" },
	{ "C1_later", MSG ".tool_calls.0.function.arguments",
	    "\"{\\\"a\\\":1}\"" },
	{ "C1_later", MSG ".tool_calls.1.function.arguments", "\"{}\"" },
	{ "C1_later", MSG ".tool_calls.2", NULL },
	{ "C1_by_place", MSG ".tool_calls.0.function.arguments", "\"{}\"" },
	{ "C1_by_place", MSG ".tool_calls.1.function.arguments", "\"{}\"" },
	{ "C1_by_place", MSG ".tool_calls.2", NULL },
	{ "C1_one_after_another", MSG ".tool_calls.0.function.arguments",
	    "\"{}\"" },
	{ "C1_one_after_another", MSG ".tool_calls.1.function.arguments",
	    "\"{}\"" },
	{ "C2", MSG ".tool_calls.0.function.name", "\"read\"" },
	{ "C2", MSG ".tool_calls.1.function.name", "\"write\"" },
	{ "C3", MSG ".tool_calls.0.id", "\"a\"" },
	{ "C3", MSG ".tool_calls.0.function.arguments", "\"{\\\"p\\\":1}\"" },
	{ "C3", MSG ".tool_calls.1", NULL },
	{ "C4", MSG ".tool_calls.0.function.arguments",
	    "\"{\\\"a\\\":1}{\\\"a\\\":2}\"" },
	{ "C4", MSG ".tool_calls.1", NULL },
	{ "C4", "metadata.tool_args_valid_json", "false" },
	{ "C5_repeated_name", MSG ".tool_calls.0.function.name", "\"bash\"" },
	{ "C6", MSG ".tool_calls.0.function.name", "\"bash\"" },
	{ "C6", MSG ".tool_calls.0.function.arguments", "\"{\\\"x\\\":1}\"" },
	{ "C7_out_of_order", MSG ".tool_calls.0.id", "\"a\"" },
	{ "C7_out_of_order", MSG ".tool_calls.1.id", "\"b\"" },
	{ "C8", MSG ".tool_calls.0.function.arguments",
	    "\"{\\\"city\\\":\\\"Ulm\\\",\\\"n\\\":1}\"" },
	{ "C9", MSG ".tool_calls.0.function.arguments",
	    "\"{\\\"path\\\":\\\"/tm\"" },
	{ "C9", "finish_reason", "\"length\"" },
	{ "C9", "metadata.tool_args_valid_json", "false" },
	{ "C9", "complete", "true" },
	{ "C10_interleaved", MSG ".tool_calls.0.function.arguments",
	    "\"{\\\"x\\\":1}\"" },
	{ "C10_interleaved", MSG ".tool_calls.1.function.arguments",
	    "\"{\\\"y\\\":2}\"" },
	{ "C11", MSG ".content", "\"\"" },
	{ "C11", MSG ".reasoning_content", "\"r\"" },
	{ "C11", MSG ".tool_calls", NULL },
	{ "C11", "complete", "false" },
	{ "C12", MSG ".function_call",
	    "{\"name\":\"f\",\"arguments\":\"{}\"}" },
	{ "C12", MSG ".tool_calls", NULL },
	{ "C12", "finish_reason", "\"function_call\"" },
	{ "D1", MSG ".reasoning", "\"hm\"" },
	{ "D1", MSG ".reasoning_content", "\"hm\"" },
	{ "D1", MSG ".reasoning_details.0.text", "\"hm\"" },
	{ "D1", "reasoning", "\"hm\"" },
	{ "D2", MSG ".tool_calls.0.extra_content.google.thought_signature",
	    "\"AAECAw==\"" },
	{ "D2", MSG ".reasoning_details.0.data", "\"zz\"" },
	{ "D2", "response.provider", "\"p\"" },
	{ "D3_refusal", MSG ".refusal", "\"I cannot\"" },
	{ "D3_refusal", MSG ".content", "null" },
	{ "D3_refusal", "response.choices.0.logprobs.refusal.0.logprob",
	    "-0.5" },
	{ "D4", "reasoning", "\"391\"" },
	{ "D4", MSG ".content", "\"\"" },
	{ "D5_surrogates_across", MSG ".content",
	    "\"smile \xf0\x9f\x98\x80 half \xef\xbf\xbd\"" },
	{ "D6_content_parts", MSG ".content.1.text", "\"4\"" },
	{ "E1", "aligned", "false" },
	{ "E1", "completion_token_ids", "[151657]" },
	{ "E1", "per_token_logps", "[-0.01]" },
	{ "E1", MSG ".tool_calls.0.function.name", "\"ls\"" },
	{ "E2", "completion_token_ids", "[1,9]" },
	{ "E2", "aligned", "false" },
	{ "E3", "prompt_token_ids", "[1,2,3]" },
	{ "E3", "completion_token_ids", "[77]" },
	{ "E3", "aligned", "true" },
	{ "E3", "metadata.id_sources",
	    "{\"choice.token_ids\":1,\"logprobs.id\":1}" },
	{ "E4", "completion_token_ids", "[40]" },
	{ "E4", "completion_tokens", "[\"token_id:40\"]" },
	{ "E4", "aligned", "true" },
	{ "E4_not_ids", "completion_token_ids", "[]" },
	{ "E4_not_ids", "aligned", "false" },
	{ "E5_output_ids", "completion_token_ids", "[5]" },
	{ "E5_gen_tokens", "completion_token_ids", "[6]" },
	{ "E6", "metadata.logprob_stats.zeros", "2" },
	{ "E7", "logprobs.0.top_logprobs.0.logprob", "-9999.0" },
	{ "E7", "logprobs.0.top_logprobs.1.logprob", "null" },
	{ "E7", "logprobs.0.top_logprobs.2.logprob", "null" },
	{ "E7", "metadata.logprob_stats.nonfinite", "2" },
	{ "E7", "per_token_logps", "[-0.1]" },
	{ "E7_sampled", "per_token_logps", "[-9999.0,null,null]" },
	{ "E7_sampled", "aligned", "false" },
	{ "E9", "per_token_logps", "[-4.2]" },
	{ "E9", "logprobs.0.top_logprobs.0.token", "\"dog\"" },
	{ "E10_no_logprob_member", "per_token_logps", "[-1]" },
	{ "E10_no_logprob_member", "aligned", "false" },
	{ "E11", "completion_tokens",
	    "[\"<think>\",\"2+2\",\"</think>\",\"4\"]" },
	{ "E11", MSG ".content", "\"4\"" },
	{ "E12", "logprobs", "[]" },
	{ "E12", "response.choices.0.logprobs", "null" },
	{ "G1", "response", "null" },
	{ "G1", "upstream_error.code", "502" },
	{ "G1", "complete", "false" },
	{ "G1", "metadata.partial_response.choices.0.message.content",
	    "\"par\"" },
	{ "G2_error_only", "upstream_error.code", "\"x\"" },
	{ "G3", "finish_reason", "\"abort\"" },
	{ "G3", "metadata.trainable", "false" },
	{ "G3", "complete", "false" },
	{ "G5_unknown_finish", "metadata.trainable", "false" },
	{ "G6_bad_json", "complete", "false" },
	{ "J5", MSG ".content", "\"a\\u0000b \\\\u0000\"" },
	{ "K2_duplicate_content", MSG ".content", "\"second\"" },
	{ "K3_escaped_names", MSG ".content", "\"a\"" },
	{ "K3_escaped_names", MSG ".xy", "1" },
	{ "K3_escaped_names", "completion_tokens", "[\"a\"]" },
	{ "K4", MSG ".content", "\"ab\"" },
	{ "full_vllm", "aligned", "true" },
	{ "full_vllm", "metadata.trainable", "true" },
	{ "full_vllm", "prompt_token_ids", "[9,8,7]" },
	{ "full_vllm", "findings", "[]" },
	{ "full_llamacpp", "completion_token_ids", "[77]" },
	{ "full_llamacpp", "response.timings.prompt_n", "4" },
	{ "full_openai", "response.obfuscation", NULL },
};

static const struct {
	const char *fixture, *code;
} findings[] = {
	{ "C4", "tool_args_invalid" },
	{ "C9", "tool_args_invalid" },
	{ "D5_surrogates_across", "lone_surrogate" },
	{ "E1", "count_mismatch" },
	{ "E2", "count_mismatch" },
	{ "E6_eight", "all_zero_logprobs" },
	{ "E7", "nonfinite_logprobs" },
	{ "E7_sampled", "nonfinite_logprobs" },
	{ "E8_disagree", "ids_disagree" },
	{ "E10_no_logprob_member", "count_mismatch" },
	{ "E12", "no_logprobs" },
	{ "E12", "no_token_ids" },
	{ "G1", "error_in_stream" },
	{ "G2_error_only", "error_in_stream" },
	{ "G3", "abort_finish" },
	{ "G5_unknown_finish", "unknown_finish_reason" },
	{ "G6_bad_json", "bad_json" },
	{ "K2_duplicate_content", "duplicate_keys" },
	{ "C11", "no_finish_reason" },
};

enum { KEEP_ALL = ASSEMBLE_LOGPROBS | ASSEMBLE_IDS };

static void
write_record(struct assemble *a, unsigned flags, struct buf *out)
{
	struct record r = { .session = VIEW("default"),
		.turn = 1,
		.turn_high = 1,
		.level = CONF_LEVEL_TOKENS,
		.flags = flags,
		.outcome = MESSAGE_OUTCOME_END,
		.status = 200,
		.request = VIEW("{\"model\":\"m\",\"temperature\":0.6,"
				"\"top_p\":0.95,\"messages\":[]}"),
		.assemble = a };

	buf_init(out, PEER_MAX);
	tap_ok(record_write(&r, out) == 0 && buf_add_char(out, '}') == 0 &&
		jscan_valid(buf_view(out), 0) == 0,
	    "a record of strict JSON");
}

static bool
record_of_stream(const char *name, struct buf *out)
{
	struct assemble a;
	unsigned flags = MESSAGE_TURN_STREAM;
	size_t n = 0;
	char *text;

	text = peer_slurp(name, &n);
	if (text == NULL)
		return false;
	assemble_init(&a, PEER_MAX, KEEP_ALL);
	peer_feed(&a, view_of(text, n), &flags);
	write_record(&a, flags, out);
	assemble_clear(&a);
	free(text);
	return true;
}

static void
record_of_body(struct view body, struct buf *out)
{
	struct assemble a;

	assemble_init(&a, PEER_MAX, KEEP_ALL);
	assemble_body(&a, body);
	write_record(&a, MESSAGE_TURN_STREAM, out);
	assemble_clear(&a);
}

static const char *const compared[] = { "response", "logprobs",
	"completion_tokens", "completion_token_ids", "per_token_logps",
	"prompt_token_ids", "finish_reason", "reasoning", "usage", "aligned",
	"complete" };

static void
same_records(struct view a, struct view b, const char *name)
{
	char what[200];
	size_t i;

	for (i = 0; i < sizeof(compared) / sizeof(compared[0]); i++) {
		struct view x = peer_at(a, compared[i]);
		struct view y = peer_at(b, compared[i]);

		if (view_eq(x, y))
			continue;
		snprintf(what, sizeof(what), "%s: %s as a stream and unary",
		    name, compared[i]);
		tap_is_mem(y.p, y.n, x.p, x.n, what);
		return;
	}
	tap_ok(true, "%s: the same as a stream and unary", name);
}

/* The assembled response, sent as a unary reply, gives the same record. */
static void
check_again(const char *name, struct view record)
{
	struct view response = peer_at(record, "response");
	struct buf body = BUF_INIT(PEER_MAX), again;
	struct view ids = peer_at(record, "prompt_token_ids");

	/* (what was no JSON is not in the response) */
	if (response.n == 0 || response.p[0] != '{' ||
	    peer_has_finding(record, "bad_json"))
		return;
	if (buf_add(&body, response.p, response.n - 1) != 0 ||
	    buf_printf(&body, ",\"prompt_token_ids\":%.*s}", VIEW_ARG(ids)) !=
		0)
		return;
	record_of_body(buf_view(&body), &again);
	same_records(record, buf_view(&again), name);
	buf_clear(&again);
	buf_clear(&body);
}

/* NAME.json is what the same server sends for the same reply, unary. */
static void
check_unary(const char *name, struct view record)
{
	struct buf again;
	size_t n = 0;
	char *text = peer_slurp(name, &n);

	if (text == NULL)
		return;
	record_of_body(view_of(text, n), &again);
	same_records(record, buf_view(&again), name);
	buf_clear(&again);
	free(text);
}

static void
check_wants(const char *fixture, struct view record)
{
	size_t i;

	for (i = 0; i < sizeof(wants) / sizeof(wants[0]); i++)
		if (strcmp(wants[i].fixture, fixture) == 0)
			peer_is(record, wants[i].path,
			    wants[i].value != NULL ? wants[i].value : "",
			    fixture);
	for (i = 0; i < sizeof(findings) / sizeof(findings[0]); i++)
		if (strcmp(findings[i].fixture, fixture) == 0)
			tap_ok(peer_has_finding(record, findings[i].code),
			    "%s: finding %s", fixture, findings[i].code);
}

static void
test_fixtures(void)
{
	struct buf record;
	char name[300];
	struct dirent *e;
	size_t n = 0;
	DIR *d = opendir(FIXTURES);

	while (d != NULL && (e = readdir(d)) != NULL) {
		size_t len = strlen(e->d_name);

		if (len < 5 || strcmp(e->d_name + len - 4, ".sse") != 0 ||
		    !record_of_stream(e->d_name, &record))
			continue;
		n++;
		snprintf(name, sizeof(name), "%.*s", (int)len - 4, e->d_name);
		check_wants(name, buf_view(&record));
		check_again(name, buf_view(&record));
		snprintf(name, sizeof(name), "%.*s.json", (int)len - 4,
		    e->d_name);
		check_unary(name, buf_view(&record));
		buf_clear(&record);
	}
	if (d != NULL)
		closedir(d);
	tap_ok(n >= 50, "all fixtures were there (%zu)", n);
}

/* Each table names only fixtures that exist. */
static void
test_tables(void)
{
	char name[300];
	size_t i, n;
	char *text;
	int missing = 0;

	for (i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
		snprintf(name, sizeof(name), "%s.sse", wants[i].fixture);
		text = peer_slurp(name, &n);
		missing += text == NULL;
		free(text);
	}
	tap_is_int(missing, 0, "the table names fixtures that are there");
}

/* Memory short at every allocation: never worse than a finding. */
static void
test_no_memory(const char *name)
{
	struct assemble a;
	unsigned flags = 0;
	struct buf out;
	unsigned long i, at = 0;
	size_t n = 0;
	char *text = peer_slurp(name, &n);
	int rc = SP_E_NOMEM;
	bool told = true;

	if (text == NULL)
		return;
	for (i = 1; i < 5000 && rc != 0; i++) {
		struct record r = { .session = VIEW("s"),
			.turn = 1,
			.level = CONF_LEVEL_TOKENS,
			.outcome = MESSAGE_OUTCOME_END,
			.assemble = &a };

		assemble_init(&a, PEER_MAX, KEEP_ALL);
		buf_init(&out, PEER_MAX);
		mem_fail_after(i, 1);
		peer_feed(&a, view_of(text, n), &flags);
		rc = record_write(&r, &out);
		mem_fail_after(0, 0);
		told = told && (rc == 0 || rc == SP_E_NOMEM);
		at = i;
		assemble_clear(&a);
		buf_clear(&out);
	}
	tap_ok(rc == 0 && told && at > 1, "%s: %lu allocations failed in turn",
	    name, at - 1);
	free(text);
}

/* Each single one fails: what was lost is told in the record. */
static void
test_one_lost(const char *name)
{
	struct assemble a;
	unsigned flags = 0;
	unsigned long i;
	size_t n = 0, silent = 0, all = 0;
	char *text = peer_slurp(name, &n);

	if (text == NULL)
		return;
	for (i = 0; i < 60; i++) { /* at first none */
		unsigned long before;

		assemble_init(&a, PEER_MAX, KEEP_ALL);
		mem_fail_after(i, 0);
		before = mem_count();
		peer_feed(&a, view_of(text, n), &flags);
		all = i == 0 ? a.hold.used : all;
		/* (without memory for it, no event is told to be a repeat) */
		if (mem_count() - before >= i && !a.hold.over &&
		    a.hold.used != all)
			silent++;
		mem_fail_after(0, 0);
		assemble_clear(&a);
	}
	tap_is_int((long long)silent, 0, "no loss goes untold");
	free(text);
}

/* Of what is replaced the bound gets some back, which hides what was added. */
static void
test_hidden_cost(void)
{
	struct assemble a;
	char event[400];
	unsigned pad, i, wrong = 0;

	for (pad = 0; pad < 120; pad++) {
		assemble_init(&a, 20000, KEEP_ALL);
		for (i = 0; i < 3; i++) {
			snprintf(event, sizeof(event),
			    "{\"x\":\"%0*d\",\"choices\":[{\"index\":0,"
			    "\"delta\":{\"content\":\"a\"},\"logprobs\":"
			    "{\"content\":[{\"token\":\"a\",\"logprob\":-1},"
			    "{\"token\":\"b\",\"logprob\":-2}]}}]}",
			    i == 0 ? pad + 1 : 1, 0);
			assemble_event(&a, view_str(event));
		}
		wrong += assemble_first(&a)->logps.entries.n != 6;
		assemble_clear(&a);
	}
	tap_is_int(wrong, 0,
	    "two entries in each event count, whatever else is replaced");
}

static void
test_bound(void)
{
	struct assemble a;
	struct buf record;
	char event[200];
	unsigned i;

	assemble_init(&a, 20000, KEEP_ALL);
	for (i = 0; i < 2000; i++) {
		snprintf(event, sizeof(event),
		    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w%u "
		    "\"},"
		    "\"token_ids\":[%u],\"logprobs\":{\"content\":[{\"token\":"
		    "\"w\",\"logprob\":-1}]}}]}",
		    i, i);
		assemble_event(&a, view_str(event));
	}
	assemble_event(&a,
	    VIEW("{\"choices\":[{\"index\":0,\"delta\":{},"
		 "\"finish_reason\":\"stop\"}]}"));
	tap_ok(a.hold.used <= 20000, "no more is held than the bound");
	write_record(&a, 0, &record);
	tap_ok(peer_has_finding(buf_view(&record), "truncated"),
	    "a turn over its bound is recorded as truncated");
	peer_is(buf_view(&record), "finish_reason", "\"stop\"", "truncated");
	peer_is(buf_view(&record), "aligned", "false", "truncated");
	peer_is(buf_view(&record), "metadata.trainable", "false", "truncated");
	buf_clear(&record);
	assemble_clear(&a);
}

/* What a level does not call for is not kept. */
static void
test_levels(void)
{
	static const char event[] =
	    "{\"prompt_token_ids\":[1],\"choices\":[{\"index\":0,\"delta\":{"
	    "\"content\":\"a\"},\"token_ids\":[7],\"logprobs\":{\"content\":[{"
	    "\"token\":\"a\",\"logprob\":-1}]},\"finish_reason\":\"stop\"}]}";
	struct buf record;
	struct assemble a;

	assemble_init(&a, PEER_MAX, 0);
	assemble_event(&a, view_str(event));
	write_record(&a, 0, &record);
	peer_is(buf_view(&record), "logprobs", "[]", "text");
	peer_is(buf_view(&record), "completion_token_ids", "[]", "text");
	peer_is(buf_view(&record), "prompt_token_ids", "[]", "text");
	buf_clear(&record);
	assemble_clear(&a);
	assemble_init(&a, PEER_MAX, ASSEMBLE_LOGPROBS);
	assemble_event(&a, view_str(event));
	write_record(&a, 0, &record);
	peer_is(buf_view(&record), "per_token_logps", "[-1]", "logprobs");
	peer_is(buf_view(&record), "completion_token_ids", "[]", "logprobs");
	buf_clear(&record);
	assemble_clear(&a);
}

static void
test_record_members(void)
{
	static const char *const order[] = { "turn", "session", "episode",
		"request", "response", "logprobs", "completion_tokens",
		"completion_token_ids", "per_token_logps", "prompt_token_ids",
		"finish_reason", "reasoning", "usage", "aligned", "latency_s",
		"ttft_s", "timestamp", "upstream_status", "upstream_error",
		"complete", "aborted", "findings", "metadata" };
	struct jscan_span key, v;
	struct buf record;
	struct jscan s;
	size_t i = 0;
	bool good;

	good = record_of_stream("full_vllm.sse", &record);
	jscan_init(&s, buf_view(&record), 0);
	good = good && jscan_enter(&s) == 0;
	while (good && jscan_member(&s, &key) == 1) {
		good = i < sizeof(order) / sizeof(order[0]) &&
		    jscan_is(&s, &key, view_str(order[i])) &&
		    jscan_skip(&s, &v) == 0;
		i++;
	}
	tap_ok(good && i == sizeof(order) / sizeof(order[0]),
	    "the members of a record, in order");
	peer_is(buf_view(&record), "metadata.sampling_params",
	    "{\"temperature\":0.6,\"top_p\":0.95}", "E13");
	peer_is(buf_view(&record), "metadata.node_id", "\"default/1\"", "id");
	buf_clear(&record);
}

/* Turns that end otherwise. */
static void
test_outcomes(void)
{
	static const struct {
		unsigned outcome;
		const char *body, *error, *finding, *want;
	} t[] = {
		{ MESSAGE_OUTCOME_STATUS, "{\"error\":{\"message\":\"m\"}}", "",
		    "error_status", "{\"message\":\"m\"}" },
		{ MESSAGE_OUTCOME_STATUS, "<html>\x01", "", "error_status",
		    "\"<html>\\u0001\"" },
		{ MESSAGE_OUTCOME_UPSTREAM, "",
		    "{\"error\":{\"type\":\"upstream_disconnect\"}}",
		    "upstream_disconnect",
		    "{\"type\":\"upstream_disconnect\"}" },
		{ MESSAGE_OUTCOME_CLIENT_GONE, "", "", "client_abort", "null" },
		{ MESSAGE_OUTCOME_SHUTDOWN, "", "", "shutdown", "null" },
		{ MESSAGE_OUTCOME_LOST, "", "", "recorder_lost", "null" },
	};
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct assemble a;
		struct buf out = BUF_INIT(PEER_MAX);
		struct record r = { .session = VIEW("s"),
			.turn = 3,
			.level = CONF_LEVEL_TOKENS,
			.outcome = t[i].outcome,
			.request = VIEW("not json"),
			.body = view_str(t[i].body),
			.error = view_str(t[i].error),
			.meta_open = VIEW("{\"path\":\"/v1\",\"node_id\":9,"
					  "\"a\":1,\"a\":2,\"z\":0}"),
			.meta_end = VIEW("{\"z\":3}"),
			.assemble = &a };

		assemble_init(&a, PEER_MAX, KEEP_ALL);
		tap_ok(record_write(&r, &out) == 0 &&
			buf_add_char(&out, '}') == 0,
		    "outcome %u", t[i].outcome);
		tap_ok(peer_has_finding(buf_view(&out), t[i].finding),
		    "finding %s", t[i].finding);
		peer_is(buf_view(&out), "upstream_error", t[i].want, "outcome");
		peer_is(buf_view(&out), "response", "null", "outcome");
		peer_is(buf_view(&out), "request", "null", "outcome");
		peer_is(buf_view(&out), "complete", "false", "outcome");
		peer_is(buf_view(&out), "metadata.node_id", "\"s/3\"", "meta");
		peer_is(buf_view(&out), "metadata.a", "2", "meta");
		peer_is(buf_view(&out), "metadata.z", "3", "meta");
		peer_is(buf_view(&out), "metadata.path", "\"/v1\"", "meta");
		buf_clear(&out);
		assemble_clear(&a);
	}
}

int
main(void)
{
	test_tables();
	test_fixtures();
	test_no_memory("full_vllm.sse");
	test_no_memory("B4_two_choices.sse");
	test_one_lost("full_vllm.sse");
	test_hidden_cost();
	test_bound();
	test_levels();
	test_record_members();
	test_outcomes();
	return tap_done();
}
