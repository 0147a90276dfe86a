/* What goes up to an upstream, and what does not. */
#include "config.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/forward.h"
#include "gate/metrics.h"

#include "tap.h"

const struct gate_module *const gate_modules[] = { NULL };

#define SERVER "server { listen 127.0.0.1:1; location /h { health; } }"

static struct loop *loop;
static struct loop_timer *stopper, *guard;
static struct arena *arena;
static struct metrics *metrics;
static int server = -1, second = -1;

/* What the call told. */
static struct {
	unsigned status;
	bool ended, failed;
} told;

static void
on_head(void *arg, struct call *c, const struct head_reply *head)
{
	(void)arg;
	(void)c;
	told.status = head->status;
}

static void
on_body(void *arg, struct call *c, struct view data)
{
	(void)arg;
	(void)c;
	(void)data;
}

static void
on_end(void *arg, struct call *c, bool delimited)
{
	(void)arg;
	(void)c;
	told.ended = delimited;
	loop_stop(loop);
}

static void
on_fail(void *arg, struct call *c, enum call_failure why, const char *text)
{
	(void)arg;
	(void)c;
	(void)why;
	tap_diag("failed: %s", text);
	told.failed = true;
	loop_stop(loop);
}

static const struct call_owner owner = { on_head, on_body, on_end, on_fail,
	NULL };

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
on_guard(void *arg)
{
	(void)arg;
	abort();
}

static uint16_t
listen_here(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (server < 0 ||
	    bind(server, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    listen(server, 8) != 0 ||
	    getsockname(server, (struct sockaddr *)&sa, &len) != 0)
		abort();
	return ntohs(sa.sin_port);
}

static struct conf *
parse(const char *text)
{
	const struct conf_defaults defaults = { "/nowhere", "/nowhere",
		"/nowhere" };
	struct buf expanded = BUF_INIT(1 << 20), err = BUF_INIT(4096);
	struct conf *conf = NULL;

	if (conf_expand_text("test", view_str(text), VIEW(SERVER), &expanded,
		&err) != SP_OK ||
	    conf_parse(buf_view(&expanded), &defaults, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		fflush(stdout);
		abort();
	}
	if (conf->secrets_n > 0 &&
	    conf_secret_set(conf, 0, VIEW("the-real-key-0123")) != SP_OK)
		abort();
	buf_clear(&expanded);
	buf_clear(&err);
	return conf;
}

/* One call; what the upstream read is in out, ended by a NUL. */
static void
ask(struct forward *f, const struct forward_params *p, char *out, size_t max)
{
	static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
				    "Connection: close\r\n\r\nok";
	struct call *c;
	size_t n = 0;
	ssize_t got;
	int fd, i;

	memset(&told, 0, sizeof(told));
	out[0] = '\0';
	if (forward_start(f, p, &owner, &c) != SP_OK)
		abort();
	for (i = 0; i < 5; i++) {
		loop_timer_set(stopper, 1);
		if (loop_run(loop) != SP_OK)
			abort();
	}
	fd = accept(server, NULL, NULL);
	if (fd < 0 && second >= 0)
		fd = accept(second, NULL, NULL);
	while (n < max - 1 && strstr(out, "\r\n\r\n") == NULL) {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
		got = recv(fd, out + n, max - 1 - n, MSG_DONTWAIT);
		n += got > 0 ? (size_t)got : 0;
		out[n] = '\0';
	}
	if (write(fd, reply, sizeof(reply) - 1) != sizeof(reply) - 1)
		abort();
	while (!told.ended && !told.failed)
		if (loop_run(loop) != SP_OK)
			abort();
	close(fd);
}

static void
fill(struct head_fields *f)
{
	static const char *const pairs[] = { "Authorization", "Bearer sess-42",
		"X-API-Key", "dummy", "api-key", "dummy", "x-goog-api-key",
		"dummy", "Cookie", "a=b", "Expect", "100-continue", "Host",
		"other.example", "Content-Length", "1234567", "Accept-Encoding",
		"gzip, br", "Connection", "close, X-Mine", "X-Mine", "secret",
		"TE", "trailers", "Upgrade", "h2c", "HTTP2-Settings", "AAA",
		"Proxy-Authorization", "Basic x", "Keep-Alive", "timeout=5",
		"User-Agent", "agent/1", "Content-Type", "application/json",
		"X-Session-Id", "s1", "x-session-affinity", "s2",
		"X-Client-Request-Id", "9f", "traceparent", "00-1", NULL };
	size_t i;

	head_fields_init(f, arena);
	for (i = 0; pairs[i] != NULL; i += 2)
		if (head_add(f, view_str(pairs[i]), view_str(pairs[i + 1])) !=
		    SP_OK)
			abort();
}

static void
with_key(void)
{
	static const char *const gone[] = { "sess-42", "dummy", "a=b", "100-c",
		"other.example", "1234567", "gzip", "X-Mine", "secret",
		"trailers", "h2c", "AAA", "Basic", "timeout=5", NULL };
	static const char *const kept[] = { "User-Agent: agent/1\r\n",
		"Content-Type: application/json\r\n", "X-Session-Id: s1\r\n",
		"x-session-affinity: s2\r\n", "X-Client-Request-Id: 9f\r\n",
		"traceparent: 00-1\r\n",
		"Authorization: Bearer the-real-key-0123\r\n",
		"Accept-Encoding: identity\r\n", "Content-Length: 2\r\n",
		NULL };
	char text[256], seen[8192], line[128];
	struct buf err = BUF_INIT(4096), page = BUF_INIT(1 << 20);
	struct head_fields fields;
	struct forward_params p = { .method = VIEW("POST"),
		.endpoint = VIEW("/chat/completions"),
		.query = VIEW("key=secret&x=1&y&k%65y=secret&Api_Key=secret"
			      "&access_token=secret&keys=%zz&%6=&&"),
		.fields = &fields,
		.arena = arena,
		.body = VIEW("{}") };
	struct forward *f;
	struct conf *conf;
	uint16_t port = listen_here();
	size_t i;

	snprintf(text, sizeof(text),
	    "upstream u { server http://127.0.0.1:%u/api/paas/v4/; "
	    "api_key env:KEY; }",
	    port);
	conf = parse(text);
	tap_is_int(forward_new(loop, conf, metrics, &f, &err), SP_OK, "made");
	fill(&fields);
	p.upstream = conf->upstreams[0];
	ask(f, &p, seen, sizeof(seen));
	tap_ok(told.status == 200 && told.ended, "answered");
	tap_ok(strncmp(seen,
		   "POST /api/paas/v4/chat/completions"
		   "?x=1&y&keys=%zz&%6=&& HTTP/1.1\r\n",
		   66) == 0,
	    "base, endpoint and query: %.40s", seen);
	snprintf(line, sizeof(line), "Host: 127.0.0.1:%u\r\n", port);
	tap_ok(strcasestr(seen, line) != NULL, "Host is the upstream's");
	for (i = 0; kept[i] != NULL; i++)
		tap_ok(strcasestr(seen, kept[i]) != NULL, "kept %zu", i);
	for (i = 0; gone[i] != NULL; i++)
		if (!tap_ok(strstr(seen, gone[i]) == NULL, "gone: %s", gone[i]))
			tap_diag("%s", seen);
	tap_is_int(metrics_render(metrics, false, &page), SP_OK, "metrics");
	tap_ok(view_search(buf_view(&page),
		   VIEW("sallyport_upstream_connects_total{upstream=\"u\"} "
			"1\n")) < buf_len(&page),
	    "counted");
	buf_clear(&page);
	forward_free(f);
	conf_free(conf);
	close(server);
}

/* Without a key the client's is dropped all the same. */
static void
without_key(void)
{
	char text[256], seen[8192];
	struct buf err = BUF_INIT(4096);
	struct head_fields fields;
	struct forward_params p = { .method = VIEW("GET"),
		.endpoint = VIEW("/models"),
		.fields = &fields,
		.arena = arena };
	struct forward *f;
	struct conf *conf;

	snprintf(text, sizeof(text),
	    "upstream u { server http://127.0.0.1:%u; }", listen_here());
	conf = parse(text);
	/* the collector of the first is gone with its metrics */
	metrics_free(metrics);
	metrics = metrics_new();
	tap_is_int(forward_new(loop, conf, metrics, &f, &err), SP_OK, "made");
	fill(&fields);
	p.upstream = conf->upstreams[0];
	ask(f, &p, seen, sizeof(seen));
	tap_ok(strncmp(seen, "GET /v1/models HTTP/1.1\r\n", 25) == 0,
	    "/v1 where the base has no path");
	tap_ok(strcasestr(seen, "authorization") == NULL, "no credential");
	forward_free(f);
	conf_free(conf);
	close(server);
}

static int
listen_second(uint16_t *port)
{
	int first = server, fd;

	*port = listen_here();
	fd = server;
	server = first;
	return fd;
}

/* Each server has its own Host and base, whichever is picked. */
static void
two_servers(void)
{
	char text[256], seen[8192], want[2][96], key[16];
	struct buf err = BUF_INIT(4096);
	struct head_fields fields;
	struct forward_params p = { .method = VIEW("POST"),
		.endpoint = VIEW("/chat/completions"),
		.query = VIEW("q"),
		.fields = &fields,
		.arena = arena };
	unsigned hits[2] = { 0 }, wrong = 0, i, which;
	uint16_t ports[2];
	struct forward *f;
	struct conf *conf;

	ports[0] = listen_here();
	second = listen_second(&ports[1]);
	if (fcntl(server, F_SETFL, O_NONBLOCK) != 0 ||
	    fcntl(second, F_SETFL, O_NONBLOCK) != 0)
		abort();
	snprintf(text, sizeof(text),
	    "upstream u { server http://127.0.0.1:%u/one/v1; "
	    "server http://localhost:%u/two; }",
	    ports[0], ports[1]);
	for (i = 0; i < 2; i++)
		snprintf(want[i], sizeof(want[i]),
		    "POST %s/chat/completions?q HTTP/1.1\r\nHost: %s:%u\r\n",
		    i == 0 ? "/one/v1" : "/two",
		    i == 0 ? "127.0.0.1" : "localhost", ports[i]);
	conf = parse(text);
	metrics_free(metrics);
	metrics = metrics_new();
	tap_is_int(forward_new(loop, conf, metrics, &f, &err), SP_OK, "made");
	head_fields_init(&fields, arena);
	p.upstream = conf->upstreams[0];
	for (i = 0; i < 32; i++) {
		snprintf(key, sizeof(key), "session-%u", i);
		p.affinity = view_str(key);
		ask(f, &p, seen, sizeof(seen));
		which = strncmp(seen, want[1], strlen(want[1])) == 0;
		hits[which]++;
		if (strncmp(seen, want[which], strlen(want[which])) != 0) {
			tap_diag("%.200s", seen);
			wrong++;
		}
	}
	tap_is_int(wrong, 0, "Host and base are the picked server's");
	tap_ok(hits[0] != 0 && hits[1] != 0, "both were picked: %u, %u",
	    hits[0], hits[1]);
	/* nobody listens at the one: the other takes its calls */
	close(server);
	server = -1;
	for (i = 0, wrong = 0; i < 8; i++) {
		snprintf(key, sizeof(key), "session-%u", i);
		p.affinity = view_str(key);
		ask(f, &p, seen, sizeof(seen));
		wrong += strncmp(seen, want[1], strlen(want[1])) != 0;
	}
	tap_is_int(wrong, 0, "failing over rewrites both");
	forward_free(f);
	conf_free(conf);
	close(second);
	second = -1;
}

static void
failures(void)
{
	struct buf err = BUF_INIT(4096);
	struct metrics *m;
	struct forward *f = NULL;
	struct conf *conf;
	unsigned long n;
	int rc = SP_E_NOMEM;

	conf = parse("upstream u { server https://127.0.0.1:9; "
		     "ca /nowhere/ca.pem; }");
	m = metrics_new();
	rc = forward_new(loop, conf, m, &f, &err);
	tap_ok(rc == SP_E_TLS && buf_len(&err) > 0, "no such CA: %.*s",
	    VIEW_ARG(buf_view(&err)));
	metrics_free(m);
	conf_free(conf);
	conf =
	    parse("upstream u { server http://127.0.0.1:9; api_key env:K; }");
	for (n = 1, rc = SP_E_NOMEM; n < 200 && rc != SP_OK; n++) {
		m = metrics_new();
		mem_fail_after(n, 0);
		rc = forward_new(loop, conf, m, &f, &err);
		mem_fail_after(0, 0);
		if (rc == SP_OK)
			forward_free(f);
		metrics_free(m);
	}
	tap_ok(rc == SP_OK && n > 5, "failing allocations survived (%lu)", n);
	conf_free(conf);
	buf_clear(&err);
}

int
main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	guard = loop_timer_new(loop, on_guard, NULL);
	loop_timer_set(guard, 60000);
	arena = arena_new(1 << 20);
	metrics = metrics_new();
	with_key();
	without_key();
	two_servers();
	failures();
	metrics_free(metrics);
	arena_free(arena);
	loop_timer_free(stopper);
	loop_timer_free(guard);
	loop_free(loop);
	return tap_done();
}
