/* core/gate/relay*.c: what is let out of an episode, and how. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include <openssl/ssl.h>

#include "base/mem.h"
#include "gate/relay.h"
#include "gate/relay_hello.h"
#include "gate/relay_rules.h"
#include "ipc/sandbox_msg.h"
#include "ipc/wire.h"
#include "net_peer.h"
#include "os/fd.h"

/* ---- rules ------------------------------------------------------------------ */

static struct conf_env_rule rules[8];
static struct conf_environment env = { .rules = rules, .connections = 4 };

static void
rule_host(const char *host, uint16_t low, uint16_t high)
{
	rules[env.rules_n++] = (struct conf_env_rule){ .is_host = true,
		.proto = IPPROTO_TCP,
		.host = view_str(host),
		.port_low = low,
		.port_high = high };
}

static void
rule_net(uint8_t proto, uint32_t net, uint8_t prefix, uint16_t port)
{
	rules[env.rules_n++] = (struct conf_env_rule){ .proto = proto,
		.net = net,
		.prefix = prefix,
		.port_low = port,
		.port_high = port };
}

static bool
lets_host(const char *name, uint16_t port)
{
	return relay_rules_host(&env, view_str(name), port) != NULL;
}

static void
test_rules(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bad;

	env.rules_n = 0;
	rule_host("packages.example", 443, 443);
	rule_host("*.cdn.example", 8000, 8010);
	rule_net(IPPROTO_TCP, 0xcb007100, 24, 80);
	rule_net(IPPROTO_UDP, 0xcb007200, 24, 53);
	rule_net(IPPROTO_TCP, 0, 0, 22);
	tap_ok(lets_host("packages.example", 443), "a host");
	tap_ok(!lets_host("packages.example", 80), "not at another port");
	tap_ok(!lets_host("x.packages.example", 443), "not what is below it");
	tap_ok(!lets_host("ackages.example", 443), "not a part of it");
	tap_ok(lets_host("a.cdn.example", 8000), "below a suffix");
	tap_ok(lets_host("b.a.cdn.example", 8010), "far below it");
	tap_ok(!lets_host("cdn.example", 8000), "not the suffix itself");
	tap_ok(!lets_host(".cdn.example", 8000), "nor with nothing below");
	tap_ok(!lets_host("evilcdn.example", 8000), "the dot counts");
	tap_ok(!lets_host("a.cdn.example", 8011), "ports have an end");
	tap_ok(!lets_host("a.cdn.example", 7999), "and a beginning");
	tap_ok(relay_rules_addr(&env, 0xcb007105, 80) != NULL, "a network");
	tap_ok(relay_rules_addr(&env, 0xcb007205, 80) == NULL, "not the next");
	tap_ok(relay_rules_addr(&env, 0xcb007205, 53) == NULL,
	    "a rule for udp is none for tcp");
	tap_ok(relay_rules_addr(&env, 0x08080808, 22) != NULL, "everywhere");
	tap_ok(relay_rules_addr(&env, 0x7f000001, 22) == NULL &&
		relay_rules_addr(&env, 0xa9fea9fe, 22) == NULL &&
		relay_rules_addr(&env, 0x0a000001, 22) == NULL,
	    "is not loopback, metadata or private");
	tap_ok(relay_rules_hosts(&env, 443) && relay_rules_hosts(&env, 8005) &&
		!relay_rules_hosts(&env, 80),
	    "ports that hosts have");

	tap_ok(relay_rules_is_local(fd, 0x7f000001), "loopback is local");
	tap_ok(relay_rules_is_local(fd, 0x7f123456), "all of it");
	tap_ok(!relay_rules_is_local(fd, 0xcb0071fe), "the outside is not");
	bad = open("/dev/null", O_RDONLY | O_CLOEXEC);
	tap_ok(relay_rules_is_local(bad, 0xcb0071fe),
	    "what cannot be told counts as local");
	fd_close(&bad);
	fd_close(&fd);
}

/* ---- ClientHellos ----------------------------------------------------------- */

static char hello_mem[8192];

/* A real one, with that name or (NULL) none. */
static struct view
hello_make(const char *name, bool old)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *s = SSL_new(ctx);
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	int n;

	if (old)
		SSL_set_max_proto_version(s, TLS1_2_VERSION);
	if (name != NULL)
		/* only read: the macro for this drops its const */
		(void)SSL_ctrl(s, SSL_CTRL_SET_TLSEXT_HOSTNAME,
		    TLSEXT_NAMETYPE_host_name, (void *)(uintptr_t)name);
	SSL_set_bio(s, in, out);
	SSL_set_connect_state(s);
	(void)SSL_do_handshake(s);
	n = BIO_read(out, hello_mem, sizeof(hello_mem));
	SSL_free(s);
	SSL_CTX_free(ctx);
	return view_of(hello_mem, n > 0 ? (size_t)n : 0);
}

static struct buf cut = BUF_INIT(128 * 1024);

/* The message in records of so many bytes. */
static struct view
hello_cut(struct view v, size_t each)
{
	static const char head[] = { 22, 3, 1 };

	buf_reset(&cut, SIZE_MAX);
	v = view_from(v, 5);
	while (v.n > 0) {
		size_t n = v.n < each ? v.n : each;
		const char len[2] = { (char)(n >> 8), (char)n };

		TAP_NEVER(buf_add(&cut, head, 3) != SP_OK ||
		    buf_add(&cut, len, 2) != SP_OK ||
		    buf_add(&cut, v.p, n) != SP_OK);
		v = view_from(v, n);
	}
	return buf_view(&cut);
}

static char name_mem[RELAY_HELLO_NAME_MAX];
static size_t name_n;

static int
hello_read(struct view v)
{
	/* its own memory, so that a byte too far shows */
	char *own = malloc(v.n > 0 ? v.n : 1);
	int rc;

	memcpy(own, v.n > 0 ? v.p : "", v.n);
	rc = relay_hello_read(view_of(own, v.n), name_mem, &name_n);
	free(own);
	return rc;
}

static bool
named(const char *name)
{
	return view_eq(view_of(name_mem, name_n), view_str(name));
}

static void
test_hello(void)
{
	struct view v;
	size_t i;
	int odd = 0;

	tap_ok(hello_read(hello_make("Packages.Example", false)) == 0 &&
		named("packages.example"),
	    "TLS 1.3: the name, in lower case");
	tap_ok(hello_read(hello_make("packages.example", true)) == 0 &&
		named("packages.example"),
	    "TLS 1.2");
	tap_ok(hello_read(hello_make(NULL, false)) == 0 && name_n == 0,
	    "one without a name");
	v = hello_make("packages.example", false);
	for (i = 0; i < v.n; i++)
		odd += hello_read(view_sub(v, 0, i)) != SP_E_AGAIN;
	tap_is_int(odd, 0, "any part of it is not enough");
	for (i = v.n / 60; i < v.n; i++)
		odd += hello_read(hello_cut(v, i)) != 0 ||
		    !named("packages.example");
	tap_is_int(odd, 0, "cut into records in any way");
	tap_is_int(hello_read(hello_cut(v, 1)), SP_E_LIMIT,
	    "but not into hundreds");
	v = hello_cut(v, 100);
	for (i = 0; i < v.n; i++)
		odd += hello_read(view_sub(v, 0, i)) != SP_E_AGAIN;
	tap_is_int(odd, 0, "any part of those is not enough");
	mem_fail_after(1, 0);
	tap_is_int(hello_read(v), SP_E_NOMEM, "no memory to join them");
	mem_fail_after(0, 0);
}

/* Every byte of it changed: never a name that it has not. */
static void
test_hello_odd(void)
{
	struct view v = hello_make("packages.example", false);
	char mem[sizeof(hello_mem)];
	int names = 0, bad = 0;
	size_t i;

	memcpy(mem, v.p, v.n);
	for (i = 0; i < v.n; i++) {
		int rc;

		mem[i] ^= 0x41;
		rc = hello_read(view_of(mem, v.n));
		bad += rc != 0 && rc != SP_E_AGAIN && rc != SP_E_SYNTAX &&
		    rc != SP_E_LIMIT;
		names += rc == 0 && name_n == 0;
		mem[i] ^= 0x41;
	}
	tap_is_int(bad, 0, "a byte changed: errors are those that are said");
	tap_ok(names <= 2, "an extension more is not the name's");
	tap_is_int(hello_read(VIEW("GET / HTTP/1.1\r\n")), SP_E_SYNTAX,
	    "HTTP is none");
	tap_is_int(hello_read(VIEW("\x80")), SP_E_SYNTAX, "nor SSL 2");
	tap_is_int(hello_read(VIEW("\x16\x03\x01\x00\x00")), SP_E_SYNTAX,
	    "an empty record");
	tap_is_int(hello_read(VIEW("\x16\x03\x01\x40\x01")), SP_E_SYNTAX,
	    "a record that is too long");
	tap_is_int(hello_read(VIEW("\x16\x03\x01\x00\x04\x01\x00\x40\x01")),
	    SP_E_LIMIT, "a message that is too long");
	tap_is_int(hello_read(VIEW("\x16\x03\x01\x00\x04\x02\x00\x00\x10")),
	    SP_E_SYNTAX, "another message");
	/* one byte more in the record than the message has */
	mem[4]++;
	mem[v.n] = 0;
	tap_is_int(hello_read(view_of(mem, v.n + 1)), SP_E_SYNTAX,
	    "something behind it in its record");
	mem[4]--;
	tap_ok(hello_read(view_of(mem, v.n + 1)) == 0,
	    "records behind it are not looked at");
}

/* ---- an episode, its door, and somebody outside ------------------------------ */

static struct relay *relay;
static struct episode_set *set;
static struct episode *ep;
static struct resolver *resolver;
static struct metrics *metrics;
static bool protect; /* what no rule opens is not */
static bool deny_all; /* every address is this host's */
static uint16_t door_port, out_port;
static int outside = -1; /* listens */
static uint32_t origin_addr;
static int origin_rc;

static struct {
	unsigned n;
	struct relay_decision d;
	char why[64];
} told;

/* One end of a connection that the test holds. */
static struct end {
	int fd;
	struct buf got;
	bool eof, reset;
} cl, sv;

static int
send_helper(void *arg, enum message_type type, struct view body, int fd)
{
	(void)arg;
	(void)type;
	(void)body;
	fd_close(&fd);
	return SP_OK;
}

static const struct conf_environment *
on_rules(void *arg, const struct episode *of)
{
	(void)arg;
	(void)of;
	return &env;
}

static void
on_decided(void *arg, const struct episode *of, const struct relay_decision *d)
{
	(void)arg;
	(void)of;
	told.n++;
	told.d = *d;
	(void)snprintf(told.why, sizeof(told.why), "%s", d->why);
}

static bool
on_reachable(void *arg, uint32_t addr)
{
	(void)arg;
	return !deny_all && (!protect || !conf_env_protected(addr, 32));
}

static int
on_origin(void *arg, int fd, uint32_t *addr, uint16_t *port)
{
	(void)arg;
	(void)fd;
	*addr = origin_addr;
	*port = out_port;
	return origin_rc;
}

static const struct relay_world world_usual = {
	.rules = on_rules,
	.decided = on_decided,
	.reachable = on_reachable,
	.origin = on_origin,
};

static int
hear(enum message_type type, uint32_t a, uint32_t b, uint32_t c,
    const char *text)
{
	struct buf b1 = BUF_INIT(256);
	struct channel_msg m = { .type = (uint16_t)type, .fd = -1 };
	int rc;

	rc = wire_put_u32(&b1, a);
	rc += wire_put_u32(&b1, b);
	rc += wire_put_u32(&b1, c);
	rc += wire_put_bytes(&b1, view_str(text));
	m.body = buf_view(&b1);
	rc = rc == SP_OK ? episode_set_heard(set, &m) : rc;
	buf_clear(&b1);
	return rc;
}

static void
door_open(uint32_t index)
{
	int fd = peer_bound(SOCK_STREAM, &door_port);

	relay_door(relay, ep, index, fd);
}

/* Rules for "localhost" at the port where somebody listens. */
static void
world_open(const struct relay_world *w, uint32_t index)
{
	const struct episode_world ew = { .loop = loop, .send = send_helper };
	struct relay_world mine = *w;

	memset(&told, 0, sizeof(told));
	env.rules_n = 0;
	env.connections = 4;
	protect = false;
	origin_rc = 0;
	origin_addr = 0xcb007107;
	outside = peer_bound(SOCK_STREAM, &out_port);
	TAP_NEVER(fd_nonblock(outside) != SP_OK);
	rule_host("localhost", out_port, out_port);
	metrics = metrics_new();
	resolver = resolver_new(loop, NULL, 0);
	set = episode_set_new(&ew);
	mine.loop = loop;
	mine.metrics = metrics;
	mine.resolver = resolver;
	if (relay_new(&mine, &relay) != SP_OK ||
	    episode_create(set, VIEW("echo"), VIEW("e1"), NULL, NULL, &ep) !=
		SP_OK ||
	    hear(MESSAGE_EPISODE_MADE, 3, 1, LIST_FIRST(&ep->ops)->request,
		"echo") != SP_OK)
		tap_ok(false, "an episode with doors");
	door_open(index);
}

static void
world_close(void)
{
	relay_free(relay);
	episode_set_free(set);
	resolver_free(resolver);
	metrics_free(metrics);
	fd_close(&outside);
}

/* ---- both ends -------------------------------------------------------------- */

static void
end_poll(struct end *e)
{
	static char mem[65536];
	ssize_t n;

	while (e->fd >= 0 && !e->eof && !e->reset) {
		n = recv(e->fd, mem, sizeof(mem), MSG_DONTWAIT);
		if (n > 0)
			TAP_NEVER(buf_add(&e->got, mem, (size_t)n) != 0);
		else if (n == 0)
			e->eof = true;
		else if (errno == EAGAIN)
			return;
		else
			e->reset = true;
	}
}

static void
end_close(struct end *e)
{
	fd_close(&e->fd);
	/* its memory stays: allocations that fail are not the test's */
	buf_reset(&e->got, SIZE_MAX);
	e->eof = e->reset = false;
}

static bool (*until)(void);
static struct loop_timer *tick;
static bool sv_deaf; /* it does not read */

static void
on_tick(void *arg)
{
	(void)arg;
	if (sv.fd < 0 && outside >= 0)
		sv.fd =
		    accept4(outside, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	end_poll(&cl);
	if (!sv_deaf)
		end_poll(&sv);
	if (until())
		loop_stop(loop);
	else
		loop_timer_set(tick, 1);
}

static void
run_until(bool (*cond)(void))
{
	until = cond;
	loop_timer_set(tick, 0);
	peer_run();
	loop_timer_stop(tick);
}

static bool
client_replied(void)
{
	return cl.eof || cl.reset ||
	    view_search(buf_view(&cl.got), VIEW("\r\n\r\n")) < buf_len(&cl.got);
}
static bool
client_over(void)
{
	return cl.eof || cl.reset;
}
static bool
client_got(void)
{
	return client_over() || buf_len(&cl.got) > 0;
}
static bool
server_got(void)
{
	return sv.eof || sv.reset || buf_len(&sv.got) > 0;
}
static bool
server_over(void)
{
	return sv.eof || sv.reset;
}
static bool
all_gone(void)
{
	return relay_count(relay) == 0;
}

static void
client_come(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
		.sin_port = htons(door_port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	cl.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(cl.fd, (void *)&in, sizeof(in)) != 0 ||
	    fd_nonblock(cl.fd) != SP_OK)
		tap_ok(false, "connects to the door");
}

static void
say(const struct end *e, struct view v)
{
	TAP_NEVER(send(e->fd, v.p, v.n, MSG_NOSIGNAL) != (ssize_t)v.n);
}

static void
ask(const char *target)
{
	char line[512];
	int n = snprintf(line, sizeof(line),
	    "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target);

	client_come();
	say(&cl, view_of(line, (size_t)n));
}

/* To who listens outside, by the name that is allowed. */
static void
ask_outside(void)
{
	char target[64];

	(void)snprintf(target, sizeof(target), "LocalHost:%u", out_port);
	ask(target);
}

static unsigned
status(void)
{
	unsigned s = 0;

	run_until(client_replied);
	if (view_starts(buf_view(&cl.got), VIEW("HTTP/1.1 ")))
		for (int i = 9; i < 12; i++)
			s = s * 10 + (unsigned)(buf_view(&cl.got).p[i] - '0');
	buf_reset(&cl.got, SIZE_MAX);
	return s;
}

static void
ends_close(void)
{
	end_close(&cl);
	end_close(&sv);
	run_until(all_gone);
}

/* ---- CONNECT ---------------------------------------------------------------- */

static void
test_connect(void)
{
	struct view v;

	world_open(&world_usual, SANDBOX_DOOR_CONNECT);
	ask_outside();
	tap_is_int(status(), 200, "CONNECT to a host that is allowed");
	tap_is_int(told.n, 0, "nothing is decided before the name in TLS");
	v = hello_make("localhost", false);
	say(&cl, view_sub(v, 0, 20));
	say(&cl, view_from(v, 20));
	run_until(server_got);
	tap_ok(view_eq(buf_view(&sv.got), v), "its ClientHello goes there");
	tap_ok(told.n == 1 && told.d.verdict == RELAY_ALLOWED &&
		!told.d.ended && told.d.port == out_port &&
		told.d.addr == INADDR_LOOPBACK,
	    "and that is told");
	say(&sv, VIEW("hello back"));
	run_until(client_got);
	tap_ok(view_eq(buf_view(&cl.got), VIEW("hello back")), "and back");
	buf_reset(&sv.got, SIZE_MAX);
	(void)shutdown(cl.fd, SHUT_WR);
	run_until(server_over);
	tap_ok(sv.eof, "its end arrives as such");
	buf_reset(&cl.got, SIZE_MAX);
	say(&sv, VIEW("last words"));
	fd_close(&sv.fd);
	fd_close(&outside);
	run_until(client_over);
	tap_ok(cl.eof && view_eq(buf_view(&cl.got), VIEW("last words")),
	    "the other way lives until its own");
	run_until(all_gone);
	tap_ok(told.n == 2 && told.d.ended && told.d.sent == v.n &&
		told.d.received == 20,
	    "its bytes are told");
	ends_close();
	world_close();
}

static void
refused(const char *target, unsigned want, const char *why)
{
	unsigned got;

	ask(target);
	got = status();
	tap_ok(got == want && strcmp(told.why, why) == 0, "%s: %u, %s (%u, %s)",
	    target, want, why, got, told.why);
	run_until(client_over);
	tap_ok(cl.eof, "and the end, no reset");
	ends_close();
}

static void
test_refused(void)
{
	char target[64];

	world_open(&world_usual, SANDBOX_DOOR_CONNECT);
	refused("other.example:443", 403, "rules");
	refused("localhost:1", 403, "rules");
	refused("127.0.0.1:443", 403, "address");
	refused("[::1]:443", 403, "address");
	refused("0x7f.1:443", 400, "target");
	refused("2130706433:443", 400, "target");
	refused("localhost", 400, "target");
	refused("localhost:0", 400, "target");
	refused("localhost:65536", 400, "request");
	refused(":443", 400, "target");
	refused("user@localhost:443", 400, "request");
	protect = true;
	(void)snprintf(target, sizeof(target), "localhost:%u", out_port);
	refused(target, 403, "protected");
	tap_is_int(told.d.addr, INADDR_LOOPBACK, "with what it was");
	protect = false;
	fd_close(&outside);
	refused(target, 502, "connection refused");
	tap_is_int(told.d.verdict, RELAY_FAILED, "which is no denial");
	world_close();
}

static void
refused_text(struct view text, unsigned want, const char *what)
{
	client_come();
	say(&cl, text);
	tap_is_int(status(), want, what);
	ends_close();
}

static void
test_requests(void)
{
	struct buf b = BUF_INIT(65536);
	int i;

	world_open(&world_usual, SANDBOX_DOOR_CONNECT);
	refused_text(VIEW("GET http://localhost/ HTTP/1.1\r\nHost: "
			  "localhost\r\n\r\n"),
	    405, "GET is not served");
	refused_text(VIEW("CONNECT localhost:443 HTTP/1.1\r\n\r\n"), 400,
	    "without Host");
	refused_text(VIEW("CONNECT localhost:443 HTTP/1.1\r\nHost: a\r\n"
			  "Content-Length: 5\r\n\r\nhello"),
	    400, "with content");
	refused_text(VIEW("CONNECT http://localhost:443/ HTTP/1.1\r\n"
			  "Host: localhost\r\n\r\n"),
	    400, "with a whole URL");
	refused_text(VIEW("\x16\x03\x01\x02\x00\x01\r\n\r\n"), 400, "TLS");
	TAP_NEVER(buf_add_str(&b, "CONNECT localhost:443 HTTP/1.1\r\n") != 0);
	for (i = 0; i < 200; i++)
		TAP_NEVER(buf_printf(&b, "X-%d: %0200d\r\n", i, i) != 0);
	refused_text(buf_view(&b), 431, "a head that is too long");
	buf_clear(&b);
	client_come();
	say(&cl, VIEW("CONN"));
	end_close(&cl);
	run_until(all_gone);
	tap_ok(strcmp(told.why, "left") == 0, "one that leaves half way");
	world_close();
}

static void
cut_for(struct view hello, const char *why, const char *what)
{
	ask_outside();
	TAP_NEVER(status() != 200);
	say(&cl, hello);
	run_until(client_over);
	run_until(server_over);
	tap_ok(cl.reset && buf_len(&sv.got) == 0 &&
		told.d.verdict == RELAY_DENIED && strcmp(told.why, why) == 0,
	    "%s: cut, and nothing went out (%s)", what, told.why);
	ends_close();
}

static void
test_server_name(void)
{
	world_open(&world_usual, SANDBOX_DOOR_CONNECT);
	cut_for(hello_make("evil.example", false), "server_name",
	    "another name");
	cut_for(hello_cut(hello_make("evil.example", true), 30), "server_name",
	    "another name in pieces");
	cut_for(hello_make(NULL, false), "no_server_name", "no name");
	cut_for(VIEW("GET / HTTP/1.1\r\n\r\n"), "no_tls", "no TLS");
	world_close();
}

/* The ClientHello right behind the request, in one piece. */
static void
test_eager(void)
{
	struct buf b = BUF_INIT(16384);
	struct view v;

	world_open(&world_usual, SANDBOX_DOOR_CONNECT);
	v = hello_make("localhost", false);
	TAP_NEVER(buf_printf(&b,
		      "CONNECT localhost:%u HTTP/1.1\r\nHost: "
		      "localhost\r\n\r\n",
		      out_port) != 0 ||
	    buf_add_view(&b, v) != 0);
	client_come();
	say(&cl, buf_view(&b));
	run_until(server_got);
	tap_ok(view_eq(buf_view(&sv.got), v), "one that does not wait for 200");
	buf_clear(&b);
	ends_close();
	world_close();
}

/* ---- limits ----------------------------------------------------------------- */

static bool
many_open(void)
{
	return relay_count(relay) == env.connections;
}

static void
test_limits(void)
{
	struct relay_world w = world_usual;
	int more[4];
	size_t i;

	world_open(&w, SANDBOX_DOOR_CONNECT);
	for (i = 0; i < 4; i++) {
		client_come();
		more[i] = cl.fd;
		cl.fd = -1;
	}
	run_until(many_open);
	ask_outside();
	tap_is_int(status(), 503, "one connection too many is told so");
	tap_ok(strcmp(told.why, "connections") == 0, "as a denial");
	for (i = 0; i < 4; i++)
		fd_close(&more[i]);
	ends_close();
	ask_outside();
	tap_is_int(status(), 200, "and there is room again");
	ends_close();
	world_close();

	w.head_ms = w.hello_ms = w.idle_ms = 20;
	world_open(&w, SANDBOX_DOOR_CONNECT);
	client_come();
	tap_is_int(status(), 408, "one that asks for nothing");
	ends_close();
	ask_outside();
	TAP_NEVER(status() != 200);
	run_until(client_over);
	tap_ok(cl.reset, "one that says nothing after 200");
	ends_close();
	ask_outside();
	TAP_NEVER(status() != 200);
	say(&cl, hello_make("localhost", false));
	run_until(client_over);
	tap_ok(cl.reset && strcmp(told.why, "idle") == 0,
	    "one that says nothing any more");
	ends_close();
	world_close();
}

static size_t sent_n;
static bool
client_stuck(void)
{
	static char mem[65536];
	static unsigned quiet;
	ssize_t n = send(cl.fd, mem, sizeof(mem), MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0) {
		sent_n += (size_t)n;
		quiet = 0;
		return false;
	}
	return ++quiet > 50;
}
static size_t want_n;
static bool
server_has_all(void)
{
	return server_over() || buf_len(&sv.got) == want_n;
}

static void
test_pressure(void)
{
	size_t before, most;
	struct view v;

	world_open(&world_usual, SANDBOX_DOOR_CONNECT);
	ask_outside();
	TAP_NEVER(status() != 200);
	v = hello_make("localhost", false);
	say(&cl, v);
	run_until(server_got);
	buf_clear(&sv.got);
	buf_init(&sv.got, 256 * 1024 * 1024);
	want_n = 0;
	before = mem_live();
	sv_deaf = true;
	run_until(client_stuck);
	most = mem_live() - before;
	tap_ok(most <= 256 * 1024, "who does not read stops who sends (%zu)",
	    most);
	sv_deaf = false;
	want_n = sent_n;
	run_until(server_has_all);
	tap_ok(!server_over() && buf_len(&sv.got) == sent_n,
	    "all of %zu bytes arrive", sent_n);
	ends_close();
	world_close();
}

/* ---- turned connections ----------------------------------------------------- */

static void
turned_cut(struct view first, const char *why)
{
	client_come();
	if (first.n > 0)
		say(&cl, first);
	run_until(client_over);
	tap_ok(cl.reset && told.d.way == RELAY_TURNED &&
		strcmp(told.why, why) == 0,
	    "turned: cut for %s (%s)", why, told.why);
	ends_close();
}

static void
test_turned(void)
{
	struct view v;

	world_open(&world_usual, SANDBOX_DOOR_RELAY);
	v = hello_make("localhost", false);
	client_come();
	say(&cl, v);
	run_until(server_got);
	tap_ok(view_eq(buf_view(&sv.got), v),
	    "turned: by its name, wherever it was for");
	tap_is_int(told.d.addr, INADDR_LOOPBACK, "to the name's own address");
	ends_close();
	turned_cut(hello_make("evil.example", false), "server_name");
	turned_cut(hello_make(NULL, false), "no_server_name");
	turned_cut(VIEW("SSH-2.0-x\r\n"), "no_tls");
	protect = true;
	turned_cut(hello_make("localhost", false), "protected");
	origin_addr = 0xa9fea9fe;
	turned_cut(VIEW_NONE, "rules");
	origin_addr = 0xcb007107;
	origin_rc = SP_E_NOTFOUND;
	turned_cut(VIEW_NONE, "direct");
	origin_rc = 0;
	rules[0].port_low = rules[0].port_high = 1;
	turned_cut(VIEW_NONE, "rules");
	/* by a network, whose address is one that no rule opens */
	rule_net(IPPROTO_TCP, 0xcb007100, 24, out_port);
	deny_all = true;
	turned_cut(VIEW_NONE, "protected");
	deny_all = false;
	world_close();
}

/* ---- ends ------------------------------------------------------------------- */

static void
on_done(void *arg, struct episode *of, unsigned refusal, struct view what)
{
	(void)arg;
	(void)of;
	(void)refusal;
	(void)what;
}

static void
test_closing(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd;

	world_open(&world_usual, SANDBOX_DOOR_CONNECT);
	ask_outside();
	TAP_NEVER(status() != 200);
	say(&cl, hello_make("localhost", false));
	run_until(server_got);
	tap_is_int(episode_reset(ep, on_done, NULL), 0, "a reset begins");
	tap_is_int(relay_count(relay), 0, "no connection is left");
	run_until(client_over);
	run_until(server_over);
	tap_ok(cl.reset && sv.reset, "both ends see it");
	tap_ok(told.d.ended && strcmp(told.why, "closed") == 0, "it is told");
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	in.sin_port = htons(door_port);
	tap_ok(connect(fd, (void *)&in, sizeof(in)) != 0,
	    "nobody listens any more");
	fd_close(&fd);
	ends_close();
	/* where it is next it has a door again */
	tap_is_int(hear(MESSAGE_EPISODE_MADE, 4, 1,
		       LIST_FIRST(&ep->ops)->request, "echo"),
	    0, "it is somewhere else");
	door_open(SANDBOX_DOOR_CONNECT + 7);
	door_open(SANDBOX_DOOR_CONNECT);
	ask_outside();
	tap_is_int(status(), 200, "with a door of its own");
	ends_close();
	world_close();
}

/* With the nth allocation refused: whatever becomes of it, it ends. */
static bool
either(void)
{
	return server_got() || client_over();
}

static void
test_memory(void)
{
	unsigned n, refusals = 0;
	struct view v;

	TAP_NEVER(buf_reserve(&cl.got, 65536) != SP_OK ||
	    buf_reserve(&sv.got, 65536) != SP_OK);
	for (n = 1; n < 60; n++) {
		world_open(&world_usual, SANDBOX_DOOR_CONNECT);
		ask_outside();
		mem_fail_after(n, 0);
		refusals += status() != 200;
		if (!client_over()) {
			v = hello_cut(hello_make("localhost", false), 100);
			mem_fail_after(n, 0);
			say(&cl, v);
			run_until(either);
		}
		mem_fail_after(0, 0);
		ends_close();
		world_close();
	}
	tap_ok(refusals > 0 && refusals < 59, "memory that fails (%u)",
	    refusals);
}

int
main(void)
{
	cl.fd = sv.fd = -1;
	buf_init(&cl.got, 1 << 20);
	buf_init(&sv.got, 1 << 20);
	peer_init();
	tick = loop_timer_new(loop, on_tick, NULL);
	test_rules();
	test_hello();
	test_hello_odd();
	test_connect();
	test_refused();
	test_requests();
	test_server_name();
	test_eager();
	test_limits();
	test_pressure();
	test_turned();
	test_closing();
	test_memory();
	buf_clear(&cut);
	buf_clear(&cl.got);
	buf_clear(&sv.got);
	loop_timer_free(tick);
	peer_done();
	return tap_done();
}
