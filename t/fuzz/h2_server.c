/*
 * HTTP/2: whatever bytes a client sends, cut anywhere, the server survives and
 * every exchange ends once.  The first byte says where they are cut; a preface
 * and SETTINGS go before unless it is odd.
 */
#include "config.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../unit/http_app.h"
#include "http/front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct loop *loop;
static struct loop_timer *timer;

static void
on_timer(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

/* A few turns: what was sent is read, what is due is done. */
static void
turn(int fd)
{
	char bytes[65536];

	for (int i = 0; i < 3; i++) {
		loop_timer_set(timer, 0);
		if (loop_run(loop) != 0)
			abort();
		while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			continue;
	}
}

static void
serve(struct front *f, const struct h1_limits *limits, struct view v,
    const uint8_t *how)
{
	static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
				    "\0\0\0\4\0\0\0\0\0";
	size_t cut = *how * v.n / 256;
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) != 0)
		abort();
	if (front_accept(f, fd[1], NULL, 0, limits, NULL) != 0)
		abort();
	if ((*how & 1) == 0)
		(void)!write(fd[0], hello, sizeof(hello) - 1);
	(void)!write(fd[0], v.p, cut);
	turn(fd[0]);
	(void)!send(fd[0], v.p + cut, v.n - cut, MSG_NOSIGNAL);
	turn(fd[0]);
	if (app.held != NULL)
		(void)!exchange_simple(app.held, 200, VIEW("text/plain"),
		    VIEW("held"));
	turn(fd[0]);
	close(fd[0]);
	turn(fd[0]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const struct h1_limits limits = { .header_timeout_ms = 60000,
		.body_timeout_ms = 60000,
		.send_timeout_ms = 60000,
		.keepalive_timeout_ms = 60000,
		.keepalive_requests = 100,
		.header_line_max = 200,
		.header_max = 1000,
		.header_max_n = 10,
		.output_buffer = 4096,
		.body_window = 4096 };
	struct front *f;

	if (loop == NULL) {
		loop = loop_new();
		timer = loop_timer_new(loop, on_timer, NULL);
	}
	if (n < 1 || n > 60000)
		return 0;
	app_reset();
	f = front_new(loop, &app_consumer, &app, app_error);
	if (f == NULL)
		abort();
	serve(f, &limits, view_of(data + 1, n - 1), data);
	front_free(f);
	if (app.opened != app.done + app.gone)
		abort();
	buf_clear(&app.log);
	return 0;
}
