#include "sm_bulk.h"

#include "sm_render.h"

enum { F_STREAM = 1, F_LOGPROBS = 2, F_IDS = 4, F_USAGE = 8, F_CLOSE = 16 };

/* The body has "name" : true somewhere. */
static bool
has_true(struct view body, struct view name)
{
	size_t at;

	while ((at = view_search(body, name)) < body.n) {
		body = view_trim(view_from(body, at + name.n));
		if (body.n == 0 || body.p[0] != ':')
			continue;
		body = view_trim(view_from(body, 1));
		if (view_starts(body, VIEW("true")))
			return true;
	}
	return false;
}

static unsigned
flags_of(const struct sm_http *h)
{
	struct view body = buf_view(&h->body);
	unsigned f = h->close ? F_CLOSE : 0;

	if (has_true(body, VIEW("\"stream\"")))
		f |= F_STREAM;
	if (has_true(body, VIEW("\"logprobs\"")))
		f |= F_LOGPROBS;
	if (has_true(body, VIEW("\"return_token_ids\"")))
		f |= F_IDS;
	if (has_true(body, VIEW("\"include_usage\"")))
		f |= F_USAGE;
	return f;
}

static int
render(struct sm_answer *s, const struct sm_http *h, unsigned flags,
    uint64_t tokens, struct sm_payload *p)
{
	struct sm_ask ask = { .http = h, .n = 1, .max_tokens = -1 };
	struct sm_render r = { .ask = &ask, .shape = s->shape };
	struct sm_json *body = NULL, *turn = NULL;
	struct sm_out text;
	uint64_t i;
	int rc;

	sm_out_init(&text, SIZE_MAX / 2);
	sm_out_str(&text, "{\"steps\":[{\"text\":\"");
	/* the last token is the end mark where the shape has one */
	for (i = 0; i + 1 < tokens; i++)
		sm_out_fmt(&text, " %03llu", (unsigned long long)(i % 1000));
	sm_out_str(&text, "\"}]}");
	ask.a = arena_new(buf_len(&text.b) * 2 + (1 << 20));
	rc = ask.a == NULL ? SP_E_NOMEM : text.err;
	if (rc == 0)
		rc = sm_json_parse(ask.a, buf_view(&text.b), &turn, NULL, 0);
	if (rc == 0)
		rc = sm_json_parse(ask.a,
		    VIEW("{\"messages\":[{\"role\":\"user\","
			 "\"content\":\"bulk\"}]}"),
		    &body, NULL, 0);
	ask.body = body;
	ask.stream = flags & F_STREAM;
	ask.logprobs = flags & F_LOGPROBS;
	ask.ids = flags & F_IDS;
	ask.usage = flags & F_USAGE;
	ask.top_n = s->bulk_top;
	r.turn = turn;
	r.model = s->model;
	if (rc == 0)
		rc = sm_render_turn(&r, p);
	arena_free(ask.a);
	sm_out_clear(&text);
	return rc;
}

/* As many tokens as fit into unary_bytes, then spaces up to it. */
static int
render_unary(struct sm_answer *s, const struct sm_http *h, unsigned flags,
    struct sm_payload *p)
{
	uint64_t want = s->unary_bytes;
	size_t few = 0, many = 0;
	uint64_t tokens;
	int rc;

	rc = render(s, h, flags, 2, p);
	few = buf_len(&p->body.b);
	sm_reply_payload_clear(p);
	sm_reply_payload_init(p);
	if (rc == 0)
		rc = render(s, h, flags, 130, p);
	many = buf_len(&p->body.b);
	sm_reply_payload_clear(p);
	sm_reply_payload_init(p);
	if (rc != 0)
		return rc;
	tokens = many > few && want > few
	    ? (want - few) * 128 * 96 / 100 / (many - few)
	    : 0;
	rc = render(s, h, flags, tokens + 2, p);
	while (rc == 0 && buf_len(&p->body.b) < want) {
		sm_out_str(&p->body, " ");
		rc = p->body.err;
	}
	sm_reply_mark(p, SM_MARK_EVENT, 0);
	return rc;
}

static int
make(struct sm_answer *s, const struct sm_http *h, unsigned flags,
    struct sm_reply **out)
{
	struct sm_frame f = { .status = 200,
		.framing = SM_FRAMING_LENGTH,
		.type = VIEW("application/json"),
		.chunk_n = SM_PER_EVENT,
		.write_n = s->write_n,
		.delay_ms = s->delay_ms,
		.pace = s->pace,
		.cut_body = -1,
		.cut_wire = -1,
		.close = flags & F_CLOSE };
	struct sm_payload p;
	int rc;

	sm_reply_payload_init(&p);
	if (flags & F_STREAM) {
		f.type = VIEW("text/event-stream; charset=utf-8");
		f.framing = h->http10 ? SM_FRAMING_CLOSE : SM_FRAMING_CHUNKED;
		rc = render(s, h, flags, s->bulk_events, &p);
	} else {
		rc = render_unary(s, h, flags, &p);
	}
	if (rc == 0)
		rc = sm_reply_make(&p, &f, out);
	if (rc == 0)
		(*out)->stamp = s->bulk_stamp && (flags & F_STREAM);
	sm_reply_payload_clear(&p);
	return rc;
}

int
sm_bulk_answer(struct sm_answer *s, const struct sm_http *h,
    struct sm_reply **out)
{
	unsigned flags = flags_of(h);
	struct sm_reply *made;
	int rc;

	if ((flags & F_STREAM ? s->bulk_events : s->unary_bytes) == 0)
		return SP_E_NOTFOUND;
	if (h->http10)
		return make(s, h, flags, out);
	if (s->cache[flags] == NULL) {
		rc = make(s, h, flags, &made);
		if (rc != 0)
			return rc;
		s->cache[flags] = made;
	}
	*out = sm_reply_ref(s->cache[flags]);
	return 0;
}
