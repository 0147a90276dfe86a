/* Upstreams that refuse what the capture asks for, remembered. */
#ifndef SP_LLM_REFUSAL_H
#define SP_LLM_REFUSAL_H

#include "base/err.h"
#include "base/view.h"
#include "llm_request.h"

struct llm_refusal;

/*
 * Context: reactor; no blocking.
 * Returns: NULL without memory.
 */
struct llm_refusal *llm_refusal_new(void) must_check;
void llm_refusal_free(struct llm_refusal *m); /* NULL allowed */
/* The enum llm_ask bits known for that model of that upstream; 0 none. */
unsigned llm_refusal_known(const struct llm_refusal *m, struct view upstream,
    struct view model);
/* Remembers; at most 4,096 pairs, past that nothing is (it costs a retry). */
void llm_refusal_learn(struct llm_refusal *m, struct view upstream,
    struct view model, unsigned ask);

/*
 * Reads an error reply.
 * Source:  cases F1, F2, F3: 400, 403 and 422 (and 501) whose body names
 *          the parameter.
 * Parameters: w, what was forced; ask, the bits of the refused attempt.
 * Returns: the bits to try next (more than ask), or ask when the reply is no
 *          refusal of something that only we asked for.
 */
unsigned llm_refusal_next(unsigned status, struct view body,
    const struct llm_wants *w, unsigned ask);

#endif
