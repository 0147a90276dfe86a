/*
 * worker http, the dialect of MCP: what carries the messages of worker_mcp.c
 * is Streamable HTTP, a request for each, and a stream for what comes unasked.
 * Source: MCP 2025-11-25, Streamable HTTP.
 */
#include "config.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "gate/worker_fetch.h"
#include "gate/worker_http.h"
#include "gate/worker_mcp.h"
#include "gate/worker_rpc.h"

enum {
	WEB_OPEN_MAX = 32, /* requests at once */
	WEB_WAITING_BYTES = 2 * WORKER_LINE_MAX + 65536,
	WEB_HELD_MAX = 3 * WORKER_LINE_MAX, /* of replies that are not whole */
	WEB_NOTE_MS = 60 * 1000, /* until a notification is taken */
	WEB_TRIES_MAX = 5, /* in a row, of a stream that ends */
	WEB_RETRY_MS = 1000, /* where the server does not say */
	WEB_WORDS_MAX = 200, /* of what an error says */
};

enum web_kind {
	WEB_NOTE, /* nothing is answered but a status */
	WEB_REQUEST,
	WEB_STREAM, /* the standing GET */
};

struct web_post {
	TAILQ_ENTRY(web_post) link; /* in waiting or open */
	struct worker_web *web;
	enum web_kind kind;
	uint64_t number; /* of a WEB_REQUEST: its id */
	struct worker_fetch fetch;
	struct buf body;
	bool open;
	bool answered; /* what follows is not waited for */
	bool resumed; /* it is a GET now, for the rest of the events */
	unsigned tries;
	uint64_t heard; /* messages before this try */
	struct loop_timer *again;
};
TAILQ_HEAD(web_posts, web_post);

struct worker_web {
	struct worker_http *h;
	struct worker_mcp mcp;
	struct buf session;
	struct web_posts waiting, open;
	unsigned open_n;
	size_t waiting_bytes;
	struct worker_fetch_room room;
	bool streams; /* the standing GET was tried */
	bool complained;
};

static void web_pump(struct worker_web *w);

/* ---- posts ------------------------------------------------------------------ */

static void
post_free(struct web_post *p)
{
	struct worker_web *w = p->web;

	if (p->open) {
		TAILQ_REMOVE(&w->open, p, link);
		w->open_n--;
	} else {
		TAILQ_REMOVE(&w->waiting, p, link);
		w->waiting_bytes -= buf_len(&p->body);
	}
	worker_fetch_clear(&p->fetch);
	loop_timer_free(p->again);
	buf_clear(&p->body);
	mem_free(p);
}

static int
post_start(struct web_post *p)
{
	struct worker_web *w = p->web;
	const struct worker_fetch_ask ask = { .pool = w->h->pool,
		.body = p->kind == WEB_STREAM || p->resumed
		    ? VIEW_NONE
		    : buf_view(&p->body),
		.session = buf_view(&w->session),
		.version = w->mcp.version,
		.first_ms = p->kind == WEB_NOTE ? WEB_NOTE_MS : 0,
		.note = p->kind == WEB_NOTE };

	p->heard = p->fetch.heard;
	return worker_fetch_start(&p->fetch, &ask);
}

/* The call that it carries, if somebody waits for its answer still. */
static struct worker_call *
post_call(const struct web_post *p)
{
	struct worker *w = p->web->h->back.w;

	return w != NULL && p->kind == WEB_REQUEST
	    ? worker_numbered(w, p->number)
	    : NULL;
}

static bool
post_is_hello(const struct web_post *p)
{
	return p->kind == WEB_REQUEST && p->web->mcp.hello == p->number;
}

/* Nothing here will answer it. */
static void
post_unanswered(struct web_post *p, const char *what)
{
	struct worker *w = p->web->h->back.w;
	struct worker_call *c = post_call(p);

	if (post_is_hello(p) && w != NULL)
		worker_fail(w, WORKER_GONE,
		    "it is no OpenEnv server (/ws), and of MCP (/mcp): %s",
		    what);
	else if (c != NULL)
		worker_answer(c, WORKER_ERROR, view_str(what));
}

/* ---- streams that end before they should ------------------------------------ */

static void
post_on_again(void *arg)
{
	struct web_post *p = arg;

	if (p->web->h->back.w != NULL && post_start(p) != SP_OK) {
		post_unanswered(p, "no memory for the rest of its reply");
		post_free(p);
	}
}

/*
 * MCP 2025-11-25, Streamable HTTP, resumability: the server may close a stream
 * as it likes; what was not sent is asked for by the id of the last event.
 * True: it will be.
 */
static bool
post_resume(struct web_post *p)
{
	uint64_t ms = p->fetch.retry_ms != 0 ? p->fetch.retry_ms : WEB_RETRY_MS;

	if (p->kind == WEB_NOTE ||
	    (p->kind == WEB_REQUEST &&
		(p->answered || buf_len(&p->fetch.id) == 0)))
		return false;
	if (p->fetch.heard != p->heard)
		p->tries = 0;
	if (p->tries++ == WEB_TRIES_MAX)
		return false;
	if (p->again == NULL)
		p->again = loop_timer_new(worker_loop(p->web->h->back.w),
		    post_on_again, p);
	if (p->again == NULL)
		return false;
	p->resumed = true;
	loop_timer_set(p->again, ms * p->tries);
	return true;
}

/* ---- what is answered ------------------------------------------------------- */

/* MCP: the session's id is visible ASCII, and of one reply alone. */
static void
web_take_session(struct worker_web *w, const struct head_reply *head)
{
	struct view id = head_get(&head->fields, VIEW("mcp-session-id"));
	size_t i;

	buf_truncate(&w->session, 0);
	for (i = 0; i < id.n; i++)
		if (id.p[i] < 0x21 || id.p[i] > 0x7e)
			break;
	if (i < id.n || id.n > WORKER_FETCH_ID_MAX)
		worker_fail(w->h->back.w, WORKER_GONE,
		    "the id of its session is no visible ASCII of up to %d "
		    "bytes",
		    WORKER_FETCH_ID_MAX);
	else if (buf_add_view(&w->session, id) != SP_OK)
		worker_fail(w->h->back.w, WORKER_GONE,
		    "no memory for the id of its session");
}

static void
web_on_head(void *arg, const struct head_reply *head)
{
	struct web_post *p = arg;
	struct worker_web *w = p->web;

	if (post_is_hello(p) && (p->fetch.json || p->fetch.events))
		web_take_session(w, head);
	/* what waits for a notification to be taken */
	if (p->kind == WEB_NOTE)
		web_pump(w);
}

/*
 * MCP 2025-11-25, Streamable HTTP: what comes before an answer, in the reply
 * to its request, is said in that call.
 */
static void
web_feed(struct web_post *p, struct view json)
{
	struct worker_mcp *m = &p->web->mcp;

	m->within = p->kind == WEB_REQUEST ? p->number : 0;
	worker_mcp_feed(m, json);
	m->within = 0;
}

static void
web_on_message(void *arg, struct view json)
{
	struct web_post *p = arg;
	struct worker_web *w = p->web;
	bool hello = post_is_hello(p);

	web_feed(p, json);
	if (w->h->back.w == NULL || p->kind != WEB_REQUEST)
		return;
	p->answered = hello ? w->mcp.hello != p->number : post_call(p) == NULL;
}

/* The words of an error's body, if it has some. */
static void
post_words(const struct web_post *p, char *out, size_t max)
{
	struct view body = buf_view(&p->fetch.body);
	struct buf text = BUF_INIT(WORKER_FETCH_TEXT_MAX);
	struct jscan_span error, message;
	struct jscan s;

	jscan_init(&s, body, 0);
	if (jscan_find(body, VIEW("error"), &error) == 1 &&
	    error.kind == JSCAN_OBJECT) {
		body = jscan_raw(&s, &error);
		jscan_init(&s, body, 0);
		if (jscan_find(body, VIEW("message"), &message) == 1 &&
		    jscan_decode(&s, &message, &text, NULL) == SP_OK)
			body = buf_view(&text);
	}
	body = view_trim(view_sub(body, 0, WEB_WORDS_MAX));
	(void)snprintf(out, max, "status %u%s%.*s", p->fetch.status,
	    body.n > 0 ? ": " : "", VIEW_ARG(body));
	buf_clear(&text);
}

/* Some servers answer a request with an error in both senses. */
static bool
post_is_answer(const struct web_post *p)
{
	struct view body = buf_view(&p->fetch.body);
	struct worker_rpc r;
	int64_t n = 0;

	return p->kind == WEB_REQUEST && worker_rpc_read(body, &r) == SP_OK &&
	    r.version && r.has_error && !r.has_result && !r.has_method &&
	    r.id.n > 0 && r.id.v[r.id.n - 1].kind == JSCAN_NUMBER &&
	    jscan_i64(&r.s, &r.id.v[r.id.n - 1], &n) == SP_OK &&
	    (uint64_t)n == p->number;
}

static void
post_refused(struct web_post *p)
{
	struct worker_web *w = p->web;
	char words[WEB_WORDS_MAX + 64];

	post_words(p, words, sizeof(words));
	/* the server has forgotten all that it knew: only a reset helps */
	if (p->fetch.status == 404 && buf_len(&w->session) > 0 && !p->resumed &&
	    p->kind != WEB_STREAM)
		worker_fail(w->h->back.w, WORKER_GONE,
		    "its session is gone: %s", words);
	else if (post_is_answer(p))
		web_feed(p, buf_view(&p->fetch.body));
	else
		post_unanswered(p, words);
	if (p->kind == WEB_NOTE && !w->complained && w->h->back.w != NULL) {
		w->complained = true;
		log_notice("episode %s: its worker refuses a notification "
			   "(%s), "
			   "as it may others",
		    w->h->back.w->ep->id, words);
	}
}

static void web_open_stream(struct worker_web *w);

static void
web_on_end(void *arg)
{
	struct web_post *p = arg;
	struct worker_web *w = p->web;
	bool good = p->fetch.status >= 200 && p->fetch.status < 300;

	if (!good)
		post_refused(p);
	else if (p->fetch.events && post_resume(p))
		return;
	else if (p->kind == WEB_REQUEST && !p->answered)
		post_unanswered(p, "its reply holds no answer");
	if (w->h->back.w == NULL)
		return;
	if (p->kind == WEB_NOTE && good)
		web_open_stream(w);
	post_free(p);
	web_pump(w);
}

static void
web_on_failed(void *arg, enum worker_fetch_failure why, const char *text)
{
	struct web_post *p = arg;
	struct worker_web *w = p->web;
	struct worker *worker = w->h->back.w;
	struct worker_call *c = post_call(p);
	bool left = c != NULL && c->place == WORKER_LEFT;
	bool waited = post_is_hello(p) || (c != NULL && !left);

	if (worker == NULL)
		return;
	if (why == WORKER_FETCH_BROKE && post_resume(p))
		return;
	/* cut off is one way to end what was cancelled */
	if (left)
		post_unanswered(p, text);
	/* a standing stream is only what it turns out to be */
	if (why != WORKER_FETCH_BROKE &&
	    (waited || (p->kind == WEB_STREAM && p->fetch.heard > 0)))
		worker_fail(worker, WORKER_GONE, "/mcp: %s", text);
	else if (waited)
		worker_http_broke(w->h, text);
	if (w->h->back.w == NULL)
		return;
	post_free(p);
	web_pump(w);
}

/* ---- what is sent ----------------------------------------------------------- */

static struct web_post *
post_new(struct worker_web *w, enum web_kind kind)
{
	struct web_post *p = mem_calloc(1, sizeof(*p));
	const struct worker_fetch_owner owner = { .head = web_on_head,
		.message = web_on_message,
		.end = web_on_end,
		.failed = web_on_failed,
		.arg = p };

	if (p == NULL)
		return NULL;
	p->web = w;
	p->kind = kind;
	buf_init(&p->body, WEB_WAITING_BYTES);
	worker_fetch_init(&p->fetch, worker_loop(w->h->back.w), &w->room,
	    &owner);
	TAILQ_INSERT_TAIL(&w->waiting, p, link);
	return p;
}

static int
post_open(struct web_post *p)
{
	struct worker_web *w = p->web;

	TAILQ_REMOVE(&w->waiting, p, link);
	w->waiting_bytes -= buf_len(&p->body);
	p->open = true;
	TAILQ_INSERT_TAIL(&w->open, p, link);
	w->open_n++;
	return post_start(p);
}

/*
 * Requests may be answered in any order; a notification is taken before what
 * comes behind it is sent: `initialized` before the first call.
 */
static bool
web_may_send(const struct worker_web *w)
{
	const struct web_post *p;

	if (w->open_n >= WEB_OPEN_MAX)
		return false;
	TAILQ_FOREACH (p, &w->open, link)
		if (p->kind == WEB_NOTE && p->fetch.status == 0)
			return false;
	return true;
}

static int
web_send_waiting(struct worker_web *w)
{
	struct web_post *p;
	int rc = SP_OK;

	while (rc == SP_OK && web_may_send(w) &&
	    (p = TAILQ_FIRST(&w->waiting)) != NULL) {
		rc = post_open(p);
		if (rc != SP_OK)
			post_free(p);
	}
	return rc;
}

/* With what comes: the worker is not failed while the core asks something. */
static void
web_pump(struct worker_web *w)
{
	int rc = w->h->back.w != NULL ? web_send_waiting(w) : SP_OK;

	if (rc != SP_OK)
		worker_fail(w->h->back.w, WORKER_GONE,
		    "a message cannot be sent to it: %s", err_str(rc));
}

/* Streams that nobody waits for: their server has not ended them. */
static void
web_sweep(struct worker_web *w)
{
	struct web_post *p, *next;

	for (p = TAILQ_FIRST(&w->open); p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->kind == WEB_REQUEST &&
		    (p->answered ||
			(!post_is_hello(p) && post_call(p) == NULL)))
			post_free(p);
	}
}

/* worker_mcp.c's way out. */
static int
web_carry(struct worker_back *b, struct view json)
{
	struct worker_web *w = worker_http_of(b)->web;
	struct worker_rpc r;
	struct web_post *p;
	int64_t n = 0;
	bool alone;
	int rc;

	if (b->w == NULL)
		return SP_E_GONE;
	if (json.n > WEB_WAITING_BYTES - w->waiting_bytes)
		return SP_E_LIMIT;
	if (worker_rpc_read(json, &r) != SP_OK)
		return SP_E_LIMIT; /* more of one member than is followed */
	p = post_new(w, r.has_method && r.id.n > 0 ? WEB_REQUEST : WEB_NOTE);
	if (p == NULL)
		return SP_E_NOMEM;
	rc = buf_add_view(&p->body, json);
	if (rc == SP_OK && p->kind == WEB_REQUEST)
		rc = jscan_i64(&r.s, &r.id.v[r.id.n - 1], &n);
	w->waiting_bytes += buf_len(&p->body);
	if (rc != SP_OK) {
		post_free(p);
		return rc;
	}
	p->number = (uint64_t)n;
	/* from the loop's task, never from within a reply */
	if (p->kind == WEB_REQUEST)
		web_sweep(w);
	alone = TAILQ_FIRST(&w->waiting) == p;
	rc = web_send_waiting(w);
	/* or another's is lost, which nobody can be told any more */
	return rc == SP_OK || alone ? rc : SP_E_GONE;
}

/*
 * Once there is a session: where list_changed and the like come from.  Many
 * servers have none of it, and say so with 405.
 */
static void
web_open_stream(struct worker_web *w)
{
	struct web_post *p;

	if (w->streams || w->mcp.version.n == 0)
		return;
	w->streams = true;
	p = post_new(w, WEB_STREAM);
	if (p != NULL && post_open(p) != SP_OK)
		post_free(p);
}

/* ---- the back end's --------------------------------------------------------- */

int
worker_web_start(struct worker_http *h)
{
	struct worker_web *w = mem_calloc(1, sizeof(*w));

	if (w == NULL)
		return SP_E_NOMEM;
	w->h = h;
	h->web = w;
	TAILQ_INIT(&w->waiting);
	TAILQ_INIT(&w->open);
	buf_init(&w->session, WORKER_FETCH_ID_MAX);
	w->room.max = WEB_HELD_MAX;
	worker_mcp_init(&w->mcp, &h->back, web_carry);
	return worker_mcp_start(&w->mcp);
}

int
worker_web_send(struct worker_http *h, struct worker_call *c)
{
	return worker_mcp_call(&h->web->mcp, c);
}

bool
worker_web_cancel(struct worker_http *h, struct worker_call *c,
    struct view reason)
{
	if (!worker_mcp_cancel(&h->web->mcp, c, reason))
		return false;
	/* what it says in that call comes in its reply */
	c->heard = true;
	return true;
}

void
worker_web_over(struct worker_http *h, const struct worker_call *c,
    bool forgotten)
{
	worker_mcp_over(&h->web->mcp, c, forgotten);
}

int
worker_web_tell(struct worker_http *h, const struct worker_call *c,
    struct view json)
{
	return worker_mcp_tell(&h->web->mcp, c, json);
}

uint64_t
worker_web_owed(const struct worker_http *h)
{
	return h->web != NULL ? worker_mcp_owed(&h->web->mcp) : 0;
}

void
worker_web_lapse(struct worker_http *h, uint64_t now_ms)
{
	worker_mcp_lapse(&h->web->mcp, now_ms);
}

void
worker_web_hold(struct worker_http *h, bool on)
{
	struct web_post *p;

	TAILQ_FOREACH (p, &h->web->open, link)
		if (p->kind == WEB_REQUEST)
			worker_fetch_pause(&p->fetch, on);
}

/*
 * No DELETE for the session: the server is killed with this turn, and all
 * that it remembers is gone with it.
 */
void
worker_web_stop(struct worker_http *h)
{
	struct web_post *p;

	if (h->web == NULL)
		return;
	TAILQ_FOREACH (p, &h->web->open, link) {
		worker_fetch_stop(&p->fetch);
		loop_timer_free(p->again);
		p->again = NULL;
	}
}

void
worker_web_free(struct worker_http *h)
{
	struct worker_web *w = h->web;

	if (w == NULL)
		return;
	while (!TAILQ_EMPTY(&w->waiting))
		post_free(TAILQ_FIRST(&w->waiting));
	while (!TAILQ_EMPTY(&w->open))
		post_free(TAILQ_FIRST(&w->open));
	worker_mcp_clear(&w->mcp);
	buf_clear(&w->session);
	mem_free(w);
	h->web = NULL;
}
