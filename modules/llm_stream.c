/* Streamed answers: each event goes on as soon as it is whole. */
#include "config.h"

#include "llm_call.h"

#include "base/mem.h"

static void finish_stream(struct llm_call *c, bool clean);

static void
on_timer(void *arg)
{
	struct llm_call *c = arg;

	if (c->state != LLM_STREAM || c->gone)
		return;
	if (c->done_seen) { /* an upstream that does not terminate */
		if (c->call != NULL)
			call_cancel(c->call);
		c->call = NULL;
		finish_stream(c, true);
		return;
	}
	/* one comment line, one LF: never an empty event; case A6 */
	if (c->head_sent && exchange_data(c->r->x, VIEW(": ka\n")) != 0)
		return;
	loop_timer_set(c->timer, c->conf->keepalive_comment_ms);
}

static void
set_timer(struct llm_call *c, uint64_t ms)
{
	if (c->timer == NULL)
		c->timer = loop_timer_new(gate_loop(c->r->gate), on_timer, c);
	if (c->timer != NULL)
		loop_timer_set(c->timer, ms);
}

void
llm_stream_begin(struct llm_call *c)
{
	if (!c->wants.stream) {
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "upstream_malformed",
		    "the upstream answered with an event stream that was not "
		    "asked for");
		return;
	}
	c->state = LLM_STREAM;
	c->streaming = true;
	++*c->shared->streams;
	if (c->conf->keepalive_comment_ms > 0)
		set_timer(c, c->conf->keepalive_comment_ms);
}

/*
 * The reply's head waits for the first event (or comment): an answer without
 * any must still be able to become an error status.
 */
static int
ensure_head(struct llm_call *c)
{
	int rc;

	if (c->head_sent)
		return 0;
	rc = llm_call_reply_head(c, c->upstream_status, -1);
	if (rc == 0)
		exchange_set_probe(c->r->x, VIEW(":\n"));
	return rc;
}

/* The event's bytes without the edits' removals, as pieces; 0: too many. */
static size_t
cut_pieces(const struct sse_event *e, const struct jsplice *edits,
    struct view *piece)
{
	size_t at = 0, n = 0, i;

	if (edits->n + 1 > LLM_PIECES)
		return 0;
	for (i = 0; i < edits->n; i++) {
		size_t to = e->data_at + edits->v[i].at;

		if (to > at)
			piece[n++] = view_sub(e->raw, at, to - at);
		at = to + edits->v[i].drop;
	}
	if (at < e->raw.n)
		piece[n++] = view_from(e->raw, at);
	return n;
}

/*
 * Pieces of an event go to the client; those that come before anything useful
 * are held, so that an answer without any can still become an error status.
 */
static int
send_pieces(struct llm_call *c, const struct view *piece, size_t n)
{
	size_t i;
	int rc = 0;

	if (c->useful)
		return exchange_datav(c->r->x, piece, n);
	for (i = 0; i < n && rc == 0; i++)
		rc = buf_add_view(&c->held, piece[i]);
	return rc;
}

/*
 * An event whose data cannot be cut in place is written anew: its name, and a
 * data line for each that is left of its data.
 */
static int
send_remade(struct llm_call *c, const struct sse_event *e, struct view json)
{
	const struct view lf = VIEW("\n"), name = VIEW("data: ");
	const struct view event[] = { VIEW("event: "), e->name, lf };
	struct view line;
	int rc = 0;

	if (e->flags & SSE_NAMED)
		rc = send_pieces(c, event, 3);
	while (rc == 0 && view_split(&json, '\n', &line)) {
		const struct view parts[] = { name, line, lf };

		rc = send_pieces(c, parts, 3);
	}
	return rc != 0 ? rc : send_pieces(c, &lf, 1);
}

static int
send_edited(struct llm_call *c, const struct sse_event *e,
    const struct jsplice *edits)
{
	struct view piece[LLM_PIECES];
	struct buf *text = &c->shared->text;
	size_t n;
	int rc;

	if (edits->n == 0)
		return send_pieces(c, &e->raw, 1);
	if (e->flags & SSE_ONE_LINE) {
		n = cut_pieces(e, edits, piece);
		if (n > 0)
			return send_pieces(c, piece, n);
	}
	buf_reset(text, 64 * 1024);
	rc = jsplice_apply(edits, e->data, text);
	return rc != 0 ? rc : send_remade(c, e, buf_view(text));
}

/* The reply is opened, and what was held before anything useful goes first. */
static int
send_held(struct llm_call *c)
{
	int rc = ensure_head(c);

	if (rc == 0 && buf_len(&c->held) > 0) {
		rc = exchange_data(c->r->x, buf_view(&c->held));
		buf_clear(&c->held);
	}
	return rc;
}

static void
note_data(struct llm_call *c)
{
	struct view name = c->upstream->name;

	if (c->call != NULL) /* else at the very end */
		call_progress(c->call);
	if (c->first_us != 0)
		return;
	c->first_us = loop_now_us(gate_loop(c->r->gate));
	metrics_observe_us(c->shared->ttft, &name, c->first_us - c->started_us);
}

/* [DONE]: the end is held until the turn is on file. */
static int
on_done_event(struct llm_call *c, const struct sse_event *e)
{
	c->done_seen = true;
	if (!c->useful) {
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "upstream_empty",
		    "the upstream ended the stream without an answer");
		return SP_E_EOF;
	}
	if (buf_add_view(&c->held, e->raw) != 0) {
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503,
		    "out_of_memory", "out of memory for the stream's end");
		return SP_E_EOF;
	}
	return 0;
}

/* What is taken out of an event, and what it is. */
static int
edit_data(struct llm_call *c, struct view data, struct llm_reply_facts *facts)
{
	struct jsplice *edits = &c->shared->edits;
	int rc;

	jsplice_reset(edits);
	if (llm_repeat_edit(c->repeat, data, edits, facts))
		return 0;
	rc = llm_reply_edit(&c->wants, data, true, edits, facts);
	if (rc == 0) {
		llm_repeat_learn(&c->repeat, &c->wants, data, edits, facts);
	} else if (rc != SP_E_NOMEM) {
		/* no JSON object: the client's parser will tell */
		jsplice_reset(edits);
		memset(facts, 0, sizeof(*facts));
		facts->useful = true;
		rc = 0;
	}
	return rc;
}

/* Data of one event: recorded as it came, forwarded as the client asked. */
static int
on_data(struct llm_call *c, const struct sse_event *e)
{
	struct llm_reply_facts facts;
	int rc;

	note_data(c);
	/* clients take whatever begins so for the end */
	if (view_starts(view_trim(e->data), VIEW("[DONE]")))
		return on_done_event(c, e);
	llm_call_record(c, MESSAGE_DATA_EVENT, e->data);
	rc = edit_data(c, e->data, &facts);
	if (rc != 0)
		return rc;
	c->useful |= facts.useful;
	c->finish_seen |= facts.finish;
	c->logprobs_seen |= facts.logprobs;
	if (facts.drop)
		return 0;
	rc = c->useful ? send_held(c) : 0;
	return rc != 0 ? rc : send_edited(c, e, &c->shared->edits);
}

/* llama.cpp of old: `error: {...}` becomes an event; case A14. */
static int
on_error_field(struct llm_call *c, const struct sse_event *e)
{
	const struct view parts[] = { VIEW("data: {\"error\":"), e->error,
		VIEW("}\n\n") };
	int rc;

	note_data(c);
	c->useful = true;
	llm_call_record(c, MESSAGE_DATA_ERROR, e->error);
	rc = ensure_head(c);
	if (rc == 0)
		rc = jscan_valid(e->error, 0) == 0
		    ? exchange_datav(c->r->x, parts, 3)
		    : exchange_data(c->r->x, e->raw);
	return rc;
}

/* The event without the upstream's key, when its pieces came apart. */
static void
mask_event(struct llm_call *c, struct sse_event *e)
{
	struct view raw = llm_call_mask(c, e->raw, 0);

	if (raw.p == e->raw.p)
		return;
	e->raw = raw;
	if (e->flags & SSE_ONE_LINE)
		e->data = view_sub(raw, e->data_at, e->data.n);
	else
		e->data = llm_call_mask(c, e->data, 1);
	e->flags &= ~(unsigned)SSE_NAMED;
	if (e->flags & SSE_ERROR)
		e->error = VIEW("{\"message\":\"error\"}");
}

static int
on_event(void *arg, const struct sse_event *whole)
{
	struct llm_call *c = arg;
	struct sse_event copy = *whole, *e = &copy;
	int rc = 0;

	if (c->done_seen) /* nothing counts after [DONE] */
		return 0;
	mask_event(c, e);
	if (e->flags & SSE_DATA)
		rc = on_data(c, e);
	else if (e->flags & SSE_ERROR)
		rc = on_error_field(c, e);
	else if ((e->flags & SSE_COMMENT) && !(e->flags & SSE_NAMED)) {
		/* a heartbeat: passes, and is no progress; cases A5, I8 */
		rc = ensure_head(c);
		if (rc == 0)
			rc = exchange_data(c->r->x, e->raw);
	}
	if (rc == 0 && c->state != LLM_STREAM)
		rc = SP_E_EOF;
	return rc;
}

/* The stream is over; clean: its end was marked. */
static void
finish_stream(struct llm_call *c, bool clean)
{
	if (!c->useful)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "upstream_empty",
		    "the upstream ended the stream without an answer");
	else if (!clean)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "upstream_disconnect",
		    "the upstream closed the connection before the answer "
		    "was whole");
	else if (c->capture != NULL && c->capture->require_logprobs &&
	    !c->logprobs_seen)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "logprobs_missing",
		    "the upstream returned no log-probabilities and "
		    "`require_logprobs` is on");
	else
		llm_call_recording(c, MESSAGE_OUTCOME_END, VIEW_NONE);
}

void
llm_stream_body(struct llm_call *c, struct view data)
{
	int rc = sse_feed(&c->sse, data, on_event, c);

	if (c->state != LLM_STREAM)
		return; /* it broke, and has been told so */
	if (rc == SP_E_LIMIT)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "upstream_event_too_long",
		    "an event is longer than `event_max` of the upstream "
		    "allows");
	else if (rc == SP_E_NOMEM)
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503,
		    "out_of_memory", "out of memory for an event");
	else if (rc == 0 && c->done_seen)
		/* the terminator comes with it, or right behind */
		set_timer(c, LLM_LINGER_MS);
	else if (rc == 0)
		llm_call_pressure(c);
	/* else the client is gone: gone() follows */
}

/* One line of [DONE] that no empty line follows. */
static bool
is_done_line(struct view rest)
{
	while (rest.n > 0 &&
	    (rest.p[rest.n - 1] == '\n' || rest.p[rest.n - 1] == '\r'))
		rest.n--;
	return view_starts(rest, VIEW("data:")) &&
	    view_eq(view_trim(view_from(rest, 5)), VIEW("[DONE]"));
}

void
llm_stream_end(struct llm_call *c, bool delimited)
{
	bool proper = delimited || c->finish_seen;

	/* SDKs drop what no empty line follows: the end it is, all the same */
	if (proper && is_done_line(sse_rest(&c->sse)))
		llm_stream_body(c, VIEW("\n\n"));
	/* half an event is never forwarded; case G4 */
	if (c->state == LLM_STREAM)
		finish_stream(c, sse_rest(&c->sse).n == 0 && proper);
}

void
llm_stream_release(struct llm_call *c)
{
	int rc = 0;

	c->state = LLM_OVER;
	if (c->gone)
		return;
	if (buf_len(&c->held) > 0)
		rc = exchange_data(c->r->x, buf_view(&c->held));
	if (rc == 0)
		rc = exchange_end(c->r->x);
	if (rc == 0)
		c->r->outcome = "ok";
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}
