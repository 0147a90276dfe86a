/*
 * jscan against yajl, and what jwrite makes of the same bytes: a value copied
 * is strict JSON on one line, a string written decodes to itself.
 */
#include <stdio.h>

#include "base/utf8.h"
#include "json/jrun.h"
#include "json/jwrite.h"
#include "../unit/token_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
check_line(struct view v)
{
	err_assert(jscan_valid(v, 0) == 0);
	err_assert(utf8_valid(v));
	err_assert(view_find(v, '\n') == v.n && view_find(v, '\r') == v.n);
	err_assert(view_search(v, VIEW("\xe2\x80\xa8")) == v.n);
	err_assert(view_search(v, VIEW("\xe2\x80\xa9")) == v.n);
	err_assert(view_search(v, VIEW("\xc2\x85")) == v.n);
}

/* Nothing was passed that is not strict JSON on one line. */
static bool
is_tight(struct view text)
{
	struct jscan s;

	jscan_init(&s, text, JSCAN_ALLOW_NONFINITE);
	return jscan_skip(&s, NULL) == 0 && jscan_finish(&s) == 0 && !s.loose;
}

static void
fuzz_span(struct view text)
{
	int rc = jscan_valid(text, JSCAN_ALLOW_NONFINITE);
	struct buf once = BUF_INIT(text.n * 4 + 64);
	struct buf twice = BUF_INIT(text.n * 4 + 64);
	struct jwrite w;

	if (jscan_valid(text, 0) == 0)
		err_assert(rc == 0);
	jwrite_init(&w, &once);
	jwrite_span(&w, text);
	err_assert(jwrite_finish(&w) == rc);
	if (rc == 0) {
		check_line(buf_view(&once));
		if (is_tight(text))
			err_assert(view_eq(buf_view(&once), text));
		jwrite_init(&w, &twice);
		jwrite_span(&w, buf_view(&once));
		err_assert(jwrite_finish(&w) == 0 && w.replaced == 0);
		err_assert(w.nonfinite == 0);
		err_assert(view_eq(buf_view(&once), buf_view(&twice)));
	}
	buf_clear(&once);
	buf_clear(&twice);
}

static void
fuzz_string(struct view text)
{
	struct buf out = BUF_INIT(text.n * 6 + 64);
	struct buf back = BUF_INIT(text.n * 3 + 64);
	struct jscan_span v;
	size_t replaced = 0;
	struct jwrite w;
	struct jscan s;

	jwrite_init(&w, &out);
	jwrite_string(&w, text);
	err_assert(jwrite_finish(&w) == 0);
	check_line(buf_view(&out));
	jscan_init(&s, buf_view(&out), 0);
	err_assert(jscan_skip(&s, &v) == 0 && jscan_finish(&s) == 0);
	err_assert(jscan_decode(&s, &v, &back, &replaced) == 0);
	err_assert(replaced == 0);
	err_assert((w.replaced == 0) == view_eq(buf_view(&back), text));
	err_assert((w.replaced == 0) == utf8_valid(text));
	buf_clear(&out);
	buf_clear(&back);
}

static void
fuzz_runs(const uint8_t *p, const uint8_t *end)
{
	err_assert(jrun_string(p, end) == jrun_string_portable(p, end));
	err_assert(jrun_ascii(p, end) == jrun_ascii_portable(p, end));
	err_assert(jrun_digits(p, end) == jrun_digits_portable(p, end));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct view text = view_of(data, n);
	struct jscan_span v;
	const char *why;
	bool followed;
	int rc;

	why = peer_compare(text);
	if (why == NULL)
		why = token_compare(data, data + n, &followed);
	if (why != NULL) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	rc = jscan_find(text, VIEW("a"), &v);
	err_assert(rc != 1 || (v.start < v.end && v.end < n));
	fuzz_span(text);
	fuzz_string(text);
	fuzz_runs(data, data + n);
	return 0;
}
