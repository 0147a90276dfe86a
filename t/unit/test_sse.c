/* Cases A1 to A14 and their kind, each cut at every byte. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "http/sse.h"
#include "tap.h"

#define DATA_1 "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}"

/* What the events were, as text: flags, data_at, raw, data, error, name. */
struct log {
	char *p;
	size_t n, cap;
	struct buf raw;
	unsigned events;
	unsigned stop_at; /* the callback fails at this event; 0 never */
};

static void
log_add(struct log *l, const char *p, size_t n)
{
	if (l->n + n + 1 > l->cap) {
		l->cap = (l->n + n + 1) * 2;
		l->p = realloc(l->p, l->cap);
		if (l->p == NULL)
			abort();
	}
	if (n != 0)
		memcpy(l->p + l->n, p, n);
	l->n += n;
	l->p[l->n] = '\0';
}

static void
log_view(struct log *l, const char *tag, struct view v)
{
	log_add(l, tag, strlen(tag));
	log_add(l, v.p, v.n);
	log_add(l, "|", 1);
}

static int
on_event(void *arg, const struct sse_event *e)
{
	struct log *l = arg;
	char head[64];
	unsigned f = e->flags;
	int n;

	n = snprintf(head, sizeof(head), "<%s%s%s%s%s%s@%zu ",
	    f & SSE_DATA ? "D" : "", f & SSE_COMMENT ? "C" : "",
	    f & SSE_ERROR ? "E" : "", f & SSE_NAMED ? "N" : "",
	    f & SSE_ONE_LINE ? "1" : "", f & SSE_BLANK ? "B" : "", e->data_at);
	log_add(l, head, (size_t)n);
	log_view(l, "r=", e->raw);
	log_view(l, "d=", e->data);
	log_view(l, "e=", e->error);
	log_view(l, "n=", e->name);
	if (f & SSE_ONE_LINE &&
	    memcmp(e->raw.p + e->data_at, e->data.p, e->data.n) != 0)
		log_add(l, "BAD data_at", 11);
	if (buf_add_view(&l->raw, e->raw) != 0)
		abort();
	return ++l->events == l->stop_at ? SP_E_GONE : 0;
}

static void
log_clear(struct log *l)
{
	free(l->p);
	buf_clear(&l->raw);
	*l = (struct log){ .raw = BUF_INIT(64 << 20) };
}

/* Feeds in[0, a), in[a, b), in[b, n); every view in memory of its own. */
static int
feed_cut(struct sse *s, struct view in, size_t a, size_t b, struct log *l)
{
	const size_t cut[4] = { 0, a, b, in.n };
	int i, rc = 0;

	for (i = 0; rc == 0 && i < 3; i++) {
		struct view piece = view_sub(in, cut[i], cut[i + 1] - cut[i]);
		char *own = malloc(piece.n + 1);

		if (own == NULL)
			abort();
		if (piece.n != 0)
			memcpy(own, piece.p, piece.n);
		rc = sse_feed(s, view_of(own, piece.n), on_event, l);
		free(own);
	}
	return rc;
}

static bool
same(struct sse *s, struct view in, size_t a, size_t b, const struct log *want)
{
	struct log got = { .raw = BUF_INIT(64 << 20) };
	struct view rest;
	bool good;

	sse_init(s, 1 << 20);
	good = feed_cut(s, in, a, b, &got) == 0;
	rest = sse_rest(s);
	if (buf_add_view(&got.raw, rest) != 0)
		abort();
	good = good && got.n == want->n &&
	    memcmp(got.p ? got.p : "", want->p ? want->p : "", got.n) == 0 &&
	    view_eq(buf_view(&got.raw), buf_view(&want->raw));
	if (!good)
		tap_diag("cut %zu %zu: %s", a, b, got.p ? got.p : "");
	log_clear(&got);
	sse_clear(s);
	return good;
}

struct test {
	const char *name;
	struct view in;
	const char *want;
};
#define IN(lit) \
	{ \
		"" lit, sizeof(lit) - 1 \
	}

static const struct test tests[] = {
	{ "A1 CR LF", IN("data: " DATA_1 "\r\n\r\ndata: [DONE]\r\n\r\n"),
	    "<D1@6 r=data: " DATA_1 "\r\n\r\n|d=" DATA_1 "|e=|n=|"
	    "<D1@6 r=data: [DONE]\r\n\r\n|d=[DONE]|e=|n=|" },
	{ "A1 CR", IN("data: a\r\rdata: b\r\r"),
	    "<D1@6 r=data: a\r\r|d=a|e=|n=|<D1@6 r=data: b\r\r|d=b|e=|n=|" },
	{ "A1 mixed", IN("data: a\n\rdata: b\r\n\ndata: c\r\rdata: d\n\n"),
	    "<D1@6 r=data: a\n\r|d=a|e=|n=|<D1@6 r=data: b\r\n\n|d=b|e=|n=|"
	    "<D1@6 r=data: c\r\r|d=c|e=|n=|<D1@6 r=data: d\n\n|d=d|e=|n=|" },
	{ "A1 LF then CR LF: the CR ends it, the LF goes with the next",
	    IN("data: a\n\r\ndata: b\n\n"),
	    "<D1@6 r=data: a\n\r|d=a|e=|n=|<D1@7 r=\ndata: b\n\n|d=b|e=|n=|" },
	{ "A1 CR CR LF", IN("data: a\r\r\ndata: b\r\n\r\n"),
	    "<D1@6 r=data: a\r\r|d=a|e=|n=|"
	    "<D1@7 r=\ndata: b\r\n\r\n|d=b|e=|n=|" },
	{ "A1 CR LF then bare CR", IN("data: a\r\n\rdata: b\n\n"),
	    "<D1@6 r=data: a\r\n\r|d=a|e=|n=|<D1@6 r=data: b\n\n|d=b|e=|n=|" },
	{ "A3 no space", IN("data:x\n\ndata:[DONE]\n\n"),
	    "<D1@5 r=data:x\n\n|d=x|e=|n=|"
	    "<D1@5 r=data:[DONE]\n\n|d=[DONE]|e=|n=|" },
	{ "A3 two spaces", IN("data:  {\n\n"),
	    "<D1@6 r=data:  {\n\n|d= {|e=|n=|" },
	{ "A3 a tab is no space", IN("data:\t{\n\n"),
	    "<D1@5 r=data:\t{\n\n|d=\t{|e=|n=|" },
	{ "A4 byte order mark",
	    IN("\xef\xbb\xbf"
	       "data: a\n\n"),
	    "<D1@6 r=data: a\n\n|d=a|e=|n=|" },
	{ "A4 only one is dropped",
	    IN("\xef\xbb\xbf\xef\xbb\xbf"
	       "data: a\n\n"),
	    "<@0 r=\xef\xbb\xbf"
	    "data: a\n\n|d=|e=|n=|" },
	{ "A4 a later one stays",
	    IN("data: \xef\xbb\xbf"
	       "a\n\n"),
	    "<D1@6 r=data: \xef\xbb\xbf"
	    "a\n\n|d=\xef\xbb\xbf"
	    "a|e=|n=|" },
	{ "A4 two bytes of one",
	    IN("\xef\xbb"
	       "data: a\n\ndata: b\n\n"),
	    "<@0 r=\xef\xbb"
	    "data: a\n\n|d=|e=|n=|<D1@6 r=data: b\n\n|d=b|e=|n=|" },
	{ "A4 one byte of one",
	    IN("\xef"
	       "data: a\n\n"),
	    "<@0 r=\xef"
	    "data: a\n\n|d=|e=|n=|" },
	{ "A4 mark and a blank line", IN("\xef\xbb\xbf\n"),
	    "<B@0 r=\n|d=|e=|n=|" },
	{ "A5 comments", IN(": PROCESSING\n\n: P\n\ndata: a\n\n"),
	    "<C@0 r=: PROCESSING\n|d=|e=|n=|<B@0 r=\n|d=|e=|n=|"
	    "<C@0 r=: P\n|d=|e=|n=|<B@0 r=\n|d=|e=|n=|"
	    "<D1@6 r=data: a\n\n|d=a|e=|n=|" },
	{ "A5 comment of nothing", IN(":\n\n"),
	    "<C@0 r=:\n|d=|e=|n=|<B@0 r=\n|d=|e=|n=|" },
	{ "A5 comment, CR LF stream",
	    IN("data: a\r\n\r\n: c\r\n\r\ndata: b\r\n\r\n"),
	    "<D1@6 r=data: a\r\n\r\n|d=a|e=|n=|<C@0 r=: c\r\n|d=|e=|n=|"
	    "<B@0 r=\r\n|d=|e=|n=|<D1@6 r=data: b\r\n\r\n|d=b|e=|n=|" },
	{ "A5 first line a comment with CR LF",
	    IN(": c\r\n\r\ndata: a\r\n\r\n"),
	    "<C@0 r=: c\r|d=|e=|n=|<B@0 r=\n\r\n|d=|e=|n=|"
	    "<D1@6 r=data: a\r\n\r\n|d=a|e=|n=|" },
	{ "A5 comment within an event", IN("data: a\n: c\ndata: b\n\n"),
	    "<DC@0 r=data: a\n: c\ndata: b\n\n|d=a\nb|e=|n=|" },
	{ "A5 comment before a field is alone", IN(": c\ndata: a\n\n"),
	    "<C@0 r=: c\n|d=|e=|n=|<D1@6 r=data: a\n\n|d=a|e=|n=|" },
	{ "A5 comment that looks like data", IN(": data: a\n\n"),
	    "<C@0 r=: data: a\n|d=|e=|n=|<B@0 r=\n|d=|e=|n=|" },
	{ "A6 one line end after a comment", IN("data: 1\n\n: ka\ndata: 2\n\n"),
	    "<D1@6 r=data: 1\n\n|d=1|e=|n=|<C@0 r=: ka\n|d=|e=|n=|"
	    "<D1@6 r=data: 2\n\n|d=2|e=|n=|" },
	{ "A7 retry, event and empty data",
	    IN("retry: 3000\n\nevent: ping\n\ndata:\n\nid: 7\ndata: x\n\n"),
	    "<@0 r=retry: 3000\n\n|d=|e=|n=|<N@0 r=event: "
	    "ping\n\n|d=|e=|n=ping|"
	    "<1@5 r=data:\n\n|d=|e=|n=|<D1@12 r=id: 7\ndata: "
	    "x\n\n|d=x|e=|n=|" },
	{ "A7 data without a colon", IN("data\n\n"),
	    "<1@4 r=data\n\n|d=|e=|n=|" },
	{ "A7 data of one space", IN("data: \n\n"),
	    "<1@6 r=data: \n\n|d=|e=|n=|" },
	{ "A7 two empty data lines", IN("data:\ndata:\n\n"),
	    "<@0 r=data:\ndata:\n\n|d=\n|e=|n=|" },
	{ "A7 blank lines", IN("\n\n\ndata: a\n\n\n"),
	    "<B@0 r=\n|d=|e=|n=|<B@0 r=\n|d=|e=|n=|<B@0 r=\n|d=|e=|n=|"
	    "<D1@6 r=data: a\n\n|d=a|e=|n=|<B@0 r=\n|d=|e=|n=|" },
	{ "A8 cut anywhere", IN("data: " DATA_1 "\n\n"),
	    "<D1@6 r=data: " DATA_1 "\n\n|d=" DATA_1 "|e=|n=|" },
	{ "A8 several data lines", IN("data: a\ndata:b\ndata\ndata: c\n\n"),
	    "<D@0 r=data: a\ndata:b\ndata\ndata: c\n\n|d=a\nb\n\nc|e=|n=|" },
	{ "A8 named", IN("event: delta\ndata: a\n\n"),
	    "<DN1@19 r=event: delta\ndata: a\n\n|d=a|e=|n=delta|" },
	{ "A8 name after data", IN("data: a\nevent:d\n\n"),
	    "<DN1@6 r=data: a\nevent:d\n\n|d=a|e=|n=d|" },
	{ "field names are compared with case", IN("Data: a\nDATA: b\n\n"),
	    "<@0 r=Data: a\nDATA: b\n\n|d=|e=|n=|" },
	{ "a space before the colon is another field", IN("data : a\n\n"),
	    "<@0 r=data : a\n\n|d=|e=|n=|" },
	{ "a space before the name is another field", IN(" data: a\n\n"),
	    "<@0 r= data: a\n\n|d=|e=|n=|" },
	{ "longer names are other fields", IN("database: a\ndat: b\n\n"),
	    "<@0 r=database: a\ndat: b\n\n|d=|e=|n=|" },
	{ "A11 only CR and LF end lines",
	    IN("data: one\xe2\x80\xa8two\xc2\x85three\x0b\x0c.\n\n"),
	    "<D1@6 r=data: one\xe2\x80\xa8two\xc2\x85three\x0b\x0c.\n\n|"
	    "d=one\xe2\x80\xa8two\xc2\x85three\x0b\x0c.|e=|n=|" },
	{ "A12 no [DONE]: every whole event", IN("data: a\n\ndata: b\n\n"),
	    "<D1@6 r=data: a\n\n|d=a|e=|n=|<D1@6 r=data: b\n\n|d=b|e=|n=|" },
	{ "an event that is not whole is none", IN("data: a\n\ndata: b\n"),
	    "<D1@6 r=data: a\n\n|d=a|e=|n=|" },
	{ "A14 error", IN("error: {\"code\":400}\n\ndata: [DONE]\n\n"),
	    "<E@0 r=error: {\"code\":400}\n\n|d=|e={\"code\":400}|n=|"
	    "<D1@6 r=data: [DONE]\n\n|d=[DONE]|e=|n=|" },
	{ "A14 error and data", IN("error:x\ndata: y\n\n"),
	    "<DE1@14 r=error:x\ndata: y\n\n|d=y|e=x|n=|" },
	{ "NUL bytes are bytes", IN("data: a\0b\n\n"), NULL },
	{ "nothing", IN(""), "" },
	{ "only half a line", IN("dat"), "" },
};

static void
test_table(void)
{
	struct log want = { .raw = BUF_INIT(64 << 20) };
	struct sse s;
	size_t i, a, b;
	bool good;

	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		struct view in = tests[i].in, raw;

		sse_init(&s, 1 << 20);
		tap_is_int(sse_feed(&s, in, on_event, &want), 0, tests[i].name);
		if (buf_add_view(&want.raw, sse_rest(&s)) != 0)
			abort();
		sse_clear(&s);
		if (tests[i].want != NULL)
			tap_is_str(want.p ? want.p : "", tests[i].want,
			    tests[i].name);
		raw = view_starts(in, VIEW("\xef\xbb\xbf")) ? view_from(in, 3)
							    : in;
		tap_is_mem(buf_view(&want.raw).p, buf_len(&want.raw), raw.p,
		    raw.n, "no byte is lost or made up");
		good = true;
		for (a = 0; good && a <= in.n; a++)
			for (b = a; good && b <= in.n; b++)
				good = same(&s, in, a, b, &want);
		tap_ok(good, "%s: the same in three pieces", tests[i].name);
		log_clear(&want);
	}
}

/* Cut into single bytes, for all tables' streams behind one another. */
static void
test_bytes(void)
{
	struct buf all = BUF_INIT(1 << 20);
	struct log want = { .raw = BUF_INIT(64 << 20) };
	struct log got = { .raw = BUF_INIT(64 << 20) };
	struct sse s;
	size_t i;
	int rc = 0;

	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (buf_add_view(&all, tests[i].in) != 0)
			abort();
	sse_init(&s, 1 << 20);
	tap_is_int(sse_feed(&s, buf_view(&all), on_event, &want), 0, "whole");
	sse_clear(&s);
	for (i = 0; rc == 0 && i < buf_len(&all); i++)
		rc = sse_feed(&s, view_sub(buf_view(&all), i, 1), on_event,
		    &got);
	tap_is_int(rc, 0, "byte by byte");
	tap_is_mem(got.p, got.n, want.p, want.n, "A8 one byte at a time");
	sse_clear(&s);
	log_clear(&want);
	log_clear(&got);
	buf_clear(&all);
}

/* An event goes out with its last byte, not with the next one's first. */
static void
test_at_once(void)
{
	static const struct view in[] = { IN("data: a\n\n"), IN("data: a\r\r"),
		IN("data: a\r\n\r\n"), IN("data: a\r\n\n"), IN("data: a\n\r"),
		IN(": c\n"), IN(": c\r"), IN("\n") };
	struct log l = { .raw = BUF_INIT(64 << 20) };
	struct sse s;
	size_t i;

	for (i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
		sse_init(&s, 100);
		tap_ok(sse_feed(&s, in[i], on_event, &l) == 0 && l.events == 1,
		    "at once: %zu", i);
		sse_clear(&s);
		log_clear(&l);
	}
}

static void
test_limits(void)
{
	struct log l = { .raw = BUF_INIT(64 << 20) };
	struct view in = VIEW("data: 1234\n\n");
	struct sse s;
	size_t a;
	bool good = true;

	for (a = 0; a <= in.n; a++) {
		sse_init(&s, in.n);
		good = good && feed_cut(&s, in, a, a, &l) == 0;
		sse_clear(&s);
		sse_init(&s, in.n - 1);
		good = good && feed_cut(&s, in, a, a, &l) == SP_E_LIMIT;
		sse_clear(&s);
	}
	tap_ok(good, "A10 the longest event, and one more");
	sse_init(&s, 8);
	tap_is_int(sse_feed(&s, VIEW("data: 123"), on_event, &l), SP_E_LIMIT,
	    "A10 over the cap before its end");
	sse_clear(&s);
	log_clear(&l);
	l.stop_at = 2;
	sse_init(&s, 100);
	tap_is_int(sse_feed(&s, VIEW("data: a\n\ndata: b\n\ndata: c\n\n"),
		       on_event, &l),
	    SP_E_GONE, "what the callback returns");
	tap_is_int(l.events, 2, "stops there");
	sse_clear(&s);
	log_clear(&l);
}

static void
test_nomem(void)
{
	struct view in = VIEW("data: a\ndata: b\n\ndata: c\n: d\n\n");
	struct log l = { .raw = BUF_INIT(64 << 20) };
	struct sse s;
	unsigned long n;
	int rc = -1;
	size_t i;

	for (n = 1; rc != 0 && n < 50; n++) {
		rc = 0;
		l.stop_at = 0;
		if (buf_reserve(&l.raw, 4096) != 0)
			abort();
		sse_init(&s, 1 << 20);
		mem_fail_after(n, 0);
		for (i = 0; rc == 0 && i < in.n; i += 3)
			rc = sse_feed(&s, view_sub(in, i, 3), on_event, &l);
		mem_fail_after(0, 0);
		if (rc != 0 && rc != SP_E_NOMEM)
			break;
		sse_clear(&s);
		log_clear(&l);
	}
	tap_is_int(rc, 0, "every allocation failed once");
	tap_ok(n > 2, "there were some");
}

static int
count(void *arg, const struct sse_event *e)
{
	*(size_t *)arg += e->data.n;
	return 0;
}

static double
seconds(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* A10: linear, whatever the pieces.  The times are told, never judged. */
static void
test_long(void)
{
	enum { LONG = 5000000, LINES = 200000 };
	char *p = malloc(LONG + 16);
	struct sse s;
	size_t total = 0, i;
	double t;
	int rc = 0;

	if (p == NULL)
		abort();
	memcpy(p, "data: ", 6);
	memset(p + 6, 'a', LONG);
	memcpy(p + 6 + LONG, "\n\n", 2);
	t = seconds();
	sse_init(&s, 8 << 20);
	for (i = 0; rc == 0 && i < LONG + 8; i++)
		rc = sse_feed(&s, view_of(p + i, 1), count, &total);
	tap_ok(rc == 0 && total == LONG, "A10 5 MB in single bytes");
	tap_diag("5 MB in single bytes: %.3f s", seconds() - t);
	sse_clear(&s);
	memset(p, '\r', LINES);
	sse_init(&s, 8 << 20);
	t = seconds();
	total = 0;
	rc = sse_feed(&s, view_of(p, LINES), count, &total);
	tap_ok(rc == 0, "blank lines of CR only");
	tap_diag("%d blank lines of CR: %.3f s", LINES, seconds() - t);
	sse_clear(&s);
	free(p);
}

static void
test_speed(void)
{
	enum { EVENT = 700, EVENTS = 64, ROUNDS = 2000 };
	char *p = malloc(EVENT * EVENTS);
	struct sse s;
	size_t total = 0, i;
	double t;
	int rc = 0;

	if (p == NULL)
		abort();
	for (i = 0; i < EVENTS; i++) {
		memset(p + i * EVENT, 'a', EVENT);
		memcpy(p + i * EVENT, "data: ", 6);
		memcpy(p + (i + 1) * EVENT - 2, "\n\n", 2);
	}
	sse_init(&s, 1 << 20);
	t = seconds();
	for (i = 0; rc == 0 && i < ROUNDS; i++)
		rc = sse_feed(&s, view_of(p, EVENT * EVENTS), count, &total);
	t = seconds() - t;
	tap_ok(rc == 0 && total == (size_t)ROUNDS * EVENTS * (EVENT - 8),
	    "many events");
	tap_diag("%.0f ns an event of %d bytes", t * 1e9 / (ROUNDS * EVENTS),
	    EVENT);
	sse_clear(&s);
	free(p);
}

int
main(void)
{
	test_table();
	test_bytes();
	test_at_once();
	test_limits();
	test_nomem();
	test_long();
	test_speed();
	return tap_done();
}
