/* The clients of test_lifecycle.c, over its mux and turn(). */
#ifndef SP_T_UNIT_LIFECYCLE_PEER_H
#define SP_T_UNIT_LIFECYCLE_PEER_H

#include "lifecycle_fakes.h"
#include "mux_backend.h"
#include "tap.h"

static struct mux mux;
static void turn(void);

/* ---- the client ------------------------------------------------------------- */

struct peer {
	struct mux_stream *s;
	struct websock *ws;
};

static void
let_go(void)
{
	struct mux_stream *s;

	for (s = mux.streams; s < mux.streams + MUX_STREAMS; s++) {
		if (s->id == 0 || !s->over)
			continue;
		buf_clear(&s->up);
		buf_clear(&s->down);
		buf_clear(&s->got);
		s->id = 0;
	}
}

static struct mux_stream *
ask(const char *method, const char *path, const char *query, const char *body)
{
	struct mux_stream *s;

	let_go();
	s = mux_open(&mux, method, path, body != NULL);
	if (s == NULL ||
	    head_add_borrowed(&s->x.request.fields, VIEW("authorization"),
		VIEW("Bearer 0123456789abcdef")) != SP_OK)
		abort();
	s->x.request.query = view_str(query);
	if (body != NULL)
		mux_send(s, view_str(body), true);
	return s;
}

static struct mux_stream *
request(const char *method, const char *path, const char *query,
    const char *body)
{
	struct mux_stream *s = ask(method, path, query, body);

	turn();
	return s;
}

static struct peer
come(const char *path, const char *query)
{
	struct peer p;

	fake_ws_last = NULL;
	p.s = request("GET", path, query, NULL);
	p.ws = fake_ws_last;
	return p;
}

static void
say(struct peer *p, const char *frame)
{
	p->ws->events->message(p->ws->arg, true, view_str(frame));
	turn();
}

/* The connection is over, and the request with it. */
static void
leave(struct peer *p, unsigned code)
{
	if (p->ws != NULL)
		fake_ws_over(p->ws, code);
	mux_reset(p->s);
	turn();
}

static bool
has(const struct buf *b, const char *part)
{
	return view_search(buf_view(b), view_str(part)) < buf_len(b);
}

static void
hears(const struct peer *p, const char *part, const char *what)
{
	bool ok = p->ws != NULL && has(&p->ws->last, part);

	tap_ok(ok, "%s", what);
	if (!ok && p->ws != NULL)
		tap_diag("%.*s", VIEW_ARG(buf_view(&p->ws->last)));
}

static void
is(const struct mux_stream *s, unsigned status, const char *part,
    const char *what)
{
	bool ok = s->status == status && s->got_end &&
	    (part[0] == '\0' || has(&s->got, part));

	tap_ok(ok, "%s", what);
	if (!ok)
		tap_diag("%u %.*s", s->status, VIEW_ARG(buf_view(&s->got)));
}

#endif
