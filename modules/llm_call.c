/* The life of a model call: up, the answer's kind, the record, the end. */
#include "config.h"

#include "llm_call.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/jwrite.h"

enum { META_MAX = 256 * 1024, META_USUAL = 1024 };

static void on_reply_head(void *arg, struct call *call,
    const struct head_reply *head);
static void on_reply_body(void *arg, struct call *call, struct view data);
static void on_reply_end(void *arg, struct call *call, bool delimited);
static void on_reply_fail(void *arg, struct call *call, enum call_failure why,
    const char *text);
static void on_turn_room(void *arg);
static void on_turn_done(void *arg, bool ok, uint64_t number, const char *text);

/* ---- up ------------------------------------------------------------------ */

/* asked: what the request's edit found, a JSON object. */
static int
turn_meta(const struct llm_call *c, struct view asked, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "endpoint");
	jwrite_string(&w, c->endpoint);
	jwrite_key(&w, "upstream");
	jwrite_string(&w, c->upstream->name);
	jwrite_key(&w, "capture_level");
	jwrite_cstr(&w,
	    c->kind == LLM_PASS                            ? "none"
		: c->capture->level == CONF_LEVEL_TOKENS   ? "tokens"
		: c->capture->level == CONF_LEVEL_LOGPROBS ? "logprobs"
							   : "text");
	jwrite_key(&w, "client");
	jwrite_object(&w);
	llm_client_fields(c, &w);
	jwrite_end_object(&w);
	if (c->spent != ROSTER_LEFT) {
		jwrite_key(&w, "budget");
		jwrite_cstr(&w, roster_budget_name(c->spent));
	}
	if (asked.n > 2) {
		jwrite_key(&w, "asked");
		jwrite_raw(&w, asked);
	}
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static uint32_t
turn_flags(const struct llm_call *c)
{
	uint32_t flags = 0;

	if (c->wants.stream)
		flags |= MESSAGE_TURN_STREAM;
	if (c->wants.thinking_off)
		flags |= MESSAGE_TURN_THINKING_OFF;
	if (c->ask & LLM_ASK_NO_LOGPROBS)
		flags |= MESSAGE_TURN_NO_LOGPROBS;
	if (c->ask & LLM_ASK_NO_TOKEN_IDS)
		flags |= MESSAGE_TURN_NO_TOKEN_IDS;
	if (c->kind == LLM_PASS)
		flags |= MESSAGE_TURN_PASS;
	if (c->done_seen)
		flags |= MESSAGE_TURN_DONE_SEEN;
	if (c->spent != ROSTER_LEFT)
		flags |= MESSAGE_TURN_BUDGET;
	if (c->masked)
		flags |= MESSAGE_TURN_MASKED;
	return flags;
}

static int
open_turn(struct llm_call *c, struct view asked)
{
	const struct turn_owner owner = { on_turn_room, on_turn_done, c };
	struct turn_params p = { 0 };
	struct buf meta;
	int rc;

	if (c->capture == NULL || c->kind == LLM_MODELS || c->turn != NULL)
		return 0;
	buf_init(&meta, META_MAX);
	rc = buf_reserve(&meta, META_USUAL);
	if (rc == 0)
		rc = turn_meta(c, asked, &meta);
	p.generation = gate_generation_of(c->r);
	p.capture = c->capture;
	p.session = c->r->session;
	p.episode = c->r->episode;
	p.wall_us = c->wall_us;
	p.flags = turn_flags(c);
	p.meta = buf_view(&meta);
	if (rc == 0)
		rc = turn_open(gate_recorder(c->r->gate), &p, &owner, &c->turn);
	buf_clear(&meta);
	return rc;
}

/* The session's sampling goes before the capture's. */
static const struct conf_capture *
with_sampling(const struct llm_call *c, struct conf_capture *own,
    struct conf_sampling *v)
{
	const struct roster_session *s = c->use.session;
	size_t i, k, n;

	if (s == NULL || s->sampling_n == 0 || c->capture == NULL)
		return c->capture;
	for (n = 0; n < s->sampling_n && n < LLM_SAMPLING_MAX; n++)
		v[n] = s->sampling[n];
	for (i = 0; i < c->capture->sampling_n && n < LLM_SAMPLING_MAX; i++) {
		for (k = 0; k < s->sampling_n; k++)
			if (view_eq(s->sampling[k].name,
				c->capture->sampling[i].name))
				break;
		if (k == s->sampling_n)
			v[n++] = c->capture->sampling[i];
	}
	*own = *c->capture;
	own->sampling = v;
	own->sampling_n = n;
	return own;
}

/* The body as it goes up, and what the client had asked for. */
static int
edit_body(struct llm_call *c, struct buf *asked)
{
	const struct roster_session *s = c->use.session;
	struct conf_sampling sampling[LLM_SAMPLING_MAX];
	struct conf_capture own;
	struct llm_request_params p = {
		.capture = with_sampling(c, &own, sampling),
		.model = s != NULL && s->m.model.n > 0 ? s->m.model
						       : c->upstream->model,
		.ask = c->ask,
	};
	struct view up = c->upstream->name;
	unsigned known;
	int rc;

	buf_clear(&c->body);
	rc = llm_request_edit(&p, buf_view(&c->original), &c->body, &c->wants,
	    asked, &c->why);
	if (rc != 0 || c->attempts > 0)
		return rc;
	c->stamp = (uint64_t)gate_generation(c->r->gate) << 32 |
	    forward_changes(gate_forward(c->r));
	llm_refusal_renew(c->shared->refusals, c->stamp,
	    loop_now_ms(gate_loop(c->r->gate)));
	known = llm_refusal_known(c->shared->refusals, up,
	    view_of(c->wants.model, c->wants.model_n));
	if (known == 0)
		return 0;
	c->ask = p.ask = known;
	buf_clear(&c->body);
	buf_reset(asked, SIZE_MAX);
	return llm_request_edit(&p, buf_view(&c->original), &c->body, &c->wants,
	    asked, &c->why);
}

static int
forward(struct llm_call *c)
{
	const struct call_owner owner = { on_reply_head, on_reply_body,
		on_reply_end, on_reply_fail, c };
	struct exchange *x = c->r->x;
	struct forward_params p = {
		.upstream = c->upstream,
		.method = x->request.method,
		.endpoint = c->endpoint,
		.query = x->request.query,
		.fields = &x->request.fields,
		.arena = x->arena,
		.affinity = c->affinity,
		.manual_progress = true,
		.edited = c->kind == LLM_CHAT,
	};
	struct view name = c->upstream->name;

	p.body = buf_view(c->kind == LLM_CHAT ? &c->body : &c->original);
	c->attempts++;
	metrics_observe_us(c->shared->added, &name, clock_us() - c->whole_us);
	return forward_start(gate_forward(c->r), &p, &owner, &c->call);
}

/* One more of the session's calls: counted when it goes up. */
static void
count_call(struct llm_call *c)
{
	if (c->attempts == 1 && c->use.session != NULL)
		c->use.session->m.calls++;
}

/* False: the session has nothing left, and spent says of what. */
static bool
has_budget(struct llm_call *c)
{
	if (c->use.session == NULL || c->attempts > 0 || c->kind == LLM_MODELS)
		return true;
	c->spent = roster_spent(c->use.session, c->wall_us);
	return c->spent == ROSTER_LEFT;
}

/* The gateway answers itself, and the turn is marked as no model's. */
static int
stop_by_budget(struct llm_call *c)
{
	struct view what = view_str(roster_budget_name(c->spent));
	int rc = llm_budget_answer(c);

	metrics_inc(metrics_cell(c->shared->budget_stops, &what));
	if (rc == 0)
		llm_call_recording(c, MESSAGE_OUTCOME_END, VIEW_NONE);
	return rc;
}

int
llm_call_start(struct llm_call *c)
{
	struct buf asked;
	bool spent = !has_budget(c);
	int rc = 0;

	if (spent && c->kind != LLM_CHAT)
		return SP_E_DENIED;
	buf_init(&asked, META_MAX);
	c->state = LLM_WAITING;
	c->masked = false;
	if (c->kind == LLM_CHAT)
		rc = edit_body(c, &asked);
	if (rc == 0)
		rc = open_turn(c, buf_view(&asked));
	buf_clear(&asked);
	if (rc != 0)
		return rc;
	if (spent)
		return stop_by_budget(c);
	rc = forward(c);
	if (rc == 0)
		count_call(c);
	return rc;
}

/* ---- the answer ---------------------------------------------------------- */

void
llm_call_accepted(struct llm_call *c)
{
	if (!c->request_recorded)
		llm_call_record(c, MESSAGE_DATA_REQUEST,
		    buf_view(c->kind == LLM_CHAT ? &c->body : &c->original));
	c->request_recorded = true;
	buf_clear(&c->body);
	buf_clear(&c->original);
	gate_body_gone(c->r);
}

static bool
is_type(const struct head_reply *head, struct view type)
{
	struct view v = head_get(&head->fields, VIEW("content-type"));
	size_t semi = view_find(v, ';');

	return view_eq_nocase(view_trim(view_sub(v, 0, semi)), type);
}

static void
blank(struct buf *b, struct view key)
{
	struct view text = buf_view(b);
	size_t at = 0, found;

	while ((found = view_search(view_from(text, at), key)) < text.n - at) {
		at += found;
		/* the buffer is ours: same length, other bytes */
		memset(b->mem + b->off + at, '*', key.n);
		at += key.n;
	}
}

static struct view
mask(struct llm_call *c, struct view v, int which)
{
	const struct conf_secret *key = c->upstream->api_key;
	struct buf *b = &c->shared->mask[which];

	if (key == NULL || key->value.n < CONF_KEY_MASKED_MIN ||
	    view_search(v, key->value) >= v.n)
		return v;
	buf_reset(b, 64 * 1024);
	if (buf_add_view(b, v) != 0)
		return VIEW_NONE; /* rather nothing than the key */
	blank(b, key->value);
	return buf_view(b);
}

struct view
llm_call_mask(struct llm_call *c, struct view v, int which)
{
	struct view clean = mask(c, v, which);

	c->masked |= clean.p != v.p;
	return clean;
}

/*
 * Date is the sender's, and Alt-Svc (RFC 7838) of another host; what an edited
 * answer's digest or tag says is not true of it any more.
 */
static bool
is_kept(struct view name, bool edited)
{
	if (view_eq_nocase(name, VIEW("date")) ||
	    view_eq_nocase(name, VIEW("alt-svc")))
		return false;
	return !edited ||
	    !(head_is_digest(name) || view_eq_nocase(name, VIEW("etag")));
}

/* What goes down again. */
static int
copy_fields(struct llm_call *c, const struct head_reply *head)
{
	struct view coding;
	bool edited =
	    c->kind == LLM_CHAT && head_codings(&head->fields, &coding) == 0;
	size_t i;
	int rc = 0;

	head_fields_init(&c->fields, c->r->x->arena);
	for (i = 0; i < head->fields.n && rc == 0; i++) {
		const struct head_field *f = &head->fields.v[i];

		if (is_kept(f->name, edited))
			rc =
			    head_add(&c->fields, f->name, mask(c, f->value, 0));
	}
	return rc;
}

static void
on_reply_head(void *arg, struct call *call, const struct head_reply *head)
{
	struct llm_call *c = arg;

	(void)call;
	c->upstream_status = head->status;
	call_progress(c->call);
	if (head->status < 300 && c->attempts > 1) /* so asked, it answers */
		llm_refusal_learn(c->shared->refusals, c->stamp,
		    c->upstream->name,
		    view_of(c->wants.model, c->wants.model_n), c->ask);
	if (copy_fields(c, head) != 0)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "upstream_malformed",
		    "the upstream's head cannot be passed on");
	else if (c->kind != LLM_CHAT) {
		llm_call_accepted(c);
		c->state = LLM_RELAY;
		c->relay_left = head->content_length > 0
		    ? (uint64_t)head->content_length
		    : 0;
		if (llm_call_reply_head(c, head->status,
			head->content_length) != 0)
			return;
	} else if (head->status >= 400) {
		c->state = LLM_REFUSED;
	} else if (head->status == 304) {
		llm_call_break(c, MESSAGE_OUTCOME_STATUS, 502,
		    "upstream_malformed",
		    "the upstream answered 304 (not modified), which is no "
		    "answer to a POST");
	} else if (head->status >= 300) {
		llm_call_break(c, MESSAGE_OUTCOME_STATUS, 502,
		    "upstream_redirect",
		    "the upstream answered with a redirect: name its final "
		    "address in the `server` of the upstream");
	} else if (head_count(&head->fields, VIEW("content-encoding")) > 0) {
		/* a coding that cannot be read: untouched, not captured */
		c->undecoded = true;
		llm_call_accepted(c);
		c->state = LLM_RELAY;
		c->relay_left = head->content_length > 0
		    ? (uint64_t)head->content_length
		    : 0;
		if (llm_call_reply_head(c, head->status,
			head->content_length) != 0)
			return;
	} else if (is_type(head, VIEW("text/event-stream"))) {
		llm_call_accepted(c);
		llm_stream_begin(c);
	} else {
		llm_call_accepted(c);
		c->state = LLM_UNARY;
	}
	llm_call_pressure(c);
}

/* A body that is collected; false when it is too long. */
static bool
collect(struct llm_call *c, struct view data)
{
	int rc;

	if (c->state == LLM_REFUSED &&
	    buf_len(&c->held) + data.n > LLM_ERROR_BODY_MAX)
		rc = SP_E_LIMIT;
	else
		rc = buf_add_view(&c->held, data);
	if (rc == 0)
		return true;
	llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
	    "upstream_reply_too_long",
	    rc == SP_E_LIMIT ? "the upstream's reply is longer than "
			       "`reply_max` of the upstream allows"
			     : "out of memory for the upstream's reply");
	return false;
}

/*
 * Bytes of a body that is not edited.  The last one of a body of known length
 * is its end: it waits for the recorder, as a terminator does.
 */
static void
relay(struct llm_call *c, struct view data)
{
	if (c->turn != NULL && c->relay_left > 0) {
		c->relay_left -=
		    data.n < c->relay_left ? data.n : c->relay_left;
		if (c->relay_left == 0) {
			data.n--;
			if (buf_add(&c->held, data.p + data.n, 1) != 0) {
				llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503,
				    "out_of_memory",
				    "out of memory for the reply");
				return;
			}
		}
	}
	if (data.n == 0 || exchange_data(c->r->x, data) == 0)
		llm_call_pressure(c);
}

/* Bytes at the end that the upstream's key may go on from. */
static size_t
key_begins(const struct llm_call *c, struct view v)
{
	const struct conf_secret *key = c->upstream->api_key;
	size_t n;

	if (key == NULL || key->value.n < CONF_KEY_MASKED_MIN)
		return 0;
	n = v.n < key->value.n ? v.n : key->value.n - 1;
	while (n > 0 && !view_ends(v, view_sub(key->value, 0, n)))
		n--;
	return n;
}

/* One that is cut in two reads is one; `end`: nothing more comes. */
static void
relay_masked(struct llm_call *c, struct view data, bool end)
{
	struct buf *whole = &c->shared->mask[1];
	size_t keep;
	int rc = 0;

	if (buf_len(&c->tail) > 0) {
		buf_reset(whole, 64 * 1024);
		rc = buf_add_view(whole, buf_view(&c->tail));
		if (rc == 0)
			rc = buf_add_view(whole, data);
		data = buf_view(whole);
		buf_reset(&c->tail, 0);
	}
	keep = end ? 0 : key_begins(c, data);
	if (rc == 0)
		rc = buf_add(&c->tail, data.p + data.n - keep, keep);
	if (rc != 0) {
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503,
		    "out_of_memory", "out of memory for the reply");
		return;
	}
	data.n -= keep;
	relay(c, llm_call_mask(c, data, 0));
}

static void
on_reply_body(void *arg, struct call *call, struct view data)
{
	struct llm_call *c = arg;

	(void)call;
	/* one more read may be on its way when the upstream was paused */
	if (c->state < LLM_RECORDING &&
	    pressure_level(gate_pressure(c->r->gate)) == PRESSURE_FULL) {
		admission_refused(gate_admission(c->r->gate), ADMISSION_MEMORY);
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503, "no_memory",
		    "the gateway is short of memory: see memory_max");
		return;
	}
	if (c->state != LLM_RELAY)
		data = llm_call_mask(c, data, 0);
	switch (c->state) {
	case LLM_STREAM:
		llm_stream_body(c, data);
		break;
	case LLM_RELAY:
		call_progress(c->call);
		relay_masked(c, data, false);
		break;
	case LLM_UNARY:
		call_progress(c->call);
		if (collect(c, data))
			llm_call_pressure(c);
		break;
	case LLM_REFUSED:
		call_progress(c->call);
		(void)collect(c, data);
		break;
	case LLM_WAITING:
	case LLM_RECORDING:
	case LLM_OVER:
		break; /* bytes after [DONE] */
	}
}

static void
on_reply_end(void *arg, struct call *call, bool delimited)
{
	struct llm_call *c = arg;

	(void)call;
	c->call = NULL; /* it is gone; its head with it */
	switch (c->state) {
	case LLM_STREAM:
		llm_stream_end(c, delimited);
		break;
	case LLM_UNARY:
		llm_unary_end(c, delimited);
		break;
	case LLM_REFUSED:
		llm_unary_refused(c);
		break;
	case LLM_RELAY:
		if (buf_len(&c->tail) > 0)
			relay_masked(c, VIEW_NONE, true);
		if (c->state != LLM_RELAY)
			break;
		llm_call_recording(c,
		    c->upstream_status >= 400 ? MESSAGE_OUTCOME_STATUS
					      : MESSAGE_OUTCOME_END,
		    VIEW_NONE);
		break;
	case LLM_WAITING:
	case LLM_RECORDING:
	case LLM_OVER:
		break;
	}
}

static void
on_reply_fail(void *arg, struct call *call, enum call_failure why,
    const char *text)
{
	struct llm_call *c = arg;
	unsigned status = 502;
	const char *code = "upstream_disconnect";

	(void)call;
	c->call = NULL;
	if (c->state == LLM_RECORDING || c->state == LLM_OVER)
		return; /* all that mattered had come */
	if (c->state == LLM_STREAM && c->done_seen) {
		llm_stream_end(c, true);
		return;
	}
	switch (why) {
	case CALL_CONNECT:
		code = "upstream_unreachable";
		break;
	case CALL_CONNECT_TIMEOUT:
	case CALL_SEND_TIMEOUT:
	case CALL_FIRST_TIMEOUT:
	case CALL_READ_TIMEOUT:
		code = "upstream_timeout";
		status = 504;
		break;
	case CALL_MALFORMED:
	case CALL_ENCODING:
		code = "upstream_malformed";
		break;
	case CALL_NOMEM:
		code = "out_of_memory";
		status = 503;
		break;
	case CALL_SEND:
	case CALL_BROKEN:
		break;
	}
	llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, status, code, text);
}

/* ---- down ---------------------------------------------------------------- */

int
llm_call_reply_head(struct llm_call *c, unsigned status, int64_t content_length)
{
	struct head_reply h = { .status = status,
		.content_length = content_length,
		.fields = c->fields };
	int rc;

	rc = exchange_head(c->r->x, &h);
	if (rc == 0) {
		c->head_sent = true;
		c->r->status = status;
		return 0;
	}
	if (rc != SP_E_GONE)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "upstream_malformed",
		    "the upstream's head cannot be passed on");
	return rc;
}

void
llm_call_record(struct llm_call *c, enum message_data kind, struct view v)
{
	if (c->turn == NULL || c->turn_ended || c->turn_done)
		return;
	/* the turn is marked as truncated then: it is not trained on */
	if (turn_data(c->turn, kind, v) != 0)
		log_warn("request=%llu session=%.*s a part of the turn cannot "
			 "be recorded: more than `recorder_buffer` is unsent, "
			 "or no memory",
		    (unsigned long long)c->r->number, VIEW_ARG(c->r->session));
}

static uint64_t
since(const struct llm_call *c, uint64_t at_us)
{
	return at_us > c->started_us ? at_us - c->started_us : 0;
}

static void
end_turn(struct llm_call *c, enum message_outcome outcome, struct view error)
{
	struct turn_end e = {
		.outcome = outcome,
		.upstream_status = c->upstream_status,
		.flags = turn_flags(c),
		.latency_us = since(c, loop_now_us(gate_loop(c->r->gate))),
		.ttft_us = c->first_us != 0 ? since(c, c->first_us) : 0,
		.error = error,
	};

	if (c->undecoded)
		e.meta = VIEW("{\"capture\":\"unsupported_encoding\"}");
	if (c->turn == NULL || c->turn_ended || c->turn_done)
		return;
	if (!c->request_recorded) /* no answer: what was sent, all the same */
		llm_call_accepted(c);
	c->turn_ended = true;
	if (turn_end(c->turn, &e) != 0) {
		turn_drop(c->turn);
		c->turn = NULL;
	}
}

static void
release(struct llm_call *c)
{
	if (c->streaming)
		llm_stream_release(c);
	else
		llm_unary_release(c);
}

void
llm_call_recording(struct llm_call *c, enum message_outcome outcome,
    struct view error)
{
	c->state = LLM_RECORDING;
	if (c->turn == NULL) {
		release(c);
		return;
	}
	end_turn(c, outcome, error);
	if (c->turn == NULL) /* it could not be ended */
		llm_call_break(c, outcome, 503, "recorder_unavailable",
		    "the trace could not be written");
}

static int
error_json(const char *code, const char *text, unsigned status, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "message");
	jwrite_cstr(&w, text);
	jwrite_key(&w, "type");
	jwrite_cstr(&w,
	    status == 504      ? "timeout_error"
		: status < 500 ? "invalid_request_error"
			       : "upstream_error");
	jwrite_key(&w, "param");
	jwrite_null(&w);
	jwrite_key(&w, "code");
	jwrite_cstr(&w, code);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/* The last event of a stream that broke; never [DONE] after it. */
static void
error_event(struct llm_call *c, struct view error)
{
	const struct view parts[] = { VIEW("data: {\"error\":"), error,
		VIEW("}\n\n") };

	if (exchange_datav(c->r->x, parts, 3) == 0)
		exchange_abort(c->r->x);
}

void
llm_call_break(struct llm_call *c, enum message_outcome outcome,
    unsigned status, const char *code, const char *text)
{
	struct buf error;

	if (c->state == LLM_OVER)
		return;
	if (c->state == LLM_UNARY && !c->turn_done && c->call != NULL)
		llm_unary_record(c); /* a part of it, cut short */
	c->state = LLM_OVER;
	if (c->call != NULL)
		call_cancel(c->call);
	c->call = NULL;
	buf_init(&error, (size_t)16 * 1024);
	if (error_json(code, text, status, &error) != 0)
		buf_reset(&error, SIZE_MAX);
	end_turn(c, outcome, c->gone ? VIEW_NONE : buf_view(&error));
	/* memory may be the very reason */
	buf_clear(&c->held);
	buf_clear(&c->body);
	buf_clear(&c->original);
	gate_body_gone(c->r);
	if (!c->gone) {
		c->r->outcome = code;
		log_warn("conn=%llu upstream=%.*s %s: %s",
		    (unsigned long long)c->r->x->connection,
		    VIEW_ARG(c->upstream->name), code, text);
		if (c->head_sent && c->streaming)
			error_event(c, buf_view(&error));
		else if (c->head_sent ||
		    gate_error(c->r, status, code, "%s", text) != 0)
			exchange_abort(c->r->x);
		gate_finish(c->r);
	}
	buf_clear(&error);
}

void
llm_call_pressure(struct llm_call *c)
{
	bool full;

	if (c->call == NULL || c->gone)
		return;
	full = exchange_room(c->r->x) == 0 ||
	    pressure_level(gate_pressure(c->r->gate)) >= PRESSURE_HARD ||
	    (c->turn != NULL && !c->turn_done && turn_room(c->turn) == 0);
	if (full != c->paused) {
		c->paused = full;
		call_pause(c->call, full);
	}
}

/* ---- the record ---------------------------------------------------------- */

static void
on_turn_room(void *arg)
{
	llm_call_pressure(arg);
}

static void
on_turn_done(void *arg, bool ok, uint64_t number, const char *text)
{
	struct llm_call *c = arg;

	(void)number;
	c->turn_done = true;
	c->turn_ok = ok;
	if (c->state == LLM_OVER)
		return; /* the client has had its answer, or is away */
	if (!ok)
		llm_call_break(c, MESSAGE_OUTCOME_LOST, 503,
		    "recorder_unavailable", text);
	else if (c->state == LLM_RECORDING)
		release(c);
}

void
llm_call_free(struct llm_call *c)
{
	admission_leave(&c->ticket);
	roster_detach(&c->use);
	if (c->call != NULL)
		call_cancel(c->call);
	if (c->turn != NULL) {
		if (c->turn_done)
			turn_delivered(c->turn, c->turn_ok && !c->gone);
		else
			turn_drop(c->turn);
	}
	if (c->streaming)
		--*c->shared->streams;
	loop_timer_free(c->timer);
	sse_clear(&c->sse);
	llm_repeat_free(c->repeat);
	buf_clear(&c->held);
	buf_clear(&c->tail);
	buf_clear(&c->body);
	buf_clear(&c->original);
	mem_free(c);
}
