/* What is taken out of a reply on its way down. */
#ifndef SP_LLM_REPLY_H
#define SP_LLM_REPLY_H

#include "base/err.h"
#include "base/view.h"
#include "json/jsplice.h"
#include "llm_request.h"

/* What one chunk, or a whole unary reply, is. */
struct llm_reply_facts {
	bool error; /* an error at the top, or the whole is one */
	bool useful; /* at least one choice, or an error */
	bool finish; /* a choice has a finish_reason */
	bool logprobs; /* a choice has at least one log-probability */
	bool drop; /* holds only what the client did not ask for */
};

/* Alternatives beyond the client's number are taken out of each entry. */
bool llm_reply_trims(const struct llm_wants *w);

/*
 * Collects the removals for one JSON text of the upstream: log-probabilities,
 * token ids and usage that were asked for by us and not by the client, and
 * alternatives beyond what it asked.  Nothing else is touched.
 * Source:  cases B3, D2, E3, E15, K4.
 * Context: reactor; no blocking; one pass; linear.
 * Parameters: chunk, an event of a stream, else a whole chat.completion;
 *          edits, empty.
 * Returns: 0; SP_E_SYNTAX not a JSON object (edits are void then); SP_E_LIMIT
 *          too deep or too many edits; SP_E_NOMEM.
 */
int llm_reply_edit(const struct llm_wants *w, struct view json, bool chunk,
    struct jsplice *edits, struct llm_reply_facts *facts) must_check;

#endif
