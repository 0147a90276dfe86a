#include "config.h"

#include "llm_refusal.h"

#include "base/hmap.h"
#include "base/mem.h"

enum { PAIRS_MAX = 4096, KEY_MAX = 256 };

struct llm_refusal {
	struct hmap *pairs; /* "upstream\0model" to the bits, one up */
	uint64_t stamp; /* that all of it was learnt under */
	uint64_t until_ms;
};

struct llm_refusal *
llm_refusal_new(void)
{
	struct llm_refusal *m = mem_calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->pairs = hmap_new(PAIRS_MAX);
	if (m->pairs == NULL) {
		mem_free(m);
		return NULL;
	}
	return m;
}

void
llm_refusal_free(struct llm_refusal *m)
{
	if (m == NULL)
		return;
	hmap_free(m->pairs);
	mem_free(m);
}

void
llm_refusal_renew(struct llm_refusal *m, uint64_t stamp, uint64_t now_ms)
{
	struct hmap *fresh;

	if (stamp == m->stamp && now_ms < m->until_ms)
		return;
	m->stamp = stamp;
	m->until_ms = now_ms + LLM_REFUSAL_MS;
	fresh = hmap_count(m->pairs) > 0 ? hmap_new(PAIRS_MAX) : NULL;
	if (fresh == NULL)
		return; /* without memory it is kept for once */
	hmap_free(m->pairs);
	m->pairs = fresh;
}

static struct view
key_of(struct view upstream, struct view model, char key[KEY_MAX])
{
	upstream = view_sub(upstream, 0, KEY_MAX - 1 - LLM_MODEL_MAX);
	model = view_sub(model, 0, LLM_MODEL_MAX);
	if (upstream.n > 0)
		memcpy(key, upstream.p, upstream.n);
	key[upstream.n] = '\0';
	if (model.n > 0)
		memcpy(key + upstream.n + 1, model.p, model.n);
	return view_of(key, upstream.n + 1 + model.n);
}

/* The bits stand in the map as pointers into this table: no allocation. */
static char bits_table[16];

unsigned
llm_refusal_known(const struct llm_refusal *m, struct view upstream,
    struct view model)
{
	char key[KEY_MAX];
	const char *at;

	at = hmap_get(m->pairs, key_of(upstream, model, key));
	return at != NULL ? (unsigned)(at - bits_table) : 0;
}

void
llm_refusal_learn(struct llm_refusal *m, uint64_t stamp, struct view upstream,
    struct view model, unsigned ask)
{
	char key[KEY_MAX];
	int rc;

	if (stamp != m->stamp)
		return;
	/* calls that were under way at once may each have learnt a part */
	ask |= llm_refusal_known(m, upstream, model);
	if (ask & LLM_ASK_NO_LOGPROBS)
		ask &= ~(unsigned)LLM_ASK_N_PROBS;
	rc = hmap_set(m->pairs, key_of(upstream, model, key),
	    &bits_table[ask % sizeof(bits_table)]);
	(void)rc; /* not remembered: the next call is refused once more */
}

static bool
at_nocase(struct view body, size_t at, struct view word)
{
	return view_eq_nocase(view_sub(body, at, word.n), word);
}

/* Case-blind: the offset of the first word (lower case) from at on, or n. */
static size_t
find(struct view body, size_t at, struct view word)
{
	for (; at + word.n <= body.n; at++)
		if ((body.p[at] | 0x20) == word.p[0] &&
		    at_nocase(body, at, word))
			return at;
	return body.n;
}

static bool
says(struct view body, struct view word)
{
	return find(body, 0, word) < body.n;
}

static bool
is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	    (c >= '0' && c <= '9') || c == '_';
}

static size_t
skip_any(struct view body, size_t at, const char *set)
{
	while (at < body.n && body.p[at] != '\0' &&
	    strchr(set, body.p[at]) != NULL)
		at++;
	return at;
}

/*
 * Servers quote the request that they refuse: {"logprobs":true} as JSON or as
 * Python prints it is no statement about logprobs.  at: past the name.
 */
static bool
is_echo(struct view body, size_t at)
{
	size_t quote = skip_any(body, at, "\\\"'"), colon;

	colon = skip_any(body, quote, " ");
	if (quote == at || colon == body.n || body.p[colon] != ':')
		return false;
	at = skip_any(body, colon + 1, " ");
	return at < body.n &&
	    ((body.p[at] >= '0' && body.p[at] <= '9') ||
		at_nocase(body, at, VIEW("true")));
}

/*
 * True when the text names a parameter with the stem in it: top_logprobs,
 * responseLogprobs, but not the client's own prompt_logprobs; alone: nothing
 * before the stem, not even stop_.
 */
static bool
names(struct view body, struct view stem, bool alone)
{
	size_t at, from, to;

	for (at = 0; (at = find(body, at, stem)) < body.n; at = to) {
		for (to = at + stem.n; to < body.n && is_word(body.p[to]); to++)
			;
		for (from = at; from > 0 && is_word(body.p[from - 1]); from--)
			;
		if ((!alone || from == at) &&
		    !at_nocase(body, from, VIEW("prompt")) &&
		    !is_echo(body, to))
			return true;
	}
	return false;
}

/*
 * The part of the text that is the server's own: up to where it lists what
 * it knows, or quotes the request or a part of it.
 */
static struct view
own_words(struct view body)
{
	static const struct view marks[] = { VIEW_INIT("expected one of"),
		VIEW_INIT("input_value={"), VIEW_INIT("input_value=["),
		VIEW_INIT("\"input\":{"), VIEW_INIT("\"input\": {"),
		VIEW_INIT("'input': {"), VIEW_INIT("\"input\":["),
		VIEW_INIT("\"input\": ["), VIEW_INIT("'input': [") };
	size_t i;

	for (i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		body.n = find(body, 0, marks[i]);
	return body;
}

static bool
names_logprobs(struct view body)
{
	static const struct view stems[] = { VIEW_INIT("logprob"),
		VIEW_INIT("log_prob"), VIEW_INIT("log-prob"),
		VIEW_INIT("log probs"), VIEW_INIT("log probabilit"),
		VIEW_INIT("n_probs") };
	size_t i;

	for (i = 0; i < sizeof(stems) / sizeof(stems[0]); i++)
		if (names(body, stems[i], false))
			return true;
	return false;
}

static bool
names_token_ids(struct view body)
{
	return names(body, VIEW("return_token_ids"), false) ||
	    names(body, VIEW("token_ids"), true);
}

/* What was sent goes beyond what the client itself had asked for. */
static bool
forced_logprobs(const struct llm_wants *w)
{
	return w->forced_logprobs &&
	    (!w->logprobs || w->forced_top > w->top_logprobs);
}

unsigned
llm_refusal_next(unsigned status, struct view body, const struct llm_wants *w,
    unsigned ask)
{
	struct view own;

	if (status != 400 && status != 403 && status != 422 && status != 501)
		return ask;
	own = own_words(body);
	/* too long is too long, whatever else it tells */
	if (says(own, VIEW("context_length")) ||
	    says(own, VIEW("context length")))
		return ask;
	if (w->forced_token_ids && !w->token_ids && !w->insist_token_ids &&
	    !(ask & LLM_ASK_NO_TOKEN_IDS) && names_token_ids(own))
		return ask | LLM_ASK_NO_TOKEN_IDS;
	if (!forced_logprobs(w) || (ask & LLM_ASK_NO_LOGPROBS) ||
	    !names_logprobs(own))
		return ask;
	if (ask & LLM_ASK_N_PROBS) /* that was refused as well */
		return (ask & ~(unsigned)LLM_ASK_N_PROBS) | LLM_ASK_NO_LOGPROBS;
	/* llama.cpp with tools and a stream takes its native form; case F2 */
	if (w->stream && says(own, VIEW("tools")) && says(own, VIEW("stream")))
		return ask | LLM_ASK_N_PROBS;
	return ask | LLM_ASK_NO_LOGPROBS;
}
