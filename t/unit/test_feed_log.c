/* core/gate/feed_log.c: what is kept, spilled and dropped. */
#include "config.h"

#include "base/mem.h"
#include "base/num.h"
#include "feed_disk.h"
#include "os/fd.h"
#include "tap.h"

enum { TYPE = 1 << 0, OTHER = 1 << 1, GAP = 1 << 6 };

/* An event of about 1 KiB that says its number. */
static int
log_put(struct feed_log *l, unsigned n, unsigned type)
{
	char text[1024];

	memset(text, 'x', sizeof(text));
	(void)snprintf(text, sizeof(text), "%u", n);
	text[strlen(text)] = ' ';
	return feed_log_add(l, type, GAP, n, view_of(text, sizeof(text)));
}

static unsigned
log_says(const struct feed_log_event *ev)
{
	uint64_t n = UINT64_MAX;
	struct view v = ev->data;

	v.n = view_find(v, ' ');
	if (num_u64(v, 0, UINT32_MAX, &n) != SP_OK)
		return UINT32_MAX;
	return (unsigned)n;
}

/* All that is there, in order and without a hole but for gaps. */
static unsigned
log_count(struct feed_log *l, uint64_t *first, uint64_t *last, bool *good)
{
	struct feed_log_at at = { .block = 0 };
	struct feed_log_event ev;
	unsigned n = 0, budget;
	int rc;

	*good = true;
	*first = *last = UINT64_MAX;
	for (;;) {
		budget = 1;
		rc = feed_log_get(l, &at, ~0U, &budget, &ev);
		if (rc == SP_E_STATE)
			continue;
		if (rc != SP_OK)
			break;
		if (n == 0)
			*first = ev.seq;
		else if (ev.seq != *last + 1)
			*good = false;
		if (ev.type != GAP && log_says(&ev) != ev.seq)
			*good = false;
		*last = ev.seq;
		n++;
	}
	return n;
}

static void
test_log_memory(void)
{
	const struct feed_log_limits limits = { .memory_max = 512 * 1024,
		.file_max = 1024 * 1024,
		.io = &disk_io };
	struct feed_log l;
	uint64_t first, last;
	unsigned i, n;
	bool good = true;

	feed_log_init(&l, &limits);
	n = log_count(&l, &first, &last, &good);
	tap_is_int(n, 0, "log: an empty one has nothing");
	for (i = 0; i < 2000; i++)
		good = log_put(&l, i, TYPE) == SP_OK && good;
	tap_ok(good, "log: all of them are added");
	n = log_count(&l, &first, &last, &good);
	tap_ok(good && n > 200 && n < 600, "log: as many are kept as fit: %u",
	    n);
	tap_is_int((long long)last, 1999, "log: up to the last");
	tap_is_int((long long)(first + n), 2000, "log: one behind the other");
	tap_is_int((long long)l.oldest, (long long)first,
	    "log: the oldest is known");
	tap_ok(l.oldest_us == first - 1, "log: and when the one before it was");
	tap_ok(l.memory <= 512 * 1024, "log: no more than may be: %zu",
	    l.memory);
	feed_log_restart(&l);
	tap_ok(l.next == 0 && l.oldest == 0 && l.memory == 0,
	    "log: restarted, it is empty and begins at 0");
	tap_ok(log_put(&l, 0, TYPE) == SP_OK &&
		log_count(&l, &first, &last, &good) == 1 && first == 0,
	    "log: and goes on");
	feed_log_clear(&l);
}

static void
test_log_file(void)
{
	const struct feed_log_limits limits = { .memory_max = 128 * 1024,
		.file_max = 1024 * 1024,
		.io = &disk_io };
	struct feed_log l;
	uint64_t first, last;
	unsigned i, n;
	bool good = true, all = true;

	memset(&disk, 0, sizeof(disk));
	disk.most = 5000;
	disk.interrupts = 3;
	feed_log_init(&l, &limits);
	feed_log_file(&l, file_new());
	for (i = 0; i < 900; i++)
		good = log_put(&l, i, TYPE) == SP_OK && good;
	n = log_count(&l, &first, &last, &good);
	tap_ok(good && n == 900 && first == 0,
	    "file: short writes and reads lose nothing: %u", n);
	tap_ok(disk.writes > 20 && disk.reads > 20,
	    "file: and there were some");
	disk.most = 0;
	/* round and round, with sizes that do not divide it */
	for (i = 900; i < 20000; i++) {
		all = log_put(&l, i, TYPE) == SP_OK && all;
		if (i % 991 != 0)
			continue;
		n = log_count(&l, &first, &last, &good);
		all = all && good && n > 700 && last == i;
	}
	tap_ok(all, "file: its room is used again and again, in order");
	n = log_count(&l, &first, &last, &good);
	tap_ok(good && n > 900 && n < 1300 && last == 19999,
	    "file: it holds the newest: %u", n);
	feed_log_restart(&l);
	for (i = 0; i < 500; i++)
		all = log_put(&l, i, TYPE) == SP_OK && all;
	n = log_count(&l, &first, &last, &good);
	tap_ok(all && good && n == 500 && first == 0,
	    "file: used anew after a restart");
	feed_log_clear(&l);
}

static void
test_log_full(void)
{
	const struct feed_log_limits limits = { .memory_max = 128 * 1024,
		.file_max = 64 * 1024 * 1024,
		.io = &disk_io };
	struct feed_log l;
	uint64_t first, last;
	unsigned i, n;
	bool good = true, all = true;
	int fd;

	memset(&disk, 0, sizeof(disk));
	disk.room = 500 * 1000;
	feed_log_init(&l, &limits);
	feed_log_file(&l, file_new());
	for (i = 0; i < 6000; i++) {
		all = log_put(&l, i, TYPE) == SP_OK && all;
		if (i % 97 != 0)
			continue;
		n = log_count(&l, &first, &last, &good);
		all = all && good && last == i;
	}
	n = log_count(&l, &first, &last, &good);
	tap_ok(all && good && n > 300 && last == 5999,
	    "full: what the file has is used again: %u", n);
	tap_ok(l.write_errors > 3, "full: the disk was: %llu",
	    (unsigned long long)l.write_errors);
	tap_ok(l.write_rc == SP_E_NOSPC && l.broken == l.oldest,
	    "full: and is, which is why the oldest are gone");
	disk.room = 0;
	for (i = 6000; i < 8000; i++)
		all = log_put(&l, i, TYPE) == SP_OK && all;
	n = log_count(&l, &first, &last, &good);
	tap_ok(all && good && n > 1500,
	    "full: there is room again, and more is kept: %u", n);
	tap_is_int(l.write_rc, SP_OK, "full: it is no more");
	disk.write_errno = EIO;
	for (i = 8000; i < 9000; i++)
		all = log_put(&l, i, TYPE) == SP_OK && all;
	n = log_count(&l, &first, &last, &good);
	tap_ok(all && good && n > 10 && n < 200 && last == 8999,
	    "broken: the newest are kept, without a hole: %u", n);
	tap_ok(l.write_rc != SP_OK && l.broken == l.oldest,
	    "broken: which is known");
	disk.write_errno = 0;
	for (i = 9000; i < 9500; i++)
		all = log_put(&l, i, TYPE) == SP_OK && all;
	disk.read_errno = EIO;
	n = log_count(&l, &first, &last, &good);
	tap_ok(all && good && n > 10 && n < 200 && last == 9499 &&
		l.oldest == first,
	    "broken: what cannot be read is told as not kept: %u", n);
	tap_ok(l.write_rc == SP_OK && l.read_errors > 0 && l.broken == l.oldest,
	    "broken: for that reason: %d, %llu, %llu", l.write_rc,
	    (unsigned long long)l.read_errors, (unsigned long long)l.broken);
	disk.read_errno = 0;
	disk.write_errno = EIO;
	for (i = 9500; i < 9999; i++)
		all = log_put(&l, i, TYPE) == SP_OK && all;
	feed_log_restart(&l);
	tap_ok(all && l.write_rc != SP_OK && l.broken == 0,
	    "broken: a reset does not mend it");
	feed_log_clear(&l);
	/* a kernel's own word */
	memset(&disk, 0, sizeof(disk));
	feed_log_init(&l,
	    &(const struct feed_log_limits){ .memory_max = 128 * 1024,
		.file_max = 1024 * 1024 });
	fd = -1;
	if (fd_sealed("refuses", "", 0, &fd) != SP_OK)
		abort();
	feed_log_file(&l, fd);
	for (i = 0; i < 500; i++)
		all = log_put(&l, i, TYPE) == SP_OK && all;
	tap_ok(all && l.oldest > 0, "sealed: the oldest go");
	feed_log_clear(&l);
}

static void
test_log_types(void)
{
	const struct feed_log_limits limits = { .memory_max = 128 * 1024,
		.file_max = 16 * 1024 * 1024,
		.io = &disk_io };
	struct feed_log_at at = { .block = 0 };
	struct feed_log_event ev;
	struct feed_log l;
	unsigned i, budget = 0, n = 0;
	bool good = true;
	int rc;

	memset(&disk, 0, sizeof(disk));
	feed_log_init(&l, &limits);
	feed_log_file(&l, file_new());
	for (i = 0; i < 2000; i++)
		good = log_put(&l, i, i % 400 == 0 ? OTHER : TYPE) == SP_OK &&
		    good;
	rc = feed_log_get(&l, &at, OTHER, &budget, &ev);
	tap_is_int(rc, SP_E_STATE, "types: nothing is read without a budget");
	do {
		budget = 1;
		rc = feed_log_get(&l, &at, OTHER, &budget, &ev);
		if (rc == SP_OK)
			good = good && ev.seq == 400ULL * n++;
	} while (rc == SP_OK || rc == SP_E_STATE);
	tap_ok(good && n == 5 && rc == SP_E_AGAIN,
	    "types: just those that are wanted");
	tap_ok(disk.reads < 8, "types: blocks without them are not read: %u",
	    disk.reads);
	tap_is_int(log_put(&l, 2000, OTHER), SP_OK, "types: another one");
	budget = 0;
	rc = feed_log_get(&l, &at, OTHER, &budget, &ev);
	tap_ok(rc == SP_OK && ev.seq == 2000, "types: is found from there");
	feed_log_clear(&l);
}

static void
test_log_large(void)
{
	const struct feed_log_limits limits = { .memory_max = 256 * 1024,
		.file_max = 4 * 1024 * 1024,
		.io = &disk_io };
	static char big[FEED_LOG_EVENT_MAX + 1];
	struct feed_log_at at = { .block = 0 };
	struct feed_log_event ev;
	struct feed_log l;
	unsigned budget = 8;
	int rc;

	memset(&disk, 0, sizeof(disk));
	memset(big, '7', sizeof(big));
	feed_log_init(&l, &limits);
	feed_log_file(&l, file_new());
	rc = feed_log_add(&l, TYPE, GAP, 1, view_of(big, sizeof(big)));
	tap_is_int(rc, SP_E_LIMIT, "large: one byte too many is refused");
	tap_ok(l.next == 1 && l.lost == 1, "large: and counted");
	tap_is_int(feed_log_get(&l, &at, ~0U, &budget, &ev), SP_E_AGAIN,
	    "large: there is nothing to read of it yet");
	rc = feed_log_add(&l, TYPE, GAP, 2, view_of(big, sizeof(big) - 1));
	tap_is_int(rc, SP_OK, "large: the largest goes");
	rc = feed_log_get(&l, &at, ~0U, &budget, &ev);
	tap_ok(rc == SP_OK && ev.type == GAP && ev.seq == 0 &&
		view_eq(ev.data, VIEW("{\"lost\":1,\"reason\":\"memory\"}")),
	    "large: the gap is in its place");
	rc = feed_log_get(&l, &at, ~0U, &budget, &ev);
	tap_ok(rc == SP_OK && ev.seq == 1 && ev.data.n == FEED_LOG_EVENT_MAX,
	    "large: then the largest");
	tap_is_int(feed_log_add(&l, TYPE, GAP, 3, VIEW("1")), SP_OK,
	    "large: then a small one");
	tap_ok(l.memory < 256 * 1024, "large: which is in the file: %zu",
	    l.memory);
	rc = feed_log_get(&l, &at, ~0U, &budget, &ev);
	tap_ok(rc == SP_OK && ev.seq == 2, "large: which is read on");
	at = (struct feed_log_at){ .block = 0 };
	rc = feed_log_get(&l, &at, TYPE, &budget, &ev);
	tap_ok(rc == SP_OK && ev.data.n == FEED_LOG_EVENT_MAX &&
		ev.data.p[77777] == '7',
	    "large: and comes back from the file");
	feed_log_clear(&l);
}

static void
test_log_memory_fails(void)
{
	const struct feed_log_limits limits = { .memory_max = 128 * 1024,
		.file_max = 512 * 1024,
		.io = &disk_io };
	unsigned long fail;
	bool good = true;

	memset(&disk, 0, sizeof(disk));
	for (fail = 1; fail < 60 && good; fail++) {
		struct feed_log_at at = { .block = 0 };
		uint64_t told = 0, last = 0;
		struct feed_log_event ev;
		struct feed_log l;
		unsigned i, budget;
		int rc;

		feed_log_init(&l, &limits);
		feed_log_file(&l, file_new());
		mem_fail_after(fail, 0);
		for (i = 0; i < 400; i++)
			(void)!log_put(&l, i, TYPE);
		mem_fail_after(0, 0);
		(void)!log_put(&l, 400, TYPE);
		for (;;) {
			budget = 1;
			rc = feed_log_get(&l, &at, ~0U, &budget, &ev);
			if (rc != SP_OK)
				break;
			good = good && ev.seq == told;
			told++;
			last = ev.seq;
			if (ev.type == GAP) {
				uint64_t n = 0;
				struct view v = view_from(ev.data, 8);

				v.n = view_find(v, ',');
				good = good && num_u64(v, 1, 400, &n) == SP_OK;
				told += n - 1;
			}
		}
		good = good && last == 400 && told == 401 && l.lost == 0;
		feed_log_clear(&l);
	}
	tap_ok(good, "no memory: each that is lost is told in its place");
}

int
main(void)
{
	test_log_memory();
	test_log_file();
	test_log_full();
	test_log_types();
	test_log_large();
	test_log_memory_fails();
	return tap_done();
}
