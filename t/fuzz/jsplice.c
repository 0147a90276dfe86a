/*
 * Members removed from and put into any object: what stays is the same
 * members, in order and as written, and the result is valid.  The first byte
 * says whether to put some, the next four which to remove.
 */
#include <string.h>

#include "base/mem.h"
#include "json/jsplice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { HEAD = 5, MOST = 1000 };

static bool
is_gone(const uint8_t *head, size_t i)
{
	return (head[1 + i / 8 % 4] >> i % 8 & 1) != 0;
}

/* Members that stay, as written but for the space around them, each ended. */
static int
list_members(struct view text, const uint8_t *head, struct buf *out,
    struct jsplice *e, struct view put)
{
	struct jscan_span key, val;
	struct jsplice_object o;
	struct jscan s;
	size_t i;
	int rc;

	jscan_init(&s, text, JSCAN_ALLOW_NONFINITE);
	if (jscan_peek(&s) != JSCAN_OBJECT || jscan_enter(&s) != 0)
		return SP_E_SYNTAX;
	if (e != NULL)
		jsplice_object_begin(&o, e, &s);
	for (i = 0; (rc = jscan_member(&s, &key)) == 1; i++) {
		bool gone = head != NULL && is_gone(head, i);

		if ((rc = jscan_skip(&s, &val)) != 0)
			return rc;
		if (e != NULL &&
		    (rc = jsplice_object_member(&o, &key, &val, gone)) != 0)
			return rc;
		if (!gone)
			err_assert(
			    buf_add_view(out, jscan_raw(&s, &key)) == 0 &&
			    buf_add_char(out, '\0') == 0 &&
			    buf_add_view(out, jscan_raw(&s, &val)) == 0 &&
			    buf_add_char(out, '\0') == 0);
	}
	if (rc == 0 && e != NULL)
		rc = jsplice_object_end(&o, &s, put);
	return rc != 0 ? rc : jscan_finish(&s);
}

static void
fuzz_object(const uint8_t *head, struct view text)
{
	struct view put =
	    (head[0] & 1) != 0 ? VIEW("\"p\":[],\"q\":1") : VIEW_NONE;
	struct buf want = BUF_INIT(text.n * 4 + 64);
	struct buf got = BUF_INIT(text.n * 4 + 64);
	struct buf out = BUF_INIT(text.n + 64);
	struct jsplice e;
	int rc;

	jsplice_init(&e, MOST);
	rc = list_members(text, head, &want, &e, put);
	if (rc == 0) {
		err_assert(buf_add(&want, "\"p\"\0[]\0\"q\"\0001",
			       put.n > 0 ? 12 : 0) == 0);
		err_assert(put.n == 0 || buf_add_char(&want, '\0') == 0);
		err_assert(jsplice_apply(&e, text, &out) == 0);
		err_assert(list_members(buf_view(&out), NULL, &got, NULL,
			       VIEW_NONE) == 0);
		err_assert(view_eq(buf_view(&got), buf_view(&want)));
	}
	jsplice_clear(&e);
	buf_clear(&want);
	buf_clear(&got);
	buf_clear(&out);
}

/* Edits read from the bytes, against a copy that is marked byte by byte. */
static void
fuzz_edits(const uint8_t *data, size_t n)
{
	enum { TEXT = 64 };
	static const char text[] =
	    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH"
	    "IJKLMNOPQRSTUVWXYZ+/";
	struct buf out = BUF_INIT(1u << 16), want = BUF_INIT(1u << 16);
	bool gone[TEXT] = { false };
	struct jsplice e;
	size_t i, k;

	jsplice_init(&e, 40);
	for (i = 0; i + 2 < n; i += 3) {
		size_t at = data[i] % (TEXT + 1), drop = data[i + 1] % 5,
		       hit = 0;
		struct view put = view_of(data + i, data[i + 2] % 4);
		int rc;

		for (k = at; k < at + drop && k < TEXT; k++)
			hit += gone[k];
		if (at + drop > TEXT)
			continue;
		/* strictly inside of what another one drops */
		if (drop == 0 && put.n > 0 && at > 0 && at < TEXT)
			for (k = 0; k < e.n; k++)
				hit += e.v[k].at < at &&
				    at < e.v[k].at + e.v[k].drop;
		for (k = 0; k < e.n; k++)
			hit += e.v[k].at > at && e.v[k].at < at + drop;
		rc = jsplice_add(&e, at, drop, put);
		err_assert(rc == SP_E_LIMIT || rc == (hit ? SP_E_ARG : 0));
		for (k = at; rc == 0 && k < at + drop; k++)
			gone[k] = true;
	}
	err_assert(jsplice_apply(&e, view_of(text, TEXT), &out) == 0);
	for (i = 0; i <= TEXT; i++) {
		for (k = 0; k < e.n; k++)
			if (e.v[k].at == i)
				err_assert(
				    buf_add_view(&want, e.v[k].put) == 0);
		if (i < TEXT && !gone[i])
			err_assert(buf_add_char(&want, text[i]) == 0);
	}
	err_assert(view_eq(buf_view(&out), buf_view(&want)));
	jsplice_clear(&e);
	buf_clear(&out);
	buf_clear(&want);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n < HEAD)
		return 0;
	fuzz_object(data, view_of(data + HEAD, n - HEAD));
	fuzz_edits(data, n);
	return 0;
}
