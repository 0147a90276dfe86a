/* The other end of connections under test, and a loop that is waited for. */
#ifndef SP_T_UNIT_HTTP_PEER_H
#define SP_T_UNIT_HTTP_PEER_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "event/loop.h"
#include "tap.h"

enum { PEERS = 8, PEER_TICKS = 20000 };

struct peer {
	int fd; /* -1 none */
	struct buf got;
	bool deaf; /* reads nothing */
	bool eof, reset;
};

static struct loop *loop;
static struct peer peers[PEERS];
static struct loop_timer *peer_timer;
static bool (*peer_cond)(void);
static int peer_ticks;

static void
peer_read(struct peer *p)
{
	char bytes[65536];
	ssize_t n;

	while (p->fd != -1 && !p->deaf && !p->eof && !p->reset) {
		n = read(p->fd, bytes, sizeof(bytes));
		if (n > 0) {
			if (buf_add(&p->got, bytes, (size_t)n) != 0)
				abort();
		} else if (n == 0) {
			p->eof = true;
		} else if (errno == EAGAIN) {
			return;
		} else {
			p->reset = true;
		}
	}
}

static void
peer_tick(void *arg)
{
	size_t i;

	(void)arg;
	for (i = 0; i < PEERS; i++)
		peer_read(&peers[i]);
	if (peer_cond() || --peer_ticks == 0)
		loop_stop(loop);
	else
		loop_timer_set(peer_timer, 1);
}

/* Runs the loop until cond() holds; a test that fails when it never does. */
static bool
wait_for(bool (*cond)(void), const char *what)
{
	peer_cond = cond;
	peer_ticks = PEER_TICKS;
	loop_timer_set(peer_timer, 0);
	if (loop_run(loop) != 0)
		abort();
	return tap_ok(cond(), "%s", what);
}

static bool
peer_never(void)
{
	return false;
}

/* Some turns of the loop, for what must not happen. */
static inline void
wait_turns(int n)
{
	peer_cond = peer_never;
	peer_ticks = n;
	loop_timer_set(peer_timer, 0);
	if (loop_run(loop) != 0)
		abort();
}

static inline void
peer_init(void)
{
	size_t i;

	loop = loop_new();
	peer_timer = loop_timer_new(loop, peer_tick, NULL);
	if (loop == NULL || peer_timer == NULL)
		abort();
	for (i = 0; i < PEERS; i++)
		peers[i] = (struct peer){ .fd = -1, .got = BUF_INIT(1 << 26) };
}

static void
peer_close(struct peer *p)
{
	if (p->fd != -1)
		close(p->fd);
	buf_clear(&p->got);
	*p = (struct peer){ .fd = -1, .got = BUF_INIT(1 << 26) };
}

static inline void
peer_clear(void)
{
	size_t i;

	for (i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	loop_timer_free(peer_timer);
	loop_free(loop);
}

/* A reset, not a FIN. */
static inline void
peer_rst(struct peer *p)
{
	struct linger l = { .l_onoff = 1, .l_linger = 0 };

	if (setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)) != 0)
		abort();
	close(p->fd);
	p->fd = -1;
}

static inline int
peer_listen(uint16_t *port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (fd == -1 || bind(fd, (struct sockaddr *)&sa, n) != 0 ||
	    listen(fd, 16) != 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) != 0)
		abort();
	*port = ntohs(sa.sin_port);
	return fd;
}

/* Two ends over TCP: the server's, non-blocking, is returned. */
static inline int
peer_pair(struct peer *p)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	uint16_t port;
	int l = peer_listen(&port), fd;

	sa.sin_port = htons(port);
	p->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (p->fd == -1 ||
	    connect(p->fd, (struct sockaddr *)&sa, sizeof(sa)) != 0)
		abort();
	do
		fd = accept4(l, NULL, NULL, SOCK_NONBLOCK);
	while (fd == -1 && errno == EAGAIN);
	if (fd == -1 || fcntl(p->fd, F_SETFL, O_NONBLOCK) != 0)
		abort();
	close(l);
	return fd;
}

static inline void
peer_send(struct peer *p, struct view v)
{
	if (send(p->fd, v.p, v.n, MSG_NOSIGNAL) != (ssize_t)v.n)
		tap_diag("short write to the server");
}

static inline bool
peer_has(const struct peer *p, struct view v)
{
	struct view got = buf_view(&p->got);

	return view_search(got, v) != got.n;
}

static inline bool
peer_has_n(const struct peer *p, struct view v, size_t n)
{
	struct view got = buf_view(&p->got);
	size_t at;

	while (n > 0 && (at = view_search(got, v)) != got.n) {
		got = view_from(got, at + v.n);
		n--;
	}
	return n == 0;
}

#endif
