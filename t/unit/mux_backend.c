#include "config.h"

#include <stdlib.h>

#include "mux_backend.h"

static bool
mux_closed(const struct mux_stream *s)
{
	return s->over || s->broken || s->aborting;
}

static int
mux_keep(struct mux_stream *s, int rc)
{
	if (rc != 0)
		s->broken = true;
	return rc == 0 ? 0 : SP_E_NOMEM;
}

static int
mux_interim(struct exchange *x, unsigned status)
{
	struct mux_stream *s = x->back;

	(void)status;
	if (mux_closed(s))
		return SP_E_GONE;
	s->interims++;
	return 0;
}

static int
mux_head(struct exchange *x, const struct head_reply *head)
{
	struct view id = head_get(&head->fields, VIEW("Mcp-Session-Id"));
	struct mux_stream *s = x->back;

	if (mux_closed(s))
		return SP_E_GONE;
	if (id.n > 0 && id.n < sizeof(s->session))
		memcpy(s->session, id.p, id.n);
	s->status = head->status;
	s->head_due = true;
	return 0;
}

static int
mux_data(struct exchange *x, const struct view *v, size_t n)
{
	struct mux_stream *s = x->back;
	size_t i;
	int rc = 0;

	if (mux_closed(s))
		return SP_E_GONE;
	for (i = 0; rc == 0 && i < n; i++)
		rc = buf_add_view(&s->down, v[i]);
	if (buf_len(&s->down) >= s->mux->output_max)
		s->blocked = true;
	return mux_keep(s, rc);
}

static int
mux_end(struct exchange *x)
{
	struct mux_stream *s = x->back;

	if (mux_closed(s))
		return SP_E_GONE;
	s->end_due = true;
	return 0;
}

static void
mux_abort(struct exchange *x)
{
	struct mux_stream *s = x->back;

	s->aborting = true;
}

static void
mux_credit(struct exchange *x, size_t n)
{
	struct mux_stream *s = x->back;

	s->up_window += n;
}

static size_t
mux_room(const struct exchange *x)
{
	const struct mux_stream *s = x->back;
	size_t queued = buf_len(&s->down);

	return queued < s->mux->output_max ? s->mux->output_max - queued : 0;
}

static int
mux_upgrade(struct exchange *x, const struct head_reply *head)
{
	struct mux_stream *s = x->back;

	(void)head;
	if (mux_closed(s))
		return SP_E_GONE;
	s->status = 200;
	s->head_due = true;
	return 0;
}

static const struct exchange_backend mux_backend = {
	.name = "mux",
	.interim = mux_interim,
	.head = mux_head,
	.data = mux_data,
	.end = mux_end,
	.reset = mux_abort,
	.credit = mux_credit,
	.room = mux_room,
	.upgrade = mux_upgrade,
};

void
mux_init(struct mux *m, const struct exchange_consumer *consumer, void *server,
    size_t window, size_t first_window)
{
	*m = (struct mux){ .consumer = consumer,
		.server = server,
		.window = window,
		.first_window = first_window,
		.frame_max = 8,
		.output_max = 64 };
	buf_init(&m->wire, 1 << 20);
}

static void
mux_close(struct mux_stream *s)
{
	s->over = true;
	arena_free(s->x.arena);
	s->x.arena = NULL;
}

static void
mux_gone(struct mux_stream *s, enum exchange_gone why)
{
	s->over = true;
	if (s->opened)
		s->mux->consumer->gone(&s->x, why);
	mux_close(s);
}

void
mux_clear(struct mux *m)
{
	size_t i;

	for (i = 0; i < MUX_STREAMS; i++) {
		struct mux_stream *s = &m->streams[i];

		if (s->id == 0)
			continue;
		if (!s->over)
			mux_gone(s, EXCHANGE_GONE_SHUTDOWN);
		buf_clear(&s->up);
		buf_clear(&s->down);
		buf_clear(&s->got);
	}
	buf_clear(&m->wire);
}

struct mux_stream *
mux_open(struct mux *m, const char *method, const char *path, bool body)
{
	struct mux_stream *s = NULL;
	struct arena *a = arena_new(1 << 20);
	size_t i;

	for (i = 0; s == NULL && i < MUX_STREAMS; i++)
		if (m->streams[i].id == 0)
			s = &m->streams[i];
	if (s == NULL || a == NULL) {
		arena_free(a);
		return NULL;
	}
	*s = (struct mux_stream){ .mux = m,
		.id = (unsigned)(s - m->streams) * 2 + 1,
		.up_ended = !body,
		.up_window = m->first_window,
		.down_window = m->first_window,
		.x = { .arena = a,
		    .backend = &mux_backend,
		    .consumer = m->consumer,
		    .server = m->server,
		    .back = s,
		    .peer = "mux",
		    .request = { .method = view_str(method),
			.target = view_str(path),
			.path = view_str(path),
			.authority = VIEW("h"),
			.content_length = -1,
			.has_body = body } } };
	head_fields_init(&s->x.request.fields, a);
	buf_init(&s->up, 1 << 20);
	buf_init(&s->down, 1 << 20);
	buf_init(&s->got, 1 << 20);
	return s;
}

void
mux_send(struct mux_stream *s, struct view data, bool end)
{
	if (buf_add_view(&s->up, data) != 0)
		abort();
	s->up_ended = end;
}

void
mux_reset(struct mux_stream *s)
{
	s->got_reset = true;
}

void
mux_grant(struct mux *m, struct mux_stream *s, size_t n)
{
	if (s != NULL)
		s->down_window += n;
	else
		m->window += n;
}

/* The request's half; true when something was delivered. */
static bool
mux_up(struct mux_stream *s)
{
	const struct exchange_consumer *c = s->mux->consumer;
	size_t n = buf_len(&s->up);

	if (!s->opened) {
		s->opened = true;
		c->open(s->x.server, &s->x);
		return true;
	}
	if (s->body_ended || s->x.state == EXCHANGE_ENDED)
		return false;
	if (n > s->up_window)
		n = s->up_window;
	if (n != 0) {
		s->up_window -= n;
		c->body(&s->x, view_sub(buf_view(&s->up), 0, n));
		buf_consume(&s->up, n);
		return true;
	}
	if (!s->up_ended || buf_len(&s->up) != 0)
		return false;
	s->body_ended = s->x.request_whole = true;
	c->body_end(&s->x);
	return true;
}

/* One frame of the reply; true when there was one. */
static bool
mux_down(struct mux_stream *s)
{
	struct mux *m = s->mux;
	size_t n = buf_len(&s->down);
	struct view v;

	if (s->head_due) {
		s->head_due = false;
		return s->got_head = true;
	}
	if (n > m->frame_max)
		n = m->frame_max;
	if (n > s->down_window)
		n = s->down_window;
	if (n > m->window)
		n = m->window;
	if (n == 0)
		return false;
	v = view_sub(buf_view(&s->down), 0, n);
	if (buf_add_view(&s->got, v) != 0 ||
	    buf_printf(&m->wire, "%u:%.*s ", s->id, VIEW_ARG(v)) != 0)
		abort();
	buf_consume(&s->down, n);
	s->down_window -= n;
	m->window -= n;
	return true;
}

/* What is due after everything that could be framed was. */
static bool
mux_settle(struct mux_stream *s)
{
	if (s->broken) {
		mux_gone(s, EXCHANGE_GONE_NOMEM);
	} else if (s->aborting && buf_len(&s->down) == 0) {
		s->got_reset = true;
		mux_gone(s, EXCHANGE_GONE_RESET);
	} else if (s->end_due && buf_len(&s->down) == 0) {
		s->got_end = true;
		s->over = true;
		s->mux->consumer->done(&s->x);
		mux_close(s);
	} else if (s->blocked && !s->end_due && !s->aborting &&
	    buf_len(&s->down) <= s->mux->output_max / 2) {
		s->blocked = false;
		s->mux->consumer->writable(&s->x);
	} else {
		return false;
	}
	return true;
}

bool
mux_turn(struct mux *m)
{
	bool any = false;
	size_t i;

	for (i = 0; i < MUX_STREAMS; i++) {
		struct mux_stream *s = &m->streams[i];

		if (s->id == 0 || s->over)
			continue;
		if (s->got_reset) {
			mux_gone(s, EXCHANGE_GONE_RESET);
			any = true;
			continue;
		}
		any = mux_up(s) || any;
		any = mux_down(s) || any;
		any = mux_settle(s) || any;
	}
	return any;
}
