#include "config.h"

#include <stdlib.h>

#include "base/mem.h"
#include "recorder/toolcall.h"

/* One element of a list, taken apart before it is known whose it is. */
struct piece {
	struct jscan_span id, type, name;
	struct jscan args; /* at the value of "arguments" */
	struct jscan extras; /* at the start of the element */
	bool has_args, has_extras;
	int64_t index;
	size_t pos;
};

enum { CALL_INDEX, CALL_ID, CALL_TYPE, CALL_FUNCTION };
static const struct view call_keys[] = { { "index", 5 }, { "id", 2 },
	{ "type", 4 }, { "function", 8 }, { NULL, 0 } };
enum { FN_NAME, FN_ARGUMENTS };
static const struct view fn_keys[] = { { "name", 4 }, { "arguments", 9 },
	{ NULL, 0 } };

static int
piece_function(struct jscan *s, struct piece *p)
{
	struct jscan_span key, v;
	int rc;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_member(s, &key)) == 1) {
		switch (accum_key(s, &key, fn_keys)) {
		case FN_NAME:
			rc = jscan_skip(s, &p->name);
			break;
		case FN_ARGUMENTS:
			(void)jscan_peek(s);
			p->args = *s;
			p->has_args = true;
			rc = jscan_skip(s, &v);
			break;
		default:
			p->has_extras = true;
			rc = jscan_skip(s, &v);
			break;
		}
		if (rc != 0)
			return rc;
	}
	return rc;
}

static int
piece_member(struct jscan *s, const struct jscan_span *key, struct piece *p)
{
	struct jscan_span v;
	int rc;

	switch (accum_key(s, key, call_keys)) {
	case CALL_INDEX:
		rc = jscan_skip(s, &v);
		if (rc == 0 &&
		    (v.kind != JSCAN_NUMBER ||
			jscan_i64(s, &v, &p->index) != 0 || p->index < 0))
			p->index = -1;
		return rc;
	case CALL_ID:
		return jscan_skip(s, &p->id);
	case CALL_TYPE:
		return jscan_skip(s, &p->type);
	case CALL_FUNCTION:
		return piece_function(s, p);
	default:
		p->has_extras = true;
		return jscan_skip(s, &v);
	}
}

/* Takes the element at the cursor apart: 1, 0 when it is no object. */
static int
piece_scan(struct jscan *s, struct piece *p)
{
	struct jscan_span key, v;
	int rc;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, &v);
	p->extras = *s;
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_member(s, &key)) == 1) {
		rc = piece_member(s, &key, p);
		if (rc != 0)
			return rc;
	}
	return rc == 0 ? 1 : rc;
}

/* The text of a string that says something, or an empty view. */
static struct view
said(const struct jscan *s, const struct jscan_span *v)
{
	return v->kind == JSCAN_STRING ? jscan_text(s, v) : VIEW_NONE;
}

static struct toolcall *
by_index(struct toolcall_list *l, int64_t index)
{
	size_t i;

	for (i = l->n; i-- > 0;)
		if (l->v[i].index == index)
			return &l->v[i];
	return NULL;
}

static struct toolcall *
by_id_or_pos(struct toolcall_list *l, struct view id, size_t pos)
{
	size_t i;

	for (i = l->n; id.n > 0 && i-- > 0;)
		if (view_eq(buf_view(&l->v[i].id.raw), id))
			return &l->v[i];
	for (i = l->n; i-- > 0;)
		if (l->v[i].pos == pos)
			return &l->v[i];
	return NULL;
}

static struct toolcall *
call_new(struct accum_hold *h, struct toolcall_list *l, const struct piece *p)
{
	struct toolcall *v;

	if (l->n >= TOOLCALL_MAX || !accum_hold_take(h, sizeof(*v))) {
		h->over = true;
		return NULL;
	}
	v = mem_reallocarray(l->v, l->n + 1, sizeof(*v));
	if (v == NULL) {
		h->over = true;
		return NULL;
	}
	l->v = v;
	v += l->n++;
	*v = (struct toolcall){ .index = p->index, .pos = p->pos };
	return v;
}

/* The call that the piece belongs to; NULL: no room for another. */
static struct toolcall *
call_for(struct accum_hold *h, struct toolcall_list *l, const struct jscan *s,
    const struct piece *p, bool whole)
{
	struct view id = said(s, &p->id), name = said(s, &p->name);
	struct toolcall *c;

	if (whole)
		return call_new(h, l, p);
	if (p->index >= 0)
		c = by_index(l, p->index);
	else
		c = by_id_or_pos(l, id, p->pos);
	if (c == NULL)
		return call_new(h, l, p);
	/* two elements of one list, without an index, are two calls */
	if (p->index < 0 && c->touched == l->lists && name.n > 0)
		return call_new(h, l, p);
	if (id.n > 0 && name.n > 0 && !accum_text_empty(&c->id) &&
	    !view_eq(buf_view(&c->id.raw), id))
		return call_new(h, l, p);
	return c;
}

static void
add_name(struct accum_hold *h, struct toolcall *c, struct view name)
{
	if (name.n == 0 || view_eq(buf_view(&c->name.raw), name))
		return;
	if (accum_text_empty(&c->name) || accum_text_empty(&c->args))
		accum_text_add(h, &c->name, name);
	else
		c->conflict = true;
}

static int
add_args(struct accum_hold *h, struct toolcall *c, const struct piece *p)
{
	struct jscan s = p->args;
	struct jscan_span v;
	int rc = jscan_skip(&s, &v);

	if (rc != 0 || v.kind == JSCAN_NULL)
		return rc;
	if (v.kind == JSCAN_STRING)
		accum_text_add(h, &c->args, jscan_text(&s, &v));
	else
		accum_text_literal(h, &c->args, jscan_raw(&s, &v));
	return 0;
}

static int
add_extras(struct accum_hold *h, struct accum_extras *x, struct jscan *s,
    const struct view *known, struct toolcall *c)
{
	struct jscan_span key, v;
	int rc = jscan_enter(s), k;

	if (rc != 0)
		return rc;
	while ((rc = jscan_member(s, &key)) == 1) {
		k = accum_key(s, &key, known);
		if (k < 0)
			rc = accum_extras_scan(h, x, s, &key);
		else if (c != NULL && k == CALL_FUNCTION &&
		    jscan_peek(s) == JSCAN_OBJECT)
			rc = add_extras(h, &c->fn_extra, s, fn_keys, NULL);
		else
			rc = jscan_skip(s, &v);
		if (rc != 0)
			return rc;
	}
	return rc;
}

static int
piece_add(struct accum_hold *h, struct toolcall_list *l, const struct jscan *s,
    struct piece *p, bool whole)
{
	struct toolcall *c = call_for(h, l, s, p, whole);
	struct view v;
	int rc = 0;

	if (c == NULL)
		return 0;
	c->touched = l->lists;
	if (c->index < 0)
		c->index = p->index;
	v = said(s, &p->id);
	if (v.n > 0 && accum_text_empty(&c->id))
		accum_text_add(h, &c->id, v);
	v = said(s, &p->type);
	if (v.n > 0 && accum_text_empty(&c->type))
		accum_text_add(h, &c->type, v);
	add_name(h, c, said(s, &p->name));
	if (p->has_args)
		rc = add_args(h, c, p);
	if (rc == 0 && p->has_extras)
		rc = add_extras(h, &c->extra, &p->extras, call_keys, c);
	return rc;
}

int
toolcall_scan(struct accum_hold *h, struct toolcall_list *l, struct jscan *s,
    bool whole)
{
	struct jscan_span v;
	struct piece p;
	size_t pos;
	int rc;

	if (jscan_peek(s) != JSCAN_ARRAY)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	l->lists++;
	for (pos = 0; (rc = jscan_element(s)) == 1; pos++) {
		p = (struct piece){ .index = -1, .pos = pos };
		rc = piece_scan(s, &p);
		if (rc == 1)
			rc = piece_add(h, l, s, &p, whole);
		if (rc != 0)
			return rc;
	}
	return rc;
}

/* In the order of the indices; the same one: as they came. */
static void
sort_calls(struct toolcall_list *l)
{
	struct toolcall tmp;
	size_t i, k;

	for (i = 0; i < l->n; i++)
		if (l->v[i].index < 0)
			return;
	for (i = 1; i < l->n; i++) {
		tmp = l->v[i];
		for (k = i; k > 0 && l->v[k - 1].index > tmp.index; k--)
			l->v[k] = l->v[k - 1];
		l->v[k] = tmp;
	}
}

static void
call_write(struct toolcall *c, struct jwrite *w)
{
	jwrite_object(w);
	jwrite_key(w, "id");
	if (c->id.seen)
		accum_text_write(&c->id, w);
	else
		jwrite_null(w);
	jwrite_key(w, "type");
	if (c->type.seen)
		accum_text_write(&c->type, w);
	else
		jwrite_cstr(w, "function");
	jwrite_key(w, "function");
	jwrite_object(w);
	jwrite_key(w, "name");
	accum_text_write(&c->name, w);
	jwrite_key(w, "arguments");
	accum_text_write(&c->args, w);
	accum_extras_write(&c->fn_extra, w);
	jwrite_end_object(w);
	accum_extras_write(&c->extra, w);
	jwrite_end_object(w);
}

void
toolcall_write(struct toolcall_list *l, struct jwrite *w)
{
	size_t i;

	sort_calls(l);
	jwrite_array(w);
	for (i = 0; i < l->n; i++)
		call_write(&l->v[i], w);
	jwrite_end_array(w);
}

int
toolcall_args_valid(const struct toolcall *c)
{
	struct buf text = BUF_INIT(SIZE_MAX / 4);
	int valid = -1;

	if (accum_text_empty(&c->args))
		return -1;
	if (accum_text_decode(&c->args, &text, NULL) == 0)
		valid = jscan_valid(buf_view(&text), 0) == 0;
	buf_clear(&text);
	return valid;
}

void
toolcall_clear(struct toolcall_list *l)
{
	size_t i;

	for (i = 0; i < l->n; i++) {
		accum_text_clear(&l->v[i].id);
		accum_text_clear(&l->v[i].type);
		accum_text_clear(&l->v[i].name);
		accum_text_clear(&l->v[i].args);
		accum_extras_clear(&l->v[i].extra);
		accum_extras_clear(&l->v[i].fn_extra);
	}
	mem_free(l->v);
	*l = (struct toolcall_list){ 0 };
}
