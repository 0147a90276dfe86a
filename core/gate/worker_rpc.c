#include "config.h"

#include "gate/worker_rpc.h"

#include "base/utf8.h"
#include "json/jsplice.h"

static int
spans_add(struct worker_rpc_spans *l, const struct jscan_span *v)
{
	if (l->n == WORKER_RPC_SAME)
		return SP_E_SYNTAX;
	l->v[l->n++] = *v;
	return SP_OK;
}

static int
skip_value(struct worker_rpc *r, struct jscan_span *v)
{
	return r->known ? jscan_hop(&r->s, v) : jscan_skip(&r->s, v);
}

static int
read_meta(struct worker_rpc *r)
{
	struct jscan_span key, v;
	int rc, more;

	if (jscan_peek(&r->s) != JSCAN_OBJECT)
		return skip_value(r, NULL);
	rc = jscan_enter(&r->s);
	while (rc == SP_OK && (more = jscan_member(&r->s, &key)) != 0) {
		rc = more < 0 ? more : skip_value(r, &v);
		if (rc == SP_OK && jscan_is(&r->s, &key, VIEW("progressToken")))
			rc = spans_add(&r->meta_token, &v);
	}
	return rc;
}

static int
read_param(struct worker_rpc *r, const struct jscan_span *key)
{
	struct jscan_span v;
	int rc;

	if (jscan_is(&r->s, key, VIEW("_meta")))
		return read_meta(r);
	rc = skip_value(r, &v);
	if (rc == SP_OK && jscan_is(&r->s, key, VIEW("progressToken")))
		rc = spans_add(&r->token, &v);
	else if (rc == SP_OK && jscan_is(&r->s, key, VIEW("requestId")))
		r->request_id = v;
	return rc;
}

static int
read_params(struct worker_rpc *r)
{
	struct jscan_span key;
	int rc, more;

	r->has_params = true;
	r->params.kind = jscan_peek(&r->s);
	if (r->params.kind != JSCAN_OBJECT)
		return skip_value(r, &r->params);
	/* white space was passed by peeking */
	r->params.start = r->s.pos;
	rc = jscan_enter(&r->s);
	while (rc == SP_OK && (more = jscan_member(&r->s, &key)) != 0)
		rc = more < 0 ? more : read_param(r, &key);
	r->params.end = r->s.pos;
	return rc;
}

static int
read_member(struct worker_rpc *r, const struct jscan_span *key)
{
	struct jscan_span v;
	int rc;

	if (jscan_is(&r->s, key, VIEW("params")))
		return read_params(r);
	rc = skip_value(r, &v);
	if (rc != SP_OK)
		return rc;
	if (jscan_is(&r->s, key, VIEW("id")))
		return spans_add(&r->id, &v);
	if (jscan_is(&r->s, key, VIEW("jsonrpc"))) {
		r->version = jscan_is(&r->s, &v, VIEW("2.0"));
	} else if (jscan_is(&r->s, key, VIEW("method"))) {
		r->has_method = true;
		r->method = v;
	} else if (jscan_is(&r->s, key, VIEW("result"))) {
		r->has_result = true;
		r->result = v;
	} else if (jscan_is(&r->s, key, VIEW("error"))) {
		r->has_error = true;
		r->error = v;
	}
	return SP_OK;
}

/* r is zeroed, but for `known`. */
static int
read_all(struct view text, struct worker_rpc *r)
{
	struct jscan_span key;
	int rc, more;

	jscan_init(&r->s, text, 0);
	if (jscan_peek(&r->s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_enter(&r->s);
	r->open = r->s.pos;
	r->empty = true;
	while (rc == SP_OK && (more = jscan_member(&r->s, &key)) != 0) {
		r->empty = false;
		rc = more < 0 ? more : read_member(r, &key);
	}
	if (rc == SP_OK)
		rc = jscan_finish(&r->s);
	/* without the mark all of it is ASCII */
	if (rc == SP_OK && !r->known && r->s.loose && !utf8_valid(text))
		rc = SP_E_SYNTAX;
	return rc == SP_OK ? SP_OK : SP_E_SYNTAX;
}

int
worker_rpc_read(struct view text, struct worker_rpc *r)
{
	memset(r, 0, sizeof(*r));
	return read_all(text, r);
}

int
worker_rpc_reread(struct view text, struct worker_rpc *r)
{
	memset(r, 0, sizeof(*r));
	r->known = true;
	return read_all(text, r);
}

struct view
worker_rpc_raw(const struct worker_rpc *r, const struct worker_rpc_spans *v)
{
	return v->n > 0 ? jscan_raw(&r->s, &v->v[v->n - 1]) : VIEW_NONE;
}

static int
put_all(struct jsplice *e, const struct worker_rpc_spans *l,
    const struct view *put)
{
	unsigned i;
	int rc = SP_OK;

	for (i = 0; i < l->n && put != NULL && rc == SP_OK; i++)
		rc = jsplice_add(e, l->v[i].start, l->v[i].end - l->v[i].start,
		    *put);
	return rc;
}

/* "id":ID and a comma, where there was none. */
static int
put_new_id(const struct worker_rpc *r, struct jsplice *e, const struct view *id)
{
	int rc = jsplice_add(e, r->open, 0, VIEW("\"id\":"));

	if (rc == SP_OK)
		rc = jsplice_add(e, r->open, 0, *id);
	if (rc == SP_OK && !r->empty)
		rc = jsplice_add(e, r->open, 0, VIEW(","));
	return rc;
}

int
worker_rpc_put(const struct worker_rpc *r, const struct view *id,
    const struct view *meta_token, const struct view *token, struct buf *out)
{
	struct jsplice e;
	int rc;

	jsplice_init(&e, 4 * WORKER_RPC_SAME);
	rc = put_all(&e, &r->id, id);
	if (rc == SP_OK && id != NULL && r->id.n == 0)
		rc = put_new_id(r, &e, id);
	if (rc == SP_OK)
		rc = put_all(&e, &r->meta_token, meta_token);
	if (rc == SP_OK)
		rc = put_all(&e, &r->token, token);
	if (rc == SP_OK)
		rc = jsplice_apply(&e, view_of(r->s.p, r->s.n), out);
	jsplice_clear(&e);
	return rc;
}

int
worker_rpc_object(struct view text)
{
	struct jscan s;
	int rc;

	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_skip(&s, NULL);
	if (rc == SP_OK)
		rc = jscan_finish(&s);
	if (rc == SP_OK && s.loose && !utf8_valid(text))
		rc = SP_E_SYNTAX;
	return rc == SP_OK ? SP_OK : SP_E_SYNTAX;
}
