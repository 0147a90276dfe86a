/* What the programs of an episode say: what is kept, and (follow=1) what comes. */
#include "config.h"

#include "base/mem.h"
#include "episodes_call.h"
#include "gate/console.h"
#include "http/query.h"
#include "json/jwrite.h"

enum { PIECE_MAX = 64 * 1024 };

struct episodes_logs {
	struct episodes_call *c;
	struct episode *ep; /* NULL: it is over */
	struct console_reader reader;
	bool follow;
};

/* Bytes that were thrown away before this reader came to them. */
static int
put_gap(struct episodes_logs *l, uint64_t lost)
{
	struct buf b = BUF_INIT(256);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_key(&w, "lost_bytes");
	jwrite_u64(&w, lost);
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		rc = buf_add_char(&b, '\n');
	if (rc == SP_OK)
		rc = exchange_data(l->c->r->x, buf_view(&b));
	buf_clear(&b);
	return rc;
}

static void
stop(struct episodes_logs *l)
{
	console_read_stop(&l->reader);
	l->ep = NULL;
	if (exchange_end(l->c->r->x) != SP_E_GONE)
		gate_finish(l->c->r);
}

/* As much as the client takes; a slow one finds a gap. */
static void
pump(void *arg)
{
	struct episodes_logs *l = arg;
	struct view v = VIEW_NONE;
	uint64_t lost;
	int rc = SP_OK;

	while (l->ep != NULL && rc == SP_OK && exchange_room(l->c->r->x) > 0) {
		console_read(l->ep, &l->reader, PIECE_MAX, &v, &lost);
		if (lost > 0)
			rc = put_gap(l, lost);
		if (rc == SP_OK && v.n > 0)
			rc = exchange_data(l->c->r->x, v);
		if (v.n == 0)
			break;
	}
	if (l->ep != NULL && rc == SP_OK && v.n == 0 && !l->follow)
		stop(l);
}

static void
on_over(void *arg)
{
	struct episodes_logs *l = arg;

	if (l->ep != NULL)
		stop(l);
}

enum gate_verdict
episodes_logs_message(struct episodes_call *c)
{
	struct episode *ep = episodes_door_find(c);
	struct episodes_logs *l;
	bool follow = false;
	int rc;

	if (ep == NULL)
		return episodes_door_deny(c, 404, "unknown_episode",
		    "there is no episode of that id");
	if (query_flag(c->r->x->request.query, VIEW("follow"), &follow) !=
	    SP_OK)
		return episodes_door_deny(c, 400, "bad_query",
		    "follow is 0 or 1, once");
	l = mem_calloc(1, sizeof(*l));
	if (l == NULL)
		return GATE_FAIL;
	c->logs = l;
	l->c = c;
	l->follow = follow;
	l->reader =
	    (struct console_reader){ .ready = pump, .over = on_over, .arg = l };
	rc = episodes_door_stream(c, "application/x-ndjson");
	if (rc != SP_OK)
		return rc == SP_E_GONE ? GATE_HOLD : GATE_FAIL;
	/* silence may last; a reader of lines passes over an empty one */
	c->r->x->patient = true;
	exchange_set_probe(c->r->x, VIEW("\n"));
	rc = console_read_start(ep, &l->reader);
	if (rc != SP_OK)
		return GATE_FAIL;
	l->ep = ep;
	pump(l);
	return GATE_HOLD;
}

bool
episodes_logs_follows(const struct episodes_call *c)
{
	return c->logs != NULL && c->logs->ep != NULL && c->logs->follow;
}

void
episodes_logs_room(struct episodes_call *c)
{
	if (c->logs != NULL && c->logs->ep != NULL)
		pump(c->logs);
}

void
episodes_logs_clear(struct episodes_call *c)
{
	if (c->logs == NULL)
		return;
	console_read_stop(&c->logs->reader);
	mem_free(c->logs);
	c->logs = NULL;
}
