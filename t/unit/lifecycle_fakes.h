/*
 * What the orchestrator's doors stand on, played: WebSockets, workers, feeds
 * and the helper.  The linker puts __wrap_NAME in NAME's place.
 */
#ifndef SP_T_UNIT_LIFECYCLE_FAKES_H
#define SP_T_UNIT_LIFECYCLE_FAKES_H

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "gate/door.h"
#include "gate/episode.h"
#include "gate/feed.h"
#include "gate/websock.h"
#include "gate/worker.h"
#include "ipc/wire.h"
#include "lifecycle_call.h"
#include "os/fd.h"

enum { FAKES = 16 };

/* ---- WebSockets ------------------------------------------------------------- */

struct websock {
	bool used;
	const struct websock_params *params;
	const struct websock_events *events;
	void *arg;
	struct buf last; /* frame that was sent */
	unsigned sent, code; /* of frames; of a close, 0 none */
	bool paused, dropped;
	size_t queued;
};

static struct websock fake_ws[FAKES];
static struct websock *fake_ws_last;
static int fake_asked, fake_accept_rc, fake_send_rc;

int __wrap_websocket_asked(const struct head_request *req);
int __wrap_websock_accept(struct gate_request *r,
    const struct websock_params *params, const struct websock_events *events,
    void *arg, struct websock **out);
int __wrap_websock_send(struct websock *s, struct view text);
size_t __wrap_websock_queued(const struct websock *s);
void __wrap_websock_close(struct websock *s, unsigned code, struct view reason);
void __wrap_websock_pause(struct websock *s, bool on);
void __wrap_websock_drop(struct websock *s, unsigned code);
size_t __wrap_websock_holds(const struct websock *s);

int
__wrap_websocket_asked(const struct head_request *req)
{
	(void)req;
	return fake_asked;
}

int
__wrap_websock_accept(struct gate_request *r,
    const struct websock_params *params, const struct websock_events *events,
    void *arg, struct websock **out)
{
	struct websock *s = fake_ws;

	(void)r;
	if (fake_accept_rc != SP_OK)
		return fake_accept_rc;
	while (s->used)
		s++;
	err_assert(s < fake_ws + FAKES);
	*s = (struct websock){ .used = true,
		.params = params,
		.events = events,
		.arg = arg };
	buf_init(&s->last, 1 << 24);
	fake_ws_last = *out = s;
	return SP_OK;
}

int
__wrap_websock_send(struct websock *s, struct view text)
{
	if (fake_send_rc != SP_OK)
		return fake_send_rc;
	if (s->code != 0)
		return SP_E_GONE;
	buf_reset(&s->last, 1 << 24);
	if (buf_add_view(&s->last, text) != SP_OK)
		return SP_E_NOMEM;
	s->sent++;
	return SP_OK;
}

size_t
__wrap_websock_queued(const struct websock *s)
{
	return s->queued;
}

void
__wrap_websock_close(struct websock *s, unsigned code, struct view reason)
{
	(void)reason;
	if (s->code == 0)
		s->code = code;
}

void
__wrap_websock_pause(struct websock *s, bool on)
{
	s->paused = on;
}

void
__wrap_websock_drop(struct websock *s, unsigned code)
{
	(void)code;
	s->dropped = true;
	buf_clear(&s->last);
	s->used = false;
}

/* It is over: told once, then s is nowhere. */
static void
fake_ws_over(struct websock *s, unsigned code)
{
	if (!s->used)
		return;
	s->events->closed(s->arg, code);
	buf_clear(&s->last);
	s->used = false;
}

size_t
__wrap_websock_holds(const struct websock *s)
{
	return s->queued;
}

/* ---- workers ---------------------------------------------------------------- */

struct worker {
	enum worker_state state;
	const char *tail;
};
struct worker_call {
	bool used;
	enum worker_op op;
	struct buf data;
	const struct worker_caller *caller;
	void *arg;
	uint64_t timeout_ms;
};

static struct worker fake_worker;
static struct worker_call fake_calls[FAKES];
static struct worker_call *fake_call_last;
static unsigned fake_calls_n, fake_forgotten;
static bool fake_no_worker;
static int fake_call_rc;

struct worker *__wrap_worker_of(struct episode *ep);
enum worker_state __wrap_worker_state(const struct worker *w);
struct view __wrap_worker_why(const struct worker *w);
struct view __wrap_worker_stderr(const struct worker *w);
int __wrap_worker_call(struct worker *w, const struct worker_ask *ask,
    const struct worker_caller *caller, void *arg, struct worker_call **out);
void __wrap_worker_forget(struct worker_call *c, struct view reason);

struct worker *
__wrap_worker_of(struct episode *ep)
{
	return fake_no_worker || strcmp(ep->env, "bare") == 0 ? NULL
							      : &fake_worker;
}

enum worker_state
__wrap_worker_state(const struct worker *w)
{
	return w->state;
}

struct view
__wrap_worker_why(const struct worker *w)
{
	(void)w;
	return VIEW("it left");
}

struct view
__wrap_worker_stderr(const struct worker *w)
{
	return view_str(w->tail);
}

int
__wrap_worker_call(struct worker *w, const struct worker_ask *ask,
    const struct worker_caller *caller, void *arg, struct worker_call **out)
{
	struct worker_call *c = fake_calls;

	(void)w;
	if (fake_call_rc != SP_OK)
		return fake_call_rc;
	while (c->used)
		c++;
	err_assert(c < fake_calls + FAKES);
	*c = (struct worker_call){ .used = true,
		.op = ask->op,
		.caller = caller,
		.arg = arg,
		.timeout_ms = ask->timeout_ms };
	buf_init(&c->data, 1 << 24);
	if (buf_add_view(&c->data, ask->data) != SP_OK) {
		c->used = false;
		return SP_E_NOMEM;
	}
	fake_calls_n++;
	fake_call_last = *out = c;
	return SP_OK;
}

void
__wrap_worker_forget(struct worker_call *c, struct view reason)
{
	(void)reason;
	fake_forgotten++;
	buf_clear(&c->data);
	c->used = false;
}

/* The worker answers the last call, if it is open. */
static void
fake_answer(enum worker_result result, const char *body)
{
	struct worker_call *c = fake_call_last;

	if (c == NULL || !c->used)
		return;
	c->caller->done(c->arg, result, view_str(body));
	buf_clear(&c->data);
	c->used = false;
}

/* ---- timers ----------------------------------------------------------------- */

static uint64_t fake_room_ms = LIFECYCLE_ROOM_MS;

void __real_loop_timer_set(struct loop_timer *t, uint64_t in_ms);
void __wrap_loop_timer_set(struct loop_timer *t, uint64_t in_ms);

/* A wait for room may be a short one. */
void
__wrap_loop_timer_set(struct loop_timer *t, uint64_t in_ms)
{
	__real_loop_timer_set(t,
	    in_ms == LIFECYCLE_ROOM_MS ? fake_room_ms : in_ms);
}

/* ---- the log of operations -------------------------------------------------- */

static char fake_logged[256];

void __wrap_door_log(const struct gate_request *r,
    const struct door_operation *op);

void
__wrap_door_log(const struct gate_request *r, const struct door_operation *op)
{
	(void)r;
	snprintf(fake_logged, sizeof(fake_logged), "%s %s %s %s", op->principal,
	    op->door, op->operation, op->outcome);
}

/* ---- the helper ------------------------------------------------------------- */

static struct {
	struct {
		enum message_type type;
		uint32_t request;
	} v[256];
	unsigned n;
	int rc;
} helper;
static struct buf helper_msg = BUF_INIT(65536);
static struct gate *helper_gate;

static int
helper_send(void *arg, enum message_type type, struct view body, int fd)
{
	struct wire w;

	(void)arg;
	fd_close(&fd);
	if (helper.rc != SP_OK)
		return helper.rc;
	if (type != MESSAGE_EPISODE_CREATE && type != MESSAGE_EPISODE_RESET &&
	    type != MESSAGE_EPISODE_END)
		return SP_OK;
	err_assert(helper.n < 256);
	wire_init(&w, body);
	helper.v[helper.n].type = type;
	helper.v[helper.n++].request = wire_u32(&w);
	return SP_OK;
}

static void
helper_u32(uint32_t v)
{
	if (wire_put_u32(&helper_msg, v) != SP_OK)
		abort();
}

static void
helper_bytes(const char *s)
{
	if (wire_put_bytes(&helper_msg, view_str(s)) != SP_OK)
		abort();
}

static void
helper_tell(enum message_type type)
{
	struct channel_msg m = { .type = (uint16_t)type,
		.body = buf_view(&helper_msg),
		.fd = -1 };

	err_assert(episode_set_heard(gate_episodes(helper_gate), &m) == SP_OK);
	buf_reset(&helper_msg, 65536);
}

/* The nth request from the end: of that type. */
static uint32_t
helper_request(enum message_type type)
{
	unsigned i = helper.n;

	while (i-- > 0)
		if (helper.v[i].type == type)
			return helper.v[i].request;
	return 0;
}

static void
helper_made(enum message_type type, uint32_t slot, const char *env)
{
	helper_u32(slot);
	helper_u32(1);
	helper_u32(helper_request(type));
	helper_bytes(env);
	helper_tell(MESSAGE_EPISODE_MADE);
}

static void
helper_refuses(enum message_type type, unsigned why, const char *what)
{
	helper_u32(helper_request(type));
	if (wire_put_u8(&helper_msg, (uint8_t)why) != SP_OK)
		abort();
	helper_bytes(what);
	helper_tell(MESSAGE_EPISODE_REFUSED);
}

static void
helper_ended(uint32_t slot, const char *why)
{
	helper_u32(slot);
	helper_u32(1);
	helper_u32(0);
	if (wire_put_u8(&helper_msg, SANDBOX_END_LOST) != SP_OK)
		abort();
	helper_bytes(why);
	helper_tell(MESSAGE_EPISODE_ENDED);
}

#endif
