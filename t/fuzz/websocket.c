/*
 * Frames of either role: the same messages and the same end wherever they are
 * cut, none longer than it may be, text that is UTF-8, and nothing told after
 * the end.  The first three bytes: role and pauses, then the cuts.
 */
#include "config.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "http/websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MESSAGE_MAX = 4096 };

struct found {
	struct websocket *w;
	struct buf told;
	bool closed, pauses;
};

static void
must(int rc)
{
	if (rc != 0)
		abort();
}

static void
on_message(void *arg, bool text, struct view data)
{
	struct found *f = arg;

	if (f->closed || data.n > MESSAGE_MAX || (text && !utf8_valid(data)))
		abort();
	must(buf_printf(&f->told, "%d %zu|", text, data.n));
	must(buf_add_view(&f->told, data));
	must(websocket_send(f->w, text, data));
	if (f->pauses)
		websocket_pause(f->w, true);
}

static int
on_write(void *arg, struct view data)
{
	(void)arg;
	return data.n != 0 ? 0 : SP_E_ARG;
}

static void
on_closed(void *arg, unsigned code, struct view reason)
{
	struct found *f = arg;

	if (f->closed || !utf8_valid(reason))
		abort();
	f->closed = true;
	must(buf_printf(&f->told, "closed %u", code));
}

static void
feed(struct found *f, struct view v)
{
	/* of its own size, so that nothing is read past it */
	char *own = malloc(v.n + 1);

	if (own == NULL)
		abort();
	if (v.n != 0)
		memcpy(own, v.p, v.n);
	(void)!websocket_feed(f->w, view_of(own, v.n));
	free(own);
}

static void
run(struct view in, const uint8_t *how, bool cut, struct found *f)
{
	static const struct websocket_owner owner = { .message = on_message,
		.write = on_write,
		.closed = on_closed };
	size_t a = cut ? how[1] * in.n / 256 : 0;
	size_t b = cut ? a + how[2] * (in.n - a) / 256 : 0;

	*f = (struct found){ .told = BUF_INIT(1 << 26),
		.pauses = cut && (how[0] & 2) != 0 };
	must(websocket_new((how[0] & 1) != 0 ? WEBSOCKET_CLIENT
					     : WEBSOCKET_SERVER,
	    MESSAGE_MAX, &owner, f, &f->w));
	feed(f, view_sub(in, 0, a));
	feed(f, view_sub(in, a, b - a));
	feed(f, view_from(in, b));
	while (websocket_full(f->w)) {
		websocket_pause(f->w, false);
		feed(f, VIEW_NONE);
	}
	websocket_free(f->w);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct found whole, cut;
	struct view in;

	if (n < 3)
		return 0;
	in = view_of(data + 3, n - 3);
	run(in, data, false, &whole);
	run(in, data, true, &cut);
	if (!view_eq(buf_view(&whole.told), buf_view(&cut.told)))
		abort();
	buf_clear(&whole.told);
	buf_clear(&cut.told);
	return 0;
}
