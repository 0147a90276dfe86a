/*
 * A gate with one location, /ws, that echoes WebSocket messages, for
 * t/websock.t and t/peers/websocket.t: prints its port, and serves until its
 * input ends.  The argument: milliseconds between pings.  No test of its own.
 */
#include "config.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "gate/gate.h"
#include "gate/websock.h"

extern const struct conf_module status_conf;

static struct websock_params params = { .message_max = 16 << 20,
	.queue_max = 64 << 20,
	.pong_ms = 20000,
	.protocol = VIEW_INIT("mcp") };
static struct loop *loop;

/* One request's. */
struct echo {
	struct websock *s;
};

static void
on_message(void *arg, bool text, struct view data)
{
	struct echo *e = arg;

	if (!text)
		websock_close(e->s, WEBSOCKET_UNSUPPORTED, VIEW("text only"));
	else if (view_eq(data, VIEW("close")))
		websock_close(e->s, 4000, VIEW("as you like"));
	else if (websock_send(e->s, data) == SP_E_LIMIT)
		websock_close(e->s, WEBSOCKET_AGAIN_LATER, VIEW("too slow"));
}

static void
on_closed(void *arg, unsigned code)
{
	struct echo *e = arg;

	(void)code;
	e->s = NULL;
}

static const struct websock_events events = { .message = on_message,
	.closed = on_closed };

static enum gate_verdict
on_head(struct gate_request *r)
{
	int rc = websocket_asked(&r->x->request);

	if (rc == 0) {
		r->streams = true;
		r->ctx = mem_calloc(1, sizeof(struct echo));
		return r->ctx != NULL ? GATE_PASS : GATE_FAIL;
	}
	r->status = rc == SP_E_SYNTAX ? 400 : 426;
	r->reason = "a WebSocket of version 13 is served here";
	return GATE_DENY;
}

static enum gate_verdict
on_ask(struct gate_request *r)
{
	struct echo *e = r->ctx;

	return websock_accept(r, &params, &events, e, &e->s) == 0 ? GATE_HOLD
								  : GATE_FAIL;
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	mem_free(r->ctx);
	return GATE_PASS;
}

static const struct gate_module module = {
	.conf = &status_conf,
	.hook = { on_head, on_ask, on_finish },
};
const struct gate_module *const gate_modules[] = { &module, NULL };

/* ---- the program ----------------------------------------------------------- */

static void
must(int rc, const char *what)
{
	if (rc == SP_OK)
		return;
	fprintf(stderr, "websock_echo: %s: %s\n", what, err_str(rc));
	exit(1);
}

static int
listen_anywhere(unsigned *port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd == -1 || bind(fd, (struct sockaddr *)&sa, n) != 0 ||
	    listen(fd, 512) != 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) != 0)
		must(SP_E_SYS, "listen");
	*port = ntohs(sa.sin_port);
	return fd;
}

static struct conf *
configure(unsigned port)
{
	const struct conf_defaults defaults = { "/nowhere", "/nowhere",
		"/nowhere" };
	struct buf text = BUF_INIT(4096), expanded = BUF_INIT(1 << 16);
	struct buf err = BUF_INIT(4096);
	struct conf *conf;

	must(buf_printf(&text,
		 "server { listen 127.0.0.1:%u; location /ws { status; } }\n",
		 port),
	    "text");
	must(conf_expand_text("echo", buf_view(&text), VIEW_NONE, &expanded,
		 &err),
	    "text");
	must(conf_parse(buf_view(&expanded), &defaults, &conf, &err), "parse");
	buf_clear(&text);
	buf_clear(&expanded);
	buf_clear(&err);
	return conf;
}

static void
on_input(void *arg, unsigned ready)
{
	char c;

	(void)arg;
	(void)ready;
	if (read(STDIN_FILENO, &c, 1) <= 0)
		loop_stop(loop);
}

int
main(int argc, char **argv)
{
	struct buf err = BUF_INIT(4096);
	uint64_t ping_ms = 0;
	struct loop_fd *input;
	struct conf *conf;
	struct gate *gate;
	unsigned port;
	int fd = listen_anywhere(&port);

	if (argc > 1)
		must(num_u64(view_str(argv[1]), 0, 1000000, &ping_ms), "ping");
	params.ping_ms = (uint32_t)ping_ms;
	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	conf = configure(port);
	must(gate_new(loop, conf, &gate, &err), "gate");
	must(gate_listen(gate, 0, fd), "listen");
	must(gate_start(gate), "start");
	input = loop_fd_new(loop, STDIN_FILENO, on_input, NULL);
	if (input == NULL || loop_fd_want(input, LOOP_READ) != 0)
		must(SP_E_SYS, "input");
	printf("%u\n", port);
	fflush(stdout);
	must(loop_run(loop), "loop");
	loop_fd_free(input);
	gate_free(gate);
	conf_free(conf);
	loop_free(loop);
	return 0;
}
