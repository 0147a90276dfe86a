#include "config.h"

#include <wslay/wslay.h>

#include "base/b64.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "crypt/digest.h"
#include "crypt/rnd.h"
#include "http/websocket.h"

enum {
	SOCKET_CONTROL_MAX = 125, /* RFC 6455 s5.5 */
	SOCKET_WAIT_MAX = 4 * 1024 * 1024, /* fed while a message waits */
	SOCKET_KEY_RANDOM = 16, /* RFC 6455 s4.1 */
	SOCKET_HEAD_MAX = 14, /* of a frame; RFC 6455 s5.2 */
	SOCKET_LIBRARY_BYTES = 4400, /* what wslay keeps, about */
};

struct websocket {
	wslay_frame_context_ptr frame; /* owned */
	struct websocket_owner owner;
	void *arg;
	size_t message_max;
	size_t large; /* bytes of a message that waits for its turn */
	struct view in; /* what is being fed */
	struct buf message; /* as far as it came */
	struct buf wait; /* fed behind a message that waits */
	uint64_t got; /* bytes of the frame's payload */
	uint64_t taken, framed; /* of all frames: by wslay, and from it */
	uint8_t recent[SOCKET_HEAD_MAX]; /* the last bytes that it took */
	uint64_t progress; /* see websocket_unfinished() */
	unsigned depth; /* of calls that may call back */
	int write_rc; /* what write() gave; 0: the stream is there */
	uint8_t opcode; /* of the message that is under way; 0 none */
	uint8_t control_n;
	bool client;
	bool in_frame; /* its header was seen */
	bool paused;
	bool pending; /* message is whole, and has to wait */
	bool held; /* it does for its turn */
	bool close_sent;
	bool over; /* closed() was told, or is not to be */
	bool freed; /* as soon as depth is 0 */
	char control[SOCKET_CONTROL_MAX]; /* payload of a control frame */
};

/* ---- memory ---------------------------------------------------------------
 */

static void
socket_leave(struct websocket *w)
{
	err_assert(w->depth > 0);
	if (--w->depth > 0 || !w->freed)
		return;
	wslay_frame_context_free(w->frame);
	buf_clear(&w->message);
	buf_clear(&w->wait);
	mem_free(w);
}

void
websocket_free(struct websocket *w)
{
	if (w == NULL)
		return;
	w->depth++;
	w->freed = w->over = true;
	socket_leave(w);
}

size_t
websocket_holds(const struct websocket *w)
{
	return sizeof(*w) + SOCKET_LIBRARY_BYTES + w->message.cap + w->wait.cap;
}

/* ---- what wslay asks for --------------------------------------------------
 */

static void
socket_recent(struct websocket *w, struct view v)
{
	const size_t max = sizeof(w->recent);

	if (v.n > max)
		v = view_from(v, v.n - max);
	memmove(w->recent, w->recent + v.n, max - v.n);
	memcpy(w->recent + max - v.n, v.p, v.n);
}

static ssize_t
socket_recv(uint8_t *out, size_t max, int flags, void *arg)
{
	struct websocket *w = arg;
	size_t n = w->in.n < max ? w->in.n : max;

	(void)flags;
	if (n == 0)
		return -1;
	memcpy(out, w->in.p, n);
	socket_recent(w, view_sub(w->in, 0, n));
	w->in = view_from(w->in, n);
	w->taken += n;
	return (ssize_t)n;
}

static ssize_t
socket_write(const uint8_t *p, size_t n, int flags, void *arg)
{
	struct websocket *w = arg;

	(void)flags;
	w->write_rc = w->owner.write(w->arg, view_of(p, n));
	return w->write_rc == 0 ? (ssize_t)n : -1;
}

/* RFC 6455 s5.3: each frame's key is new, and not to be foreseen. */
static int
socket_mask(uint8_t *out, size_t n, void *arg)
{
	(void)arg;
	rnd_bytes(out, n);
	return 0;
}

int
websocket_new(enum websocket_role role, size_t message_max,
    const struct websocket_owner *owner, void *arg, struct websocket **out)
{
	static const struct wslay_frame_callbacks callbacks = {
		.send_callback = socket_write,
		.recv_callback = socket_recv,
		.genmask_callback = socket_mask,
	};
	struct websocket *w = mem_calloc(1, sizeof(*w));

	if (w == NULL)
		return SP_E_NOMEM;
	if (wslay_frame_context_init(&w->frame, &callbacks, w) != 0) {
		mem_free(w);
		return SP_E_NOMEM;
	}
	w->client = role == WEBSOCKET_CLIENT;
	w->owner = *owner;
	w->arg = arg;
	w->message_max = message_max;
	buf_init(&w->message, message_max);
	buf_init(&w->wait, SOCKET_WAIT_MAX);
	*out = w;
	return 0;
}

/* ---- what is sent ---------------------------------------------------------
 */

static int
socket_send(struct websocket *w, uint8_t opcode, struct view data)
{
	struct wslay_frame_iocb f = { .fin = 1,
		.opcode = opcode,
		.mask = w->client,
		.payload_length = data.n,
		.data = (const uint8_t *)data.p,
		.data_length = data.n };
	ssize_t n;
	int rc;

	if (w->write_rc != 0)
		return SP_E_GONE;
	w->depth++;
	n = wslay_frame_send(w->frame, &f);
	/* its only other failure is a payload of 2^63 bytes */
	err_assert(w->write_rc != 0 || (n >= 0 && (size_t)n == data.n));
	rc = w->write_rc;
	socket_leave(w);
	return rc;
}

int
websocket_send(struct websocket *w, bool text, struct view data)
{
	if (w->close_sent || w->over)
		return SP_E_STATE;
	/* RFC 6455 s8.1 */
	if (text && !utf8_valid(data))
		return SP_E_SYNTAX;
	return socket_send(w, text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME,
	    data);
}

int
websocket_ping(struct websocket *w)
{
	return w->close_sent || w->over ? SP_E_STATE
					: socket_send(w, WSLAY_PING, VIEW_NONE);
}

size_t
websocket_frame_bytes(enum websocket_role role, size_t n)
{
	size_t head = n < 126 ? 2 : n <= UINT16_MAX ? 4 : 10;

	return head + (role == WEBSOCKET_CLIENT ? 4 : 0) + n;
}

/*
 * RFC 6455 s7.4: what may stand in a close frame; 1012 to 1014 were registered
 * since.
 */
static bool
socket_is_code(unsigned code)
{
	return (code >= 1000 && code <= 1003) ||
	    (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

/* Cut where a character ends; nothing of what is not UTF-8. */
static struct view
socket_reason(struct view reason, size_t max)
{
	if (!utf8_valid(reason))
		return VIEW_NONE;
	if (reason.n <= max)
		return reason;
	while (max > 0 && ((unsigned char)reason.p[max] & 0xc0) == 0x80)
		max--;
	return view_sub(reason, 0, max);
}

int
websocket_close(struct websocket *w, unsigned code, struct view reason)
{
	char body[SOCKET_CONTROL_MAX];
	size_t n = 0;

	if (w->close_sent || w->over)
		return 0;
	w->close_sent = true;
	w->held = false;
	if (code != WEBSOCKET_NO_CODE) {
		if (!socket_is_code(code))
			code = WEBSOCKET_INTERNAL;
		reason = socket_reason(reason, sizeof(body) - 2);
		body[0] = (char)(code >> 8);
		body[1] = (char)(code & 0xff);
		n = 2 + reason.n;
		if (reason.n != 0)
			memcpy(body + 2, reason.p, reason.n);
	}
	return socket_send(w, WSLAY_CONNECTION_CLOSE, view_of(body, n));
}

/* ---- what came ------------------------------------------------------------
 */

/* The end, told. */
static void
socket_over(struct websocket *w, unsigned code, struct view reason)
{
	w->over = true;
	buf_clear(&w->message);
	w->pending = false;
	if (w->write_rc == 0 && !w->freed)
		w->owner.closed(w->arg, code, reason);
}

/* RFC 6455 s7.1.7: the peer is told why, as far as it can be. */
static int
socket_fail(struct websocket *w, unsigned code, const char *why)
{
	/* the stream's end is its owner's to see */
	(void)!websocket_close(w, code, view_str(why));
	socket_over(w, code, view_str(why));
	return code == WEBSOCKET_INTERNAL ? SP_E_NOMEM : SP_E_PROTO;
}

static int
socket_protocol(struct websocket *w, const char *why)
{
	return socket_fail(w, WEBSOCKET_PROTOCOL, why);
}

static int
socket_deliver(struct websocket *w, struct view v)
{
	bool text = w->opcode == WSLAY_TEXT_FRAME;

	w->opcode = 0;
	w->progress++;
	/* RFC 6455 s8.1 */
	if (text && !utf8_valid(v))
		return socket_fail(w, WEBSOCKET_BAD_TEXT,
		    "text that is not UTF-8");
	w->owner.message(w->arg, text, v);
	if (!w->freed)
		buf_reset(&w->message, 0);
	return 0;
}

/* One piece of a data frame.  Source: RFC 6455 s5.4. */
static int
socket_data(struct websocket *w, const struct wslay_frame_iocb *f, bool last)
{
	struct view v = view_of(f->data, f->data_length);
	bool whole = last && f->fin != 0;

	w->progress += v.n;
	/* RFC 6455 s5.5.1: what comes after a close of ours is for nobody */
	if (w->close_sent) {
		buf_reset(&w->message, 0);
		if (whole)
			w->opcode = 0;
		return 0;
	}
	if (whole)
		w->held =
		    w->large != 0 && buf_len(&w->message) + v.n >= w->large;
	/* it is here in one piece: no need to keep it */
	if (whole && buf_len(&w->message) == 0 && !w->paused && !w->held)
		return socket_deliver(w, v);
	if (v.n != 0 && buf_add_view(&w->message, v) != 0)
		return socket_fail(w, WEBSOCKET_INTERNAL, "out of memory");
	if (!whole)
		return 0;
	if (w->paused || w->held) {
		w->pending = true;
		return 0;
	}
	return socket_deliver(w, buf_view(&w->message));
}

/* Source: RFC 6455 s5.5.1, s7.1.5, s7.1.6. */
static int
socket_closing(struct websocket *w)
{
	struct view reason = view_of(w->control, w->control_n);
	unsigned code = WEBSOCKET_NO_CODE;

	if (reason.n == 1)
		return socket_protocol(w, "a close frame of one byte");
	if (reason.n >= 2) {
		code = (unsigned)(unsigned char)reason.p[0] << 8 |
		    (unsigned char)reason.p[1];
		reason = view_from(reason, 2);
		if (!socket_is_code(code))
			return socket_protocol(w,
			    "a code that no close frame may have");
		if (!utf8_valid(reason))
			return socket_fail(w, WEBSOCKET_BAD_TEXT,
			    "a reason that is not UTF-8");
	}
	(void)!websocket_close(w, code, VIEW_NONE);
	socket_over(w, code, reason);
	return 0;
}

/* One piece of a control frame. */
static int
socket_control(struct websocket *w, const struct wslay_frame_iocb *f, bool last)
{
	err_assert(f->data_length <= sizeof(w->control) - w->control_n);
	if (f->data_length != 0)
		memcpy(w->control + w->control_n, f->data, f->data_length);
	w->control_n += (uint8_t)f->data_length;
	if (!last)
		return 0;
	switch (f->opcode) {
	case WSLAY_CONNECTION_CLOSE:
		return socket_closing(w);
	case WSLAY_PING:
		/* RFC 6455 s5.5.3: the same bytes */
		if (!w->close_sent &&
		    socket_send(w, WSLAY_PONG,
			view_of(w->control, w->control_n)) != 0)
			return SP_E_GONE;
		return 0;
	default:
		if (w->owner.pong != NULL)
			w->owner.pong(w->arg);
		return 0;
	}
}

/* A data frame begins.  Source: RFC 6455 s5.4. */
static int
socket_data_begins(struct websocket *w, const struct wslay_frame_iocb *f)
{
	if (f->opcode == WSLAY_CONTINUATION_FRAME) {
		if (w->opcode == 0)
			return socket_protocol(w,
			    "a continuation of no message");
	} else if (w->opcode != 0) {
		return socket_protocol(w, "a message within another");
	} else {
		w->opcode = f->opcode;
	}
	if (!w->close_sent &&
	    f->payload_length > w->message_max - buf_len(&w->message))
		return socket_fail(w, WEBSOCKET_TOO_BIG,
		    "the message is too large");
	return 0;
}

/*
 * What wslay leaves to us of a header; the form of the length and the bounds
 * of control frames it has checked.  Source: RFC 6455 s5.1, s5.2.
 */
static int
socket_begins(struct websocket *w, const struct wslay_frame_iocb *f)
{
	w->in_frame = true;
	w->got = 0;
	w->framed += websocket_frame_bytes(w->client ? WEBSOCKET_SERVER
						     : WEBSOCKET_CLIENT,
			 f->payload_length) -
	    f->payload_length;
	if (f->rsv != 0)
		return socket_protocol(w, "a reserved bit is set");
	if ((f->mask != 0) == w->client)
		return socket_protocol(w,
		    w->client ? "a frame of the server's is masked"
			      : "a frame of the client's is not masked");
	switch (f->opcode) {
	case WSLAY_CONTINUATION_FRAME:
	case WSLAY_TEXT_FRAME:
	case WSLAY_BINARY_FRAME:
		return socket_data_begins(w, f);
	case WSLAY_CONNECTION_CLOSE:
	case WSLAY_PING:
	case WSLAY_PONG:
		w->control_n = 0;
		return 0;
	default:
		return socket_protocol(w, "an unknown opcode");
	}
}

/*
 * Of a frame that it has no payload of, wslay does not tell the header: what
 * is too large is refused before the peer sends it.  Source: RFC 6455 s5.2.
 */
static int
socket_announced(struct websocket *w)
{
	uint64_t n = w->taken - w->framed;
	struct wslay_frame_iocb f = { .fin = 0 };
	const uint8_t *p;
	size_t bytes, i;

	if (w->in_frame || w->close_sent || n < 2 || n > SOCKET_HEAD_MAX)
		return SP_E_AGAIN;
	p = w->recent + SOCKET_HEAD_MAX - n;
	bytes = (p[1] & 127) == 127 ? 8 : (p[1] & 127) == 126 ? 2 : 0;
	if (bytes == 0 || n < 2 + bytes || wslay_is_ctrl_frame(p[0] & 15))
		return SP_E_AGAIN;
	for (i = 0; i < bytes; i++)
		f.payload_length = f.payload_length << 8 | p[2 + i];
	if (f.payload_length <= w->message_max - buf_len(&w->message))
		return SP_E_AGAIN;
	/* or for what comes first, as if it had begun */
	f.rsv = (p[0] >> 4) & 7;
	f.opcode = p[0] & 15;
	f.mask = p[1] >> 7;
	return socket_begins(w, &f);
}

/* One piece of a frame: SP_E_AGAIN when it is not here yet. */
static int
socket_step(struct websocket *w)
{
	struct wslay_frame_iocb f;
	ssize_t n = wslay_frame_recv(w->frame, &f);
	bool last;
	int rc;

	if (n == WSLAY_ERR_WANT_READ)
		return socket_announced(w);
	if (n < 0)
		return socket_protocol(w,
		    "a malformed length, or a control frame that is long or "
		    "in pieces");
	if (!w->in_frame) {
		rc = socket_begins(w, &f);
		if (rc != 0)
			return rc;
	}
	w->got += f.data_length;
	w->framed += f.data_length;
	last = w->got == f.payload_length;
	w->in_frame = !last;
	return wslay_is_ctrl_frame(f.opcode) ? socket_control(w, &f, last)
					     : socket_data(w, &f, last);
}

void
websocket_pause(struct websocket *w, bool on)
{
	w->paused = on;
}

bool
websocket_full(const struct websocket *w)
{
	return w->pending && (w->paused || w->held);
}

void
websocket_set_large(struct websocket *w, size_t bytes)
{
	w->large = bytes;
}

bool
websocket_waits(const struct websocket *w)
{
	return w->pending && w->held && !w->paused;
}

void
websocket_turn(struct websocket *w)
{
	w->held = false;
}

size_t
websocket_gathered(const struct websocket *w)
{
	return buf_len(&w->message) + buf_len(&w->wait);
}

bool
websocket_unfinished(const struct websocket *w, uint64_t *progress)
{
	*progress = w->progress;
	/* half a header is wslay's: it took more than it told of */
	return !w->over && !w->pending &&
	    (w->opcode != 0 || w->in_frame || w->taken != w->framed);
}

static int
socket_run(struct websocket *w)
{
	int rc = 0;

	if (w->pending && !w->paused && !w->held) {
		w->pending = false;
		if (w->close_sent) {
			buf_reset(&w->message, 0);
			w->opcode = 0;
		} else {
			rc = socket_deliver(w, buf_view(&w->message));
		}
	}
	while (rc == 0 && !w->over && w->write_rc == 0 && !websocket_full(w))
		rc = socket_step(w);
	return rc == SP_E_AGAIN ? 0 : rc;
}

/* What was fed and could not be read now. */
static int
socket_keep(struct websocket *w)
{
	struct view rest = w->in;
	size_t used;

	if (w->over)
		return 0;
	if (buf_len(&w->wait) != 0) {
		used = buf_len(&w->wait) - rest.n;
		buf_consume(&w->wait, used);
		if (buf_len(&w->wait) == 0)
			buf_reset(&w->wait, 0);
		return 0;
	}
	if (rest.n != 0 && buf_add_view(&w->wait, rest) != 0)
		return socket_fail(w, WEBSOCKET_INTERNAL, "out of memory");
	return 0;
}

int
websocket_feed(struct websocket *w, struct view data)
{
	int rc = 0;

	if (w->over)
		return 0;
	if (w->write_rc != 0)
		return SP_E_GONE;
	err_assert(w->depth == 0);
	w->depth++;
	w->in = data;
	if (buf_len(&w->wait) != 0) {
		if (data.n != 0 && buf_add_view(&w->wait, data) != 0)
			rc =
			    socket_fail(w, WEBSOCKET_INTERNAL, "out of memory");
		w->in = buf_view(&w->wait);
	}
	if (rc == 0)
		rc = socket_run(w);
	if (rc == 0)
		rc = socket_keep(w);
	if (rc == 0 && w->write_rc != 0)
		rc = SP_E_GONE;
	w->in = VIEW_NONE;
	if (w->over)
		buf_clear(&w->wait);
	socket_leave(w);
	return rc;
}

/* ---- the handshake --------------------------------------------------------
 */

/* Exactly one field of that name: its value, or p NULL. */
static struct view
socket_one(const struct head_request *req, struct view name)
{
	return head_count(&req->fields, name) == 1
	    ? head_get(&req->fields, name)
	    : VIEW_NONE;
}

/* base64 of 16 bytes; whether its last character is canonical, no matter. */
static bool
socket_is_key(struct view key)
{
	size_t i;

	if (key.n != WEBSOCKET_KEY_BYTES || !view_ends(key, VIEW("==")))
		return false;
	for (i = 0; i < key.n - 2; i++) {
		unsigned char c = (unsigned char)key.p[i];
		unsigned char low = c | 0x20;

		if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') &&
		    c != '+' && c != '/')
			return false;
	}
	return true;
}

int
websocket_asked(const struct head_request *req)
{
	bool connect = view_eq(req->method, VIEW("CONNECT"));
	struct view version;

	if (!head_list_has(req->upgrade, VIEW("websocket")))
		return SP_E_NOTFOUND;
	/* RFC 6455 s4.1; RFC 8441 s5 has no key */
	if (!connect &&
	    (!view_eq(req->method, VIEW("GET")) || req->http10 ||
		req->has_body))
		return SP_E_SYNTAX;
	version = socket_one(req, VIEW("sec-websocket-version"));
	if (version.p == NULL)
		return SP_E_SYNTAX;
	if (!view_eq(version, VIEW("13")))
		return SP_E_UNSUPPORTED;
	if (!connect &&
	    !socket_is_key(socket_one(req, VIEW("sec-websocket-key"))))
		return SP_E_SYNTAX;
	return 0;
}

/* Exactly n characters of base64. */
static int
socket_base64(struct view v, char *out, size_t n)
{
	struct buf b = BUF_INIT(n);
	int rc = b64_add(&b, v);

	if (rc == 0) {
		err_assert(buf_len(&b) == n && b.mem != NULL);
		memcpy(out, buf_view(&b).p, n);
	}
	buf_clear(&b);
	return rc == 0 ? 0 : SP_E_NOMEM;
}

int
websocket_accept(struct view key, char out[WEBSOCKET_ACCEPT_BYTES])
{
	static const struct view guid =
	    VIEW_INIT("258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
	char text[WEBSOCKET_KEY_BYTES + 36];
	uint8_t sum[DIGEST_SHA1_BYTES];
	int rc;

	key = view_sub(key, 0, WEBSOCKET_KEY_BYTES);
	if (key.n != 0)
		memcpy(text, key.p, key.n);
	memcpy(text + key.n, guid.p, guid.n);
	rc = digest_sha1(view_of(text, key.n + guid.n), sum);
	return rc != 0 ? rc
		       : socket_base64(view_of(sum, sizeof(sum)), out,
			     WEBSOCKET_ACCEPT_BYTES);
}

int
websocket_key(char out[WEBSOCKET_KEY_BYTES])
{
	uint8_t random[SOCKET_KEY_RANDOM];

	rnd_bytes(random, sizeof(random));
	return socket_base64(view_of(random, sizeof(random)), out,
	    WEBSOCKET_KEY_BYTES);
}
