/* core/json/jsplice.c: edits in any order, and commas in objects. */
#include "base/mem.h"
#include "json/jsplice.h"
#include "tap.h"

enum { MEMBERS = 6 };

static const char *const names[MEMBERS] = { "\"a\"", "\"b\"", "\"\\u0063\"",
	"\"\"", "\"e,}\"", "\"a\"" };
static const char *const values[MEMBERS] = { "1", "{\"x\":[1,2]}", "\"}\\\",\"",
	"[]", "null", "-2.5e3" };

/* White space: before a name, after it, before a value, after it. */
static const char *const spaces[][4] = {
	{ "", "", "", "" },
	{ "", "", " ", "" },
	{ " ", " ", " ", " " },
	{ "\n\t", "", " ", "\r\n" },
	{ "", "", "", "  " },
};

static int
add(struct buf *b, const char *s)
{
	return buf_add_str(b, s);
}

/* The object with members in mask, put last; as sp says, or without space. */
static void
build(struct buf *out, unsigned n, unsigned mask, const char *const *sp,
    const char *put)
{
	const char *comma = "";
	unsigned i;
	int rc = add(out, "{");

	for (i = 0; i < n && rc == 0; i++) {
		if ((mask >> i & 1) == 0)
			continue;
		rc |= add(out, comma) | add(out, sp[0]) | add(out, names[i]) |
		    add(out, sp[1]) | add(out, ":") | add(out, sp[2]) |
		    add(out, values[i]) | add(out, sp[3]);
		comma = ",";
	}
	if (put[0] != '\0')
		rc |= add(out, comma) | add(out, put);
	err_assert((rc | add(out, "}")) == 0);
}

static size_t
without_space(const struct buf *b, char *out)
{
	struct view v = buf_view(b);
	size_t i, n = 0;

	for (i = 0; i < v.n; i++)
		if (strchr(" \t\r\n", v.p[i]) == NULL)
			out[n++] = v.p[i];
	return n;
}

/* Scans text, marks the members that are not in mask, collects the edits. */
static int
edit_object(struct jsplice *e, struct view text, unsigned mask, const char *put)
{
	struct jscan_span key, val;
	struct jsplice_object o;
	struct jscan s;
	unsigned i = 0;
	int rc;

	jscan_init(&s, text, 0);
	rc = jscan_enter(&s);
	if (rc != 0)
		return rc;
	jsplice_object_begin(&o, e, &s);
	while ((rc = jscan_member(&s, &key)) == 1) {
		rc = jscan_skip(&s, &val);
		if (rc == 0)
			rc = jsplice_object_member(&o, &key, &val,
			    (mask >> i++ & 1) == 0);
		if (rc != 0)
			return rc;
	}
	return rc != 0 ? rc : jsplice_object_end(&o, &s, view_str(put));
}

static bool
one_object(unsigned n, unsigned mask, size_t sp, const char *put)
{
	struct buf text = BUF_INIT(1024), want = BUF_INIT(1024);
	struct buf got = BUF_INIT(1024);
	char a[1024], b[1024];
	struct jsplice e;
	size_t a_n, b_n;
	bool good;

	jsplice_init(&e, 16);
	build(&text, n, (1u << n) - 1, spaces[sp], "");
	build(&want, n, mask, spaces[sp], put);
	good = edit_object(&e, buf_view(&text), mask, put) == 0 &&
	    jsplice_apply(&e, buf_view(&text), &got) == 0 &&
	    jscan_valid(buf_view(&got), 0) == 0;
	if (good && mask == (1u << n) - 1 && put[0] == '\0')
		good = e.n == 0 && view_eq(buf_view(&got), buf_view(&text));
	a_n = without_space(&got, a);
	b_n = without_space(&want, b);
	good = good && a_n == b_n && memcmp(a, b, a_n) == 0;
	if (!good)
		tap_diag("%.*s | %.*s", VIEW_ARG(buf_view(&got)),
		    VIEW_ARG(buf_view(&want)));
	buf_clear(&text);
	buf_clear(&want);
	buf_clear(&got);
	jsplice_clear(&e);
	return good;
}

static void
test_objects(void)
{
	static const char *const puts[] = { "", "\"z\":1",
		"\"y\":[{}],\"z\":\"\"" };
	size_t sp, p, bad = 0, all = 0;
	unsigned n, mask;

	for (sp = 0; sp < sizeof(spaces) / sizeof(spaces[0]); sp++)
		for (p = 0; p < 3; p++)
			for (n = 0; n <= MEMBERS; n++)
				for (mask = 0; mask < 1u << n; mask++, all++)
					bad +=
					    !one_object(n, mask, sp, puts[p]);
	tap_ok(bad == 0, "%zu objects, each set of members removed", all);
}

static void
test_exact(void)
{
	static const struct {
		const char *text;
		unsigned mask;
		const char *put, *want;
	} rows[] = {
		{ "{\"a\": 1, \"b\": 2, \"c\": 3}", 5, "",
		    "{\"a\": 1, \"c\": 3}" },
		{ "{\"a\": 1, \"b\": 2, \"c\": 3}", 6, "",
		    "{\"b\": 2, \"c\": 3}" },
		{ "{\"a\": 1, \"b\": 2, \"c\": 3}", 3, "",
		    "{\"a\": 1, \"b\": 2}" },
		{ "{ \"a\" : 1 }", 0, "\"z\":0", "{\"z\":0  }" },
		{ "{ \"a\" : 1 }", 1, "\"z\":0", "{ \"a\" : 1,\"z\":0 }" },
		{ "{}", 0, "\"z\":0", "{\"z\":0}" },
		{ "{ }", 0, "", "{ }" },
	};
	struct buf out = BUF_INIT(256);
	struct jsplice e;
	size_t i;

	jsplice_init(&e, 8);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct view text = view_str(rows[i].text);

		jsplice_reset(&e);
		buf_reset(&out, 256);
		tap_ok(edit_object(&e, text, rows[i].mask, rows[i].put) == 0 &&
			jsplice_apply(&e, text, &out) == 0,
		    "exact %zu", i);
		tap_is_mem(buf_view(&out).p, buf_len(&out), rows[i].want,
		    strlen(rows[i].want), rows[i].want);
	}
	jsplice_clear(&e);
	buf_clear(&out);
}

static void
test_edits(void)
{
	struct view text = VIEW("0123456789");
	struct buf out = BUF_INIT(64);
	struct jsplice e;

	jsplice_init(&e, 5);
	tap_is_int(jsplice_apply(&e, text, &out), 0, "no edits");
	tap_is_mem(buf_view(&out).p, buf_len(&out), text.p, text.n, "as it is");
	tap_is_int(jsplice_add(&e, 5, 2, VIEW("X")), 0, "replace");
	tap_is_int(jsplice_add(&e, 10, 0, VIEW("end")), 0, "insert at the end");
	tap_is_int(jsplice_add(&e, 5, 0, VIEW("<")), 0,
	    "insert where a replacement begins");
	tap_is_int(jsplice_add(&e, 5, 0, VIEW(">")), 0, "a second one");
	tap_is_int(jsplice_add(&e, 4, 2, VIEW_NONE), SP_E_ARG, "overlap, left");
	tap_is_int(jsplice_add(&e, 6, 1, VIEW_NONE), SP_E_ARG, "inside");
	tap_is_int(jsplice_add(&e, 6, 0, VIEW("i")), SP_E_ARG, "insert inside");
	tap_is_int(jsplice_add(&e, 5, 1, VIEW_NONE), SP_E_ARG, "same place");
	tap_is_int(jsplice_add(&e, 0, 11, VIEW_NONE), SP_E_ARG, "around all");
	tap_is_int(jsplice_add(&e, SIZE_MAX, 1, VIEW_NONE), SP_E_ARG,
	    "no such place");
	tap_is_int(jsplice_add(&e, 6, 0, VIEW_NONE), 0, "nothing is no edit");
	tap_is_int(jsplice_add(&e, 0, 1, VIEW_NONE), 0, "remove the first");
	tap_is_int(jsplice_add(&e, 9, 1, VIEW_NONE), SP_E_LIMIT,
	    "one too many");
	buf_reset(&out, 64);
	tap_is_int(jsplice_apply(&e, text, &out), 0, "apply");
	tap_is_mem(buf_view(&out).p, buf_len(&out), "1234<>X789end", 13,
	    "all of them");
	tap_is_int(jsplice_apply(&e, view_sub(text, 0, 6), &out), SP_E_ARG,
	    "past the text");
	tap_is_int((long long)buf_len(&out), 13, "the buffer is unchanged");
	jsplice_clear(&e);
	tap_is_int((long long)e.max, 5, "clear keeps the maximum");
	buf_clear(&out);
}

static void
test_limits(void)
{
	struct view text = VIEW("{\"a\":1,\"b\":2}");
	struct buf out = BUF_INIT(12);
	struct jsplice e;
	struct jscan s;
	struct jsplice_object o;
	unsigned long i;
	size_t k, bad = 0;
	int rc = -1;

	jsplice_init(&e, 1);
	tap_is_int(edit_object(&e, text, 2, "\"c\":3"), SP_E_LIMIT,
	    "no room for the comma");
	jsplice_clear(&e);
	jsplice_init(&e, 40);
	for (k = 0; k < 40; k++)
		bad += jsplice_add(&e, 39 - k, 1, VIEW("x")) != 0;
	tap_is_int((long long)bad, 0, "40 from the back");
	for (k = 0; k < 40; k++)
		bad += e.v[k].at != k;
	tap_is_int((long long)bad, 0, "in order");
	tap_is_int(jsplice_add(&e, 40, 1, VIEW("x")), SP_E_LIMIT, "the 41st");
	jsplice_reset(&e);
	tap_is_int(edit_object(&e, text, 3, "\"c\":3"), 0, "after a reset");
	tap_is_int(jsplice_apply(&e, text, &out), SP_E_LIMIT, "out is small");
	tap_is_int((long long)buf_len(&out), 0, "out is unchanged");
	jsplice_clear(&e);
	out.max = 64;
	for (i = 1; i < 20 && rc != 0; i++) {
		mem_fail_after(i, 0);
		rc = edit_object(&e, text, 2, "\"c\":3");
		if (rc == 0)
			rc = jsplice_apply(&e, text, &out);
		mem_fail_after(0, 0);
		bad += rc != 0 && (rc != SP_E_NOMEM || buf_len(&out) != 0);
		if (rc != 0)
			jsplice_clear(&e);
	}
	tap_ok(rc == 0 && bad == 0 && i > 3, "no memory, %lu times", i - 2);
	tap_is_mem(buf_view(&out).p, buf_len(&out), "{\"b\":2,\"c\":3}", 13,
	    "and then applied");
	jscan_init(&s, VIEW("x"), 0);
	jsplice_object_begin(&o, &e, &s);
	tap_ok(jscan_enter(&s) == SP_E_SYNTAX &&
		jsplice_object_end(&o, &s, VIEW("\"a\":1")) == SP_E_SYNTAX,
	    "the scanner's error is told");
	jsplice_clear(&e);
	buf_clear(&out);
}

int
main(void)
{
	test_edits();
	test_exact();
	test_objects();
	test_limits();
	return tap_done();
}
