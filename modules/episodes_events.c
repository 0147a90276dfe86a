/* What happens in an episode, line by line, as it happens. */
#include "config.h"

#include "base/clock.h"
#include "base/mem.h"
#include "episodes_call.h"
#include "gate/episode_file.h"

enum {
	QUEUED_MAX = 1024 * 1024, /* then what happens is only counted */
	LINE_BYTES = 64 * 1024,
};

struct episodes_follow {
	struct episodes_call *c;
	struct episode_watch watch;
	bool watching;
	uint64_t n; /* of the last line */
	uint64_t lost; /* since it */
};

/* ---- lines ---------------------------------------------------------------- */

static void
put_head(struct episodes_follow *f, struct jwrite *w, const char *event)
{
	char when[32];

	clock_format(clock_wall_us(), when);
	jwrite_object(w);
	jwrite_key(w, "n");
	jwrite_u64(w, ++f->n);
	jwrite_key(w, "at");
	jwrite_cstr(w, when);
	jwrite_key(w, "event");
	jwrite_cstr(w, event);
}

static int
put_line(struct episodes_follow *f, struct episode *ep,
    const struct episode_news *n, struct buf *out)
{
	const char *event = episode_file_news(n);
	struct jwrite w;

	if (event == NULL)
		return SP_OK;
	jwrite_init(&w, out);
	put_head(f, &w, event);
	episode_file_put_news(&w, ep, n);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static int
put_lost(struct episodes_follow *f, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	put_head(f, &w, "gap");
	jwrite_key(&w, "lost");
	jwrite_u64(&w, f->lost);
	jwrite_end_object(&w);
	f->lost = 0;
	return jwrite_finish(&w);
}

/* A line is whole or not there. */
static int
send_line(struct episodes_follow *f, struct buf *line)
{
	int rc = buf_len(line) > 0 ? buf_add_char(line, '\n') : SP_OK;

	if (rc == SP_OK && buf_len(line) > 0)
		rc = exchange_data(f->c->r->x, buf_view(line));
	buf_reset(line, 0);
	return rc;
}

/* ---- following ------------------------------------------------------------ */

static void
stop(struct episodes_follow *f)
{
	int rc;

	if (f->watching)
		episode_unwatch(&f->watch);
	f->watching = false;
	rc = exchange_end(f->c->r->x);
	if (rc != SP_E_GONE)
		gate_finish(f->c->r);
}

static void
on_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct episodes_follow *f = arg;
	struct buf line = BUF_INIT(LINE_BYTES);
	int rc = SP_OK;

	/* told of its end in any case */
	if (exchange_queued(f->c->r->x) > QUEUED_MAX &&
	    n->what != EPISODE_ENDED) {
		f->lost++;
		return;
	}
	if (f->lost > 0) {
		rc = put_lost(f, &line);
		if (rc == SP_OK)
			rc = send_line(f, &line);
	}
	if (rc == SP_OK)
		rc = put_line(f, ep, n, &line);
	if (rc == SP_OK)
		rc = send_line(f, &line);
	if (rc != SP_OK)
		f->lost++;
	buf_clear(&line);
	if (n->what == EPISODE_ENDED)
		stop(f);
}

enum gate_verdict
episodes_events_message(struct episodes_call *c)
{
	struct episode *ep = episodes_door_find(c);
	struct episodes_follow *f;
	int rc;

	if (ep == NULL)
		return episodes_door_deny(c, 404, "unknown_episode",
		    "there is no episode of that id");
	f = mem_calloc(1, sizeof(*f));
	if (f == NULL)
		return GATE_FAIL;
	c->follow = f;
	f->c = c;
	f->watch.news = on_news;
	f->watch.arg = f;
	rc = episodes_door_stream(c, "application/x-ndjson");
	if (rc != SP_OK)
		return rc == SP_E_GONE ? GATE_HOLD : GATE_FAIL;
	/* silence may last; a reader of lines passes over an empty one */
	c->r->x->patient = true;
	exchange_set_probe(c->r->x, VIEW("\n"));
	episode_watch(ep, &f->watch);
	f->watching = true;
	return GATE_HOLD;
}

void
episodes_events_clear(struct episodes_call *c)
{
	if (c->follow == NULL)
		return;
	if (c->follow->watching)
		episode_unwatch(&c->follow->watch);
	mem_free(c->follow);
	c->follow = NULL;
}
