/* The envelope of JSON-RPC 2.0. */
#include "json/jrpc.h"

#include "base/utf8.h"
#include "json/jwrite.h"

enum { JRPC_MEMBERS = 6, JRPC_NAME_MAX = 64 };

/* What has been seen of the members, by their place in the table. */
struct jrpc_seen {
	struct jscan_span v[JRPC_MEMBERS];
	bool strange;
};

static const struct view jrpc_names[JRPC_MEMBERS] = {
	VIEW_INIT("jsonrpc"),
	VIEW_INIT("id"),
	VIEW_INIT("method"),
	VIEW_INIT("params"),
	VIEW_INIT("result"),
	VIEW_INIT("error"),
};

static void
jrpc_see(struct jrpc_seen *seen, const struct jscan *s,
    const struct jscan_span *key, const struct jscan_span *val)
{
	size_t i;

	for (i = 0; i < JRPC_MEMBERS; i++)
		if (jscan_is(s, key, jrpc_names[i]))
			break;
	if (i == JRPC_MEMBERS || seen->v[i].kind != JSCAN_NONE)
		seen->strange = true;
	if (i < JRPC_MEMBERS)
		seen->v[i] = *val;
}

/* The parameters, and where their members stand. */
static int
jrpc_scan_params(struct jscan *s, struct jscan_span *val, struct jrpc *out)
{
	struct jrpc_param p;
	int rc;

	out->param_n = 0;
	out->more = false;
	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, val);
	/* white space was passed by peeking */
	*val = (struct jscan_span){ .kind = JSCAN_OBJECT, .start = s->pos };
	rc = jscan_enter(s);
	while (rc == SP_OK && (rc = jscan_member(s, &p.key)) == 1) {
		rc = jscan_skip(s, &p.val);
		if (out->param_n < JRPC_PARAMS_MAX)
			out->param[out->param_n++] = p;
		else
			out->more = true;
	}
	val->end = s->pos;
	return rc;
}

/*
 * All members of the object, in the one pass over it that there is: the
 * grammar is seen to on the way.
 */
static int
jrpc_scan(struct view text, struct jrpc_seen *seen, struct jrpc *out)
{
	struct jscan_span key, val;
	struct jscan s;
	int rc = SP_OK;

	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT) {
		seen->strange = true;
		rc = jscan_skip(&s, NULL);
	} else {
		rc = jscan_enter(&s);
		while (rc == SP_OK && jscan_member(&s, &key) == 1) {
			rc = jscan_is(&s, &key, VIEW("params"))
			    ? jrpc_scan_params(&s, &val, out)
			    : jscan_skip(&s, &val);
			if (rc == SP_OK)
				jrpc_see(seen, &s, &key, &val);
		}
	}
	if (rc == SP_OK)
		rc = jscan_finish(&s);
	/* without the mark all of it is ASCII */
	if (rc == SP_OK && s.loose && !utf8_valid(text))
		rc = SP_E_SYNTAX;
	return rc;
}

/* s4: a string, an integer, or null, which is better not used. */
static bool
jrpc_is_id(const struct jscan *s, const struct jscan_span *v)
{
	struct view raw = jscan_raw(s, v);
	size_t i;

	if (v->kind == JSCAN_STRING || v->kind == JSCAN_NULL)
		return true;
	if (v->kind != JSCAN_NUMBER)
		return false;
	for (i = 0; i < raw.n; i++)
		if (strchr(".eE", raw.p[i]) != NULL)
			return false;
	return true;
}

static enum jrpc_kind
jrpc_kind_of(const struct jrpc *m)
{
	bool result = m->result.kind != JSCAN_NONE;
	bool error = m->error.kind != JSCAN_NONE;

	if (m->method.kind == JSCAN_STRING && !result && !error)
		return m->id.kind != JSCAN_NONE ? JRPC_REQUEST
						: JRPC_NOTIFICATION;
	if (m->method.kind == JSCAN_NONE && m->params.kind == JSCAN_NONE &&
	    m->id.kind != JSCAN_NONE && result != error)
		return JRPC_RESPONSE;
	return JRPC_INVALID;
}

int
jrpc_read(struct view text, struct jrpc *out)
{
	struct jrpc_seen seen = { .strange = false };
	struct jscan s;
	bool good;
	int rc;

	*out = (struct jrpc){ .text = text };
	rc = jrpc_scan(text, &seen, out);
	if (rc != SP_OK) {
		*out = (struct jrpc){ .text = text };
		return rc;
	}
	jscan_init(&s, text, 0);
	good = !seen.strange && jscan_is(&s, &seen.v[0], VIEW("2.0"));
	if (seen.v[1].kind != JSCAN_NONE && !jrpc_is_id(&s, &seen.v[1]))
		good = false;
	else
		out->id = seen.v[1];
	if (seen.v[2].kind == JSCAN_STRING)
		out->method = seen.v[2];
	else if (seen.v[2].kind != JSCAN_NONE)
		good = false;
	if (seen.v[3].kind == JSCAN_OBJECT || seen.v[3].kind == JSCAN_ARRAY)
		out->params = seen.v[3];
	else if (seen.v[3].kind != JSCAN_NONE)
		good = false;
	out->result = seen.v[4];
	if (seen.v[5].kind == JSCAN_OBJECT)
		out->error = seen.v[5];
	else if (seen.v[5].kind != JSCAN_NONE)
		good = false;
	out->kind = good ? jrpc_kind_of(out) : JRPC_INVALID;
	return out->kind != JRPC_INVALID ? SP_OK : SP_E_PROTO;
}

bool
jrpc_is(const struct jrpc *m, struct view method)
{
	struct jscan s;

	jscan_init(&s, m->text, 0);
	return jscan_is(&s, &m->method, method);
}

/* The key is the name but for the case of its ASCII letters. */
static bool
jrpc_near(const struct jscan *s, const struct jscan_span *key, struct view name)
{
	struct buf b = BUF_INIT(JRPC_NAME_MAX);
	bool near;

	if (!key->escaped)
		return view_eq_nocase(jscan_text(s, key), name);
	/* longer ones, with six bytes a character at most, are none of ours */
	if (jscan_text(s, key).n > JRPC_NAME_MAX * 6)
		return false;
	near = jscan_decode(s, key, &b, NULL) == SP_OK &&
	    view_eq_nocase(buf_view(&b), name);
	buf_clear(&b);
	return near;
}

/* The same of the parameters, which were looked at when they were read. */
static int
jrpc_param(const struct jrpc *m, struct view name, struct jscan_span *out)
{
	struct jscan s;
	unsigned i;
	int found = 0;

	jscan_init(&s, m->text, 0);
	for (i = 0; i < m->param_n; i++) {
		if (!jrpc_near(&s, &m->param[i].key, name))
			continue;
		if (found == 1 || !jscan_is(&s, &m->param[i].key, name))
			return SP_E_PROTO;
		found = 1;
		*out = m->param[i].val;
	}
	return found;
}

bool
jrpc_has_param(const struct jrpc *m, struct view name)
{
	struct jscan_span v;

	return jrpc_member(m, &m->params, name, &v) != 0;
}

int
jrpc_member(const struct jrpc *m, const struct jscan_span *in, struct view name,
    struct jscan_span *out)
{
	struct jscan_span key, val;
	struct jscan s;
	int found = 0;

	*out = (struct jscan_span){ .kind = JSCAN_NONE };
	if (in->kind != JSCAN_OBJECT)
		return 0;
	if (in == &m->params && !m->more)
		return jrpc_param(m, name, out);
	jscan_init(&s, view_sub(m->text, 0, in->end), 0);
	s.pos = in->start;
	if (jscan_enter(&s) != SP_OK)
		return SP_E_PROTO;
	/* the grammar was seen to when the message was read */
	while (jscan_member(&s, &key) == 1 && jscan_hop(&s, &val) == SP_OK) {
		if (!jrpc_near(&s, &key, name))
			continue;
		if (found == 1 || !jscan_is(&s, &key, name))
			return SP_E_PROTO;
		found = 1;
		*out = val;
	}
	return s.err == SP_OK ? found : SP_E_PROTO;
}

int
jrpc_string(const struct jrpc *m, const struct jscan_span *s, struct buf *out)
{
	size_t before = buf_len(out), replaced = 0;
	struct jscan scan;
	int rc;

	jscan_init(&scan, m->text, 0);
	rc = jscan_decode(&scan, s, out, &replaced);
	if (rc == SP_OK && replaced > 0) {
		buf_truncate(out, before);
		rc = SP_E_SYNTAX;
	}
	return rc;
}

bool
jrpc_same_id(struct view a, struct view b)
{
	struct jrpc ma = { .text = a }, mb = { .text = b };
	struct buf ta = BUF_INIT(a.n + 1), tb = BUF_INIT(b.n + 1);
	struct jscan_span va, vb;
	struct jscan sa, sb;
	bool same = view_eq(a, b);

	jscan_init(&sa, a, 0);
	jscan_init(&sb, b, 0);
	if (!same && jscan_peek(&sa) == JSCAN_STRING &&
	    jscan_peek(&sb) == JSCAN_STRING && jscan_skip(&sa, &va) == SP_OK &&
	    jscan_skip(&sb, &vb) == SP_OK &&
	    jrpc_string(&ma, &va, &ta) == SP_OK &&
	    jrpc_string(&mb, &vb, &tb) == SP_OK)
		same = view_eq(buf_view(&ta), buf_view(&tb));
	buf_clear(&ta);
	buf_clear(&tb);
	return same;
}

/* ---- batches ---------------------------------------------------------------- */

int
jrpc_batch_open(struct jrpc_batch *b, struct view text)
{
	struct jscan s;
	int rc;

	b->n = 0;
	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY)
		return SP_E_STATE;
	rc = jscan_valid(text, 0);
	if (rc != SP_OK)
		return rc;
	if (jscan_enter(&s) != SP_OK)
		return SP_E_SYNTAX;
	b->s = s;
	while (jscan_element(&s) == 1 && jscan_hop(&s, NULL) == SP_OK)
		b->n++;
	return SP_OK;
}

int
jrpc_batch_next(struct jrpc_batch *b, struct view *item)
{
	struct jscan_span v;

	if (jscan_element(&b->s) != 1 || jscan_hop(&b->s, &v) != SP_OK)
		return 0;
	*item = jscan_raw(&b->s, &v);
	return 1;
}

/* ---- responses -------------------------------------------------------------- */

static int
jrpc_put(struct buf *out, struct view id, const char *key, struct view value)
{
	size_t before = buf_len(out);
	int rc = buf_add_str(out, "{\"jsonrpc\":\"2.0\",\"id\":");

	if (rc == SP_OK)
		rc = buf_add_view(out, id.n > 0 ? id : VIEW("null"));
	if (rc == SP_OK)
		rc = buf_printf(out, ",\"%s\":", key);
	if (rc == SP_OK)
		rc = buf_add_view(out, value);
	if (rc == SP_OK)
		rc = buf_add_char(out, '}');
	if (rc != SP_OK)
		buf_truncate(out, before);
	return rc;
}

int
jrpc_put_result(struct buf *out, struct view id, struct view result)
{
	return jrpc_put(out, id, "result", result);
}

int
jrpc_put_error(struct buf *out, struct view id, int code, struct view message,
    struct view data)
{
	struct buf error = BUF_INIT(message.n * 6 + data.n + 128);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &error);
	jwrite_object(&w);
	jwrite_key(&w, "code");
	jwrite_i64(&w, code);
	jwrite_key(&w, "message");
	jwrite_string(&w, message);
	if (data.n > 0) {
		jwrite_key(&w, "data");
		jwrite_raw(&w, data);
	}
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		rc = jrpc_put(out, id, "error", buf_view(&error));
	buf_clear(&error);
	return rc;
}
