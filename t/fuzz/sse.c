/*
 * Event streams: the same events wherever they are cut, no byte lost, and the
 * data what a plain reading of the rules gives.  The first two bytes choose
 * the cuts.
 */
#include "config.h"

#include <stdlib.h>

#include "http/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct found {
	struct buf events, raw;
};

static void
must(int rc)
{
	if (rc != 0)
		abort();
}

static int
on_event(void *arg, const struct sse_event *e)
{
	struct found *f = arg;

	must(buf_printf(&f->events, "%u %zu %zu|", e->flags, e->data_at,
	    e->raw.n));
	must(buf_add_view(&f->events, e->raw));
	must(buf_add_view(&f->events, e->data));
	must(buf_add_char(&f->events, '|'));
	must(buf_add_view(&f->events, e->error));
	must(buf_add_char(&f->events, '|'));
	must(buf_add_view(&f->events, e->name));
	must(buf_add_view(&f->raw, e->raw));
	if (e->raw.n == 0)
		abort();
	if (e->flags & SSE_ONE_LINE &&
	    (e->data_at > e->raw.n || e->data.n > e->raw.n - e->data_at ||
		e->data.p != e->raw.p + e->data_at))
		abort();
	return 0;
}

static void
feed(struct view in, size_t a, size_t b, struct found *f)
{
	const size_t cut[4] = { 0, a, b, in.n };
	struct sse s;
	int i;

	buf_init(&f->events, 1 << 26);
	buf_init(&f->raw, 1 << 26);
	sse_init(&s, 1 << 24);
	for (i = 0; i < 3; i++) {
		size_t n = cut[i + 1] - cut[i];
		char *own = malloc(n + 1);

		if (own == NULL)
			abort();
		if (n != 0)
			memcpy(own, in.p + cut[i], n);
		must(sse_feed(&s, view_of(own, n), on_event, f));
		free(own);
	}
	must(buf_add_view(&f->raw, sse_rest(&s)));
	sse_clear(&s);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct found whole, cut;
	struct view in, raw;
	size_t a, b;

	if (n < 2)
		return 0;
	in = view_of(data + 2, n - 2);
	a = in.n != 0 ? data[0] * in.n / 256 : 0;
	b = in.n != 0 ? a + data[1] * (in.n - a) / 256 : 0;
	feed(in, 0, 0, &whole);
	feed(in, a, b, &cut);
	if (!view_eq(buf_view(&whole.events), buf_view(&cut.events)) ||
	    !view_eq(buf_view(&whole.raw), buf_view(&cut.raw)))
		abort();
	raw = buf_view(&whole.raw);
	if (view_starts(in, VIEW("\xef\xbb\xbf")))
		in = view_from(in, 3);
	/* a mark that is not whole may be held back at the end */
	if (!view_starts(in, raw) ||
	    (in.n != raw.n && !view_starts(VIEW("\xef\xbb\xbf"), in)))
		abort();
	buf_clear(&whole.events);
	buf_clear(&whole.raw);
	buf_clear(&cut.events);
	buf_clear(&cut.raw);
	return 0;
}
