#include "sm_emit.h"

#include <stdio.h>

#include "base/mem.h"

enum {
	PART_MAX = 256 * 1024 * 1024,
	CREATED = 1764422400 /* fixed, so that replies repeat */
};

void
sm_emit_init(struct sm_emit *e, const struct sm_ask *ask, enum sm_shape shape,
    struct sm_payload *p)
{
	memset(e, 0, sizeof(*e));
	e->ask = ask;
	e->p = p;
	e->style = (struct sm_token_style){ shape, ask->top_n,
		ask->id_strings && shape == SM_SHAPE_VLLM };
	e->stream = ask->stream;
	e->logprobs = ask->logprobs;
	e->ids = ask->ids &&
	    (shape == SM_SHAPE_VLLM ||
		(shape == SM_SHAPE_SGLANG && !ask->stream));
	e->eol = "\n";
	sm_out_init(&e->content, PART_MAX);
	sm_out_init(&e->reasoning, PART_MAX);
	sm_out_init(&e->calls, PART_MAX);
	sm_token_prompt(&e->prompt, ask->a, ask->body);
}

void
sm_emit_clear(struct sm_emit *e)
{
	sm_token_clear(&e->prompt);
	sm_token_clear(&e->out);
	sm_out_clear(&e->content);
	sm_out_clear(&e->reasoning);
	sm_out_clear(&e->calls);
}

static void
put_top(struct sm_emit *e, const char *object)
{
	struct sm_out *o = &e->p->body;

	sm_out_fmt(o, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%d,", e->id,
	    object, CREATED);
	sm_out_str(o, "\"model\":");
	sm_out_quoted(o, e->model);
}

/* Token data of a choice, each member with a comma before it. */
static void
put_tokens(struct sm_emit *e, size_t from, size_t to)
{
	struct sm_out *o = &e->p->body;
	bool openai = e->style.shape == SM_SHAPE_OPENAI;

	if (e->logprobs && to > from) {
		sm_out_str(o, ",\"logprobs\":{\"content\":[");
		sm_token_entries(o, &e->out, from, to, &e->style);
		sm_out_str(o, openai ? "],\"refusal\":null}" : "]}");
	} else if (e->style.shape != SM_SHAPE_LLAMACPP) {
		sm_out_str(o, ",\"logprobs\":null");
	}
	if (!e->ids)
		return;
	if (to > from) {
		sm_out_str(o, ",\"token_ids\":[");
		sm_token_ids(o, &e->out, from, to);
		sm_out_str(o, "]");
	} else {
		sm_out_str(o, ",\"token_ids\":null");
	}
}

static void
put_finish(struct sm_emit *e, struct view fin)
{
	struct sm_out *o = &e->p->body;

	sm_out_str(o, ",\"finish_reason\":");
	if (fin.p != NULL)
		sm_out_quoted(o, fin);
	else
		sm_out_str(o, "null");
}

static void
put_prompt_ids(struct sm_emit *e)
{
	struct sm_out *o = &e->p->body;

	sm_out_str(o, ",\"prompt_token_ids\":[");
	sm_token_ids(o, &e->prompt, 0, e->prompt.n);
	sm_out_str(o, "]");
}

static void
end_event(struct sm_emit *e)
{
	sm_out_str(&e->p->body, e->eol);
	sm_out_str(&e->p->body, e->eol);
	sm_reply_mark(e->p, SM_MARK_EVENT, 0);
}

static void
put_event(struct sm_emit *e, struct view delta, size_t to, struct view fin)
{
	struct sm_out *o = &e->p->body;
	size_t from = e->mute ? to : e->shown;
	int c;

	for (c = 0; c < e->ask->n; c++) {
		sm_out_str(o, "data: ");
		put_top(e, "chat.completion.chunk");
		sm_out_fmt(o, ",\"choices\":[{\"index\":%d,\"delta\":", c);
		sm_out_add(o, delta);
		put_tokens(e, from, to);
		put_finish(e, fin);
		sm_out_str(o, "}]");
		if (e->ids && !e->prompt_shown && c == 0)
			put_prompt_ids(e);
		sm_out_str(o, "}");
		e->prompt_shown = true;
		end_event(e);
	}
	if (to > e->shown)
		sm_reply_mark(e->p, SM_MARK_PACE, (uint32_t)(to - e->shown));
	e->shown = to;
}

void
sm_emit_delta(struct sm_emit *e, struct view delta, size_t to)
{
	if (e->stream)
		put_event(e, delta, to, VIEW_NONE);
}

void
sm_emit_finish(struct sm_emit *e, struct view fin)
{
	bool ends = e->style.shape == SM_SHAPE_VLLM ||
	    e->style.shape == SM_SHAPE_SGLANG;

	e->finish = fin;
	if (ends && !view_eq(fin, VIEW("length")))
		sm_token_special(&e->out, "<|im_end|>");
	if (e->stream)
		put_event(e, VIEW("{}"), e->out.n, fin);
}

static void
put_usage(struct sm_emit *e)
{
	struct sm_out *o = &e->p->body;
	size_t said = e->out.n * (size_t)e->ask->n;

	sm_out_str(o, ",\"usage\":");
	if (sm_json_is(e->usage, SM_JSON_OBJECT)) {
		sm_json_write(o, e->usage);
		return;
	}
	sm_out_fmt(o,
	    "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,"
	    "\"total_tokens\":%zu}",
	    e->prompt.n, said, e->prompt.n + said);
}

void
sm_emit_usage(struct sm_emit *e)
{
	struct sm_out *o = &e->p->body;

	if (!e->stream)
		return;
	sm_out_str(o, "data: ");
	put_top(e, "chat.completion.chunk");
	sm_out_str(o, ",\"choices\":[]");
	put_usage(e);
	sm_out_str(o, "}");
	end_event(e);
}

void
sm_emit_data(struct sm_emit *e, struct view text)
{
	sm_out_str(&e->p->body, "data: ");
	sm_out_add(&e->p->body, text);
	end_event(e);
}

static void
put_message(struct sm_emit *e)
{
	struct sm_out *o = &e->p->body;

	sm_out_str(o, "\"message\":{\"role\":\"assistant\",\"content\":");
	if (e->has_content || buf_len(&e->calls.b) == 0)
		sm_out_quoted(o, buf_view(&e->content.b));
	else
		sm_out_str(o, "null");
	if (buf_len(&e->reasoning.b) > 0) {
		sm_out_str(o, ",");
		sm_out_quoted(o, e->reason_field);
		sm_out_str(o, ":");
		sm_out_quoted(o, buf_view(&e->reasoning.b));
	}
	if (buf_len(&e->calls.b) > 0) {
		sm_out_str(o, ",\"tool_calls\":[");
		sm_out_add(o, buf_view(&e->calls.b));
		sm_out_str(o, "]");
	}
	sm_out_str(o, "}");
}

void
sm_emit_unary(struct sm_emit *e)
{
	struct sm_out *o = &e->p->body;
	bool sglang = e->style.shape == SM_SHAPE_SGLANG;
	int c;

	put_top(e, "chat.completion");
	sm_out_str(o, ",\"choices\":[");
	for (c = 0; c < e->ask->n; c++) {
		sm_out_fmt(o, "%s{\"index\":%d,", c ? "," : "", c);
		put_message(e);
		put_tokens(e, 0, e->out.n);
		put_finish(e, e->finish);
		if (e->ids && sglang)
			put_prompt_ids(e);
		sm_out_str(o, "}");
	}
	sm_out_str(o, "]");
	if (e->usage == NULL || e->usage->type == SM_JSON_OBJECT)
		put_usage(e);
	if (e->ids && !sglang)
		put_prompt_ids(e);
	sm_out_str(o, "}");
	sm_reply_mark(e->p, SM_MARK_EVENT, 0);
	if (e->content.err != 0 || e->reasoning.err != 0 || e->calls.err != 0)
		o->err = SP_E_NOMEM;
}
