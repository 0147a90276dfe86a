/*
 * Generations of the configuration in the gate: who holds which, what they
 * share, what is left when one cannot be had.
 */
#include "config.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/fleet.h"
#include "gate/gate_priv.h"
#include "gate/hub.h"

#include "mux_backend.h"
#include "tap.h"

extern const struct conf_module llm_intercept_conf, status_conf, health_conf;

static struct gate_request *held;

/* /hold waits, all else says where it stands. */
static enum gate_verdict
on_head(struct gate_request *r)
{
	if (view_eq(r->location->path, VIEW("/hold"))) {
		held = r;
		return GATE_HOLD;
	}
	r->status = 200;
	return exchange_simple(r->x, 200, VIEW("text/plain"),
		   r->location->path) == SP_OK
	    ? GATE_DONE
	    : GATE_FAIL;
}

static const struct gate_module a = { .conf = &llm_intercept_conf };
static const struct gate_module b = { .conf = &status_conf,
	.hook = { on_head } };
static const struct gate_module c = { .conf = &health_conf,
	.hook = { on_head } };
const struct gate_module *const gate_modules[] = { &a, &b, &c, NULL };

static struct loop *loop;
static struct loop_timer *stopper;
static struct gate *gate;
static struct mux mux;

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void
turn(void)
{
	int i, k = 0;

	while (mux_turn(&mux) && k++ < 1000)
		;
	for (i = 0; i < 3; i++) {
		loop_timer_set(stopper, 0);
		if (loop_run(loop) != SP_OK)
			abort();
	}
}

static struct conf *
parse(const char *text)
{
	const struct conf_defaults defaults = { "/nowhere", "/nowhere",
		"/nowhere" };
	struct buf expanded = BUF_INIT(1 << 20), err = BUF_INIT(4096);
	struct conf *conf = NULL;

	if (conf_expand_text("test", view_str(text), VIEW_NONE, &expanded,
		&err) != SP_OK ||
	    conf_parse(buf_view(&expanded), &defaults, &conf, &err) != SP_OK) {
		tap_diag("%.*s", VIEW_ARG(buf_view(&err)));
		fflush(stdout);
		abort();
	}
	buf_clear(&expanded);
	buf_clear(&err);
	return conf;
}

#define ONE \
	"upstream u { server http://127.0.0.1:9/v1; }\n" \
	"upstream v { server http://127.0.0.1:9/v1; }\n" \
	"server { listen 127.0.0.1:7001; location /hold { health; }\n" \
	" location /one { status; } }\n"
#define TWO \
	"upstream v { server http://127.0.0.1:9/v1; model other; }\n" \
	"upstream u { server http://127.0.0.1:9/v1; keepalive 3; }\n" \
	"server { listen 127.0.0.1:7002; listen 127.0.0.1:7001;\n" \
	" location /two { health; } }\n"

static int
socket_here(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    listen(fd, 8) != 0)
		abort();
	return fd;
}

static void
begin(void)
{
	struct gate_source src = { .number = 1 };
	struct buf err = BUF_INIT(4096);

	src.owned = parse(ONE);
	if (gate_new_from(loop, &src, &gate, &err) != SP_OK ||
	    gate_listen(gate, 0, socket_here()) != SP_OK ||
	    gate_start(gate) != SP_OK)
		abort();
	mux_init(&mux, &walk_consumer, gate, 1 << 20, 1 << 16);
	buf_clear(&err);
}

static void
finish(void)
{
	mux_clear(&mux);
	gate_free(gate);
	gate = NULL;
}

static int
prepare(const char *text, uint32_t number, struct buf *err)
{
	struct gate_source src = { .number = number };

	src.owned = parse(text);
	return gate_prepare(gate, &src, err);
}

static size_t
generations(void)
{
	struct generation *n;
	size_t k = 0;

	LIST_FOREACH (n, &gate->generations, link)
		k++;
	return k;
}

static struct mux_stream *
ask(const char *path)
{
	struct mux_stream *s = mux_open(&mux, "GET", path, false);

	if (s == NULL)
		abort();
	turn();
	return s;
}

/* One that is held keeps its own to the end. */
static void
references(void)
{
	struct buf err = BUF_INIT(4096);
	const struct conf_location *l;
	struct mux_stream *s;

	begin();
	s = ask("/hold");
	tap_ok(held != NULL && gate_generation_of(held) == 1, "one is held");
	l = held->location;
	tap_is_int(gate_prepared(gate), false, "nothing is prepared");
	tap_is_int(prepare(TWO, 2, &err), SP_OK, "another generation");
	tap_is_int(prepare(TWO, 3, &err), SP_E_STATE, "only one at a time");
	tap_is_int(gate_prepared(gate), false, "sockets are missing");
	tap_is_int(gate_prepare_keep(gate, 1, 0), SP_OK, "one is kept");
	tap_is_int(gate_prepare_keep(gate, 1, 0), SP_E_ARG, "once");
	tap_is_int(gate_prepare_keep(gate, 0, 0), SP_E_ARG, "for one alone");
	tap_is_int(gate_prepare_keep(gate, 0, 7), SP_E_ARG, "of those");
	tap_is_int(gate_prepare_keep(gate, 7, 0), SP_E_ARG, "for those");
	tap_is_int(gate_prepare_listen(gate, 7, socket_here()), SP_E_ARG,
	    "no such address");
	tap_is_int(gate_prepare_listen(gate, 0, socket_here()), SP_OK,
	    "one is new");
	tap_is_int(gate_prepare_listen(gate, 0, socket_here()), SP_E_ARG,
	    "once, too");
	tap_is_int(gate_prepared(gate), true, "all are there");
	tap_is_int(ask("/two")->status, 404, "nothing has changed");
	gate_commit(gate);
	tap_is_int(gate_generation(gate), 2, "the second is current");
	turn();
	tap_is_int((long long)generations(), 2, "both live");
	tap_is_int(ask("/two")->status, 200, "what comes has the new one");
	tap_is_int(ask("/one")->status, 404, "and not the old one");
	tap_ok(held->location == l && gate_generation_of(held) == 1 &&
		view_eq(l->path, VIEW("/hold")),
	    "the held one has its own");
	held->status = 200;
	tap_is_int(gate_error(held, 400, "x", "over"), SP_OK, "it ends");
	gate_resume(held, GATE_DONE);
	held = NULL;
	turn();
	tap_is_int(s->status, 400, "is answered");
	tap_is_int((long long)generations(), 1, "the first one is gone");
	finish();
	buf_clear(&err);
}

static const struct hub_link *
link_of(const struct generation *n, const char *name)
{
	size_t i;

	for (i = 0; i < n->conf->upstreams_n; i++)
		if (view_eq(n->conf->upstreams[i]->name, view_str(name)))
			return forward_link(n->forward,
			    n->conf->upstreams[i]->index);
	return NULL;
}

/* ---- servers at run time --------------------------------------------------- */

static int
change(enum fleet_op op, const char *url)
{
	struct arena *arena = arena_new(1 << 20);
	const char *why = NULL;
	int rc;

	if (arena == NULL)
		return SP_E_NOMEM;
	rc = fleet_change(gate->current->forward,
	    gate->current->conf->upstreams[0], op, view_str(url), arena, &why);
	if (rc != SP_OK && why == NULL)
		abort();
	arena_free(arena);
	return rc;
}

static size_t
fleet_size(void)
{
	struct fleet_server all[FLEET_SERVERS_MAX];

	return fleet_list(gate, gate->current->forward,
	    gate->current->conf->upstreams[0], all);
}

static int
reload(const char *text)
{
	struct buf err = BUF_INIT(4096);
	int rc = prepare(text, 7, &err);

	if (rc == SP_OK)
		rc = gate_prepare_keep(gate, 0, 0);
	if (rc == SP_OK) {
		gate_commit(gate);
		turn();
	}
	buf_clear(&err);
	return rc;
}

static void
fleet(void)
{
	unsigned long n;
	int rc;

	begin();
	tap_is_int((long long)fleet_size(), 1, "one server");
	tap_is_int(change(FLEET_ADD, "ftp://h"), SP_E_SYNTAX, "no URL");
	tap_is_int(change(FLEET_ADD, "https://h"), SP_E_ARG, "no TLS");
	tap_is_int(change(FLEET_REMOVE, "http://h"), SP_E_NOTFOUND,
	    "no server");
	for (n = 1, rc = -1; n < 100 && rc != SP_OK; n++) {
		mem_fail_after(n, 0);
		rc = change(FLEET_ADD, "http://h/");
		mem_fail_after(0, 0);
		if (rc != SP_OK && rc != SP_E_NOMEM)
			break;
	}
	tap_ok(rc == SP_OK && n > 5 && fleet_size() == 2, "one is added");
	tap_is_int(change(FLEET_ADD, "http://H:80/v1/"), SP_E_EXISTS, "once");
	tap_is_int(reload(ONE), SP_OK, "a reload");
	tap_is_int((long long)fleet_size(), 2, "does not forget it");
	tap_is_int(reload("upstream u { server http://127.0.0.1:9/v1;"
			  " keepalive 7; }\n"
			  "server { listen 127.0.0.1:7001;"
			  " location /h { health; } }"),
	    SP_OK, "other parameters");
	tap_is_int((long long)fleet_size(), 2, "nor do they");
	tap_is_int(reload("upstream u { server http://127.0.0.1:8/v1; }\n"
			  "server { listen 127.0.0.1:7001;"
			  " location /h { health; } }"),
	    SP_OK, "another server");
	tap_is_int((long long)fleet_size(), 1, "counts");
	finish();
}

/* Connections of an upstream that is the same are shared. */
static void
sharing(void)
{
	struct buf err = BUF_INIT(4096);

	begin();
	if (prepare(TWO, 2, &err) != SP_OK)
		abort();
	tap_ok(link_of(gate->next, "v") == link_of(gate->current, "v"),
	    "another model: the same connections");
	tap_ok(link_of(gate->next, "u") != link_of(gate->current, "u"),
	    "other parameters: others");
	gate_abandon(gate);
	turn();
	tap_is_int((long long)generations(), 1, "given up: gone");
	gate_abandon(gate);
	tap_is_int(gate_prepare_keep(gate, 0, 0), SP_E_STATE, "nothing there");
	tap_is_int(gate_prepare_listen(gate, 0, socket_here()), SP_E_STATE,
	    "nor for a socket");
	tap_is_int(ask("/one")->status, 200, "the first one serves on");
	tap_is_int(prepare("server { listen 127.0.0.1:1 ssl; certificate env:A;"
			   " certificate_key env:B; location /h { health; } }",
		       3, &err),
	    SP_E_CONF, "a certificate that never came");
	tap_ok(buf_len(&err) > 0, "is told: %.*s", VIEW_ARG(buf_view(&err)));
	buf_clear(&err);
	buf_init(&err, 4096);
	tap_is_int(prepare("upstream u { server https://127.0.0.1:9/v1; }"
			   "server { listen 127.0.0.1:1; location /h "
			   "{ health; } }",
		       4, &err),
	    SP_E_TLS, "trusted certificates that never came");
	tap_ok(buf_len(&err) > 0, "are told: %.*s", VIEW_ARG(buf_view(&err)));
	turn();
	tap_is_int((long long)generations(), 1, "nothing is left of them");
	finish();
	buf_clear(&err);
}

/* A port that is closed and comes back; a drain over a prepared one. */
static void
ports(void)
{
	struct buf err = BUF_INIT(4096);
	size_t i;

	begin();
	for (i = 0; i < 6; i++) {
		if (prepare(i % 2 ? ONE : TWO, (uint32_t)i + 2, &err) != SP_OK)
			abort();
		if (gate_prepare_keep(gate, i % 2 ? 0 : 1, i % 2 ? 1 : 0) !=
			SP_OK ||
		    (i % 2 == 0 &&
			gate_prepare_listen(gate, 0, socket_here()) != SP_OK))
			abort();
		gate_commit(gate);
		turn();
	}
	tap_is_int((long long)gate->ports_n, 3,
	    "two addresses and control, three ports");
	tap_ok(gate->ports[0]->listener != NULL &&
		gate->ports[1]->listener == NULL,
	    "one of them open");
	tap_is_int((long long)generations(), 1, "one generation");
	if (prepare(TWO, 9, &err) != SP_OK)
		abort();
	gate_drain(gate, on_stop, NULL);
	tap_ok(gate->next == NULL, "a drain gives up what is prepared");
	tap_is_int(prepare(TWO, 10, &err), SP_E_STATE, "and takes no more");
	turn();
	finish();
	buf_clear(&err);
}

static void
memory(void)
{
	struct gate_source src = { .number = 2 };
	struct buf err = BUF_INIT(4096);
	unsigned long n;
	int rc = SP_E_NOMEM;

	begin();
	for (n = 1; rc != SP_OK && n < 10000; n++) {
		src.owned = parse(TWO);
		mem_fail_after(n, 0);
		rc = gate_prepare(gate, &src, &err);
		if (rc == SP_OK)
			rc = gate_prepare_keep(gate, 1, 0);
		if (rc == SP_OK)
			rc = gate_prepare_listen(gate, 0, socket_here());
		mem_fail_after(0, 0);
		if (rc != SP_OK)
			gate_abandon(gate);
		turn();
		if (generations() != (rc == SP_OK ? 2 : 1))
			break;
	}
	tap_ok(rc == SP_OK && n > 5, "after %lu failures", n - 1);
	tap_is_int(gate_generation(gate), 1, "the first one is current yet");
	gate_commit(gate);
	tap_is_int(ask("/two")->status, 200, "and then the second");
	finish();
	buf_clear(&err);
}

int
main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	loop = loop_new();
	stopper = loop != NULL ? loop_timer_new(loop, on_stop, NULL) : NULL;
	if (stopper == NULL)
		abort();
	references();
	sharing();
	fleet();
	ports();
	memory();
	loop_timer_free(stopper);
	loop_free(loop);
	return tap_done();
}
