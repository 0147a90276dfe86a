/* Which server and location serve a request. */
#include "config.h"

#include "conf/conf_env.h"
#include "gate/gate.h"
#include "gate/route.h"

#include "tap.h"

static const struct conf_module exact_conf = { .name = "exact" };
static const struct conf_module deep_conf = { .name = "deep" };
static const struct conf_module other_conf = { .name = "other" };
static const struct gate_module exact = { .conf = &exact_conf };
static const struct gate_module deep = { .conf = &deep_conf, .beneath = true };
const struct gate_module *const gate_modules[] = { &exact, &deep, NULL };

static struct conf_location v1 = { .path = { "/v1", 3 },
	.handler = &deep_conf };
static struct conf_location v1m = { .path = { "/v1/models", 10 },
	.handler = &exact_conf };
static struct conf_location mcp = { .path = { "/mcp", 4 },
	.handler = &exact_conf };
static struct conf_location root = { .path = { "/", 1 },
	.handler = &deep_conf };
static struct conf_location lone = { .path = { "/lone", 5 },
	.handler = &other_conf };

static void
is_routed(struct conf_server *s, const char *path, struct conf_location *want,
    const char *rest)
{
	struct route_found f;
	bool found = route_find(s, view_str(path), &f);

	if (want == NULL) {
		tap_ok(!found, "%s: none", path);
		return;
	}
	tap_ok(found && f.location == want, "%s", path);
	if (found)
		tap_is_mem(f.rest.p, f.rest.n, rest, strlen(rest), "rest");
}

static void
locations(void)
{
	struct conf_location *some[] = { &mcp, &v1, &v1m, &lone };
	struct conf_location *all[] = { &root, &mcp, &v1, &v1m };
	struct conf_server s = { .locations = some, .locations_n = 4 };

	is_routed(&s, "/v1", &v1, "");
	is_routed(&s, "/v1/chat/completions", &v1, "/chat/completions");
	is_routed(&s, "/v1/models", &v1m, "");
	is_routed(&s, "/v1/models/x", &v1, "/models/x");
	is_routed(&s, "/v12", NULL, NULL);
	is_routed(&s, "/mcp", &mcp, "");
	is_routed(&s, "/mcp/grader", NULL, NULL);
	is_routed(&s, "/", NULL, NULL);
	is_routed(&s, "/V1", NULL, NULL);
	/* exact places need no module to be found */
	is_routed(&s, "/lone", &lone, "");
	is_routed(&s, "/lone/x", NULL, NULL);
	s.locations = all;
	is_routed(&s, "/", &root, "");
	is_routed(&s, "/x", &root, "/x");
	is_routed(&s, "/mcp/grader", &root, "/mcp/grader");
	is_routed(&s, "/v1/x", &v1, "/x");
	s.locations_n = 0;
	is_routed(&s, "/", NULL, NULL);
}

static void
servers(void)
{
	struct view a[] = { VIEW("a.example") };
	struct view b[] = { VIEW("b.example"), VIEW("[::1]") };
	struct conf_server one = { .index = 0, .server_names = { a, 1 } };
	struct conf_server two = { .index = 1, .server_names = { b, 2 } };
	const struct conf_server *both[] = { &one, &two };

	tap_ok(route_server(both, 2, VIEW("a.example")) == &one, "first");
	tap_ok(route_server(both, 2, VIEW("B.Example")) == &two, "any case");
	tap_ok(route_server(both, 2, VIEW("b.example:81")) == &two, "port");
	tap_ok(route_server(both, 2, VIEW("b.example.")) == &two, "root dot");
	tap_ok(route_server(both, 2, VIEW("[::1]:81")) == &two, "literal");
	tap_ok(route_server(both, 2, VIEW("[::1")) == &one, "half a literal");
	tap_ok(route_server(both, 2, VIEW("c.example")) == &one, "unknown");
	tap_ok(route_server(both, 2, VIEW("")) == &one, "none");
	tap_ok(route_server(both, 1, VIEW("b.example")) == &one, "alone");
}

static void
is_place(const struct conf_location *l, const char *want)
{
	struct buf out = BUF_INIT(4096);

	tap_is_int(route_place(l, &out), SP_OK, "a name");
	tap_is_mem(buf_view(&out).p, buf_len(&out), want, strlen(want), want);
	buf_clear(&out);
}

/* Neither the order of servers nor of locations matters. */
static void
places(void)
{
	struct view names[] = { VIEW_INIT("b"), VIEW_INIT("a.example"),
		VIEW_INIT("a.example.b") };
	struct conf_listen at[] = { { .index = 4,
					.address = VIEW_INIT("127.0.0.1"),
					.port = 7000 },
		{ .address = VIEW_INIT("::1"), .port = 7000 } },
			   other = { .address = VIEW_INIT("127.0.0.1"),
				   .port = 7001 };
	struct conf_environment env = { .name = VIEW_INIT("box") };
	struct conf_server s = { .index = 3, .listens = at, .listens_n = 2 };
	struct conf_location l = { .path = VIEW_INIT("/mcp"),
		.index = 5,
		.server = &s };

	is_place(&l, "127.0.0.1:7000 /mcp");
	s.server_names = (struct conf_list){ .v = names, .n = 3 };
	is_place(&l, "127.0.0.1:7000 a.example /mcp");
	s.server_names.n = 0;
	/* nor that of their lines: another one stands before it */
	at[1] = at[0];
	at[0] = other;
	is_place(&l, "127.0.0.1:7000 /mcp");
	at[0] = at[1];
	at[1] = other;
	is_place(&l, "127.0.0.1:7000 /mcp");
	at[1].address = VIEW("::1");
	at[0].port = 0;
	is_place(&l, "127.0.0.1:0#4 /mcp");
	at[0].port = 8000;
	s.environment = &env;
	is_place(&l, "box 127.0.0.1:8000 /mcp");
	s.listens_n = 0;
	is_place(&l, "box /mcp");
}

int
main(void)
{
	locations();
	places();
	servers();
	return tap_done();
}
