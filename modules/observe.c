#include "config.h"

#include <stdio.h>

#include "observe.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "gate/bound.h"
#include "gate/door.h"
#include "gate/feed.h"
#include "gate/metrics.h"
#include "gate/websock.h"
#include "http/query.h"
#include "json/jwrite.h"
#include "observe_call.h"

enum { OBSERVE_ID_MAX = 64 };

/* All of this process's. */
static uint64_t *observers_now, *observers_dropped;

static void
observe_log(const struct observe_call *c, const char *operation,
    const char *outcome)
{
	const struct door_operation op = {
		.principal = "observer",
		.door = "observe",
		.operation = operation,
		.episode = view_str(c->episode),
		.outcome = outcome,
		.us = clock_us() - c->started_us,
	};

	door_log(c->r, &op);
}

/* ---- the end ---------------------------------------------------------------- */

/* Nothing more is read or sent. */
static void
observe_stop(struct observe_call *c)
{
	c->over = true;
	feed_read_stop(&c->reader);
	loop_timer_stop(c->timer);
}

/* The stream's end, behind what is queued. */
static void
observe_end(struct observe_call *c)
{
	int rc;

	observe_stop(c);
	if (c->ws != NULL) {
		observe_ws_close(c, WEBSOCKET_NORMAL,
		    VIEW("the episode is over"));
		return;
	}
	rc = exchange_end(c->r->x);
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}

/* {"seq":N,"ts":S,"type":"dropped","data":{"reason":..}}, and "resets" */
static int
observe_put_dropped(struct observe_call *c, const char *reason)
{
	struct jwrite w;

	buf_reset(&c->line, OBSERVE_LINE_MAX);
	jwrite_init(&w, &c->line);
	jwrite_object(&w);
	jwrite_key(&w, "seq");
	jwrite_u64(&w, c->reader.next);
	jwrite_key(&w, "ts");
	jwrite_double(&w, (double)clock_wall_us() / 1e6);
	jwrite_key(&w, "type");
	jwrite_cstr(&w, "dropped");
	jwrite_key(&w, "data");
	jwrite_object(&w);
	jwrite_key(&w, "reason");
	jwrite_cstr(&w, reason);
	jwrite_end_object(&w);
	/* as any other event */
	if (c->reader.resets > 0) {
		jwrite_key(&w, "resets");
		jwrite_u64(&w, c->reader.resets);
	}
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/* The last word, and the end. */
static void
observe_tell(struct observe_call *c, unsigned code, const char *reason)
{
	const struct view around[] = { VIEW("data: "), VIEW_NONE,
		VIEW("\n\n") };
	struct view parts[3];
	int rc;

	observe_stop(c);
	if (c->ws != NULL) {
		observe_ws_close(c, code, view_str(reason));
		return;
	}
	rc = observe_put_dropped(c, reason);
	if (rc == SP_OK) {
		memcpy(parts, around, sizeof(parts));
		parts[1] = buf_view(&c->line);
		rc = exchange_datav(c->r->x, parts, 3);
	}
	if (rc == SP_OK)
		rc = exchange_end(c->r->x);
	else if (rc != SP_E_GONE)
		exchange_abort(c->r->x);
	if (rc == SP_OK)
		gate_finish(c->r);
}

void
observe_drop(struct observe_call *c, unsigned code, const char *reason)
{
	if (c->over)
		return;
	++*observers_dropped;
	c->r->outcome = "dropped";
	observe_tell(c, code, reason);
}

/* ---- sending ---------------------------------------------------------------- */

/*
 * One event, its id being the number behind it: who comes back with it goes
 * on there.  Numbers begin again with each reset, so its count is in front.
 */
static int
observe_send_sse(struct observe_call *c)
{
	char id[48];
	int n = 0;

	if (c->reader.next > 0)
		n = snprintf(id, sizeof(id), "id: %u-%llu\n",
		    (unsigned)c->reader.resets,
		    (unsigned long long)(c->reader.next - 1));
	{
		const struct view parts[] = { view_of(id, (size_t)n),
			VIEW("data: "), buf_view(&c->line), VIEW("\n\n") };

		return exchange_datav(c->r->x, parts, 4);
	}
}

static bool
observe_room(const struct observe_call *c)
{
	return c->ws != NULL ? observe_ws_room(c) : exchange_room(c->r->x) > 0;
}

static void
observe_failed(struct observe_call *c, int rc)
{
	if (rc == SP_E_GONE)
		observe_stop(c); /* and the end of the request follows */
	else
		observe_drop(c, WEBSOCKET_AGAIN_LATER,
		    "out of memory: come back later");
}

void
observe_pump(struct observe_call *c)
{
	int rc = SP_OK;

	while (!c->over && rc == SP_OK && observe_room(c)) {
		buf_reset(&c->line, FEED_LOG_BLOCK);
		rc = feed_read(NULL, &c->reader, &c->line);
		if (rc == SP_OK)
			rc = c->ws != NULL ? observe_ws_send(c)
					   : observe_send_sse(c);
	}
	if (c->over)
		return;
	if (rc == SP_E_EOF ||
	    (rc == SP_E_AGAIN && c->replay && !c->reader.more)) {
		observe_end(c);
	} else if (rc != SP_OK && rc != SP_E_AGAIN) {
		observe_failed(c, rc);
	} else if (rc == SP_OK && !c->full) {
		c->full = true;
		loop_timer_set(c->timer, c->conf->slow_ms);
	} else if (rc == SP_E_AGAIN) {
		c->full = false;
		loop_timer_set(c->timer, OBSERVE_BEAT_MS);
	}
}

static void
observe_on_ready(void *arg)
{
	struct observe_call *c = arg;

	if (!c->over)
		observe_pump(c);
}

static void
observe_on_reset(void *arg, bool over)
{
	/* both are read: a gap and other numbers, or the end */
	(void)arg;
	(void)over;
}

static void
observe_on_timer(void *arg)
{
	struct observe_call *c = arg;
	int rc = SP_OK;

	if (c->over)
		return;
	if (c->full) {
		observe_drop(c, WEBSOCKET_POLICY,
		    "too slow: it took nothing for slow_timeout; come back "
		    "with the last id");
		return;
	}
	/* a WebSocket has its own pings */
	if (c->ws == NULL)
		rc = exchange_data(c->r->x, VIEW(":\n\n"));
	if (rc != SP_OK)
		observe_failed(c, rc);
	else
		loop_timer_set(c->timer, OBSERVE_BEAT_MS);
}

/* ---- the beginning ---------------------------------------------------------- */

/* "RESETS-N", or "N" of the count that is now: 0; SP_E_SYNTAX. */
static int
observe_id(struct view id, struct feed_reader *r)
{
	size_t dash = view_find(id, '-');
	uint64_t resets;

	if (dash < id.n) {
		if (num_u64(view_sub(id, 0, dash), 0, UINT32_MAX, &resets) !=
		    SP_OK)
			return SP_E_SYNTAX;
		r->resets = (uint32_t)resets;
		id = view_from(id, dash + 1);
	}
	return num_u64(id, 0, UINT64_MAX - 2, &r->next) == SP_OK ? SP_OK
								 : SP_E_SYNTAX;
}

/* Where it begins: since=N at N, Last-Event-ID behind it. */
static int
observe_since(struct gate_request *r, struct feed_reader *from)
{
	struct view last =
	    head_get(&r->x->request.fields, VIEW("Last-Event-ID"));
	struct buf since = BUF_INIT(OBSERVE_ID_MAX);
	int rc = query_get(r->x->request.query, VIEW("since"), &since);

	if (rc == 1) {
		rc = observe_id(buf_view(&since), from);
	} else if (rc == 0 && last.n > 0) {
		rc = observe_id(last, from);
		if (rc == SP_OK)
			from->next++;
	}
	buf_clear(&since);
	return rc == SP_E_NOMEM ? rc : rc == SP_OK ? SP_OK : SP_E_SYNTAX;
}

static unsigned
observe_types(const struct observe_conf *conf)
{
	static const struct {
		const char *name;
		enum feed_type type;
	} rows[] = {
		{ "harness_events", FEED_HARNESS },
		{ "fs_diff", FEED_FS },
		{ "process", FEED_PROCESS },
		{ "network", FEED_NETWORK },
		{ "resource", FEED_RESOURCE },
		{ "model", FEED_MODEL },
	};
	unsigned types = 0;
	size_t i, j;

	for (i = 0; i < conf->stream.n; i++)
		for (j = 0; j < sizeof(rows) / sizeof(rows[0]); j++)
			if (view_eq(conf->stream.v[i], view_str(rows[j].name)))
				types |= rows[j].type;
	return types;
}

static struct observe_call *
observe_new(struct gate_request *r, const struct episode *ep)
{
	struct observe_call *c = mem_calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->timer = loop_timer_new(gate_loop(r->gate), observe_on_timer, c);
	if (c->timer == NULL) {
		mem_free(c);
		return NULL;
	}
	c->r = r;
	c->conf = r->conf;
	c->started_us = clock_us();
	memcpy(c->episode, ep->id, sizeof(c->episode));
	buf_init(&c->line, OBSERVE_LINE_MAX);
	c->reader.types = observe_types(c->conf);
	c->reader.ready = observe_on_ready;
	c->reader.reset = observe_on_reset;
	c->reader.arg = c;
	++*observers_now;
	r->ctx = c;
	return c;
}

static int
observe_sse_head(struct gate_request *r)
{
	struct head_field fields[] = {
		{ VIEW("Content-Type"), VIEW("text/event-stream") },
		{ VIEW("Cache-Control"), VIEW("no-store") },
		{ VIEW("X-Accel-Buffering"), VIEW("no") },
	};
	const struct head_reply head = {
		.status = 200,
		.content_length = -1,
		.fields = { .v = fields, .n = 3, .cap = 3 },
	};

	r->status = 200;
	/* silence may last; a comment shows whether somebody is there */
	r->x->patient = true;
	exchange_set_probe(r->x, VIEW(":\n\n"));
	return exchange_head(r->x, &head);
}

static bool
observe_accepts(const struct gate_request *r)
{
	struct view accept = head_get(&r->x->request.fields, VIEW("Accept"));

	return accept.n == 0 ||
	    view_search(accept, VIEW("text/event-stream")) < accept.n ||
	    view_search(accept, VIEW("text/*")) < accept.n ||
	    view_search(accept, VIEW("*/*")) < accept.n;
}

/* ---- hooks ------------------------------------------------------------------ */

static enum gate_verdict
observe_on_head(struct gate_request *r)
{
	switch (websocket_asked(&r->x->request)) {
	case SP_OK:
		r->streams = true;
		return GATE_PASS;
	case SP_E_UNSUPPORTED:
		return gate_deny(r, 426, "bad_version",
		    "WebSocket version 13 is spoken here");
	case SP_E_NOTFOUND:
		break;
	default:
		return gate_deny(r, 400, "bad_handshake",
		    "the WebSocket handshake lacks a field or has a bad one");
	}
	if (!view_eq(r->x->request.method, VIEW("GET"))) {
		r->allow = "GET";
		return gate_deny(r, 405, "method_not_allowed",
		    "observers use GET");
	}
	if (!observe_accepts(r))
		return gate_deny(r, 406, "not_acceptable",
		    "events come as text/event-stream, or over a WebSocket");
	return GATE_PASS;
}

static enum gate_verdict
observe_on_message(struct gate_request *r)
{
	const struct observe_conf *conf = r->conf;
	struct observe_call *c;
	struct episode *ep;
	enum gate_verdict v = door_episode(r, conf->environment, &ep);
	enum bound_word word;
	struct feed_reader from = { .next = 0 };
	bool follow = true;
	int rc;

	if (v != GATE_PASS)
		return v;
	if (feed_of(ep) == NULL)
		return gate_deny(r, 503, "no_episode",
		    "the episode is not there yet: try again");
	from.resets = feed_resets(feed_of(ep));
	rc = observe_since(r, &from);
	if (rc == SP_E_SYNTAX)
		return gate_deny(r, 400, "bad_since",
		    "since and Last-Event-ID are ids of events, RESETS-SEQ, "
		    "or a seq alone");
	if (rc != SP_OK)
		return GATE_FAIL;
	if (query_flag(r->x->request.query, VIEW("follow"), &follow) != SP_OK)
		return gate_deny(r, 400, "bad_follow",
		    "follow is 0 or 1, once: whether what comes is told as "
		    "well");
	c = observe_new(r, ep);
	if (c == NULL)
		return GATE_FAIL;
	word = bound_socket(gate_bound(r->gate), r, &c->place);
	if (word != BOUND_TAKEN) {
		c->over = true;
		return bound_deny(r, word);
	}
	c->reader.next = from.next;
	c->reader.resets = from.resets;
	c->replay = !follow;
	rc = r->streams ? observe_ws_accept(c) : observe_sse_head(r);
	if (rc != SP_OK) {
		c->over = true;
		return rc == SP_E_GONE ? GATE_HOLD : GATE_FAIL;
	}
	c->attached = true;
	observe_log(c, "attach", "ok");
	feed_read_start(feed_of(ep), &c->reader);
	observe_pump(c);
	return GATE_HOLD;
}

static enum gate_verdict
observe_on_finish(struct gate_request *r)
{
	struct observe_call *c = r->ctx;

	r->ctx = NULL;
	if (c == NULL)
		return GATE_PASS;
	observe_log(c, c->attached ? "detach" : "attach",
	    r->outcome != NULL ? r->outcome
		: c->attached  ? "ok"
			       : "failed");
	feed_read_stop(&c->reader);
	observe_ws_clear(c);
	loop_timer_free(c->timer);
	buf_clear(&c->line);
	bound_give(&c->place);
	--*observers_now;
	mem_free(c);
	return GATE_PASS;
}

/* ---- what comes later ------------------------------------------------------- */

static void
observe_on_room(struct gate_request *r)
{
	struct observe_call *c = r->ctx;

	if (c == NULL)
		return;
	if (c->ws != NULL) {
		websock_on_room(c->ws);
		return;
	}
	c->full = false;
	observe_on_ready(c);
}

static void
observe_on_body(struct gate_request *r, struct view data)
{
	struct observe_call *c = r->ctx;

	if (c != NULL && c->ws != NULL)
		websock_on_body(c->ws, data);
}

static void
observe_on_body_end(struct gate_request *r)
{
	struct observe_call *c = r->ctx;

	if (c != NULL && c->ws != NULL)
		websock_on_body_end(c->ws);
}

static void
observe_on_gone(struct gate_request *r, enum exchange_gone why)
{
	struct observe_call *c = r->ctx;

	if (c == NULL)
		return;
	observe_stop(c);
	if (c->ws != NULL)
		websock_on_gone(c->ws, why);
}

static void
observe_on_expire(struct gate_request *r, enum gate_expiry why)
{
	struct observe_call *c = r->ctx;

	if (c == NULL)
		return;
	if (c->ws != NULL) {
		observe_stop(c);
		websock_on_expire(c->ws, why);
		return;
	}
	observe_drop(c, WEBSOCKET_GOING_AWAY,
	    why == GATE_EXPIRE_DRAIN ? "the gateway is stopping"
				     : "memory is short: come back later");
}

static void
observe_on_drain(struct gate_request *r)
{
	struct observe_call *c = r->ctx;

	if (c == NULL || c->over)
		return;
	r->outcome = "stopping";
	observe_tell(c, WEBSOCKET_GOING_AWAY,
	    c->ws != NULL ? "stopping" : "the gateway is stopping");
	gate_told(r);
}

static size_t
observe_on_holds(const struct gate_request *r)
{
	const struct observe_call *c = r->ctx;

	if (c == NULL)
		return 0;
	return c->line.cap + (c->ws != NULL ? websock_holds(c->ws) : 0);
}

static int
observe_setup(struct gate *g)
{
	struct metrics *m = gate_metrics(g);
	struct metric *now, *dropped;

	now = metrics_register(m, METRICS_GAUGE, "observers",
	    "Observers that are connected", NULL, NULL);
	dropped = metrics_register(m, METRICS_COUNTER, "observers_dropped",
	    "Observers that were too slow, or ended for want of memory", NULL,
	    NULL);
	if (now == NULL || dropped == NULL)
		return SP_E_NOMEM;
	observers_now = metrics_cell(now, NULL);
	observers_dropped = metrics_cell(dropped, NULL);
	return SP_OK;
}

const struct gate_module observe_module = {
	.conf = &observe_conf,
	.principals = GATE_OBSERVER,
	.door = true,
	.setup = observe_setup,
	.hook = {
	    [GATE_HEAD] = observe_on_head,
	    [GATE_MESSAGE] = observe_on_message,
	    [GATE_FINISH] = observe_on_finish,
	},
	.room = observe_on_room,
	.body = observe_on_body,
	.body_end = observe_on_body_end,
	.gone = observe_on_gone,
	.drain = observe_on_drain,
	.expire = observe_on_expire,
	.holds = observe_on_holds,
};
