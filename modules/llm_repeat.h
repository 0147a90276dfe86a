/* Events of a stream that are the one before over again but for its text. */
#ifndef SP_LLM_REPEAT_H
#define SP_LLM_REPEAT_H

#include "base/buf.h"
#include "llm_reply.h"

enum {
	LLM_REPEAT_SLOTS = 4,
	LLM_REPEAT_EDITS = 4,
	LLM_REPEAT_FIXED_MAX = 2048,
	LLM_REPEAT_MISSES = 32, /* in a row, and it is not tried any more */
};

/* A place in the text: behind that many values, and bytes after the last. */
struct llm_repeat_place {
	size_t slot, off;
};

struct llm_repeat {
	struct buf fixed; /* what is the same, run after run; owned */
	size_t run[LLM_REPEAT_SLOTS + 1]; /* bytes of each */
	bool text[LLM_REPEAT_SLOTS]; /* a string between two runs */
	size_t n; /* slots */
	struct llm_repeat_place from[LLM_REPEAT_EDITS], to[LLM_REPEAT_EDITS];
	size_t edits_n;
	struct llm_reply_facts facts;
	bool ready;
	unsigned misses;
};

/*
 * As llm_reply_edit() for a chunk, by comparison with the one before.
 * Context: reactor; no blocking; linear.
 * Parameters: r, NULL: nothing was learned; edits, empty.
 * Returns: false when it is another one, or not for sure the same: edits are
 *          then empty, and llm_reply_edit() has to look.
 */
bool llm_repeat_edit(struct llm_repeat *r, struct view json,
    struct jsplice *edits, struct llm_reply_facts *facts);
/*
 * Learns from a chunk, which w had edited, what llm_reply_edit() made of it.
 * Owner:   *r is made when it is NULL, and is the caller's; freed by
 *          llm_repeat_free().  Without memory nothing is learned.
 */
void llm_repeat_learn(struct llm_repeat **r, const struct llm_wants *w,
    struct view json, const struct jsplice *edits,
    const struct llm_reply_facts *facts);
void llm_repeat_free(struct llm_repeat *r);

#endif
