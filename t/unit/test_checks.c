/* Health checks: of nobody, of one that comes, without memory. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>

#include "base/mem.h"
#include "gate/checks.h"
#include "net/listener.h"
#include "net/pool_servers.h"

#include "net_peer.h"

const struct gate_module *const gate_modules[] = { NULL };

static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
static uint16_t port;
static struct pool *pool;
static struct checks *checks;
static struct resolver *resolver;
static unsigned accepted;
enum { KEPT = 16 };
static int kept[KEPT];

static void
on_accept(void *arg, struct listener *from, int fd)
{
	(void)arg;
	(void)from;
	accepted++;
	/* the request is of no interest: the answer may come before it */
	if (write(fd, reply, sizeof(reply) - 1) < 0)
		abort();
	/* closed with a request unread it would be reset */
	if (kept[accepted % KEPT] > 0)
		close(kept[accepted % KEPT]);
	kept[accepted % KEPT] = fd;
	loop_stop(loop);
}

static enum pool_state
state(void)
{
	struct pool_server_info info;

	if (!pool_servers_get(pool, 0, &info))
		abort();
	return info.state;
}

static const struct conf_upstream conf = { .name = VIEW_INIT("u"),
	.check_path = VIEW_INIT("/health"),
	.check_interval_ms = 1,
	.check_timeout_ms = 10000,
	.check_rise = 2,
	.check_fall = 3 };

static void
begin(void)
{
	const struct pool_server server = { .host = VIEW("127.0.0.1"),
		.port = port,
		.authority = VIEW("h") };
	const struct pool_params params = { .name = VIEW("u"),
		.servers = &server,
		.servers_n = 1,
		.connect_timeout_ms = 10000,
		.keepalive = 4,
		.keepalive_timeout_ms = 10000 };

	if (pool_new(loop, resolver, &params, &pool) != 0)
		abort();
}

static void
on_tick(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
until(enum pool_state want, struct loop_timer *tick)
{
	while (state() != want) {
		loop_timer_set(tick, 1);
		peer_run();
	}
}

int
main(void)
{
	struct loop_timer *tick;
	struct listener *l = NULL;
	struct pool_stats st;
	unsigned long n;
	int fd, rc = -1;

	peer_init();
	tick = loop_timer_new(loop, on_tick, NULL);
	resolver = resolver_new(loop, NULL, 0);
	fd = peer_bound(SOCK_STREAM, &port);
	begin();
	for (n = 1; n < 20 && rc != 0; n++) {
		mem_fail_after(n, 0);
		rc = checks_new(loop, pool, &conf, &checks);
		mem_fail_after(0, 0);
	}
	tap_ok(rc == 0 && n > 3, "checks without memory");
	if (listener_new(loop, fd, on_accept, NULL, &l) != 0)
		abort();
	while (accepted < 3)
		peer_run();
	tap_ok(state() == POOL_UP && checks_failed(checks) == 0,
	    "one that answers is up");
	listener_free(l);
	until(POOL_DOWN, tick);
	tap_ok(checks_failed(checks) >= 3 &&
		checks_failed_of(checks, 0) == checks_failed(checks),
	    "one that is gone is down");
	pool_stats(pool, &st);
	tap_ok(st.connect_errors == 0, "which is no error of a call");
	checks_free(checks);
	pool_free(pool);
	/* an allocation that fails is no failure of the server */
	begin();
	if (checks_new(loop, pool, &conf, &checks) != 0)
		abort();
	for (n = 1; n < 30; n++) {
		mem_fail_after(n, 0);
		loop_timer_set(tick, 2);
		peer_run();
		mem_fail_after(0, 0);
	}
	tap_ok(true, "no memory for a check");
	/* with one under way */
	checks_free(checks);
	checks_free(NULL);
	pool_free(pool);
	resolver_free(resolver);
	loop_timer_free(tick);
	for (n = 0; n < KEPT; n++)
		if (kept[n] > 0)
			close(kept[n]);
	peer_done();
	return tap_done();
}
