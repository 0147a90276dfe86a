/*
 * A trace on its way to a client, as fast as that takes it: the file's bytes,
 * or, in two passes, the turns to train on in the shape of trainers' readers.
 */
#include "config.h"

#include "sessions_call.h"

#include <unistd.h>

#include "json/jwrite.h"

enum {
	READ_BYTES = LOOP_SCRATCH_BYTES,
	TURN_BYTES = 1024 * 1024, /* read in one turn of the loop */
	KEEP_BYTES = 1024 * 1024,
};

static bool
streams_json(const struct sessions_call *c)
{
	return c->op == SESSIONS_ENTRIES;
}

void
sessions_view_clear(struct sessions_call *c)
{
	if (c->fd >= 0)
		(void)close(c->fd);
	c->fd = -1;
	loop_task_free(c->task);
	c->task = NULL;
	buf_clear(&c->line);
	buf_clear(&c->out);
}

static void
stop(struct sessions_call *c)
{
	sessions_view_clear(c);
	gate_finish(c->r);
}

/* ---- one turn ------------------------------------------------------------- */

enum member {
	TURN,
	REQUEST,
	RESPONSE,
	PROMPT_IDS,
	IDS,
	TOKENS,
	LOGPS,
	FINISH,
	METADATA,
	ALIGNED,
	COMPLETE,
	MEMBERS
};

static const char *const names[MEMBERS] = { "turn", "request", "response",
	"prompt_token_ids", "completion_token_ids", "completion_tokens",
	"per_token_logps", "finish_reason", "metadata", "aligned", "complete" };

struct facts {
	struct view v[MEMBERS];
	struct view node_id;
	struct jtrain_turn train;
};

static struct view
member_of(struct view object, const char *name)
{
	struct jscan_span v;
	struct jscan s;

	if (object.n == 0 || object.p[0] != '{' ||
	    jscan_find(object, view_str(name), &v) != 1)
		return VIEW_NONE;
	jscan_init(&s, object, 0);
	return jscan_raw(&s, &v);
}

static int
read_turn(struct view line, struct facts *f)
{
	struct jscan_span key, v;
	struct jscan s;
	size_t i;
	int rc;

	memset(f, 0, sizeof(*f));
	jscan_init(&s, line, 0);
	if (jscan_peek(&s) != JSCAN_OBJECT)
		return SP_E_SYNTAX;
	rc = jscan_enter(&s);
	while (rc == 0 && (rc = jscan_member(&s, &key)) == 1) {
		rc = jscan_skip(&s, &v);
		for (i = 0; rc == 0 && i < MEMBERS; i++)
			if (jscan_is(&s, &key, view_str(names[i])))
				f->v[i] = jscan_raw(&s, &v);
	}
	if (rc != 0)
		return rc;
	f->node_id = member_of(f->v[METADATA], "node_id");
	f->train = jtrain_read(f->v[COMPLETE], f->v[ALIGNED], f->v[METADATA]);
	return 0;
}

static size_t
count(struct view array)
{
	struct jscan s;
	size_t n = 0;

	jscan_init(&s, array, 0);
	if (jscan_peek(&s) != JSCAN_ARRAY || jscan_enter(&s) != 0)
		return 0;
	while (jscan_element(&s) == 1 && jscan_skip(&s, NULL) == 0)
		n++;
	return n;
}

static void
put(struct jwrite *w, const char *key, struct view v)
{
	jwrite_key(w, key);
	jwrite_span(w, v.n > 0 ? v : VIEW("null"));
}

static void
put_mask(struct jwrite *w, size_t zeros, size_t ones)
{
	size_t i;

	jwrite_key(w, "loss_mask");
	jwrite_array(w);
	for (i = 0; i < zeros + ones; i++)
		jwrite_raw(w, i < zeros ? VIEW("0") : VIEW("1"));
	jwrite_end_array(w);
}

/* Nothing is here that the record does not say, but the mask and the role. */
static int
write_turn(const struct facts *f, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	put(&w, "node_id", f->node_id);
	put(&w, "turn", f->v[TURN]);
	put(&w, "request", f->v[REQUEST]);
	put(&w, "response", f->v[RESPONSE]);
	put(&w, "prompt_token_ids", f->v[PROMPT_IDS]);
	put(&w, "completion_token_ids", f->v[IDS]);
	put(&w, "completion_tokens", f->v[TOKENS]);
	put(&w, "per_token_logps", f->v[LOGPS]);
	put_mask(&w, count(f->v[PROMPT_IDS]), count(f->v[IDS]));
	put(&w, "finish_reason", f->v[FINISH]);
	jwrite_key(&w, "role");
	jwrite_cstr(&w, "agent");
	jwrite_key(&w, "purpose");
	jwrite_cstr(&w, "agent");
	put(&w, "metadata", f->v[METADATA]);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/* A line: counted in the first pass, written in the second. */
static int
take_line(struct sessions_call *c, struct view line)
{
	struct facts f;
	int rc;

	if (read_turn(line, &f) != 0)
		return 0; /* not a record of ours: nothing to train on */
	if (!c->second) {
		jtrain_add(&c->train, &f.train);
		return 0;
	}
	if (!jtrain_is(&f.train, c->train.tools > 0))
		return 0;
	buf_reset(&c->out, KEEP_BYTES);
	rc = streams_json(c) && c->written > 0 ? buf_add_char(&c->out, ',') : 0;
	if (rc == 0)
		rc = write_turn(&f, &c->out);
	if (rc == 0 && !streams_json(c))
		rc = buf_add_char(&c->out, '\n');
	if (rc == 0)
		rc = exchange_data(c->r->x, buf_view(&c->out));
	c->written++;
	return rc;
}

static int
take_lines(struct sessions_call *c, struct view data)
{
	struct view line;
	size_t n;
	int rc = 0;

	while (rc == 0 && data.n > 0) {
		n = view_find(data, '\n');
		line = view_sub(data, 0, n);
		if (n == data.n || buf_len(&c->line) > 0) {
			rc = buf_add_view(&c->line, line);
			line = buf_view(&c->line);
		}
		if (rc != 0 || n == data.n)
			break;
		data = view_from(data, n + 1);
		if (line.n > 0)
			rc = take_line(c, line);
		buf_reset(&c->line, KEEP_BYTES);
	}
	return rc;
}

/* ---- the stream ----------------------------------------------------------- */

static int
head(struct sessions_call *c)
{
	bool all = c->op == SESSIONS_TRACE;
	struct head_field fields[] = {
		{ VIEW("Content-Type"),
		    streams_json(c) ? VIEW("application/json")
				    : VIEW("application/x-ndjson") },
		{ VIEW("Cache-Control"), VIEW("no-store") },
	};
	const struct head_reply reply = {
		.status = 200,
		.content_length = all ? (int64_t)c->size : -1,
		.fields = { .v = fields, .n = 2, .cap = 2 },
	};
	int rc = exchange_head(c->r->x, &reply);

	c->r->status = 200;
	if (rc != 0 || !streams_json(c))
		return rc;
	buf_reset(&c->out, KEEP_BYTES);
	rc = buf_printf(&c->out, "{\"session_id\":\"%.*s\",\"entries\":[",
	    VIEW_ARG(c->id));
	return rc == 0 ? exchange_data(c->r->x, buf_view(&c->out)) : rc;
}

static void
finish(struct sessions_call *c)
{
	int rc = 0;

	if (streams_json(c))
		rc = exchange_data(c->r->x, VIEW("]}\n"));
	if (rc == 0)
		rc = exchange_end(c->r->x);
	if (rc != SP_E_GONE)
		stop(c);
}

/* The first pass is over: 0, or the answer was made. */
static int
between(struct sessions_call *c)
{
	c->second = true;
	c->at = 0;
	buf_reset(&c->line, KEEP_BYTES);
	if (!streams_json(c) || jtrain_count(&c->train) > 0)
		return head(c);
	if (gate_error(c->r, 409, "not_trainable", "%s",
		"no turn of this session is complete, aligned and has token "
		"ids: nothing to train on") != 0)
		exchange_abort(c->r->x);
	stop(c);
	return SP_E_STATE;
}

static int
read_some(struct sessions_call *c)
{
	char *p = loop_scratch(gate_loop(c->r->gate));
	uint64_t left = c->size - c->at;
	ssize_t got = pread(c->fd, p, left < READ_BYTES ? left : READ_BYTES,
	    (off_t)c->at);

	if (got <= 0)
		return SP_E_EOF; /* cut off, or unreadable */
	c->at += (uint64_t)got;
	if (c->op == SESSIONS_TRACE)
		return exchange_data(c->r->x, view_of(p, (size_t)got));
	return take_lines(c, view_of(p, (size_t)got));
}

/* On, as far as the client and this turn of the loop have room. */
static void
pump(struct sessions_call *c)
{
	uint64_t until = c->at + TURN_BYTES;
	int rc = 0;

	while (rc == 0 && c->at < c->size && c->at < until) {
		if (c->second && exchange_room(c->r->x) == 0)
			return; /* room() goes on */
		rc = read_some(c);
	}
	if (rc == SP_E_GONE)
		return; /* gone() follows */
	if (rc != 0) {
		exchange_abort(c->r->x);
		stop(c);
		return;
	}
	if (c->at == c->size && c->second) {
		finish(c);
		return;
	}
	if (c->at == c->size && between(c) != 0)
		return;
	loop_task_post(c->task);
}

static void
on_task(void *arg)
{
	struct sessions_call *c = arg;

	if (c->fd >= 0 && c->r->x != NULL)
		pump(c);
}

void
sessions_view_room(struct sessions_call *c)
{
	if (c->fd >= 0 && c->second)
		pump(c);
}

void
sessions_view_begin(struct sessions_call *c, int fd, uint64_t size)
{
	int rc;

	c->fd = fd;
	c->size = size;
	c->second = c->op == SESSIONS_TRACE;
	c->task = loop_task_new(gate_loop(c->r->gate), on_task, c);
	rc = c->task == NULL ? SP_E_NOMEM : c->second ? head(c) : 0;
	if (rc == SP_E_GONE)
		return;
	if (rc != 0) {
		exchange_abort(c->r->x);
		stop(c);
		return;
	}
	loop_task_post(c->task);
}
