#include "config.h"

#include "base/utf8.h"
#include "json/jrun.h"
#include "json/jtoken.h"
#include "json/jwrite.h"

enum {
	WORD = 8,
	/* what usual() looks at without asking, and more */
	USUAL_BYTES = 128,
};

/* Members of an entry, as bits. */
enum {
	HAS_TOKEN = 1 << 0,
	HAS_LOGPROB = 1 << 1,
	HAS_BYTES = 1 << 2,
	HAS_TOP = 1 << 3,
	HAS_ID = 1 << 4,
};

/* The text behind the first WORD bytes, if it is there. */
static inline const uint8_t *
rest(const uint8_t *p, const uint8_t *end, const char *text, size_t n)
{
	if ((size_t)(end - p) <= n || memcmp(p, text, n) != 0)
		return NULL;
	return p + n;
}

/* The escape at p: as jwrite copies it, or not. */
static const uint8_t *
escape(const uint8_t *p, const uint8_t *end, bool *plain)
{
	int i;

	if (end - p < 2)
		return NULL;
	if (p[1] != 'u')
		return strchr("\"\\/bfnrt", p[1]) != NULL && p[1] != '\0'
		    ? p + 2
		    : NULL;
	if (end - p < 6)
		return NULL;
	for (i = 2; i < 6; i++)
		if (!jrun_is_digit(p[i]) &&
		    ((p[i] | 0x20) < 'a' || (p[i] | 0x20) > 'f'))
			return NULL;
	/* surrogates: a pair stays, but who looks closer may tell */
	if ((p[2] | 0x20) == 'd' && p[3] >= '8')
		*plain = false;
	return p + 6;
}

/* A byte of a string that is not plain ASCII. */
static const uint8_t *
special(const uint8_t *p, const uint8_t *end, bool *plain)
{
	unsigned len;
	uint32_t cp;

	if (*p == '\\')
		return escape(p, end, plain);
	if (*p < 0x20)
		return NULL;
	if (*p < 0x80) /* DEL */
		return p + 1;
	len = utf8_decode(view_of(p, (size_t)(end - p)), &cp);
	if (len != 0 && !jwrite_is_break(cp))
		return p + len;
	*plain = false;
	return p + (len != 0 ? len : 1);
}

/* p is at the opening quote; gives the byte after the other one. */
static inline const uint8_t *
string(const uint8_t *p, const uint8_t *end, bool *plain)
{
	if (p == end || *p++ != '"')
		return NULL;
	for (;;) {
		p = jrun_ascii(p, end);
		if (p == end)
			return NULL;
		if (*p == '"')
			return p + 1;
		p = special(p, end, plain);
		if (p == NULL)
			return NULL;
	}
}

/* RFC 8259 s6. */
static inline const uint8_t *
number(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from;

	if (p < end && *p == '-')
		p++;
	for (from = p; p < end && jrun_is_digit(*p); p++)
		;
	if (p == from || (*from == '0' && p - from > 1))
		return NULL;
	if (p < end && *p == '.') {
		from = p + 1;
		p = jrun_digits(from, end);
		if (p == from)
			return NULL;
	}
	if (p == end || (*p | 0x20) != 'e')
		return p;
	if (++p < end && (*p == '+' || *p == '-'))
		p++;
	from = p;
	p = jrun_digits(from, end);
	return p > from ? p : NULL;
}

/* A list of integers, or null. */
static inline const uint8_t *
bytes(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from, *list;

	if (end - p < 4)
		return NULL;
	if (*p != '[')
		return memcmp(p, "null", 4) == 0 ? p + 4 : NULL;
	if (*++p == ']')
		return p + 1;
	list = jrun_integers(p, end);
	if (list != NULL)
		return list + 1;
	for (;;) {
		for (from = p; p < end && jrun_is_digit(*p); p++)
			;
		if (p == from || p == end || (*from == '0' && p - from > 1))
			return NULL;
		if (*p == ']')
			return p + 1;
		if (*p++ != ',')
			return NULL;
	}
}

static const uint8_t *alternatives(const uint8_t *p, const uint8_t *end,
    bool *plain);

/* The member whose name begins at p, and its bit; top: the outer object. */
static inline const uint8_t *
member(const uint8_t *p, const uint8_t *end, bool top, struct jtoken *out,
    unsigned *bit)
{
	const uint8_t *from;
	struct view *to = NULL;

	if (end - p < 2 * WORD)
		return NULL;
	if (memcmp(p, "\"token\":", WORD) == 0) {
		from = p + WORD;
		p = string(from, end, &out->plain);
		to = &out->token;
		*bit = HAS_TOKEN;
	} else if (memcmp(p, "\"logprob\"", WORD) == 0) {
		from = rest(p + WORD, end, "\":", 2);
		p = from != NULL ? number(from, end) : NULL;
		to = &out->logprob;
		*bit = HAS_LOGPROB;
	} else if (memcmp(p, "\"bytes\":", WORD) == 0) {
		*bit = HAS_BYTES;
		return bytes(p + WORD, end);
	} else if (top && memcmp(p, "\"top_log", WORD) == 0) {
		*bit = HAS_TOP;
		from = rest(p + WORD, end, "probs\":[", WORD);
		return from != NULL ? alternatives(from, end, &out->plain)
				    : NULL;
	} else {
		from = rest(p, end, "\"id\":", 5);
		p = from != NULL ? number(from, end) : NULL;
		to = &out->id;
		*bit = HAS_ID;
	}
	if (p != NULL)
		*to = view_of(from, (size_t)(p - from));
	return p;
}

#if JRUN_SSE2

/*
 * The commonest order of the first three members, short and plain ASCII; p is
 * at an opening brace, and what it gives at the comma or brace behind them.
 * NULL: of another form, or near the end.
 */
static inline const uint8_t *
usual(const uint8_t *p, const uint8_t *end, struct jtoken *out)
{
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i slash = _mm_set1_epi8('\\');
	const __m128i space = _mm_set1_epi8(0x20);
	const __m128i zero = _mm_set1_epi8('0');
	const __m128i nine = _mm_set1_epi8(9);
	const uint8_t *from;
	unsigned mask, n;
	__m128i v, hit;

	if (end - p < USUAL_BYTES || memcmp(p, "{\"token\"", WORD) != 0 ||
	    memcmp(p + WORD, ":\"", 2) != 0)
		return NULL;
	/* the string: at most 15 bytes, and the quote */
	from = p + WORD + 1;
	v = _mm_loadu_si128((const __m128i *)(from + 1));
	hit = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmplt_epi8(v, space));
	hit = _mm_or_si128(hit, _mm_cmpeq_epi8(v, slash));
	mask = (unsigned)_mm_movemask_epi8(hit);
	if (mask == 0)
		return NULL;
	p = from + 1 + __builtin_ctz(mask);
	if (*p++ != '"')
		return NULL;
	out->token = view_of(from, (size_t)(p - from));
	if (memcmp(p, ",\"logpro", WORD) != 0 ||
	    memcmp(p + WORD, "b\":", 3) != 0)
		return NULL;
	/* a digit, a point, at most 15 digits */
	from = p += WORD + 3;
	p += *p == '-';
	if (!jrun_is_digit(p[0]) || p[1] != '.')
		return NULL;
	v = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(p + 2)), zero);
	v = _mm_cmpeq_epi8(_mm_min_epu8(v, nine), v);
	n = (unsigned)__builtin_ctz(~(unsigned)_mm_movemask_epi8(v));
	p += 2 + n;
	if (n == 0 || n > 15 || memcmp(p, ",\"bytes\"", WORD) != 0 ||
	    p[WORD] != ':')
		return NULL;
	out->logprob = view_of(from, (size_t)(p - from));
	return bytes(p + WORD + 1, end);
}

#else

static inline const uint8_t *
usual(const uint8_t *p, const uint8_t *end, struct jtoken *out)
{
	(void)p;
	(void)end;
	(void)out;
	return NULL;
}

#endif

/* p is at an opening brace. */
static inline const uint8_t *
object(const uint8_t *p, const uint8_t *end, bool top, struct jtoken *out)
{
	const uint8_t *q = usual(p, end, out);
	unsigned seen = 0, bit;

	if (q != NULL && q < end && *q == '}')
		return q + 1;
	if (q != NULL && q < end && *q == ',') {
		p = q;
		seen = HAS_TOKEN | HAS_LOGPROB | HAS_BYTES;
	}
	do {
		p = member(p + 1, end, top, out, &bit);
		if (p == NULL || p == end || (seen & bit) != 0)
			return NULL;
		seen |= bit;
	} while (*p == ',');
	return *p == '}' && (seen & HAS_TOKEN) != 0 ? p + 1 : NULL;
}

/* p is behind the bracket; gives the byte after the other one. */
static const uint8_t *
alternatives(const uint8_t *p, const uint8_t *end, bool *plain)
{
	struct jtoken one = { .plain = true };

	if (p < end && *p == ']')
		return p + 1;
	while (p < end && *p == '{') {
		p = object(p, end, false, &one);
		if (p == NULL || p == end)
			return NULL;
		if (*p == ']') {
			*plain &= one.plain;
			return p + 1;
		}
		if (*p++ != ',')
			return NULL;
	}
	return NULL;
}

const uint8_t *
jtoken_end(const uint8_t *p, const uint8_t *end, struct jtoken *out)
{
	*out = (struct jtoken){ .plain = true };
	return *p == '{' ? object(p, end, true, out) : NULL;
}
