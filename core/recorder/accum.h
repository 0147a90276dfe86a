/*
 * What the pieces of a reply add up to: strings, lists, ids, and members that
 * are kept as they came, all under one bound for the whole turn.
 */
#ifndef SP_RECORDER_ACCUM_H
#define SP_RECORDER_ACCUM_H

#include <stdint.h>

#include "base/buf.h"
#include "base/view.h"
#include "json/jscan.h"
#include "json/jwrite.h"

/*
 * The bound.  Once it is passed, or memory is short, `over` stays set and
 * nothing is added any more: the turn is then recorded as truncated.
 */
struct accum_hold {
	size_t used, max;
	bool over;
};

/*
 * A string that comes in pieces: the bytes between the quotes as they were
 * written, so that an escape or character cut in two is whole in the end.
 */
struct accum_text {
	struct buf raw;
	size_t mark; /* where the piece of this event began */
	bool seen; /* a string came, be it empty */
};

/* A list that comes in pieces: its elements as written, with commas. */
struct accum_list {
	struct buf raw;
	size_t n;
	bool seen;
	bool loose; /* not all is known to be strict JSON: jwrite looks */
};

struct accum_ids {
	uint32_t *v; /* owned */
	size_t n, cap;
	bool bad; /* something else stood among them */
};

/* Members that are not understood: the last value that is not null. */
struct accum_member {
	struct buf key; /* decoded */
	struct buf raw;
};
struct accum_extras {
	struct accum_member *v; /* owned */
	size_t n;
};

enum { ACCUM_EXTRAS_MAX = 64 };

/*
 * Context: recorder, does not block.
 * Owner:   the structs are the caller's, zeroed at first; *_clear() frees.
 * What does not fit sets h->over and is dropped as a whole.
 */
bool accum_hold_take(struct accum_hold *h, size_t n);
void accum_hold_give(struct accum_hold *h, size_t n);
void accum_buf_add(struct accum_hold *h, struct buf *b, struct view v);

/* v: the bytes between the quotes. */
void accum_text_add(struct accum_hold *h, struct accum_text *t, struct view v);
/* v: any text, taken literally. */
void accum_text_literal(struct accum_hold *h, struct accum_text *t,
    struct view v);
/* Takes back what was added since the mark was set. */
void accum_text_rewind(struct accum_hold *h, struct accum_text *t);
static inline void
accum_text_mark(struct accum_text *t)
{
	t->mark = buf_len(&t->raw);
}
static inline bool
accum_text_empty(const struct accum_text *t)
{
	return buf_len(&t->raw) == 0;
}
void accum_text_clear(struct accum_text *t);
/* The decoded string: 0; SP_E_LIMIT, SP_E_NOMEM; SP_E_SYNTAX a bad escape. */
int accum_text_decode(const struct accum_text *t, struct buf *out,
    size_t *replaced) must_check;
/* Writes it as a JSON string; broken characters are counted by w. */
void accum_text_write(const struct accum_text *t, struct jwrite *w);

/* One element, as written; strict: jwrite would copy it as it stands. */
void accum_list_add(struct accum_hold *h, struct accum_list *l,
    struct view element, bool strict);
/* All elements of the array at the cursor, which is consumed. */
int accum_list_scan(struct accum_hold *h, struct accum_list *l,
    struct jscan *s) must_check;
void accum_list_write(const struct accum_list *l, struct jwrite *w);
void accum_list_clear(struct accum_list *l);

void accum_ids_add(struct accum_hold *h, struct accum_ids *ids, uint32_t id);
/* The array of numbers at the cursor, which is consumed (null: nothing). */
int accum_ids_scan(struct accum_hold *h, struct accum_ids *ids,
    struct jscan *s) must_check;
bool accum_ids_same(const struct accum_ids *a, const struct accum_ids *b);
void accum_ids_write(const struct accum_ids *ids, struct jwrite *w);
void accum_ids_clear(struct accum_ids *ids);

/* The value at the cursor, under that key. */
int accum_extras_scan(struct accum_hold *h, struct accum_extras *x,
    struct jscan *s, const struct jscan_span *key) must_check;
/* As members of the object being written, by key. */
void accum_extras_write(struct accum_extras *x, struct jwrite *w);
/* The value under a key, or an empty view. */
struct view accum_extras_get(const struct accum_extras *x, struct view key);
void accum_extras_clear(struct accum_extras *x);

/* Index of the decoded key in names (ends with an empty view), or -1. */
int accum_key(const struct jscan *s, const struct jscan_span *key,
    const struct view *names);

#endif
