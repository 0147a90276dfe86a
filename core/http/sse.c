#include "config.h"

#include <stdint.h>

#include "http/sse.h"

/* A byte order mark may begin the stream, once. */
enum { SSE_BOM_BYTES = 3 };
static const char sse_bom[SSE_BOM_BYTES] = { '\xef', '\xbb', '\xbf' };

/* One call of sse_feed(). */
struct sse_run {
	struct sse *s;
	struct view v;
	size_t at; /* next byte to look at */
	size_t from; /* first byte of the event in hand */
	size_t lf; /* next LF at or after at, v.n none; valid when >= at */
	bool lf_known;
	int (*cb)(void *arg, const struct sse_event *e);
	void *arg;
};

void
sse_init(struct sse *s, size_t max_bytes)
{
	*s = (struct sse){ .max = max_bytes,
		.line_start = true,
		.event_start = true };
	buf_init(&s->pending, max_bytes);
	buf_init(&s->joined, max_bytes);
}

void
sse_clear(struct sse *s)
{
	size_t max = s->max;

	buf_clear(&s->pending);
	buf_clear(&s->joined);
	sse_init(s, max);
}

struct view
sse_rest(const struct sse *s)
{
	return buf_view(&s->pending);
}

/*
 * End of the line that begins at `at`: offset of its CR or LF, or v.n.  The
 * next LF is remembered by the caller, so that a stream of bare CRs is not
 * searched again for every line.
 */
static size_t
sse_line_end(struct view v, size_t at, size_t *lf, bool *lf_known)
{
	if (!*lf_known || *lf < at) {
		*lf = at + view_find(view_from(v, at), '\n');
		*lf_known = true;
	}
	return at + view_find(view_sub(v, at, *lf - at), '\r');
}

/* ---- one whole event ------------------------------------------------------
 */

/* HTML s9.2.6: data lines are joined by LF. */
static int
sse_add_data(struct sse *s, struct sse_event *e, unsigned *lines,
    struct view value)
{
	int rc;

	if (value.n != 0)
		e->flags |= SSE_DATA;
	if ((*lines)++ == 0) {
		e->flags |= SSE_ONE_LINE;
		e->data = value;
		e->data_at = (size_t)(value.p - e->raw.p);
		return 0;
	}
	if (e->flags & SSE_ONE_LINE) {
		e->flags &= ~(unsigned)SSE_ONE_LINE;
		e->data_at = 0;
		buf_reset(&s->joined, SIZE_MAX);
		rc = buf_add_view(&s->joined, e->data);
		if (rc != 0)
			return rc;
	}
	rc = buf_add_char(&s->joined, '\n');
	if (rc == 0)
		rc = buf_add_view(&s->joined, value);
	e->data = buf_view(&s->joined);
	return rc;
}

static int
sse_line(struct sse *s, struct sse_event *e, unsigned *data_lines,
    struct view line)
{
	size_t colon;
	struct view name, value;

	e->flags &= ~(unsigned)SSE_BLANK;
	if (line.p[0] == ':') {
		e->flags |= SSE_COMMENT;
		return 0;
	}
	colon = view_find(line, ':');
	name = view_sub(line, 0, colon);
	value = view_from(line, colon + 1);
	if (value.n != 0 && value.p[0] == ' ')
		value = view_from(value, 1);
	if (view_eq(name, VIEW("data")))
		return sse_add_data(s, e, data_lines, value);
	if (view_eq(name, VIEW("event"))) {
		e->flags |= SSE_NAMED;
		e->name = value;
	} else if (view_eq(name, VIEW("error"))) {
		e->flags |= SSE_ERROR;
		e->error = value;
	}
	return 0;
}

static int
sse_parse(struct sse *s, struct view raw, struct sse_event *e)
{
	bool lf_known = false;
	unsigned data_lines = 0;
	size_t at = 0, end, lf = 0;
	int rc;

	*e = (struct sse_event){ .raw = raw, .flags = SSE_BLANK };
	/* the usual one has one line, and its ends are known already */
	if (s->lines == 1)
		return sse_line(s, e, &data_lines,
		    view_sub(raw, s->line_at, s->line_end - s->line_at));
	while (at < raw.n) {
		end = sse_line_end(raw, at, &lf, &lf_known);
		if (end > at) {
			rc = sse_line(s, e, &data_lines,
			    view_sub(raw, at, end - at));
			if (rc != 0)
				return rc;
		}
		at = end + 1;
	}
	return 0;
}

/* ---- cutting the stream ---------------------------------------------------
 */

/* r->at, counted from the first byte of the event in hand. */
static size_t
sse_offset(const struct sse_run *r)
{
	return buf_len(&r->s->pending) + r->at - r->from;
}

/* The event in hand ends before r->at. */
static int
sse_emit(struct sse_run *r)
{
	struct sse *s = r->s;
	struct view raw = view_sub(r->v, r->from, r->at - r->from);
	struct sse_event e;
	int rc;

	if (raw.n > s->max)
		return SP_E_LIMIT;
	if (buf_len(&s->pending) != 0) {
		rc = buf_add_view(&s->pending, raw);
		if (rc != 0)
			return rc;
		raw = buf_view(&s->pending);
	}
	s->event_start = true;
	s->line_start = true;
	s->comment = false;
	s->hold = false;
	r->from = r->at;
	rc = sse_parse(s, raw, &e);
	s->lines = 0;
	if (rc == 0)
		rc = r->cb(r->arg, &e);
	buf_reset(&s->pending, 0);
	buf_reset(&s->joined, 0);
	return rc;
}

/* The byte after a CR: a LF is part of that line end. */
static int
sse_after_cr(struct sse_run *r)
{
	struct sse *s = r->s;

	s->after_cr = false;
	s->crlf = r->v.p[r->at] == '\n';
	if (s->crlf)
		r->at++;
	return s->hold ? sse_emit(r) : 0;
}

/*
 * The line end at r->at.  emits: the event is whole with it (a blank line, or
 * a comment alone).
 */
static int
sse_eol(struct sse_run *r, bool emits)
{
	struct sse *s = r->s;

	s->line_start = true;
	if (r->v.p[r->at++] == '\r') {
		s->after_cr = true;
		if (emits && s->crlf) {
			s->hold = true;
			return 0;
		}
	} else {
		s->crlf = false;
	}
	return emits ? sse_emit(r) : 0;
}

static int
sse_scan(struct sse_run *r)
{
	struct sse *s = r->s;
	int rc = 0;
	char c;

	while (rc == 0 && r->at < r->v.n) {
		if (s->after_cr) {
			rc = sse_after_cr(r);
			continue;
		}
		c = r->v.p[r->at];
		if (s->line_start) {
			if (c == '\n' || c == '\r') {
				rc = sse_eol(r, true);
				continue;
			}
			s->comment = s->event_start && c == ':';
			s->event_start = false;
			s->line_start = false;
			if (s->lines == 0)
				s->line_at = sse_offset(r);
		}
		r->at = sse_line_end(r->v, r->at, &r->lf, &r->lf_known);
		if (r->at == r->v.n)
			break;
		if (s->lines == 0)
			s->line_end = sse_offset(r);
		if (s->lines < 2)
			s->lines++;
		rc = sse_eol(r, s->comment);
	}
	if (rc == 0 && r->from < r->v.n)
		rc = buf_add_view(&s->pending, view_from(r->v, r->from));
	return rc;
}

/* Steps over a byte order mark; *held: bytes that only looked like one. */
static struct view
sse_skip_bom(struct sse *s, struct view v, struct view *held)
{
	while (s->bom_n < SSE_BOM_BYTES && v.n != 0) {
		if (v.p[0] != sse_bom[s->bom_n]) {
			*held = view_of(sse_bom, s->bom_n);
			s->bom_n = SSE_BOM_BYTES;
			break;
		}
		s->bom_n++;
		v = view_from(v, 1);
	}
	return v;
}

int
sse_feed(struct sse *s, struct view bytes,
    int (*cb)(void *arg, const struct sse_event *e), void *arg)
{
	struct sse_run r = { .s = s, .cb = cb, .arg = arg };
	int rc;

	if (s->bom_n < SSE_BOM_BYTES) {
		bytes = sse_skip_bom(s, bytes, &r.v);
		rc = r.v.n != 0 ? sse_scan(&r) : 0;
		if (rc != 0)
			return rc;
		r = (struct sse_run){ .s = s, .cb = cb, .arg = arg };
	}
	r.v = bytes;
	return sse_scan(&r);
}
