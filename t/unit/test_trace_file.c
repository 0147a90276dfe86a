/* Trace files: chain, torn tails, rolls, seals, and memory that runs out. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fd.h"
#include "recorder/retain.h"
#include "recorder/tail.h"
#include "tap.h"

#define BIG ((size_t)64 * 1024 * 1024)
static char dir_path[] = "/tmp/sp-trace-XXXXXX";
static int dir_fd;
static struct signer signer;

static int
put_record(struct buf *line, unsigned n)
{
	buf_reset(line, BIG);
	return buf_printf(line, "{\"turn\":%u,\"metadata\":{\"turn_high\":%u}",
	    n, n + 3);
}

static struct trace *
new_trace(const char *name, uint64_t roll)
{
	struct trace *t =
	    trace_new(dir_fd, view_str(name), VIEW("s"), view_str(name));

	if (t != NULL)
		t->roll_bytes = roll;
	return t;
}

static struct buf
slurp(const char *name)
{
	struct buf b = BUF_INIT(BIG);
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && fd_read_all(fd, &b) != 0)
		buf_reset(&b, 0);
	fd_close(&fd);
	return b;
}

static void
spit(const char *name, struct view text)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
	    0600);

	if (fd < 0 || fd_write_all(fd, text.p, text.n) != 0)
		abort();
	fd_close(&fd);
}

/* Lines of the file that hold, from prev on; -1 one does not. */
static int
chain_lines(const char *name, const char *prev)
{
	struct buf b = slurp(name);
	struct view rest = buf_view(&b), line;
	struct chain_link link;
	char want[DIGEST_HEX + 1];
	int n = 0;

	memcpy(want, prev, sizeof(want));
	while (n >= 0 && view_split(&rest, '\n', &line)) {
		if (line.n == 0)
			continue;
		if (chain_check(line, &link) != 0 ||
		    strcmp(link.prev, want) != 0) {
			n = -1;
			break;
		}
		memcpy(want, link.hash, sizeof(want));
		n++;
	}
	buf_clear(&b);
	return n;
}

static void
test_chain(void)
{
	struct buf b = BUF_INIT(4096);
	struct chain_link link, got;
	struct view line;
	size_t i;
	int bad = 0;

	chain_zero(link.prev);
	tap_is_int(put_record(&b, 1), 0, "a record");
	tap_is_int(chain_close(&b, &link), 0, "a record is closed");
	line = view_sub(buf_view(&b), 0, buf_len(&b) - 1);
	tap_is_int(chain_check(line, &got), 0, "and holds");
	tap_is_str(got.hash, link.hash, "with its hash");
	for (i = 0; i < line.n; i++) {
		b.mem[i] ^= 1;
		bad += chain_check(line, &got) == 0;
		b.mem[i] ^= 1;
	}
	tap_is_int(bad, 0, "and with no byte changed");
	for (i = 0; i < line.n; i++)
		bad += chain_check(view_sub(line, 0, i), &got) == 0;
	tap_is_int(bad, 0, "nor cut");
	buf_clear(&b);
}

static void
test_sum(void)
{
	struct chain_sum whole, bytes, lines;
	struct buf b = BUF_INIT(BIG), line = BUF_INIT(BIG);
	struct chain_link link;
	unsigned n;
	size_t i;
	int rc = 0;

	chain_sum_init(&whole);
	chain_sum_init(&bytes);
	chain_sum_init(&lines);
	chain_zero(link.prev);
	for (n = 0; n < 3; n++) {
		rc |= put_record(&line, n);
		rc |= chain_close(&line, &link);
		chain_sum_line(&lines, &link, buf_len(&line));
		memcpy(link.prev, link.hash, sizeof(link.prev));
		rc |= buf_add_view(&b, buf_view(&line));
	}
	chain_sum_feed(&whole, buf_view(&b));
	for (i = 0; i < buf_len(&b); i++)
		chain_sum_feed(&bytes, view_sub(buf_view(&b), i, 1));
	tap_ok(rc == 0 && whole.lines == 3 && bytes.lines == 3 &&
		whole.first_ok && bytes.first_ok &&
		strcmp(whole.first.hash, bytes.first.hash) == 0,
	    "a sum at once and byte by byte");
	tap_ok(lines.lines == 3 && lines.first_ok &&
		lines.bytes == whole.bytes && bytes.bytes == whole.bytes &&
		strcmp(lines.first.hash, whole.first.hash) == 0 &&
		strcmp(lines.first.prev, whole.first.prev) == 0,
	    "and line by line");
	buf_clear(&b);
	buf_clear(&line);
}

static void
append(struct trace *t, unsigned from, unsigned to, int *rc)
{
	struct buf line = BUF_INIT(BIG);

	for (; from <= to && *rc == 0; from++) {
		*rc = put_record(&line, from);
		if (*rc == 0)
			*rc = trace_append(t, &line, &signer);
	}
	buf_clear(&line);
}

static void
test_append(void)
{
	struct trace *t = new_trace("a.jsonl", 0);
	char zero[DIGEST_HEX + 1];
	struct seal_facts f;
	struct buf b;
	int rc = 0;

	chain_zero(zero);
	append(t, 1, 5, &rc);
	tap_is_int(rc, 0, "five records");
	tap_is_int(chain_lines("a.jsonl", zero), 5, "that hold");
	tap_is_int(trace_seal(t, &signer, "end"), 0, "sealed");
	b = slurp("a.seal");
	tap_is_int(seal_check(buf_view(&b), &f), 0, "the seal is good");
	tap_is_int((long long)f.turns, 5, "and tells the turns");
	b.mem[10] ^= 1;
	tap_ok(seal_check(buf_view(&b), &f) != 0, "and is not when changed");
	buf_clear(&b);
	trace_free(t);
	t = new_trace("a.jsonl", 0);
	tap_is_int(trace_open(t), 0, "opened again");
	tap_is_int((long long)t->turn_high, 8, "the turns given out go on");
	append(t, 6, 6, &rc);
	tap_is_int(chain_lines("a.jsonl", zero), 6, "and so does the chain");
	trace_undelivered(t, 9);
	trace_undelivered(t, 2);
	trace_undelivered(t, 4);
	tap_is_int(trace_seal(t, &signer, "shutdown"), 0, "sealed again");
	b = slurp("a.seal");
	tap_ok(view_search(buf_view(&b), VIEW("\"undelivered\":[2,4,9]")) <
		buf_len(&b),
	    "the undelivered turns, ascending");
	tap_ok(view_search(buf_view(&b),
		   VIEW("\"earlier\":[{\"reason\":\"shutdown\",\"turns\":5,")) <
		buf_len(&b),
	    "and the seal before");
	buf_clear(&b);
	trace_free(t);
}

/* n lines of at least that size, which wait: how many groups they are. */
static uint64_t
holds(struct trace *t, unsigned n, size_t size, int *rc)
{
	struct buf line = BUF_INIT(BIG);
	uint64_t id = 0, last = 0, groups = 0;
	unsigned i;

	for (i = 1; i <= n && *rc == 0; i++) {
		*rc = put_record(&line, i);
		if (*rc == 0)
			*rc =
			    buf_printf(&line, ",\"x\":\"%0*d\"", (int)size, 0);
		if (*rc == 0)
			*rc = trace_hold(t, &line, &signer, &id);
		groups += id != last;
		last = id;
	}
	buf_clear(&line);
	return groups;
}

static long long
file_size(const char *name)
{
	struct buf b = slurp(name);
	long long n = (long long)buf_len(&b);

	buf_clear(&b);
	return n;
}

static void
test_group(void)
{
	struct trace *t = new_trace("g.jsonl", 0);
	struct seal_facts f;
	char zero[DIGEST_HEX + 1];
	struct buf b;
	size_t size, bad = 0;
	int rc = 0;

	chain_zero(zero);
	tap_is_int((long long)holds(t, 3, 10, &rc), 1, "three that wait");
	tap_ok(rc == 0 && file_size("g.jsonl") == 0, "are not there yet");
	trace_flush(t, &signer);
	tap_is_int(chain_lines("g.jsonl", zero), 3, "now they are");
	trace_flush(t, &signer);
	(void)holds(t, 2, 10, &rc);
	(void)holds(t, 1, 40000, &rc);
	tap_ok(rc == 0 && chain_lines("g.jsonl", zero) == 6,
	    "a large one is written at once, with those before it");
	tap_ok(holds(t, 100, 2000, &rc) > 1 && rc == 0 &&
		chain_lines("g.jsonl", zero) > 60,
	    "a group is bounded");
	trace_flush(t, &signer);
	tap_is_int(chain_lines("g.jsonl", zero), 106, "all are there");
	tap_is_int(trace_seal(t, &signer, "end"), 0, "sealed");
	b = slurp("g.seal");
	tap_ok(seal_check(buf_view(&b), &f) == 0 && f.turns == 106 &&
		(long long)f.bytes == file_size("g.jsonl") &&
		strcmp(f.first_prev, zero) == 0,
	    "the seal counts them");
	buf_clear(&b);
	trace_free(t);
	/* whatever the last one that fits, and the first that does not */
	for (size = 16000; size < 16300 && rc == 0; size++) {
		(void)unlinkat(dir_fd, "g.jsonl", 0);
		t = new_trace("g.jsonl", 0);
		(void)holds(t, 5, size, &rc);
		trace_flush(t, &signer);
		trace_free(t);
		bad += chain_lines("g.jsonl", zero) != 5;
	}
	tap_ok(rc == 0 && bad == 0, "groups that are just full");
}

static void
limit(rlim_t bytes)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_FSIZE, &l) != 0)
		abort();
	l.rlim_cur = bytes == 0 ? l.rlim_max : bytes;
	if (setrlimit(RLIMIT_FSIZE, &l) != 0)
		abort();
}

/* No room for all of a group: none of it is there, and no torn line. */
static void
test_group_fails(void)
{
	struct trace *t = new_trace("f.jsonl", 0);
	char zero[DIGEST_HEX + 1];
	uint64_t failed;
	int rc = 0, again = 0;

	chain_zero(zero);
	(void)signal(SIGXFSZ, SIG_IGN);
	append(t, 1, 2, &rc);
	(void)holds(t, 3, 500, &rc);
	failed = t->group_id;
	limit((rlim_t)t->size + 1000);
	trace_flush(t, &signer);
	(void)holds(t, 1, 1, &again);
	limit(0);
	tap_ok(rc == 0 && t->failed_id == failed &&
		t->failed_rc == SP_E_NOSPC && t->failed_bytes > 500 &&
		t->failed_bytes < 1000,
	    "the group failed");
	tap_is_int(again, SP_E_NOSPC, "and what comes behind, for now");
	tap_is_int(chain_lines("f.jsonl", zero), 2, "none of it is there");
	trace_forgive(t);
	(void)holds(t, 2, 500, &rc);
	trace_flush(t, &signer);
	tap_ok(rc == 0 && t->failed_id == 0 &&
		chain_lines("f.jsonl", zero) == 4,
	    "then the chain goes on");
	trace_free(t);
	/* with rolls, another file takes it */
	t = new_trace("r.jsonl", BIG);
	append(t, 1, 2, &rc);
	(void)holds(t, 3, 500, &rc);
	limit((rlim_t)t->size);
	trace_flush(t, &signer);
	limit(0);
	tap_ok(rc == 0 && t->failed_id != 0, "too large for any file");
	trace_forgive(t);
	trace_free(t);
	t = new_trace("r.jsonl", BIG);
	append(t, 1, 20, &rc);
	(void)holds(t, 3, 500, &rc);
	limit((rlim_t)t->size);
	trace_flush(t, &signer);
	limit(0);
	tap_ok(rc == 0 && t->failed_id == 0, "too large for the first");
	t->roll_bytes = t->size + 1000;
	(void)holds(t, 5, 500, &rc);
	trace_flush(t, &signer);
	tap_ok(rc == 0 && t->failed_id == 0 && file_size("r.jsonl") > 0 &&
		file_size("r.jsonl") <= (long long)t->roll_bytes,
	    "and rolled by size");
	trace_free(t);
}

/* The last line cut at every byte: what is whole stays, the rest is aside. */
static void
test_torn(void)
{
	struct trace *t = new_trace("t.jsonl", 0);
	char zero[DIGEST_HEX + 1];
	struct buf b;
	size_t first, cut, bad = 0;
	int rc = 0;

	chain_zero(zero);
	append(t, 1, 2, &rc);
	trace_free(t);
	b = slurp("t.jsonl");
	first = view_find(buf_view(&b), '\n') + 1;
	for (cut = 0; cut < buf_len(&b); cut++) {
		int want = cut < first ? 0 : 1;

		spit("t.jsonl", view_sub(buf_view(&b), 0, cut));
		t = new_trace("t.jsonl", 0);
		rc = trace_open(t);
		append(t, 3, 3, &rc);
		trace_free(t);
		bad += rc != 0 || chain_lines("t.jsonl", zero) != want + 1;
	}
	tap_is_int((long long)bad, 0, "torn at every byte");
	buf_clear(&b);
}

static void
count_work(void *arg)
{
	(*(unsigned *)arg)++;
}

static void
test_long_lines(void)
{
	struct trace *t = new_trace("l.jsonl", 0);
	struct buf line = BUF_INIT(BIG);
	char zero[DIGEST_HEX + 1];
	unsigned n = 0;
	size_t i;
	int rc;

	chain_zero(zero);
	rc = put_record(&line, 1);
	rc |= buf_add_str(&line, ",\"x\":\"");
	for (i = 0; i < 300000 && rc == 0; i++)
		rc = buf_add_char(&line, 'x');
	rc |= buf_add_char(&line, '"');
	rc |= trace_append(t, &line, &signer);
	trace_free(t);
	t = new_trace("l.jsonl", 0);
	append(t, 2, 2, &rc);
	tap_ok(rc == 0 && chain_lines("l.jsonl", zero) == 2,
	    "a line longer than a block is read back");
	trace_free(t);
	t = new_trace("l.jsonl", 0);
	trace_on_work(count_work, &n);
	tap_is_int(trace_seal(t, &signer, "end"), 0, "and sealed");
	trace_on_work(NULL, NULL);
	tap_ok(n >= 2, "of its reading is told, block by block");
	trace_free(t);
	buf_clear(&line);
}

/* Every allocation fails once: never a torn or broken file. */
static void
test_no_memory(void)
{
	char zero[DIGEST_HEX + 1];
	unsigned long i;
	int rc = SP_E_NOMEM, bad = 0;

	chain_zero(zero);
	for (i = 1; i < 400 && rc != 0; i++) {
		struct trace *t;

		(void)unlinkat(dir_fd, "m.jsonl", 0);
		(void)unlinkat(dir_fd, "m.seal", 0);
		mem_fail_after(i, 0);
		t = new_trace("m.jsonl", 0);
		rc = t != NULL ? 0 : SP_E_NOMEM;
		if (t != NULL)
			append(t, 1, 2, &rc);
		if (rc == 0)
			(void)holds(t, 2, 10, &rc);
		if (rc == 0)
			trace_flush(t, &signer);
		if (rc == 0)
			rc = trace_seal(t, &signer, "end");
		mem_fail_after(0, 0);
		trace_free(t);
		bad += chain_lines("m.jsonl", zero) < 0;
	}
	tap_ok(rc == 0 && i > 5, "%lu allocations failed in turn", i - 2);
	tap_is_int(bad, 0, "and no file was broken");
}

static void
test_names(void)
{
	char out[32];

	tap_is_int((long long)trace_roll_number(VIEW("d.jsonl.12"),
		       VIEW("d.jsonl")),
	    12, "a roll");
	tap_is_int((long long)trace_roll_number(VIEW("d.jsonl.12.seal"),
		       VIEW("d.jsonl")),
	    0, "a roll's seal is none");
	tap_ok(seal_name(VIEW("d.jsonl.1"), out, sizeof(out)) == 0 &&
		strcmp(out, "d.jsonl.1.seal") == 0,
	    "a roll's seal");
	tap_is_int(seal_name(VIEW("d.jsonl"), out, 4), SP_E_LIMIT, "too long");
}

static void
clean_up(void)
{
	static const char *const files[] = { "a.jsonl", "a.seal", "t.jsonl",
		"t.jsonl.torn", "l.jsonl", "l.seal", "m.jsonl", "m.seal",
		"g.jsonl", "g.seal", "f.jsonl", "r.jsonl", "r.jsonl.1",
		"r.jsonl.1.seal", "r.jsonl.2", "r.jsonl.2.seal", "r.jsonl.3",
		"r.jsonl.3.seal", "r.jsonl.4", "r.jsonl.4.seal", "recorder.key",
		"sallyport.pub" };
	size_t i;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		(void)unlinkat(dir_fd, files[i], 0);
	fd_close(&dir_fd);
	tap_is_int(rmdir(dir_path), 0, "nothing else was left");
}

int
main(void)
{
	int rc;

	if (mkdtemp(dir_path) == NULL)
		return 1;
	dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = signer_open(&signer, dir_fd);
	if (rc == SP_E_UNSUPPORTED) {
		/* valgrind before 3.22, for one */
		tap_skip(1, "no openat2 here");
		fd_close(&dir_fd);
		(void)rmdir(dir_path);
		return tap_done();
	}
	tap_is_int(rc, 0, "a key is made");
	tap_is_int(signer_publish(&signer, dir_fd, 0600), 0, "and published");
	signer_clear(&signer);
	tap_is_int(signer_open(&signer, dir_fd), 0, "and found again");
	tap_is_int(signer_publish(&signer, dir_fd, 0600), 0, "the same");
	test_chain();
	test_sum();
	test_append();
	test_group();
	test_group_fails();
	test_torn();
	test_long_lines();
	test_no_memory();
	test_names();
	signer_clear(&signer);
	clean_up();
	return tap_done();
}
