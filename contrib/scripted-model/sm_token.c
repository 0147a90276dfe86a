#include "sm_token.h"

#include <math.h>

#include "base/mem.h"
#include "base/utf8.h"

enum {
	TOKEN_BYTES = 4,
	TOKEN_VOCABULARY = 151000,
	TOKENS_MAX = 64 * 1024 * 1024
};

static const struct {
	const char *name;
	uint32_t id;
} specials[] = {
	{ "<|im_start|>", 151644 },
	{ "<|im_end|>", 151645 },
	{ "<tool_call>", 151657 },
	{ "</tool_call>", 151658 },
	{ "<think>", 151667 },
	{ "</think>", 151668 },
};

void
sm_token_clear(struct sm_tokens *l)
{
	mem_free(l->v);
	*l = (struct sm_tokens){ 0 };
}

/* FNV-1a: the same on every run and machine, which view_hash() is not. */
static uint64_t
stable_hash(struct view v, uint64_t seed)
{
	uint64_t h = 0xcbf29ce484222325u ^ seed * 0x9e3779b97f4a7c15u;
	size_t i;

	for (i = 0; i < v.n; i++)
		h = (h ^ (unsigned char)v.p[i]) * 0x100000001b3u;
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93u;
	return h ^ h >> 32;
}

static void
push(struct sm_tokens *l, struct view text, uint32_t id)
{
	struct sm_token *v;
	size_t cap;

	if (l->err != 0)
		return;
	if (l->n == l->cap) {
		cap = l->cap ? l->cap * 2 : 64;
		v = cap > TOKENS_MAX ? NULL
				     : mem_reallocarray(l->v, cap, sizeof(*v));
		if (v == NULL) {
			l->err = SP_E_NOMEM;
			return;
		}
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = (struct sm_token){ text, id };
}

static uint32_t
text_id(struct view text)
{
	return (uint32_t)(stable_hash(text, 0) % TOKEN_VOCABULARY);
}

static int
class_of(unsigned char c)
{
	if (c >= 0x80 || (c >= '0' && c <= '9') ||
	    (unsigned)((c | 32) - 'a') < 26)
		return 0;
	if (c == '\n' || c == '\r')
		return 1;
	return c == ' ' || c == '\t' ? 2 : 3;
}

static size_t
char_len(struct view v)
{
	uint32_t cp;
	unsigned n;

	if ((unsigned char)v.p[0] < 0x80)
		return 1;
	n = utf8_decode(v, &cp);
	return n > 0 ? n : 1;
}

/* Bytes of the first token of v: a space, then a run of one class. */
static size_t
token_len(struct view v)
{
	size_t n =
	    v.p[0] == ' ' && v.n > 1 && class_of((unsigned char)v.p[1]) != 1;
	int cls = class_of((unsigned char)v.p[n]);
	size_t start = n;

	while (n < v.n && class_of((unsigned char)v.p[n]) == cls) {
		size_t c = char_len(view_from(v, n));

		if (n > start && n + c > start + TOKEN_BYTES)
			break;
		n += c;
	}
	return n;
}

void
sm_token_split(struct sm_tokens *l, struct view text)
{
	while (text.n > 0 && l->err == 0) {
		struct view t = view_sub(text, 0, token_len(text));

		push(l, t, text_id(t));
		text = view_from(text, t.n);
	}
}

void
sm_token_special(struct sm_tokens *l, const char *name)
{
	struct view v = view_str(name);
	size_t i;

	for (i = 0; i < sizeof(specials) / sizeof(specials[0]); i++)
		if (view_eq(v, view_str(specials[i].name))) {
			push(l, v, specials[i].id);
			return;
		}
	push(l, v, text_id(v));
}

/* Content may be a string or a list of parts with text. */
static void
prompt_content(struct sm_tokens *l, const struct sm_json *c)
{
	const struct sm_json *p;

	if (sm_json_is(c, SM_JSON_STRING))
		sm_token_split(l, c->text);
	if (!sm_json_is(c, SM_JSON_ARRAY))
		return;
	for (p = c->child; p != NULL; p = p->next)
		sm_token_split(l, sm_json_string(p, "text"));
}

static void
prompt_tool_calls(struct sm_tokens *l, struct arena *a,
    const struct sm_json *calls)
{
	const struct sm_json *c;
	char *head;

	if (!sm_json_is(calls, SM_JSON_ARRAY))
		return;
	for (c = calls->child; c != NULL; c = c->next) {
		const struct sm_json *f = sm_json_get(c, "function");
		struct view name = sm_json_string(f, "name");

		head = arena_printf(a,
		    "\n{\"name\": \"%.*s\", \"arguments\": ", VIEW_ARG(name));
		if (head == NULL) {
			l->err = SP_E_NOMEM;
			return;
		}
		sm_token_special(l, "<tool_call>");
		sm_token_split(l, view_str(head));
		sm_token_split(l, sm_json_string(f, "arguments"));
		sm_token_split(l, VIEW("}\n"));
		sm_token_special(l, "</tool_call>");
	}
}

static void
prompt_message(struct sm_tokens *l, struct arena *a, const struct sm_json *m)
{
	struct view thought = sm_json_string(m, "reasoning_content");

	if (thought.n == 0)
		thought = sm_json_string(m, "reasoning");
	sm_token_special(l, "<|im_start|>");
	sm_token_split(l, sm_json_string(m, "role"));
	sm_token_split(l, VIEW("\n"));
	if (thought.n > 0) {
		sm_token_special(l, "<think>");
		sm_token_split(l, thought);
		sm_token_special(l, "</think>");
	}
	prompt_content(l, sm_json_get(m, "content"));
	prompt_tool_calls(l, a, sm_json_get(m, "tool_calls"));
	sm_token_special(l, "<|im_end|>");
	sm_token_split(l, VIEW("\n"));
}

void
sm_token_prompt(struct sm_tokens *l, struct arena *a,
    const struct sm_json *request)
{
	const struct sm_json *m = sm_json_get(request, "messages");
	const struct sm_json *t = sm_json_get(request, "tools");

	if (sm_json_is(t, SM_JSON_ARRAY) && t->child != NULL) {
		sm_token_split(l, VIEW("# Tools\n"));
		for (t = t->child; t != NULL; t = t->next)
			sm_token_split(l,
			    sm_json_string(sm_json_get(t, "function"),
				"description"));
	}
	if (sm_json_is(m, SM_JSON_ARRAY))
		for (m = m->child; m != NULL; m = m->next)
			prompt_message(l, a, m);
	sm_token_special(l, "<|im_start|>");
	sm_token_split(l, VIEW("assistant\n"));
}

static void
put_bytes(struct sm_out *o, struct view v)
{
	size_t i;

	sm_out_str(o, "\"bytes\":[");
	for (i = 0; i < v.n; i++)
		sm_out_fmt(o, "%s%u", i ? "," : "", (unsigned char)v.p[i]);
	sm_out_str(o, "]");
}

/* The fields of one token, sampled or not, without the closing brace. */
static void
put_token(struct sm_out *o, const struct sm_token *t, double lp,
    const struct sm_token_style *st)
{
	sm_out_str(o, "{");
	if (st->shape == SM_SHAPE_LLAMACPP)
		sm_out_fmt(o, "\"id\":%u,", (unsigned)t->id);
	sm_out_str(o, "\"token\":");
	if (st->as_ids)
		sm_out_fmt(o, "\"token_id:%u\"", (unsigned)t->id);
	else
		sm_out_quoted(o, t->text);
	sm_out_fmt(o, ",\"logprob\":%.6f,", lp);
	put_bytes(o, t->text);
}

/* One that was not sampled but might have been. */
static struct sm_token
alternative(uint64_t h, int k)
{
	static const char *const words[] = { " the", " a", "\n", ",", " to",
		" of", ".", " and", " in", "é", " is", "(", " it", " this", "_",
		" for", " that", "\"", " as", "1", " I", ":", " with", "s" };
	size_t n = sizeof(words) / sizeof(words[0]);
	struct view v = view_str(words[(h + (uint64_t)k) % n]);

	return (struct sm_token){ v, text_id(v) };
}

/*
 * The sampled token has probability p, and the k-th of the others half of
 * what the one before left: together never above 1, in falling order, and the
 * sampled one stands where it belongs, which is not always first.
 */
static void
put_top(struct sm_out *o, const struct sm_token *t, double p, uint64_t h,
    const struct sm_token_style *st)
{
	double rest = 1.0 - p;
	bool placed = false;
	int i, k = 0;

	sm_out_str(o, ",\"top_logprobs\":[");
	for (i = 0; i < st->top_n; i++) {
		double q = rest * 0.5;

		if (i > 0)
			sm_out_str(o, ",");
		if (!placed && p >= q) {
			put_token(o, t, log(p), st);
			placed = true;
		} else {
			struct sm_token alt = alternative(h >> 8, k++);

			if (alt.id == t->id)
				alt = alternative(h >> 8, k++);
			put_token(o, &alt, log(q > 1e-12 ? q : 1e-12), st);
			rest -= q;
		}
		sm_out_str(o, "}");
	}
	sm_out_str(o, "]");
}

void
sm_token_entries(struct sm_out *o, const struct sm_tokens *l, size_t from,
    size_t to, const struct sm_token_style *st)
{
	size_t i;

	for (i = from; i < to && i < l->n; i++) {
		const struct sm_token *t = &l->v[i];
		uint64_t h = stable_hash(t->text, i + 1);
		double u = (double)(h >> 40) / 16777216.0;
		double p = 1.0 - 0.97 * u * u * u;

		if (i > from)
			sm_out_str(o, ",");
		put_token(o, t, log(p), st);
		put_top(o, t, p, h, st);
		sm_out_str(o, "}");
	}
}

void
sm_token_ids(struct sm_out *o, const struct sm_tokens *l, size_t from,
    size_t to)
{
	size_t i;

	for (i = from; i < to && i < l->n; i++)
		sm_out_fmt(o, "%s%u", i > from ? "," : "",
		    (unsigned)l->v[i].id);
}
