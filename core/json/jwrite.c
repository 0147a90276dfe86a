/* Writes strict JSON into a buffer, one line. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/num.h"
#include "base/utf8.h"
#include "json/jrun.h"
#include "json/jwrite.h"

enum {
	REPLACEMENT = 0xfffd,
	LAST_C1 = 0x9f,
	/* every double of up to 15 digits, and no more, survives the round */
	SURE_DIGITS = 15,
	MOST_DIGITS = 17,
	MILLION = 1000 * 1000,
};

/* Below that, printf has an exponent. */
#define LEAST_PLAIN 1e-4
/* 2^32 millions and less */
#define MOST_MILLIONTHS 4e15

/* Short pieces, most of all: buf_add() without its calls, where there is room. */
static inline void
put(struct jwrite *w, const void *p, size_t n)
{
	struct buf *b = w->out;

	if (w->err != 0 || n == 0)
		return;
	if (n <= b->cap - b->end && n <= b->max - buf_len(b)) {
		memcpy(b->mem + b->end, p, n);
		b->end += n;
	} else {
		w->err = buf_add(b, p, n);
	}
}

/* The bytes from one place in a text up to another. */
static void
put_run(struct jwrite *w, const uint8_t *from, const uint8_t *to)
{
	put(w, from, (size_t)(to - from));
}

void
jwrite_init(struct jwrite *w, struct buf *out)
{
	*w = (struct jwrite){ .out = out };
}

/* True when a value may stand here; its comma is then written. */
static bool
begin_value(struct jwrite *w)
{
	if (w->err != 0)
		return false;
	if (w->after_key) {
		w->after_key = false;
		return true;
	}
	if (w->object[w->depth] || (w->depth == 0 && w->comma[0])) {
		w->err = SP_E_STATE;
		return false;
	}
	if (w->comma[w->depth])
		put(w, ",", 1);
	w->comma[w->depth] = true;
	return w->err == 0;
}

static void
value(struct jwrite *w, const char *p, size_t n)
{
	if (begin_value(w))
		put(w, p, n);
}

static void
open_container(struct jwrite *w, bool object)
{
	if (!begin_value(w))
		return;
	if (w->depth == JWRITE_MAX_DEPTH) {
		w->err = SP_E_LIMIT;
		return;
	}
	w->depth++;
	w->comma[w->depth] = false;
	w->object[w->depth] = object;
	put(w, object ? "{" : "[", 1);
}

static void
close_container(struct jwrite *w, bool object)
{
	if (w->err != 0)
		return;
	if (w->depth == 0 || w->after_key || w->object[w->depth] != object) {
		w->err = SP_E_STATE;
		return;
	}
	w->depth--;
	put(w, object ? "}" : "]", 1);
}

void
jwrite_object(struct jwrite *w)
{
	open_container(w, true);
}

void
jwrite_end_object(struct jwrite *w)
{
	close_container(w, true);
}

void
jwrite_array(struct jwrite *w)
{
	open_container(w, false);
}

void
jwrite_end_array(struct jwrite *w)
{
	close_container(w, false);
}

static void
put_escape(struct jwrite *w, uint32_t cp)
{
	static const char hex[] = "0123456789abcdef";
	char out[6] = { '\\', 'u' };
	int i;

	for (i = 0; i < 4; i++)
		out[2 + i] = hex[cp >> (12 - 4 * i) & 0xf];
	put(w, out, sizeof(out));
}

static void
put_replacement(struct jwrite *w)
{
	put(w, "\xef\xbf\xbd", 3);
	w->replaced++;
}

/* A quote, a backslash or a control character in a string (RFC 8259 s7). */
static void
put_special(struct jwrite *w, uint8_t c)
{
	static const char letters[256] = {
		['"'] = '"',
		['\\'] = '\\',
		['\b'] = 'b',
		['\f'] = 'f',
		['\n'] = 'n',
		['\r'] = 'r',
		['\t'] = 't',
	};
	char out[2] = { '\\', letters[c] };

	if (out[1] != 0)
		put(w, out, sizeof(out));
	else
		put_escape(w, c);
}

/*
 * The character at p, which is not ASCII: stays in the run that begins at
 * *from, or ends it and is written otherwise.  Gives the byte after it.
 */
static const uint8_t *
wide(struct jwrite *w, const uint8_t **from, const uint8_t *p,
    const uint8_t *end, bool controls)
{
	uint32_t cp = 0;
	unsigned len = utf8_decode(view_of(p, (size_t)(end - p)), &cp);
	bool escape = jwrite_is_break(cp) || (controls && cp <= LAST_C1);

	if (len != 0 && !escape)
		return p + len;
	put_run(w, *from, p);
	if (len == 0) {
		put_replacement(w);
		len = 1;
	} else {
		put_escape(w, cp);
	}
	*from = p + len;
	return p + len;
}

static void
quoted(struct jwrite *w, struct view v)
{
	const uint8_t *p = (const uint8_t *)v.p, *from = p;
	const uint8_t *end = v.n > 0 ? p + v.n : p;

	put(w, "\"", 1);
	while ((p = jrun_ascii(p, end)) < end && w->err == 0) {
		if (*p >= 0x80) {
			p = wide(w, &from, p, end, true);
			continue;
		}
		put_run(w, from, p);
		put_special(w, *p);
		from = ++p;
	}
	put_run(w, from, end);
	put(w, "\"", 1);
}

void
jwrite_key(struct jwrite *w, const char *key)
{
	if (w->err != 0)
		return;
	if (!w->object[w->depth] || w->after_key) {
		w->err = SP_E_STATE;
		return;
	}
	if (w->comma[w->depth])
		put(w, ",", 1);
	w->comma[w->depth] = true;
	quoted(w, view_str(key));
	put(w, ":", 1);
	w->after_key = true;
}

void
jwrite_string(struct jwrite *w, struct view v)
{
	if (begin_value(w))
		quoted(w, v);
}

size_t
jwrite_again_bytes(struct view text)
{
	size_t i, n = text.n;

	/* of what is not ASCII, U+2028 and the like become six of three */
	for (i = 0; i < text.n; i++)
		n += text.p[i] == '"' || text.p[i] == '\\' ||
		    (unsigned char)text.p[i] >= 0x80;
	return n;
}

void
jwrite_cstr(struct jwrite *w, const char *s)
{
	if (s == NULL)
		jwrite_null(w);
	else
		jwrite_string(w, view_str(s));
}

void
jwrite_u64(struct jwrite *w, uint64_t v)
{
	char out[20];

	value(w, out, num_format_u64(v, out));
}

void
jwrite_i64(struct jwrite *w, int64_t v)
{
	char out[21] = "-";

	if (v >= 0)
		jwrite_u64(w, (uint64_t)v);
	else
		value(w, out, 1 + num_format_u64(0 - (uint64_t)v, out + 1));
}

/* printf writes the locale's decimal point, of whatever bytes; JSON a dot. */
static size_t
with_dot(char *text, size_t n)
{
	size_t i, from;

	for (i = 0; i < n && strchr("0123456789+-e", text[i]) != NULL; i++)
		;
	if (i == n)
		return n;
	for (from = i; i < n && strchr("0123456789+-e", text[i]) == NULL; i++)
		;
	text[from] = '.';
	memmove(text + from + 1, text + i, n - i);
	return n - (i - from - 1);
}

/*
 * Millionths, as times are, and many a log-probability: the digits of the
 * integer are those that printf would find, for what is nearest to them is v.
 * Sixteen digits are enough below 2^32, where doubles are less than half a
 * millionth apart.
 */
static bool
write_millionths(struct jwrite *w, double v)
{
	double all = fabs(v) * MILLION;
	char text[48], digits[20];
	size_t whole, at = 0, len;
	uint64_t n;

	if (!(fabs(v) >= LEAST_PLAIN) || !(all < MOST_MILLIONTHS))
		return false;
	n = (uint64_t)(all + 0.5);
	if ((double)n / MILLION != fabs(v))
		return false;
	if (v < 0)
		text[at++] = '-';
	at += num_format_u64(n / MILLION, text + at);
	whole = at;
	/* a digit in front keeps the noughts */
	len = num_format_u64(MILLION + n % MILLION, digits);
	text[at] = '.';
	memcpy(text + at + 1, digits + 1, len - 1);
	at += len;
	while (text[at - 1] == '0')
		at--;
	value(w, text, at - 1 == whole ? whole : at);
	return true;
}

void
jwrite_double(struct jwrite *w, double v)
{
	/* subnormal numbers have fewer digits, down to one */
	int digits = isnormal(v) ? SURE_DIGITS : 1;
	char text[48];
	double back;
	size_t n;

	if (!isfinite(v)) {
		w->nonfinite++;
		jwrite_null(w);
		return;
	}
	if (FLT_EVAL_METHOD == 0 && write_millionths(w, v))
		return;
	for (;; digits++) {
		n = (size_t)snprintf(text, sizeof(text), "%.*g", digits, v);
		n = with_dot(text, n);
		if (digits >= MOST_DIGITS)
			break;
		if (num_double(view_of(text, n), &back) == 0 && back == v)
			break;
	}
	value(w, text, n);
}

void
jwrite_bool(struct jwrite *w, bool v)
{
	if (v)
		value(w, "true", 4);
	else
		value(w, "false", 5);
}

void
jwrite_null(struct jwrite *w)
{
	value(w, "null", 4);
}

/* The \u escape at p is a surrogate: 1 first, 2 second of a pair; 0 none. */
static int
surrogate_at(const uint8_t *p, const uint8_t *end)
{
	if (end - p < 6 || p[0] != '\\' || p[1] != 'u' || (p[2] | 0x20) != 'd')
		return 0;
	switch (p[3] | 0x20) {
	case '8':
	case '9':
	case 'a':
	case 'b':
		return 1;
	case 'c':
	case 'd':
	case 'e':
	case 'f':
		return 2;
	default:
		return 0;
	}
}

/* The escape at p, of a valid string: stays, unless half of a pair. */
static const uint8_t *
copy_escape(struct jwrite *w, const uint8_t **from, const uint8_t *p,
    const uint8_t *end)
{
	int half = surrogate_at(p, end);

	if (half == 0)
		return p + 2; /* digits behind it are plain bytes */
	if (half == 1 && surrogate_at(p + 6, end) == 2)
		return p + 12;
	put_run(w, *from, p);
	put_replacement(w);
	*from = p + 6;
	return p + 6;
}

/* A string of valid JSON text, from after its quote to after the other. */
static const uint8_t *
copy_string(struct jwrite *w, const uint8_t **from, const uint8_t *p,
    const uint8_t *end)
{
	while ((p = jrun_ascii(p, end)) < end && *p != '"') {
		if (*p == '\\')
			p = copy_escape(w, from, p, end);
		else if (*p >= 0x80)
			p = wide(w, from, p, end, false);
		else
			p++; /* DEL */
	}
	return p < end ? p + 1 : end;
}

/* Valid JSON text, non-finite numbers allowed, as strict JSON. */
static void
copy_value(struct jwrite *w, const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from = p;

	while (p < end && w->err == 0) {
		size_t word = 0;

		p = jrun_bare(p, end);
		if (p == end)
			break;
		switch (*p) {
		case '"':
			p = copy_string(w, &from, p + 1, end);
			continue;
		case ' ':
		case '\t':
		case '\n':
		case '\r':
			put_run(w, from, p);
			from = ++p;
			continue;
		case 'I':
			word = sizeof("Infinity") - 1;
			if (p > from && p[-1] == '-') {
				p--;
				word++;
			}
			break;
		case 'N':
			word = sizeof("NaN") - 1;
			break;
		}
		if (word == 0) {
			p++;
			continue;
		}
		put_run(w, from, p);
		put(w, "null", 4);
		w->nonfinite++;
		from = p += word;
	}
	put_run(w, from, end);
}

void
jwrite_span(struct jwrite *w, struct view text)
{
	const uint8_t *p = (const uint8_t *)text.p;

	if (w->err != 0)
		return;
	/* all of it before any of it: what follows trusts the text's form */
	w->err = jscan_valid(text, JSCAN_ALLOW_NONFINITE);
	if (begin_value(w))
		copy_value(w, p, p + text.n);
}

void
jwrite_scanned(struct jwrite *w, struct view text)
{
	const uint8_t *p = (const uint8_t *)text.p;

	if (begin_value(w))
		copy_value(w, p, p + text.n);
}

void
jwrite_raw(struct jwrite *w, struct view text)
{
	value(w, text.p, text.n);
}

void
jwrite_list(struct jwrite *w, struct view elements, bool strict)
{
	const uint8_t *p = (const uint8_t *)elements.p;

	if (!begin_value(w))
		return;
	put(w, "[", 1);
	if (strict || elements.n == 0)
		put(w, elements.p, elements.n);
	else
		copy_value(w, p, p + elements.n);
	put(w, "]", 1);
}

int
jwrite_finish(struct jwrite *w)
{
	if (w->err == 0 && (w->depth != 0 || w->after_key || !w->comma[0]))
		w->err = SP_E_STATE;
	return w->err;
}
