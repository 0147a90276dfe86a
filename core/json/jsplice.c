/* Edits on JSON text as splices of the original bytes. */
#include "base/mem.h"
#include "json/jsplice.h"

enum { FIRST_CAP = 16 };

void
jsplice_init(struct jsplice *e, size_t max)
{
	*e = (struct jsplice){ .max = max };
}

void
jsplice_clear(struct jsplice *e)
{
	mem_free(e->v);
	*e = (struct jsplice){ .max = e->max };
}

void
jsplice_reset(struct jsplice *e)
{
	e->n = 0;
}

static int
grow(struct jsplice *e)
{
	size_t cap = e->cap != 0 ? e->cap : FIRST_CAP;
	struct jsplice_edit *v;

	if (e->n == e->max)
		return SP_E_LIMIT;
	if (e->n < e->cap)
		return 0;
	if (e->cap != 0)
		cap = e->cap > e->max / 2 ? e->max : e->cap * 2;
	v = mem_reallocarray(e->v, cap, sizeof(*v));
	if (v == NULL)
		return SP_E_NOMEM;
	e->v = v;
	e->cap = cap;
	return 0;
}

/*
 * True when a stands before b in the list: by place, and at one place first
 * the insertions, which leave the text there to one replacement.
 */
static bool
before(const struct jsplice_edit *a, const struct jsplice_edit *b)
{
	if (a->at != b->at)
		return a->at < b->at;
	return a->drop == 0 || b->drop != 0;
}

int
jsplice_add(struct jsplice *e, size_t at, size_t drop, struct view put)
{
	const struct jsplice_edit new = { at, drop, put };
	size_t i = e->n;
	int rc;

	if (drop > SIZE_MAX - at)
		return SP_E_ARG;
	if (drop == 0 && put.n == 0)
		return 0;
	/* from the end: a scan adds them in order */
	while (i > 0 && !before(&e->v[i - 1], &new))
		i--;
	if (i > 0 && e->v[i - 1].at + e->v[i - 1].drop > at)
		return SP_E_ARG;
	if (i < e->n && at + drop > e->v[i].at)
		return SP_E_ARG;
	rc = grow(e);
	if (rc != 0)
		return rc;
	if (i < e->n)
		memmove(e->v + i + 1, e->v + i, (e->n - i) * sizeof(*e->v));
	e->v[i] = new;
	e->n++;
	return 0;
}

/* The length of the result in *n: 0, or an error of jsplice_apply(). */
static int
result_size(const struct jsplice *e, struct view text, size_t *n)
{
	size_t i, total = text.n;

	for (i = 0; i < e->n; i++) {
		if (e->v[i].at + e->v[i].drop > text.n)
			return SP_E_ARG;
		total -= e->v[i].drop;
	}
	for (i = 0; i < e->n; i++) {
		if (e->v[i].put.n > SIZE_MAX - total)
			return SP_E_LIMIT;
		total += e->v[i].put.n;
	}
	*n = total;
	return 0;
}

int
jsplice_apply(const struct jsplice *e, struct view text, struct buf *out)
{
	size_t before_n = buf_len(out), i, n, pos = 0;
	int rc;

	rc = result_size(e, text, &n);
	if (rc == 0)
		rc = buf_reserve(out, n);
	for (i = 0; i < e->n && rc == 0; i++) {
		const struct jsplice_edit *v = &e->v[i];

		rc = buf_add_view(out, view_sub(text, pos, v->at - pos));
		if (rc == 0)
			rc = buf_add_view(out, v->put);
		pos = v->at + v->drop;
	}
	if (rc == 0)
		rc = buf_add_view(out, view_from(text, pos));
	if (rc != 0)
		buf_truncate(out, before_n);
	return rc;
}

void
jsplice_object_begin(struct jsplice_object *o, struct jsplice *edits,
    const struct jscan *s)
{
	*o = (struct jsplice_object){ .edits = edits, .open = s->pos };
}

/*
 * Removes the run of members that go, with one comma for each: behind a
 * member that stays the ones before them, else the ones after them (next is
 * the start of the first that stays, or the run's own end when none does).
 */
static int
end_run(struct jsplice_object *o, size_t next)
{
	size_t from = o->kept_any ? o->kept_end : o->gone_from;
	size_t to = o->kept_any ? o->gone_to : next;

	if (!o->in_run)
		return 0;
	o->in_run = false;
	return jsplice_add(o->edits, from, to - from, VIEW_NONE);
}

int
jsplice_object_member(struct jsplice_object *o, const struct jscan_span *key,
    const struct jscan_span *val, bool gone)
{
	int rc;

	if (gone) {
		if (!o->in_run)
			o->gone_from = key->start;
		o->gone_to = val->end;
		o->in_run = true;
		return 0;
	}
	rc = end_run(o, key->start);
	if (rc != 0)
		return rc;
	o->kept_any = true;
	o->kept_end = val->end;
	return 0;
}

int
jsplice_object_end(struct jsplice_object *o, const struct jscan *s,
    struct view put)
{
	int rc;

	if (s->err != 0)
		return s->err;
	rc = end_run(o, o->gone_to);
	if (rc != 0 || put.n == 0)
		return rc;
	if (!o->kept_any)
		return jsplice_add(o->edits, o->open, 0, put);
	rc = jsplice_add(o->edits, o->kept_end, 0, VIEW(","));
	return rc != 0 ? rc : jsplice_add(o->edits, o->kept_end, 0, put);
}
