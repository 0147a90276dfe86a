#include "config.h"

#include "base/clock.h"
#include "base/mem.h"
#include "gate/console.h"
#include "json/jwrite.h"

enum { CONSOLE_RECORD_MAX = 8 * CONSOLE_LINE_MAX };

/* One output of one program. */
struct console_source {
	SLIST_ENTRY(console_source) link;
	char *name;
	const char *stream;
	struct buf part; /* of a line that is not whole */
};

struct console {
	struct buf kept; /* whole records */
	struct buf record; /* the next, until it is whole */
	uint64_t begin; /* place of its first byte; from 1 */
	SLIST_HEAD(, console_source) sources;
	size_t sources_n;
	LIST_HEAD(console_readers, console_reader) readers;
	struct console_reader *cursor; /* the next to be told */
};

static struct console *
console_of(struct episode *ep)
{
	struct console *c = ep->console;

	if (c != NULL)
		return c;
	c = mem_calloc(1, sizeof(*c));
	if (c == NULL)
		return NULL;
	/* twice of what is kept: each line moves its own bytes, not all */
	buf_init(&c->kept, 2 * CONSOLE_KEPT_BYTES);
	buf_init(&c->record, CONSOLE_RECORD_MAX);
	c->begin = 1;
	SLIST_INIT(&c->sources);
	LIST_INIT(&c->readers);
	ep->console = c;
	return c;
}

static void
console_source_free(struct console *c, struct console_source *s)
{
	SLIST_REMOVE(&c->sources, s, console_source, link);
	c->sources_n--;
	buf_clear(&s->part);
	mem_free(s->name);
	mem_free(s);
}

void
console_free(struct console *c)
{
	struct console_reader *r;

	if (c == NULL)
		return;
	while ((r = LIST_FIRST(&c->readers)) != NULL) {
		console_read_stop(r);
		if (r->over != NULL)
			r->over(r->arg);
	}
	while (!SLIST_EMPTY(&c->sources))
		console_source_free(c, SLIST_FIRST(&c->sources));
	buf_clear(&c->kept);
	buf_clear(&c->record);
	mem_free(c);
}

static struct console_source *
console_source(struct console *c, struct view name, const char *stream,
    bool make)
{
	struct console_source *s;

	SLIST_FOREACH(s, &c->sources, link)
	if (view_eq(view_str(s->name), name) && strcmp(s->stream, stream) == 0)
		return s;
	if (!make || c->sources_n >= CONSOLE_SOURCES_MAX)
		return NULL;
	s = mem_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->name = mem_strndup(name.p, name.n);
	if (s->name == NULL) {
		mem_free(s);
		return NULL;
	}
	s->stream = stream;
	buf_init(&s->part, CONSOLE_LINE_MAX);
	SLIST_INSERT_HEAD(&c->sources, s, link);
	c->sources_n++;
	return s;
}

/* ---- records ---------------------------------------------------------------- */

static int
console_record(const struct console_source *s, const char *when,
    struct view line, struct buf *out)
{
	struct jwrite w;
	int rc;

	buf_reset(out, CONSOLE_LINE_MAX);
	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "at");
	jwrite_cstr(&w, when);
	jwrite_key(&w, "source");
	jwrite_cstr(&w, s->name);
	jwrite_key(&w, "stream");
	jwrite_cstr(&w, s->stream);
	jwrite_key(&w, "text");
	jwrite_string(&w, line);
	jwrite_end_object(&w);
	rc = jwrite_finish(&w);
	return rc == SP_OK ? buf_add_char(out, '\n') : rc;
}

/* Whole records go, the oldest first. */
static void
console_make_room(struct console *c, size_t n)
{
	struct view v;
	size_t cut = 0;

	while (buf_len(&c->kept) - cut + n > CONSOLE_KEPT_BYTES) {
		v = view_from(buf_view(&c->kept), cut);
		if (v.n == 0)
			break;
		cut += view_find(v, '\n') + 1;
	}
	buf_consume(&c->kept, cut);
	c->begin += cut;
}

static void
console_line(struct console *c, const struct console_source *s,
    const char *when, struct view line)
{
	int rc = console_record(s, when, line, &c->record);

	if (rc == SP_OK) {
		console_make_room(c, buf_len(&c->record));
		rc = buf_add_view(&c->kept, buf_view(&c->record));
	}
	/* without memory it is missing */
	(void)rc;
}

static void
console_wake(struct console *c)
{
	struct console_reader *r;

	c->cursor = LIST_FIRST(&c->readers);
	while ((r = c->cursor) != NULL) {
		c->cursor = LIST_NEXT(r, link);
		if (r->ready != NULL)
			r->ready(r->arg);
	}
}

/* What is there of a line, and this. */
static void
console_flush(struct console *c, struct console_source *s, const char *when,
    struct view rest)
{
	if (buf_len(&s->part) == 0) {
		console_line(c, s, when, rest);
		return;
	}
	if (buf_add_view(&s->part, rest) == SP_OK) {
		console_line(c, s, when, buf_view(&s->part));
	} else {
		console_line(c, s, when, buf_view(&s->part));
		console_line(c, s, when, rest);
	}
	buf_reset(&s->part, 0);
}

void
console_add(struct episode *ep, struct view source, const char *stream,
    struct view data)
{
	struct console *c = console_of(ep);
	struct console_source *s =
	    c != NULL ? console_source(c, source, stream, true) : NULL;
	char when[32];
	bool told = false;
	size_t n;

	if (s == NULL)
		return;
	clock_format(clock_wall_us(), when);
	while (data.n > 0) {
		n = view_find(data, '\n');
		if (n > CONSOLE_LINE_MAX)
			n = CONSOLE_LINE_MAX;
		if (n == data.n) {
			if (buf_len(&s->part) + n <= CONSOLE_LINE_MAX &&
			    buf_add_view(&s->part, data) == SP_OK)
				break;
		}
		console_flush(c, s, when, view_sub(data, 0, n));
		told = true;
		if (n < data.n && data.p[n] == '\n')
			n++;
		data = view_from(data, n);
	}
	if (told)
		console_wake(c);
}

void
console_end(struct episode *ep, struct view source, const char *stream)
{
	struct console *c = ep->console;
	struct console_source *s =
	    c != NULL ? console_source(c, source, stream, false) : NULL;

	char when[32];

	if (s == NULL)
		return;
	if (buf_len(&s->part) > 0) {
		clock_format(clock_wall_us(), when);
		console_line(c, s, when, buf_view(&s->part));
		buf_reset(&s->part, 0);
		console_wake(c);
	}
	console_source_free(c, s);
}

/* ---- reading ---------------------------------------------------------------- */

int
console_read_start(struct episode *ep, struct console_reader *r)
{
	struct console *c = console_of(ep);

	if (c == NULL)
		return SP_E_NOMEM;
	LIST_INSERT_HEAD(&c->readers, r, link);
	r->console = c;
	return SP_OK;
}

void
console_read_stop(struct console_reader *r)
{
	if (r->console == NULL)
		return;
	if (r->console->cursor == r)
		r->console->cursor = LIST_NEXT(r, link);
	LIST_REMOVE(r, link);
	r->console = NULL;
}

void
console_read(struct episode *ep, struct console_reader *r, size_t max,
    struct view *out, uint64_t *lost)
{
	struct console *c = ep->console;
	struct view v;
	size_t n = 0;

	*lost = 0;
	*out = VIEW_NONE;
	if (c == NULL)
		return;
	if (r->next == 0)
		r->next = c->begin;
	if (r->next < c->begin) {
		*lost = c->begin - r->next;
		r->next = c->begin;
	}
	v = view_from(buf_view(&c->kept), (size_t)(r->next - c->begin));
	while (n < v.n) {
		size_t line = view_find(view_from(v, n), '\n') + 1;

		if (n > 0 && n + line > max)
			break;
		n += line;
	}
	*out = view_sub(v, 0, n);
	r->next += n;
}
