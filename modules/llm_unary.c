/* Answers that are taken as a whole: unary replies and error replies. */
#include "config.h"

#include "llm_call.h"

#include "base/mem.h"
#include "json/jwrite.h"

enum { ERROR_RECORD_MAX = 8 * 1024 };

/* An `error` object in a reply with a good status: the status it names. */
static unsigned
error_status(struct view json)
{
	struct jscan_span error, code;
	struct view object;
	struct jscan s;
	int64_t v;

	if (jscan_find(json, VIEW("error"), &error) != 1 ||
	    error.kind != JSCAN_OBJECT)
		return 502;
	object = view_sub(json, error.start, error.end - error.start);
	if (jscan_find(object, VIEW("code"), &code) != 1 ||
	    code.kind != JSCAN_NUMBER)
		return 502;
	jscan_init(&s, object, 0);
	if (jscan_i64(&s, &code, &v) != 0 || v < 400 || v > 599)
		return 502;
	return (unsigned)v;
}

/* Puts the edited text in place of the held one. */
static int
apply_edits(struct llm_call *c, const struct jsplice *edits)
{
	struct buf out;
	int rc;

	if (edits->n == 0)
		return 0;
	buf_init(&out, buf_len(&c->held) + 1);
	rc = jsplice_apply(edits, buf_view(&c->held), &out);
	if (rc == 0) {
		buf_clear(&c->held);
		buf_take(&c->held, &out);
	} else {
		buf_clear(&out);
	}
	return rc;
}

static void
not_usable(struct llm_call *c, const char *text)
{
	llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502, "upstream_malformed",
	    text);
}

/* What was collected, without the upstream's key; 0 or SP_E_NOMEM. */
static int
redact(struct llm_call *c)
{
	struct view text = buf_view(&c->held);
	struct view clean = llm_call_mask(c, text, 1);

	if (clean.p == text.p)
		return 0;
	buf_reset(&c->held, SIZE_MAX);
	return buf_add_view(&c->held, clean);
}

void
llm_unary_record(struct llm_call *c)
{
	if (c->turn != NULL && redact(c) == 0)
		llm_call_record(c, MESSAGE_DATA_BODY, buf_view(&c->held));
}

void
llm_unary_end(struct llm_call *c, bool delimited)
{
	struct jsplice *edits = &c->shared->edits;
	struct llm_reply_facts facts;
	int rc;

	(void)delimited; /* JSON shows whether it is whole */
	llm_unary_record(c);
	jsplice_reset(edits);
	rc = redact(c);
	if (rc == 0)
		rc = llm_reply_edit(&c->wants, buf_view(&c->held), false, edits,
		    &facts);
	if (rc == SP_E_NOMEM) {
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503,
		    "out_of_memory", "out of memory for the reply");
		return;
	}
	if (rc == SP_E_LIMIT) {
		not_usable(c,
		    "the upstream's reply is nested too deep, or has "
		    "too many parts that were not asked for");
	} else if (rc != 0) {
		not_usable(c, "the upstream's reply is not a JSON object");
	} else if (facts.error) {
		c->upstream_status = error_status(buf_view(&c->held));
		llm_call_recording(c, MESSAGE_OUTCOME_STATUS, VIEW_NONE);
	} else if (!facts.useful) {
		not_usable(c, "the upstream's reply has no choices");
	} else if (c->wants.stream) {
		not_usable(c,
		    "the upstream answered a stream request with "
		    "plain JSON");
	} else if (c->capture != NULL && c->capture->require_logprobs &&
	    !facts.logprobs) {
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 502,
		    "logprobs_missing",
		    "the upstream returned no log-probabilities and "
		    "`require_logprobs` is on");
	} else if (apply_edits(c, edits) != 0) {
		llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503,
		    "out_of_memory", "out of memory for the reply");
	} else {
		llm_call_recording(c, MESSAGE_OUTCOME_END, VIEW_NONE);
	}
}

static struct view
refused_what(unsigned ask, unsigned next)
{
	if ((next & ~ask) & LLM_ASK_NO_TOKEN_IDS)
		return VIEW("token_ids");
	return VIEW("logprobs");
}

/* The error for the record: the body if it is a small object, else quoted. */
static int
error_of_body(struct view body, struct buf *out)
{
	struct jwrite w;

	if (body.n <= ERROR_RECORD_MAX && view_starts(body, VIEW("{")) &&
	    jscan_valid(body, 0) == 0)
		return buf_add_view(out, body);
	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "message");
	jwrite_string(&w, view_sub(body, 0, ERROR_RECORD_MAX / 8));
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

void
llm_unary_refused(struct llm_call *c)
{
	const struct conf_capture *capture = c->capture;
	unsigned next = llm_refusal_next(c->upstream_status, buf_view(&c->held),
	    &c->wants, c->ask);
	struct view labels[2] = { c->upstream->name, VIEW_NONE };
	struct buf error;
	bool retry = next != c->ask && capture != NULL && c->attempts < 4;

	if (retry && !(next & LLM_ASK_NO_TOKEN_IDS & ~c->ask))
		retry = capture->logprobs_refused == CONF_REFUSED_RETRY;
	if (next != c->ask) {
		labels[1] = refused_what(c->ask, next);
		metrics_inc(metrics_cell(c->shared->refused, labels));
	}
	if (retry) {
		c->ask = next;
		buf_clear(&c->held);
		if (llm_call_start(c) != 0)
			llm_call_break(c, MESSAGE_OUTCOME_UPSTREAM, 503,
			    "out_of_memory",
			    "out of memory for the second attempt");
		return;
	}
	llm_call_accepted(c);
	if (redact(c) != 0)
		buf_reset(&c->held, SIZE_MAX);
	buf_init(&error, 2 * ERROR_RECORD_MAX);
	if (error_of_body(buf_view(&c->held), &error) != 0)
		buf_reset(&error, SIZE_MAX);
	llm_call_recording(c, MESSAGE_OUTCOME_STATUS, buf_view(&error));
	buf_clear(&error);
}

void
llm_unary_release(struct llm_call *c)
{
	struct view body = buf_view(&c->held);
	unsigned status = c->spent ? 200 : c->upstream_status;
	int rc = 0;

	c->state = LLM_OVER;
	if (c->gone)
		return;
	if (!c->head_sent) /* a relayed reply has its head */
		rc = llm_call_reply_head(c, status,
		    c->spent && c->wants.stream ? -1 : (int64_t)body.n);
	if (rc == 0 && body.n > 0)
		rc = exchange_data(c->r->x, body);
	if (rc == 0)
		rc = exchange_end(c->r->x);
	if (rc == 0)
		c->r->outcome = c->spent ? "budget_stop"
		    : status < 400       ? "ok"
					 : "upstream_status";
	if (rc != SP_E_GONE)
		gate_finish(c->r);
}
