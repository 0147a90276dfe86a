/*
 * Holds llm_repeat against llm_reply, chunk after chunk: what is told by
 * comparison is what a look at all of it tells.
 */
#ifndef SP_T_UNIT_REPEAT_PEER_H
#define SP_T_UNIT_REPEAT_PEER_H

#include "llm_repeat.h"

enum { REPEAT_PEER_EDITS = 64 };

static bool
repeat_peer_same(const struct jsplice *a, const struct jsplice *b)
{
	size_t i;

	if (a->n != b->n)
		return false;
	for (i = 0; i < a->n; i++)
		if (a->v[i].at != b->v[i].at || a->v[i].drop != b->v[i].drop ||
		    a->v[i].put.n != b->v[i].put.n)
			return false;
	return true;
}

/*
 * One chunk through both, as the stream does it: 1 told by comparison, 0 not,
 * -1 told wrong.  (A chunk that is none, cut up in the middle of a value that
 * goes, is cut there all the same.)  once: a choice had log-probabilities.
 */
static inline int
repeat_peer_chunk(struct llm_repeat **r, const struct llm_wants *w,
    struct view json, bool *once)
{
	struct llm_reply_facts full, quick;
	struct jsplice a, b;
	bool hit, before = *once;
	int rc, told;

	jsplice_init(&a, REPEAT_PEER_EDITS);
	jsplice_init(&b, REPEAT_PEER_EDITS);
	hit = llm_repeat_edit(*r, json, &b, &quick);
	rc = llm_reply_edit(w, json, true, &a, &full);
	*once |= rc == 0 && full.logprobs;
	told = hit;
	if (hit && rc == 0 &&
	    (!repeat_peer_same(&a, &b) || quick.error != full.error ||
		quick.useful != full.useful || quick.finish != full.finish ||
		quick.drop != full.drop || (quick.logprobs && !*once) ||
		(full.logprobs && !before && !quick.logprobs)))
		told = -1;
	if (!hit && b.n > 0)
		told = -1;
	if (!hit && rc == 0)
		llm_repeat_learn(r, w, json, &a, &full);
	jsplice_clear(&a);
	jsplice_clear(&b);
	return told;
}

#endif
