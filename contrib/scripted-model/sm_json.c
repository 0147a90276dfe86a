#include "sm_json.h"

#include <stdio.h>

#include <yajl/yajl_parse.h>

#include "base/num.h"

enum { SM_JSON_DEPTH = 128 };

struct builder {
	struct arena *a;
	struct sm_json *root;
	struct sm_json *at; /* the open container */
	struct view key;
	int depth;
	int err;
};

static struct sm_json *
add(struct builder *b, enum sm_json_type type, const void *p, size_t n)
{
	struct sm_json *v = arena_zalloc(b->a, sizeof(*v));

	if (v == NULL || arena_dup(b->a, view_of(p, n), &v->text) != 0) {
		b->err = SP_E_NOMEM;
		return NULL;
	}
	v->type = type;
	v->key = b->key;
	v->up = b->at;
	b->key = VIEW_NONE;
	if (b->at == NULL) {
		b->root = v;
	} else if (b->at->last == NULL) {
		b->at->child = b->at->last = v;
	} else {
		b->at->last->next = v;
		b->at->last = v;
	}
	return v;
}

static int
on_null(void *ctx)
{
	return add(ctx, SM_JSON_NULL, "null", 4) != NULL;
}

static int
on_bool(void *ctx, int val)
{
	return add(ctx, SM_JSON_BOOL, val ? "true" : "false", val ? 4 : 5) !=
	    NULL;
}

static int
on_number(void *ctx, const char *p, size_t n)
{
	return add(ctx, SM_JSON_NUMBER, p, n) != NULL;
}

static int
on_string(void *ctx, const unsigned char *p, size_t n)
{
	return add(ctx, SM_JSON_STRING, p, n) != NULL;
}

static int
open_container(struct builder *b, enum sm_json_type type)
{
	struct sm_json *v;

	if (++b->depth > SM_JSON_DEPTH) {
		b->err = SP_E_SYNTAX;
		return 0;
	}
	v = add(b, type, "", 0);
	if (v == NULL)
		return 0;
	b->at = v;
	return 1;
}

static int
on_map(void *ctx)
{
	return open_container(ctx, SM_JSON_OBJECT);
}

static int
on_array(void *ctx)
{
	return open_container(ctx, SM_JSON_ARRAY);
}

static int
on_end(void *ctx)
{
	struct builder *b = ctx;

	b->depth--;
	b->at = b->at->up;
	return 1;
}

static int
on_key(void *ctx, const unsigned char *p, size_t n)
{
	struct builder *b = ctx;

	b->err = arena_dup(b->a, view_of(p, n), &b->key);
	return b->err == 0;
}

static const yajl_callbacks callbacks = {
	.yajl_null = on_null,
	.yajl_boolean = on_bool,
	.yajl_number = on_number,
	.yajl_string = on_string,
	.yajl_start_map = on_map,
	.yajl_map_key = on_key,
	.yajl_end_map = on_end,
	.yajl_start_array = on_array,
	.yajl_end_array = on_end,
};

/* yajl's own text has several lines; the first names the fault. */
static void
explain(yajl_handle y, struct view text, char *why, size_t why_n)
{
	unsigned char *s;

	if (why == NULL || why_n == 0)
		return;
	s = yajl_get_error(y, 0, (const unsigned char *)text.p, text.n);
	if (s == NULL) {
		why[0] = '\0';
		return;
	}
	snprintf(why, why_n, "%.*s (at byte %zu)",
	    (int)strcspn((const char *)s, "\n"), (const char *)s,
	    yajl_get_bytes_consumed(y));
	yajl_free_error(y, s);
}

int
sm_json_parse(struct arena *a, struct view text, struct sm_json **out,
    char *why, size_t why_n)
{
	struct builder b = { .a = a };
	/* Its own allocator: yajl does not survive a failure of ours. */
	yajl_handle y = yajl_alloc(&callbacks, NULL, &b);
	yajl_status st;

	if (y == NULL)
		return SP_E_NOMEM;
	yajl_config(y, yajl_dont_validate_strings, 1);
	st = yajl_parse(y, (const unsigned char *)(text.p ? text.p : ""),
	    text.n);
	if (st == yajl_status_ok)
		st = yajl_complete_parse(y);
	if (st != yajl_status_ok && b.err == 0)
		b.err = SP_E_SYNTAX;
	if (b.err == 0 && b.root == NULL)
		b.err = SP_E_SYNTAX;
	if (b.err == SP_E_SYNTAX)
		explain(y, text, why, why_n);
	yajl_free(y);
	*out = b.root;
	return b.err;
}

const struct sm_json *
sm_json_get(const struct sm_json *o, const char *key)
{
	const struct sm_json *v, *found = NULL;
	struct view k = view_str(key);

	if (o == NULL || o->type != SM_JSON_OBJECT)
		return NULL;
	for (v = o->child; v != NULL; v = v->next)
		if (view_eq(v->key, k))
			found = v;
	return found;
}

bool
sm_json_is(const struct sm_json *v, enum sm_json_type type)
{
	return v != NULL && v->type == type;
}

struct view
sm_json_string(const struct sm_json *o, const char *key)
{
	const struct sm_json *v = sm_json_get(o, key);

	return sm_json_is(v, SM_JSON_STRING) ? v->text : VIEW_NONE;
}

bool
sm_json_true(const struct sm_json *o, const char *key, bool otherwise)
{
	const struct sm_json *v = sm_json_get(o, key);

	return sm_json_is(v, SM_JSON_BOOL) ? v->text.p[0] == 't' : otherwise;
}

int64_t
sm_json_int(const struct sm_json *o, const char *key, int64_t otherwise)
{
	const struct sm_json *v = sm_json_get(o, key);
	int64_t n;

	if (!sm_json_is(v, SM_JSON_NUMBER) ||
	    num_i64(v->text, INT64_MIN, INT64_MAX, &n) != 0)
		return otherwise;
	return n;
}

double
sm_json_double(const struct sm_json *o, const char *key, double otherwise)
{
	const struct sm_json *v = sm_json_get(o, key);
	double d;

	if (!sm_json_is(v, SM_JSON_NUMBER) || num_double(v->text, &d) != 0)
		return otherwise;
	return d;
}

/* Recursion is bounded by SM_JSON_DEPTH. */
void
sm_json_write(struct sm_out *o, const struct sm_json *v)
{
	const struct sm_json *c;
	bool object = v->type == SM_JSON_OBJECT;

	if (!object && v->type != SM_JSON_ARRAY) {
		if (v->type == SM_JSON_STRING)
			sm_out_quoted(o, v->text);
		else
			sm_out_add(o, v->text);
		return;
	}
	sm_out_str(o, object ? "{" : "[");
	for (c = v->child; c != NULL; c = c->next) {
		if (c != v->child)
			sm_out_str(o, ",");
		if (object) {
			sm_out_quoted(o, c->key);
			sm_out_str(o, ":");
		}
		sm_json_write(o, c);
	}
	sm_out_str(o, object ? "}" : "]");
}
