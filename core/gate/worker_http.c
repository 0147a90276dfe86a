/* worker http: starts the server, waits for it, finds out what it speaks. */
#include "config.h"

#include "gate/worker_http.h"

#include <stdio.h>

#include "base/arena.h"
#include "base/mem.h"
#include "os/fd.h"

enum {
	HTTP_PAUSE_MIN_MS = 5,
	HTTP_PAUSE_MAX_MS = 250,
	HTTP_SILENT_MS = 2000, /* of a probe; then /ws is asked */
	HTTP_BROKEN_MS = 1000, /* for its exit to be told */
	HTTP_LAST_MAX = 512,
	HTTP_KEEPALIVE = 4,
	/* uvicorn and node close after 5 s: not into a request of ours */
	HTTP_KEEPALIVE_MS = 3000,
	HTTP_ARENA_MAX = 4096,
};

static void http_probe(struct worker_http *h);

/* ---- connections ------------------------------------------------------------ */

struct worker_http_dial {
	LIST_ENTRY(worker_http_dial) link;
	struct worker_http *h;
	void (*told)(void *arg, int err, int fd);
	void *arg;
};

static void
dial_free(struct worker_http_dial *d)
{
	LIST_REMOVE(d, link);
	mem_free(d);
}

static void
dial_on_connected(void *arg, struct episode *ep, int fd, int number,
    struct view what)
{
	struct worker_http_dial *d = arg;
	void (*told)(void *arg, int err, int fd) = d->told;
	void *whose = d->arg;

	(void)ep;
	(void)what;
	dial_free(d);
	told(whose,
	    fd >= 0           ? 0
		: number != 0 ? err_from_errno(number)
			      : SP_E_GONE,
	    fd);
}

int
worker_http_dial(struct worker_http *h,
    void (*told)(void *arg, int err, int fd), void *arg, void **out)
{
	struct worker_http_dial *d;
	int rc;

	if (h->back.w == NULL || h->back.w->ep == NULL)
		return SP_E_GONE;
	d = mem_calloc(1, sizeof(*d));
	if (d == NULL)
		return SP_E_NOMEM;
	d->h = h;
	d->told = told;
	d->arg = arg;
	LIST_INSERT_HEAD(&h->dials, d, link);
	rc = episode_connect(h->back.w->ep, SANDBOX_WORKER, h->port,
	    dial_on_connected, d);
	if (rc != SP_OK) {
		dial_free(d);
		return rc;
	}
	*out = d;
	return SP_OK;
}

void
worker_http_undial(void *dial)
{
	struct worker_http_dial *d = dial;

	if (d == NULL)
		return;
	/* a socket that still comes is closed */
	episode_forget(d->h->episodes, d);
	dial_free(d);
}

static int
http_on_pool(void *arg, void (*told)(void *lease, int err, int fd), void *lease,
    void **out)
{
	return worker_http_dial(arg, told, lease, out);
}

/* Every request goes to one server, over connections that are kept. */
static int
http_make_pool(struct worker_http *h)
{
	struct buf b = BUF_INIT(64);
	struct pool_server server = { .host = VIEW("127.0.0.1"),
		.port = h->port };
	/* without a name: what fails is told as the worker's */
	struct pool_params params = { .servers = &server,
		.servers_n = 1,
		.least_conn = true,
		.keepalive = HTTP_KEEPALIVE,
		.keepalive_timeout_ms = HTTP_KEEPALIVE_MS,
		.dialler = &h->dialler };
	int rc = buf_printf(&b, "127.0.0.1:%u", h->port);

	h->dialler =
	    (struct pool_dialler){ http_on_pool, worker_http_undial, h };
	server.authority = buf_view(&b);
	server.url = buf_view(&b);
	if (rc == SP_OK)
		rc = pool_new(worker_loop(h->back.w), NULL, &params, &h->pool);
	buf_clear(&b);
	return rc;
}

/* ---- readiness -------------------------------------------------------------- */

static void
http_note(struct worker_http *h, const char *what)
{
	buf_truncate(&h->last, 0);
	(void)!buf_printf(&h->last, "%.*s", HTTP_LAST_MAX / 2, what);
}

void
worker_http_not_yet(struct worker_http *h, const char *what)
{
	struct worker *w = h->back.w;
	uint64_t now;

	http_note(h, what);
	if (w == NULL)
		return;
	h->phase = WORKER_HTTP_PROBING;
	now = worker_now_ms(w);
	/* the last try, told with what came of it */
	if (w->ready_by_ms != 0 && now + h->pause_ms >= w->ready_by_ms) {
		worker_fail(w, WORKER_GONE,
		    "it was not ready in %llu ms (worker_start_timeout): %.*s",
		    (unsigned long long)w->start_ms,
		    VIEW_ARG(buf_view(&h->last)));
		return;
	}
	loop_timer_set(h->again, h->pause_ms);
	h->pause_ms *= 2;
	if (h->pause_ms > HTTP_PAUSE_MAX_MS)
		h->pause_ms = HTTP_PAUSE_MAX_MS;
}

static void
http_cannot(struct worker_http *h, int rc)
{
	if (h->back.w != NULL)
		worker_fail(h->back.w, WORKER_GONE, "it cannot be asked: %s",
		    err_str(rc));
}

/*
 * It serves.  Which of the two it is, it is asked: what /health says differs
 * from server to server, and an MCP server may have one.
 */
static void
http_ask(struct worker_http *h)
{
	int rc;

	if (h->phase != WORKER_HTTP_PROBING)
		return;
	h->phase = WORKER_HTTP_ASKING;
	rc = worker_openenv_start(h);
	if (rc != SP_OK)
		http_cannot(h, rc);
}

void
worker_http_no_websocket(struct worker_http *h)
{
	int rc;

	if (h->back.w == NULL)
		return;
	h->phase = WORKER_HTTP_WEB;
	rc = worker_web_start(h);
	if (rc != SP_OK)
		http_cannot(h, rc);
}

static void
probe_on_head(void *arg, struct call *c, const struct head_reply *head)
{
	struct worker_http *h = arg;
	char what[64];

	call_cancel(c);
	h->probe = NULL;
	if (head->status < 500) {
		http_ask(h);
		return;
	}
	(void)snprintf(what, sizeof(what), "GET /health: status %u",
	    head->status);
	worker_http_not_yet(h, what);
}

static void
probe_on_body(void *arg, struct call *c, struct view data)
{
	(void)arg;
	(void)c;
	(void)data;
}

static void
probe_on_end(void *arg, struct call *c, bool delimited)
{
	(void)arg;
	(void)c;
	(void)delimited;
}

static void
probe_on_fail(void *arg, struct call *c, enum call_failure why,
    const char *text)
{
	struct worker_http *h = arg;

	(void)c;
	h->probe = NULL;
	/* not every server has a /health, or says so */
	if (why == CALL_FIRST_TIMEOUT)
		http_ask(h);
	else
		worker_http_not_yet(h, text);
}

static const struct call_owner probe_owner = {
	.head = probe_on_head,
	.body = probe_on_body,
	.end = probe_on_end,
	.fail = probe_on_fail,
};

static void
http_probe(struct worker_http *h)
{
	struct arena *a = arena_new(HTTP_ARENA_MAX);
	struct call_owner owner = probe_owner;
	struct head_fields fields;
	struct call_params params = { .pool = h->pool,
		.method = VIEW("GET"),
		.target = VIEW("/health"),
		.check = true,
		.fields = &fields,
		.send_timeout_ms = HTTP_SILENT_MS,
		.first_byte_timeout_ms = HTTP_SILENT_MS,
		.read_timeout_ms = HTTP_SILENT_MS,
		.header_max = WORKER_HTTP_HEAD_MAX,
		.decoded_max = LOOP_SCRATCH_BYTES };
	int rc = a == NULL ? SP_E_NOMEM : SP_OK;

	owner.arg = h;
	if (rc == SP_OK) {
		head_fields_init(&fields, a);
		rc = head_add_borrowed(&fields, VIEW("Accept"),
		    VIEW("application/json"));
	}
	if (rc == SP_OK)
		rc = call_start(worker_loop(h->back.w), &params, &owner,
		    &h->probe);
	arena_free(a);
	if (rc != SP_OK)
		http_cannot(h, rc);
}

static void
http_on_again(void *arg)
{
	struct worker_http *h = arg;

	if (h->back.w != NULL && h->phase == WORKER_HTTP_PROBING &&
	    h->probe == NULL)
		http_probe(h);
}

/* ---- what breaks ------------------------------------------------------------ */

void
worker_http_broke(struct worker_http *h, const char *what)
{
	if (h->back.w == NULL || h->broke)
		return;
	h->broke = true;
	http_note(h, what);
	loop_timer_set(h->broken, HTTP_BROKEN_MS);
}

static void
http_on_broken(void *arg)
{
	struct worker_http *h = arg;

	/* it has ended, and what it said last is still being read */
	if (h->pipe.p != NULL && h->pipe.p->over)
		return;
	if (h->back.w != NULL)
		worker_fail(h->back.w, WORKER_GONE, "%.*s",
		    VIEW_ARG(buf_view(&h->last)));
}

/* ---- the back end ----------------------------------------------------------- */

static void
http_stop(struct worker_back *b)
{
	struct worker_http *h = worker_http_of(b);

	if (h->probe != NULL)
		call_cancel(h->probe);
	h->probe = NULL;
	worker_openenv_stop(h);
	worker_web_stop(h);
	worker_pipe_stop(&h->pipe);
	loop_timer_free(h->again);
	loop_timer_free(h->broken);
	h->again = h->broken = NULL;
}

/* Later: what failed may have been a call that was still with the pool. */
static void
http_free(struct worker_back *b)
{
	struct worker_http *h = worker_http_of(b);

	worker_openenv_free(h);
	worker_web_free(h);
	pool_free(h->pool);
	worker_pipe_clear(&h->pipe);
	buf_clear(&h->last);
	mem_free(h);
}

static struct worker_http *
http_new(struct worker *w, const struct conf_environment *env)
{
	struct worker_http *h = mem_calloc(1, sizeof(*h));

	if (h == NULL)
		return NULL;
	h->back.ops = &worker_http_backend;
	h->back.w = w;
	h->episodes = w->ep->set;
	h->port = env->worker_port;
	h->pause_ms = HTTP_PAUSE_MIN_MS;
	LIST_INIT(&h->dials);
	buf_init(&h->last, HTTP_LAST_MAX);
	h->again = loop_timer_new(worker_loop(w), http_on_again, h);
	h->broken = loop_timer_new(worker_loop(w), http_on_broken, h);
	return h;
}

static struct worker_back *
http_start(struct worker *w, const struct conf_environment *env)
{
	struct worker_http *h = http_new(w, env);
	int rc;

	if (h == NULL)
		return NULL;
	rc = h->again == NULL || h->broken == NULL ? SP_E_NOMEM
						   : http_make_pool(h);
	if (rc == SP_OK)
		rc = worker_pipe_start(&h->pipe, &h->back, env, NULL);
	if (rc == SP_OK) {
		loop_timer_set(h->again, h->pause_ms);
		return &h->back;
	}
	h->back.w = NULL;
	http_stop(&h->back);
	http_free(&h->back);
	worker_fail(w, WORKER_GONE, "it cannot be started: %s", err_str(rc));
	return NULL;
}

static int
http_send(struct worker_back *b, struct worker_call *c)
{
	struct worker_http *h = worker_http_of(b);

	return h->phase == WORKER_HTTP_OPENENV ? worker_openenv_send(h, c)
					       : worker_web_send(h, c);
}

/* A frame of OpenEnv's has no name by which it could be cancelled. */
static bool
http_cancel(struct worker_back *b, struct worker_call *c, struct view reason)
{
	struct worker_http *h = worker_http_of(b);

	return h->phase == WORKER_HTTP_WEB && worker_web_cancel(h, c, reason);
}

static void
http_over(struct worker_back *b, const struct worker_call *c, bool forgotten)
{
	struct worker_http *h = worker_http_of(b);

	if (h->phase == WORKER_HTTP_WEB)
		worker_web_over(h, c, forgotten);
}

static int
http_tell(struct worker_back *b, const struct worker_call *c, struct view json)
{
	struct worker_http *h = worker_http_of(b);

	return h->phase == WORKER_HTTP_WEB ? worker_web_tell(h, c, json)
					   : SP_OK;
}

static uint64_t
http_owed(const struct worker_back *b)
{
	const struct worker_http *h = (const struct worker_http *)b;

	return h->phase == WORKER_HTTP_WEB ? worker_web_owed(h) : 0;
}

static void
http_lapse(struct worker_back *b, uint64_t now_ms)
{
	struct worker_http *h = worker_http_of(b);

	if (h->phase == WORKER_HTTP_WEB)
		worker_web_lapse(h, now_ms);
}

static void
http_hold(struct worker_back *b, bool on)
{
	struct worker_http *h = worker_http_of(b);

	if (h->phase == WORKER_HTTP_WEB)
		worker_web_hold(h, on);
	else
		worker_openenv_hold(h, on);
}

const struct worker_backend worker_http_backend = {
	.start = http_start,
	.send = http_send,
	.cancel = http_cancel,
	.over = http_over,
	.tell = http_tell,
	.owed = http_owed,
	.lapse = http_lapse,
	.hold = http_hold,
	.stop = http_stop,
	.free = http_free,
};
