/*
 * Holds jscan against yajl: both must agree on what is valid JSON, on every
 * event in it, and on every string and number.
 *
 * Where yajl differs by design or by mistake, and is not asked:
 *  - it knows no limit of depth;
 *  - it takes VT and FF for white space;
 *  - of a second text after the first it does not see a string that does not
 *    end, since it only asks whether its lexer had a whole token;
 *  - it writes "?" for a lone high surrogate, takes any escape as the second
 *    of a pair and encodes a lone low one (checked where nothing was replaced);
 *  - its check of UTF-8 is off, as jscan leaves that to who decodes.
 */
#ifndef SP_T_UNIT_JSON_PEER_H
#define SP_T_UNIT_JSON_PEER_H

#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "base/buf.h"
#include "base/mem.h"
#include "json/jscan.h"

struct peer_item {
	char type; /* { } [ ] k s n t f z */
	bool loose; /* a string that was repaired: only its place counts */
	size_t at, n; /* in the pool */
};

struct peer {
	struct peer_item *v;
	size_t n, cap, seen;
	struct buf pool;
	const char *why; /* the first disagreement */
};

static void
peer_check(struct peer *p, bool good, const char *why)
{
	if (!good && p->why == NULL)
		p->why = why;
}

static struct peer_item *
peer_push(struct peer *p, char type)
{
	if (p->n == p->cap) {
		p->cap = p->cap ? p->cap * 2 : 64;
		p->v = mem_reallocarray(p->v, p->cap, sizeof(*p->v));
		err_assert(p->v != NULL);
	}
	p->v[p->n] = (struct peer_item){ type, false, buf_len(&p->pool), 0 };
	return &p->v[p->n++];
}

static void
peer_push_string(struct peer *p, char type, const struct jscan *s,
    const struct jscan_span *span)
{
	struct peer_item *it = peer_push(p, type);
	size_t replaced = 0;
	struct view got;

	err_assert(jscan_decode(s, span, &p->pool, &replaced) == 0);
	it->n = buf_len(&p->pool) - it->at;
	it->loose = replaced > 0;
	if (replaced == 0) {
		got = view_sub(buf_view(&p->pool), it->at, it->n);
		peer_check(p, jscan_is(s, span, got), "jscan_is: equal text");
		got.n -= got.n > 0;
		peer_check(p, it->n == 0 || !jscan_is(s, span, got),
		    "jscan_is: shorter text");
	}
}

static void
peer_push_number(struct peer *p, const struct jscan *s,
    const struct jscan_span *span)
{
	struct view v = jscan_raw(s, span);
	struct peer_item *it = peer_push(p, 'n');
	char text[1025];
	double want, got;
	int rc;

	err_assert(buf_add_view(&p->pool, v) == 0);
	it->n = v.n;
	if (v.n >= sizeof(text))
		return;
	memcpy(text, v.p, v.n);
	text[v.n] = '\0';
	want = strtod(text, NULL);
	rc = jscan_double(s, span, &got);
	if (rc == 0)
		peer_check(p, memcmp(&want, &got, sizeof(got)) == 0,
		    "jscan_double: value");
	else
		peer_check(p, rc == SP_E_RANGE && want - want != 0,
		    "jscan_double: error");
}

static void
peer_scalar(struct peer *p, struct jscan *s, enum jscan_kind kind)
{
	struct jscan_span v;

	if (jscan_skip(s, &v) != 0)
		return;
	peer_check(p, v.kind == kind, "peek and skip: kind");
	if (kind == JSCAN_STRING)
		peer_push_string(p, 's', s, &v);
	else if (kind == JSCAN_NUMBER)
		peer_push_number(p, s, &v);
	else
		peer_push(p,
		    kind == JSCAN_TRUE        ? 't'
			: kind == JSCAN_FALSE ? 'f'
					      : 'z');
}

/* One value through enter, member and element; what is open is in open[]. */
static void
peer_walk(struct peer *p, struct jscan *s)
{
	char open[JSCAN_MAX_DEPTH];
	size_t ends[4] = { 0 };
	struct jscan_span key, whole;
	unsigned depth = 0;
	int rc;

	do {
		enum jscan_kind kind = jscan_peek(s);

		if (kind == JSCAN_OBJECT || kind == JSCAN_ARRAY) {
			struct jscan copy = *s;

			/* skipping it must end where walking will */
			if (depth < 4)
				ends[depth] = jscan_skip(&copy, &whole) == 0
				    ? whole.end
				    : 0;
			if (jscan_enter(s) != 0)
				return;
			open[depth++] = kind == JSCAN_OBJECT ? '{' : '[';
			peer_push(p, open[depth - 1]);
		} else {
			peer_scalar(p, s, kind);
		}
		for (rc = 0; depth > 0 && rc == 0 && s->err == 0;) {
			bool object = open[depth - 1] == '{';

			rc = object ? jscan_member(s, &key) : jscan_element(s);
			if (rc == 1 && object)
				peer_push_string(p, 'k', s, &key);
			if (rc != 0)
				break;
			peer_push(p, object ? '}' : ']');
			depth--;
			if (depth < 4)
				peer_check(p, ends[depth] == s->pos,
				    "skip and walk: end");
		}
	} while (depth > 0 && s->err == 0);
}

static int
peer_next(struct peer *p, char type, const void *text, size_t n)
{
	struct peer_item *it = &p->v[p->seen];

	if (p->seen >= p->n || it->type != type) {
		peer_check(p, false, "yajl sees another event");
		return 0;
	}
	p->seen++;
	if (!it->loose && text != NULL)
		peer_check(p,
		    it->n == n &&
			(n == 0 ||
			    memcmp(buf_view(&p->pool).p + it->at, text, n) ==
				0),
		    "yajl sees another value");
	return p->why == NULL;
}

static int
peer_null(void *p)
{
	return peer_next(p, 'z', NULL, 0);
}

static int
peer_boolean(void *p, int v)
{
	return peer_next(p, v ? 't' : 'f', NULL, 0);
}

static int
peer_number(void *p, const char *text, size_t n)
{
	return peer_next(p, 'n', text, n);
}

static int
peer_string(void *p, const unsigned char *text, size_t n)
{
	return peer_next(p, 's', text, n);
}

static int
peer_key(void *p, const unsigned char *text, size_t n)
{
	return peer_next(p, 'k', text, n);
}

static int
peer_map(void *p)
{
	return peer_next(p, '{', NULL, 0);
}

static int
peer_end_map(void *p)
{
	return peer_next(p, '}', NULL, 0);
}

static int
peer_list(void *p)
{
	return peer_next(p, '[', NULL, 0);
}

static int
peer_end_list(void *p)
{
	return peer_next(p, ']', NULL, 0);
}

static bool
peer_yajl(struct view text, const yajl_callbacks *calls, void *ctx)
{
	yajl_handle h = yajl_alloc(calls, NULL, ctx);
	yajl_status st;

	err_assert(h != NULL);
	yajl_config(h, yajl_dont_validate_strings, 1);
	st = yajl_parse(h, (const unsigned char *)text.p, text.n);
	if (st == yajl_status_ok)
		st = yajl_complete_parse(h);
	yajl_free(h);
	return st == yajl_status_ok;
}

/* NULL when jscan and yajl agree on the text, else what they do not. */
static const char *
peer_compare(struct view text)
{
	static const yajl_callbacks calls = { peer_null, peer_boolean, NULL,
		NULL, peer_number, peer_string, peer_map, peer_key,
		peer_end_map, peer_list, peer_end_list };
	struct peer p = { .pool = BUF_INIT(text.n * 4 + 64) };
	struct jscan s, t;
	bool second, differs = false;
	int rc;

	jscan_init(&s, text, 0);
	rc = jscan_skip(&s, NULL);
	second = rc == 0;
	if (rc == 0)
		rc = jscan_finish(&s);
	peer_check(&p, jscan_valid(text, 0) == rc, "jscan_valid");
	jscan_init(&t, text, 0);
	peer_walk(&p, &t);
	if (t.err == 0)
		peer_check(&p, jscan_finish(&t) == rc, "walk: finish");
	peer_check(&p, t.err == rc && t.pos == s.pos,
	    "skip and walk: where the error is");
	if (rc != 0 && s.pos < text.n)
		differs = (second && text.p[s.pos] == '"') ||
		    text.p[s.pos] == '\v' || text.p[s.pos] == '\f';
	if (rc == 0) {
		peer_check(&p, peer_yajl(text, &calls, &p), "yajl refuses it");
		peer_check(&p, p.seen == p.n, "yajl sees fewer events");
	} else if (rc == SP_E_SYNTAX && !differs) {
		peer_check(&p, !peer_yajl(text, NULL, NULL), "yajl takes it");
	}
	mem_free(p.v);
	buf_clear(&p.pool);
	return p.why;
}

#endif
