/* Turns and totals of a trace, for people and as JSON. */
#ifndef SP_CTL_PRINT_H
#define SP_CTL_PRINT_H

#include <stdio.h>

#include "ctl/ctl_record.h"
#include "ctl/ctl_verify.h"

enum { CTL_FINISH_KINDS = 16, CTL_FINDING_KINDS = 40 };

struct ctl_tally {
	char name[48];
	uint64_t n;
};

struct ctl_totals {
	uint64_t turns, complete, aligned, aborted, errors, trainable;
	uint64_t prompt_tokens, completion_tokens;
	uint64_t logps;
	double logp_sum;
	struct ctl_tally finish[CTL_FINISH_KINDS];
	struct ctl_tally findings[CTL_FINDING_KINDS];
};

/*
 * Context: sallyportctl.
 * Parameters: any_tools, as in ctl_print_train(), which prints as many turns
 *          as are counted in `trainable`.
 */
void ctl_print_add(struct ctl_totals *t, const struct ctl_record *r,
    bool any_tools);
void ctl_print_totals(FILE *out, const struct ctl_totals *t,
    const struct ctl_verify *v);
/* One line of JSON. */
int ctl_print_totals_json(FILE *out, const struct ctl_totals *t,
    const struct ctl_verify *v) must_check;
/* colour: the tokens by their probability. */
void ctl_print_turn(FILE *out, const struct ctl_record *r, bool colour);
/* One line of JSON: what the text form shows. */
int ctl_print_turn_json(FILE *out, const struct ctl_record *r) must_check;
/*
 * The turn in the shape of TRL's and OpenEnv's readers, or nothing when it is
 * not one to train on.
 * Parameters: any_tools, the session has turns with tools: those without
 *          (titles, summaries) are not the agent's own.
 * Returns: 1 printed, 0 not; SP_E_NOMEM.
 */
int ctl_print_train(FILE *out, const struct ctl_record *r,
    bool any_tools) must_check;

#endif
