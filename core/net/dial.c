#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/dial.h"

enum { BACKLOG_RETRY_MS = 10 };

struct attempt {
	struct dial *dial;
	struct loop_fd *lf;
	uint64_t deadline_ms;
	int fd; /* -1: not open */
	bool retry; /* a unix socket's backlog is full */
};

struct dial {
	struct loop *loop;
	struct loop_timer *timer;
	struct loop_task *begin;
	void (
	    *cb)(void *arg, int err, int fd, const struct resolver_addr *addr);
	void *arg;
	uint64_t timeout_ms, stagger_ms;
	uint64_t next_at_ms; /* when the next address is due */
	size_t n, next, open_n;
	size_t won; /* n: none yet */
	int err;
	struct resolver_addr addrs[RESOLVER_ADDRS_MAX];
	struct attempt tries[RESOLVER_ADDRS_MAX];
};

static void
try_close(struct attempt *t)
{
	if (t->fd == -1)
		return;
	loop_fd_free(t->lf);
	t->lf = NULL;
	(void)close(t->fd);
	t->fd = -1;
	t->dial->open_n--;
}

static void
try_failed(struct attempt *t, int err)
{
	t->dial->err = err;
	try_close(t);
}

static void
dial_free(struct dial *d)
{
	for (size_t i = 0; i < d->n; i++)
		try_close(&d->tries[i]);
	loop_timer_free(d->timer);
	loop_task_free(d->begin);
	mem_free(d);
}

static void step(struct dial *d);

static void
on_ready(void *arg, unsigned ready)
{
	struct attempt *t = arg;
	socklen_t len = sizeof(int);
	int en = 0;

	(void)ready;
	if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &en, &len) == -1)
		en = errno;
	if (en != 0)
		try_failed(t, err_from_errno(en));
	else
		t->dial->won = (size_t)(t - t->dial->tries);
	step(t->dial);
}

static void
try_connect(struct attempt *t)
{
	struct dial *d = t->dial;
	const struct resolver_addr *a = &d->addrs[t - d->tries];
	int rc;

	t->retry = false;
	do
		rc = connect(t->fd, (const struct sockaddr *)&a->sa, a->len);
	while (rc == -1 && errno == EINTR);
	if (rc == 0) {
		d->won = (size_t)(t - d->tries);
		return;
	}
	if (errno == EAGAIN && a->sa.ss_family == AF_UNIX) {
		t->retry = true;
		return;
	}
	if (errno != EINPROGRESS && errno != EALREADY) {
		try_failed(t, err_from_errno(errno));
		return;
	}
	t->lf = loop_fd_new(d->loop, t->fd, on_ready, t);
	rc = t->lf == NULL ? SP_E_NOMEM : loop_fd_want(t->lf, LOOP_WRITE);
	if (rc != 0)
		try_failed(t, rc);
}

static void
try_next(struct dial *d)
{
	struct attempt *t = &d->tries[d->next];
	int family = d->addrs[d->next].sa.ss_family;
	uint64_t now = loop_now_ms(d->loop);

	d->next++;
	d->next_at_ms = now + d->stagger_ms;
	t->deadline_ms = now + d->timeout_ms;
	t->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (t->fd == -1) {
		d->err = err_from_errno(errno);
		return;
	}
	d->open_n++;
	try_connect(t);
}

static void
finish(struct dial *d)
{
	void (*cb)(void *, int, int, const struct resolver_addr *) = d->cb;
	struct resolver_addr addr;
	void *arg = d->arg;
	int fd = -1, err = d->err;

	if (d->won < d->n) {
		err = 0;
		addr = d->addrs[d->won];
		/* out of the loop, but not closed */
		fd = d->tries[d->won].fd;
		loop_fd_free(d->tries[d->won].lf);
		d->tries[d->won].fd = -1;
	}
	dial_free(d);
	cb(arg, err, fd, err == 0 ? &addr : NULL);
}

static void
timer_next(struct dial *d)
{
	uint64_t now = loop_now_ms(d->loop), at = UINT64_MAX;

	if (d->stagger_ms != 0 && d->next < d->n)
		at = d->next_at_ms;
	for (size_t i = 0; i < d->next; i++) {
		const struct attempt *t = &d->tries[i];

		if (t->fd == -1)
			continue;
		if (t->deadline_ms < at)
			at = t->deadline_ms;
		if (t->retry && now + BACKLOG_RETRY_MS < at)
			at = now + BACKLOG_RETRY_MS;
	}
	loop_timer_set(d->timer, at > now ? at - now : 0);
}

/* After anything happened: the next address, the end, or more patience. */
static void
step(struct dial *d)
{
	while (d->won == d->n && d->open_n == 0 && d->next < d->n)
		try_next(d);
	if (d->won < d->n || d->open_n == 0)
		finish(d);
	else
		timer_next(d);
}

static void
on_timer(void *arg)
{
	struct dial *d = arg;
	uint64_t now = loop_now_ms(d->loop);

	for (size_t i = 0; i < d->next && d->won == d->n; i++) {
		struct attempt *t = &d->tries[i];

		if (t->fd == -1)
			continue;
		if (t->deadline_ms <= now)
			try_failed(t, SP_E_TIMEOUT);
		else if (t->retry)
			try_connect(t);
	}
	if (d->won == d->n && d->stagger_ms != 0 && d->next < d->n &&
	    d->next_at_ms <= now)
		try_next(d);
	step(d);
}

static void
on_begin(void *arg)
{
	step(arg);
}

int
dial_start(struct loop *l, const struct dial_params *params,
    void (*cb)(void *arg, int err, int fd, const struct resolver_addr *addr),
    void *arg, struct dial **out)
{
	struct dial *d;

	if (params->n == 0 || params->n > RESOLVER_ADDRS_MAX)
		return SP_E_ARG;
	d = mem_calloc(1, sizeof(*d));
	if (d == NULL)
		return SP_E_NOMEM;
	d->loop = l;
	d->cb = cb;
	d->arg = arg;
	d->timeout_ms = params->timeout_ms;
	d->stagger_ms = params->stagger_ms;
	d->n = d->won = params->n;
	memcpy(d->addrs, params->addrs, params->n * sizeof(d->addrs[0]));
	for (size_t i = 0; i < d->n; i++) {
		d->tries[i].dial = d;
		d->tries[i].fd = -1;
	}
	d->timer = loop_timer_new(l, on_timer, d);
	d->begin = loop_task_new(l, on_begin, d);
	if (d->timer == NULL || d->begin == NULL) {
		dial_free(d);
		return SP_E_NOMEM;
	}
	loop_task_post(d->begin);
	*out = d;
	return 0;
}

void
dial_cancel(struct dial *d)
{
	if (d != NULL)
		dial_free(d);
}

int
dial_unix(struct view path, struct resolver_addr *out)
{
	struct sockaddr_un *un = (void *)&out->sa;

	if (path.n == 0 || path.n >= sizeof(un->sun_path))
		return SP_E_LIMIT;
	memset(out, 0, sizeof(*out));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path.p, path.n);
	out->len = sizeof(*un);
	return 0;
}
