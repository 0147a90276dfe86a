#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/utf8.h"
#include "recorder/accum.h"

bool
accum_hold_take(struct accum_hold *h, size_t n)
{
	if (h->over || n > h->max || h->used > h->max - n) {
		h->over = true;
		return false;
	}
	h->used += n;
	return true;
}

void
accum_hold_give(struct accum_hold *h, size_t n)
{
	err_assert(n <= h->used);
	h->used -= n;
}

/* Room for n bytes in b, under the turn's bound rather than b's own. */
static bool
room(struct accum_hold *h, struct buf *b, size_t n)
{
	if (!accum_hold_take(h, n))
		return false;
	b->max = SIZE_MAX / 4;
	if (buf_reserve(b, n) == 0)
		return true;
	accum_hold_give(h, n);
	h->over = true;
	return false;
}

static void
put(struct buf *b, struct view v)
{
	if (v.n == 0 || v.p == NULL)
		return;
	memcpy(buf_tail(b), v.p, v.n);
	buf_grow(b, v.n);
}

void
accum_buf_add(struct accum_hold *h, struct buf *b, struct view v)
{
	if (v.n != 0 && room(h, b, v.n))
		put(b, v);
}

void
accum_text_add(struct accum_hold *h, struct accum_text *t, struct view v)
{
	t->seen = true;
	accum_buf_add(h, &t->raw, v);
}

/* The escape of a byte that may not stand in a string, or NULL. */
static const char *
escape_of(unsigned char c, char tmp[8])
{
	static const char hex[] = "0123456789abcdef";

	if (c == '"')
		return "\\\"";
	if (c == '\\')
		return "\\\\";
	if (c >= 0x20)
		return NULL;
	memcpy(tmp, "\\u00", 4);
	tmp[4] = hex[c >> 4];
	tmp[5] = hex[c & 15];
	tmp[6] = '\0';
	return tmp;
}

void
accum_text_literal(struct accum_hold *h, struct accum_text *t, struct view v)
{
	char tmp[8];
	const char *esc;
	size_t i, from = 0;

	t->seen = true;
	for (i = 0; i < v.n; i++) {
		esc = escape_of((unsigned char)v.p[i], tmp);
		if (esc == NULL)
			continue;
		accum_buf_add(h, &t->raw, view_sub(v, from, i - from));
		accum_buf_add(h, &t->raw, view_str(esc));
		from = i + 1;
	}
	accum_buf_add(h, &t->raw, view_from(v, from));
}

void
accum_text_rewind(struct accum_hold *h, struct accum_text *t)
{
	size_t len = buf_len(&t->raw);

	if (len <= t->mark)
		return;
	accum_hold_give(h, len - t->mark);
	buf_truncate(&t->raw, t->mark);
}

void
accum_text_clear(struct accum_text *t)
{
	buf_clear(&t->raw);
	*t = (struct accum_text){ 0 };
}

int
accum_text_decode(const struct accum_text *t, struct buf *out, size_t *replaced)
{
	struct buf quoted = BUF_INIT(SIZE_MAX / 4);
	struct view raw = buf_view(&t->raw);
	struct jscan_span span;
	struct jscan s;
	int rc;

	if (replaced != NULL)
		*replaced = 0;
	if (raw.n == 0 || raw.p == NULL)
		return 0;
	if (memchr(raw.p, '\\', raw.n) == NULL && utf8_valid(raw))
		return buf_add_view(out, raw);
	rc = buf_reserve(&quoted, raw.n + 2);
	if (rc != 0)
		return rc;
	put(&quoted, VIEW("\""));
	put(&quoted, raw);
	put(&quoted, VIEW("\""));
	jscan_init(&s, buf_view(&quoted), 0);
	rc = jscan_skip(&s, &span);
	if (rc == 0)
		rc = jscan_decode(&s, &span, out, replaced);
	buf_clear(&quoted);
	return rc;
}

void
accum_text_write(const struct accum_text *t, struct jwrite *w)
{
	struct buf text = BUF_INIT(SIZE_MAX / 4);
	size_t replaced = 0;
	int rc = accum_text_decode(t, &text, &replaced);

	if (rc != 0 && w->err == 0)
		w->err = rc;
	jwrite_string(w, rc == 0 ? buf_view(&text) : VIEW(""));
	w->replaced += replaced;
	buf_clear(&text);
}

void
accum_list_add(struct accum_hold *h, struct accum_list *l, struct view element,
    bool strict)
{
	l->seen = true;
	l->loose |= !strict;
	if (!room(h, &l->raw, element.n + 1))
		return;
	if (l->n++ > 0)
		put(&l->raw, VIEW(","));
	put(&l->raw, element);
}

int
accum_list_scan(struct accum_hold *h, struct accum_list *l, struct jscan *s)
{
	struct jscan_span v;
	int rc;

	if (jscan_peek(s) != JSCAN_ARRAY)
		return jscan_skip(s, &v);
	l->seen = true;
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_element(s)) == 1) {
		rc = jscan_skip(s, &v);
		if (rc != 0)
			return rc;
		accum_list_add(h, l, jscan_raw(s, &v), false);
	}
	return rc;
}

void
accum_list_write(const struct accum_list *l, struct jwrite *w)
{
	/* each element was scanned when it came */
	jwrite_list(w, buf_view(&l->raw), !l->loose);
}

void
accum_list_clear(struct accum_list *l)
{
	buf_clear(&l->raw);
	*l = (struct accum_list){ 0 };
}

void
accum_ids_add(struct accum_hold *h, struct accum_ids *ids, uint32_t id)
{
	size_t cap;
	uint32_t *v;

	if (!accum_hold_take(h, sizeof(id)))
		return;
	if (ids->n == ids->cap) {
		cap = ids->cap == 0 ? 32 : ids->cap * 2;
		v = mem_reallocarray(ids->v, cap, sizeof(*v));
		if (v == NULL) {
			h->over = true;
			return;
		}
		ids->v = v;
		ids->cap = cap;
	}
	ids->v[ids->n++] = id;
}

int
accum_ids_scan(struct accum_hold *h, struct accum_ids *ids, struct jscan *s)
{
	struct jscan_span v;
	enum jscan_kind kind = jscan_peek(s);
	uint64_t id;
	int rc;

	if (kind != JSCAN_ARRAY) {
		if (kind != JSCAN_NULL)
			ids->bad = true;
		return jscan_skip(s, &v);
	}
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_element(s)) == 1) {
		rc = jscan_skip(s, &v);
		if (rc != 0)
			return rc;
		if (v.kind == JSCAN_NUMBER &&
		    num_u64(jscan_text(s, &v), 0, UINT32_MAX, &id) == 0)
			accum_ids_add(h, ids, (uint32_t)id);
		else
			ids->bad = true;
	}
	return rc;
}

bool
accum_ids_same(const struct accum_ids *a, const struct accum_ids *b)
{
	return a->n == b->n &&
	    (a->n == 0 || memcmp(a->v, b->v, a->n * sizeof(*a->v)) == 0);
}

void
accum_ids_write(const struct accum_ids *ids, struct jwrite *w)
{
	size_t i;

	jwrite_array(w);
	for (i = 0; i < ids->n; i++)
		jwrite_u64(w, ids->v[i]);
	jwrite_end_array(w);
}

void
accum_ids_clear(struct accum_ids *ids)
{
	mem_free(ids->v);
	*ids = (struct accum_ids){ 0 };
}

/* The member of that key: the one there is, or a new one, or NULL. */
static struct accum_member *
member_for(struct accum_hold *h, struct accum_extras *x, const struct jscan *s,
    const struct jscan_span *key)
{
	struct accum_member *v;
	size_t i;

	for (i = 0; i < x->n; i++)
		if (x->v[i].key.mem != NULL &&
		    jscan_is(s, key, buf_view(&x->v[i].key)))
			return &x->v[i];
	if (x->n >= ACCUM_EXTRAS_MAX ||
	    !accum_hold_take(h, sizeof(*v) + (key->end - key->start))) {
		h->over = true;
		return NULL;
	}
	v = mem_reallocarray(x->v, x->n + 1, sizeof(*v));
	if (v == NULL) {
		h->over = true;
		return NULL;
	}
	x->v = v;
	v += x->n;
	buf_init(&v->key, SIZE_MAX / 4);
	buf_init(&v->raw, SIZE_MAX / 4);
	if (jscan_decode(s, key, &v->key, NULL) != 0) {
		buf_clear(&v->key);
		h->over = true;
		return NULL;
	}
	x->n++;
	return v;
}

int
accum_extras_scan(struct accum_hold *h, struct accum_extras *x, struct jscan *s,
    const struct jscan_span *key)
{
	struct accum_member *m;
	struct jscan_span v;
	struct view raw;
	int rc = jscan_skip(s, &v);

	/* (a name of no letters is none) */
	if (rc != 0 || v.kind == JSCAN_NULL || h->over ||
	    jscan_text(s, key).n == 0)
		return rc;
	m = member_for(h, x, s, key);
	raw = jscan_raw(s, &v);
	if (m == NULL || view_eq(buf_view(&m->raw), raw))
		return 0;
	accum_hold_give(h, buf_len(&m->raw));
	buf_reset(&m->raw, SIZE_MAX);
	accum_buf_add(h, &m->raw, raw);
	return 0;
}

static int
by_key(const void *a, const void *b)
{
	struct view x = buf_view(&((const struct accum_member *)a)->key);
	struct view y = buf_view(&((const struct accum_member *)b)->key);
	size_t n = x.n < y.n ? x.n : y.n;
	int c = n > 0 && x.p != NULL && y.p != NULL ? memcmp(x.p, y.p, n) : 0;

	if (c != 0)
		return c;
	return (x.n > y.n) - (x.n < y.n);
}

static void
write_key(struct jwrite *w, struct view key)
{
	char *text = mem_strndup(key.p, key.n);

	if (text == NULL && w->err == 0)
		w->err = SP_E_NOMEM;
	if (text != NULL)
		jwrite_key(w, text);
	mem_free(text);
}

void
accum_extras_write(struct accum_extras *x, struct jwrite *w)
{
	size_t i;

	if (x->n > 1)
		qsort(x->v, x->n, sizeof(*x->v), by_key);
	for (i = 0; i < x->n; i++) {
		/* a name with a NUL inside is no name */
		if (buf_len(&x->v[i].raw) == 0 ||
		    view_find(buf_view(&x->v[i].key), '\0') !=
			buf_len(&x->v[i].key))
			continue;
		write_key(w, buf_view(&x->v[i].key));
		jwrite_span(w, buf_view(&x->v[i].raw));
	}
}

struct view
accum_extras_get(const struct accum_extras *x, struct view key)
{
	size_t i;

	for (i = 0; i < x->n; i++)
		if (view_eq(buf_view(&x->v[i].key), key))
			return buf_view(&x->v[i].raw);
	return VIEW_NONE;
}

void
accum_extras_clear(struct accum_extras *x)
{
	size_t i;

	for (i = 0; i < x->n; i++) {
		buf_clear(&x->v[i].key);
		buf_clear(&x->v[i].raw);
	}
	mem_free(x->v);
	*x = (struct accum_extras){ 0 };
}

int
accum_key(const struct jscan *s, const struct jscan_span *key,
    const struct view *names)
{
	struct view k = jscan_text(s, key);
	int i;

	for (i = 0; names[i].n != 0; i++) {
		if (key->escaped
			? jscan_is(s, key, names[i])
			: k.n == names[i].n && k.p[0] == names[i].p[0] &&
			    memcmp(k.p, names[i].p, k.n) == 0)
			return i;
	}
	return -1;
}
