/* core/gate/inside.c: who comes in by a listener of an episode. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/gate_priv.h"
#include "gate/inside.h"
#include "ipc/wire.h"
#include "os/fd.h"

#include "conf_text.h"
#include "tap.h"

/* ---- a module that says whose listener it was ------------------------------ */

extern const struct conf_module llm_intercept_conf, status_conf, health_conf;

static struct {
	struct gate_request *held;
	int finishes;
	enum exchange_gone why;
	bool gone;
} seen;

static enum gate_verdict
on_message(struct gate_request *r)
{
	char text[256];

	if (view_eq(r->rest, VIEW("/hold"))) {
		seen.held = r;
		return GATE_HOLD;
	}
	r->status = 200;
	(void)snprintf(text, sizeof(text), "<%.*s %u>", VIEW_ARG(r->episode),
	    gate_generation_of(r));
	return exchange_simple(r->x, 200, VIEW("text/plain"), view_str(text)) ==
		SP_OK
	    ? GATE_DONE
	    : GATE_FAIL;
}

static void
on_gone(struct gate_request *r, enum exchange_gone why)
{
	(void)r;
	seen.gone = true;
	seen.why = why;
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	seen.finishes++;
	if (seen.held == r)
		seen.held = NULL;
	return GATE_PASS;
}

static const struct gate_module door = {
	.conf = &llm_intercept_conf,
	.beneath = true,
	.wants_body = true,
	.hook = { [GATE_MESSAGE] = on_message, [GATE_FINISH] = on_finish },
	.gone = on_gone,
};
static const struct gate_module plain = { .conf = &status_conf };
static const struct gate_module bare = { .conf = &health_conf };
const struct gate_module *const gate_modules[] = { &door, &plain, &bare, NULL };

/* ---- the world ------------------------------------------------------------- */

#define ENV \
	"environment echo { sandbox { uid 300000 4096; }\n" \
	"  inside 127.0.0.1:7000 { client_max_body 100; location /v1 { " \
	"llm_intercept; upstream u;" \
	" capture off; } }\n"
static const char text[] =
    "max_body_bytes_in_flight 1k;"
    "upstream u { server http://127.0.0.1:9/v1; }\n" ENV "}\n"
    "server { listen 127.0.0.1:7000; location /v1 { llm_intercept; upstream u;"
    " capture off; keys open; } }\n";
/* the environment is the same, the rest is not */
static const char same[] =
    "upstream u { server http://127.0.0.1:9/v1; }\n" ENV "}\n"
    "server { listen 127.0.0.1:7000; location /v2 { llm_intercept; upstream u;"
    " capture off; keys open; } }\n";
static const char other[] =
    "upstream u { server http://127.0.0.1:9/v1; }\n" ENV "  episodes 3; }\n"
    "server { listen 127.0.0.1:7000; location /v1 { llm_intercept; upstream u;"
    " capture off; keys open; } }\n";

static struct loop *loop;
static struct loop_timer *stopper;
static struct gate *gate;
static struct conf *conf;

static uint32_t request; /* of the last question */
static int kept_fd = -1;

static int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	struct wire w;

	(void)arg;
	(void)type;
	fd_close(&fd);
	wire_init(&w, body);
	request = wire_u32(&w);
	return SP_OK;
}

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
spin(void)
{
	int i;

	for (i = 0; i < 5; i++) {
		loop_timer_set(stopper, 1);
		if (loop_run(loop) != SP_OK)
			abort();
	}
}

static struct conf *
parse(const char *t)
{
	struct buf err = BUF_INIT(4096);
	struct conf *c = NULL;

	if (conf_text_parse(t, &c, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		abort();
	}
	buf_clear(&err);
	return c;
}

static void
begin(void)
{
	struct buf err = BUF_INIT(4096);

	memset(&seen, 0, sizeof(seen));
	if (gate_new(loop, conf, &gate, &err) != SP_OK ||
	    gate_set_helper(gate, send_helper, NULL) != SP_OK ||
	    gate_start(gate) != SP_OK)
		abort();
}

static void
finish(void)
{
	gate_free(gate);
	gate = NULL;
}

static void
hear(enum message_type type, const uint32_t *v, size_t n, const char *tail,
    int fd)
{
	struct buf b = BUF_INIT(4096);
	struct channel_msg m = { .type = (uint16_t)type, .fd = fd };
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < n && rc == SP_OK; i++)
		rc = wire_put_u32(&b, v[i]);
	if (type == MESSAGE_EPISODE_ENDED && rc == SP_OK)
		rc = wire_put_u8(&b, SANDBOX_END_LOST);
	if (tail != NULL && rc == SP_OK)
		rc = wire_put_bytes(&b, view_str(tail));
	m.body = buf_view(&b);
	if (rc != SP_OK || episode_set_heard(gate_episodes(gate), &m) != SP_OK)
		tap_ok(false, "the helper was understood");
	fd_close(&m.fd);
	buf_clear(&b);
}

/* A socket that listens, as the helper would send it; its port. */
static int
listening(uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) != 0 ||
	    listen(fd, 8) != 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &n) != 0)
		abort();
	*port = ntohs(a.sin_port);
	return fd;
}

static struct episode *
make(const char *id, uint32_t slot, uint16_t *port)
{
	const uint32_t listener[] = { slot, 1, 0 };
	struct episode *ep = NULL;
	uint32_t made[3] = { slot, 1, 0 };

	if (episode_create(gate_episodes(gate), VIEW("echo"), view_str(id),
		NULL, NULL, &ep) != SP_OK)
		abort();
	made[2] = request;
	hear(MESSAGE_EPISODE_LISTENER, listener, 3, NULL, listening(port));
	hear(MESSAGE_EPISODE_MADE, made, 3, "echo", -1);
	return ep;
}

static int
plug(uint16_t port)
{
	const struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0)
		fd_close(&fd);
	if (fd >= 0 && fd_nonblock(fd) != SP_OK)
		abort();
	return fd;
}

/* What these bytes are answered; "" nothing yet. */
static const char *
say_all(int fd, const char *bytes)
{
	static char got[4096];
	ssize_t n;

	if (write(fd, bytes, strlen(bytes)) < 0)
		return "closed";
	spin();
	n = read(fd, got, sizeof(got) - 1);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		return "closed";
	got[n > 0 ? n : 0] = '\0';
	return got;
}

/* What one request on that connection is answered; "" nothing yet. */
static const char *
say(int fd, const char *path)
{
	char head[256];

	(void)snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: h\r\n\r\n",
	    path);
	return say_all(fd, head);
}

static void
answers(int fd, const char *part, const char *what)
{
	const char *got = say(fd, "/v1/x");

	tap_ok(strstr(got, part) != NULL, "%s", what);
	if (strstr(got, part) == NULL)
		tap_diag("%s", got);
}

/* ---- tests ----------------------------------------------------------------- */

static void
test_who(void)
{
	uint16_t one, two;
	int a, b;

	begin();
	(void)make("one", 1, &one);
	(void)make("two", 2, &two);
	a = plug(one);
	b = plug(two);
	answers(a, "<one 1>", "by the listener of one");
	answers(b, "<two 1>", "by the listener of the other");
	tap_ok(strstr(say(a, "/v2"), " 404 ") != NULL, "what is not there");
	answers(a, "<one 1>", "on one connection more");
	fd_close(&a);
	fd_close(&b);
	finish();
}

/* A sixteenth of 1k is less than one body may be: 100. */
static void
test_part(void)
{
#define POST(n) \
	"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: " #n "\r\n\r\n"
#define TEN "0123456789"
	uint16_t one, two;
	const char *got;
	int a, b, c;

	begin();
	(void)make("one", 1, &one);
	(void)make("two", 2, &two);
	a = plug(one);
	b = plug(one);
	c = plug(two);
	got = say_all(a, POST(100) TEN TEN TEN TEN TEN TEN);
	tap_ok(got[0] == '\0', "sixty bytes of a hundred are held");
	got = say_all(b, POST(50));
	tap_ok(strstr(got, " 429 ") != NULL &&
		strstr(got, "Retry-After: ") != NULL &&
		strstr(got, "max_body_bytes_in_flight") != NULL,
	    "fifty more are refused before they come");
	got = say_all(c, POST(10) TEN);
	tap_ok(strstr(got, "<two 1>") != NULL,
	    "of another episode they are not");
	fd_close(&b);
	b = plug(one);
	got = say_all(b, POST(40) TEN TEN TEN TEN);
	tap_ok(strstr(got, "<one 1>") != NULL, "nor what fits");
	got = say_all(a, TEN TEN TEN TEN);
	tap_ok(strstr(got, "<one 1>") != NULL, "the first goes on");
	got = say_all(b, POST(100) TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN);
	tap_ok(strstr(got, "<one 1>") != NULL, "what is over counts no more");
	/* of unknown length: as soon as it is too much */
	got = say_all(a, POST(100) TEN TEN TEN TEN TEN TEN);
	got = say_all(b,
	    "POST /v1/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked"
	    "\r\n\r\n32\r\n" TEN TEN TEN TEN TEN);
	tap_ok(strstr(got, " 429 ") != NULL, "in chunks");
	fd_close(&a);
	fd_close(&b);
	fd_close(&c);
	finish();
#undef POST
#undef TEN
}

static void
test_close(void)
{
	uint32_t ended[] = { 1, 1, 0 };
	struct episode *ep;
	uint16_t port, again;
	int a, b, c;

	begin();
	ep = make("one", 1, &port);
	a = plug(port);
	b = plug(port);
	answers(a, "<one 1>", "it answers");
	tap_is_str(say(b, "/v1/hold"), "", "one is open");
	tap_ok(seen.held != NULL, "at the module");
	tap_is_int(episode_reset(ep, NULL, NULL), SP_OK, "a reset");
	c = plug(port);
	tap_ok(c < 0, "nobody gets in from then on");
	fd_close(&c);
	spin();
	tap_ok(seen.gone && seen.why == EXCHANGE_GONE_SHUTDOWN,
	    "what is open ends");
	tap_is_str(say(a, "/v1/x"), "closed", "and who is in is out");
	ended[2] = request;
	hear(MESSAGE_EPISODE_ENDED, ended, 3, "", -1);
	{
		const uint32_t listener[] = { 3, 7, 0 };
		const uint32_t made[] = { 3, 7, request };

		hear(MESSAGE_EPISODE_LISTENER, listener, 3, NULL,
		    listening(&again));
		hear(MESSAGE_EPISODE_MADE, made, 3, "echo", -1);
	}
	fd_close(&a);
	a = plug(again);
	answers(a, "<one 1>", "its new place answers");
	tap_is_int(episode_end(ep, NULL, NULL), SP_OK, "its end");
	spin();
	tap_is_str(say(a, "/v1/x"), "closed", "is the end of them");
	fd_close(&a);
	fd_close(&b);
	finish();
}

static void
commit(const char *t, uint32_t number)
{
	struct gate_source src = { .owned = parse(t), .number = number };
	struct buf err = BUF_INIT(4096);

	if (gate_prepare(gate, &src, &err) != SP_OK)
		abort();
	if (gate_prepare_keep(gate, 0, 0) != SP_OK)
		abort();
	gate_commit(gate);
	buf_clear(&err);
}

static void
test_reload(void)
{
	uint16_t port, main_port;
	int a;

	begin();
	if (gate_listen(gate, 0, listening(&main_port)) != SP_OK)
		abort();
	(void)make("one", 1, &port);
	a = plug(port);
	answers(a, "<one 1>", "before");
	commit(same, 2);
	answers(a, "<one 2>", "the same environment, the new generation");
	commit(other, 3);
	answers(a, "<one 2>", "another one: it keeps what it has");
	commit(text, 4);
	answers(a, "<one 4>", "until it is the same again");
	fd_close(&a);
	a = plug(main_port);
	answers(a, "< 4>", "outside there is no episode");
	fd_close(&a);
	finish();
}

static void
take_door(void *arg, struct episode *ep, uint32_t index, int fd)
{
	(void)arg;
	tap_ok(ep != NULL && index == 1000 && fd >= 0, "another door's");
	kept_fd = fd;
}

static void
take_source(void *arg, struct episode *ep, bool files, int fd)
{
	(void)arg;
	tap_ok(ep != NULL && !files && fd >= 0, "a source");
	fd_close(&fd);
}

static void
test_hooks(void)
{
	const struct inside_hooks hooks = { take_door, take_source, NULL };
	const uint32_t door_1000[] = { 1, 1, 1000 }, place[] = { 1, 1 };
	uint32_t made[] = { 1, 1, 0 };
	struct episode *ep = NULL;
	uint16_t port;
	int i;

	for (i = 0; i < 2; i++) {
		begin();
		if (i == 1)
			inside_set_hooks(gate_inside(gate), &hooks);
		if (episode_create(gate_episodes(gate), VIEW("echo"), VIEW("e"),
			NULL, NULL, &ep) != SP_OK)
			abort();
		made[2] = request;
		hear(MESSAGE_EPISODE_LISTENER, door_1000, 3, NULL,
		    listening(&port));
		hear(MESSAGE_EPISODE_NFLOG, place, 2, NULL, listening(&port));
		hear(MESSAGE_EPISODE_MADE, made, 3, "echo", -1);
		if (i == 0)
			tap_ok(true, "kept, unread");
		finish();
	}
	tap_ok(kept_fd >= 0, "was handed on");
	fd_close(&kept_fd);
}

static void
test_wrong(void)
{
	uint32_t listener[] = { 1, 1, 5 };
	uint32_t made[] = { 1, 1, 0 };
	struct episode *ep = NULL;
	uint16_t port;
	unsigned long n;
	int i, fd;

	begin();
	if (episode_create(gate_episodes(gate), VIEW("echo"), VIEW("e"), NULL,
		NULL, &ep) != SP_OK)
		abort();
	made[2] = request;
	hear(MESSAGE_EPISODE_LISTENER, listener, 3, NULL, listening(&port));
	hear(MESSAGE_EPISODE_MADE, made, 3, "echo", -1);
	fd = plug(port);
	tap_ok(fd < 0, "an index that is none is closed");
	fd_close(&fd);
	for (i = 0; i < 100; i++)
		hear(MESSAGE_EPISODE_LISTENER, listener, 3, NULL,
		    listening(&port));
	fd = plug(port);
	tap_ok(fd < 0, "not more than some wait");
	fd_close(&fd);
	finish();
	for (n = 1; n < 40; n++) {
		begin();
		mem_fail_after(n, 0);
		listener[2] = 0;
		if (episode_create(gate_episodes(gate), VIEW("echo"), VIEW("e"),
			NULL, NULL, &ep) == SP_OK) {
			const uint32_t good[] = { 1, 1, request };
			struct channel_msg m = { .type =
						     MESSAGE_EPISODE_LISTENER };
			struct buf b = BUF_INIT(64);

			(void)good;
			mem_fail_after(0, 0);
			if (wire_put_u32(&b, 1) != SP_OK ||
			    wire_put_u32(&b, 1) != SP_OK ||
			    wire_put_u32(&b, 0) != SP_OK)
				abort();
			m.body = buf_view(&b);
			m.fd = listening(&port);
			mem_fail_after(n, 0);
			(void)!episode_set_heard(gate_episodes(gate), &m);
			fd_close(&m.fd);
			mem_fail_after(0, 0);
			buf_clear(&b);
			made[2] = request;
			hear(MESSAGE_EPISODE_MADE, made, 3, "echo", -1);
		}
		mem_fail_after(0, 0);
		finish();
	}
	tap_ok(true, "memory that was not there");
}

int
main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	conf = parse(text);
	test_who();
	test_part();
	test_close();
	test_reload();
	test_hooks();
	test_wrong();
	conf_free(conf);
	loop_timer_free(stopper);
	loop_free(loop);
	return tap_done();
}
