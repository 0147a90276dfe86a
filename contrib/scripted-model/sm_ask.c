#include "sm_ask.h"

#include <stdio.h>

enum {
	TOP_MAX = 20,
	CHOICES_MAX = 16,
	NODE_BYTES = 80, /* of memory for a byte of JSON, about */
	ARENA_MAX = 1 << 30
};

/* The text of a message: its content, or its first part with a text. */
static struct view
message_text(const struct sm_json *m)
{
	const struct sm_json *c = sm_json_get(m, "content");

	if (sm_json_is(c, SM_JSON_STRING))
		return c->text;
	if (sm_json_is(c, SM_JSON_ARRAY))
		for (c = c->child; c != NULL; c = c->next) {
			struct view t = sm_json_string(c, "text");

			if (t.p != NULL)
				return t;
		}
	return VIEW_NONE;
}

static void
read_messages(struct sm_ask *ask)
{
	const struct sm_json *m = sm_json_get(ask->body, "messages");

	if (!sm_json_is(m, SM_JSON_ARRAY))
		return;
	for (m = m->child; m != NULL; m = m->next) {
		struct view role = sm_json_string(m, "role");

		if (view_eq(role, VIEW("user"))) {
			ask->last_user = message_text(m);
			ask->tool_results = 0;
		} else if (view_eq(role, VIEW("system")) &&
		    ask->system.p == NULL) {
			ask->system = message_text(m);
		} else if (view_eq(role, VIEW("tool"))) {
			ask->tool_results++;
		}
	}
}

static int
clip(int64_t v, int min, int max)
{
	return v < min ? min : v > max ? max : (int)v;
}

static void
read_fields(struct sm_ask *ask)
{
	const struct sm_json *b = ask->body;
	const struct sm_json *tools = sm_json_get(b, "tools");
	int64_t probs = sm_json_int(b, "n_probs", 0);

	ask->model = sm_json_string(b, "model");
	ask->stream = sm_json_true(b, "stream", false);
	ask->usage = sm_json_true(sm_json_get(b, "stream_options"),
	    "include_usage", false);
	ask->logprobs = sm_json_true(b, "logprobs", false) || probs > 0;
	ask->ids = sm_json_true(b, "return_token_ids", false);
	ask->id_strings = sm_json_true(b, "return_tokens_as_token_ids", false);
	ask->tools = sm_json_is(tools, SM_JSON_ARRAY) && tools->child != NULL;
	ask->top_n = clip(sm_json_int(b, "top_logprobs", probs), 0, TOP_MAX);
	ask->n = clip(sm_json_int(b, "n", 1), 1, CHOICES_MAX);
	ask->max_tokens = sm_json_int(b, "max_completion_tokens",
	    sm_json_int(b, "max_tokens", -1));
	read_messages(ask);
}

int
sm_ask_parse(struct sm_ask *ask, const struct sm_http *http, char *why,
    size_t why_n)
{
	struct view text = buf_view(&http->body);
	struct sm_json *root;
	int rc;

	*ask = (struct sm_ask){ .http = http, .n = 1, .max_tokens = -1 };
	ask->script = sm_http_header(http, "x-script");
	/* A body of nothing but "0,0," costs a node for every two bytes. */
	ask->a = arena_new(text.n < ARENA_MAX / NODE_BYTES - (1 << 14)
		? text.n * NODE_BYTES + (1 << 20)
		: ARENA_MAX);
	if (ask->a == NULL)
		return SP_E_NOMEM;
	rc = sm_json_parse(ask->a, text, &root, why, why_n);
	if (rc == 0 && root->type != SM_JSON_OBJECT) {
		snprintf(why, why_n, "a JSON object was expected");
		rc = SP_E_SYNTAX;
	}
	if (rc != 0)
		return rc;
	ask->body = root;
	read_fields(ask);
	return 0;
}

void
sm_ask_clear(struct sm_ask *ask)
{
	arena_free(ask->a);
	ask->a = NULL;
}

bool
sm_ask_has(const struct sm_ask *ask, const char *key)
{
	const struct sm_json *v = sm_json_get(ask->body, key);

	return v != NULL && v->type != SM_JSON_NULL &&
	    !(v->type == SM_JSON_BOOL && v->text.p[0] == 'f');
}

static bool
contains(struct view text, struct view needle)
{
	return needle.n == 0 || view_search(text, needle) < text.n;
}

/* One member of a match object; an unknown one never holds. */
static bool
match_one(const struct sm_ask *ask, const struct sm_json *m)
{
	bool yes = m->text.n > 0 && m->text.p[0] == 't';

	if (view_eq(m->key, VIEW("user")))
		return contains(ask->last_user, m->text);
	if (view_eq(m->key, VIEW("system")))
		return contains(ask->system, m->text);
	if (view_eq(m->key, VIEW("model")))
		return view_eq(ask->model, m->text);
	if (view_eq(m->key, VIEW("script")))
		return view_eq(ask->script, m->text);
	if (view_eq(m->key, VIEW("path")))
		return view_eq(ask->http->path, m->text);
	if (view_eq(m->key, VIEW("field"))) {
		const struct sm_json *v;

		for (v = ask->body ? ask->body->child : NULL; v; v = v->next)
			if (view_eq(v->key, m->text))
				return v->type != SM_JSON_NULL;
		return false;
	}
	if (view_eq(m->key, VIEW("stream")))
		return ask->stream == yes;
	if (view_eq(m->key, VIEW("tools")))
		return ask->tools == yes;
	if (view_eq(m->key, VIEW("tool_result")))
		return (ask->tool_results > 0) == yes;
	return false;
}

bool
sm_ask_match(const struct sm_ask *ask, const struct sm_json *match)
{
	const struct sm_json *m;

	if (match == NULL)
		return true;
	if (match->type == SM_JSON_STRING)
		return contains(ask->last_user, match->text);
	for (m = match->child; m != NULL; m = m->next)
		if (!match_one(ask, m))
			return false;
	return true;
}
