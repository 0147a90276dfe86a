#include "config.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/h1_conn.h"

static void
server_reap(struct h1_server *s)
{
	struct h1_conn *c;

	while ((c = TAILQ_FIRST(&s->dead)) != NULL) {
		TAILQ_REMOVE(&s->dead, c, link);
		/* marked within its last turn */
		if (c->dirty)
			TAILQ_REMOVE(&s->dirty, c, dirty_link);
		buf_clear(&c->in);
		buf_clear(&c->out);
		mem_free(c);
	}
}

/* Each connection once: one that is marked again waits for the next turn. */
static void
server_turn(void *arg)
{
	struct h1_server *s = arg;
	struct h1_conn_list now;
	struct h1_conn *c;

	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &s->dirty, dirty_link);
	while ((c = TAILQ_FIRST(&now)) != NULL) {
		TAILQ_REMOVE(&now, c, dirty_link);
		c->dirty = false;
		if (c->phase != H1_DEAD)
			h1_conn_turn(c);
	}
	server_reap(s);
}

void
h1_server_mark(struct h1_conn *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	TAILQ_INSERT_TAIL(&c->server->dirty, c, dirty_link);
	loop_task_post(c->server->task);
}

/*
 * A dead connection stays where the dirty list has it: its turn is then over
 * before it is reaped.
 */
void
h1_server_kill(struct h1_conn *c, bool graceful)
{
	struct h1_server *s = c->server;

	if (c->phase == H1_DEAD)
		return;
	c->phase = H1_DEAD;
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
h1_server_date(struct h1_server *s)
{
	uint64_t now_us = clock_wall_us();

	if (s->date_s != now_us / 1000000) {
		s->date_s = now_us / 1000000;
		h1_write_date(now_us, s->date);
	}
	return view_of(s->date, H1_WRITE_DATE_BYTES - 1);
}

struct h1_server *
h1_server_new(struct loop *l, const struct exchange_consumer *consumer,
    void *server,
    struct view (*error_body)(void *server, unsigned status, const char *what,
	struct view *type))
{
	struct h1_server *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->loop = l;
	s->consumer = consumer;
	s->arg = server;
	s->error_body = error_body;
	TAILQ_INIT(&s->conns);
	TAILQ_INIT(&s->dirty);
	TAILQ_INIT(&s->dead);
	s->task = loop_task_new(l, server_turn, s);
	if (s->task == NULL) {
		mem_free(s);
		return NULL;
	}
	return s;
}

void
h1_server_free(struct h1_server *s)
{
	struct h1_conn *c;

	if (s == NULL)
		return;
	while ((c = TAILQ_FIRST(&s->conns)) != NULL)
		h1_conn_gone(c, EXCHANGE_GONE_SHUTDOWN);
	server_reap(s);
	loop_task_free(s->task);
	mem_free(s);
}

/* Bytes that wait at most: one read, a head, and requests in the pipeline. */
static size_t
server_in_max(const struct h1_limits *limits)
{
	return (size_t)limits->header_max + 4 * (size_t)LOOP_SCRATCH_BYTES;
}

/*
 * The consumer stops at output_buffer; one piece more, an event of the longest
 * kind, may come on top of it.
 */
static size_t
server_out_max(const struct h1_limits *limits)
{
	return (size_t)limits->output_buffer + ((size_t)256 << 20);
}

/* A connection on which nothing happens yet; NULL: no memory, st is freed. */
static struct h1_conn *
server_add(struct h1_server *s, struct stream *st, uint64_t number,
    unsigned listener, const struct h1_limits *limits)
{
	struct h1_conn *c = mem_calloc(1, sizeof(*c));
	struct stream_owner owner = { .ready = h1_conn_ready, .arg = c };

	if (c != NULL)
		c->timer = loop_timer_new(s->loop, h1_conn_deadline, c);
	if (c == NULL || c->timer == NULL) {
		stream_free(st, false);
		mem_free(c);
		return NULL;
	}
	c->server = s;
	c->stream = st;
	c->limits = limits;
	buf_init(&c->in, server_in_max(limits));
	buf_init(&c->out, server_out_max(limits));
	s->stats.connections++;
	s->stats.accepted++;
	c->x = (struct exchange){ .connection = number,
		.guest = stream_guest(st),
		.listener = listener,
		.backend = &h1_reply_backend,
		.consumer = s->consumer,
		.server = s->arg,
		.back = c };
	TAILQ_INSERT_TAIL(&s->conns, c, link);
	stream_set_owner(st, &owner);
	return c;
}

int
h1_server_adopt(struct h1_server *s, struct stream *st, struct view bytes,
    uint64_t number, unsigned listener, const struct h1_limits *limits)
{
	struct h1_conn *c = server_add(s, st, number, listener, limits);

	if (c == NULL)
		return SP_E_NOMEM;
	h1_conn_start(c, bytes);
	return 0;
}

int
h1_server_refuse(struct h1_server *s, struct stream *st, uint64_t number,
    unsigned listener, const struct h1_limits *limits, const char *what)
{
	struct h1_conn *c = server_add(s, st, number, listener, limits);

	if (c == NULL)
		return SP_E_NOMEM;
	h1_reply_refuse(c, 400, what);
	return 0;
}

/* Until the stream has an owner nothing is wanted of it. */
static void
server_nobody(void *arg, struct stream *st, unsigned what)
{
	(void)arg;
	(void)st;
	(void)what;
}

int
h1_server_accept(struct h1_server *s, int fd, struct tls_ctx *tls,
    unsigned listener, const struct h1_limits *limits)
{
	struct stream_owner owner = { .ready = server_nobody };
	struct stream_side side = { .server = true, .tls = tls };
	struct stream *st;
	int rc = stream_new(s->loop, fd, &side, &owner, &st);

	return rc != 0 ? rc
		       : h1_server_adopt(s, st, VIEW_NONE,
			     s->stats.accepted + 1, listener, limits);
}

void
h1_server_drain(struct h1_server *s)
{
	struct h1_conn *c, *next;

	s->draining = true;
	for (c = TAILQ_FIRST(&s->conns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->phase == H1_IDLE)
			h1_server_kill(c, true);
	}
}

void
h1_server_cut(struct h1_server *s, unsigned listener)
{
	struct h1_conn *c, *next;

	for (c = TAILQ_FIRST(&s->conns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->x.listener == listener)
			h1_conn_gone(c, EXCHANGE_GONE_SHUTDOWN);
	}
}

unsigned
h1_server_shed(struct h1_server *s, unsigned most)
{
	struct h1_conn *c, *next;
	unsigned n = 0;

	for (c = TAILQ_FIRST(&s->conns); c != NULL && n < most; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->phase == H1_OPEN)
			continue;
		h1_server_kill(c, false);
		n++;
	}
	return n;
}

uint64_t
h1_server_queued(const struct h1_server *s)
{
	const struct h1_conn *c;
	uint64_t n = 0;

	TAILQ_FOREACH (c, &s->conns, link)
		n += c->out.cap;
	return n;
}

void
h1_server_stats(const struct h1_server *s, struct h1_server_stats *out)
{
	*out = s->stats;
}
