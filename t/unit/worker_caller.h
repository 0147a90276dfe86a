/* For the tests of a worker's calls: a caller that keeps what it is told. */
#ifndef SP_T_UNIT_WORKER_CALLER_H
#define SP_T_UNIT_WORKER_CALLER_H

#include "worker_world.h"

#include <stdio.h>

#include "tap.h"

#define HELLO \
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":" \
	"\"2025-11-25\",\"capabilities\":{}}}"
#define INITIALIZED \
	"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"

/* What a caller was told. */
struct told {
	unsigned n, messages;
	enum worker_result result;
	char body[4096], message[4096];
	struct worker_call *call;
};

static inline void
keep(char *out, size_t room, struct view v)
{
	size_t n = v.n < room ? v.n : room - 1;

	memcpy(out, v.p != NULL ? v.p : "", n);
	out[n] = 0;
}

static inline void
on_message(void *arg, struct view json)
{
	struct told *t = arg;

	t->messages++;
	keep(t->message, sizeof(t->message), json);
}

static inline void
on_done(void *arg, enum worker_result result, struct view body)
{
	struct told *t = arg;

	t->n++;
	t->result = result;
	t->call = NULL;
	keep(t->body, sizeof(t->body), body);
}

static const struct worker_caller caller = { on_message, on_done };
static const struct worker_caller deaf = { NULL, on_done };

static inline int
call(struct told *t, enum worker_op op, const char *data)
{
	const struct worker_ask ask = { .op = op,
		.data = view_str(data),
		.whose = WORKER_ORCHESTRATORS };

	memset(t, 0, sizeof(*t));
	return worker_call(w, &ask, &caller, t, &t->call);
}

static inline void
answer(struct told *t, enum worker_result result, const char *body,
    const char *what)
{
	turn(0);
	if (!tap_ok(t->n == 1 && t->result == result, "%s", what))
		tap_diag("n %u, result %d: %s", t->n, (int)t->result, t->body);
	if (body != NULL)
		tap_is_str(t->body, body, what);
}

static inline void
open_ready(const char *hello)
{
	world_open();
	world_started();
	(void)heard();
	say(hello);
	(void)heard();
}

/* Who hears what belongs to no call. */
struct watched {
	struct worker_watch watch;
	unsigned messages, changes;
	enum worker_state state;
};

static inline void
watch_message(void *arg, struct view json)
{
	(void)json;
	((struct watched *)arg)->messages++;
}

static inline void
watch_changed(void *arg, enum worker_state state)
{
	struct watched *x = arg;

	x->changes++;
	x->state = state;
}

#endif
