#include "config.h"

#include "bl_load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"

enum {
	READ_BYTES = 256 * 1024,
	BATCH = 256, /* of epoll events */
	READS = 4, /* of one connection before others have their turn */
	STARTS = 128, /* connections begun in one turn of the loop */
	FAILURES_MAX = 20000, /* then no connection is begun anew */
	TICK_MS = 1
};

enum conn_state { CONN_OFF, CONN_CONNECTING, CONN_SENDING, CONN_READING };

struct load;

struct conn {
	struct load *load;
	int fd;
	enum conn_state state;
	size_t sent;
	uint64_t began_us;
	bool writable; /* the loop waits for it */
	struct bl_reply reply;
};

struct load {
	const struct bl_load_plan *plan;
	struct bl_load_result *res;
	struct conn *conns;
	int ep;
	unsigned started; /* connections, in all */
	unsigned open;
	uint64_t requests;
	uint64_t failures;
	uint64_t now_us;
	uint64_t begin_us; /* of the run */
	bool counting; /* within the window */
	bool counted; /* the window is over */
	char scratch[READ_BYTES];
};

/* CPU time of a process: schedstat has nanoseconds. */
static uint64_t
cpu_ns(int pid)
{
	char path[64], text[128];
	struct view v;
	uint64_t n = 0;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	len = read(fd, text, sizeof(text));
	close(fd);
	v = view_of(text, len > 0 ? (size_t)len : 0);
	if (num_u64(view_sub(v, 0, view_find(v, ' ')), 0, UINT64_MAX, &n) != 0)
		return 0;
	return n;
}

static void
read_cpu(struct load *l, bool begin)
{
	unsigned i;

	for (i = 0; i < l->plan->pids_n; i++) {
		uint64_t n = cpu_ns(l->plan->pids[i]);

		l->res->cpu_ns[i] = begin ? n : n - l->res->cpu_ns[i];
	}
}

static void
window(struct load *l)
{
	uint64_t from = l->plan->ramp_us + l->plan->settle_us;
	uint64_t at = l->now_us - l->begin_us;

	if (!l->counting && !l->counted && at >= from) {
		printf("{\"at\":\"open\",\"open\":%u}\n", l->open);
		fflush(stdout);
		read_cpu(l, true);
		l->res->wall_us = clock_us();
		l->counting = true;
	} else if (l->counting && at >= from + l->plan->window_us) {
		read_cpu(l, false);
		l->res->wall_us = clock_us() - l->res->wall_us;
		l->counting = false;
		l->counted = true;
	}
}

static void
conn_close(struct conn *c)
{
	if (c->state == CONN_OFF)
		return;
	close(c->fd);
	c->state = CONN_OFF;
	c->load->open--;
}

static void
fail(struct conn *c, uint64_t *which)
{
	(*which)++;
	c->load->failures++;
	conn_close(c);
}

static void
watch(struct conn *c, bool writable, int op)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

	if (writable)
		ev.events |= EPOLLOUT;
	c->writable = writable;
	if (epoll_ctl(c->load->ep, op, c->fd, &ev) != 0)
		fail(c, &c->load->res->refused);
}

static void
conn_open(struct conn *c)
{
	struct load *l = c->load;
	int on = 1;

	l->started++;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0) {
		l->res->refused++;
		l->failures++;
		return;
	}
	l->open++;
	if (l->open > l->res->open_max)
		l->res->open_max = l->open;
	c->state = CONN_CONNECTING;
	if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
	    (connect(c->fd, (const struct sockaddr *)&l->plan->to,
		 sizeof(l->plan->to)) != 0 &&
		errno != EINPROGRESS))
		fail(c, &l->res->refused);
	else
		watch(c, true, EPOLL_CTL_ADD);
}

static void
conn_send(struct conn *c)
{
	struct view rest = view_from(c->load->plan->request, c->sent);
	ssize_t n = send(c->fd, rest.p, rest.n, MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		fail(c, &c->load->res->lost);
		return;
	}
	c->sent += n > 0 ? (size_t)n : 0;
	if (c->sent == c->load->plan->request.n)
		c->state = CONN_READING;
	if ((c->state == CONN_SENDING) != c->writable)
		watch(c, c->state == CONN_SENDING, EPOLL_CTL_MOD);
}

static void
conn_request(struct conn *c)
{
	c->reply = (struct bl_reply){ 0 };
	c->sent = 0;
	c->state = CONN_SENDING;
	c->began_us = clock_us();
	c->load->requests++;
	conn_send(c);
}

static void
on_event(void *arg, uint64_t stamp)
{
	struct conn *c = arg;
	struct load *l = c->load;

	if (c->reply.events == 1)
		bl_hist_add(&l->res->first_us, l->now_us - c->began_us);
	if (!l->counting)
		return;
	l->res->events++;
	if (l->plan->stamps && stamp != 0)
		bl_hist_add(&l->res->event_us,
		    bl_reply_since(stamp, bl_reply_stamp(l->now_us)));
}

/* Whether more requests are to be sent on connections of closed loops. */
static bool
goes_on(const struct load *l)
{
	return !l->plan->paced && !l->counted &&
	    l->requests < l->plan->requests_max && l->failures < FAILURES_MAX;
}

static void
conn_whole(struct conn *c)
{
	struct load *l = c->load;
	struct bl_reply *r = &c->reply;

	if (r->status != 200) {
		l->res->last_status = r->status;
		fail(c, &l->res->bad_status);
		return;
	}
	if (r->stream && (!r->done || r->events < l->plan->events)) {
		fail(c, &l->res->short_streams);
		return;
	}
	l->res->all_replies++;
	if (l->counting) {
		l->res->replies++;
		l->res->body_bytes += r->body_bytes;
		bl_hist_add(&l->res->reply_us, l->now_us - c->began_us);
	}
	if (!goes_on(l) || r->close)
		conn_close(c);
	else
		conn_request(c);
}

/* One read; false when there is nothing more for now. */
static bool
conn_read(struct conn *c)
{
	struct load *l = c->load;
	ssize_t n = recv(c->fd, l->scratch, READ_BYTES, 0);
	size_t used;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	l->now_us = clock_us();
	if (n <= 0) {
		if (n == 0 && c->reply.state == BL_REPLY_REST)
			conn_whole(c);
		else
			fail(c, &l->res->lost);
		return false;
	}
	if (bl_reply_feed(&c->reply, view_of(l->scratch, (size_t)n), &used,
		on_event, c) != 0 ||
	    used < (size_t)n || c->state == CONN_SENDING)
		fail(c, &l->res->malformed);
	else if (c->reply.state == BL_REPLY_WHOLE)
		conn_whole(c);
	return c->state == CONN_READING && n == READ_BYTES;
}

static void
conn_ready(struct conn *c, uint32_t events)
{
	int i, err = 0;
	socklen_t len = sizeof(err);

	if (c->state == CONN_CONNECTING && (events & ~(uint32_t)EPOLLIN)) {
		if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 ||
		    err != 0) {
			fail(c, &c->load->res->refused);
			return;
		}
		conn_request(c);
	} else if (c->state == CONN_SENDING && (events & EPOLLOUT)) {
		conn_send(c);
	}
	if (c->state < CONN_SENDING || !(events & ~(uint32_t)EPOLLOUT))
		return;
	for (i = 0; i < READS && conn_read(c); i++)
		;
}

/* Begins the connections that are due, and lost ones of closed loops anew. */
static void
start_some(struct load *l)
{
	const struct bl_load_plan *p = l->plan;
	uint64_t at = l->now_us - l->begin_us, due = p->conns;
	unsigned i, n = 0;

	if (at < p->ramp_us)
		due = 1 + at * p->conns / p->ramp_us;
	while (l->started < due && l->started < p->conns && n++ < STARTS)
		conn_open(&l->conns[l->started]);
	if (l->open == p->conns || l->started < p->conns || !goes_on(l))
		return;
	for (i = 0; i < p->conns && n < STARTS; i++)
		if (l->conns[i].state == CONN_OFF) {
			conn_open(&l->conns[i]);
			n++;
		}
}

static bool
is_over(const struct load *l)
{
	if (l->now_us - l->begin_us > l->plan->deadline_us)
		return true;
	if (!l->counted)
		return false;
	return l->plan->paced ? l->started >= l->plan->conns && l->open == 0
			      : true;
}

static int
turn(struct load *l)
{
	struct epoll_event ev[BATCH];
	int i, n = epoll_wait(l->ep, ev, BATCH, TICK_MS);

	if (n < 0 && errno != EINTR)
		return SP_E_SYS;
	l->now_us = clock_us();
	window(l);
	for (i = 0; i < n; i++)
		conn_ready(ev[i].data.ptr, ev[i].events);
	start_some(l);
	return 0;
}

int
bl_load_run(const struct bl_load_plan *plan, struct bl_load_result *res)
{
	struct load *l = mem_calloc(1, sizeof(*l));
	unsigned i;
	int rc = SP_E_NOMEM;

	if (l == NULL)
		return rc;
	l->plan = plan;
	l->res = res;
	l->ep = -1;
	l->conns = mem_calloc(plan->conns, sizeof(*l->conns));
	if (l->conns == NULL)
		goto out;
	rc = SP_E_SYS;
	l->ep = epoll_create1(EPOLL_CLOEXEC);
	if (l->ep < 0)
		goto out;
	for (i = 0; i < plan->conns; i++)
		l->conns[i].load = l;
	l->now_us = l->begin_us = clock_us();
	rc = 0;
	while (rc == 0 && !is_over(l))
		rc = turn(l);
	for (i = 0; i < plan->conns; i++) {
		if (plan->paced && l->conns[i].state != CONN_OFF)
			res->late++;
		conn_close(&l->conns[i]);
	}
out:
	if (l->ep >= 0)
		close(l->ep);
	mem_free(l->conns);
	mem_free(l);
	return rc;
}
