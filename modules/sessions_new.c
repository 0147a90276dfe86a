/* A session that is asked for, and the answer. */
#include "config.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/ident.h"
#include "base/mem.h"
#include "json/jwrite.h"
#include "sessions_call.h"

enum {
	BODY_MAX = 64 * 1024,
	SECONDS_MAX = 365 * 24 * 3600,
	COUNT_MAX = INT32_MAX,
	FIELD_MAX = 40,
};

/* ---- reading -------------------------------------------------------------- */

enum field_kind {
	FIELD_ID,
	FIELD_WORD,
	FIELD_COUNT,
	FIELD_SECONDS,
	FIELD_METADATA,
	FIELD_SAMPLING,
	FIELD_BUDGET,
	FIELD_REFUSED,
};

#define MSG(member) offsetof(struct session_msg, member)
static const struct field {
	const char *name;
	enum field_kind kind;
	size_t at, max;
	const char *override; /* must be among `overrides` */
} fields[] = {
	{ "session_id", FIELD_ID, MSG(id), SESSION_MSG_ID_MAX, NULL },
	{ "id", FIELD_ID, MSG(id), SESSION_MSG_ID_MAX, NULL },
	{ "metadata", FIELD_METADATA, MSG(metadata), SESSION_MSG_META_MAX,
	    NULL },
	{ "budget", FIELD_BUDGET, 0, 0, NULL },
	{ "max_model_calls", FIELD_COUNT, MSG(max_calls), COUNT_MAX, NULL },
	{ "max_completion_tokens", FIELD_COUNT, MSG(max_tokens), COUNT_MAX,
	    NULL },
	{ "max_wall_s", FIELD_SECONDS, MSG(max_wall_ms), SECONDS_MAX, NULL },
	{ "purpose", FIELD_WORD, MSG(purpose), SESSION_MSG_WORD_MAX, NULL },
	{ "sampling", FIELD_SAMPLING, MSG(sampling), SESSION_MSG_SAMPLING_MAX,
	    "sampling" },
	{ "upstream", FIELD_WORD, MSG(upstream), SESSION_MSG_NAME_MAX,
	    "upstream" },
	{ "model", FIELD_WORD, MSG(model), SESSION_MSG_MODEL_MAX, "model" },
	{ "capture", FIELD_WORD, MSG(capture), SESSION_MSG_NAME_MAX,
	    "capture" },
	/* where calls go is the configuration's to say, by name */
	{ "llm_url", FIELD_REFUSED, 0, 0, NULL },
	{ "api_key", FIELD_REFUSED, 0, 0, NULL },
	{ "auth_header", FIELD_REFUSED, 0, 0, NULL },
	{ "provider", FIELD_REFUSED, 0, 0, NULL },
	{ "eval_sampling", FIELD_REFUSED, 0, 0, NULL },
};
enum { FIELDS_N = sizeof(fields) / sizeof(fields[0]) };

static int refuse(struct sessions_call *c, const char *fmt, ...)
    printf_like(2, 3);

static int
refuse(struct sessions_call *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	return SP_E_SYNTAX;
}

static bool
allowed(const struct sessions_call *c, const char *word)
{
	size_t i;

	for (i = 0; i < c->conf->overrides.n; i++)
		if (view_eq(c->conf->overrides.v[i], view_str(word)))
			return true;
	return false;
}

static int
take_word(struct sessions_call *c, const struct field *f, struct view v,
    enum jscan_kind kind)
{
	struct view text;

	if (kind != JSCAN_STRING)
		return refuse(c, "%s: expected a string", f->name);
	text = view_sub(v, 1, v.n - 2);
	if (f->kind == FIELD_ID && !ident_good(text))
		return refuse(c,
		    "%s: expected 1 to 128 of A-Z a-z 0-9 _ . -, no leading "
		    "dot",
		    f->name);
	if (text.n == 0 || !session_msg_word(text, f->max))
		return refuse(c,
		    "%s: expected 1 to %zu visible ASCII characters", f->name,
		    f->max);
	if (f->kind == FIELD_ID && c->msg.id.n > 0 && !view_eq(c->msg.id, text))
		return refuse(c, "id, session_id: two different ones");
	*(struct view *)(void *)((char *)&c->msg + f->at) = text;
	return 0;
}

static int
take_number(struct sessions_call *c, const struct field *f,
    const struct jscan *s, const struct jscan_span *v)
{
	uint64_t n;
	int64_t i = 0;
	double d = 0;

	if (v->kind != JSCAN_NUMBER)
		return refuse(c, "%s: expected a number", f->name);
	if (f->kind == FIELD_SECONDS) {
		if (jscan_double(s, v, &d) != 0 || !(d >= 0) ||
		    d > (double)f->max)
			return refuse(c, "%s: expected seconds, 0 to %zu",
			    f->name, f->max);
		n = (uint64_t)(d * 1000);
		if (d > 0 && n == 0)
			n = 1;
	} else {
		if (jscan_i64(s, v, &i) != 0 || i < 0 || (uint64_t)i > f->max)
			return refuse(c,
			    "%s: expected a whole number, 0 to %zu", f->name,
			    f->max);
		n = (uint64_t)i;
	}
	memcpy((char *)&c->msg + f->at, &n, sizeof(n));
	return 0;
}

/* Two members of one name: which of them counts is anybody's guess. */
static bool
has_twins(struct view object)
{
	struct jscan_span key, before, v;
	struct jscan s, again;

	jscan_init(&s, object, 0);
	if (jscan_enter(&s) != 0)
		return false;
	while (jscan_member(&s, &key) == 1) {
		jscan_init(&again, object, 0);
		if (jscan_enter(&again) != 0)
			return false;
		while (jscan_member(&again, &before) == 1 &&
		    before.start < key.start) {
			if (view_eq(jscan_text(&again, &before),
				jscan_text(&s, &key)))
				return true;
			if (jscan_skip(&again, &v) != 0)
				return false;
		}
		if (jscan_skip(&s, &v) != 0)
			return false;
	}
	return false;
}

/* What the configuration's `sampling` may not set either. */
static int
check_reserved(struct sessions_call *c, const struct field *f,
    const struct conf_sampling *v, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (conf_sampling_reserved(v[i].name))
			return refuse(c, "%s: %.*s is not for it to set",
			    f->name, VIEW_ARG(v[i].name));
	return 0;
}

/* Made strict on one line; c->text has room, so that it does not move. */
static int
take_json(struct sessions_call *c, const struct field *f, struct view v,
    enum jscan_kind kind)
{
	struct conf_sampling *sampling = NULL;
	size_t n, before = buf_len(&c->text);
	struct view strict;
	struct jwrite w;
	int rc;

	if (kind != JSCAN_OBJECT)
		return refuse(c, "%s: expected an object", f->name);
	jwrite_init(&w, &c->text);
	jwrite_span(&w, v);
	rc = jwrite_finish(&w);
	strict = view_from(buf_view(&c->text), before);
	if (rc == SP_E_NOMEM)
		return rc;
	if (rc != 0 || strict.n > f->max)
		return refuse(c, "%s: expected at most %zu bytes of JSON",
		    f->name, f->max);
	if (w.nonfinite > 0)
		return refuse(c, "%s: NaN and infinity are not JSON", f->name);
	if (has_twins(strict))
		return refuse(c, "%s: a member stands there twice", f->name);
	if (f->kind == FIELD_SAMPLING) {
		rc = roster_sampling(strict, &sampling, &n);
		if (rc == SP_E_SYNTAX)
			rc = refuse(c, "%s: expected numbers by name", f->name);
		else if (rc == 0)
			rc = check_reserved(c, f, sampling, n);
		mem_free(sampling);
		if (rc != 0)
			return rc;
	}
	memcpy((char *)&c->msg + f->at, &strict, sizeof(strict));
	return 0;
}

static int take_object(struct sessions_call *c, struct view text, bool budget);

static int
take_field(struct sessions_call *c, const struct field *f,
    const struct jscan *s, const struct jscan_span *v)
{
	struct view raw = jscan_raw(s, v);
	uint32_t bit = (uint32_t)1 << (f - fields);

	if ((c->seen & bit) != 0)
		return refuse(c, "%s: it stands there twice", f->name);
	c->seen |= bit;
	if (v->kind == JSCAN_NULL)
		return 0;
	if (f->override != NULL && !allowed(c, f->override))
		return refuse(c,
		    "%s: not to be chosen here: the configuration says so in "
		    "`overrides`",
		    f->name);
	switch (f->kind) {
	case FIELD_ID:
	case FIELD_WORD:
		return take_word(c, f, raw, v->kind);
	case FIELD_COUNT:
	case FIELD_SECONDS:
		return take_number(c, f, s, v);
	case FIELD_METADATA:
	case FIELD_SAMPLING:
		return take_json(c, f, raw, v->kind);
	case FIELD_BUDGET:
		if (v->kind != JSCAN_OBJECT)
			return refuse(c, "budget: expected an object");
		return take_object(c, raw, true);
	case FIELD_REFUSED:
		break;
	}
	return refuse(c,
	    "%s: not taken here: name an upstream of the configuration",
	    f->name);
}

static int
take_member(struct sessions_call *c, struct jscan *s,
    const struct jscan_span *key, bool budget)
{
	struct jscan_span v;
	struct view name = jscan_text(s, key);
	size_t i;
	int rc = jscan_skip(s, &v);

	if (rc != 0)
		return refuse(c, "the body is not JSON");
	for (i = 0; i < FIELDS_N; i++) {
		bool bound = fields[i].kind == FIELD_COUNT ||
		    fields[i].kind == FIELD_SECONDS;

		if ((bound || !budget) &&
		    jscan_is(s, key, view_str(fields[i].name)))
			return take_field(c, &fields[i], s, &v);
	}
	name = view_sub(name, 0, FIELD_MAX);
	return refuse(c, "%s%.*s: no such field", budget ? "budget." : "",
	    session_msg_word(name, FIELD_MAX) ? (int)name.n : 0, name.p);
}

static int
take_object(struct sessions_call *c, struct view text, bool budget)
{
	struct jscan_span key;
	struct jscan s;
	int rc;

	jscan_init(&s, text, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT || jscan_enter(&s) != 0)
		return refuse(c, "the body is not a JSON object");
	while ((rc = jscan_member(&s, &key)) == 1) {
		rc = take_member(c, &s, &key, budget);
		if (rc != 0)
			return rc;
	}
	if (rc != 0 || jscan_finish(&s) != 0)
		return refuse(c, "the body is not JSON");
	return 0;
}

/* ---- the session ---------------------------------------------------------- */

static bool
good_purpose(struct view v)
{
	return v.n == 0 || view_eq(v, VIEW("auto")) ||
	    view_eq(v, VIEW("train")) || view_eq(v, VIEW("eval"));
}

/* What is named is there; what is not named is filled in. */
static int
complete(struct sessions_call *c)
{
	const struct conf_capture *capture = c->conf->capture;
	struct session_msg *m = &c->msg;

	if (m->capture.n > 0)
		capture = session_capture(c->r, m->capture);
	else if (capture == NULL)
		capture = session_capture(c->r, VIEW_NONE);
	if (capture == NULL)
		return refuse(c,
		    "capture: no block \"capture %.*s\" in the configuration",
		    m->capture.n > 0 ? (int)m->capture.n : 4,
		    m->capture.n > 0 ? m->capture.p : "NAME");
	if (view_search(capture->trace_name, VIEW("$session")) ==
	    capture->trace_name.n)
		return refuse(c,
		    "capture: \"%.*s\" mixes sessions in one trace: it needs "
		    "$session in its `trace`, or choose another",
		    VIEW_ARG(capture->name));
	m->capture = capture->name;
	if (m->upstream.n > 0 && session_upstream(c->r, m->upstream) == NULL)
		return refuse(c,
		    "upstream: no block \"upstream %.*s\" in the "
		    "configuration",
		    VIEW_ARG(m->upstream));
	if (!good_purpose(m->purpose))
		return refuse(c, "purpose: expected auto, train or eval");
	return 0;
}

static int
make_id(struct sessions_call *c)
{
	char id[SESSIONS_ID_CHARS + 3] = "s-";
	size_t before = buf_len(&c->text);
	int rc;

	session_token(id + 2, SESSIONS_ID_CHARS);
	rc = buf_add(&c->text, id, SESSIONS_ID_CHARS + 2);
	c->msg.id = view_from(buf_view(&c->text), before);
	return rc;
}

int
sessions_new_read(struct sessions_call *c)
{
	struct view body = view_trim(buf_view(&c->r->body));
	int rc = 0;

	if (body.n > BODY_MAX)
		return refuse(c, "the body is longer than %d bytes", BODY_MAX);
	buf_init(&c->text, (size_t)4 * BODY_MAX);
	if (buf_reserve(&c->text, (size_t)4 * BODY_MAX) != 0)
		return SP_E_NOMEM;
	if (body.n > 0)
		rc = take_object(c, body, false);
	if (rc == 0)
		rc = complete(c);
	if (rc == 0 && c->msg.id.n == 0)
		rc = make_id(c);
	if (rc != 0)
		return rc;
	(void)snprintf(c->key, sizeof(c->key), "sk-sp-");
	session_token(c->key + 6, SESSIONS_KEY_CHARS);
	c->msg.created_us = clock_wall_us();
	return roster_digest(view_str(c->key), c->msg.key);
}

/* ---- the answer ----------------------------------------------------------- */

/* Whether paths of that door hold a session's id: its `session_path`. */
static bool
door_names_session(const struct conf_location *l)
{
	const struct conf_directive *row = l->handler->directives;
	unsigned at = 0;

	while (conf_modules[at] != NULL && conf_modules[at] != l->handler)
		at++;
	for (; row->name != NULL && conf_modules[at] != NULL; row++)
		if (strcmp(row->name, "session_path") == 0)
			return *(
			    const bool *)((const char *)l->module_conf[at] +
			    row->offset);
	return false;
}

/* The model door of that server; NULL: it has none. */
static const struct conf_location *
door_of(const struct conf_server *server)
{
	size_t i;

	for (i = 0; i < server->locations_n; i++)
		if (strcmp(server->locations[i]->handler->name,
			"llm_intercept") == 0)
			return server->locations[i];
	return NULL;
}

/* The same server's; for the control socket, which has none, the first. */
static const struct conf_location *
own_door(const struct sessions_call *c)
{
	const struct conf *conf = gate_conf(c->r->gate);
	const struct conf_location *l = door_of(c->r->location->server);
	size_t i;

	if (l != NULL || !c->r->location->server->control)
		return l;
	for (i = 0; i < conf->servers_n && l == NULL; i++)
		l = door_of(conf->servers[i]);
	return l;
}

/* The door's path, or what the configuration names instead. */
static int
put_door_path(const struct sessions_call *c, struct buf *out)
{
	const struct conf_location *l;
	int rc;

	if (c->conf->door.n > 0)
		return buf_add_view(out, c->conf->door);
	l = own_door(c);
	if (l == NULL)
		return SP_E_NOTFOUND;
	if (!door_names_session(l))
		return buf_add_view(out, l->path);
	rc = view_eq(l->path, VIEW("/")) ? 0 : buf_add_view(out, l->path);
	return rc == 0 ? buf_add_str(out, "/$session/v1") : rc;
}

/* The door with $session put in. */
static int
put_door(const struct sessions_call *c, struct view door, struct buf *out)
{
	const struct view mark = VIEW("$session");
	size_t at;
	int rc = 0;

	while (rc == 0 && door.n > 0) {
		at = view_search(door, mark);
		rc = buf_add_view(out, view_sub(door, 0, at));
		if (rc == 0 && at < door.n)
			rc = buf_add_view(out, c->msg.id);
		door = view_from(door, at + mark.n);
	}
	return rc;
}

/* Where a server is, for who did not ask it: its name, or its address. */
static int
put_address(const struct sessions_call *c, struct buf *out)
{
	const struct conf_location *door = own_door(c);
	const struct conf_server *s;
	const struct conf_listen *l;
	struct view host;
	size_t i = 0;

	if (door == NULL)
		return SP_E_NOTFOUND;
	s = door->server;
	while (i < s->listens_n && s->listens[i].is_unix)
		i++;
	if (i == s->listens_n)
		return SP_E_NOTFOUND;
	l = &s->listens[i];
	host = l->address;
	if (s->server_names.n > 0)
		host = s->server_names.v[0];
	else if (view_eq(host, VIEW("*")) || view_eq(host, VIEW("0.0.0.0")) ||
	    view_eq(host, VIEW("::")))
		host = VIEW("localhost");
	if (l->port == 0) /* the kernel's choice */
		return SP_E_NOTFOUND;
	return buf_printf(out,
	    view_find(host, ':') < host.n ? "%s://[%.*s]:%u" : "%s://%.*s:%u",
	    l->ssl ? "https" : "http", VIEW_ARG(host), l->port);
}

/* A path is on the host that was asked. */
static int
put_host(const struct sessions_call *c, struct buf *out)
{
	const struct head_request *q = &c->r->x->request;

	if (c->r->location->server->control)
		return put_address(c, out);
	if (q->authority.n == 0)
		return SP_E_NOTFOUND;
	return buf_printf(out, "%s://%.*s", q->tls ? "https" : "http",
	    VIEW_ARG(q->authority));
}

static void
put_base_url(const struct sessions_call *c, struct jwrite *w)
{
	struct buf url = BUF_INIT(4096), path = BUF_INIT(4096);
	int rc = put_door_path(c, &path);
	struct view door = buf_view(&path);

	if (rc == 0 && view_starts(door, VIEW("/")))
		rc = put_host(c, &url);
	if (rc == 0)
		rc = put_door(c, door, &url);
	jwrite_key(w, "base_url");
	if (rc == 0)
		jwrite_string(w, buf_view(&url));
	else
		jwrite_null(w);
	buf_clear(&path);
	buf_clear(&url);
}

int
sessions_new_answer(struct sessions_call *c, struct view doc, struct buf *out)
{
	struct jscan_span key, v;
	struct jwrite w;
	struct jscan s;
	char name[64];
	int rc;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "key");
	jwrite_cstr(&w, c->key);
	put_base_url(c, &w);
	jscan_init(&s, doc, 0);
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1) {
		struct view k = jscan_text(&s, &key);

		rc = jscan_skip(&s, &v);
		if (rc != 0 || key.escaped || k.n >= sizeof(name))
			return SP_E_SYNTAX;
		memcpy(name, k.p, k.n);
		name[k.n] = '\0';
		jwrite_key(&w, name);
		jwrite_span(&w, jscan_raw(&s, &v));
	}
	jwrite_end_object(&w);
	return rc != 0 ? rc : jwrite_finish(&w);
}
