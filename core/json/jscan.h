/*
 * A pull scanner over JSON text in memory that yields spans of the original
 * bytes and builds nothing: each byte is looked at once.
 */
#ifndef SP_JSON_JSCAN_H
#define SP_JSON_JSCAN_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

enum jscan_kind {
	JSCAN_NONE = 0, /* no value at the cursor */
	JSCAN_OBJECT,
	JSCAN_ARRAY,
	JSCAN_STRING,
	JSCAN_NUMBER,
	JSCAN_TRUE,
	JSCAN_FALSE,
	JSCAN_NULL,
	JSCAN_NONFINITE, /* NaN, Infinity, -Infinity: only with the flag */
};

enum {
	JSCAN_ALLOW_NONFINITE = 1 << 0,
	JSCAN_MAX_DEPTH = 512,
};

struct jscan {
	const char *p; /* the text */
	size_t n;
	size_t pos; /* the cursor */
	unsigned flags;
	unsigned depth;
	bool first; /* nothing read yet in the innermost container */
	bool loose; /* passed what jwrite_scanned() may have to change */
	int err; /* sticky: 0 or the first error */
	uint64_t kind_bits[JSCAN_MAX_DEPTH / 64]; /* 1: object */
};

/* One value, or a member's key: where it stands in the text. */
struct jscan_span {
	enum jscan_kind kind;
	size_t start; /* offset of its first byte (a string's: the quote) */
	size_t end; /* one past its last byte */
	bool escaped; /* a string with at least one backslash */
};

/*
 * Source:  RFC 8259 grammar, strict; names and strings may hold any bytes of
 *          0x20 and above except the quote (UTF-8 is not checked here), and
 *          escapes are checked for form.
 * Context: any role, no allocation, no blocking; linear in the text.
 * Returns: the first error stays in s->err and every later call returns it:
 *          SP_E_SYNTAX (s->pos at the offending byte), SP_E_LIMIT (nested
 *          deeper than JSCAN_MAX_DEPTH).
 */
void jscan_init(struct jscan *s, struct view text, unsigned flags);
/* The kind of the value at the cursor (after white space); JSCAN_NONE else. */
static inline enum jscan_kind jscan_peek(struct jscan *s);
/*
 * Consumes one whole value, containers and all: 0 or an error.  out may be
 * NULL.  At the top level a second value may follow (jscan_finish() refuses
 * it); in a container the next call must be jscan_member() or
 * jscan_element().
 */
int jscan_skip(struct jscan *s, struct jscan_span *out) must_check;
/*
 * The same, but what stands inside a container is not held against the
 * grammar, its brackets apart: for bytes that are passed on or cut out as
 * they are, and are read by somebody who checks them.
 */
int jscan_hop(struct jscan *s, struct jscan_span *out) must_check;
/* Consumes '{' or '[': 0, or SP_E_SYNTAX when the value is no container. */
int jscan_enter(struct jscan *s) must_check;
/*
 * In an object: 1 with *key set and the cursor at the member's value, which
 * the caller must consume (skip or enter..end) before the next call; 0 when
 * the object ended ('}' is consumed).
 */
int jscan_member(struct jscan *s, struct jscan_span *key) must_check;
/*
 * In an array: 1 with the cursor at an element; 0 when it ended.  Either of
 * the two in a container of the other kind is SP_E_SYNTAX.
 */
int jscan_element(struct jscan *s) must_check;
/* 0 when only white space is left. */
int jscan_finish(struct jscan *s) must_check;

/*
 * The bytes of a span, as written: jscan_raw() with a string's quotes,
 * jscan_text() what is between them.
 */
static inline struct view
jscan_raw(const struct jscan *s, const struct jscan_span *v)
{
	return view_of(s->p + v->start, v->end - v->start);
}
static inline struct view
jscan_text(const struct jscan *s, const struct jscan_span *v)
{
	size_t quote = v->kind == JSCAN_STRING;

	return view_of(s->p + v->start + quote, v->end - v->start - 2 * quote);
}
/*
 * True when the decoded string equals the text (compared through escapes;
 * bytes that are not UTF-8 compare as they are).  False for other kinds.
 */
static inline bool jscan_is(const struct jscan *s, const struct jscan_span *str,
    struct view text);
/*
 * Appends the decoded string to out as UTF-8: escapes resolved, surrogate
 * pairs joined.  A lone surrogate or a byte that is not UTF-8 becomes U+FFFD
 * and adds one to *replaced (may be NULL).  0; SP_E_LIMIT; SP_E_NOMEM;
 * SP_E_SYNTAX when the span is no string.  On an error out is unchanged.
 */
int jscan_decode(const struct jscan *s, const struct jscan_span *str,
    struct buf *out, size_t *replaced) must_check;
/*
 * The same for what need not be UTF-8, a file's name for instance: a lone
 * surrogate of U+DC80 to U+DCFF is the byte of its lowest eight bits, as
 * Python's os.fsencode() has it; whatever else is replaced there is
 * SP_E_SYNTAX.
 */
int jscan_decode_bytes(const struct jscan *s, const struct jscan_span *str,
    struct buf *out) must_check;
/* The number: 0; SP_E_SYNTAX not an integer in that form; SP_E_RANGE. */
int jscan_i64(const struct jscan *s, const struct jscan_span *num,
    int64_t *out) must_check;
int jscan_double(const struct jscan *s, const struct jscan_span *num,
    double *out) must_check;

/*
 * Whole-text helpers.
 * jscan_find: the last member of the object `text` whose decoded key is name:
 * 1 found, 0 not, or an error.  (Of duplicates the last one counts.)
 */
int jscan_valid(struct view text, unsigned flags) must_check;
int jscan_find(struct view text, struct view name,
    struct jscan_span *out) must_check;

/* The rest is behind the inline functions; not for use by itself. */
extern const uint8_t jscan_kinds[256];
enum jscan_kind jscan_peek_slow(struct jscan *s);
bool jscan_is_escaped(const struct jscan *s, const struct jscan_span *str,
    struct view text);

static inline enum jscan_kind
jscan_peek(struct jscan *s)
{
	if (s->err == 0 && s->flags == 0 && s->pos < s->n) {
		uint8_t kind = jscan_kinds[(unsigned char)s->p[s->pos]];

		if (kind != JSCAN_NONE)
			return (enum jscan_kind)kind;
	}
	return jscan_peek_slow(s);
}

static inline bool
jscan_is(const struct jscan *s, const struct jscan_span *str, struct view text)
{
	if (str->kind != JSCAN_STRING)
		return false;
	if (str->escaped)
		return jscan_is_escaped(s, str, text);
	return str->end - str->start - 2 == text.n &&
	    (text.n == 0 || memcmp(s->p + str->start + 1, text.p, text.n) == 0);
}

#endif
