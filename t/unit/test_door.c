/*
 * core/gate/door.c: which episode, rebinding, patterns, lines; and the errors
 * of a door.
 */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/door.h"
#include "gate/gate_priv.h"
#include "ipc/wire.h"
#include "os/fd.h"

#include "conf_text.h"
#include "mux_backend.h"
#include "tap.h"

extern const struct conf_module llm_intercept_conf, health_conf, status_conf;

static struct loop *loop;
static struct loop_timer *stopper;
static struct conf *conf;
static struct gate *gate;
static struct mux mux;
static int log_fd[2];

/* ---- a door ----------------------------------------------------------------- */

static enum gate_verdict
on_head(struct gate_request *r)
{
	const struct conf_environment *env = conf->environments[0];
	enum gate_verdict v = door_origin(r);
	struct episode *ep;

	if (view_eq(r->x->request.method, VIEW("PUT"))) {
		r->status = 405;
		r->reason = "no PUT";
		r->allow = "POST";
		return GATE_DENY;
	}
	if (v == GATE_PASS)
		v = door_episode(r, env, &ep);
	if (v != GATE_PASS)
		return v;
	r->status = 200;
	return exchange_simple(r->x, 200, VIEW("text/plain"),
		   view_str(ep->id)) == SP_OK
	    ? GATE_DONE
	    : GATE_FAIL;
}

static enum gate_verdict
on_finish(struct gate_request *r)
{
	const struct door_operation op = {
		.principal = "grader",
		.door = "mcp_grader",
		.operation = "tools/call",
		.episode = VIEW("one"),
		.tool = VIEW("a\"b"),
		.outcome = "ok",
		.us = 1500,
	};

	door_log(r, &op);
	return GATE_PASS;
}

static const struct gate_module door = {
	.conf = &health_conf,
	.principals = GATE_GRADER,
	.door = true,
	.hook = { on_head, NULL, on_finish },
};
static const struct gate_module other = { .conf = &status_conf };
static const struct gate_module model = { .conf = &llm_intercept_conf };
const struct gate_module *const gate_modules[] = { &door, &other, &model,
	NULL };

/* ---- the helper, the client ------------------------------------------------- */

static uint32_t request;

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
hear(enum message_type type, const struct buf *body)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(body),
		.fd = -1 };

	if (episode_set_heard(gate_episodes(gate), &m) != SP_OK)
		abort();
}

static void
make(const char *env, const char *id, uint32_t slot)
{
	struct buf b = BUF_INIT(1024);
	struct episode *ep;

	if (episode_create(gate_episodes(gate), view_str(env), view_str(id),
		NULL, NULL, &ep) != SP_OK ||
	    wire_put_u32(&b, slot) != SP_OK || wire_put_u32(&b, 1) != SP_OK ||
	    wire_put_u32(&b, request) != SP_OK ||
	    wire_put_bytes(&b, view_str(env)) != SP_OK)
		abort();
	hear(MESSAGE_EPISODE_MADE, &b);
	buf_clear(&b);
}

static const char text[] =
    "environment echo { sandbox { uid 300000 4096; } }\n"
    "environment other { sandbox { uid 310000 4096; } }\n"
    "server {\n"
    "  listen 127.0.0.1:7000; server_name gate.example;\n"
    "  location /open { health; }\n"
    "  location /door { health; token env:TOKEN; }\n"
    "}\n"
    "server { listen unix:/tmp/none; location /open { health; } }\n"
    "server { listen 127.0.0.1:7001; location /s { status; } }\n"
    "server { listen unix:/tmp/none2; listen 127.0.0.1:7002;\n"
    "  location /open { health; } }\n";

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
turn(void)
{
	int i = 0;

	do {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	} while (mux_turn(&mux) || i++ < 3);
}

static void
begin(void)
{
	struct buf err = BUF_INIT(4096);

	if (gate_new(loop, conf, &gate, &err) != SP_OK || pipe(log_fd) != 0)
		abort();
	gate_set_access_log(gate, log_fd[1]);
	mux_init(&mux, &walk_consumer, gate, 1 << 20, 1 << 16);
}

static void
helper(void)
{
	if (gate_set_helper(gate, send_helper, NULL) != SP_OK)
		abort();
}

static void
finish(struct buf *out)
{
	ssize_t n;

	mux_clear(&mux);
	gate_free(gate);
	if (out != NULL && buf_reserve(out, 65536) == SP_OK) {
		n = read(log_fd[0], buf_tail(out), 65535);
		buf_grow(out, n > 0 ? (size_t)n : 0);
	}
	close(log_fd[0]);
}

struct ask {
	const char *path, *method, *query, *host, *origin, *episode, *token;
	const char *websocket;
	unsigned listener;
};

static void
add(struct mux_stream *s, const char *name, const char *value)
{
	if (value != NULL &&
	    head_add_borrowed(&s->x.request.fields, view_str(name),
		view_str(value)) != SP_OK)
		abort();
}

static void
ask(const struct ask *a, unsigned status, const char *part, const char *what)
{
	struct mux_stream *s =
	    mux_open(&mux, a->method != NULL ? a->method : "GET",
		a->path != NULL ? a->path : "/open", false);
	bool ok;

	if (s == NULL)
		abort();
	s->x.listener = a->listener;
	s->x.request.query = view_str(a->query);
	s->x.request.authority = view_str(a->host);
	add(s, "Origin", a->origin);
	add(s, "X-Episode-Id", a->episode);
	add(s, "Authorization", a->token);
	add(s, "Sec-WebSocket-Version", a->websocket);
	turn();
	ok = s->status == status && s->got_end &&
	    (part == NULL ? buf_len(&s->got) == 0
			  : view_eq(buf_view(&s->got), view_str(part)) ||
			(part[0] != '{' &&
			    view_search(buf_view(&s->got), view_str(part)) <
				buf_len(&s->got)));
	tap_ok(ok, "%s", what);
	if (!ok)
		tap_diag("%u %.*s", s->status, VIEW_ARG(buf_view(&s->got)));
	buf_clear(&s->up);
	buf_clear(&s->down);
	buf_clear(&s->got);
	s->id = 0;
}

#define ASK(status, part, what, ...) \
	ask(&(const struct ask){ __VA_ARGS__ }, status, part, what)

#define KEY(k) .path = "/open", .token = "Bearer " k
#define TOKEN .path = "/door", .token = "bearer 0123456789abcdef"

/* ---- tests ------------------------------------------------------------------ */

static void
test_errors(void)
{
	begin();
	ASK(404, "{\"detail\":\"Not Found\"}", "a door that is not there",
	    .path = "/none");
	ASK(404, "unknown_url", "where there are no doors, another shape",
	    .path = "/none", .listener = 2);
	ASK(401, "\"Unauthorized\",\"reason\":", "no token", .path = "/door");
	ASK(401, "\"Unauthorized\",\"reason\":", "another token",
	    .path = "/door", .token = "Bearer 0123456789abcdeX");
	ASK(403, "detail", "a WebSocket without a token", .path = "/door",
	    .websocket = "13");
	ASK(403, "detail", "a WebSocket to nowhere", .path = "/none",
	    .websocket = "13");
	ASK(405, "{\"detail\":\"Method Not Allowed\"}", "a method",
	    .method = "PUT");
	ASK(503, "no helper", "no helper", .path = "/open");
	helper();
	ASK(503, "there is no episode", "no episode", .path = "/open");
	finish(NULL);
}

static void
test_episode(void)
{
	begin();
	helper();
	ASK(503, "reset makes one\"", "none", .path = NULL);
	ASK(503, "reset makes one, and the key or token that came is not that",
	    "none, and a token that is nobody's", KEY("whatever"));
	ASK(503, "reset makes one\"", "none, and the location's", TOKEN);
	make("echo", "one", 1);
	make("other", "two", 2);
	ASK(200, "one", "the only one", .path = NULL);
	ASK(200, "one", "named by the header", .episode = "one");
	ASK(200, "one", "named by the query", .query = "a=b&episode=o%6ee");
	ASK(200, "one", "by both", .query = "episode=one", .episode = "one");
	ASK(400, "do not name", "by both, differently", .query = "episode=two",
	    .episode = "one");
	ASK(400, "do not name", "by a bad escape", .query = "episode=%zz");
	ASK(400, "do not name", "by nothing", .query = "episode=");
	ASK(400, "do not name", "twice", .query = "episode=one&episode=one");
	ASK(400, "do not name", "by an empty header", .episode = "");
	ASK(404, "\"Not Found\",\"reason\":", "another environment's",
	    .episode = "two");
	ASK(404, "\"Not Found\",\"reason\":", "nobody's", .episode = "three");
	make("echo", "three", 3);
	ASK(400, "key of the session", "one of two", .path = NULL);
	ASK(401, "\"Unauthorized\",\"reason\":\"there are",
	    "an id does not authorise", .episode = "three");
	ASK(401, "\"Unauthorized\",\"reason\":\"there are",
	    "nor tells what there is", .episode = "four");
	ASK(400, "name one", "a token names none", TOKEN);
	ASK(200, "three", "a token does", TOKEN, .episode = "three");
	ASK(503, "not known yet", "no key is known yet", KEY("one-key"));
	ASK(404, "\"Not Found\",\"reason\":", "no such", TOKEN,
	    .episode = "four");
	finish(NULL);
}

static void
keyed(const char *id, const char *key)
{
	struct session_msg m = { .id = view_str(id) };

	if (roster_digest(view_str(key), m.key) != SP_OK ||
	    roster_put(gate_roster(gate), &m) != SP_OK)
		abort();
}

/* The key of a session is its episode's: the one of its name. */
static void
test_key(void)
{
	begin();
	helper();
	make("echo", "one", 1);
	make("other", "two", 2);
	keyed("one", "key-of-one");
	keyed("two", "key-of-two");
	keyed("three", "key-of-three");
	keyed("none", "key-of-none");
	ASK(200, "one", "the only one, by its key", KEY("key-of-one"));
	ASK(200, "one", "or by what is no key", KEY("whatever"));
	ASK(404, "\"Not Found\",\"reason\":", "another environment's",
	    KEY("key-of-two"));
	ASK(404, "\"Not Found\",\"reason\":", "of one that is not there",
	    KEY("key-of-three"));
	make("echo", "three", 3);
	ASK(200, "three", "one of two", KEY("key-of-three"));
	ASK(200, "one", "the other", KEY("key-of-one"));
	ASK(200, "one", "named as well", KEY("key-of-one"), .episode = "one");
	ASK(400, "another episode", "another is named", KEY("key-of-one"),
	    .episode = "three");
	ASK(400, "another episode", "or in the query", KEY("key-of-one"),
	    .query = "episode=three");
	ASK(404, "\"Not Found\",\"reason\":", "no episode of its name",
	    KEY("key-of-none"));
	ASK(403, "detail", "a WebSocket likewise", KEY("key-of-none"),
	    .websocket = "13");
	ASK(401, "\"Unauthorized\",\"reason\":",
	    "where there is a token, no key counts", .path = "/door",
	    .token = "Bearer key-of-one");
	roster_end(gate_roster(gate),
	    roster_find(gate_roster(gate), VIEW("one")));
	ASK(503, "not known yet", "its session has ended", KEY("key-of-one"));
	finish(NULL);
}

static void
test_origin(void)
{
	begin();
	helper();
	make("echo", "one", 1);
	ASK(200, "one", "no Host at all", .host = NULL);
	ASK(200, "one", "localhost", .host = "LocalHost:8100");
	ASK(200, "one", "loopback", .host = "127.0.0.1:8100");
	ASK(200, "one", "IPv6", .host = "[::1]:8100");
	ASK(200, "one", "an address", .host = "203.0.113.5");
	ASK(200, "one", "another address", .host = "[2001:db8::5]");
	ASK(200, "one", "a server_name", .host = "Gate.Example:1");
	ASK(403, "server_name", "another name", .host = "evil.example.com");
	ASK(403, "server_name", "no address", .host = "127.0.0.1.evil.com:80");
	ASK(403, "server_name", "no address either", .host = "127.0.0.256");
	ASK(403, "server_name", "half a bracket", .host = "[::1");
	ASK(403, "server_name", "bytes after it", .host = "[::1]x");
	ASK(403, "server_name", "a port alone", .host = ":80");
	ASK(403, "server_name", "an empty one", .host = "");
	ASK(200, "one", "a page of this host", .host = "localhost:1",
	    .origin = "http://localhost:3000");
	ASK(200, "one", "or by its address", .host = "localhost:1",
	    .origin = "http://[::1]:3000");
	ASK(200, "one", "of this server", .host = "203.0.113.5:8100",
	    .origin = "http://203.0.113.5:8100");
	ASK(403, "another site", "of another", .host = "203.0.113.5:8100",
	    .origin = "http://203.0.113.6:8100");
	ASK(403, "another site", "another port of a foreign address",
	    .host = "203.0.113.5:8100", .origin = "http://203.0.113.5");
	ASK(403, "another site", "another site's", .host = "localhost:1",
	    .origin = "http://evil.example.com");
	ASK(403, "another site", "nobody's", .host = "localhost:1",
	    .origin = "null");
	ASK(403, "another site", "empty", .host = "localhost:1", .origin = "");
	ASK(403, "another site", "without a host", .host = "localhost:1",
	    .origin = "http://");
	ASK(200, "one", "a socket in the file system", .host = "any.example",
	    .origin = "http://any.example", .listener = 1);
	ASK(403, "no name of this server", "its server's other listener",
	    .host = "any.example", .origin = "http://any.example",
	    .listener = 4);
	ASK(200, "one", "and the socket that stands before it",
	    .host = "any.example", .origin = "http://any.example",
	    .listener = 3);
	finish(NULL);
}

static void
test_log(void)
{
	struct buf out = BUF_INIT(1 << 20), metrics = BUF_INIT(1 << 20);
	struct view log;

	begin();
	helper();
	make("echo", "one", 1);
	ASK(200, "one", "served", TOKEN);
	if (metrics_render(gate_metrics(gate), false, &metrics) != SP_OK)
		abort();
	finish(&out);
	log = buf_view(&out);
	tap_ok(view_search(log,
		   VIEW("\"principal\":\"grader\",\"door\":\"mcp_grader\","
			"\"episode\":\"one\",\"operation\":\"tools/call\","
			"\"tool\":\"a\\\"b\",\"outcome\":\"ok\","
			"\"duration_ms\":1.5}")) < log.n,
	    "a line for the operation");
	tap_ok(view_search(log, VIEW("\"principal\":\"grader\",\"module\"")) <
		log.n,
	    "the door's principal in the request's own line");
	tap_ok(view_search(buf_view(&metrics),
		   VIEW("sallyport_operations_total{principal=\"grader\","
			"operation=\"tools/call\",outcome=\"ok\"} 1")) <
		buf_len(&metrics),
	    "and a count");
	buf_clear(&out);
	buf_clear(&metrics);
}

static void
test_match(void)
{
	static const struct {
		const char *pattern, *text;
		bool is;
	} rows[] = {
		{ "", "", true },
		{ "", "a", false },
		{ "a", "a", true },
		{ "a", "A", false },
		{ "a", "", false },
		{ "*", "", true },
		{ "*", "a/b", true },
		{ "**", "a", true },
		{ "a*", "a", true },
		{ "a*b", "ab", true },
		{ "a*b", "axxb", true },
		{ "a*b", "axxbc", false },
		{ "*a*b*", "xaxbx", true },
		{ "?", "a", true },
		{ "?", "", false },
		{ "?", "ab", false },
		{ "?", "\xc3\xa9", true }, /* one character */
		{ "??", "\xff\xfe", true }, /* two bytes */
		{ "[abc]", "b", true },
		{ "[abc]", "d", false },
		{ "[!abc]", "d", true },
		{ "[!abc]", "a", false },
		{ "[a-c]x", "bx", true },
		{ "[c-a]", "b", false },
		{ "[a-]", "-", true },
		{ "[-a]", "-", true },
		{ "[]]", "]", true },
		{ "[!]]", "]", false },
		{ "[!]", "[!]", true }, /* never closed: as it stands */
		{ "[a", "[a", true },
		{ "[", "[", true },
		{ "[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", true },
		{ "\\*", "\\x", true }, /* nothing escapes */
		{ "[*]", "*", true },
		{ "[*]", "a", false },
		{ "*[a-c]?", "xxbz", true },
		{ "env.*", "env.x", true },
		{ "env.*", "envx", false },
		{ "/workspace/**", "/workspace/a/b", true },
		{ "/workspace/*", "/workspace/a/b", true },
		{ "/workspace/*", "/workspace", false },
	};
	struct view globs[] = { VIEW_INIT("a*"), VIEW_INIT("b") };
	const struct conf_list list = { globs, 2 }, none = { NULL, 0 };
	char many[4096], as[4096];
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		tap_ok(door_match(view_str(rows[i].pattern),
			   view_str(rows[i].text)) == rows[i].is,
		    "\"%s\" and \"%s\"", rows[i].pattern, rows[i].text);
	tap_ok(door_match_any(&list, VIEW("b")) &&
		door_match_any(&list, VIEW("ax")) &&
		!door_match_any(&list, VIEW("c")) &&
		!door_match_any(&none, VIEW("c")),
	    "any of a list");
	for (i = 0; i < sizeof(many); i += 2)
		memcpy(many + i, "*a", 2);
	memset(as, 'a', sizeof(as));
	tap_ok(!door_match(view_of(many, sizeof(many)),
		   view_of(as, sizeof(as) / 2 - 1)) &&
		door_match(view_of(many, sizeof(many)),
		    view_of(as, sizeof(as))),
	    "many stars end soon");
}

int
main(void)
{
	struct buf err = BUF_INIT(4096);
	size_t i;

	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop_timer_new(loop, on_stop, NULL);
	if (conf_text_parse(text, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		return 1;
	}
	for (i = 0; i < conf->secrets_n; i++)
		if (conf_secret_set(conf, (unsigned)i,
			VIEW("0123456789abcdef")) != SP_OK)
			abort();
	test_match();
	test_errors();
	test_episode();
	test_key();
	test_origin();
	test_log();
	loop_timer_free(stopper);
	loop_free(loop);
	conf_free(conf);
	return tap_done();
}
