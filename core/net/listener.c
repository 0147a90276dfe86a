#include "config.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/listener.h"

enum { ACCEPTS_A_TURN = 64, PAUSE_MS = 100 };

struct listener {
	struct loop *loop;
	struct loop_fd *lf;
	struct loop_timer *timer;
	void (*accept)(void *arg, struct listener *from, int fd);
	void *arg;
	int fd; /* -1: closed from within its own callback */
	bool calling;
	bool paused; /* by the owner */
	bool short_of; /* descriptors or memory: waits for the timer */
	bool warned;
};

static void
arm(struct listener *x)
{
	unsigned want = x->paused || x->short_of ? 0 : LOOP_READ;

	if (loop_fd_want(x->lf, want) == 0)
		return;
	/* no memory: once more later */
	x->short_of = true;
	loop_timer_set(x->timer, PAUSE_MS);
}

static void
on_timer(void *arg)
{
	struct listener *x = arg;

	x->short_of = false;
	arm(x);
}

static void
rest(struct listener *x, int en)
{
	if (!x->warned)
		log_warn("listener: cannot accept: %s; trying again every "
			 "%d ms",
		    en == EMFILE || en == ENFILE ? "no descriptor left"
						 : "no memory",
		    PAUSE_MS);
	x->warned = true;
	x->short_of = true;
	arm(x);
	loop_timer_set(x->timer, PAUSE_MS);
}

/* False: that was the last one for now. */
static bool
accept_one(struct listener *x)
{
	int fd;

	fd = accept4(x->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd != -1) {
		x->warned = false;
		x->calling = true;
		x->accept(x->arg, x, fd);
		x->calling = false;
		return x->fd != -1 && !x->paused;
	}
	switch (errno) {
	case EAGAIN:
		return false;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
		rest(x, errno);
		return false;
	case EBADF:
	case EINVAL:
	case ENOTSOCK:
	case EOPNOTSUPP:
	case EFAULT:
		err_bug(__FILE__, __LINE__, "accept on no listening socket");
	default:
		/* that connection's own fault, accept(2): the next one */
		return true;
	}
}

static void
on_ready(void *arg, unsigned ready)
{
	struct listener *x = arg;

	(void)ready;
	for (int i = 0; i < ACCEPTS_A_TURN; i++)
		if (!accept_one(x))
			break;
	if (x->fd == -1)
		mem_free(x);
}

int
listener_new(struct loop *l, int fd,
    void (*accept)(void *arg, struct listener *from, int fd), void *arg,
    struct listener **out)
{
	struct listener *x;

	x = mem_calloc(1, sizeof(*x));
	if (x == NULL)
		return SP_E_NOMEM;
	x->loop = l;
	x->fd = fd;
	x->accept = accept;
	x->arg = arg;
	x->lf = loop_fd_new(l, fd, on_ready, x);
	x->timer = loop_timer_new(l, on_timer, x);
	if (x->lf == NULL || x->timer == NULL ||
	    loop_fd_want(x->lf, LOOP_READ) != 0) {
		loop_fd_free(x->lf);
		loop_timer_free(x->timer);
		mem_free(x);
		return SP_E_NOMEM;
	}
	*out = x;
	return 0;
}

void
listener_pause(struct listener *x, bool paused)
{
	x->paused = paused;
	arm(x);
}

void
listener_free(struct listener *x)
{
	if (x == NULL)
		return;
	loop_fd_free(x->lf);
	loop_timer_free(x->timer);
	(void)close(x->fd);
	x->fd = -1;
	/* else on_ready() does, when the callback has returned */
	if (!x->calling)
		mem_free(x);
}
