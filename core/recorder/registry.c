#include "config.h"

#include <string.h>

#include "base/clock.h"
#include "base/ident.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/jwrite.h"
#include "recorder/finding.h"
#include "os/fd.h"
#include "recorder/journal.h"
#include "recorder/registry.h"

enum {
	FLUSH_MS = 500, /* what no budget hangs on may wait so long */
	PAGE_BYTES = MESSAGE_BULK_MAX - 1024,
	TEXTS = 7,
};

/* ---- the sessions --------------------------------------------------------- */

struct registry_session *
registry_find(const struct registry *r, struct view id)
{
	return id.n > 0 ? hmap_get(r->by_id, id) : NULL;
}

static const struct conf_capture *
capture_of(const struct registry *r, struct view name)
{
	const struct conf *c = r->store->conf;
	size_t i;

	for (i = 0; i < c->captures_n; i++)
		if (view_eq(c->captures[i]->name, name))
			return c->captures[i];
	return NULL;
}

/* The file is there, and the disk may have room for its seal one day. */
static bool
may_seal_later(int rc)
{
	return rc != 0 && rc != SP_E_NOTFOUND;
}

static void
session_free(struct registry_session *s)
{
	mem_free(s->text);
	mem_free(s);
}

void
registry_remove(struct registry *r, struct registry_session *s)
{
	if (r->replay == s)
		r->replay = TAILQ_NEXT(s, link);
	if (s->dirty)
		TAILQ_REMOVE(&r->dirty, s, dirty_link);
	if (s->closing) {
		TAILQ_REMOVE(&r->closing, s, closing_link);
		store_put(r->store, s->trace);
	}
	if (s->unsealed)
		TAILQ_REMOVE(&r->unsealed, s, closing_link);
	if (s->ended_us == 0)
		r->open_n--;
	TAILQ_REMOVE(&r->sessions, s, link);
	(void)hmap_del(r->by_id, s->m.id);
	session_free(s);
}

/* The oldest one that is over makes room; false: there is none. */
static bool
make_room(struct registry *r)
{
	struct registry_session *s;

	if (hmap_count(r->by_id) < REGISTRY_MAX)
		return true;
	TAILQ_FOREACH (s, &r->sessions, link)
		if (s->ended_us != 0 && !s->closing) {
			registry_remove(r, s);
			return true;
		}
	return false;
}

/* Copies of the texts, in one piece of memory. */
static int
copy_texts(struct registry_session *s, const struct session_msg *m)
{
	struct view *v[TEXTS] = { &s->m.id, &s->m.capture, &s->m.upstream,
		&s->m.model, &s->m.purpose, &s->m.sampling, &s->m.metadata };
	size_t i, n = 1;
	char *p;

	s->m = *m;
	for (i = 0; i < TEXTS; i++)
		n += v[i]->n;
	p = s->text = mem_alloc(n);
	if (p == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < TEXTS; i++) {
		if (v[i]->n > 0)
			memcpy(p, v[i]->p, v[i]->n);
		v[i]->p = p;
		p += v[i]->n;
	}
	return 0;
}

struct registry_session *
registry_add(struct registry *r, const struct session_msg *m)
{
	struct registry_session *s;

	if (!make_room(r))
		return NULL;
	s = mem_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->last_us = m->created_us;
	if (copy_texts(s, m) != 0 || hmap_add(r->by_id, s->m.id, s) != 0) {
		session_free(s);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&r->sessions, s, link);
	r->open_n++;
	/* the reactor is told in the order of creation, this one last */
	if (r->replaying && r->replay == NULL)
		r->replay = s;
	return s;
}

static void
stray_free(struct registry *r, struct registry_stray *one)
{
	store_put(r->store, one->trace);
	TAILQ_REMOVE(&r->strays, one, link);
	mem_free(one);
}

/* Those whose turns are over, or late. */
static void
seal_strays(struct registry *r, uint64_t now_ms)
{
	struct registry_stray *one, *next;
	int rc;

	for (one = TAILQ_FIRST(&r->strays); one != NULL; one = next) {
		next = TAILQ_NEXT(one, link);
		if (now_ms < one->again_ms ||
		    (one->trace->refs > 1 && now_ms < one->until_ms))
			continue;
		rc = trace_sealed(one->trace)
		    ? 0
		    : trace_seal(one->trace, r->store->signer, "end");
		if (rc != 0 && one->again_ms == 0)
			log_error("trace %s: cannot write the seal: %s",
			    one->trace->name, err_str(rc));
		one->again_ms = clock_ms() + REGISTRY_AGAIN_MS;
		if (may_seal_later(rc))
			continue;
		stray_free(r, one);
	}
}

/* Sessions that ended when no seal could be written. */
static void
seal_again(struct registry *r, uint64_t now_ms)
{
	const struct conf_capture *c;
	struct registry_session *s;
	struct registry_list left;
	int rc;

	if (now_ms < r->again_ms)
		return;
	r->again_ms = clock_ms() + REGISTRY_AGAIN_MS;
	TAILQ_INIT(&left);
	TAILQ_CONCAT(&left, &r->unsealed, closing_link);
	while ((s = TAILQ_FIRST(&left)) != NULL) {
		TAILQ_REMOVE(&left, s, closing_link);
		c = capture_of(r, s->m.capture);
		rc = c != NULL ? store_seal_stale(r->store, c, s->m.id, "end")
			       : 0;
		s->unsealed = may_seal_later(rc);
		if (!s->unsealed)
			continue;
		TAILQ_INSERT_TAIL(&r->unsealed, s, closing_link);
		/* at the end each is tried, else the others come first */
		if (now_ms != UINT64_MAX)
			break;
	}
	TAILQ_CONCAT(&left, &r->unsealed, closing_link);
	TAILQ_CONCAT(&r->unsealed, &left, closing_link);
}

void
registry_ended(struct registry *r, struct registry_session *s,
    struct view outcome, uint64_t at_us)
{
	size_t n =
	    outcome.n < SESSION_MSG_WORD_MAX ? outcome.n : SESSION_MSG_WORD_MAX;

	if (s->ended_us == 0)
		r->open_n--;
	s->ended_us = at_us > 0 ? at_us : 1;
	if (n > 0)
		memcpy(s->outcome, outcome.p, n);
	s->outcome[n] = '\0';
}

int
registry_init(struct registry *r, struct store *store, int dir)
{
	int rc;

	*r = (struct registry){ .store = store, .dir = dir, .fd = -1 };
	TAILQ_INIT(&r->sessions);
	TAILQ_INIT(&r->dirty);
	TAILQ_INIT(&r->closing);
	TAILQ_INIT(&r->unsealed);
	TAILQ_INIT(&r->strays);
	buf_init(&r->line, (size_t)4 * MESSAGE_CONTROL_MAX);
	r->by_id = hmap_new(REGISTRY_MAX);
	rc = r->by_id != NULL ? journal_open(r) : SP_E_NOMEM;
	if (rc != 0)
		registry_clear(r);
	return rc;
}

void
registry_clear(struct registry *r)
{
	struct registry_stray *one;
	struct registry_session *s;

	if (r->by_id == NULL)
		return;
	seal_strays(r, UINT64_MAX);
	while ((one = TAILQ_FIRST(&r->strays)) != NULL)
		stray_free(r, one);
	registry_flush(r, true);
	while ((s = TAILQ_FIRST(&r->sessions)) != NULL)
		registry_remove(r, s);
	hmap_free(r->by_id);
	r->by_id = NULL;
	buf_clear(&r->line);
	fd_close(&r->fd);
}

static void
seal_stale(struct registry *r, const struct conf_capture *c, struct view id)
{
	int rc = store_seal_stale(r->store, c, id, "shutdown");

	if (rc != 0)
		log_error("trace of session %.*s: cannot write the seal: %s",
		    VIEW_ARG(id), err_str(rc));
}

void
registry_seal(struct registry *r, uint64_t until_ms)
{
	const struct conf *c = r->store->conf;
	struct registry_session *s;
	size_t i;

	for (i = 0; i < c->captures_n; i++)
		seal_stale(r, c->captures[i], VIEW("default"));
	TAILQ_FOREACH (s, &r->sessions, link) {
		if (s->ended_us != 0)
			continue;
		if (clock_ms() >= until_ms) {
			log_warn("no time left to look at the seals of all "
				 "open sessions");
			return;
		}
		for (i = 0; i < c->captures_n; i++)
			if (view_eq(c->captures[i]->name, s->m.capture))
				seal_stale(r, c->captures[i], s->m.id);
	}
}

/* ---- what the API shows --------------------------------------------------- */

static void
put_text(struct jwrite *w, const char *key, struct view v)
{
	jwrite_key(w, key);
	if (v.n > 0)
		jwrite_string(w, v);
	else
		jwrite_null(w);
}

static void
put_json(struct jwrite *w, const char *key, struct view v)
{
	jwrite_key(w, key);
	if (v.n > 0)
		jwrite_span(w, v);
	else
		jwrite_null(w);
}

static void
put_number(struct jwrite *w, const char *key, uint64_t v)
{
	jwrite_key(w, key);
	jwrite_u64(w, v);
}

static void
put_seconds(struct jwrite *w, const char *key, uint64_t us)
{
	jwrite_key(w, key);
	if (us > 0)
		jwrite_double(w, (double)us / 1e6);
	else
		jwrite_null(w);
}

static void
write_asked(const struct registry *r, const struct registry_session *s,
    struct jwrite *w)
{
	static const char *const levels[] = {
		[CONF_LEVEL_TEXT] = "text",
		[CONF_LEVEL_LOGPROBS] = "logprobs",
		[CONF_LEVEL_TOKENS] = "tokens",
	};
	const struct conf_capture *c = capture_of(r, s->m.capture);
	struct buf name = BUF_INIT(TRACE_NAME_MAX);

	put_text(w, "capture", s->m.capture);
	jwrite_key(w, "capture_level");
	jwrite_cstr(w, c != NULL ? levels[c->level] : NULL);
	if (c != NULL && store_file_name(c, s->m.id, &name) != 0)
		buf_reset(&name, 0);
	put_text(w, "trace", buf_view(&name));
	buf_clear(&name);
	put_text(w, "upstream", s->m.upstream);
	put_text(w, "model", s->m.model);
	put_text(w, "purpose", s->m.purpose);
	put_json(w, "sampling", s->m.sampling);
	put_json(w, "metadata", s->m.metadata);
	put_number(w, "max_model_calls", s->m.max_calls);
	put_number(w, "max_completion_tokens", s->m.max_tokens);
	jwrite_key(w, "max_wall_s");
	jwrite_double(w, (double)s->m.max_wall_ms / 1e3);
}

static void
write_used(const struct registry_session *s, struct jwrite *w)
{
	uint64_t now = clock_wall_us();
	const struct finding_row *rows;
	size_t i, n;

	put_number(w, "model_calls", s->m.calls);
	put_number(w, "completion_tokens", s->m.tokens);
	put_number(w, "budget_stop_count", s->budget_stops);
	put_number(w, "n_turns", s->turns);
	put_number(w, "n_complete", s->complete);
	put_number(w, "n_trainable", jtrain_count(&s->train));
	put_number(w, "upstream_errors", s->errors);
	rows = finding_rows(&n);
	jwrite_key(w, "findings");
	jwrite_array(w);
	for (i = 0; i < n; i++)
		if ((s->findings & rows[i].bit) != 0)
			jwrite_cstr(w, rows[i].code);
	jwrite_end_array(w);
	put_seconds(w, "created_at", s->m.created_us);
	put_seconds(w, "last_activity_at", s->last_us);
	put_seconds(w, "ended_at", s->ended_us);
	jwrite_key(w, "idle_s");
	jwrite_double(w,
	    now > s->last_us ? (double)(now - s->last_us) / 1e6 : 0);
}

void
registry_write(const struct registry *r, const struct registry_session *s,
    struct jwrite *w)
{
	jwrite_object(w);
	put_text(w, "session_id", s->m.id);
	jwrite_key(w, "state");
	jwrite_cstr(w, s->ended_us != 0 ? "ended" : "open");
	put_text(w, "outcome", view_str(s->outcome));
	write_asked(r, s, w);
	write_used(s, w);
	jwrite_end_object(w);
}

/* ---- answers -------------------------------------------------------------- */

static int
answer(struct buf *reply, uint32_t seq, enum message_session result,
    struct view text)
{
	int rc = wire_put_u32(reply, seq);

	if (rc == 0)
		rc = wire_put_u8(reply, (uint8_t)result);
	return rc == 0 ? wire_put_bytes(reply, text) : rc;
}

static int
answer_session(const struct registry *r, const struct registry_session *s,
    uint32_t seq, struct buf *reply)
{
	struct buf doc = BUF_INIT((size_t)4 * MESSAGE_CONTROL_MAX);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &doc);
	registry_write(r, s, &w);
	rc = jwrite_finish(&w);
	rc = answer(reply, seq,
	    rc == 0 ? MESSAGE_SESSION_OK : MESSAGE_SESSION_FAILED,
	    rc == 0 ? buf_view(&doc) : VIEW_NONE);
	buf_clear(&doc);
	return rc;
}

static enum message_session
result_of(int rc)
{
	switch (rc) {
	case SP_E_NOSPC:
	case SP_E_LIMIT:
		return MESSAGE_SESSION_FULL;
	case SP_E_EXISTS:
		return MESSAGE_SESSION_EXISTS;
	case SP_E_NOTFOUND:
		return MESSAGE_SESSION_UNKNOWN;
	case SP_E_ARG:
		return MESSAGE_SESSION_BAD;
	default:
		return MESSAGE_SESSION_FAILED;
	}
}

/* ---- requests ------------------------------------------------------------- */

static bool
json_object(struct view v)
{
	struct jscan s;

	if (v.n == 0)
		return true;
	jscan_init(&s, v, 0);
	return jscan_peek(&s) == JSCAN_OBJECT && jscan_valid(v, 0) == 0;
}

/* May there be such a session? */
static int
check_new(const struct registry *r, const struct session_msg *m)
{
	const struct conf_capture *c = capture_of(r, m->capture);

	if (c == NULL || view_eq(m->id, VIEW("default")))
		return SP_E_ARG;
	if (registry_find(r, m->id) != NULL)
		return SP_E_EXISTS;
	/* one that was forgotten, or a file of somebody else's */
	return store_file_new(r->store, c, m->id);
}

int
registry_create(struct registry *r, struct view body, struct buf *reply)
{
	struct registry_session *s;
	struct session_msg m;
	uint32_t seq;
	struct wire w;
	int rc;

	wire_init(&w, body);
	seq = wire_u32(&w);
	session_msg_get(&w, &m);
	if (wire_done(&w) != 0 || !ident_good(m.id) ||
	    !session_msg_word(m.capture, SESSION_MSG_NAME_MAX) ||
	    !session_msg_word(m.upstream, SESSION_MSG_NAME_MAX) ||
	    !session_msg_word(m.model, SESSION_MSG_MODEL_MAX) ||
	    !session_msg_word(m.purpose, SESSION_MSG_WORD_MAX) ||
	    !json_object(m.sampling) || !json_object(m.metadata))
		return SP_E_PROTO;
	m.created_us = clock_wall_us();
	m.calls = m.tokens = 0;
	rc = check_new(r, &m);
	if (rc != 0)
		return answer(reply, seq, result_of(rc), VIEW_NONE);
	s = registry_add(r, &m);
	rc = s == NULL ? SP_E_LIMIT : journal_create(r, s);
	if (rc != 0) {
		log_error("session %.*s is not created: %s", VIEW_ARG(m.id),
		    err_str(rc));
		if (s != NULL)
			registry_remove(r, s);
		return answer(reply, seq, result_of(rc), VIEW_NONE);
	}
	return answer_session(r, s, seq, reply);
}

/* Its trace, held until the last turn is over; NULL when it has none. */
static struct trace *
trace_of(struct registry *r, const struct registry_session *s)
{
	const struct conf_capture *c = capture_of(r, s->m.capture);
	struct trace *t = NULL;
	int rc;

	if (c == NULL && s->turns > 0)
		log_warn("session %.*s: its capture \"%.*s\" is not configured "
			 "any more: its trace has the seal of that reload, or "
			 "none",
		    VIEW_ARG(s->m.id), VIEW_ARG(s->m.capture));
	if (c == NULL || store_file_used(r->store, c, s->m.id) != SP_E_EXISTS)
		return NULL;
	rc = store_get(r->store, c, s->m.id, &t);
	if (rc != 0)
		log_error("session %.*s: cannot open its trace: %s",
		    VIEW_ARG(s->m.id), err_str(rc));
	return t;
}

static int
close_session(struct registry *r, struct registry_session *s,
    struct view outcome)
{
	int rc;

	if (outcome.n == 0)
		outcome = s->budget_stops > 0 ? VIEW("budget") : VIEW("done");
	registry_ended(r, s, outcome, clock_wall_us());
	rc = journal_use(r, s);
	if (rc == 0)
		rc = journal_end(r, s);
	if (rc == 0)
		return 0;
	s->ended_us = 0;
	s->outcome[0] = '\0';
	r->open_n++;
	return rc;
}

static void
add_stray(struct registry *r, const struct conf_capture *c, struct view id)
{
	struct registry_stray *one;

	if (store_file_used(r->store, c, id) != SP_E_EXISTS)
		return;
	one = mem_calloc(1, sizeof(*one));
	if (one == NULL || store_get(r->store, c, id, &one->trace) != 0) {
		log_error("trace of session %.*s is not sealed at its end",
		    VIEW_ARG(id));
		mem_free(one);
		return;
	}
	one->until_ms = clock_ms() + REGISTRY_END_MS;
	TAILQ_INSERT_TAIL(&r->strays, one, link);
}

/*
 * An episode that made its calls without a session of its own has ended, and
 * its id names none that comes later.
 */
static void
end_stray(struct registry *r, struct view id)
{
	const struct conf *c = r->store->conf;
	size_t i;

	for (i = 0; i < c->captures_n; i++)
		/* one file for all is nobody's end */
		if (view_search(c->captures[i]->trace_name, VIEW("$session")) <
		    c->captures[i]->trace_name.n)
			add_stray(r, c->captures[i], id);
}

int
registry_end(struct registry *r, struct view body, struct buf *reply)
{
	struct registry_session *s;
	struct view id, outcome;
	uint32_t seq;
	struct wire w;
	int rc;

	wire_init(&w, body);
	seq = wire_u32(&w);
	id = wire_bytes(&w);
	outcome = wire_bytes(&w);
	if (wire_done(&w) != 0 ||
	    !session_msg_word(outcome, SESSION_MSG_WORD_MAX))
		return SP_E_PROTO;
	s = registry_find(r, id);
	if (s == NULL) {
		if (ident_good(id) && !view_eq(id, VIEW("default")))
			end_stray(r, id);
		return answer(reply, seq, MESSAGE_SESSION_UNKNOWN, VIEW_NONE);
	}
	if (s->ended_us != 0)
		return answer_session(r, s, seq, reply);
	rc = close_session(r, s, outcome);
	if (rc != 0)
		return answer(reply, seq, result_of(rc), VIEW_NONE);
	s->trace = trace_of(r, s);
	s->seq = seq;
	s->until_ms = clock_ms() + REGISTRY_END_MS;
	s->closing = true;
	TAILQ_INSERT_TAIL(&r->closing, s, closing_link);
	return 0;
}

static void
seal(struct registry *r, struct registry_session *s)
{
	int rc = 0;

	TAILQ_REMOVE(&r->closing, s, closing_link);
	s->closing = false;
	if (s->trace != NULL)
		rc = trace_seal(s->trace, r->store->signer, "end");
	if (rc != 0)
		log_error("session %.*s: cannot seal its trace: %s%s",
		    VIEW_ARG(s->m.id), err_str(rc),
		    may_seal_later(rc) ? "; it is tried again" : "");
	s->unsealed = may_seal_later(rc);
	if (s->unsealed)
		TAILQ_INSERT_TAIL(&r->unsealed, s, closing_link);
	store_put(r->store, s->trace);
	s->trace = NULL;
}

bool
registry_next_ended(struct registry *r, struct buf *reply)
{
	struct registry_session *s;
	uint64_t now = clock_ms();

	TAILQ_FOREACH (s, &r->closing, closing_link) {
		/* its turns are written, and it is known who got their end */
		if (s->trace != NULL && s->trace->refs > 1 && now < s->until_ms)
			continue;
		seal(r, s);
		return answer_session(r, s, s->seq, reply) == 0;
	}
	/* for these nobody waits */
	seal_strays(r, now);
	seal_again(r, now);
	return false;
}

void
registry_forget(struct registry *r)
{
	struct registry_session *s;

	r->replaying = false;
	r->replay = NULL;
	while ((s = TAILQ_FIRST(&r->closing)) != NULL)
		seal(r, s);
	seal_strays(r, UINT64_MAX);
	seal_again(r, UINT64_MAX);
	registry_flush(r, true);
}

int
registry_get(struct registry *r, struct view body, struct buf *reply)
{
	struct registry_session *s;
	struct view id;
	uint32_t seq;
	struct wire w;

	wire_init(&w, body);
	seq = wire_u32(&w);
	id = wire_bytes(&w);
	if (wire_done(&w) != 0)
		return SP_E_PROTO;
	s = registry_find(r, id);
	if (s == NULL)
		return answer(reply, seq, MESSAGE_SESSION_UNKNOWN, VIEW_NONE);
	return answer_session(r, s, seq, reply);
}

/* A page; what does not fit in is behind its `next`. */
static int
write_page(const struct registry *r, const struct registry_session *s,
    uint32_t limit, struct buf *page)
{
	struct buf doc = BUF_INIT((size_t)4 * MESSAGE_CONTROL_MAX);
	const struct registry_session *last = NULL;
	struct jwrite w, one;
	int rc = 0;

	jwrite_init(&w, page);
	jwrite_object(&w);
	jwrite_key(&w, "sessions");
	jwrite_array(&w);
	for (; s != NULL && limit > 0 && rc == 0; limit--) {
		buf_reset(&doc, MESSAGE_CONTROL_MAX);
		jwrite_init(&one, &doc);
		registry_write(r, s, &one);
		rc = jwrite_finish(&one);
		if (buf_len(page) + buf_len(&doc) > PAGE_BYTES)
			break;
		jwrite_raw(&w, buf_view(&doc));
		last = s;
		s = TAILQ_NEXT(s, link);
	}
	jwrite_end_array(&w);
	put_text(&w, "next",
	    s != NULL && last != NULL ? last->m.id : VIEW_NONE);
	put_number(&w, "total", hmap_count(r->by_id));
	put_number(&w, "open", r->open_n);
	jwrite_end_object(&w);
	buf_clear(&doc);
	return rc != 0 ? rc : jwrite_finish(&w);
}

int
registry_list(struct registry *r, struct view body, struct buf *reply)
{
	struct buf page = BUF_INIT(MESSAGE_BULK_MAX - 64);
	struct registry_session *s = TAILQ_FIRST(&r->sessions);
	uint32_t seq, limit;
	struct view after;
	struct wire w;
	int rc;

	wire_init(&w, body);
	seq = wire_u32(&w);
	after = wire_bytes(&w);
	limit = wire_u32(&w);
	if (wire_done(&w) != 0 || limit == 0 || limit > REGISTRY_LIST_MAX)
		return SP_E_PROTO;
	if (after.n > 0) {
		s = registry_find(r, after);
		if (s == NULL)
			return answer(reply, seq, MESSAGE_SESSION_UNKNOWN,
			    VIEW_NONE);
		s = TAILQ_NEXT(s, link);
	}
	rc = write_page(r, s, limit, &page);
	rc = answer(reply, seq,
	    rc == 0 ? MESSAGE_SESSION_OK : MESSAGE_SESSION_FAILED,
	    rc == 0 ? buf_view(&page) : VIEW_NONE);
	buf_clear(&page);
	return rc;
}

int
registry_trace(struct registry *r, struct view body, struct buf *reply, int *fd)
{
	const struct conf *conf = r->store->conf;
	struct registry_session *s;
	const struct conf_capture *c;
	uint64_t size = 0;
	struct view id;
	uint32_t seq;
	struct wire w;
	size_t i;
	int rc = SP_E_NOTFOUND;

	*fd = -1;
	wire_init(&w, body);
	seq = wire_u32(&w);
	id = wire_bytes(&w);
	if (wire_done(&w) != 0)
		return SP_E_PROTO;
	s = registry_find(r, id);
	c = s != NULL ? capture_of(r, s->m.capture) : NULL;
	if (!ident_good(id))
		rc = SP_E_NOTFOUND;
	else if (c != NULL)
		rc = store_read(r->store, c, id, fd, &size);
	else /* no session of ours, or of a capture that is gone */
		for (i = 0; i < conf->captures_n && rc == SP_E_NOTFOUND; i++)
			rc = store_read(r->store, conf->captures[i], id, fd,
			    &size);
	if (rc != 0)
		return answer(reply, seq,
		    s != NULL && rc == SP_E_NOTFOUND ? MESSAGE_SESSION_BAD
						     : result_of(rc),
		    VIEW_NONE);
	rc = wire_put_u32(reply, seq);
	if (rc == 0)
		rc = wire_put_u64(reply, size);
	if (rc != 0)
		fd_close(fd);
	return rc;
}

/* ---- a new reactor -------------------------------------------------------- */

void
registry_replay(struct registry *r)
{
	r->replaying = true;
	r->replay = TAILQ_FIRST(&r->sessions);
}

/* Those that ended and lie beside each other, as many as one message holds. */
static bool
replay_past(struct registry *r, struct buf *body)
{
	struct registry_session *s;

	while ((s = r->replay) != NULL && s->ended_us != 0 &&
	    buf_len(body) + SESSION_MSG_KEY <= MESSAGE_CONTROL_MAX) {
		if (buf_add(body, s->m.key, SESSION_MSG_KEY) != SP_OK)
			break;
		r->replay = TAILQ_NEXT(s, link);
	}
	return buf_len(body) > 0;
}

enum message_type
registry_next_replay(struct registry *r, struct buf *body)
{
	struct registry_session *s;

	while ((s = r->replay) != NULL) {
		if (replay_past(r, body))
			return MESSAGE_SESSION_PAST;
		r->replay = TAILQ_NEXT(s, link);
		if (s->ended_us == 0 && session_msg_put(body, &s->m) == 0)
			return MESSAGE_SESSION;
		buf_reset(body, MESSAGE_CONTROL_MAX);
	}
	return MESSAGE_REPLAY_DONE;
}

/* ---- what turns use ------------------------------------------------------- */

static bool
is_bounded(const struct registry_session *s)
{
	return s->m.max_calls > 0 || s->m.max_tokens > 0;
}

static void
touch(struct registry *r, struct registry_session *s)
{
	s->last_us = clock_wall_us();
	if (s->dirty)
		return;
	s->dirty = true;
	if (is_bounded(s))
		TAILQ_INSERT_HEAD(&r->dirty, s, dirty_link);
	else
		TAILQ_INSERT_TAIL(&r->dirty, s, dirty_link);
}

void
registry_called(struct registry *r, struct view id, unsigned flags)
{
	struct registry_session *s = registry_find(r, id);

	if (s == NULL)
		return;
	if ((flags & MESSAGE_TURN_BUDGET) != 0)
		s->budget_stops++;
	else
		s->m.calls++;
	touch(r, s);
}

void
registry_uncalled(struct registry *r, struct view id, unsigned flags)
{
	struct registry_session *s = registry_find(r, id);

	if (s == NULL)
		return;
	if ((flags & MESSAGE_TURN_BUDGET) != 0)
		s->budget_stops -= s->budget_stops > 0;
	else
		s->m.calls -= s->m.calls > 0;
	touch(r, s);
}

void
registry_turned(struct registry *r, const struct record *rec, bool filed)
{
	struct registry_session *s = registry_find(r, rec->session);
	struct jtrain_turn turn;

	if (s == NULL || !filed)
		return;
	s->turns++;
	s->complete += rec->complete;
	turn = (struct jtrain_turn){ .good = rec->trainable,
		.tools = rec->has_tools };
	jtrain_add(&s->train, &turn);
	s->m.tokens += rec->completion_tokens;
	s->errors += rec->outcome == MESSAGE_OUTCOME_STATUS ||
	    rec->outcome == MESSAGE_OUTCOME_UPSTREAM;
	s->findings |= rec->findings;
	touch(r, s);
}

void
registry_flush(struct registry *r, bool all)
{
	uint64_t now = clock_ms();
	struct registry_session *s, *next;
	int rc;

	if (TAILQ_EMPTY(&r->dirty))
		return;
	all = all || now - r->flushed_ms >= FLUSH_MS;
	if (all)
		r->flushed_ms = now;
	for (s = TAILQ_FIRST(&r->dirty); s != NULL; s = next) {
		next = TAILQ_NEXT(s, dirty_link);
		if (!all && !is_bounded(s))
			break; /* the bounded ones come first */
		rc = journal_use(r, s);
		if (rc != 0 && !r->failing)
			log_error("the registry of sessions cannot be "
				  "written: %s",
			    err_str(rc));
		r->failing = rc != 0;
		if (rc != 0)
			return;
		s->dirty = false;
		TAILQ_REMOVE(&r->dirty, s, dirty_link);
	}
}
