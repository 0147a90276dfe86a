/*
 * Runs the HTTP/1.1 parsers over bytes in pieces and writes down what they
 * found, for the table tests and the fuzzers.
 *   METHOD target [path?query @authority] K {name=value;} <body>
 * K keep-alive, C close, 0 HTTP/1.0, E expects 100; "... " more is needed;
 * a refusal is its status and words.
 */
#ifndef SP_T_UNIT_H1_FEED_H
#define SP_T_UNIT_H1_FEED_H

#include <stdlib.h>

#include "http/h1_parse.h"

enum { FEED_LINE_MAX = 200, FEED_HEAD_MAX = 600, FEED_FIELDS_MAX = 12 };

struct h1_feed {
	bool reply;
	bool in_body;
	bool over; /* refused: nothing more is read */
	struct h1_scan scan;
	struct h1_body body;
	struct buf in;
	struct buf out; /* what was found */
};

static void
feed_must(int rc)
{
	if (rc != 0)
		abort();
}

static void
feed_text(struct h1_feed *f, const char *s)
{
	feed_must(buf_add_str(&f->out, s));
}

static void
feed_init(struct h1_feed *f, bool reply)
{
	*f = (struct h1_feed){ .reply = reply, .scan = { .reply = reply } };
	buf_init(&f->in, 1 << 24);
	buf_init(&f->out, 1 << 26);
}

static void
feed_clear(struct h1_feed *f)
{
	buf_clear(&f->in);
	buf_clear(&f->out);
}

static void
feed_refused(struct h1_feed *f, const struct h1_fault *fault)
{
	feed_must(buf_printf(&f->out, "%u %s", fault->status, fault->what));
	f->over = true;
}

static void
feed_fields(struct h1_feed *f, const struct head_fields *fs)
{
	size_t i;

	feed_text(f, " {");
	for (i = 0; i < fs->n; i++) {
		feed_must(buf_add_view(&f->out, fs->v[i].name));
		feed_text(f, "=");
		feed_must(buf_add_view(&f->out, fs->v[i].value));
		feed_text(f, ";");
	}
	feed_text(f, "} <");
}

static int
feed_request(struct h1_feed *f, struct view head, struct arena *a,
    struct h1_framing *fr, struct h1_fault *fault)
{
	struct head_request rq = { 0 };
	int rc = h1_parse_request(head, &f->scan, a, &rq, fr, fault);

	if (rc != 0)
		return rc;
	if (rq.has_body != (fr->kind != H1_BODY_NONE))
		abort();
	feed_must(buf_add_view(&f->out, rq.method));
	feed_text(f, " ");
	feed_must(buf_add_view(&f->out, rq.target));
	feed_text(f, " [");
	feed_must(buf_add_view(&f->out, rq.path));
	feed_text(f, "?");
	feed_must(buf_add_view(&f->out, rq.query));
	feed_text(f, " @");
	feed_must(buf_add_view(&f->out, rq.authority));
	feed_text(f, fr->keep_alive ? "] K" : "] C");
	feed_text(f, rq.http10 ? "0" : "");
	feed_text(f, fr->expect ? "E" : "");
	feed_fields(f, &rq.fields);
	return 0;
}

static int
feed_reply(struct h1_feed *f, struct view head, struct arena *a,
    struct h1_framing *fr, struct h1_fault *fault)
{
	struct head_reply rp = { 0 };
	int rc = h1_parse_reply(head, &f->scan, a, &rp, fr, fault);

	if (rc != 0)
		return rc;
	feed_must(buf_printf(&f->out, "%u %lld %s%s", rp.status,
	    (long long)rp.content_length, fr->keep_alive ? "K" : "C",
	    fr->kind == H1_BODY_CLOSE ? " to close" : ""));
	feed_fields(f, &rp.fields);
	return 0;
}

/* Bytes of v used by a head, 0: more are needed, or it was refused. */
static size_t
feed_head(struct h1_feed *f, struct view v)
{
	static const struct h1_scan_limits limits = { FEED_LINE_MAX,
		FEED_HEAD_MAX, FEED_FIELDS_MAX };
	struct h1_fault fault = { 0, NULL };
	struct h1_framing fr;
	struct arena *a;
	size_t n = 0;
	int rc = h1_parse_scan(&f->scan, v, &limits, &n, &fault);

	if (rc == SP_E_AGAIN)
		return 0;
	if (rc != 0) {
		feed_refused(f, &fault);
		return 0;
	}
	a = arena_new(1 << 20);
	if (a == NULL)
		abort();
	rc = f->reply ? feed_reply(f, view_sub(v, 0, n), a, &fr, &fault)
		      : feed_request(f, view_sub(v, 0, n), a, &fr, &fault);
	if (rc == 0) {
		h1_body_init(&f->body, &fr, f->reply);
		f->in_body = true;
	} else {
		feed_refused(f, &fault);
	}
	arena_free(a);
	f->scan = (struct h1_scan){ .reply = f->reply,
		.head_request = f->scan.head_request };
	return n;
}

static size_t
feed_body(struct h1_feed *f, struct view v)
{
	struct view rest = v, data;
	int rc = h1_body_next(&f->body, &rest, UINT64_MAX, &data);

	if (rc == H1_BODY_DATA) {
		feed_must(buf_add_view(&f->out, data));
	} else if (rc == H1_BODY_END) {
		feed_text(f, ">");
		f->in_body = false;
	} else if (rc < 0) {
		feed_text(f, rc == SP_E_LIMIT ? "!limit" : "!bad");
		f->over = true;
	}
	return v.n - rest.n;
}

/* One piece, from memory of its own so that a read past it is found. */
static void
feed_piece(struct h1_feed *f, struct view piece)
{
	size_t used;
	char *own;

	if (f->over)
		return;
	feed_must(buf_add_view(&f->in, piece));
	own = malloc(buf_len(&f->in) + 1);
	if (own == NULL)
		abort();
	if (buf_len(&f->in) != 0)
		memcpy(own, buf_view(&f->in).p, buf_len(&f->in));
	for (;;) {
		size_t at = buf_len(&f->in), body_was = f->in_body;
		struct view v =
		    view_of(own, buf_len(&f->in)); /* see memmove below */

		used = f->in_body ? feed_body(f, v) : feed_head(f, v);
		buf_consume(&f->in, used);
		memmove(own, own + used, at - used);
		if (f->over || (used == 0 && body_was == f->in_body))
			break;
	}
	free(own);
}

/* Cut at a and b. */
static inline void
feed_cut(struct h1_feed *f, struct view in, size_t a, size_t b)
{
	feed_piece(f, view_sub(in, 0, a));
	feed_piece(f, view_sub(in, a, b - a));
	feed_piece(f, view_from(in, b));
}

#endif
