#include "sm_conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event_struct.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sm_log.h"

enum {
	READ_BYTES = 65536,
	AHEAD_MAX = 1024 * 1024, /* read beyond the request being answered */
	ACCEPT_BATCH = 64,
	ACCEPT_REST_MS = 50,
	LINGER_MS = 1000,
	STAMP_BASE = 1000000000,
	STAMP_DIGITS = 10
};

enum state {
	CONN_READING,
	CONN_PLAYING,
	CONN_LINGERING /* our side is shut; the peer may still send */
};

struct conn {
	LIST_ENTRY(conn) entry;
	struct sm_server *s;
	struct event rd;
	struct event wr;
	struct event timer;
	int fd;
	enum state state;
	struct buf in;
	struct sm_http http;
	struct sm_reply *reply;
	size_t pos; /* next byte of the reply */
	size_t mark; /* next mark of the reply */
	uint64_t due_ns; /* when the next paced event is to go */
	uint64_t id;
	uint64_t request_n;
	bool paused_rd; /* rd is not in the loop */
	bool close; /* after this reply */
};

struct sm_server {
	struct event_base *base;
	struct sm_answer *answer;
	struct event accept;
	struct event rest; /* until descriptors are free again */
	int fd;
	int log_fd;
	size_t body_max;
	uint64_t conns_n;
	char scratch[READ_BYTES];
	LIST_HEAD(conn_list, conn) conns;
};

enum outcome {
	OUT_WAIT, /* for a timer, the socket, or more of a request */
	OUT_DONE, /* the reply is sent */
	OUT_DEAD /* the connection is freed */
};

static void
conn_free(struct conn *c)
{
	event_del(&c->rd);
	event_del(&c->wr);
	event_del(&c->timer);
	LIST_REMOVE(c, entry);
	sm_http_reset(&c->http);
	sm_reply_unref(c->reply);
	buf_clear(&c->in);
	close(c->fd);
	mem_free(c);
}

static void
conn_end(struct conn *c, const char *how)
{
	sm_log_end(c->s->log_fd, c->id, c->request_n, how, c->pos);
}

static void
start_timer(struct conn *c, uint64_t ns)
{
	struct timeval tv = { (time_t)(ns / 1000000000),
		(suseconds_t)(ns % 1000000000 / 1000) };

	event_add(&c->timer, &tv);
}

/* What cannot be sent because of the peer, or of memory, ends here. */
static enum outcome
conn_lost(struct conn *c)
{
	if (c->state == CONN_PLAYING)
		conn_end(c, "client_closed");
	conn_free(c);
	return OUT_DEAD;
}

static enum outcome
conn_reset(struct conn *c)
{
	struct linger now = { 1, 0 };

	conn_end(c, "cut");
	if (setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) != 0)
		errno = 0; /* a unix socket has no reset: it closes */
	conn_free(c);
	return OUT_DEAD;
}

/* A close with unread input would be a reset: the peer closes first. */
static enum outcome
conn_linger(struct conn *c)
{
	c->state = CONN_LINGERING;
	sm_reply_unref(c->reply);
	c->reply = NULL;
	buf_clear(&c->in);
	if (shutdown(c->fd, SHUT_WR) != 0) {
		conn_free(c);
		return OUT_DEAD;
	}
	event_del(&c->timer);
	start_timer(c, LINGER_MS * 1000000ull);
	if (c->paused_rd && event_add(&c->rd, NULL) == 0)
		c->paused_rd = false;
	return OUT_WAIT;
}

/* Does what the mark says; OUT_DONE when playing can go on at once. */
static enum outcome
play_mark(struct conn *c, const struct sm_mark *m)
{
	uint64_t now;

	switch (m->kind) {
	case SM_MARK_EVENT:
		return OUT_DONE;
	case SM_MARK_PACE:
		if (c->reply->pace <= 0)
			return OUT_DONE;
		c->due_ns += (uint64_t)(1e9 * m->val / c->reply->pace);
		now = clock_ns();
		if (c->due_ns <= now)
			return OUT_DONE;
		start_timer(c, c->due_ns - now);
		return OUT_WAIT;
	case SM_MARK_PAUSE:
		c->due_ns += m->val * 1000000ull;
		start_timer(c, m->val * 1000000ull);
		return OUT_WAIT;
	case SM_MARK_FIN:
		conn_end(c, "cut");
		return conn_linger(c);
	case SM_MARK_RST:
		return conn_reset(c);
	}
	return OUT_DONE;
}

/* Whether writing has to stop at the mark. */
static bool
mark_stops(const struct sm_reply *r, const struct sm_mark *m)
{
	if (m->kind == SM_MARK_EVENT)
		return r->write_n == SM_PER_EVENT;
	return m->kind != SM_MARK_PACE || r->pace > 0;
}

/*
 * Writes the monotonic clock over the first "created" of the bytes that are
 * about to be sent: ten digits, 1000000000 and the microseconds modulo
 * 9000000000.  The bytes are shared, and each send() copies them.
 */
static void
put_stamp(struct sm_reply *r, size_t at, size_t end)
{
	const struct view name = VIEW("\"created\":");
	uint64_t n = STAMP_BASE + clock_us() % (STAMP_BASE * 9ull);
	size_t i;

	at += view_search(view_sub(buf_view(&r->bytes), at, end - at), name);
	if (at + name.n + STAMP_DIGITS > end)
		return;
	for (i = STAMP_DIGITS; i-- > 0; n /= 10)
		r->bytes.mem[r->bytes.off + at + name.n + i] =
		    (char)('0' + n % 10);
}

/* One write; OUT_DONE when something went and the next may follow. */
static enum outcome
play_write(struct conn *c)
{
	struct sm_reply *r = c->reply;
	struct view all = buf_view(&r->bytes);
	size_t end = all.n;
	ssize_t n;

	while (c->mark < r->marks.n && !mark_stops(r, &r->marks.v[c->mark]))
		c->mark++;
	if (c->mark < r->marks.n)
		end = r->marks.v[c->mark].off;
	if (end <= c->pos)
		return OUT_DONE; /* the mark comes first */
	if (r->write_n > 0 && end - c->pos > (size_t)r->write_n)
		end = c->pos + (size_t)r->write_n;
	if (r->stamp)
		put_stamp(r, c->pos, end);
	n = send(c->fd, all.p + c->pos, end - c->pos, MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		event_add(&c->wr, NULL);
		return OUT_WAIT;
	}
	if (n < 0)
		return conn_lost(c);
	c->pos += (size_t)n;
	if (r->write_n > 0 && c->pos < all.n) {
		start_timer(c, r->write_gap_ms * 1000000ull);
		return OUT_WAIT;
	}
	return OUT_DONE;
}

static enum outcome
play(struct conn *c)
{
	enum outcome o = OUT_DONE;

	while (o == OUT_DONE) {
		const struct sm_marks *m = &c->reply->marks;

		if (c->mark < m->n && m->v[c->mark].off <= c->pos)
			o = play_mark(c, &m->v[c->mark++]);
		else if (c->pos < buf_len(&c->reply->bytes))
			o = play_write(c);
		else
			break;
	}
	return o;
}

static void
finish_reply(struct conn *c)
{
	conn_end(c, "complete");
	sm_reply_unref(c->reply);
	c->reply = NULL;
	c->state = CONN_READING;
	if (c->paused_rd && event_add(&c->rd, NULL) == 0)
		c->paused_rd = false;
}

static enum outcome
start_reply(struct conn *c, int rc)
{
	struct sm_answer *a = c->s->answer;

	c->request_n++;
	c->close = c->http.close;
	if (rc == 0) {
		sm_log_request(c->s->log_fd, c->id, c->request_n, &c->http);
		rc = sm_answer_request(a, &c->http, &c->reply);
		if (rc != 0)
			rc = sm_answer_error(500, "the reply could not be made",
			    &c->reply);
	} else {
		rc = sm_answer_error(rc == SP_E_PROTO ? c->http.status : 500,
		    "the request is not one that HTTP/1.1 allows", &c->reply);
		c->close = true;
	}
	sm_http_reset(&c->http);
	if (rc != 0)
		return conn_lost(c);
	if (c->reply->close)
		c->close = true;
	c->state = CONN_PLAYING;
	c->pos = c->mark = 0;
	c->due_ns = clock_ns();
	return OUT_DONE;
}

/* RFC 9110 s10.1.1 */
static void
say_continue(struct conn *c)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";

	c->http.expect = false;
	if (buf_len(&c->http.body) == 0 &&
	    send(c->fd, text, sizeof(text) - 1, MSG_NOSIGNAL) < 0)
		errno = 0; /* the next read tells */
}

/* Goes on as far as input, socket and script allow. */
static void
pump(struct conn *c)
{
	enum outcome o = OUT_DONE;
	int rc;

	while (o == OUT_DONE) {
		if (c->state == CONN_PLAYING) {
			o = play(c);
			if (o != OUT_DONE)
				continue;
			if (c->close) {
				conn_end(c, "complete");
				o = conn_linger(c);
			} else {
				finish_reply(c);
			}
			continue;
		}
		rc = sm_http_feed(&c->http, &c->in);
		if (rc == SP_E_AGAIN) {
			if (c->http.expect)
				say_continue(c);
			o = OUT_WAIT;
		} else {
			o = start_reply(c, rc);
		}
	}
}

static void
on_read(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;
	ssize_t n = recv(fd, c->s->scratch, READ_BYTES, 0);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		(void)conn_lost(c);
		return;
	}
	if (c->state == CONN_LINGERING)
		return;
	if (buf_add(&c->in, c->s->scratch, (size_t)n) != 0) {
		(void)conn_lost(c);
		return;
	}
	if (c->state == CONN_READING)
		pump(c);
	else if (buf_len(&c->in) > AHEAD_MAX && event_del(&c->rd) == 0)
		c->paused_rd = true;
}

static void
on_write(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd;
	(void)what;
	if (c->state == CONN_PLAYING)
		pump(c);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	(void)fd;
	(void)what;
	if (c->state == CONN_LINGERING)
		conn_free(c);
	else if (c->state == CONN_PLAYING)
		pump(c);
}

static void
conn_new(struct sm_server *s, int fd)
{
	struct conn *c = mem_calloc(1, sizeof(*c));
	int on = 1;

	if (c == NULL) {
		close(fd);
		return;
	}
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
		errno = 0; /* not TCP */
	c->s = s;
	c->fd = fd;
	c->id = ++s->conns_n;
	buf_init(&c->in, (size_t)AHEAD_MAX + s->body_max + READ_BYTES);
	sm_http_init(&c->http, s->body_max);
	event_assign(&c->rd, s->base, fd, EV_READ | EV_PERSIST, on_read, c);
	event_assign(&c->wr, s->base, fd, EV_WRITE, on_write, c);
	event_assign(&c->timer, s->base, -1, 0, on_timer, c);
	LIST_INSERT_HEAD(&s->conns, c, entry);
	if (event_add(&c->rd, NULL) != 0)
		conn_free(c);
}

static void
on_accept(evutil_socket_t listener, short what, void *arg)
{
	struct sm_server *s = arg;
	struct timeval rest = { 0, ACCEPT_REST_MS * 1000 };
	int i, fd;

	(void)what;
	for (i = 0; i < ACCEPT_BATCH; i++) {
		fd =
		    accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			conn_new(s, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
		    errno == ENOBUFS) {
			event_del(&s->accept);
			event_add(&s->rest, &rest);
		}
		return;
	}
}

static void
on_rest(evutil_socket_t fd, short what, void *arg)
{
	struct sm_server *s = arg;

	(void)fd;
	(void)what;
	event_add(&s->accept, NULL);
}

struct sm_server *
sm_conn_server_new(struct event_base *base, struct sm_answer *answer,
    int listener, int log_fd, size_t body_max)
{
	struct sm_server *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->base = base;
	s->answer = answer;
	s->fd = listener;
	s->log_fd = log_fd;
	s->body_max = body_max;
	LIST_INIT(&s->conns);
	event_assign(&s->accept, base, listener, EV_READ | EV_PERSIST,
	    on_accept, s);
	event_assign(&s->rest, base, -1, 0, on_rest, s);
	event_add(&s->accept, NULL);
	return s;
}

void
sm_conn_server_free(struct sm_server *s)
{
	struct conn *c, *next;

	if (s == NULL)
		return;
	for (c = LIST_FIRST(&s->conns); c != NULL; c = next) {
		next = LIST_NEXT(c, entry);
		conn_free(c);
	}
	event_del(&s->accept);
	event_del(&s->rest);
	close(s->fd);
	mem_free(s);
}
