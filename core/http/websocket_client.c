#include "config.h"

#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/h1_parse.h"
#include "http/h1_write.h"
#include "http/websocket_client.h"
#include "net/stream.h"

enum {
	CLIENT_HEAD_MAX = 32 * 1024,
	CLIENT_FIELDS_MAX = 100,
	CLIENT_INTERIM_MAX = 16,
	CLIENT_CLOSE_MS = 10 * 1000, /* for the server to answer a close */
	/* over the queue's bound: answers to pings, and a close */
	CLIENT_CONTROL_BYTES = 1024 * 1024,
	CLIENT_FLUSH_ROUNDS = 8,
	CLIENT_WHY_BYTES = 96,
};

enum client_state {
	CLIENT_ASKED, /* the head of the reply comes */
	CLIENT_OPEN,
	CLIENT_CLOSING, /* our close is queued */
	CLIENT_OVER, /* closed() was told */
};

struct websocket_client {
	struct loop *loop;
	const struct websocket_client_owner *owner;
	void *arg;
	struct websocket *ws; /* owned */
	struct stream *stream; /* NULL once it is over */
	struct loop_timer *timer;
	struct loop_task *task; /* writes, and what waits for an end of turn */
	struct buf in; /* of the head */
	struct buf out;
	size_t queue_max;
	struct h1_scan scan;
	enum client_state state;
	unsigned depth; /* of calls that may free it */
	unsigned interims;
	unsigned status; /* of the reply; 0 none */
	bool broken; /* no memory for what is to be sent */
	bool freed;
	char key[WEBSOCKET_KEY_BYTES];
	char why[CLIENT_WHY_BYTES];
};

/* ---- its end --------------------------------------------------------------
 */

static void
client_leave(struct websocket_client *c)
{
	if (--c->depth > 0 || !c->freed)
		return;
	websocket_free(c->ws);
	stream_free(c->stream, true);
	loop_timer_free(c->timer);
	loop_task_free(c->task);
	buf_clear(&c->in);
	buf_clear(&c->out);
	mem_free(c);
}

void
websocket_client_free(struct websocket_client *c)
{
	if (c == NULL)
		return;
	c->depth++;
	c->state = CLIENT_OVER;
	c->freed = true;
	client_leave(c);
}

unsigned
websocket_client_status(const struct websocket_client *c)
{
	return c->status;
}

size_t
websocket_client_holds(const struct websocket_client *c)
{
	return sizeof(*c) + websocket_holds(c->ws) + c->in.cap + c->out.cap;
}

/* As far as it goes without waiting. */
static int
client_flush(struct websocket_client *c)
{
	struct iovec iov;
	size_t done;
	int i, rc = 0;

	for (i = 0; i < CLIENT_FLUSH_ROUNDS && buf_len(&c->out) != 0; i++) {
		iov.iov_base = c->out.mem + c->out.off;
		iov.iov_len = buf_len(&c->out);
		rc = stream_writev(c->stream, &iov, 1, &done);
		if (rc != 0 || done == 0)
			break;
		buf_consume(&c->out, done);
	}
	if (buf_len(&c->out) == 0)
		buf_reset(&c->out, 0);
	return rc == SP_E_AGAIN ? 0 : rc;
}

/* Within depth.  graceful: what is queued may still leave. */
static void
client_over(struct websocket_client *c, unsigned code, bool graceful)
{
	if (c->state == CLIENT_OVER)
		return;
	c->state = CLIENT_OVER;
	loop_timer_stop(c->timer);
	if (graceful)
		(void)!client_flush(c);
	stream_free(c->stream, graceful);
	c->stream = NULL;
	c->owner->closed(c->arg, code, c->why);
}

static void
client_fail(struct websocket_client *c, const char *why)
{
	if (c->state == CLIENT_OVER)
		return;
	(void)snprintf(c->why, sizeof(c->why), "%s", why);
	client_over(c, WEBSOCKET_ABNORMAL, false);
}

static void
client_update(struct websocket_client *c)
{
	unsigned want = buf_len(&c->out) != 0 ? STREAM_WRITE : 0;

	if (c->state == CLIENT_OVER)
		return;
	/* nor while the answers to its pings are not taken */
	if (!websocket_full(c->ws) && buf_len(&c->out) <= c->queue_max)
		want |= STREAM_READ;
	stream_want(c->stream, want);
}

/* ---- from the websocket ---------------------------------------------------
 */

static void
client_message(void *arg, bool text, struct view data)
{
	struct websocket_client *c = arg;

	c->owner->message(c->arg, text, data);
}

static int
client_write(void *arg, struct view data)
{
	struct websocket_client *c = arg;
	int rc = buf_add_view(&c->out, data);

	/* nothing can follow half a frame */
	c->broken = c->broken || rc != 0;
	loop_task_post(c->task);
	return rc == 0 ? 0 : SP_E_NOMEM;
}

static void
client_closed(void *arg, unsigned code, struct view reason)
{
	struct websocket_client *c = arg;

	(void)snprintf(c->why, sizeof(c->why), "%.*s", VIEW_ARG(reason));
	client_over(c, code, true);
}

/* ---- the handshake --------------------------------------------------------
 */

static int
client_ask(struct websocket_client *c, const struct websocket_client_params *p)
{
	const struct h1_write_request rq = { .method = VIEW("GET"),
		.host = p->host,
		.target = p->target,
		.fields = p->fields };
	int rc = websocket_key(c->key);

	if (rc == 0)
		rc = h1_write_request_line(&c->out, &rq);
	if (rc == 0)
		rc = buf_printf(&c->out,
		    "Upgrade: websocket\r\nConnection: Upgrade\r\n"
		    "Sec-WebSocket-Version: 13\r\n"
		    "Sec-WebSocket-Key: %.*s\r\n",
		    WEBSOCKET_KEY_BYTES, c->key);
	return rc != 0 ? rc : h1_write_request_rest(&c->out, &rq);
}

/* RFC 6455 s4.1: what the server has to say.  Returns what is wrong, or NULL. */
static const char *
client_check(const struct websocket_client *c, const struct head_reply *head)
{
	const struct head_fields *f = &head->fields;
	char want[WEBSOCKET_ACCEPT_BYTES];

	if (!view_eq_nocase(head->upgrade, VIEW("websocket")))
		return "the server switches to no WebSocket";
	if (websocket_accept(view_of(c->key, sizeof(c->key)), want) != 0)
		return err_str(SP_E_NOMEM);
	if (head_count(f, VIEW("sec-websocket-accept")) != 1 ||
	    !view_eq(head_get(f, VIEW("sec-websocket-accept")),
		view_of(want, sizeof(want))))
		return "the server's Sec-WebSocket-Accept is wrong";
	if (head_count(f, VIEW("sec-websocket-extensions")) != 0)
		return "the server takes an extension that nobody offered";
	if (head_count(f, VIEW("sec-websocket-protocol")) != 0)
		return "the server takes a subprotocol that nobody offered";
	return NULL;
}

static void
client_opened(struct websocket_client *c)
{
	c->state = CLIENT_OPEN;
	loop_timer_stop(c->timer);
	c->owner->open(c->arg);
}

/* One whole head. */
static void
client_head(struct websocket_client *c, const struct head_reply *head)
{
	const char *wrong;

	if (head->status == 101 || head->status >= 200)
		c->status = head->status;
	if (head->status == 101) {
		wrong = client_check(c, head);
		if (wrong != NULL)
			client_fail(c, wrong);
		else
			client_opened(c);
	} else if (head->status >= 200) {
		(void)snprintf(c->why, sizeof(c->why), "the server answers %u",
		    head->status);
		client_over(c, WEBSOCKET_ABNORMAL, false);
	} else if (++c->interims > CLIENT_INTERIM_MAX) {
		client_fail(c, "too many interim replies");
	}
	c->scan = (struct h1_scan){ .reply = true };
}

/* 0 with *n, bytes of a head that was taken; SP_E_*: no more can be done. */
static int
client_parse(struct websocket_client *c, struct view v, size_t *n)
{
	const struct h1_scan_limits limits = { .line_max = CLIENT_HEAD_MAX,
		.total_max = CLIENT_HEAD_MAX,
		.fields_max = CLIENT_FIELDS_MAX };
	struct h1_fault fault = { 0, "malformed reply" };
	struct h1_framing framing;
	struct head_reply head;
	struct arena *a;
	int rc = h1_parse_scan(&c->scan, v, &limits, n, &fault);

	if (rc == SP_E_AGAIN)
		return rc;
	a = arena_new(CLIENT_HEAD_MAX * 2);
	if (rc == 0)
		rc = a == NULL ? SP_E_NOMEM
			       : h1_parse_reply(view_sub(v, 0, *n), &c->scan, a,
				     &head, &framing, &fault);
	if (rc == 0)
		client_head(c, &head);
	else
		client_fail(c, rc == SP_E_NOMEM ? err_str(rc) : fault.what);
	arena_free(a);
	return rc;
}

/* Bytes of the reply; what is left of them is the websocket's. */
static void
client_reply(struct websocket_client *c)
{
	size_t n = 0;

	while (c->state == CLIENT_ASKED &&
	    client_parse(c, buf_view(&c->in), &n) == 0)
		buf_consume(&c->in, n);
	if (c->state != CLIENT_OPEN && c->state != CLIENT_CLOSING)
		return;
	(void)!websocket_feed(c->ws, buf_view(&c->in));
	buf_clear(&c->in);
}

/* ---- from the loop --------------------------------------------------------
 */

static void
client_read(struct websocket_client *c)
{
	char *p = loop_scratch(c->loop);
	size_t n;
	int rc = stream_read(c->stream, p, LOOP_SCRATCH_BYTES, &n);

	if (rc == SP_E_AGAIN)
		return;
	if (rc != 0) {
		client_fail(c,
		    rc == SP_E_EOF ? "the server closed the connection"
				   : "the connection broke");
	} else if (c->state != CLIENT_ASKED) {
		(void)!websocket_feed(c->ws, view_of(p, n));
	} else if (buf_add(&c->in, p, n) != 0) {
		client_fail(c, err_str(SP_E_NOMEM));
	} else {
		client_reply(c);
	}
}

static void
client_ready(void *arg, struct stream *s, unsigned what)
{
	struct websocket_client *c = arg;

	(void)s;
	c->depth++;
	if ((what & STREAM_FAIL) != 0)
		client_fail(c, "the connection broke");
	else if ((what & STREAM_READ) != 0)
		client_read(c);
	if (c->state != CLIENT_OVER && client_flush(c) != 0)
		client_fail(c, "the connection broke");
	client_update(c);
	client_leave(c);
}

static void
client_turn(void *arg)
{
	struct websocket_client *c = arg;

	c->depth++;
	/* what a pause held back */
	if (c->state == CLIENT_OPEN || c->state == CLIENT_CLOSING)
		(void)!websocket_feed(c->ws, VIEW_NONE);
	if (c->broken)
		client_fail(c, err_str(SP_E_NOMEM));
	if (c->state != CLIENT_OVER && client_flush(c) != 0)
		client_fail(c, "the connection broke");
	client_update(c);
	client_leave(c);
}

static void
client_timeout(void *arg)
{
	struct websocket_client *c = arg;

	c->depth++;
	client_fail(c,
	    c->state == CLIENT_ASKED
		? "the server does not answer the handshake"
		: "the server does not answer a close");
	client_leave(c);
}

/* ---- what its owner says --------------------------------------------------
 */

static const struct websocket_owner client_socket = {
	.message = client_message,
	.write = client_write,
	.closed = client_closed,
};

static int
client_init(struct websocket_client *c, int fd,
    const struct websocket_client_params *p)
{
	const struct stream_owner owner = { client_ready, c };
	const struct stream_side side = { .server = false };
	int rc;

	c->timer = loop_timer_new(c->loop, client_timeout, c);
	c->task = loop_task_new(c->loop, client_turn, c);
	rc = c->timer == NULL || c->task == NULL ? SP_E_NOMEM : 0;
	if (rc == 0)
		rc = client_ask(c, p);
	if (rc == 0)
		rc = websocket_new(WEBSOCKET_CLIENT, p->message_max,
		    &client_socket, c, &c->ws);
	if (rc != 0)
		(void)close(fd);
	else
		rc = stream_new(c->loop, fd, &side, &owner, &c->stream);
	return rc == SP_E_LIMIT ? SP_E_SYNTAX : rc;
}

int
websocket_client_start(struct loop *l, int fd,
    const struct websocket_client_params *params,
    const struct websocket_client_owner *owner, void *arg,
    struct websocket_client **out)
{
	struct websocket_client *c = mem_calloc(1, sizeof(*c));
	int rc;

	if (c == NULL) {
		(void)close(fd);
		return SP_E_NOMEM;
	}
	c->loop = l;
	c->owner = owner;
	c->arg = arg;
	c->queue_max = params->queue_max;
	c->scan.reply = true;
	buf_init(&c->in, CLIENT_HEAD_MAX + LOOP_SCRATCH_BYTES);
	buf_init(&c->out, params->queue_max + CLIENT_CONTROL_BYTES);
	rc = client_init(c, fd, params);
	if (rc != 0) {
		websocket_client_free(c);
		return rc;
	}
	if (params->open_ms != 0)
		loop_timer_set(c->timer, params->open_ms);
	stream_want(c->stream, STREAM_READ);
	loop_task_post(c->task);
	*out = c;
	return 0;
}

int
websocket_client_send(struct websocket_client *c, struct view text)
{
	size_t n = websocket_frame_bytes(WEBSOCKET_CLIENT, text.n);
	int rc;

	if (c->state != CLIENT_OPEN || c->broken)
		return SP_E_STATE;
	if (buf_len(&c->out) >= c->queue_max ||
	    n > c->queue_max - buf_len(&c->out))
		return SP_E_LIMIT;
	/* so that it cannot fail half-way */
	if (buf_reserve(&c->out, n) != 0)
		return SP_E_NOMEM;
	rc = websocket_send(c->ws, true, text);
	return rc == SP_E_GONE ? SP_E_STATE : rc;
}

void
websocket_client_close(struct websocket_client *c, unsigned code)
{
	if (c->state == CLIENT_OVER || c->state == CLIENT_CLOSING)
		return;
	if (c->state == CLIENT_ASKED) {
		/* nobody to say it to: as a handshake that came to nothing */
		loop_timer_set(c->timer, 0);
		return;
	}
	c->state = CLIENT_CLOSING;
	loop_timer_set(c->timer, CLIENT_CLOSE_MS);
	/* a failure ends it at the end of the turn */
	(void)!websocket_close(c->ws, code, VIEW_NONE);
	websocket_pause(c->ws, false);
	loop_task_post(c->task);
}

void
websocket_client_pause(struct websocket_client *c, bool on)
{
	if (c->state == CLIENT_OVER || c->state == CLIENT_CLOSING)
		return;
	websocket_pause(c->ws, on);
	if (!on)
		loop_task_post(c->task);
}
