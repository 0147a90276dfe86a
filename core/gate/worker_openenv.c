/*
 * worker http, the dialect of OpenEnv: one WebSocket to /ws for the episode,
 * JSON frames, an answer to each before the next.
 */
#include "config.h"

#include <stdio.h>

#include "base/mem.h"
#include "gate/worker_http.h"
#include "gate/worker_rpc.h"
#include "http/websocket_client.h"
#include "json/jwrite.h"
#include "os/fd.h"

enum {
	OPENENV_OPEN_MS = 5000, /* for the handshake */
	OPENENV_WORDS_MAX = 2048,
	OPENENV_WORD_MAX = 64, /* of a frame's type */
};

struct worker_openenv {
	struct worker_http *h;
	void *dial;
	struct websocket_client *ws;
	bool ready;
	struct buf error; /* of a frame that answered nothing */
};

/* ---- what it says ----------------------------------------------------------- */

/* {"type":..,"data":..}: spans of the text. */
struct openenv_frame {
	struct jscan s;
	struct jscan_span type, data;
};

static int
frame_read(struct view text, unsigned flags, struct openenv_frame *f)
{
	struct jscan_span key, v;
	int more, rc;

	memset(f, 0, sizeof(*f));
	jscan_init(&f->s, text, flags);
	rc = jscan_enter(&f->s);
	while (rc == SP_OK && (more = jscan_member(&f->s, &key)) != 0) {
		rc = more < 0 ? more : jscan_skip(&f->s, &v);
		if (rc != SP_OK)
			break;
		if (jscan_is(&f->s, &key, VIEW("type")))
			f->type = v;
		else if (jscan_is(&f->s, &key, VIEW("data")))
			f->data = v;
	}
	if (rc == SP_OK)
		rc = jscan_finish(&f->s);
	return rc == SP_OK && f->type.kind == JSCAN_STRING ? SP_OK
							   : SP_E_SYNTAX;
}

static int
add_member(struct view object, const char *name, struct buf *out)
{
	struct jscan_span v;
	struct jscan s;

	jscan_init(&s, object, 0);
	if (jscan_find(object, view_str(name), &v) != 1)
		return SP_E_NOTFOUND;
	return v.kind == JSCAN_STRING
	    ? jscan_decode(&s, &v, out, NULL)
	    : buf_add_view(out,
		  view_sub(jscan_raw(&s, &v), 0, OPENENV_WORDS_MAX / 2));
}

/* "Episode not found (EXECUTION_ERROR)"; errors of a validation follow. */
static void
error_words(const struct openenv_frame *f, struct buf *out)
{
	struct view data = f->data.kind == JSCAN_OBJECT
	    ? jscan_raw(&f->s, &f->data)
	    : VIEW("{}");
	int rc = add_member(data, "message", out);

	if (rc == SP_E_NOTFOUND)
		rc = buf_add_str(out, "an error without words");
	/* what has no room, or is not there, is left out */
	if (rc == SP_OK && buf_add_str(out, " (") == SP_OK) {
		if (add_member(data, "code", out) != SP_OK)
			buf_truncate(out, buf_len(out) - 2);
		else
			(void)!buf_add_char(out, ')');
	}
	if (rc == SP_OK && buf_add_str(out, " ") == SP_OK &&
	    add_member(data, "errors", out) != SP_OK)
		buf_truncate(out, buf_len(out) - 1);
}

static void
openenv_error(struct worker_openenv *o, const struct openenv_frame *f)
{
	struct worker_call *c = o->h->back.w->current;
	struct buf words = BUF_INIT(OPENENV_WORDS_MAX);

	error_words(f, &words);
	if (c != NULL) {
		worker_answer(c, WORKER_ERROR, buf_view(&words));
	} else {
		/* no room, no session: the close that follows ends it */
		buf_truncate(&o->error, 0);
		(void)!buf_add_view(&o->error, buf_view(&words));
	}
	buf_clear(&words);
}

/* Whatever id it put in, the answer is to this request. */
static void
openenv_answer_mcp(struct worker_call *c, struct view data)
{
	const struct view id = c->id.n > 0 ? c->id : VIEW("null");
	struct buf b = BUF_INIT(2 * WORKER_LINE_MAX);
	struct worker_rpc r;
	int rc = worker_rpc_read(data, &r);

	if (rc == SP_OK && (r.has_method || r.has_result == r.has_error))
		rc = SP_E_SYNTAX;
	if (rc == SP_OK)
		rc = worker_rpc_put(&r, &id, NULL, NULL, &b);
	if (rc == SP_OK)
		worker_answer(c, WORKER_OK, buf_view(&b));
	else
		worker_answer(c, WORKER_ERROR,
		    VIEW("its answer is no JSON-RPC response"));
	buf_clear(&b);
}

static void
openenv_answer(struct worker_openenv *o, const struct openenv_frame *f)
{
	static const char *const types[] = {
		[WORKER_RESET] = "observation",
		[WORKER_STEP] = "observation",
		[WORKER_STATE] = "state",
		[WORKER_MCP] = "mcp",
	};
	struct worker *w = o->h->back.w;
	struct worker_call *c = w->current;
	struct view data = jscan_raw(&f->s, &f->data);

	if (c == NULL || !jscan_is(&f->s, &f->type, view_str(types[c->op])) ||
	    f->data.kind != JSCAN_OBJECT)
		worker_fail(w, WORKER_GONE,
		    "it sent a frame %.*s that answers nothing",
		    VIEW_ARG(view_sub(jscan_raw(&f->s, &f->type), 0,
			OPENENV_WORD_MAX)));
	else if (c->op == WORKER_MCP)
		openenv_answer_mcp(c, data);
	else
		worker_answer(c, WORKER_OK, data);
}

/*
 * Python writes NaN and Infinity, which are no JSON: null, as a server with
 * pydantic has it.
 */
static int
openenv_mend(struct view text, struct buf *out)
{
	struct openenv_frame f;
	struct jwrite j;
	int rc = frame_read(text, JSCAN_ALLOW_NONFINITE, &f);

	if (rc != SP_OK)
		return rc;
	jwrite_init(&j, out);
	jwrite_span(&j, text);
	return jwrite_finish(&j);
}

static void
openenv_on_message(void *arg, bool text, struct view data)
{
	struct buf mended = BUF_INIT(2 * WORKER_LINE_MAX);
	struct worker_openenv *o = arg;
	struct openenv_frame f;
	int rc = SP_E_SYNTAX;

	if (o->h->back.w == NULL)
		return;
	if (text)
		rc = frame_read(data, 0, &f);
	if (text && rc != SP_OK && openenv_mend(data, &mended) == SP_OK)
		rc = frame_read(buf_view(&mended), 0, &f);
	if (rc != SP_OK)
		worker_fail(o->h->back.w, WORKER_GONE,
		    "it sent a frame that is no JSON object with a type");
	else if (jscan_is(&f.s, &f.type, VIEW("error")))
		openenv_error(o, &f);
	else
		openenv_answer(o, &f);
	buf_clear(&mended);
}

/* ---- the connection --------------------------------------------------------- */

static void
openenv_on_open(void *arg)
{
	struct worker_openenv *o = arg;

	o->ready = true;
	if (o->h->back.w == NULL)
		return;
	o->h->phase = WORKER_HTTP_OPENENV;
	worker_ready(o->h->back.w, VIEW_NONE);
}

/* It was ready, and is no more. */
static void
openenv_lost(struct worker_openenv *o, unsigned code, const char *why)
{
	char words[OPENENV_WORD_MAX * 4];

	(void)snprintf(words, sizeof(words),
	    "its WebSocket is closed: %u%s%.*s", code, why[0] != 0 ? ": " : "",
	    OPENENV_WORD_MAX * 2, why);
	if (buf_len(&o->error) > 0)
		worker_fail(o->h->back.w, WORKER_GONE, "%s: %.*s", words,
		    VIEW_ARG(buf_view(&o->error)));
	else
		worker_http_broke(o->h, words);
}

static void
openenv_on_closed(void *arg, unsigned code, const char *why)
{
	struct worker_openenv *o = arg;
	struct worker_http *h = o->h;
	unsigned status = websocket_client_status(o->ws);
	char words[OPENENV_WORD_MAX * 4];

	(void)snprintf(words, sizeof(words), "/ws: %.*s", OPENENV_WORD_MAX * 2,
	    why);
	websocket_client_free(o->ws);
	o->ws = NULL;
	if (h->back.w == NULL)
		return;
	if (o->ready)
		openenv_lost(o, code, why);
	else if (status == 0 || status >= 500)
		worker_http_not_yet(h, words);
	else
		worker_http_no_websocket(h);
}

static const struct websocket_client_owner openenv_owner = {
	.open = openenv_on_open,
	.message = openenv_on_message,
	.closed = openenv_on_closed,
};

static void
openenv_on_dialled(void *arg, int err, int fd)
{
	struct worker_openenv *o = arg;
	struct worker_http *h = o->h;
	struct buf host = BUF_INIT(OPENENV_WORD_MAX);
	struct websocket_client_params params = { .target = VIEW("/ws"),
		.open_ms = OPENENV_OPEN_MS,
		.message_max = WORKER_LINE_MAX,
		.queue_max = 2 * WORKER_LINE_MAX };
	int rc = err;

	o->dial = NULL;
	if (rc == SP_OK)
		rc = buf_printf(&host, "127.0.0.1:%u", h->port);
	params.host = buf_view(&host);
	if (rc != SP_OK)
		fd_close(&fd);
	else
		rc = websocket_client_start(worker_loop(h->back.w), fd, &params,
		    &openenv_owner, o, &o->ws);
	buf_clear(&host);
	if (rc != SP_OK)
		worker_http_not_yet(h, err_str(rc));
}

/* ---- the back end's --------------------------------------------------------- */

int
worker_openenv_start(struct worker_http *h)
{
	struct worker_openenv *o = h->openenv;

	if (o == NULL) {
		o = mem_calloc(1, sizeof(*o));
		if (o == NULL)
			return SP_E_NOMEM;
		o->h = h;
		buf_init(&o->error, OPENENV_WORDS_MAX);
		h->openenv = o;
	}
	return worker_http_dial(h, openenv_on_dialled, o, &o->dial);
}

int
worker_openenv_send(struct worker_http *h, struct worker_call *c)
{
	static const char *const types[] = {
		[WORKER_RESET] = "reset",
		[WORKER_STEP] = "step",
		[WORKER_STATE] = "state",
		[WORKER_MCP] = "mcp",
	};
	struct buf b = BUF_INIT(WORKER_LINE_MAX);
	int rc = buf_printf(&b, "{\"type\":\"%s\"", types[c->op]);

	/* of a state there is none: one would be refused */
	if (rc == SP_OK && c->op != WORKER_STATE)
		rc = buf_add_str(&b, ",\"data\":");
	if (rc == SP_OK && c->op != WORKER_STATE)
		rc = buf_add_view(&b, buf_view(&c->data));
	if (rc == SP_OK)
		rc = buf_add_char(&b, '}');
	if (rc == SP_OK)
		rc = h->openenv->ws == NULL
		    ? SP_E_GONE
		    : websocket_client_send(h->openenv->ws, buf_view(&b));
	buf_clear(&b);
	/* it is closing: what comes of that is told in words */
	return rc == SP_E_STATE || rc == SP_E_GONE ? SP_OK : rc;
}

void
worker_openenv_hold(struct worker_http *h, bool on)
{
	if (h->openenv->ws != NULL)
		websocket_client_pause(h->openenv->ws, on);
}

void
worker_openenv_stop(struct worker_http *h)
{
	struct worker_openenv *o = h->openenv;

	if (o == NULL)
		return;
	worker_http_undial(o->dial);
	o->dial = NULL;
	websocket_client_free(o->ws);
	o->ws = NULL;
}

void
worker_openenv_free(struct worker_http *h)
{
	struct worker_openenv *o = h->openenv;

	if (o == NULL)
		return;
	worker_openenv_stop(h);
	buf_clear(&o->error);
	mem_free(o);
	h->openenv = NULL;
}
