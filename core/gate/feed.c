#include "config.h"

#include "gate/feed.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/jwrite.h"
#include "os/fd.h"

enum {
	FEED_BUDGET = 4, /* blocks of a file, read in one go */
	FEED_GAP_BYTES = 256,
	FEED_COUNTS = 16, /* of before resets, whose ends are known */
	FEED_GAP_OF = 1 << 8, /* with a type's bit: a gap of that type */
};

#define FEED_UNKNOWN UINT64_MAX /* so many: nobody knows */

struct feed {
	LIST_ENTRY(feed) link;
	struct feed_set *set;
	struct episode *ep; /* NULL: it is over */
	struct feed_log log;
	LIST_HEAD(, feed_reader) readers;
	uint32_t resets; /* of its episode, when the log began */
	uint32_t resets_first; /* when the feed did */
	uint64_t ends[FEED_COUNTS]; /* of count i at [i % FEED_COUNTS] */
	bool fresh; /* something was added for those who wait */
	struct feed_samples samples[SANDBOX_SIDES];
	uint64_t deny_second, denies, denies_lost;
	uint64_t errors; /* of its file, that were counted */
	bool bad; /* its file is not written */
};

struct feed_set {
	LIST_HEAD(, feed) feeds;
	struct feed_log_limits limits;
	struct loop_task *task;
	struct feed_reader *walking; /* next that is told; may go meanwhile */
	size_t bad_n; /* feeds whose files are not written */
	uint64_t *errors; /* the metric; NULL: none */
};

const char *
feed_type_name(enum feed_type type)
{
	switch (type) {
	case FEED_HARNESS:
		return "harness_event";
	case FEED_FS:
		return "fs_change";
	case FEED_PROCESS:
		return "process";
	case FEED_NETWORK:
		return "network";
	case FEED_RESOURCE:
		return "resource";
	case FEED_MODEL:
		return "model";
	case FEED_GAP:
	case FEED_TYPES:
		break;
	}
	return "gap";
}

/* ---- life ------------------------------------------------------------------- */

/* Readers may stop themselves, and each other, when they are told. */
static void
feed_wake(struct feed *f)
{
	struct feed_reader *r;

	f->fresh = false;
	for (r = LIST_FIRST(&f->readers); r != NULL; r = f->set->walking) {
		f->set->walking = LIST_NEXT(r, link);
		if (!r->waits)
			continue;
		r->waits = false;
		r->budget = FEED_BUDGET;
		r->ready(r->arg);
	}
}

static void
feed_free(struct feed *f)
{
	struct feed_reader *r;

	while ((r = LIST_FIRST(&f->readers)) != NULL) {
		LIST_REMOVE(r, link);
		r->feed = NULL;
	}
	if (f->ep != NULL)
		f->ep->feed = NULL;
	LIST_REMOVE(f, link);
	f->set->bad_n -= f->bad;
	feed_log_clear(&f->log);
	mem_free(f);
}

/* What is over stays for those who have not read it all. */
static void
feed_on_task(void *arg)
{
	struct feed_set *s = arg;
	struct feed *f, *next;

	for (f = LIST_FIRST(&s->feeds); f != NULL; f = next) {
		if (f->fresh)
			feed_wake(f);
		next = LIST_NEXT(f, link);
		if (f->ep == NULL && LIST_EMPTY(&f->readers))
			feed_free(f);
	}
}

struct feed_set *
feed_set_new(struct loop *loop, const struct feed_log_io *io)
{
	struct feed_set *s = mem_calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	LIST_INIT(&s->feeds);
	s->limits = (struct feed_log_limits){ .memory_max = FEED_MEMORY_EACH,
		.file_max = FEED_FILE_MAX,
		.io = io };
	s->task = loop_task_new(loop, feed_on_task, s);
	if (s->task == NULL) {
		mem_free(s);
		return NULL;
	}
	return s;
}

int
feed_set_metrics(struct feed_set *s, struct metrics *m)
{
	struct metric *errors =
	    metrics_register(m, METRICS_COUNTER, "event_file_errors",
		"Writes and reads of files of events that failed", NULL, NULL);

	if (errors == NULL)
		return SP_E_NOMEM;
	s->errors = metrics_cell(errors, NULL);
	return SP_OK;
}

void
feed_set_free(struct feed_set *s)
{
	struct feed *f;

	if (s == NULL)
		return;
	while ((f = LIST_FIRST(&s->feeds)) != NULL)
		feed_free(f);
	loop_task_free(s->task);
	mem_free(s);
}

size_t
feed_set_memory(const struct feed_set *s)
{
	const struct feed *f;
	size_t n = 0;

	LIST_FOREACH (f, &s->feeds, link)
		n += f->log.memory;
	return n;
}

static void feed_put(struct feed *f, enum feed_type type, struct view data);

static void
feed_open(struct feed_set *s, struct episode *ep)
{
	struct feed *f = mem_calloc(1, sizeof(*f));

	if (f == NULL) {
		log_error("episode %s: nothing of it can be observed: %s",
		    ep->id, err_str(SP_E_NOMEM));
		return;
	}
	f->set = s;
	f->ep = ep;
	f->resets = f->resets_first = ep->resets;
	feed_log_init(&f->log, &s->limits);
	LIST_INIT(&f->readers);
	LIST_INSERT_HEAD(&s->feeds, f, link);
	ep->feed = f;
	/* of a reactor that died, with whatever it had of it */
	if (f->resets > 0)
		feed_put(f, FEED_GAP,
		    VIEW("{\"lost\":null,\"reason\":\"restart\"}"));
}

static void
feed_tell(struct feed *f, bool over)
{
	struct feed_reader *r;

	for (r = LIST_FIRST(&f->readers); r != NULL; r = f->set->walking) {
		f->set->walking = LIST_NEXT(r, link);
		r->reset(r->arg, over);
	}
}

static void
feed_over(struct feed *f)
{
	f->ep->feed = NULL;
	f->ep = NULL;
	/* those who wait find its end */
	f->fresh = true;
	loop_task_post(f->set->task);
	feed_tell(f, true);
}

void
feed_reset(struct feed *f)
{
	struct feed_reader *r;
	uint64_t end;

	/* what came last is there for all who keep up */
	feed_wake(f);
	end = f->log.next;
	LIST_FOREACH (r, &f->readers, link) {
		if (r->missed == 0)
			r->missed_at = r->next;
		r->missed_reset = true;
		if (r->next < end && r->missed != FEED_UNKNOWN)
			r->missed += end - r->next;
		r->next = 0;
		r->resets = f->ep->resets;
		r->at = (struct feed_log_at){ .block = 0 };
		if (r->missed > 0)
			f->fresh = true;
	}
	feed_log_restart(&f->log);
	f->ends[f->resets % FEED_COUNTS] = end;
	f->resets = f->ep->resets;
	memset(&f->samples, 0, sizeof(f->samples));
	f->denies_lost = 0;
	if (f->fresh)
		loop_task_post(f->set->task);
	feed_tell(f, false);
}

void
feed_spill(struct feed *f, int fd)
{
	if (f == NULL)
		fd_close(&fd);
	else
		feed_log_file(&f->log, fd);
}

void
feed_set_news(struct feed_set *s, struct episode *ep,
    const struct episode_news *n)
{
	if (n->what == EPISODE_MADE) {
		if (ep->feed == NULL)
			feed_open(s, ep);
		else if (ep->feed->resets != ep->resets)
			feed_reset(ep->feed);
	} else if (n->what == EPISODE_ENDED && ep->feed != NULL) {
		feed_over(ep->feed);
	}
}

/* ---- adding ----------------------------------------------------------------- */

struct feed *
feed_of(const struct episode *ep)
{
	return ep->feed;
}

struct feed_samples *
feed_samples(struct feed *f, unsigned side)
{
	return &f->samples[side < SANDBOX_SIDES ? side : 0];
}

/* What was not told becomes a gap as soon as there is time for one. */
bool
feed_may_deny(struct feed *f)
{
	uint64_t second = clock_ms() / 1000, lost = f->denies_lost;

	if (f->deny_second != second) {
		f->deny_second = second;
		f->denies = 0;
		f->denies_lost = 0;
		if (lost > 0)
			feed_add_gap(f, FEED_NETWORK, lost, "rate");
	}
	if (f->denies++ < FEED_DENIES)
		return true;
	f->denies_lost++;
	return false;
}

uint32_t
feed_resets(const struct feed *f)
{
	return f->resets;
}

uint64_t
feed_next(const struct feed *f)
{
	return f->log.next;
}

/* Told of the first whose file is not written, and when all are again. */
static void
feed_watch_file(struct feed *f)
{
	struct feed_log *l = &f->log;
	uint64_t errors = l->write_errors + l->read_errors;
	struct feed_set *s = f->set;
	bool bad = l->write_rc != SP_OK;

	if (s->errors != NULL && errors > f->errors)
		*s->errors += errors - f->errors;
	f->errors = errors;
	if (bad == f->bad)
		return;
	f->bad = bad;
	if (bad && s->bad_n++ == 0)
		log_error("episode %s: the file of its events in state_dir is "
			  "not written: %s: the oldest events go sooner, see "
			  "that there is room",
		    f->ep != NULL ? f->ep->id : "-", err_str(l->write_rc));
	else if (!bad && --s->bad_n == 0)
		log_notice("files of events in state_dir are written again");
}

/* One episode's flood costs that episode its memory first. */
static void
feed_shrink(struct feed_set *s)
{
	struct feed *f, *most;

	while (feed_set_memory(s) > FEED_MEMORY_ALL) {
		most = NULL;
		LIST_FOREACH (f, &s->feeds, link)
			if (most == NULL || f->log.memory > most->log.memory)
				most = f;
		if (most == NULL || !feed_log_shrink(&most->log))
			break;
		feed_watch_file(most);
	}
}

static void
feed_put(struct feed *f, enum feed_type type, struct view data)
{
	int rc = feed_log_add(&f->log, type, FEED_GAP, clock_wall_us(), data);

	if (rc != SP_OK && f->log.lost == 1 && f->ep != NULL)
		log_warn("episode %s: events are lost: %s", f->ep->id,
		    err_str(rc));
	feed_shrink(f->set);
	feed_watch_file(f);
	f->fresh = true;
	if (!LIST_EMPTY(&f->readers))
		loop_task_post(f->set->task);
}

/* The word for what did not become an event. */
static const char *
feed_lost_reason(int rc)
{
	if (rc == SP_E_LIMIT)
		return "too large";
	return rc == SP_E_NOMEM ? "memory" : "malformed";
}

/* What came from a worker or a client, as strict JSON on one line. */
static void
feed_put_strict(struct feed *f, enum feed_type type, struct view data)
{
	struct buf text = BUF_INIT(FEED_LOG_EVENT_MAX);
	struct jwrite w;
	int rc;

	jwrite_init(&w, &text);
	jwrite_span(&w, data);
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		feed_put(f, type, buf_view(&text));
	else
		feed_add_gap(f, type, 1, feed_lost_reason(rc));
	buf_clear(&text);
}

void
feed_add(struct feed *f, enum feed_type type, struct view data)
{
	if (f == NULL)
		return;
	if (type == FEED_HARNESS)
		feed_put_strict(f, type, data);
	else
		feed_put(f, type, data);
}

void
feed_add_gap(struct feed *f, enum feed_type type, uint64_t lost,
    const char *reason)
{
	struct buf text = BUF_INIT(FEED_GAP_BYTES);
	struct jwrite w;

	if (f == NULL)
		return;
	jwrite_init(&w, &text);
	jwrite_object(&w);
	jwrite_key(&w, "lost");
	if (lost > 0)
		jwrite_u64(&w, lost);
	else
		jwrite_null(&w);
	jwrite_key(&w, "type");
	jwrite_cstr(&w, feed_type_name(type));
	jwrite_key(&w, "reason");
	jwrite_cstr(&w, reason);
	jwrite_end_object(&w);
	/* no memory: counted */
	feed_put(f, (enum feed_type)((unsigned)type | FEED_GAP_OF),
	    jwrite_finish(&w) == SP_OK ? buf_view(&text) : VIEW_NONE);
	buf_clear(&text);
}

/* ---- reading ---------------------------------------------------------------- */

/* What came before this count, behind what it has read. */
static uint64_t
feed_missed(const struct feed *f, const struct feed_reader *r)
{
	uint64_t lost = 0;
	uint32_t i;

	if (r->resets == f->resets)
		return r->next <= f->log.next ? 0 : FEED_UNKNOWN;
	/* the gap that the log begins with tells of it */
	if (r->resets < f->resets_first && f->resets == f->resets_first)
		return 0;
	if (r->resets < f->resets_first || r->resets > f->resets ||
	    f->resets - r->resets > FEED_COUNTS ||
	    r->next > f->ends[r->resets % FEED_COUNTS])
		return FEED_UNKNOWN;
	for (i = r->resets; i < f->resets; i++)
		lost += f->ends[i % FEED_COUNTS];
	return lost - r->next;
}

void
feed_read_start(struct feed *f, struct feed_reader *r)
{
	r->feed = f;
	r->at = (struct feed_log_at){ .block = 0 };
	r->missed = feed_missed(f, r);
	r->missed_at = r->next;
	r->missed_reset = r->resets < f->resets;
	if (r->resets != f->resets || r->missed > 0)
		r->next = 0;
	r->resets = f->resets;
	r->waits = false;
	r->budget = FEED_BUDGET;
	LIST_INSERT_HEAD(&f->readers, r, link);
}

void
feed_read_stop(struct feed_reader *r)
{
	struct feed *f = r->feed;

	if (f == NULL)
		return;
	if (f->set->walking == r)
		f->set->walking = LIST_NEXT(r, link);
	LIST_REMOVE(r, link);
	r->feed = NULL;
	if (f->ep == NULL)
		loop_task_post(f->set->task);
}

/* Whole, or not there.  resets: 0 is not told. */
static int
feed_put_event(const struct feed_log_event *ev, uint32_t resets,
    struct buf *out)
{
	size_t before = buf_len(out);
	int rc;

	rc = buf_printf(out,
	    "{\"seq\":%llu,\"ts\":%llu.%06u,\"type\":\"%s\",\"data\":",
	    (unsigned long long)ev->seq, (unsigned long long)(ev->us / 1000000),
	    (unsigned)(ev->us % 1000000),
	    feed_type_name((enum feed_type)ev->type));
	if (rc == SP_OK)
		rc = buf_add_view(out, ev->data);
	if (rc == SP_OK && resets > 0)
		rc = buf_printf(out, ",\"resets\":%u", (unsigned)resets);
	if (rc == SP_OK)
		rc = buf_add_char(out, '}');
	if (rc != SP_OK)
		buf_truncate(out, before);
	return rc;
}

/* That so many from that number on are not to be had any more. */
static int
feed_put_missing(struct feed_log_event *ev, uint64_t lost, const char *reason,
    uint32_t resets, struct buf *out)
{
	char text[FEED_GAP_BYTES], n[24] = "null";
	int rc;

	if (lost != FEED_UNKNOWN)
		(void)snprintf(n, sizeof(n), "%llu", (unsigned long long)lost);
	(void)snprintf(text, sizeof(text), "{\"lost\":%s,\"reason\":\"%s\"}", n,
	    reason);
	ev->type = FEED_GAP;
	ev->data = view_str(text);
	rc = feed_put_event(ev, resets, out);
	ev->data = VIEW_NONE;
	return rc;
}

static const char *
feed_gone_reason(const struct feed_log *l, uint64_t next)
{
	return next < l->broken ? "disk" : "retention";
}

/* What of it is there no more. */
static int
feed_read_missed(const struct feed *f, struct feed_reader *r, struct buf *out)
{
	struct feed_log_event ev = { .seq = r->missed_at,
		.us = clock_wall_us() };
	int rc;

	if (r->missed > 0) {
		rc = feed_put_missing(&ev, r->missed,
		    r->missed_reset ? "reset" : "unknown", f->resets, out);
		if (rc == SP_OK)
			r->missed = 0;
		return rc;
	}
	ev.seq = r->next;
	ev.us = f->log.oldest_us;
	rc = feed_put_missing(&ev, f->log.oldest - r->next,
	    feed_gone_reason(&f->log, r->next), f->resets, out);
	if (rc == SP_OK)
		r->next = f->log.oldest;
	return rc;
}

static int
feed_read_next(struct feed *f, struct feed_reader *r, struct buf *out)
{
	struct feed_log *l = &f->log;
	struct feed_log_event ev;
	struct feed_log_at at = r->at;
	int rc;

	/* what was read already, or was not asked for */
	do
		rc = feed_log_get(l, &at, r->types | FEED_GAP, &r->budget, &ev);
	while (rc == SP_OK && ev.seq < r->next);
	if (rc != SP_OK) {
		r->at = at;
		return rc;
	}
	/* dropped while it was looked for */
	if (r->next < l->oldest)
		return SP_E_STATE;
	rc = feed_put_event(&ev, f->resets, out);
	if (rc == SP_OK) {
		r->at = at;
		r->next = ev.seq + 1;
	}
	return rc;
}

int
feed_read(struct feed *f, struct feed_reader *r, struct buf *out)
{
	int rc;

	f = r->feed;
	r->more = false;
	if (f == NULL)
		return SP_E_EOF;
	if (r->missed > 0 || r->next < f->log.oldest)
		return feed_read_missed(f, r, out);
	rc = feed_read_next(f, r, out);
	/* what could not be read again, and behind it nothing for this one */
	if (rc == SP_E_AGAIN && r->next < f->log.oldest)
		return feed_read_missed(f, r, out);
	if (rc == SP_E_STATE) {
		/* enough for one go: the others' turn first */
		r->more = true;
		f->fresh = true;
		loop_task_post(f->set->task);
		rc = SP_E_AGAIN;
	} else if (rc == SP_E_AGAIN) {
		/* others' types are nothing that it could miss */
		if (!r->more && r->next < f->log.next - f->log.lost)
			r->next = f->log.next - f->log.lost;
		if (f->ep == NULL)
			rc = SP_E_EOF;
	}
	if (rc == SP_E_AGAIN)
		r->waits = true;
	return rc;
}

/* Behind what there is already: 1 there is no room for it. */
static int
feed_page_put(const struct feed_page *page, struct feed_log_event *ev,
    uint64_t *n, size_t *used, struct buf *out)
{
	size_t before = buf_len(out);
	int rc = *n > 0 ? buf_add_char(out, ',') : SP_OK;

	if (rc == SP_OK)
		rc = feed_put_event(ev, 0, out);
	if (rc != SP_OK)
		return rc;
	*used += jwrite_again_bytes(view_from(buf_view(out), before));
	if (*n == 0 || (*used <= page->room && *n != page->limit)) {
		(*n)++;
		return SP_OK;
	}
	buf_truncate(out, before);
	return 1;
}

/* That so many are not there, from that number on. */
static int
feed_page_gap(uint64_t seq, uint64_t us, uint64_t lost, const char *reason,
    bool first, struct buf *out)
{
	struct feed_log_event gap = { .seq = seq, .us = us };
	int rc = first ? SP_OK : buf_add_char(out, ',');

	return rc == SP_OK ? feed_put_missing(&gap, lost, reason, 0, out) : rc;
}

int
feed_all(struct feed *f, const struct feed_page *page, struct buf *out)
{
	struct feed_log *l = &f->log;
	struct feed_log_at at = { .block = 0 };
	struct feed_log_event ev;
	unsigned budget;
	size_t before = buf_len(out), used = 0;
	uint64_t next = page->since, n = 0;
	int rc = buf_add_char(out, '[');

	/* a reset began anew: as observers are told */
	if (rc == SP_OK && next > l->next) {
		rc = feed_page_gap(next, clock_wall_us(), FEED_UNKNOWN,
		    "unknown", true, out);
		next = 0;
		n++;
	}
	while (rc == SP_OK) {
		/* blocks that cannot be read again are passed over */
		budget = FEED_LOG_BLOCKS;
		rc = feed_log_get(l, &at, ~0U, &budget, &ev);
		if (rc != SP_OK)
			break;
		if (ev.seq < next)
			continue;
		if (next < l->oldest) {
			rc = feed_page_gap(next, l->oldest_us, l->oldest - next,
			    feed_gone_reason(l, next), n == 0, out);
			n++;
		}
		if (rc == SP_OK)
			rc = feed_page_put(page, &ev, &n, &used, out);
		next = ev.seq + 1;
		if (rc != 1)
			continue;
		rc = feed_page_gap(ev.seq, ev.us, feed_next(f) - ev.seq,
		    "truncated", false, out);
		if (rc == SP_OK)
			rc = SP_E_AGAIN;
	}
	if (rc == SP_E_AGAIN)
		rc = buf_add_char(out, ']');
	if (rc != SP_OK)
		buf_truncate(out, before);
	return rc;
}
