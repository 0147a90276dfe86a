#include "config.h"

#include "base/clock.h"
#include "base/mem.h"
#include "http/h2_conn.h"

const char *
h2_server_flood_name(enum h2_flood f)
{
	static const char *const names[H2_FLOODS] = {
		[H2_FLOOD_SETTINGS] = "settings",
		[H2_FLOOD_PING] = "ping",
		[H2_FLOOD_PRIORITY] = "priority",
		[H2_FLOOD_WINDOW_UPDATE] = "window_update",
		[H2_FLOOD_CONTINUATION] = "continuation",
		[H2_FLOOD_RESET] = "reset",
		[H2_FLOOD_EMPTY_DATA] = "empty_data",
		[H2_FLOOD_HEADERS] = "headers",
		[H2_FLOOD_SLOW_HEAD] = "slow_head",
		[H2_FLOOD_OTHER] = "other",
	};

	return names[f];
}

static void
server_free_conn(struct h2_conn *c)
{
	struct h2_stream *s;

	while ((s = TAILQ_FIRST(&c->streams)) != NULL) {
		TAILQ_REMOVE(&c->streams, s, link);
		arena_free(s->x.arena);
		buf_clear(&s->out);
		mem_free(s);
	}
	nghttp2_session_del(c->session);
	buf_clear(&c->out);
	mem_free(c);
}

static void
server_reap(struct h2_server *s)
{
	struct h2_conn *c;

	while ((c = TAILQ_FIRST(&s->dead)) != NULL) {
		TAILQ_REMOVE(&s->dead, c, link);
		/* marked within its last turn */
		if (c->dirty)
			TAILQ_REMOVE(&s->dirty, c, dirty_link);
		server_free_conn(c);
	}
}

/* Each connection once: one that is marked again waits for the next turn. */
static void
server_turn(void *arg)
{
	struct h2_server *s = arg;
	struct h2_conn_list now;
	struct h2_conn *c;

	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &s->dirty, dirty_link);
	while ((c = TAILQ_FIRST(&now)) != NULL) {
		TAILQ_REMOVE(&now, c, dirty_link);
		c->dirty = false;
		if (!c->dead)
			h2_conn_turn(c);
	}
	server_reap(s);
}

void
h2_server_mark(struct h2_conn *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	TAILQ_INSERT_TAIL(&c->server->dirty, c, dirty_link);
	loop_task_post(c->server->task);
}

void
h2_server_kill(struct h2_conn *c, bool graceful)
{
	struct h2_server *s = c->server;

	if (c->dead)
		return;
	c->dead = true;
	stream_free(c->stream, graceful);
	loop_timer_free(c->timer);
	c->stream = NULL;
	c->timer = NULL;
	TAILQ_REMOVE(&s->conns, c, link);
	TAILQ_INSERT_TAIL(&s->dead, c, link);
	s->stats.connections--;
	loop_task_post(s->task);
}

struct view
h2_server_date(struct h2_server *s)
{
	uint64_t now_us = clock_wall_us();

	if (s->date_s != now_us / 1000000) {
		s->date_s = now_us / 1000000;
		h1_write_date(now_us, s->date);
	}
	return view_of(s->date, H1_WRITE_DATE_BYTES - 1);
}

static int
server_init(struct h2_server *s)
{
	s->task = loop_task_new(s->loop, server_turn, s);
	if (s->task == NULL || nghttp2_option_new(&s->option) != 0 ||
	    nghttp2_session_callbacks_new(&s->callbacks) != 0)
		return SP_E_NOMEM;
	/* windows open as the consumer takes the bytes */
	nghttp2_option_set_no_auto_window_update(s->option, 1);
	/* no memory of what is over */
	nghttp2_option_set_no_closed_streams(s->option, 1);
	h2_request_callbacks(s->callbacks);
	h2_reply_callbacks(s->callbacks);
	return 0;
}

struct h2_server *
h2_server_new(struct loop *l, const struct exchange_consumer *consumer,
    void *server,
    struct view (*error_body)(void *server, unsigned status, const char *what,
	struct view *type))
{
	struct h2_server *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->loop = l;
	s->consumer = consumer;
	s->arg = server;
	s->error_body = error_body;
	TAILQ_INIT(&s->conns);
	TAILQ_INIT(&s->dirty);
	TAILQ_INIT(&s->dead);
	if (server_init(s) != 0) {
		h2_server_free(s);
		return NULL;
	}
	return s;
}

void
h2_server_free(struct h2_server *s)
{
	struct h2_conn *c;

	if (s == NULL)
		return;
	while ((c = TAILQ_FIRST(&s->conns)) != NULL) {
		h2_conn_gone(c, EXCHANGE_GONE_SHUTDOWN);
		h2_server_kill(c, true);
	}
	server_reap(s);
	loop_task_free(s->task);
	nghttp2_session_callbacks_del(s->callbacks);
	nghttp2_option_del(s->option);
	mem_free(s);
}

/* ---- nghttp2's memory is ours --------------------------------------------- */

static void *
server_malloc(size_t n, void *arg)
{
	(void)arg;
	return mem_alloc_for(MEM_HTTP2, n);
}

static void
server_release(void *p, void *arg)
{
	(void)arg;
	mem_free_for(MEM_HTTP2, p);
}

static void *
server_calloc(size_t n, size_t size, void *arg)
{
	size_t bytes;
	void *p;

	(void)arg;
	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	p = mem_alloc_for(MEM_HTTP2, bytes);
	return p != NULL ? memset(p, 0, bytes) : NULL;
}

static void *
server_realloc(void *p, size_t n, void *arg)
{
	(void)arg;
	return mem_realloc_for(MEM_HTTP2, p, n);
}

nghttp2_mem *
h2_server_mem(void)
{
	static nghttp2_mem mem = { NULL, server_malloc, server_release,
		server_calloc, server_realloc };

	return &mem;
}

int
h2_server_adopt(struct h2_server *s, struct stream *st, struct view bytes,
    uint64_t number, unsigned listener, const struct h1_limits *limits)
{
	struct h2_conn *c = mem_calloc(1, sizeof(*c));
	struct stream_owner owner = { .ready = h2_conn_ready, .arg = c };

	if (c != NULL)
		c->timer = loop_timer_new(s->loop, h2_conn_deadline, c);
	if (c == NULL || c->timer == NULL ||
	    nghttp2_session_server_new3(&c->session, s->callbacks, c, s->option,
		h2_server_mem()) != 0) {
		stream_free(st, false);
		if (c != NULL)
			loop_timer_free(c->timer);
		mem_free(c);
		return SP_E_NOMEM;
	}
	c->server = s;
	c->stream = st;
	c->limits = limits;
	c->number = number;
	c->listener = listener;
	TAILQ_INIT(&c->streams);
	TAILQ_INIT(&c->dirty_streams);
	/* nghttp2 is stopped at H2_OUT_MAX; a frame more may come on top */
	buf_init(&c->out, H2_OUT_MAX + (1 << 20));
	s->stats.connections++;
	s->stats.accepted++;
	TAILQ_INSERT_TAIL(&s->conns, c, link);
	stream_set_owner(st, &owner);
	if (h2_conn_start(c, bytes) != 0)
		h2_conn_gone(c, EXCHANGE_GONE_NOMEM);
	return 0;
}

void
h2_server_drain(struct h2_server *s)
{
	struct h2_conn *c, *next;

	s->draining = true;
	for (c = TAILQ_FIRST(&s->conns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		h2_conn_drain(c);
	}
}

void
h2_server_cut(struct h2_server *s, unsigned listener)
{
	struct h2_conn *c, *next;

	for (c = TAILQ_FIRST(&s->conns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->listener == listener)
			h2_conn_gone(c, EXCHANGE_GONE_SHUTDOWN);
	}
}

unsigned
h2_server_shed(struct h2_server *s, unsigned most)
{
	struct h2_conn *c, *next;
	unsigned n = 0;

	for (c = TAILQ_FIRST(&s->conns); c != NULL && n < most; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->streams_n != 0)
			continue;
		h2_conn_gone(c, EXCHANGE_GONE_NOMEM);
		n++;
	}
	return n;
}

uint64_t
h2_server_queued(const struct h2_server *s)
{
	const struct h2_conn *c;
	uint64_t n = 0;

	TAILQ_FOREACH (c, &s->conns, link)
		n += c->queued + c->out.cap;
	return n;
}

void
h2_server_stats(const struct h2_server *s, struct h2_server_stats *out)
{
	*out = s->stats;
}
