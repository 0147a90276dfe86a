#include "config.h"

#include "base/log.h"
#include "base/mem.h"
#include "crypt/digest.h"
#include "gate/roster_priv.h"
#include "json/jscan.h"

enum {
	ROSTER_MAX = 200000,
	ROSTER_TEXTS = 7,
	ROSTER_SAMPLING_MAX = 32,
};

_Static_assert((int)SESSION_MSG_KEY == (int)DIGEST_BYTES, "digests fit");

static struct view
roster_key_view(const struct roster_session *s)
{
	return view_of(s->m.key, sizeof(s->m.key));
}

/* ---- sampling ------------------------------------------------------------- */

static int
roster_sampling_one(struct jscan *s, struct conf_sampling *out)
{
	struct jscan_span key, v;
	int rc = jscan_member(s, &key);

	if (rc != 1)
		return rc;
	rc = jscan_skip(s, &v);
	if (rc != SP_OK)
		return rc;
	if (v.kind != JSCAN_NUMBER || key.escaped || key.end - key.start < 3 ||
	    key.end - key.start > CONF_NAME_MAX)
		return SP_E_SYNTAX;
	out->name = jscan_text(s, &key);
	out->value = jscan_raw(s, &v);
	return 1;
}

int
roster_sampling(struct view json, struct conf_sampling **out, size_t *n)
{
	struct conf_sampling *v;
	struct jscan s;
	int rc;

	*out = NULL;
	*n = 0;
	if (json.n == 0)
		return SP_OK;
	jscan_init(&s, json, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_enter(&s);
	if (rc != SP_OK)
		return rc;
	v = mem_calloc(ROSTER_SAMPLING_MAX + 1, sizeof(*v));
	if (v == NULL)
		return SP_E_NOMEM;
	while (*n <= ROSTER_SAMPLING_MAX &&
	    (rc = roster_sampling_one(&s, &v[*n])) == 1)
		++*n;
	if (*n > ROSTER_SAMPLING_MAX)
		rc = SP_E_SYNTAX;
	if (rc == SP_OK)
		rc = jscan_finish(&s);
	if (rc != SP_OK) {
		mem_free(v);
		*n = 0;
		return rc;
	}
	*out = v;
	return SP_OK;
}

/* ---- sessions ------------------------------------------------------------- */

bool
roster_ready(const struct roster *o)
{
	return o->ready;
}

size_t
roster_count(const struct roster *o)
{
	return hmap_count(o->by_id);
}

void
roster_each(const struct roster *o,
    void (*fn)(void *arg, const struct roster_session *s), void *arg)
{
	const struct roster_session *s;

	LIST_FOREACH (s, &o->sessions, link)
		fn(arg, s);
}

struct roster_session *
roster_find(const struct roster *o, struct view id)
{
	return id.n > 0 ? hmap_get(o->by_id, id) : NULL;
}

int
roster_digest(struct view key, uint8_t out[SESSION_MSG_KEY])
{
	return digest_sha256(key, out);
}

struct roster_session *
roster_by_key(const struct roster *o, struct view key, bool *ended)
{
	uint8_t sum[SESSION_MSG_KEY];
	struct view digest = view_of(sum, sizeof(sum));
	bool past = ended != NULL && hmap_count(o->ended) > 0;

	if (ended != NULL)
		*ended = false;
	if ((hmap_count(o->by_key) == 0 && !past) ||
	    roster_digest(key, sum) != SP_OK)
		return NULL;
	if (past)
		*ended = hmap_get(o->ended, digest) != NULL;
	return hmap_get(o->by_key, digest);
}

bool
roster_knows(const struct roster *o, struct view key)
{
	bool ended;

	return roster_by_key(o, key, &ended) != NULL || ended;
}

static void
roster_session_free(struct roster_session *s)
{
	mem_free(s->sampling);
	mem_free(s->text);
	mem_free(s);
}

static struct roster_session *
roster_session_new(const struct session_msg *m)
{
	struct roster_session *s = mem_calloc(1, sizeof(*s));
	struct view *v[ROSTER_TEXTS];
	size_t i, n = 1;
	char *p;

	if (s == NULL)
		return NULL;
	s->m = *m;
	v[0] = &s->m.id;
	v[1] = &s->m.capture;
	v[2] = &s->m.upstream;
	v[3] = &s->m.model;
	v[4] = &s->m.purpose;
	v[5] = &s->m.sampling;
	v[6] = &s->m.metadata;
	s->m.metadata = VIEW_NONE; /* the recorder's matter */
	for (i = 0; i < ROSTER_TEXTS; i++)
		n += v[i]->n;
	p = s->text = mem_alloc(n);
	if (p == NULL) {
		mem_free(s);
		return NULL;
	}
	for (i = 0; i < ROSTER_TEXTS; i++) {
		if (v[i]->n > 0)
			memcpy(p, v[i]->p, v[i]->n);
		v[i]->p = p;
		p += v[i]->n;
	}
	return s;
}

static int
roster_add(struct roster *o, const struct session_msg *m)
{
	struct roster_session *s = roster_session_new(m);
	int rc;

	if (s == NULL)
		return SP_E_NOMEM;
	LIST_INIT(&s->uses);
	s->seen = true;
	rc = roster_sampling(s->m.sampling, &s->sampling, &s->sampling_n);
	if (rc == SP_OK)
		rc = hmap_add(o->by_key, roster_key_view(s), s);
	if (rc != SP_OK) {
		roster_session_free(s);
		return rc;
	}
	rc = hmap_add(o->by_id, s->m.id, s);
	if (rc != SP_OK) {
		(void)hmap_del(o->by_key, roster_key_view(s));
		roster_session_free(s);
		return rc;
	}
	LIST_INSERT_HEAD(&o->sessions, s, link);
	return SP_OK;
}

int
roster_put(struct roster *o, const struct session_msg *m)
{
	struct roster_session *s = roster_find(o, m->id);

	if (s == NULL)
		return roster_add(o, m);
	s->seen = true;
	/* neither side forgets what was used */
	if (m->calls > s->m.calls)
		s->m.calls = m->calls;
	if (m->tokens > s->m.tokens)
		s->m.tokens = m->tokens;
	return SP_OK;
}

/*
 * Where keys are open, one that is not remembered would be anybody's: the
 * oldest are forgotten when there are too many, others without memory alone.
 */
static void
roster_remember(struct roster *o, struct view key)
{
	uint8_t *slot = o->ended_keys[o->ended_n % ROSTER_ENDED_MAX];

	if (hmap_get(o->ended, key) != NULL)
		return;
	if (o->ended_n >= ROSTER_ENDED_MAX)
		(void)hmap_del(o->ended, view_of(slot, SESSION_MSG_KEY));
	memcpy(slot, key.p, SESSION_MSG_KEY);
	if (hmap_set(o->ended, key, slot) != SP_OK)
		log_error("the key of an ended session is not remembered: %s",
		    err_str(SP_E_NOMEM));
	o->ended_n++;
}

void
roster_end(struct roster *o, struct roster_session *s)
{
	struct roster_use *u;

	roster_remember(o, roster_key_view(s));
	(void)hmap_del(o->by_key, roster_key_view(s));
	(void)hmap_del(o->by_id, s->m.id);
	LIST_REMOVE(s, link);
	while ((u = LIST_FIRST(&s->uses)) != NULL) {
		roster_detach(u);
		if (u->closed != NULL)
			u->closed(u->arg);
	}
	roster_session_free(s);
}

void
roster_attach(struct roster_session *s, struct roster_use *u)
{
	u->session = s;
	LIST_INSERT_HEAD(&s->uses, u, link);
}

void
roster_detach(struct roster_use *u)
{
	if (u->session == NULL)
		return;
	u->session = NULL;
	LIST_REMOVE(u, link);
}

enum roster_budget
roster_spent(const struct roster_session *s, uint64_t now_us)
{
	const struct session_msg *m = &s->m;

	if (m->max_calls > 0 && m->calls >= m->max_calls)
		return ROSTER_CALLS;
	if (m->max_tokens > 0 && m->tokens >= m->max_tokens)
		return ROSTER_TOKENS;
	if (m->max_wall_ms > 0 && now_us > m->created_us &&
	    (now_us - m->created_us) / 1000 >= m->max_wall_ms)
		return ROSTER_WALL;
	return ROSTER_LEFT;
}

const char *
roster_budget_name(enum roster_budget b)
{
	switch (b) {
	case ROSTER_CALLS:
		return "model_calls";
	case ROSTER_TOKENS:
		return "completion_tokens";
	case ROSTER_WALL:
		return "wall";
	case ROSTER_LEFT:
		break;
	}
	return NULL;
}

void
roster_used(struct roster *o, struct view id, uint64_t tokens)
{
	struct roster_session *s = roster_find(o, id);

	if (s != NULL)
		s->m.tokens += tokens;
}

/* ---- the recorder --------------------------------------------------------- */

static int
roster_on_session(struct roster *o, struct view body)
{
	struct session_msg m;
	struct wire w;
	int rc;

	wire_init(&w, body);
	session_msg_get(&w, &m);
	if (wire_done(&w) != SP_OK || m.id.n == 0)
		return SP_E_PROTO;
	rc = roster_put(o, &m);
	if (rc != SP_OK)
		log_error("session %.*s: its key opens nothing here: %s",
		    VIEW_ARG(m.id), err_str(rc));
	return SP_OK;
}

/* Keys of sessions that ended, also before this reactor was. */
static int
roster_on_past(struct roster *o, struct view body)
{
	size_t at;

	if (body.n % SESSION_MSG_KEY != 0)
		return SP_E_PROTO;
	for (at = 0; at < body.n; at += SESSION_MSG_KEY)
		roster_remember(o, view_sub(body, at, SESSION_MSG_KEY));
	return SP_OK;
}

/* What the recorder does not know (any more) is over. */
static int
roster_on_replay_done(struct roster *o)
{
	struct roster_session *s, *next;

	for (s = LIST_FIRST(&o->sessions); s != NULL; s = next) {
		next = LIST_NEXT(s, link);
		if (!s->seen)
			roster_end(o, s);
	}
	o->ready = true;
	return SP_OK;
}

/* It was ended, whoever asked for that. */
static int
roster_on_over(struct roster *o, struct view body)
{
	struct roster_session *s;
	struct view id;
	struct wire w;

	wire_init(&w, body);
	id = wire_bytes(&w);
	if (wire_done(&w) != SP_OK)
		return SP_E_PROTO;
	s = roster_find(o, id);
	if (s != NULL)
		roster_end(o, s);
	return SP_OK;
}

static int
roster_message(void *arg, struct channel_msg *m)
{
	struct roster *o = arg;

	switch (m->type) {
	case MESSAGE_SESSION:
		return roster_on_session(o, m->body);
	case MESSAGE_SESSION_PAST:
		return roster_on_past(o, m->body);
	case MESSAGE_REPLAY_DONE:
		return roster_on_replay_done(o);
	case MESSAGE_SESSION_OVER:
		return roster_on_over(o, m->body);
	case MESSAGE_SESSION_REPLY:
	case MESSAGE_TRACE_FILE:
		return roster_ask_message(o, m);
	default:
		return SP_E_PROTO;
	}
}

/* No recorder: open sessions stay what they were until the next one tells. */
static void
roster_down(void *arg)
{
	struct roster *o = arg;
	struct roster_session *s;

	o->ready = false;
	LIST_FOREACH (s, &o->sessions, link)
		s->seen = false;
	roster_ask_down(o);
}

struct roster *
roster_new(struct loop *l, struct recorder *r)
{
	const struct turn_other other = { roster_message, roster_down, NULL };
	struct roster *o = mem_calloc(1, sizeof(*o));
	struct turn_other mine = other;

	if (o == NULL)
		return NULL;
	o->loop = l;
	o->recorder = r;
	LIST_INIT(&o->sessions);
	o->by_id = hmap_new(ROSTER_MAX);
	o->by_key = hmap_new(ROSTER_MAX);
	o->ended = hmap_new(ROSTER_ENDED_MAX);
	o->ended_keys = mem_calloc(ROSTER_ENDED_MAX, sizeof(*o->ended_keys));
	if (o->by_id == NULL || o->by_key == NULL || o->ended == NULL ||
	    o->ended_keys == NULL || roster_ask_init(o) != SP_OK) {
		roster_free(o);
		return NULL;
	}
	mine.arg = o;
	turn_recorder_other(r, &mine);
	return o;
}

void
roster_free(struct roster *o)
{
	struct roster_session *s;

	if (o == NULL)
		return;
	turn_recorder_other(o->recorder, NULL);
	roster_ask_clear(o);
	while ((s = LIST_FIRST(&o->sessions)) != NULL) {
		struct roster_use *u;

		while ((u = LIST_FIRST(&s->uses)) != NULL)
			roster_detach(u);
		LIST_REMOVE(s, link);
		roster_session_free(s);
	}
	hmap_free(o->by_id);
	hmap_free(o->by_key);
	hmap_free(o->ended);
	mem_free(o->ended_keys);
	mem_free(o);
}
