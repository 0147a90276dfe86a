/*
 * The envelope of JSON-RPC: whatever is read lies within the text, and a
 * response made with its id reads back with the same.
 */
#include "json/jrpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
check_span(const struct jrpc *m, const struct jscan_span *s)
{
	err_assert(s->kind == JSCAN_NONE ||
	    (s->start < s->end && s->end <= m->text.n &&
		jscan_valid(jrpc_raw(m, s), 0) == SP_OK));
}

static void
check_answer(const struct jrpc *m)
{
	struct buf out = BUF_INIT(m->text.n * 8 + 1024);
	struct view id = jrpc_raw(m, &m->id);
	struct jrpc got;

	err_assert(jrpc_put_error(&out, id, JRPC_INTERNAL_ERROR, VIEW("x\"\n"),
		       VIEW("null")) == SP_OK);
	err_assert(jrpc_read(buf_view(&out), &got) == SP_OK);
	err_assert(got.kind == JRPC_RESPONSE && got.error.kind != JSCAN_NONE);
	err_assert(
	    view_eq(jrpc_raw(&got, &got.id), id.n > 0 ? id : VIEW("null")));
	buf_clear(&out);
}

static void
check_message(struct view text)
{
	struct buf name = BUF_INIT(text.n * 3 + 16);
	struct jscan_span v;
	struct jrpc m;
	int rc = jrpc_read(text, &m);

	err_assert((rc == SP_OK) == (m.kind != JRPC_INVALID));
	if (rc != SP_OK && rc != SP_E_PROTO)
		return;
	check_span(&m, &m.id);
	check_span(&m, &m.method);
	check_span(&m, &m.params);
	check_span(&m, &m.result);
	check_span(&m, &m.error);
	if (jrpc_member(&m, &m.params, VIEW("name"), &v) == 1) {
		check_span(&m, &v);
		(void)!jrpc_string(&m, &v, &name);
	}
	if (m.kind == JRPC_REQUEST)
		check_answer(&m);
	buf_clear(&name);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct view text = view_of(data, n), item;
	struct jrpc_batch b;
	size_t i = 0;

	check_message(text);
	if (jrpc_batch_open(&b, text) != SP_OK)
		return 0;
	while (jrpc_batch_next(&b, &item) == 1) {
		check_message(item);
		i++;
	}
	err_assert(i == b.n);
	return 0;
}
