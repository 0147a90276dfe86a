/* A pull scanner over JSON text in memory. */
#include <float.h>

#include "base/num.h"
#include "base/utf8.h"
#include "json/jhop.h"
#include "json/jrun.h"
#include "json/jscan.h"
#include "json/jtoken.h"

enum {
	REPLACEMENT = 0xfffd,
	/* 10^22 is the largest power of ten that a double holds exactly */
	EXACT_POWER = 22,
	/* decimal digits that always fit a uint64_t */
	EXACT_DIGITS = 19,
	/* bytes of a string that is looked at in blocks from there on */
	TEXT_LONG = 32,
	/* digits of a number that are looked at one by one */
	DIGITS_FEW = 4,
};

/* The kind of value that a first byte begins; '-' may be -Infinity instead. */
const uint8_t jscan_kinds[256] = {
	['{'] = JSCAN_OBJECT,
	['['] = JSCAN_ARRAY,
	['"'] = JSCAN_STRING,
	['t'] = JSCAN_TRUE,
	['f'] = JSCAN_FALSE,
	['n'] = JSCAN_NULL,
	['-'] = JSCAN_NUMBER,
	['0'] = JSCAN_NUMBER,
	['1'] = JSCAN_NUMBER,
	['2'] = JSCAN_NUMBER,
	['3'] = JSCAN_NUMBER,
	['4'] = JSCAN_NUMBER,
	['5'] = JSCAN_NUMBER,
	['6'] = JSCAN_NUMBER,
	['7'] = JSCAN_NUMBER,
	['8'] = JSCAN_NUMBER,
	['9'] = JSCAN_NUMBER,
};

/* RFC 8259 s7: what a one-letter escape stands for; 0: no such escape. */
static const uint8_t escapes[256] = {
	['"'] = '"',
	['\\'] = '\\',
	['/'] = '/',
	['b'] = '\b',
	['f'] = '\f',
	['n'] = '\n',
	['r'] = '\r',
	['t'] = '\t',
};

static const uint8_t *
at(const struct jscan *s, size_t pos)
{
	return (const uint8_t *)s->p + pos;
}

/* Keeps the first error and where it is.  Always NULL. */
static const uint8_t *__attribute__((cold, noinline))
bad_at(struct jscan *s, const uint8_t *p, int err)
{
	s->pos = (size_t)(p - at(s, 0));
	s->err = err;
	return NULL;
}

static inline const uint8_t *
skip_space(struct jscan *s, const uint8_t *p, const uint8_t *end)
{
	/* RFC 8259 s2; most texts have none: one comparison then */
	while (p < end && *p <= ' ' &&
	    (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) {
		s->loose = true;
		p++;
	}
	return p;
}

static inline enum jscan_kind
kind_at(const struct jscan *s, const uint8_t *p, const uint8_t *end)
{
	enum jscan_kind kind = (enum jscan_kind)jscan_kinds[*p];

	if ((s->flags & JSCAN_ALLOW_NONFINITE) == 0)
		return kind;
	if (kind == JSCAN_NONE && (*p == 'N' || *p == 'I'))
		return JSCAN_NONFINITE;
	if (*p == '-' && end - p > 1 && p[1] == 'I')
		return JSCAN_NONFINITE;
	return kind;
}

static int
hex_value(uint8_t c)
{
	if (jrun_is_digit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* p is at the byte after the backslash. */
static inline const uint8_t *
escape_end(struct jscan *s, const uint8_t *p, const uint8_t *end)
{
	int i;

	if (p == end)
		return bad_at(s, p, SP_E_SYNTAX);
	if (escapes[*p] != 0)
		return p + 1;
	if (*p != 'u')
		return bad_at(s, p, SP_E_SYNTAX);
	/* half of a pair, perhaps */
	s->loose |= end - p > 1 && (p[1] | 0x20) == 'd';
	for (p++, i = 0; i < 4; p++, i++)
		if (p == end || hex_value(*p) < 0)
			return bad_at(s, p, SP_E_SYNTAX);
	return p;
}

#if JRUN_SSE2

enum {
	TEXT_BLOCK = 64,
	TEXT_AHEAD = 8, /* an escape that begins in it may end behind it */
};

/* One bit for each byte of a block: where a string may end or go wrong. */
static inline uint64_t
text_look(const uint8_t *p, uint64_t *high)
{
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i slash = _mm_set1_epi8('\\');
	const __m128i top = _mm_set1_epi8(0x1f);
	uint64_t stops = 0;
	int i;

	*high = 0;
	for (i = 0; i < TEXT_BLOCK; i += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(p + i));
		__m128i hit = _mm_cmpeq_epi8(_mm_min_epu8(v, top), v);

		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, quote));
		hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, slash));
		stops |= (uint64_t)_mm_movemask_epi8(hit) << i;
		*high |= (uint64_t)_mm_movemask_epi8(v) << i;
	}
	return stops;
}

/*
 * A string's blocks, as far as whole ones are there; p is inside of it.  Gives
 * where it goes on, or with *closed the byte after its closing quote, or NULL.
 */
static const uint8_t *
text_blocks(struct jscan *s, const uint8_t *p, const uint8_t *end,
    bool *escaped, bool *closed)
{
	while (end - p >= TEXT_BLOCK + TEXT_AHEAD) {
		uint64_t high, stops = text_look(p, &high);
		size_t next = TEXT_BLOCK;
		const uint8_t *q;

		while (stops != 0) {
			unsigned i = (unsigned)__builtin_ctzll(stops);

			if (p[i] != '\\') {
				/* what stands behind is of no interest */
				s->loose |=
				    (high & ((UINT64_C(1) << i) - 1)) != 0;
				*closed = p[i] == '"';
				return *closed ? p + i + 1
					       : bad_at(s, p + i, SP_E_SYNTAX);
			}
			*escaped = true;
			q = escape_end(s, p + i + 1, end);
			if (q == NULL)
				return NULL;
			next = (size_t)(q - p);
			if (next >= TEXT_BLOCK)
				break;
			stops &= ~UINT64_C(0) << next;
		}
		s->loose |= high != 0;
		p += next > TEXT_BLOCK ? next : TEXT_BLOCK;
	}
	return p;
}

#else

static const uint8_t *
text_blocks(struct jscan *s, const uint8_t *p, const uint8_t *end,
    bool *escaped, bool *closed)
{
	(void)s;
	(void)end;
	(void)escaped;
	(void)closed;
	return p;
}

#endif

/* p is at the byte after the opening quote; gives the one after the closing. */
static inline const uint8_t *
string_end(struct jscan *s, const uint8_t *p, const uint8_t *end, bool *escaped)
{
	const uint8_t *from = p;
	bool closed = false;

	for (;;) {
		if (p - from >= TEXT_LONG) {
			p = text_blocks(s, p, end, escaped, &closed);
			if (p == NULL || closed)
				return p;
		}
		p = jrun_ascii(p, end);
		if (p < end && *p >= 0x7f) {
			s->loose = true;
			p = jrun_string(p, end);
		}
		if (p == end)
			return bad_at(s, p, SP_E_SYNTAX);
		if (*p == '"')
			return p + 1;
		if (*p != '\\')
			return bad_at(s, p, SP_E_SYNTAX);
		*escaped = true;
		p = escape_end(s, p + 1, end);
		if (p == NULL)
			return NULL;
	}
}

/* Most numbers are short: a block is looked at behind a few digits alone. */
static inline const uint8_t *
digits_end(const uint8_t *p, const uint8_t *end)
{
	int i;

	for (i = 0; i < DIGITS_FEW; i++, p++)
		if (p == end || !jrun_is_digit(*p))
			return p;
	return jrun_digits(p, end);
}

/* RFC 8259 s6: minus, int, frac, exp. */
static inline const uint8_t *
number_end(struct jscan *s, const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from;

	if (*p == '-')
		p++;
	from = p;
	p = digits_end(p, end);
	if (p == from)
		return bad_at(s, p, SP_E_SYNTAX);
	if (*from == '0' && p - from > 1)
		return bad_at(s, from + 1, SP_E_SYNTAX);
	if (p < end && *p == '.') {
		from = p + 1;
		p = digits_end(from, end);
		if (p == from)
			return bad_at(s, p, SP_E_SYNTAX);
	}
	if (p < end && (*p | 0x20) == 'e') {
		p++;
		if (p < end && (*p == '+' || *p == '-'))
			p++;
		from = p;
		p = digits_end(from, end);
		if (p == from)
			return bad_at(s, p, SP_E_SYNTAX);
	}
	return p;
}

static const uint8_t *
word_end(struct jscan *s, const uint8_t *p, const uint8_t *end,
    const char *word)
{
	for (; *word != '\0'; p++, word++)
		if (p == end || *p != (uint8_t)*word)
			return bad_at(s, p, SP_E_SYNTAX);
	return p;
}

static inline const uint8_t *
scalar_end(struct jscan *s, const uint8_t *p, const uint8_t *end,
    enum jscan_kind kind, bool *escaped)
{
	switch (kind) {
	case JSCAN_STRING:
		return string_end(s, p + 1, end, escaped);
	case JSCAN_NUMBER:
		return number_end(s, p, end);
	case JSCAN_TRUE:
		return word_end(s, p, end, "true");
	case JSCAN_FALSE:
		return word_end(s, p, end, "false");
	case JSCAN_NULL:
		return word_end(s, p, end, "null");
	case JSCAN_NONFINITE:
		s->loose = true;
		if (*p == 'N')
			return word_end(s, p, end, "NaN");
		return word_end(s, p, end,
		    *p == '-' ? "-Infinity" : "Infinity");
	case JSCAN_NONE:
	case JSCAN_OBJECT:
	case JSCAN_ARRAY:
		break;
	}
	return bad_at(s, p, SP_E_SYNTAX);
}

/* p is at a member's name; gives the first byte of its value. */
static inline const uint8_t *
name_end(struct jscan *s, const uint8_t *p, const uint8_t *end,
    struct jscan_span *key)
{
	bool escaped = false;
	const uint8_t *from = p;

	if (p == end || *p != '"')
		return bad_at(s, p, SP_E_SYNTAX);
	p = string_end(s, p + 1, end, &escaped);
	if (p == NULL)
		return NULL;
	if (key != NULL)
		*key = (struct jscan_span){ JSCAN_STRING,
			(size_t)(from - at(s, 0)), (size_t)(p - at(s, 0)),
			escaped };
	p = skip_space(s, p, end);
	if (p == end || *p != ':')
		return bad_at(s, p, SP_E_SYNTAX);
	p = skip_space(s, p + 1, end);
	if (p == end)
		return bad_at(s, p, SP_E_SYNTAX);
	return p;
}

static inline void
kind_set(struct jscan *s, unsigned depth, bool object)
{
	uint64_t bit = UINT64_C(1) << (depth % 64);

	if (object)
		s->kind_bits[depth / 64] |= bit;
	else
		s->kind_bits[depth / 64] &= ~bit;
}

static inline bool
kind_get(const struct jscan *s, unsigned depth)
{
	return (s->kind_bits[depth / 64] >> (depth % 64) & 1) != 0;
}

/*
 * After a value inside the container that *depth counts: closes what closes
 * here, down to base, and gives the first byte of the next value, or the end
 * of the outermost container with *depth == base.
 */
static inline const uint8_t *
next_value(struct jscan *s, const uint8_t *p, const uint8_t *end, unsigned base,
    unsigned *depth)
{
	while (*depth > base) {
		bool object = kind_get(s, *depth - 1);

		p = skip_space(s, p, end);
		if (p == end)
			return bad_at(s, p, SP_E_SYNTAX);
		if (*p == ',') {
			p = skip_space(s, p + 1, end);
			if (object)
				return name_end(s, p, end, NULL);
			return p < end ? p : bad_at(s, p, SP_E_SYNTAX);
		}
		if (*p != (object ? '}' : ']'))
			return bad_at(s, p, SP_E_SYNTAX);
		p++;
		--*depth;
	}
	return p;
}

/* The end of the object at p if it is a token of the common form, or NULL. */
static inline const uint8_t *
token_end(struct jscan *s, const uint8_t *p, const uint8_t *end, unsigned depth)
{
	struct jtoken t;

	if (depth > JSCAN_MAX_DEPTH - JTOKEN_DEPTH || !jtoken_begins(p, end))
		return NULL;
	p = jtoken_end(p, end, &t);
	s->loose |= p != NULL && !t.plain;
	return p;
}

/* Past the integers that an array begins with; due: a value is, there. */
static inline const uint8_t *
integers_end(struct jscan *s, const uint8_t *p, const uint8_t *end, bool *due)
{
	/* a token's bytes, most often */
	const uint8_t *quick = jrun_integers(p, end);

	*due = quick == NULL;
	if (quick != NULL)
		return quick;
	/* behind a comma */
	p = skip_space(s, jrun_integer_list(p, end), end);
	return p < end ? p : bad_at(s, p, SP_E_SYNTAX);
}

/*
 * The end of the container that begins at p, without recursion: what is open
 * is in kind_bits, above the s->depth that the caller has open.
 */
static const uint8_t *
container_end(struct jscan *s, const uint8_t *p, const uint8_t *end)
{
	const unsigned base = s->depth;
	unsigned depth = base;
	bool escaped, object, due;

	do {
		enum jscan_kind kind = kind_at(s, p, end);

		if (kind == JSCAN_OBJECT || kind == JSCAN_ARRAY) {
			const uint8_t *quick = token_end(s, p, end, depth);

			if (quick != NULL) {
				p = next_value(s, quick, end, base, &depth);
				continue;
			}
			if (depth == JSCAN_MAX_DEPTH)
				return bad_at(s, p, SP_E_LIMIT);
			object = kind == JSCAN_OBJECT;
			kind_set(s, depth++, object);
			p = skip_space(s, p + 1, end);
			if (p == end)
				return bad_at(s, p, SP_E_SYNTAX);
			if (!object && jrun_is_digit(*p)) {
				p = integers_end(s, p, end, &due);
				if (p == NULL || due)
					continue;
			}
			if (*p != (object ? '}' : ']')) {
				if (object)
					p = name_end(s, p, end, NULL);
				continue;
			}
			/* empty: next_value() closes it */
		} else {
			p = scalar_end(s, p, end, kind, &escaped);
			if (p == NULL)
				return NULL;
		}
		p = next_value(s, p, end, base, &depth);
	} while (p != NULL && depth > base);
	return p;
}

void
jscan_init(struct jscan *s, struct view text, unsigned flags)
{
	memset(s, 0, sizeof(*s));
	s->p = text.p != NULL ? text.p : "";
	s->n = text.p != NULL ? text.n : 0;
	s->flags = flags;
	s->first = true;
}

enum jscan_kind
jscan_peek_slow(struct jscan *s)
{
	const uint8_t *end = at(s, s->n);
	const uint8_t *p;

	if (s->err != 0)
		return JSCAN_NONE;
	p = skip_space(s, at(s, s->pos), end);
	s->pos = (size_t)(p - at(s, 0));
	return p < end ? kind_at(s, p, end) : JSCAN_NONE;
}

int
jscan_skip(struct jscan *s, struct jscan_span *out)
{
	const uint8_t *end = at(s, s->n);
	const uint8_t *from, *p;
	enum jscan_kind kind;
	bool escaped = false;

	if (s->err != 0)
		return s->err;
	from = p = skip_space(s, at(s, s->pos), end);
	if (p == end) {
		bad_at(s, p, SP_E_SYNTAX);
		return s->err;
	}
	kind = kind_at(s, p, end);
	if (kind == JSCAN_OBJECT || kind == JSCAN_ARRAY)
		p = container_end(s, p, end);
	else
		p = scalar_end(s, p, end, kind, &escaped);
	if (p == NULL)
		return s->err;
	s->pos = (size_t)(p - at(s, 0));
	if (out != NULL)
		*out = (struct jscan_span){ kind, (size_t)(from - at(s, 0)),
			s->pos, escaped };
	return 0;
}

int
jscan_hop(struct jscan *s, struct jscan_span *out)
{
	const uint8_t *end = at(s, s->n);
	const uint8_t *from, *p;

	if (s->err != 0)
		return s->err;
	from = skip_space(s, at(s, s->pos), end);
	if (from == end || (*from != '{' && *from != '['))
		return jscan_skip(s, out);
	p = jhop_end(from, end);
	if (p == NULL) /* that knows why */
		return jscan_skip(s, out);
	s->loose = true; /* for all that is known */
	s->pos = (size_t)(p - at(s, 0));
	if (out != NULL)
		*out = (struct jscan_span){ *from == '{' ? JSCAN_OBJECT
							 : JSCAN_ARRAY,
			(size_t)(from - at(s, 0)), s->pos, false };
	return 0;
}

int
jscan_enter(struct jscan *s)
{
	const uint8_t *end = at(s, s->n);
	const uint8_t *p;

	if (s->err != 0)
		return s->err;
	p = skip_space(s, at(s, s->pos), end);
	if (p == end || (*p != '{' && *p != '[')) {
		bad_at(s, p, SP_E_SYNTAX);
		return s->err;
	}
	if (s->depth == JSCAN_MAX_DEPTH) {
		bad_at(s, p, SP_E_LIMIT);
		return s->err;
	}
	kind_set(s, s->depth++, *p == '{');
	s->first = true;
	s->pos = (size_t)(p + 1 - at(s, 0));
	return 0;
}

/*
 * Steps to the next member or element of the innermost container: its first
 * byte, or NULL when the container ended (s->err is 0) or on an error.
 */
static inline const uint8_t *
next_item(struct jscan *s, const uint8_t *end, bool object)
{
	const uint8_t *p = skip_space(s, at(s, s->pos), end);

	/* a container of the other kind, or none: the caller guessed wrong */
	if (s->depth == 0 || kind_get(s, s->depth - 1) != object || p == end)
		return bad_at(s, p, SP_E_SYNTAX);
	if (*p == (object ? '}' : ']')) {
		s->depth--;
		s->first = false;
		s->pos = (size_t)(p + 1 - at(s, 0));
		return NULL;
	}
	if (!s->first) {
		if (*p != ',')
			return bad_at(s, p, SP_E_SYNTAX);
		p = skip_space(s, p + 1, end);
	}
	s->first = false;
	return p;
}

int
jscan_member(struct jscan *s, struct jscan_span *key)
{
	const uint8_t *end = at(s, s->n);
	const uint8_t *p;

	if (s->err != 0)
		return s->err;
	p = next_item(s, end, true);
	if (p == NULL)
		return s->err;
	p = name_end(s, p, end, key);
	if (p == NULL)
		return s->err;
	s->pos = (size_t)(p - at(s, 0));
	return 1;
}

int
jscan_element(struct jscan *s)
{
	const uint8_t *end = at(s, s->n);
	const uint8_t *p;

	if (s->err != 0)
		return s->err;
	p = next_item(s, end, false);
	if (p == NULL)
		return s->err;
	/* told here, or [1,] would look like an end to the next call */
	if (p == end || kind_at(s, p, end) == JSCAN_NONE) {
		bad_at(s, p, SP_E_SYNTAX);
		return s->err;
	}
	s->pos = (size_t)(p - at(s, 0));
	return 1;
}

int
jscan_finish(struct jscan *s)
{
	const uint8_t *end = at(s, s->n);
	const uint8_t *p;

	if (s->err != 0)
		return s->err;
	p = skip_space(s, at(s, s->pos), end);
	if (p != end || s->depth != 0) {
		bad_at(s, p, SP_E_SYNTAX);
		return s->err;
	}
	s->pos = s->n;
	return 0;
}

static uint32_t
hex4(const uint8_t *p)
{
	uint32_t v = 0;
	int i;

	for (i = 0; i < 4; i++)
		v = v << 4 | ((uint32_t)hex_value(p[i]) & 0xf);
	return v;
}

/*
 * The escape at p (checked before, a backslash): its code point in *cp, and
 * the byte after it.  Two escapes that make a surrogate pair are one.
 */
static const uint8_t *
unescape(const uint8_t *p, const uint8_t *end, uint32_t *cp, bool *lone)
{
	uint32_t low;

	*lone = false;
	if (p[1] != 'u') {
		*cp = escapes[p[1]];
		return p + 2;
	}
	*cp = hex4(p + 2);
	p += 6;
	if (*cp < 0xd800 || *cp > 0xdfff)
		return p;
	if (*cp < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
		low = hex4(p + 2);
		if (low >= 0xdc00 && low <= 0xdfff) {
			*cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
			return p + 6;
		}
	}
	*cp = REPLACEMENT;
	*lone = true;
	return p;
}

bool
jscan_is_escaped(const struct jscan *s, const struct jscan_span *str,
    struct view text)
{
	struct view v = jscan_text(s, str);
	const uint8_t *p = (const uint8_t *)v.p, *end = p + v.n;
	size_t used = 0;

	while (p < end) {
		char out[4];
		unsigned len = 1;
		uint32_t cp;
		bool lone;

		if (*p == '\\') {
			p = unescape(p, end, &cp, &lone);
			len = utf8_encode(cp, out);
		} else {
			out[0] = (char)*p++;
		}
		if (text.n - used < len || memcmp(text.p + used, out, len) != 0)
			return false;
		used += len;
	}
	return used == text.n;
}

static int
add_code_point(struct buf *out, uint32_t cp)
{
	char utf8[4];

	return buf_add(out, utf8, utf8_encode(cp, utf8));
}

/* Appends bytes without escapes, repairing what is not UTF-8. */
static int
add_repaired(struct buf *out, const uint8_t *p, const uint8_t *end,
    size_t *replaced)
{
	const uint8_t *from = p;
	uint32_t cp;
	int rc;

	while (p < end) {
		unsigned len = 1;

		if (*p >= 0x80)
			len = utf8_decode(view_of(p, (size_t)(end - p)), &cp);
		if (len != 0) {
			p += len;
			continue;
		}
		rc = buf_add(out, from, (size_t)(p - from));
		if (rc == 0)
			rc = add_code_point(out, REPLACEMENT);
		if (rc != 0)
			return rc;
		++*replaced;
		from = ++p;
	}
	return buf_add(out, from, (size_t)(p - from));
}

/* The byte that a lone surrogate at p stands for, or 0. */
static uint8_t
surrogate_byte(const uint8_t *p)
{
	uint32_t cp = hex4(p + 2);

	return cp >= 0xdc80 && cp <= 0xdcff ? (uint8_t)cp : 0;
}

static int
decode_into(struct view v, struct buf *out, size_t *replaced, bool bytes)
{
	const uint8_t *p = (const uint8_t *)v.p, *end = p + v.n;
	int rc = 0;

	while (p < end && rc == 0) {
		const uint8_t *from = p;
		uint32_t cp;
		bool lone;

		if (*p != '\\') {
			p = memchr(p, '\\', (size_t)(end - p));
			if (p == NULL)
				p = end;
			rc = add_repaired(out, from, p, replaced);
			continue;
		}
		p = unescape(p, end, &cp, &lone);
		if (lone && bytes && surrogate_byte(from) != 0) {
			rc = buf_add_char(out, (char)surrogate_byte(from));
			continue;
		}
		*replaced += lone;
		rc = add_code_point(out, cp);
	}
	return rc;
}

int
jscan_decode(const struct jscan *s, const struct jscan_span *str,
    struct buf *out, size_t *replaced)
{
	size_t before = buf_len(out), n = 0;
	int rc;

	if (str->kind != JSCAN_STRING)
		return SP_E_SYNTAX;
	rc = decode_into(jscan_text(s, str), out, &n, false);
	if (rc != 0) {
		buf_truncate(out, before);
		return rc;
	}
	if (replaced != NULL)
		*replaced += n;
	return 0;
}

int
jscan_decode_bytes(const struct jscan *s, const struct jscan_span *str,
    struct buf *out)
{
	size_t before = buf_len(out), n = 0;
	int rc = SP_E_SYNTAX;

	if (str->kind == JSCAN_STRING)
		rc = decode_into(jscan_text(s, str), out, &n, true);
	if (rc == 0 && n > 0)
		rc = SP_E_SYNTAX;
	if (rc != 0)
		buf_truncate(out, before);
	return rc;
}

int
jscan_i64(const struct jscan *s, const struct jscan_span *num, int64_t *out)
{
	if (num->kind != JSCAN_NUMBER)
		return SP_E_SYNTAX;
	return num_i64(jscan_raw(s, num), INT64_MIN, INT64_MAX, out);
}

/*
 * Short numbers without an exponent, exactly: the digits as an integer and the
 * power of ten are doubles without error, so one division rounds once.  False
 * when the number is not of that kind.
 */
static bool
double_exact(struct view v, double *out)
{
	static const double powers[EXACT_POWER + 1] = { 1e0, 1e1, 1e2, 1e3, 1e4,
		1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
		1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
	bool negative = v.p[0] == '-', frac = false;
	unsigned digits = 0, scale = 0;
	uint64_t mant = 0;
	size_t i;

	if (FLT_EVAL_METHOD != 0)
		return false;
	for (i = negative; i < v.n; i++) {
		if (v.p[i] == '.') {
			frac = true;
			continue;
		}
		if (!jrun_is_digit((uint8_t)v.p[i]))
			return false;
		mant = mant * 10 + (uint64_t)(v.p[i] - '0');
		digits += mant != 0;
		scale += frac;
		if (digits > EXACT_DIGITS || scale > EXACT_POWER)
			return false;
	}
	if (mant > UINT64_C(1) << DBL_MANT_DIG)
		return false;
	*out = (double)mant / powers[scale];
	if (negative)
		*out = -*out;
	return true;
}

int
jscan_double(const struct jscan *s, const struct jscan_span *num, double *out)
{
	struct view v;

	if (num->kind != JSCAN_NUMBER)
		return SP_E_SYNTAX;
	v = jscan_raw(s, num);
	return double_exact(v, out) ? 0 : num_double(v, out);
}

int
jscan_valid(struct view text, unsigned flags)
{
	struct jscan s;
	int rc;

	jscan_init(&s, text, flags);
	rc = jscan_skip(&s, NULL);
	return rc != 0 ? rc : jscan_finish(&s);
}

int
jscan_find(struct view text, struct view name, struct jscan_span *out)
{
	struct jscan_span key, val;
	struct jscan s;
	int found = 0, rc;

	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_enter(&s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_member(&s, &key)) == 1) {
		rc = jscan_skip(&s, &val);
		if (rc != 0)
			return rc;
		if (jscan_is(&s, &key, name)) {
			*out = val;
			found = 1;
		}
	}
	if (rc == 0)
		rc = jscan_finish(&s);
	return rc != 0 ? rc : found;
}
