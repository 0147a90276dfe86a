#include "config.h"

#include "http/h1_parse.h"

/*
 * RFC 9112 s7.1:
 *   chunked-body = *chunk last-chunk trailer-section CRLF
 *   chunk        = chunk-size [ chunk-ext ] CRLF chunk-data CRLF
 * Stricter than its reader's licence: no white space around the size, no bare
 * LF, no other line end, since proxies disagree about all of these.
 */
enum {
	CHUNK_SIZE, /* at the first or a later digit */
	CHUNK_EXTENSION,
	CHUNK_SIZE_LF, /* after the CR of the size line */
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_TRAILER_START, /* first byte of a trailer line */
	CHUNK_TRAILER_NAME,
	CHUNK_TRAILER_VALUE,
	CHUNK_TRAILER_LF,
	CHUNK_LAST_LF, /* of the empty line at the end */
	BODY_DATA, /* not chunked */
	BODY_END,
	/* not a state: of sizes that are read at a glance */
	QUICK_DIGITS = 8,
};

void
h1_body_init(struct h1_body *b, const struct h1_framing *framing,
    bool per_chunk)
{
	*b = (struct h1_body){ .kind = framing->kind, .per_chunk = per_chunk };
	switch (framing->kind) {
	case H1_BODY_NONE:
		b->state = BODY_END;
		break;
	case H1_BODY_LENGTH:
		b->left = framing->length;
		b->state = b->left != 0 ? BODY_DATA : BODY_END;
		break;
	case H1_BODY_CLOSE:
		b->left = UINT64_MAX;
		b->state = BODY_DATA;
		break;
	case H1_BODY_CHUNKED:
		b->state = CHUNK_SIZE;
		break;
	}
}

bool
h1_body_at_close(const struct h1_body *b)
{
	return b->kind == H1_BODY_CLOSE;
}

static int
body_hex(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RFC 9110 s5.5: what may stand in a value or an extension. */
static bool
body_is_text(unsigned char c)
{
	return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static int
chunk_size(struct h1_body *b, unsigned char c)
{
	int digit = body_hex(c);

	if (digit >= 0) {
		/* sixteen digits cannot overflow; the top bit is refused */
		if (++b->digits > H1_CHUNK_DIGITS)
			return SP_E_SYNTAX;
		b->left = b->left << 4 | (unsigned)digit;
		return b->left > INT64_MAX ? SP_E_SYNTAX : 0;
	}
	if (b->digits == 0)
		return SP_E_SYNTAX;
	if (c == '\r')
		b->state = CHUNK_SIZE_LF;
	else if (c == ';')
		b->state = CHUNK_EXTENSION;
	else
		return SP_E_SYNTAX;
	return 0;
}

static int
chunk_extension(struct h1_body *b, unsigned char c)
{
	if (c == '\r') {
		b->state = CHUNK_SIZE_LF;
		return 0;
	}
	if (++b->extension > H1_EXTENSION_MAX)
		return SP_E_LIMIT;
	return body_is_text(c) ? 0 : SP_E_SYNTAX;
}

/* Trailers are read as fields are, bounded, and dropped (s7.1.2). */
static int
chunk_trailer(struct h1_body *b, unsigned char c)
{
	char byte = (char)c;

	if (++b->trailer > H1_TRAILER_MAX)
		return SP_E_LIMIT;
	if (b->state == CHUNK_TRAILER_START && c == '\r') {
		b->state = CHUNK_LAST_LF;
	} else if (b->state == CHUNK_TRAILER_VALUE) {
		if (c == '\r')
			b->state = CHUNK_TRAILER_LF;
		else if (!body_is_text(c))
			return SP_E_SYNTAX;
	} else if (b->state == CHUNK_TRAILER_NAME && c == ':') {
		b->state = CHUNK_TRAILER_VALUE;
	} else {
		if (!head_is_token(view_of(&byte, 1)))
			return SP_E_SYNTAX;
		b->state = CHUNK_TRAILER_NAME;
	}
	return 0;
}

static int
chunk_expect(struct h1_body *b, unsigned char got, char want, int next)
{
	if (got != (unsigned char)want)
		return SP_E_SYNTAX;
	b->state = next;
	return 0;
}

/* One byte of framing; not in CHUNK_DATA, BODY_DATA, BODY_END. */
static int
chunk_byte(struct h1_body *b, unsigned char c)
{
	int rc;

	switch (b->state) {
	case CHUNK_SIZE:
		return chunk_size(b, c);
	case CHUNK_EXTENSION:
		return chunk_extension(b, c);
	case CHUNK_SIZE_LF:
		return chunk_expect(b, c, '\n',
		    b->left != 0 ? CHUNK_DATA : CHUNK_TRAILER_START);
	case CHUNK_DATA_CR:
		return chunk_expect(b, c, '\r', CHUNK_DATA_LF);
	case CHUNK_DATA_LF:
		rc = chunk_expect(b, c, '\n', CHUNK_SIZE);
		b->digits = 0;
		if (b->per_chunk)
			b->extension = 0;
		return rc;
	case CHUNK_TRAILER_LF:
		return chunk_expect(b, c, '\n', CHUNK_TRAILER_START);
	case CHUNK_LAST_LF:
		return chunk_expect(b, c, '\n', BODY_END);
	default:
		return chunk_trailer(b, c);
	}
}

static int
body_data(struct h1_body *b, struct view *in, uint64_t max, struct view *out)
{
	size_t n = in->n;

	if (max == 0)
		return H1_BODY_FULL;
	if (n > b->left)
		n = (size_t)b->left;
	if (n > max)
		n = (size_t)max;
	*out = view_sub(*in, 0, n);
	*in = view_from(*in, n);
	if (b->kind == H1_BODY_CLOSE)
		return H1_BODY_DATA;
	b->left -= n;
	if (b->left == 0)
		b->state = b->state == CHUNK_DATA ? CHUNK_DATA_CR : BODY_END;
	return H1_BODY_DATA;
}

/*
 * A size line without an extension, as nearly all are, all of it there: the
 * byte by byte reader's result, or 0 and nothing done.
 */
static size_t
chunk_quick(struct h1_body *b, struct view in)
{
	uint64_t size = 0;
	size_t i;
	int digit;

	if (b->state != CHUNK_SIZE || b->digits != 0)
		return 0;
	for (i = 0; i < in.n && i < QUICK_DIGITS; i++) {
		digit = body_hex((unsigned char)in.p[i]);
		if (digit < 0)
			break;
		size = size << 4 | (unsigned)digit;
	}
	if (size == 0 || in.n - i < 2 || in.p[i] != '\r' || in.p[i + 1] != '\n')
		return 0;
	b->digits = i;
	b->left = size;
	b->state = CHUNK_DATA;
	return i + 2;
}

int
h1_body_next(struct h1_body *b, struct view *in, uint64_t max, struct view *out)
{
	int rc;

	*out = VIEW_NONE;
	while (b->state != BODY_END && in->n != 0) {
		*in = view_from(*in, chunk_quick(b, *in));
		if (in->n == 0)
			break;
		if (b->state == CHUNK_DATA || b->state == BODY_DATA)
			return body_data(b, in, max, out);
		rc = chunk_byte(b, (unsigned char)in->p[0]);
		if (rc != 0)
			return rc;
		*in = view_from(*in, 1);
	}
	return b->state == BODY_END ? H1_BODY_END : H1_BODY_MORE;
}
