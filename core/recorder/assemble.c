#include "config.h"

#include <string.h>

#include "base/mem.h"
#include "recorder/assemble.h"
#include "recorder/finding.h"

enum { FINISH_MAX = 256 }; /* bytes of a finish_reason */

enum {
	TOP_ID,
	TOP_OBJECT,
	TOP_CREATED,
	TOP_MODEL,
	TOP_CHOICES,
	TOP_ERROR,
	TOP_PROMPT_IDS,
	TOP_TOKEN_IDS,
	TOP_OUTPUT_IDS,
	TOP_PADDING,
};
static const struct view top_keys[] = { { "id", 2 }, { "object", 6 },
	{ "created", 7 }, { "model", 5 }, { "choices", 7 }, { "error", 5 },
	{ "prompt_token_ids", 16 }, { "token_ids", 9 }, { "output_ids", 10 },
	{ "obfuscation", 11 }, { NULL, 0 } };

enum {
	CHOICE_INDEX,
	CHOICE_DELTA,
	CHOICE_MESSAGE,
	CHOICE_LOGPROBS,
	CHOICE_FINISH,
	CHOICE_TOKEN_IDS,
	CHOICE_OUTPUT_IDS,
	CHOICE_PROMPT_IDS,
};
static const struct view choice_keys[] = { { "index", 5 }, { "delta", 5 },
	{ "message", 7 }, { "logprobs", 8 }, { "finish_reason", 13 },
	{ "token_ids", 9 }, { "output_ids", 10 }, { "prompt_token_ids", 16 },
	{ NULL, 0 } };

enum {
	DELTA_ROLE,
	DELTA_CONTENT,
	DELTA_REASONING,
	DELTA_REASONING_CONTENT,
	DELTA_REFUSAL,
	DELTA_DETAILS,
	DELTA_TOOL_CALLS,
	DELTA_FUNCTION,
	DELTA_TOKEN_IDS,
	DELTA_GEN_TOKENS,
	DELTA_INDEX, /* some servers repeat it; nothing of the message's */
};
static const struct view delta_keys[] = { { "role", 4 }, { "content", 7 },
	{ "reasoning", 9 }, { "reasoning_content", 17 }, { "refusal", 7 },
	{ "reasoning_details", 17 }, { "tool_calls", 10 },
	{ "function_call", 13 }, { "token_ids", 9 }, { "gen_tokens", 10 },
	{ "index", 5 }, { NULL, 0 } };

enum { FN_NAME, FN_ARGUMENTS };
static const struct view fn_keys[] = { { "name", 4 }, { "arguments", 9 },
	{ NULL, 0 } };

void
assemble_init(struct assemble *a, size_t max_bytes, unsigned keep)
{
	*a = (struct assemble){ .keep = keep };
	a->hold.max = max_bytes;
}

static void
choice_free(struct assemble_choice *c)
{
	size_t i;

	accum_text_clear(&c->role);
	accum_text_clear(&c->content);
	accum_text_clear(&c->reasoning);
	accum_text_clear(&c->reasoning_content);
	accum_text_clear(&c->refusal);
	accum_text_clear(&c->finish_reason);
	accum_list_clear(&c->details);
	accum_list_clear(&c->parts);
	toolcall_clear(&c->tools);
	accum_text_clear(&c->fn_name);
	accum_text_clear(&c->fn_args);
	logps_clear(&c->logps);
	for (i = 0; i < sizeof(c->ids) / sizeof(c->ids[0]); i++)
		accum_ids_clear(&c->ids[i]);
	accum_extras_clear(&c->extra);
	accum_extras_clear(&c->message_extra);
	mem_free(c);
}

void
assemble_clear(struct assemble *a)
{
	size_t i;

	for (i = 0; i < a->choices_n; i++)
		choice_free(a->choices[i]);
	mem_free(a->choices);
	accum_text_clear(&a->id);
	accum_text_clear(&a->model);
	accum_text_clear(&a->created);
	accum_extras_clear(&a->extra);
	buf_clear(&a->error);
	accum_ids_clear(&a->prompt_ids);
	accum_ids_clear(&a->top_ids);
	repeat_clear(&a->repeat);
	*a = (struct assemble){ 0 };
}

void
assemble_cut(struct assemble *a)
{
	size_t i, k;

	a->hold.over = true;
	for (i = 0; i < a->choices_n; i++) {
		struct assemble_choice *c = a->choices[i];

		logps_clear(&c->logps);
		for (k = 0; k < sizeof(c->ids) / sizeof(c->ids[0]); k++)
			accum_ids_clear(&c->ids[k]);
	}
	accum_ids_clear(&a->prompt_ids);
	accum_ids_clear(&a->top_ids);
}

/* The choice of that index, made when it is new; NULL: no room. */
static struct assemble_choice *
choice_for(struct assemble *a, int64_t index)
{
	struct assemble_choice *c, **v;
	size_t at;

	for (at = a->choices_n; at > 0; at--) {
		if (a->choices[at - 1]->index == index)
			return a->choices[at - 1];
		if (a->choices[at - 1]->index < index)
			break;
	}
	if (a->choices_n >= ASSEMBLE_CHOICES_MAX ||
	    !accum_hold_take(&a->hold, sizeof(*c))) {
		a->hold.over = true;
		return NULL;
	}
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): pointers are meant */
	v = mem_reallocarray(a->choices, a->choices_n + 1, sizeof(*v));
	if (v != NULL)
		a->choices = v;
	c = v != NULL ? mem_calloc(1, sizeof(*c)) : NULL;
	if (c == NULL) {
		a->hold.over = true;
		return NULL;
	}
	c->index = index;
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): likewise */
	memmove(v + at + 1, v + at, (a->choices_n - at) * sizeof(*v));
	v[at] = c;
	a->choices_n++;
	return c;
}

/* Remembers which members an object had; a second one is a finding. */
static bool
twice(struct assemble *a, uint32_t *seen, int key)
{
	uint32_t bit = key >= 0 ? UINT32_C(1) << key : 0;
	bool again = (*seen & bit) != 0;

	if (again)
		a->findings |= FINDING_DUPLICATE_KEYS;
	*seen |= bit;
	return again;
}

/* A string member; of two in one object the last counts, as everywhere. */
static int
scan_text(struct assemble *a, struct jscan *s, struct accum_text *t, bool again)
{
	struct jscan_span v;
	size_t used = a->hold.used;
	int rc = jscan_skip(s, &v);

	if (rc != 0)
		return rc;
	if (again) {
		accum_text_rewind(&a->hold, t);
		repeat_odd(&a->repeat);
	}
	accum_text_mark(t);
	if (v.kind != JSCAN_STRING)
		return 0;
	accum_text_add(&a->hold, t, jscan_text(s, &v));
	if (!again)
		repeat_value(&a->repeat, REPEAT_TEXT,
		    (union repeat_target){ .text = t }, &v,
		    a->hold.used - used);
	return 0;
}

/* A string that is whole each time: the first that is not empty stays. */
static int
scan_first(struct assemble *a, struct jscan *s, struct accum_text *t)
{
	struct jscan_span v;
	int rc = jscan_skip(s, &v);

	if (rc == 0 && v.kind == JSCAN_STRING && accum_text_empty(t))
		accum_text_add(&a->hold, t, jscan_text(s, &v));
	return rc;
}

/*
 * The last that is not empty stays (cases B7, G3).  Not under the turn's
 * bound: whether the reply ended is told in any case.
 */
static int
scan_finish(struct assemble *a, struct jscan *s, struct accum_text *t)
{
	struct accum_hold small = { .max = FINISH_MAX };
	struct jscan_span v;
	struct view text;
	int rc = jscan_skip(s, &v);

	if (rc != 0 || v.kind != JSCAN_STRING)
		return rc;
	text = jscan_text(s, &v);
	if (text.n > 0)
		buf_reset(&t->raw, SIZE_MAX);
	if (text.n > 0 || !t->seen)
		accum_text_add(&small, t, text);
	t->seen = true;
	a->hold.over |= small.over;
	return 0;
}

static int
scan_content(struct assemble *a, struct jscan *s, struct assemble_choice *c,
    bool again)
{
	if (jscan_peek(s) == JSCAN_ARRAY)
		return accum_list_scan(&a->hold, &c->parts, s);
	return scan_text(a, s, &c->content, again);
}

static int
scan_function(struct assemble *a, struct jscan *s, struct assemble_choice *c)
{
	struct jscan_span key, v;
	int rc;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	c->fn_seen = true;
	while ((rc = jscan_member(s, &key)) == 1) {
		switch (accum_key(s, &key, fn_keys)) {
		case FN_NAME:
			rc = scan_first(a, s, &c->fn_name);
			break;
		case FN_ARGUMENTS:
			rc = jscan_skip(s, &v);
			if (rc == 0 && v.kind == JSCAN_STRING)
				accum_text_add(&a->hold, &c->fn_args,
				    jscan_text(s, &v));
			else if (rc == 0 && v.kind != JSCAN_NULL)
				accum_text_literal(&a->hold, &c->fn_args,
				    jscan_raw(s, &v));
			break;
		default:
			rc = jscan_skip(s, &v);
			break;
		}
		if (rc != 0)
			return rc;
	}
	return rc;
}

static int
scan_ids(struct assemble *a, struct jscan *s, struct accum_ids *ids)
{
	struct jscan_span v = { .kind = jscan_peek(s), .start = s->pos };
	size_t used = a->hold.used;
	int rc;

	if ((a->keep & ASSEMBLE_IDS) == 0)
		return jscan_skip(s, &v);
	rc = accum_ids_scan(&a->hold, ids, s);
	v.end = s->pos;
	if (rc == 0 && v.kind == JSCAN_ARRAY)
		repeat_value(&a->repeat, REPEAT_IDS,
		    (union repeat_target){ .ids = ids }, &v,
		    a->hold.used - used);
	return rc;
}

/* The ids of the prompt come once; some servers repeat them. */
static int
scan_prompt_ids(struct assemble *a, struct jscan *s)
{
	struct jscan_span v;

	if (a->prompt_ids.n > 0 || (a->keep & ASSEMBLE_IDS) == 0)
		return jscan_skip(s, &v);
	return accum_ids_scan(&a->hold, &a->prompt_ids, s);
}

static int
scan_delta_member(struct assemble *a, struct jscan *s,
    struct assemble_choice *c, const struct jscan_span *key, uint32_t *seen)
{
	struct jscan_span v;
	int k = accum_key(s, key, delta_keys);
	bool again = twice(a, seen, k);
	enum jscan_kind kind = jscan_peek(s);

	if ((k == DELTA_CONTENT && kind == JSCAN_ARRAY) ||
	    ((k == DELTA_DETAILS || k == DELTA_TOOL_CALLS ||
		 k == DELTA_FUNCTION) &&
		kind != JSCAN_NULL))
		repeat_odd(&a->repeat);

	switch (k) {
	case DELTA_ROLE:
		return scan_first(a, s, &c->role);
	case DELTA_CONTENT:
		return scan_content(a, s, c, again);
	case DELTA_REASONING:
		return scan_text(a, s, &c->reasoning, again);
	case DELTA_REASONING_CONTENT:
		return scan_text(a, s, &c->reasoning_content, again);
	case DELTA_REFUSAL:
		return scan_text(a, s, &c->refusal, again);
	case DELTA_DETAILS:
		return accum_list_scan(&a->hold, &c->details, s);
	case DELTA_TOOL_CALLS:
		return toolcall_scan(&a->hold, &c->tools, s, a->in_unary);
	case DELTA_FUNCTION:
		return scan_function(a, s, c);
	case DELTA_TOKEN_IDS:
		return scan_ids(a, s, &c->ids[ASSEMBLE_DELTA_TOKEN_IDS]);
	case DELTA_GEN_TOKENS:
		return scan_ids(a, s, &c->ids[ASSEMBLE_DELTA_GEN_TOKENS]);
	case DELTA_INDEX:
		return jscan_skip(s, &v);
	default:
		return accum_extras_scan(&a->hold, &c->message_extra, s, key);
	}
}

static int
scan_delta(struct assemble *a, struct jscan *s, struct assemble_choice *c)
{
	struct jscan_span key, v;
	uint32_t seen = 0;
	int rc;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	c->delta_seen = true;
	while ((rc = jscan_member(s, &key)) == 1) {
		rc = scan_delta_member(a, s, c, &key, &seen);
		if (rc != 0)
			return rc;
	}
	return rc;
}

static int
scan_logprobs(struct assemble *a, struct jscan *s, struct assemble_choice *c)
{
	size_t n = c->logps.entries.n, others = c->logps.refusal.n;
	size_t used = a->hold.used;
	struct jscan_span v;
	int rc;

	if ((a->keep & ASSEMBLE_LOGPROBS) == 0)
		return jscan_skip(s, &v);
	rc = logps_scan(&a->hold, &c->logps, s);
	if (c->logps.refusal.n != others)
		repeat_odd(&a->repeat);
	if (rc == 0 && c->logps.entries.n == n + 1)
		repeat_value(&a->repeat, REPEAT_ENTRY,
		    (union repeat_target){ .logps = &c->logps }, &c->logps.last,
		    a->hold.used - used);
	else if (c->logps.entries.n != n)
		/* (the bound would not tell: what is replaced gives some back) */
		repeat_odd(&a->repeat);
	return rc;
}

static int
scan_choice_member(struct assemble *a, struct jscan *s,
    struct assemble_choice *c, const struct jscan_span *key, uint32_t *seen)
{
	struct jscan_span v;
	int k = accum_key(s, key, choice_keys);

	(void)twice(a, seen, k);
	switch (k) {
	case CHOICE_INDEX:
		return jscan_skip(s, &v);
	case CHOICE_DELTA:
		return scan_delta(a, s, c);
	case CHOICE_MESSAGE:
		repeat_odd(&a->repeat);
		/* at the end of a stream it would say everything again */
		if (!a->in_unary && c->delta_seen)
			return jscan_skip(s, &v);
		return scan_delta(a, s, c);
	case CHOICE_LOGPROBS:
		return scan_logprobs(a, s, c);
	case CHOICE_FINISH:
		return scan_finish(a, s, &c->finish_reason);
	case CHOICE_TOKEN_IDS:
		return scan_ids(a, s, &c->ids[ASSEMBLE_CHOICE_TOKEN_IDS]);
	case CHOICE_OUTPUT_IDS:
		return scan_ids(a, s, &c->ids[ASSEMBLE_CHOICE_OUTPUT_IDS]);
	case CHOICE_PROMPT_IDS:
		return scan_prompt_ids(a, s);
	default:
		return accum_extras_scan(&a->hold, &c->extra, s, key);
	}
}

/*
 * The index of the choice whose members begin at the cursor of s (a copy): it
 * may stand behind what it is needed for.
 */
static int64_t
choice_index(struct jscan s, int64_t otherwise)
{
	struct jscan_span key, v;
	int64_t index;

	while (jscan_member(&s, &key) == 1) {
		bool found = accum_key(&s, &key, choice_keys) == CHOICE_INDEX;

		if (jscan_skip(&s, &v) != 0)
			break;
		if (found && v.kind == JSCAN_NUMBER &&
		    jscan_i64(&s, &v, &index) == 0 && index >= 0)
			return index;
	}
	return otherwise;
}

static int
scan_choice(struct assemble *a, struct jscan *s, int64_t pos)
{
	struct assemble_choice *c;
	struct jscan_span key, v;
	struct jscan start = *s;
	uint32_t seen = 0;
	int rc;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	c = choice_for(a, choice_index(*s, pos));
	if (c == NULL) {
		*s = start;
		return jscan_skip(s, &v);
	}
	while ((rc = jscan_member(s, &key)) == 1) {
		rc = scan_choice_member(a, s, c, &key, &seen);
		if (rc != 0)
			return rc;
	}
	return rc;
}

static int
scan_choices(struct assemble *a, struct jscan *s)
{
	struct jscan_span v;
	int64_t pos;
	int rc;

	if (jscan_peek(s) != JSCAN_ARRAY)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	for (pos = 0; (rc = jscan_element(s)) == 1; pos++) {
		rc = scan_choice(a, s, pos);
		if (rc != 0)
			return rc;
	}
	return rc;
}

static void
keep_error(struct assemble *a, struct view raw)
{
	a->findings |= FINDING_ERROR_IN_STREAM;
	if (buf_len(&a->error) == 0)
		accum_buf_add(&a->hold, &a->error, raw);
}

static int
scan_error(struct assemble *a, struct jscan *s)
{
	struct jscan_span v;
	int rc = jscan_skip(s, &v);

	if (rc == 0 && v.kind != JSCAN_NULL && v.kind != JSCAN_FALSE)
		keep_error(a, jscan_raw(s, &v));
	return rc;
}

static int
scan_created(struct assemble *a, struct jscan *s)
{
	struct jscan_span v;
	int rc = jscan_skip(s, &v);

	if (rc == 0 && v.kind == JSCAN_NUMBER && accum_text_empty(&a->created))
		accum_text_add(&a->hold, &a->created, jscan_raw(s, &v));
	return rc;
}

static int
scan_top_member(struct assemble *a, struct jscan *s,
    const struct jscan_span *key, uint32_t *seen)
{
	struct jscan_span v;
	int k = accum_key(s, key, top_keys);

	(void)twice(a, seen, k);
	switch (k) {
	case TOP_ID:
		return scan_first(a, s, &a->id);
	case TOP_MODEL:
		return scan_first(a, s, &a->model);
	case TOP_CREATED:
		return scan_created(a, s);
	case TOP_CHOICES:
		return scan_choices(a, s);
	case TOP_ERROR:
		return scan_error(a, s);
	case TOP_PROMPT_IDS:
		return scan_prompt_ids(a, s);
	case TOP_TOKEN_IDS:
	case TOP_OUTPUT_IDS:
		return scan_ids(a, s, &a->top_ids);
	case TOP_OBJECT:
	case TOP_PADDING:
		return jscan_skip(s, &v);
	default:
		return accum_extras_scan(&a->hold, &a->extra, s, key);
	}
}

static int
scan_top(struct assemble *a, struct view text)
{
	struct jscan_span key;
	struct jscan s;
	uint32_t seen = 0;
	int rc;

	jscan_init(&s, text, JSCAN_ALLOW_NONFINITE);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1)
		rc = scan_top_member(a, &s, &key, &seen);
	return rc != 0 ? rc : jscan_finish(&s);
}

void
assemble_event(struct assemble *a, struct view data)
{
	int rc;

	a->events++;
	a->in_unary = false;
	if (repeat_event(&a->repeat, &a->hold, data))
		return;
	repeat_begin(&a->repeat, &a->hold);
	rc = scan_top(a, data);
	if (rc != 0)
		a->findings |= FINDING_BAD_JSON;
	else
		repeat_end(&a->repeat, &a->hold, data);
}

void
assemble_body(struct assemble *a, struct view body)
{
	a->in_unary = true;
	repeat_begin(&a->repeat, &a->hold);
	if (scan_top(a, body) != 0)
		a->findings |= FINDING_BAD_JSON;
}

void
assemble_error(struct assemble *a, struct view value)
{
	a->events++;
	if (jscan_valid(value, JSCAN_ALLOW_NONFINITE) == 0)
		keep_error(a, value);
	else
		a->findings |= FINDING_ERROR_IN_STREAM | FINDING_BAD_JSON;
}

struct assemble_choice *
assemble_first(const struct assemble *a)
{
	return a->choices_n > 0 ? a->choices[0] : NULL;
}
