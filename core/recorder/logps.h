/* The log-probabilities of one choice. */
#ifndef SP_RECORDER_LOGPS_H
#define SP_RECORDER_LOGPS_H

#include "json/jtoken.h"
#include "recorder/accum.h"

struct logps {
	bool seen; /* an object came, be it without entries */
	struct accum_list entries; /* as sent */
	struct accum_list tokens; /* the "token" of each, as written */
	struct accum_list values; /* the "logprob" of each; not finite: null */
	struct accum_list refusal;
	struct accum_ids ids; /* "id", "token_id" of the entries */
	struct accum_ids text_ids; /* out of "token_id:N" */
	size_t valued; /* finite values */
	size_t nonfinite; /* sampled ones that are NaN, infinite or null */
	size_t zeros, positive;
	double min, sum;
	struct jscan_span last; /* the newest entry, in the text it came in */
	/* where logps_write() put the entries, in the writer's buffer */
	size_t written_at, written_n;
};

/*
 * Reads the value of a choice's `logprobs` at the cursor, which is consumed;
 * null adds nothing.
 * Context: recorder, does not block.
 * Returns: 0, or an error of the scanner.
 */
int logps_scan(struct accum_hold *h, struct logps *l,
    struct jscan *s) must_check;
/* An entry that jtoken_end() followed, at v of the text of s. */
void logps_add(struct accum_hold *h, struct logps *l, const struct jscan *s,
    const struct jscan_span *v, const struct jtoken *t);
/* The object as a unary reply has it, or null. */
void logps_write(struct logps *l, struct jwrite *w);
void logps_clear(struct logps *l);

#endif
