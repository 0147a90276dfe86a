/* The tool calls of one choice, put together from pieces in any order. */
#ifndef SP_RECORDER_TOOLCALL_H
#define SP_RECORDER_TOOLCALL_H

#include "recorder/accum.h"

enum { TOOLCALL_MAX = 512 };

struct toolcall {
	struct accum_text id, type, name, args;
	struct accum_extras extra; /* beside "function" */
	struct accum_extras fn_extra; /* inside "function" */
	int64_t index; /* -1: none was given */
	size_t pos; /* place in the list where the call began */
	uint64_t touched; /* the last list that had a piece of it */
	bool conflict; /* named twice, differently */
};

struct toolcall_list {
	struct toolcall *v; /* owned */
	size_t n;
	uint64_t lists; /* lists read so far */
};

/*
 * Reads the list `tool_calls` at the cursor of s, which is consumed.
 *
 * Which call a piece belongs to:
 *   - with an index: the latest call of that index;
 *   - without: the call of the same id, else the latest call that began at
 *     the same place in its list;
 *   - a new call begins when there is none such, or when the piece has an id
 *     that the call has not, and a name.  (An id alone does not begin one:
 *     some servers make up a new id for each piece.)
 * The first id and name of a call stay.
 *
 * Parameters: whole, each element is a call of its own (a unary reply).
 * Returns: 0, or an error of the scanner.
 */
int toolcall_scan(struct accum_hold *h, struct toolcall_list *l,
    struct jscan *s, bool whole) must_check;
/* The list, in the order of the indices when all have one. */
void toolcall_write(struct toolcall_list *l, struct jwrite *w);
/*
 * Whether the arguments are JSON: 1, 0, or -1 when there are none (a call
 * without parameters may have an empty string).
 */
int toolcall_args_valid(const struct toolcall *c);
void toolcall_clear(struct toolcall_list *l);

#endif
