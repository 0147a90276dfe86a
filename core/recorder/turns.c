#include "config.h"

#include <string.h>

#include "base/clock.h"
#include "base/ident.h"
#include "base/log.h"
#include "base/mem.h"
#include "crypt/digest.h"
#include "ipc/wire.h"
#include "recorder/ceiling.h"
#include "recorder/turns.h"

enum {
	LINE_MAX_BYTES = 1024 * 1024 * 1024,
	LINE_KEEP_BYTES = 1024 * 1024,
	/* u32, u8, u64, u32, u32, u8 and the finish_reason */
	DONE_ENTRY_MAX = 22 + 64,
	CREDIT_ENTRY = 8,
	/*
	 * Given back at once: a quarter of the reactor's window for a turn.
	 * Less would wake it a second time for each token of a slow stream.
	 */
	CREDIT_MIN_BYTES = 256 * 1024,
	EARLY_MIN = 4, /* ends that are worth a write and a message */
	EARLY_OPEN_MAX = 32, /* with more, the reactor has enough to do */
};

int
turns_init(struct turns *t, struct store *store)
{
	*t = (struct turns){ .store = store };
	TAILQ_INIT(&t->open);
	TAILQ_INIT(&t->ended);
	TAILQ_INIT(&t->done);
	TAILQ_INIT(&t->credit);
	buf_init(&t->line, LINE_MAX_BYTES);
	buf_init(&t->system.text, RECORD_SYSTEM_MAX);
	t->by_handle = hmap_new(TURNS_OPEN_MAX + 2 * TURNS_ENDED_MAX);
	t->digest = digest_new();
	if (t->by_handle != NULL && t->digest != NULL)
		return 0;
	hmap_free(t->by_handle);
	t->by_handle = NULL;
	digest_free(t->digest);
	t->digest = NULL;
	return SP_E_NOMEM;
}

static struct view
handle_key(const uint32_t *handle)
{
	return view_of(handle, sizeof(*handle));
}

static struct turn *
find(const struct turns *t, uint32_t handle)
{
	return hmap_get(t->by_handle, handle_key(&handle));
}

/* Frees what an ended turn needs no more. */
static void
slim(struct turn *u)
{
	assemble_clear(&u->assemble);
	buf_clear(&u->request);
	buf_clear(&u->body);
	buf_clear(&u->piece);
	buf_clear(&u->meta);
}

static void
drop_credit(struct turns *t, struct turn *u)
{
	if (u->in_credit)
		TAILQ_REMOVE(&t->credit, u, credit_link);
	u->in_credit = false;
}

/* Takes a turn off every list but its own, which the caller did. */
static void
turn_free(struct turns *t, struct turn *u)
{
	if (find(t, u->handle) == u)
		(void)hmap_del(t->by_handle, handle_key(&u->handle));
	drop_credit(t, u);
	store_put(t->store, u->trace);
	slim(u);
	recgen_unref(u->generation);
	mem_free(u);
}

static void
free_list(struct turns *t, struct turn_list *l)
{
	struct turn *u;

	while ((u = TAILQ_FIRST(l)) != NULL) {
		TAILQ_REMOVE(l, u, link);
		turn_free(t, u);
	}
}

void
turns_clear(struct turns *t)
{
	if (t->by_handle == NULL)
		return;
	free_list(t, &t->open);
	free_list(t, &t->done);
	free_list(t, &t->ended);
	hmap_free(t->by_handle);
	t->by_handle = NULL;
	buf_clear(&t->line);
	buf_clear(&t->system.text);
	digest_free(t->digest);
	t->digest = NULL;
	t->open_n = t->ended_n = 0;
}

/* Its end did not reach the client: it may be asked for again. */
static void
undelivered(struct turn *u)
{
	if (u->trace == NULL || u->write_rc != 0)
		return;
	trace_undelivered(u->trace, u->number);
	if (u->result.hashed)
		trace_keep_request(u->trace, u->number, u->result.body_sha256);
}

void
turns_forget(struct turns *t)
{
	struct turn *u;

	TAILQ_FOREACH (u, &t->done, link)
		undelivered(u);
	TAILQ_FOREACH (u, &t->ended, link)
		undelivered(u);
	free_list(t, &t->open);
	free_list(t, &t->done);
	free_list(t, &t->ended);
	t->open_n = t->ended_n = 0;
}

/* An object, strict JSON; or nothing at all. */
static bool
meta_valid(struct view meta)
{
	struct jscan s;

	if (meta.n == 0)
		return true;
	jscan_init(&s, meta, 0);
	return jscan_peek(&s) == JSCAN_OBJECT && jscan_valid(meta, 0) == 0;
}

static unsigned
keep_of(const struct conf_capture *c)
{
	switch ((enum conf_level)c->level) {
	case CONF_LEVEL_TEXT:
		return 0;
	case CONF_LEVEL_LOGPROBS:
		return ASSEMBLE_LOGPROBS;
	case CONF_LEVEL_TOKENS:
		break;
	}
	return ASSEMBLE_LOGPROBS | ASSEMBLE_IDS;
}

/* The handle of an ended turn is free for another. */
static void
release_handle(struct turns *t, struct turn *u)
{
	(void)hmap_del(t->by_handle, handle_key(&u->handle));
	u->known = true;
	if (!u->told)
		return; /* freed once it was told */
	TAILQ_REMOVE(&t->ended, u, link);
	t->ended_n--;
	turn_free(t, u);
}

static int
turn_add(struct turns *t, struct turn *u, struct view session)
{
	const struct conf_capture *c = u->capture;
	struct turn *other;
	int rc;

	other = find(t, u->handle);
	if (other != NULL)
		release_handle(t, other);
	rc = hmap_add(t->by_handle, handle_key(&u->handle), u);
	if (rc != 0)
		return rc == SP_E_NOMEM ? rc : SP_E_PROTO;
	TAILQ_INSERT_TAIL(&t->open, u, link);
	t->open_n++;
	memcpy(u->session, session.p, session.n);
	u->opened_us = clock_us();
	if (t->registry != NULL)
		registry_called(t->registry, session, u->flags);
	assemble_init(&u->assemble, (size_t)c->turn_max_bytes, keep_of(c));
	u->trace_rc = store_get(t->store, c, session, &u->trace);
	if (u->trace_rc == 0)
		u->number = ++u->trace->turn_high;
	else {
		log_error("session %s: cannot open its trace in %.*s: %s",
		    u->session, VIEW_ARG(c->trace_dir), err_str(u->trace_rc));
		/* told at once, before there is a reply */
		u->refuse = true;
		t->refused_n++;
	}
	return 0;
}

int
turns_open(struct turns *t, struct view body)
{
	struct view capture, session, meta, episode;
	uint32_t handle, generation;
	struct turn *u, *other;
	struct wire w;
	int rc;

	wire_init(&w, body);
	handle = wire_u32(&w);
	generation = wire_u32(&w);
	capture = wire_bytes(&w);
	session = wire_bytes(&w);
	u = mem_calloc(1, sizeof(*u));
	if (u == NULL)
		return SP_E_NOMEM;
	u->handle = handle;
	u->wall_us = wire_u64(&w);
	u->flags = wire_u32(&w);
	meta = wire_bytes(&w);
	episode = wire_bytes(&w);
	other = find(t, handle);
	if (wire_done(&w) != 0 || capture.n == 0 || capture.n > CONF_NAME_MAX ||
	    !ident_good(session) || !meta_valid(meta) ||
	    (episode.n > 0 && !ident_good(episode)) ||
	    (other != NULL && !other->ended) || t->open_n >= TURNS_OPEN_MAX) {
		mem_free(u);
		return SP_E_PROTO;
	}
	rc = recgen_find(t->generations, generation, capture, &u->generation,
	    &u->capture);
	if (rc != 0) {
		mem_free(u);
		return rc;
	}
	buf_init(&u->meta, MESSAGE_CONTROL_MAX);
	rc = buf_add_view(&u->meta, meta);
	if (episode.n > 0)
		memcpy(u->episode, episode.p, episode.n);
	if (rc == 0)
		rc = turn_add(t, u, session);
	if (rc != 0) {
		slim(u);
		recgen_unref(u->generation);
		mem_free(u);
	}
	return rc;
}

int
turns_generation_end(struct turns *t, struct view body)
{
	uint32_t number;
	struct wire w;

	wire_init(&w, body);
	number = wire_u32(&w);
	if (wire_done(&w) != 0)
		return SP_E_PROTO;
	recgen_end(t->generations, number);
	return 0;
}

static void
give_credit(struct turns *t, struct turn *u, size_t n)
{
	u->credit += n;
	if (u->in_credit || u->credit < CREDIT_MIN_BYTES)
		return;
	TAILQ_INSERT_TAIL(&t->credit, u, credit_link);
	u->in_credit = true;
}

static void
data_whole(struct turn *u, unsigned kind, struct view v)
{
	struct assemble *a = &u->assemble;

	switch ((enum message_data)kind) {
	case MESSAGE_DATA_EVENT:
		assemble_event(a, v);
		break;
	case MESSAGE_DATA_ERROR:
		assemble_error(a, v);
		break;
	case MESSAGE_DATA_REQUEST:
		accum_buf_add(&a->hold, &u->request, v);
		break;
	case MESSAGE_DATA_BODY:
		accum_buf_add(&a->hold, &u->body, v);
		break;
	}
}

static struct buf *
piece_buf(struct turn *u, unsigned kind)
{
	if (kind == MESSAGE_DATA_REQUEST)
		return &u->request;
	return kind == MESSAGE_DATA_BODY ? &u->body : &u->piece;
}

/* Half a text is no use to anyone: all of it goes. */
static void
give_up(struct turn *u, unsigned kind)
{
	struct buf *b = piece_buf(u, kind);

	accum_hold_give(&u->assemble.hold, buf_len(b));
	buf_clear(b);
	if (kind != MESSAGE_DATA_REQUEST)
		return;
	/* the reply may yet find room */
	u->request_cut = true;
	u->assemble.hold.over = false;
}

static void
data_piece(struct turn *u, unsigned kind, bool more, struct view v)
{
	struct assemble *a = &u->assemble;
	bool was_over = a->hold.over;
	struct buf *b = piece_buf(u, kind);

	if (kind == MESSAGE_DATA_REQUEST && u->request_cut) {
		u->piece_kind = more ? kind : 0;
		return;
	}
	if (u->piece_kind == 0 && !more) {
		data_whole(u, kind, v);
	} else {
		accum_buf_add(&a->hold, b, v);
		u->piece_kind = more ? kind : 0;
	}
	if (a->hold.over && !was_over && b != &u->piece)
		give_up(u, kind);
	if (more || b != &u->piece || buf_len(b) == 0)
		return;
	/* the last piece of an event */
	if (!a->hold.over) {
		accum_hold_give(&a->hold, buf_len(b));
		data_whole(u, kind, buf_view(b));
		buf_clear(b);
	} else {
		give_up(u, kind);
	}
}

int
turns_data(struct turns *t, struct view body)
{
	uint32_t handle;
	unsigned kind, more;
	struct turn *u;
	struct view v;
	struct wire w;

	wire_init(&w, body);
	while (wire_more(&w)) {
		handle = wire_u32(&w);
		kind = wire_u8(&w);
		more = wire_u8(&w);
		v = wire_bytes(&w);
		if (w.bad)
			break;
		u = find(t, handle);
		if (u == NULL || u->ended || more > 1 ||
		    kind < MESSAGE_DATA_REQUEST || kind > MESSAGE_DATA_BODY ||
		    (u->piece_kind != 0 && u->piece_kind != kind))
			return SP_E_PROTO;
		data_piece(u, kind, more == 1, v);
		give_credit(t, u, v.n);
		ceiling_press(t);
	}
	return wire_done(&w);
}

/* The client's word that it asks again: the SDKs' count, not "0". */
static bool
is_retry(const struct turn *u)
{
	struct view meta = buf_view(&u->meta), client, count;
	struct jscan_span v;
	struct jscan s;

	/* most have no such word at all */
	if (view_search(meta, VIEW("stainless")) == meta.n ||
	    jscan_find(meta, VIEW("client"), &v) != 1 || v.kind != JSCAN_OBJECT)
		return false;
	jscan_init(&s, meta, 0);
	client = jscan_raw(&s, &v);
	if (jscan_find(client, VIEW("x_stainless_retry_count"), &v) != 1 ||
	    v.kind != JSCAN_STRING)
		return false;
	jscan_init(&s, client, 0);
	count = jscan_text(&s, &v);
	return count.n > 0 && !view_eq(count, VIEW("0"));
}

/*
 * The newest turn with the same body that cannot have been answered, but of
 * whose delivery the reactor's word is still on its way; 0: none.
 */
static uint64_t
find_unanswered(const struct turns *t, const struct turn *u)
{
	const struct turn_list *lists[] = { &t->done, &t->ended };
	uint64_t newest = 0;
	const struct turn *v;
	size_t i;

	for (i = 0; i < 2; i++)
		TAILQ_FOREACH (v, lists[i], link)
			if (v->trace == u->trace && v->number > newest &&
			    !v->known && v->write_rc == 0 &&
			    v->result.outcome > MESSAGE_OUTCOME_STATUS &&
			    v->result.hashed &&
			    memcmp(v->result.body_sha256, u->result.body_sha256,
				DIGEST_BYTES) == 0)
				newest = v->number;
	return newest;
}

/* Reads the request, and which turn it repeats, if it does. */
static void
ask(struct turns *t, struct turn *u)
{
	struct record *r = &u->result;
	uint64_t waits;

	r->digest = t->digest;
	r->system = &t->system;
	record_ask(r);
	if (!r->hashed || u->trace == NULL || !is_retry(u))
		return;
	r->retry_of = trace_find_request(u->trace, r->body_sha256);
	waits = find_unanswered(t, u);
	if (waits > r->retry_of)
		r->retry_of = waits;
}

/* It is known whether the record is in the file. */
static void
turn_filed(struct turns *t, struct turn *u)
{
	if (u->write_rc != 0)
		log_error("session %s turn %llu is not recorded in %.*s: %s",
		    u->session, (unsigned long long)u->number,
		    VIEW_ARG(u->capture->trace_dir), err_str(u->write_rc));
	if (t->registry != NULL)
		registry_turned(t->registry, &u->result, u->write_rc == 0);
}

/* Makes the record and gives it to its file, or finds out that it cannot. */
static void
write_turn(struct turns *t, struct turn *u)
{
	struct record *r = &u->result;

	r->session = view_str(u->session);
	r->episode = view_str(u->episode);
	r->turn = u->number;
	r->turn_high = u->trace != NULL ? u->trace->turn_high : 0;
	r->wall_us = u->wall_us;
	r->level = u->capture->level;
	r->request = buf_view(&u->request);
	r->request_cut = u->request_cut;
	r->meta_open = buf_view(&u->meta);
	ask(t, u);
	r->assemble = &u->assemble;
	if (r->outcome == MESSAGE_OUTCOME_STATUS)
		r->body = buf_view(&u->body);
	else if (buf_len(&u->body) > 0 && (u->flags & MESSAGE_TURN_PASS) == 0) {
		accum_hold_give(&u->assemble.hold, buf_len(&u->body));
		assemble_body(&u->assemble, buf_view(&u->body));
	}
	buf_reset(&t->line, LINE_KEEP_BYTES);
	u->write_rc = u->trace_rc;
	if (u->trace != NULL)
		u->write_rc = record_write(r, &t->line);
	if (u->write_rc == 0)
		u->write_rc =
		    trace_hold(u->trace, &t->line, t->store->signer, &u->group);
	if (u->write_rc == SP_E_NOSPC)
		t->full_bytes = buf_len(&t->line) + CHAIN_END;
	if (u->group == 0)
		turn_filed(t, u);
	if (u->trace != NULL && !u->trace->sync)
		t->untold_n++;
	r->assemble = NULL;
	r->digest = NULL;
	r->system = NULL;
	r->asked = (struct reqinfo){ .json = false };
	r->request = r->meta_open = r->meta_end = r->error = r->body =
	    VIEW_NONE;
	slim(u);
}

static void
turn_end(struct turns *t, struct turn *u)
{
	write_turn(t, u);
	u->ended = true;
	drop_credit(t, u);
	TAILQ_REMOVE(&t->open, u, link);
	t->open_n--;
	TAILQ_INSERT_TAIL(&t->done, u, link);
}

int
turns_end(struct turns *t, struct view body)
{
	struct record r = { .turn = 0 };
	uint32_t handle, flags;
	struct turn *u;
	struct wire w;

	wire_init(&w, body);
	handle = wire_u32(&w);
	r.outcome = wire_u8(&w);
	r.status = wire_u16(&w);
	flags = wire_u32(&w);
	r.latency_us = wire_u64(&w);
	r.ttft_us = wire_u64(&w);
	r.error = wire_bytes(&w);
	r.meta_end = wire_bytes(&w);
	u = find(t, handle);
	if (wire_done(&w) != 0 || u == NULL || u->ended ||
	    r.outcome < MESSAGE_OUTCOME_END ||
	    r.outcome > MESSAGE_OUTCOME_LOST || !meta_valid(r.meta_end))
		return SP_E_PROTO;
	if (u->piece_kind != 0)
		give_up(u, u->piece_kind);
	/* the recorder before this one counted it, when it was opened */
	if (r.outcome == MESSAGE_OUTCOME_LOST && t->registry != NULL)
		registry_uncalled(t->registry, view_str(u->session), u->flags);
	u->flags |= flags;
	r.flags = u->flags;
	u->result = r;
	turn_end(t, u);
	return 0;
}

int
turns_delivered(struct turns *t, struct view body)
{
	uint32_t handle;
	unsigned got;
	struct turn *u;
	struct wire w;

	wire_init(&w, body);
	handle = wire_u32(&w);
	got = wire_u8(&w);
	u = find(t, handle);
	if (wire_done(&w) != 0 || u == NULL || !u->ended || got > 1)
		return SP_E_PROTO;
	if (got == 0)
		undelivered(u);
	release_handle(t, u);
	return 0;
}

void
turns_end_all(struct turns *t, unsigned outcome)
{
	struct turn *u;

	while ((u = TAILQ_FIRST(&t->open)) != NULL) {
		if (u->piece_kind != 0)
			give_up(u, u->piece_kind);
		u->result = (struct record){ .outcome = outcome,
			.flags = u->flags,
			.latency_us = clock_us() - u->opened_us };
		turn_end(t, u);
	}
}

static void
turn_flush(struct turns *t, struct turn *u)
{
	struct trace *f = u->trace;

	if (u->group == f->group_id)
		trace_flush(f, t->store->signer);
	if (u->group == f->failed_id)
		u->write_rc = f->failed_rc;
	if (u->write_rc == SP_E_NOSPC && f->failed_bytes > t->full_bytes)
		t->full_bytes = f->failed_bytes;
	u->group = 0;
	turn_filed(t, u);
}

void
turns_sync(struct turns *t)
{
	struct turn *u;

	TAILQ_FOREACH (u, &t->done, link)
		if (u->group != 0)
			turn_flush(t, u);
	TAILQ_FOREACH (u, &t->done, link) {
		if (u->trace == NULL)
			continue;
		trace_forgive(u->trace);
		if (u->write_rc != 0)
			continue;
		trace_sync(u->trace); /* once for each file */
		u->write_rc = u->trace->sync_rc;
	}
}

bool
turns_tell_early(const struct turns *t)
{
	return t->untold_n >= EARLY_MIN && t->untold_n >= t->open_n / 2 &&
	    t->open_n <= EARLY_OPEN_MAX;
}

static int
put_done(const struct turn *u, struct buf *body)
{
	const struct record *r = &u->result;
	enum message_result result = MESSAGE_RESULT_OK;
	uint64_t tokens = r->completion_tokens;
	size_t n = strlen(r->finish_reason);
	int rc;

	if (!u->ended)
		result = MESSAGE_RESULT_REFUSED;
	else if (u->write_rc != 0)
		result = u->write_rc == SP_E_NOSPC ? MESSAGE_RESULT_FULL
						   : MESSAGE_RESULT_FAILED;
	rc = wire_put_u32(body, u->handle);
	if (rc == 0)
		rc = wire_put_u8(body, result);
	if (rc == 0)
		rc = wire_put_u64(body, u->number);
	if (rc == 0)
		rc = wire_put_u32(body,
		    tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens);
	if (rc == 0)
		rc = wire_put_u32(body, (uint32_t)r->findings);
	if (rc == 0)
		rc = wire_put_u8(body, (uint8_t)n);
	if (rc == 0)
		rc = buf_add(body, r->finish_reason, n);
	return rc;
}

/* Keeps a told turn until word of its delivery comes. */
static void
after_done(struct turns *t, struct turn *u)
{
	struct turn *old;

	TAILQ_REMOVE(&t->done, u, link);
	if (u->known) {
		turn_free(t, u);
		return;
	}
	u->told = true;
	TAILQ_INSERT_TAIL(&t->ended, u, link);
	if (t->ended_n++ < TURNS_ENDED_MAX)
		return;
	old = TAILQ_FIRST(&t->ended);
	TAILQ_REMOVE(&t->ended, old, link);
	t->ended_n--;
	turn_free(t, old);
}

/* Those that have no trace hear of it while they are open, and at the end. */
static void
put_refused(struct turns *t, struct buf *body)
{
	struct turn *u;

	TAILQ_FOREACH_REVERSE(u, &t->open, turn_list, link)
	{
		if (t->refused_n == 0 ||
		    body->max - buf_len(body) < DONE_ENTRY_MAX)
			return;
		if (!u->refuse)
			continue;
		if (put_done(u, body) != 0)
			return;
		u->refuse = false;
		t->refused_n--;
	}
	t->refused_n = 0; /* the others have ended */
}

bool
turns_next_done(struct turns *t, struct buf *body)
{
	struct turn *u;

	t->untold_n = 0;
	if (t->refused_n > 0)
		put_refused(t, body);
	while ((u = TAILQ_FIRST(&t->done)) != NULL &&
	    body->max - buf_len(body) >= DONE_ENTRY_MAX) {
		size_t before = buf_len(body);

		if (put_done(u, body) != 0) {
			buf_truncate(body, before);
			break;
		}
		after_done(t, u);
	}
	return buf_len(body) > 0;
}

bool
turns_next_credit(struct turns *t, struct buf *body)
{
	struct turn *u, *next;
	uint32_t n;

	for (u = TAILQ_FIRST(&t->credit);
	     u != NULL && body->max - buf_len(body) >= CREDIT_ENTRY; u = next) {
		next = TAILQ_NEXT(u, credit_link);
		if (!ceiling_may_grow(t, u))
			continue;
		n = u->credit > UINT32_MAX ? UINT32_MAX : (uint32_t)u->credit;
		if (wire_put_u32(body, u->handle) != 0 ||
		    wire_put_u32(body, n) != 0)
			break;
		u->credit -= n;
		drop_credit(t, u);
		if (u->credit > 0)
			give_credit(t, u, 0);
	}
	return buf_len(body) > 0;
}
