#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "json/jscan.h"
#include "os/fd.h"
#include "recorder/tail.h"

enum {
	BLOCK = 64 * 1024,
	LINE_MAX_BYTES = 512 * 1024 * 1024, /* longer ones are not looked at */
};

static int
read_at(int fd, void *p, size_t n, uint64_t at)
{
	ssize_t got;
	size_t done = 0;

	while (done < n) {
		got = pread(fd, (char *)p + done, n - done, (off_t)(at + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_from_errno(errno);
		if (got == 0)
			return SP_E_EOF; /* it shrank under us */
		done += (size_t)got;
	}
	return 0;
}

/* One past the last LF before `end`; 0 when there is none. */
static int
after_last_lf(int fd, uint64_t end, uint64_t *out)
{
	char block[BLOCK];
	const char *lf;
	size_t n;
	int rc;

	*out = 0;
	while (end > 0) {
		n = end > BLOCK ? BLOCK : (size_t)end;
		rc = read_at(fd, block, n, end - n);
		if (rc != 0)
			return rc;
		lf = memrchr(block, '\n', n);
		if (lf != NULL) {
			*out = end - n + (uint64_t)(lf - block) + 1;
			return 0;
		}
		end -= n;
	}
	return 0;
}

static uint64_t
number_in(struct view text, struct view key)
{
	struct jscan_span v;
	struct jscan s;
	int64_t i;

	jscan_init(&s, text, 0);
	if (jscan_find(text, key, &v) != 1 || v.kind != JSCAN_NUMBER ||
	    jscan_i64(&s, &v, &i) != 0 || i < 0)
		return 0;
	return (uint64_t)i;
}

static uint64_t
line_turn_high(struct view line)
{
	uint64_t turn = number_in(line, VIEW("turn")), high = 0;
	struct jscan_span v;
	struct jscan s;

	jscan_init(&s, line, 0);
	if (jscan_find(line, VIEW("metadata"), &v) == 1 &&
	    v.kind == JSCAN_OBJECT)
		high = number_in(jscan_raw(&s, &v), VIEW("turn_high"));
	return high > turn ? high : turn;
}

int
tail_read(int fd, uint64_t size, struct tail *out)
{
	struct buf line = BUF_INIT(LINE_MAX_BYTES);
	uint64_t start;
	size_t n;
	int rc;

	*out = (struct tail){ .whole = 0 };
	chain_zero(out->link.prev);
	chain_zero(out->link.hash);
	rc = after_last_lf(fd, size, &out->whole);
	if (rc != 0 || out->whole == 0)
		return rc;
	rc = after_last_lf(fd, out->whole - 1, &start);
	if (rc != 0 || out->whole - 1 - start > LINE_MAX_BYTES)
		return rc;
	n = (size_t)(out->whole - 1 - start);
	rc = buf_reserve(&line, n);
	if (rc == 0)
		rc = read_at(fd, buf_tail(&line), n, start);
	if (rc == 0) {
		buf_grow(&line, n);
		out->chained = chain_check(buf_view(&line), &out->link) == 0;
		out->turn_high = line_turn_high(buf_view(&line));
	}
	if (!out->chained) {
		chain_zero(out->link.prev);
		chain_zero(out->link.hash);
	}
	buf_clear(&line);
	return rc;
}

int
tail_cut(int fd, uint64_t size, uint64_t whole, int torn)
{
	char block[BLOCK];
	uint64_t at;
	size_t n;
	int rc = 0;

	for (at = whole; at < size && rc == 0; at += n) {
		n = size - at > BLOCK ? BLOCK : (size_t)(size - at);
		rc = read_at(fd, block, n, at);
		if (rc == 0)
			rc = fd_write_all(torn, block, n);
	}
	if (rc == 0)
		rc = fd_write_all(torn, "\n", 1);
	if (rc == 0 && ftruncate(fd, (off_t)whole) != 0)
		rc = err_from_errno(errno);
	return rc;
}
