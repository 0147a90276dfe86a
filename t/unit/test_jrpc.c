/* core/json/jrpc.c: messages, what is none, batches, answers. */
#include "base/mem.h"
#include "json/jrpc.h"
#include "tap.h"

#define R "\"jsonrpc\":\"2.0\","

static const struct {
	const char *text;
	int rc;
	enum jrpc_kind kind;
	const char *id; /* as it stands; NULL: none */
} reads[] = {
	{ "{" R "\"id\":1,\"method\":\"m\"}", 0, JRPC_REQUEST, "1" },
	{ " {\"method\":\"m\" , " R "\"id\":\"a\\n\"} ", 0, JRPC_REQUEST,
	    "\"a\\n\"" },
	{ "{" R "\"id\":null,\"method\":\"m\",\"params\":{}}", 0, JRPC_REQUEST,
	    "null" },
	{ "{" R "\"id\":-7,\"method\":\"m\",\"params\":[]}", 0, JRPC_REQUEST,
	    "-7" },
	{ "{" R "\"method\":\"m\"}", 0, JRPC_NOTIFICATION, NULL },
	{ "{" R "\"id\":1,\"result\":null}", 0, JRPC_RESPONSE, "1" },
	{ "{" R "\"id\":1,\"error\":{}}", 0, JRPC_RESPONSE, "1" },
	{ "{" R "\"m\\u0065thod\":\"m\",\"id\":1}", 0, JRPC_REQUEST, "1" },
	/* JSON, and no message */
	{ "{" R "\"id\":1,\"result\":1,\"error\":{}}", SP_E_PROTO, JRPC_INVALID,
	    "1" },
	{ "{" R "\"result\":1}", SP_E_PROTO, JRPC_INVALID, NULL },
	{ "{" R "\"id\":1,\"error\":7}", SP_E_PROTO, JRPC_INVALID, "1" },
	{ "{\"id\":1,\"method\":\"m\"}", SP_E_PROTO, JRPC_INVALID, "1" },
	{ "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{\"jsonrpc\":2.0,\"id\":1,\"method\":\"m\"}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{" R "\"id\":true,\"method\":\"m\"}", SP_E_PROTO, JRPC_INVALID,
	    NULL },
	{ "{" R "\"id\":1.0,\"method\":\"m\"}", SP_E_PROTO, JRPC_INVALID,
	    NULL },
	{ "{" R "\"id\":1e3,\"method\":\"m\"}", SP_E_PROTO, JRPC_INVALID,
	    NULL },
	{ "{" R "\"id\":{},\"method\":\"m\"}", SP_E_PROTO, JRPC_INVALID, NULL },
	{ "{" R "\"id\":1,\"method\":7}", SP_E_PROTO, JRPC_INVALID, "1" },
	{ "{" R "\"id\":1,\"method\":\"m\",\"params\":null}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{" R "\"id\":1,\"method\":\"m\",\"params\":\"x\"}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{" R "\"id\":1,\"method\":\"m\",\"extra\":1}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{" R "\"id\":1,\"method\":\"m\",\"Method\":\"n\"}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{" R "\"id\":1,\"method\":\"m\",\"method\":\"n\"}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{" R "\"id\":1,\"method\":\"m\",\"\\u006dethod\":\"n\"}", SP_E_PROTO,
	    JRPC_INVALID, "1" },
	{ "{" R "\"id\":1}", SP_E_PROTO, JRPC_INVALID, "1" },
	{ "{}", SP_E_PROTO, JRPC_INVALID, NULL },
	{ "[]", SP_E_PROTO, JRPC_INVALID, NULL },
	{ "\"x\"", SP_E_PROTO, JRPC_INVALID, NULL },
	{ "null", SP_E_PROTO, JRPC_INVALID, NULL },
	/* no JSON */
	{ "", SP_E_SYNTAX, JRPC_INVALID, NULL },
	{ "{", SP_E_SYNTAX, JRPC_INVALID, NULL },
	{ "{" R "\"id\":1,\"method\":\"m\"} x", SP_E_SYNTAX, JRPC_INVALID,
	    NULL },
	{ "{" R "\"id\":1,\"method\":\"\xff\"}", SP_E_SYNTAX, JRPC_INVALID,
	    NULL },
	{ "\xef\xbb\xbf{}", SP_E_SYNTAX, JRPC_INVALID, NULL },
	{ "{" R "\"id\":NaN,\"method\":\"m\"}", SP_E_SYNTAX, JRPC_INVALID,
	    NULL },
};

static void
test_read(void)
{
	struct view id;
	struct jrpc m;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
		rc = jrpc_read(view_str(reads[i].text), &m);
		id = jrpc_raw(&m, &m.id);
		tap_ok(rc == reads[i].rc && m.kind == reads[i].kind &&
			(id.p == NULL) == (reads[i].id == NULL) &&
			view_eq(id, view_str(reads[i].id)),
		    "%s", reads[i].text);
	}
}

static void
test_deep(void)
{
	char text[2000];
	struct jrpc m;

	memset(text, '[', sizeof(text));
	tap_is_int(jrpc_read(view_of(text, sizeof(text)), &m), SP_E_LIMIT,
	    "nested too deep");
}

static void
test_member(void)
{
	static const struct {
		const char *params;
		int rc;
		const char *raw;
	} rows[] = {
		{ "{\"name\":\"a\"}", 1, "\"a\"" },
		{ "{\"arguments\":{\"name\":1},\"name\":\"a\"}", 1, "\"a\"" },
		{ "{\"n\\u0061me\":\"a\"}", 1, "\"a\"" },
		{ "{\"names\":\"a\"}", 0, "" },
		{ "{}", 0, "" },
		{ "[\"name\"]", 0, "" },
		{ "{\"name\":\"a\",\"name\":\"b\"}", SP_E_PROTO, NULL },
		{ "{\"name\":\"a\",\"n\\u0061me\":\"b\"}", SP_E_PROTO, NULL },
		{ "{\"name\":\"a\",\"Name\":\"b\"}", SP_E_PROTO, NULL },
		{ "{\"NAM\\u0045\":\"b\"}", SP_E_PROTO, NULL },
	};
	struct buf b = BUF_INIT(4096);
	struct jscan_span v;
	struct jrpc m;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		buf_reset(&b, 4096);
		if (buf_printf(&b,
			"{" R "\"method\":\"m\",\"id\":1,\"params\":%s}",
			rows[i].params) != SP_OK ||
		    jrpc_read(buf_view(&b), &m) != SP_OK)
			continue;
		rc = jrpc_member(&m, &m.params, VIEW("name"), &v);
		tap_ok(rc == rows[i].rc &&
			(rc < 0 ||
			    view_eq(jrpc_raw(&m, &v), view_str(rows[i].raw))),
		    "%s", rows[i].params);
	}
	/* more than are remembered, before it and behind */
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *open = rows[i].params[1] == '}' ? "" : ",";

		if (rows[i].params[0] != '{')
			continue;
		buf_reset(&b, 4096);
		if (buf_printf(&b,
			"{" R "\"method\":\"m\",\"id\":1,\"params\" : {"
			"\"1\":1,\"2\":[2],\"3\":3,\"4\":4,\"5\":5,\"6\":6,"
			"\"7\":{\"name\":7}%s%.*s,\"8\":8,\"9\":9}}",
			open, (int)strlen(rows[i].params) - 2,
			rows[i].params + 1) != SP_OK ||
		    jrpc_read(buf_view(&b), &m) != SP_OK)
			continue;
		rc = jrpc_member(&m, &m.params, VIEW("name"), &v);
		tap_ok(rc == rows[i].rc && m.more &&
			jrpc_has_param(&m, VIEW("name")) == (rc != 0) &&
			(rc < 0 ||
			    view_eq(jrpc_raw(&m, &v), view_str(rows[i].raw))),
		    "of many: %s", rows[i].params);
	}
	buf_clear(&b);
	rc = jrpc_read(VIEW("{" R "\"method\":\"m\"}"), &m);
	tap_ok(rc == SP_OK && jrpc_is(&m, VIEW("m")) &&
		!jrpc_is(&m, VIEW("n")) &&
		jrpc_member(&m, &m.params, VIEW("name"), &v) == 0,
	    "no params");
}

static void
string(const char *json, int want, const char *text)
{
	struct buf b = BUF_INIT(256), out = BUF_INIT(8);
	struct jscan_span v;
	struct jrpc m;
	int rc = SP_E_STATE;

	if (buf_printf(&b, "{" R "\"method\":\"m\",\"params\":{\"a\":%s}}",
		json) == SP_OK &&
	    jrpc_read(buf_view(&b), &m) == SP_OK &&
	    jrpc_member(&m, &m.params, VIEW("a"), &v) == 1)
		rc = jrpc_string(&m, &v, &out);
	tap_ok(rc == want && view_eq(buf_view(&out), view_str(text)), "%s",
	    json);
	buf_clear(&b);
	buf_clear(&out);
}

static void
batch(const char *text, int rc, size_t n)
{
	struct jrpc_batch b;
	struct view item;
	size_t i = 0;
	int got = jrpc_batch_open(&b, view_str(text));

	while (got == SP_OK && jrpc_batch_next(&b, &item) == 1)
		i++;
	tap_ok(got == rc && (rc != SP_OK || (b.n == n && i == n)), "%s", text);
}

static void
same(const char *a, const char *b, bool want)
{
	tap_ok(jrpc_same_id(view_str(a), view_str(b)) == want, "%s and %s", a,
	    b);
}

static void
test_same(void)
{
	same("1", "1", true);
	same("1", "1.0", false);
	same("1", "\"1\"", false);
	same("\"a/b\"", "\"a\\/\\u0062\"", true);
	same("\"a\\/b\"", "\"a/b\"", true);
	same("\"a\"", "\"ab\"", false);
	same("\"\\ud800\"", "\"\\uD800\"", false);
	same("null", "null", true);
	same("\"a", "\"a\"", false);
	mem_fail_after(1, 0);
	same("\"a\"", "\"\\u0061\"", false);
	mem_fail_after(0, 0);
}

static void
test_put(void)
{
	struct buf b = BUF_INIT(256), small = BUF_INIT(40);
	unsigned long n;
	int rc;

	tap_ok(jrpc_put_error(&b, VIEW("2"), JRPC_INVALID_PARAMS,
		   VIEW("Tool not found"), VIEW("null")) == SP_OK &&
		view_eq(buf_view(&b),
		    VIEW("{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":"
			 "-32602,\"message\":\"Tool not "
			 "found\",\"data\":null}}")),
	    "an error");
	buf_reset(&b, 256);
	tap_ok(jrpc_put_error(&b, VIEW_NONE, JRPC_SERVER_ERROR, VIEW("a\"b"),
		   VIEW_NONE) == SP_OK &&
		view_eq(buf_view(&b),
		    VIEW("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":"
			 "-32000,\"message\":\"a\\\"b\"}}")),
	    "without id and data");
	buf_reset(&b, 256);
	tap_ok(jrpc_put_result(&b, VIEW("\"x\""), VIEW("{}")) == SP_OK &&
		view_eq(buf_view(&b),
		    VIEW("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}")),
	    "a result");
	tap_ok(jrpc_put_result(&small, VIEW("1"), VIEW("[1,2,3,4,5,6]")) ==
		    SP_E_LIMIT &&
		buf_len(&small) == 0,
	    "no room");
	for (n = 1; n < 10; n++) {
		buf_clear(&b);
		mem_fail_after(n, 0);
		rc = jrpc_put_error(&b, VIEW("2"), 1, VIEW("x"), VIEW_NONE);
		mem_fail_after(0, 0);
		if (rc == SP_OK)
			break;
		if (rc != SP_E_NOMEM || buf_len(&b) != 0)
			break;
	}
	tap_ok(rc == SP_OK && n > 1, "memory that was not there");
	buf_clear(&b);
	buf_clear(&small);
}

int
main(void)
{
	test_read();
	test_deep();
	test_member();
	string("\"a\\u0062\"", SP_OK, "ab");
	string("\"\\ud83d\\ude00\"", SP_OK, "\xf0\x9f\x98\x80");
	string("\"x\\ud800\"", SP_E_SYNTAX, "");
	string("7", SP_E_SYNTAX, "");
	string("\"123456789\"", SP_E_LIMIT, "");
	batch("[]", SP_OK, 0);
	batch(" [1, {}] ", SP_OK, 2);
	batch("{}", SP_E_STATE, 0);
	batch("", SP_E_STATE, 0);
	batch("[1,", SP_E_SYNTAX, 0);
	batch("[] x", SP_E_SYNTAX, 0);
	test_same();
	test_put();
	return tap_done();
}
