/* Upstreams that refuse what the capture asks for, remembered. */
#ifndef SP_LLM_REFUSAL_H
#define SP_LLM_REFUSAL_H

#include "base/err.h"
#include "base/view.h"
#include "llm_request.h"

enum { LLM_REFUSAL_MS = 10 * 60 * 1000 }; /* then it is asked for anew */

struct llm_refusal;

/*
 * Context: reactor; no blocking.
 * Returns: NULL without memory.
 */
struct llm_refusal *llm_refusal_new(void) must_check;
void llm_refusal_free(struct llm_refusal *m); /* NULL allowed */
/*
 * Forgets all, when what there is was learnt under another stamp, or some of
 * it LLM_REFUSAL_MS ago: the engine may be another one by now.
 * Parameters: stamp, of the configuration and its servers.
 */
void llm_refusal_renew(struct llm_refusal *m, uint64_t stamp, uint64_t now_ms);
/* The enum llm_ask bits known for that model of that upstream; 0 none. */
unsigned llm_refusal_known(const struct llm_refusal *m, struct view upstream,
    struct view model);
/*
 * Remembers, on top of what is known; at most 4,096 pairs, past that nothing
 * is (it costs a retry).  For attempts that were accepted: what an error text
 * seems to say is no proof, and a workload can have a hand in it.
 * Parameters: stamp, at the time of the first attempt: nothing is learnt under
 *          another one.
 */
void llm_refusal_learn(struct llm_refusal *m, uint64_t stamp,
    struct view upstream, struct view model, unsigned ask);

/*
 * Reads an error reply.
 * Source:  cases F1, F2, F3: 400, 403 and 422 (and 501) whose body names
 *          the parameter.
 *          A request that the reply quotes names nothing, nor does a list of
 *          what the server knows; a context that is too long is no refusal.
 * Parameters: w, what was forced; ask, the bits of the refused attempt.
 * Returns: the bits to try next, or ask when the reply is no refusal of
 *          something that only we asked for.  LLM_ASK_N_PROBS is given up for
 *          LLM_ASK_NO_LOGPROBS, so at most three attempts follow the first.
 */
unsigned llm_refusal_next(unsigned status, struct view body,
    const struct llm_wants *w, unsigned ask);

#endif
