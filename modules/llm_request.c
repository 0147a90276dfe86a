#include "config.h"

#include "llm_request.h"

#include "base/mem.h"
#include "base/num.h"
#include "json/jscan.h"
#include "json/jsplice.h"
#include "json/jwrite.h"

enum {
	EDITS_MAX = 4096,
	MEMBERS_MAX = 2 * EDITS_MAX,
	SAMPLING_MAX = 64, /* as many as the configuration takes */
	NUMBER_BYTES = 24,
	PUT_MAX = 64 * 1024 * 1024, /* what is put in; of the configuration */
	TOP_SANE =
	    20, /* alternatives that no server refuses for their number */
	TOP_MAX = 1000,
	META_VALUE_MAX = 1024, /* longer ones are nonsense, and not recorded */
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
	ONE, /* the last as it came, the ones before it gone */
	SET, /* one member with the value put */
	DROP, /* none */
	INSIDE, /* one member: an object whose member inner is inner_put */
	RENAME, /* one member under the name put, value put2 if not empty */
};

struct slot {
	struct view name;
	size_t n; /* how often the client wrote it */
	size_t met; /* so far while editing */
	struct jscan_span val; /* the last one, which parsers take */
	enum action action;
	struct view put, put2;
	struct view inner, inner_put;
};

/* A member that may be edited, or a run of such as may not. */
struct member {
	struct slot *slot; /* NULL: a run, from the first's key to the last's
			      value */
	struct jscan_span key, val;
};

struct edit {
	const struct llm_request_params *p;
	struct view body;
	struct jscan s;
	struct slot slots[K_FIXED + SAMPLING_MAX];
	size_t slots_n;
	struct member *members;
	size_t members_n, members_cap;
	struct jscan_span asked[SAMPLING_NAMES]; /* kind NONE: not asked */
	struct jsplice edits;
	struct buf added; /* members that the client did not write */
	char cap[NUMBER_BYTES], cap2[NUMBER_BYTES], top[NUMBER_BYTES];
	char n_probs[NUMBER_BYTES];
	struct buf model; /* the override as JSON */
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

/* The policy may name one of the fixed ones: one slot a name. */
static struct slot *
slot_named(struct edit *e, struct view name)
{
	size_t i;

	for (i = 0; i < e->slots_n; i++)
		if (view_eq(e->slots[i].name, name))
			return &e->slots[i];
	if (e->slots_n == K_FIXED + SAMPLING_MAX)
		return NULL;
	e->slots[e->slots_n].name = name;
	return &e->slots[e->slots_n++];
}

static void
set_slot(struct slot *s, struct view put)
{
	s->action = SET;
	s->put = put;
}

static void
slots_init(struct edit *e)
{
	const struct conf_capture *c = e->p->capture;
	size_t i;

	for (i = 0; i < K_FIXED; i++)
		e->slots[i].name = view_str(fixed_names[i]);
	e->slots_n = K_FIXED;
	for (i = 0; c != NULL && i < c->sampling_n; i++) {
		struct slot *s = slot_named(e, c->sampling[i].name);

		if (s != NULL)
			set_slot(s, c->sampling[i].value);
	}
}

static int
members_add(struct edit *e, struct slot *slot, const struct jscan_span *key,
    const struct jscan_span *val)
{
	size_t cap = e->members_cap == 0 ? 32 : e->members_cap * 2;
	size_t n = e->members_n;
	struct member *grown;

	if (slot == NULL && n > 0 && e->members[n - 1].slot == NULL) {
		e->members[n - 1].val.end = val->end;
		return 0;
	}
	if (e->members_n == e->members_cap) {
		if (e->members_n == MEMBERS_MAX)
			return SP_E_LIMIT;
		grown = mem_reallocarray(e->members, cap, sizeof(*grown));
		if (grown == NULL)
			return SP_E_NOMEM;
		e->members = grown;
		e->members_cap = cap;
	}
	e->members[e->members_n++] = (struct member){ slot, *key, *val };
	return 0;
}

/* The one pass over the text; the last of duplicates counts. */
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
	if (rc != 0)
		return rc;
	while ((rc = jscan_member(s, &key)) == 1) {
		rc = jscan_skip(s, &val);
		if (rc != 0)
			return rc;
		slot = slot_for(e, s, &key);
		if (slot != NULL) {
			slot->n++;
			slot->val = val;
		}
		rc = members_add(e, slot, &key, &val);
		if (rc != 0)
			return rc;
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
	n = w->top_logprobs;
	/* without logprobs of its own the client's number is idle: it must not
	 * make the upstream refuse ours */
	if (!w->logprobs && n > TOP_SANE)
		n = TOP_SANE;
	if (n < c->top_logprobs)
		n = c->top_logprobs;
	w->forced_top = n;
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
	    c->token_ids == CONF_TOKEN_IDS_OFF)
		return;
	w->insist_token_ids = c->token_ids == CONF_TOKEN_IDS_ON;
	if ((e->p->ask & LLM_ASK_NO_TOKEN_IDS) && !w->insist_token_ids)
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

	if (e->p->capture == NULL || !w->stream)
		return;
	if (w->usage) {
		s->action = ONE;
		return;
	}
	/* of a wrong type: the upstream's to refuse */
	if (s->n > 0 && s->val.kind != JSCAN_OBJECT &&
	    s->val.kind != JSCAN_NULL)
		return;
	w->forced_usage = true;
	plan_object(s, VIEW("include_usage"), VIEW("{\"include_usage\":true}"));
}

/* "azure/gpt-5", "openai:o3", "ft:o4-mini:org::id": what comes before. */
static struct view
without_provider(struct view model)
{
	static const struct view prefixes[] = { VIEW_INIT("ft:"),
		VIEW_INIT("openai:"), VIEW_INIT("azure:") };
	size_t i, slash;

	while ((slash = view_find(model, '/')) < model.n)
		model = view_from(model, slash + 1);
	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (view_eq_nocase(view_sub(model, 0, prefixes[i].n),
			prefixes[i]))
			return view_from(model, prefixes[i].n);
	return model;
}

bool
llm_request_renames_max(struct view model)
{
	static const struct view families[] = { VIEW_INIT("gpt-5"),
		VIEW_INIT("o1"), VIEW_INIT("o3"), VIEW_INIT("o4") };
	size_t i;

	model = without_provider(model);
	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		struct view f = families[i];

		if (view_eq_nocase(view_sub(model, 0, f.n), f) &&
		    (model.n == f.n || memchr("-.:@", model.p[f.n], 4) != NULL))
			return true;
	}
	return false;
}

static void
plan_cap(struct slot *s, uint64_t v, uint64_t cap, char text[NUMBER_BYTES])
{
	if (cap == 0)
		return;
	if (v > cap)
		set_slot(s, format(text, cap));
	else
		s->action = ONE; /* nothing slips past the cap before it */
}

static void
plan_max_tokens(struct edit *e, const struct llm_wants *w)
{
	const struct conf_capture *c = e->p->capture;
	uint64_t cap = c != NULL ? c->max_tokens_cap : 0;
	struct slot *old = &e->slots[K_MAX_TOKENS];
	struct slot *new = &e->slots[K_MAX_COMPLETION];
	uint64_t a = plain_number(e, old), b = plain_number(e, new);
	struct view was;

	plan_cap(old, a, cap, e->cap);
	plan_cap(new, b, cap, e->cap2);
	if ((c == NULL && e->p->model.n == 0) || old->n == 0 ||
	    !llm_request_renames_max(view_of(w->model, w->model_n)))
		return;
	if (new->n == 0) {
		old->put2 = old->action == SET ? old->put : VIEW_NONE;
		old->action = RENAME;
		old->put = VIEW("\"max_completion_tokens\"");
		return;
	}
	/* both are there: the smaller one stays, and null is none */
	was = old->action == SET ? old->put : jscan_raw(&e->s, &old->val);
	old->action = DROP;
	if (new->val.kind == JSCAN_NULL || (a > 0 && b > 0 && a < b))
		set_slot(new, was);
	else if (new->action == KEEP)
		new->action = ONE;
}

static void
keep_model(struct llm_wants *w, struct view model)
{
	model = view_sub(model, 0, sizeof(w->model));
	w->model_n = model.n;
	if (model.n > 0)
		memcpy(w->model, model.p, model.n);
}

static int
plan_model(struct edit *e, struct llm_wants *w)
{
	struct slot *s = &e->slots[K_MODEL];
	struct jwrite out;
	struct buf text;
	int rc;

	if (e->p->model.n > 0) {
		jwrite_init(&out, &e->model);
		jwrite_string(&out, e->p->model);
		rc = jwrite_finish(&out);
		set_slot(s, buf_view(&e->model));
		keep_model(w, e->p->model);
		return rc;
	}
	if (s->n == 0 || s->val.kind != JSCAN_STRING)
		return 0;
	/* a byte that is not UTF-8 becomes three */
	buf_init(&text, 3 * (s->val.end - s->val.start));
	rc = jscan_decode(&e->s, &s->val, &text, NULL);
	if (rc == 0)
		keep_model(w, buf_view(&text));
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

static void
wants_logprobs(struct edit *e, struct llm_wants *w)
{
	/* llama.cpp's own name for both of them */
	uint64_t n_probs = plain_number(e, &e->slots[K_N_PROBS]);

	w->logprobs = is_true(&e->slots[K_LOGPROBS]) || n_probs > 0;
	w->top_logprobs = plain_number(e, &e->slots[K_TOP_LOGPROBS]);
	if (w->top_logprobs < n_probs)
		w->top_logprobs = n_probs;
	if (w->top_logprobs > TOP_MAX) /* the upstream's to refuse */
		w->top_logprobs = TOP_MAX;
}

static int
plan(struct edit *e, struct llm_wants *w)
{
	const struct conf_capture *c = e->p->capture;
	int rc;

	w->stream = is_true(&e->slots[K_STREAM]);
	w->token_ids = is_true(&e->slots[K_TOKEN_IDS]);
	wants_logprobs(e, w);
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
edit_inside(struct edit *e, const struct slot *slot)
{
	struct jsplice_object o;
	struct jscan_span key, val;
	struct jscan s;
	int rc;

	jscan_init(&s, e->body, 0);
	s.pos = slot->val.start;
	rc = jscan_enter(&s);
	if (rc != 0)
		return rc;
	jsplice_object_begin(&o, &e->edits, &s);
	while ((rc = jscan_member(&s, &key)) == 1) {
		rc = jscan_skip(&s, &val);
		if (rc == 0)
			rc = jsplice_object_member(&o, &key, &val,
			    jscan_is(&s, &key, slot->inner));
		if (rc != 0)
			return rc;
	}
	return rc != 0 ? rc : jsplice_object_end(&o, &s, slot->inner_put);
}

static int
replace(struct edit *e, const struct jscan_span *v, struct view put)
{
	return jsplice_add(&e->edits, v->start, v->end - v->start, put);
}

static int
edit_member(struct edit *e, struct jsplice_object *o, const struct member *m)
{
	struct slot *slot = m->slot;
	bool gone;
	int rc;

	if (slot == NULL || slot->action == KEEP)
		return jsplice_object_member(o, &m->key, &m->val, false);
	gone = ++slot->met < slot->n || slot->action == DROP;
	rc = jsplice_object_member(o, &m->key, &m->val, gone);
	if (rc != 0 || gone)
		return rc;
	switch (slot->action) {
	case SET:
		return replace(e, &m->val, slot->put);
	case INSIDE:
		return edit_inside(e, slot);
	case RENAME:
		rc = replace(e, &m->key, slot->put);
		return rc != 0 || slot->put2.n == 0
		    ? rc
		    : replace(e, &m->val, slot->put2);
	case KEEP:
	case ONE:
	case DROP:
		break;
	}
	return 0;
}

/* The edits, in the order of the text. */
static int
rewrite(struct edit *e)
{
	struct jsplice_object o;
	struct jscan s;
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
	for (i = 0; i < e->members_n; i++) {
		rc = edit_member(e, &o, &e->members[i]);
		if (rc != 0)
			return rc;
	}
	return jsplice_object_end(&o, &s, buf_view(&e->added));
}

static void
write_asked(struct edit *e, struct jwrite *w, const char *name,
    const struct jscan_span *v)
{
	if (v->kind == JSCAN_NONE || v->end - v->start > META_VALUE_MAX)
		return;
	jwrite_key(w, name);
	jwrite_span(w, jscan_raw(&e->s, v));
}

/* What the client had asked for, as a JSON object. */
static int
write_meta(struct edit *e, struct buf *meta)
{
	struct jwrite w;
	size_t i;

	jwrite_init(&w, meta);
	jwrite_object(&w);
	write_asked(e, &w, "requested_model", &e->slots[K_MODEL].val);
	jwrite_key(&w, "requested_sampling_params");
	jwrite_object(&w);
	for (i = 0; i < SAMPLING_NAMES; i++)
		write_asked(e, &w, sampling_names[i], &e->asked[i]);
	jwrite_end_object(&w);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/* A limit that the body itself passes is the body's fault. */
static int
blame(const struct edit *e, int rc, const char **why)
{
	if (rc == SP_E_LIMIT)
		*why = e->s.err == SP_E_LIMIT
		    ? "the request body is nested too deep"
		    : "the request body repeats its members too often";
	else if (rc == SP_E_SYNTAX)
		*why = "the request body is not a valid JSON object";
	return rc == SP_E_LIMIT ? SP_E_SYNTAX : rc;
}

int
llm_request_edit(const struct llm_request_params *p, struct view body,
    struct buf *out, struct llm_wants *wants, struct buf *meta,
    const char **why)
{
	struct edit *e;
	int rc;

	*why = NULL;
	e = mem_calloc(1, sizeof(*e));
	if (e == NULL)
		return SP_E_NOMEM;
	memset(wants, 0, sizeof(*wants));
	e->p = p;
	e->body = body;
	jsplice_init(&e->edits, EDITS_MAX);
	buf_init(&e->added, PUT_MAX);
	buf_init(&e->model, PUT_MAX);
	slots_init(e);
	rc = blame(e, survey(e), why);
	if (rc == 0)
		rc = plan(e, wants);
	if (rc == 0)
		rc = blame(e, rewrite(e), why);
	if (rc == 0)
		rc = write_meta(e, meta);
	if (rc == 0)
		rc = jsplice_apply(&e->edits, e->body, out);
	jsplice_clear(&e->edits);
	buf_clear(&e->added);
	buf_clear(&e->model);
	mem_free(e->members);
	mem_free(e);
	return rc;
}
