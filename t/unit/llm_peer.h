/*
 * What must hold of every edit of a model call, whatever the text: shared by
 * the unit tests and the fuzzers.  yajl is the second opinion.
 */
#ifndef SP_T_UNIT_LLM_PEER_H
#define SP_T_UNIT_LLM_PEER_H

#include <yajl/yajl_tree.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/num.h"
#include "json/jscan.h"
#include "llm_reply.h"
#include "llm_request.h"

static bool
peer_object(struct view text)
{
	struct jscan s;

	jscan_init(&s, text, 0);
	return jscan_peek(&s) == JSCAN_OBJECT;
}

/* ---- requests ------------------------------------------------------------ */

static bool
peer_among(const struct jscan *s, const struct jscan_span *key,
    const struct view *names, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (jscan_is(s, key, names[i]))
			return true;
	return false;
}

/* The members that are not among the names, as written, each ended. */
static void
peer_rest(struct view text, const struct view *names, size_t n, struct buf *out)
{
	struct jscan_span key, val;
	struct jscan s;

	jscan_init(&s, text, 0);
	err_assert(jscan_enter(&s) == 0);
	while (jscan_member(&s, &key) == 1) {
		err_assert(jscan_skip(&s, &val) == 0);
		if (peer_among(&s, &key, names, n))
			continue;
		err_assert(buf_add_view(out, jscan_raw(&s, &key)) == 0 &&
		    buf_add_char(out, '\0') == 0 &&
		    buf_add_view(out, jscan_raw(&s, &val)) == 0 &&
		    buf_add_char(out, '\0') == 0);
	}
	err_assert(s.err == 0);
}

/* How often a member is there; *last as jscan_find() gives it. */
static unsigned
peer_count(struct view text, struct view name, struct view *last)
{
	struct jscan_span key, val;
	struct jscan s;
	unsigned n = 0;

	jscan_init(&s, text, 0);
	err_assert(jscan_enter(&s) == 0);
	while (jscan_member(&s, &key) == 1) {
		err_assert(jscan_skip(&s, &val) == 0);
		if (!jscan_is(&s, &key, name))
			continue;
		n++;
		*last = jscan_raw(&s, &val);
	}
	return n;
}

static void
peer_same_rest(struct view a, struct view b, const struct view *names, size_t n)
{
	struct buf left = BUF_INIT(2 * a.n + 64);
	struct buf right = BUF_INIT(2 * b.n + 64);

	peer_rest(a, names, n, &left);
	peer_rest(b, names, n, &right);
	err_assert(view_eq(buf_view(&left), buf_view(&right)));
	buf_clear(&left);
	buf_clear(&right);
}

/* Once, and with that value. */
static void
peer_is(struct view text, struct view name, struct view value)
{
	struct view v = VIEW_NONE;

	err_assert(peer_count(text, name, &v) == 1 && view_eq(v, value));
}

static void
peer_is_number(struct view text, struct view name, uint64_t value)
{
	char digits[24];

	peer_is(text, name, view_of(digits, num_format_u64(value, digits)));
}

/* An object's one member was set, and nothing else in it moved. */
static void
peer_inside(struct view body, struct view out, struct view name,
    struct view member, struct view value)
{
	struct view was = VIEW_NONE, is = VIEW_NONE;

	err_assert(peer_count(out, name, &is) == 1);
	peer_is(is, member, value);
	if (peer_count(body, name, &was) > 0 && was.p[0] == '{')
		peer_same_rest(was, is, &member, 1);
	else
		err_assert(is.n == member.n + value.n + 5);
}

enum { PEER_NAMES = 16 + 64 };

/* What the policy may touch in that call. */
static size_t
peer_policy(const struct llm_request_params *p, const struct llm_wants *w,
    struct view names[PEER_NAMES])
{
	const struct conf_capture *c = p->capture;
	size_t n = 0, i;

	names[n++] = VIEW("api_key");
	names[n++] = VIEW("api_base");
	if (p->model.n > 0)
		names[n++] = VIEW("model");
	if (p->model.n > 0 || c != NULL) {
		names[n++] = VIEW("max_tokens");
		names[n++] = VIEW("max_completion_tokens");
	}
	if (c == NULL)
		return n;
	if (w->forced_logprobs) {
		names[n++] = VIEW("logprobs");
		names[n++] = VIEW("top_logprobs");
	}
	if (w->forced_logprobs && (p->ask & LLM_ASK_N_PROBS))
		names[n++] = VIEW("n_probs");
	if (w->forced_token_ids)
		names[n++] = VIEW("return_token_ids");
	if (w->stream)
		names[n++] = VIEW("stream_options");
	if (w->thinking_off)
		names[n++] = VIEW("chat_template_kwargs");
	for (i = 0; i < c->sampling_n; i++)
		names[n++] = c->sampling[i].name;
	return n;
}

static void
peer_request_values(const struct llm_request_params *p,
    const struct llm_wants *w, struct view body, struct view out)
{
	struct view v = VIEW_NONE;
	bool n_probs = (p->ask & LLM_ASK_N_PROBS) != 0;

	err_assert(peer_count(out, VIEW("api_key"), &v) == 0);
	err_assert(peer_count(out, VIEW("api_base"), &v) == 0);
	if (p->model.n > 0)
		err_assert(peer_count(out, VIEW("model"), &v) == 1);
	if (w->forced_logprobs && n_probs) {
		err_assert(peer_count(out, VIEW("logprobs"), &v) == 0);
		err_assert(peer_count(out, VIEW("top_logprobs"), &v) == 0);
		peer_is_number(out, VIEW("n_probs"), w->forced_top);
	} else if (w->forced_logprobs) {
		peer_is(out, VIEW("logprobs"), VIEW("true"));
		peer_is_number(out, VIEW("top_logprobs"), w->forced_top);
	}
	if (w->forced_token_ids)
		peer_is(out, VIEW("return_token_ids"), VIEW("true"));
	if (w->forced_usage)
		peer_inside(body, out, VIEW("stream_options"),
		    VIEW("include_usage"), VIEW("true"));
	if (w->thinking_off)
		peer_inside(body, out, VIEW("chat_template_kwargs"),
		    VIEW("enable_thinking"), VIEW("false"));
}

static void
peer_request_caps(const struct llm_request_params *p, const struct llm_wants *w,
    struct view out)
{
	static const struct view names[] = { VIEW_INIT("max_tokens"),
		VIEW_INIT("max_completion_tokens") };
	uint64_t cap = p->capture != NULL ? p->capture->max_tokens_cap : 0, n;
	struct view v = VIEW_NONE;
	size_t i;

	for (i = 0; cap > 0 && i < 2; i++) {
		if (peer_count(out, names[i], &v) == 0)
			continue;
		err_assert(peer_count(out, names[i], &v) == 1);
		err_assert(
		    num_u64(v, 0, UINT64_MAX, &n) == SP_E_SYNTAX || n <= cap);
	}
	if (p->capture != NULL &&
	    llm_request_renames_max(view_of(w->model, w->model_n)))
		err_assert(peer_count(out, names[0], &v) == 0);
}

/* Edits the body and checks what came of it; its SP_E_*. */
static inline int
peer_request(const struct llm_request_params *p, struct view body)
{
	struct buf out = BUF_INIT(body.n + 65536), meta = BUF_INIT(262144);
	struct buf again = BUF_INIT(body.n + 131072);
	struct view names[PEER_NAMES];
	struct llm_wants w, w2;
	const char *why = NULL;
	size_t n;
	int rc;

	rc = llm_request_edit(p, body, &out, &w, &meta, &why);
	if (rc != 0) {
		err_assert(rc == SP_E_SYNTAX && why != NULL);
		err_assert(buf_len(&out) == 0);
		err_assert(jscan_valid(body, 0) != 0 || !peer_object(body) ||
		    body.n > 32768);
	} else {
		err_assert(jscan_valid(buf_view(&out), 0) == 0);
		err_assert(jscan_valid(buf_view(&meta), 0) == 0);
		n = peer_policy(p, &w, names);
		peer_same_rest(body, buf_view(&out), names, n);
		peer_request_values(p, &w, body, buf_view(&out));
		peer_request_caps(p, &w, buf_view(&out));
		buf_clear(&meta);
		err_assert(llm_request_edit(p, buf_view(&out), &again, &w2,
			       &meta, &why) == 0);
		err_assert(view_eq(buf_view(&out), buf_view(&again)));
	}
	buf_clear(&out);
	buf_clear(&meta);
	buf_clear(&again);
	return rc;
}

/* ---- replies ------------------------------------------------------------- */

static bool
peer_subsequence(struct view part, struct view whole)
{
	size_t i, k = 0;

	for (i = 0; i < whole.n && k < part.n; i++)
		k += whole.p[i] == part.p[k];
	return k == part.n;
}

/* The reference: a tree, edited where it is printed, the slow way. */
struct peer_print {
	const struct llm_wants *w;
	bool chunk;
	bool edit; /* else printed as it is */
	struct buf *out;
};

/* What a value is, by the way that leads to it. */
enum peer_place {
	PEER_TOP,
	PEER_CHOICES,
	PEER_CHOICE,
	PEER_DELTA,
	PEER_LOGPROBS,
	PEER_ENTRIES,
	PEER_ENTRY,
	PEER_ALTERNATIVES,
	PEER_OTHER
};

static bool
peer_gone(const struct peer_print *p, enum peer_place at, const char *key)
{
	const struct llm_wants *w = p->w;
	bool ids = strcmp(key, "token_ids") == 0 ||
	    strcmp(key, "prompt_token_ids") == 0 ||
	    strcmp(key, "output_ids") == 0 || strcmp(key, "gen_tokens") == 0;

	if (!p->edit)
		return false;
	if (at == PEER_TOP && strcmp(key, "usage") == 0)
		return p->chunk && w->forced_usage;
	if (at == PEER_CHOICE && strcmp(key, "logprobs") == 0)
		return w->forced_logprobs && !w->logprobs;
	if (at == PEER_TOP || at == PEER_CHOICE || at == PEER_DELTA)
		return ids && w->forced_token_ids && !w->token_ids;
	return false;
}

static enum peer_place
peer_below(enum peer_place at, const char *key, yajl_val v)
{
	bool object = YAJL_IS_OBJECT(v), array = YAJL_IS_ARRAY(v);

	switch (at) {
	case PEER_TOP:
		return array && strcmp(key, "choices") == 0 ? PEER_CHOICES
							    : PEER_OTHER;
	case PEER_CHOICES:
		return object ? PEER_CHOICE : PEER_OTHER;
	case PEER_CHOICE:
		if (object && strcmp(key, "logprobs") == 0)
			return PEER_LOGPROBS;
		return object &&
			(strcmp(key, "delta") == 0 ||
			    strcmp(key, "message") == 0)
		    ? PEER_DELTA
		    : PEER_OTHER;
	case PEER_LOGPROBS:
		return array ? PEER_ENTRIES : PEER_OTHER;
	case PEER_ENTRIES:
		return object ? PEER_ENTRY : PEER_OTHER;
	case PEER_ENTRY:
		return array && strcmp(key, "top_logprobs") == 0
		    ? PEER_ALTERNATIVES
		    : PEER_OTHER;
	case PEER_DELTA:
	case PEER_ALTERNATIVES:
	case PEER_OTHER:
		break;
	}
	return PEER_OTHER;
}

static void
peer_put(struct peer_print *p, const char *s)
{
	/* length first: no text is taken for another one's structure */
	err_assert(buf_printf(p->out, "%zu:", strlen(s)) == 0 &&
	    buf_add_str(p->out, s) == 0 && buf_add_char(p->out, ' ') == 0);
}

static void
peer_print(struct peer_print *p, yajl_val v, enum peer_place at)
{
	bool cut = p->edit && at == PEER_ALTERNATIVES &&
	    p->w->forced_logprobs && p->w->logprobs;
	size_t i;

	if (YAJL_IS_OBJECT(v)) {
		peer_put(p, "{");
		for (i = 0; i < v->u.object.len; i++) {
			const char *key = v->u.object.keys[i];
			yajl_val val = v->u.object.values[i];

			if (peer_gone(p, at, key))
				continue;
			peer_put(p, key);
			peer_print(p, val, peer_below(at, key, val));
		}
		peer_put(p, "}");
	} else if (YAJL_IS_ARRAY(v)) {
		peer_put(p, "[");
		for (i = 0; i < v->u.array.len; i++) {
			yajl_val val = v->u.array.values[i];

			if (!cut || i < p->w->top_logprobs)
				peer_print(p, val, peer_below(at, "", val));
		}
		peer_put(p, "]");
	} else if (YAJL_IS_STRING(v)) {
		peer_put(p, "s");
		peer_put(p, v->u.string);
	} else if (YAJL_IS_NUMBER(v)) {
		peer_put(p, v->u.number.r);
	} else {
		peer_put(p,
		    YAJL_IS_TRUE(v)        ? "true"
			: YAJL_IS_FALSE(v) ? "false"
					   : "null");
	}
}

static yajl_val
peer_tree(struct view text)
{
	char *copy = mem_strndup(text.p, text.n), error[64];
	yajl_val v = NULL;

	err_assert(copy != NULL);
	/* it keeps keys and strings as C strings */
	if (view_find(text, '\0') == text.n &&
	    view_search(text, VIEW("\\u0000")) == text.n)
		v = yajl_tree_parse(copy, error, sizeof(error));
	mem_free(copy);
	return v;
}

/* Both texts, one edited by the reference, print the same. */
static void
peer_reference(const struct llm_wants *w, bool chunk, struct view was,
    struct view is)
{
	struct buf a = BUF_INIT(32 * was.n + 1024);
	struct buf b = BUF_INIT(32 * was.n + 1024);
	struct peer_print want = { w, chunk, true, &a };
	struct peer_print got = { w, chunk, false, &b };
	yajl_val v = peer_tree(was), u;

	if (v == NULL)
		return; /* not UTF-8, or not JSON in the strict sense */
	u = peer_tree(is);
	err_assert(u != NULL);
	peer_print(&want, v, PEER_TOP);
	peer_print(&got, u, PEER_TOP);
	err_assert(view_eq(buf_view(&a), buf_view(&b)));
	yajl_tree_free(v);
	yajl_tree_free(u);
	buf_clear(&a);
	buf_clear(&b);
}

/* What came of the edits, of valid text and of other. */
static void
peer_edited(const struct llm_wants *w, struct view text, bool chunk,
    struct jsplice *edits, const struct llm_reply_facts *facts)
{
	struct buf out = BUF_INIT(text.n + 1);
	struct llm_reply_facts facts2;

	err_assert(jsplice_apply(edits, text, &out) == 0);
	err_assert(peer_subsequence(buf_view(&out), text));
	if (jscan_valid(text, JSCAN_ALLOW_NONFINITE) == 0) {
		err_assert(
		    jscan_valid(buf_view(&out), JSCAN_ALLOW_NONFINITE) == 0);
		peer_reference(w, chunk, text, buf_view(&out));
	} else {
		err_assert(chunk); /* malformed, and the client sees it */
	}
	jsplice_reset(edits);
	err_assert(
	    llm_reply_edit(w, buf_view(&out), chunk, edits, &facts2) == 0);
	err_assert(edits->n == 0);
	err_assert(facts->useful == facts2.useful &&
	    facts->error == facts2.error && facts->finish == facts2.finish);
	err_assert(!facts->drop || !facts->useful);
	buf_clear(&out);
}

/* Edits the reply and checks what came of it; its SP_E_*. */
static inline int
peer_reply(const struct llm_wants *w, struct view text, bool chunk)
{
	struct llm_reply_facts facts;
	struct jsplice edits;
	int rc;

	jsplice_init(&edits, 65536);
	rc = llm_reply_edit(w, text, chunk, &edits, &facts);
	if (rc != 0) {
		int valid = jscan_valid(text, JSCAN_ALLOW_NONFINITE);

		err_assert(valid == 0 ? rc == SP_E_SYNTAX && !peer_object(text)
			: chunk       ? rc == SP_E_SYNTAX || rc == SP_E_LIMIT
				      : rc == valid);
	} else {
		peer_edited(w, text, chunk, &edits, &facts);
	}
	jsplice_clear(&edits);
	return rc;
}

#endif
