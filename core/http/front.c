#include "config.h"

#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "http/front.h"
#include "net/tlsio.h"

/* RFC 9113 s3.4 */
static const struct view front_preface =
    VIEW_INIT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/* A connection that has not said what it speaks. */
struct front_conn {
	TAILQ_ENTRY(front_conn) link;
	struct front *front;
	struct stream *stream;
	struct loop_timer *timer;
	const struct h1_limits *limits;
	struct buf seen; /* a beginning of the preface */
	uint64_t number;
	unsigned listener;
};

TAILQ_HEAD(front_conn_list, front_conn);

struct front {
	struct loop *loop;
	struct h1_server *h1;
	struct h2_server *h2;
	struct front_conn_list conns;
	uint64_t conns_n, accepted;
	bool told_plain; /* plain HTTP at a TLS port was told of */
};

enum front_protocol { FRONT_UNKNOWN, FRONT_H1, FRONT_H2 };

static void
front_drop(struct front_conn *c, bool graceful)
{
	TAILQ_REMOVE(&c->front->conns, c, link);
	c->front->conns_n--;
	stream_free(c->stream, graceful);
	loop_timer_free(c->timer);
	buf_clear(&c->seen);
	mem_free(c);
}

static enum front_protocol
front_detect(const struct front_conn *c, struct view v)
{
	/* RFC 9113 s3.3: prior knowledge is for cleartext */
	if (stream_is_tls(c->stream))
		return view_eq(stream_alpn(c->stream), VIEW("h2")) ? FRONT_H2
								   : FRONT_H1;
	if (view_starts(v, front_preface))
		return FRONT_H2;
	return view_starts(front_preface, v) ? FRONT_UNKNOWN : FRONT_H1;
}

/* The stream is the codec's from now on. */
static void
front_hand_over(struct front_conn *c, enum front_protocol to, struct view v)
{
	struct front *f = c->front;
	struct stream *st = c->stream;
	struct buf seen = c->seen;
	unsigned listener = c->listener;
	uint64_t number = c->number;
	const struct h1_limits *limits = c->limits;

	c->stream = NULL;
	buf_init(&c->seen, 0);
	front_drop(c, true);
	/* without memory it is closed there */
	if (to == FRONT_H2)
		(void)!h2_server_adopt(f->h2, st, v, number, listener, limits);
	else
		(void)!h1_server_adopt(f->h1, st, v, number, listener, limits);
	buf_clear(&seen);
}

static bool
front_is_plain(const char *why)
{
	return why != NULL && strcmp(why, TLSIO_PLAIN_HTTP) == 0;
}

/* The first one is worth a notice; what comes from scanners is not. */
static void
front_say(struct front_conn *c, const char *why)
{
	bool plain = front_is_plain(why);

	if (!stream_is_tls(c->stream) || why == NULL)
		return;
	if (plain && !c->front->told_plain) {
		c->front->told_plain = true;
		log_notice("TLS handshake failed: %s", why);
	} else {
		log_info("TLS handshake failed: %s", why);
	}
}

/*
 * A client that speaks HTTP where TLS is expected is told so, in HTTP: in TLS
 * it would understand nothing.  The rest of its request is read and dropped.
 */
static void
front_answer_plain(struct front_conn *c)
{
	struct stream *st = c->stream;

	c->stream = NULL;
	stream_drop_tls(st);
	/* without memory it is closed there */
	(void)!h1_server_refuse(c->front->h1, st, c->number, c->listener,
	    c->limits, "the plain HTTP request was sent to HTTPS port");
}

/* It is gone, or its TLS went wrong. */
static void
front_fail(struct front_conn *c)
{
	const char *why = stream_why(c->stream);
	bool plain = stream_is_tls(c->stream) && front_is_plain(why);

	front_say(c, why);
	if (plain)
		front_answer_plain(c);
	front_drop(c, false);
}

static void
front_ready(void *arg, struct stream *s, unsigned what)
{
	struct front_conn *c = arg;
	char *p = loop_scratch(c->front->loop);
	enum front_protocol to;
	struct view v;
	size_t n;
	int rc;

	if ((what & STREAM_FAIL) != 0) {
		front_fail(c);
		return;
	}
	rc = stream_read(s, p, LOOP_SCRATCH_BYTES, &n);
	if (rc == SP_E_AGAIN)
		return;
	v = view_of(p, n);
	if (rc == 0 && buf_len(&c->seen) != 0) {
		rc = buf_add_view(&c->seen, v);
		v = buf_view(&c->seen);
	}
	if (rc != 0) {
		front_drop(c, rc == SP_E_EOF);
		return;
	}
	to = front_detect(c, v);
	if (to != FRONT_UNKNOWN)
		front_hand_over(c, to, v);
	else if (buf_len(&c->seen) == 0 && buf_add_view(&c->seen, v) != 0)
		front_drop(c, false);
}

static void
front_deadline(void *arg)
{
	front_drop(arg, true);
}

int
front_accept(struct front *f, int fd, struct tls_ctx *tls, unsigned listener,
    const struct h1_limits *limits, const struct front_guest *guest)
{
	struct stream_owner owner = { .ready = front_ready };
	struct stream_side side = { .server = true, .tls = tls };
	struct front_conn *c = mem_calloc(1, sizeof(*c));
	int rc;

	if (c == NULL) {
		(void)close(fd);
		return SP_E_NOMEM;
	}
	owner.arg = c;
	rc = stream_new(f->loop, fd, &side, &owner, &c->stream);
	if (rc == 0) {
		c->timer = loop_timer_new(f->loop, front_deadline, c);
		rc = c->timer != NULL ? 0 : SP_E_NOMEM;
	}
	if (rc != 0) {
		stream_free(c->stream, false);
		mem_free(c);
		return rc;
	}
	c->front = f;
	c->limits = limits;
	c->listener = listener;
	c->number = ++f->accepted;
	buf_init(&c->seen, LOOP_SCRATCH_BYTES + 64);
	TAILQ_INSERT_TAIL(&f->conns, c, link);
	f->conns_n++;
	if (limits->header_timeout_ms != 0)
		loop_timer_set(c->timer, limits->header_timeout_ms);
	if (guest != NULL)
		stream_set_guest(c->stream, guest->guest, guest->left);
	stream_want(c->stream, STREAM_READ);
	return 0;
}

struct front *
front_new(struct loop *l, const struct exchange_consumer *consumer,
    void *server,
    struct view (*error_body)(void *server, unsigned status, const char *what,
	struct view *type))
{
	struct front *f = mem_calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->loop = l;
	TAILQ_INIT(&f->conns);
	f->h1 = h1_server_new(l, consumer, server, error_body);
	f->h2 = h2_server_new(l, consumer, server, error_body);
	if (f->h1 == NULL || f->h2 == NULL) {
		front_free(f);
		return NULL;
	}
	return f;
}

void
front_free(struct front *f)
{
	struct front_conn *c;

	if (f == NULL)
		return;
	while ((c = TAILQ_FIRST(&f->conns)) != NULL)
		front_drop(c, true);
	h1_server_free(f->h1);
	h2_server_free(f->h2);
	mem_free(f);
}

void
front_drain(struct front *f)
{
	struct front_conn *c;

	while ((c = TAILQ_FIRST(&f->conns)) != NULL)
		front_drop(c, true);
	h1_server_drain(f->h1);
	h2_server_drain(f->h2);
}

void
front_cut(struct front *f, unsigned listener)
{
	struct front_conn *c, *next;

	for (c = TAILQ_FIRST(&f->conns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->listener == listener)
			front_drop(c, false);
	}
	h1_server_cut(f->h1, listener);
	h2_server_cut(f->h2, listener);
}

unsigned
front_shed(struct front *f, unsigned most)
{
	struct front_conn *c;
	unsigned n = 0;

	while (n < most && (c = TAILQ_FIRST(&f->conns)) != NULL) {
		front_drop(c, false);
		n++;
	}
	n += h2_server_shed(f->h2, most - n);
	return n + h1_server_shed(f->h1, most - n);
}

uint64_t
front_queued(const struct front *f)
{
	return h1_server_queued(f->h1) + h2_server_queued(f->h2);
}

void
front_stats(const struct front *f, struct front_stats *out)
{
	struct h1_server_stats h1;
	struct h2_server_stats h2;

	h1_server_stats(f->h1, &h1);
	h2_server_stats(f->h2, &h2);
	*out = (struct front_stats){
		.connections = f->conns_n + h1.connections + h2.connections,
		.accepted = f->accepted,
		.exchanges = h1.exchanges + h2.exchanges,
		.malformed = h1.malformed + h2.malformed,
		.h2_connections = h2.connections,
		.calmed = h2.calmed,
		.h2_exchanges = h2.exchanges,
		.h2_resets = h2.resets,
	};
	memcpy(out->h2_floods, h2.floods, sizeof(out->h2_floods));
}
