/* core/gate/feed.c: what is kept, and who is told of it. */
#include "config.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "event/loop.h"
#include "feed_disk.h"
#include "os/fd.h"
#include "tap.h"

static struct loop *loop;
static struct feed_set *set;
static struct metrics *metrics;
static struct episode episode;
static const struct feed_page whole = { .room = SIZE_MAX };
static const struct feed_page two = { 2, 2, SIZE_MAX };
static const struct feed_page little = { .room = 1 };
static const struct feed_page coming = { .since = 7, .room = SIZE_MAX };
static const struct feed_page past = { .since = 107099, .room = SIZE_MAX };

static void
on_stop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

/* One turn with its tasks. */
static void
turn(void)
{
	struct loop_timer *t = loop_timer_new(loop, on_stop, NULL);

	if (t == NULL)
		abort();
	loop_timer_set(t, 1);
	if (loop_run(loop) != SP_OK)
		abort();
	loop_timer_free(t);
}

static void
news(enum episode_happening what)
{
	const struct episode_news n = { .what = what };

	feed_set_news(set, &episode, &n);
}

struct tester {
	struct feed_reader r;
	unsigned ready_n, reset_n, over_n;
	bool drains; /* reads from ready() */
	struct buf got;
	int rc;
	struct tester *stops; /* from ready() */
};

/* Everything, one line each. */
static void
tester_drain(struct tester *t)
{
	while ((t->rc = feed_read(t->r.feed, &t->r, &t->got)) == SP_OK)
		if (buf_add_char(&t->got, '\n') != SP_OK)
			abort();
}

static void
tester_ready(void *arg)
{
	struct tester *t = arg;

	t->ready_n++;
	if (t->drains)
		tester_drain(t);
	if (t->stops != NULL)
		feed_read_stop(&t->stops->r);
}

static void
tester_reset(void *arg, bool over)
{
	struct tester *t = arg;

	t->reset_n += !over;
	t->over_n += over;
}

static void
tester_begin(struct tester *t, unsigned types, uint64_t since)
{
	memset(t, 0, sizeof(*t));
	buf_init(&t->got, 16 * 1024 * 1024);
	t->r.types = types;
	t->r.next = since;
	t->r.resets = feed_resets(feed_of(&episode));
	t->r.ready = tester_ready;
	t->r.reset = tester_reset;
	t->r.arg = t;
	feed_read_start(feed_of(&episode), &t->r);
}

static void
tester_end(struct tester *t)
{
	feed_read_stop(&t->r);
	buf_clear(&t->got);
}

/* What came, with times taken out. */
static char *
tester_text(struct tester *t)
{
	static char text[8192];
	struct view v = buf_view(&t->got);
	size_t n = 0;

	while (v.n > 0 && n < sizeof(text) - 1) {
		if (view_starts(v, VIEW("\"ts\":"))) {
			v = view_from(v, view_find(v, ',') + 1);
			continue;
		}
		text[n++] = v.p[0];
		v = view_from(v, 1);
	}
	text[n] = '\0';
	buf_reset(&t->got, 0);
	return text;
}

static void
add_process(const char *s)
{
	feed_add(feed_of(&episode), FEED_PROCESS, view_str(s));
}

static void
test_feed_pages(struct buf *all)
{
	tap_is_int(feed_all(feed_of(&episode), &two, all), SP_OK,
	    "feed: two from a number on");
	tap_ok(view_starts(buf_view(all), VIEW("[{\"seq\":2,")) &&
		view_search(buf_view(all), VIEW("},{\"seq\":4,")) <
		    buf_len(all) &&
		view_ends(buf_view(all),
		    VIEW("\"type\":\"gap\",\"data\":{\"lost\":3,"
			 "\"reason\":\"truncated\"}}]")),
	    "feed: and that there are more");
	buf_clear(all);
	tap_is_int(feed_all(feed_of(&episode), &little, all), SP_OK,
	    "feed: without room");
	tap_ok(view_starts(buf_view(all), VIEW("[{\"seq\":0,")) &&
		view_search(buf_view(all), VIEW("},{\"seq\":1,")) <
		    buf_len(all) &&
		view_search(buf_view(all), VIEW("},{\"seq\":2,")) ==
		    buf_len(all),
	    "feed: one, and that there are more");
	buf_clear(all);
	tap_is_int(feed_all(feed_of(&episode), &coming, all), SP_OK,
	    "feed: from the next number on");
	tap_ok(view_eq(buf_view(all), VIEW("[]")), "feed: there is none yet");
	buf_clear(all);
	tap_is_int(feed_all(feed_of(&episode), &past, all), SP_OK,
	    "feed: from a number that nobody was given");
	tap_ok(view_starts(buf_view(all), VIEW("[{\"seq\":107099,")) &&
		view_search(buf_view(all),
		    VIEW("\"type\":\"gap\",\"data\":{\"lost\":null,"
			 "\"reason\":\"unknown\"}},{\"seq\":0,")) < 100,
	    "feed: which is told, and then all that is kept");
	buf_clear(all);
}

static void
test_feed_order(void)
{
	struct tester t, u;
	struct buf all = BUF_INIT(4096);

	tap_ok(feed_of(&episode) == NULL, "feed: none before it is made");
	feed_add(NULL, FEED_PROCESS, VIEW("1"));
	news(EPISODE_MADE);
	tap_ok(feed_of(&episode) != NULL, "feed: there is one then");
	add_process("{\"kind\":\"spawn\"}");
	feed_add(feed_of(&episode), FEED_HARNESS,
	    VIEW("{ \"a\" :\n \"\xff\\ud800\" }"));
	tester_begin(&t, FEED_PROCESS, 0);
	tester_begin(&u, FEED_HARNESS | FEED_PROCESS, 1);
	tester_drain(&t);
	tester_drain(&u);
	tap_is_str(tester_text(&t),
	    "{\"seq\":0,\"type\":\"process\",\"data\":{\"kind\":\"spawn\"}}\n",
	    "feed: what is kept comes, of its types");
	tap_is_str(tester_text(&u),
	    "{\"seq\":1,\"type\":\"harness_event\",\"data\":"
	    "{\"a\":\"\xef\xbf\xbd\xef\xbf\xbd\"}}\n",
	    "feed: from a number on; foreign text is made strict");
	tap_ok(t.rc == SP_E_AGAIN && u.rc == SP_E_AGAIN,
	    "feed: then there is none yet");
	add_process("2");
	tap_is_int(t.ready_n, 0, "feed: who adds calls nobody");
	turn();
	tap_ok(t.ready_n == 1 && u.ready_n == 1, "feed: the turn's end does");
	tester_drain(&t);
	tap_is_str(tester_text(&t),
	    "{\"seq\":2,\"type\":\"process\",\"data\":2}\n",
	    "feed: live ones follow");
	add_process("3");
	add_process("4");
	turn();
	tap_ok(t.ready_n == 2 && u.ready_n == 1,
	    "feed: once for several, and not who has not read yet");
	feed_add(feed_of(&episode), FEED_HARNESS, VIEW("{\"a\":"));
	tester_drain(&t);
	tap_is_str(tester_text(&t),
	    "{\"seq\":3,\"type\":\"process\",\"data\":3}\n"
	    "{\"seq\":4,\"type\":\"process\",\"data\":4}\n",
	    "feed: not another type's");
	feed_add_gap(feed_of(&episode), FEED_PROCESS, 0, "queue");
	tester_drain(&t);
	tap_is_str(tester_text(&t),
	    "{\"seq\":6,\"type\":\"gap\",\"data\":{\"lost\":null,"
	    "\"type\":\"process\",\"reason\":\"queue\"}}\n",
	    "feed: a gap of its own type is told, another's is not");
	tester_drain(&u);
	tap_ok(strstr(tester_text(&u),
		   "{\"seq\":5,\"type\":\"gap\",\"data\":{\"lost\":1,"
		   "\"type\":\"harness_event\",\"reason\":\"malformed\"}}\n"
		   "{\"seq\":6,") != NULL,
	    "feed: what is no JSON is a gap, to who reads both");
	tap_is_int((long long)feed_next(feed_of(&episode)), 7,
	    "feed: the next number");
	tap_is_int(feed_all(feed_of(&episode), &whole, &all), SP_OK,
	    "feed: all of it");
	tap_ok(view_starts(buf_view(&all), VIEW("[")) &&
		view_ends(buf_view(&all), VIEW("]")) &&
		view_search(buf_view(&all), VIEW("}},{\"seq\":1,\"ts\":")) <
		    buf_len(&all),
	    "feed: is one array");
	buf_clear(&all);
	test_feed_pages(&all);
	buf_init(&all, 64);
	tap_is_int(feed_all(feed_of(&episode), &whole, &all), SP_E_LIMIT,
	    "feed: or too much");
	tap_is_int((long long)buf_len(&all), 0, "feed: then nothing");
	buf_clear(&all);
	tester_end(&t);
	tester_end(&u);
}

static void
test_feed_limit(void)
{
	struct buf out = BUF_INIT(40);
	struct tester t;

	tester_begin(&t, FEED_PROCESS, 99);
	tap_is_int((long long)t.r.next, 0,
	    "limit: a number that is none yet: from the beginning");
	tester_drain(&t);
	tap_ok(view_starts(view_str(tester_text(&t)),
		   VIEW("{\"seq\":99,\"type\":\"gap\",\"data\":{\"lost\":null,"
			"\"reason\":\"unknown\"}}\n{\"seq\":0,")),
	    "limit: which is told");
	tester_end(&t);
	tester_begin(&t, FEED_PROCESS, 0);
	tap_is_int(feed_read(NULL, &t.r, &out), SP_E_LIMIT,
	    "limit: no room in out");
	tap_is_int((long long)buf_len(&out), 0, "limit: nothing is there");
	tester_drain(&t);
	tap_ok(strncmp(tester_text(&t), "{\"seq\":0,", 9) == 0,
	    "limit: it is read with more room");
	buf_clear(&out);
	tester_end(&t);
}

static void
test_feed_reset(void)
{
	struct tester t, u, slow;

	tester_begin(&t, FEED_PROCESS, 0);
	tester_begin(&u, FEED_PROCESS, 0);
	tester_begin(&slow, FEED_PROCESS, 0);
	t.drains = true;
	tester_drain(&t);
	tester_drain(&u);
	tester_drain(&slow);
	buf_reset(&t.got, 0);
	buf_reset(&slow.got, 0);
	add_process("\"last\"");
	episode.resets++;
	news(EPISODE_MADE);
	tap_ok(t.reset_n == 1 && slow.reset_n == 1 && t.over_n == 0,
	    "reset: readers are told");
	add_process("\"first\"");
	turn();
	tester_drain(&slow);
	tap_is_str(tester_text(&t),
	    "{\"seq\":7,\"type\":\"process\",\"data\":\"last\"}\n"
	    "{\"seq\":0,\"type\":\"process\",\"data\":\"first\","
	    "\"resets\":1}\n",
	    "reset: who keeps up misses nothing");
	tap_is_str(tester_text(&slow),
	    "{\"seq\":7,\"type\":\"gap\",\"data\":{\"lost\":1,"
	    "\"reason\":\"reset\"},\"resets\":1}\n"
	    "{\"seq\":0,\"type\":\"process\",\"data\":\"first\","
	    "\"resets\":1}\n",
	    "reset: who does not is told what was missed");
	news(EPISODE_MADE);
	tap_is_int(t.reset_n, 1, "reset: the same one once more is none");
	/* in the middle of telling, one takes another out */
	t.stops = &u;
	u.stops = &t;
	tester_drain(&u);
	add_process("1");
	turn();
	tap_ok((t.r.feed == NULL) != (u.r.feed == NULL),
	    "reset: one reader stops another");
	tester_end(&t);
	tester_end(&u);
	tester_end(&slow);
}

/* The first thing that who comes back is told; a gap's data. */
static void
back(uint32_t resets, uint64_t next, const char *want, const char *what)
{
	struct tester t;
	char text[96];

	tester_begin(&t, FEED_PROCESS, 0);
	feed_read_stop(&t.r);
	t.r.resets = resets;
	t.r.next = next;
	feed_read_start(feed_of(&episode), &t.r);
	tester_drain(&t);
	(void)snprintf(text, sizeof(text), "{\"seq\":%llu,\"type\":\"%s",
	    (unsigned long long)next, want);
	tap_ok(strncmp(tester_text(&t), text, strlen(text)) == 0, "back: %s",
	    what);
	tester_end(&t);
}

/* Two numbers of count 1, two of count 2, after eight of count 0. */
static void
test_feed_back(void)
{
	struct tester narrow;

	episode.resets++;
	tester_begin(&narrow, FEED_NETWORK, 0);
	tester_drain(&narrow);
	news(EPISODE_MADE);
	add_process("1");
	add_process("2");
	turn();
	tester_drain(&narrow);
	tap_is_str(tester_text(&narrow), "",
	    "back: other types' events before a reset are no gap");
	tester_end(&narrow);
	back(0, 6,
	    "gap\",\"data\":{\"lost\":4,\"reason\":\"reset\"},\"resets\":2}",
	    "what was after an id of before resets is counted");
	back(1, 1, "gap\",\"data\":{\"lost\":1,", "of one reset");
	back(1, 3, "gap\",\"data\":{\"lost\":null,\"reason\":\"reset\"",
	    "a number that was never: nobody knows");
	back(7, 1, "gap\",\"data\":{\"lost\":null,\"reason\":\"unknown\"",
	    "nor of a reset to come");
	back(2, 1, "process\"", "of now: from there on");
	back(2, 9, "gap\",\"data\":{\"lost\":null,\"reason\":\"unknown\"",
	    "none of now: nobody knows");
	episode.resets = 40;
	news(EPISODE_MADE);
	back(2, 1, "gap\",\"data\":{\"lost\":null,", "too many resets ago");
}

/* What the log and /status have of it, and observers. */
static void
test_feed_disk(void)
{
	static char kib[1026];
	struct buf out = BUF_INIT(1 << 20), said = BUF_INIT(1 << 20);
	struct view rest, line;
	struct tester t;
	unsigned i, lines = 0;
	int fd = memfd_create("log", MFD_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		abort();
	log_set_fd(fd);
	memset(kib, 'k', sizeof(kib));
	kib[0] = kib[1025] = '"';
	memset(&disk, 0, sizeof(disk));
	disk.write_errno = ENOSPC;
	news(EPISODE_MADE);
	feed_spill(feed_of(&episode), file_new());
	for (i = 0; i < 4000; i++)
		feed_add(feed_of(&episode), FEED_PROCESS,
		    view_of(kib, sizeof(kib)));
	tester_begin(&t, FEED_PROCESS, 0);
	tester_drain(&t);
	tap_ok(view_search(buf_view(&t.got), VIEW("\"reason\":\"disk\"")) < 100,
	    "disk: the gap says why");
	tester_end(&t);
	disk.write_errno = 0;
	for (i = 0; i < 4000; i++)
		feed_add(feed_of(&episode), FEED_PROCESS,
		    view_of(kib, sizeof(kib)));
	log_set_fd(2);
	if (buf_reserve(&said, 1 << 16) != SP_OK)
		abort();
	n = pread(fd, buf_tail(&said), 1 << 16, 0);
	close(fd);
	buf_grow(&said, n > 0 ? (size_t)n : 0);
	rest = buf_view(&said);
	while (view_split(&rest, '\n', &line))
		lines++;
	tap_ok(view_search(buf_view(&said),
		   VIEW("state_dir is not written: "
			"no space left")) < buf_len(&said) &&
		view_search(buf_view(&said), VIEW("are written again")) <
		    buf_len(&said) &&
		lines == 3, /* and what is behind the last end */
	    "disk: the log says it once, and when it is over: %.*s",
	    VIEW_ARG(buf_view(&said)));
	tap_ok(metrics_render(metrics, false, &out) == SP_OK &&
		view_search(buf_view(&out),
		    VIEW("sallyport_event_file_errors_total 0\n")) ==
		    buf_len(&out) &&
		view_search(buf_view(&out),
		    VIEW("sallyport_event_file_errors_total ")) < buf_len(&out),
	    "disk: and it is counted");
	buf_clear(&out);
	buf_clear(&said);
	news(EPISODE_ENDED);
	turn();
}

static void
test_feed_over(void)
{
	struct tester t;
	struct feed *f = feed_of(&episode);

	tester_begin(&t, FEED_PROCESS, 0);
	tester_drain(&t);
	buf_reset(&t.got, 0);
	add_process("\"bye\"");
	news(EPISODE_ENDED);
	tap_ok(feed_of(&episode) == NULL && t.over_n == 1 && t.reset_n == 0,
	    "over: told");
	tap_ok(!t.r.more, "over: what waits for news has read all");
	turn();
	tester_drain(&t);
	tap_is_str(tester_text(&t),
	    "{\"seq\":0,\"type\":\"process\",\"data\":\"bye\","
	    "\"resets\":40}\n",
	    "over: what is left can be read");
	tap_is_int(t.rc, SP_E_EOF, "over: to its end");
	tester_end(&t);
	turn();
	tap_is_int(feed_read(NULL, &t.r, &t.got), SP_E_EOF,
	    "over: and for ever after");
	tap_is_int((long long)feed_set_memory(set), 0,
	    "over: nothing is left of it");
	episode.resets = 0;
	(void)f;
}

/* What an earlier reactor had of it is told as lost, whatever id comes. */
static void
test_feed_restart(void)
{
	struct tester t;

	episode.resets = 3;
	news(EPISODE_MADE);
	tester_begin(&t, FEED_PROCESS, 0);
	feed_read_stop(&t.r);
	t.r.resets = 2;
	t.r.next = 1;
	feed_read_start(feed_of(&episode), &t.r);
	tester_drain(&t);
	tap_is_str(tester_text(&t),
	    "{\"seq\":0,\"type\":\"gap\",\"data\":{\"lost\":null,\"reason\":"
	    "\"restart\"},\"resets\":3}\n",
	    "restart: what is told first, also to who comes back");
	tester_end(&t);
	episode.resets = 4;
	news(EPISODE_MADE);
	back(2, 1, "gap\",\"data\":{\"lost\":null,\"reason\":\"reset\"",
	    "an id of before the restart, after a reset");
	news(EPISODE_ENDED);
	turn();
	episode.resets = 0;
}

static void
test_feed_retention(void)
{
	static char kib[1026];
	struct buf all = BUF_INIT(8 << 20);
	struct tester t;
	struct view v, line;
	uint64_t want = 0, seq, gaps = 0;
	unsigned i;
	bool good = true;

	memset(kib, 'k', sizeof(kib));
	kib[0] = kib[1025] = '"';
	memset(&disk, 0, sizeof(disk));
	news(EPISODE_MADE);
	tester_begin(&t, FEED_PROCESS, 0);
	tester_drain(&t);
	for (i = 0; i < 3000; i++)
		feed_add(feed_of(&episode), FEED_PROCESS,
		    view_of(kib, sizeof(kib)));
	tap_ok(feed_set_memory(set) <= FEED_MEMORY_EACH,
	    "retention: memory is bounded: %zu", feed_set_memory(set));
	turn();
	tester_drain(&t);
	v = buf_view(&t.got);
	tap_ok(view_starts(v, VIEW("{\"seq\":0,\"ts\":")) &&
		view_search(v, VIEW("\"reason\":\"retention\"")) < 100,
	    "retention: the first is the gap");
	feed_read_stop(&t.r);
	buf_reset(&t.got, 0);
	feed_spill(feed_of(&episode), file_new());
	tester_begin(&t, FEED_PROCESS, 0);
	t.drains = true;
	for (i = 0; i < 20000; i++)
		feed_add(feed_of(&episode), FEED_PROCESS,
		    view_of(kib, sizeof(kib)));
	for (i = 0; i < 200 && t.rc != SP_E_LIMIT; i++) {
		unsigned ready = t.ready_n;

		if (i == 0) {
			tester_drain(&t);
			tap_ok(t.rc == SP_E_AGAIN && t.r.more,
			    "retention: it pauses, and is not at its end");
		}
		turn();
		if (t.ready_n == ready)
			break;
	}
	tap_ok(i > 3, "retention: a long replay lets others work: %u turns", i);
	v = buf_view(&t.got);
	while (view_split(&v, '\n', &line)) {
		if (line.n == 0)
			continue;
		line = view_from(line, 7);
		line.n = view_find(line, ',');
		if (num_u64(line, 0, UINT64_MAX, &seq) != SP_OK)
			good = false;
		else if (seq != want) {
			gaps++;
			want = seq;
		}
		want++;
	}
	tap_ok(good && gaps == 1 && t.rc == SP_E_LIMIT,
	    "retention: from memory and file, in order");
	disk.read_errno = EIO;
	tap_is_int(feed_all(feed_of(&episode), &whole, &all), SP_OK,
	    "retention: all that is left of a file that cannot be read");
	disk.read_errno = 0;
	tap_ok(view_starts(buf_view(&all), VIEW("[{\"seq\":0,\"ts\":")) &&
		view_search(buf_view(&all), VIEW("\"disk\"")) < 100 &&
		buf_len(&all) > 500000,
	    "retention: the rest is a gap");
	buf_clear(&all);
	tester_end(&t);
	news(EPISODE_ENDED);
	turn();
}

/* What is lost of the file is told, though what is left is other types'. */
static void
test_feed_unreadable(void)
{
	static char kib[1026];
	uint64_t lost, all = 0;
	struct view v, line;
	struct tester t;
	unsigned i;

	memset(kib, 'k', sizeof(kib));
	kib[0] = kib[1025] = '"';
	memset(&disk, 0, sizeof(disk));
	news(EPISODE_MADE);
	feed_spill(feed_of(&episode), file_new());
	for (i = 0; i < 4000; i++)
		feed_add(feed_of(&episode),
		    i < 1000 ? FEED_PROCESS : FEED_NETWORK,
		    view_of(kib, sizeof(kib)));
	tester_begin(&t, FEED_PROCESS, 0);
	t.drains = true;
	disk.read_errno = EIO;
	tester_drain(&t);
	for (i = 0; i < 200 && t.r.more; i++)
		turn();
	disk.read_errno = 0;
	for (v = buf_view(&t.got); view_split(&v, '\n', &line);) {
		line = view_from(line, view_search(line, VIEW("\"lost\":")));
		line = view_from(line, line.n < 7 ? line.n : 7);
		line.n = view_find(line, ',');
		if (num_u64(line, 0, UINT32_MAX, &lost) == SP_OK)
			all += lost;
	}
	tap_ok(all >= 1000 && all < 1100,
	    "unreadable: what is gone is told: %llu", (unsigned long long)all);
	tester_end(&t);
	news(EPISODE_ENDED);
	turn();
}

static void
test_feed_many(void)
{
	enum { MANY = 48 };
	static struct episode eps[MANY];
	static char big[256 * 1024];
	const struct episode_news made = { .what = EPISODE_MADE };
	const struct episode_news ended = { .what = EPISODE_ENDED };
	unsigned i, j;

	memset(big, '1', sizeof(big));
	for (i = 0; i < MANY; i++)
		feed_set_news(set, &eps[i], &made);
	for (j = 0; j < 12; j++)
		for (i = 0; i < MANY; i++)
			feed_add(feed_of(&eps[i]), FEED_MODEL,
			    view_of(big, sizeof(big)));
	tap_ok(feed_set_memory(set) <= FEED_MEMORY_ALL,
	    "many: all together are bounded: %zu", feed_set_memory(set));
	for (i = 0; i < MANY; i++)
		feed_set_news(set, &eps[i], &ended);
	turn();
	tap_is_int((long long)feed_set_memory(set), 0, "many: and go");
}

static void
test_feed_memory_fails(void)
{
	struct buf out = BUF_INIT(4096);
	unsigned long fail;
	struct tester t;
	int rc;

	mem_fail_after(1, 0);
	tap_ok(feed_set_new(loop, NULL) == NULL, "no memory: no set");
	mem_fail_after(2, 0);
	tap_ok(feed_set_new(loop, NULL) == NULL, "no memory: no task");
	mem_fail_after(1, 0);
	news(EPISODE_MADE);
	mem_fail_after(0, 0);
	tap_ok(feed_of(&episode) == NULL, "no memory: no feed");
	news(EPISODE_MADE);
	tester_begin(&t, FEED_HARNESS, 0);
	for (fail = 1; fail < 12; fail++) {
		mem_fail_after(fail, 0);
		feed_add(feed_of(&episode), FEED_HARNESS, VIEW("[1]"));
		feed_add_gap(feed_of(&episode), FEED_FS, 1, "x");
		mem_fail_after(0, 0);
	}
	feed_add(feed_of(&episode), FEED_HARNESS, VIEW("\"end\""));
	mem_fail_after(1, 0);
	rc = feed_read(NULL, &t.r, &out);
	mem_fail_after(0, 0);
	tap_is_int(rc, SP_E_NOMEM, "no memory: nothing is read");
	tester_drain(&t);
	tap_ok(strstr(tester_text(&t), "\"reason\":\"memory\"") != NULL,
	    "no memory: what was lost is told");
	tester_end(&t);
	buf_clear(&out);
	news(EPISODE_ENDED);
	turn();
}

int
main(void)
{
	loop = loop_new();
	set = loop != NULL ? feed_set_new(loop, &disk_io) : NULL;
	metrics = metrics_new();
	if (set == NULL || metrics == NULL ||
	    feed_set_metrics(set, metrics) != SP_OK)
		abort();
	test_feed_order();
	test_feed_limit();
	test_feed_reset();
	test_feed_back();
	test_feed_over();
	test_feed_restart();
	test_feed_retention();
	test_feed_disk();
	test_feed_unreadable();
	test_feed_many();
	test_feed_memory_fails();
	feed_set_free(set);
	feed_set_free(NULL);
	metrics_free(metrics);
	loop_free(loop);
	return tap_done();
}
