#include "config.h"

#include <string.h>

#include "recorder/accum.h"
#include "recorder/reqinfo.h"

const char *const reqinfo_sampling_names[REQINFO_SAMPLING_N] = { "temperature",
	"top_p", "top_k", "min_p", "typical_p", "presence_penalty",
	"frequency_penalty", "repetition_penalty", "seed", "n", "stop",
	"logit_bias", "min_tokens", "ignore_eos" };

enum {
	REQ_MODEL,
	REQ_MESSAGES,
	REQ_TOOLS,
	REQ_FUNCTIONS,
	REQ_STREAM,
	REQ_MAX_TOKENS,
	REQ_MAX_COMPLETION_TOKENS,
};
static const struct view req_keys[] = { { "model", 5 }, { "messages", 8 },
	{ "tools", 5 }, { "functions", 9 }, { "stream", 6 },
	{ "max_tokens", 10 }, { "max_completion_tokens", 21 }, { NULL, 0 } };
enum { MSG_ROLE, MSG_CONTENT };
static const struct view msg_keys[] = { { "role", 4 }, { "content", 7 },
	{ NULL, 0 } };

/* The first message: its content when the role is system or developer. */
static int
read_first(struct reqinfo *r, struct jscan *s)
{
	struct jscan_span key, v, content = { .kind = JSCAN_NONE };
	bool is_system = false;
	int rc, k;

	if (jscan_peek(s) != JSCAN_OBJECT)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_member(s, &key)) == 1) {
		k = accum_key(s, &key, msg_keys);
		rc = jscan_skip(s, &v);
		if (rc != 0)
			return rc;
		if (k == MSG_CONTENT)
			content = v;
		if (k == MSG_ROLE && v.kind == JSCAN_STRING)
			is_system = jscan_is(s, &v, VIEW("system")) ||
			    jscan_is(s, &v, VIEW("developer"));
	}
	if (is_system && content.kind != JSCAN_NONE)
		r->system = jscan_raw(s, &content);
	return rc;
}

static int
read_messages(struct reqinfo *r, struct jscan *s)
{
	struct jscan_span v;
	size_t start = 0, end = 0;
	int rc;

	r->messages_n = 0;
	r->prefix = VIEW_NONE;
	if (jscan_peek(s) != JSCAN_ARRAY)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_element(s)) == 1) {
		(void)jscan_peek(s); /* past white space */
		if (r->messages_n == 0)
			start = s->pos;
		else
			r->prefix = view_of(s->p + start, end - start);
		rc =
		    r->messages_n++ == 0 ? read_first(r, s) : jscan_skip(s, &v);
		if (rc != 0)
			return rc;
		end = s->pos;
	}
	return rc;
}

static int
read_tools(struct reqinfo *r, struct jscan *s)
{
	struct jscan_span v;
	int rc;

	if (jscan_peek(s) != JSCAN_ARRAY)
		return jscan_skip(s, &v);
	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	while ((rc = jscan_element(s)) == 1) {
		r->has_tools = true;
		rc = jscan_skip(s, &v);
		if (rc != 0)
			return rc;
	}
	return rc;
}

static int
read_other(struct reqinfo *r, struct jscan *s, const struct jscan_span *key)
{
	struct jscan_span v;
	int i, rc = jscan_skip(s, &v);

	if (rc != 0)
		return rc;
	for (i = 0; i < REQINFO_SAMPLING_N; i++)
		if (jscan_is(s, key, view_str(reqinfo_sampling_names[i])))
			r->sampling[i] =
			    v.kind == JSCAN_NULL ? VIEW_NONE : jscan_raw(s, &v);
	return 0;
}

static int
read_member(struct reqinfo *r, struct jscan *s, const struct jscan_span *key)
{
	struct view *to = NULL;
	struct jscan_span v;
	int k = accum_key(s, key, req_keys);
	int rc;

	switch (k) {
	case REQ_MESSAGES:
		return read_messages(r, s);
	case REQ_TOOLS:
	case REQ_FUNCTIONS:
		return read_tools(r, s);
	case REQ_MODEL:
		to = &r->model;
		break;
	case REQ_MAX_TOKENS:
		to = &r->max_tokens;
		break;
	case REQ_MAX_COMPLETION_TOKENS:
		to = &r->max_completion_tokens;
		break;
	case REQ_STREAM:
		break;
	default:
		return read_other(r, s, key);
	}
	rc = jscan_skip(s, &v);
	if (rc != 0)
		return rc;
	if (to != NULL)
		*to = jscan_raw(s, &v);
	else
		r->stream = v.kind == JSCAN_TRUE;
	return 0;
}

void
reqinfo_read(struct reqinfo *r, struct view body)
{
	struct jscan_span key, v;
	struct jscan s;
	int rc;

	*r = (struct reqinfo){ .json = false };
	jscan_init(&s, body, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT) {
		rc = jscan_skip(&s, &v);
		r->json = rc == 0 && jscan_finish(&s) == 0;
		r->strict = !s.loose;
		return;
	}
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1)
		rc = read_member(r, &s, &key);
	if (rc == 0)
		rc = jscan_finish(&s);
	if (rc != 0) {
		*r = (struct reqinfo){ .json = false };
		return;
	}
	r->json = r->object = true;
	r->strict = !s.loose;
}
