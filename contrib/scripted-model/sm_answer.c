#include "sm_answer.h"

#include <stdio.h>

#include "sm_brain.h"
#include "sm_bulk.h"
#include "sm_render.h"
#include "sm_wire.h"

enum { HEADERS_MAX = 256 * 1024 };

static struct sm_frame
plain_frame(int status)
{
	return (struct sm_frame){ .status = status,
		.framing = SM_FRAMING_LENGTH,
		.type = VIEW("application/json"),
		.cut_body = -1,
		.cut_wire = -1 };
}

unsigned
sm_answer_refuse_bit(struct view name)
{
	if (view_eq(name, VIEW("logprobs")))
		return SM_REFUSE_LOGPROBS;
	if (view_eq(name, VIEW("return_token_ids")))
		return SM_REFUSE_IDS;
	if (view_eq(name, VIEW("max_tokens")))
		return SM_REFUSE_MAX_TOKENS;
	if (view_eq(name, VIEW("tool_logprobs")))
		return SM_REFUSE_TOOL_LOGPROBS;
	return 0;
}

bool
sm_answer_shape(struct view name, enum sm_shape *out)
{
	static const char *const names[] = { "vllm", "llamacpp", "openai",
		"sglang" };
	unsigned i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (view_eq(name, view_str(names[i]))) {
			*out = (enum sm_shape)i;
			return true;
		}
	return false;
}

void
sm_answer_clear(struct sm_answer *s)
{
	size_t i;

	for (i = 0; i < SM_ANSWER_CACHED; i++)
		sm_reply_unref(s->cache[i]);
	sm_script_free(s->script);
	memset(s, 0, sizeof(*s));
}

static int
finish_json(const struct sm_http *h, struct sm_payload *p, int status,
    struct sm_reply **out)
{
	struct sm_frame f = plain_frame(status);
	int rc;

	sm_reply_mark(p, SM_MARK_EVENT, 0);
	f.close = h == NULL || h->close;
	f.head_only = h != NULL && view_eq(h->method, VIEW("HEAD"));
	rc = sm_reply_make(p, &f, out);
	sm_reply_payload_clear(p);
	return rc;
}

struct fault {
	int status;
	const char *message;
	const char *type;
	const char *param; /* NULL: null */
	const char *code; /* NULL: null */
};

static int
answer_fault(const struct sm_http *h, const struct fault *e,
    struct sm_reply **out)
{
	struct sm_payload p;

	sm_reply_payload_init(&p);
	sm_out_str(&p.body, "{\"error\":{\"message\":");
	sm_out_quoted(&p.body, view_str(e->message));
	sm_out_fmt(&p.body, ",\"type\":\"%s\",\"param\":", e->type);
	if (e->param != NULL)
		sm_out_quoted(&p.body, view_str(e->param));
	else
		sm_out_str(&p.body, "null");
	sm_out_str(&p.body, ",\"code\":");
	if (e->code != NULL)
		sm_out_quoted(&p.body, view_str(e->code));
	else
		sm_out_str(&p.body, "null");
	sm_out_str(&p.body, "}}");
	return finish_json(h, &p, e->status, out);
}

int
sm_answer_error(int status, const char *message, struct sm_reply **out)
{
	struct fault e = { status, message, "invalid_request_error", NULL,
		NULL };

	return answer_fault(NULL, &e, out);
}

static int
answer_models(struct sm_answer *s, const struct sm_http *h,
    struct sm_reply **out)
{
	struct sm_payload p;

	sm_reply_payload_init(&p);
	sm_out_str(&p.body, "{\"object\":\"list\",\"data\":[{\"id\":");
	sm_out_quoted(&p.body, s->model);
	sm_out_fmt(&p.body,
	    ",\"object\":\"model\",\"created\":1764422400,"
	    "\"owned_by\":\"scripted-model\",\"max_model_len\":%lld}]}",
	    (long long)s->max_model_len);
	return finish_json(h, &p, 200, out);
}

/* The refusal that this server is told to make of the call, or NULL. */
static const struct fault *
refusal(const struct sm_answer *s, const struct sm_ask *ask)
{
	static const struct fault logprobs = { 400,
		"Unsupported parameter: 'logprobs' is not supported with this "
		"model.",
		"invalid_request_error", "logprobs", "unsupported_parameter" };
	static const struct fault ids = { 400,
		"[{'type': 'extra_forbidden', 'loc': ('body', "
		"'return_token_ids'), 'msg': 'Extra inputs are not "
		"permitted'}]",
		"BadRequestError", "return_token_ids", NULL };
	static const struct fault stream_ids = { 400,
		"return_token_ids is not supported with stream=true",
		"BadRequestError", "return_token_ids", NULL };
	static const struct fault max_tokens = { 400,
		"Unsupported parameter: 'max_tokens' is not supported with "
		"this model. Use 'max_completion_tokens' instead.",
		"invalid_request_error", "max_tokens",
		"unsupported_parameter" };
	static const struct fault tool_logprobs = { 400,
		"logprobs is not supported with tools + stream",
		"invalid_request_error", NULL, NULL };
	bool has_logprobs =
	    sm_ask_has(ask, "logprobs") || sm_ask_has(ask, "top_logprobs");

	if ((s->refuse & SM_REFUSE_LOGPROBS) && has_logprobs)
		return &logprobs;
	if ((s->refuse & SM_REFUSE_IDS) && sm_ask_has(ask, "return_token_ids"))
		return &ids;
	if (s->shape == SM_SHAPE_SGLANG && ask->ids && ask->stream)
		return &stream_ids;
	if ((s->refuse & SM_REFUSE_MAX_TOKENS) && sm_ask_has(ask, "max_tokens"))
		return &max_tokens;
	if ((s->refuse & SM_REFUSE_TOOL_LOGPROBS) && has_logprobs &&
	    ask->tools && ask->stream)
		return &tool_logprobs;
	return NULL;
}

/* "event", "whole" (or "all"), or a number of bytes. */
static long
grain(const struct sm_json *turn, const char *key, long otherwise)
{
	struct view v = sm_json_string(turn, key);
	int64_t n = sm_json_int(turn, key, 0);

	if (view_eq(v, VIEW("event")))
		return SM_PER_EVENT;
	if (view_eq(v, VIEW("whole")) || view_eq(v, VIEW("all")))
		return SM_WHOLE;
	return n > 0 && n < (1 << 30) ? (long)n : otherwise;
}

static enum sm_framing
framing_of(const struct sm_json *turn, enum sm_framing otherwise)
{
	static const char *const names[] = { "chunked", "length", "close",
		"http1.0", "none" };
	struct view v = sm_json_string(turn, "framing");
	unsigned i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (view_eq(v, view_str(names[i])))
			return (enum sm_framing)i;
	return otherwise;
}

/* The turn's header lines into lines; those of framing replace ours. */
static void
turn_headers(const struct sm_json *turn, struct sm_frame *f,
    struct sm_out *lines)
{
	const struct sm_json *j = sm_json_get(turn, "headers");

	if (!sm_json_is(j, SM_JSON_OBJECT))
		return;
	for (j = j->child; j != NULL; j = j->next) {
		if (view_eq_nocase(j->key, VIEW("content-type")))
			f->type = VIEW_NONE;
		if (view_eq_nocase(j->key, VIEW("content-length")) ||
		    view_eq_nocase(j->key, VIEW("transfer-encoding")))
			f->own_framing = true;
		if (j->type == SM_JSON_NULL)
			continue;
		sm_wire_raw(lines, j->key);
		sm_out_str(lines, ": ");
		sm_wire_raw(lines, j->text);
		sm_out_str(lines, "\r\n");
	}
	f->headers = buf_view(&lines->b);
}

static void
turn_frame(const struct sm_answer *s, const struct sm_ask *ask,
    const struct sm_json *turn, struct sm_frame *f)
{
	bool stream =
	    sm_render_streams(ask, turn) && sm_json_get(turn, "body") == NULL;
	int64_t delay = sm_json_int(turn, "delay_ms", s->delay_ms);
	int64_t gap = sm_json_int(turn, "write_gap_ms", 0);
	int64_t status = sm_json_int(turn, "status", 200);

	*f = plain_frame(status >= 100 && status <= 999 ? (int)status : 200);
	if (stream)
		f->type = VIEW("text/event-stream; charset=utf-8");
	f->framing =
	    framing_of(turn, stream ? SM_FRAMING_CHUNKED : SM_FRAMING_LENGTH);
	if (ask->http->http10 && f->framing == SM_FRAMING_CHUNKED)
		f->framing = SM_FRAMING_CLOSE;
	f->chunk_n = grain(turn, "chunks", SM_PER_EVENT);
	f->write_n = grain(turn, "write", s->write_n);
	f->write_gap_ms = gap > 0 && gap < 60000 ? (unsigned)gap : 0;
	f->delay_ms = delay > 0 && delay < 3600000 ? (unsigned)delay : 0;
	f->pace = sm_json_double(turn, "pace", s->pace);
	f->cut_body = sm_json_int(turn, "cut_at", -1);
	f->cut_wire = sm_json_int(turn, "cut_at_wire", -1);
	f->cut_reset = view_eq(sm_json_string(turn, "cut"), VIEW("rst"));
	f->gzip = view_eq(sm_json_string(turn, "encoding"), VIEW("gzip"));
	f->close = sm_json_true(turn, "close", ask->http->close) ||
	    f->framing == SM_FRAMING_CLOSE;
}

static int
turn_body(const struct sm_render *r, struct sm_payload *p)
{
	const struct sm_json *body = sm_json_get(r->turn, "body");

	if (body == NULL)
		return sm_render_turn(r, p);
	if (body->type == SM_JSON_STRING)
		sm_wire_raw(&p->body, body->text);
	else
		sm_json_write(&p->body, body);
	sm_reply_mark(p, SM_MARK_EVENT, 0);
	return p->body.err;
}

static int
answer_turn(struct sm_answer *s, const struct sm_ask *ask,
    const struct sm_json *turn, struct sm_reply **out)
{
	struct sm_render r = { .ask = ask,
		.turn = turn,
		.shape = s->shape,
		.model = ask->model.n > 0 ? ask->model : s->model,
		.serial = ++s->serial };
	struct sm_payload p;
	struct sm_frame f;
	struct sm_out lines;
	int rc;

	r.honour_max =
	    sm_json_true(turn, "honour_max_tokens", s->script == NULL);
	(void)sm_answer_shape(sm_json_string(turn, "shape"), &r.shape);
	turn_frame(s, ask, turn, &f);
	sm_out_init(&lines, HEADERS_MAX);
	turn_headers(turn, &f, &lines);
	sm_reply_payload_init(&p);
	rc = lines.err != 0 ? lines.err : turn_body(&r, &p);
	if (rc == 0)
		rc = sm_reply_make(&p, &f, out);
	sm_reply_payload_clear(&p);
	sm_out_clear(&lines);
	return rc;
}

static int
answer_ask(struct sm_answer *s, const struct sm_ask *ask, struct sm_reply **out)
{
	static const struct fault over = { 500, "the script has no more turns",
		"server_error", NULL, "script_exhausted" };
	const struct fault *e = refusal(s, ask);
	const struct sm_json *turn = NULL;
	bool exhausted = false;
	int rc = 0;

	if (e != NULL)
		return answer_fault(ask->http, e, out);
	if (s->script != NULL)
		turn = sm_script_pick(s->script, ask, &exhausted);
	if (exhausted)
		return answer_fault(ask->http, &over, out);
	if (turn == NULL)
		rc = sm_brain_turn(ask, &turn);
	return rc != 0 ? rc : answer_turn(s, ask, turn, out);
}

static int
answer_completion(struct sm_answer *s, const struct sm_http *h,
    struct sm_reply **out)
{
	struct fault bad = { 400, NULL, "invalid_request_error", NULL, NULL };
	struct sm_ask ask;
	char why[200] = "", text[240];
	int rc;

	if (s->bulk_events > 0 || s->unary_bytes > 0) {
		rc = sm_bulk_answer(s, h, out);
		if (rc != SP_E_NOTFOUND)
			return rc;
	}
	rc = sm_ask_parse(&ask, h, why, sizeof(why));
	if (rc == SP_E_SYNTAX) {
		snprintf(text, sizeof(text), "the request body: %s", why);
		bad.message = text;
		rc = answer_fault(h, &bad, out);
	} else if (rc == 0) {
		rc = answer_ask(s, &ask, out);
	}
	sm_ask_clear(&ask);
	return rc;
}

/* RFC 6750 s2.1 */
static bool
key_fits(const struct sm_answer *s, const struct sm_http *h)
{
	struct view v = sm_http_header(h, "authorization");
	struct view scheme = view_sub(v, 0, 7);

	return s->key.p == NULL ||
	    (view_eq_nocase(scheme, VIEW("Bearer ")) &&
		view_eq_secret(view_trim(view_from(v, 7)), s->key));
}

int
sm_answer_request(struct sm_answer *s, const struct sm_http *h,
    struct sm_reply **out)
{
	static const struct fault unknown = { 404, "no such path",
		"invalid_request_error", NULL, "not_found" };
	static const struct fault method = { 405, "method not allowed",
		"invalid_request_error", NULL, NULL };
	static const struct fault key = { 401, "Incorrect API key provided.",
		"invalid_request_error", NULL, "invalid_api_key" };
	bool get =
	    view_eq(h->method, VIEW("GET")) || view_eq(h->method, VIEW("HEAD"));

	if (view_ends(h->path, VIEW("/models"))) {
		if (!get)
			return answer_fault(h, &method, out);
		return key_fits(s, h) ? answer_models(s, h, out)
				      : answer_fault(h, &key, out);
	}
	if (!view_ends(h->path, VIEW("/chat/completions")))
		return answer_fault(h, &unknown, out);
	if (!view_eq(h->method, VIEW("POST")))
		return answer_fault(h, &method, out);
	if (!key_fits(s, h))
		return answer_fault(h, &key, out);
	return answer_completion(s, h, out);
}
