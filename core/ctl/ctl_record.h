/* Reading a trace: one record taken apart into the texts of its members. */
#ifndef SP_CTL_RECORD_H
#define SP_CTL_RECORD_H

#include "base/buf.h"
#include "base/view.h"
#include "json/jscan.h"

enum ctl_member {
	CTL_TURN,
	CTL_SESSION,
	CTL_REQUEST,
	CTL_RESPONSE,
	CTL_TOKENS,
	CTL_IDS,
	CTL_LOGPS,
	CTL_PROMPT_IDS,
	CTL_FINISH,
	CTL_REASONING,
	CTL_USAGE,
	CTL_ALIGNED,
	CTL_LATENCY,
	CTL_TTFT,
	CTL_TIMESTAMP,
	CTL_STATUS,
	CTL_ERROR,
	CTL_COMPLETE,
	CTL_ABORTED,
	CTL_FINDINGS,
	CTL_METADATA,
	CTL_MEMBERS
};

struct ctl_record {
	struct view line; /* borrowed; the views below lie in it */
	struct view v[CTL_MEMBERS]; /* raw JSON; empty: not there */
};

/*
 * Context: sallyportctl.
 * Returns: 0; SP_E_SYNTAX the line is not a JSON object.
 */
int ctl_record_read(struct ctl_record *r, struct view line) must_check;
static inline bool
ctl_record_true(const struct ctl_record *r, enum ctl_member m)
{
	return view_eq(r->v[m], VIEW("true"));
}
/* A member of an object given as text; empty: not there. */
struct view ctl_record_get(struct view object, struct view name);
/* The unsigned number that the text is, or 0. */
uint64_t ctl_record_number(struct view text);
/* The string that the text is, decoded; SP_E_SYNTAX: it is none. */
int ctl_record_string(struct view text, struct buf *out) must_check;
/* Elements of an array given as text. */
size_t ctl_record_count(struct view array);

/*
 * Calls each() for every whole line of the file, in order, until it does not
 * return 0.
 * Parameters: torn, set to the bytes behind the last line end.
 * Returns: 0; what each() returned; SP_E_LIMIT a line over 1 GiB; the error
 *          of reading.
 */
int ctl_record_lines(int fd, uint64_t *torn,
    int (*each)(void *arg, struct view line), void *arg) must_check;

#endif
