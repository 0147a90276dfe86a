/*
 * A consumer of exchanges that does what the path says, for the tests of the
 * back ends: it must behave the same under every one of them.
 *   /echo      reads the body, then sends it back with its length
 *   /stream    sends "one", "two", "three" without a length
 *   /continue  lets the client send first, then as /echo
 *   /refuse    answers 413 at once, whatever the body does
 *   /big/N     sends N bytes, as exchange_room() allows
 *   /upgrade   takes the protocol that is asked for, and echoes its bytes
 *   /hold      does nothing: the test has it in app.held
 */
#ifndef SP_T_UNIT_HTTP_APP_H
#define SP_T_UNIT_HTTP_APP_H

#include <stdlib.h>

#include "base/num.h"
#include "http/exchange.h"

struct app {
	struct buf log;
	struct exchange *held;
	size_t queued_max; /* most bytes ever queued by /big beyond room */
	bool no_credit; /* bodies are not consumed */
	unsigned done, gone, opened;
	enum exchange_gone why;
};

struct app_x {
	struct buf body;
	uint64_t left; /* of /big */
	bool echo, big;
};

static struct app app;

static void app_log(const char *fmt, ...) printf_like(1, 2);
static void
app_log(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (buf_vprintf(&app.log, fmt, ap) != 0)
		abort();
	va_end(ap);
}

static void
app_reset(void)
{
	buf_clear(&app.log);
	app = (struct app){ .log = BUF_INIT(1 << 24) };
}

static int
app_head(struct exchange *x, unsigned status, int64_t length)
{
	struct head_reply head = { .status = status, .content_length = length };
	int rc;

	head_fields_init(&head.fields, x->arena);
	rc = head_add(&head.fields, VIEW("X-App"), VIEW("yes"));
	return rc == 0 ? exchange_head(x, &head) : rc;
}

static void
app_fill(struct exchange *x, struct app_x *a)
{
	static const char bytes[1000] = { 0 };
	size_t room, n;

	while (a->left != 0 && (room = exchange_room(x)) != 0) {
		n = a->left < sizeof(bytes) ? (size_t)a->left : sizeof(bytes);
		if (exchange_data(x, view_of(bytes, n)) != 0)
			return;
		a->left -= n;
		if (n > room && n - room > app.queued_max)
			app.queued_max = n - room;
	}
	if (a->left == 0)
		(void)!exchange_end(x);
}

static void
app_stream(struct exchange *x)
{
	struct view v[2] = { VIEW("th"), VIEW("ree") };
	int rc = app_head(x, 200, -1);

	if (rc == 0 && !x->reply_bodyless)
		rc = exchange_data(x, VIEW("one"));
	if (rc == 0 && !x->reply_bodyless)
		rc = exchange_data(x, VIEW("two"));
	if (rc == 0 && !x->reply_bodyless)
		rc = exchange_datav(x, v, 2);
	if (rc == 0)
		rc = exchange_end(x);
	if (rc != 0)
		app_log("stream %d;", rc);
}

static void
app_upgrade(struct exchange *x)
{
	struct head_reply head = { .content_length = -1 };
	int rc;

	head_fields_init(&head.fields, x->arena);
	rc = head_add(&head.fields, VIEW("X-App"), VIEW("yes"));
	if (rc == 0)
		rc = exchange_upgrade(x, &head);
	app_log("upgrade %d;", rc);
	if (rc != 0)
		(void)!exchange_simple(x, 400, VIEW_NONE, VIEW("no"));
}

static void
app_open(void *server, struct exchange *x)
{
	struct app_x *a = arena_zalloc(x->arena, sizeof(*a));
	struct view path = x->request.path;

	app.opened++;
	app_log("open %.*s %.*s %s;", VIEW_ARG(x->request.method),
	    VIEW_ARG(path), server == &app ? "" : "BAD");
	x->user = a;
	if (a == NULL) {
		exchange_abort(x);
		return;
	}
	buf_init(&a->body, 1 << 24);
	if (view_eq(path, VIEW("/echo"))) {
		a->echo = true;
	} else if (view_eq(path, VIEW("/continue"))) {
		a->echo = true;
		if (exchange_continue(x) != 0)
			app_log("no continue;");
	} else if (view_eq(path, VIEW("/stream"))) {
		app_stream(x);
	} else if (view_eq(path, VIEW("/refuse"))) {
		(void)!exchange_simple(x, 413, VIEW("text/plain"),
		    VIEW("too much"));
	} else if (view_eq(path, VIEW("/upgrade"))) {
		app_upgrade(x);
	} else if (view_starts(path, VIEW("/big/")) &&
	    num_u64(view_from(path, 5), 0, 1 << 30, &a->left) == 0) {
		a->big = true;
		if (app_head(x, 200, (int64_t)a->left) == 0)
			app_fill(x, a);
	} else {
		app.held = x;
	}
}

static void
app_body(struct exchange *x, struct view data)
{
	struct app_x *a = x->user;

	app_log("body %zu;", data.n);
	if (x->upgraded) {
		(void)!exchange_data(x, data);
		if (!app.no_credit)
			exchange_credit(x, data.n);
		return;
	}
	if (a == NULL || buf_add_view(&a->body, data) != 0)
		exchange_abort(x);
	if (!app.no_credit)
		exchange_credit(x, data.n);
}

static void
app_body_end(struct exchange *x)
{
	struct app_x *a = x->user;

	app_log("end;");
	if (!x->request_whole)
		app_log("BAD request_whole;");
	if (x->upgraded)
		(void)!exchange_end(x);
	if (a != NULL && a->echo)
		(void)!exchange_simple(x, 200, VIEW("text/plain"),
		    buf_view(&a->body));
}

static void
app_writable(struct exchange *x)
{
	struct app_x *a = x->user;

	if (a->big)
		app_fill(x, a);
	else
		app_log("writable;");
}

static void
app_over(struct exchange *x)
{
	struct app_x *a = x->user;

	if (a != NULL)
		buf_clear(&a->body);
	if (app.held == x)
		app.held = NULL;
}

static void
app_done(struct exchange *x)
{
	app.done++;
	app_log("done;");
	app_over(x);
}

static void
app_gone(struct exchange *x, enum exchange_gone why)
{
	app.gone++;
	app.why = why;
	app_log("gone %d;", (int)why);
	/* too late for anything */
	if (x->state == EXCHANGE_REQUEST &&
	    exchange_simple(x, 200, VIEW_NONE, VIEW_NONE) != SP_E_GONE)
		app_log("BAD reply after gone;");
	app_over(x);
}

static const struct exchange_consumer app_consumer = {
	.open = app_open,
	.body = app_body,
	.body_end = app_body_end,
	.writable = app_writable,
	.done = app_done,
	.gone = app_gone,
};

static inline struct view
app_error(void *server, unsigned status, const char *what, struct view *type)
{
	(void)server;
	(void)status;
	*type = VIEW("text/x-error");
	return view_str(what);
}

#endif
