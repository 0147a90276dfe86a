#include "config.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "gate/gate_priv.h"
#include "gate/inside.h"
#include "gate/route.h"
#include "gate/session.h"
#include "gate/websock.h"

/* Where a request stands; it only goes down. */
enum walk_state {
	WALK_HEAD, /* the HEAD hook runs, or holds */
	WALK_BODY, /* the body is collected */
	WALK_MESSAGE, /* the MESSAGE hook runs, or holds */
	WALK_SERVED, /* answered, or the module answers */
};

/* What came of the body since then. */
struct walk_pace {
	uint64_t since_ms;
	uint64_t bytes;
};

/*
 * A request and its way; made when the head is there, freed in one place,
 * walk_over(), when its exchange is done or gone.
 */
struct walk {
	struct gate_request r;
	LIST_ENTRY(walk) link;
	struct exchange *x; /* while it lives, whatever r says */
	const struct gate_module *module; /* NULL: no location */
	struct gate_port *port;
	struct heavy_ticket turn; /* the body is large, and waits */
	enum walk_state state;
	bool entered; /* a hook ran, so that FINISH is due */
	bool in_hook;
	enum gate_verdict resumed; /* from within the hook; FAIL: not */
	bool has_resumed;
	bool body_off; /* nobody wants what still comes */
	bool aborted_by_us; /* the drain's deadline passed, or it was told */
	bool drains; /* the module was told that the gate does */
	uint64_t told_ms; /* the client was, or took some of it; 0: not */
	uint64_t taken; /* bytes of the reply that it had taken then */
	bool by_memory; /* ended for what it held */
	uint64_t discarded;
	size_t held; /* bytes of the body that count as held */
	size_t owed; /* and those of it that are credited later */
	struct walk_pace pace;
};

enum {
	WALK_SHED_MIN = 16 * 1024, /* what is less is not worth an end */
	/* of a stop: for the client to take its end, and what is before it */
	WALK_TOLD_MS = 1000,
	WALK_TAKES_MS = 5 * 1000,
};

static void walk_step(struct walk *w, enum gate_verdict v);
static void walk_drain(struct walk *w);

/* ---- replies of the gate's own -------------------------------------------- */

/* The reply cannot be made: the client sees that, and gone() follows. */
static void
walk_break(struct walk *w)
{
	exchange_abort(w->x);
}

const struct exchange *
walk_exchange(const struct gate_request *r)
{
	const struct walk *w = (const struct walk *)r;

	return w->x;
}

void
walk_body_gone(struct gate_request *r)
{
	struct walk *w = (struct walk *)r;

	admission_body_give(r->gate->admission, w->held);
	w->port->body_bytes -= w->held;
	w->held = 0;
}

static void
walk_error(struct walk *w, unsigned status, const char *code,
    const char *message)
{
	w->state = WALK_SERVED;
	w->body_off = true;
	heavy_leave(&w->turn);
	buf_clear(&w->r.body);
	walk_body_gone(&w->r);
	if (gate_error(&w->r, status, code, "%s", message) != SP_OK)
		walk_break(w);
}

static void
walk_fail(struct walk *w)
{
	w->r.outcome = "failed";
	if (w->x->state != EXCHANGE_REQUEST) {
		walk_break(w);
		return;
	}
	walk_error(w, 500, "internal_error",
	    "the gateway failed to serve this request: see its error log");
}

static void
walk_deny(struct walk *w)
{
	struct gate_request *r = &w->r;

	if (r->outcome == NULL)
		r->outcome = "denied";
	if (w->x->state != EXCHANGE_REQUEST) {
		walk_break(w);
		return;
	}
	walk_error(w, r->status >= 400 && r->status <= 599 ? r->status : 403,
	    r->code != NULL ? r->code : "denied",
	    r->reason != NULL ? r->reason : "denied");
}

/* ---- phases --------------------------------------------------------------- */

static enum gate_verdict
walk_hook(struct walk *w, enum gate_phase phase)
{
	enum gate_verdict v;

	if (w->module->hook[phase] == NULL)
		return GATE_PASS;
	w->entered = true;
	w->in_hook = true;
	w->has_resumed = false;
	v = w->module->hook[phase](&w->r);
	w->in_hook = false;
	if (v == GATE_HOLD && w->has_resumed)
		v = w->resumed;
	return v;
}

static void
walk_message(struct walk *w)
{
	w->state = WALK_MESSAGE;
	walk_step(w, walk_hook(w, GATE_MESSAGE));
}

static void
walk_on_turn(void *arg)
{
	walk_message(arg);
}

/* The body is whole.  What is large waits for its turn. */
static void
walk_whole(struct walk *w)
{
	if (buf_len(&w->r.body) < HEAVY_BYTES) {
		walk_message(w);
		return;
	}
	w->turn.serve = walk_on_turn;
	w->turn.arg = w;
	heavy_wait(w->r.gate->heavy, &w->port->heavy, &w->turn);
}

/*
 * No body may be larger than all together; and what goes up is an edited copy
 * of it, which has to fit as well.
 */
static uint64_t
walk_body_max(const struct walk *w, const char **by)
{
	uint64_t max = w->r.location->limits.client_max_body_bytes;
	uint64_t all = admission_body_max(w->r.gate->admission);
	uint64_t memory = pressure_max(w->r.gate->pressure) / 3;

	*by = "client_max_body";
	if (all < max) {
		max = all;
		*by = "max_body_bytes_in_flight";
	}
	if (memory < max) {
		max = memory;
		*by = "memory_max";
	}
	if (w->module->body_max != 0 && w->module->body_max < max) {
		max = w->module->body_max;
		*by = NULL;
	}
	return max;
}

static void
walk_too_large(struct walk *w)
{
	struct buf b = BUF_INIT(160);
	const char *by;
	uint64_t max = walk_body_max(w, &by);
	int rc = by != NULL
	    ? buf_printf(&b,
		  "the body is larger than %llu bytes: raise %s or send less",
		  (unsigned long long)max, by)
	    : buf_printf(&b,
		  "the body is larger than %llu bytes, which is all that a "
		  "worker is told at once: send less",
		  (unsigned long long)max);

	if (rc != SP_OK || buf_add_char(&b, '\0') != SP_OK)
		buf_clear(&b);
	w->r.outcome = "too_large";
	walk_error(w, 413, "request_too_large",
	    buf_len(&b) > 0 ? buf_view(&b).p : "the body is too large");
	buf_clear(&b);
}

static void
walk_refuse(struct walk *w, enum admission_word why)
{
	w->r.outcome = admission_name(why);
	walk_error(w, admission_status(why), "too_many_calls",
	    admission_reason(why));
}

/* Its episode has as much under way as it may. */
static void
walk_refuse_part(struct walk *w)
{
	admission_refused(w->r.gate->admission, ADMISSION_PART);
	walk_refuse(w, ADMISSION_PART);
}

/* Whether n more bytes are within what its listener may have. */
static bool
walk_part_fits(const struct walk *w, uint64_t n)
{
	const char *by;
	uint64_t max = gate_port_bodies(w->port, walk_body_max(w, &by));

	return w->port->body_bytes <= max && n <= max - w->port->body_bytes;
}

static void
walk_short(struct walk *w)
{
	admission_refused(w->r.gate->admission, ADMISSION_MEMORY);
	walk_refuse(w, ADMISSION_MEMORY);
}

/* ---- whom it is told -------------------------------------------------------
 */

static void
walk_tell_body(struct walk *w, struct view data)
{
	if (w->r.websock != NULL)
		websock_on_body(w->r.websock, data);
	else if (w->module->body != NULL)
		w->module->body(&w->r, data);
}

static void
walk_tell_end(struct walk *w)
{
	if (w->r.websock != NULL)
		websock_on_body_end(w->r.websock);
	else if (w->module->body_end != NULL)
		w->module->body_end(&w->r);
}

static void
walk_tell_room(struct walk *w)
{
	if (w->r.websock != NULL)
		websock_on_room(w->r.websock);
	else if (w->entered && w->module->room != NULL)
		w->module->room(&w->r);
}

static bool
walk_expires(const struct walk *w)
{
	return w->x->state != EXCHANGE_ENDED &&
	    (w->r.websock != NULL || (w->entered && w->module->expire != NULL));
}

static void
walk_tell_expire(struct walk *w, enum gate_expiry why)
{
	if (w->r.websock != NULL)
		websock_on_expire(w->r.websock, why);
	else
		w->module->expire(&w->r, why);
}

/* Once, as soon as the module has it. */
static void
walk_drain(struct walk *w)
{
	if (!w->r.gate->draining || w->drains || !w->entered ||
	    w->state < WALK_MESSAGE || w->module->drain == NULL ||
	    w->r.x == NULL || w->x->state == EXCHANGE_ENDED)
		return;
	w->drains = true;
	w->module->drain(&w->r);
}

/* Nothing is kept here: the module's hook holds, and is handed the body. */
static void
walk_stream(struct walk *w)
{
	const struct exchange *x = w->x;

	w->x->patient = true;
	walk_message(w);
	if (w->body_off)
		return;
	if (!x->request.has_body || x->request_whole)
		walk_tell_end(w);
	else if (x->state == EXCHANGE_REQUEST &&
	    exchange_continue(w->x) != SP_OK)
		walk_break(w);
}

/* The HEAD hooks have passed it: the body, if somebody wants it. */
static void
walk_collect(struct walk *w)
{
	const struct head_request *q = &w->x->request;
	const char *by;
	uint64_t max = walk_body_max(w, &by);

	if (w->r.streams) {
		walk_stream(w);
		return;
	}
	if (!w->module->wants_body) {
		w->body_off = true;
		walk_message(w);
		return;
	}
	if (q->content_length > 0 && (uint64_t)q->content_length > max) {
		walk_too_large(w);
		return;
	}
	if (q->content_length > 0 &&
	    !admission_body_fits(w->r.gate->admission,
		(uint64_t)q->content_length)) {
		walk_refuse(w, ADMISSION_BODY_BYTES);
		return;
	}
	if (q->content_length > 0 &&
	    !walk_part_fits(w, (uint64_t)q->content_length)) {
		walk_refuse_part(w);
		return;
	}
	if (q->content_length > 0 &&
	    !pressure_fits(w->r.gate->pressure, (uint64_t)q->content_length)) {
		walk_short(w);
		return;
	}
	buf_init(&w->r.body, (size_t)max);
	w->state = WALK_BODY;
	w->pace.since_ms = loop_now_ms(w->r.gate->loop);
	if (!q->has_body || w->x->request_whole)
		walk_whole(w);
	else if (exchange_continue(w->x) != SP_OK)
		walk_break(w);
}

/* What a hook said, in the phase that w->state tells. */
static void
walk_step(struct walk *w, enum gate_verdict v)
{
	switch (v) {
	case GATE_PASS:
		if (w->state == WALK_HEAD)
			walk_collect(w);
		else
			walk_fail(w); /* nobody served it */
		return;
	case GATE_DENY:
		walk_deny(w);
		return;
	case GATE_DONE:
		w->state = WALK_SERVED;
		w->body_off = true;
		return;
	case GATE_HOLD:
		/* one that comes while the gate drains */
		walk_drain(w);
		return;
	case GATE_FAIL:
		break;
	}
	walk_fail(w);
}

void
walk_resume(struct gate_request *r, enum gate_verdict v)
{
	struct walk *w = (struct walk *)r;

	err_assert(v != GATE_HOLD);
	if (w->in_hook) {
		w->has_resumed = true;
		w->resumed = v;
		return;
	}
	if (r->x == NULL || w->state == WALK_SERVED || w->state == WALK_BODY)
		return;
	walk_step(w, v);
}

void
walk_finish(struct gate_request *r)
{
	struct walk *w = (struct walk *)r;

	w->state = WALK_SERVED;
	w->body_off = true;
	heavy_leave(&w->turn);
	if (r->x == NULL || r->x->state == EXCHANGE_ENDED)
		return; /* done() or gone() is on its way */
	if (r->x->state == EXCHANGE_REQUEST)
		walk_fail(w);
	else
		walk_break(w);
}

/* ---- the end -------------------------------------------------------------- */

static void
walk_log(const struct walk *w)
{
	const struct gate_request *r = &w->r;
	const struct gate *g = r->gate;
	const struct exchange *x = w->x;
	uint64_t now = loop_now_us(g->loop);
	const char *module = w->module != NULL ? w->module->conf->name : "none";
	char code[12];
	struct view labels[2] = { view_str(module), VIEW_NONE };
	struct access_line line = {
		.listener = w->port->name,
		.peer = x->peer,
		.method = x->request.method,
		.path = r->path.n > 0 ? r->path : x->request.path,
		.module = module,
		.status = r->status,
		.bytes = x->sent_bytes,
		.duration_us = now > x->started_us ? now - x->started_us : 0,
		.connection = x->connection,
		.number = r->number,
		.principal = r->principal,
		.outcome = r->outcome,
		.session = r->session,
	};

	labels[1] = view_of(code, num_format_u64(r->status, code));
	metrics_inc(metrics_cell(g->requests, labels));
	access_add(g->access, &line);
}

/* FINISH, the log, the end of the request; once. */
static void
walk_over(struct walk *w)
{
	struct gate *g = w->r.gate;

	if (w->entered && w->module->hook[GATE_FINISH] != NULL)
		(void)w->module->hook[GATE_FINISH](&w->r);
	walk_log(w);
	w->x->user = NULL;
	LIST_REMOVE(w, link);
	g->walks_n--;
	heavy_leave(&w->turn);
	buf_clear(&w->r.body);
	walk_body_gone(&w->r);
	generation_unref(w->r.generation);
	mem_free(w);
	gate_walk_over(g);
}

static void
walk_on_done(struct exchange *x)
{
	struct walk *w = x->user;

	if (w == NULL)
		return;
	if (w->r.outcome == NULL)
		w->r.outcome = w->r.status >= 500 ? "failed"
		    : w->r.status >= 400          ? "denied"
						  : "ok";
	walk_over(w);
}

static void
walk_on_gone(struct exchange *x, enum exchange_gone why)
{
	static const char *const outcomes[] = {
		[EXCHANGE_GONE_RESET] = "client_gone",
		[EXCHANGE_GONE_TIMEOUT] = "client_timeout",
		[EXCHANGE_GONE_MALFORMED] = "malformed",
		[EXCHANGE_GONE_SHUTDOWN] = "shutdown",
		[EXCHANGE_GONE_NOMEM] = "no_memory",
	};
	struct walk *w = x->user;

	if (w == NULL)
		return;
	if (w->aborted_by_us)
		why = EXCHANGE_GONE_SHUTDOWN;
	if (w->by_memory)
		why = EXCHANGE_GONE_NOMEM;
	if (w->r.outcome == NULL)
		w->r.outcome = outcomes[why];
	/* as nginx has it: the client was gone before there was a status */
	if (w->r.status == 0)
		w->r.status = 499;
	w->r.x = NULL;
	websock_on_gone(w->r.websock, why);
	if (w->entered && w->module->gone != NULL)
		w->module->gone(&w->r, why);
	walk_over(w);
}

void
walk_drain_all(struct gate *g)
{
	struct walk *w;

	/* no callback comes from within, so the list stays as it is */
	LIST_FOREACH (w, &g->walks, link)
		walk_drain(w);
}

static uint64_t
walk_taken(const struct walk *w)
{
	uint64_t queued = exchange_queued(w->x);

	return w->x->sent_bytes > queued ? w->x->sent_bytes - queued : 0;
}

void
walk_told(struct gate_request *r)
{
	struct walk *w = (struct walk *)r;

	if (r->x == NULL || w->told_ms != 0)
		return;
	w->told_ms = loop_now_ms(r->gate->loop);
	w->taken = walk_taken(w);
}

void
walk_cut_told(struct gate *g)
{
	uint64_t now = loop_now_ms(g->loop), taken, may;
	struct walk *w;

	LIST_FOREACH (w, &g->walks, link) {
		if (w->told_ms == 0 || w->r.x == NULL)
			continue;
		taken = walk_taken(w);
		if (taken != w->taken)
			w->told_ms = now;
		w->taken = taken;
		may = exchange_queued(w->x) > 0 ? WALK_TAKES_MS : WALK_TOLD_MS;
		if (now - w->told_ms < may)
			continue;
		w->aborted_by_us = true;
		exchange_drop(w->x);
	}
}

void
walk_abort_all(struct gate *g)
{
	struct walk *w;

	/* no callback comes from within, so the list stays as it is */
	LIST_FOREACH (w, &g->walks, link) {
		w->aborted_by_us = true;
		if (walk_expires(w))
			walk_tell_expire(w, GATE_EXPIRE_DRAIN);
		else
			exchange_abort(w->x);
	}
}

/* ---- memory --------------------------------------------------------------- */

static size_t
walk_holds(const struct walk *w)
{
	size_t n = exchange_queued(w->x) + buf_len(&w->r.body);

	/* what is over is freed as soon as its end is out */
	if (w->x->state != EXCHANGE_ENDED && w->entered &&
	    w->module->holds != NULL)
		n += w->module->holds(&w->r);
	else if (w->r.websock != NULL)
		n += websock_holds(w->r.websock);
	return n;
}

/* No callback comes from within. */
static void
walk_end_for_memory(struct walk *w, size_t holds)
{
	size_t queued = exchange_queued(w->x);

	admission_refused(w->r.gate->admission, ADMISSION_MEMORY);
	w->by_memory = true;
	if (w->state == WALK_BODY && w->x->state == EXCHANGE_REQUEST)
		walk_refuse(w, ADMISSION_MEMORY);
	else if (queued <= holds / 2 && walk_expires(w))
		walk_tell_expire(w, GATE_EXPIRE_MEMORY);
	else
		exchange_drop(w->x); /* its client does not take it */
}

unsigned
walk_shed(struct gate *g, size_t bytes)
{
	size_t most = 0, freed = 0, n;
	unsigned ended = 0;
	struct walk *w;

	LIST_FOREACH (w, &g->walks, link) {
		n = w->by_memory ? 0 : walk_holds(w);
		most = n > most ? n : most;
	}
	if (most < WALK_SHED_MIN)
		return 0;
	LIST_FOREACH (w, &g->walks, link) {
		n = w->by_memory ? 0 : walk_holds(w);
		if (n < most - most / 4 || freed >= bytes)
			continue;
		walk_end_for_memory(w, n);
		freed += n;
		ended++;
	}
	return ended;
}

void
walk_relieve(struct gate *g)
{
	uint64_t now = loop_now_ms(g->loop);
	struct walk *w;
	size_t n;

	LIST_FOREACH (w, &g->walks, link) {
		n = w->owed;
		w->owed = 0;
		/* it was not read: its client is not to blame */
		if (n > 0)
			w->pace = (struct walk_pace){ .since_ms = now };
		exchange_credit(w->x, n);
		walk_tell_room(w);
	}
}

/* ---- the body ------------------------------------------------------------- */

static void
walk_discard(struct walk *w, size_t n)
{
	uint64_t max = w->r.location != NULL
	    ? w->r.location->limits.client_max_body_bytes
	    : 0;

	/* past the bound nothing more is read: the back end's deadline ends
	 * it, or the reply does */
	w->discarded += n;
	if (w->discarded <= max)
		exchange_credit(w->x, n);
}

/*
 * Silence has a deadline of its own; who is not silent and sends next to
 * nothing would hold what it has sent for as long as it likes.
 */
static bool
walk_keeps_pace(struct walk *w, size_t n)
{
	const struct conf_limits *l = &w->r.location->limits;
	struct walk_pace *p = &w->pace;
	uint64_t now = loop_now_ms(w->r.gate->loop);

	p->bytes += n;
	if (now - p->since_ms < l->client_body_timeout_ms)
		return true;
	if (p->bytes < (now - p->since_ms) * l->client_body_rate / 1000)
		return false;
	*p = (struct walk_pace){ .since_ms = now };
	return true;
}

static void
walk_on_body(struct exchange *x, struct view data)
{
	struct walk *w = x->user;
	enum pressure_level level;
	int rc;

	if (w == NULL)
		return;
	if (w->r.streams && w->state == WALK_MESSAGE && !w->body_off) {
		walk_tell_body(w, data);
		return;
	}
	if (w->body_off || w->state != WALK_BODY) {
		walk_discard(w, data.n);
		return;
	}
	if (data.n > w->r.body.max - buf_len(&w->r.body)) {
		walk_too_large(w);
		return;
	}
	if (!walk_keeps_pace(w, data.n)) {
		w->r.outcome = "timeout";
		walk_error(w, 408, "request_timeout",
		    "the request body came too slowly: see client_body_rate");
		return;
	}
	if (!walk_part_fits(w, data.n)) {
		walk_refuse_part(w);
		return;
	}
	if (!admission_body_take(w->r.gate->admission, data.n)) {
		walk_refuse(w, ADMISSION_BODY_BYTES);
		return;
	}
	w->held += data.n;
	w->port->body_bytes += data.n;
	level = pressure_level(w->r.gate->pressure);
	if (level == PRESSURE_FULL) {
		walk_short(w);
		return;
	}
	rc = buf_add_view(&w->r.body, data);
	if (rc != SP_OK) {
		w->r.outcome = "no_memory";
		walk_error(w, 503, "no_memory",
		    "no memory for the body: try again later");
	} else if (level == PRESSURE_HARD) {
		w->owed += data.n;
	} else {
		exchange_credit(x, data.n);
	}
}

static void
walk_on_body_end(struct exchange *x)
{
	struct walk *w = x->user;

	if (w == NULL)
		return;
	if (w->r.streams && w->state == WALK_MESSAGE && !w->body_off)
		walk_tell_end(w);
	else if (w->state == WALK_BODY)
		walk_whole(w);
}

static void
walk_on_writable(struct exchange *x)
{
	struct walk *w = x->user;

	if (w != NULL)
		walk_tell_room(w);
}

/* ---- the head ------------------------------------------------------------- */

/* 0, or the reply was made. */
static int
walk_path(struct walk *w)
{
	struct gate *g = w->r.gate;
	int rc;

	buf_reset(&g->scratch, SIZE_MAX);
	rc = conf_path_normalise(w->x->request.path, &g->scratch);
	if (rc == SP_OK)
		rc = arena_dup(w->x->arena, buf_view(&g->scratch), &w->r.path);
	if (rc == SP_E_NOMEM)
		walk_fail(w);
	if (rc == SP_OK || rc == SP_E_NOMEM)
		return rc;
	w->r.outcome = "malformed";
	/* RFC 9112 s3.2.4: OPTIONS alone has that */
	if (view_eq(w->x->request.path, VIEW("*")))
		walk_error(w, 404, "unknown_url",
		    "OPTIONS * asks about the server as a whole, which has no "
		    "answer: name a path");
	else
		walk_error(w, 400, "bad_path",
		    "the path of the URL is malformed: percent-encode it by "
		    "RFC 3986");
	return rc;
}

/* Whose it is: the listener alone says so. */
static int
walk_episode(struct walk *w)
{
	const struct episode *ep;

	if (w->port->inside == NULL)
		return SP_OK;
	ep = inside_episode(w->port->inside);
	if (ep == NULL) {
		w->r.outcome = "not_found";
		walk_error(w, 421, "closed_listener",
		    "the episode of this connection is over");
		return SP_E_NOTFOUND;
	}
	if (arena_dup(w->x->arena, view_str(ep->id), &w->r.episode) == SP_OK)
		return SP_OK;
	walk_fail(w);
	return SP_E_NOMEM;
}

/* What is not configured of a server with doors looks as openenvd's does. */
static bool
walk_has_doors(const struct conf_server *s)
{
	size_t i;

	for (i = 0; i < s->locations_n; i++)
		if (gate_module_of(s->locations[i]->handler)->door)
			return true;
	return false;
}

static int
walk_route(struct walk *w)
{
	const struct conf_server *server;
	const struct gate_door *d = w->port->door;
	struct route_found found;

	/* RFC 9110 s15.5.20: another connection may do */
	if (d == NULL) {
		w->r.outcome = "not_found";
		walk_error(w, 421, "closed_listener",
		    "the address of this connection is no longer served: "
		    "connect anew");
		return SP_E_NOTFOUND;
	}
	server =
	    route_server(d->servers, d->servers_n, w->x->request.authority);
	if (!route_find(server, w->r.path, &found)) {
		w->r.outcome = "not_found";
		w->r.door = walk_has_doors(server);
		walk_error(w, 404, GATE_UNKNOWN_URL,
		    "no location of this gateway has that path: check the "
		    "base URL");
		return SP_E_NOTFOUND;
	}
	w->module = gate_module_of(found.location->handler);
	w->r.door = w->module->door;
	w->r.location = found.location;
	w->r.rest = found.rest;
	w->r.conf = conf_module_conf(found.location, w->module->conf->name);
	return SP_OK;
}

static int
walk_token(struct walk *w)
{
	const struct conf_location *l = w->r.location;

	if (l->token == NULL || w->module->checks_token ||
	    session_token_ok(&w->x->request.fields, l->token)) {
		if (w->module->door)
			w->r.principal =
			    gate_principal_name(w->module->principals);
		return SP_OK;
	}
	w->r.outcome = "unauthorized";
	walk_error(w, 401, "invalid_token",
	    head_count(&w->x->request.fields, VIEW("Authorization")) == 0
		? "a bearer token is needed here: send Authorization: Bearer "
		  "TOKEN"
		: "what Authorization holds is not the token of this location: "
		  "send that as Bearer TOKEN");
	return SP_E_DENIED;
}

/* What takes no body (status, health) is answered as long as it can be. */
static int
walk_room(struct walk *w)
{
	enum admission_word word = guest_word(w->x);

	if (!w->module->wants_body || w->r.location->server->control)
		return SP_OK;
	if (word != ADMISSION_NOW) {
		admission_refused(w->r.gate->admission, word);
		walk_refuse(w, word);
		return SP_E_LIMIT;
	}
	if (pressure_level(w->r.gate->pressure) == PRESSURE_NONE)
		return SP_OK;
	walk_short(w);
	return SP_E_NOMEM;
}

static void
walk_on_open(void *server, struct exchange *x)
{
	static const char nomem[] =
	    "{\"error\":{\"message\":\"out of memory: try again later\","
	    "\"type\":\"server_error\",\"param\":null,"
	    "\"code\":\"no_memory\"}}";
	struct gate *g = server;
	struct walk *w = mem_calloc(1, sizeof(*w));

	x->user = w;
	if (w == NULL) {
		if (exchange_simple(x, 503, VIEW("application/json"),
			view_str(nomem)) != SP_OK)
			exchange_abort(x);
		return;
	}
	w->x = w->r.x = x;
	w->r.gate = g;
	w->r.number = ++g->number;
	w->port = g->ports[x->listener];
	w->r.generation = generation_ref(
	    w->port->pinned != NULL ? w->port->pinned : g->current);
	LIST_INSERT_HEAD(&g->walks, w, link);
	g->walks_n++;
	if (walk_path(w) == SP_OK && walk_episode(w) == SP_OK &&
	    walk_route(w) == SP_OK && walk_token(w) == SP_OK &&
	    walk_room(w) == SP_OK)
		walk_step(w, walk_hook(w, GATE_HEAD));
}

const struct exchange_consumer walk_consumer = {
	.open = walk_on_open,
	.body = walk_on_body,
	.body_end = walk_on_body_end,
	.writable = walk_on_writable,
	.done = walk_on_done,
	.gone = walk_on_gone,
};
