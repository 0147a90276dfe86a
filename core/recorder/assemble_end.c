/* The end of an assembly: counts compared, and the object written. */
#include "config.h"

#include "recorder/assemble.h"
#include "recorder/finding.h"

enum { ALL_ZERO_MIN = 8 };

const struct accum_ids *
assemble_ids(const struct assemble *a, const struct assemble_choice *c,
    enum assemble_source source)
{
	switch (source) {
	case ASSEMBLE_TOP_TOKEN_IDS:
		return &a->top_ids;
	case ASSEMBLE_ENTRY_ID:
		return &c->logps.ids;
	case ASSEMBLE_ENTRY_TEXT:
		return &c->logps.text_ids;
	case ASSEMBLE_CHOICE_TOKEN_IDS:
	case ASSEMBLE_CHOICE_OUTPUT_IDS:
	case ASSEMBLE_DELTA_TOKEN_IDS:
	case ASSEMBLE_DELTA_GEN_TOKENS:
		return &c->ids[source];
	case ASSEMBLE_SOURCES:
		break;
	}
	err_assert(source < ASSEMBLE_SOURCES);
	return NULL;
}

const char *
assemble_source_name(enum assemble_source source)
{
	static const char *const names[] = {
		[ASSEMBLE_CHOICE_TOKEN_IDS] = "choice.token_ids",
		[ASSEMBLE_CHOICE_OUTPUT_IDS] = "choice.output_ids",
		[ASSEMBLE_DELTA_TOKEN_IDS] = "delta.token_ids",
		[ASSEMBLE_DELTA_GEN_TOKENS] = "delta.gen_tokens",
		[ASSEMBLE_TOP_TOKEN_IDS] = "token_ids",
		[ASSEMBLE_ENTRY_ID] = "logprobs.id",
		[ASSEMBLE_ENTRY_TEXT] = "logprobs.token",
	};

	return source < ASSEMBLE_SOURCES ? names[source] : NULL;
}

static void
read_usage(struct assemble *a)
{
	struct view usage = accum_extras_get(&a->extra, VIEW("usage"));
	struct jscan_span v;
	struct jscan s;

	if (usage.n == 0 || usage.p[0] != '{' ||
	    jscan_find(usage, VIEW("completion_tokens"), &v) != 1)
		return;
	jscan_init(&s, usage, 0);
	a->has_usage_tokens = v.kind == JSCAN_NUMBER &&
	    jscan_i64(&s, &v, &a->usage_tokens) == 0 && a->usage_tokens >= 0;
}

/* Usage speaks of all choices together. */
static bool
usage_fits(const struct assemble *a, size_t n)
{
	return !a->has_usage_tokens || a->choices_n != 1 ||
	    a->usage_tokens == (int64_t)n;
}

/* The source that has as many ids as there are tokens, else the longest. */
static const struct accum_ids *
choose_ids(const struct assemble *a, const struct assemble_choice *c)
{
	const struct accum_ids *ids, *longest = NULL, *counted = NULL;
	int i;

	for (i = 0; i < ASSEMBLE_SOURCES; i++) {
		ids = assemble_ids(a, c, (enum assemble_source)i);
		if (ids->n == 0 ||
		    (i == ASSEMBLE_TOP_TOKEN_IDS && a->choices_n != 1))
			continue;
		if (!ids->bad && ids->n == c->logps.entries.n)
			return ids;
		if (counted == NULL && !ids->bad && a->has_usage_tokens &&
		    usage_fits(a, ids->n))
			counted = ids;
		if (longest == NULL || ids->n > longest->n)
			longest = ids;
	}
	return counted != NULL ? counted : longest;
}

static void
compare_sources(const struct assemble *a, struct assemble_choice *c)
{
	const struct accum_ids *ids;
	int i;

	for (i = 0; i < ASSEMBLE_SOURCES; i++) {
		ids = assemble_ids(a, c, (enum assemble_source)i);
		if (ids->bad)
			c->findings |= FINDING_IDS_INVALID;
		if (ids->n == 0 || c->chosen == NULL || ids == c->chosen ||
		    (i == ASSEMBLE_TOP_TOKEN_IDS && a->choices_n != 1))
			continue;
		if (ids->n != c->chosen->n)
			c->findings |= FINDING_IDS_INCOMPLETE;
		else if (!accum_ids_same(ids, c->chosen))
			c->findings |= FINDING_IDS_DISAGREE;
	}
}

static void
compare_counts(const struct assemble *a, struct assemble_choice *c)
{
	const struct logps *l = &c->logps;
	size_t ids = c->chosen != NULL ? c->chosen->n : 0;
	size_t n = l->entries.n;
	bool same = l->tokens.n == n && l->values.n == n &&
	    (ids == n || ids == 0 || n == 0);

	if (n > 0 || ids > 0)
		same = same && usage_fits(a, n > 0 ? n : ids);
	if (!same)
		c->findings |= FINDING_COUNT_MISMATCH;
	c->aligned =
	    same && n > 0 && ids == n && l->nonfinite == 0 && !c->chosen->bad;
	if (l->nonfinite > 0)
		c->findings |= FINDING_NONFINITE;
	if (l->positive > 0)
		c->findings |= FINDING_POSITIVE;
	if (l->valued >= ALL_ZERO_MIN && l->zeros == l->valued)
		c->findings |= FINDING_ALL_ZERO;
}

static void
judge_finish(struct assemble_choice *c)
{
	static const struct view known[] = { { "stop", 4 }, { "length", 6 },
		{ "tool_calls", 10 }, { "function_call", 13 },
		{ "content_filter", 14 } };
	static const struct view gave_up[] = { { "abort", 5 }, { "aborted", 7 },
		{ "error", 5 }, { "cancelled", 9 } };
	struct view v = buf_view(&c->finish_reason.raw);
	size_t i;

	if (!c->finish_reason.seen)
		return;
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (view_eq(v, known[i]))
			return;
	for (i = 0; i < sizeof(gave_up) / sizeof(gave_up[0]); i++)
		if (view_eq(v, gave_up[i]))
			c->findings |= FINDING_ABORT_FINISH;
	if ((c->findings & FINDING_ABORT_FINISH) == 0)
		c->findings |= FINDING_UNKNOWN_FINISH;
}

static void
judge_content(struct assemble_choice *c)
{
	const struct accum_text *reasoning = assemble_reasoning(c);
	size_t i;

	for (i = 0; i < c->tools.n; i++) {
		if (c->tools.v[i].conflict)
			c->findings |= FINDING_NAME_CONFLICT;
		if (toolcall_args_valid(&c->tools.v[i]) == 0)
			c->findings |= FINDING_ARGS_INVALID;
	}
	if (accum_text_empty(&c->content) && accum_text_empty(&c->refusal) &&
	    c->parts.n == 0 && c->tools.n == 0 && !c->fn_seen &&
	    (reasoning == NULL || accum_text_empty(reasoning)))
		c->findings |= FINDING_EMPTY;
}

void
assemble_finish(struct assemble *a)
{
	struct assemble_choice *c;
	size_t i;

	read_usage(a);
	a->completed = a->choices_n > 0;
	for (i = 0; i < a->choices_n; i++) {
		c = a->choices[i];
		c->chosen = choose_ids(a, c);
		compare_sources(a, c);
		compare_counts(a, c);
		judge_finish(c);
		judge_content(c);
		if (!c->finish_reason.seen ||
		    (c->findings & FINDING_ABORT_FINISH) != 0 ||
		    accum_text_empty(&c->finish_reason))
			a->completed = false;
		if (!c->finish_reason.seen)
			a->findings |= FINDING_NO_FINISH;
		a->findings |= c->findings;
	}
	if (a->prompt_ids.bad)
		a->findings |= FINDING_IDS_INVALID;
	if (!a->hold.over)
		return;
	a->findings |= FINDING_TRUNCATED;
	for (i = 0; i < a->choices_n; i++)
		a->choices[i]->aligned = false;
}

const struct accum_text *
assemble_reasoning(const struct assemble_choice *c)
{
	/* the same text may come under both names: case D1 */
	if (!accum_text_empty(&c->reasoning_content))
		return &c->reasoning_content;
	if (c->reasoning.seen && !accum_text_empty(&c->reasoning))
		return &c->reasoning;
	return NULL;
}

static void
write_optional(const char *key, const struct accum_text *t, struct jwrite *w)
{
	if (accum_text_empty(t))
		return;
	jwrite_key(w, key);
	accum_text_write(t, w);
}

/*
 * One form for "nothing was said": null beside a call or a refusal, else the
 * empty string.  (A stream may begin with "" where the unary reply has null.)
 */
static void
write_content(const struct assemble_choice *c, struct jwrite *w)
{
	jwrite_key(w, "content");
	if (!accum_text_empty(&c->content))
		accum_text_write(&c->content, w);
	else if (c->parts.n > 0)
		accum_list_write(&c->parts, w);
	else if (c->tools.n > 0 || c->fn_seen || !accum_text_empty(&c->refusal))
		jwrite_null(w);
	else
		jwrite_cstr(w, "");
	if (!accum_text_empty(&c->content) && c->parts.n > 0) {
		jwrite_key(w, "content_parts");
		accum_list_write(&c->parts, w);
	}
}

static void
write_message(struct assemble_choice *c, struct jwrite *w)
{
	jwrite_object(w);
	jwrite_key(w, "role");
	if (accum_text_empty(&c->role))
		jwrite_cstr(w, "assistant");
	else
		accum_text_write(&c->role, w);
	write_content(c, w);
	write_optional("reasoning", &c->reasoning, w);
	write_optional("reasoning_content", &c->reasoning_content, w);
	if (c->details.n > 0) {
		jwrite_key(w, "reasoning_details");
		accum_list_write(&c->details, w);
	}
	write_optional("refusal", &c->refusal, w);
	if (c->tools.n > 0) {
		jwrite_key(w, "tool_calls");
		toolcall_write(&c->tools, w);
	}
	if (c->fn_seen) {
		jwrite_key(w, "function_call");
		jwrite_object(w);
		jwrite_key(w, "name");
		accum_text_write(&c->fn_name, w);
		jwrite_key(w, "arguments");
		accum_text_write(&c->fn_args, w);
		jwrite_end_object(w);
	}
	accum_extras_write(&c->message_extra, w);
	jwrite_end_object(w);
}

static void
write_choice(struct assemble_choice *c, struct jwrite *w)
{
	jwrite_object(w);
	jwrite_key(w, "index");
	jwrite_i64(w, c->index);
	jwrite_key(w, "message");
	write_message(c, w);
	jwrite_key(w, "logprobs");
	logps_write(&c->logps, w);
	jwrite_key(w, "finish_reason");
	if (c->finish_reason.seen)
		accum_text_write(&c->finish_reason, w);
	else
		jwrite_null(w);
	if (c->chosen != NULL) {
		jwrite_key(w, "token_ids");
		accum_ids_write(c->chosen, w);
	}
	accum_extras_write(&c->extra, w);
	jwrite_end_object(w);
}

void
assemble_write(struct assemble *a, struct jwrite *w)
{
	size_t i;

	jwrite_object(w);
	jwrite_key(w, "id");
	if (accum_text_empty(&a->id))
		jwrite_null(w);
	else
		accum_text_write(&a->id, w);
	jwrite_key(w, "object");
	jwrite_cstr(w, "chat.completion");
	jwrite_key(w, "created");
	if (accum_text_empty(&a->created))
		jwrite_null(w);
	else
		jwrite_raw(w, buf_view(&a->created.raw));
	jwrite_key(w, "model");
	if (accum_text_empty(&a->model))
		jwrite_null(w);
	else
		accum_text_write(&a->model, w);
	jwrite_key(w, "choices");
	jwrite_array(w);
	for (i = 0; i < a->choices_n; i++)
		write_choice(a->choices[i], w);
	jwrite_end_array(w);
	accum_extras_write(&a->extra, w);
	jwrite_end_object(w);
}
