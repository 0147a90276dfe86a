#include "sm_render.h"

#include <stdio.h>

#include "sm_emit.h"
#include "sm_wire.h"

enum { PAUSE_MAX_MS = 3600 * 1000 };

struct player {
	struct sm_emit e;
	const struct sm_json *turn;
	size_t per_event; /* tokens */
	size_t max; /* tokens in all */
	int calls_n;
	bool full; /* max was reached */
	bool verbatim; /* the turn has bytes of its own */
};

typedef void step_fn(struct player *pl, const struct sm_json *step,
    const struct sm_json *v);

/* After tokens were added: drops what max_tokens does not allow. */
static void
clip_tokens(struct player *pl)
{
	if (pl->e.out.n > pl->max) {
		pl->e.out.n = pl->max;
		pl->full = true;
	}
}

/* The text of out's tokens [from, to), which were split from one view. */
static struct view
span(const struct player *pl, size_t from, size_t to)
{
	const struct sm_token *v = pl->e.out.v;
	size_t i, n = 0;

	for (i = from; i < to; i++)
		n += v[i].text.n;
	return from < to ? view_of(v[from].text.p, n) : VIEW_NONE;
}

static void
emit_field(struct player *pl, struct view field, struct view text, size_t to)
{
	struct sm_out d;

	sm_out_init(&d, SIZE_MAX / 2);
	sm_out_str(&d, "{");
	sm_out_quoted(&d, field);
	sm_out_str(&d, ":");
	sm_out_quoted(&d, text);
	sm_out_str(&d, "}");
	sm_emit_delta(&pl->e, buf_view(&d.b), to);
	if (d.err != 0)
		pl->e.p->body.err = d.err;
	sm_out_clear(&d);
}

/* Text split into tokens, so many to an event; open and close may be NULL. */
static void
say(struct player *pl, struct view field, struct view text, const char *open,
    const char *close)
{
	struct sm_emit *e = &pl->e;
	size_t from, to;

	if (open != NULL)
		sm_token_special(&e->out, open);
	from = e->out.n;
	sm_token_split(&e->out, text);
	clip_tokens(pl);
	for (; from < e->out.n; from = to) {
		bool last;

		to = from + pl->per_event;
		last = to >= e->out.n;
		if (last)
			to = e->out.n;
		text = span(pl, from, to);
		sm_out_add(close != NULL ? &e->reasoning : &e->content, text);
		if (last && close != NULL && !pl->full) {
			sm_token_special(&e->out, close);
			clip_tokens(pl);
			to = e->out.n;
		}
		emit_field(pl, field, text, to);
	}
}

static void
step_text(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	(void)step;
	pl->e.has_content = true;
	say(pl, VIEW("content"), v->text, NULL, NULL);
}

static void
step_reasoning(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	struct view field = sm_json_string(step, "field");

	if (field.n == 0)
		field = pl->e.style.shape == SM_SHAPE_VLLM
		    ? VIEW("reasoning")
		    : VIEW("reasoning_content");
	pl->e.reason_field = field;
	say(pl, field, v->text, "<think>", "</think>");
}

struct call {
	const struct sm_json *json;
	struct view id;
	struct view name;
	struct view args;
	bool bare_object; /* arguments as an object, not as a string */
	int64_t index; /* -1: left out */
	int piece;
};

static void
put_args(struct sm_out *o, const struct call *c, struct view text)
{
	if (c->bare_object)
		sm_out_add(o, text);
	else
		sm_out_quoted(o, text);
}

/* One piece of a call; the first has id, type and name. */
static void
emit_call(struct player *pl, struct call *c, struct view args, size_t to)
{
	bool fresh = sm_json_true(c->json, "fresh_ids", false);
	struct sm_out d;

	sm_out_init(&d, SIZE_MAX / 2);
	sm_out_str(&d, "{\"tool_calls\":[{");
	if (c->index >= 0)
		sm_out_fmt(&d, "\"index\":%lld,", (long long)c->index);
	if (c->piece == 0) {
		sm_out_str(&d, "\"id\":");
		sm_out_quoted(&d, c->id);
		sm_out_str(&d, ",\"type\":\"function\",");
	} else if (fresh) {
		sm_out_fmt(&d, "\"id\":\"call_again_%d\",", c->piece);
	}
	sm_out_str(&d, "\"function\":{");
	if (c->piece == 0 || fresh) {
		sm_out_str(&d, "\"name\":");
		sm_out_quoted(&d, c->piece == 0 ? c->name : VIEW(""));
		sm_out_str(&d, ",");
	}
	sm_out_str(&d, "\"arguments\":");
	put_args(&d, c, args);
	sm_out_str(&d, "}}]}");
	sm_emit_delta(&pl->e, buf_view(&d.b), to);
	if (d.err != 0)
		pl->e.p->body.err = d.err;
	sm_out_clear(&d);
	c->piece++;
}

static void
gather_call(struct player *pl, const struct call *c, struct view args)
{
	struct sm_out *o = &pl->e.calls;

	sm_out_str(o, pl->calls_n > 0 ? ",{\"id\":" : "{\"id\":");
	sm_out_quoted(o, c->id);
	sm_out_str(o, ",\"type\":\"function\",\"function\":{\"name\":");
	sm_out_quoted(o, c->name);
	sm_out_str(o, ",\"arguments\":");
	put_args(o, c, args);
	sm_out_str(o, "}}");
}

/* Tokens of a call, as sm_token_prompt() reads it back from the history. */
static void
say_call(struct player *pl, struct call *c)
{
	struct sm_emit *e = &pl->e;
	char *head = arena_printf(e->ask->a,
	    "\n{\"name\": \"%.*s\", \"arguments\": ", VIEW_ARG(c->name));
	bool whole = c->index < 0 || c->bare_object ||
	    sm_json_true(c->json, "whole", false);
	size_t at, args_end;

	if (head == NULL) {
		e->p->body.err = SP_E_NOMEM;
		return;
	}
	sm_token_special(&e->out, "<tool_call>");
	sm_token_split(&e->out, view_str(head));
	at = e->out.n;
	sm_token_split(&e->out, c->args);
	args_end = e->out.n;
	sm_token_split(&e->out, VIEW("}\n"));
	sm_token_special(&e->out, "</tool_call>");
	clip_tokens(pl);
	if (e->out.err != 0)
		return;
	if (at > e->out.n) { /* cut within the marker: nothing to show */
		sm_emit_delta(e, VIEW("{}"), e->out.n);
		return;
	}
	if (args_end > e->out.n)
		args_end = e->out.n;
	gather_call(pl, c, span(pl, at, args_end));
	pl->calls_n++;
	if (whole) {
		emit_call(pl, c, span(pl, at, args_end), e->out.n);
		return;
	}
	emit_call(pl, c, VIEW(""), at == args_end ? e->out.n : at);
	while (at < args_end) {
		size_t to = at + pl->per_event;

		if (to >= args_end)
			to = args_end;
		emit_call(pl, c, span(pl, at, to),
		    to == args_end ? e->out.n : to);
		at = to;
	}
}

/* arguments of the script as the text that the model says. */
static int
call_args(struct player *pl, struct call *c)
{
	const struct sm_json *a = sm_json_get(c->json, "arguments");
	struct sm_out o;
	int rc;

	c->args = VIEW("{}");
	if (a == NULL)
		return 0;
	if (a->type == SM_JSON_STRING) {
		c->args = a->text;
		return 0;
	}
	sm_out_init(&o, SIZE_MAX / 2);
	sm_json_write(&o, a);
	rc = o.err;
	if (rc == 0)
		rc = arena_dup(pl->e.ask->a, buf_view(&o.b), &c->args);
	sm_out_clear(&o);
	return rc;
}

static void
step_tool_calls(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	const struct sm_json *j;
	int position = pl->calls_n;
	char id[48];

	(void)step;
	pl->e.mute = !sm_json_true(pl->turn, "tool_logprobs", true);
	for (j = v->child; j != NULL && !pl->full; j = j->next, position++) {
		const struct sm_json *index = sm_json_get(j, "index");
		struct call c = { .json = j, .index = position };

		c.id = sm_json_string(j, "id");
		snprintf(id, sizeof(id), "call_%.24s_%d",
		    pl->e.id + sizeof("chatcmpl"), position);
		if (c.id.n == 0)
			c.id = view_str(id);
		c.name = sm_json_string(j, "name");
		c.bare_object = sm_json_true(j, "bare_object", false);
		if (index != NULL)
			c.index = sm_json_int(j, "index", -1);
		if (call_args(pl, &c) != 0) {
			pl->e.p->body.err = SP_E_NOMEM;
			return;
		}
		say_call(pl, &c);
	}
	pl->e.mute = false;
}

/* {"delta": {...}, "tokens": "text whose tokens go with it"} */
static void
step_delta(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	struct sm_out d;

	sm_token_split(&pl->e.out, sm_json_string(step, "tokens"));
	clip_tokens(pl);
	sm_out_init(&d, SIZE_MAX / 2);
	sm_json_write(&d, v);
	sm_emit_delta(&pl->e, buf_view(&d.b), pl->e.out.n);
	if (d.err != 0)
		pl->e.p->body.err = d.err;
	sm_out_clear(&d);
}

static void
step_finish(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	(void)step;
	sm_emit_finish(&pl->e, v->type == SM_JSON_STRING ? v->text : VIEW_NONE);
}

static void
step_usage(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	(void)step;
	if (v->type == SM_JSON_OBJECT)
		pl->e.usage = v;
	sm_emit_usage(&pl->e);
}

static void
step_event(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	struct sm_out d;

	(void)step;
	sm_out_init(&d, SIZE_MAX / 2);
	if (v->type == SM_JSON_STRING)
		sm_out_add(&d, v->text);
	else
		sm_json_write(&d, v);
	sm_emit_data(&pl->e, buf_view(&d.b));
	if (d.err != 0)
		pl->e.p->body.err = d.err;
	sm_out_clear(&d);
}

static void
step_done(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	(void)step;
	(void)v;
	if (pl->e.stream)
		sm_emit_data(&pl->e, VIEW("[DONE]"));
}

static void
step_comment(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	(void)step;
	if (!pl->e.stream)
		return;
	sm_out_str(&pl->e.p->body, ": ");
	sm_out_add(&pl->e.p->body, v->text);
	sm_out_str(&pl->e.p->body, pl->e.eol);
	sm_out_str(&pl->e.p->body, pl->e.eol);
	sm_reply_mark(pl->e.p, SM_MARK_EVENT, 0);
}

static void
step_raw(struct player *pl, const struct sm_json *step, const struct sm_json *v)
{
	int64_t n = sm_json_int(step, "times", 1);

	while (n-- > 0 && pl->e.p->body.err == 0) {
		sm_wire_raw(&pl->e.p->body, v->text);
		sm_reply_mark(pl->e.p, SM_MARK_EVENT, 0);
	}
}

static void
step_raw_base64(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	(void)step;
	if (sm_out_unbase64(&pl->e.p->body, v->text) != 0)
		pl->e.p->body.err = SP_E_SYNTAX;
	sm_reply_mark(pl->e.p, SM_MARK_EVENT, 0);
}

static void
step_wire(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	(void)step;
	sm_wire_put(pl->e.p, v->text);
}

static void
step_pause(struct player *pl, const struct sm_json *step,
    const struct sm_json *v)
{
	int64_t ms = sm_json_int(step, "pause_ms", 0);

	(void)v;
	if (ms > 0 && ms <= PAUSE_MAX_MS)
		sm_reply_mark(pl->e.p, SM_MARK_PAUSE, (uint32_t)ms);
}

static void
step_cut(struct player *pl, const struct sm_json *step, const struct sm_json *v)
{
	(void)step;
	sm_reply_mark(pl->e.p,
	    view_eq(v->text, VIEW("rst")) ? SM_MARK_RST : SM_MARK_FIN, 0);
}

static const struct step_kind {
	const char *name;
	step_fn *play;
	unsigned types; /* allowed, one bit for each enum sm_json_type */
	bool verbatim;
} kinds[] = {
#define T(t) (1u << SM_JSON_##t)
	{ "text", step_text, T(STRING), false },
	{ "reasoning", step_reasoning, T(STRING), false },
	{ "tool_calls", step_tool_calls, T(ARRAY), false },
	{ "delta", step_delta, T(OBJECT), false },
	{ "finish", step_finish, T(STRING) | T(NULL), false },
	{ "usage", step_usage, T(OBJECT) | T(BOOL), false },
	{ "done", step_done, T(BOOL), false },
	{ "comment", step_comment, T(STRING), false },
	{ "event", step_event, 0x3f, true },
	{ "raw", step_raw, T(STRING), true },
	{ "raw_base64", step_raw_base64, T(STRING), true },
	{ "wire", step_wire, T(STRING), true },
	{ "pause_ms", step_pause, T(NUMBER), false },
	{ "cut", step_cut, T(STRING), false },
#undef T
};

/* The kind of a step, and the value under its name. */
static const struct step_kind *
kind_of(const struct sm_json *step, const struct sm_json **v)
{
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		*v = sm_json_get(step, kinds[i].name);
		if (*v != NULL && (kinds[i].types >> (*v)->type & 1))
			return &kinds[i];
	}
	return NULL;
}

static const struct sm_json *
first_step(const struct sm_json *turn)
{
	const struct sm_json *s = sm_json_get(turn, "steps");

	return sm_json_is(s, SM_JSON_ARRAY) ? s->child : NULL;
}

static bool
is_verbatim(const struct sm_json *turn)
{
	const struct sm_json *s, *v;
	const struct step_kind *k;

	for (s = first_step(turn); s != NULL; s = s->next) {
		k = kind_of(s, &v);
		if (k != NULL && k->verbatim)
			return true;
	}
	return false;
}

const char *
sm_render_check(const struct sm_json *turn)
{
	const struct sm_json *s = sm_json_get(turn, "steps"), *v;

	if (!sm_json_is(turn, SM_JSON_OBJECT))
		return "a turn must be an object";
	if (s == NULL && sm_json_get(turn, "body") == NULL)
		return "a turn needs \"steps\" or \"body\"";
	if (s != NULL && s->type != SM_JSON_ARRAY)
		return "\"steps\" must be an array";
	for (s = first_step(turn); s != NULL; s = s->next)
		if (kind_of(s, &v) == NULL)
			return "a step has no known name, or its value is of "
			       "the wrong type";
	return NULL;
}

bool
sm_render_streams(const struct sm_ask *ask, const struct sm_json *turn)
{
	struct view as = sm_json_string(turn, "as");

	return as.p != NULL ? view_eq(as, VIEW("stream")) : ask->stream;
}

/* What a well-behaved server adds to the script's steps. */
static void
finish_turn(struct player *pl)
{
	struct sm_emit *e = &pl->e;
	const struct sm_json *fin = sm_json_get(pl->turn, "finish");

	if (pl->full)
		sm_emit_finish(e, VIEW("length"));
	else if (sm_json_is(fin, SM_JSON_STRING))
		sm_emit_finish(e, fin->text);
	else if (fin == NULL && e->finish.p == NULL)
		sm_emit_finish(e,
		    pl->calls_n > 0 ? VIEW("tool_calls") : VIEW("stop"));
	if (!e->stream)
		sm_emit_unary(e);
	else if (e->ask->usage && sm_json_true(pl->turn, "usage", true))
		sm_emit_usage(e);
	if (e->stream && sm_json_true(pl->turn, "done", true))
		sm_emit_data(e, VIEW("[DONE]"));
}

static void
prepare(struct player *pl, const struct sm_render *r, struct sm_payload *p)
{
	struct sm_emit *e = &pl->e;
	int64_t per = sm_json_int(r->turn, "tokens_per_event", 1);
	struct view id = sm_json_string(r->turn, "id");

	sm_emit_init(e, r->ask, r->shape, p);
	e->stream = sm_render_streams(r->ask, r->turn);
	e->model = r->model;
	e->logprobs = e->logprobs && sm_json_true(r->turn, "logprobs", true);
	e->ids = e->ids && sm_json_true(r->turn, "token_ids", true);
	e->usage = sm_json_get(r->turn, "usage");
	if (view_eq(sm_json_string(r->turn, "eol"), VIEW("\r\n")))
		e->eol = "\r\n";
	if (view_eq(sm_json_string(r->turn, "eol"), VIEW("\r")))
		e->eol = "\r";
	if (id.n > 0)
		snprintf(e->id, sizeof(e->id), "%.*s", VIEW_ARG(id));
	else
		snprintf(e->id, sizeof(e->id), "chatcmpl-%08llx",
		    (unsigned long long)r->serial);
	pl->turn = r->turn;
	pl->per_event = per > 0 ? (size_t)per : 1;
	pl->max = SIZE_MAX;
	if (r->honour_max && r->ask->max_tokens > 0)
		pl->max = (size_t)r->ask->max_tokens;
	pl->verbatim = is_verbatim(r->turn);
}

int
sm_render_turn(const struct sm_render *r, struct sm_payload *p)
{
	struct player pl = { 0 };
	const struct sm_json *s, *v;
	int rc;

	prepare(&pl, r, p);
	if (!pl.verbatim && sm_json_true(r->turn, "role", true))
		sm_emit_delta(&pl.e,
		    VIEW("{\"role\":\"assistant\",\"content\":\"\"}"), 0);
	for (s = first_step(r->turn); s != NULL && !pl.full; s = s->next) {
		const struct step_kind *k = kind_of(s, &v);

		if (k != NULL && p->body.err == 0)
			k->play(&pl, s, v);
	}
	if (!pl.verbatim)
		finish_turn(&pl);
	rc = p->body.err;
	if (rc == 0)
		rc = pl.e.out.err != 0 ? pl.e.out.err : pl.e.prompt.err;
	sm_emit_clear(&pl.e);
	return rc;
}
