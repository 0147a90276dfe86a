/* What happens in an episode, line by line, as it happens. */
#include "config.h"

#include "base/clock.h"
#include "base/mem.h"
#include "episodes_call.h"
#include "gate/episode_file.h"
#include "gate/feed.h"
#include "json/jscan.h"

enum {
	QUEUED_MAX = 1024 * 1024, /* then what happens is only counted */
	LINE_BYTES = FEED_LINE_MAX + 1024,
	/* what is told as it happens, by the watch, has lines of its own */
	OBSERVED = FEED_HARNESS | FEED_FS | FEED_NETWORK | FEED_MODEL,
};

struct episodes_follow {
	struct episodes_call *c;
	struct episode_watch watch;
	struct feed_reader reader; /* of what observers see besides */
	struct buf event, line;
	bool watching;
	uint64_t n; /* of the last line */
	uint64_t lost; /* since it */
};

/* ---- lines ---------------------------------------------------------------- */

static void
put_head(struct episodes_follow *f, struct jwrite *w, struct view event)
{
	char when[32];

	clock_format(clock_wall_us(), when);
	jwrite_object(w);
	jwrite_key(w, "n");
	jwrite_u64(w, ++f->n);
	jwrite_key(w, "at");
	jwrite_cstr(w, when);
	jwrite_key(w, "event");
	jwrite_string(w, event);
}

static int
put_line(struct episodes_follow *f, struct episode *ep,
    const struct episode_news *n)
{
	const char *event = episode_file_news(n);
	struct jwrite w;

	if (event == NULL)
		return SP_OK;
	jwrite_init(&w, &f->line);
	put_head(f, &w, view_str(event));
	episode_file_put_news(&w, ep, n);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

/* One of the feed's: its type is ours, and its data stay as they are. */
static int
put_event(struct episodes_follow *f)
{
	struct jscan_span key, v;
	struct view type = VIEW("gap"), data = VIEW("null");
	struct jwrite w;
	struct jscan j;
	int rc;

	jscan_init(&j, buf_view(&f->event), 0);
	rc = jscan_enter(&j);
	while (rc == SP_OK && (rc = jscan_member(&j, &key)) == 1) {
		rc = jscan_skip(&j, &v);
		if (rc == SP_OK && jscan_is(&j, &key, VIEW("type")))
			type = jscan_text(&j, &v);
		else if (rc == SP_OK && jscan_is(&j, &key, VIEW("data")))
			data = jscan_raw(&j, &v);
	}
	if (rc != SP_OK)
		return rc;
	jwrite_init(&w, &f->line);
	put_head(f, &w, type);
	jwrite_key(&w, "data");
	jwrite_span(&w, data);
	jwrite_end_object(&w);
	return jwrite_finish(&w);
}

static int
put_lost(struct episodes_follow *f)
{
	struct jwrite w;

	jwrite_init(&w, &f->line);
	put_head(f, &w, VIEW("gap"));
	jwrite_key(&w, "lost");
	jwrite_u64(&w, f->lost);
	jwrite_end_object(&w);
	f->lost = 0;
	return jwrite_finish(&w);
}

/* A line is whole or not there. */
static int
send_line(struct episodes_follow *f, int rc)
{
	struct buf *line = &f->line;

	if (rc == SP_OK && buf_len(line) > 0)
		rc = buf_add_char(line, '\n');
	if (rc == SP_OK && buf_len(line) > 0)
		rc = exchange_data(f->c->r->x, buf_view(line));
	buf_reset(line, LINE_BYTES);
	return rc;
}

/* False: it takes nothing now, and one more is counted. */
static bool
has_room(struct episodes_follow *f)
{
	if (exchange_queued(f->c->r->x) > QUEUED_MAX) {
		f->lost++;
		return false;
	}
	return f->lost == 0 || send_line(f, put_lost(f)) == SP_OK;
}

/* ---- following ------------------------------------------------------------ */

static void
stop(struct episodes_follow *f)
{
	int rc;

	if (f->watching)
		episode_unwatch(&f->watch);
	f->watching = false;
	feed_read_stop(&f->reader);
	rc = exchange_end(f->c->r->x);
	if (rc != SP_E_GONE)
		gate_finish(f->c->r);
}

/* What observers see, as far as it has come. */
static void
on_feed(void *arg)
{
	struct episodes_follow *f = arg;
	int rc;

	for (;;) {
		buf_reset(&f->event, FEED_LOG_BLOCK);
		rc = feed_read(NULL, &f->reader, &f->event);
		if (rc == SP_E_NOMEM || rc == SP_E_LIMIT)
			f->lost++;
		if (rc != SP_OK)
			return;
		if (has_room(f) && send_line(f, put_event(f)) != SP_OK)
			f->lost++;
	}
}

static void
on_feed_reset(void *arg, bool over)
{
	/* what is read next tells both */
	(void)arg;
	(void)over;
}

static void
on_news(void *arg, struct episode *ep, const struct episode_news *n)
{
	struct episodes_follow *f = arg;
	bool ended = n->what == EPISODE_ENDED;

	if (ended)
		on_feed(f);
	/* told of its end in any case */
	if ((has_room(f) || ended) && send_line(f, put_line(f, ep, n)) != SP_OK)
		f->lost++;
	if (ended)
		stop(f);
}

static void
follow_feed(struct episodes_follow *f, struct feed *feed)
{
	f->reader.types = OBSERVED;
	f->reader.next = feed_next(feed);
	f->reader.resets = feed_resets(feed);
	f->reader.ready = on_feed;
	f->reader.reset = on_feed_reset;
	f->reader.arg = f;
	feed_read_start(feed, &f->reader);
	on_feed(f);
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
	buf_init(&f->event, FEED_LINE_MAX);
	buf_init(&f->line, LINE_BYTES);
	rc = episodes_door_stream(c, "application/x-ndjson");
	if (rc != SP_OK)
		return rc == SP_E_GONE ? GATE_HOLD : GATE_FAIL;
	/* silence may last; a reader of lines passes over an empty one */
	c->r->x->patient = true;
	exchange_set_probe(c->r->x, VIEW("\n"));
	episode_watch(ep, &f->watch);
	f->watching = true;
	if (feed_of(ep) != NULL)
		follow_feed(f, feed_of(ep));
	return GATE_HOLD;
}

void
episodes_events_clear(struct episodes_call *c)
{
	if (c->follow == NULL)
		return;
	if (c->follow->watching)
		episode_unwatch(&c->follow->watch);
	feed_read_stop(&c->follow->reader);
	buf_clear(&c->follow->event);
	buf_clear(&c->follow->line);
	mem_free(c->follow);
	c->follow = NULL;
}
