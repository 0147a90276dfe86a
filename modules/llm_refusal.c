#include "config.h"

#include "llm_refusal.h"

#include "base/hmap.h"
#include "base/mem.h"

enum { PAIRS_MAX = 4096, KEY_MAX = 256 };

struct llm_refusal {
	struct hmap *pairs; /* "upstream\0model" to the bits, one up */
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
llm_refusal_learn(struct llm_refusal *m, struct view upstream,
    struct view model, unsigned ask)
{
	char key[KEY_MAX];
	int rc;

	rc = hmap_set(m->pairs, key_of(upstream, model, key),
	    &bits_table[ask % sizeof(bits_table)]);
	(void)rc; /* not remembered: the next call is refused once more */
}

/* Case-blind search. */
static bool
names(struct view body, struct view word)
{
	size_t i;

	for (i = 0; i + word.n <= body.n; i++) {
		if ((body.p[i] | 0x20) == word.p[0] &&
		    view_eq_nocase(view_sub(body, i, word.n), word))
			return true;
	}
	return false;
}

unsigned
llm_refusal_next(unsigned status, struct view body, const struct llm_wants *w,
    unsigned ask)
{
	if (status != 400 && status != 403 && status != 422 && status != 501)
		return ask;
	if (w->forced_token_ids && !w->token_ids &&
	    (names(body, VIEW("return_token_ids")) ||
		names(body, VIEW("token_ids"))))
		return ask | LLM_ASK_NO_TOKEN_IDS;
	if (!w->forced_logprobs || w->logprobs)
		return ask;
	if (ask & LLM_ASK_N_PROBS) /* that was refused, whatever it says */
		return names(body, VIEW("prob"))
		    ? (ask & ~(unsigned)LLM_ASK_N_PROBS) | LLM_ASK_NO_LOGPROBS
		    : ask;
	if (!names(body, VIEW("logprob")))
		return ask;
	/* llama.cpp with tools and a stream takes its native form; case F2 */
	if (w->stream && names(body, VIEW("tools")) &&
	    names(body, VIEW("stream")))
		return ask | LLM_ASK_N_PROBS;
	return ask | LLM_ASK_NO_LOGPROBS;
}
