#include "config.h"

#include <math.h>

#include "base/num.h"
#include "recorder/logps.h"

struct entry {
	struct jscan_span token, value, id;
	bool strict; /* all of it can be copied as it stands */
};

enum { ENTRY_TOKEN, ENTRY_LOGPROB, ENTRY_ID, ENTRY_TOKEN_ID };
static const struct view entry_keys[] = { { "token", 5 }, { "logprob", 7 },
	{ "id", 2 }, { "token_id", 8 }, { NULL, 0 } };
enum { LP_CONTENT, LP_REFUSAL };
static const struct view lp_keys[] = { { "content", 7 }, { "refusal", 7 },
	{ NULL, 0 } };

static int
entry_scan(struct jscan *s, struct entry *e)
{
	struct jscan_span key, v;
	int rc = jscan_enter(s);

	if (rc != 0)
		return rc;
	while ((rc = jscan_member(s, &key)) == 1) {
		switch (accum_key(s, &key, entry_keys)) {
		case ENTRY_TOKEN:
			rc = jscan_skip(s, &e->token);
			break;
		case ENTRY_LOGPROB:
			rc = jscan_skip(s, &e->value);
			break;
		case ENTRY_ID:
		case ENTRY_TOKEN_ID:
			rc = jscan_skip(s, &v);
			if (v.kind == JSCAN_NUMBER)
				e->id = v;
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

static struct jscan_span
span_of(const struct jscan *s, struct view v, enum jscan_kind kind)
{
	struct jscan_span span = { .kind = JSCAN_NONE };

	if (v.n == 0)
		return span;
	span.kind = kind;
	span.start = (size_t)(v.p - s->p);
	span.end = span.start + v.n;
	return span;
}

static void
entry_of(const struct jscan *s, const struct jtoken *t, struct entry *e)
{
	e->token = span_of(s, t->token, JSCAN_STRING);
	e->value = span_of(s, t->logprob, JSCAN_NUMBER);
	e->id = span_of(s, t->id, JSCAN_NUMBER);
	e->strict = t->plain;
}

/* An entry as most servers send it; false: the cursor stays, look closer. */
static bool
entry_quick(struct jscan *s, struct entry *e)
{
	const uint8_t *p = (const uint8_t *)s->p;
	const uint8_t *end;
	struct jtoken t;

	if (s->depth > JSCAN_MAX_DEPTH - JTOKEN_DEPTH)
		return false;
	end = jtoken_end(p + s->pos, p + s->n, &t);
	if (end == NULL)
		return false;
	s->pos = (size_t)(end - p);
	entry_of(s, &t, e);
	return true;
}

static void
add_value(struct accum_hold *h, struct logps *l, const struct jscan *s,
    const struct jscan_span *v)
{
	double d;

	if (v->kind == JSCAN_NONE || (v->kind == JSCAN_STRING))
		return; /* not there: nothing is made up */
	if (v->kind != JSCAN_NUMBER || jscan_double(s, v, &d) != 0 ||
	    !isfinite(d)) {
		l->nonfinite++;
		accum_list_add(h, &l->values, VIEW("null"), true);
		return;
	}
	accum_list_add(h, &l->values, jscan_raw(s, v), true);
	l->min = l->valued == 0 || d < l->min ? d : l->min;
	l->sum += d;
	l->valued++;
	l->zeros += fpclassify(d) == FP_ZERO;
	l->positive += d > 0;
}

/* `token_id:N`, digits alone: case E4. */
static bool
text_id(struct view token, uint64_t *id)
{
	const struct view prefix = VIEW("token_id:");

	return view_starts(token, prefix) &&
	    num_u64(view_from(token, prefix.n), 0, UINT32_MAX, id) == 0;
}

static void
entry_add(struct accum_hold *h, struct logps *l, const struct jscan *s,
    const struct jscan_span *v, const struct entry *e)
{
	uint64_t id;

	accum_list_add(h, &l->entries, jscan_raw(s, v), e->strict);
	if (e->token.kind == JSCAN_STRING) {
		accum_list_add(h, &l->tokens, jscan_raw(s, &e->token),
		    e->strict);
		if (text_id(jscan_text(s, &e->token), &id))
			accum_ids_add(h, &l->text_ids, (uint32_t)id);
	}
	add_value(h, l, s, &e->value);
	if (e->id.kind != JSCAN_NUMBER)
		return;
	if (num_u64(jscan_text(s, &e->id), 0, UINT32_MAX, &id) == 0)
		accum_ids_add(h, &l->ids, (uint32_t)id);
	else
		l->ids.bad = true;
}

void
logps_add(struct accum_hold *h, struct logps *l, const struct jscan *s,
    const struct jscan_span *v, const struct jtoken *t)
{
	struct entry e;

	entry_of(s, t, &e);
	entry_add(h, l, s, v, &e);
}

static int
entries_scan(struct accum_hold *h, struct logps *l, struct jscan *s)
{
	struct jscan_span v;
	struct entry e;
	size_t from;
	int rc;

	if (jscan_peek(s) != JSCAN_ARRAY)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	l->entries.seen = true;
	while ((rc = jscan_element(s)) == 1) {
		if (jscan_peek(s) != JSCAN_OBJECT) {
			rc = jscan_skip(s, &v);
			if (rc != 0)
				return rc;
			continue;
		}
		e = (struct entry){ .token = { 0 } };
		from = s->pos;
		rc = entry_quick(s, &e) ? 0 : entry_scan(s, &e);
		if (rc != 0)
			return rc;
		if (h->over)
			continue;
		l->last =
		    (struct jscan_span){ JSCAN_OBJECT, from, s->pos, false };
		entry_add(h, l, s, &l->last, &e);
	}
	return rc;
}

int
logps_scan(struct accum_hold *h, struct logps *l, struct jscan *s)
{
	struct jscan_span key, v;
	int rc;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	l->seen = true;
	while ((rc = jscan_member(s, &key)) == 1) {
		switch (accum_key(s, &key, lp_keys)) {
		case LP_CONTENT:
			rc = entries_scan(h, l, s);
			break;
		case LP_REFUSAL:
			rc = accum_list_scan(h, &l->refusal, s);
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

void
logps_write(struct logps *l, struct jwrite *w)
{
	if (l->entries.n == 0 && l->refusal.n == 0) {
		jwrite_null(w);
		return;
	}
	jwrite_object(w);
	jwrite_key(w, "content");
	if (l->entries.n > 0) {
		l->written_at = buf_len(w->out);
		accum_list_write(&l->entries, w);
		l->written_n = buf_len(w->out) - l->written_at;
	} else {
		jwrite_null(w);
	}
	jwrite_key(w, "refusal");
	if (l->refusal.n > 0)
		accum_list_write(&l->refusal, w);
	else
		jwrite_null(w);
	jwrite_end_object(w);
}

void
logps_clear(struct logps *l)
{
	accum_list_clear(&l->entries);
	accum_list_clear(&l->tokens);
	accum_list_clear(&l->values);
	accum_list_clear(&l->refusal);
	accum_ids_clear(&l->ids);
	accum_ids_clear(&l->text_ids);
	*l = (struct logps){ 0 };
}
