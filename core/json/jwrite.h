/*
 * Writes strict JSON into a buffer: one line, UTF-8, no raw LF; U+2028,
 * U+2029, U+0085 and control characters as escapes, so that readers which
 * split lines at any Unicode line end are not misled.
 */
#ifndef SP_JSON_JWRITE_H
#define SP_JSON_JWRITE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"
#include "json/jscan.h"

enum { JWRITE_MAX_DEPTH = 32 };

struct jwrite {
	struct buf *out;
	int err; /* sticky; jwrite_finish() returns it */
	unsigned depth;
	/* by depth; 0 is the top level, which takes one value */
	bool comma[JWRITE_MAX_DEPTH + 1];
	bool object[JWRITE_MAX_DEPTH + 1];
	bool after_key;
	size_t replaced; /* bytes that were not UTF-8, now U+FFFD */
	size_t nonfinite; /* numbers written as null */
};

/*
 * Context: any role, does not block.
 * Errors are sticky and told once by jwrite_finish(): 0; SP_E_LIMIT (the
 * buffer's max, or deeper than JWRITE_MAX_DEPTH); SP_E_NOMEM; SP_E_SYNTAX
 * (jwrite_span); SP_E_STATE (unbalanced, a key where none can be, none where
 * one must be, two values or none at the top level).  After an error nothing
 * more is written, but what was written stays in the buffer.
 */
void jwrite_init(struct jwrite *w, struct buf *out);
void jwrite_object(struct jwrite *w);
void jwrite_end_object(struct jwrite *w);
void jwrite_array(struct jwrite *w);
void jwrite_end_array(struct jwrite *w);
void jwrite_key(struct jwrite *w, const char *key); /* plain ASCII */
void jwrite_string(struct jwrite *w, struct view v);
void jwrite_cstr(struct jwrite *w, const char *s); /* NULL: null */
/* Bytes, at most, that JSON text takes as a string of JSON once more. */
size_t jwrite_again_bytes(struct view text);
void jwrite_u64(struct jwrite *w, uint64_t v);
void jwrite_i64(struct jwrite *w, int64_t v);
/* Shortest form that reads back as the same double; not finite: null. */
void jwrite_double(struct jwrite *w, double v);
void jwrite_bool(struct jwrite *w, bool v);
void jwrite_null(struct jwrite *w);
/*
 * A value copied from other JSON text, made strict on the way: outside of
 * strings white space goes and non-finite numbers become null (counted); in
 * strings raw bytes that are not UTF-8 and lone surrogate escapes become
 * U+FFFD (counted) and U+2028, U+2029, U+0085 become escapes; everything else
 * stays as written.  The text must be one valid value (else SP_E_SYNTAX).
 */
void jwrite_span(struct jwrite *w, struct view text);
/* The same for text that jscan_skip() has been through. */
void jwrite_scanned(struct jwrite *w, struct view text);
/* Text that is known to be strict JSON on one line. */
void jwrite_raw(struct jwrite *w, struct view text);
/*
 * An array of elements that jscan_skip() has been through, with their commas;
 * strict: they are known to be strict JSON on one line.
 */
void jwrite_list(struct jwrite *w, struct view elements, bool strict);
int jwrite_finish(struct jwrite *w) must_check;

/* Ends a line for some readers, so that it is always escaped. */
static inline bool
jwrite_is_break(uint32_t cp)
{
	return cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

#endif
