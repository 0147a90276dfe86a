#include "config.h"

#include "llm_repeat.h"

#include "base/mem.h"
#include "json/jscan.h"

/* The values of a chunk that may be other ones in the next. */
struct slots {
	struct jscan_span v[LLM_REPEAT_SLOTS];
	size_t n;
};

static bool
is_container(enum jscan_kind kind)
{
	return kind == JSCAN_OBJECT || kind == JSCAN_ARRAY;
}

/* ---- comparing ------------------------------------------------------------ */

/* The value between two runs, which is consumed. */
static bool
pass_value(struct jscan *s, bool text)
{
	enum jscan_kind kind;
	struct jscan_span v;

	if (s->pos >= s->n)
		return false;
	kind = (enum jscan_kind)jscan_kinds[(unsigned char)s->p[s->pos]];
	if (text)
		return kind == JSCAN_STRING && jscan_skip(s, &v) == 0;
	return is_container(kind) && jscan_hop(s, &v) == 0;
}

static bool
add_edits(const struct llm_repeat *r, const size_t *run_at,
    struct jsplice *edits)
{
	size_t i, from, to;

	for (i = 0; i < r->edits_n; i++) {
		from = run_at[r->from[i].slot] + r->from[i].off;
		to = run_at[r->to[i].slot] + r->to[i].off;
		if (jsplice_add(edits, from, to - from, VIEW_NONE) != 0) {
			jsplice_reset(edits);
			return false;
		}
	}
	return true;
}

bool
llm_repeat_edit(struct llm_repeat *r, struct view json, struct jsplice *edits,
    struct llm_reply_facts *facts)
{
	size_t run_at[LLM_REPEAT_SLOTS + 1], i, at = 0;
	struct jscan s;

	if (r == NULL || !r->ready)
		return false;
	jscan_init(&s, json, 0);
	for (i = 0; i <= r->n; i++) {
		run_at[i] = s.pos;
		if (s.n - s.pos < r->run[i] ||
		    memcmp(s.p + s.pos, r->fixed.mem + r->fixed.off + at,
			r->run[i]) != 0)
			return false;
		at += r->run[i];
		s.pos += r->run[i];
		if (i < r->n && !pass_value(&s, r->text[i]))
			return false;
	}
	if (s.pos != s.n || !add_edits(r, run_at, edits))
		return false;
	*facts = r->facts;
	r->misses = 0;
	return true;
}

/* ---- learning ------------------------------------------------------------- */

/* The value at the cursor; one that may differ becomes a slot. */
static bool
take(struct slots *t, struct jscan *s, bool differs)
{
	struct jscan_span v;

	if (jscan_hop(s, &v) != 0 || (differs && t->n == LLM_REPEAT_SLOTS))
		return false;
	if (differs)
		t->v[t->n++] = v;
	return true;
}

/* Strings are pieces of text; of lists nobody knows what is in them. */
static bool
find_in_delta(struct slots *t, struct jscan *s)
{
	struct jscan_span key;
	int rc = jscan_enter(s);

	while (rc == 0 && (rc = jscan_member(s, &key)) == 1) {
		enum jscan_kind kind = jscan_peek(s);

		rc = is_container(kind) || !take(t, s, kind == JSCAN_STRING);
	}
	return rc == 0;
}

/* given: it had log-probabilities; a list that had none may have some. */
static bool
find_in_choice(struct slots *t, struct jscan *s, bool given)
{
	struct jscan_span key;
	int rc = jscan_enter(s);

	while (rc == 0 && (rc = jscan_member(s, &key)) == 1) {
		enum jscan_kind kind = jscan_peek(s);
		bool good;

		if (kind == JSCAN_OBJECT && jscan_is(s, &key, VIEW("delta")))
			good = find_in_delta(t, s);
		else if (kind == JSCAN_OBJECT &&
		    jscan_is(s, &key, VIEW("logprobs")))
			good = take(t, s, given);
		else if (kind == JSCAN_ARRAY &&
		    jscan_is(s, &key, VIEW("token_ids")))
			good = take(t, s, true);
		else
			good = !is_container(kind) && take(t, s, false);
		rc = !good;
	}
	return rc == 0;
}

/* An array of one choice. */
static bool
find_in_choices(struct slots *t, struct jscan *s, bool given)
{
	return jscan_enter(s) == 0 && jscan_element(s) == 1 &&
	    jscan_peek(s) == JSCAN_OBJECT && find_in_choice(t, s, given) &&
	    jscan_element(s) == 0 && s->err == 0;
}

static bool
find_slots(struct slots *t, struct view json, bool given)
{
	bool choices = false;
	struct jscan_span key;
	struct jscan s;
	int rc;

	jscan_init(&s, json, 0);
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1) {
		enum jscan_kind kind = jscan_peek(&s);
		bool good;

		if (kind == JSCAN_ARRAY && !choices &&
		    jscan_is(&s, &key, VIEW("choices"))) {
			choices = true;
			good = find_in_choices(t, &s, given);
		} else {
			good = !is_container(kind) && take(t, &s, false);
		}
		rc = !good;
	}
	return rc == 0 && jscan_finish(&s) == 0 && t->n > 0;
}

/* An offset in the text as a place; false: it is within a value. */
static bool
place_of(const struct slots *t, size_t at, struct llm_repeat_place *out)
{
	size_t i, from = 0;

	for (i = 0; i <= t->n; i++) {
		if (at < from)
			return false;
		if (i == t->n || at <= t->v[i].start) {
			*out = (struct llm_repeat_place){ i, at - from };
			return true;
		}
		from = t->v[i].end;
	}
	return false;
}

static bool
keep_edits(struct llm_repeat *r, const struct slots *t,
    const struct jsplice *edits)
{
	const struct jsplice_edit *e;
	size_t i;

	if (edits->n > LLM_REPEAT_EDITS)
		return false;
	for (i = 0; i < edits->n; i++) {
		e = &edits->v[i];
		if (e->put.n > 0 || !place_of(t, e->at, &r->from[i]) ||
		    !place_of(t, e->at + e->drop, &r->to[i]))
			return false;
	}
	r->edits_n = edits->n;
	return true;
}

static bool
keep_runs(struct llm_repeat *r, const struct slots *t, struct view json)
{
	size_t i, at = 0, to;

	buf_reset(&r->fixed, SIZE_MAX);
	for (i = 0; i <= t->n; i++) {
		to = i < t->n ? t->v[i].start : json.n;
		r->run[i] = to - at;
		if (buf_add_view(&r->fixed, view_sub(json, at, to - at)) != 0)
			return false;
		if (i == t->n)
			break;
		r->text[i] = t->v[i].kind == JSCAN_STRING;
		at = t->v[i].end;
	}
	r->n = t->n;
	return true;
}

void
llm_repeat_learn(struct llm_repeat **out, const struct llm_wants *w,
    struct view json, const struct jsplice *edits,
    const struct llm_reply_facts *facts)
{
	struct llm_repeat *r = *out;
	struct slots t = { .n = 0 };

	if (r != NULL)
		r->ready = false;
	/* within values nothing is edited; what is rare is not taken for usual */
	if (llm_reply_trims(w) || !facts->useful || facts->error ||
	    facts->finish || facts->drop ||
	    (r != NULL && r->misses >= LLM_REPEAT_MISSES))
		return;
	if (r == NULL) {
		r = *out = mem_calloc(1, sizeof(*r));
		if (r == NULL)
			return;
		buf_init(&r->fixed, LLM_REPEAT_FIXED_MAX);
	}
	r->misses++;
	r->facts = *facts;
	r->ready = find_slots(&t, json, facts->logprobs) &&
	    keep_edits(r, &t, edits) && keep_runs(r, &t, json);
}

void
llm_repeat_free(struct llm_repeat *r)
{
	if (r == NULL)
		return;
	buf_clear(&r->fixed);
	mem_free(r);
}
