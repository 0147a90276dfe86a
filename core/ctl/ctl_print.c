#include "config.h"

#include <math.h>
#include <string.h>

#include "ctl/ctl_print.h"
#include "ctl/ctl_text.h"
#include "json/jtrain.h"
#include "json/jwrite.h"

enum { TEXT_MAX_BYTES = 1024 * 1024 * 1024 };

/* Background colours by probability, from sure to surprised. */
static const struct {
	double from; /* least log-probability */
	int colour;
} shades[] = {
	{ -0.105, 22 }, /* 90 % */
	{ -0.357, 28 }, /* 70 % */
	{ -0.693, 58 }, /* 50 % */
	{ -1.609, 94 }, /* 20 % */
	{ -3.0, 130 }, /* 5 % */
	{ (double)-INFINITY, 88 },
};

static void
tally(struct ctl_tally *v, size_t n, struct view name)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (v[i].n == 0) {
			if (name.n >= sizeof(v[i].name))
				name.n = sizeof(v[i].name) - 1;
			if (name.n > 0) /* a record may have none */
				memcpy(v[i].name, name.p, name.n);
			v[i].name[name.n] = '\0';
		} else if (!view_eq(view_str(v[i].name), name)) {
			continue;
		}
		v[i].n++;
		return;
	}
}

static struct view
unquoted(struct view v)
{
	return v.n >= 2 && v.p[0] == '"' ? view_sub(v, 1, v.n - 2) : v;
}

static void
add_logps(struct ctl_totals *t, struct view list)
{
	struct jscan_span v;
	struct jscan s;
	double d;

	jscan_init(&s, list, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY || jscan_enter(&s) != 0)
		return;
	while (jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0) {
		if (v.kind != JSCAN_NUMBER || jscan_double(&s, &v, &d) != 0)
			continue;
		t->logps++;
		t->logp_sum += d;
	}
}

static void
add_findings(struct ctl_totals *t, struct view list)
{
	struct jscan_span v;
	struct jscan s;

	jscan_init(&s, list, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY || jscan_enter(&s) != 0)
		return;
	while (jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0)
		tally(t->findings, CTL_FINDING_KINDS,
		    unquoted(jscan_raw(&s, &v)));
}

static bool
is_trainable(const struct ctl_record *r, bool any_tools)
{
	struct jtrain_turn t = jtrain_read(r->v[CTL_COMPLETE],
	    r->v[CTL_ALIGNED], r->v[CTL_METADATA]);

	return jtrain_is(&t, any_tools);
}

void
ctl_print_add(struct ctl_totals *t, const struct ctl_record *r, bool any_tools)
{
	struct view usage = r->v[CTL_USAGE];

	t->turns++;
	t->complete += ctl_record_true(r, CTL_COMPLETE);
	t->aligned += ctl_record_true(r, CTL_ALIGNED);
	t->aborted += ctl_record_true(r, CTL_ABORTED);
	t->errors +=
	    r->v[CTL_ERROR].n > 0 && !view_eq(r->v[CTL_ERROR], VIEW("null"));
	t->trainable += is_trainable(r, any_tools);
	t->prompt_tokens +=
	    ctl_record_number(ctl_record_get(usage, VIEW("prompt_tokens")));
	t->completion_tokens +=
	    ctl_record_number(ctl_record_get(usage, VIEW("completion_tokens")));
	add_logps(t, r->v[CTL_LOGPS]);
	tally(t->finish, CTL_FINISH_KINDS, unquoted(r->v[CTL_FINISH]));
	add_findings(t, r->v[CTL_FINDINGS]);
}

static const char *
seal_text(enum ctl_seal s)
{
	switch (s) {
	case CTL_SEAL_NONE:
		return "none";
	case CTL_SEAL_GOOD:
		return "good";
	case CTL_SEAL_BAD:
		return "does not fit the file";
	case CTL_SEAL_FORGED:
		return "its signature is not good";
	case CTL_SEAL_KEY:
		return "signed by a key that is not beside it";
	}
	return "?";
}

static void
print_tallies(FILE *out, const char *what, const struct ctl_tally *v, size_t n)
{
	size_t i;

	if (v[0].n == 0)
		return;
	(void)fprintf(out, "%s", what);
	for (i = 0; i < n && v[i].n > 0; i++) {
		(void)fprintf(out, "%s", i > 0 ? ", " : " ");
		ctl_text_print(out, view_str(v[i].name), NULL);
		(void)fprintf(out, " %llu", (unsigned long long)v[i].n);
	}
	(void)fprintf(out, "\n");
}

static void
print_missing(FILE *out, const struct ctl_missing *m)
{
	size_t i;

	if (m->turns == 0)
		return;
	(void)fprintf(out, "missing %llu: no record of turn",
	    (unsigned long long)m->turns);
	for (i = 0; i < m->ranges_n; i++) {
		(void)fprintf(out, "%s %llu", i > 0 ? "," : "",
		    (unsigned long long)m->range[i].from);
		if (m->range[i].to > m->range[i].from)
			(void)fprintf(out, "-%llu",
			    (unsigned long long)m->range[i].to);
	}
	if (m->more > 0)
		(void)fprintf(out, " and %llu more",
		    (unsigned long long)m->more);
	(void)fprintf(out, "%s\n",
	    m->in_use ? "; open still, open when sallyport or its recorder was "
			"killed, or not written (the log tells)"
		      : "; open when sallyport or its recorder was killed, or "
			"not written (the log tells)");
}

void
ctl_print_totals(FILE *out, const struct ctl_totals *t,
    const struct ctl_verify *v)
{
	(void)fprintf(out,
	    "turns %llu: complete %llu, aligned %llu, aborted %llu, errors "
	    "%llu, trainable %llu\n",
	    (unsigned long long)t->turns, (unsigned long long)t->complete,
	    (unsigned long long)t->aligned, (unsigned long long)t->aborted,
	    (unsigned long long)t->errors, (unsigned long long)t->trainable);
	(void)fprintf(out, "tokens: prompt %llu, completion %llu",
	    (unsigned long long)t->prompt_tokens,
	    (unsigned long long)t->completion_tokens);
	if (t->logps > 0)
		(void)fprintf(out, "; log-probabilities %llu, mean %.4f",
		    (unsigned long long)t->logps,
		    t->logp_sum / (double)t->logps);
	(void)fprintf(out, "\n");
	print_tallies(out, "finish_reason:", t->finish, CTL_FINISH_KINDS);
	print_tallies(out, "findings:", t->findings, CTL_FINDING_KINDS);
	if (v->broken_line > 0)
		(void)fprintf(out, "chain: broken at line %llu: %s\n",
		    (unsigned long long)v->broken_line, v->why);
	else
		(void)fprintf(out, "chain: good%s\n",
		    !v->continues         ? ""
			: v->before_found ? ", continues the file before"
					  : ", continues a file that is not "
					    "here");
	(void)fprintf(out, "seal: %s", seal_text(v->seal));
	if (v->seal == CTL_SEAL_GOOD && v->facts.turns < v->lines)
		(void)fprintf(out, ", for the first %llu turns",
		    (unsigned long long)v->facts.turns);
	(void)fprintf(out, "\n");
	print_missing(out, &v->missing);
	if (v->torn > 0)
		(void)fprintf(out,
		    "torn: a last line of %llu bytes is "
		    "skipped\n",
		    (unsigned long long)v->torn);
}

static void
write_tallies(struct jwrite *w, const char *key, const struct ctl_tally *v,
    size_t n)
{
	size_t i;

	jwrite_key(w, key);
	jwrite_object(w);
	for (i = 0; i < n && v[i].n > 0; i++) {
		jwrite_key(w, v[i].name);
		jwrite_u64(w, v[i].n);
	}
	jwrite_end_object(w);
}

static void
write_count(struct jwrite *w, const char *key, uint64_t n)
{
	jwrite_key(w, key);
	jwrite_u64(w, n);
}

static void
write_missing(struct jwrite *w, const struct ctl_missing *m)
{
	size_t i;

	write_count(w, "missing_turns", m->turns);
	jwrite_key(w, "missing");
	jwrite_array(w);
	for (i = 0; i < m->ranges_n; i++) {
		jwrite_array(w);
		jwrite_u64(w, m->range[i].from);
		jwrite_u64(w, m->range[i].to);
		jwrite_end_array(w);
	}
	jwrite_end_array(w);
	write_count(w, "missing_more", m->more);
	jwrite_key(w, "in_use");
	jwrite_bool(w, m->in_use);
}

static int
print_line(FILE *out, struct jwrite *w, struct buf *b)
{
	int rc = jwrite_finish(w);

	if (rc == 0)
		(void)(fwrite(buf_view(b).p, 1, buf_len(b), out) ==
			buf_len(b) &&
		    fputc('\n', out));
	buf_clear(b);
	return rc;
}

int
ctl_print_totals_json(FILE *out, const struct ctl_totals *t,
    const struct ctl_verify *v)
{
	struct buf b = BUF_INIT(TEXT_MAX_BYTES);
	struct jwrite w;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	write_count(&w, "turns", t->turns);
	write_count(&w, "complete", t->complete);
	write_count(&w, "aligned", t->aligned);
	write_count(&w, "aborted", t->aborted);
	write_count(&w, "errors", t->errors);
	write_count(&w, "trainable", t->trainable);
	write_count(&w, "prompt_tokens", t->prompt_tokens);
	write_count(&w, "completion_tokens", t->completion_tokens);
	write_count(&w, "logprobs", t->logps);
	jwrite_key(&w, "logprob_mean");
	jwrite_double(&w,
	    t->logps > 0 ? t->logp_sum / (double)t->logps : (double)NAN);
	write_tallies(&w, "finish_reason", t->finish, CTL_FINISH_KINDS);
	write_tallies(&w, "findings", t->findings, CTL_FINDING_KINDS);
	jwrite_key(&w, "chain");
	jwrite_cstr(&w, v->broken_line == 0 ? "good" : "broken");
	write_count(&w, "broken_line", v->broken_line);
	jwrite_key(&w, "seal");
	jwrite_cstr(&w, seal_text(v->seal));
	write_count(&w, "torn_bytes", v->torn);
	write_missing(&w, &v->missing);
	jwrite_end_object(&w);
	return print_line(out, &w, &b);
}

/* One token, shaded on a terminal, else with its log-probability. */
static void
print_token(FILE *out, struct view token, const struct jscan *ls,
    const struct jscan_span *lv, bool colour)
{
	struct buf text = BUF_INIT(TEXT_MAX_BYTES);
	double d = 0;
	bool known = lv->kind == JSCAN_NUMBER && jscan_double(ls, lv, &d) == 0;
	size_t i = 0;

	if (ctl_record_string(token, &text) != 0)
		buf_reset(&text, 0);
	if (colour && known) {
		while (d < shades[i].from)
			i++;
		(void)fprintf(out, "\033[48;5;%dm", shades[i].colour);
		ctl_text_print(out, buf_view(&text), NULL);
		(void)fprintf(out, "\033[0m");
	} else if (colour) {
		ctl_text_print(out, buf_view(&text), NULL);
	} else {
		(void)fputc(' ', out);
		ctl_text_quote(out, buf_view(&text));
		if (known)
			(void)fprintf(out, " %.4g", d);
		else
			(void)fprintf(out, " ?");
	}
	buf_clear(&text);
}

static void
print_tokens(FILE *out, const struct ctl_record *r, bool colour)
{
	struct jscan_span tv, lv;
	struct jscan ts, ls;

	jscan_init(&ts, r->v[CTL_TOKENS], 0);
	jscan_init(&ls, r->v[CTL_LOGPS], 0);
	if (ctl_record_count(r->v[CTL_TOKENS]) == 0 || jscan_enter(&ts) != 0 ||
	    jscan_enter(&ls) != 0)
		return;
	(void)fprintf(out, "  tokens:%s", colour ? " " : "");
	while (jscan_element(&ts) == 1 && jscan_skip(&ts, &tv) == 0) {
		if (jscan_element(&ls) != 1 || jscan_skip(&ls, &lv) != 0)
			lv.kind = JSCAN_NONE;
		print_token(out, jscan_raw(&ts, &tv), &ls, &lv, colour);
	}
	(void)fprintf(out, "\n");
}

static void
print_string(FILE *out, const char *label, struct view text)
{
	struct buf b = BUF_INIT(TEXT_MAX_BYTES);

	if (ctl_record_string(text, &b) == 0 && buf_len(&b) > 0) {
		(void)fprintf(out, "  %s: ", label);
		ctl_text_print(out, buf_view(&b), "    ");
		(void)fprintf(out, "\n");
	}
	buf_clear(&b);
}

static void
print_call(FILE *out, struct view call)
{
	struct view fn = ctl_record_get(call, VIEW("function"));
	struct buf b = BUF_INIT(TEXT_MAX_BYTES);

	(void)fprintf(out, "  call: ");
	if (ctl_record_string(ctl_record_get(fn, VIEW("name")), &b) == 0)
		ctl_text_print(out, buf_view(&b), NULL);
	buf_reset(&b, SIZE_MAX);
	(void)fprintf(out, "(");
	if (ctl_record_string(ctl_record_get(fn, VIEW("arguments")), &b) == 0)
		ctl_text_print(out, buf_view(&b), NULL);
	(void)fprintf(out, ")\n");
	buf_clear(&b);
}

/* The message of the first choice. */
static struct view
message_of(const struct ctl_record *r)
{
	struct view response = r->v[CTL_RESPONSE], choices;
	struct jscan_span v;
	struct jscan s;

	if (response.n == 0 || response.p[0] != '{')
		response = ctl_record_get(r->v[CTL_METADATA],
		    VIEW("partial_response"));
	choices = ctl_record_get(response, VIEW("choices"));
	jscan_init(&s, choices, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY || jscan_enter(&s) != 0 ||
	    jscan_element(&s) != 1 || jscan_skip(&s, &v) != 0)
		return VIEW_NONE;
	return ctl_record_get(jscan_raw(&s, &v), VIEW("message"));
}

static void
print_message(FILE *out, const struct ctl_record *r)
{
	struct view message = message_of(r);
	struct view calls = ctl_record_get(message, VIEW("tool_calls"));
	struct jscan_span v;
	struct jscan s;

	print_string(out, "reasoning", r->v[CTL_REASONING]);
	print_string(out, "content", ctl_record_get(message, VIEW("content")));
	print_string(out, "refusal", ctl_record_get(message, VIEW("refusal")));
	jscan_init(&s, calls, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY || jscan_enter(&s) != 0)
		return;
	while (jscan_element(&s) == 1 && jscan_skip(&s, &v) == 0)
		print_call(out, jscan_raw(&s, &v));
}

void
ctl_print_turn(FILE *out, const struct ctl_record *r, bool colour)
{
	struct view error = r->v[CTL_ERROR];

	(void)fprintf(out, "turn %llu  ",
	    (unsigned long long)ctl_record_number(r->v[CTL_TURN]));
	ctl_text_print(out, unquoted(r->v[CTL_FINISH]), NULL);
	(void)fprintf(out, "  %zu tokens, %zu ids, %zu log-probabilities",
	    ctl_record_count(r->v[CTL_TOKENS]), ctl_record_count(r->v[CTL_IDS]),
	    ctl_record_count(r->v[CTL_LOGPS]));
	(void)fprintf(out, "%s%s%s  ",
	    ctl_record_true(r, CTL_ALIGNED) ? "  aligned" : "",
	    ctl_record_true(r, CTL_COMPLETE) ? "  complete" : "  incomplete",
	    ctl_record_true(r, CTL_ABORTED) ? "  aborted" : "");
	ctl_text_print(out, r->v[CTL_LATENCY], NULL);
	(void)fprintf(out, " s\n");
	if (ctl_record_count(r->v[CTL_FINDINGS]) > 0) {
		(void)fprintf(out, "  findings: ");
		ctl_text_print(out, r->v[CTL_FINDINGS], NULL);
		(void)fprintf(out, "\n");
	}
	if (error.n > 0 && !view_eq(error, VIEW("null"))) {
		(void)fprintf(out, "  error: ");
		ctl_text_print(out, error, NULL);
		(void)fprintf(out, "\n");
	}
	print_message(out, r);
	print_tokens(out, r, colour);
}

static void
copy_member(struct jwrite *w, const char *key, struct view v)
{
	jwrite_key(w, key);
	jwrite_span(w, v.n > 0 ? v : VIEW("null"));
}

int
ctl_print_turn_json(FILE *out, const struct ctl_record *r)
{
	struct buf b = BUF_INIT(TEXT_MAX_BYTES);
	struct jwrite w;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	copy_member(&w, "turn", r->v[CTL_TURN]);
	copy_member(&w, "session", r->v[CTL_SESSION]);
	copy_member(&w, "finish_reason", r->v[CTL_FINISH]);
	copy_member(&w, "complete", r->v[CTL_COMPLETE]);
	copy_member(&w, "aligned", r->v[CTL_ALIGNED]);
	copy_member(&w, "aborted", r->v[CTL_ABORTED]);
	copy_member(&w, "findings", r->v[CTL_FINDINGS]);
	copy_member(&w, "upstream_status", r->v[CTL_STATUS]);
	copy_member(&w, "upstream_error", r->v[CTL_ERROR]);
	copy_member(&w, "latency_s", r->v[CTL_LATENCY]);
	copy_member(&w, "ttft_s", r->v[CTL_TTFT]);
	copy_member(&w, "timestamp", r->v[CTL_TIMESTAMP]);
	copy_member(&w, "reasoning", r->v[CTL_REASONING]);
	copy_member(&w, "message", message_of(r));
	copy_member(&w, "completion_tokens", r->v[CTL_TOKENS]);
	copy_member(&w, "per_token_logps", r->v[CTL_LOGPS]);
	copy_member(&w, "usage", r->v[CTL_USAGE]);
	jwrite_end_object(&w);
	return print_line(out, &w, &b);
}

static void
write_mask(struct jwrite *w, size_t zeros, size_t ones)
{
	size_t i;

	jwrite_key(w, "loss_mask");
	jwrite_array(w);
	for (i = 0; i < zeros + ones; i++)
		jwrite_raw(w, i < zeros ? VIEW("0") : VIEW("1"));
	jwrite_end_array(w);
}

int
ctl_print_train(FILE *out, const struct ctl_record *r, bool any_tools)
{
	struct buf b = BUF_INIT(TEXT_MAX_BYTES);
	struct view node = ctl_record_get(r->v[CTL_METADATA], VIEW("node_id"));
	struct jwrite w;
	int rc;

	if (!is_trainable(r, any_tools))
		return 0;
	jwrite_init(&w, &b);
	jwrite_object(&w);
	copy_member(&w, "node_id", node);
	copy_member(&w, "turn", r->v[CTL_TURN]);
	copy_member(&w, "request", r->v[CTL_REQUEST]);
	copy_member(&w, "response", r->v[CTL_RESPONSE]);
	copy_member(&w, "prompt_token_ids", r->v[CTL_PROMPT_IDS]);
	copy_member(&w, "completion_token_ids", r->v[CTL_IDS]);
	copy_member(&w, "completion_tokens", r->v[CTL_TOKENS]);
	copy_member(&w, "per_token_logps", r->v[CTL_LOGPS]);
	write_mask(&w, ctl_record_count(r->v[CTL_PROMPT_IDS]),
	    ctl_record_count(r->v[CTL_IDS]));
	copy_member(&w, "finish_reason", r->v[CTL_FINISH]);
	jwrite_key(&w, "role");
	jwrite_cstr(&w, "agent");
	jwrite_key(&w, "purpose");
	jwrite_cstr(&w, "agent");
	copy_member(&w, "metadata", r->v[CTL_METADATA]);
	jwrite_end_object(&w);
	rc = print_line(out, &w, &b);
	return rc == 0 ? 1 : rc;
}
