/*
 * Edits on JSON text as splices of the original bytes: what is not edited
 * stays as it was written, byte for byte.
 */
#ifndef SP_JSON_JSPLICE_H
#define SP_JSON_JSPLICE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"
#include "json/jscan.h"

/* One edit: replace text[at..at+drop) by put. */
struct jsplice_edit {
	size_t at;
	size_t drop;
	struct view put; /* borrowed until applied */
};

struct jsplice {
	struct jsplice_edit *v; /* in order of at, never overlapping */
	size_t n;
	size_t cap;
	size_t max; /* most edits */
};

/*
 * Context: any role, does not block.
 * Owner:   the struct is the caller's; jsplice_clear() frees the list and
 *          jsplice_reset() empties it and keeps its memory.
 * Returns: 0; SP_E_LIMIT past max; SP_E_NOMEM; SP_E_ARG when an edit overlaps
 *          another or, in jsplice_apply(), reaches past the text; out is then
 *          unchanged.  Edits may be added in any order; insertions (drop 0)
 *          at one place come out in the order they were added, before a
 *          replacement that begins there.
 */
void jsplice_init(struct jsplice *e, size_t max);
void jsplice_clear(struct jsplice *e);
void jsplice_reset(struct jsplice *e);
int jsplice_add(struct jsplice *e, size_t at, size_t drop,
    struct view put) must_check;
/* text with the edits applied, appended to out. */
int jsplice_apply(const struct jsplice *e, struct view text,
    struct buf *out) must_check;

/*
 * Collects removals and one insertion in one object while it is scanned, and
 * gets the commas right whatever is removed: first, last, all or several in a
 * row, with or without white space.
 *
 *	jsplice_object_begin(&o, edits, s);      right after jscan_enter()
 *	while ((rc = jscan_member(s, &key)) == 1) {
 *		rc = jscan_skip(s, &val);
 *		jsplice_object_member(&o, &key, &val, remove);
 *	}
 *	rc = jsplice_object_end(&o, s, put);     put: `"a":1,"b":2` or empty
 *
 * put is appended after the members that stay.
 */
struct jsplice_object {
	struct jsplice *edits;
	size_t open; /* offset after '{' */
	size_t kept_end; /* end of the last member that stays; 0 none */
	size_t gone_from; /* start of a run of removed members */
	size_t gone_to;
	bool kept_any;
	bool in_run;
};
void jsplice_object_begin(struct jsplice_object *o, struct jsplice *edits,
    const struct jscan *s);
int jsplice_object_member(struct jsplice_object *o,
    const struct jscan_span *key, const struct jscan_span *val,
    bool gone) must_check;
int jsplice_object_end(struct jsplice_object *o, const struct jscan *s,
    struct view put) must_check;

#endif
