#include "config.h"

#include "llm_reply.h"

#include "json/jscan.h"

struct reply {
	const struct llm_wants *w;
	struct jscan s;
	struct jsplice *edits;
	struct llm_reply_facts *facts;
	bool strip_logprobs; /* all of them */
	bool trim_logprobs; /* alternatives beyond the client's number */
	bool strip_ids;
	bool strip_usage;
	bool usage; /* the text has a usage object */
	bool chunk;
};

static bool
is_any(const struct jscan *s, const struct jscan_span *key,
    const struct view *names, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (jscan_is(s, key, names[i]))
			return true;
	return false;
}

/* Where servers put ids in a choice or a delta; case E3. */
static bool
is_ids(const struct jscan *s, const struct jscan_span *key)
{
	static const struct view names[] = { VIEW_INIT("token_ids"),
		VIEW_INIT("prompt_token_ids"), VIEW_INIT("output_ids"),
		VIEW_INIT("gen_tokens") };

	return is_any(s, key, names, sizeof(names) / sizeof(names[0]));
}

/* Walks an object, calling member() for each; it must consume the value. */
static int
each_member(struct reply *r,
    int (*member)(struct reply *r, const struct jscan_span *key, bool *gone))
{
	struct jsplice_object o;
	struct jscan_span key, val;
	bool gone;
	int rc;

	rc = jscan_enter(&r->s);
	if (rc != 0)
		return rc;
	jsplice_object_begin(&o, r->edits, &r->s);
	while ((rc = jscan_member(&r->s, &key)) == 1) {
		gone = false;
		val.kind = jscan_peek(&r->s);
		val.start = r->s.pos;
		rc = member(r, &key, &gone);
		val.end = r->s.pos;
		if (rc == 0)
			rc = jsplice_object_member(&o, &key, &val, gone);
		if (rc != 0)
			return rc;
	}
	return rc != 0 ? rc : jsplice_object_end(&o, &r->s, VIEW_NONE);
}

static int
skip(struct reply *r)
{
	struct jscan_span v;

	/*
	 * A malformed event goes on to the client's parser, which tells; what
	 * was not asked for is cut out all the same.  A reply of one piece is
	 * refused instead.
	 */
	return r->chunk ? jscan_hop(&r->s, &v) : jscan_skip(&r->s, &v);
}

/* Walks an array, calling element() for each value that is an object. */
static int
each_object(struct reply *r, int (*element)(struct reply *r))
{
	int rc;

	rc = jscan_enter(&r->s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_element(&r->s)) == 1) {
		rc = jscan_peek(&r->s) == JSCAN_OBJECT ? element(r) : skip(r);
		if (rc != 0)
			return rc;
	}
	return rc;
}

/* Cuts an array of alternatives after the client's number of them. */
static int
trim_array(struct reply *r)
{
	struct jscan_span v;
	size_t cut_from, n = 0;
	int rc;

	rc = jscan_enter(&r->s);
	if (rc != 0)
		return rc;
	cut_from = r->s.pos;
	while ((rc = jscan_element(&r->s)) == 1) {
		rc = jscan_skip(&r->s, &v);
		if (rc != 0)
			return rc;
		if (++n <= r->w->top_logprobs)
			cut_from = v.end;
	}
	if (rc != 0 || n <= r->w->top_logprobs)
		return rc;
	/* the cursor is past the bracket */
	return jsplice_add(r->edits, cut_from, r->s.pos - 1 - cut_from,
	    VIEW_NONE);
}

static int
entry_member(struct reply *r, const struct jscan_span *key, bool *gone)
{
	(void)gone;
	if (jscan_is(&r->s, key, VIEW("top_logprobs")) &&
	    jscan_peek(&r->s) == JSCAN_ARRAY)
		return trim_array(r);
	return skip(r);
}

static int
entry(struct reply *r)
{
	return each_member(r, entry_member);
}

/* The array at the cursor has no element; RFC 8259 s2 says what space is. */
static bool
is_empty(const struct jscan *s)
{
	size_t i = s->pos + 1;

	while (i < s->n && memchr(" \t\r\n", s->p[i], 4) != NULL)
		i++;
	return i < s->n && s->p[i] == ']';
}

static int
logprobs_member(struct reply *r, const struct jscan_span *key, bool *gone)
{
	(void)key;
	(void)gone;
	/* "content" and "refusal", and whatever list comes next */
	if (jscan_peek(&r->s) != JSCAN_ARRAY)
		return skip(r);
	r->facts->logprobs |= !is_empty(&r->s);
	return r->trim_logprobs ? each_object(r, entry) : skip(r);
}

static int
delta_member(struct reply *r, const struct jscan_span *key, bool *gone)
{
	*gone = r->strip_ids && is_ids(&r->s, key);
	return skip(r);
}

static int
choice_member(struct reply *r, const struct jscan_span *key, bool *gone)
{
	struct jscan *s = &r->s;
	enum jscan_kind kind = jscan_peek(s);

	if (jscan_is(s, key, VIEW("logprobs"))) {
		*gone = r->strip_logprobs;
		return kind == JSCAN_OBJECT ? each_member(r, logprobs_member)
					    : skip(r);
	}
	if (jscan_is(s, key, VIEW("finish_reason"))) {
		r->facts->finish |= kind == JSCAN_STRING;
		return skip(r);
	}
	if (r->strip_ids && is_ids(s, key)) {
		*gone = true;
		return skip(r);
	}
	if (r->strip_ids && kind == JSCAN_OBJECT &&
	    (jscan_is(s, key, VIEW("delta")) ||
		jscan_is(s, key, VIEW("message"))))
		return each_member(r, delta_member);
	return skip(r);
}

static int
choice(struct reply *r)
{
	r->facts->useful = true;
	return each_member(r, choice_member);
}

static int
top_member(struct reply *r, const struct jscan_span *key, bool *gone)
{
	struct jscan *s = &r->s;
	enum jscan_kind kind = jscan_peek(s);
	struct jscan_span v;
	int rc;

	if (jscan_is(s, key, VIEW("choices")) && kind == JSCAN_ARRAY)
		return each_object(r, choice);
	if (jscan_is(s, key, VIEW("object"))) { /* an error without a wrap */
		rc = jscan_skip(s, &v);
		r->facts->error |= rc == 0 && jscan_is(s, &v, VIEW("error"));
		return rc;
	}
	if (jscan_is(s, key, VIEW("usage"))) {
		r->usage |= kind == JSCAN_OBJECT;
		*gone = r->strip_usage;
	} else if (jscan_is(s, key, VIEW("error"))) {
		r->facts->error |= kind == JSCAN_OBJECT || kind == JSCAN_STRING;
	} else if (r->strip_ids && is_ids(s, key)) {
		*gone = true;
	}
	return skip(r);
}

bool
llm_reply_trims(const struct llm_wants *w)
{
	/* nothing is trimmed of what the client asked for itself */
	return w->forced_logprobs && w->logprobs &&
	    (w->forced_top == 0 || w->top_logprobs < w->forced_top);
}

static int
edit(const struct llm_wants *w, struct view json, bool chunk, unsigned flags,
    struct jsplice *edits, struct llm_reply_facts *facts)
{
	struct reply r = { .w = w,
		.edits = edits,
		.facts = facts,
		.chunk = chunk };
	int rc;

	memset(facts, 0, sizeof(*facts));
	r.strip_logprobs = w->forced_logprobs && !w->logprobs;
	r.trim_logprobs = llm_reply_trims(w);
	r.strip_ids = w->forced_token_ids && !w->token_ids;
	r.strip_usage = chunk && w->forced_usage;
	jscan_init(&r.s, json, flags);
	if (jscan_peek(&r.s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = each_member(&r, top_member);
	if (rc == 0)
		rc = jscan_finish(&r.s);
	facts->drop =
	    r.strip_usage && r.usage && !facts->useful && !facts->error;
	facts->useful |= facts->error;
	return rc;
}

int
llm_reply_edit(const struct llm_wants *w, struct view json, bool chunk,
    struct jsplice *edits, struct llm_reply_facts *facts)
{
	int rc = edit(w, json, chunk, 0, edits, facts);

	if (rc != SP_E_SYNTAX)
		return rc;
	/* NaN and Infinity are rare, and not knowing them is faster; case E7 */
	jsplice_reset(edits);
	return edit(w, json, chunk, JSCAN_ALLOW_NONFINITE, edits, facts);
}
