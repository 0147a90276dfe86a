#include "config.h"

#include "gate/worker_fetch.h"

#include "base/num.h"
#include "gate/worker_http.h"
#include "json/jscan.h"

enum {
	FETCH_ARENA_MAX = 64 * 1024,
	FETCH_CHUNK_KEEP = 64 * 1024,
	FETCH_DECODED_MAX = 1024 * 1024,
};

/* ---- what is held ----------------------------------------------------------- */

/* False: together they hold too much. */
static bool
fetch_account(struct worker_fetch *f)
{
	size_t now = buf_len(&f->body) + buf_len(&f->sse.pending);

	f->room->used = f->room->used - f->held + now;
	f->held = now;
	return f->room->used <= f->room->max;
}

static void
fetch_empty(struct worker_fetch *f)
{
	buf_reset(&f->body, 0);
	sse_clear(&f->sse);
	sse_init(&f->sse, WORKER_LINE_MAX);
	(void)fetch_account(f);
}

/* ---- events ----------------------------------------------------------------- */

/* The value of a line with that field, as the event stream has it. */
static bool
line_field(struct view line, const char *name, struct view *out)
{
	struct view n = view_str(name);

	if (!view_starts(line, n))
		return false;
	*out = view_from(line, n.n);
	if (out->n == 0)
		return true;
	if (out->p[0] != ':')
		return false;
	*out = view_from(*out, 1);
	if (out->n > 0 && out->p[0] == ' ')
		*out = view_from(*out, 1);
	return true;
}

static int
fetch_on_line(struct worker_fetch *f, struct view line)
{
	struct view v;
	uint64_t ms;

	if (line_field(line, "retry", &v) &&
	    num_u64(v, 0, WORKER_FETCH_RETRY_MAX_MS, &ms) == SP_OK)
		f->retry_ms = ms;
	/* one with a NUL is none; one that is too long cannot be resumed at */
	if (!line_field(line, "id", &v) || view_find(v, '\0') < v.n)
		return SP_OK;
	buf_truncate(&f->id, 0);
	return v.n <= WORKER_FETCH_ID_MAX ? buf_add_view(&f->id, v) : SP_OK;
}

/* Lines end with CR LF, LF or CR. */
static int
fetch_lines(struct worker_fetch *f, struct view raw)
{
	size_t cr, lf, n;
	int rc = SP_OK;

	while (raw.n > 0 && rc == SP_OK) {
		lf = view_find(raw, '\n');
		cr = view_find(view_sub(raw, 0, lf), '\r');
		n = cr < lf ? cr : lf;
		rc = fetch_on_line(f, view_sub(raw, 0, n));
		raw = view_from(raw, n < raw.n ? n + 1 : n);
	}
	return rc;
}

static int
fetch_on_event(void *arg, const struct sse_event *e)
{
	struct worker_fetch *f = arg;
	int rc;

	if (e->flags & SSE_BLANK)
		return 0;
	rc = fetch_lines(f, e->raw);
	if (rc != SP_OK)
		return rc;
	/* without data it only says where it is; other names are not ours */
	if ((e->flags & SSE_DATA) &&
	    (e->name.n == 0 || view_eq(e->name, VIEW("message")))) {
		f->heard++;
		f->owner.message(f->owner.arg, e->data);
	}
	return f->call != NULL ? 0 : SP_E_GONE;
}

/* ---- the reply -------------------------------------------------------------- */

static void
fetch_fail(struct worker_fetch *f, enum worker_fetch_failure why,
    const char *text)
{
	worker_fetch_stop(f);
	f->owner.failed(f->owner.arg, why, text);
}

static void
fetch_on_head(void *arg, struct call *c, const struct head_reply *head)
{
	struct view type = head_get(&head->fields, VIEW("content-type"));
	struct worker_fetch *f = arg;
	bool good;

	(void)c;
	/* parameters follow, if any */
	type = view_trim(view_sub(type, 0, view_find(type, ';')));
	/* 202 says that a message was taken, whatever type it gives that */
	good = head->status == 200 && !f->note;
	f->status = head->status;
	f->json = good && view_eq_nocase(type, VIEW("application/json"));
	f->events = good && view_eq_nocase(type, VIEW("text/event-stream"));
	f->owner.head(f->owner.arg, head);
	if (f->call != NULL && good && !f->json && !f->events &&
	    head->content_length != 0)
		fetch_fail(f, WORKER_FETCH_BAD,
		    "its reply is neither JSON nor a stream of events");
}

static void
fetch_add_events(struct worker_fetch *f, struct view data)
{
	int rc;

	/* the scratch that it lies in is everybody's */
	buf_reset(&f->chunk, FETCH_CHUNK_KEEP);
	rc = buf_add_view(&f->chunk, data);
	if (rc == SP_OK)
		rc = sse_feed(&f->sse, buf_view(&f->chunk), fetch_on_event, f);
	if (f->call == NULL)
		return;
	if (rc == SP_OK && !fetch_account(f))
		rc = SP_E_LIMIT;
	if (rc == SP_E_LIMIT)
		fetch_fail(f, WORKER_FETCH_BAD, "an event of it is too long");
	else if (rc != SP_OK)
		fetch_fail(f, WORKER_FETCH_NOMEM, err_str(rc));
}

static void
fetch_on_body(void *arg, struct call *c, struct view data)
{
	struct worker_fetch *f = arg;
	int rc = SP_OK;

	(void)c;
	if (f->events) {
		fetch_add_events(f, data);
		return;
	}
	if (!f->json)
		data = view_sub(data, 0,
		    WORKER_FETCH_TEXT_MAX - buf_len(&f->body));
	rc = buf_add_view(&f->body, data);
	if (rc == SP_OK && !fetch_account(f))
		rc = SP_E_LIMIT;
	if (rc == SP_E_LIMIT)
		fetch_fail(f, WORKER_FETCH_BAD, "its reply is too long");
	else if (rc != SP_OK)
		fetch_fail(f, WORKER_FETCH_NOMEM, err_str(rc));
}

static void
fetch_on_end(void *arg, struct call *c, bool delimited)
{
	struct worker_fetch *f = arg;
	bool json = f->json;

	(void)c;
	/* only the close says where it ends: it may be cut */
	if (json && !delimited && jscan_valid(buf_view(&f->body), 0) != SP_OK) {
		f->call = NULL;
		f->owner.failed(f->owner.arg, WORKER_FETCH_BROKE,
		    "closed before the reply was whole");
		return;
	}
	if (json) {
		f->heard++;
		f->owner.message(f->owner.arg, buf_view(&f->body));
	}
	/* it was stopped there */
	if (f->call == NULL)
		return;
	f->call = NULL;
	f->owner.end(f->owner.arg);
}

static void
fetch_on_fail(void *arg, struct call *c, enum call_failure why,
    const char *text)
{
	struct worker_fetch *f = arg;

	(void)c;
	f->call = NULL;
	f->owner.failed(f->owner.arg,
	    why == CALL_NOMEM ? WORKER_FETCH_NOMEM
		: why == CALL_MALFORMED || why == CALL_ENCODING
		? WORKER_FETCH_BAD
		: WORKER_FETCH_BROKE,
	    text);
}

/* ---- the request ------------------------------------------------------------ */

static int
fetch_fields(const struct worker_fetch *f, const struct worker_fetch_ask *ask,
    struct head_fields *out)
{
	bool get = ask->body.n == 0;
	const struct {
		struct view name, value;
	} rows[] = {
		{ VIEW("Accept"),
		    get ? VIEW("text/event-stream")
			: VIEW("application/json, text/event-stream") },
		{ VIEW("Content-Type"),
		    get ? VIEW_NONE : VIEW("application/json") },
		{ VIEW("Mcp-Session-Id"), ask->session },
		{ VIEW("MCP-Protocol-Version"), ask->version },
		{ VIEW("Last-Event-ID"), get ? buf_view(&f->id) : VIEW_NONE },
	};
	int rc = SP_OK;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == SP_OK; i++)
		if (rows[i].value.n > 0)
			rc = head_add(out, rows[i].name, rows[i].value);
	return rc;
}

int
worker_fetch_start(struct worker_fetch *f, const struct worker_fetch_ask *ask)
{
	const struct call_owner owner = { .head = fetch_on_head,
		.body = fetch_on_body,
		.end = fetch_on_end,
		.fail = fetch_on_fail,
		.arg = f };
	struct head_fields fields;
	struct call_params params = { .pool = ask->pool,
		.method = ask->body.n == 0 ? VIEW("GET") : VIEW("POST"),
		.target = VIEW("/mcp"),
		.fields = &fields,
		.body = ask->body,
		.send_timeout_ms = WORKER_HTTP_SEND_MS,
		.first_byte_timeout_ms = ask->first_ms,
		.header_max = WORKER_HTTP_HEAD_MAX,
		.decoded_max = FETCH_DECODED_MAX };
	struct arena *a = arena_new(FETCH_ARENA_MAX);
	int rc;

	if (a == NULL)
		return SP_E_NOMEM;
	f->status = 0;
	f->events = f->json = false;
	f->note = ask->note;
	fetch_empty(f);
	head_fields_init(&fields, a);
	rc = fetch_fields(f, ask, &fields);
	if (rc == SP_OK)
		rc = call_start(f->loop, &params, &owner, &f->call);
	arena_free(a);
	return rc;
}

void
worker_fetch_pause(struct worker_fetch *f, bool on)
{
	if (f->call != NULL)
		call_pause(f->call, on);
}

void
worker_fetch_stop(struct worker_fetch *f)
{
	if (f->call != NULL)
		call_cancel(f->call);
	f->call = NULL;
}

void
worker_fetch_init(struct worker_fetch *f, struct loop *l,
    struct worker_fetch_room *room, const struct worker_fetch_owner *owner)
{
	*f = (struct worker_fetch){ .loop = l, .room = room, .owner = *owner };
	sse_init(&f->sse, WORKER_LINE_MAX);
	buf_init(&f->chunk, FETCH_DECODED_MAX + LOOP_SCRATCH_BYTES);
	buf_init(&f->body, WORKER_LINE_MAX);
	buf_init(&f->id, WORKER_FETCH_ID_MAX);
}

void
worker_fetch_clear(struct worker_fetch *f)
{
	worker_fetch_stop(f);
	fetch_empty(f);
	sse_clear(&f->sse);
	buf_clear(&f->chunk);
	buf_clear(&f->body);
	buf_clear(&f->id);
}
