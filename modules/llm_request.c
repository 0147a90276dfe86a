#include "config.h"

#include "llm_request.h"

#include "base/mem.h"
#include "base/num.h"
#include "json/jscan.h"
#include "json/jsplice.h"
#include "json/jwrite.h"

enum {
	EDITS_MAX = 4096,
	SAMPLING_MAX = 24,
	NUMBER_BYTES = 24,
};

/* The members that may be edited; those of the sampling policy follow. */
enum {
	K_MODEL,
	K_LOGPROBS,
	K_TOP_LOGPROBS,
	K_TOKEN_IDS,
	K_STREAM,
	K_STREAM_OPTIONS,
	K_MAX_TOKENS,
	K_MAX_COMPLETION,
	K_TEMPLATE,
	K_N_PROBS,
	K_API_KEY,
	K_API_BASE,
	K_FIXED
};

static const char *const fixed_names[K_FIXED] = {
	[K_MODEL] = "model",
	[K_LOGPROBS] = "logprobs",
	[K_TOP_LOGPROBS] = "top_logprobs",
	[K_TOKEN_IDS] = "return_token_ids",
	[K_STREAM] = "stream",
	[K_STREAM_OPTIONS] = "stream_options",
	[K_MAX_TOKENS] = "max_tokens",
	[K_MAX_COMPLETION] = "max_completion_tokens",
	[K_TEMPLATE] = "chat_template_kwargs",
	[K_N_PROBS] = "n_probs",
	[K_API_KEY] = "api_key",
	[K_API_BASE] = "api_base",
};

/* What a client may have asked of the sampler, for the record. */
static const char *const sampling_names[] = {
	"temperature",
	"top_p",
	"top_k",
	"min_p",
	"frequency_penalty",
	"presence_penalty",
	"repetition_penalty",
	"seed",
	"n",
	"max_tokens",
	"max_completion_tokens",
};

enum { SAMPLING_NAMES = sizeof(sampling_names) / sizeof(sampling_names[0]) };

enum action {
	KEEP, /* as it came, duplicates too */
	SET, /* one member with the value put */
	DROP, /* none */
	INSIDE, /* one member: an object whose member inner is inner_put */
	RENAME, /* one member under the name put, value put2 if not empty */
};

struct slot {
	struct view name;
	size_t n; /* how often the client wrote it */
	size_t met; /* so far in the second pass */
	struct jscan_span val; /* the last one, which parsers take */
	enum action action;
	struct view put, put2;
	struct view inner, inner_put;
};

struct edit {
	const struct llm_request_params *p;
	struct view body;
	struct jscan s;
	struct slot slots[K_FIXED + SAMPLING_MAX];
	size_t slots_n;
	struct jscan_span asked[SAMPLING_NAMES]; /* kind NONE: not asked */
	struct jsplice edits;
	struct buf added; /* members that the client did not write */
	char cap[NUMBER_BYTES], cap2[NUMBER_BYTES], top[NUMBER_BYTES];
	char n_probs[NUMBER_BYTES];
	char max_name[32];
	char model[LLM_MODEL_MAX * 6 + 3]; /* the override as JSON */
};

static struct slot *
slot_for(struct edit *e, const struct jscan *s, const struct jscan_span *key)
{
	size_t i;

	for (i = 0; i < e->slots_n; i++)
		if (jscan_is(s, key, e->slots[i].name))
			return &e->slots[i];
	return NULL;
}

static void
slots_init(struct edit *e)
{
	const struct conf_capture *c = e->p->capture;
	size_t i;

	for (i = 0; i < K_FIXED; i++)
		e->slots[i].name = view_str(fixed_names[i]);
	e->slots_n = K_FIXED;
	for (i = 0; c != NULL && i < c->sampling_n && i < SAMPLING_MAX; i++) {
		struct slot *s = &e->slots[e->slots_n++];

		s->name = c->sampling[i].name;
		s->action = SET;
		s->put = c->sampling[i].value;
	}
}

/* First pass: what is there, the last of duplicates counting. */
static int
survey(struct edit *e)
{
	struct jscan *s = &e->s;
	struct jscan_span key, val;
	struct slot *slot;
	size_t i;
	int rc;

	jscan_init(s, e->body, 0);
	if (jscan_peek(s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_enter(s);
	while (rc == 0 && (rc = jscan_member(s, &key)) == 1) {
		rc = jscan_skip(s, &val);
		if (rc != 0)
			break;
		slot = slot_for(e, s, &key);
		if (slot != NULL) {
			slot->n++;
			slot->val = val;
		}
		for (i = 0; i < SAMPLING_NAMES; i++)
			if (jscan_is(s, &key, view_str(sampling_names[i])))
				e->asked[i] = val;
	}
	return rc != 0 ? rc : jscan_finish(s);
}

static bool
is_true(const struct slot *s)
{
	return s->n > 0 && s->val.kind == JSCAN_TRUE;
}

/* The client's number when it is a plain integer of at least min, else 0. */
static uint64_t
plain_number(const struct edit *e, const struct slot *s)
{
	uint64_t v;

	if (s->n == 0 || s->val.kind != JSCAN_NUMBER)
		return 0;
	switch (num_u64(jscan_raw(&e->s, &s->val), 1, UINT64_MAX, &v)) {
	case 0:
		return v;
	case SP_E_RANGE: /* 0, or more digits than 64 bits hold */
		return s->val.end - s->val.start > 1 ? UINT64_MAX : 0;
	default:
		return 0;
	}
}

static void
set_slot(struct slot *s, struct view put)
{
	s->action = SET;
	s->put = put;
}

static struct view
format(char out[NUMBER_BYTES], uint64_t v)
{
	return view_of(out, num_format_u64(v, out));
}

static void
plan_logprobs(struct edit *e, struct llm_wants *w)
{
	const struct conf_capture *c = e->p->capture;
	struct slot *top = &e->slots[K_TOP_LOGPROBS];
	uint64_t n;

	if (c == NULL || c->level < CONF_LEVEL_LOGPROBS ||
	    (e->p->ask & LLM_ASK_NO_LOGPROBS))
		return;
	w->forced_logprobs = true;
	n = w->top_logprobs > c->top_logprobs ? w->top_logprobs
					      : c->top_logprobs;
	if (e->p->ask & LLM_ASK_N_PROBS) {
		e->slots[K_LOGPROBS].action = DROP;
		top->action = DROP;
		set_slot(&e->slots[K_N_PROBS], format(e->n_probs, n));
		return;
	}
	set_slot(&e->slots[K_LOGPROBS], VIEW("true"));
	set_slot(top, format(e->top, n));
}

static void
plan_token_ids(struct edit *e, struct llm_wants *w)
{
	const struct conf_capture *c = e->p->capture;

	if (c == NULL || c->level < CONF_LEVEL_TOKENS ||
	    c->token_ids == CONF_TOKEN_IDS_OFF ||
	    (e->p->ask & (LLM_ASK_NO_TOKEN_IDS | LLM_ASK_NO_LOGPROBS)))
		return;
	w->forced_token_ids = true;
	set_slot(&e->slots[K_TOKEN_IDS], VIEW("true"));
}

/* whole: the object to be written where the client wrote none. */
static void
plan_object(struct slot *s, struct view inner, struct view whole)
{
	if (s->n > 0 && s->val.kind == JSCAN_OBJECT) {
		s->action = INSIDE;
		s->inner = inner;
		s->inner_put = view_sub(whole, 1, whole.n - 2);
	} else {
		set_slot(s, whole);
	}
}

static void
plan_usage(struct edit *e, struct llm_wants *w)
{
	struct slot *s = &e->slots[K_STREAM_OPTIONS];

	if (e->p->capture == NULL || !w->stream || w->usage)
		return;
	/* of a wrong type: the upstream's to refuse */
	if (s->n > 0 && s->val.kind != JSCAN_OBJECT &&
	    s->val.kind != JSCAN_NULL)
		return;
	w->forced_usage = true;
	plan_object(s, VIEW("include_usage"), VIEW("{\"include_usage\":true}"));
}

bool
llm_request_renames_max(struct view model)
{
	static const struct view families[] = { VIEW("gpt-5"), VIEW("o1"),
		VIEW("o3"), VIEW("o4") };
	size_t i, slash;

	/* "openai/gpt-5-mini" is a gpt-5, too */
	while ((slash = view_find(model, '/')) < model.n)
		model = view_from(model, slash + 1);
	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		struct view f = families[i];

		if (view_starts(model, f) &&
		    (model.n == f.n || model.p[f.n] == '-' ||
			model.p[f.n] == '.'))
			return true;
	}
	return false;
}

static void
plan_max_tokens(struct edit *e, const struct llm_wants *w)
{
	const struct conf_capture *c = e->p->capture;
	uint64_t cap = c != NULL ? c->max_tokens_cap : 0;
	struct slot *old = &e->slots[K_MAX_TOKENS];
	struct slot *new = &e->slots[K_MAX_COMPLETION];
	uint64_t a = plain_number(e, old), b = plain_number(e, new);

	if (cap > 0 && a > cap)
		set_slot(old, format(e->cap, cap));
	if (cap > 0 && b > cap)
		set_slot(new, format(e->cap2, cap));
	if (c == NULL || old->n == 0 ||
	    !llm_request_renames_max(view_of(w->model, w->model_n)))
		return;
	if (new->n == 0) {
		old->put2 = old->action == SET ? old->put : VIEW_NONE;
		old->action = RENAME;
		old->put = VIEW("\"max_completion_tokens\"");
		return;
	}
	/* both are there: the smaller one stays */
	old->action = DROP;
	if (a > 0 && b > 0 && a < b)
		set_slot(new, format(e->cap2, cap > 0 && a > cap ? cap : a));
}

static int
plan_model(struct edit *e, struct llm_wants *w)
{
	struct slot *s = &e->slots[K_MODEL];
	struct buf text;
	struct jwrite out;
	size_t n;
	int rc;

	buf_init(&text, e->body.n + 64);
	if (e->p->model.n > 0) {
		jwrite_init(&out, &text);
		jwrite_string(&out, e->p->model);
		rc = jwrite_finish(&out);
		if (rc == 0 && buf_len(&text) > sizeof(e->model))
			rc = SP_E_LIMIT;
		if (rc == 0) {
			memcpy(e->model, buf_view(&text).p, buf_len(&text));
			set_slot(s, view_of(e->model, buf_len(&text)));
		}
		buf_clear(&text);
		if (rc != 0)
			return rc;
		buf_init(&text, e->p->model.n + 1);
		rc = buf_add_view(&text, e->p->model);
	} else if (s->n > 0 && s->val.kind == JSCAN_STRING) {
		rc = jscan_decode(&e->s, &s->val, &text, NULL);
	} else {
		rc = 0;
	}
	if (rc == 0) {
		n = buf_len(&text);
		w->model_n = n > sizeof(w->model) ? sizeof(w->model) : n;
		if (w->model_n > 0)
			memcpy(w->model, buf_view(&text).p, w->model_n);
	}
	buf_clear(&text);
	return rc;
}

static int
wants_usage(struct edit *e, struct llm_wants *w)
{
	struct slot *s = &e->slots[K_STREAM_OPTIONS];
	struct jscan_span v;
	int rc;

	if (s->n == 0 || s->val.kind != JSCAN_OBJECT)
		return 0;
	rc = jscan_find(jscan_raw(&e->s, &s->val), VIEW("include_usage"), &v);
	w->usage = rc == 1 && v.kind == JSCAN_TRUE;
	return rc < 0 ? rc : 0;
}

static int
plan(struct edit *e, struct llm_wants *w)
{
	const struct conf_capture *c = e->p->capture;
	int rc;

	w->stream = is_true(&e->slots[K_STREAM]);
	w->logprobs = is_true(&e->slots[K_LOGPROBS]);
	w->token_ids = is_true(&e->slots[K_TOKEN_IDS]);
	w->top_logprobs = plain_number(e, &e->slots[K_TOP_LOGPROBS]);
	if (w->top_logprobs > 1000) /* nonsense: the upstream's to refuse */
		w->top_logprobs = 1000;
	rc = wants_usage(e, w);
	if (rc == 0)
		rc = plan_model(e, w);
	if (rc != 0)
		return rc;
	plan_logprobs(e, w);
	plan_token_ids(e, w);
	plan_usage(e, w);
	plan_max_tokens(e, w);
	if (c != NULL && c->thinking == CONF_THINKING_OFF) {
		w->thinking_off = true;
		plan_object(&e->slots[K_TEMPLATE], VIEW("enable_thinking"),
		    VIEW("{\"enable_thinking\":false}"));
	}
	e->slots[K_API_KEY].action = DROP;
	e->slots[K_API_BASE].action = DROP;
	return 0;
}

/* Adds `"name":put,` style text for a member that was not there. */
static int
add_member(struct buf *b, struct view name, struct view put)
{
	int rc;

	rc = buf_len(b) > 0 ? buf_add_char(b, ',') : 0;
	if (rc == 0)
		rc = buf_add_char(b, '"');
	if (rc == 0)
		rc = buf_add_view(b, name);
	if (rc == 0)
		rc = buf_add_str(b, "\":");
	return rc != 0 ? rc : buf_add_view(b, put);
}

static int
edit_inside(struct edit *e, const struct slot *slot, struct jscan *s)
{
	struct jsplice_object o;
	struct jscan_span key, val;
	int rc;

	rc = jscan_enter(s);
	if (rc != 0)
		return rc;
	jsplice_object_begin(&o, &e->edits, s);
	while ((rc = jscan_member(s, &key)) == 1) {
		rc = jscan_skip(s, &val);
		if (rc == 0)
			rc = jsplice_object_member(&o, &key, &val,
			    jscan_is(s, &key, slot->inner));
		if (rc != 0)
			return rc;
	}
	return rc != 0 ? rc : jsplice_object_end(&o, s, slot->inner_put);
}

/* One member in the second pass; its value is at the cursor. */
static int
edit_member(struct edit *e, struct jscan *s, struct jsplice_object *o,
    const struct jscan_span *key)
{
	struct slot *slot = slot_for(e, s, key);
	struct jscan_span val;
	bool last, gone;
	int rc;

	if (slot == NULL || slot->action == KEEP) {
		rc = jscan_skip(s, &val);
		return rc != 0 ? rc
			       : jsplice_object_member(o, key, &val, false);
	}
	last = ++slot->met == slot->n;
	gone = slot->action == DROP || !last;
	if (!gone && slot->action == INSIDE) {
		val.kind = jscan_peek(s);
		val.start = s->pos;
		rc = edit_inside(e, slot, s);
		val.end = s->pos;
	} else {
		rc = jscan_skip(s, &val);
	}
	if (rc == 0)
		rc = jsplice_object_member(o, key, &val, gone);
	if (rc != 0 || gone)
		return rc;
	if (slot->action == SET)
		return jsplice_add(&e->edits, val.start, val.end - val.start,
		    slot->put);
	if (slot->action == RENAME) {
		rc = jsplice_add(&e->edits, key->start, key->end - key->start,
		    slot->put);
		if (rc == 0 && slot->put2.n > 0)
			rc = jsplice_add(&e->edits, val.start,
			    val.end - val.start, slot->put2);
	}
	return rc;
}

/* Second pass: the edits, in the order of the text. */
static int
rewrite(struct edit *e)
{
	struct jscan s;
	struct jsplice_object o;
	struct jscan_span key;
	size_t i;
	int rc;

	for (i = 0; i < e->slots_n; i++) {
		struct slot *slot = &e->slots[i];

		if (slot->action != SET || slot->n > 0)
			continue;
		rc = add_member(&e->added, slot->name, slot->put);
		if (rc != 0)
			return rc;
	}
	jscan_init(&s, e->body, 0);
	rc = jscan_enter(&s);
	if (rc != 0)
		return rc;
	jsplice_object_begin(&o, &e->edits, &s);
	while ((rc = jscan_member(&s, &key)) == 1) {
		rc = edit_member(e, &s, &o, &key);
		if (rc != 0)
			return rc;
	}
	return rc != 0 ? rc : jsplice_object_end(&o, &s, buf_view(&e->added));
}

/* What the client had asked for, as a JSON object. */
static int
write_meta(struct edit *e, struct buf *meta)
{
	const struct slot *model = &e->slots[K_MODEL];
	struct jwrite w;
	size_t i;

	jwrite_init(&w, meta);
	jwrite_object(&w);
	if (model->n > 0) {
		jwrite_key(&w, "requested_model");
		jwrite_span(&w, jscan_raw(&e->s, &model->val));
	}
	jwrite_key(&w, "requested_sampling_params");
	jwrite_object(&w);
	for (i = 0; i < SAMPLING_NAMES; i++) {
		if (e->asked[i].kind == JSCAN_NONE)
			continue;
		jwrite_key(&w, sampling_names[i]);
		jwrite_span(&w, jscan_raw(&e->s, &e->asked[i]));
	}
	jwrite_end_object(&w);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

int
llm_request_edit(const struct llm_request_params *p, struct view body,
    struct buf *out, struct llm_wants *wants, struct buf *meta,
    const char **why)
{
	struct edit *e;
	int rc;

	e = mem_calloc(1, sizeof(*e));
	if (e == NULL)
		return SP_E_NOMEM;
	memset(wants, 0, sizeof(*wants));
	e->p = p;
	e->body = body;
	jsplice_init(&e->edits, EDITS_MAX);
	buf_init(&e->added, 64 * 1024);
	slots_init(e);
	rc = survey(e);
	if (rc == 0)
		rc = write_meta(e, meta);
	if (rc == 0)
		rc = plan(e, wants);
	if (rc == 0)
		rc = rewrite(e);
	if (rc == 0)
		rc = jsplice_apply(&e->edits, e->body, out);
	if (rc == SP_E_SYNTAX)
		*why = "the request body is not a valid JSON object";
	jsplice_clear(&e->edits);
	buf_clear(&e->added);
	mem_free(e);
	return rc;
}
