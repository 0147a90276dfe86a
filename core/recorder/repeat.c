#include "config.h"

#include <string.h>

#include "recorder/repeat.h"

/* A value of the new event. */
struct got {
	struct jscan_span span;
	struct jtoken token; /* of an entry */
};

/* The value of a slot at the cursor, which is consumed. */
static bool
read_value(const struct repeat_slot *slot, struct jscan *s, struct got *g)
{
	const uint8_t *p = (const uint8_t *)s->p, *end;

	switch (slot->kind) {
	case REPEAT_TEXT:
		return jscan_skip(s, &g->span) == 0 &&
		    g->span.kind == JSCAN_STRING;
	case REPEAT_IDS:
		return jscan_skip(s, &g->span) == 0 &&
		    g->span.kind == JSCAN_ARRAY;
	case REPEAT_ENTRY:
		break;
	}
	end = jtoken_end(p + s->pos, p + s->n, &g->token);
	if (end == NULL)
		return false;
	g->span = (struct jscan_span){ .kind = JSCAN_OBJECT,
		.start = s->pos,
		.end = (size_t)(end - p) };
	s->pos = g->span.end;
	return true;
}

static void
add_value(struct accum_hold *h, const struct repeat_slot *slot, struct jscan *s,
    const struct got *g)
{
	switch (slot->kind) {
	case REPEAT_TEXT:
		accum_text_mark(slot->to.text);
		accum_text_add(h, slot->to.text, jscan_text(s, &g->span));
		break;
	case REPEAT_ENTRY:
		if (!h->over)
			logps_add(h, slot->to.logps, s, &g->span, &g->token);
		break;
	case REPEAT_IDS:
		s->pos = g->span.start;
		/* it was read before, so it is an array */
		if (accum_ids_scan(h, slot->to.ids, s) != 0)
			slot->to.ids->bad = true;
		break;
	}
}

/* Constant text up to a slot, or to the end. */
static bool
same(const struct repeat *r, size_t from, size_t to, struct jscan *s)
{
	size_t n = to - from;

	if (s->n - s->pos < n ||
	    memcmp(s->p + s->pos, r->text.mem + r->text.off + from, n) != 0)
		return false;
	s->pos += n;
	return true;
}

bool
repeat_event(struct repeat *r, struct accum_hold *h, struct view event)
{
	struct got got[REPEAT_SLOTS];
	struct jscan s;
	size_t i, at = 0;

	if (!r->ready || h->over)
		return false;
	jscan_init(&s, event, 0);
	for (i = 0; i < r->n; i++) {
		if (!same(r, at, r->v[i].at, &s) || s.pos >= s.n ||
		    s.p[s.pos] != r->text.mem[r->text.off + r->v[i].at] ||
		    !read_value(&r->v[i], &s, &got[i]))
			return false;
		at = r->v[i].end;
	}
	if (!same(r, at, buf_len(&r->text), &s) || s.pos != s.n)
		return false;
	for (i = 0; i < r->n; i++)
		add_value(h, &r->v[i], &s, &got[i]);
	r->misses = 0;
	return true;
}

void
repeat_begin(struct repeat *r, const struct accum_hold *h)
{
	r->ready = r->odd = false;
	r->n = r->cost = 0;
	r->used = h->used;
}

void
repeat_value(struct repeat *r, enum repeat_kind kind, union repeat_target to,
    const struct jscan_span *v, size_t cost)
{
	if (r->n == REPEAT_SLOTS) {
		r->odd = true;
		return;
	}
	r->v[r->n++] = (struct repeat_slot){ .kind = kind,
		.to = to,
		.at = v->start,
		.end = v->end };
	r->cost += cost;
}

void
repeat_end(struct repeat *r, const struct accum_hold *h, struct view event)
{
	size_t i;

	if (r->odd || h->over || h->used - r->used != r->cost || r->n == 0 ||
	    event.n > REPEAT_TEXT_MAX || r->misses >= REPEAT_MISSES)
		return;
	for (i = 1; i < r->n; i++)
		if (r->v[i].at < r->v[i - 1].end)
			return;
	r->misses++;
	r->text.max = REPEAT_TEXT_MAX;
	buf_reset(&r->text, SIZE_MAX);
	/* without memory for it the next one is read in full as well */
	r->ready = buf_add_view(&r->text, event) == 0;
}

void
repeat_clear(struct repeat *r)
{
	buf_clear(&r->text);
	*r = (struct repeat){ .n = 0 };
}
