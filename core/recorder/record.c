#include "config.h"

#include <string.h>

#include "conf/conf.h"
#include "recorder/finding.h"
#include "recorder/record.h"
#include "recorder/record_meta.h"

enum { ERROR_TEXT_MAX = 64 * 1024 };

/* What the outcome says, apart from the content. */
static uint32_t
outcome_findings(const struct record *r)
{
	switch ((enum message_outcome)r->outcome) {
	case MESSAGE_OUTCOME_END:
		return 0;
	case MESSAGE_OUTCOME_STATUS:
		return FINDING_ERROR_STATUS;
	case MESSAGE_OUTCOME_UPSTREAM:
		return FINDING_UPSTREAM;
	case MESSAGE_OUTCOME_CLIENT_GONE:
		return FINDING_CLIENT_ABORT;
	case MESSAGE_OUTCOME_SHUTDOWN:
		return FINDING_SHUTDOWN;
	case MESSAGE_OUTCOME_LOST:
		return FINDING_LOST;
	case MESSAGE_OUTCOME_GATEWAY:
		return FINDING_GATEWAY;
	}
	return FINDING_LOST;
}

static bool
is_error(const struct record *r)
{
	return buf_len(&r->assemble->error) > 0 ||
	    (r->assemble->findings & FINDING_ERROR_IN_STREAM) != 0 ||
	    r->error.n > 0 || r->outcome == MESSAGE_OUTCOME_STATUS ||
	    r->outcome == MESSAGE_OUTCOME_UPSTREAM;
}

/* What was asked for at this level and did not come. */
static uint32_t
missing_findings(const struct record *r)
{
	const struct assemble *a = r->assemble;
	uint32_t f = 0;
	size_t i;

	if ((r->flags & MESSAGE_TURN_NO_LOGPROBS) != 0)
		f |= FINDING_LOGPROBS_REFUSED;
	if ((r->flags & MESSAGE_TURN_NO_TOKEN_IDS) != 0)
		f |= FINDING_TOKEN_IDS_REFUSED;
	if (r->outcome != MESSAGE_OUTCOME_END || is_error(r))
		return f;
	for (i = 0; i < a->choices_n; i++) {
		const struct assemble_choice *c = a->choices[i];

		if (r->level >= CONF_LEVEL_LOGPROBS && c->logps.entries.n == 0)
			f |= FINDING_NO_LOGPROBS;
		if (r->level >= CONF_LEVEL_TOKENS && c->chosen == NULL)
			f |= FINDING_NO_TOKEN_IDS;
	}
	if (r->level >= CONF_LEVEL_TOKENS && a->prompt_ids.n == 0)
		f |= FINDING_NO_PROMPT_IDS;
	if (a->choices_n == 0)
		f |= FINDING_EMPTY | FINDING_NO_FINISH;
	return f;
}

static bool
thinking_leaked(const struct record *r)
{
	const struct assemble_choice *c = assemble_first(r->assemble);

	return (r->flags & MESSAGE_TURN_THINKING_OFF) != 0 && c != NULL &&
	    accum_text_empty(&c->content) && c->parts.n == 0 &&
	    assemble_reasoning(c) != NULL;
}

/* The judgement, before anything is written. */
static void
judge(struct record *r)
{
	struct assemble *a = r->assemble;
	struct assemble_choice *c;

	assemble_finish(a);
	r->aborted = r->outcome == MESSAGE_OUTCOME_CLIENT_GONE ||
	    r->outcome == MESSAGE_OUTCOME_SHUTDOWN ||
	    r->outcome == MESSAGE_OUTCOME_LOST ||
	    r->outcome == MESSAGE_OUTCOME_GATEWAY;
	r->findings = a->findings | outcome_findings(r);
	if ((r->flags & MESSAGE_TURN_BUDGET) != 0) {
		/* answered, but by no model: not a turn of the agent's */
		r->findings |= FINDING_BUDGET;
		r->complete = false;
	} else if ((r->flags & MESSAGE_TURN_PASS) != 0) {
		r->findings |= FINDING_NOT_CAPTURED;
		r->complete = r->outcome == MESSAGE_OUTCOME_END && !is_error(r);
	} else {
		r->findings |= missing_findings(r);
		r->complete = r->outcome == MESSAGE_OUTCOME_END &&
		    !is_error(r) && a->completed &&
		    (a->findings & FINDING_BAD_JSON) == 0;
	}
	/* a reply that was cut off says nothing by having no end */
	if (r->outcome != MESSAGE_OUTCOME_END || is_error(r))
		r->findings &= ~(uint64_t)(FINDING_NO_FINISH | FINDING_EMPTY);
	if (thinking_leaked(r))
		r->findings |= FINDING_THINKING_LEAK;
	if ((r->flags & MESSAGE_TURN_TRUNCATED) != 0 || r->request_cut)
		r->findings |= FINDING_TRUNCATED;
	/* the client had it whole; what is on file is not */
	if ((r->findings & FINDING_TRUNCATED) != 0)
		r->complete = false;
	if ((r->flags & MESSAGE_TURN_MASKED) != 0)
		r->findings |= FINDING_MASKED;
	if ((r->flags & MESSAGE_TURN_SURROGATE) != 0)
		r->findings |= FINDING_SURROGATE;
	c = assemble_first(a);
	if (c != NULL && (r->findings & FINDING_TRUNCATED) != 0)
		c->aligned = false;
	r->completion_tokens = a->has_usage_tokens ? (uint64_t)a->usage_tokens
	    : c == NULL                            ? 0
	    : c->logps.entries.n > 0               ? c->logps.entries.n
	    : c->chosen != NULL                    ? c->chosen->n
						   : 0;
	r->trainable = r->complete && c != NULL && c->aligned &&
	    a->prompt_ids.n > 0 && finding_blocking(r->findings) == 0;
}

static void
write_request(struct record *r, const struct reqinfo *q, struct jwrite *w)
{
	jwrite_key(w, "request");
	/* all of it was read */
	if (q->json && q->strict)
		jwrite_raw(w, r->request);
	else if (q->json)
		jwrite_scanned(w, r->request);
	else
		jwrite_null(w);
}

/* The log-probability entries again: what the response has was made strict. */
static void
write_logprobs(const struct assemble_choice *c, bool in_response,
    struct jwrite *w)
{
	struct buf *out = w->out;
	const struct logps *l;

	jwrite_key(w, "logprobs");
	if (c == NULL || c->logps.entries.n == 0) {
		jwrite_raw(w, VIEW("[]"));
		return;
	}
	l = &c->logps;
	if (!in_response || w->err != 0 ||
	    buf_reserve(out, l->written_n) != 0) {
		accum_list_write(&l->entries, w);
		return;
	}
	jwrite_raw(w,
	    view_of(out->mem + out->off + l->written_at, l->written_n));
}

static void
write_tokens(struct record *r, const struct assemble_choice *c,
    struct jwrite *w)
{
	static const struct accum_ids none = { NULL, 0, 0, false };

	jwrite_key(w, "completion_tokens");
	if (c != NULL)
		accum_list_write(&c->logps.tokens, w);
	else
		jwrite_raw(w, VIEW("[]"));
	jwrite_key(w, "completion_token_ids");
	accum_ids_write(c != NULL && c->chosen != NULL ? c->chosen : &none, w);
	jwrite_key(w, "per_token_logps");
	if (c != NULL)
		accum_list_write(&c->logps.values, w);
	else
		jwrite_raw(w, VIEW("[]"));
	jwrite_key(w, "prompt_token_ids");
	accum_ids_write(&r->assemble->prompt_ids, w);
}

static void
write_finish(struct record *r, const struct assemble_choice *c,
    struct jwrite *w)
{
	struct view usage =
	    accum_extras_get(&r->assemble->extra, VIEW("usage"));
	const struct accum_text *reasoning =
	    c != NULL ? assemble_reasoning(c) : NULL;
	struct buf text = BUF_INIT(sizeof(r->finish_reason) - 1);

	jwrite_key(w, "finish_reason");
	if (c != NULL && c->finish_reason.seen) {
		accum_text_write(&c->finish_reason, w);
		if (accum_text_decode(&c->finish_reason, &text, NULL) == 0 &&
		    text.mem != NULL)
			memcpy(r->finish_reason, text.mem + text.off,
			    buf_len(&text));
		buf_clear(&text);
	} else {
		jwrite_null(w);
	}
	jwrite_key(w, "reasoning");
	if (reasoning != NULL)
		accum_text_write(reasoning, w);
	else
		jwrite_null(w);
	jwrite_key(w, "usage");
	if (usage.n > 0)
		jwrite_span(w, usage);
	else
		jwrite_null(w);
	jwrite_key(w, "aligned");
	jwrite_bool(w, c != NULL && c->aligned);
}

static void
write_times(struct record *r, struct jwrite *w)
{
	jwrite_key(w, "latency_s");
	jwrite_double(w, (double)r->latency_us / 1e6);
	jwrite_key(w, "ttft_s");
	if (r->ttft_us > 0)
		jwrite_double(w, (double)r->ttft_us / 1e6);
	else
		jwrite_null(w);
	jwrite_key(w, "timestamp");
	jwrite_double(w, (double)r->wall_us / 1e6);
	jwrite_key(w, "upstream_status");
	if (r->status != 0)
		jwrite_u64(w, r->status);
	else
		jwrite_null(w);
}

/* {"error": X} is told as X, whoever wrapped it. */
static void
write_unwrapped(struct jwrite *w, struct view text)
{
	struct jscan_span v;
	struct jscan s;

	if (jscan_find(text, VIEW("error"), &v) == 1 && v.kind != JSCAN_NULL) {
		jscan_init(&s, text, 0);
		text = jscan_raw(&s, &v);
	}
	jwrite_span(w, text);
}

static void
write_error(struct record *r, struct jwrite *w)
{
	struct view own = buf_view(&r->assemble->error);
	struct view body = r->body;

	jwrite_key(w, "upstream_error");
	if (own.n > 0)
		jwrite_span(w, own);
	else if (r->error.n > 0 && jscan_valid(r->error, 0) == 0)
		write_unwrapped(w, r->error);
	else if (r->error.n > 0)
		jwrite_string(w, view_sub(r->error, 0, ERROR_TEXT_MAX));
	else if (r->outcome == MESSAGE_OUTCOME_STATUS && body.n > 0 &&
	    jscan_valid(body, JSCAN_ALLOW_NONFINITE) == 0)
		write_unwrapped(w, body);
	else if (r->outcome == MESSAGE_OUTCOME_STATUS)
		jwrite_string(w, view_sub(body, 0, ERROR_TEXT_MAX));
	else if (r->outcome == MESSAGE_OUTCOME_UPSTREAM)
		jwrite_raw(w,
		    VIEW("{\"type\":\"upstream_disconnect\",\"message\":"
			 "\"the upstream broke off\"}"));
	else if (is_error(r))
		jwrite_raw(w, VIEW("{\"type\":\"error\",\"message\":null}"));
	else
		jwrite_null(w);
}

static void
write_findings(struct record *r, struct jwrite *w)
{
	const struct finding_row *rows;
	size_t i, n;

	rows = finding_rows(&n);
	jwrite_key(w, "findings");
	jwrite_array(w);
	for (i = 0; i < n; i++)
		if ((r->findings & rows[i].bit) != 0)
			jwrite_cstr(w, rows[i].code);
	jwrite_end_array(w);
}

static void
write_head(struct record *r, const struct reqinfo *q, struct jwrite *w)
{
	jwrite_key(w, "turn");
	jwrite_u64(w, r->turn);
	jwrite_key(w, "session");
	jwrite_string(w, r->session);
	jwrite_key(w, "episode");
	if (r->episode.n > 0)
		jwrite_string(w, r->episode);
	else
		jwrite_null(w);
	write_request(r, q, w);
}

/* The body once, with a look at the digest where its last message begins. */
static int
hash_request(struct record *r)
{
	struct view body = r->request, prefix = r->asked.prefix;
	size_t n = 0;
	int rc;

	if (prefix.n > 0)
		n = (size_t)(prefix.p + prefix.n - body.p);
	rc = digest_update(r->digest, body.p, n);
	if (rc == 0 && n > 0)
		rc = digest_peek(r->digest, r->prefix_sha256);
	body = view_from(body, n);
	if (rc == 0)
		rc = digest_update(r->digest, body.p, body.n);
	/* also after an error: the next one begins anew */
	if (digest_final(r->digest, r->body_sha256) != 0)
		rc = SP_E_NOMEM;
	return rc;
}

void
record_ask(struct record *r)
{
	if (r->read)
		return;
	r->read = true;
	reqinfo_read(&r->asked, r->request);
	r->has_tools = r->asked.has_tools;
	r->hashed =
	    r->digest != NULL && r->request.n > 0 && hash_request(r) == 0;
}

int
record_write(struct record *r, struct buf *out)
{
	struct assemble_choice *c;
	struct jwrite w;
	bool in_response;

	judge(r);
	record_ask(r);
	c = assemble_first(r->assemble);
	/* readers skip a turn without a response: an error is not one */
	in_response = c != NULL && !is_error(r);
	jwrite_init(&w, out);
	jwrite_object(&w);
	write_head(r, &r->asked, &w);
	jwrite_key(&w, "response");
	if (in_response)
		assemble_write(r->assemble, &w);
	else
		jwrite_null(&w);
	write_logprobs(c, in_response, &w);
	write_tokens(r, c, &w);
	write_finish(r, c, &w);
	write_times(r, &w);
	write_error(r, &w);
	if (w.replaced > 0)
		r->findings |= FINDING_SURROGATE;
	if (w.nonfinite > 0)
		r->findings |= FINDING_NONFINITE;
	jwrite_key(&w, "complete");
	jwrite_bool(&w, r->complete);
	jwrite_key(&w, "aborted");
	jwrite_bool(&w, r->aborted);
	write_findings(r, &w);
	record_meta_write(r, &r->asked, c != NULL && !in_response, &w);
	/* the brace is closed behind the chain's members */
	return w.err;
}
